--- PopTorch's custom_loss_test.py, by the names of its functions.
local core = require("lupine.core")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local F, near, raises = nn.functional, helper.near, helper.raises

local function likelihood()
  return nn.Sequential(nn.Linear(10, 10), nn.LogSoftmax({ dim = 1 }))
end

-- Trains for 2500 runs; gives the model and the wrapped one.
local function trains(loss, o)
  torch.manual_seed(42)
  local base, input, target = o.base or nn.Linear(10, 10), o.input or torch.randn(1, 10),
    o.target or torch.randint(0, 10, { 1 })
  local model = models.of(function(self, data, t)
    local out = self.base(data)
    return out, loss(out, t)
  end)
  model.base = base
  local trainer = poptorch.trainingModel(model)
  local out, value = trainer(input, target)
  assert.is_true(value:item() > 0.1)
  if o.to_target then
    assert.is_false(torch.allclose(out, target, 1e-2, 1e-2))
  end
  for _ = 1, 2500 do
    out, value = trainer(input, target)
  end
  assert.is_true(value:item() < 0.1)
  if o.to_target then
    near(out, target, { 1e-2, 1e-2 })
    near((model(input, target)):detach(), target, { 1e-2, 1e-2 })
  else
    assert.equal(target:item(), base(input):argmax(1):item())
  end
end

describe("custom_loss_test.py", function()
  local level
  setup(function()
    level = core.host.log_level()
    poptorch.setLogLevel("ERR")
  end)
  teardown(function()
    core.host.log_level(level)
  end)

  it("test_non_final_loss_reductions", function()
    for _, reduction in ipairs({ "none", "mean", "sum" }) do
      torch.manual_seed(42)
      local model = models.of(function(self, data, target)
        local out = self.base(data)
        local partial = poptorch.identity_loss(out - target, reduction)
        return out, partial, poptorch.identity_loss(partial * partial * 5, "mean")
      end)
      model.base = nn.Linear(10, 10)
      local target, input = torch.randn(10), torch.randn(10)
      local difference = (model.base(input) - target):detach()
      local want = reduction == "none" and difference or difference[reduction](difference)
      local _, partial = poptorch.trainingModel(model)(input, target)
      near(partial, want, { 1e-5, 1e-5 })
      assert.equal(reduction == "none" and 10 or 1, partial:numel())
    end
  end)

  local function vectors()
    torch.manual_seed(42)
    return { input = torch.randn(10), target = torch.randn(10), to_target = true }
  end

  it("test_custom_loss", function()
    trains(function(x, target)
      local loss = poptorch.identity_loss(x - target, "none")
      return poptorch.identity_loss(loss * loss * 5.0, "mean")
    end, vectors())
  end)

  it("test_custom_loss_l1", function()
    trains(function(x, target)
      local loss = F.l1_loss(x, target)
      return poptorch.identity_loss(loss * loss * 5.0, "mean")
    end, vectors())
  end)

  it("test_custom_loss_nll", function()
    trains(function(x, target)
      return poptorch.identity_loss(F.nll_loss(x, target) * 5.0, "mean")
    end, { base = likelihood() })
  end)

  local function two(x, target)
    return F.nll_loss(x, target) + F.nll_loss(x, target) * 5.0
  end

  it("test_two_custom_losses", function()
    raises("Error", "multiple independent losses.*poptorch.identity_loss", function()
      trains(two, { base = likelihood() })
    end)
  end)

  it("test_two_custom_losses_with_id_wrapper", function()
    trains(function(x, target)
      return poptorch.identity_loss(two(x, target), "mean")
    end, { base = likelihood() })
  end)

  it("test_no_loss", function()
    local model = models.of(function(self, x, target)
      local forward = self.model(x)
      local loss = forward * 12
      return forward, loss + (target + 1), loss
    end)
    model.model = likelihood()
    local trainer = poptorch.trainingModel(model, nil,
      torch.optim.SGD(model:parameters(), { lr = 0.01 }))
    raises("Error", "must compute a loss", function()
      trainer(torch.randn(1, 10), torch.randint(0, 10, { 1 }))
    end)
  end)
end)
