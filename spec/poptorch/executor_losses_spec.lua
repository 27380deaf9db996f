--- Losses on the device: one final loss, identity_loss, the built-in losses.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local F = nn.functional

-- A training model of f(self, ...) with a Linear layer `fc`.
local function training(f, i, o, lr)
  local net = models.of(f)
  net.fc = nn.Linear(i, o)
  return poptorch.trainingModel(net, nil,
    poptorch.optim.SGD(net:parameters(), { lr = lr or 0.01 })), net
end

local function vec(...)
  return torch.tensor({ ... }, { dtype = torch.float32 })
end

describe("identity_loss", function()
  it("reduces as it is told, on the host and on the device", function()
    for reduction, want in pairs({ sum = 6, mean = 2, none = { 1, 2, 3 } }) do
      near(poptorch.identity_loss(vec(1, 2, 3), reduction), want)
      near(poptorch.identity_loss(vec(1, 2, 3), { reduction = reduction }), want)
      near(models.infer(function(_, x)
        return poptorch.identity_loss(x, reduction)
      end)(vec(1, 2, 3)), want)
    end
    raises("AssertionError", "sum, mean and none", function()
      poptorch.identity_loss(vec(1), "max")
    end)
    raises("Error", "expected a Tensor", function()
      poptorch.identity_loss(1, "sum")
    end)
  end)

  it("of a list of values starts from gradients of ones", function()
    local model, net = training(function(self, x)
      return poptorch.identity_loss(self.fc(x), "none")
    end, 1, 1, 0.5)
    local before = net.fc.bias:item()
    model(torch.ones(3, 1))
    near(net.fc.bias, { before - 1.5 })
  end)
end)

describe("a training model", function()
  local x, t = torch.randn(4, 3), torch.randint(0, 5, { 4 })

  it("must have a loss", function()
    raises("Error", "must compute a loss", function()
      training(function(self, v)
        return self.fc(v)
      end, 3, 5)(x)
    end)
  end)

  it("must not have several independent losses", function()
    local function two(self, v, target)
      local y = F.log_softmax(self.fc(v), 1)
      return y, F.nll_loss(y, target), F.nll_loss(y * 2, target)
    end
    raises("Error", "has multiple independent losses %(2%)", function()
      training(two, 3, 5)(x, t)
    end)
    raises("Error", "multiple independent losses", function()
      training(function(self, v, target)
        local y, a, b = two(self, v, target)
        return y, a + b
      end, 3, 5)(x, t)
    end)
    local model, net = training(function(self, v, target)
      local y, a, b = two(self, v, target)
      return y, poptorch.identity_loss(a + b, "none")
    end, 3, 5)
    local y, a, b = two(net, x, t)
    local out, loss = model(x, t)
    near(out, y:detach())
    near(loss, (a + b):detach())
  end)

  it("may have a loss that feeds another", function()
    local model = training(function(self, v, target)
      local loss = F.cross_entropy(self.fc(v), target)
      return loss, poptorch.identity_loss(loss * 3, "none")
    end, 3, 5)
    local a, b = model(x, t)
    near(b, 3 * a)
  end)

  it("may compute a loss that nothing uses", function()
    local model, net = training(function(self, v, target)
      local y = self.fc(v)
      self.metric = F.nll_loss(F.log_softmax(y, 1), target) * 2
      return F.cross_entropy(y, target)
    end, 3, 5)
    local loss = F.cross_entropy(net.fc(x), t):detach()
    near(model(x, t), loss)
  end)

  it("is told where somebody goes backward from it once more", function()
    local net = models.Sum(1)
    local model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    local loss = model(torch.ones(1))
    raises("Error", "runs the backward pass and the weight update itself", function()
      loss:backward()
    end)
  end)

  it("finds the loss although it is not returned", function()
    local model, net = training(function(self, v)
      local y = self.fc(v)
      poptorch.identity_loss(y, "sum")
      return y
    end, 3, 5, 0.25)
    local before = net.fc.bias:detach():clone()
    model(x)
    near(net.fc.bias, before - 1)
  end)
end)

describe("custom losses train:", function()
  local function learns(name, loss, target)
    it(name, function()
      torch.manual_seed(7)
      local model = training(function(self, v, goal)
        local y = self.fc(v)
        return y, loss(y, goal)
      end, 5, 4, 0.02)
      local x = torch.randn(1, 5)
      local first, last
      for _ = 1, 2500 do
        local _, l = model(x, target)
        first = first or l:item()
        last = l:item()
      end
      assert.is_true(first > 0.1, tostring(first))
      assert.is_true(last < 0.1, tostring(last))
    end)
  end
  learns("five times MSE", function(y, t)
    return poptorch.identity_loss(F.mse_loss(y, t) * 5, "none")
  end, torch.randn(1, 4))
  learns("of absolute differences", function(y, t)
    return poptorch.identity_loss((y - t):abs(), "mean")
  end, torch.randn(1, 4))
  learns("NLL plus one part of itself", function(y, t)
    local loss = F.nll_loss(F.log_softmax(y, 1), t)
    return poptorch.identity_loss(loss + loss * 0.5, "mean")
  end, torch.tensor({ 2 }))
end)

describe("built-in losses have the documented values:", function()
  local function check(name, loss, args, none, mean, sum)
    it(name, function()
      for reduction, want in pairs({ none = none, mean = mean, sum = sum }) do
        local f = models.infer(function(_, ...)
          return loss({ reduction = reduction })(...)
        end)
        near(f(table.unpack(args)), want, { 2e-6, 2e-6 })
      end
    end)
  end
  check("L1Loss", nn.L1Loss, { vec(1, 2, 3), vec(2, 2, 5) }, { 1, 0, 2 }, 1, 3)
  check("MSELoss", nn.MSELoss, { vec(1, 2, 3), vec(2, 2, 5) }, { 1, 0, 4 }, 5 / 3, 5)
  check("SmoothL1Loss", nn.SmoothL1Loss, { vec(1, 2, 3), vec(1.5, 2, 5) }, { 0.125, 0, 1.5 },
    0.541667, 1.625)
  check("BCELoss", nn.BCELoss, { vec(0.2, 0.5, 0.9), vec(0, 1, 1) },
    { 0.223144, 0.693147, 0.105361 }, 0.340550, 1.021651)
  check("PoissonNLLLoss", nn.PoissonNLLLoss, { vec(0, 1), vec(1, 2) }, { 1, 0.718282 },
    0.859141, 1.718282)
  check("HingeEmbeddingLoss", nn.HingeEmbeddingLoss, { vec(0.3, 0.3, 2), vec(1, -1, -1) },
    { 0.3, 0.7, 0 }, 1 / 3, 1)
  check("SoftMarginLoss", nn.SoftMarginLoss, { vec(1, -1), vec(1, 1) }, { 0.313262, 1.313262 },
    0.813262, 1.626523)

  it("TripletMarginLoss", function()
    local f = models.infer(function(_, a, p, n)
      return nn.TripletMarginLoss({ margin = 1.0 })(a, p, n)
    end)
    local a, p = torch.zeros(1, 2), torch.tensor({ { 3.0, 4 } })
    near(f(a, p, torch.tensor({ { 0.0, 5 } })), 1, { 1e-5, 1e-5 })
    near(f(a, p, torch.tensor({ { 6.0, 8 } })), 0)
  end)

  it("CTCLoss, with lengths that come with the call, and its gradient", function()
    for _, reduction in ipairs({ "mean", "sum" }) do
      local host = nn.Linear(4, 5)
      local function forward(fc, x, t, il, tl)
        return nn.CTCLoss({ reduction = reduction })(F.log_softmax(fc(x), 2), t, il, tl)
      end
      local net = models.of(function(self, ...)
        return forward(self.fc, ...)
      end)
      net.fc = nn.Linear(4, 5)
      net.fc:load_state_dict(host:state_dict())
      local x, t = torch.randn(6, 2, 4), torch.tensor({ { 1, 1, 2 }, { 3, 1, 0 } })
      local il, tl = torch.tensor({ 6, 5 }), torch.tensor({ 3, 2 })
      local want = forward(host, x, t, il, tl)
      want:backward()
      local model = poptorch.trainingModel(net, nil,
        poptorch.optim.SGD(net:parameters(), { lr = 0.5 }))
      near(model(x, t, il, tl), want:detach(), { 1e-5, 1e-5 })
      near(net.fc.weight, host.weight:detach() - 0.5 * host.weight.grad, { 1e-5, 1e-5 })
    end
  end)

  it("KLDivLoss, whose batchmean is minimised with its division", function()
    for _, reduction in ipairs({ "batchmean", "sum" }) do
      local host, net = nn.Linear(3, 4), models.of(function(self, x, t)
        return nn.KLDivLoss({ reduction = reduction })(F.log_softmax(self.fc(x), 1), t)
      end)
      net.fc = nn.Linear(3, 4)
      net.fc:load_state_dict(host:state_dict())
      local x, t = torch.randn(5, 3), torch.rand(5, 4):softmax(1)
      net.forward(net, x, t):backward()
      local grad = net.fc.weight.grad:clone()
      -- d loss / d score = softmax - target, over the batch or not
      local scores = (host(x):softmax(1) - t):detach() / (reduction == "sum" and 1 or 5)
      near(grad, scores.T:matmul(x), { 1e-5, 1e-5 })
      poptorch.trainingModel(net, nil, poptorch.optim.SGD(net:parameters(), { lr = 0.5 }))(x, t)
      near(net.fc.weight, host.weight:detach() - 0.5 * grad, { 1e-5, 1e-5 })
    end
  end)

  it("CrossEntropyLoss of one to three dimensions", function()
    for _, rest in ipairs({ {}, { 2 }, { 2, 3 } }) do
      local x = torch.randn(1, 10, table.unpack(rest))
      local t = torch.randint(0, 10, { 1, table.unpack(rest) })
      for _, reduction in ipairs({ "none", "mean", "sum" }) do
        local loss = nn.CrossEntropyLoss({ reduction = reduction })
        local f = models.infer(function(_, a, b)
          return loss(a, b)
        end)
        near(f(x, t), loss(x, t):detach(), { 1e-5, 1e-5 })
      end
    end
  end)
end)
