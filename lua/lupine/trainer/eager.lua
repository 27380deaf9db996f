--- Steps operator by operator.
local batch = require("lupine.trainer.batch")
local errors = require("lupine.base.errors")
local Host = require("lupine.trainer.host")
local modes = require("lupine.base.modes")
local tracing = require("lupine.training_step.tracing")

---@class lupine.trainer.Eager: lupine.trainer.Host
local Eager = Host:extend("Eager")

--- errors: NotImplementedError for an optimizer that calls the model itself
---@param o table options of the Trainer
function Eager:init(o)
  Host.init(self, o)
  errors.check(not require("torch.optim").LBFGS:is(o.optimizer), "NotImplementedError",
    "Trainer: optimizer: LBFGS calls the model as often as it likes, a step calls it once. "
    .. "Allowed: all others of torch.optim")
  self.gathered = 0
end

-- Parameters that the optimizer has.
local function parameters(self)
  local list = {}
  for _, group in ipairs(self.optimizer.param_groups) do
    table.move(group.params, 1, #group.params, #list + 1, list)
  end
  return list
end

--- Buffers are kept apart in each step: forward writes them before the loss is known.
function Eager:begin()
  self.buffers, self.before = self.model:buffers(), {}
  for i, b in ipairs(self.buffers) do
    self.before[i] = b:detach():clone()
  end
end

local function copy(to, from)
  if #to > 0 then
    require("torch").no_grad(function()
      for i, t in ipairs(to) do
        t:copy_(from[i])
      end
    end)
  end
end

local function forward(self, values)
  local args, targets = batch.split(self, values)
  local results = table.pack(self.model(table.unpack(args, 1, args.n)))
  if self.loss then
    return results, self.loss(results[1], table.unpack(targets, 1, targets.n))
  end
  return results, nil
end

-- The sum that is minimised.
local function minimised(results, loss)
  if loss == nil then
    loss = tracing.own_loss(results)
  end
  return (tracing.total(loss)), loss
end

local function update(self)
  local o, utils = self.o, require("torch.nn").utils
  local params = parameters(self)
  if self.gathered < o.accumulation then -- the mean of those that there are
    for _, p in ipairs(params) do
      if p.grad then
        p.grad:mul_(o.accumulation / self.gathered)
      end
    end
  end
  if o.clip_grad_norm then
    utils.clip_grad_norm_(params, o.clip_grad_norm)
  end
  if o.clip_grad_value then
    utils.clip_grad_value_(params, o.clip_grad_value)
  end
  self.optimizer:step()
  self.gathered = 0
end

-- Forward and the loss; buffers are as before if that is not finite.
local function tried(self, values)
  local _ <close> = self:casting()
  copy(self.before, self.buffers)
  local results, loss = forward(self, values)
  local sum, own = minimised(results, loss)
  local r = self:record(values, results, own, sum:item())
  if not r.finite then
    copy(self.buffers, self.before)
  end
  return r, sum
end

--- A batch: forward, backward and with the last of a group the update.
---@param values {n: integer}
---@return table
function Eager:train(values)
  values = self:prepared(values)
  if self.gathered == 0 then
    self.optimizer:zero_grad()
  end
  local r, sum = tried(self, values)
  r.updated = 0
  if not r.finite then
    self.gathered = 0
    return r
  end
  local k = self.o.accumulation
  ;(k > 1 and sum / k or sum):backward()
  self.gathered = self.gathered + 1
  if self.gathered == k then
    update(self)
    r.updated = 1
  end
  return r
end

--- The update of a group that is not full.
---@return boolean
function Eager:flush()
  local any = self.gathered > 0
  if any then
    update(self)
  end
  return any
end

-- fn(...) in eval mode, without gradients.
local function evaluating(self, fn, ...)
  local _ <close> = modes.set({ self.model, type(self.loss) == "table" and self.loss or nil },
    false)
  local _ <close> = self:casting()
  local _ <close> = require("torch").no_grad()
  return fn(...)
end
Eager.evaluating = evaluating

--- A batch in eval mode, without gradients.
---@param values {n: integer}
---@return table
function Eager:evaluate(values)
  values = self:prepared(values)
  local results, loss = evaluating(self, forward, self, values)
  return self:record(values, results, loss == nil and batch.loss(results) or loss)
end

--- The model alone.
---@param values {n: integer}
---@return any ...
function Eager:predict(values)
  local args = self:model_arguments(self:prepared(values))
  return evaluating(self, self.model, table.unpack(args, 1, args.n))
end

return Eager
