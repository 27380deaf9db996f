--- Modules and optimizers in files, beside plain data: as Python's pickle has
--- them, by the name of their class and by what is in them. Loading makes an
--- instance of the class that has this name here (torch/class_names.lua) and fills it:
--- `init` is not called and no code comes from the file.
---
--- A function is written by its name, if it is one of the library's; a hook may be an
--- object that is data. A parametrized module gets its own class for that anew. A module with
--- a field that cannot be written is made by its class's `init` with the arguments
--- that it was made with, if these are plain data, and then filled.
---
--- Descriptions, beside those of torch/serialization.lua:
---   {"module": CLASS, "id": n, "fields": map, "parameters": [[name, tensor], …],
---    "buffers", "modules", "transient": [name, …], "hooks": [[list, map], …],
---    "init": [arguments], "left": [name, …], "parametrized": true}
---   {"again": n}           the module or object of that id
---   {"optimizer": CLASS, "fields": map, "groups": [map, …], "state": [[tensor, map], …]}
---   {"function": NAME}, {"class": NAME}
---   {"object": CLASS, "id": n, "fields": map}, {"enum": MEMBER}    that M.note has, or
---                          an instance of data (torch/class_names.lua)
local class = require("lupine.base.class")
local classes = require("torch.class_names")
local core = require("lupine.core")
local enum = require("lupine.base.enum")
local errors = require("lupine.base.errors")
local groups = require("torch.optim.groups")
local Module = require("torch.nn.module")
local Optimizer = require("torch.optim.optimizer")
local ordered = require("torch.nn.ordered")
local parametrize = require("torch.nn.utils.parametrize")
local serialization = require("torch.serialization")
local tables = require("lupine.base.tables")

local M = {}

local array = tables.array

local describe, join = serialization.describe_part, serialization.join
local restore, damaged = serialization.restore_part, serialization.damaged

require("torch.nn.utils") -- its classes are found by their names
for _, space in ipairs({ "torch.nn", "torch.optim", "torch.nn.functional", "torch" }) do
  classes.space(space, require(space))
end

-- class -> name, and back: plain objects of the library. Enumerations by name.
local noted = {}

--- Instances of the class, whose fields are plain data, may be in files; or
--- members of the enumeration.
---@param name string
---@param cls table
function M.note(name, cls)
  noted[cls], noted[name] = name, cls
end

local function is_noted(v)
  local cls = enum.is_member(v) and enum.of(v) or class.of(v)
  return cls and (noted[cls] or class.is_class(cls) and classes.is_data(cls))
end

-- ---- what can be written ------------------------------------------------------------

-- Whether describe takes a value; of modules it is asked later.
local function is_writable(v, depth)
  if type(v) == "function" then
    return classes.function_name(v) ~= nil
  elseif type(v) == "userdata" then
    return core.is_tensor(v) or v == core.none or tostring(v):find("^torch%.%w+$") ~= nil
  elseif type(v) ~= "table" then
    return type(v) ~= "thread"
  elseif Module:is(v) or is_noted(v) or class.is_class(v) then
    return true
  elseif depth > 60 then
    return false
  end
  local mt = getmetatable(v)
  if mt and not ordered.is_dict(v) and mt ~= getmetatable(core.Size({})) then
    return false
  end
  for key, value in next, v do
    if type(key) == "table" or not is_writable(value, depth + 1) then
      return false
    end
  end
  return true
end

-- ---- modules ------------------------------------------------------------------------

local LISTS = { "_pre_hooks", "_hooks", "_state_hooks", "_state_pre_hooks", "_load_hooks",
  "_load_pre_hooks" }

local function title(w, module, path)
  return ("%s: module '%s' (%s)"):format(w.where, path, getmetatable(module).__name)
end

-- Hooks whose functions have names.
local function describe_hooks(w, module, path, depth)
  local out = array({})
  local backward = rawget(module, "_backward_hooks")
  errors.check(not backward or #backward.pre + #backward.full == 0, "TypeError",
    "%s has a hook of its gradients, which a file cannot hold", title(w, module, path))
  for _, name in ipairs(LISTS) do
    for _, entry in ipairs(rawget(module, name) or {}) do
      errors.check(is_writable(entry, 0), "TypeError",
        "%s has a hook (%s), which a file cannot hold", title(w, module, path), name)
      out[#out + 1] = array({ name, describe(w, class.copy(entry), join(path, name), depth + 1) })
    end
  end
  return #out > 0 and out or nil
end

local function describe_registry(w, registry, path, depth)
  local out = array({})
  for i, name in ipairs(registry.keys) do
    out[i] = array({ name, describe(w, registry.values[name] or core.none, join(path, name),
      depth + 1) })
  end
  return #out > 0 and out or nil
end

-- Fields by kind: those that can be written, and names of the others.
local function sort_fields(module)
  local fields, left = {}, {}
  for name, value in pairs(module._fields) do
    if is_writable(value, 0) then
      fields[name] = value
    else
      left[#left + 1] = name
    end
  end
  table.sort(left)
  return fields, left
end

local function describe_init(w, module, left, path, depth)
  local arguments = rawget(module, "_arguments")
  errors.check(arguments, "TypeError", "%s: its field '%s' is a %s, which a file cannot hold, and "
    .. "its init was not given plain data (numbers, strings, booleans and tables of them) alone, "
    .. "so that it cannot be made anew", title(w, module, path), left[1],
    type(module._fields[left[1]]))
  local list = array({})
  for i = 1, arguments.n do
    list[i] = describe(w, arguments[i] == nil and core.none or arguments[i],
      join(path, "init"), depth + 1)
  end
  return list
end

local function names_of(set)
  local out = array(tables.keys(set))
  return #out > 0 and out or nil
end

-- The number of a module or object, and whether it has been described.
local function id_of(w, object)
  w.ids = w.ids or { n = 0 }
  if w.ids[object] then
    return w.ids[object], true
  end
  w.ids.n = w.ids.n + 1
  w.ids[object] = w.ids.n
  return w.ids.n, false
end

local function describe_module(w, module, path, depth)
  local id, again = id_of(w, module)
  if again then
    return { again = id }
  end
  local fields, left = sort_fields(module)
  local cls = parametrize.type_before_parametrizations(module)
  local out = { module = classes.name_of(cls, title(w, module, path)), id = id,
    parametrized = parametrize.is_parametrized(module) or nil,
    hooks = describe_hooks(w, module, path, depth) }
  if #left > 0 then
    out.left, out.init = array(left), describe_init(w, module, left, path, depth)
  end
  out.fields = describe(w, fields, path, depth + 1)
  out.transient = names_of(module._transient)
  for _, name in ipairs({ "parameters", "buffers", "modules" }) do
    out[name] = describe_registry(w, module["_" .. name], path, depth + 1)
  end
  return out
end

-- ---- optimizers ---------------------------------------------------------------------

-- Fields that describe_optimizer has apart, or that are of this process alone.
local OWN = { param_groups = true, state = true, _link = true, _pre_hooks = true,
  _post_hooks = true, _state_hooks = true }

local function describe_optimizer(w, optimizer, path, depth)
  local cls = getmetatable(optimizer)
  local where = ("%s: %s"):format(w.where, cls.__name)
  local fields, list, state = {}, array({}), array({})
  for name, value in next, optimizer do
    fields[name] = not OWN[name] and value or nil
  end
  for i, group in ipairs(optimizer.param_groups) do
    local plain = {}
    for name, value in next, group do
      plain[name] = value
    end
    list[i] = describe(w, plain, join(path, "group"), depth + 1)
    for k, p in ipairs(group.params) do
      if rawget(optimizer.state, p) then
        state[#state + 1] = array({ describe(w, p, join(path, "params"), depth + 1),
          describe(w, class.copy(rawget(optimizer.state, p)), ("%s.%d.%d"):format(path, i - 1,
            k - 1), depth + 1) })
      end
    end
  end
  return { optimizer = classes.name_of(cls, where), groups = list, state = state,
    fields = describe(w, fields, path, depth + 1) }
end

-- ---- all ----------------------------------------------------------------------------

local function describe_object(w, v, path, depth)
  if enum.is_member(v) then
    return { enum = tostring(v) }
  end
  local id, again = id_of(w, v)
  if again then
    return { again = id }
  end
  local fields = {}
  for name, value in next, v do
    fields[name] = value
  end
  local cls = getmetatable(v)
  return { object = noted[cls] or classes.name_of(cls, ("%s: %s"):format(w.where, path)), id = id,
    fields = describe(w, fields, path, depth + 1) }
end

-- A tensor that is there again is written once.
local function describe_tensor(w, t, path)
  w.known = w.known or {}
  w.known[t] = w.known[t] or serialization.describe_tensor(w, t, path)
  return w.known[t]
end

local function describe_more(w, v, path, depth)
  if core.is_tensor(v) then
    return describe_tensor(w, v, path)
  elseif type(v) == "function" then
    local name = classes.function_name(v)
    return name and { ["function"] = name }
  elseif class.is_class(v) then
    return { class = classes.name_of(v, ("%s: %s"):format(w.where, path)) }
  elseif Module:is(v) then
    return describe_module(w, v, path, depth)
  elseif Optimizer:is(v) then
    return describe_optimizer(w, v, path, depth)
  end
  return is_noted(v) and describe_object(w, v, path, depth) or nil
end

--- The description of a value of plain data, modules and optimizers, and the
--- names and tensors that it speaks of.
--- error: TypeError naming the place of what a file cannot hold
---@param value any
---@param where string for messages
---@return any description for json_encode
---@return {names: string[], tensors: torch.Tensor[]}
function M.describe(value, where)
  return serialization.describe(value, where, describe_more)
end

-- ---- loading ------------------------------------------------------------------------

local function list_of(r, d, what)
  if d == nil then
    return {}
  elseif getmetatable(d) ~= core.json_array then
    damaged(r, what .. " is no list")
  end
  return d
end

local function table_of(r, d, what)
  local t = restore(r, d)
  if type(t) ~= "table" or getmetatable(t) then
    damaged(r, what .. " is no table")
  end
  return t
end

local function restore_registry(r, d, kind, is)
  local out = ordered.registry()
  for _, entry in ipairs(list_of(r, d, kind)) do
    if getmetatable(entry) ~= core.json_array or type(entry[1]) ~= "string" then
      damaged(r, kind .. " holds what is no pair")
    end
    local value = restore(r, entry[2])
    if value ~= core.none and not is(value) then
      damaged(r, ("'%s' is none of the %s"):format(entry[1], kind))
    end
    out:set(entry[1], value ~= core.none and value)
  end
  return out
end

-- The instance that is to be filled: blank, or as `init` makes it.
local function instance_of(r, d)
  local cls = classes.class(d.module, r.where)
  if not Module:is_base_of(cls) then
    damaged(r, ("'%s' is no class of modules"):format(d.module))
  elseif not d.init then
    return Module._blank(cls)
  end
  local given = list_of(r, d.init, "init")
  local arguments = { n = #given }
  for i, v in ipairs(given) do
    local value = restore(r, v)
    if value ~= core.none then
      arguments[i] = value
    end
  end
  local module = cls(table.unpack(arguments, 1, arguments.n))
  for _, name in ipairs(list_of(r, d.left, "left")) do
    errors.check(module._fields[name] ~= nil, "AttributeError", "%s: '%s' had a field '%s', which "
      .. "its init does not make any more", r.where, d.module, tostring(name))
  end
  return module
end

local LISTED = tables.set(LISTS)

local function is_callable(fn)
  local mt = type(fn) == "table" and getmetatable(fn)
  return type(fn) == "function" or mt and mt.__call ~= nil
end

local function restore_hooks(r, d, module)
  for _, name in ipairs(LISTS) do
    rawset(module, name, nil)
  end
  for _, entry in ipairs(list_of(r, d.hooks, "hooks")) do
    local name = getmetatable(entry) == core.json_array and entry[1]
    local hook = LISTED[name] and table_of(r, entry[2], "a hook")
    if not hook or not is_callable(hook.fn) then
      damaged(r, "hooks hold what is none")
    end
    local list = rawget(module, name) or {}
    rawset(module, name, list)
    list[#list + 1] = hook
  end
end

local function is_tensor(v)
  return core.is_tensor(v)
end

local function is_module(v)
  return Module:is(v)
end

-- What is made has a number, by which it may be there again.
local function number(r, d, made)
  r.made = r.made or {}
  if math.type(d.id) ~= "integer" or r.made[d.id] then
    damaged(r, "the id of an object")
  end
  r.made[d.id] = made
  return made
end

local function restore_module(r, d)
  local module = number(r, d, instance_of(r, d))
  for name, value in pairs(table_of(r, d.fields, "fields")) do
    module._fields[name] = value
  end
  module._transient = {}
  for _, name in ipairs(list_of(r, d.transient, "transient")) do
    module._transient[name] = true
  end
  rawset(module, "_parameters", restore_registry(r, d.parameters, "parameters", core.is_parameter))
  rawset(module, "_buffers", restore_registry(r, d.buffers, "buffers", is_tensor))
  rawset(module, "_modules", restore_registry(r, d.modules, "modules", is_module))
  restore_hooks(r, d, module)
  if d.parametrized then
    parametrize._inject(module)
  end
  return module
end

local function restore_again(r, d)
  return r.made and r.made[d.again] or damaged(r, "an object that is not there again")
end

local function restore_optimizer(r, d)
  local cls = classes.class(d.optimizer, r.where)
  if not Optimizer:is_base_of(cls) then
    damaged(r, ("'%s' is no class of optimizers"):format(tostring(d.optimizer)))
  end
  local out = Optimizer._blank(cls)
  for name, value in pairs(table_of(r, d.fields, "fields")) do
    if OWN[name] then
      damaged(r, "a field of an optimizer")
    end
    rawset(out, name, value)
  end
  for i, group in ipairs(list_of(r, d.groups, "groups")) do
    out.param_groups[i] = groups.complete(out, table_of(r, group, "a group"))
  end
  for _, entry in ipairs(list_of(r, d.state, "state")) do
    local param = getmetatable(entry) == core.json_array and restore(r, entry[1])
    if not is_tensor(param) then
      damaged(r, "a state of no parameter")
    end
    out.state[param] = table_of(r, entry[2], "a state")
  end
  return out
end

local function restore_object(r, d)
  local cls = noted[d.object] or classes.class(d.object, r.where)
  if not class.is_class(cls) or not (noted[cls] or classes.is_data(cls)) then
    damaged(r, "an object of a class that files do not hold")
  end
  local made = number(r, d, {})
  for name, value in pairs(table_of(r, d.fields, "fields")) do
    made[name] = value
  end
  return setmetatable(made, cls)
end

local function restore_member(r, d)
  local name, member = tostring(d.enum):match("^(%a+)%.(%w+)$")
  for _, m in ipairs(enum.is_enum(noted[name]) and noted[name]:members() or {}) do
    if m.name == member then
      return m
    end
  end
  return damaged(r, "a member of an enumeration")
end

local KINDS = {
  module = restore_module,
  again = restore_again,
  optimizer = restore_optimizer,
  object = restore_object,
  enum = restore_member,
  class = function(r, d)
    return classes.class(d.class, r.where)
  end,
  ["function"] = function(r, d)
    return classes.named_function(d["function"], r.where)
  end,
}

--- The value that a description and its tensors tell.
--- error: AttributeError for a class that is not here; ValueError for a damaged
--- description
---@param description any from json_decode
---@param names string[]
---@param tensors torch.Tensor[]
---@param where string for messages
---@return any
function M.restore(description, names, tensors, where)
  return serialization.restore(description, names, tensors, where, KINDS)
end

return M
