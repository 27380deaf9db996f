--- The rows of Options itself (its groups have files of their own).
--- Source: PopTorch API reference, poptorch.Options; rows name other sources.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local engine_options = require("lupine.engine_options")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local logging = require("poptorch.logging")
local placement = require("poptorch.placement")
local strategies = require("poptorch.strategies")

local arg = Group._argument
local G, C, O = enums.CommGroupType, enums.ConnectionType, enums.OutputMode

local function set_input_grouping(self, values, given, row)
  local size = given.input_group_size
    and arg(row, "input_group_size", values[1]) or 1
  local kind = given.input_group_type and arg(row, "input_group_type", values[2]) or G.Consecutive
  if kind == G.NoGrouping then
    size, kind = 1, G.Consecutive
  end
  local rf = self.replication_factor
  errors.check(size >= 1 and size <= rf and rf % size == 0, "ValueError",
    "inputReplicaGrouping(input_group_size): expected a divisor of the replication factor %d "
    .. "(set that first), got %d", rf, size)
  self._values.input_group_size, self._values.input_group_type = size, kind
end

local function period(row, mode, value, given)
  if mode == O.EveryN then
    errors.check(given and value ~= nil, "AssertionError",
      "%s(output_return_period): OutputMode.EveryN needs an int >= 1", row.name)
    return arg(row, "output_return_period", value)
  end
  if given and value ~= nil and value ~= 1 then
    logging.info("%s: output_return_period %s is ignored: it belongs to OutputMode.EveryN",
      row.name, tostring(value))
  end
  return 1
end

local function set_output_mode(self, values, given, row)
  local mode = arg(row, "output_mode", values[1])
  local n = period(row, mode, values[2], given.output_return_period)
  self._values.output_mode, self._values.output_return_period = mode, n
end

-- It becomes the name of a folder and of a file.
local function set_model_name(self, values, _, row)
  local name = arg(row, "name", values[1], "string", { nullable = true })
  errors.check(name == nil or name ~= "" and name ~= "." and name ~= ".."
    and not name:find("[/\0]"), "AssertionError",
    "modelName(name): expected the name of a folder, without '/', got %q", name)
  self:_store(row, name)
end

local function set_anchor(self, values, given, row)
  local short = arg(row, "short_name", values[1])
  local long = arg(row, "long_name", values[2])
  local mode = arg(row, "output_mode", values[3])
  local n
  if mode == nil then
    mode, n = self.output_mode, self.output_return_period
  else
    n = period(row, mode, given.output_return_period and values[4] or 1, true)
  end
  self._values.anchored_tensors[short] =
    { long_name = long, output_mode = mode, output_return_period = n }
end

local LAST_IPU = placement.MOST_IPUS - 1

local function set_proportion(self, values, _, row)
  local given = arg(row, "available_memory_proportion", values[1])
  local kept = {}
  for name, value in pairs(given) do
    local id = type(name) == "string" and math.tointeger(tonumber(name:match("^IPU(%d+)$")))
    errors.check(id and id <= LAST_IPU, "AssertionError",
      "%s: expected keys IPU0..IPU%d, got %s", row.name, LAST_IPU, check.describe(name))
    kept[("IPU%d"):format(id)] = arg(row, name, value, "number", { min = 0, max = 1 })
  end
  self._values.available_memory_proportion = kept
end

-- Proportions of IPUs on which nothing runs.
local function idle_proportion(proportions, program)
  local used, rest = {}, {}
  for _, stage in ipairs(program.report.stages) do
    used[("IPU%d"):format(stage.ipu)] = true
  end
  for name in pairs(proportions) do
    rest[#rest + 1] = not used[name] and name or nil
  end
  table.sort(rest)
  return #rest > 0 and "the model does not use " .. table.concat(rest, ", ") or nil
end

-- Whether anything is normalised.
local function idle_norm(on, program)
  for _, node in ipairs(on and program.report:nodes() or {}) do
    on = on and not node.operator:find("_norm", 1, true)
  end
  return on and "the model normalises nothing" or nil
end

-- A name of files that are not written.
local function idle_name(name, program)
  return name and not program.options._values.writes_log
    and not require("poptorch.reports").wanted(program.options)
    and "neither logDir nor enableProfiling is set" or nil
end

local function set_profiling(self, values, _, row)
  local dir = arg(row, "profile_dir", values[1]) or "."
  local winning = engine_options.known(engine_options.of_environment())
  if #winning > 0 then
    logging.warn("enableProfiling: POPLAR_ENGINE_OPTIONS wins with %s",
      table.concat(winning, ", "))
  end
  self._Popart:_merge("engineOptions", { ["debug.allowOutOfMemory"] = "true",
    ["autoReport.directory"] = dir, ["autoReport.all"] = "true" })
  self._values.profile_dir = dir
end

local function set_excludes(self, values, _, row)
  self._values.source_location_excludes =
    class.copy(check.strings(values[1], row.name .. "(excludes)", { error = "AssertionError" }))
end

local function append_excludes(self, values, _, row)
  check.strings({ table.unpack(values, 1, values.n) }, row.name, { error = "AssertionError" })
  table.move(values, 1, values.n, #self.source_location_excludes + 1,
    self._values.source_location_excludes)
end

local function set_seed(self, values, _, row)
  self:_store(row, arg(row, "random_seed", values[1], "int"))
  local torch = package.loaded["torch"]
  local seed = type(torch) == "table" and torch.manual_seed
  if seed then
    seed(self.random_seed)
  end
end

local function set_cache(self, values, _, row)
  local path = arg(row, "path", values[1])
  errors.check(path ~= "", "AssertionError", "%s: expected a folder or nil, got ''", row.name)
  self._Popart:_put("enableEngineCaching", path ~= nil)
  self._Popart:_put("cachePath", path)
end

return {
  { name = "deviceIterations", run_time = true,
    key = "device_iterations", kind = "int", default = 1,
    doc = "Iterations of the device's loop per call, each with a new batch.",
    effect = "Rows of the schedule per call; the host's overhead is paid once per call." },
  { name = "replicationFactor", key = "replication_factor", kind = "int", default = 1,
    doc = "Copies of the model that work on different data.",
    effect = "IPUs times this; gradients are reduced over the copies." },
  { name = "autoRoundNumIPUs", key = "auto_round_num_ipus", kind = "bool", default = false,
    omitted = true, doc = "Reserves a power of two of IPUs, where it would be an error.",
    effect = "Idle IPUs are reserved." },
  { name = "broadcastBuffers", key = "broadcast_buffers", kind = "bool", default = true,
    omitted = true,
    doc = "Only false lets a replicated model modify its buffers: each replica has its own.",
    effect = "Which models compile; the machine has buffers of each replica in any case." },
  { name = "inputReplicaGrouping", params = {
      { "input_group_size", kind = "int", default = 1, error = "ValueError" },
      { "input_group_type", kind = G, default = G.Consecutive, except = { G.All },
        error = "ValueError" } },
    set = set_input_grouping,
    doc = "Replicas of a group read the same input; not CommGroupType.All.",
    effect = "Host traffic divides by the group size." },
  { key = "input_group_size", default = 1, doc = "Replicas in an input group.",
    setter = "inputReplicaGrouping" },
  { key = "input_group_type", default = G.Consecutive, doc = "Arrangement of input groups.",
    setter = "inputReplicaGrouping" },
  { name = "outputMode", key = "output_mode", params = { { "output_mode", kind = O },
      { "output_return_period", kind = "int", min = 1, default = 1 } },
    kind = O, default = O.Default, set = set_output_mode,
    doc = "Which results a call returns; Default is All for inference, Final for training; "
      .. "EveryN needs a period, which divides deviceIterations.",
    effect = "Results copied to the host." },
  { key = "output_return_period", kind = "int", default = 1, min = 1,
    doc = "N of OutputMode.EveryN.", setter = "outputMode",
    assign = function(self, n)
      self:outputMode(self.output_mode, n)
    end },
  { name = "anchorTensor",
    params = { { "short_name", kind = "string" }, { "long_name", kind = "string" },
      { "output_mode", kind = O, nullable = true, default = "outputMode's, with its period" },
      { "output_return_period", kind = "int", min = 1, default = 1 } },
    set = set_anchor, unfrozen = true,
    doc = "Makes a tensor of the graph retrievable after a run; without a mode it follows "
      .. "outputMode. Slices stand by device iteration, micro-batch, replica.",
    effect = "The tensor stays live to its copy to the host." },
  { key = "anchored_tensors", default = {}, doc = "Anchors by short name.",
    setter = "anchorTensor" },
  { name = "randomSeed", run_time = true,
    key = "random_seed", kind = "int", nullable = true, set = set_seed,
    doc = "Seed of the device's random numbers; also seeds the host's.",
    effect = "Values only." },
  { name = "logDir", run_time = true, key = "log_dir", kind = "string", default = ".",
    set = function(self, values, _, row)
      self:_store(row, arg(row, "log_dir", values[1], "string"))
      self._values.writes_log = true
    end,
    doc = "Directory of log files; written once it is set.",
    effect = "The log of a model from when it is wrapped also goes to modelName.log there." },
  { name = "maxRepeatLogs", run_time = true,
    key = "max_repeat_logs", params = { "max_lines" }, kind = "int",
    default = 4, nullable = true, min = 0,
    doc = "Equal log lines before they are suppressed; nil: never.",
    effect = "The log, from when a model is wrapped." },
  { name = "modelName", run_time = true, key = "model_name", params = { "name" }, kind = "string",
    nullable = true, set = set_model_name,
    doc = "Sub-directory of reports; \"inference\" or \"training\" when unset.",
    effect = "Names the folder of reports, and the log file of logDir.", idle = idle_name },
  { name = "enableExecutableCaching", run_time = true,
    key = "executable_cache_path", params = { "path" },
    kind = "string", nullable = true, popart = "cachePath", set = set_cache,
    doc = "Directory of compiled executables, made if it is missing; nil: no cache. "
      .. "POPTORCH_CACHE_DIR sets it for all options.",
    effect = "Compiling; not on the IPU Model." },
  { name = "useIpuModel", run_time = true,
    key = "use_model", params = { "use_model" }, kind = "bool",
    nullable = true, doc = "The IPU Model in place of hardware; wins over POPTORCH_IPU_MODEL.",
    effect = "No cycle count, no power-of-two rule." },
  { name = "connectionType", run_time = true, key = "connection_type", kind = C, default = C.Always,
    doc = "When to attach to an IPU: before compiling, after it, never.",
    effect = "When simulated IPUs are taken." },
  { name = "syncPattern", key = "sync_pattern", kind = enums.SyncPattern,
    default = enums.SyncPattern.Full, doc = "Which IPUs synchronise for host I/O.",
    no_effect = "all IPUs wait for host I/O alike" },
  { name = "useIpuId", run_time = true, key = "ipu_id", kind = "int", nullable = true, min = 0,
    doc = "Device id, as `lupine info` lists them; its IPUs must equal the model's times "
      .. "replicas: fewer are an error, more are reserved with a warning.",
    effect = "Which simulated IPUs are taken.",
    idle = Group.hardware_only("the IPU Model has no ids") },
  { name = "useOfflineIpuTarget", key = "ipu_version", kind = "int", nullable = true,
    set = function(self, values, given, row)
      self._values.ipu_version = given.ipu_version and values[1] ~= nil
        and arg(row, "ipu_version", values[1], "int") or 2
      self._values.connection_type = C.Never
    end,
    doc = "Compile only: 1 Mk1, 2 Mk2, 21 Mk2 with FP8.",
    effect = "Chip the program is planned for." },
  { name = "setExecutionStrategy", key = "execution_strategy", params = { "strategy" },
    kind = strategies.Strategy, doc = "How blocks are spread over IPUs and time.",
    effect = "Stages, placement and schedule.",
    idle = function(strategy, program)
      return #program.report.stages == 1 and strategy.alone or nil, class.of(strategy).__name
    end },
  { name = "setAvailableMemoryProportion", key = "available_memory_proportion",
    kind = "table", default = {}, tables = { available_memory_proportion = true },
    set = set_proportion,
    doc = "Temporary memory of each IPU for convolution, matmul and gather: {IPU0 = 0.5}, "
      .. "0 to 1.",
    effect = "The planner's bound on temporary memory.", idle = idle_proportion },
  { name = "enableStableNorm", key = "enable_stable_norm", params = { "enabled" }, kind = "bool",
    default = false, popart = "enableStableNorm",
    doc = "Two-pass mean and variance in normalisations: slower, more accurate.",
    effect = "float16 is normalised by statistics in float32, of two passes, which cost one more; "
      .. "otherwise mean and deviation are halves.", idle = idle_norm },
  { name = "enableSyntheticData", key = "enable_synthetic_data", params = { "enabled" },
    kind = "bool", default = false, popart = "syntheticDataMode",
    to = function(on)
      return on and 2 or 0
    end,
    from = function(mode)
      return mode ~= 0 and mode ~= "Off"
    end,
    doc = "Random normal data made on the device in place of host I/O.",
    effect = "No host I/O." },
  { name = "logCycleCount", key = "log_cycle_count", kind = "bool", default = false,
    popart = "instrumentWithHardwareCycleCounter",
    doc = "Counts the cycles of the main graph, logged at DEBUG; hardware only.",
    effect = "The counter reads of the real program." },
  { name = "enableProfiling", key = "profile_dir", params = { "profile_dir" }, kind = "string",
    nullable = true, set = set_profiling,
    doc = "Writes profiling reports to this directory; nil: the current one.",
    effect = "Files in a folder modelName there when a model is compiled: profile.json, "
      .. "summary.txt, debug.json, graph.txt; a tile's memory may overflow." },
  { name = "hostProfile", run_time = true,
    key = "host_profile", params = { "enabled" }, kind = "bool",
    default = false,
    source = "lupine", doc = "Takes the time of the host's instructions: model:hostProfile().",
    effect = "What model:hostProfile() says: where the host's time goes." },
  { name = "disableModuleNamescope", key = "module_namescope", params = {}, kind = "bool",
    default = true,
    set = function(self)
      self._values.module_namescope = false
    end,
    doc = "Operator names without the path of their module.",
    effect = "Names of operators: executor:getTensorNames(), report:nodes()." },
  { name = "relaxOptimizerAttributesChecks", run_time = true, key = "relax_optimizer_checks",
    params = { "relax" }, kind = "bool", default = false, omitted = true,
    doc = "Unexpected optimizer attributes are logged at DEBUG in place of WARN.",
    effect = "The log.", idle = Group.training_only("inference has no optimizer") },
  { name = "showCompilationProgressBar", run_time = true, key = "show_compilation_progress_bar",
    params = { "show" }, kind = "bool", default = true, omitted = true,
    doc = "A progress bar while compiling; without it compilationTime() is an error.",
    effect = "The bar, on a terminal; compilationTime()." },
  { name = "sourceLocationExcludes", key = "source_location_excludes", params = { "excludes" },
    kind = "table", default = { "lua/torch/", "lua/poptorch/", "lua/lupine/" },
    tables = { excludes = true }, set = set_excludes,
    doc = "Frames whose path holds one of these strings do not count as the source of an "
      .. "operator. The default stands for the library's own files.",
    effect = "The file and line of operators: report:nodes(), profiles, errors." },
  { name = "appendToLocationExcludes", params = { "excludes" }, varargs = true,
    set = append_excludes, doc = "Adds to sourceLocationExcludes.",
    effect = "As sourceLocationExcludes." },
  { name = "updatableNamedBuffers", run_time = true,
    key = "updatable_named_buffers", params = { "buffers" },
    kind = "table", nullable = true,
    set = function(self, values, _, row)
      self:_store(row, class.copy(check.strings(values[1], row.name .. "(buffers)",
        { error = "AssertionError" })))
    end,
    doc = "Buffers that copyNamedBuffersToDevice() may change after compiling.",
    effect = "These buffers are variables, not constants.", source = "PopTorch 3.4" },
}
