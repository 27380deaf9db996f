--- The tensors of a builder's graph: inputs, initialized ones, outputs.
---
--- Source: PopART Python API, Builder.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("popart.errors")
local node_attributes = require("popart.node_attributes")
local opsets = require("popart.opsets")
local own = require("popart.builder.own")
local proto = require("lupine.onnx.proto")
local tensor_info = require("popart.tensor_info")
local tensors = require("lupine.onnx.tensors")

local Builder = own.Builder

local M = { methods = {} }
local methods = M.methods

-- Adds an input of a type that may not be known.
local function add_input(self, id, dtype, shape)
  self._names:add(id, "input")
  table.insert(self._model.graph.input, proto.info(id, dtype, shape))
  self._scope:set(id, dtype and own.shape_of(dtype, shape) or false, false)
  return id
end

--- An input of the model.
--- errors: TypeError, ValueError
---@param ... any tensorInfo (popart.TensorInfo), or dataType (string) and shape; then
---  settings (popart.InputSettings?) and debugContext (string?, its name: "input")
---@return string id
function methods:addInputTensor(...)
  check.method(self, Builder, "addInputTensor")
  local first = ...
  local names = type(first) == "string" and { "dataType", "shape", "settings", "debugContext" }
    or { "tensorInfo", "settings", "debugContext" }
  local values = check.arguments("addInputTensor", names, { shape = "list" },
    table.unpack(opsets.with_context(table.pack(...)), 1, select("#", ...)))
  local at = #names - 1
  if type(values[at]) == "string" then -- the name in place of the settings
    values[at], values[at + 1] = nil, values[at]
  end
  local info = at == 3 and tensor_info.TensorInfo(values[1], values[2])
    or check.instance(values[1], "addInputTensor: tensorInfo", tensor_info.TensorInfo,
      { shown = "popart.TensorInfo" })
  local dtype, shape = info:dataType("addInputTensor: dataType"), info:shape()
  local name = values[at + 1] or ""
  local id = own.next_id(self, name ~= "" and name or "input")
  node_attributes.note_input(self._model.metadata_props, id, values[at])
  return add_input(self, id, dtype, shape)
end

--- An input of a sub-graph whose type follows from what it is called with.
--- error: popart_exception for the model's own graph
---@param debugContext? string its name
---@return string id
function methods:addUntypedInputTensor(debugContext)
  check.method(self, Builder, "addUntypedInputTensor")
  errors.check(self._parent, "popart_exception", "Can not add untyped tensors to the top-level "
    .. "graph. Use addInputTensor(tensorInfo, debugContext) instead.")
  local name = debugContext or ""
  return add_input(self, own.next_id(self, name ~= "" and name or "input"), nil, nil)
end

--- A tensor of the graph around is an input of this one, by its name there.
--- error: popart_exception for a name that is not there
---@param tensorId string
function methods:addInputTensorFromParentGraph(tensorId)
  errors.check(self._parent and self._parent._names:has(tensorId), "popart_exception",
    "Failed to add unrecognised Tensor %s from higher scope, Currently, a Tensor must already "
    .. "exist in a higher (parent) scope to add it as an input in a lower scope.",
    tostring(tensorId))
  table.insert(self._model.graph.input, proto.info(tensorId))
end

--- A tensor with values: a weight, which training changes, or a constant of an
--- inference session.
--- error: TypeError for what is no tensor
---@param ... any initVal (tensor), variableSettings (popart.VariableSettings?),
---  debugContext (string?, its name: "init_input")
---@return string id
function methods:addInitializedInputTensor(...)
  check.method(self, Builder, "addInitializedInputTensor")
  local values = check.arguments("addInitializedInputTensor",
    { "initVal", "variableSettings", "debugContext" }, nil,
    table.unpack(opsets.with_context(table.pack(...)), 1, select("#", ...)))
  local t, settings, name = values[1], values[2], values[3] or ""
  if type(settings) == "string" then
    settings, name = nil, settings
  end
  errors.check(core.is_tensor(t), "TypeError",
    "addInitializedInputTensor: initVal: expected a tensor, got %s", check.describe(t))
  local id = own.next_id(self, name ~= "" and name or "init_input")
  local message = errors.guard("popart_exception", tensors.write, id, t)
  self._names:add(id, "initializer")
  table.insert(self._model.graph.input, proto.info(id, t.dtype, t.shape))
  table.insert(self._model.graph.initializer, message)
  local one = node_attributes.note_variable(self._model.metadata_props, id, settings, t,
    self._replicas)
  self._values[id] = t
  own.add_initializer(self, id, t, one)
  return id
end

--- Marks an output of the model. An output need not be anchored, nor an anchor an output.
--- error: popart_exception for a tensor that is not there
---@param outputName string
function methods:addOutputTensor(outputName)
  check.method(self, Builder, "addOutputTensor")
  own.check_text(outputName, "addOutputTensor: outputName")
  errors.check(self._names:has(outputName), "popart_exception",
    "addOutputTensor: unknown tensor '%s'", outputName)
  local t = self._scope:find(outputName)
  table.insert(self._model.graph.output, proto.info(outputName, t and t.dtype, t and t.shape))
end

--- The outputs of the model, in place of those that were marked before.
---@param ids string[]
function methods:setGraphOutputs(ids)
  check.method(self, Builder, "setGraphOutputs")
  local graph = self._model.graph
  local before = graph.output
  graph.output = {}
  local ok, e = pcall(function()
    for _, id in ipairs(check.strings(ids, "setGraphOutputs: ids")) do
      self:addOutputTensor(id)
    end
  end)
  if not ok then
    graph.output = before
    error(e, 0)
  end
end

return M
