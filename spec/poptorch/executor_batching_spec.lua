--- Device iterations, accumulation, replicas, output modes: what a call takes
--- and what it returns. Expected values are rows computed by the plain module.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local Mode = poptorch.OutputMode

local function options(t)
  local o = poptorch.Options()
  o:deviceIterations(t.di or 1):replicationFactor(t.rf or 1)
  o.Training:gradientAccumulation(t.ga or 1)
  o:broadcastBuffers(false)
  if t.mode then
    o:outputMode(t.mode, t.period)
  end
  return o
end

local Loss = nn.Module:extend("Loss")

function Loss:init(model)
  self.model = model
  self.loss = nn.MSELoss()
end

function Loss:forward(x, target)
  local y = self.model(x)
  return y, self.loss(y, target)
end

describe("an inference call of 10 device iterations", function()
  local linear = nn.Linear(6, 20)
  local x = torch.randn(10, 1, 5, 6)
  local want = linear(x):detach()

  local function run(mode, period)
    return poptorch.inferenceModel(linear, options({ di = 10, mode = mode, period = period }))(x)
  end

  it("returns every row with All, which is the default", function()
    near(run(Mode.All), want)
    near(run(nil), want)
  end)

  it("returns the last row with Final", function()
    near(run(Mode.Final), want["9:10"])
  end)

  it("returns the sum of rows with Sum", function()
    near(run(Mode.Sum), want:sum(0, { keepdim = true }))
  end)

  it("returns the last of each five with EveryN 5", function()
    local y = run(Mode.EveryN, 5)
    near(y, want["4::5"])
  end)

  it("refuses a period that does not divide the iterations", function()
    raises("Error", "divide", function()
      run(Mode.EveryN, 3)
    end)
    raises("Error", "divide", function()
      run(Mode.EveryN, 12)
    end)
  end)
end)

describe("a training call", function()
  local function outputs(t, rows, width)
    local model = poptorch.trainingModel(Loss(nn.Linear(4, width or 10)), options(t))
    return model(torch.randn(rows, 4), torch.randn(rows, width or 10))
  end

  local function shape(t)
    return { table.unpack(t.shape) }
  end

  it("returns 50 of 1000 iterations with EveryN 20", function()
    local y, loss = outputs({ di = 1000, mode = Mode.EveryN, period = 20 }, 1000)
    assert.same({ 50, 10 }, shape(y))
    assert.same({ 50 }, shape(loss))
  end)

  it("returns one row and a loss without dimensions by default", function()
    local y, loss = outputs({ di = 10 }, 10)
    assert.same({ 1, 10 }, shape(y))
    assert.same({}, shape(loss))
    y, loss = outputs({ di = 10, mode = Mode.Final }, 10)
    assert.same({ 1, 10 }, shape(y))
    assert.same({}, shape(loss))
  end)

  it("returns as many losses as the mode says of 4 iterations of 2 micro-batches", function()
    for _, case in ipairs({ { Mode.All, 8 }, { Mode.EveryN, 4, 2 }, { Mode.Final, 1 },
      { Mode.Sum, 1 } }) do
      local _, loss = outputs({ di = 4, ga = 2, mode = case[1], period = case[3] }, 8)
      assert.equal(case[2], loss:numel(), tostring(case[1]))
    end
  end)

  it("returns a loss of every replica", function()
    local _, loss = outputs({ rf = 4 }, 8)
    assert.same({ 4 }, shape(loss))
  end)

  it("sums each replica's losses over iterations and micro-batches with Sum", function()
    local linear = nn.Linear(3, 3)
    local x, t = torch.randn(12, 3), torch.randn(12, 3)
    local rows = ((linear(x) - t) ^ 2):mean(1):detach():reshape({ 2, 3, 2 })
    local model = poptorch.trainingModel(Loss(linear), options({ di = 2, ga = 3, rf = 2,
      mode = Mode.Sum }), poptorch.optim.SGD(linear:parameters(), { lr = 0.0 }))
    local _, loss = model(x, t)
    near(loss, rows:sum({ 0, 1 }))
  end)
end)

describe("rows of inputs", function()
  it("must be a multiple of the iterations", function()
    local model = poptorch.inferenceModel(nn.Linear(4, 2), options({ di = 4 }))
    local e = raises("AssertionError", "multiple of 4", function()
      model(torch.randn(6, 4))
    end)
    assert.matches("torch.Size%(%[6, 4%]%)", e.message)
  end)

  it("of a tensor without dimensions count as one", function()
    local double = models.of(function(_, x)
      return x * 2
    end)
    near(poptorch.inferenceModel(double)(torch.tensor(3.0)), 6)
    raises("AssertionError", "multiple of 2", function()
      poptorch.inferenceModel(double, options({ di = 2 }))(torch.tensor(3.0))
    end)
  end)

  it("reach forward divided by iterations, accumulation and replicas", function()
    local seen
    local linear = nn.Linear(3, 1)
    local net = models.of(function(_, x)
      seen = x.shape[1]
      return poptorch.identity_loss(linear(x), "mean")
    end)
    net.linear = linear
    poptorch.trainingModel(net, options({ di = 2, ga = 3, rf = 2 }))(torch.randn(24, 3))
    assert.equal(2, seen)
  end)

  it("that are empty are refused", function()
    raises("Error", "without elements", function()
      poptorch.inferenceModel(nn.Linear(4, 2))(torch.zeros(0, 4))
    end)
  end)
end)

describe("a result without dimensions", function()
  local sum = models.of(function(_, x)
    return x:sum()
  end)

  it("stays so for one micro-batch and gets one dimension for several", function()
    local x = torch.tensor({ { 1.0, 2 }, { 3, 4 } })
    near(poptorch.inferenceModel(sum)(x), 10)
    near(poptorch.inferenceModel(sum, options({ di = 2 }))(x), { 3, 7 })
  end)
end)

describe("results of a call of several micro-batches", function()
  it("are by iteration, then by micro-batch, then by replica", function()
    local net = models.of(function(self, x)
      return x * 1, poptorch.identity_loss(self.w * x, "sum")
    end)
    net.w = nn.Parameter(torch.zeros(1))
    local o = options({ di = 2, ga = 3, rf = 2, mode = Mode.All })
    local x = torch.arange(24):float():reshape(24, 1)
    near((poptorch.trainingModel(net, o)(x)), x)
    o = options({ di = 2, ga = 3, rf = 2 }) -- the last micro-batch of each replica
    local other = models.of(net.forward)
    other.w = nn.Parameter(torch.zeros(1))
    near((poptorch.trainingModel(other, o)(x)), x["20:24"])
  end)

  it("are all micro-batches of the last of each N iterations with EveryN", function()
    local net = models.of(function(self, x)
      return x * 1, poptorch.identity_loss(self.w * x, "sum")
    end)
    net.w = nn.Parameter(torch.zeros(1))
    local o = options({ di = 4, ga = 2, rf = 2, mode = Mode.EveryN, period = 2 })
    local y = poptorch.trainingModel(net, o)(torch.arange(16):float())
    near(y, { 4, 5, 6, 7, 12, 13, 14, 15 })
  end)

  it("leave tensors of the host as they are", function()
    local constant = torch.ones(3)
    local got = models.of(function(_, x)
      return x, constant
    end)
    local _, same = poptorch.inferenceModel(got, options({ di = 2, rf = 2 }))(torch.ones(4))
    assert.is_true(rawequal(constant, same))
  end)
end)

describe("input groups of replicas", function()
  local add = models.of(function(_, x, y)
    return x + y
  end)

  local function run(size, type_)
    local o = options({ rf = 4, di = 2 })
    o:inputReplicaGrouping(size, type_)
    local n = 2 * 4 // size
    return poptorch.inferenceModel(add, o)(torch.arange(n):float(), torch.zeros(n))
  end

  it("share neighbours' rows when consecutive", function()
    near(run(2, poptorch.CommGroupType.Consecutive), { 0, 0, 1, 1, 2, 2, 3, 3 })
  end)

  it("share every m-th one's rows when orthogonal", function()
    near(run(2, poptorch.CommGroupType.Orthogonal), { 0, 1, 0, 1, 2, 3, 2, 3 })
  end)

  it("of one replica each are no groups", function()
    near(run(1, poptorch.CommGroupType.NoGrouping), { 0, 1, 2, 3, 4, 5, 6, 7 })
  end)

  it("are read in every micro-batch of every update", function()
    for type_, slice_of in pairs({ [poptorch.CommGroupType.Consecutive] = { 0, 0, 1, 1 },
      [poptorch.CommGroupType.Orthogonal] = { 0, 1, 0, 1 } }) do
      local net = models.of(function(self, x)
        return x, poptorch.identity_loss(self.w * x, "sum")
      end)
      net.w = nn.Parameter(torch.zeros({}))
      local o = options({ rf = 4, di = 2, ga = 3, mode = Mode.All })
      o:inputReplicaGrouping(2, type_)
      local model = poptorch.trainingModel(net, o, torch.optim.SGD(net:parameters(), { lr = 1 }))
      local want = {}
      for micro = 0, 5 do
        for r = 1, 4 do
          want[#want + 1] = 2 * micro + slice_of[r]
        end
      end
      near((model(torch.arange(12):float())), want)
      near(net.w, -11) -- two updates, by the means of 0..5 and of 6..11
    end
  end)

  it("write an input that forward changed back once a group", function()
    local o = options({ rf = 4 })
    o:inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    local x = torch.tensor({ 1.0, 5 })
    poptorch.inferenceModel(models.of(function(_, v)
      v:add_(1)
      return v
    end), o)(x)
    near(x, { 2, 6 })
  end)
end)

describe("synthetic data", function()
  it("replace what the caller gives, and nothing is written back", function()
    local o = options({ di = 100 }):enableSyntheticData(true)
    local x, i = torch.zeros(100, 50), torch.full({ 100 }, 7):int()
    local y, k = poptorch.inferenceModel(models.of(function(_, a, b)
      a:add_(1)
      return a, b
    end), o)(x, i)
    near(y:mean(), 1, { 0.1, 0 })
    near(y:std(), 1, { 0.1, 0 })
    near(k:abs():sum(), 0)
    near(x:abs():sum(), 0)
  end)
end)

describe("updates", function()
  local function weights(t, calls, lr, reduction, strategy)
    torch.manual_seed(11)
    local linear = nn.Linear(5, 3)
    local rows = (t.di or 1) * (t.ga or 1) * (t.rf or 1) * (t.mb or 1)
    local x, target = torch.randn(60, 5), torch.randn(60, 3)
    local o = options(t)
    if reduction then
      o.Training:accumulationAndReplicationReductionType(reduction)
    end
    if strategy then
      o.Training:setMeanAccumulationAndReplicationReductionStrategy(strategy)
    end
    local model = poptorch.trainingModel(Loss(linear), o,
      torch.optim.SGD(linear:parameters(), { lr = lr }))
    for i = 0, calls - 1 do
      local at = torch.slice(i * rows % 60, i * rows % 60 + rows)
      model(x[{ at }], target[{ at }])
    end
    return linear.weight:detach()
  end

  it("happen once a device iteration", function()
    near(weights({ di = 5, mb = 2 }, 2, 0.1), weights({ mb = 2 }, 10, 0.1))
  end)

  it("of a sum over two halves at half the rate are those of the mean loss", function()
    local S = poptorch.ReductionType.Sum
    near(weights({ ga = 2, mb = 3 }, 10, 0.01, S), weights({ mb = 6 }, 10, 0.02, S))
  end)

  it("of two replicas are those of twice the rows", function()
    near(weights({ rf = 2, mb = 3 }, 6, 0.1), weights({ mb = 6 }, 6, 0.1))
  end)

  it("are the same for all strategies of the mean", function()
    local R = poptorch.MeanReductionStrategy
    local post = weights({ ga = 5, mb = 2, rf = 2 }, 3, 0.1, nil, R.Post)
    near(weights({ ga = 5, mb = 2, rf = 2 }, 3, 0.1, nil, R.Running), post)
    near(weights({ ga = 5, mb = 2, rf = 2 }, 3, 0.1, nil, R.PostAndLoss), post)
  end)

  it("divide the loss by the replicas under PostAndLoss", function()
    local function gradients(strategy)
      local net = nn.Module:extend("Net")()
      net.w = nn.Parameter(torch.ones(2))
      function net:forward(rows)
        return poptorch.identity_loss(self.w * rows, "sum")
      end
      local o = poptorch.Options():replicationFactor(4)
      o:anchorTensor("g", "Gradient___w", poptorch.OutputMode.All)
      o.Training:setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy[strategy])
      local model = poptorch.trainingModel(net, o, torch.optim.SGD(net:parameters(), { lr = 1.0 }))
      model(torch.ones(4, 2))
      return model:getAnchoredTensor("g"):reshape(-1)[0]:item(), net.w[0]:item()
    end
    assert.same({ 1, 0 }, { gradients("Post") })
    assert.same({ 0.25, 0 }, { gradients("PostAndLoss") })
  end)
end)
