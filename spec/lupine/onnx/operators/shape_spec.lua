-- Operators of ONNX on shapes, and that chains of them are constants of a program.
local both = require("spec.lupine.onnx.both")
local compiled = require("spec.support.compiled")
local graphs = require("spec.lupine.onnx.graphs")
local helper = require("spec.helper")
local onnx = require("lupine.onnx")
local proto = require("lupine.onnx.proto")
local torch = require("torch")

local I64 = { dtype = torch.int64 }

local function ints(list)
  return torch.tensor(list, I64)
end

local function at(...)
  local flags = {}
  for _, i in ipairs({ ... }) do
    flags[i] = true
  end
  return flags
end

local function shape_of(t)
  return table.concat({ table.unpack(t.shape) }, ",")
end

describe("constants", function()
  it("have one of five forms", function()
    local forms = { { value = torch.tensor({ 1.5 }) }, { value_float = 1.5 },
      { value_floats = { 1.5, 2.0 } }, { value_int = 3 }, { value_ints = { 3, 4 } } }
    local want = { { 1.5 }, 1.5, { 1.5, 2.0 }, 3, { 3, 4 } }
    for i, form in ipairs(forms) do
      local y = both("Constant", {}, form)
      helper.near(y, want[i])
      assert.equal(i <= 3 and torch.float32 or torch.int64, y.dtype)
    end
    both.refuses("it has no value. Allowed: value, value_float", "Constant", {}, {})
    both.refuses("several values", "Constant", {}, { value_int = 1, value_float = 1.0 })
    both.refuses("tensors of strings are not supported", "Constant", {}, { value_string = "a" })
  end)

  it("fill shapes", function()
    local y = both("ConstantOfShape", { ints({ 2, 3 }) }, {}, { constants = at(1) })
    assert(torch.equal(y, torch.zeros({ 2, 3 })))
    y = both("ConstantOfShape", { ints({ 2 }) }, { value = ints({ 7 }) }, { constants = at(1) })
    assert(torch.equal(y, ints({ 7, 7 })))
    y = both("ConstantOfShape", { torch.zeros({ 0 }, I64) }, { value = torch.tensor({ true }) },
      { constants = at(1) })
    assert(torch.equal(y, torch.tensor(true)))
  end)

  it("count and mark diagonals", function()
    local three = { constants = at(1, 2, 3) }
    helper.near(both("Range", { ints(3), ints(9), ints(3) }, {}, three), { 3, 6 })
    helper.near(both("Range", { ints(10), ints(4), ints(-2) }, {}, three), { 10, 8, 6 })
    helper.near(both("Range", { ints(1), ints(0), ints(1) }, {}, three), {})
    helper.near(both("Range", { torch.tensor(0.5), torch.tensor(2.0), torch.tensor(0.5) }, {},
      three), { 0.5, 1.0, 1.5 })
    both.refuses("delta is 0", "Range", { ints(1), ints(2), ints(0) }, {}, three)
    local y = both("EyeLike", { torch.zeros({ 2, 3 }) }, { k = 1, dtype = 7 })
    assert(torch.equal(y, ints({ { 0, 1, 0 }, { 0, 0, 1 } })))
    both.refuses("its input has 1 dimensions", "EyeLike", { torch.zeros({ 2 }) }, {})
  end)

  it("cut triangles, whether the diagonal is known or not", function()
    local x = torch.rand({ 2, 3, 4 })
    for k = -4, 5 do
      for upper = 0, 1 do
        local want = (upper == 1 and torch.triu or torch.tril)(x, k)
        for _, constants in ipairs({ at(2), at() }) do
          helper.near(both("Trilu", { x, ints(k) }, { upper = upper }, { constants = constants }),
            want)
        end
      end
    end
  end)
end)

describe("shapes", function()
  it("are asked for", function()
    local x = torch.zeros({ 2, 3, 4 })
    helper.near(both("Shape", { x }, {}, { version = 13 }), { 2, 3, 4 })
    -- source: ONNX, Changelog.md, Shape-15
    helper.near(both("Shape", { x }, { start = -1 }), { 4 })
    helper.near(both("Shape", { x }, { ["end"] = -1 }), { 2, 3 })
    helper.near(both("Shape", { x }, { start = 1, ["end"] = 2 }), { 3 })
    helper.near(both("Shape", { x }, { start = -9, ["end"] = 9 }), { 2, 3, 4 })
    helper.near(both("Shape", { x }, { start = 2, ["end"] = 1 }), {})
    helper.near(both("Size", { x }), 24)
  end)

  it("are given by attributes and by inputs", function()
    local x = torch.rand({ 2, 3, 4 })
    local cases = { { { 4, 6 }, "4,6" }, { { 0, -1 }, "2,12" }, { { -1 }, "24" },
      { { 0, 0, 1, 4 }, "2,3,1,4" } }
    for _, case in ipairs(cases) do
      local y = both("Reshape", { x, ints(case[1]) }, {}, { constants = at(2) })
      assert.equal(case[2], shape_of(y))
      helper.near(y:reshape({ -1 }), x:reshape({ -1 }))
      assert.equal(case[2], shape_of(both("Reshape", { x }, { shape = case[1] }, { version = 4 })))
    end
    local none = both("Reshape", { torch.zeros({ 0, 3 }), ints({ 3, 0 }) }, { allowzero = 1 },
      { constants = at(2) })
    assert.equal("3,0", shape_of(none))
    both.refuses("dimension 3 of the new shape is 0, the input has 3 dimensions", "Reshape",
      { x, ints({ 2, 3, 4, 0 }) }, {}, { constants = at(2) })
  end)

  it("lose and gain axes", function()
    local x = torch.rand({ 1, 3, 1, 2 })
    assert.equal("3,2", shape_of(both("Squeeze", { x }, {}, { version = 11 })))
    assert.equal("1,3,2", shape_of(both("Squeeze", { x }, { axes = { -2 } }, { version = 11 })))
    assert.equal("3,1,2", shape_of(both("Squeeze", { x, ints({ 0 }) }, {}, { constants = at(2) })))
    both.refuses("axis 1 has the size 3", "Squeeze", { x }, { axes = { 1 } }, { version = 11 })
    local y = torch.rand({ 3, 2 })
    assert.equal("1,3,2,1", shape_of(both("Unsqueeze", { y }, { axes = { 3, 0 } },
      { version = 11 })))
    assert.equal("3,1,2,1", shape_of(both("Unsqueeze", { y, ints({ -1, 1 }) }, {},
      { constants = at(2) })))
    both.refuses("attribute 'axes' names dimension 1 twice", "Unsqueeze", { y },
      { axes = { 1, -3 } }, { version = 11 })
    both.refuses("attribute 'axes' is 4. Allowed: -3 to 2", "Unsqueeze", { y },
      { axes = { 4 } }, { version = 11 })
    for axis = -3, 3 do
      local first = 1
      for d = 1, axis < 0 and axis + 3 or axis do
        first = first * (d + 1)
      end
      local z = torch.rand({ 2, 3, 4 })
      assert.equal(("%d,%d"):format(first, 24 // first), shape_of(both("Flatten", { z },
        { axis = axis })))
    end
  end)

  it("are permuted, broadcast, repeated", function()
    local x = torch.rand({ 2, 3, 4 })
    helper.near(both("Transpose", { x }), x:permute({ 2, 1, 0 }))
    helper.near(both("Transpose", { x }, { perm = { 1, 2, 0 } }), x:permute({ 1, 2, 0 }))
    helper.near(both("Expand", { x, ints({ 5, 1, 1, 4 }) }, {}, { constants = at(2) }),
      x:expand({ 5, 2, 3, 4 }))
    helper.near(both("Tile", { x, ints({ 2, 1, 3 }) }, {}, { constants = at(2) }),
      x:tile({ 2, 1, 3 }))
    both.refuses("2 repeats for 3 dimensions", "Tile", { x, ints({ 1, 1 }) }, {},
      { constants = at(2) })
  end)

  it("exchange channels and pixels", function()
    local x = torch.arange(2 * 8 * 2 * 3, { dtype = torch.float32 }):reshape({ 2, 8, 2, 3 })
    local dcr = both("DepthToSpace", { x }, { blocksize = 2 })
    local crd = both("DepthToSpace", { x }, { blocksize = 2, mode = "CRD" }, { version = 13 })
    for c = 0, 1 do
      for h = 0, 3 do
        for w = 0, 5 do
          local block = h % 2 * 2 + w % 2
          assert.equal(x[1][block * 2 + c][h // 2][w // 2]:item(), dcr[1][c][h][w]:item())
          assert.equal(x[1][c * 4 + block][h // 2][w // 2]:item(), crd[1][c][h][w]:item())
        end
      end
    end
    helper.near(both("SpaceToDepth", { dcr }, { blocksize = 2 }), x)
    both.refuses("mode 'RCD'. Allowed: DCR, CRD", "DepthToSpace", { x },
      { blocksize = 2, mode = "RCD" }, { version = 11 })
  end)
end)

describe("chains of shapes", function()
  local zero, one, minus = ints({ 0 }), ints({ 1 }), ints({ -1 })

  local function text(model, inputs)
    return (compiled.step(model, inputs)):text("micro")
  end

  it("as exporters write them are constants of a program", function()
    local model = graphs.model("x -> y", {
      { "s = Shape(x)" }, { "batch = Gather(s, zero)" }, { "height = Gather(s, one)" },
      { "sum = Mul(height, batch)" }, { "n = Cast(sum)", { to = 7 } },
      { "list = Concat(n, minus)", { axis = 0 } }, { "y = Reshape(x, list)" },
    }, { zero = zero, one = one, minus = minus })
    local x = torch.rand({ 2, 3, 4 })
    assert.equal("6,4", shape_of(graphs.both(model, { x })))
    local step = text(model, { x })
    assert(not step:find("gather", 1, true) and not step:find("index_select", 1, true)
      and not step:find("cat", 1, true), step)
  end)

  it("make masks", function()
    local model = graphs.model("x -> y", {
      { "s = Shape(x)" }, { "n = Gather(s, last)" }, { "r = Range(start, n, step)" },
      { "rows = Unsqueeze(r, axis)" }, { "seen = LessOrEqual(r, rows)" },
      { "square = Expand(n, two)" }, { "blank = ConstantOfShape(square)" },
      { "low = Constant()", { value_float = -100.0 } }, { "hidden = Add(blank, low)" },
      { "mask = Where(seen, blank, hidden)" }, { "y = Add(x, mask)" },
    }, { last = ints(-1), start = ints(0), step = ints(1), axis = ints({ 1 }), two = ints({ 2 }) })
    local x = torch.rand({ 3, 3 })
    helper.near(graphs.both(model, { x }), x - 100 * torch.ones({ 3, 3 }):triu(1))
    local step = text(model, { x })
    assert(step:find("add(", 1, true), step)
    for _, name in ipairs({ "where", "arange", "le(", "expand", "full" }) do
      assert(not step:find(name, 1, true), step)
    end
  end)
end)

describe("deep models", function()
  -- The work of loading and running a chain of so many nodes.
  local function work(count)
    local nodes = {}
    for i = 1, count do
      nodes[i] = { op_type = i % 2 == 0 and "Identity" or "Flatten", name = "n" .. i,
        input = { "v" .. i - 1 }, output = { "v" .. i } }
    end
    local graph = { name = "g", node = nodes, input = { { name = "v0" } },
      output = { { name = "v" .. count } } }
    local model = { ir_version = proto.IR_VERSION, opset_import = { { version = 13 } },
      graph = graph }
    return helper.work(function()
      onnx.load(model)(torch.rand({ 2, 2 }))
    end)
  end

  it("are loaded in linear time", function()
    local short, long = work(1000), work(8000)
    assert(long < 8 * 1.5 * short, ("%d and %d"):format(short, long))
  end)
end)
