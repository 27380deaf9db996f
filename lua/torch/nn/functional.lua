--- torch.nn.functional: the operators whose forms are public there, and what
--- is made of operators, or needs state, in the files of functional/.
local core = require("lupine.core")

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

return require("lupine.namespace").close(M, "torch.nn.functional")
