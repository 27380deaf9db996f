--- The machine behind Options and its groups: a class whose setters, readable
--- properties, printing, dictionary form and documentation all come from one
--- list of rows. A row is
---
---   name      the setter                       "deviceIterations"
---   key       the property and toDict's key    "device_iterations"
---   params    the setter's parameters          { key } unless given; one that is
---             not the property: { name, kind =, … } as in a row, `default` also a text
---   kind      "int", "bool", "string", "number", "table", an enum or a class
---   min, max  ends of a number's range
---   default   value of a fresh object
---   omitted   value of a parameter that is left out ("b=True")
---   nullable  nil is a value
---   error     class raised for a bad value     "AssertionError" unless given
---   popart    the value lives in the session options under this name;
---             `to`/`from` convert it
---   set       function(self, values, given, row) in place of storing values[1]
---   assign    function(self, value) in place of storing what is assigned to a
---             property that another row's setter writes
---   varargs   the parameters are one list, `values`
---   tables    set of parameters that take a table with string keys
---   unfrozen  may be called on frozen options
---   run_time  acts on a program that was compiled before (poptorch.load)
---   doc       what it is
---   effect    what it does to the simulated system, or where else it acts
---   no_effect in place of effect: why it does nothing. A report notes it where
---             the value is not the default
---   idle      function(value, program, row): why it does nothing in this program
---             (options, training, report, vars, casting), and a name in place of the row's;
---             nil where it acts
---   source    where it is documented if not in the API reference
---
--- A row without `name` is a property that the row `setter` writes.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local enum = require("lupine.base.enum")
local errors = require("lupine.base.errors")

local Group = class.new("OptionsGroup")
rawset(Group, "_rows", {})
rawset(Group, "_by_key", {})

local function root(self)
  return rawget(self, "_owner") or self
end

local function checked(row, value, where)
  local kind = row.kind
  local opts = { error = row.error or "AssertionError", nullable = row.nullable,
    min = row.min, max = row.max, except = row.except }
  if enum.is_enum(kind) then
    return check.enum(value, where, kind, opts)
  elseif class.is_class(kind) then
    return check.instance(value, where, kind, opts)
  end
  return check[kind == "table" and "plain_table" or kind](value, where, opts)
end

local function where_of(row, param)
  return ("%s(%s)"):format(row.name, param or row.params[1])
end

--- Stores a checked value; `set` functions of rows use it.
function Group:_store(row, value)
  if row.popart then
    root(self)._Popart:_put(row.popart, row.to and row.to(value) or value)
  else
    self._values[row.key] = value
  end
end

--- Values that it starts with, by their names in dictionaries (of settings of
--- locations) or of properties.
--- error: AssertionError for an unknown name
---@param default_values? table<string, any>
function Group:init(default_values)
  local name = getmetatable(self).__name
  for key, value in pairs(check.plain_table(default_values or {}, name)) do
    local found, allowed = nil, {}
    for _, row in ipairs(self._rows) do
      allowed[#allowed + 1] = row.dict or row.key
      found = (row.dict or row.key) == key and row or found
    end
    errors.check(found, "AssertionError", "%s has no value '%s'%s", name, tostring(key),
      check.nearest(key, allowed))
    if found.kind == "bool" and type(value) == "number" then
      value = value ~= 0
    end
    self[found.key] = value
  end
end

--- The row of a property of this group.
function Group:_row(key)
  return getmetatable(self)._by_key[key]
end

--- Checks one argument of a setter: as its parameter says, or as this kind.
function Group._argument(row, param, value, kind, extra)
  local probe = { kind = kind, error = row.error }
  for k, v in pairs(extra or not kind and row.takes[param] or {}) do
    probe[k] = v
  end
  return checked(probe, value, where_of(row, param))
end

function Group:_read(row)
  if not row.popart then
    return self._values[row.key]
  end
  local value = root(self)._Popart._options[row.popart]
  if value == nil then
    return row.default
  elseif row.from then
    return row.from(value)
  elseif row.kind == "bool" and type(value) == "number" then
    return value ~= 0 -- session options may be written as numbers
  end
  return value
end

--- Whether a property has the value of fresh options.
function Group:_is_default(row)
  local value, default = self:_read(row), row.default
  local cls = class.of(default)
  return value == default or cls and cls.same and default:same(value)
    or not cls and Group.shown(value) == Group.shown(default)
end

--- Raises if the options are frozen.
function Group:_writable(what)
  local frozen = root(self)._frozen
  if frozen then
    errors.raise("AttributeError",
      "%s: these options can no longer be changed: they were given to %s; "
      .. "options:clone() makes a copy that can", what, frozen)
  end
end

local function set_one(self, values, given, row)
  local value = values[1]
  if not given[row.params[1]] or value == nil and row.omitted ~= nil then
    if row.omitted == nil and not row.nullable then
      errors.raise("TypeError", "%s: %s is missing", row.name, row.params[1])
    end
    value = row.omitted
  end
  self:_store(row, checked(row, value, where_of(row)))
end

local function make_setter(row)
  local set = row.set or set_one
  return function(self, ...)
    if not Group:is(self) then
      errors.raise("TypeError", "%s is a method: call it with a colon, options:%s(...)",
        row.name, row.name)
    end
    if not row.unfrozen then
      self:_writable(row.name)
    end
    if row.varargs then
      set(self, table.pack(...), {}, row)
    else
      local values, given = check.arguments(row.name, row.params, row.tables, ...)
      set(self, values, given, row)
    end
    return self
  end
end

--- A group class from its rows.
---@param name string   as Python prints the class, "_TrainingOptions"
---@param rows table[]
---@param base? table   a class made by this function
---@return table class
function Group.define(name, rows, base)
  local cls = (base or Group):extend(name)
  rawset(cls, "_rows", rows)
  local by_key = {}
  for _, row in ipairs(rows) do
    row.takes = {}
    for i, param in ipairs(row.params or { row.key }) do
      local own = type(param) == "table"
      row.takes[own and param[1] or param] = own and param or row
      if own then
        row.params[i] = param[1]
      end
    end
    row.params = row.params or { row.key }
    if row.key then
      by_key[row.key] = row
    end
    if row.name then
      cls[row.name] = make_setter(row)
    end
  end
  rawset(cls, "_by_key", by_key)
  return cls
end

--- All options at their defaults.
function Group:setup()
  rawset(self, "_values", {})
  rawset(self, "_frozen", false)
  rawset(self, "_owner", false)
  for _, row in ipairs(getmetatable(self)._rows) do
    if row.key and not row.popart then
      local default = row.default
      self._values[row.key] = getmetatable(default) and default or class.copy(default)
    end
  end
end

local function known_names(self)
  local names = {}
  for _, row in ipairs(getmetatable(self)._rows) do
    names[#names + 1] = row.name
    names[#names + 1] = row.key
  end
  for key in next, self do -- the groups
    names[#names + 1] = type(key) == "string" and not key:find("^_") and key or nil
  end
  return names
end

-- What was meant by assigning to a name that cannot be: the method that sets
-- this property, the property of a method, or a near name.
local function meant(self, key)
  local setter = self:_row(key) and self:_row(key).setter
  if setter then
    return (": options:%s(…) sets it"):format(setter)
  end
  for _, row in ipairs(getmetatable(self)._rows) do
    if row.name == key and row.key and row.key ~= key then
      return (": it is a method, options:%s(value); the property is %s"):format(key, row.key)
    end
  end
  return check.nearest(key, known_names(self))
end

function Group.__index(self, key)
  local cls = getmetatable(self)
  local found = cls[key]
  if found ~= nil then
    return found
  end
  local row = cls._by_key[key]
  if row then
    return self:_read(row)
  end
  return errors.raise("AttributeError", "%s has no attribute '%s'%s", cls.__name,
    tostring(key), check.nearest(key, known_names(self)))
end

-- A setter with rules of its own keeps them; one without parameters has one
-- value only.
function Group:_assign(row, value)
  if row.set and row.name and #row.params > 0 then
    self[row.name](self, value)
    return
  end
  self:_writable(row.key)
  value = row.kind and checked(row, value, row.key) or value
  if row.assign then
    row.assign(self, value)
  else
    self:_store(row, value)
  end
end

function Group.__newindex(self, key, value)
  local cls = getmetatable(self)
  local row = cls._by_key[key]
  if row and (row.kind or row.nullable) then
    self:_assign(row, value)
    return
  end
  local private = type(key) == "string" and key:sub(1, 1) == "_"
  errors.raise(private and "AttributeError" or "AssertionError",
    "%s has no option '%s' to assign%s", cls.__name, tostring(key),
    meant(self, key))
end

local function shown(value)
  if type(value) == "string" then
    return ("%q"):format(value)
  elseif type(value) ~= "table" or getmetatable(value) then
    return tostring(value)
  end
  local parts, keys = {}, {}
  for k in pairs(value) do
    keys[#keys + 1] = k
  end
  table.sort(keys, function(a, b)
    return tostring(a) < tostring(b)
  end)
  for i, k in ipairs(keys) do
    parts[i] = math.type(k) == "integer" and shown(value[k])
      or ("%s=%s"):format(tostring(k), shown(value[k]))
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- "key=value" of every property.
function Group:_shown_values()
  local parts = {}
  for _, row in ipairs(getmetatable(self)._rows) do
    if row.key then
      parts[#parts + 1] = row.key .. "=" .. shown(self:_read(row))
    end
  end
  return parts
end

function Group.__tostring(self)
  return ("%s(%s)"):format(getmetatable(self).__name, table.concat(self:_shown_values(), ", "))
end

local function plain(value)
  if enum.is_member(value) then
    return value.value
  elseif Group:is(value) then
    return value:toDict()
  elseif type(value) == "table" and not getmetatable(value) then
    local out = {}
    for k, v in pairs(value) do
      out[k] = plain(v)
    end
    return out
  end
  return value
end

--- The values as a plain table: enum members as their numbers, unset options
--- left out. Values kept in the session options are listed there.
---@return table
function Group:toDict()
  local out = {}
  for _, row in ipairs(getmetatable(self)._rows) do
    if row.key and not row.popart then
      local value = self:_read(row)
      out[row.dict or row.key] = plain(value)
    end
  end
  return out
end

--- The `idle` of an option that acts in training alone.
---@param why string
---@return fun(value: any, program: table, row: table): string?
function Group.training_only(why)
  return function(value, program, row)
    return not program.training and value ~= row.default and why or nil
  end
end

--- The `idle` of an option that acts on hardware alone.
---@param why string
---@return fun(value: any, program: table, row: table): string?
function Group.hardware_only(why)
  return function(value, program, row)
    return not program.on_device and value ~= row.default and why or nil
  end
end

Group._checked = checked
Group.plain = plain
Group.shown = shown

return Group
