--- The CTC loss: what it takes as the operator wants it (src/ops/nn/ctc_loss.c).
local define = require("torch.nn.functional.define")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

-- The numbers of a tensor or list, as a list. A traced tensor has none: what
-- depends on them is not checked then.
local function numbers(v)
  if type(v) == "number" then
    return { v }
  elseif not core.is_tensor(v) then
    return v
  end
  local readable, list = pcall(v.tolist, v)
  list = type(list) == "number" and { list } or list
  return readable and list or nil
end

-- Numbers as a tensor of indices.
local function indices(v)
  local torch = require("torch")
  return core.is_tensor(v) and v:reshape({ -1 }):to(torch.int64)
    or torch.tensor(v, { dtype = torch.int64 }):reshape({ -1 })
end

local function check_sum(n, target_lengths)
  local sum = 0
  for _, length in ipairs(target_lengths) do
    sum = sum + length
  end
  errors.check(n == sum, "RuntimeError",
    "ctc_loss: targets in one row has %d labels, the sum of target_lengths is %d", n, sum)
end

-- Targets [N, S] from one row of all targets.
local function rows_of(targets, target_lengths)
  local torch = require("torch")
  local flat = numbers(targets)
  errors.check(flat and target_lengths, "RuntimeError", "ctc_loss: targets in one row cannot be "
    .. "compiled, their places depend on data: give them as rows of one length")
  local most, out, at = math.max(1, table.unpack(target_lengths)), {}, 0
  check_sum(#flat, target_lengths)
  for i, n in ipairs(target_lengths) do
    out[i] = {}
    for s = 1, most do
      out[i][s] = s <= n and flat[at + s] or 0
    end
    at = at + n
  end
  return torch.tensor(out, { dtype = torch.int64 })
end

return function(F)
  local M = {}

  define(M, "ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, "
    .. "reduction='mean', zero_infinity=False)",
    function(logp, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
      local torch = require("torch")
      errors.check(logp:dim() == 2 or logp:dim() == 3, "RuntimeError",
        "ctc_loss: log_probs must have 2 or 3 dimensions, got %d", logp:dim())
      local single, dtype = logp:dim() == 2, logp.dtype
      if dtype == torch.float16 or dtype == torch.bfloat16 then
        logp = logp:float() -- what follows rounds once
      end
      local function flat(v)
        return core.is_tensor(v) and v:dim() ~= 1 and v:reshape({ -1 }) or v
      end
      local target_known = (single or targets:dim() ~= 2) and numbers(flat(target_lengths))
      if single then
        logp = logp:unsqueeze(1)
        if target_known then
          check_sum(targets:numel(), target_known)
        end
        targets = targets:reshape({ 1, targets:numel() })
      end
      input_lengths, target_lengths = indices(input_lengths), indices(target_lengths)
      errors.check(input_lengths:size(0) == logp:size(1) and target_lengths:size(0) == logp:size(1),
        "RuntimeError", "ctc_loss: input_lengths and target_lengths must be of size %d, got %d "
        .. "and %d", logp:size(1), input_lengths:size(0), target_lengths:size(0))
      local rows = targets:dim() == 2 and targets or rows_of(targets, target_known)
      local loss = F._ctc_loss_forward(logp, rows, input_lengths, target_lengths, blank,
        zero_infinity)
      if reduction == "mean" then
        loss = loss / target_lengths:to(loss.dtype):clamp_min(1)
      end
      loss = single and reduction == "none" and loss:reshape({}) or loss
      return F._identity_loss(loss:to(dtype), reduction)
    end)

  return M
end
