--- PopTorch's log: the levels of poptorch.setLogLevel over the one log of the
--- core, which writes to stderr: "[13:05:09.125] [poptorch::lua] [info] text".
---
--- POPTORCH_LOG_LEVEL is read when this module loads and wins over
--- LUPINE_LOG_LEVEL; without both the level is INFO. POPTORCH_LOG_DEST is where
--- the log goes: stderr, stdout or a file, which is emptied. Source: API
--- reference "Helpers", user guide 4.11.1.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local folders = require("lupine.base.folders")
local variables = require("lupine.base.variables")

local M = {}

local NAMES = { "DEBUG", "ERR", "INFO", "OFF", "TRACE", "WARN" }
-- Name -> level of the core. The two last are PopTorch's finer switches.
local LEVELS = {
  TRACE = "trace", DEBUG = "debug", INFO = "info", WARN = "warn", ERR = "err", OFF = "off",
  TRACE_ALL = "trace", DEBUG_IR = "debug",
}
local NUMBERS = { [0] = "TRACE", [1] = "DEBUG", [2] = "INFO", [3] = "WARN", [4] = "ERR",
  [6] = "OFF" }
local RANK = { trace = 0, debug = 1, info = 2, warn = 3, err = 4, off = 6 }

local WHO = "poptorch::lua"

local repeats = {}     -- line -> times logged
local distinct = 0     -- lines remembered in `repeats`
local max_repeats = 4  -- nil: no limit
-- Forget the counts when so many different lines were seen.
local MOST_DISTINCT = 10000

--- Whether compiled programs are logged at DEBUG; at TRACE they are in any case.
M.prints_programs = false

--- Sets how much is logged: a level's name (upper case) or number, 0 TRACE,
--- 1 DEBUG, 2 INFO, 3 WARN, 4 ERR, 6 OFF. DEBUG_IR is DEBUG with the text of
--- programs, TRACE_ALL is TRACE.
---@param ... any level (string|integer)
function M.setLogLevel(...)
  local level = check.one("setLogLevel", "level", ...)
  local name = level
  if type(level) == "number" then
    name = NUMBERS[level]
    errors.check(name, "ValueError",
      "setLogLevel: level: allowed integers are 0 to 4 and 6, got %s", level)
  elseif type(level) ~= "string" or not LEVELS[level] then
    errors.raise("ValueError", "setLogLevel: level: allowed are %s and %s, got %s%s",
      table.concat(NAMES, ", ", 1, #NAMES - 1), NAMES[#NAMES], check.describe(level),
      check.nearest(level, NAMES))
  end
  core.host.log_level(LEVELS[name])
  M.prints_programs = name == "DEBUG_IR"
end

--- True if a line of this level ("debug", …) would be written.
---@param level string
---@return boolean
function M.enabled(level)
  return RANK[level] >= (RANK[core.host.log_level()] or 3)
end

--- How often one and the same line is written before it is suppressed
--- (Options.maxRepeatLogs); nil writes all.
---@param n integer?
function M.set_max_repeats(n)
  if n ~= max_repeats then
    max_repeats, repeats, distinct = n, {}, 0
  end
end

local function write(level, fmt, ...)
  if not M.enabled(level) then
    return
  end
  local line = select("#", ...) > 0 and fmt:format(...) or fmt
  local count = (repeats[line] or 0) + 1
  if count == 1 then
    distinct = distinct + 1
    if distinct > MOST_DISTINCT then
      repeats, distinct = {}, 1
    end
  end
  repeats[line] = count
  if max_repeats and count > max_repeats then
    if count == max_repeats + 1 then
      core.host.log(level, ("%s (repeated; no longer shown)"):format(line), WHO)
    end
    return
  end
  core.host.log(level, line, WHO)
end

for _, level in ipairs({ "trace", "debug", "info", "warn", "err" }) do
  M[level] = function(fmt, ...)
    write(level, fmt, ...)
  end
end

-- ---- files ---------------------------------------------------------------------

local begun = {} -- paths of log files of this process

--- The log file of a model: modelName.log in Options.logDir, once that is set.
--- It is empty when the first model of this process takes it.
--- error: OSError naming logDir if it cannot be written
---@param options poptorch.Options
---@param training boolean
---@return string? path
function M.file(options, training)
  if not options._values.writes_log then
    return nil
  end
  local path = folders.path(options.log_dir,
    ("%s.log"):format(options.model_name or training and "training" or "inference"))
  if not begun[path] then
    folders.writing("logDir", options.log_dir, function()
      core.make_folder(options.log_dir)
      core.write_text(path, "")
    end)
    begun[path] = true
  end
  return path
end

--- The file that gets the lines now, as well.
---@type string?
M.file_now = nil

--- What is logged goes to this file as well, from now on; nil: to none.
---@param path string?
function M.use_file(path)
  if path ~= M.file_now then
    core.host.log_copy(path)
    M.file_now = path
  end
end

-- ---- environment ---------------------------------------------------------------

local level = variables.text("POPTORCH_LOG_LEVEL")
if level then
  errors.within("POPTORCH_LOG_LEVEL", M.setLogLevel, tonumber(level) or level)
elseif not variables.text("LUPINE_LOG_LEVEL") then
  M.setLogLevel("INFO")
end

local destination = variables.text("POPTORCH_LOG_DEST")
if destination then
  errors.within("POPTORCH_LOG_DEST", core.host.log_to, destination)
end

return M
