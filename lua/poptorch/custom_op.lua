--- poptorch.custom_op: operators of libraries that torch.ops.load_library has
--- loaded. Source: PopTorch API reference, poptorch.custom_op; user guide 4.9.
local blocks = require("poptorch.blocks")
local check = require("lupine.base.check")
local core = require("lupine.core")
local custom_op = require("lupine.custom_op")
local errors = require("lupine.base.errors")
local running = require("poptorch.running")
local signatures = require("lupine.base.signatures")

local NAMES = { "inputs", "name", "domain", "domain_version", "example_outputs", "attributes" }
local TABLES = { inputs = "list", example_outputs = "list", attributes = true }

local function tensors(list, what)
  errors.check(type(list) == "table", "TypeError",
    "poptorch.custom_op(%s): expected a list of tensors, got %s", what, check.describe(list))
  for i = 1, #list do
    errors.check(core.is_tensor(list[i]), "TypeError",
      "poptorch.custom_op(%s): element %d: expected a Tensor, got %s", what, i - 1,
      check.describe(list[i]))
  end
  return list
end

-- A traced program has the types of the device.
local function dtype_of(example)
  return blocks.tracer and running.narrow_dtype(example.dtype) or example.dtype
end

local function check_outputs(list, examples, label)
  errors.check(#list == #examples, "Error", "custom_op: %s has %s, example_outputs %d", label,
    check.count(#list, "output"), #examples)
  for i, y in ipairs(list) do
    errors.check(y.dtype == dtype_of(examples[i]), "Error",
      "custom_op: output %d of %s is %s, its example %s", i - 1, label, tostring(y.dtype),
      tostring(examples[i].dtype))
  end
  return list
end

--- Applies an operator of a library (docs/custom_ops.md) to tensors: in eager
--- calls, with a gradient if the operator has one, in inference and in training
--- models. The operator says what its outputs are: example_outputs has as many
--- tensors of their dtypes, whose values and sizes are not looked at.
---
---     local y = poptorch.custom_op({ x }, "LeakyRelu", "com.acme", 1,
---       { example_outputs = { x }, attributes = { alpha = 0.02 } })[1]
---
--- error: ValueError for attributes of wrong types or that are no ASCII;
--- poptorch.Error for floats that 32 bits do not hold, for what the operator
--- refuses, for an operator that no library has and for other outputs than the
--- examples
--- source: 001 poptorch.custom_op
---@param ... any inputs (torch.Tensor[]), name, domain (string), domain_version (integer),
---  example_outputs (torch.Tensor[]), attributes (table<string, any>?)
---@return torch.Tensor[]
local function call(...)
  local inputs, name, domain, version, examples, attributes = table.unpack(
    check.arguments("custom_op", NAMES, TABLES, ...), 1, #NAMES)
  check.string(name, "poptorch.custom_op(name)")
  check.string(domain, "poptorch.custom_op(domain)")
  check.int(version, "poptorch.custom_op(domain_version)", { min = 1 })
  tensors(examples, "example_outputs")
  local list = custom_op.call(tensors(inputs, "inputs"), name, domain, version, attributes)
  return check_outputs(list, examples, ("%s.%s"):format(domain, name))
end

signatures.note(call, "custom_op(" .. table.concat(NAMES, ", ") .. ")")

return call
