--- Batch normalisation of ONNX and of PopART.
---
--- In training form (training_mode, or outputs beside the first before version 14) it gives
--- the new running statistics: their variance is that of the population, or of a sample
--- where `sample` is set. A module in training mode keeps them, and there an inference form
--- normalises and counts as torch.nn.BatchNorm does, with the variance of a sample.
local torch = require("torch")
local F = require("torch.nn.functional")

local M = {}

local OPERANDS = { "scale", "B", "mean", "var" }

--- Refuses operands of another shape than one number of each for each channel.
---@param n lupine.onnx.Node
---@param shape torch.Size
---@param ... torch.Tensor scale, B, and statistics if there are some
function M.check_operands(n, shape, ...)
  for i, name in ipairs(OPERANDS) do
    local t = select(i, ...)
    n:check(not t or tostring(t.shape) == tostring(shape), "expected shape of %s to be %s, got %s",
      name, tostring(shape), t and tostring(t.shape))
  end
end

local function keep(running, new)
  torch.no_grad(function()
    running:copy_(new)
  end)
end

-- Y, running mean, running variance, and those of the batch.
local function train(n, sample, x, scale, b, mean, var)
  local keeps, count = n.attr.momentum, x:numel() // math.max(x:size(1), 1)
  local y, batch_mean, batch_var = F._batch_norm_train(x, scale, b, n.attr.epsilon)
  if sample and count > 1 then
    batch_var = batch_var * (count / (count - 1))
  end
  batch_mean, batch_var = batch_mean:detach():to(mean.dtype), batch_var:detach():to(var.dtype)
  local new_mean = mean:detach() * keeps + batch_mean * (1 - keeps)
  local new_var = var:detach() * keeps + batch_var * (1 - keeps)
  if n.tracks then
    keep(mean, new_mean)
    keep(var, new_var)
  end
  return y, new_mean, new_var, batch_mean, batch_var
end

-- One number of each operand for each place too, not for channels only: each is a
-- channel of its own.
local function spread(n, x, ...)
  M.check_operands(n, torch.Size({ table.unpack(x.shape, 2) }), ...)
  local flat = { x:reshape({ x:size(0), -1 }) }
  for i = 1, 4 do
    flat[i + 1] = (select(i, ...)):reshape({ -1 })
  end
  return flat
end

local function normalise(n, trains, sample, x, ...)
  n:check(x:dim() >= 2, "X must have 2 dimensions or more (batch, channels), got the shape %s",
    tostring(x.shape))
  M.check_operands(n, torch.Size({ x:size(1) }), ...)
  if trains then
    return train(n, sample, x, ...)
  end
  local scale, b, mean, var = ...
  return F.batch_norm(x, mean, var, scale, b, n.tracks, 1 - n.attr.momentum, n.attr.epsilon)
end

--- Runs a node.
---@param n lupine.onnx.Node
---@param sample boolean
---@param x torch.Tensor
---@param ... torch.Tensor scale, B, mean, var
---@return ... torch.Tensor
function M.run(n, sample, x, ...)
  local trains = n:wants(2) or (n.attr.training_mode or 0) ~= 0
  n:check(not trains or (n.attr.is_test or 0) == 0, "attribute 'is_test': it is 1, and outputs of "
    .. "training are wanted")
  if (n.attr.spatial or 1) ~= 0 then
    return normalise(n, trains, sample, x, ...)
  end
  local flat = spread(n, x, ...)
  local results = { normalise(n, trains, sample, table.unpack(flat)) }
  for i, t in ipairs(results) do
    results[i] = t:reshape(i == 1 and x.shape or { table.unpack(x.shape, 2) })
  end
  return table.unpack(results)
end

return M
