--- PopTorch's tests of phased execution: where operators lie, instead of the log's
--- lines.
local nn = require("torch.nn")
local near = require("spec.helper").near
local places_of = require("poptorch.options.places")
local poptorch = require("poptorch")
local torch = require("torch")

local Liveness, Phase, Stage = poptorch.Liveness, poptorch.Phase, poptorch.Stage
local SIZE = 10

-- Products on two IPUs whose two halves change places after each; `phase_of(n)` is the
-- phase of the n-th pair, block(phase, half) starts its block.
local Net = nn.Module:extend("Net")

function Net:init(pairs_of_products, phase_of, block)
  self.n, self.phase_of, self.block = pairs_of_products, phase_of, block
  self.weights = nn.ParameterList()
  for _ = 1, 2 * pairs_of_products do
    self.weights:append(nn.Parameter(torch.rand(SIZE, SIZE)))
  end
end

function Net:forward(input, target)
  local halves
  do
    local _ <close> = self.block(0, 0)
    halves = torch.split(input, SIZE)
  end
  for n = 0, self.n - 1 do
    local out = {}
    for half = 0, 1 do
      local _ <close> = self.block(self.phase_of(n), half)
      out[half + 1] = self.weights[2 * n + half + 1]:matmul(halves[half + 1]):relu()
    end
    halves = { out[2], out[1] }
  end
  local _ <close> = self.block(self.phase_of(self.n - 1), 1)
  local sum = halves[1] + halves[2]
  return sum, nn.functional.l1_loss(sum, target)
end

-- Two products in every odd phase.
local function two_in_odd(n)
  return n // 3 * 2 + (n % 3 > 0 and 1 or 0)
end

-- {IPU, phase} of the operators of that name in the forward pass.
local function places(r, operator)
  local out = {}
  for _, node in ipairs(r:nodes()) do
    if node.operator == operator and not node.backward and not node.update then
      out[#out + 1] = { node.ipu, r.stages[node.stage + 1].forward_phase }
    end
  end
  return out
end

-- Compiles and runs the training of a net under the strategy; everything lies where
-- its phases say.
local function check(net, strategy, phases)
  local trainer = poptorch.trainingModel(net, poptorch.Options():setExecutionStrategy(strategy),
    torch.optim.SGD(net:parameters(), { lr = 0.0 }))
  local input, target = torch.rand(2 * SIZE, 1), torch.rand(SIZE, 1)
  local host, host_loss = net(input, target)
  local sum, loss = trainer(input, target)
  near(sum, host:detach(), { 1e-3, 1e-5 })
  near(loss, host_loss:detach(), { 1e-3, 1e-5 })
  local r, want = trainer:report(), {}
  for n = 0, net.n - 1 do
    for half = 0, 1 do
      want[#want + 1] = { net.phase_of(n) % 2 + 2 * half, net.phase_of(n) }
    end
  end
  assert.same(want, places(r, "mm"))
  assert.same({ want[#want] }, places(r, "add"))
  assert.same({ "parallel_phased", phases, false }, { r.strategy, r.phases, r.pipelined })
  local kinds = 0
  for _, location in pairs(places_of.effective(trainer.options)) do
    assert.is_false(location.on_chip)
    kinds = kinds + 1
  end
  assert.equal(4, kinds)
end

describe("phased_execution_test", function()
  before_each(function()
    torch.manual_seed(3)
  end)

  it("test_2x2_parallel_phased_execution_inline", function()
    check(Net(9, two_in_odd, function(phase, half)
      return poptorch.Block(tostring(phase), { ipu_id = phase % 2 + 2 * half })
    end), poptorch.ParallelPhasedExecution("0", "1", "2", "3", "4", "5"), 6)
  end)

  it("test_2x2_parallel_phased_execution_opts", function()
    local phases = {}
    for phase = 0, 5 do
      phases[phase + 1] = { Stage(("phase%d_ipu0"):format(phase)):ipu(phase % 2),
        Stage(("phase%d_ipu1"):format(phase)):ipu(phase % 2 + 2) }
    end
    check(Net(9, two_in_odd, function(phase, half)
      return poptorch.Block(("phase%d_ipu%d"):format(phase, half))
    end), poptorch.ParallelPhasedExecution(table.unpack(phases)), 6)
  end)

  it("test_2x2_parallel_phased_execution_small_opts", function()
    local strategy = poptorch.ParallelPhasedExecution({ Stage("0"), Stage("1") },
      { Stage("2", "4"), Stage("3", "5") })
    strategy:phase(0):ipus(0, 2)
    strategy:phase(1):ipus(1, 3)
    local made = -1
    check(Net(3, two_in_odd, function(phase, half)
      -- the anonymous blocks of the original, in their order; the ends join theirs
      local at = made < 0 and 0 or made
      made = made + 1
      if made == 7 then
        at, made = 5, -1
      end
      assert.equal(half, at % 2)
      assert.equal(phase, math.min(at // 2, 1))
      return poptorch.Block(tostring(at))
    end), strategy, 2)
  end)

  it("test_serial_tensor_liveness", function()
    local Layers = nn.Module:extend("Layers")
    function Layers:init()
      self.fc1, self.fc2, self.fc3 = nn.Linear(8, 7), nn.Linear(7, 6), nn.Linear(6, 5)
    end
    function Layers:forward(x)
      for i = 1, 3 do
        local _ <close> = poptorch.Block("B" .. i)
        x = self["fc" .. i](x)
        if i == 3 then
          return x, poptorch.identity_loss(x, "sum")
        end
      end
    end
    local function numbers(liveness, separate)
      local strategy = poptorch.SerialPhasedExecution("B1", "B2", "B3")
      for i = 1, 3 do
        strategy:stage("B" .. i):ipu(0)
      end
      strategy:setTensorsLiveness(liveness):useSeparateBackwardPhase(separate)
      local opts = poptorch.Options():setExecutionStrategy(strategy)
      local net = Layers()
      local model = poptorch.trainingModel(net, opts)
      model:compile(torch.randn(8))
      local r = model:report()
      local out = { r.phases }
      for _, stage in ipairs(r.stages) do
        out[#out + 1] = stage.forward_phase
      end
      for _, stage in ipairs(r.stages) do
        out[#out + 1] = stage.backward_phase
      end
      return out
    end
    for _, case in ipairs({
      { Liveness.AlwaysLive, { 3, 0, 1, 2, 4, 3, 2 } },
      { Liveness.OffChipAfterFwd, { 6, 0, 1, 2, 8, 7, 6 } },
      { Liveness.OffChipAfterFwdNoOverlap, { 8, 0, 2, 4, 12, 10, 8 } },
      { Liveness.OffChipAfterEachPhase, { 12, 0, 4, 8, 20, 16, 12 } },
    }) do
      assert.same(case[2], numbers(case[1], false))
    end
    assert.same({ 4, 0, 1, 2, 6, 5, 4 }, numbers(Liveness.AlwaysLive, true))
  end)

  it("test_phased_api", function()
    for _, strategy in ipairs({
      poptorch.SerialPhasedExecution(Phase("layer1"), Phase("layer2")),
      poptorch.SerialPhasedExecution(Stage("layer1"), Stage("layer2")),
      poptorch.SerialPhasedExecution({ Stage("layer1"), Stage("layer1.b") },
        { Stage("layer2"), Stage("layer2.b") }),
      poptorch.SerialPhasedExecution({ "layer1" }, { "layer2" }),
    }) do
      assert.is_true(Phase:is(strategy:phase(1)))
    end
  end)
end)
