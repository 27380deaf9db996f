--- Parts of updates that are made of tensor operators.
local core = require("lupine.core")

local M = {}

--- Whether an option does nothing; a tensor may get a gradient.
---@param value number|torch.Tensor
---@return boolean
function M.absent(value)
  return not core.is_tensor(value) and value == 0
end

--- t + k x, rounded once.
---@param t torch.Tensor is written
---@param x torch.Tensor
---@param k number|torch.Tensor
---@return torch.Tensor t
function M.add(t, x, k)
  return core.is_tensor(k) and t:add_(x * k) or t:add_(x, { alpha = k })
end

--- t + k x / y, rounded once.
---@param t torch.Tensor is written
---@param x torch.Tensor
---@param y torch.Tensor
---@param k number|torch.Tensor
---@return torch.Tensor t
function M.add_quotient(t, x, y, k)
  return core.is_tensor(k) and t:add_(x / y * k) or t:addcdiv_(x, y, { value = k })
end

--- The gradient with sign and L2 decay.
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
---@return torch.Tensor
function M.gradient(group, param, grad)
  local decay = group.weight_decay or 0
  if group.maximize then
    grad = -grad
  end
  if M.absent(decay) or group.decoupled_weight_decay then
    return grad
  end
  -- the parameter is written next; a gradient would ask for what it was
  local p = group.differentiable and param:clone() or param
  return core.is_tensor(decay) and grad + p * decay or grad:add(p, { alpha = decay })
end

--- Counts the step, after decay beside the gradient; gives the step's number and the
--- gradient with sign and L2 decay.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
---@return number step
---@return torch.Tensor grad
function M.start(self, group, param, grad)
  local step = self:state_tensor(param, "step"):add_(1):item()
  local decay = group.decoupled_weight_decay and group.weight_decay or 0
  if not M.absent(decay) then
    param:mul_(1 - group.lr * decay)
  end
  return step, M.gradient(group, param, grad)
end

--- The running means of Adam's kind.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
---@return torch.Tensor mean
---@return torch.Tensor square
---@return number beta1
---@return number beta2
function M.moments(self, group, param, grad)
  local beta1, beta2 = group.betas[1], group.betas[2]
  local mean = self:state_tensor(param, "exp_avg"):lerp_(grad, 1 - beta1)
  local square = self:state_tensor(param, "exp_avg_sq"):mul_(beta2)
    :addcmul_(grad, grad, { value = 1 - beta2 })
  return mean, square, beta1, beta2
end

--- The momentum that NAdam has in step t.
---@param group table
---@param beta1 number
---@param t number
---@return number
function M.mu(group, beta1, t)
  return beta1 * (1 - 0.5 * 0.96 ^ (t * group.momentum_decay))
end

return M
