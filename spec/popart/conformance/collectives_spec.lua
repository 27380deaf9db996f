-- Collectives between replicas as operators of a model: values against sums that torch
-- makes of all replicas' inputs, gradients as the original defines them.
local faults = require("lupine.faults")
local helper = require("spec.popart.helper")
local machine = require("spec.support.machine")
local popart = require("popart")
local profile = require("lupine.profile")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")
local Op, Group, Type = popart.CollectiveOperator, popart.CommGroup, popart.CommGroupType
local KINDS = { "replicatedallreduce", "replicatedreducescatter", "replicatedallgather" }

-- What an operator gives of one input in each replica: [batches, replicas, …]. given:
-- replicas (4), batches, type, op, group, before (of the input), options
local function run(kind, input, given)
  given = given or {}
  local replicas, batches = given.replicas or 4, given.batches or 1
  local shape = table.pack(table.unpack(input.shape, 2))
  local b = popart.Builder()
  local x = b:addInputTensor(given.type or "FLOAT", shape)
  local operand = given.before and given.before(b, x) or x
  local arguments = { commGroup = given.group }
  if kind ~= "replicatedallgather" then
    arguments.collectiveOperator = given.op
  end
  local y = b.aiGraphcore[kind](b.aiGraphcore, { operand }, arguments)
  local s = helper.inference(b, popart.DataFlow(batches, { [y] = ALL }), { options =
    helper.loops(1, replicas, given.options), device = helper.device(replicas) })
  local got = helper.run(s, { [x] = input })[y]
  return got:reshape({ batches, replicas, -1 }), s
end

-- Numbers of replicas, a row each.
local function numbers(...)
  torch.manual_seed(11)
  return torch.randn(...)
end

local function same(want, got)
  assert.is_true(torch.allclose(want:float(), got:float(), { rtol = 1e-5, atol = 1e-6 }),
    tostring(got))
end

describe("collectives", function()
  it("G5: a sum is on every replica, slices make it up, gathered they are whole", function()
    for _, replicas in ipairs({ 2, 4, 8 }) do
      -- of rank r the tensor [r]
      local ranks = torch.arange(replicas):float():reshape({ replicas, 1 })
      local sum = replicas * (replicas - 1) / 2
      same(torch.full({ 1, replicas, 1 }, sum), run(KINDS[1], ranks, { replicas = replicas }))
      local x = numbers({ replicas, 3, 8 })
      local total = x:sum(0):reshape({ -1 })
      local slices = run(KINDS[2], x, { replicas = replicas })
      same(total, slices:reshape({ -1 }))
      assert.same({ 1, replicas, 24 // replicas }, { table.unpack(slices.shape) })
      local gathered = run(KINDS[3], slices[0], { replicas = replicas })
      for r = 0, replicas - 1 do
        same(total, gathered[0][r])
      end
    end
  end)

  it("take every operator, in the order of replicas", function()
    local x = numbers({ 4, 6 })
    x[1][2] = 0
    local whole = { Add = x:sum(0), Mean = x:mean(0), Mul = x:prod(0), Min = x:amin(0),
      Max = x:amax(0), LogicalAnd = x:ne(0):all(0), LogicalOr = x:ne(0):any(0),
      SquareAdd = x:square():sum(0) }
    for name, want in pairs(whole) do
      local got = run(KINDS[1], x, { op = Op[name] })
      for r = 0, 3 do
        same(want, got[0][r])
      end
      got = run(KINDS[2], x, { op = Op[name] }):reshape({ -1 }) -- 6 in 4: two and two and zeros
      same(torch.cat({ want:float(), torch.zeros(2) }), got)
    end
    same(x, run(KINDS[1], x, { op = Op.Local }))
    same(torch.tensor({ { x[0][0]:item(), x[0][1]:item() }, { x[1][2]:item(), x[1][3]:item() },
      { x[2][4]:item(), x[2][5]:item() }, { 0, 0 } }), run(KINDS[2], x, { op = Op.Local }))
    helper.refuses("popart_exception", "Unsupported CollectiveOperator 9", run, KINDS[1], x,
      { op = 9 })
  end)

  it("are of any numbers", function()
    local ints = torch.tensor({ { 1, -2, 3 }, { 5, 7, -7 } }, { dtype = torch.int32 })
    local given = { replicas = 2, type = "INT32" }
    for name, want in pairs({ Add = { 6, 5, -4 }, Mul = { 5, -14, -21 }, Max = { 5, 7, 3 },
      Min = { 1, -2, -7 }, Mean = { 3, 2, -2 }, SquareAdd = { 26, 53, 58 },
      LogicalAnd = { 1, 1, 1 } }) do
      given.op = Op[name]
      local got = run(KINDS[1], ints, given)
      assert.same({ want, want }, got[0]:tolist(), name)
      assert.equal(torch.int32, got.dtype)
    end
    local half = numbers({ 2, 5 }):half()
    local got = run(KINDS[1], half, { replicas = 2, type = "FLOAT16" })
    assert.is_true(torch.equal(half[0] + half[1], got[0][0]))
  end)

  it("are within groups of replicas", function()
    local x = numbers({ 8, 4 })
    for _, case in ipairs({
      { Group(Type.Consecutive, 2), { { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 } } },
      { Group(Type.Orthogonal, 2), { { 0, 4 }, { 1, 5 }, { 2, 6 }, { 3, 7 } } },
      { Group(Type.Orthogonal, 4), { { 0, 2, 4, 6 }, { 1, 3, 5, 7 } } },
      { Group(Type.All, 3), { { 0, 1, 2, 3, 4, 5, 6, 7 } } } }) do
      local given = { replicas = 8, group = case[1] }
      local sums = run(KINDS[1], x, given)
      local slices = run(KINDS[2], x, given)
      local gathered = run(KINDS[3], x, given)
      for _, members in ipairs(case[2]) do
        local rows = x:index_select(0, torch.tensor(members))
        local size = (4 + #members - 1) // #members
        local want = torch.cat({ rows:sum(0), torch.zeros(#members * size - 4) })
        for i, r in ipairs(members) do
          same(rows:sum(0), sums[0][r])
          same(want:narrow(0, (i - 1) * size, size), slices[0][r])
          same(rows:reshape({ -1 }), gathered[0][r])
        end
      end
    end
    for _, case in ipairs({ { Group(Type.Consecutive, 3), "do not make up 8" },
      { Group(Type.Consecutive, 0), "do not make up 8" },
      { Group(Type.Ungrouped, 0), "Unknown commGroup type" } }) do
      helper.refuses("popart_exception", case[2], run, KINDS[1], x,
        { replicas = 8, group = case[1] })
    end
  end)

  it("go over batches, any layout of their operand and several in one program", function()
    local x = numbers({ 12, 2, 3 }) -- three batches of four replicas
    local got = run(KINDS[3], x, { batches = 3, before = function(b, id)
      return b.aiOnnx:transpose({ id }, { 1, 0 })
    end })
    local rows = x:reshape({ 3, 4, 2, 3 }):transpose(2, 3):reshape({ 3, 1, 24 })
    same(rows:expand({ 3, 4, 24 }), got)
    -- each replica less the mean, normalised by all replicas' squares
    local function centred(b, id)
      local mean = b.aiGraphcore:replicatedallreduce({ id }, Op.Mean)
      local less = b.aiOnnx:sub({ id, mean })
      local squares = b.aiGraphcore:replicatedallreduce({ less }, Op.SquareAdd)
      return b.aiOnnx:div({ less, b.aiOnnx:sqrt({ squares }) })
    end
    got = run(KINDS[1], x, { batches = 3, before = centred, op = Op.SquareAdd })
    same(torch.ones(3, 4, 6), got)
  end)

  it("of one replica change nothing but shapes", function()
    local x = numbers({ 1, 2, 3 })
    for _, kind in ipairs(KINDS) do
      same(x, run(kind, x, { replicas = 1 }):reshape({ 1, 2, 3 }))
      same(x, run(kind, x, { replicas = 1 }):reshape({ 1, 2, 3 }))
    end
    local four = numbers({ 4, 3 })
    same(four, run(KINDS[2], four, { group = Group(Type.Consecutive, 1) }))
  end)

  it("round to nearest, also where all else rounds at random", function()
    local half = numbers({ 2, 5 }):half()
    local got = run(KINDS[1], half, { replicas = 2, type = "FLOAT16",
      options = { enableStochasticRounding = true } })
    assert.is_true(torch.equal(half[0] + half[1], got[0][0]))
  end)

  it("stop where a fault strikes, and go on behind it", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4 })
    local w = b:addInitializedInputTensor(torch.ones(4))
    local y = b.aiGraphcore:replicatedallgather({ b.aiOnnx:mul({ x, w }) })
    local loss = helper.l1(b, b.aiGraphcore:replicatedallreduce({ y }, Op.Mean), 1.0)
    machine.begin()
    local device = popart.DeviceManager():acquireAvailableDevice(2)
    local s = helper.training(b, popart.DataFlow(2, { [loss] = ALL }), loss, popart.ConstSGD(0.5),
      { options = helper.loops(1, 2), device = device })
    local inputs = { [x] = torch.ones(2, 2, 4) }
    local want = helper.run(s, inputs)[loss]
    local all, struck = s:getReport().cycles, 0
    for k = 0, 19 do
      faults.inject({ kind = "recoverable", cycle = all * k // 20 })
      local ok, e = pcall(helper.run, s, inputs)
      assert.is_true(ok or popart.poplar_recoverable_runtime_error:is(e))
      struck = struck + (ok and 0 or 1)
      faults.clear()
      assert.is_true(torch.equal(want, helper.run(s, inputs)[loss]))
    end
    assert.equal(20, struck)
    device:detach()
    machine.finish()
  end)

  it("are named by profiles of the host's time", function()
    profile.start()
    run(KINDS[1], torch.ones(4, 8))
    local found
    for _, step in ipairs(profile.stop().steps) do
      for _, kernel in ipairs(step.kernels) do
        found = found or kernel.label:find("replicated_all_reduce", 1, true)
      end
    end
    assert.is_truthy(found)
  end)

  it("cannot stand in a graph that is called", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2 })
    local inner = b:createSubgraphBuilder()
    local a = inner:addInputTensor("FLOAT", { 2 })
    inner:addOutputTensor(inner.aiGraphcore:replicatedallreduce({ a }))
    local y = b.aiGraphcore:call({ x }, 1, inner)[1]
    helper.refuses("popart_exception", "not in a loop, branch or called graph", helper.inference,
      b, popart.DataFlow(1, { y }), { options = helper.loops(1, 2), device = helper.device(2) })
    local s = helper.inference(b, popart.DataFlow(1, { y }))
    assert.same({ 1.0, 2 }, helper.run(s, { [x] = torch.tensor({ 1.0, 2 }) })[y]:tolist())
  end)

  it("cost what the ring of their replicas takes", function()
    local function cycles(kind, n, given)
      local _, s = run(kind, torch.ones((given or {}).replicas or 4, n), given)
      for _, node in ipairs(s:getReport():nodes()) do
        if node.operator:find("replicated") then
          return node.cycles
        end
      end
      return 0
    end
    for _, kind in ipairs(KINDS) do
      local small, large = cycles(kind, 1024), cycles(kind, 65536)
      assert.is_true(small > 0 and large > small, kind)
      assert.is_true(cycles(kind, 1024, { group = Group(Type.Consecutive, 2) }) < small)
      assert.equal(0, cycles(kind, 1024, { replicas = 1 }))
    end
    -- a sum is scattered and gathered; all of it moves twice
    assert.is_true(cycles(KINDS[1], 65536) > cycles(KINDS[2], 65536))
    -- what is local stays on the IPU
    assert.is_true(cycles(KINDS[2], 65536, { op = Op.Local }) < cycles(KINDS[2], 65536) / 10)
  end)
end)

describe("gradients of collectives", function()
  -- Weights after an update of loss = sum |w made by fn|, of two replicas that read x.
  local function train(fn, given)
    given = given or {}
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4 })
    local w = b:addInitializedInputTensor(torch.ones(4), "w")
    local v = b:addInitializedInputTensor(torch.ones(1), "v")
    local loss = helper.l1(b, fn(b, b.aiOnnx:mul({ x, w }), v), 1.0)
    local anchors = { [loss] = ALL }
    local accumulation = given.accumulation or 1
    local s = helper.training(b, popart.DataFlow(1, anchors), loss,
      popart.ConstSGD(0.5, given.decay or 0.0),
      { options = helper.loops(accumulation, 2), device = helper.device(2) })
    local input = given.input or torch.arange(1, 9):float()
    local losses = helper.run(s, { [x] = input })[loss]
    local got = helper.weights(s, { w, v })
    return got[w], got[v]:item(), losses
  end
  local rows = torch.arange(1, 9):float():reshape({ 2, 4 }) -- what the replicas read

  it("of a gather are the replica's own part", function()
    local w, v = train(function(b, y, v)
      return b.aiOnnx:mul({ b.aiGraphcore:replicatedallgather({ y }), v })
    end)
    same(1 - 0.5 * rows:sum(0), w) -- each replica's gradient is its own row, they are summed
    assert.near(1 - 0.5 * 2 * 36, v, 1e-4)
  end)

  it("of a scatter of what is local are gathered", function()
    local w = train(function(b, y)
      return b.aiGraphcore:replicatedreducescatter({ y }, Op.Local)
    end)
    -- replica 0 has elements 0 and 1, replica 1 the others; both get ones for all
    same(1 - 0.5 * rows:sum(0), w)
    helper.refuses("popart_exception", "grad op is only implemented when "
      .. "CollectiveOperator==CollectiveOperator::Local", train, function(b, y)
        return b.aiGraphcore:replicatedreducescatter({ y })
      end)
  end)

  it("end at a sum, behind which weights train", function()
    local function summed(b, y, v)
      return b.aiOnnx:mul({ b.aiGraphcore:replicatedallreduce({ y }), v })
    end
    local w, v, losses = train(summed)
    same(torch.ones(4), w)
    assert.near(1 - 0.5 * 2 * 36, v, 1e-4)
    assert.same({ 36, 36 }, losses:tolist())
    w = train(summed, { decay = 0.5 }) -- what has no gradient is not updated
    same(torch.ones(4), w)
  end)

  it("are accumulated over micro-batches that all replicas run together", function()
    local input = numbers({ 3, 2, 4 }):abs()
    local w, v, losses = train(function(b, y, v)
      return b.aiOnnx:mul({ b.aiGraphcore:replicatedallgather({ y }), v })
    end, { accumulation = 3, input = input })
    same(1 - 0.5 * input:sum({ 0, 1 }), w)
    assert.near((1 - 0.5 * 2 * input:sum()):item(), v, 1e-4)
    same(input:sum({ 1, 2 }):reshape({ 3, 1 }):expand({ 3, 2 }), losses)
  end)
end)

describe("programs with collectives", function()
  local folder
  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
  end)
  after_each(function()
    os.execute("rm -rf " .. folder)
  end)

  -- Losses and weights of four micro-batches of two replicas: a gather on the first IPU,
  -- a mean on the second.
  local function train(options, pipelined)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4 })
    torch.manual_seed(1)
    local w, v = b:addInitializedInputTensor(torch.randn(4)),
      b:addInitializedInputTensor(torch.randn(8))
    local y, loss
    local function first()
      y = b.aiOnnx:sigmoid({ b.aiOnnx:mul({ x, w }) })
      y = b.aiOnnx:tanh({ b.aiGraphcore:replicatedallgather({ y }) })
    end
    local function second()
      local mean = b.aiGraphcore:replicatedallreduce({ x }, Op.Mean)
      y = b.aiOnnx:mul({ b.aiOnnx:mul({ y, v }), b.aiOnnx:concat({ mean, mean }, 0) })
      loss = helper.l1(b, y, 1.0)
    end
    if pipelined then
      b:virtualGraph(0, first)
      b:virtualGraph(1, second)
    else
      first()
      second()
    end
    local s = helper.training(b, popart.DataFlow(2, { [loss] = ALL }), loss, popart.ConstSGD(0.1),
      { options = helper.loops(4, 2, options), device = helper.device(pipelined and 4 or 2) })
    torch.manual_seed(2)
    local losses = helper.run(s, { [x] = torch.randn(16, 4) })[loss]
    local got = helper.weights(s, { w, v })
    return torch.cat({ losses:reshape({ -1 }), got[w], got[v] }), s
  end

  it("give the same numbers in a pipeline and with recomputation", function()
    local want = train({})
    assert.is_true(want:abs():sum():item() > 1)
    for _, kind in ipairs({ "Standard", "RecomputeAll" }) do
      assert.is_true(torch.equal(want, (train({ autoRecomputation =
        popart.RecomputationType[kind] }))))
    end
    same(want, (train({ virtualGraphMode = popart.VirtualGraphMode.Manual, enablePipelining = true,
      autoRecomputation = popart.RecomputationType.Pipeline }, true)))
  end)

  it("are kept in files", function()
    local options = { enableEngineCaching = true, cachePath = folder }
    local want = train(options)
    local got = train(options)
    assert.is_true(torch.equal(want, got))
    assert.is_true(torch.equal(want, (train({}))))
  end)
end)

describe("collectives_test", function()
  -- The result in each replica of an operator on an initialised tensor.
  local function of_weight(kind, t, replicas, settings, group)
    local b = popart.Builder()
    b:embedReplicationFactor(replicas)
    local w = b:addInitializedInputTensor(t, settings or popart.VariableSettings(), "input")
    local o = b.aiGraphcore[kind](b.aiGraphcore, { w }, { commGroup = group })
    b:addOutputTensor(o)
    local s = helper.inference(b, popart.DataFlow(1, { [o] = ALL }), { options =
      helper.loops(1, replicas), device = helper.device(replicas) })
    s:weightsFromHost()
    return helper.run(s, {})[o]
  end

  it("test_replicated_allreduce", function()
    local input = torch.arange(10):float()
    local got = of_weight(KINDS[1], input, 2)
    for r = 0, 1 do
      same(input * 2, got[r])
    end
  end)

  it("test_replicated_reducescatter", function()
    local two = Group(Type.Consecutive, 2)
    local input = torch.arange(12):float()
    same(input * 4, of_weight(KINDS[2], input, 4):reshape({ -1 }))
    local got = of_weight(KINDS[2], input, 4, nil, two)
    for r = 0, 3 do
      same((input * 2):reshape({ 2, 6 })[r % 2], got[r])
    end
    local grouped = torch.arange(24):float():reshape({ 2, 12 })
    got = of_weight(KINDS[2], grouped, 4, popart.VariableSettings(two), two)
    for r = 0, 3 do
      same((grouped * 2):reshape({ 2, 2, 6 })[r // 2][r % 2], got[r])
    end
  end)

  it("test_gcl_comm_group_attrs", function()
    local b = popart.Builder()
    local t = b:addInitializedInputTensor(torch.arange(10):float(), "input")
    local function value(id)
      return b:getInt64VectorNodeAttribute("__collectiveCommGroup", id)
    end
    local first = b.aiGraphcore:replicatedallreduce({ t }, { commGroup = Group(Type.All, 4) })
    assert.same({ 0, 4 }, value(first))
    for _, kind in ipairs({ Type.Consecutive, Type.Orthogonal }) do
      b:commGroup(kind, 4, function()
        assert.same({ kind.value, 4 }, value(b.aiGraphcore:replicatedallreduce({ t })))
      end)
      local scope = b:commGroup(kind, 2)
      assert.same({ kind.value, 2 }, value(b.aiGraphcore:replicatedallgather({ t })))
      getmetatable(scope).__close(scope)
    end
    assert.same({ "__collectiveCommGroup" }, b:getAllNodeAttributeNames(first))
    assert.same({}, b:getAllNodeAttributeNames(b.aiGraphcore:replicatedallreduce({ t })))
  end)
end)
