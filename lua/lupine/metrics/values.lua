--- Metrics of numbers: means, the perplexity of a language model, errors of regressions.
local check = require("lupine.base.check")
local classes = require("lupine.metrics.classes")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local Metric = require("lupine.metrics.metric")
local tables = require("lupine.base.tables")

local M = {}

-- ---- a mean --------------------------------------------------------------------------

--- The mean of values, each with a weight.
---@class lupine.metrics.Mean: lupine.metrics.Metric
local Mean = Metric:extend("Mean")
M.Mean = Mean
Mean.zero = { sum = 0.0, weight = 0 }

function Mean:init()
  self:reset()
end

--- Adds a value; of a tensor the mean of its elements.
---@param value number|torch.Tensor
---@param weight? number 1 unless given
function Mean:update(value, weight)
  if core.is_tensor(value) then
    value = value:detach():double():mean():item()
  end
  check.number(value, "Mean: update: value")
  weight = check.number(weight or 1, "Mean: update: weight", { min = 0 })
  self.sum, self.weight = self.sum + value * weight, self.weight + weight
end

--- The mean so far; NaN before the first value.
---@return number
function Mean:compute()
  return self.sum / self.weight
end

-- ---- perplexity ------------------------------------------------------------------------

--- e to the mean cross entropy of the target's classes. Options: ignore_index (-100), a
--- class that is not looked at; shift, where the target is the text itself: an output is
--- compared with the token that comes next.
---@class lupine.metrics.Perplexity: lupine.metrics.Metric
local Perplexity = Metric:extend("Perplexity")
M.Perplexity = Perplexity
Perplexity.zero = { sum = 0.0, n = 0 }

---@param options? {ignore_index: integer?, shift: boolean?}
function Perplexity:init(options)
  local o = self:read(options, { "ignore_index", "shift" })
  self.ignore_index = check.int(o.ignore_index or -100, "Perplexity: ignore_index")
  self.shift = check.bool(o.shift, "Perplexity: shift", { nullable = true })
  self:reset()
end

--- Adds a batch.
--- error: ValueError for an output without scores of classes
---@param output torch.Tensor
---@param target torch.Tensor
function Perplexity:update(output, target)
  if self.shift then
    output, target = classes.shifted(output, target, "Perplexity")
  end
  local scores, due = classes.scores(output, target, "Perplexity")
  errors.check(scores, "ValueError", "Perplexity: output: expected scores of classes, [N, C, …] "
    .. "for a target [N, …], got %s and %s", tostring(output.shape), tostring(target.shape))
  local torch = require("torch")
  local sum = torch.no_grad(function()
    return torch.nn.functional.cross_entropy(scores:double(), due,
      { ignore_index = self.ignore_index, reduction = "sum" })
  end)
  self.sum = self.sum + sum:item()
  self.n = self.n + due:ne(self.ignore_index):sum():item()
end

--- The value so far; NaN before the first class.
---@return number
function Perplexity:compute()
  return math.exp(self.sum / self.n)
end

-- ---- regression --------------------------------------------------------------------------

--- RegressionError(kind): "mse", the mean square; "rmse", its root; "mae", the mean
--- distance; "r2", the share of the target's variance that the output explains.
---@class lupine.metrics.RegressionError: lupine.metrics.Metric
local RegressionError = Metric:extend("RegressionError")
M.RegressionError = RegressionError
-- Of squares, distances, targets (their mean and the sum of squares around it).
RegressionError.zero = { n = 0, squares = 0.0, distances = 0.0, mean = 0.0, around = 0.0 }

local KINDS = {
  mse = function(s)
    return s.squares / s.n
  end,
  rmse = function(s)
    return math.sqrt(s.squares / s.n)
  end,
  mae = function(s)
    return s.distances / s.n
  end,
  r2 = function(s)
    return 1 - s.squares / s.around
  end,
}

---@param kind? string "mse" unless given
function RegressionError:init(kind)
  self.kind = kind == nil and "mse" or kind
  errors.check(KINDS[self.kind], "ValueError", "RegressionError: kind: allowed are %s, got %s",
    table.concat(tables.keys(KINDS), ", "), check.describe(kind))
  self:reset()
end

--- Adds a batch.
--- error: ValueError for tensors of other shapes
---@param output torch.Tensor
---@param target torch.Tensor
function RegressionError:update(output, target)
  errors.check(core.is_tensor(output) and core.is_tensor(target), "TypeError", "RegressionError: "
    .. "expected two tensors, got %s and %s", check.describe(output), check.describe(target))
  errors.check(output:numel() == target:numel(), "ValueError", "RegressionError: output and target "
    .. "have other shapes: %s and %s", tostring(output.shape), tostring(target.shape))
  if target:numel() == 0 then
    return
  end
  local t = target:detach():double():reshape(-1)
  local d = output:detach():double():reshape(-1) - t
  local n, mean = t:numel(), t:mean():item()
  local apart, all = mean - self.mean, self.n + n
  self.squares = self.squares + (d * d):sum():item()
  self.distances = self.distances + d:abs():sum():item()
  -- Squares around the mean of both parts (Chan, Golub and LeVeque, 1979).
  self.around = self.around + (t - mean):pow(2):sum():item() + apart * apart * self.n * n / all
  self.mean, self.n = self.mean + apart * n / all, all
end

--- The value so far; NaN before the first one.
---@return number
function RegressionError:compute()
  return KINDS[self.kind](self)
end

return M
