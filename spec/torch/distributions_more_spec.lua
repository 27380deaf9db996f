-- torch.distributions of positive numbers, counts and vectors: values by PyTorch
-- 2.15 in float64, draws by their moments.
local helper = require("spec.helper")
local torch = require("torch")
local D = torch.distributions

local inf = math.huge

-- name, parameters, value, what PyTorch gives (icdf at 0.2 and 0.9)
local CASES = {
  { "HalfNormal", { scale = { 0.5, 2.0 } }, { 0.3, 1.7 }, {
    log_prob = { 0.287355828, -1.28018853 },
    cdf = { 0.451493764, 0.604674914 },
    icdf = { 0.126673552, 3.28970725 },
    entropy = { 0.0326441721, 1.41893853 },
    mean = { 0.39894228, 1.59576912 },
    variance = { 0.0908450569, 1.45352091 },
    mode = { 0, 0 },
  } },
  { "HalfCauchy", { scale = { 0.5, 2.0 } }, { 0.3, 1.7 }, {
    log_prob = { -0.0659202245, -1.68850661 },
    cdf = { 0.344041739, 0.448494851 },
    icdf = { 0.162459848, 12.627503 },
    entropy = { 1.14472989, 2.53102425 },
    mean = { inf, inf },
    variance = { inf, inf },
    mode = { 0, 0 },
  } },
  { "Pareto", { scale = { 0.5, 1.0 }, alpha = { 1.5, 3.0 } }, { 0.8, 1.7 }, {
    log_prob = { -0.0763967844, -1.02390072 },
    cdf = { 0.505894116, 0.796458376 },
    icdf = { 0.580198604, 2.15443469 },
    entropy = { 0.568054378, 0.234721045 },
    mean = { 1.5, 1.5 },
    variance = { inf, 0.75 },
    mode = { 0.5, 1 },
  } },
  { "Weibull", { scale = { 0.5, 2.0 }, concentration = { 1.5, 3.0 } }, { 0.3, 1.7 }, {
    log_prob = { 0.378441475, -0.533697751 },
    cdf = { 0.371712869, 0.458885837 },
    icdf = { 0.18394708, 2.64100096 },
    entropy = { 0.093792933, 0.979345335 },
    mean = { 0.451372646, 1.78595902 },
    variance = { 0.0939225712, 0.421331539 },
    mode = { 0.240374928, 1.74716093 },
  } },
  { "Gamma", { concentration = { 0.5, 3.0 }, rate = { 2.0, 0.7 } }, { 0.3, 1.7 }, {
    log_prob = { -0.22380495, -1.89191551 },
    cdf = { 0.726678322, 0.118351566 },
    entropy = { -0.602537251, 2.20425345 },
    mean = { 0.25, 4.28571429 },
    variance = { 0.125, 6.12244898 },
    mode = { 0, 2.85714286 },
  } },
  { "Chi2", { df = { 1.0, 5.0 } }, { 0.3, 1.7 }, {
    log_prob = { -0.466952131, -2.07160845 },
    cdf = { 0.416117579, 0.111100241 },
    entropy = { 0.78375711, 2.42309509 },
    mean = { 1, 5 },
    variance = { 2, 10 },
    mode = { 0, 3 },
  } },
  { "InverseGamma", { concentration = { 0.5, 3.0 }, rate = { 2.0, 0.7 } }, { 0.3, 1.7 }, {
    log_prob = { -5.08649881, -4.29744972 },
    cdf = { 0.000260729633, 0.991427884 },
    entropy = { 4.71077716, -0.354665104 },
    mean = { inf, 0.35 },
    variance = { inf, 0.1225 },
    mode = { 1.33333333, 0.175 },
  } },
  { "Beta", { concentration1 = { 0.5, 3.0 }, concentration0 = { 0.7, 2.0 } }, { 0.3, 0.7 }, {
    log_prob = { -0.209617394, 0.567583958 },
    entropy = { -0.197923882, -0.23490665 },
    mean = { 0.416666667, 0.6 },
    variance = { 0.110479798, 0.04 },
    mode = { 1, 0.666666667 },
  } },
  { "StudentT", { df = { 1.5, 5.0 }, loc = { 0.3, -1.0 }, scale = { 1.0, 2.0 } }, { 0.3, 1.7 }, {
    log_prob = { -1.07665028, -2.59413095 },
    entropy = { 2.14965947, 2.32064985 },
    mean = { 0.3, -1 },
    variance = { inf, 6.66666667 },
    mode = { 0.3, -1 },
  } },
  { "Poisson", { rate = { 0.5, 7.3 } }, { 2.0, 5.0 }, {
    log_prob = { -2.57944154, -2.14812 },
    mean = { 0.5, 7.3 },
    variance = { 0.5, 7.3 },
    mode = { 0, 7 },
  } },
  { "Binomial", { total_count = { 9.0, 9.0 }, probs = { 0.3, 0.8 } }, { 2.0, 5.0 }, {
    log_prob = { -1.32115128, -2.7171875 },
    entropy = { 1.72442348, 1.56470872 },
    mean = { 2.7, 7.2 },
    variance = { 1.89, 1.44 },
    mode = { 3, 8 },
  } },
  { "NegativeBinomial", { total_count = { 1.5, 4.0 }, probs = { 0.3, 0.8 } }, { 2.0, 5.0 }, {
    log_prob = { -2.31434937, -3.52811772 },
    mean = { 0.642857143, 16 },
    variance = { 0.918367347, 80 },
    mode = { 0, 12 },
  } },
  { "OneHotCategorical", { probs = { { 0.2, 0.3, 0.5 }, { 0.1, 0.8, 0.1 } } }, { { 0.0, 0.0,
      1.0 }, { 1.0, 0.0, 0.0 } }, {
    log_prob = { -0.693147181, -2.30258509 },
    entropy = { 1.02965301, 0.63903186 },
    mean = { { 0.2, 0.3, 0.5 }, { 0.1, 0.8, 0.1 } },
    variance = { { 0.16, 0.21, 0.25 }, { 0.09, 0.16, 0.09 } },
    mode = { { 0, 0, 1 }, { 0, 1, 0 } },
  } },
  { "Dirichlet", { concentration = { { 0.5, 1.5, 3.0 }, { 0.2, 0.3, 0.4 } } }, { { 0.2, 0.3,
      0.5 }, { 0.1, 0.8, 0.1 } }, {
    log_prob = { 0.849762137, 0.0296562209 },
    entropy = { -1.86665728, -3.28431961 },
    mean = { { 0.1, 0.3, 0.6 }, { 0.222222222, 0.333333333, 0.444444444 } },
    variance = { { 0.015, 0.035, 0.04 }, { 0.0909681611, 0.116959064, 0.129954516 } },
    mode = { { 0, 0.2, 0.8 }, { 1, 0, 0 } },
  } },
  { "MultivariateNormal", { loc = { 0.3, -1.0 }, covariance_matrix = { { 2.0, 0.5 }, { 0.5,
      1.0 } } }, { { 0.2, 0.3 }, { 1.0, -2.0 } }, {
    log_prob = { -3.12339925, -3.02911353 },
    entropy = 3.11768496,
    mean = { 0.3, -1 },
    variance = { 2, 1 },
    mode = { 0.3, -1 },
    covariance_matrix = { { 2, 0.5 }, { 0.5, 1 } },
    precision_matrix = { { 0.571428571, -0.285714286 }, { -0.285714286, 1.14285714 } },
    scale_tril = { { 1.41421356, 0 }, { 0.353553391, 0.935414347 } },
  } },
  { "MultivariateNormal", { loc = { { 0.3, -1.0 }, { 0.0, 0.0 } }, precision_matrix = { { 2.0,
      0.5 }, { 0.5, 1.0 } } }, { { 0.2, 0.3 }, { 1.0, -2.0 } }, {
    log_prob = { -2.34806917, -3.55806917 },
    entropy = { 2.55806917, 2.55806917 },
    mean = { { 0.3, -1 }, { 0, 0 } },
    variance = { { 0.571428571, 1.14285714 }, { 0.571428571, 1.14285714 } },
    mode = { { 0.3, -1 }, { 0, 0 } },
    covariance_matrix = { { { 0.571428571, -0.285714286 }, { -0.285714286, 1.14285714 } },
      { { 0.571428571, -0.285714286 }, { -0.285714286, 1.14285714 } } },
    precision_matrix = { { { 2, 0.5 }, { 0.5, 1 } }, { { 2, 0.5 }, { 0.5, 1 } } },
    scale_tril = { { { 0.755928946, 0 }, { -0.377964473, 1 } }, { { 0.755928946, 0 },
      { -0.377964473, 1 } } },
  } },
  { "MultivariateNormal", { loc = { 0.3, -1.0 }, scale_tril = { { { 2.0, 0.0 }, { 0.5, 1.0 } },
      { { 0.3, 0.0 }, { -0.5, 0.7 } } } }, { { 0.2, 0.3 }, { 1.0, -2.0 } }, {
    log_prob = { -3.41008675, -3.02779621 },
    entropy = { 3.53102425, 1.27722932 },
    mean = { { 0.3, -1 }, { 0.3, -1 } },
    variance = { { 4, 1.25 }, { 0.09, 0.74 } },
    mode = { { 0.3, -1 }, { 0.3, -1 } },
    covariance_matrix = { { { 4, 1 }, { 1, 1.25 } }, { { 0.09, -0.15 }, { -0.15, 0.74 } } },
    precision_matrix = { { { 0.3125, -0.25 }, { -0.25, 1 } }, { { 16.7800454, 3.40136054 },
      { 3.40136054, 2.04081633 } } },
    scale_tril = { { { 2, 0 }, { 0.5, 1 } }, { { 0.3, 0 }, { -0.5, 0.7 } } },
  } },
  { "Multinomial", { total_count = 6, probs = { { 0.2, 0.3, 0.5 }, { 0.1, 0.8, 0.1 } } }, { { 1.0,
      2.0, 3.0 }, { 0.0, 5.0, 1.0 } }, {
    log_prob = { -2.0024805, -1.62654338 },
    entropy = { 2.79065675, 1.99756846 },
    mean = { { 1.2, 1.8, 3 }, { 0.6, 4.8, 0.6 } },
    variance = { { 0.96, 1.26, 1.5 }, { 0.54, 0.96, 0.54 } },
  } },
}

local function f64(v)
  return torch.tensor(v, { dtype = torch.float64 })
end

local function parameters(given)
  local out = {}
  for name, v in pairs(given) do
    out[name] = type(v) == "table" and f64(v) or v
  end
  return out
end

local function close(got, want, what)
  want = f64(want)
  assert.same({ table.unpack(want.shape) }, { table.unpack(got.shape) }, what)
  assert.is_true(torch.allclose(got:double(), want, 2e-8, 1e-9, true),
    ("%s: %s, expected %s"):format(what, tostring(got), tostring(want)))
end

local FIELDS = { mean = true, variance = true, mode = true, covariance_matrix = true,
  precision_matrix = true, scale_tril = true }

for _, c in ipairs(CASES) do
  describe(c[1], function()
    local d = D[c[1]](parameters(c[2]))

    it("has PyTorch's densities, quantiles and moments", function()
      for what, want in pairs(c[4]) do
        if FIELDS[what] then
          close(d[what], want, what)
        elseif what == "entropy" then
          close(d:entropy(), want, what)
        else
          close(d[what](d, f64(what == "icdf" and { 0.2, 0.9 } or c[3])), want, what)
        end
      end
    end)

    it("draws with those moments, in the shape that is asked for", function()
      torch.manual_seed(7)
      local n = 20000
      local x = d:sample({ n })
      assert.same({ n, table.unpack(d.mean.shape) }, { table.unpack(x.shape) })
      assert.same({ 2, 3, table.unpack(d.mean.shape) }, { table.unpack(d:sample({ 2, 3 }).shape) })
      assert.is_false(x.requires_grad)
      local mean, want = x:mean(0):flatten():tolist(), d.mean:flatten():tolist()
      local var = d.variance:flatten():tolist()
      for i, m in ipairs(mean) do
        local known = var[i] == var[i] and var[i] ~= inf
        assert.is_true(not known or math.abs(m - want[i]) < 5 * math.sqrt(var[i] / n),
          ("mean %g, expected %g"):format(m, want[i]))
      end
      if d.has_rsample and c[4].cdf then -- of which half lies below the median
        local below = d:cdf(x):le(0.5):double():mean(0)
        assert.is_true((below - 0.5):abs():max():item() < 0.02)
      end
    end)
  end)
end

describe("draws through which gradients go", function()
  -- The mean of the gradients of draws is the gradient of the mean.
  local function slopes(make, params, n)
    torch.manual_seed(11)
    local leaves = {}
    for i, v in ipairs(params) do
      leaves[i] = f64(v):requires_grad_()
    end
    local d = make(table.unpack(leaves))
    d:rsample({ n }):mean(0):select(-1, 0):backward(nil, true)
    local got = {}
    for i, leaf in ipairs(leaves) do
      got[i] = leaf.grad
      leaf.grad = nil
    end
    d.mean:select(-1, 0):backward()
    for i, leaf in ipairs(leaves) do
      local want = leaf.grad or torch.zeros_like(leaf)
      assert.is_true((got[i] - want):abs():max():item() < 0.05, ("parameter %d: %s, mean %s")
        :format(i, tostring(got[i]), tostring(want)))
    end
  end

  it("have the gradients of their mean", function()
    slopes(D.Gamma, { { 0.7 }, { 2.0 } }, 20000)
    slopes(D.Chi2, { { 3.0 } }, 20000)
    slopes(D.InverseGamma, { { 6.0 }, { 2.0 } }, 20000)
    slopes(D.Beta, { { 0.6 }, { 1.4 } }, 20000)
    slopes(D.Dirichlet, { { 0.6, 1.4, 2.0 } }, 20000)
    slopes(D.StudentT, { { 7.0 }, { 0.5 }, { 1.0 } }, 20000)
    slopes(D.Weibull, { { 0.8 }, { 2.0 } }, 20000)
    slopes(D.Pareto, { { 0.8 }, { 6.0 } }, 20000)
    slopes(D.HalfNormal, { { 0.8 } }, 20000)
    slopes(D.MultivariateNormal, { { 0.3, 1.0 }, { { 2.0, 0.5 }, { 0.5, 1.0 } } }, 20000)
    local logits = f64({ 0.1, 0.7 }):requires_grad_()
    local hot = D.OneHotCategoricalStraightThrough({ logits = logits }):rsample()
    assert.equal(1, hot:detach():sum():item());
    (hot * f64({ 1.0, 3.0 })):sum():backward()
    local p = logits:detach():softmax(0)
    local product = p[0]:item() * p[1]:item()
    close(logits.grad, { -2 * product, 2 * product }, "straight through")
  end)
end)

local DIVERGENCES = {
  { "Normal", "Normal", { 1.01657622, 0.111610196 } },
  { "HalfNormal", "HalfNormal", { 0.654167844, 0.12768733 } },
  { "Exponential", "Exponential", { 0.901387711, 0.0945348919 } },
  { "Gamma", "Gamma", { 0.837457743, 0.465596118 } },
  { "Beta", "Beta", { 0.693147181, 0.425693201 } },
  { "Pareto", "Pareto", { 2.54930614, 2.17397643 } },
  { "Poisson", "Poisson", { 0.450693856, 0.189069784 } },
  { "Binomial", "Binomial", { 0.183698975, inf } },
  { "Cauchy", "Cauchy", { 0.510825624, 0.0800427077 } },
  { "Laplace", "Laplace", { 0.810390716, 0.143152215 } },
  { "Gumbel", "Gumbel", { 0.786421771, 0.139609101 } },
  { "Uniform", "Uniform", { 2.39789527, 1.09861229 } },
  { "Bernoulli", "Bernoulli", { 0, 0 } },
  { "OneHotCategorical", "OneHotCategorical", { 0, inf } },
  { "Categorical", "Categorical", { 0, inf } },
  { "Dirichlet", "Dirichlet", { 0.986411408, 3.75726226 } },
  { "MultivariateNormal", "MultivariateNormal", { 0.591667844, 2.11818235 } },
  { "Exponential", "Normal", { 2.92922039, 1.66992951 } },
  { "Exponential", "Gamma", { 1.75366873, 2.1851353 } },
  { "Exponential", "Gumbel", { 0.198542193, 1.96124579 } },
  { "Gamma", "Normal", { 1.97425979, 0.271664712 } },
  { "Gamma", "Exponential", { 0.40939007, 5.53892567 } },
  { "Beta", "Normal", { 2.21522931, 2.29660723 } },
  { "Beta", "Exponential", { 0.517952187, 1.52860642 } },
  { "Beta", "Pareto", { inf, inf } },
  { "Gumbel", "Normal", { 0.562576717, 0.11171186 } },
  { "Gumbel", "Beta", { inf, inf } },
  { "Laplace", "Normal", { 0.964589794, 0.232463277 } },
  { "Laplace", "Uniform", { inf, inf } },
  { "Normal", "Laplace", { 1.04514807, 0.276735832 } },
  { "Normal", "Gumbel", { 1.07201078, 0.39610224 } },
  { "Normal", "Gamma", { inf, inf } },
  { "Uniform", "Normal", { 2.96365734, 1.76279056 } },
  { "Uniform", "Exponential", { 1.8039728, 3.40138771 } },
  { "Bernoulli", "Poisson", { 0.767496166, 1.68616597 } },
  { "Poisson", "Binomial", { inf, inf } },
}

-- The distributions of DIVERGENCES; i is 0 for p and 1 for q.
local MAKE = {
  Normal = function(i) return D.Normal(f64{ .3, 1 } + i, f64{ .5, 2 } + i * .25) end,
  HalfNormal = function(i) return D.HalfNormal(f64{ .5, 2 } + i) end,
  Exponential = function(i) return D.Exponential(f64{ .5, 2 } + i) end,
  Gamma = function(i) return D.Gamma(f64{ .5, 2 } + i, f64{ 1.5, .7 } + i) end,
  Beta = function(i) return D.Beta(f64{ .5, 2 } + i, f64{ 1.5, .7 } + i) end,
  Pareto = function(i) return D.Pareto(f64{ 1.5, 2 } - i, f64{ .5, 2 } + i) end,
  Poisson = function(i) return D.Poisson(f64{ .5, 2 } + i) end,
  Binomial = function(i) return D.Binomial(f64{ 9, 8 - i }, f64{ .5, .2 } + i * .1) end,
  Cauchy = function(i) return D.Cauchy(f64{ .3, 1 } + i, f64{ .5, 2 } + i) end,
  Laplace = function(i) return D.Laplace(f64{ .3, 1 } + i, f64{ .5, 2 } + i) end,
  Gumbel = function(i) return D.Gumbel(f64{ .3, 1 } + i, f64{ .5, 2 } + i) end,
  Uniform = function(i) return D.Uniform(f64{ .3, 1 } - i, f64{ .5, 2 } + i) end,
  Bernoulli = function() return D.Bernoulli(f64{ .3, .9 }) end,
  OneHotCategorical = function(i)
    return D.OneHotCategorical(f64{ { .2, .3, .5 }, { .1 + .8 * i, .8 - .8 * i, .1 } })
  end,
  Categorical = function(i)
    return D.Categorical(f64{ { .2, .3, .5 }, { .1 + .8 * i, .8 - .8 * i, .1 } })
  end,
  Dirichlet = function(i) return D.Dirichlet(f64{ { .5, 1.5, 3 }, { .2, .3, .4 } } + i) end,
  MultivariateNormal = function(i)
    return D.MultivariateNormal(f64{ .3, -1 } + i, { scale_tril =
      f64{ { { 2, 0 }, { .5, 1 } }, { { .3, 0 }, { -.5, .7 } } } + i * torch.eye(2):double() })
  end,
}

describe("kl_divergence", function()
  it("is PyTorch's for pairs of one kind and of two", function()
    for _, c in ipairs(DIVERGENCES) do
      close(D.kl_divergence(MAKE[c[1]](0), MAKE[c[2]](1)), c[3], c[1] .. " | " .. c[2])
    end
  end)

  it("takes formulas of one's own, and a base's for those that extend it", function()
    local Mine = D.Normal:extend("Mine")
    local p, q = Mine(f64{ 0 }, f64{ 1 }), D.Normal(f64{ 1 }, f64{ 1 })
    close(D.kl_divergence(p, q), { 0.5 }, "a base's")
    close(D.kl_divergence(D.Chi2(f64{ 3 }), D.Gamma(f64{ 1.5 }, f64{ 0.5 })), { 0 }, "Chi2")
    D.register_kl(Mine, D.Normal)(function()
      return 7
    end)
    assert.equal(7, D.kl_divergence(p, q))
    close(D.kl_divergence(q, p), { 0.5 }, "a base's")
    helper.raises("NotImplementedError", "Normal and StudentT", function()
      D.kl_divergence(q, D.StudentT(f64{ 3 }))
    end)
    helper.raises("NotImplementedError", "total count of q", function()
      D.kl_divergence(D.Binomial(2, f64{ .5 }), D.Binomial(3, f64{ .5 }))
    end)
  end)
end)

describe("distributions of vectors and counts refuse", function()
  for _, c in ipairs({
    { "MultivariateNormal: Exactly one", function() D.MultivariateNormal(f64{ 1 }) end },
    { "Exactly one", function()
      D.MultivariateNormal(f64{ 1 }, f64{ { 1 } }, { scale_tril = f64{ { 1 } } })
    end },
    { "covariance_matrix must have shape %[..., 2, 2%]", function()
      D.MultivariateNormal(f64{ 1, 2 }, f64{ { 1 } })
    end },
    { "scale_tril to satisfy the constraint LowerCholesky", function()
      D.MultivariateNormal(f64{ 1, 2 }, { scale_tril = f64{ { 1, 1 }, { 0, 1 } } })
    end },
    { "PositiveDefinite", function()
      D.MultivariateNormal(f64{ 1, 2 }, f64{ { 1, .5 }, { 0, 1 } })
    end },
    { "at least one%-dimensional", function() D.Dirichlet(1.0) end },
    { "parameter concentration", function() D.Dirichlet(f64{ 1, 0 }) end },
    { "parameter rate", function() D.Poisson(-1.0) end },
    { "parameter total_count", function() D.Binomial(1.5, 0.5) end },
    { "either `probs` or `logits`", function() D.Binomial(3) end },
    { "within the support", function() D.Binomial(3, 0.5):log_prob(4) end },
    { "within the support", function() D.Poisson(3.0):log_prob(0.5) end },
    { "within the support", function() D.Dirichlet(f64{ 1, 1 }):log_prob(f64{ .5, .6 }) end },
    { "within the support", function()
      D.OneHotCategorical(f64{ .5, .5 }):log_prob(f64{ 1, 1 })
    end },
    { "parameter df", function() D.StudentT(0) end },
    { "parameter scale", function() D.HalfNormal(-1) end },
  }) do
    it(c[1], function()
      helper.raises("ValueError", c[1], c[2])
    end)
  end

  it("an entropy of counts that differ", function()
    helper.raises("NotImplementedError", "inhomogeneous", function()
      D.Binomial(f64{ 2, 3 }, f64{ .5, .5 }):entropy()
    end)
  end)
end)

describe("an infinite divergence", function()
  it("has the dtype of the parameters", function()
    local p, q = D.Normal(f64{ 0 }, f64{ 1 }), D.Uniform(f64{ 0 }, f64{ 1 })
    local kl = D.kl_divergence(p, q)
    assert.equal(torch.float64, kl.dtype)
    assert.same({ inf }, kl:tolist())
    assert.equal(torch.float64, D.kl_divergence(D.Poisson(f64{ 1 }),
      D.Bernoulli(f64{ .5 })).dtype)
    assert.equal(torch.float32, D.kl_divergence(D.Normal(0, 1), D.Uniform(0, 1)).dtype)
  end)
end)
