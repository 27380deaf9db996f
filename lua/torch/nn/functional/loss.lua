--- Losses that are made of operators. Each ends in `_identity_loss`, which
--- reduces and tells a compiler where the loss is.
---
--- source: the formulas of the PyTorch documentation of each loss
local check = require("lupine.base.check")
local core = require("lupine.core")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")
local warn = require("lupine.base.warn")

local OLD = "size_average=None, reduce=None, reduction='mean'"

-- size_average and reduce are the older spelling of reduction.
local function reduction_of(size_average, reduce, reduction)
  if size_average == nil and reduce == nil then
    return reduction
  elseif reduce == false then
    return "none"
  end
  return size_average == false and "sum" or "mean"
end

-- An argument by position or in the last table.
local function argument(i, name, ...)
  local value, last = (select(i, ...)), (select(-1, nil, ...))
  return type(value) == "userdata" and value or type(last) == "table" and last[name] or nil
end

local function warn_sizes(name, ...)
  local input, target = argument(1, "input", ...), argument(2, "target", ...)
  if core.is_tensor(input) and core.is_tensor(target) and not input:is_same_size(target) then
    warn("%s: the target's size %s differs from the input's %s: they are broadcast, which is "
      .. "likely not meant", name, tostring(target.shape), tostring(input.shape))
  end
end

local function warn_mean(name, ...)
  local last = select(-1, ...)
  local how = type(last) == "table" and last.reduction or (select(5, ...))
  if how == nil and (select(3, ...)) == nil or how == "mean" then
    warn("%s: reduction 'mean' divides by the number of elements; 'batchmean', by the size of the "
      .. "batch, is the Kullback-Leibler divergence", name)
  end
end

-- Operators whose arguments are looked at first.
local WARNED = {
  ["mse_loss(input, target, " .. OLD .. ", weight=None)"] = warn_sizes,
  ["l1_loss(input, target, " .. OLD .. ", weight=None)"] = warn_sizes,
  ["smooth_l1_loss(input, target, " .. OLD .. ", beta=1.0)"] = warn_sizes,
  ["huber_loss(input, target, reduction='mean', delta=1.0, weight=None)"] = warn_sizes,
  ["kl_div(input, target, " .. OLD .. ", log_target=False)"] = warn_mean,
}

-- Losses of each element times a weight: fn(a, plain) gives them without it and
-- the reduction. Their mean is by the sum of the weights, huber_loss's by their
-- number.
local WEIGHTED = {
  mse_loss = function(a)
    return (a[1] - a[2]):square(), reduction_of(a[3], a[4], a[5])
  end,
  l1_loss = function(a)
    return (a[1] - a[2]):abs(), reduction_of(a[3], a[4], a[5])
  end,
  huber_loss = function(a, plain)
    return plain(a[1], a[2], "none", a[4]), a[3], true
  end,
}

local function weighted(name, a, plain, final)
  local weight = a[a.n]
  errors.check(core.is_tensor(weight) and weight:is_same_size(a[1]), "ValueError",
    "%s: Weights and input must have the same size.", name)
  local values, how, by_number = WEIGHTED[name](a, plain)
  values = values * weight
  if how == "mean" and not by_number then
    values, how = values / weight:sum(), "sum"
  end
  return final(values, how)
end

local function define_warned(M, F, sig, look)
  local name, at = sig:match("^[%w_]+"), nil
  local plain, parsed = F[name], signature(sig)
  for i, parameter in ipairs(parsed.names) do
    at = parameter == "weight" and i or at
  end
  M[name] = function(...)
    local n, last = select("#", ...), (select(-1, nil, ...))
    if n > 0 then
      look(name, ...)
    end
    if at and (n >= at or type(last) == "table" and last.weight ~= nil) then
      local a = parsed:list(...)
      if a[a.n] ~= nil and not check.is_none(a[a.n]) then
        return weighted(name, a, plain, F._identity_loss)
      end
      return plain(table.unpack(a, 1, a.n - 1))
    end
    return plain(...)
  end
  signatures.note(M[name], sig)
end

local function check_margin(name, margin)
  errors.check(margin > 0, "ValueError", "%s: margin must be greater than 0, got %s", name,
    tostring(margin))
end

return function(F)
  local M = {}
  local final = F._identity_loss

  -- name(inputs…, options…, OLD): fn(values) gives the unreduced loss
  local function loss(head, fn)
    define(M, head:gsub("@", OLD), function(...)
      local a = table.pack(...)
      local how = reduction_of(a[a.n - 2], a[a.n - 1], a[a.n])
      return final(fn(table.unpack(a, 1, a.n - 3)), how)
    end)
  end

  for sig, look in pairs(WARNED) do
    define_warned(M, F, sig, look)
  end

  -- Values are checked where there are some.
  local function readable(t)
    return core.is_tensor(t) and t:numel() > 0 and not t.is_meta and not core.is_tracing()
  end

  local plain = F.binary_cross_entropy
  define(M, "binary_cross_entropy(input, target, weight=None, " .. OLD .. ")",
    function(input, ...)
      local out = plain(input, ...) -- which checks shapes and types
      errors.check(input:is_floating_point(), "NotImplementedError",
        "binary_cross_entropy: `input` must be a floating point tensor, got %s",
        tostring(input.dtype))
      if readable(input) then
        local x = input:detach()
        errors.check(x:min():item() >= 0 and x:max():item() <= 1, "RuntimeError",
          "binary_cross_entropy: all elements of input should be between 0 and 1; for scores "
          .. "without a sigmoid there is binary_cross_entropy_with_logits")
      end
      return out
    end)

  loss("cosine_embedding_loss(input1, input2, target, margin=0.0, @)",
    function(x1, x2, target, margin)
      errors.check(x1:dim() == x2:dim() and target:dim() == x1:dim() - 1, "RuntimeError",
        "cosine_embedding_loss: inputs of shapes %s and %s need targets of one dimension less, "
        .. "got %s", tostring(x1.shape), tostring(x2.shape), tostring(target.shape))
      local dim = x1:dim() - 1
      local function squares(a, b)
        return (a * b):sum(dim)
      end
      local tiny = 1e-12
      local cos = squares(x1, x2)
        / ((squares(x1, x1) + tiny) * (squares(x2, x2) + tiny)):sqrt()
      local same = require("torch").where(target:eq(1), 1 - cos, cos * 0)
      return same + require("torch").where(target:eq(-1), (cos - margin):clamp_min(0), cos * 0)
    end)

  loss("triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, "
    .. "@)", function(anchor, positive, negative, margin, p, eps, swap)
    check_margin("triplet_margin_loss", margin)
    local near = F.pairwise_distance(anchor, positive, p, eps)
    local far = F.pairwise_distance(anchor, negative, p, eps)
    if swap then
      far = far:minimum(F.pairwise_distance(positive, negative, p, eps))
    end
    return (near - far + margin):clamp_min(0)
  end)

  define(M, "triplet_margin_with_distance_loss(anchor, positive, negative, "
    .. "distance_function=None, margin=1.0, swap=False, reduction='mean')",
    function(anchor, positive, negative, distance, margin, swap, reduction)
      check_margin("triplet_margin_with_distance_loss", margin)
      distance = check.callable(distance or F.pairwise_distance,
        "triplet_margin_with_distance_loss(): distance_function")
      local near, far = distance(anchor, positive), distance(anchor, negative)
      if swap then
        far = far:minimum(distance(positive, negative))
      end
      return final((near - far + margin):clamp_min(0), reduction)
    end)

  -- One variance for each element, or for each row of a dimension: the last, if
  -- var lacks it, or one in which it has the size 1.
  local function variance_like(var, input)
    local n, other, at = input:dim(), 0, 0
    if var:dim() == n - 1 then
      var = var:unsqueeze(-1)
    end
    for d = 0, var:dim() == n and n - 1 or -1 do
      if var:size(d) ~= input:size(d) then
        other, at = other + 1, d
      end
    end
    errors.check(var:dim() == n and (other == 0 or other == 1 and var:size(at) == 1), "ValueError",
      "gaussian_nll_loss: var is of incorrect size %s for an input of shape %s",
      tostring(var.shape), tostring(input.shape))
    return var
  end

  define(M, "gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction='mean')",
    function(input, target, var, full, eps, reduction)
      if not core.is_tensor(var) then
        var = require("torch").full_like(input, var)
      end
      var = variance_like(var, input)
      errors.check(not readable(var) or var:detach():min():item() >= 0, "ValueError",
        "gaussian_nll_loss: var has negative entry/entries")
      local bound = var + (var:detach():clamp_min(eps) - var:detach()) -- no gradient of the bound
      local x = (bound:log() + (input - target):square() / bound) * 0.5
      if full then
        x = x + 0.5 * math.log(2 * math.pi)
      end
      return final(x, reduction)
    end)

  -- rows [N, C] and whether the input was one row
  local function rows(x)
    return x:dim() < 2 and x:reshape({ 1, x:numel() }) or x, x:dim() < 2
  end

  -- the same of scores, of which a row must have one at least
  local function scores(x, where)
    errors.check(x:dim() <= 2, "RuntimeError",
      "%s: expected an input of 2 dimensions or fewer, got %d", where, x:dim())
    local r, single = rows(x)
    errors.check(r:size(1) > 0, "RuntimeError",
      "%s: expected rows of one class or more, got an input of shape %s", where, tostring(x.shape))
    return r, single
  end

  loss("multi_margin_loss(input, target, p=1, margin=1.0, weight=None, @)",
    function(input, target, p, margin, weight)
      errors.check(p == 1 or p == 2, "ValueError", "multi_margin_loss: only p == 1 and p == 2 are "
        .. "supported, got %s", tostring(p))
      errors.check(weight == nil or weight:dim() == 1, "ValueError",
        "multi_margin_loss: weight must be one-dimensional, got shape %s",
        weight and tostring(weight.shape))
      local x, single = scores(input, "multi_margin_loss")
      local index = target:reshape({ -1, 1 })
      local z = (x:gather(1, index) * -1 + x + margin):clamp_min(0)
      z = p == 2 and z * z or z
      if weight then
        z = z * weight:index_select(0, index:reshape({ -1 })):unsqueeze(1)
      end
      z = z:scatter(1, index, 0.0):sum(1) / x:size(1)
      return single and z:reshape(target.shape) or z
    end)

  define(M, "linear_cross_entropy(input, linear_weight, target, linear_bias=None, weight=None, "
    .. "reduction='mean', ignore_index=None, label_smoothing=0.0, options=None)",
    function(input, w, target, bias, weight, reduction, ignore_index, smoothing, options)
      local name = "linear_cross_entropy"
      errors.check(options == nil, "NotImplementedError",
        "%s: options: the logits are computed at once; only None is allowed", name)
      errors.check(input:dim() == 1 or input:dim() == 2, "RuntimeError",
        "%s: expected input with dimensionality 1 or 2, got %d", name, input:dim())
      errors.check(w:dim() >= 2, "RuntimeError",
        "%s: expected linear_weight with dimensionality at least 2, got %d", name, w:dim())
      errors.check(w:size(-1) == input:size(-1), "RuntimeError",
        "%s: expected equal input and linear_weight last dimensions (in_features), got %d and %d, "
        .. "respectively", name, input:size(-1), w:size(-1))
      errors.check(w:dim() == 2 or input:dim() == 2, "RuntimeError",
        "%s: K-dimensional loss defined by linear_weight shape %s requires batched input, got "
        .. "shape %s", name, tostring(w.shape), tostring(input.shape))
      local classes = { table.unpack(w.shape, 1, w:dim() - 1) }
      local shape = { table.unpack(classes) }
      errors.check(bias == nil or bias.shape == core.Size(classes), "RuntimeError",
        "%s: expected linear_bias shape %s, got %s", name, tostring(core.Size(classes)),
        bias and tostring(bias.shape))
      if input:dim() == 2 then
        table.insert(shape, 1, input:size(0))
      end
      errors.check(ignore_index == nil or target.shape ~= core.Size(shape), "RuntimeError",
        "%s: ignore_index cannot be specified when target contains probabilities", name)
      local logits = F.linear(input, w:reshape({ -1, w:size(-1) }), bias and bias:reshape({ -1 }))
      return F.cross_entropy(logits:reshape(shape), target, { weight = weight,
        reduction = reduction, ignore_index = ignore_index or -100, label_smoothing = smoothing })
    end)

  loss("multilabel_soft_margin_loss(input, target, weight=None, @)",
    function(input, target, weight)
      local x = (target * F.logsigmoid(input) + (1 - target) * F.logsigmoid(-input)) * -1
      if weight then
        x = x * weight
      end
      local classes = input:dim() - 1 -- a target may have more dimensions
      return x:sum(classes) / input:size(classes)
    end)

  -- Targets are class ids up to the first -1 of a row.
  loss("multilabel_margin_loss(input, target, @)", function(input, target)
    local torch = require("torch")
    local x, single = scores(input, "multilabel_margin_loss")
    errors.check(single and target:dim() <= 1 and target:numel() == input:numel()
      or target:is_same_size(input), "RuntimeError",
      "multilabel_margin_loss: inconsistent target size: %s for input of size: %s",
      tostring(target.shape), tostring(input.shape))
    local ids = rows(target)
    local valid = ids:ge(0):to(torch.int64):cumprod(1)
    local index = ids:clamp_min(0)
    local is_target = torch.zeros(x.shape, { dtype = torch.int64 })
      :scatter_add(1, index, valid):gt(0):to(x.dtype)
    local own = x:gather(1, index):unsqueeze(2) -- [N, T, 1]
    local z = (x:unsqueeze(1) - own + 1):clamp_min(0)
    z = z * valid:to(x.dtype):unsqueeze(2) * (1 - is_target):unsqueeze(1)
    z = z:sum({ 1, 2 }) / x:size(1)
    return single and z:reshape({}) or z
  end)

  return M
end
