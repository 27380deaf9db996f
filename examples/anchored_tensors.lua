-- Tensors that a model does not return, looked at by name: the gradient of a
-- bias in every micro-batch, and the weights after every update.
-- After Options.anchorTensor and PoplarExecutor.getTensorNames of PopTorch's API
-- reference.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local Net = nn.Module:extend("Net")

function Net:init()
  self.fc1 = nn.Linear(4, 8)
  self.fc2 = nn.Linear(8, 2)
  self.loss = nn.MSELoss()
end

function Net:forward(x, target)
  local y = self.fc2(self.fc1(x):relu())
  return y, self.loss(y, target)
end

torch.manual_seed(0)
local ITERATIONS, MICRO_BATCHES, RATE = 3, 2, 0.125
local opts = poptorch.Options():deviceIterations(ITERATIONS)
opts.Training:gradientAccumulation(MICRO_BATCHES)
opts:anchorTensor("gradient", "Gradient___fc2.bias", poptorch.OutputMode.All)
opts:anchorTensor("bias", "UpdatedVar___fc2.bias", poptorch.OutputMode.All)

local net = Net()
local trainer = poptorch.trainingModel(net, opts, torch.optim.SGD(net:parameters(), RATE))
local before = net.fc2.bias:detach():clone()
local rows = 5 * ITERATIONS * MICRO_BATCHES
trainer(torch.randn(rows, 4), torch.randn(rows, 2))

-- a slice for each micro-batch: [device iteration][micro-batch][2]
local gradient = trainer:getAnchoredTensor("gradient"):reshape(ITERATIONS, MICRO_BATCHES, 2)
local bias = trainer:getAnchoredTensor("bias"):reshape(ITERATIONS, MICRO_BATCHES, 2)

local worst = 0
for i = 0, ITERATIONS - 1 do
  local want = before - gradient[i]:mean(0) * RATE
  local shown = bias[i][MICRO_BATCHES - 1] -- the last one shows the update
  worst = math.max(worst, (shown - want):abs():max():item())
  print(("update %d: a gradient %.5f, the bias %.5f"):format(i, gradient[i][0][0]:item(),
    shown[0]:item()))
  before = shown
end

for _, name in ipairs(trainer:getTensorNames()) do
  if name:find("^fc2/") then
    print("also there: " .. name)
  end
end
print(worst < 1e-6 and "anchors follow the updates" or "anchors differ from the updates")
