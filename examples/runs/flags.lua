--- The flags of the scripts beside this folder, by their defaults: `--epochs 2` for a
--- shorter training; `--picture FILE` writes the picture that docs/examples.md shows.
return function(defaults)
  local flags = {}
  for name, value in pairs(defaults) do
    flags[name] = value
  end
  for i = 1, #arg, 2 do
    local name, value = arg[i]:match("^%-%-(%l+)$"), arg[i + 1]
    assert(name == "picture" or name and defaults[name], "unknown flag " .. arg[i])
    assert(value, arg[i] .. " needs a value")
    if math.type(defaults[name]) == "integer" then
      value = assert(math.tointeger(tonumber(value)), arg[i] .. " needs a whole number")
    end
    flags[name] = value
  end
  return flags
end
