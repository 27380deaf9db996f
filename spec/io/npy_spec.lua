-- NumPy's files: the bytes by string.pack. Hostile ones: spec/hostile.
local files = require("spec.support.files")
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
  files.write(path, bytes)
end

local function npy(descr, shape, data, more)
  local header = ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n"):format(descr,
    more or "False", shape)
  return "\x93NUMPY\1\0" .. string.pack("<I2", #header) .. header .. (data or "")
end


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

  it("any byte but zero as true", function()
    write(npy("'|b1'", "(4,)", "\0\1\2\255"))
    local x = numpy.load(path)
    assert.equal(3, x:sum():item())
    assert.is_true(x[3]:equal(torch.tensor(true)))
    assert.equal("\0\1\1\1", x:tobytes())
    write(npy("'|b1'", "(2, 2)", "\0\4\2\255", "True"))
    assert.equal("\0\1\1\1", numpy.load(path):t():contiguous():tobytes())
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
    local s = files.read(path .. ".npy")
    local n = string.unpack("<I2", s, 9)
    assert.equal("\x93NUMPY\1\0", s:sub(1, 8))
    assert.equal(0, (10 + n) % 64)
    assert.equal("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2), }",
      s:sub(11, 10 + n):gsub(" *\n$", ""), nil)
    assert.same({ 1, 3, 2, 4 }, { table.unpack({ string.unpack("<i8i8i8i8", s, 11 + n) }, 1, 4) })
    numpy.save(path .. ".npy", torch.tensor({ true }))
    assert.truthy(files.read(path .. ".npy"):find("'|b1'.*%(1,%)"))
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

  it("Tensors that stand as arguments as arr_0, arr_1, …, beside those by name", function()
    for _, save in ipairs({ numpy.savez, numpy.savez_compressed }) do
      save(path, torch.tensor({ 1, 2 }), torch.tensor(3), { w = torch.tensor({ true }) })
      local back = numpy.load(path .. ".npz")
      assert.same({ "arr_0", "arr_1", "w" }, back.files)
      assert.same({ { 1, 2 }, 3, { true } }, { back.arr_0:tolist(), back.arr_1:item(),
        back.w:tolist() })
    end
    helper.raises("ValueError", "un%-named variables and keyword arr_0", function()
      numpy.savez(path, torch.ones({ 1 }), { arr_0 = torch.ones({ 1 }) })
    end)
    helper.raises("TypeError", "argument 3", function()
      numpy.savez(path, torch.ones({ 1 }), 5)
    end)
    helper.raises("TypeError", "not both", function()
      numpy.savez(path, torch.ones({ 1 }), { torch.ones({ 1 }) })
    end)
  end)

  it("equal archives for equal arrays, and the whole file or nothing", function()
    numpy.savez(path, { x = torch.ones({ 3 }) })
    local first = files.read(path .. ".npz")
    numpy.savez(path, { x = torch.ones({ 3 }) })
    assert.equal(first, files.read(path .. ".npz"))
    helper.raises("TypeError", "NumPy has no bfloat16", function()
      numpy.savez(path, { x = torch.ones({ 3 }, { dtype = torch.bfloat16 }) })
    end)
    helper.raises("ValueError", "no arrays", function()
      numpy.savez(path, {})
    end)
    assert.equal(first, files.read(path .. ".npz"))
    assert.equal("", io.popen(("ls %s*tmp* 2>/dev/null"):format(path)):read("a"))
  end)
end)

describe("an archive with a bad array", function()
  local numbers = { a = torch.arange(3), b = torch.arange(100, 140), c = torch.ones({ 2 }) }

  -- The last byte of an array of the archive is another one.
  local function damage(name)
    numpy.savez(path, numbers)
    local s = files.read(path .. ".npz")
    local data = { a = string.pack("<i8i8i8", 0, 1, 2), b = string.pack("<i8", 139) }
    local from, to = s:find(data[name], 1, true)
    assert.truthy(from)
    write(s:sub(1, to - 1) .. "\77" .. s:sub(to + 1))
    return numpy.load(path)
  end

  it("gives the others, and the bad one's error when it is asked for", function()
    local back = damage("b")
    assert.same({ "a", "b", "c" }, back.files)
    assert.same({ { 0, 1, 2 }, { 1, 1 } }, { back.a:tolist(), back.c:tolist() })
    helper.raises("ValueError", "b.npy: CRC error", function()
      return back.b
    end)
    assert.is_nil(back.d)
    assert.truthy(tostring(back):find("'b', nil", 1, true))
  end)

  it("stops a loop over all of it there", function()
    local back, seen = damage("b"), {}
    helper.raises("ValueError", "b.npy: CRC error", function()
      for name in pairs(back) do
        seen[#seen + 1] = name
      end
    end)
    assert.same({ "a" }, seen)
    helper.raises("ValueError", "b.npy: CRC error", function()
      torch.save(back, path)
    end)
    helper.raises("ValueError", "b.npy: CRC error", function()
      numpy.savez(path, back)
    end)
    back.b = torch.zeros({ 1 })
    numpy.savez(path, back)
    assert.same({ 0 }, numpy.load(path .. ".npz").b:tolist())
  end)

  it("whose type NumPy alone knows leaves the others readable", function()
    local zip = require("spec.hostile.zip")
    local function entry(name, descr, data)
      local header = ("{'descr': '%s', 'fortran_order': False, 'shape': (2,), }\n"):format(descr)
      return { name = name, data = "\x93NUMPY\1\0" .. string.pack("<I2", #header) .. header
        .. data }
    end
    write(zip.archive({ entry("z.npy", "<c8", ("x"):rep(16)), entry("y.npy", "|u1", "ab") }))
    local back = numpy.load(path)
    assert.same({ 97, 98 }, back.y:tolist())
    helper.raises("ValueError", "c8", function()
      return back.z
    end)
  end)
end)
