--- PopTorch's rules of float16 and of automatic casting (2.6), a numbered case each.
local device = require("spec.support.on_device")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises
local f16, f32 = torch.float16, torch.float32

local function type_of(f, ...)
  return device.infer(f)(...).dtype
end

describe("conformance, float16:", function()
  it("HAL01 half and float give float", function()
    local half, float = torch.ones(2):half(), torch.ones(2)
    for _, f in ipairs({ torch.add, torch.mul, torch.sub, torch.div, torch.maximum }) do
      assert.equal(f32, type_of(f, half, float))
      assert.equal(f32, type_of(f, float, half))
      assert.equal(f16, type_of(f, half, half))
    end
  end)

  it("HAL03 weights follow their input", function()
    for _, layer in ipairs({ nn.Linear(4, 3), nn.Conv1d(4, 3, 1) }) do
      local x = torch.randn(1, 4, 4)
      assert.equal(f16, poptorch.inferenceModel(layer)(x:half()).dtype)
      assert.equal(f32, layer.weight.dtype)
      local halves = layer:deepcopy():half()
      assert.equal(f32, poptorch.inferenceModel(halves)(x).dtype)
    end
  end)

  it("HAL04 a half model with a master copy trains", function()
    torch.manual_seed(42)
    local net = models.of(function(self, x, target)
      local y = self.fc(x)
      return y, self.loss(y, target)
    end)
    net.fc, net.loss = nn.Linear(10, 10), nn.MSELoss()
    local trainer, loss = poptorch.trainingModel(net), nil
    local x, target = torch.randn(10):half(), torch.randn(10):half()
    local _, first = trainer(x, target)
    assert.equal(f16, first.dtype)
    for _ = 1, 2500 do
      loss = select(2, trainer(x, target))
    end
    assert.is_true(first:item() > 0.1 and loss:item() < 0.001)
    assert.equal(f32, net.fc.weight.dtype)
  end)

  it("HAL06 a half batch norm with statistics of float", function()
    local net = models.of(function(self, x)
      local y = self.bn(x)
      return y, poptorch.identity_loss(y ^ 2, "mean")
    end)
    net.bn = nn.BatchNorm1d(4)
    net:half()
    net.bn.running_mean = net.bn.running_mean:float()
    net.bn.running_var = net.bn.running_var:float()
    local x = torch.randn(8, 4):half()
    local y = poptorch.trainingModel(net)(x)
    assert.equal(f16, y.dtype)
    assert.same({ f32, f32 }, { net.bn.running_mean.dtype, net.bn.running_var.dtype })
    helper.near(net.bn.running_mean, x:float():mean(0) * 0.1, { 1e-3, 1e-3 })
  end)

  it("HAL07 what is made keeps its type", function()
    for _, make in ipairs({ torch.ones, torch.zeros, torch.rand }) do
      for _, input in ipairs({ f16, f32 }) do
        for made, want in pairs({ own = input, [f16] = input, [f32] = f32 }) do
          assert.equal(want, type_of(function(x)
            return make(3, { dtype = made == "own" and x.dtype or made }) + x
          end, torch.ones(3, { dtype = input })))
        end
      end
    end
  end)
end)

describe("conformance, casting:", function()
  it("AUT01 a product in a scope", function()
    local x = torch.randn(1, 20, 20)
    for setting, want in pairs({ none = f16, [true] = f16, [false] = f32 }) do
      local arguments = setting == "none" and {} or { setting }
      assert.equal(want, type_of(function(a, b)
        local _ <close> = poptorch.autocast(table.unpack(arguments))
        return torch.bmm(a, b)
      end, x, x))
      assert.equal(want, type_of(poptorch.autocast(table.unpack(arguments))(torch.bmm), x, x))
    end
  end)

  it("AUT03 policies", function()
    local Policy = poptorch.autocasting.Policy
    for _, case in ipairs({ { Policy({ nn.Conv2d }, { torch.mul, torch.relu }), f16, f32, f32 },
      { Policy({ nn.Conv2d, torch.relu }, { torch.mul }), f16, f32, f16 },
      { Policy(), f16, f16, f16 } }) do
      local net = models.of(function(self, x)
        local a = self.conv(x)
        local b = 0.5 * a
        return a, b, torch.relu(b)
      end)
      net.conv = nn.Conv2d(1, 1, 3)
      net:autocast()
      local options = poptorch.Options()
      options.Precision:autocastPolicy(case[1])
      local got = {}
      for i, t in ipairs({ poptorch.inferenceModel(net, options)(torch.randn(1, 1, 5, 5)) }) do
        got[i] = t.dtype
      end
      assert.same({ table.unpack(case, 2) }, got)
    end
  end)

  it("AUT05 a policy is a Policy", function()
    local precision = poptorch.Options().Precision
    raises("ValueError", "Policy", function() precision:autocastPolicy({}) end)
    raises("ValueError", "", function() precision:autocastEnabled("yes") end)
  end)
end)
