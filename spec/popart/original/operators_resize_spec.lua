-- PopART's own tests of Resize, Upsample and of operators on shapes
-- (tests/integration/operators_test: resize_test_0, resize_test_1, upsample_test,
-- tile_test, reshape_test, squeeze_test, unsqueeze_test, split_test, expand_test,
-- onehot_test, scatter_test).
local both = require("spec.lupine.onnx.both")
local helper = require("spec.helper")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")
local F = require("torch.nn.functional")

local NONE = torch.zeros({ 0 })

local function floats(list, dtype)
  return torch.tensor(list, { dtype = dtype or torch.float32 })
end

local function ints(list)
  return torch.tensor(list, { dtype = torch.int64 })
end

-- The shape with a batch and a channel in front.
local function image(shape)
  return torch.rand({ 1, 1, table.unpack(shape) })
end

local function scales_of(factors, dtype)
  return floats({ 1.0, 1.0, table.unpack(factors) }, dtype)
end

local function resize_10(x, factors, dtype)
  return (both("Resize", { x, scales_of(factors, dtype) }, {}, { version = 10,
    constants = { [2] = true } }))
end

local function resize_11(x, scales, sizes, attributes)
  return (both("Resize", { x, NONE, scales, sizes }, attributes, { version = 11,
    constants = { [2] = true, [3] = true, [4] = true } }))
end

-- A node's gradient is that of fn.
local function same_gradient(x, fn, op, inputs, attributes, options)
  local model, given = node.model(op, inputs, attributes, options)
  local mine, yours = x:clone():requires_grad_(), x:clone():requires_grad_()
  given[1] = mine
  local y, want = model(table.unpack(given)), fn(yours)
  local cotangent = torch.rand(want.shape)
  y:backward(cotangent)
  want:backward(cotangent)
  helper.near(y:detach(), want:detach())
  helper.near(mine.grad, yours.grad)
end

describe("resize_test_0", function()
  it("test_resize_10", function()
    for _, case in ipairs({ { { 2, 2 }, { 2.0, 3.0 } }, { { 2, 4 }, { 0.5, 0.5 } } }) do
      local x = image(case[1])
      helper.near(resize_10(x, case[2]), F.interpolate(x, { scale_factor = case[2] }))
    end
  end)

  it("test_resize_nearest_grad_1d, test_resize_nearest_grad_2d, test_nearest_grad, "
    .. "test_odd_scale_factors_grad", function()
    local cases = { { { 4 }, { 2.0 } }, { { 4 }, { 3.0 } }, { { 8 }, { 0.5 } }, { { 8 }, { 0.25 } },
      { { 2 }, { 3.0001 } }, { { 6 }, { 0.51 } }, { { 4, 6 }, { 2.0, 0.5 } },
      { { 2, 4 }, { 3.0, 1.0 } }, { { 5, 3 }, { 2.3, 2.5 } }, { { 5, 3 }, { 0.3, 0.5 } } }
    for _, case in ipairs(cases) do
      local x = image(case[1])
      same_gradient(x, function(t)
        return F.interpolate(t, { scale_factor = case[2], recompute_scale_factor = false })
      end, "Resize", { x, scales_of(case[2]) }, {}, { version = 10, constants = { [2] = true } })
    end
  end)

  it("test_resize_11, of the mode pytorch", function()
    for _, case in ipairs({ { { 8 }, { 1.12 } }, { { 2 }, { 8.0 } }, { { 5, 3 }, { 2.3, 2.5 } },
      { { 2, 8 }, { 1.0, 0.375 } }, { { 5, 3 }, { 0.3, 0.5 } } }) do
      local x = image(case[1])
      local want = F.interpolate(x, { scale_factor = case[2], recompute_scale_factor = false })
      for _, mode in ipairs({ "half_pixel", "pytorch_half_pixel", "asymmetric",
        "align_corners" }) do
        helper.near(resize_11(x, scales_of(case[2]), nil, { nearest_mode = "pytorch",
          coordinate_transformation_mode = mode }), want)
      end
    end
  end)
end)

describe("resize_test_1", function()
  it("test_float16_scales, test_resize11_float16_scales", function()
    local x = torch.rand({ 1, 1, 2, 2 })
    local want = F.interpolate(x, { scale_factor = { 2.0, 3.0 } })
    helper.near(resize_10(x, { 2.0, 3.0 }, torch.float16), want)
    helper.near(resize_11(x, scales_of({ 2.0, 3.0 }, torch.float16)), want)
  end)

  it("test_odd_scale_factors, of the mode pytorch", function()
    for _, case in ipairs({ { 2, 3.0001 }, { 6, 0.51 } }) do
      local x = image({ case[1] })
      helper.near(resize_10(x, { case[2] }), F.interpolate(x, { scale_factor = case[2],
        recompute_scale_factor = false }))
    end
  end)

  it("test_resize_sizes_input", function()
    for _, case in ipairs({ { { 4 }, { 4 } }, { { 4 }, { 8 } }, { { 8 }, { 3 } },
      { { 4, 4 }, { 9, 9 } }, { { 4, 4 }, { 5, 3 } } }) do
      local x, list = image(case[1]), { 1, 1, table.unpack(case[2]) }
      local want = F.interpolate(x, { size = case[2], mode = "nearest-exact" })
      for _, dtype in ipairs({ torch.int64, torch.int32 }) do
        local sizes = torch.tensor(list, { dtype = dtype })
        helper.near(resize_11(x, NONE, sizes, { nearest_mode = "round_prefer_ceil" }), want)
      end
    end
  end)

  it("test_resize_torch_linear, _bilinear, _trilinear", function()
    local modes = { "linear", "bilinear", "trilinear" }
    for _, case in ipairs({ { { 8 }, { 2.0 } }, { { 4, 6 }, { 2.0, 0.5 } },
      { { 5, 3 }, { 3.0, 2.0 } }, { { 4, 2, 3 }, { 2.0, 3.0, 1.0 } } }) do
      local x = image(case[1])
      helper.near(resize_11(x, scales_of(case[2]), nil, { mode = "linear" }),
        F.interpolate(x, { scale_factor = case[2], mode = modes[#case[1]],
          align_corners = false }))
    end
  end)

  it("test_resize_with_both_scales_resize_param", function()
    local x = torch.rand({ 1, 3, 2, 2 })
    helper.near(resize_11(x, NONE, ints({ 1, 3, 4, 6 }), {}),
      F.interpolate(x, { scale_factor = { 2.0, 3.0 } }))
    helper.near(resize_11(x, scales_of({ 2.0, 3.0 }), torch.zeros({ 0 }, { dtype = torch.int64 }),
      {}), F.interpolate(x, { scale_factor = { 2.0, 3.0 } }))
  end)

  it("test_resize_error_case", function()
    both.refuses("one of scales and sizes must be given", "Resize", { torch.rand({ 4, 6 }), NONE,
      floats({ 1.0, 2.0 }), ints({ 1, 2 }) }, {}, { version = 11 })
  end)

  it("test_resize_cubic, test_resize_cubic_grad", function()
    local x = image({ 4, 5 })
    same_gradient(x, function(t)
      return F.interpolate(t, { scale_factor = { 2.0, 0.6 }, mode = "bicubic" })
    end, "Resize", { x, NONE, scales_of({ 2.0, 0.6 }) }, { mode = "cubic" },
      { version = 11, constants = { [2] = true, [3] = true } })
  end)
end)

describe("upsample_test", function()
  it("test_upsample_grad", function()
    local x = torch.rand({ 1, 1, 2, 2 })
    same_gradient(x, function(t)
      return F.interpolate(t, { scale_factor = { 2.0, 3.0 } })
    end, "Upsample", { x, scales_of({ 2.0, 3.0 }) }, {}, { version = 9,
      constants = { [2] = true } })
  end)
end)

describe("tile_test and reshape_test", function()
  local x = torch.rand({ 2, 4, 3 })
  local known = { version = 10, constants = { [2] = true } }

  it("test_tile, test_tile_variable_repeats, test_tile_grad", function()
    helper.near(both("Tile", { x, ints({ 2, 4, 3 }) }, {}, known), x:tile({ 2, 4, 3 }))
    same_gradient(x, function(t) return t:tile({ 1, 2, 4 }) end, "Tile", { x, ints({ 1, 2, 4 }) },
      {}, known)
  end)

  it("test_tile_invalid_repeat_vals, test_tile_invalid_repeats_size", function()
    both.refuses("axis 2 is repeated -4 times", "Tile", { x, ints({ 1, 1, -4 }) }, {}, known)
    both.refuses("4 repeats for 3 dimensions", "Tile", { x, ints({ 2, 1, 4, 5 }) }, {}, known)
  end)

  it("test_reshape, _neg_one, _zeros, _neg_one_and_zeros, _grad", function()
    for _, case in ipairs({ { { 4, 6 }, { 4, 6 } }, { { -1, 6 }, { 4, 6 } },
      { { 0, 0, 1, 3 }, { 2, 4, 1, 3 } }, { { -1, 0, 1 }, { 6, 4, 1 } } }) do
      same_gradient(x, function(t) return t:reshape(case[2]) end, "Reshape", { x, ints(case[1]) },
        {}, known)
    end
  end)

  it("test_reshape_neg_one_error", function()
    helper.raises("RuntimeError", "Reshape.*only one dimension can be inferred", function()
      both("Reshape", { x, ints({ -1, -1, 0 }) }, {}, known)
    end)
  end)
end)

describe("expand_test, squeeze_test, unsqueeze_test and split_test", function()
  local known = { version = 10, constants = { [2] = true } }

  it("test_expand, _smaller_output, _non_one_smaller_output, _scalar", function()
    for _, case in ipairs({ { { 3, 1 }, { 2, 1, 6 }, { 2, 3, 6 } },
      { { 3, 1 }, { 3, 1 }, { 3, 1 } }, { { 2, 3 }, { 1 }, { 2, 3 } },
      { { 4, 1, 5 }, { 6, 1 }, { 4, 6, 5 } },
      { {}, { 2, 2 }, { 2, 2 } } }) do
      local x = torch.rand(case[1])
      same_gradient(x, function(t) return t:expand(case[3]) end, "Expand", { x, ints(case[2]) },
        {}, known)
    end
  end)

  it("test_squeeze, _limited, _unsorted_axes, _grad; test_unsqueeze, _grad", function()
    local x = torch.rand({ 2, 1, 3, 4, 1 })
    same_gradient(x, function(t) return t:squeeze() end, "Squeeze", { x }, {}, { version = 10 })
    for _, axes in ipairs({ { 1 }, { 4, 1 } }) do
      same_gradient(x, function(t) return t:squeeze(axes) end, "Squeeze", { x }, { axes = axes },
        { version = 10 })
    end
    local y = torch.rand({ 3, 4, 5 })
    same_gradient(y, function(t) return t:reshape({ 1, 3, 4, 5, 1 }) end, "Unsqueeze", { y },
      { axes = { 0, 4 } }, { version = 10 })
  end)

  it("test_split_basic, _negative_axis, _custom_lengths, _grad", function()
    local x = torch.rand({ 4, 6 })
    local a, b = both("Split", { x }, { axis = -1 }, { version = 10, outputs = 2 })
    helper.near(a, x[":, :3"])
    helper.near(b, x[":, 3:"])
    same_gradient(x, function(t) return t["1:4"] end, "Split", { x }, { split = { 1, 3 } },
      { version = 10, outputs = { "", "y" } })
  end)
end)

describe("onehot_test and scatter_test", function()
  it("test_onehot_2d, _3d, with and without an axis, training", function()
    local known, values = { version = 10, constants = { [2] = true } }, floats({ 0.25, 1.5 })
    for _, index in ipairs({ ints({ 1, 5, 3 }), ints({ { 0, 1 }, { 2, 5 } }) }) do
      local hot = F.one_hot(index, 6):float()
      local function mixed(v) return v[0] + hot * (v[1] - v[0]) end
      helper.near(both("OneHot", { index, ints(6), values }, {}, known), mixed(values))
      helper.near(both("OneHot", { index, ints(6), values }, { axis = 0 }, known),
        mixed(values):movedim(-1, 0))
      local v, w = values:clone():requires_grad_(), values:clone():requires_grad_()
      local model, given = node.model("OneHot", { index, ints(6), v }, {}, known)
      given[2] = v
      local y = model(table.unpack(given))
      local cotangent = torch.rand(y.shape)
      y:backward(cotangent)
      mixed(w):backward(cotangent)
      helper.near(v.grad, w.grad)
    end
  end)

  it("test_scatter_0 … test_scatter_3", function()
    local x = torch.zeros({ 3, 3 })
    local index, updates = ints({ { 1, 0, 2 }, { 0, 2, 1 } }), floats({ { 1.0, 1.1, 1.2 },
      { 2.0, 2.1, 2.2 } })
    helper.near(both("Scatter", { x, index, updates }, { axis = 0 }, { version = 10 }),
      { { 2.0, 1.1, 0.0 }, { 1.0, 0.0, 2.2 }, { 0.0, 2.1, 1.2 } })
    local row = floats({ { 1.0, 2.0, 3.0, 4.0, 5.0 } })
    helper.near(both("Scatter", { row, ints({ { 1, 3 } }), floats({ { 1.1, 2.1 } }) }, { axis = 1 },
      { version = 10 }), { { 1.0, 1.1, 3.0, 2.1, 5.0 } })
    local t = torch.rand({ 3, 3 })
    same_gradient(t, function(z) return z:scatter(0, index, updates) end, "Scatter",
      { t, index, updates }, { axis = 0 }, { version = 10 })
  end)
end)
