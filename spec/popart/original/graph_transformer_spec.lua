-- PopART's tests of GraphTransformer: float_to_half_conversion_test, type_casting_test,
-- builder_test, remove_unused_input and prepare_nodes_for_training, and the first part of
-- external_tensorproto_data_test.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.popart.helper")
local popart = require("popart")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local ALL = popart.AnchorReturnType("All")

local function run(model, inputs, output)
  local s = popart.InferenceSession({ fnModel = model, dataFlow = popart.DataFlow(1,
    { [output] = ALL }), deviceInfo = helper.device() })
  s:prepareDevice()
  return helper.run(s, inputs)[output]
end

-- The model in halves gives what it gives in floats, within 1e-3.
local function agrees(builder, inputs, output)
  local t = popart.GraphTransformer(builder:getModelProto())
  t:convertFloatsToHalfs()
  local halves = {}
  for id, x in pairs(inputs) do
    halves[id] = x:half()
  end
  local half = run(t:getModelProto(), halves, output)
  assert.equal(torch.float16, half.dtype)
  torch.testing.assert_close(half:float(), run(builder:getModelProto(), inputs, output),
    { rtol = 1e-3, atol = 1e-8 })
end

local A = torch.tensor({ { 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8 } })
local B = torch.tensor({ { 0.1, 0.4, 0.2, 0.5, 0.3, 0.6, 0.4, 0.7 } })

describe("float_to_half_conversion_test", function()
  it("test_conversion_basic", function()
    local b = popart.Builder()
    local x = b:addInputTensor(popart.TensorInfo("FLOAT", { 1, 2 }))
    local o = b.aiOnnx:identity({ x })
    b:addOutputTensor(o)
    agrees(b, { [x] = torch.tensor({ { 1.0, 2 } }) }, o)
  end)

  it("test_conversion_with_mul", function()
    local b = popart.Builder()
    local x, y = b:addInputTensor(popart.TensorInfo(A)), b:addInputTensor(popart.TensorInfo(B))
    local o = b.aiOnnx:mul({ x, y })
    b:addOutputTensor(o)
    agrees(b, { [x] = A, [y] = B }, o)
  end)

  it("test_conversion_with_initializers", function()
    local b = popart.Builder()
    local x = b:addInputTensor(popart.TensorInfo(A))
    local o = b.aiOnnx:add({ x, b.aiOnnx:constant(B) })
    b:addOutputTensor(o)
    agrees(b, { [x] = torch.zeros(1, 8) }, o)
  end)
end)

-- A model of one ConstantOfShape whose value is a tensor of a type, which its input and
-- output have, too.
local function constant_model(data)
  local function info(name)
    return { name = name, type = { tensor_type = { elem_type = data.data_type, shape = { dim = {
      { dim_value = 3 }, { dim_value = 2 } } } } } }
  end
  return require("lupine.core").onnx_encode({ ir_version = 4, opset_import = { { domain = "",
    version = 9 } }, graph = { name = "test-model", input = { info("X") }, output = { info("Y") },
    node = { { op_type = "ConstantOfShape", input = { "X" }, output = { "Y" },
      attribute = { { name = "value", type = 4, t = data } } } } } }, "ModelProto")
end

local function words(format, ...)
  return string.pack("<" .. format:rep(6), ...)
end

-- What a conversion makes of the model: the type of input, output and value, its values.
local function converted(data, name, ...)
  local t = popart.GraphTransformer(constant_model(data))
  t[name](t, ...)
  local g = proto.decode(t:getModelProto()).graph
  local value = g.node[1].attribute[1].t
  local dtype = proto.type_of(g.input[1])
  assert.equal(dtype, (proto.type_of(g.output[1])))
  assert.equal(dtype, tensors.dtype(value.data_type))
  return dtype, tensors.read(value):tolist()
end

local VALUES = { { 1, 2 }, { 3, 4 }, { 5, 6 } }

describe("type_casting_test", function()
  for _, case in ipairs({
    { "UINT8ToINT32", 2, "I1", torch.int32 }, { "UINT16ToINT32", 4, "I2", torch.int32 },
    { "INT8ToINT32", 3, "i1", torch.int32 }, { "INT16ToINT32", 5, "i2", torch.int32 },
    { "INT64ToINT32", 7, "i8", torch.int32 },
    { "DoubleToHalf", 11, "d", torch.float16, "DoublesToHalfs" },
    { "DoubleToFloat", 11, "d", torch.float32, "DoublesToFloats" },
  }) do
    it("test_type_cast_" .. case[1], function()
      local dtype, values = converted({ data_type = case[2], dims = { 3, 2 },
        raw_data = words(case[3], 1, 2, 3, 4, 5, 6) }, "convert" .. (case[5] or case[1]))
      assert.equal(case[4], dtype)
      assert.same(VALUES, values)
    end)
  end

  it("test_type_cast_BFloatToFloat", function()
    local data = tensors.write("", torch.tensor(VALUES, { dtype = torch.bfloat16 }))
    local dtype, values = converted(data, "convertBFloats16ToFloat32")
    assert.equal(torch.float32, dtype)
    assert.same(VALUES, values)
  end)

  it("test_type_cast_INT64ToINT32_clip", function()
    local data = { data_type = 7, dims = { 3, 2 },
      raw_data = words("i8", 1, 2, 3, 4, -(1 << 40), 1 << 40) }
    helper.refuses("popart_exception", "number is too large.*'clip' to true", converted, data,
      "convertINT64ToINT32")
    local _, values = converted(data, "convertINT64ToINT32", true)
    assert.same({ { 1, 2 }, { 3, 4 }, { -2147483648, 2147483647 } }, values)
  end)

  it("reads uint16 beyond int16, in raw bytes and in a list", function()
    for _, data in ipairs({ { raw_data = words("I2", 65535, 32768, 2, 3, 4, 5) },
      { int32_data = { 65535, 32768, 2, 3, 4, 5 } } }) do
      data.data_type, data.dims = 4, { 3, 2 }
      local _, values = converted(data, "convertUINT16ToINT32")
      assert.same({ { 65535, 32768 }, { 2, 3 }, { 4, 5 } }, values)
    end
  end)
end)

describe("builder_test", function()
  -- x of two reshaped to the sizes that an initializer has
  local function reshaped(b)
    local x = b:addInputTensor(popart.TensorInfo("FLOAT", { 2, 3 }))
    local to = b:addInitializedInputTensor(torch.tensor({ 1, 6 }, { dtype = torch.int64 }))
    return b.aiOnnx:reshape({ x, to }), x, to
  end

  it("test_convert_initializers_to_constants", function()
    local b = popart.Builder()
    local o, x, to = reshaped(b)
    b:addOutputTensor(o)
    local t = popart.GraphTransformer(b:getModelProto())
    t:convertInitializersToConstants({ to })
    helper.refuses("popart_exception", "^TensorId unknown not in the model initalizers$",
      t.convertInitializersToConstants, t, { "unknown" })
    assert.same({ x }, popart.Builder(t:getModelProto()):getInputTensorIds())
  end)

  it("test_convert_all_fixed_point_initializers_to_constants", function()
    local b = popart.Builder()
    local o1, x1 = reshaped(b)
    local o2, x2 = reshaped(b)
    local o = b.aiOnnx:add({ o1, o2 })
    b:addOutputTensor(o)
    local t = popart.GraphTransformer(b:getModelProto())
    t:convertAllFixedPointInitializersToConstants()
    assert.same({ x1, x2 }, popart.Builder(t:getModelProto()):getInputTensorIds())
    local x = torch.ones(2, 3)
    assert.same({ { 2, 2, 2, 2, 2, 2 } }, run(t:getModelProto(), { [x1] = x, [x2] = x }, o)
      :tolist())
  end)
end)

describe("transformation_tests", function()
  it("Transformation_RemoveUnused0", function()
    local b = popart.Builder()
    local w = torch.zeros(4, 1, 3, 3)
    b:addInitializedInputTensor(w)
    local w1 = b:addInitializedInputTensor(w)
    b:addInitializedInputTensor(w)
    local x = b:addInputTensor(popart.TensorInfo("FLOAT", { 4, 4, 3, 1 }))
    local h = b.aiOnnxOpset9:add({ w1, x })
    b.aiOnnxOpset9:relu({ h })
    b:addOutputTensor(h)
    local t = popart.GraphTransformer(b:getModelProto())
    t:removeUnusedInputs()
    local g = proto.decode(t:getModelProto()).graph
    assert.equal(2, #g.input)
    assert.equal(1, #g.initializer)
  end)

  it("converts initializers, inputs and what follows from them", function()
    for method, types in pairs({ convertDoublesToFloats = { "float64", "float32" },
      convertDoublesToHalfs = { "float64", "float16" }, convertUINT8ToINT32 = { "uint8", "int32" },
      convertINT8ToINT32 = { "int8", "int32" }, convertINT16ToINT32 = { "int16", "int32" } }) do
      local from, to = torch[types[1]], torch[types[2]]
      local b = popart.Builder()
      local x = b:addInputTensor(popart.TensorInfo(from, { 3 }))
      local w = b:addInitializedInputTensor(torch.tensor({ 1, 100, 27 }):to(from))
      local o = b.aiOnnxOpset14:add({ x, w })
      b:addOutputTensor(o)
      local t = popart.GraphTransformer(b:getModelProto())
      t[method](t)
      local back = popart.Builder(t:getModelProto())
      for _, id in ipairs({ x, w, o }) do
        assert.equal(types[2], back:getTensorDtypeString(id), method)
      end
      assert.same({ 2, 101, 28 }, run(t:getModelProto(), { [x] = torch.ones(3, { dtype = to }) },
        o):tolist())
    end
  end)

  it("keeps what is an output, and what branches read", function()
    local b = popart.Builder()
    local ids, c = {}, b:addInputTensor(popart.TensorInfo("BOOL", {}))
    for i = 1, 4 do
      ids[i] = b:addInitializedInputTensor(torch.full({ 2 }, i + 0.0))
    end
    local branches = {}
    for i = 1, 2 do
      branches[i] = b:createSubgraphBuilder()
      branches[i]:addOutputTensor(branches[i].aiOnnx:abs({ ids[i] }))
    end
    b:addOutputTensor(b.aiOnnx:logical_if({ c }, 1, branches[1], branches[2])[1])
    b:addOutputTensor(ids[3])
    local t = popart.GraphTransformer(b:getModelProto())
    t:removeUnusedInputs()
    local names = {}
    for i, entry in ipairs(proto.decode(t:getModelProto()).graph.initializer) do
      names[i] = entry.name
    end
    assert.same({ ids[1], ids[2], ids[3] }, names)
  end)

  it("converts tensors of branches, too", function()
    local b = popart.Builder()
    local x, c = b:addInputTensor(popart.TensorInfo("FLOAT", { 2 })),
      b:addInputTensor(popart.TensorInfo("BOOL", {}))
    local branches = {}
    for i = 1, 2 do
      local inner = b:createSubgraphBuilder()
      inner:addOutputTensor(inner.aiOnnx:add({ x, inner.aiOnnx:constant(torch.full({ 2 }, i
        + 0.0)) }))
      branches[i] = inner
    end
    local o = b.aiOnnx:logical_if({ c }, 1, branches[1], branches[2])[1]
    b:addOutputTensor(o)
    local t = popart.GraphTransformer(b:getModelProto())
    t:convertFloatsToHalfs()
    for _, a in ipairs(proto.decode(t:getModelProto()).graph.node[1].attribute) do
      assert.equal(10, a.g.node[1].attribute[1].t.data_type)
    end
    local y = run(t:getModelProto(), { [x] = torch.ones(2):half(), [c] = torch.tensor(false) }, o)
    assert.same({ torch.float16, 2, 2 }, { y.dtype, y[0]:item(), y[1]:item() })
  end)

  it("Transformation_PrepareTrain0", function()
    local b = popart.Builder()
    local ids = { b:addInputTensor(popart.TensorInfo("FLOAT", { 4, 3, 32, 32 })) }
    for i = 2, 5 do
      ids[i] = b:addInputTensor(popart.TensorInfo("FLOAT", { 3 }))
    end
    local outs = b.aiOnnxOpset9:batchnormalization(ids, 1, 0.2, 0.3)
    b:addOutputTensor(outs[1])
    local t = popart.GraphTransformer(b:getModelProto())
    assert.equal(1, #proto.decode(t:getModelProto()).graph.node[1].output)
    t:prepareNodesForTraining()
    assert.equal(5, #proto.decode(t:getModelProto()).graph.node[1].output)
  end)
end)

describe("external_tensorproto_data_test", function()
  local folder

  before_each(function()
    folder = files.folder()
  end)
  after_each(function()
    files.remove(folder)
  end)

  it("test_save_tensors_externally", function()
    local b = popart.Builder()
    local x = b:addInitializedInputTensor(torch.tensor({ 1.0 }))
    local y = b:addInitializedInputTensor(torch.tensor({ 7, 4 }, { dtype = torch.int16 }))
    for i, saver in ipairs({ popart.GraphTransformer(b:getModelProto()), b }) do
      local path = ("%s/%d.onnx"):format(folder, i)
      saver:saveInitializersExternally({ x, y }, path)
      assert.equal(string.pack("<fi2i2", 1, 7, 4), files.read(path))
    end
  end)

  it("test_try_save_externally_when_already_external", function()
    local b = popart.Builder()
    local x = b:addInitializedInputTensor(torch.ones(10))
    b:saveInitializersExternally({ x }, folder .. "/a")
    helper.refuses("popart_exception", "already has an external data_location",
      b.saveInitializersExternally, b, { x }, folder .. "/a")
  end)

  it("test_try_save_non_initializer_externally", function()
    local b = popart.Builder()
    local c = b.aiOnnx:constant(torch.tensor({ 1.0, 6 }))
    helper.refuses("popart_exception", "is not an initializer", b.saveInitializersExternally, b,
      { c }, folder .. "/a")
  end)

  -- also where the model goes to another folder, and when the file has moved
  it("test_save_back_externally_saved_tensors", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4, 4 })
    local ids, out = {}, x
    for i = 1, 2 do
      ids[i] = b:addInitializedInputTensor(torch.rand(4, 4))
      out = b.aiOnnx:matmul({ out, ids[i] })
    end
    local loss = b.aiGraphcore:identityloss({ out })
    local file = folder .. "/weights.onnx"
    b:saveInitializersExternally(ids, file)
    core.make_folder(folder .. "/elsewhere")
    local s = helper.training(b, popart.DataFlow(1, ids), loss, popart.ConstSGD(10))
    local function saved(path, i)
      return core.frombuffer(files.read(path):sub(64 * i - 63, 64 * i),
        { dtype = torch.float32 }):reshape(4, 4)
    end
    for _, model in ipairs({ "/model2.onnx", "/elsewhere/model.onnx" }) do
      local got = helper.run(s, { [x] = torch.rand(4, 4) })
      s:modelToHost(folder .. model)
      local again = require("lupine.onnx").load(folder .. model):state_dict()
      for i, id in ipairs(ids) do
        assert.is_true(torch.equal(got[id], saved(file, i)))
        assert.is_true(torch.equal(got[id], again[id]))
      end
    end
    local before = files.read(file)
    s:updateExternallySavedTensorLocations(file, folder .. "/moved.onnx")
    local got = helper.run(s, { [x] = torch.rand(4, 4) })
    s:modelToHost(folder .. "/elsewhere/model.onnx")
    assert.equal(before, files.read(file))
    assert.is_true(torch.equal(got[ids[2]], saved(folder .. "/moved.onnx", 2)))
  end)

  -- a model that names a file beside its data gets no other process's file changed
  it("bytes of a model change no file that no builder has written", function()
    local b = popart.Builder()
    local w = b:addInitializedInputTensor(torch.ones(1), "w")
    local loss = b.aiGraphcore:identityloss({ w })
    local file = folder .. "/other"
    core.write_text(file, "kept")
    local model = proto.open(b:getModelProto())
    model.graph.initializer[1].external_data = { { key = "location", value = file } }
    local s = helper.training(b, popart.DataFlow(1), loss, popart.ConstSGD(1),
      { model = core.onnx_encode(model, "ModelProto") })
    helper.run(s, {})
    s:modelToHost(folder .. "/own.onnx")
    assert.equal("kept", files.read(file))
  end)

  it("test_load_externally_saved_tensors", function()
    local b = popart.Builder()
    local x = b:addInitializedInputTensor(torch.tensor({ 1.0, -1, 6 }))
    local y = b:addInitializedInputTensor(torch.tensor({ -8.0, 7, 4 }))
    local o = b.aiOnnx:add({ x, y })
    b:addOutputTensor(o)
    b:saveInitializersExternally({ x, y }, folder .. "/tensors.onnx")
    b:saveModelProto(folder .. "/model.onnx")
    assert.same({ -7, 6, 10 }, run(folder .. "/model.onnx", {}, o):tolist())
    local again = popart.Builder(folder .. "/model.onnx")
    assert.same({ 3 }, again:getTensorShape(o))
    helper.refuses("popart_exception", "Failed to load a ModelProto from the file .*none.onnx",
      popart.Builder, folder .. "/none.onnx")
    helper.refuses("TypeError", "Builder: modelProtoOrFilename: expected a file's path",
      popart.Builder, 5)
  end)
end)
