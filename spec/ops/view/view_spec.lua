-- Views and arrangements, against index formulas written out in Lua.
local helper = require("spec.helper")
local torch = require("torch")
local near, raises = helper.near, helper.raises

-- 2 x 3 x 4 of i * 100 + j * 10 + k
local function cube()
  local t = {}
  for i = 0, 1 do
    t[i + 1] = {}
    for j = 0, 2 do
      t[i + 1][j + 1] = {}
      for k = 0, 3 do
        t[i + 1][j + 1][k + 1] = i * 100.0 + j * 10 + k
      end
    end
  end
  return torch.tensor(t)
end

describe("a view", function()
  it("shares memory with what it was taken from", function()
    local x = torch.zeros({ 2, 6 })
    x:view({ 3, 4 })[1] = 7
    x:t():select(0, 0):fill_(1)
    near(x, { { 1, 0, 0, 0, 7, 7 }, { 1, 7, 0, 0, 0, 0 } })
  end)

  it("permutes, slices and takes diagonals by index", function()
    local x = cube()
    assert.equal(112, x:permute({ 2, 0, 1 })[2][1][1]:item())
    near(x["1, ::2, 1:3"], { { 101, 102 }, { 121, 122 } })
    near(x:diagonal(1, 1, 2), { { 1, 12, 23 }, { 101, 112, 123 } })
    near(torch.arange(8):unfold(0, 3, 2), { { 0, 1, 2 }, { 2, 3, 4 }, { 4, 5, 6 } })
  end)

  it("is copied by reshape where strides forbid a view, and refused by view", function()
    local x = cube():transpose(0, 2)
    assert.equal(111, x:reshape({ 24 })[9]:item()) -- 9 = (1 * 3 + 1) * 2 + 1
    raises("RuntimeError", "not compatible", function()
      x:view({ 24 })
    end)
  end)

  it("stays inside its storage", function()
    raises("RuntimeError", "out of bounds for storage", function()
      torch.zeros({ 4 }):as_strided({ 3 }, { 2 })
    end)
    near(torch.arange(6):as_strided({ 2, 2 }, { 1, 3 }, 1), { { 1, 4 }, { 2, 5 } })
  end)

  -- PyTorch's values: what lies beside the operand gets none, and elements that
  -- share memory share its gradient.
  it("passes gradients through memory seen by strides as PyTorch does", function()
    local function gradient(fn)
      local x = torch.arange(10, 16):float():reshape(3, 2):requires_grad_()
      fn(x * 1):backward()
      return x.grad
    end
    near(gradient(function(y)
      y:t():as_strided({ 2, 2 }, { 1, 2 }, 0):mul_(torch.tensor({ { 1, 2 }, { 3, 4 } }))
      return (y * torch.arange(1, 7):reshape(3, 2)):sum()
    end), { { 1, 6 }, { 6, 16 }, { 5, 6 } })
    near(gradient(function(y) return y["0:1, 0:1"]:as_strided({ 2 }, { 1 }):sum() end),
      { { 1, 0 }, { 0, 0 }, { 0, 0 } })
    near(gradient(function(y) return y[0]:expand(3, 2):as_strided({ 2 }, { 1 }):sum() end),
      { { 1, 1 }, { 0, 0 }, { 0, 0 } })
    near(gradient(function(y)
      y = y:t_()
      y:as_strided({ 2, 2 }, { 1, 2 }, 0):mul_(torch.tensor({ { 1, 2 }, { 3, 4 } }))
      return (y * torch.arange(1, 7):reshape(2, 3)):sum()
    end), { { 1, 12 }, { 4, 20 }, { 3, 6 } })
  end)

  it("as_strided_scatter reads a gradient that is part of a larger one in its place", function()
    local x, src = torch.zeros(4), torch.zeros(2):requires_grad_()
    torch.cat({ torch.ones(3), x:as_strided_scatter(src, { 2 }, { 2 }, 1) })
      :backward(torch.arange(7):float())
    near(src.grad, { 4, 6 }) -- of elements 3 + 1 and 3 + 3
  end)

  it("has PyTorch's strides where expand adds dimensions", function()
    local x, scalar = torch.ones(2, 3), torch.tensor(1.0)
    for sizes, strides in pairs({
      [{ 1, 2, 3 }] = { 6, 3, 1 }, [{ 1, 1, 2, 3 }] = { 6, 6, 3, 1 },
      [{ 1, 2, 2, 3 }] = { 0, 0, 3, 1 }, [{ 2, 1, 2, 3 }] = { 0, 6, 3, 1 },
    }) do
      assert.same(strides, { table.unpack(x:expand(sizes):stride()) })
    end
    assert.same({ 0, 0 }, { table.unpack(scalar:expand(1, 1):stride()) })
    local v = x:unsqueeze(0) -- the same elements in the same places
    near(v:add_(x:expand_as(v)), { { { 2, 2, 2 }, { 2, 2, 2 } } })
  end)

  it("sends gradients back to the elements it was made of", function()
    local x = torch.arange(5, { dtype = torch.float64 }):requires_grad_(true)
    local w = torch.tensor({ { 1, 2, 3 }, { 10, 20, 30 }, { 100, 200, 300 } })
    local y = x:unfold(0, 3, 1) * w
    y:sum():backward()
    near(x.grad, { 1, 12, 123, 230, 300 })
  end)
end)

describe("arrangements", function()
  it("tril and triu keep one side of every matrix, in place or not, dense or not", function()
    local i, j = torch.arange(4):view(4, 1), torch.arange(5):view(1, 5)
    for _, dtype in ipairs({ torch.float32, torch.bool, torch.int64, torch.float16 }) do
      for k = -6, 6 do
        local x = torch.randint(1, 2, { 2, 4, 5 }):to(dtype)
        local turned = x:transpose(1, 2):contiguous():transpose(1, 2)
        for name, mask in pairs({ tril = (j - i):le(k), triu = (j - i):ge(k) }) do
          local want = x:mul(mask:to(dtype))
          assert.is_true(torch.equal(torch[name](x, k), want))
          assert.is_true(torch.equal(torch[name](turned, k), want))
          local y = x:clone()
          y[name .. "_"](y, k)
          assert.is_true(torch.equal(y, want))
        end
      end
    end
  end)

  it("join, roll, repeat and pad", function()
    local x = torch.tensor({ { 1, 2 }, { 3, 4 } })
    near(torch.cat({ x, x["0:1"] }), { { 1, 2 }, { 3, 4 }, { 1, 2 } })
    near(torch.stack({ x, x }, 2)[0], { { 1, 1 }, { 2, 2 } })
    near(torch.roll(x, { 1, 1 }, { 0, 1 }), { { 4, 3 }, { 2, 1 } })
    near(x["repeat"](x, { 1, 2 }), { { 1, 2, 1, 2 }, { 3, 4, 3, 4 } })
    near(torch.constant_pad_nd(x, { 1, 0, -1, 1 }, 9), { { 9, 3, 4 }, { 9, 9, 9 } })
    near(torch.tril(torch.ones({ 2, 3 }), -1), { { 0, 0, 0 }, { 1, 0, 0 } })
    near(torch.rot90(x), { { 2, 4 }, { 1, 3 } })
  end)

  it("name the sizes that do not fit", function()
    raises("RuntimeError", "except in dimension 0", function()
      torch.cat({ torch.zeros({ 2, 2 }), torch.zeros({ 2, 3 }) })
    end)
    raises("RuntimeError", "'%[4, %-1%]' is invalid for input of size 6", function()
      torch.zeros({ 6 }):reshape({ 4, -1 })
    end)
  end)

  it("split into as many parts as the sizes say", function()
    local parts = torch.arange(7):split(3)
    assert.equal(3, #parts)
    near(parts[3], { 6 })
    assert.equal(2, #torch.arange(7):split({ 2, 5 }))
    near(torch.arange(7):tensor_split(3)[1], { 0, 1, 2 })
    near(torch.arange(5):chunk(2)[2], { 3, 4 })
  end)

  it("move large transposes exactly", function()
    local x = torch.arange(513 * 770):view({ 513, 770 })
    local y = x:t():contiguous()
    for _, p in ipairs({ { 0, 0 }, { 5, 7 }, { 769, 512 }, { 31, 32 }, { 700, 64 } }) do
      assert.equal(p[2] * 770 + p[1], y[p[1]][p[2]]:item())
    end
  end)

  it("shows the same bytes as another type", function()
    local x = torch.ones(2, 2) -- float32's 1 is 0x3f800000
    near(x:view(torch.int32), { { 0x3f800000, 0x3f800000 }, { 0x3f800000, 0x3f800000 } })
    near(x:view(torch.int16), { { 0, 0x3f80, 0, 0x3f80 }, { 0, 0x3f80, 0, 0x3f80 } })
    near(x:view({ dtype = torch.int16 }):view(torch.float32), { { 1, 1 }, { 1, 1 } })
    x:view(torch.int32)[0]:fill_(0x40000000)
    near(x, { { 2, 2 }, { 1, 1 } })
    near(x:view(torch.int16)["1:, 2:"]:view(torch.float32), { { 1 } })
  end)

  it("names what keeps bytes from being another type's", function()
    local function refuses(pattern, t, dtype)
      raises("RuntimeError", pattern, function()
        t:view(dtype)
      end)
    end
    refuses("size%(%-1%) must be divisible by 4.*got 3", torch.ones(2, 3, { dtype = torch.uint8 }),
      torch.float32)
    refuses("dim%(%) cannot be 0", torch.tensor(1.0), torch.int16)
    refuses("stride%(%-1%) must be 1.*got 4", torch.ones(4, 4):t(), torch.int16)
    refuses("storage_offset%(%) must be divisible by 2", torch.ones(6):half()["1:5"],
      torch.float32)
    raises("NotImplementedError", "bits have no gradient", function()
      torch.ones(2, { requires_grad = true }):view(torch.float64):sum():backward()
    end)
  end)
end)

-- Long rows are filled a block at a time; what lies beside them stays.
it("fill_ writes its elements and no others, of every size", function()
  for _, dtype in ipairs({ "bool", "uint8", "float16", "int32", "float32", "float64" }) do
    for _, n in ipairs({ 1, 255, 256, 257, 511, 513, 1023, 1025, 2047, 2048, 2049, 4097, 9000 }) do
      local x = torch.zeros({ n + 2 }, { dtype = torch[dtype] })
      x:narrow(0, 1, n):fill_(1)
      assert.same({ 0, n, 0 }, { x[0]:double():item(), x:double():sum():item(),
        x[n + 1]:double():item() }, dtype .. " " .. n)
    end
  end
end)

describe("a copy of a view with narrow rows", function()
  it("has its elements, of every size", function()
    for _, dtype in ipairs({ torch.uint8, torch.bfloat16, torch.float32, torch.int64 }) do
      local x = (torch.arange(5 * 12) % 50):to(dtype):view({ 5, 12 })
      for width = 2, 9 do
        local windows, repeats = {}, {}
        for i = 0, 4 do
          windows[i + 1], repeats[i + 1] = {}, {}
          for j = 0, 12 - width do
            local row, same = {}, {}
            for c = 0, width - 1 do
              row[c + 1], same[c + 1] = (12 * i + j + c) % 50, (12 * i + j) % 50
            end
            windows[i + 1][j + 1], repeats[i + 1][j + 1] = row, same
          end
        end
        local starts = x:narrow(1, 0, 13 - width)
        assert.same(windows, x:unfold(1, width, 1):contiguous():long():tolist())
        assert.same(repeats, starts:unsqueeze(2):expand({ -1, -1, width }):contiguous():long()
          :tolist())
        local wide = torch.zeros({ 5, 13 - width, width * 2 }, { dtype = dtype })
        wide["..., ::2"] = x:unfold(1, width, 1)
        assert.same(windows, wide["..., ::2"]:long():tolist())
      end
    end
  end)
end)
