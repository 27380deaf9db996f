--- What the function of an operator sees of its node, and the names around it.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

-- ---- a scope of values -----------------------------------------------------------------

-- What a tensor is without its values.
local function meta(t)
  return core.untraced(function()
    return core.forms.functions.empty(t.shape, { dtype = t.dtype, device = "meta" })
  end)
end

-- Names -> values of one run of a graph; inside another it sees the names around.
local Scope = class.new("Scope")

function Scope:init(around, options)
  self.around, self.values, self.known = around, {}, {}
  self.given = {} -- values of initializers, where their shapes stand for them
  self.scores = {} -- of values that are a softmax over the last axis: what it is of
  self.training, self.tracks = options.training, options.tracks
  self.joins, self.replicas = options.joins, options.replicas
  self.infers = options.infers -- only types of values are asked for: no node has an effect
  self.observe = options.observe
  self.outline = options.outline -- what is around and not known is seen without values
end

function Scope:find(name)
  local value = self.values[name]
  if value == nil and self.around then
    value = self.around:find(name)
    if value and self.outline and not self.around:is_known(name) then
      value = meta(value)
      self:set(name, value, false)
    end
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

-- ---- nodes -------------------------------------------------------------------------

--- A node that runs: what an operator's function sees of it.
---@class lupine.onnx.Node
---@field name string of the node, for messages
---@field op string
---@field attr table<string, any> attributes by name, with the operator's defaults
---@field version integer of the operator
---@field outputs string[] names; "" for one that is not wanted
---@field training boolean whether the model is in training mode
---@field tracks boolean? whether normalisations use and keep statistics of the batch, as
---  modules in training mode do
---@field joins boolean? whether Scan is PopART's: what its rounds give is joined along an
---  axis, not stacked along a new one, and slices of vectors have one element
---@field infers boolean? whether it runs for the types of its results alone
---@field replicas integer? of the program, where that is known
---@field inputs table<integer, torch.Tensor>
---@field known table<integer, boolean>? set by an operator: which results are known now
local Node = class.new("Node")

function Node:init(plan, scope)
  self.plan, self.scope = plan, scope
  self.name, self.op, self.attr = plan.name, plan.op, plan.attr
  self.version, self.outputs = plan.version, plan.outputs
  self.training, self.tracks, self.joins = scope.training, scope.tracks, scope.joins
  self.infers, self.replicas = scope.infers, scope.replicas
end

--- Whether an output is wanted.
---@param i integer
---@return boolean
function Node:wants(i)
  return (self.outputs[i] or "") ~= ""
end

--- Notes that the first output is the softmax of x over its last axis.
---@param x torch.Tensor
function Node:is_softmax_of(x)
  self.scope.scores[self.outputs[1]] = x
end

--- What an input is the softmax of, if a node of the same graph says so.
---@param i integer
---@return torch.Tensor?
function Node:scores(i)
  return self.scope.scores[self.plan.inputs[i]]
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
---@param what? string what gave it ("attribute 'axis'")
---@return integer
function Node:axis(axis, rank, what)
  what = what or "attribute 'axis'"
  self:check(rank > 0, "%s is %d, and the tensor is a scalar", what, axis)
  self:check(axis >= -rank and axis < rank, "%s is %d. Allowed: %d to %d", what, axis, -rank,
    rank - 1)
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

--- Runs a graph attribute, with this node's names around it, on the values of its
--- inputs. Returns its outputs and which of them are known now.
---@param name string of the attribute
---@param values torch.Tensor[]
---@param known? table<integer, boolean> which of the values are
---@return torch.Tensor[] results
---@return table<integer, boolean> known
function Node:run(name, values, known)
  return self.plan.bodies[name]:call(self.scope, values, known)
end

--- A tensor of the device "meta" like this one.
---@param t torch.Tensor
---@return torch.Tensor
function Node.outlined(t)
  return meta(t)
end

--- The same without values: those that are not known, here and around, are of the
--- device "meta", as are the results then. Nothing is recorded.
---@param name string of the attribute
---@param values torch.Tensor[]
---@param known? table<integer, boolean>
---@return torch.Tensor[] results
---@return table<integer, boolean> known
function Node:outline(name, values, known)
  return core.untraced(function()
    local given = {}
    for i, t in ipairs(values) do
      given[i] = known and known[i] and t or meta(t)
    end
    local scope = Scope(self.scope, { training = self.training, tracks = self.tracks,
      joins = self.joins, outline = true, infers = true })
    return self.plan.bodies[name]:call(scope, given, known)
  end)
end

--- A graph attribute as a function of the values of its inputs, to its outputs.
---@param name string of the attribute
---@return fun(...: torch.Tensor): ...
function Node:body(name)
  return function(...)
    return table.unpack((self:run(name, { ... })))
  end
end

--- Whether a graph attribute reads values around it that are of the device "meta".
---@param name string of the attribute
---@return boolean
function Node:reads_meta(name)
  for captured in pairs(self.plan.bodies[name].captured) do
    local t = self.scope:find(captured)
    if t and t.is_meta then
      return true
    end
  end
  return false
end

--- The inputs and outputs of a graph attribute.
---@param name string
---@return table GraphProto
function Node:graph(name)
  return self.attr[name]
end

return { Node = Node, Scope = Scope }
