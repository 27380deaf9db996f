--- Operators of ONNX on each element of several tensors, which broadcast:
--- arithmetic, comparisons, logic, bits, choices.
local torch = require("torch")
local operands = require("lupine.onnx.operands")

-- B of an operator before version 7, which broadcasts only if `broadcast` is 1: one
-- element, or sizes that are those of A from dimension `axis` on (by default A's last).
-- Gets A's number of dimensions behind.
local function unfolded(n, a, b)
  local name_a, name_b = operands.name(n, 1), operands.name(n, 2)
  if not operands.flag(n, "broadcast") then
    n:check(tostring(a.shape) == tostring(b.shape), "input '%s' has the shape %s and '%s' %s; "
      .. "attribute 'broadcast' is 0", name_a, operands.shown(a), name_b, operands.shown(b))
    return b
  elseif b:numel() == 1 then
    return b:reshape({})
  end
  local axis = n.attr.axis or a:dim() - b:dim()
  local sizes = {}
  for i = 0, b:dim() - 1 do
    local at = axis + i
    local fits = at >= 0 and at < a:dim() and (b:size(i) == 1 or a:size(at) == b:size(i))
    n:check(fits, "input '%s' of the shape %s is no part of '%s' of the shape %s from dimension "
      .. "%d (attribute 'axis') on", name_b, operands.shown(b), name_a, operands.shown(a), axis)
    sizes[i + 1] = b:size(i)
  end
  for _ = axis + b:dim() + 1, a:dim() do
    sizes[#sizes + 1] = 1
  end
  return b:reshape(sizes)
end

local function quotient(a, b)
  return torch.div(a, b, { rounding_mode = not a.dtype.is_floating_point and "trunc" or nil })
end

-- Exponents that are one known number keep the gradient free of logarithms.
local function exponent(n, y)
  return y:numel() == 1 and y:dim() <= n.inputs[1]:dim() and operands.scalar(n, 2) or y
end

-- The result has the type of the base.
local function power(n, x, y)
  if y.dtype.is_floating_point and not x.dtype.is_floating_point then
    return torch.pow(x:double(), y:double()):to(x.dtype)
  end
  return torch.pow(x, exponent(n, y)):to(x.dtype)
end

local function modulo(n, a, b)
  return (operands.flag(n, "fmod") and torch.fmod or torch.remainder)(a, b)
end

local function shift(n, x, y)
  operands.integer(n, 1)
  local left = operands.word(n, "direction", "LEFT", "RIGHT") == "LEFT"
  return (left and torch.bitwise_left_shift or torch.bitwise_right_shift)(x, y)
end

-- fn over all inputs from the left.
local function fold(fn)
  return function(n, first, ...)
    local count = select("#", ...) + 1
    operands.one_type(n, count)
    local result = first
    for i = 2, count do
      operands.broadcast(n, 1, i)
      result = fn(result, (select(i - 1, ...)))
    end
    return result
  end
end

local sum = fold(torch.add)

local function mean(n, ...)
  operands.floating(n, 1)
  return sum(n, ...) / select("#", ...)
end

local function same_type(fn)
  return function(n, a, b)
    operands.one_type(n, 2)
    return fn(a, b)
  end
end

local function truth(fn)
  return function(n, a, b)
    operands.bool(n, 1)
    operands.bool(n, 2)
    return fn(a, b)
  end
end

local function bits(fn)
  return function(n, a, b)
    operands.integer(n, 1)
    operands.one_type(n, 2)
    return fn(a, b)
  end
end

local function choose(n, condition, x, y)
  operands.bool(n, 1)
  operands.same_type(n, 2, 3)
  operands.broadcast(n, 1, 2)
  operands.broadcast(n, 1, 3)
  operands.broadcast(n, 2, 3)
  return torch.where(condition, x, y)
end

return function(op)
  -- An operator of two tensors, and its versions with the attributes of unfolded.
  local function pair(name, inputs, output, old, new, fn)
    if old then
      op(("%s(%s; axis: int, broadcast: int = 0) -> (%s)"):format(name, inputs, output), old,
        function(n, a, b)
          return fn(n, a, unfolded(n, a, b))
        end)
    end
    op(("%s(%s) -> (%s)"):format(name, inputs, output), new, function(n, a, b)
      operands.broadcast(n, 1, 2)
      return fn(n, a, b)
    end)
  end

  pair("Add", "A, B", "C", 6, { 7, 13, 14 }, same_type(torch.add))
  pair("Sub", "A, B", "C", 6, { 7, 13, 14 }, same_type(torch.sub))
  pair("Mul", "A, B", "C", 6, { 7, 13, 14 }, same_type(torch.mul))
  pair("Div", "A, B", "C", 6, { 7, 13, 14 }, same_type(quotient))
  pair("Pow", "X, Y", "Z", 1, { 7, 12, 13, 15 }, power)
  pair("And", "A, B", "C", 1, 7, truth(torch.logical_and))
  pair("Or", "A, B", "C", 1, 7, truth(torch.logical_or))
  pair("Xor", "A, B", "C", 1, 7, truth(torch.logical_xor))
  pair("Equal", "A, B", "C", 1, { 7, 11, 13 }, same_type(torch.eq))
  pair("Greater", "A, B", "C", 1, { 7, 9, 13 }, same_type(torch.gt))
  pair("Less", "A, B", "C", 1, { 7, 9, 13 }, same_type(torch.lt))
  pair("GreaterOrEqual", "A, B", "C", nil, { 12, 16 }, same_type(torch.ge))
  pair("LessOrEqual", "A, B", "C", nil, { 12, 16 }, same_type(torch.le))

  pair("BitwiseAnd", "A, B", "C", nil, 18, bits(torch.bitwise_and))
  pair("BitwiseOr", "A, B", "C", nil, 18, bits(torch.bitwise_or))
  pair("BitwiseXor", "A, B", "C", nil, 18, bits(torch.bitwise_xor))

  op("Mod(A, B; fmod: int = 0) -> (C)", { 10, 13 }, function(n, a, b)
    operands.one_type(n, 2)
    operands.broadcast(n, 1, 2)
    return modulo(n, a, b)
  end)
  op("BitShift(X, Y; direction: string!) -> (Z)", 11, function(n, x, y)
    operands.one_type(n, 2)
    operands.broadcast(n, 1, 2)
    return shift(n, x, y)
  end)

  op("Max(data_0...) -> (max)", { 6, 8, 12, 13 }, fold(torch.maximum))
  op("Min(data_0...) -> (min)", { 6, 8, 12, 13 }, fold(torch.minimum))
  op("Sum(data_0...) -> (sum)", { 6, 8, 13 }, sum)
  op("Mean(data_0...) -> (mean)", { 6, 8, 13 }, mean)
  op("Where(condition, X, Y) -> (output)", { 9, 16 }, choose)
end
