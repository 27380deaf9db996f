--- What initializers of a graph are used for: whether they are weights, statistics or
--- constants.
local M = {}

local BUFFER_INPUTS = { BatchNormalization = { [4] = true, [5] = true } }

local function use_of(plan, i)
  local constants = plan.operator.constants
  return constants and constants[i] and "constant"
    or (BUFFER_INPUTS[plan.op] or {})[i] and "buffer" or "parameter"
end

local uses

local function uses_of_call(body)
  body.used = body.used or uses(body.nodes)
  return body.used
end

-- How the values of an initializer are used: "parameter", "buffer" or "constant".
function uses(nodes, into)
  into = into or {}
  for _, plan in ipairs(nodes) do
    local within = plan.call and uses_of_call(plan.call)
    for i, name in ipairs(plan.inputs) do
      local kind = within and (within[plan.call.inputs[i]] or "constant")
        or not within and use_of(plan, i)
      if into[name] ~= "parameter" then
        into[name] = kind == "constant" and into[name] or kind
      end
    end
    for _, body in pairs(plan.bodies) do
      uses(body.nodes, into)
    end
  end
  return into
end

--- What the values that nodes read are, by name: "parameter", "buffer" (statistics,
--- which training changes without a gradient) or "constant" (they decide shapes).
---@param nodes table[] plans
---@return table<string, string>
function M.of(nodes)
  return uses(nodes)
end

return M
