--- The enumerations of PopART's Python module, with its names and numbers.
--- Optimizers have theirs beside them.
---
--- Source: PopART Python API.
local enum = require("lupine.base.enum")

local M = {}

-- ---- devices -------------------------------------------------------------------------

--- What a session runs on.
M.DeviceType = enum("DeviceType", { "IpuModel", "Cpu", "Ipu", "OfflineIpu", "Sim" })

--- When a device is attached to.
M.DeviceConnectionType = enum("DeviceConnectionType", { "Always", "OnDemand", "Never" })

--- Which of several free devices is taken.
M.DeviceSelectionCriterion = enum("DeviceSelectionCriterion", { "First", "Random" })

--- Synchronisation of several IPUs.
M.SyncPattern = enum("SyncPattern", { "Full", "SinglePipeline", "ReplicaAndLadder" })

-- ---- data ----------------------------------------------------------------------------

--- The types of elements, as TensorInfo takes them.
M.DataType = enum("DataType", { "UINT8", "INT8", "FLOAT8_143", "FLOAT8_152", "UINT16", "INT16",
  "INT32", "INT64", "UINT32", "UINT64", "BOOL", "FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE",
  "COMPLEX64", "COMPLEX128", "STRING", "UNDEFINED" })

--- Which values of an anchor a run returns.
M.AnchorReturnTypeId = enum("AnchorReturnTypeId", { "Final", "EveryN", "All", "Sum" })

--- Tiles that compute, or those that do input and output.
M.TileSet = enum("TileSet", { "Compute", "IO" })

--- When a tensor goes between host and device.
M.ExchangeStrategy = enum("ExchangeStrategy",
  { "JustInTime", "OverlapInnerLoop", "OverlapLoops", "OverlapStep" })

--- Whether each replica gets input of its own.
M.ReplicatedStreamMode = enum("ReplicatedStreamMode", { { "Replicate", 1 }, { "Broadcast", 0 } })

--- How replicas form groups.
M.CommGroupType = enum("CommGroupType",
  { "All", "Consecutive", "Orthogonal", "Ungrouped", { "None", 3 } })

--- Which values of a grouped variable are read back.
M.VariableRetrievalMode = enum("VariableRetrievalMode",
  { "OnePerGroup", "AllReduceReplicas", "AllReplicas" })

--- Where a tensor is kept.
M.TensorStorage = enum("TensorStorage", { "OnChip", "OffChip" })

--- Whether replicas share a tensor out among them.
M.ReplicatedTensorSharding = enum("ReplicatedTensorSharding", { "Off", "On" })

-- ---- session options -----------------------------------------------------------------

--- Of accumulated and replicated gradients, and of losses.
M.ReductionType = enum("ReductionType", { "Sum", "Mean", "NoReduction" })

--- When a mean of gradients divides.
M.MeanReductionStrategy = enum("MeanReductionStrategy", { "Running", "Post" })

--- What is computed again in the backward pass.
M.RecomputationType = enum("RecomputationType",
  { "NoRecompute", "Standard", "NormOnly", "Pipeline", "RecomputeAll", { "None", 0 } })

--- Whether one operator's results are computed again.
M.RecomputeType = enum("RecomputeType", { "Undefined", "Checkpoint", "Recompute", "Recomputed" })

--- Which updates of variables become one.
M.MergeVarUpdateType = enum("MergeVarUpdateType",
  { "Off", "All", "AutoLoose", "AutoTight", { "None", 0 } })

--- How operators are placed on IPUs.
M.VirtualGraphMode = enum("VirtualGraphMode", { "Off", "Manual", "Auto", "ExecutionPhases" })

--- Data made up on the device in place of the host's.
M.SyntheticDataMode = enum("SyntheticDataMode",
  { "Off", "Zeros", "RandomNormal", "RandomUniform" })

--- What cycles are counted of: a run, or each IPU's part of it.
M.Instrumentation = enum("Instrumentation", { "Outer", "Inner" })

--- When a called graph's inputs and results are copied.
M.SubgraphCopyingStrategy = enum("SubgraphCopyingStrategy", { "OnEnterAndExit", "JustInTime" })

--- How updates of weights are ordered.
M.AccumulateOuterFragmentSchedule = enum("AccumulateOuterFragmentSchedule",
  { "Scheduler", "Serial", "OverlapCycleOptimized", "OverlapMemoryOptimized" })

--- When a phase's tensors come from streaming memory.
M.ExecutionPhaseIOSchedule = enum("ExecutionPhaseIOSchedule", { "Preload", "OnDemand" })

--- How operators and copies of a phase are ordered.
M.ExecutionPhaseSchedule = enum("ExecutionPhaseSchedule",
  { "Interleaving", "Batch", "BatchClusteredIO" })

--- What is split by the batch.
M.BatchSerializationTransformContext = enum("BatchSerializationTransformContext",
  { { "Forward", 0 }, { "Backward", 1 }, { "Fwd", 0 }, { "Bwd", 1 } })

--- How parts of a batch become one program.
M.BatchSerializationMethod = enum("BatchSerializationMethod",
  { "UnrollDynamic", "UnrollStatic", "Loop" })

--- How parts of a batch are ordered.
M.BatchSerializationBatchSchedule = enum("BatchSerializationBatchSchedule",
  { "Scheduler", "Isomorphic", "OverlapOnIo", "OverlapOnCompute" })

--- What the backward pass of a called graph gets of its forward pass.
M.AutodiffStitchStrategy = enum("AutodiffStitchStrategy",
  { "RecomputeMinimal", "RecomputeAllNonInputs", "AddFwdOutputs", "SafeAddFwdOutputs" })

--- Gradients that automatic loss scaling looks at.
M.GradientTensorTrackingMethod = enum("GradientTensorTrackingMethod",
  { "AllNonViewChangingGradientTensors", "ConvAndMatmulGradients",
    "GradientsOfUserSpecifiedTensors" })

--- The form of a session's graph as text.
M.IrSerializationFormat = enum("IrSerializationFormat", { "JSON" })

-- ---- graph ---------------------------------------------------------------------------

--- Which patterns are on.
M.PatternsLevel = enum("PatternsLevel", { "NoPatterns", "Minimal", "Default", "All" })

--- What a new tensor is filled with.
M.InitType = enum("InitType", { "NoInit", "Zero" })

--- What a collective between replicas makes of their values; Local: each has its own.
M.CollectiveOperator = enum("CollectiveOperator", { "Add", "Mean", "Mul", "Min", "Max",
  "LogicalAnd", "LogicalOr", "SquareAdd", "Local" })

--- Where a tensor's layout is changed.
M.TensorRemapType = enum("TensorRemapType", { "FwdBwdReverse", "FwdBwd", "Fwd" })

--- What becomes of values that are scattered to one place.
M.ScatterReduction = enum("ScatterReduction", { "Sum", "Max", "Min", "Mul", { "NoReduction", 4 },
  { "None", 4 } })

return M
