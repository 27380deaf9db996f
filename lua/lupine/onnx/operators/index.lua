--- Operators of ONNX that read or write elements at indices, and those that find
--- indices. Negative indices count from the end.
local core = require("lupine.core")
local torch = require("torch")

-- Indices from 0 on of an axis of the size.
local function wrapped(index, size)
  return torch.where(index:lt(0), index + size, index)
end

-- fn(...), outside of a trace if input i is a constant.
local function of_input(n, i, fn, ...)
  if n:knows(i) then
    return core.untraced(fn, ...)
  end
  return fn(...)
end

-- ---- reading ---------------------------------------------------------------------------

local function gather(n, x, index)
  local axis = n:axis(n.attr.axis, x:dim())
  local at = of_input(n, 2, function()
    return wrapped(index, x:size(axis)):reshape({ -1 })
  end)
  local shape = { table.unpack(x.shape, 1, axis) }
  table.move(index.shape, 1, index:dim(), #shape + 1, shape)
  table.move(x.shape, axis + 2, x:dim(), #shape + 1, shape)
  return x:index_select(axis, at):reshape(shape)
end

local function gather_elements(n, x, index)
  local axis = n:axis(n.attr.axis, x:dim())
  return x:gather(axis, of_input(n, 2, wrapped, index, x:size(axis)))
end

-- The tuples along the last axis as a tensor of indices for each axis, behind those of
-- `batch` axes in front, on which they depend.
local function tuples(n, x, index, batch)
  local last = index:size(-1)
  n:check(batch >= 0 and batch < math.min(x:dim(), index:dim()),
    "batch_dims is %d, the data has %d dimensions, the indices have %d", batch, x:dim(),
    index:dim())
  n:check(last >= 1 and batch + last <= x:dim(),
    "indices of %d numbers for the %d dimensions of the data", last, x:dim() - batch)
  local list = {}
  for d = 0, batch - 1 do
    local shape = {}
    for i = 1, index:dim() - 1 do
      shape[i] = i == d + 1 and x:size(d) or 1
    end
    list[d + 1] = torch.arange(x:size(d)):reshape(shape)
  end
  for _, part in ipairs(index:unbind(-1)) do
    list[#list + 1] = part
  end
  return list
end

local function gather_nd(n, x, index)
  return x[of_input(n, 2, tuples, n, x, index, n.attr.batch_dims or 0)]
end

-- ---- writing ---------------------------------------------------------------------------

local REDUCTIONS = { none = true, add = true, mul = true }

local function reduction_of(n)
  local reduction = n.attr.reduction or "none"
  return n:check(REDUCTIONS[reduction] and reduction, "reduction '%s'. Allowed: none, add, mul",
    reduction)
end

local function scatter_elements(n, x, index, updates)
  local axis, reduction = n:axis(n.attr.axis, x:dim()), reduction_of(n)
  index = of_input(n, 2, wrapped, index:to(torch.int64), x:size(axis))
  if reduction == "none" then
    return x:scatter(axis, index, updates)
  elseif reduction == "add" then
    return x:scatter_add(axis, index, updates)
  end
  return x:scatter_reduce(axis, index, updates, "prod")
end

-- Products: the axes of the tuples as one, by which slices are scattered.
local function multiply_slices(n, x, index, updates)
  local list = of_input(n, 2, tuples, n, x, index, 0)
  local rows = 1
  local flat = of_input(n, 2, function()
    local sum
    for i, part in ipairs(list) do
      local size = x:size(i - 1)
      rows = rows * size
      part = wrapped(part, size)
      sum = sum and sum * size + part or part
    end
    return sum:reshape({ -1, 1 })
  end)
  local width = x:numel() // math.max(rows, 1)
  local data = x:reshape({ rows, width })
  updates = updates:reshape({ flat:size(0), width })
  return data:scatter_reduce(0, flat:expand(updates.shape), updates, "prod"):reshape(x.shape)
end

local function scatter_nd(n, x, index, updates)
  local reduction = reduction_of(n)
  if reduction == "mul" then
    return multiply_slices(n, x, index, updates)
  end
  return x:index_put(of_input(n, 2, tuples, n, x, index, 0), updates, reduction == "add")
end

-- ---- from indices to tensors and back --------------------------------------------------

local function one_hot(n, index, _, values)
  local depth = n:ints(2)[1]
  n:check(n.inputs[2]:numel() == 1, "depth has %d elements, allowed is 1", n.inputs[2]:numel())
  n:check(depth > 0, "depth is %d, it must be positive", depth)
  n:check(values:numel() == 2, "values has %d elements, allowed are 2", values:numel())
  local axis = n:axis(n.attr.axis, index:dim() + 1)
  local shape = {}
  for d = 1, index:dim() + 1 do
    shape[d] = 1
  end
  shape[axis + 1] = depth
  local hot = of_input(n, 1, function()
    index = wrapped(index:to(torch.int64), depth)
    return index:unsqueeze(axis):eq(torch.arange(depth):reshape(shape))
  end)
  return torch.where(hot, values[1], values[0])
end

local function compress(n, x, condition)
  local axis = n.attr.axis
  n:check(condition:dim() == 1, "condition has %d dimensions, allowed is 1", condition:dim())
  if not axis then
    x, axis = x:reshape({ -1 }), 0
  end
  axis = n:axis(axis, x:dim())
  n:check(condition:size(0) <= x:size(axis), "condition has %d elements, axis %d of the input has "
    .. "%d", condition:size(0), axis, x:size(axis))
  local at = of_input(n, 2, function()
    return condition:nonzero():reshape({ -1 })
  end)
  return x:index_select(axis, at)
end

local function unique(n, x)
  local axis = n.attr.axis
  if not axis then
    x, axis = x:reshape({ -1 }), 0
  end
  axis = n:axis(axis, x:dim())
  local y, inverse, counts = torch.unique(x, { sorted = true, return_inverse = true,
    return_counts = true, dim = axis })
  local first = torch.full({ y:size(axis) }, inverse:numel(), { dtype = torch.int64 })
    :scatter_reduce(0, inverse, torch.arange(inverse:numel()), "amin")
  if n.attr.sorted == 0 then -- in the order in which they appear
    local order = first:argsort()
    local place = order:argsort()
    y, first, counts = y:index_select(axis, order), first[order], counts[order]
    inverse = place[inverse]
  end
  return y, first, inverse, counts
end

return function(op)
  op("Gather(data, indices; axis: int = 0) -> (output)", { 1, 11, 13 }, gather)
  op("GatherElements(data, indices; axis: int = 0) -> (output)", { 11, 13 }, gather_elements)
  op("GatherND(data, indices) -> (output)", 11, gather_nd)
  op("GatherND(data, indices; batch_dims: int = 0) -> (output)", { 12, 13 }, gather_nd)
  op("Scatter(data, indices, updates; axis: int = 0) -> (output)", { 9, 11 }, scatter_elements)
  op("ScatterElements(data, indices, updates; axis: int = 0) -> (output)", { 11, 13 },
    scatter_elements)
  op("ScatterElements(data, indices, updates; axis: int = 0, reduction: string = 'none') -> "
    .. "(output)", 16, scatter_elements)
  op("ScatterND(data, indices, updates) -> (output)", { 11, 13 }, scatter_nd)
  op("ScatterND(data, indices, updates; reduction: string = 'none') -> (output)", 16, scatter_nd)
  op("OneHot(indices, depth, values; axis: int = -1) -> (output)", { 9, 11 }, one_hot,
    { constants = { [2] = true } })
  op("Compress(input, condition; axis: int) -> (output)", { 9, 11 }, compress)
  op("NonZero(X) -> (Y)", { 9, 13 }, function(n, x)
    n:check(not x.is_meta, "the shape of its result depends on the values of '%s', which only a "
      .. "run knows", n.plan.inputs[1])
    return x:nonzero():t()
  end)
  op("Unique(X; axis: int, sorted: int = 1) -> (Y, indices?, inverse_indices?, counts?)", 11,
    unique)
end
