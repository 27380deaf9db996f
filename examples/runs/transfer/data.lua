-- Few pictures of shoes and bags of Fashion-MNIST (of the Debian package
-- dataset-fashion-mnist): kinds that the checkpoint's model has never seen.
local lupine = require("lupine")
local torch = require("torch")

local M = { classes = { 5, 7, 8, 9 } } -- sandal, sneaker, bag, ankle boot

--- The first `each` pictures of each class, [4 each, 1, 28, 28], with classes from 0.
---@param train boolean
---@param each integer
---@return torch.utils.data.TensorDataset
function M.pictures(train, each)
  local images, labels = lupine.datasets.FashionMNIST(train)
  assert(images, labels)
  local x, y = {}, {}
  for i, class in ipairs(M.classes) do
    local rows = labels:eq(class):nonzero():flatten():narrow(0, 0, each)
    x[i] = (images[rows]:to(torch.float32) / 255 - 0.286) / 0.353
    y[i] = torch.full({ each }, i - 1, { dtype = torch.int64 })
  end
  return torch.utils.data.TensorDataset(torch.cat(x, 0):unsqueeze(1), torch.cat(y, 0))
end

return M
