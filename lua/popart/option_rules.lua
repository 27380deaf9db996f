--- What must hold between session options, and between them and a device, when a session is
--- made; and the counts that follow from them.
---
--- Source: PopART's checks of session options.
local enums = require("popart.enums")
local errors = require("popart.errors")
local library_options = require("lupine.library_options")
local logging = require("popart.logging")
local options = require("popart.options")
local TensorLocation = require("popart.tensor_location").TensorLocation
local tables = require("lupine.base.tables")
local CommGroup = require("popart.variable_settings").CommGroup

local M = {}

local Mode, Method = enums.VirtualGraphMode, enums.GradientTensorTrackingMethod

local function refuse(fmt, ...)
  errors.raise("popart_exception", fmt, ...)
end

--- How many micro-batches an update has.
--- error: popart_exception for a factor without enableGradientAccumulation
---@param opts popart.SessionOptions
---@return integer
function M.accumulation(opts)
  if not opts.enableGradientAccumulation and opts.accumulationFactor > 1 then
    refuse("enableGradientAccumulation is false, but accumulationFactor > 1. Either enable "
      .. "gradient accumulation, or set the accumulation factor to 1")
  end
  return opts.accumulationFactor
end

--- How many replicas this process has.
---@param opts popart.SessionOptions
---@return integer
function M.replicas(opts)
  return opts.enableReplicatedGraphs and opts.replicatedGraphCount or 1
end

--- How many buffers a stream has. They change nothing here, but must be possible.
--- error: popart_exception for less than 1, or more where the host orders the elements
---@param opts popart.SessionOptions
---@param id string of the tensor
---@param on_host? boolean whether the host orders its elements
---@return integer
function M.buffering_depth(opts, id, on_host)
  local depth = opts.bufferingDepthMap[id] or on_host and 1 or opts.defaultBufferingDepth
  if depth < 1 then
    refuse("Unable to support a buffering depth of %d for tensor %s (minimum buffering depth is 1)",
      depth, id)
  elseif depth > 1 and on_host then
    refuse("Unable to support a buffering depth >1 for tensor %s because the stream is set to "
      .. "rearrange on the host (and PopART allows streams that are rearranged on the host to "
      .. "overlap in memory, making this unsafe)", id)
  end
  return depth
end

--- A pipeline must be filled.
--- error: popart_exception for fewer micro-batches than stages
---@param opts popart.SessionOptions
---@param batches integer batches per step
---@param stages integer of forward and backward pass
function M.check_depth(opts, batches, stages)
  local accumulates = opts.enableGradientAccumulation
  local depth = accumulates and opts.accumulationFactor or batches
  if depth < stages then
    refuse("For pipelining, depth (%s) must equal at least the number of pipeline stages (%d), "
      .. "got %d", accumulates and "gradient accumulation factor" or "batchesPerStep", stages,
      depth)
  end
end

-- ---- the checks, each of (opts, program) ---------------------------------------------------

local function check_accumulation(opts, program)
  M.accumulation(opts)
  if not program.training and opts.enableGradientAccumulation then
    refuse("Gradient Accumulation only available when training.")
  end
end

local function check_replicas(opts, program)
  local replicas, ipus = M.replicas(opts), program.num_ipus
  if ipus and ipus % replicas ~= 0 then
    refuse("For replicated graphs, the number of IPUs must be divisible by the replication "
      .. "factor. (num ipus = %d, replication factor = %d)", ipus, replicas)
  end
end

local function check_processes(opts)
  local factor, offset, count = opts.globalReplicationFactor, opts.globalReplicaOffset,
    opts.replicatedGraphCount
  if not opts.enableDistributedReplicatedGraphs then
    return
  elseif factor < 1 then
    refuse("Invalid globalReplicationFactor value: %d, must be greater or equal than 1", factor)
  elseif offset < 0 then
    refuse("Invalid globalReplicaOffset value: %d, must be greater or equal than 0", offset)
  elseif offset >= factor then
    refuse("Global replica offset: %d, is larger than global replication factor: %d", offset,
      factor)
  elseif opts.enableReplicatedGraphs and count == 1 then
    refuse("Local replicated graphs enabled but replication factor is 1")
  elseif opts.enableReplicatedGraphs and count > factor then
    refuse("Invalid local replication factor: %d, larger than global replication factor: %d", count,
      factor)
  end
end

local function is_explicit(opts)
  return opts.enableExplicitMainLoops and opts.useHostCopyOps
end

local function check_pipeline(opts, program)
  local ipus = program.num_ipus and program.num_ipus // M.replicas(opts)
  if opts.enablePipelining and not is_explicit(opts)
      and (opts.virtualGraphMode == Mode.Off or ipus == 1) then
    refuse("Pipelining requires more than 1 IPU (currently %s) and the 'virtualGraphMode' session "
      .. "option to not be VirtualGraphMode::Off (currently VirtualGraphMode::%s).",
      ipus or "unknown", opts.virtualGraphMode.name)
  end
end

local function check_phases(opts)
  local phases = opts.executionPhaseSettings.phases
  local phased = opts.virtualGraphMode == Mode.ExecutionPhases
  if phases > 1 and not phased then
    refuse("> 1 execution phases requires VirtualGraphMode::ExecutionPhases")
  elseif phased and phases == 0 or phases == 1 then
    logging.warn("ir", "Phased execution was enabled but only %d phases were defined. Phased "
      .. "execution only works with >=2 phases. Disabling.", phases)
  end
  if opts.executionPhaseSettings.stages > 2 then
    refuse("executionPhaseSettings.stages: expected 1 or 2, got %d",
      opts.executionPhaseSettings.stages)
  end
end

local function check_loops(opts)
  if opts.aliasZeroCopy and opts.enablePipelining and not is_explicit(opts) then
    refuse("Alias zero copy is not supported with implicit pipelining.")
  elseif opts.aliasZeroCopy and not opts.explicitRecomputation then
    refuse("Alias zero copy is currently not supported with implicit recomputation.")
  elseif opts.enableExplicitMainLoops and not opts.useHostCopyOps then
    refuse("enableExplicitMainLoops requires useHostCopyOps.")
  end
end

local function check_batches(opts, program)
  local settings = opts.batchSerializationSettings
  if settings.factor > 1 and program.training and settings.method.name == "Loop"
      and settings.transformContext == enums.BatchSerializationTransformContext.Fwd then
    refuse("Loop batch serialization is only supported in BatchSerializationTransformContext::Bwd "
      .. "due to LoopGradOp missing.")
  end
end

--- An input whose batch is to be computed in parts has that many rows.
--- error: popart_exception for fewer
---@param opts popart.SessionOptions
---@param id string
---@param shape integer[]
function M.check_rows(opts, id, shape)
  local factor = opts.batchSerializationSettings.factor
  if factor > 1 and #shape > 0 and shape[1] < factor then
    refuse("Batch axis: %d is smaller than the batch serialization factor: %d for tensor %s",
      shape[1], factor, id)
  end
end

local function check_buffers(opts)
  M.buffering_depth(opts, "(any)")
  for id in pairs(opts.bufferingDepthMap) do
    M.buffering_depth(opts, id, opts.rearrangeStreamsOnHost)
  end
end

local function check_proportion(settings, field, where)
  local value = settings[field]
  if value < 0 or value > 1 then
    refuse(where .. "Out of range value for '%s'. The current value is %s, "
      .. "but it should be in the range [0, 1].", field, value)
  end
end

local function check_tracking(settings)
  local by_user = settings.gradientTensorTrackingMethod == Method.GradientsOfUserSpecifiedTensors
  if settings.toTrackTensors and #settings.toTrackTensors == 0 then
    refuse("[PreAutomaticLossScale] An empty list was set as the value of 'toTrackTensors'. "
      .. "Leave it unset to track the default tensors")
  elseif settings.toTrackTensors and not by_user then
    refuse("[AutomaticLossScale transform] toTrackTensors has been set, but "
      .. "gradientTensorTrackingMethod has not been set to "
      .. "'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors'.")
  elseif by_user and not settings.toTrackTensors then
    refuse("[AutomaticLossScale transform] gradientTensorTrackingMethod set to "
      .. "'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors' but 'toTrackTensors' has "
      .. "not been set")
  end
end

local function check_loss_scaling(opts, program)
  local settings = opts.automaticLossScalingSettings
  if not settings.enabled then
    return
  elseif not program.training then
    refuse("[AutomaticLossScale transform] Only compatible when doing training")
  elseif opts.enablePipelining and not opts.enableGradientAccumulation then
    refuse("[AutomaticLossScale transform] Automatic loss scaling is not currently supported when "
      .. "the 'enablePipelining' SessionOption is set to 'true', but the "
      .. "'enableGradientAccumulation' SessionOption is set to 'false'")
  end
  check_tracking(settings)
  check_proportion(settings, "binEdgeLocation", "[AutomaticLossScale transform] ")
  check_proportion(settings, "thresholdUpperCountProportion", "")
end

-- Options that are one of some words.
local WORDS = { partialsTypeMatMuls = { "", "half", "float" },
  kahnTieBreaker = { "greedy", "fifo", "random" } }

local function check_words(opts)
  for name, allowed in pairs(WORDS) do
    if not tables.set(allowed)[opts[name]:lower()] then
      refuse("SessionOptions.%s: expected \"%s\", got '%s'", name, table.concat(allowed, '" or "'),
        opts[name])
    end
  end
end

local function check_values(opts)
  options.each_set(opts, function(name, value, row)
    if row.refused then
      refuse("SessionOptions.%s = %s is not supported: %s", name, tostring(value), row.refused)
    end
  end)
  check_words(opts)
  if opts.accumulationAndReplicationReductionType == enums.ReductionType.NoReduction then
    refuse("SessionOptions.accumulationAndReplicationReductionType: gradients are summed or their "
      .. "mean is taken. Allowed: ReductionType.Sum, ReductionType.Mean")
  end
  for library in pairs(library_options.values) do
    local wrong = library_options.unknown(library, opts[library])
      or library_options.wrong(library, opts[library])
    if wrong then
      refuse("SessionOptions.%s", wrong)
    end
  end
end

-- What is refused here comes last: an error that the original has, too, says more.
local CHECKS = { check_accumulation, check_replicas, check_processes, check_pipeline, check_phases,
  check_loops, check_batches, check_buffers, check_loss_scaling, check_values }

--- Tiles for input and output are set aside in virtual graphs alone.
--- error: popart_exception for an odd number, one below 32, or all tiles
---@param opts popart.SessionOptions
---@param tiles integer of an IPU
---@return integer
function M.io_tiles(opts, tiles)
  local n = opts.numIOTiles
  if n == 0 or opts.virtualGraphMode == Mode.Off then
    return 0
  elseif n < 32 or n % 2 ~= 0 then
    refuse("SessionOptions.numIOTiles: %d is an invalid number of IO tiles. Number of IO tiles "
      .. "must be an even number and >= 32.", n)
  elseif n >= tiles then
    refuse("SessionOptions.numIOTiles: Tiles per IPU %d should exceed number of IO tiles %d.",
      tiles, n)
  end
  return n
end

--- What must hold when a session is made, before its graph is known: later come check_depth
--- and popart.overlap.
---
--- program: training; num_ipus of the device (nil: not looked at).
--- error: popart_exception naming the options
---@param opts popart.SessionOptions
---@param program {training: boolean, num_ipus: integer?}
function M.check(opts, program)
  for _, rule in ipairs(CHECKS) do
    rule(opts, program)
  end
end

-- ---- what was set and changes nothing ---------------------------------------------------

-- Options of libraries that the cost of products follows from.
local COUNTED = { convolutionOptions = tables.set(
  "partialsType availableMemoryProportion " .. table.concat(library_options.DITHERING, " ")),
  matmulOptions = tables.set("availableMemoryProportion") }
local BY_NODE = "SessionOptions.partialsTypeMatMuls and Builder:setPartialsType say it"

local function note_libraries(opts, note)
  for _, library in ipairs(tables.keys(COUNTED)) do
    for _, key in ipairs(tables.keys(opts[library])) do
      if not COUNTED[library][key] then
        note(("SessionOptions.%s %s"):format(library, key), key == "partialsType" and BY_NODE
          or "the planner of the simulated machine has no such setting")
      end
    end
  end
end

local NO_GRADIENTS = "inference has no gradients"
local FEW_PHASES = "phased execution needs VirtualGraphMode.ExecutionPhases and 2 phases"

local function is_phased(opts)
  return opts.virtualGraphMode == Mode.ExecutionPhases and opts.executionPhaseSettings.phases > 1
end

--- Why parts of a batch (batchSerializationSettings) are not simulated; nil: they are, if
--- the model can be had with fewer rows.
---@param opts popart.SessionOptions
---@return string?
function M.whole(opts)
  if opts.batchSerializationSettings.factor < 2 then
    return "a batch has one part"
  elseif not is_phased(opts) then
    return "parts pass phases, and there are none"
  end
  return opts.activationTensorLocationSettings.location.storage.name == "OnChip"
    and "what parts hand to the next phase waits off the chip, and activations stay on it" or nil
end

-- Why no phase moves tensors of a kind ahead of another one; false: one may.
local function unscheduled(kind)
  return function(opts)
    local at = opts[kind .. "TensorLocationSettings"].location
    return not is_phased(opts) and FEW_PHASES or at.storage.name == "OnChip"
      and at.replicatedTensorSharding.name == "Off"
      and not next(opts.tensorLocationSettingsOverride) and "they are on the chip"
  end
end

-- Why the weight update is no phase of its own; nil: it is one.
local function no_phase(opts, program)
  return not is_phased(opts) and FEW_PHASES or not program.training and "inference has no optimizer"
    or opts.accumulationFactor > 1 and "with gradient accumulation the weight update is no phase"
    or nil
end

local function in_inference(why)
  return function(_, program)
    return not program.training and why
  end
end

-- Of options that count only where another one is set, or in training or inference: why
-- they do not, of (opts, program), false where they do.
local WAITS = {
  replicatedGraphCount = function(opts)
    return not opts.enableReplicatedGraphs and "enableReplicatedGraphs is not set"
  end,
  cachePath = function(opts)
    return not opts.enableEngineCaching and "enableEngineCaching is not set"
  end,
  enableEngineCaching = function(opts)
    return opts.cachePath == "" and "there is no cachePath"
  end,
  compilationProgressTotal = function(opts)
    return not opts.compilationProgressLogger and "compilationProgressLogger is not set"
  end,
  hardwareInstrumentations = function(opts)
    return not opts.instrumentWithHardwareCycleCounter
      and "instrumentWithHardwareCycleCounter is not set"
  end,
  virtualGraphSplitRatios = function(opts)
    return opts.virtualGraphMode ~= Mode.Auto and "virtualGraphMode is not Auto"
  end,
  numIOTiles = function(opts)
    return opts.virtualGraphMode == Mode.Off and "virtualGraphMode is Off"
  end,
  virtualGraphMode = function(opts)
    return opts.virtualGraphMode == Mode.ExecutionPhases and not is_phased(opts) and FEW_PHASES
  end,
  ["executionPhaseSettings.phases"] = function(opts)
    return not is_phased(opts) and FEW_PHASES
  end,
  ["executionPhaseSettings.stages"] = function(opts)
    return not is_phased(opts) and FEW_PHASES
  end,
  ["executionPhaseSettings.weightIOSchedule"] = unscheduled("weight"),
  ["executionPhaseSettings.activationIOSchedule"] = unscheduled("activation"),
  ["executionPhaseSettings.accumulatorIOSchedule"] = unscheduled("accumulator"),
  ["executionPhaseSettings.optimizerStateIOSchedule"] = function(opts, program)
    return no_phase(opts, program) or unscheduled("optimizerState")(opts)
  end,
  ["executionPhaseSettings.schedule"] = no_phase,
  ["batchSerializationSettings.batchSchedule"] = function(opts, program)
    local at = opts.activationTensorLocationSettings.location
    return M.whole(opts) or program.whole or (opts.numIOTiles == 0 or at.loadTileSet.name ~= "IO"
      and at.storageTileSet.name ~= "IO") and "no I/O tiles move activations"
  end,
  ["batchSerializationSettings.factor"] = function(opts, program)
    return M.whole(opts) or program.whole
  end,
  constantWeights = function(_, program)
    return program.training and "a training session's weights can be written always"
  end,
  meanAccumulationAndReplicationReductionStrategy = function(opts, program)
    return not program.training and NO_GRADIENTS or opts.accumulationAndReplicationReductionType
      ~= enums.ReductionType.Mean and "accumulationAndReplicationReductionType is not Mean"
  end,
  accumulationAndReplicationReductionType = in_inference(NO_GRADIENTS),
  autoRecomputation = in_inference("inference recomputes nothing"),
  disableOptimizerStateTensorStreams = in_inference("inference has no optimizer"),
}
for _, field in ipairs({ "toTrackTensors", "binEdgeLocation", "thresholdUpperCountProportion",
  "updatePeriod", "gradientTensorTrackingMethod" }) do
  WAITS["automaticLossScalingSettings." .. field] = function(opts)
    return not opts.automaticLossScalingSettings.enabled
      and "automaticLossScalingSettings.enabled is not set"
  end
end
for _, field in ipairs({ "location", "minElementsForOffChip",
  "minElementsForReplicatedTensorSharding" }) do
  WAITS["optimizerStateTensorLocationSettings." .. field] =
    in_inference("inference has no optimizer")
  WAITS["accumulatorTensorLocationSettings." .. field] = in_inference(NO_GRADIENTS)
end

--- Calls note(name, why) for what was set and changes nothing in a session, as reports have
--- it.
---@param opts popart.SessionOptions
---@param program {training: boolean}
---@param note fun(name: string, why: string)
function M.note(opts, program, note)
  options.note(opts, note)
  note_libraries(opts, note)
  options.each_set(opts, function(name, value)
    local why = WAITS[name] and WAITS[name](opts, program)
    if why then
      note("SessionOptions." .. name, why)
    elseif TensorLocation:is(value) and value.shardingDomain ~= CommGroup() then
      note("SessionOptions." .. name, "tensors are shared out between all replicas, whatever "
        .. "the shardingDomain")
    end
  end)
end

return M
