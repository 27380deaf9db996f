--- Half precision, class ids of 32 bits, normalisation layers, and the
--- functions of poptorch for use in forward.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local F = nn.functional
local half, float = torch.float16, torch.float32

describe("half precision", function()
  local h, f = torch.ones(2, { dtype = half }), torch.ones(2)

  it("and float make float", function()
    local y = models.infer(function(_, a, b)
      return a + b
    end)(h, f)
    assert.equal(float, y.dtype)
    near(y, { 2, 2 })
  end)

  it("of new tensors is as their dtype says", function()
    local a, b, c = models.infer(function(_, x, y)
      return torch.ones(2, { dtype = x.dtype }) + x,
        torch.zeros(2, { dtype = half }) + y,
        torch.ones(2, { dtype = float }) + x
    end)(h, f)
    assert.equal(half, a.dtype)
    assert.equal(float, b.dtype)
    assert.equal(float, c.dtype)
  end)

  it("of a layer's input decides the type of the product", function()
    local linear = nn.Linear(3, 2)
    local y = poptorch.inferenceModel(linear)(torch.ones(1, 3, { dtype = half }))
    assert.equal(half, y.dtype)
    near(y, linear(torch.ones(1, 3)):detach():half(), { 2e-3, 2e-3 })
    local halved = nn.Linear(3, 2):half()
    y = poptorch.inferenceModel(halved)(torch.ones(1, 3))
    assert.equal(float, y.dtype)
  end)

  it("is the only other type that parameters may have", function()
    for _, to in ipairs({ "double", "bfloat16" }) do
      local linear = nn.Linear(3, 2)
      linear[to](linear)
      local e = raises("Error", "weight", function()
        poptorch.inferenceModel(linear)(torch.ones(1, 3))
      end)
      assert.matches("model:float", e.message)
    end
  end)

  it("weights train with a float copy in the loss", function()
    torch.manual_seed(3)
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.fc = nn.Linear(10, 10):half()
      self.loss = nn.MSELoss()
    end
    function Net:forward(x, t)
      local y = self.fc(x)
      return y, self.loss(y:float(), t)
    end
    local net = Net()
    local model = poptorch.trainingModel(net, nil,
      poptorch.optim.AdamW(net:parameters(), { lr = 0.002, loss_scaling = 16.0 }))
    local x, t = torch.randn(1, 10):half(), torch.randn(1, 10)
    local loss
    for _ = 1, 2500 do
      loss = select(2, model(x, t))
    end
    assert.is_true(loss:item() < 0.001, tostring(loss))
    assert.equal(half, net.fc.weight.dtype)
  end)

  it("keeps running statistics in the buffers' type", function()
    local norm = nn.BatchNorm1d(4)
    local Net = models.of(function(self, x)
      return poptorch.identity_loss(self.norm(x), "sum"), self.norm(x)
    end)
    Net.norm = norm
    local _, y = poptorch.trainingModel(Net)(torch.randn(6, 4):half())
    assert.equal(half, y.dtype)
    assert.equal(float, norm.running_mean.dtype)
  end)
end)

describe("class ids and indices of 32 bits", function()
  it("reach losses and embeddings", function()
    local table_ = nn.Embedding(6, 3)
    local net = models.of(function(self, i, t)
      return F.cross_entropy(self.table(i), t), self.table(i)
    end)
    net.table = table_
    local i, t = torch.tensor({ 1, 5, 1 }), torch.tensor({ 0, 2, 1 })
    local want = F.cross_entropy(table_(i), t)
    want:backward()
    local before = table_.weight:detach():clone()
    local model = poptorch.trainingModel(net, nil,
      poptorch.optim.SGD(net:parameters(), { lr = 0.5 }))
    local loss, rows = model(i, t)
    near(loss, want:detach())
    near(rows, before[{ i }])
    near(table_.weight, before - 0.5 * table_.weight.grad)
  end)

  it("work in gather, index_select, one_hot, advanced indexing and scatter", function()
    local x, i = torch.randn(4, 5), torch.tensor({ 3, 0 })
    local g = torch.tensor({ { 0, 1 }, { 4, 4 }, { 2, 0 }, { 1, 3 } })
    local a, b, c, d, e = models.infer(function(_, v, k, l)
      return v:index_select(0, k), v[{ k }], v:gather(1, l), F.one_hot(k, 4),
        torch.zeros(4, 5):scatter(1, l, 1.0)
    end)(x, i, g)
    near(a, x:index_select(0, i))
    near(b, x[{ i }])
    near(c, x:gather(1, g))
    near(d, { { 0, 0, 0, 1 }, { 1, 0, 0, 0 } })
    near(e, torch.zeros(4, 5):scatter(1, g, 1.0))
  end)

  it("come back from argmax, topk, sort and comparisons", function()
    local x = torch.tensor({ { 1.0, 5, 2 }, { 7, 0, 3 } })
    local a, best, order, count = models.infer(function(_, v)
      local _, top = v:topk(2)
      local _, at = v:sort(1)
      return v:argmax(1), top, at, v:gt(1.5):sum()
    end)(x)
    for _, t in ipairs({ a, best, order, count }) do
      assert.equal(torch.int32, t.dtype)
    end
    near(a, { 1, 0 })
    near(best, { { 1, 2 }, { 0, 2 } })
    near(order, { { 0, 2, 1 }, { 1, 2, 0 } })
    near(count, 4)
  end)
end)

describe("batch normalisation", function()
  local function wrap(norm, options)
    local net = models.of(function(self, x)
      return poptorch.identity_loss(self.norm(x), "sum")
    end)
    net.norm = norm
    return poptorch.trainingModel(net, options,
      poptorch.optim.SGD(net:parameters(), { lr = 0.0 }))
  end

  it("moves its statistics by the momentum, the variance without bias", function()
    local norm = nn.BatchNorm1d(2)
    wrap(norm)(torch.tensor({ { 1.0, 1 }, { 1, 3 } }))
    near(norm.running_mean, { 0.1, 0.2 })
    near(norm.running_var, { 0.9, 0.9 + 0.1 * 2 })
  end)

  it("sees micro-batch by micro-batch what a loop on the host sees", function()
    local device, host = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    local o = poptorch.Options():deviceIterations(5)
    o.Training:gradientAccumulation(2)
    local x = torch.randn(20, 3, 4, 4)
    wrap(device, o)(x)
    for i = 0, 9 do
      host(x[{ torch.slice(2 * i, 2 * i + 2) }])
    end
    near(device.running_mean, host.running_mean, { 1e-5, 1e-5 })
    near(device.running_var, host.running_var, { 1e-5, 1e-5 })
    near(device.num_batches_tracked, 10)
  end)

  it("in evaluation keeps its statistics", function()
    local norm = nn.BatchNorm1d(2)
    norm:eval()
    wrap(norm)(torch.randn(4, 2))
    near(norm.running_mean, { 0, 0 })
    near(norm.running_var, { 1, 1 })
  end)
end)

describe("marks in forward", function()
  local x = torch.randn(3, 4)

  it("leave values and gradients as they are", function()
    local function forward(marked)
      return function(self, v)
        local y = self.fc(v)
        if marked then
          y = poptorch.set_available_memory(y, 0.3)
          y = poptorch.recomputationCheckpoint(y)
          local a, b = poptorch.recomputationCheckpoint(y, y * 1)
          local list = poptorch.recomputationCheckpoint({ a, b })
          y = poptorch.nop(list[2])
        end
        return y, poptorch.identity_loss(y ^ 2, "sum")
      end
    end
    local results = {}
    for k, marked in ipairs({ true, false }) do
      torch.manual_seed(1)
      local net = models.of(forward(marked))
      net.fc = nn.Linear(4, 2)
      local y = poptorch.trainingModel(net)(x)
      results[k] = { y, net.fc.weight:detach() }
    end
    near(results[1][1], results[2][1])
    near(results[1][2], results[2][2])
  end)

  it("give back what they got, on the host too", function()
    near(poptorch.nop(x), x)
    near(poptorch.set_available_memory(x, { available_memory_proportion = 0.1 }), x)
    assert.equal(1, select("#", poptorch.recomputationCheckpoint(x)))
    assert.equal(2, select("#", poptorch.recomputationCheckpoint(x, x)))
    assert.equal(2, #poptorch.recomputationCheckpoint({ x, x }))
  end)

  it("take tensors only", function()
    raises("Error", "nop", function()
      poptorch.nop(5)
    end)
    raises("ValueError", "recomputationCheckpoint", function()
      poptorch.recomputationCheckpoint(5)
    end)
    raises("ValueError", "element 1", function()
      poptorch.recomputationCheckpoint({ x, "x" })
    end)
    raises("Error", "set_available_memory", function()
      poptorch.set_available_memory(5, 0.5)
    end)
    raises("Error", "ipu_print_tensor", function()
      poptorch.ipu_print_tensor(5)
    end)
    raises("ValueError", "%[0, 1%]", function()
      poptorch.set_available_memory(x, 1.5)
    end)
  end)
end)
