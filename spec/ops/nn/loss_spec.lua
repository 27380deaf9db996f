-- Losses against their formulas (numbers by hand or by lists), reductions,
-- weights, ignored targets, gradients.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")
local differences = require("spec.support.differences")
local near, raises, numbers = helper.near, helper.raises, differences.numbers

local f64 = { dtype = torch.float64 }
local function tensor(t)
  return torch.tensor(t, f64)
end

describe("nll_loss", function()
  local x = tensor({ { -1.0, -2, -3 }, { -4, -5, -6 }, { -7, -8, -9 } })
  local t = torch.tensor({ 2, 0, 1 })
  local w = tensor({ 1.0, 2, 4 })

  it("picks, weighs and reduces", function()
    near(F.nll_loss(x, t, { reduction = "none" }), { 3, 4, 8 })
    near(F.nll_loss(x, t, { reduction = "sum" }), 15)
    near(F.nll_loss(x, t), 5)
    near(F.nll_loss(x, t, w, { reduction = "none" }), { 12, 4, 16 })
    near(F.nll_loss(x, t, w), 32 / 7)
    near(F.nll_loss(x[0], torch.tensor(1)), 2)
  end)

  it("leaves out the ignored", function()
    local some = torch.tensor({ 2, -100, 1 })
    near(F.nll_loss(x, some), 5.5)
    near(F.nll_loss(x, t, { ignore_index = 0 }), 5.5)
    local none = F.nll_loss(x, torch.tensor({ -100, -100, -100 })):item()
    assert.is_true(none ~= none)
  end)

  it("keeps places", function()
    local y = tensor({ { { -1.0, -2 }, { -3, -4 } } })
    near(F.nll_loss(y, torch.tensor({ { 1, 0 } }), { reduction = "none" }), { { 3, 2 } })
  end)

  it("has gradients of its input", function()
    for _, how in ipairs({ "none", "sum", "mean" }) do
      differences.check(function(p)
        local q = p * p
        return F.nll_loss(q, t, w, { reduction = how })
      end, { x })
    end
  end)

  it("names a class that is not there and shapes that do not fit", function()
    raises("IndexError", "target 3 is out of bounds", function()
      F.nll_loss(x, torch.tensor({ 0, 1, 3 }))
    end)
    raises("ValueError", "%[3, 3%] and %[2%]", function()
      F.nll_loss(x, torch.tensor({ 0, 1 }))
    end)
    raises("RuntimeError", "integer type, got float64", function()
      F.nll_loss(x, tensor({ 0.0, 1, 2 }))
    end)
    raises("ValueError", "'avg' is not a valid value for reduction", function()
      F.nll_loss(x, t, { reduction = "avg" })
    end)
    raises("RuntimeError", "for each of 3 classes", function()
      F.nll_loss(x, t, tensor({ 1.0, 2 }))
    end)
  end)
end)

describe("cross_entropy", function()
  local x, t = numbers({ 4, 3 }, 1), torch.tensor({ 2, 0, -100, 1 })
  local w = tensor({ 0.5, 2, 1 })
  local logp = F.log_softmax(x, 1)

  it("is log_softmax, then nll_loss", function()
    for _, how in ipairs({ "none", "sum", "mean" }) do
      near(F.cross_entropy(x, t, w, { reduction = how }),
        F.nll_loss(logp, t, w, { reduction = how }))
    end
  end)

  it("smooths labels as a mixture with the mean over the classes", function()
    local ids, e = torch.tensor({ 2, 0, 1, 1 }), 0.3
    local l, want = logp:tolist(), 0
    for i, c in ipairs(ids:tolist()) do
      want = want - (1 - e) * l[i][c + 1] - e / 3 * (l[i][1] + l[i][2] + l[i][3])
    end
    near(F.cross_entropy(x, ids, { label_smoothing = e }), want / 4)
    -- the same as probabilities
    local p = torch.zeros({ 4, 3 }, f64)
    for i, c in ipairs(ids:tolist()) do
      p[{ i - 1, c }] = 1
    end
    near(F.cross_entropy(x, p, { label_smoothing = e }), want / 4)
    near(F.cross_entropy(x, p, w, { reduction = "none" }),
      F.cross_entropy(x, ids, w, { reduction = "none" }))
  end)

  it("has first and second gradients", function()
    differences.check(function(p)
      return F.cross_entropy(p, t, w)
    end, { x })
    differences.check(function(p)
      return F.cross_entropy(p, t, w, { label_smoothing = 0.2, reduction = "sum" })
    end, { x })
    local probabilities = F.softmax(numbers({ 4, 3 }, 5), 1)
    differences.check(F.cross_entropy, { x, probabilities })
  end)

  it("refuses a smoothing outside 0 … 1 and a target that fits neither way", function()
    raises("RuntimeError", "between 0.0 and 1.0. Got: 2", function()
      F.cross_entropy(x, t, { label_smoothing = 2 })
    end)
    raises("RuntimeError", "float64 of shape %[4%]", function()
      F.cross_entropy(x, tensor({ 1.0, 2, 0, 0 }))
    end)
  end)
end)

describe("losses by element", function()
  local x, t = tensor({ 0.5, -1, 2 }), tensor({ 0.0, 1, 1.5 })

  it("follow their formulas", function()
    local none = { reduction = "none" }
    near(F.mse_loss(x, t, none), { 0.25, 4, 0.25 })
    near(F.mse_loss(x, t), 1.5)
    near(F.l1_loss(x, t, { reduction = "sum" }), 3)
    near(F.smooth_l1_loss(x, t, none), { 0.125, 1.5, 0.125 })
    near(F.smooth_l1_loss(x, t, { reduction = "none", beta = 0.25 }), { 0.375, 1.875, 0.375 })
    near(F.smooth_l1_loss(x, t, { reduction = "none", beta = 0 }), { 0.5, 2, 0.5 })
    near(F.huber_loss(x, t, { reduction = "none", delta = 1.5 }), { 0.125, 1.875, 0.125 })
    local p, q = tensor({ 0.25, 0.5 }), tensor({ 1.0, 0.5 })
    near(F.binary_cross_entropy(p, q, none), { -math.log(0.25), -math.log(0.5) })
    near(F.binary_cross_entropy(tensor({ 0.0, 1 }), tensor({ 1.0, 0 }), none), { 100, 100 })
    near(F.kl_div(p:log(), q, none), { math.log(4), 0 })
    near(F.kl_div(p:log(), tensor({ 0.0, 1 }), none), { 0, math.log(2) })
    near(F.kl_div(p:log():reshape({ 2, 1 }), q:reshape({ 2, 1 }), { reduction = "batchmean" }),
      math.log(4) / 2)
    near(F.poisson_nll_loss(x, t, none), {
      math.exp(0.5), math.exp(-1) + 1, math.exp(2) - 3,
    })
    near(F.margin_ranking_loss(x, t, tensor({ 1.0, 1, -1 }), { margin = 0.25, reduction = "none" }),
      { 0, 2.25, 0.75 })
    near(F.hinge_embedding_loss(x, tensor({ 1.0, -1, -1 }), none), { 0.5, 2, 0 })
    near(F.soft_margin_loss(x, tensor({ 1.0, 1, -1 }), none), {
      math.log(1 + math.exp(-0.5)), math.log(1 + math.exp(1)), math.log(1 + math.exp(2)),
    })
  end)

  it("take logits of any size", function()
    local l = tensor({ -800.0, 0, 800 })
    local one = tensor({ 1.0, 1, 1 })
    near(F.binary_cross_entropy_with_logits(l, one, { reduction = "none" }),
      { 800, math.log(2), 0 })
    near(F.binary_cross_entropy_with_logits(l, one * 0, { reduction = "none" }),
      { 0, math.log(2), 800 })
    local w = F.binary_cross_entropy_with_logits(x, one,
      { reduction = "sum", pos_weight = one * 3 })
    near(w, F.binary_cross_entropy_with_logits(x, one, { reduction = "sum" }):item() * 3)
  end)

  it("know the old spelling of reduction", function()
    near(F.mse_loss(x, t, { size_average = false }), 4.5)
    near(F.mse_loss(x, t, { reduce = false }), { 0.25, 4, 0.25 })
    near(F.mse_loss(x, t, { size_average = true }), 1.5)
  end)

  it("have first and second gradients", function()
    local p, q = F.softmax(numbers({ 2, 3 }, 1), 1), F.softmax(numbers({ 2, 3 }, 2), 1)
    for _, name in ipairs({
      "mse_loss", "huber_loss", "smooth_l1_loss", "kl_div", "binary_cross_entropy",
      "binary_cross_entropy_with_logits",
    }) do
      differences.check(F[name], { p, q }, name == "kl_div")
    end
    differences.check(F.l1_loss, { x, t }, true)
  end)

  it("have the gradient of the straight part at an infinite difference", function()
    local inf = math.huge
    for _, name in ipairs({ "huber_loss", "smooth_l1_loss" }) do
      for _, row in ipairs({
        { { inf, -inf }, { 0, 0 }, { 0.5, -0.5 } },
        { { 1, 0.25 }, { inf, 0 }, { -0.5, 0.125 } },
        { { 0 / 0, 0.25 }, { 0, 0 }, { 0 / 0, 0.125 } },
      }) do
        local input = tensor(row[1]):requires_grad_()
        F[name](input, tensor(row[2])):backward()
        assert.is_true(torch.allclose(input.grad, tensor(row[3]), { equal_nan = true }))
      end
    end
  end)

  it("refuse targets of another size where PyTorch does", function()
    raises("ValueError", "target size %[2%] must be the same as input size %[3%]", function()
      F.binary_cross_entropy(x, tensor({ 1.0, 0 }))
    end)
    raises("RuntimeError", "negative values for beta", function()
      F.smooth_l1_loss(x, t, { beta = -1 })
    end)
  end)
end)

describe("identity_loss", function()
  it("reduces without the width mattering", function()
    local x = numbers({ 300, 101 }, 1)
    local s = 0
    for _, v in ipairs(x:reshape({ -1 }):tolist()) do
      s = s + v
    end
    near(F._identity_loss(x, "sum"), s, { 1e-9, 1e-12 })
    near(F._identity_loss(x, "mean"), s / 30300, { 1e-12, 1e-12 })
    near(F._identity_loss(x, "none"), x)
    local n, y = torch.get_num_threads(), x:float()
    torch.set_num_threads(1)
    local one = F._identity_loss(y, "sum"):item()
    torch.set_num_threads(2)
    local two = F._identity_loss(y, "sum"):item()
    torch.set_num_threads(n)
    assert.equal(one, two)
  end)

  it("has a gradient", function()
    for _, how in ipairs({ "sum", "mean", "none" }) do
      differences.check(function(x)
        return F._identity_loss(x * x, how)
      end, { numbers({ 2, 3 }, 1) })
    end
  end)
end)
