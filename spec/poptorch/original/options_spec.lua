--- PopTorch's tests/options_test.py, without test_automatic_loss_scaling (its own part),
--- test_export_proto_file (an ONNX file of PopART) and what logs of PopART show.
describe("options_test", function()
  local core = require("lupine.core")
  local files = require("spec.support.files")
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn
  local enums, Options = poptorch.enums, poptorch.Options
  local O, Mean = enums.OutputMode, enums.MeanReductionStrategy

  local Network = nn.Module:extend("Network")
  function Network.forward(_, x, y)
    return x + y
  end

  local function run(options)
    if options and not options:isFrozen() then
      options:maxRepeatLogs(nil) -- other specs may have logged the same
    end
    local model = poptorch.inferenceModel(Network(), options)
    return model(torch.ones(2), torch.zeros(2)), model
  end

  -- What f logs at a level.
  local function logs(level, f)
    local lines, log, before = {}, core.host.log, core.host.log_level()
    core.host.log = function(_, line)
      lines[#lines + 1] = line
    end
    poptorch.setLogLevel(level)
    local ok, e = pcall(f)
    core.host.log = log
    core.host.log_level(before)
    assert(ok, e)
    return table.concat(lines, "\n")
  end

  local function contains(text, ...)
    for _, part in ipairs({ ... }) do
      assert.is_truthy(text:find(part, 1, true), part)
    end
  end

  local folder
  before_each(function()
    folder = files.unused()
  end)
  after_each(function()
    require("poptorch.logging").use_file(nil)
    files.remove(folder)
  end)

  it("test_set_options", function()
    local opts = Options():outputMode(O.All)
    opts:deviceIterations(1):setExecutionStrategy(poptorch.PipelinedExecution())
      :replicationFactor(1):logDir(folder):enableSyntheticData(true):maxRepeatLogs(nil)
    opts._Popart:validate()
    assert.equal(2, opts:toDict().syntheticDataMode)
  end)

  local function from_environment(json)
    local opts
    helper.with_env({ POPTORCH_DEFAULT_OPTIONS = json }, function()
      opts = Options()
    end)
    return opts
  end

  it("TestSetOptionsFromEnvironment", function()
    local cases = {
      { ('{"deviceIterations":2,"replicationFactor":1,"logDir":"%s","enableSyntheticData":true}')
        :format(folder), Options():deviceIterations(2):replicationFactor(1):logDir(folder)
        :enableSyntheticData(true) },
      { '{"connectionType":"ConnectionType.OnDemand"}',
        Options():connectionType(enums.ConnectionType.OnDemand) },
    }
    local opts = Options()
    opts.Precision:enableFloatingPointExceptions(true)
    cases[3] = { '{"Precision.enableFloatingPointExceptions":true}', opts }
    opts = Options()
    opts._Popart:set("saveInitializersToFile", "my_file.onnx")
    cases[4] = { '{"_Popart.set":["saveInitializersToFile", "my_file.onnx"]}', opts }
    for _, case in ipairs(cases) do
      assert.equal(tostring(case[2]), tostring(from_environment(case[1])))
      assert.not_equal(tostring(Options()), tostring(case[2]))
    end
  end)

  it("test_invalid_options", function()
    for _, case in ipairs({ { "asdfasdf", true }, { "dotChecks", torch.empty(1, 1) },
      { "asdfasdf", torch.empty(1, 1) } }) do
      local opts = Options():outputMode(O.All)
      opts._Popart:set(case[1], case[2])
      assert.matches(case[1], helper.raises("Error", function()
        opts._Popart:validate()
      end).message)
    end
  end)

  local function write(path, lines)
    core.write_text(path, table.concat(lines, "\n"))
  end

  it("test_set_options_from_file", function()
    local lines = { "deviceIterations(1)", "setExecutionStrategy(poptorch.ShardedExecution())",
      "  replicationFactor(1)", " ",
      "enableSyntheticData(True) # Inline comments should be ignored",
      "# Comments should be ignored" }
    write(folder, lines)
    local opts = Options():loadFromFile(folder)
    lines[#lines + 1] = "outputMode(poptorch.OutputMode.All"
    write(folder, lines)
    local e = helper.raises("ConfigFileError", opts.loadFromFile, opts, folder)
    contains(e.message, "SyntaxError at line 5 of " .. folder:match("[^/]+$"),
      "> outputMode(poptorch.OutputMode.All")
    contains(logs("DEBUG", function()
      run(opts)
    end), "poptorch.Options set replication_factor to value 1",
      "poptorch.Options set device_iterations to value 1",
      "poptorch.Options set execution_mode to value 1",
      "poptorch.Options set syntheticDataMode to value 2")
  end)

  it("test_override_options_from_file", function()
    write(folder, { "deviceIterations(2)", "setExecutionStrategy(poptorch.ShardedExecution())",
      "replicationFactor(2)", "enableSyntheticData(True)" })
    local opts = Options():loadFromFile(folder)
    write(folder, { "deviceIterations(1)" })
    opts:loadFromFile(folder)
    contains(logs("DEBUG", function()
      local _, model = run(opts)
      assert.same({ 2, 1 }, { model.options.replication_factor, model.options.device_iterations })
    end), "poptorch.Options set replication_factor to value 2",
      "poptorch.Options set device_iterations to value 1",
      "poptorch.Options set execution_mode to value 1",
      "poptorch.Options set syntheticDataMode to value 2")
  end)

  it("test_set_popart_options", function()
    local values = {
      hardwareInstrumentations = { 0, 1 }, dotChecks = { "FINAL", "ALL" },
      engineOptions = { ["debug.allowOutOfMemory"] = "true" },
      reportOptions = { reportOptA = "A", reportOptB = "B" },
      convolutionOptions = { convOptA = "A", convOptB = "B" },
      matmulOptions = { matOptA = "A", matOptB = "B" },
      lstmOptions = { lstmOptA = "A", lstmOptB = "B" },
      gclOptions = { gclOptA = "A", gclOptB = "B" },
      customCodelets = {}, autoRecomputation = 1, enableOutlining = true,
      ["batchSerializationSettings.factor"] = 1,
      ["batchSerializationSettings.concatOnVirtualGraphChange"] = true,
      ["batchSerializationSettings.concatOnExecutionPhaseChange"] = true,
      ["batchSerializationSettings.concatOnPipelineStageChange"] = true,
      ["batchSerializationSettings.transformContext"] = 0,
      ["batchSerializationSettings.method"] = 0,
      ["batchSerializationSettings.batchSchedule"] = 1,
      ["accumulateOuterFragmentSettings.schedule"] = 1,
      ["accumulateOuterFragmentSettings.excludedVirtualGraphs"] = { "0", "1" },
      enableExplicitIR = true,
      ["automaticLossScalingSettings.gradientTensorTrackingMethod"] = 1,
      updatableNamedBuffers = { "t1", "t2" },
    }
    local opts = Options():outputMode(O.All)
    for key, value in pairs(values) do
      opts._Popart:set(key, value)
    end
    opts._Popart:validate()
    local text = logs("DEBUG", function()
      require("poptorch.compile_log").options(opts)
    end)
    for key, value in pairs(values) do
      if type(value) ~= "table" then
        contains(text, ("poptorch.Options set %s to value %s"):format(key, tostring(value)))
      end
      for k, v in pairs(type(value) == "table" and value or {}) do
        contains(text, math.type(k) and ("poptorch.Options added %s to %s"):format(v, key)
          or ("poptorch.Options set %s[%s] to %s"):format(key, k, v))
      end
    end
  end)

  it("test_popart_patterns", function()
    local opts = Options():outputMode(O.All)
    opts._Popart:setPatterns({ PadSum = true }, 0)
    opts._Popart:validate()
    assert.equal(0, opts:toDict().patterns_level)
  end)

  it("test_popart_partials", function()
    for _, dtype in ipairs({ "half", "float" }) do
      local opts = Options()
      opts.Precision:setPartialsType(torch[dtype])
      local model = poptorch.inferenceModel(nn.Sequential(nn.Linear(16, 16),
        nn.Conv1d(16, 16, 1)), opts)
      contains(logs("DEBUG", function()
        model(torch.randn(1, 16, 16))
      end), "poptorch.Options set partialsTypeMatMuls to value " .. dtype,
        "poptorch.Options set convolutionOptions[partialsType] to " .. dtype)
    end
  end)

  it("test_real_ipu_selection, test_ipu_id_selection", function()
    for _, opts in ipairs({ Options():useIpuModel(false), Options():useIpuId(63) }) do
      assert.same({ 1, 1 }, (run(opts)):tolist())
    end
  end)

  it("test_offline_ipu", function()
    assert.matches("offline", helper.raises("AssertionError", run,
      Options():useOfflineIpuTarget()).message)
  end)

  it("test_tensor_location", function()
    local opts, S = Options(), poptorch.TensorLocationSettings
    opts.TensorLocations:setActivationLocation(S():minElementsForOffChip(4)
      :useOnChipStorage(true))
    opts.TensorLocations:setWeightLocation(S():useIOTilesToStore(true)
      :useReplicatedTensorSharding(false))
    opts.TensorLocations:setOptimizerLocation(S():useIOTilesToLoad(false)
      :useReplicatedTensorSharding(true):minElementsForReplicatedTensorSharding(4))
    opts.TensorLocations:setAccumulatorLocation(S():useOnChipStorage(false))
    assert.same({ 1, 1 }, (run(opts)):tolist())
  end)

  it("test_running_statistics", function()
    for _, kind in ipairs({ "half", "float" }) do
      local net = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))[kind](nn.Sequential(
        nn.Linear(16, 16), nn.BatchNorm1d(16)))
      local model = poptorch.inferenceModel(net)
      local out = model(torch.randn({ 16, 16 }, { dtype = torch[kind] }))
      assert.equal(torch[kind], out.dtype)
      model:copyWeightsToHost()
      assert.equal(torch[kind], net[2].running_var.dtype)
    end
  end)

  it("test_copying_options", function()
    local on = poptorch.TensorLocationSettings():useOnChipStorage(true)
    local off = poptorch.TensorLocationSettings():useOnChipStorage(false)
    local opts = Options():deviceIterations(5)
    opts.Distributed:configureProcessId(5, 15)
    opts:anchorTensor("t1", "tensor1", O.EveryN, 2)
    opts._Popart:set("autoRecomputation", 3):set("dummyKey", 5)
    opts.Training:gradientAccumulation(4)
    opts.TensorLocations:setWeightLocation(on)
    local copy = opts:clone()
    opts:deviceIterations(4)
    opts.Distributed:configureProcessId(2, 15)
    opts:anchorTensor("t2", "tensor2", O.Final)
    opts._Popart:set("autoRecomputation", 2)
    opts.TensorLocations:setWeightLocation(off)

    assert.same({ 5, 5, 15, 3, 5, 4 }, { copy.device_iterations, copy.Distributed.processId,
      copy.Distributed.numProcesses, copy._Popart._options.autoRecomputation,
      copy._Popart._options.dummyKey, copy.Training.gradient_accumulation })
    assert.same({ 4, 2, 2 }, { opts.device_iterations, opts.Distributed.processId,
      opts._Popart._options.autoRecomputation })
    assert.is_nil(copy.anchored_tensors.t2)
    assert.truthy(opts.anchored_tensors.t2)
    for _, key in ipairs({ "replication_factor", "log_dir", "auto_round_num_ipus", "output_mode",
      "output_return_period", "connection_type", "sync_pattern" }) do
      assert.equal(opts[key], copy[key])
    end
    assert.same(opts.available_memory_proportion, copy.available_memory_proportion)
    assert.not_equal(tostring(opts.TensorLocations.location_weight),
      tostring(copy.TensorLocations.location_weight))
  end)

  local WithLoss = nn.Module:extend("WithLoss")
  function WithLoss:init()
    self.fc = nn.Linear(10, 10)
  end
  function WithLoss:forward(x, target)
    local out = self.fc(x)
    return out:softmax(-1), nn.functional.cross_entropy(out, target)
  end

  it("test_preserving_options_intact", function()
    local opts, model = Options(), WithLoss()
    local training = poptorch.trainingModel(model, opts)
    local inference = poptorch.inferenceModel(model, opts)
    assert.is_true(opts:defaultOutputMode())
    assert.equal(O.Final, training.options.output_mode)
    assert.equal(O.All, inference.options.output_mode)
  end)

  it("test_name_scope_hook_disabled", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.layer1 = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2), nn.ReLU())
      self.layer2 = nn.Sequential(nn.Linear(40, 10), nn.ReLU())
      self.softmax = nn.LogSoftmax(1)
    end
    function Net:forward(x)
      return self.softmax(self.layer2(self.layer1(x):view(5, 40)))
    end
    for _, enabled in ipairs({ true, false }) do
      local opts = Options()
      if not enabled then
        opts:disableModuleNamescope()
      end
      local model = poptorch.inferenceModel(Net(), opts)
      model(torch.randn(2, 1, 15, 15))
      local names = "\n" .. table.concat(model:getTensorNames(), "\n")
      for _, case in ipairs({ { "layer1/0/", "Conv" }, { "layer1/1/", "MaxPool" },
        { "layer1/2/", "Relu" }, { "layer2/0/", "MatMul" }, { "layer2/1/", "Relu" },
        { "softmax/", "LogSoftmax" } }) do
        contains(names, ("\n%s%s:0"):format(enabled and case[1] or "", case[2]))
      end
    end
  end)

  it("test_ipu_context_flag", function()
    local Net = nn.Module:extend("Net")
    function Net.forward(_, x, y)
      return poptorch.isRunningOnIpu() and x + y or x * y
    end
    local net, x, y = Net(), torch.tensor({ 50 }), torch.tensor({ 2 })
    assert.equal(52, poptorch.inferenceModel(net)(x, y):item())
    assert.equal(100, net(x, y):item())
  end)

  it("test_ipu_model", function()
    for _, case in ipairs({ { nil, "" }, { true, ": Enabled" }, { false, ": Disabled" } }) do
      local text = logs("INFO", function()
        local opts = Options()
        if case[1] ~= nil then
          opts:useIpuModel(case[1])
        end
        run(opts)
      end)
      local line = "From the user configuration: Ipu model"
      assert.equal(case[1] ~= nil, text:find(line .. case[2], 1, true) ~= nil)
    end
  end)

  it("test_log_cycle_count", function()
    contains(logs("DEBUG", function()
      local _, model = run(Options():logCycleCount(true))
      assert.is_true(model:cycleCount() > 0)
    end), "Total number of IPU cycles: ")
  end)

  it("test_profile_report_with_model_name, test_profile_report", function()
    for _, name in ipairs({ "tommyflowers", "inference" }) do
      local opts = Options():enableProfiling(folder)
      if name ~= "inference" then
        opts:modelName(name)
      end
      poptorch.inferenceModel(nn.Linear(100, 100), opts)(torch.randn(100, 100))
      local _, names = core.list_folder(folder .. "/" .. name)
      contains(table.concat(names, " "), "profile.json")
    end
  end)

  local function strategy(model)
    return model.options.Training.mean_accumulation_and_replication_reduction_strategy
  end

  it("test_mean_reduction_strategy_implicit", function()
    local x, target = torch.ones(2, 10), torch.zeros({ 2 }, { dtype = torch.int64 })
    for _, case in ipairs({ { torch.float32, false, Mean.Post },
      { torch.float16, false, Mean.Running }, { torch.float16, true, Mean.Post },
      { nil, false, Mean.Post } }) do
      local model = WithLoss()
      local optimizer = poptorch.optim.SGD(model:parameters(), { lr = 0.01,
        accum_type = case[1], use_combined_accum = case[2] })
      local trainer = poptorch.trainingModel(model, Options(), optimizer)
      trainer:compile(x, target)
      assert.equal(case[3], strategy(trainer))
    end
    local inference = poptorch.inferenceModel(WithLoss(), Options())
    inference:compile(x, target)
    assert.equal(Mean.Post, strategy(inference))
  end)

  it("test_mean_reduction_strategy_explicit", function()
    local opts = Options()
    opts.Training:setMeanAccumulationAndReplicationReductionStrategy(Mean.Running)
    local trainer = poptorch.trainingModel(WithLoss(), opts)
    trainer:compile(torch.ones(2, 10), torch.zeros({ 2 }, { dtype = torch.int64 }))
    assert.equal(Mean.Running, strategy(trainer))
    assert.equal(Mean.Running,
      opts.Training.mean_accumulation_and_replication_reduction_strategy)
  end)

  it("test_num_io_tiles", function()
    local locations = Options().TensorLocations
    for _, n in ipairs({ 10, 193, 33, 194, 31 }) do
      helper.method_raises("AssertionError", locations, "numIOTiles", n)
    end
    for _, n in ipairs({ 32, 192, 100 }) do
      locations:numIOTiles(n)
      assert.equal(n, locations.num_io_tiles)
    end
  end)

  -- Whatever changes options raises.
  local function check_frozen(opts)
    helper.method_raises("AttributeError", opts, "randomSeed", 42)
    helper.method_raises("AttributeError", opts.Training, "gradientAccumulation", 0)
    helper.method_raises("AttributeError", opts._Popart, "set",
      "groupNormStridedChannelGrouping", true)
    helper.raises("AttributeError", function()
      opts.random_seed = 42
    end)
  end

  local function dataset()
    return torch.utils.data.TensorDataset(torch.randn(100, 1, 8, 8),
      torch.empty({ 100 }, { dtype = torch.long }):random_(10))
  end

  it("test_options_change_after_use", function()
    local opts = Options()
    local trainer = poptorch.trainingModel(WithLoss(), opts)
    check_frozen(opts)
    check_frozen(trainer.options)
    opts = Options()
    local loader = poptorch.DataLoader(opts, dataset())
    check_frozen(opts)
    check_frozen(loader.options)
  end)

  it("test_copied_options_unfrozen", function()
    local opts = Options()
    poptorch.DataLoader(opts, dataset())
    local copy = opts:clone():deviceIterations(5)
    copy.Distributed:configureProcessId(5, 15)
    copy._Popart:set("autoRecomputation", 3)
    copy.Training:gradientAccumulation(4)
    copy.TensorLocations:setWeightLocation(poptorch.TensorLocationSettings()
      :useIOTilesToStore(true))
    copy.Precision:setPartialsType(torch.float16)
    assert.equal(1, opts.device_iterations)
  end)

  it("test_wrap_options", function()
    local Distributed = poptorch.options._DistributedOptions:extend("_Distributed")
    assert.equal(1, Distributed().numProcesses)
  end)

  it("test_options_printing", function()
    local text = tostring(Options():replicationFactor(4))
    assert.matches("^Options%(", text)
    contains(text, "replication_factor=4")
  end)

  -- POPTORCH_DEFAULT_OPTIONS set to this text gives what `set` sets.
  local function same_default(text, set)
    local plain, opts = tostring(Options()), Options()
    set(opts)
    helper.with_env({ POPTORCH_DEFAULT_OPTIONS = text }, function()
      local given = tostring(Options())
      assert.are_not.equal(plain, given)
      assert.equal(tostring(opts), given)
    end)
  end

  it("test_dotted_access", function()
    same_default('{"Precision.enableFloatingPointExceptions":true}', function(opts)
      opts.Precision:enableFloatingPointExceptions(true)
    end)
  end)

  it("test_enum_conversion", function()
    same_default('{"connectionType":"ConnectionType.OnDemand"}', function(opts)
      opts:connectionType(poptorch.ConnectionType.OnDemand)
    end)
  end)

  it("test_setting_popart_options", function()
    same_default('{"_Popart.set":["saveInitializersToFile", "my_file.onnx"]}', function(opts)
      opts._Popart:set("saveInitializersToFile", "my_file.onnx")
    end)
  end)
end)
