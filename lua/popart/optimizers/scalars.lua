--- The numbers that PopART's programs are given of an optimizer: those of the optimizer
--- and the session's factors put together. Here the device gets the optimizer's own;
--- these have the values that anchors of PopART's names show.
---
--- A scalar is called by its kind, "___default___" and the weight's data type, or
--- "___specific___" and the weight.
---
--- Source: PopART C++ API, SGD, the equations of its head comment.
local core = require("lupine.core")

local M = {}

-- The factors by which PopART divides: af and rf are 1 without accumulation and replicas.
local function factors_of(how)
  local f = { accumulating = (how.accumulation or 0) > 0, mean = how.mean or false }
  f.af, f.rf = f.accumulating and how.accumulation or 1, how.replicas or 1
  local post = f.mean and not how.running
  f.post_af, f.post_rf = post and f.af or 1, post and f.rf or 1
  f.gathered_rf = f.accumulating and f.rf or 1 -- of a velocity that replicas sum
  -- what the combined velocity has of each gradient
  f.in_af, f.in_rf = f.mean and f.af or 1, 1
  if f.accumulating and not f.mean then
    f.in_rf = f.rf
  elseif f.mean and not f.accumulating then
    f.in_rf = 1 / f.rf
  end
  return f
end

-- Kind -> the values that it is constant with, and its value.
local LR, WD, MM, DM, VS, LS = "learningRate", "weightDecay", "momentum", "dampening",
  "velocityScaling", "lossScaling"
local KINDS = {
  scaledLearningRate0 = { { LR, DM, LS }, function(v, f)
    return v[LR] * (1 - v[DM]) / (v[LS] * f.post_af * f.post_rf)
  end },
  weightDecayScaleFactor0 = { { WD, LR, DM }, function(v)
    return 1 - v[LR] * (1 - v[DM]) * v[WD]
  end },
  scaledLearningRate1 = { { LR, VS }, function(v, f)
    return v[LR] / (v[VS] * f.gathered_rf)
  end },
  scaledWeightDecay1 = { { DM, WD, VS }, function(v)
    return (1 - v[DM]) * v[WD] * v[VS]
  end },
  dampeningScaleFactor1 = { { DM, VS, LS }, function(v, f)
    return (1 - v[DM]) * v[VS] * f.in_rf / (v[LS] * f.in_af)
  end },
  scaledMomentum1 = { { MM }, function(v, f)
    return v[MM] / f.gathered_rf
  end },
  scaledLearningRate2 = { { LR, VS }, function(v)
    return v[LR] / v[VS]
  end },
  dampeningScaleFactor2 = { { DM, VS, LS }, function(v, f)
    return (1 - v[DM]) * v[VS] / (v[LS] * f.post_af * f.post_rf)
  end },
  scaledMomentum2 = { { MM }, function(v)
    return v[MM]
  end },
  nesterovGradScaleFactor1 = { { VS }, function(v, f)
    return v[VS] * f.gathered_rf
  end },
  nesterovGradScaleFactor2 = { { VS }, function(v)
    return v[VS]
  end },
  nesterovDampeningScaleFactor1 = { { DM, VS, LS }, function(v, f)
    return f.post_af / ((1 - v[DM]) * v[VS] * f.in_rf)
  end },
  nesterovDampeningScaleFactor2 = { { DM, VS, LS }, function(v, f)
    return f.post_af * f.post_rf / ((1 - v[DM]) * v[VS])
  end },
  sgdMomentum = { { MM }, function(v) return v[MM] end },
  sgdWeightDecay = { { WD }, function(v) return v[WD] end },
}
for _, pair in ipairs({ { "learningRate", LR }, { "weightDecay", WD }, { "adamBeta1", "beta1" },
  { "adamBeta2", "beta2" }, { "adamEps", "eps" }, { "maxWeightNorm", "maxWeightNorm" },
  { "adaptiveAlpha", "alpha" }, { "adaptiveMomentum", MM }, { "adaptiveEps", "eps" } }) do
  KINDS[pair[1]] = { { pair[2] }, function(v) return v[pair[2]] end }
end
for _, kind in ipairs({ "adam", "adaptive" }) do
  KINDS[kind .. "GradientScaling"] = { { LS }, function(v, f)
    return 1 / ((v.scaled and 1 or v[LS]) * f.post_af * f.post_rf)
  end }
end

local PLAIN = { "scaledLearningRate0", "weightDecayScaleFactor0" }
local COMBINED = { "scaledWeightDecay1", "scaledLearningRate1", "scaledMomentum1",
  "dampeningScaleFactor1" }
local SEPARATE = { "scaledWeightDecay1", "scaledLearningRate2", "scaledMomentum2",
  "dampeningScaleFactor2" }
local OF = {
  Adam = { "learningRate", "weightDecay", "adamBeta1", "adamBeta2", "adamEps", "maxWeightNorm",
    "adamGradientScaling" },
  Adaptive = { "learningRate", "weightDecay", "adaptiveAlpha", "adaptiveMomentum", "adaptiveEps",
    "adaptiveGradientScaling" },
}

-- Of an SGD: 0 without momentum, 1 combined, 2 separate.
local OF_SGD = { sum = PLAIN, gathered = COMBINED, velocity = SEPARATE }
local NESTEROV = { gathered = "1", velocity = "2" }

local function kinds_of(optimizer, id)
  if optimizer.type ~= "SGD" then
    return OF[optimizer.type]
  end
  local rule = optimizer:_rule(id)
  local list = { table.unpack(OF_SGD[rule.clips]) }
  if rule.attrs.nesterov then
    local number = NESTEROV[rule.clips]
    table.move({ "sgdMomentum", "sgdWeightDecay", "nesterovGradScaleFactor" .. number,
      "nesterovDampeningScaleFactor" .. number }, 1, 4, #list + 1, list)
  end
  return list
end

-- Values of a weight by name, and whether all of some are constant.
local function values_of(optimizer, id)
  local v, const = { scaled = optimizer.scaled_optimizer_state }, {}
  for name, map in pairs(optimizer._maps) do
    v[name], const[name] = map:get(id):val(), map:get(id):isConst()
  end
  v[LS], const[LS] = optimizer:getLossScalingVal(), optimizer:lossScaling():isConst()
  return v, const
end

--- The scalars of a weight by kind: {value =, const =}.
---@param optimizer popart.Optimizer
---@param id string
---@param how table accumulation (nil: none), replicas, mean, running, loss (its data
---  type), of the session
---@return table<string, {value: number, const: boolean}>
function M.of(optimizer, id, how)
  local out, factors = {}, factors_of(how)
  local v, const = values_of(optimizer, id)
  for _, kind in ipairs(kinds_of(optimizer, id)) do
    local all = true
    for _, name in ipairs(KINDS[kind][1]) do
      all = all and const[name]
    end
    out[kind] = { value = KINDS[kind][2](v, factors), const = all }
  end
  return out
end

--- Those of all weights that are not constant, by the names of PopART's tensors.
---@param optimizer popart.Optimizer
---@param parameters table[] {name =, tensor =} each
---@param how table as of `of`
---@return table<string, number>
function M.by_name(optimizer, parameters, how)
  local out = {}
  for _, p in ipairs(parameters) do
    local dtype = p.tensor.dtype == core.dtypes.float16 and "FLOAT16" or "FLOAT"
    local suffix = optimizer:hasSpecific(p.name) and "___specific___" .. p.name
      or "___default___" .. dtype
    for kind, one in pairs(M.of(optimizer, p.name, how)) do
      if not one.const then
        out[kind .. suffix] = one.value
      end
    end
  end
  if not optimizer:lossScaling():isConst() then
    out.lossScaling_FLOAT = optimizer:getLossScalingVal()
    if how.loss == core.dtypes.float16 then -- as PopART calls it then
      out.lossScaling_FLOAT16 = out.lossScaling_FLOAT
    end
  end
  return out
end

return M
