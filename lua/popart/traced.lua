--- The program of a session's model: its graph runs once on stand-ins for inputs and
--- variables, each node in the place that its attributes say.
local annotations = require("popart.annotations")
local base = require("lupine.base.errors")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("popart.errors")
local graph = require("lupine.onnx.graph")
local node_attributes = require("popart.node_attributes")
local prefixes = require("popart.prefixes")
local proto = require("lupine.onnx.proto")
local tables = require("lupine.base.tables")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local M = {}

-- ---- the model ---------------------------------------------------------------------------

--- What a session is made of: the ModelProto, its graph, its tensors.
---@class popart.Model
---@field proto table ModelProto
---@field folder string?
---@field graph lupine.onnx.Graph
---@field inputs {id: string, dtype: torch.dtype, shape: integer[]}[]
---@field variables table<string, torch.Tensor> initializers that are weights, by name
---@field order string[] their names
---@field constants table<string, torch.Tensor> the others
local Model = class.new("Model")
M.Model = Model

--- An argument that must be a model.
--- error: TypeError
---@param where string the argument, in messages
---@param value any
---@return string|table
function M.given(where, value)
  local message = type(value) == "table" and not getmetatable(value) and value.graph ~= nil
  errors.check(message or type(value) == "string", "TypeError", "%s: expected a file's path or the "
    .. "bytes of a ModelProto, got %s", where, check.describe(value))
  return value
end

-- The beginning of bytes, as text.
local function shown(bytes)
  return (bytes:sub(1, 40):gsub("[^\32-\126]", function(c)
    return ("\\x%02x"):format(c:byte())
  end))
end

--- f(...), where a file of tensors' data that cannot be read makes the model one that cannot.
--- error: popart_exception
---@param f function
---@param ... any
---@return any ... what it returns
function M.with_files(f, ...)
  local results = table.pack(pcall(f, ...))
  local e = results[2]
  if not results[1] then
    errors.check(not base.OSError:is(e), "popart_exception", "Failed to load a ModelProto: %s",
      tostring(e.message))
    error(e, 0)
  end
  return table.unpack(results, 2, results.n)
end

--- A model, and the folder of its file.
--- error: popart_exception for what is no model
---@param given string|table a path, bytes, or a ModelProto
---@return table ModelProto
---@return string? folder
function M.read(given)
  if type(given) == "table" then
    return given, nil
  end
  errors.check(given ~= "", "popart_exception", "Failed to load a ModelProto from the string "
    .. "\"\": it is empty. Check that it is either an existing file or is a valid onnx ModelProto "
    .. "string.")
  local ok, model, folder = pcall(proto.open, given)
  if ok then
    return model, folder
  elseif proto.is_path(given) then
    errors.raise("popart_exception", "Failed to load a ModelProto from the file %s: %s. Check "
      .. "that it is a valid onnx model.", given, model.message)
  end
  return errors.raise("popart_exception", "Failed to load a ModelProto from the string %s: %s. "
    .. "Check that it is either an existing file or is a valid onnx ModelProto string.",
    ('"%s"'):format(shown(given)), model.message)
end

--- The initializers of a model, a file's or its bytes'.
--- error: popart_exception for what is no model
---@param given string|table
---@return table<string, torch.Tensor>
function M.initializers(given)
  local model, folder = M.read(given)
  local out = {}
  for _, t in ipairs(model.graph.initializer) do
    out[t.name or ""] = M.with_files(tensors.read, t, folder)
  end
  return out
end

local function is_size(size)
  return math.type(size) == "integer" and size >= 0
end

-- What is said of an input whose shape has sizes that are not known.
local function unknown_size(id, shape)
  local sizes, first = {}, nil
  for i, size in ipairs(shape) do
    sizes[i] = tostring(size or "?")
    first = first or not is_size(size) and sizes[i] or nil
  end
  return ("Input tensor '%s' must be specified in InputShapeInfo, as it has shape [%s], which uses "
    .. "an unknown value '%s'."):format(id, table.concat(sizes, ", "), first)
end

-- The type of an input, from the model or else from what the user has said.
local function input_type(info, id, shapes)
  local dtype, shape = proto.type_of(info)
  local whole = dtype ~= nil and shape ~= nil
  for _, size in ipairs(shape or {}) do
    whole = whole and is_size(size)
  end
  if whole then
    return dtype, shape
  end
  errors.check(shapes and shapes:has(id), "popart_exception", "%s",
    dtype and shape and unknown_size(id, shape) or ("Could not find tensor %s in InputShapeInfo, "
    .. "but it is an input of the model whose type or shape the model does not say"):format(id))
  local given = shapes:get(id)
  return given:dataType(), given:shape()
end

local RESERVED = {}
for _, prefix in pairs(prefixes) do
  RESERVED[prefix()] = true
end
RESERVED = tables.keys(RESERVED)

-- Inputs and outputs do not have the names of what training makes of others.
local function check_names(ids)
  for _, id in ipairs(ids) do
    for _, prefix in ipairs(RESERVED) do
      errors.check(not id:find(prefix, 1, true), "popart_exception", "Provided tensor %s has an "
        .. "invalid name: clash with reserved prefix %s", id, prefix)
    end
  end
end

---@param given string|table a file, the bytes of a ModelProto, or its table
---@param shapes popart.InputShapeInfo?
function Model:init(given, shapes)
  self.proto, self.folder = M.read(given)
  self.graph = M.with_files(graph.plan, self.proto, self.folder)
  check_names(self.graph.inputs)
  check_names(self.graph.outputs)
  self.metadata = node_attributes.metadata(self.proto.metadata_props)
  self.inputs, self.variables, self.order, self.constants = {}, {}, {}, {}
  for i, id in ipairs(self.graph.inputs) do
    local dtype, shape = input_type(self.graph.infos[id], id, shapes)
    self.inputs[i] = { id = id, dtype = dtype, shape = shape }
  end
  self.role = self.graph:roles()
  for _, name in ipairs(self.graph.order) do
    local constant = self.role[name] == "constant"
    local of = constant and self.constants or self.variables
    of[name] = self.graph.initializers[name]
    self.order[#self.order + 1] = not constant and name or nil
  end
end

--- The types of all tensors, from their shapes alone; those of the nodes' own graphs are
--- not among them.
---@param training boolean
---@param replicas integer
---@return table<string, {dtype: torch.dtype, shape: torch.Size}>
function Model:types(training, replicas)
  local scope = graph.Scope(nil, { training = training, joins = true, replicas = replicas })
  local function shaped(name, dtype, shape)
    scope:set(name, torch.empty({ table.unpack(shape) }, { dtype = dtype, device = "meta" }), false)
  end
  for _, input in ipairs(self.inputs) do
    shaped(input.id, input.dtype, input.shape)
  end
  for name, t in pairs(self.constants) do
    scope:set(name, t, true)
  end
  for name, t in pairs(self.variables) do
    shaped(name, t.dtype, t.shape)
  end
  torch.no_grad(function()
    self.graph:run(scope)
  end)
  return (scope:types())
end

-- ---- tracing -----------------------------------------------------------------------------

-- Outputs of a normalisation in training are its statistics from now on.
local function updates(node, scope)
  local last = node.op_type == "BatchNormalization" and #node.output > 1
  if last then
    for k = 2, 3 do
      local statistic, new = scope:find(node.input[k + 2]), scope:find(node.output[k] or "")
      if statistic and new then
        statistic:copy_(new)
      end
    end
  end
end

-- Inputs and variables of the program; what the graph sees of them.
local function declare(trace, model, options)
  local stand_ins, found = {}, {}
  for i, input in ipairs(model.inputs) do
    local shape = #input.shape == 0 and { 1 } or input.shape
    stand_ins[i] = trace:declare("input", input.id, nil, shape, input.dtype)
  end
  for _, name in ipairs(model.order) do
    local t, buffer = model.variables[name], model.role[name] == "buffer"
    local group = not buffer and options.groups[name] or nil
    t:requires_grad_(options.loss ~= nil and not buffer)
    local stand_in = trace:declare(buffer and "buffer" or "parameter", name, t, group)
    found[name] = group and stand_in or t
  end
  return stand_ins, found
end

-- Which value has which name. One that has two, of which an anchor asks for one, gets a node
-- of its own for the second: a gradient is that of one name, and what follows from a weight
-- is not what the update makes of that.
local Named = class.new("Named")

function Named:init(trace, options)
  self.trace, self.ids, self.anchored = trace, {}, tables.set(options.anchors)
  self.overlaps = options.overlaps
end

---@param value torch.Tensor
---@param id string
---@return torch.Tensor
function Named:add(value, id)
  local first = self.ids[self.trace:value(value)]
  if first and (self.anchored[first] or self.anchored[id]) then
    value = core.forms.internal.nop(value)
  end
  self.ids[self.trace:value(value)] = id
  return value
end

-- A stream that overlaps with computing is marked so.
local function overlapping(way, value, mode)
  return mode and core.forms.internal["set_overlap_for_" .. way](value, mode) or value
end

-- What a node gives gets its marks, and outside of others' graphs its name.
local function marked(trace, node, scope, keeps, named)
  for _, id in ipairs(node.output) do
    local value = id ~= "" and scope:find(id)
    if value and not scope:is_known(id) then
      value = annotations.mark(node, value, keeps)
      if named then
        value = overlapping("output", value, named.overlaps.output[id])
        value = named:add(value, id)
        trace:name(value, id)
      end
      scope:set(id, value, false)
    end
  end
end

-- Tells the trace where each node is; one inside of another's graph is where that is, and
-- kept as it is unless it says otherwise.
local function observer(trace, where, marks, named)
  local open = {} -- the node that runs, behind those whose graphs it is in
  return {
    before = function(node)
      local at, around, keeps = where.at[node] or {}, open[#open], marks.keep[node]
      if keeps == nil then
        keeps = around ~= nil and around.keeps
      end
      open[#open + 1] = { ipu = at.ipu, stage = at.stage or at.ipu, phase = at.phase,
        scope = node.name or "", multi_conv = annotations.settings(marks, node), keeps = keeps }
      trace:origin(open[#open])
    end,
    after = function(node, scope)
      local this = table.remove(open)
      updates(node, scope)
      marked(trace, node, scope, this.keeps, #open == 0 and named or nil)
      trace:origin(open[#open] or {})
    end,
  }
end

-- The values that the graph runs on.
local function scope_of(trace, model, options, found, named)
  trace:origin({ block = "", ipu = 0, stage = 0, phase = 0 })
  local scope = graph.Scope(nil, { training = options.loss ~= nil, joins = true,
    replicas = options.replicas,
    observe = observer(trace, options.where, options.marks, named) })
  for name, t in pairs(model.constants) do
    scope:set(name, t, true)
  end
  for name, t in pairs(found) do
    scope:set(name, t, false)
  end
  return scope
end

-- The graph on the stand-ins. Anchors that follow from constants are no values of the
-- program by themselves.
local function run(trace, model, scope, named, ...)
  for i, input in ipairs(model.inputs) do
    local x = overlapping("input", (select(i, ...)), named.overlaps.input[input.id])
    x = #input.shape == 0 and x:reshape({}) or x
    scope:set(input.id, named:add(x, input.id), false)
  end
  for _, name in ipairs(model.order) do
    named:add(scope:find(name), name)
  end
  model.graph:run(scope)
  trace:origin({ block = "", ipu = 0, stage = 0, phase = 0 })
  for _, id in ipairs(tables.keys(named.anchored)) do
    if scope:find(id) and scope:is_known(id) then
      trace:name(scope:find(id):clone(), id)
    end
  end
end

local function loss_of(trace, scope, name)
  local loss = scope:find(name)
  errors.check(loss, "popart_exception", "Could not find the loss tensor '%s' in the graph", name)
  errors.check(loss:numel() == 1, "popart_exception", "Loss tensor, \"%s\", must be a scalar "
    .. "tensor, its shape is %s", name, tostring(loss.shape))
  return trace:value(loss)
end

--- Traces the model.
--- error: popart_exception for what cannot be compiled, or a loss that is none
---@param model popart.Model
---@param options {loss: string?, anchors: string[], groups: table<string, table>,
---  where: table, marks: table, replicas: integer, overlaps: table} anchors: the names that
---  these are of; overlaps: popart.overlap.marks
---@return table traced step, loss (a value), scope, types and names of its values
function M.trace(model, options)
  local trace = core.trace()
  trace:tolerate()
  trace:narrow()
  local stand_ins, found = declare(trace, model, options)
  local named = Named(trace, options)
  local scope = scope_of(trace, model, options, found, named)
  local _ <close> = torch.set_grad_enabled(options.loss ~= nil)
  trace:run(false, function(...)
    run(trace, model, scope, named, ...)
  end, table.unpack(stand_ins))
  local refused = trace:refused()
  errors.check(refused == "", "popart_exception", "the model uses operators that cannot be "
    .. "compiled:\n%s", refused)
  local out = { scope = scope, loss = options.loss and loss_of(trace, scope, options.loss) }
  out.types, out.names = scope:types()
  out.step = trace:step({})
  return out
end

return M
