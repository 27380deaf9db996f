--- Connectionist temporal classification: minus the log-likelihood of a
--- sequence of labels under all its alignments with the input.
---
--- source: Graves et al. 2006, section 4.1 (the forward recursion, in logs)
local define = require("torch.nn.functional.define")
local core = require("lupine.core")
local errors = require("torch.errors")

-- Stands for log 0: finite, so that gradients stay so too.
local NEVER = -1e30

local function lengths(v)
  return core.is_tensor(v) and v:tolist() or v
end

-- Targets [N, S] from rows, or from one row of all targets.
local function rows_of(targets, target_lengths)
  local torch = require("torch")
  if targets:dim() == 2 then
    return targets:to(torch.int64):tolist()
  end
  local flat, out, at = targets:tolist(), {}, 0
  for i, n in ipairs(target_lengths) do
    out[i] = { table.unpack(flat, at + 1, at + n) }
    at = at + n
  end
  return out
end

-- Labels with blanks around each, [N, 2 S + 1], and where a label may follow
-- the one before the blank between them (0, else NEVER).
local function extended(rows, target_lengths, blank)
  local torch = require("torch")
  local most = math.max(table.unpack(target_lengths))
  local labels, skip = {}, {}
  for i, row in ipairs(rows) do
    labels[i], skip[i] = {}, {}
    for s = 1, 2 * most + 1 do
      local even = s % 2 == 0
      labels[i][s] = even and row[s // 2] or blank
      local repeated = even and s > 2 and row[s // 2] == row[s // 2 - 1]
      skip[i][s] = even and s > 2 and not repeated and 0.0 or NEVER
    end
  end
  return torch.tensor(labels), torch.tensor(skip)
end

-- x moved k places to the right
local function shifted(F, x, k)
  return F.pad(x, { k, 0 }, "constant", NEVER):narrow(1, 0, x:size(1))
end

local function likelihood(F, logp, labels, skip, input_lengths, target_lengths)
  local torch = require("torch")
  local n, width = labels:size(0), labels:size(1)
  local first = torch.full({ n, width }, NEVER, { dtype = logp.dtype })
  first[":, :2"] = 0.0
  local alpha, at_end = first + logp[0]:gather(1, labels), {}
  for t = 1, logp:size(0) do
    for i, length in ipairs(input_lengths) do
      at_end[i] = length == t and alpha[i - 1] or at_end[i]
    end
    if t < logp:size(0) then
      local ways = { alpha, shifted(F, alpha, 1), shifted(F, alpha, 2) + skip }
      alpha = torch.logsumexp(torch.stack(ways, 0), 0) + logp[t]:gather(1, labels)
    end
  end
  local out = {}
  for i, length in ipairs(target_lengths) do
    local last = at_end[i]:narrow(0, math.max(2 * length - 1, 0), length > 0 and 2 or 1)
    out[i] = -torch.logsumexp(last, 0)
  end
  return torch.stack(out, 0)
end

-- Zero, with the gradient exp(logp): PyTorch's gradient is the one that the
-- logits get, log_softmax's included, exp(logp) minus the posterior.
local function softmax_share(logp, input_lengths)
  local torch = require("torch")
  local steps = torch.arange(logp:size(0)):reshape({ -1, 1 })
  local used = steps:lt(torch.tensor(input_lengths):reshape({ 1, -1 })):to(logp.dtype)
  local sum = (logp:exp() * used:unsqueeze(2)):sum({ 0, 2 })
  return sum - sum:detach()
end

return function(F)
  local M = {}

  define(M, "ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, "
    .. "reduction='mean', zero_infinity=False)",
    function(logp, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
      local torch = require("torch")
      errors.check(logp:dim() == 2 or logp:dim() == 3, "RuntimeError",
        "ctc_loss: log_probs must have 2 or 3 dimensions, got %d", logp:dim())
      local single = logp:dim() == 2
      if single then
        logp = logp:unsqueeze(1)
        targets = targets:reshape({ 1, -1 })
      end
      input_lengths, target_lengths = lengths(input_lengths), lengths(target_lengths)
      input_lengths = type(input_lengths) == "number" and { input_lengths } or input_lengths
      target_lengths = type(target_lengths) == "number" and { target_lengths } or target_lengths
      errors.check(#input_lengths == logp:size(1) and #target_lengths == logp:size(1),
        "RuntimeError", "ctc_loss: input_lengths and target_lengths must be of size %d, got %d "
        .. "and %d", logp:size(1), #input_lengths, #target_lengths)
      for _, length in ipairs(input_lengths) do
        errors.check(length >= 1 and length <= logp:size(0), "RuntimeError",
          "ctc_loss: input_lengths must be from 1 to %d, got %d", logp:size(0), length)
      end
      errors.check(blank >= 0 and blank < logp:size(2), "RuntimeError",
        "ctc_loss: blank must be in label range 0 to %d, got %d", logp:size(2) - 1, blank)
      local labels, skip = extended(rows_of(targets, target_lengths), target_lengths, blank)
      local loss = likelihood(F, logp, labels, skip:to(logp.dtype), input_lengths,
        target_lengths) + softmax_share(logp, input_lengths)
      local impossible = loss:detach():gt(-NEVER / 2)
      loss = loss:masked_fill(impossible, zero_infinity and 0 or math.huge)
      if reduction == "mean" then
        local per = torch.tensor(target_lengths, { dtype = loss.dtype }):clamp_min(1)
        loss = loss / per
      end
      loss = single and reduction == "none" and loss:reshape({}) or loss
      return F._identity_loss(loss, reduction)
    end)

  return M
end
