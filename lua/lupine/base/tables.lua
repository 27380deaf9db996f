--- Helpers for plain tables.
local core = require("lupine.core")

local M = {}

local RANK = { number = 1, string = 2, boolean = 3 }

--- Whether a key stands before another: numbers, strings, then the rest, each
--- sorted.
---@param a any
---@param b any
---@return boolean
function M.before(a, b)
  local x, y = RANK[type(a)] or 4, RANK[type(b)] or 4
  if x ~= y then
    return x < y
  elseif x <= 2 then
    return a < b
  end
  return tostring(a) < tostring(b)
end

--- The keys of a table in an order that is always the same: a dictionary's own
--- (pairs), or else as `before` says.
---@param t table
---@param wanted? fun(key: any, value: any): any whether a key is taken; all unless given
---@return any[]
function M.keys(t, wanted)
  local keys, mt = {}, getmetatable(t)
  for key, value in pairs(t) do
    if not wanted or wanted(key, value) then
      keys[#keys + 1] = key
    end
  end
  if not (type(mt) == "table" and rawget(mt, "__pairs")) then
    table.sort(keys, M.before)
  end
  return keys
end

--- The elements of a list, or the words of a text, as keys.
---@param list any[]|string
---@return table<any, boolean>
function M.set(list)
  local set = {}
  if type(list) == "string" then
    for word in list:gmatch("%S+") do
      set[word] = true
    end
    return set
  end
  for _, element in ipairs(list) do
    set[element] = true
  end
  return set
end

--- A table like `t`, with other fields in place of those of these names.
---@param t table
---@param fields table
---@return table
function M.with(t, fields)
  local out = {}
  for key, value in pairs(t) do
    out[key] = value
  end
  for key, value in pairs(fields) do
    out[key] = value
  end
  return out
end

--- The list as a JSON array, also where it is empty.
---@param t table
---@return table t
function M.array(t)
  return setmetatable(t, core.json_array)
end

return M
