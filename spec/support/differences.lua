--- Gradients against central differences, in float64.
local torch = require("torch")

local M = {}

--- Fixed, distinct, smooth numbers of the given shape: no two runs differ.
function M.numbers(shape, seed)
  local n = 1
  for _, s in ipairs(shape) do
    n = n * s
  end
  local t = {}
  for i = 1, n do
    t[i] = math.sin(12.9898 * i + 78.233 * (seed or 1)) + 0.05 * math.cos(i)
  end
  return torch.tensor(t, { dtype = torch.float64 }):reshape(shape)
end

--- Distinct numbers inside (low, high), out of order.
function M.spread(shape, low, high)
  local n, t = 1, {}
  for _, s in ipairs(shape) do
    n = n * s
  end
  for i = 1, n do
    -- multiples of the golden section fill an interval evenly
    t[i] = low + (high - low) * (0.05 + 0.9 * ((i * 0.6180339887498949 + low * 0.1) % 1))
  end
  return torch.tensor(t, { dtype = torch.float64 }):reshape(shape)
end

local function flat(x)
  return x:detach():reshape({ -1 }):tolist()
end

-- sum(y * c) with fixed c, so that every element of y counts differently
local function weighed(y)
  return (y * M.numbers({ table.unpack(y.shape) }, 7)):sum()
end

local function with_gradient(xs)
  local out = {}
  for i, x in ipairs(xs) do
    out[i] = x:detach():clone():requires_grad_(true)
  end
  return out
end

local function value(fn, xs)
  return weighed(fn(table.unpack(xs))):item()
end

local function compare(fn, xs, grads, tolerance, what)
  local step = 1e-5
  for i, x in ipairs(xs) do
    local want, got = flat(x), flat(grads[i])
    local shape = { table.unpack(x.shape) }
    for k, v in ipairs(want) do
      local function at(d)
        local moved = { table.unpack(want) }
        moved[k] = v + d
        local ys = { table.unpack(xs) }
        ys[i] = torch.tensor(moved, { dtype = torch.float64 }):reshape(shape)
        return value(fn, ys)
      end
      local d = (at(step) - at(-step)) / (2 * step)
      local close = math.abs(d - got[k]) <= tolerance * (1 + math.abs(d))
      if not close then -- also if either is NaN
        error(("%s of operand %d, element %d: %.9g, differences give %.9g"):format(what, i - 1,
          k - 1, got[k], d), 3)
      end
    end
  end
end

-- Zeros for operands on which fn does not depend.
local function gradients(fn, xs, create_graph)
  local y = weighed(fn(table.unpack(xs)))
  local got = y.requires_grad and torch.autograd.grad({ y }, xs, nil,
    { create_graph = create_graph, allow_unused = true }) or {}
  local out = {}
  for i, x in ipairs(xs) do
    out[i] = torch.is_tensor(got[i]) and got[i] or x:detach() * 0
  end
  return out
end

--- The gradients of what fn returns, and (unless `first_only`) the gradients
--- of these gradients, agree with central differences, to 1e-6 or `tolerance`
--- of 1 + the gradient.
function M.check(fn, xs, first_only, tolerance)
  local live = with_gradient(xs)
  tolerance = tolerance or 1e-6
  compare(fn, xs, gradients(fn, live, false), tolerance, "gradient")
  if first_only then
    return
  end
  -- one number made of all gradients is the function of the second round
  local function inner(...)
    local at = with_gradient({ ... })
    for i, x in ipairs({ ... }) do
      if x.requires_grad then
        at[i] = x
      end
    end
    local s = 0
    for i, g in ipairs(gradients(fn, at, true)) do
      s = s + (g * M.numbers({ table.unpack(g.shape) }, 20 + i)):sum()
    end
    return s
  end
  live = with_gradient(xs)
  compare(inner, xs, gradients(inner, live, false), tolerance, "second gradient")
end

return M
