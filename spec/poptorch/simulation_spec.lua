local poptorch = require("poptorch")
local simulation = require("poptorch.simulation")
local torch = require("torch")

local function settings(options, target)
  return simulation.settings(options, target or { kind = "hardware" })
end

describe("what the simulated system gets from the options", function()
  it("is a Mk2 unless a target says otherwise", function()
    local options = poptorch.Options():outputMode(poptorch.OutputMode.All)
    assert.equal("ipu2", settings(options).chip)
    assert.equal("ipu1", settings(options, { kind = "offline", version = 1 }).chip)
    assert.equal("ipu21", settings(options, { kind = "offline", version = 21 }).chip)
    assert.equal(4, settings(options, { kind = "model", version = 2, tiles = 4 }).tiles)
  end)

  it("has strategy, locations, partials and proportions", function()
    local options = poptorch.Options():outputMode(poptorch.OutputMode.All)
    options:setExecutionStrategy(poptorch.SerialPhasedExecution("A", "B"):setTensorsLiveness(
      poptorch.Liveness.OffChipAfterEachPhase))
    options:setAvailableMemoryProportion({ IPU0 = 0.3, IPU2 = 0.1 })
    options.Precision:setPartialsType(torch.half)
    options.TensorLocations:numIOTiles(64)
    local s = settings(options)
    assert.equal("serial_phased", s.strategy)
    assert.equal(3, s.liveness)
    assert.same({ [0] = 0.3, [2] = 0.1 }, s.proportion)
    assert.equal("half", s.partials)
    assert.equal(64, s.io_tiles)
    assert.is_false(s.weight.on_chip)
  end)

  it("returns as many slices as the output mode says", function()
    local M = poptorch.OutputMode
    local function slices(...)
      return settings(poptorch.Options():deviceIterations(6):outputMode(...)).output_slices
    end
    assert.same({ 0, 1, 1, 3 }, { slices(M.All), slices(M.Final), slices(M.Sum),
      slices(M.EveryN, 2) })
  end)

  it("recomputes as autoRecomputation says", function()
    local function recompute(value)
      local options = poptorch.Options():outputMode(poptorch.OutputMode.All)
      if value then
        options._Popart:set("autoRecomputation", value)
      end
      return settings(options).recompute
    end
    assert.same({ "auto", "none", "auto", "all", "none" }, { recompute(), recompute(0),
      recompute("Pipeline"), recompute("RecomputeAll"), recompute("NoRecompute") })
    require("spec.helper").raises("Error", "autoRecomputation", function()
      recompute("Sometimes")
    end)
  end)

  it("moves tensors between phases as executionPhaseSettings say", function()
    local function of(values)
      local options = poptorch.Options():outputMode(poptorch.OutputMode.All)
      for name, value in pairs(values) do
        options._Popart:set(("executionPhaseSettings.%sIOSchedule"):format(name), value)
      end
      local s = settings(options)
      return { s.weight.on_demand, s.activation.on_demand, s.accumulator.on_demand,
        s.optimizer.on_demand }
    end
    assert.same({ false, false, false, true }, of({}))
    assert.same({ true, false, true, false }, of({ weight = 1, accumulator = "OnDemand",
      activation = "Preload", optimizerState = 0 }))
    require("spec.helper").raises("Error", "weightIOSchedule: expected 0..1 or Preload, OnDemand, "
      .. "got Never", function()
        of({ weight = "Never" })
      end)

  end)

  -- Why an option changes nothing in two phases or stages, and the report. change(options):
  -- of training, returns its micro-batches.
  local function phased(strategy, name, value, change)
    local nn = require("torch.nn")
    local net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    poptorch.BeginBlock(net[1], "A", 0)
    poptorch.BeginBlock(net[2], "B", 0)
    local options = poptorch.Options():setExecutionStrategy(strategy)
    options._Popart:set(name, value)
    local micro_batches, model = change and change(options) or 1, nil
    if change then
      local Model = nn.Module:extend("Model")
      function Model:init() self.net = net end
      function Model:forward(x)
        return poptorch.identity_loss(self.net(x), { reduction = "mean" })
      end
      model = poptorch.trainingModel(Model(), options,
        poptorch.optim.Adam(net:parameters(), { lr = 0.01 }))
    end
    model = model or poptorch.inferenceModel(net, options)
    model:compile(torch.ones(8 * micro_batches, 4))
    local report = model:report()
    return table.concat(report.no_effect, "\n"):match(name:gsub("%p", "%%%0")
      .. "'%): ([^\n]*)"), report
  end
  local L = poptorch.Liveness
  local function serial(liveness)
    return poptorch.SerialPhasedExecution("A", "B"):setTensorsLiveness(liveness or L.AlwaysLive)
  end

  it("is told when nothing comes ahead of a phase", function()
    local function noted(strategy)
      return (phased(strategy, "executionPhaseSettings.weightIOSchedule", "OnDemand"))
    end
    assert.is_nil(noted(serial()))
    assert.equal("with this Liveness phases that load and store lie between those that compute",
      noted(serial(L.OffChipAfterEachPhase)))
    assert.equal("phased execution alone has phases", noted(poptorch.ShardedExecution("A", "B")))
  end)

  it("has an update that is a phase as executionPhaseSettings say, or accumulates", function()
    local function trains(accumulation)
      return function(options)
        options.Training:gradientAccumulation(accumulation)
        return accumulation
      end
    end
    for name, value in pairs({ optimizerStateIOSchedule = "Preload", schedule = "Batch" }) do
      local option = "executionPhaseSettings." .. name
      local why, r = phased(serial(), option, value, trains(1))
      assert.is_nil(why)
      assert.equal(value == "Batch" and "batch" or "interleaving", r.update_order)
      assert.equal(value == "Batch" and 1 or 0, r.on_demand.optimizer)
      assert.equal("with gradient accumulation the weight update is no phase",
        (phased(serial(), option, 1, trains(2))))
      assert.equal("inference has no optimizer", (phased(serial(), option, 1)))
      assert.equal("phased execution alone has phases",
        (phased(poptorch.ShardedExecution("A", "B"), option, 1, trains(1))))
    end
  end)

  it("has parts of a phase in the order of batchSchedule", function()
    local name = "batchSerializationSettings.batchSchedule"
    local function parts(io, factor)
      return function(options)
        options._Popart:set("batchSerializationSettings.factor", factor)
        options.Training:gradientAccumulation(4)
        if io then
          options.TensorLocations:numIOTiles(32):setActivationLocation(
            poptorch.TensorLocationSettings():useOnChipStorage(false):useIOTilesToLoad(true))
        end
        return 4
      end
    end
    local why, r = phased(serial(L.OffChipAfterFwd), name, "OverlapOnIo", parts(true, 4))
    assert.is_nil(why)
    assert.equal("overlap_io", r.part_order)
    assert.equal("no I/O tiles move activations",
      (phased(serial(L.OffChipAfterFwd), name, 3, parts(false, 4))))
    assert.equal("a phase is passed by one micro-batch",
      (phased(serial(L.OffChipAfterFwd), name, 3, parts(true, 1))))
  end)

  it("has micro-batches that pass a phase together by batchSerializationSettings.factor", function()
    local function cycles(kind, factor)
      local net = require("torch.nn").Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
      poptorch.BeginBlock(net[1], "A", 0)
      poptorch.BeginBlock(net[2], "B", 0)
      local options = poptorch.Options():setExecutionStrategy(poptorch[kind .. "Execution"]("A",
        "B")):deviceIterations(4)
      options._Popart:set("batchSerializationSettings.factor", factor)
      local model = poptorch.inferenceModel(net, options)
      model:compile(torch.ones(8, 64))
      return model:report().cycles
    end
    assert.is_true(cycles("SerialPhased", 2) < cycles("SerialPhased", 1))
    local e = require("spec.helper").raises("Error", "4 micro%-batches, .* no multiple of 3",
      function()
        cycles("SerialPhased", 3)
      end)
    assert.matches("batchSerializationSettings.factor", e.message)
    require("spec.helper").raises("Error", "the strategy sharded, which has no phases", function()
      cycles("Sharded", 2)
    end)
  end)

  it("may run out of memory on the IPU Model and with debug.allowOutOfMemory only", function()
    local options = poptorch.Options():outputMode(poptorch.OutputMode.All)
    assert.is_false(settings(options).allow_out_of_memory)
    assert.is_true(settings(options, { kind = "model", version = 2 }).allow_out_of_memory)
    options._Popart:set("engineOptions", { ["debug.allowOutOfMemory"] = "true" })
    assert.is_true(settings(options).allow_out_of_memory)
  end)
end)
