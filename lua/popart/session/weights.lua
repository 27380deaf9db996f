--- Weights and the optimizer's states of a session, which are in three places: on the
--- device; as the device had them when weightsToHost (or what follows a run) brought them;
--- and the host's own, which weightsFromHost brings to the device. Only writeWeights,
--- resetHostWeights and modelToHost change the host's own: without them weightsFromHost
--- puts a trained session back to where it began.
---
--- Source: PopART Python API, Session; PopART user guide 4.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("popart.errors")
local loading = require("popart.session.loading")
local logging = require("popart.logging")
local model_file = require("popart.session.model_file")
local optimizers = require("popart.optimizers")
local own = require("popart.session.own")
local settings = require("popart.session_settings")
local stepio = require("popart.stepio")
local tensor_info = require("popart.tensor_info")
local traced = require("popart.traced")

local M = { methods = {} }
local methods = M.methods

local prepared = loading.prepared

-- ---- the host's own ------------------------------------------------------------------------

-- All that training changes, as the device had it, by name.
local function brought(s)
  local out = settings.states_of(s)
  for name, t in pairs(s.model.variables) do
    out[name] = t
  end
  return out
end

-- What of the host is meant by a name: its own, once there is a second copy of it.
local function host_own(s, name, t)
  return s.host and s.host[name] or t
end

-- The host's own values are what the device gets; at first these are the only ones.
local function give_own(s)
  local all = brought(s)
  if not s.host then
    s.host = {}
    for name, t in pairs(all) do
      s.host[name] = t:detach():clone()
    end
    return
  end
  for name, t in pairs(all) do
    settings.set_host(t, s.host[name])
  end
end

-- What the device has becomes the host's own.
local function take_own(s)
  s.session:settle()
  for name, t in pairs(s.host and brought(s) or {}) do
    settings.set_host(s.host[name], t)
  end
end

-- ---- the calls -----------------------------------------------------------------------------

--- The host's weights and optimizer's states go to the device.
--- source: 004 popart.Session.weightsFromHost
function methods:weightsFromHost()
  local s = prepared(self, "weightsFromHost")
  errors.guard("popart_runtime_error", function()
    loading.load(s)
    if s.training then
      s.session:settle() -- so that nothing newer comes from the device later
      give_own(s)
      s.session:upload_states()
    end
    s.session:overwrite()
  end)
  s.has_weights = true
end

--- Weights come back from the device, to be read by readWeights.
function methods:weightsToHost()
  local s = prepared(self, "weightsToHost")
  errors.guard("popart_runtime_error", s.session.download, s.session)
end

-- Names that no weight has are passed over, as the original does.
local function tell_strange(s, what, io)
  for _, id in ipairs(io.ids and io:ids() or {}) do
    if not s.model.variables[id] then
      logging.warn("session", "%s: the model has no weight '%s'%s", what, id,
        check.nearest(id, s.model.order))
    end
  end
end

-- fn(name, t) for each weight of an argument of readWeights or writeWeights.
local function each_weight(s, what, io, fn)
  check.instance(io, what .. ": weightsIo", stepio.PyWeightsIO, { shown = "popart.PyWeightsIO" })
  tell_strange(s, what, io)
  for _, name in ipairs(s.model.order) do
    if io:contains(name) then
      fn(name, s.model.variables[name])
    end
  end
end

local function check_elements(what, name, given, t)
  errors.check(given.dtype == t.dtype, "popart_runtime_error", "%s: Type discrepancy for tensor "
    .. "%s. User provided : %s and expected : %s", what, name,
    tensor_info.type_name(given.dtype, name), tensor_info.type_name(t.dtype, name))
  errors.check(given:numel() == t:numel(), "popart_runtime_error", "%s: weight '%s': the tensor "
    .. "has the shape %s, the weight %s", what, name, tostring(given.shape), tostring(t.shape))
end

--- What weightsToHost brought -> the arrays of those that the argument has.
---@param weightsIo popart.PyWeightsIO
function methods:readWeights(weightsIo)
  local s = prepared(self, "readWeights")
  errors.guard("popart_runtime_error", each_weight, s, "readWeights", weightsIo, function(name)
    local given, value = weightsIo:weight(name), settings.host_value(s, name)
    check_elements("readWeights", name, given, value)
    settings.set_host(given, value)
  end)
end

--- What tells whether two sessions, or processes, train alike: of each weight and state
--- that the device has, by name, the XXH3 of its bytes.
--- error: popart_runtime_error before prepareDevice
---@return table<string, string>
function methods:checksums()
  local s = prepared(self, "checksums")
  errors.guard("popart_runtime_error", s.session.settle, s.session)
  local out = {}
  for name, t in pairs(brought(s)) do
    out[name] = core.xxh3(t:detach():contiguous():tobytes())
  end
  return out
end

local function check_variable(s, what)
  errors.check(s.training or not s.options.constantWeights, "popart_exception", "Cannot call %s "
    .. "when constantWeights is set. Set `constantWeights` to False in the `SessionOptions` "
    .. "object passed to the session", what)
end

--- The arrays that the argument has -> weights of the host; weightsFromHost brings them
--- to the device.
---@param weightsIo popart.PyWeightsIO
function methods:writeWeights(weightsIo)
  local s = prepared(self, "writeWeights")
  check_variable(s, "writeWeights")
  errors.guard("popart_runtime_error", each_weight, s, "writeWeights", weightsIo, function(name, t)
    check_elements("writeWeights", name, weightsIo:weight(name), t)
    settings.set_host(host_own(s, name, t), weightsIo:weight(name))
  end)
end

local function check_same(name, old, new)
  errors.check(new.dtype == old.dtype and tostring(new.shape) == tostring(old.shape),
    "popart_runtime_error", "Trying to reset weights using non matching tensor info for tensor %s. "
    .. "Previous %s %s, new %s %s.", name, tostring(old.dtype), tostring(old.shape),
    tostring(new.dtype), tostring(new.shape))
end

--- The weights of a model, and the optimizer's states that it has, take the place of the
--- host's; weightsFromHost must follow.
--- error: popart_runtime_error for weights that do not fit
--- source: 004 popart.Session.resetHostWeights
---@param ... any model (path or bytes), ignoreWeightsInModelWithoutCorrespondingHostWeight
function methods:resetHostWeights(...)
  local s = own.state(self)
  local v = check.arguments("resetHostWeights", { "modelProtoOrFilename",
    "ignoreWeightsInModelWithoutCorrespondingHostWeight" }, nil, ...)
  check_variable(s, "resetHostWeights")
  local given = traced.given("resetHostWeights: modelProtoOrFilename", v[1])
  local model = errors.guard("popart_exception", traced.initializers, given)
  local states = s.session and settings.states_of(s) or {}
  for name in pairs(model) do
    errors.check(v[2] or s.model.variables[name] or s.model.constants[name]
      or s.training and optimizers.is_state(name), "popart_runtime_error",
      "resetWeights, no tensor '%s' in tensors", name)
  end
  for name, t in pairs(model) do
    local old = s.model.variables[name] or states[name]
    if old then
      check_same(name, old, t)
      settings.set_host(host_own(s, name, old), t)
    end
  end
  s.has_weights = false
end

--- Writes the model with the weights as they are, and the optimizer's state; what is
--- large of a model of more than 2 GiB to FILENAME.data beside it.
--- errors: OSError; popart_runtime_error before prepareDevice
--- source: 004 popart.Session.modelToHost
---@param filename string
function methods:modelToHost(filename)
  local s = prepared(self, "weightsToHost")
  check.string(filename, "modelToHost: filename")
  errors.guard("popart_runtime_error", function()
    take_own(s)
    model_file.write(s, filename)
  end)
end

return M
