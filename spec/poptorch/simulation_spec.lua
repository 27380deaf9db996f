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

  it("may run out of memory on the IPU Model and with debug.allowOutOfMemory only", function()
    local options = poptorch.Options():outputMode(poptorch.OutputMode.All)
    assert.is_false(settings(options).allow_out_of_memory)
    assert.is_true(settings(options, { kind = "model", version = 2 }).allow_out_of_memory)
    options._Popart:set("engineOptions", { ["debug.allowOutOfMemory"] = "true" })
    assert.is_true(settings(options).allow_out_of_memory)
  end)
end)
