-- Tells the part of speech of each word of a sentence: a bidirectional LSTM over packed
-- sentences of different lengths, lupine.Trainer in eager mode, and F1 over the words that
-- are there. runs/tagging has the same as a run file.
local lupine = require("lupine")
local torch = require("torch")
local nn, DataLoader = torch.nn, torch.utils.data.DataLoader

local here = arg[0]:match("^.*/") or ""
local flags = dofile(here .. "runs/flags.lua")({ epochs = 6 })
local data = dofile(here .. "runs/tagging/data.lua")
local Tagger = dofile(here .. "runs/tagging/model.lua").Tagger

torch.manual_seed(1)
local model = Tagger(#data.words, #data.tags, 32)
local train, validation = data.sentences(2000, 1), data.sentences(500, 2)
local curve = { loss = {}, f1 = {} }
local trainer = lupine.Trainer({
  model = model, optimizer = torch.optim.Adam(model:parameters(), { lr = 0.01 }),
  loss = nn.CrossEntropyLoss({ ignore_index = -100 }), mode = "eager",
  train = DataLoader(train, { batch_size = 50, shuffle = true }),
  validation = DataLoader(validation, { batch_size = 50 }), epochs = flags.epochs,
  metrics = { f1 = lupine.metrics.F1({ average = "macro", ignore_index = -100 }) },
  callbacks = { { on_epoch_end = function(_, trainer)
    local m = trainer.metrics
    curve.loss[trainer.epoch], curve.f1[trainer.epoch] = m["validation.loss"], m["validation.f1"]
    print(("epoch %d  loss %.3f  F1 %.3f"):format(trainer.epoch, m["validation.loss"],
      m["validation.f1"]))
  end } },
})
trainer:fit()

local words, lengths = validation.tensors[1], validation.tensors[2]
for i = 0, 2 do
  local tags = model(words[i]:unsqueeze(0), lengths[i]:unsqueeze(0))[0]:argmax(0)
  local line = {}
  for k = 0, lengths[i]:item() - 1 do
    line[k + 1] = ("%s/%s"):format(data.words[words[i][k]:item() + 1],
      data.tags[tags[k]:item() + 1])
  end
  print(table.concat(line, " "))
end
if flags.picture then
  lupine.plot.write(flags.picture, { { name = "loss of validation", y = curve.loss },
    { name = "F1 of validation", y = curve.f1 } }, { title = "tagging", xlabel = "epoch" })
end
print(("tagging: words=%d f1=%.3f"):format(#data.words - 1, curve.f1[#curve.f1]))
