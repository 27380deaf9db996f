--- Readers of files get their bytes through one that is made for each.
return function(read)
  return function(bytes)
    local path = os.tmpname()
    local f = assert(io.open(path, "wb"))
    f:write(bytes)
    f:close()
    local results = table.pack(pcall(read, path))
    os.remove(path)
    if not results[1] then
      error(results[2], 0)
    end
    return table.unpack(results, 2, results.n)
  end
end
