--- A report as text, in the layout of Poplar's profile summary: target, graph, memory by
--- region, data type and tile, vertices, execution; then what Poplar has not: stages, the
--- schedule, operators. All of it follows from the report's fields (lupine.report.fields).
---
--- Source: PopART user guide, profiling; Poplar user guide, profile summary.
local check = require("lupine.base.check")
local memory = require("lupine.report.memory")
local runs = require("lupine.report.runs")
local tables = require("lupine.base.tables")

local M = {}

local grouped = check.grouped

local function add(out, depth, fmt, ...)
  out[#out + 1] = ("  "):rep(depth) .. fmt:format(...)
end

-- A label with its value at a column.
local function field(out, depth, label, value, unit)
  local head = ("  "):rep(depth) .. label .. ":"
  local text = type(value) == "string" and value or grouped(value)
  out[#out + 1] = ("%-58s %15s%s"):format(head, text, unit and " " .. unit or "")
end

-- ---- target -----------------------------------------------------------------------------

local function target(out, r)
  local ipus, tile = r.ipus * r.replicas, memory.tile_bytes(r)
  local function decimal(x, unit)
    return ("%.1f"):format(x):gsub("^(%d+)", function(whole)
      return grouped(math.tointeger(tonumber(whole)))
    end), unit
  end
  add(out, 0, "Target:")
  field(out, 1, "Type", r.chip_name .. ", simulated")
  field(out, 1, "Number of IPUs", ipus)
  field(out, 1, "Tiles per IPU", r.tiles)
  if r.io_tiles > 0 then
    field(out, 1, "Tiles per IPU set aside for I/O", r.io_tiles)
  end
  field(out, 1, "Total Tiles", r.tiles * ipus)
  field(out, 1, "Memory Per-Tile", decimal(tile / 1024, "kB"))
  field(out, 1, "Total Memory", decimal(tile * r.tiles * ipus / 2 ^ 20, "MB"))
  field(out, 1, "Clock Speed (approx)", decimal(r.clock_hz / 1e6, "MHz"))
  field(out, 1, "Number of Replicas", r.replicas)
  field(out, 1, "IPUs per Replica", r.ipus)
  field(out, 1, "Tiles per Replica", r.tiles * r.ipus)
  field(out, 1, "Memory per Replica", decimal(tile * r.tiles * r.ipus / 2 ^ 20, "MB"))
  field(out, 1, "Execution Strategy", r.strategy)
  for _, kind in ipairs(tables.keys(r.on_demand or {})) do
    if r.on_demand[kind] == 1 and kind ~= "optimizer" then
      field(out, 1, "Not moved ahead of its phase", kind)
    end
  end
end

local function graph(out, r)
  add(out, 0, "")
  add(out, 0, "Graph:")
  field(out, 1, "Number of vertices", r.vertices)
  field(out, 1, "Number of edges", r.edges)
  field(out, 1, "Number of variables", r.tensors)
  field(out, 1, "Number of compute sets", r.compute_sets)
end

-- ---- memory -----------------------------------------------------------------------------

-- Poplar's data types, in its order, and the categories that are of each. Constants are a
-- part of the buffers, pointers and scalars of vertices are listed apart.
local TYPES = {
  { "Variables", { "weights", "optimizer_state", "accumulators", "buffers", "stash",
    "activations", "temporary" } },
  { "Constants", {} },
  { "Host Exchange Packet Headers", {} },
  { "Global Exchange Packet Headers", {} },
  { "Stack", { "stack" } },
  { "Vertex Instances", { "vertex_state" } },
  { "Copy Descriptors", {} },
  { "VectorList Descriptors", {} },
  { "Vertex Field Data", {} },
  { "Control Table", {} },
  { "Control Code", { "control_code" } },
  { "Vertex Code", { "vertex_code" } },
  { "Internal Exchange Code", { "exchange_code" } },
  { "Host Exchange Code", { "host_exchange_code" } },
  { "Global Exchange Code", { "global_exchange_code" } },
  { "Instrumentation Results", {} },
  { "Shared Code Storage", {} },
  { "Shared Data Storage", {} },
}

--- Bytes over all IPUs of a replica by Poplar's data types, in order: {name, bytes}.
---@param r lupine.Report
---@return {[1]: string, [2]: integer}[]
function M.data_types(r)
  local out, at = {}, {}
  for i, row in ipairs(TYPES) do
    out[i] = { row[1], 0 }
    at[row[1]] = out[i]
    for _, category in ipairs(row[2]) do
      for _, m in memory.each(r) do
        out[i][2] = out[i][2] + m.categories[category]
      end
    end
  end
  local pointers, constants = 0, 0
  for _, v in ipairs(r.vertex_types) do
    pointers = pointers + v.edge_bytes
  end
  for _, m in memory.each(r) do
    constants = constants + m.constants
  end
  at["Variables"][2] = at["Variables"][2] - constants
  at["Constants"][2] = constants
  -- what a vertex is called by is its instance, the rest its fields
  at["Vertex Field Data"][2] = pointers
  at["Vertex Instances"][2] = at["Vertex Instances"][2] - pointers
  return out
end

-- Bytes of all tiles with gaps, and what is beyond a tile's memory; {bytes, tiles} of each
-- class without.
local function tiles_of(r)
  local gaps, over, classes, full = 0, 0, {}, 0
  for _, m in memory.each(r) do
    for k, bytes in ipairs(m.tiles) do
      local n = k * r.tiles // #m.tiles - (k - 1) * r.tiles // #m.tiles
      gaps, over = gaps + n * bytes, over + n * math.max(0, bytes - m.tile_bytes)
      full = full + (bytes > m.tile_bytes and n or 0)
      classes[#classes + 1] = { select(2, memory.of_tile(m, k)), n }
    end
  end
  return gaps, over, classes, full
end

local STARS = 40

local function histogram(out, classes)
  local low, high = math.huge, 0
  for _, c in ipairs(classes) do
    low, high = math.min(low, c[1]), math.max(high, c[1])
  end
  low, high = low // 1024, high // 1024
  local step, counts, most = math.max(1, -(-(high - low + 1) // 10)), {}, 0
  for _, c in ipairs(classes) do
    local k = (c[1] // 1024 - low) // step
    counts[k] = (counts[k] or 0) + c[2]
    most = math.max(most, counts[k])
  end
  add(out, 2, "%16s %-40s %s", "Range (KB)", "Histogram (Excluding Gaps)", "Count (tiles)")
  for k = 0, (high - low) // step do
    local n = counts[k] or 0
    add(out, 2, "%7d - %6d %-40s %13s", low + k * step, low + (k + 1) * step,
      ("*"):rep(n > 0 and math.max(1, n * STARS // most) or 0), grouped(n))
  end
end

local function most(out, r, label, name)
  local bytes, tile = -1, 0
  for ipu, m in memory.each(r) do
    if m[name] > bytes then
      bytes, tile = m[name], ipu * r.tiles + m.fullest_tile
    end
  end
  add(out, 2, "Maximum (%s): %s (%.1f K) on tile %s", label, grouped(bytes), bytes / 1024,
    grouped(tile))
end

local function vertex_data(out, r)
  local bytes, pointers, list = 0, 0, {}
  for i, v in ipairs(r.vertex_types) do
    bytes, pointers, list[i] = bytes + v.bytes, pointers + v.edge_bytes, v
  end
  table.sort(list, function(a, b)
    return a.bytes > b.bytes or a.bytes == b.bytes and a.name < b.name
  end)
  add(out, 3, "Vertex Data (%s B):", grouped(bytes))
  add(out, 4, "By Category:")
  field(out, 5, "Internal vertex state", bytes - pointers, "B")
  field(out, 5, "Edge pointers", pointers, "B")
  for _, name in ipairs({ "Copy pointers", "Padding", "Descriptors" }) do
    field(out, 5, name, 0, "B")
  end
  add(out, 4, "By Type:")
  for _, v in ipairs(list) do
    field(out, 5, v.name, v.bytes, "B")
  end
end

local function used(out, r)
  local gaps, over, classes, full = tiles_of(r)
  local interleaved, all = 0, 0
  for _, m in memory.each(r) do
    interleaved, all = interleaved + m.interleaved, all + m.always_live + m.not_always_live
  end
  interleaved = math.min(interleaved, all)
  add(out, 0, "")
  add(out, 0, "Memory Usage:")
  add(out, 1, "Total:")
  field(out, 2, "Including Gaps", math.max(gaps, all), "B")
  add(out, 2, "Excluding Gaps:")
  add(out, 3, "By Memory Region:")
  field(out, 4, "Non-interleaved", all - interleaved, "B")
  field(out, 4, "Interleaved", interleaved, "B")
  field(out, 4, "Overflowed", over, "B")
  field(out, 3, "Total", all, "B")
  add(out, 3, "By Data Type:")
  for _, row in ipairs(M.data_types(r)) do
    field(out, 4, row[1], row[2], "B")
  end
  vertex_data(out, r)
  add(out, 1, "By Tile (Excluding Gaps):")
  histogram(out, classes)
  most(out, r, "Including Gaps", "max_tile_including_gaps")
  most(out, r, "Excluding Gaps", "max_tile")
  add(out, 2, "%d tile(s) out of memory", full)
end

-- By our categories, IPU by IPU.
local function by_ipu(out, r)
  for ipu, m in memory.each(r) do
    add(out, 1, "IPU %d:", ipu)
    local names = {}
    for name in pairs(m.categories) do
      names[#names + 1] = name
    end
    table.sort(names, function(a, b)
      local x, y = m.categories[a], m.categories[b]
      return x > y or x == y and a < b
    end)
    for _, name in ipairs(names) do
      if m.categories[name] > 0 then
        field(out, 2, name, m.categories[name], "B")
      end
    end
    field(out, 2, "Always live", m.always_live, "B")
    field(out, 2, "Not always live, peak", m.not_always_live, "B")
    field(out, 2, "Fullest tile with gaps", m.max_tile_including_gaps,
      ("B (%.1f %% of a tile)"):format(100 * m.max_tile_including_gaps / m.tile_bytes))
    if (m.io or 0) > 0 then -- older reports have none
      field(out, 2, "On their way on I/O tiles", m.io, "B")
    end
    if m.off_chip > 0 then
      field(out, 2, "In streaming memory", m.off_chip, "B")
    end
  end
end

-- ---- execution --------------------------------------------------------------------------

local function programs(out, r)
  local names, times = {}, {}
  for row, count in runs.rows(r) do
    for _, entry in ipairs(row.entries) do
      local name = runs.name(entry)
      if name then
        names[#names + 1] = not times[name] and name or nil
        times[name] = (times[name] or 0) + count
      end
    end
  end
  add(out, 1, "Programs executed:")
  for _, name in ipairs(names) do
    add(out, 2, "%s x %s", name, grouped(times[name]))
  end
end

local function share(out, r, label, cycles)
  add(out, 1, "%s: %s (%.1f%% of total)", label, grouped(cycles),
    r.cycles > 0 and 100 * cycles / r.cycles or 0)
end

local function execution(out, r)
  local t = { exchange = 0, sync = 0, copy = 0, collective = 0, host = 0, streaming = 0,
    compute = 0 }
  for row, count in runs.rows(r) do
    for name in pairs(t) do
      t[name] = t[name] + count * row[name]
    end
  end
  add(out, 0, "")
  add(out, 0, "Execution:")
  programs(out, r)
  add(out, 1, "Total cycles: %s (approx %.1f microseconds)", grouped(r.cycles), r.seconds * 1e6)
  share(out, r, "Tile average compute cycles (including idle threads)", r.tile_compute)
  share(out, r, "Tile average compute cycles (excluding idle threads)", r.tile_busy)
  share(out, r, "Compute cycles of the slowest IPU", t.compute)
  share(out, r, "Tile average IPU exchange cycles", t.exchange)
  share(out, r, "Tile average global exchange cycles", t.copy + t.collective)
  share(out, r, "Tile average host exchange cycles", t.host)
  share(out, r, "Tile average streaming memory cycles", t.streaming)
  share(out, r, "Tile average sync cycles", t.sync)
  add(out, 1, "Samples: %s (%.1f samples/s)", grouped(r.samples), r.samples_per_second)
  add(out, 1, "IPUs busy during the loop: %.1f%%", 100 * r.pipeline_efficiency)
  if r.wall_efficiency then -- reports of before have none
    add(out, 1, "IPUs usefully busy, of all time: %.1f%%", 100 * r.wall_efficiency)
  end
  add(out, 1, "Cycles by vertex type:")
  for _, v in ipairs(r.vertex_types) do
    add(out, 2, "%s (%s instances): %s", v.name, grouped(v.vertices), grouped(v.cycles))
  end
end

local function stages(out, r)
  add(out, 0, "")
  add(out, 0, "Cycles by stage:")
  add(out, 1, "%-8s %-6s %16s %16s  %s", "Stage", "IPU", "forward", "backward", "block")
  for _, s in ipairs(r.stages) do
    add(out, 1, "%-8d %-6d %16s %16s  %s%s", s.stage, s.ipu, grouped(s.forward_cycles),
      grouped(s.backward_cycles), s.block, s.recomputed and " (recomputed)" or "")
  end
  add(out, 0, "")
  add(out, 0, "Schedule:")
  for _, row in ipairs(r.schedule) do
    add(out, 1, "%-8s x %-8d %20s cycles", row.kind, row.count, grouped(row.cycles))
  end
  add(out, 0, "")
  add(out, 0, "Cycles by operator type:")
  add(out, 1, "%-28s %14s %20s", "Operator", "instances", "cycles")
  for _, o in ipairs(r.operators) do
    if o.cycles > 0 then
      add(out, 1, "%-28s %14s %20s", o.name, grouped(o.instances), grouped(o.cycles))
    end
  end
end

-- ---- further sections --------------------------------------------------------------------

-- The steps of an operator: exchange, sync, and tiles that execute its vertices.
local function operator_steps(out, r, node)
  local name = runs.title(node.scope, node.operator)
  if node.exchange > 0 then
    add(out, 3, "DoExchange: %s: %s cycles", name, grouped(node.exchange))
  end
  if node.sync > 0 then
    add(out, 3, "Sync: %s cycles", grouped(node.sync))
  end
  if node.compute > 0 then
    local cycles = 0
    for _, of in pairs(node.vertex_cycles) do
      cycles = cycles + of
    end
    add(out, 3, "OnTileExecute %s: %s cycles, %s active tiles, tile balance %.1f%%", name,
      grouped(node.compute), grouped(node.tiles), 100 * cycles / (node.compute * r.tiles))
  end
end

--- The steps of one turn of each row, in order.
---@param r lupine.Report
---@return string
function M.steps(r)
  local out, operators = { "Execution steps:" }, runs.operators(r)
  for row, count in runs.rows(r) do
    add(out, 1, "%s (%s times):", row.kind, grouped(count))
    for _, entry in ipairs(row.entries) do
      local name = runs.name(entry)
      if name then
        add(out, 2, "IPU %d, %s:", entry.ipu, name)
        for _, node in ipairs(operators(entry)) do
          operator_steps(out, r, node)
        end
      else
        add(out, 2, "%s: IPU %d, %s bytes, %s cycles", runs.move(entry) or entry.kind, entry.ipu,
          grouped(entry.bytes), grouped(entry.cycles))
      end
    end
  end
  return table.concat(out, "\n") .. "\n"
end

--- What is not always live, IPU by IPU, the largest first.
---@param r lupine.Report
---@return string
function M.storage(r)
  local out, live = { "Variable storage liveness:" }, r:liveness().ipus
  for ipu in memory.each(r) do
    add(out, 1, "IPU %d:", ipu)
    local spans = table.move(live[ipu].spans, 1, #live[ipu].spans, 1, {})
    table.sort(spans, function(a, b)
      return a.bytes > b.bytes or a.bytes == b.bytes and a.from < b.from
    end)
    for _, s in ipairs(spans) do
      add(out, 2, "%s: %s bytes, steps %d to %d", runs.title(s.scope, s.name),
        grouped(s.bytes), s.from, s.to)
    end
  end
  return table.concat(out, "\n") .. "\n"
end

--- The summary.
---@param r lupine.Report
---@return string
function M.text(r)
  local out = {}
  target(out, r)
  graph(out, r)
  used(out, r)
  by_ipu(out, r)
  execution(out, r)
  stages(out, r)
  return table.concat(out, "\n") .. "\n"
end

return M
