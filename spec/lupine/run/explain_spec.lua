-- What is said of keys comes from the schema: help, and the page in docs. Its example of
-- a run file is one.
local config = require("lupine.run.config")
local explain = require("lupine.run.explain")
local files = require("spec.support.files")
local helper = require("spec.helper")
local schema = require("lupine.run.schema")

describe("the keys of run files", function()
  it("are in docs/runs.md as the schema has them", function()
    local page = files.read("docs/runs.md")
    assert.equal(explain.markdown(), page:sub(-#explain.markdown()))
  end)

  it("have a sentence, a type and a default each", function()
    for _, row in ipairs(schema) do
      assert.matches("%.$", row.doc, 1, false, row.name)
      local text = explain.key(row.name)
      assert.matches("^  " .. row.name:gsub("%p", "%%%0"), text)
      if row.type ~= "group" then
        assert.matches("%(default .+%)", text:gsub("%(has to be given%)", "(default x)")
          :gsub("%(not set%)", "(default x)"))
      end
      for line in text:gmatch("[^\n]+") do
        assert.is_true(#line <= 92 or not line:find("^      "), line) -- a name can be longer
      end
    end
  end)

  it("are poptorch's options, too: all of them, a group, or one", function()
    local all, group = explain.key("options"), explain.key("options.Training")
    local name = "options.Training.gradientAccumulation"
    local one = explain.key(name)
    assert.matches("  options.deviceIterations%(", all)
    assert.matches("  options.Training.gradientAccumulation%(", all)
    assert.is_nil(group:find("deviceIterations", 1, true))
    assert.matches("  options.Training.gradientAccumulation%(", group)
    assert.matches("  options.Training.accumulationAndReplicationReductionType%(", group)
    assert.matches("^  options.Training.gradientAccumulation%(", one)
    assert.equal(1, select(2, one:gsub("\n  %w[%w.]*%(", "")) + 1)
    helper.refuses("ConfigFileError", ("poptorch has no '%s' %%(nearest: '%s'%%)"):format(
      name:sub(1, -2), name), explain.key, name:sub(1, -2))
  end)

  it("are those of the page's example", function()
    local path = os.tmpname() .. ".yaml"
    files.write(path, files.read("docs/runs.md"):match("```yaml\n(.-)```"))
    local c = config.read(path)
    files.remove(path)
    assert.equal("Adam", c:get("optimizer").class)
    assert.same({ "accuracy" }, c:get("metrics"))
  end)
end)
