--- The optimizer of a training step, as lupine/session/training.lua sees one. States
--- are the optimizer's own tensors: a program reads and writes them where they are.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local Optimizer = require("torch.optim.optimizer")

local M = {}

--- error: TypeError for what is no optimizer; NotImplementedError for one that calls
--- the model itself; ValueError for options that no program has
---@param optimizer any
function M.check(optimizer)
  errors.check(class.of(optimizer) and Optimizer:is(optimizer), "TypeError",
    "compile(opts): optimizer: expected a torch.optim.Optimizer, got %s", check.describe(optimizer))
  local name = getmetatable(optimizer).__name
  errors.check(not optimizer.variable_attrs, "TypeError", "compile(opts): optimizer: %s of "
    .. "poptorch.optim is for poptorch.trainingModel: take torch.optim's", name)
  errors.check(not require("torch.optim").LBFGS:is(optimizer), "NotImplementedError",
    "compile(opts): optimizer: %s calls the model as often as it likes, a step calls it once. "
    .. "Allowed: all others of torch.optim", name)
  for g, group in ipairs(optimizer.param_groups) do
    for _, flag in ipairs({ "differentiable", "capturable" }) do
      errors.check(not group[flag], "ValueError",
        "compile(opts): optimizer: group %d: %s must be false in a compiled step", g - 1, flag)
    end
  end
end

--- Whether the update is an operator of the program: those of SGD, Adam, AdamW and
--- RMSprop. Others run behind it as they do eagerly.
---@param optimizer torch.optim.Optimizer
---@return boolean
function M.compiles(optimizer)
  return optimizer.update_rule ~= Optimizer.update_rule and optimizer.update == Optimizer.update
    and optimizer.step == Optimizer.step
end

--- What of the optimizer fixes a program: how its groups are updated.
---@param optimizer torch.optim.Optimizer
---@return string
function M.key(optimizer)
  local out = {}
  if not M.compiles(optimizer) then
    return "eager"
  end
  for _, group in ipairs(optimizer.param_groups) do
    local rule = optimizer:update_rule(group)
    out[#out + 1] = rule.op
    for _, what in ipairs(rule.inputs) do
      out[#out + 1] = what or "-"
    end
    local flags = {}
    for name, value in pairs(rule.attrs or flags) do
      flags[#flags + 1] = name .. "=" .. tostring(value)
    end
    table.sort(flags)
    table.move(flags, 1, #flags, #out + 1, out)
  end
  return table.concat(out, " ")
end

-- A number, or a tensor of one element, as the double that updates take.
local function scalar(value)
  if core.is_tensor(value) then
    return value:detach():double():reshape({})
  end
  return core.tensor(value, { dtype = core.dtypes.float64 })
end

---@class lupine.training_step.View
local View = class.new("View")
M.View = View

---@param step lupine.TrainingStep
---@param name_of table<torch.Tensor, string> of parameters of the program
function View:init(step, name_of)
  self.optimizer, self.name_of, self.max_norm = step.optimizer, name_of, step._max_norm
  self.compiles = M.compiles(step.optimizer)
end

-- Of what asks for the gradient alone: no run ends with such an update.
local GRADIENT = { op = "sub", inputs = { "param", "grad" }, outputs = { "param" } }

--- How each parameter is updated that is trained.
--- error: ValueError for a parameter that is there twice, NotImplementedError for one
--- with hooks
---@return table[]
function View:rules()
  local list, seen = {}, {}
  for g, group in ipairs(self.optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      local name = self.name_of[p]
      errors.check(not seen[p], "ValueError", "compile: the optimizer has the parameter '%s' twice",
        name)
      seen[p] = true
      if p.requires_grad then
        errors.check(not core.hooked(p), "NotImplementedError", "compile: the parameter '%s' has "
          .. "gradient hooks (register_hook), which a compiled step does not call: remove() them",
          name)
        local rule = self.compiles and self.optimizer:update_rule(group, p) or GRADIENT
        list[#list + 1] = { param = name, tensor = p, group = g, op = rule.op,
          inputs = rule.inputs, outputs = rule.outputs, attrs = rule.attrs,
          counts = rule.counts, first = rule.first,
          max_norm = self.compiles and self.max_norm and "max_norm" or nil }
      end
    end
  end
  return list
end

--- The present value of a hyper-parameter, and the key of those that share it.
---@param group integer
---@param name string
---@return torch.Tensor, string
function View:hyper(group, name)
  if name == "max_norm" then
    return scalar(self.max_norm), name
  end
  return scalar(self.optimizer:hyper_value(self.optimizer.param_groups[group], name)),
    ("%s of group %d"):format(name, group - 1)
end

--- The same as it stands in the group, for a look whether it is another one.
---@param group integer
---@param name string
---@return number|torch.Tensor
function View:value(group, name)
  return name == "max_norm" and self.max_norm
    or self.optimizer:hyper_value(self.optimizer.param_groups[group], name)
end

--- A state's tensor in the form that a program takes: what was loaded may be a
--- number, or lie or be rounded otherwise.
---@param param torch.Tensor
---@param name string
---@return torch.Tensor? nil: there is none yet
function View:present(param, name)
  local own = rawget(self.optimizer.state, param)
  local t = own and own[name]
  if t == nil then
    return nil
  elseif not core.is_tensor(t) then
    t = core.tensor(t, { dtype = core.dtypes.float32 })
  end
  if not t:is_floating_point() then
    t = t:float()
  end
  if not t:is_contiguous() or t.requires_grad or t._base then
    t = t:detach():contiguous():clone()
  end
  own[name] = t
  return t
end

--- Room for a state. A new one becomes the optimizer's with the first run (attach):
--- a parameter without a gradient has none.
---@param rule table
---@param name string
---@return torch.Tensor room, boolean new
function View:room(rule, name)
  return self:present(rule.tensor, name) or self.optimizer:initial_state(rule.tensor, name), false
end

--- The tensor of a state: the optimizer's, or the room for one that it has not, which
--- is its own with the first update.
---@param state table {rule, name, tensor, fresh: the tensor is as states start}
---@param updates boolean
---@return torch.Tensor
function View:attach(state, updates)
  local param, name = state.rule.tensor, state.name
  local t = self:present(param, name)
  if not t then
    t = state.fresh and state.tensor or self.optimizer:initial_state(param, name)
    self.optimizer.state[param][name] = updates and t or nil
  end
  state.fresh = not updates and state.fresh
  return t
end

return M
