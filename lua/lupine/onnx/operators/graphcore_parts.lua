--- Operators of the domain ai.graphcore that arrange elements, and that read or write
--- parts whose place only a run of the program knows.
--- source: PopART, builder.hpp (AiGraphcoreOpset1) and willow/src/op
local torch = require("torch")
local sequences = require("lupine.onnx.sequences")

-- ---- known parts -----------------------------------------------------------------------

local function reshape(n, x)
  local shape = {}
  for i, size in ipairs(n.attr.shape) do
    n:check(size ~= 0 or i <= x:dim(), "attribute 'shape': the 0 at %d copies a dimension that "
      .. "the input of shape %s has not", i - 1, tostring(x.shape))
    shape[i] = size == 0 and x:size(i - 1) or size
  end
  return x:reshape(shape)
end

local function slice(n, x)
  local axes, starts, ends = n.attr.axes, n.attr.starts, n.attr.ends
  n:check(#starts == #ends and (not axes or #axes == #starts),
    "attributes 'starts', 'ends' and 'axes' must be as many, got %d, %d and %d", #starts, #ends,
    #(axes or starts))
  for i = 1, #starts do
    local axis = n:axis(axes and axes[i] or i - 1, x:dim(), "attribute 'axes'")
    local size = x:size(axis)
    local first = math.max(math.min(starts[i] < 0 and starts[i] + size or starts[i], size), 0)
    local last = math.max(math.min(ends[i] < 0 and ends[i] + size or ends[i], size), first)
    x = x:narrow(axis, first, last - first)
  end
  return x
end

local function subsample(n, x)
  n:check(#n.attr.strides <= x:dim(), "attribute 'strides': %d numbers for %d dimensions",
    #n.attr.strides, x:dim())
  local at = {}
  for i, stride in ipairs(n.attr.strides) do
    n:check(stride > 0, "attribute 'strides': invalid stride %d at index %d", stride, i - 1)
    at[i] = torch.slice(nil, nil, stride)
  end
  return #at > 0 and x[at] or x
end

local function reverse(n, x)
  local seen = {}
  for _, d in ipairs(n.attr.dimensions) do
    n:check(d >= 0 and d < x:dim(), "attribute 'dimensions': invalid dimension '%d'. Allowed: "
      .. "0 to %d", d, x:dim() - 1)
    n:check(not seen[d], "attribute 'dimensions': dimension %d appears multiple times", d)
    seen[d] = true
  end
  return x:flip(n.attr.dimensions)
end

local function depth_to_space(n, x)
  local b, mode = n.attr.blocksize, n.attr.mode
  n:check(x:dim() == 4, "the input must have 4 dimensions, got the shape %s", tostring(x.shape))
  n:check(b > 0 and x:size(1) % (b * b) == 0, "attribute 'blocksize': %d channels are no multiple "
    .. "of %d squared", x:size(1), b)
  n:check(mode == "DCR" or mode == "CRD", "attribute 'mode': got '%s'. Allowed: DCR, CRD", mode)
  local size, c, h, w = x:size(0), x:size(1) // (b * b), x:size(2), x:size(3)
  local parts = mode == "DCR" and x:reshape({ size, b, b, c, h, w }):permute({ 0, 3, 4, 1, 5, 2 })
    or x:reshape({ size, c, b, b, h, w }):permute({ 0, 1, 4, 2, 5, 3 })
  return parts:reshape({ size, c, h * b, w * b })
end

-- PopART's numbers of types; source: datatype.hpp, DataType.
local TYPES = { [0] = torch.uint8, torch.int8, [5] = torch.int16, [6] = torch.int32,
  [7] = torch.int64, [10] = torch.bool, [11] = torch.float32, [12] = torch.float16,
  [13] = torch.bfloat16, [14] = torch.float64 }

local function init(n)
  local kind = n.attr.init_type
  n:check(kind == 0 or kind == 1, "attribute 'init_type': got %d. Allowed: 0 (NoInit), 1 (Zero)",
    kind)
  local dtype = n:check(TYPES[n.attr.data_type], "attribute 'data_type': the type %d of PopART is "
    .. "not supported", n.attr.data_type)
  return torch.zeros(n.attr.shape, { dtype = dtype })
end

local function arrangements(op)
  op("Reshape(data; shape: ints!) -> (reshaped)", 1, reshape)
  op("Slice(data; ends: ints!, starts: ints!, axes: ints) -> (output)", 1, slice)
  op("Subsample(X; strides: ints!) -> (Y)", 1, subsample)
  op("Reverse(X; dimensions: ints!) -> (Y)", 1, reverse)
  op("DepthToSpace(input; blocksize: int!, mode: string = 'DCR') -> (output)", 1, depth_to_space)
  op("Init(; shape: ints!, data_type: int!, init_type: int!, batch_axis: int = -1, "
    .. "tensor_type: int) -> (output)", 1, init)
  -- the layout on tiles changes, no value does
  op("TensorRemap(X, ref?; remap_type: int!) -> (Y)", 1, function(n, x)
    n:check(n.attr.remap_type >= 0 and n.attr.remap_type <= 2, "attribute 'remap_type': got %d. "
      .. "Allowed: 0 (FwdBwdReverse), 1 (FwdBwd), 2 (Fwd)", n.attr.remap_type)
    return x:clone()
  end)
end

-- ---- parts at offsets --------------------------------------------------------------------
-- Behind the end of an axis places go on at its beginning. Gradients are right whether
-- parts overlap or not: noOverlap changes nothing.

local function offsets(n, x, index)
  local axes, sizes, at = n.attr.axes, n.attr.sizes, {}
  n:check(#axes == #sizes and index:numel() == #axes, "axes, sizes and offsets must be as many, "
    .. "got %d, %d and %d", #axes, #sizes, index:numel())
  n:check(n.attr.noOverlap == nil or n.attr.noOverlap == 0 or n.attr.noOverlap == 1,
    "attribute 'noOverlap': got %s. Allowed: 0, 1", n.attr.noOverlap)
  local starts = index:reshape({ -1 }):to(torch.int64)
  for i, axis in ipairs(axes) do
    axis = n:axis(axis, x:dim(), "attribute 'axes'")
    n:check(sizes[i] > 0 and sizes[i] <= x:size(axis), "attribute 'sizes': got %d for axis %d of "
      .. "size %d", sizes[i], axis, x:size(axis))
    at[i] = { axis = axis, places = (torch.arange(sizes[i]) + starts:narrow(0, i - 1, 1))
      :remainder(x:size(axis)) }
  end
  return at
end

local function read(x, at)
  for _, a in ipairs(at) do
    x = x:index_select(a.axis, a.places)
  end
  return x
end

-- x with the part at `at` as `change` makes it of what is there.
local function write(x, at, change, i)
  i = i or 1
  if i > #at then
    return change(x)
  end
  local a = at[i]
  return x:index_copy(a.axis, a.places, write(x:index_select(a.axis, a.places), at, change, i + 1))
end

local DYNAMIC = "axes: ints!, sizes: ints!, noOverlap: int = 0) -> (output)"

local function dynamic(op)
  op("DynamicSlice(tensor, offset, slice?; " .. DYNAMIC, 1, function(n, x, index, like)
    local part = read(x, offsets(n, x, index))
    return like and part:reshape(like.shape) or part
  end)
  op("DynamicUpdate(tensor, offset, update; " .. DYNAMIC, 1, function(n, x, index, update)
    return write(x, offsets(n, x, index), function(part)
      return update:to(x.dtype):reshape(part.shape)
    end)
  end)
  op("DynamicZero(tensor, offset; " .. DYNAMIC, 1, function(n, x, index)
    return write(x, offsets(n, x, index), torch.zeros_like)
  end)
  op("DynamicAdd(tensor, offset, update; " .. DYNAMIC, 1, function(n, x, index, update)
    return write(x, offsets(n, x, index), function(part)
      return part + update:to(x.dtype):reshape(part.shape)
    end)
  end)
  op("SequenceSlice(source, destination, N, sourceOffset, destinationOffset; "
    .. "zeroUnused: int = 0) -> (output)", 1, function(n, source, to, count, from, at)
      if n.attr.zeroUnused ~= 0 then
        to = torch.zeros_like(to)
      end
      return sequences.copy(source, to, count, from, at)
    end)
end

-- ---- by index ------------------------------------------------------------------------------

local REDUCTIONS = { sum = "sum", max = "amax", min = "amin", mul = "prod", none = "none" }

-- The index with as many dimensions as the data: a vector, behind the groups, lies along
-- the axis.
local function with_rank(n, index, data, axis, groups)
  n:check(index:dim() <= data:dim(), "Invalid rank for indices input. Indices rank %d must be <= "
    .. "data input rank %d", index:dim(), data:dim())
  if index:dim() - groups == 1 then
    for _ = groups, axis - 1 do
      index = index:unsqueeze(groups)
    end
  end
  for _ = index:dim(), data:dim() - 1 do
    index = index:unsqueeze(-1)
  end
  for d = 0, data:dim() - 1 do
    n:check(index:size(d) <= data:size(d), "Failed to expand 'indices' shape %s to match 'src' "
      .. "shape %s using reduction axis = %d", tostring(index.shape), tostring(data.shape), axis)
  end
  return index
end

-- The index with the shape of the data, if it is to be: a vector is repeated.
local function broadcast(n, index, data, axis, groups)
  if tostring(index.shape) == tostring(data.shape) or n.attr.enable_index_broadcast == 0 then
    return index
  end
  for d = groups, data:dim() - 1 do
    n:check(index:size(d) == (d == axis and data:size(d) or 1),
      "Partial broadcasting of indices is not currently supported: the shape %s is no vector "
      .. "along axis %d of %s", tostring(index.shape), axis, tostring(data.shape))
  end
  return index:expand(data.shape)
end

local function scatter_reduce(n, data, index, initial)
  local axis, size, groups = n.attr.axis, n.attr.axis_size, n.attr.group_size > 1 and 1 or 0
  n:check(size > 0, "axis_size = %d is not valid: must be > 0", size)
  n:check(n.attr.group_size > 0, "group_size = %d is not valid: must be > 0", n.attr.group_size)
  n:check(axis >= -data:dim() and axis < data:dim(),
    "axis = %d is outside the acceptable range [%d, %d]", axis, -data:dim(), data:dim() - 1)
  axis = n:axis(axis, data:dim())
  local how = n:check(REDUCTIONS[n.attr.reduction:lower()], "attribute 'reduction': got '%s'. "
    .. "Allowed: sum, max, min, mul, none", n.attr.reduction)
  index = with_rank(n, index:to(torch.int64), data, axis, groups)
  index = broadcast(n, index, data, axis, groups)
  local out = initial
  if not out then
    local shape = { table.unpack(index.shape) }
    shape[axis + 1] = size
    out = torch.full(shape, how == "prod" and 1 or 0, { dtype = data.dtype })
  end
  if how == "none" then
    return out:scatter(axis, index, data)
  elseif how == "sum" then
    return out:scatter_add(axis, index, data)
  end
  return out:scatter_reduce(axis, index, data, how, { include_self = initial ~= nil })
end

-- Each group, along the first dimension, has indices of its own.
local function grouped_gather(n, data, index)
  local axis = n:axis(n.attr.axis, data:dim())
  n:check(axis > 0, "axis = %d indicates the dimension of the group", axis)
  local g = data:size(0)
  n:check(g == n.attr.group_size and index:size(0) == g, "attribute 'group_size' is %d, the "
    .. "inputs have the shapes %s and %s", n.attr.group_size, tostring(data.shape),
    tostring(index.shape))
  local moved = data:movedim(axis, 1)
  local rest = { table.unpack(moved.shape, 3) }
  local flat = moved:reshape({ g, moved:size(1), -1 })
  local at = index:to(torch.int64):reshape({ g, -1, 1 })
  local got = flat:gather(1, at:expand({ g, at:size(1), flat:size(2) }))
  local order, r, k = { 0 }, #rest, index:dim() - 1
  for d = 1, r + k do -- the indices' dimensions go to the place of the axis
    local before = d <= axis - 1
    order[d + 1] = before and k + d or d <= axis - 1 + k and d - axis + 1 or d
  end
  local shape = { g, table.unpack(index.shape, 2) }
  table.move(rest, 1, r, k + 2, shape)
  return got:reshape(shape):permute(order)
end

local function indexed(op)
  op("ScatterReduce(data, indices, initial_values?; axis_size: int!, axis: int = -1, "
    .. "reduction: string = 'sum', group_size: int = 1, enable_index_broadcast: int = 1) "
    .. "-> (output)", 1, scatter_reduce)
  op("GroupedGather(data, indices; axis: int = 0, group_size: int = 1) -> (Y)", 1,
    function(n, data, index)
      if n.attr.group_size > 1 then
        return grouped_gather(n, data, index)
      end
      local axis = n:axis(n.attr.axis, data:dim())
      local shape = { table.unpack(data.shape, 1, axis) }
      table.move(index.shape, 1, index:dim(), #shape + 1, shape)
      table.move(data.shape, axis + 2, data:dim(), #shape + 1, shape)
      return data:index_select(axis, index:to(torch.int64):reshape({ -1 })):reshape(shape)
    end)
end

return function(op)
  arrangements(op)
  dynamic(op)
  indexed(op)
end
