-- PopTorch's tests of its helpers (tests/ops_test.py): prints, no-ops, name
-- scopes and the memory that is given to operators.
local device = require("spec.support.on_device")
local program = require("spec.support.program")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

-- What a program prints whose model is the body of a function of x.
local function printed(forward)
  local _, err = program.run({ "-e", ([[
    local torch, poptorch = require("torch"), require("poptorch")
    local net = torch.nn.Module()
    function net:forward(x)
      %s
    end
    poptorch.inferenceModel(net)(torch.tensor({ 1.5, 2.5 }))
  ]]):format(forward) })
  return err
end

-- {cycles, scope} of the first node of an operator.
local function node(model, operator)
  for _, n in ipairs(model:report():nodes()) do
    if n.operator == operator then
      return n
    end
  end
  error("there is no " .. operator)
end

describe("ops", function()
  it("test_print_tensor", function()
    assert.matches("%(1%.5[0]*, *2%.5[0]*%)", printed("return poptorch.ipu_print_tensor(x)"))
  end)

  it("test_print_tensor_with_title", function()
    assert.matches("my_tensor: %(1%.5[0]*, *2%.5[0]*%)",
      printed('return poptorch.ipu_print_tensor(x, "my_tensor")'))
  end)

  it("test_nop", function()
    local model = device.infer(function(x)
      return poptorch.nop(x) * 2
    end)
    local x = torch.randn(5)
    device.close(model(x), x * 2)
    node(model, "nop")
  end)

  it("test_name_scope", function()
    local function name(forward)
      local model = device.infer(forward)
      local x, y = torch.randn(10, 10), torch.randn(10, 10)
      device.close(model(x, y), x + y)
      local names = model:getTensorNames()
      return names[#names]
    end
    assert.equal("NameScope/Add:0", name(function(x, y)
      local _ <close> = poptorch.NameScope("NameScope")
      return x + y
    end))
    assert.equal("A/B/Add:0", name(function(x, y)
      return poptorch.NameScope("A", function()
        return poptorch.NameScope("B", function() return x + y end)
      end)
    end))
  end)

  -- The bound of a product's temporaries changes what it costs.
  local function linear(proportion)
    return poptorch.inferenceModel(device.module(function(self, x)
      x = self.lin(self.conv(x))
      return proportion and poptorch.set_available_memory(x, proportion) or x
    end, function(self)
      self.conv, self.lin = nn.Conv2d(16, 16, 3), nn.Linear(254, 512)
    end))
  end

  it("test_available_memory_last_op", function()
    local x = torch.randn(512, 512)
    local function cycles(proportion)
      local model = device.infer(function(v)
        v = torch.matmul(v, v)
        return proportion and poptorch.set_available_memory(v, proportion) or v
      end)
      device.close(model(x), torch.matmul(x, x), { rtol = 1e-3, atol = 1e-3 })
      return node(model, "mm").cycles
    end
    assert(cycles(0.01) > cycles(nil))
  end)

  it("is set for the product two operators before, and for none further away", function()
    local x = torch.randn(512, 512)
    local function cycles(proportion, n)
      local model = device.infer(function(v)
        v = torch.matmul(v, v)
        for _ = 1, n do
          v = v:tanh()
        end
        return proportion and poptorch.set_available_memory(v, proportion) or v
      end)
      model:compile(x)
      return node(model, "mm").cycles
    end
    local free = cycles(nil, 0)
    assert(cycles(0.01, 1) > free and cycles(0.01, 2) > free)
    assert.equal(free, cycles(0.01, 3))
  end)

  it("test_available_memory_linear", function()
    local x = torch.rand(2, 16, 64, 256)
    local bound, free = linear(0.01), linear(nil)
    bound:compile(x)
    free:compile(x)
    -- the product behind the addition, not the convolution before it
    assert(node(bound, "mm").cycles > node(free, "mm").cycles)
    assert.equal(node(free, "convolution").cycles, node(bound, "convolution").cycles)
  end)
end)
