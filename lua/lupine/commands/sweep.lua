--- `lupine sweep`: runs of one run file with other values of some keys.
local codes = require("lupine.commands")
local config = require("lupine.run.sweep.config")
local core = require("lupine.core")
local runner = require("lupine.run.sweep.runner")
local state = require("lupine.run.sweep.state")
local words = require("lupine.commands.words")

local M = {}

local USAGE = [[
usage: lupine sweep FILE [key=value …] [options]
       lupine sweep --resume SWEEP [options]
Trains a run file many times with other values of some of its keys, as a sweep's file
(.yaml, .json or .lua) says, each job in a run's folder within the new folder
FOLDER/NAME-001. key=value changes a key of the sweep's file: jobs=4 set.epochs=3
]]

local EXAMPLE = [[
A sweep's file:
  run: run.yaml
  method: random            # grid, random, halving
  parameters:
    optimizer.args.lr: {min: 1e-4, max: 0.1, log: true}
    data.batch_size: [32, 64]
  count: 20
  metric: validation.loss
Exit codes: 0 all jobs are finished; 1 some failed; 2 the command line or a file is
wrong; 75 stopped by a signal: the jobs have saved, and --resume goes on.
]]

local OPTIONS = {
  { "--print", doc = "print the jobs; none is trained" },
  { "--jobs", short = "-j", value = "N", doc = "jobs at a time, instead of the file's" },
  { "--fail-fast", doc = "stop the others when a job fails; they save" },
  { "--resume", value = "SWEEP",
    doc = "go on with a sweep, by its folder or its name: what is finished\n"
      .. "stays, what was stopped goes on from its checkpoint" },
  { "--retry", doc = "with --resume: those that failed, too" },
}

local function wrapped_row(row)
  local types = require("lupine.run.types")
  local allowed = types[row.type] and types[row.type].allowed(row)
  local emit = require("lupine.run.emit")
  local default = row.default
  if row.type == "every" and default then
    default = ("%d %s"):format(default.count, default.unit)
  elseif default ~= nil then
    default = emit.value(default)
  end
  return ("  %-15s %s%s%s\n"):format(row.name, row.doc, allowed and " " .. allowed:gsub("^%l",
    string.upper) .. "." or "", default and (" Default: %s."):format(default) or "")
end

local function help()
  local keys = {}
  for i, row in ipairs(config.schema) do
    keys[i] = row.type ~= "group" and wrapped_row(row) or ""
  end
  return USAGE .. words.describe(OPTIONS) .. "  -h, --help        print this\n" .. EXAMPLE
    .. "Keys:\n" .. table.concat(keys)
end

local function say(line)
  io.stdout:write(line, "\n")
  io.stdout:flush()
end

-- A seed that nobody chose.
local function draw()
  local source <close> = assert(io.open("/dev/urandom", "rb"))
  return (("<I4"):unpack(source:read(4)))
end

local function parallel(options, default)
  local n = options.jobs and math.tointeger(tonumber(options.jobs)) or not options.jobs and default
  if not n or n < 1 or n > 1024 then
    words.refuse("--jobs: expected an int from 1 to 1024, got '%s'", tostring(options.jobs))
  end
  return n
end

local function train(sweep, options, at_a_time)
  local job = runner.Runner(sweep, { parallel = at_a_time, fail_fast = options["fail-fast"],
    retry = options.retry, say = say })
  say(("sweep %s  %s of %d jobs, %d at a time"):format(sweep.path, sweep.facts.method,
    #sweep.facts.jobs, at_a_time))
  local code = job:train()
  io.stdout:write(runner.table(sweep.facts))
  if sweep.facts.status == "interrupted" then
    say("this goes on:\nlupine sweep --resume " .. sweep.path)
  end
  return code
end

local function print_jobs(list)
  for _, job in ipairs(list) do
    say(("%s  %s"):format(job.name, state.told(job)))
  end
  return codes.DONE
end

local function check_place(sweep)
  local began = sweep.facts.folder
  if began ~= core.host.process().folder then
    io.stderr:write(("lupine sweep: the sweep was begun in %s; relative names, as of data and "
      .. "classes, mean other files here\n"):format(began))
  end
end

local function prepare_resume(options, rest)
  if rest[1] then
    words.refuse("'%s' is one word too many: a sweep that goes on keeps its keys", rest[1])
  end
  local sweep = state.open(options.resume)
  local at_a_time = parallel(options, sweep.facts.parallel)
  if not options.print then
    sweep:claim()
    check_place(sweep)
  end
  return function()
    if options.print then
      io.stdout:write(runner.table(sweep.facts))
      return codes.DONE
    end
    return train(sweep, options, at_a_time)
  end
end

local function prepare(options, rest)
  if options.resume then
    return prepare_resume(options, rest)
  elseif options.retry then
    words.refuse("--retry needs --resume SWEEP")
  end
  local file = table.remove(rest, 1)
  if not file then
    words.refuse("no sweep's file is given")
  elseif file:find("^[%w_.-]+=") then
    words.refuse("the sweep's file comes first, before '%s'", file)
  end
  local c = config.read(file, rest)
  c.seed = c.seed or draw()
  c.set = c.set or {}
  local at_a_time = parallel(options, c.jobs)
  if options.print then
    local list = state.jobs(c)
    return function()
      return print_jobs(list)
    end
  end
  local sweep = state.create(c)
  return function()
    return train(sweep, options, at_a_time)
  end
end

--- Runs with the words of the command line after "sweep".
---@param ... string
---@return integer? exit code
function M.run(...)
  return words.run("sweep", OPTIONS, help, prepare, ...)
end

return M
