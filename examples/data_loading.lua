-- Where the time of an epoch goes: to the loader alone, to the device alone (with
-- synthetic data), to both one after the other, and with a loader that reads ahead
-- in a process of its own. The batches are the same in every mode.
-- After PopTorch's tutorial of efficient data loading.
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local DEVICE_ITERATIONS, BATCH_SIZE, REPLICAS = 5, 16, 2

-- Pictures that take some work to make.
local Drawn = torch.utils.data.Dataset:extend("Drawn")

function Drawn:init(length)
  self.length = length
end

function Drawn:__len__()
  return self.length
end

function Drawn:__getitem__(i)
  local label = i % 10
  local wave = (torch.arange(48) * (label + 1) / 8):sin()
  local picture = wave:unsqueeze(0) * wave:unsqueeze(1) + torch.randn(48, 48) * 0.1
  return picture:unsqueeze(0), label
end

local Classifier = nn.Module:extend("Classifier")

function Classifier:init()
  self.layers = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(5, 12, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(972, 10))
  self.loss = nn.CrossEntropyLoss()
end

function Classifier:forward(x, labels)
  x = self.layers(x)
  return x, self.loss(x, labels)
end

local function options()
  return poptorch.Options():deviceIterations(DEVICE_ITERATIONS):replicationFactor(REPLICAS)
end

local function loader(opts, mode)
  torch.manual_seed(0) -- so that each shuffles alike
  return poptorch.DataLoader(opts, Drawn(1600), {
    batch_size = BATCH_SIZE,
    shuffle = true,
    drop_last = true,
    mode = mode,
    async_options = mode == poptorch.DataLoaderMode.Async and { early_preload = true } or nil,
  })
end

local function trainer(opts)
  torch.manual_seed(1)
  local model = Classifier()
  return poptorch.trainingModel(model, opts, torch.optim.SGD(model:parameters(), { lr = 0.05 }))
end

-- The throughput of f, which does an epoch of so many calls.
local function measured(what, calls, f)
  local begin = lupine.clock()
  f()
  local samples = calls * DEVICE_ITERATIONS * BATCH_SIZE * REPLICAS
  print(("%-36s %6.0f samples/s"):format(what, samples / (lupine.clock() - begin)))
end

local opts = options()
local data = loader(opts)
local calls = #data
measured("the loader alone", calls, function()
  for _ in data do -- luacheck: ignore 542
  end
end)

-- Nothing is sent to the device: any batch will do.
local synthetic = trainer(options():enableSyntheticData(true))
local x, y = data:iter()()
synthetic:compile(x, y)
measured("the device alone, synthetic data", calls, function()
  for _ = 1, calls do
    synthetic(x, y)
  end
end)
synthetic:destroy()

-- An epoch from the same weights; the losses.
local function epoch(what, mode)
  local device, losses = trainer(opts), {}
  device:compile(x, y)
  local batches = loader(opts, mode)
  measured(what, calls, function()
    for pictures, labels in batches do
      local _, loss = device(pictures, labels)
      losses[#losses + 1] = loss:mean():item()
    end
  end)
  batches:terminate()
  device:destroy()
  return losses
end

local first = epoch("one after the other", poptorch.DataLoaderMode.Sync)
local second = epoch("a loader that reads ahead", poptorch.DataLoaderMode.Async)
for i, loss in ipairs(first) do
  assert(second[i] == loss)
end
assert(#first == calls and first[calls] < first[1])
print(("%d calls: the losses of both are the same"):format(calls))
