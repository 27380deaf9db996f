--- Activation functions of ONNX, with the softmax and its like.
local torch = require("torch")
local F = require("torch.nn.functional")
local operands = require("lupine.onnx.operands")

-- ---- of each element -------------------------------------------------------------------

local function hard_sigmoid(n)
  return (operands.floating(n, 1) * n.attr.alpha + n.attr.beta):clamp(0, 1)
end

local function selu(n)
  return F.elu(operands.floating(n, 1), n.attr.alpha) * n.attr.gamma
end

-- Towards zero by `bias` outside of -lambd … lambd, zero within.
local function shrink(n, x)
  local bias, edge = n.attr.bias, n.attr.lambd
  local zero = torch.zeros_like(x)
  return torch.where(x:lt(-edge), (x + bias):to(x.dtype),
    torch.where(x:gt(edge), (x - bias):to(x.dtype), zero))
end

local function prelu(_, x, slope)
  return torch.where(x:lt(0), x * slope, x)
end

-- A slope for each channel, dimension 1.
local function prelu_of_channels(n, x, slope)
  if slope:numel() == 1 then
    return prelu(n, x, slope:reshape({}))
  end
  local sizes = { slope:numel() }
  n:check(x:dim() > 1 and x:size(1) == sizes[1], "input 'slope' has %d elements, 'X' of the "
    .. "shape %s as many channels as its dimension 1", sizes[1], operands.shown(x))
  for i = 2, x:dim() - 1 do
    sizes[i] = 1
  end
  return prelu(n, x, slope:reshape(sizes))
end

-- Either bound may be absent.
local function clip(n, x)
  operands.one_type(n, 3)
  local low, high = operands.scalar(n, 2), operands.scalar(n, 3)
  if not low and not high then
    return x
  elseif math.type(low or 0) and math.type(high or 0) then
    return torch.clamp(x, low, high)
  end
  local function tensor(bound)
    return bound and torch.as_tensor(bound, { dtype = x.dtype })
  end
  return torch.clamp(x, tensor(low), tensor(high))
end

-- ---- along a dimension -----------------------------------------------------------------

local function hardmax(x, axis)
  local best = x:argmax(axis, true)
  local sizes = {}
  for i = 1, x:dim() do
    sizes[i] = i - 1 == axis and x:size(axis) or 1
  end
  local places = torch.arange(x:size(axis), { device = x.device }):reshape(sizes)
  return places:eq(best):to(x.dtype)
end

local function softmax_of(n, x, axis)
  if axis == x:dim() - 1 then
    n:is_softmax_of(x)
  end
end

-- fn over dimension `axis`.
local function over_axis(fn, note)
  return function(n)
    local x = operands.floating(n, 1)
    local axis = n:axis(n.attr.axis, x:dim())
    note(n, x, axis)
    return fn(x, axis)
  end
end

-- fn over all dimensions from `axis` on as one: before version 13.
local function flattened(fn, note)
  return function(n)
    local x = operands.floating(n, 1)
    local axis = n:axis(n.attr.axis, x:dim())
    note(n, x, axis)
    if axis == x:dim() - 1 then
      return fn(x, axis)
    end
    local rows, columns = 1, 1
    for i = 0, x:dim() - 1 do
      rows = i < axis and rows * x:size(i) or rows
      columns = i < axis and columns or columns * x:size(i)
    end
    return fn(x:reshape({ rows, columns }), 1):reshape(x.shape)
  end
end

return function(op)
  op("Relu(X) -> (Y)", { 6, 13, 14 }, function(_, x)
    return torch.relu(x)
  end)
  op("LeakyRelu(X; alpha: float = 0.01) -> (Y)", { 6, 16 }, function(n)
    return F.leaky_relu(operands.floating(n, 1), n.attr.alpha)
  end)
  op("Elu(X; alpha: float = 1.0) -> (Y)", 6, function(n)
    return F.elu(operands.floating(n, 1), n.attr.alpha)
  end)
  op("Celu(X; alpha: float = 1.0) -> (Y)", 12, function(n)
    n:check(n.attr.alpha ~= 0, "attribute 'alpha' is 0")
    return F.celu(operands.floating(n, 1), n.attr.alpha)
  end)
  op("Selu(X; alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875)"
    .. " -> (Y)", 6, selu)
  op("Sigmoid(X) -> (Y)", { 6, 13 }, function(n)
    return torch.sigmoid(operands.floating(n, 1))
  end)
  op("HardSigmoid(X; alpha: float = 0.2, beta: float = 0.5) -> (Y)", 6, hard_sigmoid)
  op("HardSwish(X) -> (Y)", 14, function(n)
    return F.hardswish(operands.floating(n, 1))
  end)
  op("Softplus(X) -> (Y)", 1, function(n)
    return F.softplus(operands.floating(n, 1))
  end)
  op("Softsign(input) -> (output)", 1, function(n)
    return F.softsign(operands.floating(n, 1))
  end)
  op("Mish(X) -> (Y)", 18, function(n)
    return F.mish(operands.floating(n, 1))
  end)
  op("Gelu(X; approximate: string = 'none') -> (Y)", 20, function(n)
    return F.gelu(operands.floating(n, 1),
      { approximate = operands.word(n, "approximate", "none", "tanh") })
  end)
  op("ThresholdedRelu(X; alpha: float = 1.0) -> (Y)", 10, function(n)
    return F.threshold(operands.floating(n, 1), n.attr.alpha, 0.0)
  end)
  op("Shrink(input; bias: float = 0.0, lambd: float = 0.5) -> (output)", 9, shrink)
  op("PRelu(X, slope) -> (Y)", 6, prelu_of_channels)
  op("PRelu(X, slope) -> (Y)", { 7, 9, 16 }, function(n, x, slope)
    operands.one_type(n, 2)
    operands.broadcast_to(n, 2, 1)
    return prelu(n, x, slope)
  end)
  op("Clip(input; max: float = 3.4028234663852886e+38, min: float = -3.4028234663852886e+38)"
    .. " -> (output)", 6, function(n)
    return operands.floating(n, 1):clamp(n.attr.min, n.attr.max)
  end)
  op("Clip(input, min?, max?) -> (output)", { 11, 12, 13 }, clip,
    { constants = { [2] = true, [3] = true } })

  for name, fn in pairs({ Softmax = torch.softmax, LogSoftmax = torch.log_softmax,
    Hardmax = hardmax }) do
    local note = name == "Softmax" and softmax_of or function() end
    op(name .. "(input; axis: int = 1) -> (output)", { 1, 11 }, flattened(fn, note))
    op(name .. "(input; axis: int = -1) -> (output)", 13, over_axis(fn, note))
  end
end
