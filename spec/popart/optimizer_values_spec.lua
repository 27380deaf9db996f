-- Constructors of PopART's optimizers, their values, and which may replace which.
local helper = require("spec.helper")
local optimizers = require("popart.optimizers")
local scalars = require("popart.optimizers.scalars")
local steps = require("spec.support.popart_steps")
local torch = require("torch")

local raises = helper.raises
local Adam, Adaptive, SGD = optimizers.Adam, optimizers.Adaptive, optimizers.SGD
local Value = optimizers.OptimizerValue
local Clip = optimizers.ClipNormSettings
local Separate = optimizers.SGDAccumulatorAndMomentum.Separate

local function refuses(pattern, f, ...)
  local args = table.pack(...)
  return raises("popart_exception", pattern, function()
    f(table.unpack(args, 1, args.n))
  end)
end

describe("popart.OptimizerValue", function()
  it("is a number and whether it is constant", function()
    assert.same({ 0, false }, { Value():val(), Value():isConst() })
    assert.same({ 0.5, true }, { Value(0.5):val(), Value(0.5):isConst() })
    assert.same({ 0.5, false }, { Value({ 0.5, false }):val(), Value(0.5, false):isConst() })
    raises("TypeError", "val", function() Value("1") end)
  end)

  it("equals what it can be replaced by", function()
    assert.is_true(Value(1, false) == Value(2, false))
    assert.is_true(Value(1, true) ~= Value(2, true))
    Value(1, false):validReplacement(Value(2, false))
    refuses("constant value with a non constant", Value(1).validReplacement, Value(1),
      Value(1, false))
    refuses("constant but do not match", Value(1).validReplacement, Value(1), Value(2))
  end)
end)

-- All values of an optimizer of these keys.
local function defaults(optimizer, keys)
  local out = {}
  for _, key in ipairs(keys) do
    local value = optimizer[key](optimizer):getDefault()
    assert.is_true(value:isConst())
    out[#out + 1] = value:val()
  end
  return out
end

describe("an optimizer of popart", function()
  it("has PopART's defaults", function()
    assert.same({ 0.1, 0, 0, 0, 1, 0 }, defaults(SGD({}), { "learningRates", "weightDecays",
      "momentums", "dampenings", "velocityScalings", "nesterov" }))
    assert.same({ 0.1, 0, 0.9, 0.999, 1e-6, 10 }, defaults(Adam({}), { "learningRates",
      "weightDecays", "beta1s", "beta2s", "epss", "maxWeightNorms" }))
    assert.same({ 0.01, 0, 0.99, 0, 1e-6 }, defaults(Adaptive({}), { "learningRates",
      "weightDecays", "alphas", "momentums", "epss" }))
    assert.equal(1, SGD({}):getLossScalingVal())
    assert.equal(optimizers.AdamMode.Adam, Adam({}).mode)
    assert.equal(optimizers.AdaptiveMode.RMSProp, Adaptive({}).mode)
    assert.equal(optimizers.WeightDecayMode.Decay, Adam({}).decay_mode)
  end)

  it("takes a dictionary, then arguments by position or by name", function()
    local clips = { Clip.clipAllWeights(1) }
    for _, one in ipairs({
      SGD({ defaultMomentum = { 0.5, false } }, clips, Separate),
      SGD({ defaultMomentum = { 0.5, false } }, { clip_norm_settings = clips,
        accumulatorAndMomentum = Separate }),
      SGD({ pyd = { defaultMomentum = Value(0.5, false) }, clip_norm_settings = clips,
        accumulatorAndMomentum = Separate }),
    }) do
      assert.equal(0.5, one:momentums():getDefault():val())
      assert.is_false(one:momentums():getDefault():isConst())
      assert.equal(1, #one.clip_norm_settings)
      assert.equal(Separate, one.accumulator)
    end
    local lamb = Adam({ lossScaling = { 20, false } }, optimizers.AdamMode.Lamb,
      { weight_decay_mode = optimizers.WeightDecayMode.L2Regularization })
    assert.equal(20, lamb:getLossScalingVal())
    assert.equal(optimizers.AdamMode.Lamb, lamb.mode)
    local const = optimizers.ConstSGD({ learning_rate = 0.25, weight_decay = 0.5 })
    assert.is_true(SGD:is(const))
    assert.equal(0.5, const:weightDecays():getDefault():val())
    assert.equal("SGD", const.type)
  end)

  it("takes truth values as the numbers that they are in Python", function()
    local sgd = SGD({ nesterov = { true, true } }) -- sgd_mixed_mode_test_py_1.py
    assert.equal(1, sgd:nesterov():getDefault():val())
    sgd:insertSpecific("w", { nesterov = { false, false } })
    assert.equal(0, sgd:nesterov():get("w"):val())
    assert.is_false(sgd:nesterov():get("w"):isConst())
  end)

  it("refuses names and values that it does not know", function()
    refuses("Invalid SGD key, momentum, the allowed keys are", SGD, { momentum = { 0.5, true } })
    refuses("Invalid Adam key, defaultBeta3", Adam, { defaultBeta3 = { 0.5, true } })
    refuses("Invalid Adaptive key", Adaptive, { defaultBeta1 = { 0.5, true } })
    refuses("defaultMomentum: expected {value, isConst}, .*, got float 0.5", SGD,
      { defaultMomentum = 0.5 })
    refuses("defaultMomentum: expected {value, isConst}, .*, got {string \"a\", bool true}", SGD,
      { defaultMomentum = { "a", true } })
    refuses("Unsupported data type", SGD, {}, { accumType = "INT32" })
    raises("TypeError", "mode", function() Adam({}, "Lamb") end)
    raises("TypeError", "clip_norm_settings%[1%]", function() SGD({}, { 1 }) end)
    raises("TypeError", "momentum", function() SGD({}, { momentum = 1 }) end)
    refuses("No constructor", optimizers.Optimizer)
  end)

  it("E14: refuses values that cannot be meant", function()
    for kind, of in pairs({ SGD = SGD, Adam = Adam, Adaptive = Adaptive }) do
      refuses("Constant, zero learning rate in " .. kind, of, { defaultLearningRate = { 0, true } })
      of({ defaultLearningRate = { 0, false } })
      refuses("Negative learning rate %(%-1%) in " .. kind, of,
        { defaultLearningRate = { -1, false } })
      refuses("Negative weight decay", of, { defaultWeightDecay = { -0.5, true } })
      refuses("Loss scaling cannot be 0", of, { lossScaling = { 0, true } })
    end
    refuses("Negative momentum", SGD, { defaultMomentum = { -1, true } })
    refuses("Negative dampening", SGD, { defaultDampening = { -1, true } })
    refuses("Non%-positive velocity scaling %(0%)", SGD, { defaultVelocityScaling = { 0, true } })
    refuses("When enable nesterov momentum, dampening %(0.1%)", SGD,
      { nesterov = { 1, true }, defaultDampening = { 0.1, true } })
    refuses("Negative beta1", Adam, { defaultBeta1 = { -1, true } })
    refuses("Negative beta2", Adam, { defaultBeta2 = { -1, true } })
    refuses("Negative alpha", Adaptive, { defaultAlpha = { -1, true } })
    refuses("Negative momentum", Adaptive, { defaultMomentum = { -1, true } })
    for _, of in ipairs({ Adam, Adaptive }) do
      refuses("Non%-positive eps %(0%)", of, { defaultEps = { 0, true } })
    end
  end)

  it("E20: refuses TensorFlow's variant of what has none", function()
    for _, mode in ipairs({ "AdaGrad", "AdaDelta" }) do
      refuses("only valid with the RMSProp", Adaptive, {}, { rmsprop_tf_variant = true,
        mode = optimizers.AdaptiveMode[mode] })
    end
  end)

  it("refuses moments in units of a loss scale that the device sets", function()
    Adam({}):_check_loss_scaling(true)
    refuses("automaticLossScaling are not compatible", function()
      Adam({}, { scaled_optimizer_state = true }):_check_loss_scaling(true)
    end)
  end)
end)

describe("insertSpecific", function()
  it("takes what is left out from the defaults of then", function()
    local one = SGD({ defaultMomentum = { 0.7, true } })
    one:insertSpecific("w", { learningRate = { 0.2, false } })
    assert.equal(0.7, one:momentums():get("w"):val())
    assert.equal(0.2, one:learningRates():get("w"):val())
    assert.equal(0.1, one:learningRates():get("v"):val())
    assert.is_true(one:hasSpecific("w") and one:hasSpecific() and not one:hasSpecific("v"))
    assert.is_true(one:nesterov():hasSpecific("w"))
  end)

  it("refuses unknown names, bad values and a second time", function()
    local one = Adam({})
    local function insert(...)
      one:insertSpecific(...)
    end
    refuses("Invalid key defaultBeta1 in Adam::insertSpecific", insert, "w",
      { defaultBeta1 = { 0.5, true } })
    refuses("Invalid key lossScaling", insert, "w", { lossScaling = { 2, true } })
    refuses("Negative beta1", insert, "w", { beta1 = { -1, true } })
    assert.is_false(one:hasSpecific("w"))
    insert("w", {})
    refuses("already a specific value for w", insert, "w", { beta1 = { 0.5, true } })
  end)
end)

describe("an optimizer in another one's place", function()
  local function cannot(pattern, a, b)
    local e = raises("optimizer_replacement_error", pattern, function() a:validReplacement(b) end)
    assert.equal("optimizer_replacement_error", e.type)
    assert.matches("^New optimizer is not a valid replacement%. ", e.message)
    assert.is_true(require("popart.errors").classes.popart_runtime_error:is(e))
  end

  it("has values that change only where they may", function()
    SGD({ defaultLearningRate = { 1, false } }):validReplacement(
      SGD({ defaultLearningRate = { 2, false } }))
    SGD({}):validReplacement(optimizers.ConstSGD(0.1))
    cannot("Problem with learning rates. Default value is not a valid replacement. Values are "
      .. "constant but do not match", SGD({ defaultLearningRate = { 1, true } }), SGD({}))
    cannot("Problem with momentums.*non constant", SGD({}), SGD({ defaultMomentum = { 0, false } }))
    cannot("Problem with loss scaling", SGD({}), SGD({ lossScaling = { 2, true } }))
    cannot("Problem with mwn", Adam({}), Adam({ defaultMaxWeightNorm = { 2, true } }))
    cannot("Problem with alphas", Adaptive({}), Adaptive({ defaultAlpha = { 0.5, true } }))
  end)

  it("has the same weights with values of their own", function()
    local function of(id, value)
      local one = Adam({})
      one:insertSpecific(id, { eps = { value, true } })
      return one
    end
    of("w", 1):validReplacement(of("w", 1))
    cannot("different number of specific tensors", of("w", 1), Adam({}))
    cannot("Could not find tensor w", of("w", 1), of("v", 1))
    cannot("OptimizerValue for tensor w is not a valid replacement", of("w", 1), of("w", 2))
  end)

  it("is of the same kind, mode, states and clipping", function()
    cannot("Can not replace optimizer of type SGD with new optimizer of type Adam", SGD({}),
      Adam({}))
    local M = optimizers.AdamMode
    cannot("Adam modes do not match", Adam({}, M.Lamb), Adam({}))
    cannot("Weight decay modes do not match", Adam({}), Adam({},
      { weight_decay_mode = optimizers.WeightDecayMode.L2Regularization }))
    cannot("Adaptive modes do not match", Adaptive({}),
      Adaptive({}, optimizers.AdaptiveMode.AdaGrad))
    local moving = { defaultMomentum = { 0.5, false } }
    cannot("SGDAccumulatorAndMomentum", SGD(moving), SGD(moving, {}, Separate))
    SGD({}):validReplacement(SGD({}, {}, Separate))
    cannot("accl1 types", SGD(moving, {}, Separate),
      SGD(moving, {}, Separate, { accl1Type = "FLOAT16" }))
    local function clipped(...)
      return SGD({}, { ... })
    end
    clipped(Clip.clipAllWeights(1)):validReplacement(clipped(Clip.clipAllWeights(1)))
    cannot("Clip norm settings do not match", clipped(Clip.clipAllWeights(1)), SGD({}))
    cannot("Clip norm settings at index 1", clipped(Clip.clipWeights({ "a" }, 1),
      Clip.clipWeights({ "b" }, 1)), clipped(Clip.clipWeights({ "a" }, 1),
      Clip.clipWeights({ "b" }, 2)))
  end)

  it("is checked before a session takes it", function()
    local s = steps.open({ { "w", torch.tensor({ 1.0 }) } },
      SGD({ defaultLearningRate = { 0.5, false } }))
    s:update({ 1.0 })
    raises("optimizer_replacement_error", "learning rates", function()
      s:replace(SGD({ defaultLearningRate = { 0.25, true } }))
    end)
    s:update({ 1.0 })
    helper.near(s:weight(), { 0 })
    s:replace(SGD({ defaultLearningRate = { 0.25, false } })):update({ 1.0 })
    helper.near(s:weight(), { -0.25 })
  end)
end)

describe("scalars of a program", function()
  local function of(values, how)
    local list = {}
    for key, value in pairs(values) do
      list[key] = { value, false }
    end
    local out = {}
    for kind, one in pairs(scalars.of(SGD(list), "w", how or {})) do
      out[kind] = one.value
    end
    return out
  end

  local function near(want, got)
    for key, value in pairs(want) do
      assert.near(value, got[key], 1e-12, key)
    end
  end

  it("E11: put an SGD's values together", function()
    local values = { defaultLearningRate = 0.1, defaultWeightDecay = 0.01, defaultDampening = 0.8,
      defaultMomentum = 0.9 }
    near({ scaledLearningRate1 = 0.1, scaledWeightDecay1 = 0.002, dampeningScaleFactor1 = 0.2,
      scaledMomentum1 = 0.9 }, of(values))
    values.lossScaling = 4
    near({ dampeningScaleFactor1 = 0.05 }, of(values))
    values.lossScaling, values.defaultVelocityScaling = 1, 2
    near({ scaledLearningRate1 = 0.05, scaledWeightDecay1 = 0.004, dampeningScaleFactor1 = 0.4 },
      of(values))
  end)

  it("have the session's factors in them", function()
    local values = { defaultLearningRate = 0.5, defaultMomentum = 0.8 }
    near({ scaledLearningRate1 = 0.125, scaledMomentum1 = 0.2, dampeningScaleFactor1 = 4 },
      of(values, { accumulation = 3, replicas = 4 }))
    near({ scaledLearningRate1 = 0.125, dampeningScaleFactor1 = 1 / 3 },
      of(values, { accumulation = 3, replicas = 4, mean = true }))
    near({ scaledLearningRate1 = 0.5, dampeningScaleFactor1 = 0.25 },
      of(values, { replicas = 4, mean = true }))
  end)

  it("have PopART's names, those of constants are left out", function()
    local one = SGD({ defaultLearningRate = { 0.5, false }, lossScaling = { 2, true } })
    one:insertSpecific("v", { learningRate = { 0.25, false } })
    assert.same({ scaledLearningRate0___default___FLOAT = 0.25,
      weightDecayScaleFactor0___default___FLOAT = 1,
      scaledLearningRate0___specific___v = 0.125, weightDecayScaleFactor0___specific___v = 1 },
      scalars.by_name(one, { { name = "w", tensor = torch.zeros(1) },
        { name = "v", tensor = torch.zeros(1) } }, {}))
    local changing = Adam({ defaultBeta1 = { 0.5, false }, lossScaling = { 4, false } })
    local names = scalars.by_name(changing,
      { { name = "w", tensor = torch.zeros(1):half() } }, { accumulation = 2, mean = true })
    assert.same({ adamBeta1___default___FLOAT16 = 0.5,
      adamGradientScaling___default___FLOAT16 = 0.125, lossScaling_FLOAT = 4 }, names)
  end)
end)
