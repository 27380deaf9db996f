--- CyclicLR and OneCycleLR: rates that rise and fall, with the momentum moving
--- the other way.
local errors = require("torch.errors")

local function per_group(value, n, name)
  if type(value) ~= "table" then
    local out = {}
    for i = 1, n do
      out[i] = value
    end
    return out
  end
  errors.check(#value == n, "ValueError", "expected %d values for %s, got %d", n, name, #value)
  return value
end

-- momentum, or the first beta
local function momentum_of(group, value)
  if group.betas then
    if value then
      group.betas[1] = value
    end
    return group.betas[1]
  end
  if value then
    group.momentum = value
  end
  return group.momentum
end

local function check_momentum(self)
  for _, group in ipairs(self.optimizer.param_groups) do
    errors.check(group.momentum or group.betas, "ValueError",
      "optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
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

return function(S)
  local M = {}

  S._define("CyclicLR(optimizer, base_lr, max_lr, step_size_up=2000, step_size_down=None, "
    .. "mode='triangular', gamma=1.0, scale_fn=None, scale_mode='cycle', cycle_momentum=True, "
    .. "base_momentum=0.8, max_momentum=0.9, last_epoch=-1)", {
      start = function(self)
        local groups = self.optimizer.param_groups
        for i, lr in ipairs(per_group(self.base_lr, #groups, "base_lr")) do
          groups[i].lr = lr
        end
      end,
      prepare = function(self)
        local groups = self.optimizer.param_groups
        errors.check(self.scale_fn or SCALES[self.mode], "ValueError",
          "CyclicLR: mode is invalid and scale_fn is nil: %s", tostring(self.mode))
        local base = per_group(self.base_lr, #groups, "base_lr")
        self.max_lrs = per_group(self.max_lr, #groups, "max_lr")
        for i in ipairs(groups) do
          self.base_lrs[i] = base[i]
        end
        self.total_size = self.step_size_up + (self.step_size_down or self.step_size_up)
        self.step_ratio = self.step_size_up / self.total_size
        if not self.scale_fn and self.mode == "exp_range" then
          self.scale_mode = "iterations"
        end
        if self.cycle_momentum then
          check_momentum(self)
          self.base_momenta = per_group(self.base_momentum, #groups, "base_momentum")
          self.max_momenta = per_group(self.max_momentum, #groups, "max_momentum")
        end
      end,
      next_lr = function(self, _, base, epoch, i)
        local cycle = math.floor(1 + epoch / self.total_size)
        local x = 1 + epoch / self.total_size - cycle
        local height = x <= self.step_ratio and x / self.step_ratio
          or (x - 1) / (self.step_ratio - 1)
        local scale = self.scale_fn or SCALES[self.mode]
        scale = scale(self.scale_mode == "cycle" and cycle or epoch, self.gamma)
        if self.cycle_momentum then
          local top = self.max_momenta[i]
          momentum_of(self.optimizer.param_groups[i],
            top - (top - self.base_momenta[i]) * height * scale)
        end
        return base + (self.max_lrs[i] - base) * height * scale
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

  -- Where the phases end and between which values each goes.
  local function phases(self)
    local up = self.pct_start * self.total_steps - 1
    if self.three_phase then
      return {
        { 0, up, "initial", "max", "max_m", "base_m" },
        { up, 2 * up, "max", "initial", "base_m", "max_m" },
        { 2 * up, self.total_steps - 1, "initial", "min", "max_m", "max_m" },
      }
    end
    return {
      { 0, up, "initial", "max", "max_m", "base_m" },
      { up, self.total_steps - 1, "max", "min", "base_m", "max_m" },
    }
  end

  S._define("OneCycleLR(optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, "
    .. "pct_start=0.3, anneal_strategy='cos', cycle_momentum=True, base_momentum=0.85, "
    .. "max_momentum=0.95, div_factor=25.0, final_div_factor=1e4, three_phase=False, "
    .. "last_epoch=-1)", {
      prepare = function(self)
        errors.check(self.total_steps or self.epochs and self.steps_per_epoch, "ValueError",
          "You must define either total_steps OR (epochs AND steps_per_epoch)")
        self.total_steps = self.total_steps or self.epochs * self.steps_per_epoch
        errors.check(ANNEAL[self.anneal_strategy], "ValueError",
          "anneal_strategy must be one of 'cos' or 'linear', instead got %s",
          tostring(self.anneal_strategy))
        local groups = self.optimizer.param_groups
        local max = per_group(self.max_lr, #groups, "max_lr")
        if self.cycle_momentum then
          check_momentum(self)
        end
        local low = per_group(self.base_momentum, #groups, "base_momentum")
        local high = per_group(self.max_momentum, #groups, "max_momentum")
        self._values = {}
        for i, group in ipairs(groups) do
          local initial = max[i] / self.div_factor
          self._values[i] = { initial = initial, max = max[i],
            min = initial / self.final_div_factor, base_m = low[i], max_m = high[i] }
          group.initial_lr = initial
          self.base_lrs[i] = initial
        end
      end,
      next_lr = function(self, _, _, epoch, i)
        errors.check(epoch < self.total_steps + 1, "ValueError",
          "Tried to step %d times. The specified number of total steps is %d", epoch,
          self.total_steps)
        local v, anneal = self._values[i], ANNEAL[self.anneal_strategy]
        local list = phases(self)
        for k, phase in ipairs(list) do
          if epoch <= phase[2] or k == #list then
            local share = (epoch - phase[1]) / (phase[2] - phase[1])
            if self.cycle_momentum then
              momentum_of(self.optimizer.param_groups[i],
                anneal(v[phase[5]], v[phase[6]], share))
            end
            return anneal(v[phase[3]], v[phase[4]], share)
          end
        end
      end,
    })

  return M
end
