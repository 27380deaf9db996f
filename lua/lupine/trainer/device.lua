--- Steps on the simulated system: poptorch.trainingModel trains, poptorch.inferenceModel
--- of the same weights validates. They take turns on the device: who is called gets it,
--- the other gives it back before, which brings weights and states to the host.
local batch = require("lupine.trainer.batch")
local blocks = require("poptorch.blocks")
local class = require("lupine.base.class")
local Eager = require("lupine.trainer.eager")
local errors = require("lupine.base.errors")
local Host = require("lupine.trainer.host")
local poptorch = require("poptorch")
local torch = require("torch")
local TorchLoader = require("torch.utils.data.loader")

local nn = torch.nn

-- ---- the model with its loss ---------------------------------------------------------

local WithLoss = nn.Module:extend("WithLoss")

function WithLoss:init(engine)
  self.model = engine.model
  if type(engine.loss) == "table" then
    self.loss = engine.loss
  end
  rawset(self, "_engine", engine)
end

function WithLoss:forward(...)
  local engine = rawget(self, "_engine")
  local args, targets = batch.split(engine, table.pack(...))
  local out = self.model(table.unpack(args, 1, args.n))
  blocks.go_on() -- the loss is computed where the output is
  local loss = engine.loss(out, table.unpack(targets, 1, targets.n))
  return out, poptorch.identity_loss(loss, "mean")
end

-- ---- the engine ------------------------------------------------------------------------

---@class lupine.trainer.Device: lupine.trainer.Host
local Device = Host:extend("Device")

local ALLOWED = { float32 = true, float16 = true, autocast_float16 = true }

local function set_precision(o, options)
  errors.check(ALLOWED[o.precision], "ValueError", "Trainer: precision: \"%s\" is not for mode "
    .. "\"poptorch\". Allowed: float32, float16, autocast_float16", o.precision)
  if o.precision == "autocast_float16" then
    options.Precision:autocastEnabled(true)
    o.model:autocast(true)
  end
end

--- Wraps the model and its loss.
---@param o table options of the Trainer
function Device:init(o)
  self.options = (o.options or poptorch.Options()):clone()
  set_precision(o, self.options)
  Host.init(self, o)
  self.autocast = false -- the device's own
  self.wrapped = o.loss and WithLoss(self) or o.model
  self.trainer = poptorch.trainingModel(self.wrapped, self.options, o.optimizer)
  self.calls = { evaluate = {}, predict = {} } -- inference models by their options
  -- A loader of validation -> its options and the samples of a whole call.
  self.loops = setmetatable({}, { __mode = "k" })
  self.train_loader = self:loader(o.train, self.options, true)
end

--- A poptorch.DataLoader of the same samples; anything but a DataLoader stays as it is
--- and gives batches for whole calls.
---@param loader any
---@param options poptorch.Options
---@param drop_last boolean
---@return any
function Device:loader(loader, options, drop_last)
  if poptorch.DataLoader:is(loader) or not TorchLoader:is(loader) then
    return loader
  end
  local a = { num_workers = loader.num_workers, collate_fn = loader.collate_fn,
    generator = loader.generator, drop_last = drop_last, timeout = loader.timeout,
    worker_init_fn = loader.worker_init_fn }
  if loader.batch_sampler and not loader.batch_size then
    a.batch_sampler = loader.batch_sampler
  else
    a.batch_size, a.sampler = loader.batch_size, loader.sampler
  end
  return poptorch.DataLoader(options, loader.dataset, a)
end

-- ---- turns -------------------------------------------------------------------------------

local function release(executor)
  if executor:isCompiled() and executor:isAttachedToDevice() then
    executor:detachFromDevice()
  end
end

local function each_inference(self, fn)
  for _, calls in pairs(self.calls) do
    for _, executor in pairs(calls) do
      fn(executor)
    end
  end
end

-- The weights of now, all of whose losses were finite.
local function keep(self)
  self.good = self.good or {}
  for name, t in pairs(self.model:state_dict()) do
    if self.good[name] then
      self.good[name]:copy_(t)
    else
      self.good[name] = t:detach():clone()
    end
  end
end

--- Before a loop of steps.
function Device:begin()
  keep(self)
end

--- Weights and states are on the host then.
function Device:settle()
  if self.trainer:isCompiled() and self.trainer:isAttachedToDevice() then
    self.trainer:copyWeightsToHost()
    keep(self)
  end
end

--- The training model gives the device back, as a loop over a loader of validation
--- begins.
---@param loader any
function Device:pause(loader)
  self.running = self.loops[loader]
  self.running.first = nil
  local attached = self.trainer:isCompiled() and self.trainer:isAttachedToDevice()
  release(self.trainer)
  if attached then
    keep(self)
  end
end

--- After a loss that is not finite, with which the device has made an update: the model
--- has the latest weights that were on the host before.
function Device:recover()
  if self.trainer:isCompiled() then
    self.trainer:destroy()
  end
  self.model:load_state_dict(self.good)
end

--- The optimizer has other hyper-parameters.
function Device:changed()
  self.behind = not self.trainer:isCompiled()
  if not self.behind then
    self.trainer:setOptimizer(self.optimizer)
  end
end

-- Compiling after a checkpoint was loaded gives the device the hyper-parameters that it
-- had then, which a schedule may have changed since.
local function catch_up(self, values)
  if self.behind then
    self.trainer:compile(table.unpack(values, 1, values.n))
    self:changed()
  end
end

-- Of a call that returns all outputs.
local function aligned(r)
  local torch_tensor = torch.is_tensor(r.output) and torch.is_tensor(r.target)
  if not torch_tensor or r.output:dim() == 0 or r.output:size(0) ~= r.target:size(0) then
    r.output = nil
  end
  return r
end

-- Results of forward, and the loss.
local function sorted(self, results)
  local loss = batch.loss(results)
  if self.loss then
    loss = results[results.n]
    results.n = results.n - 1
  elseif loss == nil then
    loss = results[results.n]
  end
  return results, loss
end

--- A call: as many updates as device iterations.
---@param values {n: integer}
---@return table
function Device:train(values)
  values = self:prepared(values)
  each_inference(self, release)
  catch_up(self, values)
  local results, loss = sorted(self, table.pack(self.trainer(table.unpack(values, 1, values.n))))
  local r = aligned(self:record(values, results, loss))
  r.updated = self.options.device_iterations
  return r
end

--- Nothing waits: a call is whole.
---@return boolean
function Device.flush()
  return false
end

-- ---- validation ----------------------------------------------------------------------------

--- Batches of a loader of validation: for whole calls, and the rest at the end.
---@param loader any
---@return any
function Device:validation_loader(loader)
  if self.loops[loader] then
    return loader
  end
  self.inferring = self.inferring or self.options:forInference()
  local options = poptorch.DataLoader:is(loader) and loader.options or self.inferring
  loader = self:loader(loader, options, false)
  self.loops[loader] = { options = options,
    whole = poptorch.DataLoader:is(loader) and loader.combinedBatchSize or nil }
  return loader
end

-- The inference model of the running loop, made in eval mode, which it keeps.
local function inference(self, name, module)
  local options = self.running.options
  local calls = self.calls[name]
  if not calls[options] then
    calls[options] = Eager.evaluating(self, poptorch.inferenceModel, module, options)
  end
  return calls[options]
end

-- A batch that is smaller than a call takes, which the model on the host computes. Where
-- the loader does not tell how many that are, the first batch does.
local function is_rest(running, values)
  local n, o = batch.samples(values), running.options
  if running.whole then
    return n ~= running.whole
  elseif n % (o.device_iterations * o.replication_factor) ~= 0 then
    return true
  end
  running.first = running.first or n
  return n ~= running.first
end

--- A batch by the inference model, or what is left over by the host.
---@param values {n: integer}
---@return table
function Device:evaluate(values)
  if is_rest(self.running, values) then
    return Eager.evaluate(self, values)
  end
  values = self:prepared(values)
  local model = inference(self, "evaluate", self.wrapped)
  local results, loss = sorted(self, table.pack(model(table.unpack(values, 1, values.n))))
  return self:record(values, results, loss)
end

--- The model alone.
---@param values {n: integer}
---@return any ...
function Device:predict(values)
  if is_rest(self.running, values) then
    return Eager.predict(self, values)
  end
  local args = self:model_arguments(self:prepared(values))
  return inference(self, "predict", self.model)(table.unpack(args, 1, args.n))
end

--- Inference models give the device back.
function Device:resume()
  each_inference(self, release)
end

local function destroy(executor)
  if executor:isCompiled() then
    executor:destroy()
  end
end

--- Gives all devices back.
function Device:close()
  destroy(self.trainer)
  each_inference(self, destroy)
  self.calls = { evaluate = {}, predict = {} }
end

-- ---- checkpoints -------------------------------------------------------------------------------

-- The device's own state; the model's and the optimizer's are objects of their own.
local State = class.new("DeviceState")

function State:init(engine)
  self.engine = engine
end

-- Behind the model and its optimizer, before the random numbers.
State.checkpoint_rank = 4

function State:state_dict()
  return { device = self.engine.trainer:checkpoint_state().device }
end

function State:load_state_dict(state)
  local engine = self.engine
  engine.trainer:load_checkpoint_state({ model = engine.wrapped:state_dict(),
    device = state.device })
end

--- What a checkpoint has of the engine.
---@return table<string, any>
function Device:objects()
  return { device = State(self) }
end

return Device
