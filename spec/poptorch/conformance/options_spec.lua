--- Conformance: options and their files.
local core = require("lupine.core")
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local models = require("spec.support.models")
local poptorch = require("poptorch")
local support = require("spec.poptorch.helper")
local torch = require("torch")

local nn = torch.nn
local raises, refuses = helper.raises, helper.refuses
local C, G, M, O, R = poptorch.ConnectionType, poptorch.CommGroupType,
  poptorch.MeanReductionStrategy, poptorch.OutputMode, poptorch.ReductionType

local function options_with(env)
  local opts
  support.with_env(env, function()
    opts = poptorch.Options()
  end)
  return opts
end

-- Applies a file of these lines; the error, without its location, and the options.
local function load(lines)
  local opts, e, name = poptorch.Options(), nil, nil
  support.with_file(table.concat(lines, "\n") .. "\n", function(path)
    local ok
    name = path:match("[^/]*$")
    ok, e = pcall(opts.loadFromFile, opts, path)
    e = not ok and e or nil
  end)
  return opts, e, name
end

describe("conformance of options", function()
  it("OPT01 every setter returns the object, and getters show the values", function()
    local opts = poptorch.Options()
    local same = opts:deviceIterations(2):replicationFactor(4):autoRoundNumIPUs(true)
      :broadcastBuffers(false):inputReplicaGrouping(2, G.Orthogonal):outputMode(O.EveryN, 2)
      :logDir("logs"):maxRepeatLogs(7):modelName("m"):enableExecutableCaching("cache")
      :useIpuModel(false):connectionType(C.OnDemand)
      :syncPattern(poptorch.SyncPattern.SinglePipeline):useIpuId(3)
      :setExecutionStrategy(poptorch.ShardedExecution())
      :setAvailableMemoryProportion({ IPU0 = 0.25 }):enableStableNorm(true)
      :enableSyntheticData(true):logCycleCount(true):enableProfiling("prof")
      :disableModuleNamescope():relaxOptimizerAttributesChecks():showCompilationProgressBar(false)
      :sourceLocationExcludes({ "a" }):appendToLocationExcludes("b", "c")
      :updatableNamedBuffers({ "b1" }):randomSeed(11)
    assert.is_true(rawequal(opts, same))
    local want = { device_iterations = 2, replication_factor = 4, auto_round_num_ipus = true,
      broadcast_buffers = false, input_group_size = 2, input_group_type = G.Orthogonal,
      output_mode = O.EveryN, output_return_period = 2, log_dir = "logs", max_repeat_logs = 7,
      model_name = "m", executable_cache_path = "cache", use_model = false,
      connection_type = C.OnDemand, sync_pattern = poptorch.SyncPattern.SinglePipeline, ipu_id = 3,
      available_memory_proportion = { IPU0 = 0.25 }, enable_stable_norm = true,
      enable_synthetic_data = true, log_cycle_count = true, profile_dir = "prof",
      module_namescope = false, relax_optimizer_checks = true,
      show_compilation_progress_bar = false, source_location_excludes = { "a", "b", "c" },
      updatable_named_buffers = { "b1" }, random_seed = 11 }
    for name, value in pairs(want) do
      assert.same(value, opts[name], name)
    end
    assert.is_true(poptorch.ShardedExecution:is(opts.execution_strategy))
    local t, p, l = opts.Training, opts.Precision, opts.TensorLocations
    local s = poptorch.TensorLocationSettings():useOnChipStorage(false)
    for group, got in pairs({
      [t] = t:gradientAccumulation(3):accumulationAndReplicationReductionType(R.Sum)
        :setMeanAccumulationAndReplicationReductionStrategy(M.Running)
        :setAutomaticLossScaling(false):setConvolutionDithering(true),
      [p] = p:enableStochasticRounding(true):enableFloatingPointExceptions(false)
        :setPartialsType(torch.half),
      [l] = l:numIOTiles(32):setWeightLocation(s):setActivationLocation(s)
        :setOptimizerLocation(s):setAccumulatorLocation(s),
      [opts.Distributed] = opts.Distributed:configureProcessId(1, 2):disable(),
      [opts._Popart] = opts._Popart:set("timeLimitScheduler", 1.5),
    }) do
      assert.is_true(rawequal(group, got))
    end
    assert.same({ 3, R.Sum, M.Running, true }, { t.gradient_accumulation,
      t.accumulation_and_replication_reduction_type,
      t.mean_accumulation_and_replication_reduction_strategy, t.convolution_dithering })
    assert.same({ true, "half", 32 }, { p.stochastic_rounding, p.partials_type, l.num_io_tiles })
  end)

  it("OPT02 fresh options have the documented defaults", function()
    local opts = options_with({ OMPI_COMM_WORLD_SIZE = false, OMPI_COMM_WORLD_RANK = false,
      POPTORCH_CACHE_DIR = false, POPTORCH_DEFAULT_OPTIONS = false })
    for name, value in pairs({ device_iterations = 1, replication_factor = 1,
      auto_round_num_ipus = false, broadcast_buffers = true, input_group_size = 1,
      input_group_type = G.Consecutive, output_mode = O.Default, output_return_period = 1,
      anchored_tensors = {}, log_dir = ".", max_repeat_logs = 4, connection_type = C.Always,
      sync_pattern = poptorch.SyncPattern.Full, available_memory_proportion = {},
      enable_stable_norm = false, enable_synthetic_data = false, log_cycle_count = false,
      module_namescope = true, relax_optimizer_checks = false,
      show_compilation_progress_bar = true }) do
      assert.same(value, opts[name], name)
    end
    for _, unset in ipairs({ "random_seed", "model_name", "executable_cache_path", "use_model",
      "ipu_id", "ipu_version", "profile_dir", "updatable_named_buffers" }) do
      assert.is_nil(opts[unset], unset)
    end
    assert.equal(3, #opts.source_location_excludes)
    assert.is_true(opts:defaultOutputMode())
    assert.is_true(poptorch.PipelinedExecution:is(opts.execution_strategy))
    local t = opts.Training
    assert.same({ 1, R.Mean, M.Post, false }, { t.gradient_accumulation,
      t.accumulation_and_replication_reduction_type,
      t.mean_accumulation_and_replication_reduction_strategy, t.automatic_loss_scaling })
    assert.same({ 1, 0 }, { opts.Distributed.numProcesses, opts.Distributed.processId })
  end)

  it("OPT04 an int is no text, but may be a boolean", function()
    local opts = poptorch.Options()
    refuses("AssertionError", "int", opts.deviceIterations, opts, "2")
    assert.equal(1, opts:deviceIterations(true).device_iterations)
    opts:replicationFactor(0):deviceIterations(-1) -- no range
    opts.Training:gradientAccumulation(0)
  end)

  it("OPT05 outputMode takes the enumeration and EveryN a period", function()
    local opts = poptorch.Options()
    refuses("AssertionError", "OutputMode", opts.outputMode, opts, "All")
    refuses("AssertionError", "EveryN", opts.outputMode, opts, O.EveryN)
    refuses("AssertionError", "output_return_period", opts.outputMode, opts, O.EveryN, 0)
    assert.equal(1, opts:outputMode(O.All, 5).output_return_period)
  end)

  it("OPT07 a configuration file applies all of its lines", function()
    local opts = load({ "deviceIterations(1)", "", "# a comment",
      "   setExecutionStrategy(poptorch.ShardedExecution())", "replicationFactor(4)",
      "enableSyntheticData(True) # note" })
    assert.same({ 1, 4, true }, { opts.device_iterations, opts.replication_factor,
      opts.enable_synthetic_data })
    assert.is_true(poptorch.ShardedExecution:is(opts.execution_strategy))
  end)

  local BAD = { "deviceIterations(2)", "replicationFactor(2)", "logDir('x')", "modelName('m')",
    "useIpuId(1" }

  local function check_syntax(lines)
    local opts, e, name = load(lines)
    assert.is_true(poptorch.options.ConfigFileError:is(e))
    for _, part in ipairs({ "SyntaxError", "line 5", name }) do
      assert.is_truthy(tostring(e):find(part, 1, true), part)
    end
    assert.same({ 1, 1, "." }, { opts.device_iterations, opts.replication_factor, opts.log_dir })
  end

  it("OPT08 an unclosed parenthesis is a ConfigFileError and nothing is applied", function()
    check_syntax(BAD)
  end)

  it("OPT10 the line of a syntax error counts kept lines alone", function()
    check_syntax({ BAD[1], "# one", BAD[2], "# two", BAD[3], BAD[4], "# three", BAD[5] })
  end)

  it("OPT12 a file that is missing is told and changes nothing", function()
    local opts = poptorch.Options()
    local before = tostring(opts)
    local e = refuses("FileNotFoundError", "no/such/file", opts.loadFromFile, opts, "no/such/file")
    assert.is_true(torch.errors.OSError:is(e))
    assert.equal(before, tostring(opts))
  end)

  it("OPT13 the environment gives defaults", function()
    assert.equal(2, options_with({ POPTORCH_DEFAULT_OPTIONS = '{"deviceIterations":2}' })
      .device_iterations)
  end)

  it("OPT15 a text with a point in the environment's defaults is an enumeration's member",
    function()
      assert.equal(C.OnDemand, options_with({ POPTORCH_DEFAULT_OPTIONS =
        '{"connectionType":"ConnectionType.OnDemand"}' }).connection_type)
      assert.equal("a.b", options_with({ POPTORCH_DEFAULT_OPTIONS = '{"logDir":"a.b"}' }).log_dir)
    end)

  it("OPT16 an array in the environment's defaults is several arguments", function()
    assert.equal(1, options_with({ POPTORCH_DEFAULT_OPTIONS = '{"_Popart.set":["someKey",1]}' })
      ._Popart:toDict().someKey)
  end)

  it("OPT17 IO tiles are even and from 32 to 192", function()
    local l = poptorch.Options().TensorLocations
    for _, n in ipairs({ 10, 193, 33, 194 }) do
      refuses("AssertionError", "numIOTiles", l.numIOTiles, l, n)
    end
    for _, n in ipairs({ 32, 100, 192 }) do
      assert.equal(n, l:numIOTiles(n).num_io_tiles)
    end
  end)

  it("OPT19 a DataLoader freezes its options", function()
    local opts = poptorch.Options()
    local loader = poptorch.DataLoader(opts, torch.utils.data.TensorDataset(torch.ones(4, 1)))
    for _, frozen in ipairs({ opts, loader.options }) do
      refuses("AttributeError", "DataLoader", frozen.deviceIterations, frozen, 2)
      refuses("AttributeError", "DataLoader", frozen.Training.gradientAccumulation,
        frozen.Training, 2)
    end
  end)

  it("OPT20 a copy of frozen options can be changed", function()
    local opts = poptorch.Options()
    local model = poptorch.inferenceModel(nn.Identity(), opts)
    refuses("AttributeError", "clone", opts.deviceIterations, opts, 2)
    refuses("AttributeError", "given to poptorch.inferenceModel", model.options.deviceIterations,
      model.options, 2)
    model = poptorch.trainingModel(models.Sum(1))
    refuses("AttributeError", "given to poptorch.trainingModel", model.options.deviceIterations,
      model.options, 2)
    local copy = opts:clone():deviceIterations(5)
    copy.Training:gradientAccumulation(2)
    assert.same({ 5, 1, 2, 1 }, { copy.device_iterations, opts.device_iterations,
      copy.Training.gradient_accumulation, opts.Training.gradient_accumulation })
  end)

  it("OPT22 options print their values", function()
    local text = tostring(poptorch.Options():replicationFactor(4))
    assert.equal("Options(", text:sub(1, 8))
    assert.is_truthy(text:find("replication_factor=4", 1, true))
  end)

  it("OPT23 an unknown session option is refused when a model is compiled", function()
    local opts = poptorch.Options()
    opts._Popart:set("no_such_option", 1)
    local model = poptorch.inferenceModel(nn.Identity(), opts)
    raises("Error", "no_such_option", function()
      model(torch.ones(1))
    end)
  end)

  it("OPT25 float16 accumulation takes the running mean, others what was chosen", function()
    local function strategy(chosen, accum_type)
      local opts, net = poptorch.Options(), models.Sum(1)
      opts.Training:setMeanAccumulationAndReplicationReductionStrategy(chosen)
      local model = poptorch.trainingModel(net, opts,
        poptorch.optim.SGD(net:parameters(), { lr = 0.1, accum_type = accum_type }))
      return model.options.Training.mean_accumulation_and_replication_reduction_strategy
    end
    assert.equal(M.Running, strategy(M.Running, torch.float32))
    assert.equal(M.Post, strategy(M.Post, torch.float32))
    assert.equal(M.Running, strategy(M.Post, torch.float16))
  end)

  it("OPT26 input groups divide the replicas", function()
    local function group(rf, ...)
      return poptorch.Options():replicationFactor(rf):inputReplicaGrouping(...)
    end
    refuses("ValueError", "All", group, 4, 2, G.All)
    refuses("ValueError", "divisor", group, 2, 3)
    refuses("ValueError", "divisor", group, 4, 3)
    local opts = group(4, 4, G.NoGrouping)
    assert.same({ 1, G.Consecutive }, { opts.input_group_size, opts.input_group_type })
  end)

  it("OPT28 a model for an offline device compiles and does not run", function()
    local model = poptorch.inferenceModel(nn.Identity(),
      poptorch.Options():connectionType(C.Never))
    model:compile(torch.ones(1))
    assert.is_true(model:isCompiled())
    raises("AssertionError", "offline", function()
      model(torch.ones(1))
    end)
    raises("AssertionError", "offline", function()
      model:attachToDevice()
    end)
  end)

  it("OPT29 gradients are reduced, by mean or sum", function()
    local t = poptorch.Options().Training
    local set = t.accumulationAndReplicationReductionType
    refuses("ValueError", "NoReduction", set, t, R.NoReduction)
    refuses("ValueError", "ReductionType", set, t, "Sum")
    assert.equal(R.Sum, set(t, R.Sum).accumulation_and_replication_reduction_type)
  end)

  it("OPT31 log levels are known names and numbers", function()
    local before = core.host.log_level()
    refuses("ValueError", "integer", poptorch.setLogLevel, 5)
    local e = refuses("ValueError", "wibble", poptorch.setLogLevel, "wibble")
    for _, name in ipairs({ "TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF" }) do
      poptorch.setLogLevel(name)
      assert.is_truthy(e.message:find(name, 1, true))
    end
    core.host.log_level(before)
  end)

  it("OPT32 memory proportions are named by IPU", function()
    local opts = poptorch.Options()
    refuses("AssertionError", "IPU0", opts.setAvailableMemoryProportion, opts, { GPU0 = 0.5 })
    refuses("AssertionError", "IPU0", opts.setAvailableMemoryProportion, opts, { IPUx = 0.5 })
    opts:setAvailableMemoryProportion({ IPU0 = 0.7 })
    assert.same({ IPU0 = 0.7 }, opts.available_memory_proportion)
  end)

  it("OPT34 options keep tensor locations as they were given", function()
    local opts = poptorch.Options()
    local settings = poptorch.TensorLocationSettings():useOnChipStorage(false)
      :minElementsForOffChip(4)
    opts.TensorLocations:setWeightLocation(settings)
    settings:useOnChipStorage(true):minElementsForOffChip(8)
    local kept = opts.TensorLocations.location_weight
    assert.same({ false, 4 }, { kept.on_chip_storage, kept.min_elements_for_off_chip })
  end)

  it("OPT35 an offline target is no IPU Model", function()
    local opts = poptorch.Options():useOfflineIpuTarget()
    assert.same({ C.Never, 2 }, { opts.connection_type, opts.ipu_version })
    poptorch.Options():useOfflineIpuTarget(7) -- nothing is checked yet
    opts:useIpuModel(true)
    local model = poptorch.inferenceModel(nn.Identity(), opts)
    raises("Error", "IPU Model", function()
      model:compile(torch.ones(1))
    end)
    machine.begin()
    local e = raises("Error", "useIpuId", function()
      poptorch.inferenceModel(nn.Identity(), poptorch.Options():connectionType(C.Never)
        :useIpuId(0)):compile(torch.ones(1))
    end)
    machine.finish()
    assert.is_truthy(e)
  end)
end)
