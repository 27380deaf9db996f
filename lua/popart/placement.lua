--- Where a session's program runs: what of the nodes' attributes counts, and the
--- strategy that the simulated system plans with.
---
--- Source: PopART user guide, SessionOptions; its verification of virtual graphs,
--- pipelines and execution phases.
local errors = require("popart.errors")
local node_attributes = require("popart.node_attributes")
local proto = require("lupine.onnx.proto")

local NAMES = node_attributes.NAMES

local M = {}

-- Nodes that give constants run nowhere.
local NOWHERE = { Constant = true, ConstantOfShape = true, Shape = true, Size = true }

-- How many of the graph's nodes have an attribute, and one that has not.
local function count(nodes, name)
  local with, all, without = 0, 0, nil
  for _, node in ipairs(nodes) do
    if not NOWHERE[node.op_type] then
      all = all + 1
      if proto.find(node, name) then
        with = with + 1
      else
        without = without or node
      end
    end
  end
  return with, all, without
end

local function name_of(node)
  return (node.name or "") ~= "" and node.name or ("%s giving %s"):format(node.op_type,
    tostring(node.output[1]))
end

local function check_graphs(nodes, mode)
  local with, all, without = count(nodes, NAMES.virtualGraph)
  errors.check(mode ~= "Manual" or with > 0 or all == 0, "popart_exception",
    "No Ops have virtual graph ids set, and the virtualGraphMode is Manual: set them with "
    .. "builder:virtualGraph, or choose VirtualGraphMode.Auto")
  errors.check(with == 0 or with == all, "popart_exception", "Either all Ops must have their "
    .. "virtual graph ids set, or none must. Op count per virtual graph id: %d with, %d without "
    .. "(%s)", with, all - with, without and name_of(without))
end

local function check_stages(nodes)
  local with, all, without = count(nodes, NAMES.pipelineStage)
  errors.check(with == 0 or with == all, "popart_exception", "Only some ops have had their "
    .. "pipeline stage set. Ops missing the pipeline stage: %s", without and name_of(without))
  return with > 0
end

-- A stage has one virtual graph.
local function same_graph(graph_of, node, stage, ipu)
  local first = graph_of[stage]
  errors.check(not first or first.ipu == ipu, "popart_exception", "Ops %s and %s have the same "
    .. "pipeline stage %s, but different virtual graph ids %s and %s. All ops with the same "
    .. "pipeline stage must also have the same virtual graph id", first and name_of(first.node),
    name_of(node), stage, first and first.ipu, ipu)
  graph_of[stage] = first or { node = node, ipu = ipu }
end

--- What of the attributes counts, for popart.traced.
--- error: popart_exception for options or attributes that do not go together
---@param model popart.Model
---@param o popart.SessionOptions
---@param ipus integer of one replica
---@return table where graphs, stages, phases (whether they count), check(node, …), strategy
function M.of(model, o, ipus)
  local nodes, mode = model.proto.graph.node, o.virtualGraphMode.name
  local where = { strategy = "sharded" }
  where.graphs = mode == "Manual" or mode == "Auto"
  if where.graphs then
    check_graphs(nodes, mode)
  end
  local phases = o.executionPhaseSettings.phases
  where.phases = mode == "ExecutionPhases" and phases > 1
  where.stages = o.enablePipelining
  local graph_of = {}
  local own = o.enablePipelining and check_stages(nodes)
  function where.check(node, ipu, stage)
    if own and stage then
      same_graph(graph_of, node, stage, ipu)
    end
    errors.check(not ipu or ipu < ipus, "popart_exception", "%s has the virtual graph id %s, the "
      .. "device has %d IPUs for each replica", name_of(node), ipu, ipus)
  end
  where.strategy = o.enablePipelining and "pipelined"
    or where.phases and (o.executionPhaseSettings.stages == 1 and "serial_phased"
      or "parallel_phased") or "sharded"
  return where
end

return M
