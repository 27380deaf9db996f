--- torch.optim.lr_scheduler: learning rates (and momenta) as functions of the
--- number of scheduler steps. A class gives the next rate of a group from the
--- present one (`next_lr`), so that schedulers can be chained, and where there is
--- a formula from the epoch alone (`closed`), for step(epoch).
---
--- source: the formulas of the PyTorch documentation of each class
local base = require("torch.optim.schedules.base")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")

local M = { LRScheduler = base.LRScheduler }
M._LRScheduler = M.LRScheduler -- its older name

local function define(sig, methods)
  local cls = base.define(sig, methods)
  M[cls.__name] = cls
  return cls
end

-- ---- functions of the epoch ------------------------------------------------

local function each_lambda(self, what)
  local given = self[what]
  self[what] = nil
  local list = {}
  for i = 1, #self.optimizer.param_groups do
    list[i] = type(given) == "table" and class.of(given) == nil and given[i] or given
  end
  errors.check(type(given) ~= "table" or class.of(given) or #given == #list, "ValueError",
    "Expected %d lr_lambdas, but got %d", #list, type(given) == "table" and #given or 1)
  for i, fn in ipairs(list) do
    local mt = getmetatable(fn)
    errors.check(type(fn) == "function" or type(mt) == "table" and mt.__call, "TypeError",
      "%s: %s must be a function of the epoch, or a list of one for each group; that of group %d "
      .. "is %s", getmetatable(self).__name, what, i - 1, check.describe(fn))
  end
  self.lr_lambdas = list
end

local function prepare_lambda(self)
  each_lambda(self, "lr_lambda")
end

define("LambdaLR(optimizer, lr_lambda, last_epoch=-1)", {
  prepare = prepare_lambda,
  next_lr = function(self, _, initial, epoch, i)
    return initial * self.lr_lambdas[i](epoch)
  end,
})

define("MultiplicativeLR(optimizer, lr_lambda, last_epoch=-1)", {
  prepare = prepare_lambda,
  next_lr = function(self, lr, _, epoch, i)
    return self._is_initial and lr or lr * self.lr_lambdas[i](epoch)
  end,
})

-- ---- steps -----------------------------------------------------------------

define("StepLR(optimizer, step_size, gamma=0.1, last_epoch=-1)", {
  prepare = function(self)
    errors.check(self.step_size ~= 0, "ZeroDivisionError", "StepLR: step_size must not be 0")
  end,
  next_lr = function(self, lr, _, epoch)
    return epoch > 0 and epoch % self.step_size == 0 and lr * self.gamma or lr
  end,
  closed = function(self, initial, epoch)
    return initial * self.gamma ^ (epoch // self.step_size)
  end,
})

define("MultiStepLR(optimizer, milestones, gamma=0.1, last_epoch=-1)", {
  prepare = function(self)
    base.check_steps("MultiStepLR: milestones", "epochs", self.milestones)
  end,
  next_lr = function(self, lr, _, epoch)
    for _, at in ipairs(self.milestones) do
      lr = at == epoch and lr * self.gamma or lr
    end
    return lr
  end,
  closed = function(self, initial, epoch)
    for _, at in ipairs(self.milestones) do
      initial = at <= epoch and initial * self.gamma or initial
    end
    return initial
  end,
})

define("ConstantLR(optimizer, factor=0.3333333333333333, total_iters=5, last_epoch=-1)", {
  prepare = function(self)
    errors.check(self.factor >= 0 and self.factor <= 1, "ValueError",
      "Constant multiplicative factor expected to be between 0 and 1.")
  end,
  next_lr = function(self, lr, _, epoch)
    if epoch == 0 then
      return lr * self.factor
    end
    errors.check(epoch ~= self.total_iters or self.factor ~= 0, "ZeroDivisionError",
      "ConstantLR: a rate times factor = 0 cannot be raised again")
    return epoch == self.total_iters and lr * (1 / self.factor) or lr
  end,
  closed = function(self, initial, epoch)
    return epoch < self.total_iters and initial * self.factor or initial
  end,
})

define("LinearLR(optimizer, start_factor=0.3333333333333333, end_factor=1.0, total_iters=5, "
  .. "last_epoch=-1)", {
    prepare = function(self)
      errors.check(self.start_factor > 0 and self.start_factor <= 1, "ValueError",
        "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
      errors.check(self.end_factor >= 0 and self.end_factor <= 1, "ValueError",
        "Ending multiplicative factor expected to be between 0 and 1.")
    end,
    next_lr = function(self, lr, _, epoch)
      if epoch == 0 then
        return lr * self.start_factor
      elseif self._is_initial or epoch > self.total_iters then
        return lr
      end
      local rise = self.end_factor - self.start_factor
      return lr * (1 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise))
    end,
    closed = function(self, initial, epoch)
      local share = math.min(self.total_iters, epoch) / self.total_iters
      return initial * (self.start_factor + (self.end_factor - self.start_factor) * share)
    end,
  })

define("ExponentialLR(optimizer, gamma, last_epoch=-1)", {
  next_lr = function(self, lr)
    return self._is_initial and lr or lr * self.gamma
  end,
  closed = function(self, initial, epoch)
    return initial * self.gamma ^ epoch
  end,
})

define("PolynomialLR(optimizer, total_iters=5, power=1.0, last_epoch=-1)", {
  next_lr = function(self, lr, _, epoch)
    if self._is_initial or epoch > self.total_iters then
      return lr
    end
    local left = 1 - epoch / self.total_iters
    return lr * (left / (1 - (epoch - 1) / self.total_iters)) ^ self.power
  end,
  closed = function(self, initial, epoch)
    return initial * (1 - math.min(self.total_iters, epoch) / self.total_iters) ^ self.power
  end,
})

-- ---- waves -----------------------------------------------------------------

define("CosineAnnealingLR(optimizer, T_max, eta_min=0.0, last_epoch=-1)", {
  prepare = function(self)
    errors.check(self.T_max ~= 0, "ZeroDivisionError", "CosineAnnealingLR: T_max must not be 0")
    errors.check(type(self.eta_min) == "number", "TypeError",
      "CosineAnnealingLR: eta_min must be a number, got %s", check.describe(self.eta_min))
  end,
  next_lr = function(self, lr, initial, epoch)
    local low, period = self.eta_min, self.T_max
    if self._is_initial then
      return lr
    elseif (epoch - 1 - period) % (2 * period) == 0 then
      return lr + (initial - low) * (1 - math.cos(math.pi / period)) / 2
    end
    return (1 + math.cos(math.pi * epoch / period))
      / (1 + math.cos(math.pi * (epoch - 1) / period)) * (lr - low) + low
  end,
  closed = function(self, initial, epoch)
    local low = self.eta_min
    return low + (initial - low) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2
  end,
})

local Restarts = define("CosineAnnealingWarmRestarts(optimizer, T_0, T_mult=1, eta_min=0.0, "
  .. "last_epoch=-1)", {
    prepare = function(self, _, last_epoch)
      for _, name in ipairs({ "T_0", "T_mult" }) do
        errors.check(type(self[name]) == "number", "TypeError",
          "CosineAnnealingWarmRestarts: %s must be a number, got %s", name,
          self[name] == nil and "None" or check.describe(self[name]))
      end
      errors.check(math.type(self.T_0) == "integer" and self.T_0 > 0, "ValueError",
        "Expected positive integer T_0, but got %s", check.describe(self.T_0))
      errors.check(math.type(self.T_mult) == "integer" and self.T_mult >= 1, "ValueError",
        "Expected integer T_mult >= 1, but got %s", check.describe(self.T_mult))
      errors.check(type(self.eta_min) == "number", "ValueError",
        "Expected float or int eta_min, but got %s", check.describe(self.eta_min))
      self.T_i, self.T_cur = self.T_0, last_epoch
    end,
    next_lr = function(self, _, initial)
      return self.eta_min
        + (initial - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
    end,
  })

-- The period that holds the epoch, and where the epoch is in it. The logarithm
-- decides at the borders, as in PyTorch.
local function period_of(self, epoch)
  local first, times = self.T_0, self.T_mult
  if epoch < first then
    self.T_i, self.T_cur = first, epoch
  elseif times == 1 then
    self.T_cur = epoch % first
  else
    local n = math.log(epoch / first * (times - 1) + 1) / math.log(times) // 1 | 0
    self.T_cur = epoch - first * (times ^ n - 1) / (times - 1)
    self.T_i = first * times ^ n
  end
end

--- One more step, or the rates of an epoch, which may have a fraction.
function Restarts:step(epoch)
  check.method(self, M.LRScheduler, "step")
  epoch = check.number(epoch, "CosineAnnealingWarmRestarts: step: epoch", { nullable = true })
  epoch = epoch or self.last_epoch < 0 and 0 or nil
  errors.check(not epoch or epoch >= 0, "ValueError", "Expected non-negative epoch, but got %s",
    tostring(epoch))
  if epoch then
    period_of(self, epoch)
  else
    epoch = self.last_epoch + 1
    self.T_cur = self.T_cur + 1
    if self.T_cur >= self.T_i then
      self.T_cur = self.T_cur % self.T_i
      self.T_i = self.T_i * self.T_mult
    end
  end
  self.last_epoch = math.floor(epoch)
  self:_set_lrs(self:get_lr())
end

for _, part in ipairs({ "cycles", "compound" }) do
  for name, cls in pairs(require("torch.optim.schedules." .. part)) do
    M[name] = cls
  end
end

return require("lupine.base.namespace").close(M, "torch.optim.lr_scheduler")
