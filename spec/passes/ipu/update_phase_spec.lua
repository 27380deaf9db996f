-- The weight update of phases that pass once an update: a phase of its own, whose optimizer
-- states may come with the phase before it, and whose weights go one by one or all at once
-- (PopART's optimizerStateIOSchedule and ExecutionPhaseSchedule). And how parts of a batch
-- share a phase's time (BatchSerializationBatchSchedule).
local compiled = require("spec.support.compiled")
local helper = require("spec.passes.ipu.helper")
local tables = require("lupine.base.tables")
local torch = require("torch")

local OFF = { on_chip = false, min_off_chip = 2, on_demand = true }
local AHEAD = tables.with(OFF, { on_demand = false })
local BY_IO = tables.with(AHEAD, { io_load = true, io_store = true })
local PHASES, SYNC = 4, 7000

-- Cycles of so many bytes: 20 GB/s at 1.33 GHz.
local function streamed(bytes)
  return math.ceil(bytes * 1.33e9 / 20e9)
end

-- m' = m - gradient / 2, of four weights, a phase each.
local function chain(width, o)
  local function values(i)
    return torch.sin(torch.arange(width * width) * 0.37 + i):reshape(width, width) * 0.4
  end
  return helper.chain(PHASES, tables.with({ ipus = { 0, 0, 0, 0 }, phases = true, train = true,
    width = width, weight = values, rules = function(at, step)
      local rules = {}
      for i = 1, PHASES do
        local w = at["parameter w" .. i]
        local m = step:add_var("state", "m" .. i, values(i + 5), w)
        rules[i] = { op = "sub", param = w, inputs = { m, "grad" }, outputs = { m },
          attrs = { alpha = 0.5 } }
      end
      return rules
    end }, o or {}))
end

local function simulate(step, optimizer, o)
  return helper.simulate(step, tables.with({ strategy = "serial_phased", optimizer = optimizer,
    host_sync = SYNC }, o or {}))
end

-- The last phase's row and the update's, with the bytes that each loads, beside computing too.
local function rows(r)
  local last, update = helper.rows(r, "phase"), helper.rows(r, "update")[1]
  last = last[#last]
  local function loaded(row, beside)
    local sum = 0
    for _, e in ipairs(row.entries) do
      sum = sum + (e.kind == "load" and (beside == nil or e.beside == beside) and e.bytes or 0)
    end
    return sum
  end
  return last, update, loaded(last, false), loaded(last, true), loaded(update)
end

-- From which step of the update each weight's state is there, and to which; 0: its first.
local function spans(r)
  local first, out = 0, {}
  local live = r:liveness().ipus[0]
  for i, stage in ipairs(live.stage) do
    first = stage == -1 and first == 0 and i - 1 or first
  end
  for _, s in ipairs(live.spans) do
    if s.name:find("^m%d$") then
      out[#out + 1] = { s.from - first, s.to - first }
    end
  end
  return out, #live.stage - first
end

describe("optimizer states of an update that is a phase", function()
  local WIDTH = 256
  local STATES = PHASES * WIDTH * WIDTH * 4
  local step = chain(WIDTH, { batch = 16384 })

  it("come when the update needs them, or with the last phase before it", function()
    local late = simulate(step, OFF)
    local last, update, alone, beside, own = rows(late)
    assert.same({ 0, 0, STATES }, { alone, beside, own })
    assert.same({ 0, 2 * streamed(STATES) }, { last.streaming, update.streaming })

    local ahead = simulate(step, AHEAD)
    last, update, alone, beside, own = rows(ahead)
    assert.same({ STATES, 0, 0 }, { alone, beside, own })
    assert.same({ streamed(STATES), streamed(STATES) }, { last.streaming, update.streaming })
    assert.equal(0, ahead.on_demand.optimizer)

    local io = simulate(step, BY_IO, { io_tiles = 64 })
    last, update, alone, beside, own = rows(io)
    assert.same({ 0, STATES, 0 }, { alone, beside, own })
    assert.same({ 0, streamed(STATES) }, { last.streaming, update.streaming })
    assert.equal(STATES, io.memory[0].io)
  end)

  it("come as those of their kind do, where one's own location does not say when", function()
    for _, kind in ipairs({ OFF, AHEAD, { on_chip = false, min_off_chip = 2 } }) do
      local own = {}
      for i = 1, PHASES do
        own["m" .. i] = { on_chip = false, min_off_chip = 2 }
      end
      local want, got = simulate(step, kind), simulate(step, tables.with(kind, { on_chip = true }),
        { own = own })
      assert.same(table.pack(select(3, rows(want))), table.pack(select(3, rows(got))))
      own.m1.on_demand = got.on_demand.optimizer == 0
      assert.not_same(spans(got), (spans(simulate(step, kind, { own = own }))))
    end
  end)

  it("are there as long as that: one by one, or all at once", function()
    local one_by_one, n = spans(simulate(step, OFF))
    assert.equal(PHASES, n)
    assert.same({ { 0, 0 }, { 1, 1 }, { 2, 2 }, { 3, 3 } }, one_by_one)
    assert.same({ { -1, 0 }, { -1, 1 }, { -1, 2 }, { -1, 3 } }, (spans(simulate(step, AHEAD))))
    local all = { update_order = "batch" }
    assert.same({ { 0, 3 }, { 0, 3 }, { 0, 3 }, { 0, 3 } }, (spans(simulate(step, OFF, all))))
    assert.same({ { -1, 3 }, { -1, 3 }, { -1, 3 }, { -1, 3 } },
      (spans(simulate(step, AHEAD, all))))
  end)

  it("wait for the host weight by weight, or once", function()
    local _, each = rows(simulate(step, OFF))
    local _, once = rows(simulate(step, OFF, { update_order = "batch" }))
    assert.equal((PHASES - 1) * SYNC, each.sync - once.sync)
    assert.equal(each.streaming, once.streaming)
  end)

  it("come one by one where an update has several turns, and without phases", function()
    local several = chain(WIDTH, { batch = 16, accumulation = 2 })
    for _, optimizer in ipairs({ OFF, AHEAD }) do
      for _, strategy in ipairs({ "serial_phased", "sharded" }) do
        local of = strategy == "sharded" and step or several
        local r = simulate(of, optimizer, { strategy = strategy, update_order = "batch" })
        assert.same({ { 0, 0 }, { 1, 1 }, { 2, 2 }, { 3, 3 } }, (spans(r)))
        local _, update, _, _, own = rows(r)
        assert.equal(STATES, own)
        assert.equal(2 * streamed(STATES), update.streaming)
      end
    end
  end)
end)

describe("parts that pass a phase", function()
  it("load for themselves, or I/O tiles load for the next one", function()
    local SERIAL, ROWS, WIDTH = 4, 4096, 256
    local step = chain(WIDTH, { batch = ROWS, accumulation = SERIAL })
    local seen = {}
    local function parts(order, activation)
      return simulate(step, {}, { activation = activation, io_tiles = 64, part_order = order,
        batch_serialization = SERIAL, recompute = "none", optimizer = { on_chip = true },
        liveness = 1 })
    end
    for _, order in ipairs({ "in_turn", "overlap_io", "overlap_compute" }) do
      local r = parts(order, BY_IO)
      assert.equal(order, r.part_order)
      local of = { alone = 0, ahead = 0, beside = 0 }
      for _, row in ipairs(helper.rows(r, "phase")) do
        local computed = 0
        for _, e in ipairs(row.entries) do
          computed = e.kind == "compute" and e.start + e.cycles or computed
        end
        for _, e in ipairs(row.entries) do
          if e.kind == "load" then
            local how = e.beside and "beside" or e.start >= computed and "ahead" or "alone"
            of[how] = of[how] + e.bytes
          end
        end
      end
      seen[order] = of
      seen[order .. " all"] = of.alone + of.ahead + of.beside
    end
    assert.equal(0, seen.in_turn.ahead)
    assert.equal(0, seen.overlap_compute.ahead)
    -- three of four parts have one before them
    assert.equal(seen.overlap_compute.beside - seen.in_turn.beside, seen.overlap_io.ahead)
    assert.equal(3, seen.overlap_io.ahead // seen.in_turn.beside)
    assert.equal(seen["in_turn all"], seen["overlap_io all"])
    -- streamingmemory_overlap_test: so they do where the first part's come on demand
    local late = tables.with(BY_IO, { on_demand = true })
    assert.is_true(parts("overlap_compute", late).cycles < 0.9 * parts("in_turn", late).cycles)
    assert.equal(seen["in_turn all"], seen["overlap_compute all"])
  end)
end)

describe("the replay of an update that is a phase", function()
  it("gives the bits of micro-batch order", function()
    local WIDTH, ROWS = 8, 2
    for replicas = 1, 2 do
      for _, ipus in ipairs({ { 0, 0, 0, 0 }, { 0, 1, 0, 1 } }) do
        for accumulation = 1, 4, 3 do
          local step = chain(WIDTH, { ipus = ipus, batch = ROWS, replicas = replicas,
            accumulation = accumulation, device_iterations = 2 })
          local rows_of = ROWS * accumulation * replicas * 2
          local inputs = { [compiled.vars(step)["input x"]] =
            torch.sin(torch.arange(rows_of * WIDTH)):reshape(rows_of, WIDTH) }
          local want = helper.replayed_bits(step, { strategy = "sharded" }, inputs,
            { order = "micro_batches" })
          for case = 0, 47 do
            local io, place = case & 1 > 0, case & 2 > 0 and BY_IO or AHEAD
            local o = { strategy = ipus[2] == 1 and "parallel_phased" or "serial_phased",
              io_tiles = io and 32 or 0, update_order = case & 4 > 0 and "batch" or "interleaving",
              optimizer = tables.with(place, { sharded = case & 8 > 0, min_sharded = 2 }),
              batch_serialization = accumulation, liveness = 1,
              activation = tables.with(BY_IO, { on_demand = case % 7 == 0 }),
              part_order = ({ "in_turn", "overlap_io", "overlap_compute" })[case // 16 + 1],
              weight = case % 3 == 0 and BY_IO or nil, accumulator = case % 5 == 0 and OFF or nil }
            assert.equal(want, (helper.replayed_bits(step, o, inputs)))
          end
        end
      end
    end
  end)
end)
