--- Programs that do not fit into the tiles of a device. With the engine option
--- debug.allowOutOfMemory they are compiled, so that there is a report, and then refused
--- with it. The IPU Model, the simulator and the CPU run them.
---
--- Source: PopART Python API, OutOfMemoryException.
local device_info = require("popart.device_info")
local errors = require("popart.errors")

local M = {}

-- The first IPU that overflows, from 0 on.
local function overflowing(report)
  local first
  for ipu, m in pairs(report.memory) do
    if not m.fits and (not first or ipu < first) then
      first = ipu
    end
  end
  return first
end

--- What must hold of a compiled program's report.
--- error: OutOfMemoryException, whose getSummaryReport gives the report
---@param report lupine.Report
---@param device popart.DeviceInfo
---@param folder? string where its report files are
function M.check(report, device, folder)
  local ipu = overflowing(report)
  if not ipu or device_info.system(device).allow_out_of_memory then
    return
  end
  local m = report.memory[ipu]
  errors.out_of_memory(report:summary(), folder, "Out of memory: Cannot fit all variable data "
    .. "onto one or more tiles: tile %d of IPU %d needs %d bytes of %d", m.fullest_tile, ipu,
    m.max_tile_including_gaps, m.tile_bytes)
end

return M
