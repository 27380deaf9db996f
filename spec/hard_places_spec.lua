--- The places where a design of this kind breaks first.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")

describe("in place on a slice of a buffer", function()
  -- the buffer's row 1 is doubled, then read through a view made before
  local function forward(buffer)
    return function(x)
      local row = buffer[1]
      local whole = buffer:t()
      row:add_(x)
      buffer[{ torch.slice(0, 1) }]:mul_(2)
      return whole * 1, row * 1
    end
  end

  it("does when traced and run twice what it does eagerly", function()
    local start = torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } })
    local x = torch.tensor({ 10.0, 20.0 })
    local eager = start:clone()
    local buffer = start:clone()
    local step = compiled.step(forward(buffer), { x }, { { "buffer", "b", buffer } })
    step:complete({})
    local at = compiled.vars(step)
    local exec = step:compile({})
    for _ = 1, 2 do
      local whole, row = forward(eager)(x)
      local got = exec:run(compiled.feed(at, { x }), {})
      helper.near(got[at["output output_1"]], whole, helper.exact)
      helper.near(got[at["output output_2"]], row, helper.exact)
      helper.near(exec:read(at["buffer b"]), eager, helper.exact)
    end
    helper.near(buffer, start, helper.exact) -- the user's tensor is untouched
    helper.near(eager, { { 4.0, 8.0 }, { 23.0, 44.0 } }, helper.exact)
  end)
end)

describe("the gradient of the gradient of max_pool2d", function()
  it("is that of the elements that won", function()
    local x = torch.tensor({ { { { 1.0, 5.0, 2.0, 0.5 }, { 3.0, 4.0, 8.0, 7.0 } } } },
      { dtype = torch.float64, requires_grad = true })
    local y = F.max_pool2d(x, 2) -- 5 and 8
    local g = torch.autograd.grad((y * y * y):sum(), x, { create_graph = true })
    g = type(g) == "table" and g[1] or g
    helper.near(g, { { { { 0.0, 75.0, 0.0, 0.0 }, { 0.0, 0.0, 192.0, 0.0 } } } })
    local again = (g * g):sum()
    again:backward()
    -- d/dx of (3 x^2)^2 = 36 x^3
    helper.near(x.grad, { { { { 0.0, 4500.0, 0.0, 0.0 }, { 0.0, 0.0, 18432.0, 0.0 } } } })
  end)
end)

describe("a fused chain", function()
  local function chain(a, b)
    local s = (a * b + 1):relu()
    local t = (s:exp() - b) / 3
    return t, s * t, (t:tanh() + a) * 0.1
  end

  local function data(dtype)
    local a = (torch.arange(700) * 0.37):sin():reshape(7, 100):to(dtype)
    return a, (torch.arange(100) * 0.11):cos():to(dtype)
  end

  for _, name in ipairs({ "float16", "bfloat16", "float32", "float64" }) do
    it("of " .. name .. " has the bits of its operators one by one", function()
      local a, b = data(torch[name])
      local fused, one = compiled.run(chain, { a, b }, { fuse = true })
      local plain, many = compiled.run(chain, { a, b }, { fuse = false })
      local eager = { chain(a, b) }
      assert.equal(1, one:stats().instructions)
      assert.is_true(many:stats().instructions > 5)
      for i = 1, 3 do
        assert.is_true(compiled.same_bits(fused[i], plain[i]))
        assert.is_true(compiled.same_bits(fused[i], eager[i]))
      end
    end)
  end
end)

describe("dropout over 2 replicas and 3 micro-batches", function()
  local REPLICAS, MICRO, N = 2, 3, 64

  -- loss = sum |dropout(1) * w|: the gradient of w is the mask, drawn again
  local function train(seed)
    local w = torch.ones(N)
    local x = torch.ones(REPLICAS * MICRO, N)
    local step, losses = compiled.step(function(row)
      local mask = F.dropout(row, 0.5, true)
      return mask, F.l1_loss(mask[0] * w, torch.zeros(N), { reduction = "sum" })
    end, { x["0:1"] }, { { "parameter", "w", w } })
    local at = compiled.vars(step)
    step:complete({ replicas = REPLICAS, gradient_accumulation = MICRO, mean = false,
      loss = losses[1], rules = { { op = "sub", param = at["parameter w"],
        inputs = { at["parameter w"], "grad" }, outputs = { at["parameter w"] } } } })
    local exec = step:compile({})
    exec:rng(seed, 0)
    local got = exec:run(compiled.feed(at, { x }), {})
    return got[at["output output_1"]], exec:read(at["parameter w"])
  end

  it("draws the same in forward and backward, differently everywhere else", function()
    local masks, w = train(7)
    assert.equal("torch.Size([6, 64])", tostring(masks.shape))
    helper.near(w, 1 - masks:sum(0), helper.exact)
    for i = 0, 5 do
      assert.is_true(masks[i]:eq(0):any():item())
      for k = 0, i - 1 do
        assert.is_false(masks[i]:eq(masks[k]):all():item())
      end
    end
  end)

  it("is the same when run again with the seed, another with another", function()
    local a, wa = train(7)
    local b, wb = train(7)
    assert.is_true(compiled.same_bits(a, b))
    assert.is_true(compiled.same_bits(wa, wb))
    assert.is_false(compiled.same_bits(a, (train(8))))
  end)
end)

describe("dropout in a pipeline over 2 replicas and 3 micro-batches", function()
  local ipu = require("spec.passes.ipu.helper")
  local report = require("lupine.report")
  local REPLICAS, MICRO, N = 2, 3, 32
  local SLICES = REPLICAS * MICRO

  -- m = dropout(row * v), loss = sum(m * w): the gradient of v is the mask that
  -- the backward pass draws times the row, that of w the value that is kept or
  -- recomputed. Slice k comes with 3^k, so that a sum tells its parts.
  local function step()
    return ipu.step(function(inputs, place)
      local row, v, w = table.unpack(inputs)
      place(0)
      local m = F.dropout(row * v, 0.5, true)
      local y = m * w
      place(1)
      return core.forms.internal.identity_loss((y * 1):sum(), "none"), m
    end, { train = true, accumulation = MICRO, replicas = REPLICAS, declare = function(declare)
      return { declare("input", "x", nil, { 1, N }), declare("parameter", "v", torch.ones(N)),
        declare("parameter", "w", torch.ones(N)) }
    end })
  end

  local function rows()
    local x = torch.ones(SLICES, N)
    for k = 0, SLICES - 1 do
      x[k] = x[k] * 3 ^ k
    end
    return x
  end

  -- Masks in forward and the sums of masks that backward used, of one road.
  local function masks(outputs, read, at)
    local m = outputs[at["output output_2"]]:reshape(SLICES, N)
    local sum = (1 - read(at["parameter w"])) * 10 -- the rule takes a tenth
    return m, sum:round(), ((1 - read(at["parameter v"])) * 10):round()
  end

  it("draws one mask a slice, in forward, backward, recomputation and replay", function()
    local x, first = rows(), nil
    local function check(m, w, v, what)
      first = first or m
      assert.is_true(compiled.same_bits(m, first), what .. ": other masks")
      helper.near(w, m:sum(0), helper.exact)
      helper.near(v, m:sum(0), helper.exact)
    end
    local s = step()
    local at = compiled.vars(s)
    for _, recompute in ipairs({ "all", "none" }) do
      for _, order in ipairs({ "schedule", "micro_batches" }) do
        local out, vars = report.replay(s, { recompute = recompute }, { [at["input x"]] = x },
          { seed = 7, order = order })
        local m, w, v = masks(out, function(i) return vars[i] end, at)
        check(m, w, v, "replay, recompute " .. recompute .. ", " .. order)
      end
    end
    local exec = s:compile({})
    exec:rng(7, 0)
    local out = exec:run({ [at["input x"]] = x }, {})
    local m, w, v = masks(out, function(i) return exec:read(i) end, at)
    check(m, w, v, "the executor")
    local scale = x * 2 -- what is kept is doubled
    for k = 0, SLICES - 1 do
      local mask = m[k] / scale[k]
      assert.is_true(torch.logical_or(mask:eq(0), mask:eq(1)):all():item())
      assert.is_true(mask:eq(0):any():item() and mask:eq(1):any():item())
      for i = 0, k - 1 do
        assert.is_false(mask:eq(m[i] / scale[i]):all():item(),
          ("slices %d and %d have one mask"):format(i, k))
      end
    end
  end)

  it("is drawn again where the plan recomputes it", function()
    local s, draws = step(), {}
    for _, recompute in ipairs({ "all", "none" }) do
      for _, op in ipairs(report.simulate(s, { recompute = recompute }).operators) do
        draws[recompute] = op.name:find("dropout") and op.instances or draws[recompute]
      end
    end
    assert.equal(2 * MICRO, draws.none) -- forward and backward
    assert.equal(3 * MICRO, draws.all)
  end)
end)

describe("a model of two attention layers", function()
  local HEADS, T, D = 2, 256, 16
  local SCORES = HEADS * T * T * 4 -- bytes of one layer's score matrices
  local report = require("lupine.report")

  local function parts()
    torch.manual_seed(1)
    local list = {}
    for i = 1, 3 do
      list[i] = { "parameter", "w" .. i, torch.randn(D, D) * 0.2 }
    end
    return list, torch.randn(1, HEADS, T, D)
  end

  local function step_of(list, x)
    local function layer(h)
      return F.scaled_dot_product_attention(F.linear(h, list[1][3]), F.linear(h, list[2][3]),
        F.linear(h, list[3][3]))
    end
    local step, losses = compiled.step(function(h)
      local y = layer(layer(h))
      return y, F.mse_loss(y, h)
    end, { x }, list)
    local at = compiled.vars(step)
    step:complete({ loss = losses[1], rules = compiled.descent(at, list) })
    return step, at
  end

  it("holds its score matrices in the simulated memory, not in the host's", function()
    local list, x = parts()
    local step = step_of(list, x)
    local simulated = report.simulate(step, {}).memory[0]
    local host = step:compile({}):stats().micro_arena_bytes
    assert.is_true(simulated.not_always_live >= 2 * SCORES)
    assert.is_true(host < SCORES, host .. " bytes on the host")
  end)

  it("is trained to the same weights by blocks and by single operators", function()
    local results = {}
    for i, fuse in ipairs({ true, false }) do
      local list, x = parts()
      local step, at = step_of(list, x)
      local exec = step:compile({ fuse = fuse })
      local got = exec:run(compiled.feed(at, { x }), {})
      results[i] = { got[at["output output_1"]] }
      for k = 1, 3 do
        results[i][k + 1] = exec:read(at["parameter w" .. k])
      end
    end
    for k, t in ipairs(results[1]) do
      helper.near(t, results[2][k], { 1e-6, 1e-5 })
    end
  end)
end)

describe("a traced tensor", function()
  it("cannot be used after its trace, nor read in it", function()
    local kept
    compiled.step(function(x)
      kept = x * 2
      helper.raises("RuntimeError", "no value", function()
        kept:item()
      end)
      return kept
    end, { torch.ones(1) })
    helper.raises("RuntimeError", "after its trace", function()
      core.trace():run(false, function()
        return kept + 1
      end)
    end)
  end)
end)
