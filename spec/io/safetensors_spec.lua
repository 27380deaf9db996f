-- safetensors files: the bytes by string.pack, hostile files by a table.
local core = require("lupine.core")
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
  local f = assert(io.open(path, "wb"))
  f:write(bytes)
  f:close()
end

local function bytes_of()
  local f = assert(io.open(path, "rb"))
  local s = f:read("a")
  f:close()
  return s
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
    local s = bytes_of()
    local n = string.unpack("<I8", s)
    assert.equal(0, n % 8)
    assert.equal(8 + n + 8 + 16 + 3 + 2, #s)
    assert.equal(2.5, (string.unpack("<d", s, 9 + n)))
    local first, second = string.unpack("<ff", s, 17 + n)
    assert.same({ 0.5, 2.0 }, { first, second })
    local back, meta = safetensors.load_file(path)
    for name, t in pairs(tensors) do
      assert.equal(t.dtype, back[name].dtype)
      assert.is_true(torch.equal(t, back[name]))
    end
    assert.same({ note = "ü" }, meta)
  end)

  it("the whole file or nothing", function()
    write("before")
    helper.raises("ValueError", "is not UTF%-8", function()
      safetensors.save_file({ ["\xff"] = torch.ones({ 2 }) }, path)
    end)
    helper.raises("ValueError", "kept for metadata", function()
      safetensors.save_file({ __metadata__ = torch.ones({ 2 }) }, path)
    end)
    assert.equal("before", bytes_of())
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

describe("safetensors refuses", function()
  local function refused(bytes, pattern)
    write(bytes)
    helper.raises("ValueError", pattern, function()
      core.read_safetensors(path)
    end)
  end

  it("a file cut at any byte", function()
    for n = 0, #ok - 1 do
      refused(ok:sub(1, n), "truncated")
    end
  end)

  it("each hostile file of a table, without making its tensors", function()
    local deep = ("["):rep(5000)
    local huge = "9223372036854775807"
    local cases = {
      { "PK\3\4" .. ("x"):rep(60), "zip archive" },
      { string.pack("<I8", 1 << 62) .. "{}", "header of 4611686018427387904 bytes" },
      { string.pack("<I8", (1 << 63) | 1) .. "{}", "header of" },
      { string.pack("<I8", 100000001) .. "{}", "at most 100000000" },
      { file(""), "does not start with" },
      { file("[]"), "does not start with" },
      { file(" {}"), "does not start with" },
      { file('{"x":1}'), "has not exactly" },
      { file('{"x":{}}'), "has not exactly" },
      { file('{"x":{"dtype":"F32","shape":[],"data_offsets":[0,4],"more":1}}', "abcd"), "exactly" },
      { file('{"x":{"dtype":"F99","shape":[],"data_offsets":[0,4]}}', "abcd"), "dtype is 'F99'" },
      { file('{"x":{"dtype":5,"shape":[],"data_offsets":[0,4]}}', "abcd"), "dtype is 'no string'" },
      { file('{"x":{"dtype":"F32","shape":{},"data_offsets":[0,4]}}', "abcd"), "shape is not" },
      { file('{"x":' .. entry("F32", "-1", 0, 4) .. "}", "abcd"), "a size is not" },
      { file('{"x":' .. entry("F32", "1.0", 0, 4) .. "}", "abcd"), "a size is not" },
      { file('{"x":' .. entry("F32", huge .. "," .. huge, 0, 4) .. "}", "abcd"), "beyond" },
      { file('{"x":' .. entry("F32", huge .. ",0", 0, 0) .. "}"), "beyond" },
      { file('{"x":' .. entry("U8", "1,1,1,1,1,1,1,1,1,1,1,1,1", 0, 1) .. "}", "a"), "at most 12" },
      { file('{"x":' .. entry("F32", "4611686018427387905", 0, 4) .. "}", "abcd"), "beyond" },
      { file('{"x":' .. entry("F32", "2", 0, 4) .. "}", "abcd"), "take 8 bytes" },
      { file('{"x":' .. entry("F32", "1", 4, 0) .. "}", "abcd"), "outside" },
      { file('{"x":' .. entry("F32", "1", -4, 0) .. "}", "abcd"), "outside" },
      { file('{"x":' .. entry("F32", "1", 0, 4) .. ',"y":' .. entry("F32", "1", 2, 6) .. "}",
        "abcdef"), "overlap" },
      { file('{"x":' .. entry("F32", "1", 0, 4) .. ',"y":' .. entry("F32", "1", 0, 4) .. "}",
        "abcd"), "overlap" },
      { file('{"x":' .. entry("F32", "1", 0, 4) .. ',"y":' .. entry("F32", "1", 8, 12) .. "}",
        "abcdefghijkl"), "gap" },
      { file('{"x":' .. entry("F32", "1", 4, 8) .. "}", "abcdefgh"), "gap" },
      { ok .. "!", "extra bytes" },
      { file("{}", "x"), "extra bytes" },
      { file('{"x":' .. entry("U8", "1", 0, 1) .. ',"x":' .. entry("U8", "1", 0, 1) .. "}", "a"),
        "header, byte %d+: .*duplicate" },
      { file('{"__metadata__":{"a":1}}'), "is not a string" },
      { file('{"__metadata__":[]}'), "not an object" },
      { file('{"x":' .. deep), "header, byte" },
      { file('{"\xff":1}'), "header, byte" },
      { file('{"x":{"dtype":"F32","shape":[1e400],"data_offsets":[0,4]}}', "abcd"), "header" },
      { file('{"x":NaN}'), "header" },
      { file("{}garbage"), "header" },
    }
    local before = torch.memory().peak
    for i, c in ipairs(cases) do
      local done, e = pcall(refused, c[1], c[2])
      assert(done, ("case %d: %s"):format(i, tostring(e)))
    end
    assert.is_true(torch.memory().peak <= before + (1 << 16))
  end)
end)
