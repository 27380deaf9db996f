--- Distributions of numbers from 0 to 1: Kumaraswamy, ContinuousBernoulli.
--- Source: PyTorch documentation, torch.distributions; Kumaraswamy, 1980;
--- Loaiza-Ganem and Cunningham, 2019.
local base = require("torch.distributions.base")

local function torch()
  return require("torch")
end

local function in_unit(_, x)
  return x:ge(0):logical_and(x:le(1))
end

-- The mean of x^n.
local function moment(d, n)
  local a, b = 1 + n / d.concentration1, d.concentration0
  return (b:log() + a:lgamma() + b:lgamma() - (a + b):lgamma()):exp()
end

local kumaraswamy = {
  params = { "concentration1", "concentration0" },
  setup = base.elementwise,
  check = base.all_positive("Kumaraswamy", "concentration1", "concentration0"),
  support = in_unit,
  mean = function(d) return moment(d, 1) end,
  variance = function(d) return moment(d, 2) - moment(d, 1):pow(2) end,
  mode = function(d)
    local a, b = d.concentration1, d.concentration0
    return base.defined(a:ge(1):logical_and(b:ge(1)), ((a - 1) / (a * b - 1)):pow(1 / a))
  end,
  entropy = function(d)
    local a, b = d.concentration1, d.concentration0
    return 1 - 1 / b + (1 - 1 / a) * ((b + 1):digamma() + base.EULER) - a:log() - b:log()
  end,
  rsample = function(d, shape)
    local u = base.uniform(d, shape, d.concentration1)
    return (-(u:log() / d.concentration0):expm1()):pow(1 / d.concentration1)
  end,
  log_prob = function(d, x)
    local a, b = d.concentration1, d.concentration0
    return a:log() + b:log() + (a - 1):xlogy(x) + (b - 1) * (-x:pow(a)):log1p()
  end,
  cdf = function(d, x) return 1 - (1 - x:pow(d.concentration1)):pow(d.concentration0) end,
  icdf = function(d, p)
    return (1 - (1 - p):pow(1 / d.concentration0)):pow(1 / d.concentration1)
  end,
}

-- p near 1/2 gives 0/0 in the formulas: a polynomial in p - 1/2 there.
local LOW, HIGH = 0.499, 0.501

local function apart(d)
  local p = base.inner(d.probs)
  local near = p:ge(LOW):logical_and(p:le(HIGH))
  return p, near, torch().where(near, torch().full_like(p, LOW), p), p - 0.5
end

-- log of what makes the density integrate to 1.
local function normalizer_ln(d)
  local _, near, far, x = apart(d)
  local exact = ((-far):log1p() - far:log()):abs():log() - (1 - 2 * far):abs():log()
  local square = x:pow(2)
  return torch().where(near, math.log(2) + (4 / 3 + 104 / 45 * square) * square, exact)
end

local continuous = {
  params = { "probs", "logits" },
  setup = function(d, a) base.probs_or_logits(d, "ContinuousBernoulli", a) end,
  check = base.check_probs("ContinuousBernoulli"),
  support = in_unit,
  mean = function(d)
    local _, near, far, x = apart(d)
    local exact = far / (2 * far - 1) + 1 / ((-far):log1p() - far:log())
    return torch().where(near, 0.5 + (1 / 3 + 16 / 45 * x:pow(2)) * x, exact)
  end,
  variance = function(d)
    local _, near, far, x = apart(d)
    local exact = far * (far - 1) / (1 - 2 * far):pow(2) + ((-far):log1p() - far:log()):pow(-2)
    local square = x:pow(2)
    return torch().where(near, 1 / 12 - (1 / 15 - 128 / 945 * square) * square, exact)
  end,
  entropy = function(d)
    local p = base.inner(d.probs)
    local log0, log1 = (-p):log1p(), p:log()
    return d.mean * (log0 - log1) - normalizer_ln(d) - log0
  end,
  log_prob = function(d, x)
    local logits, value = table.unpack(torch().broadcast_tensors(d.logits, x:to(d.logits.dtype)))
    return normalizer_ln(d) - torch().nn.functional.binary_cross_entropy_with_logits(logits,
      value, { reduction = "none" })
  end,
  cdf = function(d, x)
    local _, near, far = apart(d)
    local exact = (far:pow(x) * (1 - far):pow(1 - x) + far - 1) / (2 * far - 1)
    return torch().where(near, x, exact):clamp(0, 1)
  end,
  icdf = function(d, u)
    local _, near, far = apart(d)
    local exact = ((-far + u * (2 * far - 1)):log1p() - (-far):log1p())
      / (far:log() - (-far):log1p())
    return torch().where(near, u, exact)
  end,
}

function continuous.rsample(d, shape)
  return continuous.icdf(d, base.uniform(d, shape, d.probs))
end

return function(M)
  M.Kumaraswamy = base.define("Kumaraswamy", kumaraswamy)
  M.ContinuousBernoulli = base.define("ContinuousBernoulli", continuous)
end
