--- What a session of lupine is told of a popart session, `s`: its options, the model's
--- tensors, streams, and what its options do not change. `s` has options
--- (popart.SessionOptions), model (popart.traced Model), traced, flow (popart.DataFlow),
--- device (popart.DeviceInfo), where (popart.placement), groups, batches, accumulation,
--- replicas, training, and session (lupine.Session) once it is prepared.
local advice = require("popart.advice")
local annotations = require("popart.annotations")
local dataflow = require("popart.dataflow")
local device_info = require("popart.device_info")
local engine_options = require("lupine.engine_options")
local enums = require("popart.enums")
local errors = require("popart.errors")
local node_attributes = require("popart.node_attributes")
local optimizers = require("popart.optimizers")
local option_rules = require("popart.option_rules")
local overlap = require("popart.overlap")
local loss_scaling = require("popart.loss_scaling")
local locations = require("popart.locations")
local patterns = require("popart.patterns")
local prefixes = require("popart.prefixes")
local session_options = require("popart.session_options")
local tables = require("lupine.base.tables")
local tensor_info = require("popart.tensor_info")
local torch = require("torch")

local M = {}

local METADATA = node_attributes.METADATA

-- ---- variables -----------------------------------------------------------------------------

--- The groups of replicas that share variables, as lupine's traces have them.
--- error: popart_exception for an outer dimension that is not the number of groups
---@param model popart.Model
---@param replicas integer
---@return table<string, {settings: popart.VariableSettings, group: table}> by variable
function M.groups(model, replicas)
  local out = {}
  for _, name in ipairs(model.order) do
    local settings = node_attributes.settings_of(model.metadata, name)
    local count = settings and settings:getGroupCount(replicas) or 1
    if count > 1 then
      settings:shapeOnReplica(model.variables[name].shape, replicas, name)
      local grouping = settings:getReplicaGrouping(replicas)
      local kind = grouping.groupSize == 1 and "none" or grouping.stride == 1 and "consecutive"
        or "orthogonal"
      out[name] = { settings = settings, kind, grouping.groupSize, false }
    end
  end
  return out
end

-- Of a variable's groups, those of all replicas; nil where its values are read by group.
local function replicas_of(s, name)
  local settings = s.replicas > 1 and node_attributes.settings_of(s.model.metadata, name)
  if not settings or settings:getRetrievalMode().name ~= "AllReplicas" then
    return nil
  end
  local out = {}
  for i, members in ipairs(settings:groups(s.replicas)) do
    for _, replica in ipairs(members) do
      out[replica + 1] = i - 1
    end
  end
  return torch.tensor(out)
end

--- A weight of the host as it is read: of each group of replicas or of all replicas.
---@param s table
---@param name string
---@return torch.Tensor
function M.host_value(s, name)
  local t, of = s.model.variables[name], replicas_of(s, name)
  if not of then
    return t
  end
  t = s.groups[name] and t or t:unsqueeze(0)
  return t:detach():index_select(0, of)
end

--- What the optimizer updates.
---@param s table
---@return {name: string, tensor: torch.Tensor}[]
function M.trained(s)
  local list = {}
  for _, name in ipairs(s.model.order) do
    if s.model.role[name] == "parameter" then
      list[#list + 1] = { name = name, tensor = s.model.variables[name] }
    end
  end
  return list
end

-- The loss's data type.
local function loss_type(s)
  local type = s.traced and s.traced.types[s.loss]
  return type and type.dtype
end

--- The optimizer's numbers that may change, as they are now, by the names of PopART's
--- tensors: anchors may ask for them, the device has them in another form.
---@param s table
---@return table<string, number>
function M.scalars(s)
  local o = s.options
  return s.training and optimizers.scalars(s.optimizer, M.trained(s), {
    accumulation = o.enableGradientAccumulation and s.accumulation or nil, replicas = s.replicas,
    mean = o.accumulationAndReplicationReductionType.name == "Mean", loss = loss_type(s),
    running = o.meanAccumulationAndReplicationReductionStrategy.name == "Running" }) or {}
end

--- Whether a name is one of these numbers'.
---@param s table
---@param id string
---@return boolean
function M.is_scalar(s, id)
  if not (s.scalar_names and s.scalar_names[id]) then
    s.scalar_names = M.scalars(s)
  end
  return s.scalar_names[id] ~= nil
end

--- How the session finds its loss scale; nil: it does not.
---@param s table
---@return table? as lua/lupine/session/scaling.lua describes
function M.scaling(s)
  return s.training and loss_scaling.of(s.options.automaticLossScalingSettings) or nil
end

--- error: popart_exception for an optimizer whose loss scale the program cannot find
---@param opts popart.SessionOptions
---@param optimizer popart.Optimizer
function M.check_scaling(opts, optimizer)
  local automatic = opts.automaticLossScalingSettings.enabled
  errors.check(not automatic or not optimizer:lossScaling():isConst(), "popart_exception",
    "[AutomaticLossScale transform] The optimizer must have non-const loss scaling")
  if optimizer._check_loss_scaling then
    optimizer:_check_loss_scaling(automatic)
  end
end

--- Whether a name is that of a tensor that finding the loss scale has.
---@param s table
---@param id string
---@return boolean
function M.is_of_scaling(s, id)
  return M.scaling(s) ~= nil and (loss_scaling.shape(id) ~= nil or loss_scaling.is_state(id))
end

--- Whether a name is that of a state that the session's optimizer has.
---@param s table
---@param id string
---@return boolean
function M.has_state(s, id)
  for at, start in id:gmatch("()___()") do
    local kind, name = id:sub(1, at - 1), id:sub(start)
    local rule = s.training and s.model.role[name] == "parameter" and s.optimizer:_rule(name)
    if rule and rule.counts == kind then
      return true
    end
    for _, input in ipairs(rule and rule.inputs or {}) do
      if input == "state:" .. kind then
        return true
      end
    end
  end
  return false
end

--- The names of the model's that anchors are of.
---@param flow popart.DataFlow
---@return string[]
function M.bases(flow)
  local out = {}
  for i, id in ipairs(flow:anchors()) do
    out[i] = M.base_of(id)
  end
  return out
end

--- What popart.traced takes beside the model. The program must know the names of anchors
--- and of tensors whose gradients are tracked.
---@param s table
---@return table
function M.traces(s)
  local names, scaling = M.bases(s.flow), M.scaling(s)
  for _, name in ipairs(scaling and scaling.names or {}) do
    names[#names + 1] = name
  end
  return { loss = s.training and s.loss or nil, anchors = names, groups = s.groups,
    where = s.where, marks = s.marks, replicas = s.replicas, overlaps = overlap.marks(s) }
end

--- A weight of the host gets new values.
---@param t torch.Tensor
---@param values torch.Tensor
function M.set_host(t, values)
  torch.no_grad(function()
    t:copy_(values:reshape(t.shape))
  end)
end

-- ---- what is compiled -------------------------------------------------------------------------

--- The engine's options: stochastic rounding sets one, unless they say otherwise.
---@param s table
---@return table<string, string>
function M.engine(s)
  local given = {}
  if s.options.enableStochasticRounding then
    given["target.deterministicWorkers"] = "true"
  end
  for name, value in pairs(s.options.engineOptions) do
    given[name] = value
  end
  return engine_options.effective(given, "engineOptions")
end

local function half_partials(o)
  return o.partialsTypeMatMuls:lower() == "half"
end

-- The options of the simulated system.
local function system(s)
  local o, out = s.options, device_info.system(s.device)
  local slices = 1
  out.strategy, out.near = s.where.strategy, true
  out.update_order = session_options.simulated("executionPhaseSettings.schedule",
    o.executionPhaseSettings.schedule.name)
  out.part_order = session_options.simulated("batchSerializationSettings.batchSchedule",
    o.batchSerializationSettings.batchSchedule.name)
  out.recompute = s.marks.recompute
  out.io_tiles = option_rules.io_tiles(o, s.device.tilesPerIPU)
  out.stable_norm = o.enableStableNorm
  out.partials = half_partials(o) and "half" or "float"
  for kind, location in pairs(locations.of(s)) do
    out[kind] = location
  end
  for _, id in ipairs(s.flow:anchors()) do
    slices = math.max(slices, dataflow.fetches(s.flow:art(id), s.batches, s.accumulation))
  end
  out.output_slices = slices == s.batches * s.accumulation and 0 or slices
  out.synthetic_data = o.syntheticDataMode.name ~= "Off"
  out.host_sync = engine_options.cycles(M.engine(s), "lupine.hostSyncCycles")
  if engine_options.is_on(M.engine(s), "debug.allowOutOfMemory") then
    out.allow_out_of_memory = true
  end
  return out
end

--- Whether an anchor is fetched after each micro-batch, of which the session then takes
--- some: the device counts periods in batches, PopART in micro-batches.
---@param s table
---@param id string
---@return boolean
local function counts_micro_batches(s, id)
  return s.flow:art(id):id().name == "EveryN" and s.accumulation > 1
end

--- What lupine.session.open takes, but the optimizer and the place.
---@param s table
---@return table spec
function M.spec(s)
  local o, anchors, scalars = s.options, {}, M.scalars(s)
  for _, id in ipairs(s.flow:anchors()) do
    local mode = dataflow.mode(s.flow:art(id))
    anchors[#anchors + 1] = not scalars[id] and { name = id,
      mode = counts_micro_batches(s, id) and "all" or mode.mode,
      period = counts_micro_batches(s, id) and 1 or mode.period } or nil
  end
  local parameter, buffer = {}, {}
  for _, name in ipairs(s.model.order) do
    local role = s.model.role[name] == "buffer" and buffer or parameter
    role[name] = s.model.variables[name]
  end
  return {
    compile = { device_iterations = s.batches, gradient_accumulation = s.accumulation,
      replicas = s.replicas, loss = s.traced.loss,
      mean = o.accumulationAndReplicationReductionType.name == "Mean",
      running = s.training
        and o.meanAccumulationAndReplicationReductionStrategy.name == "Running" or nil,
      numerics = { stochastic = o.enableStochasticRounding,
        half_partials = half_partials(o), half_statistics = not o.enableStableNorm,
        trap = o.enableFloatingPointChecks }, names = false },
    tensors = { parameter = parameter, buffer = buffer }, anchors = anchors,
    system = system(s), spelling = advice.OPTIONS, seed = 0,
  }
end

-- ---- streams -----------------------------------------------------------------------------------

--- Batches of a run, their micro-batches, replicas.
---@param s table
---@return {batches: integer, accumulation: integer, replicas: integer}
function M.counts(s)
  return { batches = s.batches, accumulation = s.accumulation, replicas = s.replicas }
end

local function broadcast(s, id)
  local text = (s.model.metadata[METADATA.replicatedStreamMode] or {})[id]
  return text == tostring(enums.ReplicatedStreamMode.Broadcast.value)
end

-- Inputs, as popart.transfers describes them, that the program needs; and, by their places,
-- what stands for those that the compiled program has and does not need.
local function inputs_of(s)
  local list, idle, read = {}, {}, {}
  for i, v in ipairs(s.session.streams.inputs) do
    read[v.name] = { dtype = v.dtype, place = i }
  end
  for _, input in ipairs(s.model.inputs) do
    local v = read[input.id]
    if v then
      local steps = s.batches * s.accumulation
      local rows = { steps * s.replicas * (input.shape[1] or 1), table.unpack(input.shape, 2) }
      if s.needed[input.id] then
        list[#list + 1] = { id = input.id, dtype = v.dtype, shape = input.shape, steps = steps,
          replicas = s.replicas, broadcast = broadcast(s, input.id), place = v.place, rows = rows }
      else
        idle[v.place] = torch.zeros(rows, { dtype = v.dtype })
      end
    end
  end
  return list, idle
end

local function outputs_of(s)
  local list, scalars = {}, M.scalars(s)
  for i, id in ipairs(s.flow:anchors()) do
    local art, info = s.flow:art(id), M.info(s, id)
    list[i] = { id = id, scalar = scalars[id] ~= nil, dtype = info:dataType(),
      shape = info:shape(), art = art,
      steps = dataflow.fetches(art, s.batches, s.accumulation), replicas = s.replicas }
  end
  return list
end

--- Descriptions of all streams of a run, found once.
---@param s table
---@return table program popart.transfers.check_sizes
function M.program(s)
  if not s.program then
    local p = M.counts(s)
    p.inputs, p.idle = inputs_of(s)
    p.outputs = outputs_of(s)
    p.model_inputs, p.tensors = tables.set(s.model.graph.inputs), tables.set(s.traced.names)
    s.program = p
  end
  return s.program
end

--- What a run reads, in the order of the session's inputs.
---@param s table
---@param values torch.Tensor[] popart.transfers.inputs'
---@return torch.Tensor[]
function M.feed(s, values)
  local out = {}
  for place, zeros in pairs(M.program(s).idle) do
    out[place] = zeros
  end
  for i, d in ipairs(M.program(s).inputs) do
    out[d.place] = values[i]
  end
  return out
end

-- What an anchor of an optimizer's number gives: the same in all of a run.
local function scalar_values(s, d, value)
  local times = d.art:id().name == "Sum" and s.batches * s.accumulation or 1
  return torch.full({ d.steps * d.replicas }, value * times, { dtype = d.dtype })
end

--- What a run returned -> descriptions with their values.
---@param s table
---@param anchors torch.Tensor[]
---@return table[] descriptions
function M.returned(s, anchors)
  local list, at, scalars = M.program(s).outputs, 0, nil
  for _, d in ipairs(list) do
    at = d.scalar and at or at + 1
    scalars = scalars or d.scalar and M.scalars(s)
    local value = d.scalar and scalar_values(s, d, scalars[d.id]) or anchors[at]
    if counts_micro_batches(s, d.id) and not d.scalar then
      local period, all = d.art:rp(), s.batches * s.accumulation
      value = value:reshape({ all // period, period, -1 }):select(1, period - 1)
    end
    if value.dtype ~= d.dtype then
      value = value:to(d.dtype)
    end
    d.value = value:contiguous()
  end
  return list
end

-- ---- tensors of the program -------------------------------------------------------------------

local OF_TRAINING = { prefixes.reservedGradientPrefix(), prefixes.reservedAccumPrefix(),
  prefixes.reservedUpdatedVarPrefix() }

--- The tensor of the model that a name of training is of, Gradient___w of w; other names
--- are themselves.
---@param id string
---@return string
function M.base_of(id)
  if loss_scaling.shape(id) then
    return id
  end
  for _, prefix in ipairs(OF_TRAINING) do
    if id:sub(1, #prefix) == prefix then
      return id:sub(#prefix + 1)
    end
  end
  return id
end

-- The optimizer's states on the device, by PopART's names; none before there is one.
local function states_by_name(s)
  if not s.states_by_name and s.session then
    s.states_by_name = {}
    for _, state in ipairs(s.session.states) do
      local name = state.rule and ("%s___%s"):format(state.name, state.rule.param) or state.name
      s.states_by_name[name] = state
    end
  end
  return s.states_by_name or {}
end

--- The type and shape of a tensor of one micro-batch; nil: there is none.
---@param s table
---@param id string
---@return popart.TensorInfo?
function M.info(s, id)
  local type = s.traced.types[id] or s.traced.types[M.base_of(id)]
  if type then
    return tensor_info.TensorInfo(type.dtype, type.shape)
  end
  local state = states_by_name(s)[id]
  if state then
    return tensor_info.TensorInfo(state.tensor.dtype, state.tensor.shape)
  end
  local shape = M.scaling(s) and loss_scaling.shape(id)
  if shape then
    return tensor_info.TensorInfo("FLOAT", shape)
  end
  return M.is_scalar(s, id) and tensor_info.TensorInfo("FLOAT", {}) or nil
end

-- ---- the optimizer's states ---------------------------------------------------------------

--- The states of the optimizer as the host has them, by PopART's names.
---@param s table
---@return table<string, torch.Tensor>
function M.states_of(s)
  local out = {}
  if s.options.disableOptimizerStateTensorStreams then
    return out
  end
  for name, state in pairs(s.training and states_by_name(s) or {}) do
    out[name] = state.tensor
  end
  return out
end

-- ---- the report ---------------------------------------------------------------------------------

--- Whether the session's options ask for a profile of its runs.
---@param s table
---@return boolean
function M.profiles(s)
  return engine_options.is_on(M.engine(s), "autoReport.all")
end

--- Notes in the report what the options do not change.
---@param s table
function M.annotate(s)
  local out = {}
  local function note(name, why)
    out[#out + 1] = ("%s: %s"):format(name, why)
  end
  option_rules.note(s.options, s, note)
  patterns.note(s.patterns, note)
  device_info.idle(s.device, note)
  for _, id in ipairs(s.training and s.optimizer:_specific_ids() or {}) do
    if s.model.role[id] ~= "parameter" then
      note(("%s.insertSpecific of '%s'"):format(s.optimizer.type, id), "no weight has that name")
    end
  end
  annotations.note(s.model.graph, note)
  locations.note(s, function(id)
    return M.info(s, id) ~= nil
  end, note)
  overlap.note(s, note)
  if s.where.idle then
    note("SessionOptions.enablePipelining", "without gradient accumulation each batch updates the "
      .. "weights before the next one begins")
  end
  engine_options.note(M.engine(s), note)
  s.session.report.no_effect = out
end

return M
