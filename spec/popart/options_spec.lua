-- SessionOptions: fields, defaults, groups; what must hold between them.
local enums = require("popart.enums")
local helper = require("spec.helper")
local options = require("popart.options")
local rows = require("popart.option_rows")
local rules = require("popart.option_rules")
local session_options = require("popart.session_options")
local tensor_location = require("popart.tensor_location")
local variable_settings = require("popart.variable_settings")

local SessionOptions, TensorLocation = options.SessionOptions, tensor_location.TensorLocation
local CommGroup = variable_settings.CommGroup
local refuses = helper.refuses

-- Options with these fields.
local function with(fields)
  local opts = SessionOptions()
  for name, value in pairs(fields or {}) do
    opts[name] = value
  end
  return opts
end

local function assign(opts, field, value)
  opts[field] = value
end

describe("popart.SessionOptions", function()
  it("C22 refuses an unknown field and has the original's defaults", function()
    local opts = SessionOptions()
    refuses("AttributeError", "no attribute 'foo'", assign, opts, "foo", "bar")
    refuses("AttributeError", "'acumulationFactor' %(nearest: 'accumulationFactor'%)", assign, opts,
      "acumulationFactor", 2)
    refuses("AttributeError", "no attribute 'dotCheck'", function()
      return opts.dotCheck
    end)
    assert.same({}, opts.dotChecks)
    assert.is_true(opts.enableOutlining)
    assert.equal("", opts.logDir)
    assert.equal(enums.VirtualGraphMode.Off, opts.virtualGraphMode)
    assert.equal(enums.MeanReductionStrategy.Post,
      opts.meanAccumulationAndReplicationReductionStrategy)
    assert.same({ enums.Instrumentation.Outer }, opts.hardwareInstrumentations)
    assert.equal("session_cache", opts.cachePath)
    assert.is_nil(opts.compilationProgressLogger)
  end)

  -- The numbers and switches that PopART's documents give.
  it("has the documented defaults", function()
    local opts = SessionOptions()
    for name, value in pairs({ firstDotOp = 0, finalDotOp = 10000, separateCallOpPdfs = true,
      outlineThreshold = 1.0, enableOutliningCopyCostPruning = true,
      outlineSequenceBreakCost = 10000, mergeVarUpdateMemThreshold = 1000000,
      looseThresholdAtPeak = 8000, rearrangeAnchorsOnHost = true, rearrangeStreamsOnHost = false,
      enablePrefetchDatastreams = true, defaultBufferingDepth = 1, replicatedGraphCount = 1,
      accumulationFactor = 1, compileEngine = true, constantWeights = true,
      enableVariablesCaching = true, numIOTiles = 0, enableMergeExchange = true,
      delayVarUpdates = true, enableFullyConnectedPass = true, enableSerializedMatmuls = true,
      partialsTypeMatMuls = "", timeLimitScheduler = 1e9, swapLimitScheduler = 1000000000,
      kahnTieBreaker = "greedy", transitiveClosureOptimizationThreshold = 100000,
      globalReplicationFactor = 1, globalReplicaOffset = 0, strictOpVersions = true,
      enableSupportedDataTypeCasting = true, throwIfLog2ScaleTensorNotInRange = true,
      enableConstantFoldingOfMultipleConsumers = true, compilationProgressTotal = 100,
      enableStochasticRounding = false, enablePipelining = false }) do
      assert.equal(value, opts[name], name)
    end
    local phases, batches = opts.executionPhaseSettings, opts.batchSerializationSettings
    assert.same({ 0, 2, "Preload", "Preload", "OnDemand", "Preload", "Interleaving" },
      { phases.phases, phases.stages, phases.weightIOSchedule.name,
        phases.activationIOSchedule.name, phases.optimizerStateIOSchedule.name,
        phases.accumulatorIOSchedule.name, phases.schedule.name })
    assert.same({ 0, true, "Forward", "UnrollDynamic", "Isomorphic" }, { batches.factor,
      batches.concatOnVirtualGraphChange, batches.transformContext.name, batches.method.name,
      batches.batchSchedule.name })
    local scaling = opts.automaticLossScalingSettings
    assert.same({ false, 0.125, 1e-7, 1 }, { scaling.enabled, scaling.binEdgeLocation,
      scaling.thresholdUpperCountProportion, scaling.updatePeriod })
    assert.is_nil(scaling.toTrackTensors)
    assert.equal("RecomputeAllNonInputs", opts.autodiffSettings.stitchStrategy.name)
    assert.equal("Serial", opts.accumulateOuterFragmentSettings.schedule.name)
    local weights = opts.weightTensorLocationSettings
    assert.same({ 2, 8192 }, { weights.minElementsForOffChip,
      weights.minElementsForReplicatedTensorSharding })
    assert.equal(TensorLocation(), weights.location)
  end)

  it("checks what is assigned", function()
    local opts = SessionOptions()
    for field, row in pairs({ accumulationFactor = { "4", "expected int, got string" },
      enablePipelining = { 1, "expected bool, got int 1" },
      logDir = { 3, "expected string" }, outlineThreshold = { "x", "expected float" },
      virtualGraphMode = { 1, "expected VirtualGraphMode.Off or" },
      autoRecomputation = { enums.VirtualGraphMode.Off, "expected RecomputationType.NoRecompute" },
      dotChecks = { { a = 1 }, "expected a list" }, virtualGraphSplitRatios = { { "x" }, "float" },
      customCodelets = { { 3 }, "element 1: expected string" },
      hardwareInstrumentations = { { "Outer" }, "expected Instrumentation.Outer" },
      engineOptions = { { a = {} }, "%['a'%]: expected a string, number or bool" },
      bufferingDepthMap = { { a = "x" }, "expected int" },
      tensorLocationSettingsOverride = { { a = "OnChip" }, "expected TensorLocation" },
      compilationProgressLogger = { 3, "expected function" },
      autodiffSettings = { {}, "expected AutodiffSettings" } }) do
      local e = refuses("TypeError", row[2], assign, opts, field, row[1])
      assert.matches("^SessionOptions%." .. field, e.message)
    end
    refuses("ValueError", "accumulationFactor: expected int >= 1", assign, opts,
      "accumulationFactor", 0)
    refuses("TypeError", "enableOutlining: expected bool, got nil", assign, opts, "enableOutlining")
    assert.equal(SessionOptions(), opts)
  end)

  it("keeps tables that can be added to, as texts", function()
    local opts = SessionOptions()
    opts.engineOptions = { ["autoReport.all"] = true, n = 3 }
    opts.engineOptions.more = "yes"
    assert.same({ ["autoReport.all"] = "true", n = "3", more = "yes" }, opts.engineOptions)
    assert.same({}, SessionOptions().engineOptions)
  end)

  it("has groups of settings, each of its own", function()
    local a, b = SessionOptions(), SessionOptions()
    a.automaticLossScalingSettings.enabled = true
    assert.is_false(b.automaticLossScalingSettings.enabled)
    refuses("AttributeError", "AutomaticLossScalingSettings has no attribute 'enable' "
      .. "%(nearest: 'enabled'%)", assign, a.automaticLossScalingSettings, "enable", true)
    refuses("TypeError", "automaticLossScalingSettings.updatePeriod: expected int", assign,
      a.automaticLossScalingSettings, "updatePeriod", "x")
    a.automaticLossScalingSettings = options.AutomaticLossScalingSettings(true, { "w" }, 0.25)
    assert.same({ true, { "w" }, 0.25, 1 }, { a.automaticLossScalingSettings.enabled,
      a.automaticLossScalingSettings.toTrackTensors,
      a.automaticLossScalingSettings.binEdgeLocation,
      a.automaticLossScalingSettings.updatePeriod })
    local batches = options.BatchSerializationSettings(4, true, false, true,
      { method = enums.BatchSerializationMethod.Loop })
    assert.same({ 4, false, "Loop" }, { batches.factor, batches.concatOnExecutionPhaseChange,
      batches.method.name })
    local phases = options.ExecutionPhaseSettings({ phases = 4,
      optimizerSchedule = enums.ExecutionPhaseSchedule.Batch })
    assert.same({ 4, "Batch" }, { phases.phases, phases.schedule.name })
    assert.same({ "Scheduler", { 1 } }, (function()
      local outer = options.AccumulateOuterFragmentSettings(
        enums.AccumulateOuterFragmentSchedule.Scheduler, { 1 })
      return { outer.schedule.name, outer.excludedVirtualGraphs }
    end)())
    assert.is_true(options.ReplicatedCollectivesSettings(false, true).mergeAllReduceCollectives)
    assert.equal("AddFwdOutputs", options.AutodiffSettings(
      enums.AutodiffStitchStrategy.AddFwdOutputs).stitchStrategy.name)
  end)

  it("locates tensors", function()
    local Storage, TileSet, Sharding = enums.TensorStorage, enums.TileSet,
      enums.ReplicatedTensorSharding
    local opts = SessionOptions()
    opts.weightTensorLocationSettings.location.storage = Storage.OffChip
    assert.same({ on_chip = false, sharded = false, io_load = false, io_store = false,
      min_off_chip = 2, min_sharded = 8192 }, options.location(opts.weightTensorLocationSettings))
    assert.is_true(options.location(opts.accumulatorTensorLocationSettings).on_chip)
    local at = options.TensorLocationSettings(TensorLocation(Storage.OffChip, TileSet.IO,
      TileSet.Compute, Sharding.On), 0, 4)
    assert.same({ on_chip = false, sharded = true, io_load = true, io_store = false,
      min_off_chip = 0, min_sharded = 4 }, options.location(at))
    assert.is_false(options.location(options.TensorLocationSettings(Storage.OffChip)).on_chip)
    local group = variable_settings.CommGroup(enums.CommGroupType.Consecutive, 2)
    assert.equal(group, TensorLocation(Storage.OnChip, Sharding.On, group).shardingDomain)
    assert.equal(TileSet.IO, TensorLocation({ loadTileSet = TileSet.IO }).loadTileSet)
    refuses("TypeError", "storage: expected TensorStorage.OnChip", TensorLocation, "OnChip")
    refuses("AttributeError", "no attribute 'tiles'", assign, TensorLocation(), "tiles", 3)
  end)

  it("has effective values", function()
    local opts = with({ replicatedGraphCount = 4 })
    assert.equal(1, opts:getGlobalReplicationFactor())
    opts.enableReplicatedGraphs = true
    assert.equal(4, opts:getGlobalReplicationFactor())
    opts.enableDistributedReplicatedGraphs, opts.globalReplicationFactor = true, 8
    assert.equal(8, opts:getGlobalReplicationFactor())
    opts:enableExplicitIR(true)
    assert.is_true(opts.useHostCopyOps and opts.enableExplicitMainLoops
      and opts.explicitRecomputation)
  end)

  it("shows what differs from the defaults", function()
    assert.equal("SessionOptions()", tostring(SessionOptions()))
    assert.equal("SessionOptions(accumulationFactor=4)", tostring(with({ accumulationFactor = 4 })))
  end)

  it("explains its fields", function()
    assert.equal("SessionOptions.virtualGraphMode: How operators are placed on IPUs.\n"
      .. "values: VirtualGraphMode.Off, VirtualGraphMode.Manual, VirtualGraphMode.Auto, "
      .. "VirtualGraphMode.ExecutionPhases, default VirtualGraphMode.Off\n"
      .. "simulated system: Where operators run.", options.help(SessionOptions, "virtualGraphMode"))
    assert.matches("simulated system: none: softmax subtracts",
      options.help(SessionOptions, "enableNonStableSoftmax"))
    assert.matches("simulated system: refused: operators are C",
      options.help(SessionOptions, "customCodelets"))
    assert.matches("default false", options.help(options.AutomaticLossScalingSettings, "enabled"))
    assert.is_nil(options.help(SessionOptions, "foo"))
  end)

  it("reads POPART_CACHE_DIR", function()
    local getenv = os.getenv
    os.getenv = function(name) -- luacheck: ignore 122
      return name == "POPART_CACHE_DIR" and "/cache" or getenv(name)
    end
    local opts = SessionOptions()
    os.getenv = getenv -- luacheck: ignore 122
    assert.same({ true, "/cache" }, { opts.enableEngineCaching, opts.cachePath })
  end)
end)

describe("rows of session options", function()
  it("each say what a session does with it, once", function()
    local seen = {}
    for _, row in ipairs(rows) do
      assert.is_nil(seen[row.name], row.name)
      seen[row.name] = true
      assert.is_true(#row.doc > 0, row.name)
      local said = (row.effect and 1 or 0) + (row.refused and 1 or 0) + (row.no_effect and 1 or 0)
      assert.is_true(said == 1 or row.only == "poptorch", row.name)
      assert.is_true(row.poptorch ~= nil or row.only == "popart", row.name)
    end
    assert.is_true(#session_options.names > 110)
  end)

  -- A value that is not the default.
  local function other(row)
    if row.kind == "b" then
      return not row.default
    elseif row.kind == "i" or row.kind == "f" then
      return (row.default or 0) + 1
    elseif row.kind == "e" then
      return row.of:members()[1].name ~= row.of[row.default].name and row.of:members()[1]
        or row.of:members()[2]
    elseif row.kind == "s" then
      return "other"
    elseif row.kind == "l" then
      return row.of == "string" and { "a" } or row.of == "int" and { 1 } or row.of == "float"
        and { 0.5 } or { row.of:members()[2] }
    elseif row.kind == "t" then
      return TensorLocation(enums.TensorStorage.OffChip)
    end
    return row.of == "function" and print or row.of == "location" and { a = TensorLocation() }
      or row.of == "int" and { a = 1 } or row.of == "strings" and { a = { "b" } } or { a = "b" }
  end

  it("each can be set, and are read, refused or noted", function()
    for _, row in ipairs(rows) do
      if row.only ~= "poptorch" then
        local opts, set, noted = SessionOptions(), {}, {}
        local group, field = row.name:match("^(.-)%.(.+)$")
        assign(group and opts[group] or opts, field or row.name, other(row))
        options.each_set(opts, function(name)
          set[#set + 1] = name
        end)
        assert.same({ row.name }, set)
        options.note(opts, function(name, why)
          noted[name] = why
        end)
        assert.equal(row.no_effect, noted["SessionOptions." .. row.name])
        if row.refused then
          refuses("popart_exception", "is not supported", rules.check, opts, { training = true })
        end
      end
    end
  end)
end)

describe("options that count beside another one", function()
  local function noted(opts)
    local out = {}
    rules.note(opts, { training = true }, function(name, why)
      out[name] = why
    end)
    return out
  end

  -- The option, a value, what is said while its partner is not set, and that set.
  local CASES = {
    { "replicatedGraphCount", 2, "enableReplicatedGraphs is not set", function(o)
      o.enableReplicatedGraphs = true
    end },
    { "cachePath", "there", "enableEngineCaching is not set", function(o)
      o.enableEngineCaching = true
    end },
    { "compilationProgressTotal", 10, "compilationProgressLogger is not set", function(o)
      o.compilationProgressLogger = print
    end },
    { "hardwareInstrumentations", {}, "instrumentWithHardwareCycleCounter is not set", function(o)
      o.instrumentWithHardwareCycleCounter = true
    end },
    { "virtualGraphSplitRatios", { 0.5, 0.5 }, "virtualGraphMode is not Auto", function(o)
      o.virtualGraphMode = enums.VirtualGraphMode.Auto
    end },
    { "executionPhaseSettings.stages", 1, "phased execution needs "
      .. "VirtualGraphMode.ExecutionPhases and 2 phases", function(o)
      o.virtualGraphMode = enums.VirtualGraphMode.ExecutionPhases
      o.executionPhaseSettings.phases = 2
    end },
    { "meanAccumulationAndReplicationReductionStrategy", enums.MeanReductionStrategy.Running,
      "accumulationAndReplicationReductionType is not Mean", function(o)
        o.accumulationAndReplicationReductionType = enums.ReductionType.Mean
      end },
  }

  it("are named by the report while that is not set", function()
    assert.same({}, noted(SessionOptions()))
    for _, case in ipairs(CASES) do
      local opts = SessionOptions()
      local group, field = case[1]:match("^(.-)%.(.+)$")
      assign(group and opts[group] or opts, field or case[1], case[2])
      assert.same({ ["SessionOptions." .. case[1]] = case[3] }, noted(opts))
      case[4](opts)
      assert.same({}, noted(opts))
    end
  end)

  it("may have no value where they have no default, and count as set with one", function()
    for _, none in ipairs({ false, require("torch").none }) do
      local opts = with({ compilationProgressLogger = print })
      opts.automaticLossScalingSettings.toTrackTensors = { "a" }
      assert.are_not.equal(SessionOptions(), opts)
      assert.matches("compilationProgressLogger=function", tostring(opts))
      opts.compilationProgressLogger = none or nil
      opts.automaticLossScalingSettings.toTrackTensors = none or nil
      assert.is_nil(opts.compilationProgressLogger)
      assert.equal(SessionOptions(), opts)
      options.each_set(opts, function(name)
        error(name)
      end)
    end
    refuses("TypeError", "expected TensorLocation", assign,
      SessionOptions().weightTensorLocationSettings, "location", nil)
  end)
end)

describe("rules of session options", function()
  local TRAIN, INFER = { training = true }, { training = false }

  it("F3 F4 accumulation must be enabled, and trains", function()
    refuses("popart_exception", "enableGradientAccumulation is false, but accumulationFactor > 1",
      rules.check, with({ accumulationFactor = 2 }), TRAIN)
    local opts = with({ enableGradientAccumulation = true, accumulationFactor = 3 })
    rules.check(opts, TRAIN)
    assert.equal(3, rules.accumulation(opts))
    refuses("popart_exception", "Gradient Accumulation only available when training", rules.check,
      opts, INFER)
  end)

  it("D9 replicas divide the IPUs", function()
    local opts = with({ enableReplicatedGraphs = true, replicatedGraphCount = 2 })
    rules.check(opts, { training = false, num_ipus = 4 })
    assert.equal(2, rules.replicas(opts))
    assert.equal(1, rules.replicas(with({ replicatedGraphCount = 2 })))
    refuses("popart_exception", "For replicated graphs, the number of IPUs must be divisible by "
      .. "the replication factor", rules.check, opts, { training = false, num_ipus = 3 })
  end)

  it("replicas of processes are in range", function()
    local function distributed(fields)
      fields.enableDistributedReplicatedGraphs = true
      return with(fields)
    end
    refuses("popart_exception", "is not supported: a session has the replicas of its own process",
      rules.check, distributed({ globalReplicationFactor = 4, globalReplicaOffset = 3 }), TRAIN)
    refuses("popart_exception", "Invalid globalReplicationFactor value: 0", rules.check,
      distributed({ globalReplicationFactor = 0 }), TRAIN)
    refuses("popart_exception", "Invalid globalReplicaOffset value: %-1", rules.check,
      distributed({ globalReplicaOffset = -1 }), TRAIN)
    refuses("popart_exception", "Global replica offset: 4, is larger", rules.check,
      distributed({ globalReplicationFactor = 4, globalReplicaOffset = 4 }), TRAIN)
    refuses("popart_exception", "Local replicated graphs enabled but replication factor is 1",
      rules.check, distributed({ enableReplicatedGraphs = true }), TRAIN)
    refuses("popart_exception", "Invalid local replication factor: 4, larger", rules.check,
      distributed({ enableReplicatedGraphs = true, replicatedGraphCount = 4,
        globalReplicationFactor = 2 }), TRAIN)
    rules.check(with({ globalReplicaOffset = 9 }), TRAIN)
  end)

  it("P1 P2 pipelines need IPUs and batches", function()
    refuses("popart_exception", "^Pipelining requires more than 1 IPU", rules.check,
      with({ enablePipelining = true }), { training = true, num_ipus = 2 })
    local opts = with({ enablePipelining = true, virtualGraphMode = enums.VirtualGraphMode.Manual })
    refuses("popart_exception", "^Pipelining requires more than", rules.check, opts,
      { training = true, num_ipus = 1 })
    rules.check(opts, { training = true, num_ipus = 2 })
    rules.check_depth(opts, 3, 3)
    refuses("popart_exception", "For pipelining, depth %(batchesPerStep%) must equal at least the "
      .. "number of pipeline stages %(3%)", rules.check_depth, opts, 2, 3)
    opts.enableGradientAccumulation, opts.accumulationFactor = true, 4
    refuses("popart_exception", "depth %(gradient accumulation factor%).*stages %(5%)",
      rules.check_depth, opts, 100, 5)
  end)

  it("M5 phases need their mode", function()
    local opts = with({ executionPhaseSettings = options.ExecutionPhaseSettings({ phases = 2 }) })
    refuses("popart_exception", "> 1 execution phases requires VirtualGraphMode::ExecutionPhases",
      rules.check, opts, TRAIN)
    opts.virtualGraphMode = enums.VirtualGraphMode.ExecutionPhases
    rules.check(opts, TRAIN)
    opts.executionPhaseSettings.stages = 3
    refuses("popart_exception", "stages: expected 1 or 2, got 3", rules.check, opts, TRAIN)
  end)

  it("M14 explicit loops need copies from the host, zero copy explicit recomputation", function()
    refuses("popart_exception", "enableExplicitMainLoops requires useHostCopyOps", rules.check,
      with({ enableExplicitMainLoops = true }), TRAIN)
    refuses("popart_exception", "not supported with implicit recomputation", rules.check,
      with({ aliasZeroCopy = true }), TRAIN)
    rules.check(with({ aliasZeroCopy = true, explicitRecomputation = true }), TRAIN)
    refuses("popart_exception", "not supported with implicit pipelining", rules.check,
      with({ aliasZeroCopy = true, explicitRecomputation = true, enablePipelining = true,
        virtualGraphMode = enums.VirtualGraphMode.Manual }), { training = true, num_ipus = 2 })
  end)

  it("B15 streams have a buffer, and only one where the host orders them", function()
    refuses("popart_exception", "Unable to support a buffering depth of 0 for tensor", rules.check,
      with({ defaultBufferingDepth = 0 }), TRAIN)
    refuses("popart_exception", "depth of 0 for tensor x", rules.check,
      with({ bufferingDepthMap = { x = 0 } }), TRAIN)
    local opts = with({ defaultBufferingDepth = 3, bufferingDepthMap = { x = 2 } })
    rules.check(opts, TRAIN)
    assert.same({ 2, 3, 1 }, { rules.buffering_depth(opts, "x"), rules.buffering_depth(opts, "y"),
      rules.buffering_depth(opts, "y", true) })
    refuses("popart_exception", "buffering depth >1 for tensor x", rules.buffering_depth, opts, "x",
      true)
  end)

  it("L4 loss scaling trains, with settings in range", function()
    local Method = enums.GradientTensorTrackingMethod
    local function scaled(fields)
      fields.enabled = true
      return with({ automaticLossScalingSettings = options.AutomaticLossScalingSettings(fields) })
    end
    rules.check(scaled({}), TRAIN)
    refuses("popart_exception", "Only compatible when doing training", rules.check, scaled({}),
      INFER)
    refuses("popart_exception", "Out of range value for 'binEdgeLocation'", rules.check,
      scaled({ binEdgeLocation = 1.5 }), TRAIN)
    refuses("popart_exception", "'thresholdUpperCountProportion'. The current value is %-1",
      rules.check, scaled({ thresholdUpperCountProportion = -1 }), TRAIN)
    refuses("popart_exception", "toTrackTensors has been set, but", rules.check,
      scaled({ toTrackTensors = { "a" } }), TRAIN)
    refuses("popart_exception", "'toTrackTensors' has not been set", rules.check,
      scaled({ gradientTensorTrackingMethod = Method.GradientsOfUserSpecifiedTensors }), TRAIN)
    local opts = scaled({})
    opts.enablePipelining, opts.virtualGraphMode = true, enums.VirtualGraphMode.Manual
    refuses("popart_exception", "not currently supported when the 'enablePipelining'", rules.check,
      opts, { training = true, num_ipus = 2 })
  end)

  -- What the report is told of fields of an option's, of training unless told otherwise.
  local function noted(fields, inference)
    local out = {}
    rules.note(with(fields), { training = not inference }, function(name, why)
      out[#out + 1] = name:gsub("^SessionOptions%.", "") .. ": " .. why
    end)
    return out
  end

  it("note what waits for another option", function()
    local opts = with({ replicatedGraphCount = 2, cachePath = "x", groupHostSync = true })
    opts.automaticLossScalingSettings.updatePeriod = 2
    local got = {}
    rules.note(opts, TRAIN, function(name, why)
      got[#got + 1] = name .. ": " .. why
    end)
    assert.same({
      "SessionOptions.groupHostSync: host streams of the simulated system have one form",
      "SessionOptions.replicatedGraphCount: enableReplicatedGraphs is not set",
      "SessionOptions.cachePath: enableEngineCaching is not set",
      "SessionOptions.automaticLossScalingSettings.updatePeriod: "
        .. "automaticLossScalingSettings.enabled is not set" }, got)
    refuses("popart_exception", "partialsTypeMatMuls: expected", rules.check,
      with({ partialsTypeMatMuls = "quarter" }), TRAIN)
    refuses("popart_exception", 'kahnTieBreaker: expected "greedy" or "fifo" or "random", got',
      rules.check, with({ kahnTieBreaker = "lifo" }), TRAIN)
    refuses("popart_exception", "Allowed: ReductionType.Sum, ReductionType.Mean", rules.check,
      with({ accumulationAndReplicationReductionType = enums.ReductionType.NoReduction }), TRAIN)
  end)

  it("note what another option, or inference, leaves without effect, and nothing else", function()
    local Mode = enums.VirtualGraphMode
    local mean, running = enums.ReductionType.Mean, enums.MeanReductionStrategy.Running
    local few = "phased execution needs VirtualGraphMode.ExecutionPhases and 2 phases"
    local function phases(n, stages)
      local settings = options.ExecutionPhaseSettings()
      settings.phases, settings.stages = n, stages
      return settings
    end
    -- fields, what of them is noted in training, and in inference
    local cases = {
      { { enableEngineCaching = true, cachePath = "" },
        { "enableEngineCaching: there is no cachePath" } },
      { { enableEngineCaching = true, cachePath = "x" }, {} },
      { { compilationProgressTotal = 7 },
        { "compilationProgressTotal: compilationProgressLogger is not set" } },
      { { compilationProgressTotal = 7, compilationProgressLogger = print }, {} },
      { { hardwareInstrumentations = { enums.Instrumentation.Inner } },
        { "hardwareInstrumentations: instrumentWithHardwareCycleCounter is not set" } },
      { { hardwareInstrumentations = { enums.Instrumentation.Inner },
        instrumentWithHardwareCycleCounter = true }, {} },
      { { virtualGraphSplitRatios = { 0.5, 0.5 }, virtualGraphMode = Mode.Manual },
        { "virtualGraphSplitRatios: virtualGraphMode is not Auto" } },
      { { virtualGraphSplitRatios = { 0.5, 0.5 }, virtualGraphMode = Mode.Auto }, {} },
      { { virtualGraphMode = Mode.ExecutionPhases, executionPhaseSettings = phases(1, 1) },
        { "virtualGraphMode: " .. few, "executionPhaseSettings.phases: " .. few,
          "executionPhaseSettings.stages: " .. few } },
      { { virtualGraphMode = Mode.ExecutionPhases, executionPhaseSettings = phases(2, 1) }, {} },
      { { constantWeights = false },
        { "constantWeights: a training session's weights can be written always" }, {} },
      { { accumulationAndReplicationReductionType = mean }, {},
        { "accumulationAndReplicationReductionType: inference has no gradients" } },
      { { meanAccumulationAndReplicationReductionStrategy = running },
        { "meanAccumulationAndReplicationReductionStrategy: "
          .. "accumulationAndReplicationReductionType is not Mean" },
        { "meanAccumulationAndReplicationReductionStrategy: inference has no gradients" } },
      { { meanAccumulationAndReplicationReductionStrategy = running,
        accumulationAndReplicationReductionType = mean }, {},
        { "accumulationAndReplicationReductionType: inference has no gradients",
          "meanAccumulationAndReplicationReductionStrategy: inference has no gradients" } },
      { { autoRecomputation = enums.RecomputationType.Standard }, {},
        { "autoRecomputation: inference recomputes nothing" } },
      { { disableOptimizerStateTensorStreams = true }, {},
        { "disableOptimizerStateTensorStreams: inference has no optimizer" } },
    }
    for _, row in ipairs(cases) do
      assert.same(row[2], noted(row[1]))
      assert.same(row[3] or row[2], noted(row[1], true))
    end
  end)

  it("note locations of what inference has not, and shared-out tensors' domains", function()
    local location = TensorLocation(enums.TensorStorage.OffChip)
    local settings = options.TensorLocationSettings(location, 3, 4)
    local function both(group, why)
      return { group .. ".location: " .. why, group .. ".minElementsForOffChip: " .. why,
        group .. ".minElementsForReplicatedTensorSharding: " .. why }
    end
    for group, why in pairs({ activation = false, weight = false, optimizerState =
      "inference has no optimizer", accumulator = "inference has no gradients" }) do
      local name = group .. "TensorLocationSettings"
      assert.same({}, noted({ [name] = settings }))
      assert.same(why and both(name, why) or {}, noted({ [name] = settings }, true))
    end
    local domain = TensorLocation(enums.TensorStorage.OnChip)
    domain.shardingDomain = CommGroup(enums.CommGroupType.Consecutive, 2)
    assert.same({ "weightTensorLocationSettings.location: tensors are shared out between all "
      .. "replicas, whatever the shardingDomain" },
      noted({ weightTensorLocationSettings = options.TensorLocationSettings(domain) }))
  end)
end)
