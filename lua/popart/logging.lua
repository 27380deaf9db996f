--- PopART's log: a level for each of its modules, one destination. The lines of
--- lupine's own log, and PopTorch's, go their own way (LUPINE_LOG_LEVEL,
--- POPTORCH_LOG_LEVEL).
---
---     popart.getLogger():setLevel("DEBUG")        -- all modules
---     popart.getLogger("session"):setLevel("OFF")
---
--- The variables of the environment, read when this module loads:
---   POPART_LOG_LEVEL   the level of all modules, OFF unless it is set
---   POPART_LOG_CONFIG  a JSON file {"devicex": "INFO"}, or such a text itself:
---                      levels of modules, over POPART_LOG_LEVEL
---   POPART_LOG_DEST    stderr (unless it is set), stdout or a file, which is emptied
---   POPART_LOG_FORMAT  spdlog's pattern of lines (log_pattern.lua), with times in UTC
---
--- Source: PopART user guide 4.7.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local pattern = require("popart.log_pattern")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")
local variables = require("lupine.base.variables")

local M = {}

local NAMES = { "TRACE", "DEBUG", "INFO", "WARN", "ERR", "CRITICAL", "OFF" }
-- Rank, and how a line shows the level.
local LEVELS = {
  TRACE = { 0, "trace" }, DEBUG = { 1, "debug" }, INFO = { 2, "info" }, WARN = { 3, "warning" },
  ERR = { 4, "error" }, CRITICAL = { 5, "critical" }, OFF = { 6, "off" },
}

--- The modules that log; `none` stands for all other names.
M.MODULES = { "popart", "session", "ir", "devicex", "transform", "pattern", "builder", "op", "opx",
  "ces", "python", "none" }
local SHOWN = { none = "popart:<unknown>" }
local known = tables.set(M.MODULES)

local level_of = {} -- module -> level's name
local shows, in_utc = pattern.compile("%+"), false
local stream -- nil: stderr, whatever io.stderr is then
local last = core.host.time()

local function check_level(level, where)
  return LEVELS[level] and level or errors.raise("ValueError", "%s: level: expected one of %s, "
    .. "got %s%s", where, table.concat(NAMES, ", "), check.describe(level),
    check.nearest(level, NAMES))
end

local function module_of(name)
  name = name:gsub("^popart:", "")
  return known[name] and name or "none"
end

--- Sets the level of one module, or with "all" of all.
--- error: ValueError for a level that is none of TRACE, DEBUG, INFO, WARN, ERR,
--- CRITICAL, OFF
---@param name string
---@param level string
function M.set_level(name, level)
  check_level(level, "setLevel")
  for _, module in ipairs(name == "all" and M.MODULES or { module_of(name) }) do
    level_of[module] = level
  end
end

--- The level of a module.
---@param module string
---@return string
function M.level(module)
  return level_of[module_of(module)]
end

--- Whether a line of this level ("DEBUG", …) would be written.
---@param module string
---@param level string
---@return boolean
function M.enabled(module, level)
  return LEVELS[level][1] >= LEVELS[level_of[module]][1]
end

-- Shown levels' colours of spdlog, on a terminal.
local COLOURS = { "37", "36", "32", "33;1", "31;1", "1;41" }

local function coloured(text, rank)
  if stream or not core.terminal_columns() then
    return text
  end
  return ("\27[%sm%s\27[m"):format(COLOURS[rank + 1], text)
end

local function write(module, level, text)
  local rank, shown = LEVELS[level][1], LEVELS[level][2]
  local now = core.host.time()
  local line = shows({ time = now, last = last, utc = in_utc, pid = core.devices.process(),
    name = SHOWN[module] or "popart:" .. module, level = shown, text = text,
    letter = shown:sub(1, 1):upper() })
  last = now
  local out = stream or io.stderr
  out:write(coloured(line, rank), "\n")
  out:flush()
end

for name in pairs(LEVELS) do
  if name ~= "OFF" then
    --- Logs a line of a module: logging.debug("devicex", "Creating %s", x).
    M[name:lower()] = function(module, fmt, ...)
      if M.enabled(module, name) then
        write(module, name, select("#", ...) > 0 and fmt:format(...) or fmt)
      end
    end
  end
end

-- ---- loggers ------------------------------------------------------------------------

--- A module's logger as scripts have it. Its lines are those of the module
--- `python`, whichever it is.
---@class popart.Logger
local Logger = closed.close(class.new("Logger"))
M.Logger = Logger

function Logger:init(name)
  self.name = name
end

--- The least level that is written: "TRACE", "DEBUG", "INFO", "WARN", "ERR",
--- "CRITICAL" or "OFF".
--- error: ValueError for another one
--- source: 004 popart.Logger.setLevel
---@param ... any level (string)
function Logger:setLevel(...)
  M.set_level(self.name, check.one("setLevel", "level", ...))
  M.debug("popart", "Logging levels configured as %s=%s ", self.name, (...))
end

for method, level in pairs({ debug = "debug", info = "info", warn = "warn", error = "err",
  critical = "critical" }) do
  Logger[method] = function(self, ...)
    check.method(self, Logger, method)
    local text = check.string(check.one(method, "info", ...), method .. ": info")
    M[level]("python", "%s", text)
  end
end

--- The logger of a module: popart, session, ir, devicex, transform, pattern, builder, op,
--- opx, ces, python; of another name that of the unidentified one; "all" is all of them.
--- error: TypeError
--- source: 004 popart.getLogger
---@param ... any name (string, "all" unless given)
---@return popart.Logger
function M.getLogger(...)
  local name = check.one("getLogger", "name", ...)
  return Logger(check.string(name == nil and "all" or name, "getLogger: name"))
end

--- The logger as C++ has it: logger.setLevel("session", "OFF"); "popart" and "all" are all
--- modules.
---@type {setLevel: fun(module: string, level: string)}
M.logger = {
  setLevel = function(...)
    local v = check.arguments("setLevel", { "module", "level" }, nil, ...)
    local name = check.string(v[1], "setLevel: module")
    M.set_level(name == "popart" and "all" or name, v[2])
  end,
}
signatures.note(M.logger.setLevel, "setLevel(module, level)", 1)

-- ---- environment ----------------------------------------------------------------------

local function open_destination(where)
  if where == "stdout" then
    stream = io.stdout
  elseif where ~= "stderr" then
    local file, why = io.open(where, "w")
    stream = errors.check(file, "OSError", "POPART_LOG_DEST: the log cannot go to %s", why)
  end
end

local function configure(given)
  local text = given
  if not given:find("^%s*{") then
    local file, why = io.open(given, "rb")
    errors.check(file, "FileNotFoundError", "POPART_LOG_CONFIG: %s", why)
    text = file:read("a") or ""
    file:close()
  end
  local levels = variables.object("POPART_LOG_CONFIG", text, "ValueError")
  for _, name in ipairs(tables.keys(levels)) do
    errors.within("POPART_LOG_CONFIG: " .. name, M.set_level, name, levels[name])
  end
end

errors.within("POPART_LOG_LEVEL", M.set_level, "all", variables.text("POPART_LOG_LEVEL") or "OFF")
if variables.text("POPART_LOG_CONFIG") then
  configure(variables.text("POPART_LOG_CONFIG"))
end
if variables.text("POPART_LOG_DEST") then
  open_destination(variables.text("POPART_LOG_DEST"))
end
if variables.text("POPART_LOG_FORMAT") then
  shows = errors.within("POPART_LOG_FORMAT", pattern.compile, variables.text("POPART_LOG_FORMAT"))
  in_utc = true
end

return M
