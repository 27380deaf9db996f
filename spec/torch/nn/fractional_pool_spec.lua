-- Fractional max pooling: windows, maxima and gradients are PyTorch 2.15's for
-- the samples given.
local helper = require("spec.helper")
local torch = require("torch")

local F = torch.nn.functional

local function sines(shape)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  return (torch.arange(n, { dtype = torch.float64 }) * 0.7):sin():reshape(shape)
end

local function samples(t)
  return torch.tensor(t, { dtype = torch.float64 })
end

local refuses = helper.refuses

describe("fractional_max_pool", function()
  it("takes the windows of the samples in two dimensions, and their gradients", function()
    local s = samples({ { { .1, .9 }, { .35, .6 } }, { { .77, .05 }, { .5, .45 } } })
    local x = sines({ 2, 2, 7, 6 }):requires_grad_()
    local y, i = F.fractional_max_pool2d(x, { 3, 2 }, { output_size = { 4, 3 },
      return_indices = true, _random_samples = s })
    local want = { 12, 2, 11, 12, 20, 11, 12, 20, 29, 30, 38, 29, 6, 14, 5, 24, 14, 23, 24, 32, 23,
      24, 32, 41, 0, 8, 17, 7, 8, 17, 25, 26, 17, 25, 26, 35, 1, 2, 11, 19, 20, 11, 19, 20, 29, 37,
      38, 29 }
    assert.same({ 2, 2, 4, 3 }, { table.unpack(y.shape) })
    assert.same(want, i:flatten():tolist())
    assert.is_true(torch.equal(y:flatten(2), x:flatten(2):gather(2, i:flatten(2))));
    (y * torch.arange(48):double():reshape({ 2, 2, 4, 3 })):sum():backward()
    local grad = torch.zeros({ 4 * 42 }, { dtype = torch.float64 })
    for k, at in ipairs(want) do
      grad[(k - 1) // 12 * 42 + at] = grad[(k - 1) // 12 * 42 + at] + (k - 1)
    end
    assert.same(grad:tolist(), x.grad:flatten():tolist())
  end)

  it("takes the windows of the samples in three", function()
    local x = sines({ 2, 5, 6, 7 })
    local s = samples({ { { .1, .9, .4 }, { .35, .6, .8 } } })
    local y, i = F.fractional_max_pool3d(x, 2, nil, { .5, .7, .6 }, true, s)
    assert.same({ 2, 2, 4, 4 }, { table.unpack(y.shape) })
    assert.same({ 1, 2, 47, 47, 56, 10, 11, 20, 56, 65, 19, 20, 29, 38, 74, 83, 127, 128, 137, 173,
      182, 136, 137, 146, 182, 191, 145, 146, 155, 164, 200, 209, 8, 44, 53, 54, 63, 17, 17, 26, 70,
      72, 25, 26, 35, 79, 80, 34, 169, 178, 178, 132, 141, 142, 151, 187, 196, 150, 151, 160, 196,
      205, 206, 160 }, i:flatten():tolist())
    assert.is_true(torch.equal(y:flatten(1), x:flatten(1):gather(1, i:flatten(1))))
  end)

  it("of one window along a dimension takes the last place", function()
    local x = sines({ 2, 5, 6, 7 })[0]
    local s = samples({ { { .1, .9 } } }):expand(1, 5, 2)
    local _, i = F.fractional_max_pool2d(x, { 5, 2 }, { output_size = { 1, 5 },
      return_indices = true, _random_samples = s })
    assert.same({ 29, 29, 38, 38, 20, 14, 23, 23, 32, 41, 8, 8, 17, 17, 26, 29, 29, 38, 11, 20, 14,
      23, 23, 32, 41 }, i:flatten():tolist())
  end)

  it("draws its samples, also in a layer and compiled", function()
    local x = sines({ 2, 3, 9, 8 }):float()
    for _, pool in ipairs({ torch.nn.FractionalMaxPool2d(3, { output_size = { 4, 3 } }),
      torch.nn.FractionalMaxPool2d(3, { output_ratio = { .5, .4 }, return_indices = true }) }) do
      local y, i = pool(x)
      assert.same({ 2, 3, 4, 3 }, { table.unpack(y.shape) })
      assert.is_true(not pool.return_indices
        or torch.equal(y:flatten(2), x:flatten(2):gather(2, i:flatten(2))))
    end
    local fixed = torch.nn.FractionalMaxPool2d(3, { output_size = 4,
      _random_samples = torch.full({ 2, 3, 2 }, 0.3) })
    assert.same({ "_random_samples" }, helper.state_keys(fixed))
    local compiled = require("lupine").compile(fixed, { x })
    assert.is_true(torch.equal(fixed(x), compiled(x)))
  end)

  it("says what does not fit", function()
    local x = torch.zeros({ 1, 2, 6, 6 })
    local P = torch.nn.FractionalMaxPool2d
    refuses("ValueError", "either an output size, or a pooling ratio", P, 3)
    refuses("ValueError", "only one of", P, 3, 2, 0.5)
    refuses("ValueError", "between 0 and 1 %(got 1.5%)", P, 3, { output_ratio = 1.5 })
    refuses("ValueError", "either an output_size or an output_ratio",
      F.fractional_max_pool2d, x, 2)
    refuses("RuntimeError", "5 windows of 3 do not fit", F.fractional_max_pool2d, x, 3, 5)
    refuses("RuntimeError", "_random_samples: expected shape", F.fractional_max_pool2d,
      torch.zeros({ 2, 2, 6, 6 }), 2, 3, { _random_samples = torch.rand({ 1, 2, 2 }) })
    refuses("RuntimeError", "same dtype as input", F.fractional_max_pool2d, x, 2, 3,
      { _random_samples = samples({ { { .1, .2 }, { .1, .2 } } }) })
  end)
end)

describe("LinearCrossEntropyLoss", function()
  local function near(want, got)
    for i, v in ipairs(want) do
      assert.is_true(math.abs(v - got[i]) < 2e-6, ("%d: %g, expected %g"):format(i, got[i], v))
    end
  end

  it("is the cross entropy of a linear layer's logits", function()
    local loss = torch.nn.LinearCrossEntropyLoss(3, 4, { out_features = { 2 }, bias = true,
      weight = torch.tensor({ 1., 2., .5, 1. }), ignore_index = 1, label_smoothing = .1 })
    torch.no_grad(function()
      loss.linear.weight:copy_((torch.arange(24.) * .3):sin():reshape({ 8, 3 }))
      loss.linear.bias:copy_(torch.arange(8.):cos())
    end)
    local x = torch.tensor({ { .1, -.2, .3 }, { 1., .5, -.7 } }, { requires_grad = true })
    local l = loss(x, torch.tensor({ { 0, 3 }, { 1, 2 } }))
    l:backward()
    near({ 1.266037940979004 }, { l:item() })
    near({ -0.060712799429893494, -0.13706351816654205, -0.20117072761058807, 0.24348212778568268,
      0.2760566771030426, 0.283971905708313 }, x.grad:flatten():tolist())
    near({ -0.18670213222503662, 0.23500022292137146, 0.025243477895855904, 0.010477963835000992,
      0.021549435332417488, -0.09192629903554916, 0.13990920782089233, -0.15355190634727478 },
      loss.linear.bias.grad:tolist())
    assert.equal([[LinearCrossEntropyLoss(
  in_features=3, num_classes=4, out_features=(2,), bias=True, reduction=mean, ignore_index=1, ]]
      .. [[label_smoothing=0.1, options=None
  (linear): Linear(in_features=3, out_features=8, bias=True)
)]], tostring(loss))
  end)

  it("takes probabilities, one sample, and refuses what cannot be", function()
    local w, x = torch.randn({ 4, 3 }), torch.randn({ 2, 3 })
    local p = torch.randn({ 2, 4 }):softmax(1)
    local f = F.linear_cross_entropy
    assert.is_true(torch.equal(F.cross_entropy(x:matmul(w:t()), p), f(x, w, p)))
    assert.is_true(torch.allclose(F.cross_entropy(x[0]:matmul(w:t()), torch.tensor(2)),
      f(x[0], w, torch.tensor(2))))
    refuses("RuntimeError", "ignore_index cannot", f, x, w, p, { ignore_index = 1 })
    refuses("RuntimeError", "3 and 5", f, torch.zeros({ 2, 3 }), torch.zeros({ 4, 5 }), p)
    refuses("RuntimeError", "requires batched input", f, x[0], torch.zeros({ 4, 2, 3 }), p)
    refuses("RuntimeError", "linear_bias shape", f, x, w, p, { linear_bias = torch.zeros(3) })
    refuses("NotImplementedError", "options", f, x, w, p, { options = {} })
    refuses("RuntimeError", "range %[0, 1%], got 2", torch.nn.LinearCrossEntropyLoss, 3, 4,
      { label_smoothing = 2 })
  end)
end)
