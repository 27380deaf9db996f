--- PopTorch 2.6's tests of automatic casting, by their names: the types in which
--- operators run, here seen in what forward returns.
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local SETTINGS = { default = {}, ["true"] = { true }, ["false"] = { false } }

local function expected(setting)
  return setting == "false" and torch.float32 or torch.float16
end

local function product(_, x, y)
  return torch.bmm(x, y)
end

local function type_of(forward)
  torch.manual_seed(42)
  return models.infer(forward)(torch.randn(1, 20, 20), torch.randn(1, 20, 20)).dtype
end

describe("autocast_test.py", function()
  it("test_autocast_decorator", function()
    for setting, args in pairs(SETTINGS) do
      local decorated = poptorch.autocast(table.unpack(args))(product)
      assert.equal(expected(setting), type_of(decorated), setting)
    end
  end)

  it("test_autocast_block", function()
    for setting, args in pairs(SETTINGS) do
      assert.equal(expected(setting), type_of(function(_, x, y)
        local _ <close> = poptorch.autocast(table.unpack(args))
        return torch.bmm(x, y)
      end), setting)
    end
  end)

  it("test_enable_autocast", function()
    for setting, args in pairs(SETTINGS) do
      local opts = poptorch.Options()
      if #args > 0 then
        opts.Precision:autocastEnabled(args[1])
      end
      local model = nn.Conv2d(1, 20, 5)
      model:autocast()
      local y = poptorch.inferenceModel(model, opts)(torch.randn(1, 1, 20, 20))
      assert.equal(expected(setting), y.dtype, setting)
      assert.same({ 1, 20, 16, 16 }, { table.unpack(y.shape) })
    end
  end)

  it("test_autocast_policy", function()
    local Policy = poptorch.autocasting.Policy
    local policies = {
      hff = Policy({ nn.Conv2d }, { torch.mul, torch.relu }),
      hfh = Policy({ nn.Conv2d, torch.relu }, { torch.mul }),
      hhf = Policy({ torch.mul }, { nn.Conv2d, torch.relu }),
      hhh = Policy(), -- "default" there
    }
    for types, policy in pairs(policies) do
      local model = models.of(function(self, x)
        local conv = self.conv(x)
        local half = 0.5 * conv
        return conv, half, torch.relu(half)
      end)
      model.conv = nn.Conv2d(1, 1, 20, 20)
      model:autocast()
      local opts = poptorch.Options()
      opts.Precision:autocastPolicy(policy)
      local got = table.pack(poptorch.inferenceModel(model, opts)(torch.randn(1, 1, 20, 20)))
      for i = 1, 3 do
        assert.equal(types:sub(i, i) == "h" and torch.float16 or torch.float32, got[i].dtype,
          ("%s, operator %d"):format(types, i))
      end
    end
  end)
end)
