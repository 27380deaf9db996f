-- Training a model on the simulated IPU: forward, loss, backward and update in
-- one call; then the trained weights run on the host.
-- A port of listing 4.3 of the PopTorch user guide.
local poptorch = require("poptorch")
local torch = require("torch")

local ExampleModelWithLoss = torch.nn.Module:extend("ExampleModelWithLoss")

function ExampleModelWithLoss:init()
  self.fc = torch.nn.Linear(10, 10)
  self.loss = torch.nn.MSELoss()
end

function ExampleModelWithLoss:forward(x, target)
  local fc = self.fc(x)
  if self.training then
    return fc, self.loss(fc, target)
  end
  return fc
end

torch.manual_seed(0)
local model = ExampleModelWithLoss()

-- Wrap the model; without an optimizer this is SGD with lr = 0.01.
local poptorch_model = poptorch.trainingModel(model)

local input = torch.randn(10)
local target = torch.randn(10)

local poptorch_out, loss
for i = 0, 799 do
  poptorch_out, loss = poptorch_model(input, target)
  if i % 100 == 0 or i == 799 then
    print(("%d: %.6f"):format(i, loss:item()))
  end
end

-- Copy the trained weights back into the host model and run that.
poptorch_model:copyWeightsToHost()
model:eval()
local native_out = model(input)

torch.testing.assert_close(native_out, poptorch_out, { rtol = 1e-4, atol = 1e-4 })
print("host and device agree")
