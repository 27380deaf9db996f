--- torch.pi and its like, and the device that tensors are made on.
local check = require("lupine.base.check")
local core = require("lupine.core")

local M = { pi = math.pi, e = math.exp(1), inf = math.huge, nan = 0.0 / 0.0, newaxis = core.none }

--- The device of tensors that name none: the processor, or what set_default_device said.
---@return torch.device
function M.get_default_device()
  return core.default_device()
end

--- Where tensors are made of whose call names no device and no tensor: "cpu", or "meta", of
--- shapes without elements, on which large models are made and compiled at once. What
--- torch.tensor is given is data, and stays on the processor.
--- error: RuntimeError for another device
---@param device string|torch.device|nil cpu
function M.set_default_device(device)
  core.default_device(check.is_none(device) and "cpu" or device)
end

return M
