--- Golden cases of random functions: what is drawn has the shape, dtype and
--- distribution that the record names; see README.md.
local read = require("spec.golden.read")
local torch = require("torch")
local values = require("spec.golden.values")

local null = read.null

local function fail(...)
  error(string.format(...), 0)
end

local function flat(t)
  return t:detach():to(torch.float64):reshape({ -1 }):tolist()
end

local function moments(v)
  local sum, square = 0, 0
  for _, x in ipairs(v) do
    sum = sum + x
  end
  local mean = sum / #v
  for _, x in ipairs(v) do
    square = square + (x - mean) ^ 2
  end
  return mean, square / #v
end

local function check_moments(d, v)
  local mean, var = moments(v)
  if math.abs(mean - d.mean) >= 0.06 * math.sqrt(d.var) then
    fail("mean %.6g, expected %.6g", mean, d.mean)
  elseif math.abs(var - d.var) >= 0.15 * d.var then
    fail("variance %.6g, expected %.6g", var, d.var)
  end
end

-- The bounds are real numbers: an element may be one rounded to float32.
local function check_range(d, v)
  local low = d.low and d.low ~= null and d.low - 1e-7 * math.abs(d.low) or -math.huge
  local high = d.high and d.high ~= null and d.high + 1e-7 * math.abs(d.high) or math.huge
  for i, x in ipairs(v) do
    if x < low or x > high then
      fail("element %d is %.9g, outside of [%s, %s]", i - 1, x, tostring(d.low), tostring(d.high))
    elseif d.integer and x ~= math.floor(x) then
      fail("element %d is %.9g, no integer", i - 1, x)
    end
  end
end

local OWN = {
  permutation = function(_, v)
    table.sort(v)
    for i, x in ipairs(v) do
      if x ~= i - 1 then
        fail("no permutation: %g in place %d once sorted", x, i - 1)
      end
    end
  end,
  categorical = function(d, v)
    for k, p in ipairs(d.p) do
      local n = 0
      for _, x in ipairs(v) do
        n = n + (x == k - 1 and 1 or 0)
      end
      if math.abs(n / #v - p) > 0.02 or p == 0 and n > 0 then
        fail("class %d has the frequency %.4f, expected %.4f", k - 1, n / #v, p)
      end
    end
  end,
  orthogonal = function(d, _, t)
    local m = t:detach():to(torch.float64)
    local product = flat(m:matmul(m:t()))
    local n = m.shape[1]
    for i, x in ipairs(product) do
      local want = (i - 1) // n == (i - 1) % n and d.gain ^ 2 or 0
      if math.abs(x - want) > 1e-5 then
        fail("rows %d and %d have the product %.9g", (i - 1) // n, (i - 1) % n, x)
      end
    end
  end,
  values = function(d, v)
    for i, x in ipairs(d.values) do
      if v[i] ~= x then
        fail("element %d is %s, expected %.9g", i - 1, tostring(v[i]), x)
      end
    end
  end,
  sparse_columns = function(d, v, t)
    local rows, columns = t.shape[1], t.shape[2]
    for c = 1, columns do
      local zeros = 0
      for r = 1, rows do
        zeros = zeros + (v[(r - 1) * columns + c] == 0 and 1 or 0)
      end
      if zeros ~= d.zeros_per_column then
        fail("column %d has %d zeros, expected %d", c - 1, zeros, d.zeros_per_column)
      end
    end
  end,
}

-- Whole channels are dropped: one value over the dimensions named.
local function check_constant(dims, t)
  local least = t:amin(dims, true)
  if not torch.equal(least, t:amax(dims, true)) then
    fail("values differ over the dimensions %s", table.concat(dims, ", "))
  end
end

local function argument(a, load)
  if type(a) == "table" and a.full then
    return torch.full(a.full[1], a.full[2])
  elseif type(a) == "table" and a.values then
    return torch.tensor(a.values)
  elseif type(a) == "table" and a.randn then
    return torch.randn(a.randn)
  elseif type(a) == "table" and a[1] ~= nil then
    return a
  end
  return values.argument(a, load, {}, "")
end

local function draw(c, load)
  local args, kw = {}, {}
  for i, a in ipairs(c.args) do
    args[i] = argument(a, load)
  end
  for key, a in pairs(c.kwargs or {}) do
    kw[key] = argument(a, load)
  end
  if next(kw) ~= nil then
    args[#args + 1] = kw
  end
  local name = c.op:match("^module:(.+)$")
  if name then
    local cls = values.find(name) or values.skip(name)
    for at, p in cls(table.unpack(args)):named_parameters() do
      if at == c.distribution.parameter then
        return p
      end
    end
    fail("%s has no parameter %s", name, c.distribution.parameter)
  end
  return values.callable(c.op, "function")(table.unpack(args))
end

return function(c, load)
  torch.manual_seed(1)
  local t, d = draw(c, load), c.distribution
  if d.kind == "number" then
    if math.abs(t - d.value) > 1e-12 * math.abs(d.value) then
      fail("%s, expected %.17g", tostring(t), d.value)
    end
    return
  end
  values.check(t, { shape = c.shape, dtype = c.dtype }, c, load, "result")
  local v = flat(t)
  if OWN[d.kind] then
    OWN[d.kind](d, v, t)
    return
  end
  check_moments(d, v)
  check_range(d, v)
  if d.constant_over then
    check_constant(d.constant_over, t)
  end
end
