-- What phases and their settings make of a session's report: where tensors are and when
-- they move (executionPhaseSettings). Values are those without phases.
local files = require("spec.support.files")
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")
local traced = require("popart.traced")

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

  it("are passed by parts of a batch one after another", function()
    local function of(factor, more)
      local settings = popart.SessionOptions().batchSerializationSettings
      settings.factor = factor
      local options = { batchSerializationSettings = settings,
        weightTensorLocationSettings = off_chip(), activationTensorLocationSettings = off_chip() }
      for name, value in pairs(more or {}) do
        options[name] = value
      end
      local got, r = train({ options = options })
      equal(want, got)
      return r
    end
    local whole, parts = of(0), of(4)
    assert.same({ 1, 1, 4, 4 }, { whole.micro_batches, whole.together, parts.micro_batches,
      parts.together })
    assert.same({ whole.samples, whole.loops }, { parts.samples, parts.loops })
    -- what a batch streams: weights once, activations of three stages whole in both; parts hand
    -- theirs on off the chip, too, and so do gradients
    local function streamed(r, from)
      local sum = 0
      for i, row in ipairs(r.schedule) do
        for _, e in ipairs(row.kind == "phase" and i >= from and row.entries or {}) do
          sum = sum + (e.kind == "load" and e.bytes or 0)
        end
      end
      return sum
    end
    local batch = ROWS * SIDE * 4
    assert.equal(6 * BYTES + 2 * 2 * batch, streamed(whole, 1))
    assert.equal(6 * BYTES + 3 * 2 * batch + 2 * 3 * batch, streamed(parts, 1))
    assert.equal(4 * BYTES + 3 * 2 * batch, parts.memory[0].off_chip)
    assert.equal(4 * BYTES + 2 * 2 * batch, whole.memory[0].off_chip)

    local function why(factor, more)
      for _, text in ipairs(of(factor, more).no_effect) do
        if text:find("^SessionOptions.batchSerializationSettings.factor") then
          return text:match(": (.*)")
        end
      end
      return nil
    end
    assert.is_nil(why(2))
    assert.equal("a batch has one part", why(1))
    assert.equal("the batch of 'x' has no 3 equal parts", why(3))
    assert.equal("what parts hand to the next phase waits off the chip, and activations stay on it",
      why(2, { activationTensorLocationSettings = popart.TensorLocationSettings() }))
  end)

  it("are passed by parts where the model can be had with fewer rows, in inference too", function()
    local function infer(rows, factor, folder)
      local b, o = popart.Builder(), popart.SessionOptions()
      local h = b:addInputTensor("FLOAT", { ROWS, SIDE }, "x")
      for i = 1, 2 do
        local _ <close> = b:executionPhase(i - 1)
        h = b.aiOnnx:matmul({ h, b:addInitializedInputTensor(torch.eye(SIDE)) })
        h = b.aiOnnx:reshape({ h, b.aiOnnx:constant(torch.tensor({ rows, SIDE })) })
      end
      o.executionPhaseSettings.phases, o.executionPhaseSettings.stages = 2, 1
      o.virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases
      o.batchSerializationSettings.factor = factor
      o.activationTensorLocationSettings = off_chip()
      if folder then
        o.enableEngineCaching, o.cachePath = true, folder
      end
      local given = { fnModel = b:getModelProto(), dataFlow = popart.DataFlow(BATCHES, { h }),
        deviceInfo = helper.device(), userOptions = o }
      local s = popart.InferenceSession(given)
      s:prepareDevice()
      local x = torch.cos(torch.arange(BATCHES * ROWS * SIDE)):reshape(BATCHES * ROWS, SIDE)
      assert.is_true(torch.equal(x, helper.run(s, { x = x })[h]:reshape(BATCHES * ROWS, SIDE)))
      return s, given
    end
    local s, given = infer(-1, 2)
    local report = s:getReport()
    assert.same({ 2 * BATCHES, 2 }, { report.micro_batches, report.together })
    assert.matches("an operator of the model has its number of rows as a constant: .*reshape.*8",
      table.concat(infer(ROWS, 2):getReport().no_effect, "\n"))
    local trace, asked = traced.trace, 0
    finally(function()
      traced.trace = trace
    end)
    function traced.trace(...)
      asked = asked + 1
      return asked > 1 and error("a fault of ours", 0) or trace(...)
    end
    assert.has_error(function()
      infer(-1, 2)
    end, "a fault of ours")
    traced.trace = trace
    local path = os.tmpname()
    given.deviceInfo = popart.DeviceManager():createOfflineIPUDevice({ numIPUs = 1 })
    local offline = popart.InferenceSession(given)
    offline:compileAndExport(path)
    report = offline:getReport()
    local again = popart.InferenceSession(given)
    again:loadExecutableFromFile(path)
    again:prepareDevice()
    os.remove(path)
    -- what is planned when it is asked for is the part, not the batch
    local function json(of)
      return of:json():gsub('"line":%d+', "")
    end
    local function same(of)
      assert.equal(report.cycles, of.cycles)
      assert.equal(report.micro_batches, of.micro_batches)
      assert.equal(#report:nodes(), #of:nodes())
      assert.is_true(json(report) == json(of))
    end
    same(again:getReport())
    local folder = files.unused()
    finally(function()
      files.remove(folder)
    end)
    report = infer(-1, 2, folder):getReport()
    same(infer(-1, 2, folder):getReport())
  end)

  it("are followed by an update that is one, unless gradients accumulate", function()
    local adam = popart.Adam({ defaultLearningRate = { 0.02, true } })
    local function of(settings, accumulation, phases)
      local _, r = train({ settings = settings, optimizer = adam, accumulation = accumulation,
        phases = phases, options = { optimizerStateTensorLocationSettings = off_chip() } })
      return r
    end
    local late, ahead = of({}), of({ optimizerStateIOSchedule = Schedule.Preload })
    -- two states of each weight: with the update, or with the phase before it
    local function loads(r)
      local list = {}
      for _, row in ipairs(r.schedule) do
        for _, e in ipairs(row.entries) do
          if e.kind == "load" and e.bytes >= BYTES then
            list[#list + 1] = row.kind .. " " .. e.bytes // BYTES
          end
        end
      end
      return list
    end
    assert.same({ "update 8" }, loads(late))
    assert.same({ "phase 8" }, loads(ahead))
    local Order = popart.ExecutionPhaseSchedule
    local batch = of({ schedule = Order.Batch })
    assert.same({ "interleaving", "batch", "batch" }, { late.update_order, batch.update_order,
      of({ schedule = Order.BatchClusteredIO }).update_order })
    assert.equal(3 * late.host_sync, late.cycles // BATCHES - batch.cycles // BATCHES)
    for _, name in ipairs({ "optimizerStateIOSchedule", "schedule" }) do
      local settings = { [name] = name == "schedule" and Order.Batch or Schedule.Preload }
      assert.is_nil(noted(of(settings), name))
      assert.equal("with gradient accumulation the weight update is no phase",
        noted(of(settings, 2), name))
      assert.equal("phased execution needs VirtualGraphMode.ExecutionPhases and 2 phases",
        noted(of(settings, 1, 0), name))
    end
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
