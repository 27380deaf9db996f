-- Activation functions, against their formulas.
local both = require("spec.lupine.onnx.both")
local helper = require("spec.helper")
local torch = require("torch")

local FLOATS = { torch.float64, torch.float32, torch.float16, torch.bfloat16 }
local LOOSE = { [torch.float64] = { 1e-9, 1e-9 }, [torch.float32] = { 2e-6, 2e-6 },
  [torch.float16] = { 3e-3, 3e-3 }, [torch.bfloat16] = { 3e-2, 3e-2 } }

local function elu(x, alpha)
  return x > 0 and x or alpha * (math.exp(x) - 1)
end

local SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875

-- Operator, attributes, formula, version (17).
local FUNCTIONS = {
  { "Relu", nil, function(x)
    return math.max(x, 0)
  end },
  { "LeakyRelu", nil, function(x)
    return x > 0 and x or 0.01 * x
  end },
  { "LeakyRelu", { alpha = 0.25 }, function(x)
    return x > 0 and x or 0.25 * x
  end },
  { "Elu", nil, function(x)
    return elu(x, 1)
  end },
  { "Elu", { alpha = 2.0 }, function(x)
    return elu(x, 2)
  end },
  { "Celu", { alpha = 2.0 }, function(x)
    return math.max(0, x) + math.min(0, 2 * (math.exp(x / 2) - 1))
  end },
  { "Selu", nil, function(x)
    return SELU_GAMMA * elu(x, SELU_ALPHA)
  end },
  { "Selu", { alpha = 2.0, gamma = 3.0 }, function(x)
    return 3 * elu(x, 2)
  end },
  { "Sigmoid", nil, function(x)
    return 1 / (1 + math.exp(-x))
  end },
  { "HardSigmoid", nil, function(x)
    return math.max(0, math.min(1, 0.2 * x + 0.5))
  end },
  { "HardSigmoid", { alpha = 0.5, beta = 0.25 }, function(x)
    return math.max(0, math.min(1, 0.5 * x + 0.25))
  end },
  { "HardSwish", nil, function(x)
    return x * math.max(0, math.min(1, x / 6 + 0.5))
  end },
  { "Softplus", nil, function(x)
    return math.log(math.exp(x) + 1)
  end },
  { "Softsign", nil, function(x)
    return x / (1 + math.abs(x))
  end },
  { "Mish", nil, function(x)
    return x * (1 - 2 / ((1 + math.exp(x)) ^ 2 + 1))
  end, 18 },
  { "Gelu", { approximate = "tanh" }, function(x)
    local y = math.sqrt(2 / math.pi) * (x + 0.044715 * x ^ 3)
    return x * (1 - 1 / (math.exp(2 * y) + 1))
  end, 20 },
  { "ThresholdedRelu", { alpha = 0.5 }, function(x)
    return x > 0.5 and x or 0
  end },
  { "Shrink", { lambd = 1.0, bias = 0.5 }, function(x)
    return x < -1 and x + 0.5 or x > 1 and x - 0.5 or 0
  end },
}

describe("activations", function()
  for _, row in ipairs(FUNCTIONS) do
    it(row[1] .. " has the values of its formula in every type", function()
      -- clear of kinks: 0, 0.5, 1, 3
      local x = torch.linspace(-4, 4, 19) + 0.05
      for _, dtype in ipairs(FLOATS) do
        local t = x:to(dtype)
        local y = both(row[1], { t }, row[2], { version = row[4] })
        assert.equal(dtype, y.dtype)
        both.near(y, both.map(row[3], t), LOOSE[dtype])
      end
      both.gradients(row[1], { x }, row[2], { version = row[4] })
    end)
  end

  it("Gelu is half of x with the error function, too", function()
    local x = torch.tensor({ -1.0, 0.5, 2 })
    both.near(both("Gelu", { x }, nil, { version = 20 }), { -0.158655, 0.345731, 1.954500 })
    both.refuses("attribute 'approximate' is 'sigmoid'. Allowed: 'none', 'tanh'", "Gelu", { x },
      { approximate = "sigmoid" }, { version = 20 })
  end)

  it("take integers where ONNX allows them", function()
    local x = torch.tensor({ -3, -1, 0, 2 }, { dtype = torch.int32 })
    assert.same({ 0, 0, 0, 2 }, both("Relu", { x }):tolist())
    assert.same({ -2, 0, 0, 1 }, both("Shrink", { x }, { lambd = 1.5, bias = 1.0 }):tolist())
    assert.same({ -6, -2, 0, 2 }, both("PRelu", { x, torch.tensor({ 2 }, { dtype = torch.int32 }) })
      :tolist())
    both.refuses("input 'X' is torch.int32. Allowed: floating point", "Elu", { x })
    both.refuses("attribute 'alpha' is 0", "Celu", { x:float() }, { alpha = 0.0 })
  end)
end)

describe("PRelu", function()
  local x = torch.tensor({ { { -1.0, 2 }, { -3, -4 } } })

  it("broadcasts its slope to X", function()
    local slope = torch.tensor({ { 0.5 }, { 0.25 } })
    assert.same({ { { -0.5, 2 }, { -0.75, -1 } } }, both("PRelu", { x, slope }, nil,
      { version = 9 }):tolist())
    both.gradients("PRelu", { x, slope })
    both.refuses("input 'slope' of the shape [3] does not broadcast to 'X' of the shape "
      .. "[1, 2, 2]", "PRelu", { x, torch.ones({ 3 }) })
    both.refuses("input 'slope' of the shape [1, 1, 1, 1] does not broadcast", "PRelu",
      { x, torch.ones({ 1, 1, 1, 1 }) })
  end)

  it("has a slope for each channel before version 7", function()
    local slope = torch.tensor({ 0.5, 0.25 })
    assert.same({ { { -0.5, 2 }, { -0.75, -1 } } }, both("PRelu", { x, slope }, nil,
      { version = 6 }):tolist())
    assert.same({ { { -0.5, 2 }, { -1.5, -2 } } }, both("PRelu", { x, slope["0:1"] }, nil,
      { version = 6 }):tolist())
    both.refuses("input 'slope' has 3 elements, 'X' of the shape [1, 2, 2]", "PRelu",
      { x, torch.ones({ 3 }) }, nil, { version = 6 })
  end)
end)

describe("Clip", function()
  local x = torch.tensor({ -3.0, 0, 3 })

  it("has its bounds in attributes before version 11", function()
    assert.same({ -1, 0, 2 }, both("Clip", { x }, { min = -1.0, max = 2.0 }, { version = 6 })
      :tolist())
    assert.same({ -3, 0, 2 }, both("Clip", { x }, { max = 2.0 }, { version = 6 }):tolist())
    assert.same({ -3, 0, 3 }, both("Clip", { x }, nil, { version = 10 }):tolist())
    assert.same({ -3, 0, 2 }, both("Clip", { x:half() }, { max = 2.0 }, { version = 6 }):tolist())
  end)

  it("has its bounds in inputs from then on", function()
    local low, high = torch.tensor(-1.0), torch.tensor({ 2.0 })
    for _, constants in ipairs({ {}, { [2] = true }, { [2] = true, [3] = true } }) do
      local options = { version = 11, constants = constants }
      assert.same({ -1, 0, 2 }, both("Clip", { x, low, high }, nil, options):tolist())
      assert.same({ -1, 0, 3 }, both("Clip", { x, low }, nil, options):tolist())
      assert.same({ -3, 0, 2 }, both("Clip", { x, false, high }, nil, options):tolist())
    end
    assert.same({ -3, 0, 3 }, both("Clip", { x }, nil, { version = 11 }):tolist())
    assert.same({ 2, 2, 2 }, both("Clip", { x, torch.tensor(4.0), high }):tolist())
    for _, dtype in ipairs({ torch.int8, torch.int32, torch.int64, torch.float16 }) do
      local y = both("Clip", { x:to(dtype), low:to(dtype), high:to(dtype) })
      assert.same({ -1, 0, 2 }, y:tolist())
      assert.equal(dtype, y.dtype)
    end
  end)

  it("never trains its bounds", function()
    local model = require("spec.lupine.onnx.node").model("Clip", { x, torch.tensor(-1.0),
      torch.tensor(1.0) }, nil, { constants = { [2] = true, [3] = true } })
    assert.same({}, helper.state_keys(model))
    both.gradients("Clip", { torch.tensor({ -2.0, 0.5, 3 }), torch.tensor(-1.0):double(),
      torch.tensor(1.0):double() }, nil, { constants = { [2] = true, [3] = true } })
  end)

  it("refuses bounds of many elements, or of another type", function()
    both.refuses("input 'max' has the shape [2]. Allowed: one element", "Clip", { x, false,
      torch.ones({ 2 }) })
    both.refuses("inputs 'input' and 'min' must be of one type", "Clip", { x, torch.tensor(1) })
  end)
end)

describe("Softmax and its like", function()
  local function lines(x, columns, fn)
    local out, list = {}, both.flat(x)
    for row = 0, #list // columns - 1 do
      local line = { table.unpack(list, row * columns + 1, (row + 1) * columns) }
      for _, y in ipairs(fn(line)) do
        out[#out + 1] = y
      end
    end
    return out
  end

  local function softmax(line)
    local sum, out = 0, {}
    for i, x in ipairs(line) do
      out[i] = math.exp(x)
      sum = sum + out[i]
    end
    for i = 1, #out do
      out[i] = out[i] / sum
    end
    return out
  end

  local FORMULAS = {
    Softmax = softmax,
    LogSoftmax = function(line)
      local out = softmax(line)
      for i = 1, #out do
        out[i] = math.log(out[i])
      end
      return out
    end,
    Hardmax = function(line)
      local at, out = 1, {}
      for i, x in ipairs(line) do
        at = x > line[at] and i or at
      end
      for i = 1, #line do
        out[i] = i == at and 1 or 0
      end
      return out
    end,
  }

  for name, fn in pairs(FORMULAS) do
    it(name .. " is over all dimensions from one on before version 13", function()
      torch.manual_seed(4)
      local x = torch.randn({ 2, 3, 4 })
      for axis, columns in pairs({ [0] = 24, [1] = 12, [2] = 4, [-1] = 4, [-2] = 12 }) do
        both.near(both(name, { x }, { axis = axis }, { version = 11 }), lines(x, columns, fn))
      end
      both.near(both(name, { x }, nil, { version = 7 }), lines(x, 12, fn))
    end)

    it(name .. " is over one dimension from then on", function()
      torch.manual_seed(5)
      local x = torch.randn({ 2, 3, 4 })
      for axis = -3, 2 do
        local moved = x:transpose(axis, -1)
        local y = both(name, { x }, { axis = axis })
        both.near(y:transpose(axis, -1), lines(moved, x:size(axis), fn))
      end
      for _, dtype in ipairs(FLOATS) do
        local t = x:to(dtype)
        local y = both(name, { t })
        assert.equal(dtype, y.dtype)
        both.near(y, lines(t, 4, fn), LOOSE[dtype])
      end
      both.refuses("attribute 'axis' is 3. Allowed: -3 to 2", name, { x }, { axis = 3 })
    end)
  end

  it("has gradients, and the first of equal elements", function()
    both.gradients("Softmax", { torch.randn({ 2, 3 }) }, { axis = 0 })
    both.gradients("LogSoftmax", { torch.randn({ 2, 3, 2 }) }, nil, { version = 11 })
    assert.same({ 0, 1, 0, 0 }, both("Hardmax", { torch.tensor({ 1.0, 3, 3, 2 }) }):tolist())
  end)
end)
