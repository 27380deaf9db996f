--- What `make bench` prints and the file that it writes.
local M = {}

-- Fields of bench.json, in their order.
local FIELDS = { "workload", "batch", "threads", "precision", "pairs", "clock", "cpu", "library",
  "ms", "samples_s", "gflops", "peak_gflops", "copy_gbs", "peak_share", "floor_ms", "floor_share",
  "first_ms", "rss_mb", "peer", "peer_library", "peer_ms", "peer_first_ms", "peer_rss_mb", "tried",
  "ratio", "ratio_min", "ratio_max", "loss", "peer_loss", "loss_difference", "comparable" }

local function json_string(s)
  return '"' .. s:gsub('[%c"\\]', function(c)
    return ("\\u%04x"):format(c:byte())
  end) .. '"'
end

local function json_value(v)
  if type(v) == "string" then
    return json_string(v)
  elseif type(v) == "table" then
    local keys, out = {}, {}
    for key in pairs(v) do
      keys[#keys + 1] = key
    end
    table.sort(keys)
    for i, key in ipairs(keys) do
      out[i] = json_string(key) .. ": " .. json_value(v[key])
    end
    return "{" .. table.concat(out, ", ") .. "}"
  elseif math.type(v) == "float" then
    return v == v and math.abs(v) < math.huge and ("%.6g"):format(v) or "null"
  end
  return tostring(v)
end

--- Writes the rows beside their place and moves them there, so that a reader
--- never sees half.
---@param rows table[]
---@param path string
function M.write(rows, path)
  local lines = {}
  for i, row in ipairs(rows) do
    local fields = {}
    for _, key in ipairs(FIELDS) do
      if row[key] ~= nil then
        fields[#fields + 1] = ('"%s": %s'):format(key, json_value(row[key]))
      end
    end
    lines[i] = "  {" .. table.concat(fields, ", ") .. "}"
  end
  local file = assert(io.open(path .. ".new", "w"))
  assert(file:write("[\n", table.concat(lines, ",\n"), "\n]\n"))
  assert(file:close())
  assert(os.rename(path .. ".new", path))
end

local LINE = "%-19s %1s %9s %9s %7s %5s %6s  %-13s %9s %6s %14s %6s %6s  %s"

local function figure(ms)
  return ms and (ms < 0.1 and "%.5f" or ms < 10 and "%.3f" or "%.1f"):format(ms) or "-"
end

local function percent(share)
  return ("%.0f%%"):format(100 * share)
end

local function rounded(v)
  return v and ("%.0f"):format(v) or "-"
end

--- Prints what the figures rest on, and the columns' names.
function M.head(cpu, threads, limits, pairs_taken, seconds, low)
  print(("%s; %d pairs of slices of %g s%s"):format(cpu, pairs_taken, seconds,
    low and "; " .. low or ""))
  for _, n in ipairs(threads) do
    local l = limits[tostring(n)]
    print(("%d thread%s: %.0f GFLOP/s of fused multiply-adds; copies, GB/s: %.1f of 1 MB, "
      .. "%.1f of 8 MB, %.1f of 64 MB, %.1f of 512 MB"):format(n, n > 1 and "s" or "", l.fma,
      l.copy_1, l.copy_8, l.copy_64, l.copy_512))
  end
  print("ms a step; peak, floor: shares reached; ratio = best peer / ours: median, least .. most;")
  print(low and "MB: most resident; loss: after 50 steps, and the share by which both differ"
    or "MB: most resident; loss: after 10 steps, and how far apart the first 10 are at most")
  print(LINE:format("workload", "T", "ours ms", "samples/s", "GF/s", "peak", "floor", "best peer",
    "peer ms", "ratio", "", "MB", "peer", "loss"))
end

---@param row table as written to bench.json
function M.row(row)
  local spread, ratio, loss = "-", "-", ""
  if row.ratio then
    spread = ("%.2f .. %.2f"):format(row.ratio_min, row.ratio_max)
    ratio = ("%.2f"):format(row.ratio)
    loss = ("%.5f +-%.1g%s"):format(row.loss, row.loss_difference,
      row.comparable and "" or " NOT COMPARABLE")
  end
  local known = row.gflops ~= nil
  local gflops = known and row.gflops < 10 and ("%.2f"):format(row.gflops) or rounded(row.gflops)
  print((LINE:format(row.workload, row.threads, figure(row.ms), rounded(row.samples_s), gflops,
    known and percent(row.peak_share) or "-", known and percent(row.floor_share) or "-",
    row.peer or "-", figure(row.peer_ms), ratio, spread, rounded(row.rss_mb),
    rounded(row.peer_rss_mb), loss):gsub("%s+$", "")))
  io.stdout:flush()
end

--- Prints the geometric mean of the ratios.
---@param rows table[]
function M.foot(rows)
  local sum, n, below = 0.0, 0, 0
  for _, row in ipairs(rows) do
    if row.ratio then
      sum, n = sum + math.log(row.ratio), n + 1
      below = below + (row.ratio < 1 and 1 or 0)
    end
  end
  if n > 1 then
    print(("geometric mean of %d ratios %.2f; below 1: %d"):format(n, math.exp(sum / n), below))
  end
end

return M
