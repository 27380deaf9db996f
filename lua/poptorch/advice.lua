--- What a user of PopTorch does about an error that all front ends share, by its
--- hint (lua/lupine/base/advice.lua).
---
--- Source: PopTorch API reference, Options; user guide 4.4.
local advice = require("lupine.base.advice")
local errors = require("lupine.base.errors")
local variables = require("lupine.base.variables")

local M = {}

M.ADVICE = {
  -- how a model is placed
  stage_order = "a block that comes back needs an id of its own; AutoStage.AutoIncrement numbers "
    .. "blocks in the order in which they first appear",
  gradient_accumulation = "options.Training:gradientAccumulation",
  device_iterations = "options:deviceIterations",
  processes = "spread the replicas over processes, options.Distributed",
  round_ipus = "place it on another number of IPUs, or options:autoRoundNumIPUs(true)",
  -- what takes most of a tile that overflows
  temporary = "options:setAvailableMemoryProportion, options.Precision:setPartialsType(torch.half)",
  optimizer_state = "options.TensorLocations:setOptimizerLocation",
  accumulators = "options.TensorLocations:setAccumulatorLocation",
  stash = "poptorch.recomputationCheckpoint, poptorch.Block",
  activations = "options.Training:gradientAccumulation, poptorch.PipelinedExecution",
  pipeline_activations = "options.Training:gradientAccumulation, poptorch.Block",
  weights = "poptorch.Block, options.TensorLocations:setWeightLocation",
  -- anchors
  tensor_names = "executor:getTensorNames() lists them",
  -- what a traced model may do
  gradients = "poptorch.trainingModel computes those of the model's loss",
  host_function = "make a poptorch.CPU with this ID before the program is loaded",
  mark = function(e) -- its message begins with the operator
    e.message = "poptorch." .. e.message
  end,
  -- a compiled model that meets other tensors
  other_inputs = "to compile for other inputs, destroy() the model or wrap it again",
  replaced = "destroy() the model or wrap the module again",
  -- what is outside the model
  model_size = "lupine.onnx.export's option external",
  busy = "with POPTORCH_WAIT_FOR_IPU=1 it is waited for",
  cache_folder = function(e)
    e.message = ("%s: %s"):format(variables.text("POPTORCH_CACHE_DIR") and "POPTORCH_CACHE_DIR"
      or "enableExecutableCaching", e.message)
    errors.turn(e, errors.AssertionError)
  end,
}

--- f(...); an error with a hint gets the advice.
---@type fun(f: function, ...: any): any
M.call = advice(M.ADVICE)

return M
