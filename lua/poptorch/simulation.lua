--- From poptorch's options to the simulated system: the report of a compiled
--- model (executor:report()).
---
--- Sources: PopTorch API reference, Options; PopART's session options.
local Accessor = require("poptorch.data.accessor")
local engine_options = require("lupine.engine_options")
local enums = require("poptorch.enums")
local library_options = require("lupine.library_options")
local logging = require("poptorch.logging")
local memory = require("lupine.report.memory")
local overlap = require("poptorch.overlap")
local places = require("poptorch.options.places")
local rules = require("poptorch.options.rules")
local session_options = require("popart.session_options")
local tables = require("lupine.base.tables")

local M = {}

local GROUPS = require("poptorch.options").GROUPS

-- Options of libraries that setters of options write.
local OWN = {}
for _, name in ipairs(library_options.DITHERING) do
  OWN[name] = "string"
end

local CHIPS = { [1] = "ipu1", [2] = "ipu2", [21] = "ipu21" }

-- The IPU Model never stops for want of memory.
local function allows_out_of_memory(options, target)
  return target.kind == "model"
    or engine_options.is_on(rules.engine_options(options), "debug.allowOutOfMemory")
end

-- {IPU0 = 0.5} -> {[0] = 0.5}
local function proportions(options)
  local out
  for name, value in pairs(options.available_memory_proportion) do
    out = out or {}
    out[math.tointeger(tonumber(name:match("%d+")))] = value
  end
  return out
end

--- Slices that a call returns; 0 for one a micro-batch.
---@param options poptorch.Options
---@return integer
function M.output_slices(options)
  local mode = options.output_mode
  if mode == enums.OutputMode.All then
    return 0
  elseif mode == enums.OutputMode.EveryN then
    return options.device_iterations // options.output_return_period
      * options.Training.gradient_accumulation
  end
  return 1
end

-- Notes rows of options that were set and change nothing in this program.
local function note_rows(group, label, program, note)
  for _, row in ipairs(getmetatable(group)._rows) do
    local why, name
    if row.idle then
      why, name = row.idle(group:_read(row), program, row)
    elseif row.no_effect and row.key and not group:_is_default(row) then
      why = row.no_effect
    end
    if why then
      note(name or label .. (row.setter or row.name), why)
    end
  end
end

local function note_attributes(attributes, note)
  for _, name in ipairs(tables.keys(attributes)) do
    if name ~= "__outline" then
      note(("Attribute(%s)"):format(name), "the simulated compiler reads __outline alone")
    end
  end
end

-- Options that were set and change nothing in this program.
local function without_effect(s, session)
  local options, out = s.options, {}
  local function note(name, why)
    out[#out + 1] = ("%s: %s"):format(name, why)
  end
  local program = { options = options, training = s.training, report = session.report,
    vars = session.vars, on_device = s.on_device, casting = s.traced.casting,
    has_half = function()
      return session.step:text():find("float16", 1, true) ~= nil
    end }
  note_rows(options, "", program, note)
  for _, name in ipairs(GROUPS) do
    note_rows(options[name], name .. ".", program, note)
  end
  overlap.note(s.traced.overlap, session, note)
  note_attributes(s.traced.attributes, note)
  Accessor._note(note)
  session_options.note(options._Popart._options, { training = s.training,
    engine = rules.engine_options(options), label = "_Popart.set('%s')",
    partials = options.Precision.partials_type, own = OWN,
    unscheduled = function(name)
      return places.unscheduled(name, program)
    end }, note)
  return out
end

--- The options of lupine.report.simulate that follow from an executor's.
---@param options poptorch.Options
---@param target {kind: string, version: integer?, tiles: integer?}
---@return table
function M.settings(options, target)
  local strategy = options.execution_strategy
  local backend, popart = strategy:backendOptions(), options._Popart:toDict()
  local function told(name)
    return session_options.simulated(name, popart[name])
  end
  local out = {
    chip = CHIPS[target.version or 2],
    tiles = target.tiles,
    strategy = strategy.kind,
    liveness = backend.tensors_liveness or 0,
    separate_backward = backend.separate_backward_phase or false,
    recompute = session_options.recomputation(popart),
    batch_serialization = popart["batchSerializationSettings.factor"],
    part_order = told("batchSerializationSettings.batchSchedule"),
    update_order = told("executionPhaseSettings.schedule"),
    io_tiles = options.TensorLocations.num_io_tiles,
    partials = options.Precision.partials_type,
    stable_norm = options.enable_stable_norm,
    host_sync = engine_options.cycles(rules.engine_options(options), "lupine.hostSyncCycles"),
    proportion = proportions(options),
    output_slices = M.output_slices(options),
    input_groups = options.replication_factor // options.input_group_size,
    synthetic_data = options.enable_synthetic_data,
    allow_out_of_memory = allows_out_of_memory(options, target),
    power_of_two = target.kind == "hardware",
    round_ipus = options.auto_round_num_ipus,
  }
  for kind, location in pairs(places.effective(options)) do
    location.on_demand = told("executionPhaseSettings." .. session_options.SCHEDULES[kind])
    out[kind] = location
  end
  return out
end

--- Notes in a model's report what the options did not change, and warns of
--- IPUs that are reserved beside those it uses and of tiles that overflow.
---@param s table the executor's state: options, training
---@param session lupine.Session
function M.annotate(s, session)
  local r = session.report
  r.no_effect = without_effect(s, session)
  local used = r.ipus * r.replicas
  if r.reserved_ipus > used then
    logging.warn("the model uses %d IPUs, %d are reserved (autoRoundNumIPUs)", used,
      r.reserved_ipus)
  end
  for _, why in ipairs(memory.overflows(r)) do
    logging.warn("%s", why.text)
  end
end

return M
