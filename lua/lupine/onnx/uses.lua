--- What initializers of a graph are used for: whether they are weights, statistics or
--- constants.
local M = {}

-- How operators use the values of an input (flags of their rows, "parameters" unless
-- said); of several uses the stronger one counts.
local STRENGTH = { constants = 1, buffers = 2, parameters = 3, updates = 4 }

local function use_of(plan, i)
  for use in pairs(STRENGTH) do
    if (plan.operator[use] or {})[i] then
      return use
    end
  end
  return "parameters"
end

local uses

local function uses_of_call(body)
  body.used = body.used or uses(body.nodes)
  return body.used
end

function uses(nodes, into)
  into = into or {}
  for _, plan in ipairs(nodes) do
    local within = plan.call and uses_of_call(plan.call)
    for i, name in ipairs(plan.inputs) do
      local use = within and (within[plan.call.inputs[i]] or "constants")
        or not within and use_of(plan, i)
      if STRENGTH[use] > STRENGTH[into[name] or "constants"] then
        into[name] = use
      end
    end
    for _, body in pairs(plan.bodies) do
      uses(body.nodes, into)
    end
  end
  return into
end

--- What the values that nodes read are, by name: "parameters", "buffers" (statistics,
--- which training changes without a gradient), "updates" (variables that nodes write);
--- nil for what decides shapes, or is not read.
---@param nodes table[] plans
---@return table<string, string>
function M.of(nodes)
  return uses(nodes)
end

return M
