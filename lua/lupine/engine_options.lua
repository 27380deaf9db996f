--- Options of the engine, by Poplar's names: what a front end's engineOptions and
--- POPLAR_ENGINE_OPTIONS may say. The rows are the one place that names them. Report
--- files, the tiles that may overflow and a report's notes follow from these; a name
--- that has no row is noted as well.
---
--- Sources: Poplar's engine options as PopTorch's user guide (4.11.2) and PopART's
--- (4.2.1, 4.6) use them.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")
local variables = require("lupine.base.variables")

local M = {}

---@class lupine.engine_options.Row
---@field name string
---@field kind string "bool" ("true" or "false"), "folder" or "cycles"
---@field word? string that one of kind "bool" may have, too
---@field default string|fun(engine: table<string, string>): string what holds unless it is given
---@field doc string
---@field effect? string what it changes here
---@field no_effect? string why it changes nothing
---@field file? string the report file that it asks for

local function as_all(engine)
  return M.value(engine, "autoReport.all")
end

---@type lupine.engine_options.Row[]
M.rows = {
  { name = "autoReport.all", kind = "bool", default = "false",
    doc = "All report files, but for those whose own option is false.",
    effect = "The files of a compiled model." },
  { name = "autoReport.directory", kind = "folder", default = ".",
    doc = "The folder in which each model has a folder of report files.",
    effect = "Where the files stand." },
  { name = "autoReport.outputGraphProfile", kind = "bool", default = as_all,
    doc = "What the simulated system says of the program, as data.",
    effect = "profile.json is written.", file = "profile.json" },
  { name = "autoReport.outputExecutionProfile", kind = "bool", default = as_all,
    doc = "The same as text.",
    effect = "summary.txt is written.", file = "summary.txt" },
  { name = "autoReport.outputDebugInfo", kind = "bool", default = as_all,
    doc = "Operators with module, file, line, IPU and stage.",
    effect = "debug.json is written.", file = "debug.json" },
  { name = "autoReport.outputSerializedGraph", kind = "bool", default = as_all,
    doc = "The program's text.",
    effect = "graph.txt is written.", file = "graph.txt" },
  { name = "debug.allowOutOfMemory", kind = "bool",
    default = function(engine)
      return tostring(#M.files(engine) > 0)
    end,
    doc = "A program that does not fit into the tiles compiles, to be reported.",
    effect = "A tile that overflows is a warning in place of an error." },
  { name = "target.deterministicWorkers", kind = "bool", word = "portable", default = "false",
    doc = "Stochastic rounding draws the same numbers whichever worker computes.",
    no_effect = "random numbers follow the element, not the worker" },
  { name = "lupine.hostSyncCycles", kind = "cycles", default = "-1",
    doc = "Cycles of a sync with the host or streaming memory; -1: the chip's "
      .. "(runtime/arch/chips.def).",
    effect = "Each row of transfers takes so much longer or shorter." },
}

local row_of, names = {}, {}
for i, row in ipairs(M.rows) do
  row_of[row.name], names[i] = row, row.name
end

local PLAIN = { string = true, number = true, boolean = true }

local function checked(name, value, from)
  errors.check(type(name) == "string", "Error", "%s: expected names of options, got %s", from,
    check.describe(name))
  errors.check(PLAIN[type(value)], "Error",
    "%s: '%s': expected a string, number or boolean, got %s",
    from, name, check.describe(value))
  local row, text = row_of[name] or {}, tostring(value)
  local kind = row.kind
  errors.check(kind ~= "bool" or text == "true" or text == "false" or text == row.word, "Error",
    "%s: '%s': expected %strue or false, got %s", from, name,
    row.word and ("'%s', "):format(row.word) or "", check.describe(value))
  local n = math.tointeger(tonumber(text))
  errors.check(kind ~= "cycles" or n and n >= -1, "Error", "%s: '%s': expected cycles, or -1, "
    .. "got %s", from, name, check.describe(value))
  errors.check(kind ~= "folder" or text ~= "", "Error", "%s: '%s': expected a folder, got \"\"",
    from, name)
  return text
end

--- What POPLAR_ENGINE_OPTIONS says, a JSON object.
--- error: poptorch.Error for a text that is none, or a value that an option has not
---@return table<string, string>
function M.of_environment()
  local text, out = variables.text("POPLAR_ENGINE_OPTIONS"), {}
  if not text then
    return out
  end
  for name, value in pairs(variables.object("POPLAR_ENGINE_OPTIONS", text, "Error")) do
    out[name] = checked(name, value, "POPLAR_ENGINE_OPTIONS")
  end
  return out
end

--- A front end's engine options, and over them those of the environment.
--- error: poptorch.Error for values that an option has not
---@param given table<string, any>?
---@param from string where they were set, for messages
---@return table<string, string>
function M.effective(given, from)
  local out = {}
  for name, value in pairs(given or {}) do
    out[name] = checked(name, value, from)
  end
  for name, value in pairs(M.of_environment()) do
    out[name] = value
  end
  return out
end

--- An option's value, given or not.
---@param engine table<string, string>
---@param name string that a row has
---@return string
function M.value(engine, name)
  local default = row_of[name].default
  return engine[name] or type(default) == "function" and default(engine) or default
end

--- Whether an option of kind "bool" is true, given or not.
---@param engine table<string, string>
---@param name string that a row has
---@return boolean
function M.is_on(engine, name)
  return M.value(engine, name) == "true"
end

--- The number of an option of kind "cycles", given or not.
---@param engine table<string, string>
---@param name string that a row has
---@return integer
function M.cycles(engine, name)
  return math.tointeger(tonumber(M.value(engine, name)))
end

--- The report files that are asked for.
---@param engine table<string, string>
---@return string[]
function M.files(engine)
  local list = {}
  for _, row in ipairs(M.rows) do
    list[#list + 1] = row.file and M.is_on(engine, row.name) and row.file or nil
  end
  return list
end

--- The names of those that were given and have a row.
---@param engine table<string, string>
---@return string[]
function M.known(engine)
  return tables.keys(engine, function(name)
    return row_of[name]
  end)
end

--- Calls note(name, why) for every option that was given and changes nothing.
---@param engine table<string, string>
---@param note fun(name: string, why: string)
function M.note(engine, note)
  for _, name in ipairs(tables.keys(engine)) do
    local row = row_of[name]
    local why = row and row.no_effect
      or not row and "the simulated engine has no such option" .. check.nearest(name, names)
    if why then
      note(("engine option '%s'"):format(name), why)
    end
  end
end

return M
