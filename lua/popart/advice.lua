--- What a user of PopART does about an error that all front ends share, by its hint
--- (lua/lupine/base/advice.lua).
---
--- Source: PopART Python API, SessionOptions and Builder.
local advice = require("lupine.base.advice")
local variables = require("lupine.base.variables")

local M = {}

M.ADVICE = {
  -- how a model is placed
  stage_order = "builder:pipelineStage, builder:virtualGraph",
  gradient_accumulation = "SessionOptions.accumulationFactor",
  device_iterations = "DataFlow's batchesPerStep",
  processes = "spread the replicas over processes, SessionOptions.globalReplicationFactor",
  round_ipus = "place it on another number of IPUs",
  batch_serialization = "SessionOptions.batchSerializationSettings.factor",
  io_tiles = "SessionOptions.numIOTiles",
  streaming_memory = "SessionOptions.weightTensorLocationSettings, "
    .. "optimizerStateTensorLocationSettings",
  -- anchors
  tensor_names = "session:getAllTensorIds() lists them",
  -- what a model may do
  gradients = "a TrainingSession computes those of its loss",
  host_function = "a session has no functions of the host",
  mark = "it is an operator of poptorch",
  -- a compiled model that meets other tensors
  other_inputs = "make a session for other inputs",
  replaced = "make a new session",
  -- what is outside the model
  model_size = "builder:saveInitializersExternally, or GraphTransformer's",
  busy = "DeviceConnectionType.OnDemand and DeviceManager:setOnDemandAttachTimeout wait for it",
  cache_folder = function(e)
    local folder = variables.text("POPART_CACHE_DIR")
    local of = folder and e.message:find(folder, 1, true) and "POPART_CACHE_DIR"
      or "SessionOptions.cachePath"
    e.message = of .. ": " .. e.message
  end,
}

local ON_CHIP = "SessionOptions.%sTensorLocationSettings.location = "
  .. "popart.TensorLocation(popart.TensorStorage.OnChip)"
local OFF_CHIP = ON_CHIP:gsub("OnChip", "OffChip")

local function placed(detail)
  if not detail.legible then
    return "SessionOptions.virtualGraphMode = popart.VirtualGraphMode.Auto"
  end
  return ("builder:virtualGraph and builder:pipelineStage, from 1 on at %s"):format(
    table.concat(detail.cuts, ", "))
end

--- How the options are spelled that the simulated system changes, to make a program fit or
--- faster (lua/lupine/plan/), by the change's hint.
M.OPTIONS = {
  partials = 'SessionOptions.partialsTypeMatMuls = "half", and of convolutions '
    .. 'builder:setPartialsType(id, "HALF")',
  proportion = function(detail)
    local given, least = detail.proportion, math.huge
    for _, value in pairs(type(given) == "table" and given or { given }) do
      least = math.min(least, value)
    end
    return ("builder:setAvailableMemoryProportion(ids, %g)"):format(least)
  end,
  pipeline = "SessionOptions.enablePipelining = true",
  recompute = "SessionOptions.autoRecomputation = popart.RecomputationType.Standard",
  optimizer = OFF_CHIP:format("optimizerState"),
  accumulator = OFF_CHIP:format("accumulator"),
  weight = OFF_CHIP:format("weight"),
  activation = OFF_CHIP:format("activation"),
  micro_batch = "SessionOptions.accumulationFactor = {accumulation} for the same batch",
  cuts = placed,
  ipus = placed,
  -- what makes a program faster
  accumulation = "SessionOptions.accumulationFactor = {accumulation}",
  replicas = "SessionOptions.enableReplicatedGraphs = true, replicatedGraphCount = {replicas}",
  recompute_auto = "SessionOptions.autoRecomputation = popart.RecomputationType.Pipeline",
  recompute_all = "SessionOptions.autoRecomputation = popart.RecomputationType.RecomputeAll",
  recompute_none = "SessionOptions.autoRecomputation = popart.RecomputationType.None",
  io_tiles = "SessionOptions.numIOTiles = {tiles}",
  on_chip = function(detail)
    local out = {}
    for i, kind in ipairs(detail.kinds) do
      out[i] = ON_CHIP:format(kind == "optimizer" and "optimizerState" or kind)
    end
    return table.concat(out, ", ")
  end,
  host = "SessionOptions.syntheticDataMode = popart.SyntheticDataMode.Zeros, to measure with",
}

--- f(...); an error with a hint gets the advice.
---@type fun(f: function, ...: any): any
M.call = advice(M.ADVICE)

return M
