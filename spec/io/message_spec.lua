--- Tensors that processes send each other.
local core = require("lupine.core")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local processes = require("spec.support.processes")
local program = require("spec.support.program")
local torch = require("torch")

local Product = nn.Module:extend("Product")

function Product:init()
  self.weight = nn.Parameter(torch.tensor({ 1.0, 2 }))
end

function Product:forward(x)
  return poptorch.identity_loss(self.weight * x, "sum")
end

-- A model after a step of SGD, whose weight is newer on the device.
local function trained()
  local model = Product()
  local optimizer = poptorch.optim.SGD(model:parameters(), { lr = 0.5 })
  local training = poptorch.trainingModel(model, nil, optimizer)
  training(torch.tensor({ 4.0, 6 }))
  return model, training
end

describe("a tensor that is sent", function()
  local want = { 1 - 0.5 * 4, 2 - 0.5 * 6 } -- the gradient is x

  it("to a worker has what its device trained", function()
    local model, training = trained()
    local worker = core.start_worker(function(channel)
      local _, tensors = channel:receive(20)
      channel:send("", { tensors[1] * 1 })
    end)
    worker:send("", { model.weight })
    local _, tensors = worker:receive(20)
    worker:close(5)
    helper.near(tensors[1], want)
    training:destroy()
  end)

  it("by a forked worker, too", function()
    local model, training = trained()
    local worker = core.start_worker(function(channel)
      channel:send("", { model.weight })
    end)
    local _, tensors = worker:receive(20)
    worker:close(5)
    helper.near(tensors[1], want)
    training:destroy()
  end)
end)

describe("a worker", function()
  -- Answers with what it gets, and how many files it has open.
  local function echo()
    return core.start_worker(function(channel)
      local text, tensors = channel:receive(20)
      while text do
        channel:send(text .. processes.count_files(), tensors)
        text, tensors = channel:receive(20)
      end
    end)
  end

  it("and who started it have no more files open after many messages", function()
    local x, worker = torch.ones(40000), echo()
    local here, there = {}, {}
    for i = 1, 6 do
      worker:send("", { x, torch.ones(2) })
      local text, tensors = worker:receive(20)
      helper.near(tensors[2], { 1, 1 })
      here[i], there[i] = processes.count_files(), text
    end
    worker:close(5)
    for i = 2, 6 do
      assert.equal(here[1], here[i])
      assert.equal(there[1], there[i])
    end
  end)

  it("nor after one that cannot be sent", function()
    local worker = echo()
    local before = processes.count_files()
    for _ = 1, 3 do
      helper.refuses("ValueError", "a tensor is not contiguous", worker.send, worker, "",
        { torch.ones(2, 3):t() })
    end
    assert.equal(before, processes.count_files())
    worker:send("", { torch.ones(2) })
    helper.near(select(2, worker:receive(20))[1], { 1, 1 })
    worker:close(5)
  end)

  it("dies with who started it, whatever it does", function()
    local out, err = program.run({ "-e", [[
      local core = require("lupine.core")
      core.start_worker(function()
        core.devices.sleep(2)
        print("still there")
      end)
      os.execute("kill -9 $PPID")
    ]] })
    assert.equal("", out, err)
  end)

  it("writes nothing that its parent has yet to write", function()
    local out, err = program.run({ "-e", [[
      local core = require("lupine.core")
      io.stdout:setvbuf("full")
      io.write("once ")
      local worker = core.start_worker(function(channel)
        io.write("child ")
        channel:send("done", {})
      end)
      worker:receive(20)
      worker:close(5)
      io.write("parent")
    ]] })
    assert.equal("once child parent", out, err)
  end)
end)
