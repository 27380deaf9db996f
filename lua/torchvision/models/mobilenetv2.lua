--- MobileNet V2 (Sandler et al. 2018), by torchvision's names.
local building = require("torchvision.models.building")
local classes = require("torch.class_names")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local ops = require("torchvision.ops")
local torch = require("torch")

local nn = torch.nn
local M = {}

M.InvertedResidual = layer(
  "InvertedResidual(inp, oup, stride, expand_ratio, norm_layer='BatchNorm2d')", {
    drop = { "inp", "oup", "expand_ratio", "norm_layer" },
    build = function(self, a)
      errors.check(a.stride == 1 or a.stride == 2, "ValueError",
        "InvertedResidual: stride should be 1 or 2, got %s", a.stride)
      local norm = ops._maker(a.norm_layer)
      local hidden = math.floor(a.inp * a.expand_ratio + 0.5)
      local common = { norm_layer = norm, activation_layer = nn.ReLU6 }
      local layers = {}
      if a.expand_ratio ~= 1 then
        layers[1] = ops.Conv2dNormActivation(a.inp, hidden, 1, common)
      end
      layers[#layers + 1] = ops.Conv2dNormActivation(hidden, hidden, { stride = a.stride,
        groups = hidden, norm_layer = norm, activation_layer = nn.ReLU6 })
      layers[#layers + 1] = nn.Conv2d(hidden, a.oup, 1, { bias = false })
      layers[#layers + 1] = norm(a.oup)
      self.use_res_connect = a.stride == 1 and a.inp == a.oup
      self.conv = nn.Sequential(layers)
    end,
    forward = function(self, x)
      local y = self.conv(x)
      return self.use_res_connect and x + y or y
    end,
  })

-- expansion, channels, blocks, stride of the first
local SETTING = { { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 }, { 6, 64, 4, 2 },
  { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 } }

local function features(a, norm, last)
  local function width(channels)
    return building.divisible(channels * a.width_mult, a.round_nearest)
  end
  local block, from = a.block or M.InvertedResidual, width(32)
  local common = { norm_layer = norm, activation_layer = nn.ReLU6 }
  local layers = { ops.Conv2dNormActivation(3, from, 3, 2, common) }
  for _, row in ipairs(a.inverted_residual_setting or SETTING) do
    local expand, channels, count, stride = table.unpack(row)
    for i = 1, count do
      local to = width(channels)
      layers[#layers + 1] = block(from, to, i == 1 and stride or 1, expand, norm)
      from = to
    end
  end
  layers[#layers + 1] = ops.Conv2dNormActivation(from, last, 1, common)
  return nn.Sequential(layers)
end

local ARGUMENTS = "num_classes=1000, width_mult=1.0, inverted_residual_setting=None, "
  .. "round_nearest=8, block=None, norm_layer='BatchNorm2d', dropout=0.2"

M.MobileNetV2 = layer("MobileNetV2(" .. ARGUMENTS .. ")", {
  drop = { "num_classes", "width_mult", "inverted_residual_setting", "round_nearest", "block",
    "norm_layer", "dropout" },
  build = function(self, a)
    local rows = a.inverted_residual_setting
    errors.check(not rows or #rows > 0 and #rows[1] == 4, "ValueError",
      "MobileNetV2: inverted_residual_setting should be a list of lists of 4")
    self.last_channel = building.divisible(1280 * math.max(1, a.width_mult), a.round_nearest)
    self.features = features(a, ops._maker(a.norm_layer), self.last_channel)
    self.classifier = nn.Sequential(nn.Dropout(a.dropout),
      nn.Linear(self.last_channel, a.num_classes))
    building.start(self, building.small)
  end,
  forward = function(self, x)
    x = nn.functional.adaptive_avg_pool2d(self.features(x), 1)
    return self.classifier(x:flatten(1))
  end,
})

building.builder(M, "mobilenet_v2", ARGUMENTS, function(a)
  return M.MobileNetV2(a)
end)

classes.space("torchvision.models.mobilenetv2", M)

return M
