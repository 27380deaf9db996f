--- builder.aiGraphcore:multiconv: its lists of lists, one of each convolution, are one
--- list in a model.
---
--- source: PopART, AiGraphcoreOpset1::multiconv
local check = require("lupine.base.check")
local ATTRIBUTES = require("lupine.onnx.annotation_names")
local errors = require("popart.errors")
local proto = require("lupine.onnx.proto")
local signatures = require("lupine.base.signatures")

local NAMES = { "args", "dilations", "inDilations", "pads", "outPads", "strides",
  "availableMemoryProportions", "partialsTypes", "planType", "perConvReservedTiles",
  "cycleBackOff", "enableConvDithering", "debugContext" }
-- Lists of a list for each convolution; of a value for each, with the attribute's name.
local NESTED = { dilations = true, inDilations = true, pads = true, outPads = true, strides = true }
local EACH = { availableMemoryProportions = { ATTRIBUTES.availableMemory, "floats" },
  partialsTypes = { ATTRIBUTES.partialsType, "strings" },
  enableConvDithering = { ATTRIBUTES.dithering, "ints" } }
local ONE = { planType = "s", perConvReservedTiles = "i", cycleBackOff = "f" }

-- Data, weight and bias, or "", of each.
local function flat_inputs(args)
  errors.check(#args > 0, "popart_exception", "multiconv has no input tensors. Provide at least "
    .. "one set of inputs")
  local out = {}
  for _, inputs in ipairs(args) do
    errors.check(type(inputs) == "table" and #inputs >= 2, "popart_exception",
      "multiconv: each convolution must have at least two inputs, data and weights")
    errors.check(#inputs <= 3, "popart_exception",
      "multiconv: each convolution can have at most three inputs, data, weights and bias")
    table.move({ inputs[1], inputs[2], inputs[3] or "" }, 1, 3, #out + 1, out)
  end
  return out
end

local function check_count(name, list, count)
  errors.check(type(list) == "table" and #list == count, "popart_exception", "multiconv: number of "
    .. "%s parameter sets (%s) does not match the number of input sets (%d)", name,
    type(list) == "table" and #list or check.describe(list), count)
end

local function flat(list)
  local out = {}
  for _, part in ipairs(list) do
    table.move(part, 1, #part, #out + 1, out)
  end
  return out
end

local function is_empty(value)
  return value == nil or type(value) == "table" and next(value) == nil
end

-- The attributes of the node.
local function attributes(values, count)
  local list = { proto.attribute("numConvs", count) }
  for i, name in ipairs(NAMES) do
    local value = values[i]
    if not is_empty(value) and (NESTED[name] or EACH[name]) then
      check_count(name, value, count)
      local each = EACH[name]
      list[#list + 1] = each and proto.attribute(each[1], value, each[2])
        or proto.attribute(name, flat(value), "ints")
    elseif not is_empty(value) and ONE[name] then
      list[#list + 1] = proto.attribute(name, value, ONE[name])
    end
  end
  return list
end

--- Convolutions side by side: a result for each.
---@param opset popart.Opset
---@param ... any args ({data, weight, bias?} of each), dilations, inDilations, pads, outPads,
---  strides (a list for each), availableMemoryProportions, partialsTypes, planType,
---  perConvReservedTiles, cycleBackOff, enableConvDithering, debugContext
---@return string[]
local function multiconv(opset, ...)
  local lists = { args = "list" }
  for name in pairs(NESTED) do
    lists[name] = "list"
  end
  for name in pairs(EACH) do
    lists[name] = "list"
  end
  local values = check.arguments("multiconv", NAMES, lists, ...)
  local args = values[1]
  errors.check(type(args) == "table", "TypeError", "multiconv: args: expected a list of lists of "
    .. "tensor ids, got %s", check.describe(args))
  local inputs = flat_inputs(args)
  return opset._builder:_add("ai.graphcore", opset.version, "MultiConv", inputs,
    attributes(values, #args), #args, values[#NAMES] or "")
end
signatures.note(multiconv, ("multiconv(%s)"):format(table.concat(NAMES, ", ")), 1)

return multiconv
