-- What records choose to be charged, against PopLibs' published estimates of
-- the vertices (spec/runtime/cost_spec.lua has them one by one).
local core = require("lupine.core")

local T = 1472 -- tiles of ipu2

local function cost(name, attributes, rows, columns, dtype)
  return core.op_cost(name, { { dtype = dtype or "float32", shape = { rows, columns } } },
    attributes, "ipu2")
end

-- One binary operation and one copy of `columns` elements a tile: a vertex
-- reads vectors of 8 bytes, six workers share them; a copy moves 8 bytes a
-- cycle and receives 4; either ends in a sync, the copy's exchange in another. A
-- sync reaches a tile within 126 cycles, and so does its answer.
local function doubling_step(columns, bytes)
  local vectors = math.ceil(columns * bytes / 8)
  local add = 11 + 6 * ((bytes == 4 and 29 or 26) + 3 * math.ceil(vectors / 6))
  return { compute_cyc = add + columns * bytes / 8, exchange_cyc = columns * bytes / 4,
    sync_cyc = 3 * 2 * 126, flops = T * columns }
end

local function check(name, attributes, columns, steps, dtype)
  local step = doubling_step(columns, dtype == "float16" and 2 or 4)
  local got = cost(name, attributes, T, columns, dtype)
  for what, n in pairs(step) do
    assert.equal(steps * n, got[what], ("%s of %d: %s"):format(name, columns, what))
  end
end

describe("a running sum", function()
  local along = { dim = { 1 } }

  it("is doubling steps of an addition and a copy", function()
    check("cumsum", along, 1024, 10)
    check("cumsum", along, 1000, 10)
    check("cumsum", along, 2048, 11)
    check("cumsum", along, 512, 9, "float16")
    check("cumsum", along, 1, 0)
    check("cumsum", { dim = { 1 }, reverse = true }, 1024, 10)
  end)

  it("is as long as the dimension", function()
    check("cumsum", { dim = { 0 } }, 1024, 11) -- 2^11 is the first power beyond 1472
  end)

  it("is a product's with multiplications, and twice that of the others'", function()
    check("cumprod", along, 1024, 10)
    check("prod_others", along, 1024, 20)
  end)

  it("is a recurrence's with twice the copies and multiplications, and additions", function()
    local x = { dtype = "float32", shape = { T, 1024 } }
    local one = cost("cumprod", along, T, 1024, "float32").compute_cyc
    local got = core.op_cost("recurrence", { x, x }, along, "ipu2").compute_cyc
    assert.is_true(got > 2 * one and got < 3 * one)
  end)
end)

describe("an addition with alpha", function()
  it("is one scaled addition", function()
    local x = { dtype = "float16", shape = { T, 240 } }
    local got = core.op_cost("add", { x, x }, { alpha = 2 }, "ipu2")
    assert.equal(44 + 6 * (24 + 3 * 9), got.compute_cyc)
    got = core.op_cost("add", { x, x }, { alpha = 1 }, "ipu2")
    assert.equal(11 + 6 * (26 + 3 * 10), got.compute_cyc)
  end)
end)

describe("vertices", function()
  local function added(rows, columns)
    local x = { dtype = "float16", shape = { rows, columns } }
    return core.op_cost("add", { x, x }, { alpha = 1 }, "ipu2")
  end

  it("of an elementwise operation are one a tile, and workers without vectors are idle", function()
    local c = added(T, 240)
    assert.equal(1, c.compute_sets)
    assert.same({ { name = "popops::BinaryOp1D<add, half>", n = T, edges = 3 * T, idle_cyc = 0,
      cyc = T * c.compute_cyc, tile_bytes = 4 + 3 * 4 + 4 } }, c.vertices) -- 60 vectors a tile
    c = added(T, 4) -- one vector a tile, five of six workers have none
    assert.equal(T * math.floor(c.compute_cyc * 5 / 6), c.vertices[1].idle_cyc)
    c = added(1, 2)
    assert.equal(1, c.vertices[1].n)
    assert.equal(c.compute_cyc, c.vertices[1].cyc)
  end)

  it("of a product are its own, those of its sums and of its copies", function()
    local function x(...) return { dtype = "float16", shape = { ... } } end
    local names = {}
    for _, v in ipairs(core.op_cost("mm", { x(64, 8192), x(8192, 64) }, {}, "ipu2").vertices) do
      names[v.name] = v.n
    end
    assert.is_true(names["poplin::ConvPartial1x1Out<half,float>"] >= 1)
    assert.is_true(names["popops::ReducePartialsEqualSize<half>"] >= 1)
  end)
end)

describe("a triangular system", function()
  local unit = { upper = false, left = true, unitriangular = true }
  local function of(op, attributes, ...)
    local inputs = {}
    for i, shape in ipairs({ ... }) do
      inputs[i] = { dtype = "float32", shape = shape }
    end
    return core.op_cost(op, inputs, attributes, "ipu2")
  end

  it("of a block and one right-hand side is a vertex, the triangle a copy", function()
    local copied = 4 * 8 * 4 // 8 -- at most 32 elements a tile, 8 bytes a cycle
    local vertex = 6 * (3 * 64 * 64 // 2 + 180 * 64)
    local got = of("triangular", unit, { 64, 64 }, { 64, 1 }).compute_cyc
    assert.is_true(got >= vertex and got <= vertex + copied)
  end)

  it("of two blocks is two of one and a product between them", function()
    local function cycles(c) return c.compute_cyc + c.exchange_cyc + c.sync_cyc end
    local one = cycles(of("triangular", unit, { 64, 64 }, { 64, 1 }))
    local two = cycles(of("triangular", unit, { 128, 128 }, { 128, 1 }))
    local between = cycles(of("mm", {}, { 64, 64 }, { 64, 1 }))
      + cycles(of("sub", { alpha = 1 }, { 64, 1 }, { 64, 1 }))
    assert.near(2 * one + between, two, 1000) -- the copies are not twice as long
  end)
end)
