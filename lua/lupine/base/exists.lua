--- Whether something of this path is there that can be opened.
---@param path string
---@return boolean
return function(path)
  local file = io.open(path, "rb")
  return file ~= nil and file:close() ~= nil
end
