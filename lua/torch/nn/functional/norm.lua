--- Normalisations that keep running statistics, and normalize.
---
--- Running statistics are updated in place, r = (1 - momentum) r + momentum s,
--- with the mean and the unbiased variance of the batch; PyTorch documentation,
--- BatchNorm1d.
local core = require("lupine.core")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")
local text = require("torch.nn.text")

-- r moves towards s; momentum may be a tensor of no dimensions
local function move(r, s, momentum)
  if core.is_tensor(momentum) then
    momentum = momentum:to(r.dtype)
  end
  r:lerp_(s:detach():to(r.dtype), momentum)
end

return function(F)
  local M = {}

  local function check_batch(input)
    local per_channel = input:numel() // math.max(input:size(1), 1) -- 0: nothing to count
    if per_channel == 1 then
      errors.raise("ValueError", "Expected more than 1 value per channel when training, got "
        .. "input size %s", tostring(input.shape))
    end
    return per_channel
  end

  local function check_channels(input, name, t)
    if t and (t:dim() ~= 1 or t:size(0) ~= input:size(1)) then
      errors.raise("RuntimeError", "batch_norm: %s: expected shape (%d,), one element for each "
        .. "channel of input (dimension 1), got %s", name, input:size(1),
        text.repr({ table.unpack(t.shape) }))
    end
  end

  -- By the statistics of n elements a channel; 0: nothing to count.
  local function update_batch(running_mean, running_var, mean, var, n, momentum)
    if running_mean then
      move(running_mean, mean, momentum)
    end
    if running_var then
      move(running_var, n > 0 and var * (n / (n - 1)) or var, momentum)
    end
  end

  define(M, "batch_norm(input, running_mean=None, running_var=None, weight=None, bias=None, "
    .. "training=False, momentum=0.1, eps=1e-5)",
    function(input, running_mean, running_var, weight, bias, training, momentum, eps)
      if not (eps > 0 or not training and eps == 0) then
        errors.raise("ValueError", "batch_norm: eps must be %s, got %s",
          training and "positive while training" or "zero or positive", tostring(eps))
      end
      if input:dim() < 2 and input:numel() == 0 then
        return input:clone() -- no channels to speak of
      end
      check_channels(input, "running_mean", running_mean)
      check_channels(input, "running_var", running_var)
      check_channels(input, "weight", weight)
      check_channels(input, "bias", bias)
      if not training then
        errors.check(running_mean and running_var, "RuntimeError",
          "batch_norm: running_mean and running_var must be given when training is false")
        return F._batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
      end
      local n = check_batch(input)
      local out, mean, var = F._batch_norm_train(input, weight, bias, eps)
      if running_mean or running_var then
        require("torch").no_grad(update_batch, running_mean, running_var, mean, var, n, momentum)
      end
      return out
    end)

  -- Over all dimensions after the channels.
  local function update_instance(input, running_mean, running_var, momentum)
    local dims = {}
    for d = 2, input:dim() - 1 do
      dims[#dims + 1] = d
    end
    require("torch").no_grad(function()
      local x = input:detach()
      if running_mean then
        move(running_mean, x:mean(dims):mean(0), momentum)
      end
      if running_var then
        move(running_var, x:var(dims):mean(0), momentum)
      end
    end)
  end

  define(M, "instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, "
    .. "use_input_stats=True, momentum=0.1, eps=1e-5)",
    function(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
      if not use_input_stats then
        errors.check(running_mean and running_var, "RuntimeError",
          "instance_norm: running_mean and running_var must be given unless use_input_stats")
        return F._batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
      end
      local n = 1
      for d = 2, input:dim() - 1 do
        n = n * input:size(d)
      end
      if n == 1 then
        errors.raise("ValueError", "Expected more than 1 spatial element when training, got "
          .. "input size %s", tostring(input.shape))
      elseif n == 0 then
        return input:clone() -- nothing to normalise
      end
      if running_mean or running_var then
        update_instance(input, running_mean, running_var, momentum)
      end
      return F._instance_norm_train(input, weight, bias, eps)
    end)

  define(M, "normalize(input, p=2.0, dim=1, eps=1e-12, out=None)", function(input, p, dim, eps, out)
    local norm = input:norm(p, dim, { keepdim = true }):clamp_min(eps)
    return core.forms.functions.div(input, norm:expand_as(input), { out = out })
  end)

  return M
end
