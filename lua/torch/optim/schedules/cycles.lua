--- CyclicLR and OneCycleLR: rates that rise and fall, with the momentum moving
--- the other way. What a group goes between stands in the group, so that it is
--- saved with the optimizer.
local base = require("torch.optim.schedules.base")
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local M = {}

-- momentum, or the first beta
local function set_momentum(group, value)
  if group.betas then
    group.betas = { value, table.unpack(group.betas, 2) }
  else
    group.momentum = value
  end
end

-- The limits of the momentum of each group; a new schedule writes them down.
local function prepare_momentum(self, first)
  local optimizer = self.optimizer
  errors.check(optimizer.defaults.momentum or optimizer.defaults.betas, "ValueError",
    "optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
  self.base_momentums = base.per_group(self.base_momentum, optimizer, "base_momentum")
  self.max_momentums = base.per_group(self.max_momentum, optimizer, "max_momentum")
  for i, group in ipairs(first and optimizer.param_groups or {}) do
    set_momentum(group, self.max_momentums[i])
    rawset(group, "max_momentum", self.max_momentums[i])
    rawset(group, "base_momentum", self.base_momentums[i])
  end
end

local SCALES = {
  triangular = function()
    return 1
  end,
  triangular2 = function(x)
    return 1 / 2 ^ (x - 1)
  end,
  exp_range = function(x, gamma)
    return gamma ^ x
  end,
}

-- How far between the lower and the upper limit the epoch is.
local function height(self, epoch)
  local cycle = math.floor(1 + epoch / self.total_size)
  local x = 1 + epoch / self.total_size - cycle
  local rise = x <= self.step_ratio and x / self.step_ratio or (x - 1) / (self.step_ratio - 1)
  local at = self.scale_mode == "cycle" and cycle or epoch
  return rise * (self.scale_fn and self.scale_fn(at) or not self.scale_fn
    and SCALES[self.mode](at, self.gamma))
end

M.CyclicLR = base.define("CyclicLR(optimizer, base_lr, max_lr, step_size_up=2000, "
  .. "step_size_down=None, mode='triangular', gamma=1.0, scale_fn=None, scale_mode='cycle', "
  .. "cycle_momentum=True, base_momentum=0.8, max_momentum=0.9, last_epoch=-1)", {
    prepare = function(self, first)
      self._base_lrs = base.per_group(self.base_lr, self.optimizer, "base_lr")
      for i, group in ipairs(first and self.optimizer.param_groups or {}) do
        base.set(group, "lr", self._base_lrs[i])
      end
      self.max_lrs = base.per_group(self.max_lr, self.optimizer, "max_lr")
      local down, scale = self.step_size_down, self.scale_fn
      errors.check(down == nil or type(down) == "number", "TypeError",
        "CyclicLR: step_size_down must be a number, got %s", check.describe(down))
      local mt = getmetatable(scale)
      errors.check(scale == nil or type(scale) == "function" or type(mt) == "table" and mt.__call,
        "TypeError", "CyclicLR: scale_fn must be a function, got %s", check.describe(scale))
      errors.check(self.step_size_up ~= 0, "ZeroDivisionError",
        "CyclicLR: step_size_up must not be 0")
      self.total_size = self.step_size_up + (down or self.step_size_up)
      self.step_ratio = self.step_size_up / self.total_size
      errors.check(self.scale_fn or SCALES[self.mode], "ValueError",
        "CyclicLR: mode is invalid and scale_fn is None: %s", tostring(self.mode))
      if not self.scale_fn then
        self.scale_mode = self.mode == "exp_range" and "iterations" or "cycle"
      end
      if self.cycle_momentum then
        prepare_momentum(self, first)
      end
    end,
    complete = function(self)
      self.base_lrs, self._base_lrs = self._base_lrs, nil
    end,
    next_lr = function(self, _, low, epoch, i)
      local share = height(self, epoch)
      if self.cycle_momentum then
        local top = self.max_momentums[i]
        set_momentum(self.optimizer.param_groups[i],
          top - (top - self.base_momentums[i]) * share)
      end
      return low + (self.max_lrs[i] - low) * share
    end,
  })

local ANNEAL = {
  cos = function(from, to, share)
    return to + (from - to) / 2 * (1 + math.cos(math.pi * share))
  end,
  linear = function(from, to, share)
    return (to - from) * share + from
  end,
}

-- Where the phases end and between which of the group's values each goes.
local function phases(self)
  local up = self.pct_start * self.total_steps - 1
  if self.three_phase then
    return {
      { up, "initial_lr", "max_lr", "max_momentum", "base_momentum" },
      { 2 * self.pct_start * self.total_steps - 2, "max_lr", "initial_lr", "base_momentum",
        "max_momentum" },
      { self.total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum" },
    }
  end
  return {
    { up, "initial_lr", "max_lr", "max_momentum", "base_momentum" },
    { self.total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum" },
  }
end

local function positive(value, name)
  errors.check(math.type(value) == "integer" and value > 0, "ValueError",
    "Expected positive integer %s, but got %s", name, tostring(value))
  return value
end

local function total_steps(self)
  if self.total_steps then
    return positive(self.total_steps, "total_steps")
  end
  errors.check(self.epochs and self.steps_per_epoch, "ValueError",
    "You must define either total_steps OR (epochs AND steps_per_epoch)")
  return positive(self.epochs, "epochs") * positive(self.steps_per_epoch, "steps_per_epoch")
end

M.OneCycleLR = base.define("OneCycleLR(optimizer, max_lr, total_steps=None, epochs=None, "
  .. "steps_per_epoch=None, pct_start=0.3, anneal_strategy='cos', cycle_momentum=True, "
  .. "base_momentum=0.85, max_momentum=0.95, div_factor=25.0, final_div_factor=1e4, "
  .. "three_phase=False, last_epoch=-1)", {
    prepare = function(self, first)
      self.total_steps = total_steps(self)
      errors.check(math.type(self.pct_start) == "float" and self.pct_start >= 0
        and self.pct_start <= 1, "ValueError",
        "Expected float between 0 and 1 pct_start, but got %s", tostring(self.pct_start))
      errors.check(ANNEAL[self.anneal_strategy], "ValueError",
        "anneal_strategy must be one of 'cos' or 'linear', instead got %s",
        tostring(self.anneal_strategy))
      local max = base.per_group(self.max_lr, self.optimizer, "max_lr")
      for i, group in ipairs(first and self.optimizer.param_groups or {}) do
        group.initial_lr = max[i] / self.div_factor
        rawset(group, "max_lr", max[i])
        rawset(group, "min_lr", group.initial_lr / self.final_div_factor)
      end
      if self.cycle_momentum then
        prepare_momentum(self, first)
      end
    end,
    next_lr = function(self, _, _, epoch, i)
      errors.check(epoch <= self.total_steps, "ValueError",
        "Tried to step %s times. The specified number of total steps is %d", tostring(epoch),
        self.total_steps)
      local group, anneal = self.optimizer.param_groups[i], ANNEAL[self.anneal_strategy]
      local list, from = phases(self), 0
      for k, phase in ipairs(list) do
        local to = phase[1]
        if epoch <= to or k == #list then
          errors.check(to ~= from, "ZeroDivisionError", "OneCycleLR: the phase that step %s is in "
            .. "has no length: pct_start = %s of %d steps", tostring(epoch),
            tostring(self.pct_start), self.total_steps)
          local share = (epoch - from) / (to - from)
          if self.cycle_momentum then
            set_momentum(group, anneal(group[phase[4]], group[phase[5]], share))
          end
          return anneal(group[phase[2]], group[phase[3]], share)
        end
        from = to
      end
    end,
  })

return M
