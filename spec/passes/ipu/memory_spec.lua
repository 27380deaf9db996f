local core = require("lupine.core")
local helper = require("spec.passes.ipu.helper")
local raises = require("spec.helper").raises
local torch = require("torch")

local TRAIN = { train = true, accumulation = 8 }

-- Self-attention without projections of the values: two layers over [batch,
-- time, width], scores [batch, time, time].
local function attention(o)
  local batch, time, width = 4, 128, 16
  o.declare = function(declare)
    return { declare("input", "x", nil, { batch, time, width }),
      declare("parameter", "w1", torch.ones(width, width)),
      declare("parameter", "w2", torch.ones(width, width)) }
  end
  local step = helper.step(function(inputs, place)
    local h = inputs[1]
    for i = 1, 2 do
      place(o.ipus and o.ipus[i] or 0)
      local q = torch.matmul(h, inputs[i + 1])
      local scores = torch.softmax(torch.matmul(q, h:transpose(1, 2)), -1)
      h = torch.matmul(scores, h)
    end
    return o.train and helper.loss(h) or h
  end, o)
  return step, batch * time * time * 4
end

describe("the memory of an IPU", function()
  it("holds the score matrices of both attention layers until backward", function()
    local step, scores = attention({ train = true })
    local r = helper.simulate(step)
    assert.is_true(r.memory[0].not_always_live >= 2 * scores)
    local biggest = r.memory[0].biggest[1]
    assert.equal("activations", biggest.kind)
    assert.equal(scores, biggest.bytes)
    local inference = helper.simulate((attention({})))
    assert.is_true(inference.memory[0].not_always_live >= scores)
    assert.is_true(inference.memory[0].not_always_live < r.memory[0].not_always_live)
  end)

  it("keeps the inputs of a recomputed stage in place of its score matrix", function()
    local step, scores = attention({ train = true, accumulation = 8, ipus = { 0, 1 } })
    local again = helper.simulate(step)
    local kept = helper.simulate(step, { recompute = "none" })
    assert.is_true(again.memory[0].categories.stash < scores)
    assert.is_true(kept.memory[0].categories.stash >= 3 * scores)
  end)

  it("keeps the result of an operator with effects, which happen once", function()
    local function stash(effect)
      return helper.simulate(helper.chain(2, { train = true, accumulation = 8,
        layer = function(h, w)
          h = torch.matmul(h, w):tanh()
          return (effect and core.forms.internal.abort_if(h) or h):sin()
        end }), { recompute = "all" }).memory[0].categories.stash
    end
    assert.equal(3 * 16 * 64 * 4, stash(false)) -- what comes, for three micro-batches
    assert.equal(2 * stash(false), stash(true))
  end)

  -- 4096 floats in lots of at least 128 bytes lie on 128 tiles, 1024 on 32
  it("counts parameters, accumulators and stashes byte for byte", function()
    local r = helper.simulate(helper.chain(3, TRAIN))
    for ipu = 0, 2 do
      assert.equal(64 * 64 * 4, r.memory[ipu].categories.weights)
      assert.equal(64 * 64 * 4, r.memory[ipu].categories.accumulators)
      assert.equal((5 - 2 * ipu) * (ipu < 2 and 1 or 0) * 16 * 64 * 4,
        r.memory[ipu].categories.stash)
    end
  end)

  it("has code of transfers once for equal sizes, and none for what is not moved", function()
    -- a step of 6 instructions of 4 bytes; one packet a tile: a header and 2 instructions
    local size = 1472 * (6 * 4 + 8 + 2 * 4)
    local function code(step, options)
      local c = helper.simulate(step, options).memory[0].categories
      return { c.global_exchange_code // size, c.host_exchange_code // size }
    end
    local function layers(n, replicas)
      return helper.chain(n, { train = true, ipus = { 0, 0 }, replicas = replicas })
    end
    -- gradients of replicas; the input comes, the loss goes
    assert.same({ 0, 2 }, code(layers(1, 1)))
    assert.same({ 1, 2 }, code(layers(1, 2)))
    assert.same({ 1, 2 }, code(layers(2, 2)))
    assert.same({ 1, 0 }, code(layers(2, 2), { synthetic_data = true }))
    -- the weights come for a run and for the update, and go once
    assert.same({ 0, 4 }, code(layers(1, 1), { weight = { on_chip = false } }))
  end)

  it("adds up", function()
    local r = helper.simulate(helper.chain(3, TRAIN))
    for ipu = 0, 2 do
      local m = r.memory[ipu]
      local c = m.categories
      local all = 0
      for _, bytes in pairs(c) do
        all = all + bytes
      end
      assert.equal(m.always_live, all - c.activations - c.temporary)
      assert.equal(1472 * m.code, c.vertex_code + c.control_code + c.exchange_code
        + c.global_exchange_code + c.host_exchange_code)
      assert.equal(m.not_always_live, c.activations + c.temporary)
      assert.equal(64, #m.tiles)
      local most = 0
      for _, bytes in ipairs(m.tiles) do
        most = math.max(most, bytes)
      end
      assert.equal(m.max_tile_including_gaps, most)
      assert.is_true(m.max_tile <= m.max_tile_including_gaps)
      assert.is_true(m.fits)
    end
  end)

  it("shares sharded parameters out over the replicas", function()
    local o = { train = true, accumulation = 8, replicas = 4 }
    local sharded = { on_chip = true, sharded = true, min_sharded = 16 }
    local whole = helper.simulate(helper.chain(2, o))
    local r = helper.simulate(helper.chain(2, o), { weight = sharded })
    assert.equal(whole.memory[0].categories.weights // 4, r.memory[0].categories.weights)
    local gathers = 0
    for _, e in ipairs(helper.rows(r, "steady")[1].entries) do
      gathers = gathers + (e.kind == "collective" and e.bytes or 0)
    end
    assert.equal(2 * 2 * 64 * 64 * 4, gathers) -- two IPUs, forward and backward
  end)

  it("moves accumulators off chip at the price of streaming", function()
    local on = helper.simulate(helper.chain(2, TRAIN))
    local off = helper.simulate(helper.chain(2, TRAIN),
      { accumulator = { on_chip = false, min_off_chip = 2 } })
    assert.equal(0, off.memory[0].categories.accumulators)
    assert.equal(64 * 64 * 4, off.memory[0].off_chip)
    assert.is_true(off.cycles > on.cycles)
  end)

  it("bounds the scratch of products by the available memory proportion", function()
    local o = { train = true, accumulation = 8, width = 1024, batch = 256 }
    local much = helper.simulate(helper.chain(2, o), { proportion = 0.9 })
    local little = helper.simulate(helper.chain(2, o), { proportion = 0.01 })
    assert.is_true(little.memory[0].categories.temporary < much.memory[0].categories.temporary)
    assert.is_true(little.cycles >= much.cycles)
    local second = helper.simulate(helper.chain(2, o), { proportion = { [0] = 0.9, 0.01 } })
    assert.equal(much.stages[1].forward_cycles, second.stages[1].forward_cycles)
    assert.equal(little.stages[2].forward_cycles, second.stages[2].forward_cycles)
  end)
end)

-- Counts of tensors of one size by hand. A layer h * w stashes h for the gradient
-- of w; the loss h * h keeps its operand and makes one more.
describe("the tensors that an IPU holds at its peak", function()
  local BYTES = 64 * 64 * 4

  local function simulate(forward, inputs, options, o)
    o = o or {}
    o.declare = function(declare)
      local list = {}
      for i, d in ipairs(inputs) do
        list[i] = declare(table.unpack(d))
      end
      return list
    end
    return helper.simulate(helper.step(forward, o), options).memory[0]
  end

  local function input(name, dtype) return { "input", name, nil, { 64, 64 }, dtype } end

  local function chain(o, options)
    o.train, o.accumulation, o.batch = true, 6, 64
    o.layer = function(h, w) return h * w end
    options.recompute = "none"
    local memory = helper.simulate(helper.chain(3, o), options).memory
    return math.floor(memory[0].categories.activations / BYTES) -- but for scalars of the loss
  end

  it("are of one micro-batch, in a pipeline: stashes of others are counted there", function()
    -- the last stage: its operand, its result, the square; the first stage: what it
    -- sends at the end of the slot, the gradient that came at the end of the one before
    assert.equal(5, chain({ ipus = { 0, 1, 0 } }, { strategy = "pipelined" }))
    -- one micro-batch at a time: x too, until the first stage goes back
    assert.equal(4, chain({ ipus = { 0, 1, 0 } }, { strategy = "sharded" }))
  end)

  it("are one gradient of a parameter at a time: it is added at once", function()
    for _, ipus in ipairs({ { 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 1, 1, 1 } }) do
      local r = helper.simulate(helper.chain(6, { train = true, accumulation = 4, width = 128,
        batch = 2, ipus = ipus }))
      local gradient = 128 * 128 * 4
      assert.equal(1, r.memory[0].categories.activations // gradient)
    end
  end)

  -- 32 floats lie on one tile, tensors are dealt to tiles in turn: w and its
  -- accumulator to 0 and 1, h to 2, h w to 0, its square to 1, two numbers to 2 and
  -- 0; going back 2 h w to 1, the gradient of w to 2, where h still lies
  it("stay where they are when the last stage turns", function()
    local r = helper.simulate(helper.step(function(inputs, place)
      place(0)
      local h = inputs[1]:exp()
      place(1)
      return helper.loss(h * inputs[2])
    end, { train = true, accumulation = 4, declare = function(declare)
      return { declare("input", "x", nil, { 32 }), declare("parameter", "w", torch.ones(32)) }
    end, rules = function(at) -- a scaled addition would have gaps
      local w = at["parameter w"]
      return { { op = "sub", param = w, inputs = { w, "grad" }, outputs = { w } } }
    end }), { tiles = 3 })
    local tiles = r.memory[1].tiles -- 64 classes, of which most have no tile
    local last = 2 * 64 // 3 + 1
    assert.near(2 * 32 * 4, tiles[last] - tiles[2], 16) -- but for partial sums
  end)

  it("are all stashes, in phases, wherever activations are between these", function()
    for liveness = 0, 3 do -- x, both operands, the last result, the square
      assert.equal(5, chain({ ipus = { 0, 0, 0 }, phases = true },
        { strategy = "serial_phased", liveness = liveness }))
    end
  end)

  it("are without what left the chip after an earlier phase", function()
    for liveness, count in pairs({ [0] = 3, 3, 3, 2 }) do
      local m = simulate(function(inputs, place)
        place(0, 0, nil, 0)
        local a = inputs[1]:exp()
        place(0, 0, nil, 1) -- two tensors besides a, which is not read
        local b = inputs[2]:exp() * inputs[2]:sin()
        place(0, 0, nil, 2)
        return b, a:exp()
      end, { input("x"), input("y") }, { strategy = "serial_phased", liveness = liveness })
      assert.equal(count * BYTES, m.categories.activations)
    end
  end)

  it("are without an operand whose memory the result takes over", function()
    local m = simulate(function(inputs) return inputs[1]:float():exp() end,
      { input("x", torch.float16) })
    assert.equal(1.5 * BYTES, m.categories.activations)
  end)

  it("are without the new values of variables, which are written in place", function()
    local m = simulate(function(inputs)
      return helper.loss(inputs[2]:sum() * inputs[1])
    end, { { "input", "x", nil, {} }, { "parameter", "w", torch.ones(1472, 240) } }, nil,
      { train = true, accumulation = 4 })
    -- the gradient is one number, looked at as often as w has elements
    assert.equal(1472 * 240 * 4, m.categories.accumulators)
    assert.is_true(m.not_always_live < 1472 * 240 * 4)
  end)

  it("leave the chip from so many elements on as activations are told to", function()
    for elements, off in pairs({ [64 * 64] = 3 * BYTES, -- operands, and the loss's
      [64 * 64 + 1] = 0 }) do
      local o = { train = true, accumulation = 6, batch = 64, phases = true, ipus = { 0, 0 },
        layer = function(h, w) return h * w end }
      local r = helper.simulate(helper.chain(2, o), { strategy = "serial_phased", liveness = 1,
        activation = { on_chip = false, min_off_chip = elements } })
      assert.equal(off, r.memory[0].off_chip)
    end
  end)
end)

describe("a tile that overflows", function()
  local big = { train = true, accumulation = 8, width = 512, batch = 64 }
  local few = { tiles = 4 }

  it("is an error that names IPU, bytes, values and a remedy", function()
    local e = raises("Error", "Out of memory on tile %d+ of IPU %d %(stage %d%)", function()
      helper.simulate(helper.chain(2, big), few)
    end)
    assert.equal("poplar_graph_memory_allocation_error", e.type)
    assert.matches("%d+ bytes used but tiles only have 638976 bytes of memory", e.message)
    assert.matches("w%d", e.message)
    assert.matches("Simulated remedies:\n  ", e.message)
  end)

  it("is another where code does not fit into the first region", function()
    -- Mk1 has 128 KiB: sums over rows of many tiles, of sizes that share none
    local step = helper.step(function(inputs, place)
      place(0)
      local y
      for i = 1, 10 do
        local sum = inputs[1]:narrow(0, 0, 1024 + i):sum(0)
        y = y and y + sum or sum
      end
      return y
    end, { declare = function(declare)
      return { declare("input", "x", nil, { 1100, 4096 }) }
    end })
    local e = raises("Error", "_poplar_start must be 0 not %d+ bytes", function()
      helper.simulate(step, { chip = "ipu1" })
    end)
    assert.equal("poplar_link_error", e.type)
    local code, room = e.message:match("(%d+) bytes a tile %b(), of which only the first (%d+)")
    assert.equal("131072", room)
    assert.is_table(e.remedies)
    local m = helper.simulate(step, { chip = "ipu1", allow_out_of_memory = true }).memory[0]
    assert.equal(tonumber(code), m.code)
    assert.is_false(m.fits)
    assert.is_true(m.max_tile_including_gaps < m.tile_bytes)
    assert.is_true(helper.simulate(step).memory[0].fits)
  end)

  it("is what its categories make up, tile by tile", function()
    local r = helper.simulate(helper.chain(2, { train = true, accumulation = 8, width = 96 }))
    for _, m in pairs(r.memory) do
      local most = 0
      for k = 1, #m.tiles do
        local all = 0
        for _, category in ipairs(m.tile_categories) do
          assert.is_true(category.tiles[k] <= m.categories[category.name])
          all = all + category.tiles[k]
        end
        assert.is_true(all <= m.tiles[k])
        most = math.max(most, all)
      end
      assert.equal(m.max_tile, most)
    end
  end)

  it("is only reported when that is allowed", function()
    local r = helper.simulate(helper.chain(2, big), { tiles = 4, allow_out_of_memory = true })
    assert.is_false(r.memory[0].fits)
    assert.is_true(r.memory[0].max_tile_including_gaps > 638976)
    assert.is_true(r.cycles > 0)
  end)
end)

describe("a buffer that forward writes", function()
  it("must be read and written in one stage", function()
    local step = helper.step(function(inputs, place)
      local x, b = inputs[1], inputs[2]
      place(0)
      local h = x + b
      place(1)
      b:add_(h:sum(0))
      return h
    end, { device_iterations = 2, declare = function(declare)
      return { declare("input", "x", nil, { 4, 8 }), declare("buffer", "mean", torch.zeros(8)) }
    end })
    raises("Error", "buffer 'mean' is read by stage 0 .* and written by stage 1", function()
      helper.simulate(step)
    end)
  end)
end)

describe("a parameter that two IPUs read", function()
  local BYTES = 64 * 64 * 4

  -- Layers with the weights a, b, a on IPUs 0, 1, 2.
  local function simulate(options, o)
    o = o or { train = true, accumulation = 6, device_iterations = 2 }
    o.declare = function(declare)
      return { declare("input", "x", nil, { 4, 64 }),
        declare("parameter", "a", torch.ones(64, 64)),
        declare("parameter", "b", torch.ones(64, 64)) }
    end
    return helper.simulate(helper.step(function(inputs, place)
      local h = inputs[1]
      for i, w in ipairs({ 2, 3, 2 }) do
        place(i - 1, i - 1, nil, i - 1)
        h = torch.relu(torch.matmul(h, inputs[w]))
      end
      return o.train and helper.loss(h) or h
    end, o), options)
  end

  -- Bytes that go from IPU to IPU in the rows, {[kind of row] = …}.
  local function copied(r, from, to)
    local bytes = {}
    for _, row in ipairs(r.schedule) do
      for _, e in ipairs(row.entries) do
        if e.kind == "copy" and e.ipu == (from or 0) and e.to == (to or 2) then
          bytes[row.kind] = (bytes[row.kind] or 0) + e.bytes
        end
      end
    end
    return bytes
  end

  local STRATEGIES = { "pipelined", "sharded", "serial_phased", "parallel_phased" }

  it("is held by both and copied once a weight update", function()
    for _, strategy in ipairs(STRATEGIES) do
      local r = simulate({ strategy = strategy })
      assert.same({ update = BYTES }, copied(r))
      for ipu = 0, 2 do
        assert.equal(BYTES, r.memory[ipu].categories.weights)
      end
      -- IPU 2 sums what it adds to the gradient of `a`
      assert.same({ BYTES, BYTES, BYTES }, { r.memory[0].categories.accumulators,
        r.memory[1].categories.accumulators, r.memory[2].categories.accumulators })
      local update = helper.rows(r, "update")[1]
      assert.is_true(update.copy > 0)
      assert.equal(update.cycles, update.compute + update.exchange + update.sync + update.copy)
    end
  end)

  it("sends its gradient home once, too", function()
    for _, strategy in ipairs(STRATEGIES) do
      local r = simulate({ strategy = strategy })
      assert.same({ update = BYTES }, copied(r, 2, 0))
      -- in a micro-batch nothing but the gradient of the activations
      local each = copied(r, 2, 1)
      assert.equal(4 * 64 * 4, each.steady or each.phase)
      if strategy ~= "pipelined" then
        local kept = simulate({ strategy = strategy }, { train = true, device_iterations = 2 })
        assert.equal(0, kept.memory[2].categories.accumulators)
      end
    end
  end)

  it("costs one addition an update, and as many a micro-batch as before", function()
    local function nodes(r, name)
      for _, o in ipairs(r.operators) do
        if o.name == name then
          return o.instances
        end
      end
    end
    local r = simulate({ strategy = "sharded" })
    -- a: two parts, accumulated; b: one; the square; 6 micro-batches, 2 updates
    assert.equal(4 * 6 * 2, nodes(r, "add"))
    local add = helper.simulate(helper.step(function(inputs)
      return inputs[1] + inputs[2]
    end, { declare = function(declare)
      return { declare("input", "x", nil, { 64, 64 }), declare("input", "y", nil, { 64, 64 }) }
    end })).schedule[1].compute
    local alone = helper.simulate(helper.chain(2, { train = true, accumulation = 6, batch = 4 }),
      { strategy = "sharded" })
    local update, of_one = helper.rows(r, "update")[1], helper.rows(alone, "update")[1]
    assert.equal(of_one.compute + add, update.compute)
  end)

  it("is not copied again when nothing changes it", function()
    for _, strategy in ipairs(STRATEGIES) do
      local r = simulate({ strategy = strategy }, { device_iterations = 6 })
      assert.same({}, copied(r))
      assert.equal(BYTES, r.memory[2].categories.weights)
    end
  end)

  it("comes from streaming memory for each of them when it lives there", function()
    for _, strategy in ipairs(STRATEGIES) do
      local r = simulate({ strategy = strategy,
        weight = { on_chip = false, min_off_chip = 2 } })
      assert.same({}, copied(r))
      for ipu = 0, 2 do
        assert.equal(0, r.memory[ipu].categories.weights)
        assert.equal(ipu < 2 and BYTES or 0, r.memory[ipu].off_chip)
      end
    end
  end)
end)
