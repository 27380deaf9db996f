--- How a session's program comes onto its device: prepareDevice compiles it, its report
--- files are written, and it is loaded then or by its first run.
---
--- Several sessions may share a device, which remembers whose program was loaded last:
--- running another one's loads that again. What a program holds stays.
---
--- Source: PopART Python API, Session; PopART user guide 4.
local check = require("lupine.base.check")
local device_info = require("popart.device_info")
local errors = require("popart.errors")
local executables = require("popart.executables")
local logging = require("popart.logging")
local lupine_session = require("lupine.session")
local memory = require("popart.memory")
local optimizers = require("popart.optimizers")
local own = require("popart.session.own")
local parts = require("popart.parts")
local reports = require("lupine.session.reports")
local settings = require("popart.session_settings")

local M = { methods = {} }
local methods = M.methods

--- A session's state, once its device is prepared.
--- error: popart_runtime_error before
---@param self popart.Session
---@param what string the method
---@return table s
function M.prepared(self, what)
  local s = own.state(self)
  errors.check(s.session, "popart_runtime_error", "Devicex::prepare() must be called before "
    .. "Devicex::%s(...) is called.", what)
  return s
end

-- ---- compiling -----------------------------------------------------------------------------

-- The states that go on: those of a loaded file, or of the model's.
local function states_given(s)
  local given = executables.states(s)
  for name, t in pairs(s.model.graph.initializers) do
    given[name] = given[name] or t
  end
  return given
end

-- Tells compilationProgressLogger how far it is, never less than before.
local function teller(s)
  local told, total = s.options.compilationProgressLogger, s.options.compilationProgressTotal
  local most = 0
  return function(share)
    most = math.max(most, math.floor(share * total))
    if told then
      told(most, total)
    end
  end
end

-- Parts of a compilation: the step is completed, planned, lowered.
local PARTS = 4

local function open(s, tell)
  local step, spec = s.traced.step, settings.spec(s)
  local done = 0
  function spec.progress()
    done = math.min(done + 1, PARTS - 1)
    tell(done / PARTS)
  end
  function spec.place()
    return s.load and device_info.lend(s.device) or nil
  end
  parts.plan(s, spec)
  spec.cache = executables.cache(s)
  executables.mark(s)
  if s.executable then
    step, spec = executables.open(s, spec)
  end
  if s.training then
    s.view = optimizers.view(s.optimizer, settings.trained(s), states_given(s),
      settings.scaling(s))
    spec.optimizer = s.view
  end
  reports.prepare(settings.engine(s), s.name)
  return lupine_session.open(step, spec)
end

-- A program for IPUs must fit, also where it was compiled to be reported.
local function check_memory(s, session, folder)
  local ok, e = pcall(memory.check, session.report, s.device, folder)
  if not ok then
    session:close()
    error(e, 0)
  end
end

-- The program with its report files.
local function opened(s, tell)
  local session = errors.guard("popart_exception", open, s, tell)
  local folder = reports.write(session, settings.engine(s), s.name)
  if folder then
    logging.info("session", "reports of the session '%s' are in %s", s.name, folder)
  end
  check_memory(s, session, folder)
  return session
end

--- Compiles the program and puts it on the device.
--- errors: OutOfMemoryException for a program that does not fit; popart_exception; OSError
--- for report files that cannot be written
--- source: 004 popart.Session.prepareDevice
---@param ... any loadEngine (boolean, true)
function methods:prepareDevice(...)
  local s = own.state(self)
  local load = check.one("prepareDevice", "loadEngine", ...)
  load = check.bool(load == nil or load, "prepareDevice: loadEngine")
  errors.check(not s.session, "popart_exception", "prepareDevice: the session's device was "
    .. "prepared before; make a new session to compile the model again")
  local o, tell = s.options, teller(s)
  s.load = load and o.compileEngine and s.device.connectionType.name == "Always"
    and s.device.type.name ~= "OfflineIpu"
  tell(0)
  s.session = opened(s, tell)
  tell(1)
  settings.annotate(s)
  logging.info("devicex", "Graph compiled")
  s.random = s.session.exec:stats().draws
  if s.load then
    device_info.note(s.device, s.session)
    s.session:enter_device(s.session.device)
    M.loaded(s)
  end
end

-- ---- loading -------------------------------------------------------------------------------

-- Device -> the session whose program it was given last.
local last_on = setmetatable({}, { __mode = "kv" })

--- A session's program is on its device now.
---@param s table
function M.loaded(s)
  s.loaded = true
  last_on[s.device] = s.session
  logging.info("devicex", "Engine loaded")
end

--- Puts a session's program on its device, unless it is there.
--- error: popart_runtime_error for an offline device, or one that others have
---@param s table
function M.load(s)
  local here = s.loaded and s.session.attached
  if here and last_on[s.device] == s.session then
    return
  end
  errors.check(s.options.compileEngine, "popart_runtime_error",
    "Trying to load an engine, but the session has no compiled engine. Did you forget to call "
    .. "prepareDevice()? SessionOptions.compileEngine is False")
  if not here then
    s.session:enter_device(device_info.lend(s.device, s.session, nil))
  end
  M.loaded(s)
end

--- Puts a program that was prepared with loadEngine = false on its device.
--- error: popart_runtime_error before prepareDevice, or for an offline device
function methods:loadEngineAndConnectStreams()
  local s = own.state(self)
  errors.check(s.session, "popart_runtime_error", "no compiled engine: Did you forget to call "
    .. "prepareDevice()?")
  errors.guard("popart_runtime_error", M.load, s)
end

--- Says whether the program counts as loaded; one that does not is loaded by the next run.
--- error: popart_runtime_error before prepareDevice
---@param isLoaded boolean
function methods:setEngineIsLoaded(isLoaded)
  local s = M.prepared(self, "setEngineIsLoaded")
  s.loaded = check.bool(isLoaded, "setEngineIsLoaded: isLoaded")
end

return M
