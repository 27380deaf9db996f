-- Methods of builder.aiGraphcore that are more than their operator's signature.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local refuses = helper.refuses

describe("builder.aiGraphcore", function()
  local builder, gc, x
  before_each(function()
    builder = popart.Builder()
    gc = builder.aiGraphcore
    x = builder:addInputTensor(popart.TensorInfo("FLOAT", { 1, 4, 4 }))
  end)

  local function constant(t)
    return builder.aiOnnx:constant(t)
  end

  local function shape(id)
    return { table.unpack(builder:getTensorShape(id)) }
  end

  it("takes attributes by position behind the inputs, where the outputs are always as many",
    function()
      local s = builder:addInitializedInputTensor(torch.ones(4))
      local y = gc:groupnormalization({ x, s, s }, 2, 1e-4)
      assert.equal(3, #y)
      assert.same({ 2 }, shape(y[2]))
      local values, places = table.unpack(gc:sort({ x }, 1, true))
      assert.same({ 1, 4, 4 }, shape(values))
      assert.equal("int32", builder:getTensorDtypeString(places))
      assert.same({ 1, 1, 4 }, shape(gc:reducemedian({ x }, { 1 }, 1)[1]))
      local w = builder:addInitializedInputTensor(torch.ones(4, 7, 3))
      local outputs = gc:lstm({ x, w }, 0)
      assert.same({ 4, 3 }, shape(outputs[1]))
    end)

  it("gives one id of a loss whose second result is PopART's own", function()
    local p = builder.aiOnnx:logsoftmax({ x }, 2)
    local loss = gc:ctcloss({ p, constant(torch.ones(4, 2):int()), constant(torch.ones(4):int()),
      constant(torch.ones(4):int()) }, popart.ReductionType.Mean, 0)
    assert.equal("string", type(loss))
    assert.same({}, shape(loss))
  end)

  it("init makes a tensor of a type, named or not", function()
    local types = popart.DataType
    local y = gc:init({ 2, 3 }, types.FLOAT16, popart.InitType.Zero, "zeros")
    assert.equal("zeros:0", y)
    assert.same({ 2, 3 }, shape(y))
    assert.equal("float16", builder:getTensorDtypeString(y))
    local i = gc:init({ 2 }, types.INT32, popart.InitType.NoInit, 0)
    assert.equal("int32", builder:getTensorDtypeString(i))
  end)

  it("reshape takes one id, printtensor characters", function()
    assert.same({ 4, 4 }, shape(gc:reshape(x, { 4, 4 })))
    assert.same({ 1, 4, 4 }, shape(gc:printtensor({ x }, 1, { title = "t", separator = "," })))
  end)

  it("multiconv takes lists of lists", function()
    local w = builder:addInitializedInputTensor(torch.ones(2, 4, 3))
    local b = builder:addInitializedInputTensor(torch.ones(2))
    local y = gc:multiconv({ { x, w }, { x, w, b } }, { pads = { { 1, 1 }, { 0, 0 } },
      strides = { { 1 }, { 2 } } })
    assert.same({ 1, 2, 4 }, shape(y[1]))
    assert.same({ 1, 2, 1 }, shape(y[2]))
    local plain = gc:multiconv({ { x, w } })
    assert.same({ 1, 2, 2 }, shape(plain[1]))
  end)

  it("test_multiconv_bad_options", function()
    local w = builder:addInitializedInputTensor(torch.ones(2, 4, 3))
    local function bad(text, args, options)
      refuses("popart_exception", text, gc.multiconv, gc, args, options)
    end
    bad("no input tensors", {}, { dilations = {} })
    bad("at least two inputs", { { x } }, { dilations = {} })
    bad("at most three inputs", { { x, w, w, w } }, { dilations = {} })
    bad("number of dilations parameter sets %(1%) does not match the number of input sets %(2%)",
      { { x, w }, { x, w } }, { dilations = { { 1 } } })
    bad("number of availableMemoryProportions parameter sets %(3%)", { { x, w } },
      { availableMemoryProportions = { 0.1, 0.2, 0.3 } })
  end)
end)

describe("the loss of sequences", function()
  it("O10: is PyTorch's, for each blank, reduction and where there is no way", function()
    local F, Reduction = torch.nn.functional, popart.ReductionType
    local logits = torch.arange(5 * 2 * 4):float():reshape({ 5, 2, 4 }):sin() * 3
    local targets = torch.tensor({ { 2, 3, 2 }, { 3, 3, 2 } }, { dtype = torch.int32 })
    local function compare(blank, reduction, zero, lengths)
      local of_target = torch.tensor({ 3, 2 }, { dtype = torch.int32 })
      local leaf = logits:clone():requires_grad_()
      local want = F.ctc_loss(leaf:log_softmax(2), targets, lengths, of_target, blank,
        reduction:lower(), zero)
      want:backward()
      local b = popart.Builder()
      local x = b:addInitializedInputTensor(logits, "x")
      local loss = b.aiGraphcore:ctcloss({ b.aiOnnxOpset11:logsoftmax({ x }, 2),
        b.aiOnnxOpset11:constant(targets), b.aiOnnxOpset11:constant(lengths),
        b.aiOnnxOpset11:constant(of_target) }, Reduction[reduction], blank, "FLOAT", zero)
      local s = helper.training(b, popart.DataFlow(1, { loss, "Gradient___x" }), loss,
        popart.ConstSGD(0.1))
      local got = helper.run(s, {})
      torch.testing.assert_close(got[loss], want:detach(), { rtol = 1e-4, atol = 1e-5 })
      torch.testing.assert_close(got.Gradient___x, leaf.grad, { rtol = 1e-4, atol = 1e-5 })
    end
    local whole = torch.tensor({ 5, 4 }, { dtype = torch.int32 })
    for blank = 0, 1 do
      for _, reduction in ipairs({ "Mean", "Sum" }) do
        compare(blank, reduction, false, whole)
      end
    end
    compare(0, "Sum", true, torch.tensor({ 2, 4 }, { dtype = torch.int32 }))
  end)
end)
