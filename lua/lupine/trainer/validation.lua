--- Going through a loader without training: validation and prediction.
local averages = require("lupine.trainer.averages")
local batch = require("lupine.trainer.batch")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local loop = require("torch.utils.data.loop")
local random = require("torch.utils.data.random")

local M = {}

local function each(loader, fn, most)
  local step = loop.iterate(loader, "Trainer: a loader")
  for _ = 1, most or math.maxinteger do
    local values = batch.next(step)
    if values.n == 0 then
      return
    end
    fn(values)
  end
end

-- Until closed the model has the weights that are validated, and the engine's device
-- belongs to inference. What is drawn meanwhile is not between the training's numbers.
local function aside(trainer, loader, averaged)
  local engine, kept = trainer._engine, random.keep()
  if engine.pause then
    engine:pause(loader)
  end
  local applied = averaged and averaged.n_averaged:item() > 0
    and averages.applied(trainer.model, averaged)
  return setmetatable({}, { __close = function()
    if engine.resume then
      engine:resume()
    end
    if applied then
      getmetatable(applied).__close()
    end
    getmetatable(kept).__close(kept)
  end })
end

--- The validation's numbers, and results that are no numbers, by prefix and name. The
--- loss is the mean over samples.
---@param trainer lupine.Trainer
---@param loader any
---@param prefix string
---@param averaged torch.optim.swa_utils.AveragedModel? whose weights are taken
---@param most integer? batches, all unless given
---@return table<string, number>
---@return table<string, any>
function M.run(trainer, loader, prefix, averaged, most)
  local _ <close> = aside(trainer, loader, averaged)
  local engine, measures = trainer._engine, trainer._validation_measures
  local numbers, others, sum, n = {}, {}, 0.0, 0
  measures:reset()
  each(loader, function(values)
    local r = engine:evaluate(values)
    measures:update(r.output, r.target)
    if r.loss then
      sum, n = sum + r.loss * r.samples, n + r.samples
    end
  end, most)
  errors.check(n > 0, "ValueError", "Trainer: validation: the loader gave no batch with a loss")
  numbers[prefix .. "loss"] = sum / n
  measures:compute(numbers, prefix, others)
  return numbers, others
end

--- The validation's numbers and its other results, with the moving mean of the weights
--- if there is one; the trainer's fields `metrics` and `tables` have them, too.
---@param trainer lupine.Trainer
---@param loader any
---@param most integer?
---@return table<string, number>
---@return table<string, any>
function M.numbers(trainer, loader, most)
  local numbers, others = M.run(trainer, loader, "validation.", trainer.ema, most)
  for name, value in pairs(numbers) do
    trainer.metrics[name] = value
  end
  for name, value in pairs(others) do
    trainer.tables[name] = value
  end
  return numbers, others
end

-- Outputs of all batches as one: tensors along dimension 0, of tables each field.
local function joined(parts)
  local first = parts[1]
  if core.is_tensor(first) then
    return first:dim() > 0 and require("torch").cat(parts, 0) or require("torch").stack(parts)
  elseif type(first) ~= "table" or getmetatable(first) then
    return parts
  end
  local out = {}
  for key in pairs(first) do
    local column = {}
    for i, part in ipairs(parts) do
      column[i] = part[key]
    end
    out[key] = joined(column)
  end
  return out
end

--- Outputs of the model alone for all of a loader.
---@param trainer lupine.Trainer
---@param loader any
---@return any
function M.predict(trainer, loader)
  local _ <close> = aside(trainer, loader, trainer.ema)
  local outputs = {}
  each(loader, function(values)
    local out = trainer._engine:predict(values)
    outputs[#outputs + 1] = core.is_tensor(out) and out:detach():clone() or out
  end)
  errors.check(#outputs > 0, "ValueError", "Trainer: predict: the loader gave no batch")
  return joined(outputs)
end

return M
