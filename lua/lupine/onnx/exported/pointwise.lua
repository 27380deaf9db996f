--- What operators on each element are in ONNX.
-- name -> ONNX's operator of the same meaning, on one operand of any type
local SAME = {
  abs = "Abs", neg = "Neg", sign = "Sign", sgn = "Sign", sqrt = "Sqrt", reciprocal = "Reciprocal",
  exp = "Exp", log = "Log", sin = "Sin", cos = "Cos", tan = "Tan", asin = "Asin", acos = "Acos",
  atan = "Atan", sinh = "Sinh", cosh = "Cosh", tanh = "Tanh", asinh = "Asinh", acosh = "Acosh",
  atanh = "Atanh", erf = "Erf", floor = "Floor", ceil = "Ceil", relu = "Relu",
  sigmoid = "Sigmoid", selu = "Selu", softsign = "Softsign",
}

local COMPARISONS = { eq = "Equal", lt = "Less", le = "LessOrEqual", gt = "Greater",
  ge = "GreaterOrEqual" }
local LOGICAL = { logical_and = "And", logical_or = "Or", logical_xor = "Xor" }
local BITS = { bitwise_and = "And", bitwise_or = "Or", bitwise_xor = "Xor" }

local FLOATS = { float32 = true, float64 = true, float16 = true, bfloat16 = true }

local function dtype(n)
  return n.results[1].dtype
end

-- Operand i in the type of the result; a wanted one that is no number stays what it is.
local function x_of(e, n, i)
  return e:input(n, i or 1, dtype(n))
end

local function c_of(e, n, value)
  return e:constant(value, dtype(n))
end

local function unary(rules)
  for name, op in pairs(SAME) do
    rules[name] = function(e, n)
      return e:emit(op, { x_of(e, n) })
    end
  end
  function rules.cast(e, n)
    return e:input(n, 1, dtype(n))
  end
  function rules.square(e, n)
    local x = x_of(e, n)
    return e:emit("Mul", { x, x })
  end
  function rules.rsqrt(e, n)
    return e:emit("Reciprocal", { e:emit("Sqrt", { x_of(e, n) }) })
  end
  function rules.exp2(e, n)
    return e:emit("Pow", { c_of(e, n, 2), x_of(e, n) })
  end
  function rules.expm1(e, n)
    return e:emit("Sub", { e:emit("Exp", { x_of(e, n) }), c_of(e, n, 1) })
  end
  function rules.log1p(e, n)
    return e:emit("Log", { e:emit("Add", { x_of(e, n), c_of(e, n, 1) }) })
  end
  for name, factor in pairs({ log2 = 1 / math.log(2), log10 = 1 / math.log(10) }) do
    rules[name] = function(e, n)
      return e:emit("Mul", { e:emit("Log", { x_of(e, n) }), c_of(e, n, factor) })
    end
  end
  for name, factor in pairs({ deg2rad = math.pi / 180, rad2deg = 180 / math.pi }) do
    rules[name] = function(e, n)
      return e:emit("Mul", { x_of(e, n), c_of(e, n, factor) })
    end
  end
  function rules.erfc(e, n)
    return e:emit("Sub", { c_of(e, n, 1), e:emit("Erf", { x_of(e, n) }) })
  end
end

local function trunc(e, x)
  return e:emit("Mul", { e:emit("Sign", { x }), e:emit("Floor", { e:emit("Abs", { x }) }) })
end

local function rounding(rules)
  function rules.trunc(e, n)
    return FLOATS[dtype(n)] and trunc(e, x_of(e, n)) or x_of(e, n)
  end
  function rules.frac(e, n)
    local x = x_of(e, n)
    return e:emit("Sub", { x, trunc(e, x) })
  end
  function rules.round(e, n)
    local scale = 10.0 ^ n.attributes.decimals
    if scale == 1 then
      return e:emit("Round", { x_of(e, n) })
    end
    local scaled = e:emit("Mul", { x_of(e, n), c_of(e, n, scale) })
    return e:emit("Div", { e:emit("Round", { scaled }), c_of(e, n, scale) })
  end
  function rules.isnan(e, n)
    return e:emit("IsNaN", { e:input(n, 1) })
  end
  for name, given in pairs({ isinf = {}, isposinf = { detect_negative = 0 },
    isneginf = { detect_positive = 0 } }) do
    rules[name] = function(e, n)
      return e:emit("IsInf", { e:input(n, 1) }, given)
    end
  end
  function rules.isfinite(e, n)
    local x = e:input(n, 1)
    return e:emit("Not", { e:emit("Or", { e:emit("IsNaN", { x }), e:emit("IsInf", { x }) }) })
  end
  function rules.nan_to_num(e, n)
    local x, a = x_of(e, n), n.attributes
    local most = ({ float32 = 0x1.fffffep127, float64 = 0x1.fffffffffffffp1023,
      float16 = 65504.0, bfloat16 = 0x1.fep127 })[dtype(n)]
    x = e:emit("Where", { e:emit("IsNaN", { x }), c_of(e, n, a.nan or 0.0), x })
    x = e:emit("Where", { e:emit("IsInf", { x }, { detect_negative = 0 }),
      c_of(e, n, a.posinf or most), x })
    return e:emit("Where", { e:emit("IsInf", { x }, { detect_positive = 0 }),
      c_of(e, n, a.neginf or -most), x })
  end
end

local function hard_sigmoid(e, x)
  return e:emit("HardSigmoid", { x }, { alpha = 1 / 6, beta = 0.5 })
end

local function softplus(e, n, x, beta)
  if beta == 1 then
    return e:emit("Softplus", { x })
  end
  local b = c_of(e, n, beta)
  return e:emit("Div", { e:emit("Softplus", { e:emit("Mul", { x, b }) }), b })
end

local function gelu(e, n, x)
  local inner
  if n.attributes.approximate == "tanh" then
    local cube = e:emit("Mul", { x, e:emit("Mul", { x, x }) })
    local sum = e:emit("Add", { x, e:emit("Mul", { cube, c_of(e, n, 0.044715) }) })
    inner = e:emit("Tanh", { e:emit("Mul", { sum, c_of(e, n, math.sqrt(2 / math.pi)) }) })
  else
    inner = e:emit("Erf", { e:emit("Mul", { x, c_of(e, n, math.sqrt(0.5)) }) })
  end
  local share = e:emit("Add", { inner, c_of(e, n, 1) })
  return e:emit("Mul", { e:emit("Mul", { x, share }), c_of(e, n, 0.5) })
end

local function activations(rules)
  local function with(name, op, attributes)
    rules[name] = function(e, n)
      return e:emit(op, { x_of(e, n) }, attributes(n.attributes))
    end
  end
  with("elu", "Elu", function(a) return { alpha = a.alpha + 0.0 } end)
  with("celu", "Celu", function(a) return { alpha = a.alpha + 0.0 } end)
  with("leaky_relu", "LeakyRelu", function(a) return { alpha = a.negative_slope + 0.0 } end)
  with("softshrink", "Shrink", function(a)
    return { lambd = a.lambd + 0.0, bias = a.lambd + 0.0 }
  end)
  with("hardshrink", "Shrink", function(a) return { lambd = a.lambd + 0.0, bias = 0.0 } end)
  function rules.gelu(e, n)
    return gelu(e, n, x_of(e, n))
  end
  function rules.silu(e, n)
    local x = x_of(e, n)
    return e:emit("Mul", { x, e:emit("Sigmoid", { x }) })
  end
  function rules.softplus(e, n)
    return softplus(e, n, x_of(e, n), n.attributes.beta)
  end
  function rules.logsigmoid(e, n)
    return e:emit("Neg", { e:emit("Softplus", { e:emit("Neg", { x_of(e, n) }) }) })
  end
  function rules.mish(e, n)
    local x = x_of(e, n)
    return e:emit("Mul", { x, e:emit("Tanh", { e:emit("Softplus", { x }) }) })
  end
  function rules.hardsigmoid(e, n)
    return hard_sigmoid(e, x_of(e, n))
  end
  function rules.hardswish(e, n)
    local x = x_of(e, n)
    return e.version >= 14 and e:emit("HardSwish", { x })
      or e:emit("Mul", { x, hard_sigmoid(e, x) })
  end
  function rules.hardtanh(e, n)
    return e:emit("Clip", { x_of(e, n), c_of(e, n, n.attributes.min_val),
      c_of(e, n, n.attributes.max_val) })
  end
  function rules.tanhshrink(e, n)
    local x = x_of(e, n)
    return e:emit("Sub", { x, e:emit("Tanh", { x }) })
  end
  function rules.threshold(e, n)
    local x = x_of(e, n)
    return e:emit("Where", { e:emit("Greater", { x, c_of(e, n, n.attributes.threshold) }), x,
      c_of(e, n, n.attributes.value) })
  end
end

local function scaled(e, n, i)
  local x, alpha = x_of(e, n, i), n.attributes.alpha
  return alpha == 1 and x or e:emit("Mul", { x, c_of(e, n, alpha) })
end

-- a modulo b with the sign of b
local function remainder(e, n, a, b)
  if not FLOATS[dtype(n)] then
    return e:emit("Mod", { a, b })
  end
  local whole = e:emit("Floor", { e:emit("Div", { a, b }) })
  return e:emit("Sub", { a, e:emit("Mul", { whole, b }) })
end

local function divided(e, n)
  local a, b, how = x_of(e, n, 1), x_of(e, n, 2), n.attributes.rounding_mode
  if not how then
    return e:emit("Div", { a, b })
  elseif FLOATS[dtype(n)] then
    local quotient = e:emit("Div", { a, b })
    return how == "floor" and e:emit("Floor", { quotient }) or trunc(e, quotient)
  elseif how == "floor" then
    a = e:emit("Sub", { a, e:emit("Mod", { a, b }) })
  end
  return e:emit("Div", { a, b })
end

-- Whether the sign of a value is set, that of -0 too.
local function negative(e, n, x)
  local zero = c_of(e, n, 0)
  return e:emit("Or", { e:emit("Less", { x, zero }),
    e:emit("Less", { e:emit("Reciprocal", { x }), zero }) })
end

-- The angle of (x, y): of their quotient, which two zeros or infinities have none of, and half
-- a turn away on the left.
local function angle(e, n)
  local y, x = x_of(e, n, 1), x_of(e, n, 2)
  local function both(test)
    return e:emit("And", { test(x), test(y) })
  end
  local at = e:emit("Atan", { e:emit("Div", { y, x }) })
  at = e:emit("Where", { both(function(v)
    return e:emit("Equal", { v, c_of(e, n, 0) })
  end), c_of(e, n, 0), at })
  local signs = e:emit("Mul", { e:emit("Sign", { x }), e:emit("Sign", { y }) })
  at = e:emit("Where", { both(function(v)
    return e:emit("IsInf", { v })
  end), e:emit("Mul", { signs, c_of(e, n, math.pi / 4) }), at })
  local turned = e:emit("Where", { negative(e, n, y), e:emit("Sub", { at, c_of(e, n, math.pi) }),
    e:emit("Add", { at, c_of(e, n, math.pi) }) })
  return e:emit("Where", { negative(e, n, x), turned, at })
end

local function arithmetic(rules)
  function rules.add(e, n)
    return e:emit(dtype(n) == "bool" and "Or" or "Add", { x_of(e, n, 1), scaled(e, n, 2) })
  end
  function rules.sub(e, n)
    return e:emit("Sub", { x_of(e, n, 1), scaled(e, n, 2) })
  end
  function rules.mul(e, n)
    return e:emit(dtype(n) == "bool" and "And" or "Mul", { x_of(e, n, 1), x_of(e, n, 2) })
  end
  rules.div = divided
  for name, op in pairs({ pow = "Pow", maximum = "Max", minimum = "Min" }) do
    rules[name] = function(e, n)
      return e:emit(op, { x_of(e, n, 1), x_of(e, n, 2) })
    end
  end
  function rules.fmod(e, n)
    return e:emit("Mod", { x_of(e, n, 1), x_of(e, n, 2) }, { fmod = 1 })
  end
  function rules.remainder(e, n)
    return remainder(e, n, x_of(e, n, 1), x_of(e, n, 2))
  end
  rules.atan2 = angle
  function rules.hypot(e, n)
    local a, b = x_of(e, n, 1), x_of(e, n, 2)
    return e:emit("Sqrt", { e:emit("Add", { e:emit("Mul", { a, a }), e:emit("Mul", { b, b }) }) })
  end
  function rules.xlogy(e, n)
    local a, b = x_of(e, n, 1), x_of(e, n, 2)
    return e:emit("Where", { e:emit("Equal", { a, c_of(e, n, 0) }), c_of(e, n, 0),
      e:emit("Mul", { a, e:emit("Log", { b }) }) })
  end
  function rules.logaddexp(e, n)
    local a, b = x_of(e, n, 1), x_of(e, n, 2)
    local apart = e:emit("Neg", { e:emit("Abs", { e:emit("Sub", { a, b }) }) })
    local more = e:emit("Log", { e:emit("Add", { e:emit("Exp", { apart }), c_of(e, n, 1) }) })
    return e:emit("Add", { e:emit("Max", { a, b }), more })
  end
end

-- Shifts of what ONNX has them for: integers without a sign.
local function shifts(rules)
  for name, direction in pairs({ bitwise_left_shift = "LEFT", bitwise_right_shift = "RIGHT" }) do
    rules[name] = function(e, n)
      if dtype(n) ~= "uint8" then
        e:fail("ONNX has it for integers without a sign, such as torch.uint8")
      end
      return e:emit("BitShift", { x_of(e, n, 1), x_of(e, n, 2) }, { direction = direction })
    end
  end
end

-- The type in which two operands are compared.
local function common(e, n)
  local a, b = e:type(n, 1), e:type(n, 2)
  if a.number or b.number then
    local t, x = a.number and b or a, a.number and a or b
    if FLOATS[t.dtype] or not FLOATS[x.dtype] then
      return t.dtype == "bool" and x.dtype or t.dtype
    end
    return "float32"
  end
  local torch = require("torch")
  return a.dtype == b.dtype and a.dtype or tostring(torch.promote_types(torch[a.dtype],
    torch[b.dtype])):match("%w+$")
end

local function comparison(rules)
  local function compare(e, n, op)
    local t = common(e, n)
    t = t == "bool" and op ~= "Equal" and "int32" or t
    return e:emit(op, { e:input(n, 1, t), e:input(n, 2, t) })
  end
  for name, op in pairs(COMPARISONS) do
    rules[name] = function(e, n)
      return compare(e, n, op)
    end
  end
  function rules.ne(e, n)
    return e:emit("Not", { compare(e, n, "Equal") })
  end
  for name, op in pairs(LOGICAL) do
    rules[name] = function(e, n)
      return e:emit(op, { e:input(n, 1, "bool"), e:input(n, 2, "bool") })
    end
  end
  function rules.logical_not(e, n)
    return e:emit("Not", { e:input(n, 1, "bool") })
  end
  for name, op in pairs(BITS) do
    rules[name] = function(e, n)
      if dtype(n) ~= "bool" then
        e:fail("ONNX has it for booleans up to opset 17")
      end
      return e:emit(op, { e:input(n, 1), e:input(n, 2) })
    end
  end
  function rules.bitwise_not(e, n)
    if dtype(n) ~= "bool" then
      e:fail("ONNX has it for booleans up to opset 17")
    end
    return e:emit("Not", { e:input(n, 1) })
  end
end

local function of_three(rules)
  function rules.where(e, n)
    return e:emit("Where", { e:input(n, 1, "bool"), x_of(e, n, 2), x_of(e, n, 3) })
  end
  function rules.clamp(e, n)
    local x = x_of(e, n)
    local function single(i)
      return not e:has(n, i) or e:number(n, i) ~= nil
    end
    if single(2) and single(3) then
      return e:emit("Clip", { x, x_of(e, n, 2), x_of(e, n, 3) })
    end
    x = e:has(n, 2) and e:emit("Max", { x, x_of(e, n, 2) }) or x
    return e:has(n, 3) and e:emit("Min", { x, x_of(e, n, 3) }) or x
  end
  function rules.lerp(e, n)
    local a, b, w = x_of(e, n, 1), x_of(e, n, 2), e:number(n, 3)
    local apart = e:emit("Sub", { b, a })
    if w and math.abs(w) >= 0.5 then
      return e:emit("Sub", { b, e:emit("Mul", { apart, c_of(e, n, 1 - w) }) })
    end
    return e:emit("Add", { a, e:emit("Mul", { x_of(e, n, 3), apart }) })
  end
  for name, op in pairs({ addcmul = "Mul", addcdiv = "Div" }) do
    rules[name] = function(e, n)
      local value, part = n.attributes.value, e:emit(op, { x_of(e, n, 2), x_of(e, n, 3) })
      if value ~= 1 then
        part = e:emit("Mul", { part, c_of(e, n, value) })
      end
      return e:emit("Add", { x_of(e, n, 1), part })
    end
  end
end

return function(rules)
  unary(rules)
  rounding(rules)
  activations(rules)
  arithmetic(rules)
  shifts(rules)
  comparison(rules)
  of_three(rules)
end
