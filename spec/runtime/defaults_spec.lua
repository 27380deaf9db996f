-- Defaults of the cost model that PopLibs publishes.
local ask = require("spec.support.probe").ask

describe("a plan", function()
  -- availableMemoryProportion is 0.6 of a tile: 638,976 bytes on Mk2, 262,144
  -- on Mk1
  it("may take 0.6 of a tile's memory when nobody says otherwise", function()
    for chip, bytes in pairs({ ipu1 = 157286, ipu2 = 383385, ipu21 = 383385 }) do
      local p = ask("matmul", chip, 0, "default", "float", "half", 0, 1, 512, 768, 3072)
      assert.equal(bytes, p.bound_bytes)
      assert.is_true(p.temp_bytes <= bytes)
    end
  end)
end)

describe("what is sent element by element", function()
  -- data lie in groups of 16 channels, of which each is a message: an
  -- instruction of 4 bytes where it is sent, three where it is received
  it("goes in runs of 16", function()
    local T = ask("chip", "ipu2").tiles
    for elements, runs in pairs({ [16] = 1, [32] = 2, [48] = 3, [4000] = 250 }) do
      for _, type in ipairs({ "half", "float" }) do
        assert.equal(4 * (runs + 3 * runs),
          ask("copy", "ipu2", type, T * elements, 1).exchange_code_bytes, type .. elements)
      end
    end
  end)
end)
