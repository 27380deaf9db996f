-- lupine sweep: jobs that are runs of their own, what is told of those that fail, and
-- going on after any kind of end. (Expectation 28.)
local core = require("lupine.core")
local files = require("spec.support.files")
local runs = require("spec.support.runs")

local folder

before_each(function()
  folder = runs.project()
end)
after_each(function()
  files.remove(folder)
end)

local function path(name)
  return folder .. "/runs/" .. name
end

local function sweep_file(text)
  files.write(folder .. "/sweep.yaml", "run: run.yaml\nset: {seed: 5, epochs: 1}\n" .. text)
end

local function lupine(words, environment)
  return runs.lupine(folder, words, environment)
end

local function facts(name)
  return core.json_decode(files.read(path((name or "sweep-001") .. "/sweep.json")))
end

local function statuses(name)
  local out = {}
  for i, job in ipairs(facts(name).jobs) do
    out[i] = job.status
  end
  return table.concat(out, " ")
end

-- The job names of a table that was printed, in its order.
local function order(out)
  local names = {}
  for name in out:match("\njob +status.*$"):gmatch("\n(job%-%d+)") do
    names[#names + 1] = name
  end
  return names
end

local function best(run, metric)
  local value
  for _, row in ipairs(runs.rows(path(run))) do
    value = row[metric] and math.min(value or math.huge, row[metric]) or value
  end
  return value
end

describe("a sweep", function()
  it("trains each job in a run's folder and tells the best first", function()
    sweep_file("parameters: {optimizer.args.lr: [0.3, 0.001], model.args.hidden: [4, 8]}\njobs: 2")
    local out, err, code = lupine("sweep sweep.yaml set.seed=6")
    assert.equal(0, code, err)
    assert.equal("finished finished finished finished", statuses())
    local at = {}
    for i = 1, 4 do
      local name = ("sweep-001/job-00%d-001"):format(i)
      local run = runs.facts(path(name))
      assert.same({ "finished", 6, 1 }, { run.status, run.seed, run.cpu.threads })
      at[("job-00%d"):format(i)] = best(name, "validation.loss")
      assert.equal(best(name, "validation.loss"), facts().jobs[i].best)
    end
    local config = files.read(path("sweep-001/job-003-001/config.yaml"))
    assert.matches("lr: 0.001 +# command line", config)
    assert.matches("hidden: 4 +# command line", config)
    local names = order(out)
    assert.equal(4, #names)
    for i = 2, 4 do
      assert.is_true(at[names[i - 1]] <= at[names[i]])
    end
    assert.matches("job%-001 finished: validation.loss [%d.]+ at step 8", out)
  end)

  it("prints its jobs without training", function()
    sweep_file("parameters: {optimizer.args.lr: [0.3, 0.1]}")
    local out, err, code = lupine("sweep sweep.yaml --print")
    assert.equal(0, code, err)
    assert.equal("job-001  optimizer.args.lr=0.3\njob-002  optimizer.args.lr=0.1\n", out)
    assert.is_false(core.is_folder(folder .. "/runs"))
  end)

  it("tells a job that fails at once and goes on", function()
    sweep_file('parameters: {optimizer.args.lr: [0.1, "much", 0.2]}')
    local out, _, code = lupine("sweep sweep.yaml")
    assert.equal(1, code)
    assert.equal("finished failed finished", statuses())
    local failed = out:find("job-002 FAILED: exit code 2\n  optimizer.args.lr=\"much\"\n", 1, true)
    assert.is_true(failed < out:find("job-003 begins", 1, true))
    assert.matches('last lines of runs/sweep%-001/job%-002.log:\n.*got string "much"\n', out)
    assert.equal("job-002", order(out)[3])
  end)

  it("stops the others with --fail-fast", function()
    files.write(folder .. "/sweep.yaml", 'run: run.yaml\nset: {seed: 5, steps: 1000000, epochs: }\n'
      .. 'parameters: {optimizer.args.lr: [0.1, "much", 0.2]}\njobs: 2\n')
    local out, err, code = lupine("sweep sweep.yaml --fail-fast")
    assert.equal(1, code, err)
    assert.equal("interrupted failed pending", statuses())
    assert.matches("%-%-fail%-fast: 1 running jobs save and stop", out)
    assert.matches("lupine sweep %-%-resume runs/sweep%-001\n$", out)
  end)

  it("goes on where it was stopped, under the same numbers, with the same bits", function()
    sweep_file("parameters: {optimizer.args.lr: [0.3, 0.1]}")
    assert.equal(0, (select(3, lupine("sweep sweep.yaml name=whole"))))
    local out, _, code = lupine("sweep sweep.yaml", "SEND='TERM 4'")
    assert.equal(75, code)
    assert.equal("interrupted interrupted", statuses())
    assert.matches("this goes on:\nlupine sweep %-%-resume runs/sweep%-001\n$", out)
    files.write(folder .. "/run.yaml", "epochs: 7") -- which is no business of this sweep
    local err
    out, err, code = lupine("sweep --resume runs/sweep-001/")
    assert.equal(0, code, err)
    assert.matches("job%-001 goes on: ", out)
    assert.equal("finished finished", statuses())
    for _, job in ipairs({ "job-001-001", "job-002-001" }) do
      assert.equal(runs.weights(path("whole-001/" .. job)), runs.weights(path("sweep-001/" .. job)))
      assert.same(runs.rows(path("whole-001/" .. job)), runs.rows(path("sweep-001/" .. job)))
    end
    out, _, code = lupine("sweep --resume runs/sweep-001")
    assert.equal(0, code)
    assert.is_nil(out:find("goes on", 1, true)) -- what is finished is not trained again
    assert.is_nil(out:find("begins", 1, true))
  end)

  it("warns where it goes on in another folder", function()
    sweep_file("parameters: {optimizer.args.lr: [0.3]}")
    lupine("sweep sweep.yaml", "SEND='TERM 4'")
    core.make_folder(folder .. "/below")
    files.write(folder .. "/below/parts.lua", files.read(folder .. "/parts.lua"))
    local _, err, code = runs.lupine(folder .. "/below", "sweep --resume ../runs/sweep-001")
    assert.equal(0, code, err)
    assert.matches("was begun in " .. folder .. "; relative names", err, 1, true)
  end)

  it("takes failed jobs up again if asked", function()
    files.write(folder .. "/sweep.yaml", "run: run.yaml\n"
      .. "set: {seed: 5, epochs: 1, checkpoint: {every: 2}}\n"
      .. "parameters: {optimizer.args.lr: [0.3]}")
    local out, _, code = lupine("sweep sweep.yaml", "SEND='KILL 5'")
    assert.equal(1, code)
    assert.matches("job%-001 FAILED: killed by SIGKILL", out)
    assert.equal(1, (select(3, lupine("sweep --resume sweep-001")))) -- the name alone
    assert.equal("failed", statuses())
    out, _, code = lupine("sweep --resume runs/sweep-001 --retry")
    assert.equal(0, code)
    assert.matches("job%-001 goes on", out)
    assert.matches("goes on from .*step%-00000004", files.read(path("sweep-001/job-001.log")))
    assert.equal("finished", statuses())
  end)
end)

describe("lupine sweep", function()
  it("tells of jobs that have no value of the metric", function()
    sweep_file("metric: validation.nothing\nparameters: {optimizer.args.lr: [0.3, 0.1]}")
    local out, err = lupine("sweep sweep.yaml")
    for job = 1, 2 do
      assert.matches(("job%%-00%d has no value of 'validation.nothing'; it has "
        .. "loader_share, loss, lr, samples_per_second, train.loss, validation.loss\n"):format(job),
        out, 1, false, err)
    end
  end)

  it("refuses what is wrong before any job begins", function()
    local function told(message, words)
      local _, err, code = lupine(words)
      assert.equal(2, code, err)
      assert.matches(message, err)
    end
    sweep_file("parameters: {optimizer.args.lr: [0.3], data.batch_size: [8, 0]}")
    told("job%-002 %(optimizer.args.lr=0.3 data.batch_size=0%): command line: "
      .. "data.batch_size: expected an int >= 1, got '0'", "sweep sweep.yaml")
    local run = files.read(folder .. "/run.yaml") .. "\nclip_grad_norm: 1\n"
    files.write(folder .. "/clip.yaml", run)
    told(("job%%-002 %%(.*mode=poptorch%%): clip.yaml:%d: clip_grad_norm: needs mode eager"):format(
      select(2, run:gsub("\n", ""))),
      "sweep sweep.yaml run=clip.yaml 'parameters={mode: [eager, poptorch]}'")
    told("unknown key 'data.batchsize' %(nearest: 'batch_size'", "sweep sweep.yaml "
      .. "parameters.data.batch_size=8 parameters.data.batchsize=3")
    sweep_file("parameters: {optimizer.args.lr: [0.3]}")
    told("job%-001 %(optimizer.args.lr=0.3%): metric: the runs have no 'validation.los' "
      .. "%(nearest: 'validation.loss'%)", "sweep sweep.yaml metric=validation.los set.callbacks=")
    told("no sweep's file is given", "sweep")
    told("parameters: expected a mapping of the run file's keys", "sweep sweep.yaml parameters=3")
    told("set: expected a mapping of the run file's keys", "sweep sweep.yaml set=3")
    told("the sweep's file comes first", "sweep jobs=3")
    told("cannot read 'nope.yaml'", "sweep nope.yaml")
    told("%-%-jobs: expected an int from 1 to 1024, got 'x'", "sweep sweep.yaml --jobs x")
    told("%-%-retry needs %-%-resume", "sweep sweep.yaml --retry")
    told("there is no sweep 'runs/x'", "sweep --resume runs/x")
    told("is no folder of a sweep: it has no sweep.json", "sweep --resume .")
    assert.equal(0, #(core.is_folder(folder .. "/runs") and core.list_folder(folder .. "/runs")
      or {}))
  end)

  it("refuses a sweep.json that is damaged", function()
    sweep_file("parameters: {optimizer.args.lr: [0.3]}")
    lupine("sweep sweep.yaml")
    local whole = files.read(path("sweep-001/sweep.json"))
    for _, text in ipairs({ "", "{}", "[1]", '{"format": 1, "jobs": [3]}', whole:sub(1, -4),
      (whole:gsub('"name": "job%-001"', '"name": "../x"')), (whole:gsub('"min"', "3")),
      (whole:gsub('"optimizer.args.lr=0.3"', "[]")), (whole:gsub('"scores": %b[]', '"scores": 1')),
      (whole:gsub('"format": 1', '"format": 2')) }) do
      files.write(path("sweep-001/sweep.json"), text)
      local _, err, code = lupine("sweep --resume runs/sweep-001")
      assert.equal(2, code)
      assert.matches("sweep.json' tells of no sweep", err)
    end
  end)

  it("has help", function()
    local out = lupine("sweep --help")
    assert.matches("^usage: lupine sweep FILE", out)
    assert.matches("halving.factor", out)
  end)
end)
