-- torch.distributions: what constructors and methods refuse.
local helper = require("spec.helper")
local float64 = require("spec.support.float64")
local torch = require("torch")
local D = torch.distributions
local f64 = float64.tensor

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

-- PyTorch's constructors take them too, but most of its samplers do not.
describe("tensors of integers", function()
  local ints, logits = torch.tensor({ 1, 2 }), { logits = torch.tensor({ 1, 2 }) }
  local eye = torch.tensor({ { 2, 0 }, { 0, 2 } })
  local two = { VonMises = true, Normal = true, Laplace = true, LogNormal = true, Gumbel = true,
    Cauchy = true, Gamma = true, Beta = true, Pareto = true, Weibull = true, InverseGamma = true,
    FisherSnedecor = true, Kumaraswamy = true, GeneralizedPareto = true, LogisticNormal = true }
  local cases = { Uniform = { ints - 1, ints }, Categorical = { ints }, Dirichlet = { ints },
    OneHotCategorical = { ints }, ContinuousBernoulli = { logits }, Bernoulli = { logits },
    Geometric = { logits }, LKJCholesky = { 3, ints }, MultivariateNormal = { ints, eye },
    LowRankMultivariateNormal = { ints, eye, ints }, Wishart = { ints[1] + 1, eye },
    Binomial = { ints, logits }, NegativeBinomial = { ints, logits }, Multinomial = { 3, logits },
    RelaxedBernoulli = { ints[1], logits }, RelaxedOneHotCategorical = { ints[1], logits } }
  for name in pairs(two) do
    cases[name] = { ints, ints, name == "GeneralizedPareto" and ints or nil }
  end
  for _, name in ipairs({ "Exponential", "Poisson", "Chi2", "StudentT", "HalfNormal",
    "HalfCauchy" }) do
    cases[name] = { ints }
  end
  for name, arguments in pairs(cases) do
    it("are floating-point parameters of " .. name, function()
      local floats = {}
      for i, v in ipairs(arguments) do
        floats[i] = v == logits and { logits = logits.logits:float() }
          or torch.is_tensor(v) and v:float() or v
      end
      local d = D[name](table.unpack(arguments))
      local x = d:sample({ 3 })
      local density = d:log_prob(x)
      assert.equal(torch.float32, density.dtype)
      torch.testing.assert_close(density, D[name](table.unpack(floats)):log_prob(x))
    end)
  end

  it("take the type of a floating-point tensor beside them", function()
    local d = D.Normal(f64({ 0.5, 1 }), torch.tensor({ 1, 2 }))
    assert.equal(torch.float64, d:sample().dtype)
  end)
end)
