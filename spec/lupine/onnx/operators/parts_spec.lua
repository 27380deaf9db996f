-- Concat, Split, Slice, Pad and ReverseSequence of ONNX, against loops over elements.
local both = require("spec.lupine.onnx.both")
local helper = require("spec.helper")
local torch = require("torch")

local random = math.random

local function ints(list)
  return torch.tensor(list, { dtype = torch.int64 })
end

local function shape_of(t)
  return table.concat({ table.unpack(t.shape) }, ",")
end

describe("Concat and Split", function()
  local x = torch.rand({ 2, 7, 3 })

  it("are each other's inverse", function()
    for _, axis in ipairs({ 1, -2 }) do
      local a, b, c = both("Split", { x }, { axis = axis, split = { 2, 0, 5 } },
        { version = 11, outputs = 3 })
      assert.equal("2,2,3", shape_of(a))
      assert.equal("2,0,3", shape_of(b))
      assert.equal("2,5,3", shape_of(c))
      helper.near(both("Concat", { a, b, c }, { axis = axis }), x)
    end
    local parts = { both("Split", { x, ints({ 3, 4 }) }, { axis = 1 }, { outputs = 2,
      constants = { [2] = true } }) }
    helper.near(parts[2], x:narrow(1, 3, 4))
    parts = { both("Split", { x }, { axis = 2 }, { outputs = 3 }) }
    helper.near(parts[3], x:narrow(2, 2, 1))
  end)

  it("have gradients", function()
    both.gradients("Concat", { torch.rand({ 2, 1 }), torch.rand({ 2, 2 }) }, { axis = 1 })
    both.gradients("Split", { torch.rand({ 4 }) }, {}, { outputs = 2 })
  end)

  it("refuse parts that do not fit", function()
    both.refuses("axis 1 of size 7 has no 2 equal parts", "Split", { x }, { axis = 1 },
      { outputs = 2 })
    both.refuses("3 sizes of parts for 2 outputs", "Split", { x },
      { axis = 1, split = { 2, 2, 3 } }, { outputs = 2, version = 11 })
    both.refuses("attribute 'axis' is 3. Allowed: -3 to 2", "Concat", { x, x }, { axis = 3 })
  end)
end)

describe("Slice", function()
  -- The places that a slice has, as the document has them (Slice-13).
  local function places(size, first, last, step)
    local function clamp(v, low, high) return math.max(low, math.min(v, high)) end
    first, last = first < 0 and first + size or first, last < 0 and last + size or last
    first = clamp(first, 0, step > 0 and size or size - 1)
    last = step > 0 and clamp(last, 0, size) or clamp(last, -1, size - 1)
    local list = {}
    for i = first, step > 0 and last - 1 or last + 1, step do
      list[#list + 1] = i
    end
    return list
  end

  local function taken(x, axis, ...)
    return x:index_select(axis, torch.tensor(places(x:size(axis), ...), { dtype = torch.int64 }))
  end

  it("takes what its bounds say, in both directions", function()
    local huge = math.maxinteger
    local bounds = { -huge, -9, -3, -1, 0, 1, 2, 4, 9, huge }
    for _ = 1, 60 do
      local x = torch.rand({ random(5), random(6) })
      local a, b = bounds[random(#bounds)], bounds[random(#bounds)]
      local c, d = bounds[random(#bounds)], bounds[random(#bounds)]
      local s, t = ({ -3, -1, 1, 2 })[random(4)], ({ -2, -1, 1, 3 })[random(4)]
      local want = taken(taken(x, 0, a, b, s), 1, c, d, t)
      local got = both("Slice", { x, ints({ c, a }), ints({ d, b }), ints({ -1, 0 }),
        ints({ t, s }) }, {}, { constants = { [2] = true, [3] = true, [4] = true, [5] = true } })
      helper.near(got, want)
      want = taken(taken(x, 0, a, b, 1), 1, c, d, 1)
      helper.near(both("Slice", { x }, { starts = { a, c }, ends = { b, d } }, { version = 7 }),
        want)
    end
  end)

  it("has gradients", function()
    both.gradients("Slice", { torch.rand({ 5, 3 }), ints({ -1 }), ints({ -9 }), ints({ 0 }),
      ints({ -2 }) }, {}, { constants = { [2] = true, [3] = true, [4] = true, [5] = true } })
  end)

  it("refuses lists that do not fit", function()
    local x = torch.rand({ 3 })
    both.refuses("2 starts and 1 ends", "Slice", { x }, { starts = { 0, 1 }, ends = { 1 } },
      { version = 7 })
    both.refuses("the step of axis 0 is 0", "Slice", { x, ints({ 0 }), ints({ 1 }), ints({ 0 }),
      ints({ 0 }) }, {}, { version = 13 })
  end)
end)

describe("Pad", function()
  -- Where an element of a padded axis comes from; nil: nowhere.
  local function source(mode, i, size, before, behind)
    local first, last = math.max(-before, 0), size - 1 - math.max(-behind, 0)
    local at = i - before
    if at >= first and at <= last then
      return at
    elseif mode == "constant" then
      return nil
    elseif mode == "edge" or first == last then
      return at < first and first or last
    end
    while at < first or at > last do
      at = at < first and 2 * first - at or 2 * last - at
    end
    return at
  end

  it("has borders in three modes, also negative ones", function()
    for _ = 1, 40 do
      local x = torch.rand({ random(2, 5), random(2, 5) })
      local pads = { random(-1, 4), random(-1, 4), random(-1, 4), random(-1, 4) }
      local rows, columns = x:size(0) + pads[1] + pads[3], x:size(1) + pads[2] + pads[4]
      for _, mode in ipairs({ "constant", "reflect", "edge" }) do
        if pads[1] + x:size(0) > 0 and x:size(0) + math.min(pads[1], 0) + math.min(pads[3], 0) > 0
          and x:size(1) + math.min(pads[2], 0) + math.min(pads[4], 0) > 0 then
          local y = both("Pad", { x, ints(pads), torch.tensor(7.0) }, { mode = mode },
            { constants = { [2] = true, [3] = random(2) == 1 } })
          helper.near(both("Pad", { x }, { mode = mode, pads = pads, value = 7.0 },
            { version = 2 }), y)
          for i = 0, rows - 1 do
            for j = 0, columns - 1 do
              local a = source(mode, i, x:size(0), pads[1], pads[3])
              local b = source(mode, j, x:size(1), pads[2], pads[4])
              assert.equal(a and b and x[a][b]:item() or 7.0, y[i][j]:item())
            end
          end
        end
      end
    end
  end)

  it("keeps integers, flags and gradients", function()
    local one = { constants = { [2] = true, [3] = true } }
    local big = 9007199254740993 -- no double
    assert(torch.equal(both("Pad", { ints({ 3 }), ints({ 1, 0 }), ints(big) }, {}, one),
      ints({ big, 3 })))
    assert(torch.equal(both("Pad", { torch.tensor({ false }), ints({ 1, 0 }), torch.tensor(true) },
      {}, one), torch.tensor({ true, false })))
    for _, mode in ipairs({ "constant", "reflect", "edge" }) do
      both.gradients("Pad", { torch.rand({ 3, 2 }), ints({ 2, -1, 1, 2 }) }, { mode = mode },
        { constants = { [2] = true } })
    end
  end)

  it("refuses what it has not", function()
    local x = torch.rand({ 2, 2 })
    both.refuses("mode 'wrap'. Allowed: constant, reflect, edge", "Pad",
      { x, ints({ 0, 0, 0, 0 }) }, { mode = "wrap" })
    both.refuses("2 pads for 2 dimensions, allowed are 4", "Pad", { x, ints({ 0, 0 }) })
    both.refuses("the pads of axis 1 take away more than the 2 elements", "Pad",
      { x, ints({ 0, -2, 0, -1 }) })
    both.refuses("axis 1 has no elements to make a border of", "Pad", { torch.rand({ 2, 0 }),
      ints({ 0, 1, 0, 0 }) }, { mode = "edge" })
  end)
end)

describe("ReverseSequence", function()
  it("turns the first elements of each sequence round", function()
    local x = torch.rand({ 4, 3, 2 })
    local lens = { 0, 2, 4 }
    for _, way in ipairs({ { x, 0, 1 }, { x:transpose(0, 1):contiguous(), 1, 0 } }) do
      local y = both("ReverseSequence", { way[1], ints(lens) }, { time_axis = way[2],
        batch_axis = way[3] })
      y = way[2] == 0 and y or y:transpose(0, 1)
      for t = 0, 3 do
        for b = 0, 2 do
          local from = t < lens[b + 1] and lens[b + 1] - 1 - t or t
          helper.near(y[t][b], x[from][b])
        end
      end
    end
    both.gradients("ReverseSequence", { torch.rand({ 3, 2 }), ints({ 2, 3 }) })
    both.refuses("time_axis and batch_axis are both 0", "ReverseSequence", { x, ints(lens) },
      { batch_axis = 0 })
  end)
end)
