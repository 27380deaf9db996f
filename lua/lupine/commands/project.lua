--- The files of the project that `lupine new` writes, by their paths. @NAME@ is its name.
return {
  ["run.yaml"] = [[
# lupine run run.yaml                       trains, in runs/@NAME@-001
# lupine run run.yaml epochs=20 optimizer.args.lr=1e-3
# lupine run --help                         has all keys
name: @NAME@
model:
  class: model.lua:Net
  args: {hidden: 32}
loss: CrossEntropyLoss
data:
  train: {class: "data.lua:spirals", args: {count: 2000, seed: 1}}
  validation: {class: "data.lua:spirals", args: {count: 500, seed: 2}}
  batch_size: 50
optimizer:
  class: Adam
  args: {lr: 0.01}
epochs: 10
metrics: [accuracy]
checkpoint:
  best: validation.accuracy
  best_mode: max
]],

  ["model.lua"] = [[
-- The model; run.yaml says how large it is.
local torch = require("torch")
local nn = torch.nn

local Net = nn.Module:extend("Net")

function Net:init(hidden)
  self.layers = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden),
    nn.Tanh(), nn.Linear(hidden, 2))
end

-- x [batch, 2] -> logits [batch, 2]
function Net:forward(x)
  return self.layers(x)
end

return { Net = Net }
]],

  ["data.lua"] = [[
local torch = require("torch")

local M = {}

--- Points of two spirals; which of them a point is of is its label, 0 or 1.
---@param count integer
---@param seed integer
---@return torch.utils.data.TensorDataset
function M.spirals(count, seed)
  local g = torch.Generator()
  g:manual_seed(seed)
  local label = torch.randint(0, 2, { count }, { generator = g })
  local t = torch.rand({ count }, { generator = g }) * 3 + 0.5
  local angle = t * 2 + label * math.pi
  local x = torch.stack({ t * angle:cos(), t * angle:sin() }, 1)
  local noise = torch.randn({ count, 2 }, { generator = g }) * 0.1
  return torch.utils.data.TensorDataset(x + noise, label)
end

return M
]],

  ["spec/model_spec.lua"] = [[
-- lupine /usr/bin/busted --ignore-lua spec
local torch = require("torch")
local data = dofile("data.lua")
local model = dofile("model.lua")

describe("the model", function()
  it("gives two logits for each point", function()
    local net = model.Net(8)
    assert.equal("torch.Size([5, 2])", tostring(net(torch.zeros({ 5, 2 })):size()))
  end)
end)

describe("the data", function()
  it("is the same for the same seed", function()
    local a, b = data.spirals(10, 3), data.spirals(10, 3)
    assert.equal(10, #a)
    assert.is_true(torch.equal(a.tensors[1], b.tensors[1]))
    assert.is_false(torch.equal(a.tensors[1], data.spirals(10, 4).tensors[1]))
  end)
end)
]],

  ["README.md"] = [[
# @NAME@

Written by `lupine new`. A small network tells the points of two spirals apart.

    lupine run run.yaml                       # trains
    lupine run run.yaml epochs=20 seed=1      # any key can be changed
    lupine run run.yaml --dry-run             # tries everything, tells memory and time
    lupine run --resume                       # goes on with the run that was stopped
    lupine run --help                         # all keys of run files
    lupine /usr/bin/busted --ignore-lua spec  # tests

A run writes its configuration, metrics (metrics.csv, metrics.jsonl), log, checkpoints
and weights (model.safetensors) into a folder of its own, runs/@NAME@-001.
]],

  [".gitignore"] = "/runs/\n",
}
