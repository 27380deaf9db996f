--- Resize and Upsample. Every mode is separable: elements of an axis of the result
--- are sums of a few elements of the input's, with weights. Positions are float32, as
--- ONNX Runtime has them: what lies half-way is decided by their last bit. Those that
--- follow from sizes are the nearest to the exact ones.
---
--- source: PopART, the nearest mode "pytorch"; ONNX, Changelog.md
--- (Resize-10, -11, -13, Upsample-7, -9)
local core = require("lupine.core")
local operands = require("lupine.onnx.operands")
local torch = require("torch")

local F32 = { dtype = torch.float32 }

local function float32(v)
  return (string.unpack("<f", string.pack("<f", v)))
end

-- ---- positions ----------------------------------------------------------------------

-- An axis: `size` elements become `out`, `scale` of them for each; `given` is whether
-- the scale decided (not the size), `first` and `last` are the crop's.
---@class lupine.onnx.ResizeAxis
---@field axis integer
---@field size integer
---@field out integer
---@field scale number
---@field given boolean
---@field first number
---@field last number

-- Sizes give exact positions.
local function scaled_back(i, a)
  return a.given and i / a.scale or i * a.size / a.out
end

-- Elements of the result -> positions in the input.
local POSITIONS = {
  half_pixel = function(i, a) return scaled_back(i + 0.5, a) - 0.5 end,
  pytorch_half_pixel = function(i, a)
    return a.out > 1 and scaled_back(i + 0.5, a) - 0.5 or i * 0
  end,
  asymmetric = scaled_back,
  align_corners = function(i, a)
    local out = a.given and a.size * a.scale or a.out -- as ONNX's cases: with the fraction
    return a.out > 1 and i * (a.size - 1) / (out - 1) or i * 0
  end,
  tf_half_pixel_for_nn = function(i, a) return scaled_back(i + 0.5, a) end,
  tf_crop_and_resize = function(i, a)
    local last = a.size - 1
    return a.out > 1 and i * ((a.last - a.first) * last / (a.out - 1)) + a.first * last
      or i * 0 + 0.5 * (a.first + a.last) * last
  end,
}

-- What a position between two elements takes; the part behind the point is exact.
local NEAREST = {
  round_prefer_floor = function(x) return x:floor() + (x - x:floor()):gt(0.5) end,
  round_prefer_ceil = function(x) return x:floor() + (x - x:floor()):ge(0.5) end,
  floor = function(x) return x:floor() end,
  ceil = function(x) return x:ceil() end,
  pytorch = function(x) return x:floor() end, -- of PopART: the positions are asymmetric, too
}

-- ---- elements and weights -------------------------------------------------------------

-- Lists of indices and of weights, one of each for every element that is summed.
local function linear(x, a)
  x = x:clamp(0, a.size - 1)
  local low = x:floor()
  local t = x - low
  return { low, (low + 1):clamp(0, a.size - 1) }, { 1 - t, t }
end

-- Weights of cubic convolution at the distances 1 + t, t, 1 - t, 2 - t.
local function cubic_weights(t, a)
  local function near(d) return ((a + 2) * d - (a + 3)) * d * d + 1 end
  local function far(d) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a end
  return { far(t + 1), near(t), near(1 - t), far(2 - t) }
end

local function cubic(x, a, n)
  local low = x:floor()
  local weight, index, sum = cubic_weights(x - low, n.attr.cubic_coeff_a), {}, nil
  for k = 1, 4 do
    local at = low + (k - 2)
    index[k] = at:clamp(0, a.size - 1)
    if n.attr.exclude_outside ~= 0 then
      weight[k] = weight[k] * torch.logical_and(at:ge(0), at:le(a.size - 1))
      sum = sum and sum + weight[k] or weight[k]
    end
  end
  for k = 1, sum and 4 or 0 do
    weight[k] = weight[k] / sum
  end
  return index, weight
end

local function nearest(x, a, n)
  return { NEAREST[n.attr.nearest_mode](x):clamp(0, a.size - 1) }, {}
end

local KINDS = { nearest = nearest, linear = linear, cubic = cubic, bilinear = linear }

-- Along one axis: indices, weights, and where the result lies outside of the input.
local function taps(n, a, rank)
  local shape = {}
  for d = 1, rank do
    shape[d] = 1
  end
  shape[a.axis + 1] = a.out
  local pytorch = n.attr.mode == "nearest" and n.attr.nearest_mode == "pytorch"
  local position = POSITIONS[pytorch and "asymmetric" or n.attr.coordinate_transformation_mode]
  local x = position(torch.arange(a.out, F32), a)
  local index, weight = KINDS[n.attr.mode](x, a, n)
  for k, w in ipairs(weight) do
    weight[k] = w:reshape(shape)
  end
  for k, i in ipairs(index) do
    index[k] = i:to(torch.int64)
  end
  return index, weight, torch.logical_or(x:lt(0), x:gt(a.size - 1)):reshape(shape)
end

local function along(n, x, a)
  local index, weight, outside = core.untraced(taps, n, a, x:dim())
  local sum
  for k, at in ipairs(index) do
    local part = x:index_select(a.axis, at)
    part = weight[k] and part * weight[k]:to(x.dtype) or part
    sum = sum and sum + part or part
  end
  return sum, outside
end

-- ---- axes -----------------------------------------------------------------------------

local function one_of(n, name, allowed)
  local names = {}
  for key in pairs(allowed) do
    names[#names + 1] = key
  end
  table.sort(names)
  n:check(allowed[n.attr[name]], "%s '%s'. Allowed: %s", name, tostring(n.attr[name]),
    table.concat(names, ", "))
end

local function axis_of(n, x, d, scales, given_sizes, roi)
  local a = { axis = d, size = x:size(d), first = 0.0, last = 1.0, given = scales ~= nil }
  if roi then
    a.first, a.last = roi[d + 1], roi[x:dim() + d + 1]
  end
  if scales then
    a.scale = float32(scales[d + 1])
    n:check(a.scale > 0, "the scale of axis %d is %g, it must be positive", d, a.scale)
    a.out = math.floor(float32(float32(a.size * (a.last - a.first)) * a.scale))
  else
    a.out = given_sizes[d + 1]
    n:check(a.out >= 0, "the size of axis %d is %d", d, a.out)
    a.scale = float32(a.out / a.size)
  end
  return a
end

local function resize(n, x, scales, given_sizes, roi)
  local rank, crop = x:dim(), n.attr.coordinate_transformation_mode == "tf_crop_and_resize"
  one_of(n, "mode", KINDS)
  one_of(n, "coordinate_transformation_mode", POSITIONS)
  one_of(n, "nearest_mode", NEAREST)
  n:check((scales == nil) ~= (given_sizes == nil), "one of scales and sizes must be given, the "
    .. "other must be left out or empty")
  n:check(#(scales or given_sizes) == rank, "%s has %d elements, the input has %d dimensions",
    scales and "scales" or "sizes", #(scales or given_sizes), rank)
  n:check(not crop or roi and #roi == 2 * rank, "tf_crop_and_resize needs a roi of %d elements",
    2 * rank)
  local dtype = x.dtype
  local exact = n.attr.mode == "nearest" or dtype == torch.float32 or dtype == torch.float64
  local y, beyond = exact and x or x:float(), nil
  for d = rank - 1, 0, -1 do
    local a = axis_of(n, x, d, scales, given_sizes, crop and roi or nil)
    if a.out ~= a.size or a.scale ~= 1 or a.first ~= 0 or a.last ~= 1 then
      local outside
      y, outside = along(n, y, a)
      beyond = beyond and core.untraced(torch.logical_or, beyond, outside) or outside
    end
  end
  if crop and beyond then
    y = torch.where(beyond, torch.tensor(n.attr.extrapolation_value, { dtype = y.dtype }), y)
  end
  return exact and y or y:to(dtype)
end

-- ---- operators --------------------------------------------------------------------------

-- Numbers of an input that may be left out or empty.
local function numbers(n, i)
  local t = n:value(i)
  if not t or t:numel() == 0 then
    return nil
  end
  return core.untraced(function()
    return setmetatable(t:reshape({ -1 }):tolist(), nil)
  end)
end

-- Those of before 11 have no choice.
local function plain(n, x, scales)
  n.attr = { mode = n.attr.mode, coordinate_transformation_mode = "asymmetric",
    nearest_mode = "floor" }
  n:check(n.attr.mode ~= "cubic", "mode 'cubic'. Allowed: nearest, linear")
  return resize(n, x, n:check(scales, "scales must be given"))
end

local CHOICES = "coordinate_transformation_mode: string = 'half_pixel', "
  .. "cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0, "
  .. "mode: string = 'nearest', nearest_mode: string = 'round_prefer_floor') -> (Y)"

local NEWER = "antialias: int = 0, axes: ints, "
  .. CHOICES:gsub("mode: string = 'nearest'", "keep_aspect_ratio_policy: string = 'stretch', %0")

-- Sizes that keep the ratio of the input's: as large as all of them, or one, allow.
local function in_proportion(n, x, axes, given)
  local policy, scale = n.attr.keep_aspect_ratio_policy, nil
  one_of(n, "keep_aspect_ratio_policy", { stretch = true, not_larger = true, not_smaller = true })
  if policy == "stretch" then
    return given
  end
  for i, d in ipairs(axes) do
    local s = given[i] / x:size(d)
    scale = scale and (policy == "not_larger" and math.min or math.max)(scale, s) or s
  end
  local out = {}
  for i, d in ipairs(axes) do
    out[i] = math.floor(scale * x:size(d) + 0.5)
  end
  return out
end

-- What is given for some axes, for all: a scale of 1 and the whole of the others.
local function resize_axes(n, x, scales, sizes, roi)
  local rank, axes = x:dim(), n.attr.axes
  n:check(n.attr.antialias == 0, "antialias is not supported")
  if not axes then
    axes = {}
    for d = 1, rank do
      axes[d] = d - 1
    end
  end
  n:check(#axes == #(scales or sizes or axes) and (not roi or #roi == 2 * #axes),
    "axes has %d elements, and scales, sizes or roi are for another number", #axes)
  local at = operands.axes(n, axes, rank)
  sizes = sizes and in_proportion(n, x, at, sizes)
  local function whole(list, others)
    local out = {}
    for d = 1, rank do
      out[d] = others(d)
    end
    for i, d in ipairs(at) do
      out[d + 1] = list[i]
    end
    return out
  end
  local function ones() return 1 end
  if roi then
    local first = whole(roi, function() return 0 end)
    roi = table.move(whole({ table.unpack(roi, #axes + 1) }, ones), 1, rank, rank + 1, first)
  end
  return resize(n, x, scales and whole(scales, ones), sizes and whole(sizes, function(d)
    return x:size(d - 1)
  end), roi)
end

return function(op)
  local second = { constants = { [2] = true } }
  local all = { constants = { [2] = true, [3] = true, [4] = true } }
  local function choosing(n, x)
    return resize(n, x, numbers(n, 3), numbers(n, 4), numbers(n, 2))
  end
  op("Upsample(X; scales: floats!, mode: string = 'nearest') -> (Y)", 7, function(n, x)
    return plain(n, x, n.attr.scales)
  end)
  op("Upsample(X, scales; mode: string = 'nearest') -> (Y)", 9, function(n, x)
    return plain(n, x, numbers(n, 2))
  end, second)
  op("Resize(X, scales; mode: string = 'nearest') -> (Y)", 10, function(n, x)
    return plain(n, x, numbers(n, 2))
  end, second)
  op("Resize(X, roi, scales, sizes?; " .. CHOICES, 11, choosing, all)
  op("Resize(X, roi?, scales?, sizes?; " .. CHOICES, 13, choosing, all)
  op("Resize(X, roi?, scales?, sizes?; " .. NEWER, 18, function(n, x)
    return resize_axes(n, x, numbers(n, 3), numbers(n, 4), numbers(n, 2))
  end, all)
end
