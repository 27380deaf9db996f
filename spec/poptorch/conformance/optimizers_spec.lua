--- PopTorch's rules of optimizers, a numbered case each. Where nothing else is said a
--- weight of 1 has a gradient of 1 in each of three steps. Values: the documented
--- formulas of PopART, PyTorch's where they are the same.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local function wrap(name, t, net, options)
  net = net or models.Sum(1)
  local optimizer = poptorch.optim[name](net:parameters(), t)
  return poptorch.trainingModel(net, options, optimizer), net, optimizer
end

-- The weight after each step.
local function follows(want, name, t, tol)
  local model, net = wrap(name, t)
  for _, value in ipairs(want) do
    model(torch.ones(1))
    near(net.w, { value }, tol or { 2e-6, 0 })
  end
end

local Fit = nn.Module:extend("Fit")

function Fit:init()
  self.fc, self.loss = nn.Linear(10, 10), nn.MSELoss()
end

function Fit:forward(x, target)
  local y = self.fc(x)
  return y, self.loss(y, target)
end

local function last_loss(model, runs, x, target)
  local loss
  for _ = 1, runs do
    loss = select(2, model(x, target))
  end
  return loss:item()
end

describe("conformance, optimizers:", function()
  it("OPTIM01 SGD", function()
    follows({ 0.9, 0.8, 0.7 }, "SGD", { lr = 0.1 })
  end)

  it("OPTIM03 SGD with weight decay", function()
    follows({ 0.85, 0.7075, 0.572125 }, "SGD", { lr = 0.1, weight_decay = 0.5 })
  end)

  it("OPTIM04 SGD damps its first step", function()
    follows({ 0.95, 0.855, 0.7195 }, "SGD", { lr = 0.1, momentum = 0.9, dampening = 0.5 })
  end)

  it("OPTIM06 AdamW", function()
    follows({ 0.899, 0.798101, 0.6973029 }, "AdamW", { lr = 0.1, weight_decay = 0.01 })
  end)

  it("OPTIM07 RMSprop", function()
    follows({ 0.9, 0.829112, 0.771087 }, "RMSprop", { lr = 0.01 })
    follows({ 0.9, 0.739112, 0.536288 }, "RMSprop", { lr = 0.01, momentum = 0.9 })
  end)

  it("OPTIM09 RMSprop, centered", function()
    follows({ 0.899496, 0.827892, 0.768986 }, "RMSprop", { lr = 0.01, centered = true })
  end)

  it("OPTIM10 LAMB", function()
    local model, net = wrap("LAMB", { lr = 0.1, weight_decay = 0.01 }, models.Sum(3, 4))
    model(torch.ones(2))
    near(net.w, { 2.648159, 3.644743 }, { 2e-6, 0 })
  end)

  it("OPTIM12 no loss scale changes a weight", function()
    for _, name in ipairs({ "SGD", "Adam", "AdamW", "RMSprop", "LAMB" }) do
      local first
      for _, scale in ipairs({ 1, 8, 1000 }) do
        torch.manual_seed(1)
        local model, net = wrap(name, { lr = 0.01, loss_scaling = scale }, Fit())
        torch.manual_seed(2)
        for _ = 1, 3 do
          model(torch.randn(2, 10), torch.randn(2, 10))
        end
        first = first or net.fc.weight:detach():clone()
        near(net.fc.weight, first, { 1e-5, 0 })
      end
    end
  end)

  it("OPTIM13 the separate velocity has the loss's scale", function()
    local model, net, optimizer
    assert.matches("velocity_scaling", helper.logged(function()
      model, net, optimizer = wrap("SGD", { lr = 0.1, momentum = 0.5, velocity_scaling = 7,
        loss_scaling = 4 })
      model(torch.ones(1))
    end))
    near(net.w, { 0.9 })
    near(optimizer:state_dict().ipu_state.Accl1___w, { 4 })
  end)

  it("OPTIM15 a rate of 0, then another", function()
    torch.manual_seed(42)
    local net = Fit()
    local model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), { lr = 0 }))
    local x, target = torch.randn(10), torch.randn(10)
    local first = last_loss(model, 1, x, target)
    assert.equal(first, last_loss(model, 49, x, target))
    model:setOptimizer(torch.optim.SGD(net:parameters(), { lr = 0.01 }))
    assert.is_true(last_loss(model, 1000, x, target) < 0.03)
  end)

  it("OPTIM16 groups have rates of their own", function()
    local net = Fit()
    local function optimizer(weight, bias)
      return torch.optim.SGD({ { params = { net.fc.weight }, lr = weight },
        { params = { net.fc.bias }, lr = bias } }, { lr = 0.5 })
    end
    local model = poptorch.trainingModel(net, nil, optimizer(0, 0.1))
    local function moved()
      local weight, bias = net.fc.weight:detach():clone(), net.fc.bias:detach():clone()
      model(torch.randn(10), torch.randn(10))
      return not torch.equal(weight, net.fc.weight), not torch.equal(bias, net.fc.bias)
    end
    assert.same({ false, true }, { moved() })
    model:setOptimizer(optimizer(0.1, 0))
    assert.same({ true, false }, { moved() })
  end)

  it("OPTIM18 state_dict has the device's states once it ran", function()
    local model, _, optimizer = wrap("SGD", { lr = 0.1, momentum = 0.9 })
    local d = optimizer:state_dict()
    assert.is_nil(d.ipu_state)
    assert.is_nil(d.ipu_param)
    local offline, _, other = wrap("SGD", { lr = 0.1, momentum = 0.9 }, nil,
      poptorch.Options():useOfflineIpuTarget())
    offline:compile(torch.ones(1))
    assert.is_nil(other:state_dict().ipu_state)
    assert.is_nil(other:state_dict().ipu_param)
    model(torch.ones(1))
    d = optimizer:state_dict()
    near(d.ipu_state.Accl1___w, { 1 })
    local rate
    for name in pairs(d.ipu_param) do
      rate = rate or name:find("^learningRate___")
    end
    assert.truthy(rate)
    assert.truthy(d.state)
    assert.truthy(d.param_groups)
  end)

  it("OPTIM20 states that are loaded, and those that are not in the dictionary", function()
    local model, net, optimizer = wrap("SGD", { lr = 0.1, momentum = 0.5 })
    model(torch.ones(1))
    model(torch.ones(1)) -- velocities of 1 and 1.5
    local d = optimizer:state_dict()
    d.ipu_state.Accl1___w = torch.zeros(1)
    optimizer:load_state_dict(d)
    model(torch.ones(1)) -- 1
    near(net.w, { 0.65 })
    d = optimizer:state_dict()
    d.ipu_state.Accl1___w = nil
    optimizer:load_state_dict(d)
    model(torch.ones(1)) -- 1.5
    near(net.w, { 0.5 })
  end)

  it("OPTIM21 a scheduler's rate comes with setOptimizer", function()
    local model, _, optimizer = wrap("SGD", { lr = 1.0, momentum = 0.5 })
    local scheduler = torch.optim.lr_scheduler.StepLR(optimizer, { step_size = 1, gamma = 0.5 })
    local function rate()
      model(torch.ones(1))
      return optimizer:state_dict().ipu_param.learningRate___specific___w:item()
    end
    assert.equal(1, rate())
    scheduler:step()
    assert.equal(1, rate())
    model:setOptimizer(optimizer)
    assert.equal(0.5, rate())
  end)

  it("OPTIM23 a constant may not change once it is compiled in", function()
    local model, net = wrap("SGD", { lr = 0.1 })
    model(torch.ones(1))
    raises("Error", "momentum", function()
      model:setOptimizer(poptorch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.5 }))
    end)
    model:setOptimizer(poptorch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0 }))
    local adam, other, optimizer = wrap("Adam", { lr = 0.1 })
    adam(torch.ones(1))
    optimizer.param_groups[1].eps = 1e-3
    raises("Error", "eps", function() adam:setOptimizer(optimizer) end)
    optimizer.param_groups[1].eps = 1e-8
    adam:setOptimizer(optimizer)
    adam(torch.ones(1))
    assert.equal(1, #other:parameters())
  end)

  it("OPTIM24 an attribute that nothing reads is told once", function()
    local function warnings(options)
      local model, _, optimizer = wrap("SGD", { lr = 0.1 }, nil, options)
      model(torch.ones(1))
      local function set(name)
        return helper.logged(function()
          optimizer.param_groups[1][name] = 1
          model:setOptimizer(optimizer)
          model:setOptimizer(optimizer)
        end)
      end
      return set("odd_one"), set("odd_one")
    end
    local first, again = warnings()
    assert.equal(1, select(2, first:gsub("odd_one", "")), first)
    assert.equal("", again)
    local relaxed = poptorch.Options()
    relaxed:relaxOptimizerAttributesChecks(true)
    assert.same({ "", "" }, { warnings(relaxed) })
  end)

  it("OPTIM26 clipped gradients are PyTorch's", function()
    torch.manual_seed(3)
    local host = Fit()
    local on_device = host:deepcopy()
    local x, target = torch.randn(4, 10), torch.randn(4, 10)
    local steps = torch.optim.Adam(host:parameters(), { lr = 0.01 })
    local model = wrap("Adam", { lr = 0.01, max_grad_norm = 0.001 }, on_device)
    for _ = 1, 3 do
      steps:zero_grad()
      local _, loss = host(x, target)
      loss:backward()
      nn.utils.clip_grad_norm_(host:parameters(), 0.001)
      steps:step()
      model(x, target)
    end
    near(on_device.fc.weight, host.fc.weight:detach(), { 1e-5, 1e-5 })
    near(on_device.fc.bias, host.fc.bias:detach(), { 1e-5, 1e-5 })
  end)

  it("OPTIM27 in a pipeline too", function()
    torch.manual_seed(3)
    local net = Fit()
    net.fc2 = nn.Linear(10, 10)
    function net:forward(x, target)
      local y = self.fc2(self.fc(x))
      return y, self.loss(y, target)
    end
    poptorch.BeginBlock(net.fc2, { ipu_id = 1 })
    local options = poptorch.Options()
    options.Training:gradientAccumulation(3)
    local model = wrap("SGD", { lr = 0.1, max_grad_norm = 0.5 }, net, options)
    local x, target = torch.randn(3, 10), torch.randn(3, 10)
    local first = last_loss(model, 1, x, target)
    assert.is_true(last_loss(model, 30, x, target) < first)
  end)

  it("OPTIM29 what is refused", function()
    local net = models.Sum(1)
    local p = net:parameters()
    raises("ValueError", "amsgrad", function()
      poptorch.trainingModel(net, nil, torch.optim.Adam(p, { amsgrad = true }))
    end)
    raises("AssertionError", "accum_type", function()
      poptorch.optim.Adam(p, { accum_type = torch.int32 })
    end)
    raises("Error", "max_grad_norm", function()
      poptorch.trainingModel(net, nil, poptorch.optim.SGD(p, { lr = 1, max_grad_norm = 0 / 0 }))(
        torch.ones(1))
    end)
    raises("AssertionError", "centered", function()
      local two = Fit()
      poptorch.trainingModel(two, nil, poptorch.optim.RMSprop({
        { params = { two.fc.weight }, centered = true },
        { params = { two.fc.bias }, centered = false } }))(torch.ones(10), torch.ones(10))
    end)
    raises("AssertionError", "Adadelta", function()
      poptorch.trainingModel(models.Sum(1), nil, torch.optim.Adadelta(p))
    end)
  end)

  it("OPTIM32 the guide's loss of its own", function()
    local net = models.of(function(self, x, target)
      local y = poptorch.nop(x + 1) + self.bias
      return y, poptorch.identity_loss((y - target) ^ 2 * 5, "mean")
    end)
    net:register_parameter("bias", nn.Parameter(torch.zeros(1)))
    local model = poptorch.trainingModel(net)
    local x, target = torch.tensor({ 1.0, 2, 3 }), torch.tensor({ 3.0, 4, 5 })
    for k = 1, 100 do
      model(x, target)
      if k == 1 or k == 7 or k == 100 then
        near(net.bias, { 1 - 0.9 ^ k }, { 2e-6, 0 })
      end
    end
  end)
end)
