--- MixtureSameFamily: a draw of one of several distributions of one class.
--- Source: PyTorch documentation, torch.distributions.
local base = require("torch.distributions.base")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local function torch()
  return require("torch")
end

local function check_mixture(D, mixture, component)
  errors.check(D.Categorical:is(mixture), "ValueError", "MixtureSameFamily: The Mixture "
    .. "distribution needs to be an instance of torch.distributions.Categorical")
  errors.check(base.Distribution:is(component), "ValueError", "MixtureSameFamily: The Component "
    .. "distribution needs to be an instance of torch.distributions.Distribution")
  local all = component.batch_shape
  local batch = { table.unpack(all, 1, #all - 1) }
  for i = 0, math.min(#mixture.batch_shape, #batch) - 1 do
    local m, c = mixture.batch_shape[#mixture.batch_shape - i], batch[#batch - i]
    errors.check(m == 1 or c == 1 or m == c, "ValueError", "MixtureSameFamily: "
      .. "`mixture_distribution.batch_shape` (%s) is not compatible with "
      .. "`component_distribution.batch_shape`(%s)", tostring(mixture.batch_shape),
      tostring(core.Size(batch)))
  end
  local n = mixture.num_events
  errors.check(n == all[#all], "ValueError", "MixtureSameFamily: `mixture_distribution component` "
    .. "(%d) does not equal `component_distribution.batch_shape[-1]` (%s)", n, tostring(all[#all]))
  return batch
end

return function(D)
  ---@class torch.distributions.MixtureSameFamily: torch.distributions.Distribution
  ---@field mixture_distribution torch.distributions.Distribution
  ---@field component_distribution torch.distributions.Distribution
  local X = base.Distribution:extend("MixtureSameFamily")
  X.body = {}

  --- A draw of the component that a Categorical picks: the last batch dimension
  --- of `component` is the components'.
  ---@param mixture torch.distributions.Distribution
  ---@param component torch.distributions.Distribution
  ---@param options? {validate_args: boolean}
  function X:init(mixture, component, options)
    rawset(self, "batch_shape", core.Size(check_mixture(D, mixture, component)))
    rawset(self, "event_shape", component.event_shape)
    rawset(self, "mixture_distribution", mixture)
    rawset(self, "component_distribution", component)
    rawset(self, "validated", not options or options.validate_args ~= false)
  end

  -- Probabilities before the event's dimensions.
  local function weights(self)
    local p = self.mixture_distribution.probs
    for _ = 1, #self.event_shape do
      p = p:unsqueeze(-1)
    end
    return p
  end

  local function spread(self, x)
    return x:unsqueeze(-1 - #self.event_shape)
  end

  local properties = {
    has_rsample = function() return false end,
    mean = function(self)
      return (weights(self) * self.component_distribution.mean):sum(-1 - #self.event_shape)
    end,
    variance = function(self)
      local c, dim = self.component_distribution, -1 - #self.event_shape
      local p, far = weights(self), c.mean - spread(self, self.mean)
      return (p * c.variance):sum(dim) + (p * far:pow(2)):sum(dim)
    end,
    stddev = function(self) return self.variance:sqrt() end,
  }

  function X.__index(self, key)
    local property = properties[key]
    if property then
      return property(self)
    end
    return getmetatable(self)[key]
  end

  function X:log_prob(x)
    x = spread(self, base.value(self, "log_prob", x))
    local each = self.component_distribution:log_prob(x)
    return (each + torch().log_softmax(self.mixture_distribution.logits, -1)):logsumexp(-1)
  end

  function X:cdf(x)
    x = spread(self, base.value(self, "cdf", x))
    return (self.component_distribution:cdf(x) * self.mixture_distribution.probs):sum(-1)
  end

  function X:sample(shape)
    return torch().no_grad(function()
      local pick = self.mixture_distribution:sample(shape)
      local draws = self.component_distribution:sample(shape)
      local dim = draws:dim() - #self.event_shape - 1
      pick = pick:expand({ table.unpack(draws.shape, 1, dim) }):unsqueeze(-1)
      local whole = { table.unpack(draws.shape) }
      whole[dim + 1] = 1
      for _ = 1, #self.event_shape do
        pick = pick:unsqueeze(-1)
      end
      return draws:gather(dim, pick:expand(whole)):squeeze(dim)
    end)
  end

  function X:rsample()
    errors.raise("NotImplementedError", "%s has no rsample: a draw has no gradient",
      getmetatable(self).__name)
  end

  function X:expand(shape)
    local n = self.mixture_distribution.num_events
    local whole = { table.unpack(shape) }
    whole[#whole + 1] = n
    return X(self.mixture_distribution:expand(shape),
      self.component_distribution:expand(whole), { validate_args = false })
  end

  function X.__tostring(self)
    return ("MixtureSameFamily(\n  %s,\n  %s)"):format(tostring(self.mixture_distribution),
      tostring(self.component_distribution))
  end
  D.MixtureSameFamily = X
end
