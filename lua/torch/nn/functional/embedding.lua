--- embedding with the options that change weights or gradients, and
--- embedding_bag.
local check = require("lupine.base.check")
local core = require("lupine.core")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")
local warn = require("lupine.base.warn")

return function(F)
  local M = {}
  local rows = F.embedding

  -- Rows that are looked up and longer than max_norm are scaled to it. The
  -- gradient is that of the scaled rows: a program, which knows no leaves, has
  -- the new weight as a constant beside a zero with the weight's gradient.
  local function renormalise(weight, ids, max_norm, norm_type)
    local torch = require("torch")
    local old, used = weight:detach(), ids:reshape({ -1 }):to(torch.int64)
    local w = old:index_select(0, used)
    local norm = w:norm(norm_type, 1, { keepdim = true })
    local scaled = w * torch.where(norm:gt(max_norm), (norm + 1e-7):reciprocal() * max_norm,
      torch.ones_like(norm))
    local new -- of a row that is used twice both values are the same
    if core.is_tracing() then
      core.trace_scales(weight)
      new = old:index_copy(0, used, scaled):detach() + (weight - old)
    end
    torch.no_grad(function()
      if new then
        weight:copy_(new)
      else
        weight:index_copy_(0, used, scaled)
      end
    end)
  end

  define(M, "embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, "
    .. "scale_grad_by_freq=False, sparse=False)",
    function(input, weight, padding_idx, max_norm, norm_type, by_frequency, sparse)
      errors.check(not sparse, "NotImplementedError",
        "embedding: sparse: there are no sparse gradients")
      if max_norm then
        renormalise(weight, input, max_norm, norm_type)
      end
      local out = padding_idx and rows(input, weight, padding_idx) or rows(input, weight)
      if by_frequency and (out.requires_grad or core.is_traced(out)) then
        -- the same values; each row's gradient is divided by its count
        local torch = require("torch")
        local flat = input:reshape({ -1 })
        local counts = torch.zeros({ weight:size(0) }, { dtype = out.dtype })
          :index_add(0, flat, torch.ones({ flat:numel() }, { dtype = out.dtype }))
        local share = counts:index_select(0, flat):reciprocal():reshape(input.shape):unsqueeze(-1)
        out = out * share + out:detach() * (1 - share)
      end
      return out
    end)

  -- -1: one more than the largest class, which only an eager call can know
  local one_hot = F.one_hot
  define(M, "one_hot(input, num_classes=-1)", function(input, num_classes)
    if num_classes == -1 then
      return one_hot(input)
    end
    return one_hot(input, num_classes)
  end)

  -- First index of each bag and the number of bags -> the bag of each index.
  local function bag_of(offsets, n)
    local torch = require("torch")
    local marks = torch.zeros({ n + 1 }, { dtype = torch.int64 })
    marks = marks:index_add(0, offsets, torch.ones_like(offsets))
    return (marks:cumsum(0) - 1):narrow(0, 0, n)
  end

  -- Of `n` indices; in a trace the offsets have no values.
  local function check_offsets(offsets, n)
    local line = core.is_tensor(offsets) and offsets:dim() == 1
    errors.check(line, "ValueError", "embedding_bag: offsets: expected a tensor of 1 dimension "
      .. "for an input of 1 dimension, got %s", line or check.describe(offsets))
    local kind = tostring(offsets.dtype)
    errors.check(kind == "torch.int64" or kind == "torch.int32", "RuntimeError",
      "embedding_bag: offsets: expected dtype int32 or int64, got %s", kind)
    if core.is_traced(offsets) or offsets.is_meta or offsets:size(0) == 0 then
      return
    end
    local first, last = offsets[0]:item(), offsets[-1]:item()
    errors.check(first == 0, "RuntimeError",
      "embedding_bag: offsets[0] has to be 0, where the first bag begins, got %d", first)
    errors.check(last <= n, "RuntimeError",
      "embedding_bag: the last offset can not be greater than the number of indices, %d, got %d",
      n, last)
  end

  local function reduce(x, bag, n_bags, mode)
    local torch = require("torch")
    local zeros = torch.zeros({ n_bags, x:size(1) }, { dtype = x.dtype })
    if mode ~= "max" then
      return zeros:index_add(0, bag, x)
    end
    return zeros:scatter_reduce(0, bag:unsqueeze(1):expand_as(x), x, "amax",
      { include_self = false })
  end

  -- One operator reads each row once. What it has no gradient for, or would convert,
  -- and traces, whose programs have passes for rows by index, go by rows.
  local function at_once(flat, weight, offsets, mode, per_sample, include_last, padding_idx)
    local kind = tostring(weight.dtype)
    if core.is_tracing() or weight:dim() ~= 2 or flat.is_meta or weight.is_meta
      or (kind ~= "torch.float32" and kind ~= "torch.float64")
      or (per_sample and (per_sample.requires_grad or per_sample.dtype ~= weight.dtype)) then
      return nil
    elseif mode == "max" then
      return (core.forms.internal.embedding_bag_max(weight, flat, offsets, include_last,
        padding_idx))
    end
    return core.forms.internal.embedding_bag_sum(weight, flat, offsets, per_sample, include_last,
      padding_idx, mode == "mean")
  end

  define(M, "embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, "
    .. "scale_grad_by_freq=False, mode='mean', sparse=False, per_sample_weights=None, "
    .. "include_last_offset=False, padding_idx=None)",
    function(input, weight, offsets, max_norm, norm_type, by_frequency, mode, sparse, per_sample,
             include_last, padding_idx)
      if input:is_floating_point() and not weight:is_floating_point() then
        warn("embedding_bag: embedding_bag(weight, input, …) is the deprecated "
          .. "order of its arguments, now it is embedding_bag(input, weight, …)")
        input, weight = weight, input
      end
      errors.check(mode == "sum" or mode == "mean" or mode == "max", "ValueError",
        "embedding_bag: mode has to be one of sum, mean or max, got %s", tostring(mode))
      errors.check(not per_sample or mode == "sum", "NotImplementedError",
        "embedding_bag: per_sample_weights was given, but mode is %s: only sum takes them", mode)
      local torch = require("torch")
      if input:dim() == 2 then
        errors.check(not offsets, "ValueError",
          "embedding_bag: offsets must be nil when input has 2 dimensions")
        offsets = torch.arange(0, input:numel(), input:size(1))
        per_sample = per_sample and per_sample:reshape({ -1 })
      end
      errors.check(input:dim() == 1 or input:dim() == 2, "ValueError",
        "embedding_bag: input has to have 1 or 2 dimensions, got %d", input:dim())
      check_offsets(offsets, input:numel())
      errors.check(not per_sample or per_sample:numel() == input:numel(), "ValueError",
        "embedding_bag: per_sample_weights must have the shape of input, got %s and %s",
        per_sample and tostring(per_sample.shape), tostring(input.shape))
      local flat, n_bags = input:reshape({ -1 }), offsets:size(0) - (include_last and 1 or 0)
      local whole = not max_norm and not by_frequency and not sparse and at_once(flat, weight,
        offsets, mode, per_sample, include_last, padding_idx)
      if whole then
        return whole
      end
      offsets = offsets:to(torch.int64)
      local bag = bag_of(offsets, flat:numel())
      local bins = offsets:size(0) -- what follows the last offset is no bag, then
      if padding_idx then -- those rows go to one more bag, which is dropped
        local n = weight:size(0)
        errors.check(padding_idx >= -n and padding_idx < n, "RuntimeError",
          "embedding_bag: padding_idx must be from %d to %d, got %d", -n, n - 1, padding_idx)
        padding_idx = padding_idx % n
        bag, bins = bag:masked_fill(flat:eq(padding_idx), n_bags), n_bags + 1
      end
      local x = M.embedding(flat, weight, padding_idx, max_norm, norm_type, by_frequency, sparse)
      if per_sample then
        x = x * per_sample:unsqueeze(1)
      end
      local out = reduce(x, bag, bins, mode)
      if mode == "mean" then
        local ones = torch.ones({ flat:numel() }, { dtype = out.dtype })
        local count = torch.zeros({ bins }, { dtype = out.dtype }):index_add(0, bag, ones)
        out = out / count:clamp_min(1):unsqueeze(1)
      end
      return bins > n_bags and out:narrow(0, 0, n_bags) or out
    end)

  return M
end
