-- PopART's comparisons of its optimizers with PyTorch's, NumPy's and with themselves over
-- other divisions of a batch (integration/optimizer_tests: pytorch_comparisons,
-- rmsprop_tf_mode_test, global_batch_size_test, sgd1_accumulator_test).
local formulas = require("spec.support.popart_formulas")
local helper = require("spec.helper")
local optimizers = require("popart.optimizers")
local steps = require("spec.support.popart_steps")
local torch = require("torch")

local Combined = optimizers.SGDAccumulatorAndMomentum.Combined
local Separate = optimizers.SGDAccumulatorAndMomentum.Separate
local AdamMode, AdaptiveMode = optimizers.AdamMode, optimizers.AdaptiveMode
local Decay = optimizers.WeightDecayMode.Decay
local L2 = optimizers.WeightDecayMode.L2Regularization

-- loss = mean |x w0 + w1|
local function model(w, x)
  return torch.nn.functional.l1_loss(x * w[1] + w[2], torch.zeros_like(x))
end

local BATCHES, SAMPLES = 5, 4
local RATES = { 0.005, 0.003, 0.001 }

local function data(size, count)
  torch.manual_seed(1015)
  local inputs = {}
  for i = 1, count do
    inputs[i] = torch.randn(BATCHES * SAMPLES, size, size)
  end
  return torch.randn(size, size), torch.randn(size, size), inputs
end

-- Five updates with each of the optimizers, and the same by `update(weights, k)`, which is
-- given gradients in `grad`; the weights may be apart by 1e-5 of how far they moved.
local function compare(list, update)
  local w0, w1, inputs = data(2, #list)
  local s = steps.open({ { "w0", w0 }, { "w1", w1 } }, list[1], { forward = model,
    inputs = { torch.empty(SAMPLES, 2, 2) }, iterations = BATCHES })
  local w = { w0:clone():requires_grad_(true), w1:clone():requires_grad_(true) }
  for k, optimizer in ipairs(list) do
    s:replace(optimizer):run(inputs[k])
    for i = 0, BATCHES - 1 do
      for _, p in ipairs(w) do
        p.grad = nil
      end
      model(w, inputs[k]:narrow(0, i * SAMPLES, SAMPLES)):backward()
      update(w, k)
    end
  end
  for i, start in ipairs({ w0, w1 }) do
    local moved = (w[i]:detach() - start):abs():sum():item()
    local apart = (w[i]:detach() - s:weight(i)):abs():sum():item()
    assert.is_true(moved > 0 and apart / moved < 1e-5, ("%g of %g"):format(apart, moved))
  end
end

-- ---- pytorch_comparisons ----------------------------------------------------------------------

-- PyTorch's update, with a velocity of zeros to begin with.
local function torch_sgd(w, o)
  torch.no_grad(function()
    for _, p in ipairs(w) do
      local x = p.grad + p * o.wd
      o[p] = o[p] and o[p] * o.mm + x * (1 - o.dm) or x * (1 - o.dm)
      p:sub_((o.nesterov and x + o[p] * o.mm or o[p]) * o.lr)
    end
  end)
end

local function sgd_test_against_pytorch(accumulator, nesterov)
  local mm = accumulator and 0.1 or 0
  local dm = accumulator and not nesterov and 0.3 or 0
  local rates, list = { 0.5, 0.3, 0.1 }, {}
  for i, lr in ipairs(rates) do
    list[i] = optimizers.SGD({ defaultLearningRate = { lr, false },
      defaultMomentum = { mm, mm == 0 }, defaultDampening = { dm, false },
      defaultVelocityScaling = { 0.5, false }, lossScaling = { 10, false },
      defaultWeightDecay = { 0.01, false }, nesterov = { nesterov and 1 or 0, true } }, {},
      accumulator or Combined)
  end
  local o = { wd = 0.01, mm = mm, dm = dm, nesterov = nesterov }
  compare(list, function(w, k)
    o.lr = rates[k]
    torch_sgd(w, o)
  end)
end

-- An optimizer of lupine's own torch.optim, whose rate changes.
local function native(class, options)
  local optimizer
  return function(w, k)
    optimizer = optimizer or class(w, options)
    optimizer.param_groups[1].lr = RATES[k]
    optimizer:step()
  end
end

-- Lamb as in the originals' torch_lamb.py: no most for the weights' norm.
local function torch_lamb(mode)
  local states, o = {}, { wd = 0.1, b1 = 0.7, b2 = 0.8, eps = 1e-6, mwn = math.huge, mode = mode }
  return function(w, k)
    o.lr = RATES[k]
    torch.no_grad(function()
      for i, p in ipairs(w) do
        local s = states[i] or { w = p:reshape(-1):tolist() }
        states[i] = s
        formulas.adam(s, o, p.grad:reshape(-1):tolist())
        p:copy_(torch.tensor(s.w):reshape(p.shape))
      end
    end)
  end
end

local function adam(mode, decay, scaled)
  local list = {}
  for i, lr in ipairs(RATES) do
    list[i] = optimizers.Adam({ defaultLearningRate = { lr, false }, defaultBeta1 = { 0.7, false },
      defaultBeta2 = { 0.8, false }, defaultWeightDecay = { 0.1, false },
      defaultEps = { 1e-6, false }, lossScaling = { 10, false } },
      { mode = mode, weight_decay_mode = decay, scaled_optimizer_state = scaled })
  end
  return list
end

local function adaptive(mode, momentum)
  local list = {}
  for i, lr in ipairs(RATES) do
    list[i] = optimizers.Adaptive({ defaultLearningRate = { lr, false },
      defaultAlpha = { 0.7, false }, defaultWeightDecay = { 0.1, false },
      defaultEps = { 1e-6, false }, lossScaling = { 10, false },
      defaultMomentum = momentum and { momentum, false } or nil },
      { mode = mode, weight_decay_mode = L2 })
  end
  return list
end

describe("pytorch_comparisons", function()
  it("test_sgd0_against_pytorch", function()
    sgd_test_against_pytorch(nil, false)
  end)

  it("test_sgd2_against_pytorch", function()
    sgd_test_against_pytorch(Separate, true)
    sgd_test_against_pytorch(Separate, false)
  end)

  it("test_sgd1_against_pytorch", function()
    sgd_test_against_pytorch(Combined, true)
    sgd_test_against_pytorch(Combined, false)
  end)

  it("test_adam_against_pytorch", function()
    local o = torch.optim
    local options = { lr = 0.005, betas = { 0.7, 0.8 }, eps = 1e-6, weight_decay = 0.1 }
    for _, scaled in ipairs({ true, false }) do
      compare(adam(AdamMode.Adam, L2, scaled), native(o.Adam, options))
      compare(adam(AdamMode.Adam, Decay, scaled), native(o.AdamW, options))
      compare(adam(AdamMode.Lamb, Decay, scaled), torch_lamb("Lamb"))
      compare(adam(AdamMode.LambNoBias, Decay, scaled), torch_lamb("LambNoBias"))
      compare(adam(AdamMode.AdaMax, L2, scaled), native(o.Adamax, options))
    end
  end)

  it("test_adaptive_against_pytorch", function()
    local o = torch.optim
    local function rms(centered, momentum)
      return native(o.RMSprop, { lr = 0.005, alpha = 0.7, eps = 1e-6, weight_decay = 0.1,
        momentum = momentum or 0, centered = centered })
    end
    compare(adaptive(AdaptiveMode.AdaGrad), native(o.Adagrad, { lr = 0.005, eps = 1e-6,
      weight_decay = 0.1 }))
    for _, momentum in ipairs({ false, 0.8 }) do
      compare(adaptive(AdaptiveMode.RMSProp, momentum), rms(false, momentum))
      compare(adaptive(AdaptiveMode.CenteredRMSProp, momentum), rms(true, momentum))
    end
    compare(adaptive(AdaptiveMode.AdaDelta), native(o.Adadelta, { lr = 0.005, rho = 0.7,
      eps = 1e-6, weight_decay = 0.1 }))
  end)
end)

-- ---- rmsprop_tf_mode_test ---------------------------------------------------------------------

local RMS_STEPS, RMS_SAMPLES = 5, 8

-- Values of update k of RMSProp, by what stays constant.
local function rms_values(of, k)
  local at = (k - 1) / (RMS_STEPS - 1)
  return { lr = of.const_lr and 0.02 or 0.02 - at * (0.02 - 1e-5), alpha = 0.95, mm = of.momentum,
    wd = of.const_wd and of.decay or of.decay + at * 0.01, eps = 1e-3, l2 = of.l2, tf = true,
    mode = of.centered and "CenteredRMSProp" or "RMSProp" }
end

local function rms_optimizer(of, o, tf)
  return optimizers.Adaptive({ defaultLearningRate = { o.lr, of.const_lr },
    defaultAlpha = { o.alpha, true }, defaultMomentum = { o.mm, true },
    defaultEps = { o.eps, true }, defaultWeightDecay = { o.wd, of.const_wd } },
    { mode = AdaptiveMode[o.mode], weight_decay_mode = of.l2 and L2 or Decay,
      rmsprop_tf_variant = tf })
end

local function rms_test(of, tf)
  local w0, w1 = torch.randn(3, 3), torch.randn(3, 3)
  local s = steps.open({ { "w0", w0 }, { "w1", w1 } }, rms_optimizer(of, rms_values(of, 1), tf),
    { forward = model, inputs = { torch.empty(RMS_SAMPLES, 3, 3) } })
  local w, states = { w0:clone():requires_grad_(true), w1:clone():requires_grad_(true) }, {}
  for k = 1, RMS_STEPS do
    local o = rms_values(of, k)
    local x = torch.randn(RMS_SAMPLES, 3, 3)
    s:replace(rms_optimizer(of, o, tf)):run(x)
    model(w, x):backward()
    torch.no_grad(function()
      for i, p in ipairs(w) do
        local values, grads = p:reshape(-1):tolist(), p.grad:reshape(-1):tolist()
        for j, value in ipairs(values) do
          states[i * 9 + j] = states[i * 9 + j] or {}
          states[i * 9 + j].w = value
          formulas.adaptive(states[i * 9 + j], o, grads[j])
          values[j] = states[i * 9 + j].w
        end
        p:copy_(torch.tensor(values):reshape(p.shape))
        p.grad = nil
      end
    end)
  end
  for i, p in ipairs(w) do
    local apart = (s:weight(i) - p:detach()):abs():max():item()
    assert.equal(tf, apart < 1e-5)
  end
end

describe("rmsprop_tf_mode_test", function()
  it("test_rmsprop_tf_mode", function()
    torch.manual_seed(0)
    local FLAGS = { false, true }
    for bits = 0, 63 do
      local function bit(n)
        return FLAGS[(bits >> n & 1) + 1]
      end
      rms_test({ const_lr = bit(1), centered = bit(2), momentum = bit(3) and 0.9 or 0,
        decay = bit(4) and 0.01 or 0, const_wd = bit(5), l2 = bit(0) }, true)
    end
    rms_test({ const_lr = true, momentum = 0.9, decay = 0.01, const_wd = true }, false)
    rms_test({ const_lr = false, centered = true, momentum = 0, decay = 0, const_wd = true }, false)
  end)
end)

-- ---- global_batch_size_test ---------------------------------------------------------------------

local GLOBAL = 16

-- Weights after two updates by batches of 16 samples, of which `batch` are computed at once.
local function global_run(optimizer, x, t, w, reduction, how)
  local s = steps.open({ { "weight0", w } }, optimizer, { accumulation = how.accumulation,
    replicas = how.replicas, iterations = 2, mean = reduction ~= "Sum",
    running = reduction == "MeanRunning", inputs = { x:narrow(0, 0, how.batch),
      t:narrow(0, 0, how.batch) },
    forward = function(weights, a, target)
      return torch.nn.functional.cross_entropy(a:matmul(weights[1]), target,
        { reduction = reduction == "Sum" and "sum" or "mean" })
    end })
  s:run(x, t)
  return s:weight()
end

describe("global_batch_size_test", function()
  it("E27: test_global_batch_size_correctness_test", function()
    torch.manual_seed(1984)
    local x, w = torch.rand(2 * GLOBAL, 4), torch.rand(4, 4)
    local t = torch.randint(0, 4, { 2 * GLOBAL })
    local function sgd(momentum, accumulator)
      return optimizers.SGD({ defaultLearningRate = { 0.1, false }, lossScaling = { 20, false },
        defaultMomentum = momentum and { 0.9, false } or nil,
        defaultDampening = momentum and { 0.1, false } or nil }, {}, accumulator or Combined)
    end
    for _, optimizer in ipairs({ sgd(), sgd(true, Combined), sgd(true, Separate),
      optimizers.Adam({ defaultLearningRate = { 0.1, false }, defaultBeta1 = { 0.9, false },
        defaultBeta2 = { 0.999, false }, lossScaling = { 20, false } }, AdamMode.AdamNoBias) }) do
      for _, reduction in ipairs({ "Sum", "MeanPost", "MeanRunning" }) do
        local want = global_run(optimizer, x, t, w, reduction, { batch = 16 })
        for _, how in ipairs({ { batch = 4, replicas = 4 }, { batch = 4, accumulation = 4 },
          { batch = 4, accumulation = 2, replicas = 2 },
          { batch = 2, accumulation = 4, replicas = 2 } }) do
          helper.near(global_run(optimizer, x, t, w, reduction, how), want, { 1e-5, 1e-5 })
        end
      end
    end
  end)
end)

-- ---- sgd1_accumulator_test ----------------------------------------------------------------------

describe("sgd1_accumulator_test", function()
  it("test_accumulators_names_dont_clash", function()
    for _, accumulator in ipairs({ Combined, Separate }) do
      for _, nesterov in ipairs({ 0, 1 }) do
        local s = steps.open({ { "weight1", torch.rand(4) }, { "weight2", torch.rand(4) },
          { "weight3", torch.rand(4) } }, optimizers.SGD({ defaultMomentum = { 0.9, true },
          nesterov = { nesterov, false } }, {}, accumulator))
        for i = 1, 3 do
          local name = (accumulator == Combined and "Accl___weight" or "Accl1___weight") .. i
          assert.truthy(s.view.states[name])
          assert.truthy(s.session.vars[1])
          local found = false
          for _, v in ipairs(s.session.vars) do
            found = found or v.role == "state" and v.name == name
          end
          assert.is_true(found)
        end
      end
    end
  end)
end)
