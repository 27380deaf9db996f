-- The optimizers without an operator of their own, and LBFGS. Values are
-- PyTorch's after three steps with the same gradients.
local helper = require("spec.helper")
local torch = require("torch")

local optim = torch.optim

local CASES = {
  { "Adagrad", { lr = 0.1, lr_decay = 0.1, weight_decay = 0.1 },
    { 0.7638639, -1.789361, 2.7887678 }, { { 0.2882654, 0.3153948 } } },
  { "Adadelta", { lr = 1.0 }, { 0.9879325, -1.9902936, 2.990293 }, { { 0.4902925, 0.2572027 } } },
  { "Adamax", { lr = 0.1 }, { 0.7546805, -1.7, 2.7 }, { { 0.2, 0.3561371 } } },
  { "RAdam", { lr = 0.1, betas = { 0.9, 0.5 } }, { 0.9540358, -1.94, 2.91 },
    { { 0.2, 0.3298213 } } },
  { "NAdam", { lr = 0.1 }, { 0.7018802, -1.7427647, 2.7427647 }, { { 0.2427647, 0.4587248 } } },
  { "ASGD", { lr = 0.1, t0 = 1 }, { 0.939971, -1.9399409, 2.9099116 },
    { { 0.1999902, 0.3999901 } } },
  { "Rprop", { lr = 0.1 }, { 0.636, -1.636, 2.636 }, { { 0.136, 0.47 } } },
  { "Adafactor", { lr = 0.1, weight_decay = 0.1 }, { 0.3364565, -1.392014, 2.362313 },
    { { 0.3860973, 0.3249638 } } },
}

describe("an optimizer made of tensor operators", function()
  for _, case in ipairs(CASES) do
    it("updates as PyTorch's " .. case[1], function()
      local p = torch.nn.Parameter(torch.tensor({ 1.0, -2, 3 }))
      local q = torch.nn.Parameter(torch.tensor({ { 0.5, 0.25 } }))
      local o = optim[case[1]]({ p, q }, case[2])
      for t = 0, 2 do
        p.grad = torch.tensor({ 0.1 * (t + 1), -0.2, 0.3 })
        q.grad = torch.tensor({ { 1, -0.5 * t } })
        o:step()
        local saved = o:state_dict() -- a copy goes on where this one is
        o = optim[case[1]]({ p, q }, { lr = 5 })
        o:load_state_dict(saved)
      end
      helper.near(p, case[3])
      helper.near(q, case[4])
      if case[1] ~= "Adagrad" and case[1] ~= "NAdam" then
        helper.raises("NotImplementedError", "no update that can be compiled", function()
          o:update_rule(o.param_groups[1], p)
        end)
      end
    end)
  end
end)

-- Four steps with the same gradients as above; PyTorch's values.
local function after_four(name, options)
  local p = torch.nn.Parameter(torch.tensor({ 1.0, -2, 3 }))
  local q = torch.nn.Parameter(torch.tensor({ { 0.5, 0.25 } }) * 1e-3)
  local o = optim[name]({ p, q }, options)
  for t = 0, 3 do
    p.grad = torch.tensor({ 0.1 * (t + 1), -0.2, 0.3 })
    q.grad = torch.tensor({ { 1, -0.5 * t } })
    o:step()
  end
  return p, q, o.state[p]
end

it("Adafactor's second eps is the least size of a parameter", function()
  for _, eps in ipairs({ { torch.none, 0.5 }, { 1e-3, 0.5 } }) do
    local p, q = after_four("Adafactor", { lr = 0.1, eps = eps })
    helper.near(p, { 0.15595101, -1.29348922, 2.29348946 })
    helper.near(q, { { -0.17324094, 0.17250772 } })
  end
  local _, q = after_four("Adafactor", { lr = 0.1 })
  helper.near(q, { { 0.00015252, 0.00059452 } })
end)

it("ASGD's mean starts at step t0", function()
  local p, _, late = after_four("ASGD", { lr = 0.1, t0 = 1e6 })
  helper.near(p, { 0.89996243, -1.91992199, 2.87988329 })
  helper.near(late.ax, { 0.89996243, -1.91992199, 2.87988329 })
  local _, _, early = after_four("ASGD", { lr = 0.1, t0 = 1 })
  helper.near(early.ax, { 0.9199667, -1.9299314, 2.89489746 })
end)

describe("LBFGS", function()
  local function solve(options)
    local a = torch.tensor({ { 3.0, 1 }, { 1, 2 } }, { dtype = torch.float64 })
    local b = torch.tensor({ 1.0, -1 }, { dtype = torch.float64 })
    local x = torch.nn.Parameter(torch.zeros({ 2 }, { dtype = torch.float64 }))
    local o = optim.LBFGS({ x }, options)
    local first = o:step(function()
      o:zero_grad()
      local f = x:dot(a:mv(x)) * 0.5 - b:dot(x)
      f:backward()
      return f
    end)
    return x, first
  end

  it("finds the minimum of a quadratic function", function()
    for _, options in ipairs({ { lr = 0.8 }, { line_search_fn = "strong_wolfe" } }) do
      local x, first = solve(options)
      helper.near(x, { 0.6, -0.8 }, { 1e-4, 0 }) -- A x = b
      helper.near(first, 0)
    end
  end)

  it("refuses what it cannot do", function()
    local p = torch.nn.Parameter(torch.zeros({ 1 }))
    helper.raises("ValueError", "per%-parameter options", function()
      optim.LBFGS({ { params = p }, { params = torch.nn.Parameter(torch.zeros({ 1 })) } })
    end)
    helper.raises("RuntimeError", "only 'strong_wolfe'", function()
      optim.LBFGS({ p }, { line_search_fn = "wolfe" })
    end)
    helper.raises("TypeError", "closure", function()
      optim.LBFGS({ p }):step()
    end)
  end)

  it("takes its rate as a tensor of one element", function()
    local x = solve({ lr = torch.tensor({ 0.8 }), line_search_fn = "strong_wolfe" })
    helper.near(x, { 0.6, -0.8 }, { 1e-4, 0 })
    helper.raises("ValueError", "Tensor lr must be 1%-element", function()
      solve({ lr = torch.tensor({ 0.8, 0.1 }) })
    end)
  end)
end)

describe("torch.optim.Muon", function()
  -- Three steps on sum((p sin(0 … 5))^2) from p = (0 … 5) / 4: figures of
  -- PyTorch 2.15.
  local FIGURES = {
    { { 2, 3 }, "original", true, { 0.0661536455154419, 0.27405625581741333, 0.3929760158061981,
      0.7026919722557068, 0.8635309338569641, 1.0500565767288208 } },
    { { 3, 2 }, "match_rms_adamw", false, { 0.01058211550116539, 0.22653481364250183,
      0.4177771508693695, 0.7507272362709045, 0.9427003264427185, 1.143353819847107 } },
    { { 3, 2 }, "spectral_unclamped", true, { 0.04260957986116409, 0.18394891917705536,
      0.24119701981544495, 0.813727080821991, 0.8696512579917908, 0.9680501222610474 } },
  }

  it("has PyTorch's figures", function()
    for _, case in ipairs(FIGURES) do
      local shape, scale, nesterov, want = table.unpack(case)
      local p = (torch.arange(6.0):reshape(shape) / 4):requires_grad_(true)
      local factor = torch.arange(6.0):reshape(shape):sin()
      local opt = optim.Muon({ p }, { lr = torch.tensor({ 0.1 }), adjust_lr_fn = scale,
        nesterov = nesterov })
      for _ = 1, 3 do
        opt:zero_grad()
        local loss = (p * factor):pow(2):sum()
        loss:backward()
        opt:step()
      end
      helper.near(p:reshape(-1), want, { 1e-6, 1e-5 })
    end
  end)

  it("refuses what is no matrix, and unknown scales", function()
    helper.raises("ValueError", "only supports 2D parameters", function()
      optim.Muon({ torch.ones(2, { requires_grad = true }) })
    end)
    helper.raises("ValueError", "adjust_lr_fn", function()
      optim.Muon({ torch.ones(2, 2, { requires_grad = true }) }, { adjust_lr_fn = "own" })
    end)
  end)
end)

-- PyTorch's values after two steps.
local TENSOR_RATES = {
  Adagrad = { { 0.6381966, 2.1381967 }, 3.4267766 },
  Adamax = { { 0.5656051, 2.3026843 }, 3.5 },
  ASGD = { { 0.6249586, 2.124896 }, 3.2498448 },
  Rprop = { { 0.45, 2.25 }, 3.55 },
  NAdam = { { 0.6049062, 2.1613355 }, 3.460034 },
  RAdam = { { 0.5657895, 2.3026316 }, 3.25 },
  Adadelta = { { 0.9986882, 2.0002694 }, 3.0016017 },
}

it("a rate can be a tensor of one element, also for a parameter of no dimensions", function()
  for name, want in pairs(TENSOR_RATES) do
    local p = torch.nn.Parameter(torch.tensor({ 1.0, 2 }))
    local q = torch.nn.Parameter(torch.tensor(3.0))
    local o = optim[name]({ p, q }, { lr = torch.tensor({ 0.25 }) })
    for _, g in ipairs({ { 1.0, -1 }, { 0.5, 0.5 } }) do
      p.grad, q.grad = torch.tensor(g), torch.tensor(-0.5)
      o:step()
    end
    helper.near(p, want[1])
    helper.near(q, want[2])
  end
end)

it("options of None are their defaults", function()
  local p = torch.nn.Parameter(torch.ones({ 2, 2 }))
  assert.is_nil(optim.Muon({ p }, { adjust_lr_fn = torch.none }).param_groups[1].adjust_lr_fn)
  for _, options in ipairs({ { lr = 1 }, { lr = 1, eps = torch.none } }) do
    local eps = optim.Adafactor({ p }, options).param_groups[1].eps
    assert.equal(torch.none, eps[1])
    assert.equal(1e-3, eps[2])
  end
end)

it("a checkpoint keeps the state where a parameter has none yet", function()
  local params = {}
  for i = 1, 6 do
    params[i] = torch.nn.Parameter(torch.ones({ 1 }))
    params[i].grad = i ~= 2 and torch.ones({ 1 }) or nil
  end
  local o = optim.NAdam(params)
  o:step()
  local path = os.tmpname()
  torch.save(o:state_dict(), path)
  local saved = torch.load(path)
  os.remove(path)
  for i = 0, 5 do
    assert.equal(i ~= 1, saved.state[i] ~= nil, i)
  end
end)

it("LBFGS can maximise", function() -- PyTorch's losses
  for _, search in ipairs({ torch.none, "strong_wolfe" }) do
    local p = torch.tensor({ 1.0, -2 }, { dtype = torch.float64, requires_grad = true })
    local o = optim.LBFGS({ p }, { lr = 0.5, max_iter = 3, maximize = true,
      line_search_fn = search })
    for _, want in ipairs({ -9, 0.002267470172875541, 1.739141446892766 }) do
      local loss = o:step(function()
        o:zero_grad()
        local l = -(p[0] ^ 2 + 3 * p[1] ^ 2 + p[0] * p[1]) + 2
        l:backward()
        return l
      end)
      assert.near(want, loss:item(), 1e-9)
    end
    helper.near(p, { 0.17390876, -0.04004993 }, { 1e-7, 0 })
  end
end)

it("Rprop names etas and step_sizes that are no numbers", function()
  local p = torch.nn.Parameter(torch.ones(1))
  for name, value in pairs({ etas = { "a", "b" }, step_sizes = { 1e-6, "b" } }) do
    helper.raises("TypeError", "Rprop: " .. name .. "%[%d%] must be a number, got string",
      function() optim.Rprop({ p }, { [name] = value }) end)
  end
end)
