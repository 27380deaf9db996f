-- PopART's tests of optimizers and of clipping: unittests/optimizer/sgd_optimizer,
-- integration/optimizer_test and clip_by_norm_test.
local helper = require("spec.helper")
local optimizers = require("popart.optimizers")
local scalars = require("popart.optimizers.scalars")
local steps = require("spec.support.popart_steps")
local tables = require("lupine.base.tables")
local torch = require("torch")

local Adam, SGD = optimizers.Adam, optimizers.SGD
local Clip = optimizers.ClipNormSettings
local Combined = optimizers.SGDAccumulatorAndMomentum.Combined
local Separate = optimizers.SGDAccumulatorAndMomentum.Separate
local F = torch.nn.functional

-- ---- unittests/optimizer/sgd_optimizer ----------------------------------------------------------

local W = { { name = "w", tensor = torch.zeros(2, 2) } }

-- Names of the scalars that are given to the program for the weight, whose own values
-- are `specific`.
local function inputs(values, accumulator, specific)
  local one = SGD(values, {}, accumulator)
  if specific then
    one:insertSpecific("w", specific)
  end
  return tables.keys(scalars.by_name(one, W, { accumulation = 2 }))
end

local MOMENTUM = { defaultMomentum = { 0.2, true } }
local NESTEROV = { defaultMomentum = { 0.2, true }, nesterov = { 1, true } }
local CHANGING = { momentum = { 0.38, false }, learningRate = { 0.01, false } }
local ALL = { momentum = { 0.38, false }, learningRate = { 0.01, false },
  dampening = { 0, false } }

describe("sgd_optimizer", function()
  it("TestCtorGivesDefaultHyperParamsEquivalentToUnsetMethods", function()
    local one = SGD({})
    assert.is_false(one:hasSpecific())
    for getter, value in pairs({ learningRates = 0.1, weightDecays = 0, momentums = 0,
      dampenings = 0, velocityScalings = 1, nesterov = 0 }) do
      one[getter](one):validReplacement(optimizers.OptimizerValueMap(
        optimizers.OptimizerValue(value, true)))
    end
  end)

  it("TestCtorValidation", function()
    for _, accum in ipairs({ "UNDEFINED", "FLOAT", "FLOAT16" }) do
      for _, accl1 in ipairs({ "UNDEFINED", "FLOAT", "FLOAT16" }) do
        SGD({}, {}, Separate, accum, accl1)
      end
    end
  end)

  it("TestHashAndEq", function()
    local function cannot(a, b)
      helper.raises("optimizer_replacement_error", "", function() a:validReplacement(b) end)
    end
    local values = { defaultMomentum = { 0.38, true } }
    local plain = SGD({}, {}, Combined)
    SGD({}, {}, Separate, "FLOAT16", "FLOAT16"):validReplacement(plain)
    local floats = SGD(values, {}, Separate, "FLOAT", "FLOAT")
    cannot(plain, floats)
    local undefined = SGD(values, {}, Separate, "FLOAT", "UNDEFINED")
    cannot(floats, undefined)
    undefined:validReplacement(SGD(values, {}, Separate, "FLOAT", "UNDEFINED"))
    cannot(undefined, SGD({ defaultMomentum = { 0.38, true }, nesterov = { 1, true } }, {},
      Separate, "FLOAT", "UNDEFINED"))
  end)

  it("TestGetInputIds_SGD0", function()
    assert.same({ "weightDecayScaleFactor0___specific___w" },
      inputs({}, nil, { weightDecay = { 0.08, false } }))
  end)

  it("TestGetOptimizerInputs_Default", function()
    for _, accumulator in ipairs({ Combined, Separate }) do
      for _, values in ipairs({ {}, MOMENTUM, NESTEROV }) do
        assert.same({}, inputs(values, accumulator))
      end
    end
  end)

  it("TestGetOptimizerInputs_SGD0", function()
    assert.same({ "scaledLearningRate0___specific___w", "weightDecayScaleFactor0___specific___w" },
      inputs({}, nil, { weightDecay = { 0.08, false }, learningRate = { 0.01, false } }))
  end)

  it("TestGetOptimizerInputs_SGD1", function()
    assert.same({ "scaledLearningRate1___specific___w", "scaledMomentum1___specific___w" },
      inputs(MOMENTUM, Combined, CHANGING))
  end)

  it("TestGetOptimizerInputs_SGD1Nesterov", function()
    assert.same({ "dampeningScaleFactor1___specific___w",
      "nesterovDampeningScaleFactor1___specific___w", "scaledLearningRate1___specific___w",
      "scaledMomentum1___specific___w", "scaledWeightDecay1___specific___w",
      "sgdMomentum___specific___w" }, inputs(NESTEROV, Combined, ALL))
  end)

  it("TestGetOptimizerInputs_SGD2", function()
    assert.same({ "scaledLearningRate2___specific___w", "scaledMomentum2___specific___w" },
      inputs(MOMENTUM, Separate, CHANGING))
  end)

  it("TestGetOptimizerInputs_SGD2Nesterov", function()
    assert.same({ "dampeningScaleFactor2___specific___w",
      "nesterovDampeningScaleFactor2___specific___w", "scaledLearningRate2___specific___w",
      "scaledMomentum2___specific___w", "scaledWeightDecay1___specific___w",
      "sgdMomentum___specific___w" }, inputs(NESTEROV, Separate, ALL))
  end)

  it("TestCreateOpAllOtherFields_SGD2", function()
    local rules = {}
    for i, types in ipairs({ {}, { "FLOAT16", "FLOAT" } }) do
      local view = optimizers.view(SGD(MOMENTUM, {}, Separate, table.unpack(types)), W)
      rules[i] = view:rules()[1]
      assert.equal("popart_sgd_step", rules[i].op)
      assert.equal(torch.float32, (view:room(rules[i], "Accl1")).dtype)
    end
    assert.is_nil(rules[1].accum)
    assert.equal(torch.float16, rules[2].accum)
  end)
end)

-- ---- integration/optimizer_test -----------------------------------------------------------------

describe("optimizer_test", function()
  it("test_sgd_param_check", function()
    for _, of in ipairs({ { 0.25, 0.75, 0.5 }, { 0.1, 0.2, 0.9 } }) do
      local lr, wd, ls = table.unpack(of)
      local got = scalars.by_name(SGD({ defaultLearningRate = { lr, false },
        defaultWeightDecay = { wd, false }, lossScaling = { ls, false } }), W, {})
      assert.near(lr / ls, got.scaledLearningRate0___default___FLOAT, 1e-12)
      assert.near(1 - lr * wd, got.weightDecayScaleFactor0___default___FLOAT, 1e-12)
      assert.equal(ls, got.lossScaling_FLOAT)
    end
  end)

  it("test_constsgd_vs_sgd", function()
    local function sgd(scale, const)
      return SGD({ defaultLearningRate = { 0.01 * scale, const },
        defaultWeightDecay = { 0.01 * scale, const }, lossScaling = { 1000 * scale, const } })
    end
    local w, g = torch.randn(4), torch.randn(4)
    local const, changing = steps.open({ { "w", w } }, sgd(1, true)),
      steps.open({ { "w", w } }, sgd(1, false))
    for _ = 1, 2 do
      helper.near(changing:update(g):weight(), const:update(g):weight(), { 0, 0 })
    end
    changing:replace(sgd(2, false))
    local apart = changing:update(g):weight() - const:update(g):weight()
    assert.is_true(apart:abs():max():item() > 1e-4)
  end)

  it("test_sgd_with_float16_model", function()
    local x = torch.zeros(2, 2, 4, 4):half()
    local zeros = torch.zeros(2, 2, 3, 3):half()
    local s = steps.open({ { "a", zeros }, { "b", zeros } }, SGD({
      defaultLearningRate = { 0.1, false }, defaultWeightDecay = { 0.1, false },
      lossScaling = { 1000, false } }), { inputs = { x }, forward = function(w, a)
        local y = F.conv2d(F.conv2d(a, w[1], { padding = 1 }), w[2], { padding = 1 })
        return F.l1_loss(y, torch.zeros_like(y))
      end })
    helper.near(s:run(x):weight(1), zeros)
  end)

  it("test_sgd_with_zero_learning_rate", function()
    local function sgd(lr)
      return SGD({ defaultLearningRate = { lr, false }, defaultWeightDecay = { 0.6, false },
        lossScaling = { 10, false } })
    end
    local w, g = torch.randn(4), torch.randn(4)
    local s = steps.open({ { "w", w } }, sgd(0.5))
    local moved = s:update(g):weight()
    assert.is_true((moved - w):abs():max():item() > 0)
    helper.near(s:replace(sgd(0)):update(g):weight(), moved, { 0, 0 })
  end)
end)

-- ---- integration/clip_by_norm_test --------------------------------------------------------------

-- The originals' optimizers; the third of PyTorch's learning rate and what it has besides.
local KINDS = {
  sgd = function(clips)
    return SGD({ defaultLearningRate = { 0.1, true } }, clips)
  end,
  adam = function(clips)
    return Adam({ defaultLearningRate = { 0.1, false }, defaultBeta1 = { 0.9, false },
      defaultBeta2 = { 0.999, false }, lossScaling = { 20, false } }, {
      weight_decay_mode = optimizers.WeightDecayMode.L2Regularization, clip_norm_settings = clips })
  end,
}
for name, of in pairs({ lamb = { "Lamb", false }, lambnobias = { "LambNoBias", true } }) do
  KINDS[name] = function(clips)
    return Adam({ defaultLearningRate = { 0.01, false }, defaultBeta1 = { 0.9, false },
      defaultBeta2 = { 0.999, false }, defaultEps = { 1e-6, false },
      defaultWeightDecay = { 0.1, false }, lossScaling = { 10, of[2] } }, {
      mode = optimizers.AdamMode[of[1]], clip_norm_settings = clips })
  end
end

local function convolutions(w, x)
  for _, weight in ipairs(w) do
    x = F.conv2d(x, weight, { padding = 1 })
  end
  return F.l1_loss(x, torch.zeros_like(x))
end

-- One update of `count` weights, clipped in the groups, and what the same optimizer makes of
-- gradients that torch.nn.utils clipped.
local function check_clipped(count, groups, accumulation)
  torch.manual_seed(0)
  local x, weights = torch.rand(1, 1, 8, 8), {}
  for i = 1, count do
    weights[i] = { "weight" .. i - 1, torch.rand(1, 1, 2, 2) }
  end
  local grads = {}
  for i, w in ipairs(weights) do
    grads[i] = w[2]:clone():requires_grad_(true)
  end
  (convolutions(grads, x) * (accumulation or 1)):backward()
  local clips = {}
  for i, group in ipairs(groups) do
    local names, tensors = {}, {}
    for k, at in ipairs(group[1]) do
      names[k], tensors[k] = "weight" .. at, grads[at + 1]
    end
    clips[i] = Clip.clipWeights(names, group[2])
    torch.nn.utils.clip_grad_norm_(tensors, group[2])
  end
  local batch = accumulation and x:expand({ accumulation, 1, 8, 8 }):contiguous() or x
  for _, kind in pairs(KINDS) do
    local got = steps.open(weights, kind(clips), { inputs = { x }, forward = convolutions,
      accumulation = accumulation }):run(batch)
    local want = steps.open(weights, kind())
    local clipped = {}
    for i, p in ipairs(grads) do
      clipped[i] = p.grad
    end
    want:update(table.unpack(clipped))
    for i = 1, count do
      helper.near(got:weight(i), want:weight(i), { 1e-5, 1e-5 })
    end
  end
end

describe("clip_by_norm_test", function()
  it("test_basic", function()
    check_clipped(2, { { { 0, 1 }, 0.2 } })
  end)

  it("test_two_groups", function()
    check_clipped(4, { { { 0, 1 }, 0.5 }, { { 2, 3 }, 0.2 } })
  end)

  -- without stages, which change no value
  it("test_pipelined", function()
    check_clipped(4, { { { 0, 1, 2, 3 }, 15 } }, 3)
  end)

  it("test_clipping_all_weights", function()
    for _, kind in pairs(KINDS) do
      local function forward(w, x, target)
        return F.mse_loss(w[1] + w[2] * x, target)
      end
      local x, target, ones = torch.rand(6), torch.rand(6), torch.ones(6)
      local function run(clips)
        return steps.open({ { "a", ones }, { "b", ones } }, kind(clips), { inputs = { x, target },
          forward = forward }):run(x, target)
      end
      local all = run({ Clip.clipAllWeights(0.1) })
      local both = run({ Clip.clipWeights({ "b", "a" }, 0.1) })
      local free = run()
      for i = 1, 2 do
        helper.near(all:weight(i), both:weight(i), { 1e-6, 1e-6 })
      end
      if kind == KINDS.sgd then
        assert.is_true((all:weight(1) - free:weight(1)):abs():max():item() > 1e-3)
      end
    end
  end)
end)
