-- PopART's own tests of patterns (patterns_test, pattern_tests/test_enable_patterns).
local enums = require("popart.enums")
local Patterns = require("popart.patterns").Patterns

local NAMES = { "PreUniRepl", "PostNRepl", "SoftMaxGradDirect", "OpToIdentity",
  "SubtractArg1GradOp", "InPlace" }

describe("patterns_test", function()
  local function all_are(on, patterns, but)
    for _, name in ipairs(NAMES) do
      assert.equal(on ~= (name == but), patterns[name], name)
    end
  end

  it("test_patterns_default", function()
    all_are(true, Patterns())
  end)

  it("test_patterns_none", function()
    all_are(false, Patterns(enums.PatternsLevel.NoPatterns))
  end)

  it("test_patterns_all", function()
    all_are(true, Patterns(enums.PatternsLevel.All))
  end)

  it("test_patterns_modify", function()
    local patterns = Patterns()
    patterns.PreUniRepl = false
    all_are(true, patterns, "PreUniRepl")
  end)

  it("test_patterns_str", function()
    local patterns = Patterns({ "PostNRepl", "InPlace" })
    assert.is_true(patterns.PostNRepl)
    assert.is_true(patterns.InPlace)
    assert.is_false(patterns.SoftMaxGradDirect)
  end)
end)

describe("pattern_tests/test_enable_patterns", function()
  it("test_enable_pattern", function()
    local patterns = Patterns()
    local enabled = patterns:isPatternEnabled("PadSum")
    patterns:enablePattern("PadSum", not enabled)
    assert.equal(not enabled, patterns:isPatternEnabled("PadSum"))
  end)

  it("test_enable_inplace", function()
    local patterns = Patterns()
    for _, on in ipairs({ false, true }) do
      patterns:enablePattern("InPlace", on)
      assert.equal(on, patterns.InPlace)
    end
  end)
end)
