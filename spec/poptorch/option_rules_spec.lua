describe("rules between options", function()
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local rules = require("poptorch.options.rules")
  local O = poptorch.OutputMode
  local opts

  before_each(function()
    opts = poptorch.Options()
  end)

  it("a wrapper freezes the user's options and keeps its own copy", function()
    local own = rules.for_executor(opts, true)
    assert.is_true(opts:isFrozen())
    assert.is_true(own:isFrozen())
    assert.are_not.equal(own, opts)
    assert.equal(O.Final, own.output_mode)
    assert.equal(O.Default, opts.output_mode)
    assert.equal(O.All, rules.for_executor(opts, false).output_mode)
    assert.equal(O.Sum, rules.for_executor(poptorch.Options():outputMode(O.Sum), true).output_mode)
    assert.equal(O.All, rules.for_executor(nil, false).output_mode)
    helper.raises("Error", rules.for_executor, {}, true)
  end)

  it("inference refuses gradient accumulation, with advice for a pipeline", function()
    opts.Training:gradientAccumulation(2)
    local e = helper.raises("Error", rules.for_executor, opts, false)
    assert.matches("deviceIterations", e.message)
    opts:setExecutionStrategy(poptorch.ShardedExecution())
    e = helper.raises("Error", rules.for_executor, opts, false)
    assert.is_nil(e.message:find("deviceIterations"))
    assert.is_false(opts:isFrozen())
  end)

  it("counts must be positive and EveryN must divide", function()
    for _, setter in ipairs({ "deviceIterations", "replicationFactor" }) do
      local o = poptorch.Options()
      o[setter](o, 0)
      local e = helper.raises("Error", rules.check_compile, o, false)
      assert.equal("popart_exception", e.type)
    end
    opts.Training:gradientAccumulation(0)
    helper.raises("Error", rules.check_compile, opts, true)
    for _, period in ipairs({ 3, 12 }) do
      local o = poptorch.Options():deviceIterations(10):outputMode(O.EveryN, period)
      helper.raises("Error", rules.check_compile, o, false)
    end
    rules.check_compile(poptorch.Options():deviceIterations(10):outputMode(O.EveryN, 5), false)
    for _, di in ipairs({ 1 << 20, math.maxinteger }) do -- what a call's rows would be
      local e = helper.raises("Error", rules.check_compile,
        poptorch.Options():deviceIterations(di):replicationFactor(1 << 21), false)
      assert.matches("2^40", e.message, 1, true)
    end
  end)

  it("names an unknown session option", function()
    opts._Popart:set("noSuchOption", 1)
    assert.matches("noSuchOption", helper.raises("Error", rules.check_compile, opts, false).message)
  end)

  it("names a value that an option of a library has not", function()
    opts._Popart:set("matmulOptions", { availableMemoryProportion = 1.5, unknown = 1 })
    assert.equal("session option matmulOptions: availableMemoryProportion: expected a number from "
      .. "0 to 1, got '1.5' (set through options._Popart)",
      helper.raises("Error", rules.check_compile, opts, false).message)
  end)

  it("a model's name is one that a folder may have", function()
    for _, name in ipairs({ "a/b", "..", ".", "", "a\0b", "/tmp" }) do
      helper.raises("AssertionError", opts.modelName, opts, name)
    end
    assert.equal("a b..c", opts:modelName("a b..c").model_name)
    assert.is_nil(opts:modelName(nil).model_name)
  end)

  it("offline targets exclude a device id, the IPU Model and cycle counts", function()
    local C = poptorch.ConnectionType
    helper.raises("Error", rules.check_compile, opts:useIpuId(1):connectionType(C.Never), false)
    helper.raises("Error", rules.check_compile,
      poptorch.Options():useOfflineIpuTarget():useIpuModel(true), false)
    local e = helper.raises("Error", rules.check_compile,
      poptorch.Options():useOfflineIpuTarget():logCycleCount(true), false)
    assert.matches("target is offline", e.message, 1, true)
    e = helper.raises("Error", rules.check_compile,
      poptorch.Options():useIpuModel(true):logCycleCount(true), false)
    assert.matches("target is the IPU Model", e.message, 1, true)
    helper.raises("Error", rules.check_compile, poptorch.Options():useOfflineIpuTarget(3), false)
    for _, version in ipairs({ 1, 2, 21 }) do
      local target = rules.check_compile(poptorch.Options():useOfflineIpuTarget(version), false)
      assert.same({ kind = "offline", version = version }, target)
    end
    rules.check_compile(poptorch.Options():logCycleCount(true), false)
  end)

  it("the option selects the IPU Model before the environment does", function()
    assert.equal("hardware", rules.target(opts).kind)
    helper.with_env({ POPTORCH_IPU_MODEL = "1" }, function()
      assert.same({ kind = "model", version = 2 }, rules.target(opts))
      assert.equal("hardware", rules.target(poptorch.Options():useIpuModel(false)).kind)
    end)
    helper.with_env({ POPTORCH_SMALL_IPU_MODEL = "1", POPTORCH_IPU_MODEL_VERSION = "ipu1" },
      function()
        assert.same({ kind = "model", version = 1, tiles = 4 }, rules.target(opts))
      end)
    helper.with_env({ POPTORCH_IPU_MODEL = "1", POPTORCH_IPU_MODEL_VERSION = "" }, function()
      assert.equal(2, rules.target(opts).version)
    end)
    helper.with_env({ POPTORCH_IPU_MODEL = "1", POPTORCH_SMALL_IPU_MODEL = "1" }, function()
      assert.is_nil(rules.target(opts).tiles)
    end)
    helper.with_env({ POPTORCH_IPU_MODEL = "1", POPTORCH_IPU_MODEL_VERSION = "ipu9" }, function()
      helper.raises("Error", rules.target, opts)
    end)
    helper.with_env({ POPTORCH_IPU_MODEL = "0" }, function()
      assert.equal("hardware", rules.target(opts).kind)
    end)
  end)

  it("half accumulation divides while it runs", function()
    local S = poptorch.MeanReductionStrategy
    assert.equal(S.Post, rules.mean_strategy(opts, false))
    assert.equal(S.Running, rules.mean_strategy(opts, true))
    opts.Training:setMeanAccumulationAndReplicationReductionStrategy(S.Running)
    assert.equal(S.Running, rules.mean_strategy(opts, false))
  end)

  it("batches multiply by iterations, input groups and accumulation", function()
    opts:deviceIterations(4):replicationFactor(6)
    opts.Training:gradientAccumulation(2)
    assert.equal(4 * 6 * 2, rules.input_factor(opts))
    opts:inputReplicaGrouping(3, poptorch.CommGroupType.Consecutive)
    assert.equal(4 * 2 * 2, rules.input_factor(opts))
  end)

  it("outputs are returned as often as the mode says", function()
    opts:deviceIterations(4)
    opts.Training:gradientAccumulation(2)
    local expected = { [O.All] = 8, [O.Final] = 1, [O.Sum] = 1 }
    for mode, n in pairs(expected) do
      assert.equal(n, rules.output_factor(opts:outputMode(mode)))
    end
    assert.equal(4, rules.output_factor(opts:outputMode(O.EveryN, 2)))
    local four = poptorch.Options():replicationFactor(4):outputMode(O.Final)
    assert.equal(4, rules.output_factor(four))
    assert.equal(8, rules.output_factor(opts, O.All, 1))
  end)

  it("POPLAR_ENGINE_OPTIONS wins over enableProfiling", function()
    opts:enableProfiling("mine")
    assert.equal("mine", rules.engine_options(opts)["autoReport.directory"])
    helper.with_env({ POPLAR_ENGINE_OPTIONS = '{"autoReport.directory": "env", "x": true}' },
      function()
        local e = rules.engine_options(opts)
        assert.equal("env", e["autoReport.directory"])
        assert.equal("true", e["autoReport.all"])
        assert.equal("true", e.x)
      end)
    for _, text in ipairs({ "[1]", '{"x": {}}', '{"x": null}' }) do
      helper.with_env({ POPLAR_ENGINE_OPTIONS = text }, function()
        local e = helper.raises("Error", rules.engine_options, opts)
        assert.matches("^POPLAR_ENGINE_OPTIONS: ", e.message)
      end)
    end
    helper.with_env({ POPLAR_ENGINE_OPTIONS = "{x" }, function()
      local e = helper.raises("Error", rules.engine_options, opts)
      assert.matches("expected a JSON object such as .*: ", e.message)
    end)
    helper.with_env({ POPLAR_ENGINE_OPTIONS = '{"autoReport.all": "true"}' }, function()
      assert.matches("autoReport", require("spec.helper").logged(function()
        opts:enableProfiling()
      end), 1, true)
      assert.equal(".", opts.profile_dir)
    end)
  end)
end)
