--- Runs the graph of an ONNX model on values: tensors of the host, of the device
--- "meta" (which infers shapes), or of a trace (which makes a program).
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local functions = require("lupine.onnx.functions")
local nodes = require("lupine.onnx.node")
local operators = require("lupine.onnx.operators")
local proto = require("lupine.onnx.proto")
local schema = require("lupine.onnx.schema")
local tables = require("lupine.base.tables")
local tensors = require("lupine.onnx.tensors")
local uses = require("lupine.onnx.uses")

local M = {}

local Node, Scope = nodes.Node, nodes.Scope

-- ---- a graph that can run ----------------------------------------------------------

---@class lupine.onnx.Graph
---@field inputs string[] without initializers
---@field outputs string[]
---@field initializers table<string, torch.Tensor>
---@field captured table<string, boolean> names around it that it reads
---@field fixed boolean whether its outputs follow from what it reads
local Graph = class.new("Graph")

local function label(node, i)
  local name = (node.name or "") ~= "" and (" '%s'"):format(node.name) or ""
  return ("node %d%s (%s)"):format(i - 1, name, node.op_type or "?")
end

-- Names that a graph has, and those around it.
local Names = class.new("Names")

function Names:init(around)
  self.around, self.own, self.captured = around, {}, {}
end

-- Notes which names of the graphs around are read.
function Names:has(name)
  if self.own[name] then
    return true
  end
  local there = self.around and self.around:has(name) or false
  self.captured[name] = there or nil
  return there
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
      plan.bodies[name] = Graph(given[name], context, names, plan.op == "If")
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

-- What an operator needs is there, as `given` tells of each of the node's inputs.
local function check_needed(plan, where, given)
  local inputs = plan.operator.schema.inputs
  for i = 1, #plan.inputs do
    local row = inputs[i] or inputs[#inputs]
    if not row.optional and not given(i) then
      errors.raise("ValueError", "%sinput '%s' is left out", where, row.name)
    end
  end
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
  check_needed(plan, plan.name .. ": ", function(i)
    return plan.inputs[i] ~= ""
  end)
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

-- Whether a node's results follow from what it reads.
local function is_fixed(plan)
  for _, body in pairs(plan.bodies) do
    if not body.fixed then
      return false
    end
  end
  if plan.call then
    return plan.call.fixed
  end
  return not (plan.operator and (plan.operator.random or plan.operator.effect))
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
  plan.fixed = is_fixed(plan)
  return plan
end

-- How many nodes a run of these has, if each loop has one round.
local function size_of(plans)
  local n = 0
  for _, plan in ipairs(plans) do
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
---@param branch? boolean of an If, which gives it no values: inputs that it says it has are
---  those of the names around (PopART's Builder writes such ones)
function Graph:init(graph, context, around, branch)
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
    if not self.initializers[name] and not (branch and names:has(name)) then
      names:add(name, "input")
      self.inputs[#self.inputs + 1] = name
    end
    self.infos[name] = info
  end
  self.captured, self.fixed = names.captured, true
  for i, node in ipairs(graph.node or {}) do
    self.nodes[i] = M.plan_node(node, i, names, context)
    self.fixed = self.fixed and self.nodes[i].fixed
  end
  for i, info in ipairs(graph.output or {}) do
    local name = info.name or ""
    errors.check(names:has(name), "ValueError", "output '%s' of the graph is made by no node",
      name)
    self.outputs[i] = name
  end
  self.size = size_of(self.nodes)
end

--- What the initializers are, by name: "parameter", "buffer" or "constant" (lupine.onnx.uses);
--- integers that nothing writes, and what is not read, are constants.
---@return table<string, string>
function Graph:roles()
  local used, out = uses.of(self.nodes), {}
  for name, t in pairs(self.initializers) do
    local use = used[name] or "constant"
    out[name] = use == "parameter" and not t:is_floating_point() and "constant" or use
  end
  return out
end

--- Calls fn(plan, owner) for each node, in order and before those of its own graphs: of
--- bodies, and of a function at each of its calls.
---@param fn fun(plan: table, owner: table?) owner: the node whose graph has this one
---@param owner? table
function Graph:walk(fn, owner)
  for _, plan in ipairs(self.nodes) do
    fn(plan, owner)
    for _, name in ipairs(tables.keys(plan.bodies)) do
      plan.bodies[name]:walk(fn, plan)
    end
    if plan.call then
      plan.call:walk(fn, plan)
    end
  end
end

local function run_operator(n, plan, args)
  return table.pack(plan.operator.run(n, table.unpack(args, 1, #plan.inputs)))
end

-- Whether a node's results follow from constants, which no trace records.
local function follows(scope, plan)
  if plan.operator.shape_only then
    return true
  end
  if not plan.fixed then
    return false
  end
  for _, name in ipairs(plan.inputs) do
    if name ~= "" and not scope:is_known(name) then
      return false
    end
  end
  for _, body in pairs(plan.bodies) do
    for name in pairs(body.captured) do
      if not scope:is_known(name) then
        return false
      end
    end
  end
  return true
end

--- Runs one node.
---@param scope table
---@param plan table
---@return table {n, …} results
---@return table<integer, boolean>|boolean known which of them, or all
function M.run_node(scope, plan)
  if plan.call then
    return plan.call:called(scope, plan.inputs)
  end
  local args = {}
  for i, name in ipairs(plan.inputs) do
    args[i] = name ~= "" and scope:find(name) or nil
    if args[i] and scope.infers and plan.operator.effect then
      args[i] = Node.outlined(args[i])
    end
  end
  check_needed(plan, "", function(i) -- a function may be called without an input
    return args[i] ~= nil
  end)
  local n = Node(plan, scope)
  n.inputs = args
  local known = follows(scope, plan)
  local results
  if known and core.is_tracing() then
    results = core.untraced(run_operator, n, plan, args)
  else
    results = run_operator(n, plan, args)
  end
  return results, known or n.known or false
end

local function named(plan, e)
  if errors.Exception:is(e) then
    e.message = plan.name .. ": " .. e.message
  end
  error(e, 0)
end

local function is_internal(plan, i)
  return plan.operator and (plan.operator.internal or {})[i]
end

function Graph:run(scope)
  for _, plan in ipairs(self.nodes) do
    if scope.observe then
      scope.observe.before(plan.node, scope)
    end
    local ok, results, known = pcall(M.run_node, scope, plan)
    if not ok then
      named(plan, results)
    end
    for i, name in ipairs(plan.outputs) do
      if name ~= "" then
        errors.check(results[i] ~= nil or is_internal(plan, i), "ValueError",
          "%s: it gives no output %d ('%s')", plan.name, i - 1, name)
        scope:set(name, results[i], known == true or known and known[i] or false)
      end
    end
    if scope.observe then
      scope.observe.after(plan.node, scope)
    end
  end
  local out, known = {}, {}
  for i, name in ipairs(self.outputs) do
    out[i], known[i] = scope:find(name), scope:is_known(name)
  end
  return out, known
end

--- Runs a graph inside another.
---@param around table Scope
---@param values torch.Tensor[] of its inputs, in order
---@param known? table<integer, boolean> which of them are known now
---@return torch.Tensor[] outputs
---@return table<integer, boolean> known
function Graph:call(around, values, known)
  errors.check(#values == #self.inputs, "ValueError", "the graph inside has %d inputs (%s), %d are "
    .. "given", #self.inputs, table.concat(self.inputs, ", "), #values)
  local scope = Scope(around, around)
  for name, t in pairs(self.initializers) do
    scope:set(name, t, true)
  end
  for i, name in ipairs(self.inputs) do
    scope:set(name, values[i], known and known[i] or false)
  end
  return self:run(scope)
end

--- Runs the graph of a function: it sees nothing of what is around the call.
---@param around table Scope
---@param names string[] of the values that are its inputs
---@return torch.Tensor[] results
---@return table<integer, boolean> known
function Graph:called(around, names)
  local scope = Scope(nil, around)
  for i, name in ipairs(self.inputs) do
    local from = names[i] or ""
    if from ~= "" then
      scope:set(name, around:find(from), around:is_known(from))
    end
  end
  return self:run(scope)
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

-- The newest of ONNX's operator sets that there is (1.23): what a model of a later one means
-- by an operator's name nobody knows.
local LATEST = 28

--- Plans a model's graph.
--- errors: ValueError for a graph that is none, NotImplementedError for an operator set of
--- ONNX that is not known, or that lists all operators that are not supported
---@param model table ModelProto
---@param folder? string of external data
---@return lupine.onnx.Graph
function M.plan(model, folder)
  local context = M.context(model, folder)
  local version = context.opsets[""] or 1
  errors.check(version <= LATEST, "NotImplementedError", "the model is of ONNX's operator set %d, "
    .. "the newest that is known is %d", version, LATEST)
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
