-- Pooling: figures by hand, indices, rounding of sizes, gradients.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")
local differences = require("spec.support.differences")
local near, raises, numbers = helper.near, helper.raises, differences.numbers

local square = torch.tensor({ { {
  { 1.0, 5, 2, 0 }, { 3, 4, 8, 7 }, { 9, 6, 1, 2 }, { 0, 5, 3, 4 },
} } })

describe("max_pool", function()
  it("takes the greatest of each window and tells where it was", function()
    local y, at = F.max_pool2d_with_indices(square, 2)
    assert.same({ { { { 5, 8 }, { 9, 4 } } } }, y:tolist())
    assert.same({ { { { 1, 6 }, { 8, 15 } } } }, at:tolist())
    assert.equal(torch.int64, at.dtype)
    assert.same({ { { { 5, 8 }, { 9, 4 } } } }, F.max_pool2d(square:half(), 2):tolist())
  end)

  it("never takes the padding, and takes the first of equals", function()
    local low = torch.full({ 1, 1, 3 }, -7.0)
    local y, at = F.max_pool1d_with_indices(low, 3, { stride = 2, padding = 1 })
    assert.same({ { { -7, -7 } } }, y:tolist())
    assert.same({ { { 0, 1 } } }, at:tolist())
  end)

  it("lets a NaN through", function()
    local y = F.max_pool1d(torch.tensor({ { { 1.0, 0 / 0, 3, 4 } } }), 2):tolist()
    assert.is_true(y[1][1][1] ~= y[1][1][1])
    assert.equal(4, y[1][1][2])
  end)

  it("rounds sizes up only where a window starts inside", function()
    local x = numbers({ 1, 1, 5 }, 1)
    assert.equal(2, F.max_pool1d(x, 2):size(2))
    assert.equal(3, F.max_pool1d(x, 2, { ceil_mode = true }):size(2))
    -- a fourth window would start at 6, in the trailing padding
    assert.equal(3, F.max_pool1d(x, 2, { padding = 1, ceil_mode = true }):size(2))
  end)

  it("skips places when dilated", function()
    local x = torch.tensor({ { { 1.0, 9, 2, 8, 3 } } })
    assert.same({ { { 2, 9, 3 } } }, F.max_pool1d(x, 2, { stride = 1, dilation = 2 }):tolist())
  end)

  it("has first and second gradients", function()
    differences.check(function(x)
      return F.max_pool2d(x, 3, { stride = 2, padding = 1 })
    end, { numbers({ 1, 2, 5, 4 }, 1) })
    differences.check(function(x)
      local y = F.max_pool2d(x, 2)
      return y * y
    end, { numbers({ 2, 4, 4 }, 2) })
    differences.check(function(x)
      return F.max_pool3d(x, 2, { stride = 1 })
    end, { numbers({ 1, 1, 3, 2, 3 }, 3) }, true)
  end)

  it("names what does not fit", function()
    raises("RuntimeError", "at most half of the effective kernel size", function()
      F.max_pool2d(square, 2, { padding = 2 })
    end)
    raises("RuntimeError", "too small for kernel_size=5", function()
      F.max_pool2d(square, 5)
    end)
    raises("RuntimeError", "`kernel_size` must be at least 1", function()
      F.max_pool2d(square, 0)
    end)
    raises("RuntimeError", "must be a tensor of numbers, got bool", function()
      F.max_pool2d(square:bool(), 2)
    end)
    raises("RuntimeError", "must be a floating point tensor, got int32", function()
      F.avg_pool2d(square:int(), 2)
    end)
    raises("RuntimeError", "3 or 4 dimensions", function()
      F.max_pool2d(torch.zeros({ 4, 4 }), 2)
    end)
  end)
end)

describe("pooling of integers", function()
  it("is exact beyond the range of doubles", function()
    local big = math.maxinteger // 8
    local x = torch.tensor({ { { big, big - 1, 3 }, { -5, -6, -7 } } }, { dtype = torch.int64 })
    assert.are.same({ { { big, big - 1 } } }, F.max_pool2d(x, 2, 1):tolist())
    assert.are.same({ { { (2 * big - 12) // 4, (big - 11) // 4 } } },
      F.avg_pool2d(x, 2, 1):tolist())
  end)

  it("rounds means towards zero and leaves padding out of the maximum", function()
    local x = torch.tensor({ { -7, -2, -2 } })
    assert.are.same({ { -4, -2 } }, F.avg_pool1d(x, 2, 1):tolist())
    assert.are.same({ { -7, -2 } }, F.max_pool1d(x, 2, 2, 1):tolist())
  end)
end)

describe("avg_pool", function()
  it("divides by the window, by what lies inside, or by what is given", function()
    local x = torch.tensor({ { { 3.0, 6, 9 } } }, { dtype = torch.float64 })
    near(F.avg_pool1d(x, 3, { stride = 1, padding = 1 }), { { { 3, 6, 5 } } })
    near(F.avg_pool1d(x, 3, { stride = 1, padding = 1, count_include_pad = false }),
      { { { 4.5, 6, 7.5 } } })
    near(F.avg_pool2d(square:double(), 2), { { { { 3.25, 4.25 }, { 5, 2.5 } } } })
    near(F.avg_pool2d(square, 2, { divisor_override = 1 }), { { { { 13, 17 }, { 20, 10 } } } })
  end)

  it("counts the padding of a window cut by the end only up to it", function()
    -- windows 0-2, 2-4 of a padded length 6: the second has 2 of 3 places
    local x = torch.tensor({ { { 1.0, 2, 3, 4 } } }, { dtype = torch.float64 })
    near(F.avg_pool1d(x, 3, { stride = 2, ceil_mode = true }), { { { 2, 3.5 } } })
  end)

  it("has first and second gradients", function()
    for _, o in ipairs({
      { padding = 1 }, { stride = 1, count_include_pad = false, padding = 1 },
      { divisor_override = 3 }, { ceil_mode = true, stride = 2 },
    }) do
      differences.check(function(x)
        local y = F.avg_pool2d(x, 3, o)
        return y * y
      end, { numbers({ 1, 1, 4, 5 }, 1) })
    end
  end)

  it("refuses a divisor of 0", function()
    raises("RuntimeError", "divisor_override", function()
      F.avg_pool2d(square, 2, { divisor_override = 0 })
    end)
  end)
end)

describe("adaptive pooling", function()
  it("has windows from floor(o in / out) to ceil((o + 1) in / out)", function()
    local x = torch.tensor({ { { 1.0, 2, 3, 4, 5 } } }, { dtype = torch.float64 })
    near(F.adaptive_avg_pool1d(x, 3), { { { 1.5, 3, 4.5 } } })
    near(F.adaptive_avg_pool1d(x, 1), { { { 3 } } })
    near(F.adaptive_avg_pool1d(x, 5), x)
    local y, at = F.adaptive_max_pool1d_with_indices(x, 2)
    assert.same({ { { 3, 5 } } }, y:tolist())
    assert.same({ { { 2, 4 } } }, at:tolist())
  end)

  it("to one position is the mean, as in PyTorch's tape", function()
    local x = numbers({ 2, 3, 4, 5 }, 1)
    local y = F.adaptive_avg_pool2d(x:clone():requires_grad_(true), 1)
    near(y:detach(), F.avg_pool2d(x, { 4, 5 }))
    assert.matches("Mean", tostring(y.grad_fn))
    differences.check(function(a)
      local z = F.adaptive_avg_pool2d(a, 1)
      return z * z
    end, { x })
  end)

  it("has first and second gradients", function()
    differences.check(function(x)
      local y = F.adaptive_avg_pool2d(x, { 2, 3 })
      return y * y
    end, { numbers({ 1, 1, 3, 5 }, 1) })
    differences.check(function(x)
      local y = F.adaptive_max_pool2d(x, { 2, 2 })
      return y * y
    end, { numbers({ 1, 1, 3, 5 }, 1) })
    differences.check(function(x)
      return F.adaptive_avg_pool3d(x, { 1, 2, 2 })
    end, { numbers({ 1, 1, 2, 3, 4 }, 1) }, true)
  end)

  it("refuses negative sizes and empty planes", function()
    raises("RuntimeError", "must not be negative", function()
      F.adaptive_avg_pool2d(square, { -1, 2 })
    end)
    raises("RuntimeError", "non%-zero size for non%-batch dimensions", function()
      F.adaptive_avg_pool1d(torch.zeros({ 1, 1, 0 }), 2)
    end)
  end)
end)

-- Values and gradients of 1, 2, … are PyTorch 2.15's.
describe("ceil_mode of an input that is smaller than the kernel", function()
  local function line(n)
    return torch.arange(1, n + 1):float():reshape(1, 1, n):requires_grad_(true)
  end

  for _, row in ipairs({
    -- size, kernel, stride, padding, dilation; max; means with and without padding
    { { 2, 3, 2, 0, 1 }, { 2, { 0, 1 } }, { 1.5, { 0.5, 0.5 } }, { 1.5, { 0.5, 0.5 } } },
    { { 1, 2, 3, 0, 1 }, { 1, { 1 } }, { 1, { 1 } }, { 1, { 1 } } },
    { { 2, 5, 4, 1, 1 }, { 2, { 0, 1 } }, { 0.75, { 0.25, 0.25 } }, { 1.5, { 0.5, 0.5 } } },
    { { 1, 4, 3, 1, 1 }, { 1, { 1 } }, { 1 / 3, { 1 / 3 } }, { 1, { 1 } } },
    { { 2, 3, 2, 1, 2 }, { 2, { 0, 1 } } },
    { { 2, 2, 2, 0, 2 }, { 1, { 1, 0 } } },
  }) do
    local n, k, s, p, d = table.unpack(row[1])
    it(("size %d, kernel %d, stride %d, padding %d, dilation %d"):format(n, k, s, p, d), function()
      local function gives(want, f)
        local x = line(n)
        local y = f(x)
        y:sum():backward()
        near(y, { { { want[1] } } })
        near(x.grad, { { want[2] } })
      end
      gives(row[2], function(x)
        return F.max_pool1d(x, k, s, { padding = p, dilation = d, ceil_mode = true })
      end)
      for i, counted in pairs({ [3] = true, [4] = false }) do
        if row[i] then
          gives(row[i], function(x)
            return F.avg_pool1d(x, k, s,
              { padding = p, ceil_mode = true, count_include_pad = counted })
          end)
        end
      end
    end)
  end

  it("in two dimensions", function()
    local x = torch.arange(1, 5):float():reshape(1, 1, 2, 2)
    near(F.max_pool2d(x, 3, 2, { ceil_mode = true }), { { { { 4 } } } })
    near(F.avg_pool2d(x, 3, 2, { ceil_mode = true }), { { { { 2.5 } } } })
    near(F.avg_pool2d(x, 5, 4, { padding = 1, ceil_mode = true }), { { { { 0.625 } } } })
  end)

  it("has no window where none begins in the input", function()
    raises("RuntimeError", "too small", function()
      F.max_pool1d(torch.ones(1, 1, 1), 3, 2, { ceil_mode = true })
    end)
  end)

  it("reads indices of as many planes as the input has", function()
    local gather = require("lupine.core").forms.internal.max_pool_gather
    for _, shape in ipairs({ { 2, 1, 2 }, { 1, 2, 1, 2 }, { 2, 2 } }) do
      raises("RuntimeError", "must have the same planes", function()
        gather(torch.ones(2, 2, 4), torch.zeros(shape):long(), { 4 })
      end)
    end
  end)
end)

-- Planes of halves are converted one by one, those with gaps beforehand.
it("pooling of halves is that of floats, rounded once", function()
  torch.manual_seed(3)
  local pools = {
    function(x) return F.max_pool2d(x, 3, { stride = 2, padding = 1 }) end,
    function(x) return F.avg_pool2d(x, 3, { stride = 2, padding = 1 }) end,
    function(x) return F.adaptive_max_pool2d(x, { 3, 2 }) end,
    function(x) return F.adaptive_avg_pool2d(x, { 3, 2 }) end,
  }
  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    local x = torch.randn(2, 5, 13, 9):to(dtype)
    for i, pool in ipairs(pools) do
      local a, b = x:clone():requires_grad_(), x:float():requires_grad_()
      local half, float = pool(a), pool(b)
      local gradient = torch.randn_like(half)
      half:backward(gradient)
      float:backward(gradient:float())
      assert.is_true(torch.equal(half, float:to(dtype)), i)
      assert.is_true(torch.equal(a.grad, b.grad:to(dtype)), i)
      local turned = x:transpose(2, 3)
      assert.is_true(torch.equal(pool(turned), pool(turned:float()):to(dtype)), i)
    end
  end
end)

describe("a maximum over windows two apart", function()
  it("is that of a loop, the last NaN above all, the first of equals", function()
    torch.manual_seed(6)
    for _, n in ipairs({ 5, 8, 1100 }) do
      local x = torch.randn({ 1, 1, n }):mul(2):round()
      x:masked_fill_(torch.rand({ 1, 1, n }):lt(0.1), 0 / 0)
      x:masked_fill_(torch.rand({ 1, 1, n }):lt(0.3), -math.huge)
      local list = x:flatten():tolist()
      for kernel = 2, 3 do
        for _, ceil in ipairs({ false, true }) do
          local y, at = F.max_pool1d_with_indices(x, kernel, { stride = 2, ceil_mode = ceil })
          local best, where = y:flatten():tolist(), at:flatten():tolist()
          for o = 1, #best do
            local want = 2 * o - 1
            for i = want + 1, math.min(want + kernel - 1, n) do
              if list[i] > list[want] or list[i] ~= list[i] then
                want = i
              end
            end
            assert.equal(want - 1, where[o])
            assert.is_true(best[o] == list[want] or best[o] ~= best[o] and list[want] ~= list[want])
          end
        end
      end
    end
  end)
end)
