-- lupine run: folders, origins, exit codes and messages. (Expectations 19, 20, 22, 23, 29,
-- 31.)
local core = require("lupine.core")
local files = require("spec.support.files")
local runs = require("spec.support.runs")
local schema = require("lupine.run.schema")

describe("lupine run", function()
  local folder

  setup(function()
    folder = runs.project()
  end)
  teardown(function()
    files.remove(folder)
  end)
  after_each(function()
    files.remove(folder .. "/runs")
  end)

  local function lupine(...)
    return runs.lupine(folder, ...)
  end

  local function path(name)
    return folder .. "/runs/" .. name
  end

  it("keeps what the user's code prints", function()
    files.write(folder .. "/told.lua", [[
      return function()
        return { on_start = function() print("begins", nil, 3) end,
          on_stop = function() print() print("ends") end }
      end]])
    local out, err, code = lupine("run run.yaml epochs=1 'callbacks=[{class: told.lua}]'")
    assert.equal(0, code, err)
    assert.matches("\nbegins\tnil\t3\n.*\n\nends\nfinished at", out)
    assert.equal(out, files.read(path("run-001/log.txt")))
  end)

  it("trains in a folder that says everything", function()
    local out, err, code = lupine("run run.yaml epochs=2 optimizer.args.lr=0.05")
    assert.equal(0, code, err)
    assert.matches("^run runs/run%-001  mode compiled  precision float32  seed %d+  "
      .. "26 parameters\n", out)
    assert.matches("\nfinished at step 16, epoch 2: runs/run%-001/model.safetensors\n$", out)
    assert.equal(out, files.read(path("run-001/log.txt")))
    local facts, text = runs.facts(path("run-001")), files.read(path("run-001/config.yaml"))
    assert.same({ "finished", 16, 2 }, { facts.status, facts.step, facts.epoch })
    assert.matches(("\nseed: %d +# drawn\n"):format(facts.seed), text)
    assert.matches("\n    lr: 0.05 +# command line\n", text)
    assert.matches("\n    momentum: 0.9 +# run.yaml:7\n", text)
    assert.matches("\n  shuffle: true +# default\n", text)
    local names = require("lupine.safetensors").load_file(path("run-001/model.safetensors"))
    assert.same({ 4, 3 }, { names["first.weight"]:size(0), names["first.weight"]:size(1) })
    assert.equal(16 + 2 + 2, #runs.rows(path("run-001")))
    assert.equal(facts.metrics["validation.loss"],
      runs.rows(path("run-001"))[19]["validation.loss"])
  end)

  it("repeats a run from its configuration and seed", function()
    assert.equal(0, (select(3, lupine("run run.yaml epochs=1"))))
    local again = "run runs/run-001/config.yaml name=again"
    assert.equal(0, (select(3, lupine(again))))
    assert.equal(runs.weights(path("run-001")), runs.weights(path("again-001")))
    assert.same(runs.rows(path("run-001")), runs.rows(path("again-001")))
    assert.equal(0, (select(3, lupine(again .. " seed=1"))))
    assert.is_false(runs.weights(path("run-001")) == runs.weights(path("again-002")))
  end)

  it("prints the configuration and makes nothing", function()
    local out, err, code = lupine("run run.yaml --print-config epochs=7")
    assert.same({ "", 0 }, { err, code })
    assert.matches("\nepochs: 7 +# command line\n", out)
    assert.matches("\n  class: SGD +# run.yaml:7\n", out)
    assert.is_false(core.is_folder(folder .. "/runs"))
  end)

  it("tells all keys, those of a group, and options of poptorch", function()
    local out = lupine("run --help")
    for _, row in ipairs(schema) do
      assert.matches("\n  " .. row.name .. (row.type == "group" and "\n" or "  ("), out, 1, true)
    end
    out = lupine("run --help early_stopping.patience")
    assert.matches("^  early_stopping.patience  %(default 3%)\n .*An int >= 1%.\n$", out)
    assert.matches("options.Training.gradientAccumulation", (lupine("run --help options")), 1, true)
    local _, err, code = lupine("run --help early_stoping")
    assert.matches("no key 'early_stoping' (nearest: 'early_stopping')", err, 1, true)
    assert.equal(2, code)
  end)

  it("refuses what is wrong in a line, with file and line", function()
    files.write(folder .. "/none.lua", "return function() return nil, 'no such files' end")
    files.write(folder .. "/bad.yaml", "include: run.yaml\ndata: {batch_sise: 3}\n")
    for words, message in pairs({
      ["run"] = "no run file is given",
      ["run run.yaml other.yaml"] = "'other.yaml' is one word too many",
      ["run run.yaml --print-conf"] = "'--print-conf' (nearest: '--print-config')",
      ["run nope.yaml"] = "cannot read 'nope.yaml': No such file or directory",
      ["run bad.yaml"] = "bad.yaml:2: unknown key 'data.batch_sise' (nearest: 'batch_size')",
      ["run run.yaml epochs=many"] = "command line: epochs: expected an int >= 0, got 'many'",
      ["run run.yaml model=parts.lua:Met"] = "returns no class or function 'Met'",
      ["run run.yaml optimizer=Adem"] = "command line: optimizer: 'Adem' is in none of torch.optim",
      ["run run.yaml model.args.hiden=3"] = "run.yaml:1: model: parts.lua:Net has no parameter "
        .. "'hiden'; it has hidden (nearest: 'hidden')",
      ["run run.yaml data.train=none.lua"] = "data.train: none.lua gave nothing: no such files",
      ["run run.yaml optimizer.args.Lr=3"] = "run.yaml:7, command line: optimizer: SGD has no "
        .. "parameter 'Lr'",
      ["run run.yaml metrics=acuracy"] = "run.yaml: metrics: there is no metric 'acuracy' "
        .. "(nearest: 'accuracy')",
      ["run run.yaml mode=poptorch options.deviceIterations=0"] = "run.yaml: options: batches per "
        .. "step (deviceIterations) must be greater than 0, got 0",
      ["run run.yaml checkpoint.best=validation.los"] = "run.yaml: checkpoints: there is no "
        .. "metric 'validation.los' (nearest: 'validation.loss')",
      ["run run.yaml mode=poptorch options.setExecutionStrategy=x"] = "command line: "
        .. "options.setExecutionStrategy: name 'x' is not defined",
      ["run run.yaml 'loss={class: CrossEntropyLoss, args: {weight: {class: GELU}}}'"] =
        "command line: loss.args.weight: 'GELU' is a short name; among arguments",
      ["run run.yaml loss=nn"] = "command line: loss: 'nn' is in none of",
      ["run run.yaml --resume --dry-run"] = "--dry-run",
    }) do
      local out, err, code = lupine(words)
      assert.equal("", out)
      assert.equal(2, code, words .. ": " .. err)
      assert.matches(message, err, 1, true)
      assert.is_nil(err:find("traceback", 1, true))
    end
    assert.is_false(core.is_folder(folder .. "/runs")) -- nothing was begun
  end)

  it("fails with the traceback of what the user wrote, and says so in the folder", function()
    files.write(folder .. "/boom.lua", "return function()\n  error('boom')\nend\n")
    local _, err, code = lupine("run run.yaml loss=boom.lua")
    assert.equal(1, code)
    assert.matches("boom.lua:2: boom", err, 1, true)
    assert.matches("stack traceback", err)
    local facts = runs.facts(path("run-001"))
    assert.same({ "failed", "error" }, { facts.status, facts.reason })
    assert.matches("boom.lua:2: boom", facts.why, 1, true)
    assert.matches("boom.lua:2: boom", files.read(path("run-001/log.txt")), 1, true)
  end)

  it("keeps the last good checkpoint when a loss is no number", function()
    files.write(folder .. "/nan.lua", [[
      local torch = require("torch")
      local Root = torch.nn.Module:extend("Root")
      function Root:forward(x) return (x * 1):sqrt() end
      local Net = torch.nn.Module:extend("Net")
      function Net:init() self.inner, self.root = torch.nn.Linear(1, 2), Root() end
      function Net:forward(x) return self.inner(self.root(x)) end
      local function data()
        local x = torch.ones({ 12, 1 })
        x[9] = -1
        return torch.utils.data.TensorDataset(x, torch.zeros({ 12 }):long())
      end
      return { Net = Net, data = data }]])
    local words = "run run.yaml model=nan.lua:Net data.train=nan.lua:data data.shuffle=no "
      .. "data.batch_size=4 data.validation= epochs=1 checkpoint.every=1"
    local out, _, code = lupine(words)
    assert.equal(1, code)
    assert.matches("failed: step 3 %(epoch 1, batch 3%): the loss is nan; .*'root'", out)
    assert.matches("the last good checkpoint is runs/run%-001/checkpoints/step%-00000002", out)
    assert.same({ "failed", "nan" }, { runs.facts(path("run-001")).status,
      runs.facts(path("run-001")).reason })
    out, _, code = lupine(words .. " on_nan=skip")
    assert.equal(0, code)
    assert.matches("finished at step 3", out)
  end)

  it("writes no bar where there is no terminal, and nothing of it to standard output", function()
    local out, err = lupine("run run.yaml logging.progress=true epochs=1")
    assert.is_nil((out .. err):find("\r", 1, true))
    assert.matches("epoch 1/1: 8/8 batches", err, 1, true)
    assert.is_nil(out:find("batches", 1, true))
  end)

  it("writes event files on demand", function()
    lupine("run run.yaml epochs=1 logging.tensorboard=true")
    local names = {}
    for _, name in ipairs(select(2, core.list_folder(path("run-001")))) do
      names[#names + 1] = name:match("^events%.out%.tfevents%.%d+%.")
    end
    assert.equal(1, #names)
  end)

  it("fails where the disk is full, and what was saved is whole", function()
    local _, err, code = lupine("run run.yaml epochs=200 checkpoint.every='500 epochs'",
      "ulimit -f 16;")
    assert.equal(1, code)
    assert.matches("metrics", err)
    assert.is_true(#runs.rows(path("run-001")) > 20)
    assert.equal("failed", runs.facts(path("run-001")).status)
  end)

  it("keeps the log beside what is printed", function()
    local _, err = lupine("run run.yaml epochs=1", "LUPINE_LOG_LEVEL=info")
    assert.matches("compiled a training step", err)
    local log = files.read(path("run-001/log.txt"))
    assert.matches("compiled a training step", log)
    assert.matches("finished at step 8", log)
  end)

  it("stops at a callback's word as at a signal", function()
    local out, _, code = lupine("run run.yaml "
      .. "callbacks='[{class: TimeLimit, args: {minutes: 0}}]'")
    assert.equal(75, code)
    assert.matches("stopped by .* at step 1; this goes on:", out)
    assert.matches("TimeLimit +# command line\n", files.read(path("run-001/config.yaml")))
  end)

  it("knows words and files of any bytes", function()
    local _, err, code = lupine("run run.yaml epochs=1 name='\xffx' --print-config")
    assert.equal(2, code)
    assert.matches("UTF%-8", err)
    local name = folder .. "/\xe4.yaml"
    files.write(name, files.read(folder .. "/run.yaml"))
    _, err, code = lupine("run \xe4.yaml epochs=1 name=latin")
    os.remove(name)
    assert.equal(0, code, err)
    assert.equal(0, (select(3, lupine("run --resume latin epochs=2"))))
    assert.equal("?.yaml", runs.facts(path("latin-001")).sessions[1].command[3])
  end)
end)
