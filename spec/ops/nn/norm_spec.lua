-- Normalisations against their formula; gradients by differences.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")
local differences = require("spec.support.differences")
local near, raises, numbers = helper.near, helper.raises, differences.numbers

-- (x - mean) / sqrt(var + eps) of a flat list, and both statistics
local function normalized(list, eps)
  local m, v = 0, 0
  for _, x in ipairs(list) do
    m = m + x / #list
  end
  for _, x in ipairs(list) do
    v = v + (x - m) ^ 2 / #list
  end
  local out = {}
  for i, x in ipairs(list) do
    out[i] = (x - m) / math.sqrt(v + eps)
  end
  return out, m, v
end

describe("layer_norm", function()
  it("normalises the last axes, then scales and shifts", function()
    local x, w, b = numbers({ 3, 8 }, 1), numbers({ 8 }, 2), numbers({ 8 }, 3)
    local want, ws, bs = {}, w:tolist(), b:tolist()
    for r, row in ipairs(x:tolist()) do
      want[r] = normalized(row, 1e-5)
      for i = 1, 8 do
        want[r][i] = want[r][i] * ws[i] + bs[i]
      end
    end
    near(F.layer_norm(x, { 8 }, w, b), want)
    near(F.layer_norm(x:float(), { 8 }, w:float(), b:float()), want)
    near(F.layer_norm(x:half(), { 8 }, w:float(), b:float()), want, { 4e-3, 4e-3 })
    local two = F.layer_norm(x, { 3, 8 }):reshape({ -1 })
    near(two, (normalized(x:reshape({ -1 }):tolist(), 1e-5)))
  end)

  it("keeps its precision far from 0", function()
    local x = numbers({ 2, 64 }, 1)
    local far = (x + 4096):float() -- half a unit in the last place of the mean: 2.4e-4
    near(F.layer_norm(far, { 64 }), F.layer_norm(far:double(), { 64 }), { 4e-4, 0 })
  end)

  it("has first and second gradients", function()
    differences.check(function(x, w, b)
      return F.layer_norm(x, { 4 }, w, b)
    end, { numbers({ 2, 4 }, 1), numbers({ 4 }, 2), numbers({ 4 }, 3) })
    differences.check(function(x)
      return F.layer_norm(x, { 2, 3 })
    end, { numbers({ 2, 2, 3 }, 1) })
  end)

  it("names what does not fit", function()
    raises("RuntimeError", "normalized_shape=%[4%].*size %[2, 3%]", function()
      F.layer_norm(torch.zeros({ 2, 3 }), { 4 })
    end)
    raises("RuntimeError", "expected `weight` to be of shape %[3%], but got %[2%]", function()
      F.layer_norm(torch.zeros({ 2, 3 }), { 3 }, torch.zeros({ 2 }))
    end)
    raises("RuntimeError", "must be a floating point tensor", function()
      F.layer_norm(torch.zeros({ 2, 3 }):long(), { 3 })
    end)
  end)
end)

describe("group_norm", function()
  it("normalises the channels of a group together", function()
    local x, w, b = numbers({ 2, 4, 3 }, 1), numbers({ 4 }, 2), numbers({ 4 }, 3)
    local y, ws, bs = F.group_norm(x, 2, w, b), w:tolist(), b:tolist()
    for n = 0, 1 do
      for g = 0, 1 do
        local want = normalized(x[n]:reshape({ 2, 6 })[g]:tolist(), 1e-5)
        for i, v in ipairs(want) do
          local c = 2 * g + (i - 1) // 3 + 1
          want[i] = v * ws[c] + bs[c]
        end
        near(y[n]:reshape({ 2, 6 })[g], want)
      end
    end
  end)

  it("has first and second gradients", function()
    differences.check(function(x, w, b)
      return F.group_norm(x, 2, w, b)
    end, { numbers({ 2, 4, 2 }, 1), numbers({ 4 }, 2), numbers({ 4 }, 3) })
  end)

  it("refuses groups that do not divide the channels", function()
    raises("RuntimeError", "%(4%) to be divisible by num_groups, but got num_groups=3", function()
      F.group_norm(torch.zeros({ 1, 4, 2 }), 3)
    end)
  end)
end)

describe("batch normalisation", function()
  for _, shape in ipairs({ { 6, 2 }, { 3, 2, 4 }, { 2, 2, 3, 2 } }) do
    it(("takes its statistics over batch and places, %d axes"):format(#shape), function()
      local x, w, b = numbers(shape, 1), numbers({ 2 }, 2), numbers({ 2 }, 3)
      local y, mean, var = F._batch_norm_train(x, w, b, 1e-5)
      for c = 0, 1 do
        local want, m, v = normalized(x:select(1, c):reshape({ -1 }):tolist(), 1e-5)
        for i = 1, #want do
          want[i] = want[i] * w[c]:item() + b[c]:item()
        end
        near(y:select(1, c):reshape({ -1 }), want)
        assert.near(m, mean[c]:item(), 1e-12)
        assert.near(v, var[c]:item(), 1e-12)
      end
      differences.check(function(p, q, r)
        return (F._batch_norm_train(p, q, r, 1e-5))
      end, { x, w, b })
    end)
  end

  it("uses given statistics", function()
    local x = torch.tensor({ { 1.0, 10 }, { 3, 20 } }, { dtype = torch.float64 })
    local m = torch.tensor({ 1.0, 10 }, { dtype = torch.float64 })
    local v = torch.tensor({ 4.0, 25 }, { dtype = torch.float64 })
    near(F._batch_norm_eval(x, m, v, torch.none, torch.none, 0), { { 0, 0 }, { 1, 2 } })
    near(F._batch_norm_eval(x, m, v, m, v, 0), { { 4, 25 }, { 5, 45 } })
  end)

  it("needs two values a channel", function()
    raises("ValueError", "more than 1 value per channel", function()
      F._batch_norm_train(torch.zeros({ 1, 3 }), torch.none, torch.none, 1e-5)
    end)
  end)

  it("of one sample alone is instance normalisation", function()
    local x = numbers({ 2, 3, 4 }, 1)
    local y = F._instance_norm_train(x, torch.none, torch.none, 1e-5)
    near(y[1][2], (normalized(x[1][2]:tolist(), 1e-5)))
  end)
end)

describe("rms_norm and local_response_norm", function()
  it("divide by the root of the mean square", function()
    local x = torch.tensor({ { 3.0, 4 } }, { dtype = torch.float64 })
    near(F.rms_norm(x, { 2 }, { eps = 0 }), { { 3 / math.sqrt(12.5), 4 / math.sqrt(12.5) } })
    differences.check(function(p, w)
      return F.rms_norm(p, { 3 }, w, { eps = 1e-3 })
    end, { numbers({ 2, 3 }, 1), numbers({ 3 }, 2) })
  end)

  it("divide by a power of the neighbouring channels' squares", function()
    local x = torch.tensor({ { { 1.0 }, { 2 }, { 3 } } }, { dtype = torch.float64 })
    -- an even size reaches one channel further back
    local y = F.local_response_norm(x, 2, { alpha = 1, beta = 1, k = 1 })
    near(y, { { { 1 / 1.5 }, { 2 / 3.5 }, { 3 / 7.5 } } })
    y = F.local_response_norm(x, 3, { alpha = 3, beta = 1, k = 0 })
    near(y, { { { 1 / 5 }, { 2 / 14 }, { 3 / 13 } } })
  end)

  it("gives layer statistics of the weight's type, or else the input's", function()
    local x = torch.tensor({ { 1, 3 } }, { dtype = torch.float16 })
    local y, mean, rstd = torch.native_layer_norm(x, { 2 }, nil, nil, 0)
    assert.equal(torch.float16, y.dtype)
    assert.equal(torch.float16, mean.dtype)
    near(mean, { { 2 } })
    near(rstd, { { 1 } })
    y, mean, rstd = torch.native_layer_norm(x, { 2 }, torch.ones(2), torch.zeros(2), 0)
    assert.equal(torch.float16, y.dtype)
    assert.equal(torch.float32, mean.dtype)
    assert.equal(torch.float32, rstd.dtype)
  end)
end)
