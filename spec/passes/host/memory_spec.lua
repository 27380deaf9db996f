-- Gradients that lie in the arena between the instruction that makes them and
-- the update.
local compiled = require("spec.support.compiled")
local helper = require("spec.helper")
local torch = require("torch")
local nn = require("torch.nn")
local F = nn.functional

local ROWS, WIDTH, LAYERS = 256, 32, 4
local MATRIX = WIDTH * WIDTH * 4 -- bytes

local function parameters()
  torch.manual_seed(2)
  local list = {}
  for i = 1, LAYERS do
    list[i] = { "parameter", "w" .. i, torch.randn(WIDTH, WIDTH) * 0.3 }
  end
  return list
end

local function loss_of(weights, x)
  local y = x
  for i = 1, LAYERS do
    y = torch.tanh(F.linear(y, weights[i]))
  end
  return F.mse_loss(y, torch.zeros_like(y))
end

-- The executor of a step that subtracts the gradients; `options` of complete, and
-- `max_norm` of the rules.
local function build(list, fn, x, options, compile)
  local step, losses = compiled.step(fn, { x }, list)
  local at, rules = compiled.vars(step), {}
  local lr = step:add_var("hyper", "lr", torch.tensor(1.0))
  for i, p in ipairs(list) do
    local var = at["parameter " .. p[2]]
    rules[i] = { op = "sgd_step", param = var, inputs = { var, "grad", false, lr },
      outputs = { var } }
  end
  local o = { loss = losses[1], rules = rules }
  for k, v in pairs(options(step)) do
    o[k] = v
  end
  for _, rule in ipairs(rules) do
    rule.max_norm = o.max_norm
  end
  o.max_norm = nil
  step:complete(o)
  at = compiled.vars(step)
  return step:compile(compile or {}), at
end

local function weights_of(list)
  local out = {}
  for i, p in ipairs(list) do
    out[i] = p[3]
  end
  return out
end

local function none()
  return {}
end

local function network(list, x, options, compile)
  return build(list, function(h)
    return loss_of(weights_of(list), h)
  end, x, options or none, compile)
end

-- Eagerly, two steps of plain subtraction with gradients of norm `most`.
local function eager(list, x, most, loss)
  local w = {}
  for i, p in ipairs(list) do
    w[i] = p[3]:clone():requires_grad_(true)
  end
  for _ = 1, 2 do
    (loss or loss_of)(w, x):backward()
    if most then
      nn.utils.clip_grad_norm_(w, most)
    end
    for i, t in ipairs(w) do
      w[i] = (t - t.grad):detach():requires_grad_(true)
    end
  end
  return w
end

local function check(list, exec, at, x, want)
  for _ = 1, 2 do
    exec:run(compiled.feed(at, { x }), {})
  end
  for i, p in ipairs(list) do
    helper.near(exec:read(at["parameter " .. p[2]]), want[i], { 1e-5, 1e-6 })
  end
end

describe("a gradient that nothing is added to", function()
  local x = torch.randn(ROWS, WIDTH)

  it("lies where the backward half has given memory back", function()
    local list = parameters()
    local exec, at = network(list, x)
    assert.equal(LAYERS * MATRIX, exec:stats().arena_gradient_bytes)
    -- a layer keeps its result, the backward half gives one back for each matrix
    local kept = LAYERS * ROWS * WIDTH * 4
    assert.is_true(exec:stats().micro_arena_bytes < kept + ROWS * WIDTH * 4 + 2 * MATRIX)
    check(list, exec, at, x, eager(list, x))
  end)

  it("is not written over by what the update makes", function()
    local list, few = parameters(), torch.randn(24, WIDTH)
    for _, fuse in ipairs({ true, false }) do
      local exec, at = network(list, few, function(step)
        return { max_norm = step:add_var("hyper", "most", torch.tensor(0.001)) }
      end, { fuse = fuse })
      assert.equal(LAYERS * MATRIX, exec:stats().arena_gradient_bytes)
      check(list, exec, at, few, eager(list, few, 0.001))
    end
  end)

  it("may be another one's too, or that turned or negated", function()
    local list = parameters()
    local function loss(w, h)
      for _ = 1, 3 do
        h = torch.tanh(F.linear(h, w[1] + w[2] + w[3]:t() - w[4]))
      end
      return F.mse_loss(h, torch.zeros_like(h))
    end
    local want = eager(list, x, nil, loss)
    local exec, at = build(list, function(h)
      return loss(weights_of(list), h)
    end, x, none)
    assert.equal(LAYERS * MATRIX, exec:stats().arena_gradient_bytes)
    check(list, exec, at, x, want)
  end)

  it("is made last if it is large and made of little", function()
    torch.manual_seed(6)
    local SIDE, FEW, LARGE = 1024, 8, 1024 * 1024 * 4
    local list = {
      { "parameter", "first", torch.randn(WIDTH, WIDTH) * 0.3 },
      { "parameter", "wide", torch.randn(SIDE, WIDTH) * 0.1 },
      { "parameter", "last", torch.randn(SIDE, SIDE) * 0.02 },
    }
    local function loss(w, h)
      h = torch.tanh(F.linear(torch.tanh(F.linear(h, w[1])), w[2]))
      h = torch.tanh(h * h + h):reshape(FEW, -1, SIDE):mean(1)
      h = torch.tanh(F.linear(h, w[3]))
      return F.mse_loss(h, torch.zeros_like(h))
    end
    for _, rows in ipairs({ 4096, 4096 + FEW }) do
      local input = torch.randn(rows, WIDTH)
      local exec, at = build(list, function(h)
        return loss(weights_of(list), h)
      end, input, none)
      -- it comes first in the backward half, where most is in use
      assert.is_true(exec:stats().arena_gradient_bytes >= LARGE)
      check(list, exec, at, input, eager(list, input, nil, loss))
    end
    -- it is added to: no memory to lend
    local exec = build(list, function(h)
      return loss(weights_of(list), h)
    end, torch.randn(4096, WIDTH), function()
      return { gradient_accumulation = 2 }
    end)
    assert.equal(0, exec:stats().arena_gradient_bytes)
  end)

  -- Is a product the last instruction of the backward half?
  local function ends_with_product(list, input, loss)
    local exec, at = build(list, loss, input, none)
    exec:profile(true)
    exec:run(compiled.feed(at, { input }), {})
    local last
    for _, row in ipairs(exec:profile().rows) do
      last = row.part == "backward" and row.label or last
    end
    return last == "mm"
  end

  -- The gradient of `out` rows of 1024 over `rows` of the batch: is it the last
  -- to be made in the backward half?
  local function is_last(out, rows)
    local list = {
      { "parameter", "scale", torch.randn(rows, 1024) },
      { "parameter", "w", torch.randn(out, 1024) * 0.01 },
    }
    return ends_with_product(list, torch.randn(rows, 1024), function(h)
      h = F.linear(torch.tanh(h * list[1][3]), list[2][3])
      return F.mse_loss(h, torch.zeros_like(h))
    end)
  end

  it("is made last even if its other operand is an input of the step", function()
    local list = { { "parameter", "scale", torch.randn(8, 1024) },
      { "parameter", "w", torch.randn(1024, 1024) * 0.01 } }
    local input = torch.randn(8, 1024)
    assert.is_true(ends_with_product(list, input, function(h)
      local y = torch.tanh(h * list[1][3]) * F.linear(h, list[2][3])
      return F.mse_loss(y, torch.zeros_like(y))
    end))
  end)

  it("is made in its place unless it has 4 MiB and twice what it is made of", function()
    assert.is_true(is_last(1024, 8))
    assert.is_false(is_last(1023, 8))
    assert.is_true(is_last(1024, 256)) -- of two times 1 MiB
    assert.is_false(is_last(1024, 257))
  end)

  it("is made in its place if others are made of it", function()
    local side, few = 1024, torch.randn(8, 1024)
    local list = {}
    for i = 1, 2 do
      list[i] = { "parameter", "w" .. i, torch.randn(side, side) * 0.02 }
    end
    local function loss(w, h)
      h = torch.tanh(F.linear(h, w[1] - w[2]))
      return F.mse_loss(h, torch.zeros_like(h))
    end
    local exec, at = build(list, function(h)
      return loss(weights_of(list), h)
    end, few, none)
    check(list, exec, at, few, eager(list, few, nil, loss))
  end)

  it("keeps its own memory where most is in use", function()
    torch.manual_seed(4)
    local shapes = { { 64 * WIDTH, WIDTH }, { WIDTH, 64 * WIDTH }, { WIDTH, WIDTH } }
    local list = {}
    for i, shape in ipairs(shapes) do
      list[i] = { "parameter", "w" .. i, torch.randn(table.unpack(shape)) * 0.1 }
    end
    local exec = build(list, function(h)
      for i = 1, #shapes do
        h = torch.tanh(F.linear(h, list[i][3]))
      end
      return F.mse_loss(h, torch.zeros_like(h))
    end, x, none)
    -- those that come before or with the wide activations' (which of the wide
    -- ones does is up to the scratch of the products)
    local lent = exec:stats().arena_gradient_bytes
    assert.is_true(lent == 64 * MATRIX or lent == 128 * MATRIX)
  end)
end)

describe("a gradient", function()
  local x = torch.randn(ROWS, WIDTH)

  it("has memory of its own over micro-batches and replicas", function()
    local exec = network(parameters(), x, function()
      return { gradient_accumulation = 2 }
    end)
    assert.equal(0, exec:stats().arena_gradient_bytes)
    exec = network(parameters(), x, function()
      return { replicas = 2 }
    end)
    assert.equal(0, exec:stats().arena_gradient_bytes)
  end)

  it("that is lent memory cannot be read between steps", function()
    local exec, at = network(parameters(), x)
    exec:run(compiled.feed(at, { x }), {})
    helper.raises("RuntimeError", "w1.*outside of a step", function()
      exec:read(at["accumulator Gradient___w1"])
    end)
  end)

  it("with padding in its layout, which stays zero, has memory of its own", function()
    for channels, padded in pairs({ [16] = false, [20] = true }) do
      local list = {}
      for i = 1, 3 do
        list[i] = { "parameter", "k" .. i, torch.randn(channels, channels, 3, 3) * 0.1 }
      end
      local exec = build(list, function(h)
        for i = 1, 3 do
          h = F.relu(F.conv2d(h, list[i][3], nil, 1, 1))
        end
        return F.mse_loss(h, torch.zeros_like(h))
      end, torch.randn(8, channels, 16, 16), none)
      local stats = exec:stats()
      if stats.weight_layouts == 3 then
        assert.equal(padded, stats.arena_gradient_bytes == 0, channels .. " channels")
      end
    end
  end)
end)

describe("gradients of several micro-batches", function()
  it("are summed in the type that their rule names", function()
    -- float16 has no 2049: the sum of 2048 and 1 is 2048 there
    for dtype, sum in pairs({ [torch.float16] = 2048, [torch.float32] = 2049 }) do
      local w, row = torch.zeros(1), torch.tensor({ 1.0 })
      local step, losses = compiled.step(function(h)
        return F.l1_loss(w * h + 1, torch.zeros(1))
      end, { row }, { { "parameter", "w", w } })
      local at = compiled.vars(step)
      local param = at["parameter w"]
      local lr = step:add_var("hyper", "lr", torch.tensor(1.0))
      step:complete({ loss = losses[1], gradient_accumulation = 2, mean = false,
        rules = { { op = "sgd_step", param = param, inputs = { param, "grad", false, lr },
          outputs = { param }, accum = dtype } } })
      at = compiled.vars(step)
      local exec = step:compile({})
      exec:run(compiled.feed(at, { torch.tensor({ 2048.0, 1.0 }) }), {})
      helper.near(exec:read(param), { -sum }, helper.exact)
    end
  end)

  it("are added where they are made: none waits for those of other layers", function()
    for _, running in ipairs({ false, true }) do
      local list, x = parameters(), torch.randn(2, WIDTH)
      local exec, at = network(list, x[{ torch.slice(0, 1) }], function()
        return { gradient_accumulation = 2, running = running }
      end)
      assert.is_true(exec:stats().micro_arena_bytes < 2 * MATRIX)
      check(list, exec, at, x, eager(list, x))
    end
  end)
end)

describe("gradients as small as what their norm is divided by beside it", function()
  it("are halved where the norm, its maximum and that are the same", function()
    -- a norm of 1e-6, times 1e-6 / (1e-6 + 1e-6)
    local list = { { "parameter", "w", torch.zeros(2) } }
    local row = torch.tensor({ 0.6, 0.8 })
    local exec, at = build(list, function(h)
      return F.l1_loss((list[1][3] * h + 1):sum() * 1e-6, torch.tensor(0.0))
    end, row, function(step)
      return { max_norm = step:add_var("hyper", "most", torch.tensor(1e-6)) }
    end)
    exec:run(compiled.feed(at, { row }), {})
    helper.near(exec:read(at["parameter w"]), { -3e-7, -4e-7 }, { 0, 1e-4 })
  end)
end)

describe("the memory of a step", function()
  it("is planned with the largest first where that takes less", function()
    local function units(n)
      return torch.randn(64, 16 * n)
    end
    local x, up, small, large, down = units(1), torch.randn(16, 64), torch.randn(64, 16),
      torch.randn(16, 128), torch.randn(128, 16)
    local function fn(h)
      local s = h:matmul(up):matmul(small)
      return s + s:matmul(large):matmul(down)
    end
    local got, exec = compiled.run(fn, { x }, {})
    helper.near(got[1], fn(x), { 1e-4, 1e-3 })
    -- four, one and eight units: the one lies above where four and eight do
    assert.equal(10 * 64 * 16 * 4, exec:stats().micro_arena_bytes)
  end)
end)
