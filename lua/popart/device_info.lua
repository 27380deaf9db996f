--- A device as a script has chosen it, over the simulated machine
--- (lua/lupine/devices.lua), whose IPUs are the hardware. The IPU Model, the CPU, the
--- simulator and offline targets take none of them.
---
--- A session asks for what its program is planned for (`system`) and borrows the IPUs
--- (`lend`); the DeviceInfo keeps them until it is detached, closed or collected.
---
--- Source: PopART user guide 4.3; its Python API.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local devices = require("lupine.devices")
local enums = require("popart.enums")
local errors = require("popart.errors")
local tables = require("lupine.base.tables")

local M = {}

local T, C, S = enums.DeviceType, enums.DeviceConnectionType, enums.SyncPattern

--- Types as PopART writes them.
local TYPES = { [T.IpuModel] = "ipu-model", [T.Cpu] = "cpu", [T.Ipu] = "ipu",
  [T.OfflineIpu] = "offline-ipu", [T.Sim] = "sim" }
M.TYPES = TYPES
local CONNECTIONS = { [C.Always] = "always", [C.OnDemand] = "on-demand", [C.Never] = "never" }
local VERSIONS = { [T.Cpu] = "<unknown-cpu>", [T.Sim] = "<unknown-sim>",
  [T.OfflineIpu] = "<offline-ipu>" }

--- Options of devices that change nothing, and why.
M.FLAGS = { compileIPUCode = "there is no code of IPUs",
  gatewayMode = "the way over the gateway follows from the number of IPUs" }

local PAUSE = 1 -- seconds between two tries to attach

--- The chip of the machine's IPUs.
M.OF_MACHINE = "ipu" .. devices.VERSION

-- ---- a device ------------------------------------------------------------------------

--- A device as it was chosen.
---@class popart.DeviceInfo
---@field type popart.DeviceType
---@field connectionType popart.DeviceConnectionType
---@field id integer as `lupine info` lists it; 0 unless it is one of the machine's
---@field numIpus integer
---@field tilesPerIPU integer
---@field tilesPerIpu integer the same
---@field ipuVersion string "ipu1", "ipu2" or "ipu21"; "cpu" of a CPU device
---@field numWorkerContexts integer workers of a tile
---@field driverIds integer[] its IPUs
---@field childIds integer[] ids of its single IPUs
---@field isAttached boolean
---@field version string of the driver while it is attached
local DeviceInfo = class.new("DeviceInfo")
M.DeviceInfo = DeviceInfo

local COMPUTED = {
  isAttached = function(self)
    return self._attached
  end,
  tilesPerIpu = function(self)
    return self.tilesPerIPU
  end,
  version = function(self)
    if self.type == T.Ipu then
      return self._attached and core.version or "<unknown-ipu-unattached>"
    end
    return VERSIONS[self.type] or self.ipuVersion
  end,
}

function DeviceInfo.__index(self, key)
  if COMPUTED[key] then
    return COMPUTED[key](self)
  end
  local value, fields = DeviceInfo[key], rawget(self, "_fields")
  if value == nil and fields then
    value = fields[key]
  end
  if value == nil and type(key) == "string" and key:sub(1, 1) ~= "_" then
    local names = tables.keys(fields)
    table.move(tables.keys(COMPUTED), 1, #names, #names + 1, names)
    closed.unknown(self, key, names)
  end
  return value
end

function DeviceInfo.__newindex(_, key)
  errors.raise("AttributeError", "DeviceInfo: '%s' cannot be set", tostring(key))
end

local function range(first, count)
  local out = {}
  for i = 1, count do
    out[i] = first + i - 1
  end
  return out
end

-- row: type, connection, chip, tiles (nil: the chip's), ipus or group, pattern, timeout,
-- flags (names of options that were given and change nothing)
function DeviceInfo:init(row)
  local version, group = row.chip or M.OF_MACHINE, row.group
  local chip, cpu = core.chip(version), row.type == T.Cpu
  local ipus = group and range(group.first, group.count)
  rawset(self, "_fields", { type = row.type, connectionType = row.connection,
    id = group and group.id or 0, numIpus = group and group.count or row.ipus,
    tilesPerIPU = cpu and 1 or row.tiles or chip.tiles, ipuVersion = cpu and "cpu" or version,
    numWorkerContexts = cpu and 1 or chip.workers, driverIds = ipus or { 0 },
    childIds = ipus or {} })
  local own = { _chip = version, _tiles = row.tiles, _pattern = row.pattern or S.Full,
    _flags = row.flags or {},
    _timeout = row.timeout or 0, _attached = false,
    _sessions = setmetatable({}, { __mode = "k" }) }
  for name, value in pairs(own) do
    rawset(self, name, value)
  end
end

local function refuse_offline(self, what)
  errors.check(self.type ~= T.OfflineIpu, "popart_exception", "Cannot %s offline device", what)
end

--- Attaches to it.
--- error: popart_exception for an offline device; poplar_unrecoverable_runtime_error for
--- one that is out of operation
--- source: PopART Python API, DeviceInfo.attach
---@return boolean attached false: somebody else has some of its IPUs
function DeviceInfo:attach()
  check.method(self, DeviceInfo, "attach")
  refuse_offline(self, "attach to")
  if self.type == T.Ipu and not self._attached then
    local device = errors.guard("popart_exception", devices.try_attach, { id = self.id })
    rawset(self, "_device", device)
    rawset(self, "_attached", device ~= nil)
  else
    rawset(self, "_attached", true)
  end
  return self._attached
end

--- Tries to attach to it, once a second until the time of
--- DeviceManager:setOnDemandAttachTimeout is over.
--- error: as `attach`
--- source: PopART Python API, DeviceInfo.tryAttachUntilTimeout
---@return boolean attached
function DeviceInfo:tryAttachUntilTimeout()
  check.method(self, DeviceInfo, "tryAttachUntilTimeout")
  local start = core.host.clock()
  while not self:attach() do
    if core.host.clock() - start >= self._timeout then
      return false
    end
    core.devices.sleep(PAUSE)
  end
  return true
end

--- Gives its IPUs back; sessions that run on it keep what they have, on the host.
--- error: popart_exception for an offline device
--- source: PopART Python API, DeviceInfo.detach
function DeviceInfo:detach()
  check.method(self, DeviceInfo, "detach")
  refuse_offline(self, "detach from")
  for session in pairs(self._sessions) do
    session:settle()
    session:leave_device()
    self._sessions[session] = nil
  end
  if self._device then
    self._device:detach()
  end
  rawset(self, "_device", nil)
  rawset(self, "_attached", false)
end

--- Python's `with`: at the end of its scope a device is detached.
function DeviceInfo.__close(self)
  if self._attached then
    self:detach()
  end
end

function DeviceInfo.__tostring(self)
  return ("Device Type:%s Connection Type:%s Id:%d Version:%s NumIPUs:%d NumTilesPerIPU:%d "
    .. "DeviceIds: {%s}"):format(TYPES[self.type], CONNECTIONS[self.connectionType], self.id,
    self.version, self.numIpus, self.tilesPerIPU, table.concat(self.driverIds, ","))
end

--- The same as tostring.
---@return string
function DeviceInfo:toString()
  return tostring(self)
end

--- Seconds for which tryAttachUntilTimeout goes on.
---@param seconds integer
function DeviceInfo:setOnDemandAttachTimeout(seconds)
  rawset(self, "_timeout", check.int(seconds, "setOnDemandAttachTimeout: attachTimeout",
    { min = 0 }))
end

-- ---- what sessions ask ---------------------------------------------------------------

--- What of the simulated system a program for the device is planned for, options of
--- lupine.report.simulate. The IPU Model, the simulator and the CPU never stop for
--- want of memory.
---@param info popart.DeviceInfo
---@return {chip: string, tiles: integer?, power_of_two: boolean, allow_out_of_memory: boolean?}
function M.system(info)
  local real = info.type == T.Ipu or info.type == T.OfflineIpu
  return { chip = info._chip, tiles = info._tiles, power_of_two = info.type == T.Ipu,
    allow_out_of_memory = not real or nil }
end

--- Whether programs for it can be saved and loaded elsewhere.
---@param info popart.DeviceInfo
---@return boolean
function M.can_compile_offline(info)
  return info.type == T.Ipu or info.type == T.OfflineIpu
end

--- Whether there are reports of programs for it.
---@param info popart.DeviceInfo
---@return boolean
function M.can_profile(info)
  return info.type ~= T.Cpu
end

--- Calls note(name, why) for what was chosen of the device and changes nothing.
---@param info popart.DeviceInfo
---@param note fun(name: string, why: string)
function M.idle(info, note)
  if info._pattern ~= S.Full then
    note(tostring(info._pattern), "all IPUs wait for host I/O alike")
  end
  for _, name in ipairs(info._flags) do
    note("the device's option " .. name, M.FLAGS[name])
  end
end

-- A DeviceInfo's IPUs in a session's hands: to let go of them does not give them back.
local Lent = class.new("Lent")

function Lent:init(info)
  self.info, self.device = info, info._device
  self.id, self.first, self.count = self.device.id, self.device.first, self.device.count
end

function Lent:detach()
  self.device = nil
end

function Lent:break_down()
  local info = self.info
  self.device:break_down()
  info._device:detach()
  rawset(info, "_device", nil)
  rawset(info, "_attached", false)
end

function Lent.__tostring(self)
  return ("device Id %d"):format(self.id)
end

--- The device for a session that is about to load its program (session.open's
--- `place`, Session:enter_device); attached to now if it is not yet.
--- error: popart_runtime_error for an offline device, popart_exception while others
--- have it, or where it has fewer IPUs than the program takes
---@param info popart.DeviceInfo
---@param session? lupine.Session which leaves it when it is detached; it may come later
---@param ipus? integer that the program takes
---@return lupine.Device? nil: it has no IPUs of the machine
function M.lend(info, session, ipus)
  errors.check(info.type ~= T.OfflineIpu, "popart_runtime_error",
    "Trying to load an engine on an offline device")
  errors.check(not ipus or ipus <= info.numIpus, "popart_exception",
    "the program uses %s IPUs, the device has %d: acquire a device with more IPUs", ipus,
    info.numIpus)
  errors.check(info.isAttached or info:tryAttachUntilTimeout(), "popart_runtime_error",
    "Failed to attach to device: %s", info)
  if session then
    info._sessions[session] = true
  end
  return info._device and Lent(info) or nil
end

--- A session that got its device before it was made.
---@param info popart.DeviceInfo
---@param session lupine.Session
function M.note(info, session)
  info._sessions[session] = true
end

return M
