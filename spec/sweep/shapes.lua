--- Convolutions to sweep over, spelled
---     conv2d 2x8x16x16 16 k3 s1 p1 d1 g1
---     KIND INPUT CHANNELS_OUT kernel stride padding dilation groups
--- with one number for all spatial dimensions; what has its default (k3 s1 p0 d1
--- g1) may be left out. KIND: conv1d, conv2d, conv3d, conv_transpose1d, ….
local M = {}

---@class Shape
---@field text string
---@field kind string of torch.nn.functional
---@field spatial integer dimensions
---@field transposed boolean
---@field size integer[] of the input
---@field cin integer channels
---@field cout integer
---@field kernel integer
---@field weight integer[] its size
---@field options table of the function

-- The letters, their names and defaults.
local LETTERS = { k = { "kernel", 3 }, s = { "stride", 1 }, p = { "padding", 0 },
  d = { "dilation", 1 }, g = { "groups", 1 } }

local function numbers_of(words)
  local o = {}
  for _, known in pairs(LETTERS) do
    o[known[1]] = known[2]
  end
  for word in words:gmatch("%S+") do
    local letter, n = word:match("^(%l)(%d+)$")
    if not LETTERS[letter] then
      error(("shape: '%s' is none of kN, sN, pN, dN, gN"):format(word), 0)
    end
    o[LETTERS[letter][1]] = math.tointeger(n)
  end
  return o
end

---@param text string
---@return Shape
function M.parse(text)
  local kind, size, cout, words = text:match("^(conv[%a_]*%dd) ([%dx]+) (%d+)(.*)$")
  if not kind then
    error(("shape: '%s' is not 'KIND INPUT CHANNELS_OUT …', as 'conv2d 2x8x16x16 16 k3 p1'")
      :format(text), 0)
  end
  local o = numbers_of(words)
  local shape = { text = text, kind = kind, size = {}, cout = math.tointeger(cout),
    kernel = o.kernel, transposed = kind:find("transpose") ~= nil,
    spatial = math.tointeger(kind:match("%d")) }
  for n in size:gmatch("%d+") do
    shape.size[#shape.size + 1] = math.tointeger(n)
  end
  shape.cin = shape.size[2]
  shape.weight = shape.transposed and { shape.cin, shape.cout // o.groups }
    or { shape.cout, shape.cin // o.groups }
  for _ = 1, shape.spatial do
    shape.weight[#shape.weight + 1] = o.kernel
  end
  o.kernel = nil
  shape.options = o
  return shape
end

-- Channels around the sizes of vectors, groups of few channels, windows of every
-- kind: where a library has code of its own for some and not for others.
M.chosen = {
  "conv2d 8x8x16x16 16 p1", "conv2d 8x4x16x16 16 p1", "conv2d 8x8x16x16 64 p1",
  "conv2d 8x12x16x16 16 p1", "conv2d 8x9x16x16 32 p1", "conv2d 8x3x16x16 16 p1",
  "conv2d 8x8x16x16 15 p1", "conv2d 8x8x16x16 17 p1", "conv2d 8x16x16x16 16 p1",
  "conv2d 8x24x16x16 16 p1", "conv2d 8x16x16x16 8 p1", "conv2d 8x16x16x16 10 p1",
  "conv2d 8x8x16x16 16 k1", "conv2d 8x12x16x16 48 k1", "conv2d 8x64x8x8 64 k1",
  "conv2d 8x8x16x16 16 k5 p2", "conv2d 8x8x17x17 16 k7 s2 p3", "conv2d 4x3x32x32 64 k7 s2 p3",
  "conv2d 8x8x16x16 16 s2 p1", "conv2d 8x8x16x16 16 d2 p2", "conv2d 8x16x16x16 32 d3 p3",
  "conv2d 2x64x28x28 64 p1 g2", "conv2d 2x64x28x28 64 p1 g4", "conv2d 2x64x28x28 64 p1 g8",
  "conv2d 2x64x28x28 64 p1 g16", "conv2d 2x64x28x28 64 p1 g32", "conv2d 2x64x28x28 64 p1 g64",
  "conv2d 2x128x14x14 128 p1 g32", "conv2d 2x128x14x14 128 s2 p1 g32",
  "conv2d 2x60x14x14 60 p1 g20", "conv2d 2x48x14x14 96 p1 g12", "conv2d 2x96x14x14 48 p1 g3",
  "conv2d 2x96x14x14 96 k7 p3 g96", "conv2d 2x192x7x7 192 k7 p3 g192",
  "conv2d 2x96x14x14 96 k5 p2 g96", "conv2d 2x96x14x14 96 k5 s2 p2 g96",
  "conv2d 2x96x14x14 96 p1 g96", "conv2d 2x96x14x14 96 s2 p1 g96",
  "conv2d 2x67x14x14 67 p1 g67", "conv2d 2x32x14x14 64 p1 g32", "conv2d 2x16x14x14 16 d2 p2 g16",
  "conv1d 4x8x100 16 p1", "conv1d 4x16x100 32 k7 p3", "conv1d 4x64x100 64 k5 p2 g64",
  "conv1d 4x64x100 64 k3 s2 g16", "conv1d 4x1x400 16 k7 s4", "conv1d 2x3x101 67 k5 d2",
  "conv3d 2x8x6x8x8 16 p1", "conv3d 1x3x8x12x12 16 k3 s2 p1", "conv3d 1x16x6x8x8 16 p1 g4",
  "conv3d 1x16x4x8x8 16 p1 g16", "conv3d 1x16x4x8x8 32 k1",
  "conv_transpose2d 4x16x8x8 8 k4 s2 p1", "conv_transpose2d 4x8x8x8 16 k4 s2 p1",
  "conv_transpose2d 4x32x8x8 32 k2 s2", "conv_transpose2d 4x32x8x8 32 k4 s2 p1 g8",
  "conv_transpose2d 4x32x8x8 32 k3 p1 g32", "conv_transpose2d 2x64x7x7 67 k3 p1",
  "conv_transpose1d 4x16x50 8 k4 s2 p1", "conv_transpose3d 1x16x4x6x6 8 k2 s2",
}

local function window(random, o, least)
  o.k = random(7)
  o.s = random(3) == 1 and 2 or random(8) == 1 and 3 or 1
  o.d = random(5) == 1 and 2 or 1
  o.p = random(0, (o.k * o.d) // 2)
  return math.max(least, (o.k - 1) * o.d + 1)
end

-- A third with groups, a third of them by channel.
local function channels(random, o)
  if random(3) > 1 then
    o.g = 1
    return random(67), random(67)
  end
  local each = random(3) == 1 and 1 or random(8)
  o.g = random(1, 67 // each)
  return o.g * each, random(3) == 1 and 2 * o.g or o.g * each
end

local KINDS = { "conv2d", "conv2d", "conv2d", "conv2d", "conv2d", "conv1d", "conv3d",
  "conv_transpose2d" }
local EDGE = { 60, 18, 6 }

--- A shape that `random` (as math.random) draws.
---@param random fun(a: integer, b?: integer): integer
---@return string
function M.draw(random)
  local kind, o = KINDS[random(#KINDS)], {}
  local spatial = math.tointeger(kind:match("%d"))
  local least = window(random, o, 4)
  if kind:find("transpose") then
    o.p = math.min(o.p, o.k - 1)
  end
  local cin, cout = channels(random, o)
  local size = { random(4), cin }
  for _ = 1, spatial do
    size[#size + 1] = least + random(EDGE[spatial])
  end
  return ("%s %s %d k%d s%d p%d d%d g%d"):format(kind, table.concat(size, "x"), cout, o.k, o.s,
    o.p, o.d, o.g)
end

return M
