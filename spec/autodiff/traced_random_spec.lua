-- Random programs of views, detached tensors, what is made under no_grad, and
-- writes in place with and without a history: compiled they give, value for
-- value and gradient for gradient, what they give eagerly. The seed of a program
-- that fails is in the message.
local compile = require("lupine.compile")
local control = require("lupine.control")
local numbers = require("spec.support.numbers")
local torch = require("torch")

local PROGRAMS, STATEMENTS, SIZES = 400, 12, { 2, 3 }

-- A tensor of its own with the history of t, of a shape that goes to `like`.
local function fit(t, like)
  local same = tostring(t.shape) == tostring(like.shape)
  return (same and t or t:sum()) * 0.5
end

local views = {
  function(t) return t:reshape(-1) end,
  function(t) return t["1:"] end,
  function(t) return t["::2"] end,
  function(t) return t:transpose(0, -1) end,
  function(t) return t:unsqueeze(0) end,
  function(t) return t:unsqueeze(-1):transpose(0, -1) end,
  function(t) return t["-1:"]:squeeze(0):unsqueeze(-1) end,
  function(t) return t:flatten()["0:2"] end,
  function(t) return t["..."] end,
}

local writes = {
  function(t, v) t:mul_(fit(v, t)) end,
  function(t, v) t:add_(fit(v, t)) end,
  function(t, v) t:copy_(fit(v, t)) end,
  function(t, v) t["..."] = fit(v, t) end,
  function(t, v) t["0:1"] = fit(v, t["0:1"]) end,
  function(t, v) t["None, 1:"] = fit(v, t["1:"]) end,
  function(t) t:mul_(0.5) end,
  function(t) t:fill_(0.25) end,
  function(t) t["1:"] = 0.75 end,
  function(t) t:copy_(t) end,
  function(t) t["None"] = t end,
}

-- What is made goes to the list; what is no gradient's is made under no_grad.
local statements = {
  function(a, b) return fit(a, a) * fit(b, a) end,
  function(a, b) return (fit(a, a) + fit(b, a)):sin() end,
  function(a, _, k) return views[1 + k % #views](a) end,
  function(a, _, k) return views[1 + k % #views](a) end,
  function(a) return a:detach() end,
  function(a, _, k) return views[1 + k % #views](a).data end,
  function(a, b, k) writes[1 + k % #writes](a, b) end,
  function(a, b, k) writes[1 + k % #writes](a, b) end,
  function(a, b, k) writes[1 + k % #writes](a:detach(), b) end,
  function(a, b, k)
    local base = b * 1
    local apart, part = base:detach(), views[1 + k % #views](base)
    writes[1 + k % #writes](apart, a)
    return control.loop(2, function(x)
      local d, v = x:detach(), views[1 + k % #views](apart)
      writes[1 + k % #writes](d, part)
      return fit(x, x) + fit(d, x) * fit(v, x) + fit(base, x)
    end, { a * 1 })[1]
  end,
  function(a, b, k) -- what requires a gradient if what is captured does
    local part = views[1 + k % #views](a)
    return control.loop(2, function(x) return x + fit(part, x) end, { torch.zeros_like(b) })[1]
  end,
}

local function program(seed)
  local random, list = numbers(seed), {}
  for i = 1, STATEMENTS do
    list[i] = { run = statements[random(#statements)], a = random(1000), b = random(1000),
      k = random(1000), history = random(4) > 1 }
  end
  return function(x)
    local made = { x * 1 }
    for _, s in ipairs(list) do
      local _ <close> = torch.set_grad_enabled(s.history)
      made[#made + 1] = s.run(made[1 + s.a % #made], made[1 + s.b % #made], s.k)
    end
    return table.unpack(made)
  end
end

local function wants(list)
  local out = {}
  for i, t in ipairs(list) do
    out[i] = t.requires_grad
  end
  return out
end

local function compare(seed)
  torch.manual_seed(seed)
  local f, x = program(seed), torch.rand(SIZES, { dtype = torch.float64 }) + 0.5
  local leaf = x:clone():requires_grad_()
  local want = { f(leaf) }
  local up, sum = {}, leaf:sum() * 0
  for i, t in ipairs(want) do
    up[i] = torch.randn(t.shape, { dtype = torch.float64 })
    sum = sum + (t * up[i]):sum()
  end
  sum:backward()
  local asked
  local got = { compile(function(y)
    local made = { f(y) }
    asked = wants(made)
    return table.unpack(made)
  end, { x }, { cotangents = up })(x, up) }
  for i, t in ipairs(want) do
    assert(torch.allclose(got[i], t, 1e-9, 1e-11), ("program %d: result %d"):format(seed, i))
  end
  assert(torch.allclose(got[#got][1], leaf.grad, 1e-9, 1e-11),
    ("program %d: the gradient is %s, expected %s"):format(seed, got[#got][1], leaf.grad))
  assert.same(wants(want), asked, ("program %d: requires_grad"):format(seed))
end

describe("random programs that write what has no history", function()
  it("have the values and gradients of eager calls, compiled", function()
    for seed = 1, PROGRAMS do
      compare(seed)
    end
  end)
end)
