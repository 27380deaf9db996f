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
        return net:state_dict() -- no value of it is read
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

  it("end the gradients of what was computed with the ones before", function()
    local net, model, x, t = trained(1)
    local _, loss = net(x:clone():requires_grad_(), t) -- the gradient of x needs the weights
    model(x, t)
    assert.is_number(net.fc.weight:sum():item())
    helper.raises("RuntimeError", "modified", function()
      loss:backward()
    end)
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
    local model = poptorch.trainingModel(net)
    local other = poptorch.inferenceModel(net:eval())
    local x = torch.randn(8, 3) * 3 + 1
    for _ = 1, 3 do
      model(x)
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
  it("follow tensors that the user put in others' places", function()
    local net, model, x, t = trained(1)
    local function put(value)
      net.fc.weight = nn.Parameter(torch.full({ 2, 3 }, value))
    end
    local function step() -- what a step makes of the weights of now
      local w = net.fc.weight:detach():clone():requires_grad_()
      local b = net.fc.bias:detach()
      local loss = torch.mean((torch.matmul(x, w:t()) + b - t) ^ 2)
      loss:backward()
      return (w - 0.1 * w.grad):detach()
    end
    put(5.0)
    model:copyWeightsToDevice()
    local want = step()
    model(x, t)
    near(net.fc.weight:detach(), want, 1e-5)
    put(7.0)
    model:copyWeightsToHost()
    near(net.fc.weight:detach(), want, 1e-5)
    put(8.0)
    model:detachFromDevice()
    want = step()
    model(x, t)
    near(net.fc.weight:detach(), want, 1e-5)
    local other = net:state_dict()
    other["fc.weight"] = torch.full({ 2, 3 }, 2.0)
    model:load_state_dict(other, { assign = true })
    want = step()
    model(x, t)
    near(net:state_dict()["fc.weight"], want, 1e-5)
    net.fc.weight = nn.Parameter(torch.ones(2, 4))
    local ok, e = pcall(model.copyWeightsToDevice, model)
    assert.is_false(ok)
    assert.matches("'fc.weight' is float32 %[2, 4%] now, the model was compiled for float32 "
      .. "%[2, 3%]", e.message)
    model:destroy()
  end)

  it("that lie in another order now end the next call", function()
    local net, model, x, t = trained(1)
    torch.no_grad(function() net.fc.weight:t_() end)
    local ok, e = pcall(model, x, t)
    assert.is_false(ok)
    assert.matches("'fc.weight' is float32 %[3, 2%], not contiguous, now, the model was compiled "
      .. "for float32 %[2, 3%] %(destroy%(%)", e.message)
  end)
end)

describe("weights of two training models", function()
  -- One trains `a`, the other `b`; both hold both.
  local function pair()
    local a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    for i, p in ipairs({ a.weight, a.bias, b.weight, b.bias }) do
      p.data:copy_(torch.arange(p:numel()):reshape(p.shape) / 7 - 0.2 * i)
    end
    local Both = nn.Module:extend("Both")
    function Both:init()
      self.a, self.b = a, b
    end
    function Both:forward(x, target)
      return nn.functional.mse_loss(self.b(self.a(x)), target)
    end
    return a, b, Both(), Both()
  end

  local x, target = torch.arange(6.0):reshape(3, 2) / 5, torch.ones(3, 2)

  -- The losses of three rounds on the host, with plain descent.
  local function by_hand()
    local a, b, net = pair()
    local out = {}
    for _ = 1, 3 do
      for _, part in ipairs({ a, b }) do
        net:zero_grad()
        local loss = net(x, target)
        loss:backward()
        out[#out + 1] = loss:item()
        torch.no_grad(function()
          for _, p in ipairs(part:parameters()) do
            p:sub_(p.grad * 0.5)
          end
        end)
      end
    end
    return out, a, b
  end

  local function on_the_device(between)
    local a, b, one, two = pair()
    local models = {
      poptorch.trainingModel(one, nil, torch.optim.SGD(a:parameters(), { lr = 0.5 })),
      poptorch.trainingModel(two, nil, torch.optim.SGD(b:parameters(), { lr = 0.5 })),
    }
    local out = {}
    for _ = 1, 3 do
      for _, model in ipairs(models) do
        out[#out + 1] = model(x, target):item()
        between(a, b, models)
      end
    end
    return out, a, b, models
  end

  local function same(between)
    local expected, a, b = by_hand()
    local got, da, db, models = on_the_device(between)
    for i, loss in ipairs(expected) do
      near(torch.tensor(got[i]), torch.tensor(loss))
    end
    near(da.weight:detach(), a.weight:detach())
    near(db.bias:detach(), b.bias:detach())
    return models
  end

  it("that share parameters are in step without a copy by hand", function()
    same(function() end)
  end)

  it("are in step whether or not the host reads them in between", function()
    same(function(a)
      assert.is_number(a.weight:sum():item())
    end)
  end)

  it("are not set back by copyWeightsToHost of the one that ran before", function()
    local models = same(function(_, _, models)
      if models[1]:isCompiled() and models[2]:isCompiled() then
        models[1]:copyWeightsToHost()
      end
    end)
    assert.is_true(models[2]:isCompiled())
  end)

  it("stay on the device of the one that ran last when the other ends", function()
    local a, _, first, second = pair()
    local function trainer(net)
      local model = poptorch.trainingModel(net, nil, torch.optim.SGD(a:parameters(), { lr = 0.1 }))
      model(x, target)
      return model
    end
    local one = trainer(first)
    local before = a.weight:clone()
    local two = trainer(second)
    one:destroy()
    assert.is_false(torch.equal(before, a.weight))
    assert.equal(1, two:weightPulls())
  end)

  it("keep what only one of them holds", function()
    local parts = { nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2) }
    local Loss = nn.Module:extend("Loss")
    function Loss:init(p, q)
      self.p, self.q = p, q
    end
    function Loss:forward(v, t)
      return nn.functional.mse_loss(self.q(self.p(v)), t)
    end
    local function nets(of)
      return { Loss(of[1], of[2]), Loss(of[1], of[3]) }
    end
    local copies = {}
    for i, part in ipairs(parts) do
      copies[i] = nn.Linear(2, 2)
      copies[i]:load_state_dict(part:state_dict())
    end
    local host, models = nets(copies), {}
    for i, net in ipairs(nets(parts)) do
      models[i] = poptorch.trainingModel(net, nil,
        torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    end
    for _ = 1, 3 do
      for i, net in ipairs(host) do
        net:zero_grad()
        local loss = net(x, target)
        loss:backward()
        near(models[i](x, target), loss:detach())
        torch.no_grad(function()
          for _, p in ipairs(net:parameters()) do
            p:sub_(p.grad * 0.1)
          end
        end)
      end
    end
    for i, part in ipairs(parts) do
      near(part.weight:detach(), copies[i].weight:detach())
    end
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
