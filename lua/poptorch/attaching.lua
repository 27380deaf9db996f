--- Devices of compiled models: how many IPUs a model takes, when it attaches to
--- them and gives them back. The IPU Model and offline targets take none. `s` is
--- an executor's state.
---
--- Sources: PopTorch API reference, Options.connectionType, useIpuId; user guide
--- 4.11.4 (POPTORCH_WAIT_FOR_IPU).
local advice = require("poptorch.advice")
local check = require("lupine.base.check")
local define = require("poptorch.define")
local devices = require("lupine.devices")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")
local own = require("poptorch.executor.own")
local variables = require("lupine.base.variables")

local C = enums.ConnectionType

local M = {}

-- What s.ipus IPUs may be: the options' device or any. A larger one than the
-- model needs is taken whole.
local function wanted_of(s)
  local id = s.options.ipu_id
  local group = id and devices.find(id)
  if group and group.count ~= s.ipus then
    local needs = ("the model uses %d IPU(s) x replicationFactor %d = %d"):format(
      s.ipus // s.options.replication_factor, s.options.replication_factor, s.ipus)
    errors.check(group.count > s.ipus, "Error", "useIpuId(%d): this device has %d IPU(s), %s", id,
      group.count, needs)
    logging.warn("useIpuId(%d): this device has %d IPUs, %s: the others are reserved", id,
      group.count, needs)
  end
  return { id = id, ipus = s.ipus }
end

local function waiting()
  logging.trace("No IPU available, sleeping until one is")
end

-- Attaches to a device, or waits for one.
local function take(s)
  local wanted = wanted_of(s)
  local device = advice.call(devices.attach, wanted, variables.flag("POPTORCH_WAIT_FOR_IPU"),
    waiting)
  logging.debug("Acquired %d IPU(s): running on device Id %d", device.count, device.id)
  logging.trace("Attached to device %d", device.id)
  return device
end

--- What a planned model attaches to before its memory is made: nothing yet with
--- ConnectionType.OnDemand.
--- error: poptorch.Error while all devices for it are busy, or for an id that does
--- not fit
---@param s table
---@param target {kind: string} rules.target
---@param report lupine.Report
---@return lupine.Device?
function M.place(s, target, report)
  s.ipus = report.reserved_ipus -- 0: all is computed when it is compiled
  if s.ipus == 0 then
    logging.info("the model has no operator for the IPU: it takes no device")
  end
  s.on_device = target.kind == "hardware" and s.ipus > 0
  s.offline = s.options.connection_type == C.Never
  if not s.on_device then
    return nil
  elseif s.options.connection_type == C.Always then
    return take(s)
  end
  local wanted = wanted_of(s)
  logging.debug("Acquired %d IPU(s): running on device Id %d", s.ipus,
    wanted.id or devices.list(wanted.ipus)[1].id)
  return nil
end

--- The device goes on from a checkpoint that was loaded.
---@param s table
function M.resume(s)
  local state = s.resumed
  s.resumed = nil
  if state then
    s.session:load_device_state(state)
  end
end

--- A compiled model gets the device that it has not got before (on demand).
---@param s table
function M.complete(s)
  if not s.offline then
    s.session:enter_device(s.session.device or s.on_device and take(s) or nil)
    M.resume(s)
  end
end

--- Attaches a compiled model again and brings what the host has to its device.
---@param s table
function M.attach(s)
  if s.session.attached then
    return
  end
  own.follow(s)
  s.session:enter_device(s.on_device and take(s) or nil)
end

--- Gives its device back; what that has changed comes to the host first.
---@param s table
function M.detach(s)
  local device = s.session.device
  own.follow(s)
  s.session:settle()
  s.session:leave_device()
  if device then
    logging.debug("Detached from device %d", device.id)
  end
end

-- ---- what the machine has ------------------------------------------------------------

local function has_hardware()
  return not (variables.flag("POPTORCH_IPU_MODEL") or variables.flag("POPTORCH_SMALL_IPU_MODEL"))
end

--- Whether the machine has a device of so many IPUs, busy or not: the simulated
--- one is the hardware. False where the environment asks for the IPU Model.
--- source: 001 poptorch.ipuHardwareIsAvailable
--- error: TypeError for anything but an integer
---@type fun(num_ipus: integer?): boolean
M.ipuHardwareIsAvailable = define("ipuHardwareIsAvailable(num_ipus=1)", function(num_ipus)
  local count = check.int(num_ipus, "ipuHardwareIsAvailable(): num_ipus", { nullable = true })
  return has_hardware() and #devices.list(count or 1) > 0
end)

--- The version of the machine's IPUs: 2.
--- error: AssertionError where the environment asks for the IPU Model
--- source: 001 poptorch.ipuHardwareVersion
---@return integer
function M.ipuHardwareVersion()
  errors.check(has_hardware(), "AssertionError", "ipuHardwareVersion: there is no IPU hardware: "
    .. "POPTORCH_IPU_MODEL or POPTORCH_SMALL_IPU_MODEL asks for the IPU Model")
  return devices.VERSION
end

return M
