-- torch.distributions.kl_divergence: values by PyTorch 2.15 in float64.
local helper = require("spec.helper")
local float64 = require("spec.support.float64")
local torch = require("torch")
local D = torch.distributions
local f64, close = float64.tensor, float64.close

local inf = math.huge

-- classes of p and q, the divergence; see MAKE
local PAIRS = {
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

-- The distributions of PAIRS; i is 0 for p and 1 for q.
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

-- p, its parameters, q, its parameters, the divergence
local DIVERGENCES = {
  { "Beta", { concentration1 = { 1.5, 2 }, concentration0 = { 0.7, 3 } }, "Beta", { concentration1
    = { 1.65, 2.2 }, concentration0 = { 0.77, 3.3 } }, { 0.00334957609, 0.00280539352 } },
  { "Beta", { concentration1 = { 1.5, 2 }, concentration0 = { 0.7, 3 } }, "ContinuousBernoulli", {
    probs = { 0.3, 0.5001 } }, { 0.416046103, 0.234946656 } },
  { "Beta", { concentration1 = { 1.5, 2 }, concentration0 = { 0.7, 3 } }, "Exponential", { rate = {
    0.5, 2 } }, { 1.2663121, 0.341759469 } },
  { "Beta", { concentration1 = { 1.5, 2 }, concentration0 = { 0.7, 3 } }, "Gamma", { concentration
    = { 1.5, 3 }, rate = { 0.7, 2 } }, { 1.37766046, 1.81527896 } },
  { "Beta", { concentration1 = { 1.5, 2 }, concentration0 = { 0.7, 3 } }, "Normal", { loc = { 0.3,
    -0.5 }, scale = { 0.9, 1.1 } }, { 1.17767307, 1.60039503 } },
  { "Beta", { concentration1 = { 1.5, 2 }, concentration0 = { 0.7, 3 } }, "Pareto", { scale = {
    0.2, 0.4 }, alpha = { 2.5, 1.5 } }, { inf, inf } },
  { "Beta", { concentration1 = { 1.5, 2 }, concentration0 = { 0.7, 3 } }, "Uniform", { low = {
    -0.5, 0.4 }, high = { 1.25, 1.5 } }, { 0.791871612, inf } },
  { "ContinuousBernoulli", { probs = { 0.3, 0.5001 } }, "ContinuousBernoulli", { probs = { 0.27,
    0.45009 } }, { 0.000869104793, 0.00167791331 } },
  { "ContinuousBernoulli", { probs = { 0.3, 0.5001 } }, "Exponential", { rate = { 0.5, 2 } }, {
    0.937644633, 0.306919493 } },
  { "ContinuousBernoulli", { probs = { 0.3, 0.5001 } }, "Normal", { loc = { 0.3, -0.5 }, scale = {
    0.9, 1.1 } }, { 0.903077215, 1.46193467 } },
  { "ContinuousBernoulli", { probs = { 0.3, 0.5001 } }, "Pareto", { scale = { 0.2, 0.4 }, alpha = {
    2.5, 1.5 } }, { inf, inf } },
  { "ContinuousBernoulli", { probs = { 0.3, 0.5001 } }, "Uniform", { low = { -0.5, 0.4 }, high = {
    1.25, 1.5 } }, { 0.58900199, inf } },
  { "Exponential", { rate = { 0.5, 2 } }, "Beta", { concentration1 = { 1.5, 2 }, concentration0 = {
    0.7, 3 } }, { inf, inf } },
  { "Exponential", { rate = { 0.5, 2 } }, "ContinuousBernoulli", { probs = { 0.3, 0.5001 } }, {
    inf, inf } },
  { "Exponential", { rate = { 0.5, 2 } }, "Exponential", { rate = { 0.55, 2.2 } }, { 0.0046898202,
    0.0046898202 } },
  { "Exponential", { rate = { 0.5, 2 } }, "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 }
    }, { 0.0631172399, 1.84757851 } },
  { "Exponential", { rate = { 0.5, 2 } }, "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, {
    0.622630925, 1.48367513 } },
  { "Exponential", { rate = { 0.5, 2 } }, "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } },
    { 3.37351726, 1.22392482 } },
  { "Exponential", { rate = { 0.5, 2 } }, "Pareto", { scale = { 0.2, 0.4 }, alpha = { 2.5, 1.5 } },
    { inf, inf } },
  { "Exponential", { rate = { 0.5, 2 } }, "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } },
    { inf, inf } },
  { "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 } }, "Beta", { concentration1 = { 1.5, 2
    }, concentration0 = { 0.7, 3 } }, { inf, inf } },
  { "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 } }, "ContinuousBernoulli", { probs = {
    0.3, 0.5001 } }, { inf, inf } },
  { "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 } }, "Exponential", { rate = { 0.5, 2 }
    }, { 0.0469280327, 1.15242149 } },
  { "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 } }, "Gamma", { concentration = { 1.65,
    3.3 }, rate = { 0.77, 2.2 } }, { 0.00281621669, 0.00259250345 } },
  { "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 } }, "Gumbel", { loc = { 0.5, -1 },
    scale = { 0.7, 1.5 } }, { 0.657850513, 1.13429829 } },
  { "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 } }, "Normal", { loc = { 0.3, -0.5 },
    scale = { 0.9, 1.1 } }, { 3.08194693, 1.8226273 } },
  { "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 } }, "Pareto", { scale = { 0.2, 0.4 },
    alpha = { 2.5, 1.5 } }, { inf, inf } },
  { "Gamma", { concentration = { 1.5, 3 }, rate = { 0.7, 2 } }, "Uniform", { low = { 0.25, 0.4 },
    high = { 0.75, 1.5 } }, { inf, inf } },
  { "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Beta", { concentration1 = { 1.5, 2 },
    concentration0 = { 0.7, 3 } }, { inf, inf } },
  { "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "ContinuousBernoulli", { probs = { 0.3,
    0.5001 } }, { inf, inf } },
  { "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Exponential", { rate = { 0.5, 2 } }, {
    inf, inf } },
  { "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Gamma", { concentration = { 1.5, 3 },
    rate = { 0.7, 2 } }, { inf, inf } },
  { "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Gumbel", { loc = { 0.45, -0.9 }, scale
    = { 0.77, 1.65 } }, { 0.0120179073, 0.00743045828 } },
  { "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Normal", { loc = { 0.3, -0.5 }, scale =
    { 0.9, 1.1 } }, { 0.315812149, 0.616249131 } },
  { "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Pareto", { scale = { 0.2, 0.4 }, alpha
    = { 2.5, 1.5 } }, { inf, inf } },
  { "Gumbel", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Uniform", { low = { 0.25, 0.4 }, high =
    { 0.75, 1.5 } }, { inf, inf } },
  { "Laplace", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Beta", { concentration1 = { 1.5, 2 },
    concentration0 = { 0.7, 3 } }, { inf, inf } },
  { "Laplace", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "ContinuousBernoulli", { probs = { 0.3,
    0.5001 } }, { inf, inf } },
  { "Laplace", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Exponential", { rate = { 0.5, 2 } }, {
    inf, inf } },
  { "Laplace", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Gamma", { concentration = { 1.5, 3 },
    rate = { 0.7, 2 } }, { inf, inf } },
  { "Laplace", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Laplace", { loc = { 0.45, -0.9 },
    scale = { 0.77, 1.65 } }, { 0.00666595356, 0.00637713589 } },
  { "Laplace", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Normal", { loc = { 0.3, -0.5 }, scale
    = { 0.9, 1.1 } }, { 0.106735411, 0.878446342 } },
  { "Laplace", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Pareto", { scale = { 0.2, 0.4 }, alpha
    = { 2.5, 1.5 } }, { inf, inf } },
  { "Laplace", { loc = { 0.5, -1 }, scale = { 0.7, 1.5 } }, "Uniform", { low = { 0.25, 0.4 }, high
    = { 0.75, 1.5 } }, { inf, inf } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "Beta", { concentration1 = { 1.5, 2 },
    concentration0 = { 0.7, 3 } }, { inf, inf } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "ContinuousBernoulli", { probs = {
    0.3, 0.5001 } }, { inf, inf } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "Exponential", { rate = { 0.5, 2 } },
    { inf, inf } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "Gamma", { concentration = { 1.5, 3 },
    rate = { 0.7, 2 } }, { inf, inf } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "Gumbel", { loc = { 0.5, -1 }, scale =
    { 0.7, 1.5 } }, { 1.08521062, 0.162137929 } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "Laplace", { loc = { 0.5, -1 }, scale
    = { 0.7, 1.5 } }, { 0.073971741, 0.228905099 } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "Normal", { loc = { 0.27, -0.45 },
    scale = { 0.99, 1.21 } }, { 0.00899245712, 0.00938708712 } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "Pareto", { scale = { 0.2, 0.4 },
    alpha = { 2.5, 1.5 } }, { inf, inf } },
  { "Normal", { loc = { 0.3, -0.5 }, scale = { 0.9, 1.1 } }, "Uniform", { low = { 0.25, 0.4 }, high
    = { 0.75, 1.5 } }, { inf, inf } },
  { "Pareto", { scale = { 0.2, 0.4 }, alpha = { 2.5, 1.5 } }, "Beta", { concentration1 = { 1.5, 2
    }, concentration0 = { 0.7, 3 } }, { inf, inf } },
  { "Pareto", { scale = { 0.2, 0.4 }, alpha = { 2.5, 1.5 } }, "ContinuousBernoulli", { probs = {
    0.3, 0.5001 } }, { inf, inf } },
  { "Pareto", { scale = { 0.2, 0.4 }, alpha = { 2.5, 1.5 } }, "Exponential", { rate = { 0.5, 2 } },
    { 1.98554249, 1.36194199 } },
  { "Pareto", { scale = { 0.2, 0.4 }, alpha = { 2.5, 1.5 } }, "Gamma", { concentration = { 1.5, 3
    }, rate = { 0.7, 2 } }, { 2.37801111, 1.16804294 } },
  { "Pareto", { scale = { 0.2, 0.4 }, alpha = { 2.5, 1.5 } }, "Normal", { loc = { 0.3, -0.5 },
    scale = { 0.9, 1.1 } }, { 1.99486222, inf } },
  { "Pareto", { scale = { 0.2, 0.4 }, alpha = { 2.5, 1.5 } }, "Pareto", { scale = { 0.22, 0.44 },
    alpha = { 2.75, 1.65 } }, { inf, inf } },
  { "Pareto", { scale = { 0.2, 0.4 }, alpha = { 2.5, 1.5 } }, "Uniform", { low = { 0.25, 0.4 },
    high = { 0.75, 1.5 } }, { inf, inf } },
  { "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } }, "Beta", { concentration1 = { 1.5, 2
    }, concentration0 = { 0.7, 3 } }, { 0.883959908, inf } },
  { "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } }, "ContinuousBernoulli", { probs = {
    0.3, 0.5001 } }, { 0.722883304, inf } },
  { "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } }, "Exponential", { rate = { 0.5, 2 } },
    { 1.63629436, 1.11154264 } },
  { "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } }, "Gamma", { concentration = { 1.5, 3
    }, rate = { 0.7, 2 } }, { 1.82656532, 0.646188268 } },
  { "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } }, "Gumbel", { loc = { 0.5, -1 }, scale
    = { 0.7, 1.5 } }, { 1.35786673, 1.88883463 } },
  { "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } }, "Normal", { loc = { 0.3, -0.5 },
    scale = { 0.9, 1.1 } }, { 1.54427664, 1.82940685 } },
  { "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } }, "Pareto", { scale = { 0.2, 0.4 },
    alpha = { 2.5, 1.5 } }, { 1.21613548, 0.588919798 } },
  { "Uniform", { low = { 0.25, 0.4 }, high = { 0.75, 1.5 } }, "Uniform", { low = { 0.225, 0.36 },
    high = { 0.825, 1.65 } }, { 0.182321557, 0.159332039 } },
  { "LowRankMultivariateNormal", { loc = { 0.3, -0.5, 1 }, cov_factor = { { 1, 0.5 }, { 0.2, -0.3
    }, { 0, 0.7 } }, cov_diag = { 0.5, 1, 2 } }, "LowRankMultivariateNormal", { loc = { 0.27,
    -0.45, 0.9 }, cov_factor = { { 1.1, 0.55 }, { 0.22, -0.33 }, { 0, 0.77 } }, cov_diag = { 0.55,
    1.1, 2.2 } }, 0.0145975059 },
  { "LowRankMultivariateNormal", { loc = { 0.3, -0.5, 1 }, cov_factor = { { 1, 0.5 }, { 0.2, -0.3
    }, { 0, 0.7 } }, cov_diag = { 0.5, 1, 2 } }, "MultivariateNormal", { loc = { -0.3, 0.5, 0 },
    covariance_matrix = { { 2, 0.5, 0.1 }, { 0.5, 1, -0.2 }, { 0.1, -0.2, 1.5 } } }, 1.15705377 },
  { "MultivariateNormal", { loc = { -0.3, 0.5, 0 }, covariance_matrix = { { 2, 0.5, 0.1 }, { 0.5,
    1, -0.2 }, { 0.1, -0.2, 1.5 } } }, "LowRankMultivariateNormal", { loc = { 0.3, -0.5, 1 },
    cov_factor = { { 1, 0.5 }, { 0.2, -0.3 }, { 0, 0.7 } }, cov_diag = { 0.5, 1, 2 } }, 0.781393136
    },
  { "MultivariateNormal", { loc = { -0.3, 0.5, 0 }, covariance_matrix = { { 2, 0.5, 0.1 }, { 0.5,
    1, -0.2 }, { 0.1, -0.2, 1.5 } } }, "MultivariateNormal", { loc = { -0.27, 0.45, 0 },
    covariance_matrix = { { 2.2, 0.55, 0.11 }, { 0.55, 1.1, -0.22 }, { 0.11, -0.22, 1.65 } } },
    0.00860759756 },
}

describe("kl_divergence", function()
  it("is PyTorch's for pairs of one kind and of two", function()
    for _, c in ipairs(PAIRS) do
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

  for _, c in ipairs(DIVERGENCES) do
    it(("of %s and %s is PyTorch's"):format(c[1], c[3]), function()
      local p, q = float64.parameters(c[2]), float64.parameters(c[4])
      close(D.kl_divergence(D[c[1]](p), D[c[3]](q)), c[5], "kl")
    end)
  end

  it("of one transform is that of the bases", function()
    local function of(loc, scale, t)
      return D.TransformedDistribution(D.Normal(f64(loc), f64(scale)), { t })
    end
    close(D.kl_divergence(of(0.3, 1.2, D.ExpTransform()), of(-0.3, 0.7, D.ExpTransform())),
      0.797738193, "kl")
    helper.raises("NotImplementedError", "transforms of p and q must be the same", function()
      D.kl_divergence(of(0.3, 1.2, D.ExpTransform()), of(-0.3, 0.7, D.TanhTransform()))
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
