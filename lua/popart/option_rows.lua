--- PopART's session options, a row each: from these come poptorch's
--- Options._Popart (session_options.lua) and popart.SessionOptions (options.lua).
---
--- Positional: name (with a point inside a group of settings), kind, default, doc.
---   kind       b bool, i int, f float, s string, l list, m table, e a member of `of`
---   of         the enumeration of e; of l "string", "int", "float" or an enumeration
---   min        the least int or float
---   effect     what a popart session does with it
---   refused    why a popart session refuses another value than the default
---   no_effect  why a popart session does nothing with it; unless given, `poptorch`'s why
---   poptorch   for poptorch: "read", "refused" or why it does nothing
---   only       "poptorch" or "popart": the front end that has it
---
--- Source of names, defaults and meaning: PopART's SessionOptions.
local enums = require("popart.enums")

-- Why nothing comes of an option.
local NO_CHOICE = "the simulated system has no such choice"
local DOT = "no graphs are drawn"
local OUTLINING = "repeated parts of the graph are found without settings"
local STREAMS = "host streams of the simulated system have one form"
local PLACED = "blocks and the execution strategy place operators"
local SERIAL = "micro-batches are the parts of a batch, one after another in each phase"
local NEUTRAL = "it orders work and changes no value; the order here is fixed"
local TRACKED = "When automaticLossScalingSettings.enabled halves or doubles the loss scale."
local OWN_REPLICAS = "a session has the replicas of its own process alone"
local LIBRARY = "the planner of the simulated machine has no such setting"
local CHECKS = "the compiler checks itself always"
local CODELETS = "operators are C: lupine/custom_op.h"
local SCHEDULER = "the scheduler of the simulated compiler has no search"
local COLLECTIVES = "reductions between replicas are merged by the program"
local AHEAD = "Preload: %s off the chip come a phase ahead, and I/O tiles take them away a phase "
  .. "later; OnDemand: they move with the phase that has them."
local IO_LOOPS = "loops and copies from the host are explicit always"

local Schedule = enums.ExecutionPhaseIOSchedule

---@type table[]
local rows = {
  -- what is written and drawn
  { "logDir", "s", "", "The folder of what is written.", no_effect = DOT },
  { "dotChecks", "l", {}, "Graphs to draw.", of = "string", no_effect = DOT },
  { "firstDotOp", "i", 0, "The first operator to draw.", min = 0, no_effect = DOT },
  { "finalDotOp", "i", 10000, "The last operator to draw.", no_effect = DOT },
  { "dotOpNames", "b", false, "Draws operators with their names.", no_effect = DOT },
  { "exportPoplarComputationGraph", "b", false, "Writes Poplar's computation graph." },
  { "exportPoplarVertexGraph", "b", false, "Writes Poplar's vertex graph." },
  { "separateCallOpPdfs", "b", true, "Draws called graphs by themselves.", no_effect = DOT },
  { "compilationProgressLogger", "m", nil, "fn(progress, total), called as compiling goes on.",
    of = "function", only = "popart", effect = "It is called from 0 to the total." },
  { "compilationProgressTotal", "i", 100, "The total of compilationProgressLogger.", min = 1,
    effect = "What compilationProgressLogger ends with." },
  -- outlining
  { "enableOutlining", "b", true, "Finds repeated parts of the graph.", poptorch = OUTLINING },
  { "enableOutliningCopyCostPruning", "b", true, "Leaves out parts whose copies cost too much.",
    poptorch = OUTLINING },
  { "outlineThreshold", "f", 1.0, "The least value of a repeated part.", poptorch = OUTLINING },
  { "outlineSequenceBreakCost", "f", 10000.0, "The cost of cutting a sequence.",
    poptorch = OUTLINING },
  { "subgraphCopyingStrategy", "e", "OnEnterAndExit", "When called graphs' tensors are copied.",
    of = enums.SubgraphCopyingStrategy, poptorch = OUTLINING },
  -- recomputation and updates
  { "autoRecomputation", "e", "NoRecompute", "What the backward pass computes again.",
    of = enums.RecomputationType, poptorch = "read",
    effect = "What is kept for the backward pass, the rest is computed again." },
  { "explicitRecomputation", "b", false, "Recomputation by copies of operators.",
    poptorch = "recomputation is planned by the execution strategy" },
  { "mergeVarUpdate", "e", "Off", "Which updates of weights become one.",
    of = enums.MergeVarUpdateType, no_effect = NEUTRAL },
  { "mergeVarUpdateMemThreshold", "i", 1000000, "Bytes of a merged update.", no_effect = NEUTRAL },
  { "looseThresholdAtPeak", "i", 8000, "Bytes by which merging may raise the peak.",
    no_effect = NEUTRAL },
  { "delayVarUpdates", "b", true, "Updates come as late as they can.", poptorch = "refused",
    no_effect = NEUTRAL },
  { "scheduleNonWeightUpdateGradientConsumersEarly", "b", false,
    "What reads gradients beside updates comes early.", no_effect = NEUTRAL },
  { "decomposeGradSum", "b", false, "Sums gradients one after another.", no_effect = NEUTRAL },
  { "ensureFp32LossScaleTensor", "b", false, "The loss scale is float32.",
    poptorch = "the loss scale is float32 always" },
  -- streams
  { "rearrangeAnchorsOnHost", "b", true, "The host orders anchors' elements.",
    no_effect = STREAMS },
  { "rearrangeStreamsOnHost", "b", false, "The host orders all streams' elements.",
    no_effect = STREAMS },
  { "enablePrefetchDatastreams", "b", true, "Reads inputs ahead.", no_effect = STREAMS },
  { "defaultBufferingDepth", "i", 1, "Buffers of a stream.", no_effect = STREAMS },
  { "defaultPrefetchBufferingDepth", "i", nil, "defaultBufferingDepth's old name.",
    only = "poptorch" },
  { "bufferingDepthMap", "m", {}, "Buffers of streams by tensor.", of = "int",
    no_effect = STREAMS },
  { "aliasZeroCopy", "b", false, "Shares memory between called graphs.",
    no_effect = "memory is shared wherever it can be" },
  { "groupHostSync", "b", false, "Host copies come together.", no_effect = STREAMS },
  { "enableMergeExchange", "b", true, "Merges exchanges.", no_effect = STREAMS },
  { "enableEfficientOverlapIOTopoCons", "b", false, "Orders overlapped I/O by fewer rules.",
    only = "popart", no_effect = IO_LOOPS },
  { "enableExplicitMainLoops", "b", false, "Loops are operators.", no_effect = IO_LOOPS },
  { "useHostCopyOps", "b", false, "Copies from the host are operators.", no_effect = IO_LOOPS },
  { "enableExplicitIR", "b", nil, "Sets all explicit options.", only = "poptorch" },
  { "syntheticDataMode", "e", "Off", "Data made up on the device.", of = enums.SyntheticDataMode,
    poptorch = "read", effect = "Nothing but Off reads from the host." },
  { "updatableNamedBuffers", "l", {}, "Buffers that buffersFromHost copies.", of = "string",
    poptorch = "refused", effect = "What buffersFromHost copies." },
  { "numIOTiles", "i", 0, "Tiles for input and output.", min = 0, poptorch = "read",
    effect = "These tiles do not compute." },
  { "disableGradAccumulationTensorStreams", "b", false, "Accumulators are not read or written.",
    no_effect = "accumulators are never written or read" },
  { "disableOptimizerStateTensorStreams", "b", false, "Optimizer states are not read or written.",
    effect = "modelToHost leaves the states as they began." },
  -- replicas and accumulation
  { "enableReplicatedGraphs", "b", false, "Whether there are replicas.", poptorch = "refused",
    effect = "replicatedGraphCount counts." },
  { "replicatedGraphCount", "i", 1, "Replicas of this process.", min = 1, poptorch = "refused",
    effect = "The number of replicas." },
  { "enableDistributedReplicatedGraphs", "b", false, "Whether other processes have replicas.",
    poptorch = "refused", refused = OWN_REPLICAS },
  { "globalReplicationFactor", "i", 1, "Replicas of all processes.", poptorch = "refused",
    no_effect = OWN_REPLICAS },
  { "globalReplicaOffset", "i", 0, "The first replica of this process.", poptorch = "refused",
    no_effect = OWN_REPLICAS },
  { "enableGradientAccumulation", "b", false, "Whether gradients are accumulated.",
    poptorch = "refused", effect = "accumulationFactor counts." },
  { "accumulationFactor", "i", 1, "Micro-batches of an update.", min = 1, poptorch = "refused",
    effect = "Micro-batches of an update." },
  { "accumulationAndReplicationReductionType", "e", "Sum", "Of gradients of micro-batches.",
    of = enums.ReductionType, poptorch = "refused", effect = "Sum or mean of gradients." },
  { "meanAccumulationAndReplicationReductionStrategy", "e", "Post", "When the mean divides.",
    of = enums.MeanReductionStrategy, poptorch = "refused", effect = "When the mean divides." },
  { "accumulateOuterFragmentSettings.schedule", "e", "Serial", "How updates are ordered.",
    of = enums.AccumulateOuterFragmentSchedule, no_effect = NEUTRAL },
  { "accumulateOuterFragmentSettings.excludedVirtualGraphs", "l", {}, "IPUs left out of that.",
    of = "int", no_effect = NEUTRAL },
  { "replicatedCollectivesSettings.prepareScheduleForMergingCollectives", "b", false,
    "Orders reductions so that they can be merged.", no_effect = COLLECTIVES },
  { "replicatedCollectivesSettings.mergeAllReduceCollectives", "b", false,
    "Merges sums over replicas.", no_effect = COLLECTIVES },
  { "replicatedCollectivesSettings.mergeReduceScatterCollectives", "b", false,
    "Merges sums that end in shards.", only = "popart", no_effect = COLLECTIVES },
  { "replicatedCollectivesSettings.mergeAllGatherCollectives", "b", false,
    "Merges gathers of shards.", only = "popart", no_effect = COLLECTIVES },
  -- placement
  { "virtualGraphMode", "e", "Off", "How operators are placed on IPUs.",
    of = enums.VirtualGraphMode, poptorch = PLACED, effect = "Where operators run." },
  { "virtualGraphSplitRatios", "l", {}, "Shares of IPUs, with Auto.", of = "float",
    poptorch = PLACED, effect = "Where Auto cuts." },
  { "enablePipelining", "b", false, "Stages run at the same time.", poptorch = "refused",
    effect = "The pipelined strategy, in place of the sharded one." },
  { "createImplicitPipeliningFwdOnlyProgram", "b", false, "A second program, forward alone.",
    only = "popart", refused = "there is one program of a session" },
  { "stashAllTensorsInferencePipeline", "b", false, "Stashes all that crosses stages.",
    no_effect = "what crosses stages is stashed always" },
  { "executionPhaseSettings.phases", "i", 0, "Phases of the forward pass.", min = 0,
    poptorch = PLACED, effect = "Phases, with VirtualGraphMode.ExecutionPhases." },
  { "executionPhaseSettings.stages", "i", 2, "1: on one IPU; 2: on two in turn.", min = 1,
    poptorch = PLACED, effect = "The serial or the parallel phased strategy." },
  { "executionPhaseSettings.weightIOSchedule", "e", "Preload", "When weights come.",
    of = Schedule, poptorch = "read", effect = AHEAD:format("weights") },
  { "executionPhaseSettings.activationIOSchedule", "e", "Preload",
    "When activations come and go.", of = Schedule, poptorch = "read",
    effect = AHEAD:format("activations") },
  { "executionPhaseSettings.optimizerStateIOSchedule", "e", "OnDemand", "When states come.",
    of = Schedule, poptorch = "read", effect = "Without gradient accumulation: Preload: optimizer "
      .. "states off the chip come with the last phase before the update; OnDemand: with that." },
  { "executionPhaseSettings.accumulatorIOSchedule", "e", "Preload",
    "When accumulators come and go.", of = Schedule, poptorch = "read",
    effect = AHEAD:format("accumulators") },
  { "executionPhaseSettings.schedule", "e", "Interleaving", "How a phase is ordered.",
    of = enums.ExecutionPhaseSchedule, poptorch = "read", effect = "Without gradient "
      .. "accumulation: whether the update loads, updates and stores a weight after another, or "
      .. "all at once (Batch; BatchClusteredIO is the same, transfers one way are always one)." },
  -- batches in parts
  { "batchSerializationSettings.factor", "i", 0, "Parts of a batch.", min = 0,
    poptorch = "read", effect = "In phases: so many parts pass each, with one load of its "
      .. "weights. Values are those of whole batches." },
  { "batchSerializationSettings.concatOnVirtualGraphChange", "b", true, "Joins parts between IPUs.",
    poptorch = SERIAL },
  { "batchSerializationSettings.concatOnExecutionPhaseChange", "b", true,
    "Joins parts between phases.", poptorch = SERIAL },
  { "batchSerializationSettings.concatOnPipelineStageChange", "b", true,
    "Joins parts between stages.", poptorch = SERIAL },
  { "batchSerializationSettings.transformContext", "e", "Fwd", "What is split.",
    of = enums.BatchSerializationTransformContext, poptorch = SERIAL },
  { "batchSerializationSettings.method", "e", "UnrollDynamic", "How parts become a program.",
    of = enums.BatchSerializationMethod, poptorch = SERIAL },
  { "batchSerializationSettings.batchSchedule", "e", "Isomorphic", "How parts are ordered.",
    of = enums.BatchSerializationBatchSchedule, poptorch = "read", effect = "In phases whose "
      .. "activations I/O tiles move: they load for the next part when one has computed "
      .. "(OverlapOnIo) or while it does (OverlapOnCompute), else each part waits for its own." },
  { "autodiffSettings.stitchStrategy", "e", "RecomputeAllNonInputs",
    "What called graphs' backward passes get.", of = enums.AutodiffStitchStrategy,
    poptorch = "refused", no_effect = NEUTRAL },
  -- arithmetic
  { "enableNonStableSoftmax", "b", false, "Softmax without subtracting the greatest value.",
    poptorch = "softmax subtracts the greatest value always" },
  { "enableStableNorm", "b", false, "Variance in two passes.", poptorch = "read",
    effect = "float16 is normalised by statistics in float32, of two passes, which cost one more; "
      .. "otherwise they are halves." },
  { "enableFloatingPointChecks", "b", false, "NaN and overflow are errors.", poptorch = "read",
    effect = "A run raises at a division by zero, an invalid operation or an overflow, and "
      .. "says where; each operator runs by itself." },
  { "enableStochasticRounding", "b", false, "float16 rounds at random.", poptorch = "read",
    effect = "Stores to float16 round at random." },
  { "_enableRngStateManagement", "b", false, "Keeps states of random numbers apart.",
    only = "popart", no_effect = "random numbers follow element and step, not a state" },
  { "enableLoadAndOffloadRNGState", "b", false, "getRNGState and setRNGState.",
    effect = "getRNGState and setRNGState may be called." },
  { "partialsTypeMatMuls", "s", "", "\"half\" or \"float\": partial results.", poptorch = "read",
    effect = "half: sums of products round to float16 after each 16 products." },
  { "enableFullyConnectedPass", "b", true, "Plans products of layers together." },
  { "enableSerializedMatmuls", "b", true, "Splits products as the model says.",
    no_effect = "products are split by the model's attributes" },
  { "groupNormStridedChannelGrouping", "b", false, "Groups channels by a stride.",
    refused = "it would change results" },
  { "throwIfLog2ScaleTensorNotInRange", "b", true, "Scales of float8 are checked.",
    no_effect = "there is no float8" },
  { "enableSupportedDataTypeCasting", "b", true, "int64 becomes int32.",
    no_effect = "int64 and float64 become int32 and float32 always" },
  { "convolutionOptions", "m", {}, "Options of convolutions.", of = "string", poptorch = "read",
    effect = "partialsType: as partialsTypeMatMuls; availableMemoryProportion: the simulated "
      .. "cost of convolutions; enableConvDithering: from which tiles they are laid out." },
  { "lstmOptions", "m", {}, "Options of LSTMs.", of = "string", poptorch = "read",
    no_effect = LIBRARY },
  { "matmulOptions", "m", {}, "Options of products.", of = "string", poptorch = "read",
    effect = "The simulated cost of products: availableMemoryProportion." },
  { "gclOptions", "m", {}, "Options of collectives.", of = "string",
    no_effect = "collectives of the simulated machine have one form" },
  -- the engine
  { "engineOptions", "m", {}, "Options of the engine.", of = "string", poptorch = "read",
    effect = "Report files, tiles that may overflow (lua/lupine/engine_options.lua)." },
  { "reportOptions", "m", {}, "What summaries show.", of = "string",
    effect = "showExecutionSteps and showVarStorage: what getSummaryReport adds." },
  { "instrumentWithHardwareCycleCounter", "b", false, "Counts cycles.", poptorch = "read",
    effect = "getCycleCount may be called." },
  { "hardwareInstrumentations", "l", { "Outer" }, "What cycles are counted of.",
    of = enums.Instrumentation, effect = "IDs that getCycleCount knows." },
  { "compileEngine", "b", true, "Compiles in prepareDevice.",
    effect = "Whether there is an engine." },
  { "constantWeights", "b", true, "Weights of inference are constants.", poptorch = "refused",
    effect = "Whether weights of inference can be written." },
  { "enableEngineCaching", "b", false, "Keeps compiled programs in files.", poptorch = "read",
    effect = "Programs are read from cachePath, or written there." },
  { "enableVariablesCaching", "b", true, "Keeps variables with them.",
    no_effect = "programs are kept without the values of weights" },
  { "cachePath", "s", "session_cache", "The folder of compiled programs.", poptorch = "read",
    effect = "The folder of enableEngineCaching." },
  { "customCodelets", "l", {}, "Files of codelets.", of = "string", refused = CODELETS,
    poptorch = NO_CHOICE },
  { "customCodeletCompileFlags", "s", "", "Flags to compile them with.", no_effect = CODELETS },
  { "timeLimitScheduler", "f", 1e9, "Seconds of scheduling.", no_effect = SCHEDULER },
  { "swapLimitScheduler", "i", 1000000000, "Steps of scheduling.", no_effect = SCHEDULER },
  { "serializedPoprithmsShiftGraphsDir", "s", "", "Where schedules are written.",
    no_effect = SCHEDULER },
  { "kahnTieBreaker", "s", "greedy", "What schedules begin with.", no_effect = SCHEDULER },
  { "transitiveClosureOptimizationThreshold", "i", 100000, "Operators of a graph that is reduced.",
    no_effect = SCHEDULER },
  -- graphs
  { "strictOpVersions", "b", true, "Versions of operators must be known.",
    no_effect = "an operator's version follows from its opset, as in ONNX" },
  { "opxAliasChecking", "b", false, "Checks what shares memory.", no_effect = CHECKS },
  { "opxModifyChecking", "b", false, "Checks what is written.", no_effect = CHECKS },
  { "enableInplaceAmbiguityChecking", "b", false, "Refuses ambiguous writes.", no_effect = CHECKS },
  { "enableConstantFoldingOfMultipleConsumers", "b", true, "Folds what several operators read.",
    no_effect = "all constants are folded" },
  { "useLoopCandidateCreator", "b", false, "Loops' inputs get layouts of their own." },
  { "saveInitializersToFile", "s", nil, "Where large weights are written.", only = "poptorch",
    poptorch = "no ONNX file is written" },
  { "developerSettings.timePartitionLoggerThresholdPercentage", "f", 1.0,
    "The least share of time that is logged.", only = "popart",
    no_effect = "times of compiling are not logged" },
  { "experimentalSettings.customTransformApplierSettings", "m", {}, "Transforms of one's own.",
    of = "strings", only = "popart", refused = "the passes over the graph are fixed" },
  { "experimentalSettings.createHostTransferableTensorWithOffset", "b", false,
    "Spreads host tensors over tiles.", only = "popart", no_effect = STREAMS },
  -- loss scaling
  { "automaticLossScalingSettings.enabled", "b", false, "Finds the loss scale.",
    poptorch = "read", effect = "A factor of the loss scale follows the gradients; they are "
      .. "counted in every micro-batch." },
  { "automaticLossScalingSettings.toTrackTensors", "l", nil, "Tensors whose gradients count.",
    of = "string", only = "popart", effect = TRACKED },
  { "automaticLossScalingSettings.binEdgeLocation", "f", 0.125, "From what share of the greatest "
    .. "number on a gradient is large.", poptorch = "read", effect = TRACKED },
  { "automaticLossScalingSettings.thresholdUpperCountProportion", "f", 1e-7,
    "The share of large gradients that halves the scale.", poptorch = "read", effect = TRACKED },
  { "automaticLossScalingSettings.updatePeriod", "i", 1, "Updates between two changes.", min = 1,
    poptorch = "read", effect = TRACKED },
  { "automaticLossScalingSettings.gradientTensorTrackingMethod", "e",
    "AllNonViewChangingGradientTensors", "Gradients that count.",
    of = enums.GradientTensorTrackingMethod, poptorch = "read", effect = TRACKED },
  -- where tensors are
  { "tensorLocationSettingsOverride", "m", {}, "Locations by tensor.", of = "location",
    poptorch = "locations are chosen for each kind of tensor",
    effect = "Where these tensors are, in place of what holds for their kind." },
}

local KINDS = { activation = "Activations", weight = "Weights",
  optimizerState = "Optimizer states", accumulator = "Accumulators" }
for _, kind in ipairs({ "activation", "weight", "optimizerState", "accumulator" }) do
  local group = kind .. "TensorLocationSettings."
  local doc, effect = KINDS[kind], "Where they are."
  rows[#rows + 1] = { group .. "location", "t", nil, doc .. ": where they are.", only = "popart",
    effect = effect }
  rows[#rows + 1] = { group .. "minElementsForOffChip", "i", 2, doc .. " that are smaller stay on "
    .. "chip.", only = "popart", effect = effect }
  rows[#rows + 1] = { group .. "minElementsForReplicatedTensorSharding", "i", 8192, doc
    .. " that are smaller are not shared out.", only = "popart", effect = effect }
end

for _, row in ipairs(rows) do
  row.name, row.kind, row.default, row.doc = row[1], row[2], row[3], row[4]
  row.poptorch = row.poptorch or row.only ~= "popart" and NO_CHOICE or nil
  if not row.effect and not row.refused then
    row.no_effect = row.no_effect or row.poptorch
  end
end

return rows
