--- What a value of a run file can be. A type turns a node of a document
--- (lua/lupine/run/document.lua) into a value, as the schema's row says, so that the
--- text alone decides nothing: `1e-4` is a number where a number is due and text where
--- a name is.
---
---   read(node, row, key)  -> value; raises ConfigFileError with file and line
---   allowed(row)          -> text of what is allowed, for messages and the manual
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local M = {}

local function shown(node)
  if node.kind ~= "scalar" then
    return node.kind == "map" and "a mapping" or "a list"
  elseif node.text then
    return ("'%s'"):format(#node.text > 60 and node.text:sub(1, 57) .. "..." or node.text)
  end
  return check.describe(node.value)
end

--- Raises for a value: file:line, the key, what is allowed, what was given.
---@param node table
---@param key string
---@param allowed string
function M.refuse(node, key, allowed)
  errors.raise("ConfigFileError", "%s: %s: expected %s, got %s", node.at, key, allowed, shown(node))
end

local NULL = { [""] = true, ["~"] = true, null = true, Null = true, NULL = true }

--- Whether a node says that there is no value.
---@param node table
---@return boolean
function M.is_null(node)
  return node.kind == "scalar"
    and (node.plain and NULL[node.text] or node.text == nil and check.is_none(node.value)) or false
end

local TRUE = { ["true"] = true, True = true, TRUE = true }
local FALSE = { ["false"] = true, False = true, FALSE = true }
local YES = { yes = true, Yes = true, YES = true, on = true, On = true, ON = true }
local NO = { no = true, No = true, NO = true, off = true, Off = true, OFF = true }

-- The number that a text of decimal digits is (and 0x…, 0o…); nil for others, `1e` and
-- Lua's own forms among them.
local function number_of(text)
  local octal = text:match("^0o([0-7]+)$")
  if octal then
    return tonumber(octal, 8)
  elseif text:find("^0x%x+$") then
    return math.tointeger(tonumber(text))
  end
  local mantissa, exponent = text:match("^[-+]?([%d.]+)([eE]?[-+]?%d*)$")
  if not mantissa or not mantissa:find("%d") or select(2, mantissa:gsub("%.", "")) > 1
    or exponent ~= "" and not exponent:find("^[eE][-+]?%d+$") then
    local sign = text:match("^([-+]?)%.[iI][nN][fF]$")
    return sign and (sign == "-" and -math.huge or math.huge)
      or text:find("^%.[nN][aA][nN]$") and 0 / 0 or nil
  end
  local digits = text:gsub("^%+", "")
  if exponent == "" and not mantissa:find("%.") then -- "010" is ten
    return math.tointeger(tonumber(digits)) or tonumber(digits .. ".0")
  end
  return tonumber(digits)
end

--- A value whose type no schema knows, by YAML 1.2's core schema: arguments of a
--- user's own class. Quoted text is text.
---@param node table a scalar
---@return any
function M.guess(node)
  if node.text == nil then
    return node.value
  elseif not node.plain then
    return node.text
  elseif M.is_null(node) then
    return nil
  elseif TRUE[node.text] or FALSE[node.text] then
    return TRUE[node.text] or false
  end
  local number = number_of(node.text)
  return number == nil and node.text or number
end

local function in_range(value, row)
  return (not row.min or value >= row.min) and (not row.max or value <= row.max)
    and (not row.above or value > row.above) and (not row.below or value < row.below)
end

local BOUNDS = { { "min", ">=" }, { "above", ">" }, { "max", "<=" }, { "below", "<" } }

local function range(row)
  local parts = {}
  for _, bound in ipairs(BOUNDS) do
    if row[bound[1]] then
      parts[#parts + 1] = ("%s %s"):format(bound[2], row[bound[1]])
    end
  end
  return #parts > 0 and " " .. table.concat(parts, " and ") or ""
end

local function number(node)
  if node.kind ~= "scalar" then
    return nil
  elseif node.text then
    return node.plain and number_of(node.text) or nil
  end
  return type(node.value) == "number" and node.value or nil
end

M.int = {
  allowed = function(row)
    return "an int" .. range(row)
  end,
  read = function(node, row, key)
    local value = number(node)
    value = value and math.tointeger(value) -- 1e5 is an int, too
    if not value or not in_range(value, row) then
      M.refuse(node, key, M.int.allowed(row))
    end
    return value
  end,
}

M.float = {
  allowed = function(row)
    return "a number" .. range(row)
  end,
  read = function(node, row, key)
    local value = number(node)
    if not value or value ~= value or not in_range(value, row) then
      M.refuse(node, key, M.float.allowed(row))
    end
    return value + 0.0
  end,
}

M.bool = {
  allowed = function()
    return "true or false"
  end,
  read = function(node, _, key)
    local text = node.plain and node.text
    if text and (TRUE[text] or YES[text]) or node.value == true then
      return true
    elseif text and (FALSE[text] or NO[text]) or node.value == false then
      return false
    end
    return M.refuse(node, key, M.bool.allowed())
  end,
}

M.string = {
  allowed = function(row)
    return row.what or "a text"
  end,
  read = function(node, row, key)
    local value = node.kind == "scalar" and (node.text or node.value)
    if type(value) == "number" then
      value = tostring(value)
    end
    if type(value) ~= "string" or row.match and not value:find(row.match) then
      M.refuse(node, key, M.string.allowed(row))
    end
    return value
  end,
}

M.enum = {
  allowed = function(row)
    return "one of " .. table.concat(row.values, ", ")
  end,
  read = function(node, row, key)
    local value = node.kind == "scalar" and (node.text or node.value)
    for _, allowed in ipairs(row.values) do
      if value == allowed then
        return value
      end
    end
    local near = type(value) == "string" and check.nearest(value, row.values) or ""
    return M.refuse(node, key, M.enum.allowed(row) .. near)
  end,
}

-- "500 steps", "1 epoch", 500: how often something happens.
M.every = {
  allowed = function()
    return "a count of steps or epochs, as in '500 steps' or '1 epoch'"
  end,
  read = function(node, _, key)
    local text = node.kind == "scalar" and tostring(node.text or node.value) or ""
    local count, unit = text:match("^(%d+)%s*(%a*)$")
    count = math.tointeger(tonumber(count))
    unit = unit == "" and "step" or (unit or ""):gsub("s$", "")
    if not count or count < 1 or unit ~= "step" and unit ~= "epoch" then
      M.refuse(node, key, M.every.allowed())
    end
    return { count = count, unit = unit }
  end,
}

local function guess_all(node, key)
  if node.kind == "scalar" then
    return M.guess(node)
  end
  local out = {}
  if node.kind == "list" then
    for i, item in ipairs(node.items) do
      local value = guess_all(item, key)
      if value == nil then
        M.refuse(item, ("%s[%d]"):format(key, i), "a value; a list has no holes")
      end
      out[i] = value
    end
  else
    for _, name in ipairs(node.keys) do
      out[name] = guess_all(node.values[name], key .. "." .. name)
    end
  end
  return out
end

M.any = {
  allowed = function(row)
    return row.what or "any value"
  end,
  read = function(node, _, key)
    return guess_all(node, key)
  end,
}

M.list = {
  allowed = function(row)
    return "a list, each item " .. M[row.of.type].allowed(row.of)
  end,
  read = function(node, row, key)
    local items = node.kind == "list" and node.items or { node } -- one by itself is a list of one
    local out = {}
    for i, item in ipairs(items) do
      out[i] = M[row.of.type].read(item, row.of, ("%s[%d]"):format(key, i))
    end
    return out
  end,
}

local OBJECT = "a class or function by its name, or {class: NAME, args: {…}}"

-- Something that a class makes: its name and arguments. Where they stand goes along for
-- messages of the class itself, which speaks of its arguments only when it is called.
M.object = {
  allowed = function(row)
    return row.what and ("%s: %s"):format(row.what, OBJECT) or OBJECT
  end,
  read = function(node, row, key)
    if node.kind ~= "map" then
      return { class = M.string.read(node, { what = M.object.allowed(row) }, key), args = {},
        at = node.at }
    end
    for _, name in ipairs(node.keys) do
      if name ~= "class" and name ~= "args" then
        errors.raise("ConfigFileError", "%s: %s: unknown key '%s'; allowed are class, args%s",
          node.values[name].at, key, name, check.nearest(name, { "class", "args" }))
      end
    end
    if not node.values.class then
      M.refuse(node, key, M.object.allowed(row))
    end
    local args = node.values.args
    local args_at = {}
    for _, name in ipairs(args and args.kind == "map" and args.keys or {}) do
      args_at[#args_at + 1] = args.values[name].at
    end
    return {
      class = M.string.read(node.values.class, { what = "the name of a class or function" },
        key .. ".class"),
      args = args and not M.is_null(args)
        and M.any.read(args, { what = "arguments by name, or a list of them" }, key .. ".args")
        or {},
      at = node.values.class.at,
      args_at = args_at,
    }
  end,
}

return M
