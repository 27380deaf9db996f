--- Functions of torch that are made of operators, and results whose form
--- depends on the arguments: where of one argument, nonzero as lists, unique.
---
--- They are added to torch and, where PyTorch has a method of that name, to
--- tensors. Arguments go by position or by name.
local check = require("lupine.base.check")
local core = require("lupine.core")
local defined = require("torch.define")
local errors = require("lupine.base.errors")

local M = {}
local op = core.forms.functions
local methods = core.methods
local tensor = defined.tensor

-- torch.NAME(params); `method`: x:NAME too.
local function define(name, params, method, fn)
  M[name] = defined.fn(name, params, fn)
  if method then
    methods[name] = M[name]
  end
end

local function flag(value, where)
  return check.bool(value, where, { nullable = true })
end

local function default(value, otherwise)
  if value == nil then
    return otherwise
  end
  return value
end

-- ---- comparison ------------------------------------------------------------

define("equal", { "input", "other" }, true, function(input, other)
  tensor(other, "equal()", "other")
  if not input:is_same_size(other) then
    return false
  end
  return input:numel() == 0 or op.all(input:eq(other)):item()
end)

--- |input - other| <= atol + rtol * |other|, element by element.
define("isclose", { "input", "other", "rtol", "atol", "equal_nan" }, true,
  function(input, other, rtol, atol, equal_nan)
    tensor(other, "isclose()", "other")
    errors.check(input.dtype == other.dtype, "RuntimeError",
      "isclose(): dtypes must be equal, not %s and %s", tostring(input.dtype),
      tostring(other.dtype))
    rtol = check.number(default(rtol, 1e-5), "isclose(): rtol")
    atol = check.number(default(atol, 1e-8), "isclose(): atol")
    errors.check(rtol >= 0 and atol >= 0, "RuntimeError",
      "isclose(): rtol and atol must be greater than or equal to zero, got %s and %s",
      tostring(rtol), tostring(atol))
    local close = input:eq(other)
    if equal_nan and input:is_floating_point() then
      close = close:logical_or(input:ne(input):logical_and(other:ne(other)))
    end
    local a, b = input, other
    if not input:is_floating_point() then
      a, b = input:double(), other:double()
    end
    local actual = (a - b):abs()
    local allowed = b:abs() * rtol + atol
    return close:logical_or(actual:isfinite():logical_and(actual:le(allowed)))
  end)

define("allclose", { "input", "other", "rtol", "atol", "equal_nan" }, true,
  function(input, other, rtol, atol, equal_nan)
    return op.all(M.isclose(input, other, rtol, atol, equal_nan)):item()
  end)

define("isreal", { "input" }, true, function(input)
  return op.full(input.shape, true)
end)

--- Covariances of the rows; weights must not be negative.
define("cov", { "input", "correction", "fweights", "aweights" }, true,
  function(input, correction, fweights, aweights)
    for name, w in pairs({ fweights = fweights, aweights = aweights }) do
      errors.check(not core.is_tensor(w) or core.is_traced(w) or not op.any(w:lt(0)):item(),
        "RuntimeError", "cov(): %s cannot be negative", name)
    end
    return op.cov(input, { correction = default(correction, 1), fweights = fweights,
      aweights = aweights })
  end)

-- ---- results that depend on the arguments -----------------------------------

--- where(condition): a list of index tensors, one for each dimension.
--- where(condition, input, other): an element of one or the other.
--- Source: PyTorch documentation, torch.where
---@param condition torch.Tensor bool
---@param ... torch.Tensor|number input and other, which broadcast
---@return torch.Tensor|torch.Tensor[]
function M.where(condition, ...)
  if select("#", ...) == 0 and core.is_tensor(condition) then
    return M.nonzero(condition, { as_tuple = true })
  end
  return op.where(condition, ...)
end

--- The positions of elements that are not zero: [n, ndim]; with as_tuple a
--- list of ndim tensors [n].
define("nonzero", { "input", "as_tuple", "out" }, true, function(input, as_tuple, out)
  if not flag(as_tuple, "nonzero(): as_tuple") then
    return out == nil and op.nonzero(input) or op.nonzero(input, { out = out })
  end
  errors.check(out == nil, "TypeError", "nonzero(): as_tuple gives a list, which takes no out")
  local source = input:dim() == 0 and input:unsqueeze(0) or input
  return op.nonzero(source):unbind(1)
end)

--- The first `size` of those positions, [size, ndim]; fill_value where there are
--- fewer.
define("nonzero_static", { "input", "size", "fill_value" }, true, function(input, size, fill)
  errors.check(math.type(size) == "integer" and size >= 0, "RuntimeError",
    "nonzero_static(): 'size' must be an non-negative integer, got %s", check.describe(size))
  local found = op.nonzero(input)
  local n = math.min(size, found:size(0))
  local rest = op.full({ size - n, input:dim() }, default(fill, -1), { dtype = found.dtype })
  return op.cat({ found:narrow(0, 0, n), rest }, 0)
end)

--- The positions in a tensor of `shape` that flat positions stand for: a list,
--- one tensor for each dimension.
define("unravel_index", { "indices", "shape" }, false, function(indices, shape)
  local dtype = indices.dtype
  errors.check(not dtype.is_floating_point and dtype ~= core.dtypes.bool, "TypeError",
    "unravel_index(): expected 'indices' to be integer dtype, but got %s", tostring(dtype))
  shape = type(shape) == "number" and { shape } or shape
  errors.check(type(shape) == type(core.Size({})) or type(shape) == "table", "TypeError",
    "unravel_index(): expected 'shape' to be int or sequence of ints, got %s",
    check.describe(shape))
  local out, rest = {}, indices:to(core.dtypes.int64)
  for d = #shape, 1, -1 do
    local size = check.int(shape[d], "unravel_index(): shape", { min = 0, outside = "ValueError" })
    out[d] = op.remainder(rest, size)
    rest = op.floor_divide(rest, size)
  end
  return core.list(out)
end)

--- Each row along dim (none: each element) repeated as often as `repeats`
--- says, a number or a tensor of one for each row.
define("repeat_interleave", { "input", "repeats", "dim", "output_size" }, true,
  function(input, repeats, dim, size)
    if repeats == nil then
      input, repeats, dim = op.arange(input:numel()), input, 0
    end
    if not core.is_tensor(repeats) or repeats:numel() == 1 then
      repeats = core.is_tensor(repeats) and repeats:item() or repeats
      return op.repeat_interleave(input, repeats, dim)
    end
    if dim == nil then
      input, dim = input:reshape(-1), 0
    end
    errors.check(repeats:dim() == 1 and repeats:size(0) == input:size(dim), "RuntimeError",
      "repeat_interleave(): repeats must hold one number for each of %d rows, got shape %s",
      input:size(dim), tostring(repeats.shape))
    local rows
    if core.is_tracing() then -- numbers that are there become part of the program
      rows = {}
      for i, n in ipairs(repeats:tolist()) do
        errors.check(n >= 0, "RuntimeError", "repeat_interleave(): repeats can not be negative, "
          .. "got %d", n)
        for _ = 1, n do
          rows[#rows + 1] = i - 1
        end
      end
      rows = core.tensor(rows, { dtype = core.dtypes.int64 })
    else
      rows = core.forms.internal.repeat_interleave(repeats)
    end
    errors.check(size == nil or size == rows:size(0), "RuntimeError",
      "repeat_interleave(): output_size is %s, the repeats sum to %d", tostring(size),
      rows:size(0))
    return input:index_select(dim, rows)
  end)

-- Python's tuple of the wanted results as several values.
local function unique(input, consecutive, inverse, counts, dim)
  inverse = flag(inverse, "unique(): return_inverse")
  counts = flag(counts, "unique(): return_counts")
  errors.check(check.is_none(dim) or input:dim() > 0, "IndexError",
    "unique(): dim is %s, but the tensor has no dimensions", tostring(dim))
  local values, positions, numbers = op.unique_all(input, consecutive, dim, inverse or false,
    counts or false)
  if inverse and counts then
    return values, positions, numbers
  elseif inverse then
    return values, positions
  elseif counts then
    return values, numbers
  end
  return values
end

--- The distinct elements (of slices along dim), sorted.
define("unique", { "input", "sorted", "return_inverse", "return_counts", "dim" }, true,
  function(input, sorted, inverse, counts, dim)
    flag(sorted, "unique(): sorted")
    return unique(input, false, inverse, counts, dim)
  end)

--- The same, but only neighbours are merged.
define("unique_consecutive", { "input", "return_inverse", "return_counts", "dim" }, true,
  function(input, inverse, counts, dim)
    return unique(input, true, inverse, counts, dim)
  end)

--- The factors of a matrix as one tensor and the pivots; with get_infos also
--- what went wrong (int32, 0: nothing), which raises otherwise. `out` is a list
--- of as many tensors, of any type.
define("lu", { "A", "pivot", "get_infos", "out" }, true, function(A, pivot, infos, out)
  local factor = infos and core.forms.linalg.lu_factor_ex or core.forms.linalg.lu_factor
  local result = table.pack(factor(A, { pivot = default(pivot, true) }))
  if out == nil then
    return table.unpack(result)
  end
  local n = type(out) == "table" and #out or 0
  errors.check(n == #result, "TypeError", "lu(): out must be a list of %d tensors, not %s",
    #result, type(out) == "table" and ("%d"):format(n) or check.describe(out))
  for i = 1, n do
    tensor(out[i], "lu()", ("out[%d]"):format(i))
  end
  for i = 1, n do
    out[i]:resize_as_(result[i]):copy_(result[i])
  end
  return table.unpack(out)
end)

--- Numbers from start to end, both in it (arange leaves end out).
--- Source: PyTorch documentation, torch.range
---@param ... any start (0), end, step (1), dtype (the default one), requires_grad
---@return torch.Tensor
function M.range(...)
  local a = check.arguments("range()", { "start", "end", "step", "dtype", "requires_grad" }, {},
    ...)
  local start, last, step = default(a[1], 0), a[2], default(a[3], 1)
  for name, v in pairs({ start = start, ["end"] = last or check, step = step }) do
    errors.check(type(v) == "number", "TypeError", "range(): %s: expected a number, got %s", name,
      v == check and "nil" or check.describe(v))
  end
  errors.check(step ~= 0, "RuntimeError", "range(): step must be nonzero")
  errors.check((last - start) * step >= 0, "RuntimeError",
    "range(): upper bound and lower bound inconsistent with step sign")
  local n = math.floor((last - start) / step) + 1
  local out = op.arange(n, { dtype = core.dtypes.float64 }):mul(step):add(start)
  out = out:to(a[4] or core.get_default_dtype())
  return a[5] and out:requires_grad_() or out
end

-- ---- facts about tensors ------------------------------------------------------

define("is_floating_point", { "input" }, false, methods.is_floating_point)
define("is_complex", { "input" }, false, methods.is_complex)
define("is_same_size", { "input", "other" }, false, methods.is_same_size)
define("numel", { "input" }, false, methods.numel)

define("is_signed", { "input" }, true, function(input)
  return input.dtype.is_signed
end)

--- The truth of a single element.
define("is_nonzero", { "input" }, true, function(input)
  local v = input:item()
  return v ~= 0 and v ~= false
end)

--- The shape that tensors of these shapes have together.
--- error: RuntimeError for shapes that do not fit
--- Source: PyTorch documentation, torch.broadcast_shapes
---@param ... integer[]|integer
---@return torch.Size
function M.broadcast_shapes(...)
  local out = {}
  for _, shape in ipairs({ ... }) do
    shape = type(shape) == "number" and { shape } or shape
    errors.check(type(shape) == "table" and not check.is_none(shape), "RuntimeError",
      "broadcast_shapes(): a shape must be ints or a list of them, not %s", check.describe(shape))
    local shift = #shape - #out
    for _ = 1, shift do
      table.insert(out, 1, 1)
    end
    for i = 1, #shape do
      local at = #out - #shape + i
      errors.check(shape[i] == out[at] or shape[i] == 1 or out[at] == 1, "RuntimeError",
        "broadcast_shapes(): sizes %d and %d of dimension %d from the end differ",
        out[at], shape[i], #shape - i + 1)
      out[at] = shape[i] == 1 and out[at] or shape[i]
    end
  end
  return core.Size(out)
end

-- ---- methods -----------------------------------------------------------------

--- A tensor of `data` with the receiver's dtype.
function methods.new_tensor(self, data, keywords)
  tensor(self, "new_tensor()", "self")
  local k = {}
  for name, value in pairs(check.plain_table(keywords or {}, "new_tensor(): keywords")) do
    k[name] = value
  end
  k.dtype = k.dtype or self.dtype
  return core.tensor(data, k)
end

--- Each element becomes fn(element). Slow: for tests and look-up tables.
function methods.apply_(self, fn)
  tensor(self, "apply_()", "self")
  check.callable(fn, "apply_(): callable")
  local values = self:reshape(-1):tolist()
  for i, v in ipairs(values) do
    values[i] = fn(v)
  end
  return self:copy_(core.tensor(values, { dtype = self.dtype }):view(self.shape))
end

--- The elements whose positions are all equal become value; with wrap the
--- diagonal of a tall matrix begins again one row below its end.
function methods.fill_diagonal_(self, value, wrap)
  local n = tensor(self, "fill_diagonal_()", "self"):dim()
  flag(wrap, "fill_diagonal_(): wrap")
  errors.check(n > 1, "RuntimeError", "fill_diagonal_(): the tensor has %d dimensions, it must "
    .. "have 2 or more", n)
  for d = 1, n > 2 and n - 1 or 0 do
    errors.check(self:size(d) == self:size(0), "RuntimeError", "fill_diagonal_(): the sizes of "
      .. "more than 2 dimensions must be equal, got %s", tostring(self.shape))
  end
  local rows, columns = self:size(0), self:size(1)
  local part = n == 2 and self or self:diagonal(0, 0, -1)
  for start = 0, n == 2 and wrap and rows - 1 or 0, columns + 1 do
    local diagonal = n == 2 and part:narrow(0, start, rows - start):diagonal() or part
    while diagonal:dim() > 1 do
      diagonal = diagonal:diagonal(0, 0, -1)
    end
    diagonal:fill_(value)
  end
  return self
end

--- repeat is a word of Lua: x:repeat_(2, 1), or x["repeat"](x, 2, 1).
methods.repeat_ = methods["repeat"]

function methods.float_power_(self, exponent)
  tensor(self, "float_power_()", "self")
  errors.check(self.dtype == core.dtypes.float64, "RuntimeError",
    "float_power_(): the result is float64, the base %s", tostring(self.dtype))
  return self:copy_(op.float_power(self:clone(), exponent)) -- its gradient reads the base
end

--- The transpose of the last two dimensions, conjugated if it were complex.
define("adjoint", { "input" }, true, function(input)
  return input.mT
end)

return M
