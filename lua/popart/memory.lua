--- Programs that do not fit into the tiles of a device. With the engine option
--- debug.allowOutOfMemory they are compiled, so that there is a report, and then refused
--- with it. The IPU Model, the simulator and the CPU run them.
---
--- Source: PopART Python API, OutOfMemoryException.
local device_info = require("popart.device_info")
local errors = require("popart.errors")
local memory = require("lupine.report.memory")

local M = {}

--- What must hold of a compiled program's report.
--- error: OutOfMemoryException, whose getSummaryReport gives the report
---@param report lupine.Report
---@param device popart.DeviceInfo
---@param folder? string where its report files are
function M.check(report, device, folder)
  local why = memory.overflows(report)[1]
  if why and not device_info.system(device).allow_out_of_memory then
    errors.out_of_memory(report:summary(), folder, "%s", why.text)
  end
end

return M
