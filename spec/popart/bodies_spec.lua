-- What nodes in the bodies of loops, branches and calls are told of: parts of products,
-- memory, types of partial results, places, recomputation.
local core = require("lupine.core")
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ROUNDS = 3

-- Ways to have add(builder, h) in a body, which takes a tensor and gives one of its type:
-- the operator's name in the report, how often the body runs, how it is added.
local WAYS = {
  { "loop", ROUNDS, function(b, h, add)
    local inner = b:createSubgraphBuilder()
    inner:addInputTensor(popart.TensorInfo("INT64", {}))
    local going = inner:addInputTensor(popart.TensorInfo("BOOL", {}))
    local state = inner:addUntypedInputTensor(h)
    inner:addOutputTensor(going)
    inner:addOutputTensor(add(inner, state))
    local trips = b.aiOnnx:constant(torch.tensor(ROUNDS, { dtype = torch.int64 }))
    return b.aiOnnx:loop({ trips, b.aiOnnx:constant(torch.tensor(true)), h }, 1, inner)[1]
  end },
  { "branch", 1, function(b, h, add)
    local yes, no = b:createSubgraphBuilder(), b:createSubgraphBuilder()
    yes:addOutputTensor(add(yes, h))
    no:addOutputTensor(no.aiOnnx:relu({ h }))
    local condition = b:addInputTensor("BOOL", {}, "condition")
    return b.aiOnnx:logical_if({ condition }, 1, no, yes)[1]
  end },
  { nil, 1, function(b, h, add) -- a call's nodes are the program's own
    local inner = b:createSubgraphBuilder()
    inner:addOutputTensor(add(inner, inner:addUntypedInputTensor(h)))
    return b.aiGraphcore:call({ h }, 1, inner)[1]
  end },
}

-- What add(builder, h, w) gives by itself, or in a body, `times` times over; and the cycles
-- of each operator that there is.
local function infer(way, given, add, times)
  local b = popart.Builder()
  torch.manual_seed(3)
  local x = b:addInputTensor(given.type or "FLOAT", given.shape)
  local w = b:addInitializedInputTensor((torch.randn(given.weight) * 0.1):to(given.dtype
    or torch.float32))
  local function node(at, h)
    return add(at, h, w)
  end
  local y = x
  for _ = 1, way and 1 or times or 1 do
    y = way and way[3](b, y, node) or node(b, y)
  end
  local s = helper.inference(b, popart.DataFlow(1, { y }))
  local cycles = {}
  for _, n in ipairs(s:getReport():nodes()) do
    cycles[n.operator] = (cycles[n.operator] or 0) + n.cycles
    cycles.all = (cycles.all or 0) + n.cycles
  end
  local inputs = { [x] = torch.randn(given.shape):to(given.dtype or torch.float32) }
  inputs.condition = way == WAYS[2] and torch.tensor(true) or nil
  return helper.run(s, inputs)[y], cycles, s
end

-- A node costs in each body what it costs outside; and its annotation makes a difference, to
-- values only if it `changes` them.
local function same_costs(given, plain, annotated, changes)
  local _, without = infer(nil, given, plain)
  local _, once = infer(nil, given, annotated)
  assert.are_not.equal(without.all, once.all)
  for _, way in ipairs(WAYS) do
    local got, cycles = infer(way, given, annotated)
    assert.equal(way[2] * once.all, cycles[way[1] or "all"], way[1])
    -- three products in a row: parts sum in an order of their own
    local exact = given.dtype or changes
    helper.near(got, (infer(nil, given, changes and annotated or plain, way[2])),
      not exact and { 1e-3, 1e-4 } or nil)
  end
end

describe("a node in a body", function()
  local product = { shape = { 512, 512 }, weight = { 512, 512 } }
  local conv = { shape = { 1, 16, 32, 32 }, weight = { 16, 16, 3, 3 }, type = "FLOAT16",
    dtype = torch.half }

  local function matmul(b, h, w)
    return b.aiOnnx:matmul({ h, w })
  end

  local function convolution(b, h, w)
    return b.aiOnnx:conv({ h, w }, { 1, 1 }, 1, { 3, 3 }, { 1, 1, 1, 1 })
  end

  it("is in parts", function()
    same_costs(product, matmul, function(b, h, w)
      local y = matmul(b, h, w)
      b:setSerializeMatMul({ y }, "output_channels", 4)
      return y
    end)
  end)

  it("is refused where its parts do not divide it", function()
    for _, way in ipairs(WAYS) do
      helper.refuses("popart_exception", "Invalid serialisation factor 5 for reducing dim dim 512",
        infer, way, product, function(b, h, w)
          local y = matmul(b, h, w)
          b:setSerializeMatMul({ y }, "reducing_dim", 5)
          return y
        end)
    end
  end)

  it("has a share of memory of its own", function()
    same_costs(product, matmul, function(b, h, w)
      local y = matmul(b, h, w)
      b:setAvailableMemoryProportion({ y }, 0.01)
      return y
    end)
  end)

  it("has partial results of its own type", function()
    same_costs(conv, convolution, function(b, h, w)
      local y = convolution(b, h, w)
      b:setPartialsType(y, "HALF")
      return y
    end, true)
  end)

  it("of a multiconv is planned as its settings say", function()
    local function both(settings)
      return function(b, h, w)
        local more = { pads = { { 1, 1, 1, 1 }, { 1, 1, 1, 1 } } }
        for key, value in pairs(settings) do
          more[key] = value
        end
        return b.aiOnnx:mul(b.aiGraphcore:multiconv({ { h, w }, { h, b.aiOnnx:neg({ w }) } },
          more))
      end
    end
    same_costs(conv, both({}), both({ planType = "serial" }))
    same_costs(conv, both({}), both({ partialsTypes = { "half", "half" } }), true)
  end)

  it("is named by the report where its annotation changes nothing", function()
    for _, way in ipairs(WAYS) do
      local _, _, s = infer(way, product, function(b, h, w)
        local y = matmul(b, h, w)
        b:schedulePriority(2, function() y = b.aiOnnx:relu({ y }) end)
        b:recomputeOutput({ y }, popart.RecomputeType.Checkpoint)
        return y
      end)
      local text = table.concat(s:getReport().no_effect, "\n")
      assert.matches("Builder:schedulePriority", text)
      assert.equal(way[1] ~= nil, text:find("recomputeOutput in the body of", 1, true) ~= nil)
    end
  end)
end)

describe("recomputation in a called graph", function()
  -- The weights after an update, and the cycles of what was computed again.
  local function trained(mark, options)
    local b = popart.Builder()
    torch.manual_seed(5)
    local x, w = b:addInputTensor("FLOAT", { 4, 4 }), b:addInitializedInputTensor(torch.randn(4, 4))
    local y = WAYS[3][3](b, x, function(inner, h)
      local out
      local function add()
        out = inner.aiOnnx:sigmoid({ inner.aiOnnx:matmul({ h, w }) })
        out = inner.aiOnnx:mul({ out, out })
      end
      if mark == "node" then
        inner:recomputeOutput(popart.RecomputeType.Recompute, add)
      else
        add()
      end
      return out
    end)
    if mark == "call" then
      b:recomputeOutput({ y }, popart.RecomputeType.Recompute)
    end
    local loss = helper.l1(b, b.aiOnnx:exp({ y }), 0.1)
    local s = helper.training(b, popart.DataFlow(1, { loss }), loss, popart.ConstSGD(0.5),
      { options = options })
    torch.manual_seed(6)
    helper.run(s, { [x] = torch.randn(4, 4) })
    return helper.weights(s, { w })[w], s:getReport().stages[1].recompute_cycles
  end

  it("is that of its nodes, or of the call", function()
    local want, none = trained(nil)
    assert.equal(0, none)
    for _, mark in ipairs({ "node", "call" }) do
      local got, again = trained(mark)
      helper.near(got, want)
      assert(again > 0, mark)
    end
    helper.near((trained(nil, { autoRecomputation = popart.RecomputationType.RecomputeAll })), want)
  end)
end)

-- Two calls on two IPUs, of graphs whose nodes are where `inside` says (nil: nowhere).
local function called(inside, options)
  local b = popart.Builder()
  local info = popart.TensorInfo("INT32", { 2 })
  local i0, i1 = b:addInputTensor(info), b:addInputTensor(info)
  local function graph_of(ipu)
    local inner = b:createSubgraphBuilder()
    local a, c = inner:addInputTensor(info), inner:addInputTensor(info)
    local function add() inner:addOutputTensor(inner.aiOnnx:add({ a, c })) end
    if ipu then
      inner:virtualGraph(ipu, add)
    else
      add()
    end
    return inner
  end
  local graphs, out = { graph_of(inside[1]), graph_of(inside[2]) }, i0
  for ipu = 0, 1 do
    local _ <close> = b:virtualGraph(ipu)
    local _ <close> = b:pipelineStage(ipu)
    out = b.aiGraphcore:call({ out, i1 }, 1, graphs[ipu + 1])[1]
  end
  b:addOutputTensor(out)
  local s = helper.inference(b, popart.DataFlow(10, { out }), { options = options,
    device = helper.device(4) })
  local x = torch.arange(20):reshape({ 10, 2 }):int()
  return helper.run(s, { [i0] = x, [i1] = x + 1 })[out], s
end

-- PopART's own tests of calls with virtual graphs
-- (tests/integration/operators_test/call_test_ipu_model.py).
describe("call_test_ipu_model", function()
  local MANUAL = { virtualGraphMode = popart.VirtualGraphMode.Manual }
  local PIPED = { virtualGraphMode = popart.VirtualGraphMode.Manual, enablePipelining = true }

  it("test_call_pipelined_error", function()
    helper.refuses("popart_exception", "in a subgraph of .* does not have a virtual graph id. When "
      .. "pipelining, subgraph ops must have a virtual graph id set", called, {}, PIPED)
    helper.refuses("popart_exception", "The virtual graph id 0 for .* in a subgraph does not match "
      .. "the virtual graph id 1 of the calling op", called, { 0, 0 }, PIPED)
    helper.refuses("popart_exception", "^Either all Ops must have their virtual graph ids set",
      called, {}, MANUAL)
    helper.refuses("popart_exception", "The virtual graph id 1 for", called, { 1, 0 }, MANUAL)
  end)

  it("test_call_pipelined", function()
    local x = torch.arange(20):reshape({ 10, 2 }):int()
    for _, options in ipairs({ PIPED, MANUAL }) do
      local got, s = called({ 0, 1 }, options)
      helper.near(got, x + 2 * (x + 1))
      assert.equal(2, #s:getReport().stages)
    end
  end)

  it("test_subgraph_attrs", function()
    local layers, shape = 3, { 4, 4 }
    torch.manual_seed(1)
    local input, start = torch.rand(shape), torch.rand(shape)
    local labels = torch.randint(0, 4, { 4 }):int()
    local b, weights = popart.Builder(), {}
    local x, label = b:addInputTensor(popart.TensorInfo(input)), b:addInputTensor(
      popart.TensorInfo(labels))
    local y = x
    for layer = 0, layers - 1 do
      local _ <close> = b:virtualGraph(layer)
      weights[layer + 1] = b:addInitializedInputTensor(start)
      local inner, out = b:createSubgraphBuilder(), nil
      local info = popart.TensorInfo("FLOAT", shape)
      local a, w = inner:addInputTensor(info), inner:addInputTensor(info)
      inner:virtualGraph(layer, function()
        out = inner.aiOnnx:relu({ inner.aiOnnx:matmul({ a, w }, "mm_layer") }, "relu_layer")
        inner:addOutputTensor(inner.aiOnnx:logsoftmax({ out }, 1))
      end)
      y = b.aiGraphcore:call({ y, weights[layer + 1] }, 1, inner, "subgraph_" .. layer)[1]
      assert.equal(layer, b:getVirtualGraph(y))
    end
    local loss = b.aiGraphcore:nllloss({ y, label }, { inputIsLogProbability = true })
    b:virtualGraph(loss, layers - 1)
    local batches = 5
    local s = helper.training(b, popart.DataFlow(batches, { loss }), loss, popart.ConstSGD(0.1),
      { device = helper.device(layers), options = PIPED })
    local got = helper.run(s, { [x] = input:unsqueeze(0):repeat_(batches, 1, 1),
      [label] = labels:unsqueeze(0):repeat_(batches, 1) })[loss]
    local own, want = {}, {}
    for i = 1, layers do
      own[i] = start:clone():requires_grad_(true)
    end
    local optimizer = torch.optim.SGD(own, 0.1)
    for batch = 1, batches do
      local h = input
      for i = 1, layers do
        h = torch.log_softmax(torch.relu(h:matmul(own[i])), 1)
      end
      local value = torch.nn.functional.nll_loss(h, labels:long())
      optimizer:zero_grad()
      value:backward()
      optimizer:step()
      want[batch] = value:item()
    end
    helper.near(got:flatten(), want)
    for i, t in ipairs(own) do
      helper.near(helper.weights(s, weights)[weights[i]], t:detach())
    end
  end)
end)

describe("a place in a body", function()
  it("must be that of the loop or branch", function()
    for _, way in ipairs({ WAYS[1], WAYS[2] }) do
      for _, row in ipairs({ { "pipelineStage", "pipeline stage",
        { virtualGraphMode = popart.VirtualGraphMode.Manual, enablePipelining = true } },
        { "executionPhase", "execution phase",
          { virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases } } }) do
        local function session(place)
          local b = popart.Builder()
          local x = b:addInputTensor("FLOAT", { 4 })
          local h = b:virtualGraph(0, function()
            return b[row[1]](b, 0, function() return b.aiOnnx:sigmoid({ x }) end)
          end)
          local y
          b:virtualGraph(1, function()
            b[row[1]](b, 1, function()
              y = way[3](b, h, function(inner, v)
                local out = inner.aiOnnx:exp({ v })
                inner[row[1]](inner, out, place)
                return out
              end)
            end)
          end)
          local options = helper.options(row[3])
          options.executionPhaseSettings.phases = row[1] == "executionPhase" and 2 or 0
          return popart.InferenceSession({ fnModel = b:getModelProto(),
            dataFlow = popart.DataFlow(4, { y }), deviceInfo = helper.device(2),
            userOptions = options })
        end
        session(1)
        helper.refuses("popart_exception", ("The %s 0 for Exp .* does not match the %s 1 of the "
          .. "calling op"):format(row[2], row[2]), session, 0)
      end
    end
  end)

  it("keeps what it captures on one IPU in a pipeline", function()
    local b = popart.Builder()
    local x, w = b:addInputTensor("FLOAT", { 4 }), b:addInitializedInputTensor(torch.ones(4))
    local h, y
    b:virtualGraph(0, function() h = b.aiOnnx:mul({ x, w }) end)
    b:virtualGraph(1, function()
      y = WAYS[1][3](b, h, function(inner, v) return inner.aiOnnx:add({ v, w }) end)
    end)
    helper.refuses("popart_exception", "^Can not copy variable tensor", helper.inference, b,
      popart.DataFlow(2, { y }), { device = helper.device(2), options = { enablePipelining = true,
        virtualGraphMode = popart.VirtualGraphMode.Manual } })
  end)
end)

describe("a normalisation in a called graph", function()
  -- The running mean after a batch; what the graph reads is given to it, or captured.
  local function mean_after(data, given)
    local b, ids = popart.Builder(), {}
    local x = b:addInputTensor(popart.TensorInfo(data))
    for i, t in ipairs({ torch.ones(3), torch.zeros(3), torch.zeros(3), torch.ones(3) }) do
      ids[i] = b:addInitializedInputTensor(t)
    end
    local inner = b:createSubgraphBuilder()
    local reads = { inner:addUntypedInputTensor(x) }
    for i, id in ipairs(ids) do
      reads[i + 1] = given and inner:addUntypedInputTensor(id) or id
    end
    inner:addOutputTensor(inner.aiOnnx:batchnormalization(reads, 5, 1e-5, 0.9)[1])
    local y = b.aiGraphcore:call({ x, table.unpack(given and ids or {}) }, 1, inner)[1]
    local loss = helper.l1(b, y, 1)
    local s = helper.training(b, popart.DataFlow(1, { loss }), loss, popart.ConstSGD(0.1))
    helper.run(s, { [x] = data })
    return helper.weights(s, ids)[ids[3]]
  end

  it("keeps the statistics of training", function()
    torch.manual_seed(9)
    local data = torch.randn(8, 3)
    for _, given in ipairs({ true, false }) do
      helper.near(mean_after(data, given), data:mean(0) * 0.1)
    end
  end)
end)

describe("a function of a model", function()
  it("has the statistics that training makes", function()
    local function node(op, inputs, outputs, domain)
      return { op_type = op, domain = domain, input = inputs, output = outputs, attribute = {} }
    end
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 8, 3 }, "x")
    local ids = {}
    for i, t in ipairs({ torch.ones(3), torch.zeros(3), torch.zeros(3), torch.ones(3) }) do
      ids[i] = b:addInitializedInputTensor(t, ("v%d"):format(i))
    end
    local loss = helper.l1(b, b.aiOnnx:identity({ x }), 1)
    local model = core.onnx_decode(b:getModelProto(), "ModelProto")
    local norm = node("BatchNormalization", { "a", "b", "c", "d", "e" },
      { "y", "mean", "var", "saved_mean", "saved_var" })
    model.functions = { { name = "Norm", domain = "own", input = norm.input, output = { "y" },
      node = { norm }, opset_import = model.opset_import } }
    table.insert(model.opset_import, { domain = "own", version = 1 })
    model.graph.node[1] = node("Norm", { x, table.unpack(ids) }, model.graph.node[1].output, "own")
    local s = helper.training(b, popart.DataFlow(1, { loss }), loss, popart.ConstSGD(0.1),
      { model = core.onnx_encode(model, "ModelProto") })
    torch.manual_seed(9)
    local data = torch.randn(8, 3)
    helper.run(s, { [x] = data })
    -- momentum is 0.9
    helper.near(helper.weights(s, { "v3" }).v3, data:mean(0) * 0.1)
  end)
end)
