-- Images: values as Pillow decodes the same files; hostile ones:
-- spec/hostile.
local files = require("spec.support.files")
local helper = require("spec.helper")
local images = require("lupine.images")
local torch = require("torch")

local FOLDER = "spec/io/images/"
local path

setup(function()
  path = os.tmpname()
end)
teardown(function()
  os.remove(path)
end)

local function write(bytes)
  files.write(path, bytes)
end

-- name, shape, sum, the second row of the last channel, sum of the luma
local WANT = {
  { "gray.png", { 1, 4, 5 }, 290, { 3, 8, 13, 18, 23 }, 290 },
  { "rgb.png", { 3, 4, 5 }, 3270, { 83, 88, 93, 98, 103 }, 950 },
  { "rgba.png", { 4, 3, 2 }, 1572, { 123, 128 }, 231 },
  { "palette.png", { 3, 4, 5 }, 3270, { 83, 88, 93, 98, 103 }, 950 },
  { "bits.png", { 1, 4, 5 }, 3315, { 0, 0, 255, 255, 255 }, 3315 },
  -- 16 bits: k * 5461 of 65535 is k * 21.25 of 255
  { "gray16.png", { 1, 3, 4 }, 1401, { 85, 106, 127, 149 }, 1401 },
  { "color.jpg", { 3, 16, 24 }, 139008, { 84, 89, 94, 99, 104, 109, 114, 119, 124, 129, 134, 139,
    144, 149, 154, 159, 164, 169, 174, 179, 184, 189, 194, 199 }, 43392 },
  { "gray.jpg", { 1, 16, 24 }, 30720, { 3, 7, 13, 18, 22, 28, 33, 37, 43, 47, 53, 58, 63, 68, 73,
    78, 83, 87, 93, 98, 103, 108, 114, 118 }, 30720 },
  { "progressive.jpg", { 3, 16, 24 }, 139008, { 84, 88, 94, 99, 103, 108, 114, 119, 123, 128, 134,
    139, 143, 148, 154, 159, 163, 168, 174, 179, 183, 188, 194, 199 }, 43392 },
}

it("images have the values that they were made of, in each mode", function()
  for _, w in ipairs(WANT) do
    local x = images.read(FOLDER .. w[1])
    assert.equal(torch.uint8, x.dtype)
    assert.same(w[2], { table.unpack(x.shape) })
    assert.equal(w[3], x:sum():item())
    assert.same(w[4], x[-1][1]:tolist())
    local gray = images.read(FOLDER .. w[1], "gray")
    assert.same({ 1, w[2][2], w[2][3] }, { table.unpack(gray.shape) })
    assert.equal(w[5], gray:sum():item())
    local rgb = images.read(FOLDER .. w[1], "rgb")
    assert.equal(3, rgb:size(0))
    if w[2][1] == 1 then
      assert.is_true(torch.equal(rgb[2], x[0]))
    end
  end
end)

it("16 bits are scaled to 8, not cut", function()
  -- 0 128 129 255 256 32767 32768 65406 65407 65535 of 65535, round(v / 257);
  -- the high bytes are 0 0 0 0 1 127 128 255 255 255
  local zip = require("spec.hostile.zip")
  local function chunk(kind, data)
    return string.pack(">I4", #data) .. kind .. data .. string.pack(">I4", zip.crc(kind .. data))
  end
  local row = "\0" .. string.pack(">I2I2I2I2I2I2I2I2I2I2", 0, 128, 129, 255, 256, 32767, 32768,
    65406, 65407, 65535)
  local a, b = 1, 0
  for i = 1, #row do -- Adler-32 (RFC 1950)
    a = (a + row:byte(i)) % 65521
    b = (b + a) % 65521
  end
  local stored = "\x78\x01\x01" .. string.pack("<I2I2", #row, ~#row & 0xffff) .. row
    .. string.pack(">I2I2", b, a)
  write("\x89PNG\r\n\x1a\n" .. chunk("IHDR", string.pack(">I4I4BBBBB", 10, 1, 16, 0, 0, 0, 0))
    .. chunk("IDAT", stored) .. chunk("IEND", ""))
  assert.same({ { { 0, 0, 1, 1, 1, 127, 128, 254, 255, 255 } } }, images.read(path):tolist())
end)

it("a PNG that was written is read again, of 1 to 4 channels", function()
  for channels = 1, 4 do
    local x = (torch.arange(channels * 6) * 37 % 256):to(torch.uint8):reshape({ channels, 2, 3 })
    images.write_png(x, path)
    assert.is_true(torch.equal(x, images.read(path)))
  end
  for _, x in ipairs({ torch.zeros({ 3, 2, 2 }), torch.zeros({ 5, 2, 2 }, { dtype = torch.uint8 }),
    torch.zeros({ 2, 2 }, { dtype = torch.uint8 }),
    torch.zeros({ 1, 0, 2 }, { dtype = torch.uint8 }) }) do
    helper.raises("ValueError", "expected a uint8 tensor of 1 to 4 channels", function()
      images.write_png(x, path)
    end)
  end
end)

describe("an image is refused", function()
  local function refused(bytes, pattern)
    write(bytes)
    helper.raises("ValueError", pattern, function()
      images.read(path)
    end)
  end

  it("when it is cut at any byte", function()
    for _, name in ipairs({ "rgb.png", "gray.jpg", "progressive.jpg" }) do
      local s = files.read(FOLDER .. name)
      for n = 0, #s - 3 do -- a JPEG may end within its end marker
        refused(s:sub(1, n), ".")
      end
    end
  end)

  it("when the coded data of a JPEG are damaged, at the first damage", function()
    local s = files.read(FOLDER .. "gray.jpg")
    local scan = s:find("\xff\xda", 1, true)
    refused(s:sub(1, scan + 13) .. "\xff\xd1" .. s:sub(scan + 16),
      "Corrupt JPEG data: premature end")
    -- bytes that belong to nothing between two scans: the library warns and
    -- would go on, here to a table that it can not read
    s = files.read(FOLDER .. "progressive.jpg")
    local _, first = s:find("\xff\xda.-\xff\xc4")
    local last = #s - s:reverse():find("\xc4\xff", 1, true) + 1 -- the C4
    local broken = s:sub(1, last + 2) .. "\x7f" .. s:sub(last + 4)
    refused(broken, "Bogus DHT index")
    refused(broken:sub(1, first - 2) .. ("x"):rep(40) .. broken:sub(first - 1),
      "Corrupt JPEG data: %d+ extraneous bytes before marker 0xc4")
  end)

  it("when a byte of a PNG is another", function()
    local s = files.read(FOLDER .. "rgb.png")
    for at = 1, #s do
      local other = string.char(s:byte(at) ~ 0x41)
      refused(s:sub(1, at - 1) .. other .. s:sub(at + 1), ".")
    end
  end)

  it("in an unknown mode", function()
    helper.raises("ValueError", "mode: expected a member of ImageReadMode or unchanged", function()
      images.read(FOLDER .. "rgb.png", "cmyk")
    end)
  end)
end)

it("the mode of an image is a member of ImageReadMode or its name", function()
  local Mode = images.ImageReadMode
  for _, name in ipairs({ "rgba.png", "gray.png", "rgb.png", "color.jpg" }) do
    local file = FOLDER .. name
    for _, mode in ipairs(Mode:members()) do
      local x = images.read(file, mode)
      for _, same in ipairs({ mode.name, mode.name:lower() }) do
        assert.is_true(torch.equal(x, images.read(file, same)))
      end
    end
    assert.is_true(torch.equal(images.read(file), images.read_image(file, Mode.UNCHANGED)))
    local own = images.read(file)
    local alpha = own:size(0) == 4 and own[3] or torch.full_like(own[0], 255)
    for mode, n in pairs({ GRAY = 1, RGB = 3 }) do
      local x = images.read(file, mode .. "_ALPHA")
      assert.equal(n + 1, x:size(0))
      assert.is_true(torch.equal(images.read(file, mode), x:narrow(0, 0, n)))
      assert.is_true(torch.equal(alpha, x[n]))
    end
  end
  assert.equal(4, Mode.RGB_ALPHA.value)
  helper.raises("ValueError", "a member of ImageReadMode or unchanged, gray", function()
    images.read(FOLDER .. "gray.png", "blue")
  end)
end)
