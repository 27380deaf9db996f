-- Operators of ai.graphcore beside PopART's own tests: their gradients, models with them in
-- poptorch.
local graphs = require("spec.lupine.onnx.graphs")
local node = require("spec.lupine.onnx.node")
local poptorch = require("poptorch")
local recorded = require("spec.lupine.onnx.recorded")
local torch = require("torch")

local wave = recorded.wave

local function int(list)
  return torch.tensor(list, { dtype = torch.int32 })
end

-- name -> floating inputs, the other inputs, attributes
local CASES = {
  Swish = { { wave({ 2, 3 }, 1) } },
  Atan2 = { { wave({ 2, 3 }, 1), wave({ 2, 3 }, 4) } },
  ScaledAdd = { { wave({ 2, 3 }, 1), wave({ 2, 3 }, 4) }, {}, { scale0 = 0.3 } },
  DynamicSlice = { { wave({ 4, 3 }, 1) }, { int({ 3, 1 }) }, { axes = { 0, 1 },
    sizes = { 3, 2 } } },
  DynamicAdd = { { wave({ 4, 3 }, 1) }, { int({ 3 }), wave({ 2, 3 }, 2):double() },
    { axes = { 0 }, sizes = { 2 } } },
  ScatterReduce = { { wave({ 5, 2 }, 1) }, { torch.tensor({ 0, 2, 2, 1, 0 }) },
    { axis = 0, axis_size = 4, reduction = "mul" } },
  GroupedGather = { { wave({ 2, 3, 2 }, 1) }, { int({ { 0, 0 }, { 2, 1 } }) },
    { axis = 1, group_size = 2 } },
  SequenceSlice = { { wave({ 5, 2 }, 1), wave({ 4, 2 }, 2) }, { int({ 2, 1 }), int({ 0, 4 }),
    int({ 2, 1 }) } },
  Nll = { { wave({ 3, 4 }, 1):softmax(1) }, { int({ 0, 3, 1 }) }, { ignoreIndex = 3 } },
  NormalizeImage = { { wave({ 2, 3 }, 1), wave({ 3 }, 2), wave({ 3 }, 3) }, {}, { scale = 0.5 } },
  SplineBasis = { { wave({ 3, 2 }, 1):abs() }, { int({ 4, 3 }), torch.tensor({ 1, 0 }) },
    { degree = 2 } },
}

describe("operators of ai.graphcore", function()
  it("have the gradients of differences", function()
    for name, case in pairs(CASES) do
      local leaves = {}
      for i, t in ipairs(case[1]) do
        leaves[i] = t:double():requires_grad_(true)
      end
      assert.is_true(torch.autograd.gradcheck(function(...)
        local inputs = { ... }
        table.move(case[2] or {}, 1, #(case[2] or {}), #inputs + 1, inputs)
        return (node(name, inputs, case[3], { domain = "ai.graphcore",
          outputs = name == "SplineBasis" and 2 or 1 }))
      end, leaves), name)
    end
  end)

  it("of float8 are refused when a model is read", function()
    for _, name in ipairs({ "CastThenPow2Scale", "Pow2ScaleThenCast" }) do
      node.refuses("not supported: ai.graphcore." .. name, name, { torch.ones(2) }, {},
        { domain = "ai.graphcore", error = "NotImplementedError" })
    end
  end)

  it("that are losses are the final losses of poptorch's models", function()
    for loss, labels in pairs({ L1 = "", IdentityLoss = "", Nll = ", t" }) do
      local values = { L1 = { lambda = 0.5 }, Nll = { inputIsLogProbability = 1 } }
      local model = graphs.model(("x%s -> l"):format(labels), { { "y = MatMul(x, w)" },
        { "p = LogSoftmax(y)", { axis = 1 } },
        { ("l = gc.%s(p%s)"):format(loss, labels), values[loss] } },
        { w = wave({ 3, 4 }, 2) }):train()
      local given = { wave({ 2, 3 }, 1), labels ~= "" and int({ 1, 3 }) or nil }
      local before = model.w:detach():clone()
      local want = model(table.unpack(given))
      want:backward()
      local options = poptorch.Options()
      local trained = poptorch.trainingModel(model, options,
        poptorch.optim.SGD(model:parameters(), { lr = 0.1 }))
      assert.is_true(torch.allclose(want:detach(), trained(table.unpack(given)), 1e-5, 1e-6))
      trained:copyWeightsToHost()
      assert.is_true(torch.allclose(before - model.w.grad * 0.1, model.w:detach(), 1e-4, 1e-5))
    end
  end)

  it("have PopART's gradient of a softmax's loss where a probability is 0", function()
    for opset, axis in pairs({ [10] = { axis = 1 }, [13] = {} }) do
      for _, dtype in ipairs({ torch.float32, torch.float16 }) do
        local model = graphs.model("x, t -> l", { { "p = Softmax(x)", axis },
          { "l = gc.Nll(p, t)", { reduction = "Sum" } } }, {}, opset)
        local x = torch.tensor({ { 200.0, 0, -1 }, { 1, 2, 3 }, { -math.huge, 0, 0 } }):to(dtype)
          :requires_grad_(true)
        local loss = model(x, int({ 1, 0, 2 }))
        loss:backward()
        local p = x:detach():double():softmax(1)
        local want = -p:gather(1, torch.tensor({ { 1 }, { 0 }, { 2 } })):squeeze(1)
          :clamp_min(dtype == torch.float16 and 6.104e-5 or 1e-7):log():sum()
        assert.near(want:item(), loss:item(), 1e-2)
        local labels = torch.tensor({ { 0.0, 1, 0 }, { 1, 0, 0 }, { 0, 0, 1 } })
        assert.is_true(torch.allclose(x.grad:double(), p - labels, 1e-2, 1e-3))
      end
    end
  end)

  it("of an internal output give nothing, and the others are there", function()
    local logp = wave({ 4, 1, 3 }, 1):log_softmax(2)
    local model = graphs.model("p, t, a, b -> l", {
      { "l, grad = gc.Ctc(p, t, a, b)", { reduction = "Sum" } } })
    local y = model(logp, int({ { 1, 2 } }), int({ 4 }), int({ 2 }))
    assert.is_true(y:item() > 0)
  end)
end)
