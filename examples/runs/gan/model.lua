-- Generator and discriminator of points in the plane, a judge of both, and the pair as one
-- module for a loop that knows one optimizer.
local torch = require("torch")
local torchvision = require("torchvision")
local nn, F = torch.nn, torch.nn.functional

local function layers(from, hidden, to)
  return nn.Sequential(nn.Linear(from, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden),
    nn.LeakyReLU(0.2), nn.Linear(hidden, to))
end

-- How far logits are from what they should say: 1 (real) or 0 (made).
local function judged(logits, real)
  local target = real and torch.ones_like(logits) or torch.zeros_like(logits)
  return F.binary_cross_entropy_with_logits(logits, target)
end

local GAN = nn.Module:extend("GAN")

function GAN:init(latent, hidden)
  self.latent = latent
  self.generator = layers(latent, hidden, 2)
  self.discriminator = layers(2, hidden, 1)
end

--- Points that the generator makes.
---@param count integer
---@param generator? torch.Generator
---@return torch.Tensor [count, 2]
function GAN:make(count, generator)
  return self.generator(torch.randn({ count, self.latent }, { generator = generator }))
end

-- Both losses as one, whose gradients are those of the two: the discriminator's loss sees
-- made points without their history, and what the generator's says of the discriminator
-- is taken away again by its last term, of the same value. So a step updates both at
-- once, where a loop of one's own (../../gan.lua) updates one after the other.
function GAN:forward(x)
  local made = self:make(x:size(0))
  local apart = made:detach()
  local d = judged(self.discriminator(x), true) + judged(self.discriminator(apart), false)
  local g = judged(self.discriminator(made), true) - judged(self.discriminator(apart), true)
  return made, d + g
end

--- How many of the places are found: have at least a third of their share of the points,
--- within three deviations; and which share of all points is near one.
---@param points torch.Tensor [n, 2]
---@param middles torch.Tensor
---@param deviation number
---@return integer found
---@return number near
local function score(points, middles, deviation)
  local distance, place = torch.cdist(points, middles):min(1)
  local close = distance:lt(3 * deviation)
  local counts = place:masked_select(close):bincount({ minlength = middles:size(0) })
  local found = counts:gt(points:size(0) / middles:size(0) / 3):sum():item()
  return found, close:float():mean():item()
end

local SIDE, REACH = 160, 2.7

local function density(points)
  local cell = ((points + REACH) / (2 * REACH) * SIDE):floor():clamp(0, SIDE - 1):long()
  local at = (SIDE - 1 - cell[":, 1"]) * SIDE + cell[":, 0"]
  local counts = at:bincount({ minlength = SIDE * SIDE }):float()
  return (255 * (-0.5 * counts):exp()):to(torch.uint8):reshape({ 1, SIDE, SIDE })
end

--- A PNG file: real points, and beside them as many made ones.
---@param real torch.Tensor [n, 2]
---@param made torch.Tensor [n, 2]
---@param path string
local function show(real, made, path)
  local line = torch.zeros({ 1, SIDE, 2 }):to(torch.uint8)
  torchvision.io.write_png(torch.cat({ density(real), line, density(made) }, 2), path)
end

--- A callback of a Trainer: tells every some epochs what was found, and leaves the
--- training's own random numbers alone.
---@param middles torch.Tensor of the places
---@param deviation number
---@param every integer epochs
---@return table
local function scores(middles, deviation, every)
  local callback = { name = "scores" }
  function callback:on_epoch_end(trainer)
    if trainer.epoch % every == 0 then
      local g = torch.Generator()
      g:manual_seed(2)
      local made = trainer.model:make(4000, g):detach()
      print(("epoch %d  places found: %d, near one: %.2f"):format(trainer.epoch,
        score(made, middles, deviation)))
    end
  end
  return callback
end

return { GAN = GAN, judged = judged, score = score, show = show, scores = scores }
