-- PopART's own tests of its Builder (builder_test, builder_name_test).
local core = require("lupine.core")
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local refuses = helper.refuses

local function info(...)
  return popart.TensorInfo("FLOAT", { ... })
end

-- A builder, and a node in it that gives a tensor: a convolution.
local function convolution()
  local b = popart.Builder()
  local x, w = b:addInputTensor(info(1, 2, 32, 32)), b:addInputTensor(info(3, 2, 3, 3))
  return b, b.aiOnnx:conv({ x, w }, { dilations = { 1, 1 }, pads = { 1, 1, 1, 1 },
    strides = { 1, 1 } })
end

local function ints(...)
  return torch.tensor({ ... }, { dtype = torch.int64 })
end

describe("builder_test", function()
  it("test_basic", function()
    local b = popart.Builder()
    local x, y = b:addInputTensor(info(1, 2, 32, 32)), b:addInputTensor(info(1, 2, 32, 32))
    local o = b.aiOnnx:add({ x, y })
    b:addOutputTensor(o)
    assert.is_true(#b:getModelProto() > 0)
    assert.same({ { x, y }, { o }, { o } },
      { b:getInputTensorIds(), b:getOutputTensorIds(), b:getValueTensorIds() })
    assert.same({ 1, 2, 32, 32 }, b:getTensorShape(o))
  end)

  it("test_add_pad, test_add_subsample, test_add_constant", function()
    local b = popart.Builder()
    local x = b:addInputTensor(info(10))
    assert.same({ 15 }, b:getTensorShape(b.aiOnnx:pad({ x }, { 2, 3 }, "constant", 0.0)))
    refuses("popart_exception", "pads", b.aiOnnx.pad, b.aiOnnx, { x }, { 2, 3, 4, 5 }, "constant",
      0.0)
    local y = b:addInputTensor(info(10, 9, 8, 7))
    -- as a session has it: PopART's Builder tells 7 // 5
    assert.same({ 5, 3, 2, 2 },
      b:getTensorShape(b.aiGraphcore:subsample({ y }, { strides = { 2, 3, 4, 5 } })))
    assert.same({ 2, 2 }, b:getTensorShape(b.aiOnnx:constant(torch.ones(2, 2))))
  end)

  it("test_add_conv, test_add_gemm, test_add_matmul", function()
    local b, o = convolution()
    assert.same({ 1, 3, 32, 32 }, b:getTensorShape(o))
    local x, y, z = b:addInputTensor(info(2, 4)), b:addInputTensor(info(4, 5)),
      b:addInputTensor(info(2, 5))
    assert.same({ 2, 5 }, b:getTensorShape(b.aiOnnx:gemm({ x, y, z }, 1.0, 1.0, 0, 0)))
    assert.same({ 2, 5 }, b:getTensorShape(b.aiOnnx:matmul({ x, y })))
    refuses("popart_exception", "", b.aiOnnx.matmul, b.aiOnnx, { x, z })
  end)

  it("test_add_l1loss, test_add_nllloss, test_add_identityloss", function()
    local b = popart.Builder()
    local x, label = b:addInputTensor(info(10, 5)),
      b:addInputTensor(popart.TensorInfo("INT32", { 10 }))
    local g = b.aiGraphcore
    assert.same({ {}, {}, {} }, { b:getTensorShape(g:l1loss({ x }, 0.1)),
      b:getTensorShape(g:nllloss({ b.aiOnnx:softmax({ x }, 1), label })),
      b:getTensorShape(g:identityloss({ x })) })
  end)

  it("test_add_reshape, test_add_reshape_const", function()
    local b = popart.Builder()
    local x = b:addInputTensor(info(1, 2, 32, 32))
    local shape = b:addInitializedInputTensor(ints(-1, 8, 64))
    assert.same({ 4, 8, 64 }, b:getTensorShape(b.aiOnnx:reshape({ x, shape })))
    assert.same({ 4, 8, 64 }, b:getTensorShape(b:reshape_const(b.aiOnnx, { x }, { 4, 8, 64 })))
  end)

  it("test_initialized_input_fp32, _int32, _fp16, _bool, test_get_tensor_type", function()
    for name, dtype in pairs({ float32 = torch.float32, int32 = torch.int32,
      float16 = torch.float16, bool = torch.bool }) do
      local b = popart.Builder()
      local id = b:addInitializedInputTensor(torch.ones(2, { dtype = dtype }))
      assert.equal(name, b:getTensorDtypeString(id))
      assert.same({ 2 }, b:getTensorShape(b.aiOnnx:identity({ id })))
    end
    local b = popart.Builder()
    local x = b:addInputTensor(info(2))
    assert.equal("int32", b:getTensorDtypeString(b.aiOnnx:cast({ x }, "INT32")))
  end)

  it("test_set_virtual_graph", function()
    local b, o = convolution()
    b:virtualGraph(o, 10)
    assert.equal(10, b:getVirtualGraph(o))
    for _, name in ipairs({ "VirtualGraph", "PipelineStage", "ExecutionPhase" }) do
      assert.is_false(b["has" .. name](b))
      refuses("popart_exception", "not set in current scope", b["get" .. name], b)
      local method = name:gsub("^%u", string.lower)
      b[method](b, 3, function()
        assert.is_true(b["has" .. name](b))
        assert.equal(3, b["get" .. name](b))
        local inner = b.aiOnnx:abs({ o })
        assert.equal(3, b["get" .. name](b, inner))
      end)
      assert.is_false(b["has" .. name](b))
    end
    refuses("popart_exception", "^Node does not have an attribute", b.getPipelineStage, b, o)
  end)

  it("test_add_int_attribute, _int_vector_, _float_, _float_vector_, _string_, _string_vector_",
    function()
      for method, value in pairs({ Int64 = 100, Int64Vector = { 100, 2 }, Float = 0.5,
        FloatVector = { 0.5, 2.25 }, String = "test", StringVector = { "a", "b" } }) do
        local b, o = convolution()
        b:addNodeAttribute("test", value, { o })
        assert.same(value, b["get" .. method .. "NodeAttribute"](b, "test", { o }))
      end
    end)

  it("test_add_attribute_missing_node, test_dont_override_attribute", function()
    local b, o = convolution()
    refuses("popart_exception", "^Could not find a node with outputs i ,j", b.addNodeAttribute, b,
      "test", 1, { "i", "j" })
    b:addNodeAttribute("test", 100.0, { o })
    refuses("popart_exception", "^Node already has attribute test%.$", b.addNodeAttribute, b,
      "test", 100, { o })
  end)

  it("test_has_attribute, test_get_all_attribute_names, test_get_conv_strides_attribute", function()
    local b, o = convolution()
    local had = #b:getAllNodeAttributeNames({ o })
    b:addNodeAttribute("test", 100.0, { o })
    b:addNodeAttribute("test2", -1, { o })
    b:addNodeAttribute("test3", "abba", { o })
    assert.is_true(b:nodeHasAttribute("test", { o }))
    assert.is_false(b:nodeHasAttribute("test4", { o }))
    local names = b:getAllNodeAttributeNames({ o })
    assert.same({ had + 3, "test", "test2", "test3" },
      { #names, names[had + 1], names[had + 2], names[had + 3] })
    assert.same({ 1, 1 }, b:getInt64VectorNodeAttribute("strides", { o }))
  end)

  it("test_get_attribute_doesnt_exist, test_remove_attribute, _doesnt_exist", function()
    local b, o = convolution()
    b:addNodeAttribute("test", 100.0, { o })
    refuses("popart_exception", "^Node does not have an attribute test1%.$",
      b.getFloatNodeAttribute, b, "test1", { o })
    refuses("popart_exception", "^Cannot remove attribute test1 as it does not exist%.$",
      b.removeNodeAttribute, b, "test1", { o })
    b:removeNodeAttribute("test", { o })
    assert.is_false(b:nodeHasAttribute("test", { o }))
  end)

  it("test_get_attribute_wrong_type_int, _int_vector, _float, _float_vector, _string, ...",
    function()
      local b, o = convolution()
      b:addNodeAttribute("test", 100.0, { o })
      b:addNodeAttribute("whole", 100, { o })
      for method, what in pairs({ Int64 = "an integer", Int64Vector = "an integer vector",
        FloatVector = "a float vector", String = "a string", StringVector = "a string vector" }) do
        refuses("popart_exception", "Attribute test is not " .. what .. "%.$",
          b["get" .. method .. "NodeAttribute"], b, "test", { o })
      end
      refuses("popart_exception", "Attribute whole is not a float%.$", b.getFloatNodeAttribute, b,
        "whole", { o })
    end)

  local function sum(model, o, x, y)
    local s = popart.InferenceSession(model, popart.DataFlow(1, { o }),
      popart.DeviceManager():createCpuDevice())
    s:prepareDevice()
    return helper.run(s, { [x] = torch.tensor({ 1.0, 2 }), [y] = torch.tensor({ 3.0, 4 }) })[o]
      :tolist()
  end

  it("test_load_onnx_model_from_other_builder, _from_file, test_save_model_to_file", function()
    local b = popart.Builder()
    local x, y = b:addInputTensor(info(2)), b:addInputTensor(info(2))
    local o = b.aiOnnx:add({ x, y })
    b:addOutputTensor(o)
    local other = popart.Builder(b:getModelProto())
    assert.same({ 4, 6 }, sum(other:getModelProto(), o, x, y))
    local path = os.tmpname()
    b:saveModelProto(path)
    assert.same({ 4, 6 }, sum(path, o, x, y))
    assert.equal(b:getModelProto(), popart.Builder(path):getModelProto())
    os.remove(path)
    -- and it goes on
    local twice = other.aiOnnx:add({ o, x })
    other:setGraphOutputs({ twice })
    assert.same({ twice }, other:getOutputTensorIds())
    assert.same({ 5, 8 }, sum(other:getModelProto(), twice, x, y))
  end)

  it("test_name_scope", function()
    local b = popart.Builder()
    local x, y = b:addInitializedInputTensor(ints(1, 6)), b:addInitializedInputTensor(ints(1, 6))
    local o1, o2, o3
    b:nameScope("scope1", function()
      o1 = b.aiOnnx:add({ x, y }, "myop1")
    end)
    b:nameScope("scope2", function()
      o2 = b.aiOnnx:add({ x, y }, "myop2")
      local _ <close> = b:nameScope("embedded_scope")
      o3 = b.aiOnnx:add({ o1, o2 }, "myop3")
      assert.equal("scope2/embedded_scope/myop4", b:getNameScope("myop4"))
    end)
    assert.same({ "scope1/myop1:0", "scope2/myop2:0", "scope2/embedded_scope/myop3:0", "" },
      { o1, o2, o3, b:getNameScope() })
  end)

  it("test_tensor_names", function()
    local b, got = popart.Builder(), {}
    got[1] = b:addInitializedInputTensor(ints(1, 6))
    got[2] = b:addInitializedInputTensor(ints(1, 6), "weights")
    b:nameScope("layer1", function()
      got[3] = b:addInitializedInputTensor(ints(1, 6))
      got[4] = b:addInitializedInputTensor(ints(1, 6), "weights")
    end)
    got[5], got[6] = b:addInputTensor(info(2, 3)), b:addInputTensor(info(2, 3), "data")
    b:nameScope("layer2", function()
      got[7] = b:addInputTensor(info(2, 3), "label")
    end)
    got[8], got[9] = b:addInputTensor(info(2, 3)), b:addInputTensor(info(2, 3), "data")
    assert.same({ "init_input", "weights", "layer1/init_input", "layer1/weights", "input", "data",
      "layer2/label", "input/1", "data/1" }, got)
  end)

  it("test_add_untyped_input, test_is_initializer", function()
    local b = popart.Builder()
    refuses("popart_exception", "^Can not add untyped tensors to the top%-level graph%.",
      b.addUntypedInputTensor, b)
    b:createSubgraphBuilder():addUntypedInputTensor()
    assert.is_false(b:isInitializer(b:addInputTensor(info(2))))
    assert.is_true(b:isInitializer(b:addInitializedInputTensor(ints(1, 6))))
  end)

  it("test_error_on_invalid_input_tensor", function()
    local b = popart.Builder()
    refuses("popart_exception", "Unknown tensor 'nothing'", b.aiOnnx.matmul, b.aiOnnx,
      { b:addInputTensor(info(2, 2)), "nothing" })
    local out = b.aiOnnx:relu({ b:addInputTensor(info(2, 2)) })
    b:addOutputTensor(out)
    refuses("popart_exception", "unknown tensor 'nothing'", b.setGraphOutputs, b, { "nothing" })
    assert.same({ out }, b:getOutputTensorIds())
  end)
end)

describe("builder_name_test", function()
  it("test_subgraph_ir_name", function()
    local b = popart.Builder()
    local x, y = b:addInputTensor(info(1)), b:addInputTensor(info(1))
    local condition = b:addInputTensor(popart.TensorInfo("BOOL", { 1 }))
    local function branch(name, op, first, second)
      local inner = b:createSubgraphBuilder()
      inner:setGraphName(name)
      refuses("popart_exception", "^Failed to add unrecognised Tensor nothing from higher scope",
        inner.addInputTensorFromParentGraph, inner, "nothing")
      inner:addInputTensorFromParentGraph(x)
      inner:addInputTensorFromParentGraph(y)
      inner:addOutputTensor(inner.aiOnnx[op](inner.aiOnnx, { first, second }))
      return inner
    end
    local o = b.aiOnnx:logical_if({ condition }, 1, branch("else_branch", "sub", y, x),
      branch("then_branch", "add", x, y))[1]
    b:addOutputTensor(o)
    local s = helper.inference(b, popart.DataFlow(1, { o }))
    local function value(which)
      return helper.run(s, { [x] = torch.tensor({ 3.0 }), [y] = torch.tensor({ 6.0 }),
        [condition] = torch.tensor({ which }) })[o]:item()
    end
    assert.same({ 9, 3 }, { value(true), value(false) })
    local ir = core.json_decode(s:serializeIr(popart.IrSerializationFormat.JSON), "ir")
    assert.same({ 1, 1, 1 }, { #ir.maingraph, #ir.then_branch, #ir.else_branch })
    assert.same({ "If", "Add", "Sub" },
      { ir.maingraph[1].type, ir.then_branch[1].type, ir.else_branch[1].type })
  end)

  it("test_main_graph_ir_name, test_empty_graph_ir_name", function()
    for name, want in pairs({ body_graph = "body_graph", [""] = "maingraph" }) do
      local b, _, y = helper.identity({ 2 })
      b:setGraphName(name)
      local s = helper.inference(b, popart.DataFlow(1, { y }))
      local ir = core.json_decode(s:serializeIr(popart.IrSerializationFormat.JSON), "ir")
      assert.equal(1, #ir[want])
    end
  end)
end)

describe("what is kept between forward and backward", function()
  it("is said of single nodes and of tensors", function()
    local b, o = convolution()
    assert.is_false(b:getRecomputeOutputInBackwardPass(o))
    b:recomputeOutputInBackwardPass(o)
    assert.is_true(b:getRecomputeOutputInBackwardPass(o))
    assert.equal(popart.RecomputeType.Recompute.value,
      b:getInt64NodeAttribute("__recompute_output", o))
    b:recomputeOutputInBackwardPass(o, popart.RecomputeType.Checkpoint)
    assert.is_false(b:getRecomputeOutputInBackwardPass(o))
    local kept = b:checkpointOutput({ o })
    assert.equal(1, #kept)
    assert.equal(popart.RecomputeType.Checkpoint.value,
      b:getInt64NodeAttribute("__recompute_output", kept[1]))
    assert.same(b:getTensorShape(o), b:getTensorShape(kept[1]))
  end)

  it("makes a program compute those again, to the same weights", function()
    local function train(how)
      local b, ids = popart.Builder(), {}
      torch.manual_seed(3)
      local x, w = b:addInputTensor(info(2, 4)), b:addInitializedInputTensor(torch.randn(4, 4))
      ids.h = b.aiOnnx:tanh({ b.aiOnnx:tanh({ b.aiOnnx:matmul({ x, w }) }) })
      how(b, ids)
      local loss = helper.l1(b, b.aiOnnx:tanh({ ids.h }), 0.1)
      local s = helper.training(b, popart.DataFlow(1, { loss }), loss, popart.ConstSGD(0.1))
      helper.run(s, { [x] = torch.ones(2, 4) })
      local again = 0
      for _, stage in ipairs(s:getReport().stages) do
        again = again + stage.recompute_cycles
      end
      return helper.weights(s, { w })[w], again
    end
    local want, none = train(function() end)
    local got, some = train(function(b, ids)
      b:recomputeOutputInBackwardPass(ids.h)
    end)
    assert.is_true(torch.equal(want, got))
    assert.equal(0, none)
    assert.is_true(some > 0)
  end)
end)

describe("a model as text", function()
  it("has a field a line, messages in braces", function()
    local b = popart.Builder()
    local x = b:addInputTensor(info(2, 3), "x")
    b:addOutputTensor(b.aiOnnx:leakyrelu({ x }, 0.5, "y"))
    local text = b:getModelProto(true)
    for _, part in ipairs({ "\nproducer_name: \"lupine\"\n", "\n  node {\n    attribute {\n",
      "      name: \"alpha\"\n", "    input: \"x\"\n", "    output: \"y:0\"\n",
      "          dim {\n            dim_value: 3\n          }\n" }) do
      assert.is_truthy(("\n" .. text):find(part, 1, true), part .. "\n" .. text)
    end
  end)
end)

-- Numbers of TensorLocation::serialize, in its order.
describe("the location of results", function()
  it("is an attribute of nodes, or of those of a scope, and is noted", function()
    local b = popart.Builder()
    local x = b:addInputTensor(info(2, 3))
    local off = popart.TensorLocation(popart.TensorStorage.OffChip,
      popart.ReplicatedTensorSharding.On, popart.CommGroup(popart.CommGroupType.Consecutive, 2))
    local y = b:outputTensorLocation(off, function()
      return b.aiOnnx:abs({ x })
    end)
    local z = b.aiOnnx:neg({ y })
    b:outputTensorLocation(z)
    local o = b.aiOnnx:relu({ z })
    b:addOutputTensor(o)
    local nodes = require("lupine.onnx").load_from_string(b:getModelProto()).graph.node
    for i, want in ipairs({ { 1, 0, 0, 1, 1, 2 }, { 0, 0, 0, 0, 0, 0 } }) do
      assert.equal("__output_tensor_location", nodes[i].attribute[1].name)
      assert.same(want, nodes[i].attribute[1].ints)
    end
    assert.equal(0, #nodes[3].attribute)
    local s = helper.inference(b, popart.DataFlow(1, { o }))
    assert.matches("^Builder:outputTensorLocation: ", s:getReport().no_effect[1])
    helper.refuses("TypeError", "outputTensorLocation: value: expected popart.TensorLocation",
      b.outputTensorLocation, b, z, 5)
  end)
end)
