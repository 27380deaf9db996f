--- Compile time: `build/lupine spec/bench/compile.lua [resnet18 | bert-base |
--- nodes | load]…` prints processor seconds from the first operator traced to the
--- program that is ready to run. Run with OMP_NUM_THREADS=1 on a machine that
--- does other things too: the figure is processor time.
---
--- The models are those of the papers: He et al. 2016, table 1 (18 layers, 1000
--- classes, images of 224); Devlin et al. 2019, BERT base (12 layers, 768, 12
--- heads, 3072, 30522 words).
local F = require("torch.nn.functional")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local Block = nn.Module:extend("Block")

function Block:init(from, to, stride)
  nn.Module.init(self)
  self.conv1 = nn.Conv2d(from, to, 3, { stride = stride, padding = 1, bias = false })
  self.bn1 = nn.BatchNorm2d(to)
  self.conv2 = nn.Conv2d(to, to, 3, { padding = 1, bias = false })
  self.bn2 = nn.BatchNorm2d(to)
  if stride ~= 1 or from ~= to then
    self.down = nn.Sequential(nn.Conv2d(from, to, 1, { stride = stride, bias = false }),
      nn.BatchNorm2d(to))
  end
end

function Block:forward(x)
  local y = self.bn1(self.conv1(x)):relu()
  y = self.bn2(self.conv2(y))
  return (y + (self.down and self.down(x) or x)):relu()
end

local ResNet18 = nn.Module:extend("ResNet18")

function ResNet18:init()
  nn.Module.init(self)
  self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, { stride = 2, padding = 3, bias = false }),
    nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, { stride = 2, padding = 1 }))
  local blocks, from = {}, 64
  for i, to in ipairs({ 64, 128, 256, 512 }) do
    blocks[#blocks + 1] = Block(from, to, i > 1 and 2 or 1)
    blocks[#blocks + 1] = Block(to, to, 1)
    from = to
  end
  self.blocks = nn.Sequential(table.unpack(blocks))
  self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(512, 1000)
end

function ResNet18:forward(x, y)
  local out = self.fc(self.pool(self.blocks(self.stem(x))):flatten(1))
  return out, F.cross_entropy(out, y)
end

local Layer = nn.Module:extend("Layer")

function Layer:init()
  nn.Module.init(self)
  self.query, self.key, self.value = nn.Linear(768, 768), nn.Linear(768, 768), nn.Linear(768, 768)
  self.out, self.norm1 = nn.Linear(768, 768), nn.LayerNorm(768, { eps = 1e-12 })
  self.up, self.down = nn.Linear(768, 3072), nn.Linear(3072, 768)
  self.norm2, self.drop = nn.LayerNorm(768, { eps = 1e-12 }), nn.Dropout(0.1)
end

local function heads(x)
  local b, n = x:size(0), x:size(1)
  return x:view(b, n, 12, 64):transpose(1, 2)
end

function Layer:forward(x)
  local a = F.scaled_dot_product_attention(heads(self.query(x)), heads(self.key(x)),
    heads(self.value(x)))
  a = a:transpose(1, 2):reshape(x:size(0), x:size(1), 768)
  x = self.norm1(x + self.drop(self.out(a)))
  return self.norm2(x + self.drop(self.down(F.gelu(self.up(x)))))
end

local Bert = nn.Module:extend("Bert")

function Bert:init()
  nn.Module.init(self)
  self.words, self.places = nn.Embedding(30522, 768), nn.Embedding(512, 768)
  self.kinds, self.norm = nn.Embedding(2, 768), nn.LayerNorm(768, { eps = 1e-12 })
  local layers = {}
  for i = 1, 12 do
    layers[i] = poptorch.BeginBlock(Layer(), { ipu_id = 1 + (i - 1) // 2 })
  end
  self.layers, self.pooler = nn.Sequential(table.unpack(layers)), nn.Linear(768, 768)
  self.classes = nn.Linear(768, 2)
end

function Bert:forward(ids, y)
  local n = ids:size(1)
  local x = self.words(ids) + self.places(torch.arange(n)) + self.kinds(torch.zeros_like(ids))
  x = self.layers(self.norm(x))
  local out = self.classes(torch.tanh(self.pooler(x:select(1, 0))))
  return out, F.cross_entropy(out, y)
end

local M = {}

local function compile(model, accumulation, optimizer, ...)
  local opts = poptorch.Options():autoRoundNumIPUs(true)
  opts.Training:gradientAccumulation(accumulation)
  local executor = poptorch.trainingModel(model, opts, optimizer)
  executor:compile(...)
  return executor:compilationTime(), executor
end

--- Both give processor seconds of compiling one training step.
M["resnet18"] = function()
  local model = ResNet18()
  return compile(model, 1, poptorch.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 }),
    torch.randn(4, 3, 224, 224), torch.zeros(4, { dtype = torch.int64 }))
end

M["bert-base"] = function()
  local model = Bert()
  return compile(model, 16, poptorch.optim.SGD(model:parameters(), { lr = 0.1 }),
    torch.zeros(32, 128, { dtype = torch.int64 }), torch.zeros(32, { dtype = torch.int64 }))
end

-- A chain of n operators that no pass merges, with its gradient: about 6 n
-- nodes.
local function chain(n)
  local x = torch.ones(4)
  local started = os.clock()
  require("lupine").compile(function(t)
    for i = 1, n do
      t = t * i + t:sum()
    end
    return t
  end, { x }, { cotangents = { x } })
  return os.clock() - started
end

--- Seconds of graphs of 10,000 and 100,000 nodes: ten times as many should take
--- ten times as long.
M["nodes"] = function()
  local few = chain(1667)
  local many = chain(16667)
  return many, ("%.2f s for a tenth"):format(few)
end

-- The least of ten.
local function least(f)
  local seconds = math.huge
  for _ = 1, 10 do
    collectgarbage()
    local started = os.clock()
    local executor = f()
    seconds = math.min(seconds, os.clock() - started)
    executor:destroy()
  end
  return seconds
end

--- Seconds of loading BERT for inference from a file without its weights, which the
--- model has: of compiling it beside.
M["load"] = function()
  local workload = require("spec.bench.workloads").all["bert-base"]
  local model, path = workload.model():eval(), os.tmpname()
  local ids = torch.zeros(workload.batch, workload.input[1], { dtype = torch.int64 })
  local compiling = least(function()
    local executor = poptorch.inferenceModel(model)
    executor:compile(ids)
    return executor
  end)
  poptorch.inferenceModel(model):compileAndExport(path, ids, { export_model = false })
  local loading = least(function()
    local executor = poptorch.inferenceModel(model)
    executor:loadExecutable(path)
    return executor
  end)
  os.remove(path)
  return loading, ("(%.1f ms; compiled in %.1f ms)"):format(loading * 1e3, compiling * 1e3)
end

if not ... or M[...] then
  for _, name in ipairs(#arg > 0 and arg or { "resnet18", "bert-base" }) do
    local seconds, more = M[name]()
    print(("%-10s %.2f s %s"):format(name, seconds, type(more) == "string" and more or ""))
    collectgarbage()
  end
end

return M
