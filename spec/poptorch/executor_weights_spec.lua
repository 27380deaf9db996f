--- When weights travel between host and device.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near = helper.near

local Net = nn.Module:extend("Net")

function Net:init(i, o)
  self.fc = nn.Linear(i or 3, o or 2)
  self.loss = nn.MSELoss()
end

function Net:forward(x, target)
  local y = self.fc(x)
  if target == nil then
    return y
  end
  return y, self.loss(y, target)
end

local function trained(calls, options)
  local net = Net()
  local model = poptorch.trainingModel(net, options,
    poptorch.optim.SGD(net:parameters(), { lr = 0.1 }))
  local x, t = torch.randn(4, 3), torch.randn(4, 2)
  for _ = 1, calls do
    model(x, t)
  end
  return net, model, x, t
end

describe("weights of a training model", function()
  it("stay on the device until they are read, and come once", function()
    local net, model = trained(10)
    assert.equal(0, model:weightPulls())
    local first = net.fc.weight:sum():item()
    assert.equal(1, model:weightPulls())
    assert.equal(first, net.fc.weight:sum():item())
    assert.equal(0 * net.fc.bias:sum():item(), 0)
    assert.equal(1, model:weightPulls())
  end)

  it("come for state_dict, comparisons and a call on the host", function()
    for _, read in ipairs({
      function(net)
        return net:state_dict()["fc.weight"]:sum()
      end,
      function(net)
        return torch.equal(net.fc.weight, net.fc.weight)
      end,
      function(net, x)
        return net(x)
      end,
      function(net)
        return tostring(net.fc.weight)
      end,
    }) do
      local net, model, x = trained(2)
      read(net, x)
      assert.equal(1, model:weightPulls())
    end
  end)

  it("changed on the host are used after copyWeightsToDevice only", function()
    local net, model, x, t = trained(1)
    local frozen = poptorch.optim.SGD(net:parameters(), { lr = 0.0 })
    model:setOptimizer(frozen)
    local y = model(x, t)
    torch.no_grad(function()
      net.fc.weight:zero_()
      net.fc.bias:fill_(1)
    end)
    near(model(x, t), y)
    torch.no_grad(function()
      net.fc.weight:zero_()
      net.fc.bias:fill_(1)
    end)
    model:copyWeightsToDevice()
    near(model(x, t), torch.ones(4, 2))
  end)

  it("are dropped by copyWeightsToDevice when the device has newer ones", function()
    local net = Net()
    local before = net.fc.weight:detach():clone()
    local model = poptorch.trainingModel(net)
    local x, t = torch.randn(4, 3), torch.randn(4, 2)
    model:compile(x, t)
    model(x, t)
    model:copyWeightsToDevice()
    near(net.fc.weight, before)
    model:copyWeightsToHost()
    near(net.fc.weight, before)
  end)

  it("come with copyWeightsToHostIfNeeded if they are newer", function()
    local _, model = trained(1)
    assert.is_true(model:copyWeightsToHostIfNeeded())
    assert.is_false(model:copyWeightsToHostIfNeeded())
    model:copyWeightsToHost()
    assert.equal(2, model:weightPulls())
  end)

  it("reach an inference model of the same module by themselves", function()
    local net, model, x, t = trained(1)
    local other = poptorch.inferenceModel(net)
    near(other(x), net(x):detach())
    for _ = 1, 3 do
      model(x, t)
      near(other(x), net(x):detach())
    end
  end)

  it("reach an inference model of a part of it, also after training has ended", function()
    local net, model, x, t = trained(1)
    local other = poptorch.inferenceModel(net.fc)
    near(other(x), net.fc(x):detach())
    model(x, t)
    near(other(x), net.fc(x):detach())
    model(x, t)
    model:destroy()
    near(other(x), net.fc(x):detach())
  end)

  it("reach it together with the statistics that training changed", function()
    local Normed = nn.Module:extend("Normed")
    function Normed:init()
      self.norm = nn.BatchNorm1d(3)
    end
    function Normed:forward(x)
      local y = self.norm(x)
      return y, poptorch.identity_loss(y ^ 2, "sum")
    end
    local net = Normed()
    local model, other = poptorch.trainingModel(net), poptorch.inferenceModel(net)
    local x = torch.randn(8, 3) * 3 + 1
    for _ = 1, 3 do
      net:train()
      model(x)
      net:eval()
      near(other(x), net(x):detach())
    end
  end)

  it("come to the host when the executor is collected", function()
    local linear = nn.Linear(1, 1)
    local function train()
      local Loss = nn.Module:extend("Loss")
      function Loss:init()
        self.linear = linear
      end
      function Loss:forward(x)
        return poptorch.identity_loss(self.linear(x), "sum")
      end
      local net = Loss()
      poptorch.trainingModel(net, nil,
        poptorch.optim.SGD(net:parameters(), { lr = 1.0 }))(torch.ones(1, 1))
    end
    local before = linear.bias:item()
    train()
    collectgarbage()
    collectgarbage()
    near(linear.bias, { before - 1 })
  end)

  it("after 800 steps are those that the device last used", function()
    local net = Net(10, 10)
    local model = poptorch.trainingModel(net, nil,
      poptorch.optim.SGD(net:parameters(), { lr = 0.01 }))
    local x, t = torch.randn(10):unsqueeze(0), torch.randn(10):unsqueeze(0)
    local y
    for _ = 1, 800 do
      y = model(x, t)
    end
    model:copyWeightsToHost()
    near(net(x):detach(), y, { 1e-4, 1e-4 })
  end)

  it("that the optimizer does not have, or that are frozen, stay", function()
    local net = Net()
    local weight, bias = net.fc.weight:detach():clone(), net.fc.bias:detach():clone()
    local model = poptorch.trainingModel(net, nil,
      poptorch.optim.SGD({ net.fc.bias }, { lr = 0.1 }))
    local x, t = torch.randn(4, 3), torch.randn(4, 2)
    model(x, t)
    near(net.fc.weight, weight)
    assert.is_false(torch.equal(net.fc.bias, bias))
    model:destroy()
    bias = net.fc.bias:detach():clone()
    net.fc.bias:requires_grad_(false)
    model = poptorch.trainingModel(net, nil,
      poptorch.optim.SGD(net:parameters(), { lr = 0.1 }))
    model(x, t)
    near(net.fc.bias, bias)
    assert.is_false(torch.equal(net.fc.weight, weight))
  end)

  it("that are tied stay tied", function()
    local Tied = nn.Module:extend("Tied")
    function Tied:init()
      self.a = nn.Linear(3, 3, { bias = false })
      self.b = nn.Linear(3, 3, { bias = false })
      self.b.weight = self.a.weight
    end
    function Tied:forward(x)
      return poptorch.identity_loss(self.b(self.a(x):tanh()) ^ 2, "mean")
    end
    local net = Tied()
    local before = net.a.weight:detach():clone()
    local x = torch.randn(5, 3)
    local copy = Tied()
    copy:load_state_dict(net:state_dict())
    local model = poptorch.trainingModel(net, nil,
      poptorch.optim.SGD(net:parameters(), { lr = 0.5 }))
    model(x)
    assert.is_true(rawequal(net.a.weight, net.b.weight))
    assert.is_false(torch.equal(net.a.weight, before))
    copy(x):backward()
    near(net.a.weight, before - 0.5 * copy.a.weight.grad)
    local loaded = Tied()
    loaded:load_state_dict(net:state_dict())
    near(loaded.b.weight, net.a.weight:detach())
    assert.is_true(rawequal(loaded.a.weight, loaded.b.weight))
  end)
end)

describe("state_dict of a wrapped module", function()
  it("loads into a module that is not wrapped", function()
    local net, model, x = trained(3)
    local state = model:state_dict()
    local plain = Net()
    plain:load_state_dict(state)
    near(plain(x):detach(), net(x):detach())
  end)
end)
