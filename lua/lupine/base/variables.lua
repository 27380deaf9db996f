--- Variables of the environment, each checked where it is read: a value that cannot
--- be meant is an error that names the variable. Empty is as good as not set.
local core = require("lupine.core")
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

--- The JSON object that a variable's text is, its values not checked.
--- error: `class` for a text that is none
---@param name string
---@param text string
---@param class string
---@return table<string, any>
function M.object(name, text, class)
  local ok, given = pcall(core.json_decode, text)
  local why = not ok and errors.Exception:is(given) and ": " .. given.message or ""
  errors.check(ok and type(given) == "table" and not getmetatable(given), class,
    "%s: expected a JSON object such as '{\"name\": \"value\"}', got '%s'%s", name, text, why)
  return given
end

--- A switch: a whole number, 0 is off, as it is if it is not set.
--- error: ValueError for another text
---@param name string
---@return boolean
function M.flag(name)
  return M.integer(name, 0) ~= 0
end

return M
