--- state_dict and load_state_dict of optimizers: parameters by their number,
--- which counts from 0 over all groups.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local groups = require("torch.optim.groups")
local hooks = require("torch.nn.hooks")
local tables = require("lupine.base.tables")

local M = {}

--- Parameter -> its state; that of a tensor is made when it is asked for.
---@return table<torch.Tensor, table<string, any>>
function M._new_state()
  return setmetatable({}, { __index = function(all, param)
    local own = core.is_tensor(param) and {} or nil
    if own then
      rawset(all, param, own)
    end
    return own
  end })
end

local function each_param(self)
  local all = {}
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      all[#all + 1] = p
    end
  end
  return all
end

-- A state that exists only for the rule is left out.
local function is_public(self, name)
  return not (self.private_state and self.private_state[name])
end

-- Parameter -> number; one that is there again has the last in its group.
local function numbers_of(self)
  local numbers, at = {}, 0
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      numbers[p] = at
      at = at + 1
    end
  end
  return numbers
end

-- A dictionary after the hooks of a kind, each of which may give another one.
local function through(self, kind, dict)
  for _, entry in ipairs({ table.unpack(self._state_hooks[kind]) }) do
    dict = entry.fn(self, dict) or dict
  end
  return dict
end

--- {state = {[0] = {exp_avg = tensor, …}, …}, param_groups = {{lr = …, params
--- = {0, 1, …}}, …}}. The tensors are the optimizer's own.
---@param ... any refused
---@return {state: table<integer, table>, param_groups: table[]}
function M:state_dict(...)
  check.method(self, require("torch.optim.optimizer"), "state_dict")
  check.most("state_dict", 0, ...)
  hooks.run(self._state_hooks.save, self)
  local out = { state = {}, param_groups = core.list({}) }
  local numbers = numbers_of(self)
  for g, group in ipairs(self.param_groups) do
    local packed = {}
    for name, value in pairs(group) do
      packed[name] = type(value) == "table" and { table.unpack(value) } or value
    end
    packed.params = {}
    for i, p in ipairs(group.params) do
      local number = numbers[p]
      packed.params[i] = number
      local own = rawget(self.state, p) or {}
      if next(own) ~= nil then
        out.state[number] = {}
        for name, value in pairs(own) do
          out.state[number][name] = is_public(self, name) and value or nil
        end
      end
    end
    out.param_groups[g] = packed
  end
  return through(self, "saved", out)
end

-- With `exact` in the type that it has, else in the parameter's.
local function copy_state(param, name, value, exact)
  if not core.is_tensor(value) then
    return type(value) == "table" and { table.unpack(value) } or value
  elseif not exact and name ~= "step" and value:is_floating_point() then
    return value:detach():to(param.dtype, { copy = true })
  end
  return value:detach():clone()
end

local function names(t)
  local out = tables.keys(t, function(name)
    return name ~= "params"
  end)
  return #out > 0 and table.concat(out, ", ") or "none"
end

-- An option that is missing in a group while others are foreign to this class.
local function check_options(self, group, g)
  local missing, foreign
  for name in pairs(self.defaults) do
    local lacks = group[name] == nil and self.param_groups[g][name] ~= nil
    missing = lacks and (not missing or name < missing) and name or missing
  end
  for name in pairs(group) do
    local own = self.defaults[name] ~= nil or self._names[name] or groups.NOTES[name]
      or self.param_groups[g][name] ~= nil
    foreign = not own and name or foreign
  end
  errors.check(not missing or not foreign, "ValueError",
    "load_state_dict: %s has an option '%s', which group %d of the state lacks (it has %s): it is "
    .. "of another optimizer", getmetatable(self).__name, missing, g - 1, names(group))
end

-- The states that a parameter's update needs are there, if any is.
local function check_states(self, own, group, states)
  local Optimizer = require("torch.optim.optimizer")
  if self.update ~= Optimizer.update or self.update_rule == Optimizer.update_rule then
    return
  end
  local merged = {}
  for _, options in ipairs({ own, group }) do
    for name, value in pairs(options) do
      merged[name] = value
    end
  end
  for i, number in ipairs(group.params) do
    local state = states[number] or {}
    for _, what in ipairs(next(state) and self:update_rule(merged, own.params[i]).inputs or {}) do
      local name = what and what:match("^state:(.+)$")
      errors.check(not name or state[name] ~= nil or not is_public(self, name), "ValueError",
        "load_state_dict: the state of parameter %s lacks '%s' (it has %s): it is of another "
        .. "optimizer", tostring(number), name, names(state))
    end
  end
end

local function check_groups(self, given, states)
  errors.check(#given == #self.param_groups, "ValueError",
    "loaded state dict has a different number of parameter groups: %d, this optimizer has %d",
    #given, #self.param_groups)
  for g, group in ipairs(given) do
    errors.check(#group.params == #self.param_groups[g].params, "ValueError",
      "loaded state dict contains a parameter group that doesn't match the size of optimizer's "
      .. "group: group %d has %d parameters, this optimizer's %d", g, #group.params,
      #self.param_groups[g].params)
    check_options(self, group, g)
    check_states(self, self.param_groups[g], group, states)
  end
end

-- The groups' values, and the parameter that each number of a dictionary is of.
local function take_groups(self, given)
  local params, by_number, at = each_param(self), {}, 0
  for g, group in ipairs(given) do
    local own = self.param_groups[g]
    for name, value in pairs(group) do
      if name ~= "params" then -- a scheduler's notes too
        rawset(own, name, type(value) == "table" and { table.unpack(value) } or value)
      end
    end
    for _, number in ipairs(group.params) do
      at = at + 1
      by_number[number] = params[at]
    end
  end
  return by_number
end

local function take_states(self, states, by_number, exact)
  self.state = M._new_state()
  for number, state in pairs(states) do
    local p = errors.check(by_number[number], "ValueError",
      "load_state_dict: state of parameter %s, which is in no group", tostring(number))
    local own = self.state[p]
    for name, value in pairs(state) do
      own[name] = copy_state(p, name, value, exact)
    end
    if self.loaded and not exact then
      self:loaded(p, own)
    end
  end
end

--- Takes over the values of state_dict; parameters match by their order.
--- error: ValueError for groups of other number or sizes, for another
--- optimizer's state
---@param dict {state: table<integer, table>, param_groups: table[]}
function M:load_state_dict(dict)
  check.method(self, require("torch.optim.optimizer"), "load_state_dict")
  errors.check(type(dict) == "table" and type(dict.param_groups) == "table"
    and type(dict.state) == "table", type(dict) == "table" and "KeyError" or "TypeError",
    "load_state_dict: expected {state = …, param_groups = …}, got %s", check.describe(dict))
  dict = through(self, "load", dict)
  check_groups(self, dict.param_groups, dict.state)
  take_states(self, dict.state, take_groups(self, dict.param_groups))
  self:_push_loaded()
  hooks.run(self._state_hooks.loaded, self)
end

-- ---- by name -----------------------------------------------------------------

-- Parameter -> its name or, without one, its number.
local function keys_of(self, name_of)
  local out = numbers_of(self)
  for _, group in ipairs(self.param_groups) do
    for i, p in ipairs(group.params) do
      out[p] = group.param_names and group.param_names[i] or name_of and name_of(p) or out[p]
    end
  end
  return out
end

--- What a checkpoint has of an optimizer: as state_dict, but parameters go by their
--- names, and all states are there as they are.
---@param name_of? fun(p: torch.Tensor): string? one without a name goes by its number
---@return {state: table, param_groups: table[]}
function M:checkpoint_state(name_of)
  local out, keys = { state = {}, param_groups = {} }, keys_of(self, name_of)
  for p, state in pairs(self.state) do
    if keys[p] and next(state) ~= nil then
      out.state[keys[p]] = state
    end
  end
  for g, group in ipairs(self.param_groups) do
    local packed = {}
    for name, value in pairs(group) do
      packed[name] = value
    end
    packed.params = {}
    for i, p in ipairs(group.params) do
      packed.params[i] = keys[p]
    end
    out.param_groups[g] = packed
  end
  return out
end

-- The saved group that has an own one's parameters, in whatever order.
local function group_like(groups_by_key, group, keys, g)
  if #group.params == 0 then
    return group
  end
  local first, count = groups_by_key[keys[group.params[1]]], 0
  for _, p in ipairs(group.params) do
    local found = groups_by_key[keys[p]]
    errors.check(found, "ValueError", "load_checkpoint_state: the state has no parameter '%s'",
      tostring(keys[p]))
    errors.check(found == first, "ValueError", "load_checkpoint_state: the parameters of group %d "
      .. "are in several groups of the state", g - 1)
    count = count + 1
  end
  errors.check(#first.params == count, "ValueError", "load_checkpoint_state: group %d has %d "
    .. "parameters, that of the state %d", g - 1, count, #first.params)
  return first
end

local function by_key(given)
  local out = {}
  for _, group in ipairs(given) do
    check.table(group, "load_checkpoint_state: a group")
    for _, key in ipairs(check.table(group.params, "load_checkpoint_state: params")) do
      out[key] = group
    end
  end
  return out
end

--- Takes over what checkpoint_state gave; parameters match by name, in whatever order.
--- errors: TypeError, ValueError for what is of another optimizer or other parameters
---@param state table
---@param name_of? fun(p: torch.Tensor): string?
function M:load_checkpoint_state(state, name_of)
  check.table(state, "load_checkpoint_state: state")
  local states = check.table(state.state, "load_checkpoint_state: state.state")
  local saved = by_key(check.table(state.param_groups, "load_checkpoint_state: param_groups"))
  local keys, given, by_number, own, at = keys_of(self, name_of), {}, {}, {}, 0
  for _, value in pairs(states) do
    check.table(value, "load_checkpoint_state: the state of a parameter")
  end
  for g, group in ipairs(self.param_groups) do
    given[g] = tables.with(group_like(saved, group, keys, g), { params = {},
      param_names = group.param_names })
    for i, p in ipairs(group.params) do
      given[g].params[i], by_number[at], own[at] = at, p, states[keys[p]]
      at = at + 1
    end
  end
  check_groups(self, given, own)
  take_groups(self, given)
  take_states(self, own, by_number, true)
  self:_push_loaded(true)
end

-- register_…_hook(hook, prepend): hook(optimizer) before state_dict and after
-- load_state_dict; hook(optimizer, dict), which may return another one, after
-- state_dict and before load_state_dict.
for name, kind in pairs({ state_dict_pre = "save", state_dict_post = "saved",
  load_state_dict_pre = "load", load_state_dict_post = "loaded" }) do
  M["register_" .. name .. "_hook"] = function(self, ...)
    local a = check.arguments("register_" .. name .. "_hook", { "hook", "prepend" }, nil, ...)
    return hooks.add(self._state_hooks[kind], a[1], a[2])
  end
end

-- A model on a device that is trained by this optimizer takes the values over.
-- `checkpoint`: they are those of load_checkpoint_state.
function M:_push_loaded()
  local link = rawget(self, "_link")
  if link then
    link:push()
  end
end

return M
