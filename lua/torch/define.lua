--- How functions made of operators are defined: arguments by position or by
--- name, the first of them a tensor.
local casts = require("torch.casts")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local signatures = require("lupine.base.signatures")

local M = {}

--- x, which must be a tensor.
---@param x any
---@param where string the function, for the message
---@param name string the argument
---@return torch.Tensor
function M.tensor(x, where, name)
  local ok = core.is_tensor(x) -- a description is long work
  errors.check(ok, "TypeError", "%s: argument '%s' must be a Tensor, not %s", where, name,
    ok or check.describe(x))
  return x
end

--- NAME(params) as fn(values in order).
---@param name string
---@param params string[]
---@param fn function
---@return function
function M.fn(name, params, fn)
  local where = name .. "()"
  local count = #params
  local function defined(...)
    local n = select("#", ...)
    if n <= count and n > 0 and type((select(n, ...))) ~= "table" and not casts.composed
      and core.is_tensor((...)) then
      return fn(...) -- by position
    end
    local a = check.arguments(where, params, nil, ...)
    M.tensor(a[1], where, params[1])
    if casts.composed then
      return casts.call(defined, fn, table.unpack(a, 1, count))
    end
    return fn(table.unpack(a, 1, count))
  end
  casts.hooked[defined] = true
  signatures.note(defined, ("%s(%s)"):format(name, table.concat(params, ", ")))
  return defined
end

return M
