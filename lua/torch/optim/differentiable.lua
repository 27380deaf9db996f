--- differentiable = true: updates made of tensor operators that a gradient goes
--- through, to the gradient (and what it was computed from), to the parameter
--- before, to the states and to options that are tensors. The parameter and the
--- states are still written in place, so a parameter must not be a leaf.
--- Source: PyTorch documentation, torch.optim (the algorithms of SGD, Adam,
--- AdamW, RMSprop).
local Optimizer = require("torch.optim.optimizer")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local plain = require("torch.optim.plain")

local M = {}

-- Counts the step.
local function counted(self, param)
  local step = self:state_tensor(param, "step")
  return step:add_(1):item()
end

-- A state's value now: the state itself is written, by this step or the next.
local function value_of(self, param, name)
  return self:state_tensor(param, name):clone()
end

local function put(self, param, name, value)
  self:state_tensor(param, name):copy_(value)
  return value
end

-- A state moves towards `value` by the share 1 - keep.
local function mix(self, param, name, keep, value)
  return put(self, param, name, value_of(self, param, name) * keep + value * (1 - keep))
end

--- SGD. The first momentum is a bare copy of the gradient, as in PyTorch.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
function M.SGD(self, group, param, grad)
  local g = plain.gradient(group, param, grad)
  if not plain.absent(group.momentum) then
    local new = g:detach()
    if counted(self, param) > 1 then
      new = value_of(self, param, "momentum_buffer") * group.momentum + g * (1 - group.dampening)
    end
    put(self, param, "momentum_buffer", new)
    g = group.nesterov and g + new * group.momentum or new
  end
  param:copy_(param - g * group.lr)
end

--- Adam and AdamW.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
function M.Adam(self, group, param, grad)
  local step, beta1, beta2 = counted(self, param), group.betas[1], group.betas[2]
  local p, g = param, plain.gradient(group, param, grad)
  if group.decoupled_weight_decay and not plain.absent(group.weight_decay) then
    p = p:clone() * (1 - group.lr * group.weight_decay)
  end
  local mean = mix(self, param, "exp_avg", beta1, g)
  local square = mix(self, param, "exp_avg_sq", beta2, g * g)
  if group.amsgrad then
    square = put(self, param, "max_exp_avg_sq",
      square:maximum(value_of(self, param, "max_exp_avg_sq")))
  end
  local root = square:sqrt() / (1 - beta2 ^ step) ^ 0.5 + group.eps
  param:copy_(p - mean / root * (group.lr / (1 - beta1 ^ step)))
end

--- RMSprop.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
function M.RMSprop(self, group, param, grad)
  local g = plain.gradient(group, param, grad)
  counted(self, param)
  local square = mix(self, param, "square_avg", group.alpha, g * g)
  if group.centered then
    square = square - mix(self, param, "grad_avg", group.alpha, g):pow(2)
  end
  local x = g / (square:sqrt() + group.eps)
  if not plain.absent(group.momentum) then
    x = put(self, param, "momentum_buffer",
      value_of(self, param, "momentum_buffer") * group.momentum + x)
  end
  param:copy_(param - x * group.lr)
end

-- Options that the other updates take as tensors; the rest are numbers there.
local TENSORS = { lr = true, weight_decay = true, eps = true }

local function number(value, name, option)
  errors.check(not core.is_tensor(value) or not value.requires_grad, "TypeError",
    "%s: %s must be a number, not a tensor that requires a gradient: with differentiable = true "
    .. "only lr, weight_decay and eps may be", name, option)
  return Optimizer.number(value)
end

local function options(group, name)
  local out = {}
  for option, value in pairs(group) do
    local as_is = TENSORS[option] or option == "params"
    out[option] = as_is and value or number(value, name, option)
  end
  out.betas = group.betas and { number(group.betas[1], name, "betas"),
    number(group.betas[2], name, "betas") }
  return out
end

--- The differentiable form of an update that writes in place: it works on
--- copies, which no later step changes.
---@param update fun(self: torch.optim.Optimizer, group: table, param: torch.Tensor,
---  grad: torch.Tensor)
---@param name string of the class
---@return fun(self: torch.optim.Optimizer, group: table, param: torch.Tensor, grad: torch.Tensor)
function M.of(update, name)
  return function(self, group, param, grad)
    local copies = {}
    local view = setmetatable({
      state_tensor = function(_, _, state)
        copies[state] = copies[state] or self:state_tensor(param, state):clone()
        return copies[state]
      end,
    }, { __index = self })
    local new = param:clone()
    update(view, options(group, name), new, grad)
    param:copy_(new)
    for state, value in pairs(copies) do
      self:state_tensor(param, state):copy_(value)
    end
  end
end

return M
