--- Large float32 products, which a CPU with AMX makes of bfloat16 pieces. What
--- must be true holds for float32 arithmetic too, on any CPU: sums of k terms
--- are off by at most k 2^-24 of the sum of their absolute values (Higham,
--- Accuracy and Stability of Numerical Algorithms, 3.1), and exact where every
--- partial sum is a float32 number.
local core = require("lupine.core")
local torch = require("torch")

local function exact(a, b)
  return a:double():matmul(b:double())
end

local function check(a, b, name)
  local got = a:matmul(b)
  local bound = exact(a:abs(), b:abs()) * (a:size(-1) * 2.0 ^ -24)
  local off = (got:double() - exact(a, b)):abs()
  assert.is_true(off:le(bound):all():item(), name)
end

-- An operand of that shape which lies as rows or as columns.
local function operand(rows, cols, turned)
  return turned and torch.randn(cols, rows):t() or torch.randn(rows, cols)
end

describe("large float32 products", function()
  before_each(function()
    torch.manual_seed(11)
  end)

  -- rows of the left, depth, columns of the right: the left or the right one is
  -- longer; tiles of 16, panels of 32 and blocks along k end within and at
  -- their ends; more than one block of the shorter one
  local sizes = {
    { 128, 256, 128 }, { 130, 257, 131 }, { 33, 2048, 47 }, { 47, 2049, 33 },
    { 145, 129, 177 }, { 1000, 64, 64 }, { 64, 64, 1000 }, { 700, 1537, 720 },
    { 1030, 770, 40 }, { 40, 770, 1030 },
  }
  for _, size in ipairs(sizes) do
    local m, k, n = table.unpack(size)
    it(("of %d x %d x %d are right however operands lie"):format(m, k, n), function()
      for way = 0, 3 do
        local a, b = operand(m, k, way & 1 == 1), operand(k, n, way & 2 == 2)
        check(a, b, way)
      end
    end)
  end

  it("are right into a transposed result, in batches and over a shared operand", function()
    local a, b = torch.randn(160, 300), torch.randn(300, 170)
    local out = torch.zeros(170, 160):t()
    torch.mm(a, b, { out = out })
    assert.is_true(torch.allclose(out:double(), exact(a, b), 1e-5, 1e-4))
    check(torch.randn(5, 130, 150), torch.randn(5, 150, 140), "batch")
    check(torch.randn(5, 130, 150), torch.randn(150, 140), "shared")
    check(torch.randn(5, 150, 130):transpose(1, 2), torch.randn(1, 150, 140):expand(5, -1, -1))
  end)

  it("are exact where float32 is", function()
    for _, bits in ipairs({ { 8, 8 }, { 12, 4 }, { 16, 1 }, { 1, 16 }, { 9, 7 } }) do
      local ends = { 1 << bits[1], 1 << bits[2] }
      local a = torch.randint(1 - ends[1], ends[1], { 160, 128 }):float()
      local b = torch.randint(1 - ends[2], ends[2], { 128, 160 }):float()
      assert.is_true(torch.equal(a:matmul(b):double(), exact(a, b)), table.concat(bits, " "))
    end
    -- numbers with all 24 bits, one at a time
    local a = torch.rand(160) * 2.0 ^ 40 - 2.0 ^ 39
    local one = torch.eye(160)
    assert.is_true(torch.equal(torch.diag(a):matmul(one), torch.diag(a)))
    assert.is_true(torch.equal(one:matmul(torch.diag(a)), torch.diag(a)))
  end)

  it("keep what no piece can hold: infinities, NaN, the largest and the smallest", function()
    local values = { math.huge, -math.huge, 3.4e38, 2.0 ^ 127, 2.0 ^ -104, 1e-36, 1e-41, -1e-45 }
    for i = 125, 135 do -- all 24 bits, of which the last ones may be subnormal
      values[#values + 1] = (2.0 ^ 24 - 1) * 2.0 ^ -i
    end
    for _, left in ipairs({ true, false }) do
      for _, x in ipairs(values) do
        local a, b = torch.zeros(150, 200), torch.ones(200, 140)
        a[140][190] = x
        local c = left and a:matmul(b) or b:t():matmul(a:t()):t()
        -- 0 times the others' ones: the row is x, or that as float32 has it
        assert.equal(a[140][190]:item(), c[140][139]:item(), x)
        assert.equal(0, c[139][139]:item())
      end
      local a, b = torch.zeros(150, 200), torch.ones(200, 140)
      a[0][199] = 0 / 0
      local c = left and a:matmul(b) or b:t():matmul(a:t()):t()
      assert.is_true(c[0]:isnan():all():item())
      assert.equal(0, c[1]:abs():max():item())
    end
  end)

  it("keep every NaN at any precision", function()
    local precision = torch.get_float32_matmul_precision()
    local nan = torch.tensor({ 0x7fffffff }, { dtype = torch.int32 }):view(torch.float32)
    for _, p in ipairs({ "highest", "high", "medium" }) do
      torch.set_float32_matmul_precision(p)
      for way = 0, 3 do
        local a, b = operand(150, 200, way & 1 == 1), operand(200, 140, way & 2 == 2)
        a[140]["190:191"]:copy_(nan)
        assert.is_true(a:matmul(b)[140]:isnan():all():item(), p)
        assert.is_false(a:matmul(b)[139]:isnan():any():item(), p)
      end
    end
    torch.set_float32_matmul_precision(precision)
  end)

  it("have zeros beyond their ends, whatever was multiplied before", function()
    for way = 0, 3 do
      for _, k in ipairs({ 127, 97 }) do
        check(operand(200, k, way & 1 == 1), operand(k, 200, way & 2 == 2), k)
      end
    end
  end)

  it("overflow where float32 does", function()
    -- rounded to 8 bits, they have products of 2^128
    local x = 2.0 ^ 64 * (1 - 2.0 ^ -10)
    local a, b = torch.zeros(160, 160), torch.zeros(160, 160)
    a[3][5], a[3][6], b[5][7] = x, x, x
    assert.equal(x * x, a:matmul(b)[3][7]:item())
    b[6][7] = -x
    assert.equal(0, a:matmul(b)[3][7]:item())
    b[6][7] = x
    assert.equal(math.huge, a:matmul(b)[3][7]:item())
  end)

  it("keep all bits of small numbers beside large ones", function()
    local b = torch.ones(200, 140) * 2.0 ^ 40
    for i = 125, 140 do
      local a = torch.zeros(150, 200)
      a[140][190] = (2.0 ^ 24 - 1) * 2.0 ^ -i
      assert.equal((2.0 ^ 24 - 1) * 2.0 ^ (40 - i), a:matmul(b)[140][139]:item(), i)
    end
  end)

  it("keep what the product of two small operands has", function()
    local a, b = torch.randn(150, 200), torch.randn(200, 140)
    for _, scale in ipairs({ 2.0 ^ -40, 2.0 ^ -50, 2.0 ^ -56, 2.0 ^ -60 }) do
      local x, y = a * scale, b * scale
      check(x, y, scale)
      local far = (x:matmul(y):double() - exact(x, y)):abs():max():item()
      assert.is_true(far <= 200 * 2.0 ^ -24 * scale ^ 2 * 20 + 2.0 ^ -149)
      check(a * scale ^ 2, b, scale)
    end
  end)

  it("have the same bits at any number of threads where they are made of pieces", function()
    if not core.host.cpu().amx then
      return
    end
    local threads = torch.get_num_threads()
    for _, size in ipairs({ { 300, 900, 500 }, { 70, 2100, 96 }, { 65, 1024, 512 } }) do
      local m, k, n = table.unpack(size)
      for way = 0, 3 do
        local a, b = operand(m, k, way & 1 == 1), operand(k, n, way & 2 == 2)
        torch.set_num_threads(1)
        local one = a:matmul(b)
        for number = 2, 5 do
          torch.set_num_threads(number)
          assert.is_true(torch.equal(one, a:matmul(b)), number)
        end
        torch.set_num_threads(threads)
      end
    end
  end)

  it("that are long along k are right, too", function()
    for _, k in ipairs({ 1023, 1024, 1025, 1100, 3000 }) do
      for _, columns in ipairs({ false, true }) do
        local a, b = operand(90, k, true), operand(k, 75)
        local wide = torch.full({ 200, 300 }, 7.0)
        local out = wide["20:110, 30:105"]
        out = columns and torch.zeros(75, 90):t() or out
        torch.mm(a, b, { out = out })
        assert.is_true(torch.allclose(out:double(), exact(a, b), 1e-5, 1e-4), k)
        if not columns then -- around it lies what lay there
          out:fill_(7)
          assert.is_true(torch.equal(wide, torch.full({ 200, 300 }, 7.0)))
        end
      end
      check(torch.randn(3, 50, k), torch.randn(3, k, 60), "batch")
      local a = torch.randint(-31, 32, { 64, k }):float()
      local b = torch.randint(-31, 32, { k, 64 }):float() -- sums below 2^24
      assert.is_true(torch.equal(a:matmul(b):double(), exact(a, b)))
      a[60][k - 1] = 0 / 0
      assert.is_true(a:matmul(b)[60]:isnan():all():item())
      assert.is_false(a:matmul(b)[59]:isnan():any():item())
    end
  end)

  it("that are long along k keep infinities in either half, on any number of threads", function()
    local a, b = torch.ones(64, 1100), torch.ones(1100, 64)
    local threads = torch.get_num_threads()
    for _, at in ipairs({ 3, 1097 }) do
      local x = a:clone()
      x[60][at] = math.huge
      for number = 1, 4 do
        torch.set_num_threads(number)
        local c = x:matmul(b)
        assert.is_true(c[60]:eq(math.huge):all():item(), number)
        assert.is_true(c[59]:eq(1100):all():item(), number)
      end
    end
    torch.set_num_threads(threads)
  end)
end)
