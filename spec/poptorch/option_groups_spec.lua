describe("the groups of poptorch.Options", function()
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local opts

  before_each(function()
    opts = poptorch.Options()
  end)

  -- Every setter of every group: calls f(object, row).
  local function each_setter(f)
    local options = require("poptorch.options")
    local objects = { opts, poptorch.TensorLocationSettings() }
    for _, name in ipairs(options.GROUPS) do
      objects[#objects + 1] = opts[name]
    end
    for _, object in ipairs(objects) do
      for _, row in ipairs(getmetatable(object)._rows) do
        if row.name then
          f(object, row)
        end
      end
    end
  end

  -- All that this version documents of counts and ids: the rows that take any
  -- integer are counts, which compiling checks, seeds and versions.
  local ANY = { deviceIterations = true, replicationFactor = true, randomSeed = true,
    useOfflineIpuTarget = true, gradientAccumulation = true }

  it("numbers have a range", function()
    local seen = 0
    each_setter(function(object, row)
      if (row.kind == "int" or row.kind == "number") and not ANY[row.name] then
        seen = seen + 1
        local e = helper.method_raises("AssertionError", object, row.name, row.min - 1)
        assert.matches(tostring(row.min), e.message, 1, true)
        local ok = pcall(function()
          object[row.key] = row.min - 1
        end)
        assert.is_false(ok, row.key)
      end
    end)
    assert.equal(5, seen)
    helper.method_raises("AssertionError", opts, "setAvailableMemoryProportion", { IPU0 = 0 / 0 })
    helper.method_raises("AssertionError", opts.Distributed, "configureProcessId", -1, 2)
    helper.method_raises("AssertionError", opts.Distributed, "configureProcessId", 2, 2)
    helper.method_raises("AssertionError", opts.Distributed, "configureProcessId", 0, 0)
    helper.method_raises("AssertionError", opts._Popart, "setPatterns", {}, 4)
  end)

  it("tables and lists are no members of enumerations, objects or classes", function()
    local seen = 0
    for _, wrong in ipairs({ poptorch.OutputMode.All, poptorch.OutputMode, poptorch.Options(),
      poptorch.Options, { [1] = 1 }, 1 }) do
      each_setter(function(object, row)
        if row.tables and row.name ~= "set" then
          seen = seen + 1
          local ok = pcall(object[row.name], object, wrong)
          assert.is_false(ok, row.name)
        end
      end)
      assert.is_false((pcall(poptorch.TensorLocationSettings, wrong)))
    end
    assert.equal(6 * 7, seen)
    helper.method_raises("AssertionError", opts, "sourceLocationExcludes", { "a", nil, "b" })
    helper.method_raises("AssertionError", opts, "updatableNamedBuffers",
      { buffers = { a = "b" } })
    assert.is_false((pcall(function()
      opts.available_memory_proportion = { GPU0 = 2 }
    end)))
  end)

  it("Training: counts, reductions and strategies", function()
    local t = opts.Training
    assert.equal(t, t:gradientAccumulation(4))
    assert.equal(4, t.gradient_accumulation)
    helper.method_raises("ValueError", t, "accumulationAndReplicationReductionType",
      poptorch.ReductionType.NoReduction)
    helper.method_raises("ValueError", t, "accumulationAndReplicationReductionType", "Sum")
    t:accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    assert.equal(poptorch.ReductionType.Sum, t.accumulation_and_replication_reduction_type)
    helper.method_raises("AssertionError", t,
      "setMeanAccumulationAndReplicationReductionStrategy", 0)
    t:setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy.Running)
    assert.equal("MeanReductionStrategy.Running",
      tostring(t.mean_accumulation_and_replication_reduction_strategy))
    assert.is_true(t:setAutomaticLossScaling(true).automatic_loss_scaling)
  end)

  it("Precision: partials and dithering keep each other's value", function()
    local half = setmetatable({}, { __tostring = function() return "torch.float16" end })
    opts.Precision:setPartialsType(half)
    opts.Training:setConvolutionDithering(true)
    assert.equal("half", opts.Precision.partials_type)
    assert.is_true(opts.Training.convolution_dithering)
    assert.same({ partialsType = "half", enableConvolutionDithering = "true" },
      opts._Popart:toDict().convolutionOptions)
    helper.method_raises("ValueError", opts.Precision, "setPartialsType", "torch.half")
    helper.method_raises("ValueError", opts.Precision, "setPartialsType", nil)
  end)

  it("Precision: switches take bools only", function()
    local p = opts.Precision
    helper.method_raises("AssertionError", p, "enableFloatingPointExceptions", 1)
    helper.method_raises("ValueError", p, "runningStatisticsAlwaysFloat", 1)
    helper.method_raises("ValueError", p, "autocastEnabled", 1)
    helper.method_raises("ValueError", p, "autocastPolicy", {})
    assert.is_true(p:enableFloatingPointExceptions(true).floating_point_exceptions)
    assert.is_true(p:enableStochasticRounding(true).stochastic_rounding)
    assert.is_false(p:autocastEnabled(false).autocast_enabled)
    local policy = poptorch.autocasting.Policy({ "mul" }, nil, nil, { "add" })
    assert.equal(policy, p:autocastPolicy(policy).autocast_policy)
    assert.same({}, policy.fp32)
    assert.same({ "add" }, policy.demote)
  end)

  it("deprecated options are accepted and warn", function()
    local logging = require("poptorch.logging")
    local warn, lines = logging.warn, {}
    logging.warn = function(fmt, ...)
      lines[#lines + 1] = fmt:format(...)
    end
    opts.Precision:halfFloatCasting(poptorch.HalfFloatCastingBehavior.HalfUpcastToFloat)
    opts.Precision:runningStatisticsAlwaysFloat(false)
    opts.Jit:traceModel(true)
    opts.Jit:traceModel(false)
    logging.warn = warn
    assert.equal(4, #lines)
    assert.matches("halfFloatCasting", lines[1])
  end)

  it("TensorLocations: I/O tiles are an even count in 32..192", function()
    local l = opts.TensorLocations
    for _, bad in ipairs({ 10, 193, 33, 194 }) do
      helper.method_raises("AssertionError", l, "numIOTiles", bad)
    end
    for _, good in ipairs({ 32, 100, 192 }) do
      assert.equal(good, l:numIOTiles(good).num_io_tiles)
    end
  end)

  it("TensorLocations: settings are taken as they are at the call", function()
    local settings = poptorch.TensorLocationSettings():useOnChipStorage(false)
    opts.TensorLocations:setActivationLocation(settings)
    settings:useOnChipStorage():useIOTilesToLoad():minElementsForOffChip(7)
    local kept = opts.TensorLocations.location_activation
    assert.is_false(kept.on_chip_storage)
    assert.is_nil(kept.io_tiles_to_load)
    assert.is_nil(kept.min_elements_for_off_chip)
    settings:useOnChipStorage(nil)
    assert.is_nil(settings.on_chip_storage)
    assert.same({ useIOTilesToLoad = 1, minElementsForOffChip = 7 }, settings:toDict())
    helper.method_raises("AssertionError", opts.TensorLocations, "setWeightLocation", {})
    helper.method_raises("AssertionError", settings, "minElementsForOffChip", 1.5)
    helper.method_raises("AssertionError", settings, "useReplicatedTensorSharding", 1)
  end)

  it("TensorLocations: phased execution stores off chip what has no location", function()
    local effective = poptorch.options.effective_locations
    assert.is_true(effective(opts).weight.on_chip)
    assert.equal(8192, effective(opts).weight.min_sharded)
    opts:setExecutionStrategy(poptorch.SerialPhasedExecution("A", "B"))
    opts.TensorLocations:setWeightLocation(poptorch.TensorLocationSettings():useOnChipStorage())
    local e = effective(opts)
    assert.is_true(e.weight.on_chip)
    for _, kind in ipairs({ "activation", "optimizer", "accumulator" }) do
      assert.is_false(e[kind].on_chip)
    end
    -- settings that do not say where it is locate nothing
    opts.TensorLocations:setWeightLocation(
      poptorch.TensorLocationSettings():minElementsForOffChip(4))
    assert.is_false(effective(opts).weight.on_chip)
    assert.equal(4, effective(opts).weight.min_off_chip)
  end)

  it("Distributed: from the environment, by hand, or not at all", function()
    helper.with_env({ OMPI_COMM_WORLD_SIZE = "8", OMPI_COMM_WORLD_RANK = "3", N = "2", ID = "1" },
      function()
        local d = poptorch.Options().Distributed
        assert.equal(8, d.numProcesses)
        assert.equal(3, d.processId)
        local total, first = d:replicas(2)
        assert.same({ 16, 6 }, { total, first })
        d:setEnvVarNames("N", "ID")
        assert.same({ 2, 1 }, { d.numProcesses, d.processId })
        d:configureProcessId(5, 6)
        assert.same({ 6, 5 }, { d.numProcesses, d.processId })
        d:disable()
        assert.same({ 1, 0 }, { d.numProcesses, d.processId })
        helper.method_raises("AssertionError", d, "configureProcessId", "0", 1)
      end)
  end)

  it("TensorLocations: settings are read by the names of their dictionary, too", function()
    local locations = opts.TensorLocations
    locations:setWeightLocation(poptorch.TensorLocationSettings():useOnChipStorage(false)
      :minElementsForOffChip(4))
    assert.equal(0, locations.location_weight.onChip)
    assert.equal(0, locations.location_weight["onChip"])
    assert.same({ onChip = 0, minElementsForOffChip = 4 }, locations.location_weight:toDict())
    local e = helper.method_raises("AssertionError", locations, "setWeightLocation", { onChip = 1 })
    assert.matches("expected TensorLocationSettings, got a table", e.message)
    local _, unknown = pcall(poptorch.TensorLocationSettings, { onchip = 1 })
    assert.matches("no value 'onchip'.*'onChip'", unknown.message)
  end)

  it("_Popart: an unknown key is accepted when set and named when validated", function()
    opts._Popart:set("enableOutlinin", true)
    local e = helper.method_raises("Error", opts._Popart, "validate")
    assert.equal("poptorch_py_error", e.type)
    assert.matches("'enableOutlinin'.*'enableOutlining'", e.message)
    local other = poptorch.Options()
    other._Popart:set("enableOutlining", "yes")
    e = helper.method_raises("Error", other._Popart, "validate")
    assert.matches("expected bool", e.message)
    other._Popart:set("enableOutlining", false):set("engineOptions", { a = "b" })
    other._Popart:setPatterns({ OpToReplace = true }, 3)
    other._Popart:validate()
    assert.equal(3, other._Popart.patterns_level)
    helper.method_raises("AssertionError", other._Popart, "setPatterns", { "A" })
  end)

  -- Values as in PopTorch's tests and user guide.
  it("_Popart: what PopTorch accepts is accepted, and told where nothing reads it", function()
    local torch = require("torch")
    local accepted = {
      defaultPrefetchBufferingDepth = 3,
      ["batchSerializationSettings.concatOnVirtualGraphChange"] = true,
      ["batchSerializationSettings.concatOnExecutionPhaseChange"] = false,
      ["batchSerializationSettings.concatOnPipelineStageChange"] = false,
      ["batchSerializationSettings.transformContext"] = 0,
      ["automaticLossScalingSettings.gradientTensorTrackingMethod"] = 1,
      ["accumulateOuterFragmentSettings.excludedVirtualGraphs"] = { "0" },
      enableExplicitIR = true,
      ["replicatedCollectivesSettings.prepareScheduleForMergingCollectives"] = true,
      ["replicatedCollectivesSettings.mergeAllReduceCollectives"] = true,
      saveInitializersToFile = "my_file.onnx",
    }
    for name, value in pairs(accepted) do
      opts._Popart:set(name, value)
    end
    local model = poptorch.inferenceModel(torch.nn.ReLU(), opts)
    assert.same({ 1 }, model(torch.ones(1)):tolist())
    local told = model:report().no_effect
    local text = require("lupine.show").show(told)
    for name in pairs(accepted) do
      assert.is_truthy(text:find(name, 1, true), name)
    end
  end)

  it("what the setters themselves store is valid", function()
    opts:enableStableNorm(true):enableSyntheticData(true):logCycleCount(true)
      :enableExecutableCaching("x"):enableProfiling()
    opts.Training:setAutomaticLossScaling(true):setConvolutionDithering(true)
    opts.Precision:enableFloatingPointExceptions(true):enableStochasticRounding(true)
    opts.TensorLocations:numIOTiles(32)
    opts._Popart:validate()
    assert.equal(".", opts.profile_dir)
  end)
end)
