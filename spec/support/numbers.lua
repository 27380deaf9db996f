-- Random whole numbers that follow from a seed alone, on every machine alike.

---@param seed integer
---@return fun(n: integer): integer from 1 to n
return function(seed)
  local state = (seed * 2654435761 + 12345) % 2147483648
  return function(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return 1 + (state >> 12) % n
  end
end
