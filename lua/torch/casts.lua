--- Automatic casting of functions that are made of operators: as a whole, where
--- torch.autocast runs them in float32 or a front end's policy names them. Inside
--- nothing is cast then. (Operators: src/autodiff/autocast.h.)
local core = require("lupine.core")

--- `composed`: what the policy in force asks of functions: by function, {of, mixed}
--- (dtypes; mixed: of operands of float16 and float32). nil: no policy.
--- `hooked`: the functions that ask.
---@type {composed: table<function, {of: torch.dtype?, mixed: torch.dtype?}>?, hooked: table}
local M = { hooked = setmetatable({}, { __mode = "k" }) }

local t = core.dtypes
local FLOATS = { [t.float16] = true, [t.bfloat16] = true, [t.float32] = true }

-- fn of each tensor among values, and in the plain tables that they are.
local function each(values, n, fn)
  local out = {}
  for key = 1, n do
    local v = values[key]
    if core.is_tensor(v) then
      out[key] = fn(v)
    elseif type(v) == "table" and not getmetatable(v) then
      out[key] = {}
      for k, part in pairs(v) do
        out[key][k] = core.is_tensor(part) and fn(part) or part
      end
    else
      out[key] = v
    end
  end
  return out
end

local Scope = {}

function Scope.__close(scope)
  core.set_autocast(table.unpack(scope))
  M.composed = scope.composed
end

--- fn of the arguments, their tensors in this type, without casting inside.
---@param fn function
---@param dtype torch.dtype
---@param ... any
---@return any ...
function M.run(fn, dtype, ...)
  local n = select("#", ...)
  local args = each({ ... }, n, function(x)
    return FLOATS[x.dtype] and x:to(dtype) or x
  end)
  local scope = setmetatable({ core.autocast() }, Scope)
  scope.composed = M.composed
  local _ <close> = scope
  core.set_autocast(nil)
  M.composed = nil
  return fn(table.unpack(args, 1, n))
end

--- fn of the arguments, as the policy in force asks of `known`, the function that
--- a script sees.
---@param known function
---@param fn function
---@param ... any
---@return any ...
function M.call(known, fn, ...)
  local rule = M.composed and M.composed[known]
  if not rule then
    return fn(...)
  end
  local has = {}
  each({ ... }, select("#", ...), function(x)
    has[x.dtype] = true
    return x
  end)
  local dtype = has[t.float16] and has[t.float32] and rule.mixed or rule.of
  if not dtype then
    return fn(...)
  end
  return M.run(fn, dtype, ...)
end

return M
