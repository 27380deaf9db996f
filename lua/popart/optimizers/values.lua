--- The numbers of PopART's optimizers: each with whether it is constant, one for
--- all weights and others for single weights.
---
--- A constant is fixed when a session is made; the others come to the device with
--- `updateOptimizerFromHost`. Values are written `{0.1, false}`, {value, isConst}.
---
--- Source: PopART C++ API, OptimizerValue; its Python API, optimizers.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local errors = require("popart.errors")
local tables = require("lupine.base.tables")

local M = {}

-- ---- one value ------------------------------------------------------------------------

---@class popart.OptimizerValue
local OptimizerValue = closed.close(class.new("OptimizerValue"))
M.OptimizerValue = OptimizerValue

local function is_pair(v)
  return type(v) == "table" and not getmetatable(v) and #v == 2
    and (type(v[1]) == "number" or type(v[1]) == "boolean") and type(v[2]) == "boolean"
end

-- As Python has it, where true is the number 1.
local function number(value)
  if type(value) == "boolean" then
    return value and 1 or 0
  end
  return value
end

-- What stands in place of a pair, in messages.
local function shown(value)
  if type(value) ~= "table" or getmetatable(value) or #value ~= 2 then
    return check.describe(value)
  end
  return ("{%s, %s}"):format(check.describe(value[1]), check.describe(value[2]))
end

--- OptimizerValue() is 0 and not constant, OptimizerValue(v) is constant;
--- OptimizerValue(v, isConst) and OptimizerValue({v, isConst}) say it.
---@param ... any value (number), is_const (boolean)
function OptimizerValue:init(...)
  local value, is_const = ...
  if is_pair(value) and select("#", ...) == 1 then
    value, is_const = value[1], value[2]
  elseif select("#", ...) == 0 then
    value, is_const = 0, false
  elseif is_const == nil then
    is_const = true
  end
  self._val = check.number(number(value), "OptimizerValue: val")
  self._const = check.bool(is_const, "OptimizerValue: isConst")
end

--- The present value.
---@return number
function OptimizerValue:val()
  return self._val
end

--- Whether it keeps this value.
---@return boolean
function OptimizerValue:isConst()
  return self._const
end

--- Equal in what a program is compiled with: a value that may change equals any
--- other that may.
function OptimizerValue.__eq(a, b)
  return a._const == b._const and (not a._const or a._val == b._val)
end

function OptimizerValue:__tostring()
  return ("{%s, %s}"):format(self._val, self._const)
end

--- Whether another one may take its place in a session.
--- error: popart_exception if not
---@param other popart.OptimizerValue
function OptimizerValue:validReplacement(other)
  errors.check(self._const == other._const, "popart_exception",
    "Can not replace a constant value with a non constant value.")
  errors.check(not self._const or self._val == other._val, "popart_exception",
    "Values are constant but do not match.")
end

-- ---- of all weights ---------------------------------------------------------------------

---@class popart.OptimizerValueMap
local Map = class.new("OptimizerValueMap")
M.OptimizerValueMap = Map

---@param default popart.OptimizerValue
function Map:init(default)
  self._default, self._specific = default, {}
end

--- The value of weights without one of their own.
---@return popart.OptimizerValue
function Map:getDefault()
  return self._default
end

--- A weight's value.
---@param id string
---@return popart.OptimizerValue
function Map:get(id)
  return self._specific[id] or self._default
end

--- Whether a weight, or any without `id`, has a value of its own.
---@param id? string
---@return boolean
function Map:hasSpecific(id)
  if id == nil then
    return next(self._specific) ~= nil
  end
  return self._specific[id] ~= nil
end

--- Gives a weight its own value.
--- error: popart_exception if it has one
---@param id string
---@param value popart.OptimizerValue
function Map:insertSpecific(id, value)
  errors.check(not self._specific[id], "popart_exception", "Attempt to insert specific value for "
    .. "optimization Tensor %s failed as there is already a specific value for %s present. "
    .. "Bailing, in case this is an error.", id, id)
  self._specific[id] = value
end

-- f(); its error begins with `fmt` of the arguments.
local function telling(class_name, f, fmt, ...)
  local ok, e = pcall(f)
  if ok then
    return
  end
  errors.raise(class_name, "%s %s", fmt:format(...),
    type(e) == "table" and e.message or tostring(e))
end
M.telling = telling

--- Whether another one may take its place in a session.
--- error: popart_exception if not
---@param other popart.OptimizerValueMap
function Map:validReplacement(other)
  telling("popart_exception", function() self._default:validReplacement(other._default) end,
    "Default value is not a valid replacement.")
  local ids = tables.keys(self._specific)
  errors.check(#ids == #tables.keys(other._specific), "popart_exception",
    "Replacement OptimizerValueMap has a different number of specific tensors.")
  for _, id in ipairs(ids) do
    local theirs = errors.check(other._specific[id], "popart_exception",
      "Could not find tensor %s in replacement OptimizerValueMap.", id)
    telling("popart_exception", function() self._specific[id]:validReplacement(theirs) end,
      "OptimizerValue for tensor %s is not a valid replacement.", id)
  end
end

-- ---- dictionaries of values ---------------------------------------------------------------

--- Values by name, of {name = {value, isConst}}.
--- error: popart_exception for a name that is not allowed, or what is no such pair
---@param where string for messages
---@param dict table
---@param allowed string[]
---@param unknown string how the message about an unknown name begins, with %s for the name
---@return table<string, popart.OptimizerValue>
function M.read(where, dict, allowed, unknown)
  check.plain_table(dict, where)
  local out, known = {}, tables.set(allowed)
  for _, key in ipairs(tables.keys(dict)) do
    if not known[key] then
      errors.raise("popart_exception", unknown .. " ( %s )%s", tostring(key),
        table.concat(allowed, " "), check.nearest(key, allowed))
    end
    local value = dict[key]
    if is_pair(value) then
      value = OptimizerValue(value)
    end
    errors.check(OptimizerValue:is(value), "popart_exception", "%s: %s: expected {value, isConst}, "
      .. "a number and a boolean, got %s", where, key, shown(value))
    out[key] = value
  end
  return out
end

return M
