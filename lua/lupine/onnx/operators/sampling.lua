--- Operators of ONNX that read images at places: GridSample, RoiAlign, and
--- NonMaxSuppression of boxes.
local core = require("lupine.core")
local torch = require("torch")
local F = require("torch.nn.functional")

local function grid_sample(n, x, grid)
  return F.grid_sample(x, grid:to(x.dtype), n.attr.mode, n.attr.padding_mode,
    n.attr.align_corners ~= 0)
end

-- ---- regions of interest ---------------------------------------------------------------

-- One axis of the regions: where they begin, how far they reach, as [R, 1, 1].
local function extent(n, rois, from, to, shift)
  local scale = n.attr.spatial_scale
  local first = rois:narrow(1, from, 1):unsqueeze(2) * scale - shift
  local length = rois:narrow(1, to, 1):unsqueeze(2) * scale - shift - first
  return first, shift == 0 and length:clamp(1) or length -- those that are moved may vanish
end

-- Samples of a bin of that axis: for each region (none if it ends before it begins), and
-- the most of all.
local function samples(n, length, bins)
  local ratio = n.attr.sampling_ratio
  if ratio > 0 or length.is_meta then
    return math.max(ratio, 1), math.max(ratio, 1)
  end
  n:check(n:knows(2), "sampling_ratio is 0: the regions must be constants, their sizes decide "
    .. "how often they are read")
  return core.untraced(function()
    local each = (length / bins):ceil():clamp(0)
    return each, math.max(1, math.tointeger(each:max():item()))
  end)
end

-- Weights [R, bins * most, size] with which elements of an axis make the samples of its
-- bins; which samples count, [R, 1, most] or nil for all; how many they are.
local function sampling(n, rois, axis, size, shift)
  local bins = axis == "x" and n.attr.output_width or n.attr.output_height
  local first, length = extent(n, rois, axis == "x" and 0 or 1, axis == "x" and 2 or 3, shift)
  local each, most = samples(n, length, bins)
  local bin = torch.arange(bins):reshape({ 1, bins, 1 })
  local sample = torch.arange(most):reshape({ 1, 1, most })
  local divisor = each ~= most and each:clamp(1) or most
  local at = first + (bin + (sample + 0.5) / divisor) * (length / bins)
  local inside = torch.logical_and(at:ge(-1), at:le(size))
  local counts = each ~= most and sample:lt(each) or nil
  at = at:clamp(0, size - 1):unsqueeze(3)
  local near = (1 - (at - torch.arange(size)):abs()):clamp(0) -- of the two neighbours
  near = near * inside:unsqueeze(3):to(near.dtype)
  return { weight = near, counts = counts, each = divisor, bins = bins, most = most }
end

local function averaged(s)
  local weight = s.counts and s.weight * s.counts:unsqueeze(3):to(s.weight.dtype) or s.weight
  return weight:sum(2) / s.each
end

local function averages(images, rows, columns)
  return averaged(rows):unsqueeze(1):matmul(images):matmul(averaged(columns):unsqueeze(1)
    :transpose(2, 3))
end

local function largest(images, rows, columns)
  local R, C = images:size(0), images:size(1)
  local y = rows.weight:reshape({ R, 1, rows.bins * rows.most, -1 })
  local x = columns.weight:reshape({ R, 1, columns.bins * columns.most, -1 })
  local read = y:matmul(images):matmul(x:transpose(2, 3))
    :reshape({ R, C, rows.bins, rows.most, columns.bins, columns.most })
  local function hide(s, shape)
    if s.counts then
      read = read:masked_fill(s.counts:logical_not():reshape(shape), -math.huge)
    end
  end
  hide(rows, { -1, 1, 1, rows.most, 1, 1 })
  hide(columns, { -1, 1, 1, 1, 1, columns.most })
  read = read:amax({ 3, 5 })
  return torch.where(read:eq(-math.huge), torch.zeros({}, { dtype = read.dtype }), read)
end

local function roi_align(n, x, rois, batch)
  local mode, place = n.attr.mode, n.attr.coordinate_transformation_mode or "output_half_pixel"
  n:check(mode == "avg" or mode == "max", "mode '%s'. Allowed: avg, max", mode)
  n:check(place == "half_pixel" or place == "output_half_pixel",
    "coordinate_transformation_mode '%s'. Allowed: half_pixel, output_half_pixel", place)
  n:check(x:dim() == 4 and rois:dim() == 2 and rois:size(1) == 4,
    "inputs of the shapes %s and %s, allowed are 4 dimensions and [regions, 4]",
    tostring(x.shape), tostring(rois.shape))
  local shift = place == "half_pixel" and 0.5 or 0
  local images = x:index_select(0, batch:reshape({ -1 }))
  local function weights()
    return sampling(n, rois, "y", x:size(2), shift), sampling(n, rois, "x", x:size(3), shift)
  end
  local rows, columns
  if n:knows(2) then
    rows, columns = core.untraced(weights)
  else
    rows, columns = weights()
  end
  return (mode == "avg" and averages or largest)(images, rows, columns)
end

-- ---- boxes ------------------------------------------------------------------------------

-- Corners y1, x1, y2, x2 of boxes [K, 4] as lists of columns.
local function corners(n, boxes)
  local a, b, c, d = table.unpack(boxes:unbind(1))
  if n.attr.center_point_box ~= 0 then -- x, y, width, height
    return b - d / 2, a - c / 2, b + d / 2, a + c / 2
  end
  return torch.minimum(a, c), torch.minimum(b, d), torch.maximum(a, c), torch.maximum(b, d)
end

-- Intersection over union of all pairs, [K, K].
local function overlaps(n, boxes)
  local y1, x1, y2, x2 = corners(n, boxes)
  local function common(low, high)
    return (torch.minimum(high, high:unsqueeze(1)) - torch.maximum(low, low:unsqueeze(1)))
      :clamp(0)
  end
  local both, area = common(y1, y2) * common(x1, x2), (y2 - y1) * (x2 - x1)
  local either = area + area:unsqueeze(1) - both
  return torch.where(either:gt(0), both / either, either * 0)
end

-- The best boxes of one class: each hides those after it that overlap it too much.
local function selected(overlap, scores, most, threshold, least)
  local order = scores:argsort({ descending = true, stable = true }):tolist()
  local hidden, list = overlap:gt(threshold), {}
  local gone = least and scores:le(least) or torch.zeros(scores.shape):bool()
  for _, i in ipairs(order) do
    if #list == most then
      break
    elseif not gone[i]:item() then
      list[#list + 1] = i
      gone = torch.logical_or(gone, hidden[i])
    end
  end
  return list
end

local function suppress(n)
  local boxes, scores = n:value(1), n:value(2)
  local most, least = n:number(3) or 0, n:number(5)
  local rows = {}
  for b = 0, scores:size(0) - 1 do
    local overlap = overlaps(n, boxes[b])
    for c = 0, scores:size(1) - 1 do
      for _, i in ipairs(selected(overlap, scores[b][c], most, n:number(4) or 0, least)) do
        rows[#rows + 1] = { b, c, i }
      end
    end
  end
  return torch.tensor(rows, { dtype = torch.int64 }):reshape({ -1, 3 })
end

return function(op)
  local regions = { constants = { [2] = true } } -- no weights, and they may decide shapes
  op("GridSample(X, grid; align_corners: int = 0, mode: string = 'bilinear', "
    .. "padding_mode: string = 'zeros') -> (Y)", 16, grid_sample)
  op("RoiAlign(X, rois, batch_indices; mode: string = 'avg', output_height: int = 1, "
    .. "output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0) -> (Y)", 10,
    roi_align, regions)
  op("RoiAlign(X, rois, batch_indices; coordinate_transformation_mode: string = 'half_pixel', "
    .. "mode: string = 'avg', output_height: int = 1, output_width: int = 1, "
    .. "sampling_ratio: int = 0, spatial_scale: float = 1.0) -> (Y)", 16, roi_align, regions)
  op("NonMaxSuppression(boxes, scores, max_output_boxes_per_class?, iou_threshold?, "
    .. "score_threshold?; center_point_box: int = 0) -> (selected_indices)", { 10, 11 },
    suppress, { constants = { [3] = true, [4] = true, [5] = true } })
end
