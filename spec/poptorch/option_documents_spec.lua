describe("documents of the options", function()
  local document = require("poptorch.options.document")
  local helper = require("spec.poptorch.helper")
  local options = require("poptorch.options")

  it("the annotations are those of the rows", function()
    local path = "lua/poptorch/options/meta.lua"
    local text = document.annotations()
    if os.getenv("LUPINE_RENEW") then
      local f = assert(io.open(path, "w"))
      f:write(text)
      f:close()
    end
    local f = assert(io.open(path))
    local kept = f:read("a")
    f:close()
    assert.is_true(kept == text, path .. " is old: run this spec with LUPINE_RENEW=1")
  end)

  it("help tells what an option is by setter or property", function()
    for _, name in ipairs({ "gradientAccumulation", "gradient_accumulation" }) do
      local text = document.help(name)
      assert.matches("Options.Training.gradientAccumulation(gradient_accumulation)", text, 1, true)
      assert.matches("integer, default 1", text, 1, true)
    end
    local e = helper.raises("KeyError", document.help, "gradientAcumulation")
    assert.matches("'gradientAccumulation'", e.message)
    assert.is_true(#document.help() > 5000)
  end)

  it("help has of every setter what it allows, its default, and its effect", function()
    local n = 0
    for entry in (document.help() .. "\n"):gmatch("(.-\n)\n") do
      local name, params = entry:match("^([%w_.]+)(%b())")
      if params then
        n = n + 1
        for param in params:gsub("%*[%w_]+", ""):gmatch("[%a_][%w_]*") do
          assert.matches("\n  " .. param .. ": %S", entry, name)
        end
        assert.matches("\n  on the simulated system: %S", entry, name)
      end
      if entry:find("\n  property ") then
        assert.matches("default %S", entry, name)
      end
    end
    assert.is_true(n > 50)
  end)

  it("every option says what it is and does", function()
    local classes = { options.Options, options.TensorLocationSettings }
    for _, cls in pairs(options.CLASSES) do
      classes[#classes + 1] = cls
    end
    for _, cls in ipairs(classes) do
      for _, row in ipairs(cls._rows) do
        local name, facts = row.name or row.key, 0
        assert.is_true(#row.doc > 5, name)
        for _, fact in ipairs({ "effect", "no_effect", "setter" }) do
          facts = facts + (row[fact] and (fact ~= "setter" or not row.no_effect) and 1 or 0)
        end
        assert.equal(1, facts, name)
      end
    end
  end)
end)
