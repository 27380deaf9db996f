-- Where gradients stop in a traced function: where they stop in eager calls.
local compile = require("lupine.compile")
local control = require("lupine.control")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local NUMBERS, UP = { 0.3, 1.7, -2.2 }, torch.tensor({ 1.0, 2.0, 3.0 })

local function eager(fn)
  local x = torch.tensor(NUMBERS, { requires_grad = true })
  local y = fn(x);
  (y * UP):sum():backward()
  return y:detach(), x.grad
end

local function compiled(fn)
  local x = torch.tensor(NUMBERS)
  local y, g = compile(fn, { x }, { cotangents = { UP } })(x, { UP })
  return y, g[1]
end

-- The gradient is what plain gradient descent at rate 1 takes from the parameter.
local function trained(fn)
  local Model = nn.Module:extend("Model")
  function Model:init()
    self.p = nn.Parameter(torch.tensor(NUMBERS))
  end
  function Model:forward(zero)
    local y = fn(self.p + zero)
    return y, poptorch.identity_loss((y * UP):sum(), "none")
  end
  local m = Model()
  local y = poptorch.trainingModel(m, nil, torch.optim.SGD(m:parameters(), 1.0))(torch.zeros(3))
  return y, torch.tensor(NUMBERS) - m.p:detach()
end

local function no_grad(fn)
  return torch.no_grad(fn)
end

local cases = {
  ["a value made under no_grad"] = function(x)
    local z = no_grad(function() return x * 5 end)
    return x * z
  end,
  ["one made while set_grad_enabled(false) is open"] = function(x)
    local y
    do
      local _ <close> = torch.set_grad_enabled(false)
      y = x * 3
    end
    return y * x
  end,
  ["one made in inference_mode"] = function(x)
    return torch.inference_mode(function() return x * 3 end) + x
  end,
  ["one made by enable_grad inside no_grad"] = function(x)
    return no_grad(function()
      return torch.enable_grad(function() return x * 3 end)
    end)
  end,
  ["a view and a copy made under no_grad"] = function(x)
    local v, c = no_grad(function()
      return x["1:"], x:reshape(3, 1):t():expand(2, 3):contiguous()
    end)
    return torch.cat({ v, v["0:1"] }) * x * c[1]
  end,
  ["a random value's mask made under no_grad"] = function(x)
    return x * no_grad(function() return (x:gt(0)):float() + x:round() end)
  end,
  ["a function of the script's own, under no_grad"] = function(x)
    local Thrice = torch.autograd.Function:extend("Thrice")
    Thrice.forward = function(_, a) return a * 3 end
    Thrice.backward = function(_, g) return g * 3 end
    return x * no_grad(function() return Thrice.apply(x) end) + Thrice.apply(x)
  end,
  ["no_grad in the body of a loop"] = function(x)
    return control.loop(3, function(y)
      return y + no_grad(function() return y * 2 end)
    end, { x })[1]
  end,
  ["a loop under no_grad"] = function(x)
    return x + no_grad(function()
      return control.loop(3, function(y) return y * 2 end, { x })[1]
    end)
  end,
  ["a write under no_grad in a branch"] = function(x)
    return control.branch(x:sum():lt(100), function(y)
      no_grad(function() y:mul_(3) end)
      return y
    end, { x }, function(y) return y end, { x })[1]
  end,
  ["a write through detach"] = function(x)
    local y = x:sin()
    y:detach():fill_(0.25)
    return y * y
  end,
  ["a write through detach of a part, of a part"] = function(x)
    local y = x:sin()
    y["1:"]:detach()["0:1"]:mul_(2)
    y:detach()["1:"]:add_(1)
    return y * y
  end,
  ["a write through data"] = function(x)
    local y = x * 1
    y.data:clamp_(-1, 1)
    return y * y
  end,
  ["a straight-through estimator"] = function(x)
    local y = x * 1
    no_grad(function() y:copy_(y:round()) end)
    return y * 2
  end,
  ["writes under no_grad to a view, an index, all"] = function(x)
    local y = x * 1
    local v = y["1:"]
    no_grad(function()
      v:mul_(5)
      y[0] = 5
      y:add_(1)
    end)
    return torch.cat({ v, y["0:1"] }) * y
  end,
  ["a write with a gradient after one without"] = function(x)
    local y = x:sin()
    no_grad(function() y:mul_(2) end)
    y:mul_(x)
    return y
  end,
}

-- A tensor without a history is written with one; what is seen of it afterwards.
local looks = {
  whole = function(d) return d end,
  view = function(d) return d:view(3, 1):view(3) end,
  slice = function(d) return d["0:"] end,
  transposed = function(d) return d:view(1, 3).T:view(3) end,
  unsqueezed = function(d) return d:unsqueeze(0)[0] end,
  reshaped = function(d) return d:reshape(-1) end,
  ["the data, which stops the gradient again, of"] = function(d) return d.data * d["0:"] end,
}
for what, look in pairs(looks) do
  cases[what .. " detach, written with a history"] = function(x)
    local d = (x * 2):detach()
    d:mul_(x)
    return look(d)
  end
  cases[what .. " data, of which a part is"] = function(x)
    local d = (x * 2).data
    d["1:"] = x["1:"] * x["0:1"]
    return look(d)
  end
  cases[what .. " a view made under no_grad"] = function(x)
    local h = no_grad(function() return (x * 2):view(3) end)
    h:mul_(x)
    return look(h)
  end
  cases[what .. " a view made before the write"] = function(x)
    local d = (x * 2):detach()
    local v = look(d)
    d:mul_(x)
    return v + look(d)
  end
end

cases["tensors of one memory, each with a history of its own"] = function(x)
  local y = x * 2
  local d, e = y:detach(), y["1:"]:detach()
  d:mul_(x)
  y:add_(x)
  e["0:1"] = x["2:"]
  return y * d + y["1:"]:sum() * x + e:sum() + d["0:"] * x
end
cases["a view made under no_grad, whose base is written"] = function(x)
  local y = x * 2
  local v = no_grad(function() return y["1:"] end)
  no_grad(function() y:mul_(2) end)
  local before = v * 1
  y:mul_(x)
  return y * v:sum() + before:sum()
end
cases["a view made under no_grad, filled"] = function(x)
  local y = x * 2
  local v = no_grad(function() return y["1:"] end)
  v:fill_(3)
  return y + v:sum() * x
end
cases["both captured by the body of a loop"] = function(x)
  local y = x * 2
  local d = y:detach()
  return control.loop(2, function(a) return a * d + y["0:"] * a end, { x })[1]
end
cases["a view made under no_grad, captured by the body of a loop"] = function(x)
  local y = x * 2
  local v = no_grad(function() return y["1:"] end)
  return control.loop(2, function(a) return a * v:sum() + y["0:"] * a + v["0:1"] end, { x })[1]
end
cases["detach in the body of a loop, written"] = function(x)
  return control.loop(2, function(a)
    local d = a:detach()
    a:mul_(0.5)
    d:mul_(x)
    a:add_(x)
    return a + d:view(3) * 0.1
  end, { x })[1]
end
cases["a copy to itself in the body of a loop"] = function(x)
  return control.loop(2, function(a, b)
    a:copy_(a)
    b["3:"] = b["3:"]
    no_grad(function() b:copy_(b) end)
    return a * x, b
  end, { x, x * 2 })[1]
end
cases["a copy of an input to itself"] = function(x)
  local y = x:detach()
  no_grad(function()
    y:copy_(y)
    y["..."] = y
  end)
  return x * y
end
cases["a body that only gives a view from outside"] = function(x)
  local v = (x * 2):view(3)
  return control.loop(2, function(_) return v:view(3) end, { x })[1]
end

describe("compiled, gradients flow as eagerly past", function()
  for name, fn in pairs(cases) do
    it(name, function()
      local y, g = eager(fn)
      for _, run in ipairs({ compiled, trained }) do
        local y1, g1 = run(fn)
        helper.near(y1, y)
        helper.near(g1, g, { 1e-5, 1e-5 })
      end
    end)
  end

  it("what shares the memory of a parameter, and does not require one", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.p = nn.Parameter(torch.tensor(NUMBERS))
      self.whole = self.p:detach()
      self.part = no_grad(function() return self.p["0:2"] end)
    end
    function Model:forward(x)
      local inside = control.loop(2, function(a) return a + self.whole * self.part:sum() end, { x })
      local y = self.p * x + self.whole["0:"] * self.whole + self.part:sum() + inside[1]
      return poptorch.identity_loss(y, "sum")
    end
    local m = Model()
    poptorch.trainingModel(m, nil, torch.optim.SGD(m:parameters(), 1.0))(UP)
    helper.near(m.p:detach(), torch.tensor(NUMBERS) - UP)
  end)

  it("a target that the model computes under no_grad", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.net = nn.Linear(4, 3)
    end
    function Model:forward(state, nxt, reward)
      local q = self.net(state)
      local target = no_grad(function() return reward + 0.9 * self.net(nxt) end)
      return nn.functional.mse_loss(q, target)
    end
    local m = Model()
    local ref = m:deepcopy()
    local state, nxt, reward = torch.randn(5, 4), torch.randn(5, 4), torch.randn(5, 3)
    local o = torch.optim.SGD(ref:parameters(), 0.1)
    ref(state, nxt, reward):backward()
    o:step()
    poptorch.trainingModel(m, nil, torch.optim.SGD(m:parameters(), 0.1))(state, nxt, reward)
    helper.near(m.net.weight, ref.net.weight:detach())
    helper.near(m.net.bias, ref.net.bias:detach())
  end)

  it("what is asked for where gradients are off outside", function()
    no_grad(function()
      helper.near(select(2, compiled(function(x) return x * x end)), { 0.6, 6.8, -13.2 })
    end)
  end)
end)

-- requires_grad of what fn makes, in a list.
local function asked(fn, ...)
  local seen
  compile(function(...)
    seen = {}
    for i, t in ipairs(fn(...)) do
      seen[i] = t.requires_grad
    end
    return ...
  end, ...)
  return seen
end

describe("requires_grad of a traced tensor is what it is eagerly:", function()
  local x, i = torch.ones(3), torch.ones(3, { dtype = torch.int64 })
  local p = nn.Parameter(torch.ones(3))

  it("of what depends on a parameter, and of no other", function()
    assert.same({ true, false, true, false, false, true, false, true }, asked(function(a, k)
      local y = a * p
      local plain = a * 2
      local written = a * 1
      written:add_(y)
      local made = no_grad(function() return y * 2 end)
      return { y, plain, y["1:"], y:detach(), made, written, y:gt(0),
        torch.where(k:gt(0), y, plain) }
    end, { x, i }))
  end)

  it("of inputs that gradients are asked of", function()
    assert.same({ true, false, true }, asked(function(a, b)
      return { a, b, a:exp() + b }
    end, { x, x }, { cotangents = { x, x }, wrt = { 1 } }))
    assert.same({ false }, asked(function(a) return { a } end, { x }))
  end)

  it("in a body", function()
    local inside
    asked(function(a)
      return control.loop(2, function(y, z)
        inside = { y.requires_grad, (y * p).requires_grad, (z + 1).requires_grad }
        return y * 2, z + y
      end, { a, torch.zeros(3) })
    end, { x }, { cotangents = { x } })
    assert.same({ true, true, true }, inside)
  end)

  it("so that an input may be written in place", function()
    local y, g = compile(function(a)
      a:mul_(2)
      return a * a
    end, { x }, { cotangents = { x } })(torch.ones(3), { x })
    helper.near(y, { 4, 4, 4 })
    helper.near(g[1], { 8, 8, 8 })
  end)
end)

describe("a backward pass inside a traced function", function()
  it("is refused, and names what computes gradients there", function()
    local x = torch.tensor(NUMBERS)
    local p = torch.ones(3):requires_grad_(true)
    for _, fn in ipairs({
      function(a) return torch.autograd.grad((a * a):sum(), { a })[1] end,
      function(a) return torch.autograd.grad((a * p):sum(), { p })[1] end,
      function(a)
        (a * p):sum():backward()
        return a
      end,
    }) do
      helper.raises("RuntimeError", "cannot be traced.*lupine%.compile with cotangents", function()
        compile(fn, { x })
      end)
      helper.raises("RuntimeError", "cannot be traced.*poptorch%.trainingModel", function()
        local Model = nn.Module:extend("Model")
        function Model:forward(a)
          return fn(a)
        end
        poptorch.inferenceModel(Model())(x)
      end)
    end
    helper.near(torch.autograd.grad((p * p):sum(), { p })[1], { 2, 2, 2 })
  end)
end)
