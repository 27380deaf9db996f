-- What a graph keeps for its gradients: once, or for as long as the caller
-- asks; and whose memory a leaf's gradient is. Values are PyTorch 2.15's.
local helper = require("spec.helper")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local GONE = "retain_graph = true"

local function leaf(...)
  return torch.tensor({ ... }, { requires_grad = true })
end

describe("a graph", function()
  it("is gone after backward", function()
    for name, f in pairs({
      mul = function(w) return (w * w):sum() end,
      exp = function(w) return w:exp():sum() end,
      matmul = function(w) return w:reshape(1, 2):matmul(w:reshape(2, 1)):sum() end,
    }) do
      local w = leaf(1.0, 2.0)
      local y = f(w)
      y:backward()
      local kept = w.grad:clone()
      local ok, e = pcall(raises, "RuntimeError", GONE, function() y:backward() end)
      assert.is_true(ok, name .. ": " .. tostring(e))
      near(w.grad, kept)
    end
  end)

  it("runs again when it was retained, and gradients add up", function()
    local w = leaf(1.0, 2.0)
    local y = (w * w):sum()
    y:backward(nil, true)
    near(w.grad, { 2, 4 })
    y:backward(nil, true)
    near(w.grad, { 4, 8 })
    y:backward()
    near(w.grad, { 6, 12 })
    raises("RuntimeError", GONE, function() y:backward() end)
    near(w.grad, { 6, 12 })
  end)

  it("is so for torch.autograd.grad", function()
    local w = leaf(1.0, 2.0)
    local y = (w * w):sum()
    for _ = 1, 2 do
      near(torch.autograd.grad({ y }, { w }, { retain_graph = true })[1], { 2, 4 })
    end
    near(torch.autograd.grad({ y }, { w })[1], { 2, 4 })
    raises("RuntimeError", GONE, function() torch.autograd.grad({ y }, { w }) end)
    raises("RuntimeError", GONE, function() y:backward() end)
    assert.is_nil(w.grad)
    y = (w * w * w):sum()
    local first = torch.autograd.grad({ y }, { w }, { create_graph = true })[1]
    near(first, { 3, 12 }) -- create_graph retains
    near(torch.autograd.grad({ first:sum() }, { w })[1], { 6, 12 })
  end)

  it("is gone in the part that two results share", function()
    local w = leaf(1.0, 2.0)
    local h = w * w
    local a, b = h:sum(), (h * 3):sum()
    a:backward()
    near(w.grad, { 2, 4 })
    raises("RuntimeError", GONE, function() b:backward() end)
    h = w * w
    a, b = h:sum(), (h * 3):sum()
    w.grad = nil
    a:backward(nil, true)
    b:backward()
    near(w.grad, { 8, 16 })
  end)

  it("gives its memory back when backward is done, though it is held", function()
    local N = 1024 * 1024 -- of four bytes
    local w = torch.ones(N, { requires_grad = true })
    local function live()
      collectgarbage()
      collectgarbage()
      return torch.memory().live
    end
    local before = live()
    local y = (w * 0):exp():exp():exp():sum() -- three results that gradients read
    assert.is_true(live() - before >= 3 * 4 * N)
    y:backward(nil, true)
    assert.is_true(live() - before >= 4 * 4 * N) -- and the gradient
    y:backward()
    local left = live() - before
    assert.is_true(left >= 4 * N and left < 5 * N, ("%d bytes are left"):format(left))
    assert.equal(0, y:dim())
  end)
end)

describe("a gradient that comes from the caller", function()
  it("is left alone where a leaf is met more than once", function()
    for name, f in pairs({
      ["x + x"] = function(x) return x + x, 2 end,
      ["x + x + x"] = function(x) return x + x + x, 3 end,
      ["x - (-x)"] = function(x) return x - (-x), 2 end,
      ["views"] = function(x) return x:view(2) + x:view(2), 2 end,
    }) do
      local x, up = leaf(1.0, 2.0), torch.tensor({ 3.0, 5.0 })
      local y, times = f(x)
      y:backward(up)
      assert.same({ 3, 5 }, up:tolist(), name)
      near(x.grad, { 3 * times, 5 * times })
      f(x):backward(up)
      assert.same({ 3, 5 }, up:tolist(), name)
      near(x.grad, { 6 * times, 10 * times })
    end
  end)

  it("is one number where the sum goes back", function()
    local x = leaf(1.0, 2.0);
    (x + x):sum():backward()
    near(x.grad, { 2, 2 })
    local y = leaf(1.0, 2.0);
    (x + y + x + y):sum():backward()
    near(x.grad, { 4, 4 })
    near(y.grad, { 2, 2 })
  end)

  it("is left alone by several roots, and by a hook's leaf", function()
    local x, up = leaf(1.0, 2.0), torch.tensor({ 3.0, 5.0 })
    torch.autograd.backward({ x + x, x * 1 }, { up, up })
    assert.same({ 3, 5 }, up:tolist())
    near(x.grad, { 9, 15 })
    local h = leaf(1.0, 2.0)
    h:register_hook(function() end);
    (h + h):backward(up)
    assert.same({ 3, 5 }, up:tolist())
    near(h.grad, { 6, 10 })
  end)
end)

describe("a graph that keeps nothing", function()
  it("runs again, as PyTorch's does", function()
    local w = leaf(1.0, 2.0)
    local y = (w + 2):sum()
    y:backward()
    y:backward()
    near(w.grad, { 2, 2 })
  end)

  it("is gone if a hook was", function()
    local w = leaf(1.0, 2.0)
    local h = w + 2
    h:register_hook(function(g) return g * 10 end)
    local y = h:sum()
    y:backward()
    near(w.grad, { 10, 10 })
    raises("RuntimeError", GONE, function() y:backward() end)
  end)
end)
