-- Trains a small convolutional network on Fashion-MNIST, as a pipeline over two
-- simulated IPUs: features on IPU 0, classifier on IPU 1. The arithmetic runs
-- here; the report at the end says what the same program takes on a Mk2 system.
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local EPOCHS, MICRO_BATCH, ACCUMULATION, ITERATIONS = 2, 32, 6, 2
local LEARNING_RATE = 0.005 -- falls to 0 in a straight line
local MEAN, DEVIATION = 0.2860, 0.3530 -- of the training pictures' grey levels

local Net = nn.Module:extend("Net")

function Net:init()
  self.features = nn.Sequential(
    nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), -- 16 maps of 12 x 12
    nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)) -- 32 maps of 5 x 5
  self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(800, 128), nn.ReLU(),
    nn.Linear(128, 10))
  self.loss = nn.CrossEntropyLoss()
end

function Net:forward(x, labels)
  do
    local _ <close> = poptorch.Block("features", { ipu_id = 0 })
    x = self.features(x)
  end
  local _ <close> = poptorch.Block("classifier", { ipu_id = 1 })
  x = self.classifier(x)
  if labels then
    return x, self.loss(x, labels)
  end
  return x
end

local function dataset(train)
  local images, labels = lupine.datasets.FashionMNIST(train)
  if not images then
    io.stderr:write(labels, "\n")
    os.exit(1)
  end
  local x = ((images:to(torch.float32) / 255 - MEAN) / DEVIATION):unsqueeze(1)
  return torch.utils.data.TensorDataset(x, labels)
end

local function train(model, data)
  local opts = poptorch.Options():deviceIterations(ITERATIONS):randomSeed(1)
    :outputMode(poptorch.OutputMode.Sum) -- of the losses of a call's micro-batches
  opts.Training:gradientAccumulation(ACCUMULATION)
  local loader = poptorch.DataLoader(opts, data, { batch_size = MICRO_BATCH, shuffle = true })
  local optimizer = torch.optim.Adam(model:parameters(), { lr = LEARNING_RATE })
  local trainer = poptorch.trainingModel(model, opts, optimizer)
  local expected = EPOCHS * #loader * loader.combinedBatchSize
  local in_call = ACCUMULATION * ITERATIONS
  local samples, seconds = 0, 0
  for epoch = 1, EPOCHS do
    local bar <close> = lupine.progress(#loader * loader.combinedBatchSize,
      { desc = ("epoch %d"):format(epoch), unit = "samples" })
    local started, sum, losses = lupine.clock(), 0, 0
    for x, labels in loader do
      optimizer.param_groups[1].lr = LEARNING_RATE * (1 - samples / expected)
      trainer:setOptimizer(optimizer)
      local _, loss = trainer(x, labels)
      sum, losses = sum + loss:item(), losses + in_call
      bar:update(loader.combinedBatchSize, { ["mean loss"] = sum / losses })
      samples = samples + loader.combinedBatchSize
    end
    seconds = seconds + lupine.clock() - started
  end
  local report = trainer:report()
  trainer:destroy() -- the weights come back to the model
  return samples / seconds, report
end

local function test(model, data)
  model:eval()
  local opts = poptorch.Options():deviceIterations(10)
  local predictor = poptorch.inferenceModel(model, opts)
  local right = 0
  for x, labels in poptorch.DataLoader(opts, data, { batch_size = 100 }) do
    right = right + predictor(x):argmax(1):eq(labels):sum():item()
  end
  return right / #data
end

local function print_memory(report)
  for ipu = 0, 1 do
    local m = report.memory[ipu]
    print(("memory of IPU %d: %.1f MB always live, %.1f MB more at the peak; fullest tile %.1f kB")
      :format(ipu, m.always_live / 1e6, m.not_always_live / 1e6, m.max_tile / 1e3))
  end
end

local started = lupine.clock()
torch.manual_seed(1)
local model = Net()
local samples_per_second, report = train(model, dataset(true))
local accuracy = test(model, dataset(false))
local seconds = lupine.clock() - started

print(("accuracy on 10,000 test pictures: %.2f %%"):format(100 * accuracy))
print(("time: %.1f s, training %.0f samples/s on this machine"):format(seconds,
  samples_per_second))
print(("on two simulated Mk2 IPUs: %.0f samples/s, pipeline efficiency %.0f %%"):format(
  report.samples_per_second, 100 * report.pipeline_efficiency))
print_memory(report)
print(("demo: accuracy=%.4f seconds=%.1f samples_per_s=%.0f simulated_samples_per_s=%.0f "
  .. "pipeline_efficiency=%.3f"):format(accuracy, seconds, samples_per_second,
  report.samples_per_second, report.pipeline_efficiency))
