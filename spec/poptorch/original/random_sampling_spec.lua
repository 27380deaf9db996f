--- PopTorch's own tests of random numbers (random_sampling_test): on the device
--- they have the distribution's range, mean and variance, which formulas give;
--- and of torch_scatter (pyg_torch_scatter, grouping_scatters_gathers).
local assert = require("luassert")
local device = require("spec.support.on_device")
local poptorch = require("poptorch")
local torch = require("torch")
local scatter = require("torch_scatter")

-- The numbers that draw(x) gives on the device.
local function drawn(draw, x, dtype)
  local options = poptorch.Options():randomSeed(8)
  local out = poptorch.inferenceModel(device.module(function(y)
    return draw(y + 0)
  end), options)(x)
  assert.equal(dtype or torch.float, out.dtype)
  return out:float()
end

-- want: mean, var (within 5 standard errors or 1 %), min, max.
local function check(out, want)
  local n = out:numel()
  if want.min then
    assert.is_true(out:min():item() >= want.min)
    assert.is_true(out:max():item() <= want.max)
  end
  local error = 5 * math.sqrt(want.var / n) + 2e-3 * math.abs(want.mean)
  assert.near(want.mean, out:mean():item(), error)
  assert.near(want.var, out:var():item(), 0.05 * want.var + 1e-9)
end

local UNIT = { mean = 0.5, var = 1 / 12, min = 0, max = 1 }
local COIN = { mean = 0.5, var = 0.25, min = 0, max = 1 }
local HALF_AND_FLOAT = { torch.float, torch.half }

describe("random_sampling_test", function()
  it("test_rand", function()
    check(drawn(function(x)
      return torch.rand(x:size())
    end, torch.zeros({ 3, 50, 100 })), UNIT)
  end)

  it("test_distributions_uniform", function()
    check(drawn(function(x)
      return torch.distributions.Uniform(0.0, 10.0):sample(x:size())
    end, torch.zeros({ 10, 10, 100 })), { mean = 5, var = 100 / 12, min = 0, max = 10 })
  end)

  it("test_uniform_", function()
    for _, dtype in ipairs(HALF_AND_FLOAT) do
      check(drawn(function(x)
        return x:uniform_()
      end, torch.zeros({ 3, 4, 1000 }, { dtype = dtype }), dtype), UNIT)
    end
  end)

  it("test_normal", function()
    check(drawn(function(x)
      return torch.normal({ mean = 0.0, std = 1.0, size = x:size() })
    end, torch.zeros({ 6, 10, 1000 })), { mean = 0, var = 1 })
  end)

  it("test_normal_", function()
    for _, dtype in ipairs(HALF_AND_FLOAT) do
      check(drawn(function(x)
        return x:normal_({ mean = 1.0, std = 2.0 })
      end, torch.zeros({ 3, 5, 1000 }, { dtype = dtype }), dtype), { mean = 1, var = 4 })
    end
  end)

  it("test_normal_buffers", function()
    local Model = torch.nn.Module:extend("Model")
    function Model:init()
      self:register_buffer("mean", torch.tensor({ 1.0, 2.0, 3.0 }))
      self.std = torch.nn.Parameter(torch.tensor({ 0.5, 1.0, 1.5 }))
    end
    function Model:forward(x)
      return torch.normal(self.mean, 0.5) + torch.normal(1.0, self.std) + x
    end
    local model = poptorch.inferenceModel(Model(), poptorch.Options():randomSeed(8))
    local out = model(torch.zeros(3))
    assert.equal(torch.float, out.dtype)
    assert.same({ 3 }, { table.unpack(out.shape) })
    assert.is_false(torch.equal(out, model(torch.zeros(3))))
  end)

  it("test_distributions_normal", function()
    local out = drawn(function(x)
      local h = torch.tensor({ 234.0, 100.0 })
      return torch.distributions.Normal(h, torch.sqrt(h)):sample(x:size())
    end, torch.zeros({ 10000, 5 }))
    check(out["..., 0"], { mean = 234, var = 234 })
    check(out["..., 1"], { mean = 100, var = 100 })
  end)

  it("test_randn", function()
    check(drawn(function(x)
      return torch.randn(x:size())
    end, torch.zeros({ 3, 5, 10000 })), { mean = 0, var = 1 })
  end)

  -- uniform over 5 … 99
  local INTS = { mean = 52, var = (95 ^ 2 - 1) / 12, min = 5, max = 99 }

  it("test_random", function()
    for _, dtype in ipairs({ torch.float, torch.int }) do
      check(drawn(function(x)
        return x:random_(5, 100)
      end, torch.zeros({ 3, 5, 10000 }, { dtype = dtype }), dtype), INTS)
    end
  end)

  it("test_randint", function()
    for _, dtype in ipairs({ false, torch.int32, torch.half, torch.float }) do
      check(drawn(function(x)
        return torch.randint(5, 100, x:size(), dtype and { dtype = dtype } or {})
      end, torch.zeros({ 3, 5, 10000 }), dtype or torch.int32), INTS)
    end
  end)

  it("test_normal_tensor_mean", function()
    check(drawn(function(x)
      return torch.normal({ mean = x, std = 3.0 })
    end, torch.full({ 10000, 2 }, 4.0)), { mean = 4, var = 9 })
  end)

  it("test_normal_tensor_std", function()
    check(drawn(function(x)
      return torch.normal({ mean = 3.0, std = x })
    end, torch.full({ 10000, 2 }, 9.0)), { mean = 3, var = 81 })
  end)

  it("test_bernoulli", function()
    for _, dtype in ipairs(HALF_AND_FLOAT) do
      check(drawn(torch.bernoulli, torch.full({ 3, 50, 100 }, 0.5, { dtype = dtype }), dtype), COIN)
    end
  end)

  it("test_bernoulli_limits", function()
    for p = 0, 1 do
      local out = drawn(torch.bernoulli, torch.full({ 3, 5, 1000 }, p * 1.0))
      assert.is_true(out:eq(p):all():item())
    end
  end)

  it("test_bernoulli_", function()
    check(drawn(function(x)
      return x:bernoulli_({ p = 0.3 })
    end, torch.zeros({ 3, 50, 100 })), { mean = 0.3, var = 0.21, min = 0, max = 1 })
  end)

  it("test_distributions_bernoulli", function()
    check(drawn(function(x)
      return torch.distributions.Bernoulli(0.5):sample(x:size())
    end, torch.zeros({ 10, 10, 1000 })), COIN)
  end)

  it("test_exponential_", function()
    for _, rate in ipairs({ 0.5, 1.0 }) do
      check(drawn(function(x)
        return x:exponential_({ lambd = rate })
      end, torch.zeros({ 30, 50, 100 })), { mean = 1 / rate, var = 1 / rate ^ 2 })
    end
  end)

  it("test_distributions_exponential", function()
    check(drawn(function(x)
      return torch.distributions.Exponential(0.5):sample(x:size())
    end, torch.zeros({ 10, 10, 1000 })), { mean = 2, var = 4 })
  end)

  it("test_randperm", function()
    local out = drawn(function(x)
      return torch.randperm(x:size({ dim = 0 })) + 0
    end, torch.arange(100), torch.int32)
    assert.is_true(torch.equal(torch.arange(100.0), (torch.sort(out))))
    assert.is_false(torch.equal(torch.arange(100.0), out))
  end)

  it("test_random_seed_repeatability", function()
    local function run()
      return drawn(function(x)
        return x:normal_()
      end, torch.zeros({ 2, 2 }))
    end
    assert.is_true(torch.equal(run(), run()))
  end)
end)

describe("pyg_torch_scatter_test", function()
  local SRC = torch.tensor({ 1, 3, 2, 4, 5, 6 }):float()

  -- f with the number of results that the indices ask for.
  local function both(f, src, index, keywords)
    local of = { dim_size = index:max():item() + 1 }
    for name, value in pairs(keywords or {}) do
      of[name] = value
    end
    device.same(function(x, i)
      return f(x, i, of)
    end, { src, index })
  end

  it("test_scatter", function()
    local index = torch.tensor({ 0, 1, 0, 1, 1, 3 })
    for _, reduce in ipairs({ "sum", "mean", "max", "min", "mul" }) do
      both(scatter.scatter, SRC, index, { reduce = reduce })
    end
    -- by hand
    local out = poptorch.inferenceModel(device.module(function(x, i)
      return scatter.scatter(x, i, { dim_size = 4, reduce = "sum" })
    end))(SRC, index)
    assert.same({ 3, 12, 0, 6 }, out:tolist())
  end)

  it("test_composites", function()
    local index = torch.tensor({ 0, 1, 0, 1, 5, 3 })
    for _, name in ipairs({ "scatter_log_softmax", "scatter_logsumexp", "scatter_softmax",
      "scatter_std" }) do
      both(scatter[name], SRC, index)
    end
  end)

  it("test_scatter_inplace", function()
    local index = torch.tensor({ 0, 1, 4, 2, 3, 5 })
    for _, name in ipairs({ "scatter_max", "scatter_min", "scatter_mul" }) do
      device.same(function(x, i, out)
        return scatter[name](x, i, { out = out, dim_size = 6 })
      end, { SRC, index, torch.tensor({ 10, 1, 11, 1, 23, 1 }):float() })
    end
  end)

  it("test_scatter_overloads", function()
    torch.manual_seed(0)
    for _, shape in ipairs({ { 5 }, { 2, 5 }, { 2, 5, 5 } }) do
      for _, name in ipairs({ "scatter_max", "scatter_min", "scatter_mul" }) do
        both(scatter[name], torch.rand(shape), torch.randint(3, shape))
      end
    end
  end)

  it("test_scatter_add_zeros_optimized", function()
    both(scatter.scatter_add, SRC, torch.tensor({ 0, 1, 0, 1, 1, 3 }))
  end)

  it("test_scatter_add_nd_expand_removed", function()
    torch.manual_seed(0)
    both(scatter.scatter_add, torch.randn({ 10, 6, 16 }), torch.tensor({ 0, 1, 0, 1, 1, 3 }),
      { dim = 1 })
  end)

  it("grouping_scatters_gathers_test", function()
    torch.manual_seed(0)
    local index = torch.tensor({ 0, 1, 0, 1, 1, 3 })
    for _, name in ipairs({ "scatter_add", "scatter_softmax", "scatter_log_softmax",
      "scatter_std" }) do
      device.same(function(x, y, z, i)
        local of = { dim = 0, dim_size = 4 }
        return scatter[name](x, i, of), scatter[name](y, i, of), scatter[name](z, i, of)
      end, { torch.randn({ 6, 3 }), torch.randn({ 6, 3 }), torch.randn({ 6, 3 }), index })
    end
    device.same(function(x, y, z, i)
      return torch.gather(x, 0, i), torch.gather(y, 0, i), torch.gather(z, 0, i)
    end, { torch.randn({ 6, 3 }), torch.randn({ 6, 3 }), torch.randn({ 6, 3 }),
      torch.randint(0, 6, { 6, 3 }) })
  end)
end)
