--- Runs a function through trace and compile without any wrapper, for specs.
local core = require("lupine.core")
local torch = require("torch")

local M = {}

local function list(size)
  local out = {}
  for i = 1, #size do
    out[i] = size[i]
  end
  return out
end

--- Traces fn(inputs…) and returns the step, its variables by "role name" and
--- the final losses. `declared` lists {role, name, tensor,
--- group of replicas?}.
function M.step(fn, inputs, declared)
  local trace = core.trace()
  for _, d in ipairs(declared or {}) do
    trace:declare(d[1], d[2], d[3], d[4])
  end
  local stand_ins = {}
  for i, x in ipairs(inputs) do
    stand_ins[i] = trace:declare("input", "x" .. i, nil, list(x.shape), x.dtype)
  end
  local step, losses = trace:step({ trace:run(false, fn, table.unpack(stand_ins)) })
  return step, losses
end

--- Variable numbers by "role name".
function M.vars(step)
  local at = {}
  for i, v in ipairs(step:vars()) do
    at[v.role .. " " .. v.name] = i
  end
  return at
end

--- The inputs of a run by variable number; x must hold all slices.
function M.feed(at, inputs)
  local feed = {}
  for i, x in ipairs(inputs) do
    feed[at["input x" .. i]] = x
  end
  return feed
end

--- Rules of step:complete that subtract its gradient from each parameter of
--- `declared` that the step reads, `attrs` (alpha) times.
function M.descent(at, declared, attrs)
  local rules = {}
  for _, d in ipairs(declared) do
    local var = d[1] == "parameter" and at["parameter " .. d[2]]
    if var then
      rules[#rules + 1] = { op = "sub", param = var, inputs = { var, "grad" },
        outputs = { var }, attrs = attrs }
    end
  end
  return rules
end

--- fn's results, compiled (without gradients), as a list.
function M.run(fn, inputs, options)
  local step = M.step(fn, inputs)
  step:complete({})
  local at = M.vars(step)
  local exec = step:compile(options or {})
  local got = exec:run(M.feed(at, inputs), {})
  local out = {}
  while at["output output_" .. #out + 1] do
    out[#out + 1] = got[at["output output_" .. #out + 1]]
  end
  return out, exec
end

--- Equal in every bit: shape, dtype and elements (NaN equals NaN).
function M.same_bits(a, b)
  if a.dtype ~= b.dtype or tostring(a.shape) ~= tostring(b.shape) then
    return false
  end
  return torch.logical_or(a:eq(b), torch.logical_and(a:ne(a), b:ne(b))):all():item()
end

return M
