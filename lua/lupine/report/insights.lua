--- What stands out in a report, in words with figures: whether the program fits and what
--- takes the memory, where the time goes, what is waited for, which stage holds the others
--- up. Savings are simulated (lupine.plan.gains); where nothing has been, they are what the
--- report's own figures say would go if that one thing were not there.
local memory = require("lupine.report.memory")
local runs = require("lupine.report.runs")

local M = {}

---@class lupine.report.insight
---@field kind string "bad", "warn", "good" or "note"
---@field title string
---@field text string
---@field saves string? an estimate

-- Shares of a call's cycles, or of a tile, from which on something is worth telling.
local WORTH, FULL = 0.05, 0.9

local function percent(x)
  return ("%.1f %%"):format(100 * x)
end

local function mega(bytes)
  return ("%.1f MB"):format(bytes / 1e6)
end

local function add(out, kind, title, text, saves)
  out[#out + 1] = { kind = kind, title = title, text = text, saves = saves }
end

local function gain_text(gain)
  local option = gain.option and (" (%s)"):format(gain.option) or ""
  return ("Simulated: with %s%s a sample takes %s less time (%.4g samples/s, the fullest tile %s "
    .. "full%s)."):format(gain.text, option, percent(gain.saves), gain.samples_per_second,
    percent(gain.share), gain.fits and "" or ": it does not fit")
end

-- What the first of these changes that gains anything gives; else `bound`.
local function saves(report, hints, bound)
  for _, hint in ipairs(hints) do
    for _, gain in ipairs(report:gains()) do
      if gain.hint == hint then
        return gain_text(gain)
      end
    end
  end
  return bound
end

-- sum of f(row) over all turns of a call, of rows of `kinds` or of all.
local function over_rows(report, f, kinds)
  local sum = 0
  for row, times in runs.rows(report) do
    sum = sum + ((not kinds or kinds[row.kind]) and f(row) * times or 0)
  end
  return sum
end

-- ---- memory --------------------------------------------------------------------------

local function largest_category(m)
  local name, most = nil, -1
  for key, bytes in pairs(m.categories) do
    if bytes > most or bytes == most and key < name then
      name, most = key, bytes
    end
  end
  return name:gsub("_", " "), most
end

local function tiles(out, report)
  for ipu, m in memory.each(report) do
    local share, name, bytes = m.max_tile_including_gaps / m.tile_bytes, largest_category(m)
    local biggest = m.biggest[1]
    local text = ("Tile %d needs %d of %d bytes. Most of the IPU's memory is %s (%s)%s."):format(
      m.fullest_tile, m.max_tile_including_gaps, m.tile_bytes, name, mega(bytes),
      biggest and (", its largest tensor at the peak %s%s (%s)"):format(biggest.name,
        biggest.scope ~= "" and " of " .. biggest.scope or "", mega(biggest.bytes)) or "")
    if share > 1 then
      add(out, "bad", ("IPU %d is out of memory by %d bytes a tile"):format(ipu,
        m.max_tile_including_gaps - m.tile_bytes), text)
    elseif share > FULL then
      add(out, "warn", ("IPU %d is %s full"):format(ipu, percent(share)), text)
    end
  end
end

-- What else there can be too little of.
local SHORT = { code = "IPU %d has no room for its code", io_tiles = "IPU %d has too few I/O tiles",
  streaming = "There is too little streaming memory" }

local function overflows(out, report)
  for _, why in ipairs(memory.overflows(report)) do
    if SHORT[why.of] then
      add(out, "bad", SHORT[why.of]:format(why.ipu), why.text .. ".")
    end
  end
end

local function remedies(out, report)
  local lines = {}
  for i, remedy in ipairs(report:remedies()) do
    lines[i] = remedy.text:gsub("^%l", string.upper) .. "."
  end
  if #lines > 0 then
    add(out, "warn", "What would help it fit, simulated", table.concat(lines, "\n"))
  end
end

local function fits(out, report)
  local worst, at = 0, 0
  for ipu, m in memory.each(report) do
    local share = m.max_tile_including_gaps / m.tile_bytes
    if share > worst then
      worst, at = share, ipu
    end
  end
  if memory.fits(report) then
    add(out, "good", "The program fits", ("The fullest tile, of IPU %d, is %s full."):format(at,
      percent(worst)))
  end
end

-- ---- time ----------------------------------------------------------------------------

-- Cycles that a stage's runs take for a micro-batch.
local function of_stage(stage)
  return stage.forward_cycles + stage.backward_cycles
end

-- What a row's IPUs leave of its computing time, each IPU by itself; what rows take of a
-- call, by part.
local PARTS = { { "compute", "computing" }, { "exchange", "exchange between tiles" },
  { "sync", "waiting for all tiles" }, { "copy", "copies between IPUs" },
  { "host", "the host" }, { "streaming", "streaming memory" },
  { "collective", "sums over replicas" } }

local function idle_of(row, n)
  local busy = 0
  for _, entry in ipairs(row.entries) do
    busy = busy + ((entry.kind == "compute" or entry.kind == "update") and entry.cycles or 0)
  end
  return math.max(0, n * (row.compute + row.exchange + row.sync) - busy)
end

local function timeline(out, report)
  local parts, n = {}, report.ipus
  for _, part in ipairs(PARTS) do
    local cycles = over_rows(report, function(row)
      return row[part[1]]
    end)
    if cycles > 0 then
      parts[#parts + 1] = ("%s %s"):format(part[2], percent(cycles / report.cycles))
    end
  end
  local text = "Of a call: " .. table.concat(parts, ", ") .. "."
  local edges = { fill = true, flush = true }
  local idle, bubbles = over_rows(report, function(row)
    return idle_of(row, n)
  end), over_rows(report, function(row)
    return idle_of(row, n)
  end, edges)
  if n > 1 then
    text = ("%s The %d IPUs have nothing to do for %s of their time while the pipeline fills and "
      .. "empties, for %s while a slower IPU is waited for."):format(text, n,
      percent(bubbles / (n * report.cycles)), percent((idle - bubbles) / (n * report.cycles)))
  end
  add(out, "note", "Where the time goes", text)
end

-- Changes that save time and belong to nothing that stands out.
local function faster(out, report)
  local said, lines = {}, {}
  for _, insight in ipairs(out) do
    said[insight.saves or ""] = true
  end
  for _, gain in ipairs(report:gains()) do
    local text = gain_text(gain)
    if not said[text] then
      lines[#lines + 1] = text:gsub("^Simulated: w", "W")
    end
  end
  if #lines > 0 then
    add(out, "note", "What else would make it faster, simulated", table.concat(lines, "\n"))
  end
end

local function balance(out, report)
  local busy, slowest, total, n = {}, 0, 0, 0
  for _, stage in ipairs(report.stages) do
    busy[stage.ipu] = (busy[stage.ipu] or 0) + of_stage(stage)
  end
  for ipu, cycles in pairs(busy) do
    total, n = total + cycles, n + 1
    if not busy[slowest] or cycles > busy[slowest] or cycles == busy[slowest] and ipu < slowest then
      slowest = ipu
    end
  end
  local mean = n > 0 and total / n or 0
  if not report.pipelined or n < 2 or busy[slowest] - mean < WORTH * busy[slowest] then
    return
  end
  local saved = (busy[slowest] - mean) * report.micro_batches * report.loops
  add(out, "warn", ("IPU %d holds the others up"):format(slowest),
    ("Its stages take %d cycles a micro-batch, the mean of %d IPUs is %.0f: the others wait.")
      :format(busy[slowest], n, mean),
    saves(report, { "cuts" }, ("Equal stages would save %s of a call's cycles at most."):format(
      percent(saved / report.cycles))))
end

-- The steady row's cycles: what one micro-batch more takes.
local function steady(report)
  for _, row in ipairs(report.schedule) do
    if row.kind == "steady" then
      return row.cycles
    end
  end
  return nil
end

local function bubble(out, report)
  local edge = over_rows(report, function(row)
    return row.cycles
  end, { fill = true, flush = true })
  local share, more = edge / report.cycles, steady(report)
  if not report.pipelined or share < WORTH or report.micro_batches < 2 then
    return
  end
  local saved = more
    and 1 - (1 + more * report.micro_batches * report.loops / report.cycles) / 2
  add(out, share > 0.3 and "warn" or "note", "The pipeline fills and empties often",
    ("Filling and emptying take %s of a call: %d micro-batches for %d stages."):format(
      percent(share), report.micro_batches, #report.stages),
    saves(report, { "accumulation" }, saved and ("Twice the micro-batches an update would take "
      .. "%s of the time of a sample away."):format(percent(saved))))
end

-- What rows wait for, by the field that has it, and the changes that may help.
local WAITS = {
  { "host", "The host link is waited for", "inputs and outputs that nothing hides",
    "I/O tiles, larger device iterations or smaller inputs", { "io_tiles", "host" } },
  { "streaming", "Streaming memory is waited for", "loads and stores that nothing hides",
    "I/O tiles, or fewer tensors off the chip", { "io_tiles", "on_chip" } },
  { "copy", "Copies between IPUs take time", "tensors that go from stage to stage",
    "cuts where less is handed on", { "cuts" } },
  { "collective", "Replicas wait for one another", "sums over replicas",
    "more micro-batches an update", { "accumulation" } },
  { "sync", "Tiles wait for one another", "syncs around short compute sets",
    "larger micro-batches", {} },
  { "exchange", "Exchange between tiles takes time", "operands that are sent to their tiles",
    "larger micro-batches, or a larger proportion of memory", { "proportion" } },
}

local function waits(out, report)
  for _, w in ipairs(WAITS) do
    local share = over_rows(report, function(row)
      return row[w[1]]
    end) / report.cycles
    if share >= 2 * WORTH then
      add(out, share > 0.3 and "warn" or "note", w[2],
        ("%s of a call: %s. What helps: %s."):format(percent(share), w[3], w[4]),
        saves(report, w[5], ("At most %s of a call's cycles."):format(percent(share))))
    end
  end
end

local function recomputation(out, report)
  local again, all = 0, 0
  for _, stage in ipairs(report.stages) do
    again, all = again + stage.recompute_cycles, all + of_stage(stage)
  end
  if all > 0 and again / all >= WORTH then
    add(out, "note", "Activations are computed again",
      ("%s of the stages' cycles run forward operators a second time, to save memory."):format(
        percent(again / all)),
      saves(report, { "recompute_none" },
        "Where memory is left, recomputing less saves up to that."))
  end
end

local function operators(out, report)
  local all = 0
  for _, o in ipairs(report.operators) do
    all = all + o.cycles
  end
  local first = report.operators[1]
  if first and all > 0 and first.cycles / all > 0.25 then
    local rate = first.flops / first.cycles
    add(out, "note", ("%s takes %s of the operators' cycles"):format(first.name,
      percent(first.cycles / all)), ("%d executions, %.0f operations a cycle."):format(
      first.instances, rate))
  end
end

--- What stands out, most serious first.
---@param report lupine.Report
---@return lupine.report.insight[]
function M.of(report)
  local out = {}
  for _, look in ipairs({ tiles, overflows, remedies, timeline, balance, bubble, waits,
    recomputation, operators, fits, faster }) do
    look(out, report)
  end
  local rank, at = { bad = 1, warn = 2, note = 3, good = 4 }, {}
  for i, insight in ipairs(out) do
    at[insight] = i
  end
  table.sort(out, function(a, b)
    return rank[a.kind] < rank[b.kind] or a.kind == b.kind and at[a] < at[b]
  end)
  return out
end

--- The same as text, an indented paragraph each.
---@param report lupine.Report
---@return string
function M.text(report)
  local out = {}
  for _, i in ipairs(M.of(report)) do
    out[#out + 1] = ("  %s\n    %s\n"):format(i.title, (i.text:gsub("\n", "\n    ")))
      .. (i.saves and ("    %s\n"):format(i.saves) or "")
  end
  return table.concat(out)
end

return M
