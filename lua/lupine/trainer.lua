--- A training loop: epochs, validation, metrics, schedules, averages of weights,
--- checkpoints and callbacks around a model, in eager or compiled steps or on the
--- simulated system.
---
---     local trainer = lupine.Trainer({ model = model, optimizer = optimizer,
---       loss = nn.CrossEntropyLoss(), train = loader, validation = others, epochs = 3,
---       metrics = { "accuracy" } })
---     local result = trainer:fit()
---     print(result.reason, result.metrics["validation.accuracy"])
---
--- A step is an update of the weights. A run that is stopped anywhere and resumed from
--- a checkpoint has the bits of one that was not.
local averages = require("lupine.trainer.averages")
local check = require("lupine.base.check")
local checkpoint = require("lupine.checkpoint")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local events = require("lupine.trainer.events")
local loop = require("lupine.trainer.loop")
local Measures = require("lupine.trainer.measures")
local options = require("lupine.trainer.options")
local tables = require("lupine.base.tables")
local validation = require("lupine.trainer.validation")
local Watch = require("lupine.trainer.stopping")

---@class lupine.Trainer
---@field model torch.nn.Module
---@field optimizer torch.optim.Optimizer
---@field step integer updates that were made
---@field epoch integer the running epoch, from 1; 0 before the first one
---@field metrics table<string, number> of the latest validation ("validation.loss") and the
---  latest whole epoch ("train.loss")
---@field tables table<string, any> results of metrics that are no numbers
---  ("validation.confusion")
---@field skipped integer updates that were left out as their loss was not finite
---@field nan table? {step, loss, module, input, parameter, message} of the latest one
---@field ema torch.optim.swa_utils.AveragedModel?
---@field swa torch.optim.swa_utils.AveragedModel?
---@field executor poptorch.PoplarExecutor? that trains, of mode "poptorch"
local Trainer = class.new("Trainer")

-- A misspelt metric shall not wait for the end of an epoch.
local function check_watched(self)
  local o, names = self._o, {}
  for _, part in ipairs({ "train.", o.validation and "validation." or nil }) do
    for _, name in ipairs({ "loss", table.unpack(self._measures.names) }) do
      names[#names + 1] = part .. name
    end
  end
  local best = o.checkpoints and o.checkpoints.best_rule
  local Plateau = require("torch.optim.lr_scheduler").ReduceLROnPlateau
  for option, metric in pairs({ early_stopping = o.early_stopping and o.early_stopping.metric,
    scheduler_metric = Plateau:is(o.scheduler) and o.scheduler_metric or nil,
    checkpoints = best and best.metric }) do
    errors.check(tables.set(names)[metric], "ValueError", "Trainer: %s: there is no metric '%s'%s; "
      .. "there are %s", option, metric, check.nearest(metric, names),
      table.concat(names, ", "))
  end
end

local ENGINES = { eager = "eager", compiled = "compiled", poptorch = "device" }

--- Options by name:
---   model, optimizer, loss     of lupine.compile; without `loss` forward returns it
---   train, validation          loaders (a data set in a DataLoader), or what a generic for
---                              goes through
---   mode                       "compiled", "eager" or "poptorch"
---   options                    poptorch.Options, for that mode
---   precision                  of weights and inputs: "float32", "float64", "float16",
---                              "bfloat16"; "autocast_float16", "autocast_bfloat16" (there
---                              is no scale of the loss)
---   epochs or steps            the end (1 epoch); a call of a device makes several steps
---   accumulation, clip_grad_norm, clip_grad_value
---   scheduler, scheduler_every ("epoch", "step"), scheduler_metric
---   validate_every             "1 epoch", "500 steps" or {count = 500, unit = "step"}
---   metrics                    names (lupine.metrics.named), functions of output and target
---                              or metrics by name
---   early_stopping             {metric, mode, patience, min_delta}
---   ema_decay, swa_start       averages of weights
---   on_nan                     "stop" or "skip", for a loss that is not finite
---   callbacks                  objects with methods of events (trainer/events.lua)
---   checkpoints                a lupine.checkpoint.Manager; checkpoint_every "1 epoch"
---   log_every                  steps between two on_log (50)
---   progress                   a bar or lines on standard error (true)
---   should_stop                a function that is asked after each step; the reason, if
---                              it returns one, ends the run
--- errors: TypeError, ValueError
---@param given table
function Trainer:init(given)
  local o = options.read(given)
  self._o, self.model, self.optimizer = o, o.model, o.optimizer
  self.step, self.epoch, self.skipped, self.metrics, self.tables = 0, 0, 0, {}, {}
  self._in_epoch, self._batch, self._sum, self._n = false, 0, 0.0, 0
  self._stopping, self._rest, self._ending, self._bar = false, false, false, false
  self._callbacks = events.read(o.callbacks)
  self._measures, self._validation_measures = Measures(o.metrics), Measures(o.metrics)
  o.observed = #self._measures.names > 0
  check_watched(self)
  self._early = o.early_stopping and Watch(o.early_stopping) or nil
  local best = o.checkpoints and o.checkpoints.best_rule
  self._best = best and Watch(best) or nil
  self._engine = require("lupine.trainer." .. ENGINES[o.mode])(o)
  self.executor = self._engine.trainer
  if o.validation then
    self._validation_loader = self._engine:validation_loader(o.validation)
  end
  averages.make(self)
end

-- ---- running -------------------------------------------------------------------------

--- Trains until the end. Called again, it goes on where the last one was stopped.
--- error: what model, loss, loaders and callbacks raise, which on_error is told
---@return {reason: string, why: string?, step: integer, epoch: integer, metrics: table} result
---  reason: "finished", "early_stopping", "stopped" or "nan"
function Trainer:fit()
  check.method(self, Trainer, "fit")
  errors.check(self._o.train ~= nil, "ValueError", "Trainer: train: there is no loader")
  local ok, result = pcall(loop.run, self)
  if not ok then
    local bar = self._bar
    self._bar = false
    if bar then
      bar:close()
    end
    pcall(events.tell, self, "on_error", result)
    error(result, 0)
  end
  return result
end

--- Ends fit() after the running step.
---@param reason? string
function Trainer:stop(reason)
  check.method(self, Trainer, "stop")
  loop.stop(self, "stopped", check.string(reason or "asked to", "stop: reason"))
end

--- Goes through the validation loader (or another one), with the moving mean of the
--- weights if there is one. Its numbers become those of `metrics`.
--- error: ValueError without a loader
---@param loader? any
---@param most? integer of its batches, all unless given
---@return table<string, number> "validation.loss", "validation.accuracy", …
function Trainer:validate(loader, most)
  check.method(self, Trainer, "validate")
  most = check.int(most, "validate: most", { nullable = true, min = 1 })
  if loader ~= nil then
    loader = self._engine:validation_loader(loader)
  end
  loader = loader or self._validation_loader
  errors.check(loader ~= nil, "ValueError", "Trainer: validate: there is no validation loader")
  local numbers, others = validation.numbers(self, loader, most)
  events.tell(self, "on_validation", numbers, others)
  return numbers
end

--- What the model returns for all of a loader, joined along dimension 0. Targets behind
--- the model's arguments are left out.
---@param loader any
---@return any
function Trainer:predict(loader)
  check.method(self, Trainer, "predict")
  return validation.predict(self, self._engine:validation_loader(loader))
end

--- Gives devices back (mode "poptorch"); the trained weights are in `model`.
function Trainer:close()
  check.method(self, Trainer, "close")
  self._engine:close()
end

-- ---- checkpoints ---------------------------------------------------------------------

-- Where the run stands.
local State = class.new("TrainerState")

function State:init(trainer)
  self.trainer = trainer
end

function State:state_dict()
  local t = self.trainer
  return { step = t.step, epoch = t.epoch, in_epoch = t._in_epoch, batch = t._batch,
    ending = t._ending, rest = class.copy(t._rest), sum = t._sum, n = t._n,
    skipped = t.skipped, metrics = class.copy(t.metrics), validated = t._validated,
    measures = t._measures:state_dict(), early = t._early and t._early:state(),
    best = t._best and t._best:state() }
end

function State:load_state_dict(s)
  local t = self.trainer
  check.table(s, "load_state_dict: trainer")
  t.step = check.int(s.step, "load_state_dict: trainer: step", { min = 0 })
  t.epoch = check.int(s.epoch, "load_state_dict: trainer: epoch", { min = 0 })
  t._in_epoch, t._batch, t._sum, t._n = s.in_epoch, s.batch, s.sum, s.n
  t.skipped, t.metrics, t._validated = s.skipped, class.copy(s.metrics), s.validated
  t._ending, t._rest = s.ending, class.copy(s.rest)
  t._measures:load_state_dict(s.measures)
  for name, watch in pairs({ early = t._early, best = t._best }) do
    watch:load(s[name])
  end
  t._saved, t._resumed = t.step, true
end

local function is_stateful(x)
  return type(x) == "table" and x.state_dict ~= nil and x.load_state_dict ~= nil
end

--- All that a checkpoint has of the run, for lupine.checkpoint.save and restore.
---@return table<string, any> objects by name
function Trainer:objects()
  check.method(self, Trainer, "objects")
  self._engine:settle()
  local o, out = self._o, self._engine:objects()
  out.model, out.optimizer, out.scheduler = self.model, self.optimizer, o.scheduler
  out.random, out.trainer, out.ema, out.swa = checkpoint.random, State(self), self.ema, self.swa
  if is_stateful(self._engine.train_loader) then
    out.loader = self._engine.train_loader
  end
  local others = self._validation_loader
  if is_stateful(others) and others.generator then -- whose numbers are its own
    out.validation = others
  end
  if is_stateful(o.loss) and (#o.loss:parameters() > 0 or #o.loss:buffers() > 0) then
    out.loss = o.loss
  end
  for name, module in pairs({ model = self.model, ema = self.ema, swa = self.swa,
    loss = is_stateful(o.loss) and o.loss or nil }) do
    out[name .. "_buffers"] = checkpoint.buffers(module)
  end
  for name, callback in pairs(events.objects(self)) do
    out[name] = callback
  end
  return out
end

-- The numbers that a checkpoint is known by; one without the best's metric is not it.
local function numbers_of(self)
  local out = class.copy(self.metrics)
  local best = self._best
  if best and out[best.metric] == nil then
    out[best.metric] = 0 / 0
  end
  return out
end

--- Writes a checkpoint.
--- error: ValueError without `checkpoints`; what the Manager raises
---@return string path
function Trainer:save()
  check.method(self, Trainer, "save")
  errors.check(self._o.checkpoints, "ValueError",
    "Trainer: save: give checkpoints = lupine.checkpoint.Manager(folder)")
  local path = self._o.checkpoints:save(self.step, self:objects(), numbers_of(self))
  self._saved = self.step
  events.tell(self, "on_checkpoint", path)
  return path
end

--- Goes on from a checkpoint: fit() then begins where it was made.
--- errors: those of lupine.checkpoint; ValueError for "latest" without `checkpoints`
---@param path string of a checkpoint, or "latest"
---@return string? path nil: there is no latest one
function Trainer:resume(path)
  check.method(self, Trainer, "resume")
  check.string(path, "resume: path")
  if path ~= "latest" then
    checkpoint.restore(path, self:objects())
    return path
  end
  errors.check(self._o.checkpoints, "ValueError",
    "Trainer: resume: \"latest\" needs checkpoints = lupine.checkpoint.Manager(folder)")
  local values, entry = self._o.checkpoints:restore_latest(self:objects())
  return values and entry.path or nil
end

return Trainer
