--- PNG images.
local file = require("spec.hostile.file")
local files = require("spec.support.files")
local images = require("lupine.images")
local zip = require("spec.hostile.zip")

local SIGNATURE = "\x89PNG\r\n\x1a\n"

local function chunk(kind, data, length)
  return string.pack(">I4", length or #data) .. kind .. data
    .. string.pack(">I4", zip.crc(kind .. data))
end

local function head(w, h, depth, kind, interlaced)
  return SIGNATURE .. chunk("IHDR", string.pack(">I4I4BBBBB", w, h, depth, kind, 0, 0,
    interlaced or 0))
end

-- Zero bytes in zlib's format (RFC 1950); all of them have one Adler-32.
local function zeros(n)
  return "\x78\xda" .. zip.deflated_zeros(n) .. string.pack(">I2I2", n % 65521, 1)
end

local END = chunk("IEND", "")
local PIXEL = "\x78\x9c\x63\x60\0\0\0\2\0\1" -- two zero bytes
local GRAY = head(1, 1, 8, 0) .. chunk("IDAT", PIXEL) .. END

-- A gray pixel with chunks that tell nothing of it.
local function pixel(before, after)
  return head(1, 1, 8, 0) .. before .. chunk("IDAT", PIXEL) .. (after or "") .. END
end

local function header(w, h, depth, kind)
  return head(w, h, depth, kind) .. chunk("IDAT", "") .. END
end

local function corpus(name)
  return files.read("spec/io/images/" .. name)
end

local TEXT = zeros(8000000)

return {
  read = file(images.read),
  cut = true,
  valid = { GRAY, corpus("palette.png") },
  taken = { pixel(chunk("zTXt", "k\0\0" .. TEXT):rep(10)),
    pixel("", chunk("iTXt", "k\0\1\0\0\0" .. TEXT):rep(10)),
    pixel(chunk("iCCP", "p\0\0" .. TEXT)), pixel(chunk("tEXt", "k\0v"):rep(500)) },
  refused = {
    { "nothing", "", "ValueError", "neither a PNG nor a JPEG" },
    { "a GIF", "GIF89a", "ValueError", "neither a PNG nor a JPEG" },
    { "only the signature", SIGNATURE, "ValueError", "PNG" },
    { "a size not to be believed", header(60000, 60000, 8, 6), "ValueError",
      "cannot come of a file" },
    { "a size beyond 31 bits", header(0xffffffff, 1, 8, 2), "ValueError", "PNG" },
    { "the greatest size", header(0x7fffffff, 0x7fffffff, 8, 2), "ValueError", "PNG" },
    { "no width", header(0, 1, 8, 2), "ValueError", "PNG" },
    { "three bits", header(1, 1, 3, 2), "ValueError", "PNG" },
    { "an unknown kind", header(1, 1, 8, 5), "ValueError", "PNG" },
    { "no palette", header(1, 1, 8, 3), "ValueError", "PNG" },
    { "data before the header", SIGNATURE .. chunk("IDAT", "x"), "ValueError", "PNG" },
    { "a header of 4 GB", SIGNATURE .. "\xff\xff\xff\xffIHDR", "ValueError", "PNG" },
    { "data of 2 GB", head(1, 1, 8, 0) .. chunk("IDAT", "", 0x7fffffff), "ValueError", "PNG" },
    { "a text of 900 MB", head(1, 1, 8, 0) .. chunk("zTXt", "", 900000000), "ValueError", "PNG" },
    { "a profile of 900 MB", head(1, 1, 8, 0) .. chunk("iCCP", "", 900000000), "ValueError",
      "PNG" },
    { "an unknown chunk of 900 MB", head(1, 1, 8, 0) .. chunk("abCd", "", 900000000), "ValueError",
      "PNG" },
    { "an unknown chunk that is needed", pixel(chunk("ABCD", "")), "ValueError", "PNG" },
    { "a palette of 900 MB", head(1, 1, 8, 3) .. chunk("PLTE", "", 900000000), "ValueError",
      "PNG" },
    { "many empty chunks, no image", head(1, 1, 8, 0)
    .. chunk("IDAT", ""):rep(100000), "ValueError",
      "PNG" },
    { "many texts, no image", head(1, 1, 8, 0) .. chunk("tEXt", "k\0v"):rep(100000), "ValueError",
      "PNG" },
    { "many packed texts, no image", head(1, 1, 8, 0) .. chunk("zTXt", "k\0\0" .. TEXT):rep(200),
      "ValueError", "PNG" },
    { "many profiles, no image", head(1, 1, 8, 0) .. chunk("iCCP", "p\0\0" .. TEXT):rep(200),
      "ValueError", "PNG" },
    { "damaged deflate", head(1, 1, 8, 0) .. chunk("IDAT", "\x78\x9c\xff\xff\xff\xff") .. END,
      "ValueError", "PNG" },
    { "too few rows", head(1, 9, 8, 0) .. chunk("IDAT", PIXEL) .. END, "ValueError", "PNG" },
    { "10 MB for one pixel", head(1, 1, 8, 6) .. chunk("IDAT", zeros(10000000)):sub(1, -9),
      "ValueError", "PNG" },
    { "a tall interlaced image of one row", head(1, 65535, 1, 0, 1) .. chunk("IDAT", PIXEL) .. END,
      "ValueError", "PNG" },
  },
}
