--- Runs the hostile inputs of one reader, in a process whose memory and
--- processor time are limited (hostile_spec.lua).
---   run.lua READER   prints `N inputs`, or what went wrong
---   run.lua          prints the kilobytes of address space without a reader
---
--- A reader is a file spec/hostile/READER.lua that gives
---   read(bytes)   gives a value or raises
---   valid         list of inputs that it must take
---   cut           whether each of them, cut anywhere, must be refused; else it
---                 may also be taken
---   refused       list of {what, bytes, class, pattern of the message}
local errors = require("torch.errors")

local LONGEST = 600 -- of a message: an input is not repeated in it

local count = 0

local function fault(what, ...)
  io.stdout:write(what:format(...), "\n")
  os.exit(1)
end

-- Whether the reader takes the bytes; an error must be of a class.
local function take(reader, what, bytes)
  count = count + 1
  local ok, e = pcall(reader.read, bytes)
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
  for _, case in ipairs(reader.refused) do
    local what, bytes, class, pattern = table.unpack(case)
    local ok, e = take(reader, what, bytes)
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
