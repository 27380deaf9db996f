-- lupine sweep by successive halving. Source of the rule: Jamieson, Talwalkar,
-- "Non-stochastic Best Arm Identification and Hyperparameter Optimization", 2016.
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
  files.write(folder .. "/sweep.yaml", "run: run.yaml\nset: {seed: 5}\n" .. text)
end

local function lupine(words, environment)
  return runs.lupine(folder, words, environment)
end

local function jobs()
  return core.json_decode(files.read(path("sweep-001/sweep.json"))).jobs
end

describe("a sweep that halves", function()
  it("trains all a little; the best go on", function()
    sweep_file("method: halving\nparameters: {optimizer.args.lr: {min: 1e-4, max: 1, log: true}}\n"
      .. "count: 4\nseed: 2\nhalving: {max: 4 epochs, factor: 2}\njobs: 2")
    local out, err, code = lupine("sweep sweep.yaml")
    assert.equal(0, code, err)
    local steps = {}
    for i = 1, 4 do
      steps[i] = runs.facts(path(("sweep-001/job-00%d-001"):format(i))).step
    end
    table.sort(steps)
    assert.same({ 8, 8, 16, 32 }, steps) -- 8 updates an epoch
    assert.matches("round 1 of 3: 4 jobs until epochs=1.*round 2 of 3: 2 jobs until epochs=2"
      .. ".*round 3 of 3: 1 jobs until epochs=4", out)
    local first = {} -- what the rule says of the first round's values
    for _, job in ipairs(jobs()) do
      first[#first + 1] = { job.scores[1], job.scores[2] and true or false }
    end
    table.sort(first, function(a, b)
      return a[1] < b[1]
    end)
    assert.same({ true, true, false, false },
      { first[1][2], first[2][2], first[3][2], first[4][2] })
  end)

  it("goes on in the middle", function()
    sweep_file("method: halving\nparameters: {optimizer.args.lr: [0.3, 1e-4]}\n"
      .. "halving: {max: 2 epochs, factor: 2}")
    local out, _, code = lupine("sweep sweep.yaml", "SEND='TERM 12'")
    assert.equal(75, code)
    assert.matches("round 2 of 2", out)
    out, _, code = lupine("sweep --resume runs/sweep-001")
    assert.equal(0, code)
    assert.equal(1, select(2, out:gsub("goes on:", "")))
    assert.same({ "finished", "dropped" }, { jobs()[1].status, jobs()[2].status })
    assert.equal(16, runs.facts(path("sweep-001/job-001-001")).step)
  end)
end)
