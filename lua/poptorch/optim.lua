--- poptorch.optim: SGD, Adam, AdamW, RMSprop and LAMB with what PopTorch adds
--- to them: a loss scale, types of accumulators, clipping of the gradients'
--- norm, and attributes that are compiled in (constant) or may change
--- (variable). Arguments that are given are variable, the others constant.
---
--- State names are those of PopART: Accl1, Accl2, Accl3, Step. Formulas: the
--- operators popart_sgd_step, popart_sgd_combined_step, adam_step, lamb_step,
--- rmsprop_step. Source: PopTorch API reference, "Optimizers"; user guide 4.5.
local Optimizer = require("torch.optim.optimizer")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local native = require("torch.optim")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")
local text = require("torch.nn.text")
local types = require("torch.optim.types")
local whole = require("poptorch.whole")

local float32 = core.dtypes.float32

-- ---- which attributes may change -----------------------------------------------

---@class poptorch.optim.VariableAttributes
local VariableAttributes = class.new("VariableAttributes")

signatures.note(VariableAttributes,
  "VariableAttributes(variable_attributes, allowed_attributes)", 1)

---@param ... any variable_attributes, allowed_attributes (lists of names)
function VariableAttributes:init(...)
  local a = check.arguments("VariableAttributes", { "variable_attributes",
    "allowed_attributes" }, nil, ...)
  self._variable, self._allowed = tables.set(a[1] or {}), tables.set(a[2] or {})
end

-- The attribute, by position or by name.
local function known(self, method, ...)
  local attr = check.one(method, "attr", ...)
  if not self._allowed[attr] then
    errors.raise("AssertionError", "%s: no attribute %s; allowed are %s", method,
      check.describe(attr), table.concat(tables.keys(self._allowed), ", "))
  end
  return attr
end

--- Whether the attribute is compiled in; true for unknown names.
---@param ... any attr (string)
---@return boolean
function VariableAttributes:isConstant(...)
  return not self._variable[check.one("isConstant", "attr", ...)]
end

--- error: AssertionError for a name that the optimizer does not have
---@param ... any attr (string)
function VariableAttributes:markAsConstant(...)
  self._variable[known(self, "markAsConstant", ...)] = nil
end

--- error: AssertionError for a name that the optimizer does not have
---@param ... any attr (string)
function VariableAttributes:markAsVariable(...)
  self._variable[known(self, "markAsVariable", ...)] = true
end

-- ---- what all have --------------------------------------------------------------

local Base = Optimizer:extend("Optimizer")

-- Not the rules that PyTorch's have there, nor theirs for halves.
Base.device_rule = Optimizer.device_rule
Base._beside = false

-- Attributes of the whole optimizer; the others are of each group.
local WHOLE = whole.defaults

-- Arguments that choose among PyTorch's implementations of one update.
local WITHOUT_EFFECT = tables.set({ "foreach", "capturable", "fused" })

-- How it is called, with the values that hold for what is left out.
local function signature(name, order, defaults)
  local parts = {}
  for i, attr in ipairs(order) do
    local value = defaults[attr]
    if value == nil then
      value = WHOLE[attr]
    end
    parts[i] = attr .. (attr == "params" and ""
      or "=" .. (value == nil and "None" or text.repr(value)))
  end
  return ("%s(%s)"):format(name, table.concat(parts, ", "))
end

-- What says which update is compiled, or which of PyTorch's it would be.
local FLAGS = { "maximize", "nesterov", "centered", "amsgrad", "differentiable" }

local NUMBERS = tables.set({ "lr", "momentum", "dampening", "weight_decay", "eps", "alpha",
  "velocity_scaling", "max_weight_norm" })

-- Of a group's attributes, those that are there.
local function check_types(name, group)
  for attr, value in pairs(group) do
    if NUMBERS[attr] and not (attr == "max_weight_norm" and check.is_none(value)) then
      types.number(name, attr, value)
    end
  end
  if group.betas ~= nil then
    types.list(name, "betas", { 0.9, 0.999 }, group.betas)
  end
  types.tensors(name, group)
  for _, flag in ipairs(FLAGS) do
    check.bool(group[flag], ("%s: %s"):format(name, flag), { nullable = true })
  end
end

-- A constructor's arguments, in order, with the groups' defaults by name. The
-- class extends PyTorch's of that name, as PopTorch's do.
local function define(name, order, defaults, methods)
  local theirs = rawget(native, name)
  local cls = (theirs or Base):extend(name)
  if theirs then
    class.mix(cls, Base)
  end
  local own = {}
  for _, attr in ipairs(order) do
    if WHOLE[attr] ~= nil then
      own[#own + 1] = attr
    end
  end
  cls._whole = own
  function cls:init(...)
    local values = check.arguments(name, order, nil, ...)
    local group, variable, allowed = {}, {}, {}
    for i = 2, #order do
      local attr, value = order[i], values[i]
      if WITHOUT_EFFECT[attr] then
        check.bool(value, ("%s: %s"):format(name, attr), { nullable = true })
      end
      if not check.is_none(value) and not WITHOUT_EFFECT[attr] then
        variable[#variable + 1] = attr
      else
        value = nil
      end
      if WHOLE[attr] ~= nil then
        self[attr] = WHOLE[attr]
        if value ~= nil then
          self[attr] = value
        end
        whole.check(name, attr, self[attr])
      else
        self._names[attr] = true
        group[attr] = value
        if value == nil then
          group[attr] = defaults[attr]
        end
      end
    end
    check_types(name, group)
    self:_complete(group)
    for attr in pairs(group) do
      allowed[#allowed + 1] = attr
    end
    table.move(own, 1, #own, #allowed + 1, allowed)
    self.variable_attrs = VariableAttributes(variable, allowed)
    Optimizer.init(self, values[1], group)
  end
  for key, method in pairs(methods) do
    cls[key] = method
  end
  signatures.note(cls, signature(name, order, defaults))
  return cls
end

function Base._complete() end

--- As torch.optim's; error: ValueError for an attribute of the whole optimizer
---@param group table
function Base:add_param_group(group)
  local whole_ones = tables.set(self._whole)
  for attr in pairs(type(group) == "table" and group or {}) do
    errors.check(not whole_ones[attr], "ValueError",
      "%s: %s is an attribute of the optimizer, not of a parameter group",
      getmetatable(self).__name, attr)
  end
  Optimizer.add_param_group(self, group)
end

function Base.check_group(self, group)
  local name = getmetatable(self).__name
  check_types(name, group)
  for attr in pairs(self.defaults) do
    errors.check(group[attr] ~= nil or attr == "max_weight_norm", "TypeError",
      "%s: a parameter group has no %s", name, attr)
  end
  for attr, value in pairs(group) do
    value = NUMBERS[attr] and Optimizer.number(value) or value
    if attr == "velocity_scaling" then
      whole.check_scale(name, attr, value)
    elseif type(value) == "number" then
      errors.check(value >= 0, "ValueError", "%s: %s must be 0 or more, got %s", name, attr,
        tostring(value))
    end
  end
  for i, beta in ipairs(group.betas or {}) do
    beta = Optimizer.number(beta)
    errors.check(beta >= 0 and beta < 1, "ValueError",
      "%s: betas: number %d must be from 0 to below 1, got %s", name, i - 1, tostring(beta))
  end
  errors.check(not group.differentiable, "NotImplementedError",
    "%s: differentiable must be false: no gradient goes through the update on the device", name)
end

function Base:hyper_value(group, name)
  if WHOLE[name] ~= nil then
    return self[name]
  end
  return Optimizer.hyper_value(self, group, name)
end

-- Types of the states.
local STATE_TYPE = { Accl1 = "first_order_momentum_accum_type",
  Accl2 = "second_order_momentum_accum_type", Accl3 = "first_order_momentum_accum_type" }

function Base:empty_state(param, name)
  local torch = require("torch")
  if name == "Step" then
    return torch.empty({}, { dtype = float32 })
  end
  return torch.empty(param.shape, { dtype = self[STATE_TYPE[name]] })
end

--- The group that a parameter is in.
function Base:_group_of(param)
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      if rawequal(p, param) or p:data_ptr() == param:data_ptr() then
        return group
      end
    end
  end
  return nil
end

--- {ipu_state, ipu_param, state, param_groups}: what the device has, by PopART's
--- names; ipu_state and ipu_param are nil until a model was compiled.
---@return table
function Base:state_dict()
  local out = Optimizer.state_dict(self)
  out.state = {}
  local link = rawget(self, "_link")
  if link then
    out.ipu_state, out.ipu_param = link:read()
  elseif rawget(self, "_loaded") then
    out.ipu_state, out.ipu_param = self._loaded, self._loaded_param
  end
  return out
end

--- Takes over what state_dict gave, now or when a model is compiled; states
--- that the dictionary lacks stay as they are.
--- error: RuntimeError for a dictionary without the device's state
---@param dict table
function Base:load_state_dict(dict)
  errors.check(type(dict) == "table" and next(dict) ~= nil, "RuntimeError",
    "load_state_dict: the state dict is empty")
  errors.check(dict.ipu_state and dict.ipu_param, "RuntimeError",
    "load_state_dict: ipu_state and ipu_param are missing: only the state of a poptorch.optim "
    .. "optimizer whose model was compiled can be loaded")
  local kept = self.state
  Optimizer.load_state_dict(self, { state = {}, param_groups = dict.param_groups })
  self.state = kept
  local link = rawget(self, "_link")
  if link then
    link:write(dict.ipu_state)
  end
  if not link or not link.s then
    self._loaded, self._loaded_param = {}, dict.ipu_param
    for key, value in pairs(dict.ipu_state) do
      self._loaded[key] = value
    end
  end
end

-- load_state_dict says by itself which of the device's states it has.
function Base:_push_loaded(checkpoint)
  local link = rawget(self, "_link")
  if checkpoint and link and link.s then
    link:push()
  elseif checkpoint then
    self._link = nil -- the last values of a device that is gone
  end
end

--- As torch.optim's, with the attributes of the whole optimizer that may vary and what
--- load_state_dict has left for the model that is to be compiled.
function Base:checkpoint_state(name_of)
  local out = Optimizer.checkpoint_state(self, name_of)
  out.whole, out.loaded, out.loaded_param = {}, rawget(self, "_loaded"),
    rawget(self, "_loaded_param")
  for _, name in ipairs(self._whole) do
    out.whole[name] = whole.may_vary[name] and self[name] or nil
  end
  return out
end

function Base:load_checkpoint_state(state, name_of)
  check.table(state, "load_checkpoint_state: state")
  for name, value in pairs(check.table(state.whole, "load_checkpoint_state: whole")) do
    if whole.may_vary[name] then
      whole.check(getmetatable(self).__name, name, value)
      self[name] = value
    end
  end
  self._loaded, self._loaded_param = state.loaded, state.loaded_param
  Optimizer.load_checkpoint_state(self, state, name_of)
end

-- Whether a state is needed for `attr`: it may become other than 0.
local function in_use(self, group, attr)
  return group[attr] ~= 0 or not self.variable_attrs:isConstant(attr)
end

-- ---- the optimizers ---------------------------------------------------------------

local M = { Optimizer = Base, VariableAttributes = VariableAttributes }

local ADAM = { "params", "lr", "betas", "eps", "weight_decay", "amsgrad" }
local ACCUM = { "accum_type", "first_order_momentum_accum_type",
  "second_order_momentum_accum_type" }

-- Joins lists of names, or several names in one text.
local function names(...)
  local out = {}
  for _, list in ipairs({ ... }) do
    if type(list) == "table" then
      table.move(list, 1, #list, #out + 1, out)
    else
      for name in list:gmatch("%S+") do
        out[#out + 1] = name
      end
    end
  end
  return out
end

M.SGD = define("SGD", names("params lr momentum dampening weight_decay nesterov maximize foreach",
  "differentiable loss_scaling velocity_scaling use_combined_accum accum_type",
  "velocity_accum_type max_grad_norm"),
  { momentum = 0, dampening = 0, weight_decay = 0, nesterov = false }, {
    _complete = function(self, group)
      errors.check(group.lr, "TypeError", "SGD: missing required argument 'lr'")
      errors.check(not group.nesterov or group.momentum > 0 and group.dampening == 0,
        "ValueError", "SGD: Nesterov momentum requires a momentum and zero dampening")
      whole.warn_of_scale(group, self.use_combined_accum, "SGD")
      if not self.use_combined_accum then
        group.velocity_scaling = nil
      else
        group.velocity_scaling = group.velocity_scaling or 1
        errors.check(self.max_grad_norm == math.huge, "ValueError",
          "SGD: max_grad_norm cannot be used with use_combined_accum: the velocity gathers "
          .. "gradients before their norm is known")
        errors.check(not group.nesterov and not group.maximize, "ValueError",
          "SGD: nesterov and maximize cannot be used with use_combined_accum")
      end
    end,
    empty_state = function(self, param)
      return require("torch").empty(param.shape, { dtype = self.velocity_accum_type })
    end,
    start_state = function(self, param, _, room)
      local group = self:_group_of(param)
      if self.use_combined_accum and group and group.weight_decay ~= 0 then
        room:copy_(param:detach():float() * ((1 - group.dampening) * group.weight_decay
          * group.velocity_scaling))
      else
        Base.start_state(self, param, nil, room)
      end
    end,
    update_rule = function(self, group)
      if self.use_combined_accum then
        return {
          op = "popart_sgd_combined_step",
          inputs = { "param", "grad", "state:Accl1", "hyper:lr", "hyper:momentum",
            "hyper:dampening", "hyper:weight_decay", "hyper:velocity_scaling" },
          outputs = { "param", "state:Accl1" },
        }
      end
      local velocity = in_use(self, group, "momentum") and "state:Accl1"
      return {
        op = "popart_sgd_step",
        inputs = { "param", "grad", velocity, "hyper:lr", "hyper:momentum", "hyper:dampening",
          "hyper:weight_decay", "hyper:loss_scaling" },
        outputs = { "param", velocity },
        attrs = { nesterov = group.nesterov or nil, maximize = group.maximize or nil },
      }
    end,
  })

local function adam_rule(decoupled)
  return function(self, group)
    return {
      op = "adam_step",
      inputs = { "param", "grad", "state:Accl1", "state:Accl2", false, "hyper:lr", "hyper:beta1",
        "hyper:beta2", "hyper:eps", "hyper:weight_decay", "state:Step" },
      outputs = { "param", "state:Accl1", "state:Accl2" },
      counts = "Step",
      attrs = { decoupled = decoupled, bias_correction = self.bias_correction,
        maximize = group.maximize or nil },
    }
  end
end

M.Adam = define("Adam", names(ADAM, "foreach maximize capturable differentiable fused",
  "loss_scaling", ACCUM, "max_grad_norm"),
  { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, amsgrad = false },
  { update_rule = adam_rule(nil) })

M.AdamW = define("AdamW", names(ADAM, "maximize foreach capturable loss_scaling bias_correction",
  ACCUM, "max_grad_norm"),
  { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 1e-2, amsgrad = false },
  { update_rule = adam_rule(true) })

M.RMSprop = define("RMSprop", names("params lr alpha eps weight_decay momentum centered foreach",
  "maximize differentiable loss_scaling", ACCUM, "use_tf_variant"),
  { lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, centered = false }, {
    add_param_group = function(self, group)
      Base.add_param_group(self, group)
      local first = self.param_groups[1]
      local last = self.param_groups[#self.param_groups]
      errors.check(not first.centered == not last.centered, "AssertionError",
        "RMSprop: all parameter groups must have the same value of centered")
    end,
    start_state = function(self, _, name, room)
      room:fill_(self.use_tf_variant and name == "Accl1" and 1 or 0)
    end,
    update_rule = function(self, group)
      local mean = group.centered and "state:Accl2"
      local buffer = in_use(self, group, "momentum") and "state:Accl3"
      return {
        op = "rmsprop_step",
        inputs = { "param", "grad", "state:Accl1", mean, buffer, "hyper:lr", "hyper:alpha",
          "hyper:eps", "hyper:weight_decay", "hyper:momentum" },
        outputs = { "param", "state:Accl1", mean, buffer },
        attrs = { tf_variant = self.use_tf_variant or nil, maximize = group.maximize or nil },
      }
    end,
  })

-- max_weight_norm None, the default, leaves the weights' norm as it is.
M.LAMB = define("LAMB", names("params lr betas eps weight_decay bias_correction loss_scaling",
  "max_weight_norm", ACCUM),
  { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 1e-2,
    max_weight_norm = math.huge },
  {
    hyper_value = function(self, group, name)
      local value = Base.hyper_value(self, group, name)
      return check.is_none(value) and name == "max_weight_norm" and math.huge or value
    end,
    update_rule = function(self)
      return {
        op = "lamb_step",
        inputs = { "param", "grad", "state:Accl1", "state:Accl2", "hyper:lr", "hyper:beta1",
          "hyper:beta2", "hyper:eps", "hyper:weight_decay", "state:Step",
          "hyper:max_weight_norm" },
        outputs = { "param", "state:Accl1", "state:Accl2" },
        counts = "Step",
        attrs = { bias_correction = self.bias_correction },
      }
    end,
  })

return M
