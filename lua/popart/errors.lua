--- PopART's classes of errors, by the names that its Python module has and by
--- those of its older documents, and how errors of what lies below become them:
--- `popart.popart_exception:is(e)`, `e.type == "popart_exception"`.
---
--- Application errors: popart_exception, popart_internal_exception,
--- popart_runtime_error, poplibs_exception, poplar_application_runtime_error. System
--- errors: the recoverable, the unrecoverable and the unknown one; what they leave
--- stands in lua/lupine/faults.lua.
---
--- Source: PopART user guide 4.8; its Python module.
local advice = require("popart.advice")
local class = require("lupine.base.class")
local enum = require("lupine.base.enum")
local errors = require("lupine.base.errors")
local logging = require("popart.logging")

local M = {}

-- Class and base, bases first.
local TREE = {
  { "popart_exception" },
  { "popart_internal_exception", "popart_exception" },
  { "popart_runtime_error", "popart_exception" },
  { "optimizer_replacement_error", "popart_runtime_error" },
  { "OutOfMemoryException", "popart_exception" },
  { "poplibs_exception" },
  { "poplar_exception" },
  { "poplar_runtime_error", "poplar_exception" },
  { "poplar_application_runtime_error", "poplar_runtime_error" },
  { "poplar_system_runtime_error", "poplar_runtime_error" },
  { "poplar_recoverable_runtime_error", "poplar_system_runtime_error" },
  { "poplar_unrecoverable_runtime_error", "poplar_system_runtime_error" },
  { "poplar_unknown_runtime_error", "poplar_system_runtime_error" },
}

-- Names of older releases for the same classes.
local OLD_NAMES = {
  poplar_application_error = "poplar_application_runtime_error",
  poplar_system_error = "poplar_system_runtime_error",
  poplar_recoverable_error = "poplar_recoverable_runtime_error",
  poplar_unrecoverable_error = "poplar_unrecoverable_runtime_error",
  poplar_unknown_error = "poplar_unknown_runtime_error",
  unknown_runtime_error = "poplar_unknown_runtime_error",
}

--- Name -> class, those of older releases included: what `popart` shows of them.
---@type table<string, table>
M.classes = {}
for _, row in ipairs(TREE) do
  M.classes[row[1]] = errors.define(row[1], M.classes[row[2]], row[1])
end
for old, name in pairs(OLD_NAMES) do
  M.classes[old] = M.classes[name]
end

--- What a recoverable error asks for; POWER_CYCLE is PopART's older name of
--- FULL_RESET.
M.RecoveryAction = enum("RecoveryAction", {
  { "IPU_RESET", 0 }, { "LINK_RESET", 1 }, { "PARTITION_RESET", 2 }, { "FULL_RESET", 3 },
  { "POWER_CYCLE", 3 },
})

local OutOfMemory = M.classes.OutOfMemoryException

--- What the simulated system says of the program that did not fit.
--- error: popart_exception unless the engine option debug.allowOutOfMemory is true
--- source: PopART Python API, OutOfMemoryException
---@return string
function OutOfMemory:getSummaryReport()
  M.check(self.summary, "popart_exception",
    "Need to set the 'debug.allowOutOfMemory' engine option to true to get the graph report")
  return self.summary
end

--- Where the report files of the program are; "" if there are none.
--- source: PopART Python API, OutOfMemoryException
---@return string
function OutOfMemory:getProfilePath()
  return self.profile_path or ""
end

local function class_of(name)
  return class.is_class(name) and name or M.classes[name] or name
end

-- PopART logs its own errors where they are made.
local function note(e)
  if M.classes.popart_exception:is(e) then
    logging.err("popart", "%s", e.message)
  end
  return e
end

--- An error of a class, to be raised; PopART's own are logged at ERR.
---@param name string|table a name of `classes`, or of Python's ("TypeError"), or a class
---@param message string
---@return any e
function M.new(name, message)
  return note(errors.new(class_of(name), nil, message))
end

--- Raises an error of a class.
---@param name string|table as of `new`
---@param fmt string as string.format; taken as it is without arguments
---@param ... any for the format
function M.raise(name, fmt, ...)
  error(M.new(name, select("#", ...) > 0 and fmt:format(...) or fmt), 0)
end

--- Raises unless `ok`; returns it otherwise.
---@param ok any
---@param name string|table as of `raise`
---@param fmt string as string.format; taken as it is without arguments
---@param ... any for the format
---@return any ok
function M.check(ok, name, fmt, ...)
  if not ok then
    M.raise(name, fmt, ...)
  end
  return ok
end

--- Raises OutOfMemoryException of a program that has a report.
---@param summary string its text
---@param folder string? where its report files are
---@param fmt string as string.format
---@param ... any for the format
function M.out_of_memory(summary, folder, fmt, ...)
  local e = M.new(OutOfMemory, fmt:format(...))
  e.summary, e.profile_path = summary, folder
  error(e, 0)
end

-- ---- errors of what lies below ------------------------------------------------------

-- Types that mean a class of another name; those of the simulated faults have
-- their class's own.
local BY_TYPE = {
  poplar_graph_memory_allocation_error = OutOfMemory,
  poplar_link_error = M.classes.poplar_exception,
  ["std::exception"] = errors.RuntimeError,
  ["std::out_of_range"] = errors.IndexError,
}

-- Slips of a call, which Python's binding tells by itself, and what is not about the
-- program.
local UNCHANGED = { errors.TypeError, errors.AttributeError, errors.KeyboardInterrupt,
  errors.OSError, errors.OutOfMemoryError, errors.ConfigFileError }
for _, row in ipairs(TREE) do
  UNCHANGED[#UNCHANGED + 1] = not row[2] and M.classes[row[1]] or nil
end

local function stays(e)
  for _, cls in ipairs(UNCHANGED) do
    if cls:is(e) then
      return true
    end
  end
  return not errors.Exception:is(e)
end

--- An error of what lies below as one of PopART's; message, location and traceback
--- stay. What the simulated machine raises gets its own class, all else about the
--- program the given one. Slips of a call (TypeError, AttributeError), errors of files
--- and PopART's own stay what they are.
---@param name string|table a name of `classes`, or a class
---@param e any
---@return any e
function M.of(name, e)
  if stays(e) then
    return e
  end
  local kept = e.type
  local cls = BY_TYPE[kept] or M.classes[kept] or class_of(name)
  errors.turn(e, cls)
  if BY_TYPE[kept] and cls ~= OutOfMemory then
    e.type = kept
  end
  if e.recovery_action then
    e.recoveryAction = M.RecoveryAction[e.recovery_action]
  end
  return note(e)
end

-- What pcall gave, without a table: it stands around every run.
local function result(name, ok, ...)
  if not ok then
    error(M.of(name, (...)), 0)
  end
  return ...
end

--- f(...) whose errors are PopART's (`of`), with advice where what raises them hints at it
--- (advice.lua).
---@param name string|table a name of `classes`, or a class
---@param f function
---@param ... any its arguments
---@return any ... what it returns
function M.guard(name, f, ...)
  return result(name, pcall(advice.call, f, ...))
end

-- ---- errors on demand ----------------------------------------------------------------

-- Functions that raise: what handles errors can be tried without a device.
local THROWS = {
  _throw_popart_error = "popart_exception",
  _throw_popart_internal_error = "popart_internal_exception",
  _throw_popart_runtime_error = "popart_runtime_error",
  _throw_poplibs_error = "poplibs_exception",
  _throw_poplar_error = "poplar_exception",
  _throw_poplar_runtime_error = "poplar_runtime_error",
  _throw_application_runtime_error = "poplar_application_runtime_error",
  _throw_system_runtime_error = "poplar_system_runtime_error",
  _throw_recoverable_runtime_error = "poplar_recoverable_runtime_error",
  _throw_unrecoverable_runtime_error = "poplar_unrecoverable_runtime_error",
  _throw_unknown_runtime_error = "poplar_unknown_runtime_error",
}

--- Name -> function(message) that raises an error of its class, as Python's module
--- has them; the recoverable one asks for IPU_RESET.
---@type table<string, fun(message: string)>
M.throws = {}
for name, of in pairs(THROWS) do
  M.throws[name] = function(message)
    local e = errors.new(M.classes[of], nil, message)
    if of == "poplar_recoverable_runtime_error" then
      e.recovery_action, e.recoveryAction = "IPU_RESET", M.RecoveryAction.IPU_RESET
    end
    error(note(e), 0)
  end
end

return M
