-- lupine new: a project that runs at once, its own specs included.
local core = require("lupine.core")
local files = require("spec.support.files")
local runs = require("spec.support.runs")

describe("lupine new", function()
  local folder

  before_each(function()
    folder = files.folder()
  end)
  after_each(function()
    files.remove(folder)
  end)

  it("writes a project that trains and tests itself", function()
    local out, err, code = runs.lupine(folder, "new spirals")
    assert.equal(0, code, err)
    assert.matches("cd spirals && lupine run run.yaml\n$", out)
    local project = folder .. "/spirals"
    out, err, code = runs.lupine(project, "run run.yaml seed=1")
    assert.equal(0, code, err)
    assert.matches("finished at step 400, epoch 10: runs/spirals%-001/model.safetensors", out)
    assert.is_true(runs.facts(project .. "/runs/spirals-001").metrics["validation.accuracy"] > 0.95)
    out, err, code = runs.lupine(project, "/usr/bin/busted --ignore-lua spec")
    assert.equal(0, code, err)
    assert.matches("2 successes", out)
    assert.equal("/runs/\n", files.read(project .. "/.gitignore"))
    for _, name in ipairs({ "README.md", "data.lua", "model.lua" }) do
      local text = files.read(project .. "/" .. name)
      assert.is_nil(text:find("@NAME@", 1, true))
    end
    assert.equal(0, (select(3, runs.lupine(project, "run run.yaml --dry-run mode=poptorch"))))
  end)

  it("overwrites nothing and checks the name", function()
    core.make_folder(folder .. "/mine")
    files.write(folder .. "/mine/run.yaml", "mine")
    local _, err, code = runs.lupine(folder, "new mine")
    assert.equal(1, code)
    assert.matches("'mine' is there already; nothing is overwritten", err)
    assert.equal("mine", files.read(folder .. "/mine/run.yaml"))
    files.write(folder .. "/file", "")
    assert.equal(1, (select(3, runs.lupine(folder, "new file"))))
    local wrong = { "''", "../a", "a/b", ".a", "1a", "'a b'", ("x"):rep(101), "a b", "" }
    for _, name in ipairs(wrong) do
      _, err, code = runs.lupine(folder, "new " .. name)
      assert.equal(2, code, name .. ": " .. err)
    end
    _, err = runs.lupine(folder, "new --nam")
    assert.matches("unrecognized option '%-%-nam'", err)
    assert.same({ "mine" }, (core.list_folder(folder)))
    assert.matches("^usage: lupine new NAME\n", (runs.lupine(folder, "new --help")))
  end)
end)
