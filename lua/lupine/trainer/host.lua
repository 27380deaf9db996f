--- What the engines that compute on this machine have in common. An engine is
---
---   train(values)     a batch: {loss =, finite =, updated = updates that were made,
---                     samples =, output =, target =}
---   flush()           ends a group of batches that is not full; true: with an update
---   evaluate(values)  {loss =, samples =, output =, target =}, in eval mode
---   predict(values)   what forward returns
---   train_loader, validation_loader(loader)
---                     what batches come from
---   begin(), settle(), objects(), close()
---                     before a loop of steps; weights and states are on the host; what
---                     a checkpoint has of it; the end
local batch = require("lupine.trainer.batch")
local class = require("lupine.base.class")
local inputs = require("lupine.training_step.inputs")
local arguments = require("lupine.base.arguments")

---@class lupine.trainer.Host
local Host = class.new("Host")

local AUTOCAST = { autocast_float16 = "float16", autocast_bfloat16 = "bfloat16" }

--- For sub-classes.
---@param o table options of the Trainer
function Host:init(o)
  local torch = require("torch")
  self.o, self.model, self.optimizer, self.loss = o, o.model, o.optimizer, o.loss
  self._targets = inputs.targets_of(o.loss)
  self._parameters, self._variadic = arguments.parameters(o.model.forward)
  self.autocast = AUTOCAST[o.precision] and torch[AUTOCAST[o.precision]] or false
  self.dtype = false
  if not self.autocast and o.precision ~= "float32" then
    self.dtype = torch[o.precision]
    self.model:to(self.dtype)
    if type(self.loss) == "table" then
      self.loss:to(self.dtype)
    end
  end
  self.train_loader = o.train
end

local Nothing = setmetatable({}, { __close = function() end })

--- To be closed: types of products within.
---@return table
function Host:casting()
  return self.autocast and require("torch").autocast("cpu", { dtype = self.autocast }) or Nothing
end

--- Batches of a loader of validation.
---@param loader any
---@return any
function Host:validation_loader(loader)
  return loader
end

--- A batch as the model takes it.
---@param values {n: integer}
---@return {n: integer}
function Host:prepared(values)
  return batch.cast(values, self.dtype)
end

--- The model's arguments of a batch, which may have targets behind them.
---@param values {n: integer}
---@return {n: integer}
function Host:model_arguments(values)
  local n = values.n
  if #self._targets > 0 then
    n = self._variadic and math.max(1, n - #self._targets) or math.min(n, #self._parameters)
  end
  return table.pack(table.unpack(values, 1, n))
end

--- What a step or an evaluation tells.
---@param values {n: integer}
---@param results {n: integer} of forward, without a loss of its own
---@param loss any
---@param number number?
---@return table
function Host:record(values, results, loss, number)
  local r = { loss = number or batch.number(loss), samples = batch.samples(values) }
  r.finite = r.loss ~= nil and r.loss == r.loss and math.abs(r.loss) ~= math.huge
  if self.o.observed then -- by metrics
    r.output, r.target = batch.output(results, loss), batch.target(self, values)
  end
  return r
end

--- Before a loop of steps.
function Host.begin() end

--- Weights and states are on the host then.
function Host.settle() end

--- The end.
function Host.close() end

--- What a checkpoint has of the engine: nothing, as it is made between two updates. So one
--- of eager steps goes on with compiled ones, and the other way round.
---@return table<string, any>
function Host.objects()
  return {}
end

return Host
