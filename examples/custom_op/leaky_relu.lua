-- A custom operator with an attribute in a network that is trained: a CNN on
-- pictures whose activations are the operator LeakyRelu of leaky_relu.c.
--
--     cc -O2 -shared -fPIC -I include -o libleaky_relu.so \
--       examples/custom_op/leaky_relu.c
--     build/lupine examples/custom_op/leaky_relu.lua ./libleaky_relu.so
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

torch.ops.load_library(arg[1] or "./libleaky_relu.so")
torch.manual_seed(42)

local function leakyrelu(x, alpha)
  return poptorch.custom_op({ x }, "LeakyRelu", "custom.ops", 1,
    { example_outputs = { x }, attributes = { alpha = alpha or 0.01 } })[1]
end

local CNN = nn.Module:extend("CNNwithLeakyReLU")

function CNN:init()
  self.conv_1 = nn.Conv2d(1, 8, { kernel_size = { 3, 3 } })
  self.conv_2 = nn.Conv2d(8, 16, { kernel_size = { 3, 3 } })
  self.linear_1 = nn.Linear(16 * 5 * 5, 32)
  self.linear_2 = nn.Linear(32, 4)
  self.pool = nn.MaxPool2d({ 2, 2 })
  self.loss = nn.CrossEntropyLoss()
end

function CNN:forward(x, y)
  local l1 = leakyrelu(self.pool(self.conv_1(x)))
  local l2 = leakyrelu(self.pool(self.conv_2(l1)))
  local l3 = leakyrelu(self.linear_1(l2:flatten(1)), 0.005)
  local prediction = self.linear_2(l3)
  return prediction, self.loss(prediction, y)
end

-- Noisy pictures of 28 x 28 points; the class is the quarter that is brighter.
local function pictures(n)
  local y = torch.randint(0, 4, { n })
  local x = torch.rand({ n, 1, 28, 28 })
  for i = 0, n - 1 do
    local quarter = y[i]:item()
    local row, column = quarter // 2 * 14, quarter % 2 * 14
    x[i][0]:narrow(0, row, 14):narrow(1, column, 14):add_(0.5)
  end
  return x, y
end

local x, y = pictures(320)
local opts = poptorch.Options()
local data = torch.utils.data.TensorDataset(x, y)
local loader = poptorch.DataLoader(opts, data, { batch_size = 16, shuffle = true })
local model = CNN()
local trainer = poptorch.trainingModel(model, opts,
  poptorch.optim.SGD(model:parameters(), { lr = 0.02, momentum = 0.5, use_combined_accum = false }))

for epoch = 0, 5 do
  local loss, right, n = 0, 0, 0
  for images, labels in loader do
    local predictions, batch_loss = trainer(images, labels)
    loss, n = loss + batch_loss:item(), n + 1
    right = right + predictions:argmax(1):eq(labels):sum():item()
  end
  print(("Epoch %d | Loss: %.2f | Accuracy: %.2f"):format(epoch, loss / n, 100 * right / (16 * n)))
end
