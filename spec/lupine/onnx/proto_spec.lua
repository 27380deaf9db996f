-- Messages of onnx.proto as tables, and back.
local core = require("lupine.core")
local helper = require("spec.helper")
local program = require("spec.support.program")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local refuses = helper.refuses

local function again(message, class)
  return core.onnx_decode(core.onnx_encode(message, class), class)
end

describe("a message", function()
  it("is a table of what is set", function()
    local t = again({ dims = { 2, -1 }, data_type = 1, name = "a", raw_data = "a\0b",
      float_data = { 0.5 }, double_data = { 0.1 }, int64_data = { math.mininteger } },
      "TensorProto")
    assert.same({ 2, -1 }, t.dims)
    assert.equal("a\0b", t.raw_data)
    assert.same({ { 0.5 }, { 0.1 }, { math.mininteger } },
      { t.float_data, t.double_data, t.int64_data })
    assert.same({}, t.int32_data)
    assert.is_nil(t.doc_string)
    assert.equal("", again({ name = "" }, "TensorProto").name)
  end)

  it("has the bytes that the format says", function()
    -- field 1 packed or not, a varint each; field 8 a text
    assert.same({ 5, 300 }, core.onnx_decode("\x08\x05\x08\xac\x02", "TensorProto").dims)
    assert.same({ 5, 300 }, core.onnx_decode("\x0a\x03\x05\xac\x02", "TensorProto").dims)
    assert.equal("x", core.onnx_decode("\x42\x01x", "TensorProto").name)
    -- fields that the class does not have are left out
    assert.is_nil(next(core.onnx_decode("\xf8\x07\x01", "TensorProto").dims))
  end)

  it("has numbers of 64 bits, in ten bytes at most", function()
    local function dims(...)
      return core.onnx_decode("\x08" .. string.char(...), "TensorProto").dims
    end
    local function sevens(n, last)
      return table.unpack(setmetatable({}, { __index = function(_, i)
        return i <= n and 0xff or last
      end }), 1, n + 1)
    end
    assert.same({ -1 }, dims(sevens(9, 1)))
    assert.same({ math.maxinteger }, dims(sevens(8, 0x7f)))
    -- number k is 2^(7k); the first zeros count as well
    for k = 0, 8 do
      local bytes = {}
      for i = 1, k do
        bytes[i] = 0x80
      end
      bytes[k + 1] = 1
      assert.same({ 1 << 7 * k }, dims(table.unpack(bytes)))
    end
    refuses("ValueError", "TensorProto, byte 11: expected a number", dims, sevens(10, 1))
    refuses("ValueError", "expected a number", dims, 0xff)
  end)

  it("has lengths of such numbers", function()
    local function named(n)
      local length = string.char(0x80 | n & 127, n >> 7)
      return core.onnx_decode("\x42" .. length .. ("x"):rep(n), "TensorProto").name
    end
    for _, n in ipairs({ 0, 127, 128, 300, 16383 }) do
      assert.equal(n, #named(n))
    end
    -- 2^32 + 1 is not 1, nor 2^63 nothing
    for _, length in ipairs({ "\x81\x80\x80\x80\x10", ("\x80"):rep(9) .. "\x01" }) do
      refuses("ValueError", "a field ends behind the end", core.onnx_decode,
        "\x42" .. length .. "x", "TensorProto")
    end
  end)

  it("has keys of 32 bits that name a field", function()
    for _, key in ipairs({ "\x00\x00", "\x05", "\x88\x80\x80\x80\x10\x05", "\x80" }) do
      refuses("ValueError", "expected a field's key", core.onnx_decode, key, "TensorProto")
    end
    -- the last field that there can be, 2^29 - 1, is none of the class
    assert.same({ 5 }, core.onnx_decode("\xf8\xff\xff\xff\x0f\x01\x08\x05", "TensorProto").dims)
  end)

  it("has others in it, a hundred deep", function()
    local function nested(depth)
      local g = {}
      for _ = 1, depth - 1, 3 do -- a node, its attribute, that one's graph
        g = { node = { { attribute = { { g = g } } } } }
      end
      return g
    end
    local bytes = core.onnx_encode(nested(100), "GraphProto")
    assert.equal(bytes, core.onnx_encode(core.onnx_decode(bytes, "GraphProto"), "GraphProto"))
    local deeper = { graph = nested(100) }
    refuses("ValueError", "nested deeper than 100", core.onnx_encode, deeper, "ModelProto")
    -- field 7 of a model is its graph
    refuses("ValueError", "nested deeper than 100", core.onnx_decode,
      "\x3a" .. string.char(0x80 | #bytes & 127, #bytes >> 7) .. bytes, "ModelProto")
  end)

  it("may have messages in it, of one kind where there are several", function()
    local g = again({ node = { { op_type = "Relu", input = { "x" }, output = { "y" } } },
      input = { proto.info("x", torch.float32, { 2, "batch" }) } }, "GraphProto")
    assert.equal("Relu", g.node[1].op_type)
    local dtype, shape = proto.type_of(g.input[1])
    assert.equal(torch.float32, dtype)
    assert.same({ 2, "batch" }, shape)
  end)

  it("is refused with a field that it has not, or of another type", function()
    refuses("AttributeError", "NodeProto has no field 'op'", core.onnx_encode,
      { node = { { op = "Relu" } } }, "GraphProto")
    refuses("TypeError", "op_type: expected a text", core.onnx_encode,
      { node = { { op_type = 5 } } }, "GraphProto")
    refuses("TypeError", "dims: expected an integer, got a string", core.onnx_encode,
      { dims = { "5" } }, "TensorProto")
    refuses("TypeError", "dims: expected an integer", core.onnx_encode, { dims = { 0.5 } },
      "TensorProto")
    refuses("TypeError", "dims: expected a list", core.onnx_encode, { dims = 5 }, "TensorProto")
    refuses("TypeError", "without zero bytes", core.onnx_encode, { name = "a\0" }, "TensorProto")
    for _, v in ipairs({ 1 << 33, 1 << 31, -(1 << 31) - 1 }) do
      refuses("ValueError", "32 bits", core.onnx_encode, { data_type = v }, "TensorProto")
    end
    local ends = { (1 << 31) - 1, -(1 << 31) }
    assert.same(ends, again({ int32_data = ends }, "TensorProto").int32_data)
    refuses("TypeError", "AttributeProto: f: expected a number, got a string", core.onnx_encode,
      { node = { { attribute = { { f = "0.5" } } } } }, "GraphProto")
    refuses("TypeError", "double_data: expected a number, got a boolean", core.onnx_encode,
      { double_data = { 0.5, true } }, "TensorProto")
    local ring = {}
    ring.node = { { attribute = { { g = ring } } } }
    refuses("ValueError", "nested deeper than 100", core.onnx_encode, ring, "GraphProto")
  end)

  it("is refused with a list whose size in bytes no number has", function()
    local far = {} -- with holes, so that its length is found at 2^61
    for b = 0, 61 do
      far[1 << b], far[(1 << b) + 1] = 0.5, b < 61 and 0.5 or nil
    end
    assert.equal(1 << 61, #far)
    refuses("ValueError", "double_data: 2305843009213693952 elements", core.onnx_encode,
      { double_data = far }, "TensorProto")
  end)

  it("has raw_data of strings and of tensors, long or short, in their order", function()
    local text = ("0123456789abcdef"):rep(1 << 13) -- 128 KiB
    local function of(data)
      local list = {}
      for i, x in ipairs(data) do
        list[i] = { name = "t" .. i, raw_data = x }
      end
      return core.onnx_encode({ initializer = list }, "GraphProto")
    end
    local short, long = text:sub(1, 24), text:sub(17)
    local bytes = of({ text, short, long, text, "" })
    for i, x in ipairs(core.onnx_decode(bytes, "GraphProto").initializer) do
      assert.is_true(({ text, short, long, text, "" })[i] == x.raw_data)
    end
    local function tensor(x, dtype)
      return torch.frombuffer(x, { dtype = dtype or torch.uint8 })
    end
    assert.is_true(bytes == of({ tensor(text, torch.float32), tensor(short), long,
      tensor(text, torch.int64):reshape(2, -1), torch.empty({ 0 }) }))
    refuses("TypeError", "raw_data: expected a tensor that lies row by row", of,
      { torch.ones({ 3, 3 }):t() })
    refuses("RuntimeError", "meta", of, { torch.ones({ 3 }, { device = "meta" }) })
    refuses("TypeError", "raw_data: expected a string, got a table", of, { {} })
    refuses("TypeError", "s: expected a string", core.onnx_encode,
      { node = { { attribute = { { name = "a", s = tensor(short) } } } } }, "GraphProto")
  end)

  it("lends long raw_data to whoever asks", function()
    local x = torch.randn({ 256 })
    local bytes = core.onnx_encode({ initializer = { tensors.write("x", x),
      tensors.write("y", x[5]) } }, "GraphProto")
    local list = core.onnx_decode(bytes, "GraphProto", true).initializer
    local lent = list[1].raw_data
    assert.equal(torch.uint8, lent.dtype)
    assert.equal("string", type(list[2].raw_data))
    local t = tensors.read(list[1])
    assert.is_true(torch.equal(x, t))
    t:zero_() -- the memory is the tensor's
    assert.equal(0, lent:sum():item())
    assert.is_true(torch.equal(x, tensors.read(core.onnx_decode(bytes, "GraphProto")
      .initializer[1])))
    refuses("ValueError", "1024 bytes, its shape %[255%] has 1020", tensors.read,
      { dims = { 255 }, data_type = 1, raw_data = lent })
    for _, other in ipairs({ x, lent:narrow(0, 4, 4), torch.ones({ 4 }, { dtype = torch.uint8,
      device = "meta" }) }) do
      assert.is_false(pcall(core.onnx_values, other, torch.float32))
    end
    assert.is_false(pcall(core.onnx_values, torch.ones({ 5 }, { dtype = torch.uint8 }),
      torch.float32))
  end)

  it("is refused with more than 2 GiB", function()
    local part, list = torch.zeros({ 1 << 24 }), {}
    for i = 1, 33 do
      list[i] = tensors.lend("t" .. i, part)
    end
    local model = { graph = { initializer = list } }
    assert.is_false(core.onnx_fits(model, "ModelProto"))
    local path = program.shell("mktemp -u"):gsub("\n", "")
    refuses("ValueError", "2214593%d+ bytes are more .* a file of their own", core.onnx_encode,
      model, "ModelProto")
    refuses("ValueError", "bytes are more", proto.write, model, path)
    assert.is_nil(io.open(path))
    list[33], list[32] = nil, nil
    assert.is_true(core.onnx_fits(model, "ModelProto"))
  end)

  it("is read by nobody where it is broken", function()
    refuses("ValueError", "m is no ONNX model: ModelProto, byte", proto.decode, "\x3a\x7f", "m")
    refuses("ValueError", "it has no graph", proto.decode, "")
    refuses("ValueError", "TensorProto, byte 2: a field ends behind the end", core.onnx_decode,
      "\x42\x02x", "TensorProto")
    refuses("FileNotFoundError", "none.onnx", proto.read, "none.onnx")
    refuses("OSError", "not a regular file", proto.read, "spec")
    refuses("ValueError", "README.md is no ONNX model: ModelProto, byte", proto.read, "README.md")
  end)

  -- Bytes by the encoding of protocol buffers: a key is number << 3 | kind.
  it("has numbers of 4 and 8 bytes one by one, too", function()
    local t = core.onnx_decode("\x25" .. ("<f"):pack(0.5) .. "\x51" .. ("<d"):pack(0.1)
      .. "\x25" .. ("<f"):pack(-2) .. "\x42\x01n", "TensorProto")
    assert.same({ { 0.5, -2 }, { 0.1 }, "n" }, { t.float_data, t.double_data, t.name })
    -- what onnx.proto does not have is left out, whatever its kind
    assert.equal("n", core.onnx_decode("\xa1\x06" .. ("\xff"):rep(8) .. "\xa5\x06"
      .. ("\xff"):rep(4) .. "\xa2\x06\x02\0\0\xa0\x06\x07\x42\x01n", "TensorProto").name)
  end)

  it("is refused where a key, a length, a number or a text cannot be", function()
    local function broken(bytes, why)
      refuses("ValueError", why, core.onnx_decode, bytes, "TensorProto")
    end
    broken("\0\x01", "expected a field's key")
    broken("\x90\x80\x80\x80\x10\x01", "expected a field's key") -- 2^32 and data_type's
    broken("\x10", "expected a number")
    broken("\x10" .. ("\xff"):rep(10) .. "\x01", "expected a number")
    broken("\x42", "expected a length")
    broken("\x42\x81\x80\x80\x80\x10x", "a field ends behind the end") -- 2^32 + 1
    broken("\x51" .. ("\0"):rep(7), "a field ends behind the end")
    broken("\x25" .. ("\0"):rep(3), "a field ends behind the end")
    broken("\x42\x03a\0b", "a text with a zero byte")
    broken("\x43", "unknown kind of field")
    broken("\x12\x01x", "a field has another type") -- a text as data_type
  end)

  it("is read with messages 100 deep and no deeper", function()
    local function length(n)
      return n < 128 and string.char(n) or string.char(n & 127 | 128) .. length(n >> 7)
    end
    local function inside(key, bytes)
      return key .. length(#bytes) .. bytes
    end
    local function graph(bytes, levels) -- each a graph, its node, that one's attribute
      for _ = 1, levels do
        bytes = inside("\x0a", inside("\x2a", inside("\x32", bytes)))
      end
      return bytes
    end
    core.onnx_decode(graph("", 33), "GraphProto")
    refuses("ValueError", "nested deeper than 100", core.onnx_decode,
      graph(inside("\x0a", ""), 33), "GraphProto")
    -- many beside each other are not deep
    core.onnx_decode(inside("\x0a", ""):rep(300), "GraphProto")
  end)
end)

describe("a model's file", function()
  it("is what was written", function()
    local path = program.shell("mktemp"):gsub("\n", "")
    local model = { ir_version = proto.IR_VERSION, opset_import = { { version = 17 } },
      producer_name = "me", graph = { name = "g", initializer = {
        tensors.write("a", torch.arange(1 << 16)), tensors.lend("b", torch.ones({ 3 })) } } }
    proto.write(model, path)
    local file <close> = io.open(path, "rb")
    assert.is_true(file:read("a") == core.onnx_encode(model, "ModelProto"))
    local back = proto.read(path)
    assert.is_true(back.graph.initializer[1].raw_data == model.graph.initializer[1].raw_data)
    assert.same({ 8, "me", "g", 17 }, { back.ir_version, back.producer_name, back.graph.name,
      back.opset_import[1].version })
    os.remove(path)
  end)
end)

describe("an attribute", function()
  it("has the kind of its value", function()
    local kinds = { i = 5, f = 0.5, s = "x", ints = { 1, 2 }, floats = { 1, 0.5 },
      strings = { "a", "b" }, t = torch.ones({ 2 }) }
    for field, value in pairs(kinds) do
      local node = again({ node = { { attribute = { proto.attribute("a", value) } } } },
        "GraphProto").node[1]
      local got, kind = proto.value((proto.find(node, "a")))
      assert.equal(field, kind)
      if field == "t" then
        assert.is_true(torch.equal(value, got))
      else
        assert.same(value, got)
      end
    end
    assert.equal(1, proto.attribute("a", true).i)
    assert.same({}, (proto.value(proto.attribute("a", {}, "floats"))))
    assert.is_nil((proto.find({ attribute = {} }, "a")))
  end)

  it("has a kind that is known, and a value", function()
    refuses("TypeError", "attribute 'a': expected a number", proto.attribute, "a", print)
    refuses("TypeError", "expected a number", proto.attribute, "a", { print })
    refuses("ValueError", "no value", proto.value, { name = "a" })
    refuses("ValueError", "no value", proto.value, { name = "a", type = 4 })
    refuses("ValueError", "sparse", proto.value, { name = "a", type = 11, sparse_tensor = {} })
    -- files of the first IR version do not say the kind; a zero is not written
    assert.same({ 7, "i" }, { proto.value({ name = "a", i = 7, ints = {} }) })
    assert.same({ 0, "i" }, { proto.value({ name = "a", type = 2 }) })
  end)
end)

describe("a model of bytes, as Python's packages have it", function()
  local onnx = require("lupine.onnx")

  it("is a table, whose tensors come and go", function()
    local bytes = require("lupine.core").onnx_encode({ ir_version = 8, graph = { name = "g",
      initializer = { onnx.numpy_helper.from_array(torch.tensor({ { 1.5, 2 } }), "w") } } },
      "ModelProto")
    local model = onnx.load_from_string(bytes)
    local w = model.graph.initializer[1]
    assert.same({ "w", { 1, 2 }, 1 }, { w.name, w.dims, w.data_type })
    assert.equal(string.pack("<ff", 1.5, 2), w.raw_data)
    assert.same({ { 1.5, 2 } }, onnx.numpy_helper.to_array(w):tolist())
    for _, wrong in ipairs({ { onnx.load_from_string, 5 }, { onnx.numpy_helper.to_array, "w" },
      { onnx.numpy_helper.from_array, "w" } }) do
      assert.is_false(pcall(wrong[1], wrong[2]))
    end
  end)
end)
