describe("stages, phases and strategies", function()
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local Stage, Phase = poptorch.Stage, poptorch.Phase

  it("a stage lists block ids and goes to an IPU", function()
    local s = Stage("A", "B")
    assert.same({ "A", "B" }, s.blocks)
    assert.equal(s, s:ipu(1))
    helper.raises("AssertionError", Stage, 1)
    helper.method_raises("AssertionError", s, "ipu", "0")
    helper.method_raises("AssertionError", s, "ipu", -1)
    assert.equal("Stage(A, B; ipu=1)", tostring(s))
    assert.equal("Stage(A)", tostring(Stage("A")))
  end)

  it("a phase is stages or the block ids of one stage", function()
    assert.equal(1, #Phase("A", "B").stages)
    local p = Phase(Stage("A"), Stage("B"))
    assert.equal(2, #p.stages)
    p:ipus(0, 2)
    assert.equal(2, p:stage(1)._ipu)
    helper.method_raises("AssertionError", p, "ipus", 0)
    assert.equal(p, p:ipus(0, 1))
    helper.method_raises("IndexError", p, "stage", 2)
    helper.raises("AssertionError", Phase, Stage("A"), "B")
    assert.matches("got int 1$", helper.raises("AssertionError", Phase, 1).message)
    assert.matches("got nothing$", helper.raises("AssertionError", Phase).message)
  end)

  it("pipelined and sharded take stages, ids, lists of ids or an AutoStage", function()
    for _, name in ipairs({ "PipelinedExecution", "ShardedExecution" }) do
      local Strategy = poptorch[name]
      local s = Strategy(Stage("A"), "B", { "C", "D" })
      assert.equal(0, s:stage("A")._stage_id)
      assert.equal(1, s:stage("B")._stage_id)
      assert.equal(s:stage("C"), s:stage("D"))
      local listed = Strategy({ Stage("A"), Stage("B") })
      assert.equal(1, listed:stage("B")._stage_id)
      assert.equal(poptorch.AutoStage.SameAsIpu, Strategy()._auto_stage)
      assert.equal(poptorch.AutoStage.AutoIncrement,
        Strategy(poptorch.AutoStage.AutoIncrement)._auto_stage)
      assert.equal(name .. "(Stage(A), Stage(B; ipu=1))",
        tostring(Strategy("A", Stage("B"):ipu(1))))
      assert.equal(name .. "(AutoStage.AutoIncrement)",
        tostring(Strategy(poptorch.AutoStage.AutoIncrement)))
      helper.raises("AssertionError", Strategy, "A", Stage("B", "A"))
      helper.raises("AssertionError", Strategy, 3)
      local e = helper.method_raises("AssertionError", s, "stage", "nope")
      assert.matches("A, B, C, D", e.message, 1, true)
      helper.method_raises("AssertionError", Strategy(), "stage", "A")
    end
    assert.equal(0, poptorch.PipelinedExecution():backendOptions().execution_mode)
    assert.equal(1, poptorch.ShardedExecution():backendOptions().execution_mode)
  end)

  it("phased strategies take phases as arguments or as one list", function()
    for _, name in ipairs({ "SerialPhasedExecution", "ParallelPhasedExecution" }) do
      local Strategy = poptorch[name]
      local s = Strategy(Phase(Stage("A"), Stage("A2")), { Stage("B"), Stage("B2") }, "C",
        { "D", "E" })
      assert.equal(2, #s:phase(1).stages)
      assert.equal(1, #s:phase(3).stages)
      assert.equal(3, s:stage("E")._phase_id)
      assert.equal(2, #Strategy({ Stage("A"), Stage("B") }):phase(0).stages)
      assert.equal(1, #Strategy({ "A", "B" }):phase(0).stages)
      assert.equal(name == "SerialPhasedExecution", s:backendOptions().serial_phases_execution)
      local listed = Strategy({ Phase("A"), Phase("B") })
      assert.equal(1, listed:stage("B")._phase_id)
      assert.equal(1, Strategy({ { "A", "A2" }, { "B" } }):stage("B")._phase_id)
      helper.raises("AssertionError", Strategy)
      helper.raises("AssertionError", Strategy, "A", "A")
      helper.method_raises("AssertionError", s, "phase", -1)
      helper.method_raises("AssertionError", s, "phase", "0")
      helper.method_raises("IndexError", s, "phase", 9)
      assert.equal(s, s:useSeparateBackwardPhase())
      helper.method_raises("AssertionError", s, "useSeparateBackwardPhase", 1)
      assert.equal(2, s:backendOptions().execution_mode)
    end
    assert.equal("SerialPhasedExecution(Phase(Stage(A)), Phase(Stage(B), Stage(C)))",
      tostring(poptorch.SerialPhasedExecution("A", { Stage("B"), Stage("C") })))
    local serial = poptorch.SerialPhasedExecution("A")
    helper.method_raises("AssertionError", serial, "setTensorsLiveness", 0)
    serial:setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase)
    assert.equal(3, serial:backendOptions().tensors_liveness)
    local parallel = poptorch.ParallelPhasedExecution("A")
    assert.equal(1, parallel:sendTensorsOffChipAfterFwd():backendOptions().tensors_liveness)
  end)
end)

describe("placement of blocks", function()
  local helper = require("spec.poptorch.helper")
  local placement = require("poptorch.placement")
  local poptorch = require("poptorch")

  local auto = poptorch.AutoStage.AutoIncrement
  -- What a strategy places a program's blocks, {block id, ipu id} each, on.
  local function assign(strategy, blocks)
    local a, places = placement.Assigner(strategy), {}
    for i, block in ipairs(blocks) do
      places[i] = a:enter(block[1], block[2])
    end
    return places
  end
  local function column(places, field)
    local out = {}
    for i, place in ipairs(places) do
      out[i] = place[field]
    end
    return out
  end
  local function on(...)
    local blocks = {}
    for i, ipu in ipairs({ ... }) do
      blocks[i] = { "b" .. i, ipu }
    end
    return blocks
  end

  it("stage is the IPU by default", function()
    local places = assign(poptorch.PipelinedExecution(), on(0, 3))
    assert.same({ 0, 3 }, column(places, "stage"))
    assert.same({ 0, 3 }, column(places, "ipu"))
  end)

  it("AutoIncrement numbers blocks from 1 as they first appear", function()
    local places = assign(poptorch.PipelinedExecution(auto), on(0, 1, 2, 1))
    assert.same({ 1, 2, 3, 4 }, column(places, "stage"))
    places = assign(poptorch.PipelinedExecution(auto), { { "A", 0 }, { "B", 1 }, { "A", 0 } })
    assert.same({ 1, 2, 1 }, column(places, "stage"))
  end)

  it("SameAsIpu needs an IPU for every block", function()
    helper.raises("AssertionError", assign, poptorch.PipelinedExecution(), { { "A" } })
  end)

  it("an IPU comes from the stage, else the block, else the stage id", function()
    local s = poptorch.PipelinedExecution("A", "B1", "C")
    s:stage("B1"):ipu(0)
    local places = assign(s, { { "A", 5 }, { "B1", 3 }, { "C" } })
    assert.same({ 5, 0, 2 }, column(places, "ipu"))
    assert.same({ 0, 1, 2 }, column(places, "stage"))
    local e = helper.raises("AssertionError", assign, s, { { "X", 1 } })
    assert.matches("A, B1, C", e.message, 1, true)
  end)

  it("is IPU 0 before the first block and none after a scope", function()
    local a = placement.Assigner(poptorch.PipelinedExecution())
    assert.same({ stage = 0, ipu = 0, phase = 0 }, a.active)
    a:enter("A", 1)
    assert.equal("A", a.active.block)
    a:leave()
    assert.is_nil(a.active)
  end)

  describe("in phases", function()
    it("parallel phases alternate between even and odd IPUs", function()
      local function strategy()
        return poptorch.ParallelPhasedExecution({
          poptorch.Phase(poptorch.Stage("0"), poptorch.Stage("1")),
          poptorch.Phase(poptorch.Stage("2"), poptorch.Stage("3")) })
      end
      local blocks = { { "0" }, { "1" }, { "2" }, { "3" } }
      local s = strategy()
      s:phase(0):ipus(0, 2)
      s:phase(1):ipus(1, 3)
      local places = assign(s, blocks)
      assert.same({ 0, 2, 1, 3 }, column(places, "ipu"))
      assert.same({ 0, 0, 1, 1 }, column(places, "phase"))
      assert.same({ 0, 2, 1, 3 }, column(assign(strategy(), blocks), "ipu"))
    end)

    it("serial phases use one group of IPUs", function()
      local s = poptorch.SerialPhasedExecution(
        poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("A2")),
        poptorch.Phase(poptorch.Stage("B"), poptorch.Stage("B2")))
      local places = assign(s, { { "A" }, { "A2" }, { "B" }, { "B2" } })
      assert.same({ 0, 1, 0, 1 }, column(places, "ipu"))
      helper.raises("AssertionError", assign, s, { { "X" } })
    end)
  end)
end)

describe("a nil among blocks and stages", function()
  local poptorch = require("poptorch")
  local raises = require("spec.helper").raises

  it("is refused with its position", function()
    raises("AssertionError", "argument 2 is nil", function()
      poptorch.PipelinedExecution("A", nil, "B")
    end)
    raises("AssertionError", "argument 2 is nil", function()
      poptorch.Stage("A", nil)
    end)
  end)
end)
