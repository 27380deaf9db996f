--- What initializers of a graph are used for: whether they are weights, statistics or
--- constants.
local M = {}

-- Flags of operators that say how they use the values of an input, and what it is for
-- them; else it is a parameter. Of several uses the strongest counts.
local FLAGS = { constants = "constant", buffers = "buffer", updates = "updated" }
local STRENGTH = { constant = 1, buffer = 2, parameter = 3, updated = 4 }

local function use_of(plan, i)
  for flag, use in pairs(FLAGS) do
    if (plan.operator[flag] or {})[i] then
      return use
    end
  end
  return "parameter"
end

local uses

-- The graph whose inputs a node's are, and what it uses them for; nil: it calls none.
local function called(plan)
  local body = plan.call or plan.operator.calls and plan.bodies[plan.operator.calls]
  if body then
    body.used = body.used or uses(body.nodes)
  end
  return body
end

function uses(nodes, into)
  into = into or {}
  for _, plan in ipairs(nodes) do
    local within = called(plan)
    for i, name in ipairs(plan.inputs) do
      local use = within and (within.used[within.inputs[i]] or "constant") or use_of(plan, i)
      if STRENGTH[use] > (STRENGTH[into[name]] or 0) then
        into[name] = use
      end
    end
    for _, body in pairs(plan.bodies) do
      uses(body.nodes, into)
    end
  end
  return into
end

--- What the values that nodes read are, by name: "parameter", "buffer" (statistics, which
--- training changes without a gradient, and variables that nodes write, of any dtype) or
--- "constant" (they decide shapes); nil for what is not read.
---@param nodes table[] plans
---@return table<string, string>
function M.of(nodes)
  local out = {}
  for name, use in pairs(uses(nodes)) do
    out[name] = use == "updated" and "buffer" or use
  end
  return out
end

return M
