-- A character-level GPT learns the King James Bible: 3 pre-norm blocks of causal
-- attention and an MLP, 0.6 million parameters, AdamW, 64 characters at a time.
-- The loss falls from 4.3 (all 63 characters equally likely) to about 1.9 nats
-- a character; then the model goes on with a text of its own.
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")
local nn, F = torch.nn, torch.nn.functional

local LENGTH, WIDTH, HEADS, LAYERS = 64, 128, 4, 3
local BATCH, STEPS, PER_CALL, LEARNING_RATE = 32, 300, 10, 2e-3

local Layer = nn.Module:extend("Layer")

function Layer:init()
  self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
  self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
  self.proj = nn.Linear(WIDTH, WIDTH)
  self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
end

function Layer:forward(x)
  local b, t = x:size(0), x:size(1)
  local heads = self.qkv(self.norm1(x)):reshape({ b, t, 3, HEADS, WIDTH // HEADS })
  local q, k, v = table.unpack(heads:permute({ 2, 0, 3, 1, 4 }):unbind(0))
  local y = F.scaled_dot_product_attention(q, k, v, { is_causal = true })
  x = x + self.proj(y:transpose(1, 2):reshape({ b, t, WIDTH }))
  return x + self.mlp(self.norm2(x))
end

local GPT = nn.Module:extend("GPT")

function GPT:init(vocabulary)
  self.token = nn.Embedding(vocabulary, WIDTH)
  self.position = nn.Embedding(LENGTH, WIDTH)
  self.layers = nn.ModuleList()
  for _ = 1, LAYERS do
    self.layers:append(Layer())
  end
  self.norm = nn.LayerNorm(WIDTH)
  self.head = nn.Linear(WIDTH, vocabulary)
end

function GPT:forward(ids, target)
  local x = self.token(ids) + self.position(torch.arange(ids:size(1)))
  for _, layer in ipairs(self.layers) do
    x = layer(x)
  end
  local logits = self.head(self.norm(x))
  if target then
    return F.cross_entropy(logits:flatten(0, 1), target:flatten())
  end
  return logits
end

-- Pieces of the text at random, and the same a character on.
local function pieces(ids, n)
  local at = torch.randint(0, ids:size(0) - LENGTH, { n, 1 }) + torch.arange(LENGTH)
  return ids[at], ids[at + 1]
end

local function train(model, ids)
  local opts = poptorch.Options():deviceIterations(PER_CALL)
  opts:outputMode(poptorch.OutputMode.All)
  local optimizer = torch.optim.AdamW(model:parameters(), { lr = LEARNING_RATE })
  local trainer = poptorch.trainingModel(model, opts, optimizer)
  local bar <close> = lupine.progress(STEPS, { desc = "training", unit = "steps" })
  local first, last
  for step = PER_CALL, STEPS, PER_CALL do
    optimizer.param_groups[1].lr = LEARNING_RATE * (1 - 0.9 * step / STEPS)
    trainer:setOptimizer(optimizer)
    local losses = trainer(pieces(ids, BATCH * PER_CALL))
    first, last = first or losses[0]:item(), losses:mean():item()
    bar:update(PER_CALL, { loss = last })
  end
  trainer:destroy()
  return first, last
end

-- Goes on with a text, a character at a time.
local function continue(model, text, n, characters)
  local place = {}
  for i, c in ipairs(characters) do
    place[c] = i - 1
  end
  local seen = {}
  for c in text:gmatch(".") do
    seen[#seen + 1] = place[c]
  end
  model:eval()
  local _ <close> = torch.no_grad()
  for _ = 1, n do
    local window = { table.unpack(seen, math.max(1, #seen - LENGTH + 1)) }
    local logits = model(torch.tensor({ window }))[0][-1]
    seen[#seen + 1] = torch.multinomial(F.softmax(logits / 0.8, -1), 1):item()
    text = text .. characters[seen[#seen] + 1]
  end
  return text
end

local text, missing = lupine.datasets.KingJamesBible()
if not text then
  io.stderr:write(missing, "\n")
  os.exit(1)
end
torch.manual_seed(1)
local ids, characters = lupine.datasets.characters(text)
local model = GPT(#characters)
local first, last = train(model, ids)
print(continue(model, "And God said, ", 200, characters))
print(("char_gpt: first_loss=%.2f last_loss=%.2f"):format(first, last))
