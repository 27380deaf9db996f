-- Matrix products: figures by hand, ranks, strides, types, gradients.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")
local differences = require("spec.support.differences")
local near, raises, numbers = helper.near, helper.raises, differences.numbers

-- Plain sums over lists: the definition.
local function product(a, b)
  local x, y, out = a:tolist(), b:tolist(), {}
  for i = 1, #x do
    out[i] = {}
    for j = 1, #y[1] do
      local s = 0
      for k = 1, #y do
        s = s + x[i][k] * y[k][j]
      end
      out[i][j] = s
    end
  end
  return out
end

describe("mm", function()
  it("is the sum of products, small and large", function()
    for _, s in ipairs({
      { 1, 1, 1 }, { 3, 4, 5 }, { 1, 30, 40 }, { 33, 47, 50 }, { 70, 3, 65 },
    }) do
      local a, b = numbers({ s[1], s[2] }, 1), numbers({ s[2], s[3] }, 2)
      local want = product(a, b)
      near(torch.mm(a, b), want)
      near(torch.mm(a:float(), b:float()), want, { 2e-5, 2e-5 })
      near(torch.mm(a:half(), b:half()), want, { 2e-2, 2e-2 })
      near(torch.mm(a:bfloat16(), b:bfloat16()), want, { 1e-1, 1e-1 })
    end
  end)

  it("takes transposed and other strided views", function()
    local a, b = numbers({ 40, 33 }, 1), numbers({ 45, 40 }, 2)
    local want = product(a:t():contiguous(), b:t():contiguous())
    near(torch.mm(a:t(), b:t()), want)
    near(torch.mm(a:float():t(), b:float():t()), want, { 2e-5, 2e-5 })
    near(torch.mm(a:half():t(), b:half():t()), want, { 2e-2, 2e-2 })
    local every = numbers({ 60, 80 }, 3):float()["::2, ::2"]
    near(torch.mm(every, b:float():t()), product(every:contiguous(), b:t():contiguous()),
      { 2e-5, 2e-5 })
  end)

  -- Small integers are exact in every type: int64 is a loop of its own.
  it("has no row, column, block or thread of its own kind", function()
    local threads = torch.get_num_threads()
    torch.manual_seed(2)
    for _, s in ipairs({
      { 29, 20, 31 }, { 14, 520, 33 }, { 300, 64, 45 }, { 257, 190, 100 }, { 45, 1100, 420 },
      { 64, 1024, 752 }, { 256, 192, 3040 },
    }) do
      local m, k, n = table.unpack(s)
      local a, b = torch.randint(-4, 5, { m, k }), torch.randint(-4, 5, { k, n })
      local want = torch.mm(a, b)
      for _, dtype in ipairs({ torch.float32, torch.float64 }) do
        local x, y = a:to(dtype), b:to(dtype)
        local xt, yt = x:t():contiguous():t(), y:t():contiguous():t()
        for width = 1, 3 do
          torch.set_num_threads(width)
          for _, pair in ipairs({ { x, y }, { xt, y }, { x, yt }, { xt, yt } }) do
            assert.is_true(torch.equal(torch.mm(pair[1], pair[2]):long(), want))
          end
        end
      end
    end
    torch.set_num_threads(threads)
  end)

  it("wraps integers", function()
    local a = torch.tensor({ { 100, 2 } }, { dtype = torch.int8 })
    local b = torch.tensor({ { 3 }, { -1 } }, { dtype = torch.int8 })
    assert.same({ { 42 } }, torch.mm(a, b):tolist()) -- 298 mod 256
    assert.same({ { 298 } }, torch.mm(a:long(), b:long()):tolist())
  end)

  it("sums nothing to zero", function()
    local a, b = torch.zeros({ 2, 0 }), torch.zeros({ 0, 3 })
    assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, torch.mm(a, b):tolist())
    local none = torch.mm(torch.zeros({ 0, 2 }), torch.zeros({ 2, 3 }))
    assert.same({ 0, 3 }, { table.unpack(none.shape) })
  end)

  it("has the same bits at every width", function()
    local a, b = numbers({ 130, 70 }, 1):float(), numbers({ 70, 90 }, 2):float()
    local n = torch.get_num_threads()
    torch.set_num_threads(1)
    local one = torch.mm(a, b)
    torch.set_num_threads(2)
    local two = torch.mm(a, b)
    torch.set_num_threads(n)
    assert.same(one:tolist(), two:tolist())
  end)

  it("names shapes and types that do not fit", function()
    raises("RuntimeError", "%[2, 3%] and %[2, 3%] cannot be multiplied", function()
      torch.mm(torch.zeros({ 2, 3 }), torch.zeros({ 2, 3 }))
    end)
    raises("RuntimeError", "must have 2 dimensions", function()
      torch.mm(torch.zeros({ 2 }), torch.zeros({ 2, 3 }))
    end)
    raises("RuntimeError", "float32 and float64", function()
      torch.mm(torch.zeros({ 2, 2 }), torch.zeros({ 2, 2 }):double())
    end)
    raises("RuntimeError", "not implemented for bool", function()
      torch.mm(torch.zeros({ 2, 2 }):bool(), torch.zeros({ 2, 2 }):bool())
    end)
  end)
end)

describe("matmul", function()
  it("has the shapes of PyTorch for every pair of ranks", function()
    for _, c in ipairs({
      { { 3 }, { 3 }, {} },
      { { 2, 3 }, { 3 }, { 2 } },
      { { 3 }, { 3, 4 }, { 4 } },
      { { 5, 2, 3 }, { 3, 4 }, { 5, 2, 4 } },
      { { 5, 2, 3 }, { 3 }, { 5, 2 } },
      { { 3 }, { 5, 3, 2 }, { 5, 2 } },
      { { 2, 3 }, { 5, 3, 2 }, { 5, 2, 2 } },
      { { 4, 1, 2, 3 }, { 5, 3, 2 }, { 4, 5, 2, 2 } },
    }) do
      local a, b = numbers(c[1], 1), numbers(c[2], 2)
      assert.same(c[3], { table.unpack(torch.matmul(a, b).shape) })
      differences.check(torch.matmul, { a, b }, #c[3] > 2)
    end
  end)

  it("multiplies member by member when a batch is broadcast", function()
    local a, b = numbers({ 4, 1, 2, 3 }, 1), numbers({ 5, 3, 2 }, 2)
    local y = torch.matmul(a, b)
    for i = 0, 3 do
      for j = 0, 4 do
        near(y[i][j], product(a[i][0], b[j]))
      end
    end
  end)

  it("multiplies as often as a batch says that both only repeat", function()
    for _, size in ipairs({ { 17, 33, 65 }, { 1, 200, 100 }, { 130, 128, 129 } }) do
      local m, k, n = table.unpack(size)
      local a, b = torch.randint(-4, 5, { m, k }), torch.randint(-4, 5, { k, n }) -- exact sums
      local want = torch.mm(a, b):expand(3, m, n)
      for _, dtype in ipairs({ torch.float32, torch.float64, torch.bfloat16, torch.int32 }) do
        local x, y = a:to(dtype):expand(3, m, k), b:to(dtype):expand(3, k, n)
        local rounded = want:to(dtype)
        assert.is_true(torch.equal(torch.bmm(x, y), rounded))
        assert.is_true(torch.equal(torch.matmul(x, y), rounded))
      end
    end
  end)

  it("refuses operands of two dtypes on the host, as PyTorch does", function()
    local a, b = numbers({ 2, 2 }, 1), numbers({ 2, 2 }, 2)
    for _, pair in ipairs({ { a:half(), b:float() }, { a:float(), b:half() },
      { a:float(), b:double() }, { a:half(), b:bfloat16() }, { a:float(), b:long() } }) do
      local x, y = pair[1], pair[2]
      for name, args in pairs({ matmul = { x, y }, mm = { x, y }, mv = { x, y[0] },
        dot = { x[0], y[0] }, inner = { x, y }, bmm = { x:unsqueeze(0), y:unsqueeze(0) },
        addmm = { y, x, x }, addmv = { x[0], x, y[0] },
        baddbmm = { y:unsqueeze(0), x:unsqueeze(0), x:unsqueeze(0) },
        addbmm = { y, x:unsqueeze(0), x:unsqueeze(0) } }) do
        raises("RuntimeError", "same dtype.*got %w+ and %w+", function()
          torch[name](table.unpack(args))
        end)
      end
      torch.outer(x[0], y[0]) -- is no product of matrices
      torch.addr(y, x[0], x[0])
    end
  end)

  it("lets the second operand follow a half or float first on the device", function()
    local lupine = require("lupine")
    local a, b = numbers({ 2, 3 }, 1), numbers({ 3, 2 }, 2)
    for _, pair in ipairs({ { a:half(), b:float() }, { a:float(), b:half() } }) do
      local y = lupine.compile(torch.matmul, pair)(table.unpack(pair))
      assert.equal(pair[1].dtype, y.dtype)
      near(y, torch.matmul(a, b), { 2e-2, 2e-2 })
    end
  end)

  it("refuses what does not fit", function()
    raises("RuntimeError", "%[2, 3%] and %[4%]", function()
      torch.matmul(torch.zeros({ 2, 3 }), torch.zeros({ 4 }))
    end)
    raises("RuntimeError", "at least 1 dimension", function()
      torch.matmul(torch.tensor(1.0), torch.zeros({ 4 }))
    end)
  end)
end)

describe("products with an addend", function()
  it("scale both parts and do not read self when beta is 0", function()
    local a, b = numbers({ 2, 3 }, 1), numbers({ 3, 2 }, 2)
    local p = product(a, b)
    local bad = torch.full({ 2, 2 }, 0 / 0, { dtype = torch.float64 })
    near(torch.addmm(bad, a, b, { beta = 0 }), p)
    near(torch.addmm(torch.ones({ 2 }, { dtype = torch.float64 }), a, b, { beta = 3, alpha = 2 }), {
      { 3 + 2 * p[1][1], 3 + 2 * p[1][2] },
      { 3 + 2 * p[2][1], 3 + 2 * p[2][2] },
    })
  end)

  it("have gradients", function()
    local n = numbers
    differences.check(torch.addmm, { n({ 2, 2 }, 1), n({ 2, 3 }, 2), n({ 3, 2 }, 3) })
    differences.check(torch.baddbmm, { n({ 2, 2 }, 1), n({ 2, 2, 3 }, 2), n({ 2, 3, 2 }, 3) }, true)
    differences.check(torch.addbmm, { n({ 2, 2 }, 1), n({ 2, 2, 3 }, 2), n({ 2, 3, 2 }, 3) }, true)
    differences.check(torch.addmv, { n({ 2 }, 1), n({ 2, 3 }, 2), n({ 3 }, 3) }, true)
    differences.check(torch.outer, { n({ 2 }, 1), n({ 3 }, 2) }, true)
    differences.check(torch.inner, { n({ 2, 3 }, 1), n({ 2, 3 }, 2) }, true)
  end)

  it("refuse an addend that is larger than the product", function()
    raises("RuntimeError", "cannot be expanded to the product's shape %[2, 2%]", function()
      torch.addmm(torch.zeros({ 3, 2, 2 }), torch.zeros({ 2, 3 }), torch.zeros({ 3, 2 }))
    end)
  end)
end)

describe("linear and bilinear", function()
  it("are x w^T + b over any leading dimensions", function()
    local x, w, b = numbers({ 2, 3, 4 }, 1), numbers({ 5, 4 }, 2), numbers({ 5 }, 3)
    local y, bias = F.linear(x, w, b), b:tolist()
    for i = 0, 1 do
      local want = product(x[i], w:t():contiguous())
      for _, row in ipairs(want) do
        for j = 1, 5 do
          row[j] = row[j] + bias[j]
        end
      end
      near(y[i], want)
    end
    differences.check(F.linear, { numbers({ 2, 3 }, 1), numbers({ 2, 3 }, 2), numbers({ 2 }, 3) })
  end)

  it("follow the type of the input on the device alone", function()
    local x, w, bias = numbers({ 2, 4 }, 1):half(), numbers({ 5, 4 }, 2):float(), torch.zeros({ 5 })
    local y = require("lupine").compile(F.linear, { x, w, bias })(x, w, bias)
    assert.equal(torch.float16, y.dtype)
    raises("RuntimeError", "linear: `weight` must have the same dtype", function()
      F.linear(x, w)
    end)
    raises("RuntimeError", "linear: `bias` must have the same dtype", function()
      F.linear(x, w:half(), bias)
    end)
    raises("RuntimeError", "bilinear: `weight` must have the same dtype", function()
      F.bilinear(x, x, torch.zeros({ 3, 4, 4 }))
    end)
  end)

  it("name shapes that do not fit", function()
    raises("RuntimeError", "`input` of shape %[2, 3%].*`weight` of shape %[5, 4%]", function()
      F.linear(torch.zeros({ 2, 3 }), torch.zeros({ 5, 4 }))
    end)
  end)

  it("bilinear is a sum over both inputs", function()
    local x, y, w = numbers({ 2, 2 }, 1), numbers({ 2, 3 }, 2), numbers({ 2, 2, 3 }, 3)
    local out, a, b, c = F.bilinear(x, y, w):tolist(), x:tolist(), y:tolist(), w:tolist()
    for r = 1, 2 do
      for o = 1, 2 do
        local s = 0
        for i = 1, 2 do
          for j = 1, 3 do
            s = s + a[r][i] * c[o][i][j] * b[r][j]
          end
        end
        assert.near(s, out[r][o], 1e-12)
      end
    end
    differences.check(F.bilinear, { x, y, w }, true)
  end)

  it("takes a vector and a matrix of any rows and columns, turned or not", function()
    torch.manual_seed(11)
    for _, rows in ipairs({ 1, 3, 5, 64, 131 }) do
      for _, n in ipairs({ 1, 7, 16, 33, 5000 }) do
        local a, x = torch.randn(rows, n), torch.randn(n)
        local want = a:double():mul(x:double()):sum(1)
        for _, m in ipairs({ a, a:t():contiguous():t(), torch.cat({ a, a }, 1)[":, :" .. n] }) do
          helper.near(m:mv(x):double(), want, { 1e-4, 1e-5 })
          helper.near(x:matmul(m:t()):double(), want, { 1e-4, 1e-5 })
        end
      end
    end
  end)
end)
