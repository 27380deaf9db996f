-- Optimizers: three steps with given gradients against PyTorch's results;
-- groups, state dictionaries, errors.
local helper = require("spec.helper")
local torch = require("torch")

local nn, optim = torch.nn, torch.optim
local raises = helper.raises

local function run(make, from, to)
  local p = torch.nn.Parameter(torch.tensor({ 1.0, -2, 3 }))
  local q = torch.nn.Parameter(torch.tensor({ { 0.5, 0.25 } }))
  local o = make({ p, q })
  for t = from or 0, to or 2 do
    p.grad = torch.tensor({ 0.1 * (t + 1), -0.2, 0.3 })
    q.grad = torch.tensor({ { 1, -0.5 * t } })
    o:step()
  end
  return p, q, o
end

-- name, arguments, values of the two parameters after three steps
local CASES = {
  { "SGD", { lr = 0.1 }, { 0.94, -1.94, 2.91 }, { { 0.2, 0.4 } } },
  { "SGD", { lr = 0.1, momentum = 0.9, dampening = 0.5, weight_decay = 0.1 },
    { 0.8977545, -1.8344591, 2.7516887 }, { { 0.0654549, 0.3370287 } } },
  { "SGD", { lr = 0.1, momentum = 0.9, nesterov = true },
    { 0.85441, -1.83902, 2.7585301 }, { { -0.3049, 0.5755 } } },
  { "Adam", { lr = 0.1 }, { 0.7076817, -1.7, 2.7 }, { { 0.2, 0.4072709 } } },
  { "Adam", { lr = 0.1, amsgrad = true, weight_decay = 0.05, maximize = true },
    { 1.2843622, -2.2993765, 3.2996185 }, { { 0.7999496, -0.0095694 } } },
  { "AdamW", { lr = 0.1, betas = { 0.8, 0.95 }, weight_decay = 0.2 },
    { 0.6514871, -1.588344, 2.5295365 }, { { 0.176556, 0.3984376 } } },
  { "RMSprop", { lr = 0.1 }, { -1.6988258, 0.2891296, 0.7108703 }, { { -1.7891302, 2.1453228 } } },
  { "RMSprop", { lr = 0.1, centered = true, momentum = 0.9, weight_decay = 0.1 },
    { -3.5293331, 2.1679306, -1.3671262 }, { { -4.0124898, 0.321919 } } },
}

describe("load_state_dict of another optimizer's state", function()
  local w = torch.nn.Parameter(torch.ones(2))
  local function stepped(name, options)
    local opt = torch.optim[name]({ w }, options)
    w.grad = torch.ones(2)
    opt:step()
    return opt:state_dict()
  end

  it("is an error that names what is missing", function()
    local adam, sgd = torch.optim.Adam({ w }), torch.optim.SGD({ w }, { lr = 1, momentum = 0.9 })
    for _, momentum in ipairs({ 0, 0.9 }) do
      raises("ValueError", "an option '[%a_]+', which group 0 of the state lacks", function()
        adam:load_state_dict(stepped("SGD", { lr = 1, momentum = momentum }))
      end)
    end
    raises("ValueError", "SGD has an option '[%a_]+', which group 0", function()
      sgd:load_state_dict(stepped("Adam"))
    end)
    raises("ValueError", "parameter 0 lacks 'exp_avg' %(it has exp_inf, step%)", function()
      local other = adam:state_dict()
      other.state[0] = { step = torch.zeros({}), exp_inf = torch.ones(2) }
      adam:load_state_dict(other)
    end)
    assert.same({}, adam.state)
    adam:load_state_dict(stepped("AdamW"))
    sgd:load_state_dict(stepped("SGD", { lr = 1 }))
  end)
end)

describe("an optimizer", function()
  for i, case in ipairs(CASES) do
    it(("updates as PyTorch's %s (%d)"):format(case[1], i), function()
      local p, q = run(function(params)
        return optim[case[1]](params, case[2])
      end)
      helper.near(p, case[3])
      helper.near(q, case[4])
    end)

    it(("goes on from a state dictionary: %s (%d)"):format(case[1], i), function()
      local a, b, first = run(function(params)
        return optim[case[1]](params, case[2])
      end, 0, 0)
      local saved = first:state_dict()
      local p, q = run(function(params)
        torch.no_grad(function()
          params[1]:copy_(a)
          params[2]:copy_(b)
        end)
        local o = optim[case[1]](params, { lr = 7 })
        o:load_state_dict(saved)
        return o
      end, 1)
      helper.near(p, case[3])
      helper.near(q, case[4])
    end)
  end

  it("leaves an infinite parameter as it is, unless decay adds to its gradient", function()
    for _, case in ipairs({ { "SGD", {} }, { "SGD", { momentum = 0.9 } }, { "Adam", {} },
      { "Adam", { amsgrad = true } }, { "AdamW", { weight_decay = 0.1 } }, { "RMSprop", {} } }) do
      local p = torch.nn.Parameter(torch.tensor({ math.huge, -math.huge, 1 }))
      local o = optim[case[1]]({ p }, case[2])
      for _ = 1, 2 do
        p.grad = torch.tensor({ 1.0, 0, 1 })
        o:step()
      end
      assert.same({ math.huge, -math.huge }, p["0:2"]:tolist(), case[1])
      assert.is_true(p[2]:item() < 1)
    end
    local p = torch.nn.Parameter(torch.tensor({ math.huge }))
    p.grad = torch.zeros(1)
    optim.Adam({ p }, { weight_decay = 0.1 }):step()
    assert.is_true(p:isnan():item())
  end)

  it("takes lists, iterators and groups", function()
    local net = torch.nn.Linear(2, 2)
    assert.equal(2, #optim.SGD(net:parameters(), 0.1).param_groups[1].params)
    assert.equal(2, #optim.SGD(net:named_parameters(), 0.1).param_groups[1].params)
    local o = optim.SGD({ { params = { net.weight }, lr = 0.5 }, { params = net.bias } },
      { lr = 0.1 })
    assert.equal(0.5, o.param_groups[1].lr)
    assert.equal(0.1, o.param_groups[2].lr)
  end)

  it("reads the group's values at every step", function()
    local p = torch.nn.Parameter(torch.zeros({ 1 }))
    local o = optim.SGD({ p }, 1)
    p.grad = torch.ones({ 1 })
    o:step()
    o.param_groups[1].lr = 10
    o:step()
    helper.near(p, { -11 })
    helper.near(o:hyper_tensor(o.param_groups[1], "lr"), 10)
  end)

  it("skips parameters without a gradient and takes gradients away", function()
    local p, q, o = run(function(params)
      return optim.Adam(params)
    end, 0, 0)
    o:zero_grad({ set_to_none = false })
    helper.near(p.grad, { 0, 0, 0 })
    o:zero_grad()
    assert.is_nil(q.grad)
    local before = p:clone()
    o:step()
    helper.near(p, before)
    assert.equal(1, o.state[p].step:item())
  end)

  it("runs a closure with gradients and its hooks", function()
    local p = torch.nn.Parameter(torch.ones({ 1 }))
    local o, calls = optim.SGD({ p }, 0.5), {}
    o:register_step_pre_hook(function() calls[#calls + 1] = "pre" end)
    local post = o:register_step_post_hook(function() calls[#calls + 1] = "post" end)
    local loss = o:step(function()
      local l = (p * p):sum()
      l:backward()
      return l
    end)
    helper.near(loss, 1)
    helper.near(p, { 0 })
    post:remove()
    o:step()
    assert.same({ "pre", "post", "pre" }, calls)
  end)

  it("has PyTorch's state dictionary", function()
    local _, _, o = run(function(params)
      return optim.SGD(params, 0.1, 0.9)
    end)
    local dict = o:state_dict()
    assert.same({ 0, 1 }, dict.param_groups[1].params)
    local keys = {}
    for name in pairs(dict.state[1]) do
      keys[#keys + 1] = name
    end
    assert.same({ "momentum_buffer" }, keys)
    helper.raises("ValueError", "different number of parameter groups", function()
      o:load_state_dict({ state = {}, param_groups = {} })
    end)
  end)

  it("prints its groups", function()
    local o = optim.RMSprop({ torch.nn.Parameter(torch.ones({ 1 })) })
    assert.equal(table.concat({ "RMSprop (", "Parameter Group 0", "    alpha: 0.99",
      "    capturable: False", "    centered: False", "    differentiable: False",
      "    eps: 1e-08", "    foreach: None", "    lr: 0.01", "    maximize: False",
      "    momentum: 0", "    weight_decay: 0", ")" }, "\n"), tostring(o))
  end)

  it("refuses what cannot be right", function()
    local p = torch.nn.Parameter(torch.ones({ 1 }))
    local function refuses(pattern, class, ...)
      local args = table.pack(...)
      helper.raises(class, pattern, function()
        optim.SGD(table.unpack(args, 1, args.n))
      end)
    end
    refuses("empty parameter list", "ValueError", {})
    refuses("Invalid learning rate", "ValueError", { p }, -1)
    refuses("Nesterov momentum requires", "ValueError", { p }, { nesterov = true })
    refuses("more than one parameter group", "ValueError", { { params = p }, { params = p } })
    refuses("non%-leaf", "ValueError", { p * 2 })
    refuses("no parameter 'moment'", "TypeError", { p }, { moment = 1 })
    refuses("no option 'lrr'", "ValueError", { { params = p, lrr = 1 } })
    refuses("should be a list", "TypeError", p)
  end)

  it("describes its update for a compiler", function()
    local p = torch.nn.Parameter(torch.ones({ 2 }))
    local o = optim.Adam({ p }, { amsgrad = true })
    local rule = o:update_rule(o.param_groups[1], p)
    assert.equal("adam_step", rule.op)
    assert.equal("step", rule.counts)
    assert.same({ "param", "state:exp_avg", "state:exp_avg_sq", "state:max_exp_avg_sq" },
      rule.outputs)
    helper.near(o:state_tensor(p, "exp_avg"), { 0, 0 })
    helper.near(o:hyper_tensor(o.param_groups[1], "beta2"), 0.999)
  end)
end)

describe("the flags of an optimizer", function()
  local function parameter()
    local p = torch.nn.Parameter(torch.tensor({ 1.0, 2 }))
    p.grad = torch.tensor({ 1.0, -1 })
    return p
  end

  it("exclude each other where PyTorch's do", function()
    for _, name in ipairs({ "SGD", "Adam", "AdamW", "Adagrad" }) do
      for _, other in ipairs({ "foreach", "differentiable" }) do
        helper.raises("RuntimeError", "fused", function()
          optim[name]({ parameter() }, { lr = 0.1, fused = true, [other] = true })
        end)
      end
      optim[name]({ parameter() }, { lr = 0.1, fused = true }):step()
    end
  end)

  it("refuse a rate that is a tensor with foreach for Adam and AdamW alone", function()
    for name, strict in pairs({ Adam = true, AdamW = true, SGD = false, RMSprop = false,
      Adagrad = false, NAdam = false }) do
      local function make()
        return optim[name]({ parameter() }, { lr = torch.tensor(0.1), foreach = true })
      end
      if strict then
        helper.raises("ValueError", "not supported for capturable=False and foreach=True", make)
      else
        make():step()
      end
    end
  end)

  it("refuse a step that should be captured", function()
    local p = parameter()
    local o = optim.Adam({ p }, { capturable = true })
    helper.raises("AssertionError", "capturable", function()
      o:step()
    end)
    p.grad = nil
    o:step() -- nothing to be done
  end)

  it("of AdamW stand in its groups and can differ there", function()
    local p, q = parameter(), parameter()
    local o = optim.AdamW({ { params = p }, { params = q, decoupled_weight_decay = false } },
      { weight_decay = 0.5 })
    assert.is_true(o.param_groups[1].decoupled_weight_decay)
    o:step()
    -- 1 - lr * decay, then the first step's lr in the gradient's direction
    helper.near(p, { 1 * (1 - 5e-4) - 1e-3, 2 * (1 - 5e-4) + 1e-3 })
    helper.near(q, { 1 - 1e-3, 2 }) -- gradients 1.5 and, with decay, 0
  end)

  it("let a parameter that is twice in a group be updated twice", function()
    local p = parameter()
    local o = optim.SGD({ p, p }, { lr = 0.1 })
    o:step()
    helper.near(p, { 0.8, 2.2 })
    assert.same({ 1, 1 }, o:state_dict().param_groups[1].params)
  end)
end)

describe("an option of an optimizer", function()
  it("has the type of its default", function()
    local function refuses(class, pattern, name, options)
      helper.raises(class, pattern, function()
        optim[name]({ torch.nn.Parameter(torch.ones({ 2, 2 })) }, options)
      end)
    end
    refuses("TypeError", "rho must be a number, got None", "Adadelta", { rho = torch.none })
    refuses("TypeError", "momentum must be a number, got a list", "RMSprop", { momentum = { 1 } })
    refuses("TypeError", "etas must be a list of two", "Rprop", { etas = 0.5 })
    refuses("IndexError", "etas must be a list of two numbers", "Rprop", { etas = { 0.5 } })
    refuses("ValueError", "step_sizes must be a list of two", "Rprop", { step_sizes = { 1, 2, 3 } })
    refuses("IndexError", "betas must be a list of two", "Adam", { betas = { 0.5 } })
    refuses("TypeError", "eps must be a list of two", "Adafactor", { eps = 1 })
    refuses("TypeError", "eps%[1%] must be a number", "Adafactor", { eps = { 1, "x" } })
    refuses("ValueError", "ns_coefficients must be a list of three", "Muon",
      { ns_coefficients = { 1 } })
    refuses("TypeError", "ns_steps must be a whole number", "Muon", { ns_steps = 2.5 })
  end)

  it("that is a flag may be 0 or 1", function()
    local p = torch.nn.Parameter(torch.ones({ 1 }))
    p.grad = torch.ones({ 1 })
    optim.SGD({ p }, { lr = 0.5, maximize = 0, nesterov = 0 }):step()
    helper.near(p, { 0.5 })
    optim.SGD({ p }, { lr = 0.5, maximize = 1 }):step()
    helper.near(p, { 1 })
  end)
end)

describe("the parameters of an optimizer", function()
  it("can have names, all or none", function()
    local m = torch.nn.Linear(2, 1)
    local p = torch.nn.Parameter(torch.ones({ 1 }))
    local o = optim.SGD(m:named_parameters(), { lr = 0.1 })
    assert.same({ "weight", "bias" }, o.param_groups[1].param_names)
    assert.same({ "weight", "bias" }, o:state_dict().param_groups[1].param_names)
    o:add_param_group({ params = { { "late", p } } })
    assert.same({ "late" }, o.param_groups[2].param_names)
    for _, make in ipairs({ function()
      o:add_param_group({ params = torch.nn.Parameter(torch.ones({ 1 })) })
    end, function()
      optim.SGD({ { "weight", m.weight }, m.bias })
    end }) do
      helper.raises("ValueError", "with/without names", make)
    end
    assert.is_nil(optim.SGD(m:parameters()).param_groups[1].param_names)
  end)

  it("stand in groups that can have notes", function()
    local p = torch.nn.Parameter(torch.ones({ 1 }))
    local o = optim.SGD({ { params = p, layer_scale = 0.5, name = "first" } })
    assert.equal(0.5, o.param_groups[1].layer_scale)
    assert.equal(0.5, o:state_dict().param_groups[1].layer_scale)
    assert.truthy(tostring(o):find("layer_scale: 0.5\n    lr: 0.001", 1, true))
  end)
end)

it("hooks see and change what is saved and loaded", function()
  local p = torch.nn.Parameter(torch.ones({ 1 }))
  local o, order = optim.SGD({ p }, { lr = 0.1 }), {}
  local function note(text)
    order[#order + 1] = text
  end
  o:register_state_dict_pre_hook(function() note("save") end)
  o:register_state_dict_post_hook(function(_, d) d.param_groups[1].lr = 0.3 note("saved") end)
  o:register_load_state_dict_pre_hook(function(_, d)
    note("load")
    return { state = d.state, param_groups = { { lr = 2 * d.param_groups[1].lr, params = { 0 } } } }
  end)
  local handle = o:register_load_state_dict_post_hook(function() note("loaded") end)
  o:register_load_state_dict_post_hook(function() note("first") end, { prepend = true })
  o:load_state_dict(o:state_dict())
  assert.same({ "save", "saved", "load", "first", "loaded" }, order)
  assert.equal(0.6, o.param_groups[1].lr)
  handle:remove()
  o:load_state_dict(o:state_dict())
  assert.equal("first", order[#order])
end)

describe("the parameters of an optimizer", function()
  local net = nn.Linear(2, 2)
  local a, ps = net, { nn.Parameter(torch.ones(2)) }

  it("are a list without nil", function()
    raises("TypeError", "params: element 2 of 3", function()
      torch.optim.SGD({ a.weight, nil, a.bias })
    end)
  end)

  it("are not the module that has them", function()
    raises("TypeError", "got Linear; did you mean its parameters%(%)", function()
      torch.optim.SGD(net)
    end)
    raises("TypeError", "parameters is a method", function()
      torch.optim.SGD(net.parameters)
    end)
  end)

  it("may be a ParameterList", function()
    local list = nn.ParameterList({ torch.ones(2), torch.ones(3) })
    assert.equal(2, #torch.optim.SGD(list).param_groups[1].params)
  end)

  it("may not be a table with other names", function()
    raises("KeyError", "got a table with 'param'", function()
      torch.optim.SGD({ { param = ps } }, { lr = 1 })
    end)
  end)
end)

describe("an optimizer's other arguments", function()
  local ps = { nn.Parameter(torch.ones(2)) }

  it("are of their types", function()
    local net = nn.Linear(2, 2)
    raises("TypeError", "SGD: lr must be a number, got string \"0.1\"", function()
      torch.optim.SGD(net:parameters(), { lr = "0.1" })
    end)
    raises("TypeError", "betas must be a list of two numbers", function()
      torch.optim.Adam(net:parameters(), { betas = 0.9 })
    end)
    raises("IndexError", "two numbers, {0.9, 0.999}, got 1", function()
      torch.optim.Adam(ps, { betas = { .9 } })
    end)
  end)

  it("are not left out with the object itself", function()
    local optimizer = torch.optim.SGD(nn.Linear(2, 2):parameters())
    for name, fn in pairs({ step = optimizer.step, zero_grad = optimizer.zero_grad }) do
      raises("TypeError", name .. " is a method: call it with a colon", fn)
    end
  end)
end)

it("an optimizer can be written, with a state that is there when it is asked for", function()
  local Heavy = optim.Optimizer:extend("Heavy")
  function Heavy:init(params, lr, momentum)
    optim.Optimizer.init(self, params, { lr = lr, momentum = momentum })
  end
  function Heavy:step()
    torch.no_grad(function()
      for _, group in ipairs(self.param_groups) do
        for _, p in ipairs(group.params) do
          local state = self.state[p]
          if next(state) == nil then
            state.step, state.buffer = 0, torch.zeros_like(p)
          end
          state.step = state.step + 1
          state.buffer:mul_(group.momentum):add_(p.grad)
          p:add_(state.buffer, { alpha = -group.lr })
        end
      end
    end)
  end
  local p = torch.nn.Parameter(torch.ones({ 1 }))
  p.grad = torch.ones({ 1 })
  local o = Heavy({ p }, 0.1, 0.9)
  assert.is_nil(next(o:state_dict().state))
  o:step()
  o:step()
  helper.near(p, { 1 - 0.1 - 0.19 })
  local other = Heavy({ p }, 9, 9)
  other:load_state_dict(o:state_dict())
  other:step()
  assert.equal(3, other.state[p].step)
  helper.near(p, { 0.71 - 0.271 })
end)

describe("an option that is a tensor", function()
  local t = torch.tensor
  local function made(name, options)
    local p = torch.nn.Parameter(torch.ones({ 2 }))
    p.grad = torch.ones({ 2 })
    return optim[name]({ p }, options), p
  end

  it("is checked as a number is", function()
    for pattern, options in pairs({ ["Invalid learning rate"] = { lr = t(-0.1) },
      ["Invalid weight_decay value"] = { weight_decay = t(-1.0) },
      ["Invalid beta parameter at index 1"] = { betas = { t(0.9), t(1.5) } },
      ["eps must be a number or a tensor of one element"] = { eps = t({ 1.0, 2.0 }) },
      ["lr must be 1%-element"] = { lr = t({ 1.0, 2.0 }) } }) do
      raises("ValueError", pattern, function() made("AdamW", options) end)
    end
    raises("ValueError", "Nesterov momentum requires", function()
      made("SGD", { nesterov = true, momentum = t(0.0) })
    end)
  end)

  it("steps as a number does", function()
    for _, case in ipairs({ { "SGD", "momentum", 0.5, { nesterov = true } },
      { "SGD", "momentum", 0.0 }, { "RMSprop", "momentum", 0.5 }, { "RMSprop", "momentum", 0.0 },
      { "Adagrad", "weight_decay", 0.5 } }) do
      local options = { lr = 0.1 }
      for k, v in pairs(case[4] or {}) do
        options[k] = v
      end
      options[case[2]] = case[3]
      local a, x = made(case[1], options)
      options[case[2]] = t(case[3])
      local b, y = made(case[1], options)
      for _ = 1, 2 do
        a:step()
        b:step()
      end
      helper.near(y, x:tolist())
      assert.equal(case[2] == "momentum" and case[3] > 0 or nil,
        b.state[y].momentum_buffer and true, case[1])
    end
  end)
end)
