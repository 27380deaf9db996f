--- popart.Adam in its modes. Formulas: the operators adam_step, adamax_step and
--- lamb_step (src/ops/nn/optim.c).
---
--- With scaled_optimizer_state the moments stay in units of the loss scale and of its
--- square; they are rescaled when that changes (popart/optimizers/view.lua).
---
--- Source: PopART C++ API, Adam, AdamMode.
local base = require("popart.optimizers.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local enum = require("lupine.base.enum")
local errors = require("popart.errors")
local logging = require("popart.logging")

local M = {}

--- Bias correction, norms of layers, the largest gradient in place of the mean.
M.AdamMode = enum("AdamMode", { "Adam", "AdamNoBias", "Lamb", "LambNoBias", "AdaMax" })
local Mode, Decay = M.AdamMode, base.WeightDecayMode.Decay

--- Adam(values, mode=Adam, weight_decay_mode=Decay, accum_type=UNDEFINED, accl1_type=FLOAT,
--- accl2_type=FLOAT, clip_norm_settings={}, scaled_optimizer_state=false,
--- debugContext="adam"), values of {value, isConst}: defaultLearningRate 0.1,
--- defaultWeightDecay 0, defaultBeta1 0.9, defaultBeta2 0.999, defaultEps 1e-6, lossScaling
--- 1, defaultMaxWeightNorm 10, all constant unless given.
---@class popart.Adam: popart.Optimizer
local Adam = base.define("Adam", {
  { "learningRate", "learningRates", 0.1, "learning rates" },
  { "weightDecay", "weightDecays", 0, "weight decays" },
  { "beta1", "beta1s", 0.9 },
  { "beta2", "beta2s", 0.999 },
  { "eps", "epss", 1e-6, "eps" },
  { "maxWeightNorm", "maxWeightNorms", 10, "mwn" },
}, { "values", "mode", "weight_decay_mode", "accum_type", "accl1_type", "accl2_type",
  "clip_norm_settings", "scaled_optimizer_state", "debugContext" }, function(self, a)
  self.mode = base.mode(a.mode, "Adam: mode", Mode, Mode.Adam)
  self.decay_mode = base.mode(a.weight_decay_mode, "Adam: weight_decay_mode", base.WeightDecayMode,
    Decay)
  self.accum_type = base.data_type(a.accum_type, "Adam: accum_type")
  for _, key in ipairs({ "accl1_type", "accl2_type" }) do
    self[key] = a[key] == nil and core.dtypes.float32 or base.data_type(a[key], "Adam: " .. key)
  end
  self.scaled_optimizer_state = check.bool(a.scaled_optimizer_state,
    "Adam: scaled_optimizer_state", { nullable = true }) or false
end)
M.Adam = Adam

--- As every kind's; maxWeightNorm is an older name of defaultMaxWeightNorm.
function Adam:_setup(dict, clips)
  if type(dict) == "table" and dict.maxWeightNorm ~= nil then
    logging.warn("popart", "Using 'maxWeightNorm' as a key in the Adam constructor is deprecated. "
      .. "Please use 'defaultMaxWeightNorm' instead.")
    local renamed = {}
    for key, value in pairs(dict) do
      renamed[key == "maxWeightNorm" and "defaultMaxWeightNorm" or key] = value
    end
    dict = renamed
  end
  base.Optimizer._setup(self, dict, clips)
end

local NOT_NEGATIVE = { { "weightDecay", "weight decay" }, { "beta1", "beta1" },
  { "beta2", "beta2" } }

function Adam:_check(own)
  self:_check_common(own, NOT_NEGATIVE)
end

function Adam:_check_modes(other)
  base.same(self, other, { mode = "Adam modes" })
  base.same(self, other, { decay_mode = "Weight decay modes" })
  base.same(self, other, { scaled_optimizer_state = "Scaled optimizer states" })
end

--- error: popart_exception for moments in units of a loss scale that the device sets
---@param automatic boolean
function Adam:_check_loss_scaling(automatic)
  errors.check(not (automatic and self.scaled_optimizer_state), "popart_exception",
    "scaledOptimizerState and automaticLossScaling are not compatible.")
end

-- Operands behind the hyper-parameters that all modes have.
local function operands(self, step, op)
  local list = { "param", "grad", "state:Accl1", "state:Accl2" }
  if op == "adam_step" then
    list[#list + 1] = false -- max_exp_avg_sq
  end
  for _, name in ipairs({ "learningRate", "beta1", "beta2", "eps", "weightDecay" }) do
    list[#list + 1] = "hyper:" .. name
  end
  list[#list + 1] = step
  if op == "lamb_step" then
    list[#list + 1] = "hyper:maxWeightNorm"
  end
  if self.scaled_optimizer_state then
    list[#list + 1] = false -- grad_scale
    list[#list + 1] = "hyper:lossScaling"
  end
  return list
end

--- How a weight is updated, as lupine/session/training.lua describes it.
---@return table rule
function Adam:_rule()
  local mode = self.mode
  local op = mode == Mode.AdaMax and "adamax_step"
    or (mode == Mode.Lamb or mode == Mode.LambNoBias) and "lamb_step" or "adam_step"
  local corrected = mode ~= Mode.AdamNoBias and mode ~= Mode.LambNoBias
  local decoupled = self.decay_mode == Decay
  return {
    op = op,
    inputs = operands(self, corrected and "state:Step", op),
    outputs = { "param", "state:Accl1", "state:Accl2" },
    counts = corrected and "Step" or nil,
    attrs = { decoupled = decoupled, bias_correction = corrected },
    accum = self.accum_type,
    clips = decoupled and "gradient" or "decayed",
  }
end

--- The dtype of a state; nil: the weight's.
---@param name string
---@return torch.dtype?
function Adam:_state_type(name)
  if name == "Step" then
    return core.dtypes.float32
  end
  return name == "Accl1" and self.accl1_type or name == "Accl2" and self.accl2_type or nil
end

--- The first values of a state.
function Adam._start(_, _, _, room)
  core.zero_room(room)
end

--- What a state is multiplied by where the loss scale grew by `ratio`; nil: it stays.
---@param name string
---@param ratio number
---@return number?
function Adam:_rescaled(name, ratio)
  if not self.scaled_optimizer_state or name == "Step" then
    return nil
  end
  return name == "Accl2" and self.mode ~= Mode.AdaMax and ratio * ratio or ratio
end

return M
