--- Operators of libraries (torch.ops.load_library, docs/custom_ops.md) as nodes of ONNX
--- models: a node's domain and type are the operator's, its attributes have the kinds that
--- the library says.
local core = require("lupine.core")
local custom_op = require("lupine.custom_op")

local M = {}

local FIELDS = { float = "f", floats = "floats", int = "i", ints = "ints", string = "s",
  strings = "strings" }

local function schema_of(op)
  local schema = { name = op.name, inputs = {}, attributes = {}, by_name = {},
    least_inputs = op.inputs, most_inputs = op.inputs, least_outputs = op.outputs,
    most_outputs = op.outputs }
  for i = 1, op.inputs do
    schema.inputs[i] = { name = ("input %d"):format(i - 1) }
  end
  for i, attribute in ipairs(op.attributes) do
    local row = { name = attribute.name, kind = attribute.kind, field = FIELDS[attribute.kind] }
    schema.attributes[i], schema.by_name[row.name] = row, row
  end
  return schema
end

local function operator_of(op)
  return { schema = schema_of(op), since = op.version, run = function(n, ...)
    return table.unpack(custom_op.call({ ... }, op.name, op.domain, op.version, n.attr))
  end }
end

--- The operator of a library, of the greatest version up to that; nil: none that is loaded
--- has it.
---@param domain string
---@param name string
---@param version integer of the domain
---@return lupine.onnx.Operator?
function M.find(domain, name, version)
  local found
  for _, op in ipairs(core.custom_ops()) do
    if op.domain == domain and op.name == name and op.version <= version
      and op.version > (found and found.version or 0) then
      found = op
    end
  end
  return found and operator_of(found)
end

return M
