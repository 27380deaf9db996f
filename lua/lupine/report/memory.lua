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

--- Why an IPU's program does not fit; nil where it does.
---@param ipu integer
---@param m table its memory in a report
---@return string?
function M.overflow(ipu, m)
  if m.max_tile_including_gaps > m.tile_bytes then
    return ("Out of memory: Cannot fit all variable data onto one or more tiles: tile %d of IPU "
      .. "%d needs %d bytes of %d"):format(m.fullest_tile, ipu, m.max_tile_including_gaps,
      m.tile_bytes)
  elseif m.code and m.code > m.code_limit then -- files of before have none
    return ("Out of memory: Cannot fit all code onto the tiles: IPU %d needs %d bytes, %d of a "
      .. "tile can hold code"):format(ipu, m.code, m.code_limit)
  end
  return nil
end

--- Whether all tiles of all IPUs have enough memory.
---@param report {memory: table<integer, table>}
---@return boolean
function M.fits(report)
  for _, m in pairs(report.memory) do
    if not m.fits then
      return false
    end
  end
  return true
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

--- The tile's bytes by category, of all of them without gaps, and of those always live. A
--- tile's figures are those of the fullest of its class of neighbours.
---@param m table of `memory`
---@param class integer from 1
---@return table<string, integer> categories
---@return integer all
---@return integer always
function M.of_tile(m, class)
  local categories, all, always = {}, 0, 0
  for _, category in ipairs(m.tile_categories) do
    local bytes = category.tiles[class]
    categories[category.name], all = bytes, all + bytes
    always = always + (category.always and bytes or 0)
  end
  return categories, all, always
end

--- What a tile has.
---@param report {memory: table<integer, table>}
---@return integer
function M.tile_bytes(report)
  local _, m = M.each(report)()
  return m and m.tile_bytes or 0
end

return M
