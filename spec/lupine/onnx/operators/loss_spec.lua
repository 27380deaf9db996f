-- Losses of classes, against their formula.
local both = require("spec.lupine.onnx.both")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

-- The loss of each place and its weight, in a row; x is [N, C, d].
local function by_loops(x, target, weight, ignore)
  local rows, losses, weights = x:tolist(), {}, {}
  for i, line in ipairs(target:tolist()) do
    for j, class in ipairs(line) do
      local w = class == ignore and 0 or weight and weight[class + 1] or 1
      losses[#losses + 1] = w == 0 and 0 or -rows[i][class + 1][j] * w
      weights[#weights + 1] = w
    end
  end
  return losses, weights
end

local function sum(list)
  local total = 0
  for _, x in ipairs(list) do
    total = total + x
  end
  return total
end

local FORMS = {
  { nil, nil }, { { 0.5, 2, 1, 0.25 }, nil }, { nil, 1 }, { { 0.5, 2, 1, 0.25 }, -7 },
  { nil, 12 },
}

local function each_form(run)
  torch.manual_seed(11)
  for _, form in ipairs(FORMS) do
    local target = torch.randint(0, 4, { 3, 2 })
    if form[2] then
      target[1][0] = form[2]
    end
    run(torch.randn({ 3, 4, 2 }):log_softmax(1), target, form[1], form[2])
  end
end

local function check(op, x, target, weight, ignore, dtype)
  local losses, weights = by_loops(x, target, weight, ignore)
  local want = { none = losses, sum = { sum(losses) }, mean = { sum(losses) / sum(weights) } }
  for reduction, list in pairs(want) do
    local given = { x, target:to(dtype), weight and torch.tensor(weight):to(x.dtype) }
    local y = both(op, given, { reduction = reduction, ignore_index = ignore }, { version = 12 })
    both.near(y, list)
    assert.equal(reduction == "none" and 2 or 0, y:dim())
  end
end

describe("NegativeLogLikelihoodLoss", function()
  it("weighs, ignores and reduces", function()
    for _, dtype in ipairs({ torch.int64, torch.int32 }) do
      each_form(function(x, target, weight, ignore)
        check("NegativeLogLikelihoodLoss", x, target, weight, ignore, dtype)
      end)
    end
  end)

  it("has gradients, and never trains its weight", function()
    local x, target = torch.randn({ 3, 4 }), torch.tensor({ 0, 3, 1 })
    local weight = torch.tensor({ 0.5, 2, 1, 0.25 }, { dtype = torch.float64 })
    local options = { constants = { [3] = true } }
    both.gradients("NegativeLogLikelihoodLoss", { x, target, weight }, nil, options)
    local model = node.model("NegativeLogLikelihoodLoss", { x, target, weight:float() }, nil,
      options)
    assert.equal(0, #model:parameters())
  end)
end)

describe("SoftmaxCrossEntropyLoss", function()
  it("is the other one's of the logarithm of the softmax", function()
    each_form(function(log_prob, target, weight, ignore)
      check("SoftmaxCrossEntropyLoss", log_prob, target, weight, ignore, torch.int64)
    end)
  end)

  it("gives the logarithms, too", function()
    local x, target = torch.randn({ 3, 4 }), torch.tensor({ 0, 3, 1 })
    for _, dtype in ipairs({ torch.float32, torch.float64, torch.float16, torch.bfloat16 }) do
      local scores = x:to(dtype)
      local loss, log_prob = both("SoftmaxCrossEntropyLoss", { scores, target }, nil,
        { outputs = 2 })
      assert.equal(dtype, loss.dtype)
      local mean = -(log_prob[0][0] + log_prob[1][3] + log_prob[2][1]):item() / 3
      both.near(loss, { mean }, { 2e-2, 2e-2 })
      both.near(log_prob:double():exp():sum(1), { 1, 1, 1 }, { 2e-2, 0 })
    end
    both.gradients("SoftmaxCrossEntropyLoss", { x, target })
  end)

  it("names wrong inputs", function()
    local x = torch.randn({ 3, 4, 2 })
    both.refuses("inputs 'scores' of the shape [3, 4, 2] and 'labels' of the shape [3] do not go "
      .. "together. Allowed: [N, C, d1, …] and [N, d1, …]", "SoftmaxCrossEntropyLoss", { x,
      torch.tensor({ 0, 1, 2 }) })
    local target = torch.zeros({ 3, 2 }, { dtype = torch.int64 })
    both.refuses("input 'weights' has the shape [3]. Allowed: [4], an element for each class",
      "SoftmaxCrossEntropyLoss", { x, target, torch.ones({ 3 }) })
    both.refuses("attribute 'reduction' is 'max'. Allowed: 'none', 'sum', 'mean'",
      "NegativeLogLikelihoodLoss", { x, target }, { reduction = "max" })
    both.refuses("input 'target' is torch.float32. Allowed: integers",
      "NegativeLogLikelihoodLoss", { x, target:float() })
  end)
end)
