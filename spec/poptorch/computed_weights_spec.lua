-- Weights that are computed from others (weight_norm, parametrizations, pruning), and
-- that are views: trained as in eager calls, saved and loaded.
local core = require("lupine.core")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

local path

before_each(function()
  path = os.tmpname()
end)
after_each(function()
  os.remove(path)
end)

local U = nn.utils
local x = torch.randn({ 4, 3 })

local Rule = U.prune.BasePruningMethod:extend("EveryOtherRule")
Rule.PRUNING_TYPE = "unstructured"
function Rule.compute_mask(_, t, mask)
  local new = mask:clone()
  new:view({ -1 })["::2"] = 0
  return new:reshape(t.shape)
end

local Doubled = nn.Module:extend("DoubledWeight")
function Doubled.forward(_, w)
  return w * 2
end
function Doubled.right_inverse(_, w)
  return w / 2
end

-- Each makes a layer with a computed weight.
local COMPUTED = {
  weight_norm = function() return U.weight_norm(nn.Linear(3, 2)) end,
  ["weight_norm of all"] = function() return U.weight_norm(nn.Linear(3, 2), "weight", -1) end,
  spectral_norm = function()
    return U.spectral_norm(nn.Linear(3, 2), { n_power_iterations = 2 })
  end,
  ["parametrizations.weight_norm"] = function()
    return U.parametrizations.weight_norm(nn.Linear(3, 2))
  end,
  ["parametrizations.orthogonal"] = function()
    return U.parametrizations.orthogonal(nn.Linear(3, 2))
  end,
  ["a parametrization"] = function()
    return U.parametrize.register_parametrization(nn.Linear(3, 2), "weight", Doubled())
  end,
  ["prune.l1_unstructured"] = function()
    return U.prune.l1_unstructured(nn.Linear(3, 2), "weight", 2)
  end,
  ["pruning twice"] = function()
    return U.prune.random_unstructured(U.prune.ln_structured(nn.Linear(3, 2), "weight", 1, 2, 1),
      "weight", 1)
  end,
  ["a rule of one's own"] = function()
    local layer = nn.Linear(3, 2)
    Rule.apply(layer, "weight")
    return layer
  end,
}

local Sum = nn.Module:extend("SumOfLayer")

function Sum:init(layer)
  self.layer = layer
end

function Sum:forward(v)
  local y = self.layer(v)
  return y, poptorch.identity_loss((y * y):sum(), "sum")
end

local function trainer(net)
  return poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), 0.05))
end

local function same(a, b, name)
  assert.is_true(torch.equal(a, b), name)
end

describe("a model with a computed weight", function()
  for name, make in pairs(COMPUTED) do
    it("is saved and goes on as it would: " .. name, function()
      local net = Sum(nn.Sequential(make(), nn.Tanh()))
      local first = trainer(net)
      first(x)
      first:save(path)
      local second = poptorch.load(path)
      for _ = 1, 3 do
        same(first(x), second(x), name)
      end
      assert.equal(tostring(net), tostring(second.model))
      first:copyWeightsToHost()
      second:copyWeightsToHost()
      local want = net:state_dict()
      for key, value in pairs(second.model:state_dict()) do
        same(want[key], value, key)
      end
      -- what is compiled anew, and eager calls, compute the weight as well
      second:destroy()
      local loaded = second.model:eval()
      same(net:eval()(x), loaded(x), name)
      helper.near(poptorch.inferenceModel(loaded)(x), loaded(x))
    end)
  end

  it("can have it made a parameter again after loading", function()
    local function loaded(layer)
      local model = poptorch.inferenceModel(nn.Sequential(layer))
      model:compile(x)
      model:save(path)
      local second = poptorch.load(path)
      second:destroy()
      return second.model[1]
    end
    local made = COMPUTED.weight_norm()
    local layer = U.remove_weight_norm(loaded(made))
    helper.near(layer.weight, made.weight)
    assert.is_true(core.is_parameter(layer.weight))
    made = COMPUTED["a parametrization"]()
    layer = U.parametrize.remove_parametrizations(loaded(made), "weight")
    same(made.weight, layer.weight)
    assert.equal(nn.Linear, getmetatable(layer))
    made = COMPUTED["prune.l1_unstructured"]()
    layer = loaded(made)
    assert.is_true(U.prune.is_pruned(layer))
    same(made.weight, U.prune.remove(layer, "weight").weight)
  end)

  it("is loaded by a program that has computed none", function()
    local layer = nn.Sequential(COMPUTED["parametrizations.weight_norm"](),
      U.weight_norm(nn.Linear(2, 3)), COMPUTED["prune.l1_unstructured"]())
    local model = poptorch.inferenceModel(layer)
    local want = model(x)
    model:save(path)
    torch.save({ x = x, want = want }, path .. ".x")
    local script = program.temporary(([[
      local torch, poptorch = require("torch"), require("poptorch")
      local t, model = torch.load(%q), poptorch.load(%q)
      print(torch.equal(t.want, model(t.x)))
      model:destroy()
      print(torch.allclose(t.want, model.model(t.x)))]]):format(path .. ".x", path))
    local out = program.run({ script })
    os.remove(script)
    os.remove(path .. ".x")
    assert.equal("true\ntrue\n", out)
  end)
end)

local Shifted = nn.Module:extend("ShiftedNet")

function Shifted:init(w, b)
  self.w = nn.Parameter(w)
  self:register_buffer("b", b)
end

function Shifted:forward(v)
  self.b:add_(1)
  local y = v:matmul(self.w:t()) * self.b:sum()
  return y, poptorch.identity_loss(y:sum(), "sum")
end

-- Weights and buffers that are views of something else: {w, b}.
local VIEWS = {
  reshaped = function()
    return torch.arange(6):float():reshape(2, 3), torch.zeros(4):reshape(2, 2)
  end,
  transposed = function() return torch.arange(6):float():reshape(3, 2):t(), torch.zeros(2) end,
  ["a part of more"] = function()
    return torch.arange(12):float():reshape(4, 3)["1:3"], torch.zeros(2)
  end,
}

describe("a model with a parameter and a buffer that are views", function()
  for name, make in pairs(VIEWS) do
    it("trains as an eager one, is saved and loaded: " .. name, function()
      local eager, net = Shifted(make()), Shifted(make())
      local optimizer = torch.optim.SGD(eager:parameters(), 0.05)
      local model = trainer(net)
      for _ = 1, 2 do
        optimizer:zero_grad()
        select(2, eager(x)):backward()
        optimizer:step()
        model(x)
      end
      helper.near(net.w, eager.w)
      helper.near(net.b, eager.b)
      assert.is_true(core.is_parameter(net.w))
      model:save(path)
      local second = poptorch.load(path)
      same(model(x), second(x))
      same(net.w, second.model.w)
      local third = trainer(Shifted(make()))
      third:loadExecutable(path)
      third(x)
    end)
  end

  it("trains weights that are parts of one tensor", function()
    local whole = torch.arange(9):float():reshape(3, 3)
    local net, eager = nn.Linear(3, 2), nn.Linear(3, 2)
    net.weight, net.bias = nn.Parameter(whole["0:2"]), nn.Parameter(whole["2, 0:2"])
    eager:load_state_dict(net:state_dict())
    local data = torch.ones(1, 3)
    local optimizer = torch.optim.SGD(eager:parameters(), 0.05)
    local Summed = nn.Module:extend("SummedParts")
    function Summed:init(m)
      nn.Module.init(self)
      self.m = m
    end
    function Summed:forward(given)
      return poptorch.identity_loss(self.m(given), "sum")
    end
    eager(data):sum():backward()
    optimizer:step()
    trainer(Summed(net))(data)
    helper.near(net.weight, eager.weight)
    helper.near(net.bias, eager.bias)
  end)

  it("is no file's if a buffer is a part of a larger tensor", function()
    local model = trainer(Shifted(torch.ones(2, 3), torch.zeros(5)["1:3"]))
    model(x)
    helper.raises("TypeError", "save: buffer 'b' is a part of a larger tensor", function()
      model:save(path)
    end)
  end)

  it("keeps memory that two of its parameters share", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[2].weight = nn.Parameter(net[1].weight)
    local y = torch.randn({ 1, 2 })
    helper.near(poptorch.inferenceModel(net)(y), net(y))
    assert.equal(net[1].weight:data_ptr(), net[2].weight:data_ptr())
  end)
end)
