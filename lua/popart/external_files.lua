--- Files of initializers' data that builders of this process have written. The bytes of a
--- model have no folder in which such files could be: Builder:getModelProto puts the data
--- into them, and notes beside it in which file it is, too, for modelToHost to bring it up
--- to date. Only files that are known here are written so: other bytes name none.
local M = {}

local written = {}

--- A file that a builder's initializers are in.
---@param path string
function M.add(path)
  written[path] = true
end

--- The entry of a tensor's external data that names such a file, while the data is in the
--- model; nil: there is none.
---@param t table TensorProto
---@return {key: string, value: string}?
function M.entry(t)
  for _, entry in ipairs(t.data_location ~= 1 and t.external_data or {}) do
    if entry.key == "location" and written[entry.value] then
      return entry
    end
  end
  return nil
end

return M
