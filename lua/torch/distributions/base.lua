--- What the distributions share: parameters that broadcast, shapes, the methods
--- that follow from others. A class is described by a table:
---   params   names of the parameters, in order; `defaults` by name
---   check    function(a): raises for parameters outside of their range
---   mean, variance, entropy     functions of the distribution
---   log_prob, cdf, icdf         functions of the distribution and a value
---   support  function of both: where a value may be, for log_prob
---   rsample  function(d, shape): draws that a gradient goes through
---   sample   the same without one, where rsample is missing
---   fixed    names of tensors that are not of the batch's shape
--- Source: PyTorch documentation, torch.distributions.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {
  EULER = 0.57721566490153286060, -- the Euler-Mascheroni constant
}

---@class torch.distributions.Distribution
---@field batch_shape torch.Size
---@field event_shape torch.Size
local Distribution = class.new("Distribution")
M.Distribution = Distribution

local function torch()
  return require("torch")
end

-- The dtype of the first tensor of floating-point numbers, else the default.
local function kind_among(values)
  for _, v in pairs(values) do
    if core.is_tensor(v) and v:is_floating_point() then
      return v.dtype
    end
  end
  return core.get_default_dtype()
end

-- Tensors of integers become floating-point numbers, in place of `values`.
local function in_floats(values)
  local kind = kind_among(values)
  for name, v in pairs(values) do
    if core.is_tensor(v) and not v:is_floating_point() then
      values[name] = v:to(kind)
    end
  end
  return values
end

-- Tensors of one shape and dtype, of tensors and numbers.
local function broadcast(values)
  local kind = kind_among(values)
  local names, list = {}, {}
  for name, v in pairs(in_floats(values)) do
    names[#names + 1] = name
    list[#list + 1] = core.is_tensor(v) and v or torch().tensor(v + 0.0, { dtype = kind })
  end
  local out = {}
  for i, t in ipairs(torch().broadcast_tensors(table.unpack(list))) do
    out[names[i]] = t
  end
  return out
end
M.broadcast = broadcast

--- The shape of draws: `shape` before the batch.
---@param d torch.distributions.Distribution
---@param shape? integer[] of the sample
---@return integer[]
function M.extended(d, shape)
  local out = {}
  for _, n in ipairs(shape or {}) do
    out[#out + 1] = check.int(n, "sample: sample_shape", { min = 0 })
  end
  for _, n in ipairs(d.batch_shape) do
    out[#out + 1] = n
  end
  for _, n in ipairs(d.event_shape) do
    out[#out + 1] = n
  end
  return out
end

--- True unless an element is outside; under a trace values are not known.
---@param condition torch.Tensor bool
---@return boolean
function M.all(condition)
  return core.is_tracing() or condition:all():item()
end

--- Raises unless the condition holds everywhere.
---@param condition torch.Tensor bool
---@param where string the distribution's name
---@param name string of the parameter
---@param constraint string
function M.require(condition, where, name, constraint)
  errors.check(M.all(condition), "ValueError",
    "%s: expected parameter %s to satisfy the constraint %s, but found invalid values", where, name,
    constraint)
end

-- A shape as a list; none given: one draw.
local function shape_of(shape)
  return check.table(shape or {}, "sample: sample_shape")
end

--- sample(shape): draws without a gradient; rsample(shape): with one.
function Distribution:sample(shape)
  local body = getmetatable(self).body
  errors.check(body, "NotImplementedError", "%s has no sample", getmetatable(self).__name)
  local draw = body.rsample or body.sample
  return torch().no_grad(function()
    return draw(self, shape_of(shape)):detach()
  end)
end

function Distribution:rsample(shape)
  local body = getmetatable(self).body
  errors.check(body.rsample, "NotImplementedError", "%s has no rsample: a draw has no gradient",
    getmetatable(self).__name)
  return body.rsample(self, shape_of(shape))
end

--- The value that a method is asked about, as a tensor.
--- error: TypeError for what is neither a tensor nor a number
---@param d torch.distributions.Distribution
---@param name string of the method
---@param value any
---@return torch.Tensor
function M.value(d, name, value)
  errors.check(core.is_tensor(value) or type(value) == "number", "ValueError",
    "%s: %s: value: expected a Tensor or a number, got %s", getmetatable(d).__name, name,
    check.describe(value))
  return core.is_tensor(value) and value or torch().tensor(value + 0.0)
end

for _, name in ipairs({ "log_prob", "cdf", "icdf" }) do
  Distribution[name] = function(self, value)
    local f = getmetatable(self).body[name]
    errors.check(f, "NotImplementedError", "%s has no %s", getmetatable(self).__name, name)
    value = M.value(self, name, value)
    local support = getmetatable(self).body.support
    if name == "log_prob" and support and self.validated then
      errors.check(M.all(support(self, value)), "ValueError",
        "%s: log_prob: expected value argument to be within the support of the distribution, but "
        .. "found invalid values", getmetatable(self).__name)
    end
    return f(self, value)
  end
end

function Distribution:entropy()
  local f = getmetatable(self).body.entropy
  errors.check(f, "NotImplementedError", "%s has no entropy", getmetatable(self).__name)
  return f(self)
end

-- Whether the first sizes of `shape` are those of `batch`.
local function begins_with(shape, batch)
  for i, size in ipairs(batch) do
    if shape[i] ~= size then
      return false
    end
  end
  return #shape >= #batch
end

--- The same distribution with its batch expanded to `shape`; nothing is copied.
---@param shape integer[]
---@return torch.distributions.Distribution
function Distribution:expand(shape)
  check.table(shape, "expand: batch_shape")
  local batch, fixed = self.batch_shape, getmetatable(self).body.fixed or {}
  local new = setmetatable({}, getmetatable(self))
  for key, value in next, self do
    if not fixed[key] and core.is_tensor(value) and begins_with(value.shape, batch) then
      value = value:expand(table.move(value.shape, #batch + 1, #value.shape, #shape + 1,
        { table.unpack(shape) }))
    elseif Distribution:is(value) then
      value = value:expand(shape)
    end
    rawset(new, key, value)
  end
  rawset(new, "batch_shape", core.Size(shape))
  return new
end

--- exp(entropy).
function Distribution:perplexity()
  return self:entropy():exp()
end

local PROPERTIES = { mean = true, variance = true, mode = true, covariance_matrix = true,
  precision_matrix = true, scale_tril = true }

local function property(self, key)
  local cls = getmetatable(self)
  local f = PROPERTIES[key] and cls.body[key]
  if f then
    return f(self)
  elseif key == "stddev" then
    return self.variance:sqrt()
  elseif key == "has_rsample" then
    return cls.body.rsample ~= nil
  end
  return cls[key]
end

--- The class of a description; see above.
---@param name string
---@param body table
---@param parent? table a class of another description
---@return table class
function M.define(name, body, parent)
  local cls = (parent or Distribution):extend(name)
  cls.body = body
  cls.__index = property
  local names = table.move(body.params, 1, #body.params, 1, {})
  names[#names + 1] = "validate_args"

  function cls:init(...)
    local v = check.arguments(name, names, nil, ...)
    local a = {}
    for i, param in ipairs(body.params) do
      local value = v[i]
      if value == nil and body.defaults then
        value = body.defaults[param]
      end
      errors.check(check.is_none(value) or core.is_tensor(value) or type(value) == "number",
        "ValueError", "%s: %s: expected a Tensor or a number, got %s", name, param,
        check.describe(value))
      a[param] = not check.is_none(value) and value or nil
    end
    self.event_shape = core.Size({})
    body.setup(self, in_floats(a))
    rawset(self, "validated", v[#names] ~= false)
    if self.validated and body.check then
      body.check(self)
    end
  end

  function cls.__tostring(self)
    local parts = {}
    local given = rawget(self, "given") -- of probs and logits, one
    for _, param in ipairs(body.params) do
      local t = rawget(self, param)
      if t and (not given or param == given or param ~= "probs" and param ~= "logits") then
        parts[#parts + 1] = ("%s: %s"):format(param, t:dim() == 0 and tostring(t:item())
          or tostring(t.shape))
      end
    end
    return ("%s(%s)"):format(name, table.concat(parts, ", "))
  end
  return cls
end

-- ---- what descriptions are made of -----------------------------------------

--- The keywords that make another tensor of this one's type.
---@param t torch.Tensor
---@return {dtype: torch.dtype}
function M.kind_of(t)
  return { dtype = t.dtype }
end

--- Uniform numbers in (0, 1) of the shape of a draw.
---@param d torch.distributions.Distribution
---@param shape integer[] of the sample
---@param like torch.Tensor whose dtype they have
---@return torch.Tensor
function M.uniform(d, shape, like)
  local tiny = torch().finfo(like.dtype).tiny
  return torch().rand(M.extended(d, shape), M.kind_of(like)):clamp_min(tiny)
end

--- Standard normal numbers of the shape of a draw; see uniform.
---@param d torch.distributions.Distribution
---@param shape integer[] of the sample
---@param like torch.Tensor whose dtype they have
---@return torch.Tensor
function M.numbers(d, shape, like)
  return torch().randn(M.extended(d, shape), M.kind_of(like))
end

--- Raises unless the parameter is above 0.
---@param d torch.distributions.Distribution
---@param name string the distribution's
---@param param string
function M.positive(d, name, param)
  M.require(d[param]:gt(0), name, param, "GreaterThan(lower_bound=0.0)")
end

--- A check that parameters are above 0, for `check`.
---@param name string the distribution's
---@param ... string the parameters
---@return fun(d: torch.distributions.Distribution)
function M.all_positive(name, ...)
  local params = { ... }
  return function(d)
    for _, param in ipairs(params) do
      M.positive(d, name, param)
    end
  end
end

--- A value where the condition holds, else NaN.
---@param condition torch.Tensor bool
---@param value torch.Tensor
---@return torch.Tensor
function M.defined(condition, value)
  return torch().where(condition, value, torch().full_like(value, 0.0 / 0.0))
end

--- Probabilities off 0 and 1 by the type's epsilon.
---@param p torch.Tensor
---@return torch.Tensor
function M.inner(p)
  local eps = torch().finfo(p.dtype).eps
  return p:clamp(eps, 1 - eps)
end

local function log_odds(p)
  p = M.inner(p)
  return p:log() - (-p):log1p()
end

--- Sets probs and logits, of which one is given, of two outcomes; the names in
--- `more` broadcast with it.
---@param d torch.distributions.Distribution
---@param name string the distribution's
---@param a table<string, torch.Tensor|number> the arguments
---@param more? string[]
function M.probs_or_logits(d, name, a, more)
  errors.check((a.probs == nil) ~= (a.logits == nil), "ValueError",
    "%s: either `probs` or `logits` must be specified, but not both", name)
  d.given = a.probs and "probs" or "logits"
  local values = { [d.given] = a[d.given] }
  for _, other in ipairs(more or {}) do
    values[other] = a[other]
  end
  M.elementwise(d, values)
  rawset(d, "probs", rawget(d, "probs") or d.logits:sigmoid())
  rawset(d, "logits", rawget(d, "logits") or log_odds(d.probs))
end

--- A check of probabilities, for `check`.
---@param name string the distribution's
---@return fun(d: torch.distributions.Distribution)
function M.check_probs(name)
  return function(d)
    M.require(d.probs:ge(0):logical_and(d.probs:le(1)), name, "probs",
      "Interval(lower_bound=0.0, upper_bound=1.0)")
  end
end

--- Whole numbers from 0.
---@param x torch.Tensor
---@return torch.Tensor bool
function M.is_count(x)
  return x:ge(0):logical_and(x:eq(x:floor()))
end

-- One of the two is given; see probs_or_logits.
local EITHER = { probs = true, logits = true }

--- The usual setup: the parameters broadcast, the batch has their shape.
--- error: TypeError for a parameter that is missing
---@param self torch.distributions.Distribution
---@param a table<string, torch.Tensor|number> parameters by name
function M.elementwise(self, a)
  for _, param in ipairs(getmetatable(self).body.params) do
    errors.check(a[param] ~= nil or EITHER[param] or rawget(self, param), "TypeError",
      "%s: %s is missing", getmetatable(self).__name, param)
  end
  for param, t in pairs(broadcast(a)) do
    rawset(self, param, t)
    self.batch_shape = t.shape
  end
end

--- Sizes of a shape but the last n.
---@param shape integer[]
---@param n integer
---@return integer[]
function M.front(shape, n)
  return { table.unpack(shape, 1, #shape - n) }
end

--- Sizes of a shape and more.
---@param shape integer[]
---@param ... integer
---@return integer[]
function M.joined(shape, ...)
  local out = { table.unpack(shape) }
  for _, n in ipairs({ ... }) do
    out[#out + 1] = n
  end
  return out
end

return M
