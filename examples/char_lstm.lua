-- An LSTM learns the King James Bible character by character, its state carried
-- from one piece of the text to the next in buffers of the model: 32 readers at
-- 32 places, 64 characters at a time. The loss falls from 4.1 (all characters
-- equally likely) to about 1.7 nats a character.
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")
local nn, F = torch.nn, torch.nn.functional

local LENGTH, WIDTH, BATCH, STEPS, PER_CALL = 64, 192, 32, 200, 10

local Reader = nn.Module:extend("Reader")

function Reader:init(vocabulary)
  self.embedding = nn.Embedding(vocabulary, 64)
  self.lstm = nn.LSTM(64, WIDTH, { batch_first = true })
  self.head = nn.Linear(WIDTH, vocabulary)
  self:register_buffer("h", torch.zeros({ 1, BATCH, WIDTH }))
  self:register_buffer("c", torch.zeros({ 1, BATCH, WIDTH }))
end

function Reader:forward(ids, target)
  local y, state = self.lstm(self.embedding(ids), { self.h, self.c })
  self.h:copy_(state[1]:detach())
  self.c:copy_(state[2]:detach())
  return F.cross_entropy(self.head(y):flatten(0, 1), target:flatten())
end

local text, missing = lupine.datasets.KingJamesBible()
if not text then
  io.stderr:write(missing, "\n")
  os.exit(1)
end
torch.manual_seed(1)
local ids, characters = lupine.datasets.characters(text)
-- One row a reader: [BATCH, characters in a row]
local rows = ids:narrow(0, 0, #text // BATCH * BATCH):reshape({ BATCH, -1 })

-- The next PER_CALL pieces of every reader, one micro-batch after another.
local function pieces(at)
  local list = {}
  for i = 1, PER_CALL do
    list[i] = rows:narrow(1, at + (i - 1) * LENGTH, LENGTH)
  end
  return torch.cat(list, 0)
end

local model = Reader(#characters)
local opts = poptorch.Options():deviceIterations(PER_CALL)
opts:outputMode(poptorch.OutputMode.All)
local trainer = poptorch.trainingModel(model, opts,
  torch.optim.Adam(model:parameters(), { lr = 3e-3 }))
local first, last
do
  local bar <close> = lupine.progress(STEPS, { desc = "training", unit = "steps" })
  for step = 0, STEPS - PER_CALL, PER_CALL do
    local losses = trainer(pieces(step * LENGTH), pieces(step * LENGTH + 1))
    first, last = first or losses[0]:item(), losses:mean():item()
    bar:update(PER_CALL, { loss = last })
  end
end
print(("char_lstm: first_loss=%.2f last_loss=%.2f"):format(first, last))
