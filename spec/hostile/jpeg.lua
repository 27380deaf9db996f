--- JPEG images.
local file = require("spec.hostile.file")
local files = require("spec.support.files")
local images = require("lupine.images")

local function corpus(name)
  return files.read("spec/io/images/" .. name)
end

local function up_to_end(s) -- a JPEG may end within its end marker
  return s:sub(1, -3)
end

-- The size in the header of a frame (its marker is FF kind).
local function sized(s, kind, w, h)
  local at = assert(s:find("\xff" .. kind, 1, true))
  return s:sub(1, at + 4) .. string.pack(">I2I2", h, w) .. s:sub(at + 9)
end

local BASE, PROGRESSIVE = corpus("gray.jpg"), corpus("progressive.jpg")
local SEGMENT = "\xff\xe1" .. string.pack(">I2", 65535) .. ("x"):rep(65533)
local LAST -- scan of PROGRESSIVE, with its tables
do
  local at, before = 1, 1
  while at do
    at, before = PROGRESSIVE:find("\xff\xda", at + 1, true), at
  end
  LAST = PROGRESSIVE:sub(before, -3)
end

local function scans(n, w, h)
  local s = up_to_end(PROGRESSIVE) .. LAST:rep(n) .. "\xff\xd9"
  return w and sized(s, "\xc2", w, h) or s
end

return {
  read = file(images.read),
  valid = { up_to_end(BASE) .. "\xff\xd9", PROGRESSIVE },
  refused = {
    { "three bytes", "\xff\xd8\xff", "ValueError", "JPEG" },
    { "no image", "\xff\xd8\xff\xd9", "ValueError", "JPEG" },
    { "a short segment", "\xff\xd8\xff\xe0\0\0", "ValueError", "JPEG" },
    { "a size not to be believed", sized(BASE, "\xc0", 60000, 60000), "ValueError",
      "cannot come of a file" },
    { "no width", sized(BASE, "\xc0", 0, 5), "ValueError", "JPEG" },
    { "no height", sized(BASE, "\xc0", 5, 0), "ValueError", "JPEG" },
    { "more rows than data", sized(BASE, "\xc0", 24, 600), "ValueError", "JPEG" },
    { "two frames", BASE:sub(1, BASE:find("\xff\xda", 1, true) - 1) .. BASE:sub(3), "ValueError",
      "JPEG" },
    { "arithmetic codes of nothing", (BASE:gsub("\xff\xc0", "\xff\xc9")), "ValueError", "JPEG" },
    { "a lossless frame", (BASE:gsub("\xff\xc0", "\xff\xc3")), "ValueError", "JPEG" },
    { "fill bytes", "\xff\xd8" .. ("\xff"):rep(1000000), "ValueError", "JPEG" },
    { "zero bytes", "\xff\xd8\xff" .. ("\0"):rep(1000000), "ValueError", "JPEG" },
    { "many segments, no image", "\xff\xd8" .. SEGMENT:rep(50), "ValueError", "JPEG" },
    { "many short segments", "\xff\xd8" .. ("\xff\xe1\0\2"):rep(250000), "ValueError", "JPEG" },
    { "many tables", "\xff\xd8" .. ("\xff\xdd\0\4\0\1"):rep(200000), "ValueError", "JPEG" },
    { "many restarts", up_to_end(BASE) .. ("\xff\xd0"):rep(500000), "ValueError", "JPEG" },
    { "5000 scans", function() return scans(5000) end, "ValueError", "JPEG" },
    { "400 scans of many pixels", function() return scans(400, 4000, 4000) end, "ValueError",
      "cannot come of a file" },
    { "starts of scans", up_to_end(PROGRESSIVE) .. ("\xff\xda"):rep(500000), "ValueError", "." },
  },
}
