--- popart.Adaptive in its modes. Formulas: the operators adagrad_step, rmsprop_step and
--- adadelta_step (src/ops/nn/optim.c).
---
--- Source: PopART C++ API, Adaptive, AdaptiveMode.
local base = require("popart.optimizers.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local enum = require("lupine.base.enum")
local errors = require("popart.errors")

local M = {}

--- What the gradient is divided by.
M.AdaptiveMode = enum("AdaptiveMode", { "AdaGrad", "RMSProp", "CenteredRMSProp", "AdaDelta" })
local Mode, Decay = M.AdaptiveMode, base.WeightDecayMode.Decay

--- Adaptive(values, mode=RMSProp, weight_decay_mode=Decay, accum_type=UNDEFINED,
--- accl1_type=FLOAT, accl2_type=FLOAT, accl3_type=UNDEFINED, rmsprop_tf_variant=false,
--- debugContext="adaptive"), values of {value, isConst}: defaultLearningRate 0.01,
--- defaultWeightDecay 0, defaultAlpha 0.99, defaultMomentum 0, defaultEps 1e-6,
--- lossScaling 1, all constant unless given.
---@class popart.Adaptive: popart.Optimizer
local Adaptive = base.define("Adaptive", {
  { "learningRate", "learningRates", 0.01, "learning rates" },
  { "weightDecay", "weightDecays", 0, "weight decays" },
  { "alpha", "alphas", 0.99 },
  { "momentum", "momentums", 0 },
  { "eps", "epss", 1e-6, "eps" },
}, { "values", "mode", "weight_decay_mode", "accum_type", "accl1_type", "accl2_type",
  "accl3_type", "rmsprop_tf_variant", "debugContext" }, function(self, a)
  self.mode = base.mode(a.mode, "Adaptive: mode", Mode, Mode.RMSProp)
  self.decay_mode = base.mode(a.weight_decay_mode, "Adaptive: weight_decay_mode",
    base.WeightDecayMode, Decay)
  for _, key in ipairs({ "accl1_type", "accl2_type" }) do
    self[key] = a[key] == nil and core.dtypes.float32 or base.data_type(a[key], "Adaptive: " .. key)
  end
  self.accum_type = base.data_type(a.accum_type, "Adaptive: accum_type")
  self.accl3_type = base.data_type(a.accl3_type, "Adaptive: accl3_type")
  self.rmsprop_tf_variant = check.bool(a.rmsprop_tf_variant, "Adaptive: rmsprop_tf_variant",
    { nullable = true }) or false
  errors.check(not self.rmsprop_tf_variant or self.mode == Mode.RMSProp
    or self.mode == Mode.CenteredRMSProp, "popart_exception", "The rmspropTFVariant parameter is "
    .. "only valid with the RMSProp and CenteredRMSProp optimizers.")
end)
M.Adaptive = Adaptive

local NOT_NEGATIVE = { { "weightDecay", "weight decay" }, { "alpha", "alpha" },
  { "momentum", "momentum" } }

function Adaptive:_check(own)
  self:_check_common(own, NOT_NEGATIVE)
end

function Adaptive:_check_modes(other)
  base.same(self, other, { mode = "Adaptive modes" })
  base.same(self, other, { decay_mode = "Weight decay modes" })
  base.same(self, other, { rmsprop_tf_variant = "RMSProp variants" })
end

--- How a weight is updated, as lupine/session/training.lua describes it.
---@param id string
---@return table rule
function Adaptive:_rule(id)
  local mode, buffer = self.mode, self:_used("momentum", id) and "state:Accl3"
  local second = (mode == Mode.CenteredRMSProp or mode == Mode.AdaDelta) and "state:Accl2"
  local rule = { op = mode == Mode.AdaDelta and "adadelta_step" or "rmsprop_step",
    inputs = { "param", "grad", "state:Accl1", second, buffer, "hyper:learningRate", "hyper:alpha",
      "hyper:eps", "hyper:weightDecay", "hyper:momentum" },
    outputs = { "param", "state:Accl1", second, buffer },
    attrs = { decoupled = self.decay_mode == Decay }, accum = self.accum_type }
  if mode == Mode.AdaGrad then
    rule.op, rule.outputs = "adagrad_step", { "param", "state:Accl1", buffer }
    rule.inputs = { "param", "grad", "state:Accl1", buffer, "hyper:learningRate", "hyper:eps",
      "hyper:weightDecay", "hyper:momentum" }
  elseif mode ~= Mode.AdaDelta then
    rule.attrs.tf_variant = self.rmsprop_tf_variant
  end
  return rule
end

--- The dtype of a state; nil: the weight's.
---@param name string
---@return torch.dtype?
function Adaptive:_state_type(name)
  return self[name:lower() .. "_type"]
end

--- The first values of a state: ones for the squares of the TensorFlow variant.
---@param name string
---@param room torch.Tensor
function Adaptive:_start(_, name, room)
  room:fill_(self.rmsprop_tf_variant and name == "Accl1" and 1 or 0)
end

return M
