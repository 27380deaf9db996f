describe("name and casting scopes", function()
  local blocks = require("poptorch.blocks")
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local log

  local function record(name)
    return function(value)
      log[#log + 1] = value == nil and name or ("%s %s"):format(name, tostring(value))
    end
  end

  before_each(function()
    log = {}
    blocks.tracer = { begin_name_scope = record("name"), end_name_scope = record("end name"),
      begin_autocast = record("cast"), end_autocast = record("end cast") }
  end)
  after_each(function()
    blocks.tracer = nil
  end)

  it("tell the tracer where they start and end", function()
    do
      local _ <close> = poptorch.NameScope("A")
      assert.equal(3, poptorch.NameScope("B", function()
        return 3
      end))
    end
    assert.same({ "name A", "name B", "end name", "end name" }, log)
    helper.raises("AssertionError", poptorch.NameScope)
    helper.raises("AssertionError", poptorch.NameScope, 1)
  end)

  it("autocast is a scope and a decorator", function()
    poptorch.autocast({ enabled = false }, function() end)
    do
      local _ <close> = poptorch.autocast()
    end
    assert.same({ "cast false", "end cast", "cast true", "end cast" }, log)
    local f = poptorch.autocast()(function(x)
      return x + 1
    end)
    log = {}
    assert.equal(2, f(1))
    assert.same({ "cast true", "end cast" }, log)
    helper.raises("TypeError", poptorch.autocast, 1)
    local scope <close> = poptorch.autocast()
    helper.raises("TypeError", scope, 1)
  end)

  it("do nothing outside a trace", function()
    blocks.tracer = nil
    assert.equal(1, poptorch.NameScope("A", function()
      return 1
    end))
    assert.equal(2, poptorch.autocast(false, function()
      return 2
    end))
    assert.same({}, log)
  end)
end)
