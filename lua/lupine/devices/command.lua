--- `lupine info`: the devices of the simulated machine and who has them.
local devices = require("lupine.devices")

local USAGE = [[
usage: lupine info
  Lists the devices of the simulated machine: their ids, as useIpuId takes them,
  their IPUs, and which processes have them.
  -h, --help     print this
]]

local M = {}

-- "process 4711 (train.lua)", all of the group's.
local function holders(group)
  local names = {}
  for ipu = group.first, group.first + group.count - 1 do
    local h = devices.holder(ipu)
    local name = h and ("process %s%s"):format(h.pid or "?",
      h.script and (" (%s)"):format(h.script) or "")
    if name and names[#names] ~= name then
      names[#names + 1] = name
    end
  end
  return #names > 0 and table.concat(names, ", ") or "-"
end

local function ipus_of(group)
  return group.count == 1 and tostring(group.first)
    or ("%d-%d"):format(group.first, group.first + group.count - 1)
end

--- Runs with the words of the command line after "info".
---@param ... string
function M.run(...)
  for _, word in ipairs({ ... }) do
    local help = word == "-h" or word == "--help"
    if not help then
      io.stderr:write(("lupine info: unrecognized option '%s'\n"):format(word))
    end
    io[help and "stdout" or "stderr"]:write(USAGE)
    os.exit(help, true)
  end
  print(("%d IPUs, table %s"):format(devices.ipus(), devices.path()))
  print(("%5s  %-9s  %-4s  %s"):format("id", "IPUs", "chip", "in use by"))
  for _, group in ipairs(devices.list()) do
    print(("%5d  %-9s  ipu%d  %s"):format(group.id, ipus_of(group), devices.VERSION,
      holders(group)))
  end
end

return M
