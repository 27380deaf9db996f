--- Random calls of the public interface: calls SEED, SEED + 1, …, each of which
--- follows from its number alone.
---
---     lupine spec/fuzz/api/calls.lua SEED CALLS [AT]
---
--- AT is a file that always holds the number of the call that runs first in its line, for who
--- watches (fuzz.sh). An error of the library is what most calls end in and no
--- finding; a finding is printed as a line "finding SEED: …": a crash and a hang
--- are found by who watches; here are found internal errors, compiled functions
--- that differ from eager ones, and blocks that stay alive. KINDS (of
--- kinds.lua, separated by commas) in the environment chooses.
package.path = "./?.lua;" .. package.path
local core = require("lupine.core")
local torch = require("torch")
local Values = require("spec.fuzz.api.values")
local kinds = require("spec.fuzz.api.kinds")

local WEIGHTS = { form = 10, plain = 3, layer = 2, meta = 1, operator = 2, index = 2, compiled = 3 }
local ROUND = 50 -- calls between two looks at what is alive

local function weighted()
  local chosen, list = os.getenv("KINDS"), {}
  for name, n in pairs(WEIGHTS) do
    if not chosen or ("," .. chosen .. ","):find("," .. name .. ",", 1, true) then
      for _ = 1, n do
        list[#list + 1] = name
      end
    end
  end
  table.sort(list)
  return list
end

local first = math.tointeger(tonumber(arg[1])) or 1
local calls = math.tointeger(tonumber(arg[2])) or 1
local at = arg[3] and assert(io.open(arg[3], "w"))
local names = weighted()
local findings, returned, again = 0, 0, false

local function find(seed, what)
  if again then
    return -- it was found when the call ran first
  end
  findings = findings + 1
  print(("finding %d: %s"):format(seed, what))
  io.stdout:flush()
end

local function describe(e)
  local text = type(e) == "table" and rawget(e, "message") or e
  return (tostring(text):gsub("%s+", " "))
end

-- What is wrong about an error: nil if nothing.
local function fault_of(e)
  if type(e) == "string" and e:find("^FINDING") then
    return e
  elseif type(e) == "table" and rawget(e, "type") == "internal_error" then
    return "internal error: " .. describe(e)
  end
end

--- The words of call `seed`, and the call; nil: there is none of that number.
local function make(seed)
  local v = Values.new(seed)
  torch.manual_seed(seed)
  return kinds[v:pick(names)](v)
end

-- Leaves word of the call that begins.
local begun = 0
local function announce(seed)
  begun = begun + 1
  if at then
    at:seek("set", 0)
    at:write(("%-20d %d\n"):format(seed, begun))
    at:flush()
  end
end

local function run(seed, shown)
  announce(seed)
  local ok, words, f = pcall(make, seed)
  if not ok then
    find(seed, "arguments: " .. describe(words))
  elseif words then
    if shown then
      print(("call %d: %s"):format(seed, words))
      io.stdout:flush()
    end
    local done, e = pcall(f)
    returned = returned + (done and not again and 1 or 0)
    if shown then
      print(done and "returned" or "raised " .. describe(e))
    end
    local fault = not done and fault_of(e)
    if fault then
      find(seed, ("%s\n  in %s"):format(fault, words))
    end
  end
  torch.set_grad_enabled(true)
end

local function alive()
  collectgarbage()
  collectgarbage()
  return core.mem_live()
end

-- Do calls from..to leave more alive each time? What is made once (caches,
-- tables) does not grow with every turn.
local function leaks(from, to)
  local before
  local grows = true
  again = true
  for turn = 1, 4 do
    for seed = from, to do
      run(seed)
    end
    local now = alive()
    grows = grows and (turn == 1 or now > before)
    before = now
  end
  again = false
  return grows
end

local function look_for_leaks(from, to)
  if not leaks(from, to) then
    return
  end
  for seed = from, to do
    if leaks(seed, seed) then
      find(seed, "leaves blocks alive: " .. tostring((make(seed))))
    end
  end
end

local log = core.host and core.host.log
if log then
  core.host.log = function() end -- warnings of odd calls
end

local before, start = alive(), first
for seed = first, first + calls - 1 do
  run(seed, calls == 1)
  if (seed - first) % ROUND == ROUND - 1 or seed == first + calls - 1 then
    local now = alive()
    if now > before then
      look_for_leaks(start, seed)
      now = alive()
    end
    before, start = now, seed + 1
  end
end
print(("%d calls from %d: %d returned, %d findings"):format(calls, first, returned, findings))
os.exit(findings == 0, true)
