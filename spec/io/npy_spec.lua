-- NumPy's files: the bytes by string.pack, hostile files by a table.
local helper = require("spec.helper")
local numpy = require("lupine.numpy")
local torch = require("torch")

local path

setup(function()
  path = os.tmpname()
end)
teardown(function()
  os.remove(path)
  os.remove(path .. ".npy")
  os.remove(path .. ".npz")
end)

local function write(bytes)
  local f = assert(io.open(path, "wb"))
  f:write(bytes)
  f:close()
end

local function bytes_of(name)
  local f = assert(io.open(name, "rb"))
  local s = f:read("a")
  f:close()
  return s
end

local function npy(descr, shape, data, more)
  local header = ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n"):format(descr,
    more or "False", shape)
  return "\x93NUMPY\1\0" .. string.pack("<I2", #header) .. header .. (data or "")
end

local ok = npy("'<f4'", "(2, 1)", string.pack("<ff", 1.5, -2.0))

describe("numpy.load reads", function()
  it("each element type in both orders of bytes", function()
    local cases = {
      { "<f8", "<d", torch.float64, 0.1 }, { ">f8", ">d", torch.float64, 0.1 },
      { "<f4", "<f", torch.float32, 0.5 }, { ">f4", ">f", torch.float32, 0.5 },
      { "<i8", "<i8", torch.int64, math.mininteger }, { ">i8", ">i8", torch.int64, 258 },
      { "<i4", "<i4", torch.int32, -3 }, { ">i4", ">i4", torch.int32, 66051 },
      { "<i2", "<i2", torch.int16, -3 }, { ">i2", ">i2", torch.int16, 258 },
      { "|i1", "b", torch.int8, -128 }, { "|u1", "B", torch.uint8, 255 },
      { "<f2", "<I2", torch.float16, 1365 / 4096, 0x3555 },
      { "|b1", "B", torch.bool, true, 9 },
    }
    for _, c in ipairs(cases) do
      write(npy("'" .. c[1] .. "'", "(1,)", string.pack(c[2], c[5] or c[4])))
      local x = numpy.load(path)
      assert.equal(c[3], x.dtype)
      assert.equal(c[4], x[0]:item())
    end
  end)

  it("rows, columns first, no dimensions, no elements, versions 2 and 3", function()
    local six = string.pack("<i2i2i2i2i2i2", 1, 2, 3, 4, 5, 6)
    write(npy("'<i2'", "(2, 3)", six))
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, numpy.load(path):tolist())
    write(npy("'<i2'", "(2, 3)", six, "True"))
    assert.same({ { 1, 3, 5 }, { 2, 4, 6 } }, numpy.load(path):tolist())
    write(npy("'<i2'", "()", "\5\0"))
    assert.equal(5, numpy.load(path):item())
    write(npy("'<i2'", "(0, 4)"))
    assert.same({ 0, 4 }, { table.unpack(numpy.load(path).shape) })
    for version = 2, 3 do
      local header = '{"shape":(2,),"descr":"<i2","fortran_order":False}'
      write("\x93NUMPY" .. string.char(version) .. "\0" .. string.pack("<I4", #header) .. header
        .. six:sub(1, 4))
      assert.same({ 1, 2 }, numpy.load(path):tolist())
    end
  end)
end)

describe("numpy.save writes", function()
  it("a header of 64 bytes' multiple and the elements in rows", function()
    numpy.save(path, torch.tensor({ { 1, 2 }, { 3, 4 } }):t())
    local s = bytes_of(path .. ".npy")
    local n = string.unpack("<I2", s, 9)
    assert.equal("\x93NUMPY\1\0", s:sub(1, 8))
    assert.equal(0, (10 + n) % 64)
    assert.equal("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2), }",
      s:sub(11, 10 + n):gsub(" *\n$", ""), nil)
    assert.same({ 1, 3, 2, 4 }, { table.unpack({ string.unpack("<i8i8i8i8", s, 11 + n) }, 1, 4) })
    numpy.save(path .. ".npy", torch.tensor({ true }))
    assert.truthy(bytes_of(path .. ".npy"):find("'|b1'.*%(1,%)"))
  end)

  it("what load gives back, also in archives, compressed or not", function()
    local tensors = { w = torch.arange(6):reshape({ 2, 3 }):float():t(), b = torch.zeros({ 0, 2 }),
      h = torch.tensor({ 0.1, 65504.0 }):half() }
    for _, save in ipairs({ numpy.savez, numpy.savez_compressed }) do
      save(path, tensors)
      local back = numpy.load(path .. ".npz")
      for name, t in pairs(tensors) do
        assert.equal(t.dtype, back[name].dtype)
        assert.is_true(torch.equal(t, back[name]))
      end
    end
    numpy.savez(path, { torch.ones({ 2 }), x = torch.zeros({ 1 }) })
    local names = {}
    for name in pairs(numpy.load(path .. ".npz")) do
      names[#names + 1] = name
    end
    assert.same({ "arr_0", "x" }, names)
  end)

  it("equal archives for equal arrays, and the whole file or nothing", function()
    numpy.savez(path, { x = torch.ones({ 3 }) })
    local first = bytes_of(path .. ".npz")
    numpy.savez(path, { x = torch.ones({ 3 }) })
    assert.equal(first, bytes_of(path .. ".npz"))
    helper.raises("TypeError", "NumPy has no bfloat16", function()
      numpy.savez(path, { x = torch.ones({ 3 }, { dtype = torch.bfloat16 }) })
    end)
    helper.raises("ValueError", "no arrays", function()
      numpy.savez(path, {})
    end)
    assert.equal(first, bytes_of(path .. ".npz"))
    assert.equal("", io.popen(("ls %s*tmp* 2>/dev/null"):format(path)):read("a"))
  end)
end)

describe("numpy.load refuses", function()
  local function refused(bytes, pattern)
    write(bytes)
    helper.raises("ValueError", pattern, function()
      numpy.load(path)
    end)
  end

  it("an array cut at any byte, and an archive", function()
    for n = 0, #ok - 1 do
      refused(ok:sub(1, n), "truncated")
    end
    numpy.savez_compressed(path, { x = torch.arange(100) })
    local archive = bytes_of(path .. ".npz")
    for n = 2, #archive - 1 do
      refused(archive:sub(1, n), ".")
    end
  end)

  it("each hostile file of a table, without making the array", function()
    local huge = "9223372036854775807"
    local function header(text)
      return "\x93NUMPY\1\0" .. string.pack("<I2", #text) .. text
    end
    local cases = {
      { "\x93NUMPX\1\0" .. ("x"):rep(80), "no npy file" },
      { "\x93NUMPY\4\0" .. ("x"):rep(80), "npy version 4" },
      { "\x93NUMPY\2\0\255\255\255\255" .. ("x"):rep(80), "header of 4294967295 bytes" },
      { "\x93NUMPY\1\0" .. string.pack("<I2", 10001) .. (" "):rep(10001), "at most 10000" },
      { header(""), "expected '{'" },
      { header("{}"), "expected descr, fortran_order and shape" },
      { header("{'descr': '<f4'"), "expected ',' or '}'" },
      { header("{'descr': '<f4', 'descr': '<f4'}"), "once" },
      { header("{'other': 1}"), "once" },
      { header("{'descr': __import__('os')}"), "a short string" },
      { header("{'descr': '" .. ("x"):rep(100) .. "'}"), "a short string" },
      { header("{'descr': '<\\x66'}"), "a short string" },
      { header("{'descr': '<f4\0'}"), "zero byte" },
      { npy("'<f4'", "(1,)", "abcd", "1"), "True or False" },
      { npy("'<f4'", "(-1,)", "abcd"), "expected a size" },
      { npy("'<f4'", "(1 1)", "abcd"), "expected ',' or '%)'" },
      { npy("'<f4'", "(1,,)", "abcd"), "expected a size" },
      { npy("'<f4'", "1", "abcd"), "expected '%('" },
      { npy("'<f4'", "(" .. huge .. "0,)", "abcd"), "below 2" },
      { npy("'<f4'", "(" .. huge .. ",)", "abcd"), "beyond" },
      { npy("'<f4'", "(0, " .. huge .. ", 4)", "abcd"), "beyond" },
      { npy("'<f4'", "(1,1,1,1,1,1,1,1,1,1,1,1,1)", "abcd"), "at most 12" },
      { npy("'<f4'", "(2,)", "abcd"), "truncated" },
      { npy("'<f4'", "(1000000000,)", "abcd"), "truncated" },
      { ok .. "!", "extra bytes" },
      { npy("'<c8'", "(1,)", "abcdefgh"), "type is '<c8'" },
      { npy("'|O'", "(1,)", "abcdefgh"), "type is '|O'" },
      { npy("'<U4'", "(1,)", "abcdefgh"), "type is '<U4'" },
      { npy("'<u8'", "(1,)", "abcdefgh"), "type is '<u8'" },
      { npy("'<f99999999999999999999'", "(1,)", "abcd"), "type is" },
      { npy("''", "(1,)", "abcd"), "type is ''" },
      { npy("[('a', '<f4')]", "(1,)", "abcd"), "records" },
      { "PK\3\4" .. ("x"):rep(100), "." },
      { "PK\5\6" .. ("\255"):rep(18), "." },
    }
    local before = torch.memory().peak
    for i, c in ipairs(cases) do
      local done, e = pcall(refused, c[1], c[2])
      assert(done, ("case %d: %s"):format(i, tostring(e)))
    end
    assert.is_true(torch.memory().peak <= before + (1 << 16))
  end)

  it("an archive whose entry tells another length, or whose sum is wrong", function()
    numpy.savez_compressed(path, { x = torch.zeros({ 5000 }) })
    local s = bytes_of(path .. ".npz")
    local size = 128 + 5000 * 4
    local directory = s:find("PK\1\2", 1, true)
    assert.equal(size, (string.unpack("<I4", s, directory + 24)))
    local lied = s:sub(1, directory + 23) .. string.pack("<I4", 0xfffffff0)
      .. s:sub(directory + 28)
    refused(lied, ".")
    numpy.savez(path, { x = torch.zeros({ 5000 }) })
    s = bytes_of(path .. ".npz")
    refused(s:sub(1, 9000) .. "\1" .. s:sub(9002), "CRC")
  end)
end)
