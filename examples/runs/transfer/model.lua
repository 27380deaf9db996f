-- The class of pretrain.py, name by name, so that its state_dict has the same keys.
local lupine = require("lupine")
local torch = require("torch")
local nn = torch.nn

local Net = nn.Module:extend("Net")

function Net:init(classes)
  local layers, width = {}, 1
  for _, to in ipairs({ 8, 16, 32 }) do
    table.move({ nn.Conv2d(width, to, 3, { padding = 1, bias = false }), nn.BatchNorm2d(to),
      nn.ReLU(), nn.MaxPool2d(2) }, 1, 4, #layers + 1, layers)
    width = to
  end
  self.features = nn.Sequential(table.unpack(layers))
  self.fc = nn.Linear(width * 9, classes)
end

function Net:forward(x)
  return self.fc(self.features(x):flatten(1))
end

local Transfer = Net:extend("Transfer")

-- The checkpoint's model with a new last layer; the rest is frozen, its batch
-- normalisation goes on with the checkpoint's statistics.
function Transfer:init(path, classes)
  local weights = lupine.safetensors.load_file(path)
  Net.init(self, weights["fc.weight"]:size(0))
  self:load_state_dict(weights)
  self:requires_grad_(false)
  self.fc = nn.Linear(self.fc.in_features, classes)
end

function Transfer:train(mode)
  Net.train(self, mode)
  self.features:eval()
  return self
end

return { Net = Net, Transfer = Transfer }
