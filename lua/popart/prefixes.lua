--- What names of PopART's tensors begin with, as its Python module tells them:
--- `popart.reservedGradientPrefix() .. "w"`. Beside those of one tensor each there are
--- two of every number that programs are given of an optimizer, of all weights and of one
--- (lua/popart/optimizers/scalars.lua).
---
--- Anchors can be had of gradients, updated variables, accumulators, states and the
--- optimizer's numbers; the other tensors exist in no program here.
---
--- Source: PopART Python API.
local M = {}

local OWN = {
  Gradient = "Gradient___", UpdatedVar = "UpdatedVar___", Accum = "Accum___", Accl = "Accl___",
  Accl1 = "Accl1___", Accl2 = "Accl2___", Accl3 = "Accl3___", Step = "Step___",
  AcclToReduce = "AcclIntoReduce___", AcclToUpdate = "AcclIntoUpdate___",
  AcclFinalOut = "AcclOutOfAcclUpdate___", FinalReducedGrad = "FinalReducedGradient___",
  AdamUpdater = "AdamUpdater___", LambR1Sq = "LambR1Sq___", LambR2Sq = "LambR2Sq___",
  Stashed = "Stashed___", Restored = "Restored___", LossScaling = "lossScaling_",
  RandomSeed = "randomSeed___", SeedModifier = "randomSeedModifier___", RemoteArg = "RemoteArg___",
  AutomaticLossScale = "AutomaticLossScaleProxy___",
}

local SCALARS = { "weightDecayScaleFactor0", "scaledLearningRate0", "scaledWeightDecay1",
  "scaledLearningRate1", "dampeningScaleFactor1", "scaledMomentum1", "learningRate",
  "weightDecay", "lossScaling", "maxWeightNorm", "adamBeta1", "adamBeta2", "adamEps", "step" }

local function add(name, prefix)
  M["reserved" .. name .. "Prefix"] = function()
    return prefix
  end
end

for name, prefix in pairs(OWN) do
  add(name, prefix)
end
for _, kind in ipairs(SCALARS) do
  local name = kind:sub(1, 1):upper() .. kind:sub(2)
  add("Default" .. name, kind .. "___default___")
  add("Specific" .. name, kind .. "___specific___")
end

return M
