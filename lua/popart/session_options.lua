--- PopART's session options as names with values, for front ends that have options of
--- their own: what kinds of values they take and what becomes of each in a program.
--- Some are read, some refused because they would change results, all others change
--- nothing, which a report notes. Groups are written with a point:
--- "automaticLossScalingSettings.enabled". The rows: option_rows.lua.
local check = require("lupine.base.check")
local engine_options = require("lupine.engine_options")
local errors = require("lupine.base.errors")
local library_options = require("lupine.library_options")
local rows = require("popart.option_rows")
local tables = require("lupine.base.tables")

local M = {}

-- The rows that other front ends have, by name, and all options' defaults.
local row_of, default_of = {}, {}
for _, row in ipairs(rows) do
  default_of[row.name] = row.default
  row_of[row.name] = row.only ~= "popart" and row or nil
end
local names = tables.keys(row_of)
M.names = names

local FITS = {
  b = function(v)
    return type(v) == "boolean" or v == 0 or v == 1
  end,
  i = function(v)
    return math.type(v) == "integer"
  end,
  f = function(v)
    return type(v) == "number"
  end,
  s = function(v)
    return type(v) == "string"
  end,
  l = function(v)
    return type(v) == "table"
  end,
  m = function(v)
    return type(v) == "table"
  end,
  e = function(v)
    return math.type(v) == "integer" or type(v) == "string"
  end,
}
local SHOWN = { b = "bool", i = "int", f = "float", s = "string", l = "list", m = "table",
  e = "int or string" }

--- What an option of PopART's is unless it is set.
---@param name string
---@return any
function M.default(name)
  return default_of[name]
end

--- What values a session option takes: "bool", "int", "float", "string", "list",
--- "table", "int or string" (an enumeration's member).
---@param name string
---@return string? kind nil for a name that is no session option
function M.kind(name)
  return row_of[name] and SHOWN[row_of[name].kind]
end

--- error: poptorch.Error for a name that is no session option, a value of
--- another kind than it has, or a value that an option of a library has not
---@param name string
---@param value any
---@param from string where it was set, for messages
function M.check(name, value, from)
  local kind = (row_of[name] or {}).kind
  errors.check(kind, "Error", "unknown session option '%s' (set through %s)%s", name, from,
    kind and "" or check.nearest(name, names))
  errors.check(FITS[kind](value), "Error", "session option '%s': expected %s, got %s", name,
    SHOWN[kind], check.describe(value))
  local wrong = library_options.values[name] and library_options.wrong(name, value)
  errors.check(not wrong, "Error", "session option %s (set through %s)", wrong, from)
end

-- ---- what becomes of them ---------------------------------------------------------------

--- What becomes of a session option: "read", "refused", or why it does nothing; what
--- the tables of library options hold is told key by key.
---@param name string
---@return string
function M.fate(name)
  return row_of[name].poptorch
end

local LIBRARIES = { "convolutionOptions", "matmulOptions", "lstmOptions" }

-- PopART's RecomputationType. Norm-only has no counterpart here: the strategy
-- decides, as when nothing is set, and the report says so.
local RECOMPUTE = { [0] = "none", "all", "auto", "auto", "all", NoRecompute = "none",
  Standard = "all", NormOnly = "auto", Pipeline = "auto", RecomputeAll = "all" }

--- What autoRecomputation asks of the simulated system: "auto", "none", "all".
--- error: poptorch.Error for another value than PopART's
---@param values table<string, any> by name
---@return string
function M.recomputation(values)
  local value = values.autoRecomputation
  return value == nil and "auto" or errors.check(RECOMPUTE[value], "Error",
    "autoRecomputation: expected 0..4 or NoRecompute, Standard, NormOnly, Pipeline, "
    .. "RecomputeAll, got %s", tostring(value))
end

--- When tensors move between phases: options of executionPhaseSettings, by their kind.
M.SCHEDULES = { activation = "activationIOSchedule", weight = "weightIOSchedule",
  optimizer = "optimizerStateIOSchedule", accumulator = "accumulatorIOSchedule" }

local PHASES, PARTS = "executionPhaseSettings.", "batchSerializationSettings."

-- What the members of PopART's enumerations are for the simulated system, by number and name.
local MEMBERS = {
  [PHASES .. "schedule"] = { "interleaving", "batch", "batch",
    names = { "Interleaving", "Batch", "BatchClusteredIO" } },
  [PARTS .. "batchSchedule"] = { "in_turn", "in_turn", "overlap_io", "overlap_compute",
    names = { "Scheduler", "Isomorphic", "OverlapOnIo", "OverlapOnCompute" } },
}
for _, field in pairs(M.SCHEDULES) do
  MEMBERS[PHASES .. field] = { false, true, names = { "Preload", "OnDemand" } }
end

--- What the simulated system is told of an option that is a member of an enumeration:
--- whether tensors move with their phase alone, or the order of parts and of updates.
--- error: poptorch.Error for another value than PopART's
---@param name string
---@param value integer|string|nil its default unless given
---@return boolean|string
function M.simulated(name, value)
  local members = MEMBERS[name]
  value = value == nil and row_of[name].default or value
  for i, member in ipairs(members.names) do
    if value == member or value == i - 1 then
      return members[i]
    end
  end
  return errors.raise("Error", "%s: expected 0..%d or %s, got %s", name, #members.names - 1,
    table.concat(members.names, ", "), tostring(value))
end

local function note_phases(values, program, note)
  for _, name in ipairs(tables.keys(MEMBERS)) do
    local why = values[name] ~= nil and program.unscheduled and program.unscheduled(name)
    if why then
      note(program.label:format(name), why)
    end
  end
end

local function note_recomputation(value, training, note)
  if value ~= nil and not training then
    note("autoRecomputation", "inference recomputes nothing")
  elseif value == 2 or value == "NormOnly" then
    note("autoRecomputation NormOnly",
      "operators are not told apart; the execution strategy decides")
  end
end

local SCALING = "automaticLossScalingSettings."

local function note_scaling(values, program, note)
  local idle = not program.training and "inference has no loss to scale"
    or not values[SCALING .. "enabled"] and "automaticLossScalingSettings.enabled is not set"
  for name in pairs(idle and values or {}) do
    if name:sub(1, #SCALING) == SCALING and name ~= SCALING .. "enabled" then
      note(program.label:format(name), idle)
    end
  end
end

local function note_libraries(values, program, note)
  for _, name in ipairs(LIBRARIES) do
    for _, key in ipairs(tables.keys(values[name] or {})) do
      local value = values[name][key]
      local of = ("%s %s"):format(program.label:format(name), key)
      if key == "partialsType" then
        if value ~= program.partials and name ~= "convolutionOptions" then
          note(of, name == "lstmOptions" and "sums within recurrent layers stay in float32"
            or "partialsTypeMatMuls says it")
        end
      elseif not program.own or program.own[key] ~= type(value) then
        note(of, "the planner of the simulated machine has no such setting")
      end
    end
  end
end

--- Calls note(name, why) for every session option and engine option that was
--- chosen and that nothing reads in a program. `program`: training, label (a
--- format of names), partials ("float" or "half"), engine (engine options), own
--- (of library options that the front end notes itself, the types by key), unscheduled
--- (why an option that orders what phases do changes nothing; nil: it does).
---@param values table<string, any> by name
---@param program table
---@param note fun(name: string, why: string)
function M.note(values, program, note)
  for _, name in ipairs(tables.keys(values)) do
    if M.fate(name) ~= "read" then
      note(program.label:format(name), M.fate(name))
    end
  end
  if values.enableEngineCaching and not values.cachePath then
    note(program.label:format("enableEngineCaching"), "there is no cachePath")
  end
  note_recomputation(values.autoRecomputation, program.training, note)
  note_scaling(values, program, note)
  note_phases(values, program, note)
  note_libraries(values, program, note)
  engine_options.note(program.engine, note)
end

return M
