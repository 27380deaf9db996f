-- Gradients and second gradients of the pointwise operators, against central
-- differences. Each row: intervals of the operands, clear of kinks.
local core = require("lupine.core")
local torch = require("torch")
local differences = require("spec.support.differences")

local nn, special = core.forms.nn, core.forms.special

local function expect(name, f, intervals, shapes)
  it(name, function()
    local inputs = {}
    for i, interval in ipairs(intervals) do
      local shape = shapes and shapes[i] or { 6 }
      inputs[i] = differences.spread(shape, interval[1], interval[2])
    end
    differences.check(f, inputs)
  end)
end

describe("the gradient of one operand", function()
  local rows = {
    { "abs", 0.2, 3 }, { "abs", -3, -0.2 }, { "neg", -3, 3 }, { "square", -3, 3 },
    { "sqrt", 0.2, 4 }, { "rsqrt", 0.2, 4 }, { "reciprocal", 0.2, 4 }, { "deg2rad", -90, 90 },
    { "rad2deg", -3, 3 }, { "exp", -3, 3 }, { "exp2", -3, 3 }, { "expm1", -3, 3 },
    { "log", 0.2, 4 }, { "log1p", -0.8, 4 }, { "log2", 0.2, 4 }, { "log10", 0.2, 4 },
    { "sin", -3, 3 }, { "cos", -3, 3 }, { "tan", -1.2, 1.2 }, { "asin", -0.8, 0.8 },
    { "acos", -0.8, 0.8 }, { "atan", -3, 3 }, { "sinh", -3, 3 }, { "cosh", -3, 3 },
    { "tanh", -3, 3 }, { "asinh", -3, 3 }, { "acosh", 1.2, 4 }, { "atanh", -0.8, 0.8 },
    { "erf", -2, 2 }, { "erfc", -2, 2 }, { "erfinv", -0.8, 0.8 }, { "lgamma", 0.3, 4 },
    { "digamma", 0.3, 4 }, { "sigmoid", -3, 3 }, { "relu", 0.2, 3 }, { "relu", -3, -0.2 },
    { "selu", 0.1, 3 }, { "selu", -3, -0.1 }, { "frac", 0.1, 0.9 }, { "floor", 0.1, 0.9 },
    { "ceil", 0.1, 0.9 }, { "trunc", 0.1, 0.9 }, { "round", 0.1, 0.4 }, { "sign", 0.2, 3 },
    { "nan_to_num", -3, 3 }, { "clone", -3, 3 },
  }
  for _, row in ipairs(rows) do
    local name, low, high = table.unpack(row)
    expect(("of %s on (%g, %g)"):format(name, low, high), torch[name], { { low, high } })
  end
  expect("of expit", special.expit, { { -3, 3 } })
  expect("of polygamma", function(x) return torch.polygamma(2, x) end, { { 0.5, 4 } })
  expect("of a conversion and back", function(x)
    return x:mul(2):to(torch.float64):exp()
  end, { { -1, 1 } })
end)

describe("the gradient of an activation", function()
  local rows = {
    { "gelu", -3, 3 }, { "silu", -3, 3 }, { "mish", -3, 3 }, { "softsign", 0.1, 3 },
    { "softsign", -3, -0.1 }, { "logsigmoid", -3, 3 }, { "tanhshrink", -3, 3 },
    { "hardsigmoid", -2, 2 }, { "hardswish", -2, 2 }, { "hardswish", 3.2, 5 },
    { "hardtanh", -0.9, 0.9 }, { "hardtanh", 1.1, 3 }, { "relu6", 0.5, 5 }, { "relu6", 6.5, 9 },
    { "elu", 0.1, 3 }, { "elu", -3, -0.1 }, { "celu", -3, -0.1 }, { "leaky_relu", -3, -0.1 },
    { "leaky_relu", 0.1, 3 }, { "softplus", -3, 3 }, { "softplus", 21, 25 },
    { "softshrink", 0.7, 3 }, { "softshrink", -0.4, 0.4 }, { "hardshrink", 0.7, 3 },
  }
  for _, row in ipairs(rows) do
    local name, low, high = table.unpack(row)
    expect(("%s on (%g, %g)"):format(name, low, high), nn[name], { { low, high } })
  end
  expect("gelu by tanh", function(x)
    return nn.gelu(x, { approximate = "tanh" })
  end, { { -3, 3 } })
  expect("softplus with beta", function(x) return nn.softplus(x, 2, 10) end, { { -3, 3 } })
  expect("elu with alpha", function(x) return nn.elu(x, 1.7) end, { { -3, -0.1 } })
  expect("celu with alpha", function(x) return nn.celu(x, 1.7) end, { { -3, -0.1 } })
  expect("threshold", function(x) return nn.threshold(x, 1, 5) end, { { 1.1, 3 } })
  expect("prelu of one weight", nn.prelu, { { -3, -0.1 }, { 0.1, 0.4 } }, { { 2, 3 }, { 1 } })
  expect("prelu of a weight a channel", nn.prelu, { { -3, -0.1 }, { 0.1, 0.4 } },
    { { 2, 3, 2 }, { 3 } })
end)

describe("the gradient of two operands", function()
  local rows = {
    { "add", { -3, 3 } }, { "sub", { -3, 3 } }, { "mul", { -3, 3 } },
    { "div", { -3, 3 }, { 0.5, 2 } }, { "fmod", { 0.1, 0.9 }, { 1, 2 } },
    { "remainder", { -0.9, -0.1 }, { 1, 2 } }, { "pow", { 0.3, 3 }, { -2, 2 } },
    { "atan2", { 0.3, 3 } }, { "hypot", { 0.3, 3 } }, { "copysign", { 0.3, 3 } },
    { "xlogy", { 0.3, 3 } }, { "logaddexp", { -3, 3 } }, { "logaddexp2", { -3, 3 } },
    { "maximum", { 1, 2 }, { 2.1, 3 } }, { "minimum", { 1, 2 }, { 2.1, 3 } },
    { "fmax", { 1, 2 }, { 2.1, 3 } }, { "fmin", { 1, 2 }, { 2.1, 3 } },
    { "floor_divide", { 2.1, 2.9 }, { 1, 1.02 } },
  }
  for _, row in ipairs(rows) do
    local name, first, second = row[1], row[2], row[3] or row[2]
    expect("of " .. name, torch[name], { first, second })
    expect("of " .. name .. ", broadcast", torch[name], { first, second }, { { 2, 1 }, { 3 } })
  end
  expect("of add with alpha", function(x, y)
    return torch.add(x, y, { alpha = 2.5 })
  end, { { -3, 3 }, { -3, 3 } })
  expect("of sub with alpha", function(x, y)
    return torch.sub(x, y, { alpha = 2.5 })
  end, { { -3, 3 }, { -3, 3 } })
  for _, exponent in ipairs({ -2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5 }) do
    expect("of a power " .. exponent, function(x) return x ^ exponent end, { { 0.3, 3 } })
  end
  expect("of a power of 2", function(x) return 2 ^ x end, { { -2, 2 } })
  expect("of numbers on either side", function(x)
    return 2 / x + (3 - x) * (x - 1) / 4 + x % 7
  end, { { 0.5, 3 } })
end)

describe("the gradient of three operands", function()
  local any = { -3, 3 }
  expect("of where", function(x, y) return torch.where(x:gt(y), x * x, y * 3) end,
    { { 0, 1 }, { 1.1, 2 } })
  expect("of masked_fill", function(x) return x:mul(x):masked_fill(x:gt(0), 7) end, { any })
  expect("of lerp", torch.lerp, { any, any, { 0.1, 0.4 } })
  expect("of lerp with a number", function(x, y) return torch.lerp(x, y, 0.7) end, { any, any })
  expect("of addcmul", function(x, y, z)
    return torch.addcmul(x, y, z, { value = 2 })
  end, { any, any, any })
  expect("of addcdiv", function(x, y, z)
    return torch.addcdiv(x, y, z, { value = 2 })
  end, { any, any, { 0.5, 3 } })
  expect("of clamp within", torch.clamp, { { 0.1, 0.9 }, { -1, 0 }, { 1, 2 } })
  expect("of clamp below", torch.clamp, { { -3, -2 }, { -1, 0 }, { 1, 2 } })
  expect("of clamp above", torch.clamp, { { 3, 4 }, { -1, 0 }, { 1, 2 } })
  expect("of clamp with crossed bounds", torch.clamp, { { 3, 4 }, { 1, 2 }, { -1, 0 } })
  expect("of clamp_min", function(x) return x:clamp({ min = 0.5 }) ^ 2 end, { { 0.6, 2 } })
end)

describe("the gradient of equal operands", function()
  it("is shared by maximum and minimum", function()
    for _, name in ipairs({ "maximum", "minimum" }) do
      local x = torch.tensor({ 1.0, 2 }, { requires_grad = true })
      local y = torch.tensor({ 1.0, 2 }, { requires_grad = true })
      torch[name](x, y):sum():backward()
      assert.same({ 0.5, 0.5 }, x.grad:tolist())
      assert.same({ 0.5, 0.5 }, y.grad:tolist())
    end
  end)
  it("of x^0 at 0 is 0, and of x^y too", function()
    local x = torch.tensor({ 0.0, 2 }, { requires_grad = true })
    local y = torch.tensor({ 0.0, 0 }, { requires_grad = true })
    torch.pow(x, y):sum():backward()
    assert.same({ 0, 0 }, x.grad:tolist())
    assert.equal(0, y.grad:tolist()[1])
  end)
end)

-- Values from PyTorch 2.15.
describe("the second gradient where a power overflows", function()
  local helper = require("spec.helper")
  local F = torch.nn.functional
  local function second(f, list, dtype)
    local x = torch.tensor(list, { dtype = dtype }):requires_grad_()
    local g = torch.autograd.grad(f(x):sum(), { x }, { create_graph = true })[1]
    return torch.autograd.grad(g:sum(), { x })[1], g
  end

  it("is 0 of elu, selu and celu, at the bend and of NaN too", function()
    local list = { -1000, -1, -0.25, 0, 0.5, 100, 1e4, 0 / 0 }
    local rows = {
      { function(x) return F.elu(x, 0.5) end, { 0, 0.18393972516, 0.38940039277, 0.5, 1, 1, 1, 1 },
        { 0, 0.18393972516, 0.38940039277, 0, 0, 0, 0, 0 } },
      { F.selu, { 0, 0.64676862955, 1.36920917034, 1.75809931756, 1.05070102215, 1.05070102215,
        1.05070102215, 1.05070102215 }, { 0, 0.64676862955, 1.36920917034, 0, 0, 0, 0, 0 } },
      { function(x) return F.celu(x, 0.5) end,
        { 0, 0.13533528149, 0.60653066635, 1, 1, 1, 1, 1 },
        { 0, 0.27067056298, 1.21306133270, 0, 0, 0, 0, 0 } },
    }
    for _, row in ipairs(rows) do
      local d2, d1 = second(row[1], list, torch.float32)
      helper.near(d1, row[2], { 0, 1e-6 })
      helper.near(d2, row[3], { 0, 1e-6 })
    end
  end)

  it("is finite of gelu by tanh in float16", function()
    local function f(x)
      return F.gelu(x, { approximate = "tanh" })
    end
    helper.near((second(f, { -100, -3, 1, 89 }, torch.float16)),
      { 0, -0.0316162109375, 0.2425537109375, 0 }, { 1e-3, 0 })
  end)

  it("is that of softsign in float16", function()
    helper.near((second(F.softsign, { -99, 127 }, torch.float16)), { 2e-6, -2 / 128 ^ 3 },
      { 2e-7, 0 })
  end)

  it("is 0 of copysign, also at 0 and infinity", function()
    local x = torch.tensor({ 0.0, 2, -3, math.huge }, { requires_grad = true })
    local d = torch.ones(4):requires_grad_()
    local dx = torch.autograd.grad({ x:copysign(torch.tensor({ -1.0, -1, -1, 1 })) }, { x }, { d },
      { create_graph = true })[1]
    assert.same({ 0, -1, 1, 1 }, dx:tolist())
    dx:backward(torch.ones(4))
    assert.same({ 0, -1, 1, 1 }, d.grad:tolist())
    assert.is_true(x.grad == nil or not x.grad:any():item())
  end)
end)
