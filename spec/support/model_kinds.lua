--- Ten kinds of models, small: name -> {class, function that makes the
--- arguments of forward}; forward gives the outputs and the loss.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn
local F = nn.functional
local rnn = nn.utils.rnn

local M = {}

local function kind(name, arguments)
  local cls = nn.Module:extend(name)
  M[name] = { cls, arguments }
  return cls
end

-- ---- words -----------------------------------------------------------------

local Tagger = kind("PackedTagger", function()
  return torch.randint(0, 20, { 3, 5 }), torch.tensor({ { 0, 1, 2, 3, 0 },
    { 1, 2, 3, -100, -100 }, { 0, 0, 1, 2, -100 } })
end)

function Tagger:init()
  self.words = nn.Embedding(20, 6, { padding_idx = 0 })
  self.layers = nn.LSTM(6, 5, { bidirectional = true, batch_first = true, num_layers = 2 })
  self.tags = nn.Linear(10, 4)
end

function Tagger:forward(x, y)
  local options = { batch_first = true, enforce_sorted = false }
  local h = self.layers(rnn.pack_padded_sequence(self.words(x), { 5, 3, 4 }, options))
  local out = self.tags((rnn.pad_packed_sequence(h, { batch_first = true })))
  return out, F.cross_entropy(out:reshape(-1, 4), y:reshape(-1))
end

local Translator = kind("AttendingTranslator", function()
  return torch.randint(0, 12, { 4, 6 }), torch.randint(0, 12, { 4, 5 })
end)

function Translator:init()
  self.words = nn.Embedding(12, 8)
  self.encoder, self.cell = nn.GRU(8, 8, { batch_first = true }), nn.GRUCell(16, 8)
  self.mix, self.score = nn.Linear(16, 8), nn.Linear(8, 1, { bias = false })
  self.out = nn.Linear(16, 12)
end

function Translator:forward(source, target)
  local all, last = self.encoder(self.words(source))
  local h, word, outs = last[0], torch.zeros_like(target:select(1, 0)), {}
  for t = 0, target:size(1) - 1 do
    local query = h:unsqueeze(1):expand(-1, all:size(1), -1)
    local e = self.score(self.mix(torch.cat({ all, query }, -1)):tanh()):squeeze(-1)
    local context = torch.bmm(F.softmax(e, -1):unsqueeze(1), all):squeeze(1)
    h = self.cell(torch.cat({ self.words(word), context }, -1), h)
    outs[#outs + 1] = self.out(torch.cat({ h, context }, -1))
    word = target:select(1, t)
  end
  local out = torch.stack(outs, 1)
  return out, F.cross_entropy(out:transpose(1, 2), target, { label_smoothing = 0.1 })
end

local Decoder = kind("CachingDecoder", function()
  return torch.randint(0, 11, { 2, 7 })
end)

function Decoder:init()
  self.words, self.norm, self.out = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11)
  self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
  self:register_buffer("keys", torch.zeros(2, 6, 8))
end

function Decoder:forward(x)
  local n, outs = x:size(1) - 1, {}
  local keys, values = torch.zeros(x:size(0), n, 8), torch.zeros(x:size(0), n, 8)
  for t = 0, n - 1 do
    local h = self.norm(self.words(x:select(1, t)))
    keys = keys:index_copy(1, torch.tensor({ t }), self.key(h):unsqueeze(1))
    values = torch.slice_scatter(values, self.value(h):unsqueeze(1), 1, t, t + 1)
    local attended = F.scaled_dot_product_attention(self.query(h):unsqueeze(1),
      keys:narrow(1, 0, t + 1), values:narrow(1, 0, t + 1)):squeeze(1)
    outs[t + 1] = self.out(h + attended)
  end
  torch.no_grad(function()
    self.keys[":, 0:3"] = keys:detach()[":, 0:3"]
  end)
  local out = torch.stack(outs, 1)
  return out, F.cross_entropy(out:reshape(-1, 11), x:narrow(1, 1, n):reshape(-1))
end

-- ---- images ----------------------------------------------------------------

local UNet = kind("UNet", function()
  return torch.randn(2, 1, 8, 8), torch.randint(0, 2, { 2, 8, 8 })
end)

local function block(inputs, outputs)
  return nn.Sequential(nn.Conv2d(inputs, outputs, 3, { padding = 1 }), nn.BatchNorm2d(outputs),
    nn.ReLU())
end

function UNet:init()
  self.down1, self.down2, self.middle = block(1, 4), block(4, 8), block(8, 8)
  self.pool, self.rise2 = nn.MaxPool2d(2), nn.ConvTranspose2d(8, 8, 2, { stride = 2 })
  self.rise1 = nn.Upsample({ scale_factor = 2, mode = "bilinear" })
  self.up2, self.up1, self.out = block(16, 4), block(8, 4), nn.Conv2d(4, 2, 1)
end

function UNet:forward(x, y)
  local a = self.down1(x)
  local b = self.down2(self.pool(a))
  local c = self.middle(self.pool(b))
  local up = self.up2(torch.cat({ self.rise2(c), b }, 1))
  local out = self.out(self.up1(torch.cat({ self.rise1(up), a }, 1)))
  return out, F.cross_entropy(out, y)
end

local ViT = kind("VisionTransformer", function()
  return torch.randn(3, 3, 8, 8), torch.randint(0, 5, { 3 })
end)

function ViT:init()
  self.patches = nn.Conv2d(3, 16, 4, { stride = 4 })
  self.class = nn.Parameter(torch.randn(1, 1, 16) * 0.02)
  self.places = nn.Parameter(torch.randn(1, 5, 16) * 0.02)
  self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, { dropout = 0.0,
    batch_first = true, norm_first = true, activation = "gelu" }), 2)
  self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 5)
end

function ViT:forward(x, y)
  local p = self.patches(x):flatten(2):transpose(1, 2)
  p = torch.cat({ self.class:expand(p:size(0), -1, -1), p }, 1) + self.places
  local out = self.out(self.norm(self.layers(p)):select(1, 0))
  return out, F.cross_entropy(out, y)
end

local VAE = kind("VariationalEncoder", function()
  return torch.rand(5, 10), torch.randn(5, 3)
end)

function VAE:init()
  self.encoder, self.mean, self.spread = nn.Linear(10, 8), nn.Linear(8, 3), nn.Linear(8, 3)
  self.decoder = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 10))
end

-- The noise is an input: programs have random numbers of their own.
function VAE:forward(x, noise)
  local D, h = torch.distributions, F.elu(self.encoder(x))
  local mean, scale = self.mean(h), (0.5 * self.spread(h)):exp()
  local out = self.decoder(mean + noise * scale)
  local far = D.kl_divergence(D.Normal(mean, scale),
    D.Normal(torch.zeros_like(mean), torch.ones_like(mean)))
  local near = F.binary_cross_entropy_with_logits(out, x, { reduction = "sum" }) / x:size(0)
  return out, poptorch.identity_loss(near + far:sum(1):mean(), "none")
end

-- ---- signals, graphs, choices --------------------------------------------------

local Siamese = kind("Siamese", function()
  return torch.randn(4, 2, 9), torch.randn(4, 2, 9), torch.tensor({ 1, -1, 1, -1 })
end)

function Siamese:init()
  self.net = nn.Sequential(nn.Conv1d(2, 6, 3, { padding = 1 }), nn.Tanh(),
    nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(12, 5))
  self.loss = nn.CosineEmbeddingLoss({ margin = 0.2 })
end

function Siamese:forward(a, b, y)
  local left, right = self.net(a), self.net(b)
  return F.cosine_similarity(left, right), self.loss(left, right, y)
end

local Speech = kind("CTCSpeech", function()
  return torch.randn(3, 5, 10), torch.randint(1, 5, { 3, 4 }), torch.tensor({ 10, 9, 8 }),
    torch.tensor({ 4, 3, 2 })
end)

function Speech:init()
  self.conv, self.norm = nn.Conv1d(5, 8, 3, { padding = 1 }), nn.GroupNorm(2, 8)
  self.layer = nn.LSTM(8, 6, { bidirectional = true, batch_first = true })
  self.out = nn.Linear(12, 5)
end

function Speech:forward(x, y, lengths, target_lengths)
  local h = self.layer(F.relu(self.norm(self.conv(x))):transpose(1, 2))
  local out = F.log_softmax(self.out(h), -1):transpose(0, 1)
  return out, F.ctc_loss(out, y, lengths, target_lengths)
end

local Graph = kind("GraphNetwork", function()
  return torch.randn(6, 4), torch.randint(0, 6, { 6 }), torch.randint(0, 6, { 6 }),
    torch.randint(0, 3, { 6 })
end)

function Graph:init()
  self.first, self.each, self.out = nn.Linear(4, 8), nn.Linear(16, 8), nn.Linear(8, 3)
  self.norm = nn.LayerNorm(8)
end

function Graph:forward(x, from, to, y)
  local h, index = self.first(x):relu(), to:unsqueeze(1):expand(-1, 8)
  for _ = 1, 2 do
    local message = h:index_select(0, from)
    local sum = torch.zeros_like(h):scatter_add(0, index, message)
    local most = torch.zeros_like(h):scatter_reduce(0, index, message, "amax")
    local degree = torch.zeros(6):index_add(0, to, torch.ones(6)):clamp_min(1):unsqueeze(1)
    h = self.norm(h + self.each(torch.cat({ sum / degree, most }, 1)):relu())
  end
  local out = self.out(h)
  return out, F.nll_loss(F.log_softmax(out, 1), y)
end

local Experts = kind("ExpertMixture", function()
  return torch.randn(8, 6), torch.randint(0, 3, { 8 })
end)

function Experts:init()
  self.gate, self.out, self.experts = nn.Linear(6, 4), nn.Linear(6, 3), nn.ModuleList({})
  for _ = 1, 4 do
    self.experts:append(nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 6)))
  end
end

function Experts:forward(x, y)
  local gates, mixed = F.softmax(self.gate(x), -1), torch.zeros_like(x)
  local share, chosen = gates:topk(2, -1)
  share = share / share:sum(-1, { keepdim = true })
  for e = 0, 3 do
    local w = (share * chosen:eq(e):to(share.dtype)):sum(-1, { keepdim = true })
    mixed = mixed + w * self.experts[e + 1](x)
  end
  local load = F.one_hot(chosen, 4):to(x.dtype):sum(1):mean(0)
  local balance = 4 * (load * gates:mean(0)):sum()
  local out = self.out(mixed)
  return out, poptorch.identity_loss(F.cross_entropy(out, y) + 0.01 * balance, "none")
end

return M
