-- Ports of the original's tests of tensors' locations, phases, saved executables and data
-- in files of their own, a test each under its own name.
local files = require("spec.support.files")
local core = require("lupine.core")
local helper = require("spec.popart.helper")
local machine = require("spec.support.machine")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")
local LAYERS = 4

local function close(a, b, tolerance)
  for id, t in pairs(a) do
    assert.is_true(torch.allclose(t, b[id], { rtol = tolerance or 1e-5,
      atol = tolerance or 1e-6 }), id)
  end
end

-- Weights of a model of layers after some runs.
local function train(given)
  given = given or {}
  local replicas, accumulation = given.replicas or 1, given.accumulation or 1
  local b, ids = helper.layers(LAYERS, 2, given.place)
  local s = helper.training(b, popart.DataFlow(2, { [ids.loss] = ALL }), ids.loss,
    given.optimizer or popart.ConstSGD(0.02), { device = helper.device((given.ipus or 1)
      * replicas), options = helper.loops(accumulation, replicas, given.options) })
  torch.manual_seed(8)
  for _ = 1, 2 do
    helper.run(s, { [ids.x] = torch.randn(2 * accumulation * replicas, 2, 4) })
  end
  return helper.weights(s, ids.weights), s, ids
end

local function location(off, sharded)
  return popart.TensorLocationSettings(popart.TensorLocation(
    off and popart.TensorStorage.OffChip or popart.TensorStorage.OnChip,
    sharded and popart.ReplicatedTensorSharding.On or popart.ReplicatedTensorSharding.Off), 0, 2)
end

local function located(off, sharded, more)
  local out = { weightTensorLocationSettings = location(off, sharded),
    optimizerStateTensorLocationSettings = location(off, sharded) }
  for k, v in pairs(more or {}) do
    out[k] = v
  end
  return out
end

local function phased(phases, stages, more)
  local o = popart.SessionOptions()
  o.executionPhaseSettings.phases = phases
  o.executionPhaseSettings.stages = stages
  local out = { executionPhaseSettings = o.executionPhaseSettings,
    virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases }
  for k, v in pairs(more or {}) do
    out[k] = v
  end
  return out
end

-- Off chip, shared out, both: with two replicas or four, in phases or not.
local function everywhere(optimizer)
  for _, replicas in ipairs({ 2, 4 }) do
    local want = train({ replicas = replicas, optimizer = optimizer, accumulation = 2 })
    for _, at in ipairs({ { true, false }, { false, true }, { true, true } }) do
      close(want, (train({ replicas = replicas, optimizer = optimizer, accumulation = 2,
        options = located(at[1], at[2]) })))
    end
    close(want, (train({ replicas = replicas, optimizer = optimizer, accumulation = 2, ipus = 2,
      options = phased(4, 2, located(true, true)) })))
  end
end

describe("streamingmemory_tests", function()
  it("test_weight_update, test_inplacing_phased_constraints", function()
    local want = train()
    for stages = 1, 2 do
      close(want, (train({ ipus = 2, options = phased(2, stages) })))
      close(want, (train({ ipus = 2, options = phased(4, stages, located(true)) })))
    end
  end)

  it("test_replicated_sgd0_weight_update", function()
    everywhere(popart.ConstSGD(0.02))
  end)

  it("test_replicated_sgd1and2_weight_update", function()
    for _, mode in ipairs({ "Combined", "Separate" }) do
      everywhere(popart.SGD({ defaultLearningRate = { 0.02, true },
        defaultMomentum = { 0.9, true }, defaultWeightDecay = { 0.1, true } },
        { accumulatorAndMomentum = popart.SGDAccumulatorAndMomentum[mode] }))
    end
  end)

  it("test_replicated_adam_weight_update", function()
    everywhere(popart.Adam({ defaultLearningRate = { 0.02, true } }))
  end)

  it("test_replicated_lamb_weight_update", function()
    for _, const in ipairs({ true, false }) do
      everywhere(popart.Adam({ defaultLearningRate = { 0.02, const } }, popart.AdamMode.Lamb))
    end
  end)

  it("test_gradient_clipping", function()
    everywhere(popart.SGD({ defaultLearningRate = { 0.02, true } },
      { popart.ClipNormSettings.clipAllWeights(1.5) }))
  end)

  it("test_sharding_without_replicas_warning", function()
    close((train()), (train({ options = located(false, true) })))
  end)

  it("test_pipelined_streaming_lamb", function()
    local lamb = popart.Adam({ defaultLearningRate = { 0.02, true } }, popart.AdamMode.Lamb)
    local want = train({ optimizer = lamb, accumulation = 8 })
    close(want, (train({ optimizer = lamb, accumulation = 8, ipus = LAYERS,
      options = located(true, false, { enablePipelining = true,
        virtualGraphMode = popart.VirtualGraphMode.Manual }), place = function(b, i, add)
        local _ <close> = b:virtualGraph(i)
        return add()
      end })))
  end)

  it("test_weight_tensor_location_settings, test_accumulator_tensor_location_settings, "
    .. "test_activation_tensor_location_settings", function()
      local adam = popart.Adam({ defaultLearningRate = { 0.02, true } })
      local _, s = train({ optimizer = adam, accumulation = 2 })
      local before = s:getReport().memory[0].off_chip
      assert.equal(0, before)
      -- bytes of four 4x4 weights, and of two states for each
      for kind, bytes in pairs({ weight = 256, accumulator = 256, optimizerState = 512 }) do
        local _, off = train({ optimizer = adam, accumulation = 2, options = {
          [kind .. "TensorLocationSettings"] = location(true) } })
        assert.is_true(off:getReport().memory[0].off_chip >= bytes, kind)
      end
    end)
end)

-- ---- saved executables -----------------------------------------------------------------------

describe("saved_executable", function()
  local folder

  before_each(function()
    machine.begin()
    folder = files.unused()
    core.make_folder(folder)
  end)
  after_each(function()
    machine.finish()
    files.remove(folder)
  end)

  local function session(device, options)
    local b, ids = helper.layers(2, 3)
    return popart.TrainingSession({ fnModel = b:getModelProto(), loss = ids.loss,
      dataFlow = popart.DataFlow(1, { [ids.loss] = ALL }), optimizer = popart.ConstSGD(0.05),
      deviceInfo = device, userOptions = helper.options(options) }), ids
  end

  local function steps(s, ids)
    s:weightsFromHost()
    torch.manual_seed(2)
    local losses = {}
    for i = 1, 3 do
      losses[i] = helper.run(s, { [ids.x] = torch.randn(3, 4) })[ids.loss]:item()
    end
    return losses
  end

  it("test_manual_save_load, GetAllTensorIdsFromDeserializedExecutableTest", function()
    local device <close> = popart.DeviceManager():acquireAvailableDevice(1)
    local s, ids = session(device)
    s:prepareDevice()
    local path = folder .. "/deep/er/saved.popef"
    s:saveExecutable(path)
    local want, names = steps(s, ids), s:getAllTensorIds()
    local other = session(device)
    other:loadExecutable(path)
    other:prepareDevice()
    assert.same(want, steps(other, ids))
    assert.same(names, other:getAllTensorIds())
  end)

  it("test_simple_cache_hit, test_get_reports, test_cached_profiling", function()
    local options = { enableEngineCaching = true, cachePath = folder .. "/cache" }
    local reports, losses = {}, {}
    for i = 1, 2 do
      local s, ids = session(helper.device(), options)
      s:prepareDevice()
      losses[i] = steps(s, ids)
      reports[i] = s:getSummaryReport()
    end
    assert.same(losses[1], losses[2])
    assert.equal(reports[1], reports[2])
    local n = 0
    for _ in io.popen("ls " .. folder .. "/cache/*.lupine"):lines() do
      n = n + 1
    end
    assert.equal(1, n)
  end)

  it("test_bad_load", function()
    local device <close> = popart.DeviceManager():acquireAvailableDevice(1)
    local path = folder .. "/bad.popef"
    core.write_text(path, "This is not the executable you are looking for.")
    helper.raises("popart_exception", "bad.popef", function()
      local s = session(device)
      s:loadExecutable(path)
    end)
  end)
end)
