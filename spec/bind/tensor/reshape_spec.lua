--- Shapes changed in place; values that a dtype cannot hold.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")
local raises = helper.raises

local function arange(...)
  local sizes = { ... }
  local n = 1
  for _, s in ipairs(sizes) do
    n = n * s
  end
  return torch.arange(n, { dtype = torch.float32 }):reshape(sizes)
end

describe("A shape changed in place", function()
  it("is that of the method without the underscore, for every reference", function()
    local cases = {
      { "t_" }, { "transpose_", 0, 1 }, { "swapaxes_", 0, -1 }, { "swapdims_", 0, 1 },
      { "unsqueeze_", 1 }, { "squeeze_" }, { "as_strided_", { 3, 2 }, { 1, 3 } },
    }
    for _, case in ipairs(cases) do
      local x = arange(2, 3)
      local want = x[case[1]:sub(1, -2)](x, table.unpack(case, 2)):tolist()
      local same = x
      assert.equal(x, x[case[1]](x, table.unpack(case, 2)))
      assert.same(want, same:tolist(), case[1])
    end
  end)

  it("is part of the history of a result", function()
    local w = arange(2, 3):requires_grad_(true)
    local y = w * 2
    y:t_()
    y:unsqueeze_(0)
    assert.equal(torch.Size({ 1, 3, 2 }), y.shape)
    local z = y * torch.tensor({ { 1.0, 2 }, { 3, 4 }, { 5, 6 } })
    z:sum():backward()
    assert.same({ { 2.0, 6.0, 10.0 }, { 4.0, 8.0, 12.0 } }, w.grad:tolist())
  end)

  it("leaves views and their gradients as they were", function()
    local base = torch.zeros(3, 3)
    local row = base[0]
    base:t_()
    local w = torch.ones(3):requires_grad_(true)
    row:add_(w) -- writes what is now the first column
    assert.same({ { 1.0, 0.0, 0.0 }, { 1.0, 0.0, 0.0 }, { 1.0, 0.0, 0.0 } }, base:tolist())
    row:sum():backward()
    assert.same({ 1.0, 1.0, 1.0 }, w.grad:tolist())
  end)

  it("is refused for a leaf that requires a gradient, but under no_grad", function()
    local p = torch.nn.Parameter(torch.ones(1, 2))
    raises("RuntimeError", "leaf", function()
      p:squeeze_()
    end)
    torch.no_grad(function() p:squeeze_() end)
    assert.equal(torch.Size({ 2 }), p.shape)
    p:sum():backward()
    assert.same({ 1.0, 1.0 }, p.grad:tolist())
  end)

  it("can be traced", function()
    local poptorch = require("poptorch")
    local Net = torch.nn.Module:extend("Net")
    function Net:forward(x) -- luacheck: ignore self
      local y = x + 1
      y:t_()
      y:unsqueeze_(0)
      return y * 2
    end
    local x = arange(2, 3)
    local got = poptorch.inferenceModel(Net())(x)
    assert.same(((x + 1):t():unsqueeze(0) * 2):tolist(), got:tolist())
  end)

  it("is refused of the input of a traced function, whose caller would not see it", function()
    raises("RuntimeError", "one that it gives.*use the method without '_'", function()
      require("lupine.compile")(function(x)
        x:transpose_(0, 1)
        return x * 2
      end, { arange(2, 3) })
    end)
  end)
end)

describe("resize_", function()
  it("keeps the elements in order and can take more", function()
    local x = arange(2, 3)
    assert.same({ { 0.0, 1.0 }, { 2.0, 3.0 } }, x:resize_(2, 2):tolist())
    assert.same({ { 0.0, 1.0, 2.0, 3.0 }, { 4.0, 5.0, 0.0, 0.0 } }, x:resize_({ 2, 4 }):tolist())
    assert.same({ 0.0, 1.0 }, x:resize_as_(torch.zeros(2)):tolist())
    for _, dtype in ipairs({ torch.int64, torch.float16, torch.bool }) do -- its own dtype stays
      local y = torch.ones(2):resize_as_(torch.zeros({ 3 }, { dtype = dtype }))
      assert.equal(torch.float32, y.dtype)
      assert.same({ 1.0, 1.0, 0.0 }, y:tolist())
    end
  end)

  it("refuses what it cannot do", function()
    raises("TypeError", "size 0", function()
      arange(2):resize_(-1)
    end)
    raises("RuntimeError", "grad", function()
      local y = arange(2):requires_grad_() * 1
      y:resize_(1)
    end)
  end)
end)

describe("set_", function()
  it("leaves a parameter one, be it a view", function()
    for _, x in ipairs({ torch.ones(2), torch.ones(3)["1:"] }) do
      local p = torch.nn.Parameter(x)
      torch.no_grad(function()
        p:set_(torch.zeros(2))
      end)
      assert.is_true(p.requires_grad and p.is_leaf and core.is_parameter(p))
      assert.is_nil(p._base)
      assert.same({ 0.0, 0.0 }, p:tolist())
    end
  end)

  it("shares the memory of its source", function()
    local x, y = arange(3), arange(2, 2)
    x:set_(y)
    y:fill_(7)
    assert.same({ { 7.0, 7.0 }, { 7.0, 7.0 } }, x:tolist())
    assert.equal(0, x:set_():numel())
    raises("RuntimeError", "int64", function()
      x:set_(torch.tensor(1))
    end)
  end)
end)

describe("A value that the dtype cannot hold", function()
  -- as PyTorch 2.15 answers
  local refused = {
    { 300, "uint8" }, { -256, "uint8" }, { 200, "int8" }, { 2 ^ 40, "int32" },
    { math.huge, "int32" }, { 0 / 0, "int64" }, { 1e39, "float32" }, { 1e6, "float16" },
    { 1e39, "bfloat16" },
  }
  local taken = {
    { -1, "uint8", 255 }, { -255, "uint8", 1 }, { 2.7, "int32", 2 }, { 2, "bool", true },
    { math.huge, "float16", math.huge }, { 65504, "float16", 65504.0 },
  }

  it("is refused by full, full_like, new_full and fill_, and by the trace of fill", function()
    for _, case in ipairs(refused) do
      local v, dtype = case[1], torch[case[2]]
      local like = torch.zeros({ 2 }, { dtype = dtype })
      for _, fn in ipairs({
        function() return torch.full({ 2 }, v, { dtype = dtype }) end,
        function() return torch.full_like(like, v) end,
        function() return like:new_full({ 2 }, v) end,
        function() return like:fill_(v) end,
        function() compiled.step(function(x) return x:fill(v) end, { like }) end,
      }) do
        raises("RuntimeError", "without overflow", fn)
      end
    end
    for _, case in ipairs(taken) do
      local x = torch.full({ 1 }, case[1], { dtype = torch[case[2]] })
      assert.equal(case[3], x[0]:item())
    end
  end)

  it("is refused by tensor, for integers", function()
    raises("RuntimeError", "without overflow", function()
      torch.tensor({ 1, 300 }, { dtype = torch.uint8 })
    end)
    assert.equal(math.huge, torch.tensor(1e39):item())
  end)
end)
