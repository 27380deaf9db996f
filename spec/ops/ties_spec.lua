-- Gradients where operands tie or repeat: PyTorch 2.15's, by hand from
-- torch.autograd.grad of the same calls.
local F = require("torch.nn.functional")
local helper = require("spec.helper")
local torch = require("torch")

local function leaf(values)
  return torch.tensor(values, { dtype = torch.float64 }):requires_grad_(true)
end

describe("a gradient at a tie", function()
  it("of clamp is nothing on a bound that is a number", function()
    local x = leaf({ 1, 2, 3 })
    x:clamp(1, 2.5):sum():backward()
    assert.same({ 0, 1, 0 }, x.grad:tolist())
  end)

  it("of clamp is shared with a bound that is a tensor", function()
    local x, low, high = leaf({ 1, 2, 3, 2 }), leaf({ 1, 1, 1, 2 }), leaf({ 3, 3, 3, 2 })
    torch.clamp(x, low, high):sum():backward()
    assert.same({ 0.5, 1, 0.5, 1 }, x.grad:tolist())
    assert.same({ 0.5, 0, 0, 0 }, low.grad:tolist())
    assert.same({ 0, 0, 0.5, 0 }, high.grad:tolist())
  end)

  it("of an activation is that of one side of its kink", function()
    for _, c in ipairs({
      { "hardtanh", { -1, 0, 1 }, { 0, 1, 0 } },
      { "relu6", { 0, 3, 6 }, { 0, 1, 0 } },
      { "hardsigmoid", { -3, 3 }, { 0, 0 } },
      { "hardswish", { -3, 3 }, { 0, 1 } },
      { "elu", { -0.0, 0, 1 }, { 2, 2, 1 }, 2 },
      { "celu", { 0 }, { 1 }, 2 },
      { "selu", { 0 }, { 1.0507009873554805 * 1.6732632423543772 } },
      { "leaky_relu", { 0 }, { 0.1 }, 0.1 },
      { "relu", { 0 }, { 0 } },
      { "softshrink", { -0.5, 0.5 }, { 0, 0 } },
      { "hardshrink", { -0.5, 0.5 }, { 0, 0 } },
      { "threshold", { 1 }, { 0 }, 1, 5 },
      -- at the threshold the function is not yet its straight line
      { "softplus", { 2 }, { 1 / (1 + math.exp(-2)) }, 1, 2 },
    }) do
      local x = leaf(c[2])
      F[c[1]](x, table.unpack(c, 4)):sum():backward()
      helper.near(x.grad, c[3])
    end
  end)

  it("of an activation of a half type is where that type's edge is", function()
    -- x: 0.3 rounded to the type, the number below it, one above
    for name, x in pairs({ float16 = { 0.300048828125, 0.2998046875, 0.5 },
      bfloat16 = { 0.30078125, 0.298828125, 0.5 } }) do
      for _, c in ipairs({
        { "softshrink", { 0, 0, x[3] - x[1] }, { 0, 0, 1 } },
        { "hardshrink", { 0, 0, 0.5 }, { 0, 0, 1 } },
        -- compares in float32
        { "threshold", { x[1], -1.5, 0.5 }, { 1, 0, 1 }, -1.5 },
      }) do
        local input = torch.tensor(x, { dtype = torch[name] }):requires_grad_(true)
        local y = F[c[1]](input, 0.3, table.unpack(c, 4))
        y:sum():backward()
        assert.same(torch.tensor(c[2], { dtype = torch[name] }):tolist(), y:tolist())
        assert.same(c[3], input.grad:tolist())
      end
    end
  end)

  it("of an activation at NaN is that of no bound", function()
    for _, f in ipairs({ F.hardtanh, F.relu6, F.softshrink, F.hardshrink,
      function(x) return F.rrelu(x, { training = true, lower = 0.5, upper = 0.5 }) end }) do
      local x = leaf({ 0 / 0 })
      f(x):sum():backward()
      assert.same({ 1 }, x.grad:tolist())
    end
    local x = leaf({ 0, -1, 1 })
    F.rrelu(x, { training = true, lower = 0.5, upper = 0.5 }):sum():backward()
    assert.same({ 0.5, 0.5, 1 }, x.grad:tolist())
  end)

  it("of clamp at NaN ends at a number and passes a tensor", function()
    local nan = 0 / 0
    local x = leaf({ nan, 1 })
    x:clamp(0, 2):sum():backward()
    assert.same({ 0, 1 }, x.grad:tolist())
    local low = leaf({ 0, nan, 2 })
    x = leaf({ nan, 1, nan })
    torch.clamp(x, { min = low }):sum():backward()
    assert.same({ 1, 1, 1 }, x.grad:tolist())
    assert.same({ 1, 1, 1 }, low.grad:tolist())
    local high = leaf({ 0, 0, 0 })
    x, low = leaf({ nan, 1, nan }), leaf({ 1, nan, 0 })
    torch.clamp(x, low, high):sum():backward()
    assert.same({ 1, 0, 1 }, x.grad:tolist())
    assert.same({ 0, 0, 0 }, low.grad:tolist())
    assert.same({ 1, 0, 0 }, high.grad:tolist())
    x = leaf({ nan, 1 })
    F.margin_ranking_loss(x, leaf({ 2, 2 }), leaf({ 1, 1 }), { reduction = "sum" }):backward()
    assert.same({ 0, -1 }, x.grad:tolist())
  end)

  it("of elu's gradient is 0 where elu is x, however large", function()
    for _, f in ipairs({ F.elu, F.selu, F.celu }) do
      local x = torch.tensor({ 100.0, 0.0, -3.0 }):requires_grad_(true)
      f(x):sum():backward(nil, { create_graph = true })
      local slope = torch.autograd.grad(x.grad:sum(), x)
      slope = torch.is_tensor(slope) and slope or slope[1]
      assert.same({ 0, 0 }, { slope[0]:item(), slope[1]:item() })
      assert.is_true(slope[2]:item() > 0.04)
      x.grad = nil -- it leads back to x: a cycle that nobody sees
    end
  end)

  it("of index_fill counts a repeated position once", function()
    local x, value = leaf({ 1, 2, 3 }), leaf(5)
    torch.index_fill(x, 0, torch.tensor({ 1, 1 }), value):sum():backward()
    assert.equal(1, value.grad:item())
    assert.same({ 1, 0, 1 }, x.grad:tolist())
  end)

  it("of a norm at zero is finite, and so is its own", function()
    local x = leaf({ 0, 0 })
    local g = torch.autograd.grad({ torch.linalg.vector_norm(x) }, { x }, nil,
      { create_graph = true })[1]
    assert.same({ 0, 0 }, g:tolist())
  end)
end)

describe("mixed types", function()
  it("of a loss promote as tensors of one shape do", function()
    local got = F.mse_loss(torch.ones({ 2 }), torch.ones({}, { dtype = torch.float64 }))
    assert.equal(torch.float64, got.dtype)
  end)

  it("become the least int32 out of its range", function()
    local x = torch.tensor({ math.huge, 3e9, -1.5 })
    assert.same({ -2147483648, -2147483648, -1 }, x:to(torch.int32):tolist())
  end)
end)
