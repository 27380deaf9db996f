--- Tables of functions and classes whose unknown names raise, as a Python
--- module's do, instead of being nil.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

--- Raises for a name that the table `t` does not have.
---@param t table
---@param name any
---@param title string  of the table, in messages
function M.unknown(t, name, title)
  require("lupine.base.absent")(title, name)
  local names = tables.keys(t, function(key)
    return type(key) == "string" and not key:find("^_")
  end)
  local near = type(name) == "string" and core.nearest(name, names)
  errors.raise("AttributeError", "module '%s' has no attribute '%s'%s", title, tostring(name),
    near and ("; did you mean '%s'?"):format(near) or "")
end

--- Closes `t`, which is complete: reading any other string raises.
---@param t table
---@param title string
---@return table t
function M.close(t, title)
  return setmetatable(t, {
    __index = function(_, name)
      if type(name) == "string" then
        M.unknown(t, name, title)
      end
    end,
  })
end

return M
