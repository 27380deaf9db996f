-- Ports of the original's tests of pipelines, virtual graphs, accumulation, replicas and
-- products in parts, a test each under its own name.
local core = require("lupine.core")
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")
local Mode, Recompute = popart.VirtualGraphMode, popart.RecomputationType

local function close(a, b, tolerance)
  assert.is_true(torch.allclose(a:float(), b:float(), { rtol = tolerance or 1e-5,
    atol = tolerance or 1e-6 }))
end

local function all_close(want, got, tolerance)
  for id, t in pairs(want) do
    close(t, got[id], tolerance)
  end
end

local function merged(a, b)
  local out = {}
  for k, v in pairs(a or {}) do
    out[k] = v
  end
  for k, v in pairs(b or {}) do
    out[k] = v
  end
  return out
end

local MANUAL, PIPED = { virtualGraphMode = Mode.Manual },
  { virtualGraphMode = Mode.Manual, enablePipelining = true }

-- ---- three operators in a row, or a model of two weights ------------------------------------

local function linear(place)
  local b = popart.Builder()
  local d = b:addInputTensor("FLOAT", { 10 })
  local out = { b.aiOnnx:sin({ d }, "s0") }
  out[2] = b.aiOnnx:exp({ out[1] }, "r0")
  out[3] = b.aiOnnx:mul({ out[2], out[2] }, "m0")
  for i, id in ipairs(out) do
    if place then
      place(b, id, i - 1)
    end
  end
  return b, d, out
end

local function on(b, id, i)
  b:virtualGraph(id, i)
end

local function infer(batches, options, place, ipus)
  local b, d, out = linear(place)
  local s = helper.inference(b, popart.DataFlow(batches, { [out[3]] = ALL }), { options = options,
    device = helper.device(ipus or 3) })
  torch.manual_seed(1)
  return helper.run(s, { [d] = torch.rand(batches, 10) })[out[3]], s
end

local LAYERS = 4

-- Anchors and weights of a model of layers that share a loss; place(b, i, fn).
local function model(options, given)
  given = given or {}
  local batches, accumulation, replicas = given.batches or 1, given.accumulation or 1,
    given.replicas or 1
  local b, ids = helper.layers(LAYERS, 2, given.place)
  local s = helper.training(b, popart.DataFlow(batches, { [ids.loss] = ALL,
    [ids.hidden[1]] = ALL, ["Gradient___" .. ids.weights[1]] = ALL }), ids.loss,
    given.optimizer or popart.ConstSGD(0.02), { device = helper.device((given.ipus or 1)
      * replicas), options = helper.loops(accumulation, replicas, options) })
  torch.manual_seed(8)
  local got = helper.run(s, { [ids.x] = torch.randn(batches * accumulation * replicas, 2, 4) })
  return merged(got, helper.weights(s, ids.weights)), s, ids
end

local function pairs_of(n)
  return function(b, i, add)
    local _ <close> = b:virtualGraph(i * n // LAYERS)
    return add()
  end
end

describe("pipeline_test", function()
  it("test_disabled_virtual_graphs, test_one_ipu", function()
    helper.refuses("popart_exception", "^Pipelining requires more than", infer, 10,
      { enablePipelining = true }, on)
    helper.refuses("popart_exception", "^Pipelining requires more than", infer, 10, PIPED,
      function(b, id) b:virtualGraph(id, 0) end, 1)
  end)

  it("test_enabled_recomputation", function()
    infer(10, merged(PIPED, { autoRecomputation = Recompute.Standard }), on)
  end)

  it("test_stream_tensors_to_multiple_ipus", function()
    local b = popart.Builder()
    local d = b:addInputTensor("FLOAT", { 4 })
    local x = b.aiOnnx:sin({ d })
    local y = b.aiOnnx:add({ x, d })
    b:virtualGraph(x, 0)
    b:virtualGraph(y, 1)
    local s = helper.inference(b, popart.DataFlow(10, { [y] = ALL }), { options = PIPED,
      device = helper.device(2) })
    local data = torch.rand(10, 4)
    close(data:sin() + data, helper.run(s, { [d] = data })[y])
  end)

  it("test_sharding_multi_source", function()
    local b = popart.Builder()
    local d0, d1 = b:addInputTensor("FLOAT", { 10 }), b:addInputTensor("FLOAT", { 10 })
    local x, y = b.aiOnnx:sin({ d0 }), b.aiOnnx:exp({ d1 })
    local z = b.aiOnnx:mul({ x, y })
    for i, id in ipairs({ x, y, z }) do
      b:virtualGraph(id, i - 1)
    end
    local s = helper.inference(b, popart.DataFlow(10, { [z] = ALL }), { options = PIPED,
      device = helper.device(3) })
    local p, q = torch.rand(10, 10), torch.rand(10, 10)
    close(p:sin() * q:exp(), helper.run(s, { [d0] = p, [d1] = q })[z])
  end)

  it("test_inference_min_batches, test_training_min_batches", function()
    infer(3, PIPED, on)
    helper.refuses("popart_exception", "^For pipelining, depth", infer, 2, PIPED, on)
    model(PIPED, { batches = 3, ipus = 2, place = pairs_of(2) })
    helper.refuses("popart_exception", "^For pipelining, depth", model, PIPED, { batches = 2,
      ipus = 2, place = pairs_of(2) })
  end)

  it("test_output_matches_train", function()
    local given = { batches = 8, ipus = 2, place = pairs_of(2) }
    local want = model(nil, { batches = 8 })
    all_close(want, (model(MANUAL, given)))
    all_close(want, (model(PIPED, given)))
  end)

  it("test_acts_match_restored_acts", function()
    -- gradients follow from activations that were kept: equal ones mean equal activations
    all_close((model(nil, { accumulation = 8 })), (model(PIPED, { accumulation = 8, ipus = 4,
      place = pairs_of(4) })))
  end)

  it("test_output_matches_infer", function()
    local want = infer(8, nil, nil, 1)
    assert.is_true(torch.equal(want, (infer(8, MANUAL, on))))
    assert.is_true(torch.equal(want, (infer(8, PIPED, on))))
  end)

  it("test_pipeline_stage_errors", function()
    local function stages(list)
      return function(b, id, i)
        b:virtualGraph(id, i)
        if list[i + 1] then
          b:pipelineStage(id, list[i + 1])
        end
      end
    end
    helper.refuses("popart_exception", "^Ops .* have the same pipeline stage 1,", infer, 8, PIPED,
      stages({ 0, 1, 1 }))
    helper.refuses("popart_exception", "^Only some ops have had their pipeline stage set%.", infer,
      8, PIPED, stages({ 0, 1 }))
  end)

  it("test_pipeline_stages_backwards_through_ipus, "
    .. "test_multiple_stages_per_virtual_graph_inference", function()
      local want = infer(9, nil, nil, 1)
      for _, ipu_of in ipairs({ function(i) return 2 - i end, function(i) return i % 2 end }) do
        assert.is_true(torch.equal(want, (infer(9, PIPED, function(b, id, i)
          b:virtualGraph(id, ipu_of(i))
          b:pipelineStage(id, i)
        end))))
      end
    end)

  it("test_multiple_stages_per_virtual_graph_training", function()
    local function place(b, i, add)
      local _ <close> = b:virtualGraph(i % 2)
      local _ <close> = b:pipelineStage(i)
      return add()
    end
    all_close((model(nil, { accumulation = 8 })), (model(PIPED, { accumulation = 8, ipus = 2,
      place = place })))
  end)

  it("test_recomputation", function()
    local given = { accumulation = 8, ipus = 4, place = pairs_of(4) }
    all_close((model(PIPED, given)),
      (model(merged(PIPED, { autoRecomputation = Recompute.Pipeline }), given)))
  end)

  it("test_bad_auto_staging", function()
    helper.refuses("popart_exception", "^Tensor r0:0 is consumed in an earlier pipeline stage than "
      .. "it is produced", infer, 8, PIPED, function(b, id, i)
        b:virtualGraph(id, i % 2)
      end)
  end)

  it("test_pipeline_fwd_only_program_errors", function()
    helper.refuses("popart_exception", "createImplicitPipeliningFwdOnlyProgram", infer, 8,
      merged(PIPED, { createImplicitPipeliningFwdOnlyProgram = true }), on)
  end)
end)

describe("other tests of pipelines", function()
  it("test_pipeline_stage_merging", function()
    local function place(b, i, add)
      local _ <close> = b:virtualGraph(i // 2)
      local _ <close> = b:pipelineStage(i)
      return add()
    end
    local got, s = model(PIPED, { accumulation = 3, ipus = 2, place = place })
    all_close((model(nil, { accumulation = 3 })), got)
    assert.equal(2, #s:getReport().stages)
  end)

  it("test_pipelined_dropout, test_pipelined_recomputed_dropout", function()
    for _, kind in ipairs({ "NoRecompute", "Pipeline" }) do
      local b, ratio = popart.Builder(), 0.3
      local x, masks, h = b:addInputTensor("FLOAT", { 4, 100 }), {}, nil
      local w = b:addInitializedInputTensor(torch.ones(100))
      b:virtualGraph(0, function()
        h = b.aiOnnx:dropout({ b.aiOnnx:mul({ x, w }) }, 1, ratio)[1]
        masks[1] = h
      end)
      local loss = b:virtualGraph(1, function()
        masks[2] = b.aiOnnx:dropout({ h }, 1, ratio)[1]
        return helper.l1(b, masks[2], 1)
      end)
      local g = "Gradient___" .. w
      local s = helper.training(b, popart.DataFlow(1, { [masks[1]] = ALL, [masks[2]] = ALL,
        [g] = ALL }), loss, popart.ConstSGD(0.1), { device = helper.device(2),
        options = helper.loops(5, 1, merged(PIPED, { autoRecomputation = Recompute[kind] })) })
      local got = helper.run(s, { [x] = torch.ones(5, 4, 100) })
      -- of ones the output of both is the gradient to the input
      close(got[masks[2]]:sum(1), got[g])
    end
  end)

  it("test_pipeline_grad_accl_model1, test_pipeline_grad_accl_model2", function()
    for _, batches in ipairs({ 1, 3 }) do
      all_close((model(nil, { accumulation = 7, batches = batches })),
        (model(PIPED, { accumulation = 7, batches = batches, ipus = 4, place = pairs_of(4) })))
    end
  end)

  it("test_invalid_grad_accl_size", function()
    helper.refuses("popart_exception", "^For pipelining, depth %(gradient accumulation factor%)",
      model, PIPED, { accumulation = 4, ipus = 4, place = pairs_of(4) })
  end)

  it("test_multi_loss_pipeline_same, test_multi_loss_pipeline_different", function()
    for _, second in ipairs({ 0.1, 0.3 }) do
      local function losses(options, ipus, at)
        local b = popart.Builder()
        torch.manual_seed(3)
        local x = b:addInputTensor("FLOAT", { 2, 4 })
        local v, w = b:addInitializedInputTensor(torch.randn(4, 4)),
          b:addInitializedInputTensor(torch.randn(4, 4))
        local h, one = b:virtualGraph(0, function()
          local y = b.aiOnnx:matmul({ x, v })
          return y, helper.l1(b, y, 0.1)
        end)
        local loss = b:virtualGraph(at, function()
          return b.aiOnnx:add({ one, helper.l1(b, b.aiOnnx:matmul({ h, w }), second) })
        end)
        local s = helper.training(b, popart.DataFlow(1, { [loss] = ALL }), loss,
          popart.ConstSGD(0.01), { options = helper.loops(4, 1, options),
            device = helper.device(ipus) })
        torch.manual_seed(4)
        return merged(helper.run(s, { [x] = torch.randn(4, 2, 4) }), helper.weights(s, { v, w }))
      end
      all_close(losses(nil, 1, 0), losses(PIPED, 2, 1))
    end
  end)

  it("test_output_matches_replication_infer, test_output_matches_pipeline_infer", function()
    local b, d, out = linear(on)
    local s = helper.inference(b, popart.DataFlow(4, { [out[3]] = ALL }), {
      options = helper.loops(1, 2, PIPED), device = helper.device(6) })
    torch.manual_seed(1)
    local got = helper.run(s, { [d] = torch.rand(8, 10) })[out[3]]
    close((infer(8, nil, nil, 1)), got:reshape({ 8, 10 }))
  end)

  it("test_output_matches_pipeline_train", function()
    local one, _, ids = model(PIPED, { accumulation = 8, ipus = 2, place = pairs_of(2) })
    local two = model(PIPED, { accumulation = 4, replicas = 2, ipus = 2, place = pairs_of(2) })
    for _, id in ipairs(ids.weights) do
      close(one[id], two[id])
    end
  end)
end)

-- ---- virtual graphs ------------------------------------------------------------------------

describe("virtual_graph_check_test, virtual_graph_test", function()
  it("test_no_virtual_graph, test_all_virtual_graph, test_mixed_virtual_graph", function()
    infer(1, nil, nil, 1)
    infer(1, MANUAL, on)
    helper.refuses("popart_exception", "^Either all Ops must have their virtual graph ids set",
      infer, 1, MANUAL, function(b, id, i)
        if i ~= 1 then
          b:virtualGraph(id, i)
        end
      end)
  end)

  it("test_virtual_graph, test_virtual_graph_multi_output", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4 })
    local parts = b.aiOnnx:split({ x }, 2, 0, { 2, 2 })
    local y = b.aiOnnx:add(parts)
    b:virtualGraph(parts, 0)
    b:virtualGraph(y, 1)
    assert.equal(0, b:getVirtualGraph(parts))
    local s = helper.inference(b, popart.DataFlow(1, { y }), { options = MANUAL,
      device = helper.device(2) })
    assert.same({ 4.0, 6 }, helper.run(s, { [x] = torch.tensor({ 1.0, 2, 3, 4 }) })[y]:tolist())
  end)

  it("test_ipu_copy_bca1 … test_ipu_copy_bca5, test_copy_to_op_with_duplicate_inputs", function()
    -- {operator, operands (0: the input, else a node), its IPU}
    local MODELS = {
      { 8, { "add", 0, 0, 0 }, { "add", 0, 0, 0 }, { "add", 1, 2, 1 } },
      { 10, { "add", 0, 0, 0 }, { "add", 0, 0, 2 }, { "transpose", 0, nil, 2 },
        { "add", 1, 2, 1 }, { "add", 4, 3, 1 } },
      { 16, { "add", 0, 0, 0 }, { "add", 0, 0, 0 }, { "add", 1, 2, 1 }, { "add", 1, 2, 1 },
        { "add", 3, 4, 2 } },
      { 8, { "add", 0, 0, 0 }, { "add", 1, 1, 1 } },
      { 8, { "add", 0, 0, 0 }, { "mul", 0, 0, 1 }, { "add", 1, 2, 1 } },
    }
    for _, of in ipairs(MODELS) do
      local b, ids = popart.Builder(), {}
      ids[0] = b:addInputTensor("FLOAT", { 1 })
      for i = 2, #of do
        local name, first, second, ipu = table.unpack(of[i], 1, 4)
        ids[i - 1] = name == "transpose" and b.aiOnnx:transpose({ ids[first] }, {})
          or b.aiOnnx[name](b.aiOnnx, { ids[first], ids[second] })
        b:virtualGraph(ids[i - 1], ipu)
      end
      local s = helper.inference(b, popart.DataFlow(1, { ids[#ids] }), { options = MANUAL,
        device = helper.device(4) })
      assert.equal(of[1], helper.run(s, { [ids[0]] = torch.tensor({ 2.0 }) })[ids[#ids]]:item())
    end
  end)

  it("test_virtual_graph_bad_index", function()
    helper.refuses("popart_exception", "has the virtual graph id 2, the device has 2 IPUs", infer,
      1, MANUAL, on, 2)
  end)

  it("test_streaming_optimizer_tensors", function()
    local optimizer = popart.SGD({ defaultLearningRate = { 0.1, false },
      defaultWeightDecay = { 0.2, false } })
    all_close((model(nil, { optimizer = optimizer })), (model(MANUAL, { optimizer = optimizer,
      ipus = 2, place = pairs_of(2) })))
  end)
end)

describe("auto_virtual_graph_test", function()
  -- IPUs of the operators that read the weights A, B, ….
  local function places(ipus, ratios, weights)
    local b = popart.Builder()
    local zeros = torch.zeros(64, 64):half()
    local x0, x1 = b:addInputTensor("FLOAT16", { 1, 64 }), b:addInputTensor("FLOAT16", { 1, 64 })
    local function product(x, name)
      return b.aiOnnx:matmul({ x, b:addInitializedInputTensor(zeros, name) })
    end
    local y = product(product(x0, "A"), "B")
    if weights ~= 2 then
      y = product(b.aiOnnx:add({ y, product(x1, "C") }), "D")
    end
    local s = popart.InferenceSession({ fnModel = b:getModelProto(),
      dataFlow = popart.DataFlow(1, { y }), deviceInfo = helper.device(ipus),
      userOptions = helper.options({ virtualGraphMode = Mode.Auto,
        virtualGraphSplitRatios = ratios or {} }) })
    local out = {}
    for _, op in ipairs(core.json_decode(s:_serializeIr(popart.IrSerializationFormat.JSON))
      .maingraph) do
      for _, input in ipairs(op.inputs) do
        out[input.name] = tonumber(op.attributes.__ipu_number)
      end
    end
    return { out.A, out.B, out.C, out.D }
  end

  it("test_auto_virtual_graph_subgraphs_1", function()
    assert.same({ 0, 0, 0, 0 }, places(1))
  end)

  it("test_auto_virtual_graph_subgraphs_2", function()
    assert.same({ 0, 0, 1, 1 }, places(2))
  end)

  it("test_auto_virtual_graph_subgraphs_4", function()
    assert.same({ 0, 1, 2, 3 }, places(4))
  end)

  it("test_auto_virtual_graph_subgraphs_4_with_user_parameters", function()
    assert.same({ 0, 1, 2, 3 }, places(4, { 0.25, 0.25, 0.25, 0.25 }))
  end)

  it("test_auto_virtual_graph_not_enough_splits", function()
    helper.refuses("popart_exception", "^%[AutoVirtualGraph%] Couldn't find enough splits", places,
      4, nil, 2)
  end)

  it("test_auto_virtual_graph_inf_2, test_auto_virtual_graph_inf_many, "
    .. "test_auto_virtual_graph_train", function()
      local auto = { virtualGraphMode = Mode.Auto }
      local want = infer(3, nil, nil, 1)
      assert.is_true(torch.equal(want, (infer(3, auto, nil, 2))))
      for _, ipus in ipairs({ 2, 3, 4 }) do
        all_close((model()), (model(auto, { ipus = ipus })))
      end
    end)
end)

-- ---- accumulation, replicas ----------------------------------------------------------------

describe("gradient_accumulation_test", function()
  local function adam()
    return popart.Adam({ defaultLearningRate = { 0.01, true } })
  end

  it("test_gradient_accumulation_multi_batch, test_adam_gradient_accumulation_multi_batch",
    function()
      for _, optimizer in ipairs({ popart.SGD({ defaultLearningRate = { 0.02, true },
        defaultMomentum = { 0.9, true } }), adam() }) do
        local want, _, ids = model(nil, { batches = 5, accumulation = 4, optimizer = optimizer })
        local runs = model(nil, { batches = 5, accumulation = 2, replicas = 2,
          optimizer = optimizer })
        for _, id in ipairs(ids.weights) do
          close(want[id], runs[id], 1e-4)
        end
      end
    end)

  it("test_gradient_accumulation_multi_ipu, test_adam_gradient_accumulation_multi_ipu", function()
    for _, optimizer in ipairs({ popart.ConstSGD(0.02), adam() }) do
      all_close((model(nil, { accumulation = 4, optimizer = optimizer })), (model(MANUAL,
        { accumulation = 4, ipus = 2, place = pairs_of(2), optimizer = optimizer })), 1e-5)
    end
  end)

  it("test_gradient_accumulation_error_inference, "
    .. "test_gradient_accumulation_error_accum_factor_invalid", function()
      helper.refuses("popart_exception", "^Gradient Accumulation only available when training",
        infer, 1, { enableGradientAccumulation = true, accumulationFactor = 4 }, nil, 1)
      helper.refuses("popart_exception", "^enableGradientAccumulation is false, but "
        .. "accumulationFactor > 1%.", model, { accumulationFactor = 4 })
    end)

  it("test_adam_gradient_accumulation_model_proto, "
    .. "test_adam_loading_saved_gradient_accumulationt_tensors", function()
      local path = os.tmpname()
      local _, s, ids = model(nil, { accumulation = 2, batches = 3, optimizer = adam() })
      s:modelToHost(path)
      local found = {}
      for _, t in ipairs(require("lupine.onnx.proto").read(path).graph.initializer) do
        found[t.name] = require("lupine.onnx.tensors").read(t)
        assert.is_nil(t.name:find("^Accum___"))
      end
      os.remove(path)
      for _, id in ipairs(ids.weights) do
        assert.is_true(found["Accl1___" .. id]:abs():max():item() > 0)
        assert.is_true(found["Accl2___" .. id]:abs():max():item() > 0)
        assert.equal(3, found["Step___" .. id]:item())
      end
    end)
end)

describe("graph_replication_test, identical_replica_test", function()
  it("test_weight_update, test_weight_update_replicated", function()
    -- w0 of a product and a bias; of replicas the gradients are summed
    local function gemm(replicas, accumulation)
      local b = popart.Builder()
      local shape = { 2, 2 }
      local a = b:addInputTensor("FLOAT", shape)
      local B = b:addInitializedInputTensor(torch.full(shape, 2.0), "B")
      local C = b:addInitializedInputTensor(torch.full(shape, 3.0), "C")
      local y = b.aiOnnx:gemm({ a, B, C })
      local s = helper.training(b, popart.DataFlow(1), helper.l1(b, y, 0.1), popart.ConstSGD(0.01),
        { options = helper.loops(accumulation, replicas), device = helper.device(replicas) })
      s:run(popart.PyStepIO({ [a] = torch.ones(replicas * accumulation, 2, 2) }, {}))
      return helper.weights(s, { B, C })
    end
    -- l1 of positive values: 0.1 each; B's gradient is a' * 0.1, both rows' sum
    local one = gemm(1, 1)
    close(torch.full({ 2, 2 }, 2 - 0.01 * 0.2), one.B)
    close(torch.full({ 2, 2 }, 3 - 0.01 * 0.1), one.C)
    local four = gemm(4, 1)
    close(torch.full({ 2, 2 }, 2 - 4 * 0.01 * 0.2), four.B)
    all_close(four, gemm(1, 4))
  end)

  it("test_replication_infer", function()
    local b, d, out = linear()
    local s = helper.inference(b, popart.DataFlow(2, { [out[3]] = ALL }), {
      options = helper.loops(1, 4), device = helper.device(4) })
    torch.manual_seed(1)
    local got = helper.run(s, { [d] = torch.rand(8, 10) })[out[3]]
    close((infer(8, nil, nil, 1)), got:reshape({ 8, 10 }))
  end)

  it("test_replica_bitwise_identical_update", function()
    local b, ids = helper.layers(2, 3)
    local w = ids.weights[1]
    local s = helper.training(b, popart.DataFlow(1, { [w] = ALL }), ids.loss,
      popart.SGD({ defaultLearningRate = { 0.1, true }, defaultMomentum = { 0.9, true } }),
      { options = helper.loops(3, 2), device = helper.device(2) })
    local got = helper.run(s, { [ids.x] = torch.randn(6, 3, 4) })[w]
    assert.is_true(torch.equal(got:select(1, 0), got:select(1, 1)))
  end)
end)

-- ---- trainings against eager modules ---------------------------------------------------------

describe("trainings", function()
  it("of a convolution and a product equal eager ones", function()
    torch.manual_seed(9)
    local x = torch.randn(3, 2, 3, 8, 8) -- three batches of two images
    local k, w = torch.randn(4, 3, 3, 3) / 5, torch.randn(4 * 6 * 6, 5) / 10
    local b = popart.Builder()
    local d = b:addInputTensor("FLOAT", { 2, 3, 8, 8 })
    local K, W = b:addInitializedInputTensor(k:clone(), "k"),
      b:addInitializedInputTensor(w:clone(), "w")
    local h = b.aiOnnx:flatten({ b.aiOnnx:relu({ b.aiOnnx:conv({ d, K }) }) })
    local loss = helper.l1(b, b.aiOnnx:matmul({ h, W }), 0.1)
    local s = helper.training(b, popart.DataFlow(3, { [loss] = ALL }), loss,
      popart.SGD({ defaultLearningRate = { 0.01, true }, defaultMomentum = { 0.9, true },
        defaultWeightDecay = { 0.1, true } }))
    local losses = helper.run(s, { [d] = x })[loss]
    k:requires_grad_(true)
    w:requires_grad_(true)
    local sgd = torch.optim.SGD({ k, w }, { lr = 0.01, momentum = 0.9, weight_decay = 0.1 })
    for i = 0, 2 do
      sgd:zero_grad()
      local out = torch.nn.functional.conv2d(x[i], k):relu():flatten(1):matmul(w)
      local l = out:abs():sum() * 0.1
      l:backward()
      sgd:step()
      assert.near(l:item(), losses[i]:item(), 1e-3)
    end
    all_close({ k = k:detach(), w = w:detach() }, helper.weights(s, { K, W }), 1e-4)
  end)
end)

describe("serializematmul", function()
  local function product(mode, factor, options)
    local b = popart.Builder()
    torch.manual_seed(5)
    local x, w = b:addInputTensor("FLOAT", { 2, 4 }), b:addInitializedInputTensor(torch.rand(4, 6))
    local y = b.aiOnnx:matmul({ x, w })
    if mode then
      b:setSerializeMatMul({ y }, mode, factor, true)
    end
    local s = helper.training(b, popart.DataFlow(1, { [y] = ALL }), helper.l1(b, y, 0.1),
      popart.ConstSGD(0.1), { options = options })
    local n = options and options.accumulationFactor or 1
    return merged(helper.run(s, { [x] = torch.rand(n, 2, 4) }), helper.weights(s, { w }))
  end

  it("test_matmul_serialization_invalid_mode, test_matmul_serialization_invalid_factor", function()
    helper.refuses("popart_exception", "^Unsupported mat mul serialization mode", product,
      "invalid_mode", 2)
    helper.refuses("popart_exception", "Invalid serialisation factor 4 for output channels dim 6%. "
      .. "output_channels dim should be a multiple of the serialisation factor", product,
      "output_channels", 4)
  end)

  it("test_matmul_serialization_inference, test_matmul_serialization_training_1, "
    .. "test_matmul_serialization_training_with_gradient_accumlation", function()
      for _, options in ipairs({ {}, helper.loops(4) }) do
        local want = product(nil, nil, options)
        for mode, factor in pairs({ input_channels = 2, reducing_dim = 4, output_channels = 2 }) do
          all_close(want, product(mode, factor, options))
        end
      end
    end)
end)
