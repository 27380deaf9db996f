--- Runs the graph of an ONNX model on values: tensors of the host, of the device
--- "meta" (which infers shapes), or of a trace (which makes a program).
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local functions = require("lupine.onnx.functions")
local operators = require("lupine.onnx.operators")
local proto = require("lupine.onnx.proto")
local schema = require("lupine.onnx.schema")
local tensors = require("lupine.onnx.tensors")
local uses = require("lupine.onnx.uses")

local M = {}

-- ---- nodes -------------------------------------------------------------------------

--- A node that runs: what an operator's function sees of it.
---@class lupine.onnx.Node
---@field name string of the node, for messages
---@field op string
---@field attr table<string, any> attributes by name, with the operator's defaults
---@field version integer of the operator
---@field outputs string[] names; "" for one that is not wanted
---@field training boolean whether the model is in training mode
---@field inputs table<integer, torch.Tensor>
local Node = class.new("Node")

function Node:init(plan, scope)
  self.plan, self.scope = plan, scope
  self.name, self.op, self.attr = plan.name, plan.op, plan.attr
  self.version, self.outputs, self.training = plan.version, plan.outputs, scope.training
end

--- Whether an output is wanted.
---@param i integer
---@return boolean
function Node:wants(i)
  return (self.outputs[i] or "") ~= ""
end

--- Raises an error of this node.
---@param fmt string
---@param ... any
function Node:fail(fmt, ...)
  errors.raise("ValueError", fmt, ...)
end

---@param ok any
---@param fmt string
---@param ... any
---@return any ok
function Node:check(ok, fmt, ...)
  return ok or self:fail(fmt, ...)
end

--- An axis counted from 0.
---@param axis integer negative: from the end
---@param rank integer
---@return integer
function Node:axis(axis, rank)
  self:check(axis >= -rank and axis < rank, "axis %d is out of range for %d dimensions. Allowed: "
    .. "%d to %d", axis, rank, -rank, rank - 1)
  return axis < 0 and axis + rank or axis
end

--- Whether the values of an input are known now.
---@param i integer
---@return boolean
function Node:knows(i)
  local t = self.inputs[i]
  return self.scope:is_known(self.plan.inputs[i]) or not core.is_tracing() and not t.is_meta
end

--- An input whose values are known now; nil if it is left out.
--- error: ValueError for one that only a run of the program will know
---@param i integer
---@return torch.Tensor?
function Node:value(i)
  local t = self.inputs[i]
  if not t then
    return nil
  end
  local given = self.scope:find_given(self.plan.inputs[i])
  if given then
    return given
  end
  errors.check(self:knows(i), "ValueError",
    "input '%s' ('%s') must be a constant: the shape of a result depends on it",
    self.plan.operator.schema.inputs[i].name, self.plan.inputs[i])
  return t
end

--- The same as a list of integers.
---@param i integer
---@return integer[]?
function Node:ints(i)
  local t = self:value(i)
  if not t then
    return nil
  end
  return core.untraced(function()
    local list = t:reshape({ -1 }):to(core.dtypes.int64):tolist()
    return setmetatable(list, nil)
  end)
end

--- The same as one number.
---@param i integer
---@return number?
function Node:number(i)
  local t = self:value(i)
  return t and core.untraced(function()
    return t:item()
  end)
end

--- A function of a graph attribute, with this node's names around it: of the values
--- of its inputs, to its outputs.
---@param name string of the attribute
---@return fun(...: torch.Tensor): ...
function Node:body(name)
  local graph = self.plan.bodies[name]
  return function(...)
    return graph:call(self.scope, ...)
  end
end

--- The inputs and outputs of a graph attribute.
---@param name string
---@return table GraphProto
function Node:graph(name)
  return self.attr[name]
end

-- ---- a scope of values -----------------------------------------------------------------

-- Names -> values of one run of a graph; inside another it sees the names around.
local Scope = class.new("Scope")

function Scope:init(around, options)
  self.around, self.values, self.known = around, {}, {}
  self.given = {} -- values of initializers, where their shapes stand for them
  self.training = options.training
  self.observe = options.observe
end

function Scope:find(name)
  local value = self.values[name]
  if value == nil and self.around then
    return self.around:find(name)
  end
  return value
end

function Scope:find_given(name)
  return self.given[name] or self.around and self.around:find_given(name)
end

function Scope:is_known(name)
  if self.values[name] == nil and self.around then
    return self.around:is_known(name)
  end
  return self.known[name] == true
end

--- The types of all values by name, and the names, sorted.
---@return table<string, {dtype: torch.dtype, shape: torch.Size}>
---@return string[]
function Scope:types()
  local types, names = {}, {}
  for name, t in pairs(self.values) do
    if t then
      types[name] = { dtype = t.dtype, shape = t.shape }
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return types, names
end

function Scope:set(name, value, known)
  self.values[name], self.known[name] = value, known
end

-- ---- a graph that can run ----------------------------------------------------------

---@class lupine.onnx.Graph
---@field inputs string[] without initializers
---@field outputs string[]
---@field initializers table<string, torch.Tensor>
local Graph = class.new("Graph")

local function label(node, i)
  local name = (node.name or "") ~= "" and (" '%s'"):format(node.name) or ""
  return ("node %d%s (%s)"):format(i - 1, name, node.op_type or "?")
end

-- Names that a graph has, and those around it.
local Names = class.new("Names")

function Names:init(around)
  self.around, self.own = around, {}
end

function Names:has(name)
  return self.own[name] or self.around and self.around:has(name) or false
end

function Names:add(name, what)
  errors.check(not self.own[name], "ValueError", "%s: two values have the name '%s'", what, name)
  self.own[name] = true
end

-- Attributes by name, and the kinds of their values; graphs are planned.
local function read_attributes(plan, names, context)
  local given, fields = {}, {}
  for _, attribute in ipairs(plan.node.attribute or {}) do
    local name = attribute.name or ""
    errors.check(not fields[name], "ValueError", "%s: it has two attributes '%s'", plan.name, name)
    given[name], fields[name] = proto.value(attribute, context.folder)
    if fields[name] == "g" then
      plan.bodies[name] = Graph(given[name], context, names)
    end
  end
  return given, fields
end

local function check_counts(plan, s)
  local inputs, outputs = #plan.inputs, #plan.outputs
  errors.check(inputs >= s.least_inputs and inputs <= s.most_inputs, "ValueError",
    "%s: it has %d inputs, %s takes %d%s", plan.name, inputs, s.name, s.least_inputs,
    s.most_inputs == s.least_inputs and "" or s.most_inputs == math.huge and " or more"
    or " to " .. s.most_inputs)
  errors.check(outputs <= s.most_outputs, "ValueError", "%s: it has %d outputs, %s has %d",
    plan.name, outputs, s.name, s.most_outputs)
end

local function plan_operator(plan, names, context)
  local node = plan.node
  local domain = proto.domain(node.domain)
  plan.version = context.opsets[domain]
  plan.operator = plan.version and operators.find(domain, node.op_type or "", plan.version)
  local given, fields = read_attributes(plan, names, context)
  if not plan.operator then
    context.missing[operators.why(domain, node.op_type or "?", plan.version)] = true
    return
  end
  local s = plan.operator.schema
  local ok, attr = pcall(schema.fill, s, given, fields)
  errors.check(ok, "ValueError", "%s: %s", plan.name, not ok and (attr.message or tostring(attr)))
  plan.attr = attr
  check_counts(plan, s)
end

-- What a function computes; calls without attributes share it.
local function function_graph(f, node, context)
  local planned = #(node.attribute or {}) == 0 and context.planned[f]
  if planned then
    return planned
  end
  errors.check(not context.running[f], "ValueError", "the function '%s' calls itself",
    tostring(f.name))
  local count = context.count
  count.copies = count.copies + #(f.node or {})
  errors.check(count.copies <= functions.MOST_COPIES, "ValueError",
    "calls of functions make more than %d nodes", functions.MOST_COPIES)
  context.running[f] = true
  planned = Graph(functions.graph(f, node), setmetatable({
    opsets = #(f.opset_import or {}) > 0 and proto.opsets(f.opset_import) or nil },
    { __index = context }))
  context.running[f] = nil
  context.planned[f] = #(node.attribute or {}) == 0 and planned or nil
  return planned
end

local function plan_call(plan, f, context)
  local body = function_graph(f, plan.node, context)
  plan.call = body
  check_counts(plan, { name = plan.op, least_inputs = 0, most_inputs = #body.inputs,
    most_outputs = #body.outputs })
end

--- What is found out of a node once: its operator, attributes, bodies.
--- error: ValueError for names, attributes or inputs that do not fit
---@param node table NodeProto
---@param i integer its number, from 1
---@param names table Names that there are; its outputs are added
---@param context table as of Graph:init
---@return table plan
function M.plan_node(node, i, names, context)
  local plan = { name = label(node, i), op = node.op_type, node = node, inputs = node.input,
    outputs = node.output, attr = {}, bodies = {} }
  for _, name in ipairs(node.input) do
    errors.check(name == "" or names:has(name), "ValueError", "%s: its input '%s' is made by no "
      .. "node before it and is no input or initializer of the graph", plan.name, name)
  end
  local f = functions.find(context.functions, node)
  if f then
    plan_call(plan, f, context)
  else
    plan_operator(plan, names, context)
  end
  for _, name in ipairs(node.output) do
    if name ~= "" then
      names:add(name, plan.name)
    end
  end
  return plan
end

-- How many nodes a run of these has, if each loop has one round.
local function size_of(nodes)
  local n = 0
  for _, plan in ipairs(nodes) do
    n = n + (plan.call and plan.call.size or 1)
    for _, body in pairs(plan.bodies) do
      n = n + body.size
    end
    errors.check(n <= functions.MOST_NODES, "ValueError",
      "calls of functions make more than %d nodes", functions.MOST_NODES)
  end
  return n
end

local DEEPEST = 32

--- context: opsets (proto.opsets), folder (of external data, or nil), missing (a set
--- that gets what is not supported), functions (functions.index), planned (those that
--- are, by calls without attributes), running (those that are being planned), count
--- ({copies} of nodes).
---@param graph table GraphProto
---@param context table
---@param around? table Names of the graph around
function Graph:init(graph, context, around)
  local names = Names(around)
  self.name, self.inputs, self.outputs, self.initializers = graph.name or "", {}, {}, {}
  self.order, self.infos, self.nodes = {}, {}, {}
  context = setmetatable({ depth = (context.depth or 0) + 1 }, { __index = context })
  errors.check(context.depth <= DEEPEST, "ValueError", "graphs are nested deeper than %d", DEEPEST)
  for _, t in ipairs(graph.initializer or {}) do
    local name = t.name or ""
    names:add(name, "initializer")
    self.initializers[name] = tensors.read(t, context.folder)
    self.order[#self.order + 1] = name
  end
  errors.check(#(graph.sparse_initializer or {}) == 0, "NotImplementedError",
    "sparse initializers are not supported")
  for _, info in ipairs(graph.input or {}) do
    local name = info.name or ""
    if not self.initializers[name] then
      names:add(name, "input")
      self.inputs[#self.inputs + 1] = name
    end
    self.infos[name] = info
  end
  for i, node in ipairs(graph.node or {}) do
    self.nodes[i] = M.plan_node(node, i, names, context)
  end
  for i, info in ipairs(graph.output or {}) do
    errors.check(names:has(info.name), "ValueError",
      "output '%s' of the graph is made by no node", tostring(info.name))
    self.outputs[i] = info.name
  end
  self.size = size_of(self.nodes)
end

--- What the values of an initializer are, by name: "parameter", "buffer" or "constant",
--- which decides shapes; nil for one that nothing reads.
---@return table<string, string>
function Graph:uses()
  return uses.of(self.nodes)
end

local function run_operator(n, plan, args)
  return table.pack(plan.operator.run(n, table.unpack(args, 1, #plan.inputs)))
end

-- Whether a node's results follow from constants, which no trace records.
local function follows(scope, plan)
  if plan.operator.shape_only then
    return true
  end
  if plan.operator.random or plan.operator.effect then
    return false
  end
  for _, name in ipairs(plan.inputs) do
    if name ~= "" and not scope:is_known(name) then
      return false
    end
  end
  return next(plan.bodies) == nil
end

--- Runs one node.
---@param scope table
---@param plan table
---@return table {n, …} results
---@return boolean|boolean[] known
function M.run_node(scope, plan)
  if plan.call then
    return plan.call:called(scope, plan.inputs)
  end
  local args = {}
  for i, name in ipairs(plan.inputs) do
    args[i] = name ~= "" and scope:find(name) or nil
  end
  local n = Node(plan, scope)
  n.inputs = args
  local known = follows(scope, plan)
  local results
  if known and core.is_tracing() then
    results = core.untraced(run_operator, n, plan, args)
  else
    results = run_operator(n, plan, args)
  end
  return results, known
end

local function named(plan, e)
  if errors.Exception:is(e) then
    e.message = plan.name .. ": " .. e.message
  end
  error(e, 0)
end

function Graph:run(scope)
  for _, plan in ipairs(self.nodes) do
    if scope.observe then
      scope.observe.before(plan.node)
    end
    local ok, results, known = pcall(M.run_node, scope, plan)
    if not ok then
      named(plan, results)
    end
    for i, name in ipairs(plan.outputs) do
      if name ~= "" then
        errors.check(results[i] ~= nil, "ValueError", "%s: it gives no output %d ('%s')",
          plan.name, i - 1, name)
        scope:set(name, results[i], known == true or known and known[i])
      end
    end
    if scope.observe then
      scope.observe.after(plan.node, results)
    end
  end
  local out = {}
  for i, name in ipairs(self.outputs) do
    out[i] = scope:find(name)
  end
  return table.unpack(out, 1, #self.outputs)
end

--- Runs a graph inside another: its inputs in order, its outputs back.
---@param around table Scope
---@param ... torch.Tensor
---@return ... torch.Tensor
function Graph:call(around, ...)
  local scope = Scope(around, around)
  for name, t in pairs(self.initializers) do
    scope:set(name, t, true)
  end
  for i, name in ipairs(self.inputs) do
    scope:set(name, (select(i, ...)), false)
  end
  return self:run(scope)
end

--- Runs the graph of a function: it sees nothing of what is around the call.
---@param around table Scope
---@param names string[] of the values that are its inputs
---@return table {n, …} results
---@return boolean[] known
function Graph:called(around, names)
  local scope, known = Scope(nil, around), {}
  for i, name in ipairs(self.inputs) do
    local from = names[i] or ""
    if from ~= "" then
      scope:set(name, around:find(from), around:is_known(from))
    end
  end
  local results = table.pack(self:run(scope))
  for i, name in ipairs(self.outputs) do
    known[i] = scope:is_known(name)
  end
  return results, known
end

--- What the nodes of a model are planned in.
---@param model table ModelProto
---@param folder? string of external data
---@return table context
function M.context(model, folder)
  return { opsets = proto.opsets(model.opset_import), folder = folder, missing = {},
    functions = functions.index(model.functions), planned = {}, running = {},
    count = { copies = 0 } }
end

--- Plans a model's graph.
--- errors: ValueError for a graph that is none, NotImplementedError that lists all
--- operators that are not supported
---@param model table ModelProto
---@param folder? string of external data
---@return lupine.onnx.Graph
function M.plan(model, folder)
  local context = M.context(model, folder)
  local planned = Graph(model.graph, context)
  local missing = {}
  for why in pairs(context.missing) do
    missing[#missing + 1] = why
  end
  table.sort(missing)
  operators.refuse(missing)
  return planned
end

M.Scope, M.Names = Scope, Names

return M
