-- Virtual graphs, pipelines, phases, recomputation: they change where a model runs, not
-- what it computes.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")
local Mode, Recompute = popart.VirtualGraphMode, popart.RecomputationType
local INNER = popart.RecomputeType

local function at(ipu_of, stage_of)
  return function(b, i, add)
    local _ <close> = b:virtualGraph(ipu_of(i))
    if not stage_of then
      return add()
    end
    local _ <close> = b:pipelineStage(stage_of(i))
    return add()
  end
end

local function same(i)
  return i
end

-- Weights after a run, the loss of each micro-batch, and the session. given: layers,
-- batches, accumulation, replicas, options, ipus, place, optimizer
local function train(given)
  local replicas, accumulation = given.replicas or 1, given.accumulation or 1
  local batches = given.batches or 1
  local b, ids = helper.layers(given.layers or 3, 3, given.place)
  local s = helper.training(b, popart.DataFlow(batches, { [ids.loss] = ALL }), ids.loss,
    given.optimizer or popart.ConstSGD(0.05),
    { options = helper.loops(accumulation, replicas, given.options),
      device = helper.device((given.ipus or 1) * replicas) })
  torch.manual_seed(3)
  local x = torch.randn(batches * accumulation * replicas, 3, 4)
  local losses = helper.run(s, { [ids.x] = given.input or x })[ids.loss]
  return helper.weights(s, ids.weights), losses, s
end

local function equal(want, got)
  for id, t in pairs(want) do
    assert.is_true(torch.allclose(t, got[id], { rtol = 1e-5, atol = 1e-6 }), id)
  end
end

local function infers(batches, place, options, ipus)
  local b, ids = helper.layers(3, 3, place)
  local y = ids.hidden[3]
  local s = helper.inference(b, popart.DataFlow(batches, { [y] = ALL }), { options = options,
    device = helper.device(ipus or 3) })
  torch.manual_seed(3)
  return helper.run(s, { [ids.x] = torch.randn(batches, 3, 4) })[y], s
end

local MANUAL = { virtualGraphMode = Mode.Manual }
local PIPED = { virtualGraphMode = Mode.Manual, enablePipelining = true }

describe("a pipeline", function()
  it("P1: needs virtual graphs and more than one IPU", function()
    helper.refuses("popart_exception", "^Pipelining requires more than", train,
      { options = { enablePipelining = true }, ipus = 2 })
    helper.refuses("popart_exception", "^Pipelining requires more than", train,
      { options = PIPED, place = at(function() return 0 end) })
  end)

  it("P2: of three stages infers three batches at least", function()
    infers(3, at(same, same), PIPED)
    helper.refuses("popart_exception", "For pipelining, depth %(batchesPerStep%) must equal at "
      .. "least the number of pipeline stages %(3%)", infers, 2, at(same, same), PIPED)
  end)

  it("P3: of three IPUs trains five batches at least, or micro-batches", function()
    train({ options = PIPED, ipus = 3, place = at(same, same), batches = 5 })
    helper.refuses("popart_exception", "%(batchesPerStep%) must equal at least the number of "
      .. "pipeline stages %(5%)", train, { options = PIPED, ipus = 3, place = at(same, same),
        batches = 4 })
    helper.refuses("popart_exception", "%(gradient accumulation factor%) must equal at least the "
      .. "number of pipeline stages %(5%)", train, { options = PIPED, ipus = 3, batches = 8,
        place = at(same, same), accumulation = 4 })
  end)

  it("P5: infers for every batch what one IPU does", function()
    local want = infers(8, nil, nil, 1)
    for _, options in ipairs({ MANUAL, PIPED }) do
      assert.is_true(torch.equal(want, (infers(8, at(same, same), options))))
    end
  end)

  it("P7: trains with accumulation as one IPU does, all losses and weights", function()
    local weights, losses = train({ accumulation = 6, batches = 2 })
    local piped, values, s = train({ accumulation = 6, batches = 2, ipus = 3, options = PIPED,
      place = at(same, same) })
    equal(weights, piped)
    assert.is_true(torch.allclose(losses, values))
    assert.is_true(s:getReport().pipelined)
  end)

  it("without stages they are the virtual graphs", function()
    local want = train({ accumulation = 5 })
    local got, _, s = train({ accumulation = 5, ipus = 3, options = PIPED, place = at(same) })
    equal(want, got)
    assert.equal(3, #s:getReport().stages)
  end)

  it("without accumulation batches follow one another", function()
    local want = train({ batches = 5 })
    local got, _, s = train({ batches = 5, ipus = 3, options = PIPED, place = at(same, same) })
    equal(want, got)
    assert.is_false(s:getReport().pipelined)
    assert.matches("enablePipelining: without gradient accumulation", s:getSummaryReport())
  end)

  it("P9: computes again or not, to the same end", function()
    local want = train({ accumulation = 5 })
    local function piped(kind)
      local options = { autoRecomputation = kind }
      for k, v in pairs(PIPED) do
        options[k] = v
      end
      return train({ accumulation = 5, ipus = 3, options = options, place = at(same, same) })
    end
    local again, _, first = piped(Recompute.Pipeline)
    local kept, _, second = piped(Recompute.NoRecompute)
    equal(want, again)
    equal(want, kept)
    assert.is_true(first:getReport().stages[1].recomputed)
    assert.is_false(second:getReport().stages[1].recomputed)
  end)

  it("P9: a dropout's mask is the same when it is computed again", function()
    local function masks(kind)
      local b = popart.Builder()
      local x, w = b:addInputTensor("FLOAT", { 4, 8 }), b:addInitializedInputTensor(torch.ones(8))
      local y = b:virtualGraph(0, function()
        return b.aiOnnx:dropout({ b.aiOnnx:mul({ x, w }) }, 1, 0.5)[1]
      end)
      local loss = b:virtualGraph(1, function()
        return helper.l1(b, y, 1)
      end)
      local s = helper.training(b, popart.DataFlow(1, { [y] = ALL, ["Gradient___" .. w] = ALL }),
        loss, popart.ConstSGD(0.1), { device = helper.device(2), options = helper.loops(3, 1,
          { enablePipelining = true, virtualGraphMode = Mode.Manual, autoRecomputation = kind }) })
      local got = helper.run(s, { [x] = torch.ones(3, 4, 8) })
      return got[y], got["Gradient___" .. w]
    end
    for _, kind in ipairs({ Recompute.Pipeline, Recompute.NoRecompute }) do
      local y, g = masks(kind)
      -- each element of the mask is 0 or 2, and the gradient of w its sum over the rows
      assert.is_true(torch.allclose(y:sum(1), g))
      assert.is_true(y:eq(0):any():item() and y:eq(2):any():item())
    end
  end)

  it("P10: has stages everywhere or nowhere, each on one IPU", function()
    local function some(b, i, add)
      local _ <close> = b:virtualGraph(i)
      if i == 0 then
        local _ <close> = b:pipelineStage(0)
        return add()
      end
      return add()
    end
    helper.refuses("popart_exception", "^Only some ops have had their pipeline stage set%.", train,
      { options = PIPED, ipus = 3, accumulation = 8, place = some })
    helper.refuses("popart_exception", "have the same pipeline stage 1, but different virtual "
      .. "graph ids", train, { options = PIPED, ipus = 3, accumulation = 8,
        place = at(same, function(i) return math.min(i, 1) end) })
  end)

  it("P12: merges consecutive stages on one IPU", function()
    local place = at(function(i) return i // 2 end, same)
    local want = train({ accumulation = 3 })
    local got, _, s = train({ accumulation = 3, options = PIPED, ipus = 2, place = place })
    equal(want, got)
    assert.equal(2, #s:getReport().stages)
    helper.refuses("popart_exception", "number of pipeline stages %(3%)", train,
      { accumulation = 2, options = PIPED, ipus = 2, place = place })
  end)

  it("P13: comes back to an IPU in a later stage", function()
    local place = at(function(i) return i % 2 end, same)
    equal((train({ accumulation = 6 })), (train({ accumulation = 6, options = PIPED, ipus = 2,
      place = place })))
    assert.is_true(torch.equal((infers(6, nil, nil, 1)), (infers(6, place, PIPED, 2))))
    local backwards = at(function(i) return 2 - i end, same)
    assert.is_true(torch.equal((infers(6, nil, nil, 1)), (infers(6, backwards, PIPED, 3))))
  end)

  it("P14: cannot use a weight on two IPUs", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4, 4 })
    local w, h = b:addInitializedInputTensor(torch.ones(4, 4)), nil
    b:virtualGraph(0, function() h = b.aiOnnx:matmul({ x, w }) end)
    b:virtualGraph(1, function() h = b.aiOnnx:matmul({ h, w }) end)
    helper.refuses("popart_exception", "^Can not copy variable tensor", helper.inference, b,
      popart.DataFlow(2, { h }), { options = PIPED, device = helper.device(2) })
    helper.inference(b, popart.DataFlow(2, { h }), { options = MANUAL, device = helper.device(2) })
  end)

  it("P16: of two replicas trains as one with twice the data", function()
    torch.manual_seed(5)
    local x = torch.randn(12, 3, 4)
    equal((train({ accumulation = 12, options = PIPED, ipus = 3, place = at(same, same),
      input = x })), (train({ accumulation = 6, replicas = 2, options = PIPED, ipus = 3,
      place = at(same, same), input = x })))
  end)

  it("P18: computes nothing again that single nodes ask for", function()
    helper.refuses("popart_exception", "^When pipelining is enabled, user annotation for "
      .. "recomputation is not allowed", train, { options = PIPED, ipus = 3, accumulation = 6,
        place = function(b, i, add)
          local _ <close> = b:recomputeOutput(INNER.Recompute)
          return at(same, same)(b, i, add)
        end })
  end)
end)

describe("virtual graphs", function()
  it("M1: are all set, or none, and ignored where the mode is Off", function()
    equal((train({})), (train({ place = at(same) })))
    helper.refuses("popart_exception", "^No Ops have virtual graph ids set", train,
      { options = MANUAL, ipus = 2 })
    helper.refuses("popart_exception", "^Either all Ops must have their virtual graph ids set, or "
      .. "none must", train, { options = MANUAL, ipus = 2, place = function(b, i, add)
        if i > 0 then
          return add()
        end
        return at(same)(b, i, add)
      end })
    helper.refuses("popart_exception", "has the virtual graph id 2, the device has 2 IPUs", train,
      { options = MANUAL, ipus = 2, place = at(same) })
  end)

  it("M1: train as one IPU does", function()
    equal((train({ batches = 3 })), (train({ batches = 3, options = MANUAL, ipus = 3,
      place = at(same) })))
  end)

  local AUTO = { virtualGraphMode = Mode.Auto }

  it("Auto: cuts the model into even parts", function()
    local got, _, s = train({ options = AUTO, ipus = 3, layers = 6, batches = 2 })
    equal((train({ layers = 6, batches = 2 })), got)
    local on = {}
    for _, node in ipairs(s:getReport():nodes()) do
      if node.operator == "popart_sgd_step" then
        on[node.ipu] = (on[node.ipu] or 0) + 1
      end
    end
    -- of six layers an even share has two, and cuts are behind one node or the other
    for ipu = 0, 2 do
      assert.is_true(on[ipu] >= 1 and on[ipu] <= 3)
    end
  end)

  it("Auto: takes shares, which must be of each IPU and sum to 1", function()
    local function shares(list)
      return { virtualGraphMode = Mode.Auto, virtualGraphSplitRatios = list }
    end
    train({ options = shares({ 0.25, 0.75 }), ipus = 2, layers = 4 })
    for text, list in pairs({ ["must be equal to num_ipus"] = { 0.5, 0.3, 0.2 },
      ["must be equal to 1.0, but found 0.75"] = { 0.5, 0.25 },
      ["must be in the range %(0, 1%)"] = { 1.5, -0.5 } }) do
      helper.refuses("popart_exception", text, train, { options = shares(list), ipus = 2 })
    end
  end)

  it("Auto: cannot cut where too few places are crossed by one value", function()
    local b, x, y = helper.identity({ 4 })
    helper.refuses("popart_exception", "^%[AutoVirtualGraph%] Couldn't find enough splits for 2 "
      .. "IPUs. Only found 1", helper.inference, b, popart.DataFlow(1, { y }),
      { options = AUTO, device = helper.device(2) })
    assert.is_string(x)
  end)
end)

describe("execution phases", function()
  local function phases(n, stages, mode)
    local o = popart.SessionOptions()
    o.executionPhaseSettings.phases = n
    o.executionPhaseSettings.stages = stages
    o.virtualGraphMode = mode or Mode.ExecutionPhases
    return { executionPhaseSettings = o.executionPhaseSettings,
      virtualGraphMode = o.virtualGraphMode }
  end

  it("M5: need their mode, and one of them is none", function()
    helper.refuses("popart_exception", "^> 1 execution phases requires "
      .. "VirtualGraphMode::ExecutionPhases", train, { options = phases(2, 2, Mode.Manual),
        ipus = 2, place = at(same) })
    equal((train({})), (train({ options = phases(1, 2), ipus = 2 })))
  end)

  it("run on two IPUs in turn, or on one", function()
    local want = train({ layers = 4, batches = 2 })
    for stages = 1, 2 do
      local got, _, s = train({ layers = 4, batches = 2, ipus = 2, options = phases(4, stages) })
      equal(want, got)
      local seen = {}
      for _, stage in ipairs(s:getReport().stages) do
        seen[stage.phase] = stage.ipu
      end
      assert.same(stages == 2 and { [0] = 0, 1, 0, 1 } or { [0] = 0, 0, 0, 0 }, seen)
    end
  end)

  it("are those that nodes have", function()
    local function place(b, i, add)
      local _ <close> = b:executionPhase(i)
      return add()
    end
    equal((train({})), (train({ place = place, ipus = 2, options = phases(3, 2) })))
    helper.refuses("popart_exception", "has the execution phase 2, executionPhaseSettings.phases "
      .. "is 2", train, { place = place, ipus = 2, options = phases(2, 2) })
    helper.refuses("popart_exception", "executionPhaseSettings.stages is 2, the device has 1 IPUs",
      train, { options = phases(2, 2) })
  end)
end)

describe("recomputation", function()
  local function again(s)
    local n = 0
    for _, stage in ipairs(s:getReport().stages) do
      n = n + stage.recompute_cycles
    end
    return n
  end

  it("M8: of every kind gives the same losses and weights", function()
    local want, losses = train({ layers = 10, batches = 2 })
    local cycles = {}
    for _, kind in ipairs({ "NoRecompute", "Standard", "NormOnly", "RecomputeAll" }) do
      local got, values, s = train({ layers = 10, batches = 2,
        options = { autoRecomputation = Recompute[kind] } })
      equal(want, got)
      assert.is_true(torch.allclose(losses, values))
      cycles[kind] = again(s)
    end
    assert.equal(0, cycles.NoRecompute)
    assert.is_true(cycles.Standard > 0)
    assert.equal(0, cycles.NormOnly) -- there is no norm
  end)

  it("M8: of norms alone computes norms again", function()
    local function norms(kind)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT", { 2, 3, 4, 4 })
      local h = b.aiOnnx:sigmoid({ x })
      local scale, bias = b:addInitializedInputTensor(torch.ones(3)),
        b:addInitializedInputTensor(torch.zeros(3))
      h = b.aiOnnx:instancenormalization({ h, scale, bias })
      h = b.aiOnnx:mul({ b.aiOnnx:sigmoid({ h }), h })
      local loss = helper.l1(b, b.aiOnnx:sigmoid({ h }), 0.1)
      local s = helper.training(b, popart.DataFlow(1, { loss }), loss, popart.ConstSGD(0.1),
        { options = { autoRecomputation = kind } })
      torch.manual_seed(2)
      helper.run(s, { [x] = torch.randn(2, 3, 4, 4) })
      return helper.weights(s, { scale, bias }), again(s)
    end
    local want, none = norms(Recompute.NoRecompute)
    local got, some = norms(Recompute.NormOnly)
    equal(want, got)
    assert.equal(0, none)
    assert.is_true(some > 0)
  end)

  it("M8: cuts the forward pass into shrinking intervals", function()
    local intervals = require("popart.annotations").intervals
    local function first(n, k)
      return { table.unpack(intervals(n), 1, k) }
    end
    assert.same({ 1, 1, 1, 1, 1 }, intervals(5))
    assert.same({ 2, 1, 1 }, first(10, 3))
    assert.same({ 3, 2, 1, 1 }, first(20, 4))
    assert.same({ 6, 5, 4, 3, 2, 1, 1 }, first(50, 7))
    for n = 1, 60 do
      local sum = 0
      for _, length in ipairs(intervals(n)) do
        sum = sum + length
      end
      assert.equal(n, sum)
    end
  end)

  it("M8: keeps of each interval what is least", function()
    -- ten nodes, wide and narrow in turn: the first interval is of two
    local b = popart.Builder()
    local h = b:addInputTensor("FLOAT", { 2, 4 })
    for _ = 1, 4 do
      h = b.aiOnnx:matmul({ h, b:addInitializedInputTensor(torch.ones(4, 64)) })
      h = b.aiOnnx:matmul({ h, b:addInitializedInputTensor(torch.ones(64, 4)) })
    end
    local loss = helper.l1(b, b.aiOnnx:tanh({ h }), 1.0)
    local function stash(kind)
      local s = helper.training(b, popart.DataFlow(1), loss, popart.ConstSGD(0.1),
        { options = { autoRecomputation = kind } })
      local kept = {}
      for node, keeps in pairs(rawget(s, "_s").marks.keep) do
        kept[node.output[1]] = keeps or nil
      end
      return kept
    end
    local first = stash(Recompute.Standard)
    assert.is_nil(first["MatMul:0"])
    assert.is_true(first["MatMul:0/1"])
    assert.same({}, stash(Recompute.RecomputeAll))
  end)

  it("of single nodes is theirs", function()
    local function marked(b, i, add)
      if i == 1 then
        local _ <close> = b:recomputeOutput(INNER.Recompute)
        return add()
      end
      return add()
    end
    local got, _, s = train({ layers = 4, place = marked })
    equal((train({ layers = 4 })), got)
    assert.is_true(again(s) > 0)
  end)

  it("M9: is not of both kinds, and Pipeline's needs one", function()
    local function marked(b, _, add)
      local _ <close> = b:recomputeOutput(INNER.Recompute)
      return add()
    end
    helper.refuses("popart_exception", "^A mixture of auto and manual recomputation is not "
      .. "supported", train, { place = marked,
        options = { autoRecomputation = Recompute.Standard } })
    helper.refuses("popart_exception", "^Pipelined recomputation requires pipelining", train,
      { options = { autoRecomputation = Recompute.Pipeline } })
  end)

  -- The operators of the last of two stages that are computed again, by name, and a weight.
  -- fn(b, h, add) adds them: add(name, inputs, kept) gives an id.
  local function of_last_stage(fn)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 4, 8 })
    torch.manual_seed(4)
    local w = b:addInitializedInputTensor(torch.rand(8, 8))
    local h
    at(same, same)(b, 0, function()
      h = b.aiOnnx:relu({ b.aiOnnx:matmul({ x, w }) })
    end)
    local loss
    at(same, same)(b, 1, function()
      local last = fn(b, h, function(name, inputs, kept)
        local y = b.aiOnnx[name](b.aiOnnx, inputs)
        if kept then
          b:recomputeOutput(y, INNER.Checkpoint)
        end
        return y
      end)
      loss = helper.l1(b, last, 0.1)
    end)
    local function session(kind)
      return helper.training(b, popart.DataFlow(1, { [loss] = ALL }), loss, popart.ConstSGD(0.1),
        { device = helper.device(2), options = helper.loops(3, 1, { enablePipelining = true,
          virtualGraphMode = Mode.Manual, autoRecomputation = kind }) })
    end
    local s, plain = session(Recompute.Pipeline), session(Recompute.NoRecompute)
    torch.manual_seed(5)
    local input = torch.rand(3, 4, 8)
    for _, each in ipairs({ s, plain }) do
      helper.run(each, { [x] = input })
    end
    equal(helper.weights(plain, { w }), helper.weights(s, { w }))
    local cycles = {}
    for _, node in ipairs(s:getReport():nodes()) do
      if not node.backward and not node.update then
        cycles[node.operator] = node.cycles
      end
    end
    return s:getReport().stages[2].recompute_cycles, cycles
  end

  it("P17: of the last stage ends at its last checkpoints", function()
    local again_last, of = of_last_stage(function(_, h, add)
      local one = add("sigmoid", { h }, true)
      local two = add("tanh", { one })
      local three = add("exp", { two }, true)
      return add("sqrt", { three })
    end)
    assert.is_true(of.tanh > 0 and of.tanh ~= of.sqrt)
    assert.equal(of.tanh, again_last)
    assert.equal(0, (of_last_stage(function(_, h, add) -- no checkpoint but its input
      return add("exp", { add("tanh", { h }) })
    end)))
  end)

  it("P17: of the last stage goes by what follows from what, not by order", function()
    -- two branches that meet in a checkpoint
    local again_last, of = of_last_stage(function(_, h, add)
      local a = add("tanh", { add("sigmoid", { h }, true) })
      local c = add("exp", { add("neg", { h }, true) })
      return add("mul", { a, c }, true)
    end)
    assert.equal(of.tanh + of.exp, again_last)
    -- two that end in one each: nothing follows from either but the loss
    again_last = of_last_stage(function(_, h, add)
      local a = add("tanh", { add("sigmoid", { h }, true) })
      local c = add("exp", { add("neg", { h }, true) })
      return add("mul", { a, c })
    end)
    assert.equal(0, again_last)
    -- the original's graph whose operators are added in another order than they run
    again_last, of = of_last_stage(function(_, h, add)
      local one = add("sigmoid", { h })
      local five = add("tanh", { one }, true)
      local four = add("div", { one, add("exp", { five }) })
      local three = add("neg", { four }, true)
      return add("mul", { one, three })
    end)
    assert.equal(of.sigmoid + of.exp, again_last) -- nobody reads what div gives
  end)
end)
