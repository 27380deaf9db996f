-- The library's descriptor interface (src/kernel/product/dnn.h), from C: packed
-- weights, sums added to, blocked layouts, Winograd. spec/tools/check_dnn.c compares
-- with sums in float64.
local program = require("spec.support.program")

describe("products and convolutions in the library's own layouts", function()
  for _, name in ipairs({
    "packed", "added", "batch", "blocked", "winograd", "gradients", "refusals",
  }) do
    it("agree with sums in float64: " .. name, function()
      local out, err, code = program.shell(program.build .. "/tools/check_dnn " .. name)
      assert.equal("", out .. err)
      assert.equal(0, code)
    end)
  end
end)
