--- Every fuzz target returns for every file of its corpus, and leaves nothing.
local program = require("spec.support.program")

local function lines(command)
  local out = {}
  for line in program.shell(command):gmatch("[^\n]+") do
    out[#out + 1] = line
  end
  return out
end

describe("the fuzz target", function()
  for _, name in ipairs(lines("cd spec/fuzz && ls *.c | sed 's/\\.c$//'")) do
    it(name .. " returns for every file of its corpus", function()
      local files = #lines("ls spec/fuzz/corpus/" .. name)
      assert.is_true(files >= 5, files .. " files")
      local out, err, code = program.shell(
        ("%s/fuzz/%s spec/fuzz/corpus/%s/*"):format(program.build, name, name))
      assert.equal("", err)
      assert.equal(files .. " files\n", out)
      assert.equal(0, code)
    end)

    it(name .. " has a dictionary whose lines libFuzzer reads", function()
      for line in io.lines("spec/fuzz/dict/" .. name .. ".dict") do
        assert.matches('^"[^"]+"$', line)
      end
    end)
  end
end)
