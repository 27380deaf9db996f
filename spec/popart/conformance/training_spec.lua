-- Training through sessions: optimizers, micro-batches, replicas, groups of replicas,
-- scaling of losses.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")

-- ---- optimizers: the sum of two weights' elements ------------------------------------------

-- Two weights of which the loss is the sum, so that all gradients are 1; the weights after
-- `steps` updates, given the optimizers (the first one, then what takes its place).
local function sum_of_weights(steps, optimizers, given)
  given = given or {}
  local replicas, accumulation = given.replicas or 1, given.accumulation or 1
  local b = popart.Builder()
  local x = b:addInputTensor("FLOAT", { 1 })
  local w0 = b:addInitializedInputTensor(torch.tensor({ 100.0 }), "w0")
  local w1 = b:addInitializedInputTensor(torch.tensor({ 200.0 }), "w1")
  local loss = helper.l1(b, b.aiOnnx:add({ b.aiOnnx:add({ x, w0 }), w1 }), 1)
  local s = helper.training(b, popart.DataFlow(1), loss, optimizers[1], {
    options = helper.loops(accumulation, replicas, given.options),
    device = helper.device(replicas) })
  for i = 1, steps do
    if i > 1 and optimizers[i] then
      s:updateOptimizerFromHost(optimizers[i])
    end
    s:run(popart.PyStepIO({ [x] = torch.zeros(replicas * accumulation) }, {}))
  end
  local w = helper.weights(s, { w0, w1 })
  return w[w0]:item(), w[w1]:item(), s
end

local function near(a, b, w0, w1)
  assert.near(a, w0, 1e-4)
  assert.near(b, w1, 1e-4)
end

local MODES = { popart.SGDAccumulatorAndMomentum.Combined,
  popart.SGDAccumulatorAndMomentum.Separate }

describe("an optimizer in a session", function()
  it("E1: without momentum is plain descent", function()
    near(100 - 0.75, 200 - 0.75, sum_of_weights(3, { popart.ConstSGD(0.25) }))
  end)

  it("E2, E3: with momentum 1 sums gradients, whatever velocity and loss are scaled by", function()
    for _, mode in ipairs(MODES) do
      for _, const in ipairs({ true, false }) do
        for _, scale in ipairs({ { 1.0, 1.0 }, { 14.15, 0.15 } }) do
          local sgd = popart.SGD({ defaultLearningRate = { 0.25, const },
            defaultMomentum = { 1.0, const }, defaultVelocityScaling = { scale[1], const },
            lossScaling = { scale[2], const } }, { accumulatorAndMomentum = mode })
          near(98.5, 198.5, sum_of_weights(3, { sgd }))
        end
      end
    end
  end)

  it("E5: sums micro-batches and replicas", function()
    for _, mode in ipairs(MODES) do
      local sgd = popart.SGD({ defaultLearningRate = { 0.25, true },
        defaultMomentum = { 1.0, true } }, { accumulatorAndMomentum = mode })
      for _, loops in ipairs({ { 5, 1 }, { 1, 2 }, { 5, 2 } }) do
        local times = loops[1] * loops[2]
        near(100 - times * 1.5, 200 - times * 1.5, sum_of_weights(3, { sgd },
          { accumulation = loops[1], replicas = loops[2] }))
      end
    end
  end)

  it("E5: with the mean of them moves as with one", function()
    local sgd = popart.SGD({ defaultLearningRate = { 0.25, true },
      defaultMomentum = { 1.0, true } })
    for _, strategy in ipairs({ "Post", "Running" }) do
      near(98.5, 198.5, sum_of_weights(3, { sgd }, { accumulation = 5, replicas = 2, options = {
        accumulationAndReplicationReductionType = popart.ReductionType.Mean,
        meanAccumulationAndReplicationReductionStrategy =
          popart.MeanReductionStrategy[strategy] } }))
    end
  end)

  it("E10: has weights with values of their own", function()
    local sgd = popart.SGD({ defaultLearningRate = { 0.5, false } })
    sgd:insertSpecific("w0", { learningRate = { 0.1, false } })
    near(100 - 0.3, 200 - 1.5, sum_of_weights(3, { sgd }))
  end)

  it("is what the session was given, whatever its script does to it later", function()
    local b = popart.Builder()
    local w = b:addInitializedInputTensor(torch.ones(1), "w0")
    local loss = b.aiGraphcore:l1loss({ w }, 1.0)
    local sgd, flow = popart.SGD({ defaultLearningRate = { 0.5, false } }), popart.DataFlow(1)
    local s = popart.TrainingSession({ fnModel = b:getModelProto(), dataFlow = flow, loss = loss,
      optimizer = sgd, deviceInfo = helper.device() })
    sgd:insertSpecific(w, { learningRate = { 0.25, false } })
    flow:setBatchesPerStep(3)
    s:prepareDevice()
    s:weightsFromHost()
    helper.run(s, {})
    assert.same({ 0.5 }, helper.weights(s, { w })[w]:tolist())
    assert.equal(1, s.dataFlow:batchesPerStep())
    helper.refuses("optimizer_replacement_error", "different number of specific tensors",
      s.updateOptimizerFromHost, s, sgd)
    local next_one = popart.SGD({ defaultLearningRate = { 0.125, false } })
    s:updateOptimizerFromHost(next_one)
    next_one:insertSpecific(w, { learningRate = { 0.25, false } })
    s:optimizerFromHost()
    helper.run(s, {})
    assert.same({ 0.375 }, helper.weights(s, { w })[w]:tolist())
  end)

  it("is told of values that no weight has", function()
    local sgd = popart.SGD({ defaultLearningRate = { 0.5, false } })
    sgd:insertSpecific("w0", { learningRate = { 0.1, false } })
    sgd:insertSpecific("w", { learningRate = { 0.1, false } })
    local b = popart.Builder()
    local w = b:addInitializedInputTensor(torch.ones(2), "w0")
    local s = helper.training(b, popart.DataFlow(1), b.aiGraphcore:l1loss({ w }, 1.0), sgd)
    assert.same({ "SGD.insertSpecific of 'w': no weight has that name" }, s:getReport().no_effect)
  end)

  it("learns at the rate of each update", function()
    local list = {}
    for i, rate in ipairs({ 0.5, 0.25, 0.125 }) do
      list[i] = popart.SGD({ defaultLearningRate = { rate, false } })
    end
    near(100 - 0.875, 200 - 0.875, sum_of_weights(3, list))
  end)

  it("is replaced by one that the program was compiled for, and no other", function()
    local function sgd(more)
      local values = { defaultLearningRate = { 0.5, false } }
      for k, v in pairs(more or {}) do
        values[k] = v
      end
      return popart.SGD(values)
    end
    for _, other in ipairs({ popart.Adam({}), popart.ConstSGD(0.5),
      sgd({ defaultMomentum = { 0.9, false } }), sgd({ defaultWeightDecay = { 0.1, true } }) }) do
      helper.refuses("optimizer_replacement_error", "New optimizer is not a valid replacement",
        sum_of_weights, 2, { sgd(), other })
      local b = popart.Builder()
      local x = b:addInitializedInputTensor(torch.ones(1))
      local s = helper.training(b, popart.DataFlow(1), b.aiGraphcore:l1loss({ x }, 1.0), sgd(),
        { prepare = false })
      helper.refuses("optimizer_replacement_error", "New optimizer is not a valid replacement",
        s.updateOptimizerFromHost, s, other)
    end
  end)

  it("E17, E20: of every kind trains", function()
    for _, optimizer in ipairs({ popart.Adam({ defaultLearningRate = { 0.5, true } }),
      popart.Adam({ defaultLearningRate = { 0.5, true } }, popart.AdamMode.AdaMax),
      popart.Adaptive({ defaultLearningRate = { 0.5, true } }, popart.AdaptiveMode.RMSProp) }) do
      local w0, w1 = sum_of_weights(3, { optimizer })
      assert.is_true(w0 < 99.5 and w1 < 199.5)
      assert.near(100 - w0, 200 - w1, 1e-3) -- the same gradients move both alike
    end
    -- of Adam with gradients of 1 each step is the learning rate
    near(98.5, 198.5, sum_of_weights(3, { popart.Adam({ defaultLearningRate = { 0.5, true } }) }))
  end)

  it("E22: clips the norm of all gradients", function()
    local sgd = popart.SGD({ defaultLearningRate = { 0.25, true } },
      { popart.ClipNormSettings.clipAllWeights(0.5) })
    local d = 3 * 0.25 * 0.5 / math.sqrt(2)
    near(100 - d, 200 - d, sum_of_weights(3, { sgd }))
  end)
end)

-- ---- micro-batches ---------------------------------------------------------------------------

local HIDDEN = 16

-- Six products; the weights after a batch of 12 rows in `accumulation` micro-batches, and
-- the session.
local function batch_of_12(accumulation, optimizer, options, replicas)
  replicas = replicas or 1
  local b, rows = popart.Builder(), 12 // (accumulation * replicas)
  torch.manual_seed(11)
  local x, ids = b:addInputTensor("FLOAT", { rows, HIDDEN }), {}
  local h = x
  for i = 1, 6 do
    ids[i] = b:addInitializedInputTensor(torch.randn(HIDDEN, HIDDEN) / 4, "w" .. i)
    h = b.aiOnnx:matmul({ h, ids[i] })
  end
  local loss = helper.l1(b, h, 0.1)
  local s = helper.training(b, popart.DataFlow(1, { [loss] = ALL }), loss, optimizer, {
    options = helper.loops(accumulation, replicas, options), device = helper.device(replicas) })
  local first = helper.weights(s, ids)
  helper.run(s, { [x] = torch.randn(12, HIDDEN) })
  return helper.weights(s, ids), first, s
end

-- |A - B| / |A - A0|, sums of absolute values
local function distance(a, b, first)
  local apart, moved = 0, 0
  for id, t in pairs(a) do
    apart = apart + (t - b[id]):abs():sum():item()
    moved = moved + (t - first[id]):abs():sum():item()
  end
  return apart / moved
end

local function decaying()
  return popart.SGD({ defaultLearningRate = { 0.12, true }, defaultWeightDecay = { 0.08, true } })
end

describe("gradient accumulation", function()
  it("F1: of 4 or 12 micro-batches trains as one batch", function()
    local want, first = batch_of_12(1, decaying())
    for _, n in ipairs({ 4, 12 }) do
      local got = batch_of_12(n, decaying())
      assert.is_true(distance(want, got, first) < 1e-5)
    end
  end)

  it("F3: counts only where it is enabled", function()
    helper.refuses("popart_exception", "^enableGradientAccumulation is false, but "
      .. "accumulationFactor > 1%.", batch_of_12, 1, decaying(), { accumulationFactor = 4 })
  end)

  it("F4: is for training alone", function()
    local b, _, y = helper.identity({ 2 })
    helper.refuses("popart_exception", "Gradient Accumulation only available when training",
      helper.inference, b, popart.DataFlow(1, { y }), { options = helper.loops(4) })
  end)

  it("F8: keeps states out of the file where they have no streams", function()
    local path = os.tmpname()
    local function states(options)
      local sgd = popart.SGD({ defaultLearningRate = { 0.1, true },
        defaultMomentum = { 0.9, true } })
      local weights, _, s = batch_of_12(4, sgd, options)
      s:modelToHost(path)
      local found = 0
      for _, id in ipairs(popart.Builder(path):getInputTensorIds()) do
        found = found + (id:find("^Accl___") and 1 or 0)
      end
      return found, weights
    end
    local all, want = states({})
    local none, got = states({ disableOptimizerStateTensorStreams = true })
    os.remove(path)
    assert.equal(6, all)
    assert.equal(0, none)
    for id, t in pairs(want) do
      assert.is_true(torch.equal(t, got[id]))
    end
  end)

  it("E27: any factors of the same batch give the same weights", function()
    for _, optimizer in ipairs({ decaying(), popart.SGD({ defaultLearningRate = { 0.1, true },
      defaultMomentum = { 0.9, true }, lossScaling = { 20.0, true } }),
      popart.SGD({ defaultLearningRate = { 0.1, true }, defaultMomentum = { 0.9, true } },
        { accumulatorAndMomentum = MODES[2] }),
      popart.Adam({ defaultLearningRate = { 0.1, true }, lossScaling = { 20.0, true } },
        popart.AdamMode.AdamNoBias) }) do
      local want, first = batch_of_12(1, optimizer)
      for _, loops in ipairs({ { 3, 1 }, { 1, 2 }, { 3, 2 }, { 6, 2 } }) do
        local got = batch_of_12(loops[1], optimizer, nil, loops[2])
        assert.is_true(distance(want, got, first) < 1e-4)
      end
    end
  end)
end)

-- ---- replicas ------------------------------------------------------------------------------

describe("replicas", function()
  it("G1: train as one that accumulates, each with a value of an anchor", function()
    local want, first = batch_of_12(4, popart.ConstSGD(0.01))
    local got, _, s = batch_of_12(1, popart.ConstSGD(0.01), nil, 4)
    assert.is_true(distance(want, got, first) < 1e-5)
    local anchors = s:initAnchorArrays()
    for _, t in pairs(anchors) do
      assert.same({ 4 }, { table.unpack(t.shape) })
    end
    assert.equal(4, s.replicationFactor)
    assert.equal(1, s.accumulationFactor)
  end)

  it("G4: have the same bits after each update, with shared-out tensors too", function()
    local on = popart.TensorLocation(popart.TensorStorage.OnChip,
      popart.ReplicatedTensorSharding.On)
    local sharded = popart.TensorLocationSettings(on, 0, 4)
    for _, options in ipairs({ {}, { weightTensorLocationSettings = sharded,
      optimizerStateTensorLocationSettings = sharded } }) do
      local b, ids = helper.layers(2, 3)
      local w = ids.weights[1]
      local s = helper.training(b, popart.DataFlow(3, { [w] = ALL }), ids.loss,
        popart.Adam({ defaultLearningRate = { 0.1, true } }),
        { options = helper.loops(1, 4, options), device = helper.device(4) })
      torch.manual_seed(1)
      local got = helper.run(s, { [ids.x] = torch.randn(12, 3, 4) })[w]
      for step = 0, 2 do
        for r = 1, 3 do
          assert.is_true(torch.equal(got[step][0], got[step][r]))
        end
      end
    end
  end)

  it("G1: give the numbers that they train with, one a replica", function()
    local b, ids = helper.layers(1, 2)
    local rate = "scaledLearningRate0___default___FLOAT"
    local function optimizer(lr)
      return popart.SGD({ defaultLearningRate = { lr, false } })
    end
    local s = helper.training(b, popart.DataFlow(1, { rate, ids.loss }), ids.loss,
      optimizer(0.25), { options = helper.loops(1, 4), device = helper.device(4) })
    local x = torch.ones(4, 2, 4)
    assert.same({ 0.25, 0.25, 0.25, 0.25 }, helper.run(s, { [ids.x] = x })[rate]:tolist())
    s:updateOptimizerFromHost(optimizer(0.5))
    assert.same({ 0.5, 0.5, 0.5, 0.5 }, helper.run(s, { [ids.x] = x })[rate]:tolist())
  end)

  it("give them as the mean of micro-batches and replicas makes them", function()
    -- 0.3 * (1 - 0.5) / (2 * 3 * 4), velocity and the loss's scale with it
    local b, ids = helper.layers(1, 2)
    local id = "scaledLearningRate0___default___FLOAT"
    local gradients = "dampeningScaleFactor2___default___FLOAT"
    local function numbers(optimizer, names, options)
      local s = helper.training(b, popart.DataFlow(2, names), ids.loss, optimizer,
        { options = options, device = helper.device(4) })
      return helper.run(s, { [ids.x] = torch.ones(2 * 3 * 4, 2, 4) })
    end
    local mean = helper.loops(3, 4, {
      accumulationAndReplicationReductionType = popart.ReductionType.Mean })
    local plain = popart.SGD({ defaultLearningRate = { 0.3, false }, lossScaling = { 2.0, true },
      defaultDampening = { 0.5, true } })
    local got = numbers(plain, { [id] = popart.AnchorReturnType("Sum") }, mean)[id]
    assert.same({ 4 }, { table.unpack(got.shape) })
    assert.near(6 * 0.3 * 0.5 / (2 * 3 * 4), got[0]:item(), 1e-7) -- of 2 batches of 3
    got = numbers(plain, { [id] = popart.AnchorReturnType("Final") }, helper.loops(3, 4))[id]
    assert.near(0.3 * 0.5 / 2, got[3]:item(), 1e-7) -- a sum divides by nothing
    -- 1 - lr (1 - dampening) decay
    local decay = "weightDecayScaleFactor0___default___FLOAT"
    got = numbers(popart.SGD({ defaultLearningRate = { 0.3, false }, defaultWeightDecay =
      { 0.1, true }, defaultDampening = { 0.5, true } }),
      { [decay] = popart.AnchorReturnType("Final") }, mean)[decay]
    assert.near(1 - 0.3 * 0.5 * 0.1, got[0]:item(), 1e-6)
    local separate = popart.SGD({ defaultMomentum = { 0.9, true }, defaultVelocityScaling =
      { 5.0, false }, lossScaling = { 2.0, true } }, {},
      popart.SGDAccumulatorAndMomentum.Separate)
    got = numbers(separate, { [gradients] = popart.AnchorReturnType("All") }, mean)[gradients]
    assert.same({ 2, 3, 4 }, { table.unpack(got.shape) })
    assert.near(5 / (2 * 3 * 4), got:reshape({ -1 })[7]:item(), 1e-7)
  end)

  it("G10: share tensors out without a change of weights", function()
    local on = popart.TensorLocation(popart.TensorStorage.OnChip,
      popart.ReplicatedTensorSharding.On)
    local sharded = popart.TensorLocationSettings(on, 0, 4)
    for _, optimizer in ipairs({ decaying(), popart.SGD({ defaultLearningRate = { 0.1, true },
      defaultMomentum = { 0.9, true } }), popart.Adam({ defaultLearningRate = { 0.1, true } }),
      popart.Adam({ defaultLearningRate = { 0.1, true } }, popart.AdamMode.Lamb) }) do
      local want, first = batch_of_12(1, optimizer, nil, 4)
      local got = batch_of_12(1, optimizer, { weightTensorLocationSettings = sharded,
        optimizerStateTensorLocationSettings = sharded }, 4)
      assert.is_true(distance(want, got, first) < 1e-5)
    end
    batch_of_12(1, decaying(), { weightTensorLocationSettings = sharded }) -- one replica: a note
  end)

  -- The weight of each group after a step of the sum of x * w, lr 0.5: its value less half
  -- the sum of its replicas' x.
  local function grouped(kind, size, mode, init, shape)
    local replicas = 4
    local b = popart.Builder()
    b:embedReplicationFactor(replicas)
    local x = b:addInputTensor("FLOAT", { 2 })
    local w = b:addInitializedInputTensor(torch.tensor(init), popart.VariableSettings(
      popart.CommGroup(popart.CommGroupType[kind], size), popart.VariableRetrievalMode[mode]), "w")
    local y = b.aiOnnx:mul({ x, w })
    local s = helper.training(b, popart.DataFlow(1, { y }), b.aiOnnx:reducesum({ y }),
      popart.ConstSGD(0.5), { options = helper.loops(1, replicas),
        device = helper.device(replicas) })
    local got = helper.run(s, { [x] = torch.arange(8):float() })[y]
    local read = torch.zeros(shape)
    s:weightsToHost()
    s:readWeights(popart.PyWeightsIO({ [w] = read }))
    return got:tolist(), read:tolist(), s, w
  end

  local TWO = { { 1.0, 1 }, { 2, 2 } }

  it("G7: have variables of their group", function()
    local y, w = grouped("Consecutive", 2, "OnePerGroup", TWO, { 2, 2 })
    assert.same({ { 0.0, 1 }, { 2, 3 }, { 8, 10 }, { 12, 14 } }, y)
    assert.same({ { 0.0, -1 }, { -3, -4 } }, w)
    y, w = grouped("Orthogonal", 2, "OnePerGroup", TWO, { 2, 2 })
    assert.same({ { 0.0, 1 }, { 4, 6 }, { 4, 5 }, { 12, 14 } }, y)
    assert.same({ { -1.0, -2 }, { -2, -3 } }, w)
    y, w = grouped("Ungrouped", 0, "OnePerGroup", { { 1.0, 1 }, { 2, 2 }, { 3, 3 }, { 4, 4 } },
      { 4, 2 })
    assert.same({ { 0.0, 1 }, { 4, 6 }, { 12, 15 }, { 24, 28 } }, y)
    assert.same({ { 1.0, 0.5 }, { 1, 0.5 }, { 1, 0.5 }, { 1, 0.5 } }, w)
  end)

  it("G7: read them once a group, or of each replica", function()
    local _, w = grouped("Consecutive", 2, "AllReplicas", TWO, { 4, 2 })
    assert.same({ { 0.0, -1 }, { 0, -1 }, { -3, -4 }, { -3, -4 } }, w)
    _, w = grouped("Orthogonal", 2, "AllReplicas", TWO, { 4, 2 })
    assert.same({ { -1.0, -2 }, { -2, -3 }, { -1, -2 }, { -2, -3 } }, w)
  end)

  -- PopART's grouped_initialization_test: the builder is not told how many replicas there
  -- will be, and has an input that nothing reads.
  it("have variables of their group, whose builder knows of no replicas", function()
    for _, c in ipairs({ { 2, "All", 0, "OnePerGroup" }, { 2, "All", 0, "AllReplicas" },
      { 2, "Ungrouped", 0, "OnePerGroup" }, { 4, "Consecutive", 2, "OnePerGroup" },
      { 4, "Orthogonal", 2, "AllReplicas" }, { 2, "Consecutive", 1, "OnePerGroup" } }) do
      local replicas, settings = c[1], popart.VariableSettings(
        popart.CommGroup(popart.CommGroupType[c[2]], c[3]), popart.VariableRetrievalMode[c[4]])
      local groups, returned = settings:groups(replicas),
        settings:numReplicasReturningVariable(replicas)
      local shape = #groups > 1 and { #groups, 2, 2, 3, 3 } or { 2, 2, 3, 3 }
      local init = torch.linspace(0, 1, #groups * 36):reshape(shape)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT", { 2, 2, 3, 3 })
      b:addInputTensor("INT32", { 2 })
      local w = b:addInitializedInputTensor(init, settings)
      local y = b:reshape_const(b.aiOnnx, { b.aiOnnx:matmul({ x, w }) }, { 2, 18 })
      assert.same(shape, b:getTensorShape(w))
      local s = helper.training(b, popart.DataFlow(1, { y }), helper.l1(b, y, 1.0),
        popart.ConstSGD(0.5), { options = helper.loops(1, replicas),
          device = helper.device(replicas) })
      local read = torch.zeros(returned == 1 and { 2, 2, 3, 3 } or { returned, 2, 2, 3, 3 })
      local io = popart.PyWeightsIO({ [w] = read })
      s:weightsToHost()
      s:readWeights(io)
      local got = helper.run(s, { [x] = torch.ones(2 * replicas, 2, 3, 3) })[y]
      for g, members in ipairs(groups) do
        local own = #groups > 1 and init[g - 1] or init
        for _, r in ipairs(members) do
          local value = returned == replicas and read[r] or returned > 1 and read[g - 1] or read
          assert.is_true(torch.equal(own, value))
          torch.testing.assert_close(got[r], torch.ones(2, 2, 3, 3):matmul(own):reshape(2, 18))
        end
      end
      s:weightsToHost()
      s:readWeights(io)
      assert.is_false(torch.equal(init, returned == #groups and read or read[0]))
    end
  end)

  it("G7: write them once a group", function()
    local _, _, s, w = grouped("Consecutive", 2, "OnePerGroup", TWO, { 2, 2 })
    s:writeWeights(popart.PyWeightsIO({ [w] = torch.tensor({ { 5.0, 6 }, { 7, 8 } }) }))
    s:weightsFromHost()
    local read = torch.zeros(2, 2)
    s:weightsToHost()
    s:readWeights(popart.PyWeightsIO({ [w] = read }))
    assert.same({ { 5.0, 6 }, { 7, 8 } }, read:tolist())
  end)

  it("G8: want an initial value for each group", function()
    helper.refuses("popart_exception", "^Return mismatch with possibly appended outer dimension",
      grouped, "Consecutive", 2, "OnePerGroup", { { 1.0, 1 }, { 2, 2 }, { 3, 3 } }, { 2, 2 })
  end)
end)

-- ---- scaling of losses -----------------------------------------------------------------------

describe("loss scaling", function()
  it("L1: changes no weight, constant or not", function()
    local function weights(scale, const)
      return (batch_of_12(2, popart.SGD({ defaultLearningRate = { 0.05, const },
        defaultMomentum = { 0.9, const }, lossScaling = { scale, const } })))
    end
    local want = weights(1.0, true)
    for _, scale in ipairs({ 2.0, 1024.0 }) do
      for _, const in ipairs({ true, false }) do
        for id, t in pairs(weights(scale, const)) do
          assert.is_true(torch.allclose(want[id], t, { rtol = 1e-5, atol = 1e-6 }))
        end
      end
    end
  end)

  it("L4: that follows the gradients is told where it cannot be", function()
    local function settings(fields)
      local group = popart.SessionOptions().automaticLossScalingSettings
      group.enabled = true
      for k, v in pairs(fields or {}) do
        group[k] = v
      end
      return { automaticLossScalingSettings = group }
    end
    local b, _, y = helper.identity({ 2 })
    helper.refuses("popart_exception", "Only compatible when doing training", helper.inference, b,
      popart.DataFlow(1, { y }), { options = settings() })
    local sgd = popart.SGD({ defaultLearningRate = { 0.1, false }, lossScaling = { 2.0, false } })
    for text, fields in pairs({ ["'binEdgeLocation'"] = { binEdgeLocation = 1.5 },
      ["'thresholdUpperCountProportion'"] = { thresholdUpperCountProportion = -0.1 },
      ["toTrackTensors has been set"] = { toTrackTensors = { "w1" } } }) do
      helper.refuses("popart_exception", text, batch_of_12, 1, sgd, settings(fields))
    end
    helper.refuses("popart_exception", "No tracked gradient tensors of type fp16 were found",
      batch_of_12, 1, sgd, settings())
  end)
end)

describe("running statistics", function()
  it("are those of what training has seen, and are in the model that is written", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4, 2 })
    local ids = { x }
    for i, value in ipairs({ 1.0, 0.0, 0.0, 1.0 }) do
      ids[i + 1] = b:addInitializedInputTensor(torch.full({ 2 }, value))
    end
    local y = b.aiOnnxOpset9:batchnormalization(ids, 5, 1e-5, 0.75)[1]
    local loss = helper.l1(b, y, 1.0)
    local s = helper.training(b, popart.DataFlow(2), loss, popart.ConstSGD(0.1))
    local data = torch.randn(2, 4, 2)
    helper.run(s, { [x] = data })
    local mean, var = torch.zeros(2), torch.ones(2)
    for i = 0, 1 do
      mean = mean * 0.75 + data[i]:mean(0) * 0.25
      var = var * 0.75 + data[i]:var(0, { unbiased = false }) * 0.25
    end
    local path = os.tmpname()
    s:modelToHost(path)
    local there = require("lupine.onnx").load(path):state_dict()
    os.remove(path)
    torch.testing.assert_close(there[ids[4]], mean)
    torch.testing.assert_close(there[ids[5]], var)
  end)
end)
