--- Distributions of counts: Poisson, Binomial, NegativeBinomial, and of counts of
--- several classes: Multinomial, OneHotCategorical.
--- Source: PyTorch documentation, torch.distributions.
local base = require("torch.distributions.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local function torch()
  return require("torch")
end

-- log of n!
local function factorial_ln(n)
  return (n + 1):lgamma()
end

local function binomial_log_prob(d, x)
  local n, logits = d.total_count, d.logits
  local norm = n * logits:clamp_min(0) + n * (-logits:abs()):exp():log1p() - factorial_ln(n)
  return x * logits - factorial_ln(x) - factorial_ln(n - x) - norm
end

-- The counts 0 … n in a first dimension, for the largest n of a binomial.
local function all_counts(d)
  local n = d.total_count:max()
  errors.check(base.all(d.total_count:eq(n)), "NotImplementedError",
    "Binomial: inhomogeneous total count has no support that can be listed")
  local shape = { -1 }
  for _ = 1, #d.batch_shape do
    shape[#shape + 1] = 1
  end
  return torch().arange(n:item() + 1, base.kind_of(d.probs)):reshape(shape)
end

-- The vectors [..., K] of a distribution over K classes.
local function with_classes(name)
  return function(d, a)
    errors.check((a.probs == nil) ~= (a.logits == nil), "ValueError",
      "%s: either `probs` or `logits` must be specified, but not both", name)
    local categorical = torch().distributions.Categorical({ probs = a.probs, logits = a.logits,
      validate_args = false })
    rawset(d, "categorical", categorical)
    rawset(d, "given", a.probs ~= nil and "probs" or "logits")
    rawset(d, "probs", categorical.probs)
    rawset(d, "logits", categorical.logits)
    d.batch_shape = categorical.batch_shape
    d.event_shape = core.Size({ categorical.num_events })
  end
end

local function check_classes(name)
  return function(d)
    base.require(d.probs:ge(0), name, "probs", "Simplex()")
  end
end

-- One-hot rows of class ids, in the type of the probabilities.
local function one_hot(d, ids)
  return torch().nn.functional.one_hot(ids, d.categorical.num_events):to(d.probs.dtype)
end

local function draw_one_hot(d, shape)
  return one_hot(d, d.categorical:sample(shape))
end

return function(M)
  M.Poisson = base.define("Poisson", {
    params = { "rate" },
    setup = base.elementwise,
    check = function(d)
      base.require(d.rate:ge(0), "Poisson", "rate", "GreaterThanEq(lower_bound=0.0)")
    end,
    support = function(_, x) return base.is_count(x) end,
    mean = function(d) return d.rate end,
    mode = function(d) return d.rate:floor() end,
    variance = function(d) return d.rate end,
    sample = function(d, shape)
      return torch().poisson(d.rate:expand(base.extended(d, shape)))
    end,
    log_prob = function(d, x) return x:xlogy(d.rate) - d.rate - factorial_ln(x) end,
  })

  M.Binomial = base.define("Binomial", {
    params = { "total_count", "probs", "logits" },
    defaults = { total_count = 1 },
    setup = function(d, a)
      base.probs_or_logits(d, "Binomial", a, { "total_count" })
    end,
    check = function(d)
      base.require(base.is_count(d.total_count), "Binomial", "total_count",
        "IntegerGreaterThan(lower_bound=0)")
      base.check_probs("Binomial")(d)
    end,
    support = function(d, x) return base.is_count(x):logical_and(x:le(d.total_count)) end,
    mean = function(d) return d.total_count * d.probs end,
    mode = function(d)
      return ((d.total_count + 1) * d.probs):floor():minimum(d.total_count)
    end,
    variance = function(d) return d.total_count * d.probs * (1 - d.probs) end,
    entropy = function(d)
      local log_p = binomial_log_prob(d, all_counts(d))
      return -(log_p:exp() * log_p):sum(0)
    end,
    sample = function(d, shape)
      shape = base.extended(d, shape)
      return torch().binomial(d.total_count:expand(shape), d.probs:expand(shape))
    end,
    log_prob = binomial_log_prob,
  })

  M.NegativeBinomial = base.define("NegativeBinomial", {
    params = { "total_count", "probs", "logits" },
    setup = function(d, a)
      errors.check(a.total_count ~= nil, "TypeError",
        "NegativeBinomial: missing required argument 'total_count'")
      base.probs_or_logits(d, "NegativeBinomial", a, { "total_count" })
    end,
    check = function(d)
      base.require(d.total_count:ge(0), "NegativeBinomial", "total_count",
        "GreaterThanEq(lower_bound=0)")
      base.require(d.probs:ge(0):logical_and(d.probs:lt(1)), "NegativeBinomial", "probs",
        "HalfOpenInterval(lower_bound=0.0, upper_bound=1.0)")
    end,
    support = function(_, x) return base.is_count(x) end,
    mean = function(d) return d.total_count * d.logits:exp() end,
    mode = function(d)
      return ((d.total_count - 1) * d.logits:exp()):floor():clamp_min(0)
    end,
    variance = function(d) return d.total_count * d.logits:exp() / (-d.logits):sigmoid() end,
    sample = function(d, shape)
      shape = base.extended(d, shape)
      local rate = torch()._standard_gamma(d.total_count:expand(shape)) * d.logits:exp()
      return torch().poisson(rate)
    end,
    log_prob = function(d, x)
      local F, n = torch().nn.functional, d.total_count
      local norm = factorial_ln(x) + n:lgamma() - (n + x):lgamma()
      norm = torch().where((n + x):eq(0), 0.0, norm)
      return n * F.logsigmoid(-d.logits) + x * F.logsigmoid(d.logits) - norm
    end,
  })

  -- ---- classes ---------------------------------------------------------------------

  M.Multinomial = base.define("Multinomial", {
    params = { "total_count", "probs", "logits" },
    defaults = { total_count = 1 },
    setup = function(d, a)
      with_classes("Multinomial")(d, a)
      rawset(d, "total_count", torch().tensor(check.int(a.total_count, "Multinomial: total_count",
        { min = 0 }), base.kind_of(d.probs)))
    end,
    check = check_classes("Multinomial"),
    support = function(d, x)
      return base.is_count(x):all(-1):logical_and(x:sum(-1):eq(d.total_count))
    end,
    mean = function(d) return d.probs * d.total_count end,
    variance = function(d) return d.total_count * d.probs * (1 - d.probs) end,
    entropy = function(d)
      local n = d.total_count
      local each = M.Binomial(n, d.probs, { validate_args = false })
      local counts = all_counts(each)
      local weighted = each:log_prob(counts):exp() * factorial_ln(counts)
      return n * d.categorical:entropy() - factorial_ln(n) + weighted:sum({ 0, -1 })
    end,
    sample = function(d, shape)
      local more = { math.tointeger(d.total_count:item()), table.unpack(shape) }
      return draw_one_hot(d, more):sum(0)
    end,
    log_prob = function(d, x)
      local none = x:eq(0):logical_and(d.logits:eq(-math.huge))
      local logits = torch().where(none, 0.0, d.logits)
      return factorial_ln(x:sum(-1)) - factorial_ln(x):sum(-1) + (logits * x):sum(-1)
    end,
  })

  local hot = {
    params = { "probs", "logits" },
    setup = with_classes("OneHotCategorical"),
    check = check_classes("OneHotCategorical"),
    support = function(_, x)
      return x:eq(0):logical_or(x:eq(1)):all(-1):logical_and(x:sum(-1):eq(1))
    end,
    mean = function(d) return d.probs end,
    mode = function(d) return one_hot(d, d.probs:argmax(-1)) end,
    variance = function(d) return d.probs * (1 - d.probs) end,
    entropy = function(d) return d.categorical:entropy() end,
    sample = draw_one_hot,
    log_prob = function(d, x) return d.categorical:log_prob(x:argmax(-1)) end,
  }
  M.OneHotCategorical = base.define("OneHotCategorical", hot)

  -- Draws that pass the gradient on to the probabilities (Bengio et al., 2013).
  local through = {}
  for key, value in pairs(hot) do
    through[key] = value
  end
  function through.rsample(d, shape)
    return draw_one_hot(d, shape) + (d.probs - d.probs:detach())
  end
  M.OneHotCategoricalStraightThrough = base.define("OneHotCategoricalStraightThrough", through,
    M.OneHotCategorical)
end
