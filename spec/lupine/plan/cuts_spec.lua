--- Cuts of a model that says nothing about IPUs: what a cut costs is what the model costs
--- with blocks that start there, and the best of all cuts is found.
local cuts = require("lupine.plan.cuts")
local nn = require("torch.nn")
local own = require("poptorch.executor.own")
local poptorch = require("poptorch")
local torch = require("torch")

local F = nn.functional

local ACCUMULATION = 16

local Classifier = nn.Module:extend("Classifier")

function Classifier:init(net)
  self.net, self.loss = net, nn.CrossEntropyLoss()
end

function Classifier:forward(x, y)
  local out = self.net(x)
  return out, self.loss(out, y)
end

local Residual = nn.Module:extend("Residual")

function Residual:init(n)
  self.conv1, self.norm1 = nn.Conv2d(n, n, 3, { padding = 1 }), nn.BatchNorm2d(n)
  self.conv2, self.norm2 = nn.Conv2d(n, n, 3, { padding = 1 }), nn.BatchNorm2d(n)
end

function Residual:forward(x)
  local y = F.relu(self.norm1(self.conv1(x)))
  return F.relu(self.norm2(self.conv2(y)) + x)
end

local Layer = nn.Module:extend("Layer")

function Layer:init(n)
  self.attention = nn.MultiheadAttention(n, 2, { batch_first = true })
  self.norm1, self.norm2 = nn.LayerNorm(n), nn.LayerNorm(n)
  self.up, self.down = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
end

function Layer:forward(x)
  local y = self.norm1(x)
  x = x + (self.attention(y, y, y, { need_weights = false }))
  return x + self.down(F.gelu(self.up(self.norm2(x))))
end

local Gpt = nn.Module:extend("Gpt")

function Gpt:init(layers, n)
  self.embedding, self.layers = nn.Embedding(50, n), nn.ModuleList()
  for _ = 1, layers do
    self.layers:append(Layer(n))
  end
  self.head = nn.Linear(n, 50, { bias = false })
  self.head.weight = self.embedding.weight
end

function Gpt:forward(tokens)
  local x = self.embedding(tokens)
  for _, layer in ipairs(self.layers) do
    x = layer(x)
  end
  return self.head(x):flatten(0, 1)
end

-- Layers that are called within a line, behind other operators of it.
local Sums = nn.Module:extend("Sums")

function Sums:init(layers, n)
  self.layers, self.weights = nn.ModuleList(), nn.ParameterList()
  for _ = 1, layers do
    self.layers:append(nn.Linear(n, n))
    self.weights:append(nn.Parameter(torch.randn(n, n) * 0.1))
  end
end

function Sums:forward(x)
  for i, layer in ipairs(self.layers) do
    x = torch.matmul(x:sigmoid(), self.weights[i]):tanh() + F.silu(layer(F.gelu(x)))
  end
  return x
end

local MODELS = {
  mlp = function()
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 900), nn.Tanh(),
      nn.Linear(900, 100), nn.ReLU(), nn.Linear(100, 10)), torch.randn(ACCUMULATION * 2, 20),
      torch.randint(0, 10, { ACCUMULATION * 2 })
  end,
  cnn = function()
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AvgPool2d(2), Residual(8), Residual(8),
      nn.Conv2d(8, 16, 3), Residual(16), nn.Flatten(), nn.Linear(16 * 25, 10)),
      torch.randn(ACCUMULATION, 3, 16, 16), torch.randint(0, 10, { ACCUMULATION })
  end,
  sums = function()
    return Sums(7, 40), torch.randn(ACCUMULATION * 2, 40),
      torch.randint(0, 10, { ACCUMULATION * 2 })
  end,
  gpt = function()
    return Gpt(5, 32), torch.randint(0, 50, { ACCUMULATION, 12 }),
      torch.randint(0, 50, { ACCUMULATION * 12 })
  end,
}

local function training(net, accumulation, strategy)
  local model = Classifier(net)
  local options = poptorch.Options():setExecutionStrategy(strategy):autoRoundNumIPUs(true)
  options.Training:gradientAccumulation(accumulation)
  return poptorch.trainingModel(model, options,
    poptorch.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })), model
end

-- The executor of a model whose modules of these names start blocks, compiled.
local function compiled(kind, names, strategy)
  torch.manual_seed(3)
  local net, x, y = MODELS[kind]()
  local executor, model = training(net, ACCUMULATION, strategy
    or poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
  for ipu, name in ipairs(names) do
    poptorch.BeginBlock(model:get_submodule((name:gsub("/", "."))), { user_id = name,
      ipu_id = ipu })
  end
  executor:compile(x, y)
  return executor, x, y
end

local function cuts_of(executor)
  local session = own.state(executor).session
  return cuts.Cuts(session.exec:step(), session.spec.system)
end

-- Every list of n ascending numbers up to `most`, to fn.
local function each_choice(n, most, fn, chosen)
  chosen = chosen or {}
  if #chosen == n then
    return fn(table.move(chosen, 1, n, 1, {}))
  end
  for at = (chosen[#chosen] or 0) + 1, most do
    chosen[#chosen + 1] = at
    each_choice(n, most, fn, chosen)
    chosen[#chosen] = nil
  end
end

local function random_choice(n, most)
  local has, out = {}, {}
  while #out < n do
    local at = torch.randint(1, most + 1, { 1 }):item()
    out[#out + 1] = not has[at] and at or nil
    has[at] = true
  end
  table.sort(out)
  return out
end

describe("cuts", function()
  for kind in pairs(MODELS) do
    it("of the model " .. kind .. " cost what blocks cost that start there", function()
      local executor = compiled(kind, {})
      local all = cuts_of(executor)
      local n = (kind == "mlp" or kind == "sums") and 6 or 18
      assert.is_true(#all.names >= n, #all.names .. " places")
      torch.manual_seed(5)
      for stages = 2, 4 do
        for _ = 1, 4 do
          local at, names = random_choice(stages - 1, #all.names), {}
          for i, k in ipairs(at) do
            names[i] = all.names[k]
          end
          local figures, want = all:figures(at), compiled(kind, names):report()
          local what = table.concat(names, ", ")
          assert.equal(want.cycles, figures.cycles, what)
          for ipu, m in pairs(want.memory) do
            assert.equal(m.max_tile_including_gaps, figures.memory[ipu].max_tile_including_gaps,
              what)
          end
        end
      end
    end)
  end

  it("are found that are the best of all", function()
    local all = cuts_of(compiled("mlp", {}))
    for stages = 2, 4 do
      local best
      each_choice(stages - 1, #all.names, function(at)
        local figures = all:figures(at)
        best = figures and cuts.better(figures, best) and figures or best
      end)
      local found = all:search(stages)
      assert.equal(best.samples_per_second, found.samples_per_second, stages .. " stages")
      assert.equal(best.overflow, found.overflow)
    end
  end)

  it("are found that are no worse than random ones and equal splits", function()
    torch.manual_seed(9)
    for kind in pairs(MODELS) do
      local all = cuts_of(compiled(kind, {}))
      for stages = 2, 5 do
        local found = all:search(stages)
        local equal = all:figures(all:equal(stages))
        assert.is_false(cuts.better(equal, found), kind .. ": an equal split is better")
        for _ = 1, 50 do
          local figures = all:figures(random_choice(stages - 1, #all.names))
          assert.is_false(figures ~= nil and cuts.better(figures, found),
            ("%s, %d stages: %s"):format(kind, stages, figures
              and table.concat(figures.cuts, " ") or ""))
        end
      end
    end
  end)

  it("are found where each alone can only be moved for the worse", function()
    torch.set_default_device("meta")
    local net = require("torchvision").models.resnet18()
    local executor = training(net, 32, poptorch.PipelinedExecution(
      poptorch.AutoStage.AutoIncrement))
    executor:compile(torch.zeros(64, 3, 224, 224), torch.zeros({ 64 }, { dtype = torch.int64 }))
    torch.set_default_device("cpu")
    local all, at = cuts_of(executor), {}
    for i, name in ipairs(all.names) do
      at[#at + 1] = name:find("layer[123]/1/bn1$") and i or nil
    end
    assert.equal(3, #at) -- where no single move leads to
    assert.is_false(cuts.better(all:figures(at), all:search(4)))
  end)

  it("into equal numbers of layers", function()
    local all = cuts_of(compiled("gpt", {}))
    local names = {}
    for i, at in ipairs(all:equal(5)) do
      names[i] = all.names[at]
    end
    assert.same({ "net/layers/1", "net/layers/2", "net/layers/3", "net/layers/4" }, names)
    assert.same({}, all:equal(1))
  end)

  it("are refused where there are too few places, or micro-batches", function()
    local all = cuts_of(compiled("mlp", {}))
    local ok, e = pcall(all.search, all, 30)
    assert.is_false(ok)
    assert.matches("cannot be cut into 30 stages: it has %d+ places", e.message)
    ok, e = pcall(all.search, all, 3, { accumulation = 4, key = "4" })
    assert.is_false(ok)
    assert.matches("gradient_accumulation must be at least 5, got 4", e.message)
  end)
end)
