--- Optimizers by name, for specs that go through all of them.
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local pop, native = poptorch.optim, torch.optim

local M = {}

local function without_bias(name)
  return function(params, keywords)
    keywords.bias_correction = false
    return pop[name](params, keywords)
  end
end

--- Constructors: (parameters, keywords).
M.POPTORCH = { SGD = pop.SGD, Adam = pop.Adam, AdamW = pop.AdamW, RMSprop = pop.RMSprop,
  LAMB = pop.LAMB, LAMBNoBias = without_bias("LAMB"), AdamWNoBias = without_bias("AdamW") }
M.ALL = { ["torch.SGD"] = native.SGD, ["torch.Adam"] = native.Adam,
  ["torch.AdamW"] = native.AdamW, ["torch.RMSprop"] = native.RMSprop }
for name, make in pairs(M.POPTORCH) do
  M.ALL[name] = make
end

--- fn(make, name) for each, from the same random numbers.
function M.each(makers, fn)
  for name, make in pairs(makers) do
    torch.manual_seed(42)
    fn(make, name)
  end
end

--- A linear layer whose result is summed, as the tests of states have it.
function M.summing(n)
  local model = models.of(function(self, x)
    local y = self.lin(x)
    return y, poptorch.identity_loss(y * y, "sum")
  end)
  model.lin = nn.Linear(n, n)
  return model
end

return M
