--- Changing the optimizer of a compiled model, attributes that may change and
--- those that may not, optimizers that are refused.
local core = require("lupine.core")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local Sum = models.Sum

local function pop(name, t)
  return function(params)
    return poptorch.optim[name](params, t)
  end
end

describe("setOptimizer", function()
  local level
  setup(function() -- which programs are compiled is no matter here
    level = core.host.log_level()
    poptorch.setLogLevel("WARN")
  end)
  teardown(function()
    core.host.log_level(level)
  end)

  it("with another rate takes effect without compiling again", function()
    local net = Sum(1)
    local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.0 })
    local model = poptorch.trainingModel(net, nil, optimizer)
    for _ = 1, 50 do
      near(model(torch.ones(1)), 1)
    end
    optimizer.param_groups[1].lr = 0.1
    near(model(torch.ones(1)), 1)
    model:setOptimizer(optimizer)
    model(torch.ones(1))
    near(net.w, { 0.9 })
    model:setOptimizer(torch.optim.SGD(net:parameters(), { lr = 0.2 }))
    model(torch.ones(1))
    near(net.w, { 0.7 })
  end)

  it("gives a momentum to an update that had none, if it may vary", function()
    local net = Sum(1)
    local optimizer = poptorch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.0 })
    local model = poptorch.trainingModel(net, nil, optimizer)
    model(torch.ones(1))
    near(net.w, { 0.9 })
    optimizer.param_groups[1].momentum = 0.5
    model:setOptimizer(optimizer)
    model(torch.ones(1)) -- the velocity is 0.5 + 1
    near(net.w, { 0.75 })
  end)

  it("moves the groups that have a rate", function()
    local net = Sum(1)
    net.b = nn.Parameter(torch.tensor({ 1.0 }))
    function net:forward(x)
      return poptorch.identity_loss(self.w * x + self.b, "sum")
    end
    local function groups(first, second)
      return poptorch.optim.SGD({ { params = { net.w }, lr = first },
        { params = { net.b }, lr = second } }, { lr = 1.0 })
    end
    local model = poptorch.trainingModel(net, nil, groups(0.0, 0.1))
    model(torch.ones(1))
    near(net.w, { 1 })
    near(net.b, { 0.9 })
    model:setOptimizer(groups(0.1, 0.0))
    model(torch.ones(1))
    near(net.w, { 0.9 })
    near(net.b, { 0.9 })
  end)

  it("tells groups by their parameters, not by their places", function()
    local net = Sum(0)
    net.b = nn.Parameter(torch.tensor({ 0.0 }))
    function net:forward(x)
      return poptorch.identity_loss(self.w * x + self.b, "sum")
    end
    local function group(p, lr, momentum)
      return { params = p, lr = lr, momentum = momentum }
    end
    local SGD, w, b = torch.optim.SGD, net.w, net.b
    local first = SGD({ group({ w }, 1.0, 1.0), group({ b }, 10.0, 0.5) })
    local model = poptorch.trainingModel(net, nil, first)
    model(torch.ones(1))
    local second = SGD({ group({ b }, 10.0, 0.5), group({ w }, 1.0, 1.0) })
    model:setOptimizer(second)
    model(torch.ones(1))
    near(net.w, { -1 - 2 })
    near(net.b, { -10 - 15 })
    near(second.state[b].momentum_buffer, { 1.5 })
    second.param_groups[1].lr = 0.0
    model:setOptimizer(second)
    model(torch.ones(1))
    near(net.w, { -3 - 3 })
    near(net.b, { -25 })
  end)

  it("refuses groups that have other parameters", function()
    local net = Sum(1)
    net.b = nn.Parameter(torch.tensor({ 1.0 }))
    function net:forward(x)
      return poptorch.identity_loss(self.w * x + self.b, "sum")
    end
    local other = nn.Parameter(torch.ones(5))
    local function groups(...)
      local out = {}
      for i, params in ipairs({ ... }) do
        out[i] = { params = params, lr = 0.1 }
      end
      return torch.optim.SGD(out)
    end
    local model = poptorch.trainingModel(net, nil, groups({ net.w, net.b }, { other }))
    model(torch.ones(1))
    raises("Error", "parameter 'b' is in no group", function()
      model:setOptimizer(groups({ net.w }, { other }))
    end)
    raises("Error", "'w' and 'b' share a group.*groups 0 and 1", function()
      model:setOptimizer(groups({ net.w }, { net.b, other }))
    end)
    raises("Error", "group 1 has a parameter of shape .*4.*not compiled to train", function()
      model:setOptimizer(groups({ net.w, net.b }, { nn.Parameter(torch.ones(4)) }))
    end)
    model:setOptimizer(groups({ other }, { net.b, net.w }))
    model(torch.ones(1))
    near(net.b, { 0.8 })
  end)

  it("takes over where a scheduler changed the rate", function()
    local net = Sum(1)
    local optimizer = poptorch.optim.SGD(net:parameters(), { lr = 1.0 })
    local scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    local model = poptorch.trainingModel(net, nil, optimizer)
    model(torch.ones(1))
    near(net.w, { 0 })
    scheduler:step()
    model(torch.ones(1))
    near(net.w, { -1 })
    model:setOptimizer(optimizer)
    model(torch.ones(1))
    near(net.w, { -1.5 })
  end)

  it("keeps the momentum with a new optimizer of the same kind", function()
    local function run(swap)
      local net = Sum(1)
      local make = pop("SGD", { lr = 0.1, momentum = 0.9 })
      local model = poptorch.trainingModel(net, nil, make(net:parameters()))
      for _ = 1, 4 do
        model(torch.ones(1))
        if swap then
          model:setOptimizer(make(net:parameters()))
        end
      end
      return net.w
    end
    near(run(true), run(false))
  end)

  it("refuses another kind, other groups, and other values of constants", function()
    local net = Sum(1)
    local optimizer = poptorch.optim.SGD(net:parameters(), { lr = 0.1 })
    local model = poptorch.trainingModel(net, nil, optimizer)
    optimizer.param_groups[1].weight_decay = 0.5 -- before compiling: free
    model:setOptimizer(optimizer)
    model(torch.ones(1))
    near(net.w, { 0.85 })
    raises("Error", "compiled for SGD, not Adam", function()
      model:setOptimizer(poptorch.optim.Adam(net:parameters()))
    end)
    model:setOptimizer(optimizer)
    optimizer.param_groups[1].weight_decay = 0.25
    raises("Error", "weight_decay is constant.*0.5.*0.25", function()
      model:setOptimizer(optimizer)
    end)
    optimizer.param_groups[1].weight_decay = 0.5
    model:setOptimizer(optimizer)
    optimizer.loss_scaling = 2.0
    raises("Error", "loss_scaling is constant", function()
      model:setOptimizer(optimizer)
    end)
  end)

  it("takes PyTorch's optimizer in place of PopTorch's of that kind, and back", function()
    local x = torch.tensor({ 1.0 })
    -- w after steps of `first`, `second` and `first` again, each with its rate
    local function run(first, second)
      local net = Sum(1)
      local model = poptorch.trainingModel(net, nil, first(net:parameters(), 0.1))
      model(x)
      model:setOptimizer(second(net:parameters(), 0.2))
      model(x)
      model:setOptimizer(first(net:parameters(), 0.4))
      model(x)
      return net.w:item()
    end
    local cases = { { "SGD", {} }, { "SGD", { momentum = 0.5 } }, { "Adam", {} },
      { "AdamW", { weight_decay = 0.5 } },
      { "RMSprop", { momentum = 0.5, centered = true, alpha = 0.5 } } }
    for _, case in ipairs(cases) do
      local name, options = case[1], case[2]
      local function of(module)
        return function(params, lr)
          local all = { lr = lr }
          for k, v in pairs(options) do
            all[k] = v
          end
          return module[name](params, all)
        end
      end
      local torchs, poptorchs = of(torch.optim), of(poptorch.optim)
      local want = run(poptorchs, poptorchs)
      assert.equal("", helper.logged(function()
        near(torch.tensor(run(torchs, poptorchs)), want)
        near(torch.tensor(run(poptorchs, torchs)), want)
      end))
    end
  end)

  it("gives states by the names of the optimizer that it has", function()
    local net = Sum(1)
    local model = poptorch.trainingModel(net, nil,
      torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.5 }))
    model(torch.ones(1))
    local second = poptorch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.5 })
    model:setOptimizer(second)
    model(torch.ones(1))
    local states = second:state_dict().ipu_state
    near(states.Accl1___w, { 1.5 })
    assert.is_nil(states.step___w)
    local third = torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.5 })
    model:setOptimizer(third)
    model(torch.ones(1))
    near(third.state[net.w].momentum_buffer, { 1.75 })
  end)

  it("refuses what only PopTorch's optimizer can be compiled with", function()
    local net = Sum(1)
    local function SGD(extra)
      extra.lr = 0.1
      return poptorch.optim.SGD(net:parameters(), extra)
    end
    local model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    model(torch.ones(1))
    raises("Error", "use_combined_accum is constant.*false.*true; destroy%(%)", function()
      model:setOptimizer(SGD({ use_combined_accum = true }))
    end)
    raises("Error", "loss_scaling is constant.*1.*2", function()
      model:setOptimizer(SGD({ loss_scaling = 2.0 }))
    end)
    raises("Error", "maximize is constant.*false.*true", function()
      model:setOptimizer(torch.optim.SGD(net:parameters(), { lr = 0.1, maximize = true }))
    end)
    raises("ValueError", "accum_type.*Running.*compiled with.*Post", function()
      model:setOptimizer(SGD({ accum_type = torch.float16 }))
    end)
    model:destroy()
    model = poptorch.trainingModel(net, nil, SGD({}))
    model(torch.ones(1))
    raises("Error", "maximize is constant.*false.*true", function()
      model:setOptimizer(torch.optim.SGD(net:parameters(), { lr = 0.1, maximize = true }))
    end)
    model:destroy()
    model = poptorch.trainingModel(net, nil, torch.optim.Adam(net:parameters()))
    model(torch.ones(1))
    raises("Error", "decoupled_weight_decay is constant.*false.*true", function()
      model:setOptimizer(torch.optim.Adam(net:parameters(), { decoupled_weight_decay = true }))
    end)
    model:destroy()
    model = poptorch.trainingModel(net, nil, SGD({ use_combined_accum = true }))
    model(torch.ones(1))
    raises("Error", "use_combined_accum is constant", function()
      model:setOptimizer(torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    end)
    model:destroy()
  end)

  it("scales no loss for PyTorch's optimizer", function()
    local net = Sum(1)
    local model = poptorch.trainingModel(net, nil,
      poptorch.optim.SGD(net:parameters(), { lr = 0.1, loss_scaling = 4.0, max_grad_norm = 0.5 }))
    model(torch.ones(1))
    near(net.w, { 0.95 })
    model:setOptimizer(torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    model(torch.ones(1))
    near(net.w, { 0.85 })
  end)

  it("tells of attributes that nothing reads, once", function()
    local net = Sum(1)
    local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1 })
    local model = poptorch.trainingModel(net, nil, optimizer)
    model(torch.ones(1))
    optimizer.param_groups[1].loss_scaling = 2
    optimizer.lr = 5
    local text = helper.logged(function()
      model:setOptimizer(optimizer)
    end)
    assert.matches("unexpected group attribute 'loss_scaling'", text)
    assert.matches("unexpected optimizer attribute 'lr'", text)
    assert.equal("", helper.logged(function()
      model:setOptimizer(optimizer)
    end))
  end)
end)

describe("an optimizer of poptorch.optim", function()
  it("is one of torch.optim, too", function()
    local params = Sum(1):parameters()
    for _, name in ipairs({ "SGD", "Adam", "AdamW", "RMSprop" }) do
      local own = poptorch.optim[name](Sum(1):parameters(), { lr = 0.1 })
      assert.is_true(torch.optim[name]:is(own))
      assert.is_true(poptorch.optim[name]:is(own))
      assert.is_true(poptorch.optim.Optimizer:is(own))
      assert.is_true(torch.optim.Optimizer:is(own))
      assert.is_true(torch.optim[name]:is_base_of(poptorch.optim[name]))
      assert.is_true(poptorch.optim.Optimizer:is_base_of(poptorch.optim[name]))
    end
    assert.is_false(poptorch.optim.SGD:is(torch.optim.SGD(params, 0.1)))
    assert.is_false(torch.optim.Adam:is(poptorch.optim.SGD(params, 0.1)))
    assert.is_true(poptorch.optim.Optimizer:is(poptorch.optim.LAMB(params)))
  end)

  it("may have a velocity scaling that has no effect", function()
    local net = Sum(1)
    local optimizer = poptorch.optim.SGD(net:parameters(), { lr = 0.1 })
    optimizer.param_groups[1].velocity_scaling = 4.0
    local model
    assert.matches("velocity_scaling has no effect", helper.logged(function()
      model = poptorch.trainingModel(net, nil, optimizer)
    end))
    model(torch.ones(1))
    near(net.w, { 0.9 })
    raises("AttributeError", "no option 'velocity_scalin' %(nearest", function()
      optimizer.param_groups[1].velocity_scalin = 4.0
    end)
  end)

  it("that accumulates in half precision has a running mean", function()
    local S = poptorch.MeanReductionStrategy
    local function strategy(extra)
      local opts = poptorch.Options()
      extra.lr = 0.1
      local model = poptorch.trainingModel(Sum(1), opts,
        poptorch.optim.SGD({ nn.Parameter(torch.ones(1)) }, extra))
      local key = "mean_accumulation_and_replication_reduction_strategy"
      assert.equal(S.Post, opts.Training[key])
      return model.options.Training[key]
    end
    assert.equal(S.Running, strategy({ accum_type = torch.float16 }))
    assert.equal(S.Post, strategy({ accum_type = torch.float16, use_combined_accum = true }))
    assert.equal(S.Post, strategy({}))
  end)
end)

describe("variable_attrs", function()
  it("are the arguments that were given", function()
    local v = poptorch.optim.SGD(Sum(1):parameters(),
      { lr = 0.1, momentum = 0.0, use_combined_accum = true }).variable_attrs
    assert.is_false(v:isConstant("lr"))
    assert.is_false(v:isConstant("momentum"))
    assert.is_true(v:isConstant("weight_decay"))
    assert.is_true(v:isConstant("loss_scaling"))
    assert.is_true(v:isConstant("no such thing"))
    v:markAsVariable("loss_scaling")
    assert.is_false(v:isConstant("loss_scaling"))
    v:markAsConstant("lr")
    assert.is_true(v:isConstant("lr"))
    raises("AssertionError", "no attribute.*nothing.*allowed are", function()
      v:markAsConstant("nothing")
    end)
    raises("AssertionError", "no attribute", function()
      v:markAsVariable("nothing")
    end)
  end)

  it("marked as variable may change after compiling", function()
    local net = Sum(1)
    local optimizer = poptorch.optim.SGD(net:parameters(), { lr = 0.1 })
    optimizer.variable_attrs:markAsVariable("weight_decay")
    local model = poptorch.trainingModel(net, nil, optimizer)
    model(torch.ones(1))
    optimizer.param_groups[1].weight_decay = 0.5
    model:setOptimizer(optimizer)
    model(torch.ones(1))
    near(net.w, { 0.9 - 0.1 * 1.45 })
  end)
end)

describe("an optimizer of torch.optim", function()
  -- {class, its arguments, attribute, its next value, whether it is a variable}
  local CASES = {
    { "SGD", { lr = 1.0 }, "lr", 2, true },
    { "SGD", {}, "momentum", 0.5 }, { "SGD", { momentum = 0.5 }, "momentum", 0.25, true },
    { "SGD", { momentum = 0.5, dampening = 0.5 }, "dampening", 0.25, true },
    { "SGD", {}, "dampening", 0.5 }, { "SGD", { momentum = 0.5 }, "nesterov", true },
    { "SGD", {}, "weight_decay", 0.5 }, { "SGD", { weight_decay = 0.5 }, "weight_decay", 1, true },
    { "Adam", {}, "lr", 0.5, true }, { "Adam", {}, "eps", 0.5 },
    { "Adam", { eps = 1e-5 }, "eps", 0.5, true }, { "Adam", {}, "weight_decay", 0.5 },
    { "Adam", { betas = { 0.5, 0.5 } }, "betas", { 0.25, 0.5 } },
    { "AdamW", {}, "weight_decay", 0.5 },
    { "AdamW", { weight_decay = 0.5 }, "weight_decay", 0.25, true },
    { "RMSprop", { alpha = 0.5 }, "alpha", 0.25 },
    { "RMSprop", { momentum = 0.5 }, "momentum", 0.25, true }, { "RMSprop", {}, "momentum", 0.25 },
  }

  it("has its rate as a variable, and what is not at its default but betas, alpha, nesterov",
    function()
      for _, case in ipairs(CASES) do
        local class, arguments, name, value, variable = table.unpack(case, 1, 5)
        local net = Sum(1)
        local optimizer = torch.optim[class](net:parameters(), arguments)
        local model = poptorch.trainingModel(net, nil, optimizer)
        model(torch.ones(1))
        optimizer.param_groups[1][name] = value
        local ok, e = pcall(model.setOptimizer, model, optimizer)
        assert.equal(variable == true, ok, ("%s.%s: %s"):format(class, name, e))
        assert.is_true(ok or poptorch.Error:is(e) and e.message:find(name) ~= nil)
      end
    end)
end)

describe("an optimizer that cannot run on the device", function()
  local net = Sum(1)
  local function wrap(optimizer)
    return function()
      poptorch.trainingModel(net, nil, optimizer)
    end
  end

  it("is refused: amsgrad, other classes", function()
    raises("ValueError", "amsgrad", wrap(poptorch.optim.Adam(net:parameters(),
      { amsgrad = true })))
    raises("ValueError", "amsgrad", wrap(torch.optim.AdamW(net:parameters(),
      { amsgrad = true })))
    raises("AssertionError", "Adadelta", wrap(torch.optim.Adadelta(net:parameters())))
  end)

  it("or has wrong values, is refused when it is made", function()
    raises("AssertionError", "accum_type", function()
      poptorch.optim.Adam(net:parameters(), { accum_type = torch.int32 })
    end)
    raises("Error", "max_grad_norm", function()
      poptorch.optim.Adam(net:parameters(), { max_grad_norm = 0 / 0 })
    end)
    raises("AssertionError", "centered", function()
      poptorch.optim.RMSprop({ { params = { nn.Parameter(torch.ones(1)) }, centered = true },
        { params = { nn.Parameter(torch.ones(1)) } } })
    end)
    raises("ValueError", "Nesterov", function()
      poptorch.optim.SGD(net:parameters(), { lr = 0.1, nesterov = true })
    end)
    raises("ValueError", "lr", function()
      poptorch.optim.SGD(net:parameters(), { lr = -1.0 })
    end)
    raises("TypeError", "learning_rate", function()
      poptorch.optim.SGD(net:parameters(), { learning_rate = 1.0 })
    end)
  end)

  it("or in an inference model is refused", function()
    raises("Error", "no training model", function()
      poptorch.inferenceModel(net):setOptimizer(torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    end)
  end)

  it("but for its sub-class is told", function()
    local Mine = torch.optim.SGD:extend("Mine")
    local text = helper.logged(function()
      wrap(Mine(net:parameters(), { lr = 0.1 }))()
    end)
    assert.matches("sub%-class of SGD", text)
  end)
end)
