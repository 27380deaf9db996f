--- LowRankMultivariateNormal, whose covariance is W Wᵀ + diag(D), Wishart, the
--- distribution of a covariance of normal draws, and LKJCholesky, of correlations.
--- Source: PyTorch documentation, torch.distributions; Woodbury's identity and
--- the matrix determinant lemma; Bartlett, 1933.
local base = require("torch.distributions.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local front, joined = base.front, base.joined
local LOG_2, LOG_2_PI = math.log(2), math.log(2 * math.pi)

local function torch()
  return require("torch")
end

local function diagonal(x)
  return x:diagonal({ dim1 = -2, dim2 = -1 })
end

-- L⁻¹ x for a lower L, both with one batch.
local function solved(lower, x)
  local batch = torch().broadcast_shapes(front(lower.shape, 2), front(x.shape, 2))
  local n = x:size(-2)
  return torch().linalg.solve_triangular(lower:expand(joined(batch, n, n)),
    x:expand(joined(batch, n, x:size(-1))), { upper = false })
end

-- ---- few directions ------------------------------------------------------------

local LOW = "LowRankMultivariateNormal"

local function setup_low_rank(d, a)
  for _, param in ipairs({ "loc", "cov_factor", "cov_diag" }) do
    errors.check(core.is_tensor(a[param]), "TypeError", "%s: %s: expected a Tensor", LOW, param)
  end
  errors.check(a.loc:dim() >= 1, "ValueError", "%s: loc must be at least one-dimensional.", LOW)
  local n = a.loc:size(-1)
  errors.check(a.cov_factor:dim() >= 2 and a.cov_factor:size(-2) == n, "ValueError",
    "%s: cov_factor must be a batch of matrices with shape %d x m", LOW, n)
  errors.check(a.cov_diag:dim() >= 1 and a.cov_diag:size(-1) == n, "ValueError",
    "%s: cov_diag must be a batch of vectors with shape %d", LOW, n)
  local batch = torch().broadcast_shapes(front(a.loc.shape, 1), front(a.cov_factor.shape, 2),
    front(a.cov_diag.shape, 1))
  d.batch_shape, d.event_shape = core.Size(batch), core.Size({ n })
  rawset(d, "loc", a.loc:expand(joined(batch, n)))
  rawset(d, "cov_factor", a.cov_factor:expand(joined(batch, n, a.cov_factor:size(-1))))
  rawset(d, "cov_diag", a.cov_diag:expand(joined(batch, n)))
  local w = a.cov_factor
  local scaled = w.mT / a.cov_diag:unsqueeze(-2)
  local eye = torch().eye(w:size(-1), base.kind_of(w))
  local capacitance = torch().linalg.cholesky(eye + scaled:matmul(w))
  rawset(d, "capacitance", capacitance:expand(joined(batch, w:size(-1), w:size(-1))))
end

-- W W^T + diag(D)
local function covariance(d)
  return d.cov_factor:matmul(d.cov_factor.mT) + d.cov_diag:diag_embed()
end

local function log_det(d)
  return 2 * diagonal(d.capacitance):log():sum(-1) + d.cov_diag:log():sum(-1)
end

-- x^T (W W^T + D)^-1 x for vectors x.
local function distance(d, x)
  local along = (d.cov_factor.mT / d.cov_diag:unsqueeze(-2)):matmul(x:unsqueeze(-1))
  return (x:pow(2) / d.cov_diag):sum(-1) - solved(d.capacitance, along):pow(2):sum({ -2, -1 })
end

local low_rank = {
  params = { "loc", "cov_factor", "cov_diag" },
  setup = setup_low_rank,
  check = function(d)
    base.require(d.cov_diag:gt(0), LOW, "cov_diag",
      "IndependentConstraint(GreaterThan(lower_bound=0.0), 1)")
  end,
  mean = function(d) return d.loc end,
  mode = function(d) return d.loc end,
  variance = function(d) return d.cov_factor:pow(2):sum(-1) + d.cov_diag end,
  covariance_matrix = covariance,
  precision_matrix = function(d)
    local a = solved(d.capacitance, d.cov_factor.mT / d.cov_diag:unsqueeze(-2))
    return (1 / d.cov_diag):diag_embed() - a.mT:matmul(a)
  end,
  scale_tril = function(d) return torch().linalg.cholesky(covariance(d)) end,
  entropy = function(d) return 0.5 * (d.loc:size(-1) * (1 + LOG_2_PI) + log_det(d)) end,
  rsample = function(d, shape)
    local whole = base.extended(d, shape)
    local eps = torch().randn(whole, base.kind_of(d.loc))
    whole[#whole] = d.cov_factor:size(-1)
    local along = torch().randn(whole, base.kind_of(d.loc)):unsqueeze(-1)
    return d.loc + d.cov_factor:matmul(along):squeeze(-1) + d.cov_diag:sqrt() * eps
  end,
  log_prob = function(d, x)
    return -0.5 * (d.loc:size(-1) * LOG_2_PI + log_det(d) + distance(d, x - d.loc))
  end,
}

-- ---- covariances ----------------------------------------------------------------

local GIVEN = { "covariance_matrix", "precision_matrix", "scale_tril" }

local function setup_wishart(d, a)
  local given
  for _, name in ipairs(GIVEN) do
    errors.check(not a[name] or not given, "ValueError", "Wishart: Exactly one of "
      .. "covariance_matrix or precision_matrix or scale_tril may be specified.")
    given = a[name] and name or given
  end
  errors.check(given and core.is_tensor(a[given]) and a[given]:dim() >= 2, "ValueError",
    "Wishart: Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
    .. "specified, as a matrix or a batch of them.")
  errors.check(a.df ~= nil, "TypeError", "Wishart: df is missing")
  local m = a[given]
  local n = m:size(-1)
  local df = core.is_tensor(a.df) and a.df
    or torch().tensor(a.df + 0.0, base.kind_of(m))
  local batch = torch().broadcast_shapes(df.shape, front(m.shape, 2))
  d.batch_shape, d.event_shape = core.Size(batch), core.Size({ n, n })
  rawset(d, "df", df:expand(batch))
  rawset(d, "given", given)
  local lower = m
  if given == "covariance_matrix" then
    lower = torch().linalg.cholesky(m)
  elseif given == "precision_matrix" then
    lower = torch().linalg.cholesky(torch().linalg.inv(m))
  end
  rawset(d, "scale_tril", lower:expand(joined(batch, n, n)))
end

local function scale_of(d)
  return d.scale_tril:matmul(d.scale_tril.mT)
end

local function half_log_det(d)
  return diagonal(d.scale_tril):log():sum(-1)
end

local function by_matrix(x)
  return x:unsqueeze(-1):unsqueeze(-1)
end

local wishart = {
  params = { "df", table.unpack(GIVEN) },
  setup = setup_wishart,
  check = function(d)
    errors.check(base.all(d.df:gt(d.event_shape[1] - 1)), "ValueError", "Wishart: Value of df=%s "
      .. "expected to be greater than ndim - 1 = %d.", tostring(d.df), d.event_shape[1] - 1)
  end,
  covariance_matrix = scale_of,
  precision_matrix = function(d) return torch().cholesky_inverse(d.scale_tril) end,
  mean = function(d) return by_matrix(d.df) * scale_of(d) end,
  mode = function(d)
    local factor = d.df - d.event_shape[1] - 1
    factor = torch().where(factor:le(0), 0.0 / 0.0, factor)
    return by_matrix(factor) * scale_of(d)
  end,
  variance = function(d)
    local v = scale_of(d)
    local along = diagonal(v)
    return by_matrix(d.df) * (v:pow(2) + along:unsqueeze(-1) * along:unsqueeze(-2))
  end,
  entropy = function(d)
    local n, df = d.event_shape[1], d.df
    local i = torch().arange(n, base.kind_of(df))
    local digamma = ((df:unsqueeze(-1) - i) / 2):digamma():sum(-1)
    return (n + 1) * (half_log_det(d) + 0.5 * n * LOG_2) + torch().mvlgamma(df / 2, n)
      - 0.5 * (df - n - 1) * digamma + 0.5 * n * df
  end,
  rsample = function(d, shape)
    local n = d.event_shape[1]
    local whole = base.extended(d, shape)
    local i = torch().arange(n, base.kind_of(d.df))
    local half = ((d.df:unsqueeze(-1) - i) / 2):expand(front(whole, 1))
    local chi = 2 * torch()._standard_gamma(half):clamp_min(torch().finfo(d.df.dtype).tiny)
    local noise = torch().randn(whole, base.kind_of(d.df)):tril(-1) + chi:sqrt():diag_embed()
    local factor = d.scale_tril:matmul(noise)
    return factor:matmul(factor.mT)
  end,
  log_prob = function(d, x)
    local n, df = d.event_shape[1], d.df
    local determinant = 2 * diagonal(torch().linalg.cholesky(x)):log():sum(-1)
    local ratio = solved(d.scale_tril, solved(d.scale_tril, x).mT)
    return 0.5 * ((df - n - 1) * determinant - diagonal(ratio):sum(-1) - df * n * LOG_2)
      - torch().mvlgamma(df / 2, n) - df * half_log_det(d)
  end,
}

-- ---- divergences ------------------------------------------------------------------

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
    self.event_shape = core.Size({ dim, dim })
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
    local along = x:diagonal({ dim1 = -2, dim2 = -1 }):narrow(-1, 1, n - 1)
    local order = t.arange(2, n + 1, base.kind_of(d.concentration))
    local power = 2 * (d.concentration - 1):unsqueeze(-1) + n - order
    local m = n - 1
    local alpha = d.concentration + 0.5 * m
    local norm = 0.5 * m * math.log(math.pi) + t.mvlgamma(alpha - 0.5, m) - alpha:lgamma() * m
    return (power * along:log()):sum(-1) - norm
  end
  M.LKJCholesky = cls
end

return function(M)
  M[LOW] = base.define(LOW, low_rank)
  M.Wishart = base.define("Wishart", wishart)

  -- Sum of distance(q, column) over columns of x.
  local function low_columns(q, x)
    local d = q.cov_diag:unsqueeze(-1)
    local along = (q.cov_factor.mT / q.cov_diag:unsqueeze(-2)):matmul(x)
    return (x:pow(2) / d):sum({ -2, -1 }) - solved(q.capacitance, along):pow(2):sum({ -2, -1 })
  end

  local function full_columns(q, x)
    return solved(q.scale_tril, x):pow(2):sum({ -2, -1 })
  end

  -- What p's covariance is made of, as columns.
  local function columns(p)
    if M[LOW]:is(p) then
      return torch().cat({ p.cov_factor, p.cov_diag:sqrt():diag_embed() }, -1)
    end
    return p.scale_tril
  end

  local function determinant(p)
    return M[LOW]:is(p) and log_det(p) or 2 * half_log_det(p)
  end

  --- Of the divergence of two normal distributions, of which one is of low rank.
  M[LOW]._divergence = function(p, q)
    local along = M[LOW]:is(q) and low_columns or full_columns
    return 0.5 * (determinant(q) - determinant(p) - p.loc:size(-1) + along(q, columns(p))
      + along(q, (p.loc - q.loc):unsqueeze(-1)))
  end
  define_lkj(M)
end
