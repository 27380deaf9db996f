--- Data sets that specs of loaders share.
local D = require("torch.utils.data")

local M = {}

--- Count(n): the numbers 0 … n - 1, one after another.
M.Count = D.IterableDataset:extend("Count")

function M.Count:init(n)
  self.n = n
end

function M.Count:__iter__()
  local i = -1
  return function()
    i = i + 1
    if i < self.n then
      return i
    end
  end
end

return M
