--- Devices that sessions run on: PopART's DeviceManager, which makes and finds them.
---
---     local device <close> = popart.DeviceManager():acquireAvailableDevice(2)
---
--- Source: PopART user guide 4.3; its Python API.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local device_info = require("popart.device_info")
local devices = require("lupine.devices")
local enums = require("popart.enums")
local errors = require("popart.errors")
local logging = require("popart.logging")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")

local M = {}

local T, C, S = enums.DeviceType, enums.DeviceConnectionType, enums.SyncPattern

-- As PopART writes them.
local PATTERNS = { [S.Full] = "full", [S.SinglePipeline] = "singlePipeline",
  [S.ReplicaAndLadder] = "replicaAndLadder" }

local FEW_TILES = 4 -- of the IPU Model and the simulator
local DeviceInfo, OF_MACHINE = device_info.DeviceInfo, device_info.OF_MACHINE
M.DeviceInfo = DeviceInfo

--- A pattern by PopART's text of it.
--- error: popart_exception for another text
--- source: PopART Python API
---@param ... any text (string)
---@return popart.SyncPattern
function M.syncPatternFromString(...)
  local text = check.one("syncPatternFromString", "str", ...)
  for pattern, known in pairs(PATTERNS) do
    if known == text then
      return pattern
    end
  end
  return errors.raise("popart_exception", "Unknown syncPattern setting: %s. Allowed: full, "
    .. "singlePipeline, replicaAndLadder", tostring(text))
end

--- The text of a pattern.
--- error: TypeError
--- source: PopART Python API
---@param ... any pattern (popart.SyncPattern)
---@return string
function M.syncPatternToString(...)
  return PATTERNS[check.enum(check.one("syncPatternToString", "pattern", ...),
    "syncPatternToString: pattern", S)]
end

-- ---- the manager ---------------------------------------------------------------------

--- Creates and finds devices. All are the same one. SyncPattern changes nothing here: all
--- IPUs wait for host I/O alike.
---@class popart.DeviceManager
local DeviceManager = closed.close(class.new("DeviceManager"))
M.DeviceManager = DeviceManager

local timeout = 0 -- of all managers

-- A method with Python's arguments: names and defaults of its parameters.
local function method(name, params, fn)
  local names, shown = {}, {}
  for i, row in ipairs(params) do
    names[i] = row[1]
    shown[i] = row[1] .. (row.default ~= nil and "=" .. tostring(row.default) or "")
  end
  local function called(self, ...)
    check.method(self, DeviceManager, name)
    local given = check.arguments(name, names, nil, ...)
    local values = {}
    for i, row in ipairs(params) do
      local value = given[i]
      if value == nil then
        value = row.default
      end
      local where = ("%s: %s"):format(name, row[1])
      values[row[1]] = row.of and check.enum(value, where, row.of) or check.int(value, where)
    end
    return fn(self, values)
  end
  signatures.note(called, ("%s(%s)"):format(name, table.concat(shown, ", ")))
  return called
end

local PATTERN = { "pattern", of = S, default = S.Full }
local CONNECTION = { "connectionType", of = C, default = C.Always }
local SELECTION = { "selectionCriterion", of = enums.DeviceSelectionCriterion,
  default = enums.DeviceSelectionCriterion.First }

local function check_tiles(tiles, chip, where)
  local most = core.chip(chip).tiles
  errors.check(tiles >= 0 and tiles <= most, "popart_exception",
    "%s: an IPU of version %s has %d tiles, got %d", where, chip, most, tiles)
  return tiles > 0 and tiles ~= most and tiles or nil
end

local function of_group(group, v)
  return DeviceInfo({ type = T.Ipu, group = group, connection = v.connectionType,
    tiles = check_tiles(v.tilesPerIPU or v.tilesPerIpu or 0, OF_MACHINE, "tilesPerIPU"),
    pattern = v.pattern, timeout = timeout })
end

local function enumerate(v)
  local out = {}
  if v.deviceType == T.Ipu or v.deviceType == T.OfflineIpu then
    for i, group in ipairs(devices.list(v.numIpus)) do
      out[i] = of_group(group, v)
    end
  elseif v.deviceType == T.IpuModel or v.numIpus == 1 then
    out[1] = DeviceInfo({ type = v.deviceType, ipus = v.numIpus, connection = v.connectionType,
      tiles = v.deviceType == T.IpuModel and FEW_TILES or nil, pattern = v.pattern })
  end
  return out
end

--- The devices of the machine with so many IPUs, busy or not, as a list; of another type the
--- one that can be made.
--- error: popart_exception for DeviceType.Sim
--- source: 004 popart.DeviceManager.enumerateDevices
---@type fun(self: popart.DeviceManager, pattern: any, numIpus: integer?, deviceType: any,
---  connectionType: any, tilesPerIPU: integer?): popart.DeviceInfo[]
DeviceManager.enumerateDevices = method("enumerateDevices", { PATTERN, { "numIpus", default = 1 },
  { "deviceType", of = T, default = T.Ipu }, CONNECTION, { "tilesPerIPU", default = 0 } },
function(_, v)
  errors.check(v.deviceType ~= T.Sim, "popart_exception",
    "Sim not supported in convertDeviceType: the simulator is made by createSimDevice")
  local out = enumerate(v)
  for _, device in ipairs(out) do
    logging.debug("popart", "Device: %s", device)
  end
  return out
end)

local function refuse_never(v)
  errors.check(v.connectionType ~= C.Never, "popart_exception", "Trying to acquire a hardware "
    .. "device when connectionType is DeviceConnectionType::Never. For offline compilation, use "
    .. "createOfflineIPUDevice")
end

local function shuffle(list)
  for i = #list, 2, -1 do
    local j = math.random(i)
    list[i], list[j] = list[j], list[i]
  end
end

-- The first device that is free, or, on demand, the first; nil: none. Those that have
-- failed for good are none.
local function try_available(_, v)
  local n = v.numIpus
  errors.check(n <= 0 or n & (n - 1) == 0, "popart_exception", "You have attempted to acquire %d "
    .. "IPUs. The number of IPUs requested must be a power of two", n)
  refuse_never(v)
  v.deviceType = T.Ipu
  local found = enumerate(v)
  if v.selectionCriterion == enums.DeviceSelectionCriterion.Random then
    shuffle(found)
  end
  for _, device in ipairs(found) do
    if devices.works(device.id) and (v.connectionType == C.OnDemand or device:attach()) then
      return device
    end
  end
  return nil
end

local AVAILABLE = { { "numIpus", default = 1 }, { "tilesPerIpu", default = 0 }, PATTERN,
  CONNECTION, SELECTION }
local SUFFICIENT = ". Ensure that there are sufficient IPUs available%s: `lupine info` lists who "
  .. "has them. Those that have had an unrecoverable error are out of operation for this process."

--- A free device of so many IPUs: attached to, or, with DeviceConnectionType.OnDemand,
--- only chosen; nil if none is free.
--- error: popart_exception for a number that is no power of two, or
--- DeviceConnectionType.Never
--- source: PopART Python API, DeviceManager.tryAcquireAvailableDevice
---@type fun(self: popart.DeviceManager, numIpus: integer?, tilesPerIpu: integer?,
---  pattern: any, connectionType: any, selectionCriterion: any): popart.DeviceInfo?
DeviceManager.tryAcquireAvailableDevice = method("tryAcquireAvailableDevice", AVAILABLE,
  try_available)

--- The same; it is an error if none is free.
--- error: popart_exception
--- source: 004 popart.DeviceManager.acquireAvailableDevice
---@type fun(self: popart.DeviceManager, numIpus: integer?, tilesPerIpu: integer?,
---  pattern: any, connectionType: any, selectionCriterion: any): popart.DeviceInfo
DeviceManager.acquireAvailableDevice = method("acquireAvailableDevice", AVAILABLE, function(self, v)
  return errors.check(try_available(self, v), "popart_exception",
    "Failed to acquire device with %d IPUs" .. SUFFICIENT, v.numIpus, devices.limit())
end)

local function try_id(_, v)
  refuse_never(v)
  local group = devices.find(v.id)
  errors.check(group, "poplar_exception", "No such device set id: '%d'. Allowed: 0 to %d%s",
    v.id, 2 * devices.ipus() - 2, devices.limit())
  local device = of_group(group, v)
  return (v.connectionType == C.OnDemand or device:attach()) and device or nil
end

local BY_ID = { { "id" }, PATTERN, CONNECTION }

--- The device of an id, attached to unless it is to be on demand; nil if it is busy.
--- error: poplar_exception for an id that the machine does not have, popart_exception for
--- DeviceConnectionType.Never
--- source: PopART Python API, DeviceManager.tryAcquireDeviceById
---@type fun(self: popart.DeviceManager, id: integer, pattern: any, connectionType: any):
---  popart.DeviceInfo?
DeviceManager.tryAcquireDeviceById = method("tryAcquireDeviceById", BY_ID, try_id)

--- The same; it is an error if it is busy.
--- error: poplar_exception, popart_exception
--- source: 004 popart.DeviceManager.acquireDeviceById
---@type fun(self: popart.DeviceManager, id: integer, pattern: any, connectionType: any):
---  popart.DeviceInfo
DeviceManager.acquireDeviceById = method("acquireDeviceById", BY_ID, function(self, v)
  return errors.check(try_id(self, v), "popart_exception", "Failed to acquire device with id "
    .. "'%d'. Ensure it is available: `lupine info` lists who has it.", v.id)
end)

--- Seconds for which devices that are chosen from now on try to be attached to on
--- demand; 0: once.
--- error: TypeError or ValueError
--- source: PopART Python API, DeviceManager.setOnDemandAttachTimeout
---@param ... any attachTimeout (integer)
function DeviceManager:setOnDemandAttachTimeout(...)
  check.method(self, DeviceManager, "setOnDemandAttachTimeout")
  local seconds = check.one("setOnDemandAttachTimeout", "attachTimeout", ...)
  timeout = check.int(seconds, "setOnDemandAttachTimeout: attachTimeout", { min = 0 })
end

-- ---- devices that take no IPUs ---------------------------------------------------------

local function option_int(opts, key, default, least)
  local text = opts[key]
  local n = text == nil and default or math.tointeger(tonumber(text))
  return errors.check(n and n >= least and n, "popart_exception",
    "the option %s: expected an integer >= %d, got %s", key, least, check.describe(text))
end

local function check_keys(of, opts, keys)
  check.plain_table(opts, "options of a device")
  for _, key in ipairs(tables.keys(opts)) do
    errors.check(keys[key], "popart_exception", "Invalid option `%s' passed to "
      .. "DevicexManager::createHostDevice for device type %s. Valid options are [%s]",
      tostring(key), device_info.TYPES[of], table.concat(tables.keys(keys), ", "))
  end
  return opts
end

local function option_chip(opts)
  local chip = opts.ipuVersion or OF_MACHINE
  return errors.check(type(chip) == "string" and core.chip(chip) and chip, "popart_exception",
    "the option ipuVersion: expected ipu1, ipu2 or ipu21, got %s", check.describe(chip))
end

local FLAGS = { ["true"] = true, ["false"] = true }

-- Options that are set or not, by name, of those that change nothing.
local function option_flags(opts)
  local out = {}
  for _, key in ipairs(tables.keys(device_info.FLAGS)) do
    local value = opts[key]
    errors.check(value == nil or FLAGS[tostring(value):lower()], "popart_exception",
      "the option %s: expected \"true\" or \"false\", got %s", key, check.describe(value))
    out[#out + 1] = value ~= nil and key or nil
  end
  return out
end

-- A device of the options' numbers, with so many tiles unless they say otherwise.
local function host_device(of, opts, tiles)
  local chip = option_chip(opts)
  return DeviceInfo({ type = of, connection = of == T.OfflineIpu and C.Never or C.Always,
    chip = chip, ipus = option_int(opts, "numIPUs", 1, 1),
    tiles = check_tiles(option_int(opts, "tilesPerIPU", tiles, 0), chip, "the option tilesPerIPU"),
    flags = option_flags(opts),
    pattern = opts.syncPattern and M.syncPatternFromString(opts.syncPattern) })
end

--- The host's CPU. Programs run as on all devices; there are no reports.
--- error: TypeError for options, of which it has none
--- source: 004 popart.DeviceManager.createCpuDevice
---@param ... any nothing
---@return popart.DeviceInfo
function DeviceManager:createCpuDevice(...)
  check.method(self, DeviceManager, "createCpuDevice")
  check.most("createCpuDevice", 0, ...)
  return DeviceInfo({ type = T.Cpu, connection = C.Always, ipus = 1 })
end

--- The IPU Model, by default of one IPU of 4 tiles.
--- error: popart_exception for an option that it does not have
--- source: 004 popart.DeviceManager.createIpuModelDevice
---@param options? {numIPUs: integer|string?, tilesPerIPU: integer|string?,
---  compileIPUCode: boolean|string?, ipuVersion: string?} compileIPUCode changes nothing:
---  there is no code of IPUs
---@return popart.DeviceInfo
function DeviceManager:createIpuModelDevice(options)
  check.method(self, DeviceManager, "createIpuModelDevice")
  local opts = check_keys(T.IpuModel, options or {},
    tables.set("numIPUs tilesPerIPU compileIPUCode ipuVersion"))
  return host_device(T.IpuModel, opts, FEW_TILES)
end

--- The simulator of IPUs, by default of one of 4 tiles: here the same as the IPU Model.
--- error: popart_exception for an option that it does not have
--- source: PopART Python API, DeviceManager.createSimDevice
---@param options? {numIPUs: integer|string?, tilesPerIPU: integer|string?}
---@return popart.DeviceInfo
function DeviceManager:createSimDevice(options)
  check.method(self, DeviceManager, "createSimDevice")
  return host_device(T.Sim, check_keys(T.Sim, options or {}, tables.set("numIPUs tilesPerIPU")),
    FEW_TILES)
end

--- IPUs that are not there: programs for them can be compiled and saved, not run.
--- error: popart_exception for an option that it does not have
--- source: PopART Python API, DeviceManager.createOfflineIPUDevice
---@param opts? {numIPUs: integer|string?, tilesPerIPU: integer|string?, ipuVersion: string?,
---  syncPattern: string?, gatewayMode: boolean|string?} gatewayMode changes nothing: the way
---  over the gateway follows from the number of IPUs
---@return popart.DeviceInfo
function DeviceManager:createOfflineIPUDevice(opts)
  check.method(self, DeviceManager, "createOfflineIPUDevice")
  opts = check_keys(T.OfflineIpu, opts or {},
    tables.set("numIPUs tilesPerIPU ipuVersion syncPattern gatewayMode"))
  return host_device(T.OfflineIpu, opts, 0)
end

--- An offline device like another one.
--- error: TypeError
--- source: PopART Python API, DeviceManager.createOfflineIpuFromDeviceInfo
---@param info popart.DeviceInfo
---@return popart.DeviceInfo
function DeviceManager:createOfflineIpuFromDeviceInfo(info)
  check.method(self, DeviceManager, "createOfflineIpuFromDeviceInfo")
  check.instance(info, "createOfflineIpuFromDeviceInfo: deviceInfo", DeviceInfo)
  return DeviceInfo({ type = T.OfflineIpu, connection = C.Never, chip = info._chip,
    ipus = info.numIpus, tiles = info._tiles, pattern = info._pattern })
end

-- The chip of a system's name and how many IPUs it has: "C2", "IPU-M2000", "Bow-2000",
-- "IPU-POD16", "Bow-Pod64".
local function system_of(name)
  local text = name:lower():gsub("^ipu%-", "")
  local bow, pod = text:match("^(b?o?w?%-?)pod_?(%d+)$")
  local chip = (text == "c2" and "ipu1") or (text == "m2000" and "ipu2")
    or ((text == "bow-2000" or text == "bow2000") and "ipu21")
    or pod and (bow:find("bow") and "ipu21" or bow == "" and "ipu2") or nil
  local most = chip and (math.tointeger(tonumber(pod)) or core.chip(chip).ipus_machine)
  return chip, most
end

--- An offline device of a system by its name: C2, M2000, Bow-2000, POD16, Bow-Pod64, ….
--- error: popart_exception for another name, or more IPUs than the system has
--- source: PopART Python API, DeviceManager.createOfflineIpuFromSystemString
---@param system string
---@param numIpus? integer 0 (the default) is all of them
---@return popart.DeviceInfo
function DeviceManager:createOfflineIpuFromSystemString(system, numIpus)
  check.method(self, DeviceManager, "createOfflineIpuFromSystemString")
  local where = "createOfflineIpuFromSystemString: "
  local chip, most = system_of(check.string(system, where .. "system"))
  errors.check(chip, "popart_exception", "%ssystem: expected C2, M2000, Bow-2000, PODn or "
    .. "Bow-Podn, got '%s'", where, system)
  local n = check.int(numIpus or 0, where .. "numIpus")
  errors.check(n >= 0 and n <= most, "popart_exception", "%s%s has %d IPUs, got %d", where, system,
    most, n)
  return DeviceInfo({ type = T.OfflineIpu, connection = C.Never, chip = chip,
    ipus = n == 0 and most or n })
end

return M
