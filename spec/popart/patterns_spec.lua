-- Patterns: names, levels, rules. What they do is the compiler's own business.
local enums = require("popart.enums")
local helper = require("spec.helper")
local patterns = require("popart.patterns")

local Patterns, Level = patterns.Patterns, enums.PatternsLevel
local refuses = helper.refuses

describe("popart.Patterns", function()
  it("has levels: none, what is mandatory, the defaults, all", function()
    local n = {}
    for _, level in ipairs(Level:members()) do
      n[level.name] = #Patterns(level):enabled()
    end
    assert.same({ NoPatterns = 0, Minimal = 31, Default = 31 + 19 + 2, All = 31 + 19 + 5 + 2 }, n)
    assert.equal(n.All, #patterns.names())
    assert.equal(Patterns(), Patterns(Level.Default))
    assert.is_false(Patterns() == Patterns(Level.All))
    local default = Patterns()
    assert.is_false(default.SplitGather or default.LSTMOp or default.TiedGather)
    assert.is_true(default.InPlace and default.UpdateInplacePrioritiesForIpu)
    local minimal = Patterns(Level.Minimal)
    assert.is_true(minimal.MatMulOp)
    assert.is_false(minimal.InPlace or minimal.PadSum)
    assert.same({ level = 2 }, { level = Level.Default.value })
  end)

  it("takes a list of names, and hints at others", function()
    local some = Patterns({ "PostNRepl", "InPlace" })
    assert.same({ "InPlace", "PostNRepl" }, some:enabled())
    assert.equal("InPlace PostNRepl", tostring(some))
    assert.same({ "PadSum" }, Patterns({ patterns = { "PadSum" } }):enabled())
    refuses("popart_exception", "^Unknown pattern Inplace, did you mean InPlace%?$", Patterns,
      { "Inplace" })
    refuses("popart_exception", "^Unknown pattern PadSumm %(nearest: 'PadSum'%)$", Patterns,
      { "PadSumm" })
    refuses("TypeError", "element 1: expected string", Patterns, { 3 })
    refuses("TypeError", "expected a PatternsLevel or a list of names, got string", Patterns, "All")
  end)

  it("switches by method or field", function()
    local p = Patterns()
    assert.equal(p, p:enablePattern("SplitGather", true))
    assert.is_true(p:isPatternEnabled("SplitGather"))
    p.SplitGather = false
    assert.is_false(p.SplitGather)
    p.SoftMaxGradDirect = false
    assert.is_false(p:isPatternEnabled("SoftmaxGradDirect"))
    refuses("popart_exception", "Unknown pattern Nothing", p.enablePattern, p, "Nothing", true)
    refuses("popart_exception", "Unknown pattern Nothing", p.isPatternEnabled, p, "Nothing")
    refuses("AttributeError", "no attribute 'InPlac' %(nearest: 'InPlace'%)", function()
      p.InPlac = true
    end)
    refuses("AttributeError", "no attribute 'InPlac'", function()
      return p.InPlac
    end)
    refuses("TypeError", "InPlace: expected bool", function()
      p.InPlace = 0
    end)
  end)

  it("keeps what is mandatory", function()
    local p = Patterns()
    refuses("popart_exception", "Pattern 'MatMulOp' is mandatory and cannot be disabled",
      p.enablePattern, p, "MatMulOp", false)
    p:enablePattern("MatMulOp", true)
    patterns.check(p)
    local none = Patterns(Level.NoPatterns)
    refuses("popart_exception", "Pattern 'AbsGradOp' must be enabled", patterns.check, none)
    assert.equal(none, none:enableRuntimeAsserts(false))
    patterns.check(none)
    patterns.check(Patterns(Level.Minimal))
  end)

  it("is noted where it was chosen", function()
    local function noted(p)
      local text
      patterns.note(p, function(name, why)
        text = name .. ": " .. why
      end)
      return text
    end
    assert.is_nil(noted(Patterns()))
    assert.equal("Patterns: the passes over the graph are fixed", noted(Patterns(Level.All)))
  end)
end)
