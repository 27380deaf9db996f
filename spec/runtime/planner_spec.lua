-- The planner of products and convolutions: its invariants; the recorded runs.
local files = require("spec.support.files")
local probe = require("spec.support.probe")
local ask = probe.ask

describe("the planner", function()
  local PASSES = { 0, 1, 2, 3 }
  local SHAPES = {
    { 1, 1, 1, 1 }, { 1, 512, 768, 3072 }, { 1, 1000, 512, 30000 }, { 12, 384, 64, 384 },
    { 3000, 64, 64, 64 }, { 1, 1, 1000, 1000 }, { 7, 101, 97, 103 }, { 1, 4096, 1, 512 },
  }
  local CONVS = {
    -- groups batch in out, field, kernel, stride, dilation, padding
    "1 4 64 64  1 56 56  1 3 3  1 1 1  1 1 1  0 1 1  0 1 1",
    "1 4 3 64  1 224 224  1 7 7  1 2 2  1 1 1  0 3 3  0 3 3",
    "1 4 256 512  1 56 56  1 1 1  1 2 2  1 1 1  0 0 0  0 0 0",
    "96 4 1 1  1 28 28  1 3 3  1 1 1  1 1 1  0 1 1  0 1 1",
    "32 4 8 8  1 28 28  1 3 3  1 1 1  1 1 1  0 1 1  0 1 1",
    "1 2 16 32  8 16 16  3 3 3  1 1 1  1 1 1  1 1 1  1 1 1",
    "1 8 80 256  1 1 300  1 1 3  1 1 2  1 1 1  0 0 1  0 0 1",
  }
  local RATE = {
    ipu1 = { float = { half = 32, float = 8 } },
    ipu2 = { float = { half = 32, float = 16 } },
  }

  local function check(chip, type, p, what)
    local tiles = ask("chip", chip).tiles
    assert.equal(p.product, p.tiles, what)
    assert.is_true(p.tiles >= 1 and p.tiles <= tiles, what)
    assert.equal(p.terms, p.total_cyc, what)
    assert.equal(p.total_cyc, p.cycles, what)
    local rate = RATE[chip].float[type]
    assert.is_true(p.total_cyc * tiles * rate * 2 >= p.flops, what)
    assert.is_true(p.fits == 0 or p.temp_bytes <= p.bound_bytes, what)
    assert.equal(1, p.same, what)
    assert.equal(1, p.hits, what)
    assert.equal(0, p.live, what)
  end

  it("keeps to tiles, memory and peak for products", function()
    for _, chip in ipairs({ "ipu1", "ipu2" }) do
      for _, type in ipairs({ "half", "float" }) do
        for _, s in ipairs(SHAPES) do
          for _, pass in ipairs(PASSES) do
            local p = ask("matmul", chip, 0, 0.6, "float", type, pass, table.unpack(s))
            check(chip, type, p, table.concat({ chip, type, pass, table.unpack(s) }, " "))
            assert.equal(2 * s[1] * s[2] * s[3] * s[4], p.flops)
          end
        end
      end
    end
  end)

  it("keeps to tiles, memory and peak for convolutions of all passes", function()
    for _, chip in ipairs({ "ipu1", "ipu2" }) do
      for _, s in ipairs(CONVS) do
        local fwd = ask("conv", chip, 0, 0.6, "float", "half", 1, s)
        for _, pass in ipairs(PASSES) do
          local p = ask("conv", chip, 0, 0.6, "float", "half", pass, s)
          check(chip, "half", p, chip .. " " .. pass .. " " .. s)
          assert.equal(fwd.flops, p.flops)
        end
      end
    end
  end)

  it("plans on every chip, Bow as Mk2", function()
    local mk2 = ask("matmul", "ipu2", 0, 0.6, "float", "half", 0, 1, 512, 768, 3072)
    local bow = ask("matmul", "ipu21", 0, 0.6, "float", "half", 0, 1, 512, 768, 3072)
    assert.equal(mk2.total_cyc, bow.total_cyc)
  end)

  it("is no slower with more tiles", function()
    for _, s in ipairs(SHAPES) do
      local before
      for _, tiles in ipairs({ 92, 184, 368, 736, 1472 }) do
        local p = ask("matmul", "ipu2", tiles, 0.6, "float", "half", 0, table.unpack(s))
        assert.is_true(p.tiles <= tiles)
        -- an odd number of output splits loses the pair's bus: 5 %
        assert.is_true(not before or p.total_cyc <= 1.05 * before, table.concat(s, "x"))
        before = p.total_cyc
      end
    end
  end)

  it("pays on one tile for the unit, the cast of its partials and the syncs", function()
    -- 48 columns are the field, 32 rows the output channels
    local p = ask("matmul", "ipu2", 1, 0.6, "float", "half", 0, 1, 32, 32, 48)
    local unit = 50 + 6 * 12 + 23 + 2 * (19 + 2 * (7 + 32 + 6 * 48 + 14))
      + 16 + 2 * (19 + 2 * (6 + 32 + 6 * 50 + 14)) -- as in cost_spec.lua
    assert.equal(unit, p.tile_cyc)
    assert.equal(unit + 12 + 6 * (18 + 19 + 3 + 64) + 3 * 252, p.total_cyc)
    assert.equal(48 * 32 * 4, p.partial_bytes)
    assert.equal((48 * 32 + 32 * 32) * 2 + 48 * 32 * 4, p.temp_bytes)
  end)

  it("trades memory for turns of a loop", function()
    local before
    for _, proportion in ipairs({ 0.1, 0.2, 0.4, 0.6, 0.9 }) do
      local p = ask("matmul", "ipu2", 0, proportion, "float", "half", 0, 1, 1000, 512, 30000)
      assert.equal(1, p.fits)
      assert.is_true(p.temp_bytes <= proportion * 638976)
      assert.is_true(not before or p.total_cyc <= 1.02 * before)
      before = p.total_cyc
    end
    local small = ask("matmul", "ipu2", 0, 0.1, "float", "half", 0, 1, 1000, 512, 30000)
    assert.is_true(small.serial > 1)
  end)

  it("takes little memory when told to take none", function()
    local p = ask("matmul", "ipu2", 0, 0, "float", "half", 0, 1, 1000, 512, 30000)
    assert.equal(0, p.fits)
    assert.is_true(p.temp_bytes < 0.1 * 638976)
  end)

  it("is faster with half partials where the unit is twice as wide", function()
    local float = ask("matmul", "ipu2", 0, 0.6, "float", "half", 0, 1, 4096, 1024, 4096)
    local half = ask("matmul", "ipu2", 0, 0.6, "half", "half", 0, 1, 4096, 1024, 4096)
    assert.is_true(half.total_cyc < 0.75 * float.total_cyc)
  end)

  it("gives a figure for products beyond any machine", function()
    for _, n in ipairs({ 100000, 600000, 2000000000 }) do
      local p = ask("matmul", "ipu2", 0, 0.6, "float", "half", 3, 1, n, n, n)
      assert.equal(0, p.fits)
      assert.is_true(p.total_cyc > 0 and p.total_cyc >= p.flops // (4 * 1472 * 32))
    end
    local long = ask("matmul", "ipu2", 0, 0.6, "float", "half", 3, 1, 1, 1, 400000000000000000)
    assert.equal(0, long.fits)
  end)

  it("costs nothing where a dimension is zero", function()
    assert.equal(0, ask("matmul", "ipu2", 0, 0.6, "float", "half", 3, 1, 0, 8, 8).cycles)
    local empty = "1 1 4 4  1 2 2  1 3 3  1 1 1  1 1 1  0 0 0  0 0 0"
    assert.equal(0, ask("conv", "ipu2", 0, 0.6, "float", "half", 3, empty).cycles)
  end)
end)

describe("the recorded runs", function()
  it("are met within the promised error", function()
    local pipe = assert(io.popen(probe.tools .. "fidelity spec/fidelity.csv -q"))
    local text = pipe:read("a")
    assert.is_true(pipe:close(), text)
    assert.matches("GEMM.-kept", text)
    assert.is_nil(text:find("MISSED"))
    -- docs/simulation.md has the means of both generations, Mk2 first
    local mk1, mk2 = text:match("^(.*)(\nMk2.*)$")
    local rows = 0
    for name, n, c2, b2, c1, b1 in files.read("docs/simulation.md"):gmatch(
      "| ([%w ]+) | (%d+) | ([%d.]+) | ([%d.]+) | ([%d.]+) | ([%d.]+) |") do
      for part, want in pairs({ [mk1] = { c1, b1 }, [mk2] = { c2, b2 } }) do
        local c, b = part:match("\n  " .. name .. "[%a ]- +" .. n .. " +([%d.]+) +%S+ +([%d.]+)")
        assert.near(tonumber(want[1]), tonumber(c), 0.051, name)
        assert.near(tonumber(want[2]), tonumber(b), 0.051, name)
      end
      rows = rows + 1
    end
    assert.equal(9, rows)
  end)

  it("may be other rows of the record's form", function()
    local name = os.tmpname()
    local rows = assert(io.open(name, "w"))
    rows:write("name,op,batch,groups,in,out,field,kernel,stride,pad_lower,pad_upper,reduce,seq,",
      "dtype,phases,mk1_cycles,mk1_total_bytes,mk1_max_tile_bytes,mk2_cycles,mk2_total_bytes,",
      "mk2_max_tile_bytes\n",
      "flat,conv,1,,64,64,17 17,1 7,1,0 3,0 3,,,half,fwd+bwd+wu,1,1,1,1,1,1\n",
      "tall,conv,1,,64,64,17 17,7 1,1,3 0,3 0,,,half,fwd+bwd+wu,1,1,1,1,1,1\n",
      "deep,conv,1,96,1,1,28 28,3,2,1,1,,,half,fwd+bwd+wu,1,1,1,1,1,1\n",
      "max,pool,4,,64,,112 112,3,2,1,1,MAX,,half,fwd+bwd,1,1,1,1,1,1\n",
      "rnn,gru,16,,256,256,,,,,,,25,half,fwd+bwd+wu,1,1,1,1,1,1\n")
    rows:close()
    local pipe = assert(io.popen(probe.tools .. "fidelity " .. name))
    local text = pipe:read("a")
    pipe:close()
    os.remove(name)
    local function cycles(row)
      return tonumber(text:match(row .. " +1 +(%d+)"))
    end
    for _, row in ipairs({ "flat", "tall", "deep", "max", "rnn" }) do
      assert.is_true(cycles(row) > 1000, row)
    end
    -- an oblong kernel is neither its width nor its height squared
    assert.is_true(cycles("flat") < 2 * cycles("tall") and cycles("tall") < 2 * cycles("flat"))
    assert.is_nil(text:find("not compared", 1, true))
  end)
end)
