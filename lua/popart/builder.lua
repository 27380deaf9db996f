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
local builder_model = require("popart.builder.model")
local builder_tensors = require("popart.builder.tensors")
local check = require("lupine.base.check")
local closed = require("lupine.base.closed")
local errors = require("popart.errors")
local graph = require("lupine.onnx.graph")
local logging = require("popart.logging")
local node_attributes = require("popart.node_attributes")
local operators = require("lupine.onnx.operators")
local opsets = require("popart.opsets")
local own = require("popart.builder.own")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")
local traced = require("popart.traced")

local Builder = own.Builder

-- ---- reading a model -----------------------------------------------------------------

local function adopt(self, model)
  local g = model.graph
  for domain, version in pairs(proto.opsets(model.opset_import)) do
    self._versions[domain] = version
  end
  local metadata = node_attributes.metadata(model.metadata_props or {})
  self._replicas = builder_model.replicas(metadata)
  for _, t in ipairs(g.initializer) do
    self._names:add(t.name, "initializer")
    local all = tensors.read(t, self._folder)
    self._values[t.name] = all
    own.add_initializer(self, t.name, all, node_attributes.of_one(t.name,
      node_attributes.settings_of(metadata, t.name), all, self._replicas))
  end
  for _, info in ipairs(g.input) do
    if not self._initializers[info.name] then
      self._names:add(info.name, "input")
      local dtype, shape = proto.type_of(info)
      self._scope:set(info.name, dtype and shape and own.shape_of(dtype, shape) or false, false)
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
  self._parent, self._versions = parent, parent and parent._versions or {}
  self._within = {} -- ids of the graphs within
  self._initializers, self._attributes, self._scopes, self._next = {}, {}, {}, {}
  self._values = {} -- of initializers, of all groups of replicas
  self._saved = {} -- files of those that were saved externally
  self._node_of = {} -- by the names of its outputs
  self._names = graph.Names(parent and parent._names)
  self._scope = graph.Scope(parent and parent._scope, { training = true, infers = true,
    joins = true })
  self._model = own.empty_model()
  if given ~= nil then
    traced.given("Builder: modelProtoOrFilename", given)
    errors.guard("popart_exception", function()
      self._model, self._folder = traced.read(given)
      traced.with_files(adopt, self, self._model)
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
  local method = Builder[name]
  if method ~= nil or type(name) ~= "string" or name:find("^_") then
    return method
  end
  local domain, version = domain_of(name)
  if not domain then
    closed.unknown(self, name, { "aiOnnx", "aiGraphcore" })
  end
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
    node.output[i] = own.next_id(self, name ~= "" and name or op, i - 1)
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

-- ---- graphs within, and nodes by name ---------------------------------------------------

--- A builder of a graph within this one, for call, logical_if, loop and scan. It sees
--- the tensors of this one.
---@return popart.Builder
function Builder:createSubgraphBuilder()
  check.method(self, Builder, "createSubgraphBuilder")
  return Builder({ _parent = self })
end

-- The graph as an attribute of a node.
function Builder:_graph()
  return self._model.graph
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

for _, part in ipairs({ builder_model, builder_tensors, node_attributes }) do
  for name, method in pairs(part.methods) do
    Builder[name] = method
  end
end

return Builder
