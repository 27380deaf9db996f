-- The device copies a training model's first values late, with the first run; nobody
-- can tell. The weights are large enough for that (runtime/exec/memory.c).
local devices = require("lupine.devices")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local N = 160 -- N x N floats are 100 KB

local Net = nn.Module:extend("Net")

function Net:init()
  nn.Module.init(self)
  self.fc = nn.Linear(N, N, { bias = false })
  self:register_buffer("scale", torch.ones(N, N))
end

function Net:forward(x)
  self.scale:mul_(2)
  return poptorch.identity_loss((self.fc(x) * self.scale[0]):sum(), "none")
end

local x = torch.ones(1, N)

local optimizer

local function new(options, make)
  local net = Net()
  torch.no_grad(function()
    net.fc.weight:fill_(1)
  end)
  optimizer = (make or torch.optim.SGD)(net:parameters(), { lr = 1.0 })
  return net, poptorch.trainingModel(net, options or poptorch.Options(), optimizer)
end

-- The loss of one step that began with weights w and scale 1: N * N * w * 2. The
-- gradient of each weight is 2.
local function loss_of(w)
  return N * N * w * 2
end

local function fill(t, value)
  torch.no_grad(function()
    t:fill_(value)
  end)
end

describe("first values", function()
  local model
  after_each(function()
    model:destroy()
  end)

  it("are those of compiling, whatever the host writes before the first run", function()
    local net
    net, model = new()
    model:compile(x)
    fill(net.fc.weight, 5)
    assert.equal(loss_of(1), model(x):item())
    assert.equal(-1, net.fc.weight[{ 3, 4 }]:item())
    assert.equal(2, net.scale[{ 0, 0 }]:item())
  end)

  it("are read from the host before the first run, and stay", function()
    local net
    net, model = new()
    model:compile(x)
    assert.equal(1, net.fc.weight[{ 0, 0 }]:item())
    model:copyWeightsToHost()
    assert.equal(1, net.fc.weight:mean():item())
    assert.equal(loss_of(1), model(x):item())
  end)

  it("give way to what copyWeightsToDevice brings", function()
    local net
    net, model = new()
    model:compile(x)
    fill(net.fc.weight, 3)
    model:copyWeightsToDevice()
    assert.equal(loss_of(3), model(x):item())
    fill(net.fc.weight, 4)
    model:copyWeightsToDevice()
    assert.equal(8 * N * N * 4 / 2, model(x):item())
  end)

  it("are the host's after a model that never ran", function()
    local net
    net, model = new()
    model:compile(x)
    model:destroy()
    assert.equal(1, net.fc.weight:mean():item())
    fill(net.fc.weight, 2)
    model = poptorch.trainingModel(net, poptorch.Options(),
      torch.optim.SGD(net:parameters(), { lr = 1.0 }))
    assert.equal(loss_of(2), model(x):item())
  end)

  it("are each model's own where two have the same weights", function()
    local net
    net, model = new()
    model:compile(x)
    local inference = poptorch.inferenceModel(net)
    inference:compile(x)
    assert.equal(loss_of(1), inference(x):item())
    assert.equal(loss_of(1), model(x):item())
    assert.equal(-1, net.fc.weight[{ 0, 0 }]:item())
    inference:destroy()
    assert.equal(-1, net.fc.weight[{ 7, 7 }]:item())
  end)

  it("are the same for all replicas", function()
    local net
    net, model = new(poptorch.Options():replicationFactor(2):broadcastBuffers(false))
    model:compile(torch.ones(2, N))
    fill(net.fc.weight, 9)
    local losses = model(torch.ones(2, N))
    assert.same({ loss_of(1), loss_of(1) }, losses:tolist())
    assert.equal(-1, net.fc.weight[{ 0, 5 }]:item())
  end)

  it("give way to those of another parameter in their place", function()
    local net
    net, model = new()
    model:compile(x)
    net.fc.weight = nn.Parameter(torch.full({ N, N }, 3.0))
    model:copyWeightsToDevice()
    assert.equal(loss_of(3), model(x):item())
  end)

  it("are each model's own where two train the same weights", function()
    local net, second
    net, model = new()
    local other = Net()
    other.fc.weight = net.fc.weight
    second = poptorch.trainingModel(other, nil, torch.optim.SGD(other:parameters(), { lr = 1.0 }))
    model:compile(x)
    second:compile(x)
    fill(net.fc.weight, 5)
    assert.equal(loss_of(1), model(x):item())
    second:destroy()
  end)

  it("are copied at once where other processes write the memory", function()
    local Fives = torch.utils.data.Dataset:extend("Fives")
    function Fives.__len__()
      return 2
    end
    function Fives.__getitem__(_, i)
      return torch.full({ N, N }, i + 1.0)
    end
    local accessor = poptorch.AsynchronousDataAccessor(Fives(), { buffer_size = 1 })
    local step = accessor:iter()
    local net = Net()
    net.fc.weight = nn.Parameter(step())
    model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), { lr = 1.0 }))
    model:compile(x)
    step()
    assert.equal(2, net.fc.weight[{ 0, 0 }]:item())
    assert.equal(loss_of(1), model(x):item())
    accessor:terminate()
  end)

  -- IPUs that somebody has.
  local function held()
    local n = 0
    for ipu = 0, devices.ipus() - 1 do
      n = n + (devices.holder(ipu) and 1 or 0)
    end
    return n
  end

  it("of replicas of one group are compared by compiling, which gives back the IPUs", function()
    local net, before = Net(), held()
    net.fc.weight = nn.Parameter(torch.arange(4 * N * N):float():reshape(4, N, N))
    model = poptorch.trainingModel(net, poptorch.Options():replicationFactor(4)
      :broadcastBuffers(false), torch.optim.SGD(net:parameters(), { lr = 1.0 }))
    model.fc.weight:replicaGrouping(poptorch.CommGroupType.Consecutive, 2,
      poptorch.VariableRetrievalMode.AllReplicas)
    local ok, e = pcall(model.compile, model, torch.ones(4, N))
    assert.is_false(ok)
    assert.matches("replicas 0 and 1 are of one group", e.message)
    assert.equal(before, held())
  end)

  it("of the optimizer's states are kept from the host's edits, too", function()
    local net, momentum
    net, model = new(nil, function(p)
      return torch.optim.SGD(p, { lr = 1.0, momentum = 0.5 })
    end)
    model:compile(x)
    for _, state in pairs(optimizer.state) do
      for _, t in pairs(state) do
        momentum = t:dim() == 2 and t or momentum
      end
    end
    assert.equal(0, momentum:abs():max():item())
    fill(momentum, 100)
    model(x)
    assert.equal(-1, net.fc.weight[{ 0, 0 }]:item())
    assert.equal(2, momentum[{ 0, 0 }]:item())
  end)

  it("come with a detached model that is attached again", function()
    local net
    net, model = new()
    model:compile(x)
    model:detachFromDevice()
    fill(net.fc.weight, 2)
    model:attachToDevice()
    assert.equal(loss_of(2), model(x):item())
  end)
end)
