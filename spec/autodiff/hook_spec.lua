-- Hooks on gradients: what they see, what they may change, when they go.
local helper = require("spec.helper")
local torch = require("torch")

local function leaf(...)
  return torch.tensor({ ... }, { requires_grad = true })
end

describe("a hook on a leaf", function()
  it("sees the sum of all gradients of one pass, once", function()
    local x, seen = leaf(1.0, 2.0), {}
    x:register_hook(function(g)
      seen[#seen + 1] = g:tolist()
    end);
    (x * 3 + x * x):sum():backward() -- 3 + 2x
    assert.same({ { 5.0, 7.0 } }, seen)
    assert.same({ 5.0, 7.0 }, x.grad:tolist())
  end)

  it("replaces what is accumulated, on top of what .grad holds", function()
    local x = leaf(1.0, 2.0)
    x.grad = torch.tensor({ 100.0, 100.0 })
    x:register_hook(function(g)
      return g * 10
    end);
    (x * 3):sum():backward()
    assert.same({ 130.0, 130.0 }, x.grad:tolist())
  end)

  it("runs for torch.autograd.grad of that leaf, and only then", function()
    local x, y, calls = leaf(2.0), leaf(5.0), 0
    x:register_hook(function(g)
      calls = calls + 1
      return g + 1
    end)
    local z = x * y
    assert.same({ 2.0 }, torch.autograd.grad(z, { y }, nil, true)[1]:tolist())
    assert.equal(0, calls)
    assert.same({ 6.0 }, torch.autograd.grad(z, { x })[1]:tolist())
    assert.equal(1, calls)
    assert.is_nil(x.grad)
  end)

  it("runs before the gradients of named inputs are accumulated", function()
    local x, y = leaf(2.0), leaf(5.0)
    x:register_hook(function(g)
      return g * 2
    end);
    (x * y):backward(nil, nil, nil, { x })
    assert.same({ 10.0 }, x.grad:tolist())
    assert.is_nil(y.grad)
  end)
end)

describe("a hook on a result", function()
  it("changes what flows on and what retain_grad keeps", function()
    local x = leaf(1.0, 2.0)
    local y = x * 2
    y:retain_grad()
    y:register_hook(function(g)
      return g * 3
    end);
    (y + y):sum():backward()
    assert.same({ 6.0, 6.0 }, y.grad:tolist())
    assert.same({ 12.0, 12.0 }, x.grad:tolist())
  end)

  it("is its own among several results", function()
    local x = leaf(1.0, 2.0, 3.0, 4.0)
    local parts = x:split(2)
    parts[2]:register_hook(function(g)
      return g * 5
    end);
    (parts[1] + parts[2]):sum():backward()
    assert.same({ 1.0, 1.0, 5.0, 5.0 }, x.grad:tolist())
  end)

  it("stays with the value from before an in-place operation", function()
    local x, seen = leaf(1.0), nil
    local y = x * 2
    y:register_hook(function(g)
      seen = g:item()
    end)
    y:mul_(7)
    y:backward()
    assert.equal(7.0, seen)
    assert.same({ 14.0 }, x.grad:tolist())
  end)

  it("works when nothing but the graph holds the result", function()
    local x, calls = leaf(1.0), 0
    local function make()
      local y = x * 2
      y:register_hook(function()
        calls = calls + 1
      end)
      return y * 1
    end
    local z = make()
    collectgarbage()
    collectgarbage()
    z:backward()
    assert.equal(1, calls)
  end)

  it("is recorded with create_graph", function()
    local x = leaf(3.0)
    local y = x * x
    y:register_hook(function(g)
      return g * x
    end)
    local dx = torch.autograd.grad(y, { x }, nil, true, true)[1] -- 2x * x
    assert.same({ 18.0 }, dx:tolist())
    assert.same({ 12.0 }, torch.autograd.grad(dx, { x })[1]:tolist()) -- 4x
  end)
end)

describe("hooks", function()
  it("run in the order of their registration, each on the last one's gradient", function()
    local x, order = leaf(1.0), {}
    for i = 1, 3 do
      x:register_hook(function(g)
        order[#order + 1] = i
        return g * 10 + i
      end)
    end
    (x * 0):backward()
    assert.same({ 1, 2, 3 }, order)
    assert.same({ 123.0 }, x.grad:tolist())
  end)

  it("are removed by their handle, also from inside and at the end of a scope", function()
    local x, calls = leaf(1.0), 0
    local function count()
      calls = calls + 1
    end
    local first = x:register_hook(count)
    local own
    own = x:register_hook(function()
      calls = calls + 10
      own:remove()
    end)
    do
      local _ <close> = x:register_hook(count)
    end
    (x * 1):backward()
    assert.equal(11, calls)
    first:remove()
    first:remove();
    (x * 1):backward()
    assert.equal(11, calls)
  end)

  it("stay when their handle is collected, and go with the history", function()
    local x, calls = leaf(1.0), 0
    x:register_hook(function()
      calls = calls + 1
    end)
    collectgarbage()
    collectgarbage();
    (x * 1):backward()
    assert.equal(1, calls)

    local watch = setmetatable({}, { __mode = "k" })
    do
      local big = {}
      watch[big] = true
      local y = x * 2
      y:register_hook(function()
        return nil, big, y
      end)
      y:backward() -- frees the graph
    end
    x:register_hook(print):remove() -- forgets functions put aside
    collectgarbage()
    collectgarbage()
    assert.is_nil(next(watch))
  end)

  it("may run a backward pass of their own", function()
    local x, w = leaf(2.0), leaf(3.0)
    x:register_hook(function(g)
      torch.enable_grad(function()
        (w * w):backward()
      end)
      return g + w.grad
    end);
    (x * 4):backward()
    assert.same({ 10.0 }, x.grad:tolist())
  end)

  it("run in the coroutine of the pass", function()
    local x, where = leaf(2.0), nil
    x:register_hook(function()
      where = coroutine.running()
    end)
    local co = coroutine.create(function()
      (x * 4):backward()
    end)
    assert(coroutine.resume(co))
    assert.equal(co, where)
  end)

  it("pass their error on as the same value, and the next pass is whole", function()
    local x = leaf(2.0)
    local y = x * 3
    local thrown = { "mine" }
    local handle = y:register_hook(function()
      error(thrown)
    end)
    local ok, e = pcall(y.backward, y, nil, true)
    assert.is_false(ok)
    assert.equal(thrown, e)
    assert.is_nil(x.grad)
    handle:remove()
    y:backward()
    assert.same({ 3.0 }, x.grad:tolist())
  end)

  it("must return a gradient of the same type and shape, or nil", function()
    local function with(fn)
      local x = leaf(1.0, 2.0)
      x:register_hook(fn)
      return function()
        (x * 1):sum():backward()
      end
    end
    helper.raises("RuntimeError", "float32 %[2%] and returned float32 %[1%]", with(function()
      return torch.ones(1)
    end))
    helper.raises("RuntimeError", "returned float64", with(function(g)
      return g:double()
    end))
    helper.raises("TypeError", "must return a Tensor or nil, not int 3", with(function()
      return 3
    end))
  end)

  it("need a tensor with a gradient and a function", function()
    helper.raises("RuntimeError", "does not require", function()
      torch.ones(2):register_hook(print)
    end)
    helper.raises("TypeError", "must be a function, not int 1", function()
      leaf(1.0):register_hook(1)
    end)
  end)
end)

describe("a hook after accumulation", function()
  it("gets the leaf when its gradient is complete", function()
    local x, seen = leaf(1.0), nil
    x:register_hook(function(g)
      return g * 2
    end)
    x:register_post_accumulate_grad_hook(function(p)
      seen = p.grad:item()
      p.grad = nil
    end);
    (x * 3 + x):backward()
    assert.equal(8.0, seen)
    assert.is_nil(x.grad)
  end)

  it("can step an optimizer inside the pass", function()
    local x = leaf(1.0)
    local sgd = torch.optim.SGD({ x }, { lr = 0.5 })
    x:register_post_accumulate_grad_hook(function()
      sgd:step()
      sgd:zero_grad()
    end);
    (x * 3):backward()
    assert.same({ -0.5 }, x:tolist())
  end)

  it("does not run for torch.autograd.grad, and is for leaves only", function()
    local x = leaf(1.0)
    x:register_post_accumulate_grad_hook(function()
      error("called")
    end)
    assert.same({ 3.0 }, torch.autograd.grad(x * 3, { x })[1]:tolist())
    helper.raises("RuntimeError", "only be registered on a leaf", function()
      (x * 2):register_post_accumulate_grad_hook(print)
    end)
  end)
end)
