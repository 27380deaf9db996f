-- Steps for the specs of IPU passes: chains of equal layers over IPUs.
local core = require("lupine.core")
local report = require("lupine.report")
local torch = require("torch")

local M = {}

--- The final loss: the sum of squares.
function M.loss(h)
  return core.forms.internal.identity_loss((h * h):sum(), "none")
end

-- The step of `forward(inputs, place, trace)`; with `train` its first result is the loss,
-- and every parameter is updated by p - 0.1 * gradient, or as o.rules(numbers of
-- the variables by "role name", step) says. o.anchors: names of values that it
-- returns too.
local function build(forward, o)
  local trace = core.trace()
  local params = {}
  local function declare(role, name, tensor, shape, dtype)
    params[#params + 1] = role == "parameter" and name or nil
    return trace:declare(role, name, tensor, shape, dtype or torch.float32)
  end
  local function place(ipu, stage, scope, phase)
    trace:origin({ block = "B" .. (stage or ipu), ipu = ipu, stage = stage or ipu,
      scope = scope or ("layer" .. (stage or ipu)), phase = phase or -1 })
  end
  local inputs = o.declare(declare)
  local step, losses = trace:step({ trace:run(false, forward, inputs, place, trace) })
  return step, losses, params
end

--- forward(inputs, place, trace) -> loss or result, further results; declare(declare) -> inputs.
--- Completed.
function M.step(forward, o)
  local step, losses, params = build(forward, o)
  local spec = { device_iterations = o.device_iterations or 1,
    gradient_accumulation = o.accumulation or 1, replicas = o.replicas or 1, mean = false,
    numerics = o.numerics, anchors = o.anchors }
  if o.train then
    local at = {}
    for i, v in ipairs(step:vars()) do
      at[v.role .. " " .. v.name] = i
    end
    spec.loss, spec.rules = losses[1], {}
    for i, name in ipairs(o.rules and {} or params) do
      local p = at["parameter " .. name]
      spec.rules[i] = { op = "sub", param = p, inputs = { p, "grad" }, outputs = { p },
        attrs = { alpha = 0.1 } }
    end
    if o.rules then
      spec.rules = o.rules(at, step)
    end
  end
  step:complete(spec)
  return step
end

--- n layers relu(x @ w) of [batch, width], layer i on IPU ipus[i] (default
--- i - 1) in stage i - 1. o: train, accumulation, device_iterations, replicas,
--- batch, width, dtype, numerics, layer(h, w, i).
function M.chain(n, o)
  o.declare = function(declare)
    local dtype = o.dtype or torch.float32
    local inputs = { declare("input", "x", nil, { o.batch or 16, o.width or 64 }, dtype) }
    for i = 1, n do
      inputs[i + 1] = declare("parameter", "w" .. i,
        (o.weight and o.weight(i) or torch.ones(o.width or 64, o.width or 64)):to(dtype))
    end
    return inputs
  end
  return M.step(function(inputs, place)
    local h = inputs[1]
    for i = 1, n do
      place(o.ipus and o.ipus[i] or i - 1, i - 1, nil, o.phases and i - 1)
      h = o.layer and o.layer(h, inputs[i + 1], i) or torch.relu(torch.matmul(h, inputs[i + 1]))
    end
    return o.train and M.loss(h) or h
  end, o)
end

M.simulate = report.simulate

--- Rows of one kind.
function M.rows(r, kind)
  local out = {}
  for _, row in ipairs(r.schedule) do
    if row.kind == kind then
      out[#out + 1] = row
    end
  end
  return out
end

--- What a replay leaves, outputs and variables, bit by bit as text.
function M.replayed_bits(step, options, inputs, how)
  local out, vars = report.replay(step, options, inputs, how)
  local text = {}
  for _, list in ipairs({ out, vars }) do
    for i, t in pairs(list) do
      for _, v in ipairs(t:flatten():tolist()) do
        text[#text + 1] = ("%d %a"):format(i, v)
      end
    end
  end
  table.sort(text)
  return table.concat(text, "\n"), #text
end

return M
