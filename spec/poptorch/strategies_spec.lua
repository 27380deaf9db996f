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
  end)

  it("a phase is stages or the block ids of one stage", function()
    assert.equal(1, #Phase("A", "B").stages)
    local p = Phase(Stage("A"), Stage("B"))
    assert.equal(2, #p.stages)
    p:ipus(0, 2)
    assert.equal(2, p:stage(1)._ipu)
    helper.method_raises("AssertionError", p, "ipus", 0)
    helper.method_raises("IndexError", p, "stage", 2)
    helper.raises("AssertionError", Phase, Stage("A"), "B")
    helper.raises("AssertionError", Phase, 1)
    helper.raises("AssertionError", Phase)
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
  local function column(a, field)
    local out = {}
    for _, place in ipairs(a.places) do
      if place.used then
        out[#out + 1] = place[field]
      end
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
    local a = placement.assign(poptorch.PipelinedExecution(), on(0, 1))
    assert.same({ 0, 1 }, column(a, "stage"))
    assert.equal(2, a.pipeline_stages)
    assert.is_true(a:pipelined())
  end)

  it("a layer before the first block is on IPU 0", function()
    local a = placement.assign(poptorch.PipelinedExecution(), on(1, 1), true)
    assert.same({ 0, 1, 1 }, column(a, "ipu"))
    assert.same({ 0, 1, 1 }, column(a, "stage"))
    assert.equal(2, a.pipeline_stages)
  end)

  it("AutoIncrement numbers blocks from 1 as they first appear", function()
    local a = placement.assign(poptorch.PipelinedExecution(auto), on(0, 1, 2, 1))
    assert.same({ 1, 2, 3, 4 }, column(a, "stage"))
    a = placement.assign(poptorch.PipelinedExecution(auto), on(1, 2, 3), true)
    assert.same({ 0, 1, 2, 3 }, column(a, "stage"))
    a = placement.assign(poptorch.PipelinedExecution(auto), { { "A", 0 }, { "B", 1 }, { "A", 0 } })
    assert.same({ 1, 2, 1 }, column(a, "stage"))
  end)

  it("returning to an IPU needs AutoIncrement", function()
    local a = placement.assign(poptorch.PipelinedExecution(), on(0, 1, 0))
    helper.raises("Error", placement.check_order, a)
    a = placement.assign(poptorch.PipelinedExecution(auto), on(0, 1, 0))
    placement.check_order(a)
    assert.equal(3, a.pipeline_stages)
    assert.same({ 0, 1 }, a:ipus())
    placement.check_order(placement.assign(poptorch.ShardedExecution(), on(0, 1, 0)))
  end)

  it("SameAsIpu needs an IPU for every block", function()
    helper.raises("AssertionError", placement.assign, poptorch.PipelinedExecution(), { { "A" } })
  end)

  it("a first block on IPU 1 counts two stages on one IPU", function()
    local a = placement.assign(poptorch.PipelinedExecution(), on(1))
    assert.equal(2, a.pipeline_stages)
    assert.same({ 1 }, a:ipus())
    assert.is_false(a:pipelined())
  end)

  it("neighbours on one IPU are one pipeline stage", function()
    local a = placement.assign(poptorch.PipelinedExecution(), on(0, 1, 1))
    assert.equal(2, a.pipeline_stages)
  end)

  it("an IPU comes from the stage, else the block, else the stage id", function()
    local s = poptorch.PipelinedExecution("A", "B1", "C")
    s:stage("B1"):ipu(0)
    local a = placement.assign(s, { { "A", 5 }, { "B1", 3 }, { "C" } })
    assert.same({ 5, 0, 2 }, column(a, "ipu"))
    assert.same({ 0, 1, 2 }, column(a, "stage"))
    local e = helper.raises("AssertionError", placement.assign, s, { { "X", 1 } })
    assert.matches("A, B1, C", e.message, 1, true)
  end)

  it("a pipeline stage is on one IPU", function()
    local s = poptorch.PipelinedExecution({ "A", "B" })
    helper.raises("Error", placement.assign, s, { { "A", 0 }, { "B", 1 } })
  end)

  it("no block is active after a scope", function()
    local a = placement.Assigner(poptorch.PipelinedExecution())
    assert.equal(0, a:place("add").ipu)
    a:enter("A", 1)
    assert.equal("A", a:place("add").block)
    a:leave()
    local e = helper.method_raises("Error", a, "place", "add")
    assert.matches("No active Block: add", e.message, 1, true)
  end)

  it("checks the batches that fill a pipeline", function()
    local a = placement.assign(poptorch.PipelinedExecution(), on(0, 1, 2, 3))
    local opts = poptorch.Options()
    for _, n in ipairs({ 4, 5 }) do
      opts.Training:gradientAccumulation(n)
      local e = helper.raises("Error", placement.check_batching, a, opts, true)
      assert.matches("7", e.message)
      assert.matches("got " .. n, e.message)
    end
    opts.Training:gradientAccumulation(7)
    placement.check_batching(a, opts, true)
    opts:deviceIterations(2)
    local e = helper.raises("Error", placement.check_batching, a, opts, false)
    assert.matches("at least 4, got 2", e.message)
    placement.check_batching(a, opts:deviceIterations(4), false)
    opts:deviceIterations(1)
    placement.check_batching(placement.assign(poptorch.ShardedExecution(), on(0, 1, 2, 3)), opts,
      false)
  end)

  it("reserves powers of two of hardware IPUs", function()
    local opts = poptorch.Options()
    local a = placement.assign(poptorch.PipelinedExecution(), on(0, 1, 2))
    local e = helper.raises("Error", placement.num_ipus, a, opts, true)
    assert.matches("3 IPUs.* 4 ", e.message)
    assert.equal(3, (placement.num_ipus(a, opts, false)))
    local logging = require("poptorch.logging")
    local warn, warned = logging.warn, 0
    logging.warn = function()
      warned = warned + 1
    end
    local reserved, used = placement.num_ipus(a, opts:autoRoundNumIPUs(), true)
    logging.warn = warn
    assert.same({ 4, 3, 1 }, { reserved, used, warned })
    opts:replicationFactor(128)
    helper.raises("Error", placement.num_ipus,
      placement.assign(poptorch.PipelinedExecution(), on(0)), opts, false)
  end)

  it("counts IPUs up to the highest id, times replicas", function()
    local opts = poptorch.Options():replicationFactor(2)
    local a = placement.assign(poptorch.PipelinedExecution(), on(3))
    assert.equal(8, (placement.num_ipus(a, opts, true)))
    assert.equal(0, (placement.num_ipus(placement.assign(poptorch.PipelinedExecution(), {}), opts,
      true)))
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
      local a = placement.assign(s, blocks)
      assert.same({ 0, 2, 1, 3 }, column(a, "ipu"))
      assert.same({ 0, 0, 1, 1 }, column(a, "phase"))
      assert.same({ 0, 2, 1, 3 }, column(placement.assign(strategy(), blocks), "ipu"))
      s:phase(1):ipus(0, 2)
      local e = helper.raises("Error", placement.assign, s, blocks)
      assert.matches("phase 1 is on IPU 0", e.message, 1, true)
    end)

    it("serial phases use one group of IPUs", function()
      local s = poptorch.SerialPhasedExecution(
        poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("A2")),
        poptorch.Phase(poptorch.Stage("B"), poptorch.Stage("B2")))
      local a = placement.assign(s, { { "A" }, { "A2" }, { "B" }, { "B2" } })
      assert.same({ 0, 1, 0, 1 }, column(a, "ipu"))
      helper.raises("AssertionError", placement.assign, s, { { "X" } })
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
