--- torch.cuda of a machine without CUDA: scripts ask is_available() first.
local errors = require("lupine.base.errors")

local M = {}

local MISSING = "there is no CUDA device here: tensors are on the host, and a model goes to the "
  .. "simulated IPU by poptorch.trainingModel or inferenceModel"

--- There is no such device.
---@return boolean false
function M.is_available()
  return false
end

--- There is no such device.
---@return boolean false
function M.is_initialized()
  return false
end

--- There is no such device.
---@return integer 0
function M.device_count()
  return 0
end

-- As in PyTorch these do nothing without a device.
--- Nothing: there is no such device.
function M.manual_seed() end
--- Nothing: there is no such device.
function M.manual_seed_all() end
--- Nothing: there is no such device.
function M.empty_cache() end

return setmetatable(M, {
  __index = function(_, name)
    return errors.raise("RuntimeError", "torch.cuda.%s: %s", tostring(name), MISSING)
  end,
  --- x:cuda(), module:cuda().
  __call = function()
    return errors.raise("RuntimeError", "cuda(): %s", MISSING)
  end,
})
