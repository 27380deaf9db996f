--- Resizing along one dimension with a filter that grows with the step, so that
--- shrinking averages (interpolate's antialias). The filters are the triangle
--- and Keys' cubic with a = -0.5, cut at the edges and normalised, as in
--- Pillow's and PyTorch's resizing. One product with a fixed matrix, so it has
--- a gradient and can be traced.
local errors = require("lupine.base.errors")

local M = {}

local A = -0.5

local function cubic(x)
  x = math.abs(x)
  if x < 1 then
    return ((A + 2) * x - (A + 3)) * x * x + 1
  elseif x < 2 then
    return (((x - 5) * x + 8) * x - 4) * A
  end
  return 0.0
end

local function triangle(x)
  return math.max(0.0, 1 - math.abs(x))
end

-- mode -> filter and how far it reaches
local FILTERS = { bilinear = { triangle, 1 }, bicubic = { cubic, 2 } }

local function step_of(n, out, align, scale)
  if align then
    return out > 1 and (n - 1) / (out - 1) or 0.0
  end
  return scale and 1 / scale or n / out
end

-- The matrix [out, n] of weights, as nested lists.
local function weights(mode, n, out, align, scale)
  local filter, reach = FILTERS[mode][1], FILTERS[mode][2]
  local step = step_of(n, out, align, scale)
  local wide = math.max(step, 1.0)
  local rows = {}
  for i = 0, out - 1 do
    local row, sum = {}, 0.0
    local center = step * (i + 0.5)
    local first = math.max(math.floor(center - reach * wide + 0.5), 0)
    local last = math.min(math.floor(center + reach * wide + 0.5), n) - 1
    for k = 0, n - 1 do
      local w = k >= first and k <= last and filter((k - center + 0.5) / wide) or 0.0
      row[k + 1], sum = w, sum + w
    end
    for k = 1, n do
      row[k] = sum ~= 0 and row[k] / sum or row[k]
    end
    rows[i + 1] = row
  end
  return rows
end

--- Raises unless `mode` has a filter.
---@param mode string
function M.check(mode)
  errors.check(FILTERS[mode], "ValueError", "interpolate: antialias option is restricted to "
    .. "bilinear and bicubic modes and requires a 4-D tensor as input, got mode '%s'",
    tostring(mode))
end

--- x with `out` elements along `dim`.
---@param x torch.Tensor
---@param dim integer
---@param mode string "bilinear" or "bicubic"
---@param out integer elements of the result along dim
---@param align boolean align_corners
---@param scale number? result to input, where it is given
---@return torch.Tensor
function M.along(x, dim, mode, out, align, scale)
  local torch = require("torch")
  local w = torch.tensor(weights(mode, x:size(dim), out, align, scale),
    { dtype = x:is_floating_point() and x.dtype or torch.float32 })
  return x:transpose(dim, -1):matmul(w:t()):transpose(dim, -1)
end

return M
