--- Relaxed draws of classes, which a gradient goes through: the logit of a
--- relaxed Bernoulli, the log of a relaxed one-hot (Maddison et al., 2017; Jang
--- et al., 2017). Source: PyTorch documentation, torch.distributions.
local base = require("torch.distributions.base")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local function torch()
  return require("torch")
end

-- The temperature, which does not broadcast with the classes.
local function take_temperature(d, name, a)
  errors.check(a.temperature ~= nil, "TypeError", "%s: temperature is missing", name)
  local given = a.probs or a.logits
  local like = core.is_tensor(given) and given:is_floating_point() and given.dtype
    or core.get_default_dtype()
  rawset(d, "temperature", core.is_tensor(a.temperature) and a.temperature
    or torch().tensor(a.temperature + 0.0, { dtype = like }))
  return { probs = a.probs, logits = a.logits }
end

return function(D)
  D.LogitRelaxedBernoulli = base.define("LogitRelaxedBernoulli", {
    params = { "temperature", "probs", "logits" },
    fixed = { temperature = true },
    setup = function(d, a)
      base.probs_or_logits(d, "LogitRelaxedBernoulli",
        take_temperature(d, "LogitRelaxedBernoulli", a))
    end,
    check = base.check_probs("LogitRelaxedBernoulli"),
    rsample = function(d, shape)
      local p = base.inner(d.probs)
      local u = base.inner(base.uniform(d, shape, d.probs))
      return (u:log() - (-u):log1p() + p:log() - (-p):log1p()) / d.temperature
    end,
    log_prob = function(d, x)
      local far = d.logits - x * d.temperature
      return d.temperature:log() + far - 2 * torch().nn.functional.softplus(far)
    end,
  })

  local function categorical(d)
    return rawget(d, "categorical")
  end

  D.ExpRelaxedCategorical = base.define("ExpRelaxedCategorical", {
    params = { "temperature", "probs", "logits" },
    fixed = { temperature = true },
    setup = function(d, a)
      a = take_temperature(d, "ExpRelaxedCategorical", a)
      rawset(d, "given", a.probs and "probs" or "logits")
      rawset(d, "categorical", D.Categorical(a.probs or torch().none,
        a.logits or torch().none))
      rawset(d, "probs", categorical(d).probs)
      rawset(d, "logits", categorical(d).logits)
      d.batch_shape = categorical(d).batch_shape
      d.event_shape = core.Size({ categorical(d).num_events })
    end,
    rsample = function(d, shape)
      local u = base.inner(base.uniform(d, shape, d.probs))
      local scores = (d.logits - (-u:log()):log()) / d.temperature
      return scores - scores:logsumexp(-1, { keepdim = true })
    end,
    log_prob = function(d, x)
      local n = categorical(d).num_events
      local score = d.logits - x * d.temperature
      score = (score - score:logsumexp(-1, { keepdim = true })):sum(-1)
      local factorial = torch().tensor(n + 0.0, { dtype = score.dtype }):lgamma()
      return score + factorial + d.temperature:log() * (n - 1)
    end,
  })
end
