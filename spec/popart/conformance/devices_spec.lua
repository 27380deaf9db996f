-- Sessions on devices of the machine: who has them, several sessions on one, faults and
-- recovery, programs that do not fit, files of reports, the cache of engines.
local files = require("spec.support.files")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local faults = require("lupine.faults")
local helper = require("spec.popart.helper")
local machine = require("spec.support.machine")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")
local C = popart.DeviceConnectionType

local dm = popart.DeviceManager()
local folder

before_each(function()
  machine.begin()
  faults.clear()
  folder = files.unused()
  core.make_folder(folder)
end)
after_each(function()
  faults.clear()
  machine.finish()
  files.remove(folder)
end)

local function trainer(device, given)
  given = given or {}
  local b, ids = helper.layers(2, 3)
  local s = helper.training(b, popart.DataFlow(given.batches or 1, { [ids.loss] = ALL }), ids.loss,
    popart.SGD({ defaultLearningRate = { 0.05, true }, defaultMomentum = { 0.9, true } }),
    { device = device, options = given.options, prepare = given.prepare })
  torch.manual_seed(6)
  local x = torch.randn(given.batches or 1, 3, 4)
  return s, function()
    return helper.run(s, { [ids.x] = x })[ids.loss]
  end, ids
end

-- Bits of all weights.
local function bits(s, ids)
  local w, out = helper.weights(s, ids.weights), {}
  for _, id in ipairs(ids.weights) do
    out[#out + 1] = w[id]:reshape({ -1 })
  end
  return torch.cat(out)
end

local function text_of(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read("a")
end

local function no_device(steps, given)
  local s, run, ids = trainer(nil, given)
  for _ = 1, steps do
    run()
  end
  return bits(s, ids)
end

describe("a device", function()
  it("D6: on demand is attached by the run", function()
    local device <close> = dm:acquireAvailableDevice(1, { connectionType = C.OnDemand })
    local s, run = trainer(device, { prepare = false })
    s:prepareDevice()
    assert.is_false(device.isAttached)
    s:weightsFromHost()
    assert.is_true(device.isAttached)
    run()
  end)

  it("D6: that others have is not to be had", function()
    local mine <close> = dm:acquireDeviceById(0)
    local theirs = dm:createIpuModelDevice({})
    assert.is_not_nil(theirs)
    local later = dm:tryAcquireDeviceById(0, { connectionType = C.OnDemand })
    if later then
      local s = trainer(later, { prepare = false })
      s:prepareDevice()
      helper.raises("popart_runtime_error", "^Failed to attach to device", function()
        s:weightsFromHost()
      end)
    end
    assert.is_true(mine.isAttached)
  end)

  it("remembers whose program was loaded last; what each holds stays", function()
    local device <close> = dm:acquireAvailableDevice(1)
    local one, run_one, ids = trainer(device)
    local two, run_two, others = trainer(device)
    for _ = 1, 3 do
      run_one()
      run_two()
    end
    local want = no_device(3)
    assert.is_true(torch.equal(want, bits(one, ids)))
    assert.is_true(torch.equal(want, bits(two, others)))
  end)

  it("that was detached is attached by the next run, where it left off", function()
    local device = dm:acquireAvailableDevice(1)
    local s, run, ids = trainer(device)
    run()
    device:detach()
    assert.is_false(device.isAttached)
    run()
    assert.is_true(device.isAttached)
    assert.is_true(torch.equal(no_device(2), bits(s, ids)))
    device:detach()
  end)

  it("of no IPUs compiles, and neither runs nor loads", function()
    local s, run = trainer(dm:createOfflineIPUDevice({}), { prepare = false })
    s:prepareDevice()
    helper.raises("popart_runtime_error", "^Offline IPU device is not configured for execution",
      run)
    for _, method in ipairs({ "weightsFromHost", "loadEngineAndConnectStreams" }) do
      helper.raises("popart_runtime_error", "^Trying to load an engine on an offline device",
        function()
          s[method](s)
        end)
    end
  end)
end)

describe("a fault", function()
  it("is an error of PopART with what to do about it", function()
    local rows = { { { kind = "recoverable" }, "poplar_recoverable_runtime_error", "IPU_RESET" },
      { { kind = "recoverable", action = "PARTITION_RESET" }, "poplar_recoverable_runtime_error",
        "PARTITION_RESET" },
      { { kind = "unknown" }, "poplar_unknown_runtime_error" },
      { { kind = "application" }, "poplar_application_runtime_error" },
      { { kind = "popart" }, "popart_exception" },
      { { kind = "poplibs" }, "poplibs_exception" } }
    for _, row in ipairs(rows) do
      local device <close> = dm:acquireAvailableDevice(1)
      local s, run, ids = trainer(device)
      run()
      faults.inject(row[1])
      local ok, e = pcall(run)
      assert.is_false(ok)
      assert.is_true(popart[row[2]]:is(e), row[2])
      assert.equal(row[3], e.recoveryAction and e.recoveryAction.name)
      run() -- what it has done is done once
      assert.is_true(torch.equal(no_device(2), bits(s, ids)), row[2])
    end
  end)

  it("is recovered from in the middle of a run, to the same bits", function()
    local given = { batches = 4 }
    local device <close> = dm:acquireAvailableDevice(1)
    local s, run, ids = trainer(device, given)
    local path = folder .. "/checkpoint.onnx"
    run()
    s:modelToHost(path)
    faults.inject({ kind = "recoverable", action = "FULL_RESET", step = 3 })
    local ok, e = pcall(run)
    assert.is_false(ok)
    assert.is_true(popart.poplar_recoverable_runtime_error:is(e))
    assert.equal(popart.RecoveryAction.FULL_RESET, e.recoveryAction)
    assert.equal(popart.RecoveryAction.POWER_CYCLE, e.recoveryAction)
    s:resetHostWeights(path)
    s:weightsFromHost()
    run()
    assert.is_true(torch.equal(no_device(2, given), bits(s, ids)))
  end)

  it("that cannot be recovered from leaves its IPUs out of operation", function()
    local device = dm:acquireAvailableDevice(1)
    local s, run, ids = trainer(device)
    run()
    faults.inject({ kind = "unrecoverable" })
    helper.raises("poplar_unrecoverable_runtime_error", "hardware", run)
    assert.is_false(device.isAttached)
    helper.raises("poplar_unrecoverable_runtime_error", "cannot use it any more", run)
    assert.is_true(torch.equal(no_device(1), bits(s, ids)))
    local other, again = trainer(dm:acquireDeviceById(1))
    again()
    assert.is_not_nil(other)
  end)

  it("D5: that cannot be recovered from leaves its IPUs out of what is available", function()
    machine.set("LUPINE_IPUS", "2")
    local device = dm:acquireAvailableDevice(1)
    assert.equal(0, device.id)
    local _, run = trainer(device)
    faults.inject({ kind = "unrecoverable" })
    helper.raises("poplar_unrecoverable_runtime_error", "hardware", run)
    assert.equal(1, dm:tryAcquireAvailableDevice(1, { connectionType = C.OnDemand }).id)
    local other <close> = dm:acquireAvailableDevice(1)
    assert.equal(1, other.id)
    assert.is_nil(dm:tryAcquireAvailableDevice(1))
    other:detach()
    for _, connection in ipairs({ C.Always, C.OnDemand }) do -- both IPUs as one device
      assert.is_nil(dm:tryAcquireAvailableDevice(2, { connectionType = connection }))
      helper.refuses("popart_exception", "^Failed to acquire device with 2 IPUs.*out of operation",
        dm.acquireAvailableDevice, dm, 2, { connectionType = connection })
    end
    faults.clear()
    local again <close> = dm:acquireAvailableDevice(2)
    assert.is_true(again.isAttached)
  end)

  it("of linking is prepareDevice's", function()
    faults.inject({ kind = "link" })
    helper.raises("poplar_exception", "linking a codelet failed", trainer)
  end)
end)

describe("a program that does not fit", function()
  local function big(engine, name)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 1, 1024 })
    local w = b:addInitializedInputTensor(torch.zeros(1024, 1024)) -- 4 MiB for 2.4 MiB
    local y = b.aiOnnx:matmul({ x, w })
    local s = popart.InferenceSession({ fnModel = b:getModelProto(),
      dataFlow = popart.DataFlow(1, { y }), name = name,
      deviceInfo = dm:createOfflineIPUDevice({ tilesPerIPU = 4 }),
      userOptions = helper.options({ engineOptions = engine }) })
    local ok, e = pcall(s.prepareDevice, s)
    assert.is_false(ok)
    assert.is_true(popart.OutOfMemoryException:is(e) and popart.popart_exception:is(e))
    assert.matches("tile %d+ of IPU 0", e.message)
    return e
  end

  it("is an OutOfMemoryException", function()
    local e = big({})
    helper.raises("popart_exception", "'debug.allowOutOfMemory'", function()
      e:getSummaryReport()
    end)
    assert.equal("", e:getProfilePath())
  end)

  it("is reported where it may be compiled", function()
    local e = big({ ["debug.allowOutOfMemory"] = "true" })
    assert.matches("Memory Usage:", e:getSummaryReport())
    assert.equal("", e:getProfilePath())
    e = big({ ["autoReport.all"] = "true", ["autoReport.directory"] = folder }, "large")
    assert.equal(folder .. "/large", e:getProfilePath())
    assert.is_true(#text_of(folder .. "/large/profile.json") > 1000)
  end)

  it("runs on the IPU Model", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 1, 2048 })
    local y = b.aiOnnx:matmul({ x, b:addInitializedInputTensor(torch.ones(2048, 2048)) })
    local s = helper.inference(b, popart.DataFlow(1, { y }), { device = dm:createIpuModelDevice(
      { tilesPerIPU = 4 }) })
    assert.equal(2048, helper.run(s, { [x] = torch.ones(1, 2048) })[y]:mean():item())
    assert.is_false(s:getReport().memory[0].fits)
  end)
end)

describe("files", function()
  it("of reports stand in a folder of the session's name", function()
    trainer(nil, { options = { engineOptions = { ["autoReport.all"] = "true",
      ["autoReport.directory"] = folder } } })
    for _, name in ipairs({ "profile.json", "summary.txt", "debug.json", "graph.txt" }) do
      assert.is_true(#text_of(folder .. "/training/" .. name) > 0, name)
    end
    helper.raises("OSError", "autoReport.directory", function()
      trainer(nil, { options = { engineOptions = { ["autoReport.all"] = "true",
        ["autoReport.directory"] = folder .. "/training/debug.json" } } })
    end)
  end)

  it("of compiled programs are found again, and logged", function()
    local options = { enableEngineCaching = true, cachePath = folder .. "/cache" }
    local logged = {}
    local logging = require("popart.logging")
    local before = logging.info
    logging.info = function(module, fmt, ...)
      logged[#logged + 1] = module .. ": " .. fmt:format(...)
    end
    local ok, e = pcall(function()
      for _ = 1, 2 do
        local s, run, ids = trainer(nil, { options = options })
        run()
        assert.is_true(torch.equal(no_device(1), bits(s, ids)))
      end
    end)
    logging.info = before
    assert(ok, e)
    local text = table.concat(logged, "\n")
    assert.matches("session: executable cache: miss", text)
    assert.matches("executable cache: compiled and stored", text)
    assert.matches("executable cache: hit", text)
  end)

  it("of a cache that cannot be written are an error that names the option", function()
    local path = folder .. "/file"
    core.write_text(path, "x")
    local ok, e = pcall(trainer, nil, { options = { enableEngineCaching = true,
      cachePath = path .. "/cache" } })
    assert.is_false(ok)
    assert.is_true(errors.classes.OSError:is(e))
    assert.matches("SessionOptions.cachePath", e.message)
  end)
end)
