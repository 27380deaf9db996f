--- What division leaves over: exact for every quotient, however large.
local torch = require("torch")

-- Of both signs, over many magnitudes.
local function numbers(n, dtype, span)
  local magnitude = (torch.rand({ n }, { dtype = torch.float64 }) * 2 - 1) * span
  local sign = torch.where(torch.rand({ n }):gt(0.5), 1.0, -1.0)
  return (magnitude:exp2() * sign):to(dtype)
end

local function same(a, b)
  return a == b and 1 / a == 1 / b or (a ~= a and b ~= b)
end

describe("fmod and remainder", function()
  for _, case in ipairs({ { torch.float32, 12 }, { torch.float32, 60 }, { torch.float64, 20 },
    { torch.float64, 200 } }) do
    local dtype, span = table.unpack(case)
    it(("are exact in %s over 2^%d"):format(tostring(dtype), span), function()
      torch.manual_seed(span)
      local x, y = numbers(3000, dtype, span), numbers(3000, dtype, span)
      local rest, mod = torch.fmod(x, y):tolist(), torch.remainder(x, y):double():tolist()
      local a, b = x:tolist(), y:tolist()
      for i = 1, #a do
        local wanted = math.fmod(a[i], b[i])
        assert(same(rest[i], wanted), ("fmod(%a, %a) is %a"):format(a[i], b[i], rest[i]))
        if wanted ~= 0 and (wanted < 0) ~= (b[i] < 0) then
          wanted = torch.tensor(wanted + b[i], { dtype = dtype }):item()
        end
        assert(same(mod[i], wanted), ("remainder(%a, %a) is %a"):format(a[i], b[i], mod[i]))
      end
    end)
  end

  it("have C's results where a quotient is no number", function()
    local inf, nan = math.huge, 0 / 0
    local x = torch.tensor({ 5, -5, inf, 1, nan, 1, -0.0, 3 })
    local y = torch.tensor({ inf, -inf, 2, 0, 1, nan, 2, -3 })
    local rest = torch.fmod(x, y):tolist()
    for i, wanted in ipairs({ 5, -5, nan, nan, nan, nan, -0.0, 0.0 }) do
      assert(same(rest[i], wanted), i .. ": " .. rest[i])
    end
  end)
end)

describe("the angle", function()
  it("is right in every quarter, at zeros and infinities", function()
    local values = { 0.0, -0.0, 1.0, -1.0, 0.3, -7.5, 1e-30, -3e38, math.huge, -math.huge }
    local ys, xs = {}, {}
    for _, y in ipairs(values) do
      for _, x in ipairs(values) do
        ys[#ys + 1], xs[#xs + 1] = y, x
      end
    end
    local y, x = torch.tensor(ys), torch.tensor(xs)
    local got = torch.atan2(y, x):tolist()
    local wide = torch.atan2(y:double(), x:double()):float():tolist()
    for i = 1, #ys do
      local off = math.abs(got[i] - wide[i])
      assert(same(got[i], wide[i]) or off <= math.abs(wide[i]) * 1.2e-7,
        ("atan2(%g, %g) is %a"):format(ys[i], xs[i], got[i]))
    end
  end)

  it("gives asin, acos and atan", function()
    local x = torch.linspace(-1, 1, 1001)
    for _, name in ipairs({ "asin", "acos", "atan" }) do
      local wide = x:double()[name](x:double())
      assert.is_true((x[name](x):double() - wide):abs():max():item() < 1.3e-7)
    end
    assert.is_true(torch.tensor({ 1.5 }):asin():isnan():item())
  end)
end)
