--- Where a session's program runs: the IPU, pipeline stage and phase of each node, from
--- its attributes or found here, and the strategy that the simulated system plans with.
---
--- Source: PopART user guide, SessionOptions; its verification of virtual graphs,
--- pipelines and execution phases.
local NAMES = require("lupine.onnx.annotation_names")
local errors = require("popart.errors")
local option_rules = require("popart.option_rules")
local proto = require("lupine.onnx.proto")
local splitting = require("popart.splitting")

local M = {}

-- Nodes that give constants run nowhere.
local NOWHERE = { Constant = true, ConstantOfShape = true, Shape = true, Size = true }

local function number_of(node, name)
  local found = proto.find(node, name)
  return found and found.i
end

-- How many nodes (of the main graph alone) have an attribute, and one that has not, with the
-- node whose graph it is in. Those of functions may be without.
local function count(graph, name, main)
  local with, all, without, owned_by, in_function = 0, 0, nil, nil, {}
  graph:walk(function(plan, owner)
    in_function[plan] = owner and (owner.call or in_function[owner])
    local has = proto.find(plan.node, name)
    if NOWHERE[plan.op] or main and owner or not has and in_function[plan] then
      return
    end
    all, with = all + 1, with + (has and 1 or 0)
    if not has and not without then
      without, owned_by = plan.node, owner
    end
  end)
  return with, all, without, owned_by
end

local function name_of(node)
  return (node.name or "") ~= "" and node.name or ("%s giving %s"):format(node.op_type,
    tostring(node.output[1]))
end

-- ---- virtual graphs ----------------------------------------------------------------------

local function check_graphs(s, mode)
  local with, all, without, owner = count(s.model.graph, NAMES.virtualGraph)
  errors.check(mode ~= "Manual" or with > 0 or all == 0, "popart_exception",
    "No Ops have virtual graph ids set, and the virtualGraphMode is Manual: set them with "
    .. "builder:virtualGraph, or choose VirtualGraphMode.Auto")
  errors.check(with == 0 or not owner or not s.options.enablePipelining, "popart_exception",
    "%s in a subgraph of %s does not have a virtual graph id. When pipelining, subgraph ops must "
    .. "have a virtual graph id set.", without and name_of(without), owner and name_of(owner.node))
  errors.check(with == 0 or with == all, "popart_exception", "Either all Ops must have their "
    .. "virtual graph ids set, or none must. Op count per virtual graph id: %d with, %d without "
    .. "(%s)", with, all - with, without and name_of(without))
  return with > 0
end

local function check_number(node, ipu, ipus)
  errors.check(ipu >= 0 and ipu < ipus, "popart_exception", "%s has the virtual graph id %d, the "
    .. "device has %d IPUs for each replica", name_of(node), ipu, ipus)
end

local function manual(s, where, ipus)
  for _, plan in ipairs(s.model.graph.nodes) do
    local ipu = number_of(plan.node, NAMES.virtualGraph)
    if ipu then
      check_number(plan.node, ipu, ipus)
      where.at[plan.node] = { ipu = ipu }
    end
  end
end

local function automatic(s, where, ipus)
  local plans, o = s.model.graph.nodes, s.options
  local costs = splitting.costs(plans, s.model, s.types(), {
    weights = o.enableGradientAccumulation and 2 or 1, results = s.training and 1 or 0 })
  for i, ipu in ipairs(splitting.ipus(plans, costs, ipus, o.virtualGraphSplitRatios)) do
    where.at[plans[i].node] = { ipu = ipu }
  end
end

-- ---- phases ------------------------------------------------------------------------------

local function phased(s, where, ipus)
  local plans, set = s.model.graph.nodes, s.options.executionPhaseSettings
  local side = set.stages == 1 and 1 or 2
  errors.check(side <= ipus, "popart_exception", "executionPhaseSettings.stages is %d, the device "
    .. "has %d IPUs for each replica", side, ipus)
  local function own(i)
    local phase = number_of(plans[i].node, NAMES.executionPhase)
    errors.check(not phase or phase < set.phases, "popart_exception", "%s has the execution phase "
      .. "%s, executionPhaseSettings.phases is %d", name_of(plans[i].node), phase, set.phases)
    return phase and phase >= 0 and phase or nil
  end
  local costs, total = splitting.costs(plans, s.model, s.types(), { weights = 1, results = 0 })
  for i, phase in ipairs(splitting.phases(plans, costs, total, set.phases, own)) do
    where.at[plans[i].node] = { ipu = phase % side, phase = phase }
  end
  where.strategy = side == 1 and "serial_phased" or "parallel_phased"
end

-- ---- pipelines ---------------------------------------------------------------------------

-- A stage has one virtual graph.
local function same_graph(graph_of, node, stage, ipu)
  local first = graph_of[stage]
  errors.check(not first or first.ipu == ipu, "popart_exception", "Ops %s and %s have the same "
    .. "pipeline stage %s, but different virtual graph ids %s and %s. All ops with the same "
    .. "pipeline stage must also have the same virtual graph id", first and name_of(first.node),
    name_of(node), stage, first and first.ipu, ipu)
  graph_of[stage] = first or { node = node, ipu = ipu }
end

-- The stage of each node is its own, or else its virtual graph's number.
local function stages(s, where)
  local with, all, without = count(s.model.graph, NAMES.pipelineStage, true)
  errors.check(with == 0 or with == all, "popart_exception", "Only some ops have had their "
    .. "pipeline stage set. Ops missing the pipeline stage: %s", without and name_of(without))
  local graph_of = {}
  for _, plan in ipairs(s.model.graph.nodes) do
    local place = where.at[plan.node]
    local stage = number_of(plan.node, NAMES.pipelineStage) or place and place.ipu
    if place then
      same_graph(graph_of, plan.node, stage, place.ipu)
      place.stage = stage
    end
  end
  return graph_of
end

-- Stages that follow one another on one IPU are one.
local function number_of_stages(graph_of)
  local list, n, last = {}, 0, nil
  for stage in pairs(graph_of) do
    list[#list + 1] = stage
  end
  table.sort(list)
  for _, stage in ipairs(list) do
    n = n + (graph_of[stage].ipu ~= last and 1 or 0)
    last = graph_of[stage].ipu
  end
  return n
end

-- A weight is where the stages that read it are.
local function check_variables(s, where)
  local reader = {}
  for _, plan in ipairs(s.model.graph.nodes) do
    local place = where.at[plan.node]
    for _, id in ipairs(place and splitting.reads(plan) or {}) do
      if s.model.variables[id] then
        local first = reader[id] or place
        errors.check(first.ipu == place.ipu, "popart_exception", "Can not copy variable tensor %s "
          .. "between virtual graphs when pipelining. All pipeline stages using this tensor should "
          .. "be on the same graph.", id)
        reader[id] = first
      end
    end
  end
end

-- What a node reads was made before its stage.
local function check_order(s, where)
  local made = {}
  for _, plan in ipairs(s.model.graph.nodes) do
    local stage = (where.at[plan.node] or {}).stage
    for _, id in ipairs(stage and splitting.reads(plan) or {}) do
      errors.check((made[id] or stage) <= stage, "popart_exception", "Tensor %s is consumed in an "
        .. "earlier pipeline stage than it is produced: %s in stage %d, made in %s", id,
        name_of(plan.node), stage, tostring(made[id]))
    end
    for _, id in ipairs(plan.outputs) do
      made[id] = stage
    end
  end
end

local function pipelined(s, where)
  local n = number_of_stages(stages(s, where))
  check_variables(s, where)
  check_order(s, where)
  option_rules.check_depth(s.options, s.batches, s.training and 2 * n - 1 or n)
  -- updates of each batch alone leave no batches to overlap
  where.idle = s.training and s.accumulation == 1
  where.strategy = where.idle and "sharded" or "pipelined"
end

-- ---- bodies ------------------------------------------------------------------------------

-- Attributes of places, and what a place has of them where they count.
local ATTRIBUTES = {
  { "virtualGraph", "virtual graph id", function(place)
    return not place.phase and place.ipu
  end },
  { "pipelineStage", "pipeline stage", function(place)
    return place.stage
  end },
  { "executionPhase", "execution phase", function(place)
    return place.phase
  end },
}

-- What a node's own graph has lies where the node does.
local function check_bodies(s, where)
  local at = {}
  s.model.graph:walk(function(plan, owner)
    at[plan] = owner and at[owner] or where.at[plan.node]
    for _, row in ipairs(owner and at[plan] and ATTRIBUTES or {}) do
      local own, have = number_of(plan.node, NAMES[row[1]]), row[3](at[plan])
      errors.check(not own or not have or own == have or own < 0, "popart_exception",
        "The %s %s for %s in a subgraph does not match the %s %s of the calling op %s: the body of "
        .. "a loop, branch or call runs where that does", row[2], own, name_of(plan.node), row[2],
        have, name_of(owner.node))
    end
  end)
end

--- Where nodes are, for popart.traced; those of a node's own graphs are where it is.
---
--- s: model, options, training, batches, accumulation, and types(), of all its tensors.
--- error: popart_exception for options or attributes that do not go together
---@param s table
---@param ipus integer of one replica
---@return table where at ({ipu, stage, phase} by node), strategy, idle (a pipeline whose
---  batches do not overlap)
function M.of(s, ipus)
  local o, where = s.options, { at = {}, strategy = "sharded" }
  local mode = o.virtualGraphMode.name
  if mode == "ExecutionPhases" and o.executionPhaseSettings.phases > 1 then
    phased(s, where, ipus)
  elseif mode == "Manual" or mode == "Auto" then
    if check_graphs(s, mode) then
      manual(s, where, ipus)
    else
      automatic(s, where, ipus)
    end
  end
  if o.enablePipelining then
    pipelined(s, where)
  end
  check_bodies(s, where)
  return where
end

return M
