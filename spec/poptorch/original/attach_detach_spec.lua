--- PopTorch's own attach_detach_test and attach_detach_wait_for_ipu_test, on the
--- simulated machine.
local devices = require("lupine.devices")
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

local Net = nn.Module:extend("Net")

function Net:init(inputs, outputs)
  self.linear = nn.Linear(inputs, outputs)
  self.loss = nn.CrossEntropyLoss()
end

function Net:forward(data, target)
  local out = self.linear(data)
  if target == nil then
    return out
  end
  return out, self.loss(out, target)
end

describe("attach_detach_test", function()
  local folder

  before_each(function()
    folder = machine.begin()
    torch.manual_seed(42)
  end)

  after_each(function()
    machine.finish()
  end)

  it("test_attach_detach", function()
    machine.set("POPTORCH_WAIT_FOR_IPU", "0")
    local target = torch.randint(0, 10, { 1 }):expand({ 10 })
    local input = torch.randn(10, 10)
    local model = Net(10, 10)
    local opts = poptorch.Options():useIpuId(1) -- both models use the same IPU
    local training = poptorch.trainingModel(model, opts)
    local inference = poptorch.inferenceModel(model, opts:clone())
    local _, first = training(input, target)
    assert.is_true(first:item() > 0.1)
    raises("Error", "Failed to acquire", function() inference:compile(torch.randn(10)) end)
    training:detachFromDevice()
    raises("Error", "not attached", function() training:detachFromDevice() end)
    inference:compile(torch.randn(10))
    inference:detachFromDevice()
    for _ = 1, 2 do
      local _, loss = training(input, target)
      assert.equal(0, #loss:size())
      assert.is_true(loss:item() == loss:item())
      training:detachFromDevice()
      inference(torch.randn(10))
      inference:detachFromDevice()
    end
  end)

  it("test_attach_detach_accuracy", function()
    local data, labels = torch.tensor({ { 1.0 }, { -1.0 } }), torch.tensor({ 0, 1 })
    local model = Net(1, 2)
    local training = poptorch.trainingModel(model, nil,
      poptorch.optim.SGD(model:parameters(), { lr = 0.1, use_combined_accum = false }))
    local inference = poptorch.inferenceModel(model)
    local losses = {}
    local function train(n)
      for _ = 1, n do
        local _, loss = training(data, labels)
        losses[#losses + 1] = loss:item()
      end
      training:detachFromDevice()
      return inference(data)
    end
    local before = train(5)
    inference:detachFromDevice()
    local after = train(100)
    assert.is_false(torch.allclose(before, after))
    assert.is_false(torch.allclose(after, torch.zeros(2, 2)))
    for i = 2, #losses do
      assert.is_true(losses[i] < losses[i - 1])
    end
    assert.is_true(losses[#losses] < 0.1)
  end)

  it("test_on_demand_attach", function()
    local out, err = program.shell(("POPTORCH_LOG_LEVEL=TRACE POPTORCH_WAIT_FOR_IPU=0 "
      .. "LUPINE_DEVICES=%s %s -e %s"):format(folder, program.host, program.quote([[
        local torch, poptorch = require("torch"), require("poptorch")
        local model = torch.nn.Linear(1, 2)
        local opts = poptorch.Options():connectionType(poptorch.ConnectionType.OnDemand)
        local input = torch.tensor({ { 1.0 }, { -1.0 } })
        models = {}
        for i, type in ipairs({ "OnDemand", "OnDemand", "Always" }) do
          local o = opts:clone():connectionType(poptorch.ConnectionType[type])
          models[i] = poptorch.inferenceModel(model, o)
          models[i](input)
        end]])))
    assert.equal("", out)
    local at = 1
    for _, line in ipairs({
      "Acquired 1 IPU(s): running on device Id 0", "compiled", "Attached to device 0",
      -- acquiring is not attaching: device 0 may be busy
      "Acquired 1 IPU(s): running on device Id 0", "compiled", "Attached to device 1",
      "Acquired 1 IPU(s): running on device Id 2", "Attached to device 2", "compiled" }) do
      local _, last = err:find(line, at, true)
      assert.is_truthy(last, line .. " in\n" .. err)
      at = last + 1
    end
  end)

  it("test_attach_detach_tied_weights", function()
    local Tied = nn.Module:extend("Tied")
    function Tied:init()
      self.encoder = nn.Linear(10, 100, false)
      self.encoder_tied = nn.Linear(10, 100, false)
      self.encoder_tied.weight = self.encoder.weight
    end
    function Tied:forward(data)
      local out = self.encoder(data) + self.encoder_tied(data)
      out = nn.functional.linear(out, self.encoder.weight:t())
      if self.training then
        return out, poptorch.identity_loss(out, "mean")
      end
      return out
    end
    local input, model = torch.randn(10, 10), Tied()
    local training = poptorch.trainingModel(model, poptorch.Options():useIpuId(0),
      torch.optim.AdamW(model:parameters(), { lr = 0.001 }))
    training:compile(input)
    training:detachFromDevice()
    model:eval()
    local inference = poptorch.inferenceModel(model, poptorch.Options():useIpuId(0))
    inference:compile(input)
    for _ = 1, 5 do
      inference:detachFromDevice()
      training:attachToDevice()
      assert.is_true(training:isAttachedToDevice())
      training:detachFromDevice()
      inference:attachToDevice()
    end
    helper.near(inference(input), model(input))
  end)
end)

describe("attach_detach_wait_for_ipu_test", function()
  it("test_attach_detach_wait_for_ipu", function()
    local folder = machine.begin()
    local p = assert(io.popen(("LUPINE_DEVICES=%s exec %s -e %s"):format(folder, program.host,
      program.quote([[
        local torch, poptorch = require("torch"), require("poptorch")
        local m = poptorch.inferenceModel(torch.nn.Linear(10, 10), poptorch.Options():useIpuId(1))
        m:compile(torch.randn(10))
        print("compiled")
        io.stdout:flush()
        require("lupine.core").devices.sleep(1)
        m:detachFromDevice()
        print("detached")]]))))
    assert.equal("compiled", p:read("l"))
    local out, err = program.shell(("LUPINE_DEVICES=%s POPTORCH_WAIT_FOR_IPU=1 "
      .. "POPTORCH_LOG_LEVEL=TRACE %s -e %s"):format(folder, program.host, program.quote([[
        local torch, poptorch = require("torch"), require("poptorch")
        local net = torch.nn.Linear(10, 10)
        local Loss = torch.nn.Module:extend("Loss")
        function Loss:init() self.net = net end
        function Loss:forward(x, t) return torch.nn.functional.cross_entropy(self.net(x), t) end
        local m = poptorch.trainingModel(Loss(), poptorch.Options():useIpuId(1))
        local loss = m(torch.randn(10, 10), torch.randint(0, 10, { 10 }))
        print(loss:item() == loss:item(), require("lupine.devices").holder(1).first)
        m:detachFromDevice()
        print(require("lupine.devices").holder(1))]])))
    assert.equal("true\t1\nnil\n", out, err)
    assert.matches("No IPU available, sleeping", err)
    assert.equal("detached", p:read("l"))
    p:close()
    assert.is_nil(devices.holder(1))
    machine.finish()
  end)
end)
