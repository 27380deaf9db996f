-- lupine runs: lists, conditions, comparing and deleting, on folders that are written
-- here and on runs that were trained.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local program = require("spec.support.program")
local provenance = require("lupine.run.provenance")
local records = require("lupine.run.records")
local runs = require("spec.support.runs")

local folder

local function lupine(words, environment)
  return runs.lupine(folder, words, environment)
end

-- A run's folder: facts beside those of a finished run, lines of config.yaml, rows.
local function put(name, facts, config, rows)
  local path = folder .. "/runs/" .. name
  core.make_folder(path .. "/checkpoints/step-00000001")
  files.write(path .. "/checkpoints/step-00000001/model.safetensors", "x")
  local all = { status = "finished", step = 10, epoch = 2, seed = 1, pid = 1, name = "n",
    host = core.host.process().host, started = core.host.time() - 100, began = 1 }
  for key, value in pairs(facts) do
    all[key] = value
  end
  files.write(path .. "/run.json", core.json_encode(all))
  files.write(path .. "/config.yaml", config .. "folder: runs  # command line\n")
  local lines = {}
  for i, row in ipairs(rows) do
    lines[i] = core.json_encode(row) .. "\n"
  end
  files.write(path .. "/metrics.jsonl", table.concat(lines))
  return path
end

local function config(lr, extra)
  return ("optimizer:\n  args:\n    lr: %s  # command line\ndata:\n  batch_size: 8  # run.yaml:3\n"
    .. "  shuffle: false  # default\n%s"):format(lr, extra or "")
end

before_each(function()
  folder = files.folder()
  local now = core.host.time()
  put("a-001", { started = now - 30 }, config(0.1), { { step = 5, ["validation.loss"] = 0.5 },
    { step = 10, ["validation.loss"] = 0.55, ["validation.accuracy"] = 0.9 } })
  put("a-002", { status = "failed", started = now - 7200, why = "out of paper" }, config(1e-3),
    { { step = 5, ["validation.loss"] = 0.6 } })
  put("b-001", { status = "running", pid = core.host.process().pid, began = 1,
    started = now - 86400 * 3 },
    config(0.01, "checkpoint:\n  best: validation.accuracy  # run.yaml:9\n  best_mode: max  # d\n"),
    { { step = 3, loss = 2 }, { step = 4, loss = 3, ["validation.accuracy"] = 0.25 } })
end)
after_each(function()
  files.remove(folder)
end)

-- The first words of a table's lines.
local function names(out)
  local list = {}
  for name in out:gmatch("\n([^ \n]+)") do
    list[#list + 1] = name
  end
  return table.concat(list, " ")
end

describe("the list of runs", function()
  it("has each run, the latest first, as it stands", function()
    local out, err, code = lupine("runs")
    assert.equal(0, code, err)
    assert.matches("^name +status +age +step +metric +last +best +changed\n", out)
    assert.matches("\na%-001 +finished +30 s +10 +validation.loss +0.55 +0.5 +"
      .. "optimizer.args.lr=0.1\n", out)
    assert.matches("\na%-002 +failed +2 h +10 +validation.loss +0.6 +0.6 +"
      .. "optimizer.args.lr=0.001\n", out)
    assert.matches("\nb%-001 +died +3 d +10 +validation.accuracy +0.25 +0.25 ", out)
    assert.equal("a-001 a-002 b-001", names(out))
  end)

  it("tells of a process that lives", function()
    local me = core.host.process().pid
    local path = put("c-001", { status = "running", pid = me, began = provenance.began(me) },
      config(1), {})
    assert.matches("c%-001 +running", (lupine("runs")))
    local _, err, code = lupine("runs delete c-001 --yes")
    assert.equal(1, code)
    assert.matches("cannot be deleted: it is trained by process " .. me, err)
    assert.is_true(core.is_folder(path))
  end)

  it("takes names, patterns and conditions", function()
    for words, expected in pairs({
      ["a-001"] = "a-001", ["'a-*'"] = "a-001 a-002", ["'?-001'"] = "a-001 b-001",
      ["status=failed"] = "a-002", ["status!=failed"] = "a-001 b-001", ["status=died"] = "b-001",
      ["'optimizer.args.lr<0.1'"] = "a-002 b-001", ["'optimizer.args.lr<=0.1' 'a-*'"] =
        "a-001 a-002", ["optimizer.args.lr=1e-1"] = "a-001", ["'validation.loss>0.58'"] = "a-002",
      ["'name=b*'"] = "b-001", ["'age>3600'"] = "a-002 b-001", ["runs 'step>=10'"] =
        "a-001 a-002 b-001", ["data.shuffle=false"] = "a-001 a-002 b-001",
      ["--folder runs b-001"] = "b-001", ["--sort optimizer.args.lr"] = "a-002 b-001 a-001",
      ["--sort=-validation.loss"] = "a-002 a-001 b-001",
    }) do
      local out, err, code = lupine("runs " .. words)
      assert.equal(0, code, err)
      assert.equal(expected, names(out), words)
    end
    assert.matches("no run in 'runs' meets the conditions", (lupine("runs status=interrupted")))
    assert.matches("no run in 'empty'", (lupine("runs --folder empty")))
  end)

  it("refuses what no run has", function()
    for words, message in pairs({
      ["stauts=failed"] = "no run has 'stauts' %(nearest: 'status'",
      ["optimizer.args.lrr=1"] = "nearest: 'optimizer.args.lr'",
      ["c-001"] = "there is no run 'c%-001': there are a%-001, a%-002, b%-001",
      ["status=fail"] = "no run is 'fail' %(nearest: 'failed'",
      ["'status<failed'"] = "expected a number behind '<', got 'failed'",
      ["--sort nonsense"] = "no run has 'nonsense'", ["--mode most"] = "expected min or max",
      ["--keep-best 2"] = "%-%-keep%-best is none of the list's",
      ["compare a-001"] = "2 runs at least are needed, 1 is given",
      ["delete"] = "no run is given", ["delete a-001 --json"] = "%-%-json is none of delete's",
    }) do
      local _, err, code = lupine("runs " .. words)
      assert.equal(2, code, words .. err)
      assert.matches(message, err)
    end
  end)

  it("is JSON if asked", function()
    local out = lupine("runs --json")
    local list = core.json_decode(out)
    assert.equal(3, #list)
    assert.same({ "a-001", "finished", 0.5, 0.55, 0.1, false }, { list[1].name, list[1].status,
      list[1].best, list[1].last["validation.loss"], list[1].config["optimizer.args.lr"],
      list[1].config["data.shuffle"] })
    assert.equal("died", list[3].status)
    assert.same({}, { table.unpack(core.json_decode((lupine("runs --json status=interrupted")))) })
  end)

  it("takes conditions where there is no run", function()
    local out, err, code = lupine("runs --folder none status=failed")
    assert.same({ "no run in 'none' meets the conditions\n", "", 0 }, { out, err, code })
  end)

  it("reads the rows that it tells of, and no others", function()
    files.write(folder .. "/runs/a-001/metrics.jsonl", '{"step":1,"validation.loss":0.25}\n'
      .. '{"step": 2, "validation.loss": 0.125}\n{"step":3,"loss":0.5}\n'
      .. '{"step":4,"other":0.5\n')
    local path = folder .. "/runs/a-001/metrics.jsonl"
    local rows = records.read(path, "validation.loss")
    assert.same({ { step = 1, ["validation.loss"] = 0.25 },
      { step = 2, ["validation.loss"] = 0.125 } }, rows)
    assert.same({ { step = 3, loss = 0.5 } }, records.read(path, "loss"))
    assert.same({}, records.read(path, "validation"))
    helper.refuses("ValueError", "metrics.jsonl:4: this is no row", records.read, path, "other")
    helper.refuses("ValueError", "metrics.jsonl:4: this is no row", records.read, path)
    assert.matches("a%-001 +finished .* 0.125 +0.125", (lupine("runs validation.loss=0.125")))
  end)

  it("tells of runs whose files are torn or damaged", function()
    files.write(folder .. "/runs/a-001/metrics.jsonl",
      '{"step":1,"validation.loss":0.25}\n{"step":2,"valid')
    files.write(folder .. "/runs/a-002/metrics.jsonl", "nonsense\n")
    files.write(folder .. "/runs/a-002/config.yaml", "{")
    files.write(folder .. "/runs/b-001/run.json", "{")
    core.make_folder(folder .. "/runs/other-001")
    local out, err, code = lupine("runs")
    assert.equal(0, code, err)
    assert.matches("a%-001 +finished .* 0.25 +0.25", out)
    assert.matches("b%-001 +damaged", out)
    assert.equal("a-001 a-002 b-001", names(out))
  end)

  it("has the runs of sweeps", function()
    put("s-001/job-001-001", {}, config(5), {})
    files.write(folder .. "/runs/s-001/sweep.json", "{}")
    assert.equal("a-001 s-001/job-001-001 a-002 b-001", names((lupine("runs"))))
    assert.equal("s-001/job-001-001", names((lupine("runs s-001"))))
    assert.equal("job-001-001", names((lupine("runs runs/s-001"))))
  end)
end)

describe("runs compare", function()
  it("has the keys that differ and all metrics", function()
    local out, err, code = lupine("runs compare a-001 a-002")
    assert.equal(0, code, err)
    assert.matches("key +a%-001 +a%-002\noptimizer.args.lr +0.1 +0.001\n\n", out)
    assert.matches("validation.loss +0.55 +0.6\n", out)
    assert.matches("validation.accuracy +0.9\n", out)
    assert.matches("status +finished +failed\n", out)
    assert.is_nil(out:find("batch_size", 1, true))
    assert.matches("checkpoint.best +%- +validation.accuracy", (lupine("runs compare a-001 b-001")))
  end)
end)

describe("runs show", function()
  it("tells of one", function()
    local out = lupine("runs show a-002")
    assert.matches("status +failed\nreason +out of paper\n", out)
    assert.matches("validation.loss +0.6 +0.6 +0.6\n", out)
    assert.matches("optimizer.args.lr +0.001 +command line\n", out)
    assert.is_nil(out:find("shuffle", 1, true)) -- a default
  end)
end)

describe("runs delete", function()
  local function there(name)
    return core.is_folder(folder .. "/runs/" .. name)
  end

  it("takes a run away with all it has", function()
    local out, err, code = lupine("runs delete a-001 b-001 --yes")
    assert.equal(0, code, err)
    assert.matches("delete  runs/a%-001  %(finished%)\ndelete  runs/b%-001  %(died%)\n"
      .. "deleted 2\n", out)
    assert.same({ "a-002" }, (core.list_folder(folder .. "/runs")))
  end)

  it("keeps the best", function()
    local out, _, code = lupine("runs delete 'a-*' --keep-best 1 -y")
    assert.equal(0, code)
    assert.matches("keep    runs/a%-001\n", out)
    assert.same({ true, false }, { there("a-001"), there("a-002") })
  end)

  it("keeps the best by a metric of one's own", function()
    assert.equal(0, (select(3, lupine("runs delete 'a-*' --keep-best 1 -y --metric validation.loss "
      .. "--mode max"))))
    assert.same({ false, true }, { there("a-001"), there("a-002") })
    put("a-001", {}, config(1), {})
    local _, err, code = lupine("runs delete '*' --keep-best 1 -y")
    assert.equal(1, code)
    assert.matches("some runs are judged by", err)
  end)

  it("asks, and does nothing where nobody answers", function()
    local _, err, code = lupine("runs delete a-001 </dev/null")
    assert.equal(1, code)
    assert.matches("there is no terminal to ask; %-%-yes", err)
    assert.is_true(there("a-001"))
    if program.has_terminal() then
      local ask = ("cd '%s' && echo %%s | script -qec '%s runs delete a-001' /dev/null")
        :format(folder, core.host.process().folder .. "/" .. program.host)
      program.shell(ask:format("n"))
      assert.is_true(there("a-001"))
      program.shell(ask:format("y"))
      assert.is_false(there("a-001"))
    end
  end)

  it("touches nothing but folders of runs, and follows no link", function()
    core.make_folder(folder .. "/precious")
    files.write(folder .. "/precious/file", "x")
    local _, err, code = lupine("runs delete precious --yes")
    assert.equal(2, code)
    assert.matches("is no folder of a run", err)
    os.execute(("ln -s '%s/runs/a-001' '%s/runs/link-001'"):format(folder, folder))
    _, err, code = lupine("runs delete runs/link-001 --yes")
    assert.equal(1, code)
    assert.matches("link", err)
    os.execute(("ln -s '%s/precious' '%s/runs/a-002/away'"):format(folder, folder))
    assert.equal(0, (select(3, lupine("runs delete a-002 --yes"))))
    assert.equal("x", files.read(folder .. "/precious/file"))
    files.write(folder .. "/precious/run.json", '{"status": "finished"}')
    _, err, code = lupine("runs delete precious --yes")
    assert.equal(1, code)
    assert.matches("lupine has not made it", err)
    assert.is_true(there("a-001"))
  end)
end)
