-- Tensors of ONNX files: their types, and data in files of their own.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local program = require("spec.support.program")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local folder

local refuses = helper.refuses

setup(function()
  folder = files.folder()
end)
teardown(function()
  files.remove(folder)
end)

local function sh(command)
  return (program.shell("cd " .. folder .. " && " .. command))
end

local function external(location, offset, length, dims)
  return { name = "w", dims = dims or { 2 }, data_type = 1, data_location = 1, external_data = {
    { key = "location", value = location }, { key = "offset", value = offset },
    length and { key = "length", value = length } or nil } }
end

describe("a TensorProto", function()
  it("keeps tensors of every type", function()
    for _, name in ipairs({ "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16",
      "int32", "int64", "bool" }) do
      local t = torch.tensor({ { 0, 1, 2 }, { 3, 100, 0 } }):to(torch[name])
      local bytes = core.onnx_encode(tensors.write("t", t), "TensorProto")
      local back = tensors.read(core.onnx_decode(bytes, "TensorProto"))
      assert.equal(t.dtype, back.dtype)
      assert.is_true(torch.equal(t, back), name)
    end
  end)

  it("has its values in the field of its type", function()
    local t = tensors.read({ dims = { 2 }, data_type = 10, int32_data = { 0x3c00, 0xc000 } })
    assert.same({ 1, -2 }, t:double():tolist())
    t = tensors.read({ dims = { 1, 2 }, data_type = 7, int64_data = { math.maxinteger, -1 } })
    assert.same({ { math.maxinteger, -1 } }, t:tolist())
    t = tensors.read({ dims = {}, data_type = 9, int32_data = { 1 } })
    assert.is_true(t:item())
  end)

  it("refuses values that its shape does not have", function()
    refuses("ValueError", "1 values, its shape %[2%] has 2", tensors.read,
      { dims = { 2 }, data_type = 1, float_data = { 1 } })
    refuses("ValueError", "a dimension is %-1", tensors.read,
      { dims = { -1 }, data_type = 1, raw_data = "" })
    refuses("ValueError", "more elements than can be counted", tensors.read,
      { dims = { 1 << 62, 4 }, data_type = 1, raw_data = "" })
    refuses("ValueError", "more bytes than can be counted", tensors.read,
      { dims = { 1 << 62 }, data_type = 1, raw_data = "" })
    refuses("NotImplementedError", "UINT64", tensors.read,
      { dims = { 1 }, data_type = 13, raw_data = ("x"):rep(8) })
    refuses("NotImplementedError", "STRING", tensors.read,
      { dims = { 1 }, data_type = 8, string_data = { "x" } })
  end)
end)

describe("data in a file of its own", function()
  local data = string.pack("<fff", 1, 2, 3)

  setup(function()
    sh("mkdir -p within/deeper outside && mkfifo within/pipe && ln -s w.bin within/link"
      .. " && ln -s ../outside within/out && ln -s within reached")
    for _, name in ipairs({ "within/w.bin", "within/deeper/w.bin", "outside/w.bin" }) do
      files.write(folder .. "/" .. name, data)
    end
  end)

  local function read(...)
    return tensors.read(external(...), folder .. "/within"):tolist()
  end

  it("is read from within the model's folder", function()
    assert.same({ 1, 2 }, read("w.bin", "0", "8"))
    assert.same({ 2, 3 }, read("w.bin", "4", "8"))
    assert.same({ 2, 3 }, read("./deeper/w.bin", "4"))
    assert.same({ 1, 2 }, tensors.read(external("w.bin"), folder .. "/reached"):tolist())
    assert.same({}, read("w.bin", "12", "0", { 0 }))
  end)

  it("is never read from elsewhere", function()
    for location, pattern in pairs({ ["../outside/w.bin"] = "%.%.", ["deeper/../w.bin"] = "%.%.",
      [folder .. "/within/w.bin"] = "within the folder", [""] = "within the folder",
      ["w.bin\0"] = "zero byte" }) do
      refuses("ValueError", "tensor 'w'.*" .. pattern, read, location, "0", "8")
    end
    for location, pattern in pairs({ link = "a link", ["out/w.bin"] = "a link",
      ["w.bin/x"] = "no folder", pipe = "not a regular file", deeper = "not a regular file",
      ["deeper/"] = "not a regular file", ["none"] = "No such file", ["."] = "not a regular" }) do
      refuses("OSError", "tensor 'w': .*" .. pattern, read, location, "0", "8")
    end
  end)

  it("has a place in the file", function()
    refuses("ValueError", "tensor 'w': .*12 bytes", read, "w.bin", "8", "8")
    refuses("ValueError", "tensor 'w': .*12 bytes", read, "w.bin", "13")
    refuses("ValueError", "tensor 'w': .*12 bytes", read, "w.bin",
      tostring(math.maxinteger), "8")
    refuses("ValueError", "its shape %[2%] has 8", read, "w.bin", "0", "12")
    refuses("ValueError", "offset of the file", read, "w.bin", "-4", "8")
    refuses("ValueError", "offset of the file", read, "w.bin", "1e300", "8")
    refuses("ValueError", "length of the file", read, "w.bin", "0", "eight")
    refuses("ValueError", "w.bin' has 12 bytes", read, "w.bin", "0", nil, { 1 << 40 })
    refuses("ValueError", "not read from a folder", tensors.read, external("w.bin"))
    refuses("ValueError", "not named", tensors.read, { name = "w", dims = { 1 },
      data_type = 1, data_location = 1, external_data = {} }, folder)
  end)

  it("is written beside a model", function()
    local big, small = torch.randn({ 300 }), torch.randn({ 2 })
    local list = { tensors.write("big", big), tensors.write("small", small),
      tensors.write("other", big * 2) }
    local model = { ir_version = 8, opset_import = { { domain = "", version = 17 } },
      graph = { name = "g", initializer = list } }
    proto.write(model, folder .. "/m.onnx", { external = "m.bin", threshold = 1024 })
    assert.is_nil(list[1].data_location)
    local back = proto.read(folder .. "/m.onnx").graph.initializer
    assert.same({ 1, nil, 1 }, { back[1].data_location, nil, back[3].data_location })
    assert.equal("4096", back[3].external_data[2].value)
    for i, t in ipairs({ big, small, big * 2 }) do
      assert.is_true(torch.equal(t, tensors.read(back[i], folder)))
    end
    assert.equal("m.bin\nm.onnx\n", sh("ls m.*"))
    for _, name in ipairs({ "m.onnx", "../m.bin", "/m.bin", "", ".", "..", 5 }) do
      refuses("ValueError", "external: expected the name", proto.write, model,
        folder .. "/m.onnx", { external = name })
    end
    refuses("ValueError", "threshold", proto.write, model, folder .. "/m.onnx",
      { external = "x", threshold = -1 })
    refuses("TypeError", "unknown option 'extern'", proto.write, model,
      folder .. "/m.onnx", { extern = "x" })
    refuses("TypeError", "expected a ModelProto with a graph", proto.write, {},
      folder .. "/m.onnx")
    -- a file that has data of the model's is not replaced
    refuses("ValueError", "the data of tensor 'big' is in 'm.bin' already", proto.write,
      proto.read(folder .. "/m.onnx"), folder .. "/n.onnx", { external = "m.bin" })
    assert.is_true(torch.equal(big, tensors.read(back[1], folder)))
    proto.write(proto.read(folder .. "/m.onnx"), folder .. "/n.onnx", { external = "n.bin",
      threshold = 0 })
    for i, t in ipairs({ big, small, big * 2 }) do
      assert.is_true(torch.equal(t,
        tensors.read(proto.read(folder .. "/n.onnx").graph.initializer[i], folder)))
    end
  end)
end)
