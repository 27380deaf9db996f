--- Tracepoints of the host.
---
---     local channel = tracepoints.Channel("MyApp")
---     do
---       local _ <close> = channel:tracepoint("TimeThis")
---       functionToTime()
---     end
---     channel:instrument(myobj, "methodName", "otherMethod")
---
--- They are recorded if the environment variable PVTI_OPTIONS, a JSON object, says
--- so when this module loads, and do nothing else:
---   enable     "true"
---   directory  of the trace file; the current one unless given
---   channels   names of the channels to record, with commas between, or a list; all
---              unless given
---
--- The file, DATE_TIME_PID.pvti.json, has the Trace Event Format that Chrome's
--- tracing page and Perfetto show: a JSON array, one event a line, whose last
--- bracket may be missing (of a process that was killed). A tracepoint is a complete
--- event: `cat` the channel, `name` channel.tracepoint, `ts` and `dur` in
--- microseconds of the machine's monotonic clock. The first event has the time of day
--- at which that clock stood where, in seconds, so that traces of several processes
--- can be laid side by side.
---
--- Sources: PopTorch API reference, poptorch.profiling; user guide 4.11.2.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local signatures = require("lupine.base.signatures")
local spans = require("lupine.base.spans")
local variables = require("lupine.base.variables")

local M = {
  --- Whether anything is recorded: one test where a call must cost nothing.
  active = false,
}

-- ---- the trace file --------------------------------------------------------------

local trace -- {file, channels or nil}; nil: nothing is recorded

local function write(event)
  trace.file:write(",\n", core.json_encode(event))
  trace.file:flush() -- a forked worker must not write it again
end

local function finish()
  M.active = false
  if trace then
    trace.file:write("\n]\n")
    trace.file:close()
    trace = nil
  end
end

-- The names of PVTI_OPTIONS.channels as a set; nil: all.
local function wanted(channels)
  if channels == nil then
    return nil
  end
  local set = {}
  if type(channels) == "string" then
    for name in channels:gmatch("[^,%s]+") do
      set[name] = true
    end
    return set
  end
  errors.check(getmetatable(channels) == core.json_array, "ValueError",
    "PVTI_OPTIONS: channels: expected a string or a list of strings")
  for i = 1, channels.n do
    set[check.string(channels[i], "PVTI_OPTIONS: channels", { error = "ValueError" })] = true
  end
  return set
end

local KNOWN = { enable = true, directory = true, channels = true }

local function options_of(text)
  local options = variables.object("PVTI_OPTIONS", text, "ValueError")
  for name in pairs(options) do
    errors.check(KNOWN[name], "ValueError", "PVTI_OPTIONS: unknown option '%s'. Allowed: enable, "
      .. "directory, channels", tostring(name))
  end
  local on = tostring(options.enable)
  errors.check(options.enable == nil or on == "true" or on == "false", "ValueError",
    "PVTI_OPTIONS: enable: expected true or false, got %s", on)
  return options
end

--- Begins a trace as PVTI_OPTIONS would; the one that is being written ends.
--- error: ValueError for what is no such text, OSError if the file cannot be made
---@param text string? nil: nothing is recorded from now on
---@return string? path of the file
function M._begin(text)
  finish()
  local options = text and text ~= "" and options_of(text) or {}
  if tostring(options.enable) ~= "true" then
    return nil
  end
  local dir = options.directory or "."
  errors.check(type(dir) == "string", "ValueError", "PVTI_OPTIONS: directory: expected a string")
  local channels = wanted(options.channels)
  local made, e = pcall(core.make_folder, dir)
  errors.check(made, "OSError", "PVTI_OPTIONS: directory: %s", not made and e.message or "")
  local id = core.devices.process()
  local path = ("%s/%s_%d.pvti.json"):format(dir, os.date("%Y-%m-%d_%H-%M-%S"), id)
  local file, why = io.open(path, "w")
  trace = errors.check(file, "OSError", "PVTI_OPTIONS: %s", tostring(why))
    and { file = file, channels = channels }
  M.active = true
  file:write("[\n", core.json_encode({ name = "clock", ph = "M", pid = id, tid = id,
    args = { monotonic = core.host.clock(), unix = os.time() } }))
  file:flush()
  return path
end

--- Whether the channel's tracepoints are recorded.
---@param name string
---@return boolean
function M._records(name)
  return trace ~= nil and (trace.channels == nil or trace.channels[name] == true)
end

-- ---- channels ----------------------------------------------------------------------

-- An open tracepoint; one that is not recorded has no name. `span`: that of a profile
-- which is open as long.
local Tracepoint = class.new("Tracepoint")

function Tracepoint.__close(self)
  if self.name and trace then
    local id = core.devices.process() -- also a forked worker's
    write({ ph = "X", cat = self.channel, name = self.name, pid = id, tid = id,
      ts = self.start * 1e6, dur = (core.host.clock() - self.start) * 1e6 })
  end
  self.name = nil
  if self.span then
    self.span:__close()
  end
end

local NONE = Tracepoint()

---@class lupine.tracepoints.Channel
local Channel = class.new("Channel")
M.Channel = Channel
signatures.note(Channel, "Channel(name)", 1)

---@param ... any name (string)
function Channel:init(...)
  self.name = check.string(check.one("Channel", "name", ...), "Channel(name)")
end

local function open(channel, name, span)
  local records = M._records(channel.name)
  if not records and not span then
    return NONE
  end
  local point = Tracepoint()
  point.span = span
  if records then
    point.channel, point.name = channel.name, channel.name .. "." .. name
    point.start = core.host.clock()
  end
  return point
end

--- A scope that is timed, or a function that is run in it.
---@param ... any name (string), f (function|nil)
---@return any what `f` returns, else the scope, to be closed
function Channel:tracepoint(...)
  local args, f = table.pack(...), nil
  if type(args[args.n]) == "function" then
    f, args.n = args[args.n], args.n - 1
  end
  local name = check.string(check.one("tracepoint", "name", table.unpack(args, 1, args.n)),
    "tracepoint(name)")
  local point = open(self, name)
  if f == nil then
    return point
  end
  local _ <close> = point
  return f()
end

--- A scope of the library's own: a tracepoint, and a span of lupine.profile's tables.
---@param name string of the tracepoint
---@param shown string of the span
---@return any scope to be closed
function Channel:_scope(name, shown)
  return open(self, name, spans.active and spans.open(shown) or nil)
end

-- Functions that are instrumented, by the channel's name.
local instrumented = setmetatable({}, { __mode = "k" })

local function instrument(channel, obj, name)
  local method = obj[name]
  errors.check(type(method) == "function", "AttributeError",
    "instrument: %s has no method '%s'", check.describe(obj), tostring(name))
  if not M._records(channel.name) or instrumented[method] == channel.name then
    return
  end
  local function timed(...)
    local _ <close> = channel:tracepoint(name)
    return method(...)
  end
  instrumented[timed] = channel.name
  if require("torch.nn").Module:is(obj) then
    obj[name] = timed -- its fields are looked up in its own way
  else
    rawset(obj, name, timed)
  end
end

--- Times every call of these methods of an object, under their names.
--- error: AttributeError for a method that it does not have
---@generic T: table
---@param obj T
---@param ... string names of methods
---@return T obj
function Channel:instrument(obj, ...)
  errors.check(type(obj) == "table", "TypeError", "instrument(obj): expected an object, got %s",
    check.describe(obj))
  for _, name in ipairs({ ... }) do
    instrument(self, obj, name)
  end
  return obj
end

function Channel:__tostring()
  return ("Channel(%s)"):format(self.name)
end

M._begin(os.getenv("PVTI_OPTIONS"))

-- The end of the program ends the array.
M._end = setmetatable({}, { __gc = finish })

return M
