--- The same training by every road gives the same weights.
local compiled = require("spec.support.compiled")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local BATCH, ITERATIONS, ACCUMULATION, CALLS = 4, 2, 8, 3
local ROWS = BATCH * ITERATIONS * ACCUMULATION

local Net = nn.Module:extend("Net")

function Net:init(ipus)
  self.ipus = ipus
  for i, sizes in ipairs({ { 8, 16 }, { 16, 16 }, { 16, 16 }, { 16, 4 } }) do
    self["fc" .. i] = nn.Linear(sizes[1], sizes[2])
  end
  self.loss = nn.CrossEntropyLoss()
end

function Net:forward(x, target)
  for i = 1, 4 do
    local _ <close> = poptorch.Block("block" .. i, { ipu_id = self.ipus[i] })
    x = self["fc" .. i](x)
    if i < 4 then
      x = x:tanh()
    else
      return x, self.loss(x, target)
    end
  end
end

local function data()
  torch.manual_seed(5)
  return torch.randn(ROWS, 8), torch.randint(0, 4, { ROWS })
end

local optimizers = {
  SGD = function(p)
    return torch.optim.SGD(p, { lr = 0.1, momentum = 0.9, weight_decay = 0.01 })
  end,
  Adam = function(p)
    return torch.optim.Adam(p, { lr = 0.01 })
  end,
  AdamW = function(p)
    return torch.optim.AdamW(p, { lr = 0.01 })
  end,
}

-- Weights and last loss after CALLS calls.
local function train(make, how)
  torch.manual_seed(3)
  local net = Net(how.ipus or { 0, 0, 0, 0 })
  local opts = poptorch.Options()
  opts:deviceIterations(ITERATIONS):replicationFactor(how.replicas or 1)
  opts.Training:gradientAccumulation(how.accumulation or ACCUMULATION)
  opts:setExecutionStrategy(how.strategy or poptorch.ShardedExecution())
  local model = poptorch.trainingModel(net, opts, make(net:parameters()))
  local x, target = data()
  local loss
  for _ = 1, CALLS do
    loss = select(2, model(x, target))
  end
  return net, loss
end

local function eager(make)
  torch.manual_seed(3)
  local net = Net({ 0, 0, 0, 0 })
  local optimizer = make(net:parameters())
  local x, target = data()
  local n = BATCH * ACCUMULATION
  for _ = 1, CALLS do
    for d = 0, ITERATIONS - 1 do
      local rows = torch.slice(d * n, (d + 1) * n)
      optimizer:zero_grad()
      local _, loss = net(x[{ rows }], target[{ rows }])
      loss:backward()
      optimizer:step()
    end
  end
  return net
end

local function each_pair(a, b, f)
  local other = {}
  for name, p in b:named_parameters() do
    other[name] = p
  end
  for name, p in a:named_parameters() do
    f(p:detach(), other[name]:detach(), name)
  end
end

local function same(a, b)
  each_pair(a, b, function(p, q, name)
    assert.is_true(compiled.same_bits(p, q), name)
  end)
end

local function near(a, b, tolerance)
  each_pair(a, b, function(p, q, name)
    local d = (p - q):abs():max():item()
    assert.is_true(d <= tolerance, ("%s differs by %g"):format(name, d))
  end)
end

for name, make in pairs(optimizers) do
  describe("training with " .. name, function()
    local plain = train(make, {})

    it("on the device follows the eager loop", function()
      near(plain, eager(make), 2e-6)
    end)

    it("over pipelines of 2 and 4 IPUs and sharded has the same bits", function()
      same(plain, (train(make, { ipus = { 0, 0, 1, 1 },
        strategy = poptorch.PipelinedExecution() })))
      same(plain, (train(make, { ipus = { 0, 1, 2, 3 },
        strategy = poptorch.PipelinedExecution() })))
      same(plain, (train(make, { ipus = { 0, 1, 2, 3 } })))
    end)

    it("with 2 and 4 replicas is that with as many more micro-batches", function()
      near(plain, (train(make, { replicas = 2, accumulation = ACCUMULATION // 2 })), 2e-6)
      near(plain, (train(make, { replicas = 4, accumulation = ACCUMULATION // 4 })), 2e-6)
    end)

    it("with one large micro-batch is that with many small ones", function()
      near(plain, (train(make, { accumulation = 1 })), 2e-6)
    end)

    it("run twice has the same bits and the same loss", function()
      local again, loss = train(make, {})
      same(plain, again)
      assert.is_true(compiled.same_bits(loss, (select(2, train(make, {})))))
    end)

    it("has the same bits with 1 and 2 threads when deterministic", function()
      local before = torch.get_num_threads()
      torch.use_deterministic_algorithms(true)
      torch.set_num_threads(1)
      local one = train(make, {})
      torch.set_num_threads(2)
      local two = train(make, {})
      torch.use_deterministic_algorithms(false)
      torch.set_num_threads(before)
      same(one, two)
    end)
  end)
end
