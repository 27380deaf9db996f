-- torch_scatter and torch_spline_conv: values of their documentation and by
-- definition; compiled as on the host.
local helper = require("spec.helper")
local lupine = require("lupine")
local scatter = require("torch_scatter")
local spline = require("torch_spline_conv")
local torch = require("torch")
local near = helper.near

local src = torch.tensor({ { 2.0, 0, 1, 4, 3 }, { 0, 2, 1, 3, 4 } })
local index = torch.tensor({ { 4, 5, 4, 2, 3 }, { 0, 0, 2, 2, 1 } })
local groups = torch.tensor({ 0, 0, 1, 1, 1 })

describe("scatter", function()
  it("reduces groups; those without elements are 0", function()
    local out, arg = scatter.scatter_max(src, index)
    assert.same({ { 0, 0, 4, 3, 2, 0 }, { 2, 4, 3, 0, 0, 0 } }, out:tolist())
    assert.same({ { 5, 5, 3, 4, 0, 1 }, { 1, 4, 3, 5, 5, 5 } }, arg:tolist())
    local sum = scatter.scatter(src, index)
    assert.same({ { 0, 0, 4, 3, 3, 0 }, { 2, 4, 4, 0, 0, 0 } }, sum:tolist())
    assert.same({ { 0, 0, 4, 3, 1.5, 0 }, { 1, 4, 2, 0, 0, 0 } },
      scatter.scatter(src, index, { reduce = "mean" }):tolist())
    assert.same({ { 0, 0, 4, 3, 1, 0 }, { 0, 4, 1, 0, 0, 0 } },
      (scatter.scatter_min(src, index)):tolist())
    assert.same({ { 1, 1, 4, 3, 2, 0 }, { 0, 4, 3, 1, 1, 1 } },
      scatter.scatter_mul(src, index):tolist())
    assert.same({ { 2, 2, 1, 4 }, { 0, 0, 0, 0 } },
      scatter.scatter_add(torch.tensor({ { 2, 1, 1 }, { 0, 0, 0 } }), torch.tensor({ 0, 1, 1 }),
        { out = torch.tensor({ { 0, 0, 1, 4 }, { 0, 0, 0, 0 } }) }):tolist())
    assert.same({ { 3, 6 }, { 12, 15 } }, scatter.scatter(torch.arange(1, 7):reshape({ 3, 2 }) * 3,
      torch.tensor({ 0, 1, 1 }), 0, nil, 2):sub(torch.tensor({ { 0, 0 }, { 12, 15 } })):tolist())
  end)

  it("composites have the values of each group alone", function()
    local F = torch.nn.functional
    local left, right = src:narrow(1, 0, 2), src:narrow(1, 2, 3)
    local both = torch.cat({ F.softmax(left, 1), F.softmax(right, 1) }, 1)
    near(scatter.scatter_softmax(src, groups), both)
    near(scatter.scatter_log_softmax(src, groups), both:log())
    near(scatter.scatter_logsumexp(src, groups),
      torch.stack({ left:logsumexp(1), right:logsumexp(1) }, 1))
    near(scatter.scatter_std(src, groups), torch.stack({ left:std(1), right:std(1) }, 1),
      { 1e-5, 1e-5 })
    near(scatter.scatter_std(src, groups, { unbiased = false }),
      torch.stack({ left:std(1, false), right:std(1, false) }, 1), { 1e-5, 1e-5 })
  end)

  it("has gradients, and runs compiled where the number of groups is given", function()
    for name in pairs({ scatter_sum = 1, scatter_mean = 1, scatter_max = 1, scatter_softmax = 1,
      scatter_logsumexp = 1, scatter_std = 1 }) do
      local function f(x)
        return (scatter[name](x, groups, { dim = 1, dim_size = 2 }))
      end
      local x = src:double():detach():requires_grad_(true)
      assert.is_true(torch.autograd.gradcheck(f, { x }))
      near(lupine.compile(f, { src })(src), f(src))
    end
    helper.raises("RuntimeError", "dim_size: needed in a traced model", function()
      lupine.compile(function(x, i) return scatter.scatter(x, i) end, { src, index })
    end)
    helper.raises("ValueError", "reduce: expected sum", function()
      scatter.scatter(src, index, { reduce = "median" })
    end)
  end)
end)

describe("spline", function()
  local sizes, open = torch.tensor({ 5, 5 }), torch.tensor({ 1, 1 }):to(torch.uint8)

  it("bases of degree 1 are the corners of a cell, weighted by nearness", function()
    local pseudo = torch.tensor({ { 0.0, 0.0625 }, { 0.25, 0.75 }, { 0.5, 0.5 } })
    local basis, at = spline.spline_basis(pseudo, sizes, open)
    near(basis, { { 0.75, 0.0, 0.25, 0.0 }, { 1.0, 0.0, 0.0, 0.0 }, { 1.0, 0.0, 0.0, 0.0 } })
    assert.same({ { 0, 1, 5, 6 }, { 16, 17, 21, 22 }, { 12, 13, 17, 18 } }, at:tolist())
  end)

  it("bases of every degree sum to 1, within the kernel, and have gradients", function()
    torch.manual_seed(1)
    for degree = 1, 3 do
      local pseudo = torch.rand({ 6, 2 }, { dtype = torch.float64 })
      local closed = torch.tensor({ 1, 0 }):to(torch.uint8)
      local basis, at = spline.spline_basis(pseudo, sizes, closed, degree)
      assert.same({ 6, (degree + 1) ^ 2 }, { table.unpack(basis.shape) })
      near(basis:sum(1), torch.ones({ 6 }))
      assert.is_true(at:max():item() < 25 and at:min():item() >= 0)
      assert.is_true(torch.autograd.gradcheck(function(q)
        return (spline.spline_basis(q, sizes, closed, degree))
      end, { pseudo:requires_grad_(true) }))
    end
  end)

  it("weighting is the weighted sum of products with kernels", function()
    local x, weight = torch.randn({ 3, 2 }), torch.randn({ 4, 2, 5 })
    local basis, at = torch.rand({ 3, 2 }), torch.tensor({ { 0, 3 }, { 1, 1 }, { 2, 0 } })
    local out = spline.spline_weighting(x, weight, basis, at)
    for e = 0, 2 do
      local want = 0
      for s = 0, 1 do
        want = want + basis[e][s] * x[e]:matmul(weight[at[e][s]:item()])
      end
      near(out[e], want)
    end
    near(lupine.compile(spline.spline_weighting, { x, weight, basis, at })(x, weight, basis, at),
      out)
  end)
end)
