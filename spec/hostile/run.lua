--- Runs the hostile inputs of one reader, in a process whose memory is limited
--- (hostile_spec.lua); counts the processor time of each input.
---   run.lua READER SECONDS   prints `N inputs`, or what went wrong
---   run.lua          prints the kilobytes of address space without a reader
---
--- A reader is a file spec/hostile/READER.lua that gives
---   read(bytes)   gives a value or raises
---   valid         list of inputs that it must take
---   cut           whether each of them, cut anywhere, must be refused; else it
---                 may also be taken
---   taken         list of larger inputs that it must take
---   refused       list of {what, bytes, class, pattern of the message}; large
---                 bytes are what a function gives, so that they do not stay
local errors = require("lupine.base.errors")

local LONGEST = 600 -- of a message: an input is not repeated in it
local SECONDS = tonumber(arg[2])

local count = 0

local function fault(what, ...)
  io.stdout:write(what:format(...), "\n")
  os.exit(1)
end

-- Whether the reader takes the bytes; an error must be of a class.
local function take(reader, what, bytes)
  count = count + 1
  local least, ok, e = math.huge, nil, nil
  for _ = 1, 3 do -- a busy machine may be slow once
    local start = os.clock()
    ok, e = pcall(reader.read, bytes)
    least = math.min(least, os.clock() - start)
    if least < SECONDS then
      break
    end
  end
  if least >= SECONDS then
    fault("%s: took %.3f seconds", what, least)
  end
  if not ok and not errors.Exception:is(e) then
    fault("%s: raised %s", what, tostring(e))
  elseif not ok and (#e.message == 0 or #e.message > LONGEST
      or e.type == "internal_error") then
    fault("%s: the message has %d bytes: %s", what, #e.message, e.message:sub(1, 200))
  end
  return ok, e
end

local function run(reader)
  for i, bytes in ipairs(reader.valid) do
    local ok, e = take(reader, "valid " .. i, bytes)
    if not ok then
      fault("valid input %d: %s", i, e.message)
    end
    for n = 0, #bytes - 1 do
      if take(reader, ("valid %d cut to %d"):format(i, n), bytes:sub(1, n)) and reader.cut then
        fault("valid input %d, cut to %d bytes, is taken", i, n)
      end
    end
  end
  for i, bytes in ipairs(reader.taken or {}) do
    local ok, e = take(reader, "taken " .. i, bytes)
    if not ok then
      fault("taken input %d: %s", i, e.message)
    end
  end
  for _, case in ipairs(reader.refused) do
    local what, bytes, class, pattern = table.unpack(case)
    local ok, e = take(reader, what, type(bytes) == "function" and bytes() or bytes)
    collectgarbage()
    if ok then
      fault("%s: is taken", what)
    elseif not errors.classes[class]:is(e) or not e.message:find(pattern) then
      fault("%s: expected %s with %q, got %s", what, class, pattern, tostring(e))
    end
  end
end

require("poptorch")
if arg[1] then
  run(require("spec.hostile." .. arg[1]))
  print(count .. " inputs")
else
  for line in io.lines("/proc/self/status") do
    local kb = line:match("^VmPeak:%s*(%d+)")
    if kb then
      print(kb)
    end
  end
end
