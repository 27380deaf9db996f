--- Sizes per dimension, given as one number for all or as a list.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local M = {}

--- A list of n integers.
---@param value integer|integer[]
---@param n integer
---@param where string for messages
---@return integer[]
function M.of(value, n, where)
  if type(value) == "table" then
    errors.check(#value == n, "ValueError", "%s: expected %d values, got %d", where, n, #value)
    local list = {}
    for i, v in ipairs(value) do
      list[i] = check.int(v, where)
    end
    return list
  end
  value = check.int(value, where)
  local out = {}
  for i = 1, n do
    out[i] = value
  end
  return out
end

--- True if all entries are v.
---@param list any[]
---@param v any
---@return boolean
function M.all(list, v)
  for _, x in ipairs(list) do
    if x ~= v then
      return false
    end
  end
  return true
end

--- {a, b} -> {b, b, a, a}: padding per dimension in the order of F.pad.
---@param list any[]
---@return any[]
function M.reversed_twice(list)
  local out = {}
  for i = #list, 1, -1 do
    out[#out + 1] = list[i]
    out[#out + 1] = list[i]
  end
  return out
end

return M
