-- Values of pointwise operators. The tables are PyTorch 2.15's results in
-- float32 (CPU); the rest follows from the definitions.
local core = require("lupine.core")
local torch = require("torch")
local helper = require("spec.helper")
local lupine_compile = require("lupine.compile")

local near, raises = helper.near, helper.raises
local nn = core.forms.nn
local inf, nan = math.huge, 0 / 0
-- Three units in the last place; PyTorch flushes some subnormal results.
local close = { 1e-38, 4e-7 }

local xs = { -inf, -100, -3, -1, -0.25, 0, 0.5, 1, 2.5, 88, inf, nan }
local of_xs = {
  { "exp",
    { 0, 3.78350585e-44, 0.0497870669, 0.36787945, 0.778800786, 1, 1.64872122, 2.71828175,
      12.1824942, 1.65163627e+38, inf, nan } },
  { "expm1",
    { -1, -1, -0.950212955, -0.63212055, -0.221199214, 0, 0.648721278, 1.71828187, 11.1824942,
      1.65163627e+38, inf, nan } },
  { "log", { nan, nan, nan, nan, nan, -inf, -0.693147182, 0, 0.91629076, 4.47733688, inf, nan } },
  { "log1p",
    { nan, nan, nan, -inf, -0.287682086, 0, 0.405465096, 0.693147182, 1.25276291, 4.48863649,
      inf, nan } },
  { "tanh",
    { -1, -1, -0.995054781, -0.761594176, -0.244918659, 0, 0.462117165, 0.761594176,
      0.986614287, 1, 1, nan } },
  { "sigmoid",
    { 0, 0, 0.0474258736, 0.268941432, 0.437823504, 0.5, 0.622459352, 0.731058598, 0.924141824,
      1, 1, nan } },
  { "erf",
    { -1, -1, -0.999977887, -0.842700779, -0.276326388, 0, 0.520499885, 0.842700779,
      0.999593019, 1, 1, nan } },
  { "erfc",
    { 2, 2, 1.99997795, 1.84270084, 1.27632642, 1, 0.479500115, 0.157299206, 0.000406952022, 0,
      0, nan } },
  { "sin",
    { nan, 0.506365657, -0.141120002, -0.841470957, -0.247403964, 0, 0.47942555, 0.841470957,
      0.598472118, 0.0353983045, nan, nan } },
  { "cos",
    { nan, 0.862318873, -0.989992499, 0.540302336, 0.968912423, 1, 0.87758255, 0.540302336,
      -0.801143587, 0.999373257, nan, nan } },
  { "sqrt", { nan, nan, nan, nan, nan, 0, 0.707106769, 1, 1.58113885, 9.38083172, inf, nan } },
  { "rsqrt", { nan, nan, nan, nan, nan, inf, 1.41421354, 1, 0.632455528, 0.106600359, 0, nan } },
  { "exp2",
    { 0, 7.88860905e-31, 0.125, 0.5, 0.840896428, 1, 1.41421354, 2, 5.65685415, 3.0948501e+26,
      inf, nan } },
  { "log2", { nan, nan, nan, nan, nan, -inf, -1, 0, 1.32192814, 6.45943165, inf, nan } },
  { "atan",
    { -1.57079637, -1.56079662, -1.24904573, -0.785398185, -0.244978666, 0, 0.463647604,
      0.785398185, 1.19028997, 1.55943322, 1.57079637, nan } },
  { "asinh",
    { -inf, -5.29834223, -1.81844652, -0.881373584, -0.247466475, 0, 0.481211841, 0.881373584,
      1.64723122, 5.17051601, inf, nan } },
  { "sinh",
    { -inf, -inf, -10.0178747, -1.17520118, -0.252612323, 0, 0.521095276, 1.17520118,
      6.05020475, 8.25818133e+37, inf, nan } },
  { "floor", { -inf, -100, -3, -1, -1, 0, 0, 1, 2, 88, inf, nan } },
  { "round", { -inf, -100, -3, -1, -0, 0, 0, 1, 2, 88, inf, nan } },
  { "trunc", { -inf, -100, -3, -1, -0, 0, 0, 1, 2, 88, inf, nan } },
  { "sign", { -1, -1, -1, -1, -1, 0, 1, 1, 1, 1, 1, 0 } },
}
local activations = {
  { "silu",
    { nan, -0, -0.142277613, -0.268941432, -0.109455876, 0, 0.311229676, 0.731058598,
      2.31035447, 88, inf, nan } },
  { "softplus",
    { 0, 3.78350585e-44, 0.048587352, 0.313261688, 0.575939417, 0.693147182, 0.974076986,
      1.31326163, 2.57888985, 88, inf, nan } },
  { "elu", { -1, -1, -0.950212955, -0.63212055, -0.221199214, 0, 0.5, 1, 2.5, 88, inf, nan } },
  { "selu",
    { -1.75809932, -1.75809932, -1.6705687, -1.11133075, -0.388890177, 0, 0.525350511,
      1.05070102, 2.62675261, 92.4616928, inf, nan } },
  { "mish",
    { nan, -3.78350585e-42, -0.145647466, -0.30340144, -0.129926965, 0, 0.375245243,
      0.865098357, 2.47139239, 88, inf, nan } },
  { "hardswish",
    { nan, -0, -0, -0.333333343, -0.114583336, 0, 0.291666657, 0.666666687, 2.29166675, 88,
      inf, nan } },
  { "hardsigmoid",
    { 0, 0, 0, 0.333333343, 0.458333343, 0.5, 0.583333313, 0.666666687, 0.916666687, 1, 1, nan } },
  { "logsigmoid",
    { -inf, -100, -3.04858732, -1.31326175, -0.825939417, -0.693147182, -0.474076986,
      -0.313261688, -0.078889735, -6.05460149e-39, 0, nan } },
  { "softsign",
    { nan, -0.990099013, -0.75, -0.5, -0.200000003, 0, 0.333333343, 0.5, 0.714285731,
      0.988764048, nan, nan } },
  { "relu6", { 0, 0, 0, 0, 0, 0, 0.5, 1, 2.5, 6, 6, nan } },
  { "leaky_relu",
    { -inf, -1, -0.0299999993, -0.00999999978, -0.00249999994, 0, 0.5, 1, 2.5, 88, inf, nan } },
}

local as = { -7, -7, 7, 7, 0, 1, inf, nan }
local bs = { 2, -2, 2, -2, 0, 0, 2, 1 }
local of_as_bs = {
  { "fmod", { -1, -1, 1, 1, nan, nan, nan, nan } },
  { "remainder", { 1, -1, 1, -1, nan, nan, nan, nan } },
  { "floor_divide", { -4, 3, 3, -4, nan, inf, nan, nan } },
  { "div", { -3.5, 3.5, 3.5, -3.5, nan, inf, inf, nan } },
  { "pow", { 49, 0.0204081628, 49, 0.0204081628, 1, 1, inf, nan } },
  { "maximum", { 2, -2, 7, 7, 0, 1, inf, nan } },
  { "minimum", { -7, -7, 2, -2, 0, 0, 2, nan } },
  { "fmax", { 2, -2, 7, 7, 0, 1, inf, 1 } },
  { "atan2",
    { -1.29249668, -1.84909594, 1.29249668, 1.84909594, 0, 1.57079637, 1.57079637, nan } },
  { "copysign", { 7, -7, 7, -7, 0, 1, inf, nan } },
  { "hypot", { 7.28010988, 7.28010988, 7.28010988, 7.28010988, 0, 1, inf, nan } },
}

local ints_a, ints_b = { -7, -7, 7, 7, 5 }, { 2, -2, 2, -2, 1 }
local of_ints = {
  { "fmod", { -1, -1, 1, 1, 0 } },
  { "remainder", { 1, -1, 1, -1, 0 } },
  { "floor_divide", { -4, 3, 3, -4, 5 } },
  { "bitwise_and", { 0, -8, 2, 6, 1 } },
  { "bitwise_or", { -5, -1, 7, -1, 5 } },
  { "bitwise_xor", { -5, 7, 5, -7, 4 } },
}

local function f32(values)
  return torch.tensor(values, { dtype = torch.float32 })
end

describe("a pointwise operator", function()
  it("takes zero and infinity to a power of any size", function()
    for _, dtype in ipairs({ torch.float32, torch.bfloat16 }) do
      local least = dtype == torch.float32 and 1e-45 or 1e-38 -- of bfloat16 less is 0
      for _, e in ipairs({ least, 1e-3, 0.1, 0.3, 2.5, 1e30 }) do
        local x = torch.tensor({ 0, -0.0, inf, -inf }, { dtype = dtype })
        assert.same({ 0, 0, inf, inf }, x:pow(e):tolist())
        assert.same({ inf, inf, 0, 0 }, x:pow(-e):tolist())
      end
    end
  end)

  for _, row in ipairs(of_xs) do
    it("gives PyTorch's values: " .. row[1], function()
      near(torch[row[1]](f32(xs)), row[2], close)
    end)
  end
  for _, row in ipairs(activations) do
    it("gives PyTorch's values: " .. row[1], function()
      near(nn[row[1]](f32(xs)), row[2], close)
    end)
  end
  for _, row in ipairs(of_as_bs) do
    it("gives PyTorch's values: " .. row[1], function()
      near(torch[row[1]](f32(as), f32(bs)), row[2], close)
    end)
  end
  for _, row in ipairs(of_ints) do
    it("gives PyTorch's integers: " .. row[1], function()
      local y = torch[row[1]](torch.tensor(ints_a), torch.tensor(ints_b))
      assert.equal(torch.int64, y.dtype)
      near(y, row[2])
    end)
  end

  it("gives the same from double, within float32, over many magnitudes", function()
    local names = { "exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "expm1", "log1p",
      "log2", "log10", "exp2" }
    local values = {}
    for e = -20, 20 do
      for _, m in ipairs({ 1, 1.2345, 1.7777, -1, -1.4142 }) do
        values[#values + 1] = m * 2.0 ^ (e / 2)
      end
    end
    for _, name in ipairs(names) do
      local x = f32(values)
      near(torch[name](x), torch[name](x:to(torch.float64)):to(torch.float32), close)
    end
  end)

  it("keeps sine exact for large angles", function()
    local x = f32({ 1e4, 123456.7, 1e6, 3e8, -1e10, 16777216 })
    near(x:sin(), x:to(torch.float64):sin(), close)
    near(x:cos(), x:to(torch.float64):cos(), close)
  end)

  it("rounds half types once", function()
    local x = torch.tensor({ 1.0, 2048, 0.1 }, { dtype = torch.float16 })
    near(x + 1.0, { 2, 2048, 1.099609375 }, helper.exact) -- 2049 is a tie to even
    near(x * 3, { 3, 6144, 0.2998046875 }, helper.exact)
    local y = torch.tensor({ 65504.0 }, { dtype = torch.float16 })
    near(y + y, { inf })
  end)

  it("wraps integers at their width", function()
    local x = torch.tensor({ 100, -100, 127 }, { dtype = torch.int8 })
    near(x + x, { -56, 56, -2 })
    near(x * 2, { -56, 56, -2 })
    local u = torch.tensor({ 200, 0 }, { dtype = torch.uint8 })
    near(u + 100, { 44, 100 })
    near(-u, { 56, 0 })
  end)
end)

describe("the result type", function()
  local t = {}
  for _, name in ipairs({ "float64", "float32", "float16", "bfloat16", "int64", "int32", "int8",
    "uint8", "bool" }) do
    t[name] = torch.tensor({ 1, 1 }, { dtype = torch[name] })
  end
  it("is PyTorch's promotion", function()
    for _, row in ipairs({
      { "int32", "float16", "float16" }, { "float16", "bfloat16", "float32" },
      { "uint8", "int8", "int16" }, { "bool", "int8", "int8" }, { "float32", "float64", "float64" },
      { "int64", "float32", "float32" },
    }) do
      assert.equal(torch[row[3]], (t[row[1]] + t[row[2]]).dtype)
      assert.equal(torch[row[3]], (t[row[2]] * t[row[1]]).dtype)
    end
  end)
  it("takes only the kind of a number", function()
    assert.equal(torch.float16, (t.float16 + 1.5).dtype)
    assert.equal(torch.int8, (t.int8 + 300).dtype)
    assert.equal(torch.float32, (t.int8 + 1.5).dtype)
    assert.equal(torch.int64, (t.bool + 1).dtype)
  end)
  it("of a 0-d tensor counts as its kind", function()
    local zero = torch.tensor(2.0, { dtype = torch.float64 })
    assert.equal(torch.float32, (t.float32 * zero).dtype)
    assert.equal(torch.float64, (t.int32 * zero).dtype)
  end)
  it("of functions and true division is floating", function()
    assert.equal(torch.float32, t.int32:sin().dtype)
    assert.equal(torch.float32, (t.int32 / t.int32).dtype)
    assert.equal(torch.float32, torch.sigmoid(t.bool).dtype)
    assert.equal(torch.int32, (t.int32 // t.int32).dtype)
  end)
  it("of questions is bool", function()
    assert.equal(torch.bool, t.float32:gt(t.int8).dtype)
    assert.equal(torch.bool, t.int8:isnan().dtype)
    assert.equal(torch.bool, t.float16:logical_and(t.bool).dtype)
  end)
end)

describe("broadcasting and strides", function()
  local function ramp(shape)
    local n = 1
    for _, size in ipairs(shape) do
      n = n * size
    end
    return torch.arange(n):to(torch.float32):reshape(shape)
  end
  it("pairs every layout right, small and large", function()
    for _, size in ipairs({ { 3, 5 }, { 40, 300 }, { 300, 40 } }) do
      local r, c = size[1], size[2]
      local x, row, column = ramp({ r, c }), ramp({ c }), ramp({ r, 1 })
      local y = (x:t() + column:t():t():reshape({ 1, r })):t() * row
      local i, j = r - 1, c - 2
      local want = (i * c + j + i) * j
      near(y[i][j], want)
      near((x * row + column)[i][j], (i * c + j) * j + i)
      near((x:to(torch.float16) * 0 + row:to(torch.float64))[i][j], j)
    end
  end)
  it("writes in place through a view", function()
    local x = ramp({ 4, 6 })
    x:t():mul_(2)
    x["1:3, ::2"]:add_(100)
    near(x, { { 0, 2, 4, 6, 8, 10 }, { 112, 14, 116, 18, 120, 22 },
      { 124, 26, 128, 30, 132, 34 }, { 36, 38, 40, 42, 44, 46 } })
  end)
  it("takes empty tensors", function()
    assert.same({ 0, 3 }, { table.unpack((torch.zeros({ 0, 3 }) + torch.ones({ 3 })).shape) })
  end)
  it("gives the same bits on one thread and on several", function()
    local x = ramp({ 300, 700 }) / 1000
    local before = torch.get_num_threads()
    torch.set_num_threads(1)
    local one = x:sin() * x:t():reshape({ 300, 700 })
    torch.set_num_threads(3)
    local three = x:sin() * x:t():reshape({ 300, 700 })
    torch.set_num_threads(before)
    assert.is_true(torch.equal(one, three))
  end)
end)

describe("gelu in float32", function()
  -- x Phi(x) and its slope Phi(x) + x phi(x), from the C library's erfc and exp.
  local function agree(got, want)
    for i, v in ipairs(want) do
      local d = math.abs(got[i] - v)
      assert.is_true(d <= 1e-6 * math.abs(v), ("%g against %g"):format(got[i], v))
    end
  end
  it("has no cancellation on the left", function()
    local x = torch.tensor({ -6, -5, -3, -1, 0.5, 4 }):float():requires_grad_(true)
    local y = nn.gelu(x)
    agree(y:tolist(), { -5.919525870226207e-09, -1.4332578593959731e-06,
      -0.004049694094890287, -0.15865525393145707, 0.34573123063700656, 3.9998733150326675 })
    y:sum():backward()
    agree(x.grad:tolist(), { -3.5468709453902015e-08, -7.146946001792295e-06,
      -0.011945647204183927, -0.08331547058768629, 0.8674951246561629, 1.0005036496612265 })
  end)
  it("passes NaN and infinity on", function()
    local y = nn.gelu(torch.tensor({ 0 / 0, math.huge, -20 }):float()):tolist()
    assert.is_true(y[1] ~= y[1])
    assert.same({ math.huge, 0 }, { y[2], y[3] })
  end)
end)

describe("a refused call", function()
  it("names operator, type and what is allowed", function()
    raises("RuntimeError", "gelu.*int64.*floating", function() nn.gelu(torch.tensor({ 1 })) end)
    raises("RuntimeError", "bitwise_and.*float32.*integer", function()
      torch.bitwise_and(torch.tensor({ 1.0 }), 1)
    end)
    raises("RuntimeError", "sub.*bool", function()
      return torch.tensor({ true }) - torch.tensor({ true })
    end)
    raises("RuntimeError", "rounding_mode is 'ceil'.*'floor' or 'trunc'", function()
      torch.div(torch.tensor({ 1.0 }), 2, { rounding_mode = "ceil" })
    end)
    raises("RuntimeError", "condition.*must be bool", function()
      torch.where(torch.tensor({ 1.0 }), 1, 2)
    end)
    raises("RuntimeError", "min and max", function() torch.clamp(torch.tensor({ 1.0 })) end)
  end)
  it("is that of a negative number as exponent of integers, eager and compiled", function()
    local text = "Integers to negative integer powers are not allowed."
    local calls = {
      function(x) return x:pow(-1) end,
      function(x) return x ^ -1 end,
      function(x) return torch.pow(x * 3, -2) end,
    }
    local integers = { torch.tensor({ 2 }), torch.tensor({ 2 }, { dtype = torch.uint8 }),
      torch.tensor({ true }), torch.zeros(0, { dtype = torch.int64 }) }
    for _, call in ipairs(calls) do
      for _, x in ipairs(integers) do
        raises("RuntimeError", text, function() call(x) end)
        raises("RuntimeError", text, function() lupine_compile(call, { x }) end)
      end
    end
    raises("RuntimeError", text, function() torch.tensor({ 2 }):pow_(-1) end)
    -- a tensor as exponent is not looked at; a float makes the result one
    for call, want in pairs({
      [function(x, y) return x:pow(y) end] = 0,
      [function(_, y) return torch.pow(2, y) end] = 0,
      [function(x) return x:pow(-1.0) end] = 0.5,
    }) do
      local args = { torch.tensor({ 2 }), torch.tensor({ -1 }) }
      assert.equal(want, call(table.unpack(args)):item())
      assert.equal(want, lupine_compile(call, args)(table.unpack(args)):item())
    end
  end)

  it("says so when an integer is divided by zero", function()
    local x = torch.tensor({ 1, 2 })
    raises("RuntimeError", "ZeroDivisionError", function() return x // 0 end)
    raises("RuntimeError", "ZeroDivisionError", function() return x % torch.tensor({ 1, 0 }) end)
  end)
end)
