--- torch.optim: native optimizers; torch.optim.lr_scheduler: their rates over
--- time.
local M = {
  Optimizer = require("torch.optim.optimizer"),
  lr_scheduler = require("torch.optim.lr_scheduler"),
  swa_utils = require("torch.optim.swa_utils"),
}
for _, file in ipairs({ "on_device", "host_only", "lbfgs" }) do
  for name, cls in pairs(require("torch.optim." .. file)) do
    M[name] = cls
  end
end

return require("lupine.base.namespace").close(M, "torch.optim")
