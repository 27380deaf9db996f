--- State dictionaries of torch.nn.Module.
local check = require("lupine.check")
local core = require("lupine.core")
local errors = require("torch.errors")
local ordered = require("torch.nn.ordered")

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

local function save(self, into, prefix, keep)
  for _, registry in ipairs({ self._parameters, self._buffers }) do
    for _, name, value in registry:each() do
      if not (registry == self._buffers and self._transient[name]) then
        into[prefix .. name] = keep and value or value:detach()
      end
    end
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

local function take(self, from, prefix, wanted, missing, messages)
  for _, registry in ipairs({ self._parameters, self._buffers }) do
    for _, name, target in registry:each() do
      if not (registry == self._buffers and self._transient[name]) then
        local key = prefix .. name
        wanted[key] = true
        if from[key] == nil then
          missing[#missing + 1] = key
        else
          messages[#messages + 1] = load_one(key, target, from[key])
        end
      end
    end
  end
  for _, name, child in self._modules:each() do
    take(child, from, prefix .. name .. ".", wanted, missing, messages)
  end
end

local function list_of(kind, keys)
  return ('%s key(s) in state_dict: "%s". '):format(kind, table.concat(keys, '", "'))
end

return function()
  local M = {}

  --- The parameters and persistent buffers by name, in order. They share the
  --- elements of the module's.
  --- (destination, prefix = "", keep_vars = false)
  ---@return table<string, torch.Tensor>
  function M:state_dict(...)
    local a = check.arguments("state_dict", { "destination", "prefix", "keep_vars" },
      nil, ...)
    return save(self, a[1] or ordered.dict(), a[2] or "", a[3])
  end

  --- Copies the entries of a state dictionary into parameters and buffers.
  --- error: RuntimeError that lists every missing, unexpected (if strict) and
  --- ill-shaped entry
  ---@param state table<string, torch.Tensor>
  ---@param ... any strict (true)
  ---@return {missing_keys: string[], unexpected_keys: string[]}
  function M:load_state_dict(state, ...)
    errors.check(type(state) == "table", "TypeError",
      "Expected state_dict to be dict-like, got %s.", check.describe(state))
    local strict = check.arguments("load_state_dict", { "strict" }, nil, ...)[1] ~= false
    local missing, unexpected, messages, wanted = {}, {}, {}, {}
    take(self, state, "", wanted, missing, messages)
    for key in pairs(state) do
      if not wanted[key] then
        unexpected[#unexpected + 1] = key
      end
    end
    if not ordered.is_dict(state) then
      table.sort(unexpected)
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
    return setmetatable({ missing_keys = missing, unexpected_keys = unexpected }, Keys)
  end

  return M
end
