--- The same training by every road gives the same weights and losses.
local compiled = require("spec.support.compiled")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local report = require("lupine.report")
local session = require("lupine.session")
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

-- Net and the losses of all micro-batches in order, [calls, rows of one loss].
local function train(make, how)
  torch.manual_seed(3)
  local net = Net(how.ipus or { 0, 0, 0, 0 })
  local opts = poptorch.Options()
  opts:deviceIterations(ITERATIONS):replicationFactor(how.replicas or 1)
  opts.Training:gradientAccumulation(how.accumulation or ACCUMULATION)
  opts:setExecutionStrategy(how.strategy or poptorch.ShardedExecution())
  opts:outputMode(poptorch.OutputMode.All)
  local model = poptorch.trainingModel(net, opts, make(net:parameters()))
  local x, target = data()
  local losses = {}
  for i = 1, how.calls or CALLS do
    losses[i] = select(2, model(x, target))
  end
  return net, torch.stack(losses)
end

local function eager(make)
  torch.manual_seed(3)
  local net = Net({ 0, 0, 0, 0 })
  local optimizer = make(net:parameters())
  local x, target = data()
  local losses = {}
  for _ = 1, CALLS do
    for d = 0, ITERATIONS - 1 do
      optimizer:zero_grad()
      for i = d * ACCUMULATION, (d + 1) * ACCUMULATION - 1 do
        local rows = torch.slice(i * BATCH, (i + 1) * BATCH)
        local _, loss = net(x[{ rows }], target[{ rows }])
        ;(loss / ACCUMULATION):backward()
        losses[#losses + 1] = loss:item()
      end
      optimizer:step()
    end
  end
  return net, torch.tensor(losses):reshape(CALLS, -1)
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

local function same(a, b, losses, others)
  assert.is_true(compiled.same_bits(losses, others), "losses")
  each_pair(a, b, function(p, q, name)
    assert.is_true(compiled.same_bits(p, q), name)
  end)
end

-- Losses of `others` stand for as many of `losses` each: means over them.
local function near(a, b, losses, others, tolerance)
  local means = losses:reshape(others:numel(), -1):mean(1):reshape(others.shape)
  local worst = (means - others):abs():max():item()
  assert.is_true(worst <= tolerance, ("losses differ by %g"):format(worst))
  each_pair(a, b, function(p, q, name)
    local d = (p - q):abs():max():item()
    assert.is_true(d <= tolerance, ("%s differs by %g"):format(name, d))
  end)
end

-- One call; beside it the same step replayed in the order of its schedule with
-- plain kernels: parameters by name and losses.
local function replayed(make, how)
  local open, x, target = session.open, data()
  local weights, losses = {}, nil
  session.open = function(traced, spec)
    local opened = open(traced, spec)
    local step, inputs = opened.exec:step(), {}
    for i, v in ipairs(step:vars()) do
      if v.role == "input" then
        inputs[i] = v.dtype == torch.float32 and x or target:to(v.dtype)
      end
    end
    local out, vars = report.replay(step, spec.system, inputs)
    for i, v in ipairs(step:vars()) do
      weights[v.name] = v.role == "parameter" and vars[i] or weights[v.name]
    end
    losses = out[compiled.vars(step)["output output_2"]]
    return opened
  end
  how.calls = 1
  local results = table.pack(pcall(train, make, how))
  session.open = open
  assert(results[1], results[2])
  return results[2], results[3], weights, losses:reshape(1, -1)
end

for name, make in pairs(optimizers) do
  describe("training with " .. name, function()
    local plain, losses = train(make, {})

    local function is_same(how)
      local net, other = train(make, how)
      same(plain, net, losses, other)
    end

    local function is_near(how)
      local net, other = train(make, how)
      near(plain, net, losses, other, 2e-6)
    end

    it("on the device follows the eager loop", function()
      local net, other = eager(make)
      near(plain, net, losses, other, 2e-6)
    end)

    it("over pipelines of 2 and 4 IPUs and sharded has the same bits", function()
      is_same({ ipus = { 0, 0, 1, 1 }, strategy = poptorch.PipelinedExecution() })
      is_same({ ipus = { 0, 1, 2, 3 }, strategy = poptorch.PipelinedExecution() })
      is_same({ ipus = { 0, 1, 2, 3 } })
    end)

    it("replayed in the order of its schedule is what it was", function()
      for _, how in ipairs({ { ipus = { 0, 1, 2, 3 } },
        { ipus = { 0, 1, 2, 3 }, strategy = poptorch.PipelinedExecution() } }) do
        local net, one, weights, other = replayed(make, how)
        local worst = (one - other):abs():max():item()
        for key, p in net:named_parameters() do
          worst = math.max(worst, (p:detach() - weights[key]):abs():max():item())
        end
        assert.is_true(worst <= 2e-6, ("differs by %g"):format(worst))
      end
    end)

    it("with 2 and 4 replicas is that with as many more micro-batches", function()
      is_near({ replicas = 2, accumulation = ACCUMULATION // 2 })
      is_near({ replicas = 4, accumulation = ACCUMULATION // 4 })
    end)

    it("with one large micro-batch is that with many small ones", function()
      is_near({ accumulation = 1 })
    end)

    it("run twice has the same bits", function()
      is_same({})
    end)

    it("has the same bits with 1 and 2 threads when deterministic", function()
      local before = torch.get_num_threads()
      torch.use_deterministic_algorithms(true)
      torch.set_num_threads(1)
      local one, one_losses = train(make, {})
      torch.set_num_threads(2)
      local two, two_losses = train(make, {})
      torch.use_deterministic_algorithms(false)
      torch.set_num_threads(before)
      same(one, two, one_losses, two_losses)
    end)
  end)
end
