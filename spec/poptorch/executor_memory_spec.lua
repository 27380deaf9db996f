--- An inference model and its module have large weights once: nobody may see it.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local weights = require("spec.support.weights")

-- A table that is read as it is, a Linear that is read as a packed copy, a
-- convolution whose weights lie in another layout; each larger than 64 KB.
local Net = nn.Module:extend("Net")

function Net:init()
  self.table = nn.Embedding(300, 64)
  self.conv = nn.Conv2d(64, 64, 3, { padding = 1 })
  self.fc = nn.Linear(64 * 8, 256)
end

function Net:forward(ids)
  local x = self.table(ids):permute(0, 2, 1):reshape({ -1, 64, 2, 4 })
  return self.fc(self.conv(x):relu():flatten(1))
end

local function ids()
  return torch.randint(0, 300, { 16, 8 })
end

local function made()
  torch.manual_seed(1)
  local net = Net():eval()
  return net, poptorch.inferenceModel(net), ids()
end

local function same(net, kept)
  assert.equal(nil, weights.difference(weights.copies(net), kept))
end

local function change(net)
  local _ <close> = torch.no_grad()
  for _, p in net:named_parameters() do
    p:mul_(-2)
  end
end

describe("weights that an inference model and its module have once", function()
  it("are the module's, bit by bit, whenever they are read", function()
    local net, model, x = made()
    local kept = weights.copies(net)
    local y = model(x)
    same(net, kept)
    assert.is_true(torch.equal(y, model(x)))
    same(net, kept)
    local state = model:state_dict()
    for name, t in pairs(kept) do
      assert.is_true(torch.equal(state[name], t), name)
    end
    assert.is_true(torch.allclose(net(x), y, { atol = 1e-4 }))
  end)

  it("do not follow the module before copyWeightsToDevice", function()
    local net, model, x = made()
    local y = model(x)
    change(net)
    assert.is_true(torch.equal(y, model(x)))
    model:copyWeightsToDevice()
    assert.is_true(torch.allclose(net(x), model(x), { atol = 1e-4 }))
    assert.is_false(torch.equal(y, model(x)))
  end)

  it("are renewed in all forms that the program has of them", function()
    local N, B = 128, 4
    local Both = nn.Module:extend("Both")
    function Both:init()
      self.w = nn.Parameter(torch.ones(N, N))
    end
    function Both:forward(x) -- the product reads a packed copy, the sum the rows
      return nn.functional.linear(x, self.w):mean() / N + self.w:mean()
    end
    local net, x = Both(), torch.ones(B, N)
    local model = poptorch.inferenceModel(net)
    assert.equal(2, model(x):item())
    torch.no_grad(function()
      net.w:fill_(2)
    end)
    model:copyWeightsToDevice()
    assert.equal(4, model(x):item())
  end)

  it("are set back by copyWeightsToHost", function()
    local net, model, x = made()
    local kept = weights.copies(net)
    model(x)
    model:copyWeightsToHost()
    same(net, kept)
    change(net)
    model:copyWeightsToHost()
    same(net, kept)
  end)

  it("outlive the model", function()
    local net, model, x = made()
    local kept = weights.copies(net)
    model(x)
    model:destroy()
    same(net, kept)
    poptorch.inferenceModel(net)(x)
    collectgarbage()
    collectgarbage()
    same(net, kept)
  end)

  it("are each model's own where several use the module", function()
    local net, first, x = made()
    local kept = weights.copies(net)
    local second = poptorch.inferenceModel(net)
    local y = first(x)
    assert.is_true(torch.equal(y, second(x)))
    change(net)
    assert.is_true(torch.equal(y, first(x)))
    assert.is_true(torch.equal(y, second(x)))
    second:copyWeightsToDevice()
    assert.is_true(torch.equal(y, first(x)))
    assert.is_false(torch.equal(y, second(x)))
    first:copyWeightsToHost()
    same(net, kept)
    assert.is_false(torch.equal(y, second(x)))
    second:destroy()
    assert.is_true(torch.equal(y, first(x)))
    same(net, kept)
  end)

  it("stay when the module gets other tensors", function()
    local net, model, x = made()
    local y = model(x)
    for _, p in net:named_parameters() do
      p.data = torch.zeros(p.shape)
    end
    collectgarbage()
    collectgarbage()
    assert.is_true(torch.equal(y, model(x)))
    assert.equal(0.0, net.fc.weight:abs():sum():item())
    model:copyWeightsToDevice()
    assert.equal(0.0, model(x):abs():sum():item())
  end)

  it("follow a training model of the same module", function()
    local net, model, x = made()
    local y = model(x)
    local Loss = nn.Module:extend("Loss")
    function Loss:init()
      self.net = net
    end
    function Loss:forward(i)
      return poptorch.identity_loss(self.net(i):square(), { reduction = "mean" })
    end
    local training = poptorch.trainingModel(Loss(), poptorch.Options(),
      poptorch.optim.Adam(net:parameters(), { lr = 0.01 }))
    for _ = 1, 3 do
      training(x)
      local now = model(x)
      assert.is_false(torch.equal(y, now))
      assert.is_true(torch.allclose(net(x), now, { atol = 1e-4 }))
      y = now
    end
    training:destroy()
    assert.is_true(torch.equal(y, model(x)))
  end)
end)

describe("states of an optimizer", function()
  it("are the device's whenever they are read", function()
    torch.manual_seed(2)
    local function run(look)
      torch.manual_seed(2)
      local net = nn.Sequential(nn.Linear(128, 160), nn.ReLU())
      local Loss = nn.Module:extend("Loss")
      function Loss:init()
        self.net = net
      end
      function Loss:forward(i)
        return poptorch.identity_loss(self.net(i):square(), { reduction = "mean" })
      end
      local optimizer = torch.optim.Adam(net:parameters(), { lr = 0.01 })
      local model = poptorch.trainingModel(Loss(), poptorch.Options(), optimizer)
      local x, sums = torch.randn(8, 128), {}
      model:compile(x)
      for _ = 1, 30 do
        if look then
          sums[#sums + 1] = optimizer.state[net[1].weight].exp_avg:abs():sum():item()
        end
        model(x)
      end
      return optimizer.state[net[1].weight].exp_avg:clone(), sums
    end
    local first, sums = run(true)
    assert.equal(0.0, sums[1])
    assert.is_true(sums[2] > 0 and sums[30] ~= sums[29])
    assert.is_true(torch.equal(first, (run(false))))
  end)
end)

describe("a state that is part of a larger tensor", function()
  it("is the device's, and leaves the rest as it is", function()
    local N = 160 -- whose memory is given back while nobody reads it
    local Sum = nn.Module:extend("Sum")
    function Sum:init()
      self.fc = nn.Linear(N, N, { bias = false })
    end
    function Sum:forward(x)
      return poptorch.identity_loss(self.fc(x):sum(), "none")
    end
    for part = 0, 2 do
      local net, whole = Sum(), torch.full({ 3, N, N }, 5.0)
      local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.0, momentum = 0.5 })
      optimizer.state[net.fc.weight] = { momentum_buffer = whole[part] }
      local model = poptorch.trainingModel(net, nil, optimizer)
      for _ = 1, 12 do
        model(torch.zeros(1, N))
      end
      for k = 0, 2 do
        assert.equal(k == part and 5 / 2 ^ 12 or 5, whole[k]:mean():item())
      end
      model:destroy()
    end
  end)
end)

describe("a model that does not fit the device", function()
  it("is refused before its optimizer has states", function()
    local Large = nn.Module:extend("Large")
    function Large:init()
      self.w = nn.Parameter(torch.empty({ 20000, 20000 })) -- memory that nobody touches
    end
    function Large:forward(x)
      return poptorch.identity_loss(self.w * x, "sum")
    end
    for _, optim in ipairs({ poptorch.optim, torch.optim }) do
      local net = Large()
      local optimizer = optim.Adam(net:parameters(), { lr = 1e-3 })
      local model = poptorch.trainingModel(net, nil, optimizer)
      local e = require("spec.helper").raises("Error", "Out of memory on tile", function()
        model(torch.ones(1, 20000))
      end)
      assert.matches("optimizer state off chip: .*options.TensorLocations:setOptimizerLocation%(",
        e.message)
      assert.equal(nil, next(optimizer.state[net.w]))
    end
  end)
end)
