--- Bounds: bfloat16 has 8 significant bits, so that rounding is off by at most
--- u = 2^-8 of the value (Higham, Accuracy and Stability of Numerical Algorithms,
--- 2.1). One piece: |a b - a1 b1| <= (2 u + u^2) |a||b|. Two: a2 b2 and what is
--- left of a and of b are left out, u^2 each. Three: a2 b3 and a3 b2, u^3 each.
--- Float32 sums of k terms lose at most k 2^-24 (4.4 there), six times as many
--- terms with pieces, of which tiles round one in 32.
local helper = require("spec.helper")
local lupine = require("lupine")
local torch = require("torch")

local U = 2.0 ^ -8
local SHARE = { highest = 0, high = 3 * U ^ 2 + 2 * U ^ 3, medium = 2 * U + U ^ 2 }

-- Products of several forms, in float64 from the same float32 values.
local function forms()
  torch.manual_seed(3)
  local a, b = torch.randn(96, 160), torch.randn(160, 80)
  return {
    plain = { a, b },
    transposed = { torch.randn(160, 96):t(), torch.randn(80, 160):t() },
    batch = { torch.randn(3, 96, 128), torch.randn(3, 128, 96) },
    shared = { torch.randn(3, 96, 128), torch.randn(128, 96):expand(3, 128, 96) },
    mixed = { torch.randn(3, 128, 96):transpose(1, 2), torch.randn(3, 128, 96) },
    tall = { torch.randn(2048, 256), torch.randn(256, 512) },
  }
end

local function worst(got, a, b, precision)
  local exact = a:double():matmul(b:double())
  local size = a:double():abs():matmul(b:double():abs())
  local k = a:size(-1)
  local bound = (SHARE[precision] + k * 2.0 ^ -24) * size
  return ((got:double() - exact):abs() / bound):max():item()
end

describe("torch.set_float32_matmul_precision", function()
  after_each(function()
    torch.set_float32_matmul_precision("highest")
  end)

  it("says what is set, and refuses what it does not know", function()
    assert.equal("highest", torch.get_float32_matmul_precision())
    for _, precision in ipairs({ "high", "medium", "highest" }) do
      torch.set_float32_matmul_precision(precision)
      assert.equal(precision, torch.get_float32_matmul_precision())
    end
    for _, wrong in ipairs({ "low", "", "HIGH", 3, true, {} }) do
      helper.raises("ValueError", "expected 'highest', 'high' or 'medium', got", function()
        torch.set_float32_matmul_precision(wrong)
      end)
    end
    helper.raises("ValueError", "got nil", function()
      torch.set_float32_matmul_precision(nil)
    end)
    helper.raises("ValueError", "got bool true", function()
      torch.set_float32_matmul_precision(true)
    end)
    assert.equal("highest", torch.get_float32_matmul_precision())
  end)

  for _, precision in ipairs({ "highest", "high", "medium" }) do
    it(("keeps within the error of '%s', eager and compiled"):format(precision), function()
      torch.set_float32_matmul_precision(precision)
      for name, pair in pairs(forms()) do
        local a, b = pair[1], pair[2]
        local eager = a:matmul(b)
        assert.is_true(worst(eager, a, b, precision) <= 1, name)
        local f = lupine.compile(function(x, y)
          return x:matmul(y)
        end, { a, b })
        local compiled = f(a, b)
        assert.is_true(worst(compiled, a, b, precision) <= 1, name .. " compiled")
      end
    end)

    it(("has gradients within the error of '%s'"):format(precision), function()
      torch.set_float32_matmul_precision(precision)
      local pair = forms().plain
      local a, b = pair[1]:clone():requires_grad_(), pair[2]:clone():requires_grad_()
      local g = torch.randn(96, 80)
      a:matmul(b):backward(g)
      assert.is_true(worst(a.grad, g, b:detach():t(), precision) <= 1)
      assert.is_true(worst(b.grad, a:detach():t(), g, precision) <= 1)
    end)

    it(("keeps infinities and NaN where float32 has them with '%s'"):format(precision), function()
      local a, b = torch.ones(2048, 256), torch.ones(256, 512)
      a[3][5], a[7][0], a[9][1] = math.huge, 0 / 0, 3.4e38
      local expected = a:matmul(b)
      torch.set_float32_matmul_precision(precision)
      local got = a:matmul(b)
      assert.equal(math.huge, got[3][0]:item())
      assert.is_true(torch.isnan(got[7]):all():item())
      -- 3.4e38 is above the greatest bfloat16
      local large = got[9][0]:item()
      assert.is_true(large == expected[9][0]:item() or precision == "medium" and large == math.huge)
      helper.near(got[0], expected[0])
    end)

    it(("keeps NaN of any bits with '%s'"):format(precision), function()
      torch.set_float32_matmul_precision(precision)
      for _, bits in ipairs({ 0x7fc00000, 0x7f800001, 0x7fffffff, -1 }) do
        local x = torch.zeros(160, 256, { dtype = torch.int32 })
        x[3][5] = bits
        x = x:view(torch.float32)
        local one = torch.ones(256, 160)
        for _, row in ipairs({ x:matmul(one)[3], one:t():matmul(x:t()):t()[3] }) do
          assert.is_true(row:isnan():all():item(), ("%08x"):format(bits & 0xffffffff))
        end
      end
    end)
  end

  it("leaves float64 and integers as they are", function()
    local a = torch.randn(64, 64, { dtype = torch.float64 })
    local i = torch.arange(64 * 64):reshape(64, 64)
    local da, di = a:matmul(a), i:matmul(i)
    torch.set_float32_matmul_precision("medium")
    assert.is_true(torch.equal(da, a:matmul(a)))
    assert.is_true(torch.equal(di, i:matmul(i)))
  end)

  it("gives one result at any number of threads", function()
    torch.set_float32_matmul_precision("high")
    local pair = forms().tall
    local threads = torch.get_num_threads()
    torch.set_num_threads(1)
    local one = pair[1]:matmul(pair[2])
    torch.set_num_threads(2)
    local two = pair[1]:matmul(pair[2])
    torch.set_num_threads(threads)
    helper.near(one, two)
  end)
end)
