describe("poptorch.Options", function()
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local torch = require("torch")
  local opts

  before_each(function()
    opts = poptorch.Options()
  end)

  it("starts with PopTorch's defaults", function()
    assert.equal(1, opts.device_iterations)
    assert.equal(1, opts.replication_factor)
    assert.equal(1, opts.Training.gradient_accumulation)
    assert.is_false(opts.auto_round_num_ipus)
    assert.is_true(opts.broadcast_buffers)
    assert.equal(poptorch.OutputMode.Default, opts.output_mode)
    assert.is_true(opts:defaultOutputMode())
    assert.equal(poptorch.ConnectionType.Always, opts.connection_type)
    assert.equal(poptorch.SyncPattern.Full, opts.sync_pattern)
    assert.same({}, opts.available_memory_proportion)
    assert.is_true(poptorch.PipelinedExecution:is(opts.execution_strategy))
    assert.equal(poptorch.ReductionType.Mean,
      opts.Training.accumulation_and_replication_reduction_type)
    assert.equal(4, opts.max_repeat_logs)
    assert.is_nil(opts.use_model)
  end)

  it("returns the same object from every setter", function()
    local strategy = poptorch.ShardedExecution()
    local same = opts:deviceIterations(2):replicationFactor(4):autoRoundNumIPUs()
      :broadcastBuffers(false):inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal)
      :outputMode(poptorch.OutputMode.EveryN, 2):logDir("logs"):maxRepeatLogs(nil)
      :modelName("net"):enableExecutableCaching("cache"):useIpuModel(true)
      :connectionType(poptorch.ConnectionType.OnDemand)
      :syncPattern(poptorch.SyncPattern.SinglePipeline):useIpuId(3)
      :setExecutionStrategy(strategy):setAvailableMemoryProportion({ IPU0 = 0.25 })
      :enableStableNorm(true):enableSyntheticData(true):logCycleCount(true)
      :enableProfiling("reports"):disableModuleNamescope():relaxOptimizerAttributesChecks()
      :showCompilationProgressBar(false):sourceLocationExcludes({ "a" })
      :appendToLocationExcludes("b", "c"):updatableNamedBuffers({ "mean" }):randomSeed(42)
    assert.equal(opts, same)
    assert.equal(2, opts.device_iterations)
    assert.equal(4, opts.replication_factor)
    assert.is_true(opts.auto_round_num_ipus)
    assert.is_false(opts.broadcast_buffers)
    assert.equal(2, opts.input_group_size)
    assert.equal(poptorch.CommGroupType.Orthogonal, opts.input_group_type)
    assert.equal(2, opts.output_return_period)
    assert.is_nil(opts.max_repeat_logs)
    assert.equal("net", opts.model_name)
    assert.equal("cache", opts.executable_cache_path)
    assert.is_true(opts.use_model)
    assert.equal(3, opts.ipu_id)
    assert.equal(strategy, opts.execution_strategy)
    assert.same({ IPU0 = 0.25 }, opts.available_memory_proportion)
    assert.is_true(opts.enable_stable_norm)
    assert.is_true(opts.enable_synthetic_data)
    assert.is_true(opts.log_cycle_count)
    assert.equal("reports", opts.profile_dir)
    assert.is_false(opts.module_namescope)
    assert.is_true(opts.relax_optimizer_checks)
    assert.is_false(opts.show_compilation_progress_bar)
    assert.same({ "a", "b", "c" }, opts.source_location_excludes)
    assert.same({ "mean" }, opts.updatable_named_buffers)
    assert.equal(42, opts.random_seed)
  end)

  it("takes keywords in a last table", function()
    opts:outputMode({ output_mode = poptorch.OutputMode.EveryN, output_return_period = 3 })
    assert.equal(3, opts.output_return_period)
    local e = helper.method_raises("TypeError", opts, "outputMode", { output_mod = 1 })
    assert.matches("'output_mode'", e.message)
  end)

  it("names the expected and the given kind", function()
    local e = helper.method_raises("AssertionError", opts, "deviceIterations", "2")
    assert.matches("expected int, got string \"2\"", e.message, 1, true)
    opts:deviceIterations(true)
    assert.equal(1, opts.device_iterations)
    helper.method_raises("AssertionError", opts, "deviceIterations", 2.0)
    helper.method_raises("AssertionError", opts, "autoRoundNumIPUs", 1)
    helper.method_raises("AssertionError", opts, "logDir", 1)
    helper.method_raises("TypeError", opts, "deviceIterations")
    helper.method_raises("TypeError", opts, "deviceIterations", 1, 2)
    assert.matches("with a colon", helper.raises("TypeError", opts.deviceIterations, 2).message)
  end)

  it("accepts zero and negative counts until compiling", function()
    assert.equal(0, opts:deviceIterations(0).device_iterations)
    assert.equal(-1, opts:replicationFactor(-1).replication_factor)
  end)

  it("refuses a mode that is no OutputMode, and EveryN without a period", function()
    helper.method_raises("AssertionError", opts, "outputMode", "All")
    helper.method_raises("AssertionError", opts, "outputMode", poptorch.SyncPattern.Full)
    helper.method_raises("AssertionError", opts, "outputMode", poptorch.OutputMode.EveryN)
    helper.method_raises("AssertionError", opts, "outputMode", poptorch.OutputMode.EveryN, 0)
    opts:outputMode(poptorch.OutputMode.All, 7)
    assert.equal(1, opts.output_return_period)
    assert.is_false(opts:defaultOutputMode())
  end)

  it("checks input groups against the replication factor", function()
    local G = poptorch.CommGroupType
    helper.method_raises("ValueError", opts, "inputReplicaGrouping", 2, G.All)
    opts:replicationFactor(2)
    helper.method_raises("ValueError", opts, "inputReplicaGrouping", 3, G.Consecutive)
    opts:replicationFactor(4)
    helper.method_raises("ValueError", opts, "inputReplicaGrouping", 3, G.Consecutive)
    opts:inputReplicaGrouping(4, G.NoGrouping)
    assert.equal(1, opts.input_group_size)
    assert.equal(G.Consecutive, opts.input_group_type)
  end)

  it("takes memory proportions of 0 to 1 by IPU that can be", function()
    helper.method_raises("AssertionError", opts, "setAvailableMemoryProportion", { GPU0 = 0.5 })
    helper.method_raises("AssertionError", opts, "setAvailableMemoryProportion", { IPUx = 0.5 })
    helper.method_raises("AssertionError", opts, "setAvailableMemoryProportion", { IPU0 = 1.5 })
    local last = ("IPU%d"):format(require("poptorch.placement").MOST_IPUS - 1)
    for _, wrong in ipairs({ { IPU0 = -0.1 }, { IPU99999 = 0.5 } }) do
      local e = helper.method_raises("AssertionError", opts, "setAvailableMemoryProportion", wrong)
      assert.matches("setAvailableMemoryProportion", e.message, 1, true)
      assert.matches(wrong.IPU0 and "-0.1" or last, e.message, 1, true)
    end
    opts:setAvailableMemoryProportion({ IPU0 = 0.7, IPU1 = 0, [last] = 1 })
    assert.same({ IPU0 = 0.7, IPU1 = 0, [last] = 1 }, opts.available_memory_proportion)
  end)

  it("keeps the rules of a setter where its property is assigned", function()
    local O = poptorch.OutputMode
    for _, set in ipairs({ function(o) o.output_mode = O.EveryN end,
      function(o) o:outputMode(O.EveryN) end }) do
      local e = helper.raises("AssertionError", set, opts)
      assert.matches("OutputMode.EveryN needs an int", e.message, 1, true)
    end
    opts:outputMode(O.EveryN, 4)
    opts.output_return_period = 3
    assert.same({ O.EveryN, 3 }, { opts.output_mode, opts.output_return_period })
    opts.output_mode = O.All
    local log_level = require("lupine.core").host.log_level
    local level = log_level()
    poptorch.setLogLevel("INFO")
    local line = require("spec.helper").logged(function()
      opts.output_return_period = 2
    end)
    log_level(level)
    assert.matches("output_return_period 2 is ignored", line, 1, true)
    assert.same({ O.All, 1 }, { opts.output_mode, opts.output_return_period })
    helper.raises("AssertionError", function()
      opts.output_return_period = 0
    end)
    opts:disableModuleNamescope().module_namescope = true
    assert.is_true(opts.module_namescope)
  end)

  it("names the setter of a property that is not assigned", function()
    for key, setter in pairs({ anchored_tensors = "anchorTensor",
      input_group_size = "inputReplicaGrouping", input_group_type = "inputReplicaGrouping" }) do
      local e = helper.raises("AssertionError", function()
        opts[key] = 1
      end)
      assert.matches(("'%s' to assign: options:%s("):format(key, setter), e.message, 1, true)
      assert.is_nil(e.message:find("nearest", 1, true))
    end
  end)

  it("tells that a period is ignored without EveryN", function()
    local O = poptorch.OutputMode
    local function logged(...)
      local given = table.pack(...)
      poptorch.setLogLevel("INFO")
      local log = require("spec.helper").logged(function()
        opts:outputMode(table.unpack(given, 1, given.n))
      end)
      poptorch.setLogLevel("WARN")
      return log
    end
    assert.matches("output_return_period 5 is ignored", logged(O.All, 5), 1, true)
    assert.equal(1, opts.output_return_period)
    for _, quiet in ipairs({ { O.All }, { O.All, 1 }, { O.EveryN, 3 } }) do
      assert.equal("", logged(table.unpack(quiet)))
    end
  end)

  it("switches on what is called without a value", function()
    for setter, key in pairs({ autoRoundNumIPUs = "auto_round_num_ipus",
      broadcastBuffers = "broadcast_buffers",
      relaxOptimizerAttributesChecks = "relax_optimizer_checks",
      showCompilationProgressBar = "show_compilation_progress_bar" }) do
      opts[setter](opts, false)
      assert.is_false(opts[key])
      assert.is_true(opts[setter](opts)[key])
    end
  end)

  it("seeds the host's random numbers when it is given a seed", function()
    opts:randomSeed(77)
    assert.equal(77, torch.initial_seed())
    local first = torch.rand(3)
    opts:randomSeed(77)
    assert.is_true(torch.equal(first, torch.rand(3)))
    helper.method_raises("AssertionError", opts, "randomSeed", "77")
  end)

  it("records anchors, whose period is for EveryN only", function()
    local O = poptorch.OutputMode
    opts:outputMode(O.EveryN, 4)
    assert.equal(opts, opts:anchorTensor("a", "Gradient___w"))
    opts:anchorTensor("b", "w", O.All, 5)
    opts:anchorTensor("c", "w", { output_mode = O.EveryN, output_return_period = 5 })
    assert.same({ long_name = "Gradient___w", output_mode = O.EveryN, output_return_period = 4 },
      opts.anchored_tensors.a)
    assert.equal(1, opts.anchored_tensors.b.output_return_period)
    assert.equal(5, opts.anchored_tensors.c.output_return_period)
  end)

  it("compiles offline for a version without attaching", function()
    opts:useOfflineIpuTarget()
    assert.equal(poptorch.ConnectionType.Never, opts.connection_type)
    assert.equal(2, opts.ipu_version)
    assert.equal(21, opts:useOfflineIpuTarget(21).ipu_version)
  end)

  it("accepts only strategies as a strategy", function()
    helper.method_raises("AssertionError", opts, "setExecutionStrategy", "sharded")
    helper.method_raises("AssertionError", opts, "setExecutionStrategy",
      poptorch.ShardedExecution)
  end)

  it("knows no other names, and suggests", function()
    local e = helper.raises("AttributeError", function()
      return opts.deviceIteration
    end)
    assert.matches("'deviceIterations'", e.message)
    helper.raises("AssertionError", function()
      opts.no_such_option = 1
    end)
    helper.raises("AttributeError", function()
      opts._private = 1
    end)
    opts.device_iterations = 5
    assert.equal(5, opts.device_iterations)
    helper.raises("AssertionError", function()
      opts.device_iterations = "5"
    end)
  end)

  it("has a copy for inference, whose calls take the same batches", function()
    opts:deviceIterations(2):replicationFactor(2).Training:gradientAccumulation(3)
    local data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randn(24, 3))
    local loader = poptorch.DataLoader(opts, data, 2) -- which freezes them
    local inference = opts:forInference()
    assert.same({ 6, 1, 2 }, { inference.device_iterations,
      inference.Training.gradient_accumulation, inference.replication_factor })
    assert.is_false(inference:isFrozen())
    assert.same({ 2, 3 }, { opts.device_iterations, opts.Training.gradient_accumulation })
    helper.raises("Error", poptorch.inferenceModel, torch.nn.Linear(4, 3), opts)
    local model = torch.nn.Linear(4, 3)
    local device, n = poptorch.inferenceModel(model, inference), 0
    for x in loader do
      assert.is_true(torch.allclose(device(x), model(x)))
      n = n + 1
    end
    assert.equal(1, n)
  end)

  it("can be sub-classed without calling its init", function()
    local Mine = poptorch.Options:extend("Mine")
    function Mine:init(n)
      self:deviceIterations(n)
    end
    local mine = Mine(7)
    assert.equal(7, mine.device_iterations)
    assert.is_true(poptorch.Options:is(mine))
    assert.is_false(poptorch.Options:is("Options"))
    assert.equal(7, mine:clone().device_iterations)
  end)

  describe("when frozen", function()
    it("refuses every setter of its own and of its groups, and names who froze", function()
      opts:_freeze("poptorch.trainingModel")
      assert.is_true(opts:isFrozen())
      local e = helper.method_raises("AttributeError", opts, "deviceIterations", 2)
      assert.matches("poptorch.trainingModel", e.message, 1, true)
      assert.matches("options_spec.lua:%d+", e.message)
      helper.method_raises("AttributeError", opts.Training, "gradientAccumulation", 2)
      helper.method_raises("AttributeError", opts.Precision, "enableStochasticRounding", true)
      helper.method_raises("AttributeError", opts.TensorLocations, "numIOTiles", 32)
      helper.method_raises("AttributeError", opts.Distributed, "disable")
      helper.method_raises("AttributeError", opts.Jit, "traceModel", true)
      helper.method_raises("AttributeError", opts._Popart, "set", "numIOTiles", 32)
      helper.method_raises("AttributeError", opts, "loadFromFile", "x")
      helper.method_raises("AttributeError", opts, "from_json", "{}")
      helper.raises("AttributeError", function()
        opts.device_iterations = 2
      end)
      assert.equal(1, opts.device_iterations)
    end)

    it("still takes anchors, which do not reach copies", function()
      opts:_freeze("poptorch.inferenceModel")
      local copy = opts:clone()
      opts:anchorTensor("a", "w")
      assert.is_not_nil(opts.anchored_tensors.a)
      assert.is_nil(copy.anchored_tensors.a)
    end)

    it("gives a copy that can be changed and shares nothing", function()
      opts:setExecutionStrategy(poptorch.PipelinedExecution("A", "B"))
      opts:_freeze("poptorch.DataLoader")
      local copy = opts:clone()
      copy:deviceIterations(9).Training:gradientAccumulation(8)
      copy.execution_strategy:stage("A"):ipu(5)
      copy._Popart:set("numIOTiles", 64)
      assert.equal(1, opts.device_iterations)
      assert.equal(1, opts.Training.gradient_accumulation)
      assert.is_nil(opts.execution_strategy:stage("A")._ipu)
      assert.equal(0, opts.TensorLocations.num_io_tiles)
      assert.equal(64, copy.TensorLocations.num_io_tiles)
      assert.equal(copy.execution_strategy:stage("A"), copy.execution_strategy._stages[1])
    end)
  end)

  it("prints its values and those of its groups", function()
    local text = tostring(opts:replicationFactor(4))
    assert.equal("Options(", text:sub(1, 8))
    assert.matches("replication_factor=4", text, 1, true)
    assert.matches("output_mode=OutputMode.Default", text, 1, true)
    assert.matches("gradient_accumulation=1", text, 1, true)
  end)

  describe("as a dictionary", function()
    it("needs a resolved output mode", function()
      helper.method_raises("AssertionError", opts, "toDict")
    end)

    it("has each value of one group", function()
      opts:outputMode(poptorch.OutputMode.All)
      rawset(opts.Training, "toDict", function()
        return { device_iterations = 1 }
      end)
      local e = helper.method_raises("AssertionError", opts, "toDict")
      assert.matches("'device_iterations'", e.message, 1, true)
    end)

    it("holds numbers for enumerations, the strategy and session options", function()
      opts:outputMode(poptorch.OutputMode.All):enableSyntheticData(true)
      opts:setExecutionStrategy(poptorch.SerialPhasedExecution("A", "B"))
      opts.TensorLocations:setWeightLocation(
        poptorch.TensorLocationSettings():useOnChipStorage(false))
      local d = opts:toDict()
      assert.equal(2, d.output_mode)
      assert.equal(1, d.accumulation_and_replication_reduction_type)
      assert.equal(2, d.execution_mode)
      assert.is_true(d.serial_phases_execution)
      assert.equal(2, d.syntheticDataMode)
      assert.same({ onChip = 0 }, d.location_weight)
      assert.is_nil(d.execution_strategy)
    end)
  end)
end)

describe("options as arguments of Options", function()
  local poptorch = require("poptorch")
  local raises = require("spec.helper").raises

  it("are refused", function()
    raises("TypeError", "Options%(%) takes no arguments", function()
      poptorch.Options({ deviceIterations = 3 })
    end)
  end)
end)

describe("every setter", function()
  local logged = require("spec.helper").logged
  local options = require("poptorch.options")
  local poptorch, torch = require("poptorch"), require("torch")
  local location = poptorch.TensorLocationSettings():useOnChipStorage(true)

  -- Arguments of those whose kind and default do not say one.
  local GIVEN = {
    inputReplicaGrouping = { 1, poptorch.CommGroupType.Consecutive },
    outputMode = { poptorch.OutputMode.All }, anchorTensor = { "w", "tensor:0" },
    setExecutionStrategy = { poptorch.PipelinedExecution() },
    setAvailableMemoryProportion = { { IPU0 = 0.5 } }, sourceLocationExcludes = { { "a" } },
    appendToLocationExcludes = { "b" }, updatableNamedBuffers = { { "b" } },
    accumulationAndReplicationReductionType = { poptorch.ReductionType.Sum },
    setPartialsType = { torch.half }, numIOTiles = { 32 }, setActivationLocation = { location },
    setWeightLocation = { location }, setOptimizerLocation = { location },
    setAccumulatorLocation = { location }, configureProcessId = { 0, 1 },
    setEnvVarNames = { "A", "B" }, set = { "numIOTiles", 32 }, setPatterns = { { A = true }, 2 },
  }
  local BY_KIND = { int = 1, bool = true, string = "x", number = 0.5 }

  local function call(object, row)
    local given = GIVEN[row.name]
    if given then
      return object[row.name](object, table.unpack(given))
    elseif #row.params == 0 then
      return object[row.name](object)
    end
    local value = BY_KIND[row.kind]
    if value == nil then
      value = row.default -- a member of an enumeration
    end
    return object[row.name](object, value)
  end

  it("returns what it was called on, of Options and of its groups", function()
    local n = 0
    local settings = poptorch.TensorLocationSettings()
    local opts = poptorch.Options()
    local objects = { opts, settings }
    for _, name in ipairs(options.GROUPS) do
      objects[#objects + 1] = opts[name]
    end
    logged(function()
      for _, object in ipairs(objects) do
        for _, row in ipairs(getmetatable(object)._rows) do
          if row.name then
            assert.is_true(rawequal(object, call(object, row)), row.name)
            n = n + 1
          end
        end
      end
    end)
    assert.is_true(n > 50)
  end)
end)
