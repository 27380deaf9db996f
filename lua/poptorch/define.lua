--- Functions that take arguments by position or by name: what poptorch's
--- operators and helpers are made with.
local check = require("lupine.base.check")
local pieces = require("lupine.base.pieces")
local signatures = require("lupine.base.signatures")

--- "NAME(parameters)" as fn(values in order).
---@param text string
---@param fn function
---@param tables? table<string, string> as of check.arguments
---@return function
return function(text, fn, tables)
  local name, inside = text:match("^([%w_]+)%((.*)%)$")
  local names = {}
  for i, piece in ipairs(pieces(inside)) do
    names[i] = piece:match("^[%w_]+")
  end
  local function defined(...)
    return fn(table.unpack(check.arguments(name, names, tables, ...), 1, #names))
  end
  signatures.note(defined, text)
  return defined
end
