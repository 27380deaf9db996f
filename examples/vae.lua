-- A variational autoencoder of Fashion-MNIST, trained by lupine.Trainer, whose model
-- returns its own loss; then it draws pictures of its own. runs/vae has the same as a run
-- file.
local lupine = require("lupine")
local torch = require("torch")
local DataLoader = torch.utils.data.DataLoader

local here = arg[0]:match("^.*/") or ""
local flags = dofile(here .. "runs/flags.lua")({ epochs = 6, pictures = 60000 })
local data = dofile(here .. "runs/vae/data.lua")
local VAE = dofile(here .. "runs/vae/model.lua").VAE

torch.manual_seed(1)
local model = VAE(16, 400)
local test = data.pictures(false, 2000)
local first
local trainer = lupine.Trainer({
  model = model, optimizer = torch.optim.Adam(model:parameters(), { lr = 2e-3 }),
  train = DataLoader(data.pictures(true, flags.pictures), { batch_size = 100, shuffle = true }),
  validation = DataLoader(test, { batch_size = 100 }), epochs = flags.epochs,
  callbacks = { { on_epoch_end = function(_, trainer)
    local loss = trainer.metrics["validation.loss"]
    first = first or loss
    print(("epoch %d  nats a picture: %.1f"):format(trainer.epoch, loss))
  end } },
})
local result = trainer:fit()
if flags.picture then
  model:show(test.tensors[1]:narrow(0, 0, 8), flags.picture)
end
print(("vae: first_loss=%.0f last_loss=%.0f"):format(first, result.metrics["validation.loss"]))
