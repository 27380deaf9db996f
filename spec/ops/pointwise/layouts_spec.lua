--- Pointwise operators and reductions of memory in every order give what they give of
--- copies in order.
local torch = require("torch")

-- Transposed, channels last, broadcast across, narrow; each large enough for tiles.
local function operands()
  torch.manual_seed(2)
  local x = torch.randn({ 37, 70 })
  local image = torch.randn({ 2, 9, 11, 5 })
  return {
    { x:t(), torch.randn({ 37, 70 }):t() },
    { x:t(), torch.randn({ 70, 37 }) },
    { x:t(), torch.randn({ 70, 1 }) },
    { x:t(), torch.randn({ 37 }) },
    { x:t(), torch.randn({}) },
    { x:t(), torch.randn({ 37, 70 }):half():t() },
    { x:double():t(), x:t() },
    { x:gt(0):t(), x:lt(1):t() },
    { torch.randn({ 2, 5, 11, 9 }):permute({ 0, 3, 2, 1 }), image },
    { image:permute({ 0, 2, 3, 1 }), torch.randn({ 9 }) },
    { image:permute({ 3, 1, 0, 2 }), torch.randn({ 5, 9, 1, 11 }) },
    { torch.randn({ 4, 4, 4, 4, 4 }):permute({ 4, 2, 0, 1, 3 }), torch.randn({ 4, 1, 4, 1, 4 }) },
    { torch.randn({ 700, 3 }), torch.randn({ 3 }) },
    { torch.randn({ 700, 3 }), torch.randn({ 700, 1 }) },
    { torch.randn({ 700, 5 }), torch.randn({ 5 }):half() },
    { torch.randn({ 3, 5, 7, 11 }), torch.randn({ 7, 1 }) },
    { torch.randn({ 3, 5, 7, 11 }), torch.randn({ 1, 5, 1, 11 }) },
    { torch.randn({ 9, 300 }), torch.randn({ 300 }):double() },
    { torch.randn({ 70, 74 }):t():narrow(0, 3, 60), torch.randn({ 60, 70 }) },
  }
end

describe("pointwise operators of turned operands", function()
  for i, pair in ipairs(operands()) do
    it(("pair %d"):format(i), function()
      local x, y = pair[1], pair[2]
      for _, f in ipairs({
        function(a, b) return a * b end,
        function(a, b) return a:ge(b) end,
        function(a, b) return torch.where(a:gt(0), b, a) end,
        function(a) return a:exp() end,
        function(a) return a + 3 end,
        function(a) return a:to(torch.float64) end,
      }) do
        assert.is_true(torch.equal(f(x:contiguous(), y:expand_as(x):contiguous()), f(x, y)))
      end
    end)
  end

  it("in place", function()
    local x, y = torch.randn({ 40, 50 }), torch.randn({ 50, 40 })
    local want = x + y:t():contiguous()
    x:add_(y:t())
    assert.is_true(torch.equal(want, x))
    want = y + x:t():contiguous()
    y:t():add_(x)
    assert.is_true(torch.equal(want, y))
  end)
end)

describe("reductions of many short rows", function()
  local TYPES = { torch.float32, torch.float64, torch.float16, torch.int64, torch.bool }

  local function rows(n, t)
    torch.manual_seed(n)
    local x = torch.randint(-4, 5, { 600, n }):to(t)
    return { x, torch.cat({ x, x }, 1):narrow(1, 1, n), x:view({ 3, 200, n }):transpose(0, 1) }
  end

  for _, n in ipairs({ 2, 3, 7, 16, 17 }) do
    it(("of %d"):format(n), function()
      for _, t in ipairs(TYPES) do
        for _, x in ipairs(rows(n, t)) do
          local exact = x:double()
          local function column(k) return exact:select(-1, k) end
          local sum, top = column(0), column(0)
          local where = torch.zeros_like(sum):long()
          for k = 1, n - 1 do
            sum = sum + column(k)
            where = torch.where(column(k):gt(top), k, where)
            top = torch.maximum(top, column(k))
          end
          assert.is_true(torch.equal(sum, x:sum(-1):double()))
          assert.is_true(torch.equal(top, x:amax(-1):double()))
          if t ~= torch.bool then
            local value, at = x:max(-1)
            assert.is_true(torch.equal(top, value:double()))
            assert.is_true(torch.equal(where, at))
            assert.is_true(torch.equal(where, x:argmax(-1)))
          else
            assert.is_true(torch.equal(x:any(-1), sum:gt(0)))
            assert.is_true(torch.equal(x:all(-1), sum:eq(n)))
          end
          if t.is_floating_point then
            assert.is_true(torch.allclose(x:double():square():sum(-1):sqrt(),
              x:norm(2, -1):double(), 1e-3, 1e-3))
            assert.is_true(torch.allclose(torch.log(exact:exp():sum(-1)),
              x:logsumexp(-1):double(), 2e-3, 2e-3))
          end
        end
      end
    end)
  end

  it("finds a NaN first", function()
    local x = torch.randn({ 100, 3 })
    x[50] = torch.tensor({ 7, 0 / 0, 0 / 0 })
    local value, at = x:max(1)
    assert.equal(1, at[50]:item())
    assert.is_true(value[50]:isnan():item())
    assert.is_true(x:amin(1)[50]:isnan():item())
  end)

  it("take a row for every row, of any length and number", function()
    torch.manual_seed(5)
    for _, dtype in ipairs({ torch.float32, torch.float16, torch.int64 }) do
      for _, n in ipairs({ 1, 3, 30, 700 }) do
        for _, cols in ipairs({ 1, 2, 5, 19 }) do
          local x = torch.randint(-9, 9, { n, cols }):to(dtype)
          local row = torch.randint(-9, 9, { cols }):to(dtype)
          local sum = x + row
          for c = 0, cols - 1 do
            assert.is_true(torch.equal(sum:select(1, c), x:select(1, c) + row[c]:item()))
          end
        end
      end
    end
  end)
end)

describe("float32 functions that pass through double", function()
  -- One unit in the last place, over all exponents and near the ends.
  local bits = torch.arange(0, 4294967296, 262139)
  local all = (bits - bits:ge(2147483648):long() * 4294967296):int():view(torch.float32)
  local x = torch.cat({ all, torch.linspace(-1, 1, 4001), torch.linspace(-11, 11, 4001) })
  for _, name in ipairs({ "tan", "atanh", "erfc", "erfinv" }) do
    it(name, function()
      local got, want = torch[name](x), torch[name](x:double()):float()
      assert.is_true(torch.allclose(want, got, 1.3e-7, 1.5e-45, true))
      assert.is_true(torch.equal(want:signbit()[got:eq(0)], got:signbit()[got:eq(0)]))
    end)
  end
end)
