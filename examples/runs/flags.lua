--- The flags of the scripts beside this folder: `--steps N` (or `--epochs N`) for a
--- shorter training, `--picture FILE` for the picture that docs/examples.md shows.
return function(defaults)
  local flags = {}
  for name, value in pairs(defaults) do
    flags[name] = value
  end
  for i = 1, #arg, 2 do
    local name, value = arg[i]:match("^%-%-(%l+)$"), arg[i + 1]
    assert(name == "picture" or defaults[name or ""], "unknown flag " .. arg[i])
    flags[name] = name == "picture" and value or assert(math.tointeger(tonumber(value)),
      arg[i] .. " needs a whole number")
  end
  return flags
end
