--- Arguments of sample calls. A sample is a list of arguments with options:
---
---   { x{ 2, 3 }, 1, kw = { keepdim = true } }
---
--- where tensors are described, so that one sample makes tensors of any float
--- dtype, contiguous or not. Lists of tensors are plain lists.
---
---   kw        keywords
---   call      {surface, name}: another form than the operator's first one
---   first     no second gradient is asked for, with the reason as its value
---   kink      no gradient is asked for, with the reason
---   packed    the first tensor has to be contiguous
---   free      values are not the operator's to fix (random, uninitialised)
---   loose     float16 is not float32 rounded, with the reason
---   dynamic   the result's shape depends on data: cannot be compiled
---   eager     its gradient is computed eagerly alone
---   loud      it prints: not run, only traced
---   whole     without rows it is wrong
---   only      how many of the results have a gradient (all)
---   variables the first tensors, of which alone there are gradients (all), with their number
local torch = require("torch")

local M = {}

local Description = {}
Description.__index = Description
M.Description = Description

local function count(shape)
  local n = 1
  for _, s in ipairs(shape) do
    n = n * s
  end
  return n
end

local function spread(shape, low, high, first)
  local values = {}
  for i = 1, count(shape) do
    -- multiples of the golden section fill an interval evenly
    values[i] = low + (high - low) * (0.04 + 0.92 * (((i + first) * 0.6180339887498949) % 1))
  end
  return setmetatable({ kind = "float", shape = shape, values = values }, Description)
end

--- Distinct floats over (low, high), by default (-2, 2), out of order.
function M.x(shape, low, high)
  return spread(shape, low or -2, high or 2, 0)
end

--- Others over the same interval: two operands must not have equal elements.
function M.y(shape, low, high)
  return spread(shape, low or -2, high or 2, 17)
end

--- Integers from 0 to n - 1.
function M.i(shape, n, dtype)
  local values = {}
  for k = 1, count(shape) do
    values[k] = (k * 5 + k // 3) % n
  end
  return setmetatable({ kind = "int", shape = shape, values = values, dtype = dtype },
    Description)
end

function M.b(shape)
  local values = {}
  for k = 1, count(shape) do
    values[k] = k % 3 ~= 0
  end
  return setmetatable({ kind = "bool", shape = shape, values = values }, Description)
end

local function nested(list, out)
  local shape = { #list }
  for _, e in ipairs(list) do
    if type(e) == "table" then
      local inner = nested(e, out)
      table.move(inner, 1, #inner, 2, shape)
    else
      out[#out + 1] = e
    end
  end
  return shape
end

--- Given integers, floats.
function M.v(list, dtype)
  local values = {}
  local shape = nested(list, values)
  return setmetatable({ kind = "int", shape = shape, values = values, dtype = dtype },
    Description)
end

function M.f(list)
  local values = {}
  local shape = nested(list, values)
  return setmetatable({ kind = "float", shape = shape, values = values }, Description)
end

-- Every second element of the last dimension of a wider tensor, or a
-- transposed one.
local function strided(t)
  local n = t:dim()
  if n == 0 then
    return t
  elseif n > 1 then
    return t:transpose(0, n - 1):contiguous():transpose(0, n - 1)
  end
  return torch.stack({ t, t }, 1):select(1, 0)
end

--- The described tensor. o: {dtype = of floats, grad, strided, empty}
function Description:tensor(o)
  local dtype = self.kind == "float" and (o.dtype or torch.float64)
    or self.kind == "int" and torch[self.dtype or "int64"] or torch.bool
  local shape, values = self.shape, self.values
  if o.empty and shape[1] then
    shape, values = { 0, table.unpack(shape, 2) }, {}
  end
  local t
  if #values == 0 then
    t = torch.zeros(shape, { dtype = dtype })
  else
    t = torch.tensor(values, { dtype = dtype }):reshape(shape)
  end
  if o.strided then
    t = strided(t)
  end
  if o.grad and self.kind == "float" then
    t:requires_grad_(true)
  end
  return t
end

local function each(value, fn)
  if getmetatable(value) == Description then
    return fn(value)
  elseif type(value) == "table" then
    local out = {}
    for i = 1, #value do
      out[i] = each(value[i], fn)
    end
    return out
  end
  return value
end

--- The tensors of a sample in order, as {description, …}.
function M.tensors(sample)
  local out = {}
  each(table.move(sample, 1, #sample, 1, {}), function(d)
    out[#out + 1] = d
  end)
  for _, key in ipairs(sample.tensor_kw or {}) do
    out[#out + 1] = sample.kw[key]
  end
  return out
end

--- Arguments of the call with the tensors replaced by those of the list.
function M.arguments(sample, tensors)
  local n = 0
  local function take()
    n = n + 1
    return tensors[n]
  end
  local args = {}
  for i = 1, #sample do
    args[i] = each(sample[i], take)
  end
  if sample.kw then
    local kw = {}
    for key, value in pairs(sample.kw) do
      kw[key] = value
    end
    for _, key in ipairs(sample.tensor_kw or {}) do
      kw[key] = take()
    end
    args[#args + 1] = kw
  end
  return args
end

return M
