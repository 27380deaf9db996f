--- Operators of the domain ai.graphcore for neural networks.
--- source: PopART, builder.hpp (AiGraphcoreOpset1) and willow/src/op
local torch = require("torch")
local batch_norm = require("lupine.onnx.batch_norm")
local core = require("lupine.core")
local spline = require("torch_spline_conv")
local windows = require("lupine.onnx.windows")
local F = require("torch.nn.functional")

-- ---- normalisations ----------------------------------------------------------------------

-- Y and, flat by batch and group, means and inverse standard deviations.
local function group_norm(n, x, scale, b)
  local groups, eps = n.attr.num_groups, n.attr.epsilon
  n:check(groups > 0 and x:size(1) % groups == 0, "attribute 'num_groups': %d channels have no %d "
    .. "groups of one size", x:size(1), groups)
  local y = F.group_norm(x, groups, scale, b, eps)
  if not n:wants(2) and not n:wants(3) then
    return y
  end
  local var, mean = torch.var_mean(x:detach():reshape({ x:size(0) * groups, -1 }), 1,
    { correction = 0 })
  return y, mean, (var + eps):rsqrt()
end

local function normalize_image(n, x, offsets, scales)
  n:check(x:dim() >= 2 and x:size(-1) == 3, "the inner dimension must be 3 (channels), got the "
    .. "shape %s", tostring(x.shape))
  n:check(math.abs(n.attr.scale) >= 1.2e-7, "attribute 'scale' must not be 0")
  local dtype = x.dtype == torch.uint8 and torch.float16 or x.dtype
  local y = (x:to(dtype) * n.attr.scale - offsets:to(dtype)) * scales:to(dtype)
  return F.pad(y, { 0, 1 }) -- the device's convolutions want four channels
end

-- ---- convolutions side by side -----------------------------------------------------------

-- The part of a list that belongs to one convolution; `at` counts what went before.
local function part(list, at, count, usual)
  local out = {}
  for i = 1, count do
    out[i] = list and list[at + i] or usual
  end
  return out
end

-- With zeros between the places of each dimension.
local function stretched(x, dilations)
  for i, d in ipairs(dilations) do
    if d > 1 then
      local zeros = { table.unpack(x.shape) }
      table.insert(zeros, i + 3, d - 1)
      x = torch.cat({ x:unsqueeze(i + 2), torch.zeros(zeros, { dtype = x.dtype }) }, i + 2)
        :flatten(i + 1, i + 2):narrow(i + 1, 0, (x:size(i + 1) - 1) * d + 1)
    end
  end
  return x
end

-- source: PopART, willow/src/op/convbase.cpp, for inDilations and outPads
local function convolution(n, x, w, b, at)
  local dims, a = x:dim() - 2, n.attr
  local groups = x:size(1) // w:size(1)
  local y = F[("conv%dd"):format(dims)](stretched(x, part(a.inDilations, at, dims, 1)), w, b,
    part(a.strides, at, dims, 1), part(a.pads, 2 * at, 2 * dims, 0),
    part(a.dilations, at, dims, 1), groups)
  return a.outPads and F.pad(y, windows.reversed(dims, part(a.outPads, 2 * at, 2 * dims, 0))) or y
end

local function check_plan(n)
  local plan, back_off = n.attr.planType or "parallel", n.attr.cycleBackOff or 0
  n:check(plan == "parallel" or plan == "serial", "attribute 'planType' is '%s'. Allowed: "
    .. "'parallel', 'serial'", plan)
  n:check(back_off >= 0 and back_off <= 1, "attribute 'cycleBackOff' is %g. Allowed: 0 to 1",
    back_off)
  n:check((n.attr.perConvReservedTiles or 0) >= 0, "attribute 'perConvReservedTiles' is %d. "
    .. "Allowed: 0 and more", n.attr.perConvReservedTiles)
end

local function multi_conv(n, ...)
  local count, given = #n.outputs, table.pack(...)
  check_plan(n)
  n:check(n.attr.numConvs == count, "attribute 'numConvs' is %d, there are %d outputs",
    n.attr.numConvs, count)
  n:check(given.n == 3 * count, "%d convolutions take %d inputs (data, weight, bias or nothing), "
    .. "got %d", count, 3 * count, given.n)
  local out, at = {}, 0
  for i = 1, count do
    local x = given[3 * i - 2]
    out[i] = convolution(n, x, given[3 * i - 1], given[3 * i], at)
    at = at + x:dim() - 2
  end
  return table.unpack(out)
end

-- ---- LSTM --------------------------------------------------------------------------------
-- X [T, B, I], weights [4, I + H, H] of the gates f i c o, biases [4, H], first state
-- [2, B, H] (output, cell).

local function gates(t)
  local f, i, c, o = table.unpack(t:chunk(4, 0))
  return torch.cat({ i, f, c, o }, 0)
end

local function lstm(n, x, weights, biases, state)
  n:check(x:dim() == 3 and weights:dim() == 3 and weights:size(0) == 4, "expected an input of 3 "
    .. "dimensions and weights of the shape (4, input + hidden, hidden), got %s and %s",
    tostring(x.shape), tostring(weights.shape))
  local size, hidden = x:size(2), weights:size(2)
  n:check(weights:size(1) == size + hidden, "weights: expected size %d of dimension 1, got %d",
    size + hidden, weights:size(1))
  local turned = gates(weights):transpose(1, 2)
  local function rows(from, count)
    return turned:narrow(2, from, count):reshape({ 4 * hidden, count })
  end
  local bias = biases and gates(biases):reshape({ -1 }) or torch.none
  local y, h, c = F._lstm_layer(x, state and state[0] or torch.none,
    state and state[1] or torch.none, rows(0, size), rows(size, hidden), bias,
    biases and torch.zeros_like(bias) or torch.none, torch.none, false)
  return n.attr.outputFullSequence ~= 0 and y or h, c
end

-- ---- dropout -----------------------------------------------------------------------------

-- One draw for all elements that share a place of `shape`, as in broadcasts.
local function shaped_dropout(n, x)
  local ratio, shape = n.attr.ratio, n.attr.shape
  n:check(ratio >= 0 and ratio < 1, "attribute 'ratio': got %g. Allowed: from 0 up to, without, 1",
    ratio)
  for i = 1, #shape do
    local size = shape[#shape + 1 - i]
    n:check(i <= x:dim() and (size == 1 or size == x:size(-i)), "the shape [%s] is not "
      .. "broadcastable to the input's, %s", table.concat(shape, ", "), tostring(x.shape))
  end
  if not n.training then
    return x
  end
  return x * F.dropout(torch.ones(shape, { dtype = x.dtype }), ratio, true)
end

-- ---- splines -----------------------------------------------------------------------------

local function spline_basis(n, pseudo, sizes, open)
  local degree = n.attr.degree
  n:check(degree >= 0 and degree <= 3, "degree = %d is not valid: must be between 0 and 3", degree)
  n:check(pseudo:dim() == 2, "pseudo must have 2 dimensions, got the shape %s",
    tostring(pseudo.shape))
  for name, t in pairs({ kernel_size = sizes, is_open_spline = open }) do
    n:check(t:dim() == 1 and t:size(0) == pseudo:size(1), "%s: expected the shape [%d], got %s",
      name, pseudo:size(1), tostring(t.shape))
  end
  local basis, places = spline._basis(pseudo, sizes, open, degree)
  return basis, places:to(torch.int32)
end

-- ---- losses --------------------------------------------------------------------------------
-- Each ends in the mark of a final loss, which reduces it.

local REDUCTIONS = { Sum = "sum", Mean = "mean", None = "none", NoReduction = "none" }

local function reduction(n)
  return n:check(REDUCTIONS[n.attr.reduction], "attribute 'reduction': got '%s'. Allowed: Sum, "
    .. "Mean, None", n.attr.reduction)
end

-- The logarithm of probabilities that may be 0; source: PopART, popx/op/nllx.cpp.
local function safe_log(p)
  local half = p.dtype == torch.float16
  local inverse = (p + (p:clamp_min(half and 6.104e-5 or 1e-10) - p):detach()):log()
  local value = p:detach():clamp_min(half and 6.104e-5 or 1e-7):log()
  return value + (inverse - inverse:detach())
end

-- The same of the softmax of scores, at the labels: its gradient is p - 1 at the label and p
-- elsewhere even where p is 0. source: PopART, patterns/softmaxgraddirect.cpp
local function log_of_scores(scores, at)
  local half = scores.dtype == torch.float16
  local logs = torch.log_softmax(scores, -1):gather(-1, at):clamp_min(-6e4) -- finite
  local value = logs:detach():clamp_min(math.log(half and 6.104e-5 or 1e-7))
  return value + (logs - logs:detach())
end

-- The mean is over the labels that count; it is 0 if there is none.
local function nll(n, p, labels)
  n:check(p:dim() == labels:dim() + 1, "probabilities of %d dimensions take labels of %d, got %d",
    p:dim(), p:dim() - 1, labels:dim())
  local how, ignored = reduction(n), n.attr.ignoreIndex
  labels = labels:to(torch.int64)
  local counts = ignored and labels:ne(ignored)
  if counts then
    labels = labels:masked_fill(counts:logical_not(), 0)
  end
  local at, scores = labels:unsqueeze(-1), n:scores(1)
  local loss
  if n.attr.inputIsLogProbability ~= 0 then
    loss = p:gather(-1, at)
  else
    loss = scores and log_of_scores(scores, at) or safe_log(p:gather(-1, at))
  end
  loss = -loss:squeeze(-1)
  if not counts then
    return F._identity_loss(loss, how)
  end
  loss = loss:masked_fill(counts:logical_not(), 0)
  if how == "mean" then
    loss = loss:sum() / counts:to(torch.float32):sum():clamp_min(1):to(loss.dtype)
    how = "none"
  end
  return F._identity_loss(loss, how)
end

local function ctc(n, logp, targets, input_lengths, target_lengths)
  local dtype = n.attr.outDataType
  n:check(dtype == 0 or dtype == 1 or dtype == 10, "attribute 'outDataType': got %d. Allowed: 1 "
    .. "(FLOAT), 10 (FLOAT16), 0 (that of the input)", dtype)
  local loss = F.ctc_loss(logp, targets, input_lengths, target_lengths, n.attr.blank, reduction(n),
    n.attr.zeroInfinity ~= 0)
  return dtype == 0 and loss or loss:to(dtype == 1 and torch.float32 or torch.float16)
end

local function losses(op)
  op("L1(A; lambda: float!, reduction: string = 'Mean') -> (C)", 1, function(n, x)
    n:check(x:dim() > 0, "it is not valid for a tensor of no dimensions")
    return F._identity_loss(x:abs() * n.attr.lambda, reduction(n))
  end)
  op("Nll(A, B; reduction: string = 'Mean', ignoreIndex: int, inputIsLogProbability: int = 0) "
    .. "-> (C)", 1, nll)
  op("IdentityLoss(A; reduction: string = 'Mean') -> (B)", 1, function(n, x)
    return F._identity_loss(x, reduction(n))
  end)
  op("Ctc(logProbs, targets, inputLengths, targetLengths; reduction: string = 'Mean', "
    .. "blank: int = 0, outDataType: int = 0, zeroInfinity: int = 0) -> (ctcLoss, "
    .. "ctcLossGrad?)", 1, ctc, { internal = { [2] = true } })
  op("CtcBeamSearchDecoder(logProbs, dataLengths; blank: int = 0, beam_width: int = 100, "
    .. "top_paths: int = 1) -> (labelProbs, labelLengths, decodedLabels)", 1,
    function(n, logp, lengths)
      return core.forms.internal.ctc_beam_search_decoder(logp, lengths, n.attr.blank,
        n.attr.beam_width, n.attr.top_paths)
    end)
end

local PLAN = "planType: string, perConvReservedTiles: int, cycleBackOff: float"

local function layers(op)
  -- unbiased_variance says nothing, as in PopART: it always is
  op("BatchNormalization(X, scale, B, mean, var; epsilon: float = 1e-5, momentum: float = 0.9, "
    .. "unbiased_variance: int = 0) -> (Y, mean?, var?, saved_mean?, saved_var?)", 1,
    function(n, ...)
      return batch_norm.run(n, true, ...)
    end, { buffers = { [4] = true, [5] = true } })
  op("GroupNormalization(X, scale, B; num_groups: int!, epsilon: float = 1e-5) -> (Y, mean, "
    .. "invStdDev)", 1, group_norm)
  op("NormalizeImage(image, offsets, scales; scale: float = 1.0) -> (output)", 1, normalize_image)
  op("MultiConv(inputs...?; dilations: ints, inDilations: ints, pads: ints, outPads: ints, "
    .. "strides: ints, " .. PLAN .. ", numConvs: int!) -> (outputs...)", 1, multi_conv)
  op("LSTM(X, Weights, Bias?, InitiState?; outputFullSequence: int = 1) -> (Output, CellState)",
    1, lstm)
  op("ShapedDropout(data; shape: ints!, ratio: float = 0.5) -> (output)", 1, shaped_dropout,
    { random = true })
  op("SplineBasis(pseudo, kernel_size, is_open_spline; degree: int = 1) -> (basis, "
    .. "weight_index)", 1, spline_basis)
  op("SplineWeighting(input, weight, basis, weight_index) -> (output)", 1, function(_, ...)
    return spline.spline_weighting(...)
  end)
end

return function(op)
  layers(op)
  losses(op)
end
