--- ConvNeXt (Liu et al. 2022), by torchvision's names.
local building = require("torchvision.models.building")
local classes = require("torch.class_names")
local layer = require("torch.nn.layer")
local ops = require("torchvision.ops")
local torch = require("torch")

local nn = torch.nn
local M = {}

M.LayerNorm2d = nn.LayerNorm:extend("LayerNorm2d")

--- Normalises the channels of [batch, channels, height, width].
---@param x torch.Tensor
---@return torch.Tensor
function M.LayerNorm2d:forward(x)
  return nn.LayerNorm.forward(self, x:permute(0, 2, 3, 1)):permute(0, 3, 1, 2)
end

local FINE = { eps = 1e-6 }

M.CNBlock = layer("CNBlock(dim, layer_scale, stochastic_depth_prob, norm_layer=None)", {
  drop = { "dim", "layer_scale", "stochastic_depth_prob", "norm_layer" },
  build = function(self, a)
    local dim = a.dim
    local norm = ops._maker(a.norm_layer) or ops._partial(nn.LayerNorm, FINE)
    self.layer_scale = nn.Parameter(torch.ones(dim, 1, 1) * a.layer_scale)
    self.block = nn.Sequential(nn.Conv2d(dim, dim, 7, { padding = 3, groups = dim }),
      ops.Permute({ 0, 2, 3, 1 }), norm(dim), nn.Linear(dim, 4 * dim), nn.GELU(),
      nn.Linear(4 * dim, dim), ops.Permute({ 0, 3, 1, 2 }))
    self.stochastic_depth = ops.StochasticDepth(a.stochastic_depth_prob, "row")
  end,
  forward = function(self, input)
    return self.stochastic_depth(self.layer_scale * self.block(input)) + input
  end,
})

M.CNBlockConfig = building.record("CNBlockConfig(input_channels, out_channels, num_layers)")

local function features(a, norm)
  local rows, total, seen = a.block_setting, 0, 0
  for _, c in ipairs(rows) do
    total = total + c.num_layers
  end
  local layers = { ops.Conv2dNormActivation(3, rows[1].input_channels, 4, 4, 0,
    { norm_layer = norm, activation_layer = torch.none, bias = true }) }
  for _, c in ipairs(rows) do
    local blocks = {}
    for i = 1, c.num_layers do
      blocks[i] = (a.block or M.CNBlock)(c.input_channels, a.layer_scale,
        a.stochastic_depth_prob * seen / math.max(total - 1, 1))
      seen = seen + 1
    end
    layers[#layers + 1] = nn.Sequential(blocks)
    if c.out_channels then
      layers[#layers + 1] = nn.Sequential(norm(c.input_channels),
        nn.Conv2d(c.input_channels, c.out_channels, 2, 2))
    end
  end
  return nn.Sequential(layers), rows[#rows].out_channels or rows[#rows].input_channels
end

local ARGUMENTS = "layer_scale=1e-6, num_classes=1000, block=None, norm_layer=None"

M.ConvNeXt = layer("ConvNeXt(block_setting, stochastic_depth_prob=0.0, " .. ARGUMENTS .. ")", {
  drop = { "block_setting", "stochastic_depth_prob", "layer_scale", "num_classes", "block",
    "norm_layer" },
  build = function(self, a)
    building.settings(a.block_setting, "ConvNeXt: block_setting", M.CNBlockConfig)
    local norm = ops._maker(a.norm_layer) or ops._partial(M.LayerNorm2d, FINE)
    local last
    self.features, last = features(a, norm)
    self.avgpool = nn.AdaptiveAvgPool2d(1)
    self.classifier = nn.Sequential(norm(last), nn.Flatten(1), nn.Linear(last, a.num_classes))
    for _, m in ipairs(self:modules()) do
      if nn.Conv2d:is(m) or nn.Linear:is(m) then
        nn.init.trunc_normal_(m.weight, { std = 0.02 })
        nn.init.zeros_(m.bias)
      end
    end
  end,
  forward = function(self, x)
    return self.classifier(self.avgpool(self.features(x)))
  end,
})

-- name, channels of the first stage, blocks of the third, stochastic depth
for _, row in ipairs({ { "tiny", 96, 9, 0.1 }, { "small", 96, 27, 0.4 }, { "base", 128, 27, 0.5 },
    { "large", 192, 27, 0.5 } }) do
  local name, width, third, depth = table.unpack(row)
  building.builder(M, "convnext_" .. name, ("stochastic_depth_prob=%s, "):format(depth)
    .. ARGUMENTS, function(a)
      local Row = M.CNBlockConfig
      return M.ConvNeXt({ Row(width, 2 * width, 3), Row(2 * width, 4 * width, 3),
        Row(4 * width, 8 * width, third), Row(8 * width, torch.none, 3) }, a)
    end)
end

classes.space("torchvision.models.convnext", M)

return M
