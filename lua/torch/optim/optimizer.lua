--- torch.optim.Optimizer: groups of parameters, state, the step.
---
--- A formula stands in one place, an operator of the core. An optimizer says
--- with `update_rule(group, param)` how the operator is applied:
---   op       the operator's name
---   inputs   what its operands are, in order: "param", "grad", "state:NAME",
---            "hyper:NAME", or false for one that is left out
---   outputs  where its results go: "param", "state:NAME", false
---   counts   name of a state that grows by one before the update
---   first    {op =, inputs =, output = "state:NAME"}: an operator that makes a state
---            anew before the update reads it
---   attrs    attributes of the operator
--- The step here runs the rule; a compiler makes the update from `device_rule`,
--- which is the same unless a class says otherwise, with `state_tensor` and
--- `hyper_tensor` for the tensors behind the names.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local classes = require("torch.class_names")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local groups = require("torch.optim.groups")
local hooks = require("torch.nn.hooks")
local saved = require("torch.optim.state")
local tables = require("lupine.base.tables")
local text = require("torch.nn.text")
local types = require("torch.optim.types")

---@class torch.optim.Optimizer
---@field param_groups table[] each {params = {…}, lr = …, …}
---@field state table<torch.Tensor, table<string, torch.Tensor>>
---@field defaults table
local Optimizer = class.new("Optimizer")
classes.watch(Optimizer)

--- An instance of the class without groups: `init` is not called.
---@param cls table
---@return torch.optim.Optimizer
function Optimizer._blank(cls)
  return setmetatable({
    param_groups = core.list({}), state = saved._new_state(), defaults = {}, _names = {},
    _pre_hooks = {}, _post_hooks = {},
    _state_hooks = { save = {}, saved = {}, load = {}, loaded = {} },
  }, cls)
end

--- An instance of the class, which `init` gets the arguments of.
---@param cls table
---@param ... any params, options
---@return torch.optim.Optimizer
function Optimizer.new(cls, ...)
  local self = Optimizer._blank(cls)
  self:init(...)
  return self
end

-- ---- groups ----------------------------------------------------------------

--- Adds {params = {…}, lr = …}; what it leaves out has the defaults.
---@param group table
function Optimizer:add_param_group(group)
  check.method(self, Optimizer, "add_param_group")
  self.param_groups[#self.param_groups + 1] = groups.complete(self, group)
end

--- Raises for values that a group must not have; classes override it.
function Optimizer.check_group() end

function Optimizer:_option_names()
  local set = class.copy(self.defaults)
  for name in pairs(self._names) do
    set[name] = true
  end
  return tables.keys(set)
end

--- params: a list or an iterator of tensors, or a list of groups.
---@param params any
---@param defaults table
function Optimizer:init(params, defaults)
  errors.check(not core.is_tensor(params), "TypeError", "params argument given to the optimizer "
    .. "should be a list or an iterator of Tensors or groups, but got a Tensor")
  for name, value in pairs(defaults or {}) do
    self.defaults[name] = value
  end
  local list, names = groups.list_of(params, "params")
  errors.check(#list > 0, "ValueError", "optimizer got an empty parameter list")
  if type(list[1]) == "table" then
    for _, group in ipairs(list) do
      self:add_param_group(group)
    end
  else
    self:add_param_group({ params = list, param_names = names })
  end
end

-- ---- values behind a rule --------------------------------------------------

--- A hyper-parameter of a group: "beta2" is the second of betas.
---@param _ torch.optim.Optimizer
---@param group table of param_groups
---@param name string
---@return number|torch.Tensor
function Optimizer.hyper_value(_, group, name)
  local list, i = name:match("^(%a+)(%d)$")
  if list and group[list .. "s"] then
    return group[list .. "s"][tonumber(i)]
  end
  return group[name]
end

--- A hyper-parameter that may be a tensor of one element as a number.
---@param value number|torch.Tensor|boolean
---@return number|boolean
function Optimizer.number(value)
  return core.is_tensor(value) and value:item() or value
end

--- The group's present value as a float32 tensor of no dimensions.
---@param group table of param_groups
---@param name string
---@return torch.Tensor []
function Optimizer:hyper_tensor(group, name)
  local value = self:hyper_value(group, name)
  if core.is_tensor(value) then
    return value:detach():float():reshape({})
  end
  types.number(getmetatable(self).__name, name, value)
  return core.tensor(value, { dtype = core.dtypes.float32 })
end

--- Room for a state, whatever is in it: memory that is not touched yet.
---@param _ torch.optim.Optimizer
---@param param torch.Tensor
---@param name string of the state
---@return torch.Tensor
function Optimizer.empty_state(_, param, name)
  local torch = require("torch")
  if name == "step" then
    return torch.empty({}, { dtype = torch.float32 })
  end
  return torch.empty_like(param)
end

--- Gives such room the value that the state starts with.
---@param _ torch.optim.Optimizer
---@param _param torch.Tensor
---@param _name string of the state
---@param room torch.Tensor
function Optimizer.start_state(_, _param, _name, room)
  core.zero_room(room)
end

--- The value that a state starts with.
---@param param torch.Tensor
---@param name string of the state
---@return torch.Tensor
function Optimizer:initial_state(param, name)
  local room = self:empty_state(param, name)
  self:start_state(param, name, room)
  return room
end

--- A parameter's state, made on demand.
---@param param torch.Tensor
---@param name string of the state
---@return torch.Tensor
function Optimizer:state_tensor(param, name)
  local of = self.state[param]
  if not of[name] then
    of[name] = self:initial_state(param, name)
  end
  return of[name]
end

--- How one parameter is updated; classes that compile give it.
---@return table rule {op, inputs, outputs, counts, attrs}
function Optimizer:update_rule()
  errors.raise("NotImplementedError", "%s has no update that can be compiled: use it with "
    .. "torch alone, or one of SGD, Adam, AdamW, RMSprop, Adagrad, NAdam",
    getmetatable(self).__name)
end

--- The same on the device.
---@param group table of param_groups
---@param param torch.Tensor
---@return table rule
function Optimizer:device_rule(group, param)
  return self:update_rule(group, param)
end

-- ---- the step --------------------------------------------------------------

local function operand(self, group, param, grad, what)
  if what == "param" then
    return param
  elseif what == "grad" then
    return grad
  elseif what then
    local kind, name = what:match("^(%a+):(.+)$")
    if kind == "state" then
      return self:state_tensor(param, name)
    end
    return self:hyper_value(group, name)
  end
  return nil
end

-- Receives the empty result of a state that there is not, by dtype.
local none = {}
local function nothing(dtype)
  none[dtype] = none[dtype] or core.forms.functions.empty(0, { dtype = dtype })
  return none[dtype]
end

local HALF = { [core.dtypes.float16] = true, [core.dtypes.bfloat16] = true }

-- The form of a rule's update that holds instead of its operator. A subclass's own rule
-- has none.
local function form_beside(self, group, param)
  local beside = self._beside
  if not beside or beside.rule ~= self.update_rule then
    return nil
  elseif group.differentiable then
    return beside.differentiable
  end
  local fused = group.fused and group.fused ~= 0
  return HALF[param.dtype] and not fused and beside.halves or nil
end

--- One parameter's update; classes without a rule override it.
---@param group table of param_groups
---@param param torch.Tensor
---@param grad torch.Tensor of param's shape
function Optimizer:update(group, param, grad)
  local form = form_beside(self, group, param)
  if form then
    return form(self, group, param, grad)
  end
  local rule = self:update_rule(group, param)
  if rule.counts then
    self:state_tensor(param, rule.counts):add_(1)
  end
  local first = rule.first
  if first then
    local of = {}
    for i, what in ipairs(first.inputs) do
      of[i] = operand(self, group, param, grad, what)
    end
    operand(self, group, param, grad, first.output):copy_(core.forms.internal[first.op](
      table.unpack(of)))
  end
  local args, n = {}, #rule.inputs
  for i = 1, n do
    args[i] = operand(self, group, param, grad, rule.inputs[i])
  end
  local out = {}
  for i, what in ipairs(rule.outputs) do
    out[i] = what and operand(self, group, param, grad, what) or nothing(param.dtype)
  end
  local keywords = { out = out }
  for name, value in pairs(rule.attrs or {}) do
    keywords[name] = value
  end
  args[n + 1] = keywords
  core.forms.internal[rule.op](table.unpack(args, 1, n + 1))
end

local function step_groups(self)
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      local grad = p.grad
      if grad then
        errors.check(not group.capturable, "AssertionError", "%s: capturable = true is for steps "
          .. "in a CUDA graph; here there is none", getmetatable(self).__name)
        self:update(group, p, grad)
      end
    end
  end
end

--- Updates all parameters that have a gradient.
---@param ... any closure (function|nil): computes the loss again and returns it
---@return any loss what the closure returned
function Optimizer:step(...)
  check.method(self, Optimizer, "step")
  check.most("step", 1, ...)
  local closure = check.one("step", "closure", ...)
  hooks.run(self._pre_hooks, self, { closure })
  local torch = require("torch")
  local loss
  if closure then
    loss = torch.enable_grad(closure)
  end
  local run = self.defaults.differentiable and torch.enable_grad or torch.no_grad
  run(function()
    step_groups(self)
  end)
  self._stepped = true
  hooks.run(self._post_hooks, self, { closure })
  return loss
end

--- Takes the gradients away, or with set_to_none = false fills them with 0.
--- Source: PyTorch documentation, optim.Optimizer.zero_grad
---@param ... any set_to_none (true)
function Optimizer:zero_grad(...)
  check.method(self, Optimizer, "zero_grad")
  local to_none = check.arguments("zero_grad", { "set_to_none" }, nil, ...)[1] ~= false
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      local g = not to_none and p.grad
      if to_none then
        p.grad = nil
      elseif g then
        p.grad = g:detach():zero_()
      end
    end
  end
end

--- hook(optimizer, args) before every step. Returns a handle with remove().
---@param fn fun(optimizer, args: table)
---@return torch.RemovableHandle
function Optimizer:register_step_pre_hook(fn)
  return hooks.add(self._pre_hooks, fn)
end

--- hook(optimizer, args) after every step.
---@param fn fun(optimizer, args: table)
---@return torch.RemovableHandle
function Optimizer:register_step_post_hook(fn)
  return hooks.add(self._post_hooks, fn)
end

function Optimizer.__tostring(self)
  local lines = { getmetatable(self).__name .. " (" }
  for i, group in ipairs(self.param_groups) do
    lines[#lines + 1] = ("Parameter Group %d"):format(i - 1)
    local names = tables.set(self:_option_names())
    for name in pairs(group) do
      names[name] = name ~= "params" or nil
    end
    for _, name in ipairs(tables.keys(names)) do
      local value = group[name]
      lines[#lines + 1] = ("    %s: %s"):format(name,
        type(value) == "string" and value or text.repr(value))
    end
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

for name, method in pairs(saved) do
  Optimizer[name] = method
end

return Optimizer
