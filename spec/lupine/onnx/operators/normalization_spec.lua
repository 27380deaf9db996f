-- Normalisations of ONNX against their formulas and PyTorch, and what training changes.
local F = require("torch.nn.functional")
local node = require("spec.lupine.onnx.node")
local recorded = require("spec.lupine.onnx.recorded")
local torch = require("torch")

local wave = recorded.wave

local VALUES = [[
BatchNormalization 6 epsilon=1e-05 momentum=0.9 | 2,3,2 3 3 3 3 | 2,3,2:-0.315487 3:-2.38962
 3:-1.86181 3:0.121134 3:1.63198
BatchNormalization 7 epsilon=0.01 momentum=0.6 | 2,3,1,2 3 3 3 3 | 2,3,1,2:-0.328461 3:-1.5527
 3:-0.697211 3:0.121134 3:1.63198
BatchNormalization 9 epsilon=0.01 momentum=0.6 | 2,3,1,1,1 3 3 3 3 | 2,3,1,1,1:-1.08844
 3:-0.695805 3:-1.28911 3:2.26337 3:0.152219
BatchNormalization 14 epsilon=1e-05 momentum=0.9 training_mode=1 | 2,3 3 3 3 3 | 2,3:-1.12074
 3:-2.17539 3:-2.00978
BatchNormalization 15 epsilon=0.01 momentum=0.6 training_mode=1 | 2,3,2 3 3 3 3 | 2,3,2:-0.328461
 3:-1.5527 3:-0.697211
BatchNormalization 7 momentum=0.8 spatial=0 | 3,2,2 2,2 2,2 2,2 2,2 | 3,2,2:-2.02229 2,2:-2.8001
 2,2:-1.47403 2,2:0.162843 2,2:2.28196
InstanceNormalization 6 epsilon=0.01 | 2,3,4 3 3 | 2,3,4:0.378373
InstanceNormalization 6 epsilon=0.01 | 1,2,3,2 2 2 | 1,2,3,2:0.788439
InstanceNormalization 6 epsilon=0.01 | 2,2,2,2,2 2 2 | 2,2,2,2,2:2.21052
LRN 13 alpha=0.3 beta=0.6 bias=1.5 size=1 | 2,6,2,2 | 2,6,2,2:0.260748
LRN 13 alpha=0.3 beta=0.6 bias=1.5 size=2 | 2,6,2,2 | 2,6,2,2:0.2625
LRN 13 alpha=0.3 beta=0.6 bias=1.5 size=3 | 2,6,2,2 | 2,6,2,2:0.31306
LRN 13 alpha=0.3 beta=0.6 bias=1.5 size=4 | 2,6,2,2 | 2,6,2,2:0.251072
LRN 13 alpha=0.3 beta=0.6 bias=1.5 size=5 | 2,6,2,2 | 2,6,2,2:0.360328
LpNormalization 1 axis=0 p=1 | 2,3,4 | 2,3,4:0.0222934
LpNormalization 1 axis=0 p=2 | 2,3,4 | 2,3,4:-0.0212548
LpNormalization 1 axis=1 p=1 | 2,3,4 | 2,3,4:-0.473188
LpNormalization 1 axis=1 p=2 | 2,3,4 | 2,3,4:-0.588403
LpNormalization 1 axis=-1 p=1 | 2,3,4 | 2,3,4:-0.321879
LpNormalization 1 axis=-1 p=2 | 2,3,4 | 2,3,4:-0.470726
LayerNormalization 17 axis=0 epsilon=0.1 | 2,3,4 2,3,4 2,3,4 | 2,3,4:2.53426 1,1,1:0.186827
 1,1,1:1.31416
LayerNormalization 17 axis=1 epsilon=0.1 | 2,3,4 3,4 3,4 | 2,3,4:1.20943 2,1,1:0.371628
 2,1,1:2.74731
LayerNormalization 17 axis=-1 epsilon=0.1 | 2,3,4 4 4 | 2,3,4:-0.834585 2,3,1:1.01381
 2,3,1:14.2782
GlobalLpPool 2 p=1 | 2,3,4,2 | 2,3,1,1:29.7961
GlobalLpPool 2 p=2 | 2,3,4,2 | 2,3,1,1:11.587
GlobalLpPool 2 p=3 | 2,3,4,2 | 2,3,1,1:8.66598]]

-- Operands of a batch normalisation of 3 channels, statistics as initializers.
local function batch(options)
  options.constants = { [2] = true, [3] = true, [4] = true, [5] = true }
  local statistics = { wave({ 3 }, 4), wave({ 3 }, 5):abs() }
  return node.model("BatchNormalization", { wave({ 4, 3, 2 }, 1), wave({ 3 }, 2), wave({ 3 }, 3),
    statistics[1]:clone(), statistics[2]:clone() }, { momentum = 0.7 }, options), statistics
end

describe("ONNX", function()
  it("normalisations have the values of their formulas", function()
    recorded.check(VALUES, 2)
  end)

  it("a batch normalisation of a module in training is torch.nn.BatchNorm1d's", function()
    for _, version in ipairs({ 9, 15 }) do
      local model, statistics = batch({ version = version, training = true })
      local layer = torch.nn.BatchNorm1d(3, { momentum = 0.3 })
      layer:load_state_dict({ weight = wave({ 3 }, 2), bias = wave({ 3 }, 3),
        running_mean = statistics[1], running_var = statistics[2],
        num_batches_tracked = torch.tensor(0) })
      local x = wave({ 4, 3, 2 }, 1)
      assert.is_true(torch.allclose(layer(x), model(x)))
      assert.is_true(torch.allclose(layer.running_mean, model.x4))
      assert.is_true(torch.allclose(layer.running_var, model.x5))
      assert.equal(2, #model:buffers())
      model:eval()
      layer:eval()
      assert.is_true(torch.allclose(layer(x), model(x)))
    end
  end)

  it("its statistics change in compiled programs too", function()
    local model, statistics = batch({ training = true })
    local x = wave({ 4, 3, 2 }, 1)
    require("lupine.compile")(model, { x })(x)
    assert.is_true(torch.allclose(statistics[1] * 0.7 + x:mean({ 0, 2 }) * 0.3, model.x4))
  end)

  it("a batch normalisation in training form keeps the population's variance", function()
    local model, statistics = batch({ version = 9, training = true, outputs = 5 })
    local x = wave({ 4, 3, 2 }, 1)
    local want = statistics[2] * 0.7 + x:var({ 0, 2 }, { correction = 0 }) * 0.3
    local _, _, var = model(x)
    assert.is_true(torch.allclose(want, var))
    assert.is_true(torch.allclose(want, model.x5))
    model:eval()
    model(x)
    assert.is_true(torch.allclose(want, model.x5))
  end)

  it("dropout drops in training, or where it is told to", function()
    local x = torch.ones(2000)
    local rate = torch.tensor(0.25)
    local function dropped(y)
      local zeros = y:eq(0):sum():item() / 2000
      return zeros > 0.2 and zeros < 0.3 and (y - 4 / 3):abs():min():item() < 1e-5
    end
    for _, compiled in ipairs({ false, true }) do
      local old = { version = 10, compiled = compiled, outputs = 2, training = true }
      local y, mask = node("Dropout", { x }, { ratio = 0.25 }, old)
      assert.is_true(dropped(y))
      assert.equal(torch.bool, mask.dtype)
      assert.same(y:ne(0):tolist(), mask:tolist())
      old.training = false
      assert.same(x:tolist(), node("Dropout", { x }, { ratio = 0.25 }, old):tolist())
      local told = { version = 13, compiled = compiled }
      assert.is_true(dropped(node("Dropout", { x, rate, torch.tensor(true) }, {}, told)))
      assert.same(x:tolist(), node("Dropout", { x, rate, torch.tensor(false) }, {}, told):tolist())
      told.constants = { [2] = true, [3] = true }
      assert.is_true(dropped(node("Dropout", { x, rate, torch.tensor(true) }, {}, told)))
      assert.same(x:tolist(), node("Dropout", { x, rate }, {}, told):tolist())
    end
    node.refuses("ratio must be at least 0 and less than 1", "Dropout", { x }, { ratio = 1.0 },
      { version = 7 })
  end)

  it("normalisations have the gradients of differences", function()
    local x, s, b = wave({ 2, 4, 3 }, 1), wave({ 4 }, 2), wave({ 4 }, 3)
    local inputs = { x:double():requires_grad_(true), s:double():requires_grad_(true),
      b:double():requires_grad_(true) }
    assert.is_true(torch.autograd.gradcheck(function(...)
      local arguments = { ... }
      arguments[4], arguments[5] = s:double(), b:double():abs()
      return (node("BatchNormalization", arguments, {}, { version = 9, outputs = 5 }))
    end, inputs))
    assert.is_true(torch.autograd.gradcheck(function(...)
      return node("InstanceNormalization", { ... })
    end, inputs))
    assert.is_true(torch.autograd.gradcheck(function(v)
      return node("LRN", { v }, { size = 2 }) + node("LpNormalization", { v }, { p = 1 })
    end, { inputs[1] }))
  end)

  it("MeanVarianceNormalization is a normalisation without operands", function()
    local x = wave({ 2, 3, 4, 2 }, 1)
    local y = node("MeanVarianceNormalization", { x }, {})
    assert.is_true(torch.allclose(F.batch_norm(x, nil, nil, nil, nil, true, 0.1, 1e-12), y, 1e-4,
      1e-5))
  end)
end)
