--- Times training steps against the peers: `make bench`.
---     lupine spec/bench/bench.lua [WORKLOAD…]
--- Both sides start from the same weights and data, written once a workload, and
--- compute ten steps, whose losses must agree, else the row is marked as not
--- comparable; in low precision fifty, the last of which agree within 2 % (of itself, or
--- of a tenth of the first where it fell below that). Each way in which the peer can run
--- is tried; the fastest is the peer. Then both live at once and take turns (A B A B …),
--- a slice of time each, so that a machine that is busy or hot for a while disturbs both;
--- the ratio is taken pair by pair. Only figures of one run are comparable.
---
--- Environment: BUILD, PEERS_PYTHON; THREADS, a list ("1 2"); PAIRS; SECONDS, of a
--- slice; PEERS, the peers' ways to try ("eager fused"; default: all but compile);
--- COMPILE=1 tries torch.compile too, which takes minutes; MORE=1 takes the second
--- set of workloads, where COMPILE=0 leaves it out; EAGER=1 compares a
--- plain script of ours with PyTorch's eager mode, nothing compiled; STEP=1 takes
--- lupine.compile's training step in place of poptorch's; PRECISION=half takes
--- poptorch's mixed way (model and inputs half, gradients and first moments too,
--- a loss scaling), bf16 autocast in bfloat16, both against the peers' bfloat16, or,
--- of PEERS=float32, against our own float32; CLOCK=cpu compares processor
--- time, for a machine that others use.
package.path = "./?.lua;" .. package.path

local core = require("lupine.core")
local process = require("spec.bench.process")
local table_of = require("spec.bench.table")
local workloads = require("spec.bench.workloads")

local LUPINE = arg[-1]
local TOLERANCE, LOW_TOLERANCE = 1e-3, 0.02

local function setting(name, default)
  local text = os.getenv(name)
  return text and text ~= "" and text or default
end

local function count(name, text)
  local n = tonumber(text)
  if not n or n <= 0 then
    error(("bench: %s must be a positive number, not '%s'"):format(name, text), 0)
  end
  return math.tointeger(n) or n
end

local MORE = setting("MORE") == "1"
local COMPILE = setting("COMPILE", MORE and "1" or "0") == "1"
local BUILD, EAGER = setting("BUILD", "build"), setting("EAGER") == "1"
local WAY = EAGER and "eager" or setting("STEP") == "1" and "step" or "compiled"
local PRECISION = setting("PRECISION")
if PRECISION and PRECISION ~= "half" and PRECISION ~= "bf16" then
  error(("bench: PRECISION must be half or bf16, not '%s'"):format(PRECISION), 0)
elseif PRECISION == "half" and WAY ~= "compiled" then
  error("bench: PRECISION=half goes with neither EAGER nor STEP", 0)
end
local PAIRS, SECONDS = count("PAIRS", setting("PAIRS", "7")), count("SECONDS",
  setting("SECONDS", "1"))
if math.type(PAIRS) ~= "integer" then
  error(("bench: PAIRS must be a whole number, not '%s'"):format(PAIRS), 0)
end

local function middle(list)
  table.sort(list)
  local n = #list
  return n % 2 == 1 and list[n // 2 + 1] or (list[n // 2] + list[n // 2 + 1]) / 2
end

-- Ways of the peer that are packages of their own.
local RUNTIMES = { onnxruntime = true, openvino = true }

-- ---- the two sides --------------------------------------------------------------

local function start_ours(name, threads, file)
  return process.start({ LUPINE, "spec/bench/one.lua", name, threads, file, WAY }, threads)
end

local function start_peer(python, way, name, threads, file)
  if way == "float32" then
    return process.start({ "env", "PRECISION=float32", LUPINE, "spec/bench/one.lua", name, threads,
      file, WAY }, threads)
  end
  local script = way == "jax" and "jax_jit" or RUNTIMES[way] and "runtimes" or "pytorch"
  return process.start({ python, ("spec/bench/peers/%s.py"):format(script), name, threads, file,
    way ~= "jax" and way or nil }, threads)
end

-- The ways that are asked for and that the workload and this Python have.
local function ways_of(w, has)
  local wanted = EAGER and "eager" or setting("PEERS")
  local all, out = { table.unpack(w.peers) }, {}
  if COMPILE then
    all[#all + 1] = "compile"
  end
  if PRECISION and wanted == "float32" then
    return { wanted }
  end
  for _, way in ipairs(all) do
    local asked = not wanted or (" " .. wanted .. " "):find(" " .. way .. " ", 1, true)
    if asked and (way ~= "jax" and not RUNTIMES[way] or has[way]) then
      out[#out + 1] = way
    end
  end
  return out
end

-- Tries every way; the fastest and what each took, or nil if none ran.
local function fastest(peer, name, threads, file)
  local tried, best = {}, nil
  for _, way in ipairs(ways_of(workloads.all[name], peer.has)) do
    local side = start_peer(peer.python, way, name, threads, file)
    tried[way] = side and side:time(SECONDS)
    if side then
      side:finish()
    end
    if tried[way] and (not best or tried[way] < tried[best]) then
      best = way
    end
  end
  return best, tried
end

-- The largest difference of the losses of the first steps; in low precision that of
-- the last, as a share of it or of a tenth of the first.
local function difference(a, b)
  if PRECISION then
    local last = b.loss[#b.loss]
    return math.abs(a.loss[#a.loss] - last) / math.max(math.abs(last), math.abs(b.loss[1]) / 10)
  end
  local most = 0.0
  for i, v in ipairs(a.loss) do
    local d = math.abs(v - (b.loss[i] or math.huge))
    most = d <= most and most or d -- not a number counts as large
  end
  return most
end

-- Times both in turn; false if one fails.
local function take_turns(row, ours, theirs)
  local ms, peer_ms, ratios = {}, {}, {}
  for i = 1, PAIRS do
    ms[i] = ours:time(SECONDS)
    peer_ms[i] = theirs and theirs:time(SECONDS)
    if not ms[i] or theirs and not peer_ms[i] then
      return false
    end
    ratios[i] = theirs and peer_ms[i] / ms[i] or nil
  end
  row.ms = middle(ms)
  if theirs then
    row.ratio, row.peer_ms = middle(ratios), middle(peer_ms)
    row.ratio_min, row.ratio_max = ratios[1], ratios[#ratios]
  end
  return true
end

-- GB/s of the largest copy measured (MB) that is no larger than so many bytes.
local function copy_rate(limits, bytes)
  local best
  for _, mb in ipairs({ 1, 8, 64, 512 }) do
    if not best or mb * 2 ^ 20 <= bytes then
      best = limits["copy_" .. mb]
    end
  end
  return best
end

-- What is known of the step and the machine beside the times.
local function complete(row, w, work, limits)
  row.samples_s = w.batch * 1e3 / row.ms
  if not work.operations then
    return row
  end
  row.gflops = work.operations / row.ms / 1e6
  row.peak_gflops, row.copy_gbs = limits.fma, copy_rate(limits, work.bytes)
  row.peak_share = row.gflops / limits.fma
  row.floor_ms = work.least / limits.fma / 1e6 + work.bytes / row.copy_gbs / 1e6
  row.floor_share = row.floor_ms / row.ms
  return row
end

local function compare(name, threads, peer, work, limits)
  local w = workloads.all[name]
  local row = { workload = name, batch = w.batch, threads = threads, pairs = PAIRS,
    precision = PRECISION or "float32", cpu = core.host.cpu().name,
    clock = setting("CLOCK", "wall") }
  local theirs
  if peer.python then
    row.peer, row.tried = fastest(peer, name, threads, work.file)
    theirs = row.peer and start_peer(peer.python, row.peer, name, threads, work.file)
    if not theirs then
      return nil, "no peer ran"
    end
  end
  local ours = start_ours(name, threads, work.file)
  local done = ours and take_turns(row, ours, theirs)
  for _, side in ipairs({ ours or nil, theirs }) do
    side:finish()
  end
  if not done then
    return nil, "a run failed"
  end
  row.library, row.first_ms, row.rss_mb = ours.library, ours.first, ours.rss
  if theirs then
    row.peer_library, row.peer_first_ms, row.peer_rss_mb =
      theirs.library, theirs.first, theirs.rss
    row.loss, row.peer_loss = ours.loss[#ours.loss], theirs.loss[#theirs.loss]
    row.loss_difference = difference(ours, theirs)
    row.comparable = row.loss_difference
      <= (PRECISION and LOW_TOLERANCE or w.tolerance or TOLERANCE)
  end
  return complete(row, w, work, limits)
end

-- ---- the run ----------------------------------------------------------------------

local function peer_python()
  local line = process.read({ "sh", "spec/bench/peers/python.sh", BUILD })
  if not line then
    os.exit(1, true) -- the script has said why
  end
  local path = line:match("%S.*")
  if not path then
    print("No peer: no Python with PyTorch is to be had (PEERS_PYTHON names one). Ours only.")
  end
  local found = path and process.read({ path, "-c", "import importlib.util as u\n"
    .. "print(*(n for n in ('jax', 'onnxruntime', 'openvino') if u.find_spec(n)))" })
  local has = {}
  for name in (found or ""):gmatch("%S+") do
    has[name] = true
  end
  return { python = path, has = has }
end

local function measure_limits(threads)
  local limits = process.values({ BUILD .. "/tools/peak", threads })
  if not limits then
    error("bench: build/tools/peak failed", 0)
  end
  return limits
end

-- Weights and data of a workload, in a file both sides read.
local function make_work(name)
  local file = BUILD .. "/bench.safetensors"
  local work = process.values({ LUPINE, "spec/bench/one.lua", name, 1, file, "make" })
  if work then
    work.file = file
  end
  return work
end

local function check_names(names)
  for _, name in ipairs(names) do
    if not workloads.all[name] then
      io.stderr:write(("bench: no workload '%s'; there are %s, %s\n"):format(name,
        table.concat(workloads.order, ", "), table.concat(workloads.more, ", ")))
      return false
    end
  end
  return true
end

local function main(names)
  if not check_names(names) then
    return false
  end
  local threads, limits = {}, {}
  for word in setting("THREADS", "1 2"):gmatch("%S+") do
    threads[#threads + 1] = count("THREADS", word)
    limits[word] = measure_limits(word)
  end
  local peer, rows, failed = peer_python(), {}, false
  table_of.head(core.host.cpu().name, threads, limits, PAIRS, SECONDS, PRECISION)
  for _, name in ipairs(names) do
    local work = make_work(name)
    for _, n in ipairs(threads) do
      local row, why
      if work then
        row, why = compare(name, n, peer, work, limits[tostring(n)])
      end
      if row then
        rows[#rows + 1] = row
        table_of.row(row)
        table_of.write(rows, BUILD .. "/bench.json")
      else
        failed = true
        print(("%-14s FAILED: %s"):format(name, why or "no weights"))
      end
      failed = failed or row and row.comparable == false
    end
  end
  table_of.foot(rows)
  os.remove(BUILD .. "/bench.safetensors")
  return not failed
end

local default = MORE and workloads.more or workloads.order
os.exit(main(#arg > 0 and { table.unpack(arg) } or default), true)
