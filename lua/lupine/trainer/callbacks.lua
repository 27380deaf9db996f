--- Callbacks that are there, for scripts and run files (`callbacks: [{class: TimeLimit,
--- args: {minutes: 30}}]`).
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

-- Options by name: those of `allowed`.
local function read(self, options, allowed)
  local where, known = getmetatable(self).__name, tables.set(allowed)
  options = check.plain_table(options or {}, where .. ": options")
  for name in pairs(options) do
    errors.check(known[name], "TypeError", "%s: unknown option '%s'%s; allowed are %s", where,
      tostring(name), check.nearest(name, allowed), table.concat(allowed, ", "))
  end
  return options
end

--- Stops a run after some time; a run that goes on has as much again.
---@class lupine.trainer.callbacks.TimeLimit
local TimeLimit = class.new("TimeLimit")
M.TimeLimit = TimeLimit

---@param options {minutes: number}
function TimeLimit:init(options)
  local o = read(self, options, { "minutes" })
  self.minutes = check.number(o.minutes, "TimeLimit: minutes", { min = 0 })
end

--- The time begins.
function TimeLimit:on_start()
  self.ends = core.host.clock() + 60 * self.minutes
end

--- Looks at the clock.
---@param trainer lupine.Trainer
function TimeLimit:on_step(trainer)
  if core.host.clock() >= self.ends then
    trainer:stop(("the limit of %g minutes"):format(self.minutes))
  end
end

--- Stops a run whose validation has reached what is wanted.
---@class lupine.trainer.callbacks.Goal
local Goal = class.new("Goal")
M.Goal = Goal

--- metric: of validation ("validation.accuracy"); min: it is at least that; max: at most
---@param options {metric: string, min: number?, max: number?}
function Goal:init(options)
  local o = read(self, options, { "metric", "min", "max" })
  self.metric = check.string(o.metric, "Goal: metric")
  self.min = check.number(o.min, "Goal: min", { nullable = true })
  self.max = check.number(o.max, "Goal: max", { nullable = true })
  errors.check(self.min or self.max, "ValueError", "Goal: give min or max")
end

--- Compares.
--- error: KeyError for validations without the metric
---@param trainer lupine.Trainer
---@param metrics table<string, number>
function Goal:on_validation(trainer, metrics)
  local value = metrics[self.metric]
  errors.check(value, "KeyError", "there is no metric '%s'%s; there are %s", self.metric,
    check.nearest(self.metric, tables.keys(metrics)), table.concat(tables.keys(metrics), ", "))
  if value >= (self.min or -math.huge) and value <= (self.max or math.huge) then
    trainer:stop(("%s is %g"):format(self.metric, value))
  end
end

--- Prints a line for each row and each validation.
---@class lupine.trainer.callbacks.Lines
local Lines = class.new("Lines")
M.Lines = Lines

--- stream: what is written to (standard output)
---@param options? {stream: file*?}
function Lines:init(options)
  self.stream = read(self, options, { "stream" }).stream or io.stdout
end

local HEAD = { step = true, epoch = true }

local function line(self, step, epoch, values)
  local parts = { ("step %d  epoch %d"):format(step, epoch) }
  for _, name in ipairs(tables.keys(values)) do
    parts[#parts + 1] = not HEAD[name] and ("%s %.5g"):format(name, values[name]) or nil
  end
  self.stream:write(table.concat(parts, "  "), "\n")
  self.stream:flush()
end

--- A row.
---@param _ lupine.Trainer
---@param row table<string, number>
function Lines:on_log(_, row)
  line(self, row.step, row.epoch, row)
end

--- A validation.
---@param trainer lupine.Trainer
---@param metrics table<string, number>
function Lines:on_validation(trainer, metrics)
  line(self, trainer.step, trainer.epoch, metrics)
end

return require("lupine.base.namespace").close(M, "lupine.trainer.callbacks")
