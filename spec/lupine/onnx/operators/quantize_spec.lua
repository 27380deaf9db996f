-- Quantisation, against loops.
local both = require("spec.lupine.onnx.both")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

local CONSTANTS = { constants = { [2] = true, [3] = true } }

local function even(x)
  local down = math.floor(x)
  local rest = x - down
  return (rest > 0.5 or rest == 0.5 and down % 2 == 1) and down + 1 or down
end

local function quantized(low, high)
  return function(x, scale, zero)
    return math.max(low, math.min(high, even(x / scale) + zero))
  end
end

local function u8(list)
  return torch.tensor(list, { dtype = torch.uint8 })
end

local function i8(list)
  return torch.tensor(list, { dtype = torch.int8 })
end

describe("QuantizeLinear", function()
  local x = torch.tensor({ { -300.0, -1.5, -0.5, 0 }, { 0.5, 1.5, 2.5, 1000 } })

  it("rounds halves to even and saturates", function()
    local scale = torch.tensor(1.0)
    both.near(both("QuantizeLinear", { x, scale, u8(128) }), both.map(quantized(0, 255), x, scale,
      u8(128)))
    both.near(both("QuantizeLinear", { x, scale, i8(-3) }, nil, { version = 10 }),
      both.map(quantized(-128, 127), x, scale, i8(-3)))
    local y = both("QuantizeLinear", { x, torch.tensor(2.0) })
    assert.equal(torch.uint8, y.dtype)
    both.near(y, both.map(quantized(0, 255), x, torch.tensor(2.0), u8(0)))
    y = both("QuantizeLinear", { torch.tensor({ -7, 100 }, { dtype = torch.int32 }),
      torch.tensor(2.0), i8(1) })
    assert.same({ -3, 51 }, y:tolist())
  end)

  it("has a scale for each place of a dimension", function()
    local scale, zero = torch.tensor({ 2.0, 4, 0.5, 8 }), u8({ 1, 100, 3, 7 })
    both.near(both("QuantizeLinear", { x, scale, zero }, nil, CONSTANTS),
      both.map(quantized(0, 255), x, scale, zero))
    scale, zero = torch.tensor({ 2.0, 4 }), i8({ 1, -100 })
    both.near(both("QuantizeLinear", { x, scale, zero }, { axis = -2 }, CONSTANTS),
      both.map(quantized(-128, 127), x, scale:unsqueeze(1), zero:unsqueeze(1)))
    local model = node.model("QuantizeLinear", { x, scale, zero }, { axis = 0 }, CONSTANTS)
    assert.equal(0, #model:parameters())
  end)

  it("names wrong inputs", function()
    both.refuses("input 'y_scale' has the shape [3]. Allowed: one element, or [4] (dimension 1 of "
      .. "'x')", "QuantizeLinear", { x, torch.ones({ 3 }) })
    both.refuses("input 'y_zero_point' is torch.int64. Allowed: uint8, int8", "QuantizeLinear",
      { x, torch.tensor(1.0), torch.tensor(1) })
    both.refuses("attribute 'axis' is 2. Allowed: -2 to 1", "QuantizeLinear", { x,
      torch.ones({ 4 }) }, { axis = 2 })
  end)
end)

describe("DequantizeLinear", function()
  it("goes back, for all or for each place of a dimension", function()
    local x, scale = u8({ { 0, 128, 255 }, { 1, 2, 3 } }), torch.tensor(0.5)
    local back = function(q, s, zero)
      return (q - zero) * s
    end
    both.near(both("DequantizeLinear", { x, scale, u8(128) }, nil, { version = 10 }),
      both.map(back, x, scale, u8(128)))
    local scales, zeros = torch.tensor({ 0.5, 2, 4 }), u8({ 0, 255, 3 })
    both.near(both("DequantizeLinear", { x, scales, zeros }, nil, CONSTANTS),
      both.map(back, x, scales, zeros))
    local wide = torch.tensor({ -70000, 3 }, { dtype = torch.int32 })
    assert.same({ -35000, 1.5 }, both("DequantizeLinear", { wide, scale }):tolist())
    both.refuses("inputs 'x' and 'x_zero_point' must be of one type, got torch.uint8 and "
      .. "torch.int8", "DequantizeLinear", { x, scale, i8(1) })
    both.refuses("input 'x' is torch.float32. Allowed: integers", "DequantizeLinear",
      { x:float(), scale })
  end)

  it("undoes QuantizeLinear within half a step", function()
    torch.manual_seed(12)
    local x, scale, zero = torch.rand({ 20 }) * 10 - 4, torch.tensor(10 / 255), u8(102)
    local y = node("DequantizeLinear", { node("QuantizeLinear", { x, scale, zero }), scale, zero })
    assert.is_true((x - y):abs():max():item() <= 5.01 / 255)
  end)
end)

describe("DynamicQuantizeLinear", function()
  it("takes the range of the data, with 0 in it", function()
    for _, list in ipairs({ { 0.0, 2, -3, -2.5, 1.34, 0.7 }, { -1.0, -2.1, -1.3, -2.5 },
      { 1.0, 2.1, 1.3, 2.5 } }) do
      local x = torch.tensor(list)
      local low, high = math.min(0, table.unpack(list)), math.max(0, table.unpack(list))
      local y, scale, zero = both("DynamicQuantizeLinear", { x }, nil, { outputs = 3 })
      both.near(scale, { (high - low) / 255 })
      assert.equal(even(-low / scale:item()), zero:item())
      both.near(y, both.map(quantized(0, 255), x, scale, zero))
    end
  end)

  it("takes zeros", function()
    local y, scale, zero = both("DynamicQuantizeLinear", { torch.zeros({ 3 }) }, nil,
      { outputs = 3 })
    assert.same({ 0, 0, 0 }, y:tolist())
    assert.same({ 0, 0 }, { scale:item(), zero:item() })
  end)
end)

describe("products of integers of 8 bits", function()
  local a, b = u8({ { 11, 7, 3 }, { 10, 6, 2 } }), i8({ { 1, -4 }, { 2, 5 }, { -3, 6 } })
  local function want(zero_a, zero_b)
    return torch.einsum("ik,kj->ij", { a:long() - zero_a, b:long() - zero_b })
  end

  it("MatMulInteger subtracts zero points of all, rows or columns", function()
    assert.same(want(0, 0):tolist(), both("MatMulInteger", { a, b }):tolist())
    local y = both("MatMulInteger", { a, b, u8(12), i8(-3) })
    assert.equal(torch.int32, y.dtype)
    assert.same(want(12, -3):tolist(), y:tolist())
    assert.same(want(torch.tensor({ { 12 }, { 5 } }), torch.tensor({ 7, -1 })):tolist(),
      both("MatMulInteger", { a, b, u8({ 12, 5 }), i8({ 7, -1 }) }):tolist())
    both.refuses("inputs 'A' and 'a_zero_point' must be of one type, got torch.uint8 and "
      .. "torch.int8", "MatMulInteger", { a, b, i8(1) })
    both.refuses("input 'b_zero_point' has the shape [3]. Allowed: one element, or one for each "
      .. "column of [3, 2]", "MatMulInteger", { a, b, u8(0), i8({ 1, 2, 3 }) })
    both.refuses("input 'A' is torch.int32. Allowed: uint8, int8", "MatMulInteger",
      { a:to(torch.int32), b })
  end)

  it("QLinearMatMul quantises the product", function()
    local scale_a, scale_b, scale_y = torch.tensor(0.5), torch.tensor(0.25), torch.tensor(2.0)
    local y = both("QLinearMatMul", { a, scale_a, u8(12), b, scale_b, i8(-3), scale_y, u8(100) })
    both.near(y, both.map(quantized(0, 255), want(12, -3) * 0.125, scale_y, u8(100)))
    scale_a, scale_b = torch.tensor({ 0.5, 1 }), torch.tensor({ 0.25, 4 })
    y = both("QLinearMatMul", { a, scale_a, u8({ 12, 5 }), b, scale_b, i8({ 7, -1 }), scale_y,
      i8(-5) })
    local sum = want(torch.tensor({ { 12 }, { 5 } }), torch.tensor({ 7, -1 }))
    both.near(y, both.map(quantized(-128, 127), sum * scale_a:unsqueeze(1) * scale_b, scale_y,
      i8(-5)))
    local stack = both("QLinearMatMul", { a:expand({ 4, 2, 3 }), torch.tensor(0.5), u8(12),
      b:expand({ 4, 3, 2 }), torch.tensor(0.25), i8(-3), scale_y, u8(100) })
    assert.same({ 4, 2, 2 }, { table.unpack(stack.shape) })
  end)
end)
