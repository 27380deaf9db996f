-- The torch.nn.Module of a model: its parameters, its modes, its errors.
local core = require("lupine.core")
local helper = require("spec.helper")
local lupine = require("lupine")
local onnx = require("lupine.onnx")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")
local nn, optim = torch.nn, torch.optim

local function node(op, inputs, outputs, ...)
  return { op_type = op, input = inputs, output = outputs, attribute = { ... } }
end

local function model(nodes, initializers, more)
  local g = { node = nodes, input = { proto.info("x", torch.float32, { 2, 2 }) },
    output = { { name = "y" } }, initializer = {} }
  for i, row in ipairs(initializers or {}) do
    g.initializer[i] = tensors.write(row[1], row[2])
  end
  for key, value in pairs(more or {}) do
    g[key] = value
  end
  return { ir_version = 8, opset_import = { { version = 13 } }, graph = g }
end

local x = torch.tensor({ { 1.0, -2.0 }, { 3.0, -4.0 } })
local ADD = node("Add", { "x", "w" }, { "y" })

local function names_of(each)
  local out = {}
  for name in each do
    out[#out + 1] = name
  end
  table.sort(out)
  return out
end

describe("the module of a model", function()
  it("has its initializers under their names", function()
    local t = torch.ones({ 2 })
    local m = onnx.load(model({ node("Add", { "x", "a.b.weight" }, { "1" }),
      node("Add", { "1", "a.bias" }, { "2" }), node("Add", { "2", "scale" }, { "3" }),
      node("Reshape", { "3", "shape" }, { "y" }) }, { { "a.b.weight", t }, { "a.bias", t },
      { "scale", t }, { "shape", torch.tensor({ 4 }) }, { "unused", t } }))
    assert.same({ "a.b.weight", "a.bias", "scale" }, names_of(m:named_parameters()))
    assert.same({ 4, 1, 6, -1 }, m(x):tolist())
    m:get_parameter("scale").data:fill_(10)
    assert.same({ 13, 10, 15, 8 }, m(x):tolist())
    m:load_state_dict(m:state_dict())
  end)

  it("takes names that no module can have", function()
    local names = { "a", "a.b", "a..b", ".a", "a.", "forward", "training", "x.forward", "1", "a.1" }
    local nodes, rows, last = {}, {}, "x"
    for i, name in ipairs(names) do
      nodes[i] = node("Add", { last, name }, { i == #names and "y" or "v" .. i })
      last, rows[i] = "v" .. i, { name, torch.ones({ 1 }) }
    end
    local m = onnx.load(model(nodes, rows))
    assert.equal(#names, #names_of(m:named_parameters()))
    assert.same((x + #names):tolist(), m(x):tolist())
  end)

  it("has running statistics as buffers, and trains", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    local m = onnx.load(onnx.export(net, { x }))
    assert.same({ "1.running_mean", "1.running_var" }, names_of(m:named_buffers()))
    m:eval()
    local optimizer = optim.SGD(m:parameters(), { lr = 0.05 })
    local first, last
    for _ = 1, 20 do
      optimizer:zero_grad()
      local loss = (m(x) - 1):pow(2):mean()
      loss:backward()
      optimizer:step()
      first, last = first or loss:item(), loss:item()
    end
    assert(last < first * 0.5)
  end)

  it("is compiled as it runs", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 2))
    local m = onnx.load(onnx.export(net, { x }))
    helper.near(lupine.compile(m, { x })(x):detach(), m(x):detach():tolist())
  end)

  it("has each name once", function()
    for _, m in ipairs({ model({ ADD, ADD }, { { "w", torch.ones({ 2 }) } }),
      model({ ADD }, { { "w", torch.ones({ 2 }) }, { "w", torch.ones({ 2 }) } }),
      model({ ADD, node("Abs", { "y" }, { "w" }) }, { { "w", torch.ones({ 2 }) } }) }) do
      helper.refuses("ValueError", "two values have the name '[yw]'", onnx.load, m)
    end
  end)

  it("is loaded from bytes, tables and files", function()
    local table_of = model({ ADD }, { { "w", torch.ones({ 2 }) } })
    local bytes = core.onnx_encode(table_of, "ModelProto")
    local path = os.tmpname()
    proto.write(table_of, path)
    for _, from in ipairs({ table_of, bytes, path }) do
      assert.same((x + 1):tolist(), onnx.load(from)(x):tolist())
    end
    os.remove(path)
    helper.refuses("TypeError", "expected a path", onnx.load, 5)
    helper.refuses("TypeError", "expected a path", onnx.load, {})
    helper.refuses("FileNotFoundError", "none.onnx", onnx.load, "none.onnx")
  end)

  it("gives inputs with initializers the values of these", function()
    local m = onnx.load(model({ ADD }, { { "w", torch.ones({ 2 }) } }, { input = {
      proto.info("x", torch.float32, { 2, 2 }), proto.info("w", torch.float32, { 2 }) } }))
    assert.same({ "x" }, m.input_names)
    assert.same((x + 1):tolist(), m(x):tolist())
  end)

  it("says what is wrong with a call", function()
    local m = onnx.load(model({ ADD }, { { "w", torch.ones({ 3 }) } }))
    helper.refuses("TypeError", "takes 1 inputs %(x%), 0 were given", m)
    helper.refuses("TypeError", "input 'x': expected a tensor", m, 5)
    helper.refuses("ValueError", "node 0 %(Add%): ", m, x)
  end)

  it("meets a device's narrowed inputs with constants of 64 bits", function()
    local n = onnx.load(model({ node("Add", { "i", "k" }, { "y" }) }, { { "k",
      torch.tensor({ 1, 2 }) } }, { input = { proto.info("i", torch.int64, { 2 }) } }))
    local poptorch = require("poptorch")
    poptorch.setLogLevel("ERR")
    local wrapped = poptorch.inferenceModel(n)
    assert.same({ 4, 6 }, wrapped(torch.tensor({ 3, 4 })):tolist())
    wrapped:destroy()
  end)

  it("names all operators that are not there", function()
    local e = helper.refuses("NotImplementedError", "not supported", onnx.load,
      model({ node("One", { "x" }, { "a" }), node("Two", { "a" }, { "y" }) }))
    assert.truthy(e.message:find("One, Two", 1, true))
  end)
end)
