--- What nodes' attributes and the session's options change at the nodes of a program: what
--- is kept for the backward pass and what is computed again, products in parts, a share of
--- a tile's memory, the type of partial results.
---
--- Source: PopART Python API, Builder and SessionOptions; its transforms of recomputation.
local core = require("lupine.core")
local enums = require("popart.enums")
local errors = require("popart.errors")
local multi_conv = require("lupine.multi_conv")
local node_attributes = require("popart.node_attributes")
local proto = require("lupine.onnx.proto")
local splitting = require("popart.splitting")
local tables = require("lupine.base.tables")

local M = {}

local NAMES, forms = node_attributes.NAMES, core.forms.internal
local Type = enums.RecomputeType

-- ---- recomputation -------------------------------------------------------------------------

local NORMS = tables.set("BatchNormalization GroupNormalization InstanceNormalization "
  .. "LayerNormalization")

local function annotation(plan)
  local found = proto.find(plan.node, NAMES.recomputeOutput)
  return found and found.i or Type.Undefined.value
end

-- Nodes of a kind as a set.
local function nodes_where(plans, wanted)
  local out = {}
  for _, plan in ipairs(plans) do
    if wanted(plan) then
      out[plan.node] = true
    end
  end
  return out
end

--- Lengths of the intervals that the nodes of a forward pass are cut into, of which each
--- keeps one set of values: shrinking ones, then single nodes.
---@param n integer
---@return integer[]
function M.intervals(n)
  local out, at = {}, 0
  local length = math.floor(0.75 * (math.floor(math.sqrt(2 * n)) - 1))
  while at < n do
    out[#out + 1] = math.min(math.max(length, 1), n - at)
    at, length = at + out[#out], length - 1
  end
  return out
end

local function size(type)
  local n = type and type.dtype.itemsize or 0
  for _, d in ipairs(type and type.shape or {}) do
    n = n * d
  end
  return n
end

-- Bytes that are read again behind each node.
local function live_bytes(plans, types)
  local last = splitting.last_reads(plans)
  local ends, live, out = {}, 0, {}
  for id, at in pairs(last) do
    ends[at] = (ends[at] or 0) + size(types[id])
  end
  for i, plan in ipairs(plans) do
    for _, id in ipairs(plan.outputs) do
      live = live + (last[id] and size(types[id]) or 0)
    end
    live = live - (ends[i] or 0)
    out[i] = live
  end
  return out
end

-- In each interval what is read again where that is least.
local function standard(plans, types)
  local live, last = live_bytes(plans, types), splitting.last_reads(plans)
  local keep, from = {}, 1
  for _, length in ipairs(M.intervals(#plans)) do
    local best = from
    for i = from, from + length - 1 do
      best = live[i] < live[best] and i or best
    end
    for i = 1, best do
      for _, id in ipairs(plans[i].outputs) do
        if last[id] and last[id] > best then
          keep[plans[i].node] = true
        end
      end
    end
    from = from + length
  end
  return keep
end

local KEPT = {
  NormOnly = function(s)
    return nodes_where(s.model.graph.nodes, function(plan)
      return not NORMS[plan.op]
    end)
  end,
  Standard = function(s)
    return s.options.enablePipelining and {} or standard(s.model.graph.nodes, s.types())
  end,
}

local function is_kept(plan)
  return annotation(plan) == Type.Checkpoint.value
end

local function check(s, auto, manual)
  local o = s.options
  errors.check(not (manual and auto ~= "NoRecompute" and o.executionPhaseSettings.phases < 2),
    "popart_exception", "A mixture of auto and manual recomputation is not supported: set "
    .. "SessionOptions.autoRecomputation or call builder:recomputeOutput")
  errors.check(not (manual and o.enablePipelining and not o.explicitRecomputation),
    "popart_exception", "When pipelining is enabled, user annotation for recomputation is not "
    .. "allowed")
  errors.check(auto ~= "Pipeline" or o.enablePipelining, "popart_exception",
    "Pipelined recomputation requires pipelining to be enabled: set "
    .. "SessionOptions.enablePipelining")
end

-- Whether anything is computed again, and the nodes whose results are kept then.
local function recomputation(s)
  local plans, auto = s.model.graph.nodes, s.options.autoRecomputation.name
  local manual = nodes_where(plans, function(plan)
    return annotation(plan) == Type.Recompute.value
  end)
  check(s, auto, next(manual) ~= nil)
  if not s.training then
    return "none", {}
  elseif next(manual) then
    return "all", nodes_where(plans, function(plan)
      return not manual[plan.node]
    end)
  elseif auto == "NoRecompute" then
    return "none", {}
  end
  local keep = KEPT[auto] and KEPT[auto](s) or {}
  for node in pairs(nodes_where(plans, is_kept)) do
    keep[node] = true
  end
  return "all", keep
end

-- ---- products ------------------------------------------------------------------------------

-- Size of the dimension that a mode cuts: lhs's rows, the summed one, rhs's columns.
local CUT = {
  input_channels = function(a)
    return a:size(-2)
  end,
  reducing_dim = function(a)
    return a:size(-1)
  end,
  output_channels = function(_, b)
    return b:size(-1)
  end,
}

local function check_parts(name, a, b, mode, factor)
  errors.check(a:dim() == b:dim() and a:dim() >= 2 and a:dim() <= 3, "popart_exception",
    "%s: both inputs of a serialized matmul must have rank 2 or 3 and an equal one, got %d and %d",
    name, a:dim(), b:dim())
  local n = CUT[mode](a, b)
  errors.check(factor > 0 and n % factor == 0, "popart_exception", "%s: Invalid serialisation "
    .. "factor %d for %s dim %d. %s dim should be a multiple of the serialisation factor", name,
    factor, mode:gsub("_", " "), n, mode)
end

-- A product whose attributes ask for parts is computed so.
local function serialize(plan)
  local mode = proto.find(plan.node, NAMES.serializeMode)
  if not mode or plan.op ~= "MatMul" or plan.in_parts then
    return
  end
  local factor = proto.find(plan.node, NAMES.serializeFactor)
  local precise = proto.find(plan.node, NAMES.keepPrecision)
  factor, precise = factor and factor.i or 0, precise ~= nil and precise.i == 1
  plan.in_parts = true
  plan.operator = setmetatable({ run = function(_, a, b)
    check_parts(plan.name, a, b, mode.s, factor)
    return forms.serialized_matmul(a, b, mode.s, factor, precise)
  end }, { __index = plan.operator })
end

-- ---- marks ---------------------------------------------------------------------------------

local PARTIALS = { half = true, float = true }

-- A node's types of partial results, as the simulated system has them; nil: the program's.
local function partials_of(plan)
  local found, list = proto.find(plan.node, NAMES.partialsType), {}
  for i, name in ipairs(found and (found.s and { found.s } or found.strings) or {}) do
    list[i] = name:lower()
    errors.check(PARTIALS[list[i]], "popart_exception", "%s: partials type: expected 'HALF' or "
      .. "'FLOAT', got '%s'", plan.name, name)
  end
  return list[1] and list or nil
end

-- Operators whose partial results have a type of their own; the options of the library that
-- computes each of them.
local PRODUCTS = { Conv = "convolutionOptions", ConvTranspose = "convolutionOptions",
  MultiConv = "convolutionOptions", MatMul = "matmulOptions" }
local OWN_PARTIALS = { Conv = true, MultiConv = true, MatMul = true }

-- The type of partial results and the share of a tile's memory that a library's options ask
-- for; nil: nothing is asked. Of convolutions, partialsTypeMatMuls says nothing.
local function asked(o, library)
  local of = o[library]
  local partials = library == "convolutionOptions" and (of.partialsType
    or o.partialsTypeMatMuls == "half" and "float") or nil
  return partials and { partials }, of.availableMemoryProportion
    and { tonumber(of.availableMemoryProportion) }
end

-- What lupine.multi_conv is told of a node's products; nil: nothing. What a MultiConv does
-- not say is as PopLibs has it.
local function products(plan, o)
  local library, a = PRODUCTS[plan.op], plan.attr
  if not library then
    return nil
  end
  local own = proto.find(plan.node, NAMES.availableMemory)
  local partials, proportions = asked(o, library)
  local s = { plan = "alone", reserved = 0, back_off = 0,
    partials = OWN_PARTIALS[plan.op] and partials_of(plan) or partials }
  if plan.op == "MultiConv" then
    s.plan, s.reserved, s.back_off = a.planType or "parallel", a.perConvReservedTiles or 50,
      a.cycleBackOff or 0.1
    s.proportions = own and own.floats and own.floats[1] and own.floats or proportions
    return s
  end
  s.proportions = not own and proportions or nil -- its own one is a mark of its value
  return (s.partials or s.proportions) and s or nil
end

--- What a trace of a model marks; the graph's products are in parts from here on.
---
--- s: model, options, training, and types(), of all its tensors.
--- error: popart_exception for annotations that do not go together
---@param s table
---@return table marks recompute (of the simulated system), keep (a set of nodes),
---  products (settings by node)
function M.of(s)
  local marks = { products = {}, number = 0 }
  marks.recompute, marks.keep = recomputation(s)
  for _, plan in ipairs(s.model.graph.nodes) do
    serialize(plan)
    marks.products[plan.node] = products(plan, s.options)
  end
  return marks
end

-- ---- what changes nothing ------------------------------------------------------------------

-- Attributes that are read nowhere: the method that sets each, and why.
local IDLE = {
  [NAMES.schedulePriority] = { "Builder:schedulePriority", "the order of work here is fixed" },
  [NAMES.dithering] = { "Builder:setEnableConvDithering",
    "the simulated tiles of a convolution are all alike" },
  [NAMES.excludePatterns] = { "Builder:excludePatterns", "the passes over the graph are fixed" },
  [NAMES.inplaceNames] = { "Builder:setInplacePreferences",
    "memory is shared wherever it can be" },
  [NAMES.outline] = { "Builder:outlineAttributes",
    "repeated parts of the graph are found without settings" },
}

--- Calls note(name, why), once a name, for annotations of nodes that change nothing.
---@param plans table[] the model's planned nodes
---@param note fun(name: string, why: string)
function M.note(plans, note)
  local found = {}
  for _, plan in ipairs(plans) do
    for _, attribute in ipairs(plan.node.attribute or {}) do
      local idle = IDLE[attribute.name]
      if attribute.name == NAMES.partialsType and not OWN_PARTIALS[plan.op] then
        idle = { "Builder:setPartialsType of " .. plan.op,
          "only MatMul, Conv and MultiConv have partial results of a type of their own" }
      end
      found[idle and idle[1] or ""] = idle
    end
  end
  for _, name in ipairs(tables.keys(found)) do
    note(name, found[name][2])
  end
end

--- The trace's text for a node of products; "": there is nothing to be said.
---@param marks table
---@param node table NodeProto
---@return string
function M.settings(marks, node)
  local settings = marks.products[node]
  if not settings then
    return ""
  elseif settings.plan == "alone" then
    return multi_conv.text(-1, settings)
  end
  marks.number = marks.number + 1
  return multi_conv.text(marks.number, settings)
end

--- A node's value with its marks.
---@param marks table
---@param node table NodeProto
---@param value torch.Tensor
---@return torch.Tensor
function M.mark(marks, node, value)
  local share = proto.find(node, NAMES.availableMemory)
  if share and share.f then -- a MultiConv has one for each convolution
    value = forms.set_available_memory(value, share.f)
  end
  if marks.keep[node] and value:is_floating_point() then
    value = forms.recomputation_checkpoint(value)
  end
  return value
end

return M
