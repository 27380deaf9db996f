-- Resize and Upsample of ONNX. RECORDED: ONNX Runtime 1.32 on the row 1, 4, 2, 8, 5, made
-- three and eight long; the crop is from -0.1 to 0.8, outside is -1.
local both = require("spec.lupine.onnx.both")
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")

local RECORDED = {
  half_pixel = {
    round_prefer_floor = { { 1, 2, 5 }, { 1, 1, 4, 2, 2, 8, 5, 5 } },
    round_prefer_ceil = { { 1, 2, 5 }, { 1, 1, 4, 2, 2, 8, 5, 5 } },
    floor = { { 1, 2, 8 }, { 1, 1, 4, 4, 2, 2, 8, 5 } },
    ceil = { { 4, 2, 5 }, { 1, 4, 2, 2, 8, 8, 5, 5 } },
    linear = { { 2, 2, 6 }, { 1, 2.3125, 3.875, 2.625, 3.875, 7.625, 6.3125, 5 } },
    cubic = { { 2.05556, 2, 6.27778 },
      { 0.721497, 2.45093, 4.00775, 2.07111, 3.68365, 7.82001, 6.77393, 4.7215 } },
    excluding = { { 1.89655, 2, 6.03448 },
      { 0.784133, 2.28508, 3.99768, 2.20203, 3.5863, 7.85754, 6.48647, 4.78413 } },
  },
  pytorch_half_pixel = {
    round_prefer_floor = { { 1, 2, 5 }, { 1, 1, 4, 2, 2, 8, 5, 5 } },
    round_prefer_ceil = { { 1, 2, 5 }, { 1, 1, 4, 2, 2, 8, 5, 5 } },
    floor = { { 1, 2, 8 }, { 1, 1, 4, 4, 2, 2, 8, 5 } },
    ceil = { { 4, 2, 5 }, { 1, 4, 2, 2, 8, 8, 5, 5 } },
    linear = { { 2, 2, 6 }, { 1, 2.3125, 3.875, 2.625, 3.875, 7.625, 6.3125, 5 } },
    cubic = { { 2.05556, 2, 6.27778 },
      { 0.721497, 2.45093, 4.00775, 2.07111, 3.68365, 7.82001, 6.77393, 4.7215 } },
    excluding = { { 1.89655, 2, 6.03448 },
      { 0.784133, 2.28508, 3.99768, 2.20203, 3.5863, 7.85754, 6.48647, 4.78413 } },
  },
  asymmetric = {
    round_prefer_floor = { { 1, 2, 8 }, { 1, 4, 4, 2, 2, 8, 5, 5 } },
    round_prefer_ceil = { { 1, 2, 8 }, { 1, 4, 4, 2, 8, 8, 5, 5 } },
    floor = { { 1, 4, 8 }, { 1, 1, 4, 4, 2, 8, 8, 5 } },
    ceil = { { 1, 2, 5 }, { 1, 4, 2, 2, 8, 5, 5, 5 } },
    linear = { { 1, 2.66667, 7 }, { 1, 2.875, 3.5, 2.25, 5, 7.625, 5.75, 5 } },
    cubic = { { 1, 2.12963, 7.72222 },
      { 1, 3.13867, 3.65234, 1.80908, 5.09375, 8.11719, 5.89062, 4.67041 } },
    excluding = { { 1, 2.25926, 7.46429 },
      { 1, 3.02058, 3.66406, 1.90137, 5.0625, 8.01455, 5.70073, 4.66418 } },
  },
  align_corners = {
    round_prefer_floor = { { 1, 2, 5 }, { 1, 4, 4, 2, 2, 8, 8, 5 } },
    round_prefer_ceil = { { 1, 2, 5 }, { 1, 4, 4, 2, 2, 8, 8, 5 } },
    floor = { { 1, 2, 5 }, { 1, 1, 4, 4, 2, 2, 8, 5 } },
    ceil = { { 1, 2, 5 }, { 1, 4, 2, 2, 8, 8, 5, 5 } },
    linear = { { 1, 2, 5 }, { 1, 2.71429, 3.71429, 2.57143, 3.71429, 7.14286, 6.71429, 5 } },
    cubic = { { 1, 2, 5 }, { 1, 2.95044, 3.91545, 2.00291, 3.49563, 7.48396, 7.37026, 5 } },
    excluding = { { 1, 2, 5 }, { 1, 2.81163, 3.9067, 2.13411, 3.39359, 7.54519, 7.07756, 5 } },
  },
  tf_half_pixel_for_nn = {
    round_prefer_floor = { { 4, 2, 5 }, { 1, 4, 2, 2, 8, 8, 5, 5 } },
    round_prefer_ceil = { { 4, 8, 5 }, { 1, 4, 2, 2, 8, 8, 5, 5 } },
    floor = { { 1, 2, 5 }, { 1, 1, 4, 2, 2, 8, 5, 5 } },
    ceil = { { 4, 8, 5 }, { 4, 4, 2, 8, 8, 5, 5, 5 } },
    linear = { { 3.5, 5, 5 }, { 1.9375, 3.8125, 2.875, 3.125, 6.875, 6.6875, 5, 5 } },
    cubic = { { 3.74306, 5.09375, 4.73958 },
      { 1.97778, 3.93335, 2.47894, 2.86078, 7.25348, 7.3335, 4.8764, 4.84894 } },
    excluding = { { 3.72311, 5.0625, 4.80263 },
      { 1.82301, 3.93895, 2.59045, 2.75842, 7.31775, 7.03915, 4.91445, 4.63005 } },
  },
  tf_crop_and_resize = {
    round_prefer_floor = { { -1, 4, 8 }, { -1, 1, 4, 4, 2, 2, 8, 8 } },
    round_prefer_ceil = { { -1, 4, 8 }, { -1, 1, 4, 4, 2, 2, 8, 8 } },
    floor = { { -1, 4, 8 }, { -1, 1, 1, 4, 4, 2, 2, 8 } },
    ceil = { { -1, 2, 5 }, { -1, 4, 4, 2, 2, 8, 8, 5 } },
    linear = { { -1, 3.2, 7.4 },
      { -1, 1.34286, 2.88571, 3.71429, 2.68571, 3.02857, 6.11429, 7.4 } },
    cubic = { { -1, 3.116, 8.048 },
      { -1, 1.30165, 3.15087, 3.91545, 2.15785, 2.76681, 6.46526, 8.048 } },
    excluding = { { -1, 3.176, 7.88189 },
      { -1, 1.22711, 3.03431, 3.9067, 2.2866, 2.66738, 6.50836, 7.88189 } },
  },
}

local ROW = { { 1.0, 4.0, 2.0, 8.0, 5.0 } }

local function constants(inputs)
  local flags = {}
  for i = 2, #inputs do
    flags[i] = inputs[i] and true
  end
  return { constants = flags, version = 13 }
end

local function resize(x, scales, sizes, attributes, roi)
  local inputs = { x, roi or false, scales and torch.tensor(scales) or false,
    sizes and torch.tensor(sizes, { dtype = torch.int64 }) }
  return (both("Resize", inputs, attributes, constants(inputs)))
end

-- The attributes of a recorded row.
local function attributes_of(mode, how)
  local attributes = { coordinate_transformation_mode = mode, mode = "nearest" }
  if how == "linear" then
    attributes.mode = "linear"
  elseif how == "cubic" or how == "excluding" then
    attributes.mode = "cubic"
    attributes.exclude_outside = how == "excluding" and 1 or 0
    attributes.cubic_coeff_a = how == "excluding" and -0.5 or -0.75
  else
    attributes.nearest_mode = how
  end
  attributes.extrapolation_value = mode == "tf_crop_and_resize" and -1.0 or nil
  return attributes
end

describe("Resize", function()
  for mode, rows in pairs(RECORDED) do
    it("has the positions of " .. mode, function()
      local roi = mode == "tf_crop_and_resize" and torch.tensor({ 0.0, -0.1, 1.0, 0.8 }) or nil
      for how, lists in pairs(rows) do
        for _, want in ipairs(lists) do
          local y = resize(torch.tensor(ROW), nil, { 1, #want }, attributes_of(mode, how), roi)
          helper.near(y, { want }, { 1e-4, 1e-5 })
        end
      end
    end)
  end

  it("is PyTorch's interpolate, with scales that are no ratios of sizes", function()
    local x = torch.rand({ 2, 3, 5, 7 })
    for _, scale in ipairs({ 0.6, 1.3, 2.0, 2.7 }) do
      local scales = { 1.0, 1.0, scale, scale }
      local y = resize(x, scales, nil, { mode = "linear" })
      helper.near(y, F.interpolate(x, { scale_factor = scale, mode = "bilinear" }), { 1e-5, 1e-5 })
      y = resize(x, scales, nil, { mode = "cubic" })
      helper.near(y, F.interpolate(x, { scale_factor = scale, mode = "bicubic" }), { 1e-5, 1e-5 })
      y = resize(x, scales, nil, { coordinate_transformation_mode = "asymmetric",
        nearest_mode = "floor" })
      helper.near(y, F.interpolate(x, { scale_factor = scale }))
    end
  end)

  it("changes any axes of any number", function()
    local x = torch.rand({ 3, 4, 2 })
    local y = resize(x, { 2.0, 0.5, 1.5 }, nil, { coordinate_transformation_mode = "asymmetric",
      nearest_mode = "floor" })
    for i = 0, 5 do
      for j = 0, 1 do
        for k = 0, 2 do
          assert.equal(x[i // 2][j * 2][k * 2 // 3]:item(), y[i][j][k]:item())
        end
      end
    end
  end)

  it("crops: what lies outside has a value of its own", function()
    local x = torch.arange(16, { dtype = torch.float32 }):reshape({ 1, 1, 4, 4 })
    local roi = torch.tensor({ 0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 1.5 })
    local y = resize(x, nil, { 1, 1, 4, 3 }, { mode = "linear", extrapolation_value = 9.0,
      coordinate_transformation_mode = "tf_crop_and_resize" }, roi)
    helper.near(y[0][0], { { 1.5, 3.0, 9.0 }, { 5.5, 7.0, 9.0 }, { 9.5, 11.0, 9.0 },
      { 13.5, 15.0, 9.0 } })
  end)

  it("keeps integers and half precision", function()
    local x = torch.tensor({ { 1, 4, 2 } }, { dtype = torch.int32 })
    helper.near(resize(x, { 1.0, 2.0 }, nil, {}), { { 1, 1, 4, 4, 2, 2 } })
    local half = torch.tensor({ { 1.0, 4.0 } }, { dtype = torch.float16 })
    helper.near(resize(half, { 1.0, 2.0 }, nil, { mode = "linear" }), { { 1.0, 1.75, 3.25, 4.0 } })
  end)

  it("has gradients", function()
    for _, mode in ipairs({ "nearest", "linear", "cubic" }) do
      both.gradients("Resize", { torch.rand({ 1, 1, 3, 4 }), false, false,
        torch.tensor({ 1, 1, 5, 3 }, { dtype = torch.int64 }) }, { mode = mode },
        { constants = { [4] = true }, version = 13 })
    end
  end)

  it("refuses what it has not", function()
    local x, scales = torch.tensor(ROW), torch.tensor({ 1.0, 2.0 })
    local given = { constants = { [3] = true }, version = 13 }
    both.refuses("mode 'area'. Allowed: bilinear, cubic, linear, nearest", "Resize",
      { x, false, scales }, { mode = "area" }, given)
    both.refuses("nearest_mode 'up'. Allowed: ceil, floor", "Resize", { x, false, scales },
      { nearest_mode = "up" }, given)
    both.refuses("coordinate_transformation_mode 'corner'. Allowed: align_corners", "Resize",
      { x, false, scales }, { coordinate_transformation_mode = "corner" }, given)
    both.refuses("one of scales and sizes must be given", "Resize", { x }, {}, given)
    both.refuses("tf_crop_and_resize needs a roi of 4 elements", "Resize", { x, false, scales },
      { coordinate_transformation_mode = "tf_crop_and_resize" }, given)
    both.refuses("scales has 1 elements, the input has 2 dimensions", "Resize",
      { x, false, torch.tensor({ 2.0 }) }, {}, given)
    both.refuses("the scale of axis 1 is -1, it must be positive", "Resize",
      { x, false, torch.tensor({ 1.0, -1.0 }) }, {}, given)
  end)
end)

describe("Upsample", function()
  local x = torch.rand({ 1, 2, 3, 4 })
  local scales = { 1.0, 1.0, 2.0, 1.5 }

  it("of versions 7 and 9, and Resize of version 10, are the same", function()
    for _, mode in ipairs({ "nearest", "linear" }) do
      local a = both("Upsample", { x }, { scales = scales, mode = mode }, { version = 7 })
      local given = { constants = { [2] = true }, version = 9 }
      local b = both("Upsample", { x, torch.tensor(scales) }, { mode = mode }, given)
      given.version = 10
      local c = both("Resize", { x, torch.tensor(scales) }, { mode = mode }, given)
      helper.near(a, b)
      helper.near(a, c)
    end
    helper.near(both("Upsample", { x }, { scales = scales }, { version = 7 }),
      F.interpolate(x, { size = { 6, 6 } }))
  end)

  it("has no cubic mode", function()
    both.refuses("mode 'cubic'. Allowed: nearest, linear", "Upsample", { x },
      { scales = scales, mode = "cubic" }, { version = 7 })
  end)
end)
