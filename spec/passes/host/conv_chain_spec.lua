--- Convolutions of parameters that do not change run with the pointwise operators on
--- their result: no bit differs from one after the other, on any number of threads, and
--- the values are those of eager operators. That they do shows in the number of
--- instructions where the CPU has kernels that tell of their results.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local torch = require("torch")
local F = require("torch.nn").functional

local TELLS = core.host.cpu().simd == "avx2"

local function numbers(seed)
  local state = seed * 7919 + 1
  return function(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return 1 + (state >> 12) % n
  end
end

-- Runs fn, which reads `parameters`, and compares; `joined`: how many convolutions run
-- with what reads them.
local function check(joined, fn, parameters, inputs)
  local declared = {}
  for i, p in ipairs(parameters) do
    declared[i] = { "parameter", "p" .. i, p }
  end
  local function run(options)
    local step = compiled.step(fn, inputs, declared)
    step:complete({})
    local at = compiled.vars(step)
    local exec = step:compile(options)
    local got = exec:run(compiled.feed(at, inputs), {})
    local out = {}
    while at["output output_" .. #out + 1] do
      out[#out + 1] = got[at["output output_" .. #out + 1]]
    end
    for i, p in ipairs(parameters) do -- from windows in their own order, too
      local var = at["parameter p" .. i]
      assert.is_true(not var or compiled.same_bits(exec:read(var), p), "parameter " .. i)
    end
    return out, exec:stats().instructions
  end
  local eager = { fn(table.unpack(inputs)) }
  local apart, more = run({ epilogues = false, threads = 1 })
  for threads = 1, 3 do
    local got, instructions = run({ threads = threads })
    for i, x in ipairs(got) do
      assert.is_true(compiled.same_bits(x, apart[i]), ("result %d, %d threads"):format(i, threads))
      assert.is_true(torch.allclose(x, eager[i], 1e-4, 1e-4, true), "result " .. i)
    end
    if joined and threads == 1 then
      assert.equal(TELLS and joined or 0, more - instructions)
    end
  end
end

-- A convolution before the one of interest: its result lies in blocks.
local function before(x, w)
  return F.conv2d(x, w)
end

local function statistics(channels)
  return torch.randn(channels) * 0.1, torch.rand(channels) + 0.5, torch.rand(channels) + 0.5,
    torch.randn(channels) * 0.1
end

describe("a convolution and what reads it", function()
  before_each(function()
    torch.manual_seed(5)
  end)

  -- Chains by what they are made of: steps in registers, a rest on parts, results that
  -- are stored, and others.
  local chains = {
    function(y, s)
      return F.relu6(F.batch_norm(y, s[1], s[2], s[3], s[4]))
    end,
    function(y, s)
      return F.relu(F.batch_norm(y, s[1], s[2], s[3], s[4]) + s.image)
    end,
    function(y, s)
      return F.silu(y + s[1]:view(-1, 1, 1))
    end,
    function(y, s)
      local z = F.relu(y + s[1]:view(-1, 1, 1))
      return z * torch.sigmoid(z) + s.image
    end,
    function(y, s)
      return F.hardswish(y * s[2]:view(-1, 1, 1)) - y
    end,
    function(y, s)
      return F.leaky_relu(y, 0.1) * s.image
    end,
    function(y, s)
      return s.image + y, 0
    end,
    function(y, s)
      return F.relu(y * s[2]:view(-1, 1, 1) + (s.image * s[3]:view(-1, 1, 1) + s[4]:view(-1, 1, 1)))
    end,
  }

  local function network(from, to, size, chain, keywords, kernel)
    local first = torch.randn(from, 8, 1, 1) * 0.3
    local groups = keywords.groups or 1
    local w = torch.randn(to, from // groups, kernel[1], kernel[2]) * 0.2
    local like = torch.randn(to, 8, 1, 1) * 0.3
    local mean, var, weight, bias = statistics(to)
    local x = torch.randn(2, 8, size[1], size[2])
    local y = F.conv2d(before(x, first), w, torch.none, keywords)
    local other = torch.randn(2, 8, y.shape[3], y.shape[4])
    return function(a, b)
      local image = before(b, like)
      local z = chain(F.conv2d(before(a, first), w, torch.none, keywords),
        { mean, var, weight, bias, image = image })
      return z:sum({ 2, 3 })
    end, { first, w, like, mean, var, weight, bias }, { x, other }
  end

  it("run as one, for random windows, channels, sizes and chains", function()
    for seed = 1, 48 do
      local random = numbers(seed)
      local from, to = 8 * random(5), 8 * random(8)
      local keywords = { stride = { random(2), random(3) }, dilation = random(2),
        padding = { random(3) - 1, random(3) - 1 } }
      local kernel = { random(3), random(3) }
      local how = random(5)
      if how == 1 then
        to, keywords.groups = from, from
        kernel = { random(5), random(5) }
      elseif how == 2 then
        from, to, keywords.groups = 16, 16 * random(3), 2
      elseif how == 4 then
        to, keywords.groups = from, from // 4
      elseif how == 3 then
        kernel, keywords = { 1, 1 }, { stride = random(2) }
      end
      local size = { 9 + random(9), 9 + random(12) }
      local fn, parameters, inputs = network(from, to, size, chains[1 + seed % #chains], keywords,
        kernel)
      local ok, why = pcall(check, nil, fn, parameters, inputs)
      assert(ok, ("seed %d: %s"):format(seed, tostring(why)))
    end
  end)

  it("run as one by Winograd's algorithm", function()
    for i, chain in ipairs(chains) do
      local fn, parameters, inputs = network(32, 40, { 23, 18 + i }, chain, { padding = i % 3 },
        { 3, 3 })
      check(nil, fn, parameters, inputs)
    end
  end)

  it("are one instruction", function()
    local fn, parameters, inputs = network(16, 24, { 12, 12 }, chains[1], {}, { 1, 1 })
    check(1, fn, parameters, inputs)
  end)

  it("keep NaN, infinities and signs of zero", function()
    local first = torch.eye(8):view(8, 8, 1, 1):clone()
    local w = first:clone()
    local x = torch.tensor({ 0 / 0, 1 / 0, -1 / 0, -0.0, 0, 7, -7, 1e-42 }):view(1, 1, 2, 4)
      :expand(1, 8, 2, 4):contiguous()
    for _, f in ipairs({ F.relu, F.relu6, F.hardswish, F.silu }) do
      check(nil, function(a)
        local y = f(F.conv2d(before(a, first), w))
        return y:clone(), 1 / y
      end, { first, w }, { x })
    end
  end)

  it("leave a result to others that read it", function()
    local first, w = torch.randn(16, 8, 1, 1), torch.randn(24, 16, 3, 3)
    check(nil, function(a)
      local y = F.conv2d(before(a, first), w, torch.none, { padding = 1 })
      local z = F.relu(y)
      return (z + y):sum({ 2, 3 }), F.avg_pool2d(y, 2):sum({ 2, 3 }), torch.tanh(z):sum({ 2, 3 })
    end, { first, w }, { torch.randn(2, 8, 10, 11) })
  end)
end)

describe("channels put side by side", function()
  it("stay in blocks", function()
    torch.manual_seed(2)
    local a, b, c = torch.randn(16, 8, 3, 3), torch.randn(24, 8, 3, 3), torch.randn(8, 48, 1, 1)
    check(nil, function(x)
      local y = F.conv2d(x, a)
      local z = torch.cat({ y, F.relu(F.conv2d(x, b)), y:narrow(1, 8, 8) * 2 }, 1)
      return F.conv2d(F.relu(z), c):sum({ 2, 3 })
    end, { a, b, c }, { torch.randn(2, 8, 9, 7) })
    check(nil, function(x)
      local y = F.conv2d(x, a)
      return torch.cat({ y, F.conv2d(x, b) }, 1), torch.cat({ y, y }, 2), y:sum({ 2, 3 })
    end, { a, b }, { torch.randn(2, 8, 9, 7) })
  end)
end)
