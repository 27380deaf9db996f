--- Classes whose instances raise for a name that they have not, with the nearest of those
--- that they have, instead of nil for it. Names that begin with "_" stay free.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")

local M = {}

-- What a script may write behind an object: fields, and methods of its class and bases.
local function names_of(self, more)
  local names, t = more or {}, self
  while t do
    for key, value in next, t do
      local open = type(key) == "string" and not key:find("^_")
      names[#names + 1] = open and (t == self or type(value) == "function") and key or nil
    end
    t = t == self and class.of(self) or rawget(t, "__base")
  end
  return names
end

--- Raises for a name that an object has not.
--- error: AttributeError
---@param self table an instance of a class
---@param key any
---@param more? string[] names of computed fields
function M.unknown(self, key, more)
  local names = names_of(self, more)
  local near = check.nearest(key, names)
  near = near ~= "" and near or check.nearest("get" .. tostring(key), names)
  errors.raise("AttributeError", "%s has no attribute '%s'%s", class.of(self).__name,
    tostring(key), near)
end

--- Closes a class and those that extend it from now on.
---@param cls table
---@param optional? table<string, boolean> fields that may be nil
---@return table cls
function M.close(cls, optional)
  optional = optional or {}
  function cls.__index(self, key)
    local value = getmetatable(self)[key]
    if value == nil and type(key) == "string" and not optional[key] and not key:find("^_") then
      M.unknown(self, key)
    end
    return value
  end
  return cls
end

return M
