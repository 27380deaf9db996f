--- What a traced step is completed with: the loss, the loops, the optimizer's
--- update rules.
local compiled = require("poptorch.compiled_optimizer")
local core = require("lupine.core")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local loss_scaling = require("popart.loss_scaling")
local logging = require("poptorch.logging")
local state = require("poptorch.state")
local whole = require("poptorch.whole")

local M = {}

-- ---- the optimizer's rules ----------------------------------------------------------

-- An optimizer over another module's parameters would train nothing.
local function check_trains(s, name_of)
  for _, group in ipairs(s.optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      if name_of[p] then
        return
      end
    end
  end
  errors.raise("Error", "none of the optimizer's parameters is one of the model's (%s): make the "
    .. "optimizer of this model's parameters()", getmetatable(s.model).__name)
end

-- How the model's parameters are updated. The ones that the program does not
-- have are left out.
local function rules_of(s, has)
  local name_of, optimizer, list = {}, s.optimizer, {}
  local clipped = whole.value(optimizer, "max_grad_norm") < math.huge
  for name, p in s.model:named_parameters({ remove_duplicate = false }) do
    name_of[p] = name_of[p] or name
  end
  check_trains(s, name_of)
  for g, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      if name_of[p] and has["parameter " .. name_of[p]] and p.requires_grad then
        local rule = optimizer:device_rule(group, p)
        list[#list + 1] = { param = name_of[p], tensor = p, group = g, op = rule.op,
          inputs = rule.inputs, outputs = rule.outputs, attrs = rule.attrs, counts = rule.counts,
          first = rule.first,
          accum = optimizer.accum_type or core.dtypes.float32,
          max_norm = clipped and "max_grad_norm" or nil }
      end
    end
  end
  return list
end

local SCALING = "automaticLossScalingSettings."

local SHARES = { edge = "binEdgeLocation", threshold = "thresholdUpperCountProportion" }

local function check_scaling(scaling)
  for key, name in pairs(SHARES) do
    errors.check(scaling[key] >= 0 and scaling[key] <= 1, "Error",
      "%s%s: expected a number from 0 to 1, got %s", SCALING, name, tostring(scaling[key]))
  end
  errors.check(scaling.tracking ~= "named", "Error", "%sgradientTensorTrackingMethod: "
    .. "GradientsOfUserSpecifiedTensors needs a list of tensors, which popart sessions have. "
    .. "Allowed: AllNonViewChangingGradientTensors, ConvAndMatmulGradients", SCALING)
  errors.check(scaling.period >= 1, "Error", "%supdatePeriod: expected 1 or more, got %d",
    SCALING, scaling.period)
  return scaling
end

-- How the session finds its loss scale, which is variable then; nil: it does not.
local function scaling_of(s)
  local settings = {}
  if not s.options.Training.automatic_loss_scaling then
    return nil
  end
  for name, value in pairs(s.options._Popart:toDict()) do
    if type(name) == "string" and name:sub(1, #SCALING) == SCALING then
      settings[name:sub(#SCALING + 1)] = value
    end
  end
  return check_scaling(loss_scaling.of(settings))
end

--- The optimizer as a session sees it.
---@param s table the executor's state
---@param has table variables of the step by "role name"
---@return table view
function M.view(s, has)
  local o = s.optimizer
  s.updated = rules_of(s, has)
  local view = state.View(s)
  view.scaling = scaling_of(s)
  if view.scaling then
    view.loss_scale = "loss_scaling"
    if o.variable_attrs then
      o.variable_attrs:markAsVariable("loss_scaling")
    end
  elseif o.loss_scaling
    and (o.loss_scaling ~= 1 or not compiled.is_constant(o, "loss_scaling")) then
    view.loss_scale = "loss_scaling"
  end
  compiled.remember(s)
  return view
end

local function final_loss(losses)
  errors.check(#losses > 0, "Error",
    "a training model must compute a loss: use a loss function of torch.nn, or wrap what is to "
    .. "be minimised in poptorch.identity_loss")
  errors.check(#losses == 1, "Error",
    "the model has multiple independent losses (%d): combine them into one and wrap it in "
    .. "poptorch.identity_loss", #losses)
  return losses[1]
end

-- The core's name of a poptorch.OutputMode, which has its number; nil: Default.
---@param output_mode poptorch.OutputMode
local function mode_of(output_mode)
  return core.output_modes[output_mode.value + 1]
end

-- The anchors of the options, sorted by what they are called.
local function anchors_of(options)
  local list = {}
  for short_name, anchor in pairs(options.anchored_tensors) do
    list[#list + 1] = { short_name = short_name, name = anchor.long_name,
      mode = mode_of(anchor.output_mode), period = anchor.output_return_period }
    logging.debug("anchor '%s': %s %s/%d", short_name, anchor.long_name,
      tostring(anchor.output_mode), anchor.output_return_period)
  end
  table.sort(list, function(a, b)
    return a.short_name < b.short_name
  end)
  return list
end

--- What a traced step is completed with.
---@param s table the executor's state
---@param losses integer[] values of final losses
---@param by_name table variables of the step by "role name"
---@return table spec of lupine.session: compile, anchors, output, input_groups, optimizer
function M.spec(s, losses, by_name)
  local o = s.options
  local training = o.Training
  local compile = {
    device_iterations = o.device_iterations,
    gradient_accumulation = training.gradient_accumulation,
    replicas = o.replication_factor,
    mean = training.accumulation_and_replication_reduction_type == enums.ReductionType.Mean,
    numerics = { stochastic = o.Precision.stochastic_rounding,
      half_partials = o.Precision.partials_type == "half",
      half_statistics = not o.enable_stable_norm,
      trap = o.Precision.floating_point_exceptions },
    names = true,
  }
  if s.training then
    compile.loss = final_loss(losses)
    local strategy = training.mean_accumulation_and_replication_reduction_strategy
    compile.running = strategy == enums.MeanReductionStrategy.Running
    compile.early = strategy == enums.MeanReductionStrategy.PostAndLoss or nil
  end
  return { compile = compile, anchors = anchors_of(o),
    output = { mode = mode_of(o.output_mode), period = o.output_return_period },
    input_groups = { size = o.input_group_size,
      orthogonal = o.input_group_type == enums.CommGroupType.Orthogonal },
    optimizer = s.training and M.view(s, by_name) or nil }
end

return M
