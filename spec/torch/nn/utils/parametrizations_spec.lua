-- torch.nn.utils.parametrizations: values, gradients and names are PyTorch
-- 2.15's.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local Z = nn.utils.parametrizations
local TOL = { 2e-6, 2e-6 }

local function linear()
  local l = nn.Linear(3, 2)
  torch.no_grad(function()
    l.weight:copy_(torch.tensor({ { 1., 2, 2 }, { 3, 0, 4 } }))
    l.bias:zero_()
  end)
  return l
end

local function shapes(module)
  local out = {}
  for name, t in pairs(module:state_dict()) do
    out[name] = { table.unpack(t.shape) }
  end
  return out
end

local function backward(l)
  local x = torch.tensor({ { 1., -1, 2 } });
  (l(x) * torch.tensor({ 1., 3. })):sum():backward()
end

describe("weight_norm", function()
  it("splits the weight into length and direction", function()
    local l = Z.weight_norm(linear())
    local p = l.parametrizations.weight
    helper.near(p.original0, { { 3 }, { 5 } })
    helper.near(p.original1, { { 1, 2, 2 }, { 3, 0, 4 } })
    helper.near(l.weight, { { 1, 2, 2 }, { 3, 0, 4 } }, TOL)
    backward(l)
    helper.near(p.original0.grad, { { 1 }, { 6.6 } }, TOL)
    helper.near(p.original1.grad, { { 0.6666666, -1.6666667, 1.3333333 },
      { -0.96, -3.0, 0.7200003 } }, TOL)
    assert.truthy(tostring(l):find("(0): _WeightNorm()", 1, true))
  end)

  it("takes the length over all dimensions but one, or over all", function()
    local conv = nn.Conv2d(2, 3, 2)
    local weight = conv.weight:tolist()
    Z.weight_norm(conv, { dim = 1 })
    helper.near(conv.weight, weight, TOL)
    assert.same({ bias = { 3 }, ["parametrizations.weight.original0"] = { 1, 2, 1, 1 },
      ["parametrizations.weight.original1"] = { 3, 2, 2, 2 } }, shapes(conv))
    assert.same({}, shapes(Z.weight_norm(nn.Conv2d(2, 3, 2), { dim = torch.none }))
      ["parametrizations.weight.original0"])
    nn.utils.parametrize.remove_parametrizations(conv, "weight")
    helper.near(conv.weight, weight, TOL)
  end)
end)

describe("spectral_norm", function()
  it("divides by the singular value that the power method follows", function()
    local m = Z.spectral_norm(linear(), { n_power_iterations = 2 })
    assert.same({ "bias", "parametrizations.weight.original", "parametrizations.weight.0._u",
      "parametrizations.weight.0._v" }, helper.state_keys(m))
    local state = m:state_dict()
    state["parametrizations.weight.0._u"] = torch.tensor({ .6, .8 })
    state["parametrizations.weight.0._v"] = torch.tensor({ 0., .6, .8 })
    m:load_state_dict(state)
    m:eval()
    helper.near(m.weight, { { 0.23584904, 0.47169808, 0.47169808 }, { 0.70754713, 0, 0.94339615 } },
      TOL)
    m:train()
    helper.near(m.weight, { { 0.18083449, 0.36166897, 0.36166897 }, { 0.54250348, 0, 0.72333795 } },
      TOL)
    helper.near(m:state_dict()["parametrizations.weight.0._u"], { 0.47863007, 0.87801665 }, TOL)
    m:eval()
    backward(m)
    helper.near(m.parametrizations.weight.original.grad, {
      { -0.13632716, -0.27837300, -0.09372607 }, { -0.03930962, -0.72143173, 0.24961346 } }, TOL)
  end)

  it("starts near the largest singular value, along the channels that come out", function()
    local conv = Z.spectral_norm(nn.Conv2d(2, 4, 3))
    conv:eval()
    local largest = torch.linalg.svdvals(conv.weight:detach():flatten(1))[0]:item()
    assert.is_true(math.abs(largest - 1) < 0.1)
    assert.same({ 3 }, shapes(Z.spectral_norm(nn.ConvTranspose2d(2, 3, 2)))
      ["parametrizations.weight.0._u"])
    local norm = Z.spectral_norm(nn.LayerNorm(4))
    helper.near(norm.weight, { .5, .5, .5, .5 }, TOL)
  end)

  it("refuses what is not there", function()
    helper.raises("ValueError", "no parameter or buffer with name 'w'", function()
      Z.spectral_norm(linear(), "w")
    end)
    helper.raises("ValueError", "n_power_iterations", function()
      Z.spectral_norm(linear(), { n_power_iterations = 0 })
    end)
    helper.raises("TypeError", "expected a Module", function()
      Z.weight_norm(3)
    end)
  end)
end)
