--- EfficientNet (Tan and Le 2019) and EfficientNetV2 (2021), by torchvision's names.
local building = require("torchvision.models.building")
local class = require("lupine.base.class")
local classes = require("torch.class_names")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local ops = require("torchvision.ops")
local torch = require("torch")

local nn = torch.nn
local M = {}

local FIELDS = "expand_ratio, kernel, stride, input_channels, out_channels, num_layers"
local Config = class.new("_MBConvConfig")

M.MBConvConfig = building.record("MBConvConfig(" .. FIELDS
  .. ", width_mult=1.0, depth_mult=1.0, block=None)", function(self)
    self.input_channels = building.divisible(self.input_channels * self.width_mult, 8)
    self.out_channels = building.divisible(self.out_channels * self.width_mult, 8)
    self.num_layers = math.ceil(self.num_layers * self.depth_mult)
    self.block = self.block or M.MBConv
  end, Config)

M.FusedMBConvConfig = building.record("FusedMBConvConfig(" .. FIELDS .. ", block=None)",
  function(self)
    self.block = self.block or M.FusedMBConv
  end, Config)

-- What both blocks share: the layers, and how often they are left out in training.
local function finish(self, a, layers)
  local c = a.cnf
  self.use_res_connect = c.stride == 1 and c.input_channels == c.out_channels
  self.block = nn.Sequential(layers)
  self.stochastic_depth = ops.StochasticDepth(a.stochastic_depth_prob, "row")
  self.out_channels = c.out_channels
end

local function forward(self, input)
  local y = self.block(input)
  return self.use_res_connect and self.stochastic_depth(y) + input or y
end

-- Channels within a block.
local function expanded(c)
  errors.check(c.stride == 1 or c.stride == 2, "ValueError", "illegal stride value %s", c.stride)
  return building.divisible(c.input_channels * c.expand_ratio, 8)
end

local DROP = { "cnf", "stochastic_depth_prob", "norm_layer" }

M.MBConv = layer("MBConv(cnf, stochastic_depth_prob, norm_layer)", {
  drop = DROP,
  build = function(self, a)
    local c = a.cnf
    local wide, layers = expanded(c), {}
    if wide ~= c.input_channels then
      layers[1] = ops.Conv2dNormActivation(c.input_channels, wide, 1,
        { norm_layer = a.norm_layer, activation_layer = nn.SiLU })
    end
    layers[#layers + 1] = ops.Conv2dNormActivation(wide, wide, c.kernel, { stride = c.stride,
      groups = wide, norm_layer = a.norm_layer, activation_layer = nn.SiLU })
    layers[#layers + 1] = ops.SqueezeExcitation(wide, math.max(1, c.input_channels // 4),
      { activation = ops._partial(nn.SiLU, { inplace = true }) })
    layers[#layers + 1] = ops.Conv2dNormActivation(wide, c.out_channels, 1,
      { norm_layer = a.norm_layer, activation_layer = torch.none })
    finish(self, a, layers)
  end,
  forward = forward,
})

M.FusedMBConv = layer("FusedMBConv(cnf, stochastic_depth_prob, norm_layer)", {
  drop = DROP,
  build = function(self, a)
    local c = a.cnf
    local wide = expanded(c)
    local grows = wide ~= c.input_channels
    local layers = { ops.Conv2dNormActivation(c.input_channels, grows and wide or c.out_channels,
      c.kernel, c.stride, { norm_layer = a.norm_layer, activation_layer = nn.SiLU }) }
    if grows then
      layers[2] = ops.Conv2dNormActivation(wide, c.out_channels, 1,
        { norm_layer = a.norm_layer, activation_layer = torch.none })
    end
    finish(self, a, layers)
  end,
  forward = forward,
})

-- The blocks of one row; `chance(i)` is the probability to leave out the i-th of all.
local function stage(c, norm, seen, chance)
  local blocks = {}
  for i = 1, c.num_layers do
    local own = class.copy(c)
    if i > 1 then
      own.input_channels, own.stride = own.out_channels, 1
    end
    blocks[i] = own.block(own, chance(seen + i - 1), norm)
  end
  return nn.Sequential(blocks)
end

local function features(a, norm)
  local rows, total, seen = a.inverted_residual_setting, 0, 0
  for _, c in ipairs(rows) do
    total = total + c.num_layers
  end
  local common = { norm_layer = norm, activation_layer = nn.SiLU }
  local layers = { ops.Conv2dNormActivation(3, rows[1].input_channels, 3, 2, common) }
  for _, c in ipairs(rows) do
    layers[#layers + 1] = stage(c, norm, seen, function(i)
      return a.stochastic_depth_prob * i / total
    end)
    seen = seen + c.num_layers
  end
  local from = rows[#rows].out_channels
  local last = a.last_channel or 4 * from
  layers[#layers + 1] = ops.Conv2dNormActivation(from, last, 1, common)
  return nn.Sequential(layers), last
end

M.EfficientNet = layer("EfficientNet(inverted_residual_setting, dropout, "
  .. "stochastic_depth_prob=0.2, num_classes=1000, norm_layer='BatchNorm2d', last_channel=None)", {
    drop = { "inverted_residual_setting", "dropout", "stochastic_depth_prob", "num_classes",
      "norm_layer", "last_channel" },
    build = function(self, a)
      building.settings(a.inverted_residual_setting, "EfficientNet: inverted_residual_setting",
        Config)
      local last
      self.features, last = features(a, ops._maker(a.norm_layer))
      self.avgpool = nn.AdaptiveAvgPool2d(1)
      self.classifier = nn.Sequential(nn.Dropout(a.dropout, true), nn.Linear(last, a.num_classes))
      building.start(self, function(m)
        local bound = 1 / math.sqrt(m.out_features)
        nn.init.uniform_(m.weight, -bound, bound)
      end)
    end,
    forward = function(self, x)
      return self.classifier(self.avgpool(self.features(x)):flatten(1))
    end,
  })

-- Rows of FIELDS; a fused one has true at its end.
local ONE = { { 1, 3, 1, 32, 16, 1 }, { 6, 3, 2, 16, 24, 2 }, { 6, 5, 2, 24, 40, 2 },
  { 6, 3, 2, 40, 80, 3 }, { 6, 5, 1, 80, 112, 3 }, { 6, 5, 2, 112, 192, 4 },
  { 6, 3, 1, 192, 320, 1 } }
local TWO = {
  s = { { 1, 3, 1, 24, 24, 2, true }, { 4, 3, 2, 24, 48, 4, true }, { 4, 3, 2, 48, 64, 4, true },
    { 4, 3, 2, 64, 128, 6 }, { 6, 3, 1, 128, 160, 9 }, { 6, 3, 2, 160, 256, 15 } },
  m = { { 1, 3, 1, 24, 24, 3, true }, { 4, 3, 2, 24, 48, 5, true }, { 4, 3, 2, 48, 80, 5, true },
    { 4, 3, 2, 80, 160, 7 }, { 6, 3, 1, 160, 176, 14 }, { 6, 3, 2, 176, 304, 18 },
    { 6, 3, 1, 304, 512, 5 } },
  l = { { 1, 3, 1, 32, 32, 4, true }, { 4, 3, 2, 32, 64, 7, true }, { 4, 3, 2, 64, 96, 7, true },
    { 4, 3, 2, 96, 192, 10 }, { 6, 3, 1, 192, 224, 19 }, { 6, 3, 2, 224, 384, 25 },
    { 6, 3, 1, 384, 640, 7 } },
}

local function setting(rows, width, depth)
  local out = {}
  for i, row in ipairs(rows) do
    local make = row[7] and M.FusedMBConvConfig or M.MBConvConfig
    local more = not row[7] and { width_mult = width, depth_mult = depth } or nil
    local e, k, s, from, to, n = table.unpack(row)
    out[i] = make(e, k, s, from, to, n, more)
  end
  return out
end

-- name, rows, dropout, what its normalisations take, channels of the last convolution,
-- factors of channels and of blocks
local function define(name, rows, dropout, norm, last, width, depth)
  building.builder(M, name, ("dropout=%s, stochastic_depth_prob=0.2, num_classes=1000, "
    .. "norm_layer=None"):format(dropout), function(a)
      return M.EfficientNet(setting(rows, width, depth), a.dropout,
        { stochastic_depth_prob = a.stochastic_depth_prob, num_classes = a.num_classes,
          norm_layer = a.norm_layer or norm and ops._partial(nn.BatchNorm2d, norm),
          last_channel = last })
    end)
end

local SLOW = { eps = 0.001, momentum = 0.01 }
define("efficientnet_b0", ONE, 0.2, nil, nil, 1.0, 1.0)
define("efficientnet_b1", ONE, 0.2, nil, nil, 1.0, 1.1)
define("efficientnet_b2", ONE, 0.3, nil, nil, 1.1, 1.2)
define("efficientnet_b3", ONE, 0.3, nil, nil, 1.2, 1.4)
define("efficientnet_b4", ONE, 0.4, nil, nil, 1.4, 1.8)
define("efficientnet_b5", ONE, 0.4, SLOW, nil, 1.6, 2.2)
define("efficientnet_b6", ONE, 0.5, SLOW, nil, 1.8, 2.6)
define("efficientnet_b7", ONE, 0.5, SLOW, nil, 2.0, 3.1)
define("efficientnet_v2_s", TWO.s, 0.2, { eps = 0.001 }, 1280)
define("efficientnet_v2_m", TWO.m, 0.3, { eps = 0.001 }, 1280)
define("efficientnet_v2_l", TWO.l, 0.4, { eps = 0.001 }, 1280)

classes.space("torchvision.models.efficientnet", M)

return M
