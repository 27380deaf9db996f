--- torch.optim.swa_utils: averages of a model's weights over its training.
--- source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better
--- Generalization", 2018; PyTorch documentation, torch.optim.swa_utils
local base = require("torch.optim.schedules.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local scheduler = require("torch.optim.lr_scheduler")
local signature = require("torch.nn.signature")

local M = {}

local function share(decay)
  decay = decay or 0.999
  errors.check(type(decay) == "number" and decay >= 0 and decay <= 1, "ValueError",
    "Invalid decay value %s provided. Please provide a value in [0,1] range.", tostring(decay))
  return 1 - decay
end

-- average moves by the share w towards now, in place; whole numbers are cut.
local function towards(average, now, w)
  if average:is_floating_point() then
    average:lerp_(now, w)
  else
    average:copy_(average + (now - average) * w)
  end
end

--- fn(averages, values, number): moves averages by 1 - decay towards the values.
---@param decay? number 0.999 unless given
---@return fun(averages: torch.Tensor[], values: torch.Tensor[], number)
function M.get_ema_multi_avg_fn(decay)
  local w = share(decay)
  return function(averages, values)
    for i, average in ipairs(averages) do
      towards(average, values[i], w)
    end
  end
end

--- fn(averages, values, number): equal shares of all values so far.
---@return fun(averages: torch.Tensor[], values: torch.Tensor[], number)
function M.get_swa_multi_avg_fn()
  return function(averages, values, number)
    local w = 1 / ((core.is_tensor(number) and number:item() or number) + 1)
    for i, average in ipairs(averages) do
      towards(average, values[i], w)
    end
  end
end

--- fn(average, value, number): the new average.
---@param decay? number 0.999 unless given
---@return fun(average: torch.Tensor, value: torch.Tensor, number): torch.Tensor
function M.get_ema_avg_fn(decay)
  local w = share(decay)
  return function(average, value)
    return average * (1 - w) + value * w
  end
end

--- fn(average, value, number): equal shares of all values so far.
---@return fun(average: torch.Tensor, value: torch.Tensor, number): torch.Tensor
function M.get_swa_avg_fn()
  return function(average, value, number)
    return average + (value - average) / (number + 1)
  end
end

---@class torch.optim.swa_utils.AveragedModel: torch.nn.Module
---@field module torch.nn.Module the copy that holds the averages
---@field n_averaged torch.Tensor how many models they are of
local AveragedModel = require("torch.nn.module"):extend("AveragedModel")
M.AveragedModel = AveragedModel

local parsed = signature("AveragedModel(model, device=None, avg_fn=None, multi_avg_fn=None, "
  .. "use_buffers=False)")

function AveragedModel:init(...)
  local a = parsed(...)
  errors.check(not (a.avg_fn and a.multi_avg_fn), "AssertionError",
    "AveragedModel: Only one of avg_fn and multi_avg_fn should be provided")
  self.module = a.model:deepcopy()
  if a.device then
    self.module:to(a.device)
  end
  self:register_buffer("n_averaged", core.tensor(0, { dtype = core.dtypes.int64 }))
  self.avg_fn, self.multi_avg_fn, self.use_buffers = a.avg_fn, a.multi_avg_fn, a.use_buffers
end

function AveragedModel:forward(...)
  return self.module(...)
end

-- Detached parameters and, on demand, buffers.
local function values_of(module, buffers)
  local out = {}
  for _, list in ipairs({ module:parameters(), buffers and module:buffers() or {} }) do
    for _, t in ipairs(list) do
      out[#out + 1] = t:detach()
    end
  end
  return out
end

local function copy_all(to, from)
  for i, t in ipairs(to) do
    t:copy_(from[i])
  end
end

--- Takes the model's present values into the averages; the first are copied.
---@param model torch.nn.Module
function AveragedModel:update_parameters(model)
  require("torch").no_grad(function()
    local averages = values_of(self.module, self.use_buffers)
    local now = values_of(model, self.use_buffers)
    if self.n_averaged:item() == 0 then
      copy_all(averages, now)
    elseif self.avg_fn then
      for i, average in ipairs(averages) do
        average:copy_(self.avg_fn(average, now[i], self.n_averaged))
      end
    else
      local fn = self.multi_avg_fn or M.get_swa_multi_avg_fn()
      fn(averages, now, self.n_averaged)
    end
    if not self.use_buffers then
      copy_all(self.module:buffers(), model:buffers())
    end
    self.n_averaged:add_(1)
  end)
end

--- Computes the statistics of the model's BatchNorm layers afresh, as means
--- over all batches of the loader (the first part of each).
---@param loader any what torch.utils.data loops over
---@param model torch.nn.Module
function M.update_bn(loader, model)
  local layers = {}
  for _, module in ipairs(model:modules()) do
    if module.reset_running_stats and module.num_batches_tracked then
      module:reset_running_stats()
      layers[#layers + 1] = { module, module.momentum }
    end
  end
  if #layers == 0 then
    return
  end
  local was_training = model.training
  model:train()
  for _, layer in ipairs(layers) do
    layer[1].momentum = nil
  end
  require("torch").no_grad(function()
    for batch in require("torch.utils.data.loop").iterate(loader, "update_bn") do
      model(type(batch) == "table" and batch[1] or batch)
    end
  end)
  for _, layer in ipairs(layers) do
    layer[1].momentum = layer[2]
  end
  model:train(was_training)
end

-- How far the rates are moved at the share t of the epochs.
local STRATEGIES = {
  cos = function(t)
    return (1 - math.cos(math.pi * t)) / 2
  end,
  linear = function(t)
    return t
  end,
}

---@class torch.optim.swa_utils.SWALR: torch.optim.LRScheduler
local SWALR = scheduler.LRScheduler:extend("SWALR")
M.SWALR = SWALR

local rates = signature("SWALR(optimizer, swa_lr, anneal_epochs=10, anneal_strategy='cos', "
  .. "last_epoch=-1)")

function SWALR:init(...)
  local a = rates(...)
  errors.check(STRATEGIES[a.anneal_strategy], "ValueError",
    "anneal_strategy must by one of 'cos' or 'linear', instead got %s", tostring(a.anneal_strategy))
  check.int(a.anneal_epochs, "SWALR: anneal_epochs", { min = 0 })
  local rates_of = base.per_group(a.swa_lr, a.optimizer, "swa_lr")
  for i, group in ipairs(a.optimizer.param_groups) do
    rawset(group, "swa_lr", rates_of[i])
  end
  self.anneal_epochs, self.strategy = a.anneal_epochs, STRATEGIES[a.anneal_strategy]
  scheduler.LRScheduler.init(self, a.optimizer, a.last_epoch)
end

-- The steps of this scheduler count, not the epoch.
function SWALR:get_lr()
  local n, out = self.anneal_epochs, {}
  local step = n == 0 and math.max(1, self._step_count - 1) or self._step_count - 1
  local function moved(k)
    return self.strategy(math.max(0, math.min(1, k / math.max(1, n))))
  end
  local before, now = moved(step - 1), moved(step)
  for i, group in ipairs(self.optimizer.param_groups) do
    local goal = group.swa_lr
    local start = before == 1 and goal or (group.lr - before * goal) / (1 - before)
    out[i] = goal * now + start * (1 - now)
  end
  return out
end

return require("lupine.base.namespace").close(M, "torch.optim.swa_utils")
