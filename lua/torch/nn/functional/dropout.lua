--- Dropout that keeps mean and variance of SELU's outputs.
--- source: Klambauer et al. 2017, section 3; PyTorch's AlphaDropout
local core = require("lupine.core")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")

-- Minus the value that SELU tends to: scale * alpha.
local ALPHA = 1.7580993408473766

return function(F)
  local M = {}

  -- `draw` drops from ones: whole tensors, or channels.
  local function alpha_dropout(input, p, training, inplace, draw)
    errors.check(p >= 0 and p <= 1, "ValueError",
      "dropout probability has to be between 0 and 1, but got %s", p)
    if not training or p == 0 then
      return input
    end
    if p == 1 then
      return inplace and input:mul_(0) or input * 0
    end
    local kept = draw(require("torch").ones_like(input:detach()), p) * (1 - p)
    local a = 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    local out = input * (kept * a) + (kept - (1 - p)) * (ALPHA * a)
    return inplace and input:copy_(out) or out
  end

  local draws = { alpha_dropout = F.dropout,
    feature_alpha_dropout = core.forms.functions.feature_dropout }
  for name, draw in pairs(draws) do
    define(M, name .. "(input, p=0.5, training=False, inplace=False)",
      function(input, p, training, inplace)
        return alpha_dropout(input, p, training, inplace, draw)
      end)
  end

  return M
end
