--- Data sets that specs of loaders share.
local D = require("torch.utils.data")
local torch = require("torch")

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

--- Numbers(n, sample): sample(i) of 0 … n - 1, torch.tensor unless given.
M.Numbers = D.Dataset:extend("Numbers")

function M.Numbers:init(n, sample)
  self.n, self.sample = n, sample or torch.tensor
end

function M.Numbers:__len__()
  return self.n
end

function M.Numbers:__getitem__(i)
  return self.sample(i)
end

return M
