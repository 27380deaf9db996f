local helper = require("spec.passes.ipu.helper")
local torch = require("torch")

-- Cycles of the loop's compute, slot by slot: in slot t the forward pass of
-- stage i works on micro-batch t - i and its backward pass on micro-batch
-- t - (2N - 2 - i); a slot lasts as long as its slowest IPU.
local function loop_cycles(r, micro_batches)
  local n, total = #r.stages, 0
  for t = 0, micro_batches + 2 * n - 3 do
    local slowest = 0
    for i, s in ipairs(r.stages) do
      local f, b = t - (i - 1), t - (2 * n - 1 - i)
      local cycles = (f >= 0 and f < micro_batches and s.forward_cycles or 0)
        + (b >= 0 and b < micro_batches and s.backward_cycles or 0)
      slowest = math.max(slowest, cycles)
    end
    total = total + slowest
  end
  return total
end

describe("the pipeline's schedule", function()
  for _, case in ipairs({ { 2, 3 }, { 2, 8 }, { 3, 5 }, { 3, 12 }, { 4, 7 }, { 4, 20 } }) do
    local n, g = case[1], case[2]
    it(("fills, runs and flushes %d stages with %d micro-batches"):format(n, g), function()
      local r = helper.simulate(helper.chain(n, { train = true, accumulation = g }))
      assert.equal(n, #r.stages)
      assert.equal(2 * n - 2, #helper.rows(r, "fill"))
      assert.equal(2 * n - 2, #helper.rows(r, "flush"))
      local steady = helper.rows(r, "steady")
      assert.equal(1, #steady)
      assert.equal(g - (2 * n - 2), steady[1].count)
      assert.equal(2 * n - 2, steady[1].first)
      local computes = 0
      for _, e in ipairs(steady[1].entries) do
        computes = computes + (e.kind == "compute" and 1 or 0)
      end
      assert.equal(2 * n, computes)
      assert.equal(1, #helper.rows(r, "update"))
    end)

    it(("is as busy as %d stages can be with %d micro-batches"):format(n, g), function()
      local r = helper.simulate(helper.chain(n, { train = true, accumulation = g }))
      local busy = 0
      for _, s in ipairs(r.stages) do
        busy = busy + s.forward_cycles + s.backward_cycles
      end
      local want = g * busy / (n * loop_cycles(r, g))
      assert.near(want, r.pipeline_efficiency, 1e-12)
    end)
  end

  it("adds gradients only where there is more than one micro-batch", function()
    local step = helper.chain(1, { train = true, accumulation = 8 })
    local function idle(accumulation)
      local n = 0
      for _, node in ipairs(helper.simulate(step, { accumulation = accumulation }):nodes()) do
        n = n + (node.operator == "add" and node.backward and node.cycles == 0 and 1 or 0)
      end
      return n
    end
    assert.equal(1, idle(1)) -- the accumulator's
    assert.equal(0, idle(2))
  end)

  it("reaches G / (G + N - 1) when stages are equal", function()
    for _, case in ipairs({ { 2, 4 }, { 3, 10 }, { 4, 64 } }) do
      local n, g = case[1], case[2]
      local r = helper.simulate(helper.chain(n, { device_iterations = g }))
      assert.near(g / (g + n - 1), r.pipeline_efficiency, 1e-12)
      assert.equal(n - 1, #helper.rows(r, "fill"))
      assert.equal(g - n + 1, helper.rows(r, "steady")[1].count)
    end
  end)

  it("fills and flushes for every weight update, but once a call in inference", function()
    local one = helper.simulate(helper.chain(3, { train = true, accumulation = 6 }))
    local many = helper.simulate(helper.chain(3,
      { train = true, accumulation = 6, device_iterations = 7 }))
    assert.equal(7, many.loops)
    assert.equal(7 * one.cycles, many.cycles)
    local inference = helper.simulate(helper.chain(3, { device_iterations = 42 }))
    assert.equal(1, inference.loops)
    assert.equal(42, inference.micro_batches)
  end)

  it("stashes 2 (N - 1 - i) + 1 micro-batches of stage i", function()
    local r = helper.simulate(helper.chain(4, { train = true, accumulation = 8 }))
    assert.same({ 7, 5, 3 }, { r.stages[1].stash_depth, r.stages[2].stash_depth,
      r.stages[3].stash_depth })
  end)

  it("adds up: rows, their parts, samples", function()
    local r = helper.simulate(helper.chain(3,
      { train = true, accumulation = 9, device_iterations = 2, replicas = 2 }))
    local total = 0
    for _, row in ipairs(r.schedule) do
      assert.is_true(row.cycles > 0)
      assert.equal(row.cycles, row.compute + row.exchange + row.sync + row.copy + row.host
        + row.streaming + row.collective)
      total = total + row.count * row.cycles
    end
    assert.equal(2 * total, r.cycles)
    assert.equal(16 * 9 * 2 * 2, r.samples)
    assert.near(r.cycles / r.clock_hz, r.seconds, 1e-12)
    assert.near(r.samples / r.seconds, r.samples_per_second, 1e-6)
  end)

  it("copies what clips all gradients once to each IPU", function()
    local step = helper.chain(4, { ipus = { 0, 0, 1, 1 }, train = true, accumulation = 4,
      rules = function(at, step)
        local lr, most = step:add_var("hyper", "lr", torch.tensor(1.0)),
          step:add_var("hyper", "most", torch.tensor(1.0))
        local rules = {}
        for i = 1, 4 do
          local w = at["parameter w" .. i]
          rules[i] = { op = "sgd_step", param = w, inputs = { w, "grad", false, lr },
            outputs = { w }, max_norm = most }
        end
        return rules
      end })
    local moved = { [0] = {}, {} }
    for _, entry in ipairs(helper.rows(helper.simulate(step), "update")[1].entries) do
      if entry.kind == "copy" then
        table.insert(moved[entry.ipu], entry.bytes)
      end
    end
    -- two sums of squares, and the rate that they leave
    assert.same({ [0] = { 4 }, { 4, 4 } }, moved)
  end)

  it("adds up the gradient of a weight that stages of one IPU share where it is made", function()
    local step = helper.step(function(inputs, place)
      local h = inputs[1]
      for i, ipu in ipairs({ 0, 1, 0 }) do
        place(ipu, i - 1)
        h = torch.matmul(h, inputs[ipu + 2]):tanh()
      end
      return helper.loss(h)
    end, { train = true, accumulation = 6, declare = function(declare)
      return { declare("input", "x", nil, { 2, 64 }),
        declare("parameter", "tied", torch.ones(64, 64)),
        declare("parameter", "w", torch.ones(64, 64)) }
    end })
    for _, strategy in ipairs({ "pipelined", "sharded" }) do
      local r = helper.simulate(step, { strategy = strategy })
      for _, row in ipairs(r.schedule) do
        for _, entry in ipairs(row.entries) do
          -- activations and their gradients, both ways, but no weight's
          assert.is_true(entry.kind ~= "copy" or entry.bytes <= 2 * 2 * 64 * 4)
        end
      end
      assert.equal(2 * 64 * 64 * 4, r.memory[0].categories.accumulators
        + r.memory[1].categories.accumulators)
    end
  end)

  it("merges neighbours on one IPU into one stage", function()
    local r = helper.simulate(helper.chain(4, { ipus = { 0, 0, 1, 1 }, device_iterations = 4 }))
    assert.equal(2, #r.stages)
    assert.is_true(r.pipelined)
    local alone = helper.simulate(helper.chain(3, { ipus = { 0, 0, 0 }, device_iterations = 4 }))
    assert.equal(1, #alone.stages)
    assert.is_false(alone.pipelined)
  end)

  it("loads weights for each pass: those of a slot are of different micro-batches", function()
    local r = helper.simulate(helper.chain(2, { train = true, accumulation = 8 }),
      { recompute = "none", weight = { on_chip = false, min_off_chip = 2 } })
    local loads = {}
    for _, e in ipairs(helper.rows(r, "steady")[1].entries) do
      loads[e.ipu] = e.kind == "load" and e.bytes or loads[e.ipu]
    end
    -- the first stage's backward pass needs none: x wants no gradient
    assert.same({ [0] = 64 * 64 * 4, 2 * 64 * 64 * 4 }, loads)
  end)

  it("recomputes all stages but the last", function()
    local r = helper.simulate(helper.chain(3, { train = true, accumulation = 6 }))
    assert.equal(r.stages[1].forward_cycles, r.stages[1].recompute_cycles)
    assert.equal(r.stages[2].forward_cycles, r.stages[2].recompute_cycles)
    assert.equal(0, r.stages[3].recompute_cycles)
    local kept = helper.simulate(helper.chain(3, { train = true, accumulation = 6 }),
      { recompute = "none" })
    assert.equal(0, kept.stages[1].recompute_cycles)
    assert.is_true(kept.memory[0].categories.stash > r.memory[0].categories.stash)
  end)
end)

describe("markers", function()
  local core = require("lupine.core")
  local TRAIN = { train = true, accumulation = 6 }

  local function simulate(mark)
    local o = {}
    for k, v in pairs(TRAIN) do
      o[k] = v
    end
    o.layer = function(h, w)
      return torch.tanh(torch.matmul(mark(torch.tanh(torch.matmul(h, w))), w))
    end
    return helper.simulate(helper.chain(2, o))
  end

  it("recomputationCheckpoint stashes its tensor in place of making it again", function()
    local plain = simulate(function(x)
      return x
    end)
    local marked = simulate(core.forms.internal.recomputation_checkpoint)
    assert.is_true(marked.stages[1].recompute_cycles < plain.stages[1].recompute_cycles)
    local depth, bytes = 3, 16 * 64 * 4
    assert.equal(plain.memory[0].categories.stash + depth * bytes,
      marked.memory[0].categories.stash)
    -- of the last stage, what lies before its last checkpoint is made again
    assert.equal(0, plain.stages[2].recompute_cycles)
  end)

  it("set_available_memory bounds the scratch of the product before it", function()
    local function product(proportion)
      local step = helper.step(function(inputs)
        local y = torch.matmul(inputs[1], inputs[2])
        return core.forms.internal.set_available_memory(y, proportion)
      end, { declare = function(declare)
        return { declare("input", "x", nil, { 512, 1024 }),
          declare("input", "y", nil, { 1024, 1024 }) }
      end })
      return helper.simulate(step).memory[0].categories.temporary
    end
    assert.is_true(product(0.01) < product(0.9))
  end)
end)

describe("the efficiency of a pipeline", function()
  -- Equal layers, a stage each; all of them need the gradient of their input.
  local function simulate(stages, accumulation)
    local step = helper.step(function(inputs, place)
      place(0)
      local h = inputs[1] * inputs[2]
      for i = 1, stages do
        place(i - 1)
        h = torch.relu(torch.matmul(h, inputs[2 + i]))
      end
      return helper.loss(h)
    end, { train = true, accumulation = accumulation, declare = function(declare)
      local list = { declare("input", "x", nil, { 256, 1024 }),
        declare("parameter", "s", torch.ones(1)) }
      for i = 1, stages do
        list[2 + i] = declare("parameter", "w" .. i, torch.zeros(1024, 1024))
      end
      return list
    end })
    return helper.simulate(step, { recompute = "none" })
  end

  -- What the stages compute, by the longest.
  local function balance(r)
    local sum, most = 0, 0
    for _, s in ipairs(r.stages) do
      local cycles = s.forward_cycles + s.backward_cycles
      sum, most = sum + cycles, math.max(most, cycles)
    end
    return sum / (#r.stages * most)
  end

  it("is G / (G + P - 1), less what its stages differ by", function()
    for _, stages in ipairs({ 2, 4, 8 }) do
      for _, g in ipairs({ 2 * stages - 1, 16, 512 }) do
        local r = simulate(stages, g)
        assert.is_true(balance(r) > 0.95)
        local want = g / (g + stages - 1) * balance(r)
        assert.near(1, r.pipeline_efficiency / want, 0.01, ("%d %d"):format(stages, g))
      end
    end
  end)
end)

describe("the sharded schedule", function()
  it("runs one stage after another: 1 / N busy", function()
    local r = helper.simulate(helper.chain(4, { train = true, accumulation = 5 }),
      { strategy = "sharded" })
    assert.near(1 / 4, r.pipeline_efficiency, 1e-12)
    local useful = 0
    for i, stage in ipairs(r.stages) do
      assert.equal(i - 1, stage.stage)
      useful = useful + stage.forward_cycles + stage.backward_cycles - stage.recompute_cycles
    end
    local updates = 0
    for _, row in ipairs(helper.rows(r, "update")) do
      for _, e in ipairs(row.entries) do
        updates = updates + (e.kind == "update" and e.cycles or 0)
      end
    end
    assert.near((useful * r.micro_batches + updates) * r.loops / (4 * r.cycles),
      r.wall_efficiency, 1e-12)
    local rows, order, sum = helper.rows(r, "phase"), {}, 0
    assert.equal(1, #rows)
    assert.equal(5, rows[1].count)
    for _, e in ipairs(rows[1].entries) do
      if e.kind == "compute" then
        order[#order + 1] = (e.backward and "b" or "f") .. e.stage
        sum = sum + e.cycles
      end
    end
    assert.equal("f0 f1 f2 f3 b3 b2 b1 b0", table.concat(order, " "))
    assert.is_true(rows[1].cycles >= sum)
  end)

  it("is slower than the pipeline of the same model", function()
    local o = { train = true, accumulation = 32, width = 512, batch = 64 }
    local pipelined = helper.simulate(helper.chain(4, o), { recompute = "none" })
    local sharded = helper.simulate(helper.chain(4, o), { strategy = "sharded" })
    assert.is_true(sharded.cycles > 2 * pipelined.cycles)
  end)

  it("may return to an IPU, a pipeline may not return to a stage", function()
    local function back(strategy)
      local step = helper.step(function(inputs, place)
        local h = inputs[1]
        for _, ipu in ipairs({ 0, 1, 0 }) do
          place(ipu)
          h = h:exp()
        end
        return h
      end, { declare = function(declare)
        return { declare("input", "x", nil, { 8, 8 }) }
      end })
      return helper.simulate(step, { strategy = strategy })
    end
    assert.equal(3, #back("sharded").stages)
    require("spec.helper").raises("Error", "stage ids must ascend", function()
      back("pipelined")
    end)
  end)
end)

describe("stages of one phase", function()
  -- Halves in two stages of every phase, which swap after each of the layers
  -- of a phase.
  local function swapping(layers, strategy)
    local step = helper.step(function(inputs, place)
      local h = { inputs[1], inputs[4] }
      for phase = 0, 1 do
        for _ = 1, layers do
          local out = {}
          for side = 0, 1 do
            place(2 * side + phase, side, ("p%d_%d"):format(phase, side), phase)
            out[side] = torch.relu(torch.matmul(h[side + 1], inputs[2 + side]))
          end
          h = { out[1], out[0] }
        end
      end
      return helper.loss(h[1] + h[2])
    end, { train = true, accumulation = 3, declare = function(declare)
      return { declare("input", "x", nil, { 16, 64 }),
        declare("parameter", "a", torch.ones(64, 64)),
        declare("parameter", "b", torch.ones(64, 64)),
        declare("input", "y", nil, { 16, 64 }) }
    end })
    return helper.simulate(step, { strategy = strategy })
  end

  it("exchange values, and a stage comes back", function()
    for _, layers in ipairs({ 1, 2, 3 }) do
      local r = swapping(layers, "parallel_phased")
      local ipus = {}
      for i, s in ipairs(r.stages) do
        ipus[i] = ("%d:%d"):format(s.phase, s.ipu)
      end
      local want = ("0:0 0:2 "):rep(layers) .. ("1:1 1:3 "):rep(layers)
      -- the sum waits for both halves
      assert.equal(want .. "1:3", table.concat(ipus, " "))
    end
  end)

  it("work at the same time between their exchanges", function()
    local layer = helper.simulate(helper.chain(1, {})).schedule[1].compute
    for layers = 1, 3 do
      local r = swapping(layers, "parallel_phased")
      assert.equal(layers * layer, helper.rows(r, "phase")[1].compute)
    end
  end)

  it("may not wait for a later phase", function()
    require("spec.helper").raises("Error", "phases must ascend in the order of execution",
      function()
        local step = helper.step(function(inputs, place)
          place(0, 0, nil, 1)
          local h = inputs[1]:exp()
          place(0, 0, nil, 0)
          return h:exp()
        end, { declare = function(declare)
          return { declare("input", "x", nil, { 8, 8 }) }
        end })
        helper.simulate(step, { strategy = "serial_phased" })
      end)
  end)
end)

describe("the phased schedule", function()
  -- Bytes that each row loads.
  local function loaded(r)
    local loads = {}
    for i, row in ipairs(helper.rows(r, "phase")) do
      loads[i] = 0
      for _, e in ipairs(row.entries) do
        loads[i] = loads[i] + (e.kind == "load" and e.bytes or 0)
      end
    end
    return loads
  end

  it("has a row a phase, and turns in the last one", function()
    local o = { train = true, accumulation = 3, ipus = { 0, 0, 0 }, phases = true }
    local r = helper.simulate(helper.chain(3, o), { strategy = "serial_phased" })
    assert.equal(5, #helper.rows(r, "phase"))
    for _, option in ipairs({ { separate_backward = true }, { liveness = 1 } }) do
      option.strategy = "serial_phased"
      assert.equal(6, #helper.rows(helper.simulate(helper.chain(3, o), option), "phase"))
    end
  end)

  it("loads weights that are off chip before each phase, in the row before", function()
    local o = { train = true, accumulation = 3, ipus = { 0, 0, 0 }, phases = true }
    local off = { on_chip = false, min_off_chip = 2 }
    local on = helper.simulate(helper.chain(3, o), { strategy = "serial_phased" })
    local r = helper.simulate(helper.chain(3, o), { strategy = "serial_phased", weight = off })
    assert.equal(0, helper.rows(on, "phase")[1].streaming)
    assert.same({ 2 * 64 * 64 * 4, 64 * 64 * 4, 64 * 64 * 4, 0, 0 }, loaded(r))
    assert.is_true(r.cycles > on.cycles)
    assert.equal(0, r.memory[0].categories.weights)
    assert.equal(3 * 64 * 64 * 4, on.memory[0].categories.weights)
  end)

  it("loads the weights of the phase in which it turns once", function()
    local BYTES = 64 * 64 * 4
    -- the first layer's backward pass needs no weights: x wants no gradient
    for separate, want in pairs({ [false] = { 2 * BYTES, 0, 0 },
      [true] = { 2 * BYTES, BYTES, 0, 0 } }) do
      local r = helper.simulate(helper.chain(2, { train = true, ipus = { 0, 0 }, phases = true }),
        { strategy = "serial_phased", separate_backward = separate,
          weight = { on_chip = false, min_off_chip = 2 } })
      assert.same(want, loaded(r))
    end
  end)

  it("hides what the next phase loads by I/O tiles where phases follow at once", function()
    local off = { on_chip = false, min_off_chip = 2, io_load = true }
    for liveness, hidden in pairs({ [0] = true, true, false, false }) do
      local r = helper.simulate(helper.chain(2, { ipus = { 0, 0 }, phases = true }),
        { strategy = "serial_phased", liveness = liveness, weight = off, io_tiles = 32 })
      local rows, streamed = helper.rows(r, "phase"), math.ceil(64 * 64 * 4 / 20e9 * 1.33e9)
      local work = rows[1].compute + rows[1].exchange + rows[1].sync
      assert.is_true(hidden and rows[2].streaming == 0 or rows[2].streaming >= streamed)
      local over = rows[1].streaming - streamed
      assert.is_true(not hidden or over == 0 or over >= streamed - work)
    end
  end)

  it("hides by I/O tiles what the location of its kind says", function()
    local function streaming(weights, activations)
      local r = helper.simulate(helper.chain(2, { train = true, ipus = { 0, 0 }, phases = true,
        width = 128 }), { strategy = "serial_phased", liveness = 1, io_tiles = 32,
        weight = { on_chip = false, min_off_chip = 2, io_load = weights },
        activation = { on_chip = false, min_off_chip = 2, io_load = activations } })
      local sum = 0
      for _, row in ipairs(helper.rows(r, "phase")) do
        sum = sum + row.streaming
      end
      return sum
    end
    local none, weights, activations = streaming(), streaming(true), streaming(false, true)
    assert.is_true(weights < none and activations < none)
    local both = streaming(true, true)
    assert.is_true(both < weights and both < activations)
  end)

  it("streams beside computing in parallel phases", function()
    local off = { on_chip = false, min_off_chip = 2 }
    local function streaming(strategy, liveness)
      local r = helper.simulate(helper.chain(4, { train = true, ipus = { 0, 1, 0, 1 },
        phases = true, width = 128 }), { strategy = strategy, weight = off, activation = off,
        liveness = liveness })
      local sum = 0
      for _, row in ipairs(helper.rows(r, "phase")) do
        sum = sum + row.streaming
      end
      return sum
    end
    assert.is_true(streaming("parallel_phased", 1) < streaming("serial_phased", 1))
    assert.is_true(streaming("serial_phased", 1) > streaming("serial_phased", 0))
    assert.is_true(streaming("serial_phased", 3) > streaming("serial_phased", 1))
  end)
end)

describe("a stage that the model returns to", function()
  local SHAPE = { 16, 240 }

  local function simulate(f, train)
    return helper.simulate(helper.step(function(inputs, place)
      place(0)
      return f(inputs[1], inputs[2], inputs[3], place)
    end, { train = train, declare = function(declare)
      return { declare("input", "x", nil, SHAPE),
        declare("parameter", "w", torch.ones(table.unpack(SHAPE))),
        declare("parameter", "v", torch.ones(table.unpack(SHAPE))) }
    end }), { strategy = "sharded" })
  end

  local function cycles(r, pass)
    local list = {}
    for i, s in ipairs(r.stages) do
      list[i] = s[pass .. "_cycles"]
    end
    return list
  end

  -- Of one operator.
  local function alone(f)
    return simulate(function(x, w) return f(x, w) end).stages[1].forward_cycles
  end

  it("has what reads another stage's values in the round of these", function()
    local r = simulate(function(x, w, _, place)
      local doubled = w * 2
      place(1)
      local h = torch.tanh(x)
      place(0)
      h = torch.exp(h)
      place(1)
      -- of parameters alone, but those come from the other stage's first round
      return h + torch.tanh(doubled)
    end)
    assert.same({ alone(function(x) return x * 2 end),
      2 * alone(function(x) return torch.tanh(x) end),
      alone(function(x) return torch.exp(x) end),
      alone(function(x, w) return x + w end) }, cycles(r, "forward"))
  end)

  it("has gradients of its first round there, though they could be had before", function()
    local r = simulate(function(x, w, v, place)
      local early = torch.tanh(x * w)
      local h = x + 1
      place(1)
      h = h * v
      place(0)
      h = torch.exp(h)
      place(1)
      return helper.loss(h + early)
    end, true)
    local binary = alone(function(x, w) return x * w end)
    local backward = cycles(r, "backward")
    assert.equal(4, #backward)
    -- of tanh and of w; of v; of exp
    assert.same({ 2 * binary, binary, binary }, { table.unpack(backward, 1, 3) })
  end)
end)
