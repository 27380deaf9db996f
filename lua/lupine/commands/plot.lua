--- `lupine plot`: curves of runs in the terminal and as SVG.
local check = require("lupine.base.check")
local codes = require("lupine.commands")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local listing = require("lupine.run.listing")
local plot = require("lupine.plot")
local scores = require("lupine.run.sweep.scores")
local words = require("lupine.commands.words")

local M = {}

local USAGE = [[
usage: lupine plot [RUN…] [options]
Draws the metrics of runs over each other; without RUN those of the latest. RUN is a
folder of a run or of a sweep, a name, or a pattern of names: 'base-*'.
]]

local OPTIONS = {
  { "--metric", short = "-m", value = "NAMES",
    doc = "train.loss,validation.loss: a plot for each; else all that end in loss" },
  { "--x", value = "AXIS", doc = "step (default), epoch, or time (seconds since the first row)" },
  { "--log", doc = "a logarithmic axis" },
  { "--smooth", value = "SHARE",
    doc = "0 to 0.9999: how much of the mean so far a value keeps" },
  { "--svg", value = "FILE", doc = "write a picture; several metrics: FILE-METRIC.svg" },
  { "--width", value = "N", doc = "columns of the terminal's plot, 24 at least" },
  { "--height", value = "N", doc = "its lines, 4 at least" },
  { "--folder", value = "FOLDER", doc = "where runs are looked for by their names (runs)" },
}

local function help()
  return USAGE .. words.describe(OPTIONS) .. "  -h, --help        print this\n"
end

-- ---- what is drawn -------------------------------------------------------------------

-- Where a row stands on the axis.
local AXES = {
  step = function(row)
    return row.step
  end,
  epoch = function(row)
    return row.epoch
  end,
  time = function(row, first)
    return row.time and first and row.time - first
  end,
}

local function curve(entry, metric, axis)
  local rows, x, y = entry:rows(), {}, {}
  local first = rows[1] and rows[1].time
  for _, row in ipairs(rows) do
    local at, value = AXES[axis](row, first), row[metric]
    if type(at) == "number" and type(value) == "number" then
      x[#x + 1], y[#y + 1] = at, value
    end
  end
  return #y > 0 and { name = entry.name, x = x, y = y } or nil
end

local function names_of(entries)
  local all = {}
  for _, entry in ipairs(entries) do
    local rows, why = entry:rows()
    errors.check(not why, "ValueError", "%s", why)
    table.move(rows, 1, #rows, #all + 1, all)
  end
  return scores.names(all)
end

-- The metrics that are asked for; each is one that some run has.
local function chosen(text, entries)
  local names, out, known = names_of(entries), {}, {}
  for _, name in ipairs(names) do
    known[name] = true
    out[#out + 1] = not text and name:find("loss$") and name or nil
  end
  errors.check(#names > 0, "ValueError", "no metrics are written yet in %s", entries[1].path)
  for name in (text or ""):gmatch("[^,]+") do
    errors.check(known[name], "ValueError", "--metric: %s '%s'%s; there are %s",
      #entries > 1 and "no run has" or "the run has no", name, check.nearest(name, names),
      table.concat(names, ", "))
    out[#out + 1] = name
  end
  errors.check(#out > 0, "ValueError", "--metric: none is given, and no metric is a loss; there "
    .. "are %s", table.concat(names, ", "))
  return out
end

-- ---- options -------------------------------------------------------------------------

local function number(o, name, least, most, is_int)
  local value = o[name] and tonumber(o[name])
  if is_int then
    value = math.tointeger(value)
  end
  if o[name] and not (value and value >= least and value <= most) then
    words.refuse("--%s: expected %s from %s to %s, got '%s'", name,
      is_int and "an int" or "a number", least, most, o[name])
  end
  return value
end

local function drawing(o)
  local axis = o.x or "step"
  if not AXES[axis] then
    words.refuse("--x: expected step, epoch or time, got '%s'%s", axis,
      check.nearest(axis, { "step", "epoch", "time" }))
  elseif o.svg and not o.svg:find("%.svg$") then
    words.refuse("--svg: expected a file's name that ends in .svg, got '%s'", o.svg)
  end
  return { axis = axis, log = o.log, smooth = number(o, "smooth", 0, 0.9999), svg = o.svg,
    width = number(o, "width", 24, 1000, true), height = number(o, "height", 4, 1000, true) }
end

local function entries_of(o, rest)
  local parent = o.folder or "runs"
  local entries = #rest > 0 and listing.of_words(rest, parent) or { listing.all(parent)[1] }
  errors.check(#entries > 0, "FileNotFoundError", "there is no run in '%s'", parent)
  return entries
end

-- ---- output --------------------------------------------------------------------------

-- Colours only where somebody looks, and wants them (no-color.org).
local function has_colors()
  return not os.getenv("NO_COLOR") and os.getenv("TERM") ~= "dumb"
    and os.execute("test -t 1") == true
end

local function svg_path(path, metric, several)
  if not several then
    return path
  end
  return path:gsub("%.svg$", "") .. "-" .. metric:gsub("[^%w_.-]", "_") .. ".svg"
end

local function draw(entries, metric, d, several)
  local series = {}
  for _, entry in ipairs(entries) do
    series[#series + 1] = curve(entry, metric, d.axis)
  end
  errors.check(#series > 0, "ValueError", "'%s' has no '%s' in its rows", metric, d.axis)
  local o = { title = metric, xlabel = d.axis == "time" and "seconds" or d.axis, log = d.log,
    smooth = d.smooth }
  if d.svg then
    local path = svg_path(d.svg, metric, several)
    plot.write(path, series, o)
    print("wrote " .. path)
    return
  end
  o.width = d.width or math.min(120, math.max(24, core.terminal_columns() or 80))
  o.height, o.color = d.height, #series > 1 and has_colors()
  io.stdout:write(plot.text(series, o))
end

local function prepare(o, rest)
  local d = drawing(o)
  local entries = entries_of(o, rest)
  local metrics = chosen(o.metric, entries)
  return function()
    for i, metric in ipairs(metrics) do
      io.stdout:write(i > 1 and not d.svg and "\n" or "")
      draw(entries, metric, d, #metrics > 1)
    end
    return codes.DONE
  end
end

--- Runs with the words of the command line after "plot".
---@param ... string
---@return integer? exit code
function M.run(...)
  return words.run("plot", OPTIONS, help, prepare, ...)
end

return M
