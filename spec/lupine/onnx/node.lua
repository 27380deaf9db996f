--- Runs one node of a model on tensors:
---
---     local node = require("spec.lupine.onnx.node")
---     local y = node("Conv", { x, w, b }, { pads = { 1, 1, 1, 1 } }, { version = 11 })
---
--- An input of `false` is left out. The last argument may have `domain` (""),
--- `version` of the domain's operators (17; 1 of others), `outputs` (how many, or their
--- names, "" for one that is not wanted), `constants` (index of an input -> true: it is
--- an initializer), `training` (the model is in training mode), `compiled` (it runs
--- under lupine.compile), `opsets` (domain -> version, of what bodies use).
local compile = require("lupine.compile")
local helper = require("spec.helper")
local onnx = require("lupine.onnx")
local operators = require("lupine.onnx.operators")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")

local M = {}

local function attributes(op, values, domain, version)
  local row = operators.find(domain, op, version)
  local list = {}
  for name, value in pairs(values or {}) do
    local known = row and row.schema.by_name[name]
    list[#list + 1] = proto.attribute(name, value, known and known.field)
  end
  return list
end

local function names_of(outputs)
  if type(outputs) == "table" then
    return outputs
  end
  local list = {}
  for i = 1, outputs or 1 do
    list[i] = "y" .. i
  end
  return list
end

--- The model of one node, and the tensors that it takes.
---@param op string
---@param inputs (torch.Tensor|false)[]
---@param values? table<string, any> attributes
---@param options? table
---@return lupine.onnx.Module
---@return torch.Tensor[]
function M.model(op, inputs, values, options)
  options = options or {}
  local domain = options.domain or ""
  local version = options.version or domain == "" and 17 or 1
  local graph = { name = op, input = {}, output = {}, initializer = {}, node = {} }
  local node = { op_type = op, domain = domain, input = {}, output = names_of(options.outputs),
    attribute = attributes(op, values, domain, version) }
  local given = {}
  for i, t in ipairs(inputs) do
    node.input[i] = t and "x" .. i or ""
    if t and (options.constants or {})[i] then
      table.insert(graph.initializer, tensors.write(node.input[i], t))
    elseif t then
      table.insert(graph.input, proto.info(node.input[i], t.dtype, t.shape))
      given[#given + 1] = t
    end
  end
  for _, name in ipairs(node.output) do
    if name ~= "" then
      table.insert(graph.output, { name = name })
    end
  end
  graph.node[1] = node
  local imports = { { domain = domain, version = version } }
  for name, of in pairs(options.opsets or {}) do
    table.insert(imports, { domain = name, version = of })
  end
  local model = onnx.load({ ir_version = proto.IR_VERSION, graph = graph, opset_import = imports })
  return model:train(options.training or false), given
end

--- Runs a node: its outputs that are wanted.
---@param op string
---@param inputs (torch.Tensor|false)[]
---@param values? table<string, any> attributes
---@param options? table
---@return ... torch.Tensor
function M.run(op, inputs, values, options)
  local model, given = M.model(op, inputs, values, options)
  local run = options and options.compiled and compile(model, given) or model
  return run(table.unpack(given))
end

--- A node that is refused with a ValueError, or an error of the class `options.error`,
--- whose message has the text.
---@param text string
---@param op string
---@param inputs (torch.Tensor|false)[]
---@param values? table<string, any>
---@param options? table
function M.refuses(text, op, inputs, values, options)
  helper.refuses((options or {}).error or "ValueError", (text:gsub("%p", "%%%0")), M.run, op,
    inputs, values, options)
end

return setmetatable(M, { __call = function(_, ...)
  return M.run(...)
end })
