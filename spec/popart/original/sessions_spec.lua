-- Ports of the original's tests of sessions, a test each under its own name: the calls in
-- order, weights and files, reports, cycles, random numbers, types of inputs.
local files = require("spec.support.files")
local core = require("lupine.core")
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")
local SESSION_PREPARED = "Session must have been prepared before a report can be fetched$"

local folder
before_each(function()
  folder = files.unused()
  core.make_folder(folder)
end)
after_each(function()
  files.remove(folder)
end)

local function close(a, b, tolerance)
  assert.is_true(torch.allclose(a:float(), b:float(), { rtol = tolerance or 1e-5,
    atol = tolerance or 1e-6 }))
end

-- What many of them have: the sum of two inputs of one element.
local function addition(type, shape)
  local b = popart.Builder()
  local x = b:addInputTensor(type or "FLOAT", shape or { 1 })
  local y = b:addInputTensor(type or "FLOAT", shape or { 1 })
  local o = b.aiOnnx:add({ x, y })
  b:addOutputTensor(o)
  return b, x, y, o
end

local function of(b, flow, options, device)
  return popart.InferenceSession({ fnModel = b:getModelProto(), dataFlow = flow,
    deviceInfo = device or helper.device(), userOptions = helper.options(options) })
end

describe("reset_host_weights_test", function()
  local function random_weights()
    local b = popart.Builder()
    local x, w = b:addInputTensor("FLOAT", { 2, 2 }),
      b:addInitializedInputTensor(torch.rand(2, 2))
    local o = helper.l1(b, b.aiOnnx:matmul({ x, w }), 0.1)
    b:addOutputTensor(o)
    return b, o, w
  end

  it("test_reset_host_weights_with_extra_tensor_in_onnx_model", function()
    local b, o, w = random_weights()
    local trainer = helper.training(b, popart.DataFlow(1), o,
      popart.SGD({ defaultMomentum = { 0.01, true } }))
    trainer:modelToHost(folder .. "/tr_model.onnx")
    local validator = of((random_weights()), popart.DataFlow(1, { o }),
      { constantWeights = false })
    validator:prepareDevice()
    helper.raises("popart_exception", "^resetWeights, no tensor 'Accl___" .. w .. "' in tensors$",
      function()
        validator:resetHostWeights(folder .. "/tr_model.onnx")
      end)
    validator:resetHostWeights(folder .. "/tr_model.onnx",
      { ignoreWeightsInModelWithoutCorrespondingHostWeight = true })
    local got = torch.zeros(2, 2)
    validator:weightsFromHost()
    validator:weightsToHost()
    validator:readWeights(popart.PyWeightsIO({ [w] = got }))
    assert.is_true(torch.equal(helper.weights(trainer, { w })[w], got))
  end)
end)

describe("rng_test", function()
  it("test_rng_set_and_get", function()
    for replicas = 1, 2 do
      local b = popart.Builder()
      torch.manual_seed(0)
      local x = b:addInputTensor("FLOAT16", { 20, 20 })
      local out = b.aiOnnx:matmul({ x, b:addInitializedInputTensor(torch.rand(20, 20):half()) })
      local options = helper.loops(1, replicas, { enableLoadAndOffloadRNGState = true,
        enableStochasticRounding = true, constantWeights = false })
      local flow, device = popart.DataFlow(5, { out }), helper.device(replicas)
      local s = helper.training(b, flow, helper.l1(b, out, 0.1),
        popart.SGD({ defaultMomentum = { 0.01, true } }), { options = options, device = device })
      local other = helper.inference(b, flow, { options = options, device = device })
      local data, first = { [x] = torch.rand(5 * replicas, 20, 20):half() }, s:getRNGState()
      local function run()
        s:weightsFromHost()
        return helper.run(s, data)[out], s:getRNGState()
      end
      s:setRNGState(first)
      local before, middle = run()
      local want, last = run()
      assert.is_not.same(middle, last)
      s:setRNGState(first)
      assert.is_true(torch.equal(before, (run())))
      helper.run(other, data)
      s:setRNGState(middle)
      local got, again = run()
      assert.is_true(torch.equal(want, got))
      assert.same(last, again)
      s:setRNGState({ 1, 2, 3, 4 })
      assert.same({ 1, 2, 3, 4 }, s:getRNGState())
      helper.raises("popart_runtime_error", "^Devicex::setRngStateValue received rngState of size",
        function()
          s:setRNGState({ 1, 2, 3, 4, 0 })
        end)
    end
  end)

  it("test_rng_set_and_get_in_case_of_synthetic_data", function()
    local b, x, y, o = addition()
    local s = of(b, popart.DataFlow(1, { o }), { enableLoadAndOffloadRNGState = true,
      syntheticDataMode = popart.SyntheticDataMode.RandomNormal })
    s:prepareDevice()
    s:run(popart.PyStepIO({ [x] = torch.zeros(1), [y] = torch.zeros(1) }, s:initAnchorArrays()))
    assert.same({}, s:getRNGState())
  end)
end)

describe("session_api_tests", function()
  it("Basic0SessionApi", function()
    local b, x, y, o = addition("INT32", { 2 })
    local s = of(b, popart.DataFlow(1, { [o] = ALL }))
    local anchors = s:initAnchorArrays()
    local io = popart.PyStepIO({ [x] = torch.tensor({ 1, 2 }):int(),
      [y] = torch.tensor({ 10, 20 }):int() }, anchors)
    helper.raises("popart_exception", "must be called before", function()
      s:run(io)
    end)
    s:prepareDevice()
    s:run(io)
    assert.same({ 11, 22 }, anchors[o]:tolist())
  end)

  it("GetAllTensorIdsTest", function()
    local b, x, y, o = addition()
    local s = of(b, popart.DataFlow(1, { o }))
    for _, prepare in ipairs({ false, true }) do
      if prepare then
        s:prepareDevice()
      end
      local set = {}
      for _, id in ipairs(s:getAllTensorIds()) do
        set[id] = true
      end
      assert.is_true(set[x] and set[y] and set[o])
    end
  end)
end)

describe("cycle_count_test", function()
  local function session(options, replicas, batches)
    local b, x, y, o = addition()
    local s = of(b, popart.DataFlow(batches or 1, { o }), options, helper.device(replicas))
    s:prepareDevice()
    return s, function()
      local n = (batches or 1) * (replicas or 1)
      s:run(popart.PyStepIO({ [x] = torch.ones(n), [y] = torch.ones(n) }, s:initAnchorArrays()))
      return s:getCycleCount()
    end
  end

  local ON = { instrumentWithHardwareCycleCounter = true }

  it("test_check_sensible_cycle_counts", function()
    local cycles = {}
    for i = 1, 3 do
      local s, run = session(ON, 1, i * 100)
      cycles[i] = run()
      assert.equal(cycles[i], s:getCycleCount())
      assert.is_true(math.abs(cycles[i] - run()) / cycles[i] < 0.15)
    end
    local first, second = cycles[2] - cycles[1], cycles[3] - cycles[2]
    assert.is_true(math.abs(first - second) / second < 0.15)
  end)

  it("test_get_cycle_count_requires_run", function()
    helper.raises("popart_exception", "^Must call run before getCycleCount", function()
      session(ON):getCycleCount()
    end)
  end)

  it("test_get_cycle_count_requires_instrumentation_option", function()
    local _, run = session()
    helper.raises("popart_exception",
      "^SessionOption 'instrumentWithHardwareCycleCounter' must be", run)
  end)

  it("test_get_cycle_count_bad_id", function()
    local s, run = session({ instrumentWithHardwareCycleCounter = true,
      hardwareInstrumentations = { popart.Instrumentation.Outer, popart.Instrumentation.Inner } })
    run()
    assert.is_true(s:getCycleCount() > 0 and s:getCycleCount("inner_ipu_0") > 0)
    helper.raises("popart_exception", "hardwareInstrumentations correctly%.$", function()
      s:getCycleCount("inner_ipu_2")
    end)
  end)

  it("test_get_cycle_count_replication", function()
    for _, tiles in ipairs({ 0, 8 }) do
      local _, run = session(helper.loops(1, 2, { instrumentWithHardwareCycleCounter = true,
        numIOTiles = tiles }), 2)
      assert.is_true(run() > 0)
    end
  end)
end)

describe("copy_named_buffers_to_device_test", function()
  -- 3 * (b1 + b2), both 2 at first and 3 from buffersFromHost on, less one that stays.
  local function copied(names)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 1 })
    local b1, b2 = b:addInitializedInputTensor(torch.full({ 1 }, 1.0), "b1"),
      b:addInitializedInputTensor(torch.full({ 1 }, 2.0), "b2")
    local o = b.aiOnnx:mul({ x, b.aiOnnx:add({ b1, b2 }) })
    local s = of(b, popart.DataFlow(1, { o }), { constantWeights = false,
      updatableNamedBuffers = names })
    s:prepareDevice()
    s:weightsFromHost()
    assert.equal(9.0, helper.run(s, { [x] = torch.full({ 1 }, 3.0) })[o]:item())
    s:writeWeights(popart.PyWeightsIO({ b1 = torch.full({ 1 }, 2.0),
      b2 = torch.full({ 1 }, 3.0) }))
    s:buffersFromHost()
    return helper.run(s, { [x] = torch.full({ 1 }, 3.0) })[o]:item()
  end

  it("test_copy_named_buffer_to_device_single_buffer", function()
    assert.equal(12.0, copied({ "b1" }))
    assert.equal(12.0, copied({ "b2" }))
  end)

  it("test_copy_named_buffer_to_device_two_buffers", function()
    assert.equal(15.0, copied({ "b1", "b2" }))
  end)

  it("test_copy_named_buffer_to_device_no_buffers", function()
    helper.refuses("popart_exception", "names no buffer", copied, {})
  end)

  it("test_copy_named_buffer_to_device_invalid_buffer", function()
    helper.refuses("popart_exception", "no buffer 'b3'", copied, { "b3" })
  end)
end)

describe("train_then_infer_test", function()
  local function net()
    local b = popart.Builder()
    torch.manual_seed(2)
    local x, w = b:addInputTensor("FLOAT", { 2, 4 }), b:addInitializedInputTensor(torch.rand(4, 3))
    local y = b.aiOnnx:relu({ b.aiOnnx:matmul({ x, w }) })
    b:addOutputTensor(y)
    return b, x, y, w
  end

  it("test_train_then_infer_via_file", function()
    local b, x, y, w = net()
    local trainer = helper.training(b, popart.DataFlow(1), helper.l1(b, y, 0.1),
      popart.ConstSGD(0.1))
    local data = torch.rand(2, 4)
    trainer:run(popart.PyStepIO({ [x] = data }, {}))
    trainer:modelToHost(folder .. "/trained.onnx")
    local s = popart.InferenceSession({ fnModel = folder .. "/trained.onnx",
      dataFlow = popart.DataFlow(1, { y }), deviceInfo = helper.device() })
    s:prepareDevice()
    close(torch.relu(torch.matmul(data, helper.weights(trainer, { w })[w])),
      helper.run(s, { [x] = data })[y])
  end)

  it("test_cannot_call_resethostweights_with_constant_weights", function()
    local b, _, y = net()
    local s = of(b, popart.DataFlow(1, { y }), { constantWeights = true })
    s:prepareDevice()
    helper.raises("popart_exception", "^Cannot call resetHostWeights when constantWeights is set",
      function()
        s:resetHostWeights(b:getModelProto())
      end)
  end)

  it("test_modelToHost_calls_resetHostWeights", function()
    local b, x, y, w = net()
    local data, outputs = torch.rand(2, 4), {}
    local s = helper.training(b, popart.DataFlow(1, { y }), helper.l1(b, y, 0.1),
      popart.ConstSGD(0.5))
    outputs[1] = helper.run(s, { [x] = data })[y]:clone()
    outputs[2] = helper.run(s, { [x] = data })[y]:clone()
    s:modelToHost(folder .. "/now.onnx")
    s:weightsFromHost() -- what modelToHost brought: nothing changes
    outputs[3] = helper.run(s, { [x] = data })[y]:clone()
    assert.is_false(torch.allclose(outputs[1], outputs[2]))
    assert.is_false(torch.allclose(outputs[3], outputs[1]))
    assert.is_false(torch.allclose(outputs[3], outputs[2]))
    local host = popart.InferenceSession({ fnModel = folder .. "/now.onnx",
      dataFlow = popart.DataFlow(1, { y }), deviceInfo = helper.device() })
    host:prepareDevice()
    close(helper.run(host, { [x] = data })[y], outputs[3])
    assert.is_string(w)
  end)
end)

describe("variable_inference_test, fp16_test", function()
  local function adds_variable(type, dtype)
    local b = popart.Builder()
    local x = b:addInputTensor(type, { 2 })
    local w = b:addInitializedInputTensor(torch.tensor({ 2.0, 3 }, { dtype = dtype }))
    local o = b.aiOnnx:add({ x, w })
    local s = of(b, popart.DataFlow(1, { o }))
    s:prepareDevice()
    s:weightsFromHost()
    local got = helper.run(s, { [x] = torch.tensor({ 1.0, 3 }, { dtype = dtype }) })[o]
    assert.equal(dtype, got.dtype)
    assert.same({ 3.0, 6 }, got:tolist())
  end

  it("test_add_variable_fp32", function()
    adds_variable("FLOAT", torch.float32)
  end)

  it("test_add_variable_fp16", function()
    adds_variable("FLOAT16", torch.float16)
  end)

  it("test_add_fp16", function()
    local b, x, y, o = addition("FLOAT16", { 2 })
    local s = of(b, popart.DataFlow(1, { o }))
    s:prepareDevice()
    assert.same({ 3.0, 7 }, helper.run(s, { [x] = torch.tensor({ 1.0, 3 }):half(),
      [y] = torch.tensor({ 2.0, 4 }):half() })[o]:tolist())
  end)
end)

describe("net_test, model_loading_test", function()
  it("test_net_from_string", function()
    local b, _, _, o = addition()
    popart.InferenceSession({ fnModel = b:getModelProto(), dataFlow = popart.DataFlow(1, { o }),
      deviceInfo = helper.device() })
  end)

  it("test_net_from_file", function()
    local b, _, _, o = addition()
    b:saveModelProto(folder .. "/test.onnx")
    popart.InferenceSession({ fnModel = folder .. "/test.onnx",
      dataFlow = popart.DataFlow(1, { o }), deviceInfo = helper.device() })
  end)

  it("test_net_failure1", function()
    local b = addition()
    helper.refuses("popart_exception", "^Anchor tensor `unknown' not in Ir Tensors", of, b,
      popart.DataFlow(1, { "unknown" }))
  end)

  it("test_net_failure2, test_bad_model_proto", function()
    helper.refuses("popart_exception", "^Failed to load a ModelProto from the string",
      popart.InferenceSession, { fnModel = "\1\2nothing", dataFlow = popart.DataFlow(1, { "x" }),
        deviceInfo = helper.device() })
  end)
end)

describe("report_test", function()
  it("test_summary_report_before_execution, test_graph_report_before_execution, "
    .. "test_execution_report_before_execution, test_report_before_execution", function()
      local b, _, _, o = addition()
      local s = of(b, popart.DataFlow(1, { o }))
      for _, method in ipairs({ "getSummaryReport", "getReport", "getSerializedGraph" }) do
        helper.raises("popart_exception", SESSION_PREPARED, function()
          s[method](s)
        end)
      end
    end)

  it("test_compilation_report, test_compilation_report_deprecated, test_serialized_graph_report",
    function()
      local b, _, _, o = addition()
      local s = of(b, popart.DataFlow(1, { o }))
      s:prepareDevice()
      assert.equal("ipu2", s:getReport().chip)
      assert.is_true(s:getReport().memory[0].tile_bytes > 0)
      assert.is_true(#s:getSummaryReport() > 0 and #s:getSerializedGraph() > 0)
    end)

  it("test_execution_report, test_execution_report_reset", function()
    local b, x, y, o = addition()
    local s = of(b, popart.DataFlow(1, { o }), { engineOptions = { ["autoReport.all"] = "true",
      ["autoReport.directory"] = folder } })
    s:prepareDevice()
    local lengths = {}
    for i = 1, 2 do
      s:run(popart.PyStepIO({ [x] = torch.ones(1), [y] = torch.ones(1) }, s:initAnchorArrays()),
        "Test message")
      lengths[i] = #s:getSummaryReport(true)
    end
    assert.equal(lengths[1], lengths[2])
  end)

  it("test_no_compile", function()
    local b, _, _, o = addition()
    local s = of(b, popart.DataFlow(1, { o }), { compileEngine = false })
    s:prepareDevice()
    helper.raises("popart_exception", SESSION_PREPARED, function()
      s:getReport()
    end)
  end)

  it("test_summary_report_with_cpu_device, test_graph_report_with_cpu_device, "
    .. "test_execution_report_with_cpu_device", function()
      local b, _, _, o = addition()
      local s = of(b, popart.DataFlow(1, { o }), nil, popart.DeviceManager():createCpuDevice())
      s:prepareDevice()
      for _, method in ipairs({ "getSummaryReport", "getReport", "getSerializedGraph" }) do
        helper.raises("poplar_exception", "Profiling is disabled for current device type%.$",
          function()
            s[method](s)
          end)
      end
    end)
end)

describe("random_test", function()
  it("test_set_random_seed_error", function()
    local b, _, _, o = addition()
    helper.raises("popart_exception", "^Devicex::prepare%(%) must be called before "
      .. "Devicex::setRandomSeed", function()
        of(b, popart.DataFlow(1, { o })):setRandomSeed(0)
      end)
  end)

  it("test_reproducible_randomness_from_checkpoint", function()
    local function session(model)
      local b = popart.Builder()
      torch.manual_seed(1)
      local x = b:addInputTensor("FLOAT", { 10, 10 })
      local w = b:addInitializedInputTensor(torch.rand(10, 10))
      local y = b.aiOnnx:dropout({ b.aiOnnx:matmul({ x, w }) }, 1, 0.4)[1]
      local s = helper.training(b, popart.DataFlow(1, { y }), helper.l1(b, y, 0.1),
        popart.ConstSGD(0.1), { model = model, options = { enableLoadAndOffloadRNGState = true } })
      return s, function()
        return helper.run(s, { [x] = torch.ones(10, 10) })[y]
      end
    end
    local s, run = session()
    s:setRandomSeed(99)
    run()
    s:modelToHost(folder .. "/checkpoint.onnx")
    local seed, state = s:getRandomSeed(), s:getRNGState()
    local want = run()
    local again, run_again = session(folder .. "/checkpoint.onnx")
    again:setRandomSeed(seed)
    again:setRNGState(state)
    close(want, run_again())
  end)
end)

describe("stream_test, simple_addition_test, dim_param_test", function()
  it("test_stream_on_off", function()
    local b, x, y, o = addition("FLOAT16", { 2 })
    for _, on in ipairs({ true, false }) do
      local s = of(b, popart.DataFlow(1, { x, y, o }), { enablePrefetchDatastreams = on })
      s:prepareDevice()
      local got = helper.run(s, { [x] = torch.tensor({ 1.0, 3 }):half(),
        [y] = torch.tensor({ 7.0, 8 }):half() })
      assert.same({ 1.0, 3 }, got[x]:tolist())
      assert.same({ 7.0, 8 }, got[y]:tolist())
      assert.same({ 8.0, 11 }, got[o]:tolist())
    end
  end)

  it("simple_addition_test", function()
    local b, x, y, o = addition("FLOAT", { 1, 2 })
    local s = of(b, popart.DataFlow(1, { o }), nil, popart.DeviceManager():createCpuDevice())
    s:prepareDevice()
    assert.same({ { 0.0, 3.0 } }, helper.run(s, { [x] = torch.tensor({ { -1.0, 1 } }),
      [y] = torch.tensor({ { 1.0, 2 } }) })[o]:tolist())
  end)

  local function with_sizes(first)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 1, 2, 32, 32 }, "input_0")
    local o = b.aiOnnx:relu({ x })
    b:addOutputTensor(o)
    local proto = require("lupine.onnx.proto")
    local model = proto.decode(b:getModelProto())
    model.graph.input[1].type.tensor_type.shape.dim[1] = first
    proto.write(model, folder .. "/sizes.onnx")
    return function(shapes)
      return popart.InferenceSession({ fnModel = folder .. "/sizes.onnx",
        dataFlow = popart.DataFlow(1, { [o] = ALL }), deviceInfo = helper.device(),
        inputShapeInfo = shapes })
    end
  end

  it("test_model_with_unspecified_dim_params, test_model_with_negative_dim_values", function()
    for text, first in pairs({ fubar = { dim_param = "fubar" }, ["%-1"] = { dim_value = -1 } }) do
      helper.refuses("popart_exception", ("^Input tensor 'input_0' must be specified in "
        .. "InputShapeInfo, as it has shape %%[%s, 2, 32, 32%%], which uses an unknown value "
        .. "'%s'%%.$"):format(text, text), with_sizes(first))
    end
  end)

  it("test_model_with_specified_dim_params", function()
    local shapes = popart.InputShapeInfo()
    shapes:add("input_0", popart.TensorInfo("FLOAT", { 1, 2, 32, 32 }))
    with_sizes({ dim_param = "fubar" })(shapes)
  end)
end)
