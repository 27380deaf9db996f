--- From poptorch's options to the simulated system: the report of a compiled
--- model (executor:report()).
---
--- Sources: PopTorch API reference, Options; PopART's session options.
local autocasting = require("poptorch.autocasting")
local class = require("lupine.base.class")
local enums = require("poptorch.enums")
local locations = require("poptorch.options.locations")
local logging = require("poptorch.logging")
local rules = require("poptorch.options.rules")
local session_options = require("popart.session_options")

local M = {}

local CHIPS = { [1] = "ipu1", [2] = "ipu2", [21] = "ipu21" }
local function allows_out_of_memory(options, target)
  -- the IPU Model never stops for want of memory
  return target.kind == "model"
    or rules.engine_options(options)["debug.allowOutOfMemory"] == "true"
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

-- Slices that a call returns; 0 for one a micro-batch.
local function output_slices(options)
  local mode = options.output_mode
  if mode == enums.OutputMode.All then
    return 0
  elseif mode == enums.OutputMode.EveryN then
    return options.device_iterations // options.output_return_period
      * options.Training.gradient_accumulation
  end
  return 1
end

-- The default of sourceLocationExcludes, from its row.
local DEFAULT_EXCLUDES
for _, row in ipairs((require("poptorch.options.general"))) do
  if row.name == "sourceLocationExcludes" then
    DEFAULT_EXCLUDES = table.concat(row.default, " ")
  end
end

-- The same of session options by their PopART names.
local function note_session(s, note)
  local options = s.options
  local engine = rules.engine_options(options)
  for key in pairs(options.profile_dir and class.copy(engine) or {}) do
    engine[key] = not key:find("^autoReport%.") and engine[key] or nil
  end
  session_options.note(options._Popart._options, { training = s.training, engine = engine,
    label = "_Popart.set('%s')", partials = options.Precision.partials_type,
    own = { enableConvolutionDithering = "string" } }, note)
end

-- Options that were set and change nothing in this program.
local function without_effect(s, r)
  local options, out = s.options, {}
  local function note(set, name, why)
    if set then
      out[#out + 1] = ("%s: %s"):format(name, why)
    end
  end
  local strategy = options.execution_strategy
  local places = locations.effective(options)
  note(strategy.alone and #r.stages == 1, class.of(strategy).__name, strategy.alone)
  for name, why in pairs({ optimizer = "optimizer state", accumulator = "accumulators" }) do
    note(not s.training and not places[name].on_chip and not strategy.off_chip,
      ("set%sLocation"):format(name:gsub("^%l", string.upper)), "inference has no " .. why)
  end
  for _, name in ipairs({ "weight", "optimizer" }) do
    note(places[name].sharded and options.replication_factor == 1,
      ("useReplicatedTensorSharding (%s)"):format(name), "there is one replica")
  end
  note(options.enable_stable_norm, "enableStableNorm",
    "the cost model has one figure for normalisation")
  note(options.Training.convolution_dithering, "setConvolutionDithering",
    "tiles are filled evenly whatever the start tile")
  note(options.sync_pattern ~= enums.SyncPattern.Full, "syncPattern",
    "all IPUs wait for host I/O alike")
  note(options.executable_cache_path, "enableExecutableCaching",
    "compiling is fast: nothing is written or read")
  note(options.profile_dir, "enableProfiling",
    "no report file is written: executor:report() has what is known")
  note(options.model_name, "modelName", "there is no folder of reports to name")
  note(options.log_dir ~= ".", "logDir", "logs go to standard error")
  note(not options.module_namescope, "disableModuleNamescope",
    "operators keep their module path, for the report only")
  note(options.ipu_id, "useIpuId", "all simulated IPUs are alike")
  note(table.concat(options.source_location_excludes, " ") ~= DEFAULT_EXCLUDES,
    "sourceLocationExcludes", "the library's own files are left out of origins, nothing else is")
  local precision = options.Precision
  note(not autocasting.default:same(precision.autocast_policy), "Precision.autocastPolicy",
    "no operator is cast automatically: a scope that asks for it is refused")
  note(precision.half_float_casting ~= enums.HalfFloatCastingBehavior.Default,
    "Precision.halfFloatCasting", "mixed types promote as in PyTorch")
  note(not precision.running_statistics_always_float, "Precision.runningStatisticsAlwaysFloat",
    "running statistics have their buffers' type")
  local popart = options._Popart
  note(next(popart.patterns) or popart.patterns_level ~= 2, "_Popart.setPatterns",
    ("the passes over the graph are fixed (given: %s)"):format(tostring(popart)))
  note_session(s, function(name, why)
    note(true, name, why)
  end)
  return out
end

--- The options of lupine.report.simulate that follow from an executor's.
---@param options poptorch.Options
---@param target {kind: string, version: integer?, tiles: integer?}
---@return table
function M.settings(options, target)
  local strategy = options.execution_strategy
  local backend = strategy:backendOptions()
  local out = {
    chip = CHIPS[target.version or 2],
    tiles = target.tiles,
    strategy = strategy.kind,
    liveness = backend.tensors_liveness or 0,
    separate_backward = backend.separate_backward_phase or false,
    recompute = session_options.recomputation(options._Popart:toDict()),
    io_tiles = options.TensorLocations.num_io_tiles,
    partials = options.Precision.partials_type,
    proportion = proportions(options),
    output_slices = output_slices(options),
    input_groups = options.replication_factor // options.input_group_size,
    synthetic_data = options.enable_synthetic_data,
    allow_out_of_memory = allows_out_of_memory(options, target),
  }
  for kind, location in pairs(locations.effective(options)) do
    out[kind] = location
  end
  return out
end

--- Notes in a model's report what the options did not change, and warns of
--- tiles that overflow.
---@param s table the executor's state: options, training
---@param r lupine.Report
function M.annotate(s, r)
  r.no_effect = without_effect(s, r)
  for ipu, m in pairs(r.memory) do
    if not m.fits then
      logging.warn("Out of memory: Cannot fit all variable data onto one or more tiles: tile %d "
        .. "of IPU %d needs %d bytes of %d", m.fullest_tile, ipu, m.max_tile_including_gaps,
        m.tile_bytes)
    end
  end
end

return M
