local torch = require("torch")
local nn = torch.nn

local function block(from, to)
  return nn.Sequential(nn.Conv2d(from, to, 3, { padding = 1, bias = false }), nn.BatchNorm2d(to),
    nn.ReLU(), nn.MaxPool2d(2))
end

local Net = nn.Module:extend("Net")

function Net:init(classes, width)
  self.features = nn.Sequential(block(3, width), block(width, 2 * width),
    block(2 * width, 4 * width))
  self.pool = nn.AdaptiveMaxPool2d(1)
  self.fc = nn.Linear(4 * width, classes)
end

-- x [batch, 3, 32, 32] -> logits [batch, classes]
function Net:forward(x)
  return self.fc(self.pool(self.features(x)):flatten(1))
end

return { Net = Net }
