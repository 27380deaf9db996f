-- Blocks by functions: each wrapped function is placed on its IPU; two blocks
-- in a row on one IPU are one stage.
-- A port of listing 4.9 of the PopTorch user guide.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local Network = nn.Module:extend("Network")

function Network:init()
  self.layer1 = nn.Linear(5, 10)
  self.layer2 = nn.Linear(10, 5)
  self.layer3 = nn.Linear(5, 5)
  self.layer4 = nn.Linear(5, 5)

  self.act = nn.ReLU()
  self.softmax = nn.Softmax({ dim = 1 })
end

function Network:forward(x)
  poptorch.Block.useAutoId()
  x = self:block_one(x)
  x = self:block_two(x)
  x = self:final_activation(x)
  return x
end

Network.block_one = poptorch.BlockFunction({ ipu_id = 0 })(function(self, x)
  x = self.act(self.layer1(x))
  x = self.act(self.layer2(x))
  return x
end)

Network.block_two = poptorch.BlockFunction({ ipu_id = 1 })(function(self, x)
  x = self.act(self.layer3(x))
  x = self.act(self.layer4(x))
  return x
end)

Network.final_activation = poptorch.BlockFunction({ ipu_id = 1 })(function(self, x)
  return self.softmax(x)
end)

torch.manual_seed(0)
local model = Network()
local opts = poptorch.Options()
opts:deviceIterations(4)
local poptorch_model = poptorch.inferenceModel(model, { options = opts })

local x = torch.rand({ 4, 5 })
local y = poptorch_model(x)
print(y)
torch.testing.assert_close(y, model(x))
print("device and host agree")
