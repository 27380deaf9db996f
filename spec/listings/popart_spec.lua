--- The listings of PopART's chapter on executing graphs, ported line by line: what must
--- come out is what the chapter says. They are numbered as they stand in it; where its
--- pages have lost a line, what belongs there stands here.
local helper = require("spec.popart.helper")
local machine = require("spec.support.machine")
local popart = require("popart")
local program = require("spec.support.program")
local torch = require("torch")

-- A model that adds a and b.
local function adds()
  local builder = popart.Builder()
  local a = builder:addInputTensor(popart.TensorInfo("FLOAT", { 1 }), "a")
  local b = builder:addInputTensor(popart.TensorInfo("FLOAT", { 1 }), "b")
  local o = builder.aiOnnx:add({ a, b })
  builder:addOutputTensor(o)
  return builder, o, a, b
end

-- A model of one weight, and its loss |w x|.
local function trains()
  local builder = popart.Builder()
  local x = builder:addInputTensor("FLOAT", { 1 })
  local w = builder:addInitializedInputTensor(torch.tensor({ 8.0 }), "w")
  local loss = helper.l1(builder, builder.aiOnnx:mul({ x, w }), 1)
  return builder, x, w, loss
end

local path -- of the test, removed behind it

local function folder_of(name)
  return machine.begin() .. "/" .. name
end

describe("listing", function()
  after_each(function()
    if path then
      os.remove(path)
      path = nil
    end
  end)

  it("P1: initAnchorArrays and PyStepIO", function()
    local builder, o, a, b = adds()
    local session = helper.inference(builder, popart.DataFlow(1, { o }))
    -- Create buffers to receive results from the execution
    local anchors = session:initAnchorArrays()
    -- Generate some random input data
    local data_a = torch.rand(1)
    local data_b = torch.rand(1)
    local stepio = popart.PyStepIO({ [a] = data_a, [b] = data_b }, anchors)
    session:run(stepio)
    helper.near(anchors[o], data_a + data_b)
  end)

  it("P2: weightsFromHost, then a learning rate for each step", function()
    local builder, x, w, loss = trains()
    local learningRate = { 0.5, 0.25, 2.0 }
    local session = helper.training(builder, popart.DataFlow(1, { loss }), loss,
      popart.SGD({ defaultLearningRate = { 1.0, false } }), { prepare = false })
    session:prepareDevice()
    session:weightsFromHost()
    local want = 8
    for step = 1, #learningRate do
      -- Update learning rate parameter between training steps
      local stepLr = learningRate[step]
      session:updateOptimizerFromHost(popart.SGD({ defaultLearningRate = { stepLr, false } }))
      helper.run(session, { [x] = torch.ones(1) })
      want = want - stepLr
      assert.equal(want, helper.weights(session, { w })[w]:item())
    end
  end)

  it("P3: a DataFlow, and the four types of return", function()
    local o = "o"
    local df = popart.DataFlow(1, { [o] = popart.AnchorReturnType("ALL") })
    assert.same({ 1, { "o" } }, { df:batchesPerStep(), df:anchors() })
    for _, case in ipairs({
      { popart.AnchorReturnType("ALL"), { 1, 2, 3, 4 } },
      { popart.AnchorReturnType("EVERYN", 2), { 2, 4 } },
      { popart.AnchorReturnType("FINAL"), 4 },
      { popart.AnchorReturnType("SUM"), 10 },
    }) do
      local builder, x, y = helper.identity({})
      local session = helper.inference(builder, popart.DataFlow(4, { [y] = case[1] }))
      local anchors = helper.run(session, { [x] = torch.tensor({ 1.0, 2, 3, 4 }) })
      assert.same(case[2], anchors[y]:tolist())
    end
  end)

  it("P4: stochastic rounding makes workers deterministic", function()
    local function noted(engineOptions)
      local opts = popart.SessionOptions()
      opts.enableStochasticRounding = true
      opts.engineOptions = engineOptions or opts.engineOptions
      local builder, o = adds()
      local s = popart.InferenceSession({ fnModel = builder:getModelProto(),
        dataFlow = popart.DataFlow(1, { o }), deviceInfo = helper.device(), userOptions = opts })
      s:prepareDevice()
      return table.concat(s:getReport().no_effect, "\n")
    end
    assert.matches("target%.deterministicWorkers': random numbers", noted())
    helper.refuses("popart_exception",
      "target%.deterministicWorkers': expected 'portable', true or false", noted,
      { ["target.deterministicWorkers"] = "some" })
  end)

  it("P5: a CPU device and a session of a file", function()
    local builder, o, a, b = adds()
    path = os.tmpname()
    builder:saveModelProto(path)
    local df = popart.DataFlow(1, { [o] = popart.AnchorReturnType("ALL") })
    local device = popart.DeviceManager():createCpuDevice()
    local s = popart.InferenceSession(path, { deviceInfo = device, dataFlow = df })
    s:prepareDevice()
    local anchors = helper.run(s, { [a] = torch.ones(1), [b] = torch.ones(1) })
    assert.same({ 2 }, anchors[o]:tolist())
  end)

  it("P6: devices at once, by id, and on demand", function()
    machine.begin()
    local ok, e = pcall(function()
      -- Acquire a two-IPU pair
      local dev <close> = popart.DeviceManager():acquireAvailableDevice(2)
      assert.same({ 2, true }, { dev.numIpus, dev.isAttached })
      -- Acquire IPU configuration 5
      local five <close> = popart.DeviceManager():acquireDeviceById(5)
      assert.same({ 5, true }, { five.id, five.isAttached })
      -- Acquire four IPUs on demand
      local connectionType = popart.DeviceConnectionType.OnDemand
      local four <close> = popart.DeviceManager():acquireAvailableDevice(4,
        { connectionType = connectionType })
      assert.same({ 4, false }, { four.numIpus, four.isAttached })
    end)
    machine.finish()
    assert(ok, e)
  end)

  it("P7: prepareDevice, run, modelToHost, resetHostWeights", function()
    path = os.tmpname()
    local builder, x, w, loss = trains()
    local function session()
      local s = helper.training(builder, popart.DataFlow(1, { loss }), loss,
        popart.ConstSGD(0.5), { prepare = false })
      s:prepareDevice()
      s:weightsFromHost()
      return s
    end
    local first = session()
    first:run(popart.PyStepIO({ [x] = torch.ones(1) }, first:initAnchorArrays()))
    first:modelToHost(path)
    local second = session()
    second:resetHostWeights(path)
    second:weightsFromHost()
    assert.equal(7.5, helper.weights(second, { w })[w]:item())
  end)

  it("P8: reports, where profiling is on and where it is not", function()
    local function session(fields)
      local builder, o, a, b = adds()
      local s = helper.inference(builder, popart.DataFlow(1, { o }), { options = fields })
      helper.run(s, { [a] = torch.ones(1), [b] = torch.ones(1) })
      return s
    end
    local opts = popart.SessionOptions()
    opts.engineOptions = { ["autoReport.all"] = "true",
      ["autoReport.directory"] = folder_of("reports") }
    opts.reportOptions = { showExecutionSteps = "true" }
    local on = session({ engineOptions = opts.engineOptions, reportOptions = opts.reportOptions })
    machine.finish()
    local text = on:getSummaryReport()
    assert.not_matches("Execution profiling not enabled", text)
    assert.matches("\nExecution steps:\n.*OnTileExecute .*add: %d+ cycles, 1 active tiles, "
      .. "tile balance 1.6%%", text)
    assert.not_matches("Variable storage", text)
    assert.is_true(on:getReport().cycles > 0)
    text = session({ reportOptions = { showVarStorage = "true" } }):getSummaryReport()
    assert.matches("Execution profiling not enabled", text)
    assert.not_matches("Execution steps:", text)
    assert.matches("\nVariable storage liveness:\n.*: 4 bytes, steps %d+ to %d+", text)
  end)

  it("P9 and P10: levels of modules, and the form of lines", function()
    local script = program.temporary([[
local popart = require("popart")
-- Set all modules to DEBUG level
popart.getLogger():setLevel("DEBUG")
-- Turn off logging for the session module
popart.getLogger("session"):setLevel("OFF")
local builder = popart.Builder()
builder:addOutputTensor(builder.aiOnnx:abs({ builder:addInputTensor("FLOAT", { 1 }) }))
local session = popart.InferenceSession(builder:getModelProto(),
  popart.DataFlow(1, builder:getOutputTensorIds()), popart.DeviceManager():createCpuDevice())
session:prepareDevice()
popart.logger.setLevel("popart", "OFF")
]])
    local _, err, code = program.run({ script })
    os.remove(script)
    assert.equal(0, code, err)
    local lines = 0
    for line in err:gmatch("[^\n]+") do
      lines = lines + 1
      -- [<timestamp>] [<module>] [<level>] <logging string>
      local module = line:match("^%[%d%d%d%d%-%d%d%-%d%d %d%d:%d%d:%d%d%.%d%d%d%] %[popart:(%l+)%] "
        .. "%[%l+%] .")
      assert.is_string(module, line)
      assert.not_equal("session", module)
    end
    assert.is_true(lines > 0)
  end)
end)
