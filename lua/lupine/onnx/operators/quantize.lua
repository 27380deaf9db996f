--- Quantisation of ONNX: integers of 8 bits that stand for (q - zero point) * scale.
local torch = require("torch")
local operands = require("lupine.onnx.operands")

local RANGES = { [torch.uint8] = { 0, 255 }, [torch.int8] = { -128, 127 } }

-- A scale or zero point of x: one for all, or one for each place of dimension `axis`.
local function spread(n, i, x, axis)
  local t = n.inputs[i]
  if not t then
    return nil
  elseif t:numel() == 1 and t:dim() <= 1 then
    return t:reshape({})
  end
  axis = n:axis(axis, x:dim())
  n:check(t:dim() == 1 and t:size(0) == x:size(axis), "input '%s' has the shape %s. Allowed: one "
    .. "element, or [%d] (dimension %d of '%s')", operands.name(n, i), operands.shown(t),
    x:size(axis), axis, operands.name(n, 1))
  local sizes = {}
  for d = 1, x:dim() do
    sizes[d] = d - 1 == axis and x:size(axis) or 1
  end
  return t:reshape(sizes)
end

-- y (of floating point, in steps of the result's scale) as integers of 8 bits.
local function saturated(y, zero, dtype)
  local range = RANGES[dtype]
  y = y:round()
  return (zero and y + zero:to(y.dtype) or y):clamp(range[1], range[2]):to(dtype)
end

-- The type of a zero point; without one uint8.
local function type_of(n, i)
  local dtype = n.inputs[i] and n.inputs[i].dtype or torch.uint8
  n:check(RANGES[dtype], "input '%s' is %s. Allowed: uint8, int8", operands.name(n, i),
    tostring(dtype))
  return dtype
end

local function quantize(n, x)
  operands.floating(n, 2)
  local axis = n.attr.axis or 1
  local scale, zero = spread(n, 2, x, axis), spread(n, 3, x, axis)
  return saturated(x:to(scale.dtype) / scale, zero, type_of(n, 3))
end

local function dequantize(n, x)
  operands.integer(n, 1)
  operands.floating(n, 2)
  operands.same_type(n, 1, 3)
  local axis = n.attr.axis or 1
  local scale, zero = spread(n, 2, x, axis), spread(n, 3, x, axis)
  if zero then
    x = x:to(torch.int32) - zero:to(torch.int32)
  end
  return x:to(scale.dtype) * scale
end

-- Scale and zero point by the least and the largest element, with 0 between them.
local function dynamic(n)
  local x = operands.floating(n, 1)
  local least, largest = x:amin():clamp(nil, 0), x:amax():clamp(0)
  local scale = (largest - least) / 255
  local step = torch.where(scale:eq(0), torch.ones_like(scale), scale)
  local zero = (-least / step):round():clamp(0, 255)
  return saturated(x / step, zero, torch.uint8), scale, zero:to(torch.uint8)
end

-- The integers of input i without their zero point, input j: one, or one for each row
-- or column of the matrices (`spread_over`: of_rows, of_columns).
local function centred(n, i, j, spread_over)
  local x = operands.integer(n, i)
  n:check(RANGES[x.dtype], "input '%s' is %s. Allowed: uint8, int8", operands.name(n, i),
    tostring(x.dtype))
  x = x:to(torch.int32)
  operands.same_type(n, i, j)
  return n.inputs[j] and x - spread_over(n, j, x):to(torch.int32) or x
end

-- A scale or zero point (input j) for each row, or one for all.
local function of_rows(n, j, x)
  local t = n.inputs[j]
  if t:numel() == 1 then
    return t:reshape({})
  elseif t:dim() > 1 then -- one for each row of each matrix
    return t
  end
  n:check(x:dim() > 1 and t:size(0) == x:size(-2), "input '%s' has the shape %s. Allowed: one "
    .. "element, or one for each row of %s", operands.name(n, j), operands.shown(t),
    operands.shown(x))
  return t:reshape({ -1, 1 })
end

-- The same for each column.
local function of_columns(n, j, x)
  local t = n.inputs[j]
  if t:numel() == 1 then
    return t:reshape({})
  end
  n:check(t:size(-1) == x:size(-1), "input '%s' has the shape %s. Allowed: one element, or one "
    .. "for each column of %s", operands.name(n, j), operands.shown(t), operands.shown(x))
  return t
end

local function matmul_integer(n)
  return torch.matmul(centred(n, 1, 3, of_rows), centred(n, 2, 4, of_columns))
end

local function qlinear_matmul(n, a, a_scale, _, b, _, _, _, y_zero)
  for _, i in ipairs({ 5, 7 }) do
    operands.same_type(n, 2, i)
  end
  local sum = torch.matmul(centred(n, 1, 3, of_rows), centred(n, 4, 6, of_columns))
  local scale = of_rows(n, 2, a) * of_columns(n, 5, b)
  local y = sum:to(a_scale.dtype) * scale / of_rows(n, 7, sum)
  return saturated(y, y_zero and of_rows(n, 8, sum), type_of(n, 8))
end

return function(op)
  local settings = { constants = { [2] = true, [3] = true } }
  op("QuantizeLinear(x, y_scale, y_zero_point?) -> (y)", 10, quantize, settings)
  op("QuantizeLinear(x, y_scale, y_zero_point?; axis: int = 1) -> (y)", 13, quantize, settings)
  op("DequantizeLinear(x, x_scale, x_zero_point?) -> (y)", 10, dequantize, settings)
  op("DequantizeLinear(x, x_scale, x_zero_point?; axis: int = 1) -> (y)", 13, dequantize,
    settings)
  op("DynamicQuantizeLinear(x) -> (y, y_scale, y_zero_point)", 11, dynamic)
  op("MatMulInteger(A, B, a_zero_point?, b_zero_point?) -> (Y)", 10, matmul_integer)
  op("QLinearMatMul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point)"
    .. " -> (y)", 10, qlinear_matmul,
    { constants = { [2] = true, [3] = true, [5] = true, [6] = true, [7] = true, [8] = true } })
end
