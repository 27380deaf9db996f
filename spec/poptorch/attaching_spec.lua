--- Devices of models: which IPUs they take, and when.
local core = require("lupine.core")
local devices = require("lupine.devices")
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises
local C = poptorch.ConnectionType

describe("a model on the simulated machine", function()
  local folder

  before_each(function()
    folder = machine.begin()
  end)

  after_each(function()
    machine.finish()
  end)

  local x = torch.ones(1, 2)

  local function model(options)
    return poptorch.inferenceModel(nn.Linear(2, 1), options)
  end

  -- Ids 0, 1, … that somebody has.
  local function busy()
    local out = {}
    for ipu = 0, devices.ipus() - 1 do
      out[#out + 1] = devices.holder(ipu) and ipu
    end
    return out
  end

  it("brings to its device what the host has then: weights, optimizer, states", function()
    local net = nn.Module:extend("Weight")()
    net.w = nn.Parameter(torch.zeros(1))
    function net.forward(self, v)
      return poptorch.identity_loss(self.w * v, "sum")
    end
    local optimizer = torch.optim.SGD(net:parameters(), { lr = 1.0, momentum = 0.5 })
    local trainer = poptorch.trainingModel(net, nil, optimizer)
    local one = torch.ones(1)
    trainer(one)
    helper.near(net.w:detach(), { -1 })
    trainer:detachFromDevice()
    optimizer.param_groups[1].lr = 0.25
    optimizer.state[net.w].momentum_buffer:fill_(6)
    net.w.data:fill_(10)
    trainer(one) -- 6 * 0.5 + 1, a quarter of it
    helper.near(net.w:detach(), { 9 })
    trainer:detachFromDevice()
    net.w.data = torch.tensor({ 20.0 })
    trainer(one) -- 4 * 0.5 + 1
    helper.near(net.w:detach(), { 19.25 })
  end)

  it("brings tensors to its device that took the place of others", function()
    local net = nn.Linear(2, 1, { bias = false })
    local inference = poptorch.inferenceModel(net)
    inference(x)
    inference:detachFromDevice()
    net.weight = nn.Parameter(torch.tensor({ { 3.0, 4.0 } }))
    helper.near(inference(x), { { 7 } })
  end)

  it("leaves the optimizer's states to the host when it is garbage", function()
    local net = nn.Module:extend("Weight")()
    net.w = nn.Parameter(torch.zeros(1))
    function net.forward(self, v)
      return poptorch.identity_loss(self.w * v, "sum")
    end
    local optimizer = torch.optim.SGD(net:parameters(), { lr = 1.0, momentum = 0.5 })
    local trainer = poptorch.trainingModel(net, nil, optimizer)
    trainer(torch.ones(1) * 3)
    trainer = nil
    collectgarbage()
    collectgarbage()
    helper.near(optimizer.state[net.w].momentum_buffer, { 3 })
    helper.near(net.w:detach(), { -3 })
    assert.is_nil(trainer)
  end)

  it("attaches when it is compiled and gives the device back in every way there is", function()
    local a, b, c = model(), model(), model()
    assert.same({}, busy())
    a:compile(x)
    b(x)
    c:compile(x)
    assert.same({ 0, 1, 2 }, busy())
    a:detachFromDevice()
    assert.is_false(a:isAttachedToDevice())
    b:destroy()
    assert.same({ 2 }, busy())
    c = nil
    collectgarbage()
    assert.same({}, busy())
    a(x) -- attaches by itself
    assert.same({ 0 }, busy())
    assert.is_true(a:isAttachedToDevice())
    a:detachFromDevice()
    a:attachToDevice()
    assert.same({ 0 }, busy())
    assert.is_nil(c)
  end)

  it("takes the IPUs of all its stages and replicas, from the first free group on", function()
    local Two = nn.Module:extend("Two")
    function Two:init()
      self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
      poptorch.BeginBlock(self.b, { ipu_id = 1 })
    end
    function Two:forward(y)
      return self.b(self.a(y))
    end
    local options = poptorch.Options():replicationFactor(4):deviceIterations(2)
    local first = model()
    first:compile(x)
    local two = poptorch.inferenceModel(Two(), options)
    two:compile(torch.ones(8, 2))
    assert.same({ 0, 8, 9, 10, 11, 12, 13, 14, 15 }, busy())
    first:destroy()
  end)

  it("needs a device of the id with its number of IPUs", function()
    local two = poptorch.Options():replicationFactor(2)
    local a = model(two:clone():useIpuId(65))
    a(torch.ones(2, 2))
    assert.same({ 2, 3 }, busy())
    raises("Error", "useIpuId%(5%): this device has 1 IPU%(s%), the model uses 1 IPU%(s%) x "
      .. "replicationFactor 2 = 2", function() model(two:clone():useIpuId(5)):compile(
        torch.ones(2, 2)) end)
    raises("Error", "Failed to acquire device Id 127: this machine has the ids 0 to 126",
      function() model(poptorch.Options():useIpuId(127)):compile(x) end)
    raises("Error", "Failed to acquire device Id 2: it is in use, 1 by this process",
      function() model(poptorch.Options():useIpuId(2)):compile(x) end)
    local _, err = program.shell(("LUPINE_DEVICES=%s %s -e %s"):format(folder, program.host,
      program.quote([[
        local torch, poptorch = require("torch"), require("poptorch")
        local m = poptorch.inferenceModel(torch.nn.Linear(2, 1), poptorch.Options():useIpuId(97))
        m(torch.ones(1, 2))
        assert(require("lupine.devices").holder(7).count == 4)
      ]])))
    assert.matches("useIpuId%(97%): this device has 4 IPUs, the model uses .- = 1: the others are "
      .. "reserved", err)
  end)

  it("stays off the device while a weight that took another's place does not fit", function()
    local net = nn.Linear(2, 1)
    local m = poptorch.inferenceModel(net)
    m(x)
    m:detachFromDevice()
    net.weight = nn.Parameter(torch.ones(1, 3))
    raises("Error", "parameter 'weight' is float32 %[1, 3%] now", function() m(x) end)
    assert.same({}, busy())
    net.weight = nn.Parameter(torch.full({ 1, 2 }, 3.0))
    helper.near(m(x), net(x))
    assert.same({ 0 }, busy())
  end)

  it("fails on a full machine, naming who has how many, and leaves nothing behind", function()
    machine.set("LUPINE_IPUS", "2")
    local a, b = model(), model()
    a:compile(x)
    b:compile(x)
    local c = model()
    local e = raises("Error", "Failed to acquire 1 IPU%(s%): all such devices are in use "
      .. "%(LUPINE_IPUS=2%), 2 by this process", function() c(x) end)
    assert.equal("poptorch_cpp_error", e.type)
    assert.is_false(c:isCompiled())
    b:detachFromDevice()
    c(x)
    raises("Error", "Failed to acquire 1 IPU", function() b(x) end)
    assert.is_false(b:isAttachedToDevice())
    c:destroy()
    b(x)
    raises("Error", "Failed to acquire 4 IPU%(s%): this machine has devices of 1, 2, 4, … 2 "
      .. "IPUs %(LUPINE_IPUS=2%)",
      function() model(poptorch.Options():replicationFactor(4)):compile(torch.ones(4, 2)) end)
    a:destroy()
  end)

  it("on demand attaches once it is compiled, to the next device that is free then", function()
    local options = poptorch.Options():connectionType(C.OnDemand)
    machine.set("LUPINE_IPUS", "1")
    local a, b = model(options), model(options)
    a:compile(x)
    assert.is_true(a:isAttachedToDevice())
    raises("Error", "Failed to acquire 1 IPU", function() b:compile(x) end)
    assert.is_true(b:isCompiled()) -- only the device is missing
    assert.is_false(b:isAttachedToDevice())
    a:detachFromDevice()
    b(x)
    assert.is_true(b:isAttachedToDevice())
  end)

  it("takes no device as an IPU Model or for an offline target", function()
    machine.set("LUPINE_IPUS", "1")
    local taken = model()
    taken:compile(x)
    local on_model = model(poptorch.Options():useIpuModel(true):useIpuId(0))
    on_model(x)
    assert.is_true(on_model:isAttachedToDevice())
    assert.matches("useIpuId: the IPU Model has no ids", on_model:report():summary())
    on_model:detachFromDevice()
    on_model:attachToDevice()
    model(poptorch.Options():useOfflineIpuTarget()):compile(x)
    for _, name in ipairs({ "POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL" }) do
      machine.set(name, "1")
      local m = model()
      m(x)
      m:destroy()
      raises("AssertionError", "there is no IPU hardware", poptorch.ipuHardwareVersion)
      assert.is_false(poptorch.ipuHardwareIsAvailable())
      machine.set(name, false)
    end
    taken:destroy()
  end)

  it("brings its weights along", function()
    local net = nn.Linear(2, 1)
    local Loss = nn.Module:extend("Loss")
    function Loss:init()
      self.net = net
    end
    function Loss:forward(y)
      return poptorch.identity_loss(self.net(y):sum(), "sum")
    end
    local trainer = poptorch.trainingModel(Loss(), nil,
      poptorch.optim.SGD(net:parameters(), { lr = 0.5, momentum = 0.5 }))
    trainer(x)
    local before = net.weight:clone()
    trainer:detachFromDevice()
    trainer(x)
    helper.near(net.weight - before, { { -0.75, -0.75 } }) -- 0.5 * (1 + 0.5)
  end)

  it("says what the machine has, busy or not", function()
    assert.is_true(poptorch.ipuHardwareIsAvailable())
    assert.is_true(poptorch.ipuHardwareIsAvailable(64))
    assert.is_true(poptorch.ipuHardwareIsAvailable({ num_ipus = 2 }))
    assert.is_false(poptorch.ipuHardwareIsAvailable(128))
    assert.is_false(poptorch.ipuHardwareIsAvailable(3)) -- no device has three
    machine.set("LUPINE_IPUS", "128")
    assert.is_true(poptorch.ipuHardwareIsAvailable(128))
    assert.equal(2, poptorch.ipuHardwareVersion())
    raises("TypeError", "has no parameter 'ipus'; allowed are num_ipus", function()
      poptorch.ipuHardwareIsAvailable({ ipus = 2 })
    end)
    raises("TypeError", "num_ipus: expected int, got string \"2\"", function()
      poptorch.ipuHardwareIsAvailable("2")
    end)
  end)

  it("waits with POPTORCH_WAIT_FOR_IPU until another process gives its IPU back", function()
    local p = assert(io.popen(("LUPINE_DEVICES=%s exec %s -e %s"):format(folder, program.host,
      program.quote([[a = require("lupine.devices").attach({ id = 1 }) print("has it")
      io.stdout:flush() require("lupine.core").devices.sleep(0.4)]]))))
    assert.equal("has it", p:read("l"))
    local m = model(poptorch.Options():useIpuId(1))
    machine.set("POPTORCH_WAIT_FOR_IPU", "0")
    raises("Error", "Failed to acquire device Id 1: it is in use, 1 by process.*%(with "
      .. "POPTORCH_WAIT_FOR_IPU=1 it is waited for%)", function()
      m(x)
    end)
    machine.set("POPTORCH_WAIT_FOR_IPU", "1")
    m(x)
    assert.equal(core.devices.process(), devices.holder(1).pid)
    p:close()
    raises("Error", "Failed to acquire device Id 999", function() -- not waited for
      model(poptorch.Options():useIpuId(999)):compile(x)
    end)
  end)

  it("stops to wait on Ctrl-C", function()
    local holder = devices.attach({ id = 0 })
    local script = ([[
      local torch, poptorch = require("torch"), require("poptorch")
      local m = poptorch.inferenceModel(torch.nn.Linear(1, 1), poptorch.Options():useIpuId(0))
      print("running")
      io.stdout:flush()
      print(select(2, pcall(m, torch.ones(1, 1))).type)
    ]])
    local out = program.interrupted('local getenv = os.getenv function os.getenv(n) return '
      .. ('({ LUPINE_DEVICES = "%s", POPTORCH_WAIT_FOR_IPU = "1" })[n] or getenv(n) end '):format(
        folder) .. script)
    assert.equal("running\ninterrupt\n", out)
    holder:detach()
  end)
end)
