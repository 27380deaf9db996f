-- Operators as methods of a Builder: their names and what they take.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

-- What an expression of inputs gives in an inference session.
local function value(expression, ...)
  local b, ids, inputs = popart.Builder(), {}, {}
  for i, t in ipairs({ ... }) do
    ids[i] = b:addInputTensor(popart.TensorInfo(t))
    inputs[ids[i]] = t
  end
  local o = expression(b.aiGraphcore, ids)
  b:addOutputTensor(o)
  return helper.run(helper.inference(b, popart.DataFlow(1, { o })), inputs)[o]
end

describe("a Builder's opset", function()
  it("has losses by PopART's names", function()
    local x = torch.tensor({ 1.0, -2, 3 })
    assert.equal(3, value(function(g, ids)
      return g:l1loss(ids, 0.5, popart.ReductionType.Sum)
    end, x):item())
    helper.near(value(function(g, ids)
      return g:nllloss(ids, { reduction = popart.ReductionType.Mean })
    end, torch.tensor({ { 0.5, 0.5 }, { 0.25, 0.75 } }), torch.tensor({ 0, 1 },
      { dtype = torch.int32 })), -(math.log(0.5) + math.log(0.75)) / 2)
    helper.near(value(function(g, ids)
      return g:nllloss(ids, popart.ReductionType.NoReduction)
    end, torch.tensor({ { 0.5, 0.5 } }), torch.tensor({ 0 }, { dtype = torch.int32 })),
      { -math.log(0.5) })
  end)

  it("has all methods of the original that operators stand behind", function()
    local g = popart.Builder().aiGraphcore
    for _, name in ipairs({ "ctcloss", "normalize_image", "packedDataBlock", "identityloss",
      "groupedscatterreduce" }) do
      assert.is_function(g[name], name)
    end
    helper.refuses("AttributeError", "no operator 'l1'", function()
      return g.l1
    end)
  end)

  it("tells a scattering in groups from a plain one", function()
    local data = torch.tensor({ 1.0, 2, 3 })
    local index = torch.tensor({ 0, 0, 1 }, { dtype = torch.int32 })
    assert.same({ 3, 3 }, value(function(g, ids)
      return g:scatterreduce(ids, 2, -1, popart.ScatterReduction.Sum, 1)
    end, data, index):tolist())
    helper.refuses("TypeError", "group_size", value, function(g, ids)
      return g:scatterreduce(ids, 2, { group_size = 2 })
    end, data, index)
    assert.same({ { 3, 3 } }, value(function(g, ids)
      return g:groupedscatterreduce(ids, 2, -1, popart.ScatterReduction.Sum, 1)
    end, data:reshape(1, 3), index:reshape(1, 3)):tolist())
  end)

  it("is completed and explained, which chooses no version", function()
    local complete, describe = require("lupine.complete").complete, require("lupine.describe")
    local globals = { b = popart.Builder() }
    local _, list = complete("b.aiOnnx:conv", globals, function()
      return {}
    end)
    assert.equal("conv           convinteger    convtranspose", list)
    assert.equal("ss(", (complete("b.aiGraphcore:nlllo", globals):gsub("%(?$", "(")))
    assert.matches("^nllloss%(args, reduction, ignoreIndex, inputIsLogProbability, debugContext%)",
      describe("b.aiGraphcore.nllloss", globals))
    assert.is_nil(next(rawget(globals.b, "_versions")))
  end)

  it("takes what follows args where PopART has it, and gives as many outputs", function()
    local x = torch.tensor({ { 3.0, 1, 2 }, { 0.5, 7, 0.1 } })
    helper.near(value(function(g, ids)
      return g:sort(ids, 0, true)[1]
    end, x), { { 3, 7, 2 }, { 0.5, 1, 0.1 } })
    helper.near(value(function(g, ids)
      return g:reducemedian(ids, { 1 }, 0)[1]
    end, x), { 2, 0.5 })
    local b = popart.Builder()
    local g, i = b.aiGraphcore, b:addInputTensor("FLOAT", { 2, 3 })
    local w = b:addInitializedInputTensor(torch.ones(3))
    assert.equal(3, #g:groupnormalization({ i, w, w }, 3, 1e-5, "norm"))
    assert.equal(2, #g:sort({ i }))
    local logs = b:addInputTensor("FLOAT", { 5, 2, 4 })
    local labels, n = b:addInputTensor("INT32", { 2, 2 }), b:addInputTensor("INT32", { 2 })
    assert.is_string(g:ctcloss({ logs, labels, n, n }, popart.ReductionType.Sum, 0))
    local inner = b:createSubgraphBuilder()
    inner:addOutputTensor(inner.aiOnnx:relu({ inner:addUntypedInputTensor() }))
    assert.equal("named:0", g:call({ i }, 1, inner, "named")[1])
  end)

  it("takes truth values for attributes that are 0 or 1", function()
    local b = popart.Builder()
    local i = b:addInputTensor("FLOAT", { 2, 3 })
    for flag, number in pairs({ [true] = 1, [false] = 0 }) do
      local y = b.aiOnnx:reducesum({ i }, { axes = { 1 }, keepdims = flag })
      assert.equal(number, b:getInt64NodeAttribute("keepdims", y))
      assert.same(flag and { 2, 1 } or { 2 }, b:getTensorShape(y))
    end
    local w = b:addInputTensor("FLOAT", { 3 })
    assert.same({ 3, 3 }, b:getTensorShape(b.aiOnnx:gemm({ i, i, w }, { transA = true })))
  end)

  it("wants a colon", function()
    local b = popart.Builder()
    helper.refuses("TypeError", "call it with a colon, object:relu%(", function()
      b.aiOnnx.relu({ b:addInputTensor("FLOAT", { 1 }) })
    end)
  end)

  it("has the poolings of old versions as they were", function()
    local function old(version)
      local b = popart.Builder()
      return b, b:addInputTensor("FLOAT", { 1, 2, 8, 8 }), b["aiOnnxOpset" .. version]
    end
    local b, x, o = old(7)
    local y = o:maxpool({ x }, { 3, 3 }, { 1, 1, 1, 1 }, { 2, 2 })
    assert.same({ 1, 2, 4, 4 }, b:getTensorShape(y))
    y = o:averagepool({ x }, { 2, 2 }, 1, { 0, 0, 0, 0 }, { 2, 2 })
    assert.same({ 1, 2, 4, 4 }, b:getTensorShape(y))
    b, x, o = old(8)
    local list = o:maxpool({ x }, 2, { 2, 2 }, { 0, 0, 0, 0 }, 0, { 2, 2 })
    assert.same({ 1, 2, 4, 4 }, b:getTensorShape(list[2]))
    b, x, o = old(10)
    list = o:maxpool({ x }, 1, { 2, 2 }, 1, {}, { 0, 0, 0, 0 }, 0, { 3, 3 })
    assert.same({ 1, 2, 3, 3 }, b:getTensorShape(list[1]))
  end)
end)
