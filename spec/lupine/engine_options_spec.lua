-- The engine's options: their rows, what wins, and that a report names the others.
local engine_options = require("lupine.engine_options")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local with_env = require("spec.poptorch.helper").with_env

-- What the original's documents name.
local DOCUMENTED = { "autoReport.all", "autoReport.directory", "autoReport.outputDebugInfo",
  "debug.allowOutOfMemory", "target.deterministicWorkers" }

local function notes(engine)
  local lines = {}
  engine_options.note(engine, function(name, why)
    lines[#lines + 1] = name .. ": " .. why
  end)
  return table.concat(lines, "\n")
end

describe("engine options", function()
  it("have a row each, that says what they change or why nothing", function()
    local rows = {}
    for _, row in ipairs(engine_options.rows) do
      rows[row.name] = row
      assert.truthy(row.doc and (row.effect == nil) ~= (row.no_effect == nil), row.name)
    end
    for _, name in ipairs(DOCUMENTED) do
      assert.truthy(rows[name], name)
    end
  end)

  it("are true or false, a folder, or whatever an unknown one has", function()
    local function effective(given)
      return engine_options.effective(given, "here")
    end
    assert.same({ ["autoReport.all"] = "true", x = "3" },
      effective({ ["autoReport.all"] = true, x = 3 }))
    helper.refuses("Error", "here: 'autoReport%.all': expected true or false", effective,
      { ["autoReport.all"] = "yes" })
    local workers = "target.deterministicWorkers" -- identical_replica_test.py
    assert.same({ [workers] = "portable" }, effective({ [workers] = "portable" }))
    helper.refuses("Error", "expected true or false", effective,
      { ["autoReport.all"] = "portable" })
    helper.refuses("Error", "expected a folder", effective, { ["autoReport.directory"] = "" })
    helper.refuses("Error", "here: 'x': expected a string", effective, { x = {} })
    helper.refuses("Error", "names of options", effective, { "autoReport.all" })
  end)

  it("say how long a sync with the host takes, of the chip's unless given", function()
    local function report(cycles)
      local options = poptorch.Options()
      options._Popart:set("engineOptions", { ["lupine.hostSyncCycles"] = cycles })
      local model = poptorch.inferenceModel(torch.nn.Linear(4, 4), options)
      model:compile(torch.ones(2, 4))
      return model:report()
    end
    local chips, none, long = report(nil), report(0), report(40000)
    assert.same({ 600, 0, 40000 }, { chips.host_sync, none.host_sync, long.host_sync })
    -- inputs and outputs of the one row have one
    assert.equal(600, chips.cycles - none.cycles)
    assert.equal(40000, long.cycles - none.cycles)
    assert.is_true(long.wall_efficiency < chips.wall_efficiency)
    helper.refuses("Error", 'expected cycles, or %-1, got string "soon"',
      engine_options.effective, { ["lupine.hostSyncCycles"] = "soon" }, "here")
  end)

  it("of the environment win", function()
    with_env({ POPLAR_ENGINE_OPTIONS = '{"autoReport.all": false, "y": 1}' }, function()
      assert.same({ ["autoReport.all"] = "false", x = "1", y = "1" },
        engine_options.effective({ ["autoReport.all"] = "true", x = "1" }, "here"))
    end)
    for text, why in pairs({ ["[]"] = "JSON object", ["{"] = "JSON object such as .*: ",
      ['{"autoReport.all": 1}'] = "true or false", ['{"x": null}'] = "expected a string" }) do
      with_env({ POPLAR_ENGINE_OPTIONS = text }, function()
        helper.refuses("Error", why, engine_options.effective, {}, "here")
      end)
    end
  end)

  it("have the values of others by default", function()
    local engine = { ["autoReport.all"] = "true", ["autoReport.outputDebugInfo"] = "false" }
    assert.same({ "profile.json", "summary.txt", "graph.txt" }, engine_options.files(engine))
    assert.equal(".", engine_options.value(engine, "autoReport.directory"))
    assert.is_true(engine_options.is_on(engine, "debug.allowOutOfMemory"))
    assert.is_false(engine_options.is_on({}, "debug.allowOutOfMemory"))
  end)

  it("without effect are noted, with names that are near", function()
    assert.equal("", notes({ ["autoReport.all"] = "true", ["debug.allowOutOfMemory"] = "true" }))
    local text = notes({ ["target.deterministicWorkers"] = "true", ["autoReport.al"] = "true" })
    assert.matches("'autoReport.al': the simulated engine has no such option "
      .. "%(nearest: 'autoReport.all'", text)
    assert.matches("'target.deterministicWorkers': random numbers", text)
  end)

  it("of the environment are named by enableProfiling and by the report", function()
    with_env({ POPLAR_ENGINE_OPTIONS = '{"autoReport.all": "false", "a.b": 1}' }, function()
      local options
      local log = helper.logged(function()
        options = poptorch.Options():enableProfiling("elsewhere")
      end)
      assert.matches("POPLAR_ENGINE_OPTIONS wins with autoReport.all$", log)
      local model = poptorch.inferenceModel(torch.nn.Linear(2, 2), options)
      model:compile(torch.ones(1, 2))
      assert.matches("engine option 'a.b'", table.concat(model:report().no_effect, "\n"), 1, true)
    end)
  end)
end)
