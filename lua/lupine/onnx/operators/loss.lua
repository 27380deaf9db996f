--- Losses of ONNX: of classes by their logarithmic probabilities.
local torch = require("torch")
local F = require("torch.nn.functional")
local operands = require("lupine.onnx.operands")

-- Where no class is ignored: no target is this one.
local NONE = math.mininteger

local function nll(n, log_prob, target, weight)
  local reduction = operands.word(n, "reduction", "none", "sum", "mean")
  return F.nll_loss(log_prob, target:to(torch.int64), { weight = weight, reduction = reduction,
    ignore_index = n.attr.ignore_index or NONE })
end

-- Raises for shapes that do not go together: [N, C, d…], [N, d…], [C].
local function check_shapes(n, x, target, weight)
  operands.floating(n, 1)
  operands.integer(n, 2)
  local ok = x:dim() >= 2 and target:dim() == x:dim() - 1
  for i = 0, ok and target:dim() - 1 or -1 do
    ok = ok and target:size(i) == x:size(i == 0 and 0 or i + 1)
  end
  n:check(ok, "inputs '%s' of the shape %s and '%s' of the shape %s do not go together. "
    .. "Allowed: [N, C, d1, …] and [N, d1, …]", operands.name(n, 1), operands.shown(x),
    operands.name(n, 2), operands.shown(target))
  n:check(not weight or weight:dim() == 1 and weight:size(0) == x:size(1),
    "input '%s' has the shape %s. Allowed: [%d], an element for each class",
    operands.name(n, 3), weight and operands.shown(weight), x:size(1))
end

local function nll_loss(n, x, target, weight)
  check_shapes(n, x, target, weight)
  return nll(n, x, target, weight)
end

local function softmax_cross_entropy(n, scores, labels, weights)
  check_shapes(n, scores, labels, weights)
  local log_prob = torch.log_softmax(scores, 1)
  return nll(n, log_prob, labels, weights), log_prob
end

return function(op)
  op("NegativeLogLikelihoodLoss(input, target, weight?; ignore_index: int,"
    .. " reduction: string = 'mean') -> (loss)", { 12, 13 }, nll_loss,
    { constants = { [3] = true } })
  op("SoftmaxCrossEntropyLoss(scores, labels, weights?; ignore_index: int,"
    .. " reduction: string = 'mean') -> (output, log_prob?)", { 12, 13 }, softmax_cross_entropy,
    { constants = { [3] = true } })
end
