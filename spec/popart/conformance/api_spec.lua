-- What else a session has: streams of several kinds, the graph as JSON, files of weights,
-- custom operators, and wrong use of all of it.
local files = require("spec.support.files")
local core = require("lupine.core")
local custom_ops = require("spec.support.custom_ops")
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")

local function trainer(given)
  given = given or {}
  local b, ids = helper.layers(2, 3)
  local s = helper.training(b, given.flow or popart.DataFlow(1, { [ids.loss] = ALL }), ids.loss,
    given.optimizer or popart.ConstSGD(0.1), given)
  return s, ids, b
end

local function adds(batches, options, type)
  local b = popart.Builder()
  local x, y = b:addInputTensor(type or "FLOAT", { 2 }), b:addInputTensor(type or "FLOAT", { 2 })
  local o = b.aiOnnx:add({ x, y })
  return helper.inference(b, popart.DataFlow(batches or 1, { [o] = ALL }), { options = options }),
    x, y, o
end

describe("streams of a session", function()
  it("B1, B3, B4: have the size that the program reads, on the first run", function()
    local s, x, y, o = adds(2)
    local four = torch.ones(4)
    helper.raises("popart_runtime_error", "Unexpected number of input elements for Tensor "
      .. x .. "%. Expected 4, but received 5", function()
        s:run(popart.PyStepIO({ [x] = torch.ones(5), [y] = four }, s:initAnchorArrays()))
      end)
    helper.raises("popart_runtime_error", "Unexpected number of output elements for Tensor Add:0",
      function()
        s:run(popart.PyStepIO({ [x] = four, [y] = four }, { [o] = torch.zeros(3) }))
      end)
    local io = popart.PyStepIO({ [x] = torch.ones(8), [y] = torch.ones(8) },
      { [o] = torch.zeros(8) })
    io:enableRuntimeAsserts(false)
    s:run(io)
    s:run(io) -- goes on in the same tensors
  end)

  it("B5, B12: are all given, and are inputs", function()
    local s, x, y, o = adds()
    local two = torch.ones(2)
    helper.raises("popart_runtime_error", "No tensor " .. y .. " provided in PyStepIO's inputs",
      function()
        s:run(popart.PyStepIO({ [x] = two }, { [o] = torch.zeros(2) }))
      end)
    helper.raises("popart_runtime_error", "not registered as one of the inputs", function()
      s:run(popart.PyStepIO({ [x] = two, [y] = two, [o] = two }, { [o] = torch.zeros(2) }))
    end)
  end)

  it("are found out not to fit before the run changes a weight", function()
    local b, ids = helper.layers(1, 2)
    local s = helper.training(b, popart.DataFlow(1, { ids.loss }), ids.loss, popart.ConstSGD(0.1))
    local before = helper.weights(s, ids.weights)[ids.weights[1]]
    local inputs = { [ids.x] = torch.ones(2, 4) }
    helper.refuses("popart_runtime_error", "^No tensor .* provided in PyStepIO's outputs", s.run, s,
      popart.PyStepIO(inputs, {}))
    helper.refuses("popart_runtime_error", "^Type discrepancy for tensor", s.run, s,
      popart.PyStepIO(inputs, { [ids.loss] = torch.zeros(1, { dtype = torch.float64 }) }))
    assert.is_true(torch.equal(before, helper.weights(s, ids.weights)[ids.weights[1]]))
    helper.run(s, inputs)
    assert.is_false(torch.equal(before, helper.weights(s, ids.weights)[ids.weights[1]]))
  end)

  it("B8: are functions, called in order for each micro-batch", function()
    local s, x, y, o = adds(2)
    local calls = {}
    local data = { [x] = { { 1.0, 2 }, { 3.0, 4 } }, [y] = { { 10.0, 20 }, { 30.0, 40 } } }
    local at, results = { [x] = 0, [y] = 0 }, {}
    s:run(popart.PyStepIOCallback(function(id)
      at[id] = at[id] + 1
      calls[#calls + 1] = "in " .. id
      return torch.tensor(data[id][at[id]])
    end, function(id)
      calls[#calls + 1] = "read " .. id
    end, function(id)
      calls[#calls + 1] = "out " .. id
      results[#results + 1] = torch.zeros(2)
      return results[#results]
    end, function(id)
      calls[#calls + 1] = "written " .. id
    end))
    assert.same({ 11.0, 22 }, results[1]:tolist())
    assert.same({ 33.0, 44 }, results[2]:tolist())
    local batch = ("in %s read %s in %s read %s"):format(x, x, y, y)
    assert.equal(table.concat({ batch, batch, "out " .. o, "written " .. o, "out " .. o,
      "written " .. o }, " "), table.concat(calls, " "))
  end)

  -- each replica's batches come in the order of the script's, one replica after the other
  it("B10: are asked for the batches of replica 0 before those of replica 1", function()
    local b, x, y = helper.identity({ 2 })
    local s = helper.inference(b, popart.DataFlow(2, { y }), { device = helper.device(2),
      options = helper.loops(1, 2) })
    local calls, given, results = {}, 0, {}
    s:run(popart.PyStepIOCallback(function()
      given = given + 1
      calls[#calls + 1] = "in"
      return torch.tensor({ given * 10.0, given * 10.0 + 1 })
    end, function()
      calls[#calls + 1] = "read"
    end, function()
      results[#results + 1] = torch.zeros(2)
      return results[#results]
    end, function() end))
    assert.equal(("in read "):rep(4), table.concat(calls, " ") .. " ")
    local got = {}
    for i, t in ipairs(results) do
      got[i] = t:tolist()
    end
    assert.same({ { 10.0, 11 }, { 20.0, 21 }, { 30.0, 31 }, { 40.0, 41 } }, got)
    local whole = helper.run(s, { [x] = torch.arange(8):float():reshape(2, 2, 2) })
    assert.same({ { { 0.0, 1 }, { 2.0, 3 } }, { { 4.0, 5 }, { 6.0, 7 } } }, whole[y]:tolist())
  end)

  it("B11: are of the tensor's type, or of int64 for int32", function()
    local s, x, y, o = adds(1, nil, "INT32")
    local got = helper.run(s, { [x] = torch.tensor({ 1, 2 }), [y] = torch.tensor({ 3, 4 }):int() })
    assert.same({ 4, 6 }, got[o]:tolist())
    helper.raises("popart_runtime_error", "^Type discrepancy for tensor " .. x, function()
      helper.run(s, { [x] = torch.ones(2), [y] = torch.ones(2):int() })
    end)
  end)

  it("B16: give the results of each run to its own tensors", function()
    local s, x, y, o = adds()
    local first = helper.run(s, { [x] = torch.ones(2), [y] = torch.ones(2) })
    local second = helper.run(s, { [x] = torch.ones(2), [y] = torch.zeros(2) })
    assert.same({ 2.0, 2 }, first[o]:tolist())
    assert.same({ 1.0, 1 }, second[o]:tolist())
  end)

  it("take what raises in a function as the run's error, and run again", function()
    local s, x, y, o = adds()
    local function nothing() end
    local io = popart.PyStepIOCallback(function()
      error("no data left")
    end, nothing, nothing, nothing)
    local ok, e = pcall(s.run, s, io)
    assert.is_false(ok)
    assert.matches("no data left", tostring(e))
    assert.same({ 2.0, 2 }, helper.run(s, { [x] = torch.ones(2), [y] = torch.ones(2) })[o]:tolist())
  end)
end)

describe("an abort", function()
  local function aborts(value)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 1 })
    b.aiGraphcore:abort(value and { x } or {})
    local y = b.aiOnnx:identity({ x })
    local s = helper.inference(b, popart.DataFlow(1, { y }))
    return pcall(helper.run, s, { [x] = torch.tensor({ value or 0.0 }) })
  end

  it("C26: ends a run without a condition, or with one that is not 0", function()
    assert.is_true(aborts(0.0))
    for _, value in ipairs({ 1.0, false }) do
      local ok, e = aborts(value)
      assert.is_false(ok)
      assert.is_true(popart.poplar_runtime_error:is(e))
    end
  end)
end)

describe("the graph", function()
  it("is told as JSON", function()
    local s, ids = trainer()
    local ir = core.json_decode(s:serializeIr(popart.IrSerializationFormat.JSON))
    local first = ir.maingraph[1]
    assert.equal("MatMul", first.type)
    assert.equal("ai.onnx", first.domain)
    assert.equal(ids.x, first.inputs[1].name)
    assert.same({ 3, 4 }, { first.inputs[1].shape[1], first.inputs[1].shape[2] })
    assert.equal("float32", first.inputs[1].type)
    assert.equal(ids.weights[1], first.inputs[2].name)
    assert.equal("MatMul:0", first.outputs[1].name)
    assert.equal(s:_serializeIr(popart.IrSerializationFormat.JSON),
      s:serializeIr(popart.IrSerializationFormat.JSON))
    helper.raises("TypeError", "format", function()
      s:serializeIr("XML")
    end)
  end)

  -- explicitrecomputation.py reads this attribute
  it("tells whether the results of operators are computed again", function()
    local Type = popart.RecomputeType
    local function types(annotated, options)
      local b = popart.Builder()
      local h = b:addInputTensor("FLOAT", { 2 })
      local w = b:addInitializedInputTensor(torch.ones(2))
      for _, type in ipairs({ Type.Recompute, Type.Checkpoint, Type.Undefined }) do
        h = b.aiOnnx:mul({ h, w })
        if annotated then
          b:recomputeOutput(h, type)
        end
      end
      local s = helper.training(b, popart.DataFlow(1), b.aiGraphcore:identityloss({ h }),
        popart.ConstSGD(0.1), { options = options, prepare = false })
      local out = {}
      for i, op in ipairs(core.json_decode(s:serializeIr(popart.IrSerializationFormat.JSON))
        .maingraph) do
        out[i] = op.attributes.recomputetype
      end
      return out
    end
    assert.same({ "Undefined", "Undefined", "Undefined", "Undefined" }, types(false))
    assert.same({ "Recompute", "Checkpoint", "Checkpoint", "Checkpoint" }, types(true))
    assert.same({ "Recompute", "Recompute", "Recompute", "Recompute" },
      types(false, { autoRecomputation = popart.RecomputationType.RecomputeAll }))
  end)

  it("has its tensors' names and no ambiguous writes", function()
    local s, ids = trainer()
    local names = s:getTensorIds()
    local set = {}
    for _, id in ipairs(names) do
      set[id] = true
    end
    assert.is_true(set[ids.x] and set[ids.loss] and set[ids.weights[1]])
    assert.same(names, s:getAllTensorIds())
    assert.is_false(s:checkInplacingAmbiguity())
  end)
end)

describe("an engine", function()
  it("is loaded again where it counts as not loaded", function()
    local s, ids = trainer()
    s:setEngineIsLoaded(false)
    helper.run(s, { [ids.x] = torch.ones(3, 4) })
    s:loadEngineAndConnectStreams()
    s:updateEngineCache()
    s:broadcastWeights()
    helper.raises("TypeError", "isLoaded", function()
      s:setEngineIsLoaded("no")
    end)
  end)

  it("has cycles of each IPU where they are asked for", function()
    local function session(list)
      local s, ids = trainer({ options = { instrumentWithHardwareCycleCounter = true,
        hardwareInstrumentations = list } })
      helper.run(s, { [ids.x] = torch.ones(3, 4) })
      return s
    end
    local I = popart.Instrumentation
    local both = session({ I.Outer, I.Inner })
    assert.is_true(both:getCycleCount("inner_ipu_0") > 0)
    assert.is_true(both:getCycleCount("inner_ipu_0") < both:getCycleCount())
    for _, case in ipairs({ { { I.Outer }, "inner_ipu_0" }, { { I.Inner }, "" },
      { { I.Inner }, "inner_ipu_1" } }) do
      local s = session(case[1])
      helper.raises("popart_runtime_error", "hardwareInstrumentations correctly%.$", function()
        s:getCycleCount(case[2])
      end)
    end
  end)

  it("has no streams, functions or buffers of a script", function()
    local s = trainer()
    for _, method in ipairs({ "connectStream", "connectStreamToCallback", "connectHostFunction",
      "copyFromRemoteBuffer", "copyToRemoteBuffer" }) do
      helper.raises("popart_exception", "^Session:" .. method .. " is not supported: ", function()
        s[method](s, "handle", function() end)
      end)
    end
  end)
end)

describe("buffers", function()
  it("go to the device by name", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2 })
    local v = b:addInitializedInputTensor(torch.tensor({ 1.0, 1 }), "v")
    local w = b:addInitializedInputTensor(torch.tensor({ 2.0, 2 }), "w")
    local y = b.aiOnnx:mul({ b.aiOnnx:mul({ x, v }), w })
    local s = helper.inference(b, popart.DataFlow(1, { y }), { options = { constantWeights = false,
      updatableNamedBuffers = { "w" } } })
    s:weightsFromHost()
    s:writeWeights(popart.PyWeightsIO({ [v] = torch.tensor({ 10.0, 10 }),
      [w] = torch.tensor({ 3.0, 3 }) }))
    s:buffersFromHost()
    assert.same({ 3.0, 3 }, helper.run(s, { [x] = torch.ones(2) })[y]:tolist())
    s:weightsFromHost()
    assert.same({ 30.0, 30 }, helper.run(s, { [x] = torch.ones(2) })[y]:tolist())
  end)
end)

describe("weights in a file of their own", function()
  it("have it named, and may be in another from now on", function()
    local folder = files.unused()
    core.make_folder(folder)
    local b, ids = helper.layers(2, 3)
    local from, to = folder .. "/weights.bin", folder .. "/moved.bin"
    b:saveInitializersExternally({ ids.weights[1] }, from)
    b:saveModelProto(folder .. "/model.onnx")
    local s = popart.TrainingSession({ fnModel = folder .. "/model.onnx", loss = ids.loss,
      dataFlow = popart.DataFlow(1), optimizer = popart.ConstSGD(0.1),
      deviceInfo = helper.device() })
    helper.raises("popart_runtime_error", "'.*model.onnx' already exists", function()
      s:updateExternallySavedTensorLocations(from, folder .. "/model.onnx")
    end)
    helper.raises("popart_runtime_error", "'.*none.bin' does not exist", function()
      s:updateExternallySavedTensorLocations(folder .. "/none.bin", to)
    end)
    helper.raises("popart_runtime_error", "No ONNX model initializers have external location set",
      function()
        s:updateExternallySavedTensorLocations(folder .. "/model.onnx", to)
      end)
    -- a run changes the file beside the model; a copy is another one
    local function weight(path)
      return require("lupine.onnx").load(path):state_dict()[ids.weights[1]]
    end
    local path, first = folder .. "/model.onnx", weight(folder .. "/model.onnx"):clone()
    s:prepareDevice()
    s:weightsFromHost()
    torch.manual_seed(6)
    local x = torch.randn(3, 4)
    s:run(popart.PyStepIO({ [ids.x] = x }, {}))
    s:modelToHost(path)
    local trained = weight(path):clone()
    assert.is_false(torch.equal(first, trained))
    assert.is_true(torch.equal(trained, helper.weights(s, ids.weights)[ids.weights[1]]))
    s:updateExternallySavedTensorLocations(from, to)
    s:run(popart.PyStepIO({ [ids.x] = x }, {}))
    s:modelToHost(folder .. "/next.onnx")
    assert.is_true(torch.equal(trained, weight(path)))
    assert.is_false(torch.equal(trained, weight(folder .. "/next.onnx")))
    files.remove(folder)
  end)

  it("are not replaced there by those of a second call", function()
    local path, b = os.tmpname(), popart.Builder()
    local first, second = b:addInitializedInputTensor(torch.ones(2)),
      b:addInitializedInputTensor(torch.ones(2))
    b:saveInitializersExternally({ first }, path)
    helper.refuses("popart_exception", "the data of tensor 'init_input' is in the file .* already",
      b.saveInitializersExternally, b, { second }, path)
    helper.refuses("popart_exception", "already has an external data_location",
      b.saveInitializersExternally, b, { first }, path)
    os.remove(path)
  end)

  it("keep their places in it, which the model that was read and others may share", function()
    local folder = os.tmpname()
    os.remove(folder)
    core.make_folder(folder .. "/other")
    local onnx = require("lupine.onnx")
    local b, ids = helper.layers(2, 3)
    local spare = b:addInitializedInputTensor(torch.arange(5):float())
    onnx.write(onnx.read(b:getModelProto()), folder .. "/first.onnx",
      { external = "weights.bin", threshold = 0 })
    local shared <close> = assert(io.open(folder .. "/weights.bin", "ab"))
    shared:write("of another model")
    shared:flush()
    local s = popart.TrainingSession({ fnModel = folder .. "/first.onnx", loss = ids.loss,
      dataFlow = popart.DataFlow(1), optimizer = popart.ConstSGD(0.1),
      deviceInfo = helper.device() })
    s:prepareDevice()
    s:weightsFromHost()
    s:run(popart.PyStepIO({ [ids.x] = torch.ones(3, 4) }, {}))
    s:modelToHost(folder .. "/second.onnx")
    s:modelToHost(folder .. "/other/third.onnx")
    local want = helper.weights(s, ids.weights)
    want[spare] = torch.arange(5):float()
    for _, name in ipairs({ "/first.onnx", "/second.onnx", "/other/third.onnx" }) do
      local path = folder .. name
      for _, t in ipairs(onnx.read(path).graph.initializer) do
        local value = require("lupine.onnx.tensors").read(t, path:match("^(.*)/"))
        assert.is_true(torch.equal(want[t.name], value), name .. " " .. t.name)
      end
    end
    for _, name in ipairs({ "/weights.bin", "/other/weights.bin" }) do
      local file <close> = assert(io.open(folder .. name, "rb"))
      assert.matches("of another model$", file:read("a"))
    end
    os.execute("rm -r " .. folder)
  end)

  it("that others have, too, are in the model once they differ", function()
    local folder, onnx = files.unused(), require("lupine.onnx")
    core.make_folder(folder)
    local b, ids = helper.layers(2, 3)
    b:saveInitializersExternally({ ids.weights[1] }, folder .. "/weights.bin")
    b:saveModelProto(folder .. "/model.onnx")
    local model, data = onnx.read(folder .. "/model.onnx"), files.read(folder .. "/weights.bin")
    local one, two = table.unpack(model.graph.initializer)
    assert.same(one.dims, two.dims)
    for _, entry in ipairs(one.external_data) do
      entry.value = entry.key == "offset" and "8" or entry.value
    end
    two.raw_data, two.data_location, two.external_data = nil, 1, one.external_data
    files.write(folder .. "/weights.bin", "in front" .. data .. "behind")
    onnx.write(model, folder .. "/tied.onnx")
    local s = popart.TrainingSession({ fnModel = folder .. "/tied.onnx", loss = ids.loss,
      dataFlow = popart.DataFlow(1), optimizer = popart.ConstSGD(0.1),
      deviceInfo = helper.device() })
    s:prepareDevice()
    s:weightsFromHost()
    s:run(popart.PyStepIO({ [ids.x] = torch.ones(3, 4) }, {}))
    s:modelToHost(folder .. "/tied.onnx")
    local kept = files.read(folder .. "/weights.bin")
    assert.same({ "in front", "behind", #data + 14 }, { kept:sub(1, 8), kept:sub(-6), #kept })
    local got, want = onnx.load(folder .. "/tied.onnx"):state_dict(), helper.weights(s, ids.weights)
    for _, w in ipairs(ids.weights) do
      assert.is_true(torch.equal(want[w], got[w]), w)
    end
    assert.is_false(torch.equal(want[ids.weights[1]], want[ids.weights[2]]))
    files.remove(folder)
  end)
end)

describe("a custom operator", function()
  it("of a library runs in a session, with its gradient", function()
    custom_ops.load("leaky_relu")
    local b = popart.Builder()
    local x, w = b:addInputTensor("FLOAT", { 4 }), b:addInitializedInputTensor(torch.ones(4))
    local h = b.aiOnnx:mul({ x, w })
    local y = b:customOp("LeakyRelu", 1, "com.acme", { h }, { alpha = 0.25 })[1]
    local loss = b.aiOnnx:reducesum({ y })
    local g = "Gradient___" .. w
    local s = helper.training(b, popart.DataFlow(1, { y, g }), loss, popart.ConstSGD(0.1))
    local got = helper.run(s, { [x] = torch.tensor({ -4.0, -1, 1, 4 }) })
    assert.same({ -1.0, -0.25, 1, 4 }, got[y]:tolist())
    assert.same({ -1.0, -0.25, 1, 4 }, got[g]:tolist())
  end)

  it("that no library has is refused", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4 })
    helper.refuses("popart_exception", "no library has an operator Nothing of version 1",
      b.customOp, b, "Nothing", 1, "com.acme", { x }, {})
  end)
end)

describe("wrong use", function()
  local cases = {
    { "TypeError", "stepio: expected popart.PyStepIO, got nil", "run" },
    { "TypeError", "stepio: expected popart.PyStepIO, got int 5", "run", 5 },
    { "TypeError", "weightsIo: expected popart.PyWeightsIO", "readWeights", {} },
    { "TypeError", "weightsIo: expected popart.PyWeightsIO", "writeWeights" },
    { "TypeError", "modelProtoOrFilename: expected", "resetHostWeights" },
    { "popart_exception", "Failed to load a ModelProto", "resetHostWeights", "nothing.onnx" },
    { "TypeError", "filename: expected string", "modelToHost", 5 },
    { "OSError", "No such file or directory", "modelToHost", "/nonexistent/folder/a.onnx" },
    { "TypeError", "expected popart.Optimizer", "updateOptimizerFromHost", 5 },
    { "TypeError", "id: expected string", "getInfo", 5 },
    { "popart_exception", "no tensor 'los' in the program", "getInfo", "los" },
    { "TypeError", "id: expected string", "hasInfo" },
    { "popart_exception", "prepared before; make a new session", "prepareDevice" },
    { "popart_exception", "prepared before", "loadExecutableFromFile", "x" },
    { "popart_exception", "Executables for device type ipu%-model cannot be saved",
      "saveExecutable", "x" },
  }

  it("of a session is told, and it goes on", function()
    local s, ids = trainer()
    for _, case in ipairs(cases) do
      helper.raises(case[1], case[2], function()
        s[case[3]](s, case[4])
      end)
    end
    helper.raises("AttributeError", "TrainingSession has no attribute 'nothing'", function()
      return s.nothing
    end)
    assert.is_true(helper.run(s, { [ids.x] = torch.ones(3, 4) })[ids.loss]:item() >= 0)
  end)

  it("of its maker is told", function()
    local b, ids = helper.layers(1, 3)
    local function make(fields)
      local all = { fnModel = b:getModelProto(), dataFlow = popart.DataFlow(1), loss = ids.loss,
        optimizer = popart.ConstSGD(0.1), deviceInfo = helper.device() }
      for k, v in pairs(fields) do
        all[k] = v ~= "nil" and v or nil
      end
      return popart.TrainingSession(all)
    end
    for _, case in ipairs({ { "TypeError", "optimizer is missing", { optimizer = "nil" } },
      { "TypeError", "loss: expected a tensor's id", { loss = 5 } },
      { "popart_exception", "Could not find the loss tensor 'los'", { loss = "los" } },
      { "TypeError", "fnModel: expected", { fnModel = 5 } },
      { "TypeError", "dataFlow: expected popart.DataFlow", { dataFlow = "nil" } },
      { "popart_exception", "Must pass a valid deviceInfo", { deviceInfo = "nil" } },
      { "TypeError", "deviceInfo: expected popart.DeviceInfo", { deviceInfo = "cpu" } },
      { "popart_exception", "greater than zero, got 0", { dataFlow = popart.DataFlow(0) } },
      { "TypeError", "userOptions: expected popart.SessionOptions", { userOptions = {} } } }) do
      helper.refuses(case[1], case[2], make, case[3])
    end
  end)

  it("of sizes beyond all memory is an error, not an end", function()
    local s = trainer({ flow = popart.DataFlow(1 << 40) })
    helper.raises("popart_runtime_error", "batches per step    = 1099511627776", function()
      s:run(popart.PyStepIO({ input = torch.zeros(3, 4) }, {}))
    end)
    helper.refuses("popart_exception", "too many bytes", trainer,
      { flow = popart.DataFlow(1 << 62) })
  end)

  it("of data that are no numbers gives no numbers, and trains on after a reset", function()
    local s, ids, b = trainer()
    local nan = torch.full({ 3, 4 }, 0 / 0)
    assert.is_true(helper.run(s, { [ids.x] = nan })[ids.loss]:isnan():item())
    s:resetHostWeights(b:getModelProto())
    s:weightsFromHost()
    assert.is_false(helper.run(s, { [ids.x] = torch.ones(3, 4) })[ids.loss]:isnan():item())
  end)

  it("of dropped sessions leaves nothing behind", function()
    local device <close> = popart.DeviceManager():createIpuModelDevice({})
    for _ = 1, 20 do
      local s, ids = trainer({ device = device })
      s:run(popart.PyStepIOCallback(function()
        collectgarbage()
        return torch.ones(3, 4)
      end, function() end, function()
        collectgarbage()
        return torch.zeros({})
      end, function() end))
      assert.is_string(ids.loss)
    end
    collectgarbage()
    local n = 0
    for _ in pairs(device._sessions) do
      n = n + 1
    end
    assert.is_true(n <= 1)
  end)
end)
