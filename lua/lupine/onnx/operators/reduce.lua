--- Reductions of ONNX, running sums and the largest elements.
local torch = require("torch")
local operands = require("lupine.onnx.operands")

-- ---- reductions ------------------------------------------------------------------------

-- fn(x in float64 unless it is of floating point), in the type of x.
local function in_floating(fn)
  return function(x, axes, keep)
    if x.dtype.is_floating_point then
      return fn(x, axes, keep)
    end
    return fn(x:double(), axes, keep):to(x.dtype)
  end
end

local function sum(x, axes, keep)
  return x:sum(axes, keep, { dtype = x.dtype })
end

local function mean(x, axes, keep)
  return x:mean(axes, keep)
end

-- One dimension after the other, from the last.
local function product(x, axes, keep)
  local sorted = { table.unpack(axes) }
  table.sort(sorted, function(a, b)
    return a > b
  end)
  for _, axis in ipairs(sorted) do
    x = x:prod(axis, keep, { dtype = x.dtype })
  end
  return x
end

-- Name -> the reduction of x over dimensions.
local REDUCTIONS = {
  ReduceL1 = function(x, axes, keep)
    return sum(x:abs(), axes, keep)
  end,
  ReduceL2 = in_floating(function(x, axes, keep)
    return torch.linalg.vector_norm(x, 2, axes, keep)
  end),
  ReduceLogSum = in_floating(function(x, axes, keep)
    return sum(x, axes, keep):log()
  end),
  ReduceLogSumExp = in_floating(function(x, axes, keep)
    return x:logsumexp(axes, keep)
  end),
  ReduceMax = function(x, axes, keep)
    return x:amax(axes, keep)
  end,
  ReduceMean = in_floating(mean),
  ReduceMin = function(x, axes, keep)
    return x:amin(axes, keep)
  end,
  ReduceProd = product,
  ReduceSum = sum,
  ReduceSumSquare = function(x, axes, keep)
    return sum(x * x, axes, keep)
  end,
}

-- Reductions over no dimension: what they do to each element.
local ELEMENTWISE = {
  ReduceL1 = torch.abs,
  ReduceL2 = torch.abs,
  ReduceLogSum = in_floating(function(x)
    return x:log()
  end),
  ReduceSumSquare = torch.square,
}

local function all_axes(rank)
  local axes = {}
  for i = 1, rank do
    axes[i] = i - 1
  end
  return axes
end

-- Those of an empty list, too, are all.
local function reduce(n, name, axes)
  local x, rank = n.inputs[1], n.inputs[1]:dim()
  local keep = operands.flag(n, "keepdims")
  axes = axes and operands.axes(n, axes, rank) or {}
  if #axes == 0 then
    if n.attr.noop_with_empty_axes and operands.flag(n, "noop_with_empty_axes") then
      return ELEMENTWISE[name] and ELEMENTWISE[name](x) or x
    end
    axes = all_axes(rank)
  end
  return REDUCTIONS[name](x, axes, keep)
end

-- ---- the places of extremes --------------------------------------------------------------

-- Of equal elements the first, or the last.
local function place_of(fn)
  return function(n, x)
    local axis, keep = n:axis(n.attr.axis, x:dim()), operands.flag(n, "keepdims")
    if n.attr.select_last_index and operands.flag(n, "select_last_index") then
      return (x:size(axis) - 1) - fn(x:flip({ axis }), axis, keep)
    end
    return fn(x, axis, keep)
  end
end

local function top_k(n, x, k, largest, sorted)
  local axis = n:axis(n.attr.axis, x:dim())
  n:check(k >= 0 and k <= x:size(axis), "%s is %d. Allowed: 0 to %d, the size of dimension %d of "
    .. "'X'", n.attr.k and "attribute 'k'" or "input 'K'", k, x:size(axis), axis)
  return x:topk(k, axis, largest, sorted)
end

local function top_k_of_input(n, x)
  local k = n:ints(2)
  n:check(#k == 1, "input 'K' has %d elements. Allowed: 1", #k)
  local largest = n.attr.largest == nil or operands.flag(n, "largest")
  return top_k(n, x, k[1], largest, n.attr.sorted == nil or operands.flag(n, "sorted"))
end

-- ---- running sums ------------------------------------------------------------------------

local function cumsum(n, x)
  local exclusive, reverse = operands.flag(n, "exclusive"), operands.flag(n, "reverse")
  local list = n:ints(2)
  n:check(#list == 1, "input 'axis' has %d elements. Allowed: 1", #list)
  local axis = n:axis(list[1], x:dim(), "input 'axis'")
  x = reverse and x:flip({ axis }) or x
  if exclusive and x:size(axis) > 0 then
    local first = torch.zeros_like(x:narrow(axis, 0, 1))
    x = torch.cat({ first, x:narrow(axis, 0, x:size(axis) - 1) }, axis)
  end
  x = x:cumsum(axis, { dtype = x.dtype })
  return reverse and x:flip({ axis }) or x
end

return function(op)
  local function by_attribute(name, versions)
    op(name .. "(data; axes: ints, keepdims: int = 1) -> (reduced)", versions, function(n)
      return reduce(n, name, n.attr.axes)
    end)
  end

  local function by_input(name, versions)
    op(name .. "(data, axes?; keepdims: int = 1, noop_with_empty_axes: int = 0) -> (reduced)",
      versions, function(n)
        return reduce(n, name, n:ints(2))
      end, { constants = { [2] = true } })
  end

  for name in pairs(REDUCTIONS) do
    if name == "ReduceSum" then
      by_attribute(name, { 1, 11 })
      by_input(name, 13)
    else
      by_attribute(name, { 1, 11, 12, 13 })
      by_input(name, 18)
    end
  end

  for name, fn in pairs({ ArgMax = torch.argmax, ArgMin = torch.argmin }) do
    op(name .. "(data; axis: int = 0, keepdims: int = 1) -> (reduced)", { 1, 11 }, place_of(fn))
    op(name .. "(data; axis: int = 0, keepdims: int = 1, select_last_index: int = 0)"
      .. " -> (reduced)", { 12, 13 }, place_of(fn))
  end

  op("TopK(X; k: int!, axis: int = -1) -> (Values, Indices)", 1, function(n, x)
    return top_k(n, x, n.attr.k, true, true)
  end)
  op("TopK(X, K; axis: int = -1) -> (Values, Indices)", 10, top_k_of_input,
    { constants = { [2] = true } })
  op("TopK(X, K; axis: int = -1, largest: int = 1, sorted: int = 1) -> (Values, Indices)", 11,
    top_k_of_input, { constants = { [2] = true } })
  op("CumSum(x, axis; exclusive: int = 0, reverse: int = 0) -> (y)", { 11, 14 }, cumsum,
    { constants = { [2] = true } })
end
