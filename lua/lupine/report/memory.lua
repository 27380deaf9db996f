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

-- What an IPU has too little of, and that in words; nil where its program fits.
local function overflow(ipu, m)
  if m.max_tile_including_gaps > m.tile_bytes then
    return "tiles", ("Out of memory: Cannot fit all variable data onto one or more tiles: tile "
      .. "%d of IPU %d needs %d bytes of %d"):format(m.fullest_tile, ipu,
      m.max_tile_including_gaps, m.tile_bytes)
  elseif (m.code or 0) > (m.code_limit or 0) then -- files of before have none
    return "code", ("Out of memory: Cannot fit all code onto the tiles: IPU %d needs %d bytes, "
      .. "%d of a tile can hold code"):format(ipu, m.code, m.code_limit)
  elseif (m.io_tile or 0) > m.tile_bytes then
    return "io_tiles", ("Out of memory: Cannot fit what is on its way onto the I/O tiles: those "
      .. "of IPU %d need %d bytes of %d"):format(ipu, m.io_tile, m.tile_bytes)
  end
  return nil
end

-- What is needed of the streaming memory of a machine, 1: all. Files of before do not say.
local function streaming(report)
  return (report.streaming or 0) / (report.streaming_limit or math.huge)
end

--- Why a program does not fit: of each IPU where it does not what there is too little of
--- ("tiles", "code" or "io_tiles"), then "streaming" of machines; nothing where it fits.
---@param report {memory: table<integer, table>}
---@return {of: string, ipu: integer?, text: string}[]
function M.overflows(report)
  local out = {}
  for ipu, m in M.each(report) do
    local of, text = overflow(ipu, m)
    out[#out + 1] = of and { of = of, ipu = ipu, text = text } or nil
  end
  if streaming(report) > 1 then
    out[#out + 1] = { of = "streaming", text = ("Out of streaming memory: the IPUs of a machine "
      .. "need %d bytes of it, a machine has %d"):format(report.streaming,
      report.streaming_limit) }
  end
  return out
end

--- Whether all tiles of all IPUs and all machines have enough memory.
---@param report {memory: table<integer, table>}
---@return boolean
function M.fits(report)
  for _, m in pairs(report.memory) do
    if not m.fits then
      return false
    end
  end
  return streaming(report) <= 1
end

--- What is needed of what there is where that is most, 1: all. Of tiles, of that part of
--- them that can hold code, of I/O tiles and of streaming memory.
---@param report {memory: table<integer, table>}
---@return number
function M.most(report)
  local most = math.max(M.fullest(report), streaming(report))
  for _, m in pairs(report.memory) do
    most = math.max(most, (m.code or 0) / (m.code_limit or 1), (m.io_tile or 0) / m.tile_bytes)
  end
  return most
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
