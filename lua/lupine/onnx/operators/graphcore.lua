--- Operators of the domain ai.graphcore that compute each element from those at its
--- place, and those that order elements.
--- source: PopART, builder.hpp (AiGraphcoreOpset1) and willow/src/op
local torch = require("torch")
local F = require("torch.nn.functional")

local function unary(op, name, f)
  op(name .. "(X) -> (Y)", 1, function(_, x)
    return f(x)
  end)
end

local function binary(op, name, f)
  op(name .. "(A, B) -> (C)", 1, function(_, a, b)
    return f(a, b)
  end)
end

local function activations(op)
  unary(op, "Gelu", function(x)
    return F.gelu(x, { approximate = "tanh" })
  end)
  unary(op, "GeluErf", F.gelu)
  unary(op, "Swish", F.silu)
end

local function functions(op)
  unary(op, "Expm1", torch.expm1)
  unary(op, "Log1p", torch.log1p)
  unary(op, "Round", torch.round)
  unary(op, "NearbyInt", torch.round)
  binary(op, "Atan2", torch.atan2)
  binary(op, "Fmod", torch.fmod)
  binary(op, "Remainder", torch.remainder)
  unary(op, "BitwiseNot", torch.bitwise_not)
  binary(op, "BitwiseAnd", torch.bitwise_and)
  binary(op, "BitwiseOr", torch.bitwise_or)
  binary(op, "BitwiseXor", torch.bitwise_xor)
  binary(op, "BitwiseXnor", function(a, b)
    return torch.bitwise_xor(a, b):bitwise_not()
  end)
end

-- ---- with constants --------------------------------------------------------------------

-- A factor, given as a tensor or an attribute.
local function factor(t, usual)
  return t and t:reshape({}) or usual
end

local function scaled(op)
  op("Scale(X; scale: float!) -> (Y)", 1, function(n, x)
    return (x * n.attr.scale):to(x.dtype)
  end)
  op("ScaledAdd(X, Y, scale0?, scale1?; scale0: float = 1.0, scale1: float = 1.0) -> (Z)", 1,
    function(n, x, y, s0, s1)
      return (x * factor(s0, n.attr.scale0) + y * factor(s1, n.attr.scale1)):to(x.dtype)
    end)
  op("IncrementMod(X; increment: float!, modulus: float!) -> (Y)", 1, function(n, x)
    n:check(n.attr.modulus > 0, "attribute 'modulus' must be positive, got %g", n.attr.modulus)
    return torch.fmod(x + n.attr.increment, n.attr.modulus):to(x.dtype)
  end)
end

-- ---- in order --------------------------------------------------------------------------

-- Of the values along all `axes` the median, the lower one of two, and its place among
-- them, counted in row-major order.
local function median(n, x)
  local r, list, over = x:dim(), n.attr.axes, {}
  for i = 1, list and #list or r do
    over[n:axis(list and list[i] or i - 1, r, "attribute 'axes'")] = true
  end
  local order, lines, kept = {}, {}, {}
  for d = 0, r - 1 do
    table.insert(over[d] and lines or order, d)
    if n.attr.keepdims ~= 0 or not over[d] then
      kept[#kept + 1] = over[d] and 1 or x:size(d)
    end
  end
  table.move(lines, 1, #lines, #order + 1, order)
  local shape = { table.unpack(x:permute(order).shape, 1, r - #lines) }
  shape[#shape + 1] = -1
  local values, places = x:permute(order):reshape(shape):median(-1)
  return values:reshape(kept), places:to(torch.int32):reshape(kept)
end

local function ordered(op)
  op("ReduceMedian(data; axes: ints, keepdims: int = 1) -> (reduced, indices)", 1, median)
  op("Sort(X; axis: int = -1, descending: int = 0, stable: int = 0) -> (values, indices)", 1,
    function(n, x)
      local values, places = x:sort({ dim = n:axis(n.attr.axis, x:dim()),
        descending = n.attr.descending ~= 0, stable = n.attr.stable ~= 0 })
      return values, places:to(torch.int32)
    end)
  op("Bucketize(X, boundaries; right: int = 0) -> (Y)", 1, function(n, x, boundaries)
    return torch.bucketize(x, boundaries, { right = n.attr.right ~= 0 }):to(torch.int32)
  end)
end

return function(op)
  activations(op)
  functions(op)
  scaled(op)
  ordered(op)
end
