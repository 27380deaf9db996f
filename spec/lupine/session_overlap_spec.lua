--- Where marks of overlapping host I/O hide nothing.
local idle = require("lupine.session.overlap").idle

describe("overlapping host I/O", function()
  local function why(iterations, accumulation, how, ...)
    local step = { loops = function() return iterations, accumulation, 1 end }
    return idle(step, { output = { mode = how.mode or "all", period = 1 },
      system = { synthetic_data = how.synthetic } }, ...)
  end

  it("needs a loop, and outputs that go while it runs", function()
    assert.is_nil(why(2, 2, {}, true, true))
    assert.is_nil(why(1, 2, {}, false, false))
    assert.is_nil(why(1, 2, {}, true, true))
    assert.equal("accumulation", why(2, 1, {}, false, false))
    assert.is_nil(why(2, 1, {}, false, true))
    assert.equal("single", why(1, 1, {}, false, true))
    assert.equal("output_mode", why(2, 2, { mode = "sum" }, true, true))
    assert.is_nil(why(2, 2, { mode = "sum" }, false, true))
    assert.equal("synthetic", why(2, 2, { synthetic = true }, false, true))
  end)
end)
