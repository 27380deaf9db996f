--- The training workloads that are timed, on our side; peers.py has the same
--- models by the same names.
---
--- A workload: `batch` rows a step, taken as `accumulation` micro-batches (1
--- where absent; the peer takes them at once); `iterations` steps a call (each on
--- rows of its own; 1 where absent); `input`, the shape of a row; `classes`, the labels
--- are below that, or `target`, the shape of a row of real targets; `model` and
--- `loss` make modules; `optimizer` takes the parameters (absent: inference).
---
--- Weights and data come from one formula of whole numbers that every language
--- evaluates alike: element i of array `salt` is
---     h = ((i*i mod P)*48271 + i*69621 + salt*7919) mod P,  h/P*2 - 1.
local nn = require("torch.nn")
local optim = require("torch.optim")
local torch = require("torch")

local M = {}

local P = 4294967291 -- the largest prime below 2^32
local CHUNK = 65536 -- elements made at a time: temporaries stay small

-- h of elements first … last - 1.
local function hash(first, last, salt)
  local i = torch.arange(first, last, { dtype = torch.int64 })
  return ((i * i % P) * 48271 + i * 69621 + salt * 7919) % P
end

--- Writes the formula's numbers, times `scale`, over a float32 tensor.
---@param x torch.Tensor contiguous
---@param salt integer
---@param scale number
function M.fill(x, salt, scale)
  local flat, n = x:detach():view(-1), x:numel()
  for first = 0, n - 1, CHUNK do
    local last = math.min(first + CHUNK, n)
    local h = hash(first, last, salt):double() / P * 2 - 1
    flat[{ torch.slice(first, last) }] = h * scale
  end
end

--- Weights of two and more dimensions and the biases that follow them are
--- uniform within 1/sqrt(fan-in), as PyTorch makes them; others stay.
---@param model torch.nn.Module
function M.initialise(model)
  local salt, bound = 0, nil
  for name, p in model:named_parameters() do
    if p.ndim > 1 then
      bound = 1 / math.sqrt(p:numel() // p.shape[1])
    elseif not name:find("bias$") then
      bound = nil -- a normalisation: it starts at one and zero
    end
    salt = salt + 1
    if bound then
      M.fill(p, salt, bound)
    end
  end
end

--- The inputs and targets of one call.
---@param w table a workload
---@return torch.Tensor input
---@return torch.Tensor target
function M.data(w)
  local rows = w.batch * (w.iterations or 1)
  local x = torch.empty({ rows, table.unpack(w.input) })
  M.fill(x, 1001, 1)
  if w.classes then
    return x, hash(0, rows, 1002) % w.classes
  end
  local target = torch.empty({ rows, table.unpack(w.target) })
  M.fill(target, 1002, 1)
  return x, target
end

-- ---- models -------------------------------------------------------------------

local function mlp(batch, optimizer)
  return {
    batch = batch, input = { 784 }, classes = 10, optimizer = optimizer,
    loss = nn.CrossEntropyLoss,
    model = function()
      return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 10))
    end,
  }
end

local function sgd(params)
  return optim.SGD(params, { lr = 0.01 })
end

local function adam(params)
  return optim.Adam(params, { lr = 1e-3 })
end

local function cnn(optimizer)
  return {
    batch = 64, input = { 1, 28, 28 }, classes = 10, optimizer = optimizer,
    loss = nn.CrossEntropyLoss,
    model = function()
      return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
    end,
  }
end

--- By name.
M.all = {
  -- The model and the batches of examples/fashion_mnist.lua.
  demo = {
    batch = 192, accumulation = 6, iterations = 2, input = { 1, 28, 28 }, classes = 10,
    optimizer = adam, loss = nn.CrossEntropyLoss,
    model = function()
      return nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
    end,
  },
  linreg = {
    -- One step is far below a millisecond: a call runs a hundred.
    batch = 10, iterations = 100, input = { 10 }, target = { 10 }, optimizer = sgd,
    loss = nn.MSELoss,
    model = function()
      return nn.Linear(10, 10)
    end,
  },
  ["mlp64-sgd"] = mlp(64, sgd),
  ["mlp64-adam"] = mlp(64, adam),
  ["mlp256-sgd"] = mlp(256, sgd),
  ["mlp256-adam"] = mlp(256, adam),
  cnn = cnn(adam),
  ["cnn-inference"] = cnn(nil),
}

--- Names in the order in which they are run.
M.order = { "demo", "linreg", "mlp64-sgd", "mlp64-adam", "mlp256-sgd", "mlp256-adam", "cnn",
  "cnn-inference" }

return M
