--- Products of halves, whose operands are widened while they are packed: the sums are
--- those of float64, rounded once, however the operands lie.
local torch = require("torch")

-- [rows, cols] of numbers with few bits, so that no sum of float32 is rounded; as a view
-- that lies transposed, or with gaps.
local function operand(rows, cols, dtype, how)
  local t = (torch.arange(rows * cols) * 7 % 31 - 15):to(dtype):reshape(rows, cols)
  if how == "t" then
    return t:t():contiguous():t()
  elseif how == "g" then
    local wide = torch.full({ rows, 2 * cols }, 0 / 0):to(dtype)
    wide[":, ::2"] = t
    return wide[":, ::2"]
  end
  return t
end

describe("a product of halves", function()
  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    it(("is that of float64, rounded once: %s"):format(dtype), function()
      for _, size in ipairs({ { 7, 40, 33 }, { 70, 9, 48 }, { 64, 600, 17 }, { 13, 130, 80 },
        { 3, 5, 200 }, { 5, 0, 3 } }) do
        local m, k, n = table.unpack(size)
        for _, hows in ipairs({ "nn", "tn", "nt", "tt", "gn", "ng" }) do
          local a, b = operand(m, k, dtype, hows:sub(1, 1)), operand(k, n, dtype, hows:sub(2))
          local want = torch.mm(a:double(), b:double())
          local got = torch.mm(a, b)
          assert.equal(dtype, got.dtype)
          assert.is_true(torch.equal(want:to(dtype), got), table.concat(size, " ") .. hows)
          local two = torch.bmm(torch.stack({ a, -a }), b:expand({ 2, k, n }))
          assert.is_true(torch.equal(torch.stack({ got, -got }), two))
          local sum = torch.addmm(torch.full({ n }, 0.5):to(dtype), a, b)
          assert.is_true(torch.equal((want + 0.5):to(dtype), sum))
        end
      end
    end)
  end
end)
