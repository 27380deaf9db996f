--- VGG (Simonyan and Zisserman 2014), by torchvision's names.
local building = require("torchvision.models.building")
local classes = require("torch.class_names")
local layer = require("torch.nn.layer")
local torch = require("torch")

local nn = torch.nn
local M = {}

local ARGUMENTS = "num_classes=1000, init_weights=True, dropout=0.5"

M.VGG = layer("VGG(features, " .. ARGUMENTS .. ")", {
  drop = { "num_classes", "init_weights", "dropout" },
  build = function(self, a)
    self.avgpool = nn.AdaptiveAvgPool2d({ 7, 7 })
    self.classifier = nn.Sequential(
      nn.Linear(512 * 7 * 7, 4096), nn.ReLU(true), nn.Dropout(a.dropout),
      nn.Linear(4096, 4096), nn.ReLU(true), nn.Dropout(a.dropout),
      nn.Linear(4096, a.num_classes))
    if a.init_weights then
      building.start(self, building.small)
    end
  end,
  forward = function(self, x)
    return self.classifier(self.avgpool(self.features(x)):flatten(1))
  end,
})

-- Stages of 3x3 convolutions, each of which ends in pooling.
local function features(counts, batch_norm)
  local layers, from = {}, 3
  for i, count in ipairs(counts) do
    local to = math.min(32 << i, 512)
    for _ = 1, count do
      layers[#layers + 1] = nn.Conv2d(from, to, 3, { padding = 1 })
      layers[#layers + 1] = batch_norm and nn.BatchNorm2d(to) or nil
      layers[#layers + 1] = nn.ReLU({ inplace = true })
      from = to
    end
    layers[#layers + 1] = nn.MaxPool2d(2, 2)
  end
  return nn.Sequential(layers)
end

local ROWS = {
  { 11, { 1, 1, 2, 2, 2 } }, { 13, { 2, 2, 2, 2, 2 } }, { 16, { 2, 2, 3, 3, 3 } },
  { 19, { 2, 2, 4, 4, 4 } },
}

for _, row in ipairs(ROWS) do
  for _, batch_norm in ipairs({ false, true }) do
    local name = ("vgg%d%s"):format(row[1], batch_norm and "_bn" or "")
    building.builder(M, name, ARGUMENTS, function(a)
      return M.VGG(features(row[2], batch_norm), a)
    end)
  end
end

classes.space("torchvision.models.vgg", M)

return M
