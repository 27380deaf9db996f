--- torch.distributions: those of a place and a scale, of intervals, classes and
--- Independent here; those of positive numbers (positive.lua), of numbers from 0
--- to 1 (unit_interval.lua), angles (von_mises.lua), counts (counts.lua), vectors
--- (vectors.lua), matrices (matrices.lua), relaxed draws of classes (relaxed.lua),
--- those made of others (transformed.lua with transforms/, mixture.lua) and the
--- divergences (kl.lua) beside. They draw from torch's random numbers, compiled
--- too.
--- Source: PyTorch documentation, torch.distributions.
local base = require("torch.distributions.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = { Distribution = base.Distribution }

local HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

local function torch()
  return require("torch")
end

local kind_of, uniform, numbers, positive = base.kind_of, base.uniform, base.numbers, base.positive
local inner, check_probs, EULER = base.inner, base.check_probs, base.EULER

-- ---- of a place and a scale ------------------------------------------------

local function loc_scale(name, body)
  body.params = { "loc", "scale" }
  body.setup = base.elementwise
  body.check = function(d)
    positive(d, name, "scale")
  end
  M[name] = base.define(name, body)
end

loc_scale("Normal", {
  mean = function(d) return d.loc end,
  mode = function(d) return d.loc end,
  variance = function(d) return d.scale:pow(2) end,
  entropy = function(d) return d.scale:log() + (0.5 + HALF_LOG_2PI) end,
  rsample = function(d, shape) return d.loc + numbers(d, shape, d.loc) * d.scale end,
  log_prob = function(d, x)
    return -(x - d.loc):pow(2) / (2 * d.scale:pow(2)) - d.scale:log() - HALF_LOG_2PI
  end,
  cdf = function(d, x)
    return 0.5 * (1 + ((x - d.loc) / (d.scale * math.sqrt(2))):erf())
  end,
  icdf = function(d, p) return d.loc + d.scale * math.sqrt(2) * (2 * p - 1):erfinv() end,
})

loc_scale("Laplace", {
  mean = function(d) return d.loc end,
  mode = function(d) return d.loc end,
  variance = function(d) return 2 * d.scale:pow(2) end,
  entropy = function(d) return 1 + (2 * d.scale):log() end,
  rsample = function(d, shape)
    local u = 2 * uniform(d, shape, d.loc) - 1
    local eps = torch().finfo(d.loc.dtype).eps
    u = u:clamp(-1 + eps, 1 - eps)
    return d.loc - d.scale * u:sign() * (-u:abs()):log1p()
  end,
  log_prob = function(d, x) return -(2 * d.scale):log() - (x - d.loc):abs() / d.scale end,
  cdf = function(d, x)
    local z = x - d.loc
    return 0.5 - 0.5 * z:sign() * (-z:abs() / d.scale):expm1()
  end,
  icdf = function(d, p)
    local t = p - 0.5
    return d.loc - d.scale * t:sign() * (-2 * t:abs()):log1p()
  end,
})

loc_scale("LogNormal", {
  support = function(_, x) return x:gt(0) end,
  mean = function(d) return (d.loc + d.scale:pow(2) / 2):exp() end,
  mode = function(d) return (d.loc - d.scale:pow(2)):exp() end,
  variance = function(d)
    local s = d.scale:pow(2)
    return s:expm1() * (2 * d.loc + s):exp()
  end,
  entropy = function(d) return d.scale:log() + (0.5 + HALF_LOG_2PI) + d.loc end,
  rsample = function(d, shape) return (d.loc + numbers(d, shape, d.loc) * d.scale):exp() end,
  log_prob = function(d, x)
    local y = x:log()
    return -(y - d.loc):pow(2) / (2 * d.scale:pow(2)) - d.scale:log() - HALF_LOG_2PI - y
  end,
  cdf = function(d, x)
    return 0.5 * (1 + ((x:log() - d.loc) / (d.scale * math.sqrt(2))):erf())
  end,
  icdf = function(d, p)
    return (d.loc + d.scale * math.sqrt(2) * (2 * p - 1):erfinv()):exp()
  end,
})

loc_scale("Gumbel", {
  mean = function(d) return d.loc + d.scale * EULER end,
  mode = function(d) return d.loc end,
  variance = function(d) return (math.pi ^ 2 / 6) * d.scale:pow(2) end,
  entropy = function(d) return d.scale:log() + (1 + EULER) end,
  rsample = function(d, shape)
    return d.loc - d.scale * (-uniform(d, shape, d.loc):log()):log()
  end,
  log_prob = function(d, x)
    local y = (d.loc - x) / d.scale
    return y - y:exp() - d.scale:log()
  end,
  cdf = function(d, x) return (-((d.loc - x) / d.scale):exp()):exp() end,
  icdf = function(d, p) return d.loc - d.scale * (-p:log()):log() end,
})

loc_scale("Cauchy", {
  mode = function(d) return d.loc end,
  mean = function(d) return torch().full_like(d.loc, 0.0 / 0.0) end,
  variance = function(d) return torch().full_like(d.loc, math.huge) end,
  entropy = function(d) return d.scale:log() + math.log(4 * math.pi) end,
  rsample = function(d, shape)
    return d.loc + d.scale * (math.pi * (uniform(d, shape, d.loc) - 0.5)):tan()
  end,
  log_prob = function(d, x)
    return -math.log(math.pi) - d.scale:log() - ((x - d.loc) / d.scale):pow(2):log1p()
  end,
  cdf = function(d, x) return ((x - d.loc) / d.scale):atan() / math.pi + 0.5 end,
  icdf = function(d, p) return (math.pi * (p - 0.5)):tan() * d.scale + d.loc end,
})

-- ---- others of numbers -----------------------------------------------------

M.Uniform = base.define("Uniform", {
  params = { "low", "high" },
  setup = base.elementwise,
  support = function(d, x) return x:ge(d.low):logical_and(x:le(d.high)) end,
  check = function(d)
    errors.check(base.all(d.low:lt(d.high)), "ValueError",
      "Uniform is not defined when low >= high")
  end,
  mean = function(d) return (d.high + d.low) / 2 end,
  variance = function(d) return (d.high - d.low):pow(2) / 12 end,
  entropy = function(d) return (d.high - d.low):log() end,
  rsample = function(d, shape)
    return d.low + torch().rand(base.extended(d, shape), kind_of(d.low)) * (d.high - d.low)
  end,
  log_prob = function(d, x)
    local inside = d.low:le(x):logical_and(d.high:gt(x)):to(d.low.dtype)
    return inside:log() - (d.high - d.low):log()
  end,
  cdf = function(d, x) return ((x - d.low) / (d.high - d.low)):clamp(0, 1) end,
  icdf = function(d, p) return p * (d.high - d.low) + d.low end,
})

M.Exponential = base.define("Exponential", {
  params = { "rate" },
  setup = base.elementwise,
  support = function(_, x) return x:ge(0) end,
  check = function(d) positive(d, "Exponential", "rate") end,
  mean = function(d) return 1 / d.rate end,
  mode = function(d) return torch().zeros_like(d.rate) end,
  variance = function(d) return d.rate:pow(-2) end,
  entropy = function(d) return 1 - d.rate:log() end,
  rsample = function(d, shape) return -uniform(d, shape, d.rate):log() / d.rate end,
  log_prob = function(d, x) return d.rate:log() - d.rate * x end,
  cdf = function(d, x) return 1 - (-d.rate * x):exp() end,
  icdf = function(d, p) return -(-p):log1p() / d.rate end,
})

-- ---- of counts and classes -------------------------------------------------

local function two_outcomes(name)
  return function(d, a)
    base.probs_or_logits(d, name, a)
  end
end

M.Bernoulli = base.define("Bernoulli", {
  params = { "probs", "logits" },
  setup = two_outcomes("Bernoulli"),
  support = function(_, x) return x:eq(0):logical_or(x:eq(1)) end,
  check = check_probs("Bernoulli"),
  mean = function(d) return d.probs end,
  mode = function(d) return d.probs:ge(0.5):to(d.probs.dtype) end,
  variance = function(d) return d.probs * (1 - d.probs) end,
  entropy = function(d)
    return torch().nn.functional.binary_cross_entropy_with_logits(d.logits, d.probs,
      { reduction = "none" })
  end,
  sample = function(d, shape)
    return torch().bernoulli(d.probs:expand(base.extended(d, shape)))
  end,
  log_prob = function(d, x)
    local logits, value = table.unpack(torch().broadcast_tensors(d.logits, x:to(d.logits.dtype)))
    return -torch().nn.functional.binary_cross_entropy_with_logits(logits, value,
      { reduction = "none" })
  end,
})

M.Geometric = base.define("Geometric", {
  params = { "probs", "logits" },
  setup = two_outcomes("Geometric"),
  support = function(_, x) return base.is_count(x) end,
  check = check_probs("Geometric"),
  mean = function(d) return 1 / d.probs - 1 end,
  mode = function(d) return torch().zeros_like(d.probs) end,
  variance = function(d) return (1 / d.probs - 1) / d.probs end,
  entropy = function(d)
    return torch().nn.functional.binary_cross_entropy_with_logits(d.logits, d.probs,
      { reduction = "none" }) / d.probs
  end,
  sample = function(d, shape)
    return (uniform(d, shape, d.probs):log() / (-d.probs):log1p()):floor()
  end,
  log_prob = function(d, x)
    return x * (-d.probs):log1p() + d.probs:log()
  end,
})

local function setup_classes(d, a)
  errors.check((a.probs == nil) ~= (a.logits == nil), "ValueError",
    "Categorical: either `probs` or `logits` must be specified, but not both")
  local given = a.probs or a.logits
  errors.check(core.is_tensor(given) and given:dim() >= 1, "ValueError",
    "Categorical: `probs` and `logits` must be at least one-dimensional")
  d.given = a.probs and "probs" or "logits"
  if a.probs then
    rawset(d, "probs", a.probs / a.probs:sum(-1, { keepdim = true }))
    rawset(d, "logits", inner(d.probs):log())
  else
    rawset(d, "logits", a.logits - a.logits:logsumexp(-1, { keepdim = true }))
    rawset(d, "probs", torch().nn.functional.softmax(d.logits, -1))
  end
  local batch = {}
  for i = 0, given:dim() - 2 do
    batch[i + 1] = given:size(i)
  end
  d.batch_shape = core.Size(batch)
  d.num_events = given:size(-1)
end

M.Categorical = base.define("Categorical", {
  params = { "probs", "logits" },
  setup = setup_classes,
  support = function(d, x) return x:ge(0):logical_and(x:lt(d.num_events)) end,
  check = function(d)
    base.require(d.probs:ge(0), "Categorical", "probs", "Simplex()")
  end,
  mean = function(d) return torch().full(d.batch_shape, 0.0 / 0.0, kind_of(d.probs)) end,
  variance = function(d) return torch().full(d.batch_shape, 0.0 / 0.0, kind_of(d.probs)) end,
  mode = function(d) return d.probs:argmax(-1) end,
  entropy = function(d)
    return -(d.logits:clamp_min(torch().finfo(d.logits.dtype).min) * d.probs):sum(-1)
  end,
  sample = function(d, shape)
    local n = 1
    for _, size in ipairs(shape) do
      n = n * size
    end
    local rows = d.probs:reshape({ -1, d.num_events })
    local draws = torch().multinomial(rows, n, true)
    return draws:t():reshape(base.extended(d, shape))
  end,
  log_prob = function(d, x)
    local index = x:to(torch().int64):unsqueeze(-1)
    local shape = {}
    for i, n in ipairs(torch().broadcast_shapes(index.shape, d.logits:narrow(-1, 0, 1).shape)) do
      shape[i] = n
    end
    index = index:expand(shape)
    shape[#shape] = d.num_events
    return d.logits:expand(shape):gather(-1, index):squeeze(-1)
  end,
})

-- ---- dimensions of one event -----------------------------------------------

---@class torch.distributions.Independent: torch.distributions.Distribution
local Independent = base.Distribution:extend("Independent")
M.Independent = Independent
Independent.body = {}
Independent.__index = function(self, key)
  if key == "mean" or key == "variance" or key == "stddev" or key == "mode"
    or key == "has_rsample" then
    return self.base_dist[key]
  end
  return Independent[key]
end

--- The last n batch dimensions of a distribution taken as one event.
--- error: TypeError for what is no distribution
function Independent:init(d, n)
  errors.check(base.Distribution:is(d), "TypeError",
    "Independent: base_distribution: expected a distribution, got %s", check.describe(d))
  local size = #d.batch_shape
  n = check.int(n, "Independent: reinterpreted_batch_ndims", { min = 0 })
  errors.check(n <= size, "ValueError",
    "Independent: reinterpreted_batch_ndims: expected at most %d, got %d", size, n)
  rawset(self, "base_dist", d)
  rawset(self, "reinterpreted_batch_ndims", n)
  self.batch_shape = core.Size({ table.unpack(d.batch_shape, 1, size - n) })
  local event = { table.unpack(d.batch_shape, size - n + 1, size) }
  self.event_shape = core.Size(table.move(d.event_shape, 1, #d.event_shape, n + 1, event))
end

function Independent:_sum(x)
  for _ = 1, self.reinterpreted_batch_ndims do
    x = x:sum(-1)
  end
  return x
end

function Independent:sample(shape) return self.base_dist:sample(shape) end
function Independent:rsample(shape) return self.base_dist:rsample(shape) end
function Independent:log_prob(x) return self:_sum(self.base_dist:log_prob(x)) end
function Independent:entropy() return self:_sum(self.base_dist:entropy()) end

function Independent:expand(shape)
  local all, n = self.base_dist.batch_shape, self.reinterpreted_batch_ndims
  local whole = table.move(all, #all - n + 1, #all, #shape + 1, { table.unpack(shape) })
  return Independent(self.base_dist:expand(whole), n)
end

for _, file in ipairs({ "positive", "unit_interval", "von_mises", "counts", "vectors",
  "matrices", "relaxed", "transformed", "mixture" }) do
  require("torch.distributions." .. file)(M)
end

-- Each distribution is in a module of its own too (torch.distributions.normal.Normal):
-- this one's name where it is not the class's in small letters, as in half_normal.
local MODULES = { FisherSnedecor = "fishersnedecor", StudentT = "studentT",
  LKJCholesky = "lkj_cholesky", LowRankMultivariateNormal = "lowrank_multivariate_normal",
  OneHotCategoricalStraightThrough = "one_hot_categorical",
  RelaxedOneHotCategorical = "relaxed_categorical", ExpRelaxedCategorical = "relaxed_categorical",
  LogitRelaxedBernoulli = "relaxed_bernoulli" }

local modules = {}
for name, class in pairs(M) do
  if not name:find("Transform$") then
    local module = MODULES[name] or name:gsub("(%l)(%u)", "%1_%2"):lower()
    modules[module] = modules[module] or {}
    modules[module][name] = class
  end
end

M.transforms = require("torch.distributions.transforms")
for name, value in pairs(M.transforms) do
  if not name:find("^_") then
    M[name] = value
  end
end

local kl = require("torch.distributions.kl")(M)
M.kl_divergence, M.register_kl = kl.kl_divergence, kl.register_kl

local close = require("lupine.base.namespace").close
for name, module in pairs(modules) do
  M[name] = close(module, "torch.distributions." .. name)
end
return close(M, "torch.distributions")
