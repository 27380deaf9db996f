--- Axes: the numbers between which curves lie, ticks at round ones, and where a number
--- is between 0 and 1.
---
--- Source: Heckbert, "Nice Numbers for Graph Labels", Graphics Gems, 1990.
local M = {}

-- The nearest of 1, 2, 5 and 10 times a power of ten.
local function nice(x)
  local power = 10 ^ math.floor(math.log(x, 10))
  local f = x / power
  return (f < 1.5 and 1 or f < 3 and 2 or f < 7 and 5 or 10) * power
end

-- A tick's text with as many digits as its step needs.
local function label(value, step)
  local size = math.max(math.abs(value), step)
  if size >= 1e5 or step < 1e-4 then
    return (("%.4g"):format(value):gsub("e([-+])0*(%d)", "e%1%2"))
  end
  local digits = math.max(0, -math.floor(math.log(step, 10) + 1e-9))
  return ("%." .. digits .. "f"):format(value)
end

local Scale = {}
Scale.__index = Scale

--- Where a value is: 0 at the lower end, 1 at the upper one.
---@param value number
---@return number
function Scale:at(value)
  if self.log then
    value = math.log(value, 10)
  end
  return (value - self.low) / (self.high - self.low)
end

--- A scale of numbers from low to high with about `count` ticks; a logarithmic one has
--- them at powers of ten. It begins and ends at ticks, a tight one at the numbers. Ends
--- that are equal get room.
---@param low number
---@param high number
---@param count integer
---@param log? boolean
---@param tight? boolean
---@return table scale with at(), ticks ({value, text} by value)
function M.new(low, high, count, log, tight)
  if log then
    low, high = math.log(low, 10), math.log(high, 10)
  end
  if high - low <= 1e-12 * math.max(math.abs(low), math.abs(high), 1e-300) then
    local room = low == 0 and 1 or math.abs(low) * 0.1
    low, high = low - room, high + room
  end
  local self = setmetatable({ log = log, ticks = {} }, Scale)
  local step = nice((high - low) / math.max(count - 1, 1))
  if log then
    step = math.ceil((high - low) / math.max(count, 3))
  end
  local first, last = math.floor(low / step), math.ceil(high / step)
  self.low, self.high = first * step, last * step
  if tight then
    first, last = math.ceil(low / step), math.floor(high / step)
    self.low, self.high = low, high
  end
  for i = first, last do
    local value = i * step
    self.ticks[#self.ticks + 1] = log and { 10 ^ value, ("1e%d"):format(value) }
      or { value, label(math.abs(value) < step * 1e-9 and 0.0 or value, step) }
  end
  return self
end

return M
