--- PopTorch's rules of losses, a numbered case each. Values: the formulas.
local device = require("spec.support.on_device")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local F = nn.functional

local near, raises = helper.near, helper.raises

local function vec(...)
  return torch.tensor({ ... }, { dtype = torch.float32 })
end

-- A loss of these arguments in an inference model, and its gradient's step in a
-- training model, are the values.
local function gives(loss, arguments, want, tol)
  for reduction, value in pairs(want) do
    local got = device.infer(function(...)
      return loss({ reduction = reduction })(...)
    end)(table.unpack(arguments))
    near(got, value, tol or { 2e-6, 2e-6 })
  end
end

describe("conformance, losses:", function()
  it("LOSS01 identity_loss and its reductions", function()
    for reduction, want in pairs({ sum = 6, mean = 2, none = { 1, 2, 3 } }) do
      near(device.infer(function(v)
        return poptorch.identity_loss(v, reduction)
      end)(vec(1, 2, 3)), want)
    end
    raises("AssertionError", "max", function()
      poptorch.identity_loss(vec(1), "max")
    end)
  end)

  it("LOSS03 two losses need identity_loss around their sum", function()
    local function trainer(wrap)
      local module = models.of(function(self, x, target)
        local y = F.log_softmax(self.fc(x), 1)
        local loss = F.nll_loss(y, target) + F.nll_loss(y * 2, target)
        return y, wrap and poptorch.identity_loss(loss, "sum") or loss
      end)
      module.fc = nn.Linear(4, 4)
      return poptorch.trainingModel(module)
    end
    local x, target = torch.randn(3, 4), torch.tensor({ 0, 3, 1 })
    raises("Error", "multiple independent losses", function()
      trainer(false)(x, target)
    end)
    local train = trainer(true)
    local _, first = train(x, target)
    local _, second = train(x, target)
    assert.is_true(second:item() < first:item())
  end)

  local LOSSES = {
    MSE = function(y, target)
      return poptorch.identity_loss((y - target) ^ 2 * 5, "mean")
    end,
    L1 = function(y, target)
      return poptorch.identity_loss(F.l1_loss(y, target) * 5, "mean")
    end,
    NLL = function(y, _, label)
      return poptorch.identity_loss(F.nll_loss(F.log_softmax(y, 1), label) * 5, "mean")
    end,
  }

  it("LOSS05 losses of one's own train", function()
    for name, loss in pairs(LOSSES) do
      torch.manual_seed(42)
      local module = models.of(function(self, x, target, label)
        local y = self.fc(x)
        return y, loss(y, target, label)
      end)
      module.fc = nn.Linear(10, 10)
      local trainer = poptorch.trainingModel(module, nil,
        torch.optim.SGD(module:parameters(), { lr = name == "L1" and 0.002 or 0.01 }))
      local x, target, label = torch.randn(1, 10), torch.zeros(1, 10), torch.tensor({ 3 })
      target[0][3] = 1
      local out, first = trainer(x, target, label)
      assert.is_true(first:item() > 0.1, name)
      local last
      for _ = 1, 2500 do
        out, last = trainer(x, target, label)
      end
      assert.is_true(last:item() < 0.1, ("%s: %g"):format(name, last:item()))
      assert.equal(3, out:argmax():item())
    end
  end)

  it("LOSS06 L1 and MSE", function()
    local x, t = vec(1, 2, 3), vec(2, 2, 5)
    gives(nn.L1Loss, { x, t }, { none = { 1, 0, 2 }, mean = 1, sum = 3 })
    gives(nn.MSELoss, { x, t }, { none = { 1, 0, 4 }, mean = 5 / 3, sum = 5 })
  end)

  it("LOSS07 SmoothL1", function()
    gives(nn.SmoothL1Loss, { vec(1, 2, 3), vec(1.5, 2, 5) },
      { none = { 0.125, 0, 1.5 }, mean = 0.541667, sum = 1.625 })
  end)

  it("LOSS09 BCE", function()
    gives(nn.BCELoss, { vec(0.2, 0.5, 0.9), vec(0, 1, 1) },
      { none = { 0.223144, 0.693147, 0.105361 }, mean = 0.340550 })
  end)

  it("LOSS11 PoissonNLL", function()
    gives(nn.PoissonNLLLoss, { vec(0, 1), vec(1, 2) },
      { none = { 1, 0.718282 }, mean = 0.859141 })
  end)

  it("LOSS12 HingeEmbedding and SoftMargin", function()
    gives(nn.HingeEmbeddingLoss, { vec(0.3, 0.3, 2), vec(1, -1, -1) }, { none = { 0.3, 0.7, 0 } })
    gives(nn.SoftMarginLoss, { vec(1, -1), vec(1, 1) }, { none = { 0.313262, 1.313262 } })
  end)

  it("LOSS14 TripletMargin", function()
    local function rows(...)
      return vec(...):reshape(1, 2)
    end
    for want, n in pairs({ [1] = rows(0, 5), [0] = rows(6, 8) }) do
      gives(nn.TripletMarginLoss, { rows(0, 0), rows(3, 4), n }, { mean = want }, { 1e-5, 0 })
    end
  end)

  it("LOSS15 CrossEntropy of one to three dimensions", function()
    for _, more in ipairs({ {}, { 2 }, { 2, 3 } }) do
      local x = torch.randn({ 1, 10, table.unpack(more) })
      local target = torch.randint(0, 10, { 1, table.unpack(more) })
      for _, reduction in ipairs({ "mean", "sum", "none" }) do
        device.same(function(v, t)
          return F.cross_entropy(v, t, { reduction = reduction })
        end, { x, target })
      end
      device.trains(F.cross_entropy, { x, target })
    end
  end)

  it("LOSS16 CTC", function()
    local x, target = torch.randn(6, 2, 5), torch.randint(1, 5, { 2, 3 })
    local lengths, sizes = torch.tensor({ 6, 5 }), torch.tensor({ 3, 2 })
    for _, reduction in ipairs({ "mean", "sum" }) do
      device.both(function(v, t)
        return F.ctc_loss(F.log_softmax(v, 2), t, lengths, sizes, { reduction = reduction })
      end, { x, target })
    end
  end)
end)
