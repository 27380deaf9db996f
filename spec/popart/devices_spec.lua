-- Devices of sessions on the simulated machine.
local core = require("lupine.core")
local devices = require("popart.devices")
local enums = require("popart.enums")
local helper = require("spec.helper")
local info_of = require("popart.device_info")
local lupine_devices = require("lupine.devices")
local machine = require("spec.support.machine")

local C, T = enums.DeviceConnectionType, enums.DeviceType
local refuses = helper.refuses

describe("popart.DeviceManager", function()
  local dm = devices.DeviceManager()

  before_each(function()
    machine.begin()
  end)
  after_each(function()
    dm:setOnDemandAttachTimeout(0)
    machine.finish()
  end)

  it("D1 makes a CPU, without options, and an IPU Model of 4 tiles", function()
    local cpu = dm:createCpuDevice()
    assert.equal(T.Cpu, cpu.type)
    assert.equal(C.Always, cpu.connectionType)
    refuses("TypeError", "takes 0 arguments", dm.createCpuDevice, dm, { numIPUs = 1 })
    local model = dm:createIpuModelDevice({ numIPUs = "2" })
    assert.same({ 2, 4, "ipu2", "ipu2" },
      { model.numIpus, model.tilesPerIPU, model.version, model.ipuVersion })
    assert.equal(1, dm:createIpuModelDevice({}).numIpus)
    assert.equal("ipu1", dm:createIpuModelDevice({ ipuVersion = "ipu1" }).version)
  end)

  it("D2 makes a simulator", function()
    local sim = dm:createSimDevice({ numIPUs = 2, tilesPerIPU = 8 })
    assert.same({ 2, 8, 8 }, { sim.numIpus, sim.tilesPerIPU, sim.tilesPerIpu })
    sim = dm:createSimDevice({})
    assert.same({ 1, 4, T.Sim }, { sim.numIpus, sim.tilesPerIPU, sim.type })
  end)

  it("D3 refuses options that a device does not have", function()
    refuses("popart_exception", "Invalid option `x' passed to .*ipu%-model.*tilesPerIPU",
      dm.createIpuModelDevice, dm, { x = 1 })
    refuses("popart_exception", "Invalid option `ipuVersion' passed to .*sim",
      dm.createSimDevice, dm, { ipuVersion = "ipu2" })
    refuses("popart_exception", "numIPUs: expected an integer >= 1", dm.createSimDevice, dm,
      { numIPUs = "many" })
    refuses("popart_exception", "ipuVersion: expected ipu1, ipu2 or ipu21",
      dm.createIpuModelDevice, dm, { ipuVersion = "ipu3" })
    refuses("popart_exception", "has 1472 tiles, got 2000", dm.createIpuModelDevice, dm,
      { tilesPerIPU = 2000 })
    refuses("popart_exception", "compileIPUCode: expected", dm.createIpuModelDevice, dm,
      { compileIPUCode = "maybe" })
  end)

  it("D5 acquires an id once", function()
    local device = dm:acquireDeviceById(0)
    assert.is_true(device.isAttached)
    refuses("popart_exception", "Failed to acquire device with id '0'", dm.acquireDeviceById, dm, 0)
    assert.is_nil(dm:tryAcquireDeviceById(0))
    device:detach()
    dm:acquireDeviceById(0):detach()
  end)

  it("D6 attaches at once unless told otherwise, and as often as asked", function()
    local device = dm:acquireAvailableDevice()
    assert.equal(C.Always, device.connectionType)
    assert.is_true(device.isAttached and device:attach() and device.isAttached)
    device:detach()
    device:detach()
    assert.is_false(device.isAttached)
    local later = dm:acquireAvailableDevice(4, { connectionType = C.OnDemand })
    assert.equal(C.OnDemand, later.connectionType)
    assert.is_false(later.isAttached)
    assert.equal("<unknown-ipu-unattached>", later.version)
    assert.is_true(later:tryAttachUntilTimeout())
    assert.equal(core.version, later.version)
    assert.is_nil(dm:tryAcquireDeviceById(later.id))
    later:detach()
  end)

  it("describes a device as PopART does", function()
    local device <close> = dm:acquireAvailableDevice(2)
    assert.equal("Device Type:ipu Connection Type:always Id:64 Version:" .. core.version
      .. " NumIPUs:2 NumTilesPerIPU:1472 DeviceIds: {0,1}", tostring(device))
    assert.equal(tostring(device), device:toString())
    assert.same({ 0, 1 }, device.childIds)
    assert.equal(6, device.numWorkerContexts)
    assert.equal("ipu2", device.ipuVersion)
    assert.matches("^Device Type:ipu%-model .*Version:ipu2 NumIPUs:1",
      tostring(dm:createIpuModelDevice({})))
  end)

  it("detaches at the end of a scope", function()
    local known
    do
      local device <close> = dm:acquireDeviceById(3)
      known = device
    end
    assert.is_false(known.isAttached)
  end)

  it("has no other fields", function()
    local device = dm:createCpuDevice()
    refuses("AttributeError", "no attribute 'numIpu' %(nearest: 'numIpus'%)", function()
      return device.numIpu
    end)
    refuses("AttributeError", "'id' cannot be set", function()
      device.id = 3
    end)
  end)

  it("names what limits the machine", function()
    machine.set("LUPINE_IPUS", "2")
    refuses("poplar_exception", "No such device set id: '9'. Allowed: 0 to 2 %(LUPINE_IPUS=2%)",
      dm.acquireDeviceById, dm, 9)
    refuses("popart_exception", "Failed to acquire device with 4 IPUs. Ensure that there are "
      .. "sufficient IPUs available %(LUPINE_IPUS=2%): ", dm.acquireAvailableDevice, dm, 4)
  end)

  it("says when there is no such device, or no free one", function()
    refuses("poplar_exception", "No such device set id: '999'. Allowed: 0 to 126",
      dm.acquireDeviceById, dm, 999)
    refuses("popart_exception", "acquire 3 IPUs.*must be a power of two",
      dm.tryAcquireAvailableDevice, dm, 3)
    assert.is_nil(dm:tryAcquireAvailableDevice(256))
    local all <close> = dm:acquireAvailableDevice(64)
    assert.equal(126, all.id)
    assert.is_nil(dm:tryAcquireAvailableDevice(1))
    refuses("popart_exception", "Failed to acquire device with 1 IPUs. Ensure",
      dm.acquireAvailableDevice, dm, 1)
    for _, name in ipairs({ "tryAcquireAvailableDevice", "acquireAvailableDevice" }) do
      refuses("popart_exception", "DeviceConnectionType::Never", dm[name], dm,
        { connectionType = C.Never })
    end
    refuses("popart_exception", "DeviceConnectionType::Never", dm.acquireDeviceById, dm, 0,
      { connectionType = C.Never })
    refuses("TypeError", "connectionType: expected DeviceConnectionType.Always",
      dm.acquireAvailableDevice, dm, 1, { connectionType = "OnDemand" })
  end)

  it("skips busy devices and takes any at random", function()
    local first <close> = dm:acquireAvailableDevice(1)
    local second <close> = dm:acquireAvailableDevice(1)
    assert.same({ 0, 1 }, { first.id, second.id })
    local third <close> = dm:acquireAvailableDevice(1,
      { selectionCriterion = enums.DeviceSelectionCriterion.Random })
    assert.is_true(third.id >= 2 and third.id < 64)
  end)

  it("enumerates by number of IPUs and type", function()
    assert.equal(64, #dm:enumerateDevices())
    local fours = dm:enumerateDevices(enums.SyncPattern.Full, 4)
    assert.equal(16, #fours)
    assert.same({ 4, 5, 6, 7 }, fours[2].driverIds)
    assert.is_false(fours[1].isAttached)
    assert.equal(0, #dm:enumerateDevices({ numIpus = 3 }))
    assert.equal(8, dm:enumerateDevices({ numIpus = 8, deviceType = T.IpuModel })[1].numIpus)
    assert.equal(0, #dm:enumerateDevices({ numIpus = 2, deviceType = T.Cpu }))
    refuses("popart_exception", "Sim not supported", dm.enumerateDevices, dm,
      { deviceType = T.Sim })
  end)

  it("gives a device fewer tiles", function()
    local device <close> = dm:acquireAvailableDevice(1, 16)
    assert.equal(16, device.tilesPerIPU)
    assert.same({ chip = "ipu2", tiles = 16, power_of_two = true }, info_of.system(device))
  end)

  it("waits for a device as long as told", function()
    dm:setOnDemandAttachTimeout(0)
    local busy <close> = dm:acquireDeviceById(5)
    local later = dm:acquireDeviceById(5, { connectionType = C.OnDemand })
    assert.is_false(later:tryAttachUntilTimeout())
    later:setOnDemandAttachTimeout(30)
    local sleep, slept = core.devices.sleep, 0
    core.devices.sleep = function(seconds)
      slept = slept + seconds
      if slept == 2 then
        busy:detach()
      end
    end
    local ok, attached = pcall(later.tryAttachUntilTimeout, later)
    core.devices.sleep = sleep
    assert.is_true(ok and attached)
    assert.equal(2, slept)
    later:detach()
    refuses("ValueError", "attachTimeout: expected int >= 0", dm.setOnDemandAttachTimeout, dm, -1)
  end)

  it("makes offline devices", function()
    local device = dm:createOfflineIPUDevice({ numIPUs = 4, ipuVersion = "ipu21",
      syncPattern = "full" })
    assert.same({ T.OfflineIpu, C.Never, 4, 1472, "<offline-ipu>", "ipu21" },
      { device.type, device.connectionType, device.numIpus, device.tilesPerIPU, device.version,
        device.ipuVersion })
    refuses("popart_exception", "Cannot attach to offline device", device.attach, device)
    refuses("popart_exception", "Cannot detach from offline device", device.detach, device)
    refuses("popart_exception", "Unknown syncPattern setting: half", dm.createOfflineIPUDevice, dm,
      { syncPattern = "half" })
    local pair <close> = dm:acquireAvailableDevice(2)
    assert.equal(2, dm:createOfflineIpuFromDeviceInfo(pair).numIpus)
    assert.equal(64, dm:createOfflineIpuFromSystemString("IPU-POD64", 0).numIpus)
    assert.equal("ipu21", dm:createOfflineIpuFromSystemString("Bow-Pod16", 8).ipuVersion)
    assert.equal(1216, dm:createOfflineIpuFromSystemString("C2", 2).tilesPerIPU)
    refuses("popart_exception", "M2000 has 4 IPUs, got 8", dm.createOfflineIpuFromSystemString, dm,
      "M2000", 8)
    refuses("popart_exception", "expected C2", dm.createOfflineIpuFromSystemString, dm, "M3000")
  end)

  it("reads and writes patterns", function()
    for name, pattern in pairs({ full = "Full", singlePipeline = "SinglePipeline",
      replicaAndLadder = "ReplicaAndLadder" }) do
      assert.equal(enums.SyncPattern[pattern], devices.syncPatternFromString(name))
      assert.equal(name, devices.syncPatternToString(enums.SyncPattern[pattern]))
    end
  end)
end)

describe("what sessions ask of a DeviceInfo", function()
  local dm = devices.DeviceManager()

  before_each(function()
    machine.begin()
  end)
  after_each(function()
    lupine_devices.repair()
    machine.finish()
  end)

  -- What lend expects of a session.
  local function session(log)
    return { settle = function()
      log[#log + 1] = "settle"
    end, leave_device = function(self)
      log[#log + 1] = "leave"
      self.device:detach()
    end }
  end

  it("is told for each type", function()
    local model, cpu = dm:createIpuModelDevice({ tilesPerIPU = 8 }), dm:createCpuDevice()
    assert.same({ chip = "ipu2", tiles = 8, power_of_two = false, allow_out_of_memory = true },
      info_of.system(model))
    local off = dm:createOfflineIPUDevice({ ipuVersion = "ipu21" })
    assert.same({ chip = "ipu21", power_of_two = false }, info_of.system(off))
    assert.is_true(info_of.can_compile_offline(off))
    assert.is_false(info_of.can_compile_offline(model) or info_of.can_compile_offline(cpu))
    assert.is_false(info_of.can_profile(cpu))
    assert.is_true(info_of.can_profile(model) and info_of.can_profile(off))
  end)

  it("says what was chosen of it and changes nothing", function()
    local function idle(device)
      local out = {}
      info_of.idle(device, function(name, why)
        out[#out + 1] = name .. ": " .. why
      end)
      return out
    end
    assert.same({}, idle(dm:createIpuModelDevice({ numIPUs = 2, ipuVersion = "ipu21" })))
    assert.same({ "the device's option compileIPUCode: there is no code of IPUs" },
      idle(dm:createIpuModelDevice({ compileIPUCode = false })))
    assert.same({ "SyncPattern.SinglePipeline: all IPUs wait for host I/O alike",
      "the device's option gatewayMode: the way over the gateway follows from the number of IPUs" },
      idle(dm:createOfflineIPUDevice({ gatewayMode = "true", syncPattern = "singlePipeline" })))
  end)

  it("attaches on demand when IPUs are borrowed, and keeps them", function()
    local device, log = dm:acquireDeviceById(2, { connectionType = C.OnDemand }), {}
    local s = session(log)
    s.device = info_of.lend(device, s, 1)
    assert.equal(2, s.device.id)
    assert.is_true(device.isAttached)
    s.device:detach() -- a session that lets go
    assert.is_true(device.isAttached)
    device:detach()
    assert.same({ "settle", "leave" }, log)
    assert.is_false(device.isAttached)
    device:detach()
    assert.equal(2, #log)
  end)

  it("refuses what cannot be", function()
    refuses("popart_runtime_error", "Trying to load an engine on an offline device", info_of.lend,
      dm:createOfflineIPUDevice({}))
    local pair <close> = dm:acquireAvailableDevice(2)
    refuses("popart_exception", "uses 4 IPUs, the device has 2", info_of.lend, pair, nil, 4)
    local busy = dm:acquireDeviceById(0, { connectionType = C.OnDemand })
    refuses("popart_runtime_error", "Failed to attach to device", info_of.lend, busy)
    assert.is_nil(info_of.lend(dm:createCpuDevice()))
  end)

  it("loses a device that breaks down", function()
    local device = dm:acquireDeviceById(7)
    local lent = info_of.lend(device)
    assert.equal("device Id 7", tostring(lent))
    lent:break_down()
    assert.is_false(device.isAttached)
    refuses("poplar_unrecoverable_runtime_error", "cannot use it any more", device.attach, device)
  end)
end)
