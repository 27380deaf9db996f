--- Curves as text for a terminal, in dots of braille, and as SVG.
---
---     local plot = require("lupine.plot")
---     io.write(plot.text({ { name = "loss", y = losses } }))
---     plot.write("loss.svg", { { name = "loss", x = steps, y = losses } }, { log = true })
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local scale = require("lupine.plot.scale")
local svg = require("lupine.plot.svg")
local text = require("lupine.plot.text")

local M = {}

local OPTIONS = { "title", "xlabel", "width", "height", "log", "smooth", "color" }

local function numbers(values, where)
  if core.is_tensor(values) then
    errors.check(values:dim() == 1, "ValueError", "%s: expected a list of numbers or a tensor of "
      .. "one dimension, got %s", where, check.describe(values))
    values = values:tolist()
  end
  for i, value in ipairs(check.plain_table(values, where)) do
    check.number(value, ("%s[%d]"):format(where, i))
  end
  return values
end

local function is_finite(v)
  return v == v and v ~= math.huge and v ~= -math.huge
end

-- Each value moves from the one before by 1 - smooth: an exponential mean that starts
-- without a bias (Adam's correction).
local function smoothed(y, share)
  local out, mean, weight = {}, 0, 0
  for i, value in ipairs(y) do
    if is_finite(value) then
      mean, weight = mean * share + value * (1 - share), weight * share + (1 - share)
      out[i] = mean / weight
    else
      out[i] = value
    end
  end
  return out
end

-- The points of a curve; what cannot be drawn is a gap, false.
local function points(series, i, o)
  check.plain_table(series, ("plot: series[%d]"):format(i))
  local where = ("plot: series[%d]."):format(i)
  local y = numbers(series.y, where .. "y")
  local x = series.x and numbers(series.x, where .. "x")
  errors.check(not x or #x == #y, "ValueError", "%sx has %s, y has %s", where,
    x and check.count(#x, "number"), check.count(#y, "number"))
  local out = { name = check.string(series.name or ("series %d"):format(i), where .. "name") }
  for k, value in ipairs(o.smooth and smoothed(y, o.smooth) or y) do
    local at = x and x[k] or k
    local fits = is_finite(value) and is_finite(at) and (not o.log or value > 0)
    out[k] = fits and { at, value } or false
  end
  return out
end

local function ends(list, k, default)
  local low, high = math.huge, -math.huge
  for _, curve in ipairs(list) do
    for _, p in ipairs(curve) do
      if p then
        low, high = math.min(low, p[k]), math.max(high, p[k])
      end
    end
  end
  if low > high then -- no point at all
    return default, 1
  end
  return low, high
end

local function prepare(series, options, defaults)
  options = check.plain_table(options or {}, "plot: options")
  for key in pairs(options) do
    local known = false
    for _, name in ipairs(OPTIONS) do
      known = known or name == key
    end
    errors.check(known, "TypeError", "plot: unknown option '%s'; allowed are %s%s", tostring(key),
      table.concat(OPTIONS, ", "), check.nearest(key, OPTIONS))
  end
  local o = {
    title = check.string(options.title or "", "plot: title"),
    xlabel = check.string(options.xlabel or "", "plot: xlabel"),
    width = check.int(options.width or defaults.width, "plot: width", { min = defaults.narrowest }),
    height = check.int(options.height or defaults.height, "plot: height",
      { min = defaults.lowest, max = 10000 }),
    log = check.bool(options.log or false, "plot: log"),
    smooth = check.number(options.smooth, "plot: smooth",
      { nullable = true, min = 0, max = 0.9999 }),
    color = options.color,
  }
  local list = {}
  for i, s in ipairs(check.plain_table(series, "plot: series")) do
    list[i] = points(s, i, o)
  end
  errors.check(#list > 0, "ValueError", "plot: series: expected one curve at least, got none")
  local low, high = ends(list, 2, o.log and 0.1 or 0)
  o.y = scale.new(low, high, defaults.y_ticks(o.height), o.log)
  local from, to = ends(list, 1, 0)
  o.x = scale.new(from, to, defaults.x_ticks(o.width), false, true)
  return list, o
end

local TEXT = { width = 72, height = 16, narrowest = 24, lowest = 4,
  x_ticks = function(width)
    return math.max(2, width // 14)
  end,
  y_ticks = function(height)
    return math.max(3, height // 3)
  end }
local SVG = { width = 720, height = 400, narrowest = 120, lowest = 80,
  x_ticks = function(width)
    return math.max(2, width // 90)
  end,
  y_ticks = function(height)
    return math.max(2, height // 60)
  end }

--- Curves as lines of text.
---
--- series: {name?, x?, y} each, lists of numbers or tensors of one dimension; x counts
--- from 1 unless given. A value that is NaN or infinite is a gap. Options: title, xlabel,
--- width and height in characters (72 x 16), log (a logarithmic y axis), smooth (0 to
--- 0.9999: an exponential mean), color (true: ANSI colours).
--- errors: TypeError, ValueError
---@param series table[]
---@param options? table
---@return string
function M.text(series, options)
  return text(prepare(series, options, TEXT))
end

--- The same as a picture; width and height in pixels (720 x 400).
--- errors: TypeError, ValueError
---@param series table[]
---@param options? table
---@return string
function M.svg(series, options)
  return svg(prepare(series, options, SVG))
end

--- Writes the picture to a file.
--- errors: TypeError, ValueError, OSError
---@param path string
---@param series table[]
---@param options? table
function M.write(path, series, options)
  core.write_text(check.string(path, "plot.write: path"), M.svg(series, options))
end

return M
