--- What simulating costs: `OMP_NUM_THREADS=1 build/lupine spec/bench/simulating.lua [PATTERN]…`
--- prints, of steps whose names match, processor time of compiling, of the simulated system
--- in it, and of its report's tables, the least of several. The first compilation of a step,
--- which searches for plans, is left out.
package.path = "./?.lua;" .. package.path

local F = require("torch.nn.functional")
local core = require("lupine.core")
local networks = require("spec.bench.networks")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local TIMES = 8

-- Layers of 64 x 64, one after the other, over stages.
local Chain = nn.Module:extend("Chain")

function Chain:init(layers, stages)
  nn.Module.init(self)
  local list = {}
  for i = 1, layers do
    list[i] = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    if stages > 1 then
      list[i] = poptorch.BeginBlock(list[i], { ipu_id = (i - 1) * stages // layers })
    end
  end
  self.net, self.loss = nn.Sequential(table.unpack(list)), nn.MSELoss()
end

function Chain:forward(x, y)
  local out = self.net(x)
  return out, self.loss(out, y)
end

local function chain(layers, stages)
  return function()
    local batches = stages > 1 and 2 * stages or 1
    local x = torch.randn(4 * batches, 64)
    return Chain(layers, stages), batches, { x, x }
  end
end

local ResNet = nn.Module:extend("ResNet")

function ResNet:init()
  nn.Module.init(self)
  self.net = networks.resnet18()
end

function ResNet:forward(x, y)
  local out = self.net(x)
  return out, F.cross_entropy(out, y)
end

local function resnet()
  return ResNet(), 1, { torch.randn(1, 3, 32, 32), torch.zeros(1, { dtype = torch.int64 }) }
end

local WIDTH, HEADS, TOKENS = 256, 4, 64
local Layer = nn.Module:extend("Layer")

function Layer:init()
  nn.Module.init(self)
  for _, name in ipairs({ "query", "key", "value", "out" }) do
    self[name] = nn.Linear(WIDTH, WIDTH)
  end
  self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
  self.norm1, self.norm2, self.drop = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.Dropout(0.1)
end

local function heads(x)
  return x:view(x:size(0), TOKENS, HEADS, WIDTH // HEADS):transpose(1, 2)
end

function Layer:forward(x)
  local a = F.scaled_dot_product_attention(heads(self.query(x)), heads(self.key(x)),
    heads(self.value(x)))
  x = self.norm1(x + self.drop(self.out(a:transpose(1, 2):reshape(x:size(0), TOKENS, WIDTH))))
  return self.norm2(x + self.drop(self.down(F.gelu(self.up(x)))))
end

local Bert = nn.Module:extend("Bert")

function Bert:init(layers)
  nn.Module.init(self)
  local list = {}
  for i = 1, layers do
    list[i] = Layer()
  end
  self.words, self.places = nn.Embedding(1000, WIDTH), nn.Embedding(TOKENS, WIDTH)
  self.norm, self.layers = nn.LayerNorm(WIDTH), nn.Sequential(table.unpack(list))
  self.classes = nn.Linear(WIDTH, 2)
end

function Bert:forward(ids, y)
  local x = self.norm(self.words(ids) + self.places(torch.arange(TOKENS)))
  local out = self.classes(torch.tanh(self.layers(x):select(1, 0)))
  return out, F.cross_entropy(out, y)
end

local function bert(layers)
  return function()
    return Bert(layers), 1, { torch.zeros(4, TOKENS, { dtype = torch.int64 }),
      torch.zeros(4, { dtype = torch.int64 }) }
  end
end

-- {name, model, micro-batches, inputs}
local STEPS = {
  { "8 layers", chain(8, 1) }, { "128 layers", chain(128, 1) }, { "ResNet-18", resnet },
  { "BERT of 2", bert(2) }, { "BERT of 12", bert(12) }, { "8 layers, 2 stages", chain(8, 2) },
  { "64 layers, 16 stages", chain(64, 16) }, { "128 layers, 32 stages", chain(128, 32) },
  { "256 layers, 64 stages", chain(256, 64) }, { "512 layers, 128 stages", chain(512, 128) },
}

-- When parts of the compilation were done.
local at, compile = {}, core.compile
core.compile = function(step, spec)
  local was = spec.progress
  spec.progress = function(part)
    at[part] = os.clock()
    return was and was(part)
  end
  return compile(step, spec)
end

-- Seconds of compiling, simulating and reporting once; operators.
local function once(make)
  local model, batches, inputs = make()
  local options = poptorch.Options():autoRoundNumIPUs(true):useOfflineIpuTarget(2)
  options.Training:gradientAccumulation(batches)
  local executor = poptorch.trainingModel(model, options,
    poptorch.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 }))
  collectgarbage()
  collectgarbage("stop")
  local from = os.clock()
  executor:compile(table.unpack(inputs))
  local to, report = os.clock(), executor:report()
  local again = os.clock()
  report.plan:report()
  local figures = { to - from, at.planned - at.completed, os.clock() - again }
  local operators = #report:nodes()
  collectgarbage("restart")
  executor:destroy()
  return figures, operators
end

local function wanted(name)
  for _, pattern in ipairs(arg) do
    if name:find(pattern) then
      return true
    end
  end
  return #arg == 0
end

for _, step in ipairs(STEPS) do
  local least, operators = { math.huge, math.huge, math.huge }, nil
  for i = 0, wanted(step[1]) and TIMES or -1 do
    local figures
    figures, operators = once(step[2])
    for k = 1, i > 0 and 3 or 0 do
      least[k] = math.min(least[k], figures[k])
    end
  end
  if operators then
    print(("%-22s %5d operators, compiling %7.2f ms, simulating %6.3f ms (%.2f %%), "
      .. "report %6.3f ms"):format(step[1], operators, least[1] * 1e3, least[2] * 1e3,
      least[2] / least[1] * 100, least[3] * 1e3))
  end
end
