--- Losses: each calls the function of its name with its fields by name.
local F = require("torch.nn.functional")
local Linear = require("torch.nn.layers.linear").Linear
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local signature = require("torch.nn.signature")
local text = require("torch.nn.text")

local M = {}

local OLD = "size_average=None, reduce=None, reduction='mean'"

-- signature without the old reduction arguments, function, forward's parameters
local ROWS = {
  { "L1Loss(@)", "l1_loss", "input, target" },
  { "MSELoss(@)", "mse_loss", "input, target" },
  { "SmoothL1Loss(@, beta=1.0)", "smooth_l1_loss", "input, target" },
  { "HuberLoss(reduction='mean', delta=1.0)", "huber_loss", "input, target" },
  { "CrossEntropyLoss(weight=None, size_average=None, ignore_index=-100, reduce=None, "
    .. "reduction='mean', label_smoothing=0.0)", "cross_entropy", "input, target" },
  { "NLLLoss(weight=None, size_average=None, ignore_index=-100, reduce=None, "
    .. "reduction='mean')", "nll_loss", "input, target" },
  { "BCELoss(weight=None, @)", "binary_cross_entropy", "input, target" },
  { "BCEWithLogitsLoss(weight=None, @, pos_weight=None)", "binary_cross_entropy_with_logits",
    "input, target" },
  { "KLDivLoss(@, log_target=False)", "kl_div", "input, target" },
  { "PoissonNLLLoss(log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, "
    .. "reduction='mean')", "poisson_nll_loss", "log_input, target" },
  { "GaussianNLLLoss(full=False, eps=1e-6, reduction='mean')", "gaussian_nll_loss",
    "input, target, var" },
  { "HingeEmbeddingLoss(margin=1.0, @)", "hinge_embedding_loss", "input, target" },
  { "SoftMarginLoss(@)", "soft_margin_loss", "input, target" },
  { "MultiLabelMarginLoss(@)", "multilabel_margin_loss", "input, target" },
  { "MultiLabelSoftMarginLoss(weight=None, @)", "multilabel_soft_margin_loss", "input, target" },
  { "MultiMarginLoss(p=1, margin=1.0, weight=None, @)", "multi_margin_loss", "input, target" },
  { "MarginRankingLoss(margin=0.0, @)", "margin_ranking_loss", "input1, input2, target" },
  { "CosineEmbeddingLoss(margin=0.0, @)", "cosine_embedding_loss", "input1, input2, target" },
  { "TripletMarginLoss(margin=1.0, p=2.0, eps=1e-6, swap=False, @)", "triplet_margin_loss",
    "anchor, positive, negative" },
  { "CTCLoss(blank=0, reduction='mean', zero_infinity=False)", "ctc_loss",
    "log_probs, targets, input_lengths, target_lengths" },
}

-- Tensors among the arguments are buffers, as in PyTorch.
local TENSORS = { "weight", "pos_weight" }

local function build(self, a)
  for _, name in ipairs(TENSORS) do
    if a[name] ~= nil then
      self[name] = nil
      self:register_buffer(name, a[name]) -- refuses what is no tensor
    end
  end
end

-- Its frames count as this file's: not the caller's.
local SOURCE = debug.getinfo(1, "S").source

-- A function's parameters are known by their names, so each has its own text.
local FORWARD = [[
local F, name, options = ...
return function(self, %s)
  return F[name](%s, options(self))
end]]

for _, row in ipairs(ROWS) do
  local sig, name, inputs = table.unpack(row)
  sig = sig:gsub("@", OLD)
  local names = signature(sig).names
  local function options(self)
    local out = {}
    for _, option in ipairs(names) do
      out[option] = self[option]
    end
    return next(out) and out or nil
  end
  M[sig:match("^%w+")] = layer(sig, {
    build = build,
    forward = load(FORWARD:format(inputs, inputs), SOURCE, "t", {})(F, name, options),
  })
end

M.TripletMarginWithDistanceLoss = layer("TripletMarginWithDistanceLoss("
  .. "distance_function=None, margin=1.0, swap=False, reduction='mean')", {
    forward = function(self, anchor, positive, negative)
      return F.triplet_margin_with_distance_loss(anchor, positive, negative, {
        distance_function = self.distance_function, margin = self.margin, swap = self.swap,
        reduction = self.reduction,
      })
    end,
  })

-- The logits' shape without the batch.
local function classes_of(self, ...)
  local shape = { self.num_classes, table.unpack(self.out_features) }
  return table.move({ ... }, 1, select("#", ...), #shape + 1, shape)
end

M.LinearCrossEntropyLoss = layer("LinearCrossEntropyLoss(in_features, num_classes, "
  .. "out_features=(), bias=False, device=None, dtype=None, reduction='mean', weight=None, "
  .. "ignore_index=None, label_smoothing=0.0, options=None)", {
    drop = { "in_features", "bias" },
    build = function(self, a)
      local n = check.int(a.num_classes, "LinearCrossEntropyLoss: num_classes", { min = 1 })
      for _, size in ipairs(check.table(a.out_features, "LinearCrossEntropyLoss: out_features")) do
        n = n * check.int(size, "LinearCrossEntropyLoss: out_features", { min = 1 })
      end
      errors.check(check.number(a.label_smoothing, "LinearCrossEntropyLoss: label_smoothing") >= 0
        and a.label_smoothing <= 1, "RuntimeError",
        "LinearCrossEntropyLoss: expected label_smoothing to be in range [0, 1], got %s",
        tostring(a.label_smoothing))
      errors.check(a.weight == nil or a.weight:dim() == 1 and a.weight:size(0) == a.num_classes,
        "RuntimeError", "LinearCrossEntropyLoss: expected weight shape to be (%d,), got %s",
        a.num_classes, a.weight and tostring(a.weight.shape))
      build(self, a)
      self.linear = Linear(a.in_features, n, { bias = a.bias, device = a.device, dtype = a.dtype })
    end,
    forward = function(self, input, target)
      local linear = self.linear
      return F.linear_cross_entropy(input,
        linear.weight:reshape(classes_of(self, linear.in_features)), target, {
          linear_bias = linear.bias and linear.bias:reshape(classes_of(self)),
          weight = self.weight, reduction = self.reduction, ignore_index = self.ignore_index,
          label_smoothing = self.label_smoothing, options = self.options,
        })
    end,
    repr = function(self)
      return text.fill("in_features={in_features}, num_classes={num_classes}, "
        .. "out_features={out_features}, bias={bias}, reduction=" .. self.reduction
        .. ", ignore_index={ignore_index}, label_smoothing={label_smoothing}, options=None",
        setmetatable({ in_features = self.linear.in_features, bias = self.linear.bias ~= nil },
          { __index = self }))
    end,
  })

M.CosineSimilarity = layer("CosineSimilarity(dim=1, eps=1e-8)", {
  forward = function(self, x1, x2)
    return F.cosine_similarity(x1, x2, self.dim, self.eps)
  end,
})

M.PairwiseDistance = layer("PairwiseDistance(p=2.0, eps=1e-6, keepdim=False)", {
  forward = function(self, x1, x2)
    return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)
  end,
})

return M
