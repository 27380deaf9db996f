--- The lower median is what a stable sort has there, its place the first one's.
local torch = require("torch")

describe("median", function()
  for _, name in ipairs({ "float64", "float32", "float16", "bfloat16", "int64" }) do
    local t = torch[name]
    it("is what a sort has there: " .. name, function()
      torch.manual_seed(4)
      for _, n in ipairs({ 1, 2, 10, 1500 }) do
        for _, x in ipairs({ torch.randn({ 20, n }):to(t), torch.randn({ n, 20 }):mul(2):to(t):t(),
          torch.randint(-2, 3, { 20, n }):to(t) }) do
          local value, at = x:median(1)
          local sorted, order = x:double():sort(1, false, true)
          local k = (n - 1) // 2
          assert.is_true(torch.equal(sorted:select(1, k), value:double()))
          assert.is_true(torch.equal(order:select(1, k), at))
        end
      end
    end)
  end

  it("is a NaN that there is, and takes zeros of both signs for equal", function()
    local value, at = torch.tensor({ 3, 0 / 0, 1, 0 / 0 }):median(0)
    assert.is_true(value:isnan():item())
    assert.equal(1, at:item())
    value, at = torch.tensor({ 0.0, -0.0, 0.0 }):median(0)
    assert.equal(1, at:item())
    assert.is_true(value:signbit():item())
  end)
end)
