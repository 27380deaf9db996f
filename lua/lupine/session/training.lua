--- The optimizer's part of a session: update rules, hyper-parameters and states
--- become variables of the step, and move between host and device.
---
--- A session sees an optimizer as an object of five methods:
---
---   rules()          how each parameter is updated, a list of
---                      param    its name
---                      op       the operator of the update
---                      inputs, outputs
---                               its operands in order: "param", "grad",
---                               "state:NAME", "hyper:NAME", false for none
---                      counts   name of a state that grows by one before
---                      first    {op =, inputs =, output = "state:NAME"}: an operator
---                               that makes a state anew before the update reads it
---                      attrs    of the operator
---                      accum    dtype of the gradient's accumulator
---                      group    whose hyper-parameters it has; any value
---                      max_norm name of a hyper-parameter, the most that the
---                               norm is of all rules that share it, and
---                      clips    of what it is: LpClip (src/passes/compile.h)
---                    and in its field loss_scale the name of a
---                    hyper-parameter, where the step scales, and in `scaling` how
---                    that is found (session/scaling.lua)
---   hyper(group, name)
---                    the present value, a float32 tensor of no dimensions, and
---                    a key: rules of one key share one value
---   room(rule, name) a tensor for a state and whether it is new: one that is
---                    has no values yet, the program may not fit the device
---   start(state)     gives a new state its first values
---   tensor(state)    the present one in the device's form; nil for a state that
---                    the optimizer does not know: the device's is kept
---
--- where a state is {rule = (nil: of no parameter), name =, tensor =, index = of its
--- variable}.
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local scaling = require("lupine.session.scaling")
local stored = require("lupine.session.stored")

local M = {}

-- Makes variables of states and hyper-parameters, and the rules that name them;
-- a complete step has them already, they get their data.
local Builder = class.new("Builder")

function Builder:init(step, by_name, optimizer, complete)
  self.step, self.by_name, self.optimizer, self.complete = step, by_name, optimizer, complete
  self.hypers, self.states, self.shared_hyper, self.shared_state = {}, {}, {}, {}
end

function Builder:variable(role, name, tensor, param)
  if not self.complete then
    return self.step:add_var(role, name, tensor, param)
  end
  local var = self.by_name[role .. " " .. name]
  errors.check(var, "Error", "the executable has no %s '%s': it was compiled for another optimizer",
    role, name)
  stored.give(self.step, var, tensor)
  return var.index
end

-- Without a rule: the optimizer's as a whole.
function Builder:state(rule, var, name)
  local key = rule and name .. "___" .. var.name or name
  if not self.shared_state[key] then
    local tensor, new = self.optimizer:room(rule, name)
    local index = self:variable("state", key, tensor, var and var.index)
    self.states[#self.states + 1] = { index = index, rule = rule, name = name, tensor = tensor,
      new = new }
    self.shared_state[key] = index
  end
  return self.shared_state[key]
end

function Builder:hyper(group, name)
  local value, key = self.optimizer:hyper(group, name)
  if not self.shared_hyper[key] then
    local index = self:variable("hyper", key, value)
    self.hypers[#self.hypers + 1] = { index = index, group = group, name = name, value = value }
    self.shared_hyper[key] = index
  end
  return self.shared_hyper[key]
end

-- Variable of an operand.
function Builder:ref(what, rule, var)
  if not what or what == "grad" then
    return what
  elseif what == "param" then
    return var.index
  end
  local kind, name = what:match("^(%a+):(.+)$")
  return kind == "state" and self:state(rule, var, name) or self:hyper(rule.group, name)
end

function Builder:refs(list, rule, var)
  local out = {}
  for i, what in ipairs(list) do
    out[i] = self:ref(what, rule, var)
  end
  return out
end

function Builder:update(rule)
  local var = self.by_name["parameter " .. rule.param]
  errors.check(var, "ValueError", "an update rule names the parameter '%s', which the step does "
    .. "not have", rule.param)
  local first = rule.first and { op = rule.first.op, inputs = self:refs(rule.first.inputs, rule,
    var), output = self:ref(rule.first.output, rule, var) }
  return { op = rule.op, param = var.index, first = first, attrs = rule.attrs, accum = rule.accum,
    max_norm = rule.max_norm and self:hyper(rule.group, rule.max_norm), clips = rule.clips,
    inputs = self:refs(rule.inputs, rule, var), outputs = self:refs(rule.outputs, rule, var),
    count = rule.counts and self:state(rule, var, rule.counts) or nil }
end

--- Adds the optimizer's variables to a step and what step:complete needs of it
--- to `compile`. A complete step has them: then they get the optimizer's values.
--- error: poptorch.Error for an optimizer that a complete step is not of
---@param step lupine.Step
---@param by_name table<string, table> variables by "role name"
---@param optimizer table as above
---@param compile table
---@param complete? boolean
---@return table[] hypers {index, group, name, value}
---@return table[] states as above
function M.complete(step, by_name, optimizer, compile, complete)
  local b = Builder(step, by_name, optimizer, complete)
  compile.rules = {}
  for i, rule in ipairs(optimizer:rules()) do
    compile.rules[i] = b:update(rule)
  end
  compile.loss_scale = optimizer.loss_scale and b:hyper(nil, optimizer.loss_scale)
  compile.scaling = optimizer.scaling and scaling.compiled(optimizer.scaling, function(name)
    return b:state(nil, nil, name)
  end)
  return b.hypers, b.states
end

--- Gives new states their first values.
---@param session lupine.Session
function M.start(session)
  for _, state in ipairs(session.states) do
    if state.new then
      session.optimizer:start(state)
      state.new = nil
    end
  end
end

-- ---- methods of a session -----------------------------------------------------------

local methods = {}
M.methods = methods

--- The optimizer's present attributes -> device.
function methods:upload_hypers()
  for _, h in ipairs(self.hypers) do
    h.value = self.optimizer:hyper(h.group, h.name)
    self.exec:write(h.index, h.value)
  end
end

--- Device -> the optimizer's tensors, if a run has changed them since.
function methods:states_to_host()
  if self.exec:marked("states") then
    self.exec:pull("states")
  end
end

--- Reading one of the optimizer's states brings all from the device, once it has
--- values of its own.
function methods:mirror_states()
  self.exec:unmirror("states")
  for _, state in ipairs(self.states) do
    self.exec:mirror(state.index, state.tensor, "states")
  end
end

--- The optimizer's state tensors -> device, also those that were replaced.
function methods:upload_states()
  self:states_to_host()
  for _, state in ipairs(self.states) do
    local tensor = self.optimizer:tensor(state)
    if tensor then
      state.tensor = tensor
      self.exec:write(state.index, tensor)
    end
  end
  self:mirror_states()
  self.exec:mark("states")
end

return M
