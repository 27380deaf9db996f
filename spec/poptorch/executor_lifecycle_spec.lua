--- An executor's life: compile, run, detach, attach, destroy, wrap again.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local Net = nn.Module:extend("Net")

function Net:init()
  self.fc = nn.Linear(1, 1)
  self.loss = nn.L1Loss()
  self.answer = 42
end

function Net:forward(x, target)
  local y = self.fc(x)
  if target then
    return y, self.loss(y, target)
  end
  return y
end

function Net:plus(n)
  return self.answer + n
end

local function reset(net)
  torch.no_grad(function()
    net.fc.weight:fill_(1)
    net.fc.bias:zero_()
  end)
end

local function ones(n)
  return torch.ones(n, 1), torch.ones(n, 1) + 1
end

local function options(di)
  return poptorch.Options():deviceIterations(di)
end

describe("destroying and wrapping again", function()
  it("goes on from the weights that the host has", function()
    for _, way in ipairs({ "module", "executor" }) do
      local net = Net()
      reset(net)
      local x, t = ones(10)
      local model = poptorch.trainingModel(net, options(10))
      model(x, t)
      near(net.fc.bias, { 0.1 })
      model:destroy()
      reset(net)
      x, t = ones(5)
      model = poptorch.trainingModel(way == "module" and net or model, options(5))
      model(x, t)
      model:destroy()
      model = poptorch.trainingModel(way == "module" and net or model, options(5))
      model(x, t)
      near(net.fc.bias, { 0.1 })
    end
  end)

  it("is needed before wrapping for training again", function()
    local net = Net()
    local model = poptorch.trainingModel(net)
    raises("RuntimeError", "destroy", function()
      poptorch.trainingModel(net)
    end)
    model:destroy() -- never compiled: stays wrapped
    raises("RuntimeError", "once it is compiled", function()
      poptorch.trainingModel(net)
    end)
    model(ones(1))
    model:destroy()
    poptorch.trainingModel(net)
    model(ones(1))
    model:destroy() -- the second one still has it
    raises("RuntimeError", "destroy", function()
      poptorch.trainingModel(net)
    end)
  end)

  it("works from the module too", function()
    local net = Net()
    local model = poptorch.trainingModel(net)
    model(ones(1))
    net:destroy()
    assert.is_false(model:isCompiled())
    raises("AttributeError", "not wrapped", function()
      net:destroy()
    end)
    poptorch.trainingModel(net)
  end)

  it("compiles again for other inputs", function()
    local net = Net()
    reset(net)
    local model = poptorch.inferenceModel(net)
    near(model(torch.ones(2, 1)), { { 1 }, { 1 } })
    model:destroy()
    near(model(torch.ones(3, 1)), { { 1 }, { 1 }, { 1 } })
    model:destroy()
    net:half()
    assert.equal(torch.float16, model(torch.ones(3, 1):half()).dtype)
  end)

  it("leaves nothing to ask", function()
    local model = poptorch.trainingModel(Net())
    local function refused()
      for _, method in ipairs({ "copyWeightsToHost", "copyWeightsToDevice", "detachFromDevice",
        "attachToDevice", "compilationTime" }) do
        raises("Error", "not compiled", function()
          model[method](model)
        end)
      end
      raises("Error", "not compiled", function()
        return model.rng_state
      end)
      assert.is_false(model:isCompiled())
      assert.is_false(model:isAttachedToDevice())
    end
    refused()
    model(ones(1))
    model:destroy()
    refused()
  end)
end)

describe("compile", function()
  it("compiles without running, once", function()
    local net = Net()
    reset(net)
    local model = poptorch.trainingModel(net)
    local x, t = ones(1)
    model:compile(x, t)
    assert.is_true(model:isCompiled())
    assert.is_true(model:isAttachedToDevice())
    near(net.fc.bias, { 0 })
    assert.matches("ignored", helper.logged(function()
      model:compile(x, t)
    end))
    model(x, t)
    near(net.fc.bias, { 0.01 })
  end)

  it("takes a time, which is told", function()
    local model = poptorch.inferenceModel(Net())
    raises("Error", "not compiled", function()
      model:compilationTime()
    end)
    model(torch.ones(1, 1))
    assert.is_true(model:compilationTime() > 0)
    model = poptorch.inferenceModel(Net(), options(1):showCompilationProgressBar(false))
    model(torch.ones(1, 1))
    raises("Error", "progress bar", function()
      model:compilationTime()
    end)
  end)

  it("gives the program's tensors names", function()
    local model = poptorch.inferenceModel(Net())
    raises("AssertionError", "not compiled", function()
      model:getTensorNames()
    end)
    model(torch.ones(1, 1))
    local names = {}
    for _, name in ipairs(model:getTensorNames()) do
      names[name] = true
    end
    assert.is_true(names["fc.weight"] and names["fc.bias"])
  end)

  -- The beginnings of names that PopTorch's own test looks for.
  it("gives a training program's tensors PopART's names", function()
    for _, optim in ipairs({ torch.optim, poptorch.optim }) do
      local net = Net()
      local model = poptorch.trainingModel(net, nil, optim.SGD(net:parameters(), { lr = 0.1 }))
      model(torch.ones(1, 1), torch.ones(1, 1))
      local all = "\n" .. table.concat(model:getTensorNames(), "\n") .. "\n"
      for _, name in ipairs({ "input/x", "input/target", "fc.weight", "loss",
        "Gradient___fc.bias", "UpdatedVar___fc.weight", "lossScaling_FLOAT" }) do
        assert.is_truthy(all:find("\n" .. name .. "\n", 1, true), name)
      end
      assert.is_truthy(all:find("\nscaledLearningRate", 1, true))
      assert.is_truthy(all:find("\nweightDecayScaleFactor", 1, true))
    end
  end)

  it("runs hooks before and after, in order, until they are removed", function()
    local log = {}
    local function note(what)
      return function()
        log[#log + 1] = what
      end
    end
    local a = poptorch.registerPreCompileHook(note("pre A"))
    local b = poptorch.registerPreCompileHook(note("pre B"))
    local c = poptorch.registerPostCompileHook(note("post"))
    local model = poptorch.inferenceModel(Net())
    model(torch.ones(1, 1))
    model(torch.ones(1, 1))
    a:remove()
    model:destroy()
    model(torch.ones(1, 1))
    b:remove()
    c:remove()
    assert.same({ "pre A", "pre B", "post", "pre B", "post" }, log)
    raises("RuntimeError", "function", function()
      poptorch.registerPreCompileHook(5)
    end)
    raises("RuntimeError", "function", function()
      poptorch.registerPostCompileHook("x")
    end)
  end)

  it("for an offline device does not run", function()
    local model = poptorch.inferenceModel(Net(),
      options(1):connectionType(poptorch.ConnectionType.Never))
    model:compile(torch.ones(1, 1))
    assert.is_true(model:isCompiled())
    assert.is_false(model:isAttachedToDevice())
    raises("AssertionError", "offline", function()
      model(torch.ones(1, 1))
    end)
    raises("AssertionError", "offline", function()
      model:attachToDevice()
    end)
  end)
end)

describe("an error in forward", function()
  it("comes through as it is, and the model can be called afterwards", function()
    local errors = require("lupine.base.errors")
    local broken = true
    local Fails = nn.Module:extend("Fails")
    function Fails:forward(x)
      if broken == "text" then
        error("plain text", 0)
      elseif broken then
        errors.raise("KeyError", "no such key")
      end
      return x + 1
    end
    local model = poptorch.inferenceModel(Fails())
    raises("KeyError", "no such key", function()
      model(torch.ones(1))
    end)
    broken = "text"
    local ok, e = pcall(model, torch.ones(1))
    assert.is_false(ok)
    assert.equal("plain text", e)
    assert.is_false(model:isCompiled())
    assert.is_false(poptorch.isRunningOnIpu())
    broken = false
    near(model(torch.ones(1)), { 2 })
  end)
end)

describe("detaching", function()
  it("needs a compiled, attached model, and attaching a detached one", function()
    local model = poptorch.inferenceModel(Net())
    raises("Error", "not compiled", function()
      model:detachFromDevice()
    end)
    model(torch.ones(1, 1))
    raises("Error", "is attached", function()
      model:attachToDevice()
    end)
    model:detachFromDevice()
    assert.is_false(model:isAttachedToDevice())
    raises("Error", "not attached", function()
      model:detachFromDevice()
    end)
    model:attachToDevice()
    assert.is_true(model:isAttachedToDevice())
  end)

  it("keeps weights, optimizer and random state", function()
    local function run(pause)
      torch.manual_seed(1)
      local net = Net()
      local model = poptorch.trainingModel(net, nil,
        poptorch.optim.Adam(net:parameters(), { lr = 0.1 }))
      local infer = poptorch.inferenceModel(net)
      local x, t = ones(4)
      for i = 1, 6 do
        model(x * i, t)
        if pause and i % 2 == 0 then
          model:detachFromDevice()
          infer(x)
          infer:detachFromDevice()
        end
        if pause and i == 2 then
          model:attachToDevice()
        end
      end
      return net.fc.weight:item()
    end
    assert.equal(run(false), run(true))
  end)
end)

describe("an executor", function()
  it("has its model's fields and methods", function()
    local net = Net()
    local model = poptorch.inferenceModel(net)
    assert.equal(42, model.answer)
    assert.equal(45, model:plus(3))
    model.answer = 1
    assert.equal(4, net:plus(3))
    assert.is_true(rawequal(net.fc.weight, model.fc.weight))
    raises("AttributeError", "nothing_like_that", function()
      return model.nothing_like_that
    end)
  end)

  it("loads a state dict onto the device and says what did not fit", function()
    local net = Net()
    reset(net)
    local model = poptorch.inferenceModel(net)
    near(model(torch.ones(1, 1)), { { 1 } })
    local result = model:load_state_dict({ ["fc.bias"] = torch.tensor({ 5.0 }),
      more = torch.ones(1) }, false)
    assert.same({ "fc.weight" }, result.missing_keys)
    assert.same({ "more" }, result.unexpected_keys)
    near(model(torch.ones(1, 1)), { { 6 } })
  end)

  it("has a random state that can be read and set", function()
    local Drop = nn.Module:extend("Drop")
    function Drop:forward(x)
      return nn.functional.dropout(x, 0.5, true)
    end
    local model = poptorch.inferenceModel(Drop(), options(1):randomSeed(42))
    local x = torch.ones(1000)
    local a = model(x)
    local state = model.rng_state
    assert.equal(42, state[1])
    local b = model(x)
    assert.is_false(torch.equal(a, b))
    model.rng_state = state
    near(model(x), b)
    for _, wrong in ipairs({ 3, {}, { 1, 2, 3 }, { 1, 2.5 }, { "1" } }) do
      raises("TypeError", "rng_state", function()
        model.rng_state = wrong
      end)
    end
    local again = poptorch.inferenceModel(model, options(1):randomSeed(42))
    near(again(x), a)
  end)

  it("has options and a model that are read, not set", function()
    local model = poptorch.inferenceModel(Net())
    for _, name in ipairs({ "options", "model" }) do
      local e = raises("AttributeError", name, function()
        model[name] = model[name]
      end)
      assert.matches("wrap the module again", e.message)
    end
    assert.is_true(model.options:isFrozen())
  end)

  it("can be made as PopTorch makes it: a module to call, another one whose it is", function()
    local Twice = nn.Module:extend("Twice")
    function Twice:init(inner)
      self.inner = inner
    end
    function Twice:forward(x)
      return self.inner(x) * 2
    end
    local net = Net():eval()
    local model = poptorch.PoplarExecutor(Twice(net), poptorch.Options(), false, "3.3.0", nil, net)
    assert.equal(net.fc, model.model.fc)
    assert.equal(42, model.answer)
    local x = torch.ones(2, 1)
    near(model(x), net(x):detach() * 2)
    local names = table.concat(model:getTensorNames(), " ")
    assert.matches("fc.weight", names, 1, true)
    assert.is_nil(names:find("inner.fc", 1, true))

    local trained = poptorch.PoplarExecutor({ model = Net(), training = true })
    local before = trained.fc.bias:item()
    trained(x, x + 5)
    assert.not_equal(before, trained.fc.bias:item())
    raises("AssertionError", "for training only", function()
      poptorch.PoplarExecutor(net, nil, false, "", torch.optim.SGD(net:parameters(), 0.1))
    end)
  end)

  it("wraps modules alone", function()
    for _, wrap in ipairs({ "trainingModel", "inferenceModel" }) do
      for _, model in ipairs({ 5, "net", torch.ones(1), print }) do
        local e = raises("Error", "expected a torch.nn.Module", function()
          poptorch[wrap](model)
        end)
        assert.matches("^" .. wrap, e.message)
      end
    end
  end)

  it("refuses options and optimizers of a wrong kind", function()
    raises("Error", "poptorch.Options", function()
      poptorch.inferenceModel(Net(), 5)
    end)
    local net = Net()
    raises("AssertionError", "optimizer", function()
      poptorch.trainingModel(net, nil, 5)
    end)
  end)

  it("refuses gradient accumulation for inference", function()
    local o = options(1)
    o.Training:gradientAccumulation(2)
    raises("Error", "gradientAccumulation", function()
      poptorch.inferenceModel(Net(), o)
    end)
  end)
end)

describe("isRunningOnIpu", function()
  it("is true while a model is traced", function()
    local seen
    local Asks = nn.Module:extend("Asks")
    function Asks:forward(x)
      seen = poptorch.isRunningOnIpu()
      return x
    end
    local net = Asks()
    net(torch.ones(1))
    assert.is_false(seen)
    poptorch.inferenceModel(net)(torch.ones(1))
    assert.is_true(seen)
    assert.is_false(poptorch.isRunningOnIpu())
    assert.is_true(poptorch.ipuHardwareIsAvailable())
    assert.is_true(poptorch.ipuHardwareIsAvailable(4))
    assert.equal(2, poptorch.ipuHardwareVersion())
  end)
end)

describe("keywords of the wrappers", function()
  it("may be none", function()
    local net = Net()
    near(poptorch.inferenceModel(net, {})(torch.ones(1, 1)), net(torch.ones(1, 1)))
    poptorch.trainingModel(Net(), { optimizer = nil })
    poptorch.trainingModel(Net(), nil, {})
    local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1 })
    poptorch.trainingModel(net, poptorch.Options(), { optimizer = optimizer })
  end)

  it("are named when they are unknown", function()
    raises("TypeError", "no parameter 'optimiser'.*nearest: 'optimizer'", function()
      poptorch.trainingModel(Net(), { optimiser = 1 })
    end)
    raises("TypeError", "no parameter 'lr'; allowed are model, options, optimizer", function()
      poptorch.trainingModel(Net(), poptorch.Options(), { lr = 0.1 })
    end)
  end)
end)
