--- Writes seeds of the target `onnx` to its corpus:
---   build/lupine spec/fuzz/harness/onnx_seeds.lua
local control = require("lupine.control")
local core = require("lupine.core")
local files = require("spec.support.files")
local nn = require("torch.nn")
local onnx = require("lupine.onnx")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local function write(name, model)
  files.write("spec/fuzz/corpus/onnx/" .. name, core.onnx_encode(model, "ModelProto"))
end

local function node(op, inputs, outputs, attributes, domain)
  return { op_type = op, input = inputs, output = outputs, attribute = attributes, domain = domain }
end

local function model(nodes, inputs, initializers, functions)
  local last = nodes[#nodes].output[1]
  return { ir_version = 8, opset_import = { { version = 13 }, { domain = "m", version = 1 } },
    functions = functions, graph = { node = nodes, input = inputs, initializer = initializers,
    output = { { name = last } } } }
end

local x = proto.info("x", torch.float32, { 2, 3 })

write("linear", onnx.export(nn.Linear(3, 2), { torch.ones({ 2, 3 }) }))
write("an_image", onnx.export(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(),
  nn.MaxPool2d(2)), { torch.ones({ 1, 1, 6, 6 }) }))
write("recurrent", onnx.export(nn.GRU(2, 2), { torch.ones({ 2, 1, 2 }) }))
write("loop", onnx.export(function(a)
  return control.loop(3, function(b) return b * 2 end, { a })[1]
end, { torch.ones({ 2 }) }))
write("branch", onnx.export(function(c, a)
  return control.branch(c, function(b) return b * 2 end, { a },
    function(b) return b + 1 end, { a })[1]
end, { torch.tensor(true), torch.ones({ 2 }) }))
write("shapes", model({ node("Shape", { "x" }, { "s" }), node("ConstantOfShape", { "s" }, { "c" }),
  node("Concat", { "x", "c" }, { "y" }, { proto.attribute("axis", 1) }),
  node("Expand", { "y", "e" }, { "z" }) }, { x },
  { tensors.write("e", torch.tensor({ 2, 1, 1 })) }))
write("function", model({ node("F", { "x" }, { "y" }, { proto.attribute("slope", 0.5) }, "m") },
  { x }, nil, { { name = "F", domain = "m", input = { "a" }, output = { "b" },
  attribute = { "slope" }, opset_import = { { version = 13 } }, node = { node("LeakyRelu", { "a" },
  { "b" }, { { name = "alpha", ref_attr_name = "slope", type = 1 } }) } } }))
write("outside", model({ node("Add", { "x", "w" }, { "y" }) }, { x }, { { name = "w", dims = { 3 },
  data_type = 1, data_location = 1, external_data = { { key = "location", value = "onnx.dict" },
  { key = "offset", value = "4" } } } }))
write("attributes", model({ node("Constant", {}, { "c" }, { proto.attribute("value_floats",
  { 1.5, 2.5, 3.5 }) }), node("Cast", { "x" }, { "h" }, { proto.attribute("to", 10) }),
  node("Cast", { "h" }, { "f" }, { proto.attribute("to", 1) }),
  node("Gemm", { "f", "f", "c" }, { "y" }, { proto.attribute("transB", 1) }) }, { x }))
write("typed_data", model({ node("Mul", { "x", "w" }, { "y" }) }, { x }, { { name = "w",
  dims = { 3 }, data_type = 10, int32_data = { 15360, 16384, 0 } }, { name = "i", dims = { 1 },
  data_type = 7, int64_data = { -1 } } }))
