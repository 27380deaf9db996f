--- VonMises, the distribution of angles.
--- Source: PyTorch documentation, torch.distributions; Best and Fisher, 1979.
local base = require("torch.distributions.base")

local function torch()
  return require("torch")
end

-- Angles around 0 by rejection from a wrapped Cauchy distribution.
local function angles(k)
  local t = torch()
  local tau = 1 + (1 + 4 * k:pow(2)):sqrt()
  local rho = (tau - (2 * tau):sqrt()) / (2 * k)
  local r = t.where(k:lt(1e-5), 1 / k + k, (1 + rho:pow(2)) / (2 * rho))
  local x, done = t.zeros_like(k), t.zeros_like(k):ne(0)
  while not done:all():item() do
    local z = (math.pi * t.rand(k.shape, base.kind_of(k))):cos()
    local f = (1 + r * z) / (r + z)
    local c, u = k * (r - f), t.rand(k.shape, base.kind_of(k))
    local taken = (c * (2 - c) - u):gt(0):logical_or(((c / u):log() + 1 - c):ge(0))
    local sign = (t.rand(k.shape, base.kind_of(k)) - 0.5):sign()
    x = t.where(taken:logical_and(done:logical_not()), sign * f:clamp(-1, 1):acos(), x)
    done = done:logical_or(taken)
  end
  return x
end

local von_mises = {
  params = { "loc", "concentration" },
  setup = base.elementwise,
  check = base.all_positive("VonMises", "concentration"),
  mean = function(d) return d.loc end,
  mode = function(d) return d.loc end,
  variance = function(d)
    local special = torch().special
    return 1 - special.i1e(d.concentration) / special.i0e(d.concentration)
  end,
  sample = function(d, shape)
    local k = d.concentration:expand(base.extended(d, shape))
    return (angles(k) + math.pi + d.loc):remainder(2 * math.pi) - math.pi
  end,
  log_prob = function(d, x)
    local k = d.concentration
    return k * ((x - d.loc):cos() - 1) - math.log(2 * math.pi) - torch().special.i0e(k):log()
  end,
}

return function(M)
  M.VonMises = base.define("VonMises", von_mises)
end
