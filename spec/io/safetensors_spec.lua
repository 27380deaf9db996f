-- safetensors files: the bytes by string.pack. Hostile ones: spec/hostile.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local safetensors = require("lupine.safetensors")
local torch = require("torch")

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

local function file(header, data)
  return string.pack("<I8", #header) .. header .. (data or "")
end

local function entry(dtype, shape, from, to)
  return ('{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(dtype, shape, from, to)
end

local ok = file('{"b":' .. entry("F32", "2,1", 2, 10) .. ',"a":' .. entry("I16", "", 0, 2)
  .. ',"__metadata__":{"x":"y"}}', string.pack("<i2ff", -5, 1.5, -0.25))

describe("safetensors reads", function()
  it("tensors in the order of the header, wherever they lie, and the metadata", function()
    write(ok)
    local names, tensors, meta = core.read_safetensors(path)
    assert.same({ "b", "a" }, names)
    assert.same({ { 1.5 }, { -0.25 } }, tensors[1]:tolist())
    assert.same(-5, tensors[2]:item())
    assert.equal(torch.int16, tensors[2].dtype)
    assert.same({ x = "y" }, meta)
  end)

  it("headers of any length, though some begin like other files", function()
    local plain = '{"x":' .. entry("U8", "1", 0, 1) .. "}"
    for _, n in ipairs({ 640, 896, 1152, 1408, 19280 }) do -- 0x80 0x02 … 0x05, "PK"
      write(file(plain .. (" "):rep(n - #plain), "\7"))
      assert.same({ 7 }, safetensors.load_file(path).x:tolist())
    end
  end)

  it("each element type", function()
    local cases = {
      { "F64", "<d", -0.1, torch.float64 }, { "F32", "<f", 0.5, torch.float32 },
      { "I64", "<i8", math.mininteger, torch.int64 }, { "I32", "<i4", -7, torch.int32 },
      { "I8", "<b", -128, torch.int8 }, { "U8", "<B", 255, torch.uint8 },
    }
    for _, c in ipairs(cases) do
      local data = string.pack(c[2], c[3])
      write(file('{"x":' .. entry(c[1], "1", 0, #data) .. "}", data))
      local x = safetensors.load_file(path).x
      assert.equal(c[4], x.dtype)
      assert.equal(c[3], x[0]:item())
    end
    -- 0x3555 is 1365/4096 in half; 0x3f80 is 1 in bfloat16; 7 is a true
    write(file('{"h":' .. entry("F16", "1", 0, 2) .. ',"b":' .. entry("BF16", "1", 2, 4)
      .. ',"t":' .. entry("BOOL", "2", 4, 6) .. "}", "\x55\x35\x80\x3f\7\0"))
    local x = safetensors.load_file(path)
    assert.equal(1365 / 4096, x.h[0]:item())
    assert.equal(1.0, x.b[0]:item())
    assert.same({ true, false }, x.t:tolist())
    assert.equal("\1\0", x.t:tobytes())
  end)

  it("files without tensors, and tensors without elements", function()
    write(file("{}"))
    assert.is_nil(next((safetensors.load_file(path))))
    write(file('{"e":' .. entry("F32", "0,3", 0, 0) .. ',"x":' .. entry("U8", "1", 0, 1) .. "}",
      "\5"))
    local x = safetensors.load_file(path)
    assert.same({ 0, 3 }, { table.unpack(x.e.shape) })
    assert.equal(5, x.x[0]:item())
  end)
end)

describe("safetensors writes", function()
  it("what it reads again, larger elements first and aligned, padded with spaces", function()
    local tensors = {
      a = torch.tensor({ 1, 2, 3 }, { dtype = torch.uint8 }),
      b = torch.tensor({ { 0.5, -1.0 }, { 2.0, 3.0 } }):t(),
      c = torch.tensor(2.5, { dtype = torch.float64 }),
      d = torch.tensor({ true, false }),
    }
    safetensors.save_file(tensors, path, { note = "ü" })
    local s = files.read(path)
    local n = string.unpack("<I8", s)
    assert.equal(0, n % 8)
    assert.equal(8 + n + 8 + 16 + 3 + 2, #s)
    assert.equal(2.5, (string.unpack("<d", s, 9 + n)))
    local first, second = string.unpack("<ff", s, 17 + n)
    assert.same({ 0.5, 2.0 }, { first, second })
    local back = safetensors.load_file(path)
    for name, t in pairs(tensors) do
      assert.equal(t.dtype, back[name].dtype)
      assert.is_true(torch.equal(t, back[name]))
    end
    assert.same({ note = "ü" }, safetensors.metadata(path))
  end)

  it("what load_state_dict takes as its last argument, metadata or not", function()
    local net, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    for _, meta in ipairs({ {}, { format = "pt" } }) do
      safetensors.save_file(net:state_dict(), path, meta)
      assert.equal(1, select("#", safetensors.load_file(path)))
      other:load_state_dict(safetensors.load_file(path))
      assert.is_true(torch.equal(net.weight, other.weight))
    end
  end)

  it("the whole file or nothing", function()
    write("before")
    helper.raises("ValueError", "is not UTF%-8", function()
      safetensors.save_file({ ["\xff"] = torch.ones({ 2 }) }, path)
    end)
    helper.raises("ValueError", "kept for metadata", function()
      safetensors.save_file({ __metadata__ = torch.ones({ 2 }) }, path)
    end)
    assert.equal("before", files.read(path))
    helper.raises("OSError", "No such file", function()
      safetensors.save_file({ a = torch.ones({ 2 }) }, path .. ".none/x")
    end)
    helper.raises("OSError", "not a regular file", function()
      safetensors.save_file({ a = torch.ones({ 2 }) }, "/dev")
    end)
    local leftovers = io.popen(("ls %s.*tmp 2>/dev/null"):format(path)):read("a")
    assert.equal("", leftovers)
  end)
end)
