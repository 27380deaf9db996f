--- MobileNet V3 (Howard et al. 2019), by torchvision's names.
local building = require("torchvision.models.building")
local classes = require("torch.class_names")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local ops = require("torchvision.ops")
local torch = require("torch")

local nn = torch.nn
local M = {}

M.InvertedResidualConfig = building.record("InvertedResidualConfig(input_channels, kernel, "
  .. "expanded_channels, out_channels, use_se, activation, stride, dilation, width_mult)",
  function(self)
    for _, name in ipairs({ "input_channels", "expanded_channels", "out_channels" }) do
      self[name] = building.divisible(self[name] * self.width_mult, 8)
    end
    self.use_hs = self.activation == "HS"
  end)

local function squeeze(channels)
  return ops.SqueezeExcitation(channels, building.divisible(channels // 4, 8),
    { scale_activation = nn.Hardsigmoid })
end

M.InvertedResidual = layer("InvertedResidual(cnf, norm_layer)", {
  drop = { "cnf", "norm_layer" },
  build = function(self, a)
    local c = a.cnf
    errors.check(c.stride == 1 or c.stride == 2, "ValueError", "illegal stride value %s", c.stride)
    local act = c.use_hs and nn.Hardswish or nn.ReLU
    local wide, layers = c.expanded_channels, {}
    if wide ~= c.input_channels then
      layers[1] = ops.Conv2dNormActivation(c.input_channels, wide, 1,
        { norm_layer = a.norm_layer, activation_layer = act })
    end
    layers[#layers + 1] = ops.Conv2dNormActivation(wide, wide, c.kernel,
      { stride = c.dilation > 1 and 1 or c.stride, dilation = c.dilation, groups = wide,
        norm_layer = a.norm_layer, activation_layer = act })
    layers[#layers + 1] = c.use_se and squeeze(wide) or nil
    layers[#layers + 1] = ops.Conv2dNormActivation(wide, c.out_channels, 1,
      { norm_layer = a.norm_layer, activation_layer = torch.none })
    self.use_res_connect = c.stride == 1 and c.input_channels == c.out_channels
    self.block = nn.Sequential(layers)
    self.out_channels = c.out_channels
  end,
  forward = function(self, input)
    local y = self.block(input)
    return self.use_res_connect and y + input or y
  end,
})

local function features(a, norm)
  local setting = a.inverted_residual_setting
  local common = { norm_layer = norm, activation_layer = nn.Hardswish }
  local layers = { ops.Conv2dNormActivation(3, setting[1].input_channels, 3, 2, common) }
  for _, c in ipairs(setting) do
    layers[#layers + 1] = (a.block or M.InvertedResidual)(c, norm)
  end
  local from = setting[#setting].out_channels
  layers[#layers + 1] = ops.Conv2dNormActivation(from, 6 * from, 1, common)
  return nn.Sequential(layers), 6 * from
end

local ARGUMENTS = "num_classes=1000, block=None, norm_layer=None, dropout=0.2"

M.MobileNetV3 = layer("MobileNetV3(inverted_residual_setting, last_channel, " .. ARGUMENTS .. ")", {
  drop = { "inverted_residual_setting", "last_channel", "num_classes", "block", "norm_layer",
    "dropout" },
  build = function(self, a)
    building.settings(a.inverted_residual_setting, "MobileNetV3: inverted_residual_setting",
      M.InvertedResidualConfig)
    local norm = ops._maker(a.norm_layer)
      or ops._partial(nn.BatchNorm2d, { eps = 0.001, momentum = 0.01 })
    local wide
    self.features, wide = features(a, norm)
    self.avgpool = nn.AdaptiveAvgPool2d(1)
    self.classifier = nn.Sequential(nn.Linear(wide, a.last_channel), nn.Hardswish(true),
      nn.Dropout(a.dropout, true), nn.Linear(a.last_channel, a.num_classes))
    building.start(self, building.small)
  end,
  forward = function(self, x)
    return self.classifier(self.avgpool(self.features(x)):flatten(1))
  end,
})

-- Channels before, kernel, channels within and after, squeezing, activation, stride. From row
-- `tail` on a reduced tail halves channels and a dilated one dilates.
local LARGE = { tail = 13, last = 1280, { 16, 3, 16, 16, false, "RE", 1 },
  { 16, 3, 64, 24, false, "RE", 2 }, { 24, 3, 72, 24, false, "RE", 1 },
  { 24, 5, 72, 40, true, "RE", 2 }, { 40, 5, 120, 40, true, "RE", 1 },
  { 40, 5, 120, 40, true, "RE", 1 }, { 40, 3, 240, 80, false, "HS", 2 },
  { 80, 3, 200, 80, false, "HS", 1 }, { 80, 3, 184, 80, false, "HS", 1 },
  { 80, 3, 184, 80, false, "HS", 1 }, { 80, 3, 480, 112, true, "HS", 1 },
  { 112, 3, 672, 112, true, "HS", 1 }, { 112, 5, 672, 160, true, "HS", 2 },
  { 160, 5, 960, 160, true, "HS", 1 }, { 160, 5, 960, 160, true, "HS", 1 } }
local SMALL = { tail = 9, last = 1024, { 16, 3, 16, 16, true, "RE", 2 },
  { 16, 3, 72, 24, false, "RE", 2 }, { 24, 3, 88, 24, false, "RE", 1 },
  { 24, 5, 96, 40, true, "HS", 2 }, { 40, 5, 240, 40, true, "HS", 1 },
  { 40, 5, 240, 40, true, "HS", 1 }, { 40, 5, 120, 48, true, "HS", 1 },
  { 48, 5, 144, 48, true, "HS", 1 }, { 48, 5, 288, 96, true, "HS", 2 },
  { 96, 5, 576, 96, true, "HS", 1 }, { 96, 5, 576, 96, true, "HS", 1 } }

-- The first row of the tail reads what the network before it made: only its result is halved.
local function setting(rows, a)
  local out = {}
  for i, row in ipairs(rows) do
    local from, kernel, wide, to, se, act, stride = table.unpack(row)
    local half = a.reduced_tail and 2 or 1
    if i > rows.tail then
      from, wide = from // half, wide // half
    end
    if i >= rows.tail then
      to = to // half
    end
    out[i] = M.InvertedResidualConfig(from, kernel, wide, to, se, act, stride,
      a.dilated and i >= rows.tail and 2 or 1, a.width_mult)
  end
  return out
end

local function build(rows)
  return function(a)
    local last = building.divisible(rows.last // (a.reduced_tail and 2 or 1) * a.width_mult, 8)
    return M.MobileNetV3(setting(rows, a), last, { num_classes = a.num_classes, block = a.block,
      norm_layer = a.norm_layer, dropout = a.dropout })
  end
end

local MORE = ARGUMENTS .. ", width_mult=1.0, reduced_tail=False, dilated=False"
building.builder(M, "mobilenet_v3_large", MORE, build(LARGE))
building.builder(M, "mobilenet_v3_small", MORE, build(SMALL))

classes.space("torchvision.models.mobilenetv3", M)

return M
