-- Optimizers, types and groups of calls in a compiled training step.
local compile = require("lupine.compile")
local helper = require("spec.helper")
local nn = require("torch.nn")
local steps = require("spec.support.training_steps")
local torch = require("torch")
local F = nn.functional
local optim = torch.optim

local function small()
  return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
end

local function batch(rows, dtype)
  return torch.randn({ rows, 6 }):to(dtype or torch.float32), torch.randint(0, 3, { rows })
end

local function agrees(t, near)
  local d, where = steps.apart(t)
  assert.is_true(d <= near, ("%s differs by %g"):format(tostring(where), d))
end

local function run(t, rows, near, dtype)
  for _, n in ipairs(rows) do
    local d = steps.call(t, batch(n, dtype))
    assert.is_true(d <= near, ("results differ by %g"):format(d))
  end
  agrees(t, near)
end

local KINDS = {
  ["SGD"] = { optim.SGD, { lr = 0.1 } },
  ["SGD with decay"] = { optim.SGD, { lr = 0.1, weight_decay = 0.1 } },
  ["SGD with momentum"] = { optim.SGD, { lr = 0.1, momentum = 0.9, dampening = 0.25 } },
  ["SGD of Nesterov"] = { optim.SGD, { lr = 0.1, momentum = 0.9, nesterov = true } },
  ["SGD that maximizes"] = { optim.SGD, { lr = 0.01, maximize = true } },
  ["Adam"] = { optim.Adam, { lr = 0.01, weight_decay = 0.01 } },
  ["Adam with AMSGrad"] = { optim.Adam, { lr = 0.01, amsgrad = true } },
  ["Adam with betas"] = { optim.Adam, { lr = 0.01, betas = { 0.5, 0.75 }, eps = 1e-3 } },
  ["AdamW"] = { optim.AdamW, { lr = 0.01, weight_decay = 0.1 } },
  ["AdamW with a tensor as rate"] = { optim.AdamW, { lr = torch.tensor(0.01) } },
  ["RMSprop"] = { optim.RMSprop, { lr = 0.01 } },
  ["Adagrad"] = { optim.Adagrad, { lr = 0.1, lr_decay = 0.1, initial_accumulator_value = 0.5 } },
  ["NAdam"] = { optim.NAdam, { lr = 0.01 } },
  ["NAdam, all of it"] = { optim.NAdam, { lr = 0.01, weight_decay = 0.1, momentum_decay = 0.1,
    decoupled_weight_decay = true } },
  -- of this only forward and backward are compiled
  ["Rprop"] = { optim.Rprop, { lr = 0.01 } },
  ["RMSprop, all of it"] = { optim.RMSprop, { lr = 0.01, momentum = 0.5, centered = true,
    weight_decay = 0.01 } },
}

describe("the update of a compiled step", function()
  for name, kind in pairs(KINDS) do
    it("is that of " .. name, function()
      run(steps.twins(small, function(params)
        return kind[1](params, kind[2])
      end, { loss = F.cross_entropy }), { 8, 8, 3, 8, 8 }, 1e-5)
    end)
  end

  for _, case in ipairs({ { torch.float64, 1e-12 }, { torch.bfloat16, 0.04 },
    { torch.float16, 0.01 } }) do
    it("takes parameters of " .. tostring(case[1]), function()
      run(steps.twins(function()
        return small():to(case[1])
      end, function(params)
        return optim.SGD(params, { lr = 0.1, momentum = 0.9 })
      end, { loss = function(out, target)
        return F.cross_entropy(out:float():to(case[1]), target)
      end }), { 8, 8, 3, 8 }, case[2], case[1])
    end)
  end

  it("takes groups with options of their own", function()
    run(steps.twins(small, function(_, model)
      return optim.SGD({ { params = model[1]:parameters(), lr = 0.01, momentum = 0.5 },
        { params = { model[3].weight } },
        { params = { model[3].bias }, weight_decay = 0.5 } }, { lr = 0.1 })
    end, { loss = F.cross_entropy }), { 8, 8, 3 }, 1e-5)
  end)

  it("follows schedulers and what is written to the groups", function()
    local t = steps.twins(small, function(params)
      return optim.SGD(params, { lr = 0.1, momentum = 0.9 })
    end, { loss = F.cross_entropy })
    local schedulers = {}
    for form, side in pairs(t) do
      schedulers[form] = optim.lr_scheduler.StepLR(side.optimizer, 2, 0.1)
    end
    for i = 1, 6 do
      run(t, { 4 }, 1e-5)
      for form, side in pairs(t) do
        schedulers[form]:step()
        side.optimizer.param_groups[1].momentum = i == 4 and 0 or i == 5 and 0.25
          or side.optimizer.param_groups[1].momentum
      end
    end
    assert.equal(2, t.compiled.step:cache_info().misses) -- with and without momentum
  end)

  it("follows a group that is added", function()
    local t = steps.twins(small, function(_, model)
      return optim.Adam(model[1]:parameters(), { lr = 0.01 })
    end, { loss = F.cross_entropy })
    run(t, { 4 }, 1e-5)
    for _, side in pairs(t) do
      side.optimizer:zero_grad()
      side.optimizer:add_param_group({ params = side.model[3]:parameters(), lr = 0.1 })
      side.model[3]:zero_grad()
    end
    run(t, { 4, 4 }, 1e-5)
  end)

  it("runs the optimizer's hooks", function()
    local model = small()
    local optimizer = optim.SGD(model:parameters(), { lr = 0.1 })
    local seen = {}
    optimizer:register_step_pre_hook(function()
      seen[#seen + 1] = "before"
    end)
    optimizer:register_step_post_hook(function()
      seen[#seen + 1] = "after"
    end)
    compile(model, { optimizer = optimizer, loss = F.cross_entropy })(batch(2))
    assert.same({ "before", "after" }, seen)
  end)

  it("clips the norm of all gradients", function()
    for _, kind in ipairs({ "SGD", "Adadelta" }) do
      for _, k in ipairs({ 1, 2 }) do
        run(steps.twins(small, function(params)
          return optim[kind](params, { lr = 1 })
        end, { loss = F.cross_entropy, clip_grad_norm = 0.1, accumulation = k }), { 8, 8, 3, 3 },
          1e-5)
      end
    end
  end)

  it("casts where autocast says so, inside and around", function()
    local Cast = nn.Module:extend("Cast")
    function Cast:init()
      self.net = small()
    end
    function Cast:forward(x)
      local _ <close> = torch.autocast("cpu", { dtype = torch.bfloat16 })
      return self.net(x)
    end
    local function sgd(params)
      return optim.SGD(params, { lr = 0.1 })
    end
    local function loss(out, target)
      assert.equal(torch.bfloat16, out.dtype)
      return F.cross_entropy(out:float(), target)
    end
    run(steps.twins(Cast, sgd, { loss = loss }), { 8, 8 }, 0.02)

    local model = small()
    local step = compile(model, { optimizer = sgd(model:parameters()),
      loss = function(out, target) return F.cross_entropy(out:float(), target) end })
    local x, target = batch(4)
    assert.equal(torch.float32, (step(x, target)).dtype)
    do
      local _ <close> = torch.autocast("cpu", { dtype = torch.bfloat16 })
      assert.equal(torch.bfloat16, (step(x, target)).dtype)
    end
    assert.equal(torch.float32, (step(x, target)).dtype)
  end)
end)

describe("calls that gather gradients", function()
  local function sgd(params)
    return optim.Adam(params, { lr = 0.01 })
  end

  it("update once a group, by the mean", function()
    local t = steps.twins(small, sgd, { loss = F.cross_entropy, accumulation = 3 })
    local before = t.compiled.model[1].weight:clone()
    run(t, { 4, 4 }, 1e-6)
    assert.equal(2, t.compiled.step.gathered)
    helper.near(t.compiled.model[1].weight, before:tolist(), helper.exact)
    run(t, { 4, 4, 4, 2, 4, 3, 4 }, 1e-5)
    assert.equal(3, t.compiled.step.updates)
  end)

  it("end a group that is not full", function()
    local t = steps.twins(small, sgd, { loss = F.cross_entropy, accumulation = 4 })
    run(t, { 4, 4, 4, 4 }, 1e-5)
    -- a group of two: the mean of two
    local eager = steps.eager(t.eager.model, t.eager.optimizer, F.cross_entropy,
      { accumulation = 2 })
    for _, n in ipairs({ 4, 3 }) do
      local x, target = batch(n)
      eager(x, target)
      t.compiled.step(x, target)
    end
    assert.is_true(t.compiled.step:update())
    assert.is_false(t.compiled.step:update())
    assert.is_nil(t.compiled.model[1].weight.grad)
    agrees(t, 1e-5)
    run(t, { 4, 4, 4, 4 }, 1e-5)
  end)

  it("go on elsewhere, in the middle of a group", function()
    local function made()
      return steps.twins(small, sgd, { loss = F.cross_entropy, accumulation = 3 })
    end
    local one, two = made(), made()
    run(one, { 4, 4, 4, 4, 3 }, 1e-5)
    for _, what in ipairs({ "model", "optimizer" }) do
      two.compiled[what]:load_state_dict(one.compiled[what]:state_dict())
    end
    local state = one.compiled.step:state_dict()
    assert.same({ 1, 2 }, { state.updates, state.gathered })
    two.compiled.step:load_state_dict(state)
    run({ eager = one.eager, compiled = two.compiled }, { 4, 4, 4, 4 }, 1e-5)
    assert.same({ updates = 3, gathered = 0, gradients = {} }, two.compiled.step:state_dict())
    helper.raises("ValueError", "'0.weight': expected a tensor of shape .*%[8, 6%]", function()
      two.compiled.step:load_state_dict({ updates = 0, gathered = 1,
        gradients = { ["0.weight"] = torch.zeros(1) } })
    end)
    helper.raises("KeyError", "no parameter 'x'", function()
      two.compiled.step:load_state_dict({ updates = 0, gathered = 1, gradients = { x = 1 } })
    end)
  end)

  it("return gradients by name", function()
    for _, k in ipairs({ 1, 2 }) do
      local t = steps.twins(small, sgd, { loss = F.cross_entropy, accumulation = k, grads = true })
      for i = 1, 2 * k do
        local x, target = batch(i == 2 and 3 or 4)
        t.eager.step(x, target)
        local _, _, grads = t.compiled.step(x, target)
        assert.equal(i % k == 0, grads ~= nil)
        for name, p in t.eager.model:named_parameters() do
          assert.is_true(not grads or steps.difference(p.grad, grads[name]) <= 1e-6)
        end
      end
      agrees(t, 1e-5)
    end
  end)
end)
