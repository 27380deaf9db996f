--- Options._Popart: session options by their PopART names, for what Options
--- has no setter for. As in PopTorch a name is only checked when a model is
--- compiled (`problems`), and group options are written with a point:
--- "automaticLossScalingSettings.enabled".
---
--- Source of the names: PopART's SessionOptions and TensorLocationSettings, and
--- what PopTorch adds to them.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")

-- Kind of each option: b bool, i int, f float, s string, l list, m table, e an
-- enumeration's member (its number or name).
local KINDS = {
  b = [[separateCallOpPdfs dotOpNames exportPoplarComputationGraph exportPoplarVertexGraph
    enableOutlining enableOutliningCopyCostPruning explicitRecomputation
    rearrangeAnchorsOnHost rearrangeStreamsOnHost enablePrefetchDatastreams
    enableNonStableSoftmax enableStableNorm enableReplicatedGraphs
    enableGradientAccumulation enablePipelining stashAllTensorsInferencePipeline
    instrumentWithHardwareCycleCounter disableGradAccumulationTensorStreams
    disableOptimizerStateTensorStreams compileEngine constantWeights enableEngineCaching
    enableVariablesCaching enableFloatingPointChecks enableStochasticRounding
    enableLoadAndOffloadRNGState enableExplicitMainLoops useHostCopyOps aliasZeroCopy
    enableMergeExchange groupHostSync delayVarUpdates decomposeGradSum
    scheduleNonWeightUpdateGradientConsumersEarly enableFullyConnectedPass
    enableSerializedMatmuls enableDistributedReplicatedGraphs strictOpVersions
    opxAliasChecking opxModifyChecking enableInplaceAmbiguityChecking
    ensureFp32LossScaleTensor enableSupportedDataTypeCasting
    groupNormStridedChannelGrouping throwIfLog2ScaleTensorNotInRange
    enableConstantFoldingOfMultipleConsumers useLoopCandidateCreator
    automaticLossScalingSettings.enabled enableExplicitIR
    batchSerializationSettings.concatOnVirtualGraphChange
    batchSerializationSettings.concatOnExecutionPhaseChange
    batchSerializationSettings.concatOnPipelineStageChange
    replicatedCollectivesSettings.prepareScheduleForMergingCollectives
    replicatedCollectivesSettings.mergeAllReduceCollectives]],
  i = [[firstDotOp finalDotOp mergeVarUpdateMemThreshold looseThresholdAtPeak
    defaultBufferingDepth defaultPrefetchBufferingDepth replicatedGraphCount accumulationFactor
    numIOTiles
    globalReplicationFactor globalReplicaOffset swapLimitScheduler
    transitiveClosureOptimizationThreshold compilationProgressTotal
    executionPhaseSettings.phases executionPhaseSettings.stages
    batchSerializationSettings.factor automaticLossScalingSettings.updatePeriod]],
  f = [[outlineThreshold outlineSequenceBreakCost timeLimitScheduler
    automaticLossScalingSettings.binEdgeLocation
    automaticLossScalingSettings.thresholdUpperCountProportion]],
  s = [[logDir cachePath partialsTypeMatMuls customCodeletCompileFlags kahnTieBreaker
    serializedPoprithmsShiftGraphsDir saveInitializersToFile]],
  l = [[dotChecks virtualGraphSplitRatios customCodelets updatableNamedBuffers
    hardwareInstrumentations accumulateOuterFragmentSettings.excludedVirtualGraphs
    ]],
  m = [[engineOptions reportOptions convolutionOptions lstmOptions matmulOptions gclOptions
    bufferingDepthMap tensorLocationSettingsOverride]],
  e = [[autoRecomputation mergeVarUpdate virtualGraphMode syntheticDataMode
    subgraphCopyingStrategy accumulationAndReplicationReductionType
    meanAccumulationAndReplicationReductionStrategy
    accumulateOuterFragmentSettings.schedule
    executionPhaseSettings.weightIOSchedule executionPhaseSettings.activationIOSchedule
    executionPhaseSettings.optimizerStateIOSchedule
    executionPhaseSettings.accumulatorIOSchedule executionPhaseSettings.schedule
    batchSerializationSettings.method batchSerializationSettings.batchSchedule
    batchSerializationSettings.transformContext
    automaticLossScalingSettings.gradientTensorTrackingMethod
    autodiffSettings.stitchStrategy]],
}

local kind_of, names = {}, {}
for kind, list in pairs(KINDS) do
  for name in list:gmatch("%S+") do
    kind_of[name] = kind
    names[#names + 1] = name
  end
end
table.sort(names)

local FITS = {
  b = function(v)
    return type(v) == "boolean" or v == 0 or v == 1
  end,
  i = function(v)
    return math.type(v) == "integer"
  end,
  f = function(v)
    return type(v) == "number"
  end,
  s = function(v)
    return type(v) == "string"
  end,
  l = function(v)
    return type(v) == "table"
  end,
  m = function(v)
    return type(v) == "table"
  end,
  e = function(v)
    return math.type(v) == "integer" or type(v) == "string"
  end,
}
local SHOWN = { b = "bool", i = "int", f = "float", s = "string", l = "list", m = "table",
  e = "int or string" }

local Popart
Popart = Group.define("_PopartOptions", {
  {
    name = "set", params = { "key", "value" }, tables = { value = true },
    set = function(self, values, _, row)
      self:_put(Group._argument(row, "key", values[1], "string"), values[2])
    end,
    doc = "Sets a session option by its PopART name.",
    effect = "That of the session option, or a note in the report; one that would change "
      .. "results and an unknown name are errors when compiling.",
  },
  {
    name = "setPatterns", params = { "patterns", "level" }, tables = { patterns = true },
    set = function(self, values, given, row)
      local patterns = Group._argument(row, "patterns", values[1], "table")
      for name, on in pairs(patterns) do
        Group._argument(row, "patterns", name, "string")
        Group._argument(row, "patterns", on, "bool")
      end
      self._values.patterns = class.copy(patterns)
      self._values.patterns_level = given.level
        and Group._argument(row, "level", values[2], "int") or 2
    end,
    doc = "Switches graph patterns on or off by name; level 0 none, 1 minimal, 2 default, 3 all.",
    effect = "none: the passes over the graph are fixed; the report says so.",
  },
  { key = "patterns", default = {}, doc = "Patterns switched on or off.", effect = "" },
  { key = "patterns_level", default = 2, doc = "Pattern level.", effect = "" },
})

--- No options of PopART are set.
function Popart:setup()
  Group.setup(self)
  rawset(self, "_options", {})
end

function Popart:_put(key, value)
  self._options[key] = class.copy(value)
end

--- Adds to a table-valued option, keeping what others put there.
function Popart:_merge(key, values)
  local merged = class.copy(self._options[key]) or {}
  for k, v in pairs(values) do
    merged[k] = v
  end
  self._options[key] = merged
end

--- The session options that were set, as a plain table.
---@return table<string, any>
function Popart:toDict()
  local out = Group.toDict(self)
  for k, v in pairs(self._options) do
    out[k] = Group.plain(class.copy(v))
  end
  return out
end

function Popart:_shown_values()
  local keys, parts = {}, Group._shown_values(self)
  for k in pairs(self._options) do
    keys[#keys + 1] = k
  end
  table.sort(keys)
  for _, k in ipairs(keys) do
    parts[#parts + 1] = ("%s=%s"):format(k, Group.shown(self._options[k]))
  end
  return parts
end

--- Raises poptorch.Error for a session option that does not exist or has a
--- value of the wrong kind. The compile entry calls it.
function Popart:validate()
  for key, value in pairs(self._options) do
    local kind = kind_of[key]
    if not kind then
      errors.raise("Error", "unknown session option '%s' (set through options._Popart)%s", key,
        check.nearest(key, names))
    end
    value = Group.plain(value)
    if not FITS[kind](value) then
      errors.raise("Error", "session option '%s': expected %s, got %s", key, SHOWN[kind],
        check.describe(value))
    end
  end
end

return Popart
