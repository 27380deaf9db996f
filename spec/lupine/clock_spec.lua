local lupine = require("lupine")

describe("lupine.clock", function()
  it("gives seconds that never go back", function()
    local before = lupine.clock()
    assert.equal("float", math.type(before))
    for _ = 1, 1000 do
      local now = lupine.clock()
      assert.is_true(now >= before)
      before = now
    end
  end)

  it("goes on while the process waits", function()
    local before = lupine.clock()
    os.execute("sleep 0.05")
    assert.is_true(lupine.clock() - before >= 0.05)
  end)
end)

describe("examples", function()
  it("use no private module", function()
    for path in io.popen("ls examples/*.lua"):lines() do
      local f <close> = assert(io.open(path))
      assert.is_nil(f:read("a"):find("lupine.core", 1, true), path)
    end
  end)
end)
