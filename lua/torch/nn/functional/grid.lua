--- affine_grid and grid_sample. Sampling is separable: along each axis an
--- output has a few taps, each a position and a weight; its value is the sum
--- over all combinations of taps. Positions have no gradient, weights have one.
---
--- source: the formulas of the PyTorch documentation of both functions; Keys
--- 1981, cubic convolution with a = -0.75
local check = require("lupine.base.check")
local cubic_weights = require("torch.nn.functional.cubic")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")

local MODES = { bilinear = true, nearest = true, bicubic = true }
local PADDINGS = { zeros = true, border = true, reflection = true }

-- Coordinates -1 … 1 of n places: of their centres, or of the outermost ones.
local function places(n, align, dtype)
  local torch = require("torch")
  local x = n > 1 and torch.linspace(-1, 1, n, { dtype = dtype })
    or torch.zeros({ n }, { dtype = dtype })
  return align and x or x * ((n - 1) / n)
end

local function affine_grid(theta, size, align)
  local torch = require("torch")
  errors.check(type(size) == "table", "TypeError",
    "affine_grid: size must be a list of 4 or 5 ints, not %s", check.describe(size))
  local n = #size - 2
  errors.check(n == 2 or n == 3, "NotImplementedError", "affine_grid: size must hold 4 or 5 "
    .. "numbers (N, C, H, W or N, C, D, H, W), got %d", #size)
  errors.check(theta.dtype.is_floating_point, "ValueError",
    "affine_grid: theta must be a floating point tensor, got %s", tostring(theta.dtype))
  errors.check(theta:dim() == 3 and theta:size(0) == size[1] and theta:size(1) == n
    and theta:size(2) == n + 1, "ValueError",
    "affine_grid: expected theta of shape %d x %d x %d, got %s", size[1], n, n + 1,
    tostring(theta.shape))
  for i, s in ipairs(size) do
    errors.check(s > 0, "ValueError", "affine_grid: size %d must be positive, got %d", i - 1, s)
  end
  local spatial = { table.unpack(size, 3) }
  local base, count = {}, 1
  for d = n, 1, -1 do -- x first: the last axis
    local shape = {}
    for k = 1, n do
      shape[k] = k == d and spatial[d] or 1
    end
    base[#base + 1] = places(spatial[d], align, theta.dtype):reshape(shape):expand(spatial)
    count = count * spatial[d]
  end
  base[n + 1] = torch.ones(spatial, { dtype = theta.dtype })
  local rows = torch.stack(base, -1):reshape({ count, n + 1 })
  spatial[n + 1] = n
  return torch.matmul(rows, theta:transpose(1, 2)):reshape({ size[1], table.unpack(spatial) })
end

-- ---- positions ------------------------------------------------------------
local function unnormalised(x, size, align)
  return align and (x + 1) * ((size - 1) / 2) or ((x + 1) * size - 1) / 2
end

-- Into 0 … size - 1; without a gradient where it ends up at a border.
local function clipped(x, size)
  local inside = x:gt(0):logical_and(x:lt(size - 1))
  return require("torch").where(inside, x, x:detach():clamp(0, size - 1))
end

-- Thrown back at the outer edges (the outermost centres if align).
local function reflected(x, size, align)
  local torch = require("torch")
  local low, span = align and 0 or -0.5, align and size - 1 or size
  if span == 0 then
    return torch.zeros_like(x)
  end
  x = (x - low):abs()
  local flips = (x:detach() / span):floor()
  local extra = x - flips * span
  return torch.where(flips:remainder(2):eq(0), extra, span - extra) + low
end

local function padded(x, size, padding, align)
  if padding == "zeros" then
    return x
  end
  return clipped(padding == "reflection" and reflected(x, size, align) or x, size)
end

-- ---- taps -----------------------------------------------------------------
-- The taps of one axis: {position, weight} each.
local function axis_taps(x, size, mode, padding, align)
  x = unnormalised(x, size, align)
  if mode == "bicubic" then
    local low, out = x:detach():floor(), {}
    for i, w in ipairs(cubic_weights(x - low)) do
      out[i] = { padded(low + (i - 2), size, padding, align), w }
    end
    return out
  end
  x = padded(x, size, padding, align)
  if mode == "nearest" then
    local at = x:clamp(-2, size + 1):round()
    return { { at, at - at:detach() + 1 } } -- a gradient of zeros
  end
  local low = x:detach():floor()
  local t = x - low
  return { { low, 1 - t }, { low + 1, t } }
end

-- Positions as integers, and weights that are zero outside.
local function bounded(taps, size)
  local torch = require("torch")
  for _, tap in ipairs(taps) do
    local at = tap[1]:detach()
    local inside = at:ge(0):logical_and(at:le(size - 1))
    tap[1] = torch.where(inside, at, torch.zeros_like(at)):to(torch.int64)
    tap[2] = torch.where(inside, tap[2], torch.zeros_like(tap[2]))
  end
  return taps
end

-- The sum over all combinations of the taps of axes d, d + 1, …
local function combined(planes, size, axes, d, index, weight)
  if d > #axes then
    index = index:unsqueeze(1):expand({ planes:size(0), planes:size(1), index:size(1) })
    return planes:gather(2, index) * weight:unsqueeze(1)
  end
  local sum
  for _, tap in ipairs(axes[d]) do
    local part = combined(planes, size, axes, d + 1, index and index * size[d] + tap[1] or tap[1],
      weight and weight * tap[2] or tap[2])
    sum = sum and sum + part or part
  end
  return sum
end

local function check_sample(input, grid, mode, padding)
  errors.check(MODES[mode], "ValueError", "grid_sample: expected mode to be 'bilinear', "
    .. "'nearest' or 'bicubic', got '%s'", tostring(mode))
  errors.check(PADDINGS[padding], "ValueError", "grid_sample: expected padding_mode to be "
    .. "'zeros', 'border' or 'reflection', got '%s'", tostring(padding))
  local n = input:dim() - 2
  errors.check((n == 2 or n == 3) and grid:dim() == input:dim(), "RuntimeError",
    "grid_sample: expected input and grid to have 4 or 5 dimensions, as many each, got shapes %s "
    .. "and %s", tostring(input.shape), tostring(grid.shape))
  errors.check(input.dtype == grid.dtype and input.dtype.is_floating_point, "RuntimeError",
    "grid_sample: expected input and grid to have the same floating point type, got %s and %s",
    tostring(input.dtype), tostring(grid.dtype))
  errors.check(grid:size(0) == input:size(0), "RuntimeError", "grid_sample: expected input and "
    .. "grid to have the same batch size, got shapes %s and %s", tostring(input.shape),
    tostring(grid.shape))
  errors.check(grid:size(-1) == n, "RuntimeError", "grid_sample: expected grid to have size %d in "
    .. "its last dimension, got shape %s", n, tostring(grid.shape))
  for d = 2, n + 1 do
    errors.check(input:size(d) > 0, "RuntimeError", "grid_sample: expected input to have "
      .. "non-empty spatial dimensions, got shape %s", tostring(input.shape))
  end
end

local function grid_sample(input, grid, mode, padding, align)
  check_sample(input, grid, mode, padding)
  local dtype = input.dtype
  if dtype.itemsize < 4 then -- sums of up to 64 taps: in float32
    input, grid = input:float(), grid:float()
  end
  local n = input:dim() - 2
  local size, axes, shape = {}, {}, { input:size(0), input:size(1) }
  for d = 1, n do
    size[d] = input:size(d + 1)
    local x = grid:select(-1, n - d):flatten(1)
    axes[d] = bounded(axis_taps(x, size[d], mode, padding, align), size[d])
    shape[d + 2] = grid:size(d)
  end
  return combined(input:flatten(2), size, axes, 1):reshape(shape):to(dtype)
end

return function()
  local M = {}

  define(M, "affine_grid(theta, size, align_corners=None)", function(theta, size, align)
    return affine_grid(theta, size, align or false)
  end)

  define(M, "grid_sample(input, grid, mode='bilinear', padding_mode='zeros', "
    .. "align_corners=None)", function(input, grid, mode, padding, align)
    return grid_sample(input, grid, mode, padding, align or false)
  end)

  return M
end
