-- The order of a session's calls, weights of the host and of files, reports.
local core = require("lupine.core")
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")

local function adds()
  local b = popart.Builder()
  local x, y = b:addInputTensor("FLOAT", { 2 }), b:addInputTensor("FLOAT", { 2 })
  local o = b.aiOnnx:add({ x, y })
  b:addOutputTensor(o)
  return b, x, y, o
end

local function scales(options)
  local b = popart.Builder()
  local x = b:addInputTensor("FLOAT", { 2 })
  local w = b:addInitializedInputTensor(torch.tensor({ 2.0, 3 }), "w")
  local o = b.aiOnnx:mul({ x, w })
  b:addOutputTensor(o)
  return helper.inference(b, popart.DataFlow(1, { o }), { options = options }), x, w, o, b
end

local function stream(session, inputs)
  return popart.PyStepIO(inputs, session:initAnchorArrays())
end

local function descend(optimizer, options, prepare)
  local b, ids = helper.layers(2, 3)
  local s = helper.training(b, popart.DataFlow(1, { [ids.loss] = ALL }), ids.loss,
    optimizer or popart.ConstSGD(0.1), { options = options, prepare = prepare })
  return s, ids, b
end

local path
before_each(function()
  path = os.tmpname()
end)
after_each(function()
  os.remove(path)
end)

describe("a session", function()
  it("C1: cannot run before prepareDevice", function()
    local b, x, y = adds()
    local s = helper.inference(b, popart.DataFlow(1, { b:getOutputTensorIds()[1] }),
      { prepare = false })
    local given = stream(s, { [x] = torch.ones(2), [y] = torch.ones(2) })
    helper.raises("popart_exception", "^Devicex::prepare%(%) must be called before", function()
      s:run(given)
    end)
  end)

  it("C2: does not train before weightsFromHost", function()
    local s, ids = descend(nil, nil, false)
    s:prepareDevice()
    local given = stream(s, { [ids.x] = torch.ones(3, 4) })
    helper.raises("popart_runtime_error", "^Must call weightsFromHost before run as the model has "
      .. "initializers", function()
      s:run(given)
    end)
    s:weightsFromHost()
    s:run(given)
  end)

  it("C3: infers without it, weights are constants", function()
    local s, x, _, o = scales()
    assert.same({ 2.0, 6.0 }, helper.run(s, { [x] = torch.tensor({ 1.0, 2 }) })[o]:tolist())
  end)

  it("C4: may be loaded later, which its first run does", function()
    local b, x, y, o = adds()
    local s = helper.inference(b, popart.DataFlow(1, { o }), { prepare = false })
    s:prepareDevice({ loadEngine = false })
    assert.same({ 3.0, 5.0 }, helper.run(s, { [x] = torch.tensor({ 1.0, 2 }),
      [y] = torch.tensor({ 2.0, 3 }) })[o]:tolist())
  end)

  it("C5: has no engine to load before prepareDevice", function()
    local b, _, _, o = adds()
    local s = helper.inference(b, popart.DataFlow(1, { o }), { prepare = false })
    helper.raises("popart_runtime_error", "no compiled engine", function()
      s:loadEngineAndConnectStreams()
    end)
  end)

  it("C7: has no model to write before prepareDevice", function()
    local s = descend(nil, nil, false)
    helper.raises("popart_exception", "^Devicex::prepare%(%) must be called before "
      .. "Devicex::weightsToHost", function()
      s:modelToHost(path)
    end)
  end)

  it("C8: is of a model, not of any string", function()
    helper.refuses("popart_exception", "^Failed to load a ModelProto from the string .*or is a "
      .. "valid onnx ModelProto string%.$", popart.InferenceSession, { fnModel = "\1\2nothing",
        dataFlow = popart.DataFlow(1, { "x" }), deviceInfo = helper.device() })
    helper.refuses("popart_exception", "^Failed to load a ModelProto from the file",
      popart.InferenceSession, { fnModel = "nothing.onnx",
        dataFlow = popart.DataFlow(1, { "x" }), deviceInfo = helper.device() })
  end)

  it("C9: takes another model's weights unless they are constants", function()
    local fixed, _, _, _, b = scales()
    helper.raises("popart_exception", "Cannot call resetHostWeights when constantWeights is set",
      function()
        fixed:resetHostWeights(b:getModelProto())
      end)
    local s, x, w, o = scales({ constantWeights = false })
    local other = popart.Builder()
    other:addInputTensor("FLOAT", { 2 })
    assert.equal(w, other:addInitializedInputTensor(torch.tensor({ 5.0, 7 }), "w"))
    s:resetHostWeights(other:getModelProto())
    s:weightsFromHost()
    assert.same({ 5.0, 14.0 }, helper.run(s, { [x] = torch.tensor({ 1.0, 2 }) })[o]:tolist())
  end)

  it("C10: refuses weights of another shape", function()
    local s = scales({ constantWeights = false })
    local other = popart.Builder()
    other:addInitializedInputTensor(torch.ones(3), "w")
    helper.raises("popart_runtime_error", "non matching tensor info", function()
      s:resetHostWeights(other:getModelProto())
    end)
  end)

  it("C11: refuses weights that it has not, unless told", function()
    local s = scales({ constantWeights = false })
    local other = popart.Builder()
    other:addInitializedInputTensor(torch.ones(3), "more")
    helper.raises("popart_runtime_error", "^resetWeights, no tensor 'more' in tensors", function()
      s:resetHostWeights(other:getModelProto())
    end)
    s:resetHostWeights(other:getModelProto(), true)
  end)

  it("a training session must get reset weights again", function()
    local s, ids, b = descend()
    s:resetHostWeights(b:getModelProto())
    helper.raises("popart_runtime_error", "^Must call weightsFromHost", function()
      helper.run(s, { [ids.x] = torch.ones(3, 4) })
    end)
  end)

  it("C12: writes no weights that are constants", function()
    local fixed = scales()
    helper.raises("popart_exception", "^Cannot call writeWeights when constantWeights is set. Set "
      .. "`constantWeights` to False in the `SessionOptions`", function()
      fixed:writeWeights(popart.PyWeightsIO({ w = torch.ones(2) }))
    end)
    local s, x, w, o = scales({ constantWeights = false })
    s:writeWeights(popart.PyWeightsIO({ [w] = torch.tensor({ 1.0, -1 }) }))
    s:weightsFromHost()
    assert.same({ 1.0, -2.0 }, helper.run(s, { [x] = torch.tensor({ 1.0, 2 }) })[o]:tolist())
  end)

  it("C13: its written model infers as its weights do", function()
    local s, ids = descend()
    local x = torch.randn(3, 4)
    for _ = 1, 3 do
      helper.run(s, { [ids.x] = x })
    end
    s:modelToHost(path)
    local weights, want = helper.weights(s, ids.weights), x
    for _, w in ipairs(ids.weights) do
      want = torch.relu(want:matmul(weights[w]))
    end
    local infers = popart.InferenceSession(path, popart.DataFlow(1, { ids.hidden[2] }),
      helper.device())
    infers:prepareDevice()
    local got = helper.run(infers, { [ids.x] = x })[ids.hidden[2]]
    assert.is_true(torch.allclose(want, got, { atol = 1e-6 }))
  end)

  it("C14: goes on from its written model as if it had not stopped", function()
    local optimizer = popart.SGD({ defaultLearningRate = { 0.1, false },
      defaultMomentum = { 0.9, false } })
    local s, ids = descend(optimizer)
    local data = torch.randn(6, 3, 4)
    local function step(session, i)
      return helper.run(session, { [ids.x] = data[i] })[ids.loss]:item()
    end
    for i = 0, 2 do
      step(s, i)
    end
    s:modelToHost(path)
    local again = helper.training(nil, popart.DataFlow(1, { [ids.loss] = ALL }), ids.loss,
      optimizer, { model = path })
    assert.equal(step(s, 3), step(again, 3))
    again:modelToHost(path) -- and again
    again = helper.training(nil, popart.DataFlow(1, { [ids.loss] = ALL }), ids.loss, optimizer,
      { model = path })
    for i = 4, 5 do
      assert.equal(step(s, i), step(again, i))
    end
    local a, b = helper.weights(s, ids.weights), helper.weights(again, ids.weights)
    for _, w in ipairs(ids.weights) do
      assert.is_true(torch.equal(a[w], b[w]))
    end
  end)

  it("C14b: writes what is too large for one file beside it", function()
    local s, ids = descend(popart.SGD({ defaultMomentum = { 0.9, false } }))
    helper.run(s, { [ids.x] = torch.randn({ 3, 4 }) })
    local fits, data = core.onnx_fits, path .. ".data"
    finally(function()
      core.onnx_fits = fits
      os.remove(data)
    end)
    function core.onnx_fits()
      return false -- in place of states of gigabytes
    end
    s:modelToHost(path)
    local large = require("lupine.onnx").read(path).graph.initializer
    assert.is_nil(large[1].data_location) -- 48 bytes stay in the model
    assert.equal("", require("spec.support.files").read(data))
    local b = popart.Builder()
    local w = b:addInitializedInputTensor(torch.randn({ 300 }), "w")
    local x = b:addInputTensor("FLOAT", { 300 })
    local loss = b.aiGraphcore:l1loss({ b.aiOnnx:mul({ x, w }) }, 0.1)
    local wide = helper.training(b, popart.DataFlow(1, { [loss] = ALL }), loss,
      popart.SGD({ defaultMomentum = { 0.9, false } }))
    helper.run(wide, { [x] = torch.ones({ 300 }) })
    wide:modelToHost(path)
    core.onnx_fits = fits
    local again = popart.Builder(path)
    local list = require("lupine.onnx").read(path).graph.initializer
    assert.equal(1, list[1].data_location)
    assert.equal(path:match("[^/]*$") .. ".data", list[1].external_data[1].value)
    assert.equal(again:getModelProto(), (wide:modelToHost(path) or popart.Builder(path))
      :getModelProto())
  end)

  it("C15: has no report before prepareDevice, or without an engine", function()
    local b, _, _, o = adds()
    for _, options in ipairs({ false, { compileEngine = false } }) do
      local s = helper.inference(b, popart.DataFlow(1, { o }), { prepare = options ~= false,
        options = options or nil })
      for _, method in ipairs({ "getSummaryReport", "getReport", "getSerializedGraph" }) do
        helper.raises("popart_exception",
          "Session must have been prepared before a report can be fetched$", function()
            s[method](s)
          end)
      end
    end
  end)

  it("C16: on a CPU has none", function()
    local b, _, _, o = adds()
    local s = helper.inference(b, popart.DataFlow(1, { o }),
      { device = popart.DeviceManager():createCpuDevice() })
    helper.raises("poplar_exception", "Profiling is disabled for current device type%.$",
      function()
        s:getSummaryReport()
      end)
  end)

  it("C17: says when its runs are not profiled", function()
    local b, _, _, o = adds()
    local s = helper.inference(b, popart.DataFlow(1, { o }))
    assert.matches("Execution profiling not enabled", s:getSummaryReport())
    local profiled = helper.inference(b, popart.DataFlow(1, { o }),
      { options = { engineOptions = { ["autoReport.all"] = "true",
        ["autoReport.directory"] = path .. ".d" } } })
    assert.not_matches("Execution profiling not enabled", profiled:getSummaryReport())
    assert.is_true(profiled:getReport().cycles > 0)
  end)

  it("C18: counts cycles of runs, if asked", function()
    local b, x, y, o = adds()
    local plain = helper.inference(b, popart.DataFlow(1, { o }))
    helper.raises("popart_runtime_error",
      "SessionOption 'instrumentWithHardwareCycleCounter' must be", function()
        plain:getCycleCount()
      end)
    local function cycles(batches)
      local s = helper.inference(b, popart.DataFlow(batches, { o }),
        { options = { instrumentWithHardwareCycleCounter = true } })
      helper.raises("popart_runtime_error", "Must call run before getCycleCount", function()
        s:getCycleCount()
      end)
      helper.run(s, { [x] = torch.ones(batches, 2), [y] = torch.ones(batches, 2) })
      helper.raises("popart_runtime_error", "hardwareInstrumentations correctly%.$", function()
        s:getCycleCount("inner")
      end)
      return s:getCycleCount()
    end
    local c = { cycles(100), cycles(200), cycles(300) }
    local ratio = (c[3] - c[2]) / (c[2] - c[1])
    assert.is_true(ratio > 0.85 and ratio < 1.15)
  end)

  it("C19: needs a device and a loss that is a scalar", function()
    local b, ids = helper.layers(1, 3)
    helper.refuses("popart_exception", "^Must pass a valid deviceInfo", popart.InferenceSession,
      b:getModelProto(), popart.DataFlow(1, { ids.loss }))
    helper.refuses("popart_exception", "must be a scalar", helper.training, b,
      popart.DataFlow(1), ids.hidden[1], popart.ConstSGD(0.1))
  end)

  it("C20: is prepared once", function()
    local s = scales()
    helper.raises("popart_exception", "prepared before", function()
      s:prepareDevice()
    end)
  end)

  it("C23: tells its progress from none to all", function()
    local told = {}
    local b, _, _, o = adds()
    helper.inference(b, popart.DataFlow(1, { o }), { options = {
      compilationProgressLogger = function(at, total)
        told[#told + 1] = at
        assert.equal(100, total)
      end } })
    assert.equal(0, told[1])
    assert.equal(100, told[#told])
    assert.is_true(told[2] > 0 and told[2] < 100) -- and how far it is between
    for i = 2, #told do
      assert.is_true(told[i] >= told[i - 1])
    end
  end)

  it("has checksums of what it trains, alike where the training was", function()
    local s, ids = descend()
    local other = descend()
    local first, x = s:checksums(), torch.randn(3, 4)
    assert.same(first, other:checksums())
    for _ = 1, 2 do
      helper.run(s, { [ids.x] = x })
    end
    assert.not_same(first, s:checksums())
    for _ = 1, 2 do
      helper.run(other, { [ids.x] = x })
    end
    assert.same(s:checksums(), other:checksums())
    assert.truthy(s:checksums()[ids.weights[1]]:find("^%x+$"))
    s:optimizerFromHost()
    assert.same(s:checksums(), other:checksums())
  end)

  it("checks arguments that change nothing, too", function()
    local b, x, y, o = adds()
    local s = helper.inference(b, popart.DataFlow(1, { o }), { prepare = false })
    helper.refuses("TypeError", "prepareDevice: loadEngine: expected bool, got string",
      s.prepareDevice, s, "no")
    s:prepareDevice()
    local io = popart.PyStepIO({ [x] = torch.ones(2), [y] = torch.ones(2) }, s:initAnchorArrays())
    helper.refuses("TypeError", "run: debugName: expected string, got int", s.run, s, io, 3)
    s:run(io, "step")
    helper.refuses("TypeError", "InferenceSession: name: expected string, got int",
      popart.InferenceSession, { fnModel = b:getModelProto(), deviceInfo = helper.device(),
        dataFlow = popart.DataFlow(1, { o }), name = 3 })
  end)

  it("has no inputs or outputs named as PopART's own tensors", function()
    for _, name in ipairs({ "Gradient___x", "a/Accl1___w", "learningRate___default___FLOAT" }) do
      local b = popart.Builder()
      local o = b.aiOnnx:abs({ b:addInputTensor("FLOAT", { 2 }, name) })
      helper.refuses("popart_exception", "^Provided tensor .* has an invalid name: clash with "
        .. "reserved prefix", helper.inference, b, popart.DataFlow(1, { o }))
    end
    local b = popart.Builder()
    local w = b:addInitializedInputTensor(torch.ones(2), "Step___w") -- as of a written model
    local o = b.aiOnnx:abs({ w })
    assert.same({ 1, 1 }, helper.run(helper.inference(b, popart.DataFlow(1, { o })), {})[o]
      :tolist())
  end)

  it("names a weight whose tensor does not fit", function()
    local s, _, w = scales({ constantWeights = false })
    s:weightsToHost()
    for _, method in ipairs({ "readWeights", "writeWeights" }) do
      helper.refuses("popart_runtime_error", method .. ": weight 'w': the tensor has the shape",
        s[method], s, popart.PyWeightsIO({ [w] = torch.ones(3) }))
      helper.refuses("popart_runtime_error", method .. ": Type discrepancy for tensor w%. User "
        .. "provided : INT32 and expected : FLOAT", s[method], s,
        popart.PyWeightsIO({ [w] = torch.ones(2, { dtype = torch.int32 }) }))
    end
  end)

  it("is of a builder's bytes, whose data may be in a file", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 1, 2 })
    local w = b:addInitializedInputTensor(torch.tensor({ { 1.0, 2 }, { 3, 4 } }))
    local y = b.aiOnnx:matmul({ x, w })
    b:addOutputTensor(y)
    b:saveInitializersExternally({ w }, path)
    local s = helper.inference(b, popart.DataFlow(1, { y }))
    assert.same({ { 4.0, 6 } }, helper.run(s, { [x] = torch.ones(1, 2) })[y]:tolist())
  end)

  it("says what stands in place of methods that it lacks", function()
    local s = scales()
    for _, name in ipairs({ "runWithHandle", "fromIr", "setDeviceInfo", "connectStream" }) do
      helper.refuses("popart_exception", "is not supported: ", s[name], s)
    end
    helper.raises("popart_exception", "not available for an inference session", function()
      s:optimizerFromHost()
    end)
  end)

  it("knows the types of its tensors, and no others", function()
    local s, x, w, o = scales()
    assert.equal(popart.TensorInfo("FLOAT", { 2 }), s:getInfo(o))
    assert.is_true(s:hasInfo(x) and s:hasInfo(w))
    assert.is_false(s:hasInfo("nothing") or s:hasInfo("input/" .. x))
    helper.raises("popart_exception", "no tensor 'nothing'", function()
      s:getInfo("nothing")
    end)
    assert.same({ 1, 1 }, { s.replicationFactor, s.accumulationFactor })
    assert.equal(1, s.dataFlow:batchesPerStep())
  end)
end)

describe("an executable", function()
  it("runs in another session of the model as in its own", function()
    local offline = popart.DeviceManager():createOfflineIPUDevice({ numIPUs = 1 })
    local function make(device)
      local b, ids = helper.layers(2, 3)
      return popart.TrainingSession({ fnModel = b:getModelProto(),
        dataFlow = popart.DataFlow(1, { ids.loss }), loss = ids.loss, deviceInfo = device,
        optimizer = popart.SGD({ defaultLearningRate = { 0.1, false },
          defaultMomentum = { 0.9, true } }) }), ids
    end
    make(offline):compileAndExport(path)
    local s, ids = make(helper.device())
    s:loadExecutableFromFile(path)
    local own = make(helper.device())
    local x = torch.randn(3, 4)
    for _, session in ipairs({ s, own }) do
      session:prepareDevice()
      session:weightsFromHost()
    end
    for _ = 1, 3 do
      assert.equal(helper.run(own, { [ids.x] = x })[ids.loss]:item(),
        helper.run(s, { [ids.x] = x })[ids.loss]:item())
    end
  end)

  it("has its variables in a file of their own where that is asked for", function()
    local offline = popart.DeviceManager():createOfflineIPUDevice({ numIPUs = 1 })
    local b, ids = helper.layers(1, 2)
    local s = popart.TrainingSession({ fnModel = b:getModelProto(), loss = ids.loss,
      dataFlow = popart.DataFlow(1, { ids.loss }), deviceInfo = offline,
      optimizer = popart.SGD({ defaultMomentum = { 0.9, true } }) })
    helper.refuses("popart_exception", "^There is no executable", s.saveVariables, s, path)
    s:prepareDevice(false)
    s:saveVariables(path)
    local names, tensors = core.read_executable(path)
    local state, weight = "state/Accl___" .. ids.weights[1], "variable/" .. ids.weights[1]
    assert.same({ state, weight }, names)
    assert.same({ 4, 4 }, { table.unpack(tensors[2].shape) })
    assert.same({ 0 }, { tensors[1]:abs():max():item() })
    assert.is_true(tensors[2]:abs():max():item() > 0)
  end)

  it("is not saved for a device that there is no compiling for", function()
    local s = scales()
    helper.raises("popart_exception", "^Executables for device type ipu%-model cannot be saved",
      function()
        s:saveExecutable(path)
      end)
  end)

  it("is refused by a session of another kind, damaged, or none", function()
    local offline = popart.DeviceManager():createOfflineIPUDevice({ numIPUs = 1 })
    local b, _, _, o = adds()
    popart.InferenceSession(b:getModelProto(), popart.DataFlow(1, { o }), offline)
      :compileAndExport(path)
    local s, _ = descend(nil, nil, false)
    helper.raises("popart_exception", "of another session", function()
      s:loadExecutableFromFile(path)
    end)
    local function scaled(batches, options)
      local one, _, _, y = adds()
      return popart.InferenceSession({ fnModel = one:getModelProto(),
        dataFlow = popart.DataFlow(batches, { y }), userOptions = helper.options(options),
        deviceInfo = popart.DeviceManager():createOfflineIPUDevice({ numIPUs = 2 }) })
    end
    scaled(2):compileAndExport(path)
    for _, other in ipairs({ scaled(1), scaled(2, helper.loops(1, 2)) }) do
      other:loadExecutableFromFile(path)
      helper.refuses("popart_exception", "runs 2 batches of 1 micro%-batches on 1 replicas",
        other.prepareDevice, other, false)
    end
    local file = assert(io.open(path, "w"))
    file:write("nothing")
    file:close()
    helper.raises("popart_exception", path, function()
      s:loadExecutableFromFile(path)
    end)
  end)

  it("is refused by a session that would compute or return something else", function()
    local offline = popart.DeviceManager():createOfflineIPUDevice({ numIPUs = 1 })
    -- changes: operator, constant, weight, art, options of the session
    local function make(changes)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT", { 2 })
      local w = b:addInitializedInputTensor(torch.full({ 2 }, changes.weight or 1.0))
      local k = b.aiOnnx:constant(torch.full({ 2 }, changes.constant or 3.0))
      local y = b.aiOnnx:add({ b.aiOnnx[changes.operator or "mul"](b.aiOnnx, { x, w }, "y"), k })
      local loss = b.aiGraphcore:l1loss({ y }, 1.0)
      return popart.TrainingSession({ fnModel = b:getModelProto(), loss = loss,
        dataFlow = popart.DataFlow(2, { [loss] = popart.AnchorReturnType(changes.art or "All") }),
        optimizer = popart.ConstSGD(0.1), deviceInfo = changes.device or offline,
        userOptions = helper.options(changes.options) })
    end
    make({}):compileAndExport(path)
    local Mean = popart.ReductionType.Mean
    local state = popart.TensorLocationSettings(popart.TensorStorage.OffChip)
    for said, changes in pairs({ ["its anchors is"] = { art = "Final" },
      ["its model's program is"] = { operator = "sub" }, ["its model's"] = { constant = 2.0 },
      ["its enableStochasticRounding is"] = { options = { enableStochasticRounding = true } },
      ["its reduction is 'Sum, Post', this one's is 'Mean, Post'"] = { options = {
        accumulationAndReplicationReductionType = Mean } } }) do
      local other = make(changes)
      helper.raises("popart_exception", said, function()
        other:loadExecutableFromFile(path)
      end)
    end
    local other = make({ options = { weightTensorLocationSettings = state } })
    other:loadExecutableFromFile(path)
    helper.refuses("popart_exception", "compiled with other options: its weight is",
      other.prepareDevice, other, false)
    -- chips and weights may be others
    local same = make({ weight = 5.0, device = helper.device() })
    same:loadExecutableFromFile(path)
    same:prepareDevice()
  end)
end)
