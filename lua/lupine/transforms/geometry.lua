--- Transforms that turn, move, stretch and shear: each point of the result is
--- looked up in the image by the inverse map.
--- Source: torchvision documentation, transforms.functional.rotate and affine.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local function torch()
  return require("torch")
end

local MODES = { nearest = true, bilinear = true }

local function mode_of(mode, where)
  errors.check(mode == nil or MODES[mode], "ValueError",
    "%s: interpolation: nearest or bilinear, got %s", where, check.describe(mode))
  return mode or "nearest"
end

local function flag(v, where)
  return check.bool(v, where, { nullable = true }) or false
end

-- a, b, c, d, e, f of x' = a x + b y + c, y' = d x + e y + f: from a place in
-- the result to that in the image, both from the centre. It undoes a shear,
-- a turn by `angle` degrees clockwise about `center`, a scale and a shift.
local function inverse(center, angle, shift, scale, shear)
  local turn, sx, sy = math.rad(angle), math.rad(shear[1]), math.rad(shear[2])
  local a = math.cos(turn - sy) / math.cos(sy)
  local b = -a * math.tan(sx) - math.sin(turn)
  local c = math.sin(turn - sy) / math.cos(sy)
  local d = -c * math.tan(sx) + math.cos(turn)
  local m = { d / scale, -b / scale, 0, -c / scale, a / scale, 0 }
  local x, y = -center[1] - shift[1], -center[2] - shift[2]
  m[3] = m[1] * x + m[2] * y + center[1]
  m[6] = m[4] * x + m[5] * y + center[2]
  return m
end

-- Width and height that hold the whole turned image; the tolerance keeps edges
-- that should be whole from being rounded up.
local function whole_size(m, w, h)
  local low, high = { math.huge, math.huge }, { -math.huge, -math.huge }
  for _, corner in ipairs({ { -1, -1 }, { -1, 1 }, { 1, 1 }, { 1, -1 } }) do
    local x, y = corner[1] * w / 2, corner[2] * h / 2
    local to = { m[1] * x + m[2] * y + m[3] + w / 2, m[4] * x + m[5] * y + m[6] + h / 2 }
    for i = 1, 2 do
      low[i], high[i] = math.min(low[i], to[i]), math.max(high[i], to[i])
    end
  end
  local function whole(v)
    v = v / 1e-4
    return (v < 0 and math.ceil(v) or math.floor(v)) * 1e-4
  end
  local size = {}
  for i = 1, 2 do
    size[i] = math.ceil(whole(high[i])) - math.floor(whole(low[i]))
  end
  return size[1], size[2]
end

-- Places to look at, as grid_sample takes them: [1, oh, ow, 2].
local function grid_of(m, w, h, ow, oh, kind)
  local x = torch().linspace(-ow / 2 + 0.5, ow / 2 - 0.5, ow, kind)
  local y = torch().linspace(-oh / 2 + 0.5, oh / 2 - 0.5, oh, kind):unsqueeze(1)
  local u = (x * m[1] + y * m[2] + m[3]) / (w / 2)
  local v = (x * m[4] + y * m[5] + m[6]) / (h / 2)
  return torch().stack({ u, v }, -1):unsqueeze(0)
end

local function fill_of(fill, channels, where)
  fill = type(fill) == "table" and fill or { fill or 0 }
  errors.check(#fill == 1 or #fill == channels, "ValueError",
    "%s: fill: %d numbers for an image of %d channels", where, #fill, channels)
  for _, v in ipairs(fill) do
    check.number(v, where .. ": fill")
  end
  return fill
end

-- Looks the result up; outside is the fill.
local function sample(kit, img, m, ow, oh, mode, fill)
  local c, h, w = img:size(-3), img:size(-2), img:size(-1)
  return kit.in_batches(img, function(x)
    local kind, shape = { dtype = x.dtype }, {}
    for d = 1, x:dim() - 2 do
      shape[d] = x:size(d - 1)
    end
    shape[#shape + 1], shape[#shape + 2] = oh, ow
    x = x:reshape({ -1, c, h, w })
    local n = x:size(0)
    local grid = grid_of(m, w, h, ow, oh, kind):expand(n, oh, ow, 2)
    local y = torch().nn.functional.grid_sample(torch().cat({ x, torch().ones({ n, 1, h, w },
      kind) }, 1), grid, { mode = mode, padding_mode = "zeros", align_corners = false })
    local inside = y:narrow(1, c, 1)
    y = y:narrow(1, 0, c)
    local outside = torch().tensor(fill, kind):reshape({ 1, -1, 1, 1 })
    if mode == "nearest" then
      y = torch().where(inside:lt(0.5), outside, y)
    else
      y = y * inside + (1 - inside) * outside
    end
    return y:reshape(shape)
  end)
end

-- {low, high} of a number around 0, or of two; of shear also of four.
local function angles(v, where, most)
  if type(v) == "number" then
    check.number(v, where, { min = 0 })
    return { -v, v }
  end
  check.table(v, where)
  for i = 1, #v do
    check.number(v[i], where)
  end
  errors.check(#v == 2 or most == 4 and #v == 4, "ValueError",
    "%s: expected a number or a list of %s, got %d", where, most == 4 and "2 or 4" or "2", #v)
  return v
end

local function pair(v, where)
  check.table(v, where)
  errors.check(#v == 2, "ValueError", "%s: expected 2 numbers, got %d", where, #v)
  return { check.number(v[1], where), check.number(v[2], where) }
end

return function(F, kit)
  local function from_middle(center, img, where)
    if check.is_none(center) then
      return { 0, 0 }
    end
    center = pair(center, where .. ": center")
    return { center[1] - img:size(-1) / 2, center[2] - img:size(-2) / 2 }
  end

  --- Turned by an angle, counter-clockwise.
  ---@param img torch.Tensor [..., channels, height, width]
  ---@param angle number degrees
  ---@param ... any interpolation ("nearest" or "bilinear"), expand (false: the size
  ---        stays), center ({x, y} in pixels from the left top; the middle), fill (a
  ---        number, or one a channel; 0)
  ---@return torch.Tensor
  function F.rotate(img, angle, ...)
    local a = check.arguments("rotate", { "interpolation", "expand", "center", "fill" }, nil, ...)
    kit.image(img, "rotate")
    local h, w = img:size(-2), img:size(-1)
    local m = inverse(from_middle(a[3], img, "rotate"), -check.number(angle, "rotate: angle"),
      { 0, 0 }, 1, { 0, 0 })
    local ow, oh = w, h
    if flag(a[2], "rotate: expand") then
      ow, oh = whole_size(m, w, h)
    end
    return sample(kit, img, m, ow, oh, mode_of(a[1], "rotate"),
      fill_of(a[4], img:size(-3), "rotate"))
  end

  --- Turned clockwise, moved, stretched and sheared about the middle.
  ---@param img torch.Tensor [..., channels, height, width]
  ---@param angle number degrees
  ---@param translate number[] pixels {right, down}
  ---@param scale number above 0
  ---@param shear number|number[] degrees {x, y}
  ---@param ... any interpolation, fill, center: as rotate's
  ---@return torch.Tensor
  function F.affine(img, angle, translate, scale, shear, ...)
    local a = check.arguments("affine", { "interpolation", "fill", "center" }, nil, ...)
    kit.image(img, "affine")
    errors.check(check.number(scale, "affine: scale") > 0, "ValueError",
      "affine: scale: expected a number above 0, got %s", tostring(scale))
    shear = type(shear) == "number" and { shear, 0.0 } or pair(shear, "affine: shear")
    local m = inverse(from_middle(a[3], img, "affine"), check.number(angle, "affine: angle"),
      pair(translate, "affine: translate"), scale, shear)
    return sample(kit, img, m, img:size(-1), img:size(-2), mode_of(a[1], "affine"),
      fill_of(a[2], img:size(-3), "affine"))
  end

  local function between(range)
    return range[1] + kit.uniform() * (range[2] - range[1])
  end

  --- RandomRotation(degrees, interpolation = "nearest", expand = false, center =
  --- the middle, fill = 0): by an angle of -degrees … degrees, or of {low, high}.
  kit.define("RandomRotation", function(self, ...)
    local a = check.arguments("RandomRotation",
      { "degrees", "interpolation", "expand", "center", "fill" }, nil, ...)
    self.degrees = angles(a[1], "RandomRotation: degrees", 2)
    self.interpolation = mode_of(a[2], "RandomRotation")
    self.expand, self.center, self.fill = flag(a[3], "RandomRotation: expand"), a[4], a[5] or 0
  end, function(self, x)
    return F.rotate(x, between(self.degrees), self.interpolation, self.expand, self.center,
      self.fill)
  end, function(self)
    return ("degrees=[%s, %s], interpolation=%s, expand=%s, fill=%s"):format(self.degrees[1],
      self.degrees[2], self.interpolation, self.expand and "True" or "False",
      type(self.fill) == "table" and "[" .. table.concat(self.fill, ", ") .. "]" or self.fill)
  end)

  --- RandomAffine(degrees, translate, scale, shear, interpolation = "nearest",
  --- fill = 0, center): turned by an angle of the range, moved by up to the
  --- parts {right, down} of the image's size, scaled by a factor of {low, high}
  --- and sheared by angles of -shear … shear, {low, high} of x, or of x and y.
  kit.define("RandomAffine", function(self, ...)
    local a = check.arguments("RandomAffine", { "degrees", "translate", "scale", "shear",
      "interpolation", "fill", "center" }, nil, ...)
    self.degrees = angles(a[1], "RandomAffine: degrees", 2)
    if not check.is_none(a[2]) then
      self.translate = pair(a[2], "RandomAffine: translate")
      for _, v in ipairs(self.translate) do
        check.number(v, "RandomAffine: translate", { min = 0, max = 1 })
      end
    end
    if not check.is_none(a[3]) then
      self.scale = pair(a[3], "RandomAffine: scale")
      errors.check(self.scale[1] > 0 and self.scale[2] > 0, "ValueError",
        "RandomAffine: scale values should be positive")
    end
    self.shear = not check.is_none(a[4]) and angles(a[4], "RandomAffine: shear", 4) or nil
    self.interpolation = mode_of(a[5], "RandomAffine")
    self.fill, self.center = a[6] or 0, a[7]
  end, function(self, x)
    local angle, shift, shear = between(self.degrees), { 0, 0 }, { 0.0, 0.0 }
    for i, size in ipairs(self.translate and { x:size(-1), x:size(-2) } or {}) do
      local far = self.translate[i] * size
      shift[i] = math.floor(between({ -far, far }) + 0.5)
    end
    local scale = self.scale and between(self.scale) or 1.0
    if self.shear then
      shear[1] = between(self.shear)
      shear[2] = self.shear[4] and between({ self.shear[3], self.shear[4] }) or 0.0
    end
    return F.affine(x, angle, shift, scale, shear, self.interpolation, self.fill, self.center)
  end, function(self)
    local parts = { ("degrees=[%s, %s]"):format(self.degrees[1], self.degrees[2]) }
    for _, name in ipairs({ "translate", "scale", "shear" }) do
      parts[#parts + 1] = self[name] and kit.shown({ name })(self)
    end
    return table.concat(parts, ", ")
  end)
end
