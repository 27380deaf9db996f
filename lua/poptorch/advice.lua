--- What a user of PopTorch does about an error that all front ends share, by its
--- hint (lua/lupine/base/advice.lua).
---
--- Source: PopTorch API reference, Options; user guide 4.4.
local advice = require("lupine.base.advice")
local errors = require("lupine.base.errors")
local places = require("poptorch.options.places")
local variables = require("lupine.base.variables")

local M = {}

M.ADVICE = {
  -- how a model is placed
  stage_order = "a block that comes back needs an id of its own; AutoStage.AutoIncrement numbers "
    .. "blocks in the order in which they first appear",
  gradient_accumulation = "options.Training:gradientAccumulation",
  device_iterations = "options:deviceIterations",
  batch_serialization = "options._Popart:set('batchSerializationSettings.factor', n) with "
    .. "phased execution; n divides options.Training:gradientAccumulation",
  processes = "spread the replicas over processes, options.Distributed",
  round_ipus = "place it on another number of IPUs, or options:autoRoundNumIPUs(true)",
  io_tiles = "options.TensorLocations:numIOTiles",
  streaming_memory = "useReplicatedTensorSharding, useOnChipStorage of a "
    .. "poptorch.TensorLocationSettings",
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

-- A kind of tensors with this location.
local function located(kind, location)
  return ("options.TensorLocations:set%sLocation(%s)"):format(kind:gsub("^%l", string.upper),
    places.spelled(location))
end

local function moved(kind)
  return function(detail)
    return located(kind, detail.location)
  end
end

-- Modules that begin the stages from IPU 1 on.
local function blocks(detail)
  local out = {}
  for ipu, module in ipairs(detail.cuts) do
    out[ipu] = ("%s on IPU %d"):format(module:gsub("/", "."), ipu)
  end
  local accumulation = detail.accumulation
    and (", options.Training:gradientAccumulation(%d)"):format(detail.accumulation)
    or detail.iterations and (", options:deviceIterations(%d)"):format(detail.iterations) or ""
  local own = detail.legible and (", or poptorch.BeginBlock of %s"):format(
    table.concat(out, ", ")) or ""
  return ("options:setExecutionStrategy(poptorch.AutoBlocks(%d))%s%s"):format(detail.ipus,
    accumulation, own)
end

--- How the options are spelled that the simulated system changes, to make a program fit or
--- faster (lua/lupine/plan/), by the change's hint.
M.OPTIONS = {
  partials = "options.Precision:setPartialsType(torch.half)",
  proportion = function(detail)
    local given = detail.proportion
    if type(given) == "number" then
      return ("options:setAvailableMemoryProportion({ IPU0 = %g, ... }), each IPU alike"):format(
        given)
    end
    local out = {}
    for ipu = 0, #given do
      out[ipu + 1] = ("IPU%d = %g"):format(ipu, given[ipu])
    end
    return ("options:setAvailableMemoryProportion({ %s })"):format(table.concat(out, ", "))
  end,
  pipeline = "options:setExecutionStrategy(poptorch.PipelinedExecution(...))",
  recompute = 'options._Popart:set("autoRecomputation", 1)',
  optimizer = moved("optimizer"),
  accumulator = moved("accumulator"),
  weight = moved("weight"),
  activation = moved("activation"),
  micro_batch = "options.Training:gradientAccumulation({accumulation}) for the same batch",
  cuts = blocks,
  ipus = blocks,
  -- what makes a program faster
  accumulation = "options.Training:gradientAccumulation({accumulation})",
  replicas = "options:replicationFactor({replicas})",
  recompute_auto = 'options._Popart:set("autoRecomputation", "Pipeline")',
  recompute_all = 'options._Popart:set("autoRecomputation", "RecomputeAll")',
  recompute_none = 'options._Popart:set("autoRecomputation", "NoRecompute")',
  io_tiles = "options.TensorLocations:numIOTiles({tiles})",
  on_chip = function(detail)
    local out = {}
    for i, kind in ipairs(detail.kinds) do
      out[i] = located(kind, detail.locations[kind])
    end
    return table.concat(out, ", ")
  end,
  host = "options:enableSyntheticData(true), to measure with",
}

--- f(...); an error with a hint gets the advice.
---@type fun(f: function, ...: any): any
M.call = advice(M.ADVICE)

return M
