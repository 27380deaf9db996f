--- PopTorch's rules together, a numbered case each: placement, batching, files.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local function train(net, options, optimizer)
  return poptorch.trainingModel(net, options, optimizer
    or torch.optim.SGD(net:parameters(), { lr = 0.05 }))
end

-- Two layers on IPUs 0 and 1, a state of its own, random numbers.
local Two = nn.Module:extend("Two")

function Two:init()
  self.a, self.b, self.drop = nn.Linear(4, 8), nn.Linear(8, 2), nn.Dropout(0.3)
  poptorch.BeginBlock(self.b, { ipu_id = 1 })
end

function Two:forward(x, target)
  local y = self.b(self.drop(self.a(x):tanh()))
  return y, nn.functional.mse_loss(y, target)
end

describe("conformance, larger models:", function()
  it("MIX01 four layers in four stages", function()
    local net = models.of(function(self, x)
      for i = 1, 4 do
        x = poptorch.Block("B" .. i, i - 1, function() return self["l" .. i](x):relu() end)
      end
      return x
    end)
    for i = 1, 4 do
      net["l" .. i] = nn.Linear(5, 5)
    end
    local x = torch.randn(4, 5)
    near(poptorch.inferenceModel(net, poptorch.Options():deviceIterations(4))(x), net(x):detach())
  end)

  it("MIX03 a run that was saved in its middle", function()
    local function options()
      local o = poptorch.Options():deviceIterations(2):replicationFactor(2):randomSeed(5)
        :setExecutionStrategy(poptorch.ShardedExecution())
        :outputMode(poptorch.OutputMode.All)
      o.Training:gradientAccumulation(2)
      return o
    end
    torch.manual_seed(1)
    local x, target = torch.randn(6, 16, 4), torch.randn(6, 16, 2)
    local function fresh()
      torch.manual_seed(2)
      local net = Two()
      return train(net, options(), poptorch.optim.SGD(net:parameters(),
        { lr = 0.05, momentum = 0.9 }))
    end
    local function outputs(model, first, last)
      local list = {}
      for i = first, last do
        list[#list + 1] = { model(x[i], target[i]) }
      end
      return list
    end
    local want, model, path = outputs(fresh(), 0, 5), fresh(), os.tmpname()
    outputs(model, 0, 2)
    model:save(path)
    local rest = outputs(poptorch.load(path), 3, 5)
    os.remove(path)
    for i, pair in ipairs(rest) do
      near(pair[1], want[i + 3][1], helper.exact)
      near(pair[2], want[i + 3][2], helper.exact)
    end
  end)

  it("MIX05 layers of a transformer on four IPUs", function()
    torch.manual_seed(4)
    local layers = {}
    for i = 1, 6 do
      layers[i] = nn.TransformerEncoderLayer(16, 2, 32, { dropout = 0, batch_first = true })
    end
    local net = models.of(function(self, tokens)
      return self.head(self.layers(self.embedding(tokens)))
    end)
    net.embedding, net.layers = nn.Embedding(30, 16), nn.Sequential(table.unpack(layers))
    net.head = nn.Linear(16, 2)
    net:eval()
    for ipu, layer in ipairs({ layers[1], layers[3], layers[5] }) do
      poptorch.BeginBlock(layer, { ipu_id = ipu })
    end
    local tokens = torch.randint(0, 30, { 4, 7 })
    local want = net(tokens)
    local got = poptorch.inferenceModel(net, poptorch.Options():deviceIterations(4))(tokens)
    near(got, want:detach(), { 1e-4, 1e-4 })
    assert.same(want:argmax(1):tolist(), got:argmax(1):tolist())
  end)

  it("MIX07 one embedding on two IPUs", function()
    torch.manual_seed(4)
    local net = models.of(function(self, tokens, target)
      local x, y
      poptorch.Block("first", 0, function() x = self.embedding(tokens) end)
      return poptorch.Block("second", 1, function()
        y = self.out(x)
        return y, nn.functional.cross_entropy(y, target)
      end)
    end)
    net.embedding, net.out = nn.Embedding(5, 3), nn.Linear(3, 5, { bias = false })
    net.out.weight = net.embedding.weight
    local host = net:deepcopy()
    host.out.weight = host.embedding.weight
    local options = poptorch.Options()
    options.Training:gradientAccumulation(3)
    local tokens, target = torch.randint(0, 5, { 6 }), torch.randint(0, 5, { 6 })
    train(net, options)(tokens, target)
    near(net.embedding.weight:detach(), net.out.weight:detach(), helper.exact)
    local optimizer = torch.optim.SGD(host:parameters(), { lr = 0.05 })
    for i = 0, 2 do
      local rows = ("%d:%d"):format(2 * i, 2 * i + 2)
      local _, loss = host(tokens[rows], target[rows])
      ;(loss / 3):backward()
    end
    optimizer:step()
    near(net.embedding.weight, host.embedding.weight:detach(), { 1e-6, 1e-5 })
  end)

  it("MIX09 replicas of sharded models, and options that were cloned", function()
    local sharded = poptorch.Options():replicationFactor(2)
      :setExecutionStrategy(poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu))
    local model = train(Two(), sharded)
    local x, target = torch.randn(12, 4), torch.randn(12, 2)
    model(x, target)
    assert.equal(4, model:report().ipus * model:report().replicas)
    local few = poptorch.Options()
    few.Training:gradientAccumulation(2)
    local old = train(Two(), few)
    raises("Error", "3", function() old(x, target) end)
    local enough = few:clone()
    enough.Training:gradientAccumulation(3)
    local new = train(Two(), enough)
    new(x, target)
    assert.is_true(new:isCompiled())
    raises("Error", "3", function() old(x, target) end)
    assert.equal(2, old.options.Training.gradient_accumulation)
  end)
end)
