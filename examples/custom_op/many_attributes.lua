-- Attributes of every type that a custom operator takes (PopTorch's guide, table
-- 4.1): numbers with a point are floats, others ints.
--
--     cc -O2 -shared -fPIC -I include -o libmany_attributes.so \
--       examples/custom_op/many_attributes.c
--     build/lupine examples/custom_op/many_attributes.lua ./libmany_attributes.so
local poptorch = require("poptorch")
local torch = require("torch")

torch.ops.load_library(arg[1] or "./libmany_attributes.so")

local Model = torch.nn.Module:extend("Model")

function Model:init(strs)
  self.strs = strs
end

function Model:forward(x)
  local attributes = {
    float_one = 1.0,
    float_minus_two = -2.0,
    int_zero = 0,
    int_minus_five = -5,
    floats_one_two_three = { 1.0, 2.0, 3.0 },
    floats_minus_one_two_three = { -1.0, -2.0, -3.0 },
    ints_one_two_three = { 1, 2, 3 },
    ints_minus_one_two_three = { -1, -2, -3 },
    a_string = "string with quotes and slash \" ' \\ end",
    strs = self.strs,
  }
  return poptorch.custom_op({ x }, "ManyAttributeOp", "test.poptorch", 1,
    { example_outputs = { x }, attributes = attributes })
end

local x = torch.tensor({ 0.0 })
print("as expected", poptorch.inferenceModel(Model({ "\x01", "\x02", "\x03" }))(x)[1]:item())
print("otherwise", poptorch.inferenceModel(Model({ "abc", "def", "ghi" }))(x)[1]:item())
