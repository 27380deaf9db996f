-- Operators of ONNX at indices, against loops over elements.
local both = require("spec.lupine.onnx.both")
local graphs = require("spec.lupine.onnx.graphs")
local helper = require("spec.helper")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

local I64 = { dtype = torch.int64 }

local function ints(list)
  return torch.tensor(list, I64)
end

local function indices(size, shape)
  return torch.randint(-size, size, shape, I64)
end

local function shape_of(t)
  return table.concat({ table.unpack(t.shape) }, ",")
end

-- All tuples of places in a shape.
local function places(shape)
  local list = { {} }
  for _, size in ipairs({ table.unpack(shape) }) do
    local longer = {}
    for _, place in ipairs(list) do
      for i = 0, size - 1 do
        longer[#longer + 1] = { table.unpack(place) }
        table.insert(longer[#longer], i)
      end
    end
    list = longer
  end
  return list
end

-- The element at the place, or the part that fewer indices leave.
local function at(t, place)
  for _, i in ipairs(place) do
    t = t[i]
  end
  return t
end

-- Indices known now, and those that only a run knows.
local WAYS = { { constants = { [2] = true } }, {} }

describe("Gather", function()
  it("takes slices, of any axis", function()
    for axis = -3, 2 do
      for _, shape in ipairs({ {}, { 3 }, { 2, 2 } }) do
        local x = torch.rand({ 3, 4, 2 })
        local index = indices(x:size(axis), shape)
        for _, way in ipairs(WAYS) do
          local y = both("Gather", { x, index }, { axis = axis }, way)
          local d = axis < 0 and axis + 3 or axis
          for _, place in ipairs(places(index.shape)) do
            local i = at(index, place):item()
            local part = x:select(d, i < 0 and i + x:size(d) or i)
            local got = y
            for _, p in ipairs(place) do
              got = got:select(d, p)
            end
            helper.near(got, part)
          end
        end
      end
    end
    helper.raises("IndexError", "out of bounds", function()
      node("Gather", { torch.rand({ 2 }), ints({ 2 }) })
    end)
  end)

  it("has gradients, and sums those of a row taken twice", function()
    both.gradients("Gather", { torch.rand({ 3, 2 }), ints({ 0, -1, 2 }) })
    both.gradients("GatherElements", { torch.rand({ 3, 2 }), ints({ { 0, -1 }, { 0, 1 } }) })
    both.gradients("GatherND", { torch.rand({ 3, 2 }), ints({ { 0, 1 }, { -3, 1 } }) })
  end)

  it("Elements takes one element each", function()
    for axis = -2, 1 do
      local x = torch.rand({ 4, 3 })
      local index = indices(x:size(axis), { 2, 3 })
      for _, way in ipairs(WAYS) do
        local y = both("GatherElements", { x, index }, { axis = axis }, way)
        for _, place in ipairs(places(y.shape)) do
          local i = at(index, place):item()
          local from = { table.unpack(place) }
          from[axis % 2 + 1] = i
          assert.equal(at(x, from):item(), at(y, place):item())
        end
      end
    end
  end)

  it("ND takes parts by tuples, in batches", function()
    local x = torch.rand({ 2, 3, 4 })
    for batch = 0, 2 do
      for last = 1, 3 - batch do
        local shape = { 2, 3, 5 }
        shape = { table.unpack(shape, 1, batch) }
        shape[#shape + 1] = 2
        local parts = {}
        for k = 1, last do
          parts[k] = indices(x:size(batch + k - 1), shape)
        end
        local index = torch.stack(parts, -1)
        for _, way in ipairs(WAYS) do
          local y = both("GatherND", { x, index }, { batch_dims = batch }, way)
          for _, place in ipairs(places(shape)) do
            local from = { table.unpack(place, 1, batch) }
            for k = 1, last do
              from[batch + k] = at(parts[k], place):item()
            end
            helper.near(at(y, place), at(x, from))
          end
        end
      end
    end
    both.refuses("indices of 4 numbers for the 3 dimensions", "GatherND",
      { x, ints({ { 0, 0, 0, 0 } }) })
    both.refuses("batch_dims is 3, the data has 3 dimensions", "GatherND", { x, ints({ { 0 } }) },
      { batch_dims = 3 })
  end)
end)

describe("Scatter", function()
  local JOIN = { none = function(_, b) return b end, add = function(a, b) return a + b end,
    mul = function(a, b) return a * b end }

  it("Elements writes, adds or multiplies one element each", function()
    for _, reduction in ipairs({ "none", "add", "mul" }) do
      for axis = -2, 1 do
        local x, updates = torch.rand({ 4, 3 }):double(), torch.rand({ 2, 3 }):double()
        local index = indices(x:size(axis), { 2, 3 })
        if reduction == "none" then -- none twice
          index = axis % 2 == 0 and ints({ { 3, -2, 0 }, { 1, 0, -1 } })
            or ints({ { 2, 0, 1 }, { -1, -2, 0 } })
        end
        local want = x:clone()
        for _, place in ipairs(places(index.shape)) do
          local to = { table.unpack(place) }
          to[axis % 2 + 1] = at(index, place):item() % x:size(axis)
          local row = want[to[1]]
          row[to[2]] = JOIN[reduction](row[to[2]]:item(), at(updates, place):item())
        end
        for _, way in ipairs(WAYS) do
          helper.near(both("ScatterElements", { x, index, updates },
            { axis = axis, reduction = reduction }, way), want)
        end
        if reduction == "none" then
          helper.near(both("Scatter", { x, index, updates }, { axis = axis }, { version = 9 }),
            want)
        end
      end
    end
    both.refuses("reduction 'max'. Allowed: none, add, mul", "ScatterElements",
      { torch.rand({ 2 }), ints({ 0 }), torch.rand({ 1 }) }, { reduction = "max" })
  end)

  it("ND writes, adds or multiplies parts by tuples", function()
    for _, reduction in ipairs({ "none", "add", "mul" }) do
      for last = 1, 2 do
        local x = torch.rand({ 3, 4, 2 }):double()
        local index = reduction == "none" and ints({ { -1, 3 }, { 1, -2 } }):narrow(1, 0, last)
          or torch.stack({ indices(3, { 2 }), indices(4, { 2 }) }, -1):narrow(1, 0, last)
        index = index:contiguous()
        local updates = torch.rand({ 2, table.unpack(x.shape, last + 1) }):double()
        local want = x:clone()
        for i = 0, 1 do
          local part = at(want, index[i]:tolist())
          part:copy_(JOIN[reduction](part:clone(), updates[i]))
        end
        for _, way in ipairs(WAYS) do
          helper.near(both("ScatterND", { x, index, updates }, { reduction = reduction }, way),
            want)
        end
      end
    end
  end)

  it("has gradients", function()
    local x, index, updates = torch.rand({ 3, 2 }), ints({ { 2 }, { 0 } }), torch.rand({ 2, 2 })
    for _, reduction in ipairs({ "none", "add", "mul" }) do
      both.gradients("ScatterND", { x, index, updates }, { reduction = reduction })
      both.gradients("ScatterElements", { x, ints({ { 0, 2 }, { -2, 1 } }), updates },
        { reduction = reduction })
    end
  end)
end)

describe("OneHot", function()
  it("has one value where the class is, another elsewhere", function()
    for axis = -3, 2 do
      local index = torch.randint(-6, 7, { 2, 3 })
      local values = torch.tensor({ -1.0, 3.0 })
      for _, kind in ipairs({ torch.int64, torch.float32 }) do
        local y = both("OneHot", { index:to(kind), ints({ 5 }), values }, { axis = axis },
          { constants = { [2] = true } })
        local d = axis % 3
        for _, place in ipairs(places(y.shape)) do
          local rest = { table.unpack(place) }
          local class = table.remove(rest, d + 1)
          local i = math.tointeger(at(index, rest):item())
          local hit = i == class or i + 5 == class
          assert.equal(hit and 3 or -1, at(y, place):item())
        end
      end
    end
    both.refuses("values has 3 elements, allowed are 2", "OneHot",
      { ints({ 1 }), ints({ 5 }), ints({ 1, 2, 3 }) }, {})
  end)
end)

describe("what has as many elements as the data says", function()
  it("is found eagerly", function()
    local x = torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 }, { 5.0, 6.0 } })
    -- source: ONNX, Operators.md, examples of Compress and Unique
    helper.near(node("Compress", { x, torch.tensor({ false, true, true }) }, { axis = 0 }),
      { { 3.0, 4.0 }, { 5.0, 6.0 } })
    helper.near(node("Compress", { x, torch.tensor({ false, true }) }, { axis = 1 }),
      { { 2.0 }, { 4.0 }, { 6.0 } })
    helper.near(node("Compress", { x, torch.tensor({ false, true, false, false, true }) }),
      { 2.0, 5.0 })
    helper.near(node("NonZero", { torch.tensor({ { 1, 0 }, { 1, 1 } }) }),
      { { 0, 1, 1 }, { 0, 0, 1 } })
    local y, first, inverse, counts = node("Unique", { torch.tensor({ 2.0, 1.0, 1.0, 3.0, 4.0,
      3.0 }) }, { sorted = 0 }, { outputs = 4 })
    helper.near(y, { 2.0, 1.0, 3.0, 4.0 })
    helper.near(first, { 0, 1, 3, 4 })
    helper.near(inverse, { 0, 1, 1, 2, 3, 2 })
    helper.near(counts, { 1, 2, 2, 1 })
    y, first, inverse, counts = node("Unique", { torch.tensor({ { 1.0, 0.0, 0.0 },
      { 1.0, 0.0, 0.0 }, { 2.0, 3.0, 4.0 } }) }, { axis = 0 }, { outputs = 4 })
    helper.near(y, { { 1.0, 0.0, 0.0 }, { 2.0, 3.0, 4.0 } })
    helper.near(first, { 0, 2 })
    helper.near(inverse, { 0, 0, 1 })
    helper.near(counts, { 2, 1 })
  end)

  it("is a constant of a program if the data is one", function()
    local model = graphs.model("x -> y, z", {
      { "y = Compress(x, which)", { axis = 1 } }, { "at = NonZero(which)" },
      { "z = Gather(x, at)", { axis = 1 } },
    }, { which = torch.tensor({ true, false, true }) })
    local x = torch.rand({ 2, 3 })
    local y, z = graphs.both(model, { x })
    assert.equal("2,2 2,1,2", shape_of(y) .. " " .. shape_of(z))
  end)

  it("is refused where only a run knows", function()
    for op, inputs in pairs({ NonZero = { ints({ 1, 0 }) }, Unique = { torch.rand({ 3 }) },
      Compress = { torch.rand({ 2 }), torch.tensor({ true, false }) } }) do
      helper.raises("RuntimeError", op .. ".*cannot be compiled", function()
        node(op, inputs, {}, { compiled = true })
      end)
    end
  end)
end)
