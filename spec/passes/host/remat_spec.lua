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

-- `inner(h, i)` is the activation of layer i; `before(x, i)` what it reads.
local function chain(inner, before)
  return function(list)
    return function(x)
      for i = 1, LAYERS do
        local up, bias, down = list[3 * i - 2][3], list[3 * i - 1][3], list[3 * i][3]
        local h = F.linear(before and before(x, i) or x, up, bias)
        x = x + F.linear(inner(h, i), down)
      end
      return F.mse_loss(x, torch.zeros_like(x))
    end
  end
end

-- A step of fn, with the loss first among its results, that subtracts the
-- gradients.
local function step_of(fn, inputs, list, options)
  local step, losses = compiled.step(function(...)
    return fn(...)
  end, inputs, list)
  local at, rules = compiled.vars(step), {}
  for i, p in ipairs(list) do
    local var = at["parameter " .. p[2]]
    rules[i] = { op = "sub", param = var, inputs = { var, "grad" }, outputs = { var } }
  end
  step:complete({ loss = losses[1], rules = rules,
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
    heads = false })
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
    local function fn(x)
      for i = 1, LAYERS do
        local down = list[3 * i][3]
        local g = F.gelu(F.linear(x, list[3 * i - 2][3], list[3 * i - 1][3]))
        x = x + F.linear(g, down) + F.linear(g * 2 + 1, down)
      end
      return F.mse_loss(x, torch.zeros_like(x))
    end
    assert.is_true(saved(both(fn, { torch.randn(ROWS, WIDTH) }, list)) > LAYERS * SAVED)
  end)

  it("is one type narrowed to another", function()
    local list = parameters(WIDTH, INNER)
    local function fn(x)
      for i = 1, LAYERS do
        local h = F.linear(x, list[3 * i - 2][3], list[3 * i - 1][3])
        x = x + F.linear(F.gelu(h):to(torch.float16), list[3 * i][3]:to(torch.float16)):to(
          torch.float32)
      end
      return F.mse_loss(x, torch.zeros_like(x))
    end
    local without, with = both(fn, { torch.randn(ROWS, WIDTH) }, list)
    assert.is_true(saved(without, with) >= (LAYERS - 1) * SAVED // 2)
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
