--- The enumerations: their members, in order, with the values of PopTorch's.
local poptorch = require("poptorch")

-- Names of members whose values are 0, 1, …, or name=value.
local MEMBERS = {
  MeanReductionStrategy = "Running Post PostAndLoss",
  DataLoaderMode = "Sync Async AsyncRebatched",
  SharingStrategy = "SharedMemory FileSystem Fork ForkServer",
  OutputMode = "Final EveryN All Sum Default",
  ConnectionType = "Always OnDemand Never",
  HalfFloatCastingBehavior = "FloatDowncastToHalf HalfUpcastToFloat Default",
  ReductionType = "Sum Mean NoReduction",
  SyncPattern = "Full SinglePipeline ReplicaAndLadder",
  MatMulSerializationMode = "InputChannels=input_channels ReducingDim=reducing_dim "
    .. "OutputChannels=output_channels Disabled=none",
  Liveness = "AlwaysLive OffChipAfterFwd OffChipAfterFwdNoOverlap OffChipAfterEachPhase",
  AutoStage = "SameAsIpu AutoIncrement",
  CommGroupType = "All Consecutive Orthogonal NoGrouping",
  VariableRetrievalMode = "OnePerGroup=0 AllReplicas=2",
  MultiConvPlanType = "Parallel Serial",
  OverlapMode = "NoOverlap=no_overlap OverlapAccumulationLoop=overlap_accumulation_loop "
    .. "OverlapDeviceIterationLoop=overlap_device_iteration_loop",
}

describe("the enumeration", function()
  for name, members in pairs(MEMBERS) do
    it(name .. " has PopTorch's members and values", function()
      local i = 0
      for member in members:gmatch("%S+") do
        local key, value = member:match("^(%w+)=?(.*)$")
        i = i + 1
        local got = poptorch[name]:members()[i]
        assert.equal(poptorch[name][key], got)
        assert.equal(value == "" and tostring(i - 1) or value, tostring(got.value))
      end
      assert.equal(i, #poptorch[name]:members())
    end)
  end
end)
