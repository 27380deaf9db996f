--- Times training against its peers: `make bench`.
---     lupine spec/bench/bench.lua [WORKLOAD…]
--- Every figure comes from a fresh process that warms up first. Ours and the
--- peer's alternate (A B A B …), so that a machine that is busy or hot for a
--- while disturbs both, and the ratio is taken pair by pair. Only figures of one
--- run are comparable. A row whose losses differ from the peer's is no row of
--- the same computation and is marked.
--- Environment: BUILD, PEERS_PYTHON, THREADS, PAIRS, SECONDS (a timed run).
package.path = "./?.lua;" .. package.path

local core = require("lupine.core")
local workloads = require("spec.bench.workloads")

local LUPINE = arg[-1]
local BUILD = os.getenv("BUILD") or "build"
local PEERS = { "eager" }
local TOLERANCE = 1e-3

local function count(name, default)
  local text = os.getenv(name)
  local n = tonumber(text ~= "" and text or default)
  if not n or n <= 0 then
    error(("bench: %s must be a positive number, not '%s'"):format(name, text), 0)
  end
  return math.tointeger(n) or n
end

local THREADS, PAIRS, SECONDS = count("THREADS", 2), count("PAIRS", 3), count("SECONDS", 1.5)

local function quote(s)
  return "'" .. s:gsub("'", "'\\''") .. "'"
end

-- Runs a command; what it printed, as {loss = {…}, ms, rss, library}, or nil.
local function measure(...)
  local words = table.pack(...)
  for i = 1, words.n do
    words[i] = quote(tostring(words[i]))
  end
  local pipe = assert(io.popen(("OMP_NUM_THREADS=%d "):format(THREADS)
    .. table.concat(words, " ")))
  local r = { loss = {} }
  for line in pipe:lines() do
    local key, value = line:match("^(%a+) (.*)$")
    if key == "loss" then
      r.loss[#r.loss + 1] = tonumber(value)
    elseif key then
      r[key] = tonumber(value) or value
    end
  end
  return pipe:close() and r.ms and r or nil
end

local function middle(list)
  table.sort(list)
  local n = #list
  return n % 2 == 1 and list[n // 2 + 1] or (list[n // 2] + list[n // 2 + 1]) / 2
end

local function field(runs, name)
  local out = {}
  for i, r in ipairs(runs) do
    out[i] = r[name]
  end
  return out
end

-- The largest difference of the losses of the first steps.
local function difference(a, b)
  local most = 0.0
  for i, v in ipairs(a.loss) do
    local d = math.abs(v - b.loss[i])
    most = d <= most and most or d -- not a number counts as large
  end
  return most
end

local function join(row, ours, theirs)
  row.ms, row.rss_mb = middle(field(ours, "ms")), middle(field(ours, "rss"))
  row.library = ours[1].library
  if #theirs == 0 then
    return row
  end
  local ratios = {}
  for i, r in ipairs(theirs) do
    ratios[i] = r.ms / ours[i].ms
  end
  row.ratio = middle(ratios) -- sorts
  row.ratio_min, row.ratio_max = ratios[1], ratios[#ratios]
  row.peer_ms, row.peer_rss_mb = middle(field(theirs, "ms")), middle(field(theirs, "rss"))
  row.peer_library = theirs[1].library
  row.loss_difference = difference(ours[1], theirs[1])
  row.comparable = row.loss_difference <= TOLERANCE
  return row
end

-- All pairs of one workload; nil and what failed otherwise.
local function compare(name, peer, python)
  local ours, theirs = {}, {}
  for i = 1, PAIRS do
    ours[i] = measure(LUPINE, "spec/bench/one.lua", name, THREADS, SECONDS)
    if not ours[i] then
      return nil, "our run failed"
    end
    if python then
      theirs[i] = measure(python, "spec/bench/peers.py", peer, name, THREADS, SECONDS)
      if not theirs[i] then
        return nil, "the peer's run failed"
      end
    end
  end
  local row = { workload = name, batch = workloads.all[name].batch, threads = THREADS,
    pairs = PAIRS, cpu = core.host.cpu().name, peer = python and peer or nil }
  return join(row, ours, theirs)
end

-- ---- output -------------------------------------------------------------------

local COLUMNS = { "workload", "batch", "threads", "pairs", "cpu", "library", "ms", "rss_mb",
  "peer", "peer_library", "peer_ms", "peer_rss_mb", "ratio", "ratio_min", "ratio_max",
  "loss_difference", "comparable" }

local function json_value(v)
  if type(v) == "string" then
    return '"' .. v:gsub('[%c"\\]', function(c)
      return ("\\u%04x"):format(c:byte())
    end) .. '"'
  elseif math.type(v) == "float" then
    return v == v and v < math.huge and ("%.6g"):format(v) or "null"
  end
  return tostring(v)
end

-- Written beside its place and moved there, so that a reader never sees half.
local function write_json(rows, path)
  local lines = {}
  for i, row in ipairs(rows) do
    local fields = {}
    for _, key in ipairs(COLUMNS) do
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

local function figure(ms)
  return ms and (ms < 0.1 and "%.5f" or ms < 10 and "%.3f" or "%.1f"):format(ms) or "-"
end

local LINE = "%-14s %9s %9s %11s %7s %15s %7s %7s  %s"

local function print_row(row)
  local spread = row.ratio and ("%.2f .. %.2f"):format(row.ratio_min, row.ratio_max) or "-"
  local ratio = row.ratio and ("%.2f"):format(row.ratio) or "-"
  local note = ""
  if row.comparable == false then
    note = ("NOT COMPARABLE: losses differ by %.3g"):format(row.loss_difference)
  end
  print((LINE:format(row.workload, figure(row.ms), figure(row.peer_ms),
    ("%.0f"):format(row.batch * 1e3 / row.ms), ratio, spread, ("%.0f"):format(row.rss_mb),
    row.peer_rss_mb and ("%.0f"):format(row.peer_rss_mb) or "-", note):gsub("%s+$", "")))
  io.stdout:flush()
end

local function peer_python()
  local pipe = assert(io.popen("sh spec/bench/peers.sh " .. quote(BUILD)))
  local path = pipe:read("l")
  if not pipe:close() then
    os.exit(1, true) -- the script has said why
  end
  if not path then
    print("No peer: no Python with PyTorch is to be had (PEERS_PYTHON names one). Ours only.")
  end
  return path
end

local function main(names)
  for _, name in ipairs(names) do
    if not workloads.all[name] then
      io.stderr:write(("bench: no workload '%s'; there are %s\n"):format(name,
        table.concat(workloads.order, ", ")))
      return false
    end
  end
  local python = peer_python()
  local rows, failed = {}, false
  print(("%s, %d threads, %d pairs"):format(core.host.cpu().name, THREADS, PAIRS))
  for _, peer in ipairs(PEERS) do
    if python then
      print(("Peer: %s. ms a step; ratio = peer / ours: median, least .. most"):format(peer))
    end
    print(LINE:format("workload", "ours ms", "peer ms", "samples/s", "ratio", "", "MB", "peer MB",
      ""))
    for _, name in ipairs(names) do
      local row, why = compare(name, peer, python)
      if row then
        rows[#rows + 1] = row
        print_row(row)
      else
        failed = true
        print(("%-14s FAILED: %s"):format(name, why))
      end
    end
  end
  write_json(rows, BUILD .. "/bench.json")
  return not failed
end

os.exit(main(#arg > 0 and { table.unpack(arg) } or workloads.order), true)
