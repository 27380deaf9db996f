--- Connectionist temporal classification: minus the log-likelihood of a
--- sequence of labels under all its alignments with the input.
---
--- source: Graves et al. 2006, section 4.1 (the forward recursion, in logs)
local define = require("torch.nn.functional.define")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

-- Stands for log 0: finite, so that gradients stay so too.
local NEVER = -1e30

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

-- Labels behind a row's length are not looked at.
local function check_labels(rows, lengths, classes)
  local list = numbers(rows)
  for _, length in ipairs(lengths or {}) do
    errors.check(length >= 0 and length <= rows:size(1), "RuntimeError",
      "ctc_loss: target_lengths must be from 0 to %d, the length of a row of targets, got %d",
      rows:size(1), length)
  end
  for i, row in ipairs(list and lengths and list or {}) do
    for s = 1, math.min(lengths[i], #row) do
      errors.check(row[s] >= 0 and row[s] < classes, "RuntimeError",
        "ctc_loss: targets: label %d of sample %d is %d, allowed are 0 to %d", s - 1, i - 1,
        row[s], classes - 1)
    end
  end
end

-- The rows, of one column at least, with 0 behind each row's length.
local function padded(rows, lengths)
  local torch = require("torch")
  if rows:size(1) == 0 then
    return torch.zeros({ rows:size(0), 1 }, { dtype = torch.int64 })
  end
  local used = torch.arange(rows:size(1)):reshape({ 1, -1 }):lt(lengths:unsqueeze(1))
  return torch.where(used, rows, torch.zeros_like(rows))
end

-- Labels with blanks around each, [N, 2 S + 1], and where a label may follow
-- the one before the blank between them (0, else NEVER).
local function extended(rows, blank, dtype)
  local torch = require("torch")
  local n, s = rows:size(0), rows:size(1)
  local blanks = torch.full({ n, s }, blank, { dtype = torch.int64 })
  local pairs_ = torch.stack({ blanks, rows }, 2):reshape({ n, 2 * s })
  local labels = torch.cat({ pairs_, blanks:narrow(1, 0, 1) }, 1)
  local never = torch.full({ n, s }, NEVER, { dtype = dtype })
  local other = rows:narrow(1, 1, s - 1):ne(rows:narrow(1, 0, s - 1))
  local jumps = torch.cat({ never:narrow(1, 0, 1),
    never:narrow(1, 1, s - 1):masked_fill(other, 0) }, 1)
  local skip = torch.stack({ never, jumps }, 2):reshape({ n, 2 * s })
  return labels, torch.cat({ skip, never:narrow(1, 0, 1) }, 1)
end

local function likelihood(F, logp, labels, skip, input_lengths, target_lengths)
  local torch = require("torch")
  local n, width = labels:size(0), labels:size(1)
  local first = torch.full({ n, width }, NEVER, { dtype = logp.dtype })
  first[":, :2"] = 0.0
  local each = logp:gather(2, labels:unsqueeze(0):expand(logp:size(0), n, width)):unbind(0)
  local alphas = { first + each[1] }
  for t = 2, #each do
    -- what stands there, one place and two places before
    local before = F.pad(alphas[t - 1], { 2, 0 }, "constant", NEVER)
    local ways = { alphas[t - 1], before:narrow(1, 1, width), before:narrow(1, 0, width) + skip }
    alphas[t] = torch.logsumexp(torch.stack(ways, 0), 0) + each[t]
  end
  local step = (input_lengths - 1):clamp_min(0):reshape({ 1, -1, 1 }):expand(1, n, width)
  local at_end = torch.stack(alphas, 0):gather(0, step):squeeze(0)
  local last = (target_lengths * 2):unsqueeze(1)
  local label = at_end:gather(1, (last - 1):clamp_min(0))
    :masked_fill(target_lengths:eq(0):unsqueeze(1), NEVER)
  local loss = -torch.logsumexp(torch.cat({ at_end:gather(1, last), label }, 1), 1)
  local of_nothing = torch.full_like(loss, -NEVER):masked_fill(target_lengths:eq(0), 0)
  return torch.where(input_lengths:eq(0), of_nothing, loss), at_end
end

-- Zero, but it takes the gradient of the last blank away where the last label
-- is the blank itself (which labels may not be): there PyTorch's backward keeps
-- the label's share alone.
local function last_blank(logp, rows, blank, at_end, ends, loss)
  local torch = require("torch")
  local input_lengths, target_lengths = ends[1], ends[2]
  local place = (target_lengths - 1):clamp_min(0):unsqueeze(1)
  local is_blank = rows:gather(1, place):eq(blank):logical_and(target_lengths:gt(0):unsqueeze(1))
  local share = (at_end:gather(1, (target_lengths * 2):unsqueeze(1)) + loss:unsqueeze(1)):exp()
  local step = (input_lengths - 1):clamp_min(0):reshape({ 1, -1 })
  local value = logp:select(2, blank):gather(0, step):reshape({ -1 })
  local part = torch.where(is_blank, share, torch.zeros_like(share)):reshape({ -1 }):detach()
  return part * (value - value:detach())
end

-- Zero, with the gradient exp(logp): PyTorch's gradient is the one that the
-- logits get, log_softmax's included, exp(logp) minus the posterior.
local function softmax_share(logp, input_lengths)
  local torch = require("torch")
  local steps = torch.arange(logp:size(0)):reshape({ -1, 1 })
  local used = steps:lt(input_lengths:reshape({ 1, -1 })):to(logp.dtype)
  local sum = (logp:exp() * used:unsqueeze(2)):sum({ 0, 2 })
  return sum - sum:detach()
end

-- Zero, with a gradient of NaN at the steps of samples that no alignment fits:
-- there PyTorch's is infinity less infinity.
local function undefined(logp, input_lengths, impossible)
  local torch = require("torch")
  local steps = torch.arange(logp:size(0)):reshape({ -1, 1 })
  local used = steps:lt(input_lengths:reshape({ 1, -1 })):unsqueeze(2)
  local sum = torch.where(used, logp:clamp_min(NEVER), torch.zeros_like(logp)):sum({ 0, 2 })
  return torch.where(impossible, sum - sum:detach(), torch.ones_like(sum)):sqrt() * 0
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
        logp = logp:float() -- no half stands for log 0
      end
      local function flat(v)
        return core.is_tensor(v) and v:dim() ~= 1 and v:reshape({ -1 }) or v
      end
      local known, target_known = numbers(flat(input_lengths)), numbers(flat(target_lengths))
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
      for _, length in ipairs(known or {}) do
        errors.check(length >= 0 and length <= logp:size(0), "RuntimeError",
          "ctc_loss: input_lengths must be from 0 to %d, got %d", logp:size(0), length)
      end
      errors.check(blank >= 0 and blank < logp:size(2), "RuntimeError",
        "ctc_loss: blank must be in label range 0 to %d, got %d", logp:size(2) - 1, blank)
      local rows = targets:dim() == 2 and targets:to(torch.int64)
        or rows_of(targets, target_known)
      check_labels(rows, target_known, logp:size(2))
      rows = padded(rows, target_lengths)
      local labels, skip = extended(rows, blank, logp.dtype)
      local loss, at_end = likelihood(F, logp, labels, skip, input_lengths, target_lengths)
      loss = loss + softmax_share(logp, input_lengths)
        + last_blank(logp, rows, blank, at_end, { input_lengths, target_lengths }, loss)
      local impossible = loss:detach():gt(-NEVER / 2)
      loss = loss:masked_fill(impossible, zero_infinity and 0 or math.huge)
      if not zero_infinity then
        loss = loss + undefined(logp, input_lengths, impossible)
      end
      if reduction == "mean" then
        loss = loss / target_lengths:to(loss.dtype):clamp_min(1)
      end
      loss = single and reduction == "none" and loss:reshape({}) or loss
      return F._identity_loss(loss:to(dtype), reduction)
    end)

  return M
end
