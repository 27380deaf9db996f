-- What execution strategies and locations make of streaming memory: when tensors
-- move, what that hides, and what it takes on the chip, on I/O tiles and beyond.
local helper = require("spec.passes.ipu.helper")
local memory = require("lupine.report.memory")
local report = require("lupine.report")
local spec_helper = require("spec.helper")
local tables = require("lupine.base.tables")
local torch = require("torch")

local OFF = { on_chip = false, min_off_chip = 2 }
local BY_IO = { on_chip = false, min_off_chip = 2, io_load = true, io_store = true }
local WIDTH, LAYERS = 256, 4
local BYTES = WIDTH * WIDTH * 4

-- n phases of four layers on the IPUs in turn; o: accumulation, replicas, ipus, batch, skip (the
-- last phase adds what the first one makes).
local function phases(n, o)
  o = o or {}
  local ipus = o.ipus or { 0 }
  return helper.step(function(inputs, place)
    local h, first = inputs[1], nil
    for i = 1, n do
      place(ipus[(i - 1) % #ipus + 1], i - 1, nil, i - 1)
      for k = 1, o.skip and i == n and 0 or LAYERS do
        h = torch.relu(torch.matmul(h, inputs[1 + (i - 1) * LAYERS + k]))
      end
      first = first or h
    end
    return helper.loss(o.skip and h + first or h)
  end, { train = true, accumulation = o.accumulation or 4, replicas = o.replicas,
    declare = function(declare)
      local list = { declare("input", "x", nil, { o.batch or 16, WIDTH }) }
      for i = 1, n * LAYERS do
        list[i + 1] = declare("parameter", "w" .. i, torch.zeros(WIDTH, WIDTH))
      end
      return list
    end })
end

local function simulate(step, o, location)
  local options = { strategy = "serial_phased" }
  for _, kind in ipairs({ "activation", "weight", "optimizer", "accumulator" }) do
    options[kind] = location or OFF
  end
  for k, v in pairs(o) do
    options[k] = v
  end
  return helper.simulate(step, options)
end

local function streaming(r)
  local sum = 0
  for _, row in ipairs(helper.rows(r, "phase")) do
    sum = sum + row.streaming * row.count
  end
  return sum
end

-- Bytes that the rows of a turn load and store.
local function moved(r)
  local sum = 0
  for _, row in ipairs(helper.rows(r, "phase")) do
    for _, e in ipairs(row.entries) do
      if e.kind == "load" or e.kind == "store" then
        sum = sum + e.bytes * row.count
      end
    end
  end
  return sum
end

describe("liveness of serial phases", function()
  local step, list = phases(4), {}
  for liveness = 0, 3 do
    list[liveness] = simulate(step, { liveness = liveness })
  end

  it("takes the more time the more leaves the chip, and the less overlaps", function()
    for liveness = 1, 3 do
      assert.is_true(list[liveness].cycles > list[liveness - 1].cycles, tostring(liveness))
    end
    assert.equal(moved(list[1]), moved(list[2]))
  end)

  it("takes the less memory", function()
    for liveness = 1, 2 do
      assert.is_true(list[liveness].memory[0].not_always_live
        < list[liveness - 1].memory[0].not_always_live, tostring(liveness))
    end
    local skip = phases(4, { skip = true, batch = 1024 })
    assert.is_true(simulate(skip, { liveness = 3 }).memory[0].not_always_live
      < simulate(skip, { liveness = 2 }).memory[0].not_always_live)
  end)

  it("goes both ways at once where phases follow at once", function()
    local function overlaps(r)
      for _, row in ipairs(helper.rows(r, "phase")) do
        local load, store
        for _, e in ipairs(row.entries) do
          load = e.kind == "load" and row.compute < e.start and e or load
          store = e.kind == "store" and e or store
        end
        if load and store and load.start == store.start then
          return true
        end
      end
      return false
    end
    assert.is_true(overlaps(list[1]))
    assert.is_false(overlaps(list[2]))
    assert.is_false(overlaps(list[3]))
  end)
end)

describe("micro-batches that pass a phase together", function()
  local step = phases(4, { accumulation = 8 })

  it("have its weights loaded once", function()
    local alone, four, all = simulate(step, { liveness = 1 }),
      simulate(step, { liveness = 1, batch_serialization = 4 }),
      simulate(step, { liveness = 1, batch_serialization = 8 })
    assert.is_true(streaming(four) < streaming(alone) / 2)
    assert.is_true(streaming(all) < streaming(four))
    local weights = 0
    for _, e in ipairs(helper.rows(all, "phase")[2].entries) do
      weights = weights + (e.kind == "load" and e.bytes or 0)
    end
    assert.equal(0, weights) -- the second micro-batch of the first phase
    assert.equal(64, #helper.rows(all, "phase")) -- four forward phases, four backward
    assert.equal(2, helper.rows(four, "phase")[1].count)
  end)

  it("keep what their backward passes need in streaming memory", function()
    local one, four = simulate(step, { liveness = 1 }),
      simulate(step, { liveness = 1, batch_serialization = 4 })
    assert.is_true(four.memory[0].off_chip > one.memory[0].off_chip)
  end)

  it("are as many as divide those of an update, in phases alone", function()
    spec_helper.raises("Error", "batch_serialization: 8 micro%-batches, .* no multiple of 3",
      function()
        simulate(step, { batch_serialization = 3 })
      end)
    spec_helper.raises("Error", "batch_serialization: .* sharded, which has no phases, got 2",
      function()
        simulate(step, { strategy = "sharded", batch_serialization = 2 })
      end)
    spec_helper.raises("ValueError", "batch_serialization: expected 0 or more, got %-1",
      function()
        simulate(step, { batch_serialization = -1 })
      end)
  end)
end)

describe("sharded execution", function()
  it("loads weights and accumulators once for the micro-batches of an update", function()
    local function loaded(strategy, accumulation)
      local step, bytes = phases(4, { accumulation = accumulation, ipus = { 0, 1, 2, 3 } }), 0
      local r = helper.simulate(step, { strategy = strategy, weight = OFF, accumulator = OFF })
      for _, row in ipairs(r.schedule) do
        for _, e in ipairs(row.kind ~= "update" and row.entries or {}) do
          bytes = bytes + (e.kind == "load" and e.bytes * row.count or 0)
        end
      end
      return bytes, r
    end
    local all = 4 * LAYERS * BYTES
    for _, accumulation in ipairs({ 1, 2, 8 }) do
      local bytes, r = loaded("sharded", accumulation)
      assert.equal((accumulation > 1 and 2 or 1) * all, bytes) -- one needs no sums
      assert.is_true(r.memory[1].not_always_live > LAYERS * BYTES)
    end
    assert.is_true(loaded("pipelined", 8) > 8 * all)
  end)
end)

describe("parallel phases", function()
  it("load on one group of IPUs while the other computes", function()
    local step = phases(6, { ipus = { 0, 1 } })
    for liveness = 0, 1 do
      local serial = simulate(step, { liveness = liveness })
      local parallel = simulate(step, { strategy = "parallel_phased", liveness = liveness })
      assert.equal(moved(serial), moved(parallel))
      assert.is_true(streaming(parallel) < streaming(serial))
      local _, row = next(helper.rows(parallel, "phase"), 1)
      for _, e in ipairs(row.entries) do -- the second phase is on IPU 1
        assert.is_true(not e.beside or e.ipu == 0)
      end
    end
  end)

  it("keep what the last phase reads, though it left the chip after another", function()
    local step = helper.step(function(inputs, place)
      place(0, 0, nil, 0)
      local h = torch.tanh(torch.matmul(inputs[1], inputs[2]))
      place(1, 1, nil, 1)
      local kept = torch.matmul(h, inputs[2]) -- which both phases of IPU 1 need backward
      h = torch.sin(kept)
      place(0, 2, nil, 2)
      h = torch.tanh(torch.matmul(h, inputs[2]))
      place(1, 3, nil, 3)
      return helper.loss(torch.matmul(h, inputs[2]) * kept)
    end, { train = true, accumulation = 4, declare = function(declare)
      return { declare("input", "x", nil, { 1, 4 }), declare("parameter", "w", torch.eye(4)) }
    end })
    local at
    for i, v in ipairs(step:vars()) do
      at = v.role == "input" and i or at
    end
    local x = torch.cos(torch.arange(16) * 0.7):reshape(4, 4)
    local o = { strategy = "parallel_phased", activation = OFF, recompute = "none" }
    local want = helper.replayed_bits(step, o, { [at] = x }, { order = "micro_batches" })
    for serial = 1, 2 do
      o.batch_serialization = serial
      assert.equal(want, (helper.replayed_bits(step, o, { [at] = x })))
    end
  end)

  it("hide a phase's weights if it computes long enough", function()
    local step = helper.chain(6, { ipus = { 0, 1, 0, 1, 0, 1 }, phases = true, width = WIDTH,
      batch = 8192 })
    local r = helper.simulate(step, { strategy = "parallel_phased", weight = OFF })
    local rows = helper.rows(r, "phase")
    for i, row in ipairs(rows) do
      assert.equal(i == 1, row.streaming > 0, i) -- the first waits for its own
    end
  end)
end)

describe("I/O tiles", function()
  local step = phases(4)

  it("hold what is on its way", function()
    local r = simulate(step, { liveness = 1, io_tiles = 64 }, BY_IO)
    local most = 0
    for _, row in ipairs(helper.rows(r, "phase")) do
      local sum = 0
      for _, e in ipairs(row.entries) do
        sum = sum + (e.beside and e.bytes or 0)
      end
      most = math.max(most, sum)
    end
    assert.is_true(most >= BYTES)
    assert.equal(most, r.memory[0].io)
    local stack = r.memory[0].categories.stack // (r.tiles - 64)
    assert.equal(-(-most // 64) + stack, r.memory[0].io_tile)
    assert.is_true(r.memory[0].fits)
    assert.equal(0, simulate(step, { liveness = 2, io_tiles = 64 }, BY_IO).memory[0].io)
    assert.equal(0, simulate(step, { liveness = 1, io_tiles = 64 }, OFF).memory[0].io)
  end)

  it("make streaming cost less, and what they prefetch takes no other tile", function()
    local with = simulate(step, { liveness = 1, io_tiles = 32 }, BY_IO)
    local without = simulate(step, { liveness = 1, io_tiles = 32 }, OFF)
    assert.is_true(streaming(with) < streaming(without))
    assert.is_true(with.memory[0].not_always_live < without.memory[0].not_always_live)
  end)

  it("move from turn to turn of a weight update", function()
    local o = { liveness = 0, io_tiles = 64, activation = { on_chip = true } }
    for serial = 1, 2 do
      o.batch_serialization = serial
      local rows = helper.rows(simulate(step, o, BY_IO), "phase")
      local counts = serial == 1 and { 1, 2, 1 } or { 1, 1 }
      assert.equal(#counts * 7 * serial, #rows)
      local moves = { load = 0, store = 0 }
      for i, row in ipairs(rows) do
        assert.equal(counts[(i - 1) // (7 * serial) + 1], row.count)
        for _, e in ipairs(row.entries) do
          if moves[e.kind] and not e.beside and e.bytes >= BYTES then -- no activations
            assert.equal(e.kind == "load" and 1 or #rows, i)
            moves[e.kind] = moves[e.kind] + 1
          end
        end
      end
      assert.same({ load = 1, store = 1 }, moves)
    end
    o.batch_serialization = 4 -- the only turn
    assert.equal(28, #helper.rows(simulate(step, o, BY_IO), "phase"))
  end)

  it("that are too full are an error, or reported", function()
    local large = helper.chain(2, { ipus = { 0, 0 }, phases = true, width = 4096, batch = 4 })
    local o = { strategy = "serial_phased", io_tiles = 32, weight = BY_IO }
    spec_helper.raises("Exception",
      "Out of memory on the 32 I/O tiles of IPU 0: transfers of 67108864 bytes", function()
        helper.simulate(large, o)
      end)
    o.allow_out_of_memory = true
    assert.is_false(helper.simulate(large, o).memory[0].fits)
    o.allow_out_of_memory, o.io_tiles = nil, 192
    assert.is_true(helper.simulate(large, o).memory[0].fits)
  end)
end)

describe("weights in shares of the replicas", function()
  local SHARES = { on_chip = true, sharded = true, min_sharded = 0 }
  local BESIDE = { on_chip = true, sharded = true, min_sharded = 0, io_load = true }
  local step = helper.chain(2, { train = true, accumulation = 4, replicas = 2, width = WIDTH,
    batch = 512 })

  it("are gathered by I/O tiles while others compute", function()
    for _, strategy in ipairs({ "pipelined", "sharded" }) do
      local o = { strategy = strategy, io_tiles = 32, weight = SHARES }
      local apart = helper.simulate(step, o)
      o.weight = BESIDE
      local beside = helper.simulate(step, o)
      assert.is_true(beside.cycles < apart.cycles)
      assert.equal(0, apart.memory[0].io)
      assert.is_true(beside.memory[1].io >= BYTES)
    end
  end)

  it("take what gathering takes longer than the row computes", function()
    for _, batch in ipairs({ 1, 512 }) do
      local waited = 0
      local r = helper.simulate(helper.chain(2, { train = true, accumulation = 4, replicas = 2,
        width = WIDTH, batch = batch }), { io_tiles = 32, weight = BESIDE })
      for _, row in ipairs(r.schedule) do
        local work, gather = 0, 0
        for _, e in ipairs(row.entries) do
          work = math.max(work, e.kind == "compute" and e.cycles or 0)
          gather = math.max(gather, e.kind == "collective" and e.beside and e.cycles or 0)
        end
        if work > 0 then
          assert.equal(math.max(0, gather - work), row.collective)
          waited = waited + row.collective
        end
      end
      assert.equal(batch == 1, waited > 0)
    end
  end)

  -- Bytes of collectives of the phases' rows, by row, alone and beside computing.
  local function gathered(r)
    local alone, beside = {}, {}
    for i, row in ipairs(helper.rows(r, "phase")) do
      alone[i], beside[i] = 0, 0
      for _, e in ipairs(row.entries) do
        if e.kind == "collective" then
          local list = e.beside and beside or alone
          list[i] = list[i] + e.bytes
        end
      end
    end
    return alone, beside
  end

  it("come a phase ahead by I/O tiles, but for the first of an update", function()
    local phased = phases(4, { replicas = 2, batch = 4096 })
    for _, serial in ipairs({ 1, 2 }) do
      for _, place in ipairs({ true, false }) do -- on and off the chip
        local o = { liveness = 1, io_tiles = 64, batch_serialization = serial,
          weight = tables.with(SHARES, { on_chip = place, min_off_chip = 2 }) }
        local apart = simulate(phased, o)
        o.weight = tables.with(o.weight, { io_load = true })
        local ahead = simulate(phased, o)
        local want = gathered(apart)
        local alone, beside = gathered(ahead)
        assert.equal(8 * serial, #want)
        assert.equal(LAYERS * BYTES, want[1])
        assert.equal((serial == 1 and 3 or 2) * #want, #alone) -- first, other and last turn
        for i = 1, #alone do
          assert.equal(i == 1 and want[1] or 0, alone[i])
          assert.equal(i < #alone and want[i % #want + 1] or 0, beside[i])
        end
        assert.is_true(ahead.cycles < apart.cycles)
        assert.equal(0, apart.memory[0].io)
        assert.is_true(ahead.memory[0].io >= LAYERS * BYTES)
        assert.equal(apart.memory[0].not_always_live, ahead.memory[0].not_always_live)
      end
    end
  end)

  it("are gathered when I/O tiles have loaded them", function()
    local r = simulate(phases(4, { replicas = 2 }), { liveness = 1, io_tiles = 64,
      weight = tables.with(BY_IO, { sharded = true, min_sharded = 0 }) })
    local seen = 0
    for _, row in ipairs(helper.rows(r, "phase")) do
      local work, loaded, gather = 0, 0, 0
      for _, e in ipairs(row.entries) do
        work = math.max(work, e.kind == "compute" and e.start + e.cycles or 0)
        gather = gather + (e.kind == "collective" and e.cycles or 0)
        if e.beside and e.kind == "load" then
          loaded = math.max(loaded, e.start + e.cycles)
        elseif e.beside and e.kind == "collective" then
          assert.is_true(loaded > work and e.start >= loaded)
          seen = seen + 1
        end
      end
      assert.equal(gather, row.collective) -- it hides behind nothing
    end
    assert.equal(3 * 8 - 1, seen) -- of three turns' rows all but the first
  end)

  it("wait for their phase where nothing overlaps", function()
    local phased = phases(4, { replicas = 2 })
    local o = { liveness = 2, io_tiles = 64, weight = SHARES }
    local apart = simulate(phased, o)
    o.weight = BESIDE
    local r = simulate(phased, o)
    assert.equal(apart.cycles, r.cycles)
    assert.equal(0, r.memory[0].io)
  end)

  it("give the bits of micro-batch order", function()
    local rows = { { 0.5, 0.25, -0.5, 1 } }
    for _, strategy in ipairs({ "pipelined", "serial_phased", "parallel_phased" }) do
      for n = 1, 2 do
        local small = helper.chain(n, { train = true, accumulation = 4, replicas = 2, width = 4,
          batch = 1, phases = strategy ~= "pipelined" })
        local at
        for i, v in ipairs(small:vars()) do
          at = v.role == "input" and i or at
        end
        local x = torch.tensor(rows):repeat_interleave(8, 0)
        local want = helper.replayed_bits(small, { strategy = strategy }, { [at] = x },
          { order = "micro_batches" })
        for serial = 0, strategy == "pipelined" and 0 or 2 do
          for _, place in ipairs({ true, false }) do
            local by_io = tables.with(BESIDE, { on_chip = place, min_off_chip = 2 })
            local o = { strategy = strategy, io_tiles = 32, batch_serialization = serial,
              weight = by_io, accumulator = tables.with(BY_IO, { on_chip = place }) }
            assert.equal(want, (helper.replayed_bits(small, o, { [at] = x })))
          end
        end
      end
    end
  end)
end)

describe("streaming memory", function()
  it("has 256 GB a machine, for all replicas' IPUs of it", function()
    torch.set_default_device("meta")
    local step = helper.step(function(inputs, place)
      place(0)
      local x = inputs[1]
      return torch.matmul(x, inputs[2]:narrow(0, 0, 64)):sum()
    end, { declare = function(declare)
      return { declare("input", "x", nil, { 8, 64 }),
        declare("parameter", "w", torch.empty(1000000, 20000)) } -- 80 GB
    end })
    torch.set_default_device("cpu")
    local function fits(replicas)
      return function()
        return helper.simulate(step, { strategy = "sharded", weight = OFF, replicas = replicas,
          allow_out_of_memory = false })
      end
    end
    spec_helper.raises("Exception",
      "Out of streaming memory: the 4 IPUs of a machine need 320000000000 bytes of it, a "
      .. "machine has 256000000000", fits(4))
    local off = { strategy = "sharded", weight = OFF, replicas = 3 }
    local three, four = report.simulate(step, tables.with(off, { allow_out_of_memory = true })),
      report.simulate(step, tables.with(off, { allow_out_of_memory = true, replicas = 4 }))
    assert.equal(240000000000, three.streaming)
    assert.equal(320000000000, four.streaming)
    assert.equal(256000000000, four.streaming_limit)
    local eight = helper.simulate(helper.chain(8, { width = 64, device_iterations = 8 }),
      { weight = { on_chip = false, min_off_chip = 0 } })
    local sums = { 0, 0 } -- of two machines
    for ipu = 0, 7 do
      sums[ipu // 4 + 1] = sums[ipu // 4 + 1] + eight.memory[ipu].off_chip
    end
    assert.equal(math.max(sums[1], sums[2]), eight.streaming)
    three.memory, four.memory = {}, {} -- beside the tiles
    assert.is_true(memory.fits(three))
    assert.same({}, memory.overflows(three))
    assert.is_false(memory.fits(four))
    assert.equal("streaming", memory.overflows(four)[1].of)
    assert.equal(1.25, memory.most(four))
    assert.is_nil(report.simulate(helper.chain(1, {}), { chip = "ipu1" }).streaming_limit)
  end)
end)
