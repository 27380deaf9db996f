-- Runs that are stopped: what they say, how they are found, what may change when they go
-- on. (Expectation 27.)
local core = require("lupine.core")
local files = require("spec.support.files")
local runs = require("spec.support.runs")

describe("a run that was stopped", function()
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

  it("says how it goes on and that it was stopped", function()
    local out, _, code = lupine("run run.yaml seed=5", "SEND='TERM 4'")
    assert.equal(75, code)
    assert.matches("stopped by SIGTERM at step 4; this goes on:\nlupine run %-%-resume "
      .. "runs/run%-001\n$", out)
    local facts = runs.facts(path("run-001"))
    assert.same({ "interrupted", "stopped", "SIGTERM", 4 },
      { facts.status, facts.reason, facts.why, facts.step })
    assert.is_true(core.is_folder(path("run-001/checkpoints/step-00000004")))
    assert.matches("this goes on", files.read(path("run-001/log.txt")))
    out, _, code = lupine("run --resume run-001", "SEND='TERM 6'")
    assert.equal(75, code)
    assert.matches("at step 6", out)
    assert.equal(1, runs.facts(path("run-001")).sessions.n)
  end)

  it("may have another end, but no other numbers", function()
    assert.equal(75, code_of("run run.yaml seed=5", "SEND='TERM 4'"))
    local _, err, code = lupine("run --resume optimizer.args.lr=1 epochs=4")
    assert.equal(2, code)
    assert.matches("optimizer.args.lr: a run that goes on keeps it.*; what can change is "
      .. "epochs, steps", err)
    local out
    out, err, code = lupine("run --resume steps=9 logging.every=2")
    assert.equal(0, code, err)
    assert.matches("finished at step 9", out)
    local text = files.read(path("run-001/config.yaml"))
    assert.matches("\nsteps: 9 +# command line\n", text)
    assert.matches("\nepochs: null +# not set\n", text)
    assert.matches("\n  batch_size: 8 +# run.yaml:6\n", text)
    _, err, code = lupine("run --resume")
    assert.equal(2, code)
    assert.matches("all runs in 'runs' have come to their end", err)
    assert.equal(0, code_of("run --resume run steps=10"))
    assert.equal(10, runs.facts(path("run-001")).step)
  end)

  it("begins anew in its folder if it has no checkpoint", function()
    lupine("run run.yaml seed=5 epochs=1 checkpoint.every='100 epochs'", "SEND='KILL 3'")
    assert.equal("running", runs.facts(path("run-001")).status)
    assert.is_true(#runs.rows(path("run-001")) > 0)
    local out, err, code = lupine("run --resume")
    assert.equal(0, code, err)
    assert.matches("there is no checkpoint: it begins anew", out)
    local steps = {}
    for _, row in ipairs(runs.rows(path("run-001"))) do
      steps[#steps + 1] = row.loss and row.step
    end
    assert.same({ 1, 2, 3, 4, 5, 6, 7, 8 }, steps)
  end)

  it("is found by folder, name or run file, or is not, aloud", function()
    lupine("run run.yaml seed=5", "SEND='TERM 2'")
    lupine("run run.yaml seed=5 name=other folder=elsewhere", "SEND='TERM 2'")
    for step, words in ipairs({ "runs/run-001", "run-001", "run", "" }) do
      local out, err, code = lupine(("run --resume %s"):format(words),
        ("SEND='TERM %d'"):format(step + 2))
      assert.equal(75, code, err)
      assert.matches("run runs/run%-001 .* at step " .. step + 2, out)
    end
    files.write(folder .. "/other.yaml", "include: run.yaml\nfolder: elsewhere\n")
    local out = lupine("run other.yaml --resume steps=3")
    assert.matches("run elsewhere/other%-001 ", out)
    local _, err, code = lupine("run --resume rum-001")
    assert.equal(2, code)
    assert.matches("there is no run 'rum%-001'.*run%-001 %(nearest: 'run%-001'%)", err)
  end)

  it("is not trained by two at once", function()
    lupine("run run.yaml seed=5", "SEND='TERM 2'")
    local facts = runs.facts(path("run-001"))
    local me = core.host.process().pid
    facts.status, facts.pid = "running", me
    facts.began = require("lupine.run.provenance").began(me)
    files.write(path("run-001/run.json"), core.json_encode(facts))
    local _, err, code = lupine("run --resume runs/run-001")
    assert.equal(1, code)
    assert.matches("is trained by process " .. me, err)
  end)

  it("is interrupted at once by a second signal", function()
    files.write(folder .. "/slow.lua", [[
      local core = require("lupine.core")
      return function()
        return { on_step = function(_, trainer)
          if trainer.step == 3 then
            for _, name in ipairs({ "TERM", "TERM" }) do
              io.popen(("kill -%s %d"):format(name, core.host.process().pid)):close()
            end
            while true do end
          end
        end }
      end]])
    local words = "run run.yaml seed=5 callbacks=slow.lua checkpoint.every=1"
    local _, err, code = lupine(words)
    assert.equal(1, code)
    assert.matches("interrupted", err)
    assert.matches("taken up by: lupine run %-%-resume runs/run%-001\n", err)
    local facts = runs.facts(path("run-001"))
    assert.same({ "interrupted", "interrupted" }, { facts.status, facts.reason })
    assert.matches("goes on from runs/run%-001/checkpoints/step%-00000002\n",
      (lupine("run --resume steps=2")))
  end)

  it("has the signals of its process back afterwards", function()
    local script = require("spec.support.program").temporary([[
      local core = require("lupine.core")
      local pid = core.host.process().pid
      local deferred = core.host.defer_signals()
      assert(not pcall(core.host.defer_signals))
      assert(deferred:signal() == nil)
      io.popen("kill -TERM " .. pid):close()
      assert(deferred:signal() == "SIGTERM")
      deferred:close()
      assert(not pcall(deferred.signal, deferred))
      deferred = core.host.defer_signals()
      assert(deferred:signal() == nil)
      io.popen("kill -INT " .. pid):close()
      assert(deferred:signal() == "SIGINT")
      deferred:close()
      print("before the end")
      io.stdout:flush()
      io.popen("kill -TERM " .. pid):close()
      print("never")]])
    local out, _, code = require("spec.support.program").run({ script })
    os.remove(script)
    assert.equal("before the end\n", out)
    assert.is_true(code == -15 or code == 143)
  end)

  it("looks for files where the command is typed, and says so", function()
    assert.equal(75, code_of("run run.yaml seed=5", "SEND='TERM 2'"))
    core.make_folder(folder .. "/below")
    files.write(folder .. "/below/parts.lua", files.read(folder .. "/parts.lua"))
    local _, err, code = runs.lupine(folder .. "/below", "run --resume ../runs/run-001 steps=3")
    assert.equal(0, code, err)
    assert.matches("the run was begun in " .. folder:gsub("%p", "%%%0") .. "; relative names", err)
  end)

  it("has each row once if two go on with it at once", function()
    assert.equal(75, code_of("run run.yaml seed=5 checkpoint.every=1", "SEND='TERM 2'"))
    local host = require("spec.support.program").host
    host = io.popen("realpath " .. host):read("l")
    local out = lupine("run --resume runs/run-001 & second=$!; " .. host
      .. " run --resume runs/run-001; wait $second")
    assert.matches("finished at step 24", out)
    local steps = {}
    for _, row in ipairs(runs.rows(path("run-001"))) do
      steps[#steps + 1] = row.loss and row.step
    end
    assert.equal(24, #steps)
    for i, step in ipairs(steps) do
      assert.equal(i, step)
    end
  end)
end)
