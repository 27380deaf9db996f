--- ONNX models, which are loaded and run.
local core = require("lupine.core")
local harness = require("spec.fuzz.harness.onnx")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local HUGE = math.maxinteger

local function node(op, inputs, outputs, attributes, domain)
  return { op_type = op, input = inputs, output = outputs, attribute = attributes, domain = domain }
end

local function ints(name, ...)
  return tensors.write(name, torch.tensor({ ... }, { dtype = torch.int64 }))
end

local x = proto.info("x", torch.float32, { 2, 3 })

local function graph(nodes, initializers, inputs, outputs)
  return { node = nodes, input = inputs or { x }, initializer = initializers,
    output = outputs or { { name = "y" } } }
end

local function encode(g, functions, imports)
  return core.onnx_encode({ ir_version = 8, graph = g, functions = functions,
    opset_import = imports or { { version = 13 }, { domain = "m", version = 1 } } }, "ModelProto")
end

local function model(...)
  return encode(graph(...))
end

-- One node with x and integers as inputs.
local function with(op, values, attributes)
  local inputs, list = { "x" }, {}
  for i, v in ipairs(values) do
    inputs[i + 1], list[i] = "i" .. i, ints("i" .. i, table.unpack(v))
  end
  return model({ node(op, inputs, { "y" }, attributes) }, list)
end

local function attribute(...)
  return { proto.attribute(...) }
end

local function of_tensor(t)
  return model({ node("Add", { "x", "w" }, { "y" }) }, { t })
end

local function outside(location, offset, length)
  return of_tensor({ name = "w", dims = { 1 }, data_type = 1, data_location = 1,
    external_data = { { key = "location", value = location }, { key = "offset", value = offset },
      { key = "length", value = length } } })
end

local function field(tag, bytes)
  local length, k = "", #bytes
  repeat
    length, k = length .. string.char(k % 128 + (k > 127 and 128 or 0)), k // 128
  until k == 0
  return string.char(tag) .. length .. bytes
end

-- If nodes in If nodes, as bytes: a graph is field 7 of a model, a node field 1 of a
-- graph, an attribute field 5 of a node, its graph field 6.
local function branches(n)
  local inner = ""
  for _ = 1, n do
    inner = field(0x0a, field(0x22, "If") .. field(0x2a, field(0x0a, "then_branch")
      .. field(0x32, inner)))
  end
  return field(0x3a, inner)
end

-- n If nodes, each in the one before it.
local function depth(n)
  local last = { output = { { name = "x" } }, node = {} }
  local body = last
  for i = 1, n do
    local name = i == n and "y" or "b" .. i
    body = { output = { { name = name } }, node = { node("If", { "c" }, { name },
      { proto.attribute("then_branch", body), proto.attribute("else_branch", last) }) } }
  end
  return encode({ node = body.node, input = { x }, output = body.output,
    initializer = { tensors.write("c", torch.tensor(true)) } })
end

local function loop(count, cond)
  local body = { input = { { name = "i" }, { name = "c" }, { name = "v" } },
    output = { { name = "c" }, { name = "w" } }, node = { node("Add", { "v", "v" }, { "w" }) } }
  return model({ node("Loop", { "n", cond or "", "x" }, { "y" }, attribute("body", body)) },
    { ints("n", count), tensors.write("t", torch.tensor(true)) })
end

local function calls(nodes)
  return encode(graph({ node("F", { "x" }, { "y" }, {}, "m") }),
    { { name = "F", domain = "m", input = { "a" }, output = { "b" },
      opset_import = { { version = 13 }, { domain = "m", version = 1 } }, node = nodes } })
end

local function filled(shape, dtype)
  return model({ node("ConstantOfShape", { "s" }, { "y" }, dtype and attribute("value",
    torch.zeros({ 1 }, { dtype = dtype }))) }, { ints("s", table.unpack(shape)) }, {})
end

local TOO_LARGE = "memory"
local VALID = model({ node("Add", { "x", "w" }, { "y" }) },
  { tensors.write("w", torch.ones({ 3 })) })

-- What sanitizers would end the process for fails here.
local function read(bytes)
  core.mem_most(64 << 20)
  local ok, e = pcall(harness.run, bytes)
  core.mem_most(0)
  if not ok then
    error(e, 0)
  end
end

return {
  read = read,
  codec = harness.is_kept,
  valid = { VALID, calls({ node("Relu", { "a" }, { "b" }) }) },
  taken = { loop(3), outside("onnx.dict", "4", "4"), depth(20),
    with("Expand", { { 1 << 30, 1 << 8, 2, 3 } }) },
  refused = {
    { "nothing", "", "ValueError", "no graph" },
    { "zero bytes", ("\0"):rep(1000), "ValueError", "ModelProto, byte" },
    { "a truncated length", "\x3a\xff", "ValueError", "expected a length" },
    { "a long varint", "\x08" .. ("\xff"):rep(11), "ValueError", "expected a number" },
    { "a field beyond the end", "\x3a\x7f\x0a", "ValueError", "behind the end" },
    { "2^63 bytes", "\x3a" .. ("\xff"):rep(9) .. "\x01", "ValueError", "behind the end" },
    { "field number 0", "\x02\x00", "ValueError", "a field's key" },
    { "a group", "\x0b\x0c", "ValueError", "kind of field" },
    { "a graph that is a number", "\x38\x05", "ValueError", "" },
    { "a text with a zero byte", "\x12\x03a\0b\x3a\x00", "ValueError", "zero byte" },
    { "messages in messages", branches(2000), "ValueError", "nested deeper than 100" },
    { "millions of messages", function()
      return field(0x3a, ("\x0a\x00"):rep(5000000))
    end, "ValueError", "more than 4194304 messages" },
    { "many empty nodes", function()
      return field(0x3a, ("\x0a\x00"):rep(10000))
    end, "NotImplementedError", "names no version" },
    { "no version of the operators", encode(graph({ node("Relu", { "x" }, { "y" }) }), nil, {}),
      "NotImplementedError", "names no version" },
    { "two versions", encode(graph({ node("Relu", { "x" }, { "y" }) }), nil,
      { { version = 13 }, { version = 14 } }), "ValueError", "opset_import" },
    { "a version below all", encode(graph({ node("Relu", { "x" }, { "y" }) }), nil,
      { { version = math.mininteger } }), "NotImplementedError", "Relu" },
    { "another operator", model({ node("Nothing", { "x" }, { "y" }) }), "NotImplementedError",
      "Nothing" },
    { "a cycle", model({ node("Add", { "x", "z" }, { "y" }), node("Relu", { "y" }, { "z" }) }),
      "ValueError", "'z' is made by no node before" },
    { "a node that reads itself", model({ node("Add", { "x", "y" }, { "y" }) }), "ValueError",
      "made by no node before" },
    { "a missing initializer", model({ node("Add", { "x", "w" }, { "y" }) }), "ValueError",
      "'w' is made by no" },
    { "a missing output", model({ node("Relu", { "x" }, { "z" }) }), "ValueError",
      "output 'y' of the graph is made by no node" },
    { "a name twice", model({ node("Relu", { "x" }, { "y" }), node("Relu", { "x" }, { "y" }) }),
      "ValueError", "two values have the name 'y'" },
    { "an input twice", model({ node("Relu", { "x" }, { "y" }) }, {}, { x, x }), "ValueError",
      "two values" },
    { "an initializer twice", model({ node("Relu", { "x" }, { "y" }) }, { ints("w", 1),
      ints("w", 2) }), "ValueError", "two values" },
    { "no inputs", model({ node("Add", {}, { "y" }) }), "ValueError", "has 0 inputs" },
    { "many inputs", model({ node("Relu", { "x", "x" }, { "y" }) }), "ValueError",
      "has 2 inputs, Relu takes 1" },
    { "left out inputs", model({ node("Add", { "", "" }, { "y" }) }), "ValueError",
      "node 0 %(Add%): input 'A' is left out" },
    { "a hole in a list of inputs", model({ node("Concat", { "x", "", "x" }, { "y" },
      attribute("axis", 0)) }), "ValueError", "is left out" },
    { "many outputs", model({ node("Relu", { "x" }, { "y", "z" }) }), "ValueError", "2 outputs" },
    { "an attribute of another kind", model({ node("LeakyRelu", { "x" }, { "y" },
      attribute("alpha", "x")) }), "ValueError", "expected float" },
    { "an attribute twice", model({ node("LeakyRelu", { "x" }, { "y" },
      { proto.attribute("alpha", 1.0), proto.attribute("alpha", 1.0) }) }), "ValueError",
      "two attributes" },
    { "an attribute without a name", model({ node("Relu", { "x" }, { "y" },
      { { type = 1, f = 1.0 } }) }), "ValueError", "no attribute ''" },
    { "another attribute", model({ node("Relu", { "x" }, { "y" }, attribute("x", 1)) }),
      "ValueError", "no attribute 'x'" },
    { "an attribute of kind 99", model({ node("LeakyRelu", { "x" }, { "y" },
      { { name = "alpha", type = 99 } }) }), "ValueError", "no value" },
    { "a reference outside a function", model({ node("LeakyRelu", { "x" }, { "y" },
      { { name = "alpha", ref_attr_name = "a" } }) }), "ValueError", "no value" },
    { "a sparse initializer", encode({ node = {}, sparse_initializer = { {} }, output = {} }),
      "NotImplementedError", "sparse" },
    { "a negative dimension", of_tensor({ name = "w", dims = { -1 }, data_type = 1,
      raw_data = "" }), "ValueError", "a dimension is %-1" },
    { "2^64 elements", of_tensor({ name = "w", dims = { 1 << 32, 1 << 32 }, data_type = 1,
      raw_data = "" }), "ValueError", "than can be counted" },
    { "elements that wrap to 4", of_tensor({ name = "w", dims = { (1 << 62) + 1, 4 },
      data_type = 1, raw_data = ("x"):rep(16) }), "ValueError", "than can be counted" },
    { "bytes that wrap to 4", of_tensor({ name = "w", dims = { (1 << 62) + 1 }, data_type = 1,
      raw_data = "abcd" }), "ValueError", "than can be counted" },
    { "an empty shape that is wide", of_tensor({ name = "w", dims = { 0, HUGE, HUGE },
      data_type = 1, raw_data = "" }), "OverflowError", "too many elements" },
    { "many dimensions", of_tensor({ name = "w", dims = table.move({}, 1, 0, 1,
      torch.ones({ 2000 }, { dtype = torch.int64 }):tolist()), data_type = 1,
      raw_data = "abcd" }), "ValueError", "." },
    { "little data", of_tensor({ name = "w", dims = { 1 << 40 }, data_type = 1,
      raw_data = "abcd" }), "ValueError", "4 bytes, its shape" },
    { "few values", of_tensor({ name = "w", dims = { 1 << 40 }, data_type = 1,
      float_data = { 1 } }), "ValueError", "1 values, its shape" },
    { "a type of no tensor", of_tensor({ name = "w", dims = { 1 }, data_type = 77,
      raw_data = "abcd" }), "NotImplementedError", "type 77" },
    { "texts", of_tensor({ name = "w", dims = { 1 }, data_type = 8, string_data = { "x" } }),
      "NotImplementedError", "STRING" },
    { "segments", of_tensor({ name = "w", dims = { 1 }, data_type = 1, raw_data = "abcd",
      segment = { begin = 0, ["end"] = HUGE } }), "NotImplementedError", "segments" },
    { "a file above", outside("../../../etc/hosts", "0", "4"), "ValueError", "%.%." },
    { "a file of the system", outside("/etc/hosts", "0", "4"), "ValueError", "within the folder" },
    { "a file that is none", outside("none", "0", "4"), "FileNotFoundError", "tensor 'w'" },
    { "a folder", outside(".", "0", "4"), "OSError", "not a regular file" },
    { "a part behind the end", outside("onnx.dict", "99999", "4"), "ValueError", "not there" },
    { "a part that wraps", outside("onnx.dict", tostring(HUGE), "4"), "ValueError", "not there" },
    { "another length", outside("onnx.dict", "0", tostring(HUGE)), "ValueError", "its shape" },
    { "a place that is no number", outside("onnx.dict", "x", "4"), "ValueError", "an integer" },
    { "a loop of 2^62 rounds", loop(1 << 62), "RuntimeError", "more nodes than may run" },
    { "a loop without an end", loop(HUGE, "t"), "RuntimeError", "more nodes than may run" },
    { "branches in branches", depth(32), "ValueError", "nested deeper than 32" },
    { "a function that calls itself", calls({ node("F", { "a" }, { "b" }, {}, "m") }),
      "ValueError", "calls itself" },
    { "a function without a body", calls({}), "ValueError", "made by no node" },
    { "terabytes by ConstantOfShape", filled({ 1 << 40 }), "OutOfMemoryError", TOO_LARGE },
    { "beyond all memory by ConstantOfShape", filled({ 1 << 62, 1 << 62 }), "OverflowError",
      "too many elements" },
    { "a negative size of ConstantOfShape", filled({ -1 }), "RuntimeError", "negative" },
    { "terabytes by Expand", model({ node("Expand", { "x", "s" }, { "z" }),
      node("Relu", { "z" }, { "y" }) }, { ints("s", 1 << 30, 1 << 8, 2, 3) }), "OutOfMemoryError",
      TOO_LARGE },
    { "terabytes by Tile", with("Tile", { { 1 << 20, 1 << 20 } }), "OutOfMemoryError", TOO_LARGE },
    { "terabytes by Pad", with("Pad", { { 0, 0, 1 << 38, 0 } }), "OutOfMemoryError", TOO_LARGE },
    { "terabytes by Resize", model({ node("Resize", { "x", "", "s" }, { "y" }) },
      { tensors.write("s", torch.tensor({ 1e5, 1e5 })) }), "OutOfMemoryError", TOO_LARGE },
    { "terabytes by Range", model({ node("Range", { "a", "b", "c" }, { "y" }) },
      { tensors.write("a", torch.tensor(0)), tensors.write("b", torch.tensor(1 << 40)),
        tensors.write("c", torch.tensor(1)) }, {}), "OutOfMemoryError", TOO_LARGE },
    { "a range without an end", model({ node("Range", { "a", "b", "c" }, { "y" }) },
      { tensors.write("a", torch.tensor(0)), tensors.write("b", torch.tensor(1)),
        tensors.write("c", torch.tensor(0)) }, {}), "ValueError", "." },
    { "terabytes by OneHot", model({ node("Cast", { "x" }, { "i" }, attribute("to", 7)),
      node("OneHot", { "i", "d", "v" }, { "y" }) }, { ints("d", 1 << 40), ints("v", 0, 1) }),
      "OutOfMemoryError", TOO_LARGE },
    { "another shape", with("Reshape", { { 7, -1 } }), "RuntimeError", "invalid for input" },
    { "a shape with two -1", with("Reshape", { { -1, -1 } }), "RuntimeError", "more %-1" },
    { "an index beyond", with("Gather", { { 5 } }), "IndexError", "out of bounds" },
    { "an axis beyond", model({ node("Concat", { "x", "x" }, { "y" }, attribute("axis", HUGE)) }),
      "ValueError", "." },
    { "an order that is none", model({ node("Transpose", { "x" }, { "y" },
      attribute("perm", { 0, 0 })) }), "RuntimeError", "duplicate" },
    { "a kernel of 2^62", model({ node("Unsqueeze", { "x", "a" }, { "z" }), node("MaxPool", { "z" },
      { "y" }, attribute("kernel_shape", { 1 << 62 })) }, { ints("a", 0) }), "ValueError", "." },
  },
}
