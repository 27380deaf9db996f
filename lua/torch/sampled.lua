--- Functions of samples whose arguments take several forms: histogram,
--- histogramdd, gradient. They are made of operators.
local check = require("lupine.base.check")
local core = require("lupine.core")
local define = require("torch.define")
local errors = require("lupine.base.errors")

local M = {}
local op = core.forms.functions
local tensor = define.tensor

local function given(v)
  return not check.is_none(v)
end

-- A list for each of n dimensions of one value or of n.
local function each(value, n, where, name)
  if type(value) ~= "table" then
    local out = {}
    for i = 1, n do
      out[i] = value
    end
    return out
  end
  errors.check(#value == n, "RuntimeError", "%s: %s has %d entries, expected %d", where, name,
    #value, n)
  return value
end

-- The values in the tensors `out`, one each, of the values' dtype.
local function into(out, values, where)
  errors.check(type(out) == "table" and #out == #values, "TypeError",
    "%s: out must be a list of %d tensors", where, #values)
  local filled = {}
  for i, value in ipairs(values) do
    tensor(out[i], where, "out")
    errors.check(out[i].dtype == value.dtype, "RuntimeError",
      "%s: tensor %d of out has the dtype %s, it must be %s", where, i, tostring(out[i].dtype),
      tostring(value.dtype))
    op.conj_physical(value, { out = out[i] }) -- the identity, of real numbers
    filled[i] = out[i]
  end
  return table.unpack(filled)
end

-- ---- histograms --------------------------------------------------------------

-- Outer edges of n bins: given, or those of the data x; never the same.
local function outer_edges(x, low, high, where)
  errors.check(low == nil or type(low) == "number" and type(high) == "number", "TypeError",
    "%s: range must hold two numbers, got %s and %s", where, check.describe(low),
    check.describe(high))
  if not low then
    low, high = 0, 1
    if x:numel() > 0 then
      low, high = x:min():item(), x:max():item()
    end
  end
  errors.check(low - low == 0 and high - high == 0, "RuntimeError",
    "%s: the range [%g, %g] is not finite", where, low, high)
  errors.check(low <= high, "RuntimeError", "%s: the range [%g, %g] is empty: max must not be "
    .. "less than min", where, low, high)
  if low == high then
    low, high = low - 0.5, high + 0.5
  end
  return low, high
end

-- The edges of one dimension: bins is their number or a tensor of edges.
local function edges_of(bins, x, low, high, where)
  if core.is_tensor(bins) then
    errors.check(bins:dim() == 1 and bins:numel() > 0, "RuntimeError",
      "%s: bins must be a 1-dimensional tensor of at least one edge", where)
    errors.check(bins.dtype == x.dtype, "RuntimeError",
      "%s: input tensor and bins tensors should have the same dtype, got %s and %s", where,
      tostring(x.dtype), tostring(bins.dtype))
    return bins:detach()
  end
  errors.check(math.type(bins) == "integer" and bins > 0, "RuntimeError",
    "%s: bins must be positive integers or tensors, got %s", where, check.describe(bins))
  low, high = outer_edges(x, low, high, where)
  return op.linspace(low, high, bins + 1, { dtype = x.dtype })
end

-- Counts of points, a list of coordinates, between edges; a bin has its lower
-- edge, the last one also its upper.
local function count(points, edges, weight, density, where)
  local at, inside, sizes, total = nil, nil, {}, 1
  for d, e in ipairs(edges) do
    local x, n = points[d], e:numel() - 1
    local i = op.searchsorted(e, x, { right = true })
    i = op.where(x:eq(e:select(0, n)), n, i)
    local within = i:ge(1):logical_and(i:le(n))
    inside = inside and inside:logical_and(within) or within
    at = at and at * n + (i - 1) or i - 1
    sizes[d] = n
    total = total * n
  end
  local x = points[1]
  weight = given(weight) and tensor(weight, where, "weight"):detach():reshape(-1)
    or op.ones_like(x)
  errors.check(weight.dtype == x.dtype and weight:numel() == x:numel(), "RuntimeError",
    "%s: weight must have an element for each point and the type %s, got %d of %s for %d points",
    where, tostring(x.dtype), weight:numel(), tostring(weight.dtype), x:numel())
  local hist = op.zeros({ total }, { dtype = x.dtype })
  if total > 0 then
    hist = hist:scatter_add(0, op.where(inside, at, 0), op.where(inside, weight, 0))
  end
  hist = hist:reshape(sizes)
  if density then
    hist = hist / hist:sum()
    for d, e in ipairs(edges) do
      local shape = each(1, #sizes)
      shape[d] = sizes[d]
      hist = hist / e:diff():reshape(shape)
    end
  end
  return hist
end

local function check_type(x, where)
  errors.check(x.dtype == core.dtypes.float32 or x.dtype == core.dtypes.float64,
    "NotImplementedError", "%s: input must be float32 or float64, not %s", where,
    tostring(x.dtype))
end

--- Counts and edges: `bins` of equal width over `range` (by default over the
--- data), or between the edges that `bins` is.
--- Source: PyTorch documentation, torch.histogram
---@param ... any input (float32 or float64), bins (100; or the edges), range ({low, high}),
---        weight (of input's shape), density (false), out
---@return torch.Tensor hist [bins]
---@return torch.Tensor edges [bins + 1]
function M.histogram(...)
  local where = "histogram()"
  local a = check.arguments(where, { "input", "bins", "range", "weight", "density", "out" }, nil,
    ...)
  local x = tensor(a[1], where, "input"):detach()
  check_type(x, where)
  local low, high
  if given(a[3]) then
    low, high = table.unpack(each(a[3], 2, where, "range"))
    check.number(low, where .. ": range")
    check.number(high, where .. ": range")
  end
  local bins = given(a[2]) and a[2] or 100
  errors.check(not (low and core.is_tensor(bins)), "TypeError",
    "%s: range is for bins of equal width, not for given edges", where)
  errors.check(not given(a[4]) or tensor(a[4], where, "weight").shape == x.shape, "RuntimeError",
    "%s: if weight tensor is provided it should have the same shape as the input tensor", where)
  x = x:reshape(-1)
  local edges = edges_of(bins, x, low, high, where)
  local hist = count({ x }, { edges }, a[4], a[5], where)
  if given(a[6]) then
    return into(a[6], { hist, edges }, where)
  end
  return hist, edges
end
core.methods.histogram = M.histogram

--- The same for points [..., D] in D dimensions; `range` lists low and high of
--- each. Returns the counts and a list of edges.
--- Source: PyTorch documentation, torch.histogramdd
---@param ... any input [..., D], bins (a number, a list of D, or of tensors of edges), range
---        (2 D numbers), weight, density (false)
---@return torch.Tensor hist [bins of each dimension]
---@return torch.Tensor[] edges
function M.histogramdd(...)
  local where = "histogramdd()"
  local a = check.arguments(where, { "input", "bins", "range", "weight", "density" }, nil, ...)
  local x = tensor(a[1], where, "input"):detach()
  check_type(x, where)
  errors.check(x:dim() >= 2, "RuntimeError",
    "%s: input tensor should have at least 2 dimensions, got %d", where, x:dim())
  local n = x:size(-1)
  local bins = each(core.is_tensor(a[2]) and { a[2] } or a[2], n, where, "bins")
  local range = given(a[3]) and each(a[3], 2 * n, where, "range") or {}
  x = x:reshape(-1, n)
  local points, edges = {}, {}
  for d = 1, n do
    points[d] = x:select(1, d - 1):contiguous()
    edges[d] = edges_of(bins[d], points[d], range[2 * d - 1], range[2 * d], where)
  end
  return count(points, edges, a[4], a[5], where), edges
end

-- ---- gradient ------------------------------------------------------------------

-- n elements of x along d, from `first`; negative: from the end.
local function part(x, d, first, n)
  return x:narrow(d, first < 0 and x:size(d) + first or first, n)
end

-- Slopes along d of samples at a distance of h.
local function even_slopes(x, d, h, order)
  local n = x:size(d)
  local inner = (part(x, d, 2, n - 2) - part(x, d, 0, n - 2)) / h / 2
  local first, last
  if order == 1 then
    first = (part(x, d, 1, 1) - part(x, d, 0, 1)) / h
    last = (part(x, d, -1, 1) - part(x, d, -2, 1)) / h
  else
    first = (part(x, d, 1, 1) * 2 - part(x, d, 0, 1) * 1.5 - part(x, d, 2, 1) * 0.5) / h
    last = (part(x, d, -1, 1) * 1.5 - part(x, d, -2, 1) * 2 + part(x, d, -3, 1) * 0.5) / h
  end
  return op.cat({ first, inner, last }, d)
end

-- Slopes along d of samples at the coordinates `at`: those of the parabola
-- through three neighbours (edges of order 1: of the line through two).
local function uneven_slopes(x, d, at, order)
  local n, shape = x:size(d), each(1, x:dim())
  local step = at:diff()
  shape[d + 1] = n - 2
  local function three(first, m, h, k, weights)
    local a, b, c = weights(h, k)
    return a * part(x, d, first, m) + b * part(x, d, first + 1, m)
      + c * part(x, d, first + 2, m)
  end
  local function one(i)
    return step:select(0, i) -- no dimension: x keeps its type
  end
  local h, k = step:narrow(0, 0, n - 2):reshape(shape), step:narrow(0, 1, n - 2):reshape(shape)
  local inner = three(0, n - 2, h, k, function(p, q)
    return -q / (p * (p + q)), (q - p) / (p * q), p / (q * (p + q))
  end)
  local first, last
  if order == 1 then
    first = (part(x, d, 1, 1) - part(x, d, 0, 1)) / one(0)
    last = (part(x, d, -1, 1) - part(x, d, -2, 1)) / one(-1)
  else
    first = three(0, 1, one(0), one(1), function(p, q)
      return -(2 * p + q) / (p * (p + q)), (p + q) / (p * q), -p / (q * (p + q))
    end)
    last = three(n - 3, 1, one(-2), one(-1), function(p, q)
      return q / (p * (p + q)), -(p + q) / (p * q), (2 * q + p) / (q * (p + q))
    end)
  end
  return op.cat({ first, inner, last }, d)
end

local function dimensions(dim, x, where)
  local n, out, seen = x:dim(), {}, {}
  if not given(dim) then
    for d = 0, n - 1 do
      out[d + 1] = d
    end
    return out
  end
  for i, d in ipairs(type(dim) == "table" and dim or { dim }) do
    errors.check(math.type(d) == "integer" and d >= -n and d < n, "IndexError",
      "%s: dim %s is out of range for %d dimensions", where, tostring(d), n)
    out[i] = d % n
    errors.check(not seen[out[i]], "RuntimeError", "%s: dim %d appears more than once", where,
      out[i])
    seen[out[i]] = true
  end
  return out
end

--- The list of slopes of samples along each dimension `dim`. spacing: their
--- distance, a list of one for each dimension, or a list of coordinates.
--- Source: PyTorch documentation, torch.gradient
---@param ... any input, spacing (1), dim (all), edge_order (1 or 2)
---@return torch.Tensor[] of input's shape
function M.gradient(...)
  local where = "gradient()"
  local a = check.arguments(where, { "input", "spacing", "dim", "edge_order" }, nil, ...)
  local x = tensor(a[1], where, "input")
  local order = given(a[4]) and a[4] or 1
  errors.check(order == 1 or order == 2, "RuntimeError",
    "%s only supports edge_order=1 and edge_order=2, got %s", where, tostring(order))
  errors.check(x.dtype ~= core.dtypes.uint8 and x.dtype ~= core.dtypes.bool, "RuntimeError",
    "%s does not support %s input", where, tostring(x.dtype))
  local dims = dimensions(a[3], x, where)
  local spacing = given(a[2]) and a[2] or 1
  spacing = each(core.is_tensor(spacing) and { spacing } or spacing, #dims, where, "spacing")
  local out = {}
  for i, d in ipairs(dims) do
    local n, h = x:size(d), spacing[i]
    errors.check(n > order, "RuntimeError",
      "%s expected each dimension size to be at least edge_order+1, got %d elements in "
      .. "dimension %d", where, n, d)
    if core.is_tensor(h) then
      errors.check(h:dim() == 1 and h:numel() == n, "RuntimeError",
        "%s: spacing must have one coordinate for each of %d samples of dimension %d, got %d",
        where, n, d, h:numel())
      out[i] = uneven_slopes(x, d, h, order)
    else
      out[i] = even_slopes(x, d, h, order)
    end
  end
  return out
end

return M
