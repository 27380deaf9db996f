-- Reading and writing by index, sorting and searching, against loops in Lua.
local helper = require("spec.helper")
local torch = require("torch")
local near, raises = helper.near, helper.raises

describe("an index", function()
  it("selects rows and gets their gradients added up", function()
    local w = torch.tensor({ { 1.0, 2 }, { 3, 4 }, { 5, 6 } }):requires_grad_(true)
    local y = w:index_select(0, torch.tensor({ 2, 0, 2 }))
    near(y, { { 5, 6 }, { 1, 2 }, { 5, 6 } })
    y:sum():backward()
    near(w.grad, { { 1, 1 }, { 0, 0 }, { 2, 2 } })
  end)

  it("outside the size is an error naming value, size and position", function()
    raises("IndexError", "index 7 is out of bounds .* with size 3 %(at position 1", function()
      torch.zeros({ 3 }):index_select(0, torch.tensor({ 0, 7 }))
    end)
    raises("RuntimeError", "index 3 is out of bounds for dimension 1 with size 3", function()
      torch.zeros({ 2, 3 }):gather(1, torch.tensor({ { 3 } }))
    end)
  end)

  it("gathers and scatters along one dimension", function()
    local x = torch.tensor({ { 1, 2, 3 }, { 4, 5, 6 } })
    local i = torch.tensor({ { 2, 0 }, { 1, 1 } })
    near(x:gather(1, i), { { 3, 1 }, { 5, 5 } })
    local z = torch.zeros({ 2, 3 }, { dtype = torch.int64 })
    near(z:scatter(1, i, 9), { { 9, 0, 9 }, { 0, 9, 0 } })
    near(z:scatter_add(1, i, torch.tensor({ { 1, 2 }, { 3, 4 } })), { { 2, 0, 1 }, { 0, 7, 0 } })
  end)

  it("adds half values in float, so that small ones are not lost", function()
    local z = torch.full({ 1 }, 2048, { dtype = torch.float16 })
    local ones = torch.ones({ 2048 }, { dtype = torch.float16 })
    local at = torch.zeros({ 2048 }, { dtype = torch.int64 })
    near(z:index_add(0, at, ones), { 4096 }, { 0, 0 })
    near(z:scatter_add(0, at, ones), { 4096 }, { 0, 0 })
  end)

  it("of several tensors broadcasts, and masks count their true places", function()
    local x = torch.arange(12):view({ 3, 4 })
    near(x[{ torch.tensor({ { 0 }, { 2 } }), torch.tensor({ 1, -1 }) }], { { 1, 3 }, { 9, 11 } })
    near(x[x:gt(8)], { 9, 10, 11 })
    x[x:gt(8)] = 0
    assert.equal(36, x:sum():item())
    near(torch.nonzero(torch.tensor({ { 0, 1 }, { 2, 0 } })), { { 0, 1 }, { 1, 0 } })
  end)

  it("is the same for any number of threads", function()
    torch.manual_seed(3)
    local src = torch.randn({ 5000, 64 })
    local at = torch.randint(0, 7, { 5000 })
    local function sums(n)
      torch.set_num_threads(n)
      return torch.zeros({ 7, 64 }):index_add(0, at, src)
    end
    local before = torch.get_num_threads()
    local a, b = sums(1), sums(4)
    torch.set_num_threads(before)
    near(a, b, { 0, 0 })
  end)
end)

describe("sorting", function()
  it("of many values is stable and orders every type, up and down", function()
    local n = 5000
    torch.manual_seed(3)
    local ints = torch.randint(-40, 40, { n })
    local wide = torch.tensor({ math.mininteger, math.maxinteger, 0, -1 }):repeat_interleave(n // 4)
    local reals = torch.randn(n)
    reals[17], reals[18], reals[19] = 0 / 0, -math.huge, math.huge
    reals["20:30"], reals["30:40"] = 0.0, -0.0
    for _, x in ipairs({ ints, wide, reals, reals:double(), reals:bfloat16(),
      ints:to(torch.uint8) }) do
      local list = x:tolist()
      for _, down in ipairs({ false, true }) do
        local function above(a, b) -- NaN above all
          if a ~= a or b ~= b then
            return a ~= a and b == b
          end
          return a > b
        end
        local want = {}
        for i = 1, #list do
          want[i] = i
        end
        table.sort(want, function(i, j)
          local a, b = list[i], list[j]
          if above(a, b) or above(b, a) then
            return above(a, b) == down
          end
          return i < j
        end)
        for i = 1, #want do
          want[i] = want[i] - 1
        end
        local values, at = torch.sort(x, { descending = down, stable = true })
        assert.same(want, at:tolist())
        assert.same(x[at]:nan_to_num():tolist(), values:nan_to_num():tolist())
      end
    end
  end)

  it("finds the different values of many", function()
    torch.manual_seed(4)
    local x = torch.randint(-300, 300, { 50, 200 })
    local values, inverse, counts = torch.unique(x,
      { return_inverse = true, return_counts = true })
    local seen = {}
    for _, v in ipairs(x:flatten():tolist()) do
      seen[v] = (seen[v] or 0) + 1
    end
    local want, times = {}, {}
    for v in pairs(seen) do
      want[#want + 1] = v
    end
    table.sort(want)
    for i, v in ipairs(want) do
      times[i] = seen[v]
    end
    assert.same(want, values:tolist())
    assert.same(times, counts:tolist())
    assert.is_true(torch.equal(values[inverse], x))
  end)

  it("is stable, puts NaN last and knows its positions", function()
    local v, i = torch.sort(torch.tensor({ 2.0, 0 / 0, 1, 2, -0.0, 0.0 }))
    near(v["0:5"], { 0, 0, 1, 2, 2 })
    near(i, { 4, 5, 2, 0, 3, 1 })
    near(torch.argsort(torch.tensor({ 1, 3, 1 }), 0, true), { 1, 0, 2 })
    local zeros = torch.tensor({ 0.0, -0.0, 0.0, -1.0, -0.0 }) -- zeros are equal
    near(torch.argsort(zeros), { 3, 0, 1, 2, 4 })
    near(torch.argsort(zeros, 0, true), { 0, 1, 2, 4, 3 })
  end)

  it("keeps equal elements of long rows in their order", function()
    -- 1000 elements of 7 values: those of value v stand at v, v + 7, v + 14, …
    local x = torch.arange(1000) % 7
    for _, down in ipairs({ false, true }) do
      local want = {}
      for v = 0, 6 do
        for at = down and 6 - v or v, 999, 7 do
          want[#want + 1] = at
        end
      end
      near(torch.argsort(x, 0, down, true), want)
      near(torch.argsort(x:double(), 0, down, true), want)
    end
  end)

  it("takes the first of equal elements of long rows", function()
    local x = torch.arange(1000) % 7
    near(select(2, torch.topk(x, 5)), { 6, 13, 20, 27, 34 })
    near(select(2, torch.topk(x, 5, 0, false)), { 0, 7, 14, 21, 28 })
    near(select(2, torch.topk(torch.zeros({ 40 }):neg(), 3)), { 0, 1, 2 })
  end)

  it("finds the largest and the smallest few of long rows", function()
    local x = {}
    for k = 0, 999 do
      x[k + 1] = (k * 7919) % 1000
    end
    near(torch.topk(torch.tensor(x), 3), { 999, 998, 997 })
    near(torch.topk(torch.tensor(x), 3, 0, false), { 0, 1, 2 })
  end)

  it("searches between boundaries", function()
    local edges = torch.tensor({ 1, 3, 5 })
    local v = torch.tensor({ 0, 1, 4, 6 })
    near(torch.searchsorted(edges, v), { 0, 0, 2, 3 })
    near(torch.bucketize(v, edges, { right = true }), { 0, 1, 2, 3 })
    near(torch.bincount(torch.tensor({ 1, 1, 4 })), { 0, 2, 0, 0, 1 })
  end)

  it("searches beyond NaN, and beyond all for it, as PyTorch does", function()
    local nan = 0 / 0
    local v = torch.tensor({ nan, 3, 1, 2 })
    for _, right in ipairs({ false, true }) do
      near(torch.searchsorted(torch.tensor({ 1, 2, nan, nan }), v, { right = right }),
        { 4, 4, 4, 4 })
    end
    near(torch.searchsorted(torch.tensor({ nan, 1, 2 }), v), { 3, 3, 1, 2 })
    near(torch.bucketize(torch.tensor({ nan }), torch.tensor({ 1, nan })), { 2 })
    local last = torch.tensor({ math.maxinteger })
    near(torch.searchsorted(last, last), { 0 })
  end)

  it("neither searches nor compares among truth values", function()
    local b = torch.tensor({ false, true })
    raises("NotImplementedError", "isin%(%): Bool", function()
      torch.isin(b, b)
    end)
    raises("NotImplementedError", "isin%(%): Bool", function()
      torch.isin(torch.tensor({ 1, 0 }), b)
    end)
    raises("NotImplementedError", "'Bool'", function()
      torch.searchsorted(b, b)
    end)
    raises("NotImplementedError", "'Bool'", function()
      torch.bucketize(b, b)
    end)
    near(torch.searchsorted(b, torch.tensor({ 1, 2 })), { 1, 2 })
  end)

  -- dtypes of indices as PyTorch 2.15 takes them; of an empty one any
  it("of a dtype that holds no positions is refused", function()
    local x = torch.zeros({ 3, 4 })
    for _, name in ipairs({ "uint8", "int8", "int16", "bool" }) do
      local at, rows = torch.zeros({ 3, 4 }):to(torch[name]), torch.zeros({ 3 }):to(torch[name])
      for _, f in ipairs({
        function() return x:gather(0, at) end, function() return x:scatter(0, at, 1.0) end,
        function() return x:index_select(0, rows) end, function() return x:take(rows) end,
        function() return x:index_add(0, rows, x) end,
        function() return torch.nn.functional.embedding(rows, x) end,
        function() return torch.nn.functional.one_hot(rows) end,
      }) do
        raises("RuntimeError", "int64", f)
      end
    end
    for _, f in ipairs({ "index_copy", "index_fill" }) do
      raises("RuntimeError", f .. "_%(%): index has the type int32; it must be int64", function()
        return x[f](x, 0, torch.zeros({ 3 }):int(), f == "index_copy" and x or 1)
      end)
    end
    assert.equal(0, x[torch.zeros({ 3 }):to(torch.uint8)]:size(0)) -- a mask, as once
    raises("IndexError", "int64, int32 or bool, not int16", function()
      return x[torch.zeros({ 3 }):to(torch.int16)]
    end)
    assert.same({ 0 }, { table.unpack(torch.zeros({ 3 }):gather(0,
      torch.zeros({ 0 }):to(torch.uint8)).shape) })
  end)
end)

describe("places by a mask or an index of many elements", function()
  it("move elements of every size, in order", function()
    torch.manual_seed(5)
    local mask, at = torch.rand({ 40, 30 }):lt(0.4), torch.randint(-1200, 1200, { 37, 7 })
    local set, places = mask:flatten():tolist(), at:flatten():tolist()
    for _, dtype in ipairs({ torch.uint8, torch.float16, torch.float32, torch.int64 }) do
      local x = (torch.arange(1200) % 100):to(dtype):view({ 40, 30 })
      local source = (torch.arange(1200) % 90 + 100):to(dtype)
      local filled, taken, used = {}, {}, 0
      for i = 0, 1199 do
        filled[i + 1] = set[i + 1] and 100 + used % 90 or i % 100
        used = used + (set[i + 1] and 1 or 0)
      end
      for i, p in ipairs(places) do
        taken[i] = p % 1200 % 100
      end
      assert.same(filled, x:masked_scatter(mask, source):flatten():long():tolist())
      assert.same(taken, x:take(at):flatten():long():tolist())
    end
    raises("IndexError", "index 1200 is out of bounds", function()
      return torch.zeros(1200):take(torch.tensor({ { 0, 1 }, { -1200, 1200 } }))
    end)
  end)
end)
