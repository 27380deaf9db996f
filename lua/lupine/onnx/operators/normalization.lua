--- Normalisations of ONNX, and dropout.
---
--- Numbers at random are those of the one generator (torch.manual_seed): the attribute
--- `seed` does not act, as in PopART.
local batch_norm = require("lupine.onnx.batch_norm")
local torch = require("torch")
local F = require("torch.nn.functional")

-- ---- batches ---------------------------------------------------------------------------

local function of_population(n, ...)
  return batch_norm.run(n, false, ...)
end

local BATCH = "BatchNormalization(X, scale, B, mean, var; epsilon: float = 1e-5, %s) -> (%s)"
local OLD = "Y, mean?, var?, saved_mean?, saved_var?"
local STATISTICS = { buffers = { [4] = true, [5] = true } }

-- ---- others ----------------------------------------------------------------------------

-- Of an even size ONNX has the odd channel behind the one it is for, torch before it.
local function lrn(n, x)
  local even = n.attr.size % 2 == 0
  local y = F.local_response_norm(even and x:flip({ 1 }) or x, n.attr.size, n.attr.alpha,
    n.attr.beta, n.attr.bias)
  return even and y:flip({ 1 }) or y
end

local function lp_norm(n, x)
  local p = n.attr.p
  n:check(p == 1 or p == 2, "attribute 'p': got %d. Allowed: 1, 2", p)
  local norm = x:norm(p, n.attr.axis, { keepdim = true })
  return x / norm:masked_fill(norm:eq(0), 1)
end

local function layer_norm(n, x, scale, b)
  local axis = n.attr.axis < 0 and n.attr.axis + x:dim() or n.attr.axis
  n:check(axis >= 0 and axis < x:dim(), "attribute 'axis': %d is no dimension of the shape %s",
    n.attr.axis, tostring(x.shape))
  local over = { table.unpack(x.shape, axis + 1) }
  local y
  if tostring(scale.shape) == tostring(torch.Size(over))
      and (not b or tostring(b.shape) == tostring(scale.shape)) then
    y = F.layer_norm(x, over, scale, b, n.attr.epsilon)
  else
    y = F.layer_norm(x, over, nil, nil, n.attr.epsilon) * scale
    y = b and y + b or y
  end
  if not n:wants(2) and not n:wants(3) then
    return y
  end
  local dims = {}
  for d = axis, x:dim() - 1 do
    dims[#dims + 1] = d
  end
  local var, mean = torch.var_mean(x:float(), dims, { correction = 0, keepdim = true })
  return y, mean, (var + n.attr.epsilon):rsqrt()
end

-- ---- dropout ---------------------------------------------------------------------------

local function check_ratio(n, ratio)
  n:check(ratio >= 0 and ratio < 1, "ratio must be at least 0 and less than 1, got %s", ratio)
end

-- The type of the mask is that of the data before version 10.
local function masked(n, x, y, kept)
  return y, n.version < 10 and kept:to(x.dtype) or kept
end

local function dropout(n, x, ratio, trains)
  check_ratio(n, ratio)
  if not n:wants(2) then
    return F.dropout(x, ratio, trains)
  end
  local kept = F.dropout(torch.ones_like(x):detach(), ratio, trains)
  return masked(n, x, trains and x * kept or x, kept:gt(0))
end

-- The same where only a run of the program knows whether it drops, or how many.
local function dropout_by(n, x, ratio, trains)
  ratio = ratio and ratio:to(torch.float32):reshape({}) or torch.tensor(0.5)
  local kept = torch.rand(x.shape):ge(ratio):logical_or(trains:logical_not())
  local factor = torch.where(trains, 1 / (1 - ratio), torch.ones({}))
  return masked(n, x, x * (kept * factor):to(x.dtype), kept)
end

local function dropout_12(n, x, ratio, trains)
  if not trains or n:knows(3) then
    local drops = n.training or trains and n:number(3) ~= false and n:number(3) ~= 0
    local knows = not ratio or n:knows(2)
    if not drops and not knows then
      return dropout(n, x, 0, false)
    elseif knows then
      return dropout(n, x, n:number(2) or 0.5, drops or false)
    end
  end
  return dropout_by(n, x, ratio, n.training and torch.tensor(true)
    or trains:reshape({}):to(torch.bool))
end

return function(op)
  op(BATCH:format("is_test: int = 0, momentum: float = 0.9, spatial: int = 1", OLD), 6,
    of_population, STATISTICS)
  op(BATCH:format("momentum: float = 0.9, spatial: int = 1", OLD), 7, of_population, STATISTICS)
  op(BATCH:format("momentum: float = 0.9", OLD), 9, of_population, STATISTICS)
  op(BATCH:format("momentum: float = 0.9, training_mode: int = 0", "Y, running_mean?, running_var?")
    :gsub("mean, var;", "input_mean, input_var;"), { 14, 15 }, of_population,
    STATISTICS)

  op("InstanceNormalization(input, scale, B; epsilon: float = 1e-5) -> (output)", { 1, 6 },
    function(n, x, scale, b)
      batch_norm.check_operands(n, torch.Size({ x:size(1) }), scale, b)
      return F._instance_norm_train(x, scale, b, n.attr.epsilon)
    end)
  op("LRN(X; size: int!, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0) -> (Y)",
    { 1, 13 }, lrn)
  op("LpNormalization(input; axis: int = -1, p: int = 2) -> (output)", 1, lp_norm)
  op("MeanVarianceNormalization(X; axes: ints = [0 2 3]) -> (Y)", { 9, 13 }, function(n, x)
    local d = x - x:mean(n.attr.axes, { keepdim = true })
    return d / ((d * d):mean(n.attr.axes, { keepdim = true }):sqrt() + 1e-9)
  end)
  op("LayerNormalization(X, Scale, B?; axis: int = -1, epsilon: float = 1e-5, "
    .. "stash_type: int = 1) -> (Y, Mean?, InvStdDev?)", 17, layer_norm)

  op("Dropout(data; is_test: int = 0, ratio: float = 0.5) -> (output, mask?)", { 1, 6 },
    function(n, x)
      return dropout(n, x, n.attr.ratio, n.training and n.attr.is_test == 0)
    end, { random = true })
  op("Dropout(data; ratio: float = 0.5) -> (output, mask?)", { 7, 10 }, function(n, x)
    return dropout(n, x, n.attr.ratio, n.training)
  end, { random = true })
  op("Dropout(data, ratio?, training_mode?; seed: int) -> (output, mask?)", { 12, 13 },
    dropout_12, { random = true, constants = { [2] = true, [3] = true } })
end
