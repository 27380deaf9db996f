-- Runs that are stopped and go on: what they leave has the bits of a run that was not.
-- (Expectations 25, 26, 27.)
local files = require("spec.support.files")
local runs = require("spec.support.runs")

describe("a run that is stopped", function()
  local folder

  before_each(function()
    folder = runs.project()
  end)
  after_each(function()
    files.remove(folder)
  end)

  local function lupine(...)
    return runs.lupine(folder, ...)
  end

  local function code_of(...)
    return (select(3, lupine(...)))
  end

  local function path(name)
    return folder .. "/runs/" .. name
  end

  -- Run 1 is never stopped, run 2 is and goes on; both have the seed.
  local function same_bits(words, send, code)
    assert.equal(0, code_of("run run.yaml seed=5 " .. words))
    assert.equal(code, code_of("run run.yaml seed=5 " .. words, send))
    local out, err, last = lupine("run --resume")
    assert.equal(0, last, err)
    assert.matches("goes on from runs/run%-002/checkpoints/step%-%d+\n", out)
    assert.equal(runs.weights(path("run-001")), runs.weights(path("run-002")))
    assert.same(runs.rows(path("run-001")), runs.rows(path("run-002")))
    assert.equal("finished", runs.facts(path("run-002")).status)
  end

  it("by SIGTERM in an epoch goes on with the same bits", function()
    same_bits("", "SEND='TERM 12'", 75)
  end)

  it("by Ctrl-C, with workers and operator by operator", function()
    same_bits("mode=eager data.num_workers=2", "SEND='INT 11'", 75)
  end)

  it("by kill -9, from the checkpoint before it", function()
    same_bits("checkpoint.every=5 validate_every=3 scheduler.class=StepLR "
      .. "scheduler.args.step_size=1 metrics=accuracy", "SEND='KILL 13'", 137)
  end)

  it("on the simulated system goes on with the same bits", function()
    same_bits("mode=poptorch options.deviceIterations=2 epochs=2 checkpoint.every=2",
      "SEND='TERM 6'", 75)
    assert.matches("Memory Usage:", files.read(path("run-002/report.txt")), 1, true)
  end)
end)
