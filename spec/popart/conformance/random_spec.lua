-- Seeds, states of random numbers, data that are made up.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")
local N = 100

local function dropout(batches, options, replicas)
  local b = popart.Builder()
  local x = b:addInputTensor("FLOAT", { N })
  local w = b:addInitializedInputTensor(torch.ones(N))
  local y = b.aiOnnx:dropout({ b.aiOnnx:mul({ x, w }) }, 1, 0.5)[1]
  local g = "Gradient___" .. w
  local s = helper.training(b, popart.DataFlow(batches, { [y] = ALL, [g] = ALL }),
    helper.l1(b, y, 1), popart.ConstSGD(1e-9), { options = options,
    device = helper.device(replicas) })
  local given = { [x] = torch.ones(batches * N * (replicas or 1)
    * ((options or {}).accumulationFactor or 1)) }
  return s, function()
    local got = helper.run(s, given)
    return got[y], got[g]
  end
end

local function deterministic(options)
  local b, x, y = helper.identity({ 2 })
  return helper.inference(b, popart.DataFlow(1, { y }), { options = options }), x
end

describe("a seed", function()
  it("R1: gives the same mask again, another one another", function()
    local s, run = dropout(1)
    local masks = {}
    for i, seed in ipairs({ 0, 0, 11583 }) do
      s:setRandomSeed(seed)
      assert.equal(seed, s:getRandomSeed())
      masks[i] = run():ne(0)
    end
    assert.is_true(torch.equal(masks[1], masks[2]))
    assert.is_false(torch.equal(masks[1], masks[3]))
  end)

  it("R2: goes on from step to step; forward and backward have one mask", function()
    local s, run = dropout(3)
    s:setRandomSeed(1)
    local y, g = run()
    local again = run()
    for i = 0, 2 do
      assert.is_true(torch.equal(y[i]:ne(0), g[i]:ne(0)))
    end
    assert.is_false(torch.equal(y[0], y[1]))
    assert.is_false(torch.equal(y[1], y[2]))
    assert.is_false(torch.equal(y, again))
  end)

  it("is drawn from anew in a branch that is always taken, of constants alone", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 8 })
    local function branch()
      local inner = b:createSubgraphBuilder()
      local drawn = inner.aiOnnx:randomnormal({ 8 }, 1)
      inner:addOutputTensor(inner.aiOnnx:abs({ drawn })) -- the last node draws nothing itself
      return inner
    end
    local drawn = b.aiOnnx:logical_if({ b.aiOnnx:constant(torch.tensor(true)) }, 1, branch(),
      branch())[1]
    local y = b.aiOnnx:add({ x, drawn })
    local s = helper.inference(b, popart.DataFlow(2, { y }))
    local inputs = { [x] = torch.zeros(16) }
    local first = helper.run(s, inputs)[y]
    assert.is_false(torch.equal(first[0], first[1]))
    assert.is_false(torch.equal(first, helper.run(s, inputs)[y]))
  end)

  it("R4: differs between replicas and between micro-batches", function()
    local _, two = dropout(1, helper.loops(1, 2), 2)
    local y = two()
    assert.is_false(torch.equal(y[0], y[1]))
    local _, micro = dropout(1, helper.loops(2))
    y = micro()
    assert.is_false(torch.equal(y[0], y[1]))
  end)

  it("R5: is set after prepareDevice, and is of no use to what draws nothing", function()
    local b, _, y = helper.identity({ 2 })
    local s = helper.inference(b, popart.DataFlow(1, { y }), { prepare = false })
    for _, method in ipairs({ "setRandomSeed", "getRandomSeed", "getRNGState", "setRNGState" }) do
      helper.raises("popart_runtime_error", "^Devicex::prepare%(%) must be called", function()
        s[method](s, 1)
      end)
    end
    s = deterministic()
    s:setRandomSeed(5)
    assert.equal(0, s:getRandomSeed())
    helper.raises("TypeError", "seedValue", function()
      s:setRandomSeed("five")
    end)
  end)

  it("is the session's own: two of one model have the same numbers", function()
    local one, run = dropout(2)
    local other, again = dropout(2)
    one:setRandomSeed(9)
    other:setRandomSeed(9)
    assert.is_true(torch.equal((run()), (again())))
  end)
end)

describe("a state of random numbers", function()
  it("R7: needs its option, and a state of its size", function()
    local plain = dropout(1)
    for _, method in ipairs({ "getRNGState", "setRNGState" }) do
      helper.raises("popart_runtime_error", "enableLoadAndOffloadRNGState must be set to True",
        function()
          plain[method](plain, {})
        end)
    end
    local s = dropout(1, { enableLoadAndOffloadRNGState = true })
    helper.raises("popart_runtime_error", "^Devicex::setRngStateValue received rngState of size",
      function()
        s:setRNGState({ 1, 2, 3 })
      end)
    local synthetic = deterministic({ enableLoadAndOffloadRNGState = true,
      syntheticDataMode = popart.SyntheticDataMode.Zeros })
    assert.same({}, synthetic:getRNGState())
  end)

  it("goes on where it was taken, also in another session", function()
    local options = { enableLoadAndOffloadRNGState = true }
    local s, run = dropout(2, options)
    s:setRandomSeed(42)
    run()
    local seed, state = s:getRandomSeed(), s:getRNGState()
    local want = run()
    s:setRandomSeed(seed)
    s:setRNGState(state)
    assert.is_true(torch.equal(want, (run())))
    local other, again = dropout(2, options)
    other:setRandomSeed(seed)
    other:setRNGState(state)
    assert.is_true(torch.equal(want, (again())))
  end)
end)

describe("stochastic rounding", function()
  it("R8: rounds to both neighbours, reproducibly", function()
    local b = popart.Builder()
    local x, y = b:addInputTensor("FLOAT16", { 1000 }), b:addInputTensor("FLOAT16", { 1000 })
    local z = b.aiOnnx:add({ x, y })
    local function session(on)
      return helper.inference(b, popart.DataFlow(1, { z }), { options = {
        enableStochasticRounding = on } })
    end
    torch.manual_seed(0)
    local given = { [x] = torch.ones(1000):half(),
      [y] = ((torch.rand(1000) - 0.5) * 2e-3):half() }
    local nearest = helper.run(session(false), given)[z]
    assert.is_true(torch.equal(nearest, given[x] + given[y]))
    local s = session(true)
    local got = {}
    for i, seed in ipairs({ 1, 1, 12 }) do
      s:setRandomSeed(seed)
      got[i] = { helper.run(s, given)[z], helper.run(s, given)[z] }
    end
    assert.is_false(torch.equal(nearest, got[1][1]))
    assert.is_true(torch.equal(got[1][1], got[2][1]))
    assert.is_true(torch.equal(got[1][2], got[2][2]))
    assert.is_false(torch.equal(got[1][1], got[3][1]))
    -- in the mean the sums are exact
    local exact = (given[x]:float() + given[y]:float()):mean():item()
    assert.near(exact, got[1][1]:float():mean():item(), 1e-4)
  end)
end)

describe("data that are made up", function()
  local SIZE = 4000

  -- What a model reads, a variable that it is copied into.
  local function drawn(mode, type, replicas)
    local b = popart.Builder()
    local x = b:addInputTensor(type, { SIZE })
    local w = b:addInitializedInputTensor(torch.zeros(SIZE), "w")
    local loss = b.aiOnnx:reducesum({ b.aiOnnx:mul({ w, b.aiOnnx:cast({ x }, "FLOAT") }) })
    local options = helper.loops(1, replicas)
    options.syntheticDataMode = mode
    local s = helper.training(b, popart.DataFlow(1, { [loss] = ALL }), loss, popart.ConstSGD(1.0),
      { options = options, device = helper.device(replicas) })
    s:run(popart.PyStepIO({ [x] = torch.ones(1) }, {})) -- the loss' gradient is the data
    return helper.weights(s, { w })[w]:neg()
  end

  local Mode = popart.SyntheticDataMode

  it("R9: are zeros, normal, or uniform over the type", function()
    for _, type in ipairs({ "FLOAT", "INT8", "UINT8", "BOOL" }) do
      assert.equal(0, drawn(Mode.Zeros, type):abs():max():item())
    end
    local t = drawn(Mode.RandomNormal, "FLOAT")
    assert.near(0, t:mean():item(), 0.05)
    assert.near(1, t:std():item(), 0.05)
    -- 4000 draws: the mean's deviation is 1.2, the standard deviation's about 0.5
    for type, mean in pairs({ INT8 = -0.5, UINT8 = 127.5 }) do
      t = drawn(Mode.RandomUniform, type)
      assert.near(mean, t:mean():item(), 4)
      assert.near(math.sqrt(255 * 255 / 12), t:std():item(), 2)
    end
    assert.near(0.5, drawn(Mode.RandomUniform, "BOOL"):mean():item(), 0.05)
  end)

  it("R9: are the same on both replicas", function()
    local one, two = drawn(Mode.RandomNormal, "FLOAT"), drawn(Mode.RandomNormal, "FLOAT", 2)
    assert.is_true(torch.allclose(one * 2, two))
  end)

  it("reach no anchor, for nothing comes to the host", function()
    local s, x = deterministic({ syntheticDataMode = Mode.RandomNormal })
    local anchors = s:initAnchorArrays()
    s:run(popart.PyStepIO({ [x] = torch.ones(2) }, anchors))
    for _, t in pairs(anchors) do
      assert.equal(0, t:abs():max():item())
    end
  end)
end)
