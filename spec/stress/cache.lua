--- Processes that share a cache of executables: `build/lupine spec/stress/cache.lua
--- [SECONDS [PROCESSES]]` (600 and 8). Each compiles models of a few dozen shapes in
--- random order, checks what they compute, and now and then cuts an entry, writes
--- something else in its place or removes it; some processes are killed amid that and
--- others started. A value that differs, an error, or a lock that nobody holds and
--- that stays ends it with 1.
local core = require("lupine.core")
local files = require("spec.support.files")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local Line = nn.Module:extend("StressLine")

function Line:init(width, factor)
  self.fc, self.factor = nn.Linear(width, 3), factor
end

function Line:forward(x)
  return self.fc(x) * self.factor
end

-- ---- a process ----------------------------------------------------------------------

local function spoil(folder)
  local _, names = core.list_folder(folder)
  local name = names[math.random(math.max(1, #names))]
  local path = name and name:find("%.lupine$") and folder .. "/" .. name
  local ok, bytes = pcall(files.read, path or "")
  if not ok then
    return
  end
  local how = math.random(3)
  if how == 1 then
    os.remove(path)
  else -- in place, as no writer of ours does
    files.write(path, how == 2 and bytes:sub(1, math.random(0, #bytes)) or "return os.exit(3)")
  end
end

local function compile_one(folder)
  local width, factor = math.random(1, 12), math.random(2, 4)
  local model, x = Line(width, factor), torch.randn({ 2, width })
  local executor = poptorch.inferenceModel(model,
    poptorch.Options():enableExecutableCaching(folder))
  local got, want = executor(x), model(x)
  if not torch.allclose(got, want, 1e-5, 1e-6) then
    error(("width %d, factor %d: got %s, want %s"):format(width, factor, tostring(got),
      tostring(want)), 0)
  end
  executor:destroy()
end

local function work(folder, seconds, seed)
  math.randomseed(seed)
  poptorch.setLogLevel("ERR")
  local ends, n = core.host.clock() + seconds, 0
  while core.host.clock() < ends do
    compile_one(folder)
    n = n + 1
    if math.random(20) == 1 then
      spoil(folder)
    end
  end
  io.stdout:write(n, "\n")
end

-- ---- all of them --------------------------------------------------------------------

-- Starts processes again that are killed, every one after a few seconds.
local function command(folder, seconds, i)
  local round = math.min(5 + i, seconds)
  return ([[(end=$(($(date +%%s) + %d)); k=0
    while [ $(date +%%s) -lt $end ]; do
      k=$((k + 1))
      timeout -s KILL %d %s %s work %s %d $((%d * 1000 + k)) 2>>%s.log || [ $? = 137 ] || exit 1
    done) & pids="$pids $!"]]):format(seconds, i % 2 == 0 and round + 5 or math.max(1, round - 1),
    arg[-1], arg[0], folder, round, i, folder)
end

local function main(seconds, processes)
  local folder = files.unused()
  core.make_folder(folder)
  local lines = {}
  for i = 1, processes do
    lines[i] = command(folder, seconds, i)
  end
  local pipe = assert(io.popen(table.concat(lines, "\n")
    .. "\nfor p in $pids; do wait $p || echo failed; done"))
  local total, failed = 0, 0
  for line in pipe:lines() do
    total = total + (tonumber(line) or 0)
    failed = failed + (line == "failed" and 1 or 0)
  end
  pipe:close()
  poptorch.setLogLevel("ERR")
  compile_one(folder) -- no lock of a killed one is in the way
  local log = files.read(folder .. ".log"):gsub("Killed\n", "")
  io.stderr:write(log)
  os.execute(("rm -r %s %s.log"):format(folder, folder))
  print(("%d models compiled or loaded by %d processes, %d failed"):format(total, processes,
    failed))
  os.exit(failed == 0 and total > 0)
end

if arg[1] == "work" then
  work(arg[2], tonumber(arg[3]), tonumber(arg[4]))
else
  main(tonumber(arg[1]) or 600, tonumber(arg[2]) or 8)
end
