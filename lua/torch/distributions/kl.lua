--- torch.distributions.kl_divergence and register_kl: formulas by pairs of
--- classes; a class without one takes its base's.
--- Source: PyTorch documentation, torch.distributions.kl; each is the mean of
--- log p - log q under p.
local base = require("torch.distributions.base")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local EULER = base.EULER
local LOG_2_PI = math.log(2 * math.pi)

local function torch()
  return require("torch")
end

local function where(condition, a, b)
  return torch().where(condition, a, b)
end

-- Of the dtype of p's parameters.
local function infinite(p, q)
  local shape = torch().broadcast_shapes(p.batch_shape, q.batch_shape)
  local kind
  for _, param in ipairs(getmetatable(p).body.params) do
    local t = rawget(p, param)
    kind = kind or core.is_tensor(t) and base.kind_of(t) or nil
  end
  return torch().full(shape, math.huge, kind)
end

local function normal_kl(p, q)
  local ratio = (p.scale / q.scale):pow(2)
  local far = p.loc and ((p.loc - q.loc) / q.scale):pow(2) or 0
  return 0.5 * (ratio + far - 1 - ratio:log())
end

local function classes_kl(p, q)
  local t = p.probs * (p.logits - q.logits)
  t = where(q.probs:eq(0), math.huge, t)
  return where(p.probs:eq(0), 0.0, t):sum(-1)
end

-- The mean of log q under p in [0, 1], q a ContinuousBernoulli: linear in x.
local function to_continuous(p, q)
  return q:log_prob(torch().zeros_like(q.probs)) + p.mean * q.logits
end

local divergence -- of two distributions, for those that are made of others

local SAME = {
  Normal = normal_kl, HalfNormal = normal_kl, LogNormal = normal_kl,
  Categorical = classes_kl, OneHotCategorical = classes_kl,
  Laplace = function(p, q)
    local ratio, far = p.scale / q.scale, (p.loc - q.loc):abs()
    return -ratio:log() + far / q.scale + ratio * (-far / p.scale):exp() - 1
  end,
  Cauchy = function(p, q)
    return ((p.scale + q.scale):pow(2) + (p.loc - q.loc):pow(2)):log()
      - (4 * p.scale * q.scale):log()
  end,
  Gumbel = function(p, q)
    local a, b = p.scale / q.scale, q.loc / q.scale
    local c = p.loc / q.scale
    return -a:log() - b + c + a * EULER + (b + (1 + a):lgamma() - c):exp() - (1 + EULER)
  end,
  Exponential = function(p, q)
    local ratio = q.rate / p.rate
    return ratio - 1 - ratio:log()
  end,
  Gamma = function(p, q)
    local a, b = p.concentration, q.concentration
    return b * (p.rate / q.rate):log() + b:lgamma() - a:lgamma() + (a - b) * a:digamma()
      + (q.rate - p.rate) * (a / p.rate)
  end,
  Beta = function(p, q)
    local p1, p0, q1, q0 = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    return q1:lgamma() + q0:lgamma() + (p1 + p0):lgamma() - p1:lgamma() - p0:lgamma()
      - (q1 + q0):lgamma() + (p1 - q1) * p1:digamma() + (p0 - q0) * p0:digamma()
      + (q1 + q0 - p1 - p0) * (p1 + p0):digamma()
  end,
  Dirichlet = function(p, q)
    local a, b = p.concentration, q.concentration
    local sum = a:sum(-1)
    return sum:lgamma() - b:sum(-1):lgamma() - (a:lgamma() - b:lgamma()):sum(-1)
      + ((a - b) * (a:digamma() - sum:digamma():unsqueeze(-1))):sum(-1)
  end,
  Pareto = function(p, q)
    local ratio = q.alpha / p.alpha
    local kl = q.alpha * (p.scale / q.scale):log() - ratio:log() + ratio - 1
    return where(p.scale:lt(q.scale), math.huge, kl)
  end,
  Uniform = function(p, q)
    local kl = ((q.high - q.low) / (p.high - p.low)):log()
    return where(q.low:gt(p.low):logical_or(q.high:lt(p.high)), math.huge, kl)
  end,
  Bernoulli = function(p, q)
    local a = torch().special.xlogy(p.probs, p.probs / q.probs)
    return a + torch().special.xlogy(1 - p.probs, (1 - p.probs) / (1 - q.probs))
  end,
  Geometric = function(p, q)
    return -p:entropy() - (-q.probs):log1p() / p.probs - q.logits
  end,
  Binomial = function(p, q)
    errors.check(base.all(p.total_count:ge(q.total_count)), "NotImplementedError",
      "kl_divergence: Binomial: the total count of q may not be greater than that of p")
    local kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs):log1p()
      - (-q.probs):log1p())
    return where(p.total_count:gt(q.total_count), math.huge, kl)
  end,
  Poisson = function(p, q)
    return p.rate * (p.rate:log() - q.rate:log()) - (p.rate - q.rate)
  end,
  MultivariateNormal = function(p, q) return p._divergence(p, q) end,
  LowRankMultivariateNormal = function(p, q) return p._divergence(p, q) end,
  ContinuousBernoulli = function(p, q)
    return -p:entropy() - to_continuous(p, q)
  end,
  TransformedDistribution = function(p, q)
    errors.check(#p.transforms == #q.transforms and p.event_shape == q.event_shape,
      "NotImplementedError", "kl_divergence: the transforms of p and q must be the same")
    for i, t in ipairs(p.transforms) do
      errors.check(t == q.transforms[i], "NotImplementedError",
        "kl_divergence: the transforms of p and q must be the same, number %d is %s and %s", i - 1,
        tostring(t), tostring(q.transforms[i]))
    end
    return divergence(p.base_dist, q.base_dist)
  end,
}

-- log q is a polynomial in x: by the moments of p.
local function to_normal(p, q)
  local v = q.scale:pow(2)
  return -p:entropy() + 0.5 * (LOG_2_PI + v:log())
    + 0.5 * (p.variance + (p.mean - q.loc):pow(2)) / v
end

local function to_exponential(p, q)
  return -p:entropy() - q.rate:log() + q.rate * p.mean
end

local function xlogx(x)
  return torch().special.xlogy(x, x)
end

-- The mean of log x, or of log(1 - x), under a uniform distribution of [a, b].
local function mean_log(a, b)
  return (xlogx(b) - xlogx(a)) / (b - a) - 1
end

-- inf where the condition holds.
local function unless(condition, value)
  return where(condition, math.huge, value)
end

local function to_gamma(p, q, log_mean)
  local c = q.concentration
  return -p:entropy() - c * q.rate:log() + c:lgamma() - (c - 1) * log_mean + q.rate * p.mean
end

-- Of what lies in [0, 1].
local function unit_to_uniform(p, q)
  return unless(q.low:gt(0):logical_or(q.high:lt(1)), -p:entropy() + (q.high - q.low):log())
end

local function outside_unit(p)
  return p.low:lt(0):logical_or(p.high:gt(1))
end

local PARETO = {
  Exponential = function(p, q) return unless(p.alpha:le(1), to_exponential(p, q)) end,
  Gamma = function(p, q)
    return unless(p.alpha:le(1), to_gamma(p, q, p.scale:log() + 1 / p.alpha))
  end,
  Normal = function(p, q) return unless(p.alpha:le(2), to_normal(p, q)) end,
  Beta = infinite, ContinuousBernoulli = infinite, Uniform = infinite,
}

local UNIFORM = {
  Normal = to_normal,
  Exponential = function(p, q) return unless(p.low:lt(0), to_exponential(p, q)) end,
  Beta = function(p, q)
    local a, b = q.concentration1, q.concentration0
    local log_q = (a - 1) * mean_log(p.low, p.high) + (b - 1) * mean_log(1 - p.high, 1 - p.low)
      - a:lgamma() - b:lgamma() + (a + b):lgamma()
    return unless(outside_unit(p), -p:entropy() - log_q)
  end,
  ContinuousBernoulli = function(p, q)
    return unless(outside_unit(p), -p:entropy() - to_continuous(p, q))
  end,
  Gamma = function(p, q)
    return unless(p.low:lt(0), to_gamma(p, q, mean_log(p.low, p.high)))
  end,
  Gumbel = function(p, q)
    local share, high, low = q.scale / (p.high - p.low), (p.high - q.loc) / q.scale,
      (p.low - q.loc) / q.scale
    return share:log() + 0.5 * (high + low) - share * ((-high):exp() - (-low):exp())
  end,
  Pareto = function(p, q)
    local a = q.alpha
    local kl = (a + 1) * mean_log(p.low, p.high) - a:log() - a * q.scale:log() - p:entropy()
    return unless(p.low:lt(q.scale), kl)
  end,
}

local OTHER = {
  Pareto = PARETO, Uniform = UNIFORM,
  ContinuousBernoulli = {
    Normal = to_normal, Exponential = to_exponential, Uniform = unit_to_uniform,
    Pareto = infinite,
  },
  LowRankMultivariateNormal = {
    MultivariateNormal = function(p, q) return p._divergence(p, q) end,
  },
  MultivariateNormal = {
    LowRankMultivariateNormal = function(p, q) return q._divergence(p, q) end,
  },
  Exponential = {
    Normal = to_normal,
    Gamma = function(p, q)
      local ratio, a = q.rate / p.rate, q.concentration
      return -a * ratio:log() + ratio + a:lgamma() + a * EULER - (1 + EULER)
    end,
    Gumbel = function(p, q)
      local product, far = p.rate * q.scale, q.loc / q.scale
      return product:log() - 1 + ((far:exp() * product) / (product + 1) - far) + 1 / product
    end,
    Beta = infinite, ContinuousBernoulli = infinite, Pareto = infinite, Uniform = infinite,
  },
  Gamma = {
    Normal = to_normal, Exponential = to_exponential,
    Gumbel = function(p, q)
      local product, far, a = p.rate * q.scale, q.loc / q.scale, p.concentration
      return (a - 1) * a:digamma() - a:lgamma() - a + product:log() + a / product
        + far:exp() * (1 + 1 / product):pow(-a) - far
    end,
    Beta = infinite, ContinuousBernoulli = infinite, Pareto = infinite, Uniform = infinite,
  },
  Beta = {
    Normal = to_normal, Exponential = to_exponential, Pareto = infinite,
    Uniform = unit_to_uniform,
    ContinuousBernoulli = function(p, q) return -p:entropy() - to_continuous(p, q) end,
    Gamma = function(p, q)
      local a, b = p.concentration1, p.concentration0
      return to_gamma(p, q, a:digamma() - (a + b):digamma())
    end,
  },
  Gumbel = {
    Normal = to_normal,
    Beta = infinite, ContinuousBernoulli = infinite, Exponential = infinite, Gamma = infinite,
    Pareto = infinite, Uniform = infinite,
  },
  Laplace = {
    Normal = to_normal,
    Beta = infinite, ContinuousBernoulli = infinite, Exponential = infinite, Gamma = infinite,
    Pareto = infinite, Uniform = infinite,
  },
  Normal = {
    Laplace = function(p, q)
      local far = p.loc - q.loc
      local z = far / p.scale
      local mean = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z:pow(2)):exp()
        + far * (z * math.sqrt(0.5)):erf()
      return -(p.scale / q.scale):log() + mean / q.scale - 0.5 * (1 + math.log(0.5 * math.pi))
    end,
    Gumbel = function(p, q)
      local v, far = (p.scale / q.scale):pow(2), (p.loc - q.loc) / q.scale
      return -0.5 * v:log() + far + (-far + 0.5 * v):exp() - 0.5 * (1 + LOG_2_PI)
    end,
    Beta = infinite, ContinuousBernoulli = infinite, Exponential = infinite, Gamma = infinite,
    Pareto = infinite, Uniform = infinite,
  },
  Bernoulli = {
    Poisson = function(p, q) return -p:entropy() - (p.probs * q.rate:log() - q.rate) end,
  },
  Poisson = { Bernoulli = infinite, Binomial = infinite },
}

-- class of p -> class of q -> function(p, q)
local registry = {}

local function register(P, Q, f)
  registry[P] = registry[P] or {}
  registry[P][Q] = f
end

local function formula(p, q)
  local P = class.of(p)
  while P do
    local Q = registry[P] and class.of(q)
    while Q do
      if registry[P][Q] then
        return registry[P][Q]
      end
      Q = rawget(Q, "__base")
    end
    P = rawget(P, "__base")
  end
  return nil
end

return function(D)
  local M = {}
  for name, f in pairs(SAME) do
    register(D[name], D[name], f)
  end
  for name, others in pairs(OTHER) do
    for other, f in pairs(others) do
      register(D[name], D[other], f)
    end
  end

  --- The Kullback-Leibler divergence of p from q, two distributions: the mean of
  --- log p - log q under p.
  --- error: NotImplementedError for a pair without a formula
  --- Source: PyTorch documentation, torch.distributions.kl
  ---@param p torch.distributions.Distribution
  ---@param q torch.distributions.Distribution
  ---@return torch.Tensor of the batches' common shape
  function M.kl_divergence(p, q)
    for _, d in ipairs({ p, q }) do
      errors.check(base.Distribution:is(d), "TypeError",
        "kl_divergence: expected distributions, got %s", check.describe(d))
    end
    if D.Independent:is(p) and D.Independent:is(q)
      and p.reinterpreted_batch_ndims == q.reinterpreted_batch_ndims then
      return p:_sum(M.kl_divergence(p.base_dist, q.base_dist))
    end
    local f = formula(p, q)
    errors.check(f, "NotImplementedError", "kl_divergence: no formula for %s and %s",
      getmetatable(p).__name, getmetatable(q).__name)
    return f(p, q)
  end

  divergence = M.kl_divergence

  --- Registers a formula: register_kl(P, Q)(function(p, q) … end). One of a
  --- class serves the classes that extend it.
  --- Source: PyTorch documentation, torch.distributions.kl.register_kl
  ---@param P table a class of distributions
  ---@param Q table
  ---@return fun(f: fun(p, q): torch.Tensor): fun(p, q): torch.Tensor
  function M.register_kl(P, Q)
    for _, cls in ipairs({ P, Q }) do
      errors.check(class.is_class(cls), "TypeError",
        "register_kl: expected a class of distributions, got %s", check.describe(cls))
    end
    return function(f)
      errors.check(type(f) == "function", "TypeError", "register_kl: expected a function, got %s",
        check.describe(f))
      register(P, Q, f)
      return f
    end
  end

  return M
end
