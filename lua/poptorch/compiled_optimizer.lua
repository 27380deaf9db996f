--- The optimizer that a program is compiled for: what of it is compiled in, what a
--- file of the program says of it, and whether another one fits.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")
local rules = require("poptorch.options.rules")
local shown_data = require("poptorch.options.group").shown
local text = require("torch.nn.text")
local whole = require("poptorch.whole")

local M = {}

-- ---- attributes ---------------------------------------------------------------------
-- Which attributes of PyTorch's optimizers are compiled in, and with what
-- value: those that are as here when the model is compiled.
local NATIVE_CONSTANT = { momentum = 0, dampening = 0, weight_decay = 0, eps = 1e-8 }
local ALWAYS_CONSTANT = { betas = true, alpha = true, nesterov = true, centered = true,
  amsgrad = true, initial_accumulator_value = true }

-- Options of PyTorch's optimizers alone: they choose among implementations of an
-- update, or the group's rule tells them.
local FLAGS = { foreach = true, fused = true, capturable = true, differentiable = true,
  maximize = true, decoupled_weight_decay = true }

-- A group's attributes as both kinds of optimizers have them.
local function attributes_of(optimizer, group)
  local rule, of = optimizer:update_rule(group), {}
  for name, value in pairs(group) do
    if not FLAGS[name] and name ~= "params" then
      of[name] = value
    end
  end
  local attrs = rule.attrs or {}
  of.maximize, of.decoupled_weight_decay = attrs.maximize or false, attrs.decoupled or false
  return of
end

-- Whether an attribute says which program it is.
local function chooses_program(name)
  return whole.defaults[name] ~= nil and not whole.may_vary[name] or FLAGS[name]
end

--- Whether an attribute is compiled in. `value` is the group's when compiled.
---@param optimizer torch.optim.Optimizer
---@param name string
---@param value any
---@return boolean
function M.is_constant(optimizer, name, value)
  if chooses_program(name) then
    return true
  elseif optimizer.variable_attrs then
    return optimizer.variable_attrs:isConstant(name)
  elseif ALWAYS_CONSTANT[name] or whole.defaults[name] ~= nil then
    return true
  end
  local default = NATIVE_CONSTANT[name]
  if name == "weight_decay" and getmetatable(optimizer).__name == "AdamW" then
    default = 0.01
  end
  return default ~= nil and value == default
end

local function copy(value)
  return type(value) == "table" and { table.unpack(value) } or value
end

-- The attributes as compiled: values of the constant ones, names of all.
local function snapshot(optimizer, of)
  local constants, known = {}, {}
  for name, value in pairs(of) do
    known[name] = true
    constants[name] = M.is_constant(optimizer, name, value) and { copy(value) } or nil
  end
  return constants, known
end

-- A flag that is left out is false.
local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then
    return a == b or not a and not b
  end
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then
      return false
    end
  end
  return true
end

local function whole_of(optimizer)
  local of = {}
  for name in pairs(whole.defaults) do
    of[name] = whole.value(optimizer, name)
  end
  return of
end

local function shown(value)
  return type(value) == "table" and text.repr(value) or tostring(value)
end

local function check_constants(constants, of, where)
  for name, value in pairs(constants) do
    errors.check(same(value[1], of[name]), "Error",
      "%s%s is constant: it was compiled in as %s and cannot become %s; %s", where, name,
      shown(value[1]), shown(of[name]), chooses_program(name)
        and "destroy() the model to compile another update" or "mark it as variable "
        .. "(variable_attrs:markAsVariable of a poptorch.optim optimizer) before compiling")
  end
end

-- The optimizer's own attributes: those a user could set by mistake are told.
local function fields_of(optimizer)
  local known = { variable_attrs = true }
  for _, names in ipairs({ optimizer, whole.defaults }) do
    for name in pairs(names) do
      known[name] = true
    end
  end
  return known
end

local function warn_unknown(s, known, of, what, where)
  for name in pairs(of) do
    local message = ("unexpected %s attribute '%s' has no effect"):format(what, tostring(name))
    local theirs = type(name) == "string" and not known[name] and name:sub(1, 1) ~= "_"
    if theirs and not s.warned_attributes[message] then
      s.warned_attributes[message] = true
      logging[s.options.relax_optimizer_checks and "debug" or "warn"]("%s: %s", where, message)
    end
  end
end

-- Kinds of optimizers that have an update on the device, by name. PopTorch has no Adagrad
-- and no NAdam: here their update is that of the host.
local DEVICE = { SGD = true, Adam = true, AdamW = true, RMSprop = true, LAMB = true,
  Adagrad = true, NAdam = true }

-- The class of poptorch.optim or torch.optim that an optimizer is of.
local function kind_of(optimizer)
  for _, optim in ipairs({ require("poptorch.optim"), require("torch.optim") }) do
    for name in pairs(DEVICE) do
      local cls = rawget(optim, name)
      if cls and cls:is(optimizer) then
        return cls
      end
    end
  end
  return nil
end

--- error: AssertionError for an optimizer that no program can be made of,
--- ValueError for amsgrad, TypeError for values that are no numbers any more
---@param optimizer any
---@param where? string trainingModel unless given
function M.check_kind(optimizer, where)
  where = where or "trainingModel"
  local cls, base = class.of(optimizer), kind_of(optimizer)
  errors.check(base, "AssertionError", "%s: optimizer: allowed are SGD, Adam, AdamW, RMSprop of "
    .. "torch.optim and poptorch.optim, Adagrad and NAdam of torch.optim, and "
    .. "poptorch.optim.LAMB, got %s", where,
    cls and cls.__name or check.describe(optimizer))
  if cls ~= base then
    logging.warn("%s: the optimizer is a sub-class of %s: only the update of %s runs on the "
      .. "device, not its own code", where, base.__name, base.__name)
  end
  for _, group in ipairs(optimizer.param_groups) do
    errors.check(not group.amsgrad, "ValueError",
      "%s: amsgrad must be false: the device has no such update", where)
    errors.check(not group.centered == not optimizer.param_groups[1].centered, "AssertionError",
      "%s: all parameter groups must have the same value of centered", where)
    errors.check(not group.differentiable, "NotImplementedError", "%s: differentiable must be "
      .. "false: no gradient goes through the update on the device", where)
    whole.warn_of_scale(group, optimizer.use_combined_accum, where)
    optimizer:check_group(group) -- its values may have been changed
  end
end

--- The options that this optimizer needs: half precision accumulates a running
--- mean. error: ValueError if the program was compiled for another one
---@param s table the executor's state
---@param optimizer torch.optim.Optimizer
---@param where? string trainingModel unless given
function M.choose_reduction(s, optimizer, where)
  local training = s.options.Training
  local row = training:_row("mean_accumulation_and_replication_reduction_strategy")
  local wanted = rules.mean_strategy(s.options, whole.accumulates_half(optimizer))
  errors.check(not s.session or wanted == training[row.key], "ValueError", "%s: accum_type = "
    .. "torch.float16 needs %s, the model was compiled with %s", where or "trainingModel",
    tostring(wanted), tostring(training[row.key]))
  training:_store(row, wanted)
end

-- Number of its group, by parameter.
local function groups_by_param(optimizer)
  local of = {}
  for g, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      of[p] = g
    end
  end
  return of
end

-- Which of the optimizer's groups has the values of each compiled one: the one
-- that has its parameters.
local function match_groups(s, optimizer, where)
  local of, match, named = groups_by_param(optimizer), {}, {}
  for _, rule in ipairs(s.updated) do
    local g, first = of[rule.tensor], named[rule.group]
    errors.check(g, "Error", "%s: parameter '%s' is in no group of this optimizer; the model was "
      .. "compiled to train it", where, rule.param)
    errors.check(not first or match[rule.group] == g, "Error", "%s: parameters '%s' and '%s' "
      .. "share a group in the compiled model, this optimizer has them in groups %d and %d", where,
      first, rule.param, (match[rule.group] or g) - 1, g - 1)
    match[rule.group], named[rule.group] = g, first or rule.param
  end
  for g, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      errors.check(s.compiled_optimizer.group_of[p] or not p.requires_grad, "Error",
        "%s: group %d has a parameter of shape %s that the model was not compiled to train", where,
        g - 1, text.repr(p.shape))
    end
  end
  return match
end

--- Compares an optimizer with the one that was compiled. Groups are told by
--- the parameters in them: s.group_of says where the values of a compiled one
--- are found.
--- error: poptorch.Error for other groups, another kind, or a constant
--- attribute of another value
---@param s table the executor's state
---@param optimizer torch.optim.Optimizer
---@param where string
function M.check_optimizer(s, optimizer, where)
  local c = s.compiled_optimizer
  local kind = kind_of(optimizer).__name
  errors.check(c.kind == kind, "Error", "%s: the model was compiled for %s, not %s", where, c.kind,
    kind)
  errors.check(#c.groups == #optimizer.param_groups, "Error",
    "%s: the model was compiled for %d parameter groups, this optimizer has %d", where,
    #c.groups, #optimizer.param_groups)
  local match = match_groups(s, optimizer, where)
  check_constants(c.constants, whole_of(optimizer), where .. ": ")
  warn_unknown(s, c.fields, optimizer, "optimizer", where)
  for compiled, g in pairs(match) do
    local group = optimizer.param_groups[g]
    local of = attributes_of(optimizer, group)
    check_constants(c.groups[compiled].constants, of, ("%s: group %d: "):format(where, g - 1))
    warn_unknown(s, c.groups[compiled].known, of, "group", where)
  end
  s.group_of = match
end

-- PopART's names of states -> PyTorch's, by kind. PyTorch's counts of steps that
-- no update of the other needs have none.
local NATIVE_STATE = {
  SGD = { Accl1 = "momentum_buffer" },
  Adam = { Accl1 = "exp_avg", Accl2 = "exp_avg_sq", Step = "step" },
  RMSprop = { Accl1 = "square_avg", Accl2 = "grad_avg", Accl3 = "momentum_buffer" },
}
NATIVE_STATE.AdamW = NATIVE_STATE.Adam
NATIVE_STATE.Adagrad, NATIVE_STATE.NAdam = {}, {} -- of torch.optim alone

-- What an optimizer calls a state of the compiled program; nil for one that is
-- the device's alone.
local function state_name(s, optimizer, name)
  local c, native = s.compiled_optimizer, not optimizer.variable_attrs
  if native == c.native then
    return name
  end
  for popart, theirs in pairs(NATIVE_STATE[c.kind]) do
    if name == (native and popart or theirs) then
      return native and theirs or popart
    end
  end
  return nil
end

--- The optimizer of an executor is the one that its program is compiled for.
---@param s table the executor's state
function M.remember(s)
  local optimizer = s.optimizer
  local c = { kind = kind_of(optimizer).__name, native = not optimizer.variable_attrs,
    groups = {}, fields = fields_of(optimizer),
    constants = (snapshot(optimizer, whole_of(optimizer))) }
  for g, group in ipairs(optimizer.param_groups) do
    local constants, known = snapshot(optimizer, attributes_of(optimizer, group))
    known.initial_lr = true
    c.groups[g] = { constants = constants, known = known }
  end
  c.group_of = groups_by_param(optimizer)
  s.compiled_optimizer, s.warned_attributes, s.group_of = c, {}, {}
  function s.check_optimizer(where)
    M.check_optimizer(s, s.optimizer, where)
  end
  function s.state_name(new, name)
    return state_name(s, new, name)
  end
end

local OF_ONE = { param = true, tensor = true } -- a rule's parts that no other rule has

-- Are they the same, but for the parameter that a rule is of?
local function same_rule(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then
    return a == b
  end
  for key, value in pairs(a) do
    if not OF_ONE[key] and not same_rule(value, b[key]) then
      return false
    end
  end
  for key in pairs(b) do
    if a[key] == nil and not OF_ONE[key] then
      return false
    end
  end
  return true
end

-- What of a rule can be read and stored.
local function without_parameter(rule)
  local out = class.copy(rule)
  out.param, out.tensor = nil, nil
  return out
end

local function index_of(known, rule)
  for i = #known, 1, -1 do
    if same_rule(known[i], rule) then
      return i
    end
  end
  known[#known + 1] = without_parameter(rule)
  return #known
end

--- What a file of the executable has of the optimizer that it was compiled for:
--- its rules, each once, which one each parameter has, and what of it is compiled in.
---@param s table the executor's state
---@return table plain data
function M.compiled_data(s)
  local c, rules_once, params, of = s.compiled_optimizer, {}, {}, {}
  for i, rule in ipairs(s.updated) do
    params[i], of[i] = rule.param, index_of(rules_once, rule)
  end
  return { rules = rules_once, params = params, of = of, kind = c.kind, native = c.native,
    groups = c.groups, fields = c.fields, constants = c.constants }
end

--- The optimizer of an executor whose program was loaded, which must be one that
--- it was compiled for.
--- error: poptorch.Error naming what differs
---@param s table the executor's state, after M.view
---@param data table M.compiled_data's
---@param where string for messages
function M.check_loaded(s, data, where)
  local c = s.compiled_optimizer
  errors.check(c.kind == data.kind and c.native == data.native, "Error",
    "%s: the program was compiled for %s's %s, the optimizer is %s's %s", where,
    data.native and "torch.optim" or "poptorch.optim", data.kind,
    c.native and "torch.optim" or "poptorch.optim", c.kind)
  errors.check(#data.params == #s.updated, "Error", "%s: the program was compiled to update %d "
    .. "parameters, this optimizer has %d of the model's", where, #data.params, #s.updated)
  for i, rule in ipairs(s.updated) do
    local stored = data.rules[data.of[i]]
    errors.check(rule.param == data.params[i], "Error", "%s: the program updates '%s' where the "
      .. "optimizer has '%s'", where, data.params[i], rule.param)
    if not same_rule(rule, stored) then
      errors.raise("Error", "%s: the program has another update of '%s': compiled %s, the "
        .. "optimizer's is %s", where, rule.param, shown_data(stored),
        shown_data(without_parameter(rule)))
    end
  end
  c.groups, c.fields, c.constants = data.groups, data.fields, data.constants
  M.check_optimizer(s, s.optimizer, where)
end

return M
