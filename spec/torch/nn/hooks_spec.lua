--- Hooks of modules: forward with names, backward, state dictionaries; what
--- containers have besides lists.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn
local near, raises = helper.near, helper.raises

local Scale = nn.Module:extend("Scale")
function Scale:init() self.w = nn.Parameter(torch.tensor({ 2.0, 3.0 })) end
function Scale:forward(x, bias)
  local y = x * self.w
  return bias and y + bias or y
end

describe("A forward hook", function()
  it("gets arguments by name with with_kwargs, and may replace them", function()
    local m, seen = Scale(), nil
    m:register_forward_pre_hook(function(_, args, by_name)
      by_name.bias = by_name.bias * 2
      return args, by_name
    end, { with_kwargs = true })
    m:register_forward_hook(function(_, args, by_name, out)
      seen = { #args, by_name.bias:item() }
      return out + 1
    end, { with_kwargs = true })
    near(m(torch.ones(2), { bias = torch.tensor(5.0) }), { 13.0, 14.0 })
    assert.same({ 1, 10.0 }, seen)
    near(m({ x = torch.ones(2), bias = torch.tensor(5.0) }), { 13.0, 14.0 }) -- all by name
    assert.same({ 0, 10.0 }, seen)
  end)

  it("is called after an error with always_call, and in order with prepend", function()
    local m, order = Scale(), {}
    m:register_forward_hook(function(_, _, out) order[#order + 1] = tostring(out) end,
      { always_call = true })
    m:register_forward_hook(function() order[#order + 1] = "first" end, { prepend = true })
    assert.is_false((pcall(m, "no tensor")))
    assert.same({ "nil" }, order)
    m(torch.zeros(2))
    assert.equal("first", order[2])
  end)
end)

describe("A full backward hook", function()
  it("sees the gradients of arguments and results and may change them", function()
    local m, order = Scale(), {}
    m:register_full_backward_pre_hook(function(module, grad_output)
      assert.equal(m, module)
      order[#order + 1] = "pre"
      return { grad_output[1] * 10 }
    end)
    local handle = m:register_full_backward_hook(function(_, grad_input, grad_output)
      order[#order + 1] = "full"
      near(grad_output[1], { 10.0, 10.0 })
      near(grad_input[1], { 20.0, 30.0 })
      assert.equal(torch.none, grad_input[2])
      return { grad_input[1] + 1, torch.none }
    end)
    local x = torch.ones(2):requires_grad_(true)
    m(x, torch.zeros(2)):sum():backward()
    near(x.grad, { 21.0, 31.0 })
    near(m.w.grad, { 10.0, 10.0 })
    assert.same({ "pre", "full" }, order)
    handle:remove()
    m(x):sum():backward()
    assert.same({ "pre", "full", "pre" }, order)
  end)

  it("sees the gradient of what forward hooks made of the results", function()
    local m, seen = nn.Linear(3, 2), {}
    m:register_forward_hook(function(_, _, out) return out * 2 end)
    m:register_full_backward_pre_hook(function(_, go) seen.pre = go[1]:sum():item() end)
    m:register_full_backward_hook(function(_, gi, go)
      seen.full, seen.gi = go[1]:sum():item(), gi[1]
    end)
    local x = torch.ones(7, 3):requires_grad_(true)
    m(x):sum():backward()
    assert.same({ 14.0, 14.0 }, { seen.pre, seen.full })
    near(seen.gi, x.grad)
    near(x.grad[0], m.weight:detach():sum(0) * 2)
  end)

  it("is called although no argument requires a gradient", function()
    local m, seen = Scale(), nil
    m:register_full_backward_hook(function(_, grad_input, grad_output)
      seen = { grad_input[1], grad_output[1]:tolist() }
    end)
    m(torch.ones(2)):sum():backward()
    assert.equal(torch.none, seen[1])
    assert.same({ 1.0, 1.0 }, seen[2])
  end)

  it("is part of a compiled model", function()
    local Net = nn.Module:extend("Net")
    function Net:init() self.scale, self.lin = Scale(), nn.Linear(2, 2, { bias = false }) end
    function Net:forward(x)
      return poptorch.identity_loss(self.scale(self.lin(x)), { reduction = "sum" })
    end
    local net = Net()
    net.lin.weight.data = torch.eye(2)
    net.scale:register_full_backward_hook(function(_, grad_input)
      return { grad_input[1] * 0.5 }
    end)
    local opt = torch.optim.SGD(net:parameters(), { lr = 1.0 })
    local model = poptorch.trainingModel(net, nil, opt)
    model(torch.ones(1, 2))
    model:copyWeightsToHost()
    near(net.lin.weight:detach(), { { 0.0, -1.0 }, { -1.5, -0.5 } })
    near(net.scale.w:detach(), { 1.0, 2.0 })
  end)
end)

describe("State dictionaries", function()
  it("call their hooks", function()
    local m, calls = nn.Sequential(Scale()), {}
    m:register_state_dict_pre_hook(function(_, prefix) calls[#calls + 1] = "pre" .. prefix end)
    m[1]:register_state_dict_post_hook(function(_, state, prefix)
      state[prefix .. "more"] = torch.zeros(1)
    end)
    local state = m:state_dict()
    assert.is_true(torch.is_tensor(state["0.more"]))
    m[1]:register_load_state_dict_pre_hook(function(_, from, prefix)
      from[prefix .. "more"] = nil
      from[prefix .. "w"] = from[prefix .. "w"] + 1
    end)
    m:register_load_state_dict_post_hook(function(module, keys)
      calls[#calls + 1] = #keys.missing_keys + #keys.unexpected_keys
      assert.equal(m, module)
    end)
    m:load_state_dict(state)
    near(m[1].w:detach(), { 3.0, 4.0 })
    assert.same({ "pre", 0 }, calls)
    assert.is_true(torch.is_tensor(state["0.more"]))
  end)

  it("keep what get_extra_state gives", function()
    local Counting = nn.Module:extend("Counting")
    function Counting:init() self.n = 3 end
    function Counting:get_extra_state() return self.n end
    function Counting:set_extra_state(n) self.n = n end
    local a, b = nn.Sequential(Counting()), nn.Sequential(Counting())
    a[1].n = 8
    assert.equal(8, a:state_dict()["0._extra_state"])
    b:load_state_dict(a:state_dict())
    assert.equal(8, b[1].n)
    assert.same({ "0._extra_state" }, b:load_state_dict({}, { strict = false }).missing_keys)
  end)

  it("can take the place of the tensors with assign", function()
    local m = Scale()
    local new = torch.tensor({ 5.0, 6.0 })
    m:load_state_dict({ w = new }, { assign = true })
    new:fill_(9)
    near(m.w:detach(), { 9.0, 9.0 })
    assert.is_true(m.w.requires_grad)
    raises("RuntimeError", "size mismatch", function()
      m:load_state_dict({ w = torch.ones(3) }, { assign = true })
    end)
  end)
end)

describe("Modules", function()
  it("are put at a path", function()
    local m = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    m:set_submodule("0.0", nn.Tanh())
    assert.equal("Tanh", m[1][1]:_get_name())
    raises("AttributeError", "no submodule 'x'", function()
      m:set_submodule("0.x", nn.Tanh(), { strict = true })
    end)
  end)

  it("come from the device meta with to_empty", function()
    local m = Scale():to("meta"):to_empty({ device = "cpu" })
    assert.is_true(m.w.is_cpu)
    assert.equal(torch.Size({ 2 }), m.w.shape)
  end)

  it("in lists are taken out, added and repeated", function()
    local a, b = nn.Linear(1, 1), nn.ReLU()
    local s = nn.Sequential(a, b, nn.Tanh())
    assert.equal(b, s:pop(2))
    assert.equal("Tanh", s:pop():_get_name())
    assert.equal(1, #s)
    local t = s + nn.Sequential(b)
    assert.equal(b, t[2])
    assert.equal(6, #(t * 3))
    assert.equal(b, (nn.ModuleList({ a }) + { b })[2])
    raises("IndexError", "it has 1 modules", function() s:pop(2) end)
  end)

  it("in dictionaries are found, set once, copied", function()
    local d = nn.ModuleDict({ { "a", nn.ReLU() } })
    assert.is_nil(d:get("b"))
    local tanh = d:setdefault("b", nn.Tanh())
    assert.equal(tanh, d:setdefault("b", nn.ReLU()))
    local c = d:copy()
    assert.equal("b", (d:popitem()))
    assert.equal(2, #c)
    assert.equal(1, #d)
  end)
end)
