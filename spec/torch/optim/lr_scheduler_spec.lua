-- Learning rates over time. The rows are PyTorch's for a rate of 1.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

local S = torch.optim.lr_scheduler

local function optimizer()
  return torch.optim.SGD({ torch.nn.Parameter(torch.zeros({ 1 })) }, 1.0, 0.9)
end

local ROWS = {
  { "StepLR", function(o) return S.StepLR(o, 2, { gamma = 0.5 }) end,
    { 1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125 } },
  { "MultiStepLR", function(o) return S.MultiStepLR(o, { 2, 5 }, { gamma = 0.1 }) end,
    { 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01 } },
  { "ConstantLR", function(o) return S.ConstantLR(o, 0.5, 3) end,
    { 0.5, 0.5, 0.5, 1, 1, 1, 1, 1 } },
  { "LinearLR", function(o) return S.LinearLR(o, 0.5, { total_iters = 4 }) end,
    { 0.5, 0.625, 0.75, 0.875, 1, 1, 1, 1 } },
  { "ExponentialLR", function(o) return S.ExponentialLR(o, 0.9) end,
    { 1, 0.9, 0.81, 0.729, 0.6561, 0.59049, 0.531441, 0.4782969 } },
  { "PolynomialLR", function(o) return S.PolynomialLR(o, 5, 2.0) end,
    { 1, 0.64, 0.36, 0.16, 0.04, 0, 0, 0 } },
  { "CosineAnnealingLR", function(o) return S.CosineAnnealingLR(o, 4, 0.1) end,
    { 1, 0.86819805, 0.55, 0.23180195, 0.1, 0.23180195, 0.55, 0.86819805 } },
  { "CosineAnnealingWarmRestarts", function(o) return S.CosineAnnealingWarmRestarts(o, 2, 2) end,
    { 1, 0.5, 1, 0.85355339, 0.5, 0.14644661, 1, 0.96193977 } },
  { "CyclicLR", function(o) return S.CyclicLR(o, 0.1, 1.0, 2, 3) end,
    { 0.1, 0.55, 1, 0.7, 0.4, 0.1, 0.55, 1 } },
  { "OneCycleLR", function(o) return S.OneCycleLR(o, 1.0, { total_steps = 8 }) end,
    { 0.04, 0.8192751, 0.97194178, 0.81174565, 0.55598401, 0.283061, 0.07664159, 4e-6 } },
  { "LambdaLR", function(o) return S.LambdaLR(o, function(e) return 1 / (e + 1) end) end,
    { 1, 0.5, 1 / 3, 0.25, 0.2, 1 / 6, 1 / 7, 0.125 } },
  { "MultiplicativeLR", function(o) return S.MultiplicativeLR(o, function() return 0.5 end) end,
    { 1, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125 } },
  { "SequentialLR", function(o)
    return S.SequentialLR(o, { S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9) }, { 3 })
  end, { 0.1, 0.1, 1, 1, 0.9, 0.81, 0.729, 0.6561 } },
  { "ChainedScheduler", function(o)
    return S.ChainedScheduler({ S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9) })
  end, { 0.1, 0.09, 0.81, 0.729, 0.6561, 0.59049, 0.531441, 0.4782969 } },
}

describe("a learning rate scheduler", function()
  for _, row in ipairs(ROWS) do
    it("gives PyTorch's rates: " .. row[1], function()
      local o = optimizer()
      local s = row[2](o)
      for t, want in ipairs(row[3]) do
        assert.is_true(math.abs(o.param_groups[1].lr - want) < 1e-7,
          ("step %d: %.9g, want %.9g"):format(t - 1, o.param_groups[1].lr, want))
        assert.equal(o.param_groups[1].lr, s:get_last_lr()[1])
        s:step()
      end
    end)
  end

  it("goes on from its state dictionary", function()
    local a = optimizer()
    local s = S.StepLR(a, 2, 0.5)
    s:step()
    local b = optimizer()
    local r = S.StepLR(b, 3, 0.1)
    r:load_state_dict(s:state_dict())
    s:step()
    r:step()
    assert.equal(0.5, b.param_groups[1].lr)
    assert.equal(2, r.last_epoch)
  end)

  it("lowers the rate when a metric stays", function()
    local o = optimizer()
    local s = S.ReduceLROnPlateau(o, { patience = 1, factor = 0.1, cooldown = 1 })
    local got = {}
    for i, metric in ipairs({ 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5 }) do
      s:step(i == 1 and torch.tensor(metric) or metric)
      got[i] = o.param_groups[1].lr
    end
    helper.near(torch.tensor(got), { 1, 1, 1, 0.1, 0.1, 0.1, 0.01 })
  end)

  it("moves the momentum against the rate in cycles", function()
    local o = optimizer()
    local s = S.OneCycleLR(o, 1.0, { total_steps = 8, anneal_strategy = "linear" })
    assert.equal(0.95, o.param_groups[1].momentum)
    s:step()
    s:step()
    assert.is_true(o.param_groups[1].momentum < 0.9)
  end)

  it("moves the first of two betas, where there are betas, as it does the momentum", function()
    local function cycles(make, want)
      for name, options in pairs({ Adam = { lr = 1, betas = { 0.9, 0.99 } },
        SGD = { lr = 1, momentum = 0.9 } }) do
        local o = torch.optim[name]({ torch.nn.Parameter(torch.zeros({ 1 })) }, options)
        local s, group = make(o), o.param_groups[1]
        for t, w in ipairs(want) do
          local got = group.betas and group.betas[1] or group.momentum
          assert.is_true(math.abs(got - w) < 1e-9, ("%s, step %d: %.9g"):format(name, t - 1, got))
          assert.equal(group.betas and 0.99, group.betas and group.betas[2])
          o:step()
          s:step()
        end
      end
    end
    cycles(function(o) return S.OneCycleLR(o, 1.0, { total_steps = 6 }) end,
      { 0.95, 0.85055845869, 0.86882550991, 0.90373650468, 0.93665259359, 0.95 })
    cycles(function(o) return S.CyclicLR(o, 0.1, 1.0, 2, 3) end,
      { 0.9, 0.85, 0.8, 0.9 - 0.2 / 3, 0.9 - 0.1 / 3, 0.9 })
  end)

  it("can be written", function()
    local Half = S.LRScheduler:extend("Half")
    function Half:init(o)
      S.LRScheduler.init(self, o)
    end
    function Half:get_lr()
      local out = {}
      for i, base in ipairs(self.base_lrs) do
        out[i] = base / 2 ^ self.last_epoch
      end
      return out
    end
    local o = optimizer()
    local s = Half(o)
    s:step()
    assert.equal(0.5, o.param_groups[1].lr)
  end)

  it("refuses what cannot be", function()
    helper.raises("TypeError", "must be an Optimizer", function()
      S.StepLR(3, 1)
    end)
    helper.raises("ValueError", "one more than the number of milestone", function()
      local o = optimizer()
      S.SequentialLR(o, { S.ExponentialLR(o, 0.9) }, { 3 })
    end)
    helper.raises("ValueError", "total_steps OR", function()
      S.OneCycleLR(optimizer(), 1.0)
    end)
  end)
end)

describe("the state of a scheduler with functions", function()
  it("is saved without them and keeps those it has when loaded", function()
    for _, class in ipairs({ "LambdaLR", "MultiplicativeLR" }) do
      local function make()
        local o = torch.optim.SGD({ torch.ones(1, { requires_grad = true }) }, { lr = 1.0 })
        return o, torch.optim.lr_scheduler[class](o, function(epoch)
          return 1 / (1 + epoch)
        end)
      end
      local o, scheduler = make()
      o:step()
      scheduler:step()
      local path = os.tmpname()
      torch.save(scheduler:state_dict(), path)
      local state = torch.load(path)
      os.remove(path)
      assert.equal(torch.none, state.lr_lambdas[1])
      local other, loaded = make()
      loaded:load_state_dict(state)
      other.param_groups[1].lr = o.param_groups[1].lr
      for _, s in ipairs({ scheduler, loaded }) do
        s:step()
      end
      assert.equal(2, loaded.last_epoch)
      assert.near(o.param_groups[1].lr, other.param_groups[1].lr, 1e-12)
    end
  end)
end)

-- Rates of the first group now and after n steps.
local function rates(o, s, n)
  local out = { o.param_groups[1].lr }
  for t = 2, n + 1 do
    o:step()
    s:step()
    out[t] = o.param_groups[1].lr
  end
  return out
end

local function near(got, want)
  assert.equal(#want, #got)
  for i, w in ipairs(want) do
    assert.near(w, got[i], 1e-8, ("value %d"):format(i - 1))
  end
end

-- The rows are PyTorch's.
describe("schedulers in odd places", function()
  it("a chain at the head of a sequence makes a whole step", function()
    local o = optimizer()
    near(rates(o, S.SequentialLR(o, { S.ChainedScheduler({ S.ExponentialLR(o, 0.5),
      S.ConstantLR(o, 0.5, 2) }), S.ExponentialLR(o, 0.9) }, { 2 }), 4),
      { 0.25, 0.125, 1, 0.9, 0.81 })
  end)

  it("a chain or a sequence cannot be restarted by a sequence", function()
    for _, inner in ipairs({ function(o)
      return S.ChainedScheduler({ S.ExponentialLR(o, 0.5) })
    end, function(o)
      return S.SequentialLR(o, { S.ExponentialLR(o, 0.5) }, {})
    end }) do
      local o = optimizer()
      local s = S.SequentialLR(o, { S.ExponentialLR(o, 0.5), inner(o) }, { 1 })
      helper.raises("NotImplementedError", "get_lr", function()
        s:step()
      end)
    end
  end)

  it("no part of them needs a metric", function()
    local o = optimizer()
    local plateau = S.ReduceLROnPlateau(o)
    helper.raises("ValueError", "does not support ReduceLROnPlateau", function()
      S.ChainedScheduler({ plateau })
    end)
    helper.raises("ValueError", "does not support ReduceLROnPlateau", function()
      S.SequentialLR(o, { plateau }, {})
    end)
    helper.raises("ValueError", "no scheduler", function()
      S.SequentialLR(o, {}, {})
    end)
  end)

  it("a cycle counts cycles unless its mode or function says otherwise", function()
    local o = optimizer()
    near(rates(o, S.CyclicLR(o, 0.1, 1.0, { step_size_up = 2, mode = "triangular2",
      scale_mode = "iterations", cycle_momentum = false }), 8),
      { 0.1, 0.55, 1, 0.55, 0.1, 0.325, 0.55, 0.325, 0.1 })
    helper.raises("ValueError", "must support momentum", function()
      S.CyclicLR(torch.optim.Adagrad({ torch.ones(1, { requires_grad = true }) }), 0.1, 1)
    end)
  end)

  it("a schedule that is taken up keeps the rate that it finds", function()
    local o = optimizer()
    local s = S.ExponentialLR(o, 0.5)
    o:step()
    s:step()
    near(rates(o, S.ExponentialLR(o, { gamma = 0.5, last_epoch = s.last_epoch }), 2),
      { 0.5, 0.25, 0.125 })
  end)

  it("warm restarts know the period of any epoch", function()
    local o = optimizer()
    local s = S.CosineAnnealingWarmRestarts(o, 10, 10)
    for _, row in ipairs({ { 2.5, 0.85355339, 2.5, 10 }, { 7.25, 0.17527598, 7.25, 10 },
      { 110, 1, 0, 1000 }, { 1110, 0, 1000, 1000 }, { 15, 0.99384417, 5, 100 } }) do
      s:step(row[1])
      near({ o.param_groups[1].lr, s.T_cur, s.T_i }, { row[2], row[3], row[4] })
      assert.equal(row[1] // 1, s.last_epoch)
    end
    helper.raises("ValueError", "non%-negative", function()
      s:step(-1)
    end)
  end)

  it("arguments outside their range are refused", function()
    for _, row in ipairs({ { "ConstantLR", { factor = 1.5 }, "between 0 and 1" },
      { "CosineAnnealingWarmRestarts", { T_0 = 2.0 }, "positive integer T_0" },
      { "CosineAnnealingWarmRestarts", { T_0 = 2, T_mult = 0 }, "T_mult >= 1" },
      { "OneCycleLR", { max_lr = 1, total_steps = 0 }, "positive integer total_steps" },
      { "OneCycleLR", { max_lr = 1, epochs = 2, steps_per_epoch = 1.5 }, "steps_per_epoch" },
      { "OneCycleLR", { max_lr = 1, total_steps = 9, pct_start = 1.5 }, "pct_start" },
      { "OneCycleLR", { max_lr = { 1, 2 }, total_steps = 9 }, "same length" },
      { "ReduceLROnPlateau", { min_lr = { 0.1, 0.2 } }, "expected 1 min_lrs, got 2" } }) do
      helper.raises("ValueError", row[3], function()
        S[row[1]](optimizer(), row[2])
      end)
    end
  end)

  it("what is no number is refused by its name", function()
    local function refuses(class, pattern, name, options)
      helper.raises(class, pattern, function()
        S[name](optimizer(), options)
      end)
    end
    refuses("TypeError", "gamma must be a number, got string", "ExponentialLR", { gamma = "x" })
    refuses("TypeError", "step_size must be a number, got None", "StepLR",
      { step_size = torch.none })
    refuses("TypeError", "max_lr must be a number or one for each", "CyclicLR",
      { base_lr = 1, max_lr = { "x" } })
    refuses("TypeError", "scale_fn must be a function", "CyclicLR",
      { base_lr = 1, max_lr = 2, scale_fn = 1 })
    refuses("TypeError", "T_mult must be a number", "CosineAnnealingWarmRestarts",
      { T_0 = 1, T_mult = "x" })
    refuses("TypeError", "patience must be a number", "ReduceLROnPlateau", { patience = { 1 } })
    refuses("TypeError", "min_lr must be a number", "ReduceLROnPlateau", { min_lr = "x" })
    for name, option in pairs({ StepLR = "step_size", CosineAnnealingLR = "T_max" }) do
      refuses("ZeroDivisionError", option .. " must not be 0", name, { [option] = 0 })
    end
    refuses("ZeroDivisionError", "step_size_up must not be 0", "CyclicLR",
      { base_lr = 1, max_lr = 2, step_size_up = 0 })
  end)

  it("a rate that is a tensor stays that tensor", function()
    for name, options in pairs({ StepLR = { step_size = 1, gamma = 0.5 },
      ReduceLROnPlateau = { patience = 0, factor = 0.5 },
      LambdaLR = { lr_lambda = function(t) return 0.5 ^ t end },
      CyclicLR = { base_lr = 1.0, max_lr = 0.5, step_size_up = 1, cycle_momentum = false } }) do
      local rate = torch.tensor(1.0)
      local o = torch.optim.SGD({ torch.ones(1, { requires_grad = true }) }, { lr = rate })
      local s = S[name](o, options)
      o:step()
      s:step(name == "ReduceLROnPlateau" and 0 / 0 or nil)
      assert.is_true(rawequal(rate, o.param_groups[1].lr), name)
      assert.equal(0.5, rate:item(), name)
      rate:fill_(3)
      assert.equal(0.5, s:get_last_lr()[1]:item(), name)
    end
  end)

  it("what a cycle needs is saved with the optimizer", function()
    local o = optimizer()
    local s = S.OneCycleLR(o, 1.0, { total_steps = 8 })
    o:step()
    s:step()
    local other = optimizer()
    other:load_state_dict(o:state_dict())
    local again = S.OneCycleLR(other, 9.0, { total_steps = 8, last_epoch = s.last_epoch })
    o:step()
    s:step()
    near({ other.param_groups[1].lr }, { o.param_groups[1].lr })
    assert.equal(1.0, other.param_groups[1].max_lr)
    assert.equal(2, again.last_epoch)
  end)

  it("a list of functions is no part of a saved state", function()
    local o = optimizer()
    local scale = setmetatable({ by = 0.5 }, { __call = function(self, t) return self.by ^ t end })
    local s = S.LambdaLR(o, { scale })
    local path = os.tmpname()
    torch.save(s:state_dict(), path)
    local state = torch.load(path)
    os.remove(path)
    assert.same({ { by = 0.5 } }, state.lr_lambdas)
    scale.by = 0.25
    s:load_state_dict(state)
    assert.equal(0.5, scale.by)
    assert.is_nil(S.LambdaLR(o, { function() return 1 end }):state_dict().lr_lambda)
  end)
end)

describe("a wrong argument of a scheduler", function()
  local a = nn.Linear(2, 2)

  it("in place of one list is an error that shows the list", function()
    local opt = torch.optim.SGD(a:parameters(), { lr = 1 })
    local one, other = S.ExponentialLR(opt, 0.9), S.ConstantLR(opt)
    raises("TypeError", "ChainedScheduler: expected one list of schedulers", function()
      S.ChainedScheduler(one, other)
    end)
    raises("TypeError", "ChainedScheduler: expected one list", function()
      S.ChainedScheduler({ one }, other)
    end)
    assert.is_truthy(S.ChainedScheduler({ one, other }, { optimizer = opt }))
  end)

  it("is named", function()
    local opt = torch.optim.SGD({ nn.Parameter(torch.ones(2)) }, { lr = 1 })
    raises("TypeError", "MultiStepLR: milestones: expected one list of epochs, {a, b}, got int 3",
      function() S.MultiStepLR(opt, 3) end)
    for _, name in ipairs({ "LambdaLR", "MultiplicativeLR" }) do
      raises("TypeError", name .. ": lr_lambda must be a function .* is int 3", function()
        S[name](opt, 3)
      end)
    end
  end)
end)

describe("a warning", function()
  before_each(require("lupine.base.warn").reset)

  local function once(text, f)
    assert.is_truthy(helper.logged(f):find(text, 1, true))
    assert.equal("", helper.logged(f))
  end

  it("tells of a scheduler's step before the optimizer's", function()
    local opt = torch.optim.SGD({ nn.Parameter(torch.ones(1)) }, { lr = 1 })
    once("ExponentialLR:step() is called before the optimizer's first step", function()
      torch.optim.lr_scheduler.ExponentialLR(opt, 0.5):step()
    end)
    opt:step()
    assert.equal("", helper.logged(function()
      torch.optim.lr_scheduler.StepLR(opt, 2):step()
    end))
  end)
end)

describe("what is no number", function()
  local cases = {
    { "StepLR: step: epoch: expected float", function() S.StepLR(optimizer(), 2):step("a") end },
    { "CosineAnnealingWarmRestarts: step: epoch", function()
      S.CosineAnnealingWarmRestarts(optimizer(), 2):step("a")
    end },
    { "ReduceLROnPlateau: min_lr, element 1", function()
      S.ReduceLROnPlateau(optimizer(), { min_lr = { "a" } })
    end },
    { "ReduceLROnPlateau: step: epoch", function()
      S.ReduceLROnPlateau(optimizer()):step(1.0, "a")
    end },
    { "MultiStepLR: milestones, element 2", function()
      S.MultiStepLR(optimizer(), { 1, "b" })
    end },
    { "SequentialLR: milestones, element 1", function()
      local o = optimizer()
      S.SequentialLR(o, { S.StepLR(o, 1), S.StepLR(o, 2) }, { "a" })
    end },
    { "lr_lambdas, element 1: the fields of a callable", function()
      S.LambdaLR(optimizer(), function() return 1 end)
        :load_state_dict({ lr_lambdas = { { a = 1 } } })
    end },
    { "load_state_dict: _schedulers: expected table", function()
      S.ChainedScheduler({ S.StepLR(optimizer(), 1) }):load_state_dict({ _schedulers = 3 })
    end },
    { "load_state_dict: lr_lambdas: expected table", function()
      S.LambdaLR(optimizer(), function() return 1 end):load_state_dict({ lr_lambdas = 3 })
    end },
  }
  for _, c in ipairs(cases) do
    it("is named: " .. c[1], function()
      raises("TypeError", c[1], c[2])
    end)
  end
end)

it("ReduceLROnPlateau takes least rates that are tensors", function()
  local o = optimizer()
  local s = S.ReduceLROnPlateau(o, { patience = 0, min_lr = { torch.tensor(0.5) } })
  s:step(1.0)
  s:step(2.0)
  assert.equal(0.5, o.param_groups[1].lr)
end)
