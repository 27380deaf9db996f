--- Methods of an executor for its device: attaching and giving it back.
local attaching = require("poptorch.attaching")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local own = require("poptorch.executor.own")

local M = {}

--- Whether it has a device, or is an IPU Model in its place.
---@return boolean
function M.isAttachedToDevice(self)
  local s = own.state(self)
  return s.session ~= nil and s.session.attached
end

--- Gives the device back; weights, optimizer state and random state are kept on
--- the host.
--- error: poptorch.Error if the model is not compiled or not attached
function M.detachFromDevice(self)
  attaching.detach(own.attached(self, "detachFromDevice"))
end

--- Takes a device again and brings weights, optimizer and random state there.
--- A call of a detached model does that by itself.
--- error: poptorch.Error if the model is not compiled or is attached, or no device
--- is free
function M.attachToDevice(self)
  own.idle(self, "attachToDevice")
  local s = own.compiled(self, "attachToDevice")
  errors.check(s.options.connection_type ~= enums.ConnectionType.Never, "AssertionError",
    "attachToDevice: the model was compiled for an offline device (ConnectionType.Never)")
  errors.check(not s.session.attached, "Error", "attachToDevice: the model is attached to a device")
  attaching.attach(s)
end

return M
