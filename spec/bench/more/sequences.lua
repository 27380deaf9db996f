--- The networks of text, sound and tables of the second set (workloads.lua beside),
--- on our side; ../peers/more.py has the same with the same names of parameters.
local nn = require("torch.nn")
local torch = require("torch")
local F = nn.functional

local M = {}

-- ---- GPT-2 (Radford et al., 2019): 124 million weights, a tied head -------------------

local Layer = nn.Module:extend("Layer")

function Layer:init(width, heads)
  self.heads = heads
  self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
  self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"),
    nn.Linear(4 * width, width))
end

-- With `attend`, that is attention of one new token; else of all, each to those before.
function Layer:forward(x, attend)
  local b, t, d = table.unpack(x:size())
  local qkv = self.qkv(self.norm1(x)):view({ b, t, 3, self.heads, d // self.heads })
  local q, k, v = table.unpack(qkv:permute(2, 0, 3, 1, 4):unbind(0))
  local y = attend and attend(q, k, v)
    or F.scaled_dot_product_attention(q, k, v, { is_causal = true })
  x = x + self.proj(y:transpose(1, 2):reshape({ b, t, d }))
  return x + self.mlp(self.norm2(x))
end

local GPT2 = nn.Module:extend("GPT2")

function GPT2:init(layers, width, heads, length, vocabulary)
  self.token = nn.Embedding(vocabulary, width)
  self.position = nn.Embedding(length, width)
  for _, table_of in ipairs({ self.token, self.position }) do
    nn.init.normal_(table_of.weight, 0, 0.02)
  end
  self.layers = nn.ModuleList()
  for _ = 1, layers do
    self.layers:append(Layer(width, heads))
  end
  self.norm = nn.LayerNorm(width)
  self.head = nn.Linear(width, vocabulary, { bias = false })
  self.head.weight = self.token.weight
end

function GPT2:forward(ids)
  local x = self.token(ids) + self.position(torch.arange(ids:size(1)))
  for _, layer in ipairs(self.layers) do
    x = layer(x)
  end
  return self.head(self.norm(x)):flatten(0, 1)
end

function M.gpt2()
  return GPT2(12, 768, 12, 1024, 50257)
end

-- One token at a time: keys and values of those before are kept in buffers.
local Writer = GPT2:extend("Writer")

function Writer:init(layers, width, heads, length, vocabulary)
  GPT2.init(self, layers, width, heads, length, vocabulary)
  self.length = length
  for i = 0, layers - 1 do
    for _, name in ipairs({ "keys", "values" }) do
      self:register_buffer(name .. i, torch.zeros(1, heads, length, width // heads))
    end
  end
end

-- The token's attention to itself and those before it.
function Writer:attend(i, place, seen, q, k, v)
  local keys, values = self["keys" .. i], self["values" .. i]
  keys:index_copy_(2, place, k)
  values:index_copy_(2, place, v)
  return F.scaled_dot_product_attention(q, keys, values, seen)
end

function Writer:forward(ids, place)
  place = place:flatten()
  local x = self.token(ids) + self.position(place)
  local seen = torch.arange(self.length):le(place):view(1, 1, 1, self.length)
  for i, layer in ipairs(self.layers) do
    x = layer(x, function(q, k, v)
      return self:attend(i - 1, place, seen, q, k, v)
    end)
  end
  return self.head(self.norm(x)):flatten(0, 1)
end

function M.writer()
  return Writer(12, 768, 12, 256, 50257)
end

-- ---- a Transformer from one language to another (Vaswani et al., 2017) ------------------

local Translator = nn.Module:extend("Translator")

function Translator:init(width, words, length)
  self.source, self.text = nn.Embedding(words, width), nn.Embedding(words, width)
  self.position = nn.Embedding(length, width)
  self.body = nn.Transformer(width, 4, 3, 3, 4 * width, { dropout = 0, batch_first = true })
  self.head = nn.Linear(width, words)
end

-- Id 0 pads. The target is the text that is read, a place later.
function Translator:forward(source, text, target)
  local n = source:size(1)
  local places = self.position(torch.arange(n))
  local later = torch.ones(n, n, { dtype = torch.bool }):triu(1)
  local padding = source:eq(0)
  local y = self.body(self.source(source) + places, self.text(text) + places, { tgt_mask = later,
    src_key_padding_mask = padding, memory_key_padding_mask = padding,
    tgt_key_padding_mask = text:eq(0), tgt_is_causal = true })
  return F.cross_entropy(self.head(y):flatten(0, 1), target:flatten(), { ignore_index = 0 })
end

function M.translator()
  return Translator(256, 4000, 64)
end

-- ---- a bidirectional GRU over padded sentences ------------------------------------------

local Tagger = nn.Module:extend("Tagger")

function Tagger:init(words, width, tags)
  self.embedding = nn.Embedding(words, width, { padding_idx = 0 })
  self.gru = nn.GRU(width, width, 2, { batch_first = true, bidirectional = true })
  self.head = nn.Linear(2 * width, tags)
end

-- Places whose id is 0 count nowhere in the loss.
function Tagger:forward(ids, target)
  local y = self.head((self.gru(self.embedding(ids)))):flatten(0, 1)
  return F.cross_entropy(y, target:flatten(), { ignore_index = 0 })
end

function M.tagger()
  return Tagger(5000, 192, 20)
end

-- ---- large tables and a perceptron (DLRM, Naumov et al., 2019) ---------------------------

local Recommender = nn.Module:extend("Recommender")

local function perceptron(widths)
  local layers = {}
  for i = 2, #widths do
    layers[#layers + 1] = nn.Linear(widths[i - 1], widths[i])
    layers[#layers + 1] = nn.ReLU()
  end
  layers[#layers] = nil
  return nn.Sequential(table.unpack(layers))
end

function Recommender:init(tables, rows, width)
  self.tables = nn.ModuleList()
  for _ = 1, tables do
    self.tables:append(nn.EmbeddingBag(rows, width, { mode = "sum" }))
  end
  self.bottom = perceptron({ 13, 128, 64, width })
  self.top = perceptron({ width + (tables + 1) * tables // 2, 256, 128, 2 })
  local n = tables + 1
  self:register_buffer("pairs", torch.ones(n, n):tril(-1):flatten():nonzero():flatten(),
    { persistent = false })
end

function Recommender:forward(real, ids)
  local x = self.bottom(real)
  local all = { x }
  for i, bag in ipairs(self.tables) do
    all[i + 1] = bag(ids:select(1, i - 1))
  end
  local each = torch.stack(all, 1)
  local products = each:matmul(each:transpose(1, 2)):flatten(1)
  return self.top(torch.cat({ x, products:index_select(1, self.pairs) }, 1))
end

function M.recommender()
  return Recommender(8, 100000, 16)
end

-- ---- WaveNet (van den Oord et al., 2016) -------------------------------------------------

local Dilated = nn.Module:extend("Dilated")

function Dilated:init(width, skip, dilation)
  self.before = dilation
  self.gates = nn.Conv1d(width, 2 * width, 2, { dilation = dilation })
  self.skip, self.out = nn.Conv1d(width, skip, 1), nn.Conv1d(width, width, 1)
end

function Dilated:forward(x)
  local a, b = table.unpack(self.gates(F.pad(x, { self.before, 0 })):chunk(2, 1))
  local y = torch.tanh(a) * torch.sigmoid(b)
  return x + self.out(y), self.skip(y)
end

local WaveNet = nn.Module:extend("WaveNet")

function WaveNet:init(width, skip, layers)
  self.embedding = nn.Embedding(256, width)
  self.layers = nn.ModuleList()
  for i = 1, layers do
    self.layers:append(Dilated(width, skip, 1 << (i - 1)))
  end
  self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(),
    nn.Conv1d(skip, 256, 1))
end

function WaveNet:forward(ids)
  local x, sum = self.embedding(ids):transpose(1, 2), nil
  for _, layer in ipairs(self.layers) do
    local skip
    x, skip = layer(x)
    sum = sum and sum + skip or skip
  end
  return self.head(sum)
end

function M.wavenet()
  return WaveNet(64, 128, 10)
end

-- ---- a Conformer (Gulati et al., 2020) ----------------------------------------------------

local Conformer = nn.Module:extend("Conformer")

local function feed(width)
  return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(),
    nn.Linear(4 * width, width))
end

function Conformer:init(width, heads, kernel)
  self.feed1, self.feed2 = feed(width), feed(width)
  self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.attention = nn.MultiheadAttention(width, heads, { batch_first = true })
  self.conv = nn.Sequential(nn.Conv1d(width, 2 * width, 1), nn.GLU(1),
    nn.Conv1d(width, width, kernel, { padding = kernel // 2, groups = width }),
    nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1))
  self.norm = nn.LayerNorm(width)
end

function Conformer:forward(x)
  x = x + self.feed1(x) * 0.5
  local y = self.norm1(x)
  x = x + self.attention(y, y, y, { need_weights = false })
  x = x + self.conv(self.norm2(x):transpose(1, 2)):transpose(1, 2)
  return self.norm(x + self.feed2(x) * 0.5)
end

local Mean = nn.Module:extend("Mean")

function Mean.forward(_, x)
  return x:mean(1)
end

function M.conformer()
  return nn.Sequential(nn.Linear(80, 144), Conformer(144, 4, 31), Conformer(144, 4, 31), Mean(),
    nn.Linear(144, 30))
end

return M
