--- lupine.profile: where the host's time goes.
---
---     local profile = require("lupine").profile
---     profile.start()
---     ... -- compiled models run
---     local p = profile.stop()
---     print(p)
---     p:write_trace("trace.json")
---
--- `lupine profile script.lua` does the same around a script. Executors take
--- the time after each of their instructions; what a fused instruction took is
--- shared among the operators in it by their floating-point operations.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local render = require("lupine.profile.render")
local spans = require("lupine.base.spans")

local M = {}

---@class lupine.Profile
---@field seconds number from start() to stop()
---@field host {name: string, calls: integer, seconds: number}[] where they went
---@field steps table[] one for each executor that ran
---@field peaks table<integer, {flops: number, bytes: number}> per number of threads
local Profile = {}
Profile.__index = Profile
Profile.__name = "lupine.Profile"

-- ---- one executor -------------------------------------------------------------------

local function entry(map, list, key, fields)
  local e = map[key]
  if not e then
    e = fields
    e.calls, e.total_ns, e.self_ns, e.flops, e.bytes = 0, 0, 0, 0, 0
    map[key] = e
    list[#list + 1] = e
  end
  return e
end

local function add(e, row, share)
  e.self_ns = e.self_ns + row.ns * share
  e.flops = e.flops + row.flops * row.calls * share
  e.bytes = e.bytes + row.bytes * row.calls * share
end

-- Counts a row once for an entry, however many of its operators are there.
local function reach(e, row, seen)
  if not seen[e] then
    seen[e] = true
    e.calls = e.calls + row.calls
    e.total_ns = e.total_ns + row.ns
  end
end

-- An operator's share of its instruction.
local function weights(row)
  local sum, list = 0, {}
  for i, place in ipairs(row.places) do
    list[i] = math.max(place.flops, 1)
    sum = sum + list[i]
  end
  for i, w in ipairs(list) do
    list[i] = w / sum
  end
  return list
end

local function line_of(place)
  return place.line > 0 and ("%s:%d"):format(place.file, place.line) or ""
end

local function by_line(step, row)
  local seen = {}
  local share = weights(row)
  for i, place in ipairs(row.places) do
    local where = line_of(place)
    local e = entry(step.line_at, step.lines, where, { where = where, file = place.file,
      line = place.line })
    reach(e, row, seen)
    add(e, row, share[i])
  end
  if #row.places == 0 then
    local e = entry(step.line_at, step.lines, "", { where = "" })
    reach(e, row, seen)
    add(e, row, 1)
  end
end

-- A module's total holds that of the modules in it; the executor's own work
-- is that of the whole.
local function by_module(step, row)
  local seen = {}
  local share = weights(row)
  for i, place in ipairs(row.places) do
    local scope = place.scope
    add(entry(step.module_at, step.modules, scope, { scope = scope }), row, share[i])
    while true do
      reach(entry(step.module_at, step.modules, scope, { scope = scope }), row, seen)
      if scope == "" then
        break
      end
      scope = scope:match("^(.*)/[^/]*$") or ""
    end
  end
  if #row.places == 0 then
    local e = entry(step.module_at, step.modules, "", { scope = "" })
    reach(e, row, seen)
    add(e, row, 1)
  end
end

local function by_kernel(step, row)
  local where = row.places[1] and line_of(row.places[#row.places]) or ""
  local key = table.concat({ row.part, row.label, where, row.threads }, "\0")
  local e = entry(step.kernel_at, step.kernels, key, { label = row.label, part = row.part,
    where = where, threads = row.threads })
  reach(e, row, {})
  add(e, row, 1)
end

local function by_time(list)
  table.sort(list, function(a, b)
    if a.self_ns ~= b.self_ns then
      return a.self_ns > b.self_ns
    end
    return (a.where or a.scope) < (b.where or b.scope)
  end)
end

local function digest(raw)
  local step = { trains = raw.trains, runs = raw.runs, ns = raw.ns, raw = raw,
    dropped = raw.dropped,
    kernels = {}, kernel_at = {}, lines = {}, line_at = {}, modules = {}, module_at = {} }
  for _, row in ipairs(raw.rows) do
    if row.calls > 0 then
      by_kernel(step, row)
      by_line(step, row)
      by_module(step, row)
    end
  end
  by_time(step.kernels)
  by_time(step.lines)
  by_time(step.modules)
  step.kernel_at, step.line_at, step.module_at = nil, nil, nil
  return step
end

-- ---- the whole ----------------------------------------------------------------------

local started -- ns, while a profile is being taken

local peaks = {} -- per number of threads, measured once

local function peak(threads)
  if not peaks[threads] then
    local flops, bytes = core.machine_peak(threads)
    peaks[threads] = { flops = flops, bytes = bytes }
  end
  return peaks[threads]
end

-- What the steps' kernels run with.
local function peaks_of(steps)
  local list = {}
  for _, step in ipairs(steps) do
    for _, k in ipairs(step.kernels) do
      list[k.threads] = peak(k.threads)
    end
  end
  return list
end

local function host_rows(all, run_ns, runs, totals)
  local rows = { { name = "executor", calls = runs, seconds = run_ns / 1e9 } }
  local rest = all - run_ns
  for name, t in pairs(totals) do
    rows[#rows + 1] = { name = name, calls = t.calls, seconds = t.own_ns / 1e9 }
    rest = rest - t.own_ns
  end
  rows[#rows + 1] = { name = "Lua and eager operators", calls = 1, seconds = rest / 1e9 }
  table.sort(rows, function(a, b)
    if a.seconds ~= b.seconds then
      return a.seconds > b.seconds
    end
    return a.name < b.name
  end)
  return rows
end

--- Begins a profile of all that runs from now on.
--- error: RuntimeError if one is being taken
function M.start()
  errors.check(not started, "RuntimeError", "profile.start(): a profile is being taken already")
  peak(core.get_num_threads()) -- before anything else wants the caches
  core.profile_begin()
  spans.begin()
  started = core.profile_clock()
end

--- Ends the profile.
--- error: RuntimeError if none is being taken
---@return lupine.Profile
function M.stop()
  errors.check(started, "RuntimeError", "profile.stop(): no profile is being taken; call "
    .. "profile.start() first")
  local now, run_ns = core.profile_clock()
  local begun = started
  started = nil
  local totals, list = spans.finish()
  local steps, runs = {}, 0
  for i, raw in ipairs(core.profile_end()) do
    steps[i] = digest(raw)
    runs = runs + raw.runs
  end
  return setmetatable({ seconds = (now - begun) / 1e9, begun = begun, steps = steps, spans = list,
    host = host_rows(now - begun, run_ns, runs, totals), peaks = peaks_of(steps) }, Profile)
end

--- A profile of one executor's runs so far; nil if none was taken.
---@param exec table
---@return lupine.Profile?
function M.of(exec)
  local raw = exec:profile()
  if not raw then
    return nil
  end
  local steps = { digest(raw) }
  return setmetatable({ seconds = raw.ns / 1e9, begun = raw.events[1] or 0, steps = steps,
    spans = {}, host = { { name = "executor", calls = raw.runs, seconds = raw.ns / 1e9 } },
    peaks = peaks_of(steps) }, Profile)
end

--- The tables as text.
---@param opts? {top: integer} rows of each table (default 20; 0: all)
---@return string
function Profile:text(opts)
  errors.check(opts == nil or type(opts) == "table", "TypeError",
    "Profile:text(opts): expected a table, got %s", check.describe(opts))
  for key in pairs(opts or {}) do
    errors.check(key == "top", "TypeError", "Profile:text(opts): unknown option '%s'; known is top",
      tostring(key))
  end
  local top = opts and opts.top or 20
  errors.check(math.type(top) == "integer" and top >= 0, "ValueError",
    "Profile:text(opts): top: expected an int >= 0, got %s", check.describe(top))
  return render.text(self, top)
end

function Profile:__tostring()
  return self:text()
end

--- Writes what happened when, in the Trace Event Format that chrome://tracing
--- and Perfetto show: a track for Lua, one for each executor's replica, one for
--- each thread of parallel sections.
--- error: RuntimeError if the file cannot be written
---@param path string
function Profile:write_trace(path)
  errors.check(type(path) == "string", "TypeError", "Profile:write_trace(path): expected a "
    .. "string, got %s", check.describe(path))
  require("lupine.profile.trace").write(self, path)
end

return M
