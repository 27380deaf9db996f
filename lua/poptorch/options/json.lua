--- A strict JSON reader for POPTORCH_DEFAULT_OPTIONS, and its application to
--- options. Small on purpose: the options need no library. null is nil; an
--- array has the metatable M.Array and its length in `n`.
local check = require("lupine.check")
local config_file = require("poptorch.options.config_file")
local errors = require("torch.errors")
local Group = require("poptorch.options.group")
local shortened = require("poptorch.options.python").shortened

local M = { Array = {} }

local DEEPEST = 64
local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"',
  ["\\"] = "\\", ["/"] = "/" }
local WORDS = { ["true"] = true, ["false"] = false }

local function fail(text, at, what)
  local _, line = text:sub(1, at - 1):gsub("\n", "")
  errors.raise("ValueError", "JSON, line %d, byte %d: %s", line + 1, at, what)
end

local function skip(text, at)
  return text:find("[^ \t\r\n]", at) or #text + 1
end

local function read_string(text, at)
  local out, i = {}, at + 1
  while true do
    local j = text:find('["\\%c]', i) or fail(text, at, "a string without its end")
    out[#out + 1] = text:sub(i, j - 1)
    local c = text:sub(j, j)
    if c == '"' then
      return table.concat(out), j + 1
    elseif c ~= "\\" then
      fail(text, j, "a control character in a string")
    end
    local escape = text:sub(j + 1, j + 1)
    if escape == "u" then
      local hex = text:match("^%x%x%x%x", j + 2) or fail(text, j, "expected \\u and 4 digits")
      local code = tonumber(hex, 16)
      i = j + 6
      if code >= 0xD800 and code < 0xE000 then -- a pair of UTF-16
        local low = code < 0xDC00 and text:match("^\\u([dD][c-fC-F]%x%x)", i)
        code = low and 0x10000 + (code - 0xD800) * 0x400 + tonumber(low, 16) - 0xDC00
          or fail(text, j, "half a surrogate pair")
        i = i + 6
      end
      out[#out + 1] = utf8.char(code)
    else
      out[#out + 1] = ESCAPES[escape] or fail(text, j, "unknown escape \\" .. escape)
      i = j + 2
    end
  end
end

local read

-- The elements of an array or object, up to `close`; `item` reads one.
local function read_list(text, at, close, depth, item)
  if depth > DEEPEST then
    fail(text, at, "nested too deeply")
  end
  at = skip(text, at + 1)
  if text:sub(at, at) == close then
    return at + 1
  end
  while true do
    at = skip(text, item(skip(text, at)))
    local c = text:sub(at, at)
    if c == close then
      return at + 1
    elseif c ~= "," then
      fail(text, at, ("expected ',' or '%s'"):format(close))
    end
    at = at + 1
  end
end

function read(text, at, depth)
  local c = text:sub(at, at)
  if c == "{" then
    local object = {}
    return object, read_list(text, at, "}", depth, function(i)
      if text:sub(i, i) ~= '"' then
        fail(text, i, "expected a key in double quotes")
      end
      local key, after = read_string(text, i)
      after = skip(text, after)
      if text:sub(after, after) ~= ":" or object[key] ~= nil then
        fail(text, i, object[key] ~= nil and "a key given twice" or "expected ':' after the key")
      end
      object[key], after = read(text, skip(text, after + 1), depth + 1)
      return after
    end)
  elseif c == "[" then
    local array = setmetatable({ n = 0 }, M.Array)
    return array, read_list(text, at, "]", depth, function(i)
      array.n = array.n + 1
      local value, after = read(text, i, depth + 1)
      array[array.n] = value
      return after
    end)
  elseif c == '"' then
    return read_string(text, at)
  end
  local word = text:match("^%a+", at)
  if word == "null" or WORDS[word or ""] ~= nil then
    return WORDS[word], at + #word
  end
  local number = text:match("^-?%d+%.?%d*[eE]?[+-]?%d*", at)
  local value = number and not number:find("^-?0%d") and not number:find("%.$")
    and not number:find("%.[eE]") and tonumber(number)
  if not value then
    fail(text, at, "expected a value")
  end
  return value, at + #number
end

--- The value of a JSON text.
---@param text string
---@return any
function M.decode(text)
  local value, at = read(text, skip(text, 1), 1)
  at = skip(text, at)
  if at <= #text then
    fail(text, at, "text after the value")
  end
  return value
end

-- "OutputMode.All" -> the member; any other string stays.
local function enum_or_string(value)
  if type(value) ~= "string" then
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
  local object = M.decode(text)
  if type(object) ~= "table" or getmetatable(object) == M.Array then
    errors.raise("ValueError", "options in JSON: expected an object, got %s",
      check.describe(object))
  end
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
    if getmetatable(value) == M.Array then
      for i = 1, value.n do
        value[i] = enum_or_string(value[i])
      end
      method(target.of, table.unpack(value, 1, value.n))
    else
      method(target.of, enum_or_string(value))
    end
  end
end

return M
