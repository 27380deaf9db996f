--- Products that run with the pointwise operators on their result: no bit
--- differs from one after the other. That they do shows in the number of
--- instructions where the CPU multiplies tiles, and where short sums are ours.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local torch = require("torch")
local F = require("torch.nn").functional

local cpu = core.host.cpu()
local TILES = cpu.amx
local SHORT = TILES or cpu.simd == "avx512" -- 192 terms at most

-- fn's results are summed along rows, so that no variable receives them.
-- `joined`: how many products run with what reads them.
local function check(joined, fn, inputs, threads)
  local function sums(...)
    local results = table.pack(fn(...))
    for i = 1, results.n do
      results[i] = results[i]:sum(0)
    end
    return table.unpack(results)
  end
  local want, apart = compiled.run(sums, inputs, { epilogues = false, threads = threads })
  local got, exec = compiled.run(sums, inputs, { threads = threads })
  for i, x in ipairs(want) do
    assert.is_true(compiled.same_bits(x, got[i]), "result " .. i)
  end
  local less = apart:stats().instructions - exec:stats().instructions
  assert.equal(SHORT and joined or 0, less)
end

describe("a product and what reads it", function()
  local x, w, b

  before_each(function()
    torch.manual_seed(3)
    x, w, b = torch.randn(1000, 96), torch.randn(200, 96), torch.randn(200)
  end)

  it("run as one: bias and activation", function()
    check(1, function(t, u, v)
      return F.gelu(F.linear(t, u, v))
    end, { x, w, b })
    check(1, function(t, u)
      return torch.tanh(t:matmul(u:t()))
    end, { x, w })
  end)

  it("run as one if it is read twice, through reshapes and into two results", function()
    check(1, function(t, u)
      local y = t:matmul(u:t()):reshape(10, 100, 200)
      local z = y * torch.sigmoid(y)
      return z, z * 3 + y
    end, { x, w })
  end)

  it("run as one beside a residual that dies there", function()
    check(1, function(t, u, v)
      local r = F.softmax(t:sum(1, true) + v, 1) -- lies in the arena
      return r * 2 + F.linear(t, u, v)
    end, { x, w, b })
  end)

  it("run apart if a result takes another operand's memory", function()
    check(0, function(t, u, v)
      local r = F.softmax(t:sum(1, true) + v, 1)
      local y = r * 2 + F.linear(t, u, v)
      return y, torch.tanh(y)
    end, { x, w, b })
    check(0, function(t, u, v) -- through a reshape
      local r = F.softmax(t:sum(1, true) + v, 1):reshape(10, 100, 200)
      local y = r * 2 + t:matmul(u:t()):reshape(10, 100, 200)
      return y, torch.tanh(y)
    end, { x, w, b })
  end)

  it("have their own rows in a profile if they run apart", function()
    local step = compiled.step(function(t, u, v)
      local r = F.softmax(t:sum(1, true) + v, 1)
      local y = r * 2 + F.linear(t, u, v)
      local z = torch.tanh(y)
      return y:sum(0), z:sum(0)
    end, { x, w, b })
    step:complete({})
    local at = compiled.vars(step)
    local exec, flops = step:compile({}), {}
    exec:profile(true)
    exec:run(compiled.feed(at, { x, w, b }), {})
    for _, row in ipairs(exec:profile().rows) do
      flops[row.label] = row.flops
    end
    assert.equal(2 * 1000 * 96 * 200, flops.mm)
    assert.equal(4 * 1000 * 200, flops["mul+add*2+tanh"])
  end)

  it("run with the last of two products", function()
    check(1, function(t, u)
      return t:matmul(u:t()) * (t * 2):matmul(u:t())
    end, { x, w })
  end)

  it("run apart if others read the product, or see it otherwise", function()
    check(0, function(t, u)
      local y = t:matmul(u:t())
      return torch.tanh(y), y:matmul(u)
    end, { x, w })
    check(0, function(t, u)
      local y = t:matmul(u:t())
      return torch.tanh(y:t()), torch.tanh(y["0:100"])
    end, { x, w })
    check(0, function(t, u)
      return t:matmul(u:t()) + t:sum(1, true):expand(3, 1000, 200)
    end, { x, w })
  end)

  it("run apart if others read the product before", function()
    check(0, function(t, u)
      local y = t:matmul(u:t())
      local first = y:matmul(u) -- an only member reads y last
      return first, torch.tanh(y)
    end, { x, w })
  end)

  it("run as one with the first if more results leave the chain than it can write", function()
    check(1, function(t, u)
      local y, results = t:matmul(u:t()), {}
      for i = 1, 12 do
        y = torch.tanh(y)
        results[i] = y
      end
      return table.unpack(results)
    end, { x, w })
  end)

  it("run apart where the others lie in blocks", function()
    local image, kernel = torch.randn(16, 8, 8, 8), torch.randn(64, 8, 3, 3)
    check(0, function(i, c, t, u)
      local y = t:matmul(u:t()):reshape(16, 64, 8, 8)
      local h = F.conv2d(i, c, nil, { padding = 1 })
      local z = F.relu(h + y)
      return F.conv2d(z, c:sum(1, true):expand(64, 64, 3, 3), nil, { padding = 1 }), h:abs()
    end, { image, kernel, torch.randn(1024, 96), torch.randn(64, 96) })
  end)

  it("run as one however the operands lie, and in blocks along k and columns", function()
    local function fn(t, u)
      return F.gelu(t:matmul(u) + 1)
    end
    check(1, function(t, u)
      return fn(t:t(), u)
    end, { torch.randn(96, 1000), torch.randn(96, 200) })
    check(1, function(t, u)
      return fn(t["0:1000, 0:192:2"], u)
    end, { torch.randn(1000, 192), torch.randn(96, 200) })
    local deep = { torch.randn(660, 1100), torch.randn(1100, 600) }
    for threads = 1, 4, 3 do
      check(TILES and 1 or 0, fn, deep, threads)
      check(TILES and 1 or 0, function(t, u)
        return fn(t:t(), u)
      end, { torch.randn(1100, 660), deep[2] }, threads)
    end
  end)

  it("run apart where columns move, or little is multiplied", function()
    check(0, function(t, u)
      return torch.tanh(u:matmul(t:t()))
    end, { x, w })
    check(0, function(t, u)
      return torch.tanh(t["0:40"]:matmul(u:t()))
    end, { x, w })
  end)

  it("run apart if a variable receives what they make", function()
    local function fn(t, u)
      return torch.tanh(t:matmul(u:t()))
    end
    local want = compiled.run(fn, { x, w }, { epilogues = false })
    local got, exec = compiled.run(fn, { x, w })
    assert.is_true(compiled.same_bits(want[1], got[1]))
    assert.equal(2, exec:stats().instructions)
  end)

  it("give the same on any number of threads", function()
    local wide = torch.randn(640, 96)
    for _, threads in ipairs({ 1, 3, 4, 8 }) do
      check(1, function(t, u, v)
        return F.gelu(F.linear(t, u, v) + 1)
      end, { x, w, b }, threads)
      check(1, function(t, u) -- threads share both operands
        return F.gelu(t:matmul(u:t()) + 1)
      end, { torch.randn(648, 96), wide }, threads)
      check(TILES and 1 or 0, function(t, u) -- or their columns
        return F.gelu(t:matmul(u:t()) + 1)
      end, { torch.randn(300, 2100), torch.randn(96, 2100) }, threads)
    end
  end)

  it("give the same where the product must be made again in float32", function()
    for _, bad in ipairs({ 0 / 0, math.huge, 3e38, 1e-40 }) do
      x[501][7] = bad
      x[999][95] = bad
      check(1, function(t, u, v)
        local r = F.softmax(t["0:1000, 0:1"] + v, 1)
        return r + F.gelu(F.linear(t, u, v)), r * 2
      end, { x, w, b })
      check(1, function(t, u, v) -- a residual that dies
        local r = F.softmax(t["0:1000, 0:1"] + v, 1)
        return r * 2 + F.gelu(F.linear(t, u, v))
      end, { x, w, b })
    end
  end)
end)

describe("a trained product", function()
  it("runs with the gradient of what it read", function()
    torch.manual_seed(3)
    local x, up, down = torch.randn(512, 64), torch.randn(128, 64), torch.randn(64, 128)
    local function train(options)
      local list = { { "parameter", "up", up }, { "parameter", "down", down } }
      local step, losses = compiled.step(function(t)
        return F.mse_loss(F.linear(F.gelu(F.linear(t, up)), down), t)
      end, { x }, list)
      local at = compiled.vars(step)
      step:complete({ loss = losses[1], rules = compiled.descent(at, list),
        gradient_accumulation = options.accumulation })
      local exec, out = step:compile({ epilogues = options.epilogues }), {}
      local feed = { [at["input x1"]] = options.accumulation and torch.cat({ x, x * 0.5 }) or x }
      for _ = 1, 3 do
        out[#out + 1] = exec:run(feed, {})[at["output output_1"]]
      end
      for _, p in ipairs(list) do
        out[#out + 1] = exec:read(at["parameter " .. p[2]])
      end
      return out
    end
    for _, accumulation in ipairs({ false, 2 }) do
      local want = train({ epilogues = false, accumulation = accumulation or nil })
      local got = train({ accumulation = accumulation or nil })
      for i, v in ipairs(want) do
        assert.is_true(compiled.same_bits(v, got[i]), "result " .. i)
      end
    end
  end)
end)
