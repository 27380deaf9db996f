--- PopTorch's own tests of the optimizer's state on the device (optimizers_test).
local core = require("lupine.core")
local helper = require("spec.helper")
local optimizers = require("spec.support.optimizers")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local pop, native = poptorch.optim, torch.optim
local POPTORCH, each, summing = optimizers.POPTORCH, optimizers.each, optimizers.summing

local function same_entries(got, want)
  for key, value in pairs(want) do
    assert.is_truthy(got[key] and torch.equal(got[key], value), key)
  end
end

describe("optimizers_test.py", function()
  local level
  before_each(function()
    level = core.host.log_level()
    poptorch.setLogLevel("ERR")
    torch.manual_seed(42)
  end)
  after_each(function()
    core.host.log_level(level)
  end)

  it("test_read_ipu_state", function()
    local lr, decay, scale = 0.05, 0.025, 0.75
    each(POPTORCH, function(make, name)
      local model, x = summing(3), torch.randn(3)
      local optimizer = make(model:parameters(), { lr = lr, weight_decay = decay,
        loss_scaling = scale })
      local trainer = poptorch.trainingModel(model, nil, optimizer)
      local state = optimizer:state_dict()
      assert.is_true(state.ipu_state == nil and state.ipu_param == nil)
      trainer:compile(x)
      local s0 = optimizer:state_dict()
      local of = s0.ipu_param
      near(of.lossScaling_FLOAT, scale)
      for _, param in ipairs({ "lin.bias", "lin.weight" }) do
        if name == "SGD" then
          near(of["weightDecayScaleFactor0___specific___" .. param], 1 - lr * decay)
          near(of["scaledLearningRate0___specific___" .. param], lr / scale)
        else
          near(of["learningRate___specific___" .. param], lr)
          near(of["weightDecay___specific___" .. param], decay)
          assert.is_truthy(s0.ipu_state["Accl1___" .. param])
        end
      end
      trainer(x)
      local s1, same = optimizer:state_dict(), true
      for key, value in pairs(s0.ipu_state) do
        same = same and torch.equal(value, s1.ipu_state[key])
      end
      assert.equal(name == "SGD", same)
    end)
  end)

  it("test_read_ipu_state_cached", function()
    local model, x = summing(3), torch.ones(3)
    local optimizer = pop.Adam(model:parameters(), { lr = 0.1 })
    local trainer = poptorch.trainingModel(model, nil, optimizer)
    trainer:compile(x)
    local first, second = optimizer:state_dict(), optimizer:state_dict()
    same_entries(second.ipu_state, first.ipu_state)
  end)

  it("test_read_ipu_state_offline", function()
    local model = summing(3)
    local optimizer = pop.SGD(model:parameters(), { lr = 0.0 })
    poptorch.trainingModel(model, poptorch.Options():useOfflineIpuTarget(), optimizer)
      :compile(torch.ones(3))
    local state = optimizer:state_dict()
    assert.is_true(state.ipu_state == nil and state.ipu_param == nil)
  end)

  it("test_read_ipu_state_on_detach", function()
    for _, make in ipairs({ pop.Adam, native.Adam }) do
      local model, x = summing(3), torch.ones(3)
      local optimizer = make(model:parameters(), { lr = 0.1 })
      local trainer = poptorch.trainingModel(model, nil, optimizer)
      trainer(x)
      trainer:detachFromDevice()
      local state = optimizer:state_dict()
      optimizer:load_state_dict(state)
      trainer:attachToDevice()
      trainer(x)
      assert.is_true(trainer:isAttachedToDevice())
    end
  end)

  it("test_write_ipu_state", function()
    each(POPTORCH, function(make, name)
      for _, incomplete in ipairs({ true, false }) do
        local model, x = summing(3), torch.randn(3)
        local optimizer = make(model:parameters(), { lr = 0.0, weight_decay = 0.5 })
        if name == "SGD" then
          optimizer.variable_attrs:markAsVariable("momentum") -- which needs a state
        end
        local trainer = poptorch.trainingModel(model, nil, optimizer)
        trainer:compile(x)
        local s0, gone = optimizer:state_dict(), nil
        local before = s0.ipu_state
        s0.ipu_state = {}
        for key, value in pairs(before) do
          if incomplete and not gone and key:find("^Accl1") then
            gone = key
          else
            s0.ipu_state[key] = torch.rand_like(value) + 1
          end
        end
        optimizer:load_state_dict(s0)
        same_entries(optimizer:state_dict().ipu_state, s0.ipu_state)
        trainer(x)
        local after = optimizer:state_dict()
        for key, value in pairs(s0.ipu_state) do
          local fixed = key:find("^Step") and torch.equal(value, after.ipu_state[key])
          assert.is_true(fixed or not torch.allclose(value, after.ipu_state[key]), name .. key)
        end
        assert.is_true(not gone or not torch.allclose(before[gone], after.ipu_state[gone]))
      end
    end)
  end)

  it("test_write_ipu_state_from_cpu", function()
    local lin = nn.Linear(2, 1)
    local optimizer = native.Adam(lin:parameters())
    lin(torch.ones(2)):backward()
    optimizer:step()
    raises("RuntimeError", "ipu_state and ipu_param are missing", function()
      pop.Adam(lin:parameters()):load_state_dict(optimizer:state_dict())
    end)
  end)

  it("test_write_ipu_state_before_override", function()
    local model, x = summing(2), torch.ones(2)
    local optimizer = pop.Adam(model:parameters())
    local trainer = poptorch.trainingModel(model, nil, optimizer)
    trainer(x)
    local s1 = optimizer:state_dict()
    trainer:destroy()
    local new = pop.Adam(model:parameters())
    new:load_state_dict(s1)
    poptorch.trainingModel(model, nil, new):compile(x)
    same_entries(new:state_dict().ipu_state, s1.ipu_state)
  end)

  -- A model trained with Adam whose rate a scheduler halves.
  local function scheduled()
    local model = summing(2)
    local optimizer = pop.Adam(model:parameters(), { lr = 1.0 })
    local scheduler = native.lr_scheduler.ExponentialLR(optimizer, 0.5)
    local trainer = poptorch.trainingModel(model, nil, optimizer)
    trainer(torch.ones(2))
    return model, optimizer, scheduler, trainer
  end

  it("test_LR_scheduler", function()
    local _, optimizer, scheduler, trainer = scheduled()
    local key, x = "learningRate___specific___lin.bias", torch.ones(2)
    scheduler:step()
    near(optimizer:state_dict().ipu_param[key], 1)
    local pulls = trainer:weightPulls()
    trainer:setOptimizer(optimizer)
    assert.equal(pulls, trainer:weightPulls())
    trainer(x)
    local s0 = optimizer:state_dict()
    near(s0.ipu_param[key], 0.5)
    trainer(x)
    optimizer:load_state_dict(s0)
    same_entries(optimizer:state_dict().ipu_state, s0.ipu_state)
    trainer(x)
  end)

  it("test_write_ipu_state_from_checkpoint", function()
    local model, optimizer, scheduler, trainer = scheduled()
    scheduler:step()
    trainer:setOptimizer(optimizer)
    local s1, path = optimizer:state_dict(), os.tmpname()
    torch.save({ optimizer_state_dict = s1 }, path)
    local checkpoint = torch.load(path)
    os.remove(path)
    optimizer = pop.Adam(model:parameters(), { lr = 0.1 })
    optimizer:load_state_dict(checkpoint.optimizer_state_dict)
    local s2 = optimizer:state_dict()
    same_entries(s2.ipu_state, s1.ipu_state)
    same_entries(s2.ipu_param, s1.ipu_param)
    trainer:setOptimizer(optimizer)
    trainer(torch.ones(2))
    local s3 = optimizer:state_dict()
    assert.equal(0.5, s3.param_groups[1].lr)
    near(s3.ipu_param["learningRate___specific___lin.bias"], 0.5)
  end)
end)
