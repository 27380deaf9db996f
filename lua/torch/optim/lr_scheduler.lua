--- torch.optim.lr_scheduler: learning rates (and momenta) as functions of the
--- number of scheduler steps. A class gives the next rate of a group from the
--- present one (`next_lr`), so that schedulers can be chained, and where there is
--- a formula from the epoch alone (`closed`), for step(epoch).
---
--- source: the formulas of the PyTorch documentation of each class
local check = require("lupine.check")
local class = require("lupine.class")
local errors = require("torch.errors")
local signature = require("torch.nn.signature")
local warn = require("lupine.warn")

local M = {}

---@class torch.optim.LRScheduler
---@field last_epoch integer
---@field base_lrs number[]
local LRScheduler = class.new("LRScheduler")
M.LRScheduler = LRScheduler
M._LRScheduler = LRScheduler -- its older name

--- For sub-classes with get_lr of their own: LRScheduler.init(self, optimizer).
function LRScheduler:init(optimizer, last_epoch)
  errors.check(type(optimizer) == "table" and optimizer.param_groups, "TypeError",
    "%s: the first argument must be an Optimizer", getmetatable(self).__name)
  self.optimizer = optimizer
  self.last_epoch = last_epoch or -1
  self.base_lrs, self._last_lr = {}, {}
  if self.start and self.last_epoch == -1 then
    self:start() -- rates of its own, which become the initial ones
  end
  for i, group in ipairs(optimizer.param_groups) do
    if self.last_epoch == -1 then
      group.initial_lr = group.initial_lr or group.lr
    end
    errors.check(group.initial_lr, "KeyError", "param 'initial_lr' is not specified in "
      .. "param_groups[%d] when resuming a scheduler", i)
    self.base_lrs[i] = group.initial_lr
  end
  if self.prepare then
    self:prepare()
  end
  self.initial = true -- in the step of the construction
  self:step()
  self.initial = nil
end

--- The rates of the groups after this step, a list.
function LRScheduler:get_lr()
  local out = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    out[i] = self:next_lr(group.lr, self.base_lrs[i], self.last_epoch, i)
  end
  return out
end

-- The rates from the epoch alone.
function LRScheduler:closed_lrs()
  local out = {}
  for i, base in ipairs(self.base_lrs) do
    out[i] = self:closed(base, self.last_epoch)
  end
  return out
end

function LRScheduler:set_lrs(rates)
  for i, group in ipairs(self.optimizer.param_groups) do
    group.lr = rates[i]
    self._last_lr[i] = rates[i]
  end
end

-- A step of one's own, or on a device, is not seen.
local function warn_of_order(self)
  local optimizer = self.optimizer
  local seen = optimizer.step == require("torch.optim.optimizer").step
  if seen and not optimizer._stepped and not optimizer._link then
    warn("%s:step() is called before the optimizer's first step: the first value of the "
      .. "learning rate is skipped", getmetatable(self).__name)
  end
end

--- One more step; with `epoch` the rates of that step.
function LRScheduler:step(epoch)
  check.method(self, LRScheduler, "step")
  if epoch then
    self.last_epoch = epoch
    self:set_lrs(self.closed and self:closed_lrs() or self:get_lr())
    return
  end
  if self.last_epoch == 0 and not self.initial then
    warn_of_order(self)
  end
  self.last_epoch = self.last_epoch + 1
  self:set_lrs(self:get_lr())
end

---@return number[]
function LRScheduler:get_last_lr()
  return { table.unpack(self._last_lr) }
end

local NOT_STATE = { optimizer = true, schedulers = true, _schedulers = true }

--- Everything but the optimizer and functions; in a list of functions each
--- that is one is torch.none.
function LRScheduler:state_dict()
  local out = {}
  for name, value in pairs(self) do
    if not NOT_STATE[name] and type(value) ~= "function" then
      out[name] = class.copy(value)
    end
  end
  for i, fn in ipairs(self.lr_lambdas or {}) do
    if type(fn) == "function" then
      out.lr_lambdas[i] = require("torch").none
    end
  end
  for _, list in ipairs({ "schedulers", "_schedulers" }) do
    for i, s in ipairs(self[list] or {}) do
      out[list] = out[list] or {}
      out[list][i] = s:state_dict()
    end
  end
  return out
end

function LRScheduler:load_state_dict(dict)
  for name, value in pairs(dict) do
    if NOT_STATE[name] then
      for i, s in ipairs(self[name] or {}) do
        s:load_state_dict(value[i])
      end
    elseif name == "lr_lambdas" then
      for i, fn in ipairs(value) do
        if type(fn) ~= "function" and not check.is_none(fn) then
          self.lr_lambdas[i] = class.copy(fn)
        end
      end
    else
      self[name] = class.copy(value)
    end
  end
end

-- A scheduler from its signature: the arguments after the optimizer become
-- fields, last_epoch goes to the base.
local function define(sig, methods)
  local parsed = signature(sig)
  local cls = LRScheduler:extend(parsed.name)
  function cls:init(...)
    local a = parsed(...)
    for i = 2, #parsed.names do
      local name = parsed.names[i]
      if name ~= "last_epoch" then
        self[name] = a[name]
      end
    end
    LRScheduler.init(self, a.optimizer, a.last_epoch)
  end
  for name, fn in pairs(methods) do
    cls[name] = fn
  end
  M[parsed.name] = cls
  return cls
end
M._define = define

-- ---- functions of the epoch ------------------------------------------------

local function each_lambda(self, what)
  local given = self[what]
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
  next_lr = function(self, _, base, epoch, i)
    return base * self.lr_lambdas[i](epoch)
  end,
})

define("MultiplicativeLR(optimizer, lr_lambda, last_epoch=-1)", {
  prepare = prepare_lambda,
  next_lr = function(self, lr, _, epoch, i)
    return self.initial and lr or lr * self.lr_lambdas[i](epoch)
  end,
})

-- ---- steps -----------------------------------------------------------------

define("StepLR(optimizer, step_size, gamma=0.1, last_epoch=-1)", {
  next_lr = function(self, lr, _, epoch)
    return epoch > 0 and epoch % self.step_size == 0 and lr * self.gamma or lr
  end,
  closed = function(self, base, epoch)
    return base * self.gamma ^ (epoch // self.step_size)
  end,
})

define("MultiStepLR(optimizer, milestones, gamma=0.1, last_epoch=-1)", {
  prepare = function(self)
    check.list("MultiStepLR: milestones", "epochs", self.milestones)
  end,
  next_lr = function(self, lr, _, epoch)
    for _, at in ipairs(self.milestones) do
      lr = at == epoch and lr * self.gamma or lr
    end
    return lr
  end,
  closed = function(self, base, epoch)
    for _, at in ipairs(self.milestones) do
      base = at <= epoch and base * self.gamma or base
    end
    return base
  end,
})

define("ConstantLR(optimizer, factor=0.3333333333333333, total_iters=5, last_epoch=-1)", {
  next_lr = function(self, lr, _, epoch)
    if epoch == 0 then
      return lr * self.factor
    end
    return epoch == self.total_iters and lr / self.factor or lr
  end,
  closed = function(self, base, epoch)
    return epoch < self.total_iters and base * self.factor or base
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
      elseif epoch > self.total_iters then
        return lr
      end
      local rise = self.end_factor - self.start_factor
      return lr * (1 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise))
    end,
    closed = function(self, base, epoch)
      local share = math.min(self.total_iters, epoch) / self.total_iters
      return base * (self.start_factor + (self.end_factor - self.start_factor) * share)
    end,
  })

define("ExponentialLR(optimizer, gamma, last_epoch=-1)", {
  next_lr = function(self, lr, _, epoch)
    return epoch == 0 and lr or lr * self.gamma
  end,
  closed = function(self, base, epoch)
    return base * self.gamma ^ epoch
  end,
})

define("PolynomialLR(optimizer, total_iters=5, power=1.0, last_epoch=-1)", {
  next_lr = function(self, lr, _, epoch)
    if epoch == 0 or epoch > self.total_iters then
      return lr
    end
    local left = 1 - epoch / self.total_iters
    return lr * (left / (1 - (epoch - 1) / self.total_iters)) ^ self.power
  end,
  closed = function(self, base, epoch)
    return base * (1 - math.min(self.total_iters, epoch) / self.total_iters) ^ self.power
  end,
})

-- ---- waves -----------------------------------------------------------------

define("CosineAnnealingLR(optimizer, T_max, eta_min=0.0, last_epoch=-1)", {
  next_lr = function(self, lr, base, epoch)
    local low, period = self.eta_min, self.T_max
    if epoch == 0 then
      return lr
    elseif (epoch - 1 - period) % (2 * period) == 0 then
      return lr + (base - low) * (1 - math.cos(math.pi / period)) / 2
    end
    return (1 + math.cos(math.pi * epoch / period))
      / (1 + math.cos(math.pi * (epoch - 1) / period)) * (lr - low) + low
  end,
  closed = function(self, base, epoch)
    return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2
  end,
})

local Restarts = define("CosineAnnealingWarmRestarts(optimizer, T_0, T_mult=1, eta_min=0.0, "
  .. "last_epoch=-1)", {
    prepare = function(self)
      errors.check(self.T_0 > 0 and math.type(self.T_0) == "integer", "ValueError",
        "Expected positive integer T_0, but got %s", tostring(self.T_0))
      self.T_i, self.T_cur = self.T_0, self.last_epoch
    end,
    next_lr = function(self, _, base)
      return self.eta_min
        + (base - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
    end,
  })

function Restarts:step(epoch)
  epoch = epoch or self.last_epoch < 0 and 0 or nil
  if epoch then
    self.T_cur, self.T_i = epoch, self.T_0
    while self.T_cur >= self.T_i do
      self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
    end
    self.last_epoch = math.floor(epoch)
  else
    self.last_epoch = self.last_epoch + 1
    self.T_cur = self.T_cur + 1
    if self.T_cur >= self.T_i then
      self.T_cur = self.T_cur - self.T_i
      self.T_i = self.T_i * self.T_mult
    end
  end
  self:set_lrs(self:get_lr())
end

for _, part in ipairs({ "cycles", "compound" }) do
  for name, cls in pairs(require("torch.optim.schedules." .. part)(M)) do
    M[name] = cls
  end
end
M._define = nil

return require("lupine.namespace").close(M, "torch.optim.lr_scheduler")
