-- lupine report: prints, draws and traces what files say.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.passes.ipu.helper")
local insights = require("lupine.report.insights")
local runs = require("spec.support.runs")

local folder

before_each(function()
  folder = files.folder()
end)
after_each(function()
  files.remove(folder)
end)

local function lupine(words)
  return runs.lupine(folder, "report " .. words)
end

describe("lupine report", function()
  it("prints, and writes a page and a trace, of a file or of its folder", function()
    local r = helper.simulate(helper.chain(2, { train = true, accumulation = 4 }))
    r:save(folder .. "/profile.json")
    local out, err, code = lupine("profile.json")
    assert.equal(0, code, err)
    assert.equal(r:summary() .. "\nWhat stands out:\n" .. insights.text(r), out)
    out, err, code = lupine(". --html page.html --trace=trace.json")
    assert.equal(0, code, err)
    assert.matches("wrote page.html", out, 1, true)
    r:html(folder .. "/expected.html")
    r:trace(folder .. "/expected.json")
    assert.equal(files.read(folder .. "/expected.html"), files.read(folder .. "/page.html"))
    assert.equal(files.read(folder .. "/expected.json"), files.read(folder .. "/trace.json"))
  end)

  it("names reports that are near, five at most", function()
    local r = helper.simulate(helper.chain(1, {}))
    for i = 1, 6 do
      core.make_folder(("%s/near/run%d"):format(folder, i))
      r:save(("%s/near/run%d/report.json"):format(folder, i))
    end
    local _, err = lupine("near")
    assert.matches("has neither profile.json nor report.json (there is 'near/run1/report.json', "
      .. "'near/run2/report.json', 'near/run3/report.json', 'near/run4/report.json', "
      .. "'near/run5/report.json')", err, 1, true)
  end)

  it("says in a line what is wrong", function()
    local out, err, code = lupine("nothing.json")
    assert.equal("", out)
    assert.equal(1, code)
    assert.matches("^lupine report: nothing.json: No such file", err)
    out, err, code = lupine(".")
    assert.equal("", out)
    assert.equal(1, code)
    assert.matches("'.' has neither profile.json nor report.json", err, 1, true)
    out, err, code = lupine("")
    assert.equal("", out)
    assert.equal(2, code)
    assert.matches("expected a file, got 0 words", err, 1, true)
  end)
end)
