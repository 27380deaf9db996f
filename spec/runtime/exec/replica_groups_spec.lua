--- Replicas: groups of them with values of their own, and several processes.
local compiled = require("spec.support.compiled")
local program = require("spec.support.program")
local torch = require("torch")
local F = require("torch.nn").functional
local core = require("lupine.core")

local REPLICAS = 4

-- Replicas of each group, from 0.
local MEMBERS = {
  all = { { 0, 1, 2, 3 } },
  consecutive = { { 0, 1 }, { 2, 3 } },
  orthogonal = { { 0, 2 }, { 1, 3 } },
  none = { { 0 }, { 1 }, { 2 }, { 3 } },
}

-- y = x w + b per replica, loss sum(y); w in groups, b shared; one step of
-- popart_sgd with learning rate 0.5 and the mean over replicas.
local function trained(kind, momentum, anchors)
  local w = torch.arange(#MEMBERS[kind] * 2):float():reshape(#MEMBERS[kind], 2)
  w = (kind == "all" and w[0] or w):clone()
  local b = torch.tensor({ 10.0 })
  local tr = core.trace()
  local x = tr:declare("input", "x", nil, { 1, 2 }, torch.float32)
  local weight = tr:declare("parameter", "w", w, { kind, 2 })
  local bias = tr:declare("parameter", "b", b)
  local step, losses = tr:step({ tr:run(false, function()
    local y = (x * weight):sum() + bias
    return y, require("poptorch").identity_loss(y, "sum")
  end) })
  local at, rules = compiled.vars(step), {}
  for _, name in ipairs({ "w", "b" }) do
    local var = at["parameter " .. name]
    local m = momentum and step:add_var("state", "m___" .. name,
      torch.zeros_like(name == "w" and w or b), var) or false
    rules[#rules + 1] = { op = "popart_sgd_step", param = var, outputs = { var, m or nil },
      inputs = { var, "grad", m, step:add_var("hyper", "lr_" .. name, torch.tensor(0.5)) } }
  end
  step:complete({ loss = losses[1], rules = rules, replicas = REPLICAS, anchors = anchors })
  return step, compiled.vars(step), w, b
end

describe("replicas of a group", function()
  it("have each its own values of a weight that no run writes", function()
    for kind, groups in pairs(MEMBERS) do
      local w = torch.randn(#groups, 2)
      w = (kind == "all" and w[0] or w):clone()
      local tr = core.trace()
      local x = tr:declare("input", "x", nil, { 1, 2 }, torch.float32)
      local weight = tr:declare("parameter", "w", w, { kind, 2 })
      local step = tr:step({ tr:run(false, function() return x * weight end) })
      step:complete({ replicas = REPLICAS })
      local at = compiled.vars(step)
      local out = step:compile({}):run({ [at["input x"]] = torch.ones(REPLICAS, 2) }, {})
      for g, members in ipairs(groups) do
        for _, r in ipairs(members) do
          assert.same((kind == "all" and w or w[g - 1]):tolist(),
            out[at["output output_1"]][r]:tolist())
        end
      end
    end
  end)

  for kind, groups in pairs(MEMBERS) do
    it("share the values of a weight: " .. kind, function()
      local step, at, w, b = trained(kind)
      local exec = step:compile({})
      local x = torch.tensor({ { 1.0, 2.0 }, { 3.0, 5.0 }, { -4.0, 0.5 }, { 2.0, 2.0 } })
      local out = exec:run({ [at["input x"]] = x }, {})
      -- gradients are summed within the group and divided by all replicas
      for g, members in ipairs(groups) do
        local own = kind == "all" and w or w[g - 1]
        local sum = torch.zeros(2)
        for _, r in ipairs(members) do
          assert.equal((x[r] * own):sum():item() + 10, out[at["output output_1"]][r]:item())
          sum = sum + x[r]
        end
        for _, r in ipairs(members) do
          assert.same((own - sum * (0.5 / REPLICAS)):tolist(),
            exec:read(at["parameter w"], r):tolist())
          assert.same({ 9.5 }, exec:read(at["parameter b"], r):tolist())
        end
      end
      local host = torch.zeros_like(w)
      exec:read_into(at["parameter w"], host)
      if kind ~= "all" then
        for g, members in ipairs(groups) do
          assert.same(exec:read(at["parameter w"], members[1]):tolist(), host[g - 1]:tolist())
        end
      end
      assert.same({ 10.0 }, b:tolist())
    end)
  end

  it("do in a replay what they do in the executor", function()
    local x = torch.tensor({ { 1.0, 2.0 }, { 3.0, 5.0 }, { -4.0, 0.5 }, { 2.0, 2.0 } })
    for kind in pairs(MEMBERS) do
      local step, at = trained(kind, true, { "w", "UpdatedVar___b", "Gradient___w" })
      local exec = step:compile({})
      local want = exec:run({ [at["input x"]] = x }, {})
      for _, order in ipairs({ "schedule", "micro_batches" }) do
        local got, vars = core.plan(step, {}):replay({ [at["input x"]] = x }, { order = order })
        for name, i in pairs(at) do
          if name:find("^output") then
            assert.same(want[i]:reshape(4, -1):tolist(), got[i]:reshape(4, -1):tolist(), name)
          end
        end
        assert.same(exec:read(at["parameter w"]):tolist(), vars[at["parameter w"]]:tolist())
      end
      -- the anchor shows each replica's own weight after the update
      for r = 0, 3 do
        assert.same(exec:read(at["parameter w"], r):tolist(),
          want[at["output w"]]:reshape(4, 2)[r]:tolist())
      end
    end
  end)

  it("get what is written for their group", function()
    local step, at = trained("orthogonal", true)
    local exec = step:compile({})
    exec:write(at["parameter w"], torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } }))
    exec:write(at["state m___w"], torch.tensor({ { 5.0, 6.0 }, { 7.0, 8.0 } }))
    for r = 0, 3 do
      assert.same(r % 2 == 0 and { 1, 2 } or { 3, 4 }, exec:read(at["parameter w"], r):tolist())
      assert.same(r % 2 == 0 and { 5, 6 } or { 7, 8 }, exec:read(at["state m___w"], r):tolist())
    end
    assert.error_matches(function()
      exec:write(at["parameter w"], torch.zeros(2))
    end, "parameter 'w' is float32 %[2%] now, the model was compiled for float32 %[2, 2%]")
  end)

  it("have the first values of their group before a run copies these", function()
    local w, tr = torch.arange(80000.0):reshape(2, 40000):clone(), core.trace()
    local p = tr:declare("parameter", "w", w, { "orthogonal", 2 })
    local step = tr:step({ tr:run(false, function() return p * 2 end) })
    step:complete({ replicas = 4 })
    local exec = step:compile({})
    for r = 0, 3 do
      assert.equal(40000 * (r % 2) + 7, exec:read(1, r)[7]:item())
    end
    local host = torch.zeros(2, 40000)
    exec:read_into(1, host)
    assert.is_true(host:equal(w))
  end)

  it("are as many as divide the replicas", function()
    local w = torch.zeros(2, 2)
    local function complete(group)
      local tr = core.trace()
      local p = tr:declare("parameter", "w", w, group)
      tr:step({ tr:run(false, function() return p * 2 end) }):complete({ replicas = 4 })
    end
    complete({ "consecutive", 2 })
    assert.error_matches(function() complete({ "consecutive", 3 }) end,
      "parameter 'w' has groups of 3 replicas, of which there are 4")
    assert.error_matches(function() complete({ "none" }) end,
      "has a tensor of float32%[2, 2%], not float32%[4, 2%]")
    assert.error_matches(function()
      core.trace():declare("parameter", "s", torch.tensor(1.0), { "none" })
    end, "no first dimension")
  end)

  it("stand in the step's text", function()
    for kind in pairs(MEMBERS) do
      local text = trained(kind, true):text("step")
      assert.equal(kind ~= "all", text:find(" group " .. kind, 1, true) ~= nil)
      assert.equal(text, core.step_parse(text):text("step"))
    end
    local w, tr = torch.zeros(4, 2), core.trace()
    local p = tr:declare("parameter", "w", w, { "orthogonal", 2, true })
    local step = tr:step({ tr:run(false, function() return p * 2 end) })
    step:complete({ replicas = 4 })
    local text = step:text("step")
    assert.matches(" group orthogonal 2 each", text)
    assert.equal(text, core.step_parse(text):text("step"))
  end)
end)

describe("replicas in several processes", function()
  -- Convolution weights with a layout of their own, dropout, carried buffers,
  -- weights in groups, momentum, several micro-batches.
  local function text(group)
    torch.manual_seed(3)
    local function weight(name, ...)
      return { "parameter", name, group and torch.randn(2, ...) or torch.randn(...) }
    end
    local list = { weight("image", 3, 1, 3, 3), weight("fc", 5, 12), { "buffer", "mean",
      torch.zeros(3) }, { "buffer", "var", torch.ones(3) } }
    local tr = core.trace()
    local stand_in = {}
    for _, d in ipairs(list) do
      stand_in[d[2]] = tr:declare(d[1], d[2], d[3], d[1] == "parameter" and group or nil)
    end
    local x = tr:declare("input", "x", nil, { 6, 16 }, torch.float32)
    local step, losses = tr:step({ tr:run(false, function()
      local y = F.conv2d(x:reshape(-1, 1, 4, 4), stand_in.image)
      y = F.batch_norm(y, list[3][3], list[4][3], nil, nil, true)
      y = F.linear(F.dropout(y:flatten(1), 0.3, true), stand_in.fc)
      return y, F.mse_loss(y, torch.zeros({ 6, 5 }))
    end) })
    local at, rules = compiled.vars(step), {}
    for _, d in ipairs({ list[1], list[2] }) do
      local var = at["parameter " .. d[2]]
      local m = step:add_var("state", "m___" .. d[2], torch.zeros_like(d[3]), var)
      rules[#rules + 1] = { op = "popart_sgd_step", param = var, outputs = { var, m },
        inputs = { var, "grad", m, step:add_var("hyper", "lr_" .. d[2], torch.tensor(0.1)) } }
    end
    step:complete({ loss = losses[1], rules = rules, replicas = REPLICAS,
      gradient_accumulation = 2, device_iterations = 2 })
    return step:text("step")
  end

  local function lines(processes, step, how)
    local out, err, code = program.shell(("%s/tools/comm_probe %d %s | sort"):format(program.build,
      processes, how or ""), step)
    assert.equal("", err)
    assert.equal(0, code)
    return out
  end

  for _, group in ipairs({ { "all" }, { "consecutive", 2 }, { "orthogonal", 2 } }) do
    it("have the bits of one process, weights in groups: " .. group[1], function()
      local step = text(group[1] ~= "all" and group or nil)
      local one = lines(1, step)
      assert.matches("replica 3 parameter fc ", one)
      assert.equal(one, lines(2, step))
      assert.equal(one, lines(4, step))
      -- not all replicas are alike, or nothing would have been shown
      local r0 = one:match("replica 0 parameter fc (%x+)")
      local r1 = one:match("replica 1 parameter fc (%x+)")
      local r2 = one:match("replica 2 parameter fc (%x+)")
      assert.equal(group[1] ~= "orthogonal", r0 == r1)
      assert.equal(group[1] ~= "consecutive", r0 == r2)
    end)

    it("sum the plain form if they lay weights out otherwise, in groups: " .. group[1], function()
      local step = text(group[1] ~= "all" and group or nil)
      assert.equal(1, core.step_parse(step):compile({}):stats().weight_layouts)
      local one = lines(1, step)
      assert.equal(one, lines(2, step, "mixed"))
      assert.equal(one, lines(4, step, "mixed"))
    end)
  end

  it("are as they were after a call whose second sum could not start", function()
    local step = text()
    local one = lines(1, step)
    assert.equal(one, lines(2, step, "fail"))
    assert.equal(one, lines(4, step, "fail"))
  end)

  it("compare layouts: alike of like weights, others of other weights", function()
    local list, tr = {}, core.trace()
    local x = tr:declare("input", "x", nil, { 6, 1, 4, 4 }, torch.float32)
    for i, size in ipairs({ 3, 3, 2 }) do
      list[i] = { "parameter", "k" .. i, torch.randn(3, 1, size, size) }
      tr:declare(table.unpack(list[i]))
    end
    list[4] = { "parameter", "fc", torch.randn(4, 3) }
    tr:declare(table.unpack(list[4]))
    local step, losses = tr:step({ tr:run(false, function()
      local h = 0
      for i = 1, 3 do
        h = h + F.conv2d(x, list[i][3]):mean({ 2, 3 }) * i
      end
      return F.mse_loss(F.linear(h, list[4][3]), torch.zeros(6, 4))
    end) })
    step:complete({ loss = losses[1], replicas = REPLICAS,
      rules = compiled.descent(compiled.vars(step), list) })
    assert.equal(3, step:compile({}):stats().weight_layouts)
    local hash = {}
    for name, h in lines(1, step:text("step"), "layouts"):gmatch("Gradient___(%S+) (%x+)") do
      hash[name] = h
    end
    assert.equal(hash.k1, hash.k2)
    assert.not_equal(hash.k1, hash.k3)
    assert.equal(("0"):rep(16), hash.fc)
    assert.not_equal(hash.fc, hash.k1)
  end)

  it("start a sum while the last replica still computes other gradients", function()
    local step = core.step_parse(text())
    local at = compiled.vars(step)
    local exec = step:compile({ threads = 1 })
    exec:profile(true)
    exec:run({ [at["input x"]] = torch.randn(6 * REPLICAS * 4, 16) }, {})
    for _, row in ipairs(exec:profile().rows) do
      if row.label == "sum over replicas" then
        -- twice: the linear layer's, the convolution's, waiting for both
        assert.equal(2 * 3, row.calls)
      end
    end
  end)
end)
