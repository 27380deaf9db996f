--- Automatic loss scaling in sessions: cases L2, L4, L5 and L7, with a model that has
--- gradients of float16 of a product, a ReLU, a normalisation and a convolution.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local SHAPE = { 2, 4, 2, 2 }

-- A product, a ReLU, a normalisation, a convolution and the negative log-likelihood of
-- its softmax; `wide`: of a float32 softmax.
local function model(wide)
  torch.manual_seed(1)
  local b, m = popart.Builder(), {}
  m.x = b:addInputTensor("FLOAT16", SHAPE)
  local data = torch.rand(SHAPE):half()
  m.w, m.k = b:addInitializedInputTensor(data), b:addInitializedInputTensor(data)
  local y = b.aiOnnx:relu({ b.aiOnnx:matmul({ m.x, m.w }) })
  local ids = { y }
  for i = 2, 5 do
    ids[i] = b:addInitializedInputTensor(torch.rand(4):half())
  end
  m.scale, m.bias = ids[2], ids[3]
  m.normal = b.aiOnnx:batchnormalization(ids, 5, 1e-5, 0.1)[1]
  y = b:reshape_const(b.aiOnnx, { b.aiOnnx:conv({ m.normal, m.k }) }, { 2, 2 })
  if wide then
    y = b.aiOnnx:cast({ y }, "FLOAT")
  end
  m.labels = b:addInputTensor("INT32", { 2 })
  m.loss = b.aiGraphcore:nllloss({ b.aiOnnx:softmax({ y }), m.labels },
    popart.ReductionType.Mean, 1)
  m.builder, m.ids = b, { m.w, m.k, m.scale, m.bias }
  return m
end

local function inputs(m, n, scale)
  torch.manual_seed(2)
  return { [m.x] = torch.rand(n, table.unpack(SHAPE)):mul(scale or 1):half(),
    [m.labels] = torch.randint(0, 2, { n, 2 }):int() }
end

local function settings(fields)
  local of = popart.SessionOptions().automaticLossScalingSettings
  of.enabled, of.binEdgeLocation, of.thresholdUpperCountProportion = true, 0.5, 0.2
  for name, value in pairs(fields or {}) do
    of[name] = value
  end
  return of
end

local function sgd(scale, more)
  local values = { lossScaling = { scale, false } }
  for name, value in pairs(more or {}) do
    values[name] = { value, false }
  end
  return popart.SGD(values)
end

local function scales(flow_length, given, fields, more)
  local m = model()
  local s = helper.training(m.builder, popart.DataFlow(flow_length, { "finalLossScale" }), m.loss,
    sgd(given), { options = helper.loops(more.accumulation or 1, more.replicas or 1,
      { automaticLossScalingSettings = settings(fields) }),
      device = helper.device(more.replicas or 1) })
  local n = flow_length * (more.accumulation or 1) * (more.replicas or 1)
  return helper.run(s, inputs(m, n)).finalLossScale
end

describe("automatic loss scaling", function()
  it("L2: doubles the scale at every update while gradients are small", function()
    local got = scales(8, 10.0, {}, {})
    assert.same({ 10, 20, 40, 80, 160, 320, 640, 1280 }, got:tolist())
    got = scales(8, 10.0, { updatePeriod = 2 }, {})
    assert.same({ 10, 20, 20, 40, 40, 80, 80, 160 }, got:tolist())
  end)

  it("L2: changes it once for all micro-batches of an update", function()
    local got = scales(8, 10.0, {}, { accumulation = 3 })
    local second = scales(8, 10.0, { updatePeriod = 2 }, { accumulation = 3 })
    for i, pair in ipairs({ { 10, 10 }, { 20, 20 }, { 40, 20 }, { 80, 40 }, { 160, 40 },
      { 320, 80 }, { 640, 80 }, { 1280, 160 } }) do
      assert.same({ pair[1], pair[1], pair[1] }, got[i - 1]:tolist())
      assert.same({ pair[2], pair[2], pair[2] }, second[i - 1]:tolist())
    end
  end)

  it("halves the scale while gradients are large", function()
    local m = model()
    local s = helper.training(m.builder, popart.DataFlow(4, { "finalLossScale" }), m.loss,
      sgd(1024.0), { options = { automaticLossScalingSettings = settings({
        binEdgeLocation = 1e-20, thresholdUpperCountProportion = 0.1 }) } })
    local data = inputs(m, 4)
    data[m.labels] = torch.zeros(4, 2, { dtype = torch.int32 }) -- 1 is ignored
    assert.same({ 1024, 512, 256, 128 }, helper.run(s, data).finalLossScale:tolist())
  end)

  it("counts the elements of the tracked gradients over micro-batches", function()
    local Method = popart.GradientTensorTrackingMethod
    -- what the loss itself is differentiated by is counted, too: 23 elements
    for method, n in pairs({ ConvAndMatmulGradients = 3 * 32,
      AllNonViewChangingGradientTensors = 4 * 32 + 23 }) do
      local m = model()
      local s = helper.training(m.builder, popart.DataFlow(4, { "Accum___autoLossScaleStats",
        "finalLossScale" }), m.loss, sgd(1000.0), { options = helper.loops(5, 1, {
          automaticLossScalingSettings = settings({
            gradientTensorTrackingMethod = Method[method] }) }) })
      local got = helper.run(s, inputs(m, 20, 10000))
      for batch = 0, 3 do
        for i = 0, 4 do
          assert.equal(n * (i + 1), got.Accum___autoLossScaleStats[batch][i]:sum():item())
          assert.equal(got.finalLossScale[batch][0]:item(), got.finalLossScale[batch][i]:item())
        end
      end
    end
  end)

  it("looks at the gradients of the tensors that it is told", function()
    local m = model()
    local tracked = { m.k, m.normal, m.w }
    local s = helper.training(m.builder, popart.DataFlow(2, { "Accum___autoLossScaleStats",
      "finalLossScale" }), m.loss, sgd(8.0, { defaultLearningRate = 0.1 }), { options = {
        automaticLossScalingSettings = settings({ toTrackTensors = tracked,
          gradientTensorTrackingMethod = popart.GradientTensorTrackingMethod
            .GradientsOfUserSpecifiedTensors }) } })
    local got = helper.run(s, inputs(m, 2))
    assert.same({ 96, 0 }, got.Accum___autoLossScaleStats[0]:tolist())
    assert.same({ 8, 16 }, got.finalLossScale:tolist())
    -- the optimizer may change its rate: the factor stays
    local rate = sgd(8.0, { defaultLearningRate = 0.01 })
    s:updateOptimizerFromHost(rate)
    assert.same({ 32, 64 }, helper.run(s, inputs(m, 2)).finalLossScale:tolist())
  end)

  local OTHERS = {
    SGD = { popart.SGD, { defaultMomentum = 0.5, defaultVelocityScaling = 0.5,
      defaultDampening = 0.5, defaultWeightDecay = 0.5 } },
    Separate = { function(values)
      return popart.SGD(values, {}, popart.SGDAccumulatorAndMomentum.Separate)
    end, { defaultMomentum = 0.5, defaultDampening = 0.5 } },
    Plain = { popart.SGD, { defaultWeightDecay = 0.5 } },
    Adam = { popart.Adam, { defaultLearningRate = 0.5, defaultWeightDecay = 0.5,
      defaultBeta1 = 0.5, defaultBeta2 = 0.5, defaultEps = 0.5 } },
    Adaptive = { popart.Adaptive, { defaultLearningRate = 0.5, defaultAlpha = 0.5,
      defaultMomentum = 0.5, defaultWeightDecay = 0.5, defaultEps = 0.5 } },
  }

  local function weights(m, other, scale, loops, fields)
    local values = { lossScaling = { scale, false } }
    for name, value in pairs(other[2]) do
      values[name] = { value, false }
    end
    local options = helper.loops(loops[1], loops[2],
      fields and { automaticLossScalingSettings = settings(fields) })
    local s = helper.training(m.builder, popart.DataFlow(3), m.loss, other[1](values),
      { options = options, device = helper.device(loops[2]) })
    helper.run(s, inputs(m, 3 * loops[1] * loops[2]))
    return helper.weights(s, m.ids)
  end

  for name, other in pairs(OTHERS) do
    it("L5: changes no update of " .. name, function()
      local cases = { { 8.0, { 1, 1 } }, { 8.0, { 3, 1 } }, { 8.0, { 2, 2 } } }
      for _, case in ipairs(cases) do
        local m = model()
        local want = weights(m, other, case[1], case[2])
        local got = weights(m, other, case[1], case[2], {})
        for id, t in pairs(want) do
          assert.is_true(torch.allclose(got[id]:float(), t:float(),
            { rtol = 4e-3, atol = 4e-3 }), id)
          assert.is_true(torch.isfinite(t):all():item())
        end
      end
    end)
  end

  it("L5: changes no update where the scale is beyond float16", function()
    for _, scale in ipairs({ 65536.0, 2.0 ^ 26 }) do
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT16", { 2, 4 })
      local w = b:addInitializedInputTensor(torch.eye(4):half())
      local y = b.aiOnnx:cast({ b.aiOnnx:matmul({ x, w }) }, "FLOAT")
      local loss = b.aiOnnx:reducesum({ b.aiGraphcore:scale({ y }, 2 ^ -27) }, { keepdims = 0 })
      for _, fields in ipairs({ false, {} }) do
        local s = helper.training(b, popart.DataFlow(3), loss, sgd(scale,
          { defaultLearningRate = 0.1 * 2 ^ 27 }), { options = fields and {
            automaticLossScalingSettings = settings(fields) } or {} })
        helper.run(s, { [x] = torch.ones(3, 2, 4):half() })
        local got = helper.weights(s, { w })[w]:float()
        assert.is_true(torch.allclose(got, torch.eye(4) - 0.6, { rtol = 2e-3, atol = 2e-3 }))
      end
    end
  end)

  it("decides by the counts of all replicas", function()
    local one = scales(3, 10.0, {}, { accumulation = 2 })
    local two = scales(3, 10.0, {}, { accumulation = 2, replicas = 2 })
    for batch = 0, 2 do
      local values = two[batch]:reshape(-1):tolist()
      for _, value in ipairs(values) do
        assert.equal(one[batch][0]:item(), value)
      end
    end
  end)

  it("L7: keeps its factor when the learning rate changes, and the optimizer its scale", function()
    local m = model()
    local s = helper.training(m.builder, popart.DataFlow(3, { "lossScaling_FLOAT16",
      "finalLossScale", "lossScaleUpdateFactor" }), m.loss, sgd(1000.0,
        { defaultLearningRate = 0.01 }), { options = {
        automaticLossScalingSettings = settings() } })
    local first = helper.run(s, inputs(m, 3))
    assert.same({ 1000, 1000, 1000 }, first.lossScaling_FLOAT16:tolist())
    assert.same({ 1000, 2000, 4000 }, first.finalLossScale:tolist())
    assert.same({ 2, 4, 8 }, first.lossScaleUpdateFactor:tolist())
    s:updateOptimizerFromHost(sgd(1000.0, { defaultLearningRate = 0.02 }))
    local second = helper.run(s, inputs(m, 3))
    assert.same({ 1000, 1000, 1000 }, second.lossScaling_FLOAT16:tolist())
    assert.same({ 8000, 16000, 32000 }, second.finalLossScale:tolist())
  end)

  it("is in the model that is written, with its place in the period", function()
    local files = require("spec.support.files")
    local m = model()
    local function session(from)
      return helper.training(m.builder, popart.DataFlow(3, { "finalLossScale" }), m.loss,
        sgd(10.0), { model = from, options = {
          automaticLossScalingSettings = settings({ updatePeriod = 4 }) } })
    end
    local s, data = session(), inputs(m, 3)
    assert.same({ 10, 20, 20 }, helper.run(s, data).finalLossScale:tolist())
    local folder <close> = setmetatable({ path = files.folder() }, { __close = function(f)
      files.remove(f.path)
    end })
    local path = folder.path .. "/scaled.onnx"
    s:modelToHost(path)
    local states = {}
    for _, t in ipairs(require("lupine.onnx").read(path).graph.initializer) do
      states[t.name] = t
    end
    assert.is_truthy(states.lossScaleUpdateFactor)
    assert.is_truthy(states.Histogram_counter)
    assert.same({ 20, 20, 40 }, helper.run(session(path), data).finalLossScale:tolist())
  end)

  it("L4: is refused where it cannot be", function()
    local m = model()
    local function refused(text, optimizer, fields, more)
      helper.refuses("popart_exception", text, helper.training, m.builder, popart.DataFlow(1),
        m.loss, optimizer, { options = helper.loops(1, 1, { automaticLossScalingSettings =
          settings(fields), enablePipelining = more, virtualGraphMode = more
            and popart.VirtualGraphMode.Manual or nil }), device = helper.device(2) })
    end
    local Method = popart.GradientTensorTrackingMethod
    refused("The optimizer must have non%-const loss scaling",
      popart.SGD({ lossScaling = { 2.0, true } }))
    refused("scaledOptimizerState and automaticLossScaling are not compatible",
      popart.Adam({ values = { lossScaling = { 2.0, false } }, scaled_optimizer_state = true }))
    refused("^%[AutomaticLossScale transform%] Out of range value for 'binEdgeLocation'", sgd(2.0),
      { binEdgeLocation = 1.1 })
    refused("^Out of range value for 'thresholdUpperCountProportion'", sgd(2.0),
      { thresholdUpperCountProportion = -0.1 })
    refused("An empty list was set", sgd(2.0), { toTrackTensors = {} })
    refused("do not exist in the model: 'nobody'", sgd(2.0), { toTrackTensors = { "nobody" },
      gradientTensorTrackingMethod = Method.GradientsOfUserSpecifiedTensors })
    refused("not currently supported when the 'enablePipelining'", sgd(2.0), {}, true)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2, 2 })
    local w = b:addInitializedInputTensor(torch.eye(2))
    local loss = helper.l1(b, b.aiOnnx:matmul({ x, w }), 1.0)
    for text, fields in pairs({ ["No tracked gradient tensors of type fp16 were found.$"] = {},
      ["Unsupported data type float32 for to%-track tensor"] = { toTrackTensors = { w },
        gradientTensorTrackingMethod = Method.GradientsOfUserSpecifiedTensors } }) do
      helper.refuses("popart_exception", text, helper.training, b, popart.DataFlow(1), loss,
        sgd(2.0), { options = { automaticLossScalingSettings = settings(fields) } })
    end
  end)

  it("trains in a pipeline with accumulation as without", function()
    local function scale_and_weights(pipelined)
      torch.manual_seed(3)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT16", { 2, 4 })
      local ids, y = {}, x
      for i = 0, 1 do
        ids[i + 1] = b:addInitializedInputTensor(torch.randn(4, 4):half())
        y = b.aiOnnx:matmul({ y, ids[i + 1] })
        if pipelined then
          b:virtualGraph(y, i)
          b:pipelineStage(y, i)
        end
      end
      local loss = b.aiGraphcore:identityloss({ y }, popart.ReductionType.Sum)
      if pipelined then
        b:virtualGraph(loss, 1)
        b:pipelineStage(loss, 1)
      end
      local s = helper.training(b, popart.DataFlow(3, { "finalLossScale" }), loss, sgd(4.0, {
        defaultLearningRate = 0.001 }), { device = helper.device(pipelined and 2 or 1),
          options = helper.loops(4, 1, { automaticLossScalingSettings = settings({
            thresholdUpperCountProportion = 1e-7, binEdgeLocation = 0.001 }),
            enablePipelining = pipelined, virtualGraphMode =
              pipelined and popart.VirtualGraphMode.Manual or nil }) })
      local got = helper.run(s, { [x] = torch.randn(12, 2, 4):half() })
      return got.finalLossScale:tolist(), helper.weights(s, ids)
    end
    local want, weights_then = scale_and_weights(nil)
    local got, weights_now = scale_and_weights(true)
    assert.same(want, got)
    for id, t in pairs(weights_then) do
      assert.is_true(torch.equal(t, weights_now[id]))
    end
  end)
end)
