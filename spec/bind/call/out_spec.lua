-- out= of functions: the tensor given holds the result afterwards.
local torch = require("torch")
local F = torch.nn.functional

describe("out=", function()
  local a = torch.tensor({ { 4.0, 1.0 }, { 1.0, 3.0 } })
  local x = torch.tensor({ 0.3, 0.9, 0.5 })

  local function filled(call, ...)
    local want, out = call(), {}
    for i, dtype in ipairs({ ... }) do
      out[i] = torch.zeros({ 0 }, { dtype = dtype })
    end
    call({ out = #out == 1 and out[1] or out })
    assert.is_true(torch.equal(want, out[1]))
  end

  it("is taken by functions made from sizes, in the dtype of out", function()
    local wide = torch.zeros({ 0 }, { dtype = torch.float64 })
    torch.arange(0, 1, 0.1, { out = wide })
    assert.is_true(torch.equal(torch.arange(0, 1, 0.1, { dtype = torch.float64 }), wide))
    local whole = torch.zeros({ 2 }, { dtype = torch.int32 })
    assert.same({ 3, 3 }, torch.full({ 2 }, 3, { out = whole }):tolist())
    for _, fn in ipairs({ torch.zeros, torch.ones, torch.rand, torch.randn }) do
      local out = torch.zeros({ 0 }, { dtype = torch.float64 })
      fn({ 3 }, { out = out })
      assert.same({ 3 }, out.shape)
    end
    assert.same({ 0, 1, 2 }, (torch.randperm(3, { out = whole.new_zeros(whole, { 3 }) }):sort())
      :tolist())
  end)

  it("is taken by torch.linalg and torch.special", function()
    filled(function(...) return torch.linalg.inv(a, ...) end, torch.float32)
    filled(function(...) return torch.linalg.det(a, ...) end, torch.float32)
    filled(function(...) return torch.linalg.qr(a, ...) end, torch.float32, torch.float32)
    filled(function(...) return torch.linalg.solve(a, a, ...) end, torch.float32)
    filled(function(...) return torch.special.entr(x, ...) end, torch.float32)
    filled(function(...) return torch.special.xlog1py(x, 2.0, ...) end, torch.float32)
  end)

  it("is taken by functions of several results and by those of nn.functional", function()
    filled(function(...) return torch.cummax(x, 0, ...) end, torch.float32, torch.int64)
    filled(function(...) return torch.max(x, 0, ...) end, torch.float32, torch.int64)
    filled(function(...) return torch.std(x, ...) end, torch.float32)
    filled(function(...) return F.gelu(x, ...) end, torch.float32)
    filled(function(...) return F.avg_pool2d(a[{ torch.none }], 2, ...) end, torch.float32)
  end)

  it("holds what tensordot contracts over lists of dimensions", function()
    local lists = { { 0 }, { 1 } }
    local out = torch.zeros({ 2, 2 })
    torch.tensordot(a, a, { dims = lists, out = out })
    assert.is_true(torch.equal(torch.tensordot(a, a, lists), out))
    assert.has_error(function()
      torch.tensordot(a, a, { dims = lists, no_such = out })
    end)
  end)

  it("is taken by no method", function()
    assert.has_error(function()
      a:det({ out = torch.zeros({}) })
    end)
  end)
end)
