-- Histograms against counting by hand, gradients against the slopes of
-- polynomials that the difference formulas have exactly.
local torch = require("torch")
local helper = require("spec.helper")

local near, raises = helper.near, helper.refuses

local function f64(values)
  return torch.tensor(values, { dtype = torch.float64 })
end

describe("histogram", function()
  it("counts into bins of equal width; the last has its upper edge", function()
    local hist, edges = torch.histogram(f64{ 0, 1, 1, 2, 4 }, 4)
    near(edges, f64{ 0, 1, 2, 3, 4 })
    near(hist, f64{ 1, 2, 1, 1 })
    near(torch.histogram(f64{ -1, 0.5, 3 }, 2, { range = { 0, 1 } }), f64{ 0, 1 })
  end)

  it("counts weights between given edges, as a density", function()
    local edges = f64{ 0, 1, 3 }
    local hist = f64{ 0.5, 1, 2, 9 }:histogram(edges, { weight = f64{ 2, 1, 1, 5 } })
    near(hist, f64{ 2, 2 })
    hist = torch.histogram(f64{ 0.5, 1, 2, 9 }, edges, { density = true })
    near(hist, f64{ 1 / 3, 1 / 3 })
  end)

  it("makes room around one value, and of nothing counts nothing", function()
    local hist, edges = torch.histogram(f64{ 2, 2 }, 2)
    near(edges, f64{ 1.5, 2, 2.5 })
    near(hist, f64{ 0, 2 })
    near(torch.histogram(torch.zeros({ 0 }), 2), { 0, 0 })
  end)

  it("counts points in more dimensions", function()
    local points = f64{ { 0, 0 }, { 0, 1 }, { 1, 1 }, { 1, 1 } }
    local hist, edges = torch.histogramdd(points, { 2, 3 })
    near(hist, f64{ { 1, 0, 1 }, { 0, 0, 2 } })
    near(edges[2], f64{ 0, 1 / 3, 2 / 3, 1 }, { 1e-12, 1e-12 })
  end)

  it("names wrong arguments", function()
    raises("RuntimeError", "bins", torch.histogram, f64{ 1 }, 0)
    raises("RuntimeError", "not finite", torch.histogram, f64{ 0 / 0 }, 2)
    raises("RuntimeError", "range", torch.histogram, f64{ 1 }, 2, { range = { 2, 1 } })
    raises("NotImplementedError", "int64", torch.histogram, torch.tensor({ 1 }), 2)
    raises("RuntimeError", "dtype", torch.histogram, f64{ 1 }, torch.ones({ 2 }))
    raises("TypeError", "edges", torch.histogram, f64{ 1 }, f64{ 1, 2 }, { range = { 0, 1 } })
  end)
end)

describe("gradient", function()
  it("has the slopes of a parabola, at the ends too with order 2", function()
    local x = torch.arange(5, { dtype = torch.float64 }) * 0.5
    local y = x * x + x
    near(torch.gradient(y, { spacing = 0.5, edge_order = 2 })[1], 2 * x + 1, { 1e-12, 1e-12 })
    local first = torch.gradient(y, { spacing = 0.5 })[1]
    near(first[0], 1.5)
    near(first[-1], 4.5)
  end)

  it("has them at uneven coordinates", function()
    local x = f64{ 0, 1, 3, 3.5, 7 }
    near(torch.gradient(x * x - x, { spacing = { x }, edge_order = 2 })[1], 2 * x - 1,
      { 1e-12, 1e-12 })
  end)

  it("gives one tensor for each dimension asked for", function()
    local y = torch.arange(12, { dtype = torch.float64 }):reshape(3, 4)
    local both = torch.gradient(y)
    assert.are.equal(2, #both)
    near(both[1], torch.full({ 3, 4 }, 4, { dtype = torch.float64 }))
    near(torch.gradient(y, { dim = -1, spacing = 2 })[1],
      torch.full({ 3, 4 }, 0.5, { dtype = torch.float64 }))
  end)

  it("can be differentiated", function()
    local y = f64{ 1, 4, 9, 16 }:requires_grad_(true)
    torch.gradient(y)[1]:sum():backward()
    near(y.grad, f64{ -1.5, 0.5, -0.5, 1.5 })
  end)

  it("names wrong arguments", function()
    raises("RuntimeError", "edge_order", torch.gradient, f64{ 1, 2, 3 }, { edge_order = 3 })
    raises("RuntimeError", "spacing has 2", torch.gradient, f64{ 1, 2, 3 }, { spacing = { 1, 2 } })
    raises("RuntimeError", "at least", torch.gradient, f64{ 1 })
    raises("RuntimeError", "more than once", torch.gradient, torch.zeros({ 2, 2 }),
      { dim = { 0, -2 } })
  end)
end)

describe("randint", function()
  it("names its bounds when there is nothing between them", function()
    helper.raises("RuntimeError", "randint: low must be less than high, got low=5 and high=2",
      function()
        torch.randint(5, 2, { 3 })
      end)
  end)
end)
