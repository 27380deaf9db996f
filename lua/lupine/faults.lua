--- Faults of the simulated machine, on demand: a program that runs on a device
--- fails at a chosen place with the error that a real machine would raise, so that
--- a script can try its recovery.
---
---     local faults = require("lupine.faults")
---     faults.inject({ kind = "recoverable", action = "PARTITION_RESET", step = 12 })
---
--- or in the environment, faults with semicolons between them:
---
---     LUPINE_FAULTS="recoverable action=IPU_RESET step=12; unrecoverable call=20"
---
--- Fields:
---   kind     recoverable, unrecoverable, unknown, application, link, popart,
---            popart_internal, poplibs, poptorch, exception, out_of_range
---   action   of a recoverable one: IPU_RESET (unless given), LINK_RESET,
---            PARTITION_RESET or FULL_RESET
---   call     the n-th call of a model from now on; of `link` the n-th compilation
---   step     the n-th device iteration, of the call, or of all from now on
---   cycle    n cycles after the start of the step, of the call, or from now on
---   device   only on the device of this id
---   times    how often (1): the next time where it struck again
---   message  the text of the error
--- Without call, step and cycle it is the next call.
---
--- What follows: the device iteration in which it strikes is abandoned at a
--- boundary between two operations, never inside the update. Weights, optimizer
--- states, buffers and the random state are those of the iterations that finished
--- (e.finished of them); the results of the call are lost. Then
---   IPU_RESET, LINK_RESET and the kinds of class Error: the model may be called
---     again,
---   PARTITION_RESET, FULL_RESET: it is not attached any more; its next call, or
---     attachToDevice, attaches it again,
---   unrecoverable: the same, but its IPUs are out of operation for this process.
--- The IPU Model has no faults but those of compiling (link).
---
--- Sources: PopTorch user guide 4.3; PopART's classes of errors.
local check = require("lupine.base.check")
local devices = require("lupine.devices")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

-- class, type and text of each kind; `compiling`: it strikes there.
local KINDS = {
  recoverable = { class = "RecoverableError", type = "poplar_recoverable_runtime_error" },
  unrecoverable = { class = "UnrecoverableError", type = "poplar_unrecoverable_runtime_error",
    text = "an error of the hardware that will come again" },
  unknown = { type = "poplar_unknown_runtime_error", text = "an error of an unknown cause" },
  application = { type = "poplar_application_runtime_error",
    text = "an error that the program raised" },
  link = { type = "poplar_link_error", compiling = true, text = "linking a codelet failed",
    appended = "ld: error: undefined symbol: __runCodelet_simulated" },
  popart = { type = "popart_exception", text = "PopART refused to go on" },
  popart_internal = { type = "popart_internal_exception", text = "an assertion of PopART failed" },
  poplibs = { type = "poplibs_exception", text = "PopLibs refused to go on" },
  poptorch = { type = "poptorch_cpp_error", text = "PopTorch refused to go on" },
  exception = { type = "std::exception", text = "an exception of the C++ library" },
  out_of_range = { type = "std::out_of_range", text = "an index of the C++ library" },
}

-- What each recovery does, for messages, and whether the device is lost until then.
local ACTIONS = {
  IPU_RESET = { text = "the IPU stopped" },
  LINK_RESET = { text = "a link between IPUs failed" },
  PARTITION_RESET = { text = "the links of the partition failed", lost = true },
  FULL_RESET = { text = "the system stopped", lost = true },
}
local OTHER_NAMES = { POWER_CYCLE = "FULL_RESET" } -- PopART's

local NUMBERS = { call = 1, step = 1, cycle = 0, device = 0, times = 1 } -- the least

local active = {} -- in the order in which they were injected

-- ---- what was asked for ------------------------------------------------------------

local function names_of(t)
  return table.concat(tables.keys(t), ", ")
end

local function one_of(allowed, value, where)
  return type(value) == "string" and allowed[value] or errors.raise("ValueError",
    "%s: expected one of %s, got %s", where, names_of(allowed), check.describe(value))
end

local FIELDS = { kind = true, action = true, message = true }
for name in pairs(NUMBERS) do
  FIELDS[name] = true
end

local function check_fields(spec, where)
  for name in pairs(spec) do
    if not FIELDS[name] then
      errors.raise("ValueError", "%s: no field '%s'. Allowed: %s", where, tostring(name),
        names_of(FIELDS))
    end
  end
end

local function action_of(spec, kind, where)
  local action = OTHER_NAMES[spec.action] or spec.action
  if kind.class == "RecoverableError" then
    action = action or "IPU_RESET"
    one_of(ACTIONS, action, where .. ": action")
  else
    errors.check(action == nil, "ValueError", "%s: action: only a recoverable fault has one", where)
  end
  return action
end

-- A fault as it is kept: what was asked for, and what was counted since.
local function new_fault(spec, where)
  spec = check.plain_table(spec, where)
  check_fields(spec, where)
  local kind = one_of(KINDS, spec.kind, where .. ": kind")
  local fault = { kind = kind, action = action_of(spec, kind, where), calls = 0, steps = 0,
    cycles = 0, spec = spec }
  for name, least in pairs(NUMBERS) do
    fault[name] = check.int(spec[name], ("%s: %s"):format(where, name),
      { nullable = true, min = least })
    errors.check(not (kind.compiling and spec[name] and name ~= "call" and name ~= "times"),
      "ValueError", "%s: %s: a fault of the kind '%s' strikes at a compilation, call = n", where,
      name, spec.kind)
  end
  errors.check(spec.message == nil or type(spec.message) == "string", "TypeError",
    "%s: message: expected a string, got %s", where, check.describe(spec.message))
  fault.times = fault.times or 1
  if not fault.step and not fault.cycle then
    fault.call = fault.call or 1
  end
  return fault
end

-- One field of the text: KEY=VALUE, where VALUE may stand in double quotes.
local function read_field(text, at, spec, where)
  local key, start = text:match("^%s*([%a_]+)%s*=%s*()", at)
  errors.check(key, "ValueError", "%s: expected NAME=VALUE, got '%s'", where,
    text:sub(at):match("^%s*([^;]*)"):sub(1, 40))
  local quoted, after = text:match('^"([^"]*)"()', start)
  local plain, plain_after = text:match('^([^%s;"]+)()', start)
  errors.check(quoted or text:sub(start, start) ~= '"', "ValueError",
    "%s: %s: the double quote is not closed: %s", where, key, text:sub(start, start + 39))
  errors.check(quoted or plain, "ValueError", "%s: %s: no value", where, key)
  errors.check(spec[key] == nil, "ValueError", "%s: %s is given twice", where, key)
  spec[key] = NUMBERS[key] and math.tointeger(tonumber(quoted or plain)) or quoted or plain
  return after or plain_after
end

--- What the text of faults means, a list of tables for inject.
---   faults = fault {";" fault}      fault = KIND {NAME "=" VALUE}
--- with blanks between; VALUE is a word or a text in double quotes.
--- error: ValueError
---@param text string
---@param where? string how the reader knows the text, for messages
---@return table[]
function M.parse(text, where)
  where = where or "faults.parse"
  local list, at = {}, 1
  repeat
    local kind, after = text:match("^[%s;]*([%a_]+)()", at)
    if not kind then
      local rest = text:match("^[%s;]*(.*)", at)
      errors.check(rest == "", "ValueError", "%s: expected a kind of fault, got '%s'", where,
        rest:sub(1, 40))
      break
    end
    one_of(KINDS, kind, where .. ": kind")
    local spec = { kind = kind }
    at = after
    while text:find("^%s*[^%s;]", at) do
      errors.check(text:find("^%s", at), "ValueError", "%s: expected a blank before '%s'", where,
        text:sub(at, at + 39))
      at = read_field(text, at, spec, where)
    end
    new_fault(spec, where)
    list[#list + 1] = spec
  until at > #text
  return list
end

local function add(list, where)
  for _, spec in ipairs(list) do
    active[#active + 1] = new_fault(spec, where)
  end
end

local read = false

-- What LUPINE_FAULTS has, once.
local function ready()
  if not read then
    local text = os.getenv("LUPINE_FAULTS")
    if text and text ~= "" then
      add(M.parse(text, "LUPINE_FAULTS"), "LUPINE_FAULTS")
    end
    read = true
  end
end

--- Asks for a fault; the head of this file has the fields. A string is the text of
--- one or more.
--- error: ValueError or TypeError naming the field
---@param fault {kind: string, action: string?, call: integer?, step: integer?,
---  cycle: integer?, device: integer?, times: integer?, message: string?}|string
function M.inject(fault)
  ready()
  local list = type(fault) == "string" and M.parse(fault, "faults.inject")
    or { check.plain_table(fault, "faults.inject") }
  errors.check(#list > 0, "ValueError", "faults.inject: the text names no fault")
  add(list, "faults.inject")
end

--- No fault is to come any more, those of LUPINE_FAULTS included; IPUs that an
--- unrecoverable one has put out of operation work again.
function M.clear()
  ready()
  active = {}
  devices.repair()
end

--- The faults that are to come, as they were injected.
---@return table[]
function M.pending()
  ready()
  local out = {}
  for i, fault in ipairs(active) do
    out[i] = fault.spec
  end
  return out
end

-- ---- when it strikes -----------------------------------------------------------------

local function strike(fault)
  fault.times = fault.times - 1
  if fault.times == 0 then
    for i, other in ipairs(active) do
      if other == fault then
        table.remove(active, i)
        break
      end
    end
  end
end

local function error_of(fault, location)
  local action, kind = fault.action, fault.kind
  local text = fault.spec.message or kind.text or ACTIONS[action].text
  if kind.appended then
    text = text .. "\n" .. kind.appended
  end
  return errors.new(kind.class or "Error", kind.type, text, location, action)
end

--- A program is being compiled.
--- error: that of a fault that strikes then
function M.compiling()
  ready()
  for _, fault in ipairs(active) do
    if fault.kind.compiling then
      fault.calls = fault.calls + 1
      if fault.calls >= fault.call then
        strike(fault)
        error(error_of(fault, ("while program %d was compiled"):format(fault.calls)), 0)
      end
    end
  end
end

-- Where in a call of n iterations a fault strikes: the iteration, from 0, and how
-- much of it is done before; nil: not in this call.
local function place(fault, n, cycles)
  local in_call = fault.call ~= nil
  if in_call and fault.calls < fault.call then
    return nil
  end
  local at = (fault.cycle or 0) / cycles -- in iterations
  if fault.step then
    at = at + fault.step - 1 - (in_call and 0 or fault.steps)
  elseif not in_call then
    at = at - fault.cycles / cycles
  end
  at = math.max(at, 0) -- it came by while another fault struck
  local iteration = math.floor(at)
  return iteration < n and iteration or nil, at - iteration
end

--- A session is about to call its program: sets where that is to fail, if it is.
---@param session lupine.Session
---@return {fault: table, iteration: integer, share: number}? trap
function M.arm(session)
  ready()
  local device, first = session.device, nil
  local n = session.device_iterations
  local cycles = math.max(session.report.cycles, 1) / n -- of an iteration
  for _, fault in ipairs(device and active or {}) do
    if not fault.kind.compiling and (not fault.device or fault.device == device.id) then
      fault.calls = fault.calls + 1
      local iteration, share = place(fault, n, cycles)
      if iteration and (not first or iteration + share < first.iteration + first.share) then
        first = { fault = fault, iteration = iteration, share = share }
      end
    end
  end
  session.exec:trap(first and first.iteration or -1, first and first.share or 0)
  return first
end

--- The call is over: counts what it did.
---@param session lupine.Session
---@param finished integer device iterations
function M.count(session, finished)
  local device, cycles = session.device, session.report.cycles / session.device_iterations
  for _, fault in ipairs(device and active or {}) do
    if not fault.device or fault.device == device.id then
      fault.steps = fault.steps + finished
      fault.cycles = fault.cycles + finished * cycles
    end
  end
end

-- The device has failed: what becomes of it.
local function lose(session, fault)
  local broken = fault.kind == KINDS.unrecoverable
  if broken then
    session.device:break_down()
  end
  if broken or fault.action and ACTIONS[fault.action].lost then
    session:settle()
    session:leave_device()
  end
end

--- The call failed: with the error of a fault, or its own.
---@param session lupine.Session
---@param trap table? from arm
---@param e any what the executor raised
---@return any error
function M.failed(session, trap, e)
  local finished, cycles = session.exec:finished(), session.report.cycles
  M.count(session, finished)
  if not trap or not errors.Exception:is(e) or e.type ~= "fault_on_demand" then
    return e
  end
  local at = (trap.iteration + trap.share) / session.device_iterations * cycles
  e = error_of(trap.fault, ("%s\nat cycle %.0f of %d, call %d\non %s"):format(e.location, at,
    cycles, trap.fault.calls, session.device))
  e.finished = finished
  strike(trap.fault)
  lose(session, trap.fault)
  return e
end

return require("lupine.base.namespace").close(M, "lupine.faults")
