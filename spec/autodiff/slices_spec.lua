-- Gradients of slices of one tensor in a compiled program, whatever the slices:
-- empty, of length 1, overlapping, shuffled, nested, of several dimensions. The
-- compiled gradient joins those along one dimension where it can; eager ones are
-- summed one by one. A few are written out.
local lupine = require("lupine")
local torch = require("torch")

-- A generator of integers in lo..hi, apart from everyone else's.
local function generator(seed)
  local state = seed
  return function(lo, hi)
    state = state * 6364136223846793005 + 1442695040888963407
    return lo + (state >> 33) % (hi - lo + 1)
  end
end

-- ---- slices ------------------------------------------------------------------
-- Each takes (tensor, dimension, size there, random) and returns a function from
-- such a tensor to a list of tensors, all choices made.
local kinds = {}

function kinds.narrow(_, dim, size, random)
  local start = random(0, size)
  local length = random(0, size - start)
  return function(a)
    return { a:narrow(dim, start, length) }
  end
end

function kinds.text(_, dim, size, random)
  local start, stop = random(0, size), random(-size, size)
  local text = (":, "):rep(dim) .. ("%d:%d"):format(start, stop)
  return function(a)
    return { a[text] }
  end
end

function kinds.step(_, dim, size, random)
  local text = (":, "):rep(dim) .. ("%d::%d"):format(random(0, size), random(1, 3))
  return function(a)
    return { a[text] }
  end
end

function kinds.split(_, dim, size, random)
  local sizes, left = {}, size
  while left > 0 or #sizes == 0 do
    local n = random(0, left)
    sizes[#sizes + 1] = n
    left = left - n
  end
  local from = random(1, #sizes)
  return function(a)
    local parts = torch.split(a, sizes, dim)
    local out = {}
    for i = 0, #sizes - 1 do -- in another order than they lie
      out[i + 1] = parts[(from + i * (#sizes - 1)) % #sizes + 1]
    end
    return out
  end
end

function kinds.chunk(_, dim, _, random)
  local n = random(1, 4)
  return function(a)
    return { table.unpack(a:chunk(n, dim)) }
  end
end

function kinds.diff(_, dim)
  return function(a)
    return { torch.diff(a, { dim = dim }) }
  end
end

function kinds.shift(_, dim)
  local before = (":, "):rep(dim)
  return function(a)
    return { a[before .. "1:"] - a[before .. ":-1"] }
  end
end

function kinds.unbind(_, dim, size)
  return function(a)
    return size > 0 and { table.unpack(a:unbind(dim)) } or { a }
  end
end

function kinds.select(_, dim, size, random)
  if size == 0 then
    return function(a)
      return { a }
    end
  end
  local i = random(-size, size - 1)
  return function(a)
    return { a:select(dim, i) }
  end
end

function kinds.cat(a, dim, size, random)
  local first, second = kinds.narrow(a, dim, size, random), kinds.text(a, dim, size, random)
  return function(x)
    return { torch.cat({ first(x)[1], second(x)[1], first(x)[1] }, dim) }
  end
end

local names = {}
for name in pairs(kinds) do
  names[#names + 1] = name
end
table.sort(names)

-- A random slice of `a`, or of a slice of it; along dimension `dim` if given.
local function slice(a, random, dim, depth)
  dim = dim or random(0, a:dim() - 1)
  local take = kinds[names[random(1, #names)]](a, dim, a:size(dim), random)
  local first = take(a)[1]
  if depth == 0 or first:dim() == 0 or random(1, 3) > 1 then
    return take
  end
  local inner = slice(first, random, nil, depth - 1)
  return function(x)
    local out = take(x)
    out[1] = inner(out[1])[1]
    return out
  end
end

-- A function of a tensor like x: elements of its slices, and the sum of what
-- grows out of each of them.
local function program(x, random)
  local one = random(1, 2) == 1 and random(0, x:dim() - 1) or nil
  local slices = {}
  for i = 1, random(2, 6) do
    slices[i] = slice(x, random, one, 2)
  end
  return function(a)
    local flat, sum, weight = {}, torch.zeros({}, { dtype = torch.float64 }), 0
    for i = 1, #slices do
      for _, part in ipairs(slices[i](a)) do
        weight = weight + 1
        flat[#flat + 1] = part:reshape(-1)
        sum = sum + (part * (weight * 0.3)):sin():sum() * weight
      end
    end
    return torch.cat(flat), sum
  end
end

local function shape_of(random)
  local sizes = {}
  for i = 1, random(1, 3) do
    sizes[i] = random(1, 9) == 1 and 0 or random(1, 5)
  end
  return sizes
end

local function compare(seed)
  local random = generator(seed)
  torch.manual_seed(seed)
  local x = torch.randn(shape_of(random), { dtype = torch.float64 })
  local fn = program(x, random)
  local leaf = x:clone():requires_grad_(true)
  local flat, sum = fn(leaf)
  local c = { torch.randn(flat.shape, { dtype = torch.float64 }), torch.tensor(1.5):double() }
  torch.autograd.backward({ flat, sum }, c)
  local f = lupine.compile(fn, { x }, { cotangents = c })
  local compiled_flat, compiled_sum, grads = f(x, c)
  local close = { rtol = 1e-12, atol = 1e-12 }
  local where = ("seed %d, shape %s: "):format(seed, tostring(x.shape))
  assert(torch.equal(compiled_flat, flat:detach()), where .. "slices differ")
  assert(torch.allclose(compiled_sum, sum:detach(), close), where .. "results differ")
  assert(torch.allclose(grads[1], leaf.grad, close),
    where .. ("gradients differ\n%s\n%s"):format(tostring(grads[1]), tostring(leaf.grad)))
end

describe("random slices of one tensor", function()
  it("have the gradient compiled that they have eagerly", function()
    for seed = 1, 250 do
      compare(seed)
    end
  end)
end)

describe("the compiled gradient of", function()
  -- of fn's sum by ones of the given shape
  local function gradient(fn, ...)
    local x, c = torch.ones(...), { torch.ones({}) }
    local _, grads = lupine.compile(fn, { x }, { cotangents = c })(x, c)
    return grads[1]:tolist()
  end

  it("slices of which some are empty, wherever these lie", function()
    assert.same({ 2, 2, 0, 0, 0, 0, 0, 3 }, gradient(function(a)
      return a["0:2"]:sum() * 2 + a["5:5"]:exp():sum() + a["7:"]:sum() * 3
    end, 8))
    assert.same({ 1, 1, 1, 1 }, gradient(function(a) -- within another
      return a["0:3"]:sum() + a["1:1"]:sum() + a["3:"]:sum() + a["4:"]:sum()
    end, 4))
    assert.same({ { 2, 0, 0, 0, 2 } }, gradient(function(a)
      return (torch.cat({ a[":, 0:1"], a[":, 3:3"], a[":, 4:5"] }, 1) * 2):sum()
    end, 1, 5))
  end)

  it("slices that are all empty", function()
    assert.same({ 0, 0 }, gradient(function(a)
      return a["1:1"]:sum() + a["2:"]:sum() + a["0:0"]:sum()
    end, 2))
    assert.same({ {}, {} }, gradient(function(a)
      return a[":, 0:"]:sum() + a[":, :0"]:sum()
    end, 2, 0))
  end)

  it("differences of neighbours", function()
    assert.same({ -1, 0, 0, 1 }, gradient(function(a)
      return torch.diff(a):sum()
    end, 4))
    assert.same({ { 0 }, { 0 } }, gradient(function(a)
      return torch.diff(a):sum()
    end, 2, 1))
    assert.same({ { { 0 }, { 0 } } }, gradient(function(a)
      return torch.cumulative_trapezoid(a):sum()
    end, 1, 2, 1))
  end)
end)
