--- Where an executor keeps what is its own: its methods and its state. What it
--- has else is the user's model's.
local errors = require("lupine.base.errors")

local KEY = {}

local M = { KEY = KEY }

--- The state of an executor: options, training, optimizer, model, and, once it is
--- compiled, session and what running.lua and completing.lua note.
---@param executor poptorch.PoplarExecutor
---@return table
function M.state(executor)
  return rawget(executor, KEY)
end

--- The state of a compiled one.
--- error: poptorch.Error
---@param executor poptorch.PoplarExecutor
---@param what string the method that asks
---@return table
function M.compiled(executor, what)
  local s = rawget(executor, KEY)
  errors.check(s.session, "Error", "%s: the model is not compiled (or was destroyed)", what)
  return s
end

--- The state of a compiled one that has its device.
--- error: poptorch.Error
---@param executor poptorch.PoplarExecutor
---@param what string the method that asks
---@return table
function M.attached(executor, what)
  local s = M.compiled(executor, what)
  errors.check(s.session.attached, "Error", "%s: the model is not attached to a device", what)
  return s
end

return M
