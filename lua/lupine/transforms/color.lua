--- Transforms of colour: brightness, contrast, saturation and hue, blurring.
--- Source: torchvision documentation, transforms.functional.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local function torch()
  return require("torch")
end

local LUMA = { 0.2989, 0.587, 0.114 } -- of red, green and blue

local function channels(x, where)
  local c = x:size(-3)
  errors.check(c == 1 or c == 3, "TypeError", "%s: expected 1 or 3 channels, got %d", where, c)
  return c
end

--- `kit` has the helpers of lupine.transforms; F gets the functions.
return function(F, kit)
  -- ratio parts of a and the rest of b, in the range and type of a.
  local function blend(a, b, ratio)
    local bound = a:is_floating_point() and 1 or kit.most(a.dtype)
    return (a * ratio + b * (1.0 - ratio)):clamp(0, bound):to(a.dtype)
  end

  local function factor(v, where)
    return check.number(v, where, { min = 0 })
  end

  --- Luma of red, green and blue.
  ---@param img torch.Tensor [..., 1 or 3, height, width]
  ---@param n? integer channels of the result, 1 (default) or 3, which are equal
  ---@return torch.Tensor of the same dtype
  function F.rgb_to_grayscale(img, n)
    local c = channels(kit.image(img, "rgb_to_grayscale"), "rgb_to_grayscale")
    n = check.int(n or 1, "rgb_to_grayscale: num_output_channels")
    errors.check(n == 1 or n == 3, "ValueError",
      "rgb_to_grayscale: num_output_channels: 1 or 3, got %d", n)
    if c == 3 then
      local y = img:select(-3, 0) * LUMA[1] + img:select(-3, 1) * LUMA[2]
        + img:select(-3, 2) * LUMA[3]
      img = y:to(img.dtype):unsqueeze(-3)
    end
    return n == 3 and torch().cat({ img, img, img }, -3) or img
  end

  --- 0: black, 1: the image.
  ---@param img torch.Tensor [..., 1 or 3, height, width]
  ---@param brightness_factor number >= 0
  ---@return torch.Tensor
  function F.adjust_brightness(img, brightness_factor)
    factor(brightness_factor, "adjust_brightness: brightness_factor")
    channels(kit.image(img, "adjust_brightness"), "adjust_brightness")
    return blend(img, torch().zeros_like(img), brightness_factor)
  end

  --- 0: the mean of its gray everywhere, 1: the image.
  ---@param img torch.Tensor [..., 1 or 3, height, width]
  ---@param contrast_factor number >= 0
  ---@return torch.Tensor
  function F.adjust_contrast(img, contrast_factor)
    factor(contrast_factor, "adjust_contrast: contrast_factor")
    channels(kit.image(img, "adjust_contrast"), "adjust_contrast")
    local gray = F.rgb_to_grayscale(img)
    gray = img:is_floating_point() and gray or gray:to(torch().float32)
    return blend(img, gray:mean({ -3, -2, -1 }, { keepdim = true }), contrast_factor)
  end

  --- 0: gray, 1: the image.
  ---@param img torch.Tensor [..., 1 or 3, height, width]
  ---@param saturation_factor number >= 0
  ---@return torch.Tensor
  function F.adjust_saturation(img, saturation_factor)
    factor(saturation_factor, "adjust_saturation: saturation_factor")
    if channels(kit.image(img, "adjust_saturation"), "adjust_saturation") == 1 then
      return img
    end
    return blend(img, F.rgb_to_grayscale(img), saturation_factor)
  end

  -- ---- hue -------------------------------------------------------------------

  -- Hue, saturation and value in 0 … 1 (Smith, "Color gamut transform pairs",
  -- 1978).
  local function to_hsv(x)
    local r, g, b = x:select(-3, 0), x:select(-3, 1), x:select(-3, 2)
    local most, least = x:amax(-3), x:amin(-3)
    local gray, span = most:eq(least), most - least
    local divisor = torch().where(gray, 1.0, span)
    local rc, gc, bc = (most - r) / divisor, (most - g) / divisor, (most - b) / divisor
    local red, green = most:eq(r), most:eq(g)
    local h = torch().where(red, bc - gc, torch().where(green, 2.0 + rc - bc, 4.0 + gc - rc))
    return (h / 6 + 1):fmod(1), span / torch().where(gray, 1.0, most), most
  end

  -- Which of v, q, p, t each sixth of the hue has for red, green and blue.
  local SIXTHS = { "vqpptv", "tvvqpp", "pptvvq" }

  local function to_rgb(h, s, v)
    local i = (h * 6):floor()
    local f = h * 6 - i
    local of = { v = v, p = (v * (1 - s)):clamp(0, 1), q = (v * (1 - s * f)):clamp(0, 1),
      t = (v * (1 - s * (1 - f))):clamp(0, 1) }
    i = i:remainder(6)
    local out = {}
    for c, letters in ipairs(SIXTHS) do
      local x = of[letters:sub(6, 6)]
      for k = 0, 4 do
        x = torch().where(i:eq(k), of[letters:sub(k + 1, k + 1)], x)
      end
      out[c] = x
    end
    return torch().stack(out, -3)
  end

  --- Turns the hue by a part of the circle.
  ---@param img torch.Tensor [..., 1 or 3, height, width]
  ---@param hue_factor number in -0.5 … 0.5
  ---@return torch.Tensor
  function F.adjust_hue(img, hue_factor)
    check.number(hue_factor, "adjust_hue: hue_factor", { min = -0.5, max = 0.5 })
    if channels(kit.image(img, "adjust_hue"), "adjust_hue") == 1 then
      return img
    end
    local x = img:is_floating_point() and img or kit.convert(img, torch().float32)
    local h, s, v = to_hsv(x)
    return kit.convert(to_rgb((h + hue_factor):remainder(1), s, v), img.dtype)
  end

  -- ---- jitter ------------------------------------------------------------------

  -- {low, high} of a number around `center` or of two; nil: nothing to change.
  local function range(v, name, center, low, high)
    local where = "ColorJitter: " .. name
    if check.is_none(v) then
      return nil
    elseif type(v) == "number" then
      check.number(v, where, { min = 0 })
      v = { center - v, center + v }
      v[1] = center == 1 and math.max(v[1], 0) or v[1]
    end
    for i, bound in ipairs(check.table(v, where)) do
      check.number(bound, ("%s, element %d"):format(where, i))
    end
    errors.check(#v == 2 and v[1] >= low and v[2] <= high and v[1] <= v[2], "ValueError",
      "%s: expected a number or {low, high} between %g and %g, got %s", where, low, high,
      #v == 2 and ("{%g, %g}"):format(v[1], v[2]) or check.describe(v))
    return (v[1] ~= center or v[2] ~= center) and { v[1], v[2] } or nil
  end

  local STEPS = { "brightness", "contrast", "saturation", "hue" }

  --- ColorJitter(brightness = 0, contrast = 0, saturation = 0, hue = 0): each
  --- changed by a factor of the range, in a random order. A number v stands for
  --- 1 - v … 1 + v; of hue for -v … v.
  kit.define("ColorJitter", function(self, ...)
    local a = check.arguments("ColorJitter", STEPS, nil, ...)
    for i, name in ipairs(STEPS) do
      local hue = name == "hue"
      self[name] = range(a[i] or 0, name, hue and 0 or 1, hue and -0.5 or 0,
        hue and 0.5 or math.huge)
    end
  end, function(self, x)
    for _, i in ipairs(torch().randperm(4):tolist()) do
      local name = STEPS[i + 1]
      local v = self[name]
      if v then
        x = F["adjust_" .. name](x, v[1] + kit.uniform() * (v[2] - v[1]))
      end
    end
    return x
  end, kit.shown(STEPS))

  --- RandomGrayscale(p = 0.1): gray in as many channels.
  kit.define("RandomGrayscale", function(self, ...)
    local p = kit.one("RandomGrayscale", "p", ...)
    self.p = check.number(p == nil and 0.1 or p, "RandomGrayscale: p", { min = 0, max = 1 })
  end, function(self, x)
    return kit.uniform() < self.p and F.rgb_to_grayscale(x, x:size(-3)) or x
  end, kit.shown({ "p" }))

  -- ---- blurring ------------------------------------------------------------------

  -- Samples of the bell of that width, whose sum is 1.
  local function bell(n, sigma, kind)
    local lim = (n - 1) / 2
    local x = torch().linspace(-lim, lim, n, kind)
    local pdf = (-0.5 * (x / sigma):pow(2)):exp()
    return pdf / pdf:sum()
  end

  local function two(v, where, one)
    v = type(v) == "table" and v or { v, v }
    errors.check(#v == 1 or #v == 2, "ValueError", "%s: expected one or two numbers, got %d",
      where, #v)
    return { one(v[1], where), one(v[2] or v[1], where) }
  end

  local function odd(n, where)
    check.int(n, where, { min = 1 })
    errors.check(n % 2 == 1, "ValueError", "%s: expected an odd size, got %d", where, n)
    return n
  end

  local function width(s, where)
    errors.check(check.number(s, where) > 0, "ValueError", "%s: expected a number above 0, got %s",
      where, tostring(s))
    return s
  end

  --- Each pixel the mean of its neighbours, weighted by a bell; beyond its edges
  --- the image is its reflection.
  ---@param img torch.Tensor [..., channels, height, width]
  ---@param kernel_size integer|integer[] pixels, odd: of both, or {across, down}
  ---@param sigma? number|number[] pixels; 0.15 kernel_size + 0.35 unless given
  ---@return torch.Tensor
  function F.gaussian_blur(img, kernel_size, sigma)
    local k = two(kernel_size, "gaussian_blur: kernel_size", odd)
    if check.is_none(sigma) then
      sigma = { k[1] * 0.15 + 0.35, k[2] * 0.15 + 0.35 }
    end
    local s = two(sigma, "gaussian_blur: sigma", width)
    kit.image(img, "gaussian_blur")
    local c = img:size(-3)
    return kit.in_batches(img, function(x)
      local kind = { dtype = x.dtype }
      local shape = x.shape
      local window = bell(k[2], s[2], kind):unsqueeze(1) * bell(k[1], s[1], kind)
      local y = x:reshape({ -1, c, img:size(-2), img:size(-1) })
      y = torch().nn.functional.pad(y, { k[1] // 2, k[1] // 2, k[2] // 2, k[2] // 2 }, "reflect")
      y = torch().nn.functional.conv2d(y, window:expand(c, 1, k[2], k[1]):contiguous(),
        { groups = c })
      return y:reshape(shape)
    end)
  end

  --- GaussianBlur(kernel_size, sigma = {0.1, 2.0}): by a width of the range.
  kit.define("GaussianBlur", function(self, ...)
    local a = check.arguments("GaussianBlur", { "kernel_size", "sigma" }, nil, ...)
    self.kernel_size = two(a[1], "GaussianBlur: kernel_size", odd)
    self.sigma = two(a[2] or { 0.1, 2.0 }, "GaussianBlur: sigma", width)
    errors.check(self.sigma[1] <= self.sigma[2], "ValueError",
      "GaussianBlur: sigma: expected {low, high}, got {%g, %g}", self.sigma[1], self.sigma[2])
  end, function(self, x)
    local s = self.sigma[1] + kit.uniform() * (self.sigma[2] - self.sigma[1])
    return F.gaussian_blur(x, self.kernel_size, s)
  end, kit.shown({ "kernel_size", "sigma" }))

  --- Grayscale(num_output_channels = 1): luma of red, green and blue.
  kit.define("Grayscale", function(self, ...)
    local n = kit.one("Grayscale", "num_output_channels", ...)
    self.n = check.int(n or 1, "Grayscale: num_output_channels", { min = 1 })
    errors.check(self.n == 1 or self.n == 3, "ValueError",
      "Grayscale: num_output_channels: 1 or 3, got %d", self.n)
  end, function(self, x)
    return F.rgb_to_grayscale(x, self.n)
  end, function(self)
    return "num_output_channels=" .. self.n
  end)

end
