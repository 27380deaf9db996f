--- The workloads that are timed; peers/networks.py has their peers' side by the
--- same names. more/workloads.lua has a second set (peers/more.py).
---
--- A workload: `batch` rows a step, taken as `accumulation` micro-batches (1
--- where absent; the peer takes them at once); `iterations` steps a call (each on
--- rows of its own; 1 where absent); `input`, the shape of a row; `vocabulary`,
--- where the input is ids below it, else it is real; `classes`, the labels are
--- below that, a label for each id where there are ids, or `target`, the shape of
--- a row of real targets; `model` makes the module; `optimizer` takes the
--- parameters, and whether they are half (absent: inference); `peers`, the ways in
--- which the peer may run.
--- `data` in place of these shapes makes so many rows of the inputs and the target.
--- With `own_loss` the module returns its loss, with `phases` a step has several:
--- that gives, of the module, pairs of a module that returns a loss and the one
--- whose parameters learn by it. `tolerance`, how far apart the losses may be.
---
--- For the floor, which is not told without: `products`, the floating-point
--- operations of the products in a step's forward pass (a fused multiply-add is
--- two); `winograd`, those among them
--- of 3x3 convolutions of stride 1 and at least 16 channels, which Winograd's
--- algorithm does in 1/2.3 of the time; `repeated`, those of looked up rows
--- beyond the first of each row of the table; `first`, those of the first layer, whose
--- input has no gradient. A training step takes three times the products less
--- once the first.
local more = require("spec.bench.more.workloads")
local networks = require("spec.bench.networks")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local training = require("spec.bench.training")

local M = {}

local sgd = training("SGD", { lr = 0.01 })
local momentum = training("SGD", { lr = 0.01, momentum = 0.9 })
local adam = training("Adam", { lr = 1e-3 })
local adamw = training("AdamW", { lr = 1e-3 })

-- Operations of a convolution, or of a Linear (kernel 1) over `places` rows.
local function conv(places, from, to, kernel)
  return 2.0 * places * from * to * (kernel or 1) ^ 2
end

local function mlp(batch, optimizer)
  return {
    batch = batch, input = { 784 }, classes = 10, optimizer = optimizer, model = networks.mlp,
    peers = { "eager", "fused", "jax" },
    products = conv(batch, 784, 512) + conv(batch, 512, 512) + conv(batch, 512, 10),
    first = conv(batch, 784, 512),
  }
end

local function cnn(optimizer)
  return {
    batch = 64, input = { 1, 28, 28 }, classes = 10, optimizer = optimizer,
    model = networks.cnn, peers = { "eager", "fused", "channels_last", "jax" },
    products = conv(64 * 26 ^ 2, 1, 32, 3) + conv(64 * 24 ^ 2, 32, 64, 3) + conv(64, 9216, 128)
      + conv(64, 128, 10),
    winograd = conv(64 * 24 ^ 2, 32, 64, 3),
    first = conv(64 * 26 ^ 2, 1, 32, 3),
  }
end

-- Attention's two products count whole, as the peers compute them.
local function gpt(model, layers, width, length, batch)
  local ids = batch * length
  return {
    batch = batch, input = { length }, vocabulary = 65, classes = 65, optimizer = adamw,
    model = model, peers = { "eager", "sdpa", "fused", "jax" },
    products = layers * (conv(ids, width, 12 * width) + 2 * conv(ids, width, length))
      + conv(ids, width, 65),
  }
end

local function resnet18()
  local w = {
    batch = 32, input = { 3, 32, 32 }, classes = 10, optimizer = momentum,
    model = networks.resnet18, peers = { "eager", "fused", "channels_last" },
    first = conv(32 * 32 ^ 2, 3, 64, 3), winograd = 0.0,
  }
  w.products = w.first + conv(32, 512, 10)
  local from, side = 64, 32
  for stage, to in ipairs({ 64, 128, 256, 512 }) do
    side = stage > 1 and side // 2 or side
    local entry, plain = conv(32 * side ^ 2, from, to, 3), conv(32 * side ^ 2, to, to, 3)
    w.products = w.products + entry + 3 * plain
      + (stage > 1 and conv(32 * side ^ 2, from, to) or 0)
    w.winograd = w.winograd + (stage == 1 and entry or 0) + 3 * plain
    from = to
  end
  return w
end

--- By name.
M.all = {
  -- The batches of examples/fashion_mnist.lua.
  demo = {
    batch = 192, accumulation = 6, iterations = 2, input = { 1, 28, 28 }, classes = 10,
    optimizer = adam, model = networks.demo,
    peers = { "eager", "fused", "channels_last" },
    products = conv(192 * 24 ^ 2, 1, 16, 5) + conv(192 * 10 ^ 2, 16, 32, 3)
      + conv(192, 800, 128) + conv(192, 128, 10),
    first = conv(192 * 24 ^ 2, 1, 16, 5), winograd = conv(192 * 10 ^ 2, 16, 32, 3),
  },
  linreg = {
    -- One step is far below a millisecond: a call runs a hundred.
    batch = 10, iterations = 100, input = { 10 }, target = { 10 }, optimizer = sgd,
    model = function()
      return nn.Linear(10, 10)
    end,
    peers = { "eager", "fused", "jax" },
    products = conv(10, 10, 10), first = conv(10, 10, 10),
  },
  ["mlp64-sgd"] = mlp(64, sgd),
  ["mlp64-adam"] = mlp(64, adam),
  ["mlp256-sgd"] = mlp(256, sgd),
  ["mlp256-adam"] = mlp(256, adam),
  cnn = cnn(adam),
  resnet18 = resnet18(),
  lstm = {
    batch = 32, input = { 64 }, vocabulary = 65, classes = 65, optimizer = adam,
    model = networks.lstm, peers = { "eager", "fused", "jax" },
    products = 2 * conv(32 * 64, 256, 4 * 256) + conv(32 * 64, 256, 65),
    repeated = conv(32 * 64 - 65, 256, 4 * 256),
  },
  ["gpt-s"] = gpt(networks.gpt_s, 4, 128, 128, 16),
  ["gpt-l"] = gpt(networks.gpt_l, 6, 384, 256, 8),
  ["bert-base"] = {
    batch = 1, input = { 128 }, vocabulary = 30522, classes = 9, model = networks.bert,
    peers = { "eager", "sdpa", "onnxruntime", "openvino" },
    products = 12 * (conv(128, 768, 12 * 768) + 2 * conv(128, 768, 128)) + conv(128, 768, 9),
  },
  ["cnn-inference"] = cnn(nil),
}

--- Names in the order in which they are run.
M.order = { "demo", "linreg", "mlp64-sgd", "mlp64-adam", "mlp256-sgd", "mlp256-adam", "cnn",
  "resnet18", "lstm", "gpt-s", "gpt-l", "bert-base", "cnn-inference" }

--- Names in the order of the second set.
M.more = more.order
for name, w in pairs(more.all) do
  M.all[name] = w
end

local WithLoss = nn.Module:extend("WithLoss")

function WithLoss:init(w)
  self.model, self.own = w.model(), w.own_loss
  self.loss = w.target and nn.MSELoss() or nn.CrossEntropyLoss()
  self.flat = w.vocabulary ~= nil
end

function WithLoss:forward(...)
  if self.own then
    return poptorch.identity_loss(self.model(...), "none")
  end
  local inputs = { ... }
  local target = table.remove(inputs)
  return self.loss(self.model(table.unpack(inputs)), self.flat and target:flatten() or target)
end

--- A module that takes a workload's inputs and target and returns the loss.
---@param w table a workload
---@return torch.nn.Module
function M.with_loss(w)
  return WithLoss(w)
end

--- The inputs and targets of one call, at random.
---@param w table a workload
---@return torch.Tensor input
---@return torch.Tensor ... more inputs, if any, and the target
function M.data(w)
  local rows = w.batch * (w.iterations or 1)
  if w.data then
    return w.data(rows)
  end
  local shape = { rows, table.unpack(w.input) }
  local x = w.vocabulary and torch.randint(0, w.vocabulary, shape) or torch.rand(shape) * 2 - 1
  if w.target then
    return x, torch.rand({ rows, table.unpack(w.target) }) * 2 - 1
  end
  return x, torch.randint(0, w.classes, w.vocabulary and shape or { rows })
end

--- Floating-point operations of the products of a step, and the same with
--- Winograd's and without repetition: what the arithmetic units have to do.
---@param w table a workload
---@return number direct
---@return number least
function M.operations(w)
  local passes = w.optimizer and 3 or 1
  local direct = passes * w.products - (w.optimizer and w.first or 0)
  local saved = passes * ((w.winograd or 0) * (1 - 1 / 2.3) + (w.repeated or 0))
  return direct, direct - saved
end

--- Bytes that a step's optimizer must move: of each parameter its gradient and
--- state are read, itself and its state read and written.
---@param w table a workload
---@param model torch.nn.Module
---@return integer
function M.update_bytes(w, model)
  local n = 0
  for _, p in ipairs(model:parameters()) do
    n = n + p:numel()
  end
  if not w.optimizer then
    return 4 * n -- weights are read
  end
  local states = (w.optimizer == adam or w.optimizer == adamw) and 2
    or w.optimizer == momentum and 1 or 0
  return 4 * n * (3 + 2 * states)
end

return M
