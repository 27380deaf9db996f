--- `lupine run`: trains what a run file says, or goes on with a run.
local codes = require("lupine.commands")
local config = require("lupine.run.config")
local errors = require("lupine.base.errors")
local words = require("lupine.commands.words")

local M = {}

local USAGE = [[
usage: lupine run FILE [key=value …] [options]
       lupine run --resume [RUN] [key=value …] [options]
Trains what a run file (.yaml, .json, or .lua, a program that returns the table) says, in
a new folder FOLDER/NAME-001. key=value changes a key: optimizer.args.lr=0.1
]]

local CODES = [[
Exit codes: 0 trained to the end; 1 an error, or a loss that is no number; 2 the command
line or the run file is wrong; 75 stopped by a signal or a callback, all is saved and
--resume goes on.
SIGTERM or Ctrl-C finishes the step and saves; a second one interrupts at once.
]]

local OPTIONS = {
  { "--print-config", doc = "print each key with its value and where it comes from; no run" },
  { "--dry-run", doc = "compile, train two steps, validate a batch, write and reread a\n"
      .. "checkpoint, tell memory and time; no run" },
  { "--resume", value = "RUN", optional = true,
    doc = "go on with a run: its folder, its name, or the latest that has not\n"
      .. "come to its end; of the keys only the end, checkpoints and logging\ncan change" },
}

local function is_file(word)
  return word:find("%.ya?ml$") or word:find("%.json$") or word:find("%.lua$")
end

-- The run file, if one is given, and the words that change keys.
local function sorted(rest)
  local file, changes = nil, {}
  for _, word in ipairs(rest) do
    if word:find("^[%w_.-]+=") then
      changes[#changes + 1] = word
    elseif file then
      words.refuse("'%s' is one word too many; keys are changed by key=value", word)
    else
      file = word
    end
  end
  return file, changes
end

local function help(key)
  local explain = require("lupine.run.explain")
  if key then
    return explain.key(key)
  end
  return USAGE .. words.describe(OPTIONS) .. "  -h, --help [KEY]  print this, or what a key is\n"
    .. CODES .. "Keys:\n" .. explain.all()
end

-- Errors of the run file that show when its objects are made are told in a line, too; a
-- user's own keep the traceback of where they were raised.
local function told(job, ...)
  local trace
  local out = table.pack(xpcall(job, function(e)
    local traceback = package.loaded["lupine.host_traceback"] -- of the host program
    trace = type(e) ~= "table" and (traceback and traceback(2) or debug.traceback("", 2)) or nil
    return e
  end, ...))
  if out[1] then
    return out[2]
  elseif errors.ConfigFileError:is(out[2]) or type(out[2]) == "table" and out[2].of_run_file then
    words.tell("run", out[2])
    return codes.USAGE
  elseif trace then
    io.stderr:write(("lupine run: %s\n%s\n"):format(tostring(out[2]), trace))
    return codes.ERROR
  end
  error(out[2], 0)
end

local function print_config(c)
  io.stdout:write(c:yaml(true))
  return 0
end

local function prepare_resume(options, file, changes)
  local job, find = require("lupine.run.job"), require("lupine.run.find")
  local word = options.resume ~= true and options.resume or nil
  if word and is_file(word) and not file then
    word, file = nil, word
  end
  local of_file = file and config.read(file, {}) or nil
  local parent = of_file and of_file:get("folder") or config.rows.folder.default
  local run = find.run(parent, word, of_file and of_file:get("name"))
  local c = config.reread(run:file("config.yaml"), changes)
  if options["print-config"] then
    return function()
      return print_config(c)
    end
  end
  return function()
    return told(job.resume, run, c)
  end
end

local function prepare(options, rest)
  local file, changes = sorted(rest)
  if options.resume then
    errors.check(not options["dry-run"], "ConfigFileError", "--dry-run is of new runs")
    return prepare_resume(options, file, changes)
  elseif not file then
    words.refuse("no run file is given")
  end
  local c = config.read(file, changes)
  return function()
    if options["print-config"] then
      return print_config(c)
    elseif options["dry-run"] then
      return told(require("lupine.run.dry").run, c)
    end
    return told(require("lupine.run.job").start, c)
  end
end

--- Runs with the words of the command line after "run".
---@param ... string
---@return integer? exit code
function M.run(...)
  return words.run("run", OPTIONS, help, prepare, ...)
end

return M
