--- Weights of convolutions lie in the library's layout while a program runs;
--- nobody outside can tell.
local compiled = require("spec.support.compiled")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local F = require("torch.nn.functional")

local BATCH, ACCUMULATION, ITERATIONS = 2, 3, 2

local function values(...)
  local n, sizes = 1, { ... }
  for _, s in ipairs(sizes) do
    n = n * s
  end
  return (((torch.arange(n) * 0.7391):sin() * 2):reshape(sizes)) * 0.1
end

-- A training step of fn(x, weights…) that ends in the mean of squares.
-- Returns the executor and variables by "role name".
local function build(fn, x, weights, rule, options)
  local declared = {}
  for i, w in ipairs(weights) do
    declared[i] = { "parameter", "w" .. i, w }
  end
  local step, losses = compiled.step(function(row)
    local y = fn(row, table.unpack(weights))
    return y, F.mse_loss(y, torch.ones_like(y))
  end, { x[{ torch.slice(0, BATCH) }] }, declared)
  local at = compiled.vars(step)
  local rules = {}
  for i in ipairs(weights) do
    rules[i] = rule(step, at["parameter w" .. i], weights[i])
  end
  step:complete({ device_iterations = ITERATIONS, gradient_accumulation = ACCUMULATION,
    replicas = options.replicas, loss = losses[1], rules = rules })
  at = compiled.vars(step)
  return step:compile({ weight_layouts = options.weight_layouts, threads = 1 }), at
end

local function momentum(step, param, w)
  local state = step:add_var("state", "m", torch.zeros_like(w), param)
  local lr = step:add_var("hyper", "lr", torch.tensor(0.05))
  local mu = step:add_var("hyper", "momentum", torch.tensor(0.9))
  local decay = step:add_var("hyper", "decay", torch.tensor(0.1))
  return { op = "popart_sgd_step", param = param,
    inputs = { param, "grad", state, lr, mu, false, decay }, outputs = { param, state } }
end

local function adam(step, param, w)
  local m = step:add_var("state", "m", torch.zeros_like(w), param)
  local v = step:add_var("state", "v", torch.zeros_like(w), param)
  local count = step:add_var("state", "step", torch.tensor(0.0), param)
  local inputs = { param, "grad", m, v, false }
  for i, value in ipairs({ 0.01, 0.9, 0.99, 0.0, 0.01 }) do
    inputs[5 + i] = step:add_var("hyper", "h" .. i, torch.tensor(value))
  end
  inputs[11] = count
  return { op = "adam_step", param = param, inputs = inputs, outputs = { param, m, v },
    count = count }
end

-- Does not leave what is zero at zero; nor does Adam with eps = 0.
local function shift(step, param)
  local by = step:add_var("hyper", "by", torch.tensor(0.125))
  return { op = "sub", param = param, inputs = { param, by }, outputs = { param } }
end

local function lamb(step, param, w)
  local m = step:add_var("state", "m", torch.zeros_like(w), param)
  local v = step:add_var("state", "v", torch.zeros_like(w), param)
  local inputs = { param, "grad", m, v }
  for i, value in ipairs({ 0.01, 0.9, 0.99, 1e-6, 0.01, 1.0, 10.0 }) do
    inputs[4 + i] = step:add_var("hyper", "h" .. i, torch.tensor(value))
  end
  return { op = "lamb_step", param = param, inputs = inputs, outputs = { param, m, v } }
end

-- All that a training leaves behind: outputs, parameters, state; a parameter
-- is written by the host between two calls.
local function train(case, rule, options)
  local weights = case.weights()
  local x = values(BATCH * ACCUMULATION * ITERATIONS * (options.replicas or 1),
    table.unpack(case.input))
  local exec, at = build(case.fn, x, weights, rule, options)
  local out = {}
  local function look()
    for name, var in pairs(at) do
      if name:find("^parameter") or name:find("^state") then
        out[#out + 1] = { name, exec:read(var) }
      end
    end
  end
  look()
  for call = 1, 2 do
    local got = exec:run(compiled.feed(at, { x }), {})
    out[#out + 1] = { "output", got[at["output output_1"]] }
    look()
    if call == 1 then
      exec:write(at["parameter w1"], exec:read(at["parameter w1"]) * 0.5)
    end
  end
  table.sort(out, function(a, b)
    return a[1] < b[1]
  end)
  return out, exec:stats()
end

local cases = {
  ["a chain of blocks"] = {
    homes = 2, input = { 16, 7, 7 },
    fn = function(x, a, b)
      return F.conv2d(F.conv2d(x, a, nil, { padding = 1 }):relu(), b)
    end,
    weights = function()
      return { values(32, 16, 3, 3), values(16, 32, 2, 2) }
    end,
  },
  ["channels that no block divides"] = {
    homes = 3, input = { 3, 9, 9 },
    fn = function(x, a, b, c)
      return F.conv2d(F.conv2d(F.conv2d(x, a):tanh(), b):relu(), c)
    end,
    weights = function()
      return { values(5, 3, 3, 3), values(17, 5, 3, 3), values(3, 17, 1, 1) }
    end,
  },
  ["groups, strides and dilation"] = {
    homes = 2, input = { 32, 9, 9 },
    fn = function(x, a, b)
      local h = F.conv2d(x, a, nil, { groups = 2, dilation = 2 }):relu()
      return F.conv2d(h, b, nil, { groups = 32, stride = 2, padding = 1 })
    end,
    weights = function()
      return { values(32, 16, 3, 3), values(32, 1, 3, 3) }
    end,
  },
  ["a convolution by Winograd's algorithm"] = {
    homes = 2, input = { 16, 32, 32 },
    fn = function(x, a, b)
      return F.conv2d(F.conv2d(x, a), b, nil, { padding = 1 })
    end,
    weights = function()
      return { values(64, 16, 1, 1), values(64, 64, 3, 3) }
    end,
  },
  ["a transposed convolution and one weight read twice"] = {
    homes = 2, input = { 16, 5, 5 },
    fn = function(x, a, b)
      local h = F.conv_transpose2d(x, b, nil, { stride = 2 })
      return F.conv2d(F.conv2d(h, a, nil, { padding = 1 }):relu(), a)
    end,
    weights = function()
      return { values(16, 16, 3, 3), values(16, 16, 2, 2) }
    end,
  },
}

-- Which layouts gradients have is the library's choice: kernels for narrower
-- vectors work on plain rows more often.
local function has_homes(n, stats)
  if require("lupine.core").host.cpu().simd == "avx512" then
    assert.equal(n, stats.weight_layouts)
  else
    assert.is_true(stats.weight_layouts <= n)
  end
end

-- Returns the stats with homes and without.
local function same_as_plain(case, rule, replicas)
  local home, stats = train(case, rule, { weight_layouts = true, replicas = replicas })
  local plain, none = train(case, rule, { weight_layouts = false, replicas = replicas })
  assert.equal(#plain, #home)
  for i, want in ipairs(plain) do
    assert.equal(want[1], home[i][1])
    assert.is_true(compiled.same_bits(want[2], home[i][2]), want[1] .. " differs")
  end
  return stats, none
end

describe("homes of convolution weights:", function()
  for name, case in pairs(cases) do
    for rule_name, rule in pairs({ momentum = momentum, adam = adam }) do
      it(name .. " trained with " .. rule_name .. " gives the bits of plain rows", function()
        for _, replicas in ipairs({ 1, 2 }) do
          local stats, none = same_as_plain(case, rule, replicas)
          has_homes(case.homes, stats)
          assert.equal(0, none.weight_layouts)
        end
      end)
    end
  end

  it("what an update leaves between the elements is cleared", function()
    local stats = same_as_plain(cases["channels that no block divides"], shift)
    has_homes(3, stats)
  end)

  it("an optimizer with norms keeps plain rows", function()
    local _, stats = train(cases["a chain of blocks"], lamb, {})
    assert.equal(0, stats.weight_layouts)
  end)

  it("a weight that something else reads keeps plain rows", function()
    local _, stats = train({
      input = { 16, 7, 7 },
      fn = function(x, w)
        return F.conv2d(x, w) + w:sum()
      end,
      weights = function()
        return { values(16, 16, 3, 3) }
      end,
    }, momentum, {})
    assert.equal(0, stats.weight_layouts)
    _, stats = train({ -- without a gradient
      input = { 16, 7, 7 },
      fn = function(x, w)
        return F.conv2d(x, w) * w:detach():sum()
      end,
      weights = function()
        return { values(16, 16, 3, 3) }
      end,
    }, momentum, {})
    assert.equal(0, stats.weight_layouts)
  end)

  it("gradients summed in another type have the bits of plain rows", function()
    same_as_plain(cases["channels that no block divides"], function(...)
      local rule = momentum(...)
      rule.accum = torch.float16
      return rule
    end)
  end)

  it("an update with a factor for each channel has the bits of plain rows", function()
    same_as_plain(cases["channels that no block divides"], function(step, param, w)
      local factors = (torch.arange(w.shape[1]) * 0.125 + 0.25):reshape({ -1, 1, 1, 1 })
      return { op = "addcmul", param = param, outputs = { param },
        inputs = { param, "grad", step:add_var("hyper", "lr", factors) } }
    end)
  end)

  it("without training the forward's layout is the home, made at the upload", function()
    local w, x = values(16, 16, 3, 3), values(2, 16, 6, 6)
    local step = compiled.step(function(row)
      return F.conv2d(row, w)
    end, { x }, { { "parameter", "w", w } })
    local at = compiled.vars(step)
    step:complete({})
    local exec = step:compile({})
    assert.equal(1, exec:stats().weight_layouts)
    assert.equal(0, exec:stats().copies)
    for i = 1, 2 do
      exec:write(at["parameter w"], w * i)
      local got = exec:run(compiled.feed(at, { x }), {})[at["output output_1"]]
      helper.near(got, F.conv2d(x, w * i), { 1e-5, 1e-5 })
      assert.is_true(compiled.same_bits(exec:read(at["parameter w"]), w * i))
    end
  end)
end)

describe("a trained model with convolutions", function()
  local Net = nn.Module:extend("Net")

  function Net:init()
    self.a = nn.Conv2d(3, 16, 3)
    self.b = nn.Conv2d(16, 5, 3, { groups = 1 })
    self.loss = nn.MSELoss()
  end

  function Net:forward(x)
    local y = self.b(self.a(x):relu())
    return y, self.loss(y, torch.ones_like(y))
  end

  local function sgd(p)
    return torch.optim.SGD(p, { lr = 0.05, momentum = 0.9 })
  end

  local function wrap()
    torch.manual_seed(7)
    local net = Net()
    local optimizer = sgd(net:parameters())
    return net, poptorch.trainingModel(net, poptorch.Options(), optimizer)
  end

  local x = values(2, 3, 8, 8)

  local function eager_steps(net, optimizer, n)
    for _ = 1, n do
      optimizer:zero_grad()
      local _, loss = net(x)
      loss:backward()
      optimizer:step()
    end
  end

  local function same_weights(net, want)
    for name, w in pairs(want:state_dict()) do
      helper.near(net:state_dict()[name], w, { 1e-4, 1e-5 })
    end
  end

  it("hands out weights and takes others between steps", function()
    local net, model = wrap()
    torch.manual_seed(7)
    local twin = Net()
    local twin_optimizer = sgd(twin:parameters())
    local start = {}
    for name, w in pairs(net:state_dict()) do
      start[name] = w:clone()
    end
    model(x)
    eager_steps(twin, twin_optimizer, 1)
    same_weights(net, twin)
    for _, m in ipairs({ net, twin }) do
      torch.no_grad(function()
        m.a.weight:mul_(0.5)
      end)
    end
    model:copyWeightsToDevice()
    model(x)
    eager_steps(twin, twin_optimizer, 1)
    same_weights(net, twin)
    net:load_state_dict(start)
    twin:load_state_dict(start)
    model:copyWeightsToDevice()
    model(x)
    eager_steps(twin, twin_optimizer, 1)
    same_weights(net, twin)
  end)

  it("hands out its optimizer's state", function()
    torch.manual_seed(7)
    local net = Net()
    local optimizer = poptorch.optim.SGD(net:parameters(), { lr = 0.05, momentum = 0.9 })
    local model = poptorch.trainingModel(net, poptorch.Options(), optimizer)
    torch.manual_seed(7)
    local twin = Net()
    local twin_optimizer = sgd(twin:parameters())
    model(x)
    model(x)
    eager_steps(twin, twin_optimizer, 2)
    local got, seen = optimizer:state_dict().ipu_state, 0
    for name, p in twin:named_parameters() do
      helper.near(got["Accl1___" .. name], twin_optimizer.state[p].momentum_buffer,
        { 1e-4, 1e-5 })
      seen = seen + 1
    end
    assert.equal(4, seen)
  end)
end)
