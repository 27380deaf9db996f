--- ResNet-50 as Graphcore published it: a replica on each IPU, pictures of bytes that the IPU
--- normalises, activations computed again from the named checkpoints on.
---
--- shapes: B pictures [3, 224, 224] of bytes
--- source: graphcore/examples vision/cnns/pytorch (train/configs.yml, train/train.py);
--- mlcommons/training_results_v1.1, Graphcore/benchmarks/resnet (configs.yml)
local poptorch = require("poptorch")
local torch = require("torch")
local torchvision = require("torchvision")

local nn = torch.nn

local function checkpoint(_, _, out)
  return poptorch.recomputationCheckpoint(out)
end

local Net = nn.Module:extend("PublishedResNet")

function Net:init(c)
  self.net = torchvision.models.resnet50()
  self.loss = nn.CrossEntropyLoss({ label_smoothing = 0.1 })
  for _, name in ipairs(c.checkpoints) do
    self.net:get_submodule(name):register_forward_hook(checkpoint)
  end
end

function Net:forward(pictures, labels)
  local dtype = self.net.fc.weight.dtype
  local x = (pictures:to(dtype) - 116) * 0.0171
  return self.loss(self.net(x), labels)
end

--- The model, its optimizer and the inputs of one call.
---@param c table a configuration of published.lua
---@param rows integer pictures of a call
---@return table model, table optimizer, table[] inputs
return function(c, rows)
  local model, gathered = Net(c):half(), c.half_moments and torch.float16 or torch.float32
  local momentum = poptorch.optim.SGD(model:parameters(), { lr = 2, momentum = 0.9,
    weight_decay = 1e-4, loss_scaling = 128, velocity_scaling = 128, use_combined_accum = true,
    accum_type = gathered, velocity_accum_type = gathered })
  return model, momentum, { torch.zeros({ rows, 3, 224, 224 }, { dtype = torch.uint8 }),
    torch.zeros({ rows }, { dtype = torch.int64 }) }
end
