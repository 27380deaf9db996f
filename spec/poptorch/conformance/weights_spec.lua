--- PopTorch's rules of weights between host and device, a numbered case each.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near = helper.near

local Net = nn.Module:extend("Net")

function Net:init(n)
  self.fc, self.loss = nn.Linear(n or 3, n or 3), nn.MSELoss()
end

function Net:forward(x, target)
  local y = self.fc(x)
  if target then
    return y, self.loss(y, target)
  end
  return y
end

-- A module, its training model after `calls` runs, and its batch.
local function trained(calls, net)
  net = net or Net()
  local model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), { lr = 0.1 }))
  local x, target = torch.randn(4, 3), torch.randn(4, 3)
  for _ = 1, calls do
    model(x, target)
  end
  return net, model, x, target
end

describe("conformance, weights:", function()
  it("WGT01 stay on the device until one is read, and come once", function()
    local net, model = trained(10)
    assert.equal(0, model:weightPulls())
    for _ = 1, 2 do
      net.fc.weight:sum():item()
      assert.equal(1, model:weightPulls())
    end
    net.fc.bias:sum():item()
    assert.equal(1, model:weightPulls())
  end)

  it("WGT03 changed on the host matter after copyWeightsToDevice", function()
    local net = Net()
    local model = poptorch.inferenceModel(net)
    local x = torch.randn(2, 3)
    local y = model(x)
    torch.no_grad(function()
      net.fc.weight:fill_(0)
      net.fc.bias:fill_(2)
    end)
    near(model(x), y)
    model:copyWeightsToDevice()
    near(model(x), torch.full({ 2, 3 }, 2))
  end)

  it("WGT05 copyWeightsToHostIfNeeded says whether it copied", function()
    local _, model, x, target = trained(1)
    assert.is_true(model:copyWeightsToHostIfNeeded())
    assert.is_false(model:copyWeightsToHostIfNeeded())
    model(x, target)
    assert.is_true(model:copyWeightsToHostIfNeeded())
  end)

  -- The flag that the host's weights are old: set by a run, taken down by the first
  -- of these, so that neither another one nor copyWeightsToHostIfNeeded copies.
  it("WGT06 comparisons, state_dict and a run on the host bring them", function()
    local reads = {
      equal = function(net) return torch.equal(net.fc.weight, torch.zeros(3, 3)) end,
      ["equal, turned"] = function(net) return torch.equal(torch.zeros(3, 3), net.fc.weight) end,
      allclose = function(net) return torch.allclose(net.fc.weight, torch.zeros(3, 3)) end,
      eq = function(net) return net.fc.weight:eq(net.fc.weight) end,
      state_dict = function(net) return net:state_dict() end,
      named_parameters = function(net)
        for _, p in net:named_parameters() do
          p:sum():item()
        end
      end,
      forward = function(net, x) return net(x) end,
    }
    for what, read in pairs(reads) do
      local net, model, x, target = trained(2)
      local before = net.fc.weight:detach():clone()
      assert.equal(1, model:weightPulls(), what)
      model(x, target)
      read(net, x)
      assert.equal(2, model:weightPulls(), what)
      assert.is_false(model:copyWeightsToHostIfNeeded(), what)
      assert.is_false(torch.equal(before, net.fc.weight), what)
      read(net, x)
      assert.equal(2, model:weightPulls(), what)
    end
  end)

  it("WGT08 that the optimizer does not have stay", function()
    local net = Net()
    local bias, weight = net.fc.bias:detach():clone(), net.fc.weight:detach():clone()
    local model = poptorch.trainingModel(net, nil,
      torch.optim.SGD({ net.fc.weight }, { lr = 0.1 }))
    for _ = 1, 3 do
      model(torch.randn(4, 3), torch.randn(4, 3))
    end
    near(net.fc.bias, bias, helper.exact)
    assert.is_false(torch.equal(net.fc.weight, weight))
  end)

  it("WGT09 that are tied stay tied, in a file too", function()
    local Tied = Net:extend("Tied")
    function Tied:init()
      Net.init(self)
      self.second = nn.Linear(3, 3)
      self.second.weight = self.fc.weight
    end
    function Tied:forward(x, target)
      local y = self.second(self.fc(x))
      return y, self.loss(y, target)
    end
    local net, model, x, target = trained(3, Tied())
    local path = os.tmpname()
    model:save(path)
    local loaded = poptorch.load(path)
    os.remove(path)
    for _, m in ipairs({ model, loaded }) do
      m(x, target)
      local d = m:state_dict()
      near(d["fc.weight"], d["second.weight"], helper.exact)
    end
    assert.equal(net.fc.weight, net.second.weight)
    assert.equal(3, #net:parameters())
    near(loaded:state_dict()["fc.weight"], net.fc.weight:detach())
    torch.no_grad(function() loaded.fc.weight:fill_(5) end)
    near(loaded.second.weight, torch.full({ 3, 3 }, 5))
  end)

  it("WGT11 a wrapped module's state_dict is any module's", function()
    local net = trained(2)
    local plain = Net()
    local missing, unexpected = plain:load_state_dict(net:state_dict())
    assert.same({ {}, {} }, { missing.missing_keys or missing, missing.unexpected_keys
      or unexpected })
    near(plain.fc.weight, net.fc.weight:detach(), helper.exact)
  end)

  it("WGT12 after 800 steps are those that the device used last", function()
    torch.manual_seed(0)
    local net = Net(10)
    local model = poptorch.trainingModel(net)
    local x, target, out = torch.randn(10), torch.randn(10), nil
    for _ = 1, 800 do
      out = model(x, target)
    end
    model:copyWeightsToHost()
    net:eval()
    near(net(x):detach(), out, { 1e-4, 1e-4 })
  end)
end)
