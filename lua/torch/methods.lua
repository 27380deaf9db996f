--- Methods and functions of tensors that are made of others: facts that are
--- the same for every tensor here, element-wise calls of Lua functions, lists
--- where an operator takes one tensor, combinations.
---
--- They are added to torch and, where PyTorch has a method of that name, to
--- tensors.
local check = require("lupine.base.check")
local core = require("lupine.core")
local calls = require("torch.define")
local errors = require("lupine.base.errors")

local M = {}
local op = core.forms.functions
local methods = core.methods
local define, tensor = calls.fn, calls.tensor

-- ---- facts -------------------------------------------------------------------

-- Of every tensor: nothing here is complex, pinned, sparse or distributed.
for _, name in ipairs({ "is_conj", "is_neg", "is_inference", "is_distributed" }) do
  M[name] = define(name, { "input" }, function()
    return false
  end)
  methods[name] = M[name]
end
for _, name in ipairs({ "is_pinned", "is_shared" }) do
  methods[name] = define(name, { "self" }, function()
    return false
  end)
end

--- The tensor itself: no device copies from the host's memory.
methods.pin_memory = define("pin_memory", { "self" }, function(self)
  return self
end)

-- What would only change something else.
for _, name in ipairs({ "conj", "resolve_conj", "resolve_neg", "real" }) do
  M[name] = define(name, { "input" }, function(x)
    return x
  end)
  if name ~= "real" then -- x.real is a property
    methods[name] = M[name]
  end
end

--- NumPy's arrays are tensors here: the tensor itself. One that requires a gradient
--- is an error unless `force`, which gives it without its history.
methods.numpy = define("numpy", { "self", "force" }, function(self, force)
  force = check.bool(force or false, "numpy(force)")
  errors.check(force or not self.requires_grad, "RuntimeError", "Can't call numpy() on Tensor "
    .. "that requires grad. Use tensor:detach():numpy() instead.")
  return force and self:detach() or self
end)

--- An array is a tensor: the same one.
M.from_numpy = define("from_numpy", { "ndarray" }, function(ndarray)
  return ndarray
end)

--- The number of the device: -1, the processor.
methods.get_device = define("get_device", { "self" }, function()
  return -1
end)
M.get_device = methods.get_device
methods.const_data_ptr = methods.data_ptr

--- The same memory with the same sizes and strides?
methods.is_set_to = define("is_set_to", { "self", "tensor" }, function(self, other)
  tensor(other, "is_set_to()", "tensor")
  if self.dtype ~= other.dtype or self.shape ~= other.shape
    or self:storage_offset() ~= other:storage_offset() or self:data_ptr() ~= other:data_ptr() then
    return false
  end
  local a, b = self:stride(), other:stride()
  for i = 1, #a do
    if a[i] ~= b[i] then
      return false
    end
  end
  return true
end)

--- The dimensions from the largest stride to the smallest.
methods.dim_order = define("dim_order", { "self" }, function(self)
  local strides, order = self:stride(), {}
  for d = 1, self:dim() do
    order[d] = d - 1
  end
  table.sort(order, function(a, b)
    local x, y = strides[a + 1], strides[b + 1]
    return x > y or x == y and a < b
  end)
  return order
end)

-- ---- elements ------------------------------------------------------------------

-- self's elements become fn(element, elements of the others …).
local function map(self, fn, where, ...)
  errors.check(type(fn) == "function", "TypeError", "%s: expected a function, got %s", where,
    check.describe(fn))
  local lists = { self:reshape(-1):tolist() }
  for i, other in ipairs({ ... }) do
    lists[i + 1] = tensor(other, where, "tensor"):expand(self.shape):reshape(-1):tolist()
  end
  local first = lists[1]
  for i = 1, #first do
    first[i] = fn(first[i], lists[2][i], lists[3] and lists[3][i])
  end
  return self:copy_(core.tensor(first, { dtype = self.dtype }):view(self.shape))
end

--- Each element becomes fn(element, element of tensor). Slow, as apply_.
methods.map_ = define("map_", { "self", "tensor", "callable" }, function(self, other, fn)
  return map(self, fn, "map_()", other)
end)

--- The same with the elements of two tensors.
methods.map2_ = define("map2_", { "self", "x", "y", "callable" }, function(self, x, y, fn)
  return map(self, fn, "map2_()", x, y)
end)

--- Summed over what broadcasting to self's shape would have repeated.
function methods.sum_to_size(self, ...)
  local sizes = { ... }
  if type(sizes[1]) ~= "number" then
    errors.check(type(sizes[1]) == "table", "TypeError",
      "sum_to_size(): argument 'size' must be ints or a list of them, not %s",
      check.describe(sizes[1]))
    errors.check(#sizes == 1, "TypeError", "sum_to_size(): 1 argument is allowed, %d were given",
      #sizes)
    sizes = sizes[1]
  end
  local from, n = self.shape, #sizes
  local dims, fits = {}, n <= #from
  for d = 1, fits and #from or 0 do
    local want = sizes[d - (#from - n)]
    if not want or want == 1 and from[d] ~= 1 then
      dims[#dims + 1] = d - 1
    else
      fits = fits and want == from[d]
    end
  end
  errors.check(fits, "RuntimeError", "sum_to_size(): size %s is not expandable to size %s",
    tostring(core.Size({ table.unpack(sizes) })), tostring(from))
  if n == 0 then
    return self:sum()
  end
  local out = #dims > 0 and self:sum(dims, { keepdim = true }) or self
  return out:reshape(sizes)
end

-- A list of numbers from 0 on, or a Size.
local function ints(list, where)
  check.table(list, where)
  for i, n in ipairs(check.dense(list, where)) do
    check.int(n, ("%s: element %d"):format(where, i), { min = 0 })
  end
end

--- Undefined elements at these strides.
--- Source: PyTorch documentation, torch.empty_strided
---@param size integer[]
---@param stride integer[] elements, one for each dimension
---@param ... any keywords: dtype, device, requires_grad
---@return torch.Tensor
function M.empty_strided(size, stride, ...)
  local n = 1
  ints(size, "empty_strided(): size")
  ints(stride, "empty_strided(): stride")
  errors.check(#size == #stride, "RuntimeError",
    "empty_strided(): size has %d dimensions, stride %d", #size, #stride)
  for d = 1, #size do
    n = size[d] == 0 and 0 or n + (size[d] - 1) * stride[d]
    if n == 0 then
      break
    end
  end
  return op.empty({ n }, ...):as_strided(size, stride)
end

function methods.new_empty_strided(self, size, stride, keywords)
  local k = { dtype = tensor(self, "new_empty_strided()", "self").dtype }
  for name, value in pairs(check.plain_table(keywords or {}, "new_empty_strided(): keywords")) do
    k[name] = value
  end
  return M.empty_strided(size, stride, k)
end

-- PyTorch's names for splitting without its check of in-place use.
for name, plain in pairs({
  unsafe_chunk = "chunk", unsafe_split = "split", unsafe_split_with_sizes = "split_with_sizes",
}) do
  methods[name] = methods[plain]
  M[name] = op[plain] or methods[plain]
end

-- ---- lists -----------------------------------------------------------------------

-- torch.NAME(x) is a tensor, torch.NAME(x, y, …) and torch.NAME({x, …}) lists.
for _, name in ipairs({ "atleast_1d", "atleast_2d", "atleast_3d" }) do
  M[name] = function(...)
    local list = { ... }
    if #list == 1 and type(list[1]) ~= "table" then
      return op[name](...)
    elseif #list == 1 and list[1][1] ~= nil then
      list = list[1]
    elseif #list < 2 then
      return op[name](...)
    end
    local out = {}
    for i, x in ipairs(list) do
      out[i] = op[name](x)
    end
    return core.list(out)
  end
end

--- All ways to take r elements of a vector, in order: [ways, r].
M.combinations = define("combinations", { "input", "r", "with_replacement" },
  function(input, r, with_replacement)
    r = r == nil and 2 or r
    errors.check(input:dim() == 1, "RuntimeError",
      "combinations(): expected a 1D vector, but got shape %s", tostring(input.shape))
    errors.check(math.type(r) == "integer" and r >= 0, "RuntimeError",
      "combinations(): expected a non-negative number r, got %s", check.describe(r))
    if r == 0 then
      return input:new_empty({ 0 })
    end
    local n, columns, at = input:size(0), {}, {}
    for k = 1, r do
      columns[k] = {}
    end
    local function take(k, from)
      if k > r then
        for i = 1, r do
          columns[i][#columns[i] + 1] = at[i]
        end
        return
      end
      for i = from, n - 1 do
        at[k] = i
        take(k + 1, with_replacement and i or i + 1)
      end
    end
    take(1, 0)
    local out = {}
    for k = 1, r do
      local index = core.tensor(columns[k], { dtype = core.dtypes.int64 })
      out[k] = input:index_select(0, index)
    end
    return op.stack(out, 1)
  end)

return M
