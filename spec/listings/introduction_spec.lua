--- The listings of PopTorch's introduction: a training loop of the host, and the
--- same on the device with ten batches a call.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local ExampleDataset = torch.utils.data.Dataset:extend("ExampleDataset")

function ExampleDataset:init(shape, length)
  self.length = length
  self.data, self.labels = {}, {}
  for i = 1, length do
    local target = 0.02 + i % 17 * 0.05
    self.data[i] = torch.full(shape, target * 2 - 0.5)
    self.labels[i] = torch.full(shape, target)
  end
end

function ExampleDataset:__len__()
  return self.length
end

function ExampleDataset:__getitem__(i)
  return self.data[i + 1], self.labels[i + 1]
end

local Model = nn.Module:extend("ExampleModelWithLoss")

function Model:init()
  self.fc = nn.Linear(1, 1)
  self.loss = nn.MSELoss()
end

function Model:forward(x, target)
  local y = self.fc(x)
  return y, self.loss(y, target)
end

-- Smaller data and a larger rate than the page's: the loss falls in 400 steps.
local LENGTH, RATE = 4000, 0.01

local function smoothed(before, loss)
  return before and before * 0.95 + loss * 0.05 or loss
end

describe("introduction", function()
  it("I1: the loop of the host", function()
    torch.manual_seed(3)
    local data = torch.utils.data.DataLoader(ExampleDataset({ 1 }, LENGTH),
      { batch_size = 10, shuffle = true, drop_last = true })
    local model = Model()
    model:train()
    local optimizer = torch.optim.AdamW(model:parameters(), { lr = RATE })
    local first, momentum_loss
    for batch, target in data do
      optimizer:zero_grad()
      local _, loss = model(batch, target)
      loss:backward()
      optimizer:step()
      momentum_loss = smoothed(momentum_loss, loss:item())
      first = first or momentum_loss
      if momentum_loss < 0.001 then
        optimizer = torch.optim.AdamW(model:parameters(), { lr = RATE / 10 })
      end
    end
    assert.is_true(momentum_loss < first / 10)
  end)

  it("I2: the same on the device", function()
    torch.manual_seed(3)
    local opts = poptorch.Options()
    opts:deviceIterations(10)
    local data = poptorch.DataLoader({ options = opts, dataset = ExampleDataset({ 1 }, LENGTH),
      batch_size = 10, shuffle = true, drop_last = true })
    local model = Model()
    model:train()
    local optimizer = torch.optim.AdamW(model:parameters(), { lr = RATE })
    local poptorch_model = poptorch.trainingModel(model, { options = opts, optimizer = optimizer })
    local first, momentum_loss, calls
    for _ = 1, 3 do
      calls = 0
      for batch, target in data do
        local _, loss = poptorch_model(batch, target)
        momentum_loss = smoothed(momentum_loss, loss:item())
        first = first or momentum_loss
        calls = calls + 1
        if momentum_loss < 0.001 then
          poptorch_model:setOptimizer(torch.optim.AdamW(model:parameters(), { lr = RATE / 10 }))
        end
      end
    end
    assert.equal(LENGTH // 100, calls)
    assert.is_true(momentum_loss < first / 10)
  end)
end)
