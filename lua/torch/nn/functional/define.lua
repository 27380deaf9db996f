--- Functions from a Python signature: `define(t, "f(x, p=0.5)", fn)` puts into
--- t a function f that binds its arguments (torch.nn.signature) and calls fn
--- with the values in the signature's order.
local signature = require("torch.nn.signature")
local signatures = require("lupine.signatures")

return function(t, sig, fn)
  local parsed = signature(sig)
  t[parsed.name] = function(...)
    local a = parsed:list(...)
    return fn(table.unpack(a, 1, a.n))
  end
  signatures.note(t[parsed.name], sig)
end
