--- popart.InferenceSession and popart.TrainingSession: the program of a model, on a
--- device, run with explicit streams.
---
---     local session = popart.TrainingSession({ fnModel = builder:getModelProto(),
---       dataFlow = popart.DataFlow(1, { loss }), loss = loss, optimizer = popart.ConstSGD(0.1),
---       deviceInfo = device })
---     session:prepareDevice()
---     session:weightsFromHost()
---     session:run(popart.PyStepIO({ x = data }, session:initAnchorArrays()))
---
--- Making a session finds all that is wrong with the model; prepareDevice compiles it
--- (lua/lupine/session.lua) and puts it on the device.
---
--- Source: PopART user guide 4; its Python API, Session.
local annotations = require("popart.annotations")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local dataflow = require("popart.dataflow")
local device_info = require("popart.device_info")
local errors = require("popart.errors")
local executables = require("popart.executables")
local loading = require("popart.session.loading")
local logging = require("popart.logging")
local optimizers = require("popart.optimizers")
local own = require("popart.session.own")
local patterns = require("popart.patterns")
local placement = require("popart.placement")
local option_rules = require("popart.option_rules")
local overlap = require("popart.overlap")
local pruning = require("popart.pruning")
local options = require("popart.options")
local randomness = require("popart.session.randomness")
local reporting = require("popart.session.reporting")
local resuming = require("popart.session.resuming")
local settings = require("popart.session_settings")
local signatures = require("lupine.base.signatures")
local stepio = require("popart.stepio")
local streams = require("popart.session.streams")
local tables = require("lupine.base.tables")
local tensor_info = require("popart.tensor_info")
local torch = require("torch")
local traced = require("popart.traced")
local transfers = require("popart.transfers")
local weights = require("popart.session.weights")

-- ---- making one ------------------------------------------------------------------------

---@class popart.Session
---@field dataFlow popart.DataFlow
---@field replicationFactor integer
---@field accumulationFactor integer
local Session = class.new("Session")

local COMPUTED = {
  dataFlow = function(s)
    return s.flow
  end,
  replicationFactor = function(s)
    return s.replicas
  end,
  accumulationFactor = function(s)
    return s.accumulation
  end,
}

function Session.__index(self, key)
  local s = rawget(self, "_s")
  if COMPUTED[key] and s then
    return COMPUTED[key](s)
  end
  local value = getmetatable(self)[key]
  if value == nil and type(key) == "string" and not key:find("^_") then
    closed.unknown(self, key, tables.keys(COMPUTED))
  end
  return value
end

local KINDS = { dataFlow = dataflow.DataFlow, deviceInfo = device_info.DeviceInfo,
  inputShapeInfo = tensor_info.InputShapeInfo, patterns = patterns.Patterns,
  userOptions = options.SessionOptions, optimizer = optimizers.Optimizer }

-- The arguments of a session by name.
local function arguments(where, names, ...)
  local values = check.arguments(where, names, {}, ...)
  local out = {}
  for i, name in ipairs(names) do
    out[name] = values[i]
  end
  errors.check(out.deviceInfo ~= nil, "popart_exception",
    "Must pass a valid deviceInfo to the %s constructor", where)
  for name, cls in pairs(KINDS) do
    local given = out[name]
    if given ~= nil or name == "dataFlow" then
      check.instance(given, where .. ": " .. name, cls, { shown = "popart." .. cls.__name })
    end
  end
  errors.check(type(out.fnModel) == "string", "TypeError", "%s: fnModel: expected a file's path or "
    .. "the bytes of a ModelProto, got %s", where, check.describe(out.fnModel))
  check.string(out.name == nil and "" or out.name, where .. ": name")
  -- what the script changes of them later is of its next session
  out.userOptions = class.copy(out.userOptions or options.SessionOptions())
  out.dataFlow, out.optimizer = class.copy(out.dataFlow), class.copy(out.optimizer)
  return out
end

local function is_integer(s, id)
  local type = s.traced.types[id]
  return type ~= nil and not type.dtype.is_floating_point
end

local function check_anchors(s, scope)
  local of = settings.bases(s.flow)
  for i, id in ipairs(s.flow:anchors()) do
    local base = of[i]
    errors.check(base == id or s.training, "popart_exception", "Anchor tensor `%s' not in Ir "
      .. "Tensors: inference has no gradients", id)
    errors.check(base == id or not is_integer(s, base), "popart_exception", "Anchor tensor `%s' "
      .. "not in Ir Tensors: '%s' is of no floating point, which has no gradient", id, base)
    if scope:find(base) == nil and not settings.has_state(s, id)
      and not settings.is_scalar(s, id) and not settings.is_of_scaling(s, id) then
      errors.raise("popart_exception", "Anchor tensor `%s' not in Ir Tensors%s", id,
        check.nearest(base, s.traced.names))
    end
  end
  pruning.check(s, of)
  s.needed = pruning.needed(s, of)
end

local function check_tracked(s, scope)
  local scaling = settings.scaling(s)
  for _, name in ipairs(scaling and scaling.names or {}) do
    errors.check(scope:find(name) ~= nil, "popart_exception", "[PreAutomaticLossScale] Some of "
      .. "the tensors in the 'automaticLossScalingSettings.toTrackTensors' list do not exist in "
      .. "the model: '%s'%s", name, check.nearest(name, s.traced.names))
  end
end

-- Builds the program: what is wrong with the model is found here.
local function build(s, given)
  s.model = traced.Model(given.fnModel, given.inputShapeInfo)
  for _, input in ipairs(s.model.inputs) do
    option_rules.check_rows(s.options, input.id, input.shape)
  end
  overlap.check(s)
  s.groups = settings.groups(s.model, s.replicas)
  function s.types()
    s.measured = s.measured or s.model:types(s.training, s.replicas)
    return s.measured
  end
  s.where, s.marks = placement.of(s, s.device.numIpus // s.replicas), annotations.of(s)
  s.traced = traced.trace(s.model, settings.traces(s))
  check_anchors(s, s.traced.scope)
  check_tracked(s, s.traced.scope)
end

local function make(self, where, names, training, ...)
  local given = arguments(where, names, ...)
  local s = { name = given.name or training and "training" or "inference",
    training = training, options = given.userOptions, flow = given.dataFlow,
    device = given.deviceInfo, loss = given.loss,
    optimizer = given.optimizer, patterns = given.patterns or patterns.Patterns() }
  rawset(self, "_s", s)
  local o = s.options
  errors.check(training or #s.flow:anchors() > 0, "popart_exception",
    "User must specify an anchor tensor when doing inference.")
  option_rules.check(o, { training = training, num_ipus = s.device.numIpus })
  patterns.check(s.patterns)
  s.replicas, s.accumulation = option_rules.replicas(o), option_rules.accumulation(o)
  s.batches = s.flow:batchesPerStep()
  errors.check(s.batches >= 1, "popart_exception", "%s: dataFlow: 'Batches per step' must be "
    .. "greater than zero, got %d", where, s.batches)
  if training then
    errors.check(type(given.loss) == "string", "TypeError",
      "TrainingSession: loss: expected a tensor's id, got %s", check.describe(given.loss))
    errors.check(given.optimizer ~= nil, "TypeError", "TrainingSession: optimizer is missing")
    settings.check_scaling(o, given.optimizer)
  end
  errors.guard("popart_exception", build, s, given)
  logging.debug("session", "session '%s' was made: %d nodes", s.name, #s.model.graph.nodes)
end

local prepared = loading.prepared

-- ---- the optimizer ---------------------------------------------------------------------

--- The optimizer's present values, or another optimizer's, go to the device.
--- error: optimizer_replacement_error for one that the program was not compiled for
--- source: 004 popart.TrainingSession.updateOptimizerFromHost
---@param optimizer popart.Optimizer
function Session:updateOptimizerFromHost(optimizer)
  local s = own.state(self)
  errors.check(s.training, "popart_exception",
    "updateOptimizerFromHost is not available for an inference session")
  check.instance(optimizer, "updateOptimizerFromHost: optimizer", optimizers.Optimizer,
    { shown = "popart.Optimizer" })
  optimizer = class.copy(optimizer)
  if s.session then
    s.view:replace(optimizer, s.session)
  else
    s.optimizer:validReplacement(optimizer)
  end
  s.optimizer = optimizer
end

--- The present values of the session's own optimizer go to the device, as an older
--- release has it.
--- error: popart_exception for an inference session
function Session:optimizerFromHost()
  local s = prepared(self, "optimizerFromHost")
  errors.check(s.training, "popart_exception",
    "optimizerFromHost is not available for an inference session")
  s.session:upload_hypers()
end

-- ---- running -----------------------------------------------------------------------------

--- Tensors for all anchors of a run, by name.
--- source: 004 popart.Session.initAnchorArrays
---@return table<string, torch.Tensor>
function Session:initAnchorArrays()
  local s = own.state(self)
  local out = {}
  for _, id in ipairs(s.flow:anchors()) do
    local info = self:getInfo(id)
    out[id] = torch.zeros(dataflow.shape(s.flow:art(id), settings.counts(s), info:shape()),
      { dtype = info:dataType() })
  end
  return out
end

--- The type and shape of a tensor of the program, of one micro-batch.
--- error: popart_exception for one that is not there
---@param id string
---@return popart.TensorInfo
function Session:getInfo(id)
  local s = own.state(self)
  return settings.info(s, check.string(id, "getInfo: id")) or errors.raise("popart_exception",
    "no tensor '%s' in the program%s", id, check.nearest(id, s.traced.names))
end

---@param id string
---@return boolean
function Session:hasInfo(id)
  return settings.info(own.state(self), check.string(id, "hasInfo: id")) ~= nil
end

---@return string[] ids, sorted
function Session:getAllTensorIds()
  return { table.unpack(own.state(self).traced.names) }
end
Session.getTensorIds = Session.getAllTensorIds

local function run(s, io)
  loading.load(s)
  local program, streamed = settings.program(s), s.options.syntheticDataMode.name == "Off"
  if streamed and not s.has_run then
    transfers.check_sizes(io, program)
  end
  if streamed then
    transfers.check_places(io, program.outputs)
  end
  local inputs = streamed and settings.feed(s, transfers.inputs(io, program.inputs))
    or randomness.synthetic(s)
  local _, _, anchors = s.session:run(inputs)
  if streamed then
    transfers.outputs(io, settings.returned(s, anchors))
  end
end

--- One step: batchesPerStep batches of the argument's inputs, anchors to its outputs.
--- errors: popart_runtime_error before prepareDevice, or weightsFromHost in training; for
--- data of other sizes or types; what the device raises
--- source: 004 popart.Session.run
---@param ... any stepio (popart.PyStepIO or PyStepIOCallback), debugName (string?)
function Session:run(...)
  local io = ...
  if select("#", ...) ~= 1 or not stepio.IStepIO:is(io) then
    local v = check.arguments("run", { "stepio", "debugName" }, nil, ...)
    check.string(v[2] == nil and "" or v[2], "run: debugName")
    io = v[1]
  end
  local s = prepared(self, "run")
  errors.check(s.device.connectionType.name ~= "Never", "popart_runtime_error",
    "Offline IPU device is not configured for execution")
  errors.check(not s.training or s.has_weights or #s.model.order == 0, "popart_runtime_error",
    "Must call weightsFromHost before run as the model has initializers and the session has been "
    .. "created in training mode")
  if not stepio.IStepIO:is(io) then
    check.instance(io, "run: stepio", stepio.IStepIO, { shown = "popart.PyStepIO" })
  end
  errors.guard("popart_runtime_error", run, s, io)
  s.has_run = true
end

for _, part in ipairs({ executables, loading, randomness, reporting, resuming, streams,
  weights }) do
  for name, method in pairs(part.methods) do
    Session[name] = method
  end
end

-- ---- the two kinds -------------------------------------------------------------------------

local INFERENCE = { "fnModel", "dataFlow", "deviceInfo", "inputShapeInfo", "patterns",
  "userOptions", "name" }
local TRAINING = { "fnModel", "dataFlow", "loss", "optimizer", "deviceInfo", "inputShapeInfo",
  "patterns", "userOptions", "name" }

--- A session that runs the graph as it is; one with losses gives their values.
--- error: popart_exception
--- source: 004 popart.InferenceSession
---@class popart.InferenceSession: popart.Session
local InferenceSession = Session:extend("InferenceSession")
signatures.note(InferenceSession, ("InferenceSession(%s)"):format(table.concat(INFERENCE, ", ")), 1)

function InferenceSession:init(...)
  make(self, "InferenceSession", INFERENCE, false, ...)
end

--- A session that trains the initialised tensors with an optimizer.
--- error: popart_exception
--- source: 004 popart.TrainingSession
---@class popart.TrainingSession: popart.Session
local TrainingSession = Session:extend("TrainingSession")
signatures.note(TrainingSession, ("TrainingSession(%s)"):format(table.concat(TRAINING, ", ")), 1)

function TrainingSession:init(...)
  make(self, "TrainingSession", TRAINING, true, ...)
end

return { Session = Session, InferenceSession = InferenceSession,
  TrainingSession = TrainingSession }
