--- What a checkpoint has of objects, and how they take it over.
---
--- An object has
---   state_dict(), load_state_dict(state)
--- or, where a state dict says less than going on takes (an optimizer's parameters by
--- name, what a device has),
---   checkpoint_state(name_of), load_checkpoint_state(state, name_of)
--- where name_of gives a parameter's name: "model.fc.weight" if the checkpoint's object
--- `model` has a parameter "fc.weight". States are plain data and tensors. A
--- torch.Generator is an object; anything else is a value.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

local function is_generator(x)
  local mt = type(x) == "userdata" and getmetatable(x)
  return mt and mt.__name == "torch.Generator"
end

-- A field; a wrapped model raises for names that it has not.
local function field(x, name)
  local found, value = pcall(function()
    return x[name]
  end)
  return found and value or nil
end

local function method(x, name)
  local value = field(x, name)
  return type(value) == "function" and value or nil
end

local GENERATOR = { save = "get_state", load = "set_state" }
local WHOLE = { save = "checkpoint_state", load = "load_checkpoint_state" }
local DICT = { save = "state_dict", load = "load_state_dict" }

-- How it is saved and loaded; nil: it is a value.
local function protocol(x)
  if is_generator(x) then
    return GENERATOR
  elseif type(x) ~= "table" then
    return nil
  end
  for _, names in ipairs({ WHOLE, DICT }) do
    if method(x, names.save) and method(x, names.load) then
      return names
    end
  end
  return nil
end

-- The name of each parameter that an object has, and which object that is.
local function naming(objects)
  local name_of = {}
  for _, name in ipairs(tables.keys(objects)) do
    local object = objects[name]
    local named = type(object) == "table" and method(object, "named_parameters")
    if named then
      for path, p in named(object, { remove_duplicate = false }) do
        name_of[p] = name_of[p] or name .. "." .. path
      end
    end
  end
  return function(p)
    return name_of[p]
  end
end

--- The states of objects and the values beside them.
--- error: what an object's state_dict raises
---@param objects table<string, any>
---@param where string for messages
---@return table<string, any> states
---@return string[] names which are objects'
function M.capture(objects, where)
  check.table(objects, where .. ": objects")
  local states, names, name_of = {}, {}, naming(objects)
  for _, name in ipairs(tables.keys(objects)) do
    require("lupine.checkpoint.folder").check_name(name, where)
    local object = objects[name]
    local p = protocol(object)
    if p then
      names[#names + 1] = name
      states[name] = object[p.save](object, p == WHOLE and name_of or nil)
    else
      states[name] = object
    end
  end
  return states, names
end

-- Modules first, optimizers over them, then the rest; what stands for a device after
-- those, and random numbers, which others may draw, at the end.
local function rank(object, p)
  if method(object, "named_parameters") then
    return p == WHOLE and 4 or 1
  end
  return field(object, "checkpoint_rank") or field(object, "param_groups") and 2 or 3
end

-- The names of objects in the order in which they take their states.
local function order(objects)
  local names, ranks = {}, {}
  for _, name in ipairs(tables.keys(objects)) do
    local p = protocol(objects[name])
    if p then
      names[#names + 1], ranks[name] = name, rank(objects[name], p)
    end
  end
  table.sort(names, function(a, b)
    if ranks[a] ~= ranks[b] then
      return ranks[a] < ranks[b]
    end
    return a < b
  end)
  return names
end

--- Gives objects their states.
--- errors: KeyError (one that the checkpoint has not), what load_state_dict raises
---@param objects table<string, any>
---@param states table<string, any>
---@param are_objects table<string, boolean> which of the states are objects'
---@param where string for messages
---@return table<string, any> values the states that are no objects'
function M.apply(objects, states, are_objects, where)
  local names, name_of, values = order(objects), naming(objects), {}
  for _, name in ipairs(names) do
    errors.check(states[name] ~= nil, "KeyError", "%s: there is no '%s'%s; it has %s", where, name,
      check.nearest(name, tables.keys(states)), table.concat(tables.keys(states), ", "))
  end
  for _, name in ipairs(names) do
    local object = objects[name]
    local p = protocol(object)
    errors.within(("%s: %s"):format(where, name), object[p.load], object, states[name],
      p == WHOLE and name_of or nil)
  end
  for name, value in next, states do
    if not are_objects[name] then
      values[name] = value
    end
  end
  return values
end

return M
