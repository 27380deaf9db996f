--- What the targets of Makefile tell the make that they call, and what is stale.
local files = require("spec.support.files")
local program = require("spec.support.program")

describe("a target that calls make", function()
  local folder

  setup(function()
    folder = files.folder()
  end)

  teardown(function()
    files.remove(folder)
  end)

  it("hands on its jobs: -j counts for both", function()
    -- -n runs the recipes that make takes for calls of itself, and no others
    local shown_by = { demo = "examples/fashion_mnist.lua", test = "spec/tools/test.sh" }
    for target, shown in pairs(shown_by) do
      local out, err, code = program.shell(
        ("env -u MAKEFLAGS -u MAKELEVEL make -j2 -n BUILD=%s %s"):format(folder, target))
      assert.equal(0, code, err)
      assert.matches(shown, out, 1, true)
      assert.not_matches("jobserver", err, 1, true)
    end
  end)
end)

describe("an object for libFuzzer", function()
  it("is compiled again when one of its headers changes", function()
    local folder = files.folder()
    local header = folder .. "/changed.h"
    files.write(header, "")
    for _, source in ipairs({ "src/io/lock", "spec/fuzz/harness/lua", "spec/fuzz/csv" }) do
      local object = ("%s/obj/libfuzzer/%s.o"):format(folder, source)
      program.shell(("mkdir -p $(dirname %s)"):format(object))
      files.write((object:gsub("o$", "d")), ("%s: %s\n"):format(object, header))
      files.write(object, "")
      local make = ("env -u MAKEFLAGS -u MAKELEVEL make -n BUILD=%s %%s %s"):format(folder, object)
      assert.not_matches("CLANG", (program.shell(make:format(""))), 1, true)
      assert.matches("CLANG", (program.shell(make:format("-W " .. header))), 1, true)
    end
    files.remove(folder)
  end)
end)
