-- Reader of IDX files: values against string.pack, hostile files by a table.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local torch = require("torch")

local path

local function write(bytes)
  files.write(path, bytes)
end

local function gzip(bytes)
  write(bytes)
  assert(os.execute(("gzip -nf <%s >%s.gz"):format(path, path)))
  local out = files.read(path .. ".gz")
  os.remove(path .. ".gz")
  return out
end

local function read(bytes)
  write(bytes)
  return core.read_idx(path)
end

local function idx(code, sizes, data)
  local parts = { string.pack("BBBB", 0, 0, code, #sizes) }
  for _, size in ipairs(sizes) do
    parts[#parts + 1] = string.pack(">I4", size)
  end
  return table.concat(parts) .. (data or "")
end

local function replace(s, at, with)
  at = at < 0 and #s + at + 1 or at
  return s:sub(1, at - 1) .. with .. s:sub(at + #with)
end

local ok = idx(8, { 2, 3 }, "\0\1\2\3\4\255")

setup(function()
  path = os.tmpname()
end)
teardown(function()
  os.remove(path)
end)

describe("read_idx gives the numbers of", function()
  it("plain files of each type", function()
    local cases = {
      { 0x08, ">BB", torch.uint8, { 0, 255 } },
      { 0x09, ">bb", torch.int8, { -128, 127 } },
      { 0x0B, ">i2i2", torch.int16, { -2, 258 } },
      { 0x0C, ">i4i4", torch.int32, { -3, 66051 } },
      { 0x0D, ">ff", torch.float32, { 1.5, -0.25 } },
      { 0x0E, ">dd", torch.float64, { 0.1, -1e300 } },
    }
    for _, c in ipairs(cases) do
      local x = read(idx(c[1], { 2 }, string.pack(c[2], table.unpack(c[4]))))
      assert.equal(c[3], x.dtype)
      assert.same(c[4], x:tolist())
    end
  end)

  it("compressed files", function()
    local x = read(gzip(ok))
    assert.same({ { 0, 1, 2 }, { 3, 4, 255 } }, x:tolist())
    assert.equal(torch.uint8, x.dtype)
  end)

  it("files longer than one buffer", function()
    local bytes = {}
    for i = 1, 300000 do
      bytes[i] = string.char(i * 7919 % 251)
    end
    local x = read(gzip(idx(8, { 3, 100000 }, table.concat(bytes))))
    assert.equal(table.concat(bytes), x:tobytes())
  end)

  it("an array without elements", function()
    assert.same({ 0, 5 }, { table.unpack(read(idx(8, { 0, 5 })).shape) })
  end)
end)

describe("read_idx refuses", function()
  local function refused(bytes, pattern)
    write(bytes)
    helper.raises("ValueError", pattern, function()
      core.read_idx(path)
    end)
  end

  it("a file cut at any byte, plain or compressed", function()
    for _, bytes in ipairs({ ok, gzip(ok) }) do
      for n = 0, #bytes - 1 do
        refused(bytes:sub(1, n), "truncated")
      end
    end
  end)

  it("each hostile file of a table, without making the array", function()
    local huge = 0xffffffff
    local twelve = {}
    for i = 1, 12 do
      twelve[i] = huge
    end
    local zeros = idx(8, { 4 }, ("\0"):rep(1 << 20))
    local cases = {
      { "\137PNG\r\n\26\n", "wrong magic number 89 50 4e 47" },
      { idx(7, { 1 }, "a"), "wrong magic number" },
      { idx(0x0A, { 1 }, "a"), "wrong magic number" },
      { replace(ok, 1, "\1"), "wrong magic number" },
      { idx(8, {}), "0 dimensions" },
      { replace(ok, 4, "\255"), "255 dimensions" },
      { idx(0x0E, twelve), "beyond what any file can hold" },
      { idx(8, { 0, huge, huge, huge }), "beyond what any file can hold" },
      { idx(8, { 0x80000000 }, "x"), "truncated: uint8 of sizes %[2147483648%]" },
      { idx(0x0E, { 0x20000000, 8 }, "x"), "truncated" },
      { ok .. "!", "extra bytes" },
      { gzip(ok .. "!"), "extra bytes" },
      { gzip(ok) .. "!", "extra bytes" },
      { gzip(ok) .. gzip(ok):sub(-4), "extra bytes after the gzip data" },
      { replace(gzip(ok), -6, "\0"), "gzip data is damaged: incorrect data check" },
      { replace(gzip(ok), 3, "\7"), "gzip data is damaged" },
      { replace(gzip(ok), 11, "\7"), "gzip data is damaged" },
      -- the trailer's length agrees with the sizes, the content does not
      { replace(gzip(zeros), -4, string.pack("<I4", 12)), "extra bytes after the elements" },
      { replace(gzip(idx(8, { huge - 7 })), -4, string.pack("<I4", 0)), "damaged" },
      { replace(gzip(idx(8, { 20000 })), -4, string.pack("<I4", 20008)), "damaged" },
    }
    local before = torch.memory().peak
    for i, c in ipairs(cases) do
      local done, e = pcall(refused, c[1], c[2])
      assert(done, ("case %d: %s"):format(i, tostring(e)))
    end
    assert.is_true(torch.memory().peak <= before + (1 << 20))
  end)

  it("what is no file", function()
    helper.raises("OSError", "No such file", function()
      core.read_idx(path .. ".none")
    end)
    helper.raises("OSError", "not a regular file", function()
      core.read_idx("/")
    end)
    helper.raises("TypeError", "path: expected str", function()
      core.read_idx({})
    end)
  end)
end)
