-- The draws of distributions: means and variances over many draws from a fixed
-- seed, against formulas, within six standard deviations of what such estimates
-- scatter by. (The quantiles of Normal, Laplace, LogNormal, Gumbel, Cauchy,
-- Uniform and Exponential are in distributions_spec.)
local torch = require("torch")
local D = torch.distributions

local pi = math.pi

local function f64(v)
  return torch.tensor(v, { dtype = torch.float64 })
end

-- The modified Bessel function of the first kind by its series.
local function bessel(order, x)
  local term, sum = (x / 2) ^ order, 0
  for k = 1, 2000 do
    sum = sum + term
    term = term * (x / 2) ^ 2 / (k * (k + order))
  end
  return sum
end

-- The draws of one number have the mean and the variance.
local function moments(x, mean, var, what)
  local n = x:numel()
  local m = x:mean():item()
  local off = x - m
  local v = off:pow(2):mean():item()
  local fourth = off:pow(4):mean():item()
  local of_mean, of_var = 6 * math.sqrt(v / n), 6 * math.sqrt((fourth - v * v) / n)
  assert.is_true(math.abs(m - mean) <= of_mean + 1e-12,
    ("%s: mean %g, expected %g by %g"):format(what, m, mean, of_mean))
  assert.is_true(math.abs(v - var) <= of_var + 1e-12,
    ("%s: variance %g, expected %g by %g"):format(what, v, var, of_var))
end

local N = 40000

local function draws(d)
  torch.manual_seed(12)
  return d:sample({ N })
end

-- Rejection ends: of those left, at most a third is rejected.
local function ends(f, ...)
  debug.sethook(function() error("draws that do not end") end, "", 100000)
  local ok, x = pcall(f, ...)
  debug.sethook()
  assert.is_true(ok, tostring(x))
  return x
end

describe("the angles of VonMises", function()
  -- f = cos(x - loc) has the mean A = I1 / I0 and the variance 1 - A / k - A^2;
  -- the sine the mean 0 and the variance A / k
  for _, k in ipairs({ 0.1, 0.7, 2, 5, 20, 100, 400 }) do
    it(("lie around their place by 1 - I1(k) / I0(k), k = %g"):format(k), function()
      local d = D.VonMises(f64(2.5), f64(k))
      local x = ends(draws, d)
      assert.is_true(x:abs():max():item() <= pi)
      local share = bessel(1, k) / bessel(0, k)
      moments((x - 2.5):cos(), share, 1 - share / k - share * share, "cosine")
      moments((x - 2.5):sin(), 0, share / k, "sine")
      assert.near(1 - share, d.variance:item(), 1e-6)
      local at = math.atan(x:sin():mean():item(), x:cos():mean():item())
      assert.is_true(math.abs(math.sin(at - 2.5)) < 6 / math.sqrt(N * k * share), "direction")
    end)
  end
end)

-- name, parameters, mean, variance; light tails, so that the estimates settle
local NUMBERS = {
  { "Bernoulli", { probs = 0.3 }, 0.3, 0.21 },
  { "Geometric", { probs = 0.3 }, 0.7 / 0.3, 0.7 / 0.09 },
  { "Categorical", { probs = { 0.2, 0.3, 0.5 } }, 1.3, 0.61 },
  { "Poisson", { rate = 0.6 }, 0.6, 0.6 },
  { "Poisson", { rate = 40 }, 40, 40 },
  { "Binomial", { total_count = 9, probs = 0.3 }, 2.7, 1.89 },
  { "Binomial", { total_count = 100, probs = 0.8 }, 80, 16 },
  { "NegativeBinomial", { total_count = 4, probs = 0.6 }, 6, 15 },
  { "Gamma", { concentration = 0.5, rate = 2 }, 0.25, 0.125 },
  { "Gamma", { concentration = 3, rate = 0.7 }, 3 / 0.7, 3 / 0.49 },
  { "Chi2", { df = 5 }, 5, 10 },
  { "InverseGamma", { concentration = 9, rate = 4 }, 0.5, 16 / (64 * 7) },
  { "Beta", { concentration1 = 0.5, concentration0 = 0.7 }, 0.5 / 1.2, 0.35 / (1.44 * 2.2) },
  { "Beta", { concentration1 = 3, concentration0 = 2 }, 0.6, 0.04 },
  { "StudentT", { df = 12, loc = -1, scale = 2 }, -1, 4 * 12 / 10 },
  { "FisherSnedecor", { df1 = 5, df2 = 20 }, 20 / 18, 2 * 400 * 23 / (5 * 324 * 16) },
  { "HalfNormal", { scale = 2 }, 2 * math.sqrt(2 / pi), 4 * (1 - 2 / pi) },
  { "Weibull", { scale = 2, concentration = 2 }, math.sqrt(pi), 4 - pi },
  { "Pareto", { scale = 1, alpha = 12 }, 12 / 11, 12 / (121 * 10) },
  { "GeneralizedPareto", { loc = 0.5, scale = 1.5, concentration = 0.1 }, 0.5 + 1.5 / 0.9,
    2.25 / (0.81 * 0.8) },
  { "GeneralizedPareto", { loc = 0.5, scale = 1.5, concentration = 0 }, 2, 2.25 },
  { "GeneralizedPareto", { loc = 0.5, scale = 1.5, concentration = -0.4 }, 0.5 + 1.5 / 1.4,
    2.25 / (1.96 * 1.8) },
  -- the mean of x is 2 beta(1.5, 2), that of its square 2 beta(2, 2)
  { "Kumaraswamy", { concentration1 = 2, concentration0 = 2 }, 8 / 15, 1 / 3 - 64 / 225 },
  { "Uniform", { low = -1, high = 3 }, 1, 16 / 12 },
  { "Exponential", { rate = 0.7 }, 1 / 0.7, 1 / 0.49 },
  { "Normal", { loc = 0.3, scale = 0.7 }, 0.3, 0.49 },
  { "Laplace", { loc = 0.3, scale = 0.7 }, 0.3, 0.98 },
  { "Gumbel", { loc = 0.3, scale = 0.7 }, 0.3 + 0.7 * 0.5772156649, 0.49 * pi * pi / 6 },
  { "LogNormal", { loc = 0.3, scale = 0.4 }, math.exp(0.38),
    (math.exp(0.16) - 1) * math.exp(0.76) },
}

-- Density e^(l x) l / (e^l - 1) on the unit interval, l the logit.
local function continuous(p)
  local l = math.log(p / (1 - p))
  local mean = 1 / (1 - math.exp(-l)) - 1 / l
  return { "ContinuousBernoulli", { probs = p }, mean,
    1 / (l * l) - math.exp(l) / (math.exp(l) - 1) ^ 2 }
end
NUMBERS[#NUMBERS + 1] = continuous(0.2)
NUMBERS[#NUMBERS + 1] = continuous(0.9)

describe("the draws of", function()
  for _, c in ipairs(NUMBERS) do
    local words = {}
    for name, v in pairs(c[2]) do
      words[#words + 1] = ("%s %s"):format(name, type(v) == "table" and "given" or v)
    end
    table.sort(words)
    it(("%s of %s have their mean and variance"):format(c[1], table.concat(words, ", ")),
      function()
        local given = {}
        for name, v in pairs(c[2]) do
          given[name] = f64(v)
        end
        moments(draws(D[c[1]](given)):double(), c[3], c[4], c[1])
      end)
  end

  it("HalfCauchy have their quantiles", function()
    local x = draws(D.HalfCauchy(f64(2)))
    for _, q in ipairs({ 0.1, 0.5, 0.9 }) do
      moments(x:le(2 * math.tan(pi / 2 * q)):double(), q, q * (1 - q), "share")
    end
  end)

  it("relaxed Bernoulli are logistic", function()
    local at, t = math.log(0.3 / 0.7), 0.7
    local given = { temperature = f64(t), probs = f64(0.3) }
    moments(draws(D.LogitRelaxedBernoulli(given)), at / t, pi * pi / (3 * t * t), "logits")
    moments(draws(D.RelaxedBernoulli(given)):logit(), at / t, pi * pi / (3 * t * t), "shares")
  end)

  it("relaxed categories differ by logistic numbers, and are highest by their odds", function()
    local p, t = { 0.3, 0.5, 0.2 }, 0.7
    local given = { temperature = f64(t), probs = f64(p) }
    local x = draws(D.ExpRelaxedCategorical(given))
    local y = draws(D.RelaxedOneHotCategorical(given))
    for i = 1, 3 do
      local k = i % 3 + 1
      local mean, var = math.log(p[i] / p[k]) / t, pi * pi / (3 * t * t)
      moments(x:select(-1, i - 1) - x:select(-1, k - 1), mean, var, "logits")
      moments((y:select(-1, i - 1) / y:select(-1, k - 1)):log(), mean, var, "shares")
      moments(x:argmax(-1):eq(i - 1):double(), p[i], p[i] * (1 - p[i]), "highest")
    end
  end)

  it("one-hot categories and multinomial counts have the parts' probabilities", function()
    local p = { 0.2, 0.3, 0.5 }
    local x = draws(D.OneHotCategorical(f64(p)))
    local y = draws(D.Multinomial(6, f64(p)))
    for i = 1, 3 do
      local of_one = p[i] * (1 - p[i])
      moments(x:select(-1, i - 1), p[i], of_one, "one-hot")
      moments(y:select(-1, i - 1), 6 * p[i], 6 * of_one, "counts")
    end
    moments(y:select(-1, 0) + y:select(-1, 1), 3, 1.5, "counts together")
  end)

  it("Dirichlet have their means and variances, together too", function()
    local a = { 0.5, 1.5, 3 }
    local x = draws(D.Dirichlet(f64(a)))
    for i = 1, 3 do
      moments(x:select(-1, i - 1), a[i] / 5, a[i] * (5 - a[i]) / (25 * 6), "part")
    end
    moments(x:select(-1, 0) + x:select(-1, 1), 0.4, 6 / (25 * 6), "parts together")
  end)

  -- x[i], and the sum of all, of a normal vector of that covariance
  local function normal(x, loc, cov, what)
    local mean, var = 0, 0
    for i = 1, #loc do
      moments(x:select(-1, i - 1), loc[i], cov[i][i], what)
      mean = mean + loc[i]
      for k = 1, #loc do
        var = var + cov[i][k]
      end
    end
    moments(x:sum(-1), mean, var, what)
  end

  it("normal vectors have their covariance", function()
    local loc, cov = { 0.3, -1 }, { { 2, 0.5 }, { 0.5, 1 } }
    normal(draws(D.MultivariateNormal(f64(loc), f64(cov))), loc, cov, "covariance")
    normal(draws(D.MultivariateNormal(f64(loc), { precision_matrix = f64({ { 1, -0.5 },
      { -0.5, 2 } }) / 1.75 })), loc, cov, "precision")
    normal(draws(D.MultivariateNormal(f64(loc), { scale_tril = f64({ { 2, 0 }, { 0.5, 1 } }) })),
      loc, { { 4, 1 }, { 1, 1.25 } }, "factor")
    normal(draws(D.LowRankMultivariateNormal(f64(loc), f64({ { 1 }, { 2 } }), f64({ 0.5, 0.7 }))),
      loc, { { 1.5, 2 }, { 2, 4.7 } }, "low rank")
  end)

  it("LogisticNormal are a normal vector's shares", function()
    local d = D.LogisticNormal(f64({ 0.3, -0.5 }), f64({ 0.7, 1.2 }))
    local x = draws(d)
    assert.near(0, (x:sum(-1) - 1):abs():max():item(), 1e-9)
    -- stick breaking: z[i] = logit(share of what is left) + log(parts left)
    local first, second = x:select(-1, 0), x:select(-1, 1)
    moments(first:logit() + math.log(2), 0.3, 0.49, "first")
    moments((second / (1 - first)):logit(), -0.5, 1.44, "second")
  end)

  it("Wishart have their means and variances", function()
    local df, v = 5, { { 2, 0.5 }, { 0.5, 1 } }
    local x = draws(D.Wishart(f64(df), f64(v)))
    for i = 1, 2 do
      for k = 1, 2 do
        moments(x:select(-1, k - 1):select(-1, i - 1), df * v[i][k],
          df * (v[i][k] ^ 2 + v[i][i] * v[k][k]), ("element %d, %d"):format(i, k))
      end
    end
  end)

  it("LKJCholesky are factors of correlations of their variance", function()
    local c, dim = 1.7, 4
    local x = draws(D.LKJCholesky(dim, f64(c)))
    local r = x:matmul(x.mT)
    for i = 1, dim - 1 do
      for k = 0, i - 1 do -- r is 2 Beta(b, b) - 1 with b = c - 1 + dim / 2
        moments(r:select(-1, k):select(-1, i), 0, 1 / (2 * c + dim - 1), "correlation")
      end
    end
  end)

  it("mixtures have their mean and variance", function()
    local d = D.MixtureSameFamily(D.Categorical(f64({ 0.25, 0.75 })),
      D.Normal(f64({ -2, 1 }), f64({ 0.5, 2 })))
    local mean = -0.5 + 0.75
    moments(draws(d), mean, 0.25 * (0.25 + 4) + 0.75 * (4 + 1) - mean * mean, "mixture")
  end)
end)
