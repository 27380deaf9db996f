--- State dictionaries of torch.nn.Module.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local ordered = require("torch.nn.ordered")
local tables = require("lupine.base.tables")

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
  if #k.missing_keys == 0 and #k.unexpected_keys == 0 then
    return "<All keys matched successfully>"
  end
  return ("_IncompatibleKeys(missing_keys=%s, unexpected_keys=%s)"):format(
    quoted(k.missing_keys), quoted(k.unexpected_keys))
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

-- What loading goes by: the dictionary, the keys that were wanted, those that
-- were missing, error texts, options, and modules with hooks to call at the end.
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
        if value ~= nil and l.assign then
          l.messages[#l.messages + 1] = assign_one(registry, key, name, target, value)
        elseif value ~= nil then
          l.messages[#l.messages + 1] = load_one(key, target, value)
        end
      end
    end
  end
  if self.set_extra_state then
    local value = entry(prefix .. EXTRA)
    if value ~= nil then
      self:set_extra_state(value)
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
  --- error: RuntimeError that lists every missing, unexpected (if strict) and
  --- ill-shaped entry
  ---@param state table<string, torch.Tensor>
  ---@param ... any strict (true), assign (false): the tensors take the place of the module's
  ---@return {missing_keys: string[], unexpected_keys: string[]}
  function M:load_state_dict(state, ...)
    check.method(self, Module, "load_state_dict")
    errors.check(type(state) == "table", "TypeError",
      "Expected state_dict to be dict-like, got %s.", check.describe(state))
    local a = check.arguments("load_state_dict", { "strict", "assign" }, nil, ...)
    local strict = a[1] ~= false
    local missing, unexpected, messages = {}, {}, {}
    local keys = setmetatable({ missing_keys = missing, unexpected_keys = unexpected }, Keys)
    local from = copy_of(state)
    local l = { from = from, strict = strict, assign = a[2], keys = keys, messages = messages,
      wanted = {}, loaded = {} }
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
    return keys
  end

  return M
end
