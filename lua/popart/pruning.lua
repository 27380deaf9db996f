--- Whether a program has anything to do: operators that neither an anchor nor an update of
--- a weight needs are pruned, and a graph of no others is none.
---
--- Source: PopART, prune.cpp.
local errors = require("popart.errors")

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

-- The names that a value follows from, its own among them.
local function ancestors(plans, id)
  local names = { [id] = true }
  for i = #plans, 1, -1 do
    local needed = false
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
  local names = s.training and ancestors(s.model.graph.nodes, s.loss) or {}
  for name in pairs(names) do
    if s.model.role[name] == "parameter" then
      return true
    end
  end
  return false
end

--- error: popart_exception for a graph of which nothing is left
---@param s table model, traced, training, loss
---@param anchors string[] names of the graph's tensors
function M.check(s, anchors)
  local scope, made = s.traced.scope, {}
  for _, plan in ipairs(s.model.graph.nodes) do
    if has_effect(plan, s.training) then
      return
    end
    for _, id in ipairs(plan.outputs) do
      made[id] = true
    end
  end
  for _, id in ipairs(anchors) do
    if made[id] and not scope:is_known(id) then
      return
    end
  end
  errors.check(trains(s), "popart_exception",
    "All operations in the main graph were pruned, nothing to compute")
end

return M
