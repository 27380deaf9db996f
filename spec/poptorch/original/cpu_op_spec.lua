-- PopTorch's own tests of CPU ops (tests/cpu_op_test.py).
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

-- A model whose fields are CPU ops of these functions and modules, by name.
local function model(ops, forward)
  local Model = nn.Module:extend("Model")
  function Model:init()
    for name, fn in pairs(ops) do
      self[name] = poptorch.CPU(fn, "MyCPUOp_" .. name)
    end
  end
  Model.forward = forward
  return Model()
end

local function double(x)
  return x * 2
end

describe("cpu_op_test", function()
  local x = torch.randn({ 5, 2, 3, 5 })
  local two, four = torch.tensor({ 2.0 }), torch.tensor({ 4.0 })

  it("test_simple_CPU", function()
    local inference = poptorch.inferenceModel(model({ cpu = torch.mul }, function(self, a, b)
      return self.cpu(a, b) * 3
    end))
    helper.near(inference(x, two), x * 6)
    helper.near(inference(x, four), x * 12)
  end)

  it("test_simple_CPU_multiple_outputs", function()
    local function foo(a, b)
      return a * b, a + b
    end
    local inference = poptorch.inferenceModel(model({ cpu = foo }, function(self, a, b)
      local w, z = self.cpu(a, b)
      return w * 3, z
    end))
    for _, y in ipairs({ two, four }) do
      local w, z = inference(x, y)
      helper.near(w, x * (3 * y:item()))
      helper.near(z, x + y)
    end
  end)

  it("test_CPU_reduce", function()
    local inference = poptorch.inferenceModel(model({ cpu = torch.mean }, function(self, a)
      return self.cpu(a)
    end))
    local out = inference(x)
    assert.equal(0, out:dim())
    helper.near(out, torch.mean(x))
  end)

  it("test_CPU_matmul", function()
    local layer = nn.Linear(20, 30)
    local inference = poptorch.inferenceModel(model({ cpu = layer }, function(self, a)
      return self.cpu(a)
    end))
    local input = torch.randn(128, 20)
    local out = inference(input)
    helper.near(out, layer(input))
    assert.is_false(layer.weight.requires_grad or layer.bias.requires_grad)
    assert.is_false(out.requires_grad)
  end)

  it("test_CPU_multiple_calls", function()
    local inference = poptorch.inferenceModel(model({
      cpu = function(a)
        assert.equal("cpu", a.device.type)
        return double(a)
      end,
    }, function(self, a)
      return self.cpu(self.cpu(self.cpu(a)))
    end))
    helper.near(inference(x), x * 8)
  end)

  it("test_CPU_multiple_calls_multiple_classes", function()
    local m = model({ cpu = double, cpu2 = torch.add }, function(self, a, b)
      for _ = 1, 3 do
        a = self.cpu2(self.cpu(a), b)
      end
      return a
    end)
    local a, b = torch.randn({ 5 }), torch.randn({ 5 })
    helper.near(poptorch.inferenceModel(m)(a, b), a * 8 + b * 7)
    helper.near(m(a, b), a * 8 + b * 7) -- on the host it calls the functions
  end)

  it("test_poptorch_op_in_cpu_op", function()
    local function foo(a)
      return poptorch.identity_loss(a, "sum")
    end
    local inference = poptorch.inferenceModel(model({ cpu = foo }, function(self, a)
      return self.cpu(a), foo(a)
    end), poptorch.Options():deviceIterations(2))
    local one, other = inference(torch.tensor({ 1.0, 2.0 }))
    helper.near(one, { 1, 2 })
    helper.near(other, { 1, 2 })
  end)
end)
