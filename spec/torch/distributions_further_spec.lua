-- torch.distributions: those of the second row, transforms, mixtures: values by
-- PyTorch 2.15 in float64, draws by their moments. Kumaraswamy's mode is by its
-- formula (PyTorch's is NaN for a concentration0 above 1).
local helper = require("spec.helper")
local torch = require("torch")
local D = torch.distributions

local inf, nan = math.huge, 0.0 / 0.0

-- name, parameters, value, what PyTorch gives (icdf at 0.3)
local CASES = {
  { "VonMises", { loc = { 0.3, -1 }, concentration = { 0.7, 4 } }, { 1.2, -0.8 },
    {
      log_prob = { -1.52169066, -0.34258357 },
      mean = { 0.3, -1 },
      variance = { 0.669822704, 0.136477405 },
      mode = { 0.3, -1 },
    } },
  { "FisherSnedecor", { df1 = { 3, 5 }, df2 = { 5.5, 3 } }, { 0.7, 1.9 },
    {
      log_prob = { -0.701967338, -1.8407617 },
      mean = { 1.57142857, 3 },
      variance = { 7.13378685, nan },
      mode = { 0.244444444, 0.36 },
    } },
  { "Kumaraswamy", { concentration1 = { 0.7, 2 }, concentration0 = { 1.5, 3 } }, { 0.3, 0.6 },
    {
      log_prob = { 0.128473555, 0.38835964 },
      cdf = { 0.570238704, 0.737856 },
      icdf = { 0.108774875, 0.334807405 },
      entropy = { -0.264187819, -0.208426136 },
      mean = { 0.30655443, 0.457142857 },
      variance = { 0.0664734636, 0.0410204082 },
    } },
  { "ContinuousBernoulli", { probs = { 0.3, 0.5002 } }, { 0.4, 0.7 },
    {
      log_prob = { 0.0549936628, 0.000159973342 },
      cdf = { 0.503054895, 0.7 },
      icdf = { 0.221943475, 0.3 },
      entropy = { -0.0293862022, -2.66666691e-08 },
      mean = { 0.430222501, 0.500066667 },
      variance = { 0.0804251522, 0.0833333307 },
    } },
  { "ContinuousBernoulli", { logits = { -2, 1.5 } }, { 0.4, 0.7 },
    {
      log_prob = { 0.0385606384, 0.207947567 },
      cdf = { 0.636860768, 0.533548827 },
      icdf = { 0.15014691, 0.476771032 },
      entropy = { -0.151595924, -0.0887729422 },
      mean = { 0.343482357, 0.62055025 },
      variance = { 0.0689845848, 0.0747339704 },
    } },
  { "GeneralizedPareto", { loc = { 0.5, -1, 0 }, scale = { 0.7, 1.5, 2 }, concentration = { 0.3,
    -0.4, 0 } }, { 1.2, 0.3, 0.9 },
    {
      log_prob = { -0.780236869, -1.04396683, -1.14314718 },
      cdf = { 0.582949328, 0.654985743, 0.362371848 },
      icdf = { 0.763519709, -0.501400616, 0.713349888 },
      entropy = { 0.943325056, 1.00546511, 1.69314718 },
      mean = { 1.5, 0.0714285714, 2 },
      variance = { 2.5, 0.637755102, 4 },
      mode = { 0.5, -1, 0 },
    } },
  { "LogitRelaxedBernoulli", { temperature = 0.7, probs = { 0.3, 0.8 } }, { 0.4, -1.7 },
    {
      log_prob = { -2.04514771, -3.07957304 },
    } },
  { "RelaxedBernoulli", { temperature = 0.7, probs = { 0.3, 0.8 } }, { 0.4, 0.9 },
    {
      log_prob = { -0.394199836, 0.659223831 },
    } },
  { "ExpRelaxedCategorical", { temperature = 0.7, probs = { 0.3, 0.5, 0.2 } }, { -1, -0.8, -2 },
    {
      log_prob = -3.3530737,
    } },
  { "RelaxedOneHotCategorical", { temperature = 0.7, probs = { 0.3, 0.5, 0.2 } }, { 0.2, 0.7, 0.1
    },
    {
      log_prob = 0.898626066,
    } },
  { "LogisticNormal", { loc = { 0.3, -0.5 }, scale = { 0.7, 1.2 } }, { 0.2, 0.7, 0.1 },
    {
      log_prob = -0.478545237,
    } },
  { "LowRankMultivariateNormal", { loc = { 0.3, -0.5, 1 }, cov_factor = { { 1, 0.5 }, { 0.2, -0.3
    }, { 0, 0.7 } }, cov_diag = { 0.5, 1, 2 } }, { 0.5, 1, -1 },
    {
      log_prob = -5.17394022,
      entropy = 5.03004336,
      mean = { 0.3, -0.5, 1 },
      variance = { 1.75, 1.13, 2.49 },
      mode = { 0.3, -0.5, 1 },
      covariance_matrix = { { 1.75, 0.05, 0.35 }, { 0.05, 1.13, -0.21 }, { 0.35, -0.21, 2.49 } },
      precision_matrix = { { 0.589929283, -0.0421743205, -0.0864786572 }, { -0.0421743205,
        0.902061856, 0.0820056232 }, { -0.0864786572, 0.0820056232, 0.420678197 } },
      scale_tril = { { 1.32287566, 0, 0 }, { 0.0377964473, 1.06234243, 0 }, { 0.264575131,
        -0.207089536, 1.5417892 } },
    } },
  { "Wishart", { df = 5, covariance_matrix = { { 2, 0.5 }, { 0.5, 1 } } }, { { 3, 0.4 }, { 0.4, 2 }
    },
    {
      log_prob = -5.84280667,
      entropy = 7.64997206,
      mean = { { 10, 2.5 }, { 2.5, 5 } },
      variance = { { 40, 11.25 }, { 11.25, 10 } },
      mode = { { 4, 1 }, { 1, 2 } },
      precision_matrix = { { 0.571428571, -0.285714286 }, { -0.285714286, 1.14285714 } },
      scale_tril = { { 1.41421356, 0 }, { 0.353553391, 0.935414347 } },
    } },
  { "Wishart", { df = 3.5, scale_tril = { { 1.2, 0 }, { 0.5, 0.8 } } }, { { 3, 0.4 }, { 0.4, 2 } },
    {
      log_prob = -4.98229848,
      entropy = 5.84166281,
      mean = { { 5.04, 2.1 }, { 2.1, 3.115 } },
      variance = { { 14.5152, 5.7456 }, { 5.7456, 5.5447 } },
      mode = { { 0.72, 0.3 }, { 0.3, 0.445 } },
      covariance_matrix = { { 1.44, 0.6 }, { 0.6, 0.89 } },
      precision_matrix = { { 0.965711806, -0.651041667 }, { -0.651041667, 1.5625 } },
    } },
  { "LKJCholesky", { dim = 3, concentration = 1.7 }, { { 1, 0, 0 }, { 0.6, 0.8, 0 }, { 0.48, 0.64,
    0.6 } },
    {
      log_prob = -2.09929389,
    } },
}

-- name, arguments, x, y, log_abs_det_jacobian
local TRANSFORMS = {
  { "ExpTransform", {}, { 0.3, -1.2 },
    { 1.34985881, 0.301194212 },
    { 0.3, -1.2 } },
  { "PowerTransform", { 2.5 }, { 0.3, 1.2 },
    { 0.0492950302, 1.57744097 },
    { -0.889668475, 1.18977307 } },
  { "SigmoidTransform", {}, { 0.3, -1.2 },
    { 0.574442517, 0.231475217 },
    { -1.40871049, -1.72656493 } },
  { "SoftplusTransform", {}, { 0.3, -1.2 },
    { 0.854355244, 0.263282467 },
    { -0.554355244, -1.46328247 } },
  { "TanhTransform", {}, { 0.3, -1.2 },
    { 0.291312612, -0.833654607 },
    { -0.0886815399, -1.18737794 } },
  { "AffineTransform", { 0.5, -2 }, { 0.3, -1.2 },
    { -0.1, 2.9 },
    { 0.693147181, 0.693147181 } },
  { "SoftmaxTransform", {}, { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } },
    { { 0.368330249, 0.0821855875, 0.549484163 }, { 0.589648394, 0.264946102, 0.145405504 } },
    nil },
  { "StickBreakingTransform", {}, { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } },
    { { 0.310322442, 0.0902691687, 0.400517356, 0.198891033 }, { 0.475366886, 0.198915932,
      0.130714324, 0.195002857 } },
    { -6.10509905, -6.02802351 } },
  { "CorrCholeskyTransform", {}, { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } },
    { { { 1, 0, 0 }, { 0.291312612, 0.956627912, 0 }, { -0.833654607, 0.333783955, 0.440009395 } },
      { { 1, 0, 0 }, { 0.761594156, 0.648054274, 0 }, { 0.19737532, -0.372474605, 0.906810703 } }
      },
    { -2.32428891, -1.08307285 } },
  { "ReshapeTransform", { { 2, 3 }, { 3, 2 } }, { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } },
    { { 0.3, -1.2 }, { 0.7, 1 }, { 0.2, -0.4 } },
    0 },
  { "LowerCholeskyTransform", {}, { { 0.3, 0 }, { -0.5, 0.2 } },
    { { 1.34985881, 0 }, { -0.5, 1.22140276 } },
    nil },
  { "PositiveDefiniteTransform", {}, { { 0.3, 0 }, { -0.5, 0.2 } },
    { { 1.8221188, -0.674929404 }, { -0.674929404, 1.7418247 } },
    nil },
}

local function f64(v)
  return torch.tensor(v, { dtype = torch.float64 })
end

local function parameters(given)
  local out = {}
  for name, v in pairs(given) do
    out[name] = math.type(v) == "integer" and name == "dim" and v or f64(v)
  end
  return out
end

-- loose: PyTorch's Bessel function is a polynomial, right to 1e-7.
local function close(got, want, what, loose)
  want = f64(want)
  assert.same({ table.unpack(want.shape) }, { table.unpack(got.shape) }, what)
  local rtol, atol = loose and 1e-6 or 2e-8, loose and 1e-6 or 1e-9
  assert.is_true(torch.allclose(got:double(), want, rtol, atol, true),
    ("%s: %s, expected %s"):format(what, tostring(got), tostring(want)))
end

local METHODS = { log_prob = true, cdf = true, icdf = true }

for i, c in ipairs(CASES) do
  describe(c[1] .. " " .. i, function()
    local d = D[c[1]](parameters(c[2]))

    it("has PyTorch's densities, quantiles and moments", function()
      for what, want in pairs(c[4]) do
        if METHODS[what] then
          close(d[what](d, f64(what == "icdf" and 0.3 or c[3])), want, what, c[1] == "VonMises")
        else
          close(what == "entropy" and d:entropy() or d[what], want, what, c[1] == "VonMises")
        end
      end
    end)

    it("draws in the shape that is asked for, of the support", function()
      torch.manual_seed(7)
      local one = d:sample()
      local x = d:sample({ 200 })
      assert.same({ 200, table.unpack(one.shape) }, { table.unpack(x.shape) })
      assert.is_false(x.requires_grad)
      assert.is_true(d:log_prob(x):isfinite():all():item())
      local wide = d:expand({ 5, table.unpack(d.batch_shape) })
      assert.same({ 5, table.unpack(one.shape) }, { table.unpack(wide:sample().shape) })
      close(wide:log_prob(x[0])[4], d:log_prob(x[0]):tolist(), "expand")
    end)

    local moments = c[4].mean and c[4].variance and c[1] ~= "VonMises"
    if moments then
      it("draws with those moments", function()
        torch.manual_seed(7)
        local n = 20000
        local mean = d:sample({ n }):mean(0):flatten():tolist()
        local want, var = f64(c[4].mean):flatten():tolist(), f64(c[4].variance):flatten():tolist()
        for k, m in ipairs(mean) do
          local known = var[k] == var[k] and var[k] ~= inf
          assert.is_true(not known or math.abs(m - want[k]) < 5 * math.sqrt(var[k] / n),
            ("mean %g, expected %g"):format(m, want[k]))
        end
      end)
    end
  end)
end

it("angles lie around their place", function()
  torch.manual_seed(7)
  local d = D.VonMises(f64({ 0.3, -1, 3 }), f64({ 0.7, 4, 1e-6 }))
  local x, n = d:sample({ 20000 }), 20000
  assert.is_true(x:abs():max():item() <= math.pi)
  local along = (x - d.loc):cos():mean(0)
  close((along - (1 - d.variance)):abs():lt(5 / math.sqrt(n)):double(), { 1, 1, 1 }, "cosine")
  close(((x - d.loc):sin():mean(0)):abs():lt(5 / math.sqrt(n)):double(), { 1, 1, 1 }, "sine")
end)

it("factors of correlations have rows of length 1", function()
  torch.manual_seed(7)
  local x = D.LKJCholesky(4, f64({ 0.5, 3 })):sample({ 3000 })
  close(x:pow(2):sum(-1):mean({ 0, 1 }), { 1, 1, 1, 1 }, "rows")
  -- a correlation's variance is 1 / (2 concentration + dim - 1)
  local r = x:matmul(x.mT):select(-1, 0):select(-1, 3)
  assert.is_true((r:pow(2):mean(0) - f64({ 1 / 4, 1 / 9 })):abs():max():item() < 0.02)
end)

it("Kumaraswamy's mode is where its density is highest", function()
  local d = D.Kumaraswamy(f64(2.5), f64(3))
  local x = torch.linspace(0.01, 0.99, 981, { dtype = torch.float64 })
  close(d.mode:mul(1000):round(), d:log_prob(x):argmax():item() + 10, "mode")
end)

describe("a transform", function()
  for _, c in ipairs(TRANSFORMS) do
    it(c[1] .. " is PyTorch's", function()
      local t, x = D[c[1]](table.unpack(c[2])), f64(c[3])
      local y = t(x)
      close(y, c[4], "forward")
      if c[1] ~= "SoftmaxTransform" then
        close(t.inv(y), c[3], "inverse")
      end
      if c[5] then
        close(t:log_abs_det_jacobian(x, y), c[5], "slope")
        close(t.inv:log_abs_det_jacobian(y, x), (-f64(c[5])):tolist(), "slope of the inverse")
      end
      assert.same({ table.unpack(y.shape) }, { table.unpack(t:forward_shape(x.shape)) })
      assert.same({ table.unpack(x.shape) }, { table.unpack(t:inverse_shape(y.shape)) })
      assert.is_true(t.inv.inv == t)
    end)
  end

  local x = { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } }

  it("is composed, and goes over parts", function()
    local t = D.ComposeTransform({ D.AffineTransform(1, 2), D.TanhTransform(),
      D.IndependentTransform(D.ExpTransform(), 1) })
    local y = t(f64(x))
    close(y, { { 2.51348077, 0.412569069, 2.67426575 }, { 2.70487244, 2.42383658, 1.21820117 } },
      "composed")
    close(t:log_abs_det_jacobian(f64(x), y), { -3.75604806, -2.03294118 }, "slope")
    close(t.inv(y), x, "inverse")
    assert.same({ 1, 1 }, { t.domain.event_dim, t.codomain.event_dim })
    t = D.CatTransform({ D.ExpTransform(), D.AffineTransform(0, 3) }, 1, { 1, 2 })
    y = t(f64(x))
    close(y, { { 1.34985881, -3.6, 2.1 }, { 2.71828183, 0.6, -1.2 } }, "cat")
    close(t:log_abs_det_jacobian(f64(x), y),
      { { 0.3, 1.09861229, 1.09861229 }, { 1, 1.09861229, 1.09861229 } }, "slope")
    close(t.inv(y), x, "inverse")
    t = D.StackTransform({ D.ExpTransform(), D.TanhTransform() }, 0)
    y = t(f64(x))
    close(y, { { 1.34985881, 0.301194212, 2.01375271 }, { 0.761594156, 0.19737532, -0.379948962 } },
      "stack")
    close(t:log_abs_det_jacobian(f64(x), y),
      { { 0.3, -1.2, 0.7 }, { -0.867561661, -0.0397361437, -0.155906971 } }, "slope")
    close(t.inv(y), x, "inverse")
    close(D.identity_transform(f64(x)), x, "identity")
  end)

  it("keeps its last value when asked to, so that 1 has an inverse", function()
    local t, big = D.TanhTransform({ cache_size = 1 }), f64({ 30 })
    close(t.inv(t(big)), { 30 }, "kept")
    close(D.TanhTransform().inv(D.TanhTransform()(big)), { inf }, "not kept")
    assert.equal(1, D.ComposeTransform({ D.ExpTransform() }, 1).parts[1].cache_size)
  end)

  it("of one's own is a class", function()
    local Cube = D.Transform:extend("Cube")
    Cube.bijective, Cube.sign = true, 1
    function Cube._call(_, v) return v:pow(3) end
    function Cube._inverse(_, v) return v:sign() * v:abs():pow(1 / 3) end
    function Cube.log_abs_det_jacobian(_, v) return (3 * v * v):log() end
    local d = D.TransformedDistribution(D.Normal(f64(0), f64(1)), Cube())
    local want = D.Normal(f64(0), f64(1)):log_prob(f64(2)) - math.log(12)
    close(d:log_prob(f64(8)), want:item(), "density")
    helper.raises("NotImplementedError", "Bare has no _inverse", function()
      return D.Transform:extend("Bare")().inv(f64(1))
    end)
  end)

  it("equals another with the same options", function()
    assert.is_true(D.ExpTransform() == D.ExpTransform())
    assert.is_true(D.AffineTransform(0, 1) == D.AffineTransform(f64(0), 1))
    assert.is_false(D.AffineTransform(0, 1) == D.AffineTransform(0, 2))
    assert.is_false(D.ExpTransform() == D.TanhTransform())
    assert.equal("ComposeTransform(\n    ExpTransform(),\n    TanhTransform()\n)",
      tostring(D.ComposeTransform({ D.ExpTransform(), D.TanhTransform() })))
  end)

  it("refuses shapes and options that it cannot take", function()
    helper.raises("ValueError", "cache_size must be 0 or 1", function()
      D.ExpTransform(2)
    end)
    helper.raises("ValueError", "different numbers of elements", function()
      D.ReshapeTransform({ 2 }, { 3 })
    end)
    helper.raises("ValueError", "not a flattened lower%-diagonal number", function()
      D.CorrCholeskyTransform()(torch.zeros(4))
    end)
    helper.raises("TypeError", "parts%[1%]: expected a Transform", function()
      D.ComposeTransform({ 3 })
    end)
  end)
end)

describe("a transformed distribution", function()
  it("has PyTorch's density and quantiles, of decreasing maps too", function()
    local d = D.TransformedDistribution(D.Normal(f64({ 0.3, -.5 }), f64({ .7, 1.2 })),
      { D.AffineTransform(0.5, -2), D.SigmoidTransform() })
    close(d:log_prob(f64({ 0.4, 0.8 })), { 0.147902287, 0.0370518866 }, "log_prob")
    close(d:cdf(f64({ 0.4, 0.8 })), { 0.413640786, 0.481106241 }, "cdf")
    close(d:icdf(f64({ 0.2, 0.9 })), { 0.217844898, 0.989806142 }, "icdf")
  end)

  it("has the batch that its transforms make", function()
    local d = D.TransformedDistribution(D.Normal(f64({ 0.3, -.5 }), f64({ .7, 1.2 })),
      D.AffineTransform(f64({ { 1 }, { 2 } }), f64({ 2, 3 }), { event_dim = 1 }))
    assert.same({ 2 }, { table.unpack(d.batch_shape) })
    assert.same({ 2 }, { table.unpack(d.event_shape) })
    close(d:log_prob(f64({ 0.4, .2 })), { -3.84153441, -4.69344925 }, "log_prob")
    assert.same({ 7, 2, 2 }, { table.unpack(d:sample({ 7 }).shape) })
  end)

  it("passes gradients to the parameters of its base", function()
    local loc = f64({ 0.3, -.5 }):requires_grad_()
    local scale = f64({ .7, 1.2 }):requires_grad_()
    local d = D.TransformedDistribution(D.Independent(D.Normal(loc, scale), 1),
      { D.TanhTransform(), D.StickBreakingTransform() })
    local p = d:log_prob(f64({ 0.4266186206, 0.2156905298, 0.3576908496 }))
    p:backward()
    close(p:detach(), 2.20184363, "log_prob")
    close(loc.grad, { 0.246245515, -0.0396544885 }, "loc")
    close(scale.grad, { -1.38612563, -0.831446359 }, "scale")
    assert.is_true(d:rsample().requires_grad)
    assert.is_false(d:sample().requires_grad)
  end)

  it("refuses a value outside of its support, and has no moments", function()
    local d = D.TransformedDistribution(D.Normal(0, 1), { D.ExpTransform() })
    helper.raises("ValueError", "within the support", function()
      d:log_prob(torch.tensor(-1.0))
    end)
    helper.raises("NotImplementedError", "TransformedDistribution has no mean", function()
      return d.mean
    end)
    helper.raises("TypeError", "expected a distribution", function()
      D.TransformedDistribution(3, {})
    end)
  end)

  it("is drawn in a program", function()
    local function f(u)
      return D.TransformedDistribution(D.Normal(u, 1.0), { D.TanhTransform() })
        :log_prob(u:tanh() * 0.9)
    end
    local u = torch.randn(4)
    helper.near(require("lupine").compile(f, { u })(u), f(u))
  end)
end)

describe("a mixture of one family", function()
  it("has PyTorch's density and moments", function()
    local m = D.MixtureSameFamily(D.Categorical(f64({ .2, .5, .3 })),
      D.Normal(f64({ 0, 1, -2 }), f64({ .5, 1, 2 })))
    close(m:log_prob(f64({ 0.3, -1 })), { -1.13847459, -2.28866573 }, "log_prob")
    close(m:cdf(f64({ 0.3, -1 })), { 0.528609622, 0.223363831 }, "cdf")
    close(m.mean, -0.1, "mean")
    close(m.variance, 3.44, "variance")
  end)

  it("has the events of its components", function()
    local loc = (torch.arange(12, { dtype = torch.float64 }):reshape(2, 2, 3) * .7):sin()
    local m = D.MixtureSameFamily(D.Categorical(f64({ { .2, .8 }, { .6, .4 } })),
      D.Independent(D.Normal(loc, torch.full_like(loc, 0.8)), 1))
    assert.same({ 2 }, { table.unpack(m.batch_shape) })
    assert.same({ 3 }, { table.unpack(m.event_shape) })
    close(m:log_prob(f64({ .3, -1, .5 })), { -4.32319941, -4.2762646 }, "log_prob")
    close(m.mean,
      { { 0.690567493, 0.396834058, -0.0835366362 }, { -0.516219903, -0.326676928, 0.0165073108 } },
      "mean")
    close(m.variance,
      { { 0.759220866, 0.655299665, 0.925682963 },
        { 0.829416691, 1.28506262, 1.26941663 } }, "variance")
    torch.manual_seed(3)
    local x = m:sample({ 20000 })
    assert.same({ 20000, 2, 3 }, { table.unpack(x.shape) })
    assert.is_true((x:mean(0) - m.mean):abs():max():item() < 0.05)
    assert.is_true((x:var(0) - m.variance):abs():max():item() < 0.05)
  end)

  it("refuses components of another number", function()
    helper.raises("ValueError", "does not equal", function()
      D.MixtureSameFamily(D.Categorical(torch.ones(3)), D.Normal(torch.zeros(2), 1))
    end)
    helper.raises("ValueError", "Mixture distribution needs to be", function()
      D.MixtureSameFamily(D.Normal(0, 1), D.Normal(torch.zeros(2), 1))
    end)
    helper.raises("NotImplementedError", "no rsample", function()
      D.MixtureSameFamily(D.Categorical(torch.ones(2)), D.Normal(torch.zeros(2), 1)):rsample()
    end)
  end)
end)

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
  for _, c in ipairs(DIVERGENCES) do
    it(("of %s and %s is PyTorch's"):format(c[1], c[3]), function()
      close(D.kl_divergence(D[c[1]](parameters(c[2])), D[c[3]](parameters(c[4]))), c[5], "kl")
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
