--- Conformance: blocks, stages and pipelines.
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local models = require("spec.support.models")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn
local near, raises, refuses = helper.near, helper.raises, helper.refuses
local Stage = poptorch.Stage
local SAME, NEXT = poptorch.AutoStage.SameAsIpu, poptorch.AutoStage.AutoIncrement

-- Products in blocks "B0", "B1", … on the given IPUs (false: none given).
local Blocks = nn.Module:extend("Blocks")

function Blocks:init(...)
  self.ipus, self.w = { ... }, nn.Parameter(torch.ones(1))
end

function Blocks:forward(x, target)
  for i, ipu in ipairs(self.ipus) do
    local _ <close> = poptorch.Block("B" .. i - 1, ipu or nil)
    x = x * self.w * (i + 1)
    if i == #self.ipus then
      return x, target and nn.functional.mse_loss(x, target)
    end
  end
end

local function options(di, strategy)
  local opts = poptorch.Options():deviceIterations(di)
  return strategy and opts:setExecutionStrategy(strategy) or opts
end

-- {stage id, IPU} of the products of each block, in their order.
local function places(model)
  local r, out = model:report(), {}
  for _, node in ipairs(r:nodes()) do
    local place = { r.stages[node.stage + 1].id, node.ipu }
    local last = out[#out]
    if not node.backward and not node.update and not (last and last[1] == place[1]) then
      out[#out + 1] = place
    end
  end
  return out
end

local function infer(net, opts)
  local x = torch.randn(opts.device_iterations * opts.replication_factor, 4)
  local model = poptorch.inferenceModel(net, opts)
  near((model(x)), (net(x)):detach())
  return model
end

describe("conformance of pipelines", function()
  before_each(machine.begin)
  after_each(machine.finish)

  it("PIP01 training of four stages needs seven micro-batches an update", function()
    local function train(ga)
      local opts = options(1)
      opts.Training:gradientAccumulation(ga)
      poptorch.trainingModel(Blocks(0, 1, 2, 3), opts)(torch.ones(ga, 1), torch.ones(ga, 1))
    end
    for _, ga in ipairs({ 4, 5 }) do
      raises("Error", ("7, got %d"):format(ga), function()
        train(ga)
      end)
    end
    train(7)
  end)

  it("PIP03 inference of four stages needs four iterations", function()
    raises("Error", "4, got 2", function()
      infer(Blocks(0, 1, 2, 3), options(2))
    end)
    infer(Blocks(0, 1, 2, 3), options(4))
  end)

  it("PIP04 sharded execution needs one", function()
    infer(Blocks(0, 1, 2, 3), options(1, poptorch.ShardedExecution()))
  end)

  it("PIP06 an operator after the last block is in none", function()
    local net = models.of(function(_, x)
      do
        local _ <close> = poptorch.Block("A", { ipu_id = 0 })
        x = x * 4
      end
      return x * 4
    end)
    local e = raises("Error", "[Nn]o active [Bb]lock", function()
      poptorch.inferenceModel(net):compile(torch.ones(1))
    end)
    assert.equal("poptorch_cpp_error", e.type)
  end)

  it("PIP07 two blocks are two stages", function()
    assert.same({ { 0, 0 }, { 1, 1 } }, places(infer(Blocks(0, 1), options(2))))
  end)

  it("PIP09 a layer before the first block is on IPU 0", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      for i = 0, 2 do
        self["l" .. i] = nn.Linear(4, 4)
      end
      poptorch.BeginBlock(self.l1, { ipu_id = 1 })
      poptorch.BeginBlock(self.l2, { ipu_id = 1 })
    end
    function Net:forward(x)
      return self.l2(self.l1(self.l0(x)))
    end
    local r, out = infer(Net(), options(2)):report(), {}
    for _, node in ipairs(r:nodes()) do
      local layer = node.scope:match("^l%d")
      out[layer] = { r.stages[node.stage + 1].id, node.ipu }
    end
    assert.same({ l0 = { 0, 0 }, l1 = { 1, 1 }, l2 = { 1, 1 } }, out)
  end)

  it("PIP10 AutoIncrement numbers blocks from 1", function()
    local model = infer(Blocks(0, 1, 2, 1),
      options(4, poptorch.PipelinedExecution(NEXT)):autoRoundNumIPUs(true))
    assert.same({ { 1, 0 }, { 2, 1 }, { 3, 2 }, { 4, 1 } }, places(model))
  end)

  it("PIP12 stages ascend: an IPU comes back by AutoIncrement alone", function()
    raises("Error", "ascend", function()
      infer(Blocks(0, 1, 0), options(3, poptorch.PipelinedExecution(SAME)))
    end)
    local model = infer(Blocks(0, 1, 0), options(3, poptorch.PipelinedExecution(NEXT)))
    assert.same({ { 1, 0 }, { 2, 1 }, { 3, 0 } }, places(model))
    assert.same({ 3, 2 }, { #model:report().stages, model:report().ipus })
  end)

  it("PIP13 SameAsIpu needs an IPU of every block", function()
    raises("AssertionError", "no ipu_id", function()
      infer(Blocks(0, false), options(2, poptorch.PipelinedExecution(SAME)))
    end)
  end)

  it("PIP15 a first block on IPU 1 counts as a second stage", function()
    raises("Error", "2, got 1", function()
      infer(Blocks(1), options(1))
    end)
    local r = infer(Blocks(1), options(2)):report()
    assert.is_false(r.pipelined)
  end)

  it("PIP16 hardware has powers of two of IPUs", function()
    local function three()
      return options(3)
    end
    raises("Error", "3 IPUs.*4", function()
      infer(Blocks(0, 1, 2), three())
    end)
    local model
    assert.matches("3 IPUs, 4 are reserved", helper.logged(function()
      model = infer(Blocks(0, 1, 2), three():autoRoundNumIPUs(true))
    end))
    assert.equal(4, model:report().reserved_ipus)
    infer(Blocks(0, 1, 2), three():useIpuModel(true))
    poptorch.inferenceModel(Blocks(0, 1, 2), three():useOfflineIpuTarget())
      :compile(torch.ones(3, 1))
  end)

  it("PIP18 128 replicas are more than a machine takes, 2048 more than any target", function()
    for _, target in ipairs({ {}, { useIpuModel = { true } }, { useOfflineIpuTarget = {} } }) do
      local replicas = next(target) and 2048 or 128
      local opts = options(1):replicationFactor(replicas)
      for setter, values in pairs(target) do
        opts[setter](opts, table.unpack(values))
      end
      raises("Error", next(target) and "2048.*1024" or "128.*64", function()
        poptorch.inferenceModel(Blocks(0), opts):compile(torch.ones(replicas, 1))
      end)
    end
  end)

  it("PIP19 a module starts one block until it is removed", function()
    local layer = nn.Linear(1, 1)
    assert.is_true(rawequal(layer, poptorch.BeginBlock(layer, "A", 1)))
    raises("Error", "removeBlocks", function()
      poptorch.BeginBlock(layer, "B", 2)
    end)
    poptorch.removeBlocks(nn.Sequential(layer))
    poptorch.BeginBlock(layer, "B", 2)
    assert.matches("user_id=B, ipu_id=2", tostring(poptorch.inferenceModel(layer)))
  end)

  it("PIP21 removeBlocks takes a module", function()
    refuses("AssertionError", "module", poptorch.removeBlocks, 3)
  end)

  it("PIP22 a decorated function's operators are in its block", function()
    local double = poptorch.BlockFunction("A", { ipu_id = 1 })(function(x)
      return x * 2
    end)
    near(double(torch.ones(2)), { 2, 2 })
    local model = poptorch.inferenceModel(models.of(function(_, x)
      return double(x + 1)
    end), options(2))
    near(model(torch.ones(2)), { 4, 4 })
    assert.same({ { 0, 0 }, { 1, 1 } }, places(model))
  end)

  it("PIP24 a block is in one stage, and every block in one", function()
    refuses("AssertionError", "more than one stage", poptorch.PipelinedExecution, Stage("A"),
      Stage("A"))
    raises("AssertionError", "unknown block 'B1'.* B0, X", function()
      infer(Blocks(0, 1), options(2, poptorch.PipelinedExecution(Stage("B0"), Stage("X"))))
    end)
  end)

  it("PIP25 stages are named by texts and placed by numbers", function()
    refuses("AssertionError", "block_ids", Stage, 1)
    local stage = Stage("X")
    refuses("AssertionError", "ipu", stage.ipu, stage, "0")
    local strategy = poptorch.PipelinedExecution(stage)
    refuses("AssertionError", "nope", strategy.stage, strategy, "nope")
  end)

  it("PIP26 the stage's IPU wins over the block's", function()
    local strategy = poptorch.PipelinedExecution(Stage("B0"), Stage("B1"))
    strategy:stage("B1"):ipu(0)
    for _, place in ipairs(places(infer(Blocks(0, 3), options(2, strategy)))) do
      assert.equal(0, place[2])
    end
  end)
end)
