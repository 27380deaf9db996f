--- Where extremes along a dimension lie, against a search in Lua: ties, NaN, lines
--- along memory and across it, more of them than a block has.
local torch = require("torch")

-- 0-based place of the first extreme of a list; a NaN before all.
local function place(list, greatest)
  local best = 1
  for i, v in ipairs(list) do
    local b = list[best]
    if b == b and (v ~= v or (greatest and v > b) or (not greatest and v < b)) then
      best = i
    end
  end
  return best - 1
end

local function check(x, dim, greatest)
  local values, at = table.unpack(table.pack(x[greatest and "max" or "min"](x, dim)))
  local only = x[greatest and "argmax" or "argmin"](x, dim)
  local lines = dim == 1 and x or x:t()
  for i = 0, lines:size(0) - 1 do
    local list = lines[i]:tolist()
    local wanted = place(list, greatest)
    assert.equal(wanted, at[i]:item())
    assert.equal(wanted, only[i]:item())
    local v, w = values[i]:item(), list[wanted + 1]
    assert.is_true(v == w or (v ~= v and w ~= w))
  end
end

describe("extremes along a dimension", function()
  for _, shape in ipairs({ { 1, 1 }, { 3, 70 }, { 70, 3 }, { 65, 600 }, { 5, 129 } }) do
    it(("are found in %d by %d"):format(shape[1], shape[2]), function()
      torch.manual_seed(shape[2])
      local x = torch.randint(-4, 5, shape):float() -- many ties
      x[shape[1] // 2][shape[2] // 2] = 0 / 0
      for dim = 0, 1 do
        for _, greatest in ipairs({ true, false }) do
          check(x, dim, greatest)
          check(x:t():contiguous():t(), dim, greatest)
        end
      end
    end)
  end

  it("are those of infinities, too", function()
    check(torch.full({ 4, 80 }, -math.huge), 1, true)
    check(torch.full({ 80, 4 }, math.huge), 0, false)
  end)
end)

describe("a reduction over the outer dimension", function()
  it("has the sums and extremes of each column", function()
    torch.manual_seed(9)
    for _, shape in ipairs({ { 7, 5 }, { 200, 1500 }, { 300, 129 } }) do
      local x = torch.randn(shape, { dtype = torch.float64 })
      local f, t = x:float(), x:float():t():contiguous()
      assert.is_true(torch.allclose(f:sum(0), t:sum(1), 1e-5, 1e-5))
      assert.is_true(torch.equal(f:amax(0), t:amax(1)))
      assert.is_true(torch.equal(f:amin(0), t:amin(1)))
      assert.is_true(torch.equal((x * 8):long():sum(0), (x * 8):long():t():contiguous():sum(1)))
    end
  end)
end)
