--- Variables of the environment, each checked where it is read: a value that cannot
--- be meant is an error that names the variable. Empty is as good as not set.
local errors = require("lupine.base.errors")

local M = {}

--- A variable's text; nil if it is not set, or empty.
---@param name string
---@return string?
function M.text(name)
  local text = os.getenv(name)
  return text ~= "" and text or nil
end

--- A variable's whole number; `default` if it is not set.
--- error: ValueError for another text, or a number below `least`
---@generic T
---@param name string
---@param default T
---@param least? integer
---@return integer|T
function M.integer(name, default, least)
  local text = M.text(name)
  if not text then
    return default
  end
  local n = math.tointeger(tonumber(text))
  errors.check(n and n >= (least or n), "ValueError", "%s: expected an integer%s, got '%s'", name,
    least and " >= " .. least or "", text)
  return n
end

--- A switch: a whole number, 0 is off, as it is if it is not set.
--- error: ValueError for another text
---@param name string
---@return boolean
function M.flag(name)
  return M.integer(name, 0) ~= 0
end

return M
