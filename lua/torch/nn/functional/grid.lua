--- affine_grid, and grid_sample, whose operator is in src/ops/nn/grid_sample.c.
---
--- source: the formulas of the PyTorch documentation of affine_grid
local check = require("lupine.base.check")
local core = require("lupine.core")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")

local grid_sampler = core.forms.internal._grid_sampler
local MODES = { bilinear = 0, nearest = 1, bicubic = 2 }
local PADDINGS = { zeros = 0, border = 1, reflection = 2 }

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

local function one_of(names, name, what, text)
  if not names[name] then
    errors.raise("ValueError", "grid_sample: expected %s to be %s, got '%s'", what, text,
      tostring(name))
  end
  return names[name]
end

return function()
  local M = {}

  define(M, "affine_grid(theta, size, align_corners=None)", function(theta, size, align)
    return affine_grid(theta, size, align or false)
  end)

  define(M, "grid_sample(input, grid, mode='bilinear', padding_mode='zeros', "
    .. "align_corners=None)", function(input, grid, mode, padding, align)
    return grid_sampler(input, grid,
      one_of(MODES, mode, "mode", "'bilinear', 'nearest' or 'bicubic'"),
      one_of(PADDINGS, padding, "padding_mode", "'zeros', 'border' or 'reflection'"),
      align or false)
  end)

  return M
end
