-- Values of PopART's optimizers against their formulas, in sessions of their own.
local formulas = require("spec.support.popart_formulas")
local helper = require("spec.helper")
local optimizers = require("popart.optimizers")
local steps = require("spec.support.popart_steps")
local torch = require("torch")

local near = helper.near
local Adam, Adaptive, SGD = optimizers.Adam, optimizers.Adaptive, optimizers.SGD
local Clip = optimizers.ClipNormSettings
local Combined = optimizers.SGDAccumulatorAndMomentum.Combined
local Separate = optimizers.SGDAccumulatorAndMomentum.Separate
local BOTH = { Combined, Separate }
local L2 = optimizers.WeightDecayMode.L2Regularization
local CLOSE = { 1e-5, 1e-5 }

-- What three updates by gradients of one leave of weights of 100 and 200.
local function thrice(optimizer, how, count)
  local s = steps.open({ { "w0", torch.tensor({ 100.0 }) }, { "w1", torch.tensor({ 200.0 }) } },
    optimizer, how)
  local ones = torch.ones(count or 1)
  for _ = 1, 3 do
    s:update(ones, ones)
  end
  return s:weight(1):item(), s:weight(2):item()
end

local function check_thrice(want, ...)
  local a, b = thrice(...)
  assert.near(100 - want, a, 2e-5)
  assert.near(200 - want, b, 4e-5)
end

-- The dictionary of a constructor, all constant or none.
local function dict(values, const)
  local out = {}
  for key, value in pairs(values) do
    out[key] = { value, const ~= false }
  end
  return out
end

local function sgd(values, accumulator, clips, const)
  return SGD(dict(values, const), clips or {}, { accumulatorAndMomentum = accumulator })
end

-- An SGD of the names that the formulas have.
local function sgd_of(o, accumulator, extra)
  local values = { defaultLearningRate = o.lr, defaultWeightDecay = o.wd, defaultMomentum = o.mm,
    defaultDampening = o.dm, defaultVelocityScaling = o.vs, nesterov = o.nesterov and 1 or 0 }
  for key, value in pairs(extra or {}) do
    values[key] = value
  end
  return sgd(values, accumulator, nil, false)
end

local function velocity_of(accumulator)
  return accumulator == Combined and formulas.combined or formulas.separate
end

describe("popart.SGD", function()
  it("E1: without momentum is plain descent", function()
    check_thrice(0.75, SGD({ defaultLearningRate = { 0.25, true } }))
  end)

  it("E2: with momentum 1 sums the gradients of all updates", function()
    for _, accumulator in ipairs(BOTH) do
      check_thrice(6 * 0.25, sgd({ defaultLearningRate = 0.25, defaultMomentum = 1 }, accumulator))
    end
  end)

  it("E3: does not depend on velocity and loss scaling", function()
    for _, accumulator in ipairs(BOTH) do
      for _, const in ipairs({ true, false }) do
        check_thrice(6 * 0.25, sgd({ defaultLearningRate = 0.25, defaultMomentum = 1,
          defaultVelocityScaling = 14.15, lossScaling = 0.15 }, accumulator, nil, const))
      end
    end
  end)

  it("E5: sums micro-batches and replicas", function()
    for _, accumulator in ipairs(BOTH) do
      for _, n in ipairs({ { 5, 1 }, { 1, 2 }, { 5, 2 } }) do
        local count = n[1] * n[2]
        check_thrice(count * 6 * 0.25, sgd({ defaultLearningRate = 0.25, defaultMomentum = 1 },
          accumulator), { accumulation = n[1], replicas = n[2] }, count)
      end
    end
  end)

  it("averages where the session does, while it runs or after", function()
    for _, accumulator in ipairs(BOTH) do
      for _, running in ipairs({ true, false }) do
        check_thrice(6 * 0.25, sgd({ defaultLearningRate = 0.25, defaultMomentum = 1,
          lossScaling = 8 }, accumulator), { accumulation = 4, replicas = 2, mean = true,
          running = running }, 8)
      end
    end
  end)

  it("E8: takes values that change between updates, the combined one a step later", function()
    local changes = {
      { lr = 0.5, wd = 0.01, mm = 0.9, dm = 0.1, vs = 1.5 },
      { lr = 0.4, wd = 0.05, mm = 0.7, dm = 0.3, vs = 1.5 },
      { lr = 0.3, wd = 0.02, mm = 0.5, dm = 0.2, vs = 1.5 },
      { lr = 0.3, wd = 0.02, mm = 0.5, dm = 0.2, vs = 1.5 },
    }
    for _, accumulator in ipairs(BOTH) do
      local s = steps.open({ { "w", torch.tensor({ 3.0, -2.0 }) } },
        sgd_of(changes[1], accumulator, { lossScaling = 1 }))
      local by_hand = { { w = 3 }, { w = -2 } }
      for i, o in ipairs(changes) do
        s:replace(sgd_of(o, accumulator, { lossScaling = 2.0 ^ i }))
        local grads = { 0.5 * i, -1.5 + i }
        s:update(grads)
        for k, one in ipairs(by_hand) do
          velocity_of(accumulator)(one, o, grads[k])
        end
      end
      near(s:weight(), { by_hand[1].w, by_hand[2].w }, CLOSE)
      near(s:state(accumulator == Combined and "Accl___w" or "Accl1___w"),
        { by_hand[1].v, by_hand[2].v }, CLOSE)
    end
  end)

  it("has Nesterov's momentum, as the formulas", function()
    local o = { lr = 0.1, wd = 0.02, mm = 0.9, dm = 0, vs = 0.5, nesterov = true }
    for _, accumulator in ipairs(BOTH) do
      local s = steps.open({ { "w", torch.tensor({ 3.0 }) } },
        sgd_of(o, accumulator, { lossScaling = 16 }), { accumulation = 2, mean = true })
      local by_hand = { w = 3 }
      for i = 1, 4 do
        s:update({ i, -3.0 })
        velocity_of(accumulator)(by_hand, o, (i - 3) / 2)
      end
      near(s:weight(), { by_hand.w }, CLOSE)
    end
  end)

  it("E10: gives weights values of their own", function()
    local first = { lr = 0.7, wd = 0, mm = 0.85, dm = 0, vs = 0.01 }
    local second = { lr = 0.25, wd = 0.3, mm = 0.5, dm = 0, vs = 1 }
    for _, accumulator in ipairs(BOTH) do
      local function optimizer(lr)
        local one = sgd({ defaultLearningRate = 0.25, defaultMomentum = 0.5 }, accumulator)
        one:insertSpecific("w0", { momentum = { 0.85, true }, learningRate = { lr, false },
          velocityScaling = { 0.01, true } })
        one:insertSpecific("w1", { weightDecay = { 0.3, true } })
        return one
      end
      local s = steps.open({ { "w0", torch.tensor({ 100.0 }) }, { "w1", torch.tensor({ 200.0 }) } },
        optimizer(0.7))
      local a, b = { w = 100 }, { w = 200 }
      for _, lr in ipairs({ 0.7, 0.6, 0.4 }) do
        s:replace(optimizer(lr)):update({ 1.0 }, { 1.0 })
        first.lr = lr
        velocity_of(accumulator)(a, first, 1)
        velocity_of(accumulator)(b, second, 1)
      end
      near(s:weight(1), { a.w }, CLOSE)
      near(s:weight(2), { b.w }, CLOSE)
    end
  end)

  it("E24: of constants is ConstSGD; weights that are no floats stay, halves train", function()
    check_thrice(0.75, optimizers.ConstSGD(0.25))
    local decayed = { w = 100 }
    for _ = 1, 3 do
      formulas.plain(decayed, { lr = 0.25, wd = 0.1, dm = 0 }, 1)
    end
    assert.near(decayed.w, (thrice(optimizers.ConstSGD(0.25, 0.1, { loss_scaling = 4 }))), 1e-4)
    local view = optimizers.view(optimizers.ConstSGD(0.25), {
      { name = "n", tensor = torch.tensor({ 1, 2 }) }, { name = "h", tensor = torch.zeros(2) } })
    assert.equal(1, #view:rules())
    assert.equal("h", view:rules()[1].param)
    for _, accumulator in ipairs(BOTH) do
      local half = steps.open({ { "h", torch.tensor({ 2.0 }):half() } },
        sgd({ defaultLearningRate = 0.25, defaultMomentum = 0.5 }, accumulator))
      half:update({ 1.0 }):update({ 1.0 })
      assert.equal(torch.float16, half:weight().dtype)
      near(half:weight():float(), { 2 - 0.25 - 0.375 })
    end
  end)

  it("F6: starts the combined velocity with the weight's decay", function()
    local s = steps.open({ { "w", torch.tensor({ 4.0 }) } },
      sgd_of({ lr = 0.1, wd = 0.5, mm = 0.9, dm = 0.25, vs = 2 }, Combined))
    near(s:state("Accl___w"), { 0.75 * 0.5 * 2 * 4 })
  end)
end)

-- ---- Adam and Adaptive ----------------------------------------------------------------------

local GRADS = { { 0.5, -1.0, 0.25 }, { 0.1, 2.0, -0.75 }, { -0.3, 0.5, 0.5 } }
local START = { 0.5, -1.25, 2.0 }

local function adam_of(o, extra)
  local keywords = { mode = optimizers.AdamMode[o.mode],
    weight_decay_mode = o.l2 and L2 or optimizers.WeightDecayMode.Decay }
  for key, value in pairs(extra or {}) do
    keywords[key] = value
  end
  return Adam(dict({ defaultLearningRate = o.lr, defaultWeightDecay = o.wd, defaultBeta1 = o.b1,
    defaultBeta2 = o.b2, defaultEps = o.eps, defaultMaxWeightNorm = o.mwn,
    lossScaling = o.ls or 1 }, false), keywords)
end

local ADAM_MODES = { "Adam", "AdamNoBias", "Lamb", "LambNoBias", "AdaMax" }

local function of_adam(mode, l2)
  return { lr = 0.1, wd = 0.05, b1 = 0.8, b2 = 0.95, eps = 1e-3, mwn = 1.5, ls = 32, mode = mode,
    l2 = l2 }
end

describe("popart.Adam", function()
  it("E17: is the formulas in each mode, with both kinds of decay", function()
    for _, mode in ipairs(ADAM_MODES) do
      for _, l2 in ipairs({ false, true }) do
        for _, scaled in ipairs({ false, true }) do
          local o = of_adam(mode, l2)
          local s = steps.open({ { "w", torch.tensor(START) } },
            adam_of(o, { scaled_optimizer_state = scaled }))
          local by_hand = { w = { table.unpack(START) } }
          for i, g in ipairs(GRADS) do
            s:update(g)
            formulas.adam(by_hand, o, g)
            if scaled and i == 2 then -- the states follow the loss scale
              o.ls = 8
              s:replace(adam_of(o, { scaled_optimizer_state = true }))
            end
          end
          near(s:weight(), by_hand.w, CLOSE)
          local unit = scaled and 8 or 1
          near(s:state("Accl1___w") / unit, by_hand.m, CLOSE)
          near(s:state("Accl2___w") / (mode == "AdaMax" and unit or unit ^ 2), by_hand.v, CLOSE)
        end
      end
    end
  end)

  it("E17: has states of 32 bits for weights of 16, unless it is told otherwise", function()
    local o = of_adam("Adam", false)
    local w = torch.tensor(START):half()
    local s = steps.open({ { "w", w } }, adam_of(o))
    local by_hand = { w = { table.unpack(START) } }
    for _, g in ipairs(GRADS) do
      s:update(g)
      formulas.adam(by_hand, o, g)
    end
    assert.equal(torch.float32, s:state("Accl1___w").dtype)
    near(s:weight():float(), by_hand.w, { 4e-3, 4e-3 })
    s = steps.open({ { "w", w } }, adam_of(o, { accl1_type = "FLOAT16", accl2_type = torch.none,
      accum_type = torch.float32 }), { accumulation = 2 })
    assert.equal(torch.float16, s:state("Accl1___w").dtype)
    assert.equal(torch.float16, s:state("Accl2___w").dtype)
    assert.equal(torch.float32, s.view:rules()[1].accum)
  end)

  it("lets the weight's norm be without a most, or its ratio be left out", function()
    for _, mwn in ipairs({ 0, 100 }) do
      local o = of_adam("Lamb", false)
      o.mwn = mwn
      local s = steps.open({ { "w", torch.tensor(START) } }, adam_of(o))
      local by_hand = { w = { table.unpack(START) } }
      s:update(GRADS[1])
      formulas.adam(by_hand, o, GRADS[1])
      near(s:weight(), by_hand.w, CLOSE)
    end
  end)

  it("E25: has states by PopART's names, and goes on with those that it is given", function()
    local o = of_adam("Adam", false)
    local whole = steps.open({ { "w", torch.tensor(START) } }, adam_of(o))
    whole:update(GRADS[1]):update(GRADS[2])
    local names = {}
    for name in pairs(whole.view.states) do
      names[#names + 1] = name
    end
    table.sort(names)
    assert.same({ "Accl1___w", "Accl2___w", "Step___w" }, names)
    near(whole:state("Step___w"), torch.tensor(2.0))
    local resumed = steps.open({ { "w", whole:weight() } }, adam_of(o), { given = whole:saved() })
    whole:update(GRADS[3])
    resumed:update(GRADS[3])
    near(resumed:weight(), whole:weight(), { 0, 0 })
    helper.raises("popart_exception", "Accl1___w has 2 elements", function()
      steps.open({ { "w", torch.tensor(START) } }, adam_of(o),
        { given = { Accl1___w = torch.zeros(2) } })
    end)
  end)
end)

describe("popart.Adam with states in units of the loss scale", function()
  it("goes on with those of another one", function()
    for _, mode in ipairs({ "Lamb", "AdaMax" }) do
      local o, scaled = of_adam(mode, true), { scaled_optimizer_state = true }
      local one = steps.open({ { "w", torch.tensor(START) } }, adam_of(o, scaled))
      one:update(GRADS[1])
      local saved = one:saved()
      helper.near(saved.PreviousLossScaling_FLOAT, torch.tensor(32.0))
      o.ls = 4
      local other = steps.open({ { "w", one:weight() } }, adam_of(o, scaled), { given = saved })
      near(other:state("Accl1___w") * 8, one:state("Accl1___w"))
      one:update(GRADS[2])
      other:update(GRADS[2])
      near(other:weight(), one:weight(), CLOSE)
    end
  end)
end)

describe("popart.Adaptive", function()
  local function adaptive_of(o)
    return Adaptive(dict({ defaultLearningRate = o.lr, defaultWeightDecay = o.wd,
      defaultAlpha = o.alpha, defaultMomentum = o.mm, defaultEps = o.eps, lossScaling = 4 }), {
      mode = optimizers.AdaptiveMode[o.mode], rmsprop_tf_variant = o.tf,
      weight_decay_mode = o.l2 and L2 or nil })
  end

  it("E20: is the formulas in each mode, with momentum, decay and as TensorFlow's", function()
    for _, mode in ipairs({ "AdaGrad", "RMSProp", "CenteredRMSProp", "AdaDelta" }) do
      for _, mm in ipairs({ 0, 0.9 }) do
        for _, l2 in ipairs({ false, true }) do
          for _, tf in ipairs(mode:find("RMS") and { false, true } or { false }) do
            local o = { lr = 0.05, wd = 0.02, alpha = 0.9, mm = mm, eps = 1e-3, mode = mode,
              l2 = l2, tf = tf }
            local s = steps.open({ { "w", torch.tensor(START) } }, adaptive_of(o))
            local by_hand = {}
            for i, w in ipairs(START) do
              by_hand[i] = { w = w }
            end
            for _, g in ipairs(GRADS) do
              s:update(g)
              for i, one in ipairs(by_hand) do
                formulas.adaptive(one, o, g[i])
              end
            end
            near(s:weight(), { by_hand[1].w, by_hand[2].w, by_hand[3].w }, CLOSE)
            assert.equal(mm > 0, s.view.states.Accl3___w ~= nil)
          end
        end
      end
    end
  end)
end)

-- ---- clipping -------------------------------------------------------------------------------

describe("popart.ClipNormSettings", function()
  local TWO = { { "a", torch.tensor({ 3.0, 1.0 }) }, { "b", torch.tensor({ -1.0 }) } }

  local function moved(optimizer, how, ...)
    local s = steps.open(TWO, optimizer, how)
    s:update(...)
    return { TWO[1][2] - s:weight(1), TWO[2][2] - s:weight(2) }
  end

  it("E22: scales gradients of a longer norm, and no others", function()
    for most, want in pairs({ [1] = { 0.6, 0.8 }, [10] = { 3, 4 } }) do
      local by = moved(sgd({ defaultLearningRate = 1 }, nil, { Clip.clipAllWeights(most) }), nil,
        { 3.0, 4.0 }, { 0.0 })
      near(by[1], want, CLOSE)
    end
  end)

  it("E22: clips groups by themselves", function()
    local by = moved(sgd({ defaultLearningRate = 1 }, nil,
      { Clip.clipWeights({ "a" }, 1), Clip.clipWeights({ "b" }, 0.5) }), nil, { 3.0, 4.0 }, { 2.0 })
    near(by[1], { 0.6, 0.8 }, CLOSE)
    near(by[2], { 0.5 }, CLOSE)
    by = moved(sgd({ defaultLearningRate = 1 }, nil, { Clip.clipWeights({ "a" }, 1) }), nil,
      { 3.0, 4.0 }, { 2.0 })
    near(by[1], { 0.6, 0.8 }, CLOSE)
    near(by[2], { 2 }, CLOSE)
  end)

  it("E22: refuses groups beside one of all weights, and weights that are not there", function()
    local function open(...)
      return optimizers.view(sgd({}, nil, { ... }), { { name = "a", tensor = TWO[1][2] } })
    end
    helper.raises("popart_exception", "only one group should be specified", function()
      open(Clip.clipAllWeights(1), Clip.clipWeights({ "a" }, 1))
    end)
    helper.raises("popart_exception", "Could not find a varupdate op for tensor z", function()
      open(Clip.clipWeights({ "z" }, 1))
    end)
    helper.raises("popart_exception", "tensor a is in two clip groups", function()
      open(Clip.clipWeights({ "a" }, 1), Clip.clipWeights({ "a" }, 2))
    end)
  end)

  it("measures a plain SGD's gradients as they were summed, with the loss scale", function()
    local optimizer = sgd({ defaultLearningRate = 1, lossScaling = 2 }, nil,
      { Clip.clipAllWeights(1) })
    local how = { accumulation = 2, mean = true }
    local by = moved(optimizer, how, { 3.0, 4.0, 3.0, 4.0 }, { 0.0, 0.0 })
    -- the sum is 2 (6, 8), clipped to (0.6, 0.8), divided by 2 and 2
    near(by[1], { 0.15, 0.2 }, CLOSE)
    how.running = true
    by = moved(optimizer, how, { 3.0, 4.0, 3.0, 4.0 }, { 0.0, 0.0 })
    near(by[1], { 0.3, 0.4 }, CLOSE)
    how.replicas = 2
    by = moved(optimizer, how, { 3.0, 4.0, 3.0, 4.0, 3.0, 4.0, 3.0, 4.0 }, { 0.0, 0.0, 0.0, 0.0 })
    near(by[1], { 0.3, 0.4 }, CLOSE)
  end)

  it("measures a velocity, and keeps it as it is", function()
    local o = { lr = 0.5, wd = 0.1, mm = 0.9, dm = 0.2, vs = 2 }
    for _, nesterov in ipairs({ false, true }) do
      o.nesterov, o.dm = nesterov, nesterov and 0 or 0.2
      for _, accumulator in ipairs(BOTH) do
        local optimizer = sgd_of(o, accumulator, { lossScaling = 8 })
        optimizer.clip_norm_settings = { Clip.clipAllWeights(0.75) }
        local s = steps.open(TWO, optimizer)
        local by_hand = { { w = 3 }, { w = 1 }, { w = -1 } }
        for i = 1, 3 do
          local grads = { 3.0 * i, 4.0, 1.0 - i }
          s:update({ grads[1], grads[2] }, { grads[3] })
          -- the length of the step, without clipping
          local squares = 0
          for k, one in ipairs(by_hand) do
            local probe = { w = one.w, v = one.v }
            o.clip = nil
            velocity_of(accumulator)(probe, o, grads[k])
            squares = squares + ((one.w - probe.w) * o.vs / o.lr) ^ 2
          end
          o.clip = 0.75 / math.max(math.sqrt(squares), 0.75)
          for k, one in ipairs(by_hand) do
            velocity_of(accumulator)(one, o, grads[k])
          end
        end
        near(s:weight(1), { by_hand[1].w, by_hand[2].w }, CLOSE)
        near(s:weight(2), { by_hand[3].w }, CLOSE)
      end
    end
  end)

  it("clips what enters Adam's moments, decay in the gradient included", function()
    for _, mode in ipairs({ "AdamNoBias", "Lamb", "AdaMax" }) do
      for _, l2 in ipairs({ true, false }) do
        local o, settings = of_adam(mode, l2), { Clip.clipAllWeights(0.5) }
        local s = steps.open(TWO, adam_of(o, { clip_norm_settings = settings }))
        s:update({ 3.0, 4.0 }, { 1.0 })
        -- in units of the loss scale it is the scaled gradient's norm
        o.ls = 4
        local scaled = steps.open(TWO, adam_of(o, { clip_norm_settings = settings,
          scaled_optimizer_state = true }))
        scaled:update({ 3.0, 4.0 }, { 1.0 })
        near(scaled:state("Accl1___a"), s:state("Accl1___a"), CLOSE)
        local x = { 3, 4, 1 }
        for i, w in ipairs({ 3, 1, -1 }) do
          x[i] = x[i] + (l2 and o.wd * w or 0)
        end
        local clip = 0.5 / math.sqrt(x[1] ^ 2 + x[2] ^ 2 + x[3] ^ 2)
        near(s:state("Accl1___a"), { 0.2 * x[1] * clip, 0.2 * x[2] * clip }, CLOSE)
        near(s:state("Accl1___b"), { 0.2 * x[3] * clip }, CLOSE)
      end
    end
  end)

  it("has its fields, and an older constructor", function()
    local of_all, two = Clip.clipAllWeights(2), Clip.clipWeights({ "a", "b" }, 3.5)
    assert.same({ "a", "b" }, two.weightIds)
    assert.equal(3.5, two:getMaxNorm())
    assert.is_true(two == Clip({ "a", "b" }, 3.5))
    assert.is_true(two ~= Clip.clipWeights({ "a", "b" }, 3.6))
    helper.raises("popart_exception", "getWeightIds should only be called", function()
      of_all:getWeightIds()
    end)
    helper.raises("TypeError", "maxNorm", function() Clip.clipAllWeights("1") end)
  end)
end)
