--- Saves of checkpoints that are killed at every system call, that fail at every one, that
--- are killed at random times, and of several processes in one folder: `build/lupine
--- spec/stress/checkpoint.lua [KILLS [PROCESSES]]` (1000 and 8). What is left must be the
--- old or the new checkpoint, and going on must give the bits of the training that nobody
--- disturbed; whatever else ends it with 1. Needs strace.
local crashes = require("spec.support.crashes")

local kills, processes = math.tointeger(arg[1] or 1000), math.tointeger(arg[2] or 8)
local faults = 0

local function told(what, wrong, count, of)
  print(("%s: %s%s, %d wrong"):format(what, count, of and " of " .. of .. " noticed" or "", #wrong))
  io.flush()
  for _, text in ipairs(wrong) do
    print("  " .. text)
  end
  faults = faults + #wrong
end

told("killed at system calls", crashes.strike_all(1, 1))
for _, failure in ipairs({ "ENOSPC", "EIO" }) do
  told(failure .. " at system calls", crashes.strike_all(1, 1, failure))
end
math.randomseed(os.time())
local seed = math.random(1 << 31)
math.randomseed(seed)
local draws = {}
for k = 1, kills do
  draws[k] = math.random()
end
told(("killed %d times at random (seed %d), steps reached"):format(kills, seed),
  crashes.kill_at_random(kills, function()
    return table.remove(draws)
  end))
told(("%d processes in one folder"):format(processes), crashes.together(processes, 20), processes)
os.exit(faults == 0 and 0 or 1)
