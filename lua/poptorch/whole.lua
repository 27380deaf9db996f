--- Attributes that PopTorch gives an optimizer as a whole, not each of its
--- groups, and the values that they have in an optimizer without them: one of
--- torch.optim.
local core = require("lupine.core")

local float32 = core.dtypes.float32

local M = {}

---@type table<string, any>
M.defaults = { loss_scaling = 1, use_combined_accum = false, accum_type = float32,
  velocity_accum_type = float32, first_order_momentum_accum_type = float32,
  second_order_momentum_accum_type = float32, max_grad_norm = math.huge,
  bias_correction = true, use_tf_variant = false }

-- Numbers; the others choose the program.
M.may_vary = { loss_scaling = true, max_grad_norm = true }

--- An attribute of an optimizer of either kind.
---@param optimizer torch.optim.Optimizer
---@param name string of M.defaults
---@return any
function M.value(optimizer, name)
  local value = optimizer[name]
  if value == nil then
    return M.defaults[name]
  end
  return value
end

--- Whether gradients are accumulated in half precision, which only the running
--- mean does.
---@param optimizer torch.optim.Optimizer
---@return boolean
function M.accumulates_half(optimizer)
  return M.value(optimizer, "accum_type") == core.dtypes.float16
    and not M.value(optimizer, "use_combined_accum")
end

return M
