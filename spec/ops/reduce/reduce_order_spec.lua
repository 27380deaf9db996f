-- Reductions by order, running extremes, differences and integrals, on values
-- whose results can be read off.
local torch = require("torch")
local helper = require("spec.helper")

local near, raises = helper.near, helper.refuses
local inf, nan = math.huge, 0 / 0

local function f64(values)
  return torch.tensor(values, { dtype = torch.float64 })
end

describe("reductions by order", function()
  it("kthvalue counts from 1, NaN last", function()
    local v, i = torch.kthvalue(f64{ { 3, nan, 1 }, { 5, 4, 6 } }, 2)
    near(v, f64{ 3, 5 })
    near(i, torch.tensor({ 0, 0 }))
    near((torch.kthvalue(f64{ 3, nan, 1 }, 3)), nan)
    raises("RuntimeError", "k is 4", torch.kthvalue, f64{ 1, 2, 3 }, 4)
  end)

  it("kthvalue is sort's, with ties, whichever k of many", function()
    torch.manual_seed(2)
    local x = torch.randint(0, 30, { 100, 3 }):double()
    x["40:45"] = nan
    for dim = 0, 1 do
      local t = dim == 0 and x or x:t()
      local values, at = torch.sort(t, { dim = dim, stable = true })
      for _, k in ipairs({ 1, 2, 6, 7, 50, 100 }) do
        local v, i = torch.kthvalue(t, k, dim)
        near(v, values:select(dim, k - 1))
        near(i, at:select(dim, k - 1))
      end
    end
  end)

  it("mode is the least of the most frequent, at its last place", function()
    local v, i = torch.mode(torch.tensor({ { 1, 3, 2, 3, 1, 2 }, { 5, 5, 0, 7, 0, 5 } }))
    near(v, torch.tensor({ 1, 5 }))
    near(i, torch.tensor({ 4, 5 }))
  end)

  it("nanmedian takes the lower middle of the numbers", function()
    near(torch.nanmedian(f64{ nan, 4, 1, nan, 3, 2 }), f64(2))
    local v, i = torch.nanmedian(f64{ { nan, nan }, { nan, 7 } }, 1, true)
    near(v, f64{ { nan }, { 7 } })
    near(i, torch.tensor({ { 0 }, { 1 } }))
    near(torch.nanmedian(torch.zeros({ 0 })), nan)
  end)

  it("the median of all shares its gradient among equals", function()
    local x = f64{ 2, 1, 2, 3 }:requires_grad_(true)
    torch.median(x):backward()
    near(x.grad, f64{ 0.5, 0, 0.5, 0 })
  end)

  it("quantiles interpolate in five ways", function()
    local x = f64{ 4, 0, 1, 3 }
    local want = { linear = 1.4, lower = 1, higher = 3, midpoint = 2, nearest = 1 }
    for how, v in pairs(want) do
      near(torch.quantile(x, 0.4, { interpolation = how }), f64(v),
        { 1e-12, 1e-12 })
    end
    raises("RuntimeError", "interpolation", torch.quantile, x, 0.5, { interpolation = "cubic" })
    raises("RuntimeError", "range", torch.quantile, x, 1.5)
  end)

  it("several quantiles come first, whatever the dimension", function()
    local x = torch.arange(6, { dtype = torch.float64 }):reshape(2, 3)
    local q = f64{ 0, 0.5, 1 }
    near(torch.quantile(x, q, 1), f64{ { 0, 3 }, { 1, 4 }, { 2, 5 } })
    near(torch.quantile(x, q, 0, true), f64{ { { 0, 1, 2 } }, { { 1.5, 2.5, 3.5 } },
      { { 3, 4, 5 } } })
    assert.are.same({ 3, 1, 1 }, { table.unpack(torch.quantile(x, q, { keepdim = true }).shape) })
  end)

  it("NaN spoils a quantile and is passed over by nanquantile", function()
    local x = f64{ { 1, nan, 3 }, { 1, 2, 3 } }
    near(torch.quantile(x, 0.5, 1), f64{ nan, 2 })
    near(torch.nanquantile(x, 0.5, 1), f64{ 2, 2 })
  end)
end)

describe("running extremes", function()
  it("keep the latest of equals, and NaN", function()
    local v, i = torch.cummax(f64{ 1, 3, 3, 2, nan, 5 }, 0)
    near(v, f64{ 1, 3, 3, 3, nan, nan })
    near(i, torch.tensor({ 0, 1, 2, 2, 4, 4 }))
    v, i = torch.cummin(torch.tensor({ { 2, 1 }, { 1, 1 }, { 3, 0 } }), 0)
    near(v, torch.tensor({ { 2, 1 }, { 1, 1 }, { 1, 0 } }))
    near(i, torch.tensor({ { 0, 0 }, { 1, 1 }, { 1, 2 } }))
  end)

  it("logcumsumexp neither overflows nor loses small terms", function()
    near(torch.logcumsumexp(f64{ -inf, 1000, 1000, -1000 }, 0),
      f64{ -inf, 1000, 1000 + math.log(2), 1000 + math.log(2) }, { 1e-14, 1e-14 })
  end)

  it("aminmax is both at once", function()
    local low, high = torch.aminmax(f64{ { 1, 5 }, { 4, 2 } }, { dim = 1, keepdim = true })
    near(low, f64{ { 1 }, { 2 } })
    near(high, f64{ { 5 }, { 4 } })
  end)
end)

describe("differences and integrals", function()
  it("diff of order n, with parts before and behind", function()
    near(torch.diff(f64{ 1, 4, 9, 16 }, 2), f64{ 2, 2 })
    near(torch.diff(f64{ 1, 4 }, { prepend = f64{ 0 }, append = f64{ 10 } }), f64{ 1, 3, 6 })
    near(torch.diff(torch.tensor({ true, false, false })), { true, false })
    assert.are.equal(0, torch.diff(f64{ 1, 2 }, 5):numel())
  end)

  it("trapezoids of a line are exact", function()
    local x = f64{ 0, 1, 3, 4 }
    near(torch.trapezoid(2 * x + 1, x), f64(20))
    near(torch.trapezoid(f64{ 0, 1, 2 }, { dx = 2 }), f64(4))
    near(torch.cumulative_trapezoid(2 * x + 1, x), f64{ 2, 12, 20 })
    near(torch.trapezoid(torch.ones({ 2, 3 }, { dtype = torch.float64 }), { dim = 0 }),
      f64{ 1, 1, 1 })
    raises("RuntimeError", "sample point", torch.trapezoid, f64{ 1, 2 }, f64{ 1, 2, 3 })
  end)

  it("renorm scales down what is too long, along one dimension", function()
    near(torch.renorm(f64{ { 3, 4 }, { 0.3, 0.4 } }, 2, 0, 1), f64{ { 0.6, 0.8 }, { 0.3, 0.4 } },
      { 1e-6, 1e-6 })
  end)

  it("cov and corrcoef follow their definitions", function()
    local x = f64{ { 1, 2, 4 }, { 3, 1, 2 } }
    local c = torch.cov(x)
    near(c, f64{ { 7 / 3, -0.5 }, { -0.5, 1 } }, { 1e-12, 1e-12 })
    near(torch.corrcoef(x)[0][1], -0.5 / math.sqrt(7 / 3), { 1e-12, 1e-12 })
    near(torch.cov(x, { fweights = torch.tensor({ 2, 1, 1 }) }),
      torch.cov(f64{ { 1, 1, 2, 4 }, { 3, 3, 1, 2 } }), { 1e-12, 1e-12 })
  end)

  it("nanmean counts only numbers", function()
    near(torch.nanmean(f64{ { 1, nan, 3 }, { nan, nan, nan } }, 1), f64{ 2, nan })
  end)
end)
