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

local function compare(fn, xs, grads, what)
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
      if math.abs(d - got[k]) > 1e-6 + 1e-5 * math.abs(d) then
        error(("%s of operand %d, element %d: %.9g, differences give %.9g"):format(what, i - 1,
          k - 1, got[k], d), 3)
      end
    end
  end
end

-- Zeros for operands on which fn does not depend.
local function gradients(fn, xs, create_graph)
  local got = torch.autograd.grad({ weighed(fn(table.unpack(xs))) }, xs, nil,
    { create_graph = create_graph, allow_unused = true })
  local out = {}
  for i, x in ipairs(xs) do
    out[i] = torch.is_tensor(got[i]) and got[i] or x:detach() * 0
  end
  return out
end

--- The gradients of what fn returns, and (unless `first_only`) the gradients
--- of these gradients, agree with central differences.
function M.check(fn, xs, first_only)
  local live = with_gradient(xs)
  compare(fn, xs, gradients(fn, live, false), "gradient")
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
  compare(inner, xs, gradients(inner, live, false), "second gradient")
end

return M
