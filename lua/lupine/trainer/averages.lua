--- Means of the weights over a training: moving ones (EMA), which validation uses, and
--- equal ones from a point on (SWA).
local random = require("torch.utils.data.random")
local swa_utils = require("torch.optim.swa_utils")
local torch = require("torch")

local M = {}

--- Makes the fields `ema` and `swa` of a Trainer, of whose options have them.
---@param trainer lupine.Trainer
function M.make(trainer)
  local o = trainer._o
  trainer.ema = o.ema_decay and swa_utils.AveragedModel(o.model,
    { multi_avg_fn = swa_utils.get_ema_multi_avg_fn(o.ema_decay) }) or nil
  trainer.swa = o.swa_start and swa_utils.AveragedModel(o.model) or nil
  trainer._averaging = false -- looked at in every step
  for _, averaged in pairs({ trainer.ema, trainer.swa }) do
    averaged:requires_grad_(false)
    trainer._averaging = true
  end
end

--- After updates.
---@param trainer lupine.Trainer
function M.step(trainer)
  if not trainer._averaging then
    return
  end
  local start = trainer._o.swa_start
  local swa = start and start.unit == "step" and trainer.step >= start.count
  if trainer.ema or swa then
    trainer._engine:settle()
  end
  if trainer.ema then
    trainer.ema:update_parameters(trainer.model)
  end
  if swa then
    trainer.swa:update_parameters(trainer.model)
  end
end

--- At the end of an epoch.
---@param trainer lupine.Trainer
function M.epoch(trainer)
  local start = trainer._o.swa_start
  if start and start.unit == "epoch" and trainer.epoch >= start.count then
    trainer._engine:settle()
    trainer.swa:update_parameters(trainer.model)
  end
end

--- The statistics of the mean's BatchNorm layers, from the training data.
---@param trainer lupine.Trainer
function M.finish(trainer)
  local _ <close> = random.keep()
  swa_utils.update_bn(trainer._engine.train_loader, trainer.swa.module)
end

local function tensors(module)
  local out = {}
  for _, list in ipairs({ module:parameters(), module:buffers() }) do
    for _, t in ipairs(list) do
      out[#out + 1] = t:detach()
    end
  end
  return out
end

local function copy(to, from)
  local _ <close> = torch.no_grad()
  for i, t in ipairs(to) do
    t:copy_(from[i])
  end
end

--- To be closed: the model's tensors have the mean's values until then.
---@param model torch.nn.Module
---@param averaged torch.optim.swa_utils.AveragedModel
---@return table
function M.applied(model, averaged)
  local own, before = tensors(model), {}
  for i, t in ipairs(own) do
    before[i] = t:clone()
  end
  copy(own, tensors(averaged.module))
  return setmetatable({}, { __close = function()
    copy(own, before)
  end })
end


return M
