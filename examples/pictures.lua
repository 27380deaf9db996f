-- Classifies pictures that lie in a folder for each class: ImageFolder reads them, random
-- crops, mirror images and colours make few of them go further, and a small CNN learns
-- them, in a loop that is written out. runs/pictures has the same as a run file.
local lupine = require("lupine")
local torch = require("torch")
local nn, DataLoader = torch.nn, torch.utils.data.DataLoader

local here = arg[0]:match("^.*/") or ""
local flags = dofile(here .. "runs/flags.lua")({ epochs = 30,
  folder = here .. "runs/pictures/shapes" })
local data = dofile(here .. "runs/pictures/data.lua")
local Net = dofile(here .. "runs/pictures/model.lua").Net

torch.manual_seed(1)
local train = data.folder(flags.folder, "train", true)
local model = Net(#train.classes, 16)
local optimizer = torch.optim.Adam(model:parameters(), { lr = 0.003 })
local schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, flags.epochs)
local step = lupine.compile(model, { optimizer = optimizer, loss = nn.CrossEntropyLoss() })
local batches = DataLoader(train, { batch_size = 20, shuffle = true })
local others = DataLoader(data.folder(flags.folder, "validation"), { batch_size = 100 })

local function accuracy()
  local right = lupine.metrics.Accuracy()
  for x, labels in others do
    right:update(step:predict(x), labels)
  end
  return right:compute()
end

local losses, accuracies = {}, {}
for epoch = 1, flags.epochs do
  local sum = 0
  model:train()
  for x, labels in batches do
    local _, loss = step(x, labels)
    sum = sum + loss:item()
  end
  schedule:step()
  model:eval()
  losses[epoch], accuracies[epoch] = sum / #batches, accuracy()
  print(("epoch %2d  loss %.3f  accuracy %.3f"):format(epoch, losses[epoch], accuracies[epoch]))
end
if flags.picture then
  lupine.plot.write(flags.picture, { { name = "loss of training", y = losses },
    { name = "accuracy of validation", y = accuracies } },
    { title = "pictures", xlabel = "epoch" })
end
print(("pictures: classes=%d accuracy=%.3f"):format(#train.classes, accuracies[#accuracies]))
