-- Operators on each element of one tensor, against Lua's mathematics.
local both = require("spec.lupine.onnx.both")
local helper = require("spec.helper")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

local FLOATS = { torch.float64, torch.float32, torch.float16, torch.bfloat16 }

local function even(x)
  local down = math.floor(x)
  local rest = x - down
  return (rest > 0.5 or rest == 0.5 and down % 2 == 1) and down + 1.0 or down + 0.0
end

-- Operator -> version, function, least and largest argument.
local FUNCTIONS = {
  Acos = { 7, math.acos, -0.9, 0.9 },
  Acosh = { 9, function(x)
    return math.log(x + math.sqrt(x * x - 1))
  end, 1.2, 4 },
  Asin = { 7, math.asin, -0.9, 0.9 },
  Asinh = { 9, function(x)
    return math.log(x + math.sqrt(x * x + 1))
  end, -1, 4 },
  Atan = { 7, math.atan, -4, 4 },
  Atanh = { 9, function(x)
    return math.log((1 + x) / (1 - x)) / 2
  end, -0.8, 0.8 },
  Ceil = { 6, function(x)
    return math.ceil(x) + 0.0
  end, -4, 4 },
  Cos = { 7, math.cos, -3, 3 },
  Cosh = { 9, function(x)
    return (math.exp(x) + math.exp(-x)) / 2
  end, -2, 2 },
  Exp = { 6, math.exp, -3, 3 },
  Floor = { 6, function(x)
    return math.floor(x) + 0.0
  end, -4, 4 },
  Log = { 6, math.log, 0.1, 5 },
  Reciprocal = { 6, function(x)
    return 1 / x
  end, 0.2, 4 },
  Round = { 11, even, -4, 4 },
  Sin = { 7, math.sin, -3, 3 },
  Sinh = { 9, function(x)
    return (math.exp(x) - math.exp(-x)) / 2
  end, -2, 2 },
  Sqrt = { 6, math.sqrt, 0, 9 },
  Tan = { 7, math.tan, -1.2, 1.2 },
  Tanh = { 6, function(x)
    return 1 - 2 / (math.exp(2 * x) + 1)
  end, -3, 3 },
  Abs = { 6, math.abs, -3, 3 },
  Neg = { 6, function(x)
    return -x
  end, -3, 3 },
  Sign = { 9, function(x)
    return x > 0 and 1 or x < 0 and -1 or 0
  end, -3, 3 },
}

local TOLERANCE = { [torch.float64] = { 1e-12, 1e-12 }, [torch.float32] = { 2e-6, 2e-6 },
  [torch.float16] = { 2e-3, 2e-3 }, [torch.bfloat16] = { 1e-2, 1e-2 } }

describe("functions of one tensor", function()
  for name, row in pairs(FUNCTIONS) do
    it(name .. " has the values of its formula in every type", function()
      torch.manual_seed(1)
      for _, dtype in ipairs(FLOATS) do
        local x = (torch.rand({ 3, 5 }) * (row[4] - row[3]) + row[3]):to(dtype)
        local y = both(name, { x }, nil, { version = row[1] })
        assert.equal(dtype, y.dtype)
        both.near(y, both.map(row[2], x), TOLERANCE[dtype])
      end
    end)
  end

  it("have gradients", function()
    torch.manual_seed(2)
    for name, row in pairs(FUNCTIONS) do
      if name ~= "Round" and name ~= "Sign" and name ~= "Ceil" and name ~= "Floor" then
        local span = row[4] - row[3]
        both.gradients(name, { torch.rand({ 4 }, { dtype = torch.float64 }) * (span * 0.9) + row[3]
          + span * 0.05 })
      end
    end
  end)

  it("round halves to even", function()
    local x = torch.tensor({ 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4, -2.6 })
    assert.same({ 0, 2, 2, 0, -2, -2, 2, -3 }, both("Round", { x }):tolist())
  end)

  it("keep integers where ONNX allows them", function()
    for _, dtype in ipairs({ torch.int8, torch.int16, torch.int32, torch.int64 }) do
      local x = torch.tensor({ -3, 0, 7 }, { dtype = dtype })
      assert.same({ 3, 0, 7 }, both("Abs", { x }):tolist())
      assert.same({ 3, 0, -7 }, both("Neg", { x }):tolist())
      assert.same({ -1, 0, 1 }, both("Sign", { x }):tolist())
      assert.same({ 0, 0, 0 }, both("Erf", { x:sign() }):tolist())
      assert.equal(dtype, both("Erf", { x }).dtype)
    end
  end)

  it("refuse types that ONNX does not allow", function()
    local x = torch.tensor({ 1, 2 })
    both.refuses("(Exp): input 'input' is torch.int64. Allowed: floating point", "Exp", { x })
    both.refuses("input 'X' is torch.int64. Allowed: bool", "Not", { x })
    both.refuses("input 'X' is torch.int64. Allowed: floating point", "IsNaN", { x })
  end)
end)

describe("tests of elements", function()
  local x = torch.tensor({ -1 / 0, 1 / 0, 0 / 0, 1.0 })

  it("find infinities of the signs that are asked for", function()
    for _, dtype in ipairs(FLOATS) do
      local t = x:to(dtype)
      assert.same({ true, true, false, false }, both("IsInf", { t }):tolist())
      assert.same({ true, false, false, false },
        both("IsInf", { t }, { detect_positive = 0 }):tolist())
      assert.same({ false, true, false, false },
        both("IsInf", { t }, { detect_negative = 0 }, { version = 10 }):tolist())
      assert.same({ false, false, false, false },
        both("IsInf", { t }, { detect_negative = 0, detect_positive = 0 }):tolist())
      assert.same({ false, false, true, false }, both("IsNaN", { t }):tolist())
    end
    both.refuses("attribute 'detect_positive' is 2. Allowed: 0, 1", "IsInf", { x },
      { detect_positive = 2 })
  end)

  it("negate truth", function()
    assert.same({ false, true }, both("Not", { torch.tensor({ true, false }) }):tolist())
  end)
end)

describe("casts", function()
  local NUMBERS = { [1] = torch.float32, [2] = torch.uint8, [3] = torch.int8, [5] = torch.int16,
    [6] = torch.int32, [7] = torch.int64, [9] = torch.bool, [10] = torch.float16,
    [11] = torch.float64, [16] = torch.bfloat16 }

  it("go from each type to each", function()
    for _, from in pairs(NUMBERS) do
      local x = torch.tensor({ 0, 1, 3 }):to(from)
      for number, to in pairs(NUMBERS) do
        local y = both("Cast", { x }, { to = number }, { version = 9 })
        assert.equal(to, y.dtype)
        local narrow = to == torch.bool or from == torch.bool
        local want = to == torch.bool and { false, true, true } or narrow and { 0, 1, 1 }
          or { 0, 1, 3 }
        assert.same(want, y:tolist())
        assert.equal(to, both("CastLike", { x, torch.zeros({ 2 }, { dtype = to }) }).dtype)
      end
    end
  end)

  it("cut fractions and pass gradients on", function()
    local x = torch.tensor({ -1.9, 1.9 })
    assert.same({ -1, 1 }, both("Cast", { x }, { to = 6, saturate = 0 }, { version = 19 })
      :tolist())
    assert.same({ -1, 1 }, both("CastLike", { x, torch.tensor(1) }, nil, { version = 19 })
      :tolist())
    assert.same({ -1, 1 }, both("Cast", { x }, { to = 6 }):tolist())
    local leaf = torch.tensor({ 1.0, 2.0 }, { requires_grad = true })
    node("Cast", { leaf }, { to = 11 }):sum():backward()
    assert.same({ 1, 1 }, leaf.grad:tolist())
  end)

  it("refuse types that are not there", function()
    helper.refuses("NotImplementedError", "type STRING", node.run, "Cast", { torch.ones({ 1 }) },
      { to = 8 })
    both.refuses("attribute 'to' is missing", "Cast", { torch.ones({ 1 }) })
  end)
end)
