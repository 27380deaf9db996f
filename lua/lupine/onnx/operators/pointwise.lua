--- Operators of ONNX on each element of one tensor: arithmetic, exponentials,
--- circular functions, tests, types.
local torch = require("torch")
local operands = require("lupine.onnx.operands")
local tensors = require("lupine.onnx.tensors")

-- Signatures of functions of floating point -> versions, function.
local FLOATING = {
  ["Acos(input) -> (output)"] = { { 7 }, torch.acos },
  ["Acosh(input) -> (output)"] = { { 9 }, torch.acosh },
  ["Asin(input) -> (output)"] = { { 7 }, torch.asin },
  ["Asinh(input) -> (output)"] = { { 9 }, torch.asinh },
  ["Atan(input) -> (output)"] = { { 7 }, torch.atan },
  ["Atanh(input) -> (output)"] = { { 9 }, torch.atanh },
  ["Ceil(X) -> (Y)"] = { { 6, 13 }, torch.ceil },
  ["Cos(input) -> (output)"] = { { 7 }, torch.cos },
  ["Cosh(input) -> (output)"] = { { 9 }, torch.cosh },
  ["Exp(input) -> (output)"] = { { 6, 13 }, torch.exp },
  ["Floor(X) -> (Y)"] = { { 6, 13 }, torch.floor },
  ["Log(input) -> (output)"] = { { 6, 13 }, torch.log },
  ["Reciprocal(X) -> (Y)"] = { { 6, 13 }, torch.reciprocal },
  ["Round(X) -> (Y)"] = { { 11 }, torch.round },
  ["Sin(input) -> (output)"] = { { 7 }, torch.sin },
  ["Sinh(input) -> (output)"] = { { 9 }, torch.sinh },
  ["Sqrt(X) -> (Y)"] = { { 6, 13 }, torch.sqrt },
  ["Tan(input) -> (output)"] = { { 7 }, torch.tan },
  ["Tanh(input) -> (output)"] = { { 6, 13 }, torch.tanh },
}

local function is_inf(n, x)
  local positive = operands.flag(n, "detect_positive")
  local negative = operands.flag(n, "detect_negative")
  operands.floating(n, 1)
  if positive and negative then
    return torch.isinf(x)
  end
  return positive and torch.isposinf(x) or negative and torch.isneginf(x)
    or torch.zeros_like(x, { dtype = torch.bool })
end

-- `saturate` is of types of 8 bits with fractions, which are not there.
local function cast(n, x, like)
  if n.attr.saturate then
    operands.flag(n, "saturate")
  end
  return x:to(like and like.dtype or tensors.dtype(n.attr.to))
end

return function(op)
  for signature, row in pairs(FLOATING) do
    op(signature, row[1], function(n)
      return row[2](operands.floating(n, 1))
    end)
  end

  op("Abs(X) -> (Y)", { 6, 13 }, function(_, x)
    return torch.abs(x)
  end)
  -- Of integers, too, as its function of floating point rounded to zero.
  op("Erf(input) -> (output)", { 9, 13 }, function(_, x)
    return torch.erf(x):to(x.dtype)
  end)
  op("Neg(X) -> (Y)", { 6, 13 }, function(_, x)
    return torch.neg(x)
  end)
  op("Sign(input) -> (output)", { 9, 13 }, function(_, x)
    return torch.sign(x)
  end)
  op("Not(X) -> (Y)", 1, function(n)
    return torch.logical_not(operands.bool(n, 1))
  end)
  op("BitwiseNot(X) -> (Y)", 18, function(n)
    return torch.bitwise_not(operands.integer(n, 1))
  end)
  op("IsInf(X; detect_negative: int = 1, detect_positive: int = 1) -> (Y)", 10, is_inf)
  op("IsNaN(X) -> (Y)", { 9, 13 }, function(n)
    return torch.isnan(operands.floating(n, 1))
  end)

  op("Cast(input; to: dtype!) -> (output)", { 6, 9, 13 }, cast)
  op("Cast(input; saturate: int = 1, to: dtype!) -> (output)", 19, cast)
  op("CastLike(input, target_type) -> (output)", 15, cast)
  op("CastLike(input, target_type; saturate: int = 1) -> (output)", 19, cast)
end
