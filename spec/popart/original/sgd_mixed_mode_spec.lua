-- PopART's tests of SGD with constant, changing and single weights' values
-- (integration/optimizer_tests/sgd_mixed_mode_test_*): losses whose gradient is 1, weights
-- of 100 and 200, three updates.
local formulas = require("spec.support.popart_formulas")
local helper = require("spec.helper")
local optimizers = require("popart.optimizers")
local steps = require("spec.support.popart_steps")
local torch = require("torch")

local SGD = optimizers.SGD
local Combined = optimizers.SGDAccumulatorAndMomentum.Combined
local Separate = optimizers.SGDAccumulatorAndMomentum.Separate
local W0, W1 = "__w0__", "__w1__"
local REPLICAS, ACCUMULATION = 2, 5

-- The weights after an update by each of the optimizers.
local function results(list, how, dtype)
  local values = { 100, 200, 300 }
  local weights = {}
  for i, name in ipairs({ W0, W1, "__w2__" }) do
    weights[i] = { name, torch.tensor({ values[i] }, { dtype = dtype or torch.float32 }) }
  end
  how = how or {}
  local ones = torch.ones((how.replicas or 1) * (how.accumulation or 1))
  local s = steps.open(weights, list[1], how)
  for i, optimizer in ipairs(list) do
    if i > 1 then
      s:replace(optimizer)
    end
    s:update(ones, ones, ones)
  end
  return s:weight(1):item(), s:weight(2):item(), s:weight(3):item()
end

local function each(values, nesterov)
  local list = {}
  for key, value in pairs(values) do
    list[key] = value
  end
  list.nesterov = nesterov and { 1, true } or nil
  return list
end

-- Runs f with both accumulators, with and without Nesterov's momentum.
local function of_all(f)
  for _, accumulator in ipairs({ Combined, Separate }) do
    for _, nesterov in ipairs({ false, true }) do
      f(accumulator, nesterov)
    end
  end
end

-- The same optimizer for three updates moves each weight by `by` learning rates of ¼ (and
-- half as much again with Nesterov's momentum).
local function moves(values, how, count, dtype)
  of_all(function(accumulator, nesterov)
    local one = SGD(each(values, nesterov), {}, accumulator)
    local a, b = results({ one, one, one }, how, dtype)
    local by = (nesterov and 9 or 6) * 0.25 * (count or 1)
    assert.near(100 - by, a, dtype and 0 or 2e-5)
    assert.near(200 - by, b, dtype and 0 or 4e-5)
  end)
end

local function scaled(const)
  return { defaultLearningRate = { 0.25, const }, defaultMomentum = { 1, const },
    defaultVelocityScaling = { 14.15, const }, lossScaling = { 0.15, const } }
end

-- Weights by the formulas: for each the values of every update.
local function expect(accumulator, nesterov, start, updates, g)
  local one = { w = start }
  for _, o in ipairs(updates) do
    o.nesterov, o.vs = nesterov, o.vs or 1
    formulas[accumulator == Combined and "combined" or "separate"](one, o, g or 1)
  end
  return one.w
end

-- SGDs of the values of each update; `const` names those that are constant.
local function sgds(updates, accumulator, nesterov, const, extra)
  local list = {}
  for i, o in ipairs(updates) do
    local values = {}
    for name, key in pairs({ lr = "defaultLearningRate", wd = "defaultWeightDecay",
      mm = "defaultMomentum", dm = "defaultDampening", vs = "defaultVelocityScaling",
      ls = "lossScaling" }) do
      values[key] = o[name] and { o[name], const and const[name] or false } or nil
    end
    list[i] = SGD(each(values, nesterov), {}, accumulator)
    if extra then
      extra(list[i], i)
    end
  end
  return list
end

describe("sgd_mixed_mode_test_cpp", function()
  it("SgdMixedModeTest0", function()
    local function of(values, specific)
      local one = SGD(values)
      one:insertSpecific(W1, specific)
      return one
    end
    local function check(a, b, want)
      local got = { results({ a, b }) }
      for i, value in ipairs(want) do
        assert.near(value, got[i], 4e-5)
      end
    end
    local values = { defaultWeightDecay = { 0, false }, defaultLearningRate = { 0.1, true },
      lossScaling = { 10, true } }
    check(of(values, { learningRate = { 0.2, false }, weightDecay = { 0, true } }),
      of(values, { learningRate = { 0.5, false }, weightDecay = { 0, true } }),
      { 99.8, 199.3, 299.8 })
    -- 200 (1 - 0.5) - 4 = 96, 96 (1 - 0.5) - 4 = 44
    values = { defaultLearningRate = { 2, true }, lossScaling = { 10, false } }
    local other = { defaultLearningRate = { 2, true }, lossScaling = { 20, false } }
    local specific = { learningRate = { 4, true }, weightDecay = { 0.5 / 4, true } }
    check(of(values, specific), of(other, specific), { 96, 44, 296 })
  end)

  it("SgdMixedModeTestCpp1_0", function()
    moves({ defaultLearningRate = { 0.25, true }, defaultMomentum = { 1, true } })
  end)

  it("SgdMixedModeTestCpp1_1", function()
    moves(scaled(true))
  end)

  it("SgdMixedModeTestCpp1_2", function()
    moves(scaled(false))
  end)

  it("SgdMixedModeTestCpp1_3", function()
    of_all(function(accumulator, nesterov)
      local dm = nesterov and 0 or 0.4
      local function all()
        local list = {}
        for i, lr in ipairs({ 0.2, 0.2, 0.3 }) do
          list[i] = { wd = 0.1, mm = 0.3, dm = dm, lr = lr }
        end
        return list
      end
      local a, b = results(sgds(all(), accumulator, nesterov, { wd = true, dm = true }))
      -- rates alone change, so that both are PyTorch's
      assert.near(expect(Separate, nesterov, 100, all()), a, 2e-5)
      assert.near(expect(Separate, nesterov, 200, all()), b, 4e-5)
    end)
  end)

  local function changing(nesterov, vs)
    local dm = nesterov and { 0, 0, 0 } or { 0.1, 0.45, 0.13 }
    return { { wd = 0.4, mm = 0.6, dm = dm[1], lr = 0.2, ls = 10, vs = vs[1] },
      { wd = 0.15, mm = 0.35, dm = dm[2], lr = 0.55, ls = 8, vs = vs[2] },
      { wd = 0.03, mm = 0.83, dm = dm[3], lr = 0.25, ls = 6, vs = vs[3] } }
  end

  it("SgdMixedModeTestCpp1_4", function()
    of_all(function(accumulator, nesterov)
      local updates = changing(nesterov, { 3, 3, 3 })
      local a, b = results(sgds(updates, accumulator, nesterov, { vs = true }))
      for _, o in ipairs(updates) do
        o.vs = 1 -- nothing depends on it
      end
      assert.near(expect(accumulator, nesterov, 100, updates), a, 2e-5)
      assert.near(expect(accumulator, nesterov, 200, updates), b, 4e-5)
    end)
  end)

  it("SgdMixedModeTestCpp1_5", function()
    of_all(function(accumulator, nesterov)
      local updates = changing(nesterov, { 3, 6, 9 })
      local a, b = results(sgds(updates, accumulator, nesterov))
      assert.near(expect(accumulator, nesterov, 100, updates), a, 2e-5)
      assert.near(expect(accumulator, nesterov, 200, updates), b, 4e-5)
    end)
  end)

  -- Values of two weights: defaults with one of the second, and three of the first.
  local function specific(of, how, g, tolerance, dtype)
    of_all(function(accumulator, nesterov)
      local dm = nesterov and 0 or of.dm
      local defaults, first, second = {}, {}, {}
      for i = 1, 3 do
        defaults[i] = { wd = of.wd, mm = of.mm[i], dm = dm, lr = of.lr[i], ls = of.ls, vs = of.vs }
        first[i] = { wd = of.wd, mm = of.mm0, dm = dm, lr = of.lr0[i] }
        second[i] = { wd = of.wd1, mm = of.mm[i], dm = dm, lr = of.lr[i] }
      end
      local list = sgds(defaults, accumulator, nesterov,
        { wd = true, dm = true, ls = true, vs = true }, function(one, i)
          one:insertSpecific(W0, { momentum = { of.mm0, true },
            learningRate = { of.lr0[i], false }, velocityScaling = { of.vs0, true } })
          one:insertSpecific(W1, { weightDecay = { of.wd1, true } })
        end)
      local a, b = results(list, how, dtype)
      assert.near(expect(accumulator, nesterov, 100, first, g), a, tolerance)
      assert.near(expect(accumulator, nesterov, 200, second, g), b, tolerance)
    end)
  end

  it("SgdMixedModeTestCpp1_6", function()
    specific({ wd = 0.2, wd1 = 0.3, mm = { 0.9, 0.6, 0.5 }, mm0 = 0.85, dm = 0.2,
      lr = { 1, 0.9, 0.8 }, lr0 = { 0.7, 0.6, 0.4 }, ls = 600, vs = 0.1, vs0 = 0.01 }, nil, 1,
      1e-4)
  end)

  it("SgdMixedModeTestCpp1_7", function()
    local how = { accumulation = ACCUMULATION }
    moves(scaled(false), how, ACCUMULATION)
    moves({ defaultLearningRate = { 0.25, false }, defaultMomentum = { 1, false },
      defaultVelocityScaling = { 16, false }, lossScaling = { 0.25, false } }, how, ACCUMULATION,
      torch.float16)
  end)

  it("SgdMixedModeTestCpp1_8", function()
    for _, replicas in ipairs({ REPLICAS, 1 }) do
      moves(scaled(false), { accumulation = ACCUMULATION, replicas = replicas },
        ACCUMULATION * replicas)
    end
  end)

  it("SgdMixedModeTestCpp1_9", function()
    local how = { accumulation = ACCUMULATION, replicas = REPLICAS }
    local of = { wd = 0.02, wd1 = 0.05, mm = { 0.9, 0.8, 0.7 }, mm0 = 0.6, dm = 0.05,
      lr = { 1, 0.64, 0.8 }, lr0 = { 0.7, 0.64, 0.32 }, ls = 0.2, vs = 0.25, vs0 = 0.35 }
    specific(of, how, ACCUMULATION * REPLICAS, 1e-4)
    specific(of, how, ACCUMULATION * REPLICAS, 0.2, torch.float16)
  end)

  it("SgdMixedModeTestCpp1_10", function()
    moves(scaled(false), { replicas = REPLICAS }, REPLICAS)
  end)

  it("SGDMixedModeCompatTest0", function()
    local function of(lr, wd, ls, ...)
      local a, b, c = ...
      return SGD({ defaultLearningRate = { lr, a }, defaultWeightDecay = { wd, b },
        lossScaling = { ls, c } })
    end
    local function refused(one, other)
      helper.raises("optimizer_replacement_error", "", function() one:validReplacement(other) end)
    end
    local function with(one, value, const)
      one:insertSpecific("foo", { learningRate = { value, const }, weightDecay = { value, const } })
      return one
    end
    local changing_all = of(1, 1, 1, false, false, false)
    changing_all:validReplacement(changing_all)
    changing_all:validReplacement(of(2, 2, 2, false, false, false))
    refused(changing_all, of(1, 1, 1, true, false, false))
    refused(changing_all, of(1, 1, 1, false, true, false))
    refused(changing_all, of(1, 1, 1, false, false, true))
    local one = with(of(1, 1, 1, false, false, false), 1, false)
    refused(changing_all, one)
    refused(one, changing_all)
    local const = of(1, 1, 1, true, true, true)
    refused(const, of(2, 1, 1, true, true, true))
    refused(const, of(1, 2, 1, true, true, true))
    refused(const, of(1, 1, 2, true, true, true))
    local two = with(of(1, 1, 1, true, true, true), 2, true)
    local three = with(of(1, 1, 1, true, true, true), 3, true)
    refused(two, three)
    refused(three, two)
  end)
end)

-- ---- which values are constant changes nothing ------------------------------------------------

-- Weights and states after ten updates by ones, of each optimizer.
local function run_mixed(list, dtype)
  local out = {}
  for i, optimizer in ipairs(list) do
    local w = torch.ones(4, { dtype = dtype })
    local s = steps.open({ { "a", w }, { "b", w * 2 } }, optimizer)
    for _ = 1, 10 do
      s:update(w, w)
    end
    out[i] = { s:weight(1), s:weight(2) }
    for name in pairs(s.view.states) do
      out[i][name] = s:state(name)
    end
  end
  return out
end

local function check_mixed(list, dtype)
  local got = run_mixed(list, dtype)
  for i = 2, #got do
    for key, value in pairs(got[1]) do
      helper.near(got[i][key], value, { 0, 0 })
    end
  end
end

-- The dictionaries with one value after another that is not constant, behind one of
-- constants.
local function mixed(values, build)
  local keys, list = {}, {}
  for key in pairs(values) do
    keys[#keys + 1] = key
  end
  for i = 0, #keys do
    local dict = {}
    for k, key in ipairs(keys) do
      dict[key] = { values[key], k ~= i }
    end
    list[#list + 1] = build(dict)
  end
  return list
end

-- The same with values of the weights' own, over other defaults.
local function mixed_specific(values, names, build)
  return mixed(values, function(dict)
    local one = build({ lossScaling = dict.lossScaling })
    for _, weight in ipairs({ "a", "b" }) do
      local own = {}
      for name, key in pairs(names) do
        own[name] = dict[key]
      end
      one:insertSpecific(weight, own)
    end
    return one
  end)
end

local SGD_VALUES = { defaultLearningRate = 1e-4, defaultMomentum = 0.7, defaultVelocityScaling = 1,
  defaultWeightDecay = 0.1, defaultDampening = 0.05, lossScaling = 10 }
local ADAM_VALUES = { defaultLearningRate = 0.005, defaultBeta1 = 0.7, defaultBeta2 = 0.8,
  defaultWeightDecay = 0.1, defaultEps = 1e-6, lossScaling = 10 }
local ADAPTIVE_VALUES = { defaultLearningRate = 0.005, defaultAlpha = 0.7, defaultMomentum = 0.8,
  defaultWeightDecay = 0.1, defaultEps = 1e-6, lossScaling = 10 }

describe("mixed_mode_test_py", function()
  it("test_sgd_mixed_mode", function()
    check_mixed(mixed({ defaultLearningRate = 0.1, defaultWeightDecay = 0.1, lossScaling = 10 },
      SGD))
  end)

  it("test_sgd_mixed_mode_0", function()
    for _, of in ipairs({ { Combined }, { Separate, "FLOAT", "FLOAT" }, { Separate, "FLOAT16",
      "FLOAT16" }, { Separate, "FLOAT16", "FLOAT" } }) do
      for _, dtype in ipairs({ torch.float32, torch.float16 }) do
        check_mixed(mixed(SGD_VALUES, function(dict)
          return SGD(dict, {}, table.unpack(of))
        end), dtype)
      end
    end
  end)

  it("test_sgd_mixed_mode_1", function()
    for _, nesterov in ipairs({ false, true }) do
      local values = each(SGD_VALUES)
      values.defaultDampening = nesterov and 0 or 0.05
      check_mixed(mixed_specific(values, { learningRate = "defaultLearningRate",
        momentum = "defaultMomentum", weightDecay = "defaultWeightDecay",
        dampening = "defaultDampening" }, function(dict)
          return SGD(each(dict, nesterov))
        end))
    end
  end)

  it("test_adam_mixed_mode_0", function()
    for _, dtype in ipairs({ torch.float32, torch.float16 }) do
      check_mixed(mixed(ADAM_VALUES, optimizers.Adam), dtype)
    end
  end)

  it("test_adam_mixed_mode_1", function()
    check_mixed(mixed_specific(ADAM_VALUES, { learningRate = "defaultLearningRate",
      beta1 = "defaultBeta1", beta2 = "defaultBeta2", weightDecay = "defaultWeightDecay",
      eps = "defaultEps" }, optimizers.Adam))
  end)

  it("test_adaptive_mixed_mode_0", function()
    for _, dtype in ipairs({ torch.float32, torch.float16 }) do
      for _, mode in ipairs(optimizers.AdaptiveMode:members()) do
        check_mixed(mixed(ADAPTIVE_VALUES, function(dict)
          return optimizers.Adaptive(dict, { mode = mode })
        end), dtype)
      end
    end
  end)

  it("test_adaptive_mixed_mode_1", function()
    check_mixed(mixed_specific(ADAPTIVE_VALUES, { learningRate = "defaultLearningRate",
      alpha = "defaultAlpha", momentum = "defaultMomentum", weightDecay = "defaultWeightDecay",
      eps = "defaultEps" }, optimizers.Adaptive))
  end)
end)
