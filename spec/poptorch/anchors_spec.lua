--- Anchored tensors: Options.anchorTensor and getAnchoredTensor, against eager
--- autograd and the optimizer's formula.
local errors = require("lupine.base.errors")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn

local Net = nn.Module:extend("Net")
function Net:init()
  self.fc1 = nn.Linear(3, 4)
  self.fc2 = nn.Linear(4, 2)
  self:register_buffer("calls", torch.zeros({}))
end
function Net:forward(x)
  self.calls:add_(1)
  local y = self.fc2(self.fc1(x):tanh())
  return y, poptorch.identity_loss(y * y, "mean")
end

local LR = 0.25

local function net()
  torch.manual_seed(3)
  return Net()
end

-- Anchors by long name; their short names are a1, a2, …
local function anchored(options, names, mode, period)
  for i, name in ipairs(names) do
    options:anchorTensor("a" .. i, name, mode, period)
  end
  return options
end

local function train(options, names, mode, period)
  local model = net()
  anchored(options, names, mode, period)
  return poptorch.trainingModel(model, options, torch.optim.SGD(model:parameters(), LR))
end

local function input(rows)
  torch.manual_seed(4)
  return torch.randn(rows, 3)
end

-- Per micro-batch of 2 rows, eagerly, with `accumulation` of them an update:
-- {gradient of fc2.bias, of fc1's output, running sum, weight after it, weight as it is
-- shown: what the micro-batch reads if there are several, else what comes of it}
local function eagerly(x, accumulation)
  local model, out = net(), {}
  local sum
  for i = 0, x:size(0) // 2 - 1 do
    local part = x:narrow(0, 2 * i, 2)
    local h = model.fc1(part)
    h:retain_grad()
    local y = model.fc2(h:tanh())
    model:zero_grad()
    ;(y * y):mean():backward()
    local bias, weight = model.fc2.bias, model.fc2.weight
    sum = i % accumulation == 0 and bias.grad:clone() or sum + bias.grad
    local row = { bias = bias.grad:clone(), hidden = h.grad:clone(), sum = sum }
    row.weights = (i % accumulation == 0 and torch.zeros_like(weight) or out[i].weights)
      + weight.grad
    row.shown = weight:detach():clone()
    if i % accumulation == accumulation - 1 then
      torch.no_grad(function()
        for name, p in model:named_parameters() do
          -- the mean of the accumulated gradients; those of the two that are
          -- anchored are summed here, the others by the same loop again
          local g = torch.zeros_like(p)
          for k = i - accumulation + 1, i do
            g = g + (k == i and p.grad or out[k + 1].all[name])
          end
          p:sub_(g * (LR / accumulation))
        end
      end)
    end
    row.all = {}
    for name, p in model:named_parameters() do
      row.all[name] = p.grad:clone()
    end
    row.weight = weight:detach():clone()
    row.shown = accumulation == 1 and row.weight or row.shown
    out[i + 1] = row
  end
  return out
end

local function close(a, b)
  assert.is_true(torch.allclose(a, b, { rtol = 1e-5, atol = 1e-6 }), tostring(a) .. tostring(b))
end

local NAMES = { "Gradient___fc2.bias", "Gradient___fc1/Add:0", "Accum___fc2.bias",
  "UpdatedVar___fc2.weight", "fc2.weight", "calls", "input/x", "loss" }

describe("an anchored tensor", function()
  for _, accumulation in ipairs({ 1, 3 }) do
    it("is what it was in each of " .. accumulation .. " micro-batches an update", function()
      local options = poptorch.Options():deviceIterations(2)
      options.Training:gradientAccumulation(accumulation)
      local x = input(4 * accumulation)
      local model = train(options, NAMES, poptorch.OutputMode.All)
      model(x)
      local want = eagerly(x, accumulation)
      local function got(i, k, rows)
        local t = model:getAnchoredTensor("a" .. i)
        return t:narrow(0, k * rows, rows)
      end
      for k = 0, 2 * accumulation - 1 do
        local w = want[k + 1]
        close(w.bias, got(1, k, 2))
        close(w.hidden, got(2, k, 2))
        close(w.sum, got(3, k, 2))
        close(w.weight, got(4, k, 2))
        close(w.shown, got(5, k, 2))
        assert.equal(k + 1, got(6, k, 1):item())
        close(x:narrow(0, 2 * k, 2), got(7, k, 2))
      end
      assert.equal(2 * accumulation, model:getAnchoredTensor("a8"):numel())
    end)
  end

  it("comes as its own mode says", function()
    local O = poptorch.OutputMode
    local x = input(8)
    for mode, rows in pairs({ [O.All] = 8, [O.Final] = 2, [O.EveryN] = 4, [O.Sum] = 2 }) do
      local options = poptorch.Options():deviceIterations(4)
      local model = train(options, { "Gradient___fc2.bias", "UpdatedVar___fc2.weight" }, mode, 2)
      model(x)
      local want = eagerly(x, 1)
      local gradient, weight = model:getAnchoredTensor("a1"), model:getAnchoredTensor("a2")
      assert.equal(rows, gradient:size(0))
      assert.equal(rows, weight:size(0))
      if mode == O.Sum then
        close(want[1].bias + want[2].bias + want[3].bias + want[4].bias, gradient)
        close(want[1].weight + want[2].weight + want[3].weight + want[4].weight, weight)
      else
        close(want[4].bias, gradient:narrow(0, rows - 2, 2))
        close(want[4].weight, weight:narrow(0, rows - 2, 2))
      end
    end
  end)

  it("has a period that divides the device iterations, as results have", function()
    local O = poptorch.OutputMode
    for _, period in ipairs({ 3, 5 }) do
      local messages = {}
      for i, options in ipairs({ poptorch.Options():outputMode(O.EveryN, period),
        anchored(poptorch.Options(), { "fc1.weight" }, O.EveryN, period) }) do
        local model = poptorch.inferenceModel(net(), options:deviceIterations(2))
        local ok, e = pcall(model.compile, model, input(4))
        assert.is_false(ok)
        assert.equal("popart_exception", e.type)
        messages[i] = e.message
      end
      assert.equal("anchor 'a1': " .. messages[1], messages[2])
    end
  end)

  -- As the host's rows stand: [2 iterations][3 micro-batches][2 replicas][1 row].
  it("has its slices by iteration, micro-batch and replica", function()
    local O = poptorch.OutputMode
    local x = input(12)
    local rows = x:reshape(2, 3, 2, 3)
    local want = { [O.All] = x, [O.EveryN] = x:narrow(0, 6, 6), [O.Final] = x:narrow(0, 10, 2),
      [O.Sum] = rows:sum({ 0, 1 }) }
    for mode, tensor in pairs(want) do
      local options = poptorch.Options():deviceIterations(2):replicationFactor(2)
        :broadcastBuffers(false)
      options.Training:gradientAccumulation(3)
      local model = train(options, { "input/x" }, mode, 2)
      model(x)
      close(tensor, model:getAnchoredTensor("a1"))
    end
  end)

  it("takes the model's output mode if it has none", function()
    local options = poptorch.Options():deviceIterations(3):outputMode(poptorch.OutputMode.All)
    local model = train(options, { "Gradient___fc2.bias" })
    model(input(6))
    assert.same({ 6 }, { model:getAnchoredTensor("a1").shape[1] })
  end)

  it("leaves every value as it is", function()
    local plain = train(poptorch.Options(), {})
    local x = input(2)
    local y1, l1 = plain(x)
    plain:destroy()
    local with = train(poptorch.Options(), NAMES)
    local y2, l2 = with(x)
    assert.is_true(torch.equal(y1, y2) and torch.equal(l1, l2))
  end)

  it("is there for every name that is listed", function()
    local options = poptorch.Options()
    options.Training:gradientAccumulation(2)
    local model = net()
    local adam = poptorch.optim.Adam(model:parameters(), { lr = 0.1 })
    local first = poptorch.trainingModel(model, options:clone(), adam)
    first:compile(input(4))
    local names = {}
    for _, name in ipairs(first:getTensorNames()) do
      -- all but the optimizer's attributes
      if not name:find("___specific___") and not name:find("_FLOAT$") then
        names[#names + 1] = name
      end
    end
    first:destroy()
    assert.is_true(#names > 20)
    anchored(options, names)
    local second = poptorch.trainingModel(model, options,
      poptorch.optim.Adam(model:parameters(), { lr = 0.1 }))
    second(input(4))
    for i, name in ipairs(names) do
      assert.is_true(second:getAnchoredTensor("a" .. i):numel() > 0, name)
    end
  end)

  it("is of inference, too", function()
    local model = net()
    local options = anchored(poptorch.Options(), { "fc1/Add:0", "fc1.weight" })
    local run = poptorch.inferenceModel(model, options)
    local x = input(2)
    run(x)
    torch.no_grad(function()
      close(model.fc1(x), run:getAnchoredTensor("a1"))
      assert.is_true(torch.equal(model.fc1.weight, run:getAnchoredTensor("a2")))
    end)
  end)

  it("comes from every replica and stage", function()
    local options = poptorch.Options():replicationFactor(2):broadcastBuffers(false)
    options.Training:gradientAccumulation(3)
    local model = net()
    poptorch.BeginBlock(model.fc2, { ipu_id = 1 })
    anchored(options, { "Gradient___fc1.bias", "UpdatedVar___fc1.bias" }, poptorch.OutputMode.All)
    local run = poptorch.trainingModel(model, options, torch.optim.SGD(model:parameters(), LR))
    local before = model.fc1.bias:detach():clone()
    run(input(12))
    local gradient = run:getAnchoredTensor("a1"):reshape(6, 4)
    local shown = run:getAnchoredTensor("a2"):reshape(3, 2, 4)
    close(before, shown[0][1])
    close(before - gradient:mean(0) * LR, shown[2][0])
    close(before - gradient:mean(0) * LR, shown[2][1])
    assert.is_true(torch.equal(model.fc1.bias, shown[2][0]))
  end)
end)

describe("an anchor", function()
  local function fails(class, pattern, fn)
    local ok, e = pcall(fn)
    assert.is_false(ok)
    assert.is_true(class:is(e), tostring(e))
    assert.matches(pattern, e.message)
  end

  it("of no tensor is an error of compiling", function()
    for name, message in pairs({
      ["fc3.weight"] = "anchor 'fc3.weight': the program has no tensor 'fc3.weight'",
      ["Gradient___nope"] = "anchor 'Gradient___nope': the program has no tensor 'nope'",
      ["Accum___input/x"] = "no tensor 'input/x' %(executor:getTensorNames%(%) lists them%)$",
    }) do
      fails(poptorch.Error, message, function()
        train(poptorch.Options(), { name }):compile(input(2))
      end)
    end
    local options = anchored(poptorch.Options(), { "Gradient___fc1.weight" })
    fails(poptorch.Error, "an inference model has no such tensor", function()
      poptorch.inferenceModel(net(), options):compile(input(2))
    end)
  end)

  it("of a gradient that nothing reaches is an error", function()
    fails(poptorch.Error, "the loss does not depend on that tensor", function()
      train(poptorch.Options(), { "Gradient___calls" }):compile(input(2))
    end)
  end)

  it("is asked for by its short name, after a run", function()
    local model = train(poptorch.Options(), { "loss" })
    fails(errors.AssertionError, "the model is not compiled", function()
      model:getAnchoredTensor("a1")
    end)
    model:compile(input(2))
    fails(errors.AssertionError, "compiled but has not been run", function()
      model:getAnchoredTensor("a1")
    end)
    fails(errors.AssertionError, "there is no anchor 'loss'. Allowed: a1", function()
      model:getAnchoredTensor("loss")
    end)
  end)

  it("that is added later is not one of models made before", function()
    local options = poptorch.Options()
    local model = train(options, { "loss" })
    options:anchorTensor("late", "loss")
    model(input(2))
    fails(errors.AssertionError, "there is no anchor 'late'", function()
      model:getAnchoredTensor("late")
    end)
  end)
end)
