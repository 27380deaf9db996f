-- Cheap values that the backward half makes again: how much memory that saves
-- in figures, and that no bit of what is trained changes.
local compiled = require("spec.support.compiled")
local networks = require("spec.bench.networks")
local torch = require("torch")
local F = require("torch.nn").functional

local ROWS, WIDTH, INNER, LAYERS, BYTES = 512, 128, 256, 3, 4
local ALWAYS, NEVER = 0, math.maxinteger
local SAVED = ROWS * INNER * BYTES -- of one layer's inner activation

-- The parameters of LAYERS times Linear(width, inner), Linear(inner, width).
local function parameters(width, inner)
  torch.manual_seed(5)
  local list = {}
  for i = 1, LAYERS do
    list[#list + 1] = { "parameter", "up" .. i, torch.randn(inner, width) * 0.1 }
    list[#list + 1] = { "parameter", "bias" .. i, torch.randn(inner) * 0.1 }
    list[#list + 1] = { "parameter", "down" .. i, torch.randn(width, inner) * 0.1 }
  end
  return list
end

-- The loss of the layers of `list`, each x = layer(x, up, bias, down, i).
local function layers(list, layer)
  return function(x)
    for i = 1, LAYERS do
      x = layer(x, list[3 * i - 2][3], list[3 * i - 1][3], list[3 * i][3], i)
    end
    return F.mse_loss(x, torch.zeros_like(x))
  end
end

-- `inner(h, i)` is the activation of layer i; `before(x, i)` what it reads.
local function chain(inner, before)
  return function(list)
    return layers(list, function(x, up, bias, down, i)
      local h = F.linear(before and before(x, i) or x, up, bias)
      return x + F.linear(inner(h, i), down)
    end)
  end
end

-- A step of fn, with the loss first among its results, that subtracts the
-- gradients.
local function step_of(fn, inputs, list, options)
  local step, losses = compiled.step(function(...)
    return fn(...)
  end, inputs, list)
  local at = compiled.vars(step)
  step:complete({ loss = losses[1], rules = compiled.descent(at, list),
    gradient_accumulation = options.accumulation, replicas = options.replicas })
  return step, at
end

-- What three runs give: outputs and parameters; and the executor's stats.
local function train(fn, inputs, list, options)
  local step, at = step_of(fn, inputs, list, options)
  local slices = (options.accumulation or 1) * (options.replicas or 1)
  local feed, out = {}, {}
  for i, x in ipairs(inputs) do
    local all = {}
    for k = 1, slices do
      all[k] = x:is_floating_point() and x * (1 / k) or x
    end
    feed[at["input x" .. i]] = torch.cat(all)
  end
  local exec = step:compile({ remat = options.remat, threads = 1, fuse = options.fuse,
    epilogues = false })
  exec:rng(3, 0)
  for _ = 1, 3 do
    out[#out + 1] = exec:run(feed, {})[at["output output_1"]]
  end
  for _, p in ipairs(list) do
    out[#out + 1] = exec:read(at["parameter " .. p[2]])
  end
  return out, exec:stats()
end

-- Trains with and without; returns both stats.
local function both(fn, inputs, list, options)
  local results, stats = {}, {}
  for i, remat in ipairs({ NEVER, ALWAYS }) do
    local o = { remat = remat }
    for k, v in pairs(options or {}) do
      o[k] = v
    end
    results[i], stats[i] = train(fn, inputs, list, o)
  end
  for k, t in ipairs(results[1]) do
    assert.is_true(compiled.same_bits(t, results[2][k]), "result " .. k)
  end
  return stats[1], stats[2]
end

local function saved(without, with)
  return without.micro_arena_bytes - with.micro_arena_bytes
end

-- The same with the network above.
local function compare(inner, before, options, width)
  local list = parameters(width or WIDTH, INNER)
  return both(chain(inner, before)(list), { torch.randn(ROWS, width or WIDTH) }, list, options)
end

local function gelu(h)
  return F.gelu(h)
end

local function relu(h)
  return F.relu(h)
end

local function assert_untouched(without, with)
  assert.same(without, with)
end

describe("a value that is cheap to make again", function()
  it("is not kept for the backward half", function()
    local without, with = compare(gelu)
    assert.equal(LAYERS * SAVED, saved(without, with))
    assert.equal(without.instructions + LAYERS, with.instructions)
  end)

  it("is not kept where nothing is fused, nor over micro-batches and replicas", function()
    assert.equal(LAYERS * SAVED, saved(compare(gelu, nil, { fuse = false })))
    assert.equal(LAYERS * SAVED, saved(compare(gelu, nil, { accumulation = 2, replicas = 2 })))
  end)

  it("may be read by views", function()
    local without, with = compare(function(h)
      return F.gelu(h):reshape(ROWS // 2, 2, INNER):transpose(0, 1):reshape(ROWS, INNER)
    end)
    assert.is_true(saved(without, with) >= 0)
    without, with = compare(function(h)
      return F.gelu(h:view(ROWS // 2, 2, INNER)):view(ROWS, INNER)
    end)
    assert.equal(LAYERS * SAVED, saved(without, with))
    local list = parameters(WIDTH, INNER)
    without, with = both(function(x) -- views of views: every other row
      local half
      for i = 1, LAYERS do
        local h = F.gelu(F.linear(x, list[3 * i - 2][3], list[3 * i - 1][3]))
        half = h:view(ROWS // 2, 2, INNER)
        half = F.linear(half[":, 0"], list[3 * i][3]) + F.linear(half[":, 1"], list[3 * i][3])
        x = x + torch.cat({ half, half })
      end
      return F.mse_loss(x, torch.zeros_like(x))
    end, { torch.randn(ROWS, WIDTH) }, list)
    assert.is_true(saved(without, with) >= (LAYERS - 1) * SAVED)
  end)

  it("may be a normalisation of what is kept", function()
    local without, with = compare(gelu, function(x)
      return F.layer_norm(x, { WIDTH })
    end)
    -- not the first, of what the step is given; the holes of the arena differ
    assert.equal(without.instructions + LAYERS + LAYERS - 1, with.instructions)
    local least = LAYERS * SAVED + (LAYERS - 2) * ROWS * WIDTH * BYTES
    assert.is_true(saved(without, with) >= least, saved(without, with) .. " of " .. least)
  end)

  it("may take several operators, of which only the last is kept", function()
    local without, with = compare(function(h)
      return F.gelu(h) * 2 + 1
    end)
    -- the last layer's gradient still reads what they are made of
    assert.equal((LAYERS - 1) * SAVED, saved(without, with))
    assert.equal(without.instructions + LAYERS, with.instructions)
  end)

  it("is made with the gradient that reads the same, where that is large", function()
    local rows, list = 1024, parameters(WIDTH, INNER) -- 1 MiB
    local x = torch.randn(rows, WIDTH)
    local without, with = both(chain(gelu)(list), { x }, list)
    assert.equal(LAYERS * rows * INNER * BYTES, saved(without, with))
    assert.equal(without.instructions, with.instructions)
    without, with = both(chain(gelu)(list), { x }, list, { fuse = false })
    assert.equal(LAYERS * rows * INNER * BYTES, saved(without, with))
    assert.equal(without.instructions + LAYERS, with.instructions)
  end)

  it("may be made of another one, which is read later by itself", function()
    local list = parameters(WIDTH, INNER)
    local fn = layers(list, function(x, up, bias, down)
      local g = F.gelu(F.linear(x, up, bias))
      return x + F.linear(g, down) + F.linear(g * 2 + 1, down)
    end)
    assert.is_true(saved(both(fn, { torch.randn(ROWS, WIDTH) }, list)) > LAYERS * SAVED)
  end)

  it("is one type narrowed to another", function()
    local list = parameters(WIDTH, INNER)
    local fn = layers(list, function(x, up, bias, down)
      local h = F.linear(x, up, bias)
      return x + F.linear(F.gelu(h):to(torch.float16), down:to(torch.float16)):to(torch.float32)
    end)
    local without, with = both(fn, { torch.randn(ROWS, WIDTH) }, list)
    assert.is_true(saved(without, with) >= (LAYERS - 1) * SAVED // 2)
  end)
end)

describe("of several values", function()
  -- A side branch of few rows that lives from the start to the end.
  local function beside(rows)
    local list = parameters(WIDTH, INNER)
    local function layer(x, i)
      return F.linear(gelu(F.linear(x, list[3 * i - 2][3], list[3 * i - 1][3])), list[3 * i][3])
    end
    local without, with = both(function(x, few)
      local y = layer(few, 1)
      for i = 1, LAYERS do
        x = x + layer(x, i)
      end
      y = torch.cat({ x, y })
      return F.mse_loss(y, torch.zeros_like(y))
    end, { torch.randn(ROWS, WIDTH), torch.randn(rows, WIDTH) }, list, { fuse = false })
    return with.instructions - without.instructions
  end

  it("those stay that are less than a 1024th of what is in use", function()
    -- a row of INNER is 1 KiB; the layers keep 3.5 MiB, all they make is 8 MiB
    assert.equal(LAYERS, beside(3))
    assert.equal(LAYERS + 1, beside(8))
  end)

  it("a gradient that comes before a value is made once", function()
    local list = parameters(WIDTH, INNER)
    local fn = layers(list, function(x, up, bias, down)
      local h = F.linear(x, up, bias)
      return x + F.linear(F.gelu(h), down) + F.silu(h):sum(1, true) * 0.01
    end)
    local without, with = both(fn, { torch.randn(ROWS, WIDTH) }, list, { fuse = false })
    assert.equal(LAYERS, with.instructions - without.instructions)
  end)

  it("a gradient that reads the value itself does not go before it", function()
    local list = parameters(WIDTH, INNER)
    local fn = layers(list, function(x, up, bias, down)
      local h = F.linear(x, up, bias)
      local v = F.gelu(h)
      local most = torch.maximum(h, v):sum(1, true)
      return x + most * 0.01 + F.linear(v, down)
    end)
    local without, with = both(fn, { torch.randn(ROWS, WIDTH) }, list, { fuse = false })
    -- where most is in use the product of the last layer is past
    assert.equal(LAYERS - 1, with.instructions - without.instructions)
  end)

  it("a gradient does not go before the product that it reads", function()
    local list = parameters(WIDTH, INNER)
    local fn = layers(list, function(x, up, bias, down)
      local h = F.linear(x, up, bias)
      local y = F.silu(h):matmul(F.gelu(h)) * 0.01
      return x + F.linear(y, down)
    end)
    local without, with = both(fn, { torch.randn(INNER, WIDTH) }, list)
    assert.is_true(saved(without, with) > 0)
  end)
end)

describe("the value that a convolution reads", function()
  local IMAGES, CHANNELS, SIDE = 8, 16, 24

  local function convolutions(kernel)
    torch.manual_seed(6)
    local list = {}
    for i = 1, 2 * LAYERS do
      list[i] = { "parameter", "k" .. i, torch.randn(CHANNELS, CHANNELS, kernel, kernel) * 0.1 }
    end
    return both(function(x)
      for i = 1, 2 * LAYERS, 2 do
        local h = F.conv2d(x, list[i][3], nil, 1, kernel // 2)
        x = x + F.conv2d(gelu(h), list[i + 1][3], nil, 1, kernel // 2)
      end
      return F.mse_loss(x, torch.zeros_like(x))
    end, { torch.randn(IMAGES, CHANNELS, SIDE, SIDE) }, list, { fuse = false })
  end

  it("is made again if the gradient of its weights is dear", function()
    local image = IMAGES * CHANNELS * SIDE * SIDE * BYTES
    local without, with = convolutions(3) -- 2 * 16 * 9 operations an element
    -- an image less for the scratch of convolutions, which the CPU decides
    assert.is_true(saved(without, with) >= (LAYERS - 1) * image)
    assert.equal(without.instructions + LAYERS, with.instructions)
    assert_untouched(convolutions(1)) -- 2 * 16
  end)
end)

describe("memory that is not the arena's", function()
  it("does not hide what is saved: gradients that are added up where they are made", function()
    local list, rows = parameters(WIDTH, INNER), 96
    local without, with = both(chain(gelu)(list), { torch.randn(rows, WIDTH) }, list,
      { accumulation = 2 })
    assert.equal(LAYERS * rows * INNER * BYTES, saved(without, with))
  end)

  it("does not hide what is saved: a large result of the step", function()
    local list = parameters(WIDTH, INNER)
    local fn = chain(gelu)(list)
    local without, with = both(function(x)
      return fn(x), x:unsqueeze(1) * torch.full({ 1, 64, 1 }, 0.5) -- 16 MiB
    end, { torch.randn(ROWS, WIDTH) }, list)
    assert.equal(LAYERS * SAVED, saved(without, with))
  end)

  it("does not hide what is saved: the scores of attention that runs whole", function()
    local list = parameters(WIDTH, INNER)
    local length = 2 * ROWS
    for i = 1, 3 do
      list[#list + 1] = { "parameter", "w" .. i, torch.randn(WIDTH, WIDTH) * 0.1 }
    end
    local fn = chain(gelu)(list)
    local without, with = both(function(x)
      local of = {}
      for i = 1, 3 do
        of[i] = F.linear(x, list[3 * LAYERS + i][3]):view({ 1, 1, length, WIDTH })
      end
      local y = F.scaled_dot_product_attention(table.unpack(of)):view({ length, WIDTH })
      return fn(y)
    end, { torch.randn(length, WIDTH) }, list)
    assert.equal(2 * LAYERS * SAVED, saved(without, with))
  end)
end)

describe("nothing is made again", function()
  it("that attention reads, which runs whole", function()
    local heads, length = 2, 256
    local function parted(t)
      return t:view({ 2, length, heads, WIDTH // heads }):transpose(1, 2)
    end
    local list = {}
    for i = 1, 3 do
      list[i] = { "parameter", "w" .. i, torch.randn(WIDTH, WIDTH) * 0.1 }
    end
    assert_untouched(both(function(x)
      local of = {}
      for i = 1, 3 do
        of[i] = parted(F.gelu(F.linear(x, list[i][3])))
      end
      local y = F.scaled_dot_product_attention(table.unpack(of))
      return F.mse_loss(y, torch.zeros_like(y))
    end, { torch.randn(2 * length, WIDTH) }, list))
  end)

  it("if the saving is less than a tenth", function()
    assert_untouched(compare(relu, function(x, i)
      return i == 2 and F.layer_norm(x, { WIDTH }) or x
    end))
  end)

  it("if what is kept is what would make it", function()
    assert_untouched(compare(relu))
  end)

  it("that draws", function()
    local without, with = compare(function(h)
      return F.dropout(F.gelu(h), 0.5, true)
    end)
    assert_untouched(without, with)
  end)

  it("for a product that is no dearer", function()
    assert_untouched(compare(gelu, nil, nil, 32))
  end)

  it("in a step that uses little", function()
    local list = parameters(WIDTH, INNER)
    local x = torch.randn(ROWS, WIDTH)
    local fn = chain(gelu)(list)
    local _, never = train(fn, { x }, list, { remat = NEVER })
    local _, usual = train(fn, { x }, list, {})
    assert_untouched(never, usual)
    -- all that is kept is between one and two times the activations
    local _, above = train(fn, { x }, list, { remat = 6 * LAYERS * SAVED })
    local _, below = train(fn, { x }, list, { remat = 2 * LAYERS * SAVED })
    assert_untouched(never, above)
    assert.equal(LAYERS * SAVED, saved(never, below))
  end)

  it("that is a result of the step", function()
    local list = parameters(WIDTH, INNER)
    local function fn(x)
      local kept = {}
      for i = 1, LAYERS do
        kept[i] = F.gelu(F.linear(x, list[3 * i - 2][3], list[3 * i - 1][3]))
        x = x + F.linear(kept[i], list[3 * i][3])
      end
      return F.mse_loss(x, torch.zeros(ROWS, WIDTH)), table.unpack(kept)
    end
    assert_untouched(both(fn, { torch.randn(ROWS, WIDTH) }, list))
  end)
end)

describe("a network with values that are made again", function()
  it("draws the same masks", function()
    local without, with = compare(function(h)
      return F.gelu(F.dropout(h, 0.25, true))
    end, function(x)
      return F.layer_norm(F.dropout(x, 0.25, true), { WIDTH })
    end, { accumulation = 2 })
    assert.is_true(saved(without, with) > 0)
  end)

  it("makes them in the backward half of a profile", function()
    local list, x = parameters(WIDTH, INNER), torch.randn(ROWS, WIDTH)
    local step, at = step_of(chain(gelu)(list), { x }, list, {})
    local exec, parts = step:compile({ remat = ALWAYS, fuse = false }), {}
    exec:profile(true)
    exec:run({ [at["input x1"]] = x }, {})
    for _, row in ipairs(exec:profile().rows) do
      local op = row.places[1] and row.places[1].op
      if op == "gelu" then
        parts[row.part] = (parts[row.part] or 0) + 1
      end
    end
    assert.same({ forward = LAYERS, backward = LAYERS }, parts)
  end)

  it("runs attention whole as before", function()
    local net = networks.GPT(2, WIDTH, 4, 16, 11)
    local list, ids = {}, torch.randint(0, 11, { 32, 16 })
    for name, p in net:named_parameters() do
      list[#list + 1] = { "parameter", name, p }
    end
    local without, with = both(function(x)
      return F.cross_entropy(net(x), x:flatten())
    end, { ids }, list)
    local rows = 32 * 16 * WIDTH * BYTES
    -- a layer keeps four of the activation and two norms less, the first layer
    -- but one norm, and the last's activation counts twice at the peak
    assert.is_true(saved(without, with) >= 2 * 4 * rows + rows, tostring(saved(without, with)))
    -- the norms; GELU runs with its gradient
    assert.equal(without.instructions + 2 * 2, with.instructions)
  end)
end)

describe("operators side by side", function()
  local function instructions(rows)
    local x = torch.randn(rows, 1024)
    local function fn(t)
      return torch.tanh(t), t * 2 + 1
    end
    local got, exec = compiled.run(fn, { x })
    local first, second = fn(x)
    assert.is_true(compiled.same_bits(got[1], first))
    assert.is_true(compiled.same_bits(got[2], second))
    return exec:stats().instructions
  end

  it("read a large operand once", function()
    assert.equal(1, instructions(256)) -- 1 MiB
    assert.equal(2, instructions(255))
  end)

  it("stay apart if one is read before the other", function()
    local x, w = torch.randn(1024, 256), torch.randn(256, 256) * 0.1
    local function fn(t)
      local a = torch.tanh(t)
      local b = a:matmul(w)
      return torch.exp(t) + b, a
    end
    local got, exec = compiled.run(fn, { x })
    local want = fn(x)
    assert.is_true(compiled.same_bits(got[1], want))
    assert.equal(3, exec:stats().instructions)
  end)
end)
