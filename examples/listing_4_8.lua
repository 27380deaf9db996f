-- Four IPUs, placed by Block scopes inside forward; four micro-batches per call
-- fill the pipeline of four stages.
-- A port of listing 4.8 of the PopTorch user guide.
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
  do
    local _ <close> = poptorch.Block({ ipu_id = 0 })
    x = self.act(self.layer1(x))
  end
  do
    local _ <close> = poptorch.Block({ ipu_id = 1 })
    x = self.act(self.layer2(x))
  end
  do
    local _ <close> = poptorch.Block({ ipu_id = 2 })
    x = self.act(self.layer3(x))
    x = self.act(self.layer4(x))
  end
  do
    local _ <close> = poptorch.Block({ ipu_id = 3 })
    x = self.softmax(x)
  end
  return x
end

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
