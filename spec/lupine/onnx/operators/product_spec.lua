-- Products of matrices, against loops.
local both = require("spec.lupine.onnx.both")
local torch = require("torch")

-- a [m, k] times b [k, n], as a nested list.
local function product(a, b)
  local rows, columns, out = a:tolist(), b:t():tolist(), {}
  for i, row in ipairs(rows) do
    out[i] = {}
    for j, column in ipairs(columns) do
      local sum = 0
      for k, x in ipairs(row) do
        sum = sum + x * column[k]
      end
      out[i][j] = sum
    end
  end
  return torch.tensor(out)
end

local TYPES = { torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32,
  torch.int64 }

describe("MatMul", function()
  it("is that of matrices, vectors and stacks of matrices, in every type", function()
    torch.manual_seed(10)
    local a, b = torch.randint(-3, 4, { 3, 4 }), torch.randint(-3, 4, { 4, 2 })
    local want = product(a, b)
    for _, dtype in ipairs(TYPES) do
      local x, w = a:to(dtype), b:to(dtype)
      local y = both("MatMul", { x, w }, nil, { version = 9 })
      assert.equal(dtype, y.dtype)
      assert.same(want:tolist(), y:long():tolist())
      assert.same(want[1]:tolist(), both("MatMul", { x[1], w }):long():tolist())
      local stack = both("MatMul", { x:expand({ 5, 1, 3, 4 }), w:expand({ 2, 4, 2 }) })
      assert.same({ 5, 2, 3, 2 }, { table.unpack(stack.shape) })
      assert.same(want:tolist(), stack[4][1]:long():tolist())
    end
    both.gradients("MatMul", { torch.randn({ 2, 3 }), torch.randn({ 2, 3, 2 }) })
  end)

  it("refuses scalars and other sizes", function()
    local x = torch.ones({ 2, 3 })
    both.refuses("input 'B' is a scalar", "MatMul", { x, torch.tensor(1.0) })
    both.refuses("inputs 'A' of the shape [2, 3] and 'B' of the shape [2, 3]: 3 columns and 2 "
      .. "rows", "MatMul", { x, x })
    both.refuses("inputs 'A' and 'B' must be of one type", "MatMul", { x, x:t():half() })
  end)
end)

describe("Gemm", function()
  local a, b = torch.randint(-3, 4, { 3, 4 }), torch.randint(-3, 4, { 4, 2 })
  local plain = product(a, b)

  it("transposes, scales and adds a C that broadcasts", function()
    for _, shape in ipairs({ {}, { 1 }, { 2 }, { 1, 2 }, { 3, 1 }, { 3, 2 } }) do
      local c = torch.randint(-3, 4, shape)
      for mode = 0, 3 do
        local trans_a, trans_b = mode % 2, mode // 2
        local given = { (trans_a == 1 and a:t() or a):float(), (trans_b == 1 and b:t() or b)
          :float(), c:float() }
        local y = both("Gemm", given, { alpha = 0.5, beta = 0.25, transA = trans_a,
          transB = trans_b }, { version = 7 + mode })
        assert.same((plain * 0.5 + c * 0.25):tolist(), y:tolist())
      end
    end
    both.gradients("Gemm", { torch.randn({ 2, 3 }), torch.randn({ 4, 3 }), torch.randn({ 4 }) },
      { alpha = 0.5, beta = 2.0, transB = 1 })
  end)

  it("needs no C from version 11 on, and takes integers", function()
    for _, dtype in ipairs(TYPES) do
      local x, w = a:to(dtype), b:to(dtype)
      local y = both("Gemm", { x, w }, { alpha = 2.0 }, { version = 11 })
      assert.equal(dtype, y.dtype)
      assert.same((plain * 2):tolist(), y:long():tolist())
      y = both("Gemm", { x, w, torch.ones({ 2 }, { dtype = dtype }) }, { beta = 3.0 })
      assert.same((plain + 3):tolist(), y:long():tolist())
    end
    both.refuses("attribute 'alpha' is 0.5, and the inputs are torch.int64", "Gemm", { a, b },
      { alpha = 0.5 })
    both.refuses("it has 2 inputs, Gemm takes 3", "Gemm", { a:float(), b:float() }, nil,
      { version = 9 })
  end)

  it("broadcasts before version 7 if it is said", function()
    local given = { a:float(), b:float(), torch.ones({ 2 }) }
    assert.same((plain + 1):tolist(), both("Gemm", given, { broadcast = 1 }, { version = 6 })
      :tolist())
    assert.same((plain + 1):tolist(), both("Gemm", { given[1], given[2], torch.ones({ 3, 2 }) },
      nil, { version = 6 }):tolist())
    both.refuses("input 'C' has the shape [2], the result [3, 2]; attribute 'broadcast' is 0",
      "Gemm", given, nil, { version = 6 })
  end)

  it("refuses other shapes", function()
    local x = torch.ones({ 2, 3 })
    both.refuses("input 'A' has the shape [1, 2, 3]. Allowed: 2 dimensions", "Gemm",
      { x:unsqueeze(0), x })
    both.refuses("inputs 'A' and 'B': 3 columns and 2 rows", "Gemm", { x, x })
    both.refuses("input 'C' of the shape [4] does not broadcast to [2, 2]", "Gemm", { x, x,
      torch.ones({ 4 }) }, { transB = 1 })
    both.refuses("attribute 'transA' is 2", "Gemm", { x, x }, { transA = 2 })
  end)
end)

describe("Einsum", function()
  it("sums products over letters", function()
    local a, b = torch.randint(-3, 4, { 3, 4 }), torch.randint(-3, 4, { 4, 2 })
    local want = product(a, b)
    for _, dtype in ipairs({ torch.float32, torch.float64, torch.int32 }) do
      local x, w = a:to(dtype), b:to(dtype)
      assert.same(want:tolist(), both("Einsum", { x, w }, { equation = "ij, jk -> ik" }):long()
        :tolist())
      assert.same(want:t():tolist(), both("Einsum", { x, w }, { equation = "ij,jk->ki" }):long()
        :tolist())
    end
    assert.same(want:tolist(), both("Einsum", { a:float(), b:float() }, { equation = "ij,jk" })
      :long():tolist())
    local square = torch.randn({ 2, 3, 3 })
    both.near(both("Einsum", { square }, { equation = "...ii->...i" }),
      both.flat(square:diagonal(0, 1, 2)))
    both.gradients("Einsum", { torch.randn({ 2, 3 }), torch.randn({ 3, 2 }) },
      { equation = "ij,ji->i" })
    both.refuses("attribute 'equation' is missing", "Einsum", { a })
  end)
end)

describe("Det", function()
  it("is that of each matrix", function()
    local x = torch.tensor({ { { 1.0, 2 }, { 3, 4 } }, { { 2, 0 }, { 5, 3 } } })
    both.near(both("Det", { x }), { -2, 6 })
    both.near(both("Det", { x[1]:double() }), { 6 })
    both.gradients("Det", { x })
    both.refuses("input 'X' has the shape [2, 1]. Allowed: square matrices", "Det",
      { torch.ones({ 2, 1 }) })
  end)
end)
