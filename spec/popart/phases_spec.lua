-- What phases and their settings make of a session's report: where tensors are and when
-- they move (executionPhaseSettings). Values are those without phases.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local SIDE, ROWS, BATCHES = 16, 8, 2
local BYTES = SIDE * SIDE * 4
local Schedule = popart.ExecutionPhaseIOSchedule

local function off_chip()
  return popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip), 2, 2)
end

-- Four layers of a product and a tanh, in a phase each. given: settings (of phases), options,
-- accumulation, phases (0: none). Weights after a run, and the session.
local function train(given)
  local b, weights = popart.Builder(), {}
  local x = b:addInputTensor("FLOAT", { ROWS, SIDE }, "x")
  local h = x
  torch.manual_seed(5)
  for i = 1, 4 do
    local _ <close> = b:executionPhase(i - 1)
    weights[i] = b:addInitializedInputTensor(torch.randn(SIDE, SIDE) * 0.2, "w" .. i)
    h = b.aiOnnx:tanh({ b.aiOnnx:matmul({ h, weights[i] }) })
    if i == 4 then
      h = helper.l1(b, h, 0.1)
    end
  end
  local accumulation, o = given.accumulation or 1, popart.SessionOptions()
  for field, value in pairs(given.settings or {}) do
    o.executionPhaseSettings[field] = value
  end
  local phased = given.phases ~= 0
  o.executionPhaseSettings.phases = phased and 4 or 0
  o.executionPhaseSettings.stages = given.stages or 1
  local options = helper.loops(accumulation, 1, given.options)
  options.executionPhaseSettings = o.executionPhaseSettings
  options.virtualGraphMode = phased and popart.VirtualGraphMode.ExecutionPhases or nil
  local s = helper.training(b, popart.DataFlow(BATCHES, {}), h, given.optimizer
    or popart.ConstSGD(0.05), { options = options, device = helper.device(given.stages or 1) })
  helper.run(s, { x = torch.cos(torch.arange(BATCHES * accumulation * ROWS * SIDE) * 0.3)
    :reshape(BATCHES * accumulation * ROWS, SIDE) })
  return helper.weights(s, weights), s:getReport()
end

local function equal(want, got)
  for id, t in pairs(want) do
    assert.is_true(torch.equal(t, got[id]), id)
  end
end

local function noted(r, name)
  for _, text in ipairs(r.no_effect) do
    local why = text:match("executionPhaseSettings%." .. name .. ": (.*)")
    if why then
      return why
    end
  end
  return nil
end

-- Bytes that come from streaming memory for a micro-batch, in its phases.
local function loaded(r)
  local sum = {}
  for i, row in ipairs(r.schedule) do
    for _, e in ipairs(row.kind == "phase" and row.entries or {}) do
      sum[i] = (sum[i] or 0) + (e.kind == "load" and e.bytes or 0)
    end
  end
  return sum
end

describe("phases of a session", function()
  local want = train({ phases = 0 })

  it("keep activations off the chip whose two phases are more than two apart", function()
    local got, r = train({ options = { activationTensorLocationSettings = off_chip() } })
    equal(want, got)
    -- phases 0 and 1 of 0..6: a product keeps its input, a tanh its result
    assert.equal(2 * 2 * ROWS * SIDE * 4, r.memory[0].off_chip)
    got, r = train({})
    equal(want, got)
    assert.equal(0, r.memory[0].off_chip)
  end)

  it("load weights a phase ahead, or on demand", function()
    local function of(schedule)
      local got, r = train({ settings = { weightIOSchedule = schedule },
        options = { weightTensorLocationSettings = off_chip() } })
      equal(want, got)
      assert.is_nil(noted(r, "weightIOSchedule"))
      assert.equal(schedule == Schedule.OnDemand and 1 or 0, r.on_demand.weight)
      return loaded(r)
    end
    -- the last phase, forward and backward, loads for the backward phase of the one before,
    -- and the first phase's backward pass reads no weight
    assert.same({ 2 * BYTES, BYTES, BYTES, BYTES, BYTES, 0, 0 }, of(Schedule.Preload))
    assert.same({ BYTES, BYTES, BYTES, BYTES, BYTES, BYTES, 0 }, of(Schedule.OnDemand))
  end)

  it("are told where the settings change nothing", function()
    local settings = { weightIOSchedule = Schedule.OnDemand }
    local _, r = train({ settings = settings })
    assert.equal("they are on the chip", noted(r, "weightIOSchedule"))
    _, r = train({ settings = settings, phases = 0 })
    assert.equal("phased execution needs VirtualGraphMode.ExecutionPhases and 2 phases",
      noted(r, "weightIOSchedule"))
  end)
end)
