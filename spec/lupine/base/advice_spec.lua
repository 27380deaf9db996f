--- A front end's words for errors with hints.
local advice = require("lupine.base.advice")
local errors = require("lupine.base.errors")

describe("advice", function()
  local call = advice({
    slow = "use a faster one",
    other_class = function(e)
      e.message = "my." .. e.message
      errors.turn(e, errors.KeyError)
    end,
  })

  local function raised(...)
    local ok, e = pcall(call, ...)
    assert.is_false(ok)
    return e
  end

  it("is added once, by the front end that is nearest", function()
    local e = raised(call, errors.raise_hint, "slow", "ValueError", "%d is slow", 3)
    assert.equal("3 is slow (use a faster one)", e.message)
    assert.is_nil(e.hint)
    assert.is_true(errors.ValueError:is(e))
  end)

  it("may rename what the error is of", function()
    local e = raised(errors.raise_hint, "other_class", "OSError", "op")
    assert.equal("my.op", e.message)
    assert.is_true(errors.KeyError:is(e) and not errors.OSError:is(e))
    assert.equal("key_error", e.type)
  end)

  it("leaves all else as it is", function()
    assert.equal("plain", raised(error, "plain", 0))
    local e = raised(errors.raise_hint, "unknown", "ValueError", "x")
    assert.equal("x unknown", e.message .. " " .. e.hint)
    assert.equal("y", raised(errors.raise, "ValueError", "y").message)
    assert.same({ n = 3, 1, nil, nil }, table.pack(call(function() return 1, nil, nil end)))
  end)
end)
