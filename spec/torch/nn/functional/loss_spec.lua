--- Losses: arguments and warnings.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("binary_cross_entropy", function()
  it("refuses what is no probability", function()
    for _, x in ipairs({ 2.0, -0.1, 0 / 0 }) do
      raises("RuntimeError", "between 0 and 1", function()
        nn.BCELoss()(torch.tensor({ x }), torch.tensor({ 1.0 }))
      end)
    end
    helper.near(nn.BCELoss()(torch.tensor({ 0.5 }), torch.tensor({ 1.0 })), math.log(2))
  end)

  -- as PyTorch's (x - t) / max(x (1 - x), 1e-12)
  it("has a finite gradient where a probability is 0 or 1", function()
    local t, ones = torch.tensor({ 0.0, 1, 0, 1, 1 }), torch.ones(5)
    local function loss(p)
      return nn.functional.binary_cross_entropy(p, t, { reduction = "none" })
    end
    local function of_scores(x)
      return loss(torch.sigmoid(x))
    end
    for f, case in pairs({
      [of_scores] = { { -200.0, -200, 200, 200, 0 }, { 0, 0, 0, 0, -0.5 } },
      [loss] = { { 0.5, 0, 1, 0.25, 1e-4 }, { 2, -1e12, 1e12, -4, -1e4 } },
    }) do
      local x = torch.tensor(case[1]):requires_grad_(true)
      f(x):backward(ones)
      helper.near(x.grad, case[2])
      local compiled = require("lupine").compile(f, { x:detach() }, { cotangents = { ones } })
      local _, grads = compiled(x:detach(), { ones })
      helper.near(grads[1], case[2])
    end
    local twice = torch.tensor({ 0.25 }):requires_grad_(true)
    local first = torch.autograd.grad(nn.BCELoss()(twice, torch.ones(1)), twice,
      { create_graph = true })[1]
    first:backward()
    helper.near(twice.grad, { 16 })
  end)
end)

describe("a warning", function()
  local F = nn.functional
  before_each(require("lupine.base.warn").reset)

  local function once(text, f)
    assert.is_truthy(helper.logged(f):find(text, 1, true))
    assert.equal("", helper.logged(f))
  end

  it("tells of a target that is broadcast", function()
    for i, name in ipairs({ "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss" }) do
      once(name .. ": the target's size torch.Size([" .. i .. "1]) differs", function()
        F[name](torch.randn(i * 10 + 1, 1), torch.randn(i * 10 + 1))
      end)
      assert.equal("", helper.logged(function()
        F[name](torch.randn(3, 1), torch.randn(3, 1))
      end))
    end
    once("mse_loss: the target's size torch.Size([77]) differs", function()
      nn.MSELoss()(torch.randn(77, 1), { target = torch.randn(77) })
    end)
  end)

  it("tells of kl_div's mean", function()
    local a = torch.rand(2, 2)
    assert.equal("", helper.logged(function()
      F.kl_div(a:log(), a, { reduction = "batchmean" })
      F.kl_div(a:log(), a, nil, nil, "sum")
    end))
    once("kl_div: reduction 'mean' divides", function()
      F.kl_div(a:log(), a)
    end)
  end)
end)

describe("a loss", function()
  local q = torch.randn(2, 3, 4)

  it("takes the losses' own names", function()
    local a, b, c = torch.randn(3), torch.randn(3), torch.rand(3) + 1
    helper.near(nn.GaussianNLLLoss()({ input = a, target = b, var = c }),
      nn.functional.gaussian_nll_loss(a, b, c))
    local triplet = { anchor = q[0], positive = q[1], negative = q[0] }
    helper.near(nn.TripletMarginLoss()(triplet), nn.TripletMarginLoss()(q[0], q[1], q[0]))
  end)

  it("refuses variances and weights of other shapes", function()
    local function refuses(f)
      helper.raises("ValueError", "", f)
    end
    refuses(function() nn.functional.gaussian_nll_loss(q, q, torch.ones(2, 3, 2)) end)
    refuses(function() nn.functional.gaussian_nll_loss(q, q, torch.ones(2, 1, 1)) end)
    refuses(function() nn.functional.gaussian_nll_loss(q, q, torch.ones(4)) end)
    assert.same({ 2, 3, 4 }, { table.unpack(nn.functional.gaussian_nll_loss(q, q,
      torch.ones(2, 1, 4), { reduction = "none" }).shape) })
    refuses(function()
      nn.functional.multi_margin_loss(q[0], torch.tensor({ 0, 1, 2 }), { weight = q[0] })
    end)
  end)
end)
