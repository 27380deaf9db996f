local compile = require("lupine.compile")
local helper = require("spec.helper")
local nn = require("torch.nn")
local torch = require("torch")

local here = "compile_spec%.lua:"

local function line()
  return tostring(debug.getinfo(2, "l").currentline)
end

describe("lupine.compile of a function that calls a compiled one", function()
  it("traces through it, but not through its gradients", function()
    local x = torch.tensor({ 1, 2 }):float()
    local double = compile(function(t) return t * 2 end, { x })
    local y, g = compile(function(t) return double(t) + 1 end, { x },
      { cotangents = { x } })(x, { x })
    helper.near(y, { 3, 5 })
    helper.near(g[1], { 2, 4 })
    local slope = compile(function(t) return t * 2 end, { x }, { cotangents = { x } })
    helper.raises("RuntimeError", "compiled with cotangents cannot be called", function()
      compile(function(t) return slope(t, { t }) end, { x })
    end)
  end)
end)

describe("lupine.compile of a function that writes a captured tensor", function()
  local x = torch.ones(2)

  -- write(k, x) stands on the line that `at` names.
  local function refuses(operator, at, write)
    local k = torch.zeros(2)
    helper.raises("RuntimeError", operator .. " at .*" .. here .. at .. " .*captured", function()
      compile(function(t)
        write(k, t)
        return t + k
      end, { x })
    end)
    helper.near(k, { 0, 0 }, helper.exact)
  end

  it("raises and names the operator and the line", function()
    refuses("add", line(), function(k, t) k:add_(t) end)
    refuses("copy_", line(), function(k, t) k:copy_(t) end)
    refuses("copy_", line(), function(k) k[0] = 3 end)
    refuses("zero", line(), function(k) k:zero_() end)
    refuses("mul", line(), function(k, t) k:view({ 2, 1 })[0]:mul_(t[0]) end)
    refuses("mul", line(), function(k, t) torch.mul(t, t, { out = k }) end)
  end)

  it("raises for a tensor that was read before", function()
    refuses("add", line(), function(k, t) (k * t):sum() k:add_(t) end)
  end)

  it("raises for a buffer of a module that is captured, not compiled", function()
    local norm = nn.BatchNorm1d(2)
    helper.raises("RuntimeError", "compile the module", function()
      compile(function(t)
        return norm(t)
      end, { torch.ones(4, 2) })
    end)
  end)

  it("allows it for inputs and for what the function makes", function()
    local y = torch.tensor({ 1.0, 2.0 })
    local f = compile(function(t)
      local made, ours = torch.tensor({ 5.0, 6.0 }), torch.zeros(2)
      made[0] = t[1]
      ours:add_(made):mul_(2)
      t:add_(1)
      return ours
    end, { y })
    for _ = 1, 2 do
      local second = y:tolist()[2]
      helper.near(f(y), { 2 * second, 12 }, helper.exact)
    end
    helper.near(y, { 3, 4 }, helper.exact)
  end)
end)

describe("lupine.compile of a module", function()
  local function pair()
    local a = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
    local b = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
    b:load_state_dict(a:state_dict())
    return a, b
  end

  it("computes what the module does, with its buffers", function()
    torch.manual_seed(1)
    local net, plain = pair()
    local f = compile(net, { torch.ones(8, 3) })
    for _ = 1, 3 do
      local x = torch.randn(8, 3)
      helper.near(f(x), plain(x), 1e-6)
      for name, buffer in plain:named_buffers() do
        helper.near(net:get_buffer(name), buffer, 1e-6)
      end
    end
  end)

  it("follows parameters and buffers that are written or replaced between calls", function()
    torch.manual_seed(2)
    local net, plain = pair()
    local x = torch.randn(8, 3)
    local f = compile(net, { x })
    f(x)
    plain(x)
    for _, m in ipairs({ net, plain }) do
      torch.no_grad(function()
        m[1].weight:mul_(3)
        m[2].running_mean:fill_(0.5)
      end)
      m[1].bias.data = torch.ones(4)
    end
    helper.near(f(x), plain(x), 1e-6)
    helper.near(net[2].running_mean, plain[2].running_mean, 1e-6)
  end)

  it("gives gradients of its inputs", function()
    local net = nn.Linear(3, 2, { bias = false })
    local x, c = torch.ones(1, 3), torch.tensor({ { 2.0, -1.0 } })
    local _, grads = compile(net, { x }, { cotangents = { c } })(x, { c })
    local w = net.weight:detach()
    helper.near(grads[1], c:matmul(w), 1e-6)
  end)
end)

describe("arguments of lupine.compile", function()
  local x = torch.ones(2)
  local function twice(left, right)
    return left * right * 2
  end

  it("are refused with the function's own names", function()
    local f = compile(twice, { x, x })
    for _, case in ipairs({
      { "TypeError", "^right: expected a tensor, got nil", x },
      { "TypeError", "^left: expected a tensor, got int 1", 1, x },
      { "RuntimeError", "^right: .*float32 .*%[2%].* got torch%.int32 of .*%[2%]", x, x:int() },
      { "RuntimeError", "^left: .*%[2%].* got .*%[3%]", torch.ones(3), x },
      { "TypeError", "takes 2 arguments, 3", x, x, x },
    }) do
      helper.raises(case[1], case[2], function()
        f(table.unpack(case, 3))
      end)
    end
    helper.raises("TypeError", "^compile%(inputs%): right: expected a tensor, got int 5", function()
      compile(twice, { x, 5 })
    end)
    helper.raises("TypeError", "^input: expected a tensor, got bool", function()
      compile(nn.Linear(2, 2), { x })(true)
    end)
  end)

  it("may share a name", function()
    local f = compile(function(_, _) -- luacheck: ignore
      return _ * 3
    end, { x, x * 5 })
    helper.near(f(x, x * 5), { 15, 15 }, helper.exact)
  end)

  it("must be a function or a module, a list, and known options", function()
    helper.raises("TypeError", "a function or a torch.nn.Module, got int 5", function()
      compile(5, { x })
    end)
    helper.raises("TypeError", "expected a list of tensors", function()
      compile(twice, x)
    end)
    helper.raises("TypeError", "unknown option 'fused' %(nearest: 'fuse'%)", function()
      compile(twice, { x, x }, { fused = true })
    end)
    for _, n in ipairs({ 0, 100000, 1.5, "x" }) do
      helper.raises("ValueError", "threads: expected an int from 1 to 4096, got", function()
        compile(twice, { x }, { threads = n })
      end)
    end
    helper.raises("TypeError", "fuse: expected a bool, got int 3", function()
      compile(twice, { x }, { fuse = 3 })
    end)
  end)

  it("must have a cotangent like each result, and name inputs in wrt", function()
    for text, opts in pairs({
      ["0 given, the function returns 1"] = { cotangents = {} },
      ["cotangents%[1%]: .*%[2%].* got .*%[3%]"] = { cotangents = { torch.ones(3) } },
      ["wrt%[1%]: .*1%.%.2 %(left, right%), got int 3"] = { cotangents = { x }, wrt = { 3 } },
      ["cotangents: %[1%]: expected a tensor"] = { cotangents = { 1 } },
      ["wrt: gradients need cotangents"] = { wrt = { 1 } },
    }) do
      helper.raises("Exception", text, function()
        compile(twice, { x, x }, opts)
      end)
    end
  end)
end)

describe("a compiled module whose buffer is a view of another tensor", function()
  local function square()
    return torch.arange(9.):reshape(3, 3) * 1
  end
  local views = {
    reshaped = function() return torch.arange(9.):reshape(3, 3) end,
    transposed = function() return square():t() end,
    ["a part"] = function() return torch.arange(20.):narrow(0, 3, 9):reshape(3, 3) end,
  }

  for name, make in pairs(views) do
    it("has its values and writes them back: " .. name, function()
      local Net = nn.Module:extend("Net")
      function Net:forward(x)
        self.m:add_(1)
        return x * self.m
      end
      local eager, compiled = Net(), Net()
      eager:register_buffer("m", make())
      compiled:register_buffer("m", make())
      local x = torch.arange(9.):reshape(3, 3)
      local run = compile(compiled, { x })
      for _ = 1, 2 do
        helper.near(run(x), eager(x):tolist(), helper.exact)
      end
      helper.near(compiled.m, eager.m:tolist(), helper.exact)
      torch.no_grad(function()
        eager.m:mul_(2)
        compiled.m:mul_(2)
      end)
      helper.near(run(x), eager(x):tolist(), helper.exact)
    end)
  end
end)

describe("random numbers of a compiled function", function()
  local x = torch.ones(64)
  local function fn(t)
    return nn.functional.dropout(t, 0.5), torch.randn(4), torch.rand_like(t)
  end
  local f = compile(fn, { x })
  local function numbers(g)
    local a, b, c = (g or f)(x)
    return torch.cat({ a, b, c }):tolist()
  end

  it("follow torch.manual_seed", function()
    torch.manual_seed(5)
    local first, second = numbers(), numbers()
    assert.are_not.same(first, second)
    torch.manual_seed(5)
    assert.same(first, numbers())
    assert.same(second, numbers())
    torch.manual_seed(6)
    assert.are_not.same(first, numbers())
    torch.manual_seed(5)
    assert.same(first, numbers(compile(fn, { x })), "compiled again, the same place draws")
  end)

  it("are those of the place, whatever that does without drawing", function()
    local function drawn(soft)
      torch.manual_seed(5)
      return compile(function(t)
        return nn.functional.dropout(soft and t:softmax(0) or t, 0.5):ne(0)
      end, { x })(x):tolist()
    end
    assert.same(drawn(false), drawn(true))
  end)

  it("are part of the generator's state", function()
    local state = torch.get_rng_state()
    local first = numbers()
    assert.are_not.same(state:tolist(), torch.get_rng_state():tolist())
    torch.set_rng_state(state)
    assert.same(first, numbers())
  end)

  it("take nothing from the generator where there are none", function()
    local g, state = compile(function(t) return t * 2 end, { x }), torch.get_rng_state()
    g(x)
    assert.same(state:tolist(), torch.get_rng_state():tolist())
  end)

  it("in the body of a loop follow it, too", function()
    local g = compile(function(t)
      return require("lupine.control").loop(3, function(y)
        return nn.functional.dropout(y, 0.1)
      end, { t })[1]
    end, { x })
    torch.manual_seed(5)
    local first = g(x):tolist()
    assert.are_not.same(first, g(x):tolist())
    torch.manual_seed(5)
    assert.same(first, g(x):tolist())
  end)
end)

describe("inputs of a compiled function that share memory", function()
  local one = { torch.ones(2), torch.ones(2) }

  it("are refused where one is written in place", function()
    local f = compile(function(first, second)
      first:add_(1)
      return first * second
    end, one)
    local x = torch.ones(3)
    helper.raises("RuntimeError", "first is written in place and shares memory with second",
      function() f(x["0:2"], x["0:2"]) end)
    helper.raises("RuntimeError", "first.*second.*clone", function() f(x["1:"], x["0:2"]) end)
    helper.near(x, { 1, 1, 1 }, helper.exact)
    local y = torch.ones(4)
    helper.near(f(y["0:2"], y["2:"]), { 2, 2 }, helper.exact)
    helper.near(y, { 2, 2, 1, 1 }, helper.exact)
    helper.near(f(x["0:2"], x["0:2"]:clone()), { 2, 2 }, helper.exact)
  end)

  it("are taken where they lie between each other's elements", function()
    local f = compile(function(first, second)
      first:add_(1)
      return first * second
    end, one)
    local y = torch.ones(4)
    helper.near(f(y["::2"], y["1::2"]), { 2, 2 }, helper.exact)
    helper.near(y, { 2, 1, 2, 1 }, helper.exact)
    local m = torch.ones(2, 3)
    helper.near(f(m[":, 2"], m[":, 0"]), { 2, 2 }, helper.exact)
    helper.raises("RuntimeError", "shares memory", function() f(y["1::2"], y["1:3"]) end)
    local z = torch.ones(6)
    helper.raises("RuntimeError", "shares memory", function() f(z["0:5:4"], z["2:5:2"]) end)
    local bytes = torch.zeros(8, { dtype = torch.uint8 })
    local halves = bytes:view(torch.float16)
    local g = compile(function(first, second)
      first:add_(1)
      return second
    end, { torch.ones(2, { dtype = torch.float16 }), torch.zeros(2, { dtype = torch.uint8 }) })
    helper.near(g(halves["::2"], bytes["3::4"]), { 0, 0 }, helper.exact)
    helper.raises("RuntimeError", "shares memory", function() g(halves["::2"], bytes["1::4"]) end)
  end)

  it("are fine where none is", function()
    local x = torch.ones(2)
    helper.near(compile(function(a, b) return a + b end, one)(x, x), { 2, 2 }, helper.exact)
  end)
end)
