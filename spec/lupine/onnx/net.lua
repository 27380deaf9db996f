--- Modules of several nodes, for specs:
---
---     local net = require("spec.lupine.onnx.net")
---     local model = net({ inputs = "x", outputs = "z", initializers = { w = tensor },
---       { "Mul", "x w", "y" }, { "gc.Scale", "y", "z", { scale = 2.0 } } })
---
--- A node is operator ("gc." in front: of ai.graphcore), inputs, outputs, attributes; an
--- attribute may be a graph, written as such a table. `_` is an input or output that is
--- left out. `version` is that of ONNX's operators (11).
local onnx = require("lupine.onnx")
local operators = require("lupine.onnx.operators")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")

local M = {}

local function names(text)
  local list = {}
  for name in (text or ""):gmatch("%S+") do
    list[#list + 1] = name == "_" and "" or name
  end
  return list
end

local function node_of(row, version)
  local core_op = row[1]:match("^gc%.(.*)")
  local domain, op = core_op and "ai.graphcore" or "", core_op or row[1]
  local known = operators.find(domain, op, core_op and 1 or version)
  local list = {}
  for name, value in pairs(row[4] or {}) do
    if type(value) == "table" and type(value[1]) == "table" then
      value = M.graph(value, version)
    end
    local attribute = known and known.schema.by_name[name]
    list[#list + 1] = proto.attribute(name, value, attribute and attribute.field)
  end
  return { op_type = op, domain = domain, input = names(row[2]), output = names(row[3]),
    attribute = list }
end

--- The GraphProto of such a table.
---@param spec table
---@param version integer
---@return table
function M.graph(spec, version)
  local graph = { name = spec.name or "graph", node = {}, input = {}, output = {},
    initializer = {} }
  for name, t in pairs(spec.initializers or {}) do
    table.insert(graph.initializer, tensors.write(name, t))
  end
  for _, name in ipairs(names(spec.inputs)) do
    table.insert(graph.input, { name = name })
  end
  for _, name in ipairs(names(spec.outputs)) do
    table.insert(graph.output, { name = name })
  end
  for i, row in ipairs(spec) do
    graph.node[i] = node_of(row, version)
  end
  return graph
end

return setmetatable(M, { __call = function(_, spec)
  local version = spec.version or 11
  return onnx.load({ ir_version = proto.IR_VERSION, graph = M.graph(spec, version),
    opset_import = { { domain = "", version = version }, { domain = "ai.graphcore", version = 1 } }
  }):train(spec.training or false)
end })
