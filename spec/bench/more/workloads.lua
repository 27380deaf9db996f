--- The second set: kinds of network that the first one lacks (`make bench MORE=1`);
--- ../workloads.lua says what a workload has, ../peers/more.py has the peers' side.
local images = require("spec.bench.more.images")
local sequences = require("spec.bench.more.sequences")
local torch = require("torch")
local training = require("spec.bench.training")

local M = {}

local momentum = training("SGD", { lr = 0.01, momentum = 0.9 })
local adam = training("Adam", { lr = 2e-4, betas = { 0.5, 0.999 } })
local adamw = training("AdamW", { lr = 1e-4 })
-- Where dropout draws differ, or few pictures amplify rounding.
local gentle = training("AdamW", { lr = 1e-5 })
local slow = training("SGD", { lr = 1e-4, momentum = 0.9 })

local IMAGES, TEXT = { "fused", "channels_last" }, { "sdpa", "fused" }

local function real(...)
  return torch.rand({ ... }) * 2 - 1
end

-- Ids from 1 on, behind each row's a random number of zeros.
local function padded(rows, length, words)
  local ids = torch.randint(1, words, { rows, length })
  local lengths = torch.randint(length // 3, length + 1, { rows, 1 })
  return torch.where(torch.arange(length):lt(lengths), ids, torch.zeros_like(ids))
end

local function image(model, batch, side, optimizer, peers)
  return { batch = batch, input = { 3, side, side }, classes = 100, optimizer = optimizer,
    model = model, peers = peers or IMAGES }
end

local RESNET50, MOBILENET = { "channels_last", "onnxruntime", "openvino" },
  { "channels_last", "onnxruntime", "openvino" }

M.all = {
  convnext = image(images.convnext, 8, 96, adamw),
  mobilenet = image(images.mobilenet, 16, 96, momentum),
  ["mobilenet-inference"] = image(images.mobilenet, 1, 224, nil, MOBILENET),
  resnet50 = image(images.resnet50, 4, 224, slow),
  ["resnet50-inference"] = image(images.resnet50, 4, 224, nil, RESNET50),
  unet = {
    batch = 4, optimizer = adamw, model = images.unet, peers = IMAGES,
    data = function(rows)
      return real(rows, 3, 96, 96), torch.randint(0, 4, { rows, 96, 96 })
    end,
  },
  vae = {
    batch = 32, optimizer = adam, model = images.vae, peers = IMAGES, own_loss = true,
    data = function(rows)
      return torch.rand({ rows, 3, 32, 32 }), torch.randn({ rows, 64 })
    end,
  },
  gan = {
    batch = 32, optimizer = adam, model = images.gan, peers = IMAGES, own_loss = true,
    phases = images.gan_phases,
    data = function(rows)
      return real(rows, 3, 32, 32), torch.randn({ rows, 100, 1, 1 })
    end,
  },
  vit = image(images.vit, 2, 224, gentle, TEXT),
  mixer = image(images.mixer, 16, 128, adamw, { "fused" }),
  gpt2 = {
    batch = 1, input = { 256 }, vocabulary = 50257, classes = 50257, optimizer = adamw,
    model = sequences.gpt2, peers = TEXT,
  },
  -- The token at place 200 of 256.
  ["gpt2-token"] = {
    batch = 1, model = sequences.writer, peers = { "sdpa", "onnxruntime", "openvino" },
    data = function(rows)
      return torch.randint(0, 50257, { rows, 1 }), torch.full({ rows, 1 }, 200),
        torch.randint(0, 50257, { rows })
    end,
  },
  translator = {
    batch = 8, optimizer = adamw, model = sequences.translator, peers = { "fused" },
    own_loss = true,
    data = function(rows)
      return padded(rows, 64, 4000), padded(rows, 64, 4000), padded(rows, 64, 4000)
    end,
  },
  bigru = {
    batch = 16, optimizer = adamw, model = sequences.tagger, peers = { "fused" }, own_loss = true,
    data = function(rows)
      local ids = padded(rows, 64, 5000)
      return ids, torch.randint(1, 20, { rows, 64 }) * ids:ne(0)
    end,
  },
  dlrm = {
    batch = 256, optimizer = adamw, model = sequences.recommender, peers = { "fused" },
    data = function(rows)
      return real(rows, 13), torch.randint(0, 100000, { rows, 8, 4 }),
        torch.randint(0, 2, { rows })
    end,
  },
  wavenet = {
    batch = 4, optimizer = adamw, model = sequences.wavenet, peers = { "fused" },
    data = function(rows)
      return torch.randint(0, 256, { rows, 1024 }), torch.randint(0, 256, { rows, 1024 })
    end,
  },
  conformer = {
    batch = 8, input = { 200, 80 }, classes = 30, optimizer = adamw, model = sequences.conformer,
    peers = { "fused" },
  },
}
-- Two libraries drop elements at random, each in its own way.
M.all.vit.tolerance = 0.6
-- ten steps, of which the last losses are 0.14 from float64's, PyTorch's too
M.all.mobilenet.tolerance = 0.2
M.all.gan.tolerance = 0.03 -- ten steps of Adam: float32's losses are 0.01 from float64's
M.all.resnet50.tolerance = 0.1 -- float32's gradients are 3 % from float64's, PyTorch's too

--- Names in the order in which they are run.
M.order = { "convnext", "mobilenet", "mobilenet-inference", "resnet50", "resnet50-inference",
  "unet", "vae", "gan", "vit", "mixer", "gpt2", "gpt2-token", "translator", "bigru", "dlrm",
  "wavenet", "conformer" }

return M
