--- The model that a builder has: its bytes and files, and what is known of its tensors.
---
--- Source: PopART Python API, Builder.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("popart.errors")
local external_files = require("popart.external_files")
local graph_transformer = require("popart.graph_transformer")
local own = require("popart.builder.own")
local proto = require("lupine.onnx.proto")
local tables = require("lupine.base.tables")
local tensors = require("lupine.onnx.tensors")

local Builder = own.Builder

local M = { methods = {} }
local methods = M.methods

local REPLICAS = "__replicationFactor"

--- How many replicas a model says that it is for; nil: it does not.
---@param metadata table<string, table<string, string>>
---@return integer?
function M.replicas(metadata)
  local n = math.tointeger(tonumber((metadata[REPLICAS] or {})[""]))
  return n and n > 0 and n or nil
end

--- The replicas that the model is for: with variables in groups their tensors have a
--- dimension of groups in front.
---@param replicationFactor integer
function methods:embedReplicationFactor(replicationFactor)
  self._replicas = check.int(replicationFactor, "embedReplicationFactor: replicationFactor",
    { min = 1 })
  table.insert(self._model.metadata_props, { key = REPLICAS,
    value = tostring(replicationFactor) })
end

--- The model's name; "" makes one up.
---@param name string
function methods:setGraphName(name)
  own.check_text(name, "setGraphName: name")
  self._model.graph.name = name ~= "" and name or own.empty_model().graph.name
end

-- ---- what there is ----------------------------------------------------------------------

-- The versions that were chosen are the model's.
local function import_opsets(self)
  local there = {}
  for _, set in ipairs(self._model.opset_import or {}) do
    there[set.domain or ""] = true
  end
  self._model.opset_import = self._model.opset_import or {}
  for domain, version in pairs(self._versions) do
    if not there[domain] then
      table.insert(self._model.opset_import, { domain = domain, version = version })
    end
  end
end

-- Where the data of a tensor is, by the path of its file, which was saved from here.
local function home(self, t)
  local path = self._saved[t.name]
  if not path then
    return nil
  end
  local entries = {}
  for i, entry in ipairs(t.external_data) do
    entries[i] = entry.key == "location" and { key = "location", value = path } or entry
  end
  return entries
end

-- The model with all of its data: bytes have no folder in which others could be.
local function whole(self)
  local list = {}
  for i, t in ipairs(self._model.graph.initializer) do
    list[i] = t
    if t.data_location == 1 then
      list[i] = tensors.write(t.name, self._values[t.name])
      list[i].external_data = home(self, t)
    end
  end
  local graph_proto = tables.with(self._model.graph, { initializer = list })
  return tables.with(self._model, { graph = graph_proto })
end

--- The model as the bytes of a ModelProto, or as text.
---@param humanReadable? boolean
---@return string
function methods:getModelProto(humanReadable)
  check.method(self, Builder, "getModelProto")
  import_opsets(self)
  return humanReadable and proto.text(self._model)
    or errors.guard("popart_exception", core.onnx_encode, whole(self), "ModelProto")
end

--- Writes the model to a file. Data of saveInitializersExternally stays in its own.
--- error: OSError
---@param filename string
function methods:saveModelProto(filename)
  check.method(self, Builder, "saveModelProto")
  check.string(filename, "saveModelProto: filename")
  import_opsets(self)
  errors.guard("popart_exception", proto.write, self._model, filename)
end

--- Moves initializers' data to a file of its own, beside which saveModelProto has to write
--- the model. A session of getModelProto's bytes brings it up to date in modelToHost.
--- error: popart_exception for a name that is no initializer's, or data that is in a file
---@param ... any ids (string[]), filename (string)
function methods:saveInitializersExternally(...)
  local ids, path = graph_transformer.save_externally(self._model.graph, self._folder,
    "saveInitializersExternally", ...)
  external_files.add(path)
  for _, id in ipairs(ids) do
    self._saved[id] = path
  end
end

local function ids_of(list)
  local out = {}
  for i, x in ipairs(list) do
    out[i] = x.name
  end
  return out
end

--- The inputs, initialized ones among them.
---@return string[] ids
function methods:getInputTensorIds()
  return ids_of(self._model.graph.input)
end

--- The outputs.
---@return string[] ids
function methods:getOutputTensorIds()
  return ids_of(self._model.graph.output)
end

--- What nodes give.
---@return string[] ids
function methods:getValueTensorIds()
  return ids_of(self._model.graph.value_info)
end

--- The initialized tensors.
---@return string[] ids
function methods:getTrainableTensorIds()
  return ids_of(self._model.graph.initializer)
end

--- Whether a tensor is an initialized one.
---@param id string
---@return boolean
function methods:isInitializer(id)
  return self._initializers[id] ~= nil
end

-- A tensor that there is something known of.
local function known(self, id, where)
  errors.check(self._names:has(id), "popart_exception", "%s is not an known tensor (%s)",
    tostring(id), where)
  local t = self._scope:find(id) or self._initializers[id]
  errors.check(t, "popart_exception", "%s: the type of '%s' is not known before the graph is "
    .. "called", where, tostring(id))
  return t
end

--- The shape that a tensor will have; of a variable in groups of replicas that of all of
--- them, unless embedReplicationFactor has said how many there are.
--- error: popart_exception for one that is not there
---@param id string
---@return integer[]
function methods:getTensorShape(id)
  check.method(self, Builder, "getTensorShape")
  return { table.unpack(known(self, id, "getTensorShape").shape) }
end

--- The name of a tensor's type, in lower case: "float32", "int64", …
--- error: popart_exception for one that is not there
---@param id string
---@return string
function methods:getTensorDtypeString(id)
  return (tostring(known(self, id, "getTensorDtypeString").dtype):gsub("^torch%.", ""))
end

return M
