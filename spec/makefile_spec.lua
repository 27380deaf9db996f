--- What the targets of Makefile tell the make that they call.
local program = require("spec.support.program")

describe("a target that calls make", function()
  local folder

  setup(function()
    folder = program.shell("mktemp -d"):match("[^\n]+")
  end)

  teardown(function()
    program.shell("rm -r " .. program.quote(folder))
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
