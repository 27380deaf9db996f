-- ONNX's own tests (Debian's libonnx-testdata): 932 of operators, 117 models that
-- PyTorch exported, 23 simple ones; in eager calls and compiled.
local cases = require("spec.lupine.onnx.cases")

-- Why a case does not pass: patterns of names, by reason. All others pass.
local ABSENT = {
  ["the epsilon that the values were computed with is not in the node"] = {
    "^test_adam_multiple$" },
  ["the values are cut to BFLOAT16, not rounded"] = { "FLOAT_to_BFLOAT16" },
  ["the operator Gradient is not there"] = { "^test_gradient_of_" },
  ["random numbers of another generator"] = { "^test_bernoulli", "^test_training_dropout_?d?e?f"
    .. "?a?u?l?t?_?m?a?s?k?$" },
  ["tensors of UINT16, UINT32, UINT64 are not supported"] = { "uint16$", "uint32$", "uint64$" },
  ["strings are not supported"] = { "STRING", "^test_strnorm", "^test_tfidfvectorizer" },
  ["sequences and optional values are not supported"] = { "^test_sequence",
    "_sequence$", "^test_if_seq$", "_opt$",
    "optional", "^test_loop13_seq$", "^test_loop16_seq_none$" },
}

-- The same of compiled ones, beside those.
local NOT_COMPILED = {
  ["the shape of a result depends on data"] = { "^test_compress_", "^test_nonmaxsuppression_",
    "^test_nonzero_", "^test_unique_" },
  ["a loop whose number of rounds only a run knows"] = { "^test_loop11$",
    "^test_range_float_type_positive_delta_expanded$" },
}

local function reason_of(name, table_of)
  for reason, patterns in pairs(table_of) do
    for _, pattern in ipairs(patterns) do
      if name:find(pattern) then
        return reason
      end
    end
  end
  return nil
end

local function run(compiled)
  local wrong, passed = {}, {}
  for _, group in ipairs(cases.GROUPS) do
    passed[group] = 0
    for _, name in ipairs(cases.names(group)) do
      local why = cases.run(group, name, compiled)
      local known = reason_of(name, ABSENT) or compiled and reason_of(name, NOT_COMPILED)
      passed[group] = passed[group] + (why and 0 or 1)
      if why and not known or known and not why then
        wrong[#wrong + 1] = ("%s: %s"):format(name, why or "it passes, " .. known)
      end
    end
  end
  assert.same({}, wrong)
  return passed
end

describe("ONNX's own tests", function()
  it("pass in eager calls, but for types that are not there", function()
    local passed = run(false)
    assert.is_true(passed.node >= 0.9 * 932, tostring(passed.node))
    assert.equal(82, passed["pytorch-converted"])
    assert.equal(35, passed["pytorch-operator"])
  end)

  it("pass compiled, but for shapes that depend on data", function()
    local passed = run(true)
    assert.is_true(passed.node >= 0.88 * 932, tostring(passed.node))
    assert.equal(82, passed["pytorch-converted"])
    assert.equal(35, passed["pytorch-operator"])
  end)
end)
