-- Loops, branches and scans in PopART's sessions: their gradients are those of the same
-- operators without them.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ROUNDS = 4

-- h -> tanh(h * w + x), of a builder.
local function cell(b, h, w, x)
  return b.aiOnnx:tanh({ b.aiOnnx:add({ b.aiOnnx:mul({ h, w }), x }) })
end

local REPEATED = {}

function REPEATED.unrolled(b, h, w, x)
  for _ = 1, ROUNDS do
    h = cell(b, h, w, x)
  end
  return h
end

function REPEATED.loop(b, h, w, x)
  local inner = b:createSubgraphBuilder()
  inner:addInputTensor(popart.TensorInfo("INT64", {}))
  local going = inner:addInputTensor(popart.TensorInfo("BOOL", {}))
  local state = inner:addUntypedInputTensor(h)
  inner:addOutputTensor(going)
  inner:addOutputTensor(cell(inner, state, w, x))
  local trips = b.aiOnnx:constant(torch.tensor(ROUNDS, { dtype = torch.int64 }))
  return b.aiOnnx:loop({ trips, b.aiOnnx:constant(torch.tensor(true)), h }, 1, inner)[1]
end

function REPEATED.scan(b, h, w, x)
  local inner = b:createSubgraphBuilder()
  local state = inner:addUntypedInputTensor(h)
  local slice = inner:addUntypedInputTensor(x)
  inner:addOutputTensor(cell(inner, state, w, slice))
  local rows = b.aiOnnx:concat({ x, x, x, x }, 0)
  local tall = b:reshape_const(b.aiOnnx, { rows }, { ROUNDS, 2 })
  return b.aiOnnx:scan({ h, tall }, { num_outputs = 1, body = inner, num_scan_inputs = 1 })[1]
end

function REPEATED.call(b, h, w, x)
  local inner = b:createSubgraphBuilder()
  local state = inner:addUntypedInputTensor(h)
  inner:addOutputTensor(cell(inner, state, w, x))
  for _ = 1, ROUNDS do
    h = b.aiGraphcore:call({ h }, 1, inner)[1]
  end
  return h
end

-- The loss and the weights after an update.
local function trained(repeated, ipu)
  local b = popart.Builder()
  local x = b:addInputTensor("FLOAT", { 2 })
  local h = b:addInitializedInputTensor(torch.tensor({ 0.25, -0.5 }))
  local w = b:addInitializedInputTensor(torch.tensor({ 0.5, -0.8 }))
  local loss, shown = nil, x
  local function add()
    loss = helper.l1(b, repeated(b, h, w, shown), 1.0)
  end
  if ipu then
    shown = b:virtualGraph(0, function() return b.aiOnnx:identity({ x }) end)
    b:virtualGraph(ipu, add)
  else
    add()
  end
  local flow = popart.DataFlow(1, { [loss] = popart.AnchorReturnType("All") })
  local session = helper.training(b, flow, loss, popart.ConstSGD(0.5), {
    device = helper.device(ipu and 2 or 1),
    options = ipu and { virtualGraphMode = popart.VirtualGraphMode.Manual } or nil })
  local anchors = helper.run(session, { [x] = torch.tensor({ 1.0, 2.0 }) })
  local weights = helper.weights(session, { h, w })
  return { anchors[loss]:item(), weights[h], weights[w] }
end

describe("a training session", function()
  local want = trained(REPEATED.unrolled)

  for _, name in ipairs({ "loop", "scan", "call" }) do
    it("O9: has the gradients of the unrolled graph for a " .. name, function()
      local got = trained(REPEATED[name])
      assert.near(want[1], got[1], 1e-6)
      helper.near(got[2], want[2])
      helper.near(got[3], want[3])
    end)
  end

  it("O9: has a loop without a trip that gives what it was given, and its gradients", function()
    local rounds = ROUNDS
    ROUNDS = 0
    local none, loop = trained(REPEATED.unrolled), trained(REPEATED.loop)
    ROUNDS = rounds
    assert.near(none[1], loop[1], 1e-6)
    helper.near(loop[2], none[2])
    helper.near(loop[3], { 0.5, -0.8 }) -- nothing depends on w
  end)

  it("has a loop on an IPU of its own", function()
    local got = trained(REPEATED.loop, 1)
    assert.near(want[1], got[1], 1e-6)
    helper.near(got[3], want[3])
  end)

  it("O9: takes the side of a branch that its input says", function()
    for _, side in ipairs({ true, false }) do
      local b = popart.Builder()
      local x, c = b:addInputTensor("FLOAT", { 2 }), b:addInputTensor("BOOL", {})
      local w = b:addInitializedInputTensor(torch.tensor({ 0.5, -0.8 }))
      local yes, no = b:createSubgraphBuilder(), b:createSubgraphBuilder()
      yes:addOutputTensor(yes.aiOnnx:mul({ x, w }))
      no:addOutputTensor(no.aiOnnx:exp({ w }))
      local y = b.aiOnnx:logical_if({ c }, 1, no, yes)[1]
      local loss = helper.l1(b, y, 1.0)
      local flow = popart.DataFlow(1, { [loss] = popart.AnchorReturnType("All") })
      local session = helper.training(b, flow, loss, popart.ConstSGD(1.0))
      helper.run(session, { [x] = torch.tensor({ 3.0, 2.0 }), [c] = torch.tensor(side) })
      local got = helper.weights(session, { w })[w]
      helper.near(got, side and { 0.5 - 3, -0.8 + 2 }
        or { 0.5 - math.exp(0.5), -0.8 - math.exp(-0.8) })
    end
  end)
end)

describe("a builder", function()
  it("gives ids that no graph around or within it has", function()
    local b, info = popart.Builder(), popart.TensorInfo("FLOAT", { 1 })
    local one, other = b:createSubgraphBuilder(), b:createSubgraphBuilder()
    local ids = {}
    for i, builder in ipairs({ one, one:createSubgraphBuilder(), b, other, one }) do
      ids[i] = builder:addInputTensor(info, "x")
    end
    assert.same({ "x", "x/1", "x/2", "x", "x/3" }, ids) -- the fourth graph is beside the first
  end)
end)
