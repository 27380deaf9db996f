--- Reports in files: what Report:json() wrote is read as a report again.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

-- Lists of a decoded file without their `n`; numbers that are names are numbers.
local function plain(value)
  if type(value) ~= "table" then
    return value
  end
  local is_list, out = getmetatable(value) == core.json_array, {}
  for key, entry in pairs(value) do
    if not is_list or key ~= "n" then
      out[math.tointeger(tonumber(key)) or key] = plain(entry)
    end
  end
  return out
end

--- Lists of plain data as JSON's, also where they are empty; maps by number by texts.
---@param value any
---@param field? string whose value it is
---@return any
function M.as_json(value, field)
  if type(value) ~= "table" then
    return value
  end
  local out = {}
  if field == "memory" then
    for key, entry in pairs(value) do
      out[tostring(key)] = M.as_json(entry)
    end
    return out
  end
  for key, entry in pairs(value) do
    out[key] = M.as_json(entry, key)
  end
  if #value > 0 or next(value) == nil then
    out.n = #value
    return tables.array(out)
  end
  return out
end

-- Figures that are shown, beside those that are counted with.
local ALL = { "schedule", "chip_name", "strategy", "replicas", "samples_per_second",
  "pipeline_efficiency", "seconds", "operators" }

-- The operators and memory of a file, in place of a plan.
local function plan_of(data)
  return { nodes = function()
    return data.plan.nodes
  end, liveness = function()
    return data.liveness or { ipus = {} } -- of older files
  end }
end

-- What an entry of a schedule must have beside what all have, by its kind.
local ENTRIES = { compute = { "stage", "backward", "offset" }, copy = { "bytes", "to" },
  update = {} }
for kind in ("host_in host_out load store collective"):gmatch("%S+") do
  ENTRIES[kind] = { "bytes" }
end

local function entry_fault(figures, entry)
  local fields = ENTRIES[entry.kind]
  for _, name in ipairs(fields or { "kind" }) do
    if not fields or entry[name] == nil then
      return "an entry has no " .. name
    end
  end
  local stage = entry.kind == "compute" and figures.stages[entry.stage + 1]
  return stage == nil and "an entry's stage is none" or nil
end

-- What refers to something that is not there, in figures of the right types.
local function loose(figures)
  for _, row in ipairs(figures.schedule) do
    for _, entry in ipairs(row.entries) do
      local fault = entry_fault(figures, entry)
      if fault then
        return fault
      end
    end
  end
  for _, loop in ipairs(figures.sequence) do
    local last = loop.rows < 2 ^ 31 and loop.first_row < 2 ^ 31 and loop.first_row + loop.rows - 1
    if loop.first_row < 1 or loop.rows < 0 or not last or last > #figures.schedule then
      return "a loop has rows that are not there"
    end
  end
  return nil
end

-- Entries of what else was simulated.
local SIMULATED = {
  gains = { hint = "string", text = "string", saves = "number", share = "number",
    samples_per_second = "number", fits = "boolean" },
  remedies = { text = "string", saved = "number", share = "number",
    samples_per_second = "number", fits = "boolean" },
}

local function simulated_fault(data, name)
  local list = data[name]
  if list ~= nil and type(list) ~= "table" then
    return name .. ": expected a list"
  end
  for i, entry in ipairs(list or {}) do
    for key, kind in pairs(SIMULATED[name]) do
      if type(entry) ~= "table" or type(entry[key]) ~= kind then
        return ("%s[%d]: expected %s to be a %s"):format(name, i, key, kind)
      end
    end
  end
  return nil
end

local function fault_of(data)
  local live = type(data) == "table" and data.liveness
  for _, group in ipairs({ "report", "plan" }) do
    if type(data) ~= "table" or type(data[group]) ~= "table" then
      return ("expected an object with '%s'"):format(group)
    end
  end
  local report = require("lupine.report")
  return report.fault(data.report) or report.fault(data.report, ALL)
    or report.fault(data.plan, { "nodes" }, "plan")
    or live and (type(live) ~= "table" and "liveness: expected a table"
      or report.fault(live, { "ipus" }, "liveness")) or loose(data.report)
    or simulated_fault(data, "gains") or simulated_fault(data, "remedies")
end

local NAMES = { "profile.json", "report.json" }

-- The file of a report in a folder, or nil.
local function within(folder)
  for _, name in ipairs(NAMES) do
    local path = folder .. "/" .. name
    local file = io.open(path)
    if file then
      file:close()
      return path
    end
  end
end

-- " (there is 'a', 'b')": some reports in a folder and in those in it, or "".
local function near(folder)
  if not core.is_folder(folder) then
    return ""
  end
  local found, inner = { within(folder) }, core.list_folder(folder)
  table.sort(inner)
  for _, name in ipairs(inner) do
    if #found < 5 then
      found[#found + 1] = within(folder .. "/" .. name)
    end
  end
  return #found == 0 and "" or (" (there is '%s')"):format(table.concat(found, "', '"))
end

--- The file itself, or of a folder the report that an engine or a run left there.
--- error: FileNotFoundError, which names the reports that are near
---@param path string
---@return string
function M.find(path)
  if core.is_folder(path) then
    return within(path) or errors.raise("FileNotFoundError", "'%s' has neither %s%s", path,
      table.concat(NAMES, " nor "), near(path))
  end
  local file <close>, why = io.open(path)
  errors.check(file, "FileNotFoundError", "%s%s", why, near(path:match("^(.*)/") or "."))
  return path
end

--- The report in a file: what Report:json() gives, as an engine's profile.json and a run's
--- report.json have it.
--- errors: OSError; ValueError for a file that is none
---@param path string
---@return lupine.Report
function M.read(path)
  local opened, why = io.open(check.string(path, "path"), "rb")
  errors.check(opened, "FileNotFoundError", "%s", why)
  local file <close> = opened
  local text = file:read("a") -- a folder opens, and gives nothing
  errors.check(text, "OSError", "cannot read '%s'", path)
  return M.parse(text, path)
end

--- The same of the file's bytes.
--- error: ValueError
---@param text string
---@param path string for messages
---@return lupine.Report
function M.parse(text, path)
  local ok, data = pcall(core.json_decode, text, path)
  errors.check(ok, "ValueError", "%s", ok or data.message or data)
  data = plain(data)
  local fault = fault_of(data)
  errors.check(not fault, "ValueError", "%s is no report: %s", path, fault)
  return require("lupine.report").Report(nil, { figures = data.report,
    gains = data.gains or {}, remedies = data.remedies or {}, -- of older files
    summary = type(data.summary) == "string" and data.summary or "", text = text,
    plan = function()
      return plan_of(data)
    end })
end

return M
