--- Distributions of vectors: Dirichlet, MultivariateNormal.
--- Source: PyTorch documentation, torch.distributions.
local base = require("torch.distributions.base")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local front, joined = base.front, base.joined
local LOG_2_PI = math.log(2 * math.pi)

local function torch()
  return require("torch")
end

-- ---- the normal one ----------------------------------------------------------

local GIVEN = { "covariance_matrix", "precision_matrix", "scale_tril" }

-- L of L L^T = P^-1, by the factor of P from the other end.
local function inverse_factor(precision)
  local lower = torch().linalg.cholesky(precision:flip({ -2, -1 })):flip({ -2, -1 }).mT
  local eye = torch().eye(precision:size(-1), base.kind_of(precision)):expand(precision.shape)
  return torch().linalg.solve_triangular(lower, eye, { upper = false })
end

local function setup_normal(d, a)
  local given
  for _, name in ipairs(GIVEN) do
    if a[name] then
      errors.check(not given, "ValueError", "MultivariateNormal: Exactly one of "
        .. "covariance_matrix or precision_matrix or scale_tril may be specified.")
      given = name
    end
  end
  errors.check(given, "ValueError", "MultivariateNormal: Exactly one of covariance_matrix or "
    .. "precision_matrix or scale_tril may be specified.")
  errors.check(core.is_tensor(a.loc) and a.loc:dim() >= 1, "ValueError",
    "MultivariateNormal: loc must be at least one-dimensional.")
  local matrix, k = a[given], a.loc:size(-1)
  errors.check(core.is_tensor(matrix) and matrix:dim() >= 2, "ValueError",
    "MultivariateNormal: %s must be at least two-dimensional, with optional leading batch "
    .. "dimensions", given)
  errors.check(matrix:size(-1) == k and matrix:size(-2) == k, "ValueError",
    "MultivariateNormal: %s must have shape [..., %d, %d] for a loc of %d, got %s", given, k, k, k,
    tostring(matrix.shape))
  local batch = torch().broadcast_shapes(front(a.loc.shape, 1), front(matrix.shape, 2))
  d.batch_shape, d.event_shape = core.Size(batch), core.Size({ k })
  rawset(d, "loc", a.loc:expand(joined(batch, k)))
  rawset(d, "given", given)
  rawset(d, "matrix", matrix:expand(joined(batch, k, k)))
  if given == "covariance_matrix" then
    rawset(d, "scale_tril", torch().linalg.cholesky(d.matrix))
  else
    rawset(d, "scale_tril", given == "scale_tril" and d.matrix or inverse_factor(d.matrix))
  end
end

local function half_log_det(d)
  return d.scale_tril:diagonal({ dim1 = -2, dim2 = -1 }):log():sum(-1)
end

-- |L^-1 x|^2 for vectors x of any batch with the matrices' one.
local function distance(lower, x)
  local batch = torch().broadcast_shapes(front(lower.shape, 2), front(x.shape, 1))
  local k = x:size(-1)
  local y = torch().linalg.solve_triangular(lower:expand(joined(batch, k, k)),
    x:expand(joined(batch, k)):unsqueeze(-1), { upper = false })
  return y:squeeze(-1):pow(2):sum(-1)
end

local normal = {
  params = { "loc", table.unpack(GIVEN) },
  setup = setup_normal,
  check = function(d)
    local m = d.matrix
    if d.given == "scale_tril" then
      local diagonal = m:diagonal({ dim1 = -2, dim2 = -1 })
      base.require(m:tril():eq(m):all():logical_and(diagonal:gt(0):all()), "MultivariateNormal",
        "scale_tril", "LowerCholesky()")
    else
      base.require((m - m.mT):abs():le(1e-6), "MultivariateNormal", d.given,
        "PositiveDefinite()")
    end
  end,
  mean = function(d) return d.loc end,
  mode = function(d) return d.loc end,
  variance = function(d) return d.scale_tril:pow(2):sum(-1) end,
  covariance_matrix = function(d)
    return d.given == "covariance_matrix" and d.matrix or d.scale_tril:matmul(d.scale_tril.mT)
  end,
  precision_matrix = function(d)
    return d.given == "precision_matrix" and d.matrix or torch().cholesky_inverse(d.scale_tril)
  end,
  entropy = function(d)
    return half_log_det(d) + 0.5 * d.loc:size(-1) * (1 + LOG_2_PI)
  end,
  rsample = function(d, shape)
    local e = base.numbers(d, shape, d.loc):unsqueeze(-1)
    return d.loc + d.scale_tril:matmul(e):squeeze(-1)
  end,
  log_prob = function(d, x)
    return -0.5 * (d.loc:size(-1) * LOG_2_PI + distance(d.scale_tril, x - d.loc))
      - half_log_det(d)
  end,
}

-- ---- parts of one --------------------------------------------------------------

local dirichlet = {
  params = { "concentration" },
  setup = function(d, a)
    errors.check(core.is_tensor(a.concentration) and a.concentration:dim() >= 1, "ValueError",
      "Dirichlet: `concentration` parameter must be at least one-dimensional.")
    rawset(d, "concentration", a.concentration)
    d.batch_shape = core.Size(front(a.concentration.shape, 1))
    d.event_shape = core.Size({ a.concentration:size(-1) })
  end,
  check = function(d) base.positive(d, "Dirichlet", "concentration") end,
  support = function(_, x)
    return x:ge(0):all(-1):logical_and((x:sum(-1) - 1):abs():lt(1e-6))
  end,
  mean = function(d) return d.concentration / d.concentration:sum(-1, { keepdim = true }) end,
  mode = function(d)
    local less = (d.concentration - 1):clamp_min(0)
    local mode = less / less:sum(-1, { keepdim = true })
    local corner = torch().nn.functional.one_hot(mode:argmax(-1), less:size(-1)):to(mode.dtype)
    return torch().where(d.concentration:lt(1):all(-1, { keepdim = true }), corner, mode)
  end,
  variance = function(d)
    local sum = d.concentration:sum(-1, { keepdim = true })
    return d.concentration * (sum - d.concentration) / (sum:pow(2) * (sum + 1))
  end,
  entropy = function(d)
    local c, k = d.concentration, d.concentration:size(-1)
    local sum = c:sum(-1)
    return c:lgamma():sum(-1) - sum:lgamma() - (k - sum) * sum:digamma()
      - ((c - 1) * c:digamma()):sum(-1)
  end,
  rsample = function(d, shape)
    local g = torch()._standard_gamma(d.concentration:expand(base.extended(d, shape)))
    g = g:clamp_min(torch().finfo(g.dtype).tiny)
    return g / g:sum(-1, { keepdim = true })
  end,
  log_prob = function(d, x)
    local c = d.concentration
    return (c - 1):xlogy(x):sum(-1) + c:sum(-1):lgamma() - c:lgamma():sum(-1)
  end,
}

return function(M)
  M.MultivariateNormal = base.define("MultivariateNormal", normal)
  M.Dirichlet = base.define("Dirichlet", dirichlet)

  --- Of the divergence of two normal distributions.
  function M.MultivariateNormal._divergence(p, q)
    local k = p.loc:size(-1)
    local batch = torch().broadcast_shapes(p.batch_shape, q.batch_shape)
    local shape = joined(batch, k, k)
    local ratio = torch().linalg.solve_triangular(q.scale_tril:expand(shape),
      p.scale_tril:expand(shape), { upper = false })
    return half_log_det(q) - half_log_det(p)
      + 0.5 * (ratio:pow(2):sum({ -2, -1 }) + distance(q.scale_tril, q.loc - p.loc) - k)
  end
end
