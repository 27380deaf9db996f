--- The schedule of a report as a trace of events (Chrome's JSON form, which Perfetto and
--- chrome://tracing open): a track for each IPU and each link, and one for the rows of the
--- schedule. Replicas work alike, so one is drawn; of the weight updates of a call, one.
---
--- Source: "Trace Event Format", the Chromium project; times are in microseconds.
local core = require("lupine.core")
local runs = require("lupine.report.runs")

local M = {}

-- Turns of long loops are left out beyond this number of events.
local MOST = 100000

local ROWS, IPUS, LINKS = 1, 2, 3 -- processes

-- ---- tracks --------------------------------------------------------------------------

local LINK_OF = {
  copy = function(e)
    return ("IPU %d to IPU %d"):format(e.ipu, e.to)
  end,
  host_in = function(e)
    return ("host to IPU %d"):format(e.ipu)
  end,
  host_out = function(e)
    return ("IPU %d to host"):format(e.ipu)
  end,
  load = function(e)
    return ("streaming memory to IPU %d"):format(e.ipu)
  end,
  store = function(e)
    return ("IPU %d to streaming memory"):format(e.ipu)
  end,
  collective = function(e)
    return ("IPU %d and its replicas"):format(e.ipu)
  end,
}

local function name_process(trace, pid, name)
  trace:add({ ph = "M", pid = pid, name = "process_name", args = { name = name } })
  trace:add({ ph = "M", pid = pid, name = "process_sort_index", args = { sort_index = pid } })
end

-- The number of a track, which is named when it is first asked for.
local function track(trace, pid, name, tid)
  local key = pid .. name
  if not trace.tids[key] then
    trace.n_tracks = trace.n_tracks + 1
    trace.tids[key] = tid or trace.n_tracks
    trace:add({ ph = "M", pid = pid, tid = trace.tids[key], name = "thread_name",
      args = { name = name } })
  end
  return trace.tids[key]
end

-- ---- events --------------------------------------------------------------------------

local function slice(trace, pid, tid, name, start, cycles, args)
  args.cycles = cycles
  trace:add({ ph = "X", pid = pid, tid = tid, name = name, ts = start * trace.us,
    dur = cycles * trace.us, args = args })
end

local function add_entry(trace, report, entry, start, number)
  start = start + entry.start
  local name = runs.name(entry, report)
  if name then
    local batch = entry.kind == "compute" and number - entry.offset or nil
    slice(trace, IPUS, track(trace, IPUS, "IPU " .. entry.ipu, entry.ipu + 1),
      batch and ("%s, micro-batch %d"):format(name, batch) or name, start, entry.cycles,
      { micro_batch = batch, stage = entry.stage, backward = entry.backward })
  else
    slice(trace, LINKS, track(trace, LINKS, LINK_OF[entry.kind](entry)), entry.kind, start,
      entry.cycles, { bytes = entry.bytes, beside_computing = entry.beside })
  end
end

local function add_row(trace, report, row, start, number)
  slice(trace, ROWS, track(trace, ROWS, "rows"), ("%s, turn %d"):format(row.kind, number), start,
    row.cycles, { compute = row.compute, exchange = row.exchange, sync = row.sync,
      copy = row.copy, host = row.host, streaming = row.streaming,
      collective = row.collective })
  for _, entry in ipairs(row.entries) do
    add_entry(trace, report, entry, start, number)
  end
end

-- ---- loops ---------------------------------------------------------------------------

local function rows_of(report, loop)
  return table.move(report.schedule, loop.first_row, loop.first_row + loop.rows - 1, 1, {})
end

local function cycles_of(rows)
  local sum = 0
  for _, row in ipairs(rows) do
    sum = sum + row.cycles
  end
  return sum
end

-- Turns of a loop that are drawn at its start and at its end.
local function shown(report, count)
  local entries = 0
  for _, row in ipairs(report.schedule) do
    entries = entries + 1 + #row.entries
  end
  local most = math.max(2, MOST // (entries + 1))
  if count <= most then
    return count, 0
  end
  return most - most // 2, most // 2
end

local function add_turns(trace, report, loop, at, from, to)
  local rows = rows_of(report, loop)
  for t = from, to do
    for _, row in ipairs(rows) do
      add_row(trace, report, row, at, row.first + t * loop.step)
      at = at + row.cycles
    end
  end
  return at
end

local function add_loop(trace, report, loop, at)
  local head, tail = shown(report, loop.count)
  at = add_turns(trace, report, loop, at, 0, head - 1)
  local left = loop.count - head - tail
  if left > 0 then
    local cycles = left * cycles_of(rows_of(report, loop))
    slice(trace, ROWS, track(trace, ROWS, "rows"), ("%d more turns like these"):format(left), at,
      cycles, {})
    at = at + cycles
  end
  return add_turns(trace, report, loop, at, loop.count - tail, loop.count - 1)
end

local Trace = {}
Trace.__index = Trace

function Trace:add(event)
  self.events[#self.events + 1] = core.json_encode(event)
end

--- The trace, one event a line.
---@param report lupine.Report
---@return string
function M.text(report)
  local trace = setmetatable({ events = {}, tids = {}, n_tracks = 1000,
    us = 1e6 / report.clock_hz }, Trace)
  name_process(trace, ROWS, ("schedule of one weight update (%s)"):format(report.strategy))
  name_process(trace, IPUS, ("IPUs of one of %d replicas, simulated"):format(report.replicas))
  name_process(trace, LINKS, "links")
  local at = 0
  for _, loop in ipairs(report.sequence) do
    at = add_loop(trace, report, loop, at)
  end
  return ('{"displayTimeUnit":"ns","otherData":{"chip":%s},"traceEvents":[\n%s\n]}\n'):format(
    core.json_encode(report.chip_name), table.concat(trace.events, ",\n"))
end

return M
