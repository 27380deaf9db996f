-- Fits y = 3 x - 1 to noisy points on a simulated IPU. The weights are read on
-- the host afterwards: they come from the device by themselves.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local Line = nn.Module:extend("Line")

function Line:init()
  self.fc = nn.Linear(1, 1)
  self.loss = nn.MSELoss()
end

function Line:forward(x, target)
  local y = self.fc(x)
  return y, self.loss(y, target)
end

torch.manual_seed(0)
local x = torch.rand({ 2560, 1 }) * 2 - 1
local data = torch.utils.data.TensorDataset(x, x * 3 - 1 + torch.randn({ 2560, 1 }) * 0.1)

local opts = poptorch.Options():deviceIterations(8)
local loader = poptorch.DataLoader(opts, data, { batch_size = 32, shuffle = true })
local model = Line()
local trainer = poptorch.trainingModel(model, opts, torch.optim.SGD(model:parameters(), 0.1))

for epoch = 1, 4 do
  local loss
  for points, target in loader do
    loss = select(2, trainer(points, target))
  end
  print(("epoch %d  loss %.4f"):format(epoch, loss:item()))
end
print(("y = %.2f x %+.2f"):format(model.fc.weight:item(), model.fc.bias:item()))
