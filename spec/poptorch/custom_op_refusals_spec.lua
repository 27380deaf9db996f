-- Custom operators: arguments and attributes that are refused, and libraries whose
-- functions do what they should not.
local custom_ops = require("spec.support.custom_ops")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")
local nn = torch.nn

setup(function()
  for _, name in ipairs({ "leaky_relu", "test_ops", "odd_ops", "cube", "many_attributes" }) do
    custom_ops.load(name)
  end
end)

local x = torch.tensor({ 1.0, 2.0, 3.0 })

local function call(name, domain, attributes, inputs, examples)
  return poptorch.custom_op(inputs or { x }, name, domain, 1, examples or { x }, attributes)
end

local function strange(what, input)
  return call("Strange", "spec.odd", { what = what }, { input or x })[1]
end

local function inference(forward)
  local Model = nn.Module:extend("Model")
  function Model.forward(_, ...)
    return forward(...)
  end
  return poptorch.inferenceModel(Model())
end

-- Eagerly and in a model.
local function refused(class, pattern, ...)
  local arguments = table.pack(...)
  helper.raises(class, pattern, function()
    call(table.unpack(arguments, 1, arguments.n))
  end)
  helper.raises(class, pattern, function()
    inference(function()
      return call(table.unpack(arguments, 1, arguments.n))
    end)(x)
  end)
end

describe("attributes of custom operators", function()
  local function leaky(class, pattern, attributes)
    refused(class, pattern, "LeakyRelu", "com.acme", attributes)
  end
  local function vec(class, pattern, value)
    refused(class, pattern, "AddScalarVecFloat", "test.poptorch", { vec = value })
  end

  it("have names that are ASCII strings", function()
    leaky("ValueError", "all keys must be strings, got int 1", { 1.0 })
    leaky("ValueError", "all keys must be strings, got bool", { [true] = 1.0 })
    leaky("ValueError", "alph\u{e4} contains non%-ASCII characters", { ["alph\u{e4}"] = 1.0 })
    leaky("ValueError", "'two words' is no name", { ["two words"] = 1.0 })
    leaky("ValueError", "'' is no name", { [""] = 1.0 })
  end)

  it("are floats, ints, strings or lists of one kind", function()
    leaky("ValueError", "'alpha': expected a float, an int, a string or a list", { alpha = true })
    leaky("ValueError", "'alpha': expected a float", { alpha = print })
    leaky("ValueError", "'alpha': expected a float", { alpha = x })
    leaky("ValueError", "'alpha': expected a float", { alpha = { a = 1.0 } })
    vec("ValueError", "'vec': a list holds only floats, only ints or only strings; "
      .. "element 1 is int 2", { 1.0, 2 })
    vec("ValueError", "element 2 is string \"c\"", { 1.0, 2.0, "c" })
    vec("ValueError", "element 0 is bool", { true })
    vec("ValueError", "element 0 is a list of 1", { { 1.0 } })
    vec("ValueError", "'vec': expected a float", { 1.0, nil, 3.0, x = 1 })
    leaky("ValueError", "zero byte", { alpha = "a\0b" })
    leaky("ValueError", "attribute 'alpha': an empty list has no type", { alpha = {} })
    vec("ValueError", "attribute 'vec': an empty list has no type", {})
  end)

  it("are those of the operator, of its types, and all that have no default", function()
    leaky("Error", "com.acme.LeakyRelu: no attribute 'beta'. Allowed: alpha", { beta = 1.0 })
    leaky("Error", "'alpha': expected a float, got an int %(2.0 is a float, 2 an int%)",
      { alpha = 2 })
    leaky("Error", "'alpha': expected a float, got a string", { alpha = "2" })
    leaky("Error", "'alpha': expected a float, got a list of floats", { alpha = { 2.0 } })
    vec("Error", "'vec': expected a list of floats, got a list of ints %(2.0 is a float", { 2 })
    vec("Error", "'vec': expected a list of floats, got a float", 2.0)
    refused("Error", "attribute 'vec', a list of floats, is missing", "AddScalarVecFloat",
      "test.poptorch", nil)
    refused("Error", "attribute 'scalar', an int, is missing and has no default", "AddScalarInt",
      "test.poptorch", {})
    refused("Error", "com.acme.Cube: no attribute 'a'. Allowed: none", "Cube", "com.acme",
      { a = 1 }, { x, x }, { x, x })
    refused("Error", "no attribute 'x'. Allowed: float_one, float_minus_two, int_zero",
      "ManyAttributeOp", "test.poptorch", { x = 1 })
  end)

  it("keep every float of 32 bits, int of 64 bits and character", function()
    local function add(scalar)
      return call("AddScalarFloat", "test.poptorch", { scalar = scalar }, { x[0] })[1]:item()
    end
    local most = 0x1.fffffep127
    assert.equal(most, add(most))
    assert.equal(-most, add(-most))
    assert.equal(math.huge, add(math.huge))
    assert.equal(-math.huge, add(-math.huge))
    assert(add(0 / 0) ~= add(0 / 0))
    assert.equal(1 + 0x1p-23, add(0x1p-23))
    refused("Error", "3.40282e%+38 is too high for a Popart float attribute", "AddScalarFloat",
      "test.poptorch", { scalar = 0x1.fffffep127 * (1 + 2 ^ -30) })
    local long = torch.tensor({ 0 })
    for _, n in ipairs({ math.maxinteger >> 11 << 11, math.mininteger, -1 }) do -- as doubles
      assert.equal(n, call("AddScalarInt", "test.poptorch", { scalar = n }, { long },
        { long })[1]:item())
    end
    local all = {}
    for c = 1, 127 do
      all[c] = string.char(c)
    end
    local text = table.concat(all)
    local e = helper.raises("Error", nil, function()
      call("ReduceOp", "test.poptorch", { reduction = text })
    end)
    assert(e.message:find(("'%s' is neither sum nor mean"):format(text), 1, true), e.message)
  end)
end)

describe("the text of attributes in a step", function()
  local core = require("lupine.core")
  local compiled = require("spec.support.compiled")

  local function text_of(attributes)
    local step = compiled.step(function(v)
      return call("LeakyRelu", "com.acme", attributes, { v }, { v })[1]
    end, { x })
    step:complete({})
    return step:text("step")
  end

  it("is one for all ways to give them", function()
    assert.matches('attributes="alpha=0.01"', text_of(nil), 1, true)
    assert.equal(text_of(nil), text_of({ alpha = 0.01 }))
    assert.matches('attributes="alpha=2.0"', text_of({ alpha = 2.0 }), 1, true)
  end)

  it("names each once, and no list is longer than 65536", function()
    local text = text_of({ alpha = 2.0 })
    local function parsed(attributes)
      return core.step_parse((text:gsub('attributes="[^"]*"', function()
        return ('attributes="%s"'):format(attributes)
      end)))
    end
    assert.matches('alpha=2.0"', parsed("alpha=2e0"):text("step"), 1, true)
    helper.raises("Exception", "attribute 'alpha' is given twice", function()
      parsed("alpha=2.0, alpha=2.0")
    end)
    local function vec(n)
      local list = {}
      for i = 1, n do
        list[i] = 1
      end
      return call("AddScalarVecInt", "test.poptorch", { vec = list }, { torch.zeros(n) },
        { torch.zeros(n) })[1]
    end
    assert.equal(65536, vec(65536):sum():item())
    helper.refuses("Error", "a list has at most 65536 elements", vec, 65537)
  end)
end)

describe("custom_op", function()
  it("names what is wrong in its arguments", function()
    local function fails(class, pattern, ...)
      helper.refuses(class, pattern, poptorch.custom_op, ...)
    end
    fails("TypeError", "custom_op%(inputs%): expected a list of tensors, got Tensor", x, "Cube",
      "com.acme", 1, { x })
    fails("TypeError", "custom_op%(inputs%): element 1: expected a Tensor, got int 3", { x, 3 },
      "Cube", "com.acme", 1, { x })
    fails("TypeError", "custom_op%(name%)", { x }, 7, "com.acme", 1, { x })
    fails("TypeError", "custom_op%(domain%)", { x }, "Cube", nil, 1, { x })
    fails("TypeError", "custom_op%(domain_version%)", { x }, "Cube", "com.acme", "1", { x })
    fails("ValueError", "custom_op%(domain_version%)", { x }, "Cube", "com.acme", 0, { x })
    fails("TypeError", "custom_op%(example_outputs%): expected a list of tensors", { x }, "Cube",
      "com.acme", 1)
    fails("TypeError", "has no parameter 'exmple'", { x }, "Cube", "com.acme", 1, { exmple = {} })
  end)

  it("has as many outputs, of their types, as there are examples", function()
    refused("Error", "com.acme.LeakyRelu has 1 output, example_outputs 2", "LeakyRelu", "com.acme",
      nil, { x }, { x, x })
    refused("Error", "output 0 of com.acme.LeakyRelu is torch.float32, its example torch.float16",
      "LeakyRelu", "com.acme", nil, { x }, { x:half() })
    refused("Error", "com.acme.Cube takes 2 tensors, got 1", "Cube", "com.acme")
  end)

  it("says what is in no library", function()
    refused("Error", "custom operator 'Cub' of domain 'com.acme', version 1", "Cub", "com.acme")
    helper.raises("Error", "has version 2 of the custom operator com.acme.Cube; libcube.so has "
      .. "version 1", function()
        poptorch.custom_op({ x, x }, "Cube", "com.acme", 2, { x, x })
      end)
  end)

  it("says what the operator says of its inputs", function()
    refused("Error", "com.acme.Cube: x and bias must be floats of one size", "Cube", "com.acme",
      nil, { x, x["0:2"] }, { x, x })
  end)
end)

describe("a saved program", function()
  it("names the library that it needs", function()
    local path = os.tmpname()
    local Net = nn.Module:extend("Net")
    function Net.forward(_, y)
      return call("LeakyRelu", "com.acme", nil, { y }, { y })[1]
    end
    local model = poptorch.inferenceModel(Net())
    model(x)
    model:save(path)
    local out, err = program.run({ "-e", ([[
      local torch, poptorch = require("torch"), require("poptorch")
      local Net = torch.nn.Module:extend("Net")
      local ok, e = pcall(poptorch.load, %q)
      print(ok, e.message)
    ]]):format(path) })
    os.remove(path)
    assert(out:find("false\t.*custom operator 'LeakyRelu' of domain 'com.acme', version 1: load "
      .. "libleaky_relu.so by torch.ops.load_library"), out .. err)
  end)
end)

describe("a library's function", function()
  it("that gives types which there are not is named", function()
    for what, says in pairs({
      rank = "gave output 0 99 dimensions. Allowed: 0 to 12",
      ["negative rank"] = "gave output 0 %-1 dimensions",
      size = "gave output 0 a dimension of %-5",
      dtype = "gave output 0 the dtype 77. Allowed: 1 to 10",
      silent = "its function `infer` returned 17",
      types = "types of 3",
      huge = "gave output 0 a shape that cannot be: .* too many elements",
    }) do
      helper.raises("Error", "spec.odd.Strange: .*" .. says, function()
        strange(what)
      end)
    end
  end)

  it("that gives other types the next time is named", function()
    helper.raises("Error", "spec.odd.Strange: its library gives output 0 the type float32 .*, "
      .. "where the program has float32", function()
        strange("fickle")
      end)
  end)

  it("that fails ends the call, which can be made again", function()
    helper.raises("Error", "spec.odd.Strange: negative", function()
      strange("run", -x)
    end)
    helper.raises("Error", "spec.odd.Strange: x+$", function()
      strange("long")
    end)
    local model = inference(function(y)
      return strange("run", y)
    end)
    helper.near(model(x), x)
    helper.raises("Error", "spec.odd.Strange: negative", function()
      model(-x)
    end)
    helper.near(model(x), x)
  end)

  it("of a gradient fails a backward pass, and a training step", function()
    local y = strange("copy", x:clone():requires_grad_(true))
    helper.raises("Error", "spec.odd.Strange: no way back from 1", function()
      y:sum():backward()
    end)
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.w = nn.Parameter(torch.ones(3))
    end
    function Net:forward(z)
      return poptorch.identity_loss(strange("copy", self.w * z), "sum")
    end
    local net = Net()
    local trainer = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(),
      { lr = 0.1 }))
    helper.raises("Error", "spec.odd.Strange: no way back from 1", function()
      trainer(x)
    end)
    helper.near(net.w:detach(), torch.ones(3))
  end)

  it("that is missing for the gradient is named when one is asked", function()
    local w = x:clone():requires_grad_(true)
    local y = call("AddScalarFloat", "test.poptorch", { scalar = 1.0 }, { w })[1]
    helper.raises("Error", "test.poptorch.AddScalarFloat has no gradient", function()
      y:sum():backward()
    end)
    local cubed = call("Cube", "com.acme", nil, { w, w }, { w, w })[1]
    local grad = torch.autograd.grad({ cubed:sum() }, { w }, nil, { create_graph = true })[1]
    helper.raises("NotImplementedError", "com.acme.Cube: .*none for the gradient of", function()
      grad:sum():backward()
    end)
  end)
end)
