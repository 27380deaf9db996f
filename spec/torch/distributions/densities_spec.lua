-- torch.distributions of positive numbers, intervals, angles, counts, vectors and
-- matrices: values by PyTorch 2.15 in float64, draws by their moments.
-- Kumaraswamy's mode is by its formula (PyTorch's is NaN for a concentration0
-- above 1).
local float64 = require("spec.support.float64")
local torch = require("torch")
local D = torch.distributions
local f64, close = float64.tensor, float64.close

local inf, nan = math.huge, 0.0 / 0.0

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

-- the same with icdf at 0.3
local AT_3 = {
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

local METHODS = { log_prob = true, cdf = true, icdf = true }

local function values(d, c, p)
  for what, want in pairs(c[4]) do
    if METHODS[what] then
      close(d[what](d, f64(what == "icdf" and p or c[3])), want, what, c[1] == "VonMises")
    else
      close(what == "entropy" and d:entropy() or d[what], want, what, c[1] == "VonMises")
    end
  end
end

local function shapes(d)
  torch.manual_seed(7)
  local one, x = d:sample(), d:sample({ 200 })
  assert.same({ 200, table.unpack(one.shape) }, { table.unpack(x.shape) })
  assert.same({ 2, 3, table.unpack(one.shape) }, { table.unpack(d:sample({ 2, 3 }).shape) })
  assert.is_false(x.requires_grad)
  assert.is_true(d:log_prob(x):isfinite():all():item())
  local wide = d:expand({ 5, table.unpack(d.batch_shape) })
  assert.same({ 5, table.unpack(one.shape) }, { table.unpack(wide:sample().shape) })
  close(wide:log_prob(x[0])[4], d:log_prob(x[0]):tolist(), "expand")
end

local function moments(d, c)
  torch.manual_seed(7)
  local n = 20000
  local x = d:sample({ n })
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
end

for _, group in ipairs({ { { 0.2, 0.9 }, CASES }, { 0.3, AT_3 } }) do
  local p, cases = group[1], group[2]
  for i, c in ipairs(cases) do
    describe(c[1] .. " " .. i, function()
      local d = D[c[1]](float64.parameters(c[2]))

      it("has PyTorch's densities, quantiles and moments", function()
        values(d, c, p)
      end)
      it("draws in the shape that is asked for, of the support", function()
        shapes(d)
      end)
      if c[4].mean and c[4].variance and c[1] ~= "VonMises" then
        it("draws with those moments", function()
          moments(d, c)
        end)
      end
    end)
  end
end

it("Kumaraswamy's mode is where its density is highest", function()
  local d = D.Kumaraswamy(f64(2.5), f64(3))
  local x = torch.linspace(0.01, 0.99, 981, { dtype = torch.float64 })
  close(d.mode:mul(1000):round(), d:log_prob(x):argmax():item() + 10, "mode")
end)
