--- Metrics of classifiers: how many decisions are right.
local check = require("lupine.base.check")
local classes = require("lupine.metrics.classes")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local Metric = require("lupine.metrics.metric")

local M = {}

local function ratio(a, b)
  return b > 0 and a / b or 0 / 0
end

-- ---- accuracy ----------------------------------------------------------------------

--- The share of right decisions. Options: threshold (0) of a single logit; ignore_index,
--- a class that is not looked at; shift, of language models whose target is the text itself:
--- an output is compared with the token that comes next.
---@class lupine.metrics.Accuracy: lupine.metrics.Metric
local Accuracy = Metric:extend("Accuracy")
M.Accuracy = Accuracy
Accuracy.zero = { right = 0, n = 0 }

---@param options? {threshold: number?, ignore_index: integer?, shift: boolean?}
function Accuracy:init(options)
  local o = self:read(options, { "threshold", "ignore_index", "shift" })
  self.shift = check.bool(o.shift, "Accuracy: shift", { nullable = true })
  self.options = {
    threshold = check.number(o.threshold, "Accuracy: threshold", { nullable = true }),
    ignore_index = check.int(o.ignore_index, "Accuracy: ignore_index", { nullable = true }),
  }
  self:reset()
end

--- Adds a batch.
---@param output torch.Tensor
---@param target torch.Tensor
function Accuracy:update(output, target)
  if self.shift then
    output, target = classes.shifted(output, target, "Accuracy")
  end
  local decided, due = classes.decided(output, target, self.options, "Accuracy")
  self.right = self.right + decided:eq(due):sum():item()
  self.n = self.n + due:numel()
end

--- The share so far; NaN before the first decision.
---@return number
function Accuracy:compute()
  return ratio(self.right, self.n)
end

-- ---- top k ---------------------------------------------------------------------------

--- TopK(k): how often the class that was due is among the k of the highest scores.
---@class lupine.metrics.TopK: lupine.metrics.Metric
local TopK = Metric:extend("TopK")
M.TopK = TopK
TopK.zero = { right = 0, n = 0 }

---@param k integer
---@param options? {ignore_index: integer?}
function TopK:init(k, options)
  self.k = check.int(k, "TopK: k", { min = 1 })
  self.ignore_index = check.int(self:read(options, { "ignore_index" }).ignore_index,
    "TopK: ignore_index", { nullable = true })
  self:reset()
end

--- Adds a batch.
--- error: ValueError for an output without scores of classes
---@param output torch.Tensor
---@param target torch.Tensor
function TopK:update(output, target)
  local scores, due = classes.scores(output, target, "TopK")
  errors.check(scores, "ValueError", "TopK: output: expected scores of classes, [N, C, …] for a "
    .. "target [N, …], got %s and %s", tostring(output.shape), tostring(target.shape))
  local _, best = scores:topk(math.min(self.k, scores:size(1)), 1)
  local right = best:eq(due:unsqueeze(1)):any(1)
  self.n = self.n + due:numel()
  if self.ignore_index then
    local looked = due:ne(self.ignore_index)
    right = right:logical_and(looked)
    self.n = self.n - due:numel() + looked:sum():item()
  end
  self.right = self.right + right:sum():item()
end

--- The share so far; NaN before the first decision.
---@return number
function TopK:compute()
  return ratio(self.right, self.n)
end

-- ---- confusion -------------------------------------------------------------------------

--- How often each class (row) was taken for each class (column). Options: num_classes,
--- where the output does not tell it; threshold, ignore_index as Accuracy's.
---@class lupine.metrics.ConfusionMatrix: lupine.metrics.Metric
local ConfusionMatrix = Metric:extend("ConfusionMatrix")
M.ConfusionMatrix = ConfusionMatrix
ConfusionMatrix.zero = { counts = false }

local COUNTING = { "num_classes", "threshold", "ignore_index" }

-- Reads the options of what counts pairs of classes.
local function counting(self, options)
  local where = getmetatable(self).__name
  self.num_classes = check.int(options.num_classes, where .. ": num_classes",
    { nullable = true, min = 2 })
  self.options = { threshold = check.number(options.threshold, where .. ": threshold",
    { nullable = true }), ignore_index = check.int(options.ignore_index, where .. ": ignore_index",
    { nullable = true }) }
  self:reset()
end

---@param options? {num_classes: integer?, threshold: number?, ignore_index: integer?}
function ConfusionMatrix:init(options)
  counting(self, self:read(options, COUNTING))
end

local function check_range(t, n, what, where)
  errors.check(t:numel() == 0 or t:min():item() >= 0 and t:max():item() < n, "ValueError",
    "%s: %s: classes are 0 to %d, got %s", where, what, n - 1, t:numel() > 0
    and ("%d to %d"):format(t:min():item(), t:max():item()) or "none")
end

--- Adds a batch.
--- error: ValueError for classes beyond num_classes
---@param output torch.Tensor
---@param target torch.Tensor
function ConfusionMatrix:update(output, target)
  local where = getmetatable(self).__name
  local decided, due, n = classes.decided(output, target, self.options, where)
  n = errors.check(self.num_classes or n, "ValueError", "%s: num_classes: outputs that are "
    .. "decisions do not tell how many classes there are: give it", where)
  check_range(due, n, "target", where)
  check_range(decided, n, "output", where)
  local counts = core.is_tensor(self.counts) and self.counts
    or require("torch").zeros({ n, n }, { dtype = core.dtypes.int64 })
  self.counts = counts + (due * n + decided):bincount({ minlength = n * n }):reshape(n, n)
end

--- The counts so far; nil before the first batch.
---@return torch.Tensor? int64 [classes, classes]
function ConfusionMatrix:compute()
  return self.counts or nil
end

-- ---- F1 ----------------------------------------------------------------------------------

--- The harmonic mean of precision and recall, 2 tp / (2 tp + fp + fn). Option average:
--- "binary" (of class 1; the default for two classes), "macro" (the mean over classes that
--- occur; the default for more), "micro" (of the sums), "weighted" (by how often each class
--- is due); others are ConfusionMatrix's.
--- source: scikit-learn documentation, sklearn.metrics.f1_score (zero_division = 0)
---@class lupine.metrics.F1: lupine.metrics.ConfusionMatrix
local F1 = ConfusionMatrix:extend("F1")
M.F1 = F1

local AVERAGES = { "binary", "macro", "micro", "weighted" }

---@param options? {average: string?, num_classes: integer?, threshold: number?,
---  ignore_index: integer?}
function F1:init(options)
  local o = self:read(options, { "average", table.unpack(COUNTING) })
  errors.check(o.average == nil or require("lupine.base.tables").set(AVERAGES)[o.average],
    "ValueError", "F1: average: allowed are %s, got %s", table.concat(AVERAGES, ", "),
    check.describe(o.average))
  self.average = o.average
  counting(self, o)
end

local AVERAGE = {
  macro = function(f1, _, occurs)
    return f1:sum():item() / occurs:sum():item()
  end,
  weighted = function(f1, due)
    return (f1 * due):sum():item() / due:sum():item()
  end,
  binary = function(f1)
    return f1[1]:item()
  end,
}

--- The value so far; NaN before the first decision.
--- error: ValueError for "binary" with more than two classes
---@return number
function F1:compute()
  if not self.counts or self.counts:sum():item() == 0 then
    return 0 / 0
  end
  local n = self.counts:size(0)
  local average = self.average or n == 2 and "binary" or "macro"
  errors.check(average ~= "binary" or n == 2, "ValueError", "F1: average: \"binary\" is for two "
    .. "classes, there are %d; take \"macro\", \"micro\" or \"weighted\"", n)
  local counts = self.counts:double()
  local tp, due, decided = counts:diagonal(), counts:sum(1), counts:sum(0)
  if average == "micro" then
    return tp:sum():item() / due:sum():item()
  end
  local both = due + decided
  return AVERAGE[average](2 * tp / both:clamp({ min = 1 }), due, both:gt(0))
end

return M
