--- Optimizers on the device. Expected weights are worked out from the formulas
--- of PyTorch's and PopART's documentation.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises

local near = helper.near

local Sum = models.Sum

-- Weights after each of the steps, from 1.
local function course(make, steps)
  local net = Sum(1)
  local model = poptorch.trainingModel(net, nil, make(net:parameters()))
  local out = {}
  for i = 1, steps or 3 do
    model(torch.ones(1))
    out[i] = net.w:item()
  end
  return torch.tensor(out)
end

local function pop(name, t)
  return function(params)
    return poptorch.optim[name](params, t)
  end
end

local function native(name, t)
  return function(params)
    return torch.optim[name](params, t)
  end
end

describe("three steps of", function()
  local cases = {
    { "SGD", { lr = 0.1 }, { 0.9, 0.8, 0.7 } },
    { "SGD", { lr = 0.1, weight_decay = 0.5 }, { 0.85, 0.7075, 0.572125 } },
    { "SGD", { lr = 0.1, momentum = 0.9, dampening = 0.5 }, { 0.95, 0.855, 0.7195 } },
    { "SGD", { lr = 0.1, dampening = 0.5 }, { 0.95, 0.9, 0.85 } },
    { "AdamW", { lr = 0.1, weight_decay = 0.01 }, { 0.899, 0.798101, 0.6973029 } },
    { "RMSprop", { lr = 0.01 }, { 0.9, 0.829112, 0.771087 } },
    { "RMSprop", { lr = 0.01, momentum = 0.9 }, { 0.9, 0.739112, 0.536288 } },
    { "RMSprop", { lr = 0.01, centered = true }, { 0.899496, 0.827892, 0.768986 } },
  }
  for i, case in ipairs(cases) do
    it(("poptorch.optim.%s, case %d"):format(case[1], i), function()
      near(course(pop(case[1], case[2])), case[3], { 2e-6, 2e-6 })
    end)
  end

  it("Nesterov momentum equal PyTorch's but for a first step from a velocity of 0", function()
    -- v: 1, 1.9, 2.71; the step is 1 + 0.9 v
    near(course(pop("SGD", { lr = 0.1, momentum = 0.9, nesterov = true })),
      { 1 - 0.19, 1 - 0.19 - 0.271, 1 - 0.19 - 0.271 - 0.3439 })
  end)

  it("TensorFlow's RMSprop", function()
    local v, buffer, w, want = 1, 0, 1, {}
    for i = 1, 3 do
      v = 0.9 * v + 0.1
      buffer = 0.5 * buffer + 0.1 / math.sqrt(v + 1e-6)
      w = w - buffer
      want[i] = w
    end
    near(course(pop("RMSprop", { lr = 0.1, alpha = 0.9, eps = 1e-6, momentum = 0.5,
      use_tf_variant = true })), want)
  end)

  it("AdamW without bias correction", function()
    local m, v, w, want = 0, 0, 1, {}
    for i = 1, 3 do
      m, v = 0.9 * m + 0.1, 0.999 * v + 0.001
      w = w - 0.1 * (m / (math.sqrt(v) + 1e-8) + 0.01 * w)
      want[i] = w
    end
    near(course(pop("AdamW", { lr = 0.1, bias_correction = false })), want)
  end)

  it("native optimizers equal PyTorch's but for SGD's dampening", function()
    near(course(native("SGD", { lr = 0.1, momentum = 0.9 })), { 0.9, 0.71, 0.439 })
    for _, make in ipairs({ native, pop }) do
      near(course(make("SGD", { lr = 0.1, momentum = 0.9, dampening = 0.5 })),
        { 0.95, 0.855, 0.7195 })
      near(course(make("SGD", { lr = 0.1, dampening = 0.5 })), { 0.95, 0.9, 0.85 })
    end
    near(course(native("AdamW", { lr = 0.1, weight_decay = 0.01 })),
      { 0.899, 0.798101, 0.6973029 })
    near(course(native("RMSprop", { lr = 0.01 })), { 0.9, 0.829112, 0.771087 })
    near(course(native("Adam", { lr = 0.1 })), { 0.9, 0.8, 0.7 })
  end)
end)

describe("maximize", function()
  it("goes up the gradient, in every update that has it", function()
    for name, options in pairs({ SGD = { momentum = 0.5, weight_decay = 0.1 }, Adam = {},
      AdamW = { weight_decay = 0.1 }, RMSprop = { momentum = 0.5 } }) do
      local up, host = { lr = 0.1, maximize = true }, { lr = 0.1, maximize = true }
      for k, v in pairs(options) do
        up[k], host[k] = v, v
      end
      near(course(pop(name, up)), course(native(name, host)), { 2e-6, 2e-6 })
      assert.is_true(course(pop(name, { lr = 0.1, maximize = true }), 1)[0]:item() > 1)
    end
  end)

  it("is refused where the velocity gathers gradients, differentiable everywhere", function()
    local params = Sum(1):parameters()
    raises("ValueError", "nesterov and maximize cannot be used", function()
      poptorch.optim.SGD(params, { lr = 0.1, maximize = true, use_combined_accum = true })
    end)
    for _, name in ipairs({ "SGD", "Adam", "RMSprop" }) do
      raises("NotImplementedError", "differentiable must be false", function()
        poptorch.optim[name](params, { lr = 0.1, differentiable = true })
      end)
    end
  end)

  it("centered is one for all groups, of PyTorch's RMSprop too", function()
    for _, module in ipairs({ poptorch.optim, torch.optim }) do
      raises("AssertionError", "must have the same value of centered", function()
        local net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
        poptorch.trainingModel(net, nil, module.RMSprop({
          { params = net[1]:parameters(), centered = true },
          { params = net[2]:parameters() } }, { lr = 0.1 }))
      end)
    end
  end)

  it("and the choices of implementations are bools", function()
    local params = Sum(1):parameters()
    for _, flag in ipairs({ "maximize", "foreach", "capturable", "fused", "amsgrad" }) do
      raises("TypeError", "Adam: " .. flag .. ": expected bool", function()
        poptorch.optim.Adam(params, { [flag] = 1 })
      end)
      poptorch.optim.Adam(params, { [flag] = false })
    end
  end)
end)

describe("a step on the host", function()
  it("is that of the device", function()
    for _, case in ipairs({
      { "SGD", { lr = 0.1, momentum = 0.9, dampening = 0.5, weight_decay = 0.2 } },
      { "SGD", { lr = 0.1, momentum = 0.9, weight_decay = 0.2, use_combined_accum = true } },
      { "SGD", { lr = 0.1 } }, { "Adam", { lr = 0.1 } },
      { "AdamW", { lr = 0.1, bias_correction = false } },
      { "RMSprop", { lr = 0.1, momentum = 0.5, centered = true } },
      { "LAMB", { lr = 0.1, max_weight_norm = 0.5 } },
    }) do
      local net, out = Sum(1), {}
      local optimizer = pop(case[1], case[2])(net:parameters())
      for i = 1, 3 do
        optimizer:zero_grad()
        net(torch.ones(1)):backward()
        optimizer:step()
        out[i] = net.w:item()
      end
      near(course(pop(case[1], case[2])), out, { 1e-5, 1e-5 })
    end
  end)
end)

describe("LAMB", function()
  it("scales a step by the ratio of norms", function()
    local net = Sum(3, 4)
    poptorch.trainingModel(net, nil, poptorch.optim.LAMB(net:parameters(),
      { lr = 0.1, weight_decay = 0.01 }))(torch.ones(2))
    near(net.w, { 2.648159, 3.644743 })
  end)

  it("limits the weights' norm to max_weight_norm", function()
    local net = Sum(3, 4)
    poptorch.trainingModel(net, nil, poptorch.optim.LAMB(net:parameters(),
      { lr = 0.1, weight_decay = 0.0, max_weight_norm = 2.0 }))(torch.ones(2))
    near(net.w, { 3 - 0.1 * 2 / math.sqrt(2), 4 - 0.1 * 2 / math.sqrt(2) })
  end)

  it("has groups without a limit", function()
    local net = Sum(3, 4)
    poptorch.trainingModel(net, nil, poptorch.optim.LAMB({ { params = { net.w },
      max_weight_norm = torch.none } }, { lr = 0.1, weight_decay = 0.0, max_weight_norm = 2.0 }))(
      torch.ones(2))
    near(net.w, { 3 - 0.1 * 5 / math.sqrt(2), 4 - 0.1 * 5 / math.sqrt(2) })
  end)
end)

describe("a loss scale", function()
  it("does not change the weights", function()
    for _, case in ipairs({ { "SGD", { lr = 0.1, momentum = 0.9, weight_decay = 0.1 } },
      { "SGD", { lr = 0.1 } },
      { "SGD", { lr = 0.1, momentum = 0.9, weight_decay = 0.1, use_combined_accum = true } },
      { "Adam", { lr = 0.1 } }, { "AdamW", { lr = 0.1 } }, { "RMSprop", { lr = 0.1 } },
      { "LAMB", { lr = 0.1 } } }) do
      local function run(scale)
        case[2].loss_scaling = scale
        return course(pop(case[1], case[2]))
      end
      local one = run(1.0)
      near(run(8.0), one)
      near(run(1000.0), one)
    end
  end)

  it("is a finite number above 0", function()
    for _, value in ipairs({ -1, 0, 0 / 0, math.huge }) do
      local net = Sum(1)
      for _, name in ipairs({ "SGD", "Adam", "AdamW", "RMSprop", "LAMB" }) do
        raises("ValueError", "loss_scaling: expected a finite float > 0", function()
          poptorch.optim[name](net:parameters(), { lr = 0.1, loss_scaling = value })
        end)
      end
      raises("ValueError", "velocity_scaling: expected a finite float > 0", function()
        poptorch.optim.SGD(net:parameters(), { lr = 0.1, use_combined_accum = true,
          velocity_scaling = value })
      end)
      local optimizer = poptorch.optim.SGD(net:parameters(), { lr = 0.1, loss_scaling = 2.0 })
      local model = poptorch.trainingModel(net, nil, optimizer)
      model(torch.ones(1))
      optimizer.loss_scaling = value
      raises("ValueError", "loss_scaling", function()
        model:setOptimizer(optimizer)
      end)
      model:destroy()
    end
  end)

  it("may change between steps", function()
    local net = Sum(1)
    local optimizer = poptorch.optim.SGD(net:parameters(), { lr = 0.1, loss_scaling = 2.0 })
    local model = poptorch.trainingModel(net, nil, optimizer)
    model(torch.ones(1))
    optimizer.loss_scaling = 64.0
    model:setOptimizer(optimizer)
    model(torch.ones(1))
    near(net.w, { 0.8 })
  end)
end)

describe("the combined form of SGD", function()
  local x, t = torch.randn(24, 3), torch.randn(24, 2)

  local function train(options, make)
    torch.manual_seed(4)
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.fc = nn.Linear(3, 2)
      self.loss = nn.MSELoss()
    end
    function Net:forward(a, b)
      return self.loss(self.fc(a), b)
    end
    local net = Net()
    local model = poptorch.trainingModel(net, options, make(net:parameters()))
    for _ = 1, 4 do
      model(x, t)
    end
    return net.fc.weight:detach()
  end

  it("follows v0 = (1-d) wd w, v += (1-d) g, w -= lr v, v = m v + (1-d) wd w", function()
    local v, w, want = 0.5 * 0.2 * 1, 1, {}
    for i = 1, 3 do
      v = v + 0.5
      w = w - 0.1 * v
      want[i] = w
      v = 0.9 * v + 0.5 * 0.2 * w
    end
    near(course(pop("SGD", { lr = 0.1, momentum = 0.9, dampening = 0.5, weight_decay = 0.2,
      use_combined_accum = true })), want)
  end)

  it("gives the weights of the separate form without decay, with any scale", function()
    local o = poptorch.Options():deviceIterations(2):replicationFactor(2)
    o.Training:gradientAccumulation(3)
    local separate = train(o, pop("SGD", { lr = 0.1, momentum = 0.9 }))
    near(train(o, pop("SGD", { lr = 0.1, momentum = 0.9, use_combined_accum = true,
      velocity_scaling = 16.0, loss_scaling = 4.0 })), separate, { 1e-5, 1e-5 })
  end)

  it("alone has a velocity scale", function()
    local net = Sum(1)
    assert.matches("velocity_scaling has no effect", helper.logged(function()
      poptorch.optim.SGD(net:parameters(), { lr = 0.1, velocity_scaling = 2.0 })
    end))
  end)
end)

describe("max_grad_norm", function()
  it("clips as torch.nn.utils.clip_grad_norm_ and a step do", function()
    for _, most in ipairs({ 0.001, 0.7, 100.0 }) do
      local net = Sum(1, 2, 3)
      net.b = nn.Parameter(torch.tensor({ 4.0 }))
      function net:forward(x)
        return poptorch.identity_loss((self.w * x):sum() + self.b * 2, "sum")
      end
      local norm = math.sqrt(1 + 1 + 1 + 4)
      local k = math.min(1, most / (norm + 1e-6))
      local model = poptorch.trainingModel(net, nil, poptorch.optim.SGD(net:parameters(),
        { lr = 0.5, max_grad_norm = most, loss_scaling = 8.0 }))
      model(torch.ones(3))
      near(net.w, { 1 - 0.5 * k, 2 - 0.5 * k, 3 - 0.5 * k })
      near(net.b, { 4 - k })
    end
  end)

  it("works in a pipeline", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)
      self.loss = nn.MSELoss()
    end
    function Net:forward(x, t)
      poptorch.Block.start("A", { ipu_id = 0 })
      x = self.a(x)
      poptorch.Block.start("B", { ipu_id = 1 })
      return self.loss(self.b(x), t)
    end
    local net = Net()
    local o = poptorch.Options()
    o.Training:gradientAccumulation(3)
    local before = net.a.weight:detach():clone()
    poptorch.trainingModel(net, o, poptorch.optim.Adam(net:parameters(),
      { max_grad_norm = 0.1 }))(torch.randn(6, 3), torch.randn(6, 2))
    assert.is_false(torch.equal(net.a.weight, before))
  end)
end)

describe("accumulators and states", function()
  it("of float16 weights are float32 unless chosen otherwise", function()
    local net = Sum(1)
    net:half()
    local optimizer = poptorch.optim.Adam(net:parameters(), { lr = 1e-3 })
    local o = poptorch.Options()
    o.Training:gradientAccumulation(4)
    local model = poptorch.trainingModel(net, o, optimizer)
    model(torch.full({ 4 }, 2 ^ -20):half())
    -- The square of a gradient of 2^-20 is no number of float16; Adam's step is the rate.
    near(net.w, { 1 - 1e-3 }, { 5e-4, 0 })
    assert.is_true(net.w:item() < 1)
    assert.equal(torch.float16, net.w.dtype)
  end)

  it("of float16 divide the mean at every micro-batch", function()
    local net = Sum(1)
    net:half()
    local o = poptorch.Options()
    o.Training:gradientAccumulation(4)
    local model = poptorch.trainingModel(net, o, poptorch.optim.SGD(net:parameters(),
      { lr = 2 ^ -16, accum_type = torch.float16 }))
    -- the sum of four gradients of 32768 is more than float16 holds
    model(torch.full({ 4 }, 32768):half())
    near(net.w, { 0.5 })
  end)
end)

describe("a custom loss", function()
  it("of L1 kind moves the bias as the formula says", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.bias = nn.Parameter(torch.zeros(1))
    end
    function Net:forward(x, t)
      return poptorch.identity_loss(0.5 * (x + self.bias - t) ^ 2, "mean")
    end
    local net = Net()
    local model = poptorch.trainingModel(net, nil,
      poptorch.optim.SGD(net:parameters(), { lr = 0.1 }))
    for k = 1, 100 do
      model(torch.ones(1), torch.ones(1) * 2)
      if k <= 3 then
        near(net.bias, { 1 - 0.9 ^ k })
      end
    end
    near(net.bias, { 0.99997344 })
  end)
end)

describe("an optimizer of another module", function()
  it("is refused", function()
    local Loss = nn.Module:extend("Loss")
    function Loss:init()
      self.fc = nn.Linear(2, 2)
    end
    function Loss:forward(x)
      return poptorch.identity_loss(self.fc(x), "mean")
    end
    local model = poptorch.trainingModel(Loss(), nil,
      torch.optim.SGD(nn.Linear(2, 2):parameters(), { lr = 0.1 }))
    raises("Error", "none of the optimizer's parameters is one of the model's %(Loss%)", function()
      model(torch.ones(1, 2))
    end)
  end)
end)
