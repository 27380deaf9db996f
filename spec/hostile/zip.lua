--- Zip archives as they should not be: each field can be told.
local M = {}

local TABLE = {}
for i = 0, 255 do
  local c = i
  for _ = 1, 8 do
    c = c & 1 == 1 and (c >> 1) ~ 0xedb88320 or c >> 1
  end
  TABLE[i] = c
end

--- CRC-32 (of zip, gzip and PNG).
function M.crc(s)
  local c = 0xffffffff
  for i = 1, #s do
    c = TABLE[(c ~ s:byte(i)) & 255] ~ (c >> 8)
  end
  return c ~ 0xffffffff
end

--- n zero bytes, deflated, and their check sum.
function M.deflated_zeros(n)
  local p = assert(io.popen(("head -c %d /dev/zero | gzip -9n"):format(n)))
  local s = p:read("a")
  p:close()
  return s:sub(11, -9), (string.unpack("<I4", s, -8))
end

--- An entry {name, data}; crc, size (uncompressed), packed (compressed), method,
--- flags and at (the offset of its local part) may be told.
local function fields(x)
  return string.pack("<I2I2I2I2I2I4I4I4I2I2", 20, x.flags or 0, x.method or 0, 0, 0x21,
    x.crc or M.crc(x.data), x.packed or #x.data, x.size or #x.data, #x.name, 0)
end

function M.part(x)
  return "PK\3\4" .. fields(x) .. x.name .. x.data
end

function M.directory(x, at)
  return "PK\1\2" .. string.pack("<I2", 20) .. fields(x) .. string.pack("<I2I2I2I4I4", 0, 0, 0, 0,
    x.at or at) .. x.name
end

function M.ending(n, size, at)
  return "PK\5\6" .. string.pack("<I2I2I2I2I4I4I2", 0, 0, n, n, size, at, 0)
end

--- An archive of entries.
function M.archive(entries)
  local parts, list, at = {}, {}, 0
  for i, x in ipairs(entries) do
    parts[i] = M.part(x)
    list[i] = M.directory(x, at)
    at = at + #parts[i]
  end
  local directory = table.concat(list)
  return table.concat(parts) .. directory .. M.ending(#entries, #directory, at)
end

return M
