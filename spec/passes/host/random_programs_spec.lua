--- Random programs with attention, views, written buffers and training: what
--- host lowering makes of them (fused chains, regions run whole, in-place
--- plans) gives the eager values.
local compiled = require("spec.support.compiled")
local torch = require("torch")
local F = require("torch.nn.functional")

local D, OPS, PROGRAMS = 4, 14, 60

local function swap(bufs)
  local s = bufs[1]:clone()
  bufs[1]:copy_(bufs[2])
  bufs[2]:copy_(s)
end

local ops = {
  function(a, b) return a + b end,
  function(a, b) return a * b * 0.5 end,
  function(a) return torch.neg(a) end,
  function(a) return torch.tanh(a) end,
  function(a, b) return torch.matmul(a, b) * 0.3 end,
  function(a) return a:transpose(-1, -2) end,
  function(a) return F.softmax(a, -1) end,
  function(a, b, c)
    local function head(t)
      return t:reshape(1, 1, D, D)
    end
    return F.scaled_dot_product_attention(head(a), head(b), head(c)):reshape(D, D)
  end,
  function(a, b) return a + b:sum(0) * 0.1 end,
  function(a) return F.layer_norm(a, { D }) end,
  function(a, b) return torch.cat({ a["0:2"], b["2:4"] }, 0) end,
  function(a, _, _, bufs)
    torch.no_grad(function() bufs[1]:copy_(a:detach()) end)
    return bufs[1] * 0.5 + a
  end,
  function(a, b, _, bufs)
    torch.no_grad(function()
      bufs[1]:add_(bufs[2])
      bufs[2]:copy_(b:detach() * 0.5)
    end)
    return a + bufs[1] * 0.1
  end,
  function(a, _, _, bufs)
    torch.no_grad(function() swap(bufs) end)
    return a * 0.9
  end,
}

-- Small linear congruential numbers: the same programs everywhere.
local function numbers(seed)
  local state = seed
  return function()
    state = (state * 1103515245 + 12345) % 2147483648
    return state / 2147483648
  end
end

local function program(seed)
  local random, list = numbers(seed), {}
  for i = 1, 14 do
    list[i] = { 1 + math.floor(random() * OPS), random(), random(), random() }
  end
  return list
end

local function run(list, x, weights, bufs)
  local pool = { x, weights[1], weights[2] }
  local function pick(r)
    return pool[1 + math.floor(r * #pool)]
  end
  for _, p in ipairs(list) do
    pool[#pool + 1] = ops[p[1]](pick(p[2]), pick(p[3]), pick(p[4]), bufs)
  end
  local sum = pool[#pool]
  for i = 4, #pool - 1 do
    sum = sum + pool[i] * (0.1 * i)
  end
  return sum
end

local function near(got, want, what)
  local d = ((got - want):abs() / (1 + want:abs())):max():item()
  assert.is_true(d < 2e-4, ("%s differs by %g"):format(what, d))
end

local function each(seed)
  local list = program(seed)
  torch.manual_seed(seed)
  local x = torch.randn(D, D)
  local start = { w1 = torch.randn(D, D), w2 = torch.randn(D, D), b1 = torch.randn(D, D),
    b2 = torch.randn(D, D) }
  local zero = torch.zeros(D, D)
  local w = { start.w1:clone():requires_grad_(), start.w2:clone():requires_grad_() }
  local b = { start.b1:clone(), start.b2:clone() }
  local out = run(list, x, w, b)
  F.mse_loss(out, zero):backward()
  for _, fuse in ipairs({ true, false }) do
    local p = { start.w1:clone(), start.w2:clone() }
    local q = { start.b1:clone(), start.b2:clone() }
    local step, losses = compiled.step(function(h)
      local sum = run(list, h, p, q)
      return sum, F.mse_loss(sum, zero)
    end, { x }, { { "parameter", "w1", p[1] }, { "parameter", "w2", p[2] },
      { "buffer", "b1", q[1] }, { "buffer", "b2", q[2] } })
    local at, rules = compiled.vars(step), {}
    for i, name in ipairs({ "parameter w1", "parameter w2" }) do
      rules[i] = { op = "sub", param = at[name], inputs = { at[name], "grad" },
        outputs = { at[name] } }
    end
    step:complete({ loss = losses[#losses], rules = rules })
    at = compiled.vars(step)
    local exec = step:compile({ fuse = fuse })
    local got = exec:run(compiled.feed(at, { x }), {})
    local what = ("program %d, fuse %s: "):format(seed, tostring(fuse))
    near(got[at["output output_1"]], out:detach(), what .. "result")
    for i = 1, 2 do
      near(exec:read(at["parameter w" .. i]), start["w" .. i] - (w[i].grad or zero),
        what .. "w" .. i)
      near(exec:read(at["buffer b" .. i]), b[i], what .. "b" .. i)
    end
  end
end

describe("random programs", function()
  it("compiled give the eager values, gradients and buffers", function()
    for seed = 1, PROGRAMS do
      each(seed)
    end
  end)
end)
