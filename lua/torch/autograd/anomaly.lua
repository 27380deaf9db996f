--- torch.autograd.detect_anomaly, set_detect_anomaly.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local Anomaly = { __name = "torch.anomaly_mode" }

function Anomaly:__close()
  core.set_anomaly_enabled(self.previous)
end

--- A backward pass inside fails at the first gradient with a NaN and names the
--- operator. At once, until set again or until the scope it returns is closed.
--- Source: PyTorch documentation, autograd.set_detect_anomaly
---@param mode boolean
---@param fn? function runs inside; without one a scope is returned
---@return any ... the scope, or what fn returns
function M.set_detect_anomaly(mode, fn)
  errors.check(type(mode) == "boolean", "TypeError",
    "set_detect_anomaly(): mode must be a bool, not a %s", type(mode))
  errors.check(fn == nil or type(fn) == "function", "TypeError",
    "set_detect_anomaly(): the second argument must be a function, not a %s", type(fn))
  local scope = setmetatable({ previous = core.is_anomaly_enabled() }, Anomaly)
  core.set_anomaly_enabled(mode)
  if fn == nil then
    return scope
  end
  local _ <close> = scope
  return fn()
end

--- The same, switched on.
--- Source: PyTorch documentation, autograd.detect_anomaly
---@param fn? function
---@return any ... the scope, or what fn returns
function M.detect_anomaly(fn)
  return M.set_detect_anomaly(true, fn)
end

return M
