--- torch.distributions.transforms: maps of numbers and of vectors here, those
--- made of others in composed.lua, what all share in base.lua.
--- Source: PyTorch documentation, torch.distributions.transforms; the Stan
--- reference manual, "Constraint Transforms", for the simplex and correlations.
local Transform = require("torch.distributions.transforms.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = { Transform = Transform }

local function torch()
  return require("torch")
end

local function finfo(x)
  return torch().finfo(x.dtype)
end

-- A transform class: `init` gets the constructor's arguments, by name in
-- `names`, besides cache_size.
local function define(name, names, body)
  local cls = Transform:extend(name)
  names = { table.unpack(names) }
  names[#names + 1] = "cache_size"
  function cls:init(...)
    local a = check.arguments(name, names, nil, ...)
    Transform.init(self, a[#names])
    if body._setup then
      body._setup(self, table.unpack(a, 1, #names - 1))
    end
  end
  for key, value in pairs(body) do
    cls[key] = value
  end
  cls._same = body._same or function() return #names == 1 end
  M[name] = cls
end

local POINT, VECTOR, MATRIX = { event_dim = 0 }, { event_dim = 1 }, { event_dim = 2 }

-- ---- of numbers --------------------------------------------------------------

local function above_zero(y) return y:gt(0) end

define("ExpTransform", {}, {
  bijective = true, sign = 1, _inside = above_zero,
  _call = function(_, x) return x:exp() end,
  _inverse = function(_, y) return y:log() end,
  log_abs_det_jacobian = function(_, x) return x end,
})

-- Numbers of options: tensors, or numbers as they are.
local function equal(a, b)
  if core.is_tensor(a) or core.is_tensor(b) then
    return rawequal(a, b) or torch().eq(torch().as_tensor(a), torch().as_tensor(b)):all():item()
  end
  return a == b
end

local function option(value, where)
  errors.check(core.is_tensor(value) or type(value) == "number", "TypeError",
    "%s: expected a Tensor or a number, got %s", where, check.describe(value))
  return value
end

local function broadcast(shape, ...)
  for _, value in ipairs({ ... }) do
    shape = core.is_tensor(value) and torch().broadcast_shapes(shape, value.shape) or shape
  end
  return shape
end

define("PowerTransform", { "exponent" }, {
  bijective = true, _inside = above_zero,
  _properties = {
    sign = function(self)
      return core.is_tensor(self.exponent) and self.exponent:sign()
        or self.exponent < 0 and -1 or self.exponent > 0 and 1 or 0
    end,
  },
  _setup = function(self, exponent)
    rawset(self, "exponent", option(exponent, "PowerTransform: exponent"))
  end,
  _call = function(self, x) return x:pow(self.exponent) end,
  _inverse = function(self, y) return y:pow(1 / self.exponent) end,
  log_abs_det_jacobian = function(self, x, y) return (self.exponent * y / x):abs():log() end,
  forward_shape = function(self, shape) return broadcast(shape, self.exponent) end,
  inverse_shape = function(self, shape) return broadcast(shape, self.exponent) end,
  _same = function(self, other) return equal(self.exponent, other.exponent) end,
})

-- In (0, 1), whatever the rounding.
local function inner(y)
  return y:clamp(finfo(y).tiny, 1 - finfo(y).eps)
end

local function softplus(x) return torch().nn.functional.softplus(x) end

define("SigmoidTransform", {}, {
  bijective = true, sign = 1,
  _inside = function(y) return y:ge(0):logical_and(y:le(1)) end,
  _call = function(_, x) return inner(x:sigmoid()) end,
  _inverse = function(_, y)
    y = inner(y)
    return y:log() - (-y):log1p()
  end,
  log_abs_det_jacobian = function(_, x) return -softplus(-x) - softplus(x) end,
})

define("SoftplusTransform", {}, {
  bijective = true, sign = 1, _inside = above_zero,
  _call = function(_, x) return softplus(x) end,
  _inverse = function(_, y) return (-((-y):expm1())):log() + y end,
  log_abs_det_jacobian = function(_, x) return -softplus(-x) end,
})

define("TanhTransform", {}, {
  bijective = true, sign = 1,
  _inside = function(y) return y:ge(-1):logical_and(y:le(1)) end,
  _call = function(_, x) return x:tanh() end,
  _inverse = function(_, y) return y:atanh() end, -- 1 is infinite: see cache_size
  log_abs_det_jacobian = function(_, x) return 2 * (math.log(2) - x - softplus(-2 * x)) end,
})

define("AbsTransform", {}, {
  _inside = above_zero,
  _call = function(_, x) return x:abs() end,
  _inverse = function(_, y) return y end,
})

define("AffineTransform", { "loc", "scale", "event_dim" }, {
  bijective = true,
  _properties = {
    domain = function(self) return self.points end,
    codomain = function(self) return self.points end,
    sign = function(self)
      return core.is_tensor(self.scale) and self.scale:sign()
        or self.scale > 0 and 1 or self.scale < 0 and -1 or 0
    end,
  },
  _setup = function(self, loc, scale, event_dim)
    rawset(self, "loc", option(loc, "AffineTransform: loc"))
    rawset(self, "scale", option(scale, "AffineTransform: scale"))
    rawset(self, "points", { event_dim = check.int(event_dim or 0, "AffineTransform: event_dim",
      { min = 0 }) })
  end,
  _call = function(self, x) return self.loc + self.scale * x end,
  _inverse = function(self, y) return (y - self.loc) / self.scale end,
  log_abs_det_jacobian = function(self, x)
    local scale = self.scale
    local log = core.is_tensor(scale) and scale:abs():log():expand(x.shape)
      or torch().full_like(x, math.log(math.abs(scale)))
    return Transform._sum(log, self.points.event_dim)
  end,
  forward_shape = function(self, shape) return broadcast(shape, self.loc, self.scale) end,
  inverse_shape = function(self, shape) return broadcast(shape, self.loc, self.scale) end,
  _same = function(self, other)
    return equal(self.loc, other.loc) and equal(self.scale, other.scale)
  end,
})

define("CumulativeDistributionTransform", { "distribution" }, {
  bijective = true, sign = 1,
  _inside = function(y) return y:ge(0):logical_and(y:le(1)) end,
  _setup = function(self, distribution) rawset(self, "distribution", distribution) end,
  _call = function(self, x) return self.distribution:cdf(x) end,
  _inverse = function(self, y) return self.distribution:icdf(y) end,
  log_abs_det_jacobian = function(self, x) return self.distribution:log_prob(x) end,
})

-- ---- of vectors ----------------------------------------------------------------

-- A shape with its last n sizes replaced.
local function resized(shape, n, ...)
  errors.check(#shape >= n, "ValueError", "Too few dimensions on input")
  local out = { table.unpack(shape, 1, #shape - n) }
  for _, size in ipairs({ ... }) do
    out[#out + 1] = size
  end
  return out
end

local function on_simplex(y)
  return y:ge(0):all(-1):logical_and((y:sum(-1) - 1):abs():lt(1e-6))
end

define("SoftmaxTransform", {}, {
  domain = VECTOR, codomain = VECTOR, _inside = on_simplex,
  _call = function(_, x) return torch().nn.functional.softmax(x, -1) end,
  _inverse = function(_, y) return y:log() end,
  forward_shape = function(_, shape) return resized(shape, 1, shape[#shape]) end,
  inverse_shape = function(_, shape) return resized(shape, 1, shape[#shape]) end,
})

-- x shifted so that 0 makes all parts alike: by the log of the parts left.
local function shifted(x)
  local n = x:size(-1)
  return x - torch().arange(n, 0, -1, { dtype = x.dtype }):log()
end

-- 1 before (or after) the elements of the last dimension.
local function padded(x, before)
  return torch().nn.functional.pad(x, before and { 1, 0 } or { 0, 1 }, { value = 1 })
end

define("StickBreakingTransform", {}, {
  bijective = true, domain = VECTOR, codomain = VECTOR, _inside = on_simplex,
  _call = function(_, x)
    local z = inner(shifted(x):sigmoid())
    return padded(z, false) * padded((1 - z):cumprod(-1), true)
  end,
  _inverse = function(_, y)
    local part = y:narrow(-1, 0, y:size(-1) - 1)
    local rest = (1 - part:cumsum(-1)):clamp_min(finfo(y).tiny)
    local zero = torch().zeros_like(part)
    return part:log() - rest:log() - shifted(zero)
  end,
  log_abs_det_jacobian = function(_, x, y)
    local z = shifted(x)
    return (torch().nn.functional.logsigmoid(z) - z + y:narrow(-1, 0, x:size(-1)):log()):sum(-1)
  end,
  forward_shape = function(_, shape) return resized(shape, 1, (shape[#shape] or 0) + 1) end,
  inverse_shape = function(_, shape) return resized(shape, 1, (shape[#shape] or 0) - 1) end,
})

-- ---- of matrices ---------------------------------------------------------------

local function with_diagonal(x, f)
  return x:tril(-1) + f(x:diagonal({ dim1 = -2, dim2 = -1 })):diag_embed()
end

local function factor_of(x)
  return with_diagonal(x, function(d) return d:exp() end)
end

local function free_of(y)
  return with_diagonal(y, function(d) return d:log() end)
end

define("LowerCholeskyTransform", {}, {
  domain = MATRIX, codomain = MATRIX,
  _call = function(_, x) return factor_of(x) end,
  _inverse = function(_, y) return free_of(y) end,
})

define("PositiveDefiniteTransform", {}, {
  domain = MATRIX, codomain = MATRIX,
  _call = function(_, x)
    local lower = factor_of(x)
    return lower:matmul(lower.mT)
  end,
  _inverse = function(_, y) return free_of(torch().linalg.cholesky(y)) end,
})

-- Places of the lower triangle of [n, n] below diagonal `at`, row by row.
local function places(n, at)
  local out = {}
  for i = 0, n - 1 do
    for j = 0, math.min(i + at, n - 1) do
      out[#out + 1] = i * n + j
    end
  end
  return torch().tensor(out, { dtype = torch().int64 })
end

local function rows_of(n)
  local rows = math.floor((0.25 + 2 * n) ^ 0.5 + 1)
  errors.check(rows * (rows - 1) // 2 == n, "ValueError",
    "Input is not a flattened lower-diagonal number")
  return rows
end

local function to_matrix(x)
  local n = rows_of(x:size(-1))
  local shape = { table.unpack(x.shape) }
  shape[#shape] = n * n
  local flat = torch().zeros(shape, { dtype = x.dtype }):index_copy(-1, places(n, -1), x)
  shape[#shape], shape[#shape + 1] = n, n
  return flat:reshape(shape)
end

local function to_vector(y, at)
  return y:flatten(-2):index_select(-1, places(y:size(-1), at))
end

define("CorrCholeskyTransform", {}, {
  bijective = true, domain = VECTOR, codomain = MATRIX,
  _call = function(_, x)
    local eps = finfo(x).eps
    local r = to_matrix(x:tanh():clamp(-1 + eps, 1 - eps))
    local rest = (1 - r * r):sqrt():cumprod(-1)
    local n = r:size(-1)
    return (r + torch().eye(n, { dtype = r.dtype })) * padded(rest:narrow(-1, 0, n - 1), true)
  end,
  _inverse = function(_, y)
    local n = y:size(-1)
    local rest = padded((1 - (y * y):cumsum(-1)):narrow(-1, 0, n - 1), true)
    return (to_vector(y, -1) / to_vector(rest, -1):sqrt()):atanh()
  end,
  log_abs_det_jacobian = function(_, x, y)
    local rest = to_vector(1 - (y * y):cumsum(-1), -2)
    return 0.5 * rest:log():sum(-1) - 2 * (x + softplus(-2 * x) - math.log(2)):sum(-1)
  end,
  forward_shape = function(_, shape)
    errors.check(#shape >= 1, "ValueError", "Too few dimensions on input")
    local n = rows_of(shape[#shape])
    return resized(shape, 1, n, n)
  end,
  inverse_shape = function(_, shape)
    local n = shape[#shape]
    errors.check(#shape < 2 or shape[#shape - 1] == n, "ValueError", "Input is not square")
    return resized(shape, 2, n and n * (n - 1) // 2)
  end,
})

M._define, M._resized, M._POINT = define, resized, POINT

for name, cls in pairs(require("torch.distributions.transforms.composed")(M)) do
  M[name] = cls
end

return M
