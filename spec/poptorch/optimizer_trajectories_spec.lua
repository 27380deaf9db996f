--- Twenty updates of every optimizer against formulas on plain numbers: torch.optim on the
--- host and in compiled steps, poptorch.optim and popart's with accumulation and replicas.
--- The formulas are of the documents (spec/support/torch_formulas.lua, popart_formulas.lua).
local device_of = require("spec.popart.helper").device
local formulas = require("spec.support.popart_formulas")
local helper = require("spec.popart.helper")
local lupine = require("lupine")
local nn = require("torch.nn")
local popart = require("popart")
local poptorch = require("poptorch")
local theirs = require("spec.support.torch_formulas")
local torch = require("torch")

local N, STEPS = 5, 20
local START = { 1.0, -0.5, 0.75, 0.25, -1.25 }

-- Rows of a batch: of each update, micro-batch and replica one; numbers that float32 has.
local function rows(per_update)
  local list = {}
  for i = 1, STEPS * per_update do
    local row = {}
    for k = 1, N do
      row[k] = ((i * 37 + k * 59) % 64 - 31.5) / 32
    end
    list[i] = row
  end
  return list
end

-- The gradient of an update: of sum(x w) + sum(w w) / 4, the mean of its rows.
local function gradient(w, list, t, per_update)
  local g = {}
  for k = 1, N do
    local sum = 0
    for i = 1, per_update do
      sum = sum + list[(t - 1) * per_update + i][k]
    end
    g[k] = sum / per_update + w[k] / 2
  end
  return g
end

-- The weights after STEPS updates by update(s, g, t), s.w the weights.
local function trajectory(update, per_update)
  local s, list = { w = { table.unpack(START) } }, rows(per_update)
  for t = 1, STEPS do
    update(s, gradient(s.w, list, t, per_update), t)
  end
  return s.w
end

-- A formula of single elements for a list.
local function elements(formula, o)
  local of = {}
  return function(s, g)
    for k = 1, N do
      of[k] = of[k] or { w = s.w[k] }
      formula(of[k], o, g[k])
      s.w[k] = of[k].w
    end
  end
end

local function near(want, got, tolerance, what)
  for k, x in ipairs(want) do
    local d = math.abs(got[k] - x)
    assert.is_true(d <= tolerance * math.max(1, math.abs(x)),
      ("%s: element %d is %.9g, not %.9g"):format(what, k, got[k], x))
  end
end

-- ---- torch.optim --------------------------------------------------------------------------

local HOST = {
  SGD = { { lr = 0.05 }, { lr = 0.05, momentum = 0.9, dampening = 0.25, weight_decay = 0.1 },
    { lr = 0.05, momentum = 0.9, nesterov = true }, { lr = 0.01, maximize = true } },
  Adam = { { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, weight_decay = 0.1 },
    { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, amsgrad = true },
    { lr = 0.02, betas = { 0.9, 0.99 }, eps = 1e-3, maximize = true } },
  AdamW = { { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, weight_decay = 0.1 },
    { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, weight_decay = 0.1, amsgrad = true } },
  RMSprop = { { lr = 0.02, alpha = 0.9, eps = 1e-2, weight_decay = 0.1 },
    { lr = 0.02, alpha = 0.9, eps = 1e-2, momentum = 0.5, centered = true } },
  Adagrad = { { lr = 0.1, lr_decay = 0.05, initial_accumulator_value = 0.25, eps = 1e-6,
    weight_decay = 0.1 } },
  NAdam = { { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, momentum_decay = 0.01,
    weight_decay = 0.1 }, { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, momentum_decay = 0.01,
    weight_decay = 0.1, decoupled_weight_decay = true } },
  RAdam = { { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, weight_decay = 0.1 } },
  Adamax = { { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, weight_decay = 0.1 },
    { lr = 0.02, betas = { 0.9, 0.99 }, eps = 1e-3, maximize = true } },
  Adadelta = { { lr = 1.0, rho = 0.9, eps = 1e-3, weight_decay = 0.1 },
    { lr = 0.2, rho = 0.9, eps = 1e-3, maximize = true } },
  ASGD = { { lr = 0.05, lambd = 1e-2, alpha = 0.75, t0 = 1e6, weight_decay = 0.1 } },
  Rprop = { { lr = 0.01, etas = { 0.5, 1.2 }, step_sizes = { 1e-6, 50 } } },
  Adafactor = { { lr = 0.05, beta2_decay = -0.8, eps = { 1e-6, 1e-3 }, d = 1.0,
    weight_decay = 0.1 } },
}

local function weight(dtype)
  return nn.Parameter(torch.tensor(START, { dtype = dtype }))
end

-- A loss of micro-batches and their mean, step by step.
local function on_the_host(kind, options, per_update)
  local w = weight(torch.float64)
  local optimizer, list = torch.optim[kind]({ w }, options), rows(per_update)
  for t = 1, STEPS do
    optimizer:zero_grad()
    for i = 1, per_update do
      local x = torch.tensor(list[(t - 1) * per_update + i], { dtype = torch.float64 })
      local loss = (x * w):sum() + (w * w):sum() / 4
      ;(loss / per_update):backward()
    end
    optimizer:step()
  end
  return w:tolist()
end

local Model = nn.Module:extend("Model")

function Model:init()
  self.w = weight(torch.float32)
end

-- Of rows that a micro-batch has one of.
function Model:forward(x)
  return poptorch.identity_loss((x * self.w):sum() + (self.w * self.w):sum() / 4, "sum")
end

local function in_a_step(kind, options, per_update)
  local model, list = Model(), rows(per_update)
  function model:forward(x)
    return (x * self.w):sum() + (self.w * self.w):sum() / 4
  end
  local step = lupine.compile(model, { optimizer = torch.optim[kind](model:parameters(), options),
    loss = function(loss) return loss end, accumulation = per_update })
  for i = 1, STEPS * per_update do
    step(torch.tensor({ list[i] }))
  end
  return model.w:tolist()
end

local function on_the_device(optimizer_of, accumulation, replicas, strategy)
  local model = Model()
  local opts = poptorch.Options():replicationFactor(replicas):deviceIterations(STEPS)
  opts.Training:gradientAccumulation(accumulation)
  if strategy then
    opts.Training:setMeanAccumulationAndReplicationReductionStrategy(
      poptorch.MeanReductionStrategy[strategy])
  end
  local trainer = poptorch.trainingModel(model, opts, optimizer_of(model:parameters()))
  trainer(torch.tensor(rows(accumulation * replicas)))
  return model.w:tolist()
end

describe("twenty updates of torch.optim", function()
  for kind, list in pairs(HOST) do
    for i, options in ipairs(list) do
      local name = ("%s, %d"):format(kind, i)
      it(("%s on the host"):format(name), function()
        for _, per_update in ipairs({ 1, 3 }) do
          local want = trajectory(function(s, g, t)
            theirs[kind](s, options, g, t)
          end, per_update)
          near(want, on_the_host(kind, options, per_update), 1e-7, name)
          if kind ~= "Adafactor" then -- whose eps is the least of the type
            near(want, in_a_step(kind, options, per_update), 1e-6, name .. " in a step")
          end
        end
      end)
    end
  end

  -- on the device the first velocity is damped, too
  local function damped(options)
    local o = { lr = options.lr, wd = options.weight_decay or 0, mm = options.momentum or 0,
      dm = options.dampening or 0, vs = 1, nesterov = options.nesterov }
    local update = elements(formulas.separate, o)
    return function(s, g)
      if options.maximize then
        for k = 1, N do
          g[k] = -g[k]
        end
      end
      update(s, g)
    end
  end

  for _, kind in ipairs({ "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam" }) do
    it(kind .. " on the device", function()
      for i, options in ipairs(HOST[kind]) do
        for _, loops in ipairs(options.amsgrad and {} or { { 1, 1 }, { 3, 2 } }) do
          local want = trajectory(kind == "SGD" and damped(options) or function(s, g, t)
            theirs[kind](s, options, g, t)
          end, loops[1] * loops[2])
          near(want, on_the_device(function(params)
            return torch.optim[kind](params, options)
          end, loops[1], loops[2]), 1e-6, ("%s, %d"):format(kind, i))
        end
      end
    end)
  end
end)

-- ---- poptorch.optim and popart ------------------------------------------------------------

local LOOPS = { { 1, 1 }, { 3, 1 }, { 1, 2 }, { 3, 2 }, { 3, 2, "Running" },
  { 3, 2, "PostAndLoss" } }

local function adam(mode, l2, o)
  o.mode, o.l2 = mode, l2
  return function(s, g)
    formulas.adam(s, o, g)
  end
end

-- An update that climbs.
local function up(update)
  return function(s, g)
    for k = 1, N do
      g[k] = -g[k]
    end
    update(s, g)
  end
end

-- An update of a gradient whose norm is at most `most`.
local function clipped(most, update)
  return function(s, g)
    local sum = 0
    for k = 1, N do
      sum = sum + g[k] * g[k]
    end
    local factor = math.min(1, most / (math.sqrt(sum) + 1e-6))
    for k = 1, N do
      g[k] = g[k] * factor
    end
    update(s, g)
  end
end

local A = { lr = 0.05, b1 = 0.9, b2 = 0.99, eps = 1e-3, wd = 0.1, mwn = math.huge }

local function with(o, more)
  local out = {}
  for k, v in pairs(o) do
    out[k] = v
  end
  for k, v in pairs(more or {}) do
    out[k] = v
  end
  return out
end

local ADAM = { lr = 0.05, betas = { 0.9, 0.99 }, eps = 1e-3, weight_decay = 0.1,
  loss_scaling = 16.0 }
local RMS = { lr = 0.02, alpha = 0.9, eps = 1e-2, weight_decay = 0.1, loss_scaling = 8.0 }
local R = { mode = "RMSProp", lr = 0.02, alpha = 0.9, eps = 1e-2, wd = 0.1, mm = 0, l2 = true }
local S = { lr = 0.05, wd = 0.1, mm = 0.9, dm = 0.25, vs = 1 }
local SGD = { lr = 0.05, weight_decay = 0.1, momentum = 0.9, dampening = 0.25,
  loss_scaling = 16.0 }

-- {class of poptorch.optim, options, update made anew each time}
local POPTORCH = {
  { "SGD", { lr = 0.05, weight_decay = 0.1, dampening = 0.5, loss_scaling = 4.0 }, function()
    return elements(formulas.plain, { lr = 0.05, wd = 0.1, dm = 0.5 })
  end },
  { "SGD", SGD, function() return elements(formulas.separate, S) end },
  { "SGD", { lr = 0.05, weight_decay = 0.1, momentum = 0.9, nesterov = true }, function()
    return elements(formulas.separate, with(S, { dm = 0, nesterov = true }))
  end },
  { "SGD", with(SGD, { use_combined_accum = true, velocity_scaling = 4.0 }), function()
    return elements(formulas.combined, with(S, { vs = 4 }))
  end },
  { "Adam", ADAM, function() return adam("Adam", true, with(A)) end },
  { "AdamW", ADAM, function() return adam("Adam", false, with(A)) end },
  { "AdamW", with(ADAM, { bias_correction = false }), function()
    return adam("AdamNoBias", false, with(A))
  end },
  -- of what is left of 1 by the float32 beside 0.999 5e-5 would be wrong
  { "AdamW", with(ADAM, { betas = { 0.9, 0.999 }, bias_correction = false }), function()
    return adam("AdamNoBias", false, with(A, { b2 = 0.999 }))
  end },
  { "Adam", with(ADAM, { lr = 0.02, maximize = true }), function()
    return up(adam("Adam", true, with(A, { lr = 0.02 })))
  end },
  { "SGD", { lr = 0.02, momentum = 0.5, weight_decay = 0.1, maximize = true }, function()
    return up(elements(formulas.separate, { lr = 0.02, wd = 0.1, mm = 0.5, dm = 0, vs = 1 }))
  end },
  { "RMSprop", with(RMS, { maximize = true }), function()
    return up(elements(formulas.adaptive, with(R)))
  end },
  { "AdamW", with(ADAM, { max_grad_norm = 0.5 }), function()
    return clipped(0.5, adam("Adam", false, with(A)))
  end },
  { "SGD", with(SGD, { max_grad_norm = 0.5 }), function()
    return clipped(0.5, elements(formulas.separate, S))
  end },
  { "LAMB", ADAM, function() return adam("Lamb", false, with(A)) end },
  { "LAMB", with(ADAM, { bias_correction = false, max_weight_norm = 0.5 }), function()
    return adam("LambNoBias", false, with(A, { mwn = 0.5 }))
  end },
  { "RMSprop", RMS, function() return elements(formulas.adaptive, with(R)) end },
  { "RMSprop", with(RMS, { centered = true, momentum = 0.5 }), function()
    return elements(formulas.adaptive, with(R, { mode = "CenteredRMSProp", mm = 0.5 }))
  end },
  { "RMSprop", with(RMS, { use_tf_variant = true, momentum = 0.5 }), function()
    return elements(formulas.adaptive, with(R, { tf = true, mm = 0.5 }))
  end },
}

local POPART_SGD = { defaultLearningRate = 0.05, defaultWeightDecay = 0.1, defaultMomentum = 0.9,
  defaultDampening = 0.25, defaultVelocityScaling = 2.0, lossScaling = 16.0 }
local POPART_ADAM = { defaultLearningRate = 0.05, defaultWeightDecay = 0.1, defaultBeta1 = 0.9,
  defaultBeta2 = 0.99, defaultEps = 1e-3, defaultMaxWeightNorm = 1.5, lossScaling = 16.0 }
local POPART_ADAPTIVE = { defaultLearningRate = 0.02, defaultWeightDecay = 0.1,
  defaultAlpha = 0.9, defaultMomentum = 0.5, defaultEps = 1e-2, lossScaling = 16.0 }

-- Values of a constructor's dictionary, none constant.
local function variable(values)
  local out = {}
  for name, value in pairs(values) do
    out[name] = { value, false }
  end
  return out
end

local POPART = {
  { "SGD", function()
    return popart.SGD(variable(POPART_SGD))
  end, function() return elements(formulas.combined, with(S, { vs = 2 })) end },
  { "SGD, a velocity of its own", function()
    return popart.SGD(variable(POPART_SGD), {}, popart.SGDAccumulatorAndMomentum.Separate)
  end, function() return elements(formulas.separate, with(S, { vs = 2 })) end },
  { "ConstSGD", function()
    return popart.ConstSGD(0.05, 0.1, 8.0)
  end, function() return elements(formulas.plain, { lr = 0.05, wd = 0.1, dm = 0 }) end },
}
for _, mode in ipairs({ "Adam", "AdamNoBias", "Lamb", "LambNoBias", "AdaMax" }) do
  for _, decay in ipairs({ "Decay", "L2Regularization" }) do
    POPART[#POPART + 1] = { mode .. ", " .. decay, function()
      return popart.Adam({ values = variable(POPART_ADAM), mode = popart.AdamMode[mode],
        weight_decay_mode = popart.WeightDecayMode[decay] })
    end, function()
      return adam(mode, decay ~= "Decay", with(A, { mwn = 1.5 }))
    end }
  end
end
for _, mode in ipairs({ "AdaGrad", "RMSProp", "CenteredRMSProp", "AdaDelta" }) do
  for _, decay in ipairs({ "Decay", "L2Regularization" }) do
    POPART[#POPART + 1] = { mode .. ", " .. decay, function()
      return popart.Adaptive({ values = variable(POPART_ADAPTIVE), mode = popart.AdaptiveMode[mode],
        weight_decay_mode = popart.WeightDecayMode[decay] })
    end, function()
      return elements(formulas.adaptive, with(R, { mode = mode, l2 = decay ~= "Decay", mm = 0.5 }))
    end }
  end
end

local function in_a_session(optimizer, accumulation, replicas, strategy)
  local b = popart.Builder()
  local x = b:addInputTensor("FLOAT", { N })
  local w = b:addInitializedInputTensor(torch.tensor(START))
  local function sum(id)
    return b.aiOnnx:reducesum({ id }, { keepdims = 0 })
  end
  local loss = b.aiOnnx:add({ sum(b.aiOnnx:mul({ x, w })),
    b.aiGraphcore:scale({ sum(b.aiOnnx:mul({ w, w })) }, 0.25) })
  local s = helper.training(b, popart.DataFlow(STEPS), loss, optimizer, {
    device = device_of(replicas), options = helper.loops(accumulation, replicas, {
      accumulationAndReplicationReductionType = popart.ReductionType.Mean,
      meanAccumulationAndReplicationReductionStrategy =
        popart.MeanReductionStrategy[strategy == "Running" and strategy or "Post"] }) })
  helper.run(s, { [x] = torch.tensor(rows(accumulation * replicas)) })
  return helper.weights(s, { w })[w]:tolist()
end

for _, case in ipairs({ { "poptorch.optim", POPTORCH }, { "popart", POPART } }) do
  describe("twenty updates of " .. case[1], function()
    for i, row in ipairs(case[2]) do
      it(("%s, %d, with accumulation and replicas"):format(row[1], i), function()
        for _, loops in ipairs(LOOPS) do
          local accumulation, replicas, strategy = table.unpack(loops)
          local want = trajectory(row[3](), accumulation * replicas)
          local got = case[2] == POPTORCH and on_the_device(function(params)
            return poptorch.optim[row[1]](params, row[2])
          end, accumulation, replicas, strategy)
            or in_a_session(row[2](), accumulation, replicas, strategy)
          near(want, got, 1e-6, ("%s, %d x %d"):format(row[1], accumulation, replicas))
        end
      end)
    end
  end)
end

describe("a loss scale", function()
  it("changes no bit in float32 where it is a power of 2, else less than 1e-6", function()
    for _, kind in ipairs({ "SGD", "Adam", "AdamW", "RMSprop", "LAMB" }) do
      local function run(scale)
        return on_the_device(function(params)
          local options = { lr = 0.02, loss_scaling = scale }
          if kind == "SGD" or kind == "RMSprop" then
            options.momentum = 0.5
          end
          return poptorch.optim[kind](params, options)
        end, 2, 2)
      end
      local want = run(1.0)
      for _, scale in ipairs({ 8.0, 2.0 ^ 20, 2.0 ^ -10 }) do
        assert.same(want, run(scale), kind)
      end
      near(want, run(1000.0), 1e-6, kind)
    end
  end)
end)
