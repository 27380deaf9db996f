-- Gradients and second gradients of reductions against central differences,
-- and the places where PyTorch's choice is not a limit: ties, zeros, norm 0.
local torch = require("torch")
local differences = require("spec.support.differences")

local shapes = { { 4 }, { 2, 3 }, { 2, 3, 2 } }
local keep = { keepdim = true }

local function float64(values)
  return torch.tensor(values, { dtype = torch.float64 })
end

local function expect(name, f, low, high)
  for _, shape in ipairs(shapes) do
    it(("%s, %d dimensions"):format(name, #shape), function()
      differences.check(f, { differences.spread(shape, low, high) })
    end)
  end
end

describe("the check itself", function()
  it("finds a wrong gradient and a wrong second gradient", function()
    local input = float64{ 0.3, 0.7 }
    local function wrong(f)
      return select(2, pcall(differences.check, f, { input }))
    end
    assert.matches("gradient of operand 0, element 0",
      wrong(function(x) return x * x:detach() end), 1, true)
    assert.matches("second gradient of operand 0, element 0",
      wrong(function(x) return (x - x:detach()) ^ 2 end), 1, true)
    differences.check(function(x) return x * x end, { input })
  end)
end)

describe("the gradient", function()
  for _, name in ipairs({ "sum", "mean", "prod", "std", "var", "norm", "nansum" }) do
    expect("of " .. name, function(x) return x[name](x) end, -3, 3)
  end
  for _, name in ipairs({ "amax", "amin", "median" }) do
    expect("of " .. name, function(x) return torch[name](x) ^ 2 end, -3, 3)
  end
  for _, name in ipairs({ "sum", "mean", "amax", "amin", "logsumexp", "std", "var" }) do
    expect("of " .. name .. " of the last", function(x) return torch[name](x, -1) ^ 2 end, -3, 3)
    expect("of " .. name .. " of the first, kept", function(x)
      return torch[name](x, 0, keep) * x
    end, -3, 3)
  end
  expect("of sum over a list", function(x)
    return x:exp():sum(x:dim() > 1 and { 0, -1 } or { 0 })
  end, -1, 1)
  expect("of prod of a dimension", function(x) return x:prod(-1) ^ 2 end, -2, 2)
  for _, name in ipairs({ "max", "min", "median" }) do
    expect("of " .. name .. " of a dimension", function(x)
      local values = torch[name](x, 0, true)
      return values * x
    end, -3, 3)
  end
  expect("of cumsum", function(x) return x:cumsum(0) ^ 2 end, -2, 2)
  expect("of cumsum of the last", function(x) return x:cumsum(-1) ^ 2 end, -2, 2)
  expect("of cumprod", function(x) return x:cumprod(0) end, -2, 2)
  expect("of cumprod of the last", function(x) return x:cumprod(-1) end, -2, 2)
  for _, p in ipairs({ 1, 1.5, 2, 3, math.huge, -math.huge, 0 }) do
    expect("of the norm " .. p, function(x) return x:norm(p) end, 0.3, 3)
    expect("of the norm " .. p .. " of negative numbers", function(x)
      return torch.linalg.vector_norm(x, p, 0, true) * x
    end, -3, -0.3)
  end
  for _, name in ipairs({ "var_mean", "std_mean" }) do
    expect("of " .. name, function(x)
      local a, b = torch[name](x, 0, { correction = 0 })
      return a * b
    end, -3, 3)
  end
end)

describe("the gradient of products with zeros", function()
  local function grad(f, values)
    local x = torch.tensor(values, { dtype = torch.float64, requires_grad = true })
    f(x):sum():backward()
    return x.grad:tolist()
  end
  it("of prod is the product of the others", function()
    assert.same({ 0, 6, 0 }, grad(function(x) return x:prod() end, { 2, 0, 3 }))
    assert.same({ 0, 0, 0 }, grad(function(x) return x:prod() end, { 0, 0, 3 }))
    local rows = { { 0, 3 }, { 5, 4 } }
    assert.same({ { 3, 0 }, { 4, 5 } }, grad(function(x) return x:prod(1) end, rows))
  end)
  it("of prod, second order", function()
    differences.check(function(x) return x:prod(-1) end, { float64{ 2, 0, 3 } })
    differences.check(function(x) return x:prod() end, { float64{ { 0, 1 }, { 0, 5 } } })
  end)
  it("of cumprod, both orders", function()
    differences.check(function(x) return x:cumprod(0) end, { float64{ 2, 0, 3, 4 } })
    differences.check(function(x) return x:cumprod(-1) end, { float64{ { 2, 0, 0 }, { 0, 3, 4 } } })
  end)
  it("of cumprod is the sum of the products without an element", function()
    local rows = { { 2, 3, 4, 5 }, { 2, 0, 4, 5 }, { 0, 3, 0, 5 }, { 2, 3, 4, 0 } }
    local want = {}
    for i, row in ipairs(rows) do
      want[i] = {}
      for j = 1, 4 do
        local sum = 0
        for k = j, 4 do
          local product = 1
          for l = 1, k do
            product = product * (l == j and 1 or row[l])
          end
          sum = sum + product
        end
        want[i][j] = sum
      end
    end
    for _, dtype in ipairs({ torch.float16, torch.bfloat16, torch.float32, torch.float64 }) do
      local x = torch.tensor(rows, { dtype = dtype, requires_grad = true })
      x:cumprod(1):sum():backward()
      assert.same(want, x.grad:tolist())
      x = torch.tensor(rows, { dtype = dtype }):t():contiguous():requires_grad_()
      x:cumprod(0):sum():backward()
      assert.same(want, x.grad:t():tolist())
    end
  end)
  it("of cumprod of no elements and of no dimensions", function()
    local none = torch.zeros(0, 3):requires_grad_()
    none:cumprod(0):sum():backward()
    assert.same({ 0, 3 }, none.grad.shape)
    assert.equal(1, grad(function(x) return x:cumprod(0) end, 5))
  end)
  it("of long products takes no more room than they do", function()
    local n = 4000
    local x = torch.full({ 100, n }, -1.0):requires_grad_()
    x:cumprod(1):sum():backward()
    -- d/dx_j is the sum of (-1)^i from j to the last, an odd i
    local want = torch.arange(n):remainder(2):neg():to(torch.float32)
    assert.is_true(torch.equal(want:expand(100, n), x.grad))
    x = torch.ones(100, n):requires_grad_()
    local g = torch.autograd.grad(x:prod(1):sum(), { x }, { create_graph = true })[1]
    g:sum():backward()
    assert.is_true(torch.equal(torch.full({ 100, n }, n - 1.0), x.grad))
  end)
end)

describe("where the derivative is a choice", function()
  local function grad(f, values)
    local x = torch.tensor(values, { requires_grad = true })
    f(x):backward()
    return x.grad:tolist()
  end
  it("amax and max of all share evenly among equals", function()
    assert.same({ 0.5, 0, 0.5 }, grad(torch.amax, { 2.0, 1, 2 }))
    assert.same({ 0.5, 0, 0.5 }, grad(torch.max, { 2.0, 1, 2 }))
    assert.same({ 0, 1, 0 }, grad(torch.amin, { 2.0, 1, 2 }))
  end)
  it("amax and max give what is no extreme nothing, however large dy is", function()
    for _, f in ipairs({ torch.amax, torch.max }) do
      local function scaled(x) return f(x) * math.huge end
      assert.same({ 0, math.huge }, grad(scaled, { 1.0, 2 }))
      assert.same({ 0, 1, 0 }, grad(f, { 1.0, 0 / 0, 2 }))
    end
  end)
  it("max of a dimension goes to the index it returned", function()
    local g = grad(function(x) return (torch.max(x, 0)) end, { 2.0, 1, 2 })
    assert.same({ 1, 0, 0 }, g)
  end)
  it("norm and std are 0 where they have no derivative", function()
    assert.same({ 0, 0 }, grad(torch.norm, { 0.0, 0 }))
    assert.same({ 0, 0 }, grad(torch.std, { 3.0, 3 }))
    assert.same({ 1, -1, 0 }, grad(function(x) return x:norm(1) end, { 2.0, -3, 0 }))
  end)
end)
