--- Random programs, trained on the host and on the device:
---
---     build/lupine spec/fuzz/programs/run.lua SEED COUNT [SECONDS [WAY]]
---
--- (WAY: device, the default, or step, by lupine.compile) prints the programs whose
--- results, losses, weights or buffers differ, and those that raise; the last line is
--- `N programs, N findings`.
package.path = "./?.lua;" .. package.path
local compare = require("spec.fuzz.programs.compare")
local poptorch = require("poptorch")
local program = require("spec.fuzz.programs.program")

local first, count = math.tointeger(arg[1]) or 1, math.tointeger(arg[2]) or 100
local until_ = os.time() + (tonumber(arg[3]) or math.huge)
poptorch.setLogLevel("ERR")

local folder = os.tmpname()
os.remove(folder)
os.execute(("mkdir -m 700 '%s'"):format(folder))

local done, findings = 0, 0
for seed = first, first + count - 1 do
  if os.time() >= until_ then
    break
  end
  local plan
  local ok, found = xpcall(function()
    local list
    if arg[4] == "step" then
      list, plan = compare.run_step(seed)
    else
      list, plan = compare.run(seed, folder)
    end
    return list
  end, function(e)
    return type(e) == "table" and e or debug.traceback("raw: " .. tostring(e))
  end)
  if not ok then
    found = { tostring(found) }
    plan = program.plan(seed)
    pcall(program.net, plan)
  end
  done = done + 1
  if #found > 0 then
    findings = findings + 1
    print(program.describe(plan))
    for i = 1, math.min(#found, 4) do
      print("  " .. found[i])
    end
    io.stdout:flush()
  end
end
os.execute(("rm -r '%s'"):format(folder))
print(("%d programs, %d findings"):format(done, findings))
os.exit(findings == 0)
