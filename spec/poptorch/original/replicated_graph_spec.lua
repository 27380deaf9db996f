--- PopTorch's tests of replicated models.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local Kind, Retrieval = poptorch.CommGroupType, poptorch.VariableRetrievalMode

local Product = nn.Module:extend("Product")

function Product:init(w)
  self.W = nn.Parameter(w)
end

function Product:forward(x)
  local z = x:matmul(self.W)
  return z, poptorch.identity_loss(z ^ 2, "mean")
end

-- Losses and weight of four steps of 4 shards of w and 2 of x on 8 replicas.
local function sharded(w, x, input_kind, weight_kind)
  local shards, steps = 4, {}
  local model = Product(w:reshape(40, shards, 14):transpose(0, 1):contiguous())
  local opts = poptorch.Options():replicationFactor(8):outputMode(poptorch.OutputMode.All)
    :inputReplicaGrouping(shards, input_kind)
  local trainer = poptorch.trainingModel(model, {
    optimizer = torch.optim.SGD(model:parameters(), { lr = 0.01 }), options = opts })
  trainer.W:replicaGrouping(weight_kind, 2, Retrieval.OnePerGroup)
  for i = 1, 4 do
    local _, loss = trainer(x:reshape(2, 12, 40))
    steps[i] = loss:sum():item() / 8
  end
  return steps, model.W:detach():transpose(0, 1):reshape(40, 56)
end

describe("replicated_graph_test", function()
  it("test_weight_update_replicas", function()
    torch.manual_seed(42)
    local a, c0 = torch.rand(2, 4), torch.rand(2, 6)
    local alpha, beta = 0.37, 0.95
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.B, self.C = nn.Parameter(torch.ones(4, 6)), nn.Parameter(c0:clone())
      self.loss = nn.L1Loss()
    end
    function Model:forward(input, target)
      local x = input:matmul(self.B) * alpha + self.C * beta
      return x, self.loss(x, target)
    end
    local host, device = Model(), Model()
    local optimizer = torch.optim.SGD(host:parameters(), { lr = 0.01 })
    local outs = {}
    for r = 1, 2 do
      local out, loss = host(a, torch.zeros(2, 6))
      outs[r] = out:detach()
      ;(loss / 2):backward() -- the mean over replicas
    end
    optimizer:step()
    local trainer = poptorch.trainingModel(device, poptorch.Options():replicationFactor(2),
      torch.optim.SGD(device:parameters(), { lr = 0.01 }))
    local out = trainer(torch.cat({ a, a }):requires_grad_(), torch.zeros(4, 6))
    near(out, torch.cat(outs))
    near(device.B, host.B:detach())
    near(device.C, host.C:detach())
  end)

  it("test_too_many_ipus", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.layer, self.loss = nn.Linear(128, 4), nn.L1Loss()
    end
    function Model:forward(input, target)
      local out = self.layer(input)
      return out, self.loss(out, target)
    end
    local trainer = poptorch.trainingModel(Model(), poptorch.Options():replicationFactor(128))
    raises("Error", "128", function()
      trainer(torch.rand(512, 128), torch.ones(128, 4))
    end)
  end)

  it("test_per_replica_variables", function()
    torch.manual_seed(100)
    local x, w = torch.randn(24, 40), torch.randn(40, 56) * 40 ^ -0.5
    local whole = nn.Parameter(w:clone())
    local optimizer, want = torch.optim.SGD({ whole }, { lr = 0.01 }), {}
    for i = 1, 4 do
      optimizer:zero_grad()
      local loss = (x:matmul(whole) ^ 2):mean()
      loss:backward()
      optimizer:step()
      want[i] = loss:item()
    end
    for _, kinds in ipairs({ { Kind.Consecutive, Kind.Orthogonal },
      { Kind.Orthogonal, Kind.Consecutive } }) do
      local losses, got = sharded(w, x, kinds[1], kinds[2])
      near(torch.tensor(losses), torch.tensor(want), { 1e-6, 0 })
      near(got, whole:detach(), { 1e-6, 0 })
    end
  end)

  it("test_per_replica_variables_no_grouping", function()
    local model = Product(torch.randn(4, 6))
    local optimizer = poptorch.optim.AdamW(model:parameters(), { lr = 0.1 })
    local trainer = poptorch.trainingModel(model, poptorch.Options():replicationFactor(4),
      optimizer)
    trainer.W:replicaGrouping(Kind.NoGrouping, 0, Retrieval.OnePerGroup)
    trainer(torch.randn(4, 6))
    local n = 0
    for _, state in pairs(optimizer:state_dict().ipu_state) do
      assert.equal(4, state:size(0))
      n = n + 1
    end
    assert.equal(3, n)
    trainer:destroy()
  end)
end)
