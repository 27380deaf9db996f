--- Arguments and results of a wrapped model: matched against forward's
--- parameters, flattened to tensors, compared with what was compiled, rebuilt.
---
--- A spec is a tree: {kind = "tensor", shape, dtype}, {kind = "list", …},
--- {kind = "dict", keys, …}, {kind = "object", object, parser, …}, {kind =
--- "value", value}. Source: PopTorch API reference, PoplarExecutor.__call__.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local nesting = require("lupine.base.nesting")
local tables = require("lupine.base.tables")

local M = {}

--- Names of a function's parameters without the first `skip` (default 1: self),
--- and whether it is variadic.
---@param forward function
---@param skip? integer
---@return string[] names
---@return boolean variadic
function M.parameters(forward, skip)
  local info = debug.getinfo(forward, "u")
  local names = {}
  for i = (skip or 1) + 1, info.nparams do
    names[#names + 1] = debug.getlocal(forward, i)
  end
  return names, info.isvararg
end

local is_tensor = core.is_tensor
M.is_tensor = is_tensor

-- A last table is by name if all its keys are parameters not given by position.
local function named(values, n, names)
  local last = values[n]
  if n == 0 or type(last) ~= "table" or getmetatable(last) or next(last) == nil then
    return nil
  end
  local open = {}
  for i = n, #names do
    open[names[i]] = i
  end
  return check.by_name(last, open, "AssertionError") and open or nil
end

-- A last table that is one argument too many was meant to be by name: it names no
-- parameter, or one that has its value.
local function check_named(last, names)
  if type(last) ~= "table" or getmetatable(last) or #last > 0 then
    return
  end
  local known, strange, twice = tables.set(names), {}, {}
  for key in pairs(last) do
    if type(key) == "string" and not known[key] then
      strange[#strange + 1] = ("'%s'%s"):format(key, check.nearest(key, names))
    else
      twice[#twice + 1] = ("'%s'"):format(tostring(key))
    end
  end
  table.sort(strange)
  errors.check(#strange == 0, "AssertionError",
    "the model has no parameter %s; allowed by name are %s", table.concat(strange, ", "),
    table.concat(names, ", "))
  table.sort(twice)
  errors.check(#twice == 0, "AssertionError", "%s is given twice: by position and by name",
    table.concat(twice, ", "))
end

--- The call's values by forward's parameters, in order; n is the last one that
--- is not nil (missing trailing arguments are nil; so is torch.none by name).
--- error: AssertionError for too many, or for names that forward does not have
---@param names string[]
---@param variadic boolean
---@param ... any
---@return {n: integer}
function M.bind(names, variadic, ...)
  local values = table.pack(...)
  local open = named(values, values.n, names)
  if open then
    local by_name = values[values.n]
    values[values.n] = nil
    values.n = values.n - 1
    for key, value in pairs(by_name) do
      if value == core.none then
        value = nil
      end
      values[open[key]] = value
      values.n = math.max(values.n, open[key])
    end
  end
  if not variadic and values.n > #names then
    check_named(values[values.n], names)
    errors.raise("AssertionError", "the model takes %s (%s), %d were given",
      check.count(#names, "argument"), table.concat(names, ", "), values.n)
  end
  while values.n > 0 and values[values.n] == nil do
    values.n = values.n - 1
  end
  return values
end

--- Metatable of objects -> what tells their tensors (yieldTensors) and makes
--- another one of others (reconstruct); see poptorch.parsers.
M.parsers = {}

-- Metatables that had a parser, by number and back: in the order in which they got
-- it, so that processes that a process starts number them alike.
local numbers = {}

--- Objects of the metatable have the parser from now on; nil takes it away.
---@param of table
---@param parser table?
function M.register(of, parser)
  M.parsers[of] = parser
  if not numbers[of] then
    numbers[#numbers + 1] = of
    numbers[of] = #numbers
  end
end

--- The number of a value's metatable, if this itself has a parser.
---@param value any
---@return integer?
function M.number_of(value)
  local of = type(value) == "table" and getmetatable(value)
  return of and M.parsers[of] and numbers[of] or nil
end

--- The metatable of a number.
---@param n integer
---@return table?
function M.numbered(n)
  return numbers[n]
end

local function parser_of(value)
  local of = type(value) == "table" and getmetatable(value)
  while of do
    if M.parsers[of] then
      return M.parsers[of]
    end
    of = type(of) == "table" and rawget(of, "__base")
  end
  return nil
end

--- Whether a parser tells the tensors of a value.
---@param value any
---@return boolean
function M.is_object(value)
  return parser_of(value) ~= nil
end

-- What yieldTensors yields or returns.
local function yielded(parser, object)
  local list = {}
  local tell = coroutine.create(parser.yieldTensors)
  local ok, value = coroutine.resume(tell, parser, object)
  while ok and coroutine.status(tell) == "suspended" do
    list[#list + 1] = value ~= nil and value
    ok, value = coroutine.resume(tell)
  end
  if not ok then
    error(value, 0)
  end
  return type(value) == "table" and not getmetatable(value) and value or list
end

local flatten

local function flatten_object(value, parser, path, tensors)
  local spec = { kind = "object", object = value, parser = parser }
  for i, tensor in ipairs(yielded(parser, value)) do
    errors.check(is_tensor(tensor), "Error", "%s: yieldTensors of %s gave %s, no tensor", path,
      getmetatable(parser).__name, check.describe(tensor))
    spec[i] = flatten(tensor, ("%s(%d)"):format(path, i), tensors)
  end
  return spec
end

local function flatten_table(value, path, tensors)
  local keys, listed = {}, #value
  for key in pairs(value) do
    if math.type(key) ~= "integer" then
      errors.check(type(key) == "string", "Error", "%s: a dictionary's keys are strings, not %s",
        path, check.describe(key))
      keys[#keys + 1] = key
    end
  end
  errors.check(#keys == 0 or listed == 0, "Error",
    "%s: a table is a list or a dictionary, not both", path)
  local spec = { kind = #keys > 0 and "dict" or "list" }
  if spec.kind == "dict" then
    table.sort(keys)
    spec.keys = keys
    for i, key in ipairs(keys) do
      spec[i] = flatten(value[key], ("%s.%s"):format(path, key), tensors)
    end
  else
    for i = 1, listed do
      spec[i] = flatten(value[i], ("%s[%d]"):format(path, i), tensors)
    end
  end
  return spec
end

-- M.flatten of a value whose tables end.
function flatten(value, path, tensors)
  if is_tensor(value) then
    local spec = { kind = "tensor", shape = value.shape, dtype = value.dtype, path = path }
    tensors[#tensors + 1] = { tensor = value, path = path, spec = spec }
    return spec
  elseif type(value) == "table" and not getmetatable(value) then
    return flatten_table(value, path, tensors)
  end
  local parser = parser_of(value)
  if parser then
    return flatten_object(value, parser, path, tensors)
  end
  errors.check(type(value) ~= "table" or getmetatable(value).__name ~= "PackedSequence",
    "TypeError", "%s: a PackedSequence goes neither into a compiled program nor out of it: call "
    .. "pack_padded_sequence (its lengths a list) and pad_packed_sequence in forward", path)
  return { kind = "value", value = value, path = path }
end

--- Appends the tensors of a value to `tensors` ({tensor, path, spec}), depth
--- first.
--- error: poptorch.Error for tables without end, or that are no list or dictionary
---@param value any
---@param path string for messages
---@param tensors {tensor: torch.Tensor, path: string}[]
---@return table spec
function M.flatten(value, path, tensors)
  return flatten(nesting.check(value, path, "Error"), path, tensors)
end

local function rebuild_object(spec, next_tensor)
  local parts, at = {}, 0
  for i, part in ipairs(spec) do
    parts[i] = M.rebuild(part, next_tensor)
  end
  return spec.parser:reconstruct(spec.object, function()
    at = at + 1
    return parts[at]
  end)
end

--- The value of a spec with tensors taken from next_tensor().
---@param spec table
---@param next_tensor fun(): torch.Tensor
---@return any
function M.rebuild(spec, next_tensor)
  if spec.kind == "tensor" then
    return next_tensor()
  elseif spec.kind == "value" then
    return spec.value
  elseif spec.kind == "object" then
    return rebuild_object(spec, next_tensor)
  end
  local out = {}
  for i, part in ipairs(spec) do
    out[spec.keys and spec.keys[i] or i] = M.rebuild(part, next_tensor)
  end
  return out
end

--- Raises unless an argument is as it was when the program was compiled.
---@param ok any
---@param fmt string as string.format
---@param ... any for the format
function M.need(ok, fmt, ...)
  if not ok then
    errors.raise_hint("other_inputs", "Error", fmt, ...)
  end
end
local need = M.need

local function same_keys(want, got, path)
  local missing, have = {}, tables.set(got.keys)
  for _, key in ipairs(want.keys) do
    if not have[key] then
      missing[#missing + 1] = key
    end
    have[key] = nil
  end
  local extra = tables.keys(have)
  need(#missing + #extra == 0, "%s:%s%s", path,
    #missing > 0 and " Missing arguments: " .. table.concat(missing, ", ") .. "." or "",
    #extra > 0 and " Unexpected arguments: " .. table.concat(extra, ", ") .. "." or "")
end

local function same_shape(a, b)
  if #a ~= #b then
    return false
  end
  for i = 1, #a do
    if a[i] ~= b[i] then
      return false
    end
  end
  return true
end

local function kind_of(spec)
  if spec.kind == "object" then
    return check.describe(spec.object)
  end
  return spec.kind == "value" and check.describe(spec.value) or "a " .. spec.kind
end

--- Later calls must fit what was compiled.
--- error: poptorch.Error naming the argument, what was compiled and what given
---@param want table spec at compile time
---@param got table spec now
---@param path string
function M.match(want, got, path)
  need(want.kind == got.kind, "%s: compiled for %s, got %s", path, kind_of(want), kind_of(got))
  if want.kind == "tensor" then
    need(want.dtype == got.dtype, "%s: compiled for dtype %s, got %s", path,
      tostring(want.given or want.dtype), tostring(got.given or got.dtype))
    need(same_shape(want.shape, got.shape), "%s: compiled for shape %s, got %s", path,
      tostring(want.shape), tostring(got.shape))
  elseif want.kind == "value" then
    local nan = want.value ~= want.value and got.value ~= got.value
    need(nan or want.value == got.value, "%s: the value %s was compiled in, got %s", path,
      tostring(want.value), tostring(got.value))
  else
    if want.kind == "dict" then
      same_keys(want, got, path)
    end
    need(want.parser == got.parser, "%s: compiled for %s, got %s", path, kind_of(want),
      kind_of(got))
    need(#want == #got, "%s: compiled for %d elements, got %d", path, #want, #got)
    for i, part in ipairs(want) do
      M.match(part, got[i], ("%s.%s"):format(path, tostring(want.keys and want.keys[i] or i)))
    end
  end
end

return M
