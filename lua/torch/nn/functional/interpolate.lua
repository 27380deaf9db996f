--- interpolate: nearest, nearest-exact, linear, bilinear, trilinear, bicubic,
--- area. Every mode but area is separable: a small matrix of weights per
--- dimension, at most four entries a row, applied by gathering rows
--- (src/ops/nn/resample.c).
---
--- source: PyTorch documentation of torch.nn.functional.interpolate; cubic
--- convolution with a = -0.75
local core = require("lupine.core")
local cubic_weights = require("torch.nn.functional.cubic")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")
local smooth = require("torch.nn.functional.antialias")

local internal = core.forms.internal
local UINT8 = core.dtypes.uint8
local DIMS = { linear = 1, bilinear = 2, trilinear = 3, bicubic = 2 }

-- Position in the source of output element i.
local function source(i, size, out, align, scale, cubic)
  if align then
    return out > 1 and i * (size - 1) / (out - 1) or 0.0
  end
  local x = (i + 0.5) * (scale and 1 / scale or size / out) - 0.5
  return cubic and x or math.max(x, 0.0)
end

-- Lists (one per tap) of source indices and weights of all output elements.
local function taps(mode, size, out, align, scale)
  local index, weight = {}, {}
  local function put(tap, at, w)
    index[tap] = index[tap] or {}
    weight[tap] = weight[tap] or {}
    table.insert(index[tap], math.max(0, math.min(size - 1, at)))
    table.insert(weight[tap], w)
  end
  for i = 0, out - 1 do
    local ratio = scale and 1 / scale or size / out
    if mode == "nearest" or mode == "nearest-exact" then
      local shift = mode == "nearest" and 0 or 0.5
      put(1, math.floor((i + shift) * ratio), 1.0)
    else
      local cubic = mode == "bicubic"
      local x = source(i, size, out, align, scale, cubic)
      local low = math.floor(x)
      local t = x - low
      local w = cubic and cubic_weights(t) or { 1 - t, t }
      for k = 1, #w do
        put(k, low + k - (cubic and 2 or 1), w[k])
      end
    end
  end
  return index, weight
end

-- Weights of bytes as PyTorch has them: integers of at most 15 bits, those of
-- one source element as one weight. Returns how far they are shifted, too.
local function fixed_point(index, weight)
  local most = 0
  for i = 1, #index[1] do
    for tap = 2, #index do
      for k = 1, tap - 1 do
        if index[k][i] == index[tap][i] then
          weight[k][i], weight[tap][i] = weight[k][i] + weight[tap][i], 0
          break
        end
      end
    end
    for tap = 1, #index do
      most = math.max(most, weight[tap][i])
    end
  end
  local bits = 0
  while bits < 22 and math.floor(0.5 + most * 2.0 ^ (bits + 1)) < 32768 do
    bits = bits + 1
  end
  for _, w in ipairs(weight) do
    for i, v in ipairs(w) do
      local scaled = v * 2.0 ^ bits
      w[i] = v < 0 and -math.floor(0.5 - scaled) or math.floor(0.5 + scaled)
    end
  end
  return bits
end

local function along_bytes(x, dim, mode, out, align, scale)
  local torch = require("torch")
  local index, weight = taps(mode, x:size(dim), out, align, scale)
  local bits, shape = fixed_point(index, weight), {}
  for d = 1, x:dim() do
    shape[d] = d == dim + 1 and out or 1
  end
  local sum = 1 << (bits - 1)
  for tap = 1, #index do
    sum = x:index_select(dim, torch.tensor(index[tap])):to(torch.int64)
      * torch.tensor(weight[tap], { dtype = torch.int64 }):reshape(shape) + sum
  end
  return (sum >> bits):clamp(0, 255):to(torch.uint8)
end

-- The list that internal.resample takes, `behind` dimensions standing behind the one
-- that is resized; of one tap the index alone.
local function make_taps(dtype, behind, ...)
  local torch = require("torch")
  local index, weight = taps(...)
  if #index == 1 then
    return { torch.tensor(index[1]) }
  end
  local shape, list = { #index[1] }, {}
  for d = 1, behind do
    shape[d + 1] = 1
  end
  for tap = 1, #index do
    list[2 * tap - 1] = torch.tensor(index[tap])
    list[2 * tap] = torch.tensor(weight[tap], { dtype = dtype }):reshape(shape)
  end
  return list
end

-- Those lists by what they depend on; a trace has its own.
local MOST = 64
local known, count = {}, 0

local function below(t, key)
  t[key] = t[key] or {}
  return t[key]
end

local function known_taps(dtype, behind, mode, size, out, align, scale)
  if core.is_tracing() then
    return make_taps(dtype, behind, mode, size, out, align, scale)
  end
  local at = known[dtype]
  at = at and at[mode]
  at = at and at[size]
  at = at and at[out]
  at = at and at[behind]
  at = at and at[scale]
  local list = at and at[align]
  if not list then
    if count == MOST then
      known, count = {}, 0
    end
    list = make_taps(dtype, behind, mode, size, out, align, scale)
    at = below(below(below(below(known, dtype), mode), size), out)
    below(below(at, behind), scale)[align], count = list, count + 1
  end
  return list
end

local function along(x, dim, mode, out, align, scale)
  local list = known_taps(x.dtype, x:dim() - 1 - dim, mode, x:size(dim), out, align or false,
    scale or false)
  if #list == 1 then
    return x:index_select(dim, list[1])
  end
  return internal.resample(x, list, dim)
end

local function check_spatial(x)
  for i = 2, x:dim() - 1 do
    if x:size(i) == 0 or x:size(1) == 0 and x:size(0) > 0 then
      errors.raise("RuntimeError", "interpolate: only the batch may be empty, got an input of "
        .. "shape %s", tostring(x.shape))
    end
  end
end

local function sizes(x, size, scale, recompute)
  local n, out, scales = x:dim() - 2, {}, {}
  errors.check((size == nil) ~= (scale == nil), "ValueError",
    "interpolate: exactly one of size and scale_factor must be given")
  local given = size or scale
  local list = type(given) == "table"
  if list and #given ~= n then
    errors.raise("ValueError",
      "interpolate: %s has %d numbers, the input of shape %s has %d spatial dimensions",
      size and "size" or "scale_factor", #given, tostring(x.shape), n)
  end
  if x:numel() == 0 then
    check_spatial(x)
  end
  for i = 1, n do
    local one = list and given[i] or given
    local o = size and one or math.floor(x:size(i + 1) * one)
    if math.type(o) ~= "integer" or o <= 0 then
      errors.raise("RuntimeError", "interpolate: output size %d must be a positive integer, got %s",
        i - 1, tostring(o))
    end
    out[i], scales[i] = o, scale and not recompute and one or nil
  end
  return out, scales
end

-- Dimensions, mode and alignment.
local function check_mode(x, mode, align, antialias)
  local n = x:dim() - 2
  if n < 1 or n > 3 then
    errors.raise("NotImplementedError", "interpolate: the input must have 3, 4 or 5 dimensions "
      .. "(batch, channels, then what is resized), got shape %s", tostring(x.shape))
  end
  if antialias then
    smooth.check(mode)
  end
  errors.check(mode == "nearest" or mode == "nearest-exact" or mode == "area" or DIMS[mode],
    "NotImplementedError", "interpolate: mode '%s'; allowed are nearest, nearest-exact, area, "
    .. "linear, bilinear, trilinear, bicubic", mode)
  errors.check(not DIMS[mode] or DIMS[mode] == n, "NotImplementedError",
    "interpolate: mode '%s' is for inputs of %d dimensions, got %d", mode,
    (DIMS[mode] or 0) + 2, n + 2)
  errors.check(align == nil or DIMS[mode], "ValueError",
    "interpolate: align_corners option can only be set with the interpolating modes: linear | "
    .. "bilinear | bicubic | trilinear")
end

local function check_type(x, mode)
  local bytes = x:dim() == 4 or not DIMS[mode]
  if not x.dtype.is_floating_point and not (bytes and x.dtype == UINT8) then
    errors.raise("NotImplementedError", "interpolate: mode '%s' of %d dimensions is for floating "
      .. "point tensors%s, got %s", mode, x:dim(), bytes and " and uint8" or "", tostring(x.dtype))
  end
end

return function(F)
  local M = {}

  define(M, "interpolate(input, size=None, scale_factor=None, mode='nearest', "
    .. "align_corners=None, recompute_scale_factor=None, antialias=False)",
    function(x, size, scale, mode, align, recompute, antialias)
      check_mode(x, mode, align, antialias)
      local n = x:dim() - 2
      local out, scales = sizes(x, size, scale, recompute)
      if mode == "area" then
        return F[("adaptive_avg_pool%dd"):format(n)](x, out)
      end
      check_type(x, mode)
      local dtype = x.dtype
      local half = DIMS[mode] and dtype.itemsize == 2
      local one = antialias and smooth.along
        or dtype == UINT8 and DIMS[mode] and along_bytes or along
      x = half and x:float() or x -- rounded once, not after each axis
      for i = n, 1, -1 do -- the last axis first, as PyTorch rounds bytes
        x = one(x, i + 1, mode, out[i], align, scales[i])
      end
      return half and x:to(dtype) or x
    end)

  M.upsample = M.interpolate

  define(M, "upsample_nearest(input, size=None, scale_factor=None)", function(x, size, scale)
    return M.interpolate(x, size, scale)
  end)

  define(M, "upsample_bilinear(input, size=None, scale_factor=None)", function(x, size, scale)
    return M.interpolate(x, size, scale, "bilinear", true)
  end)

  return M
end
