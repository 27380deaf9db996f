describe("lupine.core", function()
  local core = require("lupine.core")

  it("tells its version", function()
    assert.matches("^%d+%.%d+%.%d+$", core.version)
    assert.equal(core.version, require("lupine").version)
  end)

  it("knows the machine", function()
    local cpu = core.host.cpu()
    assert.truthy(({ plain = true, avx2 = true, avx512 = true })[cpu.simd])
    assert.is_true(cpu.threads >= 1)
  end)
end)
