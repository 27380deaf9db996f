--- Tensors that processes send each other.
local core = require("lupine.core")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local Product = nn.Module:extend("Product")

function Product:init()
  self.weight = nn.Parameter(torch.tensor({ 1.0, 2 }))
end

function Product:forward(x)
  return poptorch.identity_loss(self.weight * x, "sum")
end

-- A model after a step of SGD, whose weight is newer on the device.
local function trained()
  local model = Product()
  local optimizer = poptorch.optim.SGD(model:parameters(), { lr = 0.5 })
  local training = poptorch.trainingModel(model, nil, optimizer)
  training(torch.tensor({ 4.0, 6 }))
  return model, training
end

describe("a tensor that is sent", function()
  local want = { 1 - 0.5 * 4, 2 - 0.5 * 6 } -- the gradient is x

  it("to a worker has what its device trained", function()
    local model, training = trained()
    local worker = core.start_worker(function(channel)
      local _, tensors = channel:receive(20)
      channel:send("", { tensors[1] * 1 })
    end)
    worker:send("", { model.weight })
    local _, tensors = worker:receive(20)
    worker:close(5)
    helper.near(tensors[1], want)
    training:destroy()
  end)

  it("by a forked worker, too", function()
    local model, training = trained()
    local worker = core.start_worker(function(channel)
      channel:send("", { model.weight })
    end)
    local _, tensors = worker:receive(20)
    worker:close(5)
    helper.near(tensors[1], want)
    training:destroy()
  end)
end)
