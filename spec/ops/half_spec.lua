-- What is rounded, and when, in the half types: values from PyTorch 2.15 on the
-- CPU, bit by bit, of operands that `numbers` makes (its formula is there too).
local F = require("torch.nn.functional")
local helper = require("spec.helper")
local lupine = require("lupine")
local torch = require("torch")

-- Numbers between -30/19 and 30/19, different from call to call.
local function numbers(factor, ...)
  local list, n = {}, 1
  for _, size in ipairs({ ... }) do
    n = n * size
  end
  for k = 0, n - 1 do
    list[k + 1] = ((k * factor + 7) % 61 - 30) / 19
  end
  return torch.tensor(list, { dtype = torch.float64 }):reshape({ ... })
end

-- Products with an addend: added in float32 and rounded once. addbmm rounds
-- after each product of the batch, addr each of its steps.
local products = {
  ["linear"] = { function(fill)
    return F.linear(fill(17, 2, 5), fill(23, 3, 5), fill(29, 3))
  end,
    float16 = { -0.561523438, 1.08105469, -4.375, -2.38085938, -0.698242188, -2.05859375 },
    bfloat16 = { -0.56640625, 1.078125, -4.375, -2.375, -0.69921875, -2.0625 },
  },
  ["linear of three dimensions"] = { function(fill)
    return F.linear(fill(17, 1, 2, 5), fill(23, 3, 5), fill(29, 3))
  end,
    float16 = { -0.561523438, 1.08105469, -4.375, -2.38085938, -0.698242188, -2.05859375 },
    bfloat16 = { -0.56640625, 1.078125, -4.375, -2.375, -0.69921875, -2.0625 },
  },
  ["linear of a vector"] = { function(fill)
    return F.linear(fill(31, 9), fill(23, 4, 9), fill(29, 4))
  end,
    float16 = { -0.784179688, 1.6953125, -3.93554688, 2.25976562 },
    bfloat16 = { -0.78125, 1.6875, -3.921875, 2.265625 },
  },
  ["addmm"] = { function(fill)
    return torch.addmm(fill(11, 3), fill(13, 2, 4), fill(19, 4, 3), { beta = 1.25, alpha = 0.7 })
  end,
    float16 = { 1.01757812, -1.02148438, -0.814453125, -1.80859375, -0.796875, 0.331787109 },
    bfloat16 = { 1.0234375, -1.0234375, -0.8125, -1.8046875, -0.796875, 0.330078125 },
  },
  ["baddbmm"] = { function(fill)
    return torch.baddbmm(fill(11, 2, 1, 3), fill(13, 2, 2, 4), fill(19, 2, 4, 3))
  end,
    float16 = { 2.40429688, -0.963867188, -1.12207031, -1.6328125, -0.642578125, 0.515136719,
      -0.287353516, 2.86132812, -0.748046875, 1.15820312, -0.121765137, -0.895019531 },
    bfloat16 = { 2.40625, -0.96875, -1.125, -1.625, -0.64453125, 0.51171875, -0.29296875,
      2.859375, -0.7421875, 1.15625, -0.122070312, -0.890625 },
  },
  ["addbmm"] = { function(fill)
    return torch.addbmm(fill(11, 2, 3), fill(13, 3, 2, 4), fill(19, 3, 4, 3))
  end,
    float16 = { 1.88476562, 2.40039062, -1.64257812, 1.03027344, -0.418701172, 0.66796875 },
    bfloat16 = { 1.8828125, 2.40625, -1.640625, 1.0390625, -0.412109375, 0.6640625 },
  },
  ["addmv"] = { function(fill)
    return torch.addmv(fill(11, 5), fill(13, 5, 4), fill(19, 4))
  end,
    float16 = { -0.706054688, -3.04101562, -1.49121094, -0.614746094, 3.47070312 },
    bfloat16 = { -0.70703125, -3.046875, -1.4921875, -0.6171875, 3.46875 },
  },
  ["addr"] = { function(fill)
    return torch.addr(fill(11, 2, 3), fill(13, 2), fill(19, 3), { beta = 1.3, alpha = 0.7 })
  end,
    float16 = { -0.547851562, -0.642578125, -0.737792969, 1.13085938, 1.51367188, -2.27539062 },
    bfloat16 = { -0.546875, -0.640625, -0.734375, 1.1328125, 1.5078125, -2.265625 },
  },
  ["conv1d"] = { function(fill)
    return F.conv1d(fill(17, 1, 2, 5), fill(23, 2, 2, 3), fill(29, 2))
  end,
    float16 = { 3.47460938, 0.379638672, -2.71679688, 2.03125, -2.11523438, 1.33886719 },
    bfloat16 = { 3.46875, 0.3828125, -2.71875, 2.046875, -2.109375, 1.34375 },
  },
  ["conv2d"] = { function(fill)
    return F.conv2d(fill(17, 2, 4, 3), fill(23, 2, 2, 3, 2), fill(29, 2))
  end,
    float16 = { 5.4453125, -4.3359375, 1.62304688, 0.801269531, -3.52929688, 2.24023438,
      -1.93261719, -2.921875 },
    bfloat16 = { 5.4375, -4.34375, 1.625, 0.80078125, -3.53125, 2.234375, -1.9296875, -2.921875 },
  },
  ["conv3d"] = { function(fill)
    return F.conv3d(fill(17, 1, 2, 2, 2, 3), fill(23, 2, 2, 2, 2, 2), fill(29, 2))
  end,
    float16 = { 4.0546875, -5.3046875, 5.58203125, -3.95507812 },
    bfloat16 = { 4.0625, -5.3125, 5.59375, -3.953125 },
  },
  ["conv_transpose1d"] = { function(fill)
    return F.conv_transpose1d(fill(17, 1, 2, 2), fill(23, 2, 2, 2), fill(29, 2))
  end,
    float16 = { 0.499267578, -1.12207031, -3.53710938, -1.36425781, 0.834472656, 1.80566406 },
    bfloat16 = { 0.5, -1.1171875, -3.546875, -1.3671875, 0.83203125, 1.8125 },
  },
  ["conv_transpose2d"] = { function(fill)
    return F.conv_transpose2d(fill(17, 1, 2, 2, 1), fill(23, 2, 1, 2, 3), fill(29, 1))
  end,
    float16 = { 0.0420837402, -0.723144531, -3.34765625, -0.385009766, 0.251464844, -1.81445312,
      -0.884277344, 0.517089844, -1.79785156 },
    bfloat16 = { 0.0419921875, -0.72265625, -3.34375, -0.38671875, 0.255859375, -1.8203125,
      -0.8828125, 0.5234375, -1.8046875 },
  },
}

-- The case as a function of its operands, and these in `dtype`.
local function split(case, dtype)
  local operands = {}
  local function call(...)
    local given, at = { ... }, 0
    return case[1](function(...)
      at = at + 1
      operands[at] = operands[at] or numbers(...):to(dtype)
      return given[at] or operands[at]
    end)
  end
  call()
  return call, operands
end

describe("a product with an addend in a half type", function()
  for _, name in ipairs({ "float16", "bfloat16" }) do
    for what, case in pairs(products) do
      it(("has PyTorch's bits, eager and compiled: %s of %s"):format(what, name), function()
        local call, operands = split(case, torch[name])
        local want = torch.tensor(case[name], { dtype = torch.float64 }):to(torch[name])
        local got = call(table.unpack(operands))
        assert.equal(torch[name], got.dtype)
        assert.same(want:tolist(), got:flatten():tolist())
        local run = lupine.compile(call, operands)
        assert.same(want:tolist(), run(table.unpack(operands)):flatten():tolist())
      end)
    end
  end

  it("has the gradients of the product, and of the addend summed to its shape", function()
    local x = numbers(17, 4, 5):half():requires_grad_()
    local w = numbers(23, 3, 5):half():requires_grad_()
    local b = numbers(29, 3):half():requires_grad_()
    local dy = numbers(11, 4, 3):half()
    F.linear(x, w, b):backward(dy)
    assert.is_true(torch.equal(x.grad, dy:matmul(w:detach())))
    assert.is_true(torch.equal(w.grad, dy:t():matmul(x:detach())))
    assert.is_true(torch.equal(b.grad, dy:sum(0)))
  end)

  it("takes no number of an addend that beta 0 leaves out", function()
    local c = torch.full({ 2, 3 }, 0 / 0):half()
    local x, y = numbers(13, 2, 4):half(), numbers(19, 4, 3):half()
    assert.is_true(torch.equal(torch.mm(x, y), torch.addmm(c, x, y, { beta = 0 })))
  end)

  it("names an addend that does not fit", function()
    local x, y = numbers(13, 2, 4):half(), numbers(19, 4, 3):half()
    helper.raises("RuntimeError", "addmm: `self` of shape %[4%] cannot be expanded", function()
      torch.addmm(torch.zeros(4):half(), x, y)
    end)
    helper.raises("RuntimeError", "`bias` to be 1%-dimensional with 2 elements", function()
      F.conv1d(numbers(17, 1, 2, 5):half(), numbers(23, 2, 2, 3):half(), torch.zeros(3):half())
    end)
  end)
end)

-- The gradient of f by an operand, for a fixed gradient of its result.
local function gradient(f, fill)
  local x = fill(23, 8):clone():requires_grad_()
  return torch.autograd.grad(f(x), { x }, { grad_outputs = fill(11, 8) })[1]
end

local kernels = {
  ["gradient of mish"] = { function(fill)
    return gradient(F.mish, fill)
  end,
    float16 = { 0.00589752, -0.378906, -0.0567017, 0.0751953, 0.9375, 0.115051, -0.347168,
      -0.373291 },
    bfloat16 = { 0.00588989, -0.378906, -0.0568848, 0.0751953, 0.933594, 0.114746, -0.347656,
      -0.375 },
  },
  ["gradient of hardswish"] = { function(fill)
    return gradient(F.hardswish, fill)
  end,
    float16 = { -0.116699, -0.315674, -0.0475769, 0.124634, 0.708008, 0.0402527, -0.357422,
      -0.287598 },
    bfloat16 = { -0.116699, -0.316406, -0.0476074, 0.125, 0.707031, 0.0397949, -0.357422,
      -0.289062 },
  },
  ["gradient of softplus"] = { function(fill)
    return gradient(F.softplus, fill)
  end,
    float16 = { -0.277832, -0.315674, -0.0405579, 0.164307, 0.66748, -0.260986, -0.387451,
      -0.257568 },
    bfloat16 = { -0.277344, -0.316406, -0.0405273, 0.165039, 0.664062, -0.259766, -0.388672,
      -0.257812 },
  },
  ["gradient of logsigmoid"] = { function(fill)
    return gradient(F.logsigmoid, fill)
  end,
    float16 = { -0.933105, -0.315674, -0.012085, 0.362061, 0.437988, -1.26562, -0.560059,
      -0.110901 },
    bfloat16 = { -0.933594, -0.316406, -0.012146, 0.363281, 0.435547, -1.26562, -0.5625,
      -0.11084 },
  },
  ["gradient of elu"] = { function(fill)
    return gradient(F.elu, fill)
  end,
    float16 = { -0.36084, -0.631348, -0.0526428, 0.239014, 1.10547, -0.314697, -0.655273,
      -0.368408 },
    bfloat16 = { -0.361328, -0.632812, -0.0527344, 0.239258, 1.10156, -0.314453, -0.65625,
      -0.369141 },
  },
  ["huber_loss"] = { function(fill)
    return F.huber_loss(fill(23, 8), fill(11, 8), { reduction = "none" })
  end,
    float16 = { 0, 0.199341, 0.763672, 0.815918, 0.234131, 0.00139046, 0.16748, 0.710938 },
    bfloat16 = { 0, 0.200195, 0.765625, 0.8125, 0.231445, 0.00149536, 0.166992, 0.710938 },
  },
  ["interpolate linear"] = { function(fill)
    return F.interpolate(fill(17, 1, 1, 4), { size = { 9 }, mode = "linear" })
  end,
    float16 = { -1.21094, -1.06152, -0.663574, -0.265869, 0.131714, 0.529297, 0.927246, 1.32422,
      1.47363 },
    bfloat16 = { -1.21094, -1.0625, -0.664062, -0.267578, 0.130859, 0.527344, 0.925781, 1.32812,
      1.47656 },
  },
  ["interpolate bilinear"] = { function(fill)
    return F.interpolate(fill(17, 1, 1, 3, 2), { size = { 4, 3 }, mode = "bilinear" })
  end,
    float16 = { -1.21094, -0.763184, -0.315674, -0.0921631, 0.355225, 0.802734, 0.0460815,
      0.493408, 0.940918, -0.842285, -0.394775, 0.0526428 },
    bfloat16 = { -1.21094, -0.765625, -0.316406, -0.0927734, 0.355469, 0.804688, 0.0449219,
      0.494141, 0.941406, -0.84375, -0.394531, 0.0527344 },
  },
}

-- To one unit in the last place: a step in the type itself loses more.
describe("what is one kernel in PyTorch", function()
  for _, name in ipairs({ "float16", "bfloat16" }) do
    for what, case in pairs(kernels) do
      it(("is as near as there: %s of %s"):format(what, name), function()
        local got = case[1](function(...)
          return numbers(...):to(torch[name])
        end)
        assert.equal(torch[name], got.dtype)
        helper.near(got:flatten(), case[name], { 0, name == "float16" and 2 ^ -10 or 2 ^ -7 })
      end)
    end
  end
end)

describe("smooth_l1_loss of float16", function()
  it("is its formula, rounded once", function()
    local x, y = numbers(23, 8):half(), numbers(11, 8):half()
    local d, want = (x:double() - y:double()):abs():tolist(), {}
    for i, v in ipairs(d) do
      want[i] = v < 1 and v * v / 2 or v - 0.5
    end
    helper.near(F.smooth_l1_loss(x, y, { reduction = "none" }), want, { 0, 2 ^ -11 })
  end)
end)

describe("a comparison of a half tensor", function()
  local a = torch.tensor({ 0.1, 2048, 1e-5 }):half()

  local function same(want, got)
    assert.same(want, got:tolist())
  end

  it("is with a tensor without dimensions rounded to its type", function()
    for _, wide in ipairs({ torch.float64, torch.float32 }) do
      local v = torch.tensor(0.1, { dtype = wide })
      same({ true, false, false }, a:eq(v))
      same({ false, true, false }, a:gt(v))
      same({ false, true, false }, v:lt(a))
      same({ true, false, true }, v:ge(a))
    end
    same({ false, true, false }, a:bfloat16():eq(torch.tensor(2050.0)))
    same({ false, false, false }, torch.logical_and(a, torch.tensor(1e-9)))
  end)

  it("is with integers rounded to its type", function()
    same({ false, true, false }, a:eq(torch.tensor({ 0, 2049, 0 })))
    same({ false, false, false }, torch.tensor({ 0, 2049, 0 }):gt(a))
    same({ false, true, false }, a:ge(torch.tensor(2049)))
  end)

  it("is so in a compiled chain", function()
    local v, i = torch.tensor(0.1), torch.tensor({ 0, 2049, 0 })
    local run = lupine.compile(function(x, y, z)
      return (x * 1):eq(y), (x * 1):eq(z)
    end, { a, v, i })
    local by_float, by_int = run(a, v, i)
    same({ true, false, false }, by_float)
    same({ false, true, false }, by_int)
  end)
end)

-- Through float32, which rounds those that need more than 24 bits first.
local integers = {
  values = { 0, -1, 2049, 2051, 65519, 65520, -70000, 257, 259, 16777217, 33685505, 2147483647 },
  float16 = { 0, -1, 2048, 2052, 65504, math.huge, -math.huge, 257, 259, math.huge, math.huge,
    math.huge },
  bfloat16 = { 0, -1, 2048, 2048, 65536, 65536, -70144, 256, 260, 16777216, 33554432,
    2147483648 },
}

describe("integers that become half types", function()
  for _, name in ipairs({ "float16", "bfloat16" }) do
    for _, from in ipairs({ torch.int64, torch.int32 }) do
      it(("are PyTorch's, however they are copied: %s to %s"):format(from, name), function()
        local x, n = torch.tensor(integers.values, { dtype = from }), #integers.values
        local row = torch.zeros({ n }, { dtype = torch[name] })
        local column = torch.zeros({ n, 2 }, { dtype = torch[name] })
        column:select(1, 1):copy_(x)
        for _, y in ipairs({ x:to(torch[name]), row:copy_(x), column:select(1, 1) }) do
          assert.same(integers[name], y:double():tolist())
        end
      end)
    end
  end

  it("are the other half type's through float32", function()
    local x = torch.tensor({ 1 / 3, 65504, 1e-7, 70000 }, { dtype = torch.bfloat16 })
    local column = torch.zeros({ 4, 2 }, { dtype = torch.float16 })
    column:select(1, 0):copy_(x)
    assert.same({ 0.333984375, math.huge, 1.1920928955078125e-07, math.huge },
      column:select(1, 0):double():tolist())
  end)
end)

describe("float32 that becomes bfloat16", function()
  it("is rounded alike in rows and one by one, whatever its bits", function()
    local high = torch.arange(65536) * 65536
    high = torch.where(high:ge(2 ^ 31), high - 2 ^ 32, high):long()
    for _, low in ipairs({ 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff }) do
      local x = (high + low):int():view(torch.float32)
      local apart = torch.stack({ x, x }, 1):select(1, 0)
      local y = x:bfloat16():view(torch.int16)
      assert.is_true(y:equal(apart:bfloat16():view(torch.int16)))
      -- one more where the rest is above a half, or a half and the number odd
      local up = low > 0x8000 and 1 or low == 0x8000 and high // 65536 % 2 or 0
      local want = (high // 65536 + up + 32768) % 65536 - 32768
      local number = x:eq(x)
      assert.is_true(y:long():masked_select(number):equal(want:masked_select(number)))
      assert.is_true(x:bfloat16():ne(x:bfloat16()):equal(number:logical_not()))
    end
  end)
end)

describe("half types that become integers", function()
  it("are cut off, of every type and however they lie", function()
    local list, cut = {}, {}
    for k = 1, 600 do
      list[k] = (k % 400 - 150) / 4 -- exact in both
      cut[k] = list[k] < 0 and math.ceil(list[k]) or list[k] // 1
    end
    for _, half in ipairs({ torch.float16, torch.bfloat16 }) do
      local x = torch.tensor(list):to(half)
      local twice = torch.stack({ x, x }, 1):select(1, 1)
      for _, dtype in ipairs({ torch.int64, torch.int32, torch.int16, torch.int8,
        torch.float64 }) do
        local want = torch.tensor(dtype == torch.float64 and list or cut):to(dtype)
        assert.is_true(x:to(dtype):equal(want))
        assert.is_true(twice:to(dtype):equal(want))
      end
      assert.is_true(x:bool():equal(torch.tensor(list):ne(0)))
    end
  end)
end)

-- Norms whose inverse, or whose square, no half type has: by hand, from the formulas.
describe("small and large rows of a half type", function()
  local near = { 0.01, 0.02 }

  local function rows(values, dtype)
    return torch.tensor(values, { dtype = dtype }):requires_grad_(true)
  end

  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    it(("have finite gradients of their norms: %s"):format(dtype), function()
      local one = rows({ { 1.2e-4 }, { 0.5 }, { 3e-3 } }, dtype)
      F.normalize(one):backward(torch.ones({ 3, 1 }, { dtype = dtype }))
      assert.same({ { 0 }, { 0 }, { 0 } }, one.grad:tolist())
      for _, p in ipairs({ 1.5, 2, 3 }) do
        local x = rows({ 2 ^ -13, -2 ^ -13 }, dtype)
        x:norm(p):mul(512):backward()
        helper.near(x.grad, { 512 * 2 ^ (1 / p - 1), -512 * 2 ^ (1 / p - 1) }, near)
      end
    end)

    it(("have cosines, as their length does not matter: %s"):format(dtype), function()
      for _, k in ipairs({ 2 ^ -13, 1, 2 ^ 9 }) do
        local a = rows({ { 3 * k, 4 * k }, { k, 0 } }, dtype)
        local b = rows({ { 4 * k, 3 * k }, { 0, k } }, dtype)
        local cosine = F.cosine_similarity(a, b)
        helper.near(cosine, { 0.96, 0 }, near)
        cosine:backward(torch.tensor({ k, k }, { dtype = dtype }))
        -- (b / |b| - a / |a| cos) / |a|
        helper.near(a.grad, { { (0.8 - 0.576) / 5, (0.6 - 0.768) / 5 }, { 0, 1 } }, near)
      end
    end)
  end
end)

-- Of PyTorch 2.15: sums, remainders and powers take a number as a half, products and
-- quotients do not.
local X = { float16 = { 0.360107422, 0.393310547, 0.357177734, 0.360107422 },
  bfloat16 = { 0.0693359375, 0.30078125, 0.330078125, -0.0732421875 } }
local Y = { float16 = { 1, -0.659179688, 1.03417969, 0.77734375 },
  bfloat16 = { 0.390625, -1.96875, -1.859375, -1 } }
local by_numbers = {
  ["x + 0.1"] = { function(x)
    return x + 0.1
  end,
    float16 = { 0.459960938, 0.493164062, 0.45703125, 0.459960938 },
    bfloat16 = { 0.169921875, 0.400390625, 0.4296875, 0.0268554688 },
  },
  ["x - 0.1"] = { function(x)
    return x - 0.1
  end,
    float16 = { 0.260253906, 0.293457031, 0.257324219, 0.260253906 },
    bfloat16 = { -0.0307617188, 0.201171875, 0.23046875, -0.173828125 },
  },
  ["0.3 - x"] = { function(x)
    return 0.3 - x
  end,
    float16 = { -0.0600585938, -0.0932617188, -0.0571289062, -0.0600585938 },
    bfloat16 = { 0.231445312, 0, -0.029296875, 0.375 },
  },
  ["x + 0.1 y"] = { function(x, y)
    return torch.add(x, y, { alpha = 0.1 })
  end,
    float16 = { 0.459960938, 0.327392578, 0.460449219, 0.437744141 },
    bfloat16 = { 0.108398438, 0.103515625, 0.143554688, -0.173828125 },
  },
  ["x - 0.3 y"] = { function(x, y)
    return torch.sub(x, y, { alpha = 0.3 })
  end,
    float16 = { 0.0600585938, 0.591308594, 0.046875, 0.126831055 },
    bfloat16 = { -0.0480957031, 0.89453125, 0.890625, 0.227539062 },
  },
  ["fmod"] = { function(x)
    return torch.fmod(x, 0.3)
  end,
    float16 = { 0.0600585938, 0.0932617188, 0.0571289062, 0.0600585938 },
    bfloat16 = { 0.0693359375, 0, 0.029296875, -0.0732421875 },
  },
  ["remainder"] = { function(x)
    return x % 0.3
  end,
    float16 = { 0.0600585938, 0.0932617188, 0.0571289062, 0.0600585938 },
    bfloat16 = { 0.0693359375, 0, 0.029296875, 0.227539062 },
  },
  ["|x| ^ 0.3"] = { function(x)
    return x:abs() ^ 0.3
  end,
    float16 = { 0.735839844, 0.755859375, 0.734375, 0.735839844 },
    bfloat16 = { 0.447265625, 0.6953125, 0.71484375, 0.455078125 },
  },
  ["0.3 ^ x"] = { function(x)
    return 0.3 ^ x
  end,
    float16 = { 0.6484375, 0.623046875, 0.650390625, 0.6484375 },
    bfloat16 = { 0.921875, 0.6953125, 0.671875, 1.09375 },
  },
  ["0.1 x"] = { function(x)
    return x * 0.1
  end,
    float16 = { 0.0360107422, 0.0393371582, 0.0357055664, 0.0360107422 },
    bfloat16 = { 0.00692749023, 0.0300292969, 0.0329589844, -0.00732421875 },
  },
  ["x / 0.3"] = { function(x)
    return x / 0.3
  end,
    float16 = { 1.20019531, 1.31054688, 1.19042969, 1.20019531 },
    bfloat16 = { 0.231445312, 1, 1.1015625, -0.244140625 },
  },
}

describe("a number beside a half type", function()
  for text, of in pairs(by_numbers) do
    it("is rounded where PyTorch's is: " .. text, function()
      for name, values in pairs(X) do
        local dtype = torch[name]
        local x = torch.tensor(values, { dtype = torch.float64 }):to(dtype)
        local y = torch.tensor(Y[name], { dtype = torch.float64 }):to(dtype)
        local want = torch.tensor(of[name], { dtype = torch.float64 }):to(dtype)
        assert.same(want:tolist(), of[1](x, y):tolist())
        local compiled = lupine.compile(of[1], { x, y })
        assert.same(want:tolist(), compiled(x, y):tolist())
      end
    end)
  end
end)
