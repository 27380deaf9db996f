--- A session's compiled program in a file and back: compileAndExport, saveExecutable,
--- loadExecutableFromFile, and the cache of engines. The file is an executable of
--- lupine (lua/lupine/session/stored.lua); beside the program there are
---   popart         the kind of session, its loss and anchors
---   variable/NAME  weights, state/NAME the optimizer's, unless saveVariables is false
---
--- Source: PopART Python API, Session.
local check = require("lupine.base.check")
local core = require("lupine.core")
local device_info = require("popart.device_info")
local errors = require("popart.errors")
local logging = require("popart.logging")
local own = require("popart.session.own")
local settings = require("popart.session_settings")
local stored = require("lupine.session.stored")
local tables = require("lupine.base.tables")

local M = { methods = {} }
local methods = M.methods

local DEFAULT_NAME, VARIABLES_NAME = "executable.popef", "variables.popef"

-- The file that is meant: a folder gets one of this name; missing folders are made.
local function target_of(path, name, where)
  check.string(path, where .. ": path")
  local folder = path:match("^(.*)/[^/]*$")
  if folder and folder ~= "" then
    core.make_folder(folder)
  end
  return core.is_folder(path) and path:gsub("/$", "") .. "/" .. name or path
end

-- What tells the session's program from others but for values of weights: of its step as it
-- was traced, and of its constants.
local function key_of(s)
  if not s.program_key then
    local step = s.traced.step
    local parts = { step:text("key") }
    for i, v in ipairs(step:vars()) do
      parts[#parts + 1] = v.role == "constant" and core.xxh3(step:data(i):tobytes()) or nil
    end
    s.program_key = core.xxh3(table.concat(parts, "\n"))
  end
  return s.program_key
end

--- Keeps what an executable of the session is known by: compiling changes the step.
---@param s table
function M.mark(s)
  if device_info.can_compile_offline(s.device) then
    key_of(s)
  end
end

-- What a program of the file must be for this session.
local function kind_of(s)
  local o, anchors = s.options, {}
  for i, id in ipairs(s.flow:anchors()) do
    anchors[i] = ("%s: %s"):format(id, s.flow:art(id))
  end
  return { training = s.training, loss = s.loss, anchors = table.concat(anchors, ", "),
    optimizer = s.training and tostring(getmetatable(s.optimizer).__name) or nil,
    reduction = s.training and ("%s, %s"):format(o.accumulationAndReplicationReductionType.name,
      o.meanAccumulationAndReplicationReductionStrategy.name) or nil,
    enableStochasticRounding = o.enableStochasticRounding, ["model's program"] = key_of(s) }
end

local function variables_of(s, tensors)
  s.session:settle()
  for name, t in pairs(s.model.variables) do
    tensors["variable/" .. name] = t
  end
  for name, t in pairs(settings.states_of(s)) do
    tensors["state/" .. name] = t
  end
end

local function check_offline(s)
  errors.check(device_info.can_compile_offline(s.device), "popart_exception",
    "Executables for device type %s cannot be saved", device_info.TYPES[s.device.type])
end

local function save(s, path, variables)
  check_offline(s)
  local texts, tensors = stored.take(s.session)
  texts.popart = stored.encode(kind_of(s), "popart")
  if variables then
    variables_of(s, tensors)
  end
  stored.write(path, texts, tensors)
  logging.info("session", "the executable was saved to %s", path)
end

--- Saves the compiled program.
--- errors: popart_exception before prepareDevice, or for a device whose executables
--- cannot be saved; OSError
--- source: PopART Python API, Session.saveExecutable
---@param ... any path (a folder gets executable.popef), savePopartMetadata (no effect: the
---  file is one always), saveVariables (true)
function methods.saveExecutable(self, ...)
  local v = check.arguments("saveExecutable", { "path", "savePopartMetadata", "saveVariables" },
    nil, ...)
  local s = own.state(self)
  errors.check(s.session, "popart_exception", "There is no executable to save. Please compile the "
    .. "executable by calling prepareDevice() first.")
  local path = target_of(v[1], DEFAULT_NAME, "saveExecutable")
  errors.guard("popart_exception", save, s, path, v[3] ~= false)
end

--- Saves the weights and the optimizer's state.
--- errors: as of saveExecutable
---@param path string a folder gets variables.popef
function methods.saveVariables(self, path)
  local s = own.state(self)
  errors.check(s.session, "popart_exception", "There is no executable. Please compile it by "
    .. "calling prepareDevice() first.")
  local tensors = {}
  errors.guard("popart_exception", variables_of, s, tensors)
  stored.write(target_of(path, VARIABLES_NAME, "saveVariables"), {}, tensors)
end

--- Compiles the program, without a device, and saves it.
--- errors: as of prepareDevice and saveExecutable
--- source: PopART Python API, Session.compileAndExport
---@param filename string a folder gets executable.popef
function methods.compileAndExport(self, filename)
  local s = own.state(self)
  check_offline(s)
  local path = target_of(filename, DEFAULT_NAME, "compileAndExport")
  if not s.session then
    self:prepareDevice(false)
  end
  errors.guard("popart_exception", save, s, path, true)
end

-- The file's program must be of this session.
local function check_kind(s, file)
  local theirs, ours = stored.data(file, "popart"), kind_of(s)
  for _, name in ipairs(tables.keys(ours)) do
    local a, b = ours[name], theirs[name]
    errors.check(a == b, "popart_exception", "%s: the executable is of another session: its %s is "
      .. "'%s', this one's is '%s'", file.path, name, tostring(b), tostring(a))
  end
end

-- What the simulated system was told of the program, but for its chips, as it is now.
local OF_CHIPS = tables.set("chip tiles power_of_two allow_out_of_memory")

local function check_system(file, ours, theirs)
  for _, name in ipairs(tables.keys(ours)) do
    local a, b = stored.encode(ours[name], name), stored.encode(theirs[name], name)
    errors.check(OF_CHIPS[name] or a == b, "popart_exception", "%s: the executable was compiled "
      .. "with other options: its %s is %s, this session's is %s", file.path, name, b, a)
  end
end

local function load(s, path)
  local file = stored.read(core.is_folder(path) and path:gsub("/$", "") .. "/" .. DEFAULT_NAME
    or path)
  local why = stored.mismatch(file)
  errors.check(not why, "popart_exception", "%s: %s", path, why)
  check_kind(s, file)
  s.executable = file
end

--- Takes the program of a file in place of compiling it: prepareDevice follows.
--- errors: OSError; popart_exception for a file that is no executable, damaged, or of
--- another session
--- source: PopART Python API, Session.loadExecutableFromFile
---@param filename string
function methods.loadExecutableFromFile(self, filename)
  local s = own.state(self)
  check.string(filename, "loadExecutableFromFile: filename")
  errors.check(not s.session, "popart_exception",
    "loadExecutableFromFile: the session's device was prepared before")
  errors.guard("popart_exception", load, s, filename)
end
methods.loadExecutable = methods.loadExecutableFromFile

--- The step of the file that was loaded, and the spec with what it says.
---@param s table
---@param spec table session_settings.spec's
---@return lupine.Step
---@return table spec
function M.open(s, spec)
  local file = s.executable
  local step, from = stored.open(file)
  local iterations, accumulation, replicas = step:loops()
  errors.check(step:trains() == s.training and iterations == s.batches
    and accumulation == s.accumulation and replicas == s.replicas, "popart_exception",
    "%s: the executable runs %d batches of %d micro-batches on %d replicas, the session %d of %d "
    .. "on %d", file.path, iterations, accumulation, replicas, s.batches, s.accumulation,
    s.replicas)
  check_system(file, spec.system, from.system)
  from.tensors, from.seed, from.place = spec.tensors, spec.seed, spec.place
  from.spelling, from.planned = spec.spelling, spec.planned
  for name, t in pairs(s.model.variables) do
    local saved = file.tensors["variable/" .. name]
    if saved then
      settings.set_host(t, saved)
    end
  end
  return step, from
end

--- The states that the loaded file has, by name.
---@param s table
---@return table<string, torch.Tensor>
function M.states(s)
  local out = {}
  for key, t in pairs(s.executable and s.executable.tensors or {}) do
    out[key:match("^state/(.*)$") or ""] = t
  end
  return out
end

local function log(level, fmt, ...)
  logging[level]("session", fmt, ...)
end

--- The cache that the options ask for; nil: none.
---@param s table
---@return lupine.session.Cache?
function M.cache(s)
  local o = s.options
  if o.enableEngineCaching and o.cachePath ~= "" then
    return { path = o.cachePath, log = log }
  end
  return nil
end

return M
