-- Functions that a model brings with it.
local helper = require("spec.helper")
local lupine = require("lupine")
local onnx = require("lupine.onnx")
local proto = require("lupine.onnx.proto")
local torch = require("torch")

local function node(op, inputs, outputs, attributes, domain)
  return { op_type = op, input = inputs, output = outputs, attribute = attributes or {},
    domain = domain }
end

local function ref(name, from, kind)
  return { name = name, ref_attr_name = from, type = kind }
end

local function func(name, inputs, outputs, nodes, attributes)
  return { name = name, domain = "mine", input = inputs, output = outputs, node = nodes,
    attribute = attributes or {}, opset_import = { { domain = "", version = 13 },
      { domain = "mine", version = 1 } } }
end

local function model(nodes, functions, initializers)
  local last = nodes[#nodes].output
  return { ir_version = 8, opset_import = { { domain = "", version = 13 },
    { domain = "mine", version = 1 } }, functions = functions, graph = { name = "g", node = nodes,
    input = { proto.info("x", torch.float32, { 2, 2 }) }, initializer = initializers,
    output = { proto.info(last[1], torch.float32, { 2, 2 }) } } }
end

local x = torch.tensor({ { -1.0, 2.0 }, { 3.0, -4.0 } })

describe("a model's function", function()
  it("runs its nodes, with its own names", function()
    local twice = func("Twice", { "a" }, { "y" }, { node("Add", { "a", "a" }, { "x" }),
      node("Relu", { "x" }, { "y" }) })
    local m = onnx.load(model({ node("Twice", { "x" }, { "b" }, {}, "mine"),
      node("Twice", { "b" }, { "y" }, {}, "mine") }, { twice }))
    assert.same({ { 0, 8 }, { 12, 0 } }, m(x):tolist())
    assert.same({ { 0, 8 }, { 12, 0 } }, lupine.compile(m, { x })(x):tolist())
  end)

  it("gets attributes of the call, or an operator's default", function()
    local f = func("Leaky", { "a" }, { "y" },
      { node("LeakyRelu", { "a" }, { "y" }, { ref("alpha", "slope", 1) }) }, { "slope" })
    local function run(attributes)
      return onnx.load(model({ node("Leaky", { "x" }, { "y" }, attributes, "mine") }, { f }))(x)
    end
    assert.same({ { -0.5, 2 }, { 3, -2 } }, run({ proto.attribute("slope", 0.5) }):tolist())
    assert.is_true(torch.allclose(run({}), torch.where(x:lt(0), x * 0.01, x)))
    helper.refuses("ValueError", "the function 'Leaky' has no attribute 'other'", run,
      { proto.attribute("other", 1) })
    helper.refuses("ValueError", "two attributes 'alpha'", onnx.load, model({ node("LeakyRelu",
      { "x" }, { "y" }, { proto.attribute("alpha", 1.0), proto.attribute("alpha", 2.0) }) }))
  end)

  it("may be called without inputs that its nodes can do without", function()
    local f = func("Cut", { "a", "low", "high" }, { "y" },
      { node("Clip", { "a", "low", "high" }, { "y" }) })
    local function run(...)
      return onnx.load(model({ node("Cut", { ... }, { "y" }, {}, "mine") }, { f }))(x)
    end
    assert.same(x:tolist(), run("x"):tolist())
    helper.refuses("ValueError", "node 0 %(Clip%): input 'input' is left out", run)
  end)

  it("comes before an operator of its name", function()
    local f = func("Relu", { "a" }, { "y" }, { node("Add", { "a", "a" }, { "y" }) })
    f.domain = ""
    local m = onnx.load(model({ node("Relu", { "x" }, { "y" }) }, { f }))
    assert.same((x + x):tolist(), m(x):tolist())
  end)

  it("may have parameters of the model as inputs", function()
    local tensors = require("lupine.onnx.tensors")
    local w = torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } })
    local f = func("Shift", { "a", "b" }, { "y" }, { node("Add", { "a", "b" }, { "y" }) })
    local m = onnx.load(model({ node("Shift", { "x", "w" }, { "y" }, {}, "mine") }, { f },
      { tensors.write("w", w) }))
    m(x):sum():backward()
    assert.same({ { 1, 1 }, { 1, 1 } }, m:get_parameter("w").grad:tolist())
  end)

  it("neither calls itself nor makes more nodes than can run", function()
    local a = func("A", { "x" }, { "y" }, { node("B", { "x" }, { "y" }, {}, "mine") })
    local b = func("B", { "x" }, { "y" }, { node("A", { "x" }, { "y" }, {}, "mine") })
    helper.refuses("ValueError", "the function 'A' calls itself", onnx.load,
      model({ node("A", { "x" }, { "y" }, {}, "mine") }, { a, b }))
    local list = { func("F1", { "x" }, { "y" }, { node("Relu", { "x" }, { "y" }) }) }
    for i = 2, 31 do
      local name = "F" .. i - 1
      list[i] = func("F" .. i, { "x" }, { "y" }, { node(name, { "x" }, { "b" }, {}, "mine"),
        node(name, { "b" }, { "y" }, {}, "mine") })
    end
    helper.refuses("ValueError", "more than 1048576 nodes", onnx.load,
      model({ node("F31", { "x" }, { "y" }, {}, "mine") }, list))
    list[#list + 1] = list[1]
    helper.refuses("ValueError", "two functions 'F1'", onnx.load,
      model({ node("F1", { "x" }, { "y" }, {}, "mine") }, list))
  end)

  it("is nested up to a limit", function()
    local list = { func("F1", { "x" }, { "y" }, { node("Relu", { "x" }, { "y" }) }) }
    local function deep(n)
      for i = #list + 1, n do
        list[i] = func("F" .. i, { "x" }, { "y" },
          { node("F" .. i - 1, { "x" }, { "y" }, {}, "mine") })
      end
      return onnx.load(model({ node("F" .. n, { "x" }, { "y" }, {}, "mine") }, list))
    end
    assert.same(x:relu():tolist(), deep(31)(x):tolist())
    helper.refuses("ValueError", "nested deeper than 32", deep, 32)
  end)
end)
