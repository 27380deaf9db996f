--- Graphs of ONNX as text:
---
---     local body = graphs.graph("i, going, v -> going, w", { { "w = Add(v, x)" } })
---     local model = graphs.model("x, v -> y", {
---       { "y = Loop(M, , v)", { body = body } },
---     }, { M = torch.tensor(3) })
---     local y = graphs.both(model, { x, v })
---
--- A node is its text and its attributes. Inputs have no types; initializers lie in the
--- last table, by name.
local compile = require("lupine.compile")
local helper = require("spec.helper")
local onnx = require("lupine.onnx")
local operators = require("lupine.onnx.operators")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")

local M = {}

-- "a, , b" -> {"a", "", "b"}
local function names(text)
  local list = {}
  for part in (text .. ","):gmatch("([^,]*),") do
    list[#list + 1] = part:match("^%s*(.-)%s*$")
  end
  return #list == 1 and list[1] == "" and {} or list
end

local function node(text, attributes, version)
  local outputs, op, inputs = text:match("^(.-)%s*=%s*([%w_]+)%((.*)%)$")
  local row = assert(operators.find("", op, version), op)
  local list = {}
  for name, value in pairs(attributes or {}) do
    list[#list + 1] = proto.attribute(name, value, row.schema.by_name[name].field)
  end
  return { op_type = op, input = names(inputs), output = names(outputs), attribute = list }
end

--- A GraphProto.
---@param text string inputs -> outputs
---@param nodes {[1]: string, [2]: table?}[]
---@param initializers? table<string, torch.Tensor>
---@param version? integer of the operators (16)
---@return table
function M.graph(text, nodes, initializers, version)
  local inputs, outputs = text:match("^(.-)%s*%->%s*(.-)$")
  local g = { name = "g", input = {}, output = {}, initializer = {}, node = {} }
  for i, name in ipairs(names(inputs)) do
    g.input[i] = { name = name }
  end
  for i, name in ipairs(names(outputs)) do
    g.output[i] = { name = name }
  end
  for name, t in pairs(initializers or {}) do
    table.insert(g.initializer, tensors.write(name, t))
  end
  for i, row in ipairs(nodes) do
    g.node[i] = node(row[1], row[2], version or 16)
  end
  return g
end

--- The module of such a graph.
---@param text string
---@param nodes table[]
---@param initializers? table<string, torch.Tensor>
---@param version? integer
---@return lupine.onnx.Module
function M.model(text, nodes, initializers, version)
  return onnx.load({ ir_version = proto.IR_VERSION,
    graph = M.graph(text, nodes, initializers, version),
    opset_import = { { domain = "", version = version or 16 } } })
end

--- Runs a model eagerly and compiled, which must agree, and on shapes alone; returns
--- the eager outputs.
---@param model lupine.onnx.Module
---@param inputs torch.Tensor[]
---@return ... torch.Tensor
function M.both(model, inputs)
  local eager = { model(table.unpack(inputs)) }
  local compiled = { compile(model, inputs)(table.unpack(inputs)) }
  local blank = {}
  for i, t in ipairs(inputs) do
    blank[i] = t:to("meta")
  end
  local shapes = { model(table.unpack(blank)) }
  for i, want in ipairs(eager) do
    assert(compiled[i].dtype == want.dtype)
    helper.near(compiled[i], want)
    assert(tostring(shapes[i].shape) == tostring(want.shape), tostring(shapes[i].shape))
    assert(shapes[i].dtype == want.dtype)
  end
  return table.unpack(eager)
end

return M
