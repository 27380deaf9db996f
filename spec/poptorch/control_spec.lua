-- lupine.control in wrapped models: a loop trains as what it stands for, its
-- rounds written one after the other.
local control = require("lupine.control")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

-- Two blocks of rounds; written out, or in loops.
local Net = nn.Module:extend("Net")

function Net:init(o)
  self.loops, self.ipus = o.loops, o.ipus
  self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
  self:register_buffer("scale", torch.tensor({ 0.5, 1.0, 1.5, 2.0 }))
end

function Net:rounds(layer, x, gate)
  local function body(v)
    return control.branch(gate, function(u) return torch.tanh(layer(u) * self.scale) end, { v },
      function(u) return layer(u):sigmoid() end, { v })[1]
  end
  if self.loops then
    return control.loop(3, body, { x })[1]
  end
  for _ = 1, 3 do
    x = torch.where(gate, torch.tanh(layer(x) * self.scale), layer(x):sigmoid())
  end
  return x
end

function Net:forward(x, target)
  local function at(name, ipu, fn)
    local _ <close> = poptorch.Block(name, { ipu_id = self.ipus > 1 and ipu or 0 })
    return fn()
  end
  local y = at("a", 0, function()
    return self:rounds(self.first, x, x:sum():gt(0))
  end)
  return at("b", 1, function()
    local z = self:rounds(self.second, y, y:sum():gt(0))
    return z, nn.functional.mse_loss(z, target)
  end)
end

local function train(o)
  torch.manual_seed(1)
  local net = Net(o)
  if o.half then
    net:half()
  end
  local options = poptorch.Options():deviceIterations(2)
  options:replicationFactor(o.replicas or 1)
  options.Training:gradientAccumulation(o.accumulation or 1)
  options.Precision:enableStochasticRounding(false)
  if o.strategy then
    options:setExecutionStrategy(poptorch[o.strategy](poptorch.AutoStage.AutoIncrement))
  end
  local trainer = poptorch.trainingModel(net, options, o.optimizer(net:parameters()))
  local n = 3 * 2 * (o.replicas or 1) * (o.accumulation or 1)
  torch.manual_seed(2)
  local x, target = torch.randn({ n, 4 }), torch.rand({ n, 4 })
  if o.half then
    x, target = x:half(), target:half()
  end
  local losses = {}
  for i = 1, 4 do
    losses[i] = select(2, trainer(x, target)):float():mean():item()
  end
  trainer:copyWeightsToHost()
  return losses, net, trainer
end

local function sgd(p) return torch.optim.SGD(p, { lr = 0.1, momentum = 0.9 }) end
local function adam(p) return torch.optim.Adam(p, { lr = 0.01 }) end

local CASES = {
  { "on one IPU", { ipus = 1, optimizer = sgd } },
  { "with Adam", { ipus = 1, optimizer = adam } },
  { "over gradient accumulation and replicas", { ipus = 1, optimizer = sgd, accumulation = 4,
    replicas = 2 } },
  { "in a pipeline that computes again", { ipus = 2, optimizer = sgd, accumulation = 5 } },
  { "in shards", { ipus = 2, optimizer = sgd, strategy = "ShardedExecution" } },
  { "in half precision", { ipus = 1, optimizer = sgd, half = true, tolerance = 4e-3 } },
}

describe("loops and branches in a model", function()
  it("round at random in each round where that is asked", function()
    local Sum = nn.Module:extend("Sum")
    function Sum:forward(x) -- an eighth of what the type can tell apart
      return poptorch.for_loop(256, function(v) return v + 2 ^ -13 end, { x })[1]
    end
    local function run(stochastic)
      local options = poptorch.Options():randomSeed(7)
      options.Precision:enableStochasticRounding(stochastic)
      return poptorch.inferenceModel(Sum(), options)(torch.ones({ 512 }):half()):float()
    end
    assert.equal(1, run(false):max():item())
    local y = run(true)
    assert.near(1 + 256 * 2 ^ -13, y:mean():item(), 1e-3)
    assert(y:std():item() > 1e-3)
  end)

  for _, case in ipairs(CASES) do
    it("train as they would unrolled: " .. case[1], function()
      local o = case[2]
      local function run(loops)
        local own = {}
        for k, v in pairs(o) do
          own[k] = v
        end
        own.loops = loops
        return train(own)
      end
      local want, unrolled = run(false)
      local got, net, trainer = run(true)
      assert(want[4] < want[1], "nothing is learnt")
      local tolerance = o.tolerance or 1e-6
      for i, loss in ipairs(want) do
        assert.near(loss, got[i], tolerance * 2)
      end
      for name, p in unrolled:named_parameters() do
        torch.testing.assert_close(net:state_dict()[name], p:detach(),
          { rtol = tolerance * 10, atol = tolerance * 10 })
      end
      local report = trainer:report()
      assert(report.cycles == nil or report.cycles > 0)
    end)
  end
end)

describe("what docs/porting.md says of bodies in training:", function()
  local function train_once(init, body)
    local M = nn.Module:extend("M")
    M.init = init
    function M:forward(x)
      local y = control.loop(2, function(v) return body(self, v) end, { x })[1]
      return y, poptorch.identity_loss(y, "mean")
    end
    return pcall(poptorch.trainingModel(M()), torch.randn(4, 3))
  end

  it("momentum moves what a branch did not take, the host leaves it", function()
    local Sides = nn.Module:extend("Sides")
    function Sides:init()
      self.a, self.b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    end
    function Sides:forward(first, x)
      local y = control.branch(first, function(v) return v * self.a end, { x },
        function(v) return v * self.b end, { x })[1]
      return y, poptorch.identity_loss(y, "sum")
    end
    local x, a = torch.ones(1), {}
    for i, device in ipairs({ true, false }) do
      local net = Sides()
      local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
      local trainer = device and poptorch.trainingModel(net, nil, optimizer)
      for _, first in ipairs({ true, false, false }) do
        local c = torch.tensor({ first })
        if device then
          trainer(c, x)
        else
          optimizer:zero_grad()
          select(2, net(c, x)):backward()
          optimizer:step()
        end
      end
      a[i] = net.a:item()
      assert.near(1 - 0.1 * (1 + 1.9), net.b:item(), 1e-6)
    end
    assert.near(1 - 0.1 * (1 + 0.9 + 0.81), a[1], 1e-6)
    assert.near(1 - 0.1, a[2], 1e-6)
  end)

  it("BatchNorm in training mode is an error in one", function()
    local function init(self) self.fc, self.bn = nn.Linear(3, 3), nn.BatchNorm1d(3) end
    local ok, e = train_once(init, function(self, v) return self.bn(self.fc(v)) end)
    assert.is_false(ok)
    assert.matches("writes in place to a tensor from outside the body", e.message)
  end)

  it("a Function has no gradient in one", function()
    local Twice = torch.autograd.Function:extend("Twice")
    function Twice.forward(_, x) return x * 2 end
    function Twice.backward(_, g) return g * 2 end
    local function init(self) self.fc = nn.Linear(3, 3) end
    local ok, e = train_once(init, function(self, v) return Twice.apply(self.fc(v)) end)
    assert.is_false(ok)
    assert.matches("torch.autograd.Function in the body .* has no gradient", e.message)
  end)
end)
