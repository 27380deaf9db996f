--- The loop itself: epochs, steps, and what is due behind each of them. A step is an
--- update; of several that one call of a device makes the last one counts. All that is
--- due happens between two steps, where a checkpoint has everything.
local averages = require("lupine.trainer.averages")
local batch = require("lupine.trainer.batch")
local blame = require("lupine.trainer.blame")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local events = require("lupine.trainer.events")
local loop = require("torch.utils.data.loop")
local random = require("torch.utils.data.random")
local validation = require("lupine.trainer.validation")

local M = {}

local clock = core.host.clock

-- ---- when --------------------------------------------------------------------------

-- Whether a count of `every` lies in the steps after `before`.
local function step_due(every, before, now)
  return every and every.unit == "step" and now // every.count > before // every.count
end

local function epoch_due(every, epoch)
  return every and every.unit == "epoch" and epoch % every.count == 0
end

local function stop(self, reason, why)
  self._stopping = self._stopping or { reason = reason, why = why }
end

local function is_complete(self)
  local o = self._o
  if o.steps then
    return self.step >= o.steps
  end
  return self.epoch >= o.epochs and not self._in_epoch
end

-- Seconds that fn takes are none of training's.
local function paused(self, fn, ...)
  local started = clock()
  fn(self, ...)
  self._window.since = self._window.since + clock() - started
end

-- ---- validation, schedules, checkpoints ----------------------------------------------

local function plateau(scheduler)
  return require("torch.optim.lr_scheduler").ReduceLROnPlateau:is(scheduler)
end

local function schedule(self)
  local o = self._o
  if plateau(o.scheduler) then
    local value = self.metrics[o.scheduler_metric]
    errors.check(value ~= nil, "KeyError", "Trainer: scheduler_metric: there is no metric '%s' at "
      .. "step %d; there are %s", o.scheduler_metric, self.step,
      table.concat(require("lupine.base.tables").keys(self.metrics), ", "))
    o.scheduler:step(value)
  else
    o.scheduler:step()
  end
  if self._engine.changed then
    self._engine:changed()
  end
end

-- An update by a finite loss may have had gradients that are not: what it made is no
-- checkpoint to go on from, which the next step would tell too late.
local function is_good(self)
  self._engine:settle()
  local parameter = blame.bad_parameter(self.model)
  if parameter then
    local message = ("after step %d the parameter '%s' is not finite"):format(self.step, parameter)
    self.nan = { step = self.step, parameter = parameter, message = message }
    core.host.log("warn", message, "lupine.trainer")
    stop(self, "nan", message)
  end
  return not parameter
end

local function save(self)
  if self._o.checkpoints and is_good(self) then
    self:save()
  end
end

local function stop_early(self)
  local early = self._early
  if early and early:ended() then
    stop(self, "early_stopping", ("%s is no better than %s since %d looks"):format(early.metric,
      early.best, early.waited))
  end
end

-- What is watched has new values. Returns whether the checkpoint of now is to be kept as
-- the best.
local function look(self)
  local early, best = self._early, self._best
  if early then
    early:look(self.metrics, "Trainer: early_stopping: metric")
    stop_early(self)
  end
  return best and self.metrics[best.metric] ~= nil
    and best:look(self.metrics, "Trainer: checkpoints") or false
end

-- Callbacks hear of it when all is noted that a checkpoint of theirs has to have.
local function validate(self, watched)
  local numbers, others = validation.numbers(self, self._validation_loader)
  self._validated = self.step
  local is_best = watched and look(self)
  events.tell(self, "on_validation", numbers, others)
  return is_best
end

-- ---- a step ----------------------------------------------------------------------------

local function rate(optimizer)
  local lr = optimizer.param_groups[1].lr
  if core.is_tensor(lr) then
    return lr:item()
  end
  return type(lr) == "number" and lr or nil
end

local function log(self, row)
  local w = self._window
  local now = clock()
  local seconds = math.max(now - w.since, 1e-9)
  row.samples_per_second, row.loader_share = w.samples / seconds, math.min(w.waited / seconds, 1.0)
  self._measures:compute(row, "")
  self._window = { samples = 0, waited = 0.0, since = now }
  events.tell(self, "on_log", row)
end

-- The loss of the calls of an update.
local function row_of(self)
  local g = self._group
  self._group = { sum = 0.0, n = 0 }
  return { step = self.step, epoch = self.epoch, loss = g.n > 0 and g.sum / g.n or nil,
    lr = self._lr }
end

local function due(self, before)
  local o = self._o
  local saves = step_due(o.checkpoint_every, before, self.step)
  if o.validation and step_due(o.validate_every, before, self.step) then
    saves = validate(self, true) or saves
  end
  if saves then
    save(self)
  end
end

local STAGES = {
  function(self, rest)
    local every = self._o.log_every
    if self.step // every > rest.before // every then
      log(self, rest.row)
    end
  end,
  function(self)
    if self._o.scheduler and self._o.scheduler_every == "step" then
      schedule(self)
    end
  end,
  function(self, rest)
    local o = self._o
    if step_due(o.checkpoint_every, rest.before, self.step)
      or step_due(o.validate_every, rest.before, self.step) then
      paused(self, due, rest.before)
    end
  end,
}

-- What is still to be done behind a step. A checkpoint that a callback makes meanwhile
-- has it, and who goes on from that does it.
local function complete_step(self)
  local rest = self._rest
  while rest and STAGES[rest.stage] do
    rest.stage = rest.stage + 1
    if rest.stage > #STAGES then
      self._rest = false
    end
    STAGES[rest.stage - 1](self, rest)
  end
end

-- Behind `count` updates.
local function stepped(self, count)
  local before = self.step
  self.step = before + count
  averages.step(self)
  self._rest = { before = before, row = row_of(self), stage = 1 }
  if events.heard(self, "on_step") then
    events.tell(self, "on_step", class.copy(self._rest.row))
  end
  complete_step(self)
  local why = self._o.should_stop and self._o.should_stop()
  if why then
    stop(self, "stopped", why)
  end
end

local function note(self, r)
  local g, w = self._group, self._window
  g.sum, g.n = g.sum + r.loss, g.n + 1
  w.samples = w.samples + r.samples
  self._sum, self._n = self._sum + r.loss * r.samples, self._n + r.samples
  if #self._measures.names > 0 and (r.output ~= nil or not self._engine.pause) then
    self._measures:update(r.output, r.target)
  end
end

-- A loss that is not finite: nothing was changed but what a device has done already.
local function not_finite(self, values, r, before)
  local found = blame.find(self._engine, values, before)
  local message = ("step %d (epoch %d, batch %d): the loss is %s; %s"):format(self.step + 1,
    self.epoch, self._batch, r.loss ~= r.loss and "nan" or r.loss, found.message)
  self.nan = { step = self.step + 1, loss = r.loss, module = found.module, input = found.input,
    parameter = found.parameter, message = message }
  core.host.log("warn", message, "lupine.trainer")
  if self._o.on_nan == "stop" then
    return stop(self, "nan", message)
  end
  self.skipped = self.skipped + 1
  self._group = { sum = 0.0, n = 0 }
  return stepped(self, 1)
end

local function train(self, values)
  local engine = self._engine
  self._batch = self._batch + 1
  self._lr = rate(self.optimizer)
  local before = self._o.mode == "eager" and random.state() or nil
  local r = engine:train(values)
  if not r.finite then
    return not_finite(self, values, r, before)
  end
  note(self, r)
  if self._bar then
    self._bar:update(1, { loss = r.loss })
  end
  if r.updated > 0 then
    stepped(self, r.updated)
  end
end

-- ---- an epoch --------------------------------------------------------------------------

local function length_of(loader)
  local ok, n = pcall(function()
    return #loader
  end)
  return ok and math.type(n) == "integer" and n > 0 and n or nil
end

local function has_state(loader)
  return type(loader) == "table" and not not (loader.state_dict and loader.load_state_dict)
end

-- Batches of the running epoch that are left.
local function batches(self)
  local loader = self._engine.train_loader
  if not self._in_epoch then
    return loop.iterate(loader, "Trainer: train")
  elseif has_state(loader) then
    if not self._resumed then
      loader:load_state_dict(loader:state_dict())
    end
    return loop.iterate(loader, "Trainer: train")
  end
  local step = loop.iterate(loader, "Trainer: train")
  for _ = 1, self._batch do
    step()
  end
  return step
end

local function begin_epoch(self)
  local step = batches(self)
  self._resumed = false
  if not self._in_epoch then
    self.epoch, self._in_epoch, self._batch = self.epoch + 1, true, 0
    self._sum, self._n = 0.0, 0
    self._measures:reset()
    events.tell(self, "on_epoch_start")
  end
  return step
end

local function open_bar(self, length)
  local o = self._o
  if not o.progress then
    return nil
  end
  local label = o.epochs and ("epoch %d/%d"):format(self.epoch, o.epochs)
    or ("epoch %d"):format(self.epoch)
  local bar = require("lupine.progress")(length, { desc = label, unit = "batches" })
  bar.n, bar.drawn_n = self._batch, self._batch
  return bar
end

-- The epoch's own numbers.
local function sum_up(self)
  if self._n > 0 then
    self.metrics["train.loss"] = self._sum / self._n
    self._measures:compute(self.metrics, "train.")
  end
end

-- A checkpoint that a callback makes in it begins it anew.
local function end_epoch(self)
  local o, saves = self._o, false
  self._ending = true
  if self._engine:flush() then
    stepped(self, 1)
  end
  sum_up(self)
  if o.validation and epoch_due(o.validate_every, self.epoch) then
    saves = validate(self, true)
  elseif not o.validation then
    saves = look(self)
  end
  averages.epoch(self)
  if o.scheduler and o.scheduler_every == "epoch" then
    schedule(self)
  end
  self._in_epoch, self._ending = false, false
  events.tell(self, "on_epoch_end")
  if saves or epoch_due(o.checkpoint_every, self.epoch) then
    save(self)
  end
end

-- Trains to the end of the epoch, or of the run. A run that has made its steps with the
-- last batch of an epoch ends that, too.
local function epoch(self)
  local step, length = begin_epoch(self), length_of(self._engine.train_loader)
  local bar = open_bar(self, length)
  self._bar = bar or false
  local ended = false
  while not ended and not self._stopping and not (is_complete(self) and self._batch ~= length) do
    local asked = clock()
    local values = batch.next(step)
    self._window.waited = self._window.waited + clock() - asked
    ended = values.n == 0
    if not ended then
      train(self, values)
    end
  end
  self._bar = false
  if bar then
    bar:close()
  end
  errors.check(self._batch > 0, "ValueError", "Trainer: train: the loader gave no batch")
  if ended and not self._stopping then
    end_epoch(self)
  end
end

-- ---- a run -----------------------------------------------------------------------------

local function last_validation(self)
  if self._o.validation and self._validated ~= self.step and self.step > 0 then
    validate(self, false)
  end
end

-- The equal mean of the weights, with statistics of its own, is validated as well.
local function finish_swa(self)
  if not self.swa or self.swa.n_averaged:item() == 0 then
    return
  end
  averages.finish(self)
  if self._o.validation then
    local numbers = validation.run(self, self._validation_loader, "swa.validation.", self.swa)
    for name, value in pairs(numbers) do
      self.metrics[name] = value
    end
  end
end

local function finish(self)
  local s = self._stopping or { reason = "finished" }
  if s.reason == "finished" then
    last_validation(self)
  end
  self._engine:settle()
  if s.reason ~= "nan" and self._saved ~= self.step then
    save(self)
    s = self._stopping or s -- the weights may turn out to be no numbers
  end
  if s.reason == "finished" or s.reason == "early_stopping" then
    finish_swa(self)
  end
  return { reason = s.reason, why = s.why, step = self.step, epoch = self.epoch,
    metrics = class.copy(self.metrics), nan = s.reason == "nan" and self.nan or nil }
end

--- Trains until the end, or until something stops it.
---@param self lupine.Trainer
---@return table result
function M.run(self)
  self._stopping, self._group = false, { sum = 0.0, n = 0 }
  self._window = { samples = 0, waited = 0.0, since = clock() }
  self._engine:begin()
  events.tell(self, "on_start")
  complete_step(self)
  if self._ending then
    self._resumed = false
    end_epoch(self)
  end
  stop_early(self)
  while not self._stopping and not is_complete(self) do
    epoch(self)
  end
  local result = finish(self)
  events.tell(self, "on_stop", result)
  return result
end

M.stop = stop

return M
