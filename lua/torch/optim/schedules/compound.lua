--- Schedulers that follow a metric, or that are made of others.
local base = require("torch.optim.schedules.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local Optimizer = require("torch.optim.optimizer")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")

local M = {}
local LRScheduler = base.LRScheduler

-- ---- ReduceLROnPlateau -------------------------------------------------------

---@class torch.optim.ReduceLROnPlateau: torch.optim.LRScheduler
---@field min_lrs number[] least rates of the groups
local Plateau = LRScheduler:extend("ReduceLROnPlateau")
M.ReduceLROnPlateau = Plateau

local PLATEAU = "ReduceLROnPlateau(optimizer, mode='min', factor=0.1, patience=10, "
  .. "threshold=1e-4, threshold_mode='rel', cooldown=0, min_lr=0, eps=1e-8)"
local plateau = signature(PLATEAU)
signatures.note(Plateau, PLATEAU, 1)

function Plateau:init(...)
  local a = plateau(...)
  base.check_numbers(plateau, a)
  for name, value in pairs(a) do
    self[name] = value
  end
  errors.check(self.factor < 1, "ValueError", "Factor should be < 1.0.")
  errors.check(type(self.optimizer) == "table" and self.optimizer.param_groups, "TypeError",
    "ReduceLROnPlateau: the first argument must be an Optimizer, got %s",
    check.describe(self.optimizer))
  errors.check(self.mode == "min" or self.mode == "max", "ValueError", "mode %s is unknown!",
    tostring(self.mode))
  errors.check(self.threshold_mode == "rel" or self.threshold_mode == "abs", "ValueError",
    "threshold mode %s is unknown!", tostring(self.threshold_mode))
  local least, groups = self.min_lr, self.optimizer.param_groups
  errors.check(type(least) == "number" or type(least) == "table", "TypeError",
    "ReduceLROnPlateau: min_lr must be a number or one for each group, got %s",
    least == nil and "None" or check.describe(least))
  self.default_min_lr, self.min_lr = type(least) == "number" and least or nil, nil
  errors.check(self.default_min_lr or #least == #groups, "ValueError",
    "expected %d min_lrs, got %d", #groups, self.default_min_lr and 1 or #least)
  for i, v in ipairs(type(least) == "table" and least or {}) do
    check.number(Optimizer.number(v), ("ReduceLROnPlateau: min_lr, element %d"):format(i))
  end
  self.min_lrs = base.per_group(least, self.optimizer, "min_lr")
  self._last_lr = base.values(self.optimizer, "lr")
  self.last_epoch = 0
  self.best = self.mode == "min" and math.huge or -math.huge
  self.cooldown_counter, self.num_bad_epochs = 0, 0
end

function Plateau:is_better(a, best)
  local sign = self.mode == "min" and 1 or -1
  if self.threshold_mode == "rel" then
    best = best * (1 - sign * self.threshold)
  else
    best = best - sign * self.threshold
  end
  return sign * a < sign * best
end

local function reduce(self)
  local groups = self.optimizer.param_groups
  if #groups ~= #self.min_lrs then
    errors.check(self.default_min_lr, "RuntimeError", "ReduceLROnPlateau: the optimizer has %d "
      .. "groups, min_lrs %d: a group was added; extend min_lrs", #groups, #self.min_lrs)
    self.min_lrs = base.per_group(self.default_min_lr, self.optimizer, "min_lr")
  end
  for i, group in ipairs(groups) do
    local before = Optimizer.number(group.lr)
    local lr = math.max(before * self.factor, Optimizer.number(self.min_lrs[i]))
    if before - lr > self.eps then
      base.set(group, "lr", lr)
    end
  end
end

--- After a validation: metrics is what should improve (number or tensor).
function Plateau:step(metrics, epoch)
  local now = core.is_tensor(metrics) and metrics:item() or metrics
  errors.check(type(now) == "number", "TypeError", "step(metrics): expected a number or a "
    .. "tensor of one element, got %s", type(metrics))
  self.last_epoch = check.number(epoch, "ReduceLROnPlateau: step: epoch", { nullable = true })
    or self.last_epoch + 1
  if self:is_better(now, self.best) then
    self.best, self.num_bad_epochs = now, 0
  else
    self.num_bad_epochs = self.num_bad_epochs + 1
  end
  if self.cooldown_counter > 0 then
    self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
  end
  if self.num_bad_epochs > self.patience then
    reduce(self)
    self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
  end
  self._last_lr = base.values(self.optimizer, "lr")
end

-- ---- several -----------------------------------------------------------------

-- They are schedulers of one optimizer that step without a metric.
local function check_parts(name, schedulers, optimizer)
  errors.check(#schedulers > 0, "ValueError",
    "%s expects at least one scheduler, but got no scheduler.", name)
  for i, s in ipairs(schedulers) do
    errors.check(type(s) == "table" and s.optimizer, "TypeError",
      "%s at index %d should have `optimizer` as its attribute.", name, i - 1)
    errors.check(not Plateau:is(s), "ValueError", "%s does not support ReduceLROnPlateau, whose "
      .. "step needs a metric, but got one at index %d", name, i - 1)
    errors.check(s.optimizer == optimizer, "ValueError", "%s expects all schedulers to belong "
      .. "to the same optimizer, but that at index %d differs", name, i - 1)
  end
end

--- SequentialLR(optimizer, schedulers, milestones): number i rules until
--- step milestones[i], then the next one starts from the initial rates.
---@class torch.optim.SequentialLR: torch.optim.LRScheduler
local Sequential = LRScheduler:extend("SequentialLR")
M.SequentialLR = Sequential
local SEQUENTIAL = "SequentialLR(optimizer, schedulers, milestones, last_epoch=-1)"
local sequential = signature(SEQUENTIAL)
signatures.note(Sequential, SEQUENTIAL, 1)

-- Takes back the step that each scheduler made when it was constructed.
local function undo(self)
  for _, s in ipairs(self._schedulers) do
    if s._schedulers then
      undo(s)
    else
      s.last_epoch = s.last_epoch - 1
    end
  end
end

-- The position of the scheduler that rules at a step.
local function ruling(self, step)
  local at = 1
  for _, milestone in ipairs(self._milestones) do
    at = at + (step >= milestone and 1 or 0)
  end
  return at
end

function Sequential:init(...)
  local a = sequential(...)
  check.list("SequentialLR: schedulers", "schedulers", a.schedulers)
  base.check_steps("SequentialLR: milestones", "steps", a.milestones)
  check_parts("SequentialLR", a.schedulers, a.optimizer)
  errors.check(#a.schedulers == #a.milestones + 1, "ValueError", "Sequential Schedulers expects "
    .. "number of schedulers provided to be one more than the number of milestone points, but "
    .. "got number of schedulers %d and the number of milestones to be equal to %d",
    #a.schedulers, #a.milestones)
  self.optimizer, self._schedulers, self._milestones = a.optimizer, a.schedulers, a.milestones
  self.last_epoch = a.last_epoch + 1
  for _, group in ipairs(self.optimizer.param_groups) do
    base.set(group, "lr", group.initial_lr)
  end
  undo(self)
  local first = self._schedulers[ruling(self, 0)]
  first:_initial_step()
  self._last_lr = first:get_last_lr()
end

function Sequential:step()
  self.last_epoch = self.last_epoch + 1
  local at = ruling(self, self.last_epoch)
  local s = self._schedulers[at]
  if at > 1 and self._milestones[at - 1] == self.last_epoch then
    s:_update_lr(0)
  else
    s:step()
  end
  self._last_lr = s:get_last_lr()
end

--- ChainedScheduler(schedulers): all step at once, each on the rates that the
--- one before left.
---@class torch.optim.ChainedScheduler: torch.optim.LRScheduler
local Chained = LRScheduler:extend("ChainedScheduler")
M.ChainedScheduler = Chained
signatures.note(Chained, "ChainedScheduler(schedulers, optimizer=None)", 1)

function Chained:init(schedulers, optimizer, ...)
  local second = type(optimizer) == "table" and optimizer._last_lr and optimizer or nil
  check.list("ChainedScheduler", "schedulers", schedulers, second, ...)
  if type(optimizer) == "table" and optimizer.optimizer then
    optimizer = optimizer.optimizer
  end
  optimizer = optimizer or schedulers[1] and schedulers[1].optimizer
  check_parts("ChainedScheduler", schedulers, optimizer)
  self.optimizer, self._schedulers = optimizer, schedulers
  self._last_lr = base.values(optimizer, "lr")
end

function Chained:step()
  for _, s in ipairs(self._schedulers) do
    s:step()
  end
  self._last_lr = base.values(self.optimizer, "lr")
end

return M
