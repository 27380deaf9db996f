--- poptorch.AutoBlocks: the blocks of a model that has none, found by the simulated system
--- (lupine.plan.cuts) on the step of a first trace.
local blocks = require("poptorch.blocks")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")
local places = require("lupine.plan.cuts")
local session = require("lupine.session")
local strategies = require("poptorch.strategies")

local Cuts, better = places.Cuts, places.better
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
  s.recompute = nil
  if not strategies.AutoBlocks:is(s.options.execution_strategy) then
    return false
  end
  for name, module in s.model:named_modules() do
    errors.check(not blocks.annotation_of(module), "Error", "AutoBlocks: the module '%s' starts a "
      .. "block: poptorch.removeBlocks(model) takes the model's own blocks away", name)
  end
  return true
end

-- The best cuts, and with which recomputation, where the options name none; nil: theirs.
local function search(s, cuts, ipus)
  local best, recompute = cuts:search(ipus), nil
  if not s.training or s.options._Popart:toDict().autoRecomputation ~= nil then
    return best
  end
  for _, other in ipairs({ "none", "all" }) do
    local figures = cuts:figures(best.cuts, { recompute = other, key = other })
    if figures and better(figures, best) then
      best, recompute = figures, other
    end
  end
  if recompute then
    best = cuts:search(ipus, { recompute = recompute, key = recompute })
  end
  return best, recompute
end

--- Marks the modules that start a block in the best of the cuts found; s.recompute is what
--- the program recomputes then, where that is not what the options say.
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
  local cuts = Cuts(step, wanted.system)
  local found, recompute = search(s, cuts, strategy.ipus)
  s.recompute = recompute
  local module_of, starts = {}, {}
  for name, module in s.model:named_modules() do
    module_of[name] = module
  end
  for ipu, at in ipairs(found.cuts) do
    local name = cuts.names[at]:gsub("/", ".")
    blocks.begin_automatic(module_of[name], name, ipu)
    starts[ipu] = name
  end
  logging.info("AutoBlocks: %d IPUs, blocks start at %s%s (%d cuts tried)", strategy.ipus,
    #starts > 0 and table.concat(starts, ", ") or "none",
    recompute and ", recomputed: " .. recompute or "", cuts.tried)
end

return M
