-- A convolutional autoencoder squeezes pictures of Fashion-MNIST (784 numbers)
-- into 32 numbers and draws them again. The mean squared error falls from 0.11
-- (after ten steps) to about 0.012; the last lines show three pictures and what became of them.
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")
local nn, F = torch.nn, torch.nn.functional

local SAMPLES, EPOCHS, BATCH, PER_CALL, CODE = 20000, 3, 50, 10, 32

local Autoencoder = nn.Module:extend("Autoencoder")

function Autoencoder:init()
  self.encoder = nn.Sequential(
    nn.Conv2d(1, 16, 3, { stride = 2, padding = 1 }), nn.ReLU(), -- 14 x 14
    nn.Conv2d(16, 32, 3, { stride = 2, padding = 1 }), nn.ReLU(), -- 7 x 7
    nn.Flatten(), nn.Linear(32 * 7 * 7, CODE))
  self.decoder = nn.Sequential(
    nn.Linear(CODE, 32 * 7 * 7), nn.ReLU(), nn.Unflatten(1, { 32, 7, 7 }),
    nn.ConvTranspose2d(32, 16, 4, { stride = 2, padding = 1 }), nn.ReLU(),
    nn.ConvTranspose2d(16, 1, 4, { stride = 2, padding = 1 }), nn.Sigmoid())
end

function Autoencoder:forward(x)
  local y = self.decoder(self.encoder(x))
  return y, F.mse_loss(y, x)
end

local images, missing = lupine.datasets.FashionMNIST()
if not images then
  io.stderr:write(missing, "\n")
  os.exit(1)
end
local x = (images:narrow(0, 0, SAMPLES):float() / 255):unsqueeze(1)

torch.manual_seed(1)
local model = Autoencoder()
local opts = poptorch.Options():deviceIterations(PER_CALL)
local loader = poptorch.DataLoader(opts, torch.utils.data.TensorDataset(x),
  { batch_size = BATCH, shuffle = true })
local trainer = poptorch.trainingModel(model, opts,
  torch.optim.Adam(model:parameters(), { lr = 2e-3 }))
local first, last
for epoch = 1, EPOCHS do
  local bar <close> = lupine.progress(#loader, { desc = ("epoch %d"):format(epoch) })
  for batch in loader do
    local _, loss = trainer(batch)
    first, last = first or loss:item(), loss:item()
    bar:update(1, { loss = last })
  end
end
trainer:destroy()

-- Pictures side by side, a character for two by two points.
local function show(pictures)
  local shades = " .:-=+*#%@"
  local small = F.avg_pool2d(pictures, 2)
  for row = 0, 13 do
    local line = {}
    for i = 0, pictures:size(0) - 1 do
      for _, v in ipairs(small[i][0][row]:tolist()) do
        local at = math.min(math.floor(v * #shades) + 1, #shades)
        line[#line + 1] = shades:sub(at, at)
      end
      line[#line + 1] = "   "
    end
    print(table.concat(line))
  end
end

local some = x:narrow(0, 0, 3)
local again = model(some):detach()
show(torch.cat({ some, again }, 0))
print(("autoencoder: first_loss=%.3f last_loss=%.3f"):format(first, last))
