-- poptorch.fps and poptorch.nearest: PopTorch's test of nearest
-- (tests/gnn/ops/test_nearest.py), and both against loops over the points.
local device = require("spec.support.on_device")
local raises = require("spec.poptorch.helper").raises
local poptorch = require("poptorch")
local torch = require("torch")

local function ints(list)
  return torch.tensor(list, { dtype = torch.long })
end

-- On the host and on the device, as a list.
local function both(f, ...)
  local on_host, on_device = f(...), device.infer(f)(...)
  assert.same(on_host:tolist(), on_device:tolist())
  return on_host:tolist()
end

local function square(a, b)
  local sum = 0
  for i = 1, #a do
    sum = sum + (a[i] - b[i]) ^ 2
  end
  return sum
end

describe("nearest", function()
  local X = { { -1, -1 }, { -1, 1 }, { 1, 1 }, { 1, -1 }, { -2, -2 }, { -2, 2 }, { 2, 2 },
    { 2, -2 } }
  local Y = { { -1, 0 }, { 1, 0 }, { -2, 0 }, { 2, 0 } }
  local BX, BY = { 0, 0, 0, 0, 1, 1, 1, 1 }, { 0, 0, 1, 1 }

  -- The row of y that is nearest to each row of x, of those of the same batch.
  local function expected(bx, by)
    local out = {}
    for i, row in ipairs(X) do
      local best
      for k, other in ipairs(Y) do
        local near = bx[i] == by[k] and square(row, other)
        if near and (not best or near < best) then
          best, out[i] = near, k - 1
        end
      end
    end
    return out
  end

  it("test_nearest", function()
    for _, dtype in ipairs({ torch.half, torch.float, torch.double }) do
      local x, y = torch.tensor(X, { dtype = dtype }), torch.tensor(Y, { dtype = dtype })
      local apart = expected(BX, BY)
      assert.same(apart, both(function(a, b) return poptorch.nearest(a, b, BX, BY) end, x, y))
      assert.same(apart, both(poptorch.nearest, x, y, ints(BX), ints(BY)))
      assert.same(apart, both(function(a, b, c) return poptorch.nearest(a, b, BX, c) end, x, y,
        ints(BY)))
      local one_x, one_y = ints({ 0, 0, 0, 0, 0, 0, 0, 0 }), ints({ 0, 0, 0, 0 })
      local together = expected(one_x:tolist(), one_y:tolist())
      assert.same(together, both(function(a, b, c)
        return poptorch.nearest(a, b, { batch_x = c })
      end, x, y, one_x))
      assert.same(together, both(function(a, b, c)
        return poptorch.nearest(a, b, { batch_y = c })
      end, x, y, one_y))
      assert.same(together, both(poptorch.nearest, x, y))
    end
    local x, y = torch.tensor(X), torch.tensor(Y)
    for _, wrong in ipairs({ { BX, { 0, 0, 0, 0 } }, { BX, nil },
      { { 0, 0, 1, 1, 2, 2, 3, 3 }, { 0, 1, 3, 3 } }, { { 0, 0, 1, 0, 0, 0, 0, 0 }, BY },
      { BX, { 0, 0, 1, 0 } }, { { 0, 0, 1 }, BY } }) do
      raises("ValueError", poptorch.nearest, x, y, wrong[1], wrong[2])
    end
  end)

  it("takes rows of one number, and refuses others", function()
    local x, y = torch.tensor({ 0.0, 5.0, 9.0 }), torch.tensor({ 10.0, 1.0, 4.0 })
    assert.same({ 1, 2, 0 }, both(poptorch.nearest, x, y))
    raises("ValueError", poptorch.nearest, x:reshape(3, 1, 1), y)
    raises("ValueError", poptorch.nearest, x:reshape(1, 3), y)
    raises("ValueError", poptorch.nearest, x, y, ints({ 0, 0 }), ints({ 0, 0, 0 }))
    raises("Error", poptorch.nearest, 3, y)
    raises("Error", poptorch.nearest, x, 3)
    raises("Error", poptorch.nearest, x, y, 3)
    raises("Error", poptorch.nearest, x, y, { "0", 0, 0 })
  end)
end)

describe("fps", function()
  -- The farthest of the rows from those chosen, from row `first` on.
  local function farthest(rows, count, first)
    local chosen, near = { first }, {}
    for i, row in ipairs(rows) do
      near[i] = square(row, rows[first + 1])
    end
    near[first + 1] = -1
    while #chosen < count do
      local best = 1
      for i = 2, #rows do
        best = near[i] > near[best] and i or best
      end
      chosen[#chosen + 1] = best - 1
      for i, row in ipairs(rows) do
        near[i] = near[i] < 0 and near[i] or math.min(near[i], square(row, rows[best]))
      end
      near[best] = -1
    end
    return chosen
  end

  it("chooses the farthest points of every range", function()
    torch.manual_seed(2)
    for _, ratio in ipairs({ 0.5, 0.3, 1.0 }) do
      for _, ptr in ipairs({ { 0, 12 }, { 0, 5, 12 }, { 0, 1, 4, 4, 12 }, { 2, 9 } }) do
        local src, want = torch.randn(12, 3), {}
        local rows = src:tolist()
        for i = 1, #ptr - 1 do
          local part = table.move(rows, ptr[i] + 1, ptr[i + 1], 1, {})
          if #part > 0 then
            for _, k in ipairs(farthest(part, math.ceil(ratio * #part), 0)) do
              want[#want + 1] = k + ptr[i]
            end
          end
        end
        assert.same(want, both(function(x) return poptorch.fps(x, ptr, ratio) end, src))
      end
    end
  end)

  it("chooses none of several equal points twice", function()
    for _, src in ipairs({ torch.zeros(4, 2), torch.tensor({ 1.0, 1, 0, 0 }):reshape(4, 1) }) do
      local got = both(function(x) return poptorch.fps(x, { 0, 4 }, 1.0) end, src)
      assert.equal(0, got[1])
      table.sort(got)
      assert.same({ 0, 1, 2, 3 }, got)
    end
  end)

  it("may begin anywhere", function()
    torch.manual_seed(3)
    local src, first = torch.randn(10, 2), {}
    local model = device.infer(function(x)
      return poptorch.fps(x, { 0, 10 }, { ratio = 0.4, random_start = true })
    end)
    for _, run in ipairs({ model, function(x) return poptorch.fps(x, { 0, 10 }, 0.4, true) end }) do
      for _ = 1, 20 do
        local got = run(src):tolist()
        assert.same(farthest(src:tolist(), 4, got[1]), got)
        first[got[1]] = true
      end
    end
    local starts = 0
    for _ in pairs(first) do
      starts = starts + 1
    end
    assert(starts > 3, "one start in 40 draws")
  end)

  it("refuses other arguments", function()
    local src = torch.randn(6, 2)
    for _, args in ipairs({ { 3, { 0, 6 } }, { src, 6 }, { src, { 0 } }, { src, { 0, 7 } },
      { src, { 3, 2 } }, { src, { -1, 2 } }, { src, { 0, 2.5 } }, { src, { 0, 6 }, 0 },
      { src, { 0, 6 }, 1.5 }, { src, { 0, 6 }, "0.5" }, { src, { 0, 6 }, 0.5, 1 },
      { src, { 2, 2 } } }) do
      raises("Error", poptorch.fps, table.unpack(args))
    end
  end)
end)
