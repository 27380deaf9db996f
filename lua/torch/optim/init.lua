--- torch.optim: native optimizers.
local M = {
  Optimizer = require("torch.optim.optimizer"),
}
for _, file in ipairs({ "basic" }) do
  for name, cls in pairs(require("torch.optim." .. file)) do
    M[name] = cls
  end
end

return M
