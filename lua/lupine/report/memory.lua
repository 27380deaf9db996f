--- What reports say of memory, asked by several.
local M = {}

--- The IPUs of a report in order, each with its memory.
---@param report {memory: table<integer, table>}
---@return fun(): integer?, table?
function M.each(report)
  local ipus = {}
  for ipu in pairs(report.memory) do
    ipus[#ipus + 1] = ipu
  end
  table.sort(ipus)
  local i = 0
  return function()
    i = i + 1
    return ipus[i], report.memory[ipus[i]]
  end
end

--- What the fullest tile has of its memory, 1: all.
---@param report {memory: table<integer, table>}
---@return number
function M.fullest(report)
  local most = 0
  for _, m in pairs(report.memory) do
    most = math.max(most, m.max_tile_including_gaps / m.tile_bytes)
  end
  return most
end

return M
