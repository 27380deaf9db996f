--- Objects that stand in a loop by themselves: `for x, y in loader do`.
---
--- Lua calls such an object with the first loop variable of the last round,
--- nil at the start. Every start asks the object's `__iter__` for a new
--- iterator; which of several running loops a later call belongs to is known
--- by that variable, so that loops over one object may be nested.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local spans = require("lupine.base.spans")

local M = {}

-- object -> {of = {first loop variable -> iterator}, latest = iterator}
local running = setmetatable({}, { __mode = "k" })

local function remember(loops, iterator, first, ...)
  local kind = type(first)
  if kind == "table" or kind == "userdata" then
    loops.of[first] = iterator
  end
  loops.latest = first ~= nil and iterator or nil
  return first, ...
end

--- The metamethod __call of an object with `__iter__`.
---@param self table
---@param _ any
---@param control any the last value, nil at the start
---@return any ...
function M.call(self, _, control)
  local _ <close> = spans.active and spans.open("data loading")
  local loops = running[self]
  if not loops then
    loops = { of = setmetatable({}, { __mode = "k" }) }
    running[self] = loops
  end
  local iterator
  if control == nil then
    iterator = M.iterate(self)
  else
    iterator = loops.of[control] or loops.latest
    errors.check(iterator, "TypeError",
      "%s is called with an argument outside of a loop; write `for x in loader do`",
      getmetatable(self).__name)
    loops.of[control] = nil
  end
  return remember(loops, iterator, iterator())
end

local function step(state, first, ...)
  state.control = first
  return first, ...
end

-- The values of f, which is not called again after its end: the function of a
-- coroutine.wrap raises an error then.
local function up_to_end(f)
  local ended = false
  local function given(first, ...)
    ended = first == nil
    return first, ...
  end
  return function()
    if not ended then
      return given(f())
    end
  end
end

--- One function that gives the values one after another and then nil as often
--- as it is asked, of a function, a list or an object with `__iter__` (which
--- may return what a generic for takes; a closing value is not passed on).
---@param x any
---@param where? string for messages
---@return fun(): any, ...
function M.iterate(x, where)
  if type(x) == "function" then
    return up_to_end(x)
  elseif type(x) == "table" and not getmetatable(x) then
    local i = 0
    return function()
      i = i + 1
      return x[i]
    end
  end
  errors.check(class.of(x) and x.__iter__, "TypeError",
    "%s: expected a list, a function or an object with __iter__, got %s%s", where or "iterate",
    require("lupine.base.check").describe(x), class.of(x) and x.__getitem__
    and ": a DataLoader goes through a data set" or "")
  local f, s, control = x:__iter__()
  errors.check(f ~= nil, "TypeError", "%s.__iter__ returned nil, not an iterator",
    getmetatable(x).__name)
  if type(f) == "table" and class.of(f) and f.__iter__ and f ~= x then
    return M.iterate(f, where)
  elseif s == nil and control == nil and type(f) == "function" then
    return up_to_end(f)
  elseif type(f) == "table" and not getmetatable(f) then
    return M.iterate(f, where)
  end
  local state = { control = control }
  return up_to_end(function()
    return step(state, f(s, state.control))
  end)
end

--- Several values as a list, one as itself.
---@param ... any
---@return any
function M.tuple(...)
  if select("#", ...) > 1 then
    return core.list({ ... })
  end
  return (...)
end

--- Is this a list (a tuple)?
---@param x any
---@return boolean
function M.is_list(x)
  return type(x) == "table" and not getmetatable(x) and x[1] ~= nil
end

--- A list's elements as several values; anything else as one.
---@param x any
---@return any ...
function M.spread(x)
  if M.is_list(x) then
    return table.unpack(x)
  end
  return x
end

return M
