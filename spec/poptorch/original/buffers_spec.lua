--- PopTorch's tests of buffers.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

-- Sum of x + 1 + the constant buffer [1, 2, 3].
local function constant()
  local net = models.of(function(self, x)
    return (x + (self.stuff + 1.0)):sum()
  end)
  net:register_buffer("stuff", torch.tensor({ 1, 2, 3 }, { dtype = torch.int32 }))
  return net
end

-- An inference model of the sum of x and two buffers of ones.
local function updatable(names)
  local net = models.of(function(self, x)
    return (x + self.buffer_1 + self.buffer_2):sum()
  end)
  net:register_buffer("buffer_1", torch.ones(1))
  net:register_buffer("buffer_2", torch.ones(1))
  local opts = poptorch.Options()
  return poptorch.inferenceModel(net, names and opts:updatableNamedBuffers(names) or opts)
end

local x = torch.ones(3)

local function add_one(buffer)
  buffer:copy_(buffer + 1)
end

local Normed = nn.Module:extend("Normed")

function Normed:init()
  self.bn, self.loss = nn.BatchNorm1d(10, { momentum = 0.1 }), nn.MSELoss()
end

function Normed:forward(input, target)
  local y = self.bn(input)
  return y, self.loss(y, target)
end

local Updating = nn.Module:extend("Updating")

function Updating:init()
  self.conv, self.loss = nn.Conv2d(2, 2, 1, { padding = 0 }), nn.L1Loss()
  self:register_buffer("test_buff", torch.zeros(2))
end

function Updating:forward(input, target)
  local y = self.conv(input)
  torch.no_grad(function()
    self.test_buff:add_(self.conv.bias[0])
  end)
  return y, self.loss(y, target)
end

local function ones_in(conv)
  conv.weight.data = torch.ones_like(conv.weight)
  conv.bias.data = torch.ones_like(conv.bias)
end

describe("buffers_test", function()
  it("test_constant_buffer", function()
    near(poptorch.inferenceModel(constant())(torch.tensor({ 2 })), 15)
  end)

  it("test_constant_buffer_repeat", function()
    local model = poptorch.inferenceModel(constant())
    near(model(torch.tensor({ 2 })), 15)
    near(model(torch.tensor({ 2 })), 15)
  end)

  it("test_copy_named_buffer_to_device_single_buffer", function()
    local model = updatable({ "buffer_1" })
    near(model(x), 9)
    add_one(model.buffer_1)
    model:copyNamedBuffersToDevice()
    near(model(x), 12)
    add_one(model.buffer_2)
    model:copyNamedBuffersToDevice()
    near(model(x), 12)
  end)

  it("test_copy_named_buffer_to_device_two_buffers", function()
    local model = updatable({ "buffer_1", "buffer_2" })
    near(model(x), 9)
    for i, want in ipairs({ 12, 15 }) do
      add_one(model["buffer_" .. i])
      model:copyNamedBuffersToDevice()
      near(model(x), want)
    end
  end)

  it("test_copy_named_buffer_to_device_no_opt", function()
    local model = updatable()
    near(model(x), 9)
    add_one(model.buffer_1)
    raises("Error", "updatableNamedBuffers", function()
      model:copyNamedBuffersToDevice()
    end)
    near(model(x), 9)
  end)

  it("test_copy_named_buffer_to_device_invalid_opt", function()
    local model = updatable({ "non_existing_buffer" })
    raises("Error", "no buffer 'non_existing_buffer'", function()
      model(x)
    end)
  end)

  it("test_training_then_inference", function()
    local model = Normed()
    local input, target = torch.ones(4, 10), torch.ones(4, 10) + 1
    poptorch.trainingModel(model):compile(input, target)
    local inference = poptorch.inferenceModel(model)
    inference:compile(input, target)
    assert.is_true(inference:isCompiled())
  end)

  it("test_buffer_implicit_copy", function()
    local model = Normed()
    local trainer = poptorch.trainingModel(model)
    trainer(torch.ones(4, 10), torch.ones(4, 10) + 1)
    near(model.bn.running_mean, torch.full({ 10 }, 0.1))
    trainer:copyWeightsToHost()
    near(model.bn.running_mean, torch.full({ 10 }, 0.1))
  end)

  it("test_error_on_remove_buffer", function()
    local net = models.of(function(self, v)
      v = v + 1
      self._buffers.y = nil
      return v
    end)
    net:register_buffer("y", torch.tensor({ 2 }))
    raises("Error", "deleted the buffer 'y'", function()
      poptorch.inferenceModel(net)(torch.tensor({ 5.0 }))
    end)
  end)

  it("test_error_on_redefine_buffer", function()
    local net = models.of(function(self, v)
      self.y = v + 1
    end)
    net:register_buffer("y", torch.tensor({ 2 }))
    raises("Error", "'y' is a registered buffer.*self.y:copy_", function()
      poptorch.inferenceModel(net)(torch.tensor({ 5.0 }))
    end)
  end)

  it("test_buffer_update_with_param", function()
    for _, di in ipairs({ 1, 3, 5 }) do
      for _, ga in ipairs({ 1, 3, 5 }) do
        local host, device = Updating(), Updating()
        ones_in(host.conv)
        ones_in(device.conv)
        local optimizer = torch.optim.SGD(host:parameters(), { lr = 0.1 })
        local input = torch.ones(2, 2, 2, 2)
        for _ = 1, 4 * di do
          optimizer:zero_grad()
          for _ = 1, ga do
            local _, loss = host(input, torch.zeros_like(input))
            ;(loss / ga):backward()
          end
          optimizer:step()
        end
        local opts = poptorch.Options():deviceIterations(di)
        opts.Training:gradientAccumulation(ga)
        local trainer = poptorch.trainingModel(device, { options = opts,
          optimizer = torch.optim.SGD(device:parameters(), { lr = 0.1 }) })
        local batch = torch.ones(2 * di * ga, 2, 2, 2)
        for _ = 1, 4 do
          trainer(batch, torch.zeros_like(batch))
        end
        near(trainer.conv.bias, host.conv.bias:detach(), { 1e-5, 1e-5 })
        near(trainer.test_buff, host.test_buff, { 1e-5, 1e-5 })
      end
    end
  end)

  it("test_failing_on_replicas", function()
    local model = Updating()
    local trainer = poptorch.trainingModel(model, poptorch.Options():replicationFactor(2))
    raises("Error", "broadcastBuffers%(false%)", function()
      trainer(torch.ones(4, 2, 2, 2), torch.zeros(4, 2, 2, 2))
    end)
  end)

  it("test_constant_buffer_with_replicas", function()
    local model = poptorch.inferenceModel(constant(), poptorch.Options():replicationFactor(2))
    near(model(torch.tensor({ 1, 2 })), { 12, 15 })
  end)

  it("test_no_input_but_one_buffer", function()
    local net = models.of(function(self)
      self.x:add_(1.0)
      return self.x
    end)
    net:register_buffer("x", torch.tensor({ 1.0 }))
    local model = poptorch.inferenceModel(net)
    for want = 2, 5 do
      near(model(), { want })
    end
  end)

  it("test_unsynchronised_replicated_buffers", function()
    local net = models.of(function(self, v)
      self.buffer:copy_(self.buffer + v)
      return poptorch.identity_loss(self.buffer, "none")
    end)
    net:register_buffer("buffer", torch.zeros(1, 2))
    local model = poptorch.inferenceModel(net, poptorch.Options():replicationFactor(2)
      :broadcastBuffers(false))
    local y
    for _ = 1, 50 do
      y = model(torch.tensor({ { 9 }, { 2 } }))
    end
    near(y, { { 450, 450 }, { 100, 100 } })
  end)
end)
