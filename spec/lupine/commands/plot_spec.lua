-- lupine plot: curves of runs without any other program. (Expectation 37.)
local core = require("lupine.core")
local files = require("spec.support.files")
local runs = require("spec.support.runs")

describe("lupine plot", function()
  local folder

  local function lupine(words, environment)
    return runs.lupine(folder, words, environment)
  end

  local function put(name, rows, ended)
    local path = folder .. "/runs/" .. name
    core.make_folder(path)
    files.write(path .. "/run.json", core.json_encode({ status = "finished", pid = 1,
      started = ended }))
    files.write(path .. "/config.yaml", "epochs: 1  # default\n")
    files.write(path .. "/metrics.jsonl", rows)
  end

  before_each(function()
    folder = files.folder()
    local a, b = {}, {}
    for i = 1, 50 do
      a[i] = ('{"step":%d,"epoch":1,"time":%d,"loss":%.6f}\n'):format(i * 10, 1000 + i, 1 / i)
      b[i] = ('{"step":%d,"epoch":1,"time":%d,"loss":%.6f}\n'):format(i * 10, 1000 + i, 2 - i / 50)
    end
    a[51] = '{"step":500,"epoch":1,"time":1051,"validation.loss":0.25,"validation.accuracy":0.5}\n'
    put("a-001", table.concat(a) .. '{"step":600,"lo', 5)
    put("b-001", table.concat(b), 4)
  end)
  after_each(function()
    files.remove(folder)
  end)

  it("draws the losses of the latest run, whatever its last line", function()
    local out, err, code = lupine("plot")
    assert.equal(0, code, err)
    assert.matches("^loss\n", out)
    assert.matches("\n +step   a%-001 0.02\n", out) -- 1 / 50
    assert.matches("\nvalidation.loss\n", out)
    assert.is_nil(out:find("accuracy", 1, true))
    assert.is_nil(out:find("\27", 1, true)) -- no colours but in a terminal
    assert.matches("[\u{2801}-\u{28ff}]", out)
  end)

  it("draws runs over each other", function()
    local out, err, code = lupine("plot a-001 runs/b-001 --metric loss --width 60 --height 8")
    assert.equal(0, code, err)
    assert.matches("a%-001 0.02   b%-001 1\n", out)
    local lines, widest = 0, 0
    for line in out:gmatch("[^\n]+") do
      lines, widest = lines + 1, math.max(widest, utf8.len(line))
    end
    assert.equal(1 + 8 + 3, lines)
    assert.is_true(widest <= 60)
    assert.equal(out, (lupine("plot '*-001' --metric loss --width 60 --height 8")))
  end)

  it("has the steps, epochs or seconds on the axis", function()
    assert.matches("\n +100 .* 500\n +step ", (lupine("plot a-001 --metric loss")))
    assert.matches("\n +0 .*\n +seconds ", (lupine("plot a-001 --metric loss --x time")))
    assert.matches("\n +epoch ", (lupine("plot a-001 --metric loss --x epoch")))
  end)

  it("smooths, and has logarithmic axes", function()
    assert.matches("1e%-1", (lupine("plot a-001 --metric loss --log")))
    local out = lupine("plot a-001 --metric loss --smooth 0.9")
    local last = tonumber(out:match("a%-001 ([%d.]+)"))
    local mean, weight = 0, 0 -- the mean of all, later ones more
    for i = 1, 50 do
      mean, weight = mean * 0.9 + 1 / i * 0.1, weight * 0.9 + 0.1
    end
    assert.near(mean / weight, last, 1e-5)
  end)

  it("writes pictures", function()
    local out, err, code = lupine("plot a-001 b-001 --metric loss --svg x.svg")
    assert.equal(0, code, err)
    assert.equal("wrote x.svg\n", out)
    local text = files.read(folder .. "/x.svg")
    assert.matches("^<svg ", text)
    assert.matches(">a%-001</text>", text)
    assert.matches(">b%-001</text>", text)
    lupine("plot a-001 --metric loss,validation.loss --svg y.svg")
    assert.matches(">loss<", files.read(folder .. "/y-loss.svg"))
    assert.matches(">validation.loss<", files.read(folder .. "/y-validation.loss.svg"))
  end)

  it("says what there is instead of what is not", function()
    put("c-001", "", 3)
    put("d-001", "{\n", 2)
    put("e-001", '{"step":1,"accuracy":1}\n', 1)
    for words, message in pairs({
      ["a-001 --metric los"] = "the run has no 'los' %(nearest: 'loss'%); there are loss, "
        .. "validation.accuracy, validation.loss",
      ["a-001 b-001 --metric x"] = "no run has 'x'", ["nope"] = "there is no run 'nope'",
      ["c-001"] = "no metrics are written yet in runs/c%-001",
      ["d-001"] = "metrics.jsonl:1: this is no row", ["e-001"] = "no metric is a loss",
      ["a-001 --x steps"] = "expected step, epoch or time, got 'steps' %(nearest: 'step'",
      ["a-001 --smooth 1"] = "%-%-smooth: expected a number from 0 to 0.9999, got '1'",
      ["a-001 --width 3"] = "%-%-width: expected an int from 24", ["a-001 --svg x.png"] =
        "ends in .svg", ["--folder empty"] = "there is no run in 'empty'",
    }) do
      local _, err, code = lupine("plot " .. words)
      assert.equal(2, code, words .. err)
      assert.matches(message, err)
    end
    local _, err, code = lupine("plot e-001 --metric accuracy --x epoch")
    assert.equal(1, code)
    assert.matches("'accuracy' has no 'epoch' in its rows", err)
  end)
end)
