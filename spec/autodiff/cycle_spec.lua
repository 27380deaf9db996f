-- Functions that the core calls and that mention what they belong to: a hook
-- its tensor, a Function's ctx its result. PyTorch's collector finds such
-- cycles; here a weak table tells whether they are gone.
local torch = require("torch")

local watch

before_each(function()
  watch = setmetatable({}, { __mode = "k" })
end)

-- A value that lives as long as what refers to it.
local function witness()
  local w = {}
  watch[w] = true
  return w
end

local function alive()
  for _ = 1, 3 do
    collectgarbage()
  end
  local n = 0
  for _ in pairs(watch) do
    n = n + 1
  end
  return n
end

local function leaf(x)
  return torch.tensor({ x }, { requires_grad = true })
end

describe("a hook", function()
  it("that mentions its leaf goes with it", function()
    do
      local x, w = leaf(1.0), witness()
      x:register_hook(function()
        return nil, x, w
      end)
      x:register_post_accumulate_grad_hook(function()
        return nil, x, w
      end)
    end
    assert.equal(0, alive())
  end)

  it("that another box of its leaf was given mentions the leaf, and goes with it", function()
    do
      local x, w = leaf(1.0), witness()
      do
        local again = x:view(1, 1)._base
        again:register_hook(function()
          return nil, x, w
        end)
      end
      assert.equal(1, alive()) -- the other box is gone, the hook is not
      local called = false
      x:register_hook(function()
        called = true
      end)
      x:sum():backward()
      assert.is_true(called)
    end
    assert.equal(0, alive())
  end)

  it("that mentions a module goes with the module", function()
    do
      local net, w = torch.nn.Linear(2, 2), witness()
      net.weight:register_hook(function()
        return nil, net, w
      end)
      net(torch.ones({ 1, 2 })):sum():backward()
    end
    assert.equal(0, alive())
  end)

  it("that mentions its result, or what comes of it, goes without a backward pass", function()
    do
      local x, w = leaf(1.0), witness()
      local y = x * 2
      local z = y * 3
      y:register_hook(function()
        return nil, y, w
      end)
      x:register_hook(function()
        return nil, z, w
      end)
    end
    assert.equal(0, alive())
  end)

  it("stays while a graph holds its tensor, whatever is collected between", function()
    local calls, w = 0, witness()
    local function graph()
      local x = leaf(2.0)
      x:register_hook(function(g)
        calls = calls + 1
        return g, x, w
      end)
      return x * 3
    end
    local y = graph()
    assert.equal(1, alive())
    y:backward(nil, true)
    y:backward()
    assert.equal(2, calls)
  end)

  it("stays with a tensor whose name is given up by :free()", function()
    local calls, x = 0, leaf(2.0)
    local y = x * 3
    x:register_hook(function()
      calls = calls + 1
    end)
    x:free()
    y:backward()
    assert.equal(1, calls)
  end)

  it("that was removed is forgotten at once", function()
    local x = leaf(1.0)
    for _ = 1, 3 do
      local w = witness()
      x:register_hook(function()
        return nil, w
      end):remove()
    end
    assert.equal(0, alive())
    x:register_hook(function(g)
      return g * 2
    end);
    (x * 3):backward()
    assert.same({ 6.0 }, x.grad:tolist())
  end)

  it("is found between the mark of a collection and its finalisers", function()
    local calls, graphs, handles = 0, {}, {}
    for i = 1, 40 do
      local x = leaf(2.0)
      handles[i] = x:register_hook(function()
        calls = calls + 1
        return nil, x
      end)
      graphs[i] = x * 3
    end
    collectgarbage("incremental", 100, 4, 5)
    local passes, at = 0, 0
    repeat -- one collection, in small steps, with a pass after each
      local done = collectgarbage("step", 16)
      at = at % 40 + 1
      graphs[at]:backward(nil, true)
      passes = passes + 1
    until done
    collectgarbage("incremental", 200, 100, 13)
    assert.equal(passes, calls)
    handles[1]:remove()
    graphs[1]:backward(nil, true)
    assert.equal(passes, calls)
  end)

  it("is forgotten if it is removed there", function()
    collectgarbage("incremental", 100, 4, 5)
    local handles = {}
    for i = 1, 40 do
      local x, w = leaf(2.0), witness()
      handles[i] = x:register_hook(function()
        return nil, x, w
      end)
    end
    repeat
      local done = collectgarbage("step", 16)
      local handle = table.remove(handles)
      if handle then
        handle:remove()
      end
    until done
    collectgarbage("incremental", 200, 100, 13)
    assert.equal(0, alive())
  end)
end)

describe("a Function's ctx", function()
  local Two = torch.autograd.Function:extend("Two")

  function Two.forward(ctx, x)
    ctx.witness, ctx.own = witness(), x * 2
    ctx.other = x * 3
    return ctx.own, ctx.other
  end

  function Two.backward(ctx, g, h)
    assert(ctx.witness and ctx.own)
    return 2 * g + 3 * h
  end

  local function run(keep)
    local x = leaf(1.0)
    local y, z = Two.apply(x)
    return keep and x, keep and z, not keep and y:detach()
  end

  it("that holds the results goes without a backward pass", function()
    run()
    assert.equal(0, alive())
  end)

  it("stays while one of the results does", function()
    local x, z = run(true)
    assert.equal(1, alive())
    z:backward()
    assert.same({ 3.0 }, x.grad:tolist())
    z = nil
    assert.equal(0, alive())
    assert.is_nil(z)
  end)

  it("that holds the input that was changed in place goes too", function()
    local Add = torch.autograd.Function:extend("Add")
    function Add.forward(ctx, x)
      ctx.witness, ctx.x = witness(), x
      ctx:mark_dirty(x)
      return x:add_(1)
    end
    function Add.backward(_, g)
      return g
    end
    do
      local x = leaf(1.0) * 1
      Add.apply(x)
    end
    assert.equal(0, alive())
  end)
end)
