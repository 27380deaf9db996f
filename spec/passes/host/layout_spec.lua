--- Blocked layouts, fused chains and in-place plans change no values.
local compile = require("lupine.compile")
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")

local function values(...)
  local n, sizes = 1, { ... }
  for _, s in ipairs(sizes) do
    n = n * s
  end
  return ((torch.arange(n) * 0.7391):sin() * 2):reshape(sizes)
end

-- Results and gradients of all inputs, compiled with `options`.
local function run(fn, inputs, cotangent, options)
  local given = { cotangents = { cotangent } }
  for key, value in pairs(options) do
    given[key] = value
  end
  local f = compile(fn, inputs, given)
  local args = { table.unpack(inputs) }
  args[#args + 1] = { cotangent }
  local y, grads = f(table.unpack(args))
  return { y, table.unpack(grads) }
end

local function eager(fn, inputs, cotangent)
  local leaves = {}
  for i, x in ipairs(inputs) do
    leaves[i] = x:clone():requires_grad_(true)
  end
  local y = fn(table.unpack(leaves))
  y:backward(cotangent)
  local out = { y:detach() }
  for i, x in ipairs(leaves) do
    out[i + 1] = x.grad
  end
  return out
end

local cases = {
  ["a chain of convolutions, bias, relu, pooling"] = function()
    return function(x, w1, b1, w2, b2)
      local h = F.conv2d(x, w1, b1, { padding = 1 }):relu()
      h = F.max_pool2d(F.conv2d(h, w2, b2):tanh(), 2)
      return h:flatten(1)
    end, { values(2, 3, 8, 8), values(32, 3, 3, 3) * 0.1, values(32),
      values(16, 32, 3, 3) * 0.1, values(16) }, values(2, 16 * 3 * 3)
  end,
  ["a residual branch and a channel that is read plain"] = function()
    return function(x, w1, w2)
      local h = F.conv2d(x, w1, nil, { padding = 1 })
      local y = (h + F.conv2d(h:relu(), w2, nil, { padding = 1 })):sigmoid()
      return y * 2 + h[":, 0:1"] + h:mean({ 2, 3 }, true)
    end, { values(2, 16, 5, 6), values(16, 16, 3, 3) * 0.05, values(16, 16, 3, 3) * 0.05 },
      values(2, 16, 5, 6)
  end,
  ["overlapping windows with padding, statistics over the image"] = function()
    return function(x, w)
      local h = F.conv2d(x, w, nil, { stride = 2 })
      local p = F.max_pool2d(h, 3, 2, 1)
      local m = h:mean({ 0, 2, 3 }, true)
      return (p - m) * h:sum({ 2, 3 }, true):tanh()
    end, { values(3, 4, 11, 9), values(32, 4, 3, 3) * 0.1 }, values(3, 32, 3, 2)
  end,
  ["batch normalisation between convolutions, with and without parameters"] = function()
    return function(x, w1, w2, scale, shift)
      local h = F.conv2d(x, w1, nil, { padding = 1 })
      local y = F.batch_norm(h, nil, nil, scale, shift, true):relu()
      y = F.batch_norm(F.conv2d(y, w2, nil, { padding = 1 }) + h, nil, nil, nil, nil, true)
      return (y + h:relu()):flatten(1)
    end, { values(3, 5, 7, 3), values(32, 5, 3, 3) * 0.1, values(32, 32, 3, 3) * 0.05,
      values(32) + 3, values(32) }, values(3, 32 * 7 * 3) * 0.01
  end,
  ["a normalisation to which a number for each channel is added before its ReLU"] = function()
    return function(x, w1, w2)
      local h = F.conv2d(x, w1)
      local one = F.conv2d(h:mean({ 2, 3 }, true), w2)
      local y = F.batch_norm(F.conv2d(h, w2), nil, nil, nil, nil, true)
      return (y + one):relu():flatten(1)
    end, { values(3, 5, 6, 5), values(32, 5, 1, 1), values(32, 32, 1, 1) * 0.1 },
      values(3, 32 * 6 * 5)
  end,
  ["a scaled sum with a normalisation before its ReLU"] = function()
    return function(x, w1, w2)
      local h = F.conv2d(x, w1)
      local y = F.batch_norm(F.conv2d(h, w2), nil, nil, nil, nil, true)
      return torch.add(y, h, { alpha = 2 }):relu():flatten(1)
    end, { values(3, 5, 6, 5), values(32, 5, 1, 1), values(32, 32, 1, 1) * 0.1 },
      values(3, 32 * 6 * 5)
  end,
  ["channels that no block divides"] = function()
    return function(x, w1, w2)
      local h = F.conv2d(x, w1):relu()
      return F.conv2d(h, w2):relu()
    end, { values(2, 3, 7, 7), values(10, 3, 3, 3) * 0.1, values(16, 10, 2, 2) * 0.1 },
      values(2, 16, 4, 4)
  end,
  ["plain rows of one image, written over by nobody who reads them as a view"] = function()
    return function(x, w)
      local h = F.conv2d(x, w)
      local y = torch.exp(h:reshape(2, -1) * 0.5):reshape(h:size())
      return F.softmax(h, 1) + h:cumsum(3) * y:mean(1, true)
    end, { values(2, 16, 5, 6), values(16, 16, 2, 2) * 0.1 }, values(2, 16, 4, 5)
  end,
  ["sums along one side of the image"] = function()
    return function(x, w)
      local h = F.conv2d(x, w)
      return h:sum(2):unsqueeze(2) * h:mean(3, true) + h:sum({ 1, 3 }, true)
    end, { values(2, 4, 6, 7), values(32, 4, 2, 2) * 0.1 }, values(2, 32, 5, 6)
  end,
  ["groups, dilation and a transposed convolution"] = function()
    return function(x, w1, w2)
      local h = F.conv2d(x, w1, nil, { groups = 2, dilation = 2 }):relu()
      return F.conv_transpose2d(h, w2, nil, { stride = 2 }):relu()
    end, { values(2, 16, 7, 7), values(32, 8, 2, 2) * 0.1, values(32, 16, 2, 2) * 0.1 },
      values(2, 16, 10, 10)
  end,
}

describe("host lowering of", function()
  for name, make in pairs(cases) do
    it(name .. " gives the eager values in every layout", function()
      local fn, inputs, cotangent = make()
      local want = eager(fn, inputs, cotangent)
      for _, options in ipairs({ { blocked = true, fuse = true }, { blocked = true, fuse = false },
        { blocked = false, fuse = true }, { blocked = false, fuse = false } }) do
        local got = run(fn, inputs, cotangent, options)
        for i, w in ipairs(want) do
          helper.near(got[i], w, { 2e-4, 2e-5 })
        end
      end
    end)

    it(name .. " gives the same halves in every layout", function()
      local fn, inputs, cotangent = make()
      local halves = {}
      for i, x in ipairs(inputs) do
        halves[i] = x:half()
      end
      local plain = run(fn, halves, cotangent:half(), { blocked = false })
      helper.near(plain[1]:float(), eager(fn, inputs, cotangent)[1], { 2e-2, 2e-2 })
      for _, options in ipairs({ { blocked = true }, { blocked = true, fuse = false } }) do
        for i, got in ipairs(run(fn, halves, cotangent:half(), options)) do
          local off = (got:float() - plain[i]:float()):abs():max():item()
          assert.is_true(off <= 4e-3 * plain[i]:float():abs():max():item(), i) -- order of sums
        end
      end
    end)
  end
end)

describe("batch normalisation of blocked images", function()
  local compiled = require("spec.support.compiled")

  it("keeps its precision where the mean is far larger than the deviation", function()
    local x = (values(8, 16, 9, 9) + 1000):requires_grad_(false)
    local eye = torch.eye(16):reshape({ 16, 16, 1, 1 })
    local function fn(a, w)
      return F.batch_norm(F.conv2d(a, w), nil, nil, nil, nil, true)
    end
    local want = eager(fn, { x:double(), eye:double() }, x:double())[1]
    local got = compiled.run(fn, { x, eye }, {})[1]
    helper.near(got:double(), want, { 1e-3, 1e-3 }) -- x itself has 6e-5
  end)

  -- Residual blocks: the sum's other operand made before and after the
  -- normalisation, one normalisation that is read twice, one scaled sum.
  local function residual(a, w1, w2, scale, shift)
    local function norm(h)
      return F.batch_norm(h, nil, nil, scale, shift, true)
    end
    local x = norm(F.conv2d(a, w1)):relu()
    local y = norm(F.conv2d(x, w2, nil, { padding = 1 })):relu()
    y = (x + norm(F.conv2d(y, w2, nil, { padding = 1 }))):relu()
    local both = norm(F.conv2d(y, w2, nil, { padding = 1 }))
    y = (both + norm(y)):relu() * both
    return torch.add(norm(y), x, { alpha = 2 }):relu()
  end

  it("gives the same bits with its addition and ReLU as without", function()
    local a = values(3, 16, 6, 5)
    a[1][2][3][4] = 0 / 0
    for _, first in ipairs({ values(3, 16, 6, 5), a }) do
      local inputs = { first, values(32, 16, 1, 1) * 0.2, values(32, 32, 3, 3) * 0.1,
        values(32) + 3, values(32) }
      local cotangent = values(3, 32, 6, 5)
      for _, blocked in ipairs({ true, false }) do
        local apart = run(residual, inputs, cotangent, { fuse = false, blocked = blocked })
        local together = run(residual, inputs, cotangent, { fuse = true, blocked = blocked })
        for i, got in ipairs(together) do
          assert.is_true(compiled.same_bits(got, apart[i]))
        end
      end
    end
  end)

  it("of rows gives the same bits with its addition and ReLU as without", function()
    local function fn(a, w)
      local h = a:matmul(w)
      local y = F.batch_norm(h, nil, nil, nil, nil, true):relu()
      return (F.batch_norm(y:matmul(w), nil, nil, nil, nil, true) + y):relu()
    end
    local inputs, cotangent = { values(40, 24), values(24, 24) }, values(40, 24)
    local apart = run(fn, inputs, cotangent, { fuse = false })
    for i, got in ipairs(run(fn, inputs, cotangent, { fuse = true })) do
      assert.is_true(compiled.same_bits(got, apart[i]))
    end
  end)

  it("gives the same bits at every number of threads", function()
    local function fn(a, w, scale)
      return F.batch_norm(F.conv2d(a, w), nil, nil, scale, nil, true):sin()
    end
    local inputs = { values(6, 16, 30, 29), values(32, 16, 1, 1) * 0.1, values(32) }
    local cotangent = values(6, 32, 30, 29)
    local one = run(fn, inputs, cotangent, { threads = 1 })
    for threads = 2, 3 do
      local got = run(fn, inputs, cotangent, { threads = threads })
      assert.is_true(compiled.same_bits(got[1], one[1]))
      assert.is_true(compiled.same_bits(got[2], one[2]))
      assert.is_true(compiled.same_bits(got[4], one[4]))
    end
  end)
end)

describe("rounding at random of blocked images", function()
  local compiled = require("spec.support.compiled")
  local eye = torch.eye(32):reshape({ 32, 32, 1, 1 })

  -- fn(x, eye) has the same bits in blocks and in rows, in chains and without.
  local function alike(fn, x, w, numerics)
    local step = compiled.step(fn, { x, w })
    step:complete({ numerics = numerics or { stochastic = true } })
    local at, first = compiled.vars(step), nil
    for _, blocked in ipairs({ true, false }) do
      for _, fuse in ipairs({ true, false }) do
        local exec = step:compile({ blocked = blocked, fuse = fuse })
        local got = exec:run(compiled.feed(at, { x, w }), {})[at["output output_1"]]
        first = first or got
        assert.is_true(compiled.same_bits(first, got))
      end
    end
  end

  it("counts their elements in the order of plain ones", function()
    alike(function(a, w) return F.conv2d(a, w):to(torch.float16) end, values(3, 32, 6, 5), eye)
  end)

  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    it(("does so at each node of a chain, %s"):format(dtype), function()
      for _, shape in ipairs({ { 3, 32, 6, 5 }, { 1, 32, 1, 1 }, { 2, 32, 13, 17 } }) do
        local x = values(table.unpack(shape)):to(dtype)
        alike(function(a, w)
          local y = F.conv2d(a, w) * 0.3 + a * 0.01
          return F.conv2d((y * 1e-6):relu() - y, w)
        end, x, eye:to(dtype))
      end
    end)
  end

  for _, stochastic in ipairs({ true, false }) do
    for _, half in ipairs({ true, false }) do
      it(("normalises them alike: at random %s, half statistics %s"):format(stochastic, half),
        function()
          -- sums of these are exact in any order
          local x = torch.randint(-8, 9, { 2, 32, 4, 4 }):half() / 8
          alike(function(a, w)
            local y = F.batch_norm(F.conv2d(a, w) + a, nil, nil, nil, nil, true)
            return F.conv2d(y:relu(), w)
          end, x, eye:half(), { stochastic = stochastic, half_statistics = half })
        end)
    end
  end
end)

-- A head of flattened images whose gradient is a product of tiles.
describe("the ReLU's gradient after a linear layer", function()
  local compiled = require("spec.support.compiled")
  local CHANNELS, ROWS = 16, 512

  local function train(options)
    local shapes = { { CHANNELS, CHANNELS, 3, 3 }, { CHANNELS, CHANNELS, 3, 3 },
      { 64, CHANNELS * 4 * 4 } }
    local list = {}
    for i, shape in ipairs(shapes) do
      list[i] = { "parameter", "w" .. i, values(table.unpack(shape)) * 0.05 }
    end
    local x = values(ROWS, CHANNELS, 4, 4)
    local step, losses = compiled.step(function(h)
      for i = 1, 2 do
        h = F.conv2d(h, list[i][3], nil, 1, 1)
        h = F.batch_norm(h, nil, nil, nil, nil, true):relu()
      end
      h = F.linear(h:flatten(1), list[3][3])
      return F.mse_loss(h, torch.ones_like(h))
    end, { x }, list)
    local at = compiled.vars(step)
    step:complete({ loss = losses[1], rules = compiled.descent(at, list) })
    local exec, joined, out = step:compile(options), 0, {}
    exec:profile(true)
    exec:run(compiled.feed(at, { x }), {})
    for _, row in ipairs(exec:profile().rows) do
      joined = joined + (row.label == "batch_norm_relu_backward" and 1 or 0)
    end
    for i, p in ipairs(list) do
      out[i] = exec:read(at["parameter " .. p[2]])
    end
    return out, joined
  end

  it("runs with that of the normalisation, with the bits of one after the other", function()
    local want = train({ fuse = false })
    local last, without = train({ epilogues = false })
    local got, joined = train({})
    for i, w in ipairs(want) do
      assert.is_true(compiled.same_bits(got[i], w), "parameter " .. i)
      assert.is_true(compiled.same_bits(last[i], w), "parameter " .. i)
    end
    assert.equal(without, joined)
    if core.host.cpu().simd ~= "plain" then
      assert.equal(2, joined)
    end
  end)
end)

describe("Winograd's convolution", function()
  local compiled = require("spec.support.compiled")

  it("is within 5e-5 of the largest exact value, forward and backward", function()
    local x, w1, w2 = values(4, 16, 16, 16), values(64, 16, 1, 1), values(64, 64, 3, 3) * 0.1
    local y = values(4, 64, 16, 16):flip({ 0, 3 })
    local function fn(a, b, c) -- the first makes blocks of channels
      return F.conv2d(F.conv2d(a, b), c, nil, { padding = 1 })
    end
    local want = eager(fn, { x:double(), w1:double(), w2:double() }, y:double())
    local direct = compiled.run(fn, { x, w1, w2 }, { winograd = false })
    for i, got in ipairs(run(fn, { x, w1, w2 }, y, {})) do
      local off = (got:double() - want[i]):abs():max():item()
      assert.is_true(off < 5e-5 * want[i]:abs():max():item())
      if i == 1 and core.host.cpu().simd ~= "plain" then
        assert.is_false(compiled.same_bits(got, direct[1]))
      end
    end
  end)

  -- Pictures, channels in and out, rows, columns, padding: tiles that lie outside in
  -- part, chunks of them, columns that fill no panel, windows larger than pictures.
  it("takes any picture, the same with any number of threads", function()
    local threads = torch.get_num_threads()
    for _, case in ipairs({ { 8, 32, 72, 13, 18, 0 }, { 3, 40, 64, 17, 30, 1 },
      { 5, 72, 40, 14, 26, 2 }, { 70, 64, 64, 1, 2, 1 }, { 2, 256, 96, 24, 28, 1 } }) do
      local n, c, o, rows, columns, pad = table.unpack(case)
      local x, w1 = torch.randn({ n, 16, rows, columns }), torch.randn({ c, 16, 1, 1 })
      local w2 = torch.randn({ o, c, 3, 3 }) * 0.1
      local function fn(a, b, d)
        return F.conv2d(F.conv2d(a, b), d, nil, { padding = pad })
      end
      local y = torch.randn(fn(x, w1, w2):size())
      local want = eager(fn, { x:double(), w1:double(), w2:double() }, y:double())
      local first
      for t = 1, 2 do
        torch.set_num_threads(t)
        local got = run(fn, { x, w1, w2 }, y, {})
        first = first or got
        for i, g in ipairs(got) do
          local off = (g:double() - want[i]):abs():max():item()
          assert.is_true(off < 1e-5 * want[i]:abs():max():item(), ("%d, off by %g"):format(i, off))
          assert.is_true(i > 2 or compiled.same_bits(g, first[i]))
        end
      end
    end
    torch.set_num_threads(threads)
  end)

  it("runs in parts of the batch, between which Ctrl-C is heard", function()
    local x, w1, w2 = values(12, 16, 112, 112), values(64, 16, 1, 1), values(64, 64, 3, 3) * 0.1
    local function fn(a, b, c) -- 5.5e9 products
      return F.conv2d(F.conv2d(a, b), c, nil, { padding = 1 })
    end
    local got = compiled.run(fn, { x, w1, w2 }, {})[1]
    local want = compiled.run(fn, { x, w1, w2 }, { winograd = false })[1]
    assert.is_true((got - want):abs():max():item() < 5e-5 * want:abs():max():item())
  end)
end)

describe("a packed copy of a weight", function()
  local compiled = require("spec.support.compiled")

  local function model()
    local w = values(96, 80) * 0.1
    return w, values(8, 80), function(x)
      return F.linear(x, w)
    end
  end

  it("follows the weight when it is written", function()
    local w, x, fn = model()
    local step = compiled.step(fn, { x }, { { "parameter", "w", w } })
    step:complete({})
    local at = compiled.vars(step)
    local exec = step:compile({})
    for i = 1, 3 do
      exec:write(at["parameter w"], w * i)
      local got = exec:run(compiled.feed(at, { x }), {})[at["output output_1"]]
      helper.near(got, x:matmul((w * i):t()), { 1e-5, 1e-5 })
    end
  end)

  it("follows windows that are written, as Winograd's products want them", function()
    -- 16 tiles: too few where windows are transformed in each call
    local w, first, x = values(64, 64, 3, 3) * 0.1, values(64, 16, 1, 1), values(1, 16, 16, 16)
    local function fn(a)
      return F.conv2d(F.conv2d(a, first), w, nil, { padding = 1 })
    end
    local step = compiled.step(fn, { x }, { { "parameter", "w", w },
      { "parameter", "first", first } })
    step:complete({})
    local at = compiled.vars(step)
    local exec, want = step:compile({}), fn(x)
    for i = 1, 3 do
      exec:write(at["parameter w"], w * i)
      local got = exec:run(compiled.feed(at, { x }), {})[at["output output_1"]]
      local off = (got - want * i):abs():max():item()
      assert.is_true(off < 5e-5 * (want * i):abs():max():item())
    end
    if core.host.cpu().simd == "avx2" then
      local direct = step:compile({ winograd = false })
      direct:write(at["parameter w"], w * 3)
      local function result(of)
        return of:run(compiled.feed(at, { x }), {})[at["output output_1"]]
      end
      assert.is_false(compiled.same_bits(result(exec), result(direct)))
    end
  end)

  it("is that of the part that is read", function()
    local linear, kernel = values(192, 80) * 0.1, values(48, 16, 3, 3) * 0.1
    for w, case in pairs({
      [linear] = { values(8, 80), F.linear, 96 },
      [kernel] = { values(2, 16, 6, 6), F.conv2d, 16 },
    }) do
      local x, fn, rows = table.unpack(case)
      local parts = { torch.slice(0, rows), torch.slice(rows, 2 * rows) }
      local step = compiled.step(function(row)
        return fn(row, w[{ parts[2] }]), fn(row, w[{ parts[1] }])
      end, { x }, { { "parameter", "w", w } })
      step:complete({})
      local at = compiled.vars(step)
      local exec = step:compile({})
      for i = 1, 2 do
        exec:write(at["parameter w"], w * i)
        local got = exec:run(compiled.feed(at, { x }), {})
        for k = 1, 2 do
          local want = fn(x, w[{ parts[3 - k] }] * i)
          helper.near(got[at["output output_" .. k]], want, { 1e-4, 1e-4 })
        end
      end
    end
  end)

  -- Two times four micro-batches of x's rows; a result, the parameter, what it was read with.
  local function trained(fn, x, w, first, options)
    local declared = { { "parameter", "w", w }, first and { "parameter", "first", first } }
    local step, losses = compiled.step(function(row)
      local y = fn(row)
      return y, F.mse_loss(y, torch.ones_like(y))
    end, { x[{ torch.slice(0, #x // 8) }] }, declared)
    local at = compiled.vars(step)
    local rules = {}
    for _, name in ipairs({ "parameter w", "parameter first" }) do
      rules[#rules + 1] = at[name] and { op = "sub", param = at[name],
        inputs = { at[name], "grad" }, outputs = { at[name] } }
    end
    step:complete({ device_iterations = 2, gradient_accumulation = 4, loss = losses[1],
      rules = rules })
    local exec = step:compile(options)
    local got = exec:run(compiled.feed(at, { x }), {})
    return { got[at["output output_1"]], exec:read(at["parameter w"]),
      first and exec:read(at["parameter first"]) }
  end

  it("follows the weight when it is trained, one copy an update", function()
    local x = values(2 * 4 * 8, 80)
    local results = {}
    for i, packed in ipairs({ true, false }) do
      local w, _, fn = model()
      results[i] = trained(fn, x, w, nil, { packed = packed })
    end
    helper.near(results[1][1], results[2][1], { 1e-5, 1e-5 })
    helper.near(results[1][2], results[2][2], { 1e-5, 1e-5 })
  end)

  -- 64 tiles a micro-batch: Winograd's products forward and backward; 16: they are too few
  -- where windows change.
  it("follows windows that are trained", function()
    for pictures, near in pairs({ [4] = true, [1] = false }) do
      local results = {}
      for i, options in ipairs({ {}, { packed = false }, { winograd = false } }) do
        local w, first = values(64, 64, 3, 3) * 0.01, values(64, 16, 1, 1) * 0.1
        results[i] = trained(function(x)
          return F.conv2d(F.conv2d(x, first), w, nil, { padding = 1 })
        end, values(2 * 4 * pictures, 16, 16, 16), w, first, options)
      end
      for i = 1, 3 do
        helper.near(results[1][i], results[2][i], { 1e-5, 1e-5 })
        if near then
          helper.near(results[1][i], results[3][i], { 1e-4, 1e-4 })
        else
          assert.is_true(compiled.same_bits(results[1][i], results[3][i]))
        end
      end
    end
  end)
end)

describe("an optimizer's update", function()
  local compiled = require("spec.support.compiled")

  it("writes over its variables: it needs no memory between", function()
    local w, m, x = values(40, 30) * 0.1, values(40, 30) * 0.1, values(8, 30)
    local step, losses = compiled.step(function(row)
      return F.mse_loss(F.linear(row, w), torch.ones(8, 40))
    end, { x }, { { "parameter", "w", w } })
    local at = compiled.vars(step)
    local param = at["parameter w"]
    local state = step:add_var("state", "m", m, param)
    local lr = step:add_var("hyper", "lr", torch.tensor(0.5))
    local momentum = step:add_var("hyper", "momentum", torch.tensor(0.25))
    step:complete({ loss = losses[1], rules = { { op = "sgd_step", param = param,
      inputs = { param, "grad", state, lr, momentum }, outputs = { param, state } } } })
    local exec = step:compile({})
    assert.equal(0, exec:stats().update_arena_bytes)
    local leaf = w:clone():requires_grad_(true)
    F.mse_loss(F.linear(x, leaf), torch.ones(8, 40)):backward()
    exec:run(compiled.feed(at, { x }), {})
    -- step = 1 (default) starts the buffer anew
    helper.near(exec:read(state), leaf.grad, { 1e-5, 1e-6 })
    helper.near(exec:read(param), w - leaf.grad * 0.5, { 1e-5, 1e-6 })
  end)
end)
