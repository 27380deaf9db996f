--- Updates of half parameters, an operation after the other as PyTorch has them where they
--- are not fused: each rounds to the parameter's type. So what is too small for it is 0,
--- eps = 1e-8 among it, and what is divided by that is infinite or no number.
--- Source: PyTorch documentation, torch.optim (the algorithms of SGD, Adam, AdamW,
--- RMSprop, Adagrad, NAdam).
local plain = require("torch.optim.plain")

local M = {}

--- The first momentum is a bare copy of the gradient.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
function M.SGD(self, group, param, grad)
  local momentum = group.momentum
  local g = plain.gradient(group, param, grad)
  if momentum ~= 0 then
    local step = self:state_tensor(param, "step"):add_(1):item()
    local buffer = self:state_tensor(param, "momentum_buffer")
    if step == 1 then
      buffer:copy_(g)
    else
      buffer:mul_(momentum):add_(g, { alpha = 1 - group.dampening })
    end
    g = group.nesterov and g:add(buffer, { alpha = momentum }) or buffer
  end
  plain.add(param, g, -group.lr)
end

--- Adam and AdamW.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
function M.Adam(self, group, param, grad)
  local step, g = plain.start(self, group, param, grad)
  local mean, square, beta1, beta2 = plain.moments(self, group, param, g)
  if group.amsgrad then
    local top = self:state_tensor(param, "max_exp_avg_sq")
    square = top:copy_(top:maximum(square))
  end
  local root = square:sqrt() / (1 - beta2 ^ step) ^ 0.5 + group.eps
  plain.add_quotient(param, mean, root, -group.lr / (1 - beta1 ^ step))
end

--- RMSprop.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
function M.RMSprop(self, group, param, grad)
  local alpha = group.alpha
  local _, g = plain.start(self, group, param, grad)
  local square = self:state_tensor(param, "square_avg"):mul_(alpha)
    :addcmul_(g, g, { value = 1 - alpha })
  if group.centered then
    local mean = self:state_tensor(param, "grad_avg"):lerp_(g, 1 - alpha)
    square = square:addcmul(mean, mean, { value = -1 })
  end
  local root = square:sqrt() + group.eps
  if group.momentum > 0 then
    local buffer = self:state_tensor(param, "momentum_buffer"):mul_(group.momentum)
      :addcdiv_(g, root)
    plain.add(param, buffer, -group.lr)
  else
    plain.add_quotient(param, g, root, -group.lr)
  end
end

--- Adagrad.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
function M.Adagrad(self, group, param, grad)
  local step, g = plain.start(self, group, param, grad)
  local root = self:state_tensor(param, "sum"):addcmul_(g, g):sqrt() + group.eps
  plain.add_quotient(param, g, root, -group.lr / (1 + (step - 1) * group.lr_decay))
end

--- NAdam.
---@param self torch.optim.Optimizer
---@param group table
---@param param torch.Tensor
---@param grad torch.Tensor
function M.NAdam(self, group, param, grad)
  local step, g = plain.start(self, group, param, grad)
  local mean, square, beta1, beta2 = plain.moments(self, group, param, g)
  local mu, next_mu = plain.mu(group, beta1, step), plain.mu(group, beta1, step + 1)
  local product = self:state_tensor(param, "mu_product"):mul_(mu):item()
  local root = (square / (1 - beta2 ^ step)):sqrt() + group.eps
  plain.add_quotient(param, g, root, -group.lr * (1 - mu) / (1 - product))
  plain.add_quotient(param, mean, root, -group.lr * next_mu / (1 - product * next_mu))
end

return M
