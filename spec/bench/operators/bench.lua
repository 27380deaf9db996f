--- Times single eager operators against PyTorch's: `make bench OPS=1`.
---     lupine spec/bench/operators/bench.lua [OPERATOR…]
--- Operators (list.lua) run at three sizes, and with their gradients, in two processes
--- that live at once and take turns, a slice of time each; the ratio, the peer's time
--- by ours, is the median over the pairs of slices. The results' magnitudes must
--- agree. Only ratios of one run are comparable.
---
--- Environment: BUILD, PEERS_PYTHON, PAIRS, SECONDS and CLOCK as spec/bench/bench.lua
--- has them; THREADS, one number; SIZES, a list. A name of an operator has `_` for a
--- blank. Writes BUILD/operators.tsv.
package.path = "./?.lua;" .. package.path

local core = require("lupine.core")
local list = require("spec.bench.operators.list")
local process = require("spec.bench.process")

local LUPINE = arg[-1]
local TOLERANCE = 2e-3
local GOAL = 0.8

local function setting(name, default)
  local text = os.getenv(name)
  return text and text ~= "" and text or default
end

local BUILD, THREADS = setting("BUILD", "build"), setting("THREADS", "2")
local PAIRS, SECONDS = tonumber(setting("PAIRS", "5")), tonumber(setting("SECONDS", "0.03"))
local FILE = BUILD .. "/operators.safetensors"

local function median(values)
  table.sort(values)
  return values[(#values + 1) // 2]
end

local function mean(rows, wanted)
  local sum, n = 0, 0
  for _, row in ipairs(rows) do
    if row.ratio and wanted(row) then
      sum, n = sum + math.log(row.ratio), n + 1
    end
  end
  return n > 0 and math.exp(sum / n) or 0 / 0, n
end

-- ---- one case -------------------------------------------------------------------

local function number(line, key)
  return line and tonumber(line:match("^" .. key .. " (%S+)"))
end

local function compare(row, ours, theirs)
  local grads = row.grad and table.concat(row.op.grad, ",") or "-"
  local answer = ours:ask(("case %s %s"):format(grads, row.op.lua))
  local peer_answer = theirs:ask(("case %s %s"):format(grads, row.op.python))
  local sum, peer_sum = number(answer, "sum"), number(peer_answer, "sum")
  if not sum or not peer_sum then
    row.why = sum and "peer " .. tostring(peer_answer) or tostring(answer)
    return
  end
  if not row.op.random and math.abs(sum - peer_sum) > TOLERANCE * math.max(peer_sum, 1e-3) then
    row.why = ("differs: %g, the peer's is %g"):format(sum, peer_sum)
  end
  local a, b, ratios = {}, {}, {}
  for i = 1, PAIRS do
    a[i], b[i] = ours:time(SECONDS), theirs:time(SECONDS)
    ratios[i] = b[i] / a[i]
  end
  row.us, row.peer_us, row.ratio = median(a) * 1e3, median(b) * 1e3, median(ratios)
end

local function rows_of(size, wanted)
  local rows = {}
  for _, op in ipairs(list.all) do
    local known = next(wanted) == nil or wanted[op.name:gsub(" ", "_")]
    if known and size <= (op.most or size) then
      rows[#rows + 1] = { op = op, size = size, grad = false }
      if #op.grad > 0 then
        rows[#rows + 1] = { op = op, size = size, grad = true }
      end
    end
  end
  return rows
end

-- ---- the table ------------------------------------------------------------------

local function line_of(row)
  local text = ("%-21s %8d  %-8s"):format(row.op.name, row.size, row.grad and "gradient" or "")
  if row.ratio then
    text = text .. (" %10.2f %10.2f %6.2f"):format(row.us, row.peer_us, row.ratio)
  end
  return row.why and text .. "  NOT COMPARABLE: " .. row.why or text
end

local function summary(rows)
  local function say(what, wanted)
    local value, n = mean(rows, wanted)
    local below = 0
    for _, row in ipairs(rows) do
      below = below + (row.ratio and wanted(row) and row.ratio < GOAL and 1 or 0)
    end
    print(("%-24s geometric mean %.2f of %d, %d below %g"):format(what, value, n, below, GOAL))
  end
  for _, size in ipairs(list.SIZES) do
    say(("%d elements"):format(size), function(row)
      return row.size == size and not row.grad
    end)
    say(("%d, with gradients"):format(size), function(row)
      return row.size == size and row.grad
    end)
  end
  say("all", function()
    return true
  end)
end

local function write(rows)
  local file = assert(io.open(BUILD .. "/operators.tsv", "w"))
  for _, row in ipairs(rows) do
    file:write(("%s\t%d\t%s\t%s\t%s\t%s\t%s\n"):format(row.op.name, row.size,
      row.grad and "gradient" or "", row.us or "", row.peer_us or "", row.ratio or "",
      row.why or ""))
  end
  file:close()
end

local function print_table(rows, library)
  table.sort(rows, function(a, b)
    return (a.ratio or -1) < (b.ratio or -1)
  end)
  print(("%s; %s thread(s), %d pairs of slices of %g s; against %s"):format(
    core.host.cpu().name, THREADS, PAIRS, SECONDS, library))
  print(("%-21s %8s  %-8s %10s %10s %6s"):format("operator", "elements", "", "ours us", "peer us",
    "ratio"))
  for _, row in ipairs(rows) do
    print(line_of(row))
  end
  summary(rows)
end

-- ---- the run --------------------------------------------------------------------

local function start()
  local python = process.read({ "sh", "spec/bench/peers/python.sh", BUILD })
  if not python or not python:match("%S") then
    error("bench: no Python with PyTorch is to be had (PEERS_PYTHON names one)", 0)
  end
  local ours = process.start({ LUPINE, "spec/bench/operators/ours.lua", THREADS }, THREADS)
  local theirs = process.start({ python, "spec/bench/peers/operators.py", THREADS }, THREADS)
  return assert(ours, "our side failed"), assert(theirs, "the peer failed")
end

local function measure(ours, theirs, wanted)
  local all = {}
  for size in setting("SIZES", table.concat(list.SIZES, " ")):gmatch("%d+") do
    size = math.tointeger(tonumber(size))
    assert(ours:ask(("make %d %s"):format(size, FILE)) == "made", "no tensors")
    for _, side in ipairs({ ours, theirs }) do
      local answer = side:ask(("pool %d %s"):format(size, FILE))
      assert(answer == "read", answer)
    end
    for _, row in ipairs(rows_of(size, wanted)) do
      compare(row, ours, theirs)
      all[#all + 1] = row
      io.stderr:write(line_of(row), "\n")
    end
  end
  return all
end

local wanted = {}
for _, name in ipairs(arg) do
  wanted[name] = true
end
local ours, theirs = start()
local rows = measure(ours, theirs, wanted)
os.remove(FILE)
print_table(rows, theirs.library)
write(rows)
