--- What nodes' attributes and the session's options change at the nodes of a program: what
--- is kept for the backward pass and what is computed again, products in parts, a share of
--- a tile's memory, the type of partial results.
---
--- Source: PopART Python API, Builder and SessionOptions; its transforms of recomputation.
local NAMES = require("lupine.onnx.annotation_names")
local core = require("lupine.core")
local enums = require("popart.enums")
local errors = require("popart.errors")
local library_options = require("lupine.library_options")
local multi_conv = require("lupine.multi_conv")
local proto = require("lupine.onnx.proto")
local splitting = require("popart.splitting")
local tables = require("lupine.base.tables")
local tensor_info = require("popart.tensor_info")

local M = {}

local forms = core.forms.internal
local Type = enums.RecomputeType

-- ---- recomputation -------------------------------------------------------------------------

local NORMS = tables.set("BatchNormalization GroupNormalization InstanceNormalization "
  .. "LayerNormalization")

-- Whether a node says that its results are kept, or computed again; nil: it does not.
local KEEPS = { [Type.Checkpoint.value] = true, [Type.Recompute.value] = false }

local function says(plan)
  local found = proto.find(plan.node, NAMES.recomputeOutput)
  return found and KEEPS[found.i]
end

-- Whether a node of the graph, or of one within, is computed again because it says so; and
-- whether one of the graph is.
local function by_hand(graph)
  local any, main = false, false
  graph:walk(function(plan, owner)
    local again = says(plan) == false
    any, main = any or again, main or again and not owner
  end)
  return any, main
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

-- Bytes that are read again behind each node.
local function live_bytes(plans, types)
  local last = splitting.last_reads(plans)
  local ends, live, out = {}, 0, {}
  for id, at in pairs(last) do
    ends[at] = (ends[at] or 0) + tensor_info.bytes(types[id])
  end
  for i, plan in ipairs(plans) do
    for _, id in ipairs(plan.outputs) do
      live = live + (last[id] and tensor_info.bytes(types[id]) or 0)
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
    local keep = {}
    s.model.graph:walk(function(plan)
      keep[plan.node] = not NORMS[plan.op]
    end)
    return keep
  end,
  Standard = function(s)
    return s.options.enablePipelining and {} or standard(s.model.graph.nodes, s.types())
  end,
}

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

-- Whether anything is computed again, and whether the results of each node are kept then.
-- By hand those are that do not say otherwise; a graph within is as the node that has it.
local function recomputation(s)
  local graph, auto = s.model.graph, s.options.autoRecomputation.name
  local any, main = by_hand(graph)
  check(s, auto, main)
  if not s.training or not any and auto == "NoRecompute" then
    return "none", {}
  end
  local manual, keep = main or auto == "NoRecompute", {}
  local chosen = not manual and KEPT[auto] and KEPT[auto](s) or {}
  graph:walk(function(plan, owner)
    local kept = says(plan)
    if kept == nil and not (manual and owner) then
      kept = manual or chosen[plan.node] or false
    end
    keep[plan.node] = kept
  end)
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
local CONVS = tables.set("Conv ConvTranspose MultiConv")
local OWN_PARTIALS = { Conv = true, MultiConv = true, MatMul = true }

-- The type of partial results, the share of a tile's memory and the dithering that a
-- library's options ask for; nil: nothing is asked. Of convolutions, partialsTypeMatMuls says
-- nothing.
local function asked(o, library)
  local of = o[library]
  local partials = library == "convolutionOptions" and (of.partialsType
    or o.partialsTypeMatMuls:lower() == "half" and "float") or nil
  return partials and { partials }, of.availableMemoryProportion
    and { tonumber(of.availableMemoryProportion) },
    library == "convolutionOptions" and library_options.dithers(of) and { true } or nil
end

-- Whether a node's convolutions dither; nil: the library's options say it.
local function dithering_of(plan)
  local found, list = proto.find(plan.node, NAMES.dithering), {}
  for i, on in ipairs(found and (found.i and { found.i } or found.ints) or {}) do
    list[i] = on ~= 0
  end
  return list[1] ~= nil and list or nil
end

-- What lupine.multi_conv is told of a node's products; nil: nothing. What a MultiConv does
-- not say is as PopLibs has it.
local function products(plan, o)
  local library, a = PRODUCTS[plan.op], plan.attr
  if not library then
    return nil
  end
  local own = proto.find(plan.node, NAMES.availableMemory)
  local partials, proportions, dithering = asked(o, library)
  local s = { plan = "alone", reserved = 0, back_off = 0,
    dithering = CONVS[plan.op] and dithering_of(plan) or dithering,
    partials = OWN_PARTIALS[plan.op] and partials_of(plan) or partials }
  if plan.op == "MultiConv" then
    s.plan, s.reserved, s.back_off = a.planType or "parallel", a.perConvReservedTiles or 50,
      a.cycleBackOff or 0.1
    s.proportions = own and own.floats and own.floats[1] and own.floats or proportions
    return s
  end
  s.proportions = not own and proportions or nil -- its own one is a mark of its value
  return (s.partials or s.proportions or s.dithering) and s or nil
end

--- What a trace of a model marks, in the graphs within as in the main one; products are in
--- parts from here on.
---
--- s: model, options, training, and types(), of all its tensors.
--- error: popart_exception for annotations that do not go together
---@param s table
---@return table marks recompute (of the simulated system), keep (booleans by node; nil: as
---  the node whose graph it is in), products (settings by node)
function M.of(s)
  local marks = { products = {}, number = 0 }
  marks.recompute, marks.keep = recomputation(s)
  s.model.graph:walk(function(plan)
    serialize(plan)
    marks.products[plan.node] = products(plan, s.options)
  end)
  return marks
end

-- ---- what changes nothing ------------------------------------------------------------------

-- Attributes that are read nowhere: the method that sets each, and why.
local IDLE = {
  [NAMES.schedulePriority] = { "Builder:schedulePriority", "the order of work here is fixed" },
  [NAMES.excludePatterns] = { "Builder:excludePatterns", "the passes over the graph are fixed" },
  [NAMES.inplaceNames] = { "Builder:setInplacePreferences",
    "memory is shared wherever it can be" },
  [NAMES.outputLocation] = { "Builder:outputTensorLocation",
    "activations of the simulated system are where SessionOptions has them all" },
  [NAMES.outline] = { "Builder:outlineAttributes",
    "repeated parts of the graph are found without settings" },
}

-- Operators whose gradients compute their bodies again.
local REPEATS = { If = true, Loop = true, Scan = true }

local function idle_attribute(plan, attribute, repeated)
  if attribute.name == NAMES.partialsType and not OWN_PARTIALS[plan.op] then
    return { "Builder:setPartialsType of " .. plan.op,
      "only MatMul, Conv and MultiConv have partial results of a type of their own" }
  elseif attribute.name == NAMES.recomputeOutput and KEEPS[attribute.i] and repeated then
    return { "Builder:recomputeOutput in the body of " .. repeated, "nothing in it is kept: its "
      .. "gradient computes it again from what it began with" }
  elseif attribute.name == NAMES.dithering and not CONVS[plan.op] and attribute.i ~= 0 then
    return { "Builder:setEnableConvDithering of " .. plan.op, "only Conv, ConvTranspose and "
      .. "MultiConv are laid out as convolutions" }
  end
  return IDLE[attribute.name]
end

--- Calls note(name, why), once a name, for annotations of nodes that change nothing.
---@param graph lupine.onnx.Graph
---@param note fun(name: string, why: string)
function M.note(graph, note)
  local found, repeated = {}, {}
  graph:walk(function(plan, owner)
    repeated[plan] = owner and (repeated[owner] or REPEATS[owner.op] and owner.op)
    for _, attribute in ipairs(plan.node.attribute or {}) do
      local idle = idle_attribute(plan, attribute, repeated[plan])
      found[idle and idle[1] or ""] = idle
    end
  end)
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
---@param node table NodeProto
---@param value torch.Tensor
---@param keeps boolean whether it is kept between forward and backward
---@return torch.Tensor
function M.mark(node, value, keeps)
  local share = proto.find(node, NAMES.availableMemory)
  if share and share.f then -- a MultiConv has one for each convolution
    value = forms.set_available_memory(value, share.f)
  end
  if keeps and value:is_floating_point() then
    value = forms.recomputation_checkpoint(value)
  end
  return value
end

return M
