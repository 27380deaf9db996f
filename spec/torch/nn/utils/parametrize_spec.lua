-- torch.nn.utils.parametrize: values, names and text are PyTorch 2.15's.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local P = nn.utils.parametrize
local keys = helper.state_keys

local Sym = nn.Module:extend("Sym")
function Sym.forward(_, x)
  return x:triu() + x:triu(1).mT
end

local Double = nn.Module:extend("Double")
function Double.forward(_, x)
  return 2 * x
end
function Double.right_inverse(_, x)
  return x / 2
end

-- Length and direction of each row.
local Polar = nn.Module:extend("Polar")
function Polar.forward(_, g, v)
  return g * v
end
function Polar.right_inverse(_, x)
  local n = x:norm(2, 1, true)
  return n, x / n
end

local function linear()
  local l = nn.Linear(3, 3)
  torch.no_grad(function()
    l.weight:copy_(torch.arange(9.):reshape({ 3, 3 }))
  end)
  return l
end

local SYMMETRIC = { { 0, 1, 2 }, { 1, 4, 5 }, { 2, 5, 8 } }
local DOUBLED = { { 0, 2, 4 }, { 2, 8, 10 }, { 4, 10, 16 } }

describe("register_parametrization", function()
  it("computes the tensor by a module wherever it is read", function()
    local l = linear()
    local original = l.weight
    assert.equal(l, P.register_parametrization(l, "weight", Sym()))
    assert.same(SYMMETRIC, l.weight:tolist())
    assert.same({ "bias", "parametrizations.weight.original" }, keys(l))
    assert.equal(original, l.parametrizations.weight.original)
    assert.equal([[ParametrizedLinear(
  in_features=3, out_features=3, bias=True
  (parametrizations): ModuleDict(
    (weight): ParametrizationList(
      (0): Sym()
    )
  )
)]], tostring(l))
    local x = torch.tensor({ { 1., 0., 2. } })
    l(x):sum():backward()
    -- each element above the diagonal stands twice
    assert.same({ { 1, 0 + 1, 2 + 1 }, { 0, 0, 2 }, { 0, 0, 2 } }, original.grad:tolist())
  end)

  it("puts further ones behind the first", function()
    local l = linear()
    P.register_parametrization(l, "weight", Sym())
    P.register_parametrization(l, "weight", Double())
    P.register_parametrization(l, "bias", Double())
    assert.same(DOUBLED, l.weight:tolist())
    assert.equal(2, #l.parametrizations.weight)
    assert.same({ "parametrizations.weight.original", "parametrizations.bias.original" }, keys(l))
  end)

  it("starts from the right inverse, of one tensor or of several", function()
    local l = linear()
    local bias = l.bias:tolist()
    P.register_parametrization(l, "bias", Double())
    helper.near(l.bias, bias)
    P.register_parametrization(l, "weight", Polar())
    helper.near(l.weight, { { 0, 1, 2 }, { 3, 4, 5 }, { 6, 7, 8 } }, { 1e-6, 1e-6 })
    assert.same({ "parametrizations.bias.original", "parametrizations.weight.original0",
      "parametrizations.weight.original1" }, keys(l))
    assert.is_true(l.parametrizations.weight.original0.requires_grad)
    assert.same({ 3, 1 }, { table.unpack(l.parametrizations.weight.original0.shape) })
  end)

  it("writes through the right inverse", function()
    local l = linear()
    P.register_parametrization(l, "bias", Double())
    l.bias = torch.ones(3)
    assert.same({ 0.5, 0.5, 0.5 }, l.parametrizations.bias.original:tolist())
    assert.same({ 1, 1, 1 }, l.bias:tolist())
    P.register_parametrization(l, "weight", Sym())
    helper.raises("RuntimeError", "parametrization Sym does not implement right_inverse", function()
      l.weight = torch.ones(3, 3)
    end)
  end)

  it("trains, loads, copies and compiles with the module", function()
    local l, other = linear(), linear()
    for _, m in ipairs({ l, other }) do
      P.register_parametrization(m, "weight", Sym())
    end
    local sgd = torch.optim.SGD(l:parameters(), { lr = 0.5 })
    local x = torch.ones({ 1, 3 })
    l(x):sum():backward()
    sgd:step()
    assert.same({ { -.5, 0, 1 }, { 0, 3.5, 4 }, { 1, 4, 7.5 } }, l.weight:tolist())
    other:load_state_dict(l:state_dict())
    assert.same(l.weight:tolist(), other.weight:tolist())
    local compiled = require("lupine").compile(l, { x })
    assert.same(l(x):tolist(), compiled(x):tolist())
  end)

  it("refuses what changes shape or dtype, unless told otherwise", function()
    local Row = nn.Module:extend("Row")
    function Row.forward(_, x)
      return x[0]
    end
    helper.raises("ValueError", "may not change the shape .*%[3%].*%[3, 3%]", function()
      P.register_parametrization(linear(), "weight", Row())
    end)
    local l = P.register_parametrization(linear(), "weight", Row(), true)
    assert.same({ 0, 1, 2 }, l.weight:tolist())
    helper.raises("ValueError", "'Linear' does not have a parameter, a buffer.*'w'", function()
      P.register_parametrization(linear(), "w", Sym())
    end)
    helper.raises("TypeError", "expected a Module", function()
      P.register_parametrization(linear(), "weight", print)
    end)
  end)
end)

describe("remove_parametrizations", function()
  it("leaves the computed value, in the same parameter", function()
    local l = linear()
    local weight = l.weight
    P.register_parametrization(l, "weight", Sym())
    P.register_parametrization(l, "bias", Double())
    P.remove_parametrizations(l, "weight")
    assert.equal(weight, l.weight)
    assert.same(SYMMETRIC, l.weight:tolist())
    assert.same({ "weight", "parametrizations.bias.original" }, keys(l))
    l.bias = torch.ones(3)
    P.remove_parametrizations(l, "bias", { leave_parametrized = false })
    assert.same({ 0.5, 0.5, 0.5 }, l.bias:tolist())
    assert.same({ "weight", "bias" }, keys(l))
    assert.equal("Linear(in_features=3, out_features=3, bias=True)", tostring(l))
    assert.is_nil(l.parametrizations)
  end)

  it("makes a parameter of several originals' value, but not of one of them", function()
    local l = P.register_parametrization(linear(), "weight", Polar())
    helper.raises("ValueError", "in terms of a sequence of tensors", function()
      P.remove_parametrizations(l, "weight", false)
    end)
    P.remove_parametrizations(l, "weight")
    assert.is_true(l.weight.requires_grad and l.weight.is_leaf)
    helper.raises("ValueError", "does not have a parametrization on weight", function()
      P.remove_parametrizations(l, "weight")
    end)
  end)

  it("is told apart by is_parametrized and type_before_parametrizations", function()
    local l = linear()
    assert.is_false(P.is_parametrized(l))
    P.register_parametrization(l, "weight", Sym())
    assert.is_true(P.is_parametrized(l) and P.is_parametrized(l, "weight"))
    assert.is_false(P.is_parametrized(l, "bias"))
    assert.equal(nn.Linear, P.type_before_parametrizations(l))
    assert.is_true(nn.Linear:is(l))
    P.remove_parametrizations(l, "weight")
    assert.is_false(P.is_parametrized(l))
    assert.equal(nn.Linear, P.type_before_parametrizations(l))
  end)
end)

describe("parametrize.cached", function()
  it("computes once inside, and anew outside", function()
    local calls, Count = 0, nn.Module:extend("Count")
    function Count.forward(_, x)
      calls = calls + 1
      return x * 1
    end
    local l = P.register_parametrization(linear(), "weight", Count())
    calls = 0
    do
      local _ <close> = P.cached()
      assert.equal(l.weight, l.weight)
      P.cached(function()
        assert.equal(l.weight, l.weight)
      end)
      assert.equal(1, calls)
    end
    assert.not_equal(l.weight, l.weight)
    assert.equal(3, calls)
  end)
end)
