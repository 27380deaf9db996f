-- The same training loop twice: on the host, and on the simulated IPU, where
-- one call runs ten iterations of forward, loss, backward and update.
-- A port of both loops of PopTorch's introduction. They keep one schedule: the
-- loss is looked at after every tenth batch, and the learning rate falls once
-- its running mean is below 0.1. So both end with the same weights.
local poptorch = require("poptorch")
local torch = require("torch")

local LENGTH, BATCH, ITERATIONS = 20000, 10, 10

-- Points on the line y = 1.2 x - 0.3.
local ExampleDataset = torch.utils.data.Dataset:extend("ExampleDataset")

function ExampleDataset:init(shape, length)
  self.length = length
  self.data = torch.randn({ length, table.unpack(shape) })
  self.target = self.data * 1.2 - 0.3
end

function ExampleDataset:__getitem__(i)
  return self.data[i], self.target[i]
end

function ExampleDataset:__len__()
  return self.length
end

local ExampleModelWithLoss = torch.nn.Module:extend("ExampleModelWithLoss")

function ExampleModelWithLoss:init()
  self.fc = torch.nn.Linear(1, 1)
  self.loss = torch.nn.MSELoss()
end

function ExampleModelWithLoss:forward(x, target)
  local y = self.fc(x)
  return y, self.loss(y, target)
end

torch.manual_seed(1)
local dataset = ExampleDataset({ 1 }, LENGTH)
local host_model = ExampleModelWithLoss()
local ipu_model = ExampleModelWithLoss()
ipu_model:load_state_dict(host_model:state_dict())

local function show(where, calls, momentum_loss)
  if calls % 50 == 0 then
    print(("%-4s  batch %4d  loss %.4f"):format(where, calls * ITERATIONS, momentum_loss))
  end
end

local function host()
  local training_data = torch.utils.data.DataLoader(dataset,
    { batch_size = BATCH, shuffle = true, drop_last = true })
  local model = host_model
  model:train()
  local optimizer = torch.optim.AdamW(model:parameters(), { lr = 0.001 })
  local momentum_loss, batches = nil, 0
  for batch, target in training_data do
    -- Zero gradients
    optimizer:zero_grad()
    -- Run model.
    local _, loss = model(batch, target)
    -- Back propagate the gradients.
    loss:backward()
    -- Update the weights.
    optimizer:step()
    batches = batches + 1
    if batches % ITERATIONS == 0 then
      loss = loss:item()
      momentum_loss = momentum_loss and momentum_loss * 0.95 + loss * 0.05 or loss
      if momentum_loss < 0.1 then
        optimizer.param_groups[1].lr = 0.0001
      end
      show("host", batches // ITERATIONS, momentum_loss)
    end
  end
end

local function ipu()
  -- Set up the DataLoader to load that much data at each iteration
  local opts = poptorch.Options()
  opts:deviceIterations(ITERATIONS)
  local training_data = poptorch.DataLoader({ options = opts, dataset = dataset,
    batch_size = BATCH, shuffle = true, drop_last = true })
  local model = ipu_model
  model:train()
  local optimizer = torch.optim.AdamW(model:parameters(), { lr = 0.001 })
  -- Wrap the model in a PopTorch training wrapper
  local poptorch_model = poptorch.trainingModel(model, { options = opts, optimizer = optimizer })
  local momentum_loss, calls = nil, 0
  for batch, target in training_data do
    -- Performs forward pass, loss function evaluation,
    -- backward pass and weight update in one go on the device.
    local _, loss = poptorch_model(batch, target)
    loss = loss:item()
    momentum_loss = momentum_loss and momentum_loss * 0.95 + loss * 0.05 or loss
    -- Optimizer can be updated via setOptimizer.
    if momentum_loss < 0.1 then
      poptorch_model:setOptimizer(torch.optim.AdamW(model:parameters(), { lr = 0.0001 }))
    end
    calls = calls + 1
    show("ipu", calls, momentum_loss)
  end
  poptorch_model:copyWeightsToHost()
  return calls
end

torch.manual_seed(2) -- both loaders shuffle alike
host()
torch.manual_seed(2)
local calls = ipu()

local apart = 0
for i, p in ipairs(host_model:parameters()) do
  apart = math.max(apart, (p - ipu_model:parameters()[i]):abs():max():item())
end
print(("ipu: %d calls; weight %.4f, bias %.4f"):format(calls, ipu_model.fc.weight:item(),
  ipu_model.fc.bias:item()))
print(("largest difference of the weights: %.1e"):format(apart))
assert(apart < 1e-4, "host and IPU should agree")
