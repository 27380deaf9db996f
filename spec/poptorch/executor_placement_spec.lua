--- Blocks, stages and replicas of whole models: what is refused when they are
--- compiled, and that placement does not change results.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

-- Layers in blocks "B0", "B1", … on the given IPUs (false: no ipu_id).
local Stack = nn.Module:extend("Stack")

function Stack:init(ipus, size)
  self.ipus = ipus
  for i = 1, #ipus do
    self["fc" .. i] = nn.Linear(size or 5, size or 5)
  end
  self.loss = nn.MSELoss()
end

function Stack:forward(x, target)
  for i, ipu in ipairs(self.ipus) do
    local _ <close> = poptorch.Block("B" .. i - 1, ipu or nil)
    x = self["fc" .. i](x):relu()
    if i == #self.ipus and target then
      return x, self.loss(x, target)
    end
  end
  return x
end

local function options(t)
  local o = poptorch.Options():deviceIterations(t.di or 1):replicationFactor(t.rf or 1)
  o.Training:gradientAccumulation(t.ga or 1)
  if t.strategy then
    o:setExecutionStrategy(t.strategy)
  end
  return o
end

local function train(net, t)
  local rows = (t.di or 1) * (t.ga or 1) * (t.rf or 1)
  local model = poptorch.trainingModel(net, options(t))
  model(torch.randn(rows, 5), torch.randn(rows, 5))
  return model
end

-- Runs inference of the net on 4 rows; compares with the host.
local function infer(net, t)
  local x = torch.randn((t.di or 1) * (t.rf or 1), 5)
  local model = poptorch.inferenceModel(net, options(t))
  near(model(x), net(x):detach())
  return model
end

-- The IPU of each stage.
local function places(model)
  local list = {}
  for i, stage in ipairs(model:report().stages) do
    list[i] = stage.ipu
  end
  return list
end

describe("a pipeline", function()
  it("of four stages trains with at least seven micro-batches an update", function()
    for _, ga in ipairs({ 4, 5 }) do
      local e = raises("Error", "at least 7", function()
        train(Stack({ 0, 1, 2, 3 }), { ga = ga })
      end)
      assert.matches(tostring(ga), e.message, 1, true)
    end
    train(Stack({ 0, 1, 2, 3 }), { ga = 7 })
  end)

  it("of four stages infers with at least four iterations", function()
    raises("Error", "at least 4, got 2", function()
      infer(Stack({ 0, 1, 2, 3 }), { di = 2 })
    end)
    infer(Stack({ 0, 1, 2, 3 }), { di = 4 })
  end)

  it("that is sharded instead needs neither", function()
    infer(Stack({ 0, 1, 2, 3 }), { strategy = poptorch.ShardedExecution() })
    train(Stack({ 0, 1, 2, 3 }), { strategy = poptorch.ShardedExecution() })
  end)

  it("counts a stage for a first block that is not on IPU 0", function()
    raises("Error", "at least 2, got 1", function()
      infer(Stack({ 1 }), {})
    end)
    infer(Stack({ 1 }), { di = 2 })
  end)

  it("must have stages in the order of execution", function()
    local same = poptorch.AutoStage.SameAsIpu
    raises("Error", "ascend", function()
      infer(Stack({ 0, 1, 0 }), { di = 3, strategy = poptorch.PipelinedExecution(same) })
    end)
    infer(Stack({ 0, 1, 0 }), { di = 3, strategy =
      poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement) })
    raises("AssertionError", "no ipu_id", function()
      infer(Stack({ 0, false }), { di = 2, strategy = poptorch.PipelinedExecution(same) })
    end)
  end)

  it("gives a block that comes back an id of its own, as the error advises", function()
    local Net = nn.Module:extend("Net")
    function Net:init(ids)
      self.ids = ids
      self.fc = nn.Linear(5, 5)
    end
    function Net:forward(x)
      for i, id in ipairs(self.ids) do
        local _ <close> = poptorch.Block(id, (i - 1) % 2)
        x = self.fc(x):tanh()
      end
      return x
    end
    for _, auto in ipairs(poptorch.AutoStage:members()) do
      raises("Error", "needs an id of its own", function()
        infer(Net({ "A", "B", "A" }), { di = 3, strategy = poptorch.PipelinedExecution(auto) })
      end)
    end
    infer(Net({ "A", "B", "C" }), { di = 3, strategy =
      poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement) })
  end)

  it("may come back to a stage whose results it did not read in between", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.a, self.b, self.c = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
    end
    function Net:forward(x)
      local out = {}
      for i, name in ipairs({ "a", "b", "c" }) do
        poptorch.Block.start("B" .. i, { ipu_id = (i - 1) % 2 })
        out[i] = self[name](x)
      end
      return out[1], out[2], out[3]
    end
    local net, x = Net(), torch.randn(2, 5)
    local model = poptorch.inferenceModel(net, options({ di = 2 }))
    local got = { model(x) }
    for i, want in ipairs({ net(x) }) do
      near(got[i], want:detach())
    end
    assert.same({ 0, 1 }, places(model))
  end)

  it("keeps the stages of layers that change nothing after the one before", function()
    for _, middle in ipairs({ nn.ReLU(), nn.Dropout(), nn.Flatten() }) do
      local net = nn.Sequential(nn.ReLU(), middle, nn.ReLU()):eval()
      poptorch.BeginBlock(net[2], { ipu_id = 1 })
      poptorch.BeginBlock(net[3], { ipu_id = 2 })
      local model = poptorch.inferenceModel(net,
        options({ di = 10 }):useIpuModel(true):autoRoundNumIPUs(true))
      local x = torch.randn(10, 3)
      near(model(x), x:relu(), helper.exact)
      assert.equal(3, #model:report().stages)
    end
  end)

  it("has two stages for two blocks on IPUs 0 and 1", function()
    local model = infer(Stack({ 0, 1 }), { di = 2 })
    assert.same({ 0, 1 }, places(model))
  end)

  it("takes the IPU of its stage before that of the block", function()
    local strategy = poptorch.PipelinedExecution(poptorch.Stage("B0"), poptorch.Stage("B1"))
    strategy:stage("B1"):ipu(0)
    assert.equal(1, infer(Stack({ 0, 3 }), { di = 2, strategy = strategy }):report().ipus)
  end)

  it("whose strategy does not list a block is refused", function()
    raises("AssertionError", "unknown block 'B1': PipelinedExecution lists the blocks B0$",
      function()
        infer(Stack({ 0, 1 }), { di = 2,
          strategy = poptorch.PipelinedExecution(poptorch.Stage("B0")) })
      end)
  end)

  it("whose block has no name is refused by what starts it", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.l0 = poptorch.BeginBlock(nn.Linear(5, 5), "B0")
      self.rest = nn.Sequential(nn.Linear(5, 5), poptorch.BeginBlock(nn.Linear(5, 5),
        { ipu_id = 1 }))
    end
    function Net:forward(x)
      return self.rest(self.l0(x))
    end
    local strategy = poptorch.PipelinedExecution(poptorch.Stage("B0"))
    local e = raises("AssertionError",
      "unknown block without a name %(BeginBlock of 'rest.1', ipu_id=1%)", function()
        infer(Net(), { di = 2, strategy = strategy })
      end)
    assert.matches("give it the user_id of one", e.message, 1, true)
    function Net:forward(x)
      local y = self.l0(x)
      local _ <close> = poptorch.Block({ ipu_id = 3 })
      return y + 1
    end
    raises("AssertionError", "unknown block without a name %(Block, ipu_id=3%)", function()
      infer(Net(), { di = 2, strategy = strategy })
    end)
  end)
end)

describe("a placement that the strategy forbids", function()
  -- Each names the operator's line, its block, and PopTorch's way out.
  local function refused(pattern, strategy, ipus, t)
    t = t or {}
    t.strategy = strategy
    local e = raises("Error", pattern, function()
      infer(Stack(ipus), t)
    end)
    assert.equal("poptorch_cpp_error", e.type)
    return e.message
  end

  it("is refused with the operator, its line and its block", function()
    local here = "executor_placement_spec.lua:%d+%) of block "
    local text = refused("B1' on 1", poptorch.PipelinedExecution({ "B0", "B1" }), { 0, 1 })
    assert.matches("stage 0 is on two IPUs: operator [%w_]+ %(.*" .. here .. "'B0' on 0", text)
    text = refused("phase 1 is on IPU 2, but odd phases run on odd IPUs",
      poptorch.ParallelPhasedExecution("B0", "B1"), { 0, 2 })
    assert.matches(here .. "'B1'", text)
    text = refused("ascend", poptorch.PipelinedExecution(), { 0, 1, 0 }, { di = 3 })
    assert.matches(here .. "'B2' %(stage 0, IPU 0%) reads .*" .. here .. "'B1' %(stage 1", text)
  end)

  it("comes with what PopTorch calls the remedy", function()
    local pipelined = poptorch.PipelinedExecution()
    assert.matches("AutoStage.AutoIncrement ", refused("ascend", pipelined, { 0, 1, 0 },
      { di = 3 }), 1, true)
    assert.matches("(options:deviceIterations)", refused("got 1", pipelined, { 0, 1 }), 1, true)
    local e = raises("Error", "got 2", function()
      train(Stack({ 0, 1 }), { ga = 2 })
    end)
    assert.matches("(options.Training:gradientAccumulation)", e.message, 1, true)
    local sharded = poptorch.ShardedExecution()
    assert.matches("options:autoRoundNumIPUs(true))", refused("3 IPUs", sharded, { 0, 1, 2 }), 1,
      true)
    assert.matches("options.Distributed)",
      refused("2050 IPUs", sharded, { 0, 1 }, { rf = 1025 }), 1, true)
  end)
end)

describe("an operator outside any block", function()
  it("after a block ended is refused when the model is compiled", function()
    local Net = nn.Module:extend("Net")
    function Net:forward(x)
      do
        local _ <close> = poptorch.Block("A", { ipu_id = 0 })
        x = x + 1
      end
      return x * 2
    end
    raises("Error", "No active Block", function()
      poptorch.inferenceModel(Net())(torch.ones(1))
    end)
  end)

  it("is none where an inner block ended within another", function()
    local Net = nn.Module:extend("Net")
    function Net:forward(x)
      local _ <close> = poptorch.Block("A", { ipu_id = 0 })
      poptorch.Block("B", { ipu_id = 0 }, function()
        x = x + 1
      end)
      return x * 2
    end
    raises("Error", "No active Block", function()
      poptorch.inferenceModel(Net())(torch.ones(1))
    end)
  end)

  it("follows the block that began last, if a hook began it", function()
    local net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5))
    poptorch.BeginBlock(net[2], { ipu_id = 1 })
    local on = {}
    for _, node in ipairs(infer(net, { di = 2 }):report():nodes()) do
      on[node.scope:match("^%d")] = node.ipu
    end
    assert.same({ ["0"] = 0, ["1"] = 1, ["2"] = 1 }, on)
  end)

  it("before the first block is on IPU 0", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.l0, self.l1, self.l2 = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
      poptorch.BeginBlock(self.l1, { ipu_id = 1 })
      poptorch.BeginBlock(self.l2, { ipu_id = 1 })
    end
    function Net:forward(x)
      return self.l2(self.l1(self.l0(x)))
    end
    infer(Net(), { di = 2 })
    raises("Error", "at least 2", function()
      infer(Net(), { di = 1 })
    end)
  end)
end)

describe("a block that is named twice", function()
  it("is one block, whose stretches lie in its stage", function()
    local Net = nn.Module:extend("Net")
    function Net:forward(x)
      for _, id in ipairs({ "A", "A", "B", "A" }) do
        x = poptorch.Block(id, function()
          return x * 3
        end)
      end
      return x
    end
    local strategy = poptorch.ShardedExecution(poptorch.Stage("A"):ipu(1),
      poptorch.Stage("B"):ipu(0))
    local model = infer(Net(), { strategy = strategy })
    assert.same({ 1, 0, 1 }, places(model))
    assert.equal(2, model:report().ipus)
  end)
end)

describe("a decorated function", function()
  it("puts its operators into its block and is a plain call elsewhere", function()
    local double = poptorch.BlockFunction("D", { ipu_id = 1 })(function(x)
      return x * 2
    end)
    near(double(torch.ones(1)), { 2 })
    local Net = nn.Module:extend("Net")
    function Net:forward(x)
      return double(x)
    end
    near(poptorch.inferenceModel(Net(), options({ di = 2 }))(torch.ones(2)), { 2, 2 })
  end)
end)

describe("the number of IPUs", function()
  it("must be a power of two on hardware unless it may be rounded", function()
    local net, sharded = Stack({ 0, 1, 2 }), poptorch.ShardedExecution()
    raises("Error", "4", function()
      infer(net, { strategy = sharded })
    end)
    local x = torch.randn(1, 5)
    local want = net(x):detach()
    near(poptorch.inferenceModel(net, options({ strategy = sharded })
      :autoRoundNumIPUs(true))(x), want)
    near(poptorch.inferenceModel(net, options({ strategy = sharded })
      :useIpuModel(true))(x), want)
  end)

  it("is that of a replica times the replicas", function()
    local report = infer(Stack({ 0, 1 }),
      { rf = 2, strategy = poptorch.ShardedExecution() }):report()
    assert.equal(2, report.ipus) -- of a replica
    assert.equal(2, report.replicas)
  end)

  it("reaches to the highest id, and is told where there is none", function()
    local sharded = poptorch.ShardedExecution()
    assert.equal(4, infer(Stack({ 3 }), { strategy = sharded }):report().ipus)
    raises("Error", "3 IPUs", function()
      infer(Stack({ 2 }), { strategy = sharded })
    end)
    local Nothing = nn.Module:extend("Nothing")
    function Nothing:forward()
      return 5
    end
    poptorch.setLogLevel("INFO")
    assert.matches("no operator for the IPU", helper.logged(function()
      assert.equal(5, poptorch.inferenceModel(Nothing())())
    end), 1, true)
    poptorch.setLogLevel("WARN")
  end)

  it("is at most 64", function()
    raises("Error", "128", function()
      infer(Stack({ 0 }), { rf = 128 })
    end)
  end)
end)

describe("four layers on four IPUs", function()
  it("give four outputs as on the host", function()
    local net = nn.Module:extend("Net")()
    net.layers = nn.ModuleList({ nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5),
      nn.Linear(5, 5) })
    function net:forward(x)
      local out = {}
      for i, layer in ipairs(self.layers) do
        poptorch.Block.start("L" .. i, { ipu_id = i - 1 })
        x = layer(x)
        out[i] = x
      end
      return out
    end
    local x = torch.randn(4, 5)
    local got, want = poptorch.inferenceModel(net, options({ di = 4 }))(x), net(x)
    for i = 1, 4 do
      near(got[i], want[i]:detach())
    end
  end)
end)

describe("options that were copied and changed", function()
  it("make another executor and leave the first as it was", function()
    local net, o = Stack({ 0, 1 }), options({ ga = 3 })
    local x, t = torch.randn(3, 5), torch.randn(3, 5)
    local first = poptorch.trainingModel(net, o)
    first(x, t)
    local changed = o:clone()
    changed.Training:gradientAccumulation(2)
    local second = poptorch.trainingModel(Stack({ 0, 1 }), changed)
    raises("Error", "at least 3, got 2", function()
      second(torch.randn(2, 5), torch.randn(2, 5))
    end)
    first(x, t)
    assert.equal(3, first.options.Training.gradient_accumulation)
  end)
end)

describe("a tied embedding on two IPUs", function()
  it("stays tied and trains as on the host", function()
    local Tied = nn.Module:extend("Tied")
    function Tied:init()
      self.table = nn.Embedding(7, 4)
      self.head = nn.Linear(4, 7, { bias = false })
      self.head.weight = self.table.weight
      self.loss = nn.CrossEntropyLoss()
    end
    function Tied:forward(i, t)
      poptorch.Block.start("in", { ipu_id = 0 })
      local x = self.table(i):tanh()
      poptorch.Block.start("out", { ipu_id = 1 })
      return self.loss(self.head(x), t)
    end
    torch.manual_seed(2)
    local net, host = Tied(), Tied()
    host:load_state_dict(net:state_dict())
    local i, t = torch.randint(0, 7, { 6 }), torch.randint(0, 7, { 6 })
    poptorch.trainingModel(net, options({ ga = 3 }),
      poptorch.optim.SGD(net:parameters(), { lr = 0.5 }))(i, t)
    host(i, t):backward()
    assert.is_true(rawequal(net.table.weight, net.head.weight))
    near(net.table.weight, host.table.weight:detach() - 0.5 * host.table.weight.grad)
  end)
end)

describe("training saved and continued", function()
  it("gives the weights of training without a break", function()
    local x, t = torch.randn(8, 5), torch.randn(8, 5)
    local function run(breaks)
      torch.manual_seed(9)
      local net = Stack({ 0, 0 })
      local optimizer = torch.optim.Adam(net:parameters(), { lr = 0.05 })
      local o = options({ di = 2, ga = 2, rf = 2 })
      local model = poptorch.trainingModel(net, o, optimizer)
      for k = 1, 6 do
        model(x, t)
        if breaks and k == 3 then
          model:destroy()
          local state, moments = net:state_dict(), optimizer:state_dict()
          net = Stack({ 0, 0 })
          net:load_state_dict(state)
          optimizer = torch.optim.Adam(net:parameters(), { lr = 0.05 })
          optimizer:load_state_dict(moments)
          model = poptorch.trainingModel(net, o, optimizer)
        end
      end
      return net.fc1.weight:detach():clone()
    end
    assert.is_true(torch.equal(run(true), run(false)))
  end)
end)
