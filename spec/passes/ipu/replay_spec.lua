local compiled = require("spec.support.compiled")
local control = require("lupine.control")
local helper = require("spec.passes.ipu.helper")
local report = require("lupine.report")
local torch = require("torch")

local function pattern(rows, cols)
  local t = {}
  for i = 1, rows do
    t[i] = {}
    for k = 1, cols do
      t[i][k] = math.sin(0.37 * i + 1.91 * k)
    end
  end
  return torch.tensor(t)
end

-- Both orders give the same outputs and variables, bit for bit; returns the
-- bytes that each held.
local function agree(step, options, inputs)
  local out, vars, held = report.replay(step, options, inputs, { seed = 7 })
  local want, want_vars, all = report.replay(step, options, inputs,
    { seed = 7, order = "micro_batches" })
  local compared = 0
  for _, pair in ipairs({ { out, want }, { vars, want_vars } }) do
    for i, t in pairs(pair[2]) do
      assert.same(t:tolist(), pair[1][i]:tolist())
      compared = compared + 1
    end
  end
  assert.is_true(compared > 1)
  return held, all, out, vars
end

local function weight(i)
  return pattern(8, 8) * (0.3 + 0.05 * i)
end

local function dropout_layer(h, w)
  return torch.nn.functional.dropout(torch.relu(torch.matmul(h, w)), 0.25, true)
end

-- Two rounds of it, or one if the sum says so.
local function looped_layer(h, w)
  return control.branch(h:sum():gt(4), function(x)
    return control.loop(2, function(v) return dropout_layer(v, w) end, { x })[1]
  end, { h }, function(x) return dropout_layer(x, w) end, { h })[1]
end

describe("replay of the schedule", function()
  for _, recompute in ipairs({ "auto", "none" }) do
    it("equals micro-batch order and the executor: loops and branches, recompute " .. recompute,
      function()
        local n, g = 3, 5
        local step = helper.chain(n, { train = true, accumulation = g, device_iterations = 2,
          batch = 4, width = 8, weight = weight, layer = looped_layer, replicas = 2 })
        local at, x = compiled.vars(step), pattern(4 * g * 2 * 2, 8)
        local _, _, _, vars = agree(step, { recompute = recompute }, { [at["input x"]] = x })
        local exec = step:compile({})
        exec:rng(7, 0)
        exec:run({ [at["input x"]] = x }, {})
        for i = 1, n do
          local w = at["parameter w" .. i]
          torch.testing.assert_close(exec:read(w), vars[w])
        end
      end)
  end

  for _, n in ipairs({ 2, 3, 4 }) do
    for _, recompute in ipairs({ "auto", "none" }) do
      it(("equals micro-batch order: %d stages, recompute %s, dropout"):format(n, recompute),
        function()
          local g = 2 * n + 1
          local step = helper.chain(n, { train = true, accumulation = g, device_iterations = 2,
            batch = 4, width = 8, weight = weight, layer = dropout_layer })
          agree(step, { recompute = recompute },
            { [compiled.vars(step)["input x"]] = pattern(4 * g * 2, 8) })
        end)
    end
  end

  it("is what the executor computes: same plan, other kernels", function()
    local n, g = 3, 5
    local step = helper.chain(n, { train = true, accumulation = g, device_iterations = 2,
      batch = 4, width = 8, weight = weight, layer = dropout_layer })
    local at, x = compiled.vars(step), pattern(4 * g * 2, 8)
    local out, vars = report.replay(step, {}, { [at["input x"]] = x }, { seed = 7 })
    local exec = step:compile({})
    exec:rng(7, 0)
    local got = exec:run({ [at["input x"]] = x }, {})
    local function near(a, b, what)
      local d = (a - b):abs():max():item()
      assert.is_true(d <= 1e-6 * (1 + b:abs():max():item()), ("%s differs by %g"):format(what, d))
    end
    near(got[at["output output_1"]]:flatten(), out[at["output output_1"]]:flatten(), "loss")
    for i = 1, n do
      local w = at["parameter w" .. i]
      near(exec:read(w), vars[w], "w" .. i)
    end
  end)

  it("draws the same dropout masks again when it recomputes", function()
    local o = { train = true, accumulation = 5, batch = 4, width = 8, weight = weight,
      layer = dropout_layer }
    local results = {}
    for i, recompute in ipairs({ "auto", "none" }) do
      local step = helper.chain(3, o)
      local inputs = { [compiled.vars(step)["input x"]] = pattern(4 * 5, 8) }
      local _, _, _, vars = agree(step, { recompute = recompute }, inputs)
      results[i] = vars[compiled.vars(step)["parameter w1"]]:tolist()
    end
    assert.same(results[1], results[2])
    assert.are_not.same(weight(1):tolist(), results[1])
  end)

  it("equals micro-batch order with replicas, sharded, phased, on one IPU", function()
    for _, case in ipairs({
      { { replicas = 2 }, {} },
      { {}, { strategy = "sharded" } },
      { {}, { strategy = "sharded", recompute = "all" } },
      { { ipus = { 0, 0, 0 }, phases = true }, { strategy = "serial_phased" } },
      { { ipus = { 0, 1, 0 }, phases = true }, { strategy = "serial_phased", liveness = 3 } },
      { { ipus = { 0, 1, 0 }, phases = true }, { strategy = "parallel_phased", liveness = 1 } },
      { { ipus = { 0, 0, 0 } }, {} },
    }) do
      local o = { train = true, accumulation = 5, batch = 2, width = 8, weight = weight,
        layer = dropout_layer }
      for k, v in pairs(case[1]) do
        o[k] = v
      end
      local step = helper.chain(3, o)
      agree(step, case[2], { [compiled.vars(step)["input x"]] =
        pattern(2 * 5 * (o.replicas or 1), 8) })
    end
  end)

  it("equals micro-batch order in inference", function()
    local step = helper.chain(3, { device_iterations = 6, batch = 2, width = 8, weight = weight })
    agree(step, {}, { [compiled.vars(step)["input x"]] = pattern(12, 8) })
  end)

  it("holds fewer bytes when it recomputes", function()
    local o = { train = true, accumulation = 8, batch = 64, width = 8, weight = weight,
      layer = function(h, w)
        return torch.matmul(h, w):tanh():sin():tanh():sin()
      end }
    local held = {}
    for i, recompute in ipairs({ "auto", "none" }) do
      local step = helper.chain(4, o)
      held[i] = agree(step, { recompute = recompute },
        { [compiled.vars(step)["input x"]] = pattern(64 * 8, 8) })
    end
    assert.is_true(held[1] < held[2])
  end)

  it("carries values past stages that do not read them", function()
    local step = helper.step(function(inputs, place)
      place(0)
      local a = torch.matmul(inputs[1], inputs[2])
      place(1)
      local b = torch.matmul(a, inputs[3]):tanh()
      place(2)
      local c = torch.matmul(b, inputs[4])
      return helper.loss(c * a)
    end, { train = true, accumulation = 6, declare = function(declare)
      return { declare("input", "x", nil, { 2, 8 }), declare("parameter", "w1", weight(1)),
        declare("parameter", "w2", weight(2)), declare("parameter", "w3", weight(3)) }
    end })
    agree(step, {}, { [compiled.vars(step)["input x"]] = pattern(12, 8) })
  end)

  it("shares a parameter between the first and the last stage", function()
    local step = helper.step(function(inputs, place)
      local h = inputs[1]
      for i, w in ipairs({ 2, 3, 2 }) do
        place(i - 1)
        h = torch.matmul(h, inputs[w]):tanh()
      end
      return helper.loss(h)
    end, { train = true, accumulation = 6, declare = function(declare)
      return { declare("input", "x", nil, { 2, 8 }), declare("parameter", "tied", weight(1)),
        declare("parameter", "w", weight(2)) }
    end })
    agree(step, {}, { [compiled.vars(step)["input x"]] = pattern(12, 8) })
    agree(step, { strategy = "sharded" }, { [compiled.vars(step)["input x"]] = pattern(12, 8) })
  end)

  it("returns the gradient of a shared parameter besides adding it up", function()
    local step = helper.step(function(inputs, place)
      local h = inputs[1]
      for i, w in ipairs({ 2, 3, 2 }) do
        place(i - 1)
        h = torch.matmul(h, inputs[w]):tanh()
      end
      return helper.loss(h)
    end, { train = true, accumulation = 6, anchors = { "Gradient___tied" },
      declare = function(declare)
        return { declare("input", "x", nil, { 2, 8 }), declare("parameter", "tied", weight(1)),
          declare("parameter", "w", weight(2)) }
      end })
    for _, strategy in ipairs({ "pipelined", "sharded" }) do
      agree(step, { strategy = strategy }, { [compiled.vars(step)["input x"]] = pattern(12, 8) })
    end
  end)

  it("keeps what micro-batches hand on: a buffer that forward writes", function()
    for _, options in ipairs({ {}, { recompute = "none" }, { strategy = "sharded" } }) do
      local step = helper.step(function(inputs, place)
        place(0)
        local h = torch.matmul(inputs[1], inputs[2]):tanh()
        place(1)
        h = h * inputs[4] -- the old value, needed again by the gradient
        inputs[4]:mul_(0.5)
        inputs[4]:add_(h:detach():sum(0))
        h = torch.matmul(h * inputs[4], inputs[3])
        place(2)
        return helper.loss(h:tanh())
      end, { train = true, accumulation = 7, declare = function(declare)
        return { declare("input", "x", nil, { 2, 8 }), declare("parameter", "w1", weight(1)),
          declare("parameter", "w2", weight(2)), declare("buffer", "mean", torch.ones(8)) }
      end })
      local at = compiled.vars(step)
      local _, _, _, vars = agree(step, options, { [at["input x"]] = pattern(14, 8) })
      assert.are_not.same(torch.ones(8):tolist(), vars[at["buffer mean"]]:tolist())
    end
  end)

  it("returns a parameter that no run reads there", function()
    local off = { on_chip = false, min_off_chip = 2 }
    for _, strategy in ipairs({ "pipelined", "sharded", "serial_phased", "parallel_phased" }) do
      local step = helper.step(function(inputs, place)
        local h = inputs[1]
        for i = 1, 2 do
          place(i - 1, i - 1, nil, i - 1)
          h = torch.matmul(h, inputs[i + 1]):tanh()
        end
        return helper.loss(h), inputs[3]
      end, { train = true, accumulation = 3, declare = function(declare)
        return { declare("input", "x", nil, { 2, 8 }), declare("parameter", "w1", weight(1)),
          declare("parameter", "w2", weight(2)) }
      end })
      local x = { [compiled.vars(step)["input x"]] = pattern(6, 8) }
      agree(step, { strategy = strategy }, x)
      agree(step, { strategy = strategy, weight = off }, x)
    end
  end)

  it("writes no result over what it reads through a view", function()
    local step = helper.step(function(inputs, place)
      place(0)
      local y = inputs[1]:tanh()
      return (y + y:transpose(0, 1)):exp()
    end, { device_iterations = 3, declare = function(declare)
      return { declare("input", "x", nil, { 8, 8 }), declare("parameter", "w", weight(1)) }
    end })
    agree(step, {}, { [compiled.vars(step)["input x"]] = pattern(24, 8) })
  end)

  it("has memory for a checkpoint that is made again beside another result", function()
    local core = require("lupine.core")
    local step = helper.chain(3, { ipus = { 0, 0, 0 }, train = true, accumulation = 2, batch = 2,
      width = 8, weight = weight, layer = function(h, w)
        local n = torch.nn.functional.layer_norm(torch.matmul(h, w), { 8 }, w[0], w[1])
        return torch.matmul(core.forms.internal.recomputation_checkpoint(n), w):tanh()
      end })
    for _, strategy in ipairs({ "pipelined", "serial_phased" }) do
      agree(step, { strategy = strategy, recompute = "all" },
        { [compiled.vars(step)["input x"]] = pattern(4, 8) })
    end
  end)

  it("stashes checkpoints", function()
    local core = require("lupine.core")
    local step = helper.chain(3, { train = true, accumulation = 6, batch = 2, width = 8,
      weight = weight, layer = function(h, w)
        h = dropout_layer(h, w)
        return torch.matmul(core.forms.internal.recomputation_checkpoint(h), w):tanh()
      end })
    agree(step, {}, { [compiled.vars(step)["input x"]] = pattern(12, 8) })
  end)
end)

describe("the replay of a spoiled plan", function()
  local program = require("spec.support.program")
  local GRAPH = [[
graph
input %1 "x": float32[2, 8]
input %2 "w1": float32[8, 8]
input %3 "w2": float32[8, 8]
input %4 "w3": float32[8, 8]
input %5 "b": float32[2, 8]
origin block "B0" stage 0 ipu 0 scope "first" file "forward" line 1
%6 = mm(%1, %2)
%7 = tanh(%6)
%8 = mm(%7, %2)
%9 = tanh(%8)
origin block "B1" stage 1 ipu 1 scope "second" file "forward" line 2
%10 = mm(%9, %3)
%11 = tanh(%10)
%12 = mul(%11, %5)
%13 = add(%5, %10, alpha=2)
%14 = sin(%12)
origin block "B2" stage 2 ipu 2 scope "third" file "forward" line 3
%15 = mm(%14, %4)
%16 = mm(%15, %2)
%17 = mul(%16, %9)
%18 = mul(%17, %17)
%19 = sum(%18, dim=[0, 1])
output %19, %13
]]

  -- {kind = {tried, caught}} and the error of the late steady state.
  local function probe(recompute, strategy, liveness, separate, off, serial, io)
    local out, err, code = program.shell(("%s/tools/replay_probe 8 %s %s %d %d %d 2 %d %d"):format(
      program.build, recompute, strategy, liveness or 0, separate or 0, off or 0, serial or 0,
      io or 0), GRAPH)
    assert.equal(0, code, err)
    assert.is_nil(out:match("missed[^\n]*"))
    local r = { skip = out:match("skip ([^\n]*)"), plan = out:match("plan (%a+)") }
    for kind, tried, caught in out:gmatch("(%a+) (%d+) (%d+)\n") do
      r[kind] = { tonumber(tried), tonumber(caught) }
    end
    return r
  end

  local LEAST = { hold = 40, stash = 4, move = 6, ring = 0, share = 1, part = 1, stream = 0,
    ahead = 0, io = 0,
    batch = 6, late = 3, act = 8, time = 1, free = 20, over = 8, place = 1, report = 40, take = 5 }

  local function notices(r, strategy, off)
    assert.equal("same", r.plan)
    for kind, least in pairs(LEAST) do
      assert.is_true(r[kind][1] >= least, kind)
      assert.equal(r[kind][1], r[kind][2], kind)
    end
    -- two stages keep more than one micro-batch
    assert.equal(strategy == "pipelined", r.ring[1] >= 2)
    assert.equal(off > 0, r.stream[1] > 0)
  end

  for _, recompute in ipairs({ "auto", "none", "all" }) do
    for _, strategy in ipairs({ "pipelined", "sharded", "serial_phased", "parallel_phased" }) do
      it(("is an error, %s, recompute %s: each value gone too early, stash or copy missing"):format(
        strategy, recompute), function()
        notices(probe(recompute, strategy), strategy, 0)
      end)
    end
  end

  for _, strategy in ipairs({ "pipelined", "sharded", "serial_phased", "parallel_phased" }) do
    it(("is an error, %s: each transfer of streaming memory missing"):format(strategy), function()
      local last = ({ serial_phased = 3, parallel_phased = 1 })[strategy]
      for liveness = 0, last or 0 do
        for separate = 0, last and liveness == 0 and 1 or 0 do
          -- what stays on the chip all the time is moved nowhere
          local stays = last and liveness == 0
          LEAST.share = 1
          notices(probe("none", strategy, liveness, separate, 1), strategy, stays and 0 or 1)
          LEAST.share = 0
          notices(probe("none", strategy, liveness, separate, 11), strategy, 11)
        end
      end
    end)
  end

  it("is an error: what several micro-batches have together, or I/O tiles move", function()
    LEAST.share = 0
    for _, case in ipairs({ { 0, 4, 0 }, { 1, 2, 0 }, { 1, 0, 32 }, { 1, 4, 32 }, { 3, 4, 32 } }) do
      local r = probe("none", "serial_phased", case[1], 0, 11, case[2], case[3])
      notices(r, case[2] > 0 and "pipelined", 11)
      assert.is_true(r.ahead[1] > 8)
      assert.equal(case[1] == 1 and case[3] > 0, r.io[1] > 0)
    end
  end)

  it("is an error: what moves with its phase alone", function()
    LEAST.share = 0
    for _, case in ipairs({ { "serial_phased", 1, 0 }, { "serial_phased", 1, 32 },
      { "parallel_phased", 1, 32 } }) do
      notices(probe("none", case[1], case[2], 0, 11 + 16, 0, case[3]), nil, 11)
    end
  end)

  it("is an error of the run that finds another micro-batch's value", function()
    -- the first stage leaves out micro-batch 4, the second finds the third there
    assert.equal("the schedule reads value %9 (tanh of 'first') in the forward pass of stage 1, "
      .. "micro-batch 4, where it is gone", probe("none", "pipelined").skip)
  end)
end)
