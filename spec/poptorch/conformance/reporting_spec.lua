--- PopTorch's rules of errors, counters, anchors and names, a numbered case each.
local device = require("spec.support.on_device")
local faults = require("lupine.faults")
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises
local Mode = poptorch.OutputMode

describe("conformance, errors:", function()
  before_each(function()
    machine.begin()
    faults.clear()
  end)
  after_each(function()
    faults.clear()
    machine.finish()
  end)

  local KINDS = { "recoverable", "unrecoverable", "unknown", "application", "popart",
    "popart_internal", "poplibs", "poptorch", "exception", "out_of_range" }

  local function failed(fault)
    faults.inject(fault)
    local ok, e = pcall(device.infer(function(x) return x + 1 end), torch.ones(2))
    assert.is_false(ok)
    return e
  end

  it("ERR03 what cannot be recovered, and linking", function()
    local e = failed("unrecoverable")
    assert.is_true(poptorch.UnrecoverableError:is(e))
    assert.is_false(poptorch.RecoverableError:is(e))
    assert.is_nil(e.recovery_action)
    e = failed("link")
    assert.equal("poplar_link_error", e.type)
    assert.matches("ld: error: ", e.message, 1, true)
  end)

  it("ERR04 the context is in the location, once", function()
    for _ = 1, 2 do -- none is left of the error before
      local e = failed({ kind = "recoverable", message = "Reboot needed" })
      for _, label in ipairs({ "iterations finished", "on device Id" }) do
        assert.equal(1, select(2, e.location:gsub(label, "")), e.location)
      end
      assert.equal("Reboot needed", e.message)
    end
  end)

  it("ERR06 every kind is an Error and shows where it struck", function()
    for _, kind in ipairs(KINDS) do
      local e = failed(kind)
      assert.is_true(poptorch.Error:is(e), kind)
      for _, label in ipairs({ "iterations finished", "on device Id" }) do
        assert.matches(label, tostring(e), 1, true)
      end
    end
  end)
end)

describe("conformance, counters:", function()
  local function product(options, n)
    local model = device.infer(torch.matmul, options)
    model(torch.randn(n, 10, 10), torch.randn(n, 10, 10))
    return model, model:getPerfCounters()
  end

  it("PRF01 an event a tensor and iteration", function()
    local _, events = product(poptorch.Options():deviceIterations(10):outputMode(Mode.All), 10)
    for kind, n in pairs({ input = 2, input_complete = 2, output = 1, output_complete = 1 }) do
      assert.equal(n, #events[kind])
      for _, list in ipairs(events[kind]) do
        assert.equal(10, #list)
      end
    end
  end)

  it("PRF03 synthetic data have none", function()
    local model, events = product(poptorch.Options():enableSyntheticData(true), 1)
    for kind, n in pairs({ input = 2, input_complete = 2, output = 1, output_complete = 1 }) do
      assert.equal(n, #events[kind])
      for _, list in ipairs(events[kind]) do
        assert.same({}, list)
      end
    end
    for _, name in ipairs({ "getHostIpuLatency", "getComputeLatency", "getIpuHostLatency",
      "getLatency" }) do
      assert.same({ 0, 0, 0 }, { model[name](model) })
    end
  end)

  it("PRF04 latencies have an order", function()
    local model = product(poptorch.Options():deviceIterations(4), 4)
    for _, name in ipairs({ "getHostIpuLatency", "getComputeLatency", "getIpuHostLatency",
      "getLatency" }) do
      local least, most, mean = model[name](model)
      assert.is_true(0 < least and least <= mean * (1 + 1e-12) and mean <= most * (1 + 1e-12), name)
    end
  end)
end)

describe("conformance, anchors and names:", function()
  local Net = nn.Module:extend("Net")

  function Net:init()
    self.fc1, self.fc2, self.loss = nn.Linear(10, 10), nn.Linear(10, 10), nn.MSELoss()
  end

  function Net:forward(x, target)
    return self.loss(self.fc2(self.fc1(x):relu()), target)
  end

  local function run(options, calls)
    local model = poptorch.trainingModel(Net(), options)
    return model, function()
      model(torch.rand(calls or 10, 10), torch.rand(calls or 10, 10))
    end
  end

  it("ANC01 gradients and updated weights", function()
    local options = poptorch.Options()
    options:anchorTensor("gradient", "Gradient___fc2.bias")
    options:anchorTensor("weight", "UpdatedVar___fc2.weight")
    local model, step = run(options)
    local last = {}
    for _ = 1, 3 do
      step()
      for name, shape in pairs({ gradient = { 10 }, weight = { 10, 10 } }) do
        local t = model:getAnchoredTensor(name)
        assert.same(shape, { table.unpack(t.shape) })
        assert.is_false(last[name] ~= nil and torch.equal(last[name], t))
        last[name] = t:clone()
      end
    end
  end)

  it("ANC03 modes and periods", function()
    local options = poptorch.Options():deviceIterations(4):outputMode(Mode.EveryN, 2)
    options:anchorTensor("inherits", "Gradient___fc2.bias")
    options:anchorTensor("all", "Gradient___fc2.bias", Mode.All, 7)
    options:anchorTensor("every", "Gradient___fc2.bias", Mode.EveryN, 4)
    local anchors = options.anchored_tensors
    assert.equal(1, anchors.all.output_return_period)
    assert.equal(4, anchors.every.output_return_period)
    local model, step = run(options, 40)
    step()
    local sizes = {}
    for i, name in ipairs({ "inherits", "all", "every" }) do
      sizes[i] = model:getAnchoredTensor(name):size(0)
    end
    assert.same({ 20, 40, 10 }, sizes)
    raises("AssertionError", "unknown", function() model:getAnchoredTensor("unknown") end)
  end)

  it("ANC04 names of operators have their modules", function()
    local Inner = nn.Module:extend("Inner")
    function Inner:init() self.layer1 = nn.Sequential(nn.Conv2d(1, 1, 1)) end
    function Inner:forward(x) return self.layer1(x) end
    local function names(options)
      local model = poptorch.inferenceModel(Inner(), options)
      model(torch.ones(1, 1, 2, 2))
      return table.concat(model:getTensorNames(), "\n")
    end
    assert.matches("layer1/0/Conv", names(), 1, true)
    local plain = names(poptorch.Options():disableModuleNamescope())
    assert.matches("%f[%w]Conv", plain)
    assert.not_matches("layer1/", plain, 1, true)
    local model = device.infer(function(x)
      local _ <close> = poptorch.NameScope("A")
      return x + 1
    end)
    model(torch.ones(1))
    assert.matches("A/Add", table.concat(model:getTensorNames(), "\n"), 1, true)
  end)
end)

describe("conformance, overlap:", function()
  local ALONG = poptorch.OverlapMode.OverlapDeviceIterationLoop
  local mark_in, mark_out = poptorch.set_overlap_for_input, poptorch.set_overlap_for_output

  local function options(tiles, mode, strategy)
    local o = poptorch.Options():deviceIterations(3):outputMode(mode or Mode.All)
      :setExecutionStrategy(strategy or poptorch.ShardedExecution())
    if tiles then
      o.TensorLocations:numIOTiles(tiles)
    end
    return o
  end

  local function run(forward, o)
    return poptorch.inferenceModel(models.of(forward), o)(torch.arange(6):float())
  end

  local function marked(_, x)
    return mark_out(mark_in(x, ALONG) * 2, ALONG)
  end

  it("OVL01 changes no value", function()
    helper.near(run(marked, options(32)), { 0, 2, 4, 6, 8, 10 })
    helper.near(run(function(_, x) return x * 2 end, options(32)), { 0, 2, 4, 6, 8, 10 })
  end)

  it("OVL03 is refused by place, strategy, tiles, mode, in this order", function()
    local function refused(text, forward, o)
      raises("Error", text, function() run(forward, o) end)
    end
    local pipelined = poptorch.PipelinedExecution()
    local function misplaced(_, x)
      return mark_in(x * 2, ALONG)
    end
    refused("not a tensor input", misplaced, options(nil, Mode.Final, pipelined))
    refused("PipelinedExecution", marked, options(nil, Mode.Final, pipelined))
    refused("No IO tiles", marked, options(nil, Mode.Final))
    refused("", marked, options(32, Mode.Final))
    helper.near(run(marked, options(32, Mode.Sum)), { 12, 18 })
  end)

  it("OVL05 what is marked is read and returned once", function()
    raises("Error", "only op applied to an input", function()
      run(function(_, x)
        local y = x + 1
        return y, mark_in(x, ALONG)
      end, options(32))
    end)
    raises("Error", "returned twice", function()
      run(function(_, x)
        local y = mark_out(x + 1, ALONG)
        return y, y
      end, options(32))
    end)
  end)
end)
