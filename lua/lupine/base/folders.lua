--- Files in folders that a user names in an option.
local errors = require("lupine.base.errors")

local M = {}

--- The path of a file in a folder; "" is the current one.
---@param folder string
---@param name string
---@return string
function M.path(folder, name)
  return folder == "" and name or ("%s/%s"):format(folder, name)
end

--- Runs a function that writes into a folder; its errors name the option that asked
--- for it, and the folder.
---@param option string
---@param folder string
---@param f fun(...)
---@param ... any its arguments
function M.writing(option, folder, f, ...)
  errors.within(("%s: the folder '%s' cannot be written"):format(option, folder), f, ...)
end

return M
