--- Classes: one helper for every class that a script sees.
---
---     local Net = nn.Module:extend("Net")
---     function Net:init(size) ... end
---     local net = Net(10)
---
--- A class is the metatable of its instances and its own __index, so a method
--- is found without a function call. `X:extend` copies the metamethods that
--- the base has at that moment (define them before extending) and reaches
--- everything else through the base. A class whose fields are computed sets
--- `__index` and `__newindex` to functions; sub-classes inherit those too and
--- find their own methods through `getmetatable(self)`, which is their class.
---
--- Construction: `X(...)` calls `X:new(...)`, which makes the instance, calls
--- `setup` (inherited; for what must hold although a sub-class's `init` does
--- not call its base) and then `init(...)`. A class may replace `new` to give
--- back something else.
require("lupine.base.environment") -- whatever is loaded first soon comes here

local class = {}

local statics = {}
local class_mt = {}

local function is_class(v)
  return type(v) == "table" and getmetatable(v) == class_mt
end

--- The class of an instance, or nil.
---@param obj any
---@return table?
function class.of(obj)
  if type(obj) ~= "table" then
    return nil
  end
  local mt = getmetatable(obj)
  return is_class(mt) and mt or nil
end

class.is_class = is_class

function class_mt.__index(cls, key)
  local base = rawget(cls, "__base")
  if base then
    return base[key]
  end
  return statics[key]
end

-- Python's names of what Lua spells otherwise; nothing would call them.
local RENAMED = { __init__ = "init", __call__ = "__call", __repr__ = "__tostring",
  __str__ = "__tostring" }

function class_mt.__newindex(cls, key, value)
  if RENAMED[key] then
    error(("%s.%s is never called: in Lua it is %s"):format(cls.__name, key, RENAMED[key]), 2)
  end
  rawset(cls, key, value)
end

function class_mt.__call(cls, ...)
  return cls:new(...)
end

function class_mt.__tostring(cls)
  return "class " .. cls.__name
end

function statics.new(cls, ...)
  if not is_class(cls) then
    error("new is a method of the class: call the class itself, Name(...), or Name:new(...)", 2)
  end
  local self = setmetatable({}, cls)
  self:setup()
  self:init(...)
  return self
end

function statics.setup() end

function statics.init() end

--- A sub-class.
---@param name string shown by tostring and in errors
---@return table
function statics.extend(cls, name)
  if not is_class(cls) then
    error("extend is called on a class, with a colon: Base:extend(\"Name\")", 2)
  end
  if type(name) ~= "string" then
    error(("extend: the class needs a name (string), got %s"):format(type(name)), 2)
  end
  local sub = {}
  for key, value in next, cls do
    if type(key) == "string" and key:sub(1, 2) == "__" then
      sub[key] = value
    end
  end
  sub.__name = name
  sub.__base = cls
  if rawget(cls, "__index") == cls then
    sub.__index = sub
  end
  return setmetatable(sub, class_mt)
end

--- A second base: its own methods come before those that cls inherits (define
--- them before this), and `is` and `is_base_of` know of it.
---@param cls table
---@param other table
function class.mix(cls, other)
  for key, value in next, other do
    if key:sub(1, 2) ~= "__" then
      cls[key] = value
    end
  end
  cls.__mixed = other
end

local function is_below(sub, cls)
  while sub do
    if sub == cls or rawget(sub, "__mixed") == cls then
      return true
    end
    sub = rawget(sub, "__base")
  end
  return false
end

--- True for an instance of the class or of a sub-class; false for anything
--- else, of any type.
---@param obj any
---@return boolean
function statics.is(cls, obj)
  return is_below(class.of(obj), cls)
end

--- True for the class itself and its sub-classes.
---@param other any
---@return boolean
function statics.is_base_of(cls, other)
  return is_class(other) and is_below(other, cls)
end

--- A class without a base.
---@param name string
---@return table
function class.new(name)
  local cls = { __name = name }
  cls.__index = cls
  function cls.__tostring(self)
    return getmetatable(self).__name
  end
  return setmetatable(cls, class_mt)
end

--- A deep copy of plain tables and of instances of classes; everything else
--- (functions, userdata, classes, tables with a foreign metatable) is shared.
---@generic T
---@param value T
---@param seen? table<table, table> copies made so far
---@return T
function class.copy(value, seen)
  if type(value) ~= "table" or is_class(value) then
    return value
  end
  local mt = getmetatable(value)
  if mt and not is_class(mt) then
    return value
  end
  seen = seen or {}
  if seen[value] then
    return seen[value]
  end
  local out = {}
  seen[value] = out
  for k, v in next, value do
    out[class.copy(k, seen)] = class.copy(v, seen)
  end
  return mt and setmetatable(out, mt) or out
end

return setmetatable(class, {
  __call = function(_, name)
    return class.new(name)
  end,
})
