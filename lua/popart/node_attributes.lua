--- Attributes of nodes that are PopART's: where they run, whether they are computed
--- again, how much memory they may take. They stand in the ModelProto under names that
--- begin with "__" and are read when a session traces it.
---
---     builder:virtualGraph(y, 1)                          -- of the node that gives y
---     local _ <close> = builder:virtualGraph(1)           -- of all that are added until then
---     builder:virtualGraph(1, function() … end)
---
--- Source: PopART Python API, Builder; PopART, names.hpp.
local Builder = require("popart.builder.own").Builder
local NAMES = require("lupine.onnx.annotation_names")
local TensorLocation = require("popart.tensor_location").TensorLocation
local check = require("lupine.base.check")
local dataflow = require("popart.dataflow")
local enums = require("popart.enums")
local errors = require("popart.errors")
local proto = require("lupine.onnx.proto")
local variable_settings = require("popart.variable_settings")

local M = { methods = {} }
local methods = M.methods

--- Keys of what the model's metadata say of a tensor: of inputs, of variables.
M.METADATA = {
  tileSet = "__tile_set", exchangeStrategy = "__exchange_strategy",
  replicatedStreamMode = "__replicated_stream_mode",
  retrievalMode = "__variable_settings", groupType = "__comm_group_type",
  commGroupSize = "__comm_group_size", stride = "__stride", groupSize = "__group_size",
}
local METADATA = M.METADATA

--- What becomes of an operator's results between forward and backward.
M.RecomputeType = enums.RecomputeType

-- ---- nodes by what they give ------------------------------------------------------------

local function names_of(ids, where)
  local list = type(ids) == "string" and { ids } or ids
  check.strings(list, where .. ": nodeOutputNames")
  return list
end

local function gives(node, set, n)
  if #node.output ~= n then
    return false
  end
  for _, id in ipairs(node.output) do
    if not set[id] then
      return false
    end
  end
  return true
end

-- The node whose outputs these are, all of them.
local function node_of(self, ids, where)
  check.method(self, Builder, where)
  local list, set = names_of(ids, where), {}
  for _, id in ipairs(list) do
    set[id] = true
  end
  local node = self._node_of[list[1]]
  if node and gives(node, set, #list) then
    return node
  end
  errors.raise("popart_exception", "Could not find a node with outputs %s. Must specify all "
    .. "outputs of a node", table.concat(list, " ,"))
end

local function add(node, name, value, field)
  errors.check(not proto.find(node, name), "popart_exception", "Node already has attribute %s.",
    name)
  table.insert(node.attribute, proto.attribute(name, value, field))
end

-- Sets an attribute, also where there is one.
local function set(node, name, value, field)
  local _, at = proto.find(node, name)
  if at then
    table.remove(node.attribute, at)
  end
  add(node, name, value, field)
end

--- The attributes of the scopes that are open, at a new node.
---@param builder popart.Builder
---@param node table NodeProto
function M.apply(builder, node)
  local open = builder
  while open do
    for _, a in ipairs(open._attributes) do
      if not proto.find(node, a.name) then
        table.insert(node.attribute, proto.attribute(a.name, a.value, a.field))
      end
    end
    open = open._parent
  end
end

-- ---- metadata of tensors -----------------------------------------------------------------

-- What is said of a tensor: in the model's metadata, "KEY/id".
local function note(list, key, id, value)
  list[#list + 1] = { key = ("%s/%s"):format(key, id), value = tostring(value) }
end

local INPUT = { "tileSet", "exchangeStrategy", "replicatedStreamMode" }

--- Notes how an input travels.
---@param list table[] metadata_props
---@param id string
---@param settings popart.InputSettings?
function M.note_input(list, id, settings)
  if settings ~= nil then
    check.instance(settings, "addInputTensor: settings", dataflow.InputSettings)
    for _, method in ipairs(INPUT) do
      note(list, METADATA[method], id, settings[method](settings).value)
    end
  end
end

--- Notes which replicas share a variable; what one replica has of it, nil where that
--- depends on how many there will be.
---@param list table[] metadata_props
---@param id string
---@param settings popart.VariableSettings?
---@param t torch.Tensor
---@param replicas integer? of the model
---@return torch.Tensor?
function M.note_variable(list, id, settings, t, replicas)
  if settings == nil then
    return t
  end
  check.instance(settings, "addInitializedInputTensor: variableSettings",
    variable_settings.VariableSettings)
  if settings:isUsingCommGroup() then
    local group = settings:getSharedVariableDomain()
    note(list, METADATA.groupType, id, group.type.value)
    note(list, METADATA.commGroupSize, id, group.replicaGroupSize)
  else
    note(list, METADATA.stride, id, settings:getStride())
    note(list, METADATA.groupSize, id, settings:getGroupSize())
  end
  note(list, METADATA.retrievalMode, id, settings:getRetrievalMode().value)
  return M.of_one(id, settings, t, replicas)
end

--- What one replica has of a variable, nil where that depends on how many there will be.
---@param id string
---@param settings popart.VariableSettings?
---@param t torch.Tensor
---@param replicas integer? of the model
---@return torch.Tensor?
function M.of_one(id, settings, t, replicas)
  if not settings then
    return t
  elseif not replicas then
    local shared = settings:isUsingCommGroup()
      and settings:getCommGroupType() == enums.CommGroupType.All
    return shared and t or nil
  end
  local shape = settings:shapeOnReplica(t.shape, replicas, id)
  return #shape < t:dim() and t[0] or t
end

--- What was noted of a variable; nil: nothing, all replicas share it.
---@param metadata table<string, table<string, string>> as of M.metadata
---@param id string
---@return popart.VariableSettings?
function M.settings_of(metadata, id)
  local function number(key)
    local text = (metadata[key] or {})[id]
    return text and math.tointeger(tonumber(text))
  end
  local mode = number(METADATA.retrievalMode)
  mode = mode and enums.VariableRetrievalMode(mode)
  local kind, size = number(METADATA.groupType), number(METADATA.commGroupSize)
  if kind then
    return variable_settings.VariableSettings(
      variable_settings.CommGroup(enums.CommGroupType(kind), size), mode)
  elseif number(METADATA.stride) then
    return variable_settings.VariableSettings(number(METADATA.stride), number(METADATA.groupSize),
      mode)
  end
  return nil
end

--- What the metadata say, by key and id.
---@param list table[] metadata_props
---@return table<string, table<string, string>>
function M.metadata(list)
  local out = {}
  for _, entry in ipairs(list) do
    local key, id = entry.key:match("^(__[%w_]+)/(.*)$")
    key, id = key or entry.key, id or ""
    out[key] = out[key] or {}
    out[key][id] = entry.value
  end
  return out
end

-- ---- scopes -----------------------------------------------------------------------------

local Scope = {}
Scope.__index = Scope

function Scope:__close()
  self.leave()
end

-- Runs fn inside of a scope, or gives the scope.
local function scoped(leave, fn, ...)
  local scope = setmetatable({ leave = leave }, Scope)
  if fn == nil then
    return scope
  end
  local _ <close> = scope
  return check.callable(fn, "the last argument")(...)
end

local function open(self, method, name, value, field, fn)
  check.method(self, Builder, method)
  local list, entry = self._attributes, { name = name, value = value, field = field }
  table.insert(list, 1, entry) -- the last one opened is found first
  return scoped(function()
    for i, x in ipairs(list) do
      if x == entry then
        table.remove(list, i)
        return
      end
    end
  end, fn)
end

-- A method that sets an integer at nodes, or opens a scope of it.
local function integer(method, least)
  local name = NAMES[method]
  methods[method] = function(self, first, second)
    if type(first) == "string" or type(first) == "table" and not getmetatable(first) then
      local value = check.int(second == nil and 0 or second, method .. ": value", { min = least })
      set(node_of(self, first, method), name, value, "i")
      return nil
    end
    return open(self, method, name, check.int(first == nil and 0 or first, method .. ": value",
      { min = least }), "i", second)
  end
  local Method = method:sub(1, 1):upper() .. method:sub(2)
  methods["get" .. Method] = function(self, ids)
    if ids ~= nil then
      local found = proto.find(node_of(self, ids, "get" .. Method), name)
      errors.check(found, "popart_exception", "Node does not have an attribute %s.", name)
      return found.i
    end
    for _, a in ipairs(self._attributes) do
      if a.name == name then
        return a.value
      end
    end
    errors.raise("popart_exception", "%s not set in current scope.", method)
  end
  methods["has" .. Method] = function(self)
    for _, a in ipairs(self._attributes) do
      if a.name == name then
        return true
      end
    end
    return false
  end
end
integer("virtualGraph", 0)
integer("pipelineStage", 0)
integer("executionPhase", -1)

local function type_of(value, where)
  if value == nil then
    return M.RecomputeType.Undefined.value
  end
  return check.enum(value, where, M.RecomputeType).value
end

--- Whether results are kept or computed again; at nodes, or of all that are added in a
--- scope.
---@param first any ids, or a popart.RecomputeType of a scope
---@param second any the RecomputeType, or a function that runs in the scope
function methods:recomputeOutput(first, second)
  if type(first) == "string" or type(first) == "table" and not getmetatable(first) then
    set(node_of(self, first, "recomputeOutput"), NAMES.recomputeOutput,
      type_of(second, "recomputeOutput: value"), "i")
    return nil
  end
  return open(self, "recomputeOutput", NAMES.recomputeOutput,
    type_of(first, "recomputeOutput: value"), "i", second)
end

--- The results of a node are computed again for the backward pass.
---@param ids string|string[]
---@param value? table popart.RecomputeType, Recompute unless given
function methods:recomputeOutputInBackwardPass(ids, value)
  methods.recomputeOutput(self, ids, value or M.RecomputeType.Recompute)
end

---@param ids string|string[]
---@return boolean
function methods:getRecomputeOutputInBackwardPass(ids)
  local found = proto.find(node_of(self, ids, "getRecomputeOutputInBackwardPass"),
    NAMES.recomputeOutput)
  return found ~= nil and found.i == M.RecomputeType.Recompute.value
end

--- The same tensors, kept between forward and backward.
---@param ids string[]
---@return string[] ids
function methods:checkpointOutput(ids)
  local out = {}
  for i, id in ipairs(names_of(ids, "checkpointOutput")) do
    out[i] = self.aiOnnx:identity({ id }, "Checkpoint")
    methods.recomputeOutput(self, out[i], M.RecomputeType.Checkpoint)
  end
  return out
end

--- Names of tensors and nodes that are added begin with it.
---@param name string
---@param fn? function that runs in the scope
function methods:nameScope(name, fn)
  check.method(self, Builder, "nameScope")
  local scopes = self._scopes
  table.insert(scopes, check.string(name, "nameScope: name"))
  return scoped(function()
    table.remove(scopes)
  end, fn)
end

--- The open scopes' names with `name` behind them.
---@param name? string
---@return string
function methods:getNameScope(name)
  local parts = { table.unpack(self._scopes) }
  return table.concat(parts, "/") .. (#parts > 0 and "/" or "") .. (name or "")
end

function methods:schedulePriority(value, fn)
  return open(self, "schedulePriority", NAMES.schedulePriority,
    check.number(value, "schedulePriority: value"), "f", fn)
end

--- Classes of nodes that are compiled apart: keys and values of a scope.
---@param attributes table<string, string>
---@param fn? function
function methods:outlineAttributes(attributes, fn)
  local list = {}
  for key, value in pairs(check.plain_table(attributes, "outlineAttributes: attributes")) do
    list[#list + 1] = ("%s:%s"):format(key, tostring(value))
  end
  table.sort(list)
  return open(self, "outlineAttributes", NAMES.outline, list, "strings", fn)
end

--- Collectives that are added in a scope are within such groups of replicas.
---@param kind popart.CommGroupType|integer
---@param size integer of a group
---@param fn? function that runs in the scope
function methods:commGroup(kind, size, fn)
  local group = variable_settings.CommGroup(kind, size)
  return open(self, "commGroup", NAMES.commGroup, { group.type.value, group.replicaGroupSize },
    "ints", fn)
end

-- PopART's numbers of a location, in its order.
local function serialized(value)
  local l = check.instance(value == nil and TensorLocation() or value,
    "outputTensorLocation: value", TensorLocation, { shown = "popart.TensorLocation" })
  return { l.storage.value, l.loadTileSet.value, l.storageTileSet.value,
    l.replicatedTensorSharding.value, l.shardingDomain.type.value,
    l.shardingDomain.replicaGroupSize }
end

--- Where results lie while nothing computes with them, of nodes or of all that are added in
--- a scope; without effect here, as the report says.
---@param first any ids, or a popart.TensorLocation of a scope
---@param second any the TensorLocation, or a function that runs in the scope
function methods:outputTensorLocation(first, second)
  if type(first) == "string" or type(first) == "table" and not getmetatable(first) then
    set(node_of(self, first, "outputTensorLocation"), NAMES.outputLocation, serialized(second),
      "ints")
    return nil
  end
  return open(self, "outputTensorLocation", NAMES.outputLocation, serialized(first), "ints",
    second)
end

-- ---- settings of single nodes ----------------------------------------------------------

---@param id string
---@param partialsType string "HALF" or "FLOAT"
function methods:setPartialsType(id, partialsType)
  local shown = check.string(partialsType, "setPartialsType: partialsType")
  errors.check(shown:lower() == "half" or shown:lower() == "float", "popart_exception",
    "setPartialsType: partialsType: expected 'HALF' or 'FLOAT', got '%s'", shown)
  set(node_of(self, id, "setPartialsType"), NAMES.partialsType, shown, "s")
end

---@param id string
---@return string "FLOAT" unless set
function methods:getPartialsType(id)
  local found = proto.find(node_of(self, id, "getPartialsType"), NAMES.partialsType)
  return found and found.s or "FLOAT"
end

---@param ids string|string[]
---@param proportion number above 0, at most 1
function methods:setAvailableMemoryProportion(ids, proportion)
  local p = check.number(proportion, "setAvailableMemoryProportion: availableMemoryProportion")
  errors.check(p > 0 and p <= 1, "popart_exception", "availableMemoryProportion must be in (0,1]"
    .. ", got %g", p)
  set(node_of(self, ids, "setAvailableMemoryProportion"), NAMES.availableMemory, p, "f")
end

--- Shifts where a convolution begins on the tiles; without effect here, as the report says.
---@param id string
---@param on boolean|integer? 0 is false; nil: true
function methods:setEnableConvDithering(id, on)
  local value = on == nil or on == 1 or on ~= 0
    and check.bool(on, "setEnableConvDithering: enableConvDithering")
  set(node_of(self, id, "setEnableConvDithering"), NAMES.dithering, value and 1 or 0, "i")
end

function methods:excludePatterns(id, patternNames)
  set(node_of(self, id, "excludePatterns"), NAMES.excludePatterns,
    check.strings(patternNames, "excludePatterns: patternNames"), "strings")
end

function methods:setInplacePreferences(id, prefs)
  local node = node_of(self, id, "setInplacePreferences")
  local names, priorities = {}, {}
  for name in pairs(prefs) do
    names[#names + 1] = name
  end
  table.sort(names)
  for i, name in ipairs(names) do
    priorities[i] = check.number(prefs[name], "setInplacePreferences: prefs") + 0.0
  end
  set(node, NAMES.inplaceNames, names, "strings")
  set(node, NAMES.inplacePriorities, priorities, "floats")
end

local MODES = { none = true, input_channels = true, reducing_dim = true, output_channels = true }

--- A product of matrices in parts, one after another.
---@param ids string|string[]
---@param mode "none"|"input_channels"|"reducing_dim"|"output_channels"
---@param factor? integer
---@param keep_precision? boolean
function methods:setSerializeMatMul(ids, mode, factor, keep_precision)
  errors.check(MODES[mode], "popart_exception", "Unsupported mat mul serialization mode '%s'. "
    .. "Supported modes are 'input_channels', 'reducing_dim', 'output_channels' and 'none'",
    tostring(mode))
  for _, id in ipairs(names_of(ids, "setSerializeMatMul")) do
    local node = node_of(self, id, "setSerializeMatMul")
    errors.check(node.op_type == "MatMul", "popart_exception",
      "Builder::setSerializeMatMul should only be called on MatMul, '%s' is of %s", id,
      node.op_type)
    if mode ~= "none" then
      set(node, NAMES.serializeMode, mode, "s")
      set(node, NAMES.serializeFactor, check.int(factor or 0, "setSerializeMatMul: factor",
        { min = 0 }), "i")
      set(node, NAMES.keepPrecision, keep_precision and 1 or 0, "i")
    end
  end
end

-- ---- any attribute of a node -------------------------------------------------------------

--- Adds an attribute to the node that gives these tensors.
--- error: popart_exception for no such node, or one that has it
---@param name string
---@param value any
---@param ids string|string[]
function methods:addNodeAttribute(name, value, ids)
  add(node_of(self, ids, "addNodeAttribute"), name, value)
end

---@param name string
---@param ids string|string[]
---@return boolean
function methods:nodeHasAttribute(name, ids)
  return proto.find(node_of(self, ids, "nodeHasAttribute"), name) ~= nil
end

local function reader(method, field, what)
  methods[method] = function(self, name, ids)
    local found = proto.find(node_of(self, ids, method), name)
    errors.check(found, "popart_exception", "Node does not have an attribute %s.", tostring(name))
    local value, kind = proto.value(found)
    errors.check(kind == field, "popart_exception", "Attribute %s is not %s.", name, what)
    return value
  end
end
reader("getInt64NodeAttribute", "i", "an integer")
reader("getInt64VectorNodeAttribute", "ints", "an integer vector")
reader("getFloatNodeAttribute", "f", "a float")
reader("getFloatVectorNodeAttribute", "floats", "a float vector")
reader("getStringNodeAttribute", "s", "a string")
reader("getStringVectorNodeAttribute", "strings", "a string vector")

function methods:removeNodeAttribute(name, ids)
  local node = node_of(self, ids, "removeNodeAttribute")
  local _, at = proto.find(node, name)
  errors.check(at, "popart_exception", "Cannot remove attribute %s as it does not exist.",
    tostring(name))
  table.remove(node.attribute, at)
end

---@param ids string|string[]
---@return string[]
function methods:getAllNodeAttributeNames(ids)
  local out = {}
  for i, a in ipairs(node_of(self, ids, "getAllNodeAttributeNames").attribute) do
    out[i] = a.name
  end
  return out
end

return M
