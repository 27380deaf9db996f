--- The networks of images of the second set (workloads.lua beside), on our side;
--- ../peers/more.py has the same with the same names of parameters.
local nn = require("torch.nn")
local torch = require("torch")
local F = nn.functional

local M = {}

-- ---- ConvNeXt (Liu et al., 2022), fewer blocks ------------------------------------

-- LayerNorm over the channels of an image.
local ChannelNorm = nn.Module:extend("ChannelNorm")

function ChannelNorm:init(width)
  self.norm = nn.LayerNorm(width, { eps = 1e-6 })
end

function ChannelNorm:forward(x)
  return self.norm(x:permute(0, 2, 3, 1)):permute(0, 3, 1, 2)
end

local Next = nn.Module:extend("Next")

function Next:init(width)
  self.depthwise = nn.Conv2d(width, width, 7, { padding = 3, groups = width })
  self.norm = nn.LayerNorm(width, { eps = 1e-6 })
  self.wide = nn.Linear(width, 4 * width)
  self.narrow = nn.Linear(4 * width, width)
  self.scale = nn.Parameter(torch.full({ width }, 0.1))
end

function Next:forward(x)
  local y = self.norm(self.depthwise(x):permute(0, 2, 3, 1))
  y = self.scale * self.narrow(F.gelu(self.wide(y)))
  return x + y:permute(0, 3, 1, 2)
end

function M.convnext()
  local layers, from = {}, nil
  for stage, width in ipairs({ 96, 192, 384, 768 }) do
    if not from then
      layers = { nn.Conv2d(3, width, 4, { stride = 4 }), ChannelNorm(width) }
    else
      layers[#layers + 1] = ChannelNorm(from)
      layers[#layers + 1] = nn.Conv2d(from, width, 2, { stride = 2 })
    end
    for _ = 1, stage == 3 and 3 or 1 do
      layers[#layers + 1] = Next(width)
    end
    from = width
  end
  layers[#layers + 1] = nn.AdaptiveAvgPool2d(1)
  layers[#layers + 1] = nn.Flatten()
  layers[#layers + 1] = nn.LayerNorm(768, { eps = 1e-6 })
  layers[#layers + 1] = nn.Linear(768, 100)
  return nn.Sequential(table.unpack(layers))
end

-- ---- convolution, normalisation, activation ----------------------------------------

local function normed(from, to, kernel, stride, groups, act)
  local layers = nn.Sequential(nn.Conv2d(from, to, kernel, { stride = stride,
    padding = kernel // 2, groups = groups, bias = false }), nn.BatchNorm2d(to))
  return act and layers:append(act()) or layers
end

-- ---- MobileNetV2 (Sandler et al., 2018) --------------------------------------------

local Inverted = nn.Module:extend("Inverted")

function Inverted:init(from, to, stride, wider)
  local width = from * wider
  self.adds = stride == 1 and from == to
  local layers = { normed(width, width, 3, stride, width, nn.ReLU6), normed(width, to, 1, 1, 1) }
  if wider > 1 then
    table.insert(layers, 1, normed(from, width, 1, 1, 1, nn.ReLU6))
  end
  self.layers = nn.Sequential(table.unpack(layers))
end

function Inverted:forward(x)
  local y = self.layers(x)
  return self.adds and x + y or y
end

-- How much wider a block is inside, channels, blocks, stride of the first.
local MOBILE = { { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 }, { 6, 64, 4, 2 },
  { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 } }

function M.mobilenet()
  local layers, from = { normed(3, 32, 3, 2, 1, nn.ReLU6) }, 32
  for _, row in ipairs(MOBILE) do
    for i = 1, row[3] do
      layers[#layers + 1] = Inverted(from, row[2], i == 1 and row[4] or 1, row[1])
      from = row[2]
    end
  end
  layers[#layers + 1] = normed(from, 1280, 1, 1, 1, nn.ReLU6)
  layers[#layers + 1] = nn.AdaptiveAvgPool2d(1)
  layers[#layers + 1] = nn.Flatten()
  layers[#layers + 1] = nn.Linear(1280, 1000)
  return nn.Sequential(table.unpack(layers))
end

-- ---- ResNet-50 (He et al., 2016) ----------------------------------------------------

local Bottleneck = nn.Module:extend("Bottleneck")

function Bottleneck:init(from, width, stride)
  self.layers = nn.Sequential(normed(from, width, 1, 1, 1, nn.ReLU),
    normed(width, width, 3, stride, 1, nn.ReLU), normed(width, 4 * width, 1, 1, 1))
  if stride > 1 or from ~= 4 * width then
    self.short = normed(from, 4 * width, 1, stride, 1)
  end
end

function Bottleneck:forward(x)
  return F.relu(self.layers(x) + (self.short and self.short(x) or x))
end

function M.resnet50()
  local layers = { normed(3, 64, 7, 2, 1, nn.ReLU), nn.MaxPool2d(3, { stride = 2, padding = 1 }) }
  local from = 64
  for stage, blocks in ipairs({ 3, 4, 6, 3 }) do
    local width = 32 << stage
    for i = 1, blocks do
      layers[#layers + 1] = Bottleneck(from, width, i == 1 and stage > 1 and 2 or 1)
      from = 4 * width
    end
  end
  layers[#layers + 1] = nn.AdaptiveAvgPool2d(1)
  layers[#layers + 1] = nn.Flatten()
  layers[#layers + 1] = nn.Linear(2048, 1000)
  return nn.Sequential(table.unpack(layers))
end

-- ---- U-Net (Ronneberger et al., 2015), with normalisation ---------------------------

local function double(from, to)
  return nn.Sequential(normed(from, to, 3, 1, 1, nn.ReLU), normed(to, to, 3, 1, 1, nn.ReLU))
end

local UNet = nn.Module:extend("UNet")

function UNet:init(width, levels, classes)
  self.down, self.up, self.wide = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
  self.down:append(double(3, width))
  for i = 1, levels do
    local to = width << i
    self.down:append(double(to // 2, to))
    self.up:append(nn.ConvTranspose2d(to, to // 2, 2, { stride = 2 }))
    self.wide:append(double(to, to // 2))
  end
  self.head = nn.Conv2d(width, classes, 1)
end

function UNet:forward(x)
  local skips = {}
  for i, layer in ipairs(self.down) do
    x = layer(i > 1 and F.max_pool2d(x, 2) or x)
    skips[i] = x
  end
  for i = #skips - 1, 1, -1 do
    x = self.wide[i](torch.cat({ skips[i], self.up[i](x) }, 1))
  end
  return self.head(x)
end

function M.unet()
  return UNet(32, 3, 4)
end

-- ---- a VAE (Kingma and Welling, 2014) of convolutions -------------------------------

local VAE = nn.Module:extend("VAE")

function VAE:init(width, latent)
  local down = { stride = 2, padding = 1 }
  self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, down), nn.ReLU(),
    nn.Conv2d(width, 2 * width, 4, down), nn.ReLU(),
    nn.Conv2d(2 * width, 4 * width, 4, down), nn.ReLU(), nn.Flatten())
  self.mean = nn.Linear(64 * width, latent)
  self.spread = nn.Linear(64 * width, latent)
  self.wide = nn.Linear(latent, 64 * width)
  self.decoder = nn.Sequential(nn.Unflatten(1, { 4 * width, 4, 4 }),
    nn.ConvTranspose2d(4 * width, 2 * width, 4, down), nn.ReLU(),
    nn.ConvTranspose2d(2 * width, width, 4, down), nn.ReLU(),
    nn.ConvTranspose2d(width, 3, 4, down), nn.Sigmoid())
end

function VAE:forward(x, noise)
  local y = self.encoder(x)
  local mean, spread = self.mean(y), self.spread(y)
  local z = mean + noise * torch.exp(spread * 0.5)
  local made = self.decoder(self.wide(z))
  local apart = (spread + 1 - mean:pow(2) - spread:exp()):mean() * -0.5
  return F.mse_loss(made, x) + apart
end

function M.vae()
  return VAE(32, 64)
end

-- ---- DCGAN (Radford et al., 2016), 32x32 ---------------------------------------------

local GAN = nn.Module:extend("GAN")

function GAN:init(width, latent)
  local half = { stride = 2, padding = 1, bias = false }
  self.generator = nn.Sequential(
    nn.ConvTranspose2d(latent, 4 * width, 4, { bias = false }), nn.BatchNorm2d(4 * width),
    nn.ReLU(), nn.ConvTranspose2d(4 * width, 2 * width, 4, half), nn.BatchNorm2d(2 * width),
    nn.ReLU(), nn.ConvTranspose2d(2 * width, width, 4, half), nn.BatchNorm2d(width),
    nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, half), nn.Tanh())
  self.discriminator = nn.Sequential(
    nn.Conv2d(3, width, 4, half), nn.LeakyReLU(0.2),
    nn.Conv2d(width, 2 * width, 4, half), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
    nn.Conv2d(2 * width, 4 * width, 4, half), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
    nn.Conv2d(4 * width, 1, 4, { bias = false }), nn.Flatten(0))
end

--- The generator's loss.
function GAN:forward(_, noise)
  return F.softplus(-self.discriminator(self.generator(noise))):mean()
end

-- The discriminator's loss: a network that shares the GAN's parts.
local Judge = nn.Module:extend("Judge")

function Judge:init(gan)
  self.gan = gan
end

function Judge:forward(real, noise)
  local judge, fake = self.gan.discriminator, self.gan.generator(noise):detach()
  return F.softplus(-judge(real)):mean() + F.softplus(judge(fake)):mean()
end

function M.gan()
  return GAN(64, 100)
end

--- What a step of a GAN does in turn: a loss, and the part that learns by it.
function M.gan_phases(gan)
  return { { Judge(gan), gan.discriminator }, { gan, gan.generator } }
end

-- ---- ViT (Dosovitskiy et al., 2021) --------------------------------------------------

local Layer = nn.Module:extend("Layer")

function Layer:init(width, heads, dropout)
  self.heads = heads
  self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
  self.drop = nn.Dropout(dropout)
  self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout),
    nn.Linear(4 * width, width), nn.Dropout(dropout))
end

function Layer:forward(x)
  local b, t, d = table.unpack(x:size())
  local qkv = self.qkv(self.norm1(x)):view({ b, t, 3, self.heads, d // self.heads })
  local q, k, v = table.unpack(qkv:permute(2, 0, 3, 1, 4):unbind(0))
  local y = F.scaled_dot_product_attention(q, k, v)
  x = x + self.drop(self.proj(y:transpose(1, 2):reshape({ b, t, d })))
  return x + self.mlp(self.norm2(x))
end

local ViT = nn.Module:extend("ViT")

function ViT:init(width, heads, layers, patch, side, dropout)
  self.patches = nn.Conv2d(3, width, patch, { stride = patch })
  self.kind = nn.Parameter(torch.zeros(1, 1, width))
  local rows = side // patch
  self.position = nn.Parameter(torch.randn(1, rows * rows, width) * 0.02)
  self.drop = nn.Dropout(dropout)
  self.layers = nn.Sequential()
  for _ = 1, layers do
    self.layers:append(Layer(width, heads, dropout))
  end
  self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)
end

function ViT:forward(x)
  x = self.patches(x):flatten(2):transpose(1, 2) + self.position
  x = torch.cat({ self.kind:expand(x:size(0), -1, -1), x }, 1)
  return self.head(self.norm(self.layers(self.drop(x))):select(1, 0))
end

function M.vit()
  return ViT(384, 6, 12, 16, 224, 0.1)
end

-- ---- MLP-Mixer (Tolstikhin et al., 2021) ----------------------------------------------

local Mixer = nn.Module:extend("Mixer")

local function mlp(width, inner)
  return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
end

function Mixer:init(tokens, width)
  self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.tokens, self.channels = mlp(tokens, width // 2), mlp(width, 4 * width)
end

function Mixer:forward(x)
  x = x + self.tokens(self.norm1(x):transpose(1, 2)):transpose(1, 2)
  return x + self.channels(self.norm2(x))
end

local Patches = nn.Module:extend("Patches")

function Patches:init(width)
  self.conv = nn.Conv2d(3, width, 16, { stride = 16 })
end

function Patches:forward(x)
  return self.conv(x):flatten(2):transpose(1, 2)
end

local Mean = nn.Module:extend("Mean")

function Mean.forward(_, x)
  return x:mean(1)
end

function M.mixer()
  local layers = { Patches(256) }
  for _ = 1, 6 do
    layers[#layers + 1] = Mixer(64, 256)
  end
  layers[#layers + 1] = nn.LayerNorm(256)
  layers[#layers + 1] = Mean()
  layers[#layers + 1] = nn.Linear(256, 100)
  return nn.Sequential(table.unpack(layers))
end

return M
