--- state_dict and load_state_dict of poptorch.optim: what the device has.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

-- The gradient of every weight is 1.
local Sum = nn.Module:extend("Sum")

function Sum:init()
  self.w = nn.Parameter(torch.ones(2))
end

function Sum:forward(x)
  return poptorch.identity_loss(self.w * x, "sum")
end

local function wrap(name, t, net)
  net = net or Sum()
  local optimizer = poptorch.optim[name](net:parameters(), t)
  local model = poptorch.trainingModel(net, nil, optimizer)
  return optimizer, function(n)
    for _ = 1, n or 1 do
      model(torch.ones(2))
    end
  end, net, model
end

local MOMENTUM = { lr = 0.1, momentum = 0.5 }

describe("state_dict", function()
  it("has nothing of the device before a model is compiled", function()
    local optimizer = wrap("SGD", MOMENTUM)
    local d = optimizer:state_dict()
    assert.is_nil(d.ipu_state)
    assert.is_nil(d.ipu_param)
    assert.equal(0.1, d.param_groups[1].lr)
  end)

  it("nor for an offline device", function()
    local net = Sum()
    local optimizer = poptorch.optim.Adam(net:parameters())
    poptorch.trainingModel(net,
      poptorch.Options():connectionType(poptorch.ConnectionType.Never), optimizer)
      :compile(torch.ones(2))
    assert.is_nil(optimizer:state_dict().ipu_state)
  end)

  it("has states and attributes by PopART's names afterwards", function()
    local optimizer, run = wrap("SGD", MOMENTUM)
    run(2)
    local d = optimizer:state_dict()
    near(d.ipu_state.Accl1___w, { 1.5, 1.5 })
    near(d.ipu_param.learningRate___specific___w, 0.1)
    near(d.ipu_param.weightDecay___specific___w, 0)
    near(d.ipu_param.lossScaling_FLOAT, 1)
    run(1)
    near(optimizer:state_dict().ipu_state.Accl1___w, { 1.75, 1.75 })
    near(d.ipu_state.Accl1___w, { 1.5, 1.5 })
  end)

  it("of plain SGD has its combined factors and no state", function()
    local optimizer, run = wrap("SGD", { lr = 0.1, dampening = 0.5, weight_decay = 0.2,
      loss_scaling = 4.0 })
    run()
    local d = optimizer:state_dict()
    assert.is_nil(next(d.ipu_state))
    near(d.ipu_param.scaledLearningRate0___specific___w, 0.05 / 4)
    near(d.ipu_param.weightDecayScaleFactor0___specific___w, 1 - 0.05 * 0.2)
    near(d.ipu_param.lossScaling_FLOAT, 4)
  end)

  it("of Adam has two moments and the count", function()
    local optimizer, run = wrap("Adam", { lr = 0.1 })
    run(3)
    local state = optimizer:state_dict().ipu_state
    near(state.Step___w, 3)
    near(state.Accl1___w, { 1 - 0.9 ^ 3, 1 - 0.9 ^ 3 })
    near(state.Accl2___w, { 1 - 0.999 ^ 3, 1 - 0.999 ^ 3 })
  end)

  it("shows a scheduler's rate once setOptimizer has sent it", function()
    local optimizer, run, _, model = wrap("SGD", { lr = 1.0, momentum = 0.5 })
    local scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    run()
    scheduler:step()
    near(optimizer:state_dict().ipu_param.learningRate___specific___w, 1)
    model:setOptimizer(optimizer)
    near(optimizer:state_dict().ipu_param.learningRate___specific___w, 0.5)
  end)
end)

describe("load_state_dict", function()
  it("puts states onto the device; missing ones stay", function()
    local optimizer, run, net = wrap("SGD", MOMENTUM)
    run(2) -- velocities 1, 1.5
    local d = optimizer:state_dict()
    d.ipu_state.Accl1___w:zero_()
    optimizer:load_state_dict(d)
    run() -- velocity 1 again
    near(net.w, { 1 - 0.35, 1 - 0.35 })
    d = optimizer:state_dict()
    d.ipu_state.Accl1___w = nil
    optimizer:load_state_dict(d)
    run() -- velocity 1.5
    near(net.w, { 1 - 0.5, 1 - 0.5 })
  end)

  it("carries the state to another optimizer, before or after compiling", function()
    for _, when in ipairs({ "before", "after" }) do
      local optimizer, run, net, model = wrap("Adam", { lr = 0.1, weight_decay = 0.1 })
      run(2)
      local d = optimizer:state_dict()
      model:destroy()
      near(optimizer:state_dict().ipu_state.Step___w, 2)
      local copy = Sum()
      copy:load_state_dict(net:state_dict())
      local second, go, _, other = wrap("Adam", { lr = 0.1, weight_decay = 0.1 }, copy)
      if when == "before" then
        second:load_state_dict(d)
        near(second:state_dict().ipu_state.Step___w, 2)
      else
        other:compile(torch.ones(2))
        second:load_state_dict(d)
      end
      go(2)
      local _, straight, whole = wrap("Adam", { lr = 0.1, weight_decay = 0.1 })
      straight(4)
      near(copy.w, whole.w:detach())
    end
  end)

  it("refuses states of another size, before and after compiling, and changes nothing", function()
    local optimizer, run = wrap("Adam", { lr = 0.1 })
    run(2)
    local good = optimizer:state_dict()
    for class, value in pairs({ RuntimeError = torch.zeros(3), TypeError = 5 }) do
      local d = { ipu_state = {}, ipu_param = good.ipu_param, state = good.state,
        param_groups = good.param_groups }
      for key in pairs(good.ipu_state) do
        d.ipu_state[key] = torch.zeros_like(good.ipu_state[key])
      end
      d.ipu_state.Accl1___w = value
      raises(class, "Accl1___w", function()
        optimizer:load_state_dict(d)
      end)
      near(optimizer:state_dict().ipu_state.Accl2___w, good.ipu_state.Accl2___w)
      near(optimizer:state_dict().ipu_state.Step___w, 2)
      local later, _, _, model = wrap("Adam", { lr = 0.1 })
      later:load_state_dict(d)
      raises(class, "Accl1___w", function()
        model:compile(torch.ones(2))
      end)
    end
  end)

  it("refuses an empty dictionary and one of PyTorch", function()
    local optimizer = wrap("Adam", {})
    raises("RuntimeError", "empty", function()
      optimizer:load_state_dict({})
    end)
    local net = Sum()
    raises("RuntimeError", "ipu_state", function()
      optimizer:load_state_dict(torch.optim.Adam(net:parameters()):state_dict())
    end)
  end)
end)

-- A native optimizer, its model and the same without a device.
local function pair(name, t)
  local function one(on_device)
    local net = Sum()
    local optimizer = torch.optim[name](net:parameters(), t)
    local model = on_device and poptorch.trainingModel(net, nil, optimizer)
    return { net = net, optimizer = optimizer, model = model, run = function(n)
      for _ = 1, n do
        if model then
          model(torch.ones(2))
        else
          optimizer:zero_grad()
          net(torch.ones(2)):backward()
          optimizer:step()
        end
      end
    end }
  end
  return one(true), one(false)
end

local function same_state(got, want)
  local a, b = got.optimizer:state_dict().state[0], want.optimizer:state_dict().state[0]
  for name, value in pairs(b) do
    near(a[name], value, { 1e-6, 1e-6 })
  end
  for name in pairs(a) do
    assert.is_truthy(b[name])
  end
end

describe("a native optimizer of an attached model", function()
  local cases = { { "SGD", { lr = 0.1, momentum = 0.5 } }, { "Adam", { lr = 0.1 } },
    { "AdamW", { lr = 0.1 } }, { "RMSprop", { lr = 0.1, momentum = 0.5, centered = true } } }

  it("shows the device's state in state_dict and in its fields", function()
    for _, case in ipairs(cases) do
      local device, host = pair(case[1], case[2])
      for _ = 1, 2 do
        device.run(3)
        host.run(3)
        same_state(device, host)
      end
    end
    local device = pair("SGD", { lr = 0.1, momentum = 0.5 })
    device.run(2)
    near(device.optimizer.state[device.net.w].momentum_buffer, { 1.5, 1.5 })
    device.run(1)
    near(device.optimizer.state[device.net.w].momentum_buffer, { 1.75, 1.75 })
  end)

  it("brings a loaded state to the device", function()
    for _, case in ipairs(cases) do
      local device, host = pair(case[1], case[2])
      local dict
      for _, side in ipairs({ device, host }) do
        side.run(3)
        local saved = side.optimizer:state_dict()
        dict = { state = { [0] = {} }, param_groups = saved.param_groups }
        for name, value in pairs(saved.state[0]) do
          dict.state[0][name] = value:clone()
        end
        side.run(2)
        side.optimizer:load_state_dict(dict)
        side.run(1)
      end
      near(device.net.w, host.net.w:detach(), { 1e-6, 1e-6 })
      same_state(device, host)
    end
  end)

  it("begins anew from a state_dict without states", function()
    local device = pair("SGD", { lr = 1.0, momentum = 1.0 })
    device.run(2) -- 1 - 1 - 2
    device.optimizer:load_state_dict(torch.optim.SGD(device.net:parameters(),
      { lr = 1.0, momentum = 1.0 }):state_dict())
    device.run(1)
    near(device.net.w, { -3, -3 })
  end)

  it("refuses to load what was compiled in, and states of another size", function()
    local device = pair("SGD", { lr = 1.0, momentum = 0.5 })
    device.run(1)
    local dict = device.optimizer:state_dict()
    dict.state[0] = { momentum_buffer = torch.ones(3) }
    raises("RuntimeError", "momentum_buffer has shape .*3.*compiled for .*2", function()
      device.optimizer:load_state_dict(dict)
    end)
    dict.state[0], dict.param_groups[1].nesterov = nil, true
    raises("Error", "load_state_dict: group 0: nesterov is constant", function()
      device.optimizer:load_state_dict(dict)
    end)
  end)

  it("is uploaded by setOptimizer once it was changed on the host", function()
    local device, host = pair("SGD", { lr = 1.0, momentum = 1.0 })
    for _, side in ipairs({ device, host }) do
      side.run(2)
      local state = side.optimizer.state[side.net.w]
      state.momentum_buffer:zero_()
      if side.model then
        side.model:setOptimizer(side.optimizer)
      end
      side.run(1)
      state.momentum_buffer = torch.full({ 2 }, 3.0)
      if side.model then
        side.model:setOptimizer(side.optimizer)
      end
      side.run(1)
    end
    near(host.net.w, { 1 - 1 - 2 - 1 - 4, -7 })
    near(device.net.w, host.net.w:detach())
  end)

  it("keeps what it has after another one took its place", function()
    local device = pair("SGD", { lr = 1.0, momentum = 1.0 })
    device.run(2)
    local second = torch.optim.SGD(device.net:parameters(), { lr = 1.0, momentum = 1.0 })
    device.model:setOptimizer(second)
    device.run(1)
    near(device.optimizer.state[device.net.w].momentum_buffer, { 2, 2 })
    near(second.state[device.net.w].momentum_buffer, { 3, 3 })
    device.model:destroy()
    near(second.state[device.net.w].momentum_buffer, { 3, 3 })
  end)
end)
