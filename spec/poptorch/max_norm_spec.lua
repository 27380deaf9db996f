-- Embedding and EmbeddingBag with max_norm in a program: the rows that are
-- looked up are scaled before the lookup, and the optimizer starts from them.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn
local near = helper.near

-- Three steps of torch.optim.SGD(lr=0.5, momentum=0.9, weight_decay=0.1) on
-- (y*y).mean() + y.mean(); PyTorch 2.15.
local LAYERS = {
  Embedding = {
    make = function(w)
      return nn.Embedding(5, 4, { max_norm = 0.9, padding_idx = 3, _weight = w })
    end,
    losses = { 0.2396398, 0.2019194, 0.1388787 },
    weight = { -0.4027146, -0.3605959, -0.3184771, -0.2763584, -0.3334352, -0.2915648, -0.2496945,
      -0.2078241, 0.0914219, 0.1828437, 0.2742656, 0.3656875, 0.2495042, 0.2994051, 0.349306,
      0.3992068, 0.0935984, 0.1159852, 0.1383721, 0.160759 },
  },
  EmbeddingBag = {
    make = function(w)
      return nn.EmbeddingBag(5, 4, { max_norm = 1.5, norm_type = 1.0, mode = "sum", _weight = w })
    end,
    losses = { 0.3333033, -0.0869513, -0.1687004 },
    weight = { -0.4717795, -0.4824148, -0.49305, -0.5036852, -0.2357663, -0.3268674, -0.4179685,
      -0.5090696, 0.0914219, 0.1828437, 0.2742656, 0.3656875, -0.1236209, -0.2263059, -0.328991,
      -0.4316759, -0.1048779, -0.1300518, -0.1552256, -0.1803994 },
  },
}
local IDS = torch.tensor({ { 1, 3, 1 }, { 4, 0, 3 } })

local Net = nn.Module:extend("Net")

function Net:init(layer)
  self.layer = layer
end

function Net:forward(ids)
  local y = self.layer(ids)
  return y, poptorch.identity_loss(y:pow(2):mean() + y:mean(), "none")
end

local function net_of(kind)
  return Net(LAYERS[kind].make((torch.arange(20.0):reshape({ 5, 4 }) - 7) / 8))
end

-- Three eager or compiled steps: losses, and the weight at the end.
local function train(kind, compiled, parts)
  local net, losses = net_of(kind), {}
  local opts = poptorch.Options():deviceIterations(1)
  opts.Training:gradientAccumulation(parts)
  local sgd = compiled and poptorch.optim.SGD or torch.optim.SGD
  local o = sgd(net:parameters(), { lr = 0.5, momentum = 0.9, weight_decay = 0.1 })
  local model = compiled and poptorch.trainingModel(net, opts, o)
  for i = 1, 3 do
    if model then
      local _, loss = model(IDS)
      losses[i] = loss:reshape({ -1 })[-1]:item()
    else
      o:zero_grad()
      for part = 0, parts - 1 do
        local n = 2 // parts
        local _, loss = net(IDS:narrow(0, part * n, n))
        loss:div(parts):backward()
        losses[i] = loss:item()
      end
      o:step()
    end
  end
  if model then
    model:copyWeightsToHost()
    model:destroy()
  end
  return losses, net.layer.weight:detach():reshape({ -1 })
end

for kind, want in pairs(LAYERS) do
  describe(kind .. " with max_norm", function()
    it("trains as in PyTorch, eagerly and compiled", function()
      for _, compiled in ipairs({ false, true }) do
        local losses, weight = train(kind, compiled, 1)
        near(torch.tensor(losses), want.losses)
        near(weight, want.weight)
      end
    end)

    it("is scaled in each micro-batch", function()
      local losses, weight = train(kind, false, 2)
      local compiled, compiled_weight = train(kind, true, 2)
      near(torch.tensor(compiled), losses)
      near(weight, compiled_weight)
    end)

    it("infers what it infers eagerly", function()
      local net = net_of(kind)
      local model = poptorch.inferenceModel(net)
      local got = model(IDS)
      near(net(IDS), got)
      model:destroy()
    end)

    it("writes the weight of a module that lupine.compile compiled", function()
      local net, eager = net_of(kind), net_of(kind)
      local fast = require("lupine").compile(net.layer, { IDS })
      near(eager.layer(IDS), fast(IDS))
      near(eager.layer.weight, net.layer.weight)
    end)
  end)
end

describe("a table of rows that is an argument", function()
  it("is scaled as far as the program sees, eagerly and compiled", function()
    local Lookup = nn.Module:extend("Lookup")
    function Lookup:forward(ids, rows)
      return nn.functional.embedding(ids, rows, { max_norm = 1.0 }), rows + 0
    end
    local model = poptorch.inferenceModel(Lookup())
    local rows = torch.arange(12.0):reshape({ 4, 3 })
    local got, after = model(torch.tensor({ 1, 2 }), rows:clone())
    local want, scaled = Lookup()(torch.tensor({ 1, 2 }), rows)
    near(got, want)
    near(after, scaled)
    near(got:pow(2):sum(1), { 1.0, 1.0 })
    model:destroy()
  end)
end)

describe("max_norm in parts of a program", function()
  local Parts = nn.Module:extend("Parts")

  function Parts:init(ipus)
    self.ipus = ipus
    self.words, self.out = nn.Embedding(6, 4, { max_norm = 1.0 }), nn.Linear(4, 3)
  end

  function Parts:forward(x, y)
    local h
    do
      local _ <close> = poptorch.Block("words", { ipu_id = 0 })
      h = self.words(x):mean(1)
    end
    local _ <close> = poptorch.Block("out", { ipu_id = self.ipus - 1 })
    local out = self.out(h)
    return out, nn.functional.cross_entropy(out, y)
  end

  local function data()
    torch.manual_seed(2)
    return torch.randint(0, 6, { 12, 3 }), torch.randint(0, 3, { 12 })
  end

  local function eagerly(parts)
    local x, y = data()
    local net, n = Parts(1), 12 // parts
    local adam = torch.optim.Adam(net:parameters(), { lr = 0.1 })
    for _ = 1, 3 do
      adam:zero_grad()
      for part = 0, parts - 1 do
        local _, loss = net(x:narrow(0, part * n, n), y:narrow(0, part * n, n))
        loss:div(parts):backward()
      end
      adam:step()
    end
    return net.words.weight:detach()
  end

  local function compiled(ipus, replicas, accumulation)
    local x, y = data()
    local net, opts = Parts(ipus), poptorch.Options():replicationFactor(replicas)
    opts.Training:gradientAccumulation(accumulation)
    local model = poptorch.trainingModel(net, opts,
      torch.optim.Adam(net:parameters(), { lr = 0.1 }))
    for _ = 1, 3 do
      model(x, y)
    end
    model:copyWeightsToHost()
    model:destroy()
    return net.words.weight:detach()
  end

  it("goes through a pipeline", function()
    near(compiled(2, 1, 6), eagerly(6))
  end)

  it("has one weight for all replicas", function()
    near(compiled(1, 2, 1), eagerly(2))
    near(compiled(1, 2, 3), eagerly(6))
  end)
end)

it("other writes to a parameter in forward stay errors", function()
  local Writes = nn.Module:extend("Writes")
  function Writes:init()
    self.fc = nn.Linear(2, 2)
  end
  function Writes:forward(x)
    torch.no_grad(function()
      self.fc.weight:mul_(2)
    end)
    return self.fc(x)
  end
  helper.raises("Error", "parameter 'fc.weight' is modified in place by forward", function()
    poptorch.inferenceModel(Writes())(torch.ones(1, 2))
  end)
end)
