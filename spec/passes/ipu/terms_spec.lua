-- Every term of the simulator's cycles and bytes once, worked out by hand from
-- the formulas and figures named in runtime/cost and runtime/arch: Mk2 with 1472
-- tiles, 1.33 GHz, 252 cycles a step, 600 a sync with others, 20.2 GB/s to the
-- host. [1472, 240] floats are 240 on every tile, 40 a worker.
local helper = require("spec.passes.ipu.helper")
local torch = require("torch")

local T, STEP, GLOBAL = 1472, 252, 600
local BYTES = T * 240 * 4

local relu = 11 + 9 + 6 * (17 + 20 * 3) -- three cycles for two floats
local bias = 11 + 6 * (26 + 12 + 3 * 20) -- a row of 120 vectors, 20 a worker
local bias_in = 240 * 4 / 8 -- over the bus of a pair of tiles

local function declarations(list)
  return function(declare)
    local inputs = {}
    for i, d in ipairs(list) do
      inputs[i] = declare(table.unpack(d))
    end
    return inputs
  end
end

-- The report of y = f(x, …).
local function simulate(f, list, options)
  return helper.simulate(helper.step(function(inputs, place)
    place(0)
    return f(table.unpack(inputs))
  end, { declare = declarations(list) }), options)
end

local X = { "input", "x", nil, { T, 240 } }
local ROW = { "buffer", "row", torch.ones(240) }

local function entries(row, kind)
  local t = {}
  for _, e in ipairs(row.entries) do
    if e.kind == kind then
      t[#t + 1] = e
    end
  end
  return t
end

local function host_cycles(bytes)
  return math.ceil(bytes / 20.2e9 * 1.33e9)
end

describe("the cycles of a row", function()
  it("are computing, exchange, syncs and the bytes that come and go", function()
    local r = simulate(function(x, b) return torch.relu(x) + b end, { X, ROW })
    local row = r.schedule[1]
    assert.equal(relu + bias, row.compute)
    assert.equal(bias_in, row.exchange)
    assert.equal(2 * STEP + GLOBAL, row.sync)
    assert.equal(2 * host_cycles(BYTES), row.host)
    assert.equal(relu + bias + bias_in + 2 * STEP + GLOBAL + 2 * host_cycles(BYTES), row.cycles)
    assert.equal(row.cycles, r.cycles)
    for kind, sync in pairs({ host_in = GLOBAL, host_out = 0 }) do -- the first waits
      local list = entries(row, kind)
      assert.equal(1, #list)
      assert.equal(BYTES, list[1].bytes)
      assert.equal(host_cycles(BYTES) + sync, list[1].cycles)
    end
  end)

  it("count every stream by its own bytes", function()
    local r = simulate(function(x, y)
      return x:sum(1), (x + y):to(torch.float16)
    end, { X, { "input", "y", nil, { 240 } } })
    local row = r.schedule[1]
    assert.equal(BYTES + 240 * 4, entries(row, "host_in")[1].bytes)
    assert.equal(T * 4 + BYTES / 2, entries(row, "host_out")[1].bytes)
  end)

  it("share the host's link by bytes: a short transfer delays a long one little", function()
    local few = 240 * 4
    local step = helper.step(function(inputs, place)
      place(0)
      local h = inputs[1]:relu()
      place(1)
      return h + inputs[2]
    end, { device_iterations = 4, declare = declarations({ X, { "input", "y", nil, { 240 } } }) })
    local list = {}
    for _, row in ipairs(helper.simulate(step).schedule) do
      local now = entries(row, "host_in")
      list = #now > #list and now or list
    end
    local cycles = {}
    for _, e in ipairs(list) do
      cycles[e.bytes] = e.cycles
    end
    assert.equal(host_cycles(BYTES + few) + GLOBAL, cycles[BYTES])
    assert.equal(host_cycles(2 * few) + GLOBAL, cycles[few])
  end)

  it("include a sync with other IPUs where one sends, of all in a pipeline once", function()
    local step = helper.step(function(inputs, place)
      local h = inputs[1]
      for ipu = 0, 2 do
        place(ipu)
        h = h:relu()
      end
      return h
    end, { device_iterations = 4, declare = declarations({ X }) })
    local syncs = {}
    for i, row in ipairs(helper.simulate(step, { synthetic_data = true }).schedule) do
      syncs[i] = row.sync
      assert.equal(#entries(row, "copy") > 0 and STEP + GLOBAL or STEP, row.sync, i)
    end
    assert.same({ STEP + GLOBAL, STEP + GLOBAL, STEP + GLOBAL, STEP + GLOBAL, STEP }, syncs)
  end)

  it("include the exchange of the update", function()
    local step = helper.step(function(inputs, place)
      place(0)
      return helper.loss(inputs[1] * inputs[2])
    end, { train = true, declare = declarations({ X, { "parameter", "w", torch.ones(T, 240) },
      { "parameter", "row", torch.ones(240) } }), rules = function(at)
      local w = at["parameter w"]
      return { { op = "mul", param = w, inputs = { "grad", at["parameter row"] },
        outputs = { w } } }
    end })
    local row = helper.rows(helper.simulate(step), "update")[1]
    assert.equal(bias, row.compute)
    assert.equal(bias_in, row.exchange)
    assert.equal(STEP, row.sync)
    assert.equal(bias + bias_in + STEP, row.cycles)
  end)
end)

describe("replicas", function()
  local function declared() return declarations({ X, { "parameter", "w", torch.ones(T, 240) } }) end

  it("share the link of their machine, four IPUs at most", function()
    for replicas, rivals in pairs({ 1, 2, [4] = 4, [8] = 4 }) do
      local step = helper.step(function(inputs, place)
        place(0)
        return torch.relu(inputs[1])
      end, { replicas = replicas, declare = declarations({ X }) })
      assert.equal(2 * host_cycles(rivals * BYTES), helper.simulate(step).schedule[1].host)
    end
  end)

  it("scatter the sum of sharded gradients: half of what all of it costs", function()
    local function collective(weight)
      local step = helper.step(function(inputs, place)
        place(0)
        return helper.loss(inputs[1] * inputs[2])
      end, { train = true, replicas = 2, declare = declared() })
      return helper.rows(helper.simulate(step, { weight = weight }), "update")[1].collective
    end
    -- each sends a half over 64 GB/s and adds what comes, two floats a cycle
    local moved, added = math.ceil(BYTES / 2 / 64e9 * 1.33e9), 240 / 2 / 2
    assert.equal(moved + GLOBAL + added,
      collective({ on_chip = true, sharded = true, min_sharded = 16 }))
    assert.near(2 * (moved + GLOBAL) + added, collective(), 1)
  end)
end)

describe("the bytes of a tile", function()
  -- a run entry, pointers and a word of sizes; one message out, three words in
  local UNARY, BROADCAST, MESSAGES = 4 + 2 * 4 + 4, 4 + 3 * 4 + 4, 4 * (1 + 3)
  local STACK = 6 * 0x200 + 0x80
  local LOOP, ROWS = 384, 512 -- code, runtime/cost/codelets.def
  -- six instructions a step, two a call; 960 bytes of a tile come in four packets, a header and
  -- two instructions each, and go likewise
  local function control(steps, calls) return 4 * (6 * steps + 2 * calls) end
  local HOST = 2 * (control(1, 0) + 4 * (8 + 2 * 4))

  it("are code once a codelet, vertices and messages once for equal work", function()
    local r = simulate(function(x, b)
      return torch.relu(torch.relu(x) + b)
    end, { X, ROW })
    local c = r.memory[0].categories
    assert.equal(T * (UNARY + BROADCAST), c.vertex_state)
    assert.equal(T * MESSAGES, c.exchange_code)
    assert.equal(T * (LOOP + LOOP + ROWS), c.vertex_code)
    assert.equal(T * control(2, 3), c.control_code)
    assert.equal(T * HOST, c.host_exchange_code)
    assert.equal(0, c.global_exchange_code)
    assert.equal(T * STACK, c.stack)
    assert.equal(240 * 4, c.buffers)
    assert.equal(2 * BYTES, c.activations)
  end)

  it("are those of the fullest tile, by category", function()
    local m = simulate(function(x, b) return x + b end, { X, ROW }).memory[0]
    local c = m.categories
    assert.equal(T * 240 * 4, c.temporary) -- the row on every tile
    assert.equal(2 * BYTES + c.temporary, m.not_always_live)
    local code = MESSAGES + LOOP + ROWS + control(1, 1) + HOST
    assert.equal(code, m.code)
    assert.equal(T * (BROADCAST + code + STACK) + 240 * 4, m.always_live)
    -- a vector of the row lies on each of the first tiles: 32 elements, 128 bytes
    assert.equal(BROADCAST + code + STACK + 128 + 3 * 240 * 4, m.max_tile)
    -- data and result of an operation with a row lie in different elements of 16 KiB
    assert.equal(16384 + 240 * 4, m.max_tile_including_gaps)
  end)

  it("have no gaps where operands may lie together", function()
    local m = simulate(function(x) return x + x:exp() end, { X }).memory[0]
    assert.equal(m.max_tile, m.max_tile_including_gaps)
  end)

  it("have the partials of a product above the standard region", function()
    local m = simulate(torch.matmul, { { "input", "x", nil, { 32, 32 } },
      { "parameter", "w", torch.ones(32, 48) } }, { tiles = 1 }).memory[0]
    assert.equal(32 * 48 * 4, m.categories.weights)
    assert.is_true(m.max_tile < 212992)
    assert.equal(212992 + 32 * 48 * 4, m.max_tile_including_gaps)
  end)

  it("are parameters, state, accumulators and hyper-parameters by their kind", function()
    local step = helper.step(function(inputs, place)
      place(0)
      return helper.loss(inputs[1] * inputs[2] + inputs[3])
    end, { train = true, accumulation = 2,
      declare = declarations({ X, { "parameter", "w", torch.ones(T, 240) },
        { "parameter", "b", torch.ones(240) }, { "buffer", "unread", torch.ones(7) } }),
      rules = function(at, step)
        local w, b = at["parameter w"], at["parameter b"]
        local m = step:add_var("state", "m", torch.zeros(T, 240), w)
        local rate = step:add_var("hyper", "rate", torch.tensor(0.1))
        return { { op = "add", param = w, inputs = { m, "grad" }, outputs = { m } },
          { op = "mul", param = b, inputs = { "grad", rate }, outputs = { b } } }
      end })
    local c = helper.simulate(step).memory[0].categories
    assert.equal(BYTES + 240 * 4, c.weights)
    assert.equal(BYTES + 240 * 4, c.accumulators)
    assert.equal(BYTES, c.optimizer_state)
    assert.equal(4 + 7 * 4, c.buffers)
    assert.equal(0, c.stash)
  end)

  it("are kept for as long as a view of a view of them is read", function()
    local c = simulate(function(x, other)
      local view = torch.relu(x)[{ torch.slice(0, T // 2) }]:t()
      local a = torch.relu(other)
      local b = other * 2
      return a, b, view + 1
    end, { X, { "input", "other", nil, { T, 240 } } }).memory[0].categories
    -- the last entry: what the view looks at, a, b, and half of that again
    assert.equal(3 * BYTES + BYTES // 2, c.activations)
  end)

  describe("of a buffer that forward writes", function()
    local B = { "buffer", "b", torch.ones(T, 240) }

    it("are the variable's alone while its old value is read before", function()
      local c = simulate(function(x, b)
        local y = torch.relu(x) + b
        b:mul_(0.5)
        return y
      end, { X, B }).memory[0].categories
      assert.equal(BYTES, c.buffers)
      assert.equal(2 * BYTES, c.activations) -- x and what follows in one place
    end)

    it("are those of a copy as well where it is read after the new one is made", function()
      local c = simulate(function(x, b)
        local new = x * 2
        local y = new * b + b
        b:copy_(new)
        return y
      end, { X, B }).memory[0].categories
      assert.equal(BYTES, c.buffers)
      assert.equal(2 * BYTES, c.activations) -- x and the old b, then y and the old b
    end)

    it("are those of a copy where its operator cannot write over what it reads", function()
      local indices = { "input", "i", nil, { T }, torch.int32 }
      local function activations(new, shape)
        local b = { "buffer", "b", torch.ones(table.unpack(shape or { T, 240 })) }
        return simulate(function(x, i, stand_in)
          stand_in:copy_(new(stand_in, x, i))
          return torch.relu(x) -- over x
        end, { { "input", "x", nil, shape or { T, 240 } }, indices, b })
          .memory[0].categories.activations
      end
      -- x, and the indices while they are read
      assert.equal(BYTES + T * 4, activations(function(b, x, i) return b:index_add(0, i, x) end))
      assert.equal(BYTES, activations(function(b, x) return x * b end))
      -- x and the old b
      assert.equal(2 * BYTES + T * 4,
        activations(function(b, x, i) return x:index_add(0, i, b) end))
      assert.equal(2 * BYTES + T * 4,
        activations(function(b, _, i) return b:index_add(0, i, b) end))
      assert.equal(2 * BYTES, activations(function(b) return b:flip({ 0 }) end))
      local square = { 240, 240 }
      assert.equal(2 * 240 * 240 * 4, activations(function(b) return b * b:t() end, square))
      assert.equal(240 * 240 * 4, activations(function(b) return b * b end, square))
    end)
  end)
end)
