-- What anchors return: cases of a run's results, for batches, micro-batches and
-- replicas.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ART = popart.AnchorReturnType

local function identity(shape, batches, art, data, options, replicas)
  local b, x, y = helper.identity(shape)
  local s = helper.inference(b, popart.DataFlow(batches, { [y] = art }), { options = options,
    device = helper.device(replicas) })
  return helper.run(s, { [x] = torch.tensor(data) })[y]
end

-- Sums of gradients need a weight; the input's own values are what is anchored.
local function trained(batches, accumulation, art, data, replicas)
  local b = popart.Builder()
  local x = b:addInputTensor("FLOAT", { 2 })
  local w = b:addInitializedInputTensor(torch.ones(2))
  local y = b.aiOnnx:identity({ x })
  local loss = helper.l1(b, b.aiOnnx:mul({ y, w }), 0.1)
  local s = helper.training(b, popart.DataFlow(batches, { [y] = art }), loss,
    popart.ConstSGD(0.1), { options = helper.loops(accumulation, replicas),
    device = helper.device(replicas) })
  return helper.run(s, { [x] = torch.tensor(data) })[y]
end

local function same(want, got)
  want = torch.is_tensor(want) and want or torch.tensor(want)
  assert.same({ table.unpack(want.shape) }, { table.unpack(got.shape) })
  assert.is_true(torch.equal(want:float(), got:float()), tostring(got))
end

describe("anchors", function()
  it("A1: one scalar of one batch has no dimensions", function()
    for _, art in ipairs({ ART("ALL"), ART("EVERYN", 1), ART("FINAL"), ART("SUM") }) do
      local y = identity({}, 1, art, { 1.0 })
      assert.equal(0, y:dim())
      assert.equal(1.0, y:item())
    end
  end)

  it("A2, A3, A4: all of eight, every fourth, the last, the sum", function()
    local data = { 1.0, 2, 3, 4, 5, 6, 7, 8 }
    same({ 1.0, 2, 3, 4, 5, 6, 7, 8 }, identity({}, 8, ART("ALL"), data))
    same({ 4.0, 8 }, identity({}, 8, ART("EVERYN", 4), data))
    same(torch.tensor(8.0), identity({}, 8, ART("FINAL"), data))
    same(torch.tensor(36.0), identity({}, 8, ART("SUM"), data))
  end)

  it("A6: of each of two replicas", function()
    local data = { { 1.0, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } }
    local function two(art)
      return identity({}, 4, art, data, helper.loops(1, 2), 2)
    end
    same(data, two(ART("ALL")))
    same({ { 3.0, 4 }, { 7, 8 } }, two(ART("EVERYN", 2)))
    same({ 7.0, 8 }, two(ART("FINAL")))
    same({ 16.0, 20 }, two(ART("SUM")))
  end)

  it("A7: all of two batches of two micro-batches", function()
    local data = { { { 1.0, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } }
    same(data, trained(2, 2, ART("ALL"), data))
  end)

  it("A8: every second micro-batch", function()
    local data = { { { 1.0, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } }
    same({ { 3.0, 4 }, { 7, 8 } }, trained(2, 2, ART("EVERYN", 2), data))
  end)

  it("A9: the sum and the last of micro-batches and of batches", function()
    local data = { { 1.0, 2 }, { 3, 4 } }
    for _, loops in ipairs({ { 1, 2 }, { 2, 1 } }) do
      same({ 4.0, 6 }, trained(loops[1], loops[2], ART("SUM"), data))
      same({ 3.0, 4 }, trained(loops[1], loops[2], ART("FINAL"), data))
    end
  end)

  it("A16: gradients and weights have the leading dimensions of micro-batches", function()
    local b, ids = helper.layers(1, 3)
    local w = ids.weights[1]
    local g = "Gradient___" .. w
    for art, shape in pairs({ ALL = { 2, 4, 4, 4 }, FINAL = { 4, 4 } }) do
      local s = helper.training(b, popart.DataFlow(2, { [w] = ART(art), [g] = ART(art) }),
        ids.loss, popart.ConstSGD(0.1), { options = helper.loops(4) })
      local anchors = s:initAnchorArrays()
      assert.same(shape, { table.unpack(anchors[w].shape) })
      assert.same(shape, { table.unpack(anchors[g].shape) })
    end
  end)

  it("the last of a weight's values is the weight after the run", function()
    local b, ids = helper.layers(2, 3)
    local w = ids.weights[1]
    local s = helper.training(b, popart.DataFlow(3, { [w] = ART("ALL") }), ids.loss,
      popart.ConstSGD(0.1))
    local got = helper.run(s, { [ids.x] = torch.randn(3, 3, 4) })[w]
    assert.is_true(torch.equal(helper.weights(s, { w })[w], got[2]))
  end)

  -- PopART copies variables in the loop over micro-batches, behind which the update comes;
  -- a final value at the end of the run. Each gradient is 1, so that an update takes 2.
  it("of weights and states show what the micro-batches of an update read", function()
    local function shown(optimizer, names, kind, accumulation)
      local b, flow = popart.Builder(), {}
      local x = b:addInputTensor("FLOAT", { 1 })
      local w = b:addInitializedInputTensor(torch.tensor({ 8.0 }), "w")
      local loss = b.aiGraphcore:identityloss({ b.aiOnnx:mul({ x, w }) }, popart.ReductionType.Sum)
      for _, name in ipairs(names) do
        flow[name] = ART(kind)
      end
      local s = helper.training(b, popart.DataFlow(2, flow), loss, optimizer,
        { options = helper.loops(accumulation) })
      return helper.run(s, { [x] = torch.ones(2 * accumulation) })
    end
    local sgd = popart.ConstSGD(1.0)
    local got = shown(sgd, { "w", "Accum___w" }, "ALL", 2)
    same({ { { 8.0 }, { 8 } }, { { 6 }, { 6 } } }, got.w)
    same({ { { 1.0 }, { 2 } }, { { 1 }, { 2 } } }, got.Accum___w)
    same({ 4.0 }, shown(sgd, { "w" }, "FINAL", 2).w)
    same({ 28.0 }, shown(sgd, { "w" }, "SUM", 2).w)
    same({ { 7.0 }, { 6 } }, shown(sgd, { "w" }, "ALL", 1).w)
    local adam = popart.Adam({ defaultLearningRate = { 1, false }, defaultBeta1 = { 0.5, false } })
    got = shown(adam, { "Accl1___w", "Step___w" }, "ALL", 2)
    same({ { { 0.0 }, { 0 } }, { { 1 }, { 1 } } }, got.Accl1___w)
    same({ { 0.0, 0 }, { 1, 1 } }, got.Step___w)
    assert.equal(2, shown(adam, { "Step___w" }, "FINAL", 2).Step___w:item())
  end)

  -- The loss is x + 10 id, id is x; as of a pipeline's dropout with ratio 0.
  it("of gradients are of one name, though another has the same value", function()
    local makers = {
      function(b, x)
        return b.aiOnnx:identity({ x })
      end,
      function(b, x)
        return b.aiOnnx:cast({ x }, "FLOAT")
      end,
      function(b, x)
        return b.aiOnnx:sum({ b.aiOnnx:max({ x }) })
      end,
      function(b, x)
        return b:checkpointOutput({ x })[1]
      end,
    }
    local gradient = popart.reservedGradientPrefix()
    for _, make in ipairs(makers) do
      for _, weight in ipairs({ true, false }) do
        local b = popart.Builder()
        local x = weight and b:addInitializedInputTensor(torch.ones(1), "x")
          or b:addInputTensor("FLOAT", { 1 }, "x")
        local id = make(b, x)
        local sum = b.aiOnnx:add({ x, b.aiGraphcore:scale({ id }, 10.0) })
        local loss = b.aiGraphcore:identityloss({ sum }, popart.ReductionType.Sum)
        local s = helper.training(b, popart.DataFlow(1, { x, id, gradient .. x, gradient .. id }),
          loss, popart.ConstSGD(1.0))
        local got = helper.run(s, weight and {} or { x = torch.ones(1) })
        same({ 11.0 }, got[gradient .. x])
        same({ 10.0 }, got[gradient .. id])
        same({ 1.0 }, got[id])
        same({ weight and -10.0 or 1.0 }, got.x)
      end
    end
  end)

  it("A18: of a tensor that is not there", function()
    local b = helper.identity({ 2 })
    helper.refuses("popart_exception", "^Anchor tensor `Nothing' not in Ir Tensors",
      helper.inference, b, popart.DataFlow(1, { Nothing = ART("ALL") }))
  end)

  it("of a state that the optimizer has not", function()
    local b, ids = helper.layers(1, 3)
    local function make(prefix, optimizer)
      return helper.training(b, popart.DataFlow(1, { prefix .. ids.weights[1] }), ids.loss,
        optimizer, { prepare = false })
    end
    local adam = popart.Adam({ defaultLearningRate = { 0.1, false } })
    assert.is_truthy(make("Accl1___", adam))
    for _, row in ipairs({ { "Accl___", adam }, { "Accl1___", popart.ConstSGD(0.1) },
      { "Step___", popart.ConstSGD(0.1) }, { "Accl3___", adam } }) do
      helper.refuses("popart_exception", "^Anchor tensor `" .. row[1], make, row[1], row[2])
    end
  end)

  it("of a velocity that gathers gradients shows their sum in each micro-batch", function()
    local lr, wd, mm, dm, vs, ls, n = 0.1, 0.2, 0.9, 0.5, 2.0, 4.0, 3
    for _, how in ipairs({ { "Mean", "Post", 1 }, { "Mean", "Running", 1 }, { "Sum", "Post", 1 },
      { "Sum", "Post", 2 } }) do
      local mean, replicas = how[1] == "Mean", how[3]
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT", { 2 })
      local w = b:addInitializedInputTensor(torch.tensor({ 1.0, -2 }))
      local loss = b.aiOnnx:reducesum({ b.aiOnnx:mul({ x, w }) }, { keepdims = 0 })
      local values = {}
      for name, value in pairs({ defaultLearningRate = lr, defaultWeightDecay = wd,
        defaultMomentum = mm, defaultDampening = dm, defaultVelocityScaling = vs,
        lossScaling = ls }) do
        values[name] = { value, false }
      end
      local s = helper.training(b, popart.DataFlow(2, { "Accl___" .. w }), loss,
        popart.SGD(values), { device = helper.device(replicas),
          options = helper.loops(n, replicas, {
            accumulationAndReplicationReductionType = popart.ReductionType[how[1]],
            meanAccumulationAndReplicationReductionStrategy =
              popart.MeanReductionStrategy[how[2]] }) })
      torch.manual_seed(1)
      local data = torch.randn(2 * n * replicas, 2)
      local got = helper.run(s, { [x] = data })["Accl___" .. w]:reshape(-1, 2)
      local weight = torch.tensor({ 1.0, -2 })
      local v, at = weight * ((1 - dm) * wd * vs), 0
      for _ = 1, 2 do
        local whole = {}
        for r = 1, replicas do
          whole[r] = v
        end
        for _ = 1, n do
          for r = 1, replicas do
            whole[r] = whole[r] + data[at] * ((1 - dm) * vs * (mean and 1 / n or replicas))
            assert.is_true(torch.allclose(whole[r], got[at], { rtol = 1e-5, atol = 1e-6 }))
            at = at + 1
          end
        end
        v = whole[1]
        for r = 2, replicas do
          v = v + whole[r]
        end
        weight = weight - v * (lr / (vs * replicas))
        v = v * (mm / replicas) + weight * ((1 - dm) * wd * vs)
      end
    end
  end)

  it("A20: an anchor need be no output, an output no anchor", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2 })
    local y = b.aiOnnx:add({ x, x })
    local z = b.aiOnnx:mul({ y, x })
    b:addOutputTensor(z)
    local s = helper.inference(b, popart.DataFlow(1, { y }))
    local got = helper.run(s, { [x] = torch.tensor({ 1.0, 2 }) })
    same({ 2.0, 4 }, got[y])
    assert.is_nil(got[z])
  end)

  it("of constants, and of what follows from them, give their values", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2 })
    local c = b.aiOnnx:constant(torch.tensor({ 1.0, 2 }))
    local d = b.aiOnnx:add({ c, c })
    local n = b:addInitializedInputTensor(torch.tensor({ 3, 4 }, { dtype = torch.int32 }))
    local m = b.aiOnnx:identity({ n })
    local k = b.aiOnnx:constant(torch.tensor({ 5, 6 }, { dtype = torch.int64 }))
    local y = b.aiOnnx:mul({ x, d })
    local s = helper.inference(b, popart.DataFlow(2, { c, d, n, m, k, y }))
    local got = helper.run(s, { [x] = torch.ones(2, 2) })
    same({ { 1.0, 2 }, { 1, 2 } }, got[c])
    same({ { 2.0, 4 }, { 2, 4 } }, got[d])
    same({ { 2.0, 4 }, { 2, 4 } }, got[y])
    for _, id in ipairs({ n, m }) do
      assert.equal(torch.int32, got[id].dtype)
      same({ { 3, 4 }, { 3, 4 } }, got[id])
    end
    same({ { 5, 6 }, { 5, 6 } }, got[k])
  end)

  it("A21: inference without any", function()
    local b = helper.identity({ 2 })
    helper.refuses("popart_exception", "User must specify an anchor tensor when doing inference.",
      helper.inference, b, popart.DataFlow(1))
  end)

  it("A22: arrays have the tensor's type, its own ones stay", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT16", { 1, 3, 1 })
    local y = b.aiOnnx:relu({ x })
    local s = helper.inference(b, popart.DataFlow(2, { y }))
    local a = s:initAnchorArrays()[y]
    assert.equal(torch.float16, a.dtype)
    assert.same({ 2, 1, 3, 1 }, { table.unpack(a.shape) })
  end)
end)

describe("a session", function()
  it("looks for nearest names only when one is wrong", function()
    local check = require("lupine.base.check")
    local nearest, asked = check.nearest, 0
    finally(function()
      check.nearest = nearest
    end)
    check.nearest = function(...)
      asked = asked + 1
      return nearest(...)
    end
    local b = popart.Builder()
    local x, w = b:addInputTensor("FLOAT", { 2 }), b:addInitializedInputTensor(torch.ones(2), "w")
    local loss = helper.l1(b, b.aiOnnx:mul({ x, w }), 1)
    local flow = popart.DataFlow(1, { loss, popart.reservedGradientPrefix() .. w })
    local s = helper.training(b, flow, loss, popart.SGD({ defaultLearningRate = { 1, false } }))
    helper.run(s, { [x] = torch.ones(2) })
    s:weightsToHost()
    s:readWeights(popart.PyWeightsIO({ w = torch.zeros(2) }))
    assert.same({ 2 }, s:getInfo(x):shape())
    assert.equal(0, asked)
    helper.refuses("popart_exception", "nearest: 'w'", s.getInfo, s, "ww")
    assert.equal(1, asked)
  end)
end)
