describe("options from files and the environment", function()
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")

  local function load(text, opts)
    opts = opts or poptorch.Options()
    helper.with_file(text, function(path)
      assert.equal(opts, opts:loadFromFile(path))
    end)
    return opts
  end

  local function refused(class_name, text, opts)
    opts = opts or poptorch.Options()
    local e
    helper.with_file(text, function(path)
      e = helper.method_raises(class_name, opts, "loadFromFile", path)
      e.base = path:match("[^/]*$")
    end)
    return e, opts
  end

  it("applies the sample of the user guide", function()
    local opts = load("deviceIterations(1)\n\n# a comment\n"
      .. "  setExecutionStrategy(poptorch.ShardedExecution())\n"
      .. "replicationFactor(4)\nenableSyntheticData(True) # note\n")
    assert.equal(1, opts.device_iterations)
    assert.is_true(poptorch.ShardedExecution:is(opts.execution_strategy))
    assert.equal(4, opts.replication_factor)
    assert.is_true(opts.enable_synthetic_data)
  end)

  it("takes whatever builds options", function()
    local opts = load([[
deviceIterations(0x10).replicationFactor(1_0)
Training.gradientAccumulation(gradient_accumulation=3)
outputMode(poptorch.enums.OutputMode.EveryN, output_return_period=2)
TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
setAvailableMemoryProportion({"IPU0": .5, 'IPU1': 2.5e-1,})
setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("A", "B").ipu(1), ["C"]))
enableExecutableCaching(None)
_Popart.set("timeLimitScheduler", -1.5)
logDir("a" 'b\x41\'' r"\n")
inputReplicaGrouping(5, poptorch.CommGroupType(2))
]])
    assert.equal(16, opts.device_iterations)
    assert.equal(10, opts.replication_factor)
    assert.equal(3, opts.Training.gradient_accumulation)
    assert.equal(2, opts.output_return_period)
    assert.is_false(opts.TensorLocations.location_weight.on_chip_storage)
    assert.same({ IPU0 = 0.5, IPU1 = 0.25 }, opts.available_memory_proportion)
    assert.equal(1, opts.execution_strategy:stage("B")._ipu)
    assert.equal(1, opts.execution_strategy:stage("C")._stage_id)
    assert.is_nil(opts.executable_cache_path)
    assert.equal(-1.5, opts._Popart:toDict().timeLimitScheduler)
    assert.equal("abA'\\n", opts.log_dir)
    assert.equal(poptorch.CommGroupType.Orthogonal, opts.input_group_type)
  end)

  it("names the line and the file of a setter's error", function()
    local e = refused("AttributeError", "# first\n\ndeviceIteration(2)\n")
    assert.matches("line 3 of " .. e.base .. ": ", e.message, 1, true)
    assert.matches("'deviceIterations'", e.message, 1, true)
    assert.matches("\n> deviceIteration(2)", e.message, 1, true)
    e = refused("AttributeError", "opts.deviceIterations(4)\n")
    assert.matches("a line stands without `opts.`", e.message, 1, true)
    e = refused("AssertionError", "deviceIterations('x')\n")
    assert.matches("line 1 of " .. e.base .. ": ", e.message, 1, true)
  end)

  it("names the kept line and the file of a syntax error and applies nothing", function()
    local e, opts = refused("ConfigFileError",
      "deviceIterations(2)\n# c\nreplicationFactor(2)\n\n# c\nlogDir('x')\n"
      .. "modelName('m')\nuseIpuId(1\n")
    assert.matches("SyntaxError at line 5 of " .. e.base, e.message, 1, true)
    assert.matches("was never closed", e.message, 1, true)
    assert.matches("useIpuId(1", e.message, 1, true)
    assert.equal(1, opts.device_iterations)
    assert.is_true(poptorch.options.ConfigFileError:is(e))
    assert.is_false(poptorch.Error:is(e))
  end)

  it("parses and never runs", function()
    for _, line in ipairs({ "deviceIterations(1 + 1)", "x = 3", "import os", "f(", ")",
      "deviceIterations(lambda: 1)", "deviceIterations(f'1')", "deviceIterations(01)",
      "deviceIterations([1][0])", "deviceIterations('a)", "logDir('\\xZ1')", "a; b",
      "outputMode(output_mode=1, 2)", ("deviceIterations" .. ("("):rep(5000)) }) do
      refused("ConfigFileError", line)
    end
    refused("NameError", "deviceIterations(print)")
    for _, line in ipairs({ "clone()", "_freeze('x')", "_owner", "__class__", "from_json('{}')",
      "loadFromFile('/etc/passwd')", "_values", "logDir(poptorch.setLogLevel(0))",
      "logDir(torch.load('x'))", "setExecutionStrategy(poptorch.Options())",
      "execution_strategy.extend('x')", "Training._owner.clone()" }) do
      refused("AttributeError", line)
    end
    refused("TypeError", "deviceIterations(1)(2)")
    assert.matches("cannot be a key",
      refused("TypeError", "setAvailableMemoryProportion({None: 1})").message, 1, true)
  end)

  it("keeps the lines before one whose value is refused", function()
    local _, opts = refused("AssertionError", "deviceIterations(3)\nreplicationFactor('2')\n"
      .. "logDir('x')\n")
    assert.equal(3, opts.device_iterations)
    assert.equal(".", opts.log_dir)
    local e = refused("AttributeError", "deviceIteration(3)")
    assert.matches("'deviceIterations'", e.message)
  end)

  it("overrides only what a later file mentions", function()
    local opts = load("deviceIterations(3)\nlogDir('x')")
    load("deviceIterations(4)\r\n", opts)
    assert.equal(4, opts.device_iterations)
    assert.equal("x", opts.log_dir)
  end)

  it("says that a file is missing", function()
    local opts = poptorch.Options()
    local e = helper.method_raises("OSError", opts, "loadFromFile", "/no/such/poptorch.conf")
    assert.is_true(require("lupine.base.errors").FileNotFoundError:is(e))
    helper.method_raises("OSError", opts, "loadFromFile", "/")
  end)

  it("applies POPTORCH_DEFAULT_OPTIONS to every new Options", function()
    helper.with_env({ POPTORCH_DEFAULT_OPTIONS = [[ {
      "deviceIterations": 2, "connectionType": "ConnectionType.OnDemand",
      "Training.gradientAccumulation": 3, "logDir": "a.b",
      "_Popart.set": ["someKey", 1], "maxRepeatLogs": null } ]] }, function()
      local opts = poptorch.Options()
      assert.equal(2, opts.device_iterations)
      assert.equal(poptorch.ConnectionType.OnDemand, opts.connection_type)
      assert.equal(3, opts.Training.gradient_accumulation)
      assert.equal("a.b", opts.log_dir)
      assert.equal(1, opts._Popart:toDict().someKey)
      assert.equal(5, opts:deviceIterations(5).device_iterations)
    end)
  end)

  it("refuses JSON that is not strict", function()
    local opts = poptorch.Options()
    for _, text in ipairs({ "", "[]", "3", "{", "{'a': 1}", '{"logDir": "x",}', '{"a" 1}',
      '{"logDir": "x"} x', '{"logDir": "\n"}', '{"logDir": "\\q"}', '{"useIpuId": 01}',
      '{"useIpuId": 1.}', '{"logDir": "x", "logDir": "y"}', ("["):rep(5000) }) do
      helper.method_raises("ValueError", opts, "from_json", text)
    end
    for _, name in ipairs({ "noSuchOption", "Training", "device_iterations" }) do
      helper.method_raises("AttributeError", opts, "from_json", ('{"%s": 1}'):format(name))
    end
    assert.equal("\u{20AC}\n", opts:from_json('{"logDir": "\\u20ac\\n"}').log_dir)
    assert.equal("\u{1F600}", opts:from_json('{"logDir": "\\ud83d\\ude00"}').log_dir)
    helper.method_raises("ValueError", opts, "from_json", '{"logDir": "\\ud83d"}')
  end)

  it("answers any text with options or an error object", function()
    local pieces = { "deviceIterations", "(", ")", "[", "]", "{", "}", ",", ":", ".", "=", "-", "1",
      "2.5", "0x", "1e", "'a'", '"', "'", "\\", "#", "poptorch", "Stage", "enums", "OutputMode",
      "All", "outputMode", "None", "True", "Training", "_Popart", "set", "\0", "\u{20AC}", " ",
      "options", "torch", "half", "setExecutionStrategy", "PipelinedExecution", "\n", "\255" }
    local errors = require("lupine.base.errors")
    local state = 12345
    local function random(n)
      state = (state * 1103515245 + 12345) % 2147483648
      return state // 65536 % n + 1
    end
    local valid = { "deviceIterations(2).outputMode(poptorch.OutputMode.EveryN, 3)",
      "setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage('A').ipu(1), ['B']))",
      "TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage())",
      "_Popart.set('engineOptions', {'a': -1.5, \"b\": [True, None, (1, 2)]})" }
    for i = 1, 400 do
      local text = valid[i % #valid + 1]
      for _ = 1, random(3) do
        local at = random(#text)
        text = text:sub(1, at - 1) .. pieces[random(#pieces)] .. text:sub(at + random(4) - 1)
      end
      helper.with_file(text, function(path)
        local opts = poptorch.Options()
        local ok, e = pcall(opts.loadFromFile, opts, path)
        assert.is_true(ok or errors.Exception:is(e), ("%q: %s"):format(text, tostring(e)))
      end)
    end
  end)

  it("takes the cache directory from POPTORCH_CACHE_DIR", function()
    helper.with_env({ POPTORCH_CACHE_DIR = "/tmp/cache" }, function()
      assert.equal("/tmp/cache", poptorch.Options().executable_cache_path)
    end)
    helper.with_env({ POPTORCH_CACHE_DIR = "/tmp/cache", -- the defaults come after it
      POPTORCH_DEFAULT_OPTIONS = '{"enableExecutableCaching": "other"}' }, function()
      assert.equal("other", poptorch.Options().executable_cache_path)
    end)
  end)
end)
