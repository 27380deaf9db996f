-- PopTorch's own tests of custom operators (tests/custom_ops_test.py).
local custom_ops = require("spec.support.custom_ops")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local function cube(x, bias)
  return table.unpack(poptorch.custom_op({ x, bias }, "Cube", "com.acme", 1,
    { example_outputs = { x, x } }))
end

local function custom_loss(x, y, labels)
  return nn.functional.nll_loss(x, labels) + y:sum() * 0.0001
end

local function inference(forward)
  local Model = nn.Module:extend("Model")
  Model.forward = forward
  return poptorch.inferenceModel(Model())
end

-- 100 steps on random inputs; the last output.
local function train(model)
  local bias, y = torch.full({ 1, 100 }, 2.0), torch.full({ 1 }, 42)
  local trainer, out = poptorch.trainingModel(model), nil
  for _ = 1, 100 do
    out = trainer({ torch.rand({ 1, 100 }), bias }, y)
  end
  return out[1]
end

describe("custom_ops_test", function()
  setup(function()
    custom_ops.load("cube")
    custom_ops.load("leaky_relu")
  end)

  it("test_inference", function()
    local model = inference(function(_, x, bias)
      return cube(x, bias)
    end)
    local x, bias = torch.full({ 1, 8 }, 2.0), torch.full({ 1, 8 }, 4.0)
    local first, second = model(x, bias)
    helper.near(first, torch.full({ 1, 8 }, 12.0))
    helper.near(second, torch.full({ 1, 8 }, 8.0))
  end)

  it("test_training", function()
    torch.manual_seed(42)
    local Net = nn.Module:extend("TrainingNetwork")
    function Net:init()
      self.ln, self.softmax = nn.Linear(100, 100), nn.Softmax(1)
    end
    function Net:forward(t, target)
      local x, y = cube(t[1], t[2])
      x = self.softmax(self.ln(x))
      return { x, y }, custom_loss(x, y, target)
    end
    assert.equal(42, train(Net()):argmax():item())
  end)

  it("test_training_both_sides", function()
    torch.manual_seed(42)
    local Net = nn.Module:extend("TrainingNetwork")
    function Net:init()
      self.ln1, self.ln2, self.softmax = nn.Linear(100, 100), nn.Linear(100, 100), nn.Softmax(1)
    end
    function Net:forward(t, target)
      local x, y = cube(self.ln1(t[1]), t[2])
      x = self.softmax(self.ln2(x))
      return { x, y }, custom_loss(x, y, target)
    end
    local model = Net()
    local before = model.ln1.weight:detach():clone()
    local out = train(model)
    assert.is_false(torch.allclose(before, model.ln1.weight))
    assert.equal(42, out:argmax():item())
  end)

  it("test_inference_with_an_attribute", function()
    local model = inference(function(_, x)
      return poptorch.custom_op({ x }, "LeakyRelu", "com.acme", 1, { example_outputs = { x },
        attributes = { alpha = 0.02 } })[1]
    end)
    helper.near(model(torch.tensor({ -1.0, -0.5, 0.0, 0.5, 1.0 })), { -0.02, -0.01, 0, 0.5, 1 })
  end)
end)
