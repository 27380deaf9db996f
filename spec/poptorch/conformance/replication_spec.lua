--- Conformance: replicas and groups of them.
local helper = require("spec.helper")
local models = require("spec.support.models")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn
local near, raises = helper.near, helper.raises
local G, V = poptorch.CommGroupType, poptorch.VariableRetrievalMode

local function replicas(n)
  return poptorch.Options():replicationFactor(n)
end

-- A model that adds its weight, which differs between groups of replicas.
local function grouped(values, kind, size, retrieval)
  local net = models.of(function(self, x)
    return x + self.w
  end)
  net.w = nn.Parameter(values)
  local model = poptorch.inferenceModel(net, replicas(8))
  model.w:replicaGrouping(kind, size, retrieval)
  return model, net
end

describe("conformance of replication", function()
  it("REP02 replicas form groups", function()
    -- the group of each of 8 replicas
    for _, case in ipairs({
      { G.Orthogonal, 2, { 0, 1, 2, 3, 0, 1, 2, 3 } },
      { G.Consecutive, 2, { 0, 0, 1, 1, 2, 2, 3, 3 } },
      { G.NoGrouping, 2, { 0, 1, 2, 3, 4, 5, 6, 7 } },
    }) do
      local groups = math.max(table.unpack(case[3])) + 1
      local model = grouped(torch.arange(groups):float():reshape(groups, 1), case[1], case[2],
        V.OnePerGroup)
      near(model(torch.zeros(8, 1)):flatten(), case[3])
    end
    local all = grouped(torch.tensor({ 5.0 }), G.All, 0, V.OnePerGroup) -- no effect
    near(all(torch.zeros(8, 1)):flatten(), { 5, 5, 5, 5, 5, 5, 5, 5 })
  end)

  it("REP03 forward sees one group's slice", function()
    local seen
    local net = models.of(function(self, x)
      seen = { table.unpack(self.w.shape) }
      return x + self.w:sum()
    end)
    net.w = nn.Parameter(torch.ones(4, 3, 2))
    local model = poptorch.inferenceModel(net, replicas(8))
    model.w:replicaGrouping(G.Orthogonal, 2, V.OnePerGroup)
    near(model(torch.zeros(8)), { 6, 6, 6, 6, 6, 6, 6, 6 })
    assert.same({ 3, 2 }, seen)
    assert.same({ 4, 3, 2 }, { table.unpack(net.w.shape) })
  end)

  it("REP05 a parameter without dimensions cannot be grouped", function()
    raises("Error", "w", function()
      grouped(torch.tensor(1.0), G.Orthogonal, 2, V.OnePerGroup)(torch.zeros(8))
    end)
  end)

  it("REP06 the host has a slice of each group or of each replica", function()
    for _, case in ipairs({ { V.OnePerGroup, 4 }, { V.AllReplicas, 8 } }) do
      local net = models.Sum(0)
      net.w = nn.Parameter(torch.zeros(case[2], 1))
      local model = poptorch.trainingModel(net, replicas(8),
        torch.optim.SGD(net:parameters(), { lr = 8.0 }))
      model.w:replicaGrouping(G.Consecutive, 2, case[1])
      local loss = model(torch.arange(8):float())
      assert.same({ 8 }, { table.unpack(loss.shape) })
      assert.same({ case[2], 1 }, { table.unpack(net.w.shape) })
      -- a group's gradients are summed, and divided by the number of all replicas
      local group = { -1, -5, -9, -13 }
      for i = 0, case[2] - 1 do
        near(net.w[i], { group[i * 4 // case[2] + 1] })
      end
    end
  end)

  -- Adds its buffer, and changes it if it is to.
  local function buffered(changes)
    local net = models.of(function(self, x)
      if changes then
        self.buffer:add_(1)
      end
      return x + self.buffer
    end)
    net:register_buffer("buffer", torch.ones(1))
    return net
  end

  it("REP07 a buffer that forward modifies is not broadcast", function()
    local e = raises("Error", "broadcastBuffers%(false%)", function()
      poptorch.inferenceModel(buffered(true), replicas(2))(torch.ones(2))
    end)
    assert.equal("poptorch_cpp_error", e.type)
    local model = poptorch.inferenceModel(buffered(true), replicas(2):broadcastBuffers(false))
    near(model(torch.ones(2)), { 3, 3 })
    near(model(torch.ones(2)), { 4, 4 })
  end)

  it("REP09 a buffer that is only read is", function()
    near(poptorch.inferenceModel(buffered(), replicas(2))(torch.ones(2)), { 2, 2 })
  end)

  it("REP10 two replicas train as twice the micro-batch", function()
    torch.manual_seed(8)
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.fc, self.loss = nn.Linear(3, 2), nn.MSELoss()
    end
    function Net:forward(x, target)
      return self.loss(self.fc(x), target)
    end
    local one, two = Net(), Net()
    two:load_state_dict(one:state_dict())
    local x, target = torch.randn(4, 3), torch.randn(4, 2)
    for net, opts in pairs({ [one] = replicas(1), [two] = replicas(2) }) do
      local model = poptorch.trainingModel(net, opts,
        torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 }))
      for _ = 1, 3 do
        model(x, target)
      end
    end
    near(two.fc.weight, one.fc.weight:detach())
    near(two.fc.bias, one.fc.bias:detach())
  end)
end)
