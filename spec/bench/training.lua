--- The optimizers of workloads: training(name, options) gives a function that makes one
--- of parameters. Of half ones it is PopTorch's mixed way: gradients and first moments
--- in half, under a loss scaling.
local optim = require("torch.optim")
local poptorch = require("poptorch")
local torch = require("torch")

local MOMENT = { SGD = "velocity_accum_type", Adam = "first_order_momentum_accum_type",
  AdamW = "first_order_momentum_accum_type" }

---@param name string
---@param options table
---@return fun(params: torch.Tensor[], half?: boolean): torch.optim.Optimizer
return function(name, options)
  return function(params, half)
    if not half then
      return optim[name](params, options)
    end
    local own = { params = params, loss_scaling = 128, accum_type = torch.float16,
      [MOMENT[name]] = torch.float16 }
    for key, value in pairs(options) do
      own[key] = value
    end
    return poptorch.optim[name](own)
  end
end
