--- PopTorch's requires_grad_test.py and fine_tuning_test.py, by the names of their
--- functions: parameters that are not trained. test_resnet18 has a small
--- convolutional network in place of torchvision's.
local core = require("lupine.core")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near = helper.near

-- A model that sums its parameters; those of `frozen` are not trained.
local function sums(frozen)
  local start = {}
  local model = models.of(function(self, target)
    local sum = self.a + self.b
    if self.c then
      sum = sum + (self.c + self.d)
    end
    return nn.MSELoss()(sum, target)
  end)
  for name, fixed in pairs(frozen) do
    start[name] = torch.randn(5)
    model[name] = nn.Parameter(start[name]:clone(), { requires_grad = not fixed })
  end
  local target = torch.randn(5)
  local native = model(target):detach()
  local trainer = poptorch.trainingModel(model)
  near(trainer(target), native, { 1e-5, 1e-5 })
  for _ = 1, 100 do
    assert.is_false(torch.allclose(trainer(target), native))
  end
  for name, fixed in pairs(frozen) do
    assert.equal(fixed, torch.equal(trainer[name].data, start[name]), name)
  end
end

describe("requires_grad_test.py", function()
  it("test_requires_grad_false_simple", function()
    sums({ a = false, b = false, c = true, d = true })
  end)

  it("test_requires_grad_false_on_single_input", function()
    sums({ a = false, b = true })
  end)
end)

describe("fine_tuning_test.py", function()
  it("test_resnet18", function()
    local level = core.host.log_level()
    poptorch.setLogLevel("ERR")
    local base = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    for _, p in ipairs(base:parameters()) do
      p.requires_grad = false
    end
    base[6] = nn.Linear(4, 2) -- the classifier
    local model = models.of(function(self, data, target)
      local out = self.base_model(data)
      return out, nn.CrossEntropyLoss()(out, target)
    end)
    model.base_model = base
    local before = {}
    for name, p in model:named_parameters() do
      before[name] = p:detach():clone()
    end
    local trainer = poptorch.trainingModel(model, nil,
      torch.optim.SGD(base[6]:parameters(), { lr = 0.001 }))
    local data, target = torch.randn(2, 3, 16, 16), torch.randint(0, 2, { 2 })
    for _ = 1, 20 do
      trainer(data, target)
    end
    for name, p in model:named_parameters() do
      local classifier = name:find("base_model.5", 1, true) ~= nil
      assert.equal(not classifier, torch.equal(p.data, before[name]), name)
    end
    core.host.log_level(level)
  end)
end)
