--- The loss scale that a program finds (src/passes/scaling.c): two states that belong
--- to no parameter. An optimizer, as a session sees it, that wants one has a table
--- `scaling` beside its `loss_scale`:
---   tracking   "all", "products" or "named"; names: tensors, for "named"
---   edge       share of the greatest float16
---   threshold  share of elements beyond it
---   period     updates between two changes
--- and its methods room, start and tensor are given states without a rule.
local core = require("lupine.core")

local M = {}

local dtypes = core.dtypes

-- PopART's names; the counter is the one of its histograms.
M.FACTOR, M.COUNTER = "lossScaleUpdateFactor", "Histogram_counter"

local FIRST = { [M.FACTOR] = { 1, dtypes.float32 }, [M.COUNTER] = { -1, dtypes.int32 } }

--- A state's first value.
---@param name string
---@return torch.Tensor
function M.first(name)
  local first = FIRST[name]
  return core.tensor(first[1], { dtype = first[2] })
end

--- What step:complete is told.
---@param scaling table as above
---@param state fun(name: string): integer makes a state's variable
---@return table
function M.compiled(scaling, state)
  return { factor = state(M.FACTOR), counter = scaling.period > 1 and state(M.COUNTER) or nil,
    tracking = scaling.tracking, names = scaling.names, edge = scaling.edge,
    threshold = scaling.threshold, period = scaling.period }
end

return M
