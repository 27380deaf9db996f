-- When the tensors of phased execution move that are off the chip: ahead of their phase and
-- behind it, or with it (PopART's ExecutionPhaseIOSchedule), in time and memory.
local helper = require("spec.passes.ipu.helper")
local tables = require("lupine.base.tables")
local torch = require("torch")

local OFF = { on_chip = false, min_off_chip = 2 }
local BY_IO = tables.with(OFF, { io_load = true, io_store = true })
local ON = { on_chip = true }
local KINDS = { "activation", "weight", "optimizer", "accumulator" }
local WIDTH, PHASES = 256, 4
local BYTES = WIDTH * WIDTH * 4

-- Cycles of so many bytes: 20 GB/s at 1.33 GHz.
local function streamed(bytes)
  return math.ceil(bytes * 1.33e9 / 20e9)
end

local function chain(o)
  local ipus = {}
  for i = 1, PHASES do
    ipus[i] = 0
  end
  return helper.chain(PHASES, tables.with({ ipus = ipus, phases = true, width = WIDTH }, o))
end

-- kinds: the ones off the chip, "weight" or "weight accumulator"; on_demand: these of them.
local function simulate(step, kinds, on_demand, o)
  local options = tables.with({ strategy = "serial_phased" }, o or {})
  for _, kind in ipairs(KINDS) do
    local at = options.io_tiles and BY_IO or OFF
    options[kind] = kinds:find(kind, 1, true)
      and tables.with(at, { on_demand = on_demand:find(kind, 1, true) ~= nil }) or ON
  end
  return helper.simulate(step, options)
end

-- Bytes of a turn's rows and cycles that are not hidden, over all turns.
local function moved(r)
  local bytes, beside, cycles = 0, 0, 0
  for _, row in ipairs(helper.rows(r, "phase")) do
    cycles = cycles + row.count * row.streaming
    for _, e in ipairs(row.entries) do
      if e.kind == "load" or e.kind == "store" then
        bytes = bytes + row.count * e.bytes
        beside = beside + (e.beside and row.count * e.bytes or 0)
      end
    end
  end
  return bytes, cycles, beside
end

local function spans(r, name)
  local out = {}
  for _, s in ipairs(r:liveness().ipus[0].spans) do
    out[#out + 1] = s.name == name and s or nil
  end
  return out
end

describe("weights on demand", function()
  it("are loaded by the phase that reads them", function()
    local step = chain({ batch = 16 })
    local ahead, late = simulate(step, "weight", ""), simulate(step, "weight", "weight")
    for i, row in ipairs(helper.rows(late, "phase")) do
      assert.equal(streamed(BYTES), row.streaming)
      local compute
      for _, e in ipairs(row.entries) do
        compute = e.kind == "compute" and e.start or compute
      end
      for _, e in ipairs(row.entries) do
        assert.is_true(e.kind ~= "load" or e.start + e.cycles <= compute, i)
      end
    end
    -- the first row loads for the second as well, the last one nothing
    local got = {}
    for i, row in ipairs(helper.rows(ahead, "phase")) do
      got[i] = row.streaming
    end
    assert.same({ 2 * streamed(BYTES), streamed(BYTES), streamed(BYTES), 0 }, got)
  end)

  it("take no memory beside those of the phase before", function()
    local step = chain({ batch = 16 })
    for _, on_demand in ipairs({ "", "weight" }) do
      local r = simulate(step, "weight", on_demand)
      local steps = 3 -- of a phase: a product, a relu, its end
      for i = 2, PHASES do
        local span = spans(r, "w" .. i)[1]
        assert.equal((i - 1) * steps - (on_demand == "" and 1 or 0), span.from)
      end
    end
    local function at_end(on_demand) -- of the first phase
      return simulate(step, "weight", on_demand):liveness().ipus[0].bytes[3]
    end
    assert.equal(BYTES, at_end("") - at_end("weight"))
  end)

  it("hide behind nothing, though I/O tiles load them", function()
    local updates = 2
    local step = chain({ batch = 8192, device_iterations = updates })
    local ahead = simulate(step, "weight", "", { io_tiles = 64 })
    local late = simulate(step, "weight", "weight", { io_tiles = 64 })
    local bytes, cycles, beside = moved(ahead)
    assert.same({ updates * PHASES * BYTES, streamed(BYTES), bytes - BYTES },
      { bytes, cycles, beside })
    bytes, cycles, beside = moved(late)
    assert.same({ updates * PHASES * BYTES, updates * PHASES * streamed(BYTES), 0 },
      { bytes, cycles, beside })
    assert.equal((updates * PHASES - 1) * streamed(BYTES), late.cycles - ahead.cycles)
    assert.same({ BYTES, 0 }, { ahead.memory[0].io, late.memory[0].io })
  end)

  it("are gathered by the phase that reads them", function()
    local step = chain({ batch = 4096, replicas = 2 })
    local function gathered(on_demand)
      local out = {}
      for i, row in ipairs(helper.rows(helper.simulate(step, { strategy = "serial_phased",
        io_tiles = 64, weight = { on_chip = true, sharded = true, min_sharded = 0,
          io_load = true, on_demand = on_demand } }), "phase")) do
        out[i] = ""
        for _, e in ipairs(row.entries) do
          if e.kind == "collective" then
            out[i] = out[i] .. (e.beside and "beside " or "alone ") .. e.bytes // BYTES .. ";"
          end
        end
      end
      return out
    end
    assert.same({ "alone 1;beside 1;", "beside 1;", "beside 1;", "" }, gathered(false))
    assert.same({ "alone 1;", "alone 1;", "alone 1;", "alone 1;" }, gathered(true))
  end)
end)

describe("accumulators and activations on demand", function()
  local MICRO, ROWS = 3, 4096
  local step = chain({ batch = ROWS, train = true, accumulation = MICRO })

  it("move as many bytes, all of them alone", function()
    -- a phase's sum comes and goes; weights come for both passes, but the last phase's, where
    -- one follows the other, and the first's, of which there is no gradient of inputs
    local want = { accumulator = 2 * PHASES * BYTES, weight = (2 * PHASES - 2) * BYTES }
    for kind, bytes in pairs(want) do
      for _, on_demand in ipairs({ "", kind }) do
        local all, cycles, beside = moved(simulate(step, kind, on_demand, { io_tiles = 64 }))
        assert.equal(MICRO * bytes, all)
        assert.equal(on_demand == "", beside > 0)
        if beside == 0 then
          assert.equal(MICRO * bytes // BYTES * streamed(BYTES), cycles)
        end
      end
    end
  end)

  it("of activations as well", function()
    local rows = streamed(ROWS * WIDTH * 4)
    local ahead = simulate(step, "activation", "", { io_tiles = 64, liveness = 1,
      recompute = "none" })
    local late = simulate(step, "activation", "activation", { io_tiles = 64, liveness = 1,
      recompute = "none" })
    local bytes, cycles, beside = moved(ahead)
    local same, alone, none = moved(late)
    assert.equal(bytes, same)
    assert.is_true(beside > bytes / 2)
    assert.equal(0, none)
    assert.is_true(alone > cycles)
    -- a row's values in one way are a transfer, rounded once
    assert.is_true(math.abs(alone - bytes // (ROWS * WIDTH * 4) * rows) <= MICRO * 4 * PHASES)
  end)

  it("each by itself: what is not on demand is as it was", function()
    local _, both = moved(simulate(step, "weight accumulator", "", { io_tiles = 64 }))
    local _, sums = moved(simulate(step, "weight accumulator", "weight", { io_tiles = 64 }))
    local _, weights = moved(simulate(step, "weight accumulator", "accumulator",
      { io_tiles = 64 }))
    local _, none = moved(simulate(step, "weight accumulator", "weight accumulator",
      { io_tiles = 64 }))
    assert.is_true(both < sums and both < weights and sums < none and weights < none)
  end)

  it("are told by the report, of phases alone", function()
    local r = simulate(step, "weight", "weight")
    assert.same({ activation = 0, weight = 1, optimizer = 0, accumulator = 0 },
      tables.with(r.on_demand, { optimizer = 0 }))
    assert.matches("Not moved ahead of its phase: +weight", r:summary())
    assert.same({}, simulate(step, "weight", "weight", { strategy = "sharded" }).on_demand)
  end)
end)

describe("activations that stay near", function()
  it("leave the chip where more than two phases lie between their passes", function()
    local step = chain({ batch = 16, train = true, accumulation = 2 })
    local function off_chip(near)
      return simulate(step, "activation", "", { near = near, recompute = "none" })
        .memory[0].off_chip
    end
    assert.equal(0, off_chip(false))
    -- phases 0 and 1, whose backward phases are 6 and 5: what they read and make
    assert.equal(2 * 2 * 16 * WIDTH * 4, off_chip(true))
  end)
end)

describe("what moves with its phase", function()
  it("gives the bits of micro-batch order", function()
    local step = helper.chain(4, { train = true, accumulation = 4, replicas = 2, width = 4,
      batch = 1, phases = true, ipus = { 0, 1, 0, 1 } })
    local at
    for i, v in ipairs(step:vars()) do
      at = v.role == "input" and i or at
    end
    local x = torch.cos(torch.arange(32) * 0.7):reshape(8, 4)
    local want = helper.replayed_bits(step, { strategy = "sharded" }, { [at] = x },
      { order = "micro_batches" })
    for _, strategy in ipairs({ "serial_phased", "parallel_phased" }) do
      for case = 0, 15 do
        local o = { strategy = strategy, liveness = case & 1, near = true,
          batch_serialization = case & 2, io_tiles = case & 4 > 0 and 32 or 0 }
        for i, kind in ipairs(KINDS) do
          o[kind] = tables.with(BY_IO, { on_demand = case & 8 > 0 or i % 2 == 0 })
        end
        assert.equal(want, (helper.replayed_bits(step, o, { [at] = x })))
      end
    end
  end)
end)
