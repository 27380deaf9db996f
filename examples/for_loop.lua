-- A loop and a branch on the device: square roots by Newton's method, whose
-- rounds are one body, compiled once, and whose starting points depend on the
-- numbers.
-- After the sections on poptorch.for_loop and poptorch.cond of PopTorch's API
-- reference.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local Root = nn.Module:extend("Root")

function Root:init(rounds)
  self.rounds = rounds
  self:register_buffer("share", torch.tensor({ 0.5 }))
end

function Root:forward(x)
  -- a body reads what is around it without being given it: x, self.share
  local start = poptorch.cond(x:amax():gt(1), function(most)
    return most * torch.ones_like(x)
  end, { x:amax() }, function()
    return torch.ones_like(x)
  end, {})
  -- each round gets what the one before returned
  local result = poptorch.for_loop(self.rounds, function(y)
    return self.share * (y + x / y)
  end, start)
  return result[1]
end

torch.manual_seed(0)
local model = Root(8)
local on_device = poptorch.inferenceModel(model)

local largest = 0
for _, scale in ipairs({ 0.5, 9 }) do
  local x = torch.rand({ 6 }) * scale + 0.05
  local y = on_device(x)
  print(("numbers to %.2f: host and device differ by %g"):format(x:max():item(),
    (y - model(x)):abs():max():item()))
  largest = math.max(largest, (y - x:sqrt()):abs():max():item())
end
print(("largest error: %.1e"):format(largest))
