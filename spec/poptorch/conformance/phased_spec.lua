--- Conformance: sharded and phased execution.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn
local near, raises, refuses = helper.near, helper.raises, helper.refuses
local L, Phase, Stage = poptorch.Liveness, poptorch.Phase, poptorch.Stage

-- Layers in blocks "B0", "B1", … without IPUs of their own.
local Layers = nn.Module:extend("Layers")

function Layers:init(n)
  self.n = n
  for i = 0, n - 1 do
    self["fc" .. i] = nn.Linear(4, 4)
  end
end

function Layers:forward(x)
  for i = 0, self.n - 1 do
    poptorch.Block.start("B" .. i)
    x = self["fc" .. i](x)
  end
  return x, poptorch.identity_loss(x, "sum")
end

local function train(strategy, n, opts)
  local model = poptorch.trainingModel(Layers(n),
    (opts or poptorch.Options()):setExecutionStrategy(strategy))
  model(torch.ones(4))
  return model
end

-- The numbers of phases: in all, of the forward and of the backward passes.
local function numbers(liveness, separate)
  local strategy = poptorch.SerialPhasedExecution("B0", "B1", "B2")
  strategy:setTensorsLiveness(liveness):useSeparateBackwardPhase(separate)
  local r = train(strategy, 3):report()
  local out = { r.phases, {}, {} }
  for i, stage in ipairs(r.stages) do
    out[2][i], out[3][i] = stage.forward_phase, stage.backward_phase
  end
  return out
end

describe("conformance of sharded and phased execution", function()
  it("PHA01 four shards on four IPUs multiply by 120", function()
    local Times = nn.Module:extend("Times")
    function Times:forward(x)
      for i = 0, 3 do
        poptorch.Block.start(tostring(i), { ipu_id = i })
        x = x * (i + 2)
      end
      return x
    end
    local model = poptorch.inferenceModel(Times(),
      poptorch.Options():setExecutionStrategy(poptorch.ShardedExecution()))
    local x = torch.randn(5)
    near(model(x), x * 120)
    assert.equal(4, model:report().ipus)
  end)

  it("PHA03 a phase has an IPU for each stage", function()
    local phase = Phase(Stage("A"), Stage("B"))
    refuses("AssertionError", "2 stages, got 1", phase.ipus, phase, 0)
    phase:ipus(0, 2)
  end)

  it("PHA04 liveness numbers the phases of serial execution", function()
    for _, case in ipairs({
      { L.AlwaysLive, { 3, { 0, 1, 2 }, { 4, 3, 2 } } },
      { L.OffChipAfterFwd, { 6, { 0, 1, 2 }, { 8, 7, 6 } } },
      { L.OffChipAfterFwdNoOverlap, { 8, { 0, 2, 4 }, { 12, 10, 8 } } },
      { L.OffChipAfterEachPhase, { 12, { 0, 4, 8 }, { 20, 16, 12 } } },
    }) do
      assert.same(case[2], numbers(case[1], false))
    end
  end)

  it("PHA06 a separate backward phase is one more", function()
    assert.same({ 4, { 0, 1, 2 }, { 6, 5, 4 } }, numbers(L.AlwaysLive, true))
  end)

  it("PHA07 parallel phases alternate between even and odd IPUs", function()
    local function strategy(ipu)
      return poptorch.ParallelPhasedExecution({ Stage("B0"):ipu(0) }, { Stage("B1"):ipu(ipu) })
    end
    raises("Error", "odd", function()
      train(strategy(0), 2)
    end)
    train(strategy(1), 2)
    local two = poptorch.ParallelPhasedExecution({ Stage("B0"), Stage("B1") },
      { Stage("B2"), Stage("B3") })
    two:phase(0):ipus(0, 2)
    two:phase(1):ipus(1, 3)
    local r = train(two, 4):report()
    local found = {}
    for i, stage in ipairs(r.stages) do
      found[i] = { stage.forward_phase, stage.ipu }
    end
    assert.same({ { 0, 0 }, { 0, 2 }, { 1, 1 }, { 1, 3 } }, found)
  end)

  it("PHA09 phases are counted from 0", function()
    local strategy = poptorch.SerialPhasedExecution("A", "B", "C")
    assert.is_true(Phase:is(strategy:phase(2)))
    for _, wrong in ipairs({ -1, "0" }) do
      refuses("AssertionError", "phase", strategy.phase, strategy, wrong)
    end
    refuses("IndexError", "9", strategy.phase, strategy, 9)
  end)

  it("PHA10 phased execution puts tensors off the chip, unless the user says else", function()
    local opts = poptorch.Options()
    opts.TensorLocations:setWeightLocation(poptorch.TensorLocationSettings():useOnChipStorage(true))
    local model = train(poptorch.SerialPhasedExecution("B0", "B1"), 2, opts)
    local found = {}
    for name, location in pairs(poptorch.options.effective_locations(model.options)) do
      found[name] = location.on_chip
    end
    assert.same({ activation = false, weight = true, optimizer = false,
      accumulator = false }, found)
  end)
end)
