--- Recurrent layers through pipelines, recomputation and whole on one IPU.
local compiled = require("spec.support.compiled")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local BATCH, ACCUMULATION = 4, 6

local Net = nn.Module:extend("Net")

function Net:init(ipus)
  self.ipus = ipus
  self.lstm = nn.LSTM(3, 8, { batch_first = true })
  self.gru = nn.GRU(8, 8, { batch_first = true, bidirectional = true })
  self.head = nn.Linear(16, 2)
  self.loss = nn.CrossEntropyLoss()
end

function Net:forward(x, target)
  for i, name in ipairs({ "lstm", "gru", "head" }) do
    local _ <close> = poptorch.Block(name, { ipu_id = self.ipus[i] })
    if name == "head" then
      x = self.head(x:mean(1))
      return x, self.loss(x, target)
    end
    x = self[name](x)
  end
end

local function data()
  torch.manual_seed(5)
  return torch.randn({ BATCH * ACCUMULATION, 5, 3 }), torch.randint(0, 2, { BATCH * ACCUMULATION })
end

local function optimizer(net)
  return torch.optim.SGD(net:parameters(), { lr = 0.1 })
end

local function make(ipus)
  torch.manual_seed(3)
  return Net(ipus)
end

local function train(ipus, strategy, recompute)
  local net, opts = make(ipus), poptorch.Options()
  opts.Training:gradientAccumulation(ACCUMULATION)
  opts:setExecutionStrategy(strategy)
  if recompute then -- 0: never, 3: whole stages
    opts._Popart:set("autoRecomputation", recompute)
  end
  local model = poptorch.trainingModel(net, opts, optimizer(net))
  local x, target = data()
  for _ = 1, 2 do
    model(x, target)
  end
  return net
end

local function eager()
  local net = make({ 0, 0, 0 })
  local step, x, target = optimizer(net), data()
  for _ = 1, 2 do
    step:zero_grad()
    for i = 0, ACCUMULATION - 1 do
      local rows = torch.slice(i * BATCH, (i + 1) * BATCH)
      local _, loss = net(x[{ rows }], target[{ rows }])
      ;(loss / ACCUMULATION):backward()
    end
    step:step()
  end
  return net
end

local function each_pair(a, b, f)
  local other = b:parameters()
  for i, p in ipairs(a:parameters()) do
    f(p:detach(), other[i]:detach())
  end
end

describe("recurrent layers in training", function()
  local whole = train({ 0, 0, 0 }, poptorch.ShardedExecution())

  it("follow the eager loop", function()
    each_pair(whole, eager(), function(p, q)
      assert.is_true((p - q):abs():max():item() < 2e-6)
    end)
  end)

  it("have the same bits in a pipeline, with and without recomputation", function()
    for _, recompute in ipairs({ 0, 3 }) do
      local piped = train({ 0, 1, 1 }, poptorch.PipelinedExecution(), recompute)
      each_pair(whole, piped, function(p, q)
        assert.is_true(compiled.same_bits(p, q))
      end)
    end
  end)
end)

describe("memory of a recurrent layer", function()
  it("has scratch of no less than nothing, and no more at any step than at the peak", function()
    local model = poptorch.inferenceModel(nn.LSTM(64, 64, { batch_first = true }),
      poptorch.Options():deviceIterations(2))
    model:compile(torch.zeros(16, 50, 64))
    local live, memory = model:report():liveness().ipus[0], model:report().memory[0]
    for i, bytes in ipairs(live.bytes) do
      assert.is_true(live.temporary[i] >= 0)
      assert.is_true(bytes + live.temporary[i] <= memory.not_always_live)
    end
  end)
end)
