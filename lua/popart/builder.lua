--- popart.Builder: a model built node by node.
---
---     local builder = popart.Builder()
---     local a = builder:addInputTensor(popart.TensorInfo("FLOAT", { 1 }))
---     local b = builder:addInputTensor(popart.TensorInfo("FLOAT", { 1 }))
---     local o = builder.aiOnnx:add({ a, b })
---     builder:addOutputTensor(o)
---     local model = builder:getModelProto()
---
--- What it holds is the ModelProto. Each node runs when it is added, on tensors that
--- have shapes alone (lupine/onnx/graph.lua), so that a wrong shape is an error of the
--- line that adds it.
---
--- Source: PopART Python API, Builder; PopART, builder_impl.cpp (names of tensors).
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("popart.errors")
local graph = require("lupine.onnx.graph")
local graph_transformer = require("popart.graph_transformer")
local logging = require("popart.logging")
local node_attributes = require("popart.node_attributes")
local operators = require("lupine.onnx.operators")
local opsets = require("popart.opsets")
local proto = require("lupine.onnx.proto")
local tables = require("lupine.base.tables")
local tensor_info = require("popart.tensor_info")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")
local traced = require("popart.traced")

---@class popart.Builder
---@field aiOnnx popart.Opset operators of ONNX, of the version that is used first (10)
---@field aiGraphcore popart.Opset
local Builder = class.new("Builder")

local graphs = 0

local function empty_model()
  graphs = graphs + 1
  return { ir_version = 4, producer_name = "lupine", opset_import = {}, metadata_props = {},
    graph = { name = ("BuilderGraph_%d"):format(graphs - 1), node = {}, initializer = {},
      input = {}, output = {}, value_info = {} } }
end

-- ---- reading a model -----------------------------------------------------------------

-- A tensor of that shape alone.
local function shape_of(dtype, shape)
  return torch.empty({ table.unpack(shape) }, { dtype = dtype, device = "meta" })
end

local function add_initializer(self, name, t)
  self._initializers[name] = t
  local known = not t:is_floating_point()
  self._scope:set(name, known and t or shape_of(t.dtype, t.shape), known)
  self._scope.given[name] = t
end

local function adopt(self, model)
  local g = model.graph
  for domain, version in pairs(proto.opsets(model.opset_import)) do
    self._versions[domain] = version
  end
  for _, t in ipairs(g.initializer) do
    self._names:add(t.name, "initializer")
    self._values[t.name] = tensors.read(t, self._folder)
    add_initializer(self, t.name, self._values[t.name])
  end
  for _, info in ipairs(g.input) do
    if not self._initializers[info.name] then
      self._names:add(info.name, "input")
      local dtype, shape = proto.type_of(info)
      self._scope:set(info.name, dtype and shape and shape_of(dtype, shape) or false, false)
    end
  end
  for _, node in ipairs(g.node) do
    self:_import(node)
  end
end

--- A builder of an empty model, or of one that is there.
---@param ... any modelProtoOrFilename (string?), opsets (table? version by domain)
function Builder:init(...)
  local values = check.arguments("Builder", { "modelProtoOrFilename", "opsets", "_parent" },
    { opsets = true, _parent = true }, ...)
  local given, versions, parent = values[1], values[2], values[3]
  self._parent, self._children, self._versions = parent, {}, parent and parent._versions or {}
  self._initializers, self._attributes, self._scopes, self._next = {}, {}, {}, {}
  self._values = {} -- of initializers, of all groups of replicas
  self._node_of = {} -- by the names of its outputs
  self._names = graph.Names(parent and parent._names)
  self._scope = graph.Scope(parent and parent._scope, { training = true, infers = true,
    joins = true })
  self._model = empty_model()
  if given ~= nil then
    traced.given("Builder: modelProtoOrFilename", given)
    errors.guard("popart_exception", function()
      self._model, self._folder = traced.read(given)
      adopt(self, self._model)
    end)
  end
  for domain, version in pairs(versions or {}) do
    self:_use(domain == "ai.onnx" and "" or domain, version)
  end
end

-- ---- operators ------------------------------------------------------------------------

-- The version of a domain's operators, chosen once.
function Builder:_use(domain, version)
  local shown = domain == "" and "ai.onnx" or domain
  local chosen = self._versions[domain]
  errors.check(not chosen or chosen == version, "popart_exception", "Invalid opset %d used to add "
    .. "an operation. Opset for domain %s already defined as %s", version, shown,
    tostring(chosen))
  if domain == "" then
    errors.check(version >= opsets.OLDEST and version <= opsets.NEWEST, "ValueError",
      "Unsupported or unrecognized ai.onnx version: %d. Allowed: %d to %d", version,
      opsets.OLDEST, opsets.NEWEST)
  elseif domain == "ai.graphcore" then
    errors.check(version == 1, "ValueError",
      "Unsupported or unrecognized ai.graphcore opset version: %d. Allowed: 1", version)
  end
  self._versions[domain] = version
  return version
end

local function domain_of(name)
  if name:find("^aiOnnxOpset%d+$") then
    return "", math.tointeger(name:match("%d+"))
  elseif name == "aiOnnx" then
    return "", nil
  elseif name == "aiGraphcore" or name == "aiGraphcoreOpset1" then
    return "ai.graphcore", 1
  elseif name == "aiOnnxMl" or name == "aiOnnxMlOpset1" then
    return "ai.onnx.ml", 1
  end
  return nil, nil
end

--- For completion, which chooses no version.
function Builder.__members(self)
  local versions = rawget(self, "_versions")
  return { { aiOnnx = opsets.new(self, "", versions[""] or opsets.DEFAULT),
    aiGraphcore = opsets.new(self, "ai.graphcore", 1) } }
end

function Builder.__index(self, name)
  local own = Builder[name]
  if own ~= nil or type(name) ~= "string" or name:find("^_") then
    return own
  end
  local domain, version = domain_of(name)
  errors.check(domain, "AttributeError", "a Builder has no attribute '%s'", name)
  local chosen = rawget(self, "_versions")[domain]
  version = version or chosen or opsets.DEFAULT
  errors.check(not chosen or chosen == version, "RuntimeError", "Invalid opset '%s' selected. "
    .. "Opset for domain %s already defined as %s", name, domain == "" and "ai.onnx" or domain,
    tostring(chosen))
  return opsets.new(self, domain, self:_use(domain, version))
end

-- What nodes are planned in: the versions as they are by now.
local function context_of(self)
  local context = graph.context(self._model, self._folder)
  context.opsets = self._versions
  return context
end

-- Runs a node on the shapes there are; without all of its inputs' nothing is known of
-- its outputs.
local function infer(self, plan)
  local reads = table.move(plan.inputs, 1, #plan.inputs, 1, {})
  for _, body in pairs(plan.bodies) do
    for name in pairs(body.captured) do
      reads[#reads + 1] = name
    end
  end
  for _, name in ipairs(reads) do
    if name ~= "" and self._scope:find(name) == false then
      for _, output in ipairs(plan.outputs) do
        self._scope:set(output, false, false)
      end
      return {}
    end
  end
  local ok, results, known = pcall(torch.no_grad, function()
    return graph.run_node(self._scope, plan)
  end)
  if not ok then
    if type(results) == "table" and results.message then
      results.message = ("%s: %s"):format(plan.name, results.message)
    end
    error(results, 0)
  end
  for i, output in ipairs(plan.outputs) do
    if output ~= "" then
      errors.check(results[i] ~= nil, "popart_exception", "%s: it gives no output %d", plan.name,
        i - 1)
      self._scope:set(output, results[i], known == true or known and known[i] or false)
    end
  end
  return results
end

-- Plans and runs a NodeProto; one that cannot be leaves nothing behind.
function Builder:_import(node)
  local context = context_of(self)
  local ok, results = pcall(function()
    local plan = graph.plan_node(node, #self._model.graph.node + 1, self._names, context)
    local missing = next(context.missing)
    errors.check(not missing, "popart_exception", "no operator %s", missing)
    return infer(self, plan)
  end)
  for _, id in ipairs(node.output) do
    self._node_of[id] = ok and node or nil
    self._names.own[id] = ok and self._names.own[id] or nil
  end
  return ok and results or error(errors.of("popart_exception", results), 0)
end

-- Whether a name is there: in this graph, one around it or one within.
local function taken(self, id, within)
  if within and self._names.own[id] or not within and self._names:has(id) then
    return true
  end
  for _, child in ipairs(self._children) do
    if taken(child, id, true) then
      return true
    end
  end
  return false
end

-- A new id: the scopes' names, the name, ":output", "/number" from the second of a
-- name on.
local function next_id(self, name, output)
  local parts = { table.unpack(self._scopes) }
  parts[#parts + 1] = output and ("%s:%d"):format(name, output) or name
  local base = table.concat(parts, "/")
  local n = self._next[base] or 0
  local id = n == 0 and base or ("%s/%d"):format(base, n)
  while taken(self, id) do
    n = n + 1
    id = ("%s/%d"):format(base, n)
  end
  self._next[base] = n + 1
  return id
end

local function check_inputs(self, op, row, inputs)
  local s = row.schema
  errors.check(#inputs >= s.least_inputs and #inputs <= s.most_inputs, "popart_exception",
    "%s has invalid number of inputs %d. Must be between %d..%s", op, #inputs, s.least_inputs,
    s.most_inputs == math.huge and "inf" or tostring(s.most_inputs))
  for i, id in ipairs(inputs) do
    errors.check(type(id) == "string", "TypeError", "%s: args: element %d: expected a tensor id, "
      .. "got %s", op, i - 1, check.describe(id))
    errors.check(id == "" and i > s.least_inputs or id ~= "" and self._names:has(id),
      "popart_exception", "Unknown tensor '%s' (an input of %s)", id, op)
  end
end

-- Adds a node; the ids of its outputs.
function Builder:_add(domain, version, op, inputs, attributes, outputs, name)
  self:_use(domain, version)
  logging.debug("builder", "Adding %s to builder opset:%d, numInputs:%d numOutputs:%d "
    .. "numAttributes:%d name:%s", (domain == "" and "ai.onnx" or domain) .. "." .. op, version,
    #inputs, outputs, #attributes, name)
  check_inputs(self, op, operators.find(domain, op, version), inputs)
  local node = { op_type = op, domain = domain ~= "" and domain or nil, input = {}, output = {},
    attribute = attributes }
  for i, id in ipairs(inputs) do
    node.input[i] = id
  end
  for i = 1, outputs do
    node.output[i] = next_id(self, name ~= "" and name or op, i - 1)
  end
  if name ~= "" or #self._scopes > 0 then
    local parts = { table.unpack(self._scopes) }
    parts[#parts + 1] = name ~= "" and name or op
    node.name = table.concat(parts, "/")
  end
  node_attributes.apply(self, node)
  local results = self:_import(node)
  table.insert(self._model.graph.node, node)
  for i, id in ipairs(node.output) do
    local t = results[i]
    table.insert(self._model.graph.value_info, proto.info(id, t and t.dtype, t and t.shape))
  end
  return { table.unpack(node.output) }
end

-- ---- tensors ---------------------------------------------------------------------------

local function check_open(self, name, what)
  errors.check(type(name) == "string", "TypeError", "%s: expected a text, got %s", what,
    check.describe(name))
  return self
end

local function metadata(self, key, value)
  table.insert(self._model.metadata_props, { key = key, value = tostring(value) })
end

-- Adds an input of a type that may not be known.
local function add_input(self, id, dtype, shape)
  self._names:add(id, "input")
  table.insert(self._model.graph.input, proto.info(id, dtype, shape))
  self._scope:set(id, dtype and shape_of(dtype, shape) or false, false)
  return id
end

--- An input of the model.
--- errors: TypeError, ValueError
---@param ... any tensorInfo (popart.TensorInfo), or dataType (string) and shape; then
---  settings (popart.InputSettings?) and debugContext (string?, its name: "input")
---@return string id
function Builder:addInputTensor(...)
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
  local id = next_id(self, name ~= "" and name or "input")
  node_attributes.note_input(self._model.metadata_props, id, values[at])
  return add_input(self, id, dtype, shape)
end

--- An input of a sub-graph whose type follows from what it is called with.
--- error: popart_exception for the model's own graph
---@param debugContext? string its name
---@return string id
function Builder:addUntypedInputTensor(debugContext)
  check.method(self, Builder, "addUntypedInputTensor")
  errors.check(self._parent, "popart_exception", "Can not add untyped tensors to the top-level "
    .. "graph. Use addInputTensor(tensorInfo, debugContext) instead.")
  local name = debugContext or ""
  return add_input(self, next_id(self, name ~= "" and name or "input"), nil, nil)
end

--- A tensor of the graph around is an input of this one, by its name there.
--- error: popart_exception for a name that is not there
---@param tensorId string
function Builder:addInputTensorFromParentGraph(tensorId)
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
function Builder:addInitializedInputTensor(...)
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
  local id = next_id(self, name ~= "" and name or "init_input")
  local message = errors.guard("popart_exception", tensors.write, id, t)
  self._names:add(id, "initializer")
  table.insert(self._model.graph.input, proto.info(id, t.dtype, t.shape))
  table.insert(self._model.graph.initializer, message)
  local one = node_attributes.note_variable(self._model.metadata_props, id, settings, t,
    self._replicas)
  self._values[id] = t
  add_initializer(self, id, one)
  return id
end

--- Marks an output of the model. An output need not be anchored, nor an anchor an output.
--- error: popart_exception for a tensor that is not there
---@param outputName string
function Builder:addOutputTensor(outputName)
  check.method(self, Builder, "addOutputTensor")
  check_open(self, outputName, "addOutputTensor: outputName")
  errors.check(self._names:has(outputName), "popart_exception",
    "addOutputTensor: unknown tensor '%s'", outputName)
  local t = self._scope:find(outputName)
  table.insert(self._model.graph.output, proto.info(outputName, t and t.dtype, t and t.shape))
end

--- The outputs of the model, in place of those that were marked before.
---@param ids string[]
function Builder:setGraphOutputs(ids)
  check.method(self, Builder, "setGraphOutputs")
  self._model.graph.output = {}
  for _, id in ipairs(check.strings(ids, "setGraphOutputs: ids")) do
    self:addOutputTensor(id)
  end
end

--- A builder of a graph within this one, for call, logical_if, loop and scan. It sees
--- the tensors of this one.
---@return popart.Builder
function Builder:createSubgraphBuilder()
  check.method(self, Builder, "createSubgraphBuilder")
  local child = Builder({ _parent = self })
  self._children[#self._children + 1] = child
  return child
end

-- The graph as an attribute of a node.
function Builder:_graph()
  return self._model.graph
end

--- The replicas that the model is for: with variables in groups their tensors have a
--- dimension of groups in front.
---@param replicationFactor integer
function Builder:embedReplicationFactor(replicationFactor)
  self._replicas = check.int(replicationFactor, "embedReplicationFactor: replicationFactor",
    { min = 1 })
  metadata(self, "__replicationFactor", replicationFactor)
end

--- The model's name; "" makes one up.
---@param name string
function Builder:setGraphName(name)
  check_open(self, name, "setGraphName: name")
  self._model.graph.name = name ~= "" and name or empty_model().graph.name
end

--- The same tensor in another shape, which is a constant of the model.
---@param aiOnnx popart.Opset
---@param args string[] one id
---@param shape integer[]
---@param debugContext? string
---@return string id
function Builder:reshape_const(aiOnnx, args, shape, debugContext)
  check.method(self, Builder, "reshape_const")
  local name = debugContext or ""
  local constant = aiOnnx:constant(torch.tensor(shape, { dtype = torch.int64 }), name .. "_const")
  return aiOnnx:reshape({ args[1], constant }, { debugContext = name })
end

--- Adds an operator of a domain by its name: one of a library that
--- poptorch.custom_op's loading has made known, or any other.
---@param ... any opName, opVersion, domain, inputs, attributes (table), numOutputs (1), name
---@return string[] ids
function Builder:customOp(...)
  check.method(self, Builder, "customOp")
  local v = check.arguments("customOp", { "opName", "opVersion", "domain", "inputs", "attributes",
    "numOutputs", "name" }, { inputs = "list", attributes = true }, ...)
  local list = {}
  for name, value in pairs(v[5] or {}) do
    list[#list + 1] = proto.attribute(name, value)
  end
  table.sort(list, function(a, b)
    return a.name < b.name
  end)
  local domain = v[3] == "ai.onnx" and "" or v[3]
  errors.check(operators.find(domain, v[1], v[2]), "popart_exception",
    "customOp: no library has an operator %s of version %s in the domain '%s'", tostring(v[1]),
    tostring(v[2]), tostring(domain))
  return self:_add(domain, v[2], v[1], v[4] or {}, list, v[6] or 1, v[7] or "")
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

-- The model with all of its data: bytes have no folder in which others could be.
local function whole(self)
  local list = {}
  for i, t in ipairs(self._model.graph.initializer) do
    list[i] = t.data_location == 1 and tensors.write(t.name, self._values[t.name]) or t
  end
  local graph_proto = tables.with(self._model.graph, { initializer = list })
  return tables.with(self._model, { graph = graph_proto })
end

--- The model as the bytes of a ModelProto, or as text.
---@param humanReadable? boolean
---@return string
function Builder:getModelProto(humanReadable)
  check.method(self, Builder, "getModelProto")
  import_opsets(self)
  return humanReadable and proto.text(self._model)
    or errors.guard("popart_exception", core.onnx_encode, whole(self), "ModelProto")
end

--- Writes the model to a file. Data of saveInitializersExternally stays in its own.
--- error: OSError
---@param filename string
function Builder:saveModelProto(filename)
  check.method(self, Builder, "saveModelProto")
  check.string(filename, "saveModelProto: filename")
  import_opsets(self)
  errors.guard("popart_exception", proto.write, self._model, filename)
end

--- Moves initializers' data to a file of its own, beside which saveModelProto has to write
--- the model.
--- error: popart_exception for a name that is no initializer's, or data that is in a file
---@param ... any ids (string[]), filename (string)
function Builder:saveInitializersExternally(...)
  graph_transformer.save_externally(self._model.graph, self._folder, "saveInitializersExternally",
    ...)
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
function Builder:getInputTensorIds()
  return ids_of(self._model.graph.input)
end

--- The outputs.
---@return string[] ids
function Builder:getOutputTensorIds()
  return ids_of(self._model.graph.output)
end

--- What nodes give.
---@return string[] ids
function Builder:getValueTensorIds()
  return ids_of(self._model.graph.value_info)
end

--- The initialized tensors.
---@return string[] ids
function Builder:getTrainableTensorIds()
  return ids_of(self._model.graph.initializer)
end

--- Whether a tensor is an initialized one.
---@param id string
---@return boolean
function Builder:isInitializer(id)
  return self._initializers[id] ~= nil
end

-- A tensor that there is something known of.
local function known(self, id, where)
  errors.check(self._names:has(id), "popart_exception", "%s is not an known tensor (%s)",
    tostring(id), where)
  local t = self._scope:find(id)
  errors.check(t, "popart_exception", "%s: the type of '%s' is not known before the graph is "
    .. "called", where, tostring(id))
  return t
end

--- The shape that a tensor will have.
--- error: popart_exception for one that is not there
---@param id string
---@return integer[]
function Builder:getTensorShape(id)
  check.method(self, Builder, "getTensorShape")
  return { table.unpack(known(self, id, "getTensorShape").shape) }
end

--- The name of a tensor's type, in lower case: "float32", "int64", …
--- error: popart_exception for one that is not there
---@param id string
---@return string
function Builder:getTensorDtypeString(id)
  return (tostring(known(self, id, "getTensorDtypeString").dtype):gsub("^torch%.", ""))
end

for name, fn in pairs(node_attributes.methods) do
  Builder[name] = fn
end

return Builder
