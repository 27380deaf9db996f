-- Types of results, and calls that are refused for their operands' types. All
-- values and error classes are PyTorch 2.15's.
local torch = require("torch")
local helper = require("spec.helper")

local near, raises = helper.near, helper.raises
local f64, f32, f16, bf16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
local i64, u8, bool = torch.int64, torch.uint8, torch.bool

local function threes(dtype, shape)
  return torch.full(shape or { 2 }, 3):to(dtype)
end

local function gives(dtype, values, result)
  assert.equal(dtype, result.dtype)
  near(result, values)
end

describe("addcdiv", function()
  it("promotes all three operands, of which one in the quotient is real", function()
    gives(f64, { 4.5, 4.5 }, torch.addcdiv(threes(f64), threes(f32), threes(u8), { value = 1.5 }))
    gives(f16, { 4, 4 }, torch.addcdiv(threes(i64), threes(f16), threes(u8)))
    gives(f32, { 4, 4 }, torch.addcdiv(threes(f16), threes(bf16), threes(bf16)))
    gives(bf16, { 3.328125, 3.328125 }, torch.addcdiv(threes(bf16), threes(bool), threes(bf16)))
    raises("RuntimeError", "tensor1 and tensor2 have the types int64 and bool", function()
      torch.addcdiv(threes(f32), threes(i64), threes(bool))
    end)
  end)
end)

describe("addcmul of integers", function()
  it("cuts the factor to an integer", function()
    gives(i64, { 12, 12 }, torch.addcmul(threes(i64), threes(u8), threes(u8), { value = 1.5 }))
    gives(u8, { 21, 21 }, torch.addcmul(threes(u8), threes(u8), threes(u8), { value = 2.9 }))
    raises("NotImplementedError", "must be a number type", function()
      torch.addcmul(threes(bool), threes(bool), threes(bool))
    end)
  end)
end)

describe("lerp", function()
  it("promotes no operand but a weight without dimensions", function()
    gives(f16, { 3, 3 }, torch.lerp(threes(f16), threes(f16), threes(f64, {})))
    gives(f32, { 3, 3 }, torch.lerp(threes(i64), threes(i64), threes(f32, {})))
    raises("RuntimeError", "`end` has the type bfloat16; it must have self's, float16", function()
      torch.lerp(threes(f16), threes(bf16), 0.5)
    end)
    raises("RuntimeError", "`weight` has the type float64", function()
      torch.lerp(threes(f32), threes(f32), threes(f64))
    end)
    raises("NotImplementedError", "must be a floating%-point type", function()
      torch.lerp(threes(i64), threes(i64), 1)
    end)
  end)
end)

describe("clamp", function()
  it("takes bounds of one kind; beside a number a scalar tensor is one", function()
    local x = torch.tensor({ 1, 5 }, { dtype = f32 })
    raises("TypeError", "min is a tensor and max a number", function()
      x:clamp(threes(f32), 4)
    end)
    raises("TypeError", "min is a number and max a tensor", function()
      x:clamp(1, threes(f32))
    end)
    gives(f32, { 3, 4 }, x:clamp(threes(f64, {}), 4))
    gives(f32, { 3, 4.5 }, x:to(i64):clamp(threes(f16, {}), 4.5))
    gives(f16, { 3, 5 }, x:to(i64):clamp(threes(f16, {})))
  end)
end)

describe("an operator without a kernel for a type", function()
  it("is a NotImplementedError", function()
    local yes = torch.tensor({ true, false })
    for _, call in ipairs({
      function() return yes - yes end,
      function() return 1 - yes end,
      function() return -yes end,
      function() return threes(f32) - true end,
      function() return torch.bitwise_and(threes(f32), threes(f32)) end,
      function() return torch.mean(threes(i64)) end,
      function() return torch.mean(threes(f32), { dtype = i64 }) end,
      function() return torch.nanmean(threes(i64), { dtype = f32 }) end,
      function() return torch.norm(threes(i64), { dtype = f32 }) end,
      function() return torch.cumsum(threes(f32), 0, { dtype = bool }) end,
      function() return torch.linalg.matrix_norm(threes(f16, { 2, 2 }), 2) end,
    }) do
      raises("NotImplementedError", ".", call)
    end
  end)
end)

describe("dtype= of a norm", function()
  it("may widen the input's type only", function()
    assert.equal(f64, torch.norm(threes(f16), { dtype = f64 }).dtype)
    assert.equal(f32, torch.linalg.matrix_norm(threes(bf16, { 2, 2 }), { dtype = f32 }).dtype)
    for _, pair in ipairs({ { f64, f32 }, { f16, bf16 }, { f32, i64 } }) do
      local k = { dtype = pair[2] }
      raises("RuntimeError", "dtype", function() torch.norm(threes(pair[1]), k) end)
      raises("RuntimeError", "dtype", function() torch.linalg.norm(threes(pair[1]), k) end)
      raises("RuntimeError", "dtype", function()
        torch.linalg.matrix_norm(threes(pair[1], { 2, 2 }), k)
      end)
    end
    raises("RuntimeError", "nanmean: dtype is int64", function()
      torch.nanmean(threes(f32), { dtype = i64 })
    end)
  end)
end)

describe("a sum or product as bool", function()
  it("asks each element whether it is zero", function()
    local x = torch.tensor({ 0.5, -0.5, 0.25 })
    gives(bool, true, x:sum({ dtype = bool }))
    gives(bool, true, x:prod({ dtype = bool }))
    gives(bool, true, torch.nansum(torch.tensor({ 0.5, -0.5 }), { dtype = bool }))
    gives(bool, false, torch.tensor({ 2, 3, 0 }):prod({ dtype = bool }))
  end)
end)

describe("operands of several types", function()
  local F = torch.nn.functional
  local mixed = { threes(f32, { 3 }), threes(f16, { 3 }) }

  it("are refused where PyTorch does not promote", function()
    for _, call in ipairs({
      function() torch.cross(mixed[1], mixed[2], 0) end,
      function() torch.linalg.cross(threes(i64, { 3 }), mixed[1]) end,
      function() F.prelu(mixed[1], threes(f16, { 1 })) end,
      function() F.kl_div(mixed[1], threes(i64, { 3 })) end,
      function() F.kl_div(threes(i64, { 3 }), mixed[1]) end,
      function() torch.take(mixed[1], torch.zeros({ 1 }, { dtype = torch.int32 })) end,
      function() F.cosine_similarity(threes(i64, { 2, 3 }), threes(bool, { 2, 3 })) end,
    }) do
      raises("RuntimeError", "type", call)
    end
  end)
  it("are promoted by cosine_similarity", function()
    gives(f16, { 1, 1 }, F.cosine_similarity(threes(f16, { 2, 3 }), threes(i64, { 2, 3 })))
    gives(f32, { 1, 1 }, F.cosine_similarity(threes(f16, { 2, 3 }), threes(f32, { 2, 3 })))
  end)
end)

describe("any and all", function()
  it("over a list of no dimensions ask of each element", function()
    local x = torch.tensor({ { 1.5, 0 }, { -2, 3 } })
    gives(bool, { { true, false }, { true, true } }, torch.any(x, {}))
    gives(bool, { { true, false }, { true, true } }, torch.all(x, {}, true))
    gives(u8, { 0, 1 }, torch.tensor({ 0, 7 }, { dtype = u8 }):any({}))
    gives(bool, false, torch.all(x))
  end)
end)

describe("arguments that cannot be", function()
  local F = torch.nn.functional
  local x = threes(f32, { 3 })
  it("are refused", function()
    raises("RuntimeError", "alpha is 0", function() F.celu(x, 0) end)
    raises("ValueError", "norm_type is 0", function()
      F.lp_pool1d(threes(f32, { 1, 1, 4 }), 0, 2)
    end)
    raises("RuntimeError", "appears multiple times", function()
      threes(f32, { 2, 1 }):squeeze({ 0, 0 })
    end)
    raises("RuntimeError", "they must have as many", function()
      F.margin_ranking_loss(x, x, threes(f32, { 3, 1 }))
    end)
    raises("RuntimeError", "2 dimensions or fewer", function()
      F.multilabel_margin_loss(threes(f32, { 2, 2, 2 }), threes(i64, { 2, 2, 2 }))
    end)
    raises("RuntimeError", "2 or more", function() x:fill_diagonal_(1) end)
    raises("RuntimeError", "must be equal", function()
      threes(f32, { 2, 3, 4 }):fill_diagonal_(1)
    end)
  end)
  it("are named where a tensor belongs", function()
    raises("TypeError", "glu%(%): argument 'input' must be a Tensor, not int 3", function()
      F.glu(3)
    end)
    raises("TypeError", "argument 'target' must be a Tensor, not bool", function()
      F.multi_margin_loss(x, false)
    end)
    raises("TypeError", "argument 'running_mean' must be a Tensor", function()
      F.batch_norm(threes(f32, { 2, 3 }), 1, 2)
    end)
    raises("TypeError", "kernel_size: .* int", function()
      F.lp_pool2d(threes(f32, { 1, 1, 4, 4 }), 2, { 2, "3" })
    end)
  end)
  it("may be None for nan_to_num", function()
    gives(f32, { 0, 3 }, torch.nan_to_num(torch.tensor({ 0 / 0, 3 }), { nan = torch.none }))
  end)
end)

describe("fill_diagonal_", function()
  it("fills where all positions are equal, and wraps down a tall matrix", function()
    near(torch.zeros({ 2, 3 }):fill_diagonal_(5), { { 5, 0, 0 }, { 0, 5, 0 } })
    near(torch.zeros({ 5, 2 }):fill_diagonal_(5),
      { { 5, 0 }, { 0, 5 }, { 0, 0 }, { 0, 0 }, { 0, 0 } })
    near(torch.zeros({ 5, 2 }):fill_diagonal_(5, true),
      { { 5, 0 }, { 0, 5 }, { 0, 0 }, { 5, 0 }, { 0, 5 } })
    near(torch.zeros({ 2, 2, 2 }):fill_diagonal_(5),
      { { { 5, 0 }, { 0, 0 } }, { { 0, 0 }, { 0, 5 } } })
  end)
end)

describe("addr", function()
  it("promotes the matrix with the product", function()
    local v = threes(f32) * 0.5
    gives(f32, { { 5.25, 5.25 }, { 5.25, 5.25 } },
      torch.addr(threes(torch.int8, { 2, 2 }), v, v))
    gives(i64, { { 12, 12 }, { 12, 12 } },
      torch.addr(threes(i64, { 2, 2 }), threes(i64), threes(i64)))
  end)
end)

describe("adaptive_max_pool1d of torch", function()
  it("gives positions too, that of nn.functional where asked", function()
    local x = torch.tensor({ { { 1.0, 5, 2, 4 } } })
    local values, at = torch.adaptive_max_pool1d(x, 2)
    near(values, { { { 5, 4 } } })
    near(at, { { { 1, 3 } } })
    assert.equal(1, select("#", torch.nn.functional.adaptive_max_pool1d(x, 2)))
  end)
end)

describe("an argument of a function in Lua", function()
  local F = torch.nn.functional
  it("is named where its kind is wrong", function()
    local x = threes(f32)
    for pattern, call in pairs({
      ["groups: expected int"] = function() F.channel_shuffle(torch.ones({ 1, 4, 2 }), { 2 }) end,
      ["size must be a list"] = function() F.affine_grid(torch.ones({ 1, 2, 3 }), 4) end,
      ["range: expected float"] = function()
        torch.histogram(x, 2, { range = { true, 2 } })
      end,
    }) do
      raises("TypeError", pattern, call)
    end
    raises("RuntimeError", "a shape must be ints", function()
      torch.broadcast_shapes(torch.none)
    end)
  end)
end)
