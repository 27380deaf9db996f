--- Conformance: the life of executors.
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local models = require("spec.support.models")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn
local near, raises, refuses = helper.near, helper.raises, helper.refuses

local Net = nn.Module:extend("Net")

function Net:init()
  self.fc, self.loss, self.my_attr = nn.Linear(1, 1), nn.L1Loss(), 7
  torch.no_grad(function()
    self.fc.weight:fill_(1)
    self.fc.bias:zero_()
  end)
end

function Net:forward(x, target)
  local y = self.fc(x)
  return y, target and self.loss(y, target)
end

function Net:my_method(n)
  return self.my_attr * n
end

local function iterations(n)
  return poptorch.Options():deviceIterations(n)
end

-- One training call with a target that is 1 too high.
local function train(model, rows)
  local x = torch.ones(rows or 1, 1)
  model(x, x + 1)
  return model
end

describe("conformance of executors", function()
  before_each(machine.begin)
  after_each(machine.finish)

  it("EXE01 destroyed and wrapped again it goes on from the host's weights", function()
    local net = Net()
    local model = train(poptorch.trainingModel(net, iterations(10)), 10)
    near(net.fc.bias, { 0.1 })
    for _, again in ipairs({ "module", "executor" }) do
      model:destroy()
      torch.no_grad(function()
        net.fc.weight:fill_(1)
        net.fc.bias:zero_()
      end)
      for _ = 1, 2 do
        model:destroy()
        model = train(poptorch.trainingModel(again == "module" and net or model, iterations(5)), 5)
      end
      near(net.fc.bias, { 0.1 })
    end
  end)

  it("EXE03 one that was never compiled stays when it is destroyed", function()
    local net = Net()
    poptorch.trainingModel(net):destroy()
    raises("RuntimeError", "destroy", function()
      poptorch.trainingModel(net)
    end)
  end)

  it("EXE04 the module's destroy is the executor's", function()
    local net = Net()
    local model = train(poptorch.trainingModel(net))
    net:destroy()
    assert.is_false(model:isCompiled())
    near(train(poptorch.trainingModel(net)).fc.bias, { 0.02 })
  end)

  it("EXE06 destroyed it compiles again for another dtype", function()
    local double = poptorch.inferenceModel(models.of(function(_, x)
      return x * 2
    end))
    near(double(torch.tensor({ 1.5 })), { 3 })
    raises("Error", "float32", function()
      double(torch.tensor({ 3 }))
    end)
    double:destroy()
    near(double(torch.tensor({ 3 }, { dtype = torch.int32 })), { 6 })
  end)

  it("EXE07 compiles once", function()
    local model = poptorch.inferenceModel(Net())
    model:compile(torch.ones(1, 1))
    assert.matches("ignored", helper.logged(function()
      model:compile(torch.ones(2, 1))
    end))
    assert.is_true(model:isCompiled())
    near((model(torch.ones(1, 1))), { { 1 } })
  end)

  it("EXE08 names its tensors once it is compiled", function()
    local model = poptorch.inferenceModel(Net())
    refuses("AssertionError", "not compiled", model.getTensorNames, model)
    model:compile(torch.ones(1, 1))
    local names = "\n" .. table.concat(model:getTensorNames(), "\n") .. "\n"
    assert.is_truthy(names:find("\nfc.weight\n", 1, true))
    assert.is_truthy(names:find("\nfc.bias\n", 1, true))
  end)

  it("EXE10 tells how long compiling took", function()
    local model = poptorch.inferenceModel(Net(),
      poptorch.Options():showCompilationProgressBar(false))
    refuses("Error", "not compiled", model.compilationTime, model)
    model:compile(torch.ones(1, 1))
    refuses("Error", "progress bar", model.compilationTime, model)
    model = poptorch.inferenceModel(Net())
    model:compile(torch.ones(1, 1))
    assert.is_true(model:compilationTime() > 0)
  end)

  it("EXE11 has its model's attributes and methods", function()
    local model = poptorch.inferenceModel(Net())
    assert.same({ 7, 21 }, { model.my_attr, model:my_method(3) })
    raises("AttributeError", "my_attribute", function()
      return model.my_attribute
    end)
  end)

  it("EXE13 attaches and detaches in turn", function()
    local model = poptorch.inferenceModel(Net())
    local e = refuses("Error", "not compiled", model.detachFromDevice, model)
    assert.equal("poptorch_py_error", e.type)
    refuses("Error", "not compiled", model.attachToDevice, model)
    model:compile(torch.ones(1, 1))
    refuses("Error", "attached", model.attachToDevice, model)
    model:detachFromDevice()
    refuses("Error", "not attached", model.detachFromDevice, model)
    model:attachToDevice()
    assert.is_true(model:isAttachedToDevice())
  end)

  it("EXE14 goes on training after its device was another model's", function()
    machine.set("LUPINE_IPUS", "1")
    local function run(between)
      local net = Net()
      local model = poptorch.trainingModel(net, nil,
        poptorch.optim.Adam(net:parameters(), { lr = 0.1 }))
      local validation = poptorch.inferenceModel(net)
      for _ = 1, 3 do
        train(model)
        if between then
          model:detachFromDevice()
          validation(torch.ones(1, 1))
          validation:detachFromDevice()
          model:attachToDevice()
        end
      end
      model:destroy()
      return net.fc.bias:item()
    end
    assert.equal(run(false), run(true))
  end)

  it("EXE16 hooks run around compiling, in their order", function()
    local log = {}
    local function note(name)
      return function()
        log[#log + 1] = name
      end
    end
    local handles = { poptorch.registerPreCompileHook(note("A")),
      poptorch.registerPreCompileHook(note("B")), poptorch.registerPreCompileHook(note("removed")),
      poptorch.registerPostCompileHook(note("C")), poptorch.registerPostCompileHook(note("D")) }
    handles[3]:remove()
    local model = poptorch.inferenceModel(Net())
    model(torch.ones(1, 1))
    model(torch.ones(1, 1))
    for _, handle in ipairs(handles) do
      handle:remove()
    end
    assert.same({ "A", "B", "C", "D" }, log)
    refuses("RuntimeError", "function", poptorch.registerPreCompileHook, 1)
    refuses("RuntimeError", "function", poptorch.registerPostCompileHook, "f")
  end)

  it("EXE17 an error of forward comes as it is and leaves the executor usable", function()
    local fails = true
    local model = poptorch.inferenceModel(models.of(function(_, x)
      if fails then
        torch.errors.raise("KeyError", "this text")
      end
      return x + 1
    end))
    local e = raises("KeyError", "^this text$", function()
      model(torch.ones(1))
    end)
    assert.equal("key_error", e.type)
    fails = false
    near(model(torch.ones(1)), { 2 })
  end)

  it("EXE19 models on demand take the devices that are free when they run", function()
    machine.set("LUPINE_IPUS", "2")
    local opts = poptorch.Options():connectionType(poptorch.ConnectionType.OnDemand)
    local a, b = poptorch.inferenceModel(Net(), opts), poptorch.inferenceModel(Net(), opts)
    a:compile(torch.ones(1, 1))
    b:compile(torch.ones(1, 1))
    a(torch.ones(1, 1))
    b(torch.ones(1, 1))
    local c = poptorch.inferenceModel(Net(), opts)
    raises("Error", "", function()
      c(torch.ones(1, 1))
    end)
    a:detachFromDevice()
    near((c(torch.ones(1, 1))), { { 1 } })
  end)

  it("EXE20 loads a state dictionary onto the device", function()
    local model = poptorch.inferenceModel(Net())
    model:load_state_dict({ ["fc.weight"] = torch.tensor({ { 2.0 } }) }, false) -- not compiled
    near((model(torch.ones(1, 1))), { { 2 } })
    model:detachFromDevice()
    model:load_state_dict({ ["fc.weight"] = torch.tensor({ { 3.0 } }) }, false)
    near((model(torch.ones(1, 1))), { { 3 } })
    local result = model:load_state_dict({ ["fc.weight"] = torch.tensor({ { 4.0 } }),
      other = torch.ones(1) }, false)
    assert.same({ { "fc.bias" }, { "other" } }, { result.missing_keys, result.unexpected_keys })
    near((model(torch.ones(1, 1))), { { 4 } })
  end)
end)
