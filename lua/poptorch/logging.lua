--- PopTorch's log: the levels of poptorch.setLogLevel over the one log of the
--- core, which writes to stderr.
---
--- POPTORCH_LOG_LEVEL is read when this module loads and wins over
--- LUPINE_LOG_LEVEL. Source: API reference "Helpers", user guide 4.11.1.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

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

local repeats = {}     -- line -> times logged
local distinct = 0     -- lines remembered in `repeats`
local max_repeats = 4  -- nil: no limit
-- Forget the counts when so many different lines were seen.
local MOST_DISTINCT = 10000

--- Sets how much is logged: a level's name (upper case) or number, 0 TRACE,
--- 1 DEBUG, 2 INFO, 3 WARN, 4 ERR, 6 OFF.
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
      core.host.log(level, ("%s (repeated; no longer shown)"):format(line))
    end
    return
  end
  core.host.log(level, line)
end

for _, level in ipairs({ "trace", "debug", "info", "warn", "err" }) do
  M[level] = function(fmt, ...)
    write(level, fmt, ...)
  end
end

local from_env = os.getenv("POPTORCH_LOG_LEVEL")
if from_env and from_env ~= "" then
  M.setLogLevel(tonumber(from_env) or from_env)
end

return M
