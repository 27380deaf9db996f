-- The cost model: formulas against values worked out by hand from PopLibs'
-- published estimates.

local ask = require("spec.support.probe").ask

local T = 1472 -- tiles of ipu2
local CHIPS = { "ipu1", "ipu2", "ipu21" }

describe("the table of chips", function()
  it("has the published figures of the three generations", function()
    local mk1, mk2, bow = ask("chip", "ipu1"), ask("chip", "ipu2"), ask("chip", "ipu21")
    assert.equal(1216, mk1.tiles)
    assert.equal(1472, mk2.tiles)
    assert.equal(262144, mk1.tile_bytes)
    assert.equal(638976, bow.tile_bytes)
    assert.equal(64, bow.f16_f16)
    assert.equal(32, mk1.f16_f32)
    -- published peaks: 124.5, 250 and 350 TFLOP/s
    assert.near(124500, mk1.gflops_f16, 200)
    assert.near(250000, mk2.gflops_f16, 1000)
    assert.near(350000, bow.gflops_f16, 2000)
  end)

  it("splits each tile into the two regions", function()
    for _, c in ipairs(CHIPS) do
      local r = ask("chip", c)
      assert.equal(r.tile_bytes, r.region0_bytes + r.region1_bytes)
    end
  end)

  it("syncs several IPUs by hops on Mk1 and in fixed time later", function()
    assert.equal(240, ask("chip", "ipu1").sync16)
    assert.equal(600, ask("chip", "ipu21").sync16)
    assert.equal(0, ask("chip", "ipu2").sync1)
  end)

  it("knows how IPUs are joined", function()
    assert.equal(58400, ask("chip", "ipu1").near_mbps)
    assert.equal(16000, ask("chip", "ipu21").far_mbps)
  end)
end)

describe("a vertex takes the cycles of its published estimate:", function()
  local UNARY, UNARY_IN, BINARY, BINARY_IN, SCALAR = 0, 1, 2, 3, 4
  local function ew(op, form, type, n)
    return ask("elementwise", "ipu2", op, form, type, n).cyc
  end

  it("elementwise operations", function()
    assert.equal(11 + 9 + 6 * (33 + 42 * 4), ew("exp", UNARY, "half", 1000))
    assert.equal(11 + 6 * (29 + 50 * 3), ew("add", BINARY, "float", 600))
    assert.equal(11 + 6 * (26 + 25 * 3), ew("add", BINARY, "half", 600))
    assert.equal(11 + 6 * (58 + 100 * 3), ew("sub", BINARY_IN, "half", 2400))
    assert.equal(11 + 6 * (20 + 10 * 2), ew("mul", SCALAR, "half", 240))
    assert.equal(11 + 6 * (26 + 10 * 21), ew("div", BINARY, "half", 240))
    assert.equal(11 + 9 + 6 * (17 + 2304), ew("sin", UNARY, "float", 6))
    assert.equal(11 + 9 + 6 * (55 + 10 * 2), ew("tanh", UNARY_IN, "half", 240))
    assert.equal(11 + 6 * (29 + 70), ew("add", BINARY, "int", 60))
    assert.equal(0, ew("add", BINARY, "half", 0))
  end)

  it("the scaled addition", function()
    assert.equal(44 + 6 * (24 + 3 * 9), ask("scaled_add", "ipu2", "half", 240).cyc)
  end)

  it("the matrix unit, by mode and generation", function()
    local F16_F16, F16_F32, F32 = 0, 1, 2
    local function amp(chip, mode)
      return ask("amp", chip, mode, 48, 32, 32).cyc
    end
    -- 8 rows a worker, two output groups: passes of the units, weights loaded before each; the
    -- first group of inputs writes its partials, the others add to them
    local function total(passes, load, first, next, groups)
      return 50 + 23 + 2 * (19 + passes * (7 + load + 6 * first + 14))
        + (groups - 1) * (16 + 2 * (19 + passes * (6 + load + 6 * next + 14)))
    end
    local kept = 6 * (10 + 2)
    assert.equal(kept + total(2, 32, 38 - 10 + 20, 40 - 10 + 20, 2), amp("ipu2", F16_F32))
    assert.equal(amp("ipu2", F16_F32), amp("ipu1", F16_F32))
    assert.equal(kept + total(1, 64, 38 - 10 + 20, 40 - 10 + 20, 2), amp("ipu2", F16_F16))
    -- of float, eight inputs lie together and a row takes eight cycles
    assert.equal(total(1, 64, 46 + 40 + 2 + 8 * 8, 46 + 40, 4), amp("ipu2", F32))
    assert.equal(total(2, 32, 46 + 40 + 2 + 4 * 8, 46 + 40, 4), amp("ipu1", F32))
  end)

  it("the matrix unit under a kernel", function()
    -- 32 outputs a worker in two rows of 16, 3 x 3 weights, two passes
    local pos = 32 + 15 + 3 + 9 + 6 * (17 + 2 * (34 - 6 + 13 * 4))
    local loop = 14 + 14 + 3 * (14 + 3 * (12 + 2 * pos))
    local want = 103 + 6 * 6 + 6 * 9 + 17 + 2 + 16 + loop + 6 * (256 + 14 - 9)
    assert.equal(want, ask("amp_conv", "ipu2", 1, 12, 16, 16, 16, 3, 3, 1).cyc)
  end)

  it("dot products and outer products", function()
    -- two output channels, each of a row a worker; partials of two zeroed
    assert.equal(63 + 54 + 38 + 6 * (1 + 5) + 2 * (10 + 6 * (16 + 16 + 19 + 7 + 7 + 4)),
      ask("hmac", "ipu2", 6, 16, 2).cyc)
    assert.equal(6 * (25 + 11 + 2 * (6 + 5)), ask("outer", "ipu2", 12, 32, 32).cyc)
    -- groups of a vector are in no unrolled loop
    assert.equal(6 * (25 + 8 * (11 + 2 * (10 + 4 * 5 // 2))), ask("outer", "ipu2", 12, 32, 0).cyc)
  end)

  it("products of a vertex without the matrix unit", function()
    -- 120 results under three rows of three weights: 60 items a worker; two vectors of
    -- channels; the workers' partials are zeroed and summed
    assert.equal(100 + 2 * (4 + 120 + 32 + 24 + 6 * (6 + 60 * (20 + 2 * 1)) + 10 + 19 * 20 // 4),
      ask("vmac", "ipu2", "half", 3 * 120, 3, 8, 120).cyc)
  end)

  it("the sum of partials", function()
    assert.equal(33 + 6 * (20 + 4 * (6 + 7)), ask("partials", "ipu2", "float", "half", 96, 4).cyc)
    assert.equal(33 + 6 * (20 + 4 * (6 + 8)), ask("partials", "ipu2", "float", "float", 96, 4).cyc)
    -- more than a sixteenth of a tile is read by a list: Mk1's is one element of memory
    assert.equal(6 * (32 + 4 * (3 * 4 + 6)), ask("partials", "ipu1", "float", "half", 96, 4).cyc)
    assert.equal(6 * (32 + 4 * (3 * 100 + 6)),
      ask("partials", "ipu2", "float", "half", 96, 100).cyc)
    -- and so is what has a rest, of two elements and of one here: 20 and 2 turns, 4 whole ones
    assert.equal(6 * (32 + 2 * 4 + 13 + 3 * (3 * 4 + 6)),
      ask("partials", "ipu2", "float", "half", 83, 4).cyc)
  end)

  it("reduces in one to three stages", function()
    for depth, n in pairs({ [2] = 1, [15] = 1, [16] = 2, [124] = 2, [125] = 3, [1472] = 3 }) do
      local r = ask("stages", "ipu2", depth)
      assert.equal(n, r.n)
      assert.is_true(r.product >= depth)
    end
  end)

  it("exchange, at twice the rate for a pair that shares a bus", function()
    assert.equal(25, ask("exchange", "ipu2", 100, 0, 0).cyc)
    assert.equal(13, ask("exchange", "ipu2", 100, 0, 1).cyc)
    assert.equal(100, ask("exchange", "ipu2", 100, 400, 1).cyc)
  end)
end)

local STEP = 252 -- a sync there and back

describe("an operation", function()
  it("is one vertex a tile and a sync", function()
    -- a million halves: 170 vectors on the fullest tile
    local r = ask("add", "ipu2", "half", 1000000)
    assert.equal(11 + 6 * (26 + 29 * 3), r.compute_cyc)
    assert.equal(STEP, r.sync_cyc)
    assert.equal(1471, r.tiles)
    assert.equal(1000000, r.flops)
  end)

  it("adds cycles, not code, when it runs again", function()
    local one = ask("add", "ipu2", "half", 5000)
    local two = ask("add_twice", "ipu2", "half", 5000)
    local ten = ask("add_repeated", "ipu2", "half", 5000, 10)
    assert.equal(2 * one.cycles, two.cycles)
    assert.equal(2 * one.vertex_bytes, two.vertex_bytes)
    assert.equal(one.code_bytes, two.code_bytes)
    assert.equal(10 * one.cycles, ten.cycles)
    assert.equal(one.vertex_bytes, ten.vertex_bytes)
  end)

  it("casts at half a cycle an element and worker", function()
    -- 1200 elements a tile, 200 a worker
    assert.equal(12 + 6 * (40 + 100), ask("cast", "ipu2", "float", "half", 1472 * 1200).compute_cyc)
    assert.equal(12 + 6 * (40 + 100), ask("cast", "ipu2", "half", "float", 1472 * 1200).compute_cyc)
    assert.equal(0, ask("cast", "ipu2", "half", "half", 100).cycles)
  end)

  it("copies 8 bytes a cycle in order and 1.6 transposed", function()
    local n = 1472 * 4000
    assert.equal(1000, ask("copy", "ipu2", "half", n, 4).compute_cyc)
    assert.equal(5000, ask("copy", "ipu2", "half", n, 1).compute_cyc)
    assert.equal(2000, ask("copy", "ipu2", "half", n, 4).exchange_cyc)
    -- an instruction where a run is sent, three where it is received; of single elements 16 go
    -- together
    for run, messages in pairs({ [1] = 250, [16] = 250, [100] = 40, [4000] = 1, [n] = 1 }) do
      assert.equal(4 * 4 * messages, ask("copy", "ipu2", "half", n, run).exchange_code_bytes)
    end
  end)

  it("draws random numbers at the generator's rate", function()
    local seed = 14 + 27 * 6
    local function draw(op)
      return ask("random", "ipu2", "float", op, 1472 * 60).compute_cyc - seed
    end
    assert.equal(6 + 144 + 4 * 30, draw(0))
    assert.equal(6 + 144 + 30, draw(3))
    assert.equal(6 + 144 + 2 * 30, draw(4))
  end)

  it("fills a vector a cycle and worker", function()
    assert.equal(6 * (26 + 10), ask("fill", "ipu2", "half", T * 240).compute_cyc)
    assert.equal(6 * (23 + 10), ask("fill", "ipu2", "float", T * 120).compute_cyc)
  end)

  it("broadcasts at 3 cycles a vector and 12 a row", function()
    local function compute(row, inner)
      return ask("broadcast", "ipu2", "half", T * 600, row, inner).compute_cyc
    end
    assert.equal(11 + 6 * (26 + 2 * (12 + 3 * 13)), compute(300, 1)) -- 75 vectors of 6 workers
    assert.equal(11 + 6 * (26 + 12 + 3 * 25), compute(T, 600))
    assert.equal(11 + 6 * (26 + 2 * (12 + 3 * 13)), compute(50, 1)) -- 12 rows, two a worker
  end)

  it("does scaled additions and serial products tile by tile", function()
    local r = ask("scaled_add_op", "ipu2", "half", T * 240)
    assert.equal(44 + 6 * (24 + 3 * 9), r.compute_cyc)
    assert.equal(2 * T * 240, r.flops)
    -- two problems a tile, ten products each of four instructions by one worker
    r = ask("serial", "ipu2", "float", 2 * T, 9, 10)
    assert.equal(2 * 10 * 4 * 6, r.compute_cyc)
    assert.equal(2 * 9, r.exchange_cyc)
    assert.equal(3 * 9 * 4, r.temp_tile_bytes)
    assert.equal(2 * (4 + 3 * 4 + 2 * 4), r.vertex_bytes)
  end)

  -- the mask has a bit for each dimension that is reduced
  it("reduces on a tile by the shape of what lies there", function()
    local function compute(type, mask, a, b, c)
      return ask("reduce", "ipu2", type, mask, a, b, c).compute_cyc
    end
    -- rows of a matrix: 10 rows of 24 columns
    assert.equal(6 * (7 + 17 + 2 * (6 + 10)), compute("half", 2, T, 10, 24)) -- 3 workers of 8
    assert.equal(6 * (7 + 17 + 2 * (6 + 10)), compute("float", 2, T, 10, 24)) -- 6 of 4
    -- neighbours: 6 outputs of 40; one of 240, shared by the workers; one of 40
    assert.equal(6 * (17 + 12 + 10), compute("half", 4, T, 6, 40))
    assert.equal(6 * (7 + 19 + 10) + 6 * (7 + 19 + 6), compute("half", 4, 1, T, 240))
    assert.equal(6 * (17 + 12 + 10), compute("half", 4, 1, T, 40))
    -- several runs for an output: as four columns of two rows, then two of two neighbours
    assert.equal(6 * (7 + 17 + 6 + 2) + 6 * (17 + 12 + 1), compute("half", 5, 2, 2, 2))
    -- many rows of few columns: the workers share the rows, one sums what they found
    assert.equal(6 * (7 + 17 + 12 + 2 * 40) + 6 * (7 + 17 + 4 * 6 + 4 * 6),
      compute("half", 2, T, 240, 8))
    -- a maximum takes what a sum takes
    assert.equal(6 * (17 + 12 + 10), ask("reduce_max", "ipu2", "half", 4, T, 6, 40).compute_cyc)
  end)

  it("reduces over all tiles in stages of 64 partials", function()
    -- 8 floats a tile, then 64 partials on each of 23, and what they found
    local r = ask("reduce", "ipu2", "float", 7, 1, 1, T * 8)
    assert.equal(6 * (17 + 12 + 4) + 6 * (7 + 17 + 6 + 64) + 6 * (7 + 17 + 6 + 23), r.compute_cyc)
    assert.equal(64 + 23, r.exchange_cyc)
    assert.equal((1 + 2 * 2) * STEP, r.sync_cyc)
    assert.equal(64 * 4, r.temp_tile_bytes)
    assert.equal(4 * (64 + 3 * 64) + 4 * (23 + 3 * 23), r.exchange_code_bytes)
    assert.equal(3 * (4 + 2 * 4 + 2 * 4), r.vertex_bytes)
  end)

  it("sends a broadcast operand but once", function()
    local r = ask("broadcast", "ipu2", "half", 1472 * 600, 300, 1)
    assert.equal(75, r.exchange_cyc)
    assert.equal(600, r.temp_tile_bytes)
    assert.equal(4 * (1 + 3), r.exchange_code_bytes)
    assert.equal(4 + 3 * 4 + 4, r.vertex_bytes)
    assert.equal(1, ask("broadcast", "ipu2", "half", 1472 * 600, 1472, 600).exchange_cyc)
  end)

  -- 240 halves a tile: 40 a worker, 10 vectors
  local SUM = 6 * (7 + 19 + 10) + 6 * (7 + 19 + 6) -- of two compute sets
  local ROWS = 11 + 6 * (26 + 12 + 3 * 10) -- an operation with a broadcast operand
  local BINARY = 11 + 6 * (26 + 10 * 3)

  it("is a softmax of two reductions, four passes and the sums' inverses", function()
    local r = ask("softmax", "ipu2", "half", T, 240)
    local inverse, cast = 11 + 9 + 6 * (17 + 6), 12 + 6 * (18 + 19 + 2 + 3)
    assert.equal(SUM + ROWS + 20 + 6 * (55 + 10 * 4) + SUM + inverse + cast + ROWS, r.compute_cyc)
    assert.equal(2, r.exchange_cyc) -- an element a broadcast
    assert.equal(9 * STEP, r.sync_cyc)
    r = ask("softmax_grad", "ipu2", "half", T, 240)
    assert.equal(BINARY + SUM + ROWS + 11 + 6 * (58 + 10 * 3), r.compute_cyc)
    assert.equal(5 * STEP, r.sync_cyc)
  end)

  it("is a normalisation of sums, statistics and four passes", function()
    -- statistics: two floats a tile, multiplied, squared, subtracted, rsqrt
    local statistics = (11 + 6 * (20 + 2)) + (20 + 6 * (17 + 2)) + (11 + 6 * (29 + 3))
      + (20 + 6 * (17 + 8))
    local r = ask("norm", "ipu2", "half", T * 240, T, 240, 0)
    assert.equal(SUM + statistics + 4 * ROWS, r.compute_cyc)
    assert.equal(1 + 1 + 60 + 60, r.exchange_cyc) -- mean, deviation, gamma, beta
    assert.equal(10 * STEP, r.sync_cyc)
    assert.equal(4 * ROWS, ask("norm", "ipu2", "half", T * 240, T, 240, 1).compute_cyc)
  end)

  it("is a normalisation's gradient of two joint sums and seven passes", function()
    local r = ask("norm_grad", "ipu2", "half", T * 240, T, 240)
    -- gamma and beta: two rows of 240 on a tile, then 62 partials of four columns, whose
    -- rows the workers share, then 12
    local columns = 6 * (7 + 17 + 10 * (6 + 2)) + 6 * (7 + 17 + 2 * (6 + 11))
      + 6 * (7 + 17 + 2 * (6 + 6)) + 6 * (7 + 17 + 2 * (6 + 12))
    local rows = 6 * (17 + 12 + 60)
    local scaled = 44 + 6 * (24 + 3 * 9)
    assert.equal(BINARY + columns + ROWS + BINARY + rows + 2 * ROWS + scaled + ROWS, r.compute_cyc)
  end)

  it("pools by lists of rows and positions of the window", function()
    -- an image of 8 x 8 of 16 channels a tile, windows of 2 x 2: a worker has three neighbours
    local r = ask("pool", "ipu2", "half", T, 16, 8, 8, 4, 4, 2, 2)
    local function worker(loop)
      return 21 + 4 + 11 + 8 + 13 + 15 + 4 * (20 + 2 + 4 * (3 + loop) + 3) + 1
    end
    assert.equal(7 + 6 * worker(4 + 3 * 2) + 6, r.compute_cyc)
    assert.equal(8 * 8 * 16 * 2 / 4, r.exchange_cyc)
    assert.equal(2 * STEP, r.sync_cyc)
    local mean = ask("pool_mean", "ipu2", "half", T, 16, 8, 8, 4, 4, 2, 2)
    assert.equal(7 + 6 * worker(5 + 3 * 2) + 6, mean.compute_cyc)
    -- two pieces of six, every other of which a position meets, in every other row
    r = ask("pool_grad", "ipu2", "half", T, 16, 8, 8, 4, 4, 2, 2)
    local item = 20 + 2 + 4 * (3 + 7 + 5 * 2) + 3
    assert.equal(7 + 6 * (21 + 4 + 43 + 8 + 13 + 10 + 2 * 15 + 4 * item + 1) + 6, r.compute_cyc)
    -- deltas are brought to the pooled values, then read beside those and the inputs
    assert.equal((2 * 4 * 4 + 8 * 8 + 4 * 4) * 16 * 2 / 4, r.exchange_cyc)
    assert.equal(3 * STEP, r.sync_cyc)
  end)

  it("looks rows up at 3 cycles a vector, adds them at 3 a word", function()
    -- ten words of a row on every tile
    local r = ask("lookup", "ipu2", "half", 2, T * 20, 1)
    assert.equal(6 * (16 + 19 + 3 * 5), r.compute_cyc)
    assert.equal(1, r.exchange_cyc) -- the index
    r = ask("lookup_add", "ipu2", "half", 2, T * 20, 1)
    assert.equal(6 * (18 + 12 + 3 * 9), r.compute_cyc)
    -- a dictionary of few columns is split by its rows: the second stage selects
    r = ask("lookup", "ipu2", "half", 100000, 2, 64)
    assert.is_true(r.tiles > 100)
    assert.equal(7 * STEP, r.sync_cyc)
  end)

  it("slices rows at 24 cycles a row and 2 a vector", function()
    local r = ask("slice", "ipu2", "float", 64, T * 12, 3)
    assert.equal(25 + 6 * (39 + (24 + 2) * 3), r.compute_cyc)
    assert.equal(1, r.exchange_cyc) -- the offset
  end)

  it("is a step of an LSTM of slices, a product, its bias and the gates", function()
    local r = ask("rnn", "ipu2", "half", 1, T, 8, 24, 4) -- 24 elements of the state a tile
    local product = ask("matmul", "ipu2", 0, 0.6, "float", "half", 0, 1, T, 32, 96)
    -- brought to the state: a block transposed by one worker, sent
    local brought = 6 * (29 + 18 + 4 * (12 + 4 * 2)) + 96 * 2 / 4
    local bias = 11 + 6 * (26 + 12 + 3 * 4) + 96 * 2 / 8
    -- three vectors and one a worker, the first and the last of half the cycles
    local sigmoid, tanh = 9 + 6 * (25 + 4 + 2 * 4), 9 + 6 * (25 + 2)
    local gates = 11 + 6 * (58 + 2 * 3) + 11 + 6 * (58 + 3)
      + 6 * (13 + 2 * 2 * 2) -- tanh and product are one expression of two operands
    local slices = ask("slice", "ipu2", "half", 1, T * 8, 1).cycles
      + ask("slice", "ipu2", "half", 1, T * 24, 1).cycles
    local counter = r.cycles - (product.cycles + brought + bias + sigmoid + tanh + gates + slices
      + 8 * STEP + 8 * 2 / 4 + STEP)
    assert.equal(11 + 6 * (20 + 7), counter) -- of steps; the sequence is sent once
  end)

  it("is a GRU of two products a step", function()
    local function rnn(gates)
      return ask("rnn", "ipu2", "half", 1, 16, 1024, 1024, gates).flops
    end
    assert.is_true(rnn(3) > 0.74 * rnn(4) and rnn(3) < 0.76 * rnn(4))
    local one = ask("matmul", "ipu2", 0, 0.6, "float", "half", 0, 1, 16, 2048, 3072).cycles
    local first = ask("matmul", "ipu2", 0, 0.6, "float", "half", 0, 1, 16, 2048, 2048).cycles
    local second = ask("matmul", "ipu2", 0, 0.6, "float", "half", 0, 1, 16, 2048, 1024).cycles
    assert.is_true(first + second > one)
  end)

  it("has a loop for a recurrent layer's weight gradients unless the gates' are more", function()
    local function grad(steps)
      return ask("rnn_grad", "ipu2", "half", steps, 16, 256, 256, 4)
    end
    assert.equal(grad(20).flops - grad(10).flops, 10 * (grad(11).flops - grad(10).flops))
    -- 524,288 weights; 16,384 gradients of gates a step, which are kept and read up to then
    local kept = 2 * ask("slice", "ipu2", "half", 1, 16 * 1024, 1).cycles
      + 11 + 6 * (20 + 7) + STEP -- and a counter
    assert.equal(kept, (grad(31).cycles - grad(30).cycles) - (grad(34).cycles - grad(33).cycles))
  end)

  it("costs nothing on no elements", function()
    for _, call in ipairs({
      { "add", "ipu2", "half", 0 }, { "fill", "ipu2", "half", 0 }, { "copy", "ipu2", "half", 0, 1 },
      { "reduce", "ipu2", "half", 2, 4, 0, 1 }, { "softmax", "ipu2", "half", 0, 10 },
      { "norm", "ipu2", "half", 0, 0, 0, 0 }, { "pool", "ipu2", "half", 0, 8, 4, 4, 2, 2, 2, 2 },
      { "lookup", "ipu2", "half", 10, 4, 0, 0 }, { "slice", "ipu2", "half", 10, 4, 0 },
      { "random", "ipu2", "half", 0, 0 }, { "host", "ipu2", 0, 1 }, { "ipu_copy", "ipu2", 0, 1, 0 },
    }) do
      assert.equal(0, ask(table.unpack(call)).cycles, call[1])
    end
  end)

  it("has a cost on every chip", function()
    for _, chip in ipairs(CHIPS) do
      for _, call in ipairs({
        { "fill", "half", 1000 }, { "reduce", "half", 2, 64, 1000, 8 },
        { "softmax", "half", 512, 128 },
        { "softmax_grad", "float", 512, 128 }, { "norm", "half", 393216, 512, 768, 0 },
        { "norm_grad", "half", 393216, 512, 768 }, { "pool", "half", 4, 64, 56, 56, 28, 28, 3, 2 },
        { "pool_grad", "half", 4, 64, 56, 56, 28, 28, 3, 2 }, { "lookup", "half", 30522, 768, 512 },
        { "rnn", "half", 25, 16, 256, 256, 4 }, { "rnn_grad", "half", 25, 16, 256, 256, 4 },
        { "rnn", "float", 25, 16, 256, 256, 1 }, { "rnn_grad", "half", 25, 16, 256, 256, 3 },
        { "lookup_add", "half", 30522, 768, 512 }, { "slice", "float", 64, 768, 4 },
      }) do
        local r = ask(call[1], chip, table.unpack(call, 2))
        assert.is_true(r.compute_cyc > 0 and r.sync_cyc > 0, call[1] .. " on " .. chip)
        assert.is_true(r.code_bytes > 0 and r.vertex_bytes > 0, call[1] .. " on " .. chip)
      end
    end
  end)

  it("loops over the steps of a recurrent layer", function()
    local one = ask("rnn", "ipu2", "half", 1, 16, 256, 256, 4)
    local many = ask("rnn", "ipu2", "half", 25, 16, 256, 256, 4)
    local sent = STEP + math.ceil(16 * 256 / T / 4) * 4 * 2 // 4 -- and the sequence, once
    assert.is_true(math.abs(25 * (one.cycles - sent) + sent - many.cycles) < 60)
    assert.equal(one.code_bytes, many.code_bytes)
  end)

  it("is dearer where more must be read", function()
    assert.is_true(ask("softmax", "ipu2", "half", 512, 512).cycles
                   > ask("softmax", "ipu2", "half", 512, 128).cycles)
    assert.is_true(ask("norm", "ipu2", "half", 393216, 512, 768, 0).cycles
                   > ask("norm", "ipu2", "half", 393216, 512, 768, 1).cycles)
    assert.is_true(ask("lookup_add", "ipu2", "half", 30522, 768, 1024).cycles
                   > ask("lookup_add", "ipu2", "half", 30522, 768, 512).cycles)
  end)
end)

describe("a transfer", function()
  it("all-reduces around a ring", function()
    -- 1.5 * 167 MB at 32 GB/s and 1.33 GHz, six syncs
    local r = ask("collective", "ipu2", "half", 0, 167000000, 4, 4)
    assert.near(1.5 * 167e6 / 32e9 * 1.33e9, r.exchange_cyc, 1)
    assert.equal(6 * 600, r.sync_cyc)
    local half = ask("collective", "ipu2", "half", 1, 167000000, 4, 4)
    assert.near(r.exchange_cyc / 2, half.exchange_cyc, 1)
    -- 56,728 halves on the fullest tile, three quarters added at 8 bytes a cycle
    assert.equal(math.ceil(56728 * 2 * 3 / 4 / 8), r.compute_cyc)
    assert.equal(4 * (6 + 3 * 6), r.exchange_code_bytes)
    assert.equal(0, ask("collective", "ipu2", "half", 2, 167000000, 4, 4).compute_cyc)
    assert.equal(0, ask("collective", "ipu2", "half", 0, 167000000, 1, 4).cycles)
    -- four racks of 16 replicas of four IPUs: a ring of each rack at 32 GB/s, and of the racks
    -- for each sixteenth at a quarter of a gateway's 25 GB/s
    local far = ask("collective", "ipu2", "half", 0, 160000000, 64, 4)
    assert.equal(math.ceil(2 * 15 / 16 * 160e6 / 32e9 * 1.33e9)
      + math.ceil(2 * 3 / 4 * 10e6 / 6.25e9 * 1.33e9), far.exchange_cyc)
    assert.equal(2 * (15 + 3) * 600, far.sync_cyc)
  end)

  it("shares the host link and the streaming memory of a machine", function()
    assert.near(1e6 / 20.2e9 * 1.33e9, ask("host", "ipu2", 1000000, 1).exchange_cyc, 1)
    assert.near(4e6 / 20e9 * 1.85e9, ask("stream", "ipu21", 1000000, 4).exchange_cyc, 1)
  end)

  it("takes the link's time and a sync between IPUs", function()
    local r = ask("ipu_copy", "ipu2", 0, 1, 1000000)
    assert.equal(math.ceil(1e6 / 64e9 * 1.33e9), r.exchange_cyc)
    assert.equal(600, r.sync_cyc)
    assert.equal(1e6 / 16e9 * 1.33e9, ask("ipu_copy", "ipu2", 0, 4, 1000000).exchange_cyc)
  end)

  it("is slower to another machine", function()
    assert.is_true(ask("ipu_copy", "ipu2", 0, 4, 1000000).exchange_cyc
                   > ask("ipu_copy", "ipu2", 0, 1, 1000000).exchange_cyc)
  end)
end)

describe("memory", function()
  it("is spread evenly in grains", function()
    local r = ask("map", "ipu2", "half", 1000000, 4)
    assert.equal(680, r.tile_elems)
    assert.equal(1360, r.tile_bytes)
    assert.equal(1471, r.tiles)
    assert.equal(3, ask("map", "ipu2", "float", 3, 1).tiles)
  end)

  it("counts the gap below interleaved data", function()
    assert.equal(1000, ask("gaps", "ipu2", 1000, 0).bytes)
    assert.equal(212992 + 10, ask("gaps", "ipu2", 1000, 10).bytes)
    assert.equal(131072 + 10, ask("gaps", "ipu1", 1000, 10).bytes)
    assert.equal(400000, ask("gaps", "ipu2", 400000, 10).bytes)
    assert.equal(16384 + 20, ask("gaps", "ipu2", 1000, 0, 20).bytes)
    assert.equal(212992 + 10, ask("gaps", "ipu2", 1000, 10, 20).bytes)
    assert.equal(20000, ask("gaps", "ipu1", 20000, 0, 20).bytes)
  end)
end)
