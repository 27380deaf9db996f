--- torch.nn.functional: the operators whose forms are public there, and what
--- is made of operators, or needs state, in the files of functional/.
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

local Uncast = { __close = function(scope) core.set_autocast(scope.dtype) end }

local function widened(v)
  local short = core.is_tensor(v) and v:is_floating_point() and v.dtype.itemsize < 4
  return short and v:float() or v
end

-- fn, with its tensors as float32 and without casting inside, if casting is on.
local function wide(fn)
  return function(...)
    local dtype, rules = core.autocast()
    if not dtype or rules then -- rules of a front end name operators alone
      return fn(...)
    end
    local args = table.pack(...)
    local last = args[args.n]
    if type(last) == "table" then
      local by_name = {}
      for key, v in pairs(last) do
        by_name[key] = widened(v)
      end
      args[args.n] = by_name
    end
    for i = 1, args.n do
      args[i] = widened(args[i])
    end
    local _ <close> = setmetatable({ dtype = dtype }, Uncast)
    core.set_autocast(nil)
    return fn(table.unpack(args, 1, args.n))
  end
end

for _, name in ipairs(WIDE) do
  local plain = M[name]
  M[name] = wide(plain)
  signatures.same(M[name], plain)
end

return require("lupine.base.namespace").close(M, "torch.nn.functional")
