--- torch.autograd.Function: eager, differentiated twice, traced.
local helper = require("spec.helper")
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")
local near, raises = helper.near, helper.raises
local Function = torch.autograd.Function

local f64 = { dtype = torch.float64 }

local Cube = Function:extend("Cube")
function Cube.forward(ctx, x)
  ctx:save_for_backward(x)
  return x ^ 3
end
function Cube.backward(ctx, g)
  local x = table.unpack(ctx.saved_tensors)
  return 3 * x ^ 2 * g
end

-- saves its result and an intermediate value; takes a number
local Scaled = Function:extend("Scaled")
function Scaled.forward(ctx, x, w, scale)
  local e = torch.exp(x)
  local y = e * w * scale
  ctx.scale = scale
  ctx:save_for_backward(e, y, w)
  return y
end
function Scaled.backward(ctx, g)
  local e, y = table.unpack(ctx.saved_tensors)
  return g * y, g * e * ctx.scale, nil
end

local Both = Function:extend("Both") -- two results, setup_context
function Both.forward(x, y)
  return x * y, x + y, 7
end
function Both.setup_context(ctx, inputs, output)
  assert(#output == 3)
  ctx:save_for_backward(inputs[1], inputs[2])
end
function Both.backward(ctx, gp, gs)
  local x, y = table.unpack(ctx.saved_tensors)
  return gp * y + gs, gp * x + gs
end

describe("A Function", function()
  it("has the gradient of its backward", function()
    local x = torch.tensor({ 1.0, -2.0 }):requires_grad_(true)
    local y = Cube.apply(x)
    assert.is_true(y.requires_grad)
    y:sum():backward()
    assert.same({ 3.0, 12.0 }, x.grad:tolist())
    assert.same({ 1.0, -8.0 }, Cube:apply(x:detach()):tolist())
  end)

  it("passes gradcheck and gradgradcheck", function()
    local x = torch.tensor({ 0.3, -1.2 }, f64):requires_grad_(true)
    local w = torch.tensor({ 1.5, 0.4 }, f64):requires_grad_(true)
    assert.is_true(torch.autograd.gradcheck(Cube.apply, { x }))
    assert.is_true(torch.autograd.gradgradcheck(Cube.apply, { x }))
    assert.is_true(torch.autograd.gradcheck(Both.apply, { x, w }))
    assert.is_true(torch.autograd.gradgradcheck(Both.apply, { x, w }))
    local function scaled(a, b)
      return Scaled.apply(a, b, 2.5)
    end
    assert.is_true(torch.autograd.gradcheck(scaled, { x, w }))
  end)

  it("is differentiated twice through a result that it saved", function()
    local Exp = Function:extend("Exp")
    function Exp.forward(ctx, x)
      local y = torch.exp(x)
      ctx:save_for_backward(y)
      return y
    end
    function Exp.backward(ctx, g)
      return ctx.saved_tensors[1] * g
    end
    local x = torch.tensor({ 0.3, -1.2 }, f64):requires_grad_(true)
    assert.is_true(torch.autograd.gradgradcheck(Exp.apply, { x }))
  end)

  it("gives what is no tensor as it is, and knows which gradients are needed", function()
    local needs
    local F = Function:extend("F")
    function F.forward(_, x, name, w)
      return x * w, name
    end
    function F.backward(ctx, g)
      needs = { table.unpack(ctx.needs_input_grad) }
      return g, nil, nil
    end
    local x = torch.ones(2):requires_grad_(true)
    local y, name = F.apply(x, "n", torch.ones(2))
    assert.equal("n", name)
    y:sum():backward()
    assert.same({ true, false, false }, needs)
  end)

  it("writes inputs that are marked dirty", function()
    local Double = Function:extend("Double")
    function Double.forward(ctx, x)
      ctx:mark_dirty(x)
      return x:mul_(2)
    end
    function Double.backward(_, g)
      return g * 2
    end
    local x = torch.ones(3):requires_grad_(true)
    local y = x * 1
    local z = Double.apply(y)
    assert.equal(y, z)
    y:sum():backward()
    assert.same({ 2.0, 2.0, 2.0 }, x.grad:tolist())
    raises("RuntimeError", "leaf", function() Double.apply(x) end)
  end)

  it("has results without a gradient, and zeros or nil for unused ones", function()
    local seen = {}
    local Sort = Function:extend("Sort")
    function Sort.forward(ctx, x, materialize)
      local values, order = torch.sort(x)
      ctx:mark_non_differentiable(order)
      ctx:set_materialize_grads(materialize)
      ctx:save_for_backward(order)
      return values, order, x * 1
    end
    function Sort.backward(ctx, g, go, gx)
      seen = { go, gx }
      return torch.zeros_like(g):scatter(0, ctx.saved_tensors[1], g)
    end
    local x = torch.tensor({ 3.0, 1.0, 2.0 }):requires_grad_(true)
    local values, order, copy = Sort.apply(x, true)
    assert.is_false(order.requires_grad)
    assert.is_true(copy.requires_grad)
    local z = values * torch.tensor({ 1.0, 2.0, 3.0 })
    z:sum():backward()
    assert.same({ 3.0, 1.0, 2.0 }, x.grad:tolist())
    assert.same({ 0, 0, 0 }, seen[1]:tolist())
    assert.same({ 0.0, 0.0, 0.0 }, seen[2]:tolist())
    local again = Sort.apply(x, false)
    again:sum():backward()
    assert.same({}, seen)
  end)

  it("frees what it saved after backward, and when its result goes", function()
    local refs = setmetatable({}, { __mode = "v" })
    local Keep = Function:extend("Keep")
    function Keep.forward(ctx, x)
      local y = x * 2
      refs.ctx = ctx
      ctx:save_for_backward(x, y)
      return y
    end
    function Keep.backward(_, g)
      return g * 2
    end
    local x = torch.ones(2):requires_grad_(true)
    Keep.apply(x)
    collectgarbage() collectgarbage()
    Cube.apply(x):sum():backward() -- the next call forgets dropped rules
    collectgarbage() collectgarbage()
    assert.is_nil(refs.ctx)
  end)

  it("refuses wrong gradients by name", function()
    local F = Function:extend("Wrong")
    function F.forward(_, x) return x * 1 end
    local x = torch.ones(2):requires_grad_(true)
    raises("NotImplementedError", "backward", function() F.apply(x):sum():backward() end)
    function F.backward(_, g) return g, g end
    raises("RuntimeError", "Wrong.backward returned an incorrect number of gradients", function()
      F.apply(x):sum():backward()
    end)
    function F.backward() return 3 end
    raises("TypeError", "must be a Tensor or nil", function() F.apply(x):sum():backward() end)
    function F.backward() return torch.ones(5) end
    raises("RuntimeError", "shape %[5%] for tensor 1", function() F.apply(x):sum():backward() end)
    raises("RuntimeError", "Wrong.apply", function() F(x) end)
  end)

  it("that is once differentiable refuses a second time", function()
    local F = Function:extend("F")
    function F.forward(ctx, x)
      ctx:save_for_backward(x)
      return x ^ 3
    end
    F.backward = torch.autograd.once_differentiable(function(ctx, g)
      return 3 * ctx.saved_tensors[1] ^ 2 * g
    end)
    local x = torch.tensor(2.0):requires_grad_(true)
    local g = torch.autograd.grad(F.apply(x) ^ 2, x, { create_graph = true })[1]
    assert.equal(6.0 * 2 ^ 5, g:item())
    raises("RuntimeError", "differentiate twice", function() g:backward() end)
  end)
end)

describe("A Function in a compiled program", function()
  it("has the gradients that it has eagerly", function()
    local x = torch.tensor({ 0.3, -1.2 })
    local w = torch.tensor({ 1.5, 0.4 })
    local function fn(a, b)
      local p, s = Both.apply(Cube.apply(a), b)
      return Scaled.apply(p, s, 2.0):sum()
    end
    local compiled = lupine.compile(fn, { x, w }, { cotangents = { torch.tensor(1.0) } })
    local y, grads = compiled(x, w, { torch.tensor(1.0) })
    local xr, wr = x:clone():requires_grad_(true), w:clone():requires_grad_(true)
    local want = fn(xr, wr)
    want:backward()
    near(y, want:item())
    near(grads[1], xr.grad:tolist())
    near(grads[2], wr.grad:tolist())
  end)

  it("calls backward only while it is compiled", function()
    local calls = 0
    local F = Function:extend("F")
    function F.forward(_, x) return x * 2 end
    function F.backward(_, g)
      calls = calls + 1
      return g * 10 -- not the derivative: so it is this rule that is used
    end
    local Net = torch.nn.Module:extend("Net")
    function Net:init() self.w = torch.nn.Parameter(torch.ones(3)) end
    function Net:forward(x)
      local loss = poptorch.identity_loss(F.apply(x * self.w), { reduction = "sum" })
      return loss
    end
    local net = Net()
    local opt = torch.optim.SGD(net:parameters(), { lr = 0.5 })
    local model = poptorch.trainingModel(net, nil, opt)
    local x = torch.tensor({ { 1.0, 2.0, 3.0 } })
    near(model(x):reshape({}), 12.0)
    model(x)
    model:copyWeightsToHost()
    assert.equal(1, calls)
    near(net.w:detach(), { -9.0, -19.0, -29.0 })
  end)

  it("may use constants, parameters and kept tensors in its backward", function()
    local k = torch.tensor({ 2.0, 3.0 })
    local F = Function:extend("F")
    function F.forward(ctx, x)
      ctx.half = x * 0.5
      return x * 1
    end
    function F.backward(ctx, g)
      return g * k + ctx.half * torch.tensor(4.0)
    end
    local x = torch.tensor({ 1.0, 1.0 })
    local one = torch.ones(2)
    local f = lupine.compile(F.apply, { x }, { cotangents = { one } })
    local _, grads = f(x, { one })
    near(grads[1], { 4.0, 5.0 })
  end)

  it("writes an input that is marked dirty", function()
    local Double = Function:extend("Double")
    function Double.forward(ctx, x)
      ctx:mark_dirty(x)
      ctx:save_for_backward(x)
      return x:mul_(x)
    end
    function Double.backward(_, g)
      return g * 7
    end
    local function fn(a)
      local y = a * 3
      Double.apply(y)
      return y
    end
    local x, one = torch.tensor({ 1.0, 2.0 }), torch.ones(2)
    local f = lupine.compile(fn, { x }, { cotangents = { one } })
    local y, grads = f(x, { one })
    near(y, { 9.0, 36.0 })
    near(grads[1], { 21.0, 21.0 })
  end)

  it("draws in its backward other numbers than forward drew", function()
    local Noise = Function:extend("Noise")
    function Noise.forward(_, x, by) return x * by end
    function Noise.backward(_, g) return g * torch.rand_like(g) end
    local one = torch.ones(64)
    local f = lupine.compile(function(x) return Noise.apply(x, torch.rand_like(x)) end, { one },
      { cotangents = { one } })
    local y, grads = f(one, { one })
    local same = y:eq(grads[1]):sum():item()
    assert.is_true(same < 4, ("%d numbers are forward's"):format(same))
  end)

  it("tells what went wrong in its backward", function()
    local F = Function:extend("F")
    function F.forward(_, x) return x * 1 end
    function F.backward() error("no rule today") end
    local one = torch.ones(2)
    local ok, e = pcall(lupine.compile, F.apply, { one }, { cotangents = { one } })
    assert.is_false(ok)
    assert.matches("no rule today", tostring(e))
  end)
end)
