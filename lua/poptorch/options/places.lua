--- Where the four kinds of tensors are, and what their locations change: every
--- value filled in, and why one that was set does nothing in a program.
--- Source: defaults of unset values: PopART's TensorLocationSettings.
local enums = require("poptorch.enums")
local session_options = require("popart.session_options")

local M = {}

local KEYS = { activation = "location_activation", weight = "location_weight",
  optimizer = "location_optimizer", accumulator = "location_accumulator" }

local function popart(field)
  return session_options.default("weightTensorLocationSettings." .. field)
end

-- What a location says, beside where its tensors are, if nothing is set.
local USUAL = { min_off_chip = popart("minElementsForOffChip"),
  min_sharded = popart("minElementsForReplicatedTensorSharding"), sharded = false,
  io_load = false, io_store = false }

-- A location with every value filled in.
---@return {on_chip: boolean, min_off_chip: integer, min_sharded: integer,
---  sharded: boolean, io_load: boolean, io_store: boolean}
local function filled(s, off_chip)
  local on = s.on_chip_storage
  if on == nil then
    on = not off_chip
  end
  return {
    on_chip = on,
    min_off_chip = s.min_elements_for_off_chip or USUAL.min_off_chip,
    min_sharded = s.min_elements_for_replicated_tensor_sharding or USUAL.min_sharded,
    sharded = s.replicated_tensor_sharding or USUAL.sharded,
    io_load = s.io_tiles_to_load or USUAL.io_load,
    io_store = s.io_tiles_to_store or USUAL.io_store,
  }
end

--- The four locations with every value filled in, keyed activation, weight,
--- optimizer, accumulator. Phased execution stores off chip whatever the user
--- has not located.
---@param options poptorch.Options
---@return table<string, table>
function M.effective(options)
  local out = {}
  for kind, key in pairs(KEYS) do
    out[kind] = filled(options.TensorLocations[key] or {}, options.execution_strategy.off_chip)
  end
  return out
end

-- ---- why a location changes nothing ---------------------------------------------------

local ROLES = { weight = "parameter", optimizer = "state", accumulator = "accumulator" }
local NAMES = { weight = "weights", optimizer = "optimizer state",
  accumulator = "accumulators" }

-- How many elements the tensors of a kind have; nil of activations.
local function sizes(kind, vars)
  local out = {}
  for _, v in ipairs(vars) do
    if v.role == ROLES[kind] then
      local n = 1
      for i = 1, #v.shape do
        n = n * v.shape[i]
      end
      out[#out + 1] = n
    end
  end
  return ROLES[kind] and out
end

-- How many tensors have so many elements.
local function count(x, least)
  local n = 0
  for _, size in ipairs(x.sizes) do
    n = n + (size >= least and 1 or 0)
  end
  return n
end

-- Why the values that the backward pass needs never leave the chip.
local function stay(x)
  if not x.training then
    return "inference keeps no activations"
  elseif x.strategy.off_chip and x.liveness == enums.Liveness.AlwaysLive.value
    and not x.together then
    return "Liveness.AlwaysLive keeps them on the chip"
  end
  return nil
end

local function storage(x)
  local why = not x.sizes and stay(x)
  if why then
    return why
  end
  local none = x.sizes and count(x, x.place.min_off_chip) == 0
    or not x.sizes and not x.place.on_chip and not x.any_off_chip
  return none and ("none has %d elements"):format(x.place.min_off_chip) or nil
end

-- Why none is off chip.
local function on_chip(x)
  return x.place.on_chip and "they are on the chip" or storage(x)
end

local function least_off_chip(x)
  return x.place.on_chip and on_chip(x) or not x.sizes and stay(x)
    or x.sizes and count(x, x.place.min_off_chip) == count(x, x.usual.min_off_chip)
      and ("as many are off chip with %d"):format(x.usual.min_off_chip) or nil
end

-- Why no size of a tensor would have it sharded.
local function whole(x)
  if x.kind ~= "weight" and x.kind ~= "optimizer" then
    return "only weights and optimizer state are sharded"
  end
  return x.replicas == 1 and "there is one replica" or nil
end

local function sharding(x)
  return whole(x) or count(x, x.place.min_sharded + 1) == 0
    and ("none has more than %d elements"):format(x.place.min_sharded) or nil
end

local function least_sharded(x)
  if not x.place.sharded then
    return "they are not sharded"
  end
  return not whole(x)
    and count(x, x.place.min_sharded + 1) == count(x, x.usual.min_sharded + 1)
    and ("as many are sharded with %d"):format(x.usual.min_sharded) or nil
end

-- Why an update is no phase of its own; nil: it is one.
local function no_phase(program)
  local report = program.report
  return not program.training and "inference has no optimizer"
    or report.micro_batches > report.together
      and "with gradient accumulation the weight update is no phase" or nil
end

local IN_TURN = "with this Liveness phases that load and store lie between those that compute"

-- Transfers that I/O tiles could move beside computing.
local function io(x)
  if x.io_tiles == 0 then
    return "there are no I/O tiles: numIOTiles"
  elseif x.strategy.off_chip and x.liveness >= enums.Liveness.OffChipAfterFwdNoOverlap.value then
    return IN_TURN
  elseif x.kind == "optimizer" and not x.states_ahead then
    return "the weight update streams before it computes and after"
  elseif not x.sizes and x.between_phases then
    return nil
  elseif x.kind == "weight" and x.place.sharded and not x.strategy.off_chip and not sharding(x) then
    return nil -- they are gathered so
  end
  return on_chip(x)
end

-- What can be set: its name in a filled location, its setter, why it does nothing.
local VALUES = {
  { "on_chip", "useOnChipStorage", storage },
  { "min_off_chip", "minElementsForOffChip", least_off_chip },
  { "sharded", "useReplicatedTensorSharding", sharding },
  { "min_sharded", "minElementsForReplicatedTensorSharding", least_sharded },
  { "io_load", "useIOTilesToLoad", io },
  { "io_store", "useIOTilesToStore", io },
}

--- A location as it is spelled: where its tensors are, and what else it says that is not
--- usual.
---@param location table options of the simulated system
---@return string
function M.spelled(location)
  local out = ("poptorch.TensorLocationSettings():useOnChipStorage(%s)"):format(location.on_chip)
  local idle = { min_off_chip = location.on_chip, min_sharded = not location.sharded }
  for _, row in ipairs(VALUES) do
    local value, usual = location[row[1]], USUAL[row[1]]
    if usual ~= nil and value ~= nil and value ~= usual and not idle[row[1]] then
      out = ("%s:%s(%s)"):format(out, row[2], value)
    end
  end
  return out
end

local function any_off_chip(report)
  for _, memory in pairs(report.memory) do
    if memory.off_chip > 0 then
      return true
    end
  end
  return false
end

local function facts(kind, program)
  local options, report = program.options, program.report
  local strategy = options.execution_strategy
  local liveness = strategy:backendOptions().tensors_liveness
  return {
    kind = kind, training = program.training, strategy = strategy, liveness = liveness,
    place = M.effective(options)[kind], usual = filled({}, strategy.off_chip),
    sizes = sizes(kind, program.vars), any_off_chip = any_off_chip(report),
    replicas = report.replicas,
    io_tiles = options.TensorLocations.num_io_tiles,
    states_ahead = report.on_demand.optimizer == 0 and not no_phase(program),
    together = (options._Popart:toDict()["batchSerializationSettings.factor"] or 0) > 1,
    between_phases = liveness == enums.Liveness.OffChipAfterEachPhase.value
      and #report.stages > 1,
  }
end

-- Why no phase moves tensors of a kind ahead of another one, in phases; nil: one does.
local function not_ahead(kind, program)
  local x = facts(kind, program)
  return kind == "optimizer" and no_phase(program)
    or x.liveness >= enums.Liveness.OffChipAfterFwdNoOverlap.value and IN_TURN or on_chip(x)
end

local function parts(program)
  local x = facts("activation", program)
  return program.report.together == 1 and "a phase is passed by one micro-batch"
    or not (x.place.io_load or x.place.io_store) and "no I/O tiles move activations" or io(x)
end

local KIND_OF = {}
for kind, field in pairs(session_options.SCHEDULES) do
  KIND_OF["executionPhaseSettings." .. field] = kind
end

--- Why an option that orders what phases do changes nothing in a program; nil: it does.
---@param name string PopART's
---@param program table
---@return string?
function M.unscheduled(name, program)
  if not program.options.execution_strategy.off_chip then
    return "phased execution alone has phases"
  elseif KIND_OF[name] then
    return not_ahead(KIND_OF[name], program)
  elseif name == "executionPhaseSettings.schedule" then
    return no_phase(program)
  end
  return parts(program)
end

--- The `idle` of a kind's location.
---@param kind string "activation", "weight", "optimizer", "accumulator"
---@return fun(settings: table, program: table): string?
function M.idle(kind)
  return function(settings, program)
    if not settings then
      return nil
    end
    local x, notes, set = facts(kind, program), {}, false
    for _, value in ipairs(VALUES) do
      if x.place[value[1]] ~= x.usual[value[1]] then
        local why = value[3](x)
        notes[#notes + 1] = why and ("%s: %s"):format(value[2], why)
        set = true
      end
    end
    if set and x.sizes and #x.sizes == 0 then
      return ("%s has no %s"):format(x.training and "this model" or "inference", NAMES[kind])
    end
    return notes[1] and table.concat(notes, "; ")
  end
end

return M
