--- What PopTorch calls what an error of the simulated system asks for. The C
--- core says what is wrong and what would help in its own terms, and gives such
--- an error a `hint`; here stands how a user of PopTorch does it, of each hint.
---
--- Source: PopTorch API reference, Options; user guide 4.4.
local errors = require("lupine.base.errors")

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
}

--- f(...); an error with a hint gets the advice in brackets.
---@param f function
---@param ... any
---@return any ... what `f` returns
function M.call(f, ...)
  local results = table.pack(pcall(f, ...))
  local e = results[2]
  if not results[1] then
    local advice = errors.Exception:is(e) and M.ADVICE[e.hint]
    if advice then
      e.message, e.hint = ("%s (%s)"):format(e.message, advice), nil
    end
    error(e, 0)
  end
  return table.unpack(results, 2, results.n)
end

return M
