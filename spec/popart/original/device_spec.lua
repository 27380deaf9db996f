-- PopART's own tests of devices (device_test), on the simulated machine of 64 IPUs.
local devices = require("popart.devices")
local enums = require("popart.enums")
local helper = require("spec.popart.helper")
local machine = require("spec.support.machine")
local popart = require("popart")
local torch = require("torch")

local C, T = enums.DeviceConnectionType, enums.DeviceType
local refuses = helper.refuses

describe("device_test", function()
  local manager = devices.DeviceManager()

  before_each(function()
    machine.begin()
  end)
  after_each(function()
    manager:setOnDemandAttachTimeout(0)
    machine.finish()
  end)

  it("test_enum_specfic_devices", function()
    for _, count in ipairs({ 1, 2, 4, 8, 16 }) do
      for _, type in ipairs({ T.IpuModel, T.Cpu, T.Ipu }) do
        for _, device in ipairs(manager:enumerateDevices({ pattern = enums.SyncPattern.Full,
          numIpus = count, deviceType = type })) do
          assert.equal(count, device.numIpus)
          assert.equal(type, device.type)
        end
      end
    end
  end)

  it("test_aquire_device_by_id_0", function()
    local n = #manager:enumerateDevices({ numIpus = 1 })
    assert.equal(64, n)
    for id = 0, n - 1 do
      local device = manager:acquireDeviceById(id, { pattern = enums.SyncPattern.Full })
      assert.equal(id, device.id)
      device:detach()
    end
  end)

  it("test_aquire_device_by_id_1", function()
    refuses("poplar_exception", "No such device set id: '999'", manager.acquireDeviceById, manager,
      999)
  end)

  it("test_aquire_device_by_id_2", function()
    local _ <close> = manager:acquireDeviceById(0)
    refuses("popart_exception", "Failed to acquire device with id '0'", manager.acquireDeviceById,
      manager, 0)
  end)

  it("test_aquire_device_by_id_3", function()
    local device = manager:acquireDeviceById(0)
    assert.is_nil(manager:tryAcquireDeviceById(0))
    device:detach()
  end)

  it("test_default_connection_type_0", function()
    local device = manager:acquireAvailableDevice(1)
    assert.equal(C.Always, device.connectionType)
    device:detach()
  end)

  it("test_default_connection_type_1", function()
    refuses("popart_exception", "Failed to acquire device with 256 IPUs. Ensure that there are "
      .. "sufficient IPUs available", manager.acquireAvailableDevice, manager, 256)
  end)

  it("test_default_connection_type_2", function()
    local _ <close> = manager:acquireAvailableDevice(#manager:enumerateDevices())
    refuses("popart_exception", "Failed to acquire device with 1 IPUs. Ensure that there are "
      .. "sufficient IPUs available", manager.acquireAvailableDevice, manager, 1)
  end)

  it("test_on_demand_connection_type", function()
    assert.equal(C.OnDemand,
      manager:acquireAvailableDevice(1, { connectionType = C.OnDemand }).connectionType)
  end)

  it("test_attached_state", function()
    manager:setOnDemandAttachTimeout(1)
    local device = manager:acquireAvailableDevice(1, { connectionType = C.OnDemand })
    assert.is_false(device.isAttached)
    for _, attach in ipairs({ "attach", "tryAttachUntilTimeout" }) do
      device[attach](device)
      assert.is_true(device.isAttached)
      device:detach()
      assert.is_false(device.isAttached)
    end
  end)

  it("test_set_and_get_ipu_model_version test_check_default_ipu_model_0", function()
    assert.equal("ipu2", manager:createIpuModelDevice({ ipuVersion = "ipu2" }).version)
    assert.equal("ipu2", manager:createIpuModelDevice({}).version)
  end)

  it("test_create_sim_device test_create_sim_default_device", function()
    local device = manager:createSimDevice({ numIPUs = 2, tilesPerIPU = 8 })
    assert.same({ 2, 8 }, { device.numIpus, device.tilesPerIPU })
    device = manager:createSimDevice({})
    assert.same({ 1, 4 }, { device.numIpus, device.tilesPerIPU })
  end)

  -- What is logged at INFO while f runs.
  local function logged(f)
    return helper.stderr_of(function()
      popart.getLogger():setLevel("INFO")
      local ok, e = pcall(f)
      popart.getLogger():setLevel("OFF")
      assert(ok, e)
    end)
  end

  -- Was a graph compiled, was an engine loaded while f ran?
  local function says(compiled, loaded, f)
    local text = logged(f)
    assert.equal(compiled, text:find("Graph compiled", 1, true) ~= nil)
    assert.equal(loaded, text:find("Engine loaded", 1, true) ~= nil)
  end

  -- prepareDevice with all values of loadEngine, then a run that loads what is not loaded.
  local function prepares(new)
    for _, load in ipairs({ true, false, "default" }) do
      local device <close> = manager:acquireAvailableDevice(1)
      local session, run = new(device)
      local now = load ~= false
      says(true, now, function()
        if load == "default" then
          session:prepareDevice()
        else
          session:prepareDevice(load)
        end
      end)
      says(false, not now, run)
    end
  end

  it("test_prepareDevice_inference", function()
    prepares(function(device)
      local builder = popart.Builder()
      local info = popart.TensorInfo("FLOAT", { 3 })
      local a, b = builder:addInputTensor(info), builder:addInputTensor(info)
      local o = builder.aiOnnx:add({ a, b })
      local session = popart.InferenceSession({ fnModel = builder:getModelProto(),
        dataFlow = popart.DataFlow(2, { o }), deviceInfo = device })
      refuses("popart_exception", "no compiled engine", session.loadEngineAndConnectStreams,
        session)
      return session, function()
        local anchors, x, y = session:initAnchorArrays(), torch.rand(2, 3), torch.rand(2, 3)
        session:run(popart.PyStepIO({ [a] = x, [b] = y }, anchors))
        assert.is_true(torch.allclose(anchors[o], x + y))
      end
    end)
  end)

  it("test_prepareDevice_training", function()
    prepares(function(device)
      local builder = popart.Builder()
      local data = torch.tensor({ 1.0, 2.0, 3.0, 4.0 }):reshape(1, 1, 2, 2)
      local x = builder:addInputTensor(popart.TensorInfo("FLOAT", data.shape), "data")
      local w = builder:addInitializedInputTensor(
        torch.tensor({ 1.0, 2.0, 1.0, 2.0 }):reshape(1, 1, 2, 2), "filter")
      local c = builder.aiOnnx:conv({ x, w }, { dilations = { 1, 1 }, pads = { 1, 1, 1, 1 },
        strides = { 2, 2 } })
      local loss = builder.aiGraphcore:l1loss({ c }, 0.1,
        { reduction = popart.ReductionType.Sum })
      local session = popart.TrainingSession({ fnModel = builder:getModelProto(), loss = loss,
        dataFlow = popart.DataFlow(1, { c }), optimizer = popart.ConstSGD(0.1),
        deviceInfo = device })
      return session, function()
        session:weightsFromHost()
        session:run(popart.PyStepIO({ [x] = data }, session:initAnchorArrays()))
      end
    end)
  end)
end)
