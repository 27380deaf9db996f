-- Reductions, places of extremes, running sums, against loops over the elements.
local both = require("spec.lupine.onnx.both")
local helper = require("spec.helper")
local torch = require("torch")

local FLOATS = { torch.float64, torch.float32, torch.float16, torch.bfloat16 }
local LOOSE = { [torch.float64] = { 1e-9, 1e-9 }, [torch.float32] = { 1e-5, 1e-5 },
  [torch.float16] = { 5e-3, 5e-3 }, [torch.bfloat16] = { 5e-2, 5e-2 } }

local function total(list, fn)
  local sum = 0
  for _, x in ipairs(list) do
    sum = sum + fn(x)
  end
  return sum
end

local function same(x)
  return x
end

local function square(x)
  return x * x
end

-- Name -> what a list of numbers reduces to.
local FORMULAS = {
  ReduceL1 = function(list)
    return total(list, math.abs)
  end,
  ReduceL2 = function(list)
    return math.sqrt(total(list, square))
  end,
  ReduceLogSum = function(list)
    return math.log(total(list, same))
  end,
  ReduceLogSumExp = function(list)
    return math.log(total(list, math.exp))
  end,
  ReduceMax = function(list)
    return math.max(table.unpack(list))
  end,
  ReduceMean = function(list)
    return total(list, same) / #list
  end,
  ReduceMin = function(list)
    return math.min(table.unpack(list))
  end,
  ReduceProd = function(list)
    local product = 1
    for _, x in ipairs(list) do
      product = product * x
    end
    return product
  end,
  ReduceSum = function(list)
    return total(list, same)
  end,
  ReduceSumSquare = function(list)
    return total(list, square)
  end,
}

-- fn of the elements over axes, for each place of the others.
local function by_loops(x, axes, fn)
  local reduced, rest = {}, {}
  for _, axis in ipairs(axes) do
    reduced[axis % x:dim()] = true
  end
  local order, rows = {}, 1
  for d = 0, x:dim() - 1 do
    if not reduced[d] then
      order[#order + 1] = d
      rows = rows * x:size(d)
    end
  end
  for d = 0, x:dim() - 1 do
    if reduced[d] then
      order[#order + 1] = d
    end
  end
  local list = both.flat(x:permute(order))
  local each = #list // rows
  for row = 1, rows do
    rest[row] = fn({ table.unpack(list, (row - 1) * each + 1, row * each) })
  end
  return rest
end

local AXES = { { 0 }, { 1 }, { -1 }, { 0, 2 }, { -1, -3 }, { 2, 0, 1 } }

local function shape_of(x, axes, keep)
  local reduced, sizes = {}, {}
  for _, axis in ipairs(axes) do
    reduced[axis % x:dim()] = true
  end
  for d = 0, x:dim() - 1 do
    if not reduced[d] or keep then
      sizes[#sizes + 1] = reduced[d] and 1 or x:size(d)
    end
  end
  return sizes
end

describe("reductions", function()
  local ALL = { 0, 1, 2 }

  for name, fn in pairs(FORMULAS) do
    it(name .. " goes over axes of an attribute", function()
      torch.manual_seed(6)
      local x = torch.rand({ 2, 3, 4 }) + 0.5
      for _, axes in ipairs(AXES) do
        for keep = 0, 1 do
          local y = both(name, { x }, { axes = axes, keepdims = keep }, { version = 11 })
          both.near(y, by_loops(x, axes, fn), { 1e-4, 1e-5 })
          assert.same(shape_of(x, axes, keep == 1), setmetatable({ table.unpack(y.shape) }, nil))
        end
      end
      both.near(both(name, { x }, nil, { version = 7 }), by_loops(x, ALL, fn), { 1e-4, 1e-5 })
    end)

    it(name .. " goes over axes of an input", function()
      torch.manual_seed(7)
      local x = torch.rand({ 2, 3, 4 }) + 0.5
      local options = { version = name == "ReduceSum" and 13 or 18, constants = { [2] = true } }
      for _, axes in ipairs(AXES) do
        local y = both(name, { x, torch.tensor(axes) }, { keepdims = 0 }, options)
        both.near(y, by_loops(x, axes, fn), { 1e-4, 1e-5 })
      end
      local none = torch.zeros({ 0 }, { dtype = torch.int64 })
      both.near(both(name, { x, none }, nil, options), by_loops(x, ALL, fn), { 1e-4, 1e-5 })
      both.near(both(name, { x }, nil, options), by_loops(x, ALL, fn), { 1e-4, 1e-5 })
      local y = both(name, { x, none }, { noop_with_empty_axes = 1 }, options)
      both.near(y, both.map(function(element)
        return fn({ element })
      end, x), { 1e-4, 1e-5 })
    end)

    it(name .. " keeps its type and has gradients", function()
      torch.manual_seed(8)
      local x = torch.rand({ 2, 3 }) + 0.5
      for _, dtype in ipairs(FLOATS) do
        local y = both(name, { x:to(dtype) }, { axes = { 1 } }, { version = 11 })
        assert.equal(dtype, y.dtype)
        both.near(y, by_loops(x:to(dtype), { 1 }, fn), LOOSE[dtype])
      end
      local whole = torch.tensor({ { 1, 2, 3 }, { 4, 1, 1 } })
      for _, dtype in ipairs({ torch.int32, torch.int64 }) do
        local y = both(name, { whole:to(dtype) }, { axes = { 1 } }, { version = 11 })
        assert.equal(dtype, y.dtype)
        both.near(y, by_loops(whole, { 1 }, function(list)
          return math.floor(fn(list))
        end))
      end
      both.gradients(name, { x }, { axes = { 0 } }, { version = 12 })
    end)
  end

  it("take scalars, and sums of nothing", function()
    assert.equal(3, both("ReduceSum", { torch.tensor(3.0) }):item())
    assert.equal(9, both("ReduceSumSquare", { torch.tensor(3.0) }):item())
    assert.equal(3, both("ReduceProd", { torch.tensor(3.0) }):item())
    local y = both("ReduceSum", { torch.ones({ 0, 2 }) }, { axes = { 0 } }, { version = 11 })
    assert.same({ { 0, 0 } }, y:tolist())
  end)

  it("refuse axes that are not there, or twice", function()
    local x = torch.ones({ 2, 3 })
    both.refuses("attribute 'axes' is 2. Allowed: -2 to 1", "ReduceMax", { x }, { axes = { 2 } })
    both.refuses("attribute 'axes' names dimension 1 twice", "ReduceMax", { x },
      { axes = { 1, -1 } })
    both.refuses("input 'axes' is -3. Allowed: -2 to 1", "ReduceSum", { x, torch.tensor({ -3 }) })
    both.refuses("attribute 'axes' is 0, and the tensor is a scalar", "ReduceMax",
      { torch.tensor(1.0) }, { axes = { 0 } })
    both.refuses("attribute 'keepdims' is 2. Allowed: 0, 1", "ReduceMin", { x }, { keepdims = 2 })
    both.refuses("ReduceSum has no attribute 'axes'", "ReduceSum", { x }, { axes = { 0 } })
  end)

  it("need axes of an input when they are compiled", function()
    helper.refuses("ValueError", "input 'axes' %('x2'%) must be a constant",
      require("spec.lupine.onnx.node").run, "ReduceSum", { torch.ones({ 2 }),
        torch.tensor({ 0 }) }, nil, { compiled = true })
  end)
end)

describe("ArgMax and ArgMin", function()
  local function place(better, last)
    return function(list)
      local at = 1
      for i, x in ipairs(list) do
        at = (better(x, list[at]) or last and x == list[at]) and i or at
      end
      return at - 1
    end
  end

  local BETTER = {
    ArgMax = function(a, b)
      return a > b
    end,
    ArgMin = function(a, b)
      return a < b
    end,
  }

  for name, better in pairs(BETTER) do
    it(name .. " gives the first or the last of equal elements", function()
      torch.manual_seed(9)
      local x = torch.randint(0, 3, { 3, 4, 5 })
      for _, dtype in ipairs({ torch.float32, torch.float16, torch.int32, torch.uint8 }) do
        for axis = -3, 2 do
          local y = both(name, { x:to(dtype) }, { axis = axis, keepdims = 0 }, { version = 11 })
          assert.equal(torch.int64, y.dtype)
          both.near(y, by_loops(x, { axis }, place(better, false)))
          y = both(name, { x:to(dtype) }, { axis = axis, select_last_index = 1 })
          assert.equal(1, y:size(axis))
          both.near(y, by_loops(x, { axis }, place(better, true)))
        end
      end
      assert.same({ 1, 4, 5 }, { table.unpack(both(name, { x }, nil, { version = 1 }).shape) })
      both.refuses("attribute 'axis' is 3", name, { x }, { axis = 3 })
      both.refuses("has no attribute 'select_last_index'", name, { x }, { select_last_index = 1 },
        { version = 11 })
    end)
  end
end)

describe("TopK", function()
  local x = torch.tensor({ { 3.0, 1, 3, 2 }, { 0, 5, 5, 5 } })

  it("gives the largest elements, the first of equal ones first", function()
    local values, indices = both("TopK", { x }, { k = 3 }, { version = 1, outputs = 2 })
    assert.same({ { 3, 3, 2 }, { 5, 5, 5 } }, values:tolist())
    assert.same({ { 0, 2, 3 }, { 1, 2, 3 } }, indices:tolist())
    for _, version in ipairs({ 10, 11 }) do
      values, indices = both("TopK", { x, torch.tensor({ 1 }) }, { axis = 0 },
        { version = version, outputs = 2, constants = { [2] = true } })
      assert.same({ { 3, 5, 5, 5 } }, values:tolist())
      assert.same({ { 0, 1, 1, 1 } }, indices:tolist())
    end
  end)

  it("gives the smallest elements in every type", function()
    for _, dtype in ipairs({ torch.float32, torch.float16, torch.int32, torch.int64,
      torch.uint8 }) do
      local values, indices = both("TopK", { x:to(dtype), torch.tensor({ 2 }) }, { largest = 0,
        axis = -1 }, { outputs = 2, constants = { [2] = true } })
      assert.equal(dtype, values.dtype)
      assert.same({ { 1, 2 }, { 0, 5 } }, values:tolist())
      assert.same({ { 1, 3 }, { 0, 1 } }, indices:tolist())
    end
    both.gradients("TopK", { torch.tensor({ 4.0, 2, 3 }), torch.tensor({ 2 }) }, nil,
      { outputs = 2 })
  end)

  it("refuses more than there are", function()
    both.refuses("input 'K' is 5. Allowed: 0 to 4", "TopK", { x, torch.tensor({ 5 }) }, nil,
      { outputs = 2 })
    both.refuses("attribute 'k' is 3. Allowed: 0 to 2", "TopK", { x }, { k = 3, axis = 0 },
      { outputs = 2, version = 9 })
    both.refuses("input 'K' has 2 elements. Allowed: 1", "TopK", { x, torch.tensor({ 1, 2 }) },
      nil, { outputs = 2 })
  end)
end)

describe("CumSum", function()
  local function running(list, exclusive, reverse)
    local out, sum = {}, 0
    for i = reverse and #list or 1, reverse and 1 or #list, reverse and -1 or 1 do
      out[i] = exclusive and sum or sum + list[i]
      sum = sum + list[i]
    end
    return out
  end

  it("sums with and without its own element, from both ends, in every type", function()
    local x = torch.tensor({ { 1, 2, 3, 4 }, { 5, 6, 7, 8 } })
    for _, dtype in ipairs({ torch.float32, torch.float64, torch.float16, torch.bfloat16,
      torch.int32, torch.int64 }) do
      for mode = 0, 3 do
        local exclusive, reverse = mode % 2, mode // 2
        local y = both("CumSum", { x:to(dtype), torch.tensor(-1) }, { exclusive = exclusive,
          reverse = reverse }, { version = 11, constants = { [2] = true } })
        assert.equal(dtype, y.dtype)
        for row = 0, 1 do
          both.near(y[row], running(both.flat(x[row]), exclusive == 1, reverse == 1))
        end
      end
    end
    local y = both("CumSum", { x, torch.tensor({ 0 }, { dtype = torch.int32 }) }, nil,
      { constants = { [2] = true } })
    assert.same({ { 1, 2, 3, 4 }, { 6, 8, 10, 12 } }, y:tolist())
  end)

  it("has gradients and names a wrong axis", function()
    local options = { constants = { [2] = true } }
    both.gradients("CumSum", { torch.randn({ 2, 3 }), torch.tensor(1) }, { exclusive = 1,
      reverse = 1 }, options)
    both.refuses("input 'axis' is 2. Allowed: -2 to 1", "CumSum", { torch.ones({ 2, 2 }),
      torch.tensor(2) })
    local empty = both("CumSum", { torch.ones({ 0, 2 }), torch.tensor(0) }, { exclusive = 1 },
      options)
    assert.equal(0, empty:numel())
  end)
end)
