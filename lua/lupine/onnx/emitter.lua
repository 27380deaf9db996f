--- Writes the graph of a trace as an ONNX graph: what the functions of exported/
--- that know an operator each are given.
local NAMES = require("lupine.onnx.annotation_names")
local class = require("lupine.base.class")
local core = require("lupine.core")
local proto = require("lupine.onnx.proto")
local tables = require("lupine.base.tables")
local tensors = require("lupine.onnx.tensors")

local M = {}

-- ---- names -------------------------------------------------------------------------

-- Names of one model, each used once.
local Names = class.new("Names")

function Names:init()
  self.used, self.count = {}, {}
end

function Names:take(name)
  self.used[name] = true
  return name
end

function Names:fresh(name)
  local text, n = name, self.count[name] or 0
  while self.used[text] do
    n = n + 1
    text = ("%s_%d"):format(name, n)
  end
  self.count[name] = n
  return self:take(text)
end

-- Operators whose result is their operand, as far as ONNX can say.
local ALIASES = tables.set("alias clone detach nop recomputation_checkpoint "
  .. "set_available_memory set_overlap_for_input set_overlap_for_output")

-- ---- a graph -------------------------------------------------------------------------

--- A graph that is being written.
---@class lupine.onnx.Emitter
---@field version integer of the operator set
---@field nodes table[] NodeProto
---@field initializers table[] TensorProto
local Emitter = class.new("Emitter")

--- shared: version, names, refused (a list of texts), rules, matches, initializer (a function
--- of a name and a tensor, which gives the name that the graph has it by).
---@param shared table
function Emitter:init(shared)
  self.shared, self.version, self.names = shared, shared.version, shared.names
  self.nodes, self.value_name, self.types = {}, {}, {}
  self.maker, self.uses, self.same = {}, {}, {}
end

-- Notes what a node makes and reads; an alias is replaced where it is read.
local function read_node(e, n)
  for _, x in ipairs(n.results) do
    e.types[x.value], e.maker[x.value] = x, n
  end
  for i = 1, #n.operands do
    local v = n.operands[i]
    if math.type(v) == "integer" then
      v = e.same[v] or v
      n.operands[i] = v
      e.uses[v] = (e.uses[v] or 0) + (ALIASES[n.op] and 0 or 1)
    end
  end
  if ALIASES[n.op] then
    e.same[n.results[1].value] = n.operands[1]
  end
end

--- What is known of a graph before it is written.
---@param graph table core.Graph
function Emitter:read(graph)
  self.graph_nodes = graph:nodes()
  for _, x in ipairs(graph:inputs()) do
    self.types[x.value] = x
  end
  for _, n in ipairs(self.graph_nodes) do
    read_node(self, n)
  end
end

-- ---- operands --------------------------------------------------------------------

--- Whether a node has an operand, as a value or a number.
---@param n table node
---@param i integer
---@return boolean
function Emitter:has(n, i)
  return n.operands[i] ~= nil and n.operands[i] ~= false
end

--- The number that an operand is; nil: a value, or none.
---@param n table
---@param i integer
---@return number|boolean|nil
function Emitter:number(n, i)
  local v = n.operands[i]
  return type(v) == "table" and v[1] or nil
end

--- {dtype, shape} of a value.
---@param n table
---@param i integer operand
---@return table
function Emitter:type(n, i)
  local v = n.operands[i]
  if type(v) == "table" then
    local x = v[1]
    return { dtype = type(x) == "boolean" and "bool" or math.type(x) == "integer" and "int64"
      or "float32", shape = {}, number = true }
  end
  return self.types[v]
end

--- The name of an operand, in a dtype if one is given.
---@param n table
---@param i integer
---@param dtype? string
---@return string "" for none
function Emitter:input(n, i, dtype)
  local v = n.operands[i]
  if v == nil or v == false then
    return ""
  elseif type(v) == "table" then
    return self:constant(v[1], dtype or self:type(n, i).dtype)
  end
  local name = self:name_of(v)
  if dtype and dtype ~= self.types[v].dtype then
    name = self:cast(name, dtype)
  end
  return name
end

--- Whether a result is read, by nodes that are written or as an output.
---@param n table
---@param i integer
---@return boolean
function Emitter:reads(n, i)
  return n.results[i] ~= nil and self.needed[n.results[i].value] == true
end

--- The name of a value.
---@param v integer
---@return string
function Emitter:name_of(v)
  return self.value_name[self.same[v] or v]
end

--- A constant: a tensor, or a number in a dtype.
---@param value any tensor, number, boolean or list of integers (int64)
---@param dtype? string
---@return string name
function Emitter:constant(value, dtype)
  if not core.is_tensor(value) then
    value = core.tensor(value, { dtype = core.dtypes[dtype or "int64"] })
  end
  return self.shared.constant(value)
end

-- ---- nodes -----------------------------------------------------------------------

-- Attributes of nodes that say where they run, and what an origin has.
local PLACES = { { NAMES.executionPhase, "phase" }, { NAMES.virtualGraph, "ipu" },
  { NAMES.pipelineStage, "stage" } }

--- Adds a node of ONNX.
---@param op string "Relu", or "domain::Name"
---@param inputs string[] names; empty ones at the end are left out
---@param attributes? table<string, any>
---@param count? integer outputs (1)
---@return string ... names of the outputs
function Emitter:emit(op, inputs, attributes, count)
  local domain, kind = op:match("^(.*)::(.*)$")
  local last = #inputs
  while last > 0 and inputs[last] == "" do
    last = last - 1
  end
  local place = self.place or {}
  local scope = place.scope and place.scope ~= "" and place.scope .. "/" or ""
  local name = self.names:fresh(("/%s%s"):format(scope, kind or op))
  local node = { op_type = kind or op, domain = domain, name = name, output = {}, attribute = {},
    input = { table.unpack(inputs, 1, last) } }
  for _, key in ipairs(tables.keys(attributes or {})) do
    node.attribute[#node.attribute + 1] = proto.attribute(key, attributes[key])
  end
  for _, row in ipairs(self.shared.placed and PLACES or {}) do
    local at = place[row[2]] or -1
    node.attribute[#node.attribute + 1] = at >= 0 and proto.attribute(row[1], at) or nil
  end
  for i = 1, count or 1 do
    node.output[i] = self.names:fresh(("%s_output_%d"):format(name, i - 1))
  end
  self.nodes[#self.nodes + 1] = node
  return table.unpack(node.output)
end

---@param name string
---@param dtype string
---@return string
function Emitter:cast(name, dtype)
  return self:emit("Cast", { name }, { to = tensors.number(core.dtypes[dtype]) })
end

--- A value in another shape.
---@param name string
---@param shape integer[]
---@return string
function Emitter:reshape(name, shape)
  local empty = false
  for _, size in ipairs(shape) do
    empty = empty or size == 0
  end
  if empty and self.version < 14 then
    self:fail("a reshape to no elements needs opset 14")
  end
  return self:emit("Reshape", { name, self:constant({ table.unpack(shape) }) },
    empty and { allowzero = 1 } or nil)
end

--- A value with its dimensions in another order; the same if that is no other.
---@param name string
---@param dims integer[] from 0
---@return string
function Emitter:transpose(name, dims)
  local same = true
  for i, d in ipairs(dims) do
    same = same and d == i - 1
  end
  return same and name or self:emit("Transpose", { name }, { perm = { table.unpack(dims) } })
end

--- Notes why the node that is being written cannot be, and goes on.
---@param fmt string
---@param ... any
function Emitter:fail(fmt, ...)
  error({ refused = fmt:format(...) }, 0)
end

-- ---- writing -----------------------------------------------------------------------

local function place_of(n)
  local o = n.origin
  return o and o.file ~= "" and (" (%s:%d)"):format(o.file, o.line) or ""
end

-- Which nodes are written, as what: from the last to the first, so that a pattern
-- that takes others in is found before these.
local function choose(e, outputs)
  local needed, chosen = {}, {}
  for _, v in ipairs(outputs) do
    v = e.same[v] or v
    needed[v] = true
    e.uses[v] = (e.uses[v] or 0) + 1
  end
  for at = #e.graph_nodes, 1, -1 do
    local n = e.graph_nodes[at]
    local wanted = false
    for _, x in ipairs(n.results) do
      wanted = wanted or needed[x.value]
    end
    if wanted then
      local match = e.shared.matches[n.op] and e.shared.matches[n.op](e, n)
      chosen[at] = match or { rule = e.shared.rules[n.op], node = n, operands = n.operands }
      for _, v in ipairs(chosen[at].operands) do
        if math.type(v) == "integer" then
          needed[v] = true
        end
      end
    end
  end
  return chosen, needed
end

local function refuse(e, n, why)
  local list = e.shared.refused
  local text = n.op .. (why and ": " .. why or "") .. place_of(n)
  if not list[text] then
    list[text] = true
    list[#list + 1] = text
  end
end

local function write_node(e, choice, needed)
  local n = choice.node
  e.place = n.origin
  local results
  if choice.rule then
    results = table.pack(pcall(choice.rule, e, n))
    if not results[1] then
      local why = results[2]
      if type(why) ~= "table" or not why.refused then
        error(why, 0)
      end
      refuse(e, n, why.refused)
    end
  else
    refuse(e, n)
  end
  for i, x in ipairs(n.results) do
    local name = results and results[1] and results[i + 1]
    if results and results[1] and needed[x.value] and not name then
      refuse(e, n, ("result %d"):format(i))
    end
    e.value_name[x.value] = name or e.value_name[x.value] or "?"
  end
end

--- Writes the nodes that values need.
---@param outputs integer[] values
function Emitter:write(outputs)
  local chosen, needed = choose(self, outputs)
  self.needed = needed -- values that are read
  for at = 1, #self.graph_nodes do
    if chosen[at] then
      write_node(self, chosen[at], needed)
    end
  end
end

-- ---- bodies ------------------------------------------------------------------------

--- A body as a graph within: its inputs are names that the graph around gives (a captured
--- value) or inputs of its own.
---@param body table core.Graph
---@param inputs {name: string?, info: table?}[]
---@param before? fun(e: lupine.onnx.Emitter, values: integer[]) runs before its nodes
---@return lupine.onnx.Emitter
---@return string[] names of its outputs
function Emitter:body(body, inputs, before)
  local e = Emitter(self.shared)
  e:read(body)
  local values = {}
  for i, x in ipairs(body:inputs()) do
    values[i] = x.value
    e.value_name[x.value] = inputs[i]
  end
  if before then
    before(e, values)
  end
  local outputs, names = body:outputs(), {}
  e:write(outputs)
  for i, v in ipairs(outputs) do
    names[i] = e:name_of(v)
  end
  return e, names
end

--- A graph's types of values, as ONNX has them.
---@param name string
---@param x table {dtype, shape}
---@return table ValueInfoProto
function M.info(name, x)
  return proto.info(name, core.dtypes[x.dtype], { table.unpack(x.shape) })
end

M.Emitter, M.Names = Emitter, Names

return M
