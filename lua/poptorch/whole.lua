--- Attributes that PopTorch gives an optimizer as a whole, not each of its
--- groups, and the values that they have in an optimizer without them: one of
--- torch.optim.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")

local float16, float32 = core.dtypes.float16, core.dtypes.float32

local M = {}

---@type table<string, any>
M.defaults = { loss_scaling = 1, use_combined_accum = false, accum_type = float32,
  velocity_accum_type = float32, first_order_momentum_accum_type = float32,
  second_order_momentum_accum_type = float32, max_grad_norm = math.huge,
  bias_correction = true, use_tf_variant = false }

-- Numbers; the others choose the program.
M.may_vary = { loss_scaling = true, max_grad_norm = true }

--- What gradients are multiplied by and divided by again.
---@param optimizer string its class's name, for messages
---@param attr string
---@param value any
function M.check_scale(optimizer, attr, value)
  local where = ("%s: %s"):format(optimizer, attr)
  check.number(value, where)
  errors.check(value > 0 and value < math.huge, "ValueError",
    "%s: expected a finite float > 0, got %s", where, check.describe(value))
end

--- error: for a value that such an attribute cannot have
---@param optimizer string its class's name, for messages
---@param attr string of M.defaults
---@param value any
function M.check(optimizer, attr, value)
  if attr:find("accum_type$") then
    errors.check(value == float16 or value == float32, "AssertionError",
      "%s: %s: allowed are torch.float16 and torch.float32, got %s", optimizer, attr,
      type(value) == "userdata" and tostring(value) or check.describe(value))
  elseif attr == "max_grad_norm" then
    check.number(value, optimizer .. ": max_grad_norm")
    errors.check(value == value and value > 0, "Error",
      "%s: max_grad_norm: a number above 0 is needed, got %s", optimizer, tostring(value))
  elseif attr == "loss_scaling" then
    M.check_scale(optimizer, attr, value)
  else
    check.bool(value, ("%s: %s"):format(optimizer, attr))
  end
end

--- An attribute of an optimizer of either kind.
---@param optimizer torch.optim.Optimizer
---@param name string of M.defaults
---@return any
function M.value(optimizer, name)
  local value = optimizer[name]
  if value == nil then
    return M.defaults[name]
  end
  M.check(getmetatable(optimizer).__name, name, value)
  return value
end

--- Whether gradients are accumulated in half precision, which only the running
--- mean does.
---@param optimizer torch.optim.Optimizer
---@return boolean
function M.accumulates_half(optimizer)
  return M.value(optimizer, "accum_type") == float16
    and not M.value(optimizer, "use_combined_accum")
end

--- Warns of a velocity scale that no update has.
---@param group table
---@param combined boolean whether the optimizer has use_combined_accum
---@param where string
function M.warn_of_scale(group, combined, where)
  if group.velocity_scaling and not combined then
    logging.warn("%s: velocity_scaling has no effect without use_combined_accum: the velocity is "
      .. "scaled as the loss is", where)
  end
end

return M
