--- Rules whose pointwise operators run as one chain on large tensors: the bits are
--- those of the single operators, which small tensors have.
local poptorch = require("poptorch")
local torch = require("torch")
local F = torch.nn.functional

local SIZE, PIECE = 40000, 1000 -- a chain's, and too few for one

local function gradient(f, x, seed)
  local leaf = x:detach():requires_grad_()
  return torch.autograd.grad(f(leaf), { leaf }, seed)[1]
end

-- f and its gradient of x in one call, and piece by piece.
local function check(f, x, seed)
  local parts, grads = {}, {}
  for at = 0, SIZE - 1, PIECE do
    local piece = x:narrow(0, at, PIECE)
    parts[#parts + 1] = f(piece)
    grads[#grads + 1] = gradient(f, piece, seed:narrow(0, at, PIECE))
  end
  assert.is_true(torch.equal(torch.cat(parts), f(x)))
  assert.is_true(torch.equal(torch.cat(grads), gradient(f, x, seed)))
end

describe("an eager rule over a large tensor", function()
  local functions = {
    hardswish = F.hardswish,
    mish = F.mish,
    softsign = F.softsign,
    hardsigmoid = F.hardsigmoid, -- a logical operator, which no chain has
    smooth_l1 = function(x)
      return F.smooth_l1_loss(x, torch.zeros_like(x), { reduction = "none", beta = 0.7 })
    end,
    huber = function(x)
      return F.huber_loss(x, torch.zeros_like(x), { reduction = "none", delta = 1.5 })
    end,
  }
  for _, dtype in ipairs({ "float32", "float64", "float16", "bfloat16" }) do
    it("has the bits of its single operators in " .. dtype, function()
      torch.manual_seed(3)
      local x = (torch.randn({ SIZE }) * 3):to(torch[dtype])
      local seed = torch.randn({ SIZE }):to(torch[dtype])
      for _, f in pairs(functions) do
        check(f, x, seed)
      end
    end)
  end

  it("sums losses block by block to the bits of their elements' sum", function()
    torch.manual_seed(6)
    for _, dtype in ipairs({ "float32", "float64", "bfloat16" }) do
      local x = torch.randn({ SIZE }):to(torch[dtype])
      local y = torch.randn({ SIZE }):to(torch[dtype])
      for _, name in ipairs({ "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss" }) do
        local each = F[name](x, y, { reduction = "none" })
        for _, how in ipairs({ "sum", "mean" }) do
          local whole = F[name](x, y, { reduction = how })
          local apart = poptorch.identity_loss(each, how)
          assert.is_true(torch.equal(whole, apart), name)
        end
      end
    end
  end)

  it("sums rows, and reads what is broadcast along them, to the same bits", function()
    torch.manual_seed(8)
    for _, dtype in ipairs({ "float32", "float64", "float16" }) do
      for _, width in ipairs({ 300, 3000 }) do
        local x = torch.randn({ 60000 // width, width }):to(torch[dtype])
        local weight = torch.randn({ width }):to(torch[dtype])
        local rows = {}
        for i = 0, x:size(0) - 1 do -- too small for a chain
          rows[i + 1] = F.rms_norm(x:narrow(0, i, 1), { width }, weight)
        end
        assert.is_true(torch.equal(F.rms_norm(x, { width }, weight), torch.cat(rows)))
      end
    end
  end)

  it("gives both operands of a loss their gradients in one pass", function()
    torch.manual_seed(7)
    local x, y = torch.randn({ 200, 300 }):requires_grad_(), torch.randn({ 300 }):requires_grad_()
    for _, name in ipairs({ "mse_loss", "l1_loss" }) do
      local power = name == "mse_loss" and 2 or 1
      local dx, dy = table.unpack(torch.autograd.grad(F[name](x, y), { x, y }))
      local wx, wy = table.unpack(
        torch.autograd.grad((x - y):abs():pow(power):mean(), { x, y }))
      assert.is_true(torch.allclose(dx, wx, 1e-5, 1e-9), name)
      assert.is_true(torch.allclose(dy, wy, 1e-5, 1e-7), name)
    end
  end)

  it("reads strided and broadcast operands", function()
    torch.manual_seed(4)
    local x, row = torch.randn({ 200, 300 }):t(), torch.randn({ 200 })
    local loss = F.huber_loss(x, row, { reduction = "none", delta = 0.5 })
    local d = (x - row):abs()
    local wanted = torch.where(d:lt(0.5), d * d * 0.5, (d - 0.25) * 0.5)
    assert.is_true(torch.allclose(loss, wanted, 1e-6, 1e-7))
  end)

  it("gives losses gradients that have gradients", function()
    torch.manual_seed(5)
    local x = torch.randn({ SIZE }, { dtype = torch.float64 }):requires_grad_()
    local y = torch.zeros({ SIZE }, { dtype = torch.float64 })
    local loss = F.smooth_l1_loss(x, y, { reduction = "sum", beta = 0.5 })
    local dx = torch.autograd.grad(loss, { x }, nil, { create_graph = true })[1]
    local inside = x:detach():abs():lt(0.5)
    local wanted = torch.where(inside, x:detach() / 0.5, x:detach():sign())
    assert.is_true(torch.allclose(dx:detach(), wanted, 1e-12, 1e-14))
    local second = torch.autograd.grad(dx:sum(), { x })[1]
    assert.is_true(torch.allclose(second, inside:double() / 0.5, 1e-12, 1e-14))
  end)

  it("refuses what its operators refuse", function()
    local x = torch.randn({ SIZE })
    assert.has_error(function()
      F.huber_loss(x, torch.zeros({ 3 }))
    end)
  end)
end)
