--- Adadelta, Adamax, RAdam, ASGD, Rprop, Adafactor, Muon: updates
--- made of tensor operators. The simulated device has no operator for them, so
--- they have no rule and work with torch alone.
---
--- source: the algorithms in the PyTorch documentation of each class
local check = require("lupine.base.check")
local core = require("lupine.core")
local define = require("torch.optim.define")
local Optimizer = require("torch.optim.optimizer")
local errors = require("lupine.base.errors")
local plain = require("torch.optim.plain")

local M = {}

local start, moments = plain.start, plain.moments

-- foreach, fused and capturable choose between implementations; there is one.
local FLAGS = "foreach=None, maximize=False, differentiable=False, capturable=False)"

-- Starts that are not zero: name -> value(group)
local function starts(cls, values)
  function cls:initial_state(param, name)
    local state = Optimizer.initial_state(self, param, name)
    if values[name] then
      for _, group in ipairs(self.param_groups) do
        for _, p in ipairs(group.params) do
          if p == param then
            return values[name](state, group, param, self.defaults)
          end
        end
      end
    end
    return state
  end
end

local function scalar(value)
  local torch = require("torch")
  return torch.tensor(value, { dtype = torch.float32 })
end

-- Refuses an option that lies outside its range.
local function ranged(name, group, option, ok, allowed)
  errors.check(ok, "ValueError", "%s: Invalid %s: %s, allowed is %s", name, option,
    tostring(group[option]), allowed)
end

M.Adadelta = define("Adadelta(params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, " .. FLAGS, {
  update = function(self, group, param, grad)
    local _, g = start(self, group, param, grad)
    local rho, eps = group.rho, group.eps
    local square = self:state_tensor(param, "square_avg"):mul_(rho)
      :addcmul_(g, g, { value = 1 - rho })
    local acc = self:state_tensor(param, "acc_delta")
    local delta = (acc + eps):sqrt() / (square + eps):sqrt() * g
    acc:mul_(rho):addcmul_(delta, delta, { value = 1 - rho })
    plain.add(param, delta, -group.lr)
  end,
  check = function(group)
    ranged("Adadelta", group, "rho", group.rho <= 1, "0 to 1")
  end,
})

M.Adamax = define("Adamax(params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, "
  .. FLAGS, {
    update = function(self, group, param, grad)
      local step, g = start(self, group, param, grad)
      local beta1, beta2 = group.betas[1], group.betas[2]
      local mean = self:state_tensor(param, "exp_avg"):lerp_(g, 1 - beta1)
      local top = self:state_tensor(param, "exp_inf")
      top:copy_((top * beta2):maximum(g:abs() + group.eps))
      plain.add_quotient(param, mean, top, -group.lr / (1 - beta1 ^ step))
    end,
  })

M.RAdam = define("RAdam(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, "
  .. "decoupled_weight_decay=False, " .. FLAGS, {
    update = function(self, group, param, grad)
      local step, g = start(self, group, param, grad)
      local mean, square, beta1, beta2 = moments(self, group, param, g)
      local left = 1 - beta2 ^ step
      local highest = 2 / (1 - beta2) - 1
      local rho = highest - 2 * step * beta2 ^ step / left
      local x = mean / (1 - beta1 ^ step) * group.lr
      if rho > 5 then
        local rect = math.sqrt((rho - 4) * (rho - 2) * highest
          / ((highest - 4) * (highest - 2) * rho))
        x = x * (math.sqrt(left) / (square:sqrt() + group.eps)) * rect
      end
      param:sub_(x)
    end,
  })

M.ASGD = define("ASGD(params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, "
  .. FLAGS, {
  update = function(self, group, param, grad)
    local step, g = start(self, group, param, grad)
    local eta, mu = self:state_tensor(param, "eta"), self:state_tensor(param, "mu")
    local mean = self:state_tensor(param, "ax")
    local rate, share = eta:item(), mu:item()
    param:mul_(1 - group.lambd * rate):add_(g, { alpha = -rate })
    mean:add_((param - mean) * share)
    local lr = Optimizer.number(group.lr)
    eta:fill_(lr / (1 + group.lambd * lr * step) ^ group.alpha)
    mu:fill_(1 / math.max(1, step - group.t0))
  end,
})
starts(M.ASGD, {
  eta = function(_, group)
    return scalar(Optimizer.number(group.lr))
  end,
  mu = function()
    return scalar(1.0)
  end,
})

M.Rprop = define("Rprop(params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), "
  .. "capturable=False, foreach=None, maximize=False, differentiable=False)", {
    update = function(self, group, param, grad)
      local torch = require("torch")
      local _, g = start(self, group, param, grad)
      local before, size = self:state_tensor(param, "prev"), self:state_tensor(param, "step_size")
      local agree = g * before
      local factor = torch.where(agree:gt(0), torch.full_like(g, group.etas[2]),
        torch.where(agree:lt(0), torch.full_like(g, group.etas[1]), torch.ones_like(g)))
      size:mul_(factor):clamp_(group.step_sizes[1], group.step_sizes[2])
      g = g:masked_fill(agree:lt(0), 0)
      param:sub_(g:sign() * size)
      before:copy_(g)
    end,
    check = function(group)
      local low, high = group.etas[1], group.etas[2]
      errors.check(low > 0 and low < 1 and high > 1, "ValueError", "Rprop: Invalid eta values: "
        .. "%s, %s, allowed are 0 < etas[0] < 1 < etas[1]", tostring(low), tostring(high))
    end,
  })
starts(M.Rprop, {
  step_size = function(state, group)
    return state:fill_(Optimizer.number(group.lr))
  end,
})

local EPS = { ["torch.float32"] = 2 ^ -23, ["torch.float64"] = 2 ^ -52,
  ["torch.float16"] = 2 ^ -10, ["torch.bfloat16"] = 2 ^ -7 }

-- Variance of a matrix from its rows' and columns' alone, or of a vector.
local function estimate(self, param, g, share, eps)
  if g:dim() < 2 then
    return self:state_tensor(param, "variance"):lerp_(g * g, share):clone()
  end
  local function mean(name, dim) -- of squares, rounded as PyTorch's
    local norm = require("torch").linalg.vector_norm(g, { dim = dim, keepdim = true })
    return self:state_tensor(param, name):lerp_(norm:square_():div_(g:size(dim)), share)
  end
  local rows, cols = mean("row_var", -1), mean("col_var", -2)
  return rows:matmul(cols):div_(rows:mean(-2, { keepdim = true }):clamp_min(eps))
end

M.Adafactor = define("Adafactor(params, lr=1e-2, beta2_decay=-0.8, eps=None, d=1.0, "
  .. "weight_decay=0.0, foreach=None, maximize=False)", {
    update = function(self, group, param, grad)
      local step = self:state_tensor(param, "step"):add_(1):item()
      local g = group.maximize and -grad or grad
      local lr, given = group.lr, group.eps
      local eps1 = type(given[1]) == "number" and given[1] or EPS[tostring(param.dtype)]
      local eps2 = given[2] or 1e-3
      local n = math.sqrt(param:numel())
      local alpha = math.max(eps2, param:norm():item() / n)
        * math.min(lr, 1 / math.sqrt(step))
      param:mul_(1 - lr * group.weight_decay)
      local x = estimate(self, param, g, step ^ group.beta2_decay, eps1)
        :clamp_min(eps1 * eps1):rsqrt() * g
      local most = math.max(1, x:norm():item() / (n * group.d))
      param:add_(x, { alpha = -alpha / most })
    end,
    complete = function(a)
      if a.eps == nil then
        a.eps = { core.none, 1e-3 }
      end
    end,
    check = function(group)
      ranged("Adafactor", group, "d", group.d >= 1, "1 or more (the clipping threshold)")
      ranged("Adafactor", group, "beta2_decay", group.beta2_decay <= 0, "0 or less")
      local eps = group.eps
      errors.check(type(eps) == "table" and not check.is_none(eps) and #eps == 2, "TypeError",
        "Adafactor: eps must be a list of two, {torch.none, 1e-3}, got %s", check.describe(eps))
      for i, e in ipairs(eps) do
        errors.check(type(e) == "number" or i == 1 and check.is_none(e), "TypeError",
          "Adafactor: eps[%d] must be a number, got %s", i - 1, check.describe(e))
        errors.check(type(e) ~= "number" or e >= 0, "ValueError",
          "Adafactor: Invalid eps: epsilon %d is %s, allowed is 0 or more", i, tostring(e))
      end
    end,
  })
starts(M.Adafactor, {
  row_var = function(state)
    return state:narrow(-1, 0, 1):clone()
  end,
  col_var = function(state)
    return state:narrow(-2, 0, 1):clone()
  end,
})

-- A matrix with the singular vectors of g and singular values near 1: steps of
-- Newton's and Schulz' iteration by a polynomial of degree 5. Every product is
-- rounded to bfloat16, once.
local function orthogonalised(g, group)
  local torch = require("torch")
  local a, b, c = table.unpack(group.ns_coefficients)
  local tall = g:size(0) > g:size(1)
  local function rounded(y)
    return y:to(torch.bfloat16):float()
  end
  local x = rounded(tall and g:t() or g)
  x = rounded(x / rounded(x:norm()):clamp({ min = group.eps }))
  for _ = 1, group.ns_steps do
    local gram = rounded(x:matmul(x:t()))
    local update = rounded(torch.addmm(gram, gram, gram, { beta = b, alpha = c }))
    x = rounded(torch.addmm(x, update, x, { beta = a }))
  end
  return tall and x:t() or x
end

-- How a rate is scaled to a matrix of so many rows and columns.
local ADJUST = {
  original = function(rows, cols)
    return math.sqrt(math.max(1, rows / cols))
  end,
  match_rms_adamw = function(rows, cols)
    return 0.2 * math.sqrt(math.max(rows, cols))
  end,
  spectral_unclamped = function(rows, cols)
    return math.sqrt(rows / cols)
  end,
}

M.Muon = define("Muon(params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, "
  .. "ns_coefficients=(3.4445, -4.7750, 2.0315), eps=1e-7, ns_steps=5, adjust_lr_fn=None)", {
    update = function(self, group, param, grad)
      local lr, momentum = group.lr, group.momentum
      local mean = self:state_tensor(param, "momentum_buffer"):lerp_(grad, 1 - momentum)
      local x = orthogonalised(group.nesterov and grad:lerp(mean, momentum) or mean, group)
      local scale = ADJUST[group.adjust_lr_fn or "original"](param:size(0), param:size(1))
      param:mul_(1 - lr * group.weight_decay)
      param:sub_(x * (lr * scale))
    end,
    check = function(group)
      local scale = group.adjust_lr_fn
      errors.check(scale == nil or ADJUST[scale], "ValueError", "Muon: adjust_lr_fn: %s is not "
        .. "supported, allowed are original, match_rms_adamw, spectral_unclamped",
        tostring(scale))
      errors.check(math.type(group.ns_steps) == "integer", "TypeError",
        "Muon: ns_steps must be a whole number, got %s", check.describe(group.ns_steps))
      ranged("Muon", group, "ns_steps", group.ns_steps < 100, "less than 100")
      for _, p in ipairs(group.params) do
        errors.check(p:dim() == 2, "ValueError", "Muon only supports 2D parameters whereas we "
          .. "found a parameter with size: %s", tostring(p.shape))
      end
    end,
  })

return M
