--- Readers of files get their bytes through one that is made for each.
local files = require("spec.support.files")

return function(read)
  return function(bytes)
    local path = os.tmpname()
    files.write(path, bytes)
    local results = table.pack(pcall(read, path))
    os.remove(path)
    if not results[1] then
      error(results[2], 0)
    end
    return table.unpack(results, 2, results.n)
  end
end
