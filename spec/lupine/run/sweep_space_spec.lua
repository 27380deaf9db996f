-- Which jobs a sweep has: combinations, draws and rounds.
local config = require("lupine.run.sweep.config")
local files = require("spec.support.files")
local helper = require("spec.helper")
local space = require("lupine.run.sweep.space")
local state = require("lupine.run.sweep.state")

describe("a sweep's", function()
  local path

  before_each(function()
    path = files.unused() .. ".yaml"
  end)
  after_each(function()
    files.remove(path)
  end)

  local function read(text, words)
    files.write(path, "run: run.yaml\n" .. text)
    local c = config.read(path, words)
    c.seed = c.seed or 1
    return c
  end

  local function jobs(text, words)
    local out = {}
    for i, job in ipairs(state.jobs(read(text, words))) do
      out[i] = state.told(job)
    end
    return out
  end

  it("grid has every combination, the last parameter first", function()
    assert.same({ "a.b=1 c=x", "a.b=1 c=y", "a.b=2.5 c=x", "a.b=2.5 c=y" },
      jobs("parameters: {a.b: [1, 2.5], c: [x, y]}"))
    assert.same({ "a.b=1", "a.b=2" }, jobs("parameters: {a: {b: [1, 2]}}"))
    assert.same({ "a=7" }, jobs("parameters: {a: 7}"))
  end)

  it("values are what the file has, for the run file's schema to read", function()
    assert.same({ "a=1e-4", 'a="1"', "a=yes", "a=null", 'a={"class": Net, "args": {"n": 3}}',
      'a=[1, "x, y"]' },
      jobs('parameters: {a: [1e-4, "1", yes, null, {class: Net, args: {n: 3}}, [1, "x, y"]]}'))
    assert.same({ "a=${seed}" }, jobs("parameters:\n  a: ${seed}"))
    assert.same({ "a=3", "a=4" }, jobs("parameters: {a: 1}", { "parameters.a=[3, 4]" }))
    local dotted = "parameters: {a.b: [1], c: 2}\nset: {d.e: 1}"
    assert.same({ "a.b=3 c=2", "a.b=4 c=2" }, jobs(dotted, { "parameters.a.b=[3, 4]" }))
    assert.same({ "d.e=5" }, read(dotted, { "set.d.e=5" }).set)
  end)

  it("grid takes points of a range", function()
    assert.same({ "lr=0.001", "lr=0.01", "lr=0.1" },
      jobs("parameters: {lr: {min: 1e-3, max: 0.1, log: true, points: 3}}"))
    assert.same({ "n=2", "n=5", "n=8" }, jobs("parameters: {n: {min: 2, max: 8, points: 3}}"))
    assert.same({ "n=1", "n=2" }, jobs("parameters: {n: {min: 1, max: 2, points: 9}}"))
    assert.same({ "x=1.0", "x=2.0" }, jobs("parameters: {x: {min: 1.0, max: 2.0, points: 2}}"))
  end)

  local RANDOM = "method: random\nparameters: {lr: {min: 1e-4, max: 1, log: true}, "
    .. "p: {min: 0.0, max: 0.5}, n: {min: 1, max: 4}, c: [a, b]}\ncount: 2000\n"

  it("draws lie evenly in their ranges", function()
    local decades, p, n, c = { 0, 0, 0, 0 }, 0, {}, {}
    for _, job in ipairs(jobs(RANDOM)) do
      local lr = tonumber(job:match("lr=(%S+)"))
      assert.is_true(lr >= 1e-4 and lr <= 1)
      local decade = math.min(4, math.floor(math.log(lr, 10) + 4) + 1)
      decades[decade] = decades[decade] + 1
      p = p + tonumber(job:match("p=(%S+)"))
      local k, l = job:match("n=(%d) c=(%a)")
      n[k], c[l] = (n[k] or 0) + 1, (c[l] or 0) + 1
    end
    for i = 1, 4 do -- 500 +- 5 standard deviations (sqrt(2000 / 4 * 3 / 4))
      assert.is_true(math.abs(decades[i] - 500) < 97, decades[i])
    end
    assert.near(0.25, p / 2000, 5 * 0.5 / math.sqrt(12 * 2000))
    assert.is_true(math.abs(n["2"] + n["3"] - 1333) < 110, n["2"] + n["3"])
    assert.is_true(math.abs(c.a - 1000) < 112, c.a)
  end)

  it("draws are the same for a seed, and all different", function()
    assert.same(jobs(RANDOM .. "seed: 3"), jobs(RANDOM .. "seed: 3"))
    assert.is_not.same(jobs(RANDOM .. "seed: 3")[1], jobs(RANDOM .. "seed: 4")[1])
    local seen, list = {}, jobs("method: random\nparameters: {a: [1, 2, 3], b: [1, 2]}\ncount: 6")
    for _, job in ipairs(list) do
      assert.is_nil(seen[job])
      seen[job] = true
    end
    helper.refuses("ConfigFileError", "7 jobs are to be drawn, and there are 6", jobs,
      "method: random\nparameters: {a: [1, 2, 3], b: [1, 2]}\ncount: 7")
  end)

  it("rounds get longer by the factor, up to the end", function()
    local function rungs(text)
      local out = {}
      local c = read("method: halving\nparameters: {a: [1, 2]}\n" .. text)
      for i, rung in ipairs(space.rungs(c)) do
        out[i] = rung.count .. rung.unit
      end
      return table.concat(out, " ")
    end
    assert.equal("1epoch 3epoch 9epoch", rungs("halving: {max: 9 epochs}"))
    assert.equal("10step 20step 40step 50step",
      rungs("halving: {min: 10, max: 50 steps, factor: 2}"))
    assert.equal("4epoch", rungs("halving: {min: 4 epochs, max: 4 epochs}"))
  end)

  it("mistakes are told with file and line", function()
    local function told(pattern, text, words)
      local e = helper.refuses("ConfigFileError", pattern, read, text, words)
      return e.message
    end
    assert.matches(path .. ":2: unknown key 'metod' (nearest: 'method')",
      told(nil, "metod: grid"), 1, true)
    told("%.yaml:3: method: expected one of grid, random, halving, got 'rnd'",
      "parameters: {a: 1}\nmethod: rnd")
    told("'parameters' is missing", "method: grid")
    told("%.yaml:3: lr: a range has a min and a max", "parameters:\n  lr: {min: 1}")
    told("%.yaml:2: lr: min has to be below max", "parameters: {lr: {min: 2, max: 1}}")
    told("has to be above 0", "parameters: {lr: {min: 0, max: 1, log: true}}")
    told("unknown key 'step' of a range", "parameters: {lr: {min: 0, max: 1, step: 2}}")
    told("%.yaml:2: folder: the sweep has a folder of its own", "parameters: {folder: [a]}")
    told("%.yaml:2: 'a.b' stands here a second time", "parameters: {a.b: 1, a: {b: 2}}")
    told("%.yaml:2: 'a.b' is varied, and `set` has it", "parameters: {a.b: 1}\nset: {a: {b: 2}}")
    told("a: the list has no value", "parameters: {a: []}")
    told("count: method random needs it", "method: random\nparameters: {a: [1]}")
    told("command line: count: method grid has as many", "parameters: {a: [1]}", { "count=3" })
    told("halving: acts with method halving only", "parameters: {a: [1]}\nhalving: {factor: 2}")
    told("halving.max: method halving needs it", "parameters: {a: [1]}\nmethod: halving")
    told("unknown key 'halving.maximum'", "parameters: {a: [1]}\nmethod: halving\n"
      .. "halving: {maximum: 3}")
    told("halving.max: expected a count of epochs, at least halving.min's 1",
      "parameters: {a: [1]}\nmethod: halving\nhalving: {max: 30 steps}")
    helper.refuses("ConfigFileError", "a grid takes points", jobs,
      "parameters: {lr: {min: 0.1, max: 1}}")
    helper.refuses("ConfigFileError", "more than 100000 jobs", jobs,
      "parameters: {a: {min: 0, max: 1000000, points: 1000}, "
      .. "b: {min: 0, max: 10000, points: 900}}")
  end)
end)
