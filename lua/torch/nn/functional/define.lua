--- Functions from a Python signature: `define(t, "f(x, p=0.5)", fn)` puts into
--- t a function f that binds its arguments (torch.nn.signature) and calls fn
--- with the values in the signature's order.
local casts = require("torch.casts")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")

local is_tensor, unpack = core.is_tensor, table.unpack

-- Parameters of these names are tensors (or None, where that is the default).
local TENSORS = {}
for name in ([[input input1 input2 x1 x2 target targets anchor positive negative logits log_probs
  query key value grid theta indices weight bias running_mean running_var per_sample_weights
  linear_weight linear_bias]]):gmatch("%S+") do
  TENSORS[name] = true
end

-- A number, or a tensor that stands for one.
local function number(value, where)
  return core.is_tensor(value) and value or check.number(value, where)
end

-- What a parameter must be whose default is a float or a boolean: rows of its number,
-- the check, how messages know it and the type of Lua that passes.
local function kinds_of(parsed)
  local kinds = {}
  for i, name in ipairs(parsed.names) do
    local default = parsed.defaults[name]
    local kind = math.type(default) == "float" and number
      or type(default) == "boolean" and check.bool
    if kind then
      kinds[#kinds + 1] = { i, kind, ("%s(): %s"):format(parsed.name, name), type(default) }
    end
  end
  return kinds
end

return function(t, sig, fn)
  local parsed = signature(sig)
  local tensors, kinds = {}, kinds_of(parsed)
  for i, name in ipairs(parsed.names) do
    if TENSORS[name] then
      tensors[#tensors + 1] = i
    end
  end
  local function defined(...)
    local a = parsed:list(...)
    for k = 1, #kinds do
      local kind = kinds[k]
      local value = a[kind[1]]
      if type(value) ~= kind[4] then -- the check would take as long as the rest
        kind[2](value, kind[3])
      end
    end
    for k = 1, #tensors do
      local v = a[tensors[k]]
      if not is_tensor(v) and (v ~= nil or parsed.required[parsed.names[tensors[k]]]) then
        errors.check(false, "TypeError", "%s(): argument '%s' must be a Tensor, not %s",
          parsed.name, parsed.names[tensors[k]], check.describe(v))
      end
    end
    if casts.composed then
      return casts.call(defined, fn, unpack(a, 1, a.n))
    end
    return fn(unpack(a, 1, a.n))
  end
  t[parsed.name], casts.hooked[defined] = defined, true
  signatures.note(defined, sig)
end
