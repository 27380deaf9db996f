--- Poolings of ONNX, of 1 to 3 dimensions of places.
---
--- torch pads both sides alike and by at most half a window, and indices of maxima
--- count within a plane; other pads are padding of its own, and indices of ONNX count
--- within the whole tensor. A window that would start behind the input does not count,
--- as later editions of ONNX say and torch has it.
local torch = require("torch")
local core = require("lupine.core")
local F = require("torch.nn.functional")
local windows = require("lupine.onnx.windows")

-- How many windows there are, by dimension.
local function counts(n, w, x)
  local out = {}
  for i = 1, w.dims do
    local size, stride = x:size(i + 1), w.strides[i]
    local span = size + w.pads[i] + w.pads[w.dims + i] - w.reach[i]
    n:check(span >= 0, "dimension %d of places: a window of %d does not fit into %d places with "
      .. "pads of %d and %d", i - 1, w.reach[i], size, w.pads[i], w.pads[w.dims + i])
    out[i] = span // stride + 1
    if (n.attr.ceil_mode or 0) ~= 0 then
      local more = (span + stride - 1) // stride + 1
      out[i] = (more - 1) * stride < size + w.pads[i] and more or out[i]
    end
  end
  return out
end

-- Whether torch's own padding has this effect; else `pads` that make all windows
-- whole, negative behind places that no window reaches.
local function plain(w)
  for i = 1, w.dims do
    if w.pads[i] ~= w.pads[w.dims + i] or w.pads[i] > w.reach[i] // 2 then
      return false
    end
  end
  return true
end

local function whole(w, x, count)
  local pads = {}
  for i = 1, w.dims do
    pads[i] = w.pads[i]
    pads[w.dims + i] = (count[i] - 1) * w.strides[i] + w.reach[i] - x:size(i + 1) - w.pads[i]
  end
  return windows.reversed(w.dims, pads)
end

-- The windows of a node on x, and how many there are.
local function windows_on(n, x)
  local w = windows.of(n, x)
  windows.pad_same(w, x)
  return w, counts(n, w, x)
end

local function lead(w)
  return { table.unpack(w.pads, 1, w.dims) }
end

-- ---- maxima ------------------------------------------------------------------------

local function least(dtype)
  return dtype.is_floating_point and -math.huge or torch.iinfo(dtype).min
end

-- Indices in a padded plane as such in the plane without padding.
local function unpadded(at, w, x, pads)
  local sizes, padded, out = {}, {}, nil
  for i = 1, w.dims do
    sizes[i] = x:size(i + 1)
    padded[i] = sizes[i] + pads[2 * (w.dims - i) + 1] + pads[2 * (w.dims - i) + 2]
  end
  local step = 1
  for i = w.dims, 1, -1 do
    local place = at % padded[i] - w.pads[i]
    at = torch.div(at, padded[i], { rounding_mode = "floor" })
    out = out and out + place * step or place
    step = step * sizes[i]
  end
  return out
end

-- Indices in row-major planes as such in column-major ones.
local function column_major(at, w, x)
  local out, step = nil, 1
  for i = w.dims, 1, -1 do
    step = step * x:size(i + 1)
  end
  for i = w.dims, 1, -1 do
    local size = x:size(i + 1)
    step = step // size
    local place = at % size
    at = torch.div(at, size, { rounding_mode = "floor" })
    out = out and out + place * step or place * step
  end
  return out
end

-- Indices in planes as such in the whole tensor.
local function in_tensor(at, x)
  local planes = x:size(0) * x:size(1)
  local first = core.untraced(function()
    return torch.arange(planes) * (planes > 0 and x:numel() // planes or 0)
  end)
  return at + first:reshape({ x:size(0), x:size(1), table.unpack({ 1, 1, 1 }, 1, x:dim() - 2) })
end

-- The shapes of what MaxPool took, by the names of its indices, of each run.
local taken = setmetatable({}, { __mode = "k" })

local function take(n, shape)
  taken[n.scope] = taken[n.scope] or {}
  taken[n.scope][n.outputs[2]] = shape
end

local function max_pool(n, x)
  local w, count = windows_on(n, x)
  local name = ("max_pool%dd"):format(w.dims)
  local padded, pads, padding, ceil = x, nil, lead(w), (n.attr.ceil_mode or 0) ~= 0
  if not plain(w) then
    pads, padding, ceil = whole(w, x, count), 0, false
    padded = F.pad(x, pads, "constant", least(x.dtype))
  end
  local y, at = F[name](padded, w.kernel, w.strides, padding, w.dilations, ceil, n:wants(2))
  if not n:wants(2) then
    return y
  end
  take(n, x.shape)
  at = pads and unpadded(at, w, x, pads) or at
  at = (n.attr.storage_order or 0) ~= 0 and column_major(at, w, x) or at
  return y, in_tensor(at, x)
end

-- The shape that windows of an unpooling cover.
local function covered(w, x)
  local shape = { x:size(0), x:size(1) }
  for i = 1, w.dims do
    shape[i + 2] = (x:size(i + 1) - 1) * w.strides[i] + w.kernel[i] - w.pads[i]
      - w.pads[w.dims + i]
  end
  return shape
end

-- The shape of the tensor in which indices count: of what the MaxPool that gave them took.
-- Of others ONNX's text says nothing, its test counts in what the windows cover, although
-- another shape is wanted; less than they cover is where a window of MaxPool hung over.
local function counted(n, shape, wanted)
  local known = (taken[n.scope] or {})[n.plan.inputs[2]]
  if known then
    return { table.unpack(known) }
  end
  for i, size in ipairs(wanted) do
    if size < shape[i] then
      return wanted
    end
  end
  return shape
end

-- Puts values where the maxima were; another size that is wanted has more zeros behind it,
-- or less of it.
local function max_unpool(n, x, at)
  local w, wanted, pads = windows.of(n, x), n:ints(3), {}
  n:check(not wanted or #wanted == x:dim(), "output_shape: expected %d sizes, got %d", x:dim(),
    wanted and #wanted)
  local shape = covered(w, x)
  wanted = wanted or shape
  local from = counted(n, shape, wanted)
  for i = 1, w.dims do
    pads[i], pads[w.dims + i] = 0, wanted[i + 2] - from[i + 2]
  end
  local y = torch.zeros(from, { dtype = x.dtype }):reshape({ -1 })
    :scatter(0, at:reshape({ -1 }), x:reshape({ -1 })):reshape(from)
  return F.pad(y, windows.reversed(w.dims, pads))
end

-- ---- regions -----------------------------------------------------------------------

-- [regions, cells, size]: whether a place lies in a cell of the part from `first` to
-- `last`, both within, which is cut into `cells`.
local function in_cells(first, last, cells, size)
  local width = (last - first + 1):clamp(1) / cells
  local number = torch.arange(cells):reshape({ 1, -1 })
  first, width = first:reshape({ -1, 1 }), width:reshape({ -1, 1 })
  local from = ((number * width):floor() + first):unsqueeze(-1)
  local to = (((number + 1) * width):ceil() + first):unsqueeze(-1)
  local place = torch.arange(size)
  return place:ge(from):logical_and(place:lt(to))
end

-- The maxima of the cells of regions {image, x and y of two corners}; an empty one has 0.
local function max_roi_pool(n, x, rois)
  local cells = n.attr.pooled_shape
  n:check(x:dim() == 4 and rois:dim() == 2 and rois:size(1) == 5 and #cells == 2,
    "X must have 4 dimensions, rois the shape [regions, 5], pooled_shape 2 numbers")
  local corners = (rois:narrow(1, 1, 4) * n.attr.spatial_scale + 0.5):floor()
  local images = x:index_select(0, rois:select(1, 0):to(torch.int64))
  local below = -math.huge
  local columns = in_cells(corners:select(1, 0), corners:select(1, 2), cells[2], x:size(3))
  local rows = in_cells(corners:select(1, 1), corners:select(1, 3), cells[1], x:size(2))
  columns, rows = columns:reshape({ -1, 1, 1, cells[2], x:size(3) }), rows:unsqueeze(1)
  local y = images:unsqueeze(3):masked_fill(columns:logical_not(), below):amax(-1)
  y = y:unsqueeze(2):masked_fill(rows:unsqueeze(-1):logical_not(), below):amax(3)
  return y:masked_fill(y:eq(below), 0)
end

-- ---- means -------------------------------------------------------------------------

-- By window, the share of its places within the input, or within its padding too.
local function shares(w, x, count, include)
  return core.untraced(function()
    local out
    for i = 1, w.dims do
      local size = x:size(i + 1)
      local first = torch.arange(count[i]) * w.strides[i] - w.pads[i]
      local last = (first + w.kernel[i]):clamp(nil, include and size + w.pads[w.dims + i] or size)
      local own = (last - first:clamp(include and -w.pads[i] or 0)) / w.kernel[i]
      own = own:reshape({ -1, table.unpack({ 1, 1, 1 }, 1, w.dims - i) })
      out = out and out * own or own
    end
    return out:to(x.dtype)
  end)
end

-- Means over all places of windows, zeros where they hang over.
local function means(w, x, count)
  return F[("avg_pool%dd"):format(w.dims)](F.pad(x, whole(w, x, count)), w.kernel, w.strides)
end

local function average_pool(n, x)
  local w, count = windows_on(n, x)
  local include = (n.attr.count_include_pad or 0) ~= 0
  if not plain(w) then
    return means(w, x, count) / shares(w, x, count, include)
  end
  return F[("avg_pool%dd"):format(w.dims)](x, w.kernel, w.strides, lead(w),
    (n.attr.ceil_mode or 0) ~= 0, include)
end

local function norm(x, p, reduce)
  if p == 1 then
    return reduce(x:abs())
  elseif p == 2 then
    return reduce(x * x):sqrt()
  end
  return reduce(x:abs():pow(p)):pow(1 / p)
end

-- Over all places, of which one is left in each dimension.
local function all_places(x)
  local dims = {}
  for d = 2, x:dim() - 1 do
    dims[#dims + 1] = d
  end
  return dims, { keepdim = true }
end

local function check_places(n, x)
  n:check(x:dim() >= 3, "X must have 3 dimensions or more (batch, channels, places), got the "
    .. "shape %s", tostring(x.shape))
end

return function(op)
  op("MaxPool(X; kernel_shape: ints!, pads: ints, strides: ints, auto_pad: string = 'NOTSET') "
    .. "-> (Y)", 1, max_pool)
  op("MaxPool(X; kernel_shape: ints!, pads: ints, storage_order: int = 0, strides: ints, "
    .. "auto_pad: string = 'NOTSET') -> (Y, Indices?)", 8, max_pool)
  op("MaxPool(X; kernel_shape: ints!, ceil_mode: int = 0, dilations: ints, pads: ints, "
    .. "storage_order: int = 0, strides: ints, auto_pad: string = 'NOTSET') -> (Y, Indices?)",
    { 10, 11, 12 }, max_pool)
  op("MaxUnpool(X, I, output_shape?; kernel_shape: ints!, pads: ints, strides: ints) -> (output)",
    { 9, 11 }, max_unpool, { constants = { [3] = true } })
  op("MaxRoiPool(X, rois; pooled_shape: ints!, spatial_scale: float = 1.0) -> (Y)", 1,
    max_roi_pool)
  op("AveragePool(X; kernel_shape: ints!, pads: ints, strides: ints, "
    .. "auto_pad: string = 'NOTSET') -> (Y)", 1, average_pool)
  op("AveragePool(X; kernel_shape: ints!, count_include_pad: int = 0, pads: ints, strides: ints, "
    .. "auto_pad: string = 'NOTSET') -> (Y)", 7, average_pool)
  op("AveragePool(X; kernel_shape: ints!, ceil_mode: int = 0, count_include_pad: int = 0, "
    .. "pads: ints, strides: ints, auto_pad: string = 'NOTSET') -> (Y)", { 10, 11 }, average_pool)
  op("LpPool(X; kernel_shape: ints!, p: int = 2, pads: ints, strides: ints, "
    .. "auto_pad: string = 'NOTSET') -> (Y)", { 1, 2, 11 }, function(n, x)
    local w, count = windows_on(n, x)
    local size = 1
    for _, k in ipairs(w.kernel) do
      size = size * k
    end
    return norm(x, n.attr.p, function(powers)
      return means(w, powers, count) * size
    end)
  end)

  op("GlobalAveragePool(X) -> (Y)", 1, function(n, x)
    check_places(n, x)
    return x:mean(all_places(x))
  end)
  op("GlobalMaxPool(X) -> (Y)", 1, function(n, x)
    check_places(n, x)
    return x:amax(all_places(x))
  end)
  op("GlobalLpPool(X; p: int = 2) -> (Y)", { 1, 2 }, function(n, x)
    check_places(n, x)
    return norm(x, n.attr.p, function(powers)
      return powers:sum(all_places(x))
    end)
  end)
end
