--- What of a program neither an anchor nor an update of a weight needs is pruned: its
--- operators, of which a graph must have others, and inputs, which are read from no stream.
---
--- Source: PopART, prune.cpp.
local errors = require("popart.errors")
local tables = require("lupine.base.tables")

local M = {}

-- Whether a node does more than compute, or one in its bodies.
local function has_effect(plan, training)
  local o = plan.operator
  if o and (o.effect or training and o.buffers and #plan.outputs > 1) then
    return true
  end
  local within = { plan.call }
  for _, body in pairs(plan.bodies) do
    within[#within + 1] = body
  end
  for _, body in ipairs(within) do
    for _, inner in ipairs(body.nodes) do
      if has_effect(inner, training) then
        return true
      end
    end
  end
  return false
end

-- The names that some values follow from, their own among them, and of nodes that `keeps`
-- tells of.
local function ancestors(plans, names, keeps)
  for i = #plans, 1, -1 do
    local needed = keeps and keeps(plans[i]) or false
    for _, output in ipairs(plans[i].outputs) do
      needed = needed or names[output]
    end
    for _, input in ipairs(needed and plans[i].inputs or {}) do
      names[input] = true
    end
    for _, body in pairs(needed and plans[i].bodies or {}) do
      for name in pairs(body.captured) do
        names[name] = true
      end
    end
  end
  return names
end

local function trains(s)
  local names = s.training and ancestors(s.model.graph.nodes, { [s.loss] = true }) or {}
  for name in pairs(names) do
    if s.model.role[name] == "parameter" then
      return true
    end
  end
  return false
end

--- The names of all that the program's results, updates and effects follow from.
---@param s table model, flow, training, loss
---@param anchors string[] names of the graph's tensors
---@return table<string, boolean>
function M.needed(s, anchors)
  local names = tables.set(anchors)
  if s.training then
    names[s.loss] = true
  end
  return ancestors(s.model.graph.nodes, names, function(plan)
    return has_effect(plan, s.training)
  end)
end

--- error: popart_exception for a graph of which nothing is left
---@param s table model, traced, flow, training, loss
---@param anchors string[] names of the graph's tensors
function M.check(s, anchors)
  local scope, made, ids = s.traced.scope, {}, s.flow:anchors()
  for _, plan in ipairs(s.model.graph.nodes) do
    if has_effect(plan, s.training) then
      return
    end
    for _, id in ipairs(plan.outputs) do
      made[id] = true
    end
  end
  for i, id in ipairs(anchors) do
    local of_backward = id ~= ids[i] -- such as a gradient
    if of_backward or made[id] and not scope:is_known(id) then
      return
    end
  end
  errors.check(trains(s), "popart_exception",
    "All operations in the main graph were pruned, nothing to compute")
end

return M
