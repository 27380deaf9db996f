-- The rules of strategies as any front end asks for them. Counts are those of
-- PopART's pipelines (S = 2P - 1 stages in training) and of PopTorch's phases.
local core = require("lupine.core")
local raises = require("spec.helper").raises

local rules = core.strategy

local function place(name, stage, ipu, phase)
  return { name = name, stage = stage, ipu = ipu, phase = phase or 0 }
end

describe("the rules of a strategy", function()
  it("want a micro-batch in every stage of a pipeline", function()
    for stages = 1, 5 do
      for training, need in pairs({ [true] = 2 * stages - 1, [false] = stages }) do
        rules.check_batches("pipelined", stages, training, need)
        raises("Error", ("the pipeline has %d stages"):format(need), function()
          rules.check_batches("pipelined", stages, training, need - 1)
        end)
        for _, kind in ipairs({ "sharded", "serial_phased", "parallel_phased" }) do
          rules.check_batches(kind, stages, training, 1)
        end
      end
    end
  end)

  it("let stages of a pipeline ascend, each on one IPU", function()
    local a, b = place("block 'A'", 1, 0), place("block 'B'", 0, 1)
    raises("Error", "block 'B' %(stage 0%) comes after block 'A' %(stage 1%)", function()
      rules.check_read("pipelined", b, a)
    end)
    raises("Error", "stage 1 is on two IPUs: block 'A' on 0, block 'C' on 2", function()
      rules.check_pair("pipelined", a, place("block 'C'", 1, 2))
    end)
    rules.check_read("pipelined", a, b)
    rules.check_read("sharded", b, a)
    rules.check_pair("serial_phased", a, place("block 'C'", 1, 2))
  end)

  it("put parallel phases on even and odd IPUs by turns", function()
    for phase = 0, 3 do
      for stage = 0, 2 do
        local ipu = rules.default_ipu("parallel_phased", stage, phase)
        assert.equal(2 * stage + phase % 2, ipu)
        rules.check_place("parallel_phased", place("block 'A'", stage, ipu, phase))
        raises("Error", ("phase %d is on IPU %d"):format(phase, ipu + 1), function()
          rules.check_place("parallel_phased", place("block 'A'", stage, ipu + 1, phase))
        end)
        assert.equal(stage, rules.default_ipu("serial_phased", stage, phase))
      end
    end
  end)

  it("reserve IPUs", function()
    assert.same({ 3, 3 }, { rules.num_ipus(2, 1, false, false) })
    assert.same({ 4, 3 }, { rules.num_ipus(2, 1, true, true) })
    assert.same({ 0, 0 }, { rules.num_ipus(-1, 4, true, false) })
    assert.same({ 64, 64 }, { rules.num_ipus(3, 16, true, false) })
    raises("Error", "needs 3 IPUs, which is no power of two", function()
      rules.num_ipus(2, 1, true, false)
    end)
    raises("Error", "needs 65 IPUs", function()
      rules.num_ipus(64, 1, false, false)
    end)
    raises("Error", "needs 68 IPUs %(4 x 17 replicas%)", function()
      rules.num_ipus(3, 17, false, false)
    end)
  end)
end)
