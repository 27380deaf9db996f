--- torch.autograd.functional, against PyTorch 2.15's figures; anomalies.
local helper = require("spec.helper")
local torch = require("torch")
local near, raises = helper.near, helper.raises
local F = torch.autograd.functional

local x, y = torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } }), torch.tensor({ 0.5, -1.0 })
local tol = { 1e-4, 1e-4 }

local function scalar(a, b)
  return a:matmul(b):exp():sum() + (b ^ 3):sum()
end

local function two(a, b)
  return a:matmul(b), (b * b):sum()
end

describe("torch.autograd.functional", function()
  it("has Jacobians of several inputs and outputs", function()
    local j = F.jacobian(two, { x, y })
    near(j[1][1], { { { 0.5, -1 }, { 0, 0 } }, { { 0, 0 }, { 0.5, -1 } } })
    near(j[1][2], { { 1, 2 }, { 3, 4 } })
    near(j[2][1], { { 0, 0 }, { 0, 0 } })
    near(j[2][2], { 1, -2 })
    near(F.jacobian(torch.exp, torch.tensor({ 0.0, 1.0 })), { { 1, 0 }, { 0, math.exp(1) } })
  end)

  it("has Hessians", function()
    local h = F.hessian(scalar, { x, y })
    near(h[1][2], { { { 0.3347, 0.2231 }, { -0.2231, -0.2231 } },
      { { 0.2052, 0.1642 }, { -0.2463, -0.2463 } } }, tol)
    near(h[2][2], { { 3.9619, 1.4313 }, { 1.4313, -3.7941 } }, tol)
  end)

  it("has products with them", function()
    local out, g = F.vjp(two, { x, y }, { y, torch.tensor(2.0) })
    near(out[1], { -1.5, -2.5 })
    near(g[1], { { 0.25, -0.5 }, { -0.5, 1 } })
    near(g[2], { -0.5, -7 })
    out, g = F.jvp(two, { x, y }, { x, y })
    near(out[2], 1.25)
    near(g[1], { -3, -5 })
    near(g[2], 2.5)
    for _, product in ipairs({ F.hvp, F.vhp }) do
      out, g = product(scalar, { x, y }, { x, y })
      near(out, -0.5698, tol)
      near(g[1], { { -0.2231, 0.4463 }, { -0.1642, 0.3283 } }, tol)
      near(g[2], { 0.0687, 3.7941 }, tol)
    end
  end)

  it("can be differentiated with create_graph", function()
    local w = torch.tensor({ 2.0, 3.0 }):requires_grad_(true)
    F.jacobian(function(a) return a ^ 3 end, w, { create_graph = true }):sum():backward()
    near(w.grad, { 12, 18 })
    assert.is_false(F.jacobian(torch.exp, w).requires_grad)
  end)

  it("refuses what does not fit", function()
    raises("RuntimeError", "independent of input 2", function()
      F.jacobian(function(a) return a * 2 end, { y, y }, { strict = true })
    end)
    raises("RuntimeError", "v%[1%] has the shape", function() F.vjp(torch.exp, y, x) end)
    raises("RuntimeError", "single element", function() F.hessian(torch.exp, y) end)
    raises("RuntimeError", "only be left out", function() F.jvp(torch.exp, y) end)
    raises("NotImplementedError", "reverse%-mode", function()
      F.jacobian(torch.exp, y, { strategy = "forward-mode" })
    end)
  end)
end)

describe("torch.autograd.detect_anomaly", function()
  it("names the operator whose gradient is not a number", function()
    local function run()
      local w = torch.tensor(0.0):requires_grad_(true)
      local y0 = torch.sqrt(w * 0) * 0
      y0:backward()
      return w.grad:item()
    end
    assert.is_true(run() ~= run()) -- NaN
    torch.autograd.detect_anomaly(function()
      raises("RuntimeError", "gradient of sqrt", run)
    end)
    assert.is_false(torch.is_anomaly_enabled())
    do
      local _ <close> = torch.autograd.set_detect_anomaly(true)
      assert.is_true(torch.is_anomaly_enabled())
      raises("RuntimeError", "NaN", run)
    end
    assert.is_false(torch.is_anomaly_enabled())
  end)
end)
