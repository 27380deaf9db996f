-- The rules of strategies hold for every front end: core.plan and core.compile
-- check them. Counts are those of PopART's pipelines (S = 2P - 1 stages in
-- training) and of PopTorch's phases.
local control = require("lupine.control")
local core = require("lupine.core")
local helper = require("spec.passes.ipu.helper")
local raises = require("spec.helper").raises
local torch = require("torch")

local KINDS = { "pipelined", "sharded", "serial_phased", "parallel_phased" }

-- Adds a row to each of the model's places, {ipu, stage, phase}, in order; each
-- reads what the one before made, or x if `apart`.
local function model(places, o)
  o = o or {}
  o.declare = function(declare)
    return { declare("input", "x", nil, { 4, 8 }), declare("parameter", "w", torch.ones(8)) }
  end
  return helper.step(function(inputs, place)
    local h, out = inputs[1], {}
    for i, at in ipairs(places) do
      place(at[1], at[2], nil, at[3])
      h = torch.relu((o.apart and inputs[1] or h) * (inputs[2] + i))
      out[i] = h
    end
    if o.train then
      return helper.loss(h)
    end
    return table.unpack(o.apart and out or { h })
  end, o)
end

local function stages(n)
  local places = {}
  for i = 1, n do
    places[i] = { i - 1, i - 1 }
  end
  return places
end

describe("a pipeline", function()
  it("must have a micro-batch for every stage", function()
    for n = 2, 5 do
      for train, need in pairs({ [true] = 2 * n - 1, [false] = n }) do
        local function of(count)
          return model(stages(n), { train = train, accumulation = train and count or 1,
            device_iterations = train and 1 or count })
        end
        assert.equal(n, #helper.simulate(of(need)).stages)
        local step = of(need - 1)
        local what = train and "gradient_accumulation" or "device_iterations"
        raises("Error", ("the pipeline has %d stages.*: %s must be at least %d, got %d"):format(
          need, what, need, need - 1), function()
            core.plan(step, {})
          end)
        for _, kind in ipairs({ "sharded", "serial_phased" }) do
          assert.equal(n, #helper.simulate(step, { strategy = kind }).stages)
        end
      end
    end
  end)

  it("needs none on one IPU, where it starts on IPU 0", function()
    assert.equal(1, #helper.simulate(model({ { 0, 0 }, { 0, 1 } })).stages)
    raises("Error", "at least 2, got 1; the first is IPU 0, the model starts on IPU 3", function()
      helper.simulate(model({ { 3, 3 } }))
    end)
    assert.equal(1, #helper.simulate(model({ { 3, 3 } }, { device_iterations = 2 })).stages)
  end)

  it("is refused when it is compiled, too", function()
    local trace = core.trace()
    local x = trace:declare("input", "x", nil, { 2 }, torch.float32)
    local step = trace:step({ trace:run(false, function()
      trace:origin({ block = "A", ipu = 0, stage = 0 })
      local h = x + 1
      trace:origin({ block = "B", ipu = 1, stage = 1 })
      return h * 2
    end) })
    raises("Error", "at least 2, got 1", function()
      core.compile(step, { device_iterations = 1, gradient_accumulation = 1, replicas = 1,
        mean = false, system = {}, host = {} })
    end)
  end)

  it("has stages that ascend in the order in which they read each other", function()
    local back = { { 0, 0 }, { 1, 1 }, { 0, 0 } }
    local e = raises("Error", "stage ids must ascend in the order of execution", function()
      helper.simulate(model(back, { device_iterations = 9 }))
    end)
    assert.matches("of block 'B0' (stage 0, IPU 0) reads what operator ", e.message, 1, true)
    assert.matches("rules_spec.lua:%d+%) of block 'B1' %(stage 1, IPU 1%) makes", e.message)
    local apart = model(back, { device_iterations = 2, apart = true })
    assert.equal(2, #helper.simulate(apart).stages)
    assert.equal(3, #helper.simulate(model(back), { strategy = "sharded" }).stages)
  end)

  it("has each stage on one IPU", function()
    local places = { { 0, 1 }, { 2, 1 } }
    raises("Error", "stage 1 is on two IPUs: operator .* of block 'B1' on 0, operator .* on 2",
      function()
        helper.simulate(model(places, { device_iterations = 9 }))
      end)
    assert.equal(2, #helper.simulate(model(places), { strategy = "sharded" }).stages)
  end)
end)

describe("phases", function()
  it("that are parallel lie on even and odd IPUs by turns", function()
    for phase = 0, 3 do
      for stage = 0, 2 do
        local ipu = core.strategy.default_ipu("parallel_phased", stage, phase)
        assert.equal(2 * stage + phase % 2, ipu)
        assert.equal(stage, core.strategy.default_ipu("serial_phased", stage, phase))
        local options = { strategy = "parallel_phased" }
        helper.simulate(model({ { ipu, stage, phase } }), options)
        raises("Error", ("block 'B%d': phase %d is on IPU %d, but"):format(stage, phase, ipu + 1),
          function()
            helper.simulate(model({ { ipu + 1, stage, phase } }), options)
          end)
      end
    end
  end)

  it("keep tensors where their strategy can", function()
    local most = { pipelined = 0, sharded = 0, serial_phased = 3, parallel_phased = 1 }
    local step = model({ { 0, 0, 0 } })
    for _, kind in ipairs(KINDS) do
      for liveness = 0, 3 do
        local options = { strategy = kind, liveness = liveness }
        if liveness <= most[kind] then
          helper.simulate(step, options)
        else
          raises("Error", ("liveness: expected 0..%d with the strategy %s, got %d"):format(
            most[kind], kind, liveness), function()
              core.plan(step, options)
            end)
        end
      end
    end
  end)

  it("alone have a backward phase of their own", function()
    local step = model({ { 0, 0, 0 } }, { train = true })
    for _, kind in ipairs(KINDS) do
      local options = { strategy = kind, separate_backward = true }
      if kind:find("phased") then
        helper.simulate(step, options)
      else
        raises("Error", "separate_backward: expected false with the strategy " .. kind, function()
          core.plan(step, options)
        end)
      end
    end
  end)
end)

describe("IPUs", function()
  local function reserved(ipus, replicas, options)
    options = options or {}
    options.strategy = "sharded"
    return helper.simulate(model({ { ipus - 1, 0 } }, { replicas = replicas }),
      options).reserved_ipus
  end

  it("are reserved for all replicas", function()
    assert.equal(3, reserved(3, 1))
    assert.equal(6, reserved(3, 2))
    assert.equal(64, reserved(4, 16, { power_of_two = true }))
    assert.equal(4, reserved(3, 1, { power_of_two = true, round_ipus = true }))
    raises("Error", "needs 3 IPUs, which is no power of two: 4 would", function()
      reserved(3, 1, { power_of_two = true })
    end)
  end)

  it("are 1,024 at most", function()
    assert.equal(1024, reserved(4, 256))
    raises("Error", "needs 1028 IPUs %(4 x 257 replicas%), one process can use 1024", function()
      reserved(4, 257)
    end)
    raises("Error", "needs 2048 IPUs", function()
      reserved(1, 2048)
    end)
  end)

  it("are none for a model that computes nothing", function()
    local step = helper.step(function(inputs) return inputs[1] end, { replicas = 3,
      declare = function(declare) return { declare("input", "x", nil, { 4 }) } end })
    assert.equal(0, helper.simulate(step, { power_of_two = true }).reserved_ipus)
  end)
end)

describe("tiles for input and output", function()
  it("leave one to compute", function()
    for tiles, most in pairs({ [0] = 1471, [8] = 7 }) do
      local step = model({ { 0, 0 } })
      core.plan(step, { tiles = tiles, io_tiles = most })
      raises("ValueError", ("io_tiles: expected 0..%d, got %d"):format(most, most + 1), function()
        core.plan(step, { tiles = tiles, io_tiles = most + 1 })
      end)
    end
  end)
end)

describe("counts", function()
  it("that leave 64 bits are refused, by name", function()
    local step = helper.chain(2, { train = true, accumulation = 8 })
    for _, case in ipairs({
      { "OverflowError", { accumulation = 1 << 56 }, "updates of 72057594037927936 micro" },
      { "OverflowError", { output_slices = 1 << 60 }, "more cycles or samples" },
      { "ValueError", { accumulation = 1 << 62 }, "accumulation: 4611686018427387904" },
      { "ValueError", { host_sync = 1 << 61 }, "host_sync: expected .*1000000000000 cycles" },
      { "ValueError", { host_sync = -2 }, "host_sync: expected .* got .2$" },
    }) do
      raises(case[1], case[3], function()
        core.plan(step, case[2])
      end)
    end
    local r = helper.simulate(step, { accumulation = 1 << 40 })
    assert.equal(16 << 40, r.samples)
  end)

  it("of a loop name the operator", function()
    local endless = helper.step(function(inputs, place)
      place(0, 0)
      return control.loop(1 << 30, function(x)
        return control.loop(1 << 30, function(y) return torch.relu(y) end, { x })[1]
      end, { inputs[1] })[1]
    end, { declare = function(declare) return { declare("input", "x", nil, { 4 }) } end })
    raises("OverflowError", "operator loop %(.*rules_spec.lua:%d+%)", function()
      core.plan(endless, {})
    end)
  end)

  it("of groups that read the same rows divide the replicas", function()
    local step = model({ { 0, 0 } }, { replicas = 4 })
    assert.equal(2 * 4, helper.simulate(step, { input_groups = 2 }).samples)
    raises("ValueError", "input_groups: expected a divisor of the 4 replicas, got 3", function()
      core.plan(step, { input_groups = 3 })
    end)
  end)
end)
