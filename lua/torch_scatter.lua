--- The functions of PyTorch Geometric's package torch_scatter that PopTorch
--- runs: groups of elements along a dimension, told by an index, are reduced to
--- one element each. A group without elements gets 0.
--- Source: torch_scatter 2.x documentation; PopTorch user guide, "Supported
--- operations", PyTorch Geometric.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local function torch()
  return require("torch")
end

-- index with the shape of src: of one dimension it lies along `dim`.
local function broadcast(src, index, dim, where)
  errors.check(core.is_tensor(src) and core.is_tensor(index), "TypeError",
    "%s: src and index: expected Tensors, got %s and %s", where, check.describe(src),
    check.describe(index))
  dim = check.int(dim == nil and -1 or dim, where .. ": dim",
    { min = -src:dim(), max = src:dim() - 1, error = "IndexError" })
  dim = dim < 0 and dim + src:dim() or dim
  if index:dim() == 1 then
    for _ = 1, dim do
      index = index:unsqueeze(0)
    end
  end
  for _ = index:dim(), src:dim() - 1 do
    index = index:unsqueeze(-1)
  end
  return index:expand(src.shape), dim
end

-- The number of groups: given, that of `out`, or one more than the largest index.
local function groups(index, dim, out, dim_size, where)
  if not check.is_none(out) then
    return out:size(dim)
  elseif not check.is_none(dim_size) then
    return check.int(dim_size, where .. ": dim_size", { min = 0 })
  end
  local known, largest = pcall(function()
    return index:numel() == 0 and -1 or index:max():item()
  end)
  errors.check(known, "RuntimeError",
    "%s: dim_size: needed in a traced model, where the largest index is not known", where)
  return largest + 1
end

local function zeros(src, dim, n)
  local shape = { table.unpack(src.shape) }
  shape[dim + 1] = n
  return torch().zeros(shape, { dtype = src.dtype })
end

local function sum(src, index, dim, out, n)
  return (check.is_none(out) and zeros(src, dim, n) or out):scatter_add(dim, index, src)
end

local function counts(src, index, dim, n)
  return sum(torch().ones_like(src), index, dim, nil, n):clamp_min(1)
end

local function reduced(src, index, dim, out, n, how)
  local start = check.is_none(out) and zeros(src, dim, n) or out
  return start:scatter_reduce(dim, index, src, how, { include_self = not check.is_none(out) })
end

-- Which element of each group is the extreme; src:size(dim) for none.
local function places(src, index, dim, extreme, n)
  local size = src:size(dim)
  local shape = {}
  for d = 1, src:dim() do
    shape[d] = d == dim + 1 and size or 1
  end
  local place = torch().arange(size):reshape(shape):expand(src.shape)
  local chosen = src:eq(extreme:gather(dim, index))
  local none = zeros(place, dim, n) + size
  return none:scatter_reduce(dim, index, torch().where(chosen, place, size), "amin")
end

local function mean(src, index, dim, out, n)
  local total = sum(src, index, dim, out, n)
  local count = counts(src, index, dim, n)
  return src:is_floating_point() and total / count or total // count
end

local REDUCE = {
  sum = sum,
  add = sum,
  mean = mean,
  mul = function(src, index, dim, out, n)
    local start = check.is_none(out) and zeros(src, dim, n) + 1 or out
    return start:scatter_reduce(dim, index, src, "prod")
  end,
  min = function(src, index, dim, out, n)
    local extreme = reduced(src, index, dim, out, n, "amin")
    return extreme, places(src, index, dim, extreme, n)
  end,
  max = function(src, index, dim, out, n)
    local extreme = reduced(src, index, dim, out, n, "amax")
    return extreme, places(src, index, dim, extreme, n)
  end,
}

local NAMES = { "src", "index", "dim", "out", "dim_size" }

-- scatter_sum and its like; min and max give the places of the extremes too.
for how, f in pairs(REDUCE) do
  local where = "scatter_" .. how
  M[where] = function(...)
    local a = check.arguments(where, NAMES, nil, ...)
    local index, dim = broadcast(a[1], a[2], a[3], where)
    return f(a[1], index, dim, a[4], groups(index, dim, a[4], a[5], where))
  end
end

--- scatter(src, index, dim = -1, out, dim_size, reduce = "sum"): sum (add), mul,
--- mean, min or max of each group.
---@param src torch.Tensor
---@param index torch.Tensor int64, of src's shape or along dim
---@param ... any dim, out, dim_size, reduce
---@return torch.Tensor
function M.scatter(src, index, ...)
  local a = check.arguments("scatter", { "src", "index", "dim", "out", "dim_size", "reduce" }, nil,
    src, index, ...)
  local how = a[6] or "sum"
  errors.check(REDUCE[how], "ValueError", "scatter: reduce: expected sum, add, mul, mean, min or "
    .. "max, got %s", check.describe(how))
  return (M["scatter_" .. how](a[1], a[2], a[3], a[4], a[5]))
end

-- ---- composites ------------------------------------------------------------

-- src less its group's largest element, and that element by group.
local function shifted(src, index, dim, n)
  local largest = reduced(src:detach(), index, dim, nil, n, "amax")
  return src - largest:gather(dim, index), largest
end

local function prepare(where, names, ...)
  local a = check.arguments(where, names, nil, ...)
  local index, dim = broadcast(a[1], a[2], a[3], where)
  errors.check(a[1]:is_floating_point(), "ValueError",
    "`%s` can only be computed over tensors with floating point data types.", where)
  return a, index, dim
end

--- Softmax within each group: scatter_softmax(src, index, dim = -1, dim_size).
---@param ... any src, index (int64, of src's shape or along dim) and the options
---@return torch.Tensor of src's shape
function M.scatter_softmax(...)
  local where = "scatter_softmax"
  local a, index, dim = prepare(where, { "src", "index", "dim", "dim_size" }, ...)
  local n = groups(index, dim, nil, a[4], where)
  local e = shifted(a[1], index, dim, n):exp()
  return e / sum(e, index, dim, nil, n):gather(dim, index)
end

--- Its logarithm: scatter_log_softmax(src, index, dim = -1, eps = 1e-12,
--- dim_size).
---@param ... any src, index (int64, of src's shape or along dim) and the options
---@return torch.Tensor of src's shape
function M.scatter_log_softmax(...)
  local where = "scatter_log_softmax"
  local a, index, dim = prepare(where, { "src", "index", "dim", "eps", "dim_size" }, ...)
  local n = groups(index, dim, nil, a[5], where)
  local x = shifted(a[1], index, dim, n)
  local total = sum(x:exp(), index, dim, nil, n) + check.number(a[4] or 1e-12, where .. ": eps")
  return x - total:log():gather(dim, index)
end

--- log(sum(exp(src))) of each group: scatter_logsumexp(src, index, dim = -1, out,
--- dim_size, eps = 1e-12).
---@param ... any src, index (int64, of src's shape or along dim) and the options
---@return torch.Tensor src's shape with one element a group along dim
function M.scatter_logsumexp(...)
  local where = "scatter_logsumexp"
  local a, index, dim = prepare(where, { "src", "index", "dim", "out", "dim_size", "eps" }, ...)
  errors.check(check.is_none(a[4]), "NotImplementedError", "%s: out: not supported", where)
  local n = groups(index, dim, nil, a[5], where)
  local x, largest = shifted(a[1], index, dim, n)
  local total = sum(x:exp(), index, dim, nil, n) + check.number(a[6] or 1e-12, where .. ": eps")
  return total:log() + largest
end

--- Standard deviation of each group: scatter_std(src, index, dim = -1, out,
--- dim_size, unbiased = true).
---@param ... any src, index (int64, of src's shape or along dim) and the options
---@return torch.Tensor src's shape with one element a group along dim
function M.scatter_std(...)
  local where = "scatter_std"
  local a, index, dim = prepare(where, { "src", "index", "dim", "out", "dim_size", "unbiased" },
    ...)
  errors.check(check.is_none(a[4]), "NotImplementedError", "%s: out: not supported", where)
  local src, n = a[1], groups(index, dim, nil, a[5], where)
  local count = sum(torch().ones_like(src), index, dim, nil, n)
  local center = sum(src, index, dim, nil, n) / count:clamp_min(1)
  local far = (src - center:gather(dim, index)):pow(2)
  if a[6] ~= false then
    count = (count - 1):clamp_min(1)
  end
  return (sum(far, index, dim, nil, n) / (count + 1e-6)):sqrt()
end

return M
