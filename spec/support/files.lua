--- Whole files of bytes, and folders of a spec's own.
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

--- A path that nothing has.
---@return string
function M.unused()
  local path = os.tmpname()
  os.remove(path)
  return path
end

--- A new folder, which the caller removes.
---@param fast? boolean in memory, where that can be: many small files that are synced
---@return string
function M.folder(fast)
  local p = assert(io.popen(fast and "mktemp -d -p /dev/shm 2>/dev/null || mktemp -d"
    or "mktemp -d"))
  local path = p:read("l")
  p:close()
  return path
end

--- Removes a file or a folder with all that is in it, if it is there.
---@param path string
function M.remove(path)
  os.execute("rm -rf '" .. path:gsub("'", "'\\''") .. "'")
end

return M
