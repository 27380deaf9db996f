--- Steps that round at random (numerics.stochastic): without bias, exact
--- numbers left alone, the same bits however the step runs.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local helper = require("spec.passes.ipu.helper")
local report = require("lupine.report")
local torch = require("torch")

local F = torch.nn.functional
local STOCHASTIC = { stochastic = true }
local N = 1000000

-- The step of fn, completed, and a function that runs it.
local function step_of(fn, inputs, options, spec)
  local step = compiled.step(fn, inputs)
  spec = spec or {}
  spec.numerics = spec.numerics or STOCHASTIC
  step:complete(spec)
  local at, exec = compiled.vars(step), step:compile(options or {})
  return step, function()
    return exec:run(compiled.feed(at, inputs), {})[at["output output_1"]]
  end, exec
end

local function rounded(fn, inputs, options)
  local _, run = step_of(fn, inputs, options)
  return run()
end

local function filled(shape, value, dtype)
  return torch.full(shape, value, { dtype = dtype })
end

-- y, of a half type, holds draws of one exact value between two neighbours of
-- its type: nothing else is drawn, and their mean is within four standard
-- errors, sqrt(p (1 - p) / n) of their distance.
local function unbiased(y, exact)
  local wide = y:reshape(-1):to(torch.float64)
  local n, low, high = y:numel(), wide:min():item(), wide:max():item()
  local up = torch.tensor(low, { dtype = y.dtype })
  up = torch.nextafter(up, torch.tensor(math.huge, { dtype = y.dtype })):to(torch.float64):item()
  assert.equal(up, high)
  assert.is_true(low < exact and exact < high)
  assert.is_true(wide:eq(low):logical_or(wide:eq(high)):all():item())
  local p = (exact - low) / (high - low)
  local far = math.abs(wide:mean():item() - exact) / (high - low)
  assert.is_true(far < 4 * math.sqrt(p * (1 - p) / n), ("%g of %g, p = %g"):format(far, exact, p))
  return p
end

-- No two stretches of a power of 2, beginning at whole ones of their length, are alike.
local function no_repetition(y)
  for _, n in ipairs({ 256, 1024, 4096, 16384 }) do
    local first = y[":" .. n]
    for i = 1, 15 do
      assert.is_false(torch.equal(first, y:narrow(0, i * n, n)))
    end
  end
end

-- What a kernel family makes of numbers that `dtype` has: {fn, inputs, exact}.
-- a and b are exact in both half types, their products and sums are not.
local function families(dtype)
  local a, b = 1.015625, 0.7578125 -- 65/64, 97/128: 7 and 7 bits
  local all = {}
  function all.cast()
    local v = 1 + 0x1.2345p-10 + 0x1.9p-8
    return function(x) return x:to(dtype) end, { filled({ N }, v) }, filled({}, v):item()
  end
  all["cast of float64"] = function()
    local v = -3.14159265358979
    return function(x) return x:to(dtype) end, { filled({ N }, v, torch.float64) }, v
  end
  function all.pointwise()
    return function(x, y) return x * y end, { filled({ N }, a, dtype), filled({ N }, b, dtype) },
      a * b
  end
  all["a sum over rows"] = function()
    return function(x) return (x:sum(1)) end,
      { torch.cat({ filled({ N, 1 }, a, dtype), filled({ N, 1 }, 0x1.7p-9, dtype) }, 1) },
      a + 0x1.7p-9
  end
  all["a sum over columns"] = function()
    return function(x) return (x:sum(0)) end,
      { torch.cat({ filled({ 1, N }, a, dtype), filled({ 1, N }, 0x1.7p-9, dtype) }, 0) },
      a + 0x1.7p-9
  end
  all["a product"] = function()
    return function(x, y) return x:matmul(y) end,
      { filled({ 1000, 2 }, a, dtype), filled({ 2, 1000 }, b, dtype) }, 2 * a * b
  end
  function all.addmm()
    return function(c, x, y) return torch.addmm(c, x, y) end, { filled({ 1000 }, 0.25, dtype),
      filled({ 1000, 2 }, a, dtype), filled({ 2, 1000 }, b, dtype) }, 2 * a * b + 0.25
  end
  all["a running sum"] = function()
    return function(x) return x:cumsum(1):narrow(1, 1, 1) end,
      { torch.cat({ filled({ N, 1 }, a, dtype), filled({ N, 1 }, 0x1.7p-9, dtype) }, 1) },
      a + 0x1.7p-9
  end
  all["adding at an index"] = function()
    local index = torch.zeros({ 1 }, { dtype = torch.int64 })
    return function(x, y) return x:index_add(0, index, y) end,
      { filled({ 1, N }, a, dtype), filled({ 1, N }, 0x1.7p-9, dtype) }, a + 0x1.7p-9
  end
  function all.pooling()
    return function(x) return F.avg_pool1d(x, 2) end,
      { torch.cat({ filled({ 1, N, 1 }, a, dtype), filled({ 1, N, 1 }, 0x1.7p-9, dtype) }, 2) },
      (a + 0x1.7p-9) / 2
  end
  return all
end

describe("rounding at random", function()
  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    for name, family in pairs(families(dtype)) do
      it(("has no bias: %s, %s"):format(name, dtype), function()
        local fn, inputs, exact = family()
        local y = rounded(fn, inputs)
        unbiased(y, exact)
        no_repetition(y:reshape(-1))
      end)
    end

    it("has no bias along a chain of operators, " .. tostring(dtype), function()
      -- x * b rounds, then adding 0.5 does: the mean of the means
      local x, b = filled({ N }, 1.015625, dtype), 0.7578125
      for _, fuse in ipairs({ true, false }) do
        local y = rounded(function(v) return v * b + 0.5 end, { x }, { fuse = fuse })
        local mean = y:to(torch.float64):mean():item()
        local ulp = torch.finfo(dtype).eps
        -- two roundings, of at most half an ulp of deviation each
        assert.is_true(math.abs(mean - (1.015625 * b + 0.5)) < 4 * ulp / math.sqrt(2 * N))
      end
    end)

    it("has no bias in an optimizer's update, " .. tostring(dtype), function()
      local p, g = 1.015625, 0.7578125
      local declared = { { "parameter", "w", filled({ N }, p, dtype) } }
      for op, exact in pairs({ sgd_step = p - 0.0009765625 * g,
        sub = p - 0.0009765625 * g }) do
        local x = filled({ N }, g, dtype)
        local step, losses = compiled.step(function(v)
          return core.forms.internal.identity_loss((v * declared[1][3]):sum(), "none")
        end, { x }, declared)
        local at = compiled.vars(step)
        local w = at["parameter w"]
        local rule = { op = op, param = w, inputs = { w, "grad" }, outputs = { w } }
        if op == "sub" then
          rule.attrs = { alpha = 0.0009765625 }
        else
          local lr = step:add_var("hyper", "lr", torch.tensor(0.0009765625))
          rule.inputs = { w, "grad", false, lr }
        end
        step:complete({ loss = losses[1], rules = { rule }, numerics = STOCHASTIC })
        local exec = step:compile({})
        exec:run(compiled.feed(at, { x }), {})
        unbiased(exec:read(w), exact)
        no_repetition(exec:read(w))
      end
    end)

    it("has no bias in the sum of gradients over replicas, " .. tostring(dtype), function()
      local a, b = 1.015625, 0x1.7p-9
      local declared = { { "parameter", "w", torch.zeros({ N }, { dtype = dtype }) } }
      local step, losses = compiled.step(function(v)
        return core.forms.internal.identity_loss((v * declared[1][3]):sum(), "none")
      end, { torch.ones({ N }, { dtype = dtype }) }, declared)
      local at = compiled.vars(step)
      step:complete({ loss = losses[1], rules = compiled.descent(at, declared), replicas = 2,
        mean = false, numerics = STOCHASTIC })
      local exec = step:compile({})
      exec:run(compiled.feed(at, { torch.cat({ filled({ N }, a, dtype),
        filled({ N }, b, dtype) }) }), {})
      unbiased(-exec:read(at["parameter w"]), a + b)
    end)

    it("leaves the numbers of the type alone, " .. tostring(dtype), function()
      local bits = torch.arange(-32768, 32768):to(torch.int16)
      local all = bits:view(dtype)
      assert.is_true(compiled.same_bits(all, rounded(function(x) return x:to(dtype) end,
        { all:float() })))
      assert.is_true(compiled.same_bits(all, rounded(function(x) return x * 1.0 + 0 end, { all },
        { fuse = false })))
    end)

    it("makes nothing infinite that would not be to nearest, " .. tostring(dtype), function()
      local largest = torch.finfo(dtype).max
      local ulp = largest - torch.nextafter(torch.tensor(largest, { dtype = dtype }),
        torch.tensor(0.0, { dtype = dtype })):to(torch.float64):item()
      local x = torch.tensor({ largest + 0.49 * ulp, largest + 0.5 * ulp, -(largest + 0.51 * ulp),
        math.huge, -math.huge, 2.0 ^ 127 * 1.999, 0 / 0 }):expand({ 1000, 7 }):contiguous()
      local y = rounded(function(v) return v:to(dtype) end, { x })
      assert.is_true(compiled.same_bits(x:to(dtype), y))
    end)
  end

  it("has no bias among subnormal numbers of float16, and keeps signs", function()
    for exact, p in pairs({ [0x1.8p-24] = 0.5, [-0x1.4p-24] = 0.75, [0x1p-27] = 0.125,
      [-0x1p-30] = 1 - 0x1p-6, [0x1.0048p-14] = 0.125, [0x3ffp-24 + 0x1p-26] = 0.25 }) do
      local y = rounded(function(x) return x:to(torch.float16) end, { filled({ N }, exact) })
      assert.near(p, unbiased(y, exact), 1e-9)
      if exact < 0 then
        assert.is_true(torch.signbit(y):all():item())
      end
    end
  end)

  it("takes half statistics of float16 alone", function()
    local x = torch.sin(torch.arange(4000):float() * 1.91):reshape(20, 200) * 0.3 + 100
    for dtype, same in pairs({ [torch.float16] = false, [torch.bfloat16] = true }) do
      local of = {}
      for i, half in ipairs({ true, false }) do
        local _, run = step_of(function(v) return F.layer_norm(v, { 200 }) end, { x:to(dtype) }, {},
          { numerics = { stochastic = true, half_statistics = half } })
        of[i] = run()
      end
      assert.equal(same, compiled.same_bits(of[1], of[2]))
    end
  end)

  it("draws 32 bits for subnormal numbers", function()
    local n, p = 8000000, 2.0 ^ -17
    local y = rounded(function(x) return x:to(torch.float16) end, { filled({ n }, p * 2 ^ -24) })
    local up = y:ne(0):sum():item()
    assert.is_true(math.abs(up - n * p) < 4 * math.sqrt(n * p), up)
  end)

  it("leaves alone what operators draw: those numbers are of the type", function()
    local x = torch.ones({ 1000 })
    for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
      local function fn()
        return torch.cat({ torch.rand({ 1000 }, { dtype = dtype }),
          torch.randn({ 1000 }, { dtype = dtype }) })
      end
      local _, nearest = step_of(fn, { x }, {}, { numerics = {} })
      assert.is_true(compiled.same_bits(nearest(), rounded(fn, { x })))
    end
  end)

  it("draws for each result of an operator anew", function()
    -- with one decay and a gradient of 1 both averages are b c + 1 - b
    local b, c, n = 0.7, 0.7578125, 10000
    local half = { dtype = torch.float16 }
    local declared = { { "parameter", "w", torch.zeros({ n }, half) } }
    local x = torch.ones({ n }, half)
    local step, losses = compiled.step(function(v)
      return core.forms.internal.identity_loss((v * declared[1][3]):sum(), "none")
    end, { x }, declared)
    local at = compiled.vars(step)
    local w = at["parameter w"]
    local m = step:add_var("state", "m", filled({ n }, c, torch.float16), w)
    local v = step:add_var("state", "v", filled({ n }, c, torch.float16), w)
    local count = step:add_var("state", "step", torch.tensor(0.0), w)
    local inputs = { w, "grad", m, v, false }
    for i, value in ipairs({ 0.01, b, b, 0.0, 0.01 }) do
      inputs[5 + i] = step:add_var("hyper", "h" .. i, torch.tensor(value))
    end
    inputs[11] = count
    step:complete({ loss = losses[1], rules = { { op = "adam_step", param = w, inputs = inputs,
      outputs = { w, m, v }, count = count } }, numerics = STOCHASTIC })
    local exec = step:compile({})
    exec:run(compiled.feed(at, { x }), {})
    local p = unbiased(exec:read(m), b * c + 1 - b)
    unbiased(exec:read(v), b * c + 1 - b)
    local unlike = exec:read(m):ne(exec:read(v)):float():mean():item()
    assert.near(2 * p * (1 - p), unlike, 4 * math.sqrt(0.25 / n))
  end)

  it("draws for every element, micro-batch, replica and seed anew", function()
    local function once(seed, micro_batch)
      local step = compiled.step(function(v) return v:to(torch.float16) end, { torch.ones(1, 64) })
      step:complete({ device_iterations = 2, replicas = 2, numerics = STOCHASTIC })
      local at, exec = compiled.vars(step), step:compile({})
      exec:rng(seed, micro_batch)
      return exec:run({ [at["input x1"]] = filled({ 4, 64 }, 1 + 2 ^ -11) },
        {})[at["output output_1"]]
    end
    local got = once(7, 0)
    local seen = {}
    for _, row in ipairs(got:tolist()) do
      local key = table.concat(row, " ")
      assert.is_nil(seen[key])
      seen[key] = true
    end
    assert.same(got:tolist(), once(7, 0):tolist())
    assert.are_not.same(got:tolist(), once(8, 0):tolist())
    -- the second device iteration of one run is the first of the next
    local later = once(7, 1):tolist()
    local half = #later // 2
    assert.same({ table.unpack(got:tolist(), half + 1) }, { table.unpack(later, 1, half) })
  end)
end)

describe("replicas of a step that rounds at random", function()
  -- Weights of n elements after two updates of gradients x, which differ over replicas.
  local function trained(dtype, replicas, x)
    local declared = { { "parameter", "w", torch.ones({ x:size(1) }, { dtype = dtype }) } }
    local step, losses = compiled.step(function(v)
      local y = v * 0.7 -- rounds by itself
      return core.forms.internal.identity_loss((y * declared[1][3]):sum(), "none"), y
    end, { x[":1"] }, declared)
    local at = compiled.vars(step)
    local w = at["parameter w"]
    local m = step:add_var("state", "m", torch.zeros({ x:size(1) }, { dtype = dtype }), w)
    local lr, mu = step:add_var("hyper", "lr", torch.tensor(0.01)),
      step:add_var("hyper", "mu", torch.tensor(0.9))
    step:complete({ loss = losses[1], replicas = replicas, gradient_accumulation = 2,
      device_iterations = 2, numerics = STOCHASTIC, rules = { { op = "popart_sgd_step", param = w,
        inputs = { w, "grad", m, lr, mu }, outputs = { w, m } } } })
    local exec = step:compile({})
    exec:rng(9, 0)
    local out = exec:run(compiled.feed(at, { x }), {})[at["output output_2"]]
    local all = { out = out }
    for r = 0, replicas - 1 do
      all[#all + 1] = { exec:read(w, r), exec:read(m, r) }
    end
    return all
  end

  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    it("have one value of each weight and state, and activations of their own, "
      .. tostring(dtype), function()
      local replicas, n = 4, 500
      local x = torch.sin(torch.arange(16 * n):float() * 1.91):reshape(16, n):to(dtype)
      local all = trained(dtype, replicas, x)
      for r = 2, replicas do
        for i = 1, 2 do
          assert.is_true(compiled.same_bits(all[1][i], all[r][i]))
        end
      end
      assert.is_true(all[1][1]:ne(1):any():item())
      local same = trained(dtype, replicas, x[":1"]:expand({ 16, n }):contiguous()).out
      local seen = {}
      for _, row in ipairs(same:tolist()) do
        local key = table.concat(row, " ")
        assert.is_nil(seen[key])
        seen[key] = true
      end
    end)
  end
end)

-- ---- the same bits however it runs ------------------------------------------
local function pattern(rows, cols, dtype)
  local t = torch.arange(rows * cols):float():reshape(rows, cols)
  return torch.sin(t * 1.91 + 0.37):to(dtype)
end

local function layer(h, w)
  h = F.gelu(torch.matmul(h, w) * 0.7 + 0.1)
  return F.dropout(F.layer_norm(h, { 8 }), 0.25, true) * 0.9
end

local function chain(dtype, replicas, numerics)
  return helper.chain(3, { train = true, accumulation = 7, device_iterations = 2, batch = 4,
    width = 8, dtype = dtype, numerics = numerics or STOCHASTIC, replicas = replicas,
    weight = function(i) return pattern(8, 8) * (0.3 + 0.05 * i) end, layer = layer })
end

-- Outputs and parameters after a run, as lists by variable.
local function ran(step, x, options)
  local at, exec = compiled.vars(step), step:compile(options)
  exec:rng(7, 0)
  local all = exec:run({ [at["input x"]] = x }, {})
  for i, v in ipairs(step:vars()) do
    all[i] = v.role == "parameter" and exec:read(i) or all[i]
  end
  return all
end

describe("a step that rounds at random", function()
  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    it("is the same fused or not, on any number of threads, made again or not, "
      .. tostring(dtype), function()
      local step = chain(dtype)
      local x = pattern(4 * 14, 8, dtype)
      local want = ran(step, x, { threads = 1, remat = 1 << 40 })
      for _, options in ipairs({ { fuse = false }, { threads = 4 }, { remat = 0 },
        { blocked = false, packed = false, weight_layouts = false, embedding_hoist = false } }) do
        for i, t in pairs(ran(step, x, options)) do
          assert.is_true(compiled.same_bits(want[i], t), step:vars()[i].name)
        end
      end
      local text = core.step_parse(step:text("step"))
      assert.equal(step:text("step"), text:text("step"))
    end)

    it("is the same replayed by its schedule, recomputing, " .. tostring(dtype), function()
      for _, replicas in ipairs({ 1, 2 }) do
        local step = chain(dtype, replicas)
        local at, x = compiled.vars(step), pattern(4 * 14 * replicas, 8, dtype)
        local want = ran(step, x, {})
        for _, how in ipairs({ { recompute = "auto" }, { recompute = "none" } }) do
          local out, vars = report.replay(step, how, { [at["input x"]] = x }, { seed = 7 })
          local compared = 0
          for _, list in ipairs({ out, vars }) do
            for i, t in pairs(list) do
              if want[i] then
                assert.is_true(compiled.same_bits(want[i], t), step:vars()[i].name)
                compared = compared + 1
              end
            end
          end
          assert.is_true(compared >= 4)
        end
      end
    end)
  end

  it("is the same behind a product of float32 that its chain runs with", function()
    local a, b = pattern(512, 256, torch.float32), pattern(256, 251, torch.float32)
    local function fn(x, y) return F.relu((x:matmul(y) * 1.1):to(torch.float16) + 0.3) end
    local step = compiled.step(fn, { a, b })
    step:complete({ numerics = STOCHASTIC })
    local at, want = compiled.vars(step), nil
    for _, options in ipairs({ {}, { epilogues = false }, { fuse = false }, { threads = 1 } }) do
      local exec = step:compile(options)
      exec:rng(7, 0)
      local y = exec:run(compiled.feed(at, { a, b }), {})[at["output output_1"]]
      want = want or y
      assert.is_true(compiled.same_bits(want, y))
    end
  end)

  it("is the same behind a convolution that makes its images in blocks", function()
    local x, w = pattern(2 * 16, 36, torch.float32):reshape(2, 16, 6, 6),
      pattern(16, 16 * 9, torch.float32):reshape(16, 16, 3, 3)
    local step = compiled.step(function(v, k)
      return (F.relu(F.conv2d(v, k)) * 1.1):to(torch.float16) + 0.3
    end, { x, w })
    step:complete({ numerics = STOCHASTIC })
    local at, want = compiled.vars(step), nil
    for _, options in ipairs({ {}, { blocked = false }, { fuse = false } }) do
      local exec = step:compile(options)
      exec:rng(7, 0)
      local y = exec:run(compiled.feed(at, { x, w }), {})[at["output output_1"]]
      want = want or y
      assert.is_true(compiled.same_bits(want, y))
    end
  end)

  it("is the same where a product reads halves that lie in blocks", function()
    local function filled_by(shape, dtype, scale)
      local n = 1
      for _, size in ipairs(shape) do
        n = n * size
      end
      return (pattern(1, n, torch.float32) * scale):reshape(shape):to(dtype)
    end
    local float, half = torch.float32, torch.float16
    local inputs = { filled_by({ 2, 16, 6, 6 }, float, 1), filled_by({ 16, 16, 3, 3 }, float, 1),
      filled_by({ 2, 16, 4, 4 }, half, 1), filled_by({ 8, 16, 3, 3 }, half, 0.7) }
    local step = compiled.step(function(v, k, a, w)
      -- the greater of a half and of 0 or 1 by an image in blocks: in blocks too, as none draws
      return F.conv2d(torch.maximum(F.conv2d(v, k):gt(0), a), w)
    end, inputs)
    step:complete({ numerics = STOCHASTIC })
    local at, want = compiled.vars(step), nil
    for _, options in ipairs({ { blocked = false }, {}, { fuse = false }, { threads = 1 } }) do
      local exec = step:compile(options)
      exec:rng(7, 0)
      local y = exec:run(compiled.feed(at, inputs), {})[at["output output_1"]]
      want = want or y
      assert.is_true(compiled.same_bits(want, y))
    end
  end)

  it("is not what it is to nearest", function()
    local x = pattern(4 * 14, 8, torch.float16)
    local a, b = chain(torch.float16), chain(torch.float16, 1, {})
    local w = compiled.vars(a)["parameter w1"]
    assert.is_false(compiled.same_bits(ran(a, x, {})[w], ran(b, x, {})[w]))
  end)
end)
