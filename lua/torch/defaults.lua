--- torch.pi and its like, and the device that tensors are made on.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = { pi = math.pi, e = math.exp(1), inf = math.huge, nan = 0.0 / 0.0, newaxis = core.none }

--- The device of tensors that name none: the processor.
---@return torch.device
function M.get_default_device()
  return core.device("cpu")
end

--- Takes "cpu" and nothing else: poptorch moves models to IPUs.
--- error: RuntimeError for another device
---@param device string|torch.device|nil
function M.set_default_device(device)
  local name = check.is_none(device) and "cpu" or tostring(device):gsub(":0$", "")
  errors.check(name == "cpu", "RuntimeError", "set_default_device(): device: expected 'cpu', got "
    .. "%s; poptorch moves models to IPUs", check.describe(device))
end

return M
