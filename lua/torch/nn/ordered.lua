--- Tables that remember the order of their keys.
---
--- `ordered.dict()` is what state_dict gives: a table by name whose `pairs`
--- goes through the names in the order in which they were set. Setting a name
--- to nil removes it. `ordered.dict(names, absent)` has names already, whose
--- values may be missing: `absent(name)` gives or raises what is said of them.
---
--- `ordered.registry()` is what a module keeps its parameters, buffers and
--- children in: a name may be registered without a value (None). By index and
--- in `pairs` it is the dictionary that it is in Python, `keys` and `values` and
--- the names of its methods apart: assigning nil removes a name.
local M = {}

-- dict -> list of its keys, and by key whether it was ever in the list; removed
-- keys stay in the list until they are set again.
local order = setmetatable({}, { __mode = "k" })
local seen = setmetatable({}, { __mode = "k" })
-- dict -> function(key) for what has no value, where one was given
local absent = setmetatable({}, { __mode = "k" })

local Dict = { __name = "OrderedDict" }

function Dict.__newindex(t, key, value)
  if value == nil then
    return
  end
  local keys, known = order[t], seen[t]
  for i = known[key] and #keys or 0, 1, -1 do
    if keys[i] == key then -- was removed before
      table.remove(keys, i)
    end
  end
  known[key] = true
  keys[#keys + 1] = key
  rawset(t, key, value)
end

function Dict.__index(t, key)
  local f = absent[t]
  return f and f(key)
end

function Dict.__pairs(t)
  local keys, i = order[t], 0
  return function()
    repeat
      i = i + 1
      local key = keys[i]
      local value = key ~= nil and t[key]
      if key ~= nil and value ~= nil then
        return key, value
      end
    until key == nil
  end, t, nil
end

function Dict.__tostring(t)
  local parts = {}
  for _, key in ipairs(order[t]) do
    local value = rawget(t, key)
    if value ~= nil or absent[t] then
      parts[#parts + 1] = ("('%s', %s)"):format(tostring(key), tostring(value))
    end
  end
  return "OrderedDict([" .. table.concat(parts, ", ") .. "])"
end

--- A dictionary, empty or with names whose values rawset gives.
---@param names? string[] in order, each once
---@param get? fun(key: any): any asked for keys without a value; may raise
---@return table<string, any>
function M.dict(names, get)
  local t = setmetatable({}, Dict)
  order[t], seen[t], absent[t] = {}, {}, get
  for i, name in ipairs(names or {}) do
    order[t][i], seen[t][name] = name, true
  end
  return t
end

--- Whether a value is what dict gives.
---@param t any
---@return boolean
function M.is_dict(t)
  return type(t) == "table" and getmetatable(t) == Dict
end

--- The same entries in the same order; the values are shared.
---@param t table<string, any>
---@return table<string, any>
function M.copy(t)
  local out = M.dict()
  for key, value in pairs(t) do
    out[key] = value
  end
  return out
end

---@class torch.nn.Registry
---@field keys string[]
---@field values table<string, any> false: registered without a value
local Registry = {}
local registry_mt = { __name = "OrderedDict" }

function registry_mt.__index(self, key)
  local method = Registry[key]
  if method then
    return method
  end
  return rawget(self, "values")[key] or nil
end

function registry_mt.__newindex(self, key, value)
  if value == nil then
    self:remove(key)
  else
    self:set(key, value)
  end
end

function registry_mt.__pairs(self)
  local each, _, i = self:each()
  return function()
    local name, value
    i, name, value = each(self, i)
    return name, value
  end
end

--- An empty registry.
---@return torch.nn.Registry
function M.registry()
  return setmetatable({ keys = {}, values = {} }, registry_mt)
end

--- Whether a value is what registry gives.
---@param t any
---@return boolean
function M.is_registry(t)
  return getmetatable(t) == registry_mt
end

--- Sets a name, registering it if it is new: at the end, or as number `at`.
---@param name string
---@param value any
---@param at? integer
function Registry:set(name, value, at)
  if self.values[name] == nil then
    local behind = #self.keys + 1
    table.insert(self.keys, math.min(at or behind, behind), name)
  end
  self.values[name] = value or false
end

function Registry:remove(name)
  if self.values[name] == nil then
    return
  end
  self.values[name] = nil
  for i, key in ipairs(self.keys) do
    if key == name then
      table.remove(self.keys, i)
      return
    end
  end
end

-- The names that have a value.
local function step(self, i)
  local name
  repeat
    i = i + 1
    name = self.keys[i]
  until name == nil or self.values[name]
  if name ~= nil then
    return i, name, self.values[name]
  end
  return nil
end

--- for _, name, value in registry:each() do
function Registry:each()
  return step, self, 0
end

return M
