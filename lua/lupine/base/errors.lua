--- Errors as objects, with the classes that Python scripts test for.
---
--- An error is a table {message, type, location, traceback, origin}:
---   message    the text alone
---   type       which part raised it and the category ("value_error",
---              "poptorch_py_error", …; src/base/errors.def lists those of C)
---   location   the stack of context labels, innermost first, one a line;
---              outside a context `origin`
---   origin     "file:line" of the innermost frame outside this library
---   traceback  the Lua stack where it was made
---   frames     the same as the host prints it, without this library's own
---              frames (nil under the stock lua command)
---   hint       what is to be changed, of some errors that front ends share, for
---              each to say in its own terms (lua/lupine/base/advice.lua)
--- RecoverableError has `recovery_action` too; what each action takes, and what an
--- UnrecoverableError leaves, stands in lua/lupine/faults.lua. `Class:is(e)` tests
--- for a class or its sub-classes and is false for plain strings. Instances are
--- made by `errors.raise` (Lua) and `errors.new` (C's error bridge) only.
---
--- Sources: Python's built-in exceptions; PopTorch user guide 4.3.
local class = require("lupine.base.class")

local M = {}

local Exception = class.new("Exception")

--- Class name -> class; `M.ValueError` is the same as `classes.ValueError`.
local classes = { Exception = Exception }
M.Exception = Exception
M.classes = classes

local function define(name, base, default_type)
  local cls = base:extend(name)
  rawset(cls, "default_type", default_type)
  classes[name] = cls
  M[name] = cls
  return cls
end

define("ValueError", Exception, "value_error")
define("TypeError", Exception, "type_error")
define("AttributeError", Exception, "attribute_error")
define("AssertionError", Exception, "assertion_error")
define("LookupError", Exception, "lookup_error")
define("IndexError", M.LookupError, "index_error")
define("KeyError", M.LookupError, "key_error")
define("ArithmeticError", Exception, "arithmetic_error")
define("OverflowError", M.ArithmeticError, "overflow_error")
define("ZeroDivisionError", M.ArithmeticError, "zero_division_error")
define("OSError", Exception, "os_error")
define("FileNotFoundError", M.OSError, "file_not_found_error")
define("NameError", Exception, "name_error")
define("ImportError", Exception, "import_error")
define("StopIteration", Exception, "stop_iteration")
define("KeyboardInterrupt", Exception, "interrupt")
define("RuntimeError", Exception, "runtime_error")
define("LinAlgError", M.RuntimeError, "linalg_error")
define("NotImplementedError", M.RuntimeError, "not_implemented_error")
define("OutOfMemoryError", M.RuntimeError, "out_of_memory")
define("Error", M.RuntimeError, "poptorch_py_error")
define("RecoverableError", M.Error, "poplar_recoverable_runtime_error")
define("UnrecoverableError", M.Error, "poplar_unrecoverable_runtime_error")
define("ConfigFileError", Exception, "config_file_error")

-- Where this library's Lua lies: frames below it are not the caller's.
local own = debug.getinfo(1, "S").source:match("^@(.*)lupine[/\\]base[/\\]errors%.lua$")

local function user_frame()
  for level = 3, 60 do
    local info = debug.getinfo(level, "Sl")
    if not info then
      return ""
    end
    local path = info.source:match("^@(.*)")
    if info.what ~= "C" and info.currentline > 0
      and not (path and own and path:sub(1, #own) == own) then
      return ("%s:%d"):format(info.short_src, info.currentline)
    end
  end
  return ""
end

--- "file:line" of the innermost frame outside this library, or "".
---@return string
function M.caller()
  return (user_frame())
end

-- PopTorch moves an error text of more than 80 lines into a file and points
-- to it (reference: user guide 4.3, observed behaviour).
local LONGEST = 80
local LOG_FILE = "poptorch_error.log"

local function shorten(message)
  local _, lines = message:gsub("\n", "\n")
  if lines <= LONGEST then
    return message
  end
  local f = io.open(LOG_FILE, "w")
  if not f then
    return message
  end
  f:write(message, "\n")
  f:close()
  return ("%s ... (%d lines; see %s for the full message)"):format(
    message:match("^[^\n]*"), lines + 1, LOG_FILE)
end

local function numbered(location)
  local lines, i = {}, 0
  for line in location:gmatch("[^\n]+") do
    lines[#lines + 1] = ("  [%d] %s"):format(i, line)
    i = i + 1
  end
  return table.concat(lines, "\n")
end

-- The message, then the context labels that it has got on its way.
function Exception.__tostring(e)
  local name = getmetatable(e).__name
  local where = e.origin ~= "" and e.origin .. ": " or ""
  local context = e.location ~= e.origin and e.location ~= "" and "\n" .. e.location or ""
  return ("%s%s: %s"):format(where, name, e.message) .. context:gsub("\n", "\n  ")
end

--- "failed: " .. e
function Exception.__concat(a, b)
  return tostring(a) .. tostring(b)
end

for _, cls in pairs(classes) do
  cls.__tostring = Exception.__tostring
  cls.__concat = Exception.__concat
end

local function poptorch_text(e)
  local where = e.origin ~= "" and "In " .. e.origin .. ": " or ""
  local lines = { ("%s'%s': %s"):format(where, e.type, e.message) }
  if e.recovery_action then
    lines[#lines + 1] = "Recovery action required: " .. e.recovery_action
  end
  if e.location ~= "" and e.location ~= e.origin then
    lines[#lines + 1] = "Error raised in:"
    lines[#lines + 1] = numbered(e.location)
  end
  return table.concat(lines, "\n")
end
M.Error.__tostring = poptorch_text
M.RecoverableError.__tostring = poptorch_text
M.UnrecoverableError.__tostring = poptorch_text

--- Makes an error object without raising it.
---@param class_name string|table  "ValueError" or the class
---@param type_name? string        the `type` field; the class's own if nil
---@param message string
---@param location? string         context labels, innermost first, one a line
---@param recovery_action? string  for RecoverableError: IPU_RESET, LINK_RESET,
---                                PARTITION_RESET or FULL_RESET
---@return table error
function M.new(class_name, type_name, message, location, recovery_action)
  local cls = class.is_class(class_name) and class_name or classes[class_name] or M.RuntimeError
  local e = setmetatable({}, cls)
  local poptorch = M.Error:is(e)
  e.type = type_name or cls.default_type
  e.message = poptorch and shorten(message) or message
  e.origin = user_frame()
  e.location = location and location ~= "" and location or e.origin
  e.recovery_action = recovery_action
  local host_traceback = package.loaded["lupine.host_traceback"]
  e.frames = host_traceback and host_traceback(2)
  -- Lua's own looks for each function's name in all that is loaded: two milliseconds
  e.traceback = host_traceback and host_traceback(2, true) or debug.traceback(nil, 2)
  return e
end

--- Raises an error of a class.
---@param cls string|table  "ValueError" or the class
---@param fmt string        as string.format; taken as it is without arguments
---@param ... any for the format
function M.raise(cls, fmt, ...)
  local message = select("#", ...) > 0 and fmt:format(...) or fmt
  error(M.new(cls, nil, message), 0)
end

--- pcall, but for what is no fault of the function: Ctrl-C and want of memory are raised on.
---@param fn function
---@param ... any
---@return boolean ok
---@return any ... what fn returns, or the error
function M.try(fn, ...)
  local got = table.pack(pcall(fn, ...))
  if not got[1] and (classes.KeyboardInterrupt:is(got[2])
    or classes.OutOfMemoryError:is(got[2])) then
    error(got[2], 0)
  end
  return table.unpack(got, 1, got.n)
end

--- Raises unless `ok`; returns it otherwise.
---@param ok any
---@param cls string|table "ValueError" or the class
---@param fmt string as string.format; taken as it is without arguments
---@param ... any for the format
---@return any ok
function M.check(ok, cls, fmt, ...)
  if not ok then
    M.raise(cls, fmt, ...)
  end
  return ok
end

local function raise_with(hint, cls, type_name, fmt, ...)
  local e = M.new(cls, type_name, fmt:format(...))
  e.hint = hint
  error(e, 0)
end

--- Raises an error with a hint for front ends.
---@param hint string
---@param cls string|table "ValueError" or the class
---@param fmt string as string.format
---@param ... any for the format
function M.raise_hint(hint, cls, fmt, ...)
  raise_with(hint, cls, nil, fmt, ...)
end

-- The type of the core's own (src/base/errors.def).
local OF_CORE = "poptorch_cpp_error"

--- Raises an Error as the core does, where a program cannot run here.
---@param hint string? for front ends; nil: none
---@param fmt string as string.format
---@param ... any for the format
function M.fail(hint, fmt, ...)
  raise_with(hint, "Error", OF_CORE, fmt, ...)
end

--- Makes an error one of another class.
---@param e table
---@param cls table
---@return table e
function M.turn(e, cls)
  e.type = cls.default_type
  return setmetatable(e, cls)
end

--- Appends a label to the location of an error that is on its way up ("in
--- layer 'fc2'"); anything that is no error object passes unchanged.
---@param e any
---@param label string
---@return any e
function M.add_context(e, label)
  if Exception:is(e) then
    local inner = e.location ~= e.origin and e.location or ""
    e.location = inner == "" and label or inner .. "\n" .. label
  end
  return e
end

local function passed(what, ok, ...)
  if not ok then
    local e = ...
    if Exception:is(e) then
      e.message = ("%s: %s"):format(what, e.message)
    end
    error(e, 0)
  end
  return ...
end

--- Runs a function; the message of its error begins with what it was for, the option
--- or variable of whose text it makes something.
---@param what string
---@param f fun(...): any
---@param ... any its arguments
---@return any ... what it returns
function M.within(what, f, ...)
  return passed(what, pcall(f, ...))
end

--- Defines one more class ("Network error" of a user, popart's own).
---@param name string
---@param base? table  Exception if nil
---@param default_type? string
---@return table class
function M.define(name, base, default_type)
  base = base or Exception
  return define(name, base, default_type or base.default_type)
end

return M
