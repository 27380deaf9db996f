--- How values print in Python: what modules and optimizers show of their
--- settings.
local check = require("lupine.base.check")

local M = {}

local function float(v)
  if v ~= v then
    return "nan"
  elseif v == math.huge or v == -math.huge then
    return v > 0 and "inf" or "-inf"
  end
  local text
  for digits = 1, 17 do
    text = ("%." .. digits .. "g"):format(v)
    if tonumber(text) == v then
      break
    end
  end
  local exponent = math.tointeger(v ~= 0 and math.floor(math.log(math.abs(v), 10) + 1e-12) or 0)
  if exponent >= 16 or exponent < -4 then
    text = text:find("e", 1, true) and text or ("%e"):format(v):gsub("%.?0+e", "e")
    return text
  elseif text:find("e", 1, true) then -- %g is scientific earlier than Python
    text = ("%.0f"):format(v)
  end
  return text:find("[%.n]") and text or text .. ".0"
end

--- repr of a value: 1e-05, 2.0, True, None, 'text', (3, 3).
---@param v any
---@return string
function M.repr(v)
  if check.is_none(v) then
    return "None"
  elseif v == true then
    return "True"
  elseif v == false then
    return "False"
  elseif math.type(v) == "float" then
    return float(v)
  elseif type(v) == "string" then
    return ("'%s'"):format(v)
  elseif type(v) == "table" and (not getmetatable(v) or #v > 0) then
    local parts = {}
    for i = 1, #v do
      parts[i] = M.repr(v[i])
    end
    return "(" .. table.concat(parts, ", ") .. (#v == 1 and ",)" or ")")
  end
  return tostring(v)
end

--- Fills {name} with the repr of fields and {name?} with whether they are set.
---@param template string
---@param fields table
---@return string
function M.fill(template, fields)
  return (template:gsub("{([%w_]+)(%??)}", function(name, asked)
    local value = fields[name]
    if asked == "?" then
      return value ~= nil and value ~= false and "True" or "False"
    end
    return M.repr(value)
  end))
end

--- Indents all lines but the first, as nested modules are printed.
---@param text string
---@return string
function M.indent(text)
  return (text:gsub("\n", "\n  "))
end

return M
