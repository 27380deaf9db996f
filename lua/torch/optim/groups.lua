--- The parameter groups of an optimizer: what its constructor and
--- add_param_group take.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local warn = require("lupine.base.warn")

local M = {}

-- What schedulers and callers write into a group beside its options.
M.NOTES = { params = true, param_names = true, name = true, initial_lr = true, max_lr = true,
  min_lr = true, swa_lr = true, max_momentum = true, base_momentum = true }

-- (name, tensor) as an iterator gives it or as a pair.
local function add_entry(list, names, a, b)
  if b == nil and type(a) == "table" and type(a[1]) == "string" and core.is_tensor(a[2]) then
    a, b = a[1], a[2]
  end
  list[#list + 1] = b == nil and a or b
  names[#names + 1] = b ~= nil and a or nil
end

--- The entries of a tensor, a list or an iterator, and their names if they have
--- some: named_parameters() and lists of pairs.
---@param params torch.Tensor|table|function
---@param where string for messages
---@return table list
---@return string[]|nil names
function M.list_of(params, where)
  if core.is_tensor(params) then
    return { params }
  end
  local out, names = {}, {}
  if type(params) == "function" then -- an iterator; of name, value too
    for a, b in params do
      add_entry(out, names, a, b)
    end
  else
    errors.check(type(params) == "table", "TypeError",
      "%s: expected a list or an iterator of Tensors, got %s", where, check.describe(params))
    errors.check(not class.of(params) or core.is_tensor(params[1]), "TypeError",
      "%s: expected a list or an iterator of Tensors, got %s; did you mean its parameters()?",
      where, check.describe(params))
    for _, p in ipairs(check.dense(params, where)) do
      add_entry(out, names, p)
    end
  end
  errors.check(#names == 0 or #names == #out, "ValueError",
    "all optimizer params should be with/without names. Some param names are missing")
  return core.list(out), #names > 0 and names or nil
end

local function check_params(groups, new, differentiable)
  local taken, here = {}, {}
  for _, group in ipairs(groups) do
    errors.check((group.param_names == nil) == (new.param_names == nil), "ValueError",
      "all optimizer param groups should be with/without names. cannot add param group %s to the "
      .. "optimizer", new.param_names and "with names" or "without names")
    for _, p in ipairs(group.params) do
      taken[p] = true
    end
  end
  for _, p in ipairs(new.params) do
    errors.check(core.is_tensor(p), "TypeError", "optimizer can only optimize Tensors, but one of "
      .. "the params is %s", check.describe(p))
    errors.check(differentiable or p.is_leaf or p.retains_grad, "ValueError",
      "can't optimize a non-leaf Tensor")
    errors.check(not taken[p], "ValueError",
      "some parameters appear in more than one parameter group")
    if here[p] then
      warn("optimizer contains a parameter group with duplicate parameters; a step updates such a "
        .. "one as often as it is there")
    end
    here[p] = true
  end
end

-- A name that is no option may be a note, but one that is near an option's is a
-- slip.
local function check_name(optimizer, class_name, key, kind)
  if optimizer._names[key] then -- one that this optimizer leaves out of its groups
    return
  end
  local near = M.NOTES[key] and "" or check.nearest(key, optimizer:_option_names())
  errors.check(near == "", kind, "%s: a parameter group has no option '%s'%s", class_name,
    tostring(key), near)
end

local function guard(optimizer)
  local name = getmetatable(optimizer).__name
  return {
    __name = "param_group",
    __newindex = function(group, key, value)
      check_name(optimizer, name, key, "AttributeError")
      rawset(group, key, value)
    end,
  }
end

--- A complete group from one as it is given: what it leaves out has the
--- defaults.
---@param optimizer torch.optim.Optimizer
---@param group table
---@return table
function M.complete(optimizer, group)
  local given = type(group) == "table"
  errors.check(given and group.params ~= nil, given and "KeyError" or "TypeError",
    "param group must be a table with params, got %s", check.describe(group))
  local new = {}
  for name, value in pairs(optimizer.defaults) do
    new[name] = type(value) == "table" and { table.unpack(value) } or value
  end
  for name, value in pairs(group) do
    if not optimizer._names[name] and optimizer.defaults[name] == nil then
      check_name(optimizer, getmetatable(optimizer).__name, name, "ValueError")
    end
    new[name] = value
  end
  local names
  new.params, names = M.list_of(group.params, "params")
  new.param_names = names or new.param_names
  check_params(optimizer.param_groups, new, optimizer.defaults.differentiable)
  optimizer:check_group(new)
  return setmetatable(new, guard(optimizer))
end

return M
