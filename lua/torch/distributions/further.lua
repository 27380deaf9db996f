--- Distributions of angles (VonMises), of ratios (FisherSnedecor), of the unit
--- interval (Kumaraswamy, ContinuousBernoulli) and of tails
--- (GeneralizedPareto).
--- Source: PyTorch documentation, torch.distributions; Best and Fisher, 1979;
--- Kumaraswamy, 1980; Loaiza-Ganem and Cunningham, 2019.
local base = require("torch.distributions.base")
local check = require("lupine.check")

local EULER = 0.57721566490153286060

local function torch()
  return require("torch")
end

local function nan_like(x)
  return torch().full_like(x, 0.0 / 0.0)
end

local function all_positive(name, ...)
  local params = { ... }
  return function(d)
    for _, param in ipairs(params) do
      base.positive(d, name, param)
    end
  end
end

-- ---- angles ------------------------------------------------------------------

-- Angles around 0 by rejection from a wrapped Cauchy distribution.
local function angles(k)
  local t = torch()
  local tau = 1 + (1 + 4 * k:pow(2)):sqrt()
  local rho = (tau - (2 * tau):sqrt()) / (2 * k)
  local r = t.where(k:lt(1e-5), 1 / k + k, (1 + rho:pow(2)) / (2 * rho))
  local x, done = t.zeros_like(k), t.zeros_like(k):ne(0)
  while not done:all():item() do
    local z = (math.pi * t.rand(k.shape, base.kind_of(k))):cos()
    local f = (1 + r * z) / (r + z)
    local c, u = k * (r - f), t.rand(k.shape, base.kind_of(k))
    local taken = (c * (2 - c) - u):gt(0):logical_or(((c / u):log() + 1 - c):ge(0))
    local sign = (t.rand(k.shape, base.kind_of(k)) - 0.5):sign()
    x = t.where(taken:logical_and(done:logical_not()), sign * f:clamp(-1, 1):acos(), x)
    done = done:logical_or(taken)
  end
  return x
end

local von_mises = {
  params = { "loc", "concentration" },
  setup = base.elementwise,
  check = all_positive("VonMises", "concentration"),
  mean = function(d) return d.loc end,
  mode = function(d) return d.loc end,
  variance = function(d)
    local special = torch().special
    return 1 - special.i1e(d.concentration) / special.i0e(d.concentration)
  end,
  sample = function(d, shape)
    local k = d.concentration:expand(base.extended(d, shape))
    return (angles(k) + math.pi + d.loc):remainder(2 * math.pi) - math.pi
  end,
  log_prob = function(d, x)
    local k = d.concentration
    return k * ((x - d.loc):cos() - 1) - math.log(2 * math.pi) - torch().special.i0e(k):log()
  end,
}

-- ---- ratios ------------------------------------------------------------------

local function chi_share(d, shape, df)
  local half = (df / 2):expand(base.extended(d, shape))
  return torch()._standard_gamma(half):clamp_min(torch().finfo(df.dtype).tiny) / half
end

-- A value where the condition holds, else NaN.
local function defined(condition, value)
  return torch().where(condition, value, nan_like(value))
end

local fisher = {
  params = { "df1", "df2" },
  setup = base.elementwise,
  check = all_positive("FisherSnedecor", "df1", "df2"),
  support = function(_, x) return x:gt(0) end,
  mean = function(d) return defined(d.df2:gt(2), d.df2 / (d.df2 - 2)) end,
  mode = function(d)
    return defined(d.df1:gt(2), (d.df1 - 2) / d.df1 * d.df2 / (d.df2 + 2))
  end,
  variance = function(d)
    local a, b = d.df1, d.df2
    return defined(b:gt(4), 2 * b:pow(2) * (a + b - 2) / (a * (b - 2):pow(2) * (b - 4)))
  end,
  rsample = function(d, shape)
    return chi_share(d, shape, d.df1) / chi_share(d, shape, d.df2)
  end,
  log_prob = function(d, x)
    local a, b, ratio = d.df1 / 2, d.df2 / 2, d.df1 / d.df2
    return (a + b):lgamma() - a:lgamma() - b:lgamma() + a * ratio:log() + (a - 1) * x:log()
      - (a + b) * (ratio * x):log1p()
  end,
}

-- ---- the unit interval -------------------------------------------------------

local function in_unit(_, x)
  return x:ge(0):logical_and(x:le(1))
end

-- The mean of x^n.
local function moment(d, n)
  local a, b = 1 + n / d.concentration1, d.concentration0
  return (b:log() + a:lgamma() + b:lgamma() - (a + b):lgamma()):exp()
end

local kumaraswamy = {
  params = { "concentration1", "concentration0" },
  setup = base.elementwise,
  check = all_positive("Kumaraswamy", "concentration1", "concentration0"),
  support = in_unit,
  mean = function(d) return moment(d, 1) end,
  variance = function(d) return moment(d, 2) - moment(d, 1):pow(2) end,
  mode = function(d)
    local a, b = d.concentration1, d.concentration0
    return defined(a:ge(1):logical_and(b:ge(1)), ((a - 1) / (a * b - 1)):pow(1 / a))
  end,
  entropy = function(d)
    local a, b = d.concentration1, d.concentration0
    return 1 - 1 / b + (1 - 1 / a) * ((b + 1):digamma() + EULER) - a:log() - b:log()
  end,
  rsample = function(d, shape)
    local u = base.uniform(d, shape, d.concentration1)
    return (-(u:log() / d.concentration0):expm1()):pow(1 / d.concentration1)
  end,
  log_prob = function(d, x)
    local a, b = d.concentration1, d.concentration0
    return a:log() + b:log() + (a - 1):xlogy(x) + (b - 1) * (-x:pow(a)):log1p()
  end,
  cdf = function(d, x) return 1 - (1 - x:pow(d.concentration1)):pow(d.concentration0) end,
  icdf = function(d, p)
    return (1 - (1 - p):pow(1 / d.concentration0)):pow(1 / d.concentration1)
  end,
}

-- p near 1/2 gives 0/0 in the formulas: a polynomial in p - 1/2 there.
local LOW, HIGH = 0.499, 0.501

local function apart(d)
  local p = base.inner(d.probs)
  local near = p:ge(LOW):logical_and(p:le(HIGH))
  return p, near, torch().where(near, torch().full_like(p, LOW), p), p - 0.5
end

-- log of what makes the density integrate to 1.
local function normalizer_ln(d)
  local _, near, far, x = apart(d)
  local exact = ((-far):log1p() - far:log()):abs():log() - (1 - 2 * far):abs():log()
  local square = x:pow(2)
  return torch().where(near, math.log(2) + (4 / 3 + 104 / 45 * square) * square, exact)
end

local continuous = {
  params = { "probs", "logits" },
  setup = function(d, a) base.probs_or_logits(d, "ContinuousBernoulli", a) end,
  check = base.check_probs("ContinuousBernoulli"),
  support = in_unit,
  mean = function(d)
    local _, near, far, x = apart(d)
    local exact = far / (2 * far - 1) + 1 / ((-far):log1p() - far:log())
    return torch().where(near, 0.5 + (1 / 3 + 16 / 45 * x:pow(2)) * x, exact)
  end,
  variance = function(d)
    local _, near, far, x = apart(d)
    local exact = far * (far - 1) / (1 - 2 * far):pow(2) + ((-far):log1p() - far:log()):pow(-2)
    local square = x:pow(2)
    return torch().where(near, 1 / 12 - (1 / 15 - 128 / 945 * square) * square, exact)
  end,
  entropy = function(d)
    local p = base.inner(d.probs)
    local log0, log1 = (-p):log1p(), p:log()
    return d.mean * (log0 - log1) - normalizer_ln(d) - log0
  end,
  log_prob = function(d, x)
    local logits, value = table.unpack(torch().broadcast_tensors(d.logits, x:to(d.logits.dtype)))
    return normalizer_ln(d) - torch().nn.functional.binary_cross_entropy_with_logits(logits,
      value, { reduction = "none" })
  end,
  cdf = function(d, x)
    local _, near, far = apart(d)
    local exact = (far:pow(x) * (1 - far):pow(1 - x) + far - 1) / (2 * far - 1)
    return torch().where(near, x, exact):clamp(0, 1)
  end,
  icdf = function(d, u)
    local _, near, far = apart(d)
    local exact = ((-far + u * (2 * far - 1)):log1p() - (-far):log1p())
      / (far:log() - (-far):log1p())
    return torch().where(near, u, exact)
  end,
}

function continuous.rsample(d, shape)
  return continuous.icdf(d, base.uniform(d, shape, d.probs))
end

-- ---- tails ----------------------------------------------------------------------

-- f(c) where the concentration is not 0, else the exponential's.
local function by_tail(d, exact, limit)
  local zero = d.concentration:abs():le(1e-8)
  local c = torch().where(zero, torch().ones_like(d.concentration), d.concentration)
  return torch().where(zero, limit, exact(c))
end

local pareto = {
  params = { "loc", "scale", "concentration" },
  setup = base.elementwise,
  check = all_positive("GeneralizedPareto", "scale"),
  support = function(d, x)
    local last = torch().where(d.concentration:lt(0), d.loc - d.scale / d.concentration, math.huge)
    return x:ge(d.loc):logical_and(x:le(last))
  end,
  mean = function(d)
    local c = d.concentration
    return defined(c:lt(1), d.loc + d.scale / (1 - c))
  end,
  mode = function(d) return d.loc end,
  variance = function(d)
    local c = d.concentration
    return defined(c:lt(0.5), d.scale:pow(2) / ((1 - c):pow(2) * (1 - 2 * c)))
  end,
  entropy = function(d) return d.scale:log() + d.concentration + 1 end,
  log_prob = function(d, x)
    local z = (x - d.loc) / d.scale
    return -d.scale:log() - by_tail(d, function(c) return (1 + 1 / c) * (c * z):log1p() end, z)
  end,
  cdf = function(d, x)
    local z = (x - d.loc) / d.scale
    return by_tail(d, function(c) return -(-(c * z):log1p() / c):expm1() end, -(-z):expm1())
  end,
  icdf = function(d, p)
    local log = -(-p):log1p()
    return d.loc + d.scale * by_tail(d, function(c) return (c * log):expm1() / c end, log)
  end,
}

function pareto.rsample(d, shape)
  return pareto.icdf(d, base.uniform(d, shape, d.loc))
end

-- ---- correlations ----------------------------------------------------------------

-- The factor of a correlation matrix of `dim` rows: each row is a random point
-- of the sphere (the "onion").
local function define_lkj(M)
  local cls = base.Distribution:extend("LKJCholesky")
  cls.body = {}

  --- Lower Cholesky factors of correlation matrices, whose density goes with
  --- the determinant to the power concentration - 1 (Lewandowski et al., 2009).
  ---@param ... any dim (2 or more), concentration (1), validate_args (true)
  function cls:init(...)
    local a = check.arguments("LKJCholesky", { "dim", "concentration", "validate_args" }, nil, ...)
    local dim = check.int(a[1], "LKJCholesky: dim", { min = 2 })
    self.dim = dim
    base.elementwise(self, { concentration = a[2] or 1.0 })
    self.event_shape = require("lupine.core").Size({ dim, dim })
    self.validated = a[3] ~= false
    if self.validated then
      base.positive(self, "LKJCholesky", "concentration")
    end
  end
  cls.body.params = { "concentration" }

  function cls.body.sample(d, shape)
    local t, n, kind = torch(), d.dim, base.kind_of(d.concentration)
    local whole = base.extended(d, shape)
    local batch = { table.unpack(whole, 1, #whole - 2) }
    local i = t.arange(-1, n - 1, kind):clamp_min(0)
    local rows = { table.unpack(batch) }
    rows[#rows + 1] = n
    local b = (d.concentration + 0.5 * (n - 2)):unsqueeze(-1) - 0.5 * i
    local share = M.Beta((0.5 * i + 0.5):expand(rows), b:expand(rows)):sample():unsqueeze(-1)
    local u = t.randn(whole, kind):tril(-1)
    u = u / u:norm(2, -1, { keepdim = true }):clamp_min(t.finfo(kind.dtype).tiny)
    local w = share:sqrt() * u
    local eps = t.finfo(kind.dtype).tiny
    return w + (1 - w:pow(2):sum(-1)):clamp_min(eps):sqrt():diag_embed()
  end

  function cls.body.log_prob(d, x)
    local t, n = torch(), d.dim
    local diagonal = x:diagonal({ dim1 = -2, dim2 = -1 }):narrow(-1, 1, n - 1)
    local order = t.arange(2, n + 1, base.kind_of(d.concentration))
    local power = 2 * (d.concentration - 1):unsqueeze(-1) + n - order
    local m = n - 1
    local alpha = d.concentration + 0.5 * m
    local norm = 0.5 * m * math.log(math.pi) + t.mvlgamma(alpha - 0.5, m) - alpha:lgamma() * m
    return (power * diagonal:log()):sum(-1) - norm
  end
  M.LKJCholesky = cls
end

return function(M)
  M.VonMises = base.define("VonMises", von_mises)
  M.FisherSnedecor = base.define("FisherSnedecor", fisher)
  M.Kumaraswamy = base.define("Kumaraswamy", kumaraswamy)
  M.ContinuousBernoulli = base.define("ContinuousBernoulli", continuous)
  M.GeneralizedPareto = base.define("GeneralizedPareto", pareto)
  define_lkj(M)
end
