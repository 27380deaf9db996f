--- A small CNN trained in float16 on the device: half weights, float weights with half
--- inputs, and a mixture; what loss scaling does where gradients are too small for the type.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local F = nn.functional

local CLASSES, SIZE = 10, 10

local function pictures(n, seed)
  torch.manual_seed(99)
  local templates = torch.randn(CLASSES, 1, SIZE, SIZE)
  torch.manual_seed(seed)
  local labels = torch.randint(0, CLASSES, { n })
  return templates[labels] + torch.randn(n, 1, SIZE, SIZE) * 1.7, labels
end

local Cnn = nn.Module:extend("Cnn")

function Cnn:init(factor)
  self.conv1, self.conv2 = nn.Conv2d(1, 12, 3), nn.Conv2d(12, 24, 3, { padding = 1 })
  self.norm, self.fc = nn.GroupNorm(3, 24), nn.Linear(24 * 16, CLASSES)
  self.factor, self.loss = factor, nn.CrossEntropyLoss()
end

-- The types are those of the parameters, and of x.
function Cnn:forward(x, labels)
  x = F.relu(self.conv1(x))
  if self.mixed then
    x = x:half()
  end
  x = F.max_pool2d(F.relu(self.conv2(x)), 2)
  x = self.norm(self.mixed and x:float() or x)
  if self.mixed then
    x = x:half()
  end
  local y = self.fc(x:flatten(1)):float()
  return y, labels and poptorch.identity_loss(self.loss(y, labels) * self.factor, "none") or nil
end

local MODES = { "float", "half weights", "half inputs", "mixed" }

local function in_mode(model, mode, halves)
  if mode == "half weights" then
    model:half()
  elseif mode == "mixed" then
    model.mixed = true
    for _, name in ipairs(halves) do
      model[name]:half()
    end
  end
  return mode == "half weights" or mode == "half inputs"
end

-- The share of pictures that a network of this mode is right about.
local function cnn(mode, how)
  how = how or {}
  local factor = how.factor or 1
  torch.manual_seed(1)
  local model = Cnn(factor)
  local halved = in_mode(model, mode, { "conv2", "fc" })
  local opts = poptorch.Options():deviceIterations(12)
  opts.Training:setAutomaticLossScaling(how.automatic or false)
  local optimizer = poptorch.optim.SGD(model:parameters(),
    { lr = 0.05 / factor, momentum = 0.9, loss_scaling = how.scale or 1.0 })
  local trainer = poptorch.trainingModel(model, opts, optimizer)
  for call = 1, 15 do
    if call == 11 then
      optimizer.param_groups[1].lr = 0.005 / factor
      trainer:setOptimizer(optimizer)
    end
    local x, labels = pictures(12 * 32, call)
    trainer(halved and x:half() or x, labels)
  end
  trainer:destroy()
  local x, labels = pictures(8000, 1000)
  if mode == "mixed" or mode == "half weights" then
    model.mixed = false
    model:float()
  end
  local y = torch.no_grad(function()
    return model(x)
  end)
  return 100 * y:argmax(1):eq(labels):float():mean():item()
end

describe("a small CNN in float16", function()
  local whole
  setup(function()
    whole = cnn("float")
  end)

  for _, mode in ipairs(MODES) do
    if mode ~= "float" then
      it(("with %s and a loss scale is as good as in float32"):format(mode), function()
        assert.is_true(whole > 80 and whole < 99.5, tostring(whole))
        local got = cnn(mode, { scale = 128.0 })
        assert.is_true(math.abs(got - whole) <= 0.5, ("%g, not %g"):format(got, whole))
      end)

      it(("with %s learns nothing of gradients below its range, unless they are scaled")
        :format(mode), function()
        -- what the loss is too small for, the rate makes good in float32
        local tiny = 2.0 ^ -26
        assert.is_true(cnn(mode, { factor = tiny }) < 20)
        local manual = cnn(mode, { factor = tiny, scale = 2.0 ^ 33 })
        assert.is_true(math.abs(manual - whole) <= 0.5, ("%g, not %g"):format(manual, whole))
        local found = cnn(mode, { factor = tiny, automatic = true })
        assert.is_true(found > whole - 3, ("%g, not %g"):format(found, whole))
      end)
    end
  end
end)
