--- Where marks of overlapping host I/O hide nothing.
local idle = require("lupine.session.overlap").idle

describe("overlapping host I/O", function()
  local function spec(iterations, accumulation, mode, synthetic)
    return { compile = { device_iterations = iterations, gradient_accumulation = accumulation },
      output = { mode = mode or "all", period = 1 }, system = { synthetic_data = synthetic } }
  end

  it("needs a loop, and outputs that go while it runs", function()
    assert.is_nil(idle(spec(2, 2), true, true))
    assert.is_nil(idle(spec(1, 2), false, false))
    assert.is_nil(idle(spec(1, 2), true, true))
    assert.equal("accumulation", idle(spec(2, 1), false, false))
    assert.is_nil(idle(spec(2, 1), false, true))
    assert.equal("single", idle(spec(1, 1), false, true))
    assert.equal("output_mode", idle(spec(2, 2, "sum"), true, true))
    assert.is_nil(idle(spec(2, 2, "sum"), false, true))
    assert.equal("synthetic", idle(spec(2, 2, "all", true), false, true))
  end)

  it("is of one micro-batch unless something else was asked for", function()
    assert.equal("single", idle({ compile = {} }, true, true))
  end)
end)
