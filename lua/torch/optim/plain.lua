--- Parts of updates that are made of tensor operators.
local M = {}

--- Counts the step; gives its number and the gradient with sign and L2 decay.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
---@return number step
---@return torch.Tensor grad
function M.start(self, group, param, grad)
  local step = self:state_tensor(param, "step"):add_(1):item()
  if group.maximize then
    grad = -grad
  end
  local decay = group.weight_decay or 0
  if decay ~= 0 and group.decoupled_weight_decay then
    param:mul_(1 - group.lr * decay)
  elseif decay ~= 0 then
    -- the parameter is written next; a gradient would ask for what it was
    grad = grad + (group.differentiable and param:clone() or param) * decay
  end
  return step, grad
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
  local mean = self:state_tensor(param, "exp_avg"):mul_(beta1):add_(grad * (1 - beta1))
  local square = self:state_tensor(param, "exp_avg_sq"):mul_(beta2)
    :add_(grad * grad * (1 - beta2))
  return mean, square, beta1, beta2
end

return M
