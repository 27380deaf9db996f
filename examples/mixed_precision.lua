-- What halves cost and save: the same classifier of Fashion-MNIST in float32, in
-- float16, with an optimizer that accumulates in float16 under a loss scaling,
-- and with stochastic rounding. Memory and time are those of the simulated IPU.
-- After PopTorch's tutorial of mixed precision.
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")
local transforms = require("lupine.transforms")
local nn = torch.nn

local CustomModel = nn.Module:extend("CustomModel")

function CustomModel:init()
  self.conv1 = nn.Conv2d(1, 5, 3)
  self.pool = nn.MaxPool2d(2, 2)
  self.conv2 = nn.Conv2d(5, 12, 5)
  self.norm = nn.GroupNorm(3, 12)
  self.fc1 = nn.Linear(972, 100)
  self.relu = nn.ReLU()
  self.fc2 = nn.Linear(100, 10)
  self.log_softmax = nn.LogSoftmax({ dim = 1 })
  self.loss = nn.NLLLoss()
end

function CustomModel:forward(x, labels)
  x = self.pool(self.relu(self.conv1(x)))
  x = self.norm(self.relu(self.conv2(x)))
  x = torch.flatten(x, { start_dim = 1 })
  x = self.relu(self.fc1(x))
  x = self.log_softmax(self.fc2(x))
  if self.training then
    return x, self.loss(x, labels)
  end
  return x
end

-- The first pictures, in the type that the model has.
local function dataset(train, count, dtype)
  local list = { transforms.ToTensor(), transforms.Normalize({ 0.5 }, { 0.5 }),
    transforms.ConvertImageDtype(dtype) }
  local whole = lupine.datasets.FashionMNIST({ train = train,
    transform = transforms.Compose(list) })
  local first = {}
  for i = 1, count do
    first[i] = i - 1
  end
  return torch.utils.data.Subset(whole, first)
end

-- Trains and tests; the accuracy in percent and the training's report.
local function run(execution_half, optimizer_half, stochastic_rounding)
  torch.manual_seed(0)
  local model = CustomModel()
  local dtype = torch.float32
  if execution_half then
    model = model:half()
    dtype = torch.float16
  end

  local accum, loss_scaling
  if optimizer_half then
    accum, loss_scaling = torch.float16, 1024
  end
  local optimizer = poptorch.optim.AdamW({ params = model:parameters(), lr = 0.002,
    accum_type = accum, loss_scaling = loss_scaling })

  local opts = poptorch.Options():deviceIterations(8):randomSeed(1)
  opts.Precision:enableStochasticRounding(stochastic_rounding)
  local train_dataloader = poptorch.DataLoader(opts, dataset(true, 3072, dtype),
    { batch_size = 12, shuffle = true })
  model:train()
  local poptorch_model = poptorch.trainingModel(model, { options = opts, optimizer = optimizer })
  for _ = 1, 2 do
    for data, labels in train_dataloader do
      poptorch_model(data, labels)
    end
  end
  local report = poptorch_model:report()
  poptorch_model:detachFromDevice()

  model:eval()
  local test_opts = poptorch.Options()
  local poptorch_model_inf = poptorch.inferenceModel(model, { options = test_opts })
  local test_dataloader = poptorch.DataLoader(test_opts, dataset(false, 1000, dtype),
    { batch_size = 100 })
  local right = 0
  for data, labels in test_dataloader do
    local _, predictions = poptorch_model_inf(data):float():max({ dim = 1 })
    right = right + predictions:eq(labels):sum():item()
  end
  poptorch_model_inf:detachFromDevice()
  return right / 10, report
end

-- What is not code, in MB; of so small a model code is most.
local function memory(report)
  local of = report.memory[0].categories
  return (of.weights + of.accumulators + of.optimizer_state + of.activations + of.temporary) / 1e6
end

local VARIANTS = {
  { "float32", false, false, false },
  { "float16", true, false, false },
  { "float16, its optimizer too", true, true, false },
  { "and rounded at random", true, true, true },
}

local least, first, last = 100, nil, nil
for _, variant in ipairs(VARIANTS) do
  local accuracy, report = run(table.unpack(variant, 2))
  print(("%-28s accuracy %4.1f %%  %5.2f MB  %6.3f ms a call"):format(variant[1], accuracy,
    memory(report), report.seconds * 1e3))
  least = math.min(least, accuracy)
  first, last = first or memory(report), memory(report)
end
assert(least > 60 and last < first)
print("float16 classifies as well, in less memory")
