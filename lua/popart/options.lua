--- popart.SessionOptions, whose fields are assignable, and the groups of settings in it.
--- All come from the rows of option_rows.lua; what must hold between them when a session
--- is made: option_rules.lua.
---
---     local opts = popart.SessionOptions()
---     opts.enableGradientAccumulation = true
---     opts.accumulationFactor = 4
---
--- POPART_CACHE_DIR names a folder of compiled programs for all sessions:
--- enableEngineCaching is true and cachePath that folder unless they are set again.
---
--- Source: PopART user guide 4.2; its Python API, SessionOptions.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("popart.errors")
local enum = require("lupine.base.enum")
local logging = require("popart.logging")
local rows = require("popart.option_rows")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")
local TensorLocation = require("popart.tensor_location").TensorLocation
local variables = require("lupine.base.variables")

local M = {}

-- Group -> its rows by field, in order as `list`; "" is SessionOptions itself.
local groups = { [""] = { list = {} } }
for _, row in ipairs(rows) do
  local group, field = row.name:match("^(.-)%.(.+)$")
  group, field = group or "", field or row.name
  if row.only ~= "poptorch" then
    local of = groups[group] or { list = {} }
    groups[group] = of
    of[field] = row
    of.list[#of.list + 1] = field
  end
end

-- ---- values ------------------------------------------------------------------------------

local function check_element(value, where, of)
  if of == "string" then
    return check.string(value, where)
  elseif of == "strings" then
    return check.strings(value, where)
  elseif of == "int" then
    return check.int(value, where)
  elseif of == "float" then
    return check.number(value, where)
  elseif of == "location" then
    return check.instance(value, where, TensorLocation)
  end
  return check.enum(value, where, of)
end

local function check_list(value, where, row)
  check.plain_table(value, where)
  for key in pairs(value) do
    errors.check(math.type(key) == "integer" and key >= 1 and key <= #value, "TypeError",
      "%s: expected a list, got %s", where, check.describe(value))
  end
  for i, element in ipairs(value) do
    check_element(element, ("%s, element %d"):format(where, i), row.of)
  end
  return value
end

local PLAIN = { string = true, number = true, boolean = true }

-- Options of the engine and of libraries are texts; Python makes them of what it gets.
local function check_map(value, where, row)
  for key, element in pairs(check.plain_table(value, where)) do
    check.string(key, where .. ": a name")
    local at = ("%s['%s']"):format(where, key)
    if row.of == "string" then
      errors.check(PLAIN[type(element)], "TypeError",
        "%s: expected a string, number or bool, got %s", at, check.describe(element))
      value[key] = tostring(element)
    else
      check_element(element, at, row.of)
    end
  end
  return value
end

local CHECKS = {
  b = check.bool, s = check.string,
  i = function(value, where, row)
    return check.int(value, where, { min = row.min })
  end,
  f = function(value, where, row)
    return check.number(value, where, { min = row.min })
  end,
  e = function(value, where, row)
    return check.enum(value, where, row.of)
  end,
  t = function(value, where)
    return check.instance(value, where, TensorLocation)
  end,
  l = check_list,
  m = function(value, where, row)
    return row.of == "function" and check.callable(value, where) or check_map(value, where, row)
  end,
}

-- What has no default, Python's None, may have no value again.
local function checked(row, value)
  if check.is_none(value) and row.default == nil and row.kind ~= "t" then
    return nil
  end
  return CHECKS[row.kind](value, "SessionOptions." .. row.name, row)
end

local function default_of(row)
  if row.kind == "t" then
    return TensorLocation()
  elseif row.kind == "e" then
    return row.of[row.default]
  elseif row.kind == "l" and row.default and enum.is_enum(row.of) then
    local out = {}
    for i, name in ipairs(row.default) do
      out[i] = row.of[name]
    end
    return out
  end
  return class.copy(row.default)
end

-- Have a row's values changed?
local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" or getmetatable(a) or getmetatable(b) then
    return a == b
  end
  for key, value in pairs(a) do
    if not same(value, b[key]) then
      return false
    end
  end
  for key in pairs(b) do
    if a[key] == nil then
      return false
    end
  end
  return true
end

-- ---- classes -----------------------------------------------------------------------------

local group_of = {} -- class -> its rows

-- A class whose fields are a group's rows, and `nested`: field -> class of settings.
local function define(name, group, nested)
  local Settings = class.new(name)
  local names = { table.unpack(group.list) }
  group_of[Settings] = group
  for _, field in ipairs(tables.keys(nested or {})) do
    names[#names + 1] = field
  end

  local function unknown(key)
    return errors.raise("AttributeError", "%s has no attribute '%s'%s", name, tostring(key),
      check.nearest(key, names))
  end

  function Settings.__index(self, key)
    local values, value = rawget(self, "_values"), Settings[key]
    if value == nil and values then
      value = values[key]
    end
    if value == nil and values and not group[key] then
      unknown(key)
    end
    return value
  end

  function Settings.__newindex(self, key, value)
    local row, of = group[key], nested and nested[key]
    if of then
      self._values[key] = check.instance(value, ("%s.%s"):format(name, key), of)
    else
      self._values[key] = checked(row or unknown(key), value)
    end
  end

  function Settings:setup()
    rawset(self, "_values", {})
    for _, field in ipairs(group.list) do
      self._values[field] = default_of(group[field])
    end
    for field, of in pairs(nested or {}) do
      self._values[field] = of()
    end
  end

  function Settings.__eq(a, b)
    return same(a._values, b._values)
  end

  function Settings.__tostring(self)
    local parts, plain = {}, Settings()
    for _, field in ipairs(names) do
      if not same(self[field], plain[field]) then
        local value = self[field]
        local shown = type(value) == "table" and not getmetatable(value) and check.describe(value)
          or tostring(value)
        parts[#parts + 1] = ("%s=%s"):format(field, shown)
      end
    end
    return ("%s(%s)"):format(name, table.concat(parts, ", "))
  end
  return Settings
end

-- The same with an init that takes fields by position, in this order, or by name.
local function define_settings(group_name, order)
  local class_name = group_name:sub(1, 1):upper() .. group_name:sub(2)
  local Settings = define(class_name, groups[group_name])
  local takes = tables.set("toTrackTensors excludedVirtualGraphs "
    .. "customTransformApplierSettings")
  signatures.note(Settings, ("%s(%s)"):format(class_name, table.concat(order, ", ")))
  function Settings:init(...)
    local v, given = check.arguments(class_name, order, takes, ...)
    for i, field in ipairs(order) do
      if given[field] then
        self[field == "optimizerSchedule" and "schedule" or field] = v[i]
      end
    end
  end
  return Settings
end

--- How the loss scale is found.
--- source: PopART Python API, AutomaticLossScalingSettings
M.AutomaticLossScalingSettings = define_settings("automaticLossScalingSettings", { "enabled",
  "toTrackTensors", "binEdgeLocation", "thresholdUpperCountProportion", "updatePeriod",
  "gradientTensorTrackingMethod" })

--- How batches are computed in parts.
--- source: PopART Python API, BatchSerializationSettings
M.BatchSerializationSettings = define_settings("batchSerializationSettings", { "factor",
  "concatOnVirtualGraphChange", "concatOnExecutionPhaseChange", "concatOnPipelineStageChange",
  "transformContext", "method", "batchSchedule" })

--- What called graphs' backward passes get.
--- source: PopART Python API, AutodiffSettings
M.AutodiffSettings = define_settings("autodiffSettings", { "stitchStrategy" })

--- Phases of execution.
--- source: PopART Python API, ExecutionPhaseSettings
M.ExecutionPhaseSettings = define_settings("executionPhaseSettings", { "phases", "stages",
  "weightIOSchedule", "activationIOSchedule", "optimizerStateIOSchedule",
  "accumulatorIOSchedule", "optimizerSchedule" })

--- How updates are ordered.
--- source: PopART Python API, AccumulateOuterFragmentSettings
M.AccumulateOuterFragmentSettings = define_settings("accumulateOuterFragmentSettings",
  { "schedule", "excludedVirtualGraphs" })

--- Which reductions between replicas are merged.
--- source: PopART Python API, ReplicatedCollectivesSettings
M.ReplicatedCollectivesSettings = define_settings("replicatedCollectivesSettings",
  { "prepareScheduleForMergingCollectives", "mergeAllReduceCollectives",
    "mergeReduceScatterCollectives", "mergeAllGatherCollectives" })

--- What may change.
--- source: PopART Python API, ExperimentalSettings
M.ExperimentalSettings = define_settings("experimentalSettings",
  { "customTransformApplierSettings", "createHostTransferableTensorWithOffset" })

local DeveloperSettings = define_settings("developerSettings",
  { "timePartitionLoggerThresholdPercentage" })

--- Where one kind of tensors is: (location or storage, minElementsForOffChip,
--- minElementsForReplicatedTensorSharding).
--- source: PopART Python API, TensorLocationSettings
local TensorLocationSettings = define("TensorLocationSettings",
  groups.weightTensorLocationSettings)
M.TensorLocationSettings = TensorLocationSettings

local LOCATION = { "location", "minElementsForOffChip", "minElementsForReplicatedTensorSharding",
  "storage" }

signatures.note(TensorLocationSettings, ("TensorLocationSettings(%s)"):format(
  table.concat(LOCATION, ", ")), 1)

function TensorLocationSettings:init(...)
  local v, given = check.arguments("TensorLocationSettings", LOCATION, nil, ...)
  local where = v[1] == nil and v[4] or v[1]
  if where ~= nil then
    self.location = TensorLocation:is(where) and where or TensorLocation(where)
  end
  for i = 2, 3 do
    if given[LOCATION[i]] then
      self[LOCATION[i]] = v[i]
    end
  end
end

local NESTED = {
  automaticLossScalingSettings = M.AutomaticLossScalingSettings,
  batchSerializationSettings = M.BatchSerializationSettings,
  autodiffSettings = M.AutodiffSettings, executionPhaseSettings = M.ExecutionPhaseSettings,
  accumulateOuterFragmentSettings = M.AccumulateOuterFragmentSettings,
  replicatedCollectivesSettings = M.ReplicatedCollectivesSettings,
  developerSettings = DeveloperSettings, experimentalSettings = M.ExperimentalSettings,
  activationTensorLocationSettings = TensorLocationSettings,
  weightTensorLocationSettings = TensorLocationSettings,
  optimizerStateTensorLocationSettings = TensorLocationSettings,
  accumulatorTensorLocationSettings = TensorLocationSettings,
}

--- Options of a session.
--- error: AttributeError for a field that there is not; TypeError or ValueError for a value
--- that it cannot have
--- source: 004 popart.SessionOptions
---@class popart.SessionOptions
---@overload fun(): popart.SessionOptions
local SessionOptions = define("SessionOptions", groups[""], NESTED)
M.SessionOptions = SessionOptions
signatures.note(SessionOptions, "SessionOptions()", 1)

-- Old names of fields.
local OLD = { defaultPrefetchBufferingDepth = "defaultBufferingDepth",
  prefetchBufferingDepthMap = "bufferingDepthMap" }

local read, write = SessionOptions.__index, SessionOptions.__newindex

function SessionOptions.__index(self, key)
  return read(self, OLD[key] or key)
end

function SessionOptions.__newindex(self, key, value)
  if OLD[key] then
    logging.warn("popart", "The session option %s has been deprecated and will be removed in a "
      .. "future release. Please use the alias %s instead.", key, OLD[key])
  end
  write(self, OLD[key] or key, value)
end

function SessionOptions:init(...)
  check.most("SessionOptions", 0, ...)
  local folder = variables.text("POPART_CACHE_DIR")
  if folder then
    self.enableEngineCaching, self.cachePath = true, folder
  end
end

--- Sets useHostCopyOps, enableExplicitMainLoops and explicitRecomputation.
--- error: TypeError
--- source: PopART Python API, SessionOptions.enableExplicitIR
---@param ... any enable (boolean)
function SessionOptions:enableExplicitIR(...)
  local enable = check.bool(check.one("enableExplicitIR", "enable", ...),
    "enableExplicitIR: enable")
  self.useHostCopyOps, self.enableExplicitMainLoops = enable, enable
  self.explicitRecomputation = enable
end

--- Replicas of all processes.
--- source: PopART Python API, SessionOptions.getGlobalReplicationFactor
---@return integer
function SessionOptions:getGlobalReplicationFactor()
  if self.enableDistributedReplicatedGraphs then
    return self.globalReplicationFactor
  end
  return self.enableReplicatedGraphs and self.replicatedGraphCount or 1
end

-- ---- what sessions ask --------------------------------------------------------------------

--- Calls fn(name, value, row) for each option that differs from its default, groups with a
--- point, in the rows' order.
---@param opts popart.SessionOptions
---@param fn fun(name: string, value: any, row: table)
function M.each_set(opts, fn)
  for _, row in ipairs(rows) do
    local group, field = row.name:match("^(.-)%.(.+)$")
    if row.only ~= "poptorch" then
      local value = opts[group or row.name]
      if group then
        value = value[field]
      end
      if not same(value, default_of(row)) then
        fn(row.name, value, row)
      end
    end
  end
end

--- Calls note(name, why) for each option that was set and changes nothing in a session, as
--- reports have them.
---@param opts popart.SessionOptions
---@param note fun(name: string, why: string)
function M.note(opts, note)
  M.each_set(opts, function(name, _, row)
    if row.no_effect then
      note("SessionOptions." .. name, row.no_effect)
    end
  end)
end

local SHOWN = { b = "bool", i = "int", f = "float", s = "string", l = "list", m = "table",
  t = "TensorLocation" }

--- The fields of a class of options or settings, in order.
---@param cls table
---@return string[]
function M.fields(cls)
  return { table.unpack(group_of[cls] and group_of[cls].list or {}) }
end

--- Help for a field: what it is, may be, is unless it is set, and does here.
---@param cls table SessionOptions or a class of settings
---@param field string
---@return string? nil: it has no such field
function M.help(cls, field)
  local row = (group_of[cls] or {})[field]
  if not row then
    return nil
  end
  local default = default_of(row)
  local shown = type(default) == "table" and not getmetatable(default) and check.describe(default)
    or tostring(default)
  return ("%s.%s: %s\nvalues: %s, default %s\nsimulated system: %s"):format(cls.__name, field,
    row.doc, row.kind == "e" and check.allowed(row.of) or SHOWN[row.kind], shown,
    row.effect or row.refused and "refused: " .. row.refused or "none: " .. row.no_effect)
end

--- Settings of locations as lupine.report.simulate takes them.
---@param settings popart.TensorLocationSettings
---@param at? popart.TensorLocation in place of theirs
---@return {on_chip: boolean, sharded: boolean, io_load: boolean, io_store: boolean,
---  min_off_chip: integer, min_sharded: integer}
function M.location(settings, at)
  at = at or settings.location
  return { on_chip = at.storage.name == "OnChip",
    sharded = at.replicatedTensorSharding.name == "On", io_load = at.loadTileSet.name == "IO",
    io_store = at.storageTileSet.name == "IO", min_off_chip = settings.minElementsForOffChip,
    min_sharded = settings.minElementsForReplicatedTensorSharding }
end

return M
