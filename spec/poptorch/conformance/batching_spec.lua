--- Conformance: batching and output modes.
local helper = require("spec.helper")
local models = require("spec.support.models")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn
local near, raises = helper.near, helper.raises
local O = poptorch.OutputMode

local function options(t)
  local o = poptorch.Options():deviceIterations(t.di or 1):replicationFactor(t.rf or 1)
  o.Training:gradientAccumulation(t.ga or 1)
  return t.mode and o:outputMode(t.mode, t.period) or o
end

local function shape(t)
  return { table.unpack(t.shape) }
end

-- A classifier of ten classes with its loss.
local Net = nn.Module:extend("Net")

function Net:init()
  self.fc, self.loss = nn.Linear(10, 10), nn.CrossEntropyLoss()
end

function Net:forward(x, target)
  local y = self.fc(x)
  return y, self.loss(y, target)
end

-- What a training call of so many rows returns; the optimizer is the default.
local function train(t, rows)
  local model = poptorch.trainingModel(Net(), options(t))
  return model(torch.ones(rows, 10), torch.zeros(rows, { dtype = torch.int64 }))
end

describe("conformance of batching", function()
  local linear = nn.Linear(6, 20)
  local x = torch.randn(10, 1, 5, 6)
  local want = linear(x):detach()

  local function infer(mode, period)
    return poptorch.inferenceModel(linear, options({ di = 10, mode = mode, period = period }))(x)
  end

  it("BAT01 inference returns every row by default", function()
    for _, mode in ipairs({ O.All, O.Default }) do
      local y = infer(mode)
      assert.same({ 10, 1, 5, 20 }, shape(y))
      near(y, want)
    end
  end)

  it("BAT03 Final returns the last row", function()
    local y = infer(O.Final)
    assert.same({ 1, 1, 5, 20 }, shape(y))
    near(y, want["9:10"])
  end)

  it("BAT04 Sum returns the sum of the rows", function()
    local y = infer(O.Sum)
    assert.same({ 1, 1, 5, 20 }, shape(y))
    near(y, want:sum(0, { keepdim = true }))
  end)

  it("BAT06 EveryN 20 of 1000 iterations returns 50", function()
    local y, loss = train({ di = 1000, mode = O.EveryN, period = 20 }, 1000)
    assert.same({ { 50, 10 }, { 50 } }, { shape(y), shape(loss) })
    near(infer(O.EveryN, 5), want["4::5"]) -- the last of each five
  end)

  it("BAT07 training returns the last micro-batch by default", function()
    for _, mode in ipairs({ O.Final, O.Default }) do
      local y, loss = train({ di = 1000, mode = mode }, 1000)
      assert.same({ { 1, 10 }, {} }, { shape(y), shape(loss) })
      assert.is_true(loss:item() < 0.2)
    end
  end)

  it("BAT09 losses of 4 iterations of 2 micro-batches", function()
    for _, case in ipairs({ { O.All, 8 }, { O.EveryN, 4, 2 }, { O.Final, 1 }, { O.Sum, 1 } }) do
      local _, loss = train({ di = 4, ga = 2, mode = case[1], period = case[3] }, 8)
      assert.equal(case[2], loss:numel(), tostring(case[1]))
    end
  end)

  it("BAT10 a loss of each replica", function()
    local _, loss = train({ rf = 4 }, 4)
    assert.same({ 4 }, shape(loss))
  end)

  it("BAT12 a tensor without dimensions counts as one row", function()
    local double = models.of(function(_, v)
      return v * 2
    end)
    raises("AssertionError", "multiple of 2", function()
      poptorch.inferenceModel(double, options({ di = 2 }))(torch.tensor(3.0))
    end)
    near(poptorch.inferenceModel(double)(torch.tensor(3.0)), 6)
  end)

  it("BAT13 a period divides the iterations", function()
    for _, period in ipairs({ 3, 12 }) do
      local e = raises("Error", "divide", function()
        infer(O.EveryN, period)
      end)
      assert.equal("popart_exception", e.type)
    end
  end)

  it("BAT15 with Sum twice the micro-batches is twice the rate", function()
    local function weights(ga, lr)
      torch.manual_seed(3)
      local net = Net()
      local o = options({ ga = ga })
      o.Training:accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
      local model = poptorch.trainingModel(net, o, torch.optim.SGD(net:parameters(), { lr = lr }))
      local rows, target = torch.ones(2, 10), torch.full({ 2 }, 8, { dtype = torch.int64 })
      for _ = 1, 10 do
        model(rows, target)
      end
      return net.fc.weight
    end
    near(weights(2, 0.01), weights(1, 0.02):detach())
  end)

  it("BAT17 a sum has dimensions only if there are several", function()
    local sum = models.of(function(_, v)
      return v:sum()
    end)
    assert.same({}, shape(poptorch.inferenceModel(sum)(torch.ones(2, 3))))
    near(poptorch.inferenceModel(sum, options({ di = 2 }))(torch.ones(4, 3)), { 6, 6 })
  end)

  it("BAT18 five iterations are five updates", function()
    local function weights(di)
      torch.manual_seed(5)
      local net = Net()
      local model = poptorch.trainingModel(net, options({ di = di }),
        torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 }))
      local rows, target = torch.randn(5, 10), torch.arange(5)
      for i = 0, 4, di do
        model(rows[("%d:%d"):format(i, i + di)], target[("%d:%d"):format(i, i + di)])
      end
      return net.fc.weight
    end
    near(weights(5), weights(1):detach())
  end)

  it("BAT19 forward sees the rows of a micro-batch", function()
    local seen
    local Sees = nn.Module:extend("Sees")
    function Sees:init()
      self.fc = nn.Linear(3, 1)
    end
    function Sees:forward(v)
      seen = v.shape[1]
      return poptorch.identity_loss(self.fc(v), "mean")
    end
    poptorch.trainingModel(Sees(), options({ di = 2, ga = 3, rf = 2 }))(torch.randn(24, 3))
    assert.equal(2, seen)
  end)
end)
