--- Options as a JSON object (POPTORCH_DEFAULT_OPTIONS): its names are setters.
local config_file = require("poptorch.options.config_file")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local shortened = require("poptorch.options.python").shortened

local M = {}

-- null -> nil, "OutputMode.All" -> the member; anything else stays.
local function argument(value)
  if value == core.none then
    return nil
  elseif type(value) ~= "string" then
    return value
  end
  local name, member = value:match("^([%a_]+)%.([%a_]+)$")
  local enumeration = name and require("poptorch.enums")[name]
  for _, m in ipairs(enumeration and enumeration:members() or {}) do
    if m.name == member then
      return m
    end
  end
  return value
end

--- Calls the setters that a JSON object names, in alphabetic order.
---@param options poptorch.Options
---@param text string
function M.apply(options, text)
  local object = core.json_decode(text)
  errors.check(type(object) == "table" and not getmetatable(object), "ValueError",
    "options in JSON: expected an object")
  local keys = {}
  for key in pairs(object) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local value = object[key]
    local target, from = options, 1
    repeat
      local dot = key:find(".", from, true)
      target = config_file.attribute(target, key:sub(from, (dot or 0) - 1))
      from = (dot or 0) + 1
    until not dot
    local method = not Group:is(target) and target.method
    errors.check(method, "AttributeError", "options in JSON: '%s' is no setter", shortened(key))
    if getmetatable(value) == core.json_array then
      for i = 1, value.n do
        value[i] = argument(value[i])
      end
      method(target.of, table.unpack(value, 1, value.n))
    else
      method(target.of, argument(value))
    end
  end
end

return M
