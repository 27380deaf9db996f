-- Operators on each element of several tensors, against Lua's arithmetic.
local both = require("spec.lupine.onnx.both")
local torch = require("torch")

local FLOATS = { torch.float64, torch.float32, torch.float16, torch.bfloat16 }
local INTEGERS = { torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64 }
local SHAPES = { { { 2, 3 }, { 3 } }, { { 4, 1, 2 }, { 3, 1 } }, { {}, { 2, 2 } },
  { { 2, 0 }, { 1 } }, { { 1, 3 }, { 2, 1 } }, { { 5 }, { 5 } } }

local function truncated(a, b)
  local q = math.abs(a) // math.abs(b)
  return (a < 0) == (b < 0) and q or -q
end

local ARITHMETIC = {
  Add = { 7, function(a, b)
    return a + b
  end },
  Sub = { 7, function(a, b)
    return a - b
  end },
  Mul = { 7, function(a, b)
    return a * b
  end },
}

local COMPARISONS = {
  Equal = { 7, function(a, b)
    return a == b
  end },
  Greater = { 9, function(a, b)
    return a > b
  end },
  Less = { 9, function(a, b)
    return a < b
  end },
  GreaterOrEqual = { 12, function(a, b)
    return a >= b
  end },
  LessOrEqual = { 16, function(a, b)
    return a <= b
  end },
}

-- Whole numbers that every type can hold with their sums and products.
local function numbers(shape, dtype, low, high)
  return torch.randint(low or 1, high or 6, shape):to(dtype)
end

local function each_case(dtypes, check)
  torch.manual_seed(3)
  for _, dtype in ipairs(dtypes) do
    for _, shapes in ipairs(SHAPES) do
      check(dtype, numbers(shapes[1], dtype), numbers(shapes[2], dtype))
    end
  end
end

local function every_type()
  return { table.unpack(FLOATS), table.unpack(INTEGERS) }
end

describe("arithmetic", function()
  for name, row in pairs(ARITHMETIC) do
    it(name .. " broadcasts in every type", function()
      each_case(every_type(), function(dtype, a, b)
        if name == "Sub" then
          a = a + 6
        end
        local y = both(name, { a, b }, nil, { version = row[1] })
        assert.equal(dtype, y.dtype)
        both.near(y, both.map(row[2], a, b))
      end)
      both.gradients(name, { torch.randn({ 2, 3 }), torch.randn({ 3 }) })
    end)
  end

  it("divides integers towards zero and others exactly", function()
    local a, b = torch.tensor({ 7, -7, 7, -7, 6 }), torch.tensor({ 2, 2, -2, -2, 3 })
    for _, dtype in ipairs({ torch.int8, torch.int16, torch.int32, torch.int64 }) do
      local y = both("Div", { a:to(dtype), b:to(dtype) })
      assert.equal(dtype, y.dtype)
      both.near(y, both.map(truncated, a, b))
    end
    assert.same({ 127 }, both("Div", { torch.tensor({ 255 }, { dtype = torch.uint8 }),
      torch.tensor({ 2 }, { dtype = torch.uint8 }) }):tolist())
    for _, dtype in ipairs(FLOATS) do
      assert.same({ 3.5, -3.5, -3.5, 3.5, 2 }, both("Div", { a:to(dtype), b:to(dtype) }):tolist())
    end
    both.gradients("Div", { torch.randn({ 2, 3 }), torch.rand({ 1 }) + 1 })
  end)

  it("has remainders of both signs", function()
    local a, b = torch.tensor({ -4, 7, 5, 4, -7, 8 }), torch.tensor({ 2, -3, 8, -2, 3, 5 })
    for _, dtype in ipairs({ torch.int8, torch.int16, torch.int32, torch.int64 }) do
      local given = { a:to(dtype), b:to(dtype) }
      both.near(both("Mod", given, nil, { version = 10 }), both.map(function(x, y)
        return x - y * math.floor(x / y)
      end, a, b))
      both.near(both("Mod", given, { fmod = 1 }), both.map(function(x, y)
        return math.fmod(x, y)
      end, a, b))
    end
    for _, dtype in ipairs(FLOATS) do
      local given = { (a / 4):to(dtype), (b / 8):to(dtype) }
      both.near(both("Mod", given, { fmod = 1 }), both.map(math.fmod, a / 4, b / 8))
    end
    both.refuses("attribute 'fmod' is 3. Allowed: 0, 1", "Mod", { a, b }, { fmod = 3 })
  end)

  it("has powers of the type of the base", function()
    local base, exponent = torch.tensor({ 1, 2, 3, 4 }), torch.tensor({ 2, 3, 0, 1 })
    local want = both.map(function(x, y)
      return x ^ y
    end, base, exponent)
    for _, from in ipairs({ torch.int32, torch.int64, torch.float16, torch.float32,
      torch.float64, torch.bfloat16 }) do
      for _, by in ipairs({ torch.int32, torch.int64, torch.float32, torch.float64 }) do
        local y = both("Pow", { base:to(from), exponent:to(by) })
        assert.equal(from, y.dtype)
        both.near(y, want)
      end
    end
    local half = torch.tensor({ 0.5 })
    assert.same({ 1, 1, 1, 2 }, both("Pow", { base, half }):tolist())
  end)

  it("has the gradient of a constant power at 0 and below", function()
    local x = torch.tensor({ -2.0, 0, 3 }, { requires_grad = true })
    local options = { constants = { [2] = true } }
    for _, exponent in ipairs({ torch.tensor(2), torch.tensor({ 2 }, { dtype = torch.int32 }) }) do
      x.grad = nil
      both("Pow", { x, exponent }, nil, options):sum():backward()
      assert.same({ -4, 0, 6 }, x.grad:tolist())
    end
    both.gradients("Pow", { torch.rand({ 3 }) + 0.5, torch.randn({ 2, 1 }) })
  end)

  it("shifts bits", function()
    local x = torch.tensor({ 255, 4, 1 }, { dtype = torch.uint8 })
    local y = torch.tensor({ 1, 2, 3 }, { dtype = torch.uint8 })
    assert.same({ 254, 16, 8 }, both("BitShift", { x, y }, { direction = "LEFT" }):tolist())
    assert.same({ 127, 1, 0 }, both("BitShift", { x, y }, { direction = "RIGHT" }):tolist())
    both.refuses("attribute 'direction' is 'UP'. Allowed: 'LEFT', 'RIGHT'", "BitShift", { x, y },
      { direction = "UP" })
    both.refuses("attribute 'direction' is missing", "BitShift", { x, y })
    both.refuses("input 'X' is torch.float32. Allowed: integers", "BitShift",
      { x:float(), y:float() }, { direction = "LEFT" })
  end)
end)

describe("bits of integers", function()
  it("are combined and turned", function()
    local a, b = torch.tensor({ 12, -7, 255 }), torch.tensor({ 10, 3, 1 })
    local options = { version = 18 }
    for _, dtype in ipairs({ torch.int16, torch.int32, torch.int64 }) do
      local given = { a:to(dtype), b:to(dtype) }
      both.near(both("BitwiseAnd", given, nil, options), both.map(function(x, y)
        return x & y
      end, a, b))
      both.near(both("BitwiseOr", given, nil, options), both.map(function(x, y)
        return x | y
      end, a, b))
      both.near(both("BitwiseXor", given, nil, options), both.map(function(x, y)
        return x ~ y
      end, a, b))
      both.near(both("BitwiseNot", { given[1] }, nil, options), both.map(function(x)
        return ~x
      end, a))
    end
    both.refuses("input 'A' is torch.float32. Allowed: integers", "BitwiseAnd", { a:float(),
      b:float() }, nil, options)
  end)
end)

describe("comparisons and logic", function()
  for name, row in pairs(COMPARISONS) do
    it(name .. " broadcasts in every type", function()
      each_case(every_type(), function(_, a, b)
        local y = both(name, { a, b }, nil, { version = row[1] })
        assert.equal(torch.bool, y.dtype)
        both.near(y, both.map(row[2], a, b))
      end)
    end)
  end

  it("And, Or, Xor are those of truth values", function()
    local a = torch.tensor({ { true }, { false } })
    local b = torch.tensor({ true, false })
    assert.same({ { true, false }, { false, false } }, both("And", { a, b }):tolist())
    assert.same({ { true, true }, { true, false } }, both("Or", { a, b }):tolist())
    assert.same({ { false, true }, { true, false } }, both("Xor", { a, b }):tolist())
    assert.same({ { true, false }, { false, true } }, both("Equal", { a, b }):tolist())
    both.refuses("input 'B' is torch.int64. Allowed: bool", "And", { a, torch.tensor({ 1, 0 }) })
  end)

  it("Where takes from both", function()
    local c = torch.tensor({ { true }, { false } })
    for _, dtype in ipairs(every_type()) do
      local x, y = torch.tensor({ 1, 2 }, { dtype = dtype }), torch.tensor({ 3 }, { dtype = dtype })
      local got = both("Where", { c, x, y }, nil, { version = 9 })
      assert.same({ { 1, 2 }, { 3, 3 } }, got:tolist())
      assert.equal(dtype, got.dtype)
    end
    both.gradients("Where", { c, torch.randn({ 2 }), torch.randn({ 2, 1 }) })
    both.refuses("input 'condition' is torch.int64", "Where", { torch.tensor(1), c, c })
    both.refuses("inputs 'X' and 'Y' must be of one type", "Where", { c, torch.ones({ 1 }),
      torch.tensor(1) })
    both.refuses("inputs 'condition' of the shape [2, 1] and 'X' of the shape [3, 2]", "Where",
      { c, torch.ones({ 3, 2 }), torch.ones({ 2 }) })
  end)
end)

describe("many tensors", function()
  local a = torch.tensor({ { 1.0, 5, 3 } })
  local b = torch.tensor({ { 2.0 }, { 4 } })
  local c = torch.tensor({ 0.0, 9, 3 })

  it("broadcast together", function()
    for _, dtype in ipairs(FLOATS) do
      local given = { a:to(dtype), b:to(dtype), c:to(dtype) }
      both.near(both("Max", given, nil, { version = 8 }), both.map(math.max, a, b, c))
      both.near(both("Min", given, nil, { version = 12 }), both.map(math.min, a, b, c))
      both.near(both("Sum", given, nil, { version = 8 }), both.map(function(x, y, z)
        return x + y + z
      end, a, b, c))
      both.near(both("Mean", given, nil, { version = 13 }), both.map(function(x, y, z)
        return (x + y + z) / 3
      end, a, b, c), { 1e-2, 1e-2 })
    end
    for _, dtype in ipairs(INTEGERS) do
      both.near(both("Max", { a:to(dtype), b:to(dtype) }), both.map(math.max, a, b))
    end
  end)

  it("may be one", function()
    for _, name in ipairs({ "Max", "Min", "Sum", "Mean" }) do
      assert.same(c:tolist(), both(name, { c }):tolist())
    end
  end)

  it("have gradients", function()
    for _, name in ipairs({ "Max", "Min", "Sum", "Mean" }) do
      both.gradients(name, { a + 0.25, b + 0.5, c })
    end
  end)

  it("are named by errors", function()
    both.refuses("inputs 'data_0[0]' and 'data_0[2]' must be of one type, got torch.float32 and "
      .. "torch.int64", "Sum", { a, b, torch.tensor(1) })
    both.refuses("inputs 'data_0[0]' of the shape [1, 3] and 'data_0[1]' of the shape [2] do not "
      .. "broadcast", "Max", { a, torch.ones({ 2 }) })
    both.refuses("inputs 'A' and 'B' must be of one type, got torch.float32 and torch.float16",
      "Add", { a, a:half() })
    both.refuses("inputs 'A' of the shape [2, 1] and 'B' of the shape [3, 2] do not broadcast",
      "Less", { b, torch.ones({ 3, 2 }) })
  end)
end)

describe("operators before version 7", function()
  local a = torch.arange(24.0):reshape(2, 3, 4)
  local old = { version = 6 }

  it("broadcast B at a dimension", function()
    local cases = { { { 4 }, nil, { 1, 1, 4 } }, { { 3, 4 }, nil, { 1, 3, 4 } },
      { { 3 }, 1, { 1, 3, 1 } }, { { 2, 3 }, 0, { 2, 3, 1 } }, { {}, nil, {} },
      { { 1, 1 }, nil, {} }, { { 3, 1 }, 1, { 1, 3, 1 } } }
    for _, case in ipairs(cases) do
      local b = torch.rand(case[1]) + 1
      for name, fn in pairs({ Add = torch.add, Sub = torch.sub, Mul = torch.mul, Div = torch.div,
        Pow = torch.pow, Greater = torch.gt, Less = torch.lt }) do
        local y = both(name, { a, b }, { broadcast = 1, axis = case[2] }, old)
        assert.is_true(torch.equal(y, fn(a, b:reshape(case[3]))))
      end
    end
    local truth = torch.tensor({ true, false })
    assert.same({ { true, true }, { false, false } }, both("And", { torch.tensor({ { true, true },
      { true, true } }), truth }, { broadcast = 1, axis = 0 }, { version = 6 }):tolist())
    assert.same({ true, true }, both("Equal", { torch.tensor({ 1, 2 }), torch.tensor({ 1, 2 }) },
      nil, old):tolist())
  end)

  it("refuse other shapes", function()
    both.refuses("input 'A' has the shape [2, 3, 4] and 'B' [4]; attribute 'broadcast' is 0",
      "Add", { a, torch.ones({ 4 }) }, nil, old)
    both.refuses("input 'B' of the shape [3] is no part of 'A' of the shape [2, 3, 4] from "
      .. "dimension 2 (attribute 'axis') on", "Mul", { a, torch.ones({ 3 }) }, { broadcast = 1 },
      old)
    both.refuses("Add has no attribute 'broadcast'", "Add", { a, a }, { broadcast = 1 },
      { version = 7 })
  end)
end)
