--- Weights of a module before and after, for specs.
local M = {}

--- Copies of all parameters, by name.
function M.copies(net)
  local out = {}
  for name, p in net:named_parameters() do
    out[name] = p:detach():clone()
  end
  return out
end

--- The name of a parameter that is in both and differs in a bit; nil: none.
function M.difference(a, b)
  for name, value in pairs(a) do
    if not value:equal(b[name]) then
      return name
    end
  end
  return nil
end

return M
