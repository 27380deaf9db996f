--- Enumerations whose members are values of their own kind: they are equal
--- only to themselves, print as `OutputMode.Final`, and have `name` and
--- `value`. Members are made once; neither they nor the enumeration can be
--- changed.
---
---     local Mode = enum("Mode", { "Fast", "Slow" })       -- 0, 1
---     local Kind = enum("Kind", { { "A", 0 }, { "B", 2 } })
---     Mode.Fast.value == 0   Mode(1) == Mode.Slow   Mode:is(x)   Mode:members()
---
--- As in Python a second name of a value is another name of its member.
require("lupine.base.environment") -- also where this file is loaded first

local enum = {}

local member_mt = { __name = "enum member" }
local enum_mt = { __name = "enum" }
local data = setmetatable({}, { __mode = "k" }) -- enumeration -> its tables

local function readonly(self)
  require("lupine.base.errors").raise("AttributeError", "%s cannot be changed", tostring(self))
end

member_mt.__index = function(self, key)
  return data[self][key]
end
member_mt.__newindex = readonly
member_mt.__tostring = function(self)
  return data[self].text
end

local methods = {}

--- True for a member of this enumeration.
function methods.is(self, v)
  return getmetatable(v) == member_mt and data[v].enum == self
end

--- The members, in the order of their definition.
function methods.members(self)
  return { table.unpack(data[self].list) }
end

enum_mt.__index = function(self, key)
  local found = data[self].by_name[key] or methods[key]
  if found == nil then
    require("lupine.base.errors").raise("AttributeError", "%s has no member '%s'%s",
      data[self].name, tostring(key),
      require("lupine.base.check").nearest(key, data[self].names))
  end
  return found
end
-- For completion and help.
enum_mt.__members = function(self)
  return { data[self].by_name, methods }
end
enum_mt.__newindex = readonly
enum_mt.__tostring = function(self)
  return data[self].name
end
enum_mt.__call = function(self, value)
  for _, m in ipairs(data[self].list) do
    if data[m].value == value or m == value then
      return m
    end
  end
  return require("lupine.base.errors").raise("ValueError",
    "%s is not a value of %s; allowed are %s", tostring(value), data[self].name,
    table.concat(data[self].names, ", "))
end

--- True for a member of any enumeration.
---@param v any
---@return boolean
function enum.is_member(v)
  return getmetatable(v) == member_mt
end

--- True for an enumeration itself.
---@param v any
---@return boolean
function enum.is_enum(v)
  return getmetatable(v) == enum_mt
end

--- Its own name, and the source that defines it, for help.
---@param self table an enumeration
---@return string name
---@return string source
function enum.origin(self)
  return data[self].name, data[self].source
end

--- The enumeration a member belongs to.
---@param member table
---@return table enumeration
function enum.of(member)
  return data[member].enum
end

local function add(self, d, name, value)
  for _, m in ipairs(d.list) do
    if data[m].value == value then
      d.by_name[name] = m
      return
    end
  end
  local m = setmetatable({}, member_mt)
  data[m] = { name = name, value = value, enum = self, text = d.name .. "." .. name }
  d.by_name[name] = m
  d.list[#d.list + 1], d.names[#d.names + 1] = m, name
end

local function make(_, name, spec)
  local self = setmetatable({}, enum_mt)
  local d = { name = name, by_name = {}, list = {}, names = {},
    source = debug.getinfo(2, "S").source }
  data[self] = d
  for i, entry in ipairs(spec) do
    if type(entry) == "table" then
      add(self, d, entry[1], entry[2])
    else
      add(self, d, entry, i - 1)
    end
  end
  return self
end

return setmetatable(enum, { __call = make })
