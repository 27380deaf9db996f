-- Fashion-MNIST's pictures (of the Debian package dataset-fashion-mnist), as numbers
-- between 0 and 1.
local lupine = require("lupine")
local torch = require("torch")

local M = {}

--- The first `count` pictures, [count, 784]; no classes.
---@param train boolean
---@param count integer
---@return torch.utils.data.Dataset
function M.pictures(train, count)
  local images, missing = lupine.datasets.FashionMNIST(train)
  assert(images, missing)
  local x = images:narrow(0, 0, count):flatten(1):to(torch.float32) / 255
  return torch.utils.data.TensorDataset(x)
end

return M
