--- What follows from options as a whole: rules between them that hold when a
--- model is wrapped or compiled, the target they select, and the batching
--- arithmetic. Pure functions of options and environment.
---
--- Sources: PopTorch API reference, "Options"; user guide 4.1, 5 (batching),
--- 4.11 (environment variables); PopART's rules for batches per step.
local check = require("lupine.base.check")
local engine_options = require("lupine.engine_options")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")
local variables = require("lupine.base.variables")
local Options = require("poptorch.options").Options

local M = {}

local O, C = enums.OutputMode, enums.ConnectionType

local function popart_error(fmt, ...)
  error(errors.new("Error", "popart_exception", fmt:format(...)), 0)
end

--- The options of an executor: checks and freezes the user's, and returns a
--- frozen copy whose output mode is resolved (All for inference, Final for
--- training).
--- error: poptorch.Error for anything but Options, or for gradient
--- accumulation in inference
---@param options poptorch.Options?
---@param training boolean
---@return poptorch.Options
function M.for_executor(options, training)
  local by = training and "poptorch.trainingModel" or "poptorch.inferenceModel"
  if check.is_none(options) then
    options = Options()
  end
  errors.check(Options:is(options), "Error", "%s(options): expected poptorch.Options, got %s", by,
    check.describe(options))
  local ga = options.Training.gradient_accumulation
  if not training and ga ~= 1 then
    errors.raise("Error", "%s: gradientAccumulation is for training only, got %d%s; "
      .. "options:forInference() makes a copy without", by, ga,
      options.execution_strategy.kind == "pipelined"
        and "; inference fills its pipeline with deviceIterations" or "")
  end
  options:_freeze(by)
  logging.set_max_repeats(options.max_repeat_logs)
  local own = options:clone()
  if own:defaultOutputMode() then
    own:outputMode(training and O.Final or O.All)
  end
  return own:_freeze(by)
end

local VERSIONS = { ipu1 = 1, ipu2 = 2, ipu21 = 21 }

--- The target that options and environment select. `kind` is "hardware"
--- (the simulated system), "model" (the IPU Model) or "offline"; `version` is
--- 1, 2, 21 or nil where the system decides; `tiles` is 4 for the small model.
--- error: poptorch.Error for a version that does not exist, ValueError for a variable
--- that is no number
---@param options poptorch.Options
---@return {kind: string, version: integer?, tiles: integer?}
function M.target(options)
  local model, small = options.use_model, false
  if model == nil then
    model, small = variables.flag("POPTORCH_IPU_MODEL"), variables.flag("POPTORCH_SMALL_IPU_MODEL")
    small = small and not model
  end
  local name = variables.text("POPTORCH_IPU_MODEL_VERSION") or "ipu2"
  local version = errors.check(VERSIONS[name], "Error",
    "POPTORCH_IPU_MODEL_VERSION: allowed are ipu1, ipu2 and ipu21, got '%s'", name)
  if model or small then
    return { kind = "model", version = version, tiles = small and 4 or nil }
  end
  version = options.ipu_version
  if version ~= nil then
    errors.check(version == 1 or version == 2 or version == 21, "Error",
      "useOfflineIpuTarget(ipu_version): allowed are 1, 2 and 21, got %d", version)
  end
  return { kind = options.connection_type == C.Never and "offline" or "hardware",
    version = version }
end

local function check_period(of, mode, period, iterations)
  if mode == O.EveryN and iterations % period ~= 0 then
    popart_error("%sthe return period of OutputMode.EveryN must divide deviceIterations, "
      .. "got %d and %d", of, period, iterations)
  end
end

-- Micro-batches of a call.
local MOST = 2 ^ 40

-- The loops that a call goes through.
local function check_loops(options, training)
  local di, rf = options.device_iterations, options.replication_factor
  local ga = training and options.Training.gradient_accumulation or 1
  if di <= 0 then
    popart_error("batches per step (deviceIterations) must be greater than 0, got %d", di)
  end
  if rf <= 0 then
    popart_error("replicationFactor must be greater than 0, got %d", rf)
  end
  if ga <= 0 then
    popart_error("gradientAccumulation must be greater than 0, got %d", ga)
  end
  if 1.0 * di * ga * rf > MOST then
    popart_error("deviceIterations x gradientAccumulation x replicationFactor must not be more "
      .. "than 2^40, got %d x %d x %d", di, ga, rf)
  end
end

--- What must hold of the counts of a call, whatever the model.
--- error: poptorch.Error naming the options
---@param options poptorch.Options an executor's own
---@param training boolean
function M.check_counts(options, training)
  check_loops(options, training)
  local di, n = options.device_iterations, options.output_return_period
  check_period("", options.output_mode, n, di)
  for name, anchor in pairs(options.anchored_tensors) do
    check_period(("anchor '%s': "):format(name), anchor.output_mode,
      anchor.output_return_period, di)
  end
  local rf, group = options.replication_factor, options.input_group_size
  if rf % group ~= 0 then
    popart_error("the input group size must divide the replication factor, got %d and %d",
      group, rf)
  end
end

--- What must hold when a model is compiled, whatever the model.
--- error: poptorch.Error naming the options
---@param options poptorch.Options an executor's own
---@param training boolean
---@return table target as M.target
function M.check_compile(options, training)
  M.check_counts(options, training)
  options._Popart:validate()
  local offline = options.connection_type == C.Never
  errors.check(not (offline and options.ipu_id), "Error",
    "useIpuId(%s) selects a device, but connectionType is Never: nothing will be attached",
    tostring(options.ipu_id))
  local target = M.target(options)
  errors.check(not (target.kind == "model" and options.ipu_version), "Error",
    "useOfflineIpuTarget cannot be combined with the IPU Model (useIpuModel or "
    .. "POPTORCH_IPU_MODEL)")
  errors.check(target.kind == "hardware" or not options.log_cycle_count, "Error",
    "logCycleCount needs IPU hardware; the target is %s",
    target.kind == "model" and "the IPU Model" or "offline")
  return target
end

--- When the mean of gradients divides: Running wherever the optimizer
--- accumulates in float16, else what the options say.
---@param options poptorch.Options
---@param half_accumulation boolean
---@return table a poptorch.MeanReductionStrategy
function M.mean_strategy(options, half_accumulation)
  return half_accumulation and enums.MeanReductionStrategy.Running
    or options.Training.mean_accumulation_and_replication_reduction_strategy
end

--- What an input's first dimension must be a multiple of: device iterations,
--- input groups of replicas, accumulated micro-batches.
--- error: poptorch.Error unless these are from 1 to 2^40
---@param options poptorch.Options
---@return integer
function M.input_factor(options)
  check_loops(options, true)
  return options.device_iterations * (options.replication_factor // options.input_group_size)
    * options.Training.gradient_accumulation
end

--- Copies of each output that a call returns, one after another in the first
--- dimension. `mode` and `period` are the options' unless an anchor has its own.
---@param options poptorch.Options with the output mode resolved
---@param mode? table a poptorch.OutputMode
---@param period? integer
---@return integer
function M.output_factor(options, mode, period)
  mode, period = mode or options.output_mode, period or options.output_return_period
  local rf = options.replication_factor
  local per_replica = options.device_iterations * options.Training.gradient_accumulation
  if mode == O.All then
    return per_replica * rf
  elseif mode == O.EveryN then
    return per_replica // period * rf
  end
  return rf
end

--- The engine options: those of enableProfiling and _Popart, and over them
--- POPLAR_ENGINE_OPTIONS, a JSON object.
--- error: poptorch.Error for an environment variable that is no such object, or a
--- value that an option has not
---@param options poptorch.Options
---@return table<string, string>
function M.engine_options(options)
  return engine_options.effective(options._Popart:toDict().engineOptions,
    "options._Popart: engineOptions")
end

return M
