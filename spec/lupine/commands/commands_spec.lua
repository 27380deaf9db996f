-- The commands of the host program: listed by --help, found before scripts, each with its
-- own help.
local commands = require("lupine.commands")
local files = require("spec.support.files")
local program = require("spec.support.program")
local runs = require("spec.support.runs")

describe("the commands", function()
  local listed = {}

  setup(function()
    local out = program.run({ "--help" })
    for word in out:match("\nCommands.-:\n(.*)$"):gmatch("  (%l+) +%l") do
      listed[#listed + 1] = word
    end
  end)

  it("are listed, and each explains itself", function()
    assert.is_true(#listed >= 4)
    for _, word in ipairs(listed) do
      assert.is_function(commands.find(word), word)
      local out, err, code = program.run({ word, "--help" })
      assert.equal(0, code, err)
      assert.matches("^usage: lupine " .. word, out)
      assert.is_true((select(3, program.run({ word, "--no-such-option" }))) > 0)
    end
    assert.is_nil(commands.find("nothing"))
  end)

  it("are suggested for a word that is near one, and no file", function()
    local _, err, code = program.run({ "swep", "a.yaml" })
    assert.equal(1, code)
    assert.matches("there is no command and no file 'swep' (nearest: 'sweep')", err, 1, true)
  end)

  it("leave scripts their names", function()
    local folder = files.folder()
    finally(function()
      files.remove(folder)
    end)
    files.write(folder .. "/run", "print('a script', ...)")
    files.write(folder .. "/walk", "print('another', ...)")
    files.write(folder .. "/rum", "print('near', ...)")
    for words, expected in pairs({ ["./run x"] = "a script\tx\n", ["-- run x"] = "a script\tx\n",
      ["walk y"] = "another\ty\n", ["rum z"] = "near\tz\n" }) do
      assert.equal(expected, (runs.lupine(folder, words)))
    end
    assert.matches("^usage: lupine run", (runs.lupine(folder, "run --help")))
  end)
end)
