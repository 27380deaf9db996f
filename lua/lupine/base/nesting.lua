--- Tables in tables: what is walked to its leaves must end, and must not be deeper
--- than the walk can go.
local errors = require("lupine.base.errors")

local M = {}

--- Levels that a structure may have.
M.DEEPEST = 10000

-- What is wrong with a table, and the path to where: "[2].x".
local function fault(value, seen, depth)
  if seen[value] or depth > M.DEEPEST then
    return seen[value] and "a table that contains itself (a cycle)"
      or ("tables nested more than %d deep"):format(M.DEEPEST), ""
  end
  seen[value] = true
  for key, part in next, value do
    if type(part) == "table" and not getmetatable(part) and seen[part] ~= false then
      local why, path = fault(part, seen, depth + 1)
      if why then
        return why, (type(key) == "string" and ".%s%s" or "[%s]%s"):format(tostring(key), path)
      end
    end
  end
  seen[value] = false -- it ends: no need to walk it again
  return nil
end

-- Paths into deep structures are long.
local LONGEST = 60

--- The value, if it is no plain table or one whose tables end.
--- error: of class `class`, naming the place, for a cycle and for more than
--- DEEPEST levels
---@generic T
---@param value T
---@param where string what it is
---@param class string
---@return T
function M.check(value, where, class)
  if type(value) == "table" and not getmetatable(value) then
    local why, path = fault(value, {}, 1)
    if why then
      path = #path <= LONGEST and path or path:sub(1, LONGEST) .. "…"
      errors.raise(class, "%s%s: %s", where, path, why)
    end
  end
  return value
end

return M
