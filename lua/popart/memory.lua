--- Programs that do not fit into the tiles of a device. With the engine option
--- debug.allowOutOfMemory they are compiled, so that there is a report, and then refused
--- with it. The IPU Model, the simulator and the CPU run them.
---
--- Source: PopART Python API, OutOfMemoryException.
local device_info = require("popart.device_info")
local errors = require("popart.errors")
local memory = require("lupine.report.memory")

local M = {}

-- Why the first IPU that overflows does.
local function overflowing(report)
  for ipu, m in memory.each(report) do
    local why = memory.overflow(ipu, m)
    if why then
      return why
    end
  end
  return nil
end

--- What must hold of a compiled program's report.
--- error: OutOfMemoryException, whose getSummaryReport gives the report
---@param report lupine.Report
---@param device popart.DeviceInfo
---@param folder? string where its report files are
function M.check(report, device, folder)
  local why = overflowing(report)
  if why and not device_info.system(device).allow_out_of_memory then
    errors.out_of_memory(report:summary(), folder, "%s", why)
  end
end

return M
