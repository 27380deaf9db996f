--- The networks that are timed, on our side; peers/networks.py has the same with
--- the same names of parameters, so that weights can be exchanged by name.
local nn = require("torch.nn")
local torch = require("torch")
local F = nn.functional

local M = {}

function M.mlp()
  return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
    nn.Linear(512, 10))
end

function M.cnn()
  return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
end

--- The model of examples/fashion_mnist.lua.
function M.demo()
  return nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
end

-- ---- a residual network (He et al., 2016), of basic blocks, for 32x32 ----------

local Residual = nn.Module:extend("Residual")

function Residual:init(from, to, stride)
  self.conv1 = nn.Conv2d(from, to, 3, { stride = stride, padding = 1, bias = false })
  self.norm1 = nn.BatchNorm2d(to)
  self.conv2 = nn.Conv2d(to, to, 3, { padding = 1, bias = false })
  self.norm2 = nn.BatchNorm2d(to)
  if stride > 1 or from ~= to then
    self.short = nn.Sequential(nn.Conv2d(from, to, 1, { stride = stride, bias = false }),
      nn.BatchNorm2d(to))
  end
end

function Residual:forward(x)
  local y = F.relu(self.norm1(self.conv1(x)))
  y = self.norm2(self.conv2(y))
  return F.relu(y + (self.short and self.short(x) or x))
end

function M.resnet18()
  local layers = { nn.Conv2d(3, 64, 3, { padding = 1, bias = false }), nn.BatchNorm2d(64),
    nn.ReLU() }
  local from = 64
  for stage, to in ipairs({ 64, 128, 256, 512 }) do
    layers[#layers + 1] = Residual(from, to, stage > 1 and 2 or 1)
    layers[#layers + 1] = Residual(to, to, 1)
    from = to
  end
  layers[#layers + 1] = nn.AdaptiveAvgPool2d(1)
  layers[#layers + 1] = nn.Flatten()
  layers[#layers + 1] = nn.Linear(512, 10)
  return nn.Sequential(table.unpack(layers))
end

-- ---- an LSTM over characters ----------------------------------------------------

local Reader = nn.Module:extend("Reader")

function Reader:init(vocabulary, width)
  self.embedding = nn.Embedding(vocabulary, width)
  self.lstm = nn.LSTM(width, width, { batch_first = true })
  self.head = nn.Linear(width, vocabulary)
end

function Reader:forward(ids)
  return self.head((self.lstm(self.embedding(ids)))):flatten(0, 1)
end

function M.lstm()
  return Reader(65, 256)
end

-- ---- a GPT: pre-norm, exact GELU, untied head without bias -----------------------

local Layer = nn.Module:extend("Layer")

function Layer:init(width, heads)
  self.heads = heads
  self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.qkv = nn.Linear(width, 3 * width)
  self.proj = nn.Linear(width, width)
  self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
end

function Layer:forward(x)
  local b, t, d = table.unpack(x:size())
  local q, k, v = table.unpack(self.qkv(self.norm1(x)):split(d, -1))
  local function parted(y)
    return y:view({ b, t, self.heads, d // self.heads }):transpose(1, 2)
  end
  local y = F.scaled_dot_product_attention(parted(q), parted(k), parted(v), { is_causal = true })
  x = x + self.proj(y:transpose(1, 2):reshape({ b, t, d }))
  return x + self.mlp(self.norm2(x))
end

local GPT = nn.Module:extend("GPT")

function GPT:init(layers, width, heads, length, vocabulary)
  self.token = nn.Embedding(vocabulary, width)
  self.position = nn.Embedding(length, width)
  self.layers = nn.ModuleList()
  for _ = 1, layers do
    self.layers:append(Layer(width, heads))
  end
  self.norm = nn.LayerNorm(width)
  self.head = nn.Linear(width, vocabulary, { bias = false })
end

function GPT:forward(ids)
  local x = self.token(ids) + self.position(torch.arange(ids:size(1)))
  for _, layer in ipairs(self.layers) do
    x = layer(x)
  end
  return self.head(self.norm(x)):flatten(0, 1)
end

--- GPT(layers, width, heads, length, vocabulary)
M.GPT = GPT

function M.gpt_s()
  return GPT(4, 128, 4, 128, 65)
end

function M.gpt_l()
  return GPT(6, 384, 6, 256, 65)
end

-- ---- BERT-base (Devlin et al., 2019), with a label for each token ----------------

local Encoder = nn.Module:extend("Encoder")

function Encoder:init(width, heads)
  self.heads = heads
  self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
  self.value, self.proj = nn.Linear(width, width), nn.Linear(width, width)
  self.norm1 = nn.LayerNorm(width, { eps = 1e-12 })
  self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
  self.norm2 = nn.LayerNorm(width, { eps = 1e-12 })
end

function Encoder:forward(x)
  local b, t, d = table.unpack(x:size())
  local function parted(y)
    return y:view({ b, t, self.heads, d // self.heads }):transpose(1, 2)
  end
  local y = F.scaled_dot_product_attention(parted(self.query(x)), parted(self.key(x)),
    parted(self.value(x)))
  x = self.norm1(x + self.proj(y:transpose(1, 2):reshape({ b, t, d })))
  return self.norm2(x + self.mlp(x))
end

local BERT = nn.Module:extend("BERT")

function BERT:init(layers, width, heads, length, vocabulary, labels)
  self.token = nn.Embedding(vocabulary, width)
  self.position = nn.Embedding(length, width)
  self.kind = nn.Embedding(2, width)
  self.norm = nn.LayerNorm(width, { eps = 1e-12 })
  self.layers = nn.ModuleList()
  for _ = 1, layers do
    self.layers:append(Encoder(width, heads))
  end
  self.head = nn.Linear(width, labels)
end

function BERT:forward(ids)
  local x = self.token(ids) + self.position(torch.arange(ids:size(1)))
    + self.kind(torch.zeros_like(ids))
  x = self.norm(x)
  for _, layer in ipairs(self.layers) do
    x = layer(x)
  end
  return self.head(x):flatten(0, 1)
end

function M.bert()
  return BERT(12, 768, 12, 512, 30522, 9)
end

return M
