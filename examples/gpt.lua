-- A character-level GPT of lupine.models learns the King James Bible in a loop of
-- lupine.compile, then goes on with a text: carefully and boldly. runs/gpt has the same as
-- a run file. (char_gpt.lua writes the model out and trains it with poptorch.)
local lupine = require("lupine")
local torch = require("torch")
local DataLoader = torch.utils.data.DataLoader

local here = arg[0]:match("^.*/") or ""
local flags = dofile(here .. "runs/flags.lua")({ steps = 500 })
local data = dofile(here .. "runs/gpt/data.lua")
local model_of = dofile(here .. "runs/gpt/model.lua")

local LENGTH, BATCH = 128, 16
local _, characters = data.text()
torch.manual_seed(1)
local model = model_of.CharGPT(#characters, LENGTH, 128, 2, 4)
local optimizer = torch.optim.AdamW(model:parameters(), { lr = 3e-3, weight_decay = 0.1 })
local schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, flags.steps)
local step = lupine.compile(model, { optimizer = optimizer, loss = model_of.loss,
  clip_grad_norm = 1.0 })

local losses = {}
do
  local bar <close> = lupine.progress(flags.steps, { desc = "training", unit = "steps" })
  for ids, target in DataLoader(data.pieces("train", flags.steps * BATCH, LENGTH),
      { batch_size = BATCH }) do
    local _, loss = step(ids, target)
    schedule:step()
    losses[#losses + 1] = loss:item()
    bar:update(1, { loss = losses[#losses] })
  end
end

model:eval()
local sum, n = 0, 0
for ids, target in DataLoader(data.pieces("validation", 160, LENGTH), { batch_size = 16 }) do
  local _, loss = step:evaluate(ids, target)
  sum, n = sum + loss:item(), n + 1
end

for _, temperature in ipairs({ 0.5, 1.0 }) do
  print(("temperature %.1f: %s"):format(temperature, model:continue("And God said, ", characters,
    { do_sample = true, temperature = temperature, top_k = 10, max_length = LENGTH })))
end
if flags.picture then
  lupine.plot.write(flags.picture, { { name = "nats a character", y = losses } },
    { title = "gpt", xlabel = "step", smooth = 0.8 })
end
print(("gpt: first_loss=%.2f validation_loss=%.2f"):format(losses[1], sum / n))
