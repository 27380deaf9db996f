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
  -- what takes most of a tile that overflows
  temporary = "builder:setAvailableMemoryProportion, SessionOptions.partialsTypeMatMuls",
  optimizer_state = "SessionOptions.optimizerStateTensorLocationSettings",
  accumulators = "SessionOptions.accumulatorTensorLocationSettings",
  stash = "builder:recomputeOutput, SessionOptions.autoRecomputation",
  activations = "SessionOptions.accumulationFactor, SessionOptions.enablePipelining",
  pipeline_activations = "SessionOptions.accumulationFactor, builder:virtualGraph",
  weights = "builder:virtualGraph, SessionOptions.weightTensorLocationSettings",
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

--- f(...); an error with a hint gets the advice.
---@type fun(f: function, ...: any): any
M.call = advice(M.ADVICE)

return M
