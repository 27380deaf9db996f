--- What a session keeps to itself.
local errors = require("lupine.base.errors")

local M = {}

--- The state of a session.
--- error: TypeError for what is none: a method that was called with a point
---@param self popart.Session
---@return table s
function M.state(self)
  local s = type(self) == "table" and rawget(self, "_s")
  return s or errors.raise("TypeError", "the method belongs to a session: call it with a colon, "
    .. "session:run(stepio)")
end

return M
