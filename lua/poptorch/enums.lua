--- The enumerations of PopTorch. Numbers are those of the original, so that
--- stored options mean the same.
---
--- Source: PopTorch API reference (3.x), "Enumerations"; user guide 3.x.
local enum = require("lupine.base.enum")
local popart = require("popart.enums")

local M = {}

--- When the mean of gradients divides (Training options).
M.MeanReductionStrategy = enum("MeanReductionStrategy", { "Running", "Post", "PostAndLoss" })

--- How the data loader reads: in this process (and its workers), in one of its own,
--- or there with batches put together out of what several workers have.
M.DataLoaderMode = enum("DataLoaderMode", { "Sync", "Async", "AsyncRebatched" })

--- How objects reach new processes. Here these are always forked and have every
--- object as it is, so that all members mean the same.
M.SharingStrategy = enum("SharingStrategy",
  { "SharedMemory", "FileSystem", "Fork", "ForkServer" })

--- How far host I/O runs ahead of the computation.
M.OverlapMode = enum("OverlapMode", {
  { "NoOverlap", "no_overlap" },
  { "OverlapAccumulationLoop", "overlap_accumulation_loop" },
  { "OverlapDeviceIterationLoop", "overlap_device_iteration_loop" },
})

--- Which results a call returns.
M.OutputMode = enum("OutputMode", { "Final", "EveryN", "All", "Sum", "Default" })

--- When to attach to an IPU.
M.ConnectionType = enum("ConnectionType", { "Always", "OnDemand", "Never" })

--- How mixed half and float operands are cast (2.6; accepted, no effect in 3.x).
M.HalfFloatCastingBehavior = enum("HalfFloatCastingBehavior",
  { "FloatDowncastToHalf", "HalfUpcastToFloat", "Default" })

--- Kind of reduction.
M.ReductionType = enum("ReductionType", { "Sum", "Mean", "NoReduction" })

--- Synchronisation of several IPUs.
M.SyncPattern = popart.SyncPattern

--- Dimension of a matmul that is serialised.
M.MatMulSerializationMode = enum("MatMulSerializationMode", {
  { "InputChannels", "input_channels" },
  { "ReducingDim", "reducing_dim" },
  { "OutputChannels", "output_channels" },
  { "Disabled", "none" },
})

--- Where tensors live between the phases of phased execution.
M.Liveness = enum("Liveness",
  { "AlwaysLive", "OffChipAfterFwd", "OffChipAfterFwdNoOverlap", "OffChipAfterEachPhase" })

--- How blocks become stages when no stages are given.
M.AutoStage = enum("AutoStage", { "SameAsIpu", "AutoIncrement" })

--- How replicas form groups.
M.CommGroupType = enum("CommGroupType", { "All", "Consecutive", "Orthogonal", "NoGrouping" })

--- Which values of a grouped variable are read back.
M.VariableRetrievalMode = enum("VariableRetrievalMode",
  { { "OnePerGroup", 0 }, { "AllReplicas", 2 } })

--- Strategy of a MultiConv.
M.MultiConvPlanType = enum("MultiConvPlanType", { "Parallel", "Serial" })

return M
