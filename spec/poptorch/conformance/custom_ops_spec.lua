--- PopTorch's rules of custom operators and of CPU ops, a numbered case each.
local custom_ops = require("spec.support.custom_ops")
local device = require("spec.support.on_device")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local function vec(...)
  return torch.tensor({ ... }, { dtype = torch.float32 })
end

-- The first result of an operator of the tests' library.
local function apply(name, attributes, x)
  return device.infer(function(v)
    return poptorch.custom_op({ v }, name, "test.poptorch", 1, { v }, attributes)[1]
  end)(x)
end

local function cube(x, bias)
  local out = poptorch.custom_op({ x, bias }, "Cube", "com.acme", 1, { x, x })
  return out[1], out[2]
end

describe("conformance, custom operators:", function()
  setup(function()
    for _, name in ipairs({ "cube", "leaky_relu", "test_ops", "many_attributes" }) do
      custom_ops.load(name)
    end
  end)

  it("CUS01 Cube", function()
    local first, second = device.infer(cube)(torch.full({ 1, 8 }, 2.0), torch.full({ 1, 8 }, 4.0))
    near(first, torch.full({ 1, 8 }, 12))
    near(second, torch.full({ 1, 8 }, 8))
  end)

  it("CUS03 attributes of each kind", function()
    near(apply("AddScalarFloat", { scalar = 3.5 }, vec(5)), { 8.5 })
    near(apply("AddScalarInt", { scalar = 3 }, torch.tensor({ 5 })), { 8 })
    for _, list in ipairs({ { 1.0, 2.0, 3.0 }, table.pack(1.0, 2.0, 3.0) }) do
      near(apply("AddScalarVecFloat", { vec = list }, vec(3, 4, 5)), { 4, 6, 8 })
    end
    near(apply("AddScalarVecInt", { vec = { 1, 2, 3 } }, torch.tensor({ 3, 4, 5 })), { 4, 6, 8 })
  end)

  it("CUS05 a text as an attribute", function()
    for how, want in pairs({ sum = 18, mean = 6 }) do
      near(apply("ReduceOp", { reduction = how }, vec(5, 6, 7)), want)
    end
  end)

  it("CUS06 the order of attributes does not matter, their values do", function()
    local function many(text)
      local all = { a_string = text, int_minus_five = -5, float_one = 1.0, int_zero = 0,
        floats_one_two_three = { 1.0, 2.0, 3.0 }, ints_minus_one_two_three = { -1, -2, -3 } }
      all.strs, all.float_minus_two = { "\x01", "\x02", "\x03" }, -2.0
      all.ints_one_two_three, all.floats_minus_one_two_three = { 1, 2, 3 }, { -1.0, -2.0, -3.0 }
      return apply("ManyAttributeOp", all, vec(0))
    end
    near(many("string with quotes and slash \" ' \\ end"), { 1 })
    near(many("Very wrong"), { 0 })
  end)

  it("CUS07 a gradient of its own", function()
    local module = models.of(function(self, x)
      local y = poptorch.custom_op({ x * self.w }, "LeakyRelu", "com.acme", 1, { x },
        { alpha = 0.25 })[1]
      return y, poptorch.identity_loss(y, "sum")
    end)
    module.w = nn.Parameter(torch.ones(1))
    local trainer = poptorch.trainingModel(module, nil, torch.optim.SGD({ module.w }, { lr = 1 }))
    trainer(vec(-4, 3))
    near(module.w, { 1 - (0.25 * -4 + 3) })
  end)
end)

describe("conformance, CPU ops:", function()
  -- An inference model of forward(cpu, …), cpu calling fn.
  local function infer(name, fn, forward)
    local op = poptorch.CPU(fn, name)
    return device.infer(function(...) return forward(op, ...) end)
  end

  it("CUS08 a product on the host, then one on the device", function()
    local x = torch.randn(5, 2)
    local model = infer("cus08", torch.mul, function(cpu, a, b) return cpu(a, b) * 3 end)
    near(model(x, vec(2)), x * 6)
    near(model(x, vec(4)), x * 12)
  end)

  it("CUS10 a layer on the host", function()
    local layer, x = nn.Linear(20, 30), torch.randn(4, 20)
    near(infer("cus10", layer, function(cpu, a) return cpu(a) end)(x), layer(x):detach())
    for _, p in ipairs(layer:parameters()) do
      assert.is_false(p.requires_grad)
      assert.is_nil(p.grad)
    end
  end)

  it("CUS11 several results; not in training", function()
    local a, b = infer("cus11", function(x) return x + 1, x * 2 end, function(cpu, x)
      local one, two = cpu(x)
      return one, two
    end)(vec(3))
    near(a, { 4 })
    near(b, { 6 })
    local op = poptorch.CPU(function(x) return x end, "cus11_train")
    local module = models.of(function(self, x)
      return poptorch.identity_loss(op(x * self.w), "sum")
    end)
    module.w = nn.Parameter(torch.ones(1))
    raises("Error", "inference", function() poptorch.trainingModel(module)(vec(1)) end)
  end)
end)
