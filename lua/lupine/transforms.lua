--- What is usually done to images, by torchvision.transforms' names: objects
--- that are called with a tensor [..., channels, height, width]. Random ones
--- draw from torch's random numbers, so that in a DataLoader they depend on the
--- epoch and the batch alone. Source: torchvision documentation, Transforms.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local function torch()
  return require("torch")
end

local function image(x, where)
  errors.check(core.is_tensor(x) and x:dim() >= 3, "TypeError",
    "%s: expected a Tensor [..., channels, height, width], got %s", where,
    core.is_tensor(x) and tostring(x.shape) or check.describe(x))
  return x
end

-- A class whose instances are called with an image: `apply(self, x)`. `shown`
-- is what tostring prints in parentheses.
local function define(name, init, apply, shown)
  local T = class.new(name)
  T.init = init
  T.forward = apply
  function T.__call(self, x, ...)
    return apply(self, image(x, name), ...)
  end
  function T.__tostring(self)
    return ("%s(%s)"):format(name, shown and shown(self) or "")
  end
  M[name] = T
  return T
end

-- A value as torchvision prints it; ratios with four decimals.
local function python(v)
  if type(v) == "table" then
    local parts = {}
    for i, part in ipairs(v) do
      parts[i] = python(part)
    end
    return "(" .. table.concat(parts, ", ") .. ")"
  elseif type(v) == "boolean" then
    return v and "True" or "False"
  elseif math.type(v) == "float" then
    return tostring(math.floor(v * 1e4 + 0.5) / 1e4)
  end
  return v == nil and "None" or tostring(v)
end

-- What tostring prints: `name=value` of these arguments. The value is the field of the
-- name, or what `values(self)` has for it.
local function shown(names, values)
  return function(self)
    local own, parts = values and values(self) or {}, {}
    for i, name in ipairs(names) do
      local value = own[name]
      if value == nil then
        value = self[name]
      end
      parts[i] = name .. "=" .. python(value)
    end
    return table.concat(parts, ", ")
  end
end

local function shown_size(self)
  return { size = { self.h, self.w } }
end

local function uniform()
  return torch().rand({ 1 }, { dtype = torch().float64 }):item()
end

-- A whole number of first … last.
local function draw(first, last)
  return first == last and first or torch().randint(first, last + 1, { 1 }):item()
end

local function pair(v, where)
  if type(v) == "table" then
    return check.int(v[1], where, { min = 1 }), check.int(v[2] or v[1], where, { min = 1 })
  end
  check.int(v, where, { min = 1 })
  return v, v
end

local function probability(p, where)
  return check.number(p == nil and 0.5 or p, where .. ": p", { min = 0, max = 1 })
end

-- The argument of a class that takes one, by position or by name.
local function one(class_name, parameter, ...)
  return check.arguments(class_name, { parameter }, nil, ...)[1]
end

-- ---- several in a row ------------------------------------------------------

--- Compose(list): one after another.
define("Compose", function(self, ...)
  self.transforms = check.list("Compose", "transforms", ...)
end, nil)

function M.Compose.__call(self, x)
  for _, t in ipairs(self.transforms) do
    x = t(x)
  end
  return x
end

function M.Compose.__tostring(self)
  local lines = { "Compose(" }
  for _, t in ipairs(self.transforms) do
    lines[#lines + 1] = "    " .. tostring(t)
  end
  return table.concat(lines, "\n") .. "\n)"
end

--- Lambda(f): f(x).
define("Lambda", function(self, ...)
  local f = one("Lambda", "lambd", ...)
  errors.check(type(f) == "function", "TypeError", "Lambda: expected a function, got %s",
    check.describe(f))
  self.lambd = f
end, function(self, x)
  return self.lambd(x)
end)

-- ---- values ----------------------------------------------------------------

local MOST = { uint8 = 255, int8 = 127, int16 = 32767, int32 = 2147483647 }

local function most(dtype)
  local name = tostring(dtype):match("%w+$")
  return errors.check(MOST[name], "TypeError", "ConvertImageDtype: no images of %s", name)
end

-- Whole numbers up to the type's greatest <-> 0 … 1.
local function convert(x, dtype)
  if x.dtype == dtype then
    return x
  elseif x:is_floating_point() and dtype.is_floating_point then
    return x:to(dtype)
  elseif dtype.is_floating_point then
    return x:to(dtype) / most(x.dtype)
  elseif x:is_floating_point() then
    return (x * (most(dtype) + 1 - 1e-3)):to(dtype)
  end
  local from, to = most(x.dtype), most(dtype)
  x = x:to(torch().int64)
  x = from > to and x // ((from + 1) // (to + 1)) or x * ((to + 1) // (from + 1))
  return x:to(dtype)
end

--- ToTensor(): 0 … 1 in float32; of uint8 the 255th parts.
define("ToTensor", function() end, function(_, x)
  return convert(x, torch().float32)
end)

--- ConvertImageDtype(dtype = float32): scaled between types as torchvision does.
define("ConvertImageDtype", function(self, ...)
  self.dtype = one("ConvertImageDtype", "dtype", ...) or torch().float32
end, function(self, x)
  return convert(x, self.dtype)
end)

local function numbers(list, where)
  check.table(list, where)
  for _, v in ipairs(list) do
    check.number(v, where)
  end
  return list
end

--- Normalize(mean, std, inplace = false): per channel, of floating images.
define("Normalize", function(self, ...)
  local a = check.arguments("Normalize", { "mean", "std", "inplace" }, nil, ...)
  self.mean, self.std = numbers(a[1], "Normalize: mean"), numbers(a[2], "Normalize: std")
  self.inplace = a[3] or false
  for _, v in ipairs(self.std) do
    errors.check(v ~= 0, "ValueError", "Normalize: std: 0 would divide by zero")
  end
end, function(self, x)
  errors.check(x:is_floating_point(), "TypeError",
    "Normalize: expected a floating tensor, got %s; ToTensor makes one", tostring(x.dtype))
  for name, list in pairs({ mean = self.mean, std = self.std }) do
    errors.check(#list == 1 or #list == x:size(-3), "ValueError",
      "Normalize: %s has %d values, the image %d channels", name, #list, x:size(-3))
  end
  local kind = { dtype = x.dtype }
  local mean = torch().tensor(self.mean, kind):reshape({ -1, 1, 1 })
  local std = torch().tensor(self.std, kind):reshape({ -1, 1, 1 })
  if self.inplace then
    return x:sub_(mean):div_(std)
  end
  return (x - mean) / std
end, function(self)
  return ("mean=[%s], std=[%s], inplace=%s"):format(table.concat(self.mean, ", "),
    table.concat(self.std, ", "), self.inplace and "True" or "False")
end)

-- ---- sizes -----------------------------------------------------------------

local MODES = { bilinear = true, bicubic = true, nearest = true }

-- At least 4 dimensions and a floating type for f, and back.
local function in_batches(x, f)
  local three, dtype = x:dim() == 3, x.dtype
  local y = three and x:unsqueeze(0) or x
  y = f(x:is_floating_point() and y or y:to(torch().float32))
  if not x:is_floating_point() then
    y = y:round():clamp(0, most(dtype)):to(dtype)
  end
  return three and y:squeeze(0) or y
end

local function resize(x, h, w, mode, antialias)
  if x:size(-2) == h and x:size(-1) == w then
    return x
  end
  local F = torch().nn.functional
  local smooth = antialias and mode ~= "nearest"
  return in_batches(x, function(y)
    return F.interpolate(y, { size = { h, w }, mode = mode, antialias = smooth,
      align_corners = mode ~= "nearest" and false or nil })
  end)
end

--- Resize(size, interpolation = "bilinear", antialias = true): to a height and
--- width, or the smaller side to a number.
define("Resize", function(self, ...)
  local a = check.arguments("Resize", { "size", "interpolation", "antialias" }, nil, ...)
  self.whole = type(a[1]) == "table" and #a[1] > 1
  self.h, self.w = pair(a[1], "Resize: size")
  self.interpolation = a[2] or "bilinear"
  errors.check(MODES[self.interpolation], "ValueError",
    "Resize: interpolation: bilinear, bicubic or nearest, got %s", check.describe(a[2]))
  self.antialias = a[3] ~= false
end, function(self, x)
  local h, w = self.h, self.w
  if not self.whole then
    local height, width = x:size(-2), x:size(-1)
    h = height <= width and self.h or self.h * height // width
    w = height <= width and self.h * width // height or self.h
  end
  return resize(x, h, w, self.interpolation, self.antialias)
end, shown({ "size", "interpolation", "antialias" }, function(self)
  return { size = self.whole and { self.h, self.w } or self.h }
end))

local PADDING = { constant = "constant", reflect = "reflect", edge = "replicate" }

-- left, top, right, bottom of a number, {across, down} or all four
local function sides(v, where)
  if type(v) == "number" then
    v = { v, v, v, v }
  elseif type(v) == "table" and #v == 2 then
    v = { v[1], v[2], v[1], v[2] }
  end
  check.table(v, where)
  for i = 1, 4 do
    check.int(v[i], where, { min = 0 })
  end
  return v
end

-- The same in as few numbers as may be; nil: none.
local function few(v)
  if not v or v[1] ~= v[3] or v[2] ~= v[4] then
    return v
  end
  return v[1] == v[2] and v[1] or { v[1], v[2] }
end

local function shown_padding(self)
  return { size = self.h and { self.h, self.w }, padding = few(self.padding) }
end

local function padding_mode(mode, where)
  errors.check(mode == nil or PADDING[mode], "ValueError",
    "%s: padding_mode: constant, reflect or edge, got %s", where, check.describe(mode))
  return mode or "constant"
end

local function pad(x, v, fill, padding)
  local F, mode = torch().nn.functional, PADDING[padding]
  return in_batches(x, function(y)
    return F.pad(y, { v[1], v[3], v[2], v[4] }, mode, mode == "constant" and fill or nil)
  end)
end

--- Pad(padding, fill = 0, padding_mode = "constant").
define("Pad", function(self, ...)
  local a = check.arguments("Pad", { "padding", "fill", "padding_mode" }, nil, ...)
  self.padding = sides(a[1], "Pad: padding")
  self.fill = check.number(a[2] or 0, "Pad: fill")
  self.padding_mode = padding_mode(a[3], "Pad")
end, function(self, x)
  return pad(x, self.padding, self.fill, self.padding_mode)
end, shown({ "padding", "fill", "padding_mode" }, shown_padding))

local function cut(x, top, left, h, w)
  return x:narrow(-2, top, h):narrow(-1, left, w)
end

-- x, padded evenly where it is smaller than the piece.
local function at_least(x, h, w)
  local down, across = math.max(h - x:size(-2), 0), math.max(w - x:size(-1), 0)
  if down == 0 and across == 0 then
    return x
  end
  return pad(x, { across // 2, down // 2, (across + 1) // 2, (down + 1) // 2 }, 0, "constant")
end

-- Half of n, halves to the even number.
local function half(n)
  return n % 4 == 3 and n // 2 + 1 or n // 2
end

--- CenterCrop(size): the middle; smaller images are padded with 0.
define("CenterCrop", function(self, ...)
  self.h, self.w = pair(one("CenterCrop", "size", ...), "CenterCrop: size")
end, function(self, x)
  x = at_least(x, self.h, self.w)
  return cut(x, half(x:size(-2) - self.h), half(x:size(-1) - self.w), self.h, self.w)
end, shown({ "size" }, shown_size))

--- RandomCrop(size, padding, pad_if_needed = false, fill = 0, padding_mode).
define("RandomCrop", function(self, ...)
  local a = check.arguments("RandomCrop",
    { "size", "padding", "pad_if_needed", "fill", "padding_mode" }, nil, ...)
  self.h, self.w = pair(a[1], "RandomCrop: size")
  self.padding = not check.is_none(a[2]) and sides(a[2], "RandomCrop: padding") or nil
  self.pad_if_needed = a[3] or false
  self.fill = check.number(a[4] or 0, "RandomCrop: fill")
  self.padding_mode = padding_mode(a[5], "RandomCrop")
end, function(self, x)
  if self.padding then
    x = pad(x, self.padding, self.fill, self.padding_mode)
  end
  local down, across = math.max(self.h - x:size(-2), 0), math.max(self.w - x:size(-1), 0)
  if self.pad_if_needed and down + across > 0 then
    x = pad(x, { across, down, across, down }, self.fill, self.padding_mode)
  end
  local h, w = x:size(-2), x:size(-1)
  errors.check(h >= self.h and w >= self.w, "ValueError",
    "RandomCrop: required size [%d, %d] is larger than the image's [%d, %d]", self.h, self.w, h, w)
  return cut(x, draw(0, h - self.h), draw(0, w - self.w), self.h, self.w)
end, shown({ "size", "padding" }, shown_padding))

-- A height and a width whose area and ratio of sides are in the ranges, or nil
-- if ten tries find none for which `fits`. The ratio is that of the second
-- result to the first.
local function extents(area, scale, ratio, fits)
  local low, high = math.log(ratio[1]), math.log(ratio[2])
  for _ = 1, 10 do
    local part = area * (scale[1] + uniform() * (scale[2] - scale[1]))
    local r = math.exp(low + uniform() * (high - low))
    local first, second = math.floor(math.sqrt(part / r) + 0.5), math.floor(math.sqrt(part * r)
      + 0.5)
    if fits(first, second) then
      return first, second
    end
  end
end

-- A piece of an area and a ratio width / height in the ranges; the middle if
-- there is none.
local function piece(x, scale, ratio)
  local h, w = x:size(-2), x:size(-1)
  local down, across = extents(h * w, scale, ratio, function(down, across)
    return across > 0 and across <= w and down > 0 and down <= h
  end)
  if down then
    return draw(0, h - down), draw(0, w - across), down, across
  end
  down, across = h, w
  if w / h < ratio[1] then
    down = math.floor(w / ratio[1] + 0.5)
  elseif w / h > ratio[2] then
    across = math.floor(h * ratio[2] + 0.5)
  end
  return (h - down) // 2, (w - across) // 2, down, across
end

local function range(v, default, where)
  v = numbers(v or default, where)
  errors.check(#v == 2 and v[1] > 0 and v[1] <= v[2], "ValueError",
    "%s: expected {low, high}, both above 0", where)
  return v
end

--- RandomResizedCrop(size, scale = {0.08, 1}, ratio = {3/4, 4/3},
--- interpolation = "bilinear", antialias = true).
define("RandomResizedCrop", function(self, ...)
  local a = check.arguments("RandomResizedCrop",
    { "size", "scale", "ratio", "interpolation", "antialias" }, nil, ...)
  self.h, self.w = pair(a[1], "RandomResizedCrop: size")
  self.scale = range(a[2], { 0.08, 1.0 }, "RandomResizedCrop: scale")
  self.ratio = range(a[3], { 3 / 4, 4 / 3 }, "RandomResizedCrop: ratio")
  self.interpolation = a[4] or "bilinear"
  errors.check(MODES[self.interpolation], "ValueError",
    "RandomResizedCrop: interpolation: bilinear, bicubic or nearest, got %s",
    check.describe(a[4]))
  self.antialias = a[5] ~= false
end, function(self, x)
  local top, left, h, w = piece(x, self.scale, self.ratio)
  return resize(cut(x, top, left, h, w), self.h, self.w, self.interpolation, self.antialias)
end, shown({ "size", "scale", "ratio", "interpolation", "antialias" }, shown_size))

-- ---- flips and holes -------------------------------------------------------

local function flip(name, dim)
  define(name, function(self, ...)
    self.p = probability(one(name, "p", ...), name)
  end, function(self, x)
    return uniform() < self.p and x:flip({ dim }) or x
  end, shown({ "p" }))
end

--- RandomHorizontalFlip(p = 0.5), RandomVerticalFlip(p = 0.5).
flip("RandomHorizontalFlip", -1)
flip("RandomVerticalFlip", -2)

--- RandomErasing(p = 0.5, scale = {0.02, 0.33}, ratio = {0.3, 3.3}, value = 0,
--- inplace = false): a rectangle with an area and a ratio height / width in the
--- ranges is set to a number, to one of each channel, or to normal numbers
--- ("random"). An image for which ten tries find no rectangle stays as it is.
define("RandomErasing", function(self, ...)
  local a = check.arguments("RandomErasing", { "p", "scale", "ratio", "value", "inplace" }, nil,
    ...)
  self.p = probability(a[1], "RandomErasing")
  self.scale = range(a[2], { 0.02, 0.33 }, "RandomErasing: scale")
  self.ratio = range(a[3], { 0.3, 3.3 }, "RandomErasing: ratio")
  self.value = a[4] == "random" and "random"
    or numbers(type(a[4]) == "table" and a[4] or { a[4] or 0 }, "RandomErasing: value")
  self.inplace = a[5] == true
end, function(self, x)
  if uniform() >= self.p then
    return x
  end
  local h, w = x:size(-2), x:size(-1)
  local across, down = extents(h * w, self.scale, self.ratio, function(across, down)
    return across < w and down < h
  end)
  if not across then
    return x
  end
  local out = self.inplace and x or x:clone()
  local hole = cut(out, draw(0, h - down), draw(0, w - across), down, across)
  if self.value == "random" then
    hole:normal_()
  else
    local value, channels = self.value, x:dim() > 2 and x:size(-3) or 1
    errors.check(#value == 1 or #value == channels, "ValueError",
      "RandomErasing: value: %d numbers for an image of %d channels", #value, channels)
    hole:copy_(core.tensor(value, { dtype = x.dtype }):view({ #value, 1, 1 }))
  end
  return out
end, shown({ "p", "scale", "ratio", "value", "inplace" }, function(self)
  return { value = #self.value == 1 and self.value[1] or self.value }
end))

-- ---- colour and place --------------------------------------------------------

--- torchvision.transforms.functional: what the random ones do, with the numbers
--- given.
M.functional = {}

local kit = { define = define, one = one, image = image, uniform = uniform, in_batches = in_batches,
  most = most, convert = convert, shown = shown }
for _, file in ipairs({ "color", "geometry" }) do
  require("lupine.transforms." .. file)(M.functional, kit)
end

require("lupine.base.namespace").close(M.functional, "lupine.transforms.functional")
return require("lupine.base.namespace").close(M, "lupine.transforms")
