--- popart.SGD and ConstSGD. Formulas: the operators popart_sgd_step and
--- popart_sgd_combined_step (src/ops/nn/optim.c).
---
--- Source: PopART C++ API, SGD, ConstSGD, SGDAccumulatorAndMomentum.
local base = require("popart.optimizers.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local enum = require("lupine.base.enum")
local errors = require("popart.errors")

local M = {}

--- Whether the velocity gathers the gradients itself.
M.SGDAccumulatorAndMomentum = enum("SGDAccumulatorAndMomentum", { "Combined", "Separate" })
local Combined = M.SGDAccumulatorAndMomentum.Combined

--- SGD(values, clip_norm_settings={}, accumulatorAndMomentum=Combined, accumType=UNDEFINED,
--- accl1Type=UNDEFINED, debugContext="sgd"), values of {value, isConst}:
--- defaultLearningRate 0.1, defaultWeightDecay 0, defaultMomentum 0, defaultDampening 0,
--- defaultVelocityScaling 1, lossScaling 1, nesterov 0, all constant unless given.
---@class popart.SGD: popart.Optimizer
local SGD = base.define("SGD", {
  { "learningRate", "learningRates", 0.1, "learning rates" },
  { "weightDecay", "weightDecays", 0, "weight decays" },
  { "momentum", "momentums", 0 },
  { "dampening", "dampenings", 0 },
  { "velocityScaling", "velocityScalings", 1, "velocity scalings" },
  { "nesterov", "nesterov", 0 },
}, { "pyd", "clip_norm_settings", "accumulatorAndMomentum", "accumType", "accl1Type",
  "debugContext" }, function(self, a)
  self.accumulator = base.mode(a.accumulatorAndMomentum, "SGD: accumulatorAndMomentum",
    M.SGDAccumulatorAndMomentum, Combined)
  self.accum_type = base.data_type(a.accumType, "SGD: accumType")
  self.accl1_type = base.data_type(a.accl1Type, "SGD: accl1Type")
end)
M.SGD = SGD

local NOT_NEGATIVE = { { "weightDecay", "weight decay" }, { "momentum", "momentum" },
  { "dampening", "dampening" } }

function SGD:_check(own)
  self:_check_common(own, NOT_NEGATIVE)
  local scaling, dampening = own.velocityScaling:val(), own.dampening:val()
  errors.check(scaling > 0, "popart_exception",
    "Non-positive velocity scaling (%g) in SGD is not supported", scaling)
  errors.check(own.nesterov:val() == 0 or dampening == 0, "popart_exception",
    "When enable nesterov momentum, dampening (%g) in SGD shouled be zero", dampening)
end

local function default_velocity(self)
  local momentum = self._maps.momentum:getDefault()
  return not momentum:isConst() or momentum:val() ~= 0
end

function SGD:_check_states(other)
  local velocity = default_velocity(self)
  base.check_replacement(velocity == default_velocity(other),
    "this %s a velocity tensor, but other does%s.", velocity and "requires" or "does not require",
    velocity and " not" or "")
  if velocity then
    base.same(self, other, { accumulator = "SGDAccumulatorAndMomentum" })
    if self.accumulator ~= Combined then
      base.same(self, other, { accum_type = "accumulator types", accl1_type = "accl1 types" })
    end
  end
end

--- How a weight is updated, as lupine/session/training.lua describes it.
---@param id string
---@return table rule
function SGD:_rule(id)
  local velocity = self:_used("momentum", id)
  local combined = velocity and self.accumulator == Combined
  local state = velocity and (combined and "state:Accl" or "state:Accl1")
  local nesterov = self:_of("nesterov", id) ~= 0 and self:_of("momentum", id) > 0
  return {
    op = combined and "popart_sgd_combined_step" or "popart_sgd_step",
    inputs = { "param", "grad", state, "hyper:learningRate", "hyper:momentum", "hyper:dampening",
      "hyper:weightDecay", "hyper:velocityScaling" },
    outputs = { "param", state },
    attrs = { nesterov = velocity and nesterov or nil },
    accum = not combined and self.accum_type or nil,
    clips = combined and "gathered" or velocity and "velocity" or "sum",
  }
end

--- The dtype of a state; nil: the weight's.
---@param name string
---@return torch.dtype?
function SGD:_state_type(name)
  return name == "Accl1" and self.accl1_type or nil
end

--- The first values of a state: the combined velocity has the weight's decay in it.
---@param id string
---@param name string
---@param room torch.Tensor
---@param weight torch.Tensor
function SGD:_start(id, name, room, weight)
  local decay = (1 - self:_of("dampening", id)) * self:_of("weightDecay", id)
    * self:_of("velocityScaling", id)
  if name == "Accl" and decay ~= 0 then
    room:copy_(weight:detach():float() * decay)
  else
    core.zero_room(room)
  end
end

--- ConstSGD(learning_rate, weight_decay=0, loss_scaling=1, clip_norm_settings={}): an SGD
--- of constants. Deprecated in favour of SGD.
---@class popart.ConstSGD: popart.SGD
local ConstSGD = SGD:extend("ConstSGD")
M.ConstSGD = ConstSGD

---@param ... any learning_rate, weight_decay, loss_scaling (numbers), clip_norm_settings
function ConstSGD:init(...)
  local a = check.arguments("ConstSGD", { "learning_rate", "weight_decay", "loss_scaling",
    "clip_norm_settings" }, { clip_norm_settings = "list" }, ...)
  SGD.init(self, {
    defaultLearningRate = { check.number(a[1], "ConstSGD: learning_rate"), true },
    defaultWeightDecay = { check.number(a[2] or 0, "ConstSGD: weight_decay"), true },
    lossScaling = { check.number(a[3] or 1, "ConstSGD: loss_scaling"), true },
  }, a[4] or {})
end

return M
