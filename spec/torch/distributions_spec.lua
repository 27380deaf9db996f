-- torch.distributions: values by PyTorch 2.15, draws by their moments.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises
local D = torch.distributions
local near = helper.near

local x = torch.tensor({ 0.3, 1.7, 0.9 })
local a, b = torch.tensor({ 0.5, 1.0, 2.0 }), torch.tensor({ 0.7, 2.0, 0.4 })
local p = torch.tensor({ 0.2, 0.5, 0.8 })
local TOL = { 2e-5, 1e-5 }

-- name, arguments, log_prob(x), cdf(x), icdf(p), entropy, mean, variance
local WANT = {
  { "Normal", { a, b }, { -0.60308, -1.67334, -3.7839 }, { 0.38755, 0.63683, 0.00298 },
    { -0.08913, 1.0, 2.33665 }, { 1.06226, 2.11209, 0.50265 }, { 0.5, 1.0, 2.0 },
    { 0.49, 4.0, 0.16 } },
  { "Laplace", { a, b }, { -0.62219, -1.73629, -2.52686 }, { 0.37574, 0.64766, 0.03196 },
    { -0.1414, 1.0, 2.36652 }, { 1.33647, 2.38629, 0.77686 }, { 0.5, 1.0, 2.0 },
    { 0.98, 8.0, 0.32 } },
  { "LogNormal", { a, b }, { -2.32107, -2.17025, -13.74898 }, { 0.00746, 0.40723, 0.0 },
    { 0.91472, 2.71828, 10.3465 }, { 1.56226, 3.11209, 2.50265 }, { 2.10644, 20.08554, 8.00447 },
    { 2.80565, 21623.037, 11.1171 } },
  { "Gumbel", { a, b }, { -0.68832, -1.74784, -11.97634 }, { 0.26429, 0.49426, 0.0 },
    { 0.16688, 1.73303, 2.59998 }, { 1.22054, 2.27036, 0.66092 }, { 0.90405, 2.15443, 2.23089 },
    { 0.80602, 6.57974, 0.26319 } },
  { "Cauchy", { a, b }, { -0.86653, -1.95344, -2.37583 }, { 0.41141, 0.60717, 0.11102 },
    { -0.46347, 1.0, 2.55055 }, { 2.17435, 3.22417, 1.61473 } },
  { "Uniform", { a - 1, a + b, { validate_args = false } }, { -0.53063, -1.09861, -math.huge },
    { 0.47059, 0.56667, 0.0 }, { -0.16, 1.5, 2.12 }, { 0.53063, 1.09861, 0.33647 },
    { 0.35, 1.5, 1.7 }, { 0.24083, 0.75, 0.16333 } },
  { "Exponential", { b }, { -0.56667, -2.70685, -1.27629 }, { 0.18942, 0.96663, 0.30232 },
    { 0.31878, 0.34657, 4.02359 }, { 1.35667, 0.30685, 1.91629 }, { 1.42857, 0.5, 2.5 },
    { 2.04082, 0.25, 6.25 } },
}

describe("distributions of numbers", function()
  for _, w in ipairs(WANT) do
    it(w[1] .. " has PyTorch's densities, quantiles and moments", function()
      local d = D[w[1]](table.unpack(w[2]))
      near(d:log_prob(x), w[3], TOL)
      near(d:cdf(x), w[4], TOL)
      near(d:icdf(p), w[5], TOL)
      near(d:entropy(), w[6], TOL)
      if w[7] then
        near(d.mean, w[7], TOL)
        near(d.variance, w[8], TOL)
        near(d.stddev:pow(2), w[8], TOL)
      end
    end)

    it(w[1] .. "'s draws have its quantiles", function()
      torch.manual_seed(4)
      local d = D[w[1]](table.unpack(w[2]))
      local draws = d:sample({ 4000 })
      assert.same({ 4000, 3 }, { table.unpack(draws.shape) })
      -- the share below a quantile has a standard deviation of at most 0.008
      for _, q in ipairs({ 0.1, 0.5, 0.9 }) do
        local share = draws:le(d:icdf(torch.full({ 3 }, q))):float():mean(0)
        near(share, { q, q, q }, { 0.035, 0 })
      end
    end)
  end
end)

describe("distributions of counts and classes", function()
  it("Bernoulli and Geometric have PyTorch's values", function()
    local v = torch.tensor({ 1.0, 0.0, 1.0 })
    for _, w in ipairs({
      { "Bernoulli", { -1.60944, -0.69315, -0.22314 }, { -0.47408, -1.31326, -0.12693 },
        { 0.5004, 0.69315, 0.5004 }, { 0.2, 0.5, 0.8 }, { 0.16, 0.25, 0.16 },
        { 0.37367, 0.12011, 0.02653 } },
      { "Geometric", { -1.83258, -0.69315, -1.83258 }, { -1.44815, -0.31326, -2.25386 },
        { 2.50201, 1.38629, 0.6255 }, { 4.0, 1.0, 0.25 }, { 20.0, 2.0, 0.3125 },
        { 1.86837, 0.24023, 0.03316 } },
    }) do
      local d, e = D[w[1]](p), D[w[1]]({ logits = a })
      near(d:log_prob(v), w[2], TOL)
      near(e:log_prob(v), w[3], TOL)
      near(d:entropy(), w[4], TOL)
      near(d.mean, w[5], TOL)
      near(d.variance, w[6], TOL)
      near(D.kl_divergence(d, e), w[7], TOL)
      torch.manual_seed(2)
      local means = d:sample({ 4000 }):mean(0):tolist()
      for i, m in ipairs(means) do -- within five standard deviations
        assert.is_true(math.abs(m - w[5][i]) < 5 * math.sqrt(w[6][i] / 4000))
      end
    end
  end)

  it("Categorical has PyTorch's values, and draws by its probabilities", function()
    local c = D.Categorical(torch.tensor({ { 1.0, 2.0, 1.0 }, { 0.0, 3.0, 1.0 } }))
    local e = D.Categorical({ logits = torch.tensor({ { 0.1, 0.2, 0.3 }, { 1.0, 0.0, -1.0 } }) })
    near(c:log_prob(torch.tensor({ 1, 2 })), { -0.69315, -1.38629 }, TOL)
    near(e:log_prob(torch.tensor({ { 1, 2 }, { 0, 0 } })),
      { { -1.10194, -2.40761 }, { -1.20194, -0.40761 } }, TOL)
    near(c:entropy(), { 1.03972, 0.56234 }, TOL)
    near(D.kl_divergence(c, e), { 0.06222, 1.09527 }, TOL)
    assert.same({ 1, 1 }, c.mode:tolist())
    torch.manual_seed(3)
    local draws = c:sample({ 3000 })
    assert.same({ 3000, 2 }, { table.unpack(draws.shape) })
    near(draws:select(1, 0):eq(1):float():mean(), 0.5, { 0.05, 0 })
    assert.equal(0, draws:select(1, 1):eq(0):sum():item())
    assert.same({ 2 }, { table.unpack(c:sample().shape) })
  end)
end)

describe("distributions together", function()
  it("are in PyTorch's modules too", function()
    for module, names in pairs({ normal = "Normal", half_cauchy = "HalfCauchy", chi2 = "Chi2",
      one_hot_categorical = "OneHotCategorical OneHotCategoricalStraightThrough",
      fishersnedecor = "FisherSnedecor", studentT = "StudentT", lkj_cholesky = "LKJCholesky",
      lowrank_multivariate_normal = "LowRankMultivariateNormal", von_mises = "VonMises",
      mixture_same_family = "MixtureSameFamily", relaxed_bernoulli = "RelaxedBernoulli",
      relaxed_categorical = "RelaxedOneHotCategorical", distribution = "Distribution",
      generalized_pareto = "GeneralizedPareto", negative_binomial = "NegativeBinomial" }) do
      for name in names:gmatch("%S+") do
        assert.equal(D[name], D[module][name])
      end
    end
    helper.raises("AttributeError", "torch.distributions.normal.*did you mean 'Normal'", function()
      return D.normal.Norml
    end)
  end)

  it("have PyTorch's divergences", function()
    local function kl(name)
      return D.kl_divergence(D[name](a, b), D[name](b, a))
    end
    near(kl("Normal"), { 0.22353, 1.30685, 1.44944 }, TOL)
    near(kl("Laplace"), { 0.1156, 0.51991, 1.4131 }, TOL)
    near(kl("Gumbel"), { 0.34751, 3.32063, 1.36023 }, TOL)
    near(kl("LogNormal"), { 0.22353, 1.30685, 1.44944 }, TOL)
    near(D.kl_divergence(D.Exponential(a), D.Exponential(b)), { 0.06353, 0.30685, 0.80944 }, TOL)
    near(D.kl_divergence(D.Uniform(a, a + 1), D.Uniform(a - 0.5, a + 1.5)),
      { 0.69315, 0.69315, 0.69315 }, TOL)
    helper.raises("NotImplementedError", "no formula for Normal and Cauchy", function()
      D.kl_divergence(D.Normal(a, b), D.Cauchy(a, b))
    end)
  end)

  it("Independent sums over the dimensions of an event", function()
    local d = D.Independent(D.Normal(a, b), 1)
    near(d:log_prob(x), -6.06031, TOL)
    near(d:entropy(), 3.677, TOL)
    assert.same({ 0, 3 }, { #d.batch_shape, d.event_shape[1] })
    near(D.kl_divergence(d, D.Independent(D.Normal(b, a), 1)), 0.22353 + 1.30685 + 1.44944, TOL)
  end)

  it("let gradients through their draws, and take numbers", function()
    local loc = torch.tensor({ 1.0, 2.0 }, { requires_grad = true })
    D.Normal(loc, 1.0):rsample({ 5 }):sum():backward()
    near(loc.grad, { 5.0, 5.0 })
    assert.is_false(D.Normal(loc, 1.0):sample().requires_grad)
    assert.equal("Normal(loc: 0.0, scale: 1.0)", tostring(D.Normal(0, 1)))
    assert.equal("Categorical(probs: torch.Size([2]))",
      tostring(D.Categorical({ probs = torch.tensor({ 0.5, 0.5 }) })))
    assert.equal("Bernoulli(logits: torch.Size([3]))",
      tostring(D.Bernoulli({ logits = torch.zeros({ 3 }) })))
    near(D.Normal(0, 1):log_prob(0), -0.9189385)
    assert.is_true(D.Normal(0, 1).has_rsample)
    assert.is_false(D.Bernoulli(0.5).has_rsample)
  end)

  it("draw in a compiled model, anew in every call", function()
    local model = torch.nn.Module:extend("Draws")()
    function model.forward(_, like)
      return D.Normal(like, torch.ones_like(like)):rsample(), D.Bernoulli(like * 0 + 0.5):sample()
    end
    local run = poptorch.inferenceModel(model)
    local zero = torch.zeros({ 2000 })
    local n1, c1 = run(zero)
    local n2 = run(zero)
    assert.is_false(torch.equal(n1, n2))
    near(n1:mean(), 0.0, { 0.15, 0 })
    near(n1:std(), 1.0, { 0.1, 0 })
    near(c1:mean(), 0.5, { 0.06, 0 })
  end)

  it("refuse parameters and values outside of their range", function()
    for _, c in ipairs({
      { function() D.Normal(0, -1.0) end, "Normal: expected parameter scale" },
      { function() D.Uniform(1.0, 1.0) end, "low >= high" },
      { function() D.Bernoulli(1.5) end, "parameter probs" },
      { function() D.Bernoulli() end, "either `probs` or `logits`" },
      { function() D.Categorical(torch.tensor(1.0)) end, "at least one%-dimensional" },
      { function() D.Exponential(1.0):log_prob(-1.0) end, "within the support" },
      { function() D.Uniform(0, 1):log_prob(2.0) end, "within the support" },
    }) do
      helper.raises("ValueError", c[2], c[1])
    end
    helper.raises("ValueError", "Normal: loc: expected a Tensor or a number", function()
      D.Normal("a", 1)
    end)
    helper.raises("NotImplementedError", "Bernoulli has no rsample", function()
      D.Bernoulli(0.5):rsample()
    end)
  end)
end)

describe("a wrong argument", function()
  it("is named", function()
    raises("ValueError", 'Normal: log_prob: value: expected a Tensor or a number, got string "a"',
      function() torch.distributions.Normal(0., 1.):log_prob("a") end)
  end)
end)

describe("Independent", function()
  it("keeps the event of its base behind the batch's dimensions", function()
    local base = D.MultivariateNormal(torch.zeros(3, 2), torch.eye(2))
    local d = D.Independent(base, 1)
    assert.same({ 3, 2 }, { table.unpack(d.event_shape) })
    assert.same({}, { table.unpack(d.batch_shape) })
    assert.near(8.5136, d:entropy():item(), 1e-4)
    assert.same({ 3, 2 }, { table.unpack(d:sample().shape) })
    assert.same({ 2 }, { table.unpack(D.Independent(base, 0).event_shape) })
  end)

  it("wants a distribution", function()
    raises("TypeError", "Independent: base_distribution: expected a distribution, got nil",
      function() D.Independent(nil, 1) end)
  end)
end)

describe("a missing parameter", function()
  it("is named", function()
    raises("TypeError", "Gamma: rate is missing", function() D.Gamma(1.0) end)
    raises("TypeError", "Normal: loc is missing", function() D.Normal() end)
  end)
end)

describe("an error of a parameter's check", function()
  it("is not taken for a trace", function()
    raises("RuntimeError", ".", function()
      require("torch.distributions.base").all(torch.empty({ 2 }, { device = "meta" }):gt(0))
    end)
  end)
end)
