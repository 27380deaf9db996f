--- TransformedDistribution, and those that are one: LogisticNormal,
--- RelaxedBernoulli, RelaxedOneHotCategorical.
--- Source: PyTorch documentation, torch.distributions.
local Transform = require("torch.distributions.transforms.base")
local base = require("torch.distributions.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local transforms = require("torch.distributions.transforms")

local sum = Transform._sum

local function torch()
  return require("torch")
end

local function joined(a, b)
  return table.move(b, 1, #b, #a + 1, { table.unpack(a) })
end

local function same_shape(a, b)
  return core.Size(a) == core.Size(b)
end

-- ---- transformed -----------------------------------------------------------------

-- The base with the batch that the transforms broadcast to, of dimensions that
-- the first transform takes as one point; the results' shape.
local function fitted(D, d, compose)
  local shape, n = joined(d.batch_shape, d.event_shape), #d.event_shape
  local points = compose.domain.event_dim
  errors.check(#shape >= points, "ValueError", "TransformedDistribution: base_distribution needs "
    .. "to have shape with size at least %d, but got %s.", points, tostring(core.Size(shape)))
  local out = compose:forward_shape(shape)
  local wide = compose:inverse_shape(out)
  if not same_shape(wide, shape) then
    d = d:expand({ table.unpack(wide, 1, #wide - n) })
  end
  return points > n and D.Independent(d, points - n) or d, out, n
end

local function define_transformed(D)
  ---@class torch.distributions.TransformedDistribution: torch.distributions.Distribution
  ---@field base_dist torch.distributions.Distribution
  ---@field transforms torch.distributions.Transform[]
  local T = base.Distribution:extend("TransformedDistribution")
  T.body = {}

  function T.__index(self, key)
    local cls = getmetatable(self)
    if key == "has_rsample" then
      return self.base_dist.has_rsample
    elseif key == "stddev" then
      return self.variance:sqrt()
    end
    local property = cls.body[key]
    if property and cls ~= T then
      return property(self)
    end
    errors.check(key ~= "mean" and key ~= "variance" and key ~= "mode", "NotImplementedError",
      "%s has no %s", cls.__name, key)
    return cls[key]
  end

  --- The distribution of t_n(…t_1(x)) for an x of the base.
  ---@param base_distribution torch.distributions.Distribution
  ---@param list torch.distributions.Transform|torch.distributions.Transform[]
  ---@param options? {validate_args: boolean}
  function T:init(base_distribution, list, options)
    errors.check(base.Distribution:is(base_distribution), "TypeError", "TransformedDistribution: "
      .. "base_distribution: expected a distribution, got %s", check.describe(base_distribution))
    list = Transform:is(list) and { list } or list
    local compose = transforms.ComposeTransform(list)
    local d, shape, n = fitted(D, base_distribution, compose)
    local change = compose.codomain.event_dim - compose.domain.event_dim
    local event = math.max(compose.codomain.event_dim, n + change)
    rawset(self, "base_dist", d)
    rawset(self, "transforms", list)
    rawset(self, "batch_shape", core.Size({ table.unpack(shape, 1, #shape - event) }))
    rawset(self, "event_shape", core.Size({ table.unpack(shape, #shape - event + 1) }))
    rawset(self, "validated", not options or options.validate_args ~= false)
  end

  local function through(self, x)
    for _, t in ipairs(self.transforms) do
      x = t(x)
    end
    return x
  end

  function T:sample(shape)
    return torch().no_grad(function()
      return through(self, self.base_dist:sample(shape)):detach()
    end)
  end

  function T:rsample(shape)
    return through(self, self.base_dist:rsample(shape))
  end

  local function check_value(self, value)
    local last = self.transforms[#self.transforms]
    local inside = last and last._inside
    errors.check(not self.validated or not inside or base.all(inside(value)), "ValueError",
      "%s: log_prob: expected value argument to be within the support of the distribution, but "
      .. "found invalid values", getmetatable(self).__name)
  end

  function T:log_prob(value)
    value = base.value(self, "log_prob", value)
    check_value(self, value)
    local n, total, y = #self.event_shape, 0, value
    for i = #self.transforms, 1, -1 do
      local t = self.transforms[i]
      local x = t.inv(y)
      n = n + t.domain.event_dim - t.codomain.event_dim
      total = total - sum(t:log_abs_det_jacobian(x, y), n - t.domain.event_dim)
      y = x
    end
    return total + sum(self.base_dist:log_prob(y), n - #self.base_dist.event_shape)
  end

  -- A probability of a decreasing map is that of what lies above.
  local function oriented(self, p)
    local sign = 1
    for _, t in ipairs(self.transforms) do
      sign = sign * t.sign
    end
    return sign == 1 and p or sign * (p - 0.5) + 0.5
  end

  function T:cdf(value)
    value = base.value(self, "cdf", value)
    for i = #self.transforms, 1, -1 do
      value = self.transforms[i].inv(value)
    end
    return oriented(self, self.base_dist:cdf(value))
  end

  function T:icdf(p)
    return through(self, self.base_dist:icdf(oriented(self, base.value(self, "icdf", p))))
  end

  function T:expand(shape)
    local whole = joined(shape, self.event_shape)
    for i = #self.transforms, 1, -1 do
      whole = self.transforms[i]:inverse_shape(whole)
    end
    local inner = { table.unpack(whole, 1, #whole - #self.base_dist.event_shape) }
    local new = setmetatable({}, getmetatable(self))
    for key, value in next, self do
      rawset(new, key, value)
    end
    rawset(new, "base_dist", self.base_dist:expand(inner))
    rawset(new, "batch_shape", core.Size(shape))
    return new
  end

  function T.__tostring(self)
    local names = {}
    for i, t in ipairs(self.transforms) do
      names[i] = tostring(t)
    end
    return ("%s(%s, {%s})"):format(getmetatable(self).__name, tostring(self.base_dist),
      table.concat(names, ", "))
  end
  D.TransformedDistribution = T
end

-- ---- by name -----------------------------------------------------------------------

--- A class of transformed distributions. names: of the constructor's arguments;
--- make(values): base and transforms; properties by name, functions of an
--- instance.
---@param D table torch.distributions
---@param name string
---@param names string[]
---@param make fun(...): torch.distributions.Distribution, torch.distributions.Transform[]
---@param properties table<string, function>
local function named(D, name, names, make, properties)
  local cls = D.TransformedDistribution:extend(name)
  cls.body = properties
  names = joined(names, { "validate_args" })
  function cls:init(...)
    local a = check.arguments(name, names, nil, ...)
    local d, list = make(table.unpack(a, 1, #names - 1))
    D.TransformedDistribution.init(self, d, list, { validate_args = a[#names] })
  end
  D[name] = cls
end

return function(D)
  define_transformed(D)

  local function of_base(...)
    local out = {}
    for _, key in ipairs({ ... }) do
      out[key] = function(self) return self.base_dist[key] end
    end
    return out
  end

  local of_normal = {
    loc = function(self) return self.base_dist.base_dist.loc end,
    scale = function(self) return self.base_dist.base_dist.scale end,
  }
  named(D, "LogisticNormal", { "loc", "scale" }, function(loc, scale)
    local d = D.Normal(loc, scale)
    d = #d.batch_shape == 0 and d:expand({ 1 }) or d
    return d, { transforms.StickBreakingTransform() }
  end, of_normal)

  named(D, "RelaxedBernoulli", { "temperature", "probs", "logits" }, function(t, probs, logits)
    return D.LogitRelaxedBernoulli(t, probs, logits), { transforms.SigmoidTransform() }
  end, of_base("temperature", "probs", "logits"))

  named(D, "RelaxedOneHotCategorical", { "temperature", "probs", "logits" },
    function(t, probs, logits)
      return D.ExpRelaxedCategorical(t, probs, logits), { transforms.ExpTransform() }
    end, of_base("temperature", "probs", "logits"))
end
