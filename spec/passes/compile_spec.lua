--- A complete step does not change: programs, plans and replays of it live side
--- by side.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local report = require("lupine.report")
local torch = require("torch")

-- A step that trains one weight matrix by plain gradient descent, and what it is
-- completed with.
local function open_step()
  local w = torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } })
  local tr = core.trace()
  local x = tr:declare("input", "x", nil, { 1, 2 }, torch.float32)
  local p = tr:declare("parameter", "w", w)
  local step, losses = tr:step({ tr:run(true, function()
    local y = x:matmul(p)
    return y, require("poptorch").identity_loss(y, "sum")
  end) })
  local at = {}
  for i, v in ipairs(step:vars()) do
    at[v.name] = i
  end
  local lr = step:add_var("hyper", "lr", torch.tensor(0.5))
  return step, at, { loss = losses[1], rules = { { op = "popart_sgd_step", param = at.w,
    inputs = { at.w, "grad", false, lr }, outputs = { at.w } } } }
end

local function trained_step()
  local step, at, how = open_step()
  step:complete(how)
  return step, at
end

local function run(exec, at)
  local out = exec:run({ [at.x] = torch.tensor({ { 1.0, -1.0 } }) }, {})
  return out[at.output_1]
end

describe("a complete step", function()
  it("refuses to change", function()
    local step = trained_step()
    for _, change in ipairs({ function() step:add_var("hyper", "k", torch.tensor(1.0)) end,
      function() step:complete({}) end,
      function() core.compile(step, { host = {} }) end }) do
      assert.error_matches(change, "this step is complete and cannot change")
    end
  end)

  it("cannot be compiled before", function()
    local tr = core.trace()
    local x = tr:declare("input", "x", nil, { 2 }, torch.float32)
    local step = tr:step({ tr:run(true, function() return x * 2 end) })
    assert.error_matches(function() step:compile({}) end, "the step is not complete")
  end)

  it("has the same text after compiling, running and simulating", function()
    local step, at = trained_step()
    local micro, update = step:text("micro"), step:text("update")
    local exec = step:compile({ remat = 0 })
    run(exec, at)
    report.simulate(step, {})
    assert.equal(micro, step:text("micro"))
    assert.equal(update, step:text("update"))
    assert.equal(micro, exec:step():text("micro"))
  end)

  it("becomes several programs that train apart from each other", function()
    local step, at = trained_step()
    local a, b = step:compile({}), step:compile({ fuse = false, packed = false })
    -- y = x w; the gradient of its sum is x' 1: rows (1, 1) and (-1, -1)
    assert.same({ { -2, -2 } }, run(a, at):tolist())
    assert.same({ { -3, -3 } }, run(a, at):tolist())
    assert.same({ { -2, -2 } }, run(b, at):tolist())
    assert.same({ { 0, 1 }, { 4, 5 } }, a:read(at.w):tolist())
    assert.same({ { 0.5, 1.5 }, { 3.5, 4.5 } }, b:read(at.w):tolist())
  end)

  it("outlives its executor, and an executor the step", function()
    local step, at = trained_step()
    local exec = step:compile({})
    local again = exec:step()
    step = nil -- luacheck: ignore
    collectgarbage()
    run(exec, at)
    exec:close()
    collectgarbage()
    assert.same({ { -2, -2 } }, run(again:compile({}), at):tolist())
  end)

  it("is simulated and replayed while an executor of it runs", function()
    local step, at = trained_step()
    local exec = step:compile({})
    run(exec, at)
    local r = report.simulate(exec:step(), {})
    assert.is_true(r.training)
    local out = r.plan:replay({ [at.x] = torch.tensor({ { 1.0, -1.0 } }) })
    assert.same({ { -2, -2 } }, out[at.output_1]:tolist())
  end)
end)

describe("the backward half", function()
  it("begins with the loss scale, which it brings to the type of the loss", function()
    local w = torch.ones({ 2, 2 }, { dtype = torch.float16 })
    local step, losses = compiled.step(function(x)
      return require("poptorch").identity_loss(x:matmul(w), "sum")
    end, { w }, { { "parameter", "w", w } })
    step:complete({ loss = losses[1], loss_scale = step:add_var("hyper", "scale",
      torch.tensor(8.0)), rules = compiled.descent(compiled.vars(step), { { "parameter", "w" } }) })
    local backward, where = false, {}
    for line in step:text("micro"):gmatch("[^\n]+") do
      if line:match("^origin") then
        backward = line:match(" backward") ~= nil
      end
      where[line:match("= (%l[%l_]*)%(") or ""] = backward
    end
    assert.is_false(where.identity_loss)
    assert.is_true(where.cast)
  end)
end)

describe("core.compile", function()
  it("gives what its three parts give one after the other", function()
    local apart, at = trained_step()
    local step, _, how = open_step()
    how.system, how.host = { chip = "ipu21" }, {}
    local plan, program = core.compile(step, how)
    assert.equal(apart:text("step"), step:text("step"))
    assert.equal(core.plan(apart, { chip = "ipu21" }):json(), plan:json())
    assert.equal(step:text("step"), plan:step():text("step"))
    local a, b = apart:compile({}), program:executor()
    assert.equal(a:text(), b:text())
    for _ = 1, 2 do
      assert.same(run(a, at):tolist(), run(b, at):tolist())
    end
    assert.error_matches(function() program:executor() end, "program")
  end)

  it("starts variables with what their tensors are when the executor is made", function()
    local step, at, how = open_step()
    local state = torch.tensor(3.0)
    local index = step:add_var("hyper", "late", state)
    how.system, how.host = {}, {}
    local _, program = core.compile(step, how)
    state:fill_(4)
    local exec = program:executor()
    assert.equal(4, exec:read(index):item())
    assert.equal(2, run(exec, at):dim())
  end)

  it("refuses what it does not know, with what was meant", function()
    for key, meant in pairs({ los = "loss", replica = "replicas" }) do
      local step = open_step()
      assert.error_matches(function() step:complete({ [key] = 1 }) end,
        ("compile: no option '%s', did you mean '%s'?"):format(key, meant), 1, true)
    end
    local step = trained_step()
    for key, meant in pairs({ chipp = "chip", livenes = "liveness" }) do
      assert.error_matches(function() core.plan(step, { [key] = 1 }) end,
        ("system: no option '%s', did you mean '%s'?"):format(key, meant), 1, true)
    end
    assert.error_matches(function() core.plan(step, { weight = { onchip = true } }) end,
      "weight: no option 'onchip', did you mean 'on_chip'?", 1, true)
    assert.error_matches(function() core.plan(step, { proportion = -5 }) end,
      "proportion: expected 0 to 1, got -5 for IPU 0", 1, true)
    assert.error_matches(function() core.plan(step, { output_slices = -1 }) end, "0 or more")
    assert.error_matches(function() step:compile({ fuze = true }) end,
      "host: no option 'fuze', did you mean 'fuse'?", 1, true)
    assert.error_matches(function() step:compile({ threads = -1 }) end,
      "threads: expected 1..4096, got -1", 1, true)
  end)

  it("names the option of the simulated system whose value is wrong", function()
    local step = trained_step()
    for _, case in ipairs({
      { { weight = true }, "weight: expected a table, got boolean" },
      { { own = { w = 1 } }, "w: expected a table, got number" },
      { { own = { w = {}, v = {} } }, "own: 'v' is no weight, state, accumulator or activation of "
        .. "the step" },
      { { own = { x = {} }, own_unmet = 1 }, "own_unmet: expected true or false, got 1" },
      { { chip = "ipu3" }, "chip: expected ipu1, ipu2 or ipu21, got 'ipu3'" },
      { { recompute = 1 }, "recompute: expected auto, none or all, got '1'" },
      { { liveness = 1 << 33 }, "liveness: expected 0..3, got 8589934592" },
      { { liveness = {} }, "liveness: expected a whole number, got table" },
      { { tiles = (1 << 32) + 5 }, "tiles: expected 0..1472, got 4294967301" },
      { { io_tiles = 1 << 32 }, "io_tiles: expected 0..1472, got 4294967296" },
      { { weight = { on_chip = 1 } }, "weight: on_chip: expected true or false, got 1" },
      { { synthetic_data = "no" }, "synthetic_data: expected true or false, got no" },
      { { weight = { min_off_chip = -1 } },
        "weight: min_off_chip: expected 0 or more elements, got -1" },
      { { own = { w = { min_sharded = -2 } } }, "w: min_sharded: expected 0 or more elements" },
      { { proportion = "half" }, "proportion: expected a number, got half" },
      { { proportion = { IPU0 = 0.5 } }, "got a number for 'IPU0'" },
      { { proportion = { [1024] = 0.5 } }, "by IPUs 0..1023, got a number for '1024'" },
      { { proportion = { [0] = "half" } }, "got a string for '0'" },
    }) do
      assert.error_matches(function() core.plan(step, case[1]) end, case[2], 1, true)
    end
  end)

  it("has places of their own for a step's tensors, and for others if asked", function()
    local step, off = trained_step(), { on_chip = false }
    local function off_chip(system)
      return core.plan(step, system):report().memory[0].off_chip
    end
    assert.equal(0, off_chip({ own = { v = off }, own_unmet = true }))
    assert.is_true(off_chip({ own = { w = off } }) > 0)
    assert.equal(off_chip({ own = { w = off } }),
      off_chip({ own = { w = off, v = off }, own_unmet = true }))
  end)

  it("does not complete what it failed to complete", function()
    local step, at, how = open_step()
    how.rules[1].inputs = { at.w, "grad", false, at.x }
    assert.has_error(function() step:complete(how) end)
    assert.error_matches(function() step:complete({}) end,
      "completing this step failed: trace it again")
  end)

  it("leaves a complete step where the program does not fit", function()
    local step, _, how = open_step()
    how.system, how.host = { io_tiles = 1472 }, {}
    assert.error_matches(function() core.compile(step, how) end, "io_tiles")
    assert.error_matches(function() step:complete({}) end, "this step is complete")
  end)
end)
