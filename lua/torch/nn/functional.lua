--- torch.nn.functional: the operators whose forms are public there, and what
--- is made of operators, or needs state, in the files of functional/.
local casts = require("torch.casts")
local core = require("lupine.core")
local signatures = require("lupine.base.signatures")

local M = {}
for name, fn in pairs(core.forms.nn) do
  M[name] = fn
end
-- Public here although their forms are functions of torch.
for _, name in ipairs({ "prelu", "celu_", "selu_", "relu_", "threshold_", "pdist" }) do
  M[name] = M[name] or core.forms.functions[name]
end

for _, file in ipairs({ "activation", "dropout", "norm", "pool", "distance", "loss", "embedding",
  "arrange", "attention", "ctc", "grid" }) do
  for name, fn in pairs(require("torch.nn.functional." .. file)(M)) do
    M[name] = fn
  end
end

-- Compositions that torch.autocast runs in float32, whole.
local WIDE = { "ctc_loss", "grid_sample", "cosine_embedding_loss", "triplet_margin_loss",
  "multi_margin_loss", "multilabel_margin_loss", "max_unpool2d", "max_unpool3d",
  "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
  "fractional_max_pool3d_with_indices" }

-- fn, in float32 if torch.autocast is on.
local function wide(fn)
  local function wrapped(...)
    local dtype, rules = core.autocast()
    if dtype and not rules then
      return casts.run(fn, core.dtypes.float32, ...)
    end
    return casts.call(wrapped, fn, ...)
  end
  casts.hooked[wrapped] = true
  return wrapped
end

for _, name in ipairs(WIDE) do
  local plain = M[name]
  M[name] = wide(plain)
  signatures.same(M[name], plain)
end

return require("lupine.base.namespace").close(M, "torch.nn.functional")
