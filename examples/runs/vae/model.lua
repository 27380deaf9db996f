-- A variational autoencoder (Kingma and Welling, 2013): the encoder says where a picture
-- may lie among `latent` normal numbers, the decoder draws what lies there.
local torch = require("torch")
local torchvision = require("torchvision")
local nn, F = torch.nn, torch.nn.functional

local VAE = nn.Module:extend("VAE")

function VAE:init(latent, hidden)
  self.latent = latent
  self.encoder = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
  self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 784))
end

-- x [batch, 784] -> the picture that comes back, and the loss: minus the evidence lower
-- bound, in nats a picture
function VAE:forward(x)
  local mean, log_variance = table.unpack(self.encoder(x):chunk(2, 1))
  local z = mean + (0.5 * log_variance):exp() * torch.randn_like(mean)
  local logits = self.decoder(z)
  local drawn = F.binary_cross_entropy_with_logits(logits, x, { reduction = "sum" })
  local apart = 0.5 * (mean:pow(2) + log_variance:exp() - log_variance - 1):sum()
  return logits:sigmoid(), (drawn + apart) / x:size(0)
end

-- Pictures [n, 784] as rows of one, with a line of white between them.
local function rows(pictures, columns)
  local n = pictures:size(0) // columns
  local x = F.pad(pictures:reshape({ n, columns, 28, 28 }), { 1, 1, 1, 1 }, { value = 1 })
  x = x:permute({ 0, 2, 1, 3 }):reshape({ n * 30, columns * 30 })
  return ((1 - x) * 255):round():to(torch.uint8):unsqueeze(0)
end

--- A PNG file: eight pictures, what comes back of them, and two rows that nobody has seen.
---@param x torch.Tensor [8, 784]
---@param path string
function VAE:show(x, path)
  self:eval()
  local _ <close> = torch.no_grad()
  local g = torch.Generator()
  g:manual_seed(3)
  local new = self.decoder(torch.randn({ 16, self.latent }, { generator = g })):sigmoid()
  torchvision.io.write_png(rows(torch.cat({ x, (self(x)), new }, 0), 8), path)
end

return { VAE = VAE }
