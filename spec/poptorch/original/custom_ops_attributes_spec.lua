-- PopTorch's own tests of attributes of custom operators
-- (tests/custom_ops_attributes_test.py).
local custom_ops = require("spec.support.custom_ops")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

-- The results of the operator in an inference model, as a list.
local function apply(name, attributes, ...)
  local Model = nn.Module:extend("Model")
  function Model.forward(_, ...)
    return poptorch.custom_op({ ... }, name, "test.poptorch", 1, { ... }, attributes)
  end
  return poptorch.inferenceModel(Model())(...)
end

local function float(...)
  return torch.tensor({ ... }):to(torch.float32)
end

local MOST = 1.7976931348623157e308 -- of float64

local ALL_ATTRIBUTES = {
  float_one = 1.0,
  float_minus_two = -2.0,
  int_zero = 0,
  int_minus_five = -5,
  floats_one_two_three = { 1.0, 2.0, 3.0 },
  floats_minus_one_two_three = { -1.0, -2.0, -3.0 },
  ints_one_two_three = { 1, 2, 3 },
  ints_minus_one_two_three = { -1, -2, -3 },
  a_string = "string with quotes and slash \" ' \\ end",
  strs = { "\x01", "\x02", "\x03" },
}

-- The attributes, put into a table in an order of the seed, some replaced.
local function shuffled(seed, changes)
  local keys, out = {}, {}
  for key in pairs(ALL_ATTRIBUTES) do
    keys[#keys + 1] = key
  end
  math.randomseed(seed)
  table.sort(keys)
  for i = #keys, 2, -1 do
    local k = math.random(i)
    keys[i], keys[k] = keys[k], keys[i]
  end
  for _, key in ipairs(keys) do
    out[key] = (changes or {})[key] or ALL_ATTRIBUTES[key]
  end
  return out
end

describe("custom_ops_attributes_test", function()
  setup(function()
    custom_ops.load("test_ops")
    custom_ops.load("many_attributes")
  end)

  it("test_float_attribute", function()
    helper.near(apply("AddScalarFloat", { scalar = 3.5 }, float(5))[1], { 8.5 })
  end)

  it("test_float_attribute_too_low", function()
    helper.raises("Error", "%-1%.79769e%+308 is too low for a Popart float attribute%.", function()
      apply("AddScalarFloat", { scalar = -MOST }, float(5))
    end)
  end)

  it("test_float_attribute_too_high", function()
    helper.raises("Error", "1%.79769e%+308 is too high for a Popart float attribute%.", function()
      apply("AddScalarFloat", { scalar = MOST }, float(5))
    end)
  end)

  it("test_int_attribute", function()
    local out = apply("AddScalarInt", { scalar = 3 }, torch.tensor({ 5 }))[1]
    assert.equal(torch.int32, out.dtype)
    assert.same({ 8 }, out:tolist())
  end)

  it("test_float_list_attribute", function()
    helper.near(apply("AddScalarVecFloat", { vec = { 1.0, 2.0, 3.0 } }, float(3, 4, 5))[1],
      { 4, 6, 8 })
  end)

  it("test_float_list_attribute_too_low", function()
    helper.raises("Error", "%-1%.79769e%+308 is too low for a Popart float attribute%.", function()
      apply("AddScalarVecFloat", { vec = { 1.0, 2.0, -MOST } }, float(3, 4, 5))
    end)
  end)

  it("test_float_list_attribute_too_high", function()
    helper.raises("Error", "1%.79769e%+308 is too high for a Popart float attribute%.", function()
      apply("AddScalarVecFloat", { vec = { MOST, 2.0, 3.0 } }, float(3, 4, 5))
    end)
  end)

  it("test_float_tuple_attribute", function() -- a tuple is a list in Lua
    helper.near(apply("AddScalarVecFloat", { vec = table.pack(1.0, 2.0, 3.0) }, float(3, 4, 5))[1],
      { 4, 6, 8 })
  end)

  it("test_int_list_attribute", function()
    local out = apply("AddScalarVecInt", { vec = { 1, 2, 3 } }, torch.tensor({ 3, 4, 5 }))[1]
    assert.equal(torch.int32, out.dtype)
    assert.same({ 4, 6, 8 }, out:tolist())
  end)

  it("test_float_combined_attributes", function()
    helper.near(apply("AddVecScalarMulFloat", { vec = { 1.0, 2.0, 3.0 }, scalar = 2.0 },
      float(3, 4, 5))[1], { 8, 12, 16 })
  end)

  it("test_int_two_attributes", function()
    local Model = nn.Module:extend("Model")
    function Model.forward(_, x)
      for _, scalar in ipairs({ 3, 2 }) do
        x = poptorch.custom_op(torch.is_tensor(x) and { x } or x, "AddScalarInt", "test.poptorch",
          1, { example_outputs = torch.is_tensor(x) and { x } or x,
            attributes = { scalar = scalar } })
      end
      return x
    end
    local out = poptorch.inferenceModel(Model())(torch.tensor({ 5 }))[1]
    assert.same({ 10 }, out:tolist())
  end)

  it("test_string_attribute", function()
    for how, want in pairs({ sum = 18, mean = 6 }) do
      local out = apply("ReduceOp", { reduction = how }, float(5, 6, 7))[1]
      assert.equal(0, out:dim())
      helper.near(out, want)
    end
  end)

  it("test_non_ascii_string_attribute", function()
    helper.raises("ValueError", "a\u{1f00}b contains non%-ASCII characters%.", function()
      apply("ReduceOp", { reduction = "a\u{1f00}b" }, float(5, 6, 7))
    end)
  end)

  it("test_string_list_attribute", function()
    local out = apply("ThreeReduceOp", { reductions = { "mean", "sum", "mean" } }, float(1, 2, 3),
      float(2, 3, 4), float(3, 4, 5))
    for i, want in ipairs({ 2, 9, 4 }) do
      helper.near(out[i], want)
    end
  end)

  it("test_non_asciistring_list_attribute", function()
    helper.raises("ValueError", "a\u{1f00}b contains non%-ASCII characters%.", function()
      apply("ThreeReduceOp", { reductions = { "a\u{1f00}b", "sum", "mean" } }, float(1, 2, 3),
        float(2, 3, 4), float(3, 4, 5))
    end)
  end)

  it("test_many_attributes", function()
    for seed = 0, 9 do
      helper.near(apply("ManyAttributeOp", shuffled(seed), float(0))[1], { 1 })
    end
  end)

  it("test_many_attributes_one_wrong", function()
    for seed = 0, 2 do
      local attributes = shuffled(seed, { a_string = "Very wrong" })
      helper.near(apply("ManyAttributeOp", attributes, float(0))[1], { 0 })
    end
  end)

  it("test_many_attributes_examples", function()
    local attributes = shuffled(0, { strs = { "abc", "def", "ghi" } })
    helper.near(apply("ManyAttributeOp", attributes, float(0))[1], { 0 })
  end)
end)
