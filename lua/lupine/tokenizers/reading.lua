--- Checked fields of a tokenizer's description, which comes from a file of anybody: every
--- value is of the type that is used, and an error says where it stands.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

--- Raises ValueError for what stands at a place.
---@param where string
---@param fmt string
---@param ... any
function M.fail(where, fmt, ...)
  errors.raise("ValueError", "tokenizer: %s: %s", where, fmt:format(...))
end

local function wrong(where, kind, value)
  M.fail(where, "expected %s, got %s", kind, check.describe(value))
end

--- A JSON object.
---@param value any
---@param where string
---@return table<string, any>
function M.object(value, where)
  if type(value) ~= "table" or getmetatable(value) then
    wrong(where, "an object", value)
  end
  return value
end

--- A JSON array, or a plain list.
---@param value any
---@param where string
---@return any[]
function M.array(value, where)
  local mt = type(value) == "table" and getmetatable(value)
  if type(value) ~= "table" or mt and mt ~= core.json_array then
    wrong(where, "an array", value)
  end
  return value
end

local KINDS = {
  string = "string", boolean = "bool", object = M.object, array = M.array,
}

-- A value of a kind, which is not null.
local function of_kind(value, kind, where)
  if kind == "integer" then
    if math.type(value) ~= "integer" or value < 0 or value > 0x7fffffff then
      wrong(where, "an integer in 0..2^31-1", value)
    end
  elseif type(KINDS[kind]) == "function" then
    KINDS[kind](value, where)
  elseif type(value) ~= kind then
    wrong(where, KINDS[kind], value)
  end
  return value
end

--- A field of an object; `default` stands for a missing one or null, without it the field is
--- needed. torch.none as default: nil.
---@param object table<string, any>
---@param name string
---@param kind "string"|"boolean"|"integer"|"object"|"array"
---@param where string of the object
---@param default? any
---@return any
function M.field(object, name, kind, where, default)
  local value = object[name]
  if check.is_none(value) then
    if default == nil then
      M.fail(where, "'%s' is missing", name)
    end
    if check.is_none(default) then
      return nil
    end
    return default
  end
  return of_kind(value, kind, where .. "." .. name)
end

--- One of some words; nil if the field is missing and may be.
---@param object table<string, any>
---@param name string
---@param words string[]
---@param where string
---@param default? string
---@return string
function M.word(object, name, words, where, default)
  local value = M.field(object, name, "string", where, default)
  for _, word in ipairs(words) do
    if value == word then
      return value
    end
  end
  return M.fail(where .. "." .. name, "unknown '%s'. Allowed: %s", value,
    table.concat(words, ", "))
end

--- One character.
---@param object table<string, any>
---@param name string
---@param where string
---@param default? string
---@return string
function M.character(object, name, where, default)
  local value = M.field(object, name, "string", where, default)
  if utf8.len(value) ~= 1 then
    M.fail(where .. "." .. name, "expected one character, got %q", value)
  end
  return value
end

-- Parts may hold parts; a file of such is no deeper than this.
local DEEPEST = 32

--- Makes a part of its description by its `type`.
---@param makers table<string, fun(d: table, where: string, depth: integer): any>
---@param description any nil or null: none
---@param where string
---@param depth? integer
---@return any
function M.part(makers, description, where, depth)
  if check.is_none(description) then
    return nil
  end
  depth = depth or 0
  if depth > DEEPEST then
    M.fail(where, "nested more than %d deep", DEEPEST)
  end
  local kind = M.field(M.object(description, where), "type", "string", where)
  if not makers[kind] then
    local names = {}
    for name in next, makers do
      names[#names + 1] = name
    end
    table.sort(names)
    errors.raise("NotImplementedError", "tokenizer: %s: there is no '%s'. Allowed: %s", where, kind,
      table.concat(names, ", "))
  end
  return makers[kind](description, where, depth + 1)
end

--- The parts of a Sequence, whose list has this name.
---@param makers table<string, function>
---@param list_name string
---@return fun(d: table, where: string, depth: integer): any[]
function M.sequence(makers, list_name)
  return function(d, where, depth)
    local parts = {}
    for i, part in ipairs(M.field(d, list_name, "array", where)) do
      parts[i] = M.part(makers, part, ("%s.%s[%d]"):format(where, list_name, i - 1), depth)
    end
    return parts
  end
end

return M
