--- PopART's optimizers, as `popart` shows them, and how a session sees one:
---
---     local view = optimizers.view(optimizer, { { name = "w", tensor = w } }, initialisers)
---     session.open(step, { optimizer = view, … })
---     view:replace(other, session)   -- updateOptimizerFromHost
---     optimizers.scalars(…)          -- PopART's numbers of it, for anchors
local adam = require("popart.optimizers.adam")
local adaptive = require("popart.optimizers.adaptive")
local base = require("popart.optimizers.base")
local clipping = require("popart.optimizers.clipping")
local loss_scaling = require("popart.loss_scaling")
local prefixes = require("popart.prefixes")
local scalars = require("popart.optimizers.scalars")
local sgd = require("popart.optimizers.sgd")
local values = require("popart.optimizers.values")
local View = require("popart.optimizers.view").View

local M = {
  Optimizer = base.Optimizer, WeightDecayMode = base.WeightDecayMode,
  SGD = sgd.SGD, ConstSGD = sgd.ConstSGD,
  SGDAccumulatorAndMomentum = sgd.SGDAccumulatorAndMomentum,
  Adam = adam.Adam, AdamMode = adam.AdamMode,
  Adaptive = adaptive.Adaptive, AdaptiveMode = adaptive.AdaptiveMode,
  OptimizerValue = values.OptimizerValue, OptimizerValueMap = values.OptimizerValueMap,
  ClipNormSettings = clipping.ClipNormSettings,
  scalars = scalars.by_name,
}

--- A session's view of an optimizer.
--- error: popart_exception for clip groups that the parameters do not fit
---@param optimizer popart.Optimizer
---@param parameters table[] {name =, tensor =} each
---@param given? table<string, torch.Tensor> by name, among them states that go on
---@param scaling? table how the session finds the loss scale
---@return popart.optimizers.View
function M.view(optimizer, parameters, given, scaling)
  local view = View(optimizer, parameters, given)
  view.scaling = scaling
  return view
end

local STATES = { prefixes.reservedAcclPrefix(), prefixes.reservedAccl1Prefix(),
  prefixes.reservedAccl2Prefix(), prefixes.reservedAccl3Prefix(), prefixes.reservedAccumPrefix(),
  prefixes.reservedStepPrefix() }

--- Whether a name is that of an optimizer's state, or of an accumulator.
---@param name string
---@return boolean
function M.is_state(name)
  if loss_scaling.is_state(name) then
    return true
  end
  for _, prefix in ipairs(STATES) do
    if name:sub(1, #prefix) == prefix then
      return true
    end
  end
  return false
end

return require("lupine.base.namespace").close(M, "popart.optimizers")
