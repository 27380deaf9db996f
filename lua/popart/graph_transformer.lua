--- popart.GraphTransformer: models changed before they are run, one's types into
--- others', initializers into constants, data into files of their own.
---
---     local t = popart.GraphTransformer("model.onnx")
---     t:convertFloatsToHalfs()
---     local session = popart.InferenceSession(t:getModelProto(), …)
---
--- Source: PopART user guide, Importing graphs; its Python API, GraphTransformer.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local errors = require("popart.errors")
local proto = require("lupine.onnx.proto")
local signatures = require("lupine.base.signatures")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")
local traced = require("popart.traced")

--- A model to be changed: a file's path, or the bytes of a ModelProto.
--- error: popart_exception for what is no model
--- source: PopART Python API, GraphTransformer
---@class popart.GraphTransformer
---@overload fun(modelProtoOrFilename: string): popart.GraphTransformer
local GraphTransformer = closed.close(class.new("GraphTransformer"))
signatures.note(GraphTransformer, "GraphTransformer(modelProtoOrFilename)", 1)

function GraphTransformer:init(...)
  local given = check.one("GraphTransformer", "modelProtoOrFilename", ...)
  check.string(given, "GraphTransformer: modelProtoOrFilename")
  self._model, self._folder = traced.read(given)
end

--- The model as it is now.
---@return string bytes
function GraphTransformer:getModelProto()
  return errors.guard("popart_exception", core.onnx_encode, self._model, "ModelProto")
end

-- ---- types -----------------------------------------------------------------------------

local UINT16 = 4 -- TensorProto.DataType of a type that tensors here do not have

-- A tensor of that type: its values as int32.
local function of_uint16(t, folder)
  local listed = not t.raw_data and t.data_location ~= 1
  local number = tensors.number(listed and torch.int32 or torch.int16)
  local same = setmetatable({ data_type = number }, { __index = t })
  return tensors.read(same, folder):to(torch.int32):remainder(65536)
end

local INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1

local function narrow(values, clip)
  local fits = values:clamp(INT32_MIN, INT32_MAX)
  errors.check(clip or torch.equal(values, fits), "popart_exception", "convertINT64ToINT32: cannot "
    .. "cast int64 to int32: number is too large. If you are sure you still want to convert your "
    .. "tensor data, you can set 'clip' to true.")
  return fits:to(torch.int32)
end

-- Each tensor, value info and body of a graph: of nodes' attributes, too.
local function each(graph, on_tensor, on_info)
  for i, t in ipairs(graph.initializer or {}) do
    graph.initializer[i] = on_tensor(t)
  end
  for _, field in ipairs({ "input", "output", "value_info" }) do
    for _, info in ipairs(graph[field] or {}) do
      on_info(info)
    end
  end
  for _, node in ipairs(graph.node or {}) do
    for _, a in ipairs(node.attribute or {}) do
      a.t = a.t and on_tensor(a.t)
      for _, body in ipairs(a.g and { a.g } or a.graphs or {}) do
        each(body, on_tensor, on_info)
      end
    end
  end
end

-- Tensors of one TensorProto.DataType become those of another; how(values).
local function convert(self, from, to, how)
  local number = tensors.number(to)
  errors.guard("popart_exception", each, self._model.graph, function(t)
    if t.data_type ~= from then
      return t
    end
    local values = from == UINT16 and of_uint16(t, self._folder) or tensors.read(t, self._folder)
    local out = tensors.write(t.name, how and how(values) or values:to(to))
    out.doc_string = t.doc_string
    return out
  end, function(info)
    local type = info.type and info.type.tensor_type
    if type and type.elem_type == from then
      type.elem_type = number
    end
  end)
end

local CONVERSIONS = {
  convertFloatsToHalfs = { torch.float32, torch.float16 },
  convertUINT8ToINT32 = { torch.uint8, torch.int32 },
  convertINT8ToINT32 = { torch.int8, torch.int32 },
  convertINT16ToINT32 = { torch.int16, torch.int32 },
  convertDoublesToFloats = { torch.float64, torch.float32 },
  convertDoublesToHalfs = { torch.float64, torch.float16 },
  convertBFloats16ToFloat32 = { torch.bfloat16, torch.float32 },
}
for name, row in pairs(CONVERSIONS) do
  GraphTransformer[name] = function(self)
    check.method(self, GraphTransformer, name)
    convert(self, tensors.number(row[1]), row[2])
  end
end

--- Tensors of uint16 become int32.
function GraphTransformer:convertUINT16ToINT32()
  convert(self, UINT16, torch.int32)
end

--- Tensors of int64 become int32.
--- error: popart_exception for a value that does not fit, unless it is to be clipped
---@param ... any clip (boolean, false)
function GraphTransformer:convertINT64ToINT32(...)
  local clip = check.one("convertINT64ToINT32", "clip", ...)
  clip = clip ~= nil and check.bool(clip, "convertINT64ToINT32: clip")
  convert(self, tensors.number(torch.int64), torch.int32, function(values)
    return narrow(values, clip)
  end)
end

-- ---- initializers ----------------------------------------------------------------------

-- {name = initializer} of those that are named; each has to be one.
local function named(graph, ids, where, format)
  local known, out = {}, {}
  for _, t in ipairs(graph.initializer or {}) do
    known[t.name] = t
  end
  for i, id in ipairs(check.plain_table(ids, where .. ": ids")) do
    check.string(id, ("%s: ids[%d]"):format(where, i))
    out[id] = errors.check(known[id], "popart_exception", format, id)
  end
  return out
end

local function without(list, names)
  local out = {}
  for _, entry in ipairs(list or {}) do
    out[#out + 1] = not names[entry.name] and entry or nil
  end
  return out
end

--- Initializers become constants, which no training changes.
--- error: popart_exception for a name that is none's
---@param ... any ids (string[])
function GraphTransformer:convertInitializersToConstants(...)
  local ids = check.arguments("convertInitializersToConstants", { "ids" }, { ids = "list" }, ...)[1]
  local graph, nodes = self._model.graph, {}
  local chosen = named(graph, ids, "convertInitializersToConstants",
    "TensorId %s not in the model initalizers")
  for _, t in ipairs(graph.initializer or {}) do
    if chosen[t.name] then
      local value = proto.attribute("value", tensors.read(t, self._folder))
      nodes[#nodes + 1] = { name = t.name, op_type = "Constant", domain = "",
        output = { t.name }, attribute = { value } }
    end
  end
  graph.node = table.move(graph.node or {}, 1, #(graph.node or {}), #nodes + 1, nodes)
  graph.initializer, graph.input = without(graph.initializer, chosen), without(graph.input, chosen)
end

--- All initializers of integers and booleans become constants.
function GraphTransformer:convertAllFixedPointInitializersToConstants()
  local ids = {}
  for _, t in ipairs(self._model.graph.initializer or {}) do
    if t.data_type == UINT16 or not tensors.dtype(t.data_type).is_floating_point then
      ids[#ids + 1] = t.name
    end
  end
  self:convertInitializersToConstants(ids)
end

--- Moves initializers' data to a file; a model with a graph of these has to lie beside it.
---@param graph table GraphProto
---@param folder string? where the data is that is in files now
---@param where string for messages
---@param ... any ids (string[]), filename (string)
---@return string[] ids
---@return string filename
local function save_externally(graph, folder, where, ...)
  local v = check.arguments(where, { "ids", "filename" }, { ids = "list" }, ...)
  local path = check.string(v[2], where .. ": filename")
  local chosen, list, at = named(graph, v[1], where, "Tensor '%s' is not an initializer"), {}, {}
  for i, t in ipairs(graph.initializer or {}) do
    if chosen[t.name] then
      errors.check(t.data_location ~= 1, "popart_exception",
        "Tensor '%s' already has an external data_location", t.name)
      local raw = t.raw_data and t or tensors.lend(t.name, tensors.read(t, folder))
      errors.check(tensors.size_of(raw.raw_data) > 0, "popart_exception",
        "Tensor '%s' has no data to save externally", t.name)
      list[#list + 1], at[#at + 1] = raw, i
    end
  end
  local name = path:match("[^/]*$")
  local there = tensors.there(graph.initializer or {}, name)
  errors.check(not there, "popart_exception", "%s: the data of tensor '%s' is in the file %s "
    .. "already, which would be lost: give all ids at once, or another file", where, there, name)
  local kept, data = tensors.outside(list, name, 0, 1)
  errors.guard("popart_exception", core.write_parts, path, data)
  for i, t in ipairs(kept) do
    graph.initializer[at[i]] = t
  end
  return v[1], path
end

--- Moves initializers' data to a file of its own, beside which the model is to be saved:
--- models of more than 2 GB need that.
--- error: popart_exception for a name that is no initializer's, or data that is in a file
---@param ... any ids (string[]), filename (string)
function GraphTransformer:saveInitializersExternally(...)
  save_externally(self._model.graph, self._folder, "saveInitializersExternally", ...)
end

-- ---- nodes -----------------------------------------------------------------------------

-- Names of what the nodes of a graph read, those of their bodies included.
local function consumed(graph, names)
  for _, node in ipairs(graph.node or {}) do
    for _, id in ipairs(node.input or {}) do
      names[id] = true
    end
    for _, a in ipairs(node.attribute or {}) do
      for _, body in ipairs(a.g and { a.g } or a.graphs or {}) do
        consumed(body, names)
      end
    end
  end
  return names
end

--- Inputs and initializers that no node reads go, unless they are outputs.
function GraphTransformer:removeUnusedInputs()
  local graph, unused = self._model.graph, {}
  local read = consumed(graph, {})
  for _, output in ipairs(graph.output or {}) do
    read[output.name] = true
  end
  for _, field in ipairs({ "input", "initializer" }) do
    for _, entry in ipairs(graph[field] or {}) do
      unused[entry.name] = not read[entry.name] or nil
    end
  end
  graph.input, graph.initializer = without(graph.input, unused), without(graph.initializer, unused)
end

-- Outputs of a BatchNormalization that trains: five before opset 14, three since.
local function outputs_in_training(model)
  return (proto.opsets(model.opset_import or {})[""] or 1) >= 14 and 3 or 5
end

--- Nodes become those of training: a BatchNormalization gives its statistics, too.
function GraphTransformer:prepareNodesForTraining()
  local most = outputs_in_training(self._model)
  for i, node in ipairs(self._model.graph.node or {}) do
    if node.op_type == "BatchNormalization" and proto.domain(node.domain) == "" then
      for k = #node.output, most - 1 do
        node.output[k + 1] = ("BatchNormalization_%s_oi%d_%d"):format(node.name or "", k, i - 1)
      end
    end
  end
end

return { GraphTransformer = GraphTransformer, save_externally = save_externally }
