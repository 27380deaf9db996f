--- Distributions of positive numbers and of parts of one: halves of symmetric
--- ones, powers of exponential numbers, gamma's relatives, FisherSnedecor; and
--- Student's, which is drawn by gamma, and GeneralizedPareto.
--- Source: PyTorch documentation, torch.distributions.
local base = require("torch.distributions.base")

local EULER, all_positive, defined = base.EULER, base.all_positive, base.defined
local LOG_2 = math.log(2)

local function torch()
  return require("torch")
end

local function above_zero(_, x)
  return x:ge(0)
end

-- Draws of gamma's distribution of scale 1, which a gradient goes through.
local function gamma_draws(d, shape, concentration)
  local a = concentration:expand(base.extended(d, shape))
  return torch()._standard_gamma(a):clamp_min(torch().finfo(a.dtype).tiny)
end

-- log of the beta function
local function beta_ln(a, b)
  return a:lgamma() + b:lgamma() - (a + b):lgamma()
end

-- ---- ratios ------------------------------------------------------------------

local function chi_share(d, shape, df)
  local half = (df / 2):expand(base.extended(d, shape))
  return torch()._standard_gamma(half):clamp_min(torch().finfo(df.dtype).tiny) / half
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

return function(M)
  -- The absolute value of a number of a distribution around 0.
  local function half(name, whole, body)
    local function of(d)
      return M[whole](torch().zeros_like(d.scale), d.scale, { validate_args = false })
    end
    body.params = { "scale" }
    body.setup = base.elementwise
    body.check = all_positive(name, "scale")
    body.support = above_zero
    body.mode = function(d) return torch().zeros_like(d.scale) end
    body.entropy = function(d) return of(d):entropy() - LOG_2 end
    body.rsample = function(d, shape) return of(d):rsample(shape):abs() end
    body.log_prob = function(d, x)
      return torch().where(x:ge(0), of(d):log_prob(x) + LOG_2, -math.huge)
    end
    body.cdf = function(d, x) return 2 * of(d):cdf(x) - 1 end
    body.icdf = function(d, p) return of(d):icdf((p + 1) / 2) end
    M[name] = base.define(name, body)
  end

  half("HalfNormal", "Normal", {
    mean = function(d) return d.scale * math.sqrt(2 / math.pi) end,
    variance = function(d) return d.scale:pow(2) * (1 - 2 / math.pi) end,
  })

  half("HalfCauchy", "Cauchy", {
    mean = function(d) return torch().full_like(d.scale, math.huge) end,
    variance = function(d) return torch().full_like(d.scale, math.huge) end,
  })

  -- ---- powers ------------------------------------------------------------------

  M.Pareto = base.define("Pareto", {
    params = { "scale", "alpha" },
    setup = base.elementwise,
    check = all_positive("Pareto", "scale", "alpha"),
    support = function(d, x) return x:ge(d.scale) end,
    mean = function(d)
      local a = d.alpha:clamp_min(1)
      return a * d.scale / (a - 1)
    end,
    mode = function(d) return d.scale end,
    variance = function(d)
      local a = d.alpha:clamp_min(2)
      return d.scale:pow(2) * a / ((a - 1):pow(2) * (a - 2))
    end,
    entropy = function(d) return (d.scale / d.alpha):log() + (1 + 1 / d.alpha) end,
    rsample = function(d, shape)
      return d.scale * (-base.uniform(d, shape, d.scale):log() / d.alpha):exp()
    end,
    log_prob = function(d, x)
      return d.alpha:log() + d.alpha * d.scale:log() - (d.alpha + 1) * x:log()
    end,
    cdf = function(d, x) return 1 - (d.scale / x):pow(d.alpha) end,
    icdf = function(d, p) return d.scale * (1 - p):pow(-1 / d.alpha) end,
  })

  M.Weibull = base.define("Weibull", {
    params = { "scale", "concentration" },
    setup = base.elementwise,
    check = all_positive("Weibull", "scale", "concentration"),
    support = function(_, x) return x:gt(0) end,
    mean = function(d) return d.scale * (1 + 1 / d.concentration):lgamma():exp() end,
    mode = function(d)
      local k = d.concentration
      return d.scale * ((k - 1) / k):pow(1 / k)
    end,
    variance = function(d)
      local once = (1 + 1 / d.concentration):lgamma()
      return d.scale:pow(2) * ((1 + 2 / d.concentration):lgamma():exp() - (2 * once):exp())
    end,
    entropy = function(d)
      return EULER * (1 - 1 / d.concentration) + (d.scale / d.concentration):log() + 1
    end,
    rsample = function(d, shape)
      local e = -base.uniform(d, shape, d.scale):log()
      return d.scale * e:pow(1 / d.concentration)
    end,
    log_prob = function(d, x)
      local y = x:log() - d.scale:log()
      return (d.concentration / d.scale):log() + (d.concentration - 1) * y
        - (d.concentration * y):exp()
    end,
    cdf = function(d, x) return -(-(x / d.scale):pow(d.concentration)):expm1() end,
    icdf = function(d, p) return d.scale * (-(-p):log1p()):pow(1 / d.concentration) end,
  })

  -- ---- gamma -------------------------------------------------------------------

  local gamma = {
    params = { "concentration", "rate" },
    setup = base.elementwise,
    check = all_positive("Gamma", "concentration", "rate"),
    support = above_zero,
    mean = function(d) return d.concentration / d.rate end,
    mode = function(d) return ((d.concentration - 1) / d.rate):clamp_min(0) end,
    variance = function(d) return d.concentration / d.rate:pow(2) end,
    entropy = function(d)
      local a = d.concentration
      return a - d.rate:log() + a:lgamma() + (1 - a) * a:digamma()
    end,
    rsample = function(d, shape)
      return (gamma_draws(d, shape, d.concentration) / d.rate)
        :clamp_min(torch().finfo(d.rate.dtype).tiny)
    end,
    log_prob = function(d, x)
      return d.concentration:xlogy(d.rate) + (d.concentration - 1):xlogy(x) - d.rate * x
        - d.concentration:lgamma()
    end,
    cdf = function(d, x)
      local a, y = table.unpack(torch().broadcast_tensors(d.concentration, d.rate * x))
      return torch().special.gammainc(a, y)
    end,
  }
  M.Gamma = base.define("Gamma", gamma)

  local chi2 = { params = { "df" }, check = all_positive("Chi2", "df") }
  for key, value in pairs(gamma) do
    chi2[key] = chi2[key] or value
  end
  function chi2.setup(d, a)
    base.elementwise(d, a)
    rawset(d, "concentration", d.df * 0.5)
    rawset(d, "rate", torch().full_like(d.df, 0.5))
  end
  M.Chi2 = base.define("Chi2", chi2, M.Gamma)

  M.InverseGamma = base.define("InverseGamma", {
    params = { "concentration", "rate" },
    setup = base.elementwise,
    check = all_positive("InverseGamma", "concentration", "rate"),
    support = function(_, x) return x:gt(0) end,
    mean = function(d)
      local a = d.concentration
      return torch().where(a:gt(1), d.rate / (a - 1), math.huge)
    end,
    mode = function(d) return d.rate / (d.concentration + 1) end,
    variance = function(d)
      local a = d.concentration
      return torch().where(a:gt(2), d.rate:pow(2) / ((a - 1):pow(2) * (a - 2)), math.huge)
    end,
    entropy = function(d)
      local a = d.concentration
      return a + d.rate:log() + a:lgamma() - (1 + a) * a:digamma()
    end,
    rsample = function(d, shape) return d.rate / gamma_draws(d, shape, d.concentration) end,
    log_prob = function(d, x)
      local a = d.concentration
      return a:xlogy(d.rate) - (a + 1) * x:log() - d.rate / x - a:lgamma()
    end,
    cdf = function(d, x)
      local a, y = table.unpack(torch().broadcast_tensors(d.concentration, d.rate / x))
      return torch().special.gammaincc(a, y)
    end,
  })

  -- ---- parts of one --------------------------------------------------------------

  M.Beta = base.define("Beta", {
    params = { "concentration1", "concentration0" },
    setup = base.elementwise,
    check = all_positive("Beta", "concentration1", "concentration0"),
    support = function(_, x) return x:ge(0):logical_and(x:le(1)) end,
    mean = function(d) return d.concentration1 / (d.concentration1 + d.concentration0) end,
    -- both below 1: the density rises to both ends, and Dirichlet's rule takes
    -- the first of the greatest, of two that are cut to 0
    mode = function(d)
      local a, b = (d.concentration1 - 1):clamp_min(0), (d.concentration0 - 1):clamp_min(0)
      local both = d.concentration1:lt(1):logical_and(d.concentration0:lt(1))
      return torch().where(both, 1.0, a / (a + b))
    end,
    variance = function(d)
      local sum = d.concentration1 + d.concentration0
      return d.concentration1 * d.concentration0 / (sum:pow(2) * (sum + 1))
    end,
    entropy = function(d)
      local a, b = d.concentration1, d.concentration0
      return beta_ln(a, b) - (a - 1) * a:digamma() - (b - 1) * b:digamma()
        + (a + b - 2) * (a + b):digamma()
    end,
    rsample = function(d, shape)
      local x = gamma_draws(d, shape, d.concentration1)
      return x / (x + gamma_draws(d, shape, d.concentration0))
    end,
    log_prob = function(d, x)
      return (d.concentration1 - 1):xlogy(x) + torch().special.xlog1py(d.concentration0 - 1, -x)
        - beta_ln(d.concentration1, d.concentration0)
    end,
  })

  -- ---- Student's -----------------------------------------------------------------

  -- log of the density's constant
  local function student_constant(d)
    return d.scale:log() + 0.5 * d.df:log() + 0.5 * math.log(math.pi) + (0.5 * d.df):lgamma()
      - (0.5 * (d.df + 1)):lgamma()
  end

  M.StudentT = base.define("StudentT", {
    params = { "df", "loc", "scale" },
    defaults = { loc = 0.0, scale = 1.0 },
    setup = base.elementwise,
    check = all_positive("StudentT", "df", "scale"),
    mean = function(d) return torch().where(d.df:gt(1), d.loc, 0 / 0) end,
    mode = function(d) return d.loc end,
    variance = function(d)
      local v = torch().where(d.df:gt(2), d.scale:pow(2) * d.df / (d.df - 2), math.huge)
      return torch().where(d.df:gt(1), v, 0 / 0)
    end,
    entropy = function(d)
      local h = 0.5 * (d.df + 1)
      return h * (h:digamma() - (0.5 * d.df):digamma()) + student_constant(d)
    end,
    rsample = function(d, shape)
      local chi = 2 * gamma_draws(d, shape, 0.5 * d.df)
      return d.loc + d.scale * (base.numbers(d, shape, d.loc) * (chi / d.df):rsqrt())
    end,
    log_prob = function(d, x)
      local y = (x - d.loc) / d.scale
      return -0.5 * (d.df + 1) * (y:pow(2) / d.df):log1p() - student_constant(d)
    end,
  })

  M.FisherSnedecor = base.define("FisherSnedecor", fisher)
  M.GeneralizedPareto = base.define("GeneralizedPareto", pareto)
end
