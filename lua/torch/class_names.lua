--- Names that a file may call classes and functions by, and what they are here.
---
--- A class of the library is called by its place ("torch.nn.Linear"), one that a
--- script made by the name that it was given: where several have that name it is
--- the last one, as a name of a Python module is what was bound to it last.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

-- {prefix, table}: tables of the library whose classes and functions have names.
local spaces = {}
-- name -> {class, where its extend was called}; and that of each class
local made, place_of = {}, setmetatable({}, { __mode = "k" })
-- function -> name, and back, beside those of the spaces
local named = {}

--- Classes and functions in `space` are called PREFIX.NAME.
---@param prefix string
---@param space table
function M.space(prefix, space)
  spaces[#spaces + 1] = { prefix = prefix, space = space }
end

--- A function that is in no table of the library gets a name.
---@param name string
---@param fn function
function M.note_function(name, fn)
  named[name] = fn
end

--- Sub-classes of the class are found by their names from now on.
---@param base table
function M.watch(base)
  local extend = base.extend
  --- A sub-class, of that name: its init(...) and other methods are yours.
  ---@param cls table
  ---@param name string
  ---@return table
  function base.extend(cls, name)
    local sub = extend(cls, name)
    local info = debug.getinfo(2, "Sl")
    place_of[sub] = ("%s:%d"):format(info.short_src, info.currentline)
    made[name] = sub
    return sub
  end
end

-- Classes whose instances, and those of their sub-classes, are data.
local data = {}

--- Instances of the class and of its sub-classes may be in files: what their fields
--- hold is plain data. Sub-classes are found by their names from now on.
---@param base table
function M.note_data(base)
  data[#data + 1] = base
  M.watch(base)
end

--- Whether the class is one that note_data has told of.
---@param cls any
---@return boolean
function M.is_data(cls)
  for _, base in ipairs(data) do
    if base:is_base_of(cls) then
      return true
    end
  end
  return false
end

-- The place of a value in a table of the library.
local function in_space(value, name)
  for _, s in ipairs(spaces) do
    if name then
      if rawget(s.space, name) == value then
        return s.prefix .. "." .. name
      end
    else
      for key, v in next, s.space do
        if v == value and type(key) == "string" then
          return s.prefix .. "." .. key
        end
      end
    end
  end
  return nil
end

--- What a file calls a class; errors say that it cannot.
---@param cls table
---@param where string for messages
---@return string
function M.name_of(cls, where)
  local name = in_space(cls, cls.__name)
  local last = made[cls.__name]
  errors.check(name or last == cls or last and place_of[last] == place_of[cls], "TypeError",
    "%s: another class was called '%s' after this one (%s and %s): a file cannot tell them apart",
    where, cls.__name, tostring(place_of[cls]), tostring(place_of[last]))
  return name or cls.__name
end

-- What the library has at a place.
local function at_place(name)
  for _, s in ipairs(spaces) do
    local own = name:sub(1, #s.prefix + 1) == s.prefix .. "." and name:sub(#s.prefix + 2)
    local value = own and rawget(s.space, own) or nil
    if value ~= nil then
      return value
    end
  end
  return nil
end

--- The class that a file calls so.
--- error: AttributeError if there is none here
---@param name string
---@param where string for messages
---@return table
function M.class(name, where)
  errors.check(type(name) == "string", "ValueError", "%s: a class without a name", where)
  local found = at_place(name)
  found = class.is_class(found) and found or made[name]
  if found then
    return found
  end
  return errors.raise("AttributeError", "%s: there is no class '%s': run the script that makes it "
    .. "before%s", where, name, check.nearest(name, tables.keys(made)))
end

--- What a file calls a function; nil for one without a name.
---@param fn function
---@return string?
function M.function_name(fn)
  for name, f in pairs(named) do
    if f == fn then
      return name
    end
  end
  return in_space(fn)
end

--- The function that a file calls so.
--- error: AttributeError if there is none here
---@param name string
---@param where string for messages
---@return function
function M.named_function(name, where)
  local found = type(name) == "string" and (named[name] or at_place(name))
  return errors.check(type(found) == "function" and found, "AttributeError",
    "%s: there is no function '%s'", where, tostring(name))
end

local function is_plain(v, depth)
  local kind = type(v)
  if kind == "table" and not getmetatable(v) and depth < 10 then
    for key, value in next, v do
      if not (is_plain(key, depth + 1) and is_plain(value, depth + 1)) then
        return false
      end
    end
    return true
  end
  return kind == "nil" or kind == "boolean" or kind == "number" or kind == "string"
end

--- Arguments that are plain data, packed; nil if one is not.
---@param ... any
---@return {n: integer}?
function M.plain(...)
  local all = table.pack(...)
  for i = 1, all.n do
    if not is_plain(all[i], 0) then
      return nil
    end
  end
  return all
end

return M
