--- AdaptiveLogSoftmaxWithLoss: a softmax over frequent classes and one for
--- each cluster of rarer ones.
---
--- source: Grave et al. 2017, Efficient softmax approximation for GPUs; the
--- PyTorch documentation of the class
local F = require("torch.nn.functional")
local containers = require("torch.nn.layers.containers")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local linear = require("torch.nn.layers.linear")

local M = {}

local function check_cutoffs(cutoffs, n_classes)
  local before, ok = 0, #cutoffs > 0
  for _, c in ipairs(cutoffs) do
    ok = ok and math.type(c) == "integer" and c > before and c < n_classes
    before = c
  end
  errors.check(ok, "ValueError", "AdaptiveLogSoftmaxWithLoss: cutoffs should be a list of "
    .. "increasing integers, each between 1 and n_classes - 1 (%d)", n_classes - 1)
end

local Adaptive = layer("AdaptiveLogSoftmaxWithLoss(in_features, n_classes, cutoffs, "
  .. "div_value=4.0, head_bias=False, device=None, dtype=None)", {
    build = function(self, a)
      check_cutoffs(a.cutoffs, a.n_classes)
      local keywords = { device = a.device, dtype = a.dtype, bias = false }
      local cutoffs = { table.unpack(a.cutoffs) }
      local n = #cutoffs
      cutoffs[n + 1] = a.n_classes
      self.cutoffs, self.n_clusters, self.shortlist_size = cutoffs, n, cutoffs[1]
      self.head_size = cutoffs[1] + n
      self.head = linear.Linear(a.in_features, self.head_size,
        { device = a.device, dtype = a.dtype, bias = a.head_bias })
      self.tail = containers.ModuleList()
      for i = 1, n do
        local width = math.floor(a.in_features / a.div_value ^ i)
        self.tail:append(containers.Sequential(linear.Linear(a.in_features, width, keywords),
          linear.Linear(width, cutoffs[i + 1] - cutoffs[i], keywords)))
      end
    end,
    forward = function(self, input, target)
      return self:losses(input, target)
    end,
  })
M.AdaptiveLogSoftmaxWithLoss = Adaptive

function Adaptive:reset_parameters()
  self.head:reset_parameters()
  for i = 1, self.n_clusters do
    self.tail[i][1]:reset_parameters()
    self.tail[i][2]:reset_parameters()
  end
end

local function check_target(self, input, target)
  errors.check(target:dim() <= 1, "RuntimeError", "AdaptiveLogSoftmaxWithLoss: expected a target "
    .. "of 0 or 1 dimensions, got shape %s", tostring(target.shape))
  errors.check(input:dim() == target:dim() + 1
    and (target:dim() == 0 or input:size(0) == target:size(0)), "RuntimeError",
    "AdaptiveLogSoftmaxWithLoss: input %s and target %s should have the same batch dimension",
    tostring(input.shape), tostring(target.shape))
  if core.is_traced(target) or target:numel() == 0 then
    return
  end
  local low, high = target:min():item(), target:max():item()
  errors.check(low >= 0 and high < self.n_classes, "RuntimeError", "AdaptiveLogSoftmaxWithLoss: "
    .. "target values should be in 0 to %d, but values from %d to %d were found",
    self.n_classes - 1, low, high)
end

-- Every cluster is computed for every row and kept where the target lies in
-- it, so that shapes do not depend on data.
function Adaptive:losses(input, target)
  local torch = require("torch")
  check_target(self, input, target)
  local single = target:dim() == 0
  local x, y = single and input:unsqueeze(0) or input, single and target:unsqueeze(0) or target
  local inside = y:lt(self.shortlist_size)
  local column = torch.where(inside, y, torch.zeros_like(y))
  local output
  for i = 1, self.n_clusters do
    local low, high = self.cutoffs[i], self.cutoffs[i + 1]
    local mine = y:ge(low):logical_and(y:lt(high))
    local logp = F.log_softmax(self.tail[i](x), 1)
    local at = torch.where(mine, y - low, torch.zeros_like(y)):unsqueeze(1)
    local value = logp:gather(1, at):squeeze(1)
    value = torch.where(mine, value, torch.zeros_like(value))
    output = output and output + value or value
    column = torch.where(mine, torch.full_like(y, self.shortlist_size + i - 1), column)
  end
  local head = F.log_softmax(self.head(x), 1)
  output = output + head:gather(1, column:unsqueeze(1)):squeeze(1)
  local loss = (-output):mean()
  return single and output:squeeze(0) or output, loss
end

--- Log-probabilities of all classes, [N, n_classes].
function Adaptive:log_prob(input)
  local head = F.log_softmax(self.head(input), 1)
  local parts = { head:narrow(1, 0, self.shortlist_size) }
  for i = 1, self.n_clusters do
    parts[i + 1] = F.log_softmax(self.tail[i](input), 1)
      + head:narrow(1, self.shortlist_size + i - 1, 1)
  end
  return require("torch").cat(parts, 1)
end

--- The likeliest class of each row.
function Adaptive:predict(input)
  return self:log_prob(input):argmax(1)
end

return M
