--- Whole files of bytes.
local M = {}

---@param path string
---@param bytes string
function M.write(path, bytes)
  local f = assert(io.open(path, "wb"))
  f:write(bytes)
  f:close()
end

---@param path string
---@return string bytes
function M.read(path)
  local f = assert(io.open(path, "rb"))
  local bytes = f:read("a")
  f:close()
  return bytes
end

return M
