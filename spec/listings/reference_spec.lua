--- The examples of PopTorch's API reference, ported line by line. Each says what
--- it shows; `block` is a `with` statement's body.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

-- A module of this forward.
local function module(forward)
  local Model = nn.Module:extend("Model")
  function Model.forward(_, ...)
    return forward(...)
  end
  return Model()
end

-- "stage:ipu" of a model's report.
local function placed(model, field)
  local found = {}
  for i, stage in ipairs(model:report().stages) do
    found[i] = ("%d:%d"):format(field and stage[field] or i - 1, stage.ipu)
  end
  return table.concat(found, " ")
end

local function double(x)
  return x * 2
end

-- The model of blocks {user_id, ipu_id}, each twice its operand, run on x = 1.
local function blocks(list, opts, auto_id)
  local model = poptorch.inferenceModel(module(function(x)
    if auto_id then
      poptorch.Block.useAutoId()
    end
    for _, b in ipairs(list) do
      local _ <close> = poptorch.Block({ user_id = b[1], ipu_id = b[2] })
      x = double(x)
    end
    return x
  end), opts)
  local out = model(torch.ones({ opts.device_iterations }))
  assert.equal(2 ^ #list, out[0]:item())
  return model
end

describe("options of the reference", function()
  it("are set by methods of Options and of its groups", function()
    local opts = poptorch.Options()
    opts:deviceIterations(10)
    opts.Training:gradientAccumulation(4)
    assert.equal(10, opts.device_iterations)
    assert.equal(4, opts.Training.gradient_accumulation)
    opts = poptorch.Options()
    opts:connectionType(poptorch.ConnectionType.OnDemand)
    assert.equal(poptorch.ConnectionType.OnDemand, opts.connection_type)
    opts:outputMode(poptorch.OutputMode.All)
    assert.is_false(opts:defaultOutputMode())
    opts:outputMode(poptorch.OutputMode.EveryN, 10)
    assert.equal(10, opts.output_return_period)
    opts.Distributed:configureProcessId(0, 2)
    assert.equal(0, opts.Distributed.processId)
    assert.equal(2, opts.Distributed.numProcesses)
    opts.Precision:enableFloatingPointExceptions(true)
    assert.is_true(opts.Precision.floating_point_exceptions)
    local off = poptorch.TensorLocationSettings():useOnChipStorage(false)
    opts.TensorLocations:setActivationLocation(off)
    opts.TensorLocations:setOptimizerLocation(off)
    assert.matches("activation", tostring(opts.TensorLocations))
  end)
end)

describe("blocks of the reference", function()
  it("count those without an id", function()
    local log = require("spec.poptorch.helper").trace(function()
      poptorch.Block.useAutoId()
      for _, id in ipairs({ false, "special_block", false }) do
        local _ <close> = poptorch.Block(id or nil)
      end
    end)
    assert.equal("0@nil end special_block@nil end 1@nil end", table.concat(log, " "))
  end)

  it("begin with a module", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    assert.equal(net[2], poptorch.BeginBlock(net[2], { ipu_id = 1 }))
    local model = poptorch.inferenceModel(net, poptorch.Options():deviceIterations(2))
    local x = torch.rand({ 2, 2 })
    torch.testing.assert_close(model(x), net(x))
    assert.equal("0:0 1:1", placed(model))
    poptorch.removeBlocks(net)
    model = poptorch.inferenceModel(net)
    model(x)
    assert.equal("0:0", placed(model))
  end)

  it("are a function's body", function()
    local decoder = poptorch.BlockFunction("Decoder", { ipu_id = 1 })(function(x)
      return x + 1
    end)
    local model = poptorch.inferenceModel(module(function(x)
      return decoder(x * 3)
    end), poptorch.Options():deviceIterations(2))
    assert.same({ 4, 7 }, model(torch.tensor({ 1.0, 2.0 })):tolist())
    assert.equal("0:0 1:1", placed(model))
    assert.equal(6, decoder(5))
  end)
end)

describe("strategies of the reference", function()
  local zigzag = { { nil, 0 }, { nil, 1 }, { nil, 0 } }

  it("AutoStage numbers stages as IPUs, or one after another", function()
    local opts = poptorch.Options():deviceIterations(4)
    opts:setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu))
    assert.is_false((pcall(blocks, zigzag, opts, true)))
    opts = poptorch.Options():deviceIterations(4)
    opts:setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    assert.equal("0:0 1:1 2:0", placed(blocks(zigzag, opts, true)))
  end)

  it("a phase has stages, or the blocks of one", function()
    local Stage, Phase = poptorch.Stage, poptorch.Phase
    assert.equal(1, #Phase(Stage("A"):ipu(0)).stages)
    assert.equal(2, #Phase(Stage("A"):ipu(0), Stage("B"):ipu(1)).stages)
    assert.same({ "A", "B" }, Phase("A", "B").stages[1].blocks)
  end)

  it("ShardedExecution makes a shard of each IPU", function()
    local opts = poptorch.Options():autoRoundNumIPUs(true)
    opts:setExecutionStrategy(poptorch.ShardedExecution())
    local list = { { nil, 0 }, { nil, 1 }, { nil, 2 } }
    assert.equal("0:0 1:1 2:2", placed(blocks(list, opts, true)))
  end)

  it("PipelinedExecution takes blocks, stages, or the IPUs of blocks", function()
    local named = { { "A" }, { "B" }, { "C" }, { "D" } }
    local opts = poptorch.Options():deviceIterations(4)
    opts:setExecutionStrategy(poptorch.PipelinedExecution("A", "B", "C", "D"))
    assert.equal("0:0 1:1 2:2 3:3", placed(blocks(named, opts)))
    opts = poptorch.Options():deviceIterations(4)
    opts:setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("A", "B"),
      poptorch.Stage("C", "D")))
    assert.equal("0:0 1:1", placed(blocks(named, opts)))
    opts = poptorch.Options():deviceIterations(4)
    opts:setExecutionStrategy(poptorch.PipelinedExecution())
    local ipus = { { nil, 0 }, { nil, 1 }, { nil, 2 }, { nil, 3 } }
    assert.equal("0:0 1:1 2:2 3:3", placed(blocks(ipus, opts, true)))
  end)

  it("SerialPhasedExecution takes a list of phases", function()
    local Stage, Phase = poptorch.Stage, poptorch.Phase
    local strategy = poptorch.SerialPhasedExecution({ Phase(Stage("A"), Stage("A2")),
      Phase(Stage("B"), Stage("B2")), Phase(Stage("C"), Stage("C2")) })
    for phase = 0, 2 do
      strategy:phase(phase):ipus(0, 1)
    end
    local opts = poptorch.Options():setExecutionStrategy(strategy)
    local list = { { "A" }, { "A2" }, { "B" }, { "B2" }, { "C" }, { "C2" } }
    assert.equal("0:0 0:1 1:0 1:1 2:0 2:1", placed(blocks(list, opts), "phase"))
  end)

  it("ParallelPhasedExecution alternates between groups of IPUs", function()
    local Stage, Phase = poptorch.Stage, poptorch.Phase
    local strategy = poptorch.ParallelPhasedExecution({ Phase(Stage("0"), Stage("1")),
      Phase(Stage("2"), Stage("3")), Phase(Stage("4"), Stage("5")) })
    strategy:phase(0):ipus(0, 2)
    strategy:phase(1):ipus(1, 3)
    strategy:phase(2):ipus(0, 2)
    local opts = poptorch.Options():setExecutionStrategy(strategy)
    assert.equal("0:0 0:2 1:1 1:3 2:0 2:2",
      placed(blocks({ {}, {}, {}, {}, {}, {} }, opts, true), "phase"))
  end)

  it("useSeparateBackwardPhase shifts the backward phases", function()
    -- forward phases 0, 1, 2, backward ones 4, 3, 2 (one is shared) or 6, 5, 4
    for separate, phases in pairs({ [false] = 5, [true] = 6 }) do
      for _, name in ipairs({ "SerialPhasedExecution", "ParallelPhasedExecution" }) do
        local strategy = poptorch[name]("0", "1", "2")
        strategy:useSeparateBackwardPhase(separate)
        if name == "ParallelPhasedExecution" then
          for phase = 0, 2 do
            strategy:phase(phase):ipus(phase % 2)
          end
        end
        local opts = poptorch.Options():setExecutionStrategy(strategy)
        local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
        local Net = nn.Module:extend("Net")
        function Net:init()
          self.net = net
        end
        function Net:forward(x)
          for i = 1, 3 do
            local _ <close> = poptorch.Block(tostring(i - 1))
            x = self.net[i](x)
            if i == 3 then
              return poptorch.identity_loss(x, "sum")
            end
          end
        end
        local model = poptorch.trainingModel(Net(), opts)
        model(torch.ones({ 1, 2 }))
        local rows = 0
        for _, row in ipairs(model:report().schedule) do
          rows = rows + (row.kind == "phase" and 1 or 0)
        end
        assert.equal(phases, rows)
      end
    end
  end)
end)

describe("operators of the reference", function()
  it("set_available_memory leaves values as they are", function()
    local conv = nn.Conv2d(4, 4, 3, { stride = 2 })
    local Net = nn.Module:extend("BasicNetwork")
    function Net:init()
      self.conv = conv
    end
    function Net:forward(x)
      local out = self.conv(x)
      out = poptorch.set_available_memory(out, 0.2)
      return out
    end
    local x = torch.rand({ 1, 4, 9, 9 })
    torch.testing.assert_close(poptorch.inferenceModel(Net())(x), conv(x))
  end)

  it("MultiConv combines two convolutions", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.convA, self.convB = nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 3)
    end
    function Net:forward(x, u)
      local y, v
      do
        local _ <close> = poptorch.MultiConv()
        y = self.convA(x)
        v = self.convB(u)
      end
      return y, v
    end
    local net = Net()
    local x, u = torch.randn(1, 4, 8, 8), torch.randn(1, 4, 8, 8)
    local y, v = poptorch.inferenceModel(net)(x, u)
    torch.testing.assert_close(y, net.convA(x))
    torch.testing.assert_close(v, net.convB(u))
  end)

  it("CPU runs a function of the host, three times", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.cpu = poptorch.CPU(function(x)
        return self:myCpuOp(x)
      end, "MyCPUOp")
    end
    function Model.myCpuOp(_, x)
      return x * 2.0
    end
    function Model:forward(x)
      -- The arguments passed to "cpu" are forwarded to "myCpuOp"
      local out = self.cpu(x)
      out = self.cpu(out)
      out = self.cpu(out)
      return out
    end
    local x = torch.rand({ 4 })
    torch.testing.assert_close(poptorch.inferenceModel(Model())(x), 8 * x)
  end)

  it("NameScope names the operators of a block", function()
    local model = poptorch.inferenceModel(module(function(a, b)
      local z
      do
        local _ <close> = poptorch.NameScope("CustomString")
        local y = torch.bmm(a, b)
        z = torch.relu(y)
      end
      return z
    end))
    model(torch.randn(1, 2, 2), torch.randn(1, 2, 2))
    local names = table.concat(model:getTensorNames(), " ")
    assert.matches("CustomString/MatMul", names, 1, true)
    assert.matches("CustomString/Relu", names, 1, true)
  end)

  it("ipu_print_tensor needs its result to be used", function()
    local model = poptorch.inferenceModel(module(function(c, d, b)
      local a = c + d
      local x = poptorch.ipu_print_tensor(a)
      return x + b
    end))
    local one = torch.ones(2)
    assert.same({ 3, 3 }, model(one, one, one):tolist())
  end)

  it("a Channel has tracepoints and instruments methods", function()
    local channel = poptorch.profiling.Channel("MyApp")
    local called = 0
    do
      local _ <close> = channel:tracepoint("TimeThis")
      called = called + 1
    end
    local myobj = {
      methodName = function() called = called + 1 end,
      otherMethod = function() called = called + 1 end,
    }
    channel:instrument(myobj, "methodName", "otherMethod")
    myobj:methodName()
    myobj:otherMethod()
    assert.equal(3, called)
  end)

  it("load gives a model that was compiled and exported", function()
    local net = nn.Linear(3, 2)
    local path = os.tmpname()
    local model = poptorch.inferenceModel(net)
    local my_input = torch.randn(4, 3)
    model:compileAndExport(path, my_input)
    model:destroy()
    model = poptorch.load(path)
    os.remove(path)
    torch.testing.assert_close(model(my_input), net(my_input))
  end)

  it("optimizers say which attributes are constant", function()
    local opt = poptorch.optim.SGD({ nn.Parameter(torch.ones(1)) }, { lr = 0.01 })
    assert.is_false(opt.variable_attrs:isConstant("lr"))
    assert.is_true(opt.variable_attrs:isConstant("momentum"))
  end)

  it("the optimizer's state may lie off the chip", function()
    local function bytes(on_chip)
      local net = nn.Linear(256, 256)
      local Net = nn.Module:extend("Net")
      function Net:init()
        self.net = net
      end
      function Net:forward(x)
        return poptorch.identity_loss(self.net(x), "sum")
      end
      local opts = poptorch.Options()
      opts.Training:gradientAccumulation(8)
      opts.TensorLocations:setOptimizerLocation(
        poptorch.TensorLocationSettings():useOnChipStorage(on_chip):minElementsForOffChip(0))
      local opt = poptorch.optim.SGD(net:parameters(), { lr = 0.01, momentum = 0.9 })
      local model = poptorch.trainingModel(Net(), opts, opt)
      model(torch.ones({ 8, 256 }))
      return model:report().memory[0].off_chip
    end
    assert.is_true(bytes(false) >= 4 * 256 * 257)
    assert.equal(0, bytes(true))
  end)
end)
