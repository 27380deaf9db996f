--- Graphs of ONNX as text:
---
---     local body = graphs.graph("i, going, v -> going, w", { { "w = Add(v, x)" } })
---     local model = graphs.model("x, v -> y", {
---       { "y = Loop(M, , v)", { body = body } },
---     }, { M = torch.tensor(3) })
---     local y = graphs.both(model, { x, v })
---
--- A node is its text and its attributes; "gc." in front of an operator is its domain
--- ai.graphcore. Inputs have no types; initializers lie in the last table, by name.
---
--- spec/lupine/onnx/node.lua has models of single nodes, whose inputs are tensors.
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

--- A NodeProto without inputs and outputs.
---@param domain string
---@param op string
---@param version integer of the domain's operators
---@param values? table<string, any> attributes, of the kinds that the operator says
---@return table
function M.node(domain, op, version, values)
  local row = operators.find(domain, op, version)
  local list = {}
  for name, value in pairs(values or {}) do
    local known = row and row.schema.by_name[name]
    list[#list + 1] = proto.attribute(name, value, known and known.field)
  end
  return { op_type = op, domain = domain, input = {}, output = {}, attribute = list }
end

local function node_of(text, values, version)
  local outputs, core_op, op, inputs = text:match("^(.-)%s*=%s*(g?c?%.?)([%w_]+)%((.*)%)$")
  local node = M.node(core_op == "gc." and "ai.graphcore" or "", op, core_op == "gc." and 1
    or version, values)
  node.input, node.output = names(inputs), names(outputs)
  return node
end

--- The module of a GraphProto.
---@param graph table
---@param opsets table<string, integer> versions by domain
---@return lupine.onnx.Module
function M.load(graph, opsets)
  local imports = {}
  for domain, version in pairs(opsets) do
    imports[#imports + 1] = { domain = domain, version = version }
  end
  return onnx.load({ ir_version = proto.IR_VERSION, graph = graph, opset_import = imports })
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
    g.node[i] = node_of(row[1], row[2], version or 16)
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
  return M.load(M.graph(text, nodes, initializers, version),
    { [""] = version or 16, ["ai.graphcore"] = 1 })
end

-- Same type and shape.
local function same_form(got, want, how)
  assert(got.dtype == want.dtype and tostring(got.shape) == tostring(want.shape),
    ("%s: %s %s, eager: %s %s"):format(how, tostring(got.dtype), tostring(got.shape),
      tostring(want.dtype), tostring(want.shape)))
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
    same_form(compiled[i], want, "compiled")
    helper.near(compiled[i], want)
    same_form(shapes[i], want, "meta")
  end
  return table.unpack(eager)
end

return M
