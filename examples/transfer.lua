-- Takes up a checkpoint of PyTorch (safetensors, by its keys; runs/transfer/pretrain.py
-- wrote it): a model of clothes gets a new last layer, the others are frozen, and forty
-- pictures teach it shoes and bags. The same model from nothing, with the same pictures,
-- is for comparison. runs/transfer has the same as a run file.
local lupine = require("lupine")
local torch = require("torch")
local nn, DataLoader = torch.nn, torch.utils.data.DataLoader

local here = arg[0]:match("^.*/") or ""
local flags = dofile(here .. "runs/flags.lua")({ epochs = 20 })
local data = dofile(here .. "runs/transfer/data.lua")
local nets = dofile(here .. "runs/transfer/model.lua")

local few, many = data.pictures(true, 10), data.pictures(false, 500)

-- Trains what has a gradient; gives the accuracy behind each epoch.
local function train(model)
  local trained = {}
  for _, p in ipairs(model:parameters()) do
    trained[#trained + 1] = p.requires_grad and p or nil
  end
  local accuracies = {}
  lupine.Trainer({
    model = model, optimizer = torch.optim.Adam(trained, { lr = 1e-2 }),
    loss = nn.CrossEntropyLoss(), epochs = flags.epochs, metrics = { "accuracy" },
    train = DataLoader(few, { batch_size = 10, shuffle = true }), progress = false,
    validation = DataLoader(many, { batch_size = 100 }),
    callbacks = { { on_validation = function(_, _, numbers)
      accuracies[#accuracies + 1] = numbers["validation.accuracy"]
    end } },
  }):fit()
  return accuracies
end

torch.manual_seed(1)
local model = nets.Transfer(here .. "runs/transfer/pretrained.safetensors", #data.classes)
local before = model.features[1].weight:clone()
local taken = train(model)
assert(torch.equal(before, model.features[1].weight), "the features are frozen")
torch.manual_seed(1)
local new = train(nets.Net(#data.classes))
if flags.picture then
  lupine.plot.write(flags.picture, { { name = "pretrained", y = taken },
    { name = "from nothing", y = new } }, { title = "transfer: accuracy", xlabel = "epoch" })
end
print(("transfer: accuracy=%.3f from_nothing=%.3f"):format(taken[#taken], new[#new]))
