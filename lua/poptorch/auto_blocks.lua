--- poptorch.AutoBlocks: the blocks of a model that has none, found by the simulated system
--- (lupine.plan.cuts) on the step of a first trace.
local blocks = require("poptorch.blocks")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")
local session = require("lupine.session")
local strategies = require("poptorch.strategies")

local M = {}

local function is_automatic(annotation)
  return annotation.automatic
end

--- Before the first trace: the model's own blocks are refused, those that were found for
--- another compilation go.
--- error: poptorch.Error naming a module that starts a block
---@param s table the executor's state
---@return boolean whether blocks are to be found
function M.begin(s)
  blocks.remove(s.model, is_automatic)
  if not strategies.AutoBlocks:is(s.options.execution_strategy) then
    return false
  end
  for name, module in s.model:named_modules() do
    errors.check(not blocks.annotation_of(module), "Error", "AutoBlocks: the module '%s' starts a "
      .. "block: poptorch.removeBlocks(model) takes the model's own blocks away", name)
  end
  return true
end

--- Marks the modules that start a block in the best of the cuts found.
--- error: poptorch.Error for a model that has blocks of its own, or none of whose cuts can
--- be run
---@param s table the executor's state
---@param step lupine.Step traced, not complete; it is completed
---@param wanted table spec of lupine.session
function M.place(s, step, wanted)
  local strategy = s.options.execution_strategy
  session.complete(step, wanted)
  for _, place in ipairs(step:places()) do
    errors.check(place.block == "", "Error", "AutoBlocks: forward starts the block '%s' itself, "
      .. "at %s:%d; take it out, or give the strategy PipelinedExecution", place.block, place.file,
      place.line)
  end
  local cuts = require("lupine.plan.cuts").Cuts(step, wanted.system)
  local found = cuts:search(strategy.ipus)
  local module_of, starts = {}, {}
  for name, module in s.model:named_modules() do
    module_of[name] = module
  end
  for ipu, at in ipairs(found.cuts) do
    local name = cuts.names[at]:gsub("/", ".")
    blocks.begin_automatic(module_of[name], name, ipu)
    starts[ipu] = name
  end
  logging.info("AutoBlocks: %d IPUs, blocks start at %s (%d cuts tried)", strategy.ipus,
    #starts > 0 and table.concat(starts, ", ") or "none", cuts.tried)
end

return M
