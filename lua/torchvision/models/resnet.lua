--- Residual networks (He et al. 2015), ResNeXt (Xie et al. 2016) and wide ones (Zagoruyko
--- and Komodakis 2016), by torchvision's names. A bottleneck strides in its 3x3 convolution.
local building = require("torchvision.models.building")
local classes = require("torch.class_names")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local ops = require("torchvision.ops")
local torch = require("torch")

local nn = torch.nn
local M = {}

local function conv3x3(from, to, stride, groups, dilation)
  return nn.Conv2d(from, to, 3, { stride = stride, padding = dilation, groups = groups,
    dilation = dilation, bias = false })
end

local function conv1x1(from, to, stride)
  return nn.Conv2d(from, to, 1, { stride = stride, bias = false })
end

local BLOCK = "(inplanes, planes, stride=1, downsample=None, groups=1, base_width=64, "
  .. "dilation=1, norm_layer='BatchNorm2d')"
local PLAIN = { "inplanes", "planes", "downsample", "groups", "base_width", "dilation",
  "norm_layer" }

-- The input, brought to the result's shape, is added; None registers the name alone.
local function shortcut(self, x)
  return self.downsample and self.downsample(x) or x
end

M.BasicBlock = layer("BasicBlock" .. BLOCK, {
  drop = PLAIN,
  build = function(self, a)
    errors.check(a.groups == 1 and a.base_width == 64, "ValueError",
      "BasicBlock: groups must be 1 and base_width 64, got %s and %s", a.groups, a.base_width)
    errors.check(a.dilation == 1, "NotImplementedError",
      "BasicBlock: dilation must be 1, got %s", a.dilation)
    local norm = ops._maker(a.norm_layer)
    self.conv1 = conv3x3(a.inplanes, a.planes, a.stride, 1, 1)
    self.bn1 = norm(a.planes)
    self.relu = nn.ReLU({ inplace = true })
    self.conv2 = conv3x3(a.planes, a.planes, 1, 1, 1)
    self.bn2 = norm(a.planes)
    self.downsample = a.downsample
  end,
  forward = function(self, x)
    local y = self.relu(self.bn1(self.conv1(x)))
    return self.relu(self.bn2(self.conv2(y)) + shortcut(self, x))
  end,
})
M.BasicBlock.expansion = 1

M.Bottleneck = layer("Bottleneck" .. BLOCK, {
  drop = PLAIN,
  build = function(self, a)
    local norm = ops._maker(a.norm_layer)
    local width = math.floor(a.planes * (a.base_width / 64)) * a.groups
    self.conv1 = conv1x1(a.inplanes, width)
    self.bn1 = norm(width)
    self.conv2 = conv3x3(width, width, a.stride, a.groups, a.dilation)
    self.bn2 = norm(width)
    self.conv3 = conv1x1(width, a.planes * 4)
    self.bn3 = norm(a.planes * 4)
    self.relu = nn.ReLU({ inplace = true })
    self.downsample = a.downsample
  end,
  forward = function(self, x)
    local y = self.relu(self.bn1(self.conv1(x)))
    y = self.relu(self.bn2(self.conv2(y)))
    return self.relu(self.bn3(self.conv3(y)) + shortcut(self, x))
  end,
})
M.Bottleneck.expansion = 4

-- `count` blocks of one size; the first strides, or dilates those behind it instead.
local function stage(self, a, planes, count, stride, dilate)
  local before, wide = self.dilation, planes * a.block.expansion
  if dilate then
    self.dilation = self.dilation * stride
    stride = 1
  end
  local down
  if stride ~= 1 or self.inplanes ~= wide then
    down = nn.Sequential(conv1x1(self.inplanes, wide, stride), a.norm_layer(wide))
  end
  local blocks = {}
  for i = 1, count do
    local first = i == 1
    blocks[i] = a.block(first and self.inplanes or wide, planes, { stride = first and stride or 1,
      downsample = first and down or nil, groups = a.groups, base_width = a.width_per_group,
      dilation = first and before or self.dilation, norm_layer = a.norm_layer })
  end
  self.inplanes = wide
  return nn.Sequential(blocks)
end

local function zero_last(self)
  for _, m in ipairs(self:modules()) do
    local last = M.Bottleneck:is(m) and m.bn3 or M.BasicBlock:is(m) and m.bn2
    if last and last.weight then
      nn.init.zeros_(last.weight)
    end
  end
end

local ARGUMENTS = "num_classes=1000, zero_init_residual=False, groups=1, width_per_group=64, "
  .. "replace_stride_with_dilation=None, norm_layer='BatchNorm2d'"

M.ResNet = layer("ResNet(block, layers, " .. ARGUMENTS .. ")", {
  drop = { "block", "layers", "num_classes", "zero_init_residual", "width_per_group",
    "replace_stride_with_dilation", "norm_layer" },
  build = function(self, a)
    local dilate = a.replace_stride_with_dilation or { false, false, false }
    errors.check(#dilate == 3, "ValueError", "ResNet: replace_stride_with_dilation: expected nil "
      .. "or a list of 3 booleans, got one of %d", #dilate)
    a.norm_layer = ops._maker(a.norm_layer)
    self.inplanes, self.dilation, self.base_width = 64, 1, a.width_per_group
    self.conv1 = nn.Conv2d(3, 64, 7, { stride = 2, padding = 3, bias = false })
    self.bn1 = a.norm_layer(64)
    self.relu = nn.ReLU({ inplace = true })
    self.maxpool = nn.MaxPool2d(3, { stride = 2, padding = 1 })
    for i, count in ipairs(a.layers) do
      self["layer" .. i] = stage(self, a, 32 << i, count, i > 1 and 2 or 1, dilate[i - 1])
    end
    self.avgpool = nn.AdaptiveAvgPool2d({ 1, 1 })
    self.fc = nn.Linear(512 * a.block.expansion, a.num_classes)
    building.start(self)
    if a.zero_init_residual then
      zero_last(self)
    end
  end,
  forward = function(self, x)
    x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
    x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
    return self.fc(self.avgpool(x):flatten(1))
  end,
})

-- name, block, blocks of each stage, groups, width of a group
local ROWS = {
  { "resnet18", "BasicBlock", { 2, 2, 2, 2 } },
  { "resnet34", "BasicBlock", { 3, 4, 6, 3 } },
  { "resnet50", "Bottleneck", { 3, 4, 6, 3 } },
  { "resnet101", "Bottleneck", { 3, 4, 23, 3 } },
  { "resnet152", "Bottleneck", { 3, 8, 36, 3 } },
  { "resnext50_32x4d", "Bottleneck", { 3, 4, 6, 3 }, 32, 4 },
  { "resnext101_32x8d", "Bottleneck", { 3, 4, 23, 3 }, 32, 8 },
  { "resnext101_64x4d", "Bottleneck", { 3, 4, 23, 3 }, 64, 4 },
  { "wide_resnet50_2", "Bottleneck", { 3, 4, 6, 3 }, 1, 128 },
  { "wide_resnet101_2", "Bottleneck", { 3, 4, 23, 3 }, 1, 128 },
}

for _, row in ipairs(ROWS) do
  local name, block, layers, groups, width = table.unpack(row)
  local arguments = ARGUMENTS:gsub("groups=1", "groups=" .. (groups or 1))
    :gsub("group=64", "group=" .. (width or 64))
  building.builder(M, name, arguments, function(a)
    return M.ResNet(M[block], layers, a)
  end)
end

classes.space("torchvision.models.resnet", M)

return M
