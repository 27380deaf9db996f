--- State dictionaries of torch.nn.Module.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local ordered = require("torch.nn.ordered")
local tables = require("lupine.base.tables")
local warn = require("lupine.base.warn")

--- What load_state_dict returns.
local Keys = { __name = "_IncompatibleKeys" }

local function quoted(list)
  local out = {}
  for i, key in ipairs(list) do
    out[i] = ("'%s'"):format(key)
  end
  return "[" .. table.concat(out, ", ") .. "]"
end

function Keys.__tostring(k)
  if #k.missing_keys + #k.unexpected_keys + #k.mismatched_keys == 0 then
    return "<All keys matched successfully>"
  end
  local mismatched = #k.mismatched_keys > 0
    and (", mismatched_keys=%s"):format(quoted(k.mismatched_keys)) or ""
  return ("_IncompatibleKeys(missing_keys=%s, unexpected_keys=%s%s)"):format(
    quoted(k.missing_keys), quoted(k.unexpected_keys), mismatched)
end

local function run(self, list, ...)
  for _, entry in ipairs({ table.unpack(rawget(self, list) or {}) }) do
    entry.fn(self, ...)
  end
end

local EXTRA = "_extra_state"

-- A tensor whose newest values a device may have: they come now, so that what
-- happens to the device later does not reach the dictionary.
local function current(t)
  if not (core.is_traced(t) or t.is_meta) then
    t:data_ptr()
  end
  return t
end

local function save(self, into, prefix, keep)
  run(self, "_state_pre_hooks", prefix, keep or false)
  for _, registry in ipairs({ self._parameters, self._buffers }) do
    for _, name, value in registry:each() do
      if not (registry == self._buffers and self._transient[name]) then
        into[prefix .. name] = keep and current(value) or current(value):detach()
      end
    end
  end
  if self.get_extra_state then
    into[prefix .. EXTRA] = self:get_extra_state()
  end
  for _, name, child in self._modules:each() do
    into = save(child, into, prefix .. name .. ".", keep)
  end
  for _, entry in ipairs(rawget(self, "_state_hooks") or {}) do
    into = entry.fn(self, into, prefix) or into
  end
  return into
end

local function size(t)
  return tostring(t.shape)
end

-- Copies one entry; gives an error text, or nil.
local function load_one(key, target, value)
  if not core.is_tensor(value) then
    return ('While copying the parameter named "%s", expected torch.Tensor or Tensor-like object '
      .. "from checkpoint but received %s"):format(key, check.describe(value))
  end
  if value:dim() == 1 and value:numel() == 1 and target:dim() == 0 then
    value = value[0]
  end
  if target.shape ~= value.shape then
    return ("size mismatch for %s: copying a param with shape %s from checkpoint, the shape in "
      .. "current model is %s."):format(key, size(value), size(target))
  end
  require("torch").no_grad(function()
    target:copy_(value)
  end)
  return nil
end

-- Puts the tensor itself in the place of a parameter or buffer.
local function assign_one(registry, key, name, target, value)
  if not core.is_tensor(value) or target.shape ~= value.shape then
    return load_one(key, target, value)
  end
  if core.is_parameter(target) and not core.is_parameter(value) then
    value = core.parameter(value, target.requires_grad)
  end
  registry:set(name, value)
  return nil
end

-- Whether an entry of another shape is left out, as the caller wants it.
local function left_out(l, key, target, value)
  if not l.lenient or not core.is_tensor(value) or target.shape == value.shape
    or (target:dim() == 0 and value:dim() == 1 and value:numel() == 1) then
    return false
  end
  local keys = l.keys.mismatched_keys
  keys[#keys + 1] = key
  return true
end

-- The value of a parameter or buffer into its place, an error text where it cannot be.
local function put(l, registry, key, name, target, value)
  if left_out(l, key, target, value) then
    return
  end
  local fault
  if l.assign then
    fault = assign_one(registry, key, name, target, value)
  else
    fault = load_one(key, target, value)
  end
  l.messages[#l.messages + 1] = fault
  l.count = l.count + 1
end

-- What loading goes by: the dictionary, the keys that were wanted, those that
-- were missing, error texts, options, how many were loaded, and modules with hooks to
-- call at the end.
local function take(self, l, prefix)
  run(self, "_load_pre_hooks", l.from, prefix, {}, l.strict, l.keys.missing_keys,
    l.keys.unexpected_keys, l.messages)
  if self._renew then -- of a class whose keys were others once
    self:_renew(l.from, prefix)
  end
  local function entry(key)
    l.wanted[key] = true
    if l.from[key] == nil then
      l.keys.missing_keys[#l.keys.missing_keys + 1] = key
    end
    return l.from[key]
  end
  for _, registry in ipairs({ self._parameters, self._buffers }) do
    for _, name, target in registry:each() do
      if not (registry == self._buffers and self._transient[name]) then
        local key = prefix .. name
        local value = entry(key)
        if value ~= nil then
          put(l, registry, key, name, target, value)
        end
      end
    end
  end
  if self.set_extra_state then
    local value = entry(prefix .. EXTRA)
    if value ~= nil then
      self:set_extra_state(value)
      l.count = l.count + 1
    end
  end
  for _, name, child in self._modules:each() do
    take(child, l, prefix .. name .. ".")
  end
  l.loaded[#l.loaded + 1] = self
end

local function list_of(kind, keys)
  return ('%s key(s) in state_dict: "%s". '):format(kind, table.concat(keys, '", "'))
end

local FEW = 4 -- names that a warning shows

-- Prefixes that differ ("module.", "model.") are how all of a file is missed unseen.
local function warn_of_nothing(self, l, keys)
  if l.count > 0 or #keys.missing_keys + #keys.mismatched_keys == 0 then
    return
  end
  local function some(list)
    return #list == 0 and "no others" or ("'%s'%s"):format(table.concat(list, "', '", 1,
      math.min(#list, FEW)), #list > FEW and ", …" or "")
  end
  warn("load_state_dict: nothing was loaded into %s: it has %s; the dictionary has %s",
    self:_get_name(), some(#keys.missing_keys > 0 and keys.missing_keys or keys.mismatched_keys),
    some(keys.unexpected_keys))
end

-- Hooks may change it; the caller's stays.
local function copy_of(state)
  if ordered.is_dict(state) then
    return ordered.copy(state)
  end
  local out = {}
  for key, value in pairs(state) do
    out[key] = value
  end
  return out
end

return function(Module)
  local M = {}

  --- The parameters and persistent buffers by name, in order. They share the
  --- elements of the module's.
  --- (destination, prefix = "", keep_vars = false)
  ---@return table<string, torch.Tensor>
  function M:state_dict(...)
    check.method(self, Module, "state_dict")
    local a = check.arguments("state_dict", { "destination", "prefix", "keep_vars" },
      nil, ...)
    return save(self, a[1] or ordered.dict(), a[2] or "", a[3])
  end

  --- Copies the entries of a state dictionary into parameters and buffers.
  --- If not strict, a dictionary of which nothing is loaded gives a warning.
  --- error: RuntimeError that lists every missing, unexpected (if strict) and
  --- ill-shaped entry
  ---@param state table<string, torch.Tensor>
  ---@param ... any strict (true), assign (false): the tensors take the place of the module's,
  ---  ignore_mismatched_sizes (false): ill-shaped entries are left out and listed
  ---@return {missing_keys: string[], unexpected_keys: string[], mismatched_keys: string[]}
  function M:load_state_dict(state, ...)
    check.method(self, Module, "load_state_dict")
    errors.check(type(state) == "table", "TypeError",
      "Expected state_dict to be dict-like, got %s.", check.describe(state))
    local a = check.arguments("load_state_dict",
      { "strict", "assign", "ignore_mismatched_sizes" }, nil, ...)
    local strict = a[1] ~= false
    local missing, unexpected, messages = {}, {}, {}
    local keys = setmetatable({ missing_keys = missing, unexpected_keys = unexpected,
      mismatched_keys = {} }, Keys)
    local from = copy_of(state)
    local l = { from = from, strict = strict, assign = a[2], keys = keys, messages = messages,
      wanted = {}, loaded = {}, lenient = a[3], count = 0 }
    take(self, l, "")
    for i, key in ipairs(tables.keys(from, function(key)
      return not l.wanted[key]
    end)) do
      unexpected[i] = key
    end
    for _, module in ipairs(l.loaded) do
      run(module, "_load_hooks", keys)
    end
    if strict and #unexpected > 0 then
      table.insert(messages, 1, list_of("Unexpected", unexpected))
    end
    if strict and #missing > 0 then
      table.insert(messages, 1, list_of("Missing", missing))
    end
    if #messages > 0 then
      errors.raise("RuntimeError", "%s", ("Error(s) in loading state_dict for %s:\n\t%s"):format(
        self:_get_name(), table.concat(messages, "\n\t")))
    end
    warn_of_nothing(self, l, keys)
    return keys
  end

  return M
end
