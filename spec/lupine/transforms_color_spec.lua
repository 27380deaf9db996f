-- Transforms of colour and place on a small image of bytes and one of floats:
-- the values are what their formulas give by operators of PyTorch 2.15 and
-- Python's colorsys.
local T = require("lupine.transforms")
local helper = require("spec.helper")
local torch = require("torch")

local IMAGES = {
  u8 = (torch.arange(60) * 37):remainder(256):reshape(3, 4, 5):to(torch.uint8),
  fl = (torch.arange(60.) * .7):sin():abs():reshape(3, 4, 5),
}

-- function, image, shape and values of the result; ARGUMENTS has the others
local CASES = {
  { "adjust_brightness", "u8", { 1.4 }, { 3, 4, 5 },
    { 0, 51, 103, 155, 207, 255, 255, 4, 56, 107, 159, 211, 255, 255, 8, 60, 112, 163, 215, 255,
      255, 12, 64, 116, 168, 219, 255, 255, 16, 68, 120, 172, 224, 255, 255, 21, 72, 124, 176,
      228, 255, 255, 25, 77, 128, 180, 232, 255, 255, 29, 81, 133, 184, 236, 255, 255, 33, 85,
      137, 189 } },
  { "adjust_contrast", "u8", { 0.6 }, { 3, 4, 5 },
    { 46, 68, 91, 113, 135, 157, 179, 48, 70, 92, 115, 137, 159, 181, 50, 72, 94, 116, 139, 161,
      183, 52, 74, 96, 118, 140, 163, 185, 53, 76, 98, 120, 142, 164, 187, 55, 77, 100, 122, 144,
      166, 188, 57, 79, 101, 124, 146, 168, 190, 59, 81, 103, 125, 148, 170, 192, 61, 83, 105,
      127 } },
  { "adjust_saturation", "u8", { 1.7 }, { 3, 4, 5 },
    { 0, 32, 90, 127, 164, 201, 238, 0, 35, 93, 130, 167, 204, 241, 0, 38, 96, 133, 170, 207, 255,
      0, 42, 79, 116, 153, 190, 255, 0, 45, 82, 119, 156, 193, 255, 0, 48, 85, 122, 159, 230, 255,
      0, 31, 68, 105, 142, 233, 255, 0, 34, 71, 108, 145, 236, 255, 0, 37, 74, 111 } },
  { "adjust_hue", "u8", { 0.3 }, { 3, 4, 5 },
    { 155, 237, 18, 55, 92, 129, 166, 158, 240, 21, 58, 95, 132, 169, 161, 243, 24, 61, 98, 135,
      0, 9, 74, 111, 148, 185, 222, 3, 12, 77, 114, 151, 188, 225, 6, 15, 80, 117, 154, 191, 228,
      26, 34, 72, 109, 146, 183, 231, 29, 37, 75, 112, 149, 186, 234, 32, 40, 78, 115, 152 } },
  { "gaussian_blur", "u8", { { 3, 5 }, { 0.8, 1.5 } }, { 3, 4, 5 },
    { 132, 122, 97, 90, 92, 126, 120, 102, 99, 102, 118, 123, 129, 126, 116, 128, 133, 138, 131,
      117, 143, 141, 131, 106, 96, 129, 131, 129, 111, 105, 106, 117, 132, 138, 143, 100, 119,
      142, 147, 151, 150, 152, 150, 140, 126, 146, 142, 140, 138, 127, 124, 119, 126, 141, 143,
      111, 109, 128, 151, 153 } },
  { "adjust_brightness", "fl", { 1.4 }, { 3, 4, 5 },
    { 0, 0.901905, 1, 1, 0.468983, 0.491097, 1, 1, 0.883773, 0.0235391, 0.919781, 1, 1, 0.446738,
      0.513071, 1, 1, 0.865392, 0.0470715, 0.937398, 1, 1, 0.424366, 0.5349, 1, 1, 0.846767,
      0.0705912, 0.954749, 1, 1, 0.401875, 0.556577, 1, 1, 0.827901, 0.0940897, 0.97183, 1, 1,
      0.379268, 0.578097, 1, 1, 0.808802, 0.117564, 0.988638, 1, 1, 0.356556, 0.599456, 1, 1,
      0.789475, 0.141003, 1, 1, 1, 0.333744, 0.620642 } },
  { "adjust_contrast", "fl", { 0.6 }, { 3, 4, 5 },
    { 0.255621, 0.642152, 0.846891, 0.773547, 0.456614, 0.466091, 0.778567, 0.845093, 0.634381,
      0.265709, 0.649813, 0.848522, 0.768381, 0.447081, 0.475509, 0.783439, 0.843128, 0.626504,
      0.275795, 0.657363, 0.849986, 0.763069, 0.437492, 0.484864, 0.788161, 0.840997, 0.618521,
      0.285875, 0.6648, 0.851281, 0.757615, 0.427853, 0.494154, 0.792734, 0.8387, 0.610436,
      0.295945, 0.67212, 0.852408, 0.752018, 0.418165, 0.503377, 0.797154, 0.836239, 0.602251,
      0.306006, 0.679323, 0.853366, 0.746282, 0.408431, 0.512531, 0.801421, 0.833614, 0.593967,
      0.316051, 0.686406, 0.854156, 0.740406, 0.398654, 0.521611 } },
  { "adjust_saturation", "fl", { 1.7 }, { 3, 4, 5 },
    { 0, 0.579911, 1, 1, 0.0885875, 0.115351, 0.99444, 1, 0.595597, 0, 0.601465, 1, 1, 0.0628705,
      0.138987, 1, 1, 0.571792, 0, 0.622849, 1, 0.922511, 0.112541, 0.234697, 1, 1, 0.540979, 0,
      0.681782, 1, 0.906903, 0.0906951, 0.256808, 1, 1, 0.520966, 0, 0.701038, 1, 0.891038,
      0.031881, 0.186716, 1, 1, 0.501224, 0, 0.713251, 1, 0.912647, 0.00119194, 0.212498, 1, 1,
      0.47905, 0, 0.736215, 1, 0.894516, 0, 0.238217 } },
  { "adjust_hue", "fl", { 0.3 }, { 3, 4, 5 },
    { 0.0727843, 0.412926, 0.98545, 0.967696, 0.4672, 0.0839745, 0.759518, 0.996242, 0.817767,
      0.0594925, 0.428183, 0.988168, 0.963321, 0.448693, 0.100716, 0.775642, 0.997557, 0.807975,
      0.0461839, 0.443316, 0, 0.730782, 0.931879, 0.746085, 0.334988, 0.529114, 0.871576,
      0.793289, 0.631267, 0.0168136, 0.738681, 0.926446, 0.741446, 0.319099, 0.540696, 0.879696,
      0.793108, 0.618137, 0.0336225, 0.746372, 0.990607, 0.845747, 0.303119, 0.382072, 0.887567,
      0.975626, 0.604834, 0.0504223, 0.719264, 0.992766, 0.836656, 0.287054, 0.397555, 0.895188,
      0.971799, 0.591358, 0.0672069, 0.732132, 0.994645, 0.827328 } },
  { "gaussian_blur", "fl", { { 3, 5 }, { 0.8, 1.5 } }, { 3, 4, 5 },
    { 0.566261, 0.739519, 0.845546, 0.599728, 0.39941, 0.62122, 0.762083, 0.809204, 0.55972,
      0.389696, 0.730132, 0.814367, 0.753699, 0.489946, 0.370385, 0.796218, 0.849912, 0.729185,
      0.445932, 0.342187, 0.780409, 0.588477, 0.405787, 0.615332, 0.808146, 0.719716, 0.55191,
      0.431845, 0.65453, 0.826691, 0.613636, 0.484732, 0.478412, 0.733658, 0.872652, 0.559759,
      0.442767, 0.48938, 0.774899, 0.90519, 0.435449, 0.63197, 0.852956, 0.722166, 0.545573,
      0.492655, 0.669506, 0.837913, 0.679226, 0.511423, 0.60039, 0.746025, 0.82315, 0.598085,
      0.427806, 0.64827, 0.786826, 0.821785, 0.554657, 0.37735 } },
  { "rotate", "u8", { 30.0 }, { 3, 4, 5 },
    { 0, 74, 111, 77, 77, 37, 222, 3, 225, 6, 185, 222, 188, 225, 154, 114, 114, 80, 117, 0, 0,
      46, 83, 49, 49, 9, 194, 231, 197, 234, 157, 194, 160, 197, 126, 86, 86, 52, 89, 0, 0, 18,
      55, 21, 21, 237, 166, 203, 169, 206, 129, 166, 132, 169, 98, 58, 58, 24, 61, 0 } },
  { "rotate", "u8", { -75.0, "bilinear", true, nil, { 7, 8, 9 } }, { 3, 6, 7 },
    { 7, 7, 18, 57, 2, 7, 7, 7, 41, 119, 197, 57, 7, 7, 7, 41, 137, 132, 60, 18, 7, 7, 26, 154,
      137, 54, 56, 7, 7, 11, 164, 119, 72, 135, 7, 7, 7, 109, 14, 12, 7, 7, 8, 8, 16, 61, 130, 8,
      8, 8, 15, 91, 169, 71, 7, 8, 8, 28, 109, 187, 113, 14, 8, 8, 21, 126, 158, 70, 43, 8, 8, 11,
      143, 193, 44, 109, 8, 8, 8, 93, 80, 14, 8, 8, 9, 9, 14, 51, 114, 9, 9, 9, 216, 77, 141, 220,
      15, 9, 9, 14, 81, 159, 119, 9, 9, 9, 17, 98, 176, 168, 29, 9, 9, 10, 115, 181, 85, 83, 9, 9,
      9, 78, 71, 12, 9, 9 } },
  { "rotate", "fl", { 20.0, "bilinear", false, { 1, 2.5 } }, { 3, 4, 5 },
    { 0.414891, 0.889722, 0.824881, 0.31036, 0.0355256, 0.510861, 0.91549, 0.794222, 0.343869,
      0.335703, 0.615587, 0.977839, 0.755927, 0.162057, 0.345129, 0.392166, 0.745102, 0.231907,
      0.0135519, 0, 0.799986, 0.418426, 0.397702, 0.842935, 0.273907, 0.848594, 0.40639, 0.389003,
      0.895583, 0.705875, 0.84477, 0.265899, 0.51576, 0.930617, 0.556143, 0.306893, 0.207426,
      0.126699, 0.0356664, 0, 0.335754, 0.780551, 0.908957, 0.523385, 0.0571561, 0.31645,
      0.826651, 0.900605, 0.495194, 0.142664, 0.384564, 0.91122, 0.890058, 0.367729, 0.257917,
      0.308239, 0.706628, 0.266556, 0.0218688, 0 } },
  { "rotate", "u8", { 90.0, { expand = true } }, { 3, 6, 5 },
    { 148, 148, 6, 6, 0, 148, 148, 6, 6, 0, 74, 74, 188, 188, 0, 74, 74, 188, 188, 0, 0, 0, 114,
      114, 0, 0, 0, 114, 114, 0, 120, 120, 234, 234, 0, 120, 120, 234, 234, 0, 46, 46, 160, 160,
      0, 46, 46, 160, 160, 0, 228, 228, 86, 86, 0, 228, 228, 86, 86, 0, 92, 92, 206, 206, 0, 92,
      92, 206, 206, 0, 18, 18, 132, 132, 0, 18, 18, 132, 132, 0, 200, 200, 58, 58, 0, 200, 200,
      58, 58, 0 } },
  { "affine", "fl", { 25.0, { 1, -0.5 }, 1.3, { 10.0, -15.0 }, "bilinear", 0.25 }, { 3, 4, 5 },
    { 0.482438, 0.753442, 0.90084, 0.923842, 0.947936, 0.843543, 0.9386, 0.934492, 0.918526,
      0.771007, 0.279479, 0.708789, 0.755456, 0.594553, 0.435895, 0.25, 0.23477, 0.3335, 0.190401,
      0.339902, 0.471551, 0.659789, 0.494647, 0.317542, 0.257743, 0.471434, 0.286554, 0.330292,
      0.223989, 0.432721, 0.195395, 0.186825, 0.506809, 0.636116, 0.816259, 0.25, 0.217174,
      0.513236, 0.918906, 0.92809, 0.370802, 0.573007, 0.765567, 0.850927, 0.933276, 0.723187,
      0.875373, 0.930667, 0.979781, 0.88857, 0.273015, 0.750731, 0.883714, 0.765313, 0.64601,
      0.25, 0.243302, 0.447746, 0.399798, 0.343095 } },
  { "affine", "u8", { -40.0, { 0, 1 }, 0.8, 20.0, { fill = 5, center = { 0, 1 } } }, { 3, 4, 5 },
    { 5, 74, 40, 5, 5, 0, 3, 225, 191, 5, 185, 151, 117, 5, 5, 5, 80, 5, 5, 5, 5, 46, 12, 5, 5,
      228, 231, 197, 163, 5, 157, 123, 89, 5, 5, 5, 52, 5, 5, 5, 5, 18, 240, 5, 5, 200, 203, 169,
      135, 5, 129, 95, 61, 5, 5, 5, 24, 5, 5, 5 } },
}


describe("transforms.functional", function()
  for i, c in ipairs(CASES) do
    it(("%s of %s, case %d"):format(c[1], c[2], i), function()
      local x = IMAGES[c[2]]
      local y = T.functional[c[1]](x, table.unpack(c[3], 1, #c[3]))
      assert.equal(x.dtype, y.dtype)
      assert.same(c[4], { table.unpack(y.shape) })
      -- a byte may fall to the other side of a half
      local tol = c[2] == "u8" and 1 or 2e-5
      local far = (y:double():flatten() - torch.tensor(c[5], { dtype = torch.float64 })):abs()
      assert.is_true(far:max():item() <= tol, tostring(y))
      assert.is_true(far:ne(0):sum():item() <= 2 or c[2] == "fl", tostring(y))
      local pair = torch.stack({ x, x:flip({ -1 }) })
      local two = T.functional[c[1]](pair, table.unpack(c[3], 1, #c[3]))
      assert.is_true((two[0]:double() - y:double()):abs():max():item() < 1e-6)
    end)
  end

  it("leaves an image of one channel its gray", function()
    local x = IMAGES.u8:narrow(0, 0, 1)
    assert.equal(x, T.functional.adjust_hue(x, 0.2))
    assert.equal(x, T.functional.adjust_saturation(x, 0.2))
    assert.equal(x, T.functional.rgb_to_grayscale(x))
    assert.same({ 3, 4, 5 }, { table.unpack(T.functional.rgb_to_grayscale(x, 3).shape) })
  end)

  it("refuses numbers out of range", function()
    local x, F = IMAGES.u8, T.functional
    for _, c in ipairs({
      { "brightness_factor: expected float >= 0", function() F.adjust_brightness(x, -1) end },
      { "hue_factor", function() F.adjust_hue(x, 0.6) end },
      { "an odd size, got 4", function() F.gaussian_blur(x, 4) end },
      { "sigma: expected a number above 0", function() F.gaussian_blur(x, 3, 0) end },
      { "nearest or bilinear", function() F.rotate(x, 3, "bicubic") end },
      { "2 numbers for an image of 3", function() F.rotate(x, 3, { fill = { 1, 2 } }) end },
      { "scale: expected a number above 0", function() F.affine(x, 3, { 0, 0 }, 0, 0) end },
      { "scale values should be positive", function() T.RandomAffine(3, nil, { 0, 1 }) end },
      { "brightness: expected a number or", function() T.ColorJitter({ 2, 1 }) end },
      { "hue: expected a number or", function() T.ColorJitter({ hue = 0.7 }) end },
      { "expected {low, high}", function() T.GaussianBlur(3, { 2, 1 }) end },
    }) do
      helper.raises("ValueError", c[1], c[2])
    end
    helper.raises("TypeError", "expected 1 or 3 channels, got 2", function()
      F.adjust_contrast(x:narrow(0, 0, 2), 1)
    end)
  end)
end)

describe("transforms at random", function()
  local F, x = T.functional, IMAGES.fl

  before_each(function()
    torch.manual_seed(5)
  end)

  it("ColorJitter changes by factors of its ranges, in any order", function()
    assert.equal(x, T.ColorJitter()(x))
    assert.is_true(torch.equal(F.adjust_brightness(x, 0.5),
      T.ColorJitter({ brightness = { 0.5, 0.5 } })(x)))
    local low, high = math.huge, 0
    for _ = 1, 50 do
      local y = T.ColorJitter(0.3)(x * 0.5)
      local ratio = (y:sum() / (x * 0.5):sum()):item()
      low, high = math.min(low, ratio), math.max(high, ratio)
    end
    assert.is_true(low >= 0.699 and low < 0.76 and high > 1.24 and high <= 1.301)
    local orders, jitter = {}, T.ColorJitter({ brightness = { .2, .2 }, contrast = { 2, 2 } })
    for _ = 1, 30 do
      orders[("%.4f"):format(jitter(x):sum():item())] = true
    end
    local sums = {}
    for _, y in ipairs({ F.adjust_contrast(F.adjust_brightness(x, .2), 2),
      F.adjust_brightness(F.adjust_contrast(x, 2), .2) }) do
      sums[("%.4f"):format(y:sum():item())] = true
    end
    assert.same(sums, orders)
    assert.equal("ColorJitter(brightness=(0.5, 1.5), contrast=None, saturation=None, "
      .. "hue=(-0.1, 0.1))", tostring(T.ColorJitter({ brightness = 0.5, hue = 0.1 })))
  end)

  it("RandomRotation and RandomAffine draw angles, shifts and scales of their ranges", function()
    assert.is_true(torch.equal(F.rotate(x, 30.0), T.RandomRotation({ 30.0, 30.0 })(x)))
    assert.is_true(torch.equal(x, T.RandomRotation(0)(x)))
    assert.is_true(torch.equal(F.affine(x, 5.0, { 0, 0 }, 1.2, { 3.0, -4.0 }, "bilinear", 0.5),
      T.RandomAffine({ degrees = { 5.0, 5.0 }, scale = { 1.2, 1.2 }, shear = { 3.0, 3.0, -4.0,
        -4.0 }, interpolation = "bilinear", fill = 0.5 })(x)))
    local seen = {}
    for _ = 1, 60 do -- one pixel of four down at most, two of five to a side
      local y = T.RandomAffine({ degrees = 0, translate = { 0.4, 0.25 } })(x + 1)
      for dx = -2, 2 do
        for dy = -1, 1 do
          if torch.equal(y, F.affine(x + 1, 0, { dx, dy }, 1, 0)) then
            seen[dx .. "," .. dy] = true
          end
        end
      end
    end
    local n = 0
    for _ in pairs(seen) do
      n = n + 1
    end
    assert.is_true(n >= 12, n) -- of 15, of which the outer ones are rarer
  end)

  it("GaussianBlur and RandomGrayscale", function()
    assert.is_true(torch.equal(F.gaussian_blur(x, 3, 1.5), T.GaussianBlur(3, 1.5)(x)))
    assert.is_false(torch.equal(T.GaussianBlur(3)(x), T.GaussianBlur(3)(x)))
    assert.is_true(torch.equal(F.rgb_to_grayscale(x, 3), T.RandomGrayscale(1)(x)))
    assert.equal(x, T.RandomGrayscale(0)(x))
  end)
end)

describe("a wrong argument of a transform of colour or place", function()
  it("is named", function()
    helper.raises("TypeError", "ColorJitter: brightness, element 1: expected float", function()
      T.ColorJitter({ brightness = { "a", "b" } })
    end)
    helper.raises("TypeError", "RandomRotation: expand: expected bool, got int 1", function()
      T.RandomRotation(30, { expand = 1 })
    end)
    helper.raises("TypeError", "rotate: expand: expected bool, got int 1", function()
      T.functional.rotate(IMAGES.u8, 30, { expand = 1 })
    end)
  end)
end)
