--- PopTorch's tests of weights between host and device.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near = helper.near

local Model = nn.Module:extend("WeightsWritingModel")

function Model:init(loss, dropout)
  self.linear, self.loss = nn.Linear(10, 10), loss
  self.dropout = dropout and nn.Dropout() or nn.Identity()
end

function Model:forward(data, target)
  local out = self.dropout(self.linear(data))
  if target then
    return out, self.loss(out, target)
  end
  return out
end

-- A classifier, ten rows of ten numbers, one label for all of them that the model does
-- not give yet.
local function classifier(half)
  local model, input = Model(nn.CrossEntropyLoss()), torch.randn(10, 10)
  local label = torch.full({ 10 }, model(input):mean(0):argmin():item(), { dtype = torch.int64 })
  if half then
    model:half()
    input = input:half()
  end
  return model, input, label
end

local function classes(out)
  return out:float():argmax(1)
end

local function train(trainer, input, label, steps)
  for _ = 1, steps or 300 do
    local _, loss = trainer(input, label)
    assert.equal(0, loss:dim())
  end
end

local function ten()
  return poptorch.Options():deviceIterations(10)
end

local function far(a, b)
  assert.is_false(torch.allclose(a:detach(), b:detach(), { rtol = 1e-2, atol = 1e-2 }))
end

-- Counts how often weights came from the trainer's device since it was asked last.
local function pulls_of(trainer)
  local before = 0
  return function()
    local now = trainer:weightPulls()
    before, now = now, now - before
    return now
  end
end

-- f(path) with the name of a file that is removed then.
local function with_file(f)
  local path = os.tmpname()
  local ok, e = pcall(f, path)
  os.remove(path)
  if not ok then
    error(e, 0)
  end
end

-- A model that draws, wrapped for training with a seed, and its batch.
local function drawing(opts)
  local model = Model(nn.CrossEntropyLoss(), true)
  local trainer = poptorch.trainingModel(model, { options = opts:randomSeed(42),
    optimizer = poptorch.optim.SGD(model:parameters(), { lr = 0.01, momentum = 0.5 }) })
  return trainer, torch.randn(10, 10), torch.full({ 10 }, 3, { dtype = torch.int64 })
end

-- A linear layer trained on the host until it gives the target.
local function train_on_host(model, input, target)
  local optimizer = torch.optim.SGD(model:parameters(), { lr = 0.05 })
  for _ = 1, 500 do
    optimizer:zero_grad()
    nn.functional.mse_loss(model(input), target):backward()
    optimizer:step()
  end
end

describe("weights_writing_test", function()
  before_each(function()
    torch.manual_seed(42)
  end)

  it("test_training_and_inference", function()
    for _, half in ipairs({ false, true }) do
      local model, input, label = classifier(half)
      local training = poptorch.trainingModel(model, { options = ten() })
      local inference = poptorch.inferenceModel(model, ten())
      assert.is_false(torch.equal(classes(inference(input)), label))
      train(training, input, label)
      assert.is_true(torch.equal(classes(inference(input)), label))
    end
  end)

  it("test_training_inference_parameters", function()
    for _, half in ipairs({ false, true }) do
      local model, input, label = classifier(half)
      local training = poptorch.trainingModel(model, { options = ten() })
      local inference = poptorch.inferenceModel(model)
      assert.is_false(torch.equal(classes(inference(input)), label))
      train(training, input, label)
      for _ in model:named_parameters() do -- brings the weights
        assert.is_true(training:weightPulls() <= 1)
      end
      assert.is_true(torch.equal(classes(inference(input)), label))
    end
  end)

  it("test_access_parameters", function()
    for _, half in ipairs({ false, true }) do
      local model, input, label = classifier(half)
      local training = poptorch.trainingModel(model, { options = ten() })
      local before = tostring(model.linear.weight)
      local inference = poptorch.inferenceModel(model)
      assert.is_false(torch.equal(classes(inference(input)), label))
      assert.equal(before, tostring(model.linear.weight))
      train(training, input, label)
      assert.not_equal(before, tostring(training.model.linear.weight))
      assert.is_true(torch.equal(classes(inference(input)), label))
    end
  end)

  it("test_torch_save", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.conv, self.loss = nn.Conv2d(16, 4, { 3, 3 }), nn.NLLLoss()
      self.batch_norm, self.softmax = nn.BatchNorm2d(4), nn.LogSoftmax({ dim = 1 })
    end
    function Net:forward(x, target)
      return self.loss(self.softmax(self.batch_norm(self.conv(x))), target)
    end
    local model = Net()
    local before = model:state_dict()["conv.weight"]:clone()
    local trainer = poptorch.trainingModel(model, { optimizer = torch.optim.SGD(
      model:parameters(), { lr = 0.01 }) })
    trainer(torch.randn(5, 16, 10, 10), torch.randint(0, 4, { 5, 8, 8 }))
    local path = os.tmpname()
    torch.save(model:state_dict(), path)
    local loaded = torch.load(path)
    os.remove(path)
    local reloaded = Net()
    reloaded:load_state_dict(loaded)
    near(reloaded:state_dict()["conv.weight"], model:state_dict()["conv.weight"])
    near(trainer:state_dict()["conv.weight"], model:state_dict()["conv.weight"])
    assert.is_false(torch.equal(before, model:state_dict()["conv.weight"]))
  end)

  it("test_seed_precompilation", function()
    local trainer, input, label = drawing(poptorch.Options():useOfflineIpuTarget(
      poptorch.ipuHardwareVersion()))
    trainer:compile(input, label)
    with_file(function(path)
      trainer:save(path)
      assert.equal(0, trainer:weightPulls())
      local loaded = poptorch.load(path)
      local online = drawing(poptorch.Options())
      online:load_state_dict(loaded:state_dict())
      near((loaded(input, label)), (online(input, label)))
    end)
  end)

  it("test_save_everything", function()
    local trainer, input, label = drawing(poptorch.Options())
    local first = trainer(input, label)
    with_file(function(path)
      trainer:save(path)
      local loaded = poptorch.load(path)
      for i = 1, 4 do
        local out, loss = trainer(input, label)
        local again, again_loss = loaded(input, label)
        near(again, out)
        near(again_loss, loss)
        assert.is_false(torch.allclose(out, first, { rtol = 1e-2, atol = 1e-2 }))
        if i == 2 then
          loaded:detachFromDevice()
        end
      end
    end)
  end)

  it("test_weights_sharing_ipu_cpu", function()
    local model = Model(nn.MSELoss())
    local trainer = poptorch.trainingModel(model)
    local input, target = torch.randn(10), torch.randn(10)
    local first = trainer(input, target)
    far(first, target)
    local pulls, out = pulls_of(trainer), nil
    local function steps(n)
      for _ = 1, n do
        out = trainer(input, target)
      end
    end
    steps(300)
    assert.equal(0, pulls())
    near(model(input):detach(), out, { 1e-2, 1e-2 })
    assert.equal(1, pulls())
    local shown = tostring(model.linear.weight)
    near(model(input):detach(), out, { 1e-2, 1e-2 })
    assert.equal(shown, tostring(model.linear.weight))
    assert.equal(0, pulls())
    for _, read in ipairs({ function() return tostring(model.linear.weight) end,
      function() return model.linear.weight.data:sum():item() end,
      function() return model:state_dict()["linear.weight"]:sum():item() end,
      function() return model(input):sum():item() end }) do
      steps(20)
      assert.equal(0, pulls())
      read()
      assert.equal(1, pulls())
      read()
      assert.equal(0, pulls())
    end
    steps(800)
    near(model(input):detach(), target, { 1e-2, 1e-2 })
  end)

  it("test_weights_sharing_ipus", function()
    local model = Model(nn.MSELoss())
    local trainer = poptorch.trainingModel(model)
    local inference = poptorch.inferenceModel(model)
    local input, target = torch.randn(10), torch.randn(10)
    far(inference(input), target)
    far((trainer(input, target)), target)
    local pulls, got = pulls_of(trainer), nil
    pulls()
    for _, n in ipairs({ 300, 900 }) do
      for _ = 1, n do
        trainer(input, target)
      end
      assert.equal(0, pulls())
      got = inference(input)
      near(got, model(input):detach())
      assert.equal(1, pulls())
      near(inference(input), got)
      assert.equal(0, pulls())
    end
    near(got, target, { 1e-2, 1e-2 })
  end)

  it("test_implicit_first_time_copy", function()
    local model, input, target = nn.Linear(10, 10), torch.randn(10), torch.randn(10)
    far(model(input), target)
    train_on_host(model, input, target)
    local out = poptorch.inferenceModel(model)(input)
    near(out, model(input):detach())
    near(out, target, { 1e-2, 1e-2 })
  end)

  it("test_implicit_first_time_copy_negative", function()
    local model, input, target = nn.Linear(10, 10), torch.randn(10), torch.randn(10)
    local first = model(input):detach()
    local device = poptorch.inferenceModel(model)
    near(device(input), first)
    train_on_host(model, input, target)
    near(model(input):detach(), target, { 1e-2, 1e-2 })
    near(device(input), first)
  end)

  it("test_weight_overwrite_trained_weight", function()
    local model, input, target = Model(nn.MSELoss()), torch.randn(10), torch.randn(10)
    local trainer = poptorch.trainingModel(model)
    local host = model(input):detach()
    local out, loss
    for _ = 1, 1500 do
      out, loss = trainer(input, target)
    end
    near(out, target, { 1e-2, 1e-2 })
    trainer:copyWeightsToDevice()
    trainer:setOptimizer(torch.optim.SGD(model:parameters(), { lr = 0.0 }))
    local back, back_loss = trainer(input, target)
    far(back, target)
    assert.is_false(torch.allclose(back_loss, loss))
    near(back, host)
  end)

  it("test_access_scalar_parameter", function()
    local Scalar = nn.Module:extend("Scalar")
    function Scalar:init()
      self.bias = nn.Parameter(torch.zeros({}))
    end
    function Scalar:forward(x)
      return poptorch.nop(x + 1) + self.bias
    end
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.model = Scalar()
    end
    function Net:forward(input, target)
      local out = self.model(input)
      local d = out - target
      return out, poptorch.identity_loss(d * d * 5, "mean")
    end
    for _, half in ipairs({ false, true }) do
      local net = Net()
      local input, target = torch.tensor({ 1.0, 2, 3 }), torch.tensor({ 30.0, 40, 50 })
      if half then
        net:half()
        input, target = input:half(), target:half()
      end
      local trainer = poptorch.trainingModel(net)
      local before = tostring(trainer.model.model.bias)
      for _ = 1, 10 do
        trainer({ input = input, target = target })
      end
      local after = tostring(trainer.model.model.bias)
      assert.not_equal(before, after)
      trainer:copyWeightsToHost()
      assert.equal(after, tostring(trainer.model.model.bias))
    end
  end)

  it("test_copy_on_torch_equal", function()
    for _, turned in ipairs({ false, true }) do
      local model, input = Model(nn.MSELoss()), torch.randn(10)
      local trainer = poptorch.trainingModel(model, { optimizer = torch.optim.SGD(
        model:parameters(), { lr = 0.01 }) })
      local before = model.linear.weight:detach():clone()
      for _ = 1, 100 do
        trainer(input, torch.ones(10))
      end
      local pair = turned and { before, model.linear.weight } or { model.linear.weight, before }
      assert.is_false(torch.equal(pair[1], pair[2]))
    end
  end)

  it("test_copy_after_compile", function()
    local model, input = Model(nn.MSELoss()), torch.randn(10)
    local trainer = poptorch.trainingModel(model, { optimizer = torch.optim.SGD(
      model:parameters(), { lr = 0.01 }) })
    local want = model(input):detach()
    trainer:compile(input, torch.ones(10))
    near((trainer(input, torch.ones(10))), want)
  end)

  it("test_torch_save_unwrapped", function()
    local model = Model(nn.MSELoss())
    model:register_buffer("test_buffer", torch.zeros(2))
    local training, inference = poptorch.trainingModel(model), poptorch.inferenceModel(model)
    local path = os.tmpname()
    torch.save(model:state_dict(), path)
    local loaded = torch.load(path)
    os.remove(path)
    local plain = Model(nn.MSELoss())
    plain:register_buffer("test_buffer", torch.ones(2))
    plain:load_state_dict(loaded)
    for name, value in pairs(plain:state_dict()) do
      near(value, training:state_dict()[name])
      near(value, inference:state_dict()[name])
    end
  end)
end)
