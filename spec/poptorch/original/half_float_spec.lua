--- PopTorch's half_float_test.py: the types of what is made of float16 and
--- float32, by the names of its functions. Each forward runs on the host and in an
--- inference model; both give tensors of one type.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local f16, f32 = torch.float16, torch.float32
local BOTH = { f16, f32 }

-- `forward` of `values` in both types.
local function same_type(forward, values, sizes)
  for _, dtype in ipairs(BOTH) do
    local x = sizes and torch.empty(sizes, { dtype = dtype })
      or torch.tensor(values or { 1 }, { dtype = dtype })
    local model = models.of(function(_, ...)
      return forward(...)
    end)
    local native = model(x)
    assert.equal(native.dtype, poptorch.inferenceModel(model)(x).dtype, tostring(dtype))
  end
end

local function each(fn)
  for _, make in ipairs({ torch.ones, torch.zeros }) do
    fn(make)
  end
end

-- A loss under 0.001 after as many runs as it takes, at most 2500.
local function trains(net)
  torch.manual_seed(42)
  local model = models.of(function(self, data, target)
    local out = self.net(data)
    return out, nn.MSELoss()(out, target)
  end)
  model.net = net()
  local trainer = poptorch.trainingModel(model)
  local target, input = torch.randn(10), torch.randn(10):half()
  local out, loss = trainer(input, target:half())
  assert.is_true(loss:item() > 0.1)
  assert.is_false(torch.allclose(out:float(), target, 1e-2, 1e-2))
  for _ = 1, 2500 do
    out, loss = trainer(input, target:half())
  end
  assert.is_true(loss:item() < 0.001)
  helper.near(out:float(), target, { 1e-2, 1e-2 })
  assert.equal(f32, model.net:parameters()[1].dtype)
end

describe("half_float_test.py", function()
  local level
  setup(function()
    level = require("lupine.core").host.log_level()
    poptorch.setLogLevel("WARN")
  end)
  teardown(function()
    require("lupine.core").host.log_level(level)
  end)

  it("test_ones_zeros_default_resolved", function()
    each(function(make)
      same_type(function(x)
        return make({ 2, 3, 4 }, { dtype = x.dtype }) + x:to(x.dtype)
      end)
    end)
  end)

  it("test_ones_zeros_input_resolved_with_input_dtype", function()
    each(function(make)
      same_type(function(x)
        return make({ 2, 3, 4 }, { dtype = x.dtype }) + x
      end)
    end)
  end)

  it("test_ones_zeros_input_resolved_always_float16", function()
    each(function(make)
      same_type(function(x)
        return make({ 2, 3, 4 }, { dtype = f16 }) + x
      end)
    end)
  end)

  it("test_ones_zeros_input_resolved_always_float32", function()
    each(function(make)
      same_type(function(x)
        return make({ 2, 3, 4 }, { dtype = f32 }) + x
      end)
    end)
  end)

  it("test_rand_default_resolved", function()
    same_type(function(x)
      return torch.rand(3, 5, 100, { dtype = x.dtype })
    end)
  end)

  it("test_rand_default_input_resolved", function()
    same_type(function(x)
      return torch.rand(3, 5, 100, { dtype = x.dtype }) + x
    end)
  end)

  it("test_rand_default_input_resolved_always_float16", function()
    same_type(function(x)
      return torch.rand(3, 5, 100, { dtype = f16 }) + x
    end)
  end)

  it("test_normal_mean_correctly_resolved", function()
    same_type(function(mean)
      return torch.normal(mean, 10.0)
    end, { 0.0 })
  end)

  it("test_normal_std_correctly_resolved", function()
    same_type(function(std)
      return torch.normal(0.0, std)
    end, { 10.0 })
  end)

  it("test_distributions_uniform", function()
    same_type(function(low)
      torch.manual_seed(42)
      local high = torch.tensor({ 10.0 }, { dtype = f32 })
      return torch.distributions.Uniform(low, high):sample({ 10, 10, 1000 })
    end)
  end)

  it("test_distributions_normal_mean_correctly_resolved", function()
    same_type(function(mean)
      torch.manual_seed(42)
      return torch.distributions.Normal(mean, 10.0):sample({ 10, 10, 100 })
    end, { 0.0 })
  end)

  it("test_distributions_normal_std_correctly_resolved", function()
    same_type(function(std)
      torch.manual_seed(42)
      return torch.distributions.Normal(0.0, std):sample({ 10, 10, 100 })
    end, { 10.0 })
  end)

  it("test_uniform_correctly_resolved", function()
    same_type(function(x)
      torch.manual_seed(42)
      return (x + 0):uniform_()
    end, nil, { 3, 4, 10 })
  end)

  it("test_normal_correctly_resolved", function()
    same_type(function(x)
      torch.manual_seed(42)
      return (x + 0):normal_()
    end, nil, { 3, 4, 10 })
  end)

  it("test_constant_correctly_resolved", function()
    same_type(function(x)
      return torch.tensor({ 1, 2, 3 }, { dtype = x.dtype }) + x
    end, { 3, 4, 8 })
  end)

  it("test_constant_add_float16", function()
    same_type(function(x)
      return torch.tensor({ 1, 2, 3 }, { dtype = x.dtype }) + x:to(f16)
    end, { 3, 4, 8 })
  end)

  it("test_constant_always_float32", function()
    same_type(function(x)
      return torch.tensor({ 1, 2, 3 }, { dtype = f32 }) + x
    end, { 3, 4, 8 })
  end)

  it("test_float16_activations_float32_weights", function()
    for _, conv in ipairs({ true, false }) do
      local input = conv and torch.ones(1, 4, 4) or torch.ones(10)
      local model = conv and nn.Conv1d(4, 5, 2) or nn.Linear(10, 20)
      for _ = 1, 2 do -- weights of float32, then of float16
        assert.equal(f32, poptorch.inferenceModel(model)(input).dtype)
        assert.equal(f16, poptorch.inferenceModel(model)(input:half()).dtype)
        model:half()
      end
    end
  end)

  it("test_master_weight_training", function()
    trains(function()
      return nn.Linear(10, 10)
    end)
  end)

  it("test_bigger_model_training", function()
    trains(function()
      local layers = {}
      for i = 1, 5 do
        layers[i] = nn.Linear(10, 10)
      end
      return nn.Sequential(table.unpack(layers))
    end)
  end)
end)
